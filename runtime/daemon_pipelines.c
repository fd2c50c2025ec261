/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's pipelines: kept as they were described, made of applications, handed to the dispatcher, and taken back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/daemon_private.h"
#include "runtime/log.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20) /* pages are made whole, whichever they are */

/* ---- Looking, all with the mutex held ----------------------------------------------------------- */

struct leat_daemon_pipeline *
leat_daemon_find_pipeline(struct leat_daemon *daemon, const char *name)
{
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        if (strcmp(daemon->pipelines.all[p]->spec.name, name) == 0) {
            return daemon->pipelines.all[p];
        }
    }
    return NULL;
}

static const struct leat_target *
find_application(void *context, const char *name)
{
    const struct leat_application *app = leat_daemon_find_application(context, name);
    return app != NULL ? &app->target : NULL;
}

/* How many items a query of that stage may have. */
static uint32_t
items_of(const struct leat_pipeline *pipeline, const struct leat_pipeline_stage *stage)
{
    return stage->each_stage != UINT32_MAX ? stage->each_items : pipeline->target.items_max;
}

enum leat_status
leat_daemon_pipelines_allow(const struct leat_daemon *daemon, const char *application, const struct leat_target *target)
{
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        const struct leat_pipeline *pipeline = daemon->pipelines.all[p]->pipeline;
        for (uint32_t s = 0; pipeline != NULL && s < pipeline->stage_count; s++) {
            const struct leat_pipeline_stage *stage = &pipeline->stages[s];
            if (strcmp(stage->application_name, application) != 0) {
                continue;
            }
            if (target == NULL) {
                return LEAT_FAIL(LEAT_ERR_BUSY, "pipeline '%s' asks '%s': remove the pipeline first", pipeline->name,
                                 application);
            }
            if (target->items_max < items_of(pipeline, stage)) {
                return LEAT_FAIL(
                    LEAT_ERR_BUSY,
                    "pipeline '%s' asks '%s' for up to %u items at once, and that would be %u at most: remove the pipeline "
                    "first",
                    pipeline->name, application, items_of(pipeline, stage), target->items_max);
            }
        }
    }
    return LEAT_OK;
}

/* ---- Memory ------------------------------------------------------------------------------------- */

/* That most workers are on. */
static uint32_t
node_of_most(const struct leat_daemon *daemon)
{
    uint32_t counts[LEAT_SCHED_WORKERS_MAX] = {0}, most = 0;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        counts[daemon->worker_copies[w]]++;
    }
    for (uint32_t n = 0; n < daemon->node_count; n++) {
        most = counts[n] > counts[most] ? n : most;
    }
    return daemon->nodes[most];
}

/* What lies between stages is in the arena of a session without a client, which is there from the first pipeline on. */
static enum leat_status
make_session(struct leat_daemon *daemon)
{
    const struct leat_session_options options = {.slots = LEAT_SLOTS_MAX,
                                                 .lane_count = 1 + daemon->options.worker_count,
                                                 .arena_bytes = daemon->options.pipeline_memory_bytes,
                                                 .near_node = 1 + node_of_most(daemon)};
    char note[160];

    if (daemon->pipelines.session != NULL) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_daemon_session_begin(&options, &daemon->pipelines.session, note);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "memory for what lies between stages");
    }
    daemon->pipelines.session->index = LEAT_PIPELINE_SESSION;
    atomic_store_explicit(&daemon->tables->sessions[LEAT_PIPELINE_SESSION], daemon->pipelines.session,
                          memory_order_relaxed);
    return LEAT_OK;
}

static uint64_t
units_of(const struct leat_pipeline *pipeline)
{
    return pipeline->runs_max * (pipeline->workspace_bytes / LEAT_TENSOR_ALIGN);
}

/* The first place that no pipeline has. */
static enum leat_status
find_memory(const struct leat_daemon *daemon, struct leat_pipeline *pipeline)
{
    const uint64_t all = daemon->options.pipeline_memory_bytes / LEAT_TENSOR_ALIGN, own = units_of(pipeline);
    uint64_t unit = 0, taken = 0;

    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
            const struct leat_pipeline *other = daemon->pipelines.all[p]->pipeline;
            if (other != NULL && unit < other->workspaces_unit + units_of(other) && other->workspaces_unit < unit + own) {
                unit = other->workspaces_unit + units_of(other);
                moved = true;
            }
        }
    }
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        const struct leat_pipeline *other = daemon->pipelines.all[p]->pipeline;
        taken += other != NULL ? units_of(other) : 0;
    }
    if (unit + own > all) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "pipeline '%s' needs %llu bytes for %u runs at a time, other pipelines have %llu, and "
                         "limits.pipeline_memory is "
                         "%llu: lower 'in_flight' or 'items_max', remove one of them, or raise that",
                         pipeline->name, (unsigned long long)(own * LEAT_TENSOR_ALIGN), pipeline->runs_max,
                         (unsigned long long)(taken * LEAT_TENSOR_ALIGN),
                         (unsigned long long)daemon->options.pipeline_memory_bytes);
    }
    pipeline->workspaces_unit = unit;
    return LEAT_OK;
}

