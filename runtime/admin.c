/* SPDX-License-Identifier: Apache-2.0 */
/* Admin requests, one JSON object in, one out; docs/control.md lists them. On the admin threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/admin_private.h"
#include "runtime/log.h"

/* ---- Answers ---------------------------------------------------------------------------------- */

json_t *
leat_admin_refusal(enum leat_status status)
{
    return json_pack("{s:i, s:s}", "status", (int)status, "error", leat_error_text());
}

static json_t *
counter(const _Atomic uint64_t *value)
{
    return json_integer((json_int_t)atomic_load_explicit(value, memory_order_relaxed));
}

/* ---- status ----------------------------------------------------------------------------------- */

json_t *
leat_admin_percentile(uint32_t quantile_ppm)
{
    return quantile_ppm == LEAT_PROFILE_MEAN
               ? json_string("mean")
               : json_real((quantile_ppm != LEAT_PROFILE_DEFAULT ? quantile_ppm : 950000) / 1e4);
}

static json_t *
describe_policy(const struct leat_policy_keeping *keeping)
{
    return keeping->versions == 0
               ? json_null()
               : json_pack("{s:b, s:I, s:i, s:f}", "own", (int)keeping->own, "versions", (json_int_t)keeping->versions,
                           "rungs", (int)keeping->rung_count, "dispersion", keeping->dispersion_permille / 1e3);
}

static json_t *
describe_application(const struct leat_application *app)
{
    const struct leat_application_counters *counters = &app->counters;
    json_t *models = json_array();

    for (uint32_t v = 0; v < app->variant_count; v++) {
        (void)json_array_append_new(models, json_string(app->variants[v]->name));
    }
    return json_pack("{s:s, s:s, s:s, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", app->name, "router",
                     app->router->name, "selector", app->selector->name, "latency_ns", (json_int_t)app->latency_ns,
                     "drop_late", (int)app->drop_late, "percentile", leat_admin_percentile(app->profiles[0][0].quantile_ppm), "models", models,
                     "policy", describe_policy(&app->keeping), "accepted", counter(&counters->accepted), "ok",
                     counter(&counters->ok), "rejected", counter(&counters->rejected), "expired",
                     counter(&counters->expired), "cancelled", counter(&counters->cancelled), "failed",
                     counter(&counters->failed), "batches", counter(&counters->batches), "waiting",
                     counter(&counters->waiting));
}

static json_t *
describe_worker(const struct leat_daemon *daemon, uint32_t index)
{
    const struct leat_daemon_worker *spec = &daemon->options.workers[index];
    const struct leat_worker *worker = daemon->workers[index];
    char cpus[64];

    if (daemon->options.pin) {
        (void)leat_cpu_list_text(spec->cpus, spec->core_count, cpus, sizeof(cpus));
    } else {
        (void)strcpy(cpus, "any");
    }
    return json_pack("{s:i, s:s, s:i, s:i, s:s, s:o, s:o, s:o}", "index", (int)index, "cpus", cpus, "node",
                     (int)spec->node, "class", (int)spec->worker_class, "class_name",
                     daemon->classes[spec->worker_class].name, "batches", counter(&worker->statistics.batches), "busy_ns",
                     counter(&worker->statistics.busy_ns), "sleeps", counter(&worker->statistics.parks));
}

static json_t *
describe_classes(const struct leat_daemon *daemon)
{
    json_t *classes = json_array();

    for (uint32_t c = 0; c < daemon->class_count; c++) {
        const struct leat_daemon_class *class = &daemon->classes[c];
        (void)json_array_append_new(classes, json_pack("{s:s, s:i, s:i, s:I, s:i}", "name", class->name, "cores",
                                                       (int)daemon->team_sizes[c], "workers", (int)daemon->class_sizes[c],
                                                       "price_micro_per_hour", (json_int_t)class->price_micro, "count_max",
                                                       (int)class->count_max));
    }
    return classes;
}

/* [largest value, count] of each bucket that is not empty. */
static json_t *
describe_buckets(const struct leat_histogram *histogram)
{
    json_t *buckets = json_array();

    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        const uint64_t count = atomic_load_explicit(&histogram->counts[b], memory_order_relaxed);
        if (count > 0) {
            (void)json_array_append_new(buckets,
                                        json_pack("[I, I]", (json_int_t)leat_histogram_top(b), (json_int_t)count));
        }
    }
    return buckets;
}

