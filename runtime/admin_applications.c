/* SPDX-License-Identifier: Apache-2.0 */
/* Admin requests about applications; docs/control.md lists them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/admin_private.h"
#include "runtime/policy_keeper.h"
#include "runtime/policy_make.h"

#define QUEUE_DEFAULT 1024
#define QUEUE_MAX     1048576
#define POINTS_MAX    1000 /* in one answer, which is to fit in a packet */
#define LATENCY_MAX_NS (INT64_C(3600) * 1000000000)

/* ---- Looking ------------------------------------------------------------------------------------ */

/* How it is served; mutex held. */
static json_t *
describe_definition(struct leat_daemon *daemon, const struct leat_daemon_definition *definition)
{
    const struct leat_registry_application *application = &definition->application;
    const struct leat_application *app = leat_daemon_find_application(daemon, application->name);
    json_t *models = json_array();

    for (uint32_t m = 0; m < application->model_count; m++) {
        (void)json_array_append_new(models, json_string(application->models[m]));
    }
    json_t *object = json_pack("{s:s, s:b, s:b, s:s, s:s, s:I, s:b, s:o, s:i, s:o}", "name", application->name, "configured",
                               (int)definition->configured, "served", app != NULL, "router",
                               app != NULL ? app->router->name : application->router, "selector",
                               app != NULL ? app->selector->name : application->selector, "latency_ns",
                               (json_int_t)application->latency_ns, "drop_late", (int)application->drop_late, "percentile",
                               leat_admin_percentile(application->quantile_ppm), "queue", (int)application->queue, "models",
                               models);
    if (application->policy[0] != '\0') {
        (void)json_object_set_new(object, "policy", json_string(application->policy));
    }
    if (app != NULL && app->keeping.versions > 0) {
        (void)json_object_set_new(object, "follows", leat_admin_policy(app));
    }
    if (definition->failure[0] != '\0') {
        (void)json_object_set_new(object, "failure", leat_json_text(definition->failure));
    }
    return object;
}

json_t *
leat_admin_app_list(struct leat_daemon *daemon)
{
    json_t *applications = json_array();

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        (void)json_array_append_new(applications, describe_definition(daemon, daemon->definitions[d]));
    }
    for (uint32_t f = 0; f < daemon->failure_count; f++) {
        if (daemon->failures[f].application) {
            (void)json_array_append_new(applications, json_pack("{s:s, s:o}", "name", daemon->failures[f].name, "failure",
                                                                leat_json_text(daemon->failures[f].text)));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:o}", "applications", applications);
}

/* Why a model of the list is not there; mutex held. */
static const char *
failure_of(const struct leat_daemon *daemon, const char *model)
{
    for (uint32_t f = 0; f < daemon->failure_count; f++) {
        if (!daemon->failures[f].application && strcmp(daemon->failures[f].name, model) == 0) {
            return daemon->failures[f].text;
        }
    }
    return "there is no such model";
}

static json_t *
describe_point(const struct leat_measured_point *point)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "items", (json_int_t)point->items, "runs", (json_int_t)point->runs,
                     "mean_ns", (json_int_t)point->mean_ns, "p50_ns", (json_int_t)point->p50_ns, "p95_ns",
                     (json_int_t)point->p95_ns, "p99_ns", (json_int_t)point->p99_ns);
}

/*
 * What was measured at one item and at the largest batch, by class of workers, and on teams that none of them has; of sequences of
 * that length.
 */
static json_t *
describe_times(const struct leat_daemon *daemon, const struct leat_daemon_model *model, uint32_t length)
{
    const bool by_class = model->variant->backend->times_by_class;
    const uint32_t sizes[] = {1, model->variant->items_max};
    struct leat_daemon_team_sizes teams;
    json_t *classes = json_array();

    leat_daemon_measured_teams(daemon, model, &teams);
    for (uint32_t c = 0; c < daemon->class_count + teams.count; c++) {
        const bool worker = c < daemon->class_count;
        const uint32_t cores = worker ? daemon->team_sizes[c] : teams.cores[c - daemon->class_count];
        json_t *points = json_array();
        for (size_t i = 0; i < (sizes[1] > 1 ? 2 : 1); i++) {
            const struct leat_measured_point *point =
                leat_measured_find(&model->measured, worker ? daemon->class_names[c] : "", cores, by_class, length, sizes[i]);
            if (point != NULL) {
                (void)json_array_append_new(points, describe_point(point));
            }
        }
        (void)json_array_append_new(classes, json_pack("{s:s, s:b, s:i, s:o}", "class", worker ? daemon->class_names[c] : "none",
                                                       "workers", (int)worker, "cores", (int)cores, "points", points));
    }
    return classes;
}

