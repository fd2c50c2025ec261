/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Cores go where the load is, and go back: of two applications the one that is asked ten times as much gets cores,
 *          by larger teams, more instances or both as the mode says, while the other keeps the least; then the other way
 *          round; at the end both have the least. No core is free twice at any look, all are somebody's or free at the
 *          end, and every query has one answer, those for an application that is not scaled too. A pipeline of both has
 *          cores for each of its stages. Who cannot be looked at for a while keeps its workers.
 *          Who is listed and comes late has a worker of one that has more, while that one's load goes on; where there are
 *          fewer workers than listed ones, the first have them, others say so, are answered, and have them when these go.
 *          Times are those of the variant that runs, whatever else was learned and forgotten.
 *          Queries that are late though the plan says that all are in time make the load count for more, as long as that goes on.
 *          A load that jumps is looked at before the time of the next look.
 *          While there is an offline job, workers that nobody has are awake, and run it, though it be of an application that is
 *          scaled; what another owns does not. Online queries of that application beside its job are all answered in time, and
 *          when their load asks for cores, workers that run the job give theirs.
 *          CPUs that are gone are nobody's: what is decided fits those that are left, until they are there again.
 *          A worker that is to have fewer cores and does not end its batch keeps them, and nobody else waits for it:
 *          others get cores and give them back, by new decisions, until it has ended.
 * Method   The daemon's own parts in this process, on a machine that is made up, so threads are not pinned. Synthetic
 *          models, whose times follow the cores of their team. States are waited for by administrative requests.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "runtime/cores.h"
#include "runtime/daemon_private.h"
#include "runtime/offline.h"
#include "runtime/offline_gauge.h"
#include "runtime/scale_keeper_private.h"
#include "runtime/worker.h"
#include "tests/runtime/fake_root.h"

enum { APPS = 2, QUERIES = 256, CORES = 10 /* one is the dispatcher's */, WORKERS_MAX = CORES - 1 };

#define BIG      4u
#define CALM_QPS 10u
#define HIGH_QPS 100u

static const char *const names[APPS] = {"first", "second"};
static uint64_t interval_ns = 20000000; /* between looks */

/* ---- The daemon ---------------------------------------------------------------------------------------- */

struct box {
    struct fake_root root;
    char socket_path[160];
    struct leat_topology *topology;
    struct leat_placement *placement;
    struct leat_cores *cores;
    struct leat_scaling scaling;
    uint32_t offline_utilisation_ppm;
    bool second_is_late; /* its model is there, its application not yet */
    struct leat_daemon *daemon;
    pthread_t thread;
    sem_t serving;
    bool
        two_classes; /* of one node: BIG cores after the dispatcher's are big ones, the others little ones */
};

