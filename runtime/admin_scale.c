/* SPDX-License-Identifier: Apache-2.0 */
/* Administrative requests about the sizes of workers. */
#include <jansson.h>

#include "runtime/admin_private.h"
#include "runtime/cpuset.h"
#include "runtime/scale_keeper.h"

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

/* NULL where it is none's. */
static json_t *
name_application(struct leat_daemon *daemon, uint16_t id)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    json_t *name = id < LEAT_APPLICATIONS_MAX && daemon->applications[id] != NULL ? json_string(daemon->applications[id]->name) : NULL;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return name;
}

static const char *
held_by(const struct leat_daemon *daemon)
{
    return daemon->options.pin ? leat_cpusets_name(daemon->options.cpusets) : "nothing";
}

json_t *
leat_admin_topology(const struct leat_daemon *daemon)
{
    if (daemon->options.cpusets == NULL) {
        return json_incref(daemon->options.topology);
    }
    const char *reason = leat_cpusets_reason(daemon->options.cpusets);
    json_t *answer = json_copy(daemon->options.topology);

    (void)json_object_set_new(answer, "held_by", json_string(held_by(daemon)));
    (void)json_object_set_new(answer, "held_why", json_string(reason));
    const char *text = json_string_value(json_object_get(answer, "text"));
    (void)json_object_set_new(answer, "text",
                              json_sprintf("%sthreads     of workers held by %s: %s\n", text, held_by(daemon), reason));
    return answer;
}

static json_t *
describe_held(struct leat_daemon *daemon, uint32_t worker)
{
    struct leat_daemon_held held;

    leat_daemon_held(daemon, worker, &held);
    json_t *own = name_application(daemon, held.application);
    const char *serves = own != NULL ? "application" : held.application == LEAT_ARRANGED_FOR_NOBODY ? "nobody" : "all";
    const char *group = leat_cpusets_path(daemon->options.cpusets, worker);
    return json_pack("{s:s, s:o?, s:I, s:I, s:o, s:o, s:I, s:I, s:s, s:I, s:I, s:I, s:s?}", "serves", serves, "application", own,
                     "worker", (json_int_t)worker, "cores",
                     (json_int_t)held.shape.cores, "sizes", describe_sizes(daemon, worker), "cpus",
                     daemon->options.pin ? numbers(held.cpus, held.cpu_count) : json_array(), "node",
                     (json_int_t)daemon->options.workers[worker].node, "class", (json_int_t)held.shape.worker_class,
                     "class_name", daemon->classes[held.shape.worker_class].name, "since_ns",
                     (json_int_t)(leat_monotonic_ns() - held.since_ns), "resizes", (json_int_t)held.resizes, "moves",
                     (json_int_t)held.moves, "group", group[0] != '\0' ? group : NULL);
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
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:s}", "scaling", leat_scale_keeper_describe(daemon), "workers", workers,
                     "nodes", nodes, "free_cpus", numbers(cpus, count), "held_by", held_by(daemon), "held_why",
                     leat_cpusets_reason(daemon->options.cpusets));
}

/* Whom it is to serve, with the cores that it has where none are said; null: all. */
static enum leat_status
arrange(struct leat_daemon *daemon, uint32_t worker, const json_t *cores, const json_t *application)
{
    struct leat_daemon_arrangement arrangement = {.worker = worker, .application = LEAT_ARRANGED_FOR_ALL};
    struct leat_daemon_held held;
    const char *name = json_string_value(application);

    if (worker >= daemon->options.worker_count) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no worker %u: they are 0 to %u (leat scale show)", worker,
                         daemon->options.worker_count - 1);
    }
    if (name == NULL && !json_is_null(application)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "application must be a name, or null for all");
    }
    if (name != NULL) {
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        const struct leat_application *app = leat_daemon_find_application(daemon, name);
        arrangement.application = app != NULL ? app->id : LEAT_ARRANGED_FOR_NOBODY;
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        if (arrangement.application == LEAT_ARRANGED_FOR_NOBODY) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application or model '%s'", name);
        }
    }
    leat_daemon_held(daemon, worker, &held);
    arrangement.cores = cores != NULL ? (uint16_t)json_integer_value(cores) : held.shape.cores;
    return arrangement.cores > 0 ? leat_daemon_arrange(daemon, &arrangement, 1)
                                 : LEAT_FAIL(LEAT_ERR_INVALID, "worker %u serves nobody without cores", worker);
}

json_t *
leat_admin_scale_set(struct leat_daemon *daemon, const json_t *request)
{
    const json_t *worker = json_object_get(request, "worker"), *cores = json_object_get(request, "cores");
    const json_t *application = json_object_get(request, "application");
    const uint64_t begin_ns = leat_monotonic_ns();

    if (!json_is_integer(worker) || json_integer_value(worker) < 0 || json_integer_value(worker) > UINT16_MAX) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "worker must be its number (leat scale show)"));
    }
    if ((cores != NULL || application == NULL) &&
        (!json_is_integer(cores) || json_integer_value(cores) < 0 || json_integer_value(cores) > LEAT_TEAM_MAX)) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "cores must be 0 to %u", LEAT_TEAM_MAX));
    }
    if (daemon->scaling != NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_BUSY, "workers follow the load, as scaling.mode of the configuration says: %s",
                                            leat_scaling_modes[daemon->options.scaling.mode]));
    }
    struct leat_daemon_size size = {.worker = (uint32_t)json_integer_value(worker), .cores = (uint32_t)json_integer_value(cores)};
    const enum leat_status status = application != NULL ? arrange(daemon, size.worker, cores, application)
                                                        : leat_daemon_resize(daemon, &size, 1);
    if (status != LEAT_OK) {
        return leat_admin_refusal(status);
    }
    size.effect_ns = application != NULL ? leat_monotonic_ns() - begin_ns : size.effect_ns;
    json_t *answer = describe_held(daemon, size.worker);
    (void)json_object_set_new(answer, "effect_ns", json_integer((json_int_t)size.effect_ns));
    (void)json_object_set_new(answer, "idle", json_boolean(size.idle));
    return answer;
}