/* Its variants for shorter sequences than its own. */
static json_t *
describe_shorter(const struct leat_daemon *daemon, const struct leat_daemon_model *model)
{
    json_t *array = json_array();

    for (uint32_t s = 0; s < model->variant->shorter_count; s++) {
        const struct leat_variant *shorter = model->variant->shorter[s];
        (void)json_array_append_new(array, json_pack("{s:s, s:i, s:o}", "name", shorter->name, "length", (int)shorter->length,
                                                     "classes", describe_times(daemon, model, shorter->length)));
    }
    return array;
}

/* How the accuracy is known. */
static const char *
accuracy_from(const struct leat_daemon_model *model)
{
    const uint32_t own_ppm = model->variant->accuracy_ppm, measured_ppm = model->validation.accuracy_ppm;

    if (own_ppm == 0) {
        return "unknown";
    }
    if (model->validation.labels_sha256[0] != '\0' && own_ppm == (measured_ppm > 0 ? measured_ppm : 1)) {
        return "measured";
    }
    return model->measured.host[0] == '\0' ? "imported" : "given";
}

/* Mutex held. */
static json_t *
describe_variant(struct leat_daemon *daemon, const char *name)
{
    const struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);

    if (model == NULL) {
        return json_pack("{s:s, s:s, s:o}", "name", name, "state", "not loaded", "failure",
                         leat_json_text(failure_of(daemon, name)));
    }
    const struct leat_measured *measured = &model->measured;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:s, s:b, s:I, s:o}", "name", name, "state", "active",
                  "backend", model->variant->backend->name, "items_max",
                  (int)model->variant->items_max, "accuracy_ppm", (int)model->variant->accuracy_ppm, "accuracy_from",
                  accuracy_from(model), "bytes", (json_int_t)model->bytes, "load_ns", (json_int_t)measured->load_ns,
                  "peak_bytes", (json_int_t)measured->peak_bytes, "host", measured->host, "host_matches",
                  (int)(strcmp(measured->host, daemon->host) == 0), "measured_s", (json_int_t)measured->measured_s, "classes",
                  describe_times(daemon, model, model->variant->length));
    leat_admin_describe_choices(model->variant, object);
    leat_admin_describe_files(model, false, object);
    if (model->variant->shorter_count > 0) {
        (void)json_object_set_new(object, "shorter", describe_shorter(daemon, model));
    }
    if (model->validation.samples > 0) {
        const bool labelled = model->validation.labels_sha256[0] != '\0';
        json_t *validation = json_pack("{s:I, s:i, s:s, s:I}", "samples", (json_int_t)model->validation.samples,
                                       labelled ? "accuracy_ppm" : "agreement_ppm", (int)model->validation.accuracy_ppm,
                                       "inputs_sha256", model->validation.inputs_sha256, "measured_s",
                                       (json_int_t)model->validation.measured_s);
        if (labelled) {
            (void)json_object_set_new(validation, "labels_sha256", json_string(model->validation.labels_sha256));
        }
        (void)json_object_set_new(object, "validation", validation);
    }
    return object;
}

json_t *
leat_admin_app_show(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    json_t *answer = NULL;

    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, name);
    if (definition != NULL) {
        const struct leat_application *app = leat_daemon_find_application(daemon, name);
        json_t *variants = json_array();
        answer = describe_definition(daemon, definition);
        for (uint32_t m = 0; m < definition->application.model_count; m++) {
            const char *model = definition->application.models[m];
            json_t *variant = describe_variant(daemon, model);
            (void)json_object_set_new(variant, "instances", leat_admin_instances(daemon, app, model));
            (void)json_object_set_new(variant, "overloaded_on", leat_admin_workers_in(app, model, LEAT_INSTANCE_OVERLOADED));
            (void)json_object_set_new(variant, "interfered_on", leat_admin_workers_in(app, model, LEAT_INSTANCE_INTERFERED));
            (void)json_array_append_new(variants, variant);
        }
        (void)json_object_set_new(answer, "variants", variants);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return answer != NULL ? answer
                          : leat_admin_refusal(LEAT_FAIL(LEAT_ERR_NOT_FOUND,
                                                         "there is no application '%s': 'leat app list' shows them", name));
}

