/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's applications: built, handed to the dispatcher, and taken back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/policy_keeper.h"

struct leat_application *
leat_daemon_find_application(struct leat_daemon *daemon, const char *name)
{
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        struct leat_application *app = daemon->applications[id];
        if (app != NULL && strcmp(app->name, name) == 0) {
            return app;
        }
    }
    return NULL;
}

void
leat_daemon_free_application(struct leat_application *app)
{
    if (app == NULL) {
        return;
    }
    leat_waiting_fini(&app->waiting);
    free(app->router_state);
    free(app->selector_state);
    free(app->policy);
    free(app->profiles);
    free(app);
}

/* Is it for leat to choose among the models? */
static bool
has_choice(const struct leat_application *app)
{
    bool differ = false;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        if (app->sched_variants[v].accuracy_ppm == 0) {
            return false;
        }
        differ = differ || app->sched_variants[v].accuracy_ppm != app->sched_variants[0].accuracy_ppm;
    }
    return app->latency_ns > 0 && differ;
}

/* Takes time where a policy has to be made. */
static enum leat_status
init_policies(const struct leat_daemon *daemon, struct leat_application *app, const struct leat_application_options *options)
{
    app->router = options->router != NULL ? leat_router_find(options->router) : leat_router_default(daemon->class_count);
    if (app->router != NULL) {
        app->selector = options->selector != NULL ? leat_selector_find(options->selector)
                                                  : leat_selector_default(daemon->class_count, app->router, has_choice(app));
    }
    if (app->router == NULL || app->selector == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s': there is no %s '%s'", options->name,
                         app->router == NULL ? "router" : "selector",
                         app->router == NULL ? options->router : options->selector);
    }
    app->router_state = calloc(1, app->router->state_bytes + 1);
    app->selector_state = calloc(1, app->selector->state_bytes + 1);
    if (app->router_state == NULL || app->selector_state == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", options->name);
    }
    const enum leat_status status =
        app->router->init != NULL ? app->router->init(app->router_state, &options->router_options) : LEAT_OK;
    return status == LEAT_OK ? leat_policy_keeper_equip(daemon, app, options->policy_path) : status;
}

static bool
same_signature(const struct leat_target *a, const struct leat_target *b)
{
    if (a->input_count != b->input_count || a->output_count != b->output_count) {
        return false;
    }
    for (uint32_t t = 0; t < a->input_count + a->output_count; t++) {
        if (a->tensors[t].dtype != b->tensors[t].dtype || a->tensors[t].item_bytes != b->tensors[t].item_bytes ||
            a->tensors[t].rank != b->tensors[t].rank ||
            memcmp(a->tensors[t].dims, b->tensors[t].dims, sizeof(a->tensors[t].dims)) != 0) {
            return false;
        }
    }
    return true;
}

/* What one item costs by itself where that is cheapest, in 10^-9 of what prices are in, rounded up. */
static uint32_t
cost_nano(const struct leat_daemon *daemon, const struct leat_profile *profiles)
{
    uint64_t least = UINT32_MAX;
    for (uint32_t class = 0; class < daemon->class_count; class++) {
        /* micro an hour is nano in 3.6e9 ns */
        const double cost = (double)daemon->classes[class].price_micro * (double)leat_profile_mean(&profiles[class], 1) / 3.6e9;
        least = cost < (double)least ? (uint64_t)ceil(cost) : least;
    }
    return (uint32_t)least;
}

/* The least time that any class of workers takes for one item. */
static uint64_t
least_ns(const struct leat_daemon *daemon, const struct leat_profile *profiles)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t class = 0; class < daemon->class_count; class++) {
        const uint64_t time_ns = leat_profile_mean(&profiles[class], 1);
        least = time_ns < least ? time_ns : least;
    }
    return least;
}

/* Enters variant `v` of the application among those before it. */
static void
sort_by_time(const struct leat_daemon *daemon, struct leat_application *app, uint32_t v)
{
    const uint64_t own_ns = least_ns(daemon, app->profiles[v]);
    uint32_t place = v;
    while (place > 0 && least_ns(daemon, app->profiles[app->by_time[place - 1]]) > own_ns) {
        app->by_time[place] = app->by_time[place - 1];
        place--;
    }
    app->by_time[place] = (uint8_t)v;
}