/* Its pages. Takes a while where it is much. */
static enum leat_status
make_memory(struct leat_daemon *daemon, const struct leat_pipeline *pipeline)
{
    const uint64_t end =
        leat_round_up((pipeline->workspaces_unit + units_of(pipeline)) * LEAT_TENSOR_ALIGN, HUGE_PAGE_BYTES);

    enum leat_status status = make_session(daemon);
    if (status == LEAT_OK && end > daemon->pipelines.session->arena_present) { /* as far as the arena goes */
        status = leat_daemon_session_populate(daemon->pipelines.session, end - daemon->pipelines.session->arena_present);
    }
    return status;
}

/* ---- Service ------------------------------------------------------------------------------------ */

static uint16_t
find_index(const struct leat_daemon *daemon)
{
    uint64_t taken = 0;

    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        const struct leat_pipeline *pipeline = daemon->pipelines.all[p]->pipeline;
        taken |= pipeline != NULL ? UINT64_C(1) << pipeline->index : 0;
    }
    LEAT_ASSERT(~taken != 0); /* it is not served, so at least one is free */
    return (uint16_t)__builtin_ctzll(~taken);
}
_Static_assert(LEAT_PIPELINES_MAX == 64, "one bit each");

/* With room for its runs, and nobody knows of it yet. Mutex held, released while memory is made. */
static enum leat_status
build(struct leat_daemon *daemon, const struct leat_pipeline_spec *spec, struct leat_pipeline **ret_pipeline)
{
    const struct leat_pipeline_house house = {
        .find = find_application, .context = daemon, .memory_bytes = daemon->options.pipeline_memory_bytes};
    struct leat_pipeline *pipeline;

    enum leat_status status = leat_pipeline_bind(spec, &house, &pipeline);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "pipeline '%s'", spec->name);
    }
    pipeline->index = find_index(daemon);
    pipeline->target.id = LEAT_PIPELINE_TARGET + pipeline->index;
    status = find_memory(daemon, pipeline);
    if (status == LEAT_OK) { /* nobody but this thread changes what stands here meanwhile */
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        status = make_memory(daemon, pipeline);
        if (status == LEAT_OK) {
            status = leat_pipeline_init_runs(pipeline);
        }
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    }
    if (status != LEAT_OK) {
        free(pipeline);
        return status;
    }
    *ret_pipeline = pipeline;
    return LEAT_OK;
}

static void
hand_over(struct leat_daemon *daemon, struct leat_daemon_pipeline *own, struct leat_pipeline *pipeline)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_ADD_PIPELINE, .pipeline = pipeline};

    own->pipeline = pipeline;
    own->failure[0] = '\0';
    leat_dispatcher_command(daemon->dispatcher, &command);
    leat_log(LEAT_LOG_INFO, "pipeline '%s': %u stages, %u runs at a time, %.1f MB between stages", pipeline->name,
             pipeline->stage_count, pipeline->runs_max, (double)(units_of(pipeline) * LEAT_TENSOR_ALIGN) / 1e6);
}

static void
free_pipeline(struct leat_pipeline *pipeline)
{
    if (pipeline != NULL) {
        leat_pipeline_fini_runs(pipeline);
        free(pipeline);
    }
}

static void
free_own(struct leat_daemon_pipeline *own)
{
    if (own != NULL) {
        free(own->description);
        free(own);
    }
}

