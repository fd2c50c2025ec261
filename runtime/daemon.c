/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/graph.h"
#include "kernels/mapping.h"
#include "kernels/team.h"
#include "runtime/daemon_private.h"
#include "runtime/log.h"
#include "runtime/notify.h"
#include "runtime/offline.h"
#include "runtime/validation.h"
#include "runtime/policy_keeper.h"
#include "runtime/relief_keeper.h"
#include "runtime/scale_keeper.h"

#define TICK_NS UINT64_C(500000000)
#define WARM_RUN_NS_MAX  UINT64_C(1000000)   /* that a query of another model may wait while one is loaded */
#define WARM_PATIENCE_NS UINT64_C(200000000) /* with all workers together */
#define WARM_LEAST_NS    UINT64_C(2000000)   /* with each, for all its runs */

/* ---- Tables ----------------------------------------------------------------------------------- */

struct leat_daemon_model *
leat_daemon_find_model(struct leat_daemon *daemon, const char *name)
{
    for (uint32_t m = 0; m < daemon->model_count; m++) {
        if (strcmp(daemon->models[m]->name, name) == 0) {
            return daemon->models[m];
        }
    }
    return NULL;
}

/* Mutex held. A run's first query is refused where its stage's list is full. */
static uint32_t
offline_max(const struct leat_daemon *daemon, const struct leat_pipeline *pipeline)
{
    uint32_t most = leat_pipeline_offline_max(pipeline);

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_application *app = daemon->applications[pipeline->stages[s].application];
        most = app != NULL && app->waiting_max < most ? app->waiting_max : most;
    }
    return most;
}

/* Of its most accurate model; 0: of none it is known. */
static uint32_t
best_accuracy(const struct leat_application *app)
{
    uint32_t best_ppm = 0;

    for (uint32_t v = 0; v < app->variant_count; v++) {
        best_ppm = app->variants[v]->accuracy_ppm > best_ppm ? app->variants[v]->accuracy_ppm : best_ppm;
    }
    return best_ppm;
}

/* Mutex held. As if stages erred independently. */
static uint32_t
best_of_stages(const struct leat_daemon *daemon, const struct leat_pipeline *pipeline)
{
    double best = 1;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_application *app = daemon->applications[pipeline->stages[s].application];
        best *= app != NULL ? best_accuracy(app) / 1e6 : 0;
    }
    return (uint32_t)(best * 1e6 + 0.5);
}

enum leat_status
leat_daemon_find_offline(struct leat_daemon *daemon, const char *name, struct leat_target *ret_target, uint32_t *ret_most,
                         uint32_t *ret_best_ppm)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_application *app = leat_daemon_find_application(daemon, name);
    const struct leat_daemon_pipeline *own = app == NULL ? leat_daemon_find_pipeline(daemon, name) : NULL;
    if (app != NULL) {
        *ret_target = app->target;
        *ret_most = app->waiting_max;
        *ret_best_ppm = best_accuracy(app);
    } else if (own != NULL && own->pipeline != NULL && !own->removing) {
        *ret_target = own->pipeline->target;
        *ret_most = offline_max(daemon, own->pipeline);
        *ret_best_ppm = best_of_stages(daemon, own->pipeline);
    } else if (own != NULL && !own->removing) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "pipeline '%s' is not served: %s", name, own->failure);
    } else {
        status = leat_daemon_lack_application(daemon, name);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

/* Mutex held: whoever may run what is offline of it. */
static bool
leaves_workers(const struct leat_daemon *daemon, const struct leat_application *app, const uint16_t *owners,
               const struct leat_worker_set *held_back)
{
    struct leat_worker_set own = {{0}}, common = {{0}}, any = {{0}};

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        leat_worker_set_put(&own, w, owners[w] == app->id);
        leat_worker_set_put(&common, w, owners[w] == LEAT_WORKER_FOR_ALL);
        leat_worker_set_put(&any, w, owners[w] != LEAT_WORKER_FOR_NOBODY);
    }
    leat_worker_set_add(&own, &common);
    const struct leat_worker_set *serving = leat_worker_set_is_empty(&own) ? &any : &own;
    const struct leat_worker_set left = leat_worker_set_without(serving, held_back);
    return app->router->deals ? !leat_worker_set_meet(serving, held_back) : !leat_worker_set_is_empty(&left);
}