/* [class, cores, items, runs, mean, p50, p95, p99] of up to POINTS_MAX points from `from` on; of the longest sequences. */
static json_t *
describe_points(const struct leat_daemon_model *model, uint32_t from)
{
    const struct leat_measured *measured = &model->measured;
    json_t *points = json_array();

    for (uint32_t p = from; p < measured->count && p - from < POINTS_MAX; p++) {
        const struct leat_measured_point *point = &measured->points[p];
        if (point->length != model->variant->length) {
            continue;
        }
        (void)json_array_append_new(
            points, json_pack("[s, I, I, I, I, I, I, I]", point->worker_class, (json_int_t)point->cores,
                              (json_int_t)point->items, (json_int_t)point->runs, (json_int_t)point->mean_ns,
                              (json_int_t)point->p50_ns, (json_int_t)point->p95_ns, (json_int_t)point->p99_ns));
    }
    return points;
}

json_t *
leat_admin_model_show(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    const json_int_t from = json_integer_value(json_object_get(request, "from"));
    json_t *answer = NULL;

    if (name == NULL || from < 0 || from > UINT32_MAX) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing, or 'from' counts no points"));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);
    if (model != NULL) {
        answer = describe_variant(daemon, name);
        leat_admin_describe_files(model, true, answer);
        (void)json_object_set_new(answer, "points", describe_points(model, (uint32_t)from));
        if ((uint64_t)from + POINTS_MAX < model->measured.count) {
            (void)json_object_set_new(answer, "next", json_integer(from + POINTS_MAX));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return answer != NULL ? answer
                          : leat_admin_refusal(LEAT_FAIL(LEAT_ERR_NOT_FOUND,
                                                         "there is no model '%s': 'leat model list' shows them", name));
}

json_t *
leat_admin_app_profiles(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    const json_int_t variant = json_integer_value(json_object_get(request, "variant")),
                     from = json_integer_value(json_object_get(request, "from"));
    json_t *answer = NULL;
    enum leat_status status = LEAT_OK;

    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, name);
    if (definition == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application '%s': 'leat app list' shows them", name);
    } else if (variant < 0 || variant >= (json_int_t)definition->application.model_count || from < 0 || from > UINT32_MAX) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "application '%s' has %u models, and 'from' counts points", name,
                           definition->application.model_count);
    } else {
        const char *model_name = definition->application.models[variant];
        const struct leat_daemon_model *model = leat_daemon_find_model(daemon, model_name);
        const uint32_t count = model != NULL ? model->measured.count : 0;
        answer = describe_variant(daemon, model_name);
        (void)json_object_set_new(answer, "points",
                                  model != NULL ? describe_points(model, (uint32_t)from) : json_array());
        if ((uint64_t)from + POINTS_MAX < count) {
            (void)json_object_set_new(answer, "next", json_integer(from + POINTS_MAX));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status == LEAT_OK ? answer : leat_admin_refusal(status);
}

/* ---- Changing ----------------------------------------------------------------------------------- */

static enum leat_status
parse_percentile(const json_t *value, uint32_t *ret_quantile_ppm)
{
    const double percent = json_number_value(value);
    const char *text = json_string_value(value);

    if (text != NULL && strcmp(text, "mean") == 0) {
        *ret_quantile_ppm = LEAT_PROFILE_MEAN;
        return LEAT_OK;
    }
    if (!(percent >= 50 && percent <= 99.9)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'percentile' must be 50 to 99.9, or \"mean\"");
    }
    *ret_quantile_ppm = (uint32_t)(percent * 1e4 + 0.5);
    return LEAT_OK;
}

/* The name of a router or selector; "" or "auto": the workers' default. */
static enum leat_status
parse_name(const json_t *value, const char *key, const char *(*name_at)(size_t index), char ret_name[32])
{
    const char *name = json_string_value(value);
    char names[256] = "auto";
    bool exists = false;

    if (name == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a name", key);
    }
    if (strcmp(name, "auto") == 0) {
        name = "";
    }
    for (size_t i = 0; name_at(i) != NULL; i++) {
        const size_t used = strlen(names);
        exists = exists || strcmp(name, name_at(i)) == 0;
        (void)snprintf(names + used, sizeof(names) - used, ", %s", name_at(i));
    }
    if (name[0] != '\0' && !exists) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no %s '%.64s'; there are %s", key, name, names);
    }
    (void)snprintf(ret_name, 32, "%s", name);
    return LEAT_OK;
}

/*
 * A path from the root, for leatd's folder is not whoever asks; "" or "auto": made from profiles. What is in the file now counts
 * from now on: *ret_read, free()'d by the caller once the application is not used any more.
 */