/* On c cores b items take 2 + 20 b / c ms. */
static void
load_model(struct leat_daemon *daemon, const char *name)
{
    static const struct leat_tensor_info infos[2] = {
        {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
        {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
    };
    char model[LEAT_NAME_MAX];

    (void)snprintf(model, sizeof(model), "of-%.32s", name);
    const struct leat_variant_source source = {.name = model,
                                               .backend = "synthetic",
                                               .options_json =
                                                   "{\"latency_ns\": 2000000, \"parallel_per_item_ns\": 20000000}",
                                               .items_max = 4,
                                               .infos = infos,
                                               .input_count = 1,
                                               .output_count = 1};
    EXPECT(leat_daemon_load_model(daemon, &source, NULL, false) == LEAT_OK);
}

static void
add_application(struct leat_daemon *daemon, const char *name)
{
    struct leat_registry_application application = {
        .latency_ns = 100000000, .drop_late = true, .queue = QUERIES, .model_count = 1};

    (void)snprintf(application.name, sizeof(application.name), "%s", name);
    (void)snprintf(application.models[0], sizeof(application.models[0]), "of-%.32s", name);
    EXPECT(leat_daemon_add_application(daemon, &application, false) == LEAT_OK);
}

/* Create, run and destroy belong on one thread. */
static void *
serve(void *argument)
{
    struct box *box = argument;
    struct leat_daemon_worker workers[WORKERS_MAX] = {0};
    struct leat_daemon_class classes[LEAT_PLACEMENT_CLASSES_MAX] = {0};
    json_t *topology = json_pack("{s:s}", "text", "a machine");

    for (uint32_t w = 0; w < box->placement->worker_count; w++) {
        const struct leat_worker_place *place = &box->placement->workers[w];
        workers[w] = (struct leat_daemon_worker){.cpus = {place->cpus[0]},
                                                 .core_count = place->cpu_count,
                                                 .cores_max = place->cores_max,
                                                 .node = place->node,
                                                 .worker_class = place->worker_class};
        EXPECT(place->cpu_count == 1);
    }
    for (uint32_t c = 0; c < box->placement->class_count; c++) {
        (void)snprintf(classes[c].name, sizeof(classes[c].name), "%s", box->placement->classes[c].name);
        classes[c].cores = box->placement->classes[c].cores;
    }
    const struct leat_daemon_options options = {
        .server = {.socket_path = box->socket_path,
                   .socket_mode = 0600,
                   .socket_group = (gid_t)-1,
                   .limits = {.sessions = 8, .sessions_per_user = 8, .bytes = 1 << 26, .bytes_per_user = 1 << 26},
                   .slots_default = QUERIES,
                   .slots_max = QUERIES,
                   .arena_default_bytes = 1 << 20,
                   .arena_max_bytes = 1 << 20},
        .workers = workers,
        .worker_count = box->placement->worker_count,
        .classes = classes,
        .class_count = box->placement->class_count,
        .cores = box->cores,
        .scaling = box->scaling,
        .dispatcher_cpu = -1,
        .offline_utilisation_ppm = box->offline_utilisation_ppm,
        .worker_depth = 2,
        .queue_capacity = 1024,
        .pipeline_memory_bytes = 1 << 20,
        .topology = topology,
    };

    EXPECT(leat_daemon_create(&options, &box->daemon) == LEAT_OK);
    for (uint32_t a = 0; a < APPS; a++) {
        load_model(box->daemon, names[a]);
        if (a == 0 || !box->second_is_late) {
            add_application(box->daemon, names[a]);
        }
    }
    EXPECT(sem_post(&box->serving) == 0);
    EXPECT(leat_daemon_run(box->daemon, UINT64_C(60000000000)) == LEAT_OK);
    leat_daemon_destroy(box->daemon);
    json_decref(topology);
    return NULL;
}

static void
start(struct box *box, enum leat_scaling_mode mode, uint32_t workers, uint32_t cores_max, uint64_t instance_delay_ns,
      const char *const *scaled, uint32_t scaled_count)
{
    const struct leat_topology_source source = {
        .root = "/nonexistent", .synthetic = "numa:1 core:10 pu:1", .affinity = "0-9"};
    const struct leat_worker_group groups[] = {{.count = box->two_classes ? workers / 2 : workers,
                                                .cores = 1,
                                                .cores_max = cores_max,
                                                .cpus = box->two_classes ? "1-4" : NULL,
                                                .class_name = box->two_classes ? "big" : NULL},
                                               {.count = workers / 2,
                                                .cores = 1,
                                                .cores_max = cores_max,
                                                .cpus = "6-9",
                                                .class_name = "little"}};
    const struct leat_placement_request request = {
        .dispatcher_cpu = LEAT_AUTO, .groups = groups, .group_count = box->two_classes ? 2 : 1};

    *box = (struct box){.two_classes = box->two_classes,
                        .offline_utilisation_ppm = box->offline_utilisation_ppm,
                        .second_is_late = box->second_is_late,
                        .scaling = {.mode = mode,
                                    .interval_ns = interval_ns,
                                    .hold_ns = 1000000000,
                                    .settle_ns = 200000000,
                                    .instance_delay_ns = instance_delay_ns,
                                    .forecast = LEAT_SCALING_FORESEES_NOTHING,
                                    .application_count = scaled_count}};
    for (uint32_t a = 0; a < scaled_count; a++) {
        (void)snprintf(box->scaling.applications[a].name, LEAT_NAME_MAX, "%s", scaled[a]);
        box->scaling.applications[a].weight = 1;
    }
    fake_root_init(&box->root);
    (void)snprintf(box->socket_path, sizeof(box->socket_path), "%s/leat.sock", box->root.path);
    EXPECT(leat_topology_discover(&source, &box->topology) == LEAT_OK);
    EXPECT(leat_placement_make(box->topology, &request, &box->placement) == LEAT_OK &&
           box->placement->worker_count == workers);
    EXPECT(leat_cores_create(box->topology, box->placement, &box->cores) == LEAT_OK);
    EXPECT(sem_init(&box->serving, 0, 0) == 0);
    EXPECT(pthread_create(&box->thread, NULL, serve, box) == 0);
    while (sem_wait(&box->serving) != 0) {
    }
    /* Nobody named a selector: workers that are alike but for their cores have batches. */
    EXPECT(pthread_mutex_lock(&box->daemon->mutex) == 0);
    for (uint32_t a = 0; a < scaled_count; a++) {
        const struct leat_application *app = leat_daemon_find_application(box->daemon, scaled[a]);
        EXPECT(app == NULL || app->selector->single == box->two_classes);
    }
    EXPECT(pthread_mutex_unlock(&box->daemon->mutex) == 0);
}

static void
stop(struct box *box)
{
    leat_daemon_stop(box->daemon);
    EXPECT(pthread_join(box->thread, NULL) == 0);
    EXPECT(sem_destroy(&box->serving) == 0);
    uint32_t cores = leat_cores_free(box->cores, 0);
    for (uint32_t w = 0; w < box->placement->worker_count; w++) {
        const uint32_t *cpus;
        cores += leat_cores_of(box->cores, w, &cpus);
    }
    EXPECT(cores == CORES - 1);
    leat_cores_check(box->cores);
    leat_cores_destroy(box->cores);
    leat_placement_destroy(box->placement);
    leat_topology_destroy(box->topology);
    fake_root_fini(&box->root);
}

static struct leat_session *
open_session(const struct box *box)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session = NULL;

    options.socket_path = box->socket_path;
    EXPECT(leat_open(&options, &session) == LEAT_OK);
    return session;
}

/* ---- The load, on a thread of its own ------------------------------------------------------------------- */

struct load {
    struct leat_session *session;
    struct leat_query queries[QUERIES];
    uint32_t idle[QUERIES], idle_count; /* queries that are not under way */
    uint32_t targets[APPS];
    uint64_t asked, answered;
    bool patient; /* all are answered in time, so late they may be */
    _Atomic uint32_t rate_qps[APPS]; /* W: the test, relaxed */
    _Atomic bool stop;
    pthread_t thread;
};

static void
take_answers(struct load *load, uint64_t wait_ns)
{
    struct leat_completion done[QUERIES];
    size_t count = 0;

    const enum leat_status status = leat_wait(load->session, done, QUERIES, wait_ns, &count);
    EXPECT(status == LEAT_OK || status == LEAT_TIMEOUT || status == LEAT_AGAIN);
    for (size_t i = 0; i < count; i++) {
        EXPECT(done[i].outcome == LEAT_OUTCOME_OK ||
               (!load->patient && (done[i].outcome == LEAT_OUTCOME_EXPIRED || done[i].outcome == LEAT_OUTCOME_REJECTED)));
        load->idle[load->idle_count++] = (uint32_t)done[i].user_data;
        load->answered++;
    }
}

static void *
ask(void *argument)
{
    struct load *load = argument;
    uint64_t next_ns[APPS];

    for (uint32_t a = 0; a < APPS; a++) {
        next_ns[a] = leat_monotonic_ns();
    }
    while (!atomic_load_explicit(&load->stop, memory_order_relaxed)) {
        const uint32_t a = next_ns[0] <= next_ns[1] ? 0 : 1;
        const uint64_t now_ns = leat_monotonic_ns();
        if (now_ns < next_ns[a] || load->idle_count == 0) {
            take_answers(load, now_ns < next_ns[a] ? next_ns[a] - now_ns : UINT64_MAX);
            continue;
        }
        struct leat_query *query = &load->queries[load->idle[--load->idle_count]];
        query->target = load->targets[a];
        EXPECT(leat_submit(load->session, query, NULL) == LEAT_OK);
        load->asked++;
        next_ns[a] = now_ns + 1000000000 / atomic_load_explicit(&load->rate_qps[a], memory_order_relaxed);
    }
    while (load->answered < load->asked) {
        take_answers(load, UINT64_MAX);
    }
    return NULL;
}

static void
set_rates(struct load *load, uint32_t first_qps, uint32_t second_qps)
{
    atomic_store_explicit(&load->rate_qps[0], first_qps, memory_order_relaxed);
    atomic_store_explicit(&load->rate_qps[1], second_qps, memory_order_relaxed);
}

static void
begin_load(struct load *load, const struct box *box, const char *const asked[APPS], uint64_t latency_ns)
{
    struct leat_target target;

    *load = (struct load){.session = open_session(box), .patient = latency_ns > 0};
    for (uint32_t a = 0; a < APPS; a++) {
        EXPECT(leat_find(load->session, asked[a], &target) == LEAT_OK);
        load->targets[a] = target.id;
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        load->queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        load->queries[q].user_data = q;
        load->queries[q].latency_ns = latency_ns;
        for (uint32_t t = 0; t < target.input_count + target.output_count; t++) {
            EXPECT(leat_tensor_alloc(load->session, target.tensors[t].item_bytes, &load->queries[q].tensors[t]) == LEAT_OK);
        }
        load->idle[load->idle_count++] = q;
    }
    set_rates(load, CALM_QPS, CALM_QPS);
    EXPECT(pthread_create(&load->thread, NULL, ask, load) == 0);
}

static void
end_load(struct load *load)
{
    atomic_store_explicit(&load->stop, true, memory_order_relaxed);
    EXPECT(pthread_join(load->thread, NULL) == 0);
    EXPECT(load->asked == load->answered && load->idle_count == QUERIES);
    leat_close(load->session);
}

/* ---- What there is ---------------------------------------------------------------------------------------- */

struct seen {
    uint32_t instances[APPS], starting[APPS], cores[APPS], largest[APPS]; /* team */
    uint64_t changes;
};

static uint64_t
number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    EXPECT(json_is_integer(value) && json_integer_value(value) >= 0);
    return (uint64_t)json_integer_value(value);
}