static json_t *
describe_histogram(const struct leat_histogram *histogram)
{
    const struct leat_histogram_summary summary = leat_histogram_summarise(histogram);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "count", (json_int_t)summary.count, "p50", (json_int_t)summary.p50,
                     "p99", (json_int_t)summary.p99, "p999", (json_int_t)summary.p999, "max", (json_int_t)summary.max,
                     "buckets", describe_buckets(histogram));
}

static json_t *
handle_status(struct leat_daemon *daemon)
{
    struct leat_dispatcher_statistics dispatcher;
    struct leat_server_statistics server;
    json_t *workers = json_array(), *applications = json_array();

    leat_dispatcher_statistics(daemon->dispatcher, &dispatcher);
    leat_server_statistics(daemon->server, &server);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        (void)json_array_append_new(workers, describe_worker(daemon, w));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        if (daemon->applications[id] != NULL) {
            (void)json_array_append_new(applications, describe_application(daemon->applications[id]));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:s, s:I, s:i, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:o}, s:o, s:o, s:o}", "version", LEAT_VERSION_TEXT,
                     "uptime_ns", (json_int_t)(leat_monotonic_ns() - daemon->started_ns), "sessions",
                     (int)server.sessions, "connections_accepted", (json_int_t)server.accepted, "connections_refused",
                     (json_int_t)server.refused, "dispatcher", "rounds", (json_int_t)dispatcher.rounds, "sleeps",
                     (json_int_t)dispatcher.parks, "decisions", (json_int_t)dispatcher.decisions, "malformed",
                     (json_int_t)dispatcher.rejected_malformed, "decision_ns",
                     describe_histogram(leat_dispatcher_decision_times(daemon->dispatcher)), "classes",
                     describe_classes(daemon), "workers", workers, "applications", applications);
}

/* ---- profiles --------------------------------------------------------------------------------- */

/* The n-th size that a profile has a knot at: all up to 8, then 8 to an octave. */
static uint32_t
knot_items(uint32_t n)
{
    return n < 8 ? n + 1 : (8 + n % 8 + 1) << (n / 8 - 1);
}

/* [items, mean, prediction] wherever the curve may bend, and at the largest batch. */
static json_t *
describe_points(const struct leat_profile *profile, uint32_t items_max)
{
    json_t *points = json_array();
    uint32_t items = 0;

    for (uint32_t n = 0; items < items_max; n++) {
        items = knot_items(n) < items_max ? knot_items(n) : items_max;
        (void)json_array_append_new(points,
                                    json_pack("[I, I, I]", (json_int_t)items, (json_int_t)leat_profile_mean(profile, items),
                                              (json_int_t)leat_profile_predict(profile, items)));
    }
    return points;
}

static json_t *
describe_profiles(const struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant)
{
    const uint32_t items_max = app->variants[variant]->items_max;
    json_t *classes = describe_classes(daemon);

    for (uint32_t c = 0; c < daemon->class_count; c++) {
        (void)json_object_set_new(json_array_get(classes, c), "points",
                                  describe_points(&daemon->profiles.profiles[c], items_max));
    }
    return json_pack("{s:s, s:s, s:i, s:I, s:o, s:o, s:o}", "application", app->name, "model", app->variants[variant]->name,
                     "items_max", (int)items_max, "latency_ns", (json_int_t)app->latency_ns, "percentile",
                     leat_admin_percentile(app->profiles[0][0].quantile_ppm), "classes", classes, "sizes", describe_buckets(&app->sizes));
}

