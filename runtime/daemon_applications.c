/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's applications: built, handed to the dispatcher, and taken back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "runtime/log.h"
#include "runtime/policy_keeper.h"
#include "runtime/policy_make.h"
#include "sched/mdp_pool.h"

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
    leat_waiting_fini(app->waiting);
    free(app->router_state);
    free(app->selector_state);
    free(app->policy);
    free(app->profiles);
    leat_instances_fini(&app->instances);
    free(app);
}

static bool
same_signature(const struct leat_target *a, const struct leat_target *b)
{
    if (a->input_count != b->input_count || a->output_count != b->output_count || a->length_count != b->length_count ||
        memcmp(a->lengths, b->lengths, sizeof(a->lengths)) != 0 ||
        memcmp(a->length_axes, b->length_axes, sizeof(a->length_axes)) != 0) {
        return false;
    }
    for (uint32_t t = 0; t < a->input_count + a->output_count; t++) {
        if (a->tensors[t].dtype != b->tensors[t].dtype || a->tensors[t].item_bytes != b->tensors[t].item_bytes ||
            a->tensors[t].rank != b->tensors[t].rank || a->tensors[t].varying != b->tensors[t].varying ||
            memcmp(a->tensors[t].dims, b->tensors[t].dims, sizeof(a->tensors[t].dims)) != 0) {
            return false;
        }
    }
    return true;
}

/* Enters variant `v` of the application among those before it. */
static void
sort_by_time(const struct leat_daemon *daemon, struct leat_application *app, uint32_t v)
{
    const uint64_t own_ns = leat_application_least_ns(app, v, 1, daemon->class_count, 0);
    uint32_t place = v;
    while (place > 0 && leat_application_least_ns(app, app->by_time[place - 1], 1, daemon->class_count, 0) > own_ns) {
        app->by_time[place] = app->by_time[place - 1];
        place--;
    }
    app->by_time[place] = (uint8_t)v;
}

/* Enters one as variant `v`. */
static void
bind_variant(struct leat_application *app, uint32_t v, struct leat_variant *variant,
             const struct leat_profile profiles[LEAT_WORKER_CLASSES_MAX], uint32_t quantile_ppm)
{
    app->variants[v] = variant;
    app->sched_variants[v] = (struct leat_sched_variant){.accuracy_ppm = variant->accuracy_ppm,
                                                         .items_max = variant->items_max,
                                                         .length_max = (uint16_t)app->target.length_max,
                                                         .ready = true};
    for (uint32_t class = 0; class < LEAT_WORKER_CLASSES_MAX; class++) {
        leat_profile_init(&app->profiles[v][class], quantile_ppm, &profiles[class]);
        app->instances.measured[v][class] = profiles[class];
    }
    app->sched_variants[v].cost_nano = leat_application_least_nano(app, v, 1);
}

/* Where each query may have the plans for its length: each variant serves those that no shorter one does. */
static void
tell_lengths_apart(const struct leat_daemon *daemon, struct leat_application *app)
{
    const uint32_t model_count = app->variant_count;

    app->variant_count += app->shorter_count;
    app->shorter_count = 0;
    for (uint32_t v = 0; v < app->variant_count; v++) {
        for (uint32_t b = 0; b < app->target.length_count; b++) {
            if (app->at_length[v][b] == v) {
                app->sched_variants[v].length_min = (uint16_t)(b > 0 ? app->target.lengths[b - 1] + 1 : 1);
                app->sched_variants[v].length_max = (uint16_t)app->target.lengths[b];
            }
        }
        if (v >= model_count) {
            sort_by_time(daemon, app, v);
        }
    }
}

/* How many variants these models are, the shorter ones included. */
static uint32_t
count_variants(struct leat_daemon *daemon, const struct leat_application_options *options)
{
    uint32_t count = options->model_count;

    for (uint32_t m = 0; m < options->model_count; m++) {
        const struct leat_daemon_model *model = leat_daemon_find_model(daemon, options->models[m]);
        count += model != NULL ? model->variant->shorter_count : 0;
    }
    return count;
}

