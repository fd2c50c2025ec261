/* SPDX-License-Identifier: Apache-2.0 */
/* Admin requests, one JSON object in, one out; docs/control.md lists them. On the admin threads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/admin_private.h"
#include "sched/policy_table.h"

#define NEXT_BYTES 32 /* of "next" and its number */

/* ---- Answers ---------------------------------------------------------------------------------- */

json_t *
leat_admin_refusal(enum leat_status status)
{
    return json_pack("{s:i, s:o}", "status", (int)status, "error", leat_json_text(leat_error_text()));
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

json_t *
leat_admin_policy(const struct leat_application *app)
{
    const struct leat_policy_keeping *keeping = &app->keeping;
    return keeping->versions == 0
               ? json_null()
               : json_pack("{s:b, s:I, s:I, s:i, s:i, s:i, s:f, s:I, s:s}", "own", (int)keeping->own, "versions",
                           (json_int_t)keeping->versions, "objective_ns", (json_int_t)keeping->objective_ns, "workers",
                           (int)keeping->worker_count, "unit_items", 1 << keeping->policy->unit_shift, "rungs",
                           (int)keeping->rung_count, "dispersion", keeping->dispersion_permille / 1e3, "reserve_ns",
                           (json_int_t)atomic_load_explicit(&app->reserve_ns, memory_order_relaxed), "trouble", keeping->trouble);
}

/* The variant's place among what the application is served by; behind the last: it has none. */
static uint32_t
variant_named(const struct leat_application *app, const char *model)
{
    uint32_t v = 0;
    while (v < app->instances.variant_count && strcmp(app->variants[v]->name, model) != 0) {
        v++;
    }
    return v;
}

json_t *
leat_admin_instances(const struct leat_daemon *daemon, const struct leat_application *app, const char *model)
{
    const bool loading = strcmp(daemon->loading, model) == 0;
    uint32_t counts[LEAT_INSTANCE_STATES] = {
        [LEAT_INSTANCE_INACTIVE] = loading ? 0 : daemon->options.worker_count,
        [LEAT_INSTANCE_LOADING] = loading ? daemon->options.worker_count : 0,
    };
    const uint32_t variant = app != NULL ? variant_named(app, model) : 0;
    json_t *object = json_object();

    if (app != NULL && variant < app->instances.variant_count) {
        leat_instances_count(&app->instances, variant, counts);
    }
    for (uint32_t s = 0; s < LEAT_INSTANCE_STATES; s++) {
        (void)json_object_set_new(object, leat_instance_state_text((enum leat_instance_state)s), json_integer(counts[s]));
    }
    return object;
}

json_t *
leat_admin_workers_in(const struct leat_application *app, const char *model, enum leat_instance_state state)
{
    const uint32_t variant = app != NULL ? variant_named(app, model) : 0;
    json_t *workers = json_array();

    for (uint32_t w = 0; app != NULL && variant < app->instances.variant_count && w < app->instances.worker_count; w++) {
        if (leat_instances_state(&app->instances, w, variant) == state) {
            (void)json_array_append_new(workers, json_integer(w));
        }
    }
    return workers;
}

static json_t *
describe_application(const struct leat_daemon *daemon, const struct leat_application *app)
{
    const struct leat_application_counters *counters = &app->counters;
    json_t *models = json_array(), *instances = json_array();

    for (uint32_t v = 0; v < app->instances.variant_count; v++) {
        (void)json_array_append_new(models, json_string(app->variants[v]->name));
        (void)json_array_append_new(instances, leat_admin_instances(daemon, app, app->variants[v]->name));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", app->name, "router",
                     app->router->name, "selector", app->selector->name, "workers",
                     (int)app->keeping.share.workers, "latency_ns", (json_int_t)app->latency_ns,
                     "drop_late", (int)app->drop_late, "percentile", leat_admin_percentile(app->profiles[0][0].quantile_ppm), "models", models,
                     "instances", instances, "policy", leat_admin_policy(app), "accepted", counter(&counters->accepted), "ok",
                     counter(&counters->ok), "rejected", counter(&counters->rejected), "expired",
                     counter(&counters->expired), "cancelled", counter(&counters->cancelled), "failed",
                     counter(&counters->failed), "batches", counter(&counters->batches), "waiting",
                     counter(&counters->waiting));
}

static json_t *
describe_worker(struct leat_daemon *daemon, uint32_t index)
{
    const struct leat_worker *worker = daemon->workers[index];
    struct leat_daemon_held held;
    char cpus[64];

    leat_daemon_held(daemon, index, &held);
    if (daemon->options.pin) {
        (void)leat_cpu_list_text(held.cpus, held.cpu_count, cpus, sizeof(cpus));
    } else {
        (void)strcpy(cpus, "any");
    }
    return json_pack("{s:i, s:s, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o}", "index", (int)index, "cpus", cpus, "node",
                     (int)daemon->options.workers[index].node, "class", (int)held.shape.worker_class, "class_name",
                     daemon->classes[held.shape.worker_class].name, "batches", counter(&worker->statistics.batches), "busy_ns",
                     counter(&worker->statistics.busy_ns), "offline_ns", counter(&worker->statistics.offline_ns), "sleeps",
                     counter(&worker->statistics.parks), "pauses", counter(&worker->statistics.pauses));
}

static json_t *
describe_classes(struct leat_daemon *daemon)
{
    uint32_t sizes[LEAT_WORKER_CLASSES_MAX] = {0};
    json_t *classes = json_array();

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        struct leat_daemon_held held;
        leat_daemon_held(daemon, w, &held);
        sizes[held.shape.worker_class]++;
    }
    for (uint32_t c = 0; c < daemon->class_count; c++) {
        const struct leat_daemon_class *class = &daemon->classes[c];
        (void)json_array_append_new(classes, json_pack("{s:s, s:i, s:i, s:I, s:i}", "name", class->name, "cores",
                                                       (int)daemon->team_sizes[c], "workers", (int)sizes[c],
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

static void
add_unserved(const struct leat_daemon *daemon, json_t *unserved, const char *application, const char *model)
{
    json_t *object = leat_admin_instances(daemon, NULL, model);

    (void)json_object_set_new(object, "application", json_string(application));
    (void)json_object_set_new(object, "model", json_string(model));
    (void)json_array_append_new(unserved, object);
}

/* Models that are known and not loaded, or being loaded, by the applications that they would serve. Mutex held. */
static json_t *
describe_unserved(struct leat_daemon *daemon)
{
    json_t *unserved = json_array();

    for (uint32_t d = 0; d < daemon->definition_count; d++) {
        const struct leat_registry_application *application = &daemon->definitions[d]->application;
        const struct leat_application *app = leat_daemon_find_application(daemon, application->name);
        for (uint32_t m = 0; m < application->model_count; m++) {
            if (app == NULL || variant_named(app, application->models[m]) == app->instances.variant_count) {
                add_unserved(daemon, unserved, application->name, application->models[m]);
            }
        }
    }
    for (uint32_t f = 0; f < daemon->failure_count; f++) {
        const char *name = daemon->failures[f].name;
        if (!daemon->failures[f].application && strcmp(name, daemon->loading) != 0 &&
            leat_daemon_find_application(daemon, name) == NULL) {
            add_unserved(daemon, unserved, name, name);
        }
    }
    if (daemon->loading[0] != '\0' && leat_daemon_find_application(daemon, daemon->loading) == NULL) {
        add_unserved(daemon, unserved, daemon->loading, daemon->loading);
    }
    return unserved;
}

static void
add_states(json_t *sums, const json_t *states)
{
    for (uint32_t s = 0; s < LEAT_INSTANCE_STATES; s++) {
        const char *state = leat_instance_state_text((enum leat_instance_state)s);
        const json_int_t sum = json_integer_value(json_object_get(sums, state));
        (void)json_object_set_new(sums, state, json_integer(sum + json_integer_value(json_object_get(states, state))));
    }
}

/* Of all applications: how many instances are in each state. */
static json_t *
sum_instances(const json_t *applications, const json_t *unserved)
{
    json_t *sums = json_object(), *app, *states;
    size_t a, v;

    json_array_foreach(applications, a, app) {
        json_array_foreach(json_object_get(app, "instances"), v, states) {
            add_states(sums, states);
        }
    }
    json_array_foreach(unserved, v, states) {
        add_states(sums, states);
    }
    return sums;
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
            (void)json_array_append_new(applications, describe_application(daemon, daemon->applications[id]));
        }
    }
    json_t *unserved = describe_unserved(daemon), *pipelines = leat_admin_pipelines_status(daemon);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:s, s:I, s:i, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:o}, s:o, s:o, s:o, s:o, s:o, s:o}", "version", LEAT_VERSION_TEXT,
                     "uptime_ns", (json_int_t)(leat_monotonic_ns() - daemon->started_ns), "sessions",
                     (int)server.sessions, "connections_accepted", (json_int_t)server.accepted, "connections_refused",
                     (json_int_t)server.refused, "dispatcher", "rounds", (json_int_t)dispatcher.rounds, "sleeps",
                     (json_int_t)dispatcher.parks, "decisions", (json_int_t)dispatcher.decisions, "malformed",
                     (json_int_t)dispatcher.rejected_malformed, "decision_ns",
                     describe_histogram(leat_dispatcher_decision_times(daemon->dispatcher)), "classes",
                     describe_classes(daemon), "workers", workers, "applications", applications, "pipelines", pipelines, "unserved", unserved, "instances",
                     sum_instances(applications, unserved));
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
describe_profiles(struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant)
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
        status = leat_daemon_lack_application(daemon, name);
    } else if (variant < 0 || variant >= (json_int_t)app->instances.variant_count) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "'variant' must be 0 to %u", app->instances.variant_count - 1);
    } else {
        status = leat_daemon_copy_profiles(daemon, app, (uint32_t)variant, &daemon->profiles);
    }
    if (status == LEAT_OK) {
        app = leat_daemon_find_application(daemon, name); /* the mutex was released meanwhile */
        answer = app != NULL && (uint32_t)variant < app->instances.variant_count
                     ? describe_profiles(daemon, app, (uint32_t)variant)
                     : leat_admin_refusal(LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has gone", name));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status == LEAT_OK ? answer : leat_admin_refusal(status);
}

/* ---- app-policy ------------------------------------------------------------------------------- */

/* A copy, for another may take its place. */
static enum leat_status
copy_policy(struct leat_daemon *daemon, const char *name, struct leat_policy **ret_policy)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_application *app = leat_daemon_find_application(daemon, name);
    if (app == NULL) {
        status = leat_daemon_lack_application(daemon, name);
    } else if (app->keeping.policy == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "selector %s of application '%s' follows no policy", app->selector->name, name);
    } else {
        *ret_policy = malloc(app->keeping.policy->bytes);
        if (*ret_policy == NULL) {
            status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy");
        } else {
            memcpy(*ret_policy, app->keeping.policy, app->keeping.policy->bytes);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

enum leat_status
leat_admin_write_file(const void *bytes, size_t count, int fd)
{
    struct stat info;

    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "it is written to a regular file, whose descriptor comes with the request");
    }
    for (size_t done = 0; done < count;) {
        const ssize_t put = pwrite(fd, (const char *)bytes + done, count - done, (off_t)done);
        if (put < 0 && errno != EINTR) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot write the file");
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return LEAT_OK;
}

static json_t *
handle_policy(struct leat_daemon *daemon, const json_t *request, int fd)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    struct leat_policy *policy = NULL;

    if (name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
    }
    enum leat_status status = copy_policy(daemon, name, &policy);
    if (status == LEAT_OK) {
        status = leat_admin_write_file(policy, policy->bytes, fd);
    }
    json_t *answer = status == LEAT_OK ? json_pack("{s:s, s:I}", "application", name, "bytes", (json_int_t)policy->bytes)
                                       : leat_admin_refusal(status);
    free(policy);
    return answer;
}