/* Takes the models in the order given; mutex held. */
static enum leat_status
bind_models(struct leat_daemon *daemon, struct leat_application *app, const struct leat_application_options *options)
{
    for (uint32_t m = 0; m < options->model_count; m++) {
        struct leat_daemon_model *model = leat_daemon_find_model(daemon, options->models[m]);
        if (model == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s': there is no model '%s'", options->name,
                             options->models[m]);
        }
        if (m == 0) {
            app->target = model->signature;
        } else if (!same_signature(&app->target, &model->signature)) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "application '%s': models '%s' and '%s' differ in inputs or outputs",
                             options->name, options->models[0], options->models[m]);
        }
        if (model->variant->items_max > app->target.items_max) {
            app->target.items_max = model->variant->items_max;
        }
        app->variants[m] = model->variant;
        app->sched_variants[m] = (struct leat_sched_variant){
            .accuracy_ppm = model->variant->accuracy_ppm,
            .items_max = model->variant->items_max,
            .cost_nano = cost_nano(daemon, model->profiles),
            .ready = true};
        for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
            leat_profile_init(&app->profiles[m][class], options->quantile_ppm, &model->profiles[class]);
        }
        sort_by_time(daemon, app, m);
    }
    app->variant_count = options->model_count;
    return LEAT_OK;
}

enum leat_status
leat_daemon_publish(struct leat_daemon *daemon, const struct leat_application_options *options)
{
    LEAT_ASSERT(options->model_count >= 1 && options->model_count <= LEAT_SCHED_VARIANTS_MAX);
    struct leat_application *app = calloc(1, sizeof(*app));
    if (app == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", options->name);
    }
    (void)strncpy(app->name, options->name, sizeof(app->name) - 1);
    app->latency_ns = options->latency_ns;
    app->drop_late = options->drop_late;
    app->waiting_max = options->waiting_max;
    app->profiles = calloc(options->model_count, sizeof(app->profiles[0]));
    enum leat_status status = app->profiles == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for profiles")
                                                    : leat_waiting_init(&app->waiting, options->waiting_max);
    if (status == LEAT_OK) {
        status = bind_models(daemon, app, options);
    }
    if (status == LEAT_OK) {
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        status = init_policies(daemon, app, options);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    }
    uint32_t id = 0;
    while (id < LEAT_APPLICATIONS_MAX && daemon->applications[id] != NULL) {
        id++;
    }
    if (status == LEAT_OK && id == LEAT_APPLICATIONS_MAX) {
        status = LEAT_FAIL(LEAT_ERR_LIMIT, "%u applications and models exist, the limit", LEAT_APPLICATIONS_MAX);
    }
    if (status != LEAT_OK) {
        leat_daemon_free_application(app);
        return status;
    }
    app->id = (uint16_t)id;
    app->target.id = id;
    daemon->applications[id] = app;
    const struct leat_command command = {.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app};
    leat_dispatcher_command(daemon->dispatcher, &command);
    return LEAT_OK;
}

bool
leat_daemon_retire(struct leat_daemon *daemon, struct leat_application *app)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_REMOVE_APPLICATION, .application = app};
    const uint16_t id = app->id;

    leat_dispatcher_command(daemon->dispatcher, &command);
    while (daemon->applications[id] == app && !daemon->server_done) {
        LEAT_MUST(pthread_cond_wait(&daemon->answered, &daemon->mutex) == 0);
    }
    return daemon->applications[id] != app;
}

void
leat_daemon_application_gone(void *context, struct leat_application *app)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    LEAT_ASSERT(daemon->applications[app->id] == app);
    daemon->applications[app->id] = NULL;
    leat_daemon_free_application(app);
    LEAT_MUST(pthread_cond_broadcast(&daemon->answered) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

void
leat_daemon_profiles_copied(void *context, struct leat_profile_copy *copy)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    copy->answered = true;
    LEAT_MUST(pthread_cond_broadcast(&daemon->answered) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
}

enum leat_status
leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant,
                          struct leat_profile_copy *copy)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_COPY_PROFILES, .profiles = copy};

    if (daemon->server_done) { /* it may still have the last one */
        return LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    copy->answered = false;
    copy->application = app->id;
    copy->variant = variant;
    (void)strcpy(copy->name, app->name);
    leat_dispatcher_command(daemon->dispatcher, &command);
    while (!copy->answered && !daemon->server_done) {
        LEAT_MUST(pthread_cond_wait(&daemon->answered, &daemon->mutex) == 0);
    }
    if (!copy->answered) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    return copy->found ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has gone", copy->name);
}

enum leat_status
leat_daemon_add_application(struct leat_daemon *daemon, const struct leat_application_options *options)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    enum leat_status status;
    if (leat_daemon_find_application(daemon, options->name) != NULL) {
        status = LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s': a model or application of that name exists",
                           options->name);
    } else {
        status = leat_daemon_publish(daemon, options);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}
