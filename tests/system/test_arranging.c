/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What is arranged for a worker is in force as soon as its own batch and the cores that it waits for allow,
 *          whatever another does: while one is in a batch that does not end, others give, get, park, wake and serve
 *          others, a later arrangement takes the place of what is pending, and a request for one worker is answered
 *          before an earlier one for another. No core is ever under two batches, or taken from under one, and after
 *          thousands of random arrangements, of which what the model refuses is refused, each worker has exactly what
 *          was arranged for it last. Who was to have cores that do not come, as others have them too, keeps what it has
 *          and says why. Where CPUs go, whoever had them has others or fewer, and what it had again once they are there
 *          again; who can have no others runs on. The daemon stops at any moment of this, and each core is somebody's or
 *          free then.
 * Method   The daemon's own parts in this process, on a machine that is made up, and once on this one, with threads pinned.
 *          Batches of the synthetic backend sleep: here until they are let go, or for a random time. Each claims its team's
 *          cores for as long as it runs, and pinned members must be where the table has them.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "runtime/cores.h"
#include "runtime/daemon_private.h"
#include "runtime/relief.h"
#include "runtime/worker.h"
#include "tests/runtime/fake_root.h"

enum { APPS = 2, WORKERS_MAX = 6, CPUS_MAX = 1024, QUERIES = 32, ENDS = 8 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ARRANGEMENTS = 2000 };
#else
enum { ARRANGEMENTS = 10000 };
#endif

static const char *const names[APPS] = {"first", "second"};

/* ---- Batches ------------------------------------------------------------------------------------------- */

static struct leat_daemon *the_daemon;
static bool absent[LEAT_CPU_MAX]; /* CPUs of the machine that is made up; whoever looks at them is told here */
static _Atomic bool moving;       /* workers may move while they are in a batch; relaxed: nobody is in one as it changes */
static bool pinned, at_random; /* how long batches take: else until their worker is let go, or no time */
static pid_t threads[WORKERS_MAX][LEAT_TEAM_MAX];
static _Atomic uint32_t
    claims[CPUS_MAX]; /* the worker that runs there, + 1; 0: none. Relaxed: what is tested orders them */
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool is_held[WORKERS_MAX], is_inside[WORKERS_MAX]; /* under gate_mutex */
static _Thread_local uint32_t team_size = 1;

void __real_leat_team_resize(struct leat_team *team, uint32_t size, uint32_t worker_class);
void __wrap_leat_team_resize(struct leat_team *team, uint32_t size, uint32_t worker_class);
int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left);

void
__wrap_leat_team_resize(struct leat_team *team, uint32_t size, uint32_t worker_class)
{
    team_size = size;
    __real_leat_team_resize(team, size, worker_class);
}

/* Where the kernel has the member run, and nowhere else. */
static void
expect_pinned(uint32_t worker, uint32_t member, uint32_t cpu)
{
    cpu_set_t set;

    EXPECT(sched_getaffinity(threads[worker][member], sizeof(set), &set) == 0);
    EXPECT(CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set));
}

static void
run_for_a_time(uint32_t worker)
{
    static _Thread_local uint64_t random;
    static const uint64_t longest_ns[] = {100000, 100000, 100000, 1000000, 10000000};

    random = random == 0 ? leat_test_seed + worker : random;
    const uint64_t most_ns = longest_ns[leat_test_random(&random) % LEAT_COUNT_OF(longest_ns)];
    const struct timespec time = {0, (long)(leat_test_random(&random) % most_ns)};
    while (__real_clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) != 0) {
    }
}

static void
run_until_let_go(uint32_t worker)
{
    EXPECT(pthread_mutex_lock(&gate_mutex) == 0);
    is_inside[worker] = true;
    EXPECT(pthread_cond_broadcast(&gate_changed) == 0);
    while (is_held[worker]) {
        EXPECT(pthread_cond_wait(&gate_changed, &gate_mutex) == 0);
    }
    is_inside[worker] = false;
    EXPECT(pthread_mutex_unlock(&gate_mutex) == 0);
}

/* A worker's thread sleeps so in its batches only; models are measured on other threads. */
int
__wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    struct leat_daemon_held before, after;
    char name[32] = "";
    uint32_t worker;

    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    if (sscanf(name, "leat-worker-%u", &worker) != 1) {
        return __real_clock_nanosleep(clock, flags, until, left);
    }
    const bool moves = atomic_load_explicit(&moving, memory_order_relaxed);
    leat_daemon_held(the_daemon, worker, &before);
    EXPECT(team_size >= 1 && team_size <= before.cpu_count);
    for (uint32_t m = 0; m < team_size && !moves; m++) {
        EXPECT(atomic_exchange_explicit(&claims[before.cpus[m]], worker + 1, memory_order_relaxed) == 0);
        if (pinned) {
            expect_pinned(worker, m, before.cpus[m]);
        }
    }
    if (at_random) {
        run_for_a_time(worker);
    } else {
        run_until_let_go(worker);
    }
    leat_daemon_held(the_daemon, worker, &after);
    EXPECT(team_size <= after.cpu_count);
    for (uint32_t m = 0; m < team_size && !moves; m++) {
        EXPECT(after.cpus[m] == before.cpus[m]);
        EXPECT(atomic_exchange_explicit(&claims[before.cpus[m]], 0, memory_order_relaxed) == worker + 1);
    }
    return 0;
}

/* Nobody is disturbed here, however late a batch ends: who is, is moved in the middle of one. */
bool __wrap_leat_relief_look(struct leat_relief_worker *workers, uint32_t count, const uint32_t *free_cores,
                             struct leat_relief_move *ret_move);
bool
__wrap_leat_relief_look(struct leat_relief_worker *workers, uint32_t count, const uint32_t *free_cores,
                        struct leat_relief_move *ret_move)
{
    (void)workers;
    (void)count;
    (void)free_cores;
    (void)ret_move;
    return false;
}

/* Who is warmed up, by number of the worker: the class that it is thought to have. */
static _Atomic uint32_t warmed, warmed_as[WORKERS_MAX];
enum leat_status __real_leat_variant_warm_worker(const struct leat_variant *variant, struct leat_worker *worker,
                                                 uint32_t worker_class, uint32_t items, uint64_t until_ns,
                                                 uint32_t *ret_runs);