bool
leat_daemon_leaves_workers(struct leat_daemon *daemon, const char *name, const struct leat_worker_set *held_back)
{
    uint16_t owners[LEAT_SCHED_WORKERS_MAX];
    bool leaves = true;

    leat_daemon_list_owners(daemon, owners);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_application *app = leat_daemon_find_application(daemon, name);
    const struct leat_daemon_pipeline *own = app == NULL ? leat_daemon_find_pipeline(daemon, name) : NULL;
    if (app != NULL) {
        leaves = leaves_workers(daemon, app, owners, held_back);
    } else if (own != NULL && own->pipeline != NULL) {
        for (uint32_t s = 0; s < own->pipeline->stage_count; s++) {
            app = daemon->applications[own->pipeline->stages[s].application];
            leaves = leaves && (app == NULL || leaves_workers(daemon, app, owners, held_back));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return leaves;
}

enum leat_status
leat_daemon_find_target(void *context, const char *name, struct leat_target *ret_target)
{
    uint32_t most, best_ppm;
    return leat_daemon_find_offline(context, name, ret_target, &most, &best_ppm);
}

/* ---- Models ----------------------------------------------------------------------------------- */

static enum leat_status
reserve_scratch(struct leat_daemon *daemon, size_t bytes)
{
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const enum leat_status status = leat_worker_reserve(daemon->workers[w], bytes);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

void
leat_daemon_free_model(struct leat_daemon_model *model)
{
    leat_variant_destroy(model->variant);
    leat_measured_free(&model->measured);
    json_decref(model->files);
    free(model);
}

static void
number_variant(const struct leat_daemon *daemon, struct leat_variant *variant)
{
    uint32_t index = 1; /* 0 stays unused, so that a zeroed cell names nothing */
    while (atomic_load_explicit(&daemon->tables->variants[index], memory_order_relaxed) != NULL) {
        index++;
        LEAT_ASSERT(index <= UINT16_MAX); /* there are fewer variants than numbers */
    }
    variant->index = (uint16_t)index;
    atomic_store_explicit(&daemon->tables->variants[index], variant, memory_order_relaxed);
}
_Static_assert(LEAT_APPLICATIONS_MAX * LEAT_LENGTHS_MAX < UINT16_MAX, "there are fewer variants than numbers");

static void
forget_variants(const struct leat_daemon *daemon, const struct leat_variant *variant)
{
    atomic_store_explicit(&daemon->tables->variants[variant->index], NULL, memory_order_relaxed);
    for (uint32_t s = 0; s < variant->shorter_count; s++) {
        atomic_store_explicit(&daemon->tables->variants[variant->shorter[s]->index], NULL, memory_order_relaxed);
    }
}

/* Gives the loaded variant a number and a name of its own; mutex held. */
static enum leat_status
enter_model(struct leat_daemon *daemon, struct leat_daemon_model *model)
{
    if (leat_daemon_find_application(daemon, model->name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "a model or application '%s' exists: remove it first", model->name);
    }
    if (leat_daemon_find_pipeline(daemon, model->name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "a pipeline '%s' exists: remove it first", model->name);
    }
    if (daemon->model_count == LEAT_APPLICATIONS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u models are loaded, the limit", daemon->model_count);
    }
    number_variant(daemon, model->variant);
    for (uint32_t s = 0; s < model->variant->shorter_count; s++) {
        number_variant(daemon, model->variant->shorter[s]);
    }
    daemon->models[daemon->model_count++] = model;
    const enum leat_status status = leat_daemon_publish_model(daemon, model);
    if (status != LEAT_OK) {
        daemon->model_count--;
        forget_variants(daemon, model->variant);
    }
    return status;
}

/* What a source has of the daemon: for which workers, and where. */
static struct leat_variant_source
place_source(const struct leat_daemon *daemon, const struct leat_variant_source *source)
{
    struct leat_variant_source placed = *source;

    placed.team_sizes = daemon->team_sizes;
    placed.class_names = daemon->class_names;
    placed.team_size_count = daemon->class_count;
    placed.runs = daemon->options.worker_count;
    placed.memory_bytes_max = daemon->options.model_memory_bytes;
    placed.item_gflop_max = daemon->options.item_gflop;
    placed.trips_max = daemon->options.loop_iterations;
    placed.nodes = daemon->nodes;
    placed.node_count = daemon->node_count;
    placed.host = daemon->host;
    return placed;
}

/* NULL: none any more. */
static void
note_loading(struct leat_daemon *daemon, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    (void)snprintf(daemon->loading, sizeof(daemon->loading), "%s", name != NULL ? name : "");
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

enum leat_status
leat_daemon_choose_items(struct leat_daemon *daemon, const struct leat_variant_source *sources, uint32_t count,
                         uint32_t items_given, uint64_t latency_max_ns, uint64_t bytes_max,
                         struct leat_batch_choice *ret_choices)
{
    struct leat_variant_source placed[LEAT_PRECISION_COUNT];

    LEAT_ASSERT(count >= 1 && count <= LEAT_PRECISION_COUNT);
    for (uint32_t i = 0; i < count; i++) {
        placed[i] = place_source(daemon, &sources[i]);
    }
    note_loading(daemon, sources[0].name);
    const enum leat_status status =
        leat_variant_choose_items(placed, count, items_given, latency_max_ns, bytes_max, ret_choices);
    note_loading(daemon, NULL);
    return status;
}

/* NULL: it has none. */
static json_t *
describe_files(const struct leat_variant_source *source)
{
    json_t *files = source->file_count > 0 ? json_array() : NULL;

    for (uint32_t f = 0; f < source->file_count; f++) {
        const struct leat_variant_file *file = &source->files[f];
        (void)json_array_append_new(files, json_pack("{s:s, s:I, s:s?}", "name", file->name, "bytes", (json_int_t)file->bytes,
                                                     "sha256", file->sha256[0] != '\0' ? file->sha256 : NULL));
    }
    return files;
}

enum leat_status
leat_daemon_prepare_model(struct leat_daemon *daemon, const struct leat_variant_source *source,
                          struct leat_daemon_model **ret_model)
{
    const struct leat_variant_source placed = place_source(daemon, source);
    struct leat_loaded_variant loaded;

    note_loading(daemon, source->name);
    const enum leat_status status = leat_variant_load(&placed, &loaded);
    note_loading(daemon, NULL);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_daemon_model *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for model '%s'", source->name);
    }
    (void)strncpy(model->name, source->name, sizeof(model->name) - 1);
    model->variant = loaded.variant;
    model->signature = loaded.signature;
    memcpy(model->profiles, loaded.profiles, sizeof(model->profiles));
    memcpy(model->shorter_profiles, loaded.shorter_profiles, sizeof(model->shorter_profiles));
    model->measured = loaded.measured;
    model->measured_anew = loaded.measured_anew;
    model->bytes = loaded.model_bytes;
    model->scratch_bytes = loaded.scratch_bytes;
    model->load_ns = loaded.load_ns;
    model->files = describe_files(source);
    *ret_model = model;
    return LEAT_OK;
}

enum leat_status
leat_daemon_calibrate(struct leat_daemon *daemon, const struct leat_variant_source *source, const struct leat_validation_set *set,
                      json_t **ret_ranges)
{
    const struct leat_variant_source placed = place_source(daemon, source);

    note_loading(daemon, source->name);
    const enum leat_status status = leat_calibrate(&placed, set, &daemon->stops, ret_ranges);
    note_loading(daemon, NULL);
    return status == LEAT_OK || status == LEAT_ERR_UNSUPPORTED ? status : leat_err_prefix(status, "model '%s'", source->name);
}

enum leat_status
leat_daemon_validate_model(const struct leat_daemon *daemon, const struct leat_validation_set *set,
                           const struct leat_daemon_model *exact, struct leat_daemon_model *model)
{
    uint32_t cores = 1;

    for (uint32_t c = 0; c < daemon->class_count; c++) {
        cores = daemon->team_sizes[c] > cores ? daemon->team_sizes[c] : cores;
    }
    const enum leat_status status =
        leat_validate(model->variant, exact != NULL ? exact->variant : NULL, &model->signature, set, cores, &daemon->stops,
                      &model->validation);
    if (status == LEAT_OK && set->has_labels && model->variant->accuracy_ppm == 0) { /* 0 would mean that it is unknown */
        model->variant->accuracy_ppm = model->validation.accuracy_ppm > 0 ? model->validation.accuracy_ppm : 1;
        for (uint32_t s = 0; s < model->variant->shorter_count; s++) {
            model->variant->shorter[s]->accuracy_ppm = model->variant->accuracy_ppm;
        }
    }
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "model '%s'", model->name);
}

/* What queries would find cold of it on the worker, in batches that are soon done in the shape that it has now. */
static void
warm_worker(struct leat_daemon *daemon, const struct leat_daemon_model *model, uint32_t w, uint64_t until_ns)
{
    struct leat_daemon_held held;
    uint32_t runs;

    leat_daemon_held(daemon, w, &held);
    if (held.shape.cores == 0) {
        leat_log(LEAT_LOG_DEBUG, "model '%s': worker %u is not warmed up, for it is parked", model->name, w);
        return;
    }
    const struct leat_profile *profile = &model->profiles[held.shape.worker_class];
    const uint64_t run_ns = leat_profile_predict(profile, 1);
    if (run_ns > WARM_RUN_NS_MAX) {
        leat_log(LEAT_LOG_DEBUG, "model '%s': worker %u is not warmed up, for others would wait for %.3f ms on %u cores",
                 model->name, w, (double)run_ns / 1e6, held.shape.cores);
        return;
    }
    uint32_t items = model->variant->items_max;
    while (leat_profile_predict(profile, items) > WARM_RUN_NS_MAX) {
        items /= 2;
    }
    const enum leat_status status =
        leat_variant_warm_worker(model->variant, daemon->workers[w], held.shape.worker_class, items, until_ns, &runs);
    if (status == LEAT_AGAIN) {
        leat_log(LEAT_LOG_DEBUG, "model '%s': worker %u had time for %u runs that warm it up, and no more", model->name, w,
                 runs);
    } else if (status != LEAT_OK) {
        leat_log(LEAT_LOG_WARNING, "model '%s': worker %u is not warmed up: %s", model->name, w, leat_error_text());
    }
    leat_daemon_errand_ended(daemon, w);
}

/* Whoever serves others all the time has no time for it, and is not waited for much longer. */
static void
warm_workers(struct leat_daemon *daemon, const struct leat_daemon_model *model)
{
    const uint64_t until_ns = leat_monotonic_ns() + WARM_PATIENCE_NS;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint64_t least_ns = leat_monotonic_ns() + WARM_LEAST_NS;
        warm_worker(daemon, model, w, until_ns > least_ns ? until_ns : least_ns);
    }
}

enum leat_status
leat_daemon_enter_model(struct leat_daemon *daemon, struct leat_daemon_model *model)
{
    enum leat_status status = reserve_scratch(daemon, model->scratch_bytes);

    if (status == LEAT_OK) {
        warm_workers(daemon, model);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        status = enter_model(daemon, model);
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    }
    if (status != LEAT_OK) {
        leat_daemon_free_model(model);
        return status;
    }
    leat_log(LEAT_LOG_INFO, "model '%s' on %s: %.1f MB, loaded in %.0f ms, %.3f ms for one item%s", model->name,
             model->variant->backend->name, (double)model->bytes / 1e6, (double)model->load_ns / 1e6,
             (double)leat_profile_predict(&model->profiles[0], 1) / 1e6, model->measured_anew ? "" : ", as known");
    return LEAT_OK;
}

enum leat_status
leat_daemon_load_model(struct leat_daemon *daemon, const struct leat_variant_source *source,
                       const struct leat_registry_validation *validation, bool persistent)
{
    const enum leat_precision precision = leat_variant_precision(source);
    struct leat_daemon_model *model;

    if (precision != LEAT_PRECISION_F32 && source->accuracy_ppm == 0 && validation == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID,
                         "how accurate it is in %s was never measured; remove it, and add it again with a validation set or "
                         "an accuracy",
                         leat_precision_text(precision));
    }
    enum leat_status status = leat_daemon_prepare_model(daemon, source, &model);
    if (status != LEAT_OK) {
        return status;
    }
    model->persistent = persistent;
    if (validation != NULL) {
        model->validation = *validation;
    }
    status = leat_daemon_enter_model(daemon, model);
    if (status == LEAT_OK && persistent && model->measured_anew) {
        const struct leat_daemon_change change = {.measured_model = model->name, .measured = &model->measured};
        if (leat_daemon_keep(daemon, &change) != LEAT_OK) {
            leat_log(LEAT_LOG_WARNING, "model '%s' will be measured again: %s", model->name, leat_error_text());
        }
    }
    return status;
}