static enum leat_status
parse_policy(const json_t *value, struct leat_registry_application *application, struct leat_policy **ret_read)
{
    const char *text = json_string_value(value);
    struct leat_policy *read = NULL;

    if (text != NULL && strcmp(text, "auto") == 0) {
        text = "";
    }
    if (text == NULL || (text[0] != '/' && text[0] != '\0') || strlen(text) >= sizeof(application->policy)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'policy' must be \"auto\" or a path from the root");
    }
    if (text[0] != '\0') {
        const enum leat_status status = leat_policy_read(text, &read);
        if (status != LEAT_OK) {
            return status;
        }
    }
    (void)strcpy(application->policy, text);
    application->policy_table = *ret_read = read;
    application->policy_bytes = read != NULL ? read->bytes : 0;
    return LEAT_OK;
}

static const char *
router_name(size_t index)
{
    return leat_router_at(index) != NULL ? leat_router_at(index)->name : NULL;
}

static const char *
selector_name(size_t index)
{
    return leat_selector_at(index) != NULL ? leat_selector_at(index)->name : NULL;
}

static enum leat_status
parse_integer(const json_t *value, const char *key, json_int_t min, json_int_t max, json_int_t *ret_number)
{
    if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a whole number from %lld to %lld", key, (long long)min, (long long)max);
    }
    *ret_number = json_integer_value(value);
    return LEAT_OK;
}

/* Changes the application as the request says; what that does not name stays. *ret_read: see parse_policy. */
static enum leat_status
parse_options(const json_t *request, struct leat_registry_application *application, struct leat_policy **ret_read)
{
    const json_t *latency = json_object_get(request, "latency_ns"), *late = json_object_get(request, "drop_late"),
                 *percentile = json_object_get(request, "percentile"), *router = json_object_get(request, "router"),
                 *selector = json_object_get(request, "selector"), *queue = json_object_get(request, "queue"),
                 *threshold = json_object_get(request, "threshold"), *policy = json_object_get(request, "policy");
    json_int_t number = 0;
    enum leat_status status = LEAT_OK;

    if (latency != NULL) {
        status = parse_integer(latency, "latency_ns", 0, LATENCY_MAX_NS, &number);
        application->latency_ns = (uint64_t)number;
    }
    if (status == LEAT_OK && queue != NULL) {
        status = parse_integer(queue, "queue", 1, QUEUE_MAX, &number);
        application->queue = (uint32_t)number;
    }
    if (status == LEAT_OK && threshold != NULL) {
        status = parse_integer(threshold, "threshold", 0, LEAT_ITEMS_MAX, &number);
        application->threshold_items = (uint32_t)number;
    }
    if (status == LEAT_OK && late != NULL) {
        status = json_is_boolean(late) ? LEAT_OK : LEAT_FAIL(LEAT_ERR_INVALID, "'drop_late' must be true or false");
        application->drop_late = json_is_true(late);
    }
    if (status == LEAT_OK && policy != NULL) {
        status = parse_policy(policy, application, ret_read);
    }
    if (status == LEAT_OK && percentile != NULL) {
        status = parse_percentile(percentile, &application->quantile_ppm);
    }
    if (status == LEAT_OK && router != NULL) {
        status = parse_name(router, "router", router_name, application->router);
    }
    if (status == LEAT_OK && selector != NULL) {
        status = parse_name(selector, "selector", selector_name, application->selector);
    }
    return status;
}

static uint32_t
find_place(const struct leat_registry_application *application, const char *model)
{
    uint32_t place = 0;
    while (place < application->model_count && strcmp(application->models[place], model) != 0) {
        place++;
    }
    return place;
}

enum leat_status
leat_admin_add_member(struct leat_daemon *daemon, struct leat_registry_application *application, const char *model)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const bool loaded = leat_daemon_find_model(daemon, model) != NULL;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (!loaded) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no model '%s': 'leat model list' shows them", model);
    }
    if (find_place(application, model) < application->model_count) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s' has model '%s' already", application->name, model);
    }
    if (application->model_count == LEAT_SCHED_VARIANTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "application '%s' has %u models, the limit", application->name,
                         LEAT_SCHED_VARIANTS_MAX);
    }
    (void)snprintf(application->models[application->model_count++], LEAT_NAME_MAX, "%s", model);
    return LEAT_OK;
}

static enum leat_status
remove_member(struct leat_registry_application *application, const char *model)
{
    const uint32_t place = find_place(application, model);

    if (place == application->model_count) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has no model '%s'", application->name, model);
    }
    application->model_count--;
    memmove(application->models[place], application->models[place + 1], (application->model_count - place) * LEAT_NAME_MAX);
    return LEAT_OK;
}