static json_t *
request(struct leat_session *session, const char *text)
{
    char *reply = NULL;

    EXPECT(leat_admin(session, text, -1, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, 0, NULL);
    leat_admin_free(reply);
    EXPECT(answer != NULL);
    return answer;
}

static void
check_free(const json_t *shown)
{
    uint32_t users[CORES] = {0};
    const json_t *cpu;
    size_t c;

    json_array_foreach(json_object_get(shown, "free_cpus"), c, cpu)
    {
        EXPECT(json_integer_value(cpu) > 0 && json_integer_value(cpu) < CORES);
        users[json_integer_value(cpu)]++;
    }
    for (uint32_t n = 0; n < CORES; n++) {
        EXPECT(users[n] <= 1);
    }
}

static struct seen
see(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *scaling = json_object_get(shown, "scaling"), *workers = json_object_get(shown, "workers"), *worker;
    struct seen seen = {.changes = number(scaling, "changes")};
    size_t i;

    check_free(shown);
    EXPECT(json_array_size(json_object_get(scaling, "applications")) == APPS);
    for (uint32_t a = 0; a < APPS; a++) {
        const json_t *application = json_array_get(json_object_get(scaling, "applications"), a);
        EXPECT(strcmp(json_string_value(json_object_get(application, "name")), names[a]) == 0);
        seen.instances[a] = (uint32_t)number(application, "instances");
        seen.starting[a] = (uint32_t)number(application, "starting");
        seen.cores[a] = (uint32_t)number(application, "cores");
        EXPECT(json_array_size(json_object_get(application, "workers")) == seen.instances[a] + seen.starting[a]);
        json_array_foreach(json_object_get(application, "workers"), i, worker)
        {
            const uint32_t cores = (uint32_t)number(json_array_get(workers, (size_t)json_integer_value(worker)), "cores");
            seen.largest[a] = cores > seen.largest[a] ? cores : seen.largest[a];
        }
    }
    EXPECT(seen.cores[0] + seen.cores[1] < CORES);
    json_decref(shown);
    return seen;
}

static void
expect_history(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *scaling = json_object_get(shown, "scaling"), *history = json_object_get(scaling, "history");
    const json_t *latest = json_array_get(history, 0);

    EXPECT(json_array_size(history) == (number(scaling, "changes") < 64 ? number(scaling, "changes") : 64));
    EXPECT(strstr(json_string_value(json_object_get(latest, "why")), "items/s come") != NULL);
    EXPECT(json_is_boolean(json_object_get(latest, "early")) && number(latest, "took_ns") > 0);
    EXPECT(strcmp(json_string_value(json_object_get(scaling, "trouble")), "") == 0 && number(scaling, "decisions") > 0);
    json_decref(shown);
}

/* Who has no workers of its own is served by the others'. */
static void
expect_service(struct leat_session *control, const char *name)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;
    size_t count;

    EXPECT(leat_find(control, name, &target) == LEAT_OK);
    query.target = target.id;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(control, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    EXPECT(leat_submit(control, &query, NULL) == LEAT_OK);
    EXPECT(leat_wait(control, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1 && done.outcome == LEAT_OUTCOME_OK);
}

/* ---- Looks that fail ------------------------------------------------------------------------------------ */

static _Atomic bool refuses; /* W: the test, relaxed */
static _Atomic uint32_t late_percent; /* of its queries, it is said. W: the test, relaxed */
static _Atomic uint32_t runs[2]; /* that each variant is said to have had; 0: as it is. W: the test, relaxed */

enum leat_status __real_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app,
                                                  uint32_t variant, struct leat_profile_copy *copy);
enum leat_status __wrap_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app,
                                                  uint32_t variant, struct leat_profile_copy *copy);

/* As while the application is being replaced. */
enum leat_status
__wrap_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant,
                                 struct leat_profile_copy *copy)
{
    const uint32_t number = atomic_load_explicit(&runs[variant % 2], memory_order_relaxed);
    const enum leat_status status = atomic_load_explicit(&refuses, memory_order_relaxed)
                                        ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "application '%s' has gone", app->name)
                                        : __real_leat_daemon_copy_profiles(daemon, app, variant, copy);

    if (status != LEAT_OK) { /* of a daemon that ends the dispatcher may still have it */
        return status;
    }
    if (number > 0) {
        copy->profiles[0].number = number;
    }
    copy->late_queries = copy->queries * atomic_load_explicit(&late_percent, memory_order_relaxed) / 100;
    return LEAT_OK;
}