enum leat_status __wrap_leat_variant_warm_worker(const struct leat_variant *variant, struct leat_worker *worker,
                                                 uint32_t worker_class, uint32_t items, uint64_t until_ns,
                                                 uint32_t *ret_runs);
enum leat_status
__wrap_leat_variant_warm_worker(const struct leat_variant *variant, struct leat_worker *worker, uint32_t worker_class,
                                uint32_t items, uint64_t until_ns, uint32_t *ret_runs)
{
    (void)atomic_fetch_or_explicit(&warmed, UINT32_C(1) << worker->options.index, memory_order_relaxed);
    atomic_store_explicit(&warmed_as[worker->options.index], worker_class, memory_order_relaxed);
    return __real_leat_variant_warm_worker(variant, worker, worker_class, items, until_ns, ret_runs);
}

bool __real_leat_topology_present(bool *present);
bool __wrap_leat_topology_present(bool *present);
bool
__wrap_leat_topology_present(bool *present)
{
    for (uint32_t cpu = 0; cpu < LEAT_CPU_MAX && !pinned; cpu++) {
        present[cpu] = !absent[cpu];
    }
    return !pinned || __real_leat_topology_present(present);
}

static void
hold(uint32_t worker, bool held)
{
    EXPECT(pthread_mutex_lock(&gate_mutex) == 0);
    is_held[worker] = held;
    EXPECT(pthread_cond_broadcast(&gate_changed) == 0);
    EXPECT(pthread_mutex_unlock(&gate_mutex) == 0);
}

static void
await_inside(uint32_t worker)
{
    EXPECT(pthread_mutex_lock(&gate_mutex) == 0);
    while (!is_inside[worker]) {
        EXPECT(pthread_cond_wait(&gate_changed, &gate_mutex) == 0);
    }
    EXPECT(pthread_mutex_unlock(&gate_mutex) == 0);
}

/* ---- The daemon ---------------------------------------------------------------------------------------- */

struct box {
    struct fake_root root;
    char socket_path[160];
    struct leat_topology *topology;
    struct leat_placement *placement;
    struct leat_cores *cores;
    uint32_t core_count, cores_max; /* that workers can have: all together, and one */
    bool shares;                    /* workers have cores that others have too */
    uint16_t ids[APPS];
    struct leat_daemon *daemon;
    pthread_t thread;
    sem_t serving, seen; /* the test looks at it no more */
};