/* ---- Requests --------------------------------------------------------------------------------- */

/* Looking is free to all who may connect; changing is for root, the daemon's own user and the operators. */
bool
leat_admin_may_change(const struct leat_daemon *daemon, uid_t uid)
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
    return op != NULL &&
           (leat_admin_changes_model(op) || leat_admin_changes_application(op) || leat_admin_changes_pipeline(op) ||
            leat_admin_changes_offline(op)) &&
           leat_admin_may_change(daemon, job->uid);
}

bool
leat_admin_resizes(const struct leat_daemon *daemon, struct leat_admin_job *job)
{
    const char *op = read_op(job);
    return op != NULL && strcmp(op, "scale-set") == 0 && leat_admin_may_change(daemon, job->uid);
}

/* -1: none came. */
static int
first_fd(const struct leat_admin_job *job)
{
    return job->fd_count > 0 ? job->fds[0] : -1;
}

static json_t *
answer_whole(struct leat_daemon *daemon, struct leat_admin_job *job, const char *op)
{
    if (strcmp(op, "status") == 0) {
        return handle_status(daemon);
    }
    if (strcmp(op, "topology") == 0) {
        return leat_admin_topology(daemon);
    }
    if (strcmp(op, "profiles") == 0) {
        return handle_profiles(daemon, job->json);
    }
    if (strcmp(op, "model-list") == 0) {
        return leat_admin_model_list(daemon);
    }
    if (strcmp(op, "app-list") == 0) {
        return leat_admin_app_list(daemon);
    }
    if (strcmp(op, "app-show") == 0) {
        return leat_admin_app_show(daemon, job->json);
    }
    if (strcmp(op, "model-show") == 0) {
        return leat_admin_model_show(daemon, job->json);
    }
    if (strcmp(op, "app-profiles") == 0) {
        return leat_admin_app_profiles(daemon, job->json);
    }
    if (strcmp(op, "scale-show") == 0) {
        return leat_admin_scale_show(daemon);
    }
    if (strcmp(op, "scale-set") == 0) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_ACCESS, "user %u may not resize workers: add it to access.operators",
                                            (unsigned)job->uid)); /* else it is another thread's */
    }
    if (strcmp(op, "pipeline-list") == 0) {
        return leat_admin_pipeline_list(daemon);
    }
    if (strcmp(op, "pipeline-show") == 0) {
        return leat_admin_pipeline_show(daemon, job->json);
    }
    const bool models = strncmp(op, "model-", 6) == 0, offline = strncmp(op, "offline-", 8) == 0;
    const bool pipelines = leat_admin_changes_pipeline(op);
    if ((models || offline || pipelines || strncmp(op, "app-", 4) == 0) && !leat_admin_may_change(daemon, job->uid)) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_ACCESS, "user %u may not change %s: add it to access.operators",
                                            (unsigned)job->uid, models      ? "models"
                                            : offline   ? "offline jobs"
                                            : pipelines ? "pipelines"
                                                        : "applications"));
    }
    if (offline) {
        return leat_admin_offline(daemon, op, job);
    }
    if (strcmp(op, "app-policy") == 0) { /* not for everybody, as it has the daemon write to a file */
        return handle_policy(daemon, job->json, first_fd(job));
    }
    if (pipelines) {
        return leat_admin_change_pipeline(daemon, op, job->json);
    }
    const bool applications = leat_admin_changes_application(op);
    if (applications || leat_admin_changes_model(op)) {
        json_t *answer = applications ? leat_admin_change_application(daemon, op, job->json, first_fd(job))
                                      : leat_admin_change_model(daemon, op, job->json, job->fds, job->fd_count);
        leat_daemon_serve_pipelines(daemon); /* those that waited for it */
        return answer;
    }
    return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                             "there is no request '%.64s' (status, topology, profiles, model-list, model-add, model-profile, model-file, model-remove, app-list, "
                             "app-show, app-profiles, app-policy, app-add, app-change, app-import, app-policy-refresh, app-remove, scale-show, "
                             "scale-set, pipeline-add, pipeline-list, pipeline-show, pipeline-remove, offline-submit, offline-list, "
                             "offline-show, offline-cancel, offline-resume)", op));
}