/* Takes the models in the order given; mutex held. */
static enum leat_status
bind_models(struct leat_daemon *daemon, struct leat_application *app, const struct leat_application_options *options)
{
    for (uint32_t m = 0; m < options->model_count; m++) {
        struct leat_daemon_model *model = leat_daemon_find_model(daemon, options->models[m]);
        if (model == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s': there is no model '%s': 'leat model list' shows them",
                             options->name, options->models[m]);
        }
        if (m == 0) {
            app->target = model->signature;
        } else if (!same_signature(&app->target, &model->signature)) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "application '%s': models '%s' and '%s' differ in inputs, outputs or lengths",
                             options->name, options->models[0], options->models[m]);
        }
        if (model->variant->items_max > app->target.items_max) {
            app->target.items_max = model->variant->items_max;
        }
        bind_variant(app, m, model->variant, model->profiles, options->quantile_ppm);
        sort_by_time(daemon, app, m);
        const uint32_t first = options->model_count + app->shorter_count, longest = model->variant->shorter_count;
        for (uint32_t b = 0; b < longest; b++) {
            bind_variant(app, first + b, model->variant->shorter[b], model->shorter_profiles[b], options->quantile_ppm);
        }
        for (uint32_t b = 0; b < app->target.length_count; b++) {
            const uint8_t place = (uint8_t)(b < longest ? first + b : m);
            app->at_length[m][b] = place;
            for (uint32_t own = 0; own < longest; own++) {
                app->at_length[first + own][b] = place;
            }
        }
        app->shorter_count += longest;
    }
    app->variant_count = options->model_count;
    return LEAT_OK;
}

/* Is it for leat to choose among the models? */
static bool
has_choice(const struct leat_application *app)
{
    bool differ = false, in_time = false;

    if (app->latency_ns == 0 || app->variant_count > LEAT_MDP_POOL_VARIANTS_MAX) {
        return false;
    }
    for (uint32_t v = 0; v < app->variant_count; v++) {
        if (app->sched_variants[v].accuracy_ppm == 0) {
            return false;
        }
        differ = differ || app->sched_variants[v].accuracy_ppm != app->sched_variants[0].accuracy_ppm;
        in_time = in_time || leat_profile_mean(&app->profiles[v][0], 1) <= app->latency_ns;
    }
    return differ && in_time;
}

/* Takes time where a policy has to be made. */
static enum leat_status
init_policies(const struct leat_daemon *daemon, struct leat_application *app,
              const struct leat_application_options *options)
{
    app->router = options->router != NULL ? leat_router_find(options->router) : leat_router_default(daemon->first_class_count);
    if (app->router != NULL) {
        app->selector = options->selector != NULL
                            ? leat_selector_find(options->selector)
                            : leat_selector_default(daemon->first_class_count, app->router,
                                                    has_choice(app) && daemon->class_count == 1);
    }
    if (app->router == NULL || app->selector == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s': there is no %s '%s'", options->name,
                         app->router == NULL ? "router" : "selector",
                         app->router == NULL ? options->router : options->selector);
    }
    if (!app->selector->follows_policy && !app->selector->counts_workers) {
        tell_lengths_apart(daemon, app);
    }
    app->router_state = calloc(1, app->router->state_bytes + 1);
    app->selector_state = calloc(1, app->selector->state_bytes + 1);
    if (app->router_state == NULL || app->selector_state == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", options->name);
    }
    const enum leat_status status =
        app->router->init != NULL ? app->router->init(app->router_state, &options->router_options) : LEAT_OK;
    return status == LEAT_OK ? leat_policy_keeper_equip(daemon, app, options) : status;
}

/* An application that nobody has seen yet. Mutex held, released while a policy is made. */
static enum leat_status
build_application(struct leat_daemon *daemon, const struct leat_application_options *options, uint32_t id,
                  struct leat_application **ret_app)
{
    const uint32_t variant_count = count_variants(daemon, options);
    LEAT_ASSERT(options->model_count >= 1 && options->model_count <= LEAT_SCHED_VARIANTS_MAX);
    if (variant_count > LEAT_SCHED_VARIANTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT,
                         "application '%s': %u models are %u variants with those for shorter sequences, %u is the limit",
                         options->name, options->model_count, variant_count, LEAT_SCHED_VARIANTS_MAX);
    }
    struct leat_application *app = calloc(1, sizeof(*app));
    if (app == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", options->name);
    }
    (void)strncpy(app->name, options->name, sizeof(app->name) - 1);
    app->id = (uint16_t)id;
    app->generation = ++daemon->generations;
    app->latency_ns = options->latency_ns;
    app->drop_late = options->drop_late;
    for (uint32_t class = 0; class < daemon->class_count; class++) {
        app->price_micro[class] = daemon->classes[class].price_micro;
    }
    app->waiting_max = options->waiting_max;
    app->profiles = calloc(variant_count, sizeof(app->profiles[0]));
    enum leat_status status = app->profiles == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for profiles")
                                                    : leat_waiting_init(app->waiting, options->waiting_max);
    if (status == LEAT_OK) {
        status = leat_instances_init(&app->instances, daemon->options.worker_count, variant_count);
    }
    if (status == LEAT_OK) {
        status = bind_models(daemon, app, options);
    }
    if (status == LEAT_OK) {
        leat_policy_keeper_begin(daemon, app);
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        status = init_policies(daemon, app, options);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    }
    if (status != LEAT_OK) {
        leat_daemon_free_application(app);
        return status;
    }
    for (uint32_t t = 0; t < app->target.input_count + app->target.output_count; t++) {
        app->instances.by_payload = app->instances.by_payload || app->target.tensors[t].varying != 0;
    }
    app->target.id = id;
    *ret_app = app;
    return LEAT_OK;
}