static json_t *
handle_profiles(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    const json_int_t variant = json_integer_value(json_object_get(request, "variant"));
    enum leat_status status = LEAT_OK;
    json_t *answer = NULL;

    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_application *app = leat_daemon_find_application(daemon, name);
    if (app == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application or model '%s'", name);
    } else if (variant < 0 || variant >= (json_int_t)app->variant_count) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "'variant' must be 0 to %u", app->variant_count - 1);
    } else {
        status = leat_daemon_copy_profiles(daemon, app, (uint32_t)variant, &daemon->profiles);
    }
    if (status == LEAT_OK) {
        app = leat_daemon_find_application(daemon, name); /* the mutex was released meanwhile */
        answer = app != NULL && (uint32_t)variant < app->variant_count
                     ? describe_profiles(daemon, app, (uint32_t)variant)
                     : leat_admin_refusal(LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has gone", name));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status == LEAT_OK ? answer : leat_admin_refusal(status);
}

/* ---- models ----------------------------------------------------------------------------------- */

static json_t *
describe_tensors(const struct leat_target *target)
{
    json_t *tensors = json_array();

    for (uint32_t t = 0; t < target->input_count + target->output_count; t++) {
        const struct leat_tensor_info *info = &target->tensors[t];
        json_t *dims = json_array();
        for (uint32_t d = 0; d < info->rank; d++) {
            (void)json_array_append_new(dims, json_integer((json_int_t)info->dims[d]));
        }
        (void)json_array_append_new(
            tensors, json_pack("{s:s, s:s, s:s, s:o, s:I}", "role", t < target->input_count ? "input" : "output", "name",
                               info->name, "dtype", leat_dtype_text(info->dtype), "dims", dims, "item_bytes",
                               (json_int_t)info->item_bytes));
    }
    return tensors;
}

static json_t *
describe_model(const struct leat_daemon_model *model)
{
    return json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:i, s:b, s:o}", "name", model->name, "backend",
                     model->variant->backend->name, "items_max", (int)model->variant->items_max, "bytes",
                     (json_int_t)model->bytes, "load_ns", (json_int_t)model->load_ns, "latency_ns",
                     (json_int_t)leat_profile_predict(&model->profiles[0], 1), "accuracy_ppm",
                     (int)model->variant->accuracy_ppm, "persistent", (int)model->persistent, "tensors",
                     describe_tensors(&model->signature));
}

static json_t *
handle_model_list(struct leat_daemon *daemon)
{
    json_t *models = json_array();

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t m = 0; m < daemon->model_count; m++) {
        (void)json_array_append_new(models, describe_model(daemon->models[m]));
    }
    for (uint32_t f = 0; f < daemon->failure_count; f++) {
        if (daemon->failures[f].application) {
            continue;
        }
        (void)json_array_append_new(models, json_pack("{s:s, s:s}", "name", daemon->failures[f].name, "failure",
                                                      daemon->failures[f].text));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:o}", "models", models);
}

/* What a model-add request says; strings belong to the request. */
struct add_request {
    const char *name, *backend;
    uint32_t items_max, accuracy_ppm;
    char *options_json; /* malloc'd; NULL for none */
    struct leat_tensor_info infos[2]; /* synthetic: one input, one output of bytes */
    bool synthetic;
};

bool
leat_admin_name_is_good(const char *name)
{
    const size_t length = name != NULL ? strlen(name) : 0;
    if (length == 0 || length >= LEAT_NAME_MAX || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9') &&
            strchr("._-", *c) == NULL) {
            return false;
        }
    }
    return true;
}

static enum leat_status
bytes_tensor(const json_t *request, const char *key, const char *name, struct leat_tensor_info *ret_info)
{
    const json_t *value = json_object_get(request, key);
    const json_int_t bytes = value == NULL ? 64 : json_integer_value(value);

    if (bytes < 1 || bytes > (json_int_t)1 << 32) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be 1 to 4294967296", key);
    }
    *ret_info = (struct leat_tensor_info){
        .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, bytes}, .item_bytes = (uint64_t)bytes};
    (void)strcpy(ret_info->name, name);
    return LEAT_OK;
}