/* How many are scaled, each with workers; with `unseen`, none of them could be looked at. */
static uint32_t
count_scaled(struct leat_session *control, bool unseen, uint64_t *ret_decisions)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *scaling = json_object_get(shown, "scaling"), *application;
    uint32_t count = 0;
    size_t a;

    json_array_foreach(json_object_get(scaling, "applications"), a, application)
    {
        const bool scaled = json_is_true(json_object_get(application, "scaled"));
        const bool told = strstr(json_string_value(json_object_get(application, "trouble")), "is being changed") != NULL;
        EXPECT(!scaled || (number(application, "instances") > 0 && number(application, "cores") > 0));
        EXPECT(!scaled || !unseen || told);
        count += scaled;
    }
    *ret_decisions = number(scaling, "decisions");
    json_decref(shown);
    return count;
}

/* The first of these decisions may have begun before. */
static void
expect_kept_unseen(struct leat_session *control)
{
    uint64_t before, now;

    const uint32_t scaled = count_scaled(control, false, &before);
    EXPECT(scaled > 0);
    atomic_store_explicit(&refuses, true, memory_order_relaxed);
    do {
        EXPECT(count_scaled(control, false, &now) == scaled);
        leat_test_look_later();
    } while (now < before + 4);
    EXPECT(count_scaled(control, true, &now) == scaled);
    atomic_store_explicit(&refuses, false, memory_order_relaxed);
}

/* ---- A batch that does not end ---------------------------------------------------------------------------- */

static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t held_changed = PTHREAD_COND_INITIALIZER;
static bool is_held, is_inside; /* under held_mutex: the worker's next batch ends when it is let go; it runs */
static uint32_t held_worker;

int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left);

/* How batches of the synthetic backend take their time. */
int
__wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    char name[32] = "", own[32];

    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    EXPECT(pthread_mutex_lock(&held_mutex) == 0);
    (void)snprintf(own, sizeof(own), "leat-worker-%u", held_worker);
    is_inside = is_inside || (is_held && strcmp(name, own) == 0);
    while (is_held && strcmp(name, own) == 0) {
        EXPECT(pthread_cond_wait(&held_changed, &held_mutex) == 0);
    }
    EXPECT(pthread_mutex_unlock(&held_mutex) == 0);
    return __real_clock_nanosleep(clock, flags, until, left);
}

/* In the batch that it is in then, or the next one. */
static void
hold_worker(uint32_t worker)
{
    EXPECT(pthread_mutex_lock(&held_mutex) == 0);
    held_worker = worker;
    is_held = true;
    is_inside = false;
    EXPECT(pthread_mutex_unlock(&held_mutex) == 0);
}

static bool
is_in_batch(void)
{
    EXPECT(pthread_mutex_lock(&held_mutex) == 0);
    const bool inside = is_inside;
    EXPECT(pthread_mutex_unlock(&held_mutex) == 0);
    return inside;
}

static void
let_go(void)
{
    EXPECT(pthread_mutex_lock(&held_mutex) == 0);
    is_held = false;
    EXPECT(pthread_cond_broadcast(&held_changed) == 0);
    EXPECT(pthread_mutex_unlock(&held_mutex) == 0);
}

/* ---- The test ---------------------------------------------------------------------------------------------- */

/* Waits until one of them has at least so many cores, and the other the least that an application has. */
static void
await(struct leat_session *control, uint32_t busy, uint32_t cores, uint32_t least)
{
    for (;;) {
        const struct seen seen = see(control);
        if (seen.cores[busy] >= cores && seen.cores[1 - busy] == least) {
            return;
        }
        leat_test_look_later();
    }
}

static void
await_least(struct leat_session *control, uint32_t least)
{
    struct seen seen;
    do {
        leat_test_look_later();
        seen = see(control);
    } while (seen.cores[0] != least || seen.cores[1] != least || seen.starting[0] + seen.starting[1] > 0);
}

static void
test_mode(enum leat_scaling_mode mode, uint32_t workers, uint32_t cores_max, uint64_t instance_delay_ns)
{
    static struct load load;
    struct box box = {0};

    start(&box, mode, workers, cores_max, instance_delay_ns, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, names, 0);
    await_least(control, 1);
    set_rates(&load, HIGH_QPS, CALM_QPS);
    await(control, 0, 3, 1);
    expect_service(control, "of-first");
    expect_kept_unseen(control);
    set_rates(&load, CALM_QPS, HIGH_QPS);
    await(control, 1, 3, 1);
    set_rates(&load, CALM_QPS, CALM_QPS);
    await_least(control, 1);
    const struct seen seen = see(control);
    EXPECT(mode != LEAT_SCALING_HORIZONTAL || (seen.largest[0] == 1 && seen.largest[1] == 1));
    EXPECT(mode != LEAT_SCALING_VERTICAL || (seen.instances[0] == 1 && seen.instances[1] == 1));
    EXPECT(seen.changes >= 4);
    expect_history(control);
    json_t *refused = request(control, "{\"op\":\"scale-set\",\"worker\":0,\"cores\":1}");
    EXPECT(strstr(json_string_value(json_object_get(refused, "error")), "workers follow the load") != NULL);
    json_decref(refused);
    end_load(&load);
    leat_close(control);
    stop(&box);
}

/* ---- What should do and does not --------------------------------------------------------------------------- */

static double
counted_times(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *applications = json_object_get(json_object_get(shown, "scaling"), "applications");
    const double times = json_number_value(json_object_get(json_array_get(applications, 0), "counted_times"));

    EXPECT(json_number_value(json_object_get(json_array_get(applications, 1), "counted_times")) >= 1);
    json_decref(shown);
    return times;
}