static enum leat_status
find_id(const struct leat_daemon *daemon, uint32_t *ret_id)
{
    uint32_t id = 0;
    while (id < LEAT_APPLICATIONS_MAX && daemon->applications[id] != NULL) {
        id++;
    }
    *ret_id = id;
    return id < LEAT_APPLICATIONS_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT, "%u applications and models exist, the limit", LEAT_APPLICATIONS_MAX);
}

/* A model is an application of its own name. `name` has room for one. */
static struct leat_application_options
options_of_model(const struct leat_daemon *daemon, const struct leat_daemon_model *model, const char **name)
{
    *name = model->name;
    return (struct leat_application_options){
        .name = model->name,
        .models = name,
        .model_count = 1,
        .drop_late = true,
        .waiting_max = daemon->options.queue_capacity,
    };
}

static void
hand_over(struct leat_daemon *daemon, struct leat_application *app)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_ADD_APPLICATION, .application = app};

    daemon->applications[app->id] = app;
    leat_dispatcher_command(daemon->dispatcher, &command);
}

static enum leat_status
publish(struct leat_daemon *daemon, const struct leat_application_options *options)
{
    struct leat_application *app;
    uint32_t id;

    enum leat_status status = find_id(daemon, &id);
    if (status == LEAT_OK) {
        status = build_application(daemon, options, id, &app);
    }
    if (status == LEAT_OK) {
        hand_over(daemon, app);
    }
    return status;
}

enum leat_status
leat_daemon_publish_model(struct leat_daemon *daemon, const struct leat_daemon_model *model)
{
    const char *name;
    const struct leat_application_options options = options_of_model(daemon, model, &name);

    return leat_daemon_find_definition(daemon, model->name) != NULL
               ? LEAT_FAIL(LEAT_ERR_EXISTS, "an application '%s' exists: remove it first", model->name)
               : publish(daemon, &options);
}

/* Waits until the dispatcher has let go of it; false when the daemon shuts down first. */
static bool
await_gone(struct leat_daemon *daemon, const struct leat_application *app, uint32_t id)
{
    while (daemon->applications[id] == app && !daemon->server_done) {
        LEAT_MUST(pthread_cond_wait(&daemon->answered, &daemon->mutex) == 0);
    }
    return daemon->applications[id] != app;
}

bool
leat_daemon_retire(struct leat_daemon *daemon, struct leat_application *app)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_REMOVE_APPLICATION, .application = app};
    const uint32_t id = app->id;

    leat_dispatcher_command(daemon->dispatcher, &command);
    return await_gone(daemon, app, id);
}

/* The new one takes over; see leat_daemon_retire. */
static bool
replace(struct leat_daemon *daemon, struct leat_application *app, struct leat_application *successor)
{
    const struct leat_command command = {.kind = LEAT_COMMAND_REPLACE_APPLICATION, .application = successor};
    const uint32_t id = app->id;

    daemon->successor = successor;
    leat_dispatcher_command(daemon->dispatcher, &command);
    return await_gone(daemon, app, id);
}

void
leat_daemon_application_gone(void *context, struct leat_application *app)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    LEAT_ASSERT(daemon->applications[app->id] == app);
    const bool replaced = daemon->successor != NULL && daemon->successor->id == app->id;
    daemon->applications[app->id] = replaced ? daemon->successor : NULL;
    daemon->successor = replaced ? NULL : daemon->successor;
    if (!replaced) {
        leat_daemon_release_workers(daemon, app->id);
    }
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

/* ---- As they were asked for ------------------------------------------------------------------- */