/* Has a class of workers teams of that size? */
static bool
is_of_class(const struct leat_daemon *daemon, uint32_t cores)
{
    for (uint32_t c = 0; c < daemon->class_count; c++) {
        if (daemon->team_sizes[c] == cores) {
            return true;
        }
    }
    return false;
}

void
leat_daemon_measured_teams(const struct leat_daemon *daemon, const struct leat_daemon_model *model,
                           struct leat_daemon_team_sizes *ret_sizes)
{
    const bool by_class = model->variant->backend->times_by_class;

    ret_sizes->count = 0;
    for (uint32_t p = 0; p < model->measured.count && !by_class; p++) {
        const struct leat_measured_point *point = &model->measured.points[p];
        if (point->items == 1 && point->length == model->variant->length && point->cores > 0 && !is_of_class(daemon, point->cores) &&
            ret_sizes->count < LEAT_COUNT_OF(ret_sizes->cores)) {
            ret_sizes->cores[ret_sizes->count++] = point->cores;
        }
    }
}

/* Classes of workers have theirs already. On failure nothing is left. */
static enum leat_status
measure_teams(const struct leat_daemon *daemon, const struct leat_variant *variant, const struct leat_daemon_team_sizes *sizes,
              struct leat_measured *measured)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t s = 0; s < sizes->count && status == LEAT_OK; s++) {
        if (!is_of_class(daemon, sizes->cores[s])) {
            status = leat_variant_measure_team(variant, sizes->cores[s], measured);
        }
    }
    if (status != LEAT_OK) {
        leat_measured_free(measured);
    }
    return status;
}