/* What the plan says is enough is not, by the queries that are late: there are more cores, until these do. */
static void
test_shortfall(void)
{
    static struct load load;
    struct box box = {0};

    start(&box, LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, names, 0);
    await_least(control, 1);
    EXPECT(counted_times(control) == 1);
    set_rates(&load, HIGH_QPS / 2, CALM_QPS);
    await(control, 0, 2, 1);
    atomic_store_explicit(&late_percent, 30, memory_order_relaxed);
    await(control, 0, 5, 1);
    while (counted_times(control) < 2) {
        leat_test_look_later();
    }
    atomic_store_explicit(&late_percent, 0, memory_order_relaxed);
    for (double most = 0; counted_times(control) >= most;) {
        const double times = counted_times(control);
        most = times > most ? times : most;
        leat_test_look_later();
    }
    set_rates(&load, CALM_QPS, CALM_QPS);
    await_least(control, 1);
    end_load(&load);
    leat_close(control);
    stop(&box);
}

/* ---- CPUs that go ------------------------------------------------------------------------------------------ */

static uint32_t cpus_left = CORES; /* of the machine that is made up: the others are gone */

bool __wrap_leat_topology_present(bool *present);
bool
__wrap_leat_topology_present(bool *present)
{
    for (uint32_t cpu = 0; cpu < LEAT_CPU_MAX; cpu++) {
        present[cpu] = cpu < cpus_left;
    }
    return true;
}

/* How often workers were resized; UINT64_MAX while one is to be. */
static uint64_t
count_resizes(const json_t *shown)
{
    const json_t *worker;
    uint64_t resizes = 0;
    size_t i;

    json_array_foreach(json_object_get(shown, "workers"), i, worker)
    {
        if (json_is_object(json_object_get(worker, "pending"))) {
            return UINT64_MAX;
        }
        resizes += number(worker, "resizes");
    }
    return resizes;
}

/* What is shown of a moment in which no core changes hands: workers are asked one after the other, then what is free. */
static json_t *
show_at_rest(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");

    for (;;) {
        json_t *next = request(control, "{\"op\":\"scale-show\"}");
        const uint64_t resizes = count_resizes(shown);
        if (resizes != UINT64_MAX && count_resizes(next) == resizes) {
            json_decref(next);
            return shown;
        }
        json_decref(shown);
        shown = next;
    }
}

/* Cores of all workers; with `fits`, they and what is free are all that is left, and all is as it was decided. */
static uint32_t
count_present(const struct box *box, struct leat_session *control, bool *ret_fits, uint64_t *ret_decisions)
{
    leat_daemon_look_at_cpus(box->daemon);
    json_t *shown = show_at_rest(control);
    const json_t *scaling = json_object_get(shown, "scaling"), *worker;
    uint32_t cores = 0, gone = 0;
    size_t i;

    json_array_foreach(json_object_get(shown, "workers"), i, worker)
    {
        cores += (uint32_t)number(worker, "cores");
        gone += (uint32_t)json_array_size(json_object_get(worker, "gone_cpus"));
    }
    EXPECT(json_array_size(json_object_get(shown, "gone_cpus")) == CORES - cpus_left);
    *ret_fits = gone == 0 && cores + json_array_size(json_object_get(shown, "free_cpus")) == cpus_left - 1 &&
                json_string_value(json_object_get(scaling, "trouble"))[0] == '\0';
    *ret_decisions = number(scaling, "decisions");
    json_decref(shown);
    return cores;
}

static void
test_gone(void)
{
    static struct load load;
    struct box box = {0};
    uint64_t decisions, until;
    bool fits;

    start(&box, LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, names, 0);
    set_rates(&load, 4 * HIGH_QPS, CALM_QPS);
    await(control, 0, 6, 1);
    cpus_left = 4; /* one of them is the dispatcher's */
    (void)count_present(&box, control, &fits, &until);
    do {
        (void)count_present(&box, control, &fits, &decisions);
        EXPECT(decisions < until + 200);
    } while (!fits);
    until = decisions + 8;
    while (decisions < until) {
        const uint32_t cores = count_present(&box, control, &fits, &decisions);
        EXPECT(fits && cores <= cpus_left - 1);
    }
    cpus_left = CORES;
    (void)count_present(&box, control, &fits, &decisions);
    await(control, 0, 6, 1);
    end_load(&load);
    leat_close(control);
    stop(&box);
}

/* Workers of a class have no more cores than there are of it, though both classes are of one node. */
static uint64_t
check_classes(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const uint64_t decisions = number(json_object_get(shown, "scaling"), "decisions");
    const json_t *worker;
    uint32_t cores[2] = {0}; /* of big workers, of little ones */
    size_t i;

    json_array_foreach(json_object_get(shown, "workers"), i, worker)
    {
        const bool little =
            strcmp(json_string_value(json_object_get(worker, "class_name")), "little") == 0;
        cores[little] += (uint32_t)number(worker, "cores");
    }
    const json_t *application, *stage;
    size_t s;
    json_array_foreach(json_object_get(json_object_get(shown, "scaling"), "applications"), i, application)
    {
        json_array_foreach(json_object_get(application, "stages"), s, stage)
        {
            EXPECT(number(stage, "wanted_batch") <= 1); /* where each query gets a worker of its own, so it is planned */
        }
    }
    EXPECT(cores[0] <= BIG && cores[1] <= CORES - 1 - BIG);
    json_decref(shown);
    return decisions;
}

/* Both are on big cores: who is busy can have two of the three that the other leaves, as workers have one, two or four. */
static void
test_two_classes(void)
{
    static struct load load;
    struct box box = {.two_classes = true};

    start(&box, LEAT_SCALING_LEAT, 4, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, names, 0);
    await_least(control, 1);
    for (uint32_t busy = 0; busy < APPS; busy++) {
        set_rates(&load, busy == 0 ? 4 * HIGH_QPS : CALM_QPS, busy == 1 ? 4 * HIGH_QPS : CALM_QPS);
        await(control, busy, 2, 1);
        const uint64_t before = check_classes(control);
        while (check_classes(control) < before + 4) {
            leat_test_look_later();
        }
    }
    end_load(&load);
    leat_close(control);
    stop(&box);
}

static void
await_stages(struct leat_session *control, uint32_t least, uint32_t most)
{
    bool there = false;

    while (!there) {
        json_t *shown = request(control, "{\"op\":\"scale-show\"}");
        const json_t *application = json_array_get(json_object_get(json_object_get(shown, "scaling"), "applications"), 0);
        const json_t *stages = json_object_get(application, "stages"), *stage;
        size_t s;

        check_free(shown);
        there = json_array_size(stages) == APPS;
        json_array_foreach(stages, s, stage)
        {
            EXPECT(strcmp(json_string_value(json_object_get(stage, "application")), names[s]) == 0);
            there = there && number(stage, "cores") >= least && number(stage, "cores") <= most &&
                    number(stage, "instances") > 0;
        }
        json_decref(shown);
        leat_test_look_later();
    }
}