struct leat_daemon_definition *
leat_daemon_find_definition(struct leat_daemon *daemon, const char *name)
{
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        if (strcmp(daemon->definitions[d]->application.name, name) == 0) {
            return daemon->definitions[d];
        }
    }
    return NULL;
}

enum leat_status
leat_daemon_lack_application(struct leat_daemon *daemon, const char *name)
{
    const struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, name);
    const struct leat_daemon_pipeline *pipeline = leat_daemon_find_pipeline(daemon, name);

    if (definition != NULL && definition->failure[0] != '\0') {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' is not served: %s", name, definition->failure);
    }
    if (definition != NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND,
                         "application '%s' has no model that is served: 'leat app change --models' gives it one that is loaded, "
                         "'leat model add --app' a new one",
                         name);
    }
    if (pipeline != NULL && !pipeline->removing) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "'%s' is a pipeline, no application or model", name);
    }
    return LEAT_FAIL(LEAT_ERR_NOT_FOUND,
                     "there is no application or model '%s', nor a pipeline: 'leat app list', 'leat model list' and "
                     "'leat pipeline list' show them",
                     name);
}

/* How it is served by those of its models that are loaded; their names go to `models`. Mutex held. */
static struct leat_application_options
options_of(struct leat_daemon *daemon, const struct leat_registry_application *application,
           const char *models[LEAT_SCHED_VARIANTS_MAX])
{
    uint32_t count = 0;

    for (uint32_t m = 0; m < application->model_count; m++) {
        if (leat_daemon_find_model(daemon, application->models[m]) != NULL) {
            models[count++] = application->models[m];
        }
    }
    return (struct leat_application_options){
        .name = application->name,
        .models = models,
        .model_count = count,
        .router = application->router[0] != '\0' ? application->router : NULL,
        .selector = application->selector[0] != '\0' ? application->selector : NULL,
        .policy_path = application->policy[0] != '\0' ? application->policy : NULL,
        .policy_table = application->policy_table,
        .policy_bytes = application->policy_bytes,
        .router_options = {.threshold_items = application->threshold_items},
        .latency_ns = application->latency_ns,
        .drop_late = application->drop_late,
        .quantile_ppm = application->quantile_ppm,
        .waiting_max = application->queue,
    };
}

/* With a policy_table of its own. */
static enum leat_status
copy_application(const struct leat_registry_application *application, struct leat_registry_application *ret_copy)
{
    void *table = NULL;

    if (application->policy_table != NULL) {
        table = malloc(application->policy_bytes);
        if (table == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", application->name);
        }
        memcpy(table, application->policy_table, application->policy_bytes);
    }
    *ret_copy = *application;
    ret_copy->policy_table = table;
    return LEAT_OK;
}

void
leat_daemon_free_definition(struct leat_daemon_definition *definition)
{
    if (definition != NULL) {
        free(definition->application.policy_table);
        free(definition);
    }
}

/* Makes room for a definition; mutex held. */
static enum leat_status
new_definition(struct leat_daemon *daemon, const struct leat_registry_application *application, bool configured,
               struct leat_daemon_definition **ret_definition)
{
    if (leat_daemon_find_definition(daemon, application->name) != NULL ||
        leat_daemon_find_application(daemon, application->name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s': a model or application of that name exists",
                         application->name);
    }
    if (leat_daemon_find_pipeline(daemon, application->name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s': a pipeline of that name exists: remove it first",
                         application->name);
    }
    if (daemon->definition_count == LEAT_COUNT_OF(daemon->definitions)) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u applications exist, the limit", daemon->definition_count);
    }
    struct leat_daemon_definition *definition = calloc(1, sizeof(*definition));
    if (definition == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for application '%s'", application->name);
    }
    definition->configured = configured;
    const enum leat_status status = copy_application(application, &definition->application);
    if (status != LEAT_OK) {
        free(definition);
        return status;
    }
    *ret_definition = definition;
    return LEAT_OK;
}

