/* SPDX-License-Identifier: Apache-2.0 */
/* Administrative requests about the sizes of workers. */
#include <jansson.h>

#include "runtime/admin_private.h"

static json_t *
numbers(const uint32_t *values, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer(values[i]));
    }
    return array;
}

/* The numbers of cores that it can have. */
static json_t *
describe_sizes(const struct leat_daemon *daemon, uint32_t worker)
{
    json_t *sizes = json_array();
    uint16_t class;

    for (uint32_t cores = 1; cores <= LEAT_TEAM_MAX; cores++) {
        if (leat_daemon_class_of(daemon, worker, cores, &class)) {
            (void)json_array_append_new(sizes, json_integer(cores));
        }
    }
    return sizes;
}

static json_t *
describe_held(struct leat_daemon *daemon, uint32_t worker)
{
    struct leat_daemon_held held;

    leat_daemon_held(daemon, worker, &held);
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:s, s:I, s:I}", "worker", (json_int_t)worker, "cores",
                     (json_int_t)held.shape.cores, "sizes", describe_sizes(daemon, worker), "cpus",
                     daemon->options.pin ? numbers(held.cpus, held.cpu_count) : json_array(), "node",
                     (json_int_t)daemon->options.workers[worker].node, "class", (json_int_t)held.shape.worker_class,
                     "class_name", daemon->classes[held.shape.worker_class].name, "since_ns",
                     (json_int_t)(leat_monotonic_ns() - held.since_ns), "resizes", (json_int_t)held.resizes);
}

json_t *
leat_admin_scale_show(struct leat_daemon *daemon)
{
    uint32_t cpus[LEAT_CPU_MAX];
    json_t *workers = json_array(), *nodes = json_array();

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        (void)json_array_append_new(workers, describe_held(daemon, w));
    }
    for (uint32_t n = 0; n < daemon->node_count; n++) {
        (void)json_array_append_new(
            nodes, json_pack("{s:I, s:I}", "node", (json_int_t)daemon->nodes[n], "free_cores",
                             (json_int_t)leat_daemon_free_cores(daemon, daemon->nodes[n])));
    }
    const uint32_t count = leat_daemon_free_cpus(daemon, cpus);
    return json_pack("{s:o, s:o, s:o, s:s}", "workers", workers, "nodes", nodes, "free_cpus", numbers(cpus, count), "held_by",
                     daemon->options.pin ? "affinity" : "nothing");
}

json_t *
leat_admin_scale_set(struct leat_daemon *daemon, const json_t *request)
{
    const json_t *worker = json_object_get(request, "worker"), *cores = json_object_get(request, "cores");

    if (!json_is_integer(worker) || json_integer_value(worker) < 0 || json_integer_value(worker) > UINT16_MAX) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "worker must be its number (leat scale show)"));
    }
    if (!json_is_integer(cores) || json_integer_value(cores) < 1 || json_integer_value(cores) > LEAT_TEAM_MAX) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "cores must be 1 to %u", LEAT_TEAM_MAX));
    }
    struct leat_daemon_size size = {.worker = (uint32_t)json_integer_value(worker), .cores = (uint32_t)json_integer_value(cores)};
    const enum leat_status status = leat_daemon_resize(daemon, &size, 1);
    if (status != LEAT_OK) {
        return leat_admin_refusal(status);
    }
    json_t *answer = describe_held(daemon, size.worker);
    (void)json_object_set_new(answer, "effect_ns", json_integer((json_int_t)size.effect_ns));
    (void)json_object_set_new(answer, "idle", json_boolean(size.idle));
    return answer;
}