static enum leat_status
parse_add(const json_t *request, struct add_request *add)
{
    const json_t *items = json_object_get(request, "items_max"), *accuracy = json_object_get(request, "accuracy");
    const json_t *options = json_object_get(request, "options");

    add->name = json_string_value(json_object_get(request, "name"));
    add->backend = json_string_value(json_object_get(request, "backend"));
    if (!leat_admin_name_is_good(add->name)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a model's name has 1 to %d letters, digits, '.', '_' or '-', and starts "
                                           "with a letter, digit or '_'", LEAT_NAME_MAX - 1);
    }
    if (add->backend == NULL) {
        add->backend = "cpu";
    }
    const json_int_t items_max = items == NULL ? 8 : json_integer_value(items);
    if (items_max < 1 || items_max > LEAT_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'items_max' must be 1 to %u", LEAT_ITEMS_MAX);
    }
    add->items_max = (uint32_t)items_max;
    const double fraction = accuracy == NULL ? 0 : json_number_value(accuracy);
    if (!(fraction >= 0 && fraction <= 1)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'accuracy' must be 0 to 1");
    }
    add->accuracy_ppm = (uint32_t)(fraction * 1e6 + 0.5);
    if (options != NULL) {
        add->options_json = json_dumps(options, JSON_COMPACT);
        if (!json_is_object(options) || add->options_json == NULL) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "'options' must be an object");
        }
    }
    add->synthetic = strcmp(add->backend, "synthetic") == 0;
    enum leat_status status = bytes_tensor(request, "input_bytes", "input", &add->infos[0]);
    if (status == LEAT_OK) {
        status = bytes_tensor(request, "output_bytes", "output", &add->infos[1]);
    }
    return status;
}

/*
 * The client keeps its descriptor and could change the file while we read it: take a private copy, so that what
 * was checked is what is used. LEAT_ERR_LIMIT above the size that a model may have.
 */
static enum leat_status
read_model(int fd, void **ret_bytes, size_t *ret_count)
{
    enum { CHUNK = 1 << 20 };
    const size_t limit = (size_t)2 << 30;
    size_t count = 0, room = 0;
    unsigned char *bytes = NULL;
    struct stat info;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a model must be a regular file");
    }
    if (lseek(fd, 0, SEEK_SET) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot read the model");
    }
    for (;;) {
        if (count + CHUNK > room) {
            room = room == 0 ? (size_t)info.st_size + CHUNK : 2 * room;
            void *grown = room > 2 * limit ? NULL : realloc(bytes, room);
            if (grown == NULL) {
                free(bytes);
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model of %zu bytes", room);
            }
            bytes = grown;
        }
        const ssize_t got = read(fd, bytes + count, CHUNK);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0 || count > limit) {
            free(bytes);
            return got < 0 ? LEAT_FAIL(LEAT_ERR_SYS, "cannot read the model")
                           : LEAT_FAIL(LEAT_ERR_LIMIT, "a model file may have %zu bytes", limit);
        }
        if (got == 0) {
            *ret_bytes = bytes;
            *ret_count = count;
            return LEAT_OK;
        }
        count += (size_t)got;
    }
}

/* What is acknowledged is on disk: a model that the registry cannot take is out of service again before the answer. */
static json_t *
handle_model_add(struct leat_daemon *daemon, const json_t *request, int fd)
{
    struct add_request add = {0};
    void *onnx = NULL;
    size_t onnx_bytes = 0;
    json_t *answer = NULL;

    enum leat_status status = parse_add(request, &add);
    if (status == LEAT_OK && add.synthetic && fd >= 0) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "a synthetic model has no file");
    }
    if (status == LEAT_OK && !add.synthetic) {
        status = fd >= 0 ? read_model(fd, &onnx, &onnx_bytes)
                         : LEAT_FAIL(LEAT_ERR_INVALID, "backend '%s' needs a model file", add.backend);
    }
    if (status == LEAT_OK) {
        const struct leat_variant_source source = {
            .name = add.name,
            .backend = add.backend,
            .onnx = onnx,
            .onnx_bytes = onnx_bytes,
            .options_json = add.options_json,
            .items_max = add.items_max,
            .accuracy_ppm = add.accuracy_ppm,
            .infos = add.infos,
            .input_count = add.synthetic ? 1 : 0,
            .output_count = add.synthetic ? 1 : 0,
        };
        status = leat_daemon_load_model(daemon, &source, daemon->options.store != NULL);
        if (status == LEAT_OK) {
            const struct leat_measured measured = {0};
            const struct leat_daemon_addition addition = {.source = &source, .measured = &measured};
            status = leat_daemon_keep(daemon, &(struct leat_daemon_change){.models = &addition, .model_count = 1});
            if (status != LEAT_OK) {
                const enum leat_status undone = leat_daemon_unload_model(daemon, add.name);
                (void)undone; /* the first failure is the one to report */
            }
        }
    }
    if (status == LEAT_OK) {
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        answer = describe_model(leat_daemon_find_model(daemon, add.name));
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    }
    free(onnx);
    free(add.options_json);
    return answer != NULL ? answer : leat_admin_refusal(status);
}

