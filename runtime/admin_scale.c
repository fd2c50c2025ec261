/* SPDX-License-Identifier: Apache-2.0 */
/* Administrative requests about the sizes of workers. */
#include <jansson.h>

#include "runtime/admin_private.h"
#include "runtime/cpuset.h"
#include "runtime/relief_keeper.h"
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
describe_serving(struct leat_daemon *daemon, uint32_t cores, uint16_t application)
{
    json_t *own = name_application(daemon, application);
    const char *serves = own != NULL ? "application" : application == LEAT_ARRANGED_FOR_NOBODY ? "nobody" : "all";

    return json_pack("{s:I, s:s, s:o?}", "cores", (json_int_t)cores, "serves", serves, "application", own);
}

/* NULL where it is as it was arranged. */
static json_t *
describe_pending(struct leat_daemon *daemon, const struct leat_daemon_held *held)
{
    if (!held->pending) {
        return NULL;
    }
    json_t *pending = describe_serving(daemon, held->target.cores, held->target.application);
    const char *waits_for = held->in_batch ? "batch" : held->target.cores > held->shape.cores ? "cores" : "turn";
    (void)json_object_set_new(pending, "waits_for", json_string(waits_for));
    (void)json_object_set_new(pending, "since_ns",
                              json_integer((json_int_t)(leat_clock_now(&daemon->tables->clock) - held->asked_ns)));
    return pending;
}

static json_t *
describe_held(struct leat_daemon *daemon, uint32_t worker)
{
    struct leat_daemon_held held;

    leat_daemon_held(daemon, worker, &held);
    const char *group = leat_cpusets_path(daemon->options.cpusets, worker);
    json_t *object = describe_serving(daemon, held.cpu_count, held.application);
    json_t *more = json_pack("{s:I, s:o, s:o, s:I, s:I, s:s, s:I, s:I, s:I, s:s, s:s?, s:o?, s:s, s:o}", "worker",
                             (json_int_t)worker, "sizes", describe_sizes(daemon, worker), "cpus",
                             daemon->options.pin ? numbers(held.cpus, held.cpu_count) : json_array(), "node",
                             (json_int_t)daemon->options.workers[worker].node, "class", (json_int_t)held.shape.worker_class,
                             "class_name", daemon->classes[held.shape.worker_class].name, "since_ns",
                             (json_int_t)(leat_monotonic_ns() - held.since_ns), "resizes", (json_int_t)held.resizes,
                             "moves", (json_int_t)held.moves, "stays", leat_relief_keeper_stays(daemon, worker), "group",
                             group[0] != '\0' ? group : NULL, "pending", describe_pending(daemon, &held), "trouble",
                             held.trouble, "gone_cpus", numbers(held.gone, held.gone_count));
    (void)json_object_update(object, more);
    json_decref(more);
    return object;
}

json_t *
leat_admin_scale_show(struct leat_daemon *daemon)
{
    uint32_t cpus[LEAT_CPU_MAX], gone[LEAT_CPU_MAX];
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
    const uint32_t gone_count = leat_daemon_gone_cpus(daemon, gone);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:s, s:s}", "scaling", leat_scale_keeper_describe(daemon), "workers",
                     workers, "nodes", nodes, "free_cpus", numbers(cpus, count), "gone_cpus", numbers(gone, gone_count),
                     "repinned", (json_int_t)leat_daemon_repinned(daemon), "held_by", held_by(daemon), "held_why",
                     leat_cpusets_reason(daemon->options.cpusets));
}

/* The id of the application of that name, or for all where it is null. */
static enum leat_status
read_application(struct leat_daemon *daemon, const json_t *application, uint16_t *ret_id)
{
    const char *name = json_string_value(application);

    *ret_id = LEAT_ARRANGED_FOR_ALL;
    if (name == NULL) {
        return json_is_null(application) ? LEAT_OK
                                         : LEAT_FAIL(LEAT_ERR_INVALID, "application must be a name, or null for all");
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_application *app = leat_daemon_find_application(daemon, name);
    *ret_id = app != NULL ? app->id : LEAT_ARRANGED_FOR_NOBODY;
    const enum leat_status status = app != NULL ? LEAT_OK : leat_daemon_lack_application(daemon, name);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

/* What is not said of a worker stays as it was arranged. */
static enum leat_status
read_arrangement(struct leat_daemon *daemon, const json_t *request, struct leat_daemon_arrangement *ret_arrangement)
{
    const json_t *worker = json_object_get(request, "worker"), *cores = json_object_get(request, "cores");
    const json_t *application = json_object_get(request, "application");
    struct leat_daemon_held held;

    if (!json_is_integer(worker) || json_integer_value(worker) < 0 || json_integer_value(worker) > UINT16_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "worker must be its number (leat scale show)");
    }
    if ((cores != NULL || application == NULL) &&
        (!json_is_integer(cores) || json_integer_value(cores) < 0 || json_integer_value(cores) > LEAT_TEAM_MAX)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "cores must be 0 to %u", LEAT_TEAM_MAX);
    }
    *ret_arrangement = (struct leat_daemon_arrangement){.worker = (uint32_t)json_integer_value(worker),
                                                        .cores = cores != NULL ? (uint16_t)json_integer_value(cores)
                                                                               : LEAT_ARRANGED_AS_BEFORE,
                                                        .application = LEAT_ARRANGED_AS_BEFORE};
    if (application == NULL || ret_arrangement->worker >= daemon->options.worker_count) {
        return LEAT_OK;
    }
    leat_daemon_held(daemon, ret_arrangement->worker, &held);
    const enum leat_status status = read_application(daemon, application, &ret_arrangement->application);
    return status == LEAT_OK && (cores != NULL ? ret_arrangement->cores : held.target.cores) == 0
               ? LEAT_FAIL(LEAT_ERR_INVALID, "worker %u serves nobody without cores", ret_arrangement->worker)
               : status;
}

void
leat_admin_resize(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    struct leat_daemon_arrangement arrangement;
    enum leat_status status;

    if (daemon->scaling != NULL) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "workers follow the load, as scaling.mode of the configuration says: %s",
                           leat_scaling_modes[daemon->options.scaling.mode]);
    } else {
        status = read_arrangement(daemon, job->json, &arrangement);
    }
    if (status == LEAT_OK) {
        status = leat_daemon_arrange(daemon, &arrangement, 1, &job->arrangement);
    }
    if (status != LEAT_OK) {
        leat_admin_answer(job, leat_admin_refusal(status));
        return;
    }
    job->worker = arrangement.worker;
    job->next = daemon->waiting;
    daemon->waiting = job;
    leat_admin_settle(daemon);
}

void
leat_admin_settle(struct leat_daemon *daemon)
{
    struct leat_daemon_effect effect;

    leat_daemon_take_steps(daemon);
    for (struct leat_admin_job **at = &daemon->waiting; *at != NULL;) {
        struct leat_admin_job *job = *at;
        const enum leat_status status = leat_daemon_arranged(daemon, job->worker, job->arrangement, &effect);
        if (status == LEAT_AGAIN) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        json_t *answer = status == LEAT_OK ? describe_held(daemon, job->worker) : leat_admin_refusal(status);
        if (status == LEAT_OK) {
            (void)json_object_set_new(answer, "effect_ns", json_integer((json_int_t)effect.effect_ns));
            (void)json_object_set_new(answer, "idle", json_boolean(effect.idle));
        }
        leat_admin_answer(job, answer);
    }
}