/* Its stage is an application of its own again. */
static void
await_end_of_pipeline(struct leat_session *control)
{
    bool gone = false;

    while (!gone) {
        json_t *shown = request(control, "{\"op\":\"scale-show\"}");
        const json_t *applications = json_object_get(json_object_get(shown, "scaling"), "applications");
        const json_t *both = json_array_get(applications, 0), *second = json_array_get(applications, 1);

        check_free(shown);
        gone = json_is_false(json_object_get(both, "scaled")) && number(both, "instances") + number(both, "cores") == 0 &&
               json_is_true(json_object_get(second, "scaled")) && number(second, "instances") == 1;
        json_decref(shown);
        leat_test_look_later();
    }
}

/* It comes while the daemon runs, and goes. */
static void
test_pipeline(void)
{
    static const char *const scaled[] = {"both", "second"}, *const asked[APPS] = {"both", "both"};
    static struct load load;
    struct box box = {0};

    start(&box, LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO, scaled, 2);
    struct leat_session *control = open_session(&box);
    json_decref(request(control, "{\"op\":\"pipeline-add\",\"pipeline\":{\"name\":\"both\",\"latency_ms\":200,\"stages\":["
                                 "{\"application\":\"first\",\"inputs\":{\"x\":\"input.x\"}},"
                                 "{\"application\":\"second\",\"inputs\":{\"x\":\"first.y\"}}],"
                                 "\"outputs\":{\"y\":\"second.y\"}}}"));
    begin_load(&load, &box, asked, 0);
    set_rates(&load, CALM_QPS / 2, CALM_QPS / 2);
    await_stages(control, 1, 1);
    set_rates(&load, HIGH_QPS / 2, HIGH_QPS / 2);
    await_stages(control, 3, CORES);
    expect_kept_unseen(control);
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *second = json_array_get(json_object_get(json_object_get(shown, "scaling"), "applications"), 1);
    EXPECT(json_is_false(json_object_get(second, "scaled")));
    EXPECT(strstr(json_string_value(json_object_get(second, "trouble")), "as a part of another") != NULL);
    json_decref(shown);
    set_rates(&load, CALM_QPS / 2, CALM_QPS / 2);
    await_stages(control, 1, 1);
    end_load(&load);
    json_decref(request(control, "{\"op\":\"pipeline-remove\",\"name\":\"both\"}"));
    await_end_of_pipeline(control);
    leat_close(control);
    stop(&box);
}

/* ---- Who comes late ------------------------------------------------------------------------------------------ */

static void
await_instances(struct leat_session *control, uint32_t first, uint32_t second)
{
    struct seen seen;
    do {
        leat_test_look_later();
        seen = see(control);
    } while (seen.instances[0] != first || seen.instances[1] != second);
}

static void
change(struct leat_session *control, const char *text)
{
    json_t *changed = request(control, text);
    EXPECT(json_object_get(changed, "error") == NULL);
    json_decref(changed);
}

static void
add_second(struct leat_session *control)
{
    change(control, "{\"op\":\"app-add\",\"name\":\"second\",\"models\":[\"of-second\"],\"latency_ns\":100000000}");
}

/* Of two workers the first has both, of nine cores, and goes on to ask for more than they carry. */
static void
test_late(enum leat_scaling_mode mode)
{
    static const char *const asked[APPS] = {"first", "first"};
    static struct load load;
    struct box box = {.second_is_late = true};
    uint64_t before, now;

    start(&box, mode, 2, 1, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, asked, 0);
    set_rates(&load, HIGH_QPS, HIGH_QPS);
    await_instances(control, 2, 0);
    add_second(control);
    await_instances(control, 1, 1);
    EXPECT(count_scaled(control, false, &before) == APPS);
    do { /* and so it stays */
        const struct seen seen = see(control);
        EXPECT(seen.instances[0] == 1 && seen.instances[1] == 1 && seen.starting[0] + seen.starting[1] == 0);
        EXPECT(count_scaled(control, false, &now) == APPS);
    } while (now < before + 10);
    end_load(&load);
    leat_close(control);
    stop(&box);
}

static void
test_too_few_workers(void)
{
    struct box box = {.second_is_late = true};
    json_t *shown;
    uint64_t before, now;

    start(&box, LEAT_SCALING_LEAT, 1, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    await_instances(control, 1, 0);
    add_second(control);
    EXPECT(count_scaled(control, false, &before) == 1);
    do {
        EXPECT(count_scaled(control, false, &now) == 1);
    } while (now < before + 3);
    await_instances(control, 1, 0);
    shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *second = json_array_get(json_object_get(json_object_get(shown, "scaling"), "applications"), 1);
    EXPECT(strstr(json_string_value(json_object_get(second, "trouble")), "1 workers are too few") != NULL);
    json_decref(shown);
    expect_service(control, "second");
    change(control, "{\"op\":\"app-remove\",\"name\":\"first\"}");
    await_instances(control, 0, 1);
    expect_service(control, "second");
    leat_close(control);
    stop(&box);
}

/* ---- Before its time ------------------------------------------------------------------------------------- */

static uint64_t
decisions_of(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const uint64_t decisions = number(json_object_get(shown, "scaling"), "decisions");
    json_decref(shown);
    return decisions;
}

/* There are more looks than their times. A jump that one of these sees first comes again, once the one before is forgotten. */
static void
test_jump(void)
{
    const uint64_t began_ns = leat_monotonic_ns();
    static struct load load;
    struct box box = {0};
    uint64_t decisions = 0, due;

    interval_ns = 2000000000;
    start(&box, LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    begin_load(&load, &box, names, 0);
    do {
        set_rates(&load, decisions / 8 % 2 == 0 ? HIGH_QPS : CALM_QPS, CALM_QPS);
        leat_test_look_later();
        decisions = decisions_of(control);
        due = 1 + (leat_monotonic_ns() - began_ns) / interval_ns;
    } while (decisions <= due);
    end_load(&load);
    leat_close(control);
    stop(&box);
    interval_ns = 20000000;
}

/* ---- While one does not let go --------------------------------------------------------------------------- */

static bool
is_large(const struct box *box, uint32_t worker, uint16_t application)
{
    struct leat_daemon_held held;

    leat_daemon_held(box->daemon, worker, &held);
    return held.application == application && held.cpu_count > 1 && !held.pending;
}

/*
 * One of several cores that serves the first application is in a batch, and stays there. Decisions may come before that; where load
 * has been high for long there may be none, so it comes and goes.
 */
static uint32_t
hold_large(const struct box *box, struct leat_session *control, struct load *load, uint16_t application)
{
    for (;;) {
        set_rates(load, decisions_of(control) / 16 % 2 == 0 ? HIGH_QPS : CALM_QPS, CALM_QPS);
        for (uint32_t w = 0; w < box->placement->worker_count; w++) {
            if (is_large(box, w, application)) {
                hold_worker(w);
                while (!is_in_batch() && is_large(box, w, application)) {
                    (void)sched_yield();
                }
                if (is_in_batch() && is_large(box, w, application)) {
                    return w;
                }
                let_go();
            }
        }
        leat_test_look_later();
    }
}

/* Cores that serve it alone, and are not about to be given or got. */
static uint32_t
cores_in_force(const struct box *box, uint16_t application)
{
    uint32_t cores = 0;

    for (uint32_t w = 0; w < box->placement->worker_count; w++) {
        struct leat_daemon_held held;
        leat_daemon_held(box->daemon, w, &held);
        cores += held.application == application && !held.pending ? held.cpu_count : 0;
    }
    return cores;
}

static uint16_t
id_of(const struct box *box, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&box->daemon->mutex) == 0);
    const uint16_t id = leat_daemon_find_application(box->daemon, name)->id;
    LEAT_MUST(pthread_mutex_unlock(&box->daemon->mutex) == 0);
    return id;
}