void
leat_daemon_serve_pipelines(struct leat_daemon *daemon)
{
    struct leat_pipeline *pipeline;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        struct leat_daemon_pipeline *own = daemon->pipelines.all[p];
        if (own->pipeline != NULL || own->barred || own->removing) {
            continue;
        }
        if (build(daemon, &own->spec, &pipeline) == LEAT_OK) {
            hand_over(daemon, own, pipeline);
        } else if (strncmp(own->failure, leat_error_text(), sizeof(own->failure) - 1) != 0) {
            (void)snprintf(own->failure, sizeof(own->failure), "%s", leat_error_text());
            leat_log(LEAT_LOG_WARNING, "not served: %s", own->failure);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

void
leat_daemon_pipeline_gone(void *context, struct leat_pipeline *pipeline)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    struct leat_daemon_pipeline *own = leat_daemon_find_pipeline(daemon, pipeline->name);
    LEAT_ASSERT(own != NULL && own->pipeline == pipeline);
    own->pipeline = NULL;
    free_pipeline(pipeline);
    LEAT_MUST(pthread_cond_broadcast(&daemon->answered) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

/* ---- Added and removed --------------------------------------------------------------------------- */

/* Reads it; a name that is given is the one. */
static enum leat_status
read_own(const char *name, const json_t *description, struct leat_daemon_pipeline **ret_own)
{
    struct leat_daemon_pipeline *own = calloc(1, sizeof(*own));
    json_t *named = json_copy((json_t *)(uintptr_t)description); /* which is only read */
    enum leat_status status = own != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pipeline");

    if (status == LEAT_OK && name != NULL && json_is_object(named)) {
        status = json_object_set_new(named, "name", json_string(name)) == 0
                     ? LEAT_OK
                     : LEAT_FAIL(LEAT_ERR_INVALID, "the pipeline's name is not UTF-8");
    }
    if (status == LEAT_OK) {
        status = leat_pipeline_spec_read(named, &own->spec);
    }
    if (status == LEAT_OK && own->spec.name[0] == '\0') {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "the pipeline has no 'name'");
    }
    if (status == LEAT_OK) {
        own->description = json_dumps(named, JSON_COMPACT);
        status = own->description != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pipeline");
    }
    json_decref(named);
    if (status != LEAT_OK) {
        free_own(own);
        return status;
    }
    *ret_own = own;
    return LEAT_OK;
}

/* Mutex held. */
static enum leat_status
check_name(struct leat_daemon *daemon, const char *name)
{
    if (leat_daemon_find_pipeline(daemon, name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "a pipeline '%s' exists: remove it first", name);
    }
    if (leat_daemon_find_application(daemon, name) != NULL || leat_daemon_find_definition(daemon, name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "pipeline '%s': a model or application of that name exists: choose another",
                         name);
    }
    return daemon->pipelines.count < LEAT_PIPELINES_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT, "%u pipelines exist, the limit", LEAT_PIPELINES_MAX);
}

enum leat_status
leat_daemon_add_pipeline(struct leat_daemon *daemon, const char *name, const json_t *description)
{
    struct leat_daemon_pipeline *own = NULL;
    struct leat_pipeline *pipeline = NULL;

    enum leat_status status = read_own(name, description, &own);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_registry_pipeline kept = {.description = own->description};
    const struct leat_daemon_change change = {.pipeline = &kept};
    memcpy(kept.name, own->spec.name, sizeof(kept.name));
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    status = check_name(daemon, own->spec.name);
    if (status == LEAT_OK) {
        status = build(daemon, &own->spec, &pipeline);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (status == LEAT_OK) {
        status = leat_daemon_keep(daemon, &change);
    }
    if (status != LEAT_OK) {
        free_pipeline(pipeline);
        free_own(own);
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    daemon->pipelines.all[daemon->pipelines.count++] = own;
    hand_over(daemon, own, pipeline);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return LEAT_OK;
}

enum leat_status
leat_daemon_restore_pipeline(struct leat_daemon *daemon, const struct leat_registry_pipeline *kept)
{
    json_error_t error = {.text = ""};
    json_t *description = json_loads(kept->description, JSON_REJECT_DUPLICATES, &error);
    struct leat_daemon_pipeline *own = NULL;

    enum leat_status status = description != NULL ? read_own(kept->name, description, &own)
                                                  : LEAT_FAIL(LEAT_ERR_PROTO, "its description is no JSON: %s", error.text);
    json_decref(description);
    if (status != LEAT_OK) { /* listed all the same, so that it can be removed */
        own = calloc(1, sizeof(*own));
        if (own == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pipeline");
        }
        memcpy(own->spec.name, kept->name, sizeof(own->spec.name));
        own->barred = true;
        (void)snprintf(own->failure, sizeof(own->failure), "%s", leat_error_text());
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const enum leat_status named = check_name(daemon, own->spec.name);
    if (named != LEAT_OK) {
        status = named;
        own->barred = true;
        (void)snprintf(own->failure, sizeof(own->failure), "%s", leat_error_text());
    }
    if (daemon->pipelines.count < LEAT_PIPELINES_MAX) {
        daemon->pipelines.all[daemon->pipelines.count++] = own;
    } else {
        free_own(own);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_remove_pipeline(struct leat_daemon *daemon, const char *name)
{
    const struct leat_daemon_change change = {.removed_pipeline = name};
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    struct leat_daemon_pipeline *own = leat_daemon_find_pipeline(daemon, name);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (own == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no pipeline '%s': 'leat pipeline list' shows them", name);
    }
    status = leat_daemon_keep(daemon, &change);
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    own->removing = true;
    if (own->pipeline != NULL) {
        const struct leat_command command = {.kind = LEAT_COMMAND_REMOVE_PIPELINE, .pipeline = own->pipeline};
        leat_dispatcher_command(daemon->dispatcher, &command);
    }
    while (own->pipeline != NULL && !daemon->server_done) {
        LEAT_MUST(pthread_cond_wait(&daemon->answered, &daemon->mutex) == 0);
    }
    if (own->pipeline != NULL) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    } else {
        for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
            if (daemon->pipelines.all[p] == own) {
                daemon->pipelines.all[p] = daemon->pipelines.all[--daemon->pipelines.count];
            }
        }
        free_own(own);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

void
leat_daemon_pipelines_fini(struct leat_daemon *daemon)
{
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        free_pipeline(daemon->pipelines.all[p]->pipeline);
        free_own(daemon->pipelines.all[p]);
    }
    leat_daemon_session_destroy(daemon->pipelines.session);
}