enum leat_status
leat_daemon_profile_model(struct leat_daemon *daemon, const char *name, const struct leat_daemon_team_sizes *sizes)
{
    struct leat_daemon_team_sizes before = {.count = 0};

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    struct leat_daemon_model *model = leat_daemon_find_model(daemon, name); /* that nobody but this thread removes */
    if (model != NULL) {
        leat_daemon_measured_teams(daemon, model, &before);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (model == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no model '%s': 'leat model list' shows them", name);
    }
    const struct leat_variant_source source = {.name = name, .items_max = model->variant->items_max};
    const struct leat_variant_source placed = place_source(daemon, &source);
    struct leat_loaded_variant loaded = {.variant = model->variant,
                                         .scratch_bytes = model->scratch_bytes,
                                         .model_bytes = model->bytes,
                                         .load_ns = model->load_ns};
    enum leat_status status = leat_variant_profile(&placed, &loaded);
    if (status == LEAT_OK) {
        status = measure_teams(daemon, model->variant, sizes != NULL ? sizes : &before, &loaded.measured);
    }
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "model '%s'", name);
    }
    if (model->persistent) {
        status = leat_daemon_keep(daemon,
                                  &(struct leat_daemon_change){.measured_model = name, .measured = &loaded.measured});
    }
    if (status != LEAT_OK) {
        leat_measured_free(&loaded.measured);
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    leat_measured_free(&model->measured);
    model->measured = loaded.measured;
    memcpy(model->profiles, loaded.profiles, sizeof(model->profiles));
    memcpy(model->shorter_profiles, loaded.shorter_profiles, sizeof(model->shorter_profiles));
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return leat_daemon_refresh(daemon, model);
}