/* It has what it had, and is to have less. */
static bool
is_due(const struct box *box, uint32_t worker)
{
    struct leat_daemon_held held;

    leat_daemon_held(box->daemon, worker, &held);
    return held.pending && held.in_batch && held.target.cores < held.cpu_count;
}

static void
test_held_up(void)
{
    static struct load load;
    struct leat_daemon_held held;
    struct box box = {0};

    start(&box, LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    const uint16_t second = id_of(&box, names[1]);
    begin_load(&load, &box, names, 0);
    const uint32_t worker = hold_large(&box, control, &load, id_of(&box, names[0]));
    leat_daemon_held(box.daemon, worker, &held);
    const uint32_t cores = held.cpu_count;
    set_rates(&load, CALM_QPS, CALM_QPS);
    while (!is_due(&box, worker)) {
        leat_test_look_later();
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        set_rates(&load, CALM_QPS, HIGH_QPS);
        while (see(control).cores[1] < 3 || cores_in_force(&box, second) < 3) {
            leat_test_look_later();
        }
        set_rates(&load, CALM_QPS, CALM_QPS);
        while (see(control).cores[1] != 1 || cores_in_force(&box, second) != 1) {
            leat_test_look_later();
        }
        leat_daemon_held(box.daemon, worker, &held);
        EXPECT(held.cpu_count >= cores);
    }
    let_go();
    await_least(control, 1);
    end_load(&load);
    leat_close(control);
    stop(&box);
}

/* ---- Variants -------------------------------------------------------------------------------------------- */

/* After looks that began since. */
static uint32_t
variant_after(struct leat_session *control, const struct box *box, uint32_t first_runs, uint32_t second_runs)
{
    atomic_store_explicit(&runs[0], first_runs, memory_order_relaxed);
    atomic_store_explicit(&runs[1], second_runs, memory_order_relaxed);
    for (const uint64_t before = decisions_of(control); decisions_of(control) < before + 3;) {
        leat_test_look_later();
    }
    LEAT_MUST(pthread_mutex_lock(&box->daemon->mutex) == 0);
    const uint32_t variant = box->daemon->scaling->applications[1].stages[0].variant;
    LEAT_MUST(pthread_mutex_unlock(&box->daemon->mutex) == 0);
    return variant;
}

/* What one had learned is dropped, so it seems to have run less, while the other runs. */
static void
test_variants(void)
{
    struct box box = {.second_is_late = true};

    start(&box, LEAT_SCALING_LEAT, 2, 1, LEAT_SCALING_DELAY_AUTO, names, APPS);
    struct leat_session *control = open_session(&box);
    change(control, "{\"op\":\"app-add\",\"name\":\"second\",\"models\":[\"of-first\",\"of-second\"],"
                    "\"latency_ns\":100000000}");
    await_instances(control, 1, 1);
    EXPECT(variant_after(control, &box, 1000, 2000) == 1);
    EXPECT(variant_after(control, &box, 2000, 2000) == 0);
    EXPECT(variant_after(control, &box, 2001, 500) == 0);
    EXPECT(variant_after(control, &box, 2001, 501) == 1);
    atomic_store_explicit(&runs[0], 0, memory_order_relaxed);
    atomic_store_explicit(&runs[1], 0, memory_order_relaxed);
    leat_close(control);
    stop(&box);
}

/* ---- An offline job ---------------------------------------------------------------------------------------- */

enum { ITEMS = 40, MANY_ITEMS = 20000, OFFLINE_WORKERS = 8 };

static void
put_items(const char *folder, uint32_t count)
{
    static const char item[64] = "an item";
    char path[256];

    EXPECT(mkdir(folder, 0700) == 0);
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%04u.raw", folder, i);
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        EXPECT(fd >= 0 && write(fd, item, sizeof(item)) == (ssize_t)sizeof(item) && close(fd) == 0);
    }
}