static void
load_model(struct leat_daemon *daemon, const char *name, const char *options_json)
{
    static const struct leat_tensor_info infos[2] = {
        {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
        {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
    };
    const struct leat_variant_source source = {.name = name,
                                               .backend = "synthetic",
                                               .options_json = options_json,
                                               .items_max = 4,
                                               .infos = infos,
                                               .input_count = 1,
                                               .output_count = 1};
    EXPECT(leat_daemon_load_model(daemon, &source, NULL, false) == LEAT_OK);
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
        workers[w] = (struct leat_daemon_worker){.core_count = place->cpu_count,
                                                 .cores_max = place->cores_max,
                                                 .node = place->node,
                                                 .worker_class = place->worker_class};
        memcpy(workers[w].cpus, place->cpus, place->cpu_count * sizeof(place->cpus[0]));
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
        .pin = pinned,
        .dispatcher_cpu = pinned ? (int)box->placement->dispatcher_cpu : -1,
        .worker_depth = 2,
        .queue_capacity = 1024,
        .pipeline_memory_bytes = 1 << 20,
        .topology = topology,
    };

    EXPECT(leat_daemon_create(&options, &box->daemon) == LEAT_OK);
    the_daemon = box->daemon;
    for (uint32_t a = 0; a < APPS; a++) {
        load_model(box->daemon, names[a], "{\"latency_ns\": 100000, \"parallel_per_item_ns\": 100000}");
    }
    for (uint32_t w = 0; w < options.worker_count; w++) {
        (void)leat_worker_threads(box->daemon->workers[w], threads[w]);
    }
    EXPECT(sem_post(&box->serving) == 0);
    EXPECT(leat_daemon_run(box->daemon, UINT64_C(3600000000000)) == LEAT_OK);
    while (sem_wait(&box->seen) != 0) {
    }
    leat_daemon_destroy(box->daemon);
    json_decref(topology);
    return NULL;
}

/* `shares`: on four cores, three for workers, which have two each then. */
static void
start(struct box *box, uint32_t workers, uint32_t cores_max, bool shares)
{
    const struct leat_topology_source made_up = {.root = "/nonexistent",
                                                 .synthetic = shares ? "numa:1 core:4 pu:1" : "numa:1 core:10 pu:1",
                                                 .affinity = shares ? "0-3" : "0-9"};
    const struct leat_worker_group group = {.count = workers, .cores = shares ? 2 : 1, .cores_max = cores_max};
    const struct leat_placement_request request = {.dispatcher_cpu = LEAT_AUTO, .groups = &group, .group_count = 1};

    *box = (struct box){.cores_max = cores_max, .shares = shares};
    fake_root_init(&box->root);
    (void)snprintf(box->socket_path, sizeof(box->socket_path), "%s/leat.sock", box->root.path);
    EXPECT(leat_topology_discover(pinned ? &(struct leat_topology_source){0} : &made_up, &box->topology) == LEAT_OK);
    EXPECT(leat_placement_make(box->topology, &request, &box->placement) == LEAT_OK &&
           box->placement->worker_count == workers);
    EXPECT(leat_cores_create(box->topology, box->placement, &box->cores) == LEAT_OK);
    box->core_count = workers + leat_cores_free(box->cores, leat_cores_node(box->cores, 0));
    EXPECT(sem_init(&box->serving, 0, 0) == 0 && sem_init(&box->seen, 0, 0) == 0);
    EXPECT(pthread_create(&box->thread, NULL, serve, box) == 0);
    while (sem_wait(&box->serving) != 0) {
    }
    LEAT_MUST(pthread_mutex_lock(&box->daemon->mutex) == 0);
    for (uint32_t a = 0; a < APPS; a++) {
        box->ids[a] = leat_daemon_find_application(box->daemon, names[a])->id;
    }
    LEAT_MUST(pthread_mutex_unlock(&box->daemon->mutex) == 0);
}

/* The daemon was told to stop. */
static void
end(struct box *box)
{
    EXPECT(sem_post(&box->seen) == 0 && pthread_join(box->thread, NULL) == 0);
    EXPECT(sem_destroy(&box->serving) == 0 && sem_destroy(&box->seen) == 0);
    uint32_t cores = leat_cores_free(box->cores, leat_cores_node(box->cores, 0));
    for (uint32_t w = 0; w < box->placement->worker_count; w++) {
        const uint32_t *cpus;
        cores += leat_cores_of(box->cores, w, &cpus);
    }
    EXPECT(box->shares || cores == box->core_count);
    for (uint32_t c = 0; c < CPUS_MAX; c++) {
        EXPECT(atomic_load_explicit(&claims[c], memory_order_relaxed) == 0);
    }
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

/* ---- Queries --------------------------------------------------------------------------------------------- */

struct load {
    struct leat_session *session;
    struct leat_query queries[QUERIES];
    uint64_t asked, answered;
    _Atomic bool stop;
    pthread_t thread;
};

/* The first application's where `to` is 0, the second's where it is 1, else of both. */
static void
open_load(struct load *load, const struct box *box, uint32_t to)
{
    struct leat_target targets[APPS];

    *load = (struct load){.session = open_session(box)};
    for (uint32_t a = 0; a < APPS; a++) {
        EXPECT(leat_find(load->session, names[a], &targets[a]) == LEAT_OK);
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        load->queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        load->queries[q].target = targets[to < APPS ? to : q % APPS].id;
        load->queries[q].user_data = q;
        for (uint32_t t = 0; t < 2; t++) {
            EXPECT(leat_tensor_alloc(load->session, 64, &load->queries[q].tensors[t]) == LEAT_OK);
        }
    }
}

static void
ask(struct load *load, uint64_t q)
{
    EXPECT(leat_submit(load->session, &load->queries[q], NULL) == LEAT_OK);
    load->asked++;
}

static uint64_t
take(struct load *load)
{
    struct leat_completion done;
    size_t count;

    EXPECT(leat_wait(load->session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
    EXPECT(done.outcome == LEAT_OUTCOME_OK || atomic_load_explicit(&load->stop, memory_order_relaxed));
    load->answered++;
    return done.user_data;
}

static void *
keep_asking(void *argument)
{
    struct load *load = argument;

    for (uint64_t q = 0; q < QUERIES; q++) {
        ask(load, q);
    }
    while (leat_in_flight(load->session) > 0) {
        const uint64_t q = take(load);
        if (!atomic_load_explicit(&load->stop, memory_order_relaxed)) {
            ask(load, q);
        }
    }
    return NULL;
}

static void
begin_load(struct load *load, const struct box *box, uint32_t to)
{
    open_load(load, box, to);
    EXPECT(pthread_create(&load->thread, NULL, keep_asking, load) == 0);
}

static void
end_load(struct load *load)
{
    atomic_store_explicit(&load->stop, true, memory_order_relaxed);
    EXPECT(pthread_join(load->thread, NULL) == 0);
    EXPECT(load->asked == load->answered && load->asked >= QUERIES);
    leat_close(load->session);
}

/* ---- What there is --------------------------------------------------------------------------------------- */

static struct leat_daemon_held
see(uint32_t worker)
{
    struct leat_daemon_held held;
    leat_daemon_held(the_daemon, worker, &held);
    return held;
}

static enum leat_status
outcome(uint32_t worker, uint64_t number)
{
    struct leat_daemon_effect effect;
    return leat_daemon_arranged(the_daemon, worker, number, &effect);
}

static uint64_t
arrange(uint32_t worker, uint16_t cores, uint16_t application)
{
    const struct leat_daemon_arrangement arrangement = {.worker = worker, .cores = cores, .application = application};
    uint64_t number;

    EXPECT(leat_daemon_arrange(the_daemon, &arrangement, 1, &number) == LEAT_OK);
    return number;
}

static void
await(uint32_t worker, uint64_t number)
{
    enum leat_status status;
    while ((status = outcome(worker, number)) == LEAT_AGAIN) {
        leat_test_look_later();
    }
    EXPECT(status == LEAT_OK && !see(worker).pending);
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

/* As `leat scale show` has it; NULL: nothing is pending. */
static void
expect_pending(struct leat_session *control, uint32_t worker, const char *waits_for, uint32_t cores)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");
    const json_t *pending = json_object_get(json_array_get(json_object_get(shown, "workers"), worker), "pending");

    EXPECT(json_is_null(pending) == (waits_for == NULL));
    if (waits_for != NULL) {
        EXPECT(strcmp(json_string_value(json_object_get(pending, "waits_for")), waits_for) == 0);
        EXPECT(json_integer_value(json_object_get(pending, "cores")) == cores);
    }
    json_decref(shown);
}

/* ---- One that does not let go ---------------------------------------------------------------------------- */

/* Who asks for a size of a worker, on a thread of its own. */
struct asker {
    struct leat_session *session;
    char text[96];
    json_t *answer;        /* NULL: the daemon ended before it answered */
    _Atomic bool answered; /* relaxed */
    pthread_t thread;
};

static void *
ask_for_size(void *argument)
{
    struct asker *asker = argument;
    char *reply = NULL;

    if (leat_admin(asker->session, asker->text, -1, &reply) == LEAT_OK) {
        asker->answer = json_loads(reply, 0, NULL);
        leat_admin_free(reply);
    }
    atomic_store_explicit(&asker->answered, true, memory_order_relaxed);
    return NULL;
}

static void
begin_to_ask(struct asker *asker, const struct box *box, uint32_t worker, uint32_t cores)
{
    *asker = (struct asker){.session = open_session(box)};
    (void)snprintf(asker->text, sizeof(asker->text), "{\"op\":\"scale-set\",\"worker\":%u,\"cores\":%u}", worker, cores);
    EXPECT(pthread_create(&asker->thread, NULL, ask_for_size, asker) == 0);
    while (see(worker).target.cores != cores) {
        leat_test_look_later();
    }
}

static json_t *
end_asking(struct asker *asker)
{
    EXPECT(pthread_join(asker->thread, NULL) == 0);
    leat_close(asker->session);
    return asker->answer;
}

/* Worker 0 has four cores, serves the first application alone and is in a batch until it is let go; others have one each. */
static void
hold_first(const struct box *box, struct load *one)
{
    EXPECT(box->core_count == 9 && WORKERS_MAX == 6);
    await(0, arrange(0, 4, box->ids[0]));
    hold(0, true);
    open_load(one, box, 0);
    ask(one, 0);
    await_inside(0);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
}

static void
test_others_go_on(void)
{
    static struct load one, others;
    struct asker first, second;
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    struct leat_session *control = open_session(&box);
    hold_first(&box, &one);
    begin_load(&others, &box, 1);

    const uint64_t shrinks = arrange(0, 1, LEAT_ARRANGED_AS_BEFORE);
    EXPECT(outcome(0, shrinks) == LEAT_AGAIN && see(0).in_batch && see(0).cpu_count == 4);
    expect_pending(control, 0, "batch", 1);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 3); /* promised: nobody has them yet */
    const uint64_t waits = arrange(1, 4, LEAT_ARRANGED_AS_BEFORE);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
    while (see(1).in_batch) {
        leat_test_look_later();
    }
    EXPECT(outcome(1, waits) == LEAT_AGAIN && see(1).cpu_count == 1);
    expect_pending(control, 1, "cores", 4);

    for (uint32_t turn = 0; turn < 100; turn++) { /* who has nothing to do with it changes as it would */
        const uint16_t more = turn % 2 == 0 ? 2 : 1, application = turn % 2 == 0 ? box.ids[1] : LEAT_ARRANGED_FOR_ALL;
        const struct leat_daemon_arrangement both[] = {{.worker = 2, .cores = more, .application = application},
                                                       {.worker = 3, .cores = (uint16_t)(2 - more), .application = LEAT_ARRANGED_FOR_ALL}};
        uint64_t number;
        EXPECT(leat_daemon_arrange(the_daemon, both, 2, &number) == LEAT_OK);
        await(2, number);
        await(3, number);
        EXPECT(see(2).cpu_count == more && see(3).cpu_count == 2u - more && see(2).application == application);
        EXPECT(outcome(0, shrinks) == LEAT_AGAIN && outcome(1, waits) == LEAT_AGAIN);
    }

    const uint64_t fewer = arrange(1, 2, LEAT_ARRANGED_AS_BEFORE); /* in the place of what it waits for */
    EXPECT(outcome(1, waits) == LEAT_ERR_BUSY && outcome(1, fewer) == LEAT_AGAIN);
    await(3, arrange(3, 0, LEAT_ARRANGED_FOR_ALL));
    await(1, fewer);
    EXPECT(see(1).cpu_count == 2 && outcome(0, shrinks) == LEAT_AGAIN);
    struct leat_daemon_arrangement guarded = {
        .worker = 1, .cores = 1, .application = LEAT_ARRANGED_AS_BEFORE, .guarded = true, .number = waits};
    EXPECT(leat_daemon_arrange(the_daemon, &guarded, 1, NULL) == LEAT_ERR_BUSY && see(1).cpu_count == 2 && !see(1).pending);
    guarded.cores = 2;
    guarded.number = fewer;
    EXPECT(leat_daemon_arrange(the_daemon, &guarded, 1, NULL) == LEAT_OK && outcome(1, fewer) == LEAT_ERR_BUSY);
    const uint64_t wakes = arrange(3, 1, LEAT_ARRANGED_AS_BEFORE);
    EXPECT(outcome(3, wakes) == LEAT_AGAIN && see(3).application == LEAT_ARRANGED_FOR_NOBODY);
    const struct leat_daemon_arrangement too_much = {.worker = 0, .cores = 4, .application = LEAT_ARRANGED_AS_BEFORE};
    EXPECT(leat_daemon_arrange(the_daemon, &too_much, 1, NULL) == LEAT_ERR_BUSY && outcome(0, shrinks) == LEAT_AGAIN);

    begin_to_ask(&first, &box, 0, 2);
    EXPECT(outcome(0, shrinks) == LEAT_ERR_BUSY && see(0).in_batch && see(0).cpu_count == 4);
    json_decref(request(control, "{\"op\":\"scale-set\",\"worker\":4,\"cores\":0}"));
    await(3, wakes); /* with that core */
    EXPECT(see(4).application == LEAT_ARRANGED_FOR_NOBODY && see(4).cpu_count == 0 && !see(4).pending);
    json_decref(request(control, "{\"op\":\"scale-set\",\"worker\":5,\"application\":\"second\"}"));
    EXPECT(see(5).application == box.ids[1]); /* the answers came though the other's did not */
    EXPECT(!atomic_load_explicit(&first.answered, memory_order_relaxed));
    begin_to_ask(&second, &box, 0, 1);
    json_t *refused = end_asking(&first);
    EXPECT(strstr(json_string_value(json_object_get(refused, "error")), "something else") != NULL);
    json_decref(refused);
    EXPECT(!atomic_load_explicit(&second.answered, memory_order_relaxed) && see(0).cpu_count == 4);

    hold(0, false);
    json_t *done = end_asking(&second);
    EXPECT(json_object_get(done, "error") == NULL && json_integer_value(json_object_get(done, "cores")) == 1);
    EXPECT(json_integer_value(json_object_get(done, "effect_ns")) > 0);
    json_decref(done);
    for (uint32_t w = 0; w < WORKERS_MAX; w++) {
        expect_pending(control, w, NULL, 0);
    }
    EXPECT(see(0).cpu_count == 1 && see(1).cpu_count == 2 && leat_daemon_free_cores(the_daemon, 0) == 3);
    (void)take(&one);
    leat_close(one.session);
    end_load(&others);
    leat_close(control);
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* It serves others at once, and is parked and woken again before it has ended: that is no change in the end. */
static void
test_other_mind(void)
{
    static struct load one;
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    hold_first(&box, &one);
    await(0, arrange(0, LEAT_ARRANGED_AS_BEFORE, LEAT_ARRANGED_FOR_ALL));
    const uint64_t parks = arrange(0, 0, LEAT_ARRANGED_FOR_ALL);
    EXPECT(see(0).application == LEAT_ARRANGED_FOR_NOBODY && see(0).cpu_count == 4 && outcome(0, parks) == LEAT_AGAIN);
    const uint64_t wakes = arrange(0, 4, box.ids[0]);
    EXPECT(outcome(0, parks) == LEAT_ERR_BUSY && outcome(0, wakes) == LEAT_AGAIN && see(0).cpu_count == 4);
    for (uint32_t turn = 0; turn < 1000; turn++) { /* more often than can be under way */
        (void)arrange(0, (uint16_t)(1 + turn % 2), box.ids[turn % APPS]);
        EXPECT(see(0).cpu_count == 4 && see(0).pending);
    }
    const uint64_t last = arrange(0, 2, box.ids[1]);
    EXPECT(outcome(0, last) == LEAT_AGAIN);
    hold(0, false);
    await(0, last);
    EXPECT(see(0).cpu_count == 2 && see(0).application == box.ids[1] && leat_daemon_free_cores(the_daemon, 0) == 2);
    (void)take(&one);
    leat_close(one.session);
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* Cores that two workers gave back would be enough for a third, but others have them too: it goes without. */
static void
test_cores_that_do_not_come(void)
{
    const struct leat_daemon_arrangement three[] = {
        {.worker = 0, .cores = 1, .application = LEAT_ARRANGED_AS_BEFORE},
        {.worker = 1, .cores = 4, .application = LEAT_ARRANGED_AS_BEFORE},
        {.worker = 2, .cores = 1, .application = LEAT_ARRANGED_AS_BEFORE}};
    uint64_t number;
    struct box box;

    start(&box, 3, 4, true);
    EXPECT(leat_daemon_arrange(the_daemon, three, 3, &number) == LEAT_OK);
    await(0, number);
    await(2, number);
    while (outcome(1, number) == LEAT_AGAIN) {
        leat_test_look_later();
    }
    EXPECT(outcome(1, number) == LEAT_ERR_BUSY && strstr(see(1).trouble, "was to have 2 more") != NULL);
    EXPECT(see(0).cpu_count == 1 && see(1).cpu_count == 2 && see(2).cpu_count == 1 && !see(1).pending);
    await(1, arrange(1, 1, LEAT_ARRANGED_AS_BEFORE));
    EXPECT(see(1).trouble[0] == '\0');
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* ---- Errands --------------------------------------------------------------------------------------------- */

/* As a batch of the synthetic backend: until it is let go, on cores that nobody else is on. */
static enum leat_status
run_errand(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
           struct leat_team *team)
{
    (void)plan;
    (void)segments;
    (void)count;
    (void)scratch;
    (void)team;
    return __wrap_clock_nanosleep(CLOCK_MONOTONIC, 0, NULL, NULL) == 0 ? LEAT_OK : LEAT_ERR_SYS;
}

static void *
send_errand(void *argument)
{
    static const struct leat_backend backend = {.abi = LEAT_BACKEND_ABI, .name = "errand", .plan_run = run_errand};
    static const struct leat_segment segment = {.items = 1};

    (void)argument;
    EXPECT(leat_worker_warm(the_daemon->workers[0], &backend, NULL, &segment, UINT64_C(1) << 60) == LEAT_OK);
    leat_daemon_errand_ended(the_daemon, 0);
    return NULL;
}

/* The dispatcher knows nothing of an errand: cores that it runs on are nobody else's until it is over. */
static void
test_errands(void)
{
    static struct load others;
    pthread_t thread;
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    for (uint32_t times = 0; times < 3; times++) {
        const uint16_t fewer = times == 1 ? 0 : 1; /* also where it is parked */
        await(0, arrange(0, 4, LEAT_ARRANGED_FOR_ALL));
        EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
        hold(0, true);
        EXPECT(pthread_create(&thread, NULL, send_errand, NULL) == 0);
        await_inside(0);

        const uint16_t more = times == 2 ? 2 : 4;
        const uint64_t shrinks = arrange(0, fewer, LEAT_ARRANGED_AS_BEFORE);
        const uint64_t grows = arrange(1, more, LEAT_ARRANGED_AS_BEFORE);
        await(2, arrange(2, 1, LEAT_ARRANGED_FOR_NOBODY)); /* the dispatcher has answered: it works one by one */
        await(2, arrange(2, 1, LEAT_ARRANGED_FOR_ALL));
        EXPECT(outcome(0, shrinks) == LEAT_AGAIN && outcome(1, grows) == LEAT_AGAIN);
        EXPECT(see(0).cpu_count == 4 && see(1).cpu_count == 1);
        const uint64_t last = times == 2 ? arrange(0, 2, LEAT_ARRANGED_AS_BEFORE) : shrinks; /* told of another meanwhile */
        hold(0, false);
        EXPECT(pthread_join(thread, NULL) == 0);
        await(0, last);
        await(1, grows);
        EXPECT(see(0).cpu_count == (times == 2 ? 2 : fewer) && see(1).cpu_count == more);
        begin_load(&others, &box, APPS);
        end_load(&others);
        await(1, arrange(1, 1, LEAT_ARRANGED_AS_BEFORE));
    }
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* By what one item takes on the cores that a worker has now, whatever it started with; one that is parked has none. */
static void
test_warming(void)
{
    static const char long_alone[] = "{\"latency_ns\": 1000, \"parallel_per_item_ns\": 2000000}";
    struct box box;

    atomic_store_explicit(&warmed, 0, memory_order_relaxed);
    start(&box, 4, 4, false);
    EXPECT(atomic_load_explicit(&warmed, memory_order_relaxed) == 0xf);
    await(0, arrange(0, 4, LEAT_ARRANGED_AS_BEFORE));
    await(1, arrange(1, 0, LEAT_ARRANGED_AS_BEFORE));
    atomic_store_explicit(&warmed, 0, memory_order_relaxed);
    load_model(the_daemon, "third", long_alone);
    EXPECT(atomic_load_explicit(&warmed, memory_order_relaxed) == 1);
    EXPECT(atomic_load_explicit(&warmed_as[0], memory_order_relaxed) == see(0).shape.worker_class);
    await(0, arrange(0, 1, LEAT_ARRANGED_AS_BEFORE));
    atomic_store_explicit(&warmed, 0, memory_order_relaxed);
    load_model(the_daemon, "fourth", long_alone);
    EXPECT(atomic_load_explicit(&warmed, memory_order_relaxed) == 0);
    load_model(the_daemon, "fifth", "{\"latency_ns\": 1000}");
    EXPECT(atomic_load_explicit(&warmed, memory_order_relaxed) == (0xf & ~2u));
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* ---- CPUs that go and come back -------------------------------------------------------------------------- */

static void
take_away(const uint32_t *cpus, uint32_t count)
{
    for (uint32_t c = 0; c < count; c++) {
        absent[cpus[c]] = true;
    }
    leat_daemon_look_at_cpus(the_daemon);
}

static void
bring_back(void)
{
    memset(absent, 0, sizeof(absent));
    leat_daemon_look_at_cpus(the_daemon);
}

/* That nothing is pending of any. */
static void
await_all(uint32_t workers)
{
    for (uint32_t w = 0; w < workers; w++) {
        while (see(w).pending) {
            leat_test_look_later();
        }
    }
}

/* As `leat scale show` has it. */
static void
expect_gone(struct leat_session *control, uint32_t all, uint32_t worker, uint32_t of_it)
{
    json_t *shown = request(control, "{\"op\":\"scale-show\"}");

    EXPECT(json_array_size(json_object_get(shown, "gone_cpus")) == all);
    const json_t *one = json_array_get(json_object_get(shown, "workers"), worker);
    EXPECT(json_array_size(json_object_get(one, "gone_cpus")) == of_it);
    EXPECT(see(worker).gone_count == of_it);
    json_decref(shown);
}

static void
test_gone(void)
{
    static struct load one, others;
    struct leat_daemon_held held;
    uint32_t cpus[LEAT_CPU_MAX], count;
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    struct leat_session *control = open_session(&box);
    expect_gone(control, 0, 1, 0);

    held = see(1); /* it gets another */
    take_away(held.cpus, 1);
    EXPECT(see(1).cpu_count == 1 && see(1).cpus[0] != held.cpus[0] && see(1).moves == 1 && !see(1).pending);
    expect_gone(control, 1, 1, 0);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 2);

    await(1, arrange(1, 1, box.ids[1])); /* one that gets none is parked, and again as it was */
    count = leat_daemon_free_cpus(the_daemon, cpus);
    cpus[count++] = see(1).cpus[0];
    take_away(cpus, count);
    await_all(WORKERS_MAX);
    EXPECT(see(1).cpu_count == 0 && see(1).application == LEAT_ARRANGED_FOR_NOBODY && see(2).cpu_count == 1);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0 && leat_daemon_free_cpus(the_daemon, cpus) == 0);
    const struct leat_daemon_arrangement too_much = {.worker = 1, .cores = 1, .application = LEAT_ARRANGED_AS_BEFORE};
    EXPECT(leat_daemon_arrange(the_daemon, &too_much, 1, NULL) == LEAT_ERR_BUSY);
    expect_gone(control, count + 1, 1, 0);
    bring_back();
    await_all(WORKERS_MAX);
    EXPECT(see(1).cpu_count == 1 && see(1).application == box.ids[1] && leat_daemon_free_cores(the_daemon, 0) == 3);

    atomic_store_explicit(&moving, true, memory_order_relaxed);
    hold_first(&box, &one); /* one in a batch lets go of what is gone when that ends; what it was told meanwhile stands */
    held = see(0);
    take_away(held.cpus, 2);
    EXPECT(see(0).pending && see(0).in_batch && see(0).target.cores == 2 && see(0).cpu_count == 4);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
    expect_gone(control, 2, 0, 2);
    hold(0, false);
    await_all(WORKERS_MAX);
    (void)take(&one);
    EXPECT(see(0).cpu_count == 2 && see(0).cpus[0] == held.cpus[2] && see(0).cpus[1] == held.cpus[3]);
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
    bring_back();
    await_all(WORKERS_MAX);
    EXPECT(see(0).cpu_count == 4 && see(0).application == box.ids[0] && leat_daemon_free_cores(the_daemon, 0) == 0);
    held = see(0);
    take_away(&held.cpus[3], 1);
    await_all(WORKERS_MAX);
    EXPECT(see(0).cpu_count == 2);
    await(0, arrange(0, 1, LEAT_ARRANGED_AS_BEFORE));
    bring_back();
    await_all(WORKERS_MAX);
    EXPECT(see(0).cpu_count == 1 && leat_daemon_free_cores(the_daemon, 0) == 3);

    for (uint32_t w = 0; w < WORKERS_MAX; w++) { /* all go: the last one runs on */
        await(w, arrange(w, 1, LEAT_ARRANGED_FOR_ALL));
    }
    begin_load(&others, &box, APPS);
    for (uint32_t cpu = 0; cpu < 10; cpu++) {
        cpus[cpu] = cpu;
    }
    take_away(cpus, 10);
    await_all(WORKERS_MAX);
    count = 0;
    for (uint32_t w = 0; w < WORKERS_MAX; w++) {
        count += see(w).cpu_count;
    }
    EXPECT(count == 1 && see(WORKERS_MAX - 1).cpu_count == 1);
    expect_gone(control, 10, WORKERS_MAX - 1, 1);
    for (uint32_t q = 0; q < QUERIES; q++) {
        ask(&one, q);
        EXPECT(take(&one) == q);
    }
    bring_back();
    await_all(WORKERS_MAX);
    EXPECT(see(0).cpu_count == 1 && leat_daemon_free_cores(the_daemon, 0) == 3);
    end_load(&others);
    atomic_store_explicit(&moving, false, memory_order_relaxed);
    leat_close(one.session);
    leat_close(control);
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* All others were parked for one that waits for cores, most of which go meanwhile: it does with what is left. */
static void
test_last_does_with_fewer(void)
{
    static struct load one;
    uint32_t cpus[LEAT_CPU_MAX];
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    atomic_store_explicit(&moving, true, memory_order_relaxed);
    hold_first(&box, &one);
    const struct leat_daemon_held held = see(0);
    for (uint32_t w = 1; w < WORKERS_MAX; w++) {
        await(w, arrange(w, 0, LEAT_ARRANGED_AS_BEFORE));
    }
    take_away(cpus, leat_daemon_free_cpus(the_daemon, cpus));
    EXPECT(leat_daemon_free_cores(the_daemon, 0) == 0);
    (void)arrange(0, 1, LEAT_ARRANGED_AS_BEFORE);
    const uint64_t number = arrange(1, 2, LEAT_ARRANGED_FOR_ALL);
    (void)arrange(0, 0, LEAT_ARRANGED_AS_BEFORE);
    take_away(held.cpus, 3);
    EXPECT(see(0).pending && see(1).pending);
    hold(0, false);
    await_all(WORKERS_MAX);
    EXPECT(take(&one) == 0);
    EXPECT(see(0).cpu_count == 0 && see(1).cpu_count == 1 && see(1).cpus[0] == held.cpus[3]);
    EXPECT(see(1).application == LEAT_ARRANGED_FOR_ALL && outcome(1, number) == LEAT_ERR_BUSY);
    ask(&one, 1);
    EXPECT(take(&one) == 1);
    bring_back();
    await_all(WORKERS_MAX);
    atomic_store_explicit(&moving, false, memory_order_relaxed);
    leat_close(one.session);
    leat_daemon_stop(box.daemon);
    end(&box);
}

/* While others arrange as they like: what is refused changes nothing, and in the end all is somebody's or free. */
static void
test_gone_at_random(uint64_t *random)
{
    static struct load load;
    struct box box;
    uint64_t parked = 0;

    at_random = true;
    atomic_store_explicit(&moving, true, memory_order_relaxed);
    start(&box, WORKERS_MAX, 4, false);
    begin_load(&load, &box, APPS);
    for (uint32_t turn = 0; turn < ARRANGEMENTS / 10; turn++) {
        const uint32_t worker = (uint32_t)(leat_test_random(random) % WORKERS_MAX);
        const struct leat_daemon_arrangement any = {.worker = worker,
                                                    .cores = (uint16_t)(leat_test_random(random) % 3),
                                                    .application = LEAT_ARRANGED_AS_BEFORE};
        const enum leat_status status = leat_daemon_arrange(the_daemon, &any, 1, NULL);
        EXPECT(status == LEAT_OK || status == LEAT_ERR_BUSY || status == LEAT_ERR_INVALID);
        for (uint32_t times = (uint32_t)(leat_test_random(random) % 3); times > 0; times--) {
            bool *cpu = &absent[leat_test_random(random) % 10];
            *cpu = !*cpu;
        }
        leat_daemon_look_at_cpus(the_daemon);
        if (turn % 16 == 0) {
            uint32_t awake = 0;
            await_all(WORKERS_MAX);
            for (uint32_t w = 0; w < WORKERS_MAX; w++) {
                awake += see(w).cpu_count > 0;
            }
            parked += WORKERS_MAX - awake;
            EXPECT(awake > 0);
        }
    }
    EXPECT(parked > 0);
    bring_back();
    await_all(WORKERS_MAX);
    uint32_t cores = leat_daemon_free_cores(the_daemon, 0);
    for (uint32_t w = 0; w < WORKERS_MAX; w++) {
        EXPECT(see(w).cpu_count == see(w).target.cores && see(w).gone_count == 0);
        cores += see(w).cpu_count;
    }
    EXPECT(cores == box.core_count);
    end_load(&load);
    leat_daemon_stop(box.daemon);
    end(&box);
    at_random = false;
    atomic_store_explicit(&moving, false, memory_order_relaxed);
}

/* While a worker has not let go, one waits for its cores, and somebody for an answer. */
static void
test_stop(void)
{
    static struct load one;
    struct asker asker;
    struct box box;

    start(&box, WORKERS_MAX, 4, false);
    hold_first(&box, &one);
    begin_to_ask(&asker, &box, 0, 1);
    (void)arrange(1, 4, LEAT_ARRANGED_AS_BEFORE);
    leat_daemon_stop(box.daemon);
    hold(0, false);
    json_decref(end_asking(&asker));
    end(&box);
    leat_close(one.session);
}

/* ---- Whatever is arranged --------------------------------------------------------------------------------- */

struct model {
    const struct box *box;
    uint32_t workers;
    struct leat_daemon_arrangement targets[WORKERS_MAX];
    uint64_t refused;
};

static struct leat_daemon_arrangement
draw(const struct model *model, uint32_t worker, uint64_t *random)
{
    const uint16_t owners[] = {LEAT_ARRANGED_FOR_ALL, LEAT_ARRANGED_FOR_ALL,    model->box->ids[0],
                               model->box->ids[1],    LEAT_ARRANGED_FOR_NOBODY, LEAT_ARRANGED_AS_BEFORE};
    const uint16_t sizes[] = {0, 1, 1, 2, (uint16_t)model->box->cores_max, LEAT_ARRANGED_AS_BEFORE};

    return (struct leat_daemon_arrangement){.worker = worker,
                                            .cores = sizes[leat_test_random(random) % LEAT_COUNT_OF(sizes)],
                                            .application = owners[leat_test_random(random) % LEAT_COUNT_OF(owners)]};
}

/* What would be then; how many cores all have, and whether somebody serves. */
static bool
foresee(const struct model *model, const struct leat_daemon_arrangement *drawn, uint32_t count,
        struct leat_daemon_arrangement *ret_targets, uint32_t *ret_cores)
{
    bool serves = false;

    memcpy(ret_targets, model->targets, sizeof(model->targets));
    for (uint32_t i = 0; i < count; i++) {
        struct leat_daemon_arrangement *target = &ret_targets[drawn[i].worker];
        const bool parked = target->cores == 0;
        if (drawn[i].cores != LEAT_ARRANGED_AS_BEFORE) {
            target->cores = drawn[i].cores;
        }
        if (drawn[i].application != LEAT_ARRANGED_AS_BEFORE) {
            target->application = drawn[i].application;
        } else if (parked) {
            target->application = LEAT_ARRANGED_FOR_ALL;
        }
        if (target->cores == 0) {
            target->application = LEAT_ARRANGED_FOR_NOBODY;
        }
    }
    *ret_cores = 0;
    for (uint32_t w = 0; w < model->workers; w++) {
        *ret_cores += ret_targets[w].cores;
        serves = serves || ret_targets[w].application != LEAT_ARRANGED_FOR_NOBODY;
    }
    return serves;
}

/* False: the daemon ends. */
static bool
arrange_at_random(struct model *model, uint64_t *random)
{
    struct leat_daemon_arrangement drawn[WORKERS_MAX] = {0}, targets[WORKERS_MAX];
    uint32_t count = 0, cores;
    uint64_t number;

    for (uint32_t w = 0; w < model->workers; w++) {
        if (leat_test_random(random) % 3 == 0) {
            drawn[count++] = draw(model, w, random);
        }
    }
    const bool serves = foresee(model, drawn, count, targets, &cores);
    const enum leat_status status = leat_daemon_arrange(the_daemon, drawn, count, &number);
    const enum leat_status expected = cores > model->box->core_count ? LEAT_ERR_BUSY : serves ? LEAT_OK : LEAT_ERR_INVALID;
    if (status != expected) {
        EXPECT(status == LEAT_ERR_BUSY && strcmp(leat_error_text(), "the daemon is shutting down") == 0);
        return false;
    }
    if (status == LEAT_OK) {
        memcpy(model->targets, targets, sizeof(targets));
    }
    model->refused += status != LEAT_OK;
    while (status == LEAT_OK && count > 0 && leat_test_random(random) % 64 > 0 &&
           outcome(drawn[0].worker, number) == LEAT_AGAIN) {
        leat_test_look_later();
    }
    return true;
}

/* All is as arranged, and nothing else anywhere. */
static void
expect_settled(const struct model *model)
{
    uint32_t cpus[LEAT_CPU_MAX], users[CPUS_MAX] = {0}, cores = 0;

    for (uint32_t w = 0; w < model->workers; w++) {
        struct leat_daemon_held held;
        while ((held = see(w)).pending) {
            leat_test_look_later();
        }
        EXPECT(held.cpu_count == model->targets[w].cores && held.shape.cores == model->targets[w].cores);
        EXPECT(held.application == model->targets[w].application && held.trouble[0] == '\0' && !held.in_batch);
        for (uint32_t c = 0; c < held.cpu_count; c++) {
            EXPECT(users[held.cpus[c]]++ == 0);
            if (pinned) {
                expect_pinned(w, c, held.cpus[c]);
            }
        }
        cores += held.cpu_count;
    }
    EXPECT(leat_daemon_free_cores(the_daemon, model->box->placement->workers[0].node) == model->box->core_count - cores);
    const uint32_t left = leat_daemon_free_cpus(the_daemon, cpus);
    for (uint32_t c = 0; c < left; c++) {
        EXPECT(users[cpus[c]]++ == 0);
    }
    EXPECT(left >= model->box->core_count - cores);
}

static struct model
begin_model(const struct box *box)
{
    struct model model = {.box = box, .workers = box->placement->worker_count};

    for (uint32_t w = 0; w < model.workers; w++) {
        model.targets[w] = (struct leat_daemon_arrangement){.worker = w, .cores = 1, .application = LEAT_ARRANGED_FOR_ALL};
    }
    return model;
}

static void
test_random(uint32_t workers, uint32_t cores_max, uint64_t *random)
{
    static struct load load;
    struct box box;

    at_random = true;
    start(&box, workers, cores_max, false);
    struct model model = begin_model(&box);
    begin_load(&load, &box, APPS);
    for (uint32_t i = 0; i < ARRANGEMENTS; i++) {
        EXPECT(arrange_at_random(&model, random));
        if (i % (ARRANGEMENTS / 50) == 0) {
            expect_settled(&model);
        }
    }
    expect_settled(&model);
    EXPECT(model.refused > 0 && model.refused < ARRANGEMENTS / 2);
    end_load(&load);
    leat_daemon_stop(box.daemon);
    end(&box);
    at_random = false;
    (void)printf("%u arrangements of %u workers on %u cores, %llu of them refused, %llu queries\n", (unsigned)ARRANGEMENTS,
                 workers, box.core_count, (unsigned long long)model.refused, (unsigned long long)load.asked);
}

/* It is told to stop while arrangements come, until it refuses them. */
static void
test_ends(uint64_t *random)
{
    static struct load load;
    struct box box;

    at_random = true;
    for (uint32_t turn = 0; turn < ENDS; turn++) {
        start(&box, WORKERS_MAX, 4, false);
        struct model model = begin_model(&box);
        begin_load(&load, &box, APPS);
        for (uint64_t left = leat_test_random(random) % 50; left > 0; left--) {
            EXPECT(arrange_at_random(&model, random));
        }
        atomic_store_explicit(&load.stop, true, memory_order_relaxed);
        leat_daemon_stop(box.daemon);
        while (arrange_at_random(&model, random)) {
        }
        EXPECT(pthread_join(load.thread, NULL) == 0);
        end(&box);
        leat_close(load.session);
    }
    at_random = false;
}

/* Two workers and a core more, beside the dispatcher's? */
static bool
has_cores(void)
{
    struct leat_topology *topology;

    EXPECT(leat_topology_discover(&(struct leat_topology_source){0}, &topology) == LEAT_OK);
    const bool enough = topology->allowed_cores >= 4 && topology->usable_cpus >= 4 && topology->node_count == 1;
    leat_topology_destroy(topology);
    return enough;
}

int
main(void)
{
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    test_others_go_on();
    test_other_mind();
    test_cores_that_do_not_come();
    test_errands();
    test_warming();
    test_gone();
    test_last_does_with_fewer();
    test_gone_at_random(&random);
    test_stop();
    test_random(WORKERS_MAX, 4, &random);
    test_ends(&random);
    pinned = has_cores();
    if (pinned) {
        test_random(2, 2, &random);
    } else {
        (void)printf("no arrangement with pinned threads: that needs four cores of one NUMA node\n");
    }
    return 0;
}