/* Of a list that may be longer than a packet, the elements from `from` on that fit into one, and "next" where there are more. */
static json_t *
cut_list(json_t *answer, const char *name, size_t from)
{
    json_t *all = json_incref(json_object_get(answer, name)), *part = json_array();
    const size_t count = json_array_size(all);
    size_t next = from;

    (void)json_object_set(answer, name, part);
    for (size_t bytes = json_dumpb(answer, NULL, 0, JSON_COMPACT) + NEXT_BYTES; next < count; next++) {
        json_t *element = json_array_get(all, next);
        bytes += json_dumpb(element, NULL, 0, JSON_COMPACT) + 1;
        if (bytes > LEAT_WIRE_PACKET_MAX - sizeof(struct leat_wire_header) && next > from) {
            (void)json_object_set_new(answer, "next", json_integer((json_int_t)next));
            break;
        }
        (void)json_array_append(part, element);
    }
    json_decref(part);
    json_decref(all);
    return answer;
}

static json_t *
answer_request(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    static const struct {
        const char *op, *name;
    } lists[] = {{"status", "applications"}, {"model-list", "models"}, {"app-list", "applications"}, {"offline-list", "jobs"}};
    const char *op = read_op(job);
    const json_t *from = json_object_get(job->json, "from");
    size_t l = 0;

    if (op == NULL) {
        return leat_admin_refusal(LEAT_ERR_PROTO);
    }
    while (l < sizeof(lists) / sizeof(lists[0]) && strcmp(op, lists[l].op) != 0) {
        l++;
    }
    if (l == sizeof(lists) / sizeof(lists[0])) {
        return answer_whole(daemon, job, op);
    }
    if (from != NULL && (!json_is_integer(from) || json_integer_value(from) < 0)) {
        return leat_admin_refusal(
            LEAT_FAIL(LEAT_ERR_INVALID, "'from' must be a place in '%s', which 'next' of an answer names", lists[l].name));
    }
    json_t *answer = answer_whole(daemon, job, op);
    const bool listed = json_object_get(answer, lists[l].name) != NULL;
    return listed ? cut_list(answer, lists[l].name, (size_t)json_integer_value(from)) : answer;
}

static void
free_job(struct leat_admin_job *job)
{
    for (uint32_t i = 0; i < job->fd_count; i++) {
        (void)close(job->fds[i]);
    }
    (void)atomic_fetch_sub_explicit(job->open, job->fd_count, memory_order_relaxed);
    json_decref(job->json);
    free(job->request);
    free(job);
}

void
leat_admin_answer(struct leat_admin_job *job, json_t *answer)
{
    char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;

    leat_server_reply(job->reply_socket, text != NULL ? text : "{\"status\":-3,\"error\":\"out of memory\"}");
    free(text);
    json_decref(answer);
    free_job(job);
}

void
leat_admin_handle(struct leat_daemon *daemon, struct leat_admin_job *job)
{
    leat_admin_answer(job, answer_request(daemon, job));
}

void
leat_admin_drop(struct leat_admin_job *job)
{
    (void)close(job->reply_socket);
    free_job(job);
}