static uint64_t
submit_job(const struct box *box, const char *application, uint32_t items)
{
    struct leat_registry_job order = {.owner_uid = getuid()};
    json_t *job = NULL;

    (void)snprintf(order.application, sizeof(order.application), "%s", application);
    (void)snprintf(order.input, sizeof(order.input), "%.128s/items", box->root.path);
    (void)snprintf(order.output, sizeof(order.output), "%.128s/answers", box->root.path);
    put_items(order.input, items);
    EXPECT(mkdir(order.output, 0700) == 0);
    const int input_fd = open(order.input, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int output_fd = open(order.output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(leat_offline_submit(box->daemon->offline, &order, input_fd, output_fd, &job) == LEAT_OK);
    const uint64_t id = number(job, "id");
    json_decref(job);
    EXPECT(close(input_fd) == 0 && close(output_fd) == 0);
    return id;
}

static bool
job_is(const struct box *box, uint64_t id, const char *state)
{
    json_t *job = NULL;

    EXPECT(leat_offline_show(box->daemon->offline, id, &job) == LEAT_OK);
    const bool is = strcmp(json_string_value(json_object_get(job, "state")), state) == 0;
    EXPECT(strcmp(state, "done") != 0 || !is || number(job, "answered") == ITEMS);
    json_decref(job);
    return is;
}

/* How many workers are awake and for all; one more is the application's. */
static bool
awake_are(const struct box *box, uint32_t count, uint32_t *ret_owned)
{
    uint32_t common = 0, own = 0;

    for (uint32_t w = 0; w < OFFLINE_WORKERS; w++) {
        struct leat_daemon_held held;
        leat_daemon_held(box->daemon, w, &held);
        if (held.shape.cores > 0 && held.application == LEAT_ARRANGED_FOR_ALL) {
            common++;
        } else if (held.shape.cores > 0) {
            own++;
            *ret_owned = w;
        }
    }
    return common == count && own == 1;
}

static uint64_t
batches_of(const struct box *box, uint32_t worker)
{
    return atomic_load_explicit(&box->daemon->workers[worker]->statistics.batches, memory_order_relaxed);
}

/* As if the listed one had kept workers busy: the job is held for a second after the last time. */
static void
hold_job(const struct box *box)
{
    LEAT_MUST(pthread_mutex_lock(&box->daemon->mutex) == 0);
    struct leat_application *app = leat_daemon_find_application(box->daemon, names[0]);
    (void)atomic_fetch_add_explicit(&app->counters.busy_ns, LEAT_OFFLINE_SAMPLE_NS, memory_order_relaxed);
    LEAT_MUST(pthread_mutex_unlock(&box->daemon->mutex) == 0);
}

/* The listed one's, at a look at which none is free twice. */
static uint64_t
count_cores(struct leat_session *control)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *application = json_array_get(json_object_get(json_object_get(shown, "scaling"), "applications"), 0);

    check_free(shown);
    const uint64_t cores = number(application, "cores");
    json_decref(shown);
    return cores;
}

static void
test_offline_job(const char *application)
{
    const bool scaled = strcmp(application, names[0]) == 0;
    uint32_t owned = 0, before;
    uint64_t first, now;
    struct box box = {.offline_utilisation_ppm = 10};

    start(&box, LEAT_SCALING_LEAT, OFFLINE_WORKERS, 4, LEAT_SCALING_DELAY_AUTO, names, 1);
    struct leat_session *control = open_session(&box);
    while (!awake_are(&box, 0, &owned)) {
        leat_test_look_later();
    }
    const uint64_t job = submit_job(&box, application, ITEMS);
    do {
        hold_job(&box);
        leat_test_look_later();
    } while (!job_is(&box, job, "held"));
    EXPECT(count_scaled(control, false, &first) == 1);
    do { /* one that began after that */
        hold_job(&box);
        EXPECT(count_scaled(control, false, &now) == 1);
    } while (now < first + 3);
    before = owned;
    EXPECT(awake_are(&box, OFFLINE_WORKERS - 1, &owned) && owned == before);
    const uint64_t batches = batches_of(&box, owned);
    uint64_t others = 0;
    while (!job_is(&box, job, "done")) {
        leat_test_look_later();
    }
    while (!awake_are(&box, 0, &owned)) {
        leat_test_look_later();
    }
    for (uint32_t w = 0; w < OFFLINE_WORKERS; w++) {
        others += w != before ? batches_of(&box, w) : 0;
    }
    EXPECT(owned == before && (scaled || batches_of(&box, owned) == batches) && others > 0);
    leat_close(control);
    stop(&box);
}

/* Utilisation holds nothing here: the job, of a minute if nothing stopped it, runs while cores are taken. */
static void
test_offline_beside_load(void)
{
    static const char *const asked[APPS] = {"first", "first"};
    static struct load load;
    uint32_t owned;
    struct box box = {.offline_utilisation_ppm = 1000000};
    json_t *shown = NULL;

    start(&box, LEAT_SCALING_LEAT, OFFLINE_WORKERS, 4, LEAT_SCALING_DELAY_AUTO, names, 1);
    struct leat_session *control = open_session(&box);
    const uint64_t job = submit_job(&box, names[0], MANY_ITEMS);
    while (!awake_are(&box, OFFLINE_WORKERS - 1, &owned)) {
        EXPECT(!job_is(&box, job, "done"));
    }
    begin_load(&load, &box, asked, UINT64_C(3600000000000));
    set_rates(&load, CALM_QPS / 2, CALM_QPS / 2);
    while (!job_is(&box, job, "running")) {
        EXPECT(!job_is(&box, job, "done"));
    }
    set_rates(&load, HIGH_QPS / 2, HIGH_QPS / 2);
    while (count_cores(control) < 3) {
        EXPECT(!job_is(&box, job, "done"));
    }
    end_load(&load);
    EXPECT(leat_offline_cancel(box.daemon->offline, job, &shown) == LEAT_OK);
    json_decref(shown);
    while (!awake_are(&box, 0, &owned)) {
        leat_test_look_later();
    }
    leat_close(control);
    stop(&box);
}

int
main(void)
{
    leat_test_init();
    test_mode(LEAT_SCALING_LEAT, 8, 4, LEAT_SCALING_DELAY_AUTO);
    test_mode(LEAT_SCALING_HORIZONTAL, 8, 1, 50000000);
    test_mode(LEAT_SCALING_VERTICAL, 2, 4, LEAT_SCALING_DELAY_AUTO);
    test_shortfall();
    test_gone();
    test_two_classes();
    test_pipeline();
    test_late(LEAT_SCALING_LEAT);
    test_late(LEAT_SCALING_HORIZONTAL);
    test_late(LEAT_SCALING_VERTICAL);
    test_too_few_workers();
    test_jump();
    test_held_up();
    test_variants();
    test_offline_job(names[1]);
    test_offline_job(names[0]);
    test_offline_beside_load();
    return 0;
}