/* Lists of names: first those to go, then those to come. */
static enum leat_status
parse_members(struct leat_daemon *daemon, const json_t *request, struct leat_registry_application *application)
{
    static const char *const keys[] = {"remove_models", "models"};
    enum leat_status status = LEAT_OK;

    for (size_t k = 0; k < LEAT_COUNT_OF(keys); k++) {
        const json_t *names = json_object_get(request, keys[k]);
        if (names != NULL && !json_is_array(names)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a list of names", keys[k]);
        }
        for (size_t n = 0; n < json_array_size(names) && status == LEAT_OK; n++) {
            const char *model = json_string_value(json_array_get(names, n));
            if (model == NULL || strlen(model) >= LEAT_NAME_MAX) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a list of names", keys[k]);
            }
            status = k == 0 ? remove_member(application, model) : leat_admin_add_member(daemon, application, model);
        }
    }
    return status;
}

enum leat_status
leat_admin_get_application(struct leat_daemon *daemon, const char *name, struct leat_registry_application *ret_application)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_definition *definition = leat_daemon_find_definition(daemon, name);
    if (definition == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application '%s': 'leat app add %s' makes one", name, name);
    } else if (definition->configured) {
        status = LEAT_FAIL(LEAT_ERR_EXISTS, "application '%s' is the configuration's: change it there", name);
    } else {
        *ret_application = definition->application;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

/* What the request says of an application that there is not yet, without its models. */
static enum leat_status
new_application(struct leat_daemon *daemon, const json_t *request, struct leat_registry_application *ret_application,
                struct leat_policy **ret_read)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    struct leat_registry_application application = {.drop_late = true, .queue = QUEUE_DEFAULT};

    if (!leat_admin_name_is_good(name)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "an application's name has 1 to %d letters, digits, '.', '_' or '-', and starts "
                                           "with a letter, digit or '_'", LEAT_NAME_MAX - 1);
    }
    (void)snprintf(application.name, sizeof(application.name), "%s", name);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const bool taken = leat_daemon_find_definition(daemon, name) != NULL || leat_daemon_find_application(daemon, name) != NULL;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    if (taken) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "a model or application '%s' exists: change it with 'leat app change', or take another name",
                         name);
    }
    const enum leat_status status = parse_options(request, &application, ret_read);
    if (status == LEAT_OK) {
        *ret_application = application;
    }
    return status;
}

static json_t *
remove_application(struct leat_daemon *daemon, const json_t *request, const char *name)
{
    const bool models = json_is_true(json_object_get(request, "models"));
    const enum leat_status status = leat_daemon_remove_application(daemon, name, models);
    return status == LEAT_OK ? json_pack("{s:s}", "removed", name) : leat_admin_refusal(status);
}

/* With how it is served then. */
static json_t *
refresh_policy(struct leat_daemon *daemon, const char *name)
{
    json_t *answer = NULL;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const enum leat_status status = leat_policy_keeper_refresh(daemon, name);
    if (status == LEAT_OK) { /* so it is there still */
        answer = json_pack("{s:s, s:o}", "application", name, "policy",
                           leat_admin_policy(leat_daemon_find_application(daemon, name)));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status == LEAT_OK ? answer : leat_admin_refusal(status);
}

bool
leat_admin_changes_application(const char *op)
{
    return strcmp(op, "app-add") == 0 || strcmp(op, "app-change") == 0 || strcmp(op, "app-import") == 0 ||
           strcmp(op, "app-policy-refresh") == 0 || strcmp(op, "app-remove") == 0;
}

json_t *
leat_admin_change_application(struct leat_daemon *daemon, const char *op, const json_t *request, int fd)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    struct leat_registry_application application;
    struct leat_policy *read = NULL;
    enum leat_status status;

    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    if (strcmp(op, "app-remove") == 0) {
        return remove_application(daemon, request, name);
    }
    if (strcmp(op, "app-policy-refresh") == 0) {
        return refresh_policy(daemon, name);
    }
    if (strcmp(op, "app-change") != 0) {
        status = new_application(daemon, request, &application, &read);
    } else {
        status = leat_admin_get_application(daemon, name, &application);
        if (status == LEAT_OK) {
            status = parse_options(request, &application, &read);
        }
    }
    if (status == LEAT_OK && strcmp(op, "app-import") == 0) {
        status = leat_admin_import(daemon, &application, fd);
    } else if (status == LEAT_OK) {
        status = parse_members(daemon, request, &application);
        if (status == LEAT_OK) {
            status = leat_daemon_put_application(daemon, &application, NULL);
        }
    }
    free(read);
    return status == LEAT_OK ? leat_admin_app_show(daemon, request) : leat_admin_refusal(status);
}