static json_t *
handle_model_remove(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_model *model = leat_daemon_find_model(daemon, name);
    const bool persistent = model != NULL && model->persistent;
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    enum leat_status status = leat_daemon_unload_model(daemon, name);
    if (status == LEAT_OK && persistent) {
        status = leat_daemon_keep(daemon, &(struct leat_daemon_change){.removed_models = &name, .removed_model_count = 1});
    }
    return status == LEAT_OK ? json_pack("{s:s}", "removed", name) : leat_admin_refusal(status);
}

/* ---- Requests --------------------------------------------------------------------------------- */

/* Looking is free to all who may connect; changing is for root, the daemon's own user and the operators. */
static bool
may_change(const struct leat_daemon *daemon, uid_t uid)
{
    if (uid == 0 || uid == geteuid()) {
        return true;
    }
    for (uint32_t i = 0; i < daemon->options.operator_count; i++) {
        if (daemon->options.operators[i] == uid) {
            return true;
        }
    }
    return false;
}

/* What is asked for; NULL, with a text, when the request is not one. Parsed the first time. */
static const char *
read_op(struct leat_admin_job *job)
{
    json_error_t error = {0};

    if (job->json == NULL) {
        job->json = json_loads(job->request, JSON_REJECT_DUPLICATES, &error);
    }
    const char *op = json_string_value(json_object_get(job->json, "op"));
    if (op == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_PROTO, "the request is no JSON object with an \"op\": %s", error.text);
    }
    return op;
}

bool
leat_admin_changes(const struct leat_daemon *daemon, struct leat_admin_job *job)
{
    const char *op = read_op(job);
    return op != NULL && (strcmp(op, "model-add") == 0 || strcmp(op, "model-remove") == 0 || leat_admin_changes_application(op)) &&
           may_change(daemon, job->uid);
}

static json_t *
answer_request(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    const char *op = read_op(job);

    if (op == NULL) {
        return leat_admin_refusal(LEAT_ERR_PROTO);
    }
    if (strcmp(op, "status") == 0) {
        return handle_status(daemon);
    }
    if (strcmp(op, "topology") == 0) {
        return json_incref(daemon->options.topology);
    }
    if (strcmp(op, "profiles") == 0) {
        return handle_profiles(daemon, job->json);
    }
    if (strcmp(op, "model-list") == 0) {
        return handle_model_list(daemon);
    }
    if (strcmp(op, "app-list") == 0) {
        return leat_admin_app_list(daemon);
    }
    if (strcmp(op, "app-show") == 0) {
        return leat_admin_app_show(daemon, job->json);
    }
    const bool models = strncmp(op, "model-", 6) == 0;
    if ((models || strncmp(op, "app-", 4) == 0) && !may_change(daemon, job->uid)) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_ACCESS, "user %u may not change %s: add it to access.operators",
                                            (unsigned)job->uid, models ? "models" : "applications"));
    }
    if (leat_admin_changes_application(op)) {
        return leat_admin_change_application(daemon, op, job->json);
    }
    if (strcmp(op, "model-add") == 0) {
        return handle_model_add(daemon, job->json, job->fd);
    }
    if (strcmp(op, "model-remove") == 0) {
        return handle_model_remove(daemon, job->json);
    }
    return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                             "there is no request '%.64s' (status, topology, profiles, model-list, model-add, model-remove, app-list, "
                             "app-show, app-add, app-change, app-remove)", op));
}

static void
free_job(struct leat_admin_job *job)
{
    if (job->fd >= 0) {
        (void)close(job->fd);
    }
    json_decref(job->json);
    free(job->request);
    free(job);
}

void
leat_admin_handle(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    json_t *answer = answer_request(daemon, job);
    char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;

    leat_server_reply(job->reply_socket, text != NULL ? text : "{\"status\":-3,\"error\":\"out of memory\"}");
    free(text);
    json_decref(answer);
    free_job(job);
}

void
leat_admin_drop(struct leat_admin_job *job)
{
    (void)close(job->reply_socket);
    free_job(job);
}