enum leat_status
leat_daemon_add_application(struct leat_daemon *daemon, const struct leat_registry_application *application,
                            bool configured)
{
    const char *models[LEAT_SCHED_VARIANTS_MAX];
    struct leat_daemon_definition *definition = NULL;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    enum leat_status status = new_definition(daemon, application, configured, &definition);
    for (uint32_t m = 0; m < application->model_count && status == LEAT_OK && configured; m++) {
        if (leat_daemon_find_model(daemon, application->models[m]) == NULL) {
            status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s': there is no model '%s': 'leat model list' shows them",
                               application->name, application->models[m]);
        }
    }
    if (status == LEAT_OK) {
        const struct leat_application_options options = options_of(daemon, application, models);
        status = options.model_count > 0 ? publish(daemon, &options) : LEAT_OK;
    }
    if (definition != NULL && (status == LEAT_OK || !configured)) {
        if (status != LEAT_OK) {
            (void)snprintf(definition->failure, sizeof(definition->failure), "%s", leat_error_text());
        }
        daemon->definitions[daemon->definition_count++] = definition;
    } else {
        leat_daemon_free_definition(definition);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_keep(const struct leat_daemon *daemon, const struct leat_daemon_change *change)
{
    const struct leat_daemon_store *store = daemon->options.store;
    return store == NULL ? LEAT_OK : store->keep(store->context, change);
}

static enum leat_status
find_made(const struct leat_daemon *daemon, const char *application, const char *made_from, struct leat_policy **ret_policy)
{
    const struct leat_daemon_store *store = daemon->options.store;
    return store == NULL || store->find_made == NULL ? LEAT_ERR_NOT_FOUND
                                                     : store->find_made(store->context, application, made_from, ret_policy);
}

enum leat_status
leat_daemon_make_policy(const struct leat_daemon *daemon, const char *application, const struct leat_policy_order *order,
                        struct leat_policy **ret_policy)
{
    char made_from[LEAT_POLICY_KEY_BYTES];

    leat_policy_order_key(order, daemon->host, made_from);
    enum leat_status status = find_made(daemon, application, made_from, ret_policy);
    if (status == LEAT_OK) {
        leat_log(LEAT_LOG_INFO, "application '%s': policy as kept", application);
        return LEAT_OK;
    }
    if (status != LEAT_ERR_NOT_FOUND) {
        leat_log(LEAT_LOG_WARNING, "application '%s': its kept policy is made anew: %s", application, leat_error_text());
    }
    const uint64_t began_ns = leat_monotonic_ns();
    status = leat_policy_make(order, NULL, ret_policy);
    if (status != LEAT_OK) {
        return status;
    }
    leat_log(LEAT_LOG_INFO, "application '%s': policy made in %.0f ms", application,
             (double)(leat_monotonic_ns() - began_ns) / 1e6);
    const struct leat_daemon_made made = {application, made_from, *ret_policy};
    const struct leat_daemon_change change = {.made = &made};
    if (leat_daemon_keep(daemon, &change) != LEAT_OK) {
        leat_log(LEAT_LOG_WARNING, "application '%s': its policy will be made again at the next start: %s", application,
                 leat_error_text());
    }
    return LEAT_OK;
}

/* As changed or new; NULL in `ret_app` where no model serves it. Mutex held, released while a policy is made. */
static enum leat_status
build_changed(struct leat_daemon *daemon, const struct leat_registry_application *application,
              const struct leat_application *old, struct leat_application **ret_app)
{
    const char *models[LEAT_SCHED_VARIANTS_MAX];
    const struct leat_application_options options = options_of(daemon, application, models);
    enum leat_status status = LEAT_OK;
    uint32_t id;

    *ret_app = NULL;
    if (options.model_count == 0) {
        return LEAT_OK;
    }
    if (old != NULL) {
        id = old->id;
    } else {
        status = find_id(daemon, &id);
    }
    if (status == LEAT_OK) {
        status = build_application(daemon, &options, id, ret_app);
    }
    if (status == LEAT_OK && old != NULL && !same_signature(&old->target, &(*ret_app)->target)) {
        leat_daemon_free_application(*ret_app);
        return LEAT_FAIL(LEAT_ERR_SHAPE,
                         "application '%s': model '%s' has other inputs or outputs than those that serve it: remove it and "
                         "add it anew",
                         application->name, models[0]);
    }
    return status;
}

/* Puts `app` where `old` is; either may be NULL. False when the daemon shuts down first. Mutex held. */
static bool
exchange(struct leat_daemon *daemon, struct leat_application *old, struct leat_application *app)
{
    if (old != NULL) {
        return app != NULL ? replace(daemon, old, app) : leat_daemon_retire(daemon, old);
    }
    if (app != NULL) {
        hand_over(daemon, app);
    }
    return true;
}

enum leat_status
leat_daemon_put_application(struct leat_daemon *daemon, const struct leat_registry_application *application,
                            const struct leat_daemon_change *also)
{
    struct leat_daemon_change change = also != NULL ? *also : (struct leat_daemon_change){0};
    struct leat_registry_application changed = {0};
    struct leat_daemon_definition *definition, *added = NULL;
    struct leat_application *app = NULL, *old = NULL;
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    definition = leat_daemon_find_definition(daemon, application->name);
    if (definition == NULL) {
        status = new_definition(daemon, application, false, &added);
    } else if (definition->configured) {
        status = LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s' is the configuration's: change it there", application->name);
    } else {
        old = leat_daemon_find_application(daemon, application->name);
        status = copy_application(application, &changed);
    }
    if (status == LEAT_OK) {
        status = build_changed(daemon, application, old, &app);
    }
    if (status == LEAT_OK) {
        status = leat_daemon_pipelines_allow(daemon, application->name, app != NULL ? &app->target : NULL);
        if (status != LEAT_OK) {
            leat_daemon_free_application(app);
        }
    }
    if (status == LEAT_OK) { /* nobody but this thread changes what stands here meanwhile */
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        change.application = application;
        status = leat_daemon_keep(daemon, &change);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        if (status != LEAT_OK) {
            leat_daemon_free_application(app);
        }
    }
    if (status != LEAT_OK) {
        leat_daemon_free_definition(added);
        free(changed.policy_table);
    } else {
        if (added != NULL) {
            daemon->definitions[daemon->definition_count++] = added;
        } else {
            free(definition->application.policy_table); /* perhaps what `application` has: not read any more */
            definition->application = changed;
            definition->failure[0] = '\0';
        }
        status = exchange(daemon, old, app) ? LEAT_OK : LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_refresh(struct leat_daemon *daemon, const struct leat_daemon_model *model)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX && status == LEAT_OK; id++) {
        struct leat_application *old = daemon->applications[id], *app;
        const char *models[LEAT_SCHED_VARIANTS_MAX];
        uint32_t place = 0;
        while (old != NULL && place < old->variant_count && old->variants[place] != model->variant) {
            place++;
        }
        if (old == NULL || place == old->variant_count) {
            continue;
        }
        const struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, old->name);
        const struct leat_application_options options = definition != NULL
                                                            ? options_of(daemon, &definition->application, models)
                                                            : options_of_model(daemon, model, models);
        status = build_application(daemon, &options, id, &app);
        if (status == LEAT_OK) {
            for (uint32_t v = 0; v < app->variant_count + app->shorter_count; v++) {
                const bool own = app->at_length[v][0] == app->at_length[place][0]; /* the model's, for whatever length */
                app->fresh |= (uint64_t)(v == place || (own && app->target.length_count > 0)) << v;
            }
            status = replace(daemon, old, app) ? LEAT_OK : LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

/* Is it in the list of any application but this? Mutex held. */
static bool
serves_another(const struct leat_daemon *daemon, const char *model, const struct leat_daemon_definition *definition)
{
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        const struct leat_registry_application *other = &daemon->definitions[d]->application;
        for (uint32_t m = 0; daemon->definitions[d] != definition && m < other->model_count; m++) {
            if (strcmp(other->models[m], model) == 0) {
                return true;
            }
        }
    }
    return false;
}

enum leat_status
leat_daemon_remove_application(struct leat_daemon *daemon, const char *name, bool models)
{
    const char *removed[LEAT_SCHED_VARIANTS_MAX];
    struct leat_daemon_change change = {.removed_application = name, .removed_models = removed};
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, name);
    if (definition == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application '%s': 'leat app list' shows them", name);
    } else if (definition->configured) {
        status = LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s' is the configuration's: remove it there", name);
    } else {
        status = leat_daemon_pipelines_allow(daemon, name, NULL);
    }
    for (uint32_t m = 0; status == LEAT_OK && models && m < definition->application.model_count; m++) {
        const struct leat_daemon_model *model = leat_daemon_find_model(daemon, definition->application.models[m]);
        if (model != NULL && model->persistent && !serves_another(daemon, model->name, definition)) {
            removed[change.removed_model_count++] = definition->application.models[m];
            status = leat_daemon_pipelines_allow(daemon, model->name, NULL);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (status == LEAT_OK) {
        status = leat_daemon_keep(daemon, &change);
    }
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    if (!exchange(daemon, leat_daemon_find_application(daemon, name), NULL)) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        if (daemon->definitions[d] == definition) {
            daemon->definitions[d] = daemon->definitions[--daemon->definition_count];
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    for (uint32_t m = 0; m < change.removed_model_count && status == LEAT_OK; m++) {
        status = leat_daemon_unload_model(daemon, removed[m]);
    }
    leat_daemon_free_definition(definition); /* which the names were of */
    return status;
}