enum leat_status
leat_daemon_unload_model(struct leat_daemon *daemon, const char *name)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);
    struct leat_application *own = leat_daemon_find_application(daemon, name);
    if (model == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no model '%s': 'leat model list' shows them", name);
        goto out_unlock;
    }
    status = leat_daemon_pipelines_allow(daemon, name, NULL);
    if (status != LEAT_OK) {
        goto out_unlock;
    }
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        const struct leat_application *app = daemon->applications[id];
        for (uint32_t v = 0; app != NULL && app != own && v < app->variant_count; v++) {
            if (app->variants[v] == model->variant) {
                status = LEAT_FAIL(LEAT_ERR_BUSY,
                                   "application '%s' is served by model '%s': 'leat app change %s --remove-models %s' first",
                                   app->name, name, app->name, name);
                goto out_unlock;
            }
        }
    }
    if (!leat_daemon_retire(daemon, own)) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
        goto out_unlock;
    }
    forget_variants(daemon, model->variant);
    for (uint32_t m = 0; m < daemon->model_count; m++) {
        if (daemon->models[m] == model) {
            daemon->models[m] = daemon->models[--daemon->model_count];
            break;
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    leat_daemon_free_model(model); /* large memory goes back slowly, and nobody finds it any more */
    return LEAT_OK;

out_unlock:
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

void
leat_daemon_note_failure(struct leat_daemon *daemon, bool application, const char *name, const char *text)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    if (daemon->failure_count < LEAT_COUNT_OF(daemon->failures)) {
        (void)snprintf(daemon->failures[daemon->failure_count].name, sizeof(daemon->failures[0].name), "%s", name);
        (void)snprintf(daemon->failures[daemon->failure_count].text, sizeof(daemon->failures[0].text), "%s", text);
        daemon->failures[daemon->failure_count].application = application;
        daemon->failure_count++;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

/* Mutex held. */
static uint32_t
find_failed_model(const struct leat_daemon *daemon, const char *name)
{
    uint32_t f = 0;

    while (f < daemon->failure_count && (daemon->failures[f].application || strcmp(daemon->failures[f].name, name) != 0)) {
        f++;
    }
    return f;
}

/* Mutex held. */
static enum leat_status
is_listed_nowhere(struct leat_daemon *daemon, const char *name)
{
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        const struct leat_registry_application *application = &daemon->definitions[d]->application;
        for (uint32_t m = 0; m < application->model_count; m++) {
            if (strcmp(application->models[m], name) == 0) {
                return LEAT_FAIL(LEAT_ERR_BUSY,
                                 "application '%s' has model '%s' in its list: 'leat app change %s --remove-models %s' first",
                                 application->name, name, application->name, name);
            }
        }
    }
    return leat_daemon_pipelines_allow(daemon, name, NULL);
}

enum leat_status
leat_daemon_remove_failed(struct leat_daemon *daemon, const char *name)
{
    const struct leat_daemon_change change = {.removed_models = &name, .removed_model_count = 1};

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    enum leat_status status = find_failed_model(daemon, name) < daemon->failure_count
                                  ? is_listed_nowhere(daemon, name)
                                  : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no model '%s': 'leat model list' shows them", name);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    status = status == LEAT_OK ? leat_daemon_keep(daemon, &change) : status;
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    /* Only this thread removes: it is still there. */
    daemon->failures[find_failed_model(daemon, name)] = daemon->failures[daemon->failure_count - 1];
    daemon->failure_count--;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return LEAT_OK;
}

/* ---- The admin threads ------------------------------------------------------------------------ */

static void
push_job(struct leat_admin_lane *lane, struct leat_admin_job *job)
{
    job->next = NULL;
    LEAT_MUST(pthread_mutex_lock(&lane->daemon->job_mutex) == 0);
    *lane->tail = job;
    lane->tail = &job->next;
    LEAT_MUST(pthread_cond_signal(&lane->ready) == 0);
    LEAT_MUST(pthread_mutex_unlock(&lane->daemon->job_mutex) == 0);
}

static void
queue_admin(void *context, char *request, uid_t uid, struct leat_packet *packet, int reply_socket)
{
    struct leat_daemon *daemon = context;
    const uint32_t taken = leat_admin_may_change(daemon, uid) ? (uint32_t)packet->fd_count : 0; /* nobody else's */
    const uint32_t open = atomic_load_explicit(&daemon->admin_descriptors, memory_order_relaxed);
    struct leat_admin_job *job = malloc(sizeof(*job));

    if (job == NULL || open + taken > LEAT_ADMIN_DESCRIPTORS) { /* none is added but here */
        leat_server_reply(reply_socket,
                          job == NULL ? "{\"status\":-3,\"error\":\"out of memory\"}"
                                      : "{\"status\":-10,\"error\":\"other requests wait with as many files as may be open "
                                        "at once: try again when they have been answered\"}");
        free(job);
        free(request);
        return;
    }
    *job = (struct leat_admin_job){
        .request = request, .uid = uid, .open = &daemon->admin_descriptors, .reply_socket = reply_socket};
    memcpy(job->fds, packet->fds, taken * sizeof(job->fds[0]));
    job->fd_count = taken;
    packet->fd_count -= taken;
    (void)atomic_fetch_add_explicit(&daemon->admin_descriptors, taken, memory_order_relaxed);
    push_job(&daemon->looks, job);
}

/* Loading takes seconds: whoever only looks does not wait for it. */
static void
look(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    if (leat_admin_resizes(daemon, job)) {
        push_job(&daemon->sizes, job);
    } else if (leat_admin_changes(daemon, job)) {
        push_job(&daemon->changes, job);
    } else {
        leat_admin_handle(daemon, job);
    }
}

static void *
lane_main(void *argument)
{
    struct leat_admin_lane *lane = argument;
    struct leat_daemon *daemon = lane->daemon;

    (void)pthread_setname_np(pthread_self(), lane->thread_name);
    LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    for (;;) {
        while (lane->jobs == NULL && !lane->due && !daemon->job_stop) {
            LEAT_MUST(pthread_cond_wait(&lane->ready, &daemon->job_mutex) == 0);
        }
        const bool due = lane->due;
        struct leat_admin_job *job = due ? NULL : lane->jobs;
        if (daemon->job_stop) {
            break;
        }
        lane->due = false;
        if (job != NULL) {
            lane->jobs = job->next;
            lane->tail = lane->jobs == NULL ? &lane->jobs : lane->tail;
        }
        LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
        if (job != NULL) {
            lane->handle(daemon, job);
        } else {
            lane->turn(daemon);
        }
        LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    }
    if (lane->turn != NULL) {
        LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
        lane->turn(daemon);
        LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    }
    daemon->lanes_running--;
    LEAT_MUST(pthread_cond_signal(&daemon->lane_ended) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
    return NULL;
}

void
leat_daemon_wake_sizes(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    daemon->sizes.due = true;
    LEAT_MUST(pthread_cond_signal(&daemon->sizes.ready) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
}

static void
init_lane(struct leat_daemon *daemon, struct leat_admin_lane *lane, const char *thread_name,
          void (*handle)(struct leat_daemon *daemon, struct leat_admin_job *job))
{
    *lane = (struct leat_admin_lane){.daemon = daemon, .handle = handle, .thread_name = thread_name};
    lane->tail = &lane->jobs;
    LEAT_MUST(pthread_cond_init(&lane->ready, NULL) == 0);
}

static enum leat_status
start_lane(struct leat_admin_lane *lane)
{
    lane->daemon->lanes_running++; /* before the thread that counts itself out */
    const int error = pthread_create(&lane->thread, NULL, lane_main, lane);
    if (error != 0) {
        lane->daemon->lanes_running--;
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread %s: %s", lane->thread_name, strerror(error));
    }
    lane->started = true;
    return LEAT_OK;
}

static void
stop_lanes(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    daemon->job_stop = true;
    LEAT_MUST(pthread_cond_signal(&daemon->looks.ready) == 0);
    LEAT_MUST(pthread_cond_signal(&daemon->changes.ready) == 0);
    LEAT_MUST(pthread_cond_signal(&daemon->sizes.ready) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
}

/* After stop_lanes: waits for the thread, and drops what it did not begin. */
static void
end_lane(struct leat_admin_lane *lane)
{
    if (lane->started) {
        LEAT_MUST(pthread_join(lane->thread, NULL) == 0);
    }
    while (lane->jobs != NULL) {
        struct leat_admin_job *job = lane->jobs;
        lane->jobs = job->next;
        leat_admin_drop(job);
    }
    LEAT_MUST(pthread_cond_destroy(&lane->ready) == 0);
}

/* ---- Life ------------------------------------------------------------------------------------- */

/* Says once whose weights were cut short: their batches fail from then on. */
static void
report_damage(struct leat_daemon *daemon)
{
    char name[LEAT_MAPPING_NAME_BYTES];
    json_t *file;
    size_t f;

    while (leat_mapping_next_damaged(name)) {
        leat_log(LEAT_LOG_ERROR, "file '%s' of weights was cut short while it was in use", name);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        for (uint32_t m = 0; m < daemon->model_count; m++) {
            json_array_foreach(daemon->models[m]->files, f, file) {
                if (strncmp(json_string_value(json_object_get(file, "name")), name, sizeof(name) - 1) == 0) {
                    leat_log(LEAT_LOG_ERROR,
                             "if it is that of model '%s', batches of it fail: remove it and add it again, or start anew",
                             daemon->models[m]->name);
                }
            }
        }
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    }
}

/* Feeds the watchdog, and only when the dispatcher has gone round since the last time. */
static void
tick(void *context, uint64_t rounds)
{
    struct leat_daemon *daemon = context;
    if (leat_mapping_any_damaged()) {
        report_damage(daemon);
    }
    if (rounds != daemon->rounds_seen) {
        daemon->rounds_seen = rounds;
        leat_notify_watchdog();
    }
}

static void
stopping(void *context)
{
    struct leat_daemon *daemon = context;
    report_damage(daemon);
    daemon->stopping_ns = leat_monotonic_ns();
    leat_notify_stopping();
}

/* What models must be loaded for: the workers' nodes and the team sizes of their classes. */
static void
survey_workers(struct leat_daemon *daemon)
{
    uint32_t class_sizes[LEAT_WORKER_CLASSES_MAX] = {0}; /* workers that are of it, or can become it */
    bool is_first[LEAT_WORKER_CLASSES_MAX] = {false};

    LEAT_ASSERT(daemon->options.class_count <= LEAT_WORKER_CLASSES_MAX);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_daemon_worker *spec = &daemon->options.workers[w];
        LEAT_ASSERT(spec->worker_class < LEAT_WORKER_CLASSES_MAX);
        daemon->worker_classes[w] = spec->worker_class;
        daemon->first_class_count += !is_first[spec->worker_class];
        is_first[spec->worker_class] = true;
        while (daemon->class_count <= spec->worker_class) {
            daemon->team_sizes[daemon->class_count++] = 1;
        }
        daemon->team_sizes[spec->worker_class] = spec->core_count;
        uint32_t copy = 0;
        while (copy < daemon->node_count && daemon->nodes[copy] != spec->node) {
            copy++;
        }
        daemon->nodes[copy] = spec->node;
        daemon->node_count = copy == daemon->node_count ? copy + 1 : daemon->node_count;
        daemon->worker_copies[w] = copy;
    }
    while (daemon->class_count < daemon->options.class_count) {
        daemon->team_sizes[daemon->class_count++] = 1;
    }
    for (uint32_t c = 0; c < daemon->class_count; c++) {
        struct leat_daemon_class *class = &daemon->classes[c];
        if (daemon->options.classes != NULL) {
            *class = daemon->options.classes[c];
        }
        daemon->team_sizes[c] = class->cores != 0 ? class->cores : daemon->team_sizes[c];
        daemon->class_names[c] = class->name;
    }
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        for (uint16_t c = 0, own; c < daemon->class_count; c++) {
            class_sizes[c] += leat_daemon_class_of(daemon, w, daemon->team_sizes[c], &own) && own == c;
        }
    }
    for (uint32_t c = 0; c < daemon->class_count; c++) {
        daemon->classes[c].count_max = daemon->classes[c].count_max != 0 ? daemon->classes[c].count_max : class_sizes[c];
    }
    daemon->options.classes = NULL; /* the caller's */
    if (daemon->options.host != NULL) {
        (void)snprintf(daemon->host, sizeof(daemon->host), "%s", daemon->options.host);
    }
    daemon->options.host = daemon->host;
}

static enum leat_status
create_workers(struct leat_daemon *daemon)
{
    const struct leat_daemon_options *options = &daemon->options;
    for (uint32_t w = 0; w < options->worker_count; w++) {
        const struct leat_daemon_worker *spec = &options->workers[w];
        const struct leat_worker_options worker_options = {
            .index = w,
            .cpus = options->pin ? spec->cpus : NULL,
            .core_count = spec->core_count,
            .cores_max = spec->cores_max,
            .node = spec->node,
            .worker_class = spec->worker_class,
            .copy = daemon->worker_copies[w],
            .tables = daemon->tables,
            .dispatcher_bell = leat_dispatcher_bell(daemon->dispatcher),
            .dispatcher_event = leat_dispatcher_event_fd(daemon->dispatcher),
        };
        enum leat_status status = leat_worker_create(&worker_options, &daemon->workers[w]);
        if (status == LEAT_OK) {
            status = leat_worker_start(daemon->workers[w]);
        }
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

/* What is open at the most beside the server's descriptors and files of weights. */
static uint32_t
count_descriptors(void)
{
    const uint32_t process = 3 + 1 + 1;           /* standard streams, a notice to systemd, /dev/cpu_dma_latency */
    const uint32_t load = LEAT_ONNX_FILES_MAX + 2; /* files of a model while it is copied or loaded, and their folder */
    const uint32_t looks = 2 * 4;                 /* files of the kernel, such as control groups', on each control thread */
    const uint32_t backends = 64;                 /* what their drivers open, which is not ours to count */

    return process + LEAT_DISPATCHER_DESCRIPTORS + LEAT_REGISTRY_DESCRIPTORS + LEAT_OFFLINE_DESCRIPTORS +
           LEAT_ADMIN_DESCRIPTORS + load + looks + backends;
}

/* Idle cores then poll instead of halting: wake-ups are several times cheaper, and power is burnt. */
static void
hold_dma_latency(struct leat_daemon *daemon)
{
    const int32_t zero = 0;
    daemon->dma_latency_fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (daemon->dma_latency_fd < 0 || write(daemon->dma_latency_fd, &zero, sizeof(zero)) != (ssize_t)sizeof(zero)) {
        leat_log(LEAT_LOG_WARNING, "cannot hold /dev/cpu_dma_latency (%s): wake-ups stay slow", strerror(errno));
    }
}

static enum leat_status
start_parts(struct leat_daemon *daemon)
{
    struct leat_daemon_options *options = &daemon->options;
    const struct leat_dispatcher_options dispatcher_options = {
        .tables = daemon->tables,
        .workers = daemon->workers,
        .worker_classes = daemon->worker_classes,
        .class_count = daemon->class_count,
        .worker_count = options->worker_count,
        .worker_depth = options->worker_depth,
        .queue_capacity = options->queue_capacity,
        .cpu = options->pin ? options->dispatcher_cpu : -1,
    };
    enum leat_status status = leat_dispatcher_create(&dispatcher_options, &daemon->dispatcher);
    if (status == LEAT_OK) {
        status = create_workers(daemon);
    }
    if (status == LEAT_OK) {
        status = leat_daemon_group_workers(daemon);
    }
    if (status == LEAT_OK) {
        status = leat_dispatcher_start(daemon->dispatcher);
    }
    if (status != LEAT_OK) {
        return status;
    }
    options->server.descriptors = count_descriptors();
    options->server.descriptors_of_files = LEAT_MAPPINGS_MAX;
    options->server.lane_count = 1 + options->worker_count;
    options->server.spin_ns = options->spin_ns;
    options->server.spinners = 1; /* the dispatcher; and every member of every team */
    for (uint32_t w = 0; w < options->worker_count; w++) {
        options->server.spinners += options->workers[w].core_count;
    }
    options->server.tables = daemon->tables;
    options->server.dispatcher = daemon->dispatcher;
    options->server.find = leat_daemon_find_target;
    options->server.admin = queue_admin;
    options->server.application_gone = leat_daemon_application_gone;
    options->server.pipeline_gone = leat_daemon_pipeline_gone;
    options->server.profiles_copied = leat_daemon_profiles_copied;
    options->server.policy_set = leat_policy_keeper_set;
    options->server.resized = leat_daemon_resized;
    options->server.dedicated = leat_daemon_dedicated;
    options->server.jumped = leat_scale_keeper_wake;
    options->server.tick = tick;
    options->server.stopping = stopping;
    options->server.context = daemon;
    status = leat_server_create(&options->server, &daemon->server);
    if (status == LEAT_OK) {
        status = start_lane(&daemon->looks);
    }
    if (status == LEAT_OK) {
        status = start_lane(&daemon->changes);
    }
    if (status == LEAT_OK) {
        status = start_lane(&daemon->sizes);
    }
    if (status == LEAT_OK) {
        status = leat_policy_keeper_start(daemon);
    }
    if (status == LEAT_OK) {
        status = leat_offline_create(daemon, options->offline_utilisation_ppm, &daemon->offline);
    }
    if (status == LEAT_OK) {
        status = leat_scale_keeper_create(daemon);
    }
    if (status == LEAT_OK) {
        status = leat_relief_keeper_create(daemon);
    }
    return status;
}

void
leat_daemon_init_timed_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    LEAT_MUST(pthread_condattr_init(&attributes) == 0);
    LEAT_MUST(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    LEAT_MUST(pthread_cond_init(condition, &attributes) == 0);
    LEAT_MUST(pthread_condattr_destroy(&attributes) == 0);
}

enum leat_status
leat_daemon_create(const struct leat_daemon_options *options, struct leat_daemon **ret_daemon)
{
    LEAT_ASSERT(options->worker_count >= 1 && options->worker_count <= LEAT_SCHED_WORKERS_MAX);
    struct leat_daemon *daemon = calloc(1, sizeof(*daemon));
    struct leat_shared_tables *tables = calloc(1, sizeof(*tables));
    if (daemon == NULL || tables == NULL) {
        free(daemon);
        free(tables);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the daemon");
    }
    daemon->options = *options;
    daemon->tables = tables;
    daemon->dma_latency_fd = -1;
    daemon->started_ns = leat_monotonic_ns();
    LEAT_MUST(pthread_mutex_init(&daemon->mutex, NULL) == 0);
    LEAT_MUST(pthread_mutex_init(&daemon->job_mutex, NULL) == 0);
    LEAT_MUST(pthread_cond_init(&daemon->answered, NULL) == 0);
    leat_daemon_init_timed_condition(&daemon->lane_ended);
    init_lane(daemon, &daemon->looks, "leat-admin", look);
    init_lane(daemon, &daemon->changes, "leat-loader", leat_admin_handle);
    init_lane(daemon, &daemon->sizes, "leat-sizes", leat_admin_resize);
    daemon->sizes.turn = leat_admin_settle;
    survey_workers(daemon);
    leat_daemon_scale_init(daemon);
    leat_clock_init(&tables->clock);
    atomic_store_explicit(&tables->spin_ns, options->spin_ns, memory_order_relaxed);
    if (options->hold_cpu_dma_latency) {
        hold_dma_latency(daemon);
    }
    const enum leat_status status = start_parts(daemon);
    if (status != LEAT_OK) {
        leat_daemon_destroy(daemon);
        return status;
    }
    *ret_daemon = daemon;
    return LEAT_OK;
}

/*
 * Ends the admin threads. A model that is being loaded may take what the drain has left: nobody waits for the answer any
 * more, but it ends in order.
 */
static enum leat_status
await_lanes(struct leat_daemon *daemon, uint64_t drain_ns)
{
    const uint64_t least_ns = leat_monotonic_ns() + LEAT_SERVER_PATIENCE_NS;
    const uint64_t left_ns = drain_ns < UINT64_MAX - daemon->stopping_ns ? daemon->stopping_ns + drain_ns : UINT64_MAX;
    const uint64_t most_ns = left_ns > least_ns ? left_ns : least_ns;
    struct leat_dispatcher_statistics statistics;
    enum leat_status status = LEAT_OK;

    stop_lanes(daemon);
    LEAT_MUST(pthread_mutex_lock(&daemon->job_mutex) == 0);
    while (daemon->lanes_running > 0 && status == LEAT_OK) {
        const uint64_t now_ns = leat_monotonic_ns(), next_ns = now_ns + TICK_NS;
        const struct timespec next = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
        const bool hurry = atomic_load_explicit(&daemon->stops, memory_order_relaxed) > 1;
        if (now_ns >= (hurry ? least_ns : most_ns)) {
            status = LEAT_FAIL(LEAT_TIMEOUT, "a model is being loaded after the drain: that ends with the process");
        }
        const int waited = pthread_cond_timedwait(&daemon->lane_ended, &daemon->job_mutex, &next);
        LEAT_ASSERT(waited == 0 || waited == ETIMEDOUT);
        leat_dispatcher_statistics(daemon->dispatcher, &statistics);
        tick(daemon, statistics.rounds);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->job_mutex) == 0);
    return status;
}

/* Offline jobs last: their thread is a client, whom nobody answers until the server runs. */
static enum leat_status
start_beside(struct leat_daemon *daemon)
{
    enum leat_status status = leat_scale_keeper_start(daemon);
    if (status == LEAT_OK) {
        status = leat_relief_keeper_start(daemon);
    }
    if (status == LEAT_OK) {
        status = leat_offline_start(daemon->offline);
    }
    return status;
}

/* Whichever of the threads beside the server run. What they wait for of the dispatcher does not come any more. */
static void
stop_beside(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    daemon->server_done = true; /* nobody reads the dispatcher's events any more */
    LEAT_MUST(pthread_cond_broadcast(&daemon->answered) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    leat_daemon_scale_end(daemon);
    leat_policy_keeper_stop(daemon);
    leat_scale_keeper_stop(daemon);
    leat_relief_keeper_stop(daemon);
    leat_offline_stop(daemon->offline);
}

enum leat_status
leat_daemon_run(struct leat_daemon *daemon, uint64_t drain_ns)
{
    enum leat_status status = start_beside(daemon);
    if (status == LEAT_OK) {
        leat_notify_ready("serving");
        status = leat_server_run(daemon->server, drain_ns);
    }
    stop_beside(daemon);
    if (status == LEAT_OK) {
        status = await_lanes(daemon, drain_ns);
    }
    return status;
}

enum leat_status
leat_daemon_add_job(struct leat_daemon *daemon, const struct leat_registry_job *job)
{
    return leat_offline_add(daemon->offline, job);
}

void
leat_daemon_stop(struct leat_daemon *daemon)
{
    (void)atomic_fetch_add_explicit(&daemon->stops, 1, memory_order_relaxed);
    leat_server_stop(daemon->server);
}

bool
leat_daemon_is_stopping(const struct leat_daemon *daemon)
{
    return atomic_load_explicit(&daemon->stops, memory_order_relaxed) > 0;
}

void
leat_daemon_destroy(struct leat_daemon *daemon)
{
    if (daemon == NULL) {
        return;
    }
    stop_beside(daemon); /* where it was not run */
    stop_lanes(daemon);
    end_lane(&daemon->looks); /* before the lanes that it passes jobs on to */
    end_lane(&daemon->changes);
    leat_offline_destroy(daemon->offline);
    end_lane(&daemon->sizes);
    if (daemon->dispatcher != NULL) {
        leat_dispatcher_stop(daemon->dispatcher);
    }
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (daemon->workers[w] != NULL) {
            leat_worker_stop(daemon->workers[w]);
        }
    }
    leat_server_destroy(daemon->server);
    leat_dispatcher_destroy(daemon->dispatcher);
    leat_policy_keeper_destroy(daemon->keeper);
    leat_scale_keeper_destroy(daemon);
    leat_relief_keeper_destroy(daemon);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        leat_worker_destroy(daemon->workers[w]);
    }
    leat_daemon_pipelines_fini(daemon);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        leat_daemon_free_application(daemon->applications[id]);
    }
    leat_daemon_free_application(daemon->successor);
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        leat_daemon_free_definition(daemon->definitions[d]);
    }
    for (uint32_t m = 0; m < daemon->model_count; m++) {
        leat_daemon_free_model(daemon->models[m]);
    }
    if (daemon->dma_latency_fd >= 0) {
        (void)close(daemon->dma_latency_fd);
    }
    LEAT_MUST(pthread_mutex_destroy(&daemon->mutex) == 0);
    LEAT_MUST(pthread_mutex_destroy(&daemon->job_mutex) == 0);
    LEAT_MUST(pthread_cond_destroy(&daemon->answered) == 0);
    LEAT_MUST(pthread_cond_destroy(&daemon->lane_ended) == 0);
    leat_daemon_scale_fini(daemon);
    free(daemon->tables);
    free(daemon);
}
