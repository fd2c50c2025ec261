/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "runtime/cores.h"
#include "runtime/log.h"
#include "runtime/scale_keeper_private.h"

static const char measures[] =
    "Measures   How long after the load of an application jumps a batch begins on cores that the application had not\n"
    "           been given then: on a larger team, or another worker. In that: until the keeper begins to look, and\n"
    "           until it has decided and workers have been told. Between looks: the jump comes at any moment. After a\n"
    "           look: it comes as soon as the keeper has given cores for such a jump, so that it rests; another\n"
    "           application jumps there or, of one, the same again, to twice the load.\n"
    "Load       Evenly spaced, three tenths of what one core carries; then --times (4) as much, until all is answered.\n"
    "           Each item takes 8 ms on one core and a c-th of that on c; the objective is three times that.\n"
    "           --applications (1) are scaled, and all have that load.\n"
    "Does not   run networks, or pin threads: the daemon is in this process, on a machine of 34 cores that is made up,\n"
    "           and its models sleep. Dispatcher, keeper, workers' threads, client and what they tell each other are\n"
    "           real. What control groups and pinning add to a resize, bench_resize says.\n"
    "Method     As many jumps as --windows, each once the application is back at one core. Times are the client's: a\n"
    "           batch begins when its query was submitted, and has waited. Settings of scaling are the usual ones but\n"
    "           `hold`, half a second, and `settle`, a fifth, so that cores come back sooner.";

enum {
    APPLICATIONS_MAX = LEAT_SCALER_APPLICATIONS_MAX,
    WORKERS = 32,
    CORES_MAX = 4,
    SLOTS = 2048, /* of all applications */
    JUMPS_MAX = BENCH_WINDOWS_MAX,
    ITEM_NS = 8000000,
    OBJECTIVE_NS = 3 * ITEM_NS,
    CALM_NS = ITEM_NS * 10 / 3, /* between two queries */
    INTERVAL_NS = 100000000,
    LOOK_NS = 200000, /* of the client at what the keeper has done */
    SETTLED_LOOKS = 3,
};

static struct bench_option own[] = {{.name = "applications"}, {.name = "times"}, {.name = NULL}};

/* Of one kind of look. */
struct times {
    uint64_t looks_ns[JUMPS_MAX], decisions_ns[JUMPS_MAX], cores_ns[JUMPS_MAX];
    uint32_t count, early; /* looks before their time among them */
};

static struct run {
    const struct bench_options *options;
    uint32_t application_count, times;
    char folder[64], socket_path[96];
    struct leat_topology *topology;
    struct leat_placement *placement;
    struct leat_cores *cores;
    struct leat_daemon *daemon;
    sem_t serving;
    pthread_t thread;
    struct times idle, resting;
    uint64_t answered;
} run;

/* ---- The daemon ------------------------------------------------------------------------------- */

static void
add_application(uint32_t a)
{
    static const struct leat_tensor_info infos[2] = {
        {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
        {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
    };
    struct leat_registry_application application = {.latency_ns = OBJECTIVE_NS, .queue = SLOTS, .model_count = 1};
    char options[64];

    (void)snprintf(application.name, sizeof(application.name), "app-%u", a);
    (void)snprintf(application.models[0], sizeof(application.models[0]), "model-%u", a);
    (void)snprintf(options, sizeof(options), "{\"latency_ns\": 0, \"parallel_per_item_ns\": %d}", ITEM_NS);
    const struct leat_variant_source source = {.name = application.models[0],
                                               .backend = "synthetic",
                                               .options_json = options,
                                               .items_max = 1,
                                               .infos = infos,
                                               .input_count = 1,
                                               .output_count = 1};
    LEAT_MUST(leat_daemon_load_model(run.daemon, &source, NULL, false) == LEAT_OK);
    LEAT_MUST(leat_daemon_add_application(run.daemon, &application, false) == LEAT_OK);
}

static struct leat_scaling
scaling(void)
{
    struct leat_scaling scaling = {.mode = LEAT_SCALING_LEAT,
                                   .interval_ns = INTERVAL_NS,
                                   .hold_ns = 500000000,
                                   .settle_ns = 200000000,
                                   .instance_delay_ns = LEAT_SCALING_DELAY_AUTO,
                                   .forecast = LEAT_SCALING_FORESEES_NOTHING,
                                   .application_count = run.application_count};

    for (uint32_t a = 0; a < run.application_count; a++) {
        (void)snprintf(scaling.applications[a].name, LEAT_NAME_MAX, "app-%u", a);
        scaling.applications[a].weight = 1;
    }
    return scaling;
}

/* Create, run and destroy belong on one thread. */
static void *
serve(void *argument)
{
    struct leat_daemon_worker workers[WORKERS] = {0};
    struct leat_daemon_class classes[LEAT_PLACEMENT_CLASSES_MAX] = {0};
    json_t *topology = json_pack("{s:s}", "text", "a machine");

    (void)argument;
    for (uint32_t w = 0; w < WORKERS; w++) {
        const struct leat_worker_place *place = &run.placement->workers[w];
        workers[w] = (struct leat_daemon_worker){.cpus = {place->cpus[0]},
                                                 .core_count = place->cpu_count,
                                                 .cores_max = place->cores_max,
                                                 .node = place->node,
                                                 .worker_class = place->worker_class};
    }
    for (uint32_t c = 0; c < run.placement->class_count; c++) {
        (void)snprintf(classes[c].name, sizeof(classes[c].name), "%s", run.placement->classes[c].name);
        classes[c].cores = run.placement->classes[c].cores;
    }
    const struct leat_daemon_options options = {
        .server = {.socket_path = run.socket_path,
                   .socket_mode = 0600,
                   .socket_group = (gid_t)-1,
                   .limits = {.sessions = 8, .sessions_per_user = 8, .bytes = 1 << 26, .bytes_per_user = 1 << 26},
                   .slots_default = SLOTS,
                   .slots_max = SLOTS,
                   .arena_default_bytes = 1 << 20,
                   .arena_max_bytes = 1 << 20},
        .workers = workers,
        .worker_count = WORKERS,
        .classes = classes,
        .class_count = run.placement->class_count,
        .cores = run.cores,
        .scaling = scaling(),
        .dispatcher_cpu = -1,
        .worker_depth = 2,
        .queue_capacity = 2 * SLOTS,
        .pipeline_memory_bytes = 1 << 20,
        .topology = topology,
    };

    LEAT_MUST(leat_daemon_create(&options, &run.daemon) == LEAT_OK);
    for (uint32_t a = 0; a < run.application_count; a++) {
        add_application(a);
    }
    LEAT_MUST(sem_post(&run.serving) == 0);
    LEAT_MUST(leat_daemon_run(run.daemon, UINT64_C(60000000000)) == LEAT_OK);
    leat_daemon_destroy(run.daemon);
    json_decref(topology);
    return NULL;
}

static void
start_daemon(void)
{
    const struct leat_topology_source source = {
        .root = "/nonexistent", .synthetic = "numa:1 core:34 pu:1", .affinity = "0-33"};
    const struct leat_worker_group group = {.count = WORKERS, .cores = 1, .cores_max = CORES_MAX};
    const struct leat_placement_request request = {.dispatcher_cpu = LEAT_AUTO, .groups = &group, .group_count = 1};

    (void)strcpy(run.folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(run.folder) != NULL);
    (void)snprintf(run.socket_path, sizeof(run.socket_path), "%s/leat.sock", run.folder);
    leat_log_level_set(LEAT_LOG_ERROR);
    LEAT_MUST(leat_topology_discover(&source, &run.topology) == LEAT_OK);
    LEAT_MUST(leat_placement_make(run.topology, &request, &run.placement) == LEAT_OK);
    LEAT_ASSERT(run.placement->worker_count == WORKERS);
    LEAT_MUST(leat_cores_create(run.topology, run.placement, &run.cores) == LEAT_OK);
    LEAT_MUST(sem_init(&run.serving, 0, 0) == 0);
    LEAT_MUST(pthread_create(&run.thread, NULL, serve, NULL) == 0);
    while (sem_wait(&run.serving) != 0) {
    }
}

static void
end_daemon(void)
{
    leat_daemon_stop(run.daemon);
    LEAT_MUST(pthread_join(run.thread, NULL) == 0);
    LEAT_MUST(sem_destroy(&run.serving) == 0);
    leat_cores_destroy(run.cores);
    leat_placement_destroy(run.placement);
    leat_topology_destroy(run.topology);
    (void)unlink(run.socket_path);
    LEAT_MUST(rmdir(run.folder) == 0);
}

/* ---- Jumps -------------------------------------------------------------------------------------- */

/* One that is not answered yet, or has just been. */
struct jump {
    uint32_t application;
    uint64_t begin_ns;       /* 0: none */
    uint64_t answer_ns;      /* 0: not yet */
    uint32_t known[WORKERS]; /* cores of each worker that it had been given by then */
};

/* Only the least has been arranged for the application, for some looks. */
static bool
is_calm(uint32_t a)
{
    static uint64_t since[APPLICATIONS_MAX]; /* decisions by then */
    const struct leat_scale_keeper *keeper = run.daemon->scaling;

    LEAT_MUST(pthread_mutex_lock(&run.daemon->mutex) == 0);
    const struct leat_scale_part part = keeper->applications[a].stages[0].part;
    if (part.ready != 1 || part.cores != 1) {
        since[a] = keeper->decisions;
    }
    const bool calm = part.ready == 1 && part.cores == 1 && keeper->decisions >= since[a] + SETTLED_LOOKS;
    LEAT_MUST(pthread_mutex_unlock(&run.daemon->mutex) == 0);
    return calm;
}

static struct jump
begin_jump(uint32_t a)
{
    const struct leat_scale_keeper *keeper = run.daemon->scaling;
    struct jump jump = {.application = a};

    LEAT_MUST(pthread_mutex_lock(&run.daemon->mutex) == 0);
    for (uint32_t w = 0; w < WORKERS; w++) {
        jump.known[w] = keeper->workers[w].application == leat_scale_unit(a, 0) ? keeper->workers[w].cores : 0;
    }
    jump.begin_ns = leat_monotonic_ns();
    LEAT_MUST(pthread_mutex_unlock(&run.daemon->mutex) == 0);
    return jump;
}

/* The first change since then that gave it more cores. False: there is none. */
static bool
find_change(const struct jump *jump, struct leat_scale_change *ret_change)
{
    const struct leat_scale_keeper *keeper = run.daemon->scaling;
    bool found = false;

    LEAT_MUST(pthread_mutex_lock(&run.daemon->mutex) == 0);
    for (uint64_t c = keeper->changes; c > 0 && keeper->changes - c < LEAT_SCALE_CHANGES_KEPT; c--) {
        const struct leat_scale_change *change = &keeper->history[(c - 1) % LEAT_SCALE_CHANGES_KEPT];
        if (change->application == jump->application && change->at_ns >= jump->begin_ns &&
            change->to.cores > change->from.cores) {
            *ret_change = *change;
            found = true;
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&run.daemon->mutex) == 0);
    return found;
}

/* On cores that the application had not been given when it jumped? */
static void
note_batch(struct jump *jump, uint32_t a, uint32_t worker, uint32_t cores, uint64_t begin_ns)
{
    if (jump->begin_ns > 0 && a == jump->application && begin_ns > jump->begin_ns && cores > jump->known[worker] &&
        (jump->answer_ns == 0 || begin_ns < jump->answer_ns)) {
        jump->answer_ns = begin_ns;
    }
}

/* ---- The load --------------------------------------------------------------------------------- */

static struct client {
    struct leat_session *session;
    struct leat_query queries[SLOTS];
    uint64_t begun_ns[SLOTS];
    uint32_t idle[SLOTS], idle_count;
    struct {
        uint32_t target;
        uint64_t period_ns, next_ns;
    } of[APPLICATIONS_MAX];
    struct jump jumps[2];
} client;

static void
open_client(void)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_target target;
    char name[32];

    options.socket_path = run.socket_path;
    LEAT_MUST(leat_open(&options, &client.session) == LEAT_OK);
    for (uint32_t a = 0; a < run.application_count; a++) {
        (void)snprintf(name, sizeof(name), "app-%u", a);
        LEAT_MUST(leat_find(client.session, name, &target) == LEAT_OK);
        client.of[a].target = target.id;
        client.of[a].period_ns = CALM_NS;
        client.of[a].next_ns = leat_monotonic_ns() + (uint64_t)a * CALM_NS / run.application_count;
    }
    for (uint32_t q = 0; q < SLOTS; q++) {
        client.queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        for (uint32_t t = 0; t < 2; t++) {
            const size_t bytes = target.tensors[t].item_bytes;
            LEAT_MUST(leat_tensor_alloc(client.session, bytes, &client.queries[q].tensors[t]) == LEAT_OK);
        }
        client.idle[client.idle_count++] = q;
    }
}

/* Of which team its batch was, its time says: it slept for that, and a little longer. */
static void
take_answer(const struct leat_completion *done)
{
    const uint32_t q = (uint32_t)(done->user_data % SLOTS), a = (uint32_t)(done->user_data / SLOTS);
    const uint64_t team = done->exec_ns > 0 ? (ITEM_NS + ITEM_NS / 8) / done->exec_ns : 0;
    const uint32_t cores = team < 1 ? 1 : team < CORES_MAX ? (uint32_t)team : CORES_MAX;

    LEAT_ASSERT(done->outcome == LEAT_OUTCOME_OK && done->worker < WORKERS);
    for (uint32_t j = 0; j < 2; j++) {
        note_batch(&client.jumps[j], a, done->worker, cores, client.begun_ns[q] + done->queue_ns);
    }
    run.answered++;
    client.idle[client.idle_count++] = q;
}

static void
submit(uint32_t a)
{
    const uint32_t q = client.idle[--client.idle_count];

    client.queries[q].target = client.of[a].target;
    client.queries[q].user_data = (uint64_t)a * SLOTS + q;
    client.begun_ns[q] = leat_monotonic_ns();
    LEAT_MUST(leat_submit(client.session, &client.queries[q], NULL) == LEAT_OK);
}

/* Sends what is due, while there are slots, then takes answers, for as long as nothing is due and LOOK_NS at most. */
static void
turn(void)
{
    struct leat_completion done[64];
    uint64_t next_ns = leat_monotonic_ns() + LOOK_NS;
    size_t count = 0;

    for (uint32_t a = 0; a < run.application_count; a++) {
        while (client.idle_count > 0 && leat_monotonic_ns() >= client.of[a].next_ns) {
            submit(a);
            client.of[a].next_ns += client.of[a].period_ns;
        }
        next_ns = client.of[a].next_ns < next_ns ? client.of[a].next_ns : next_ns;
    }
    const uint64_t now_ns = leat_monotonic_ns();
    const enum leat_status status =
        leat_wait(client.session, done, LEAT_COUNT_OF(done), next_ns > now_ns ? next_ns - now_ns : 0, &count);
    LEAT_ASSERT(status == LEAT_OK || status == LEAT_TIMEOUT || status == LEAT_AGAIN);
    for (size_t i = 0; i < count; i++) {
        take_answer(&done[i]);
    }
    if (status == LEAT_AGAIN) { /* nothing is under way */
        const struct timespec rest = {.tv_nsec = next_ns > now_ns ? (long)(next_ns - now_ns) : 0};
        (void)nanosleep(&rest, NULL);
    }
}

/* The first query of the higher load comes now. */
static void
raise_load(uint32_t j, uint32_t a, uint32_t times)
{
    client.jumps[j] = begin_jump(a);
    client.of[a].period_ns /= times;
    client.of[a].next_ns = client.jumps[j].begin_ns;
}

static void
note_times(struct times *times, const struct jump *jump)
{
    struct leat_scale_change change;

    LEAT_MUST(find_change(jump, &change));
    times->looks_ns[times->count] = change.looked_ns > jump->begin_ns ? change.looked_ns - jump->begin_ns : 0;
    times->decisions_ns[times->count] = change.at_ns - jump->begin_ns;
    times->cores_ns[times->count] = jump->answer_ns - jump->begin_ns;
    times->early += change.early;
    times->count++;
}

/* ---- Windows ---------------------------------------------------------------------------------- */

static uint64_t
below(uint64_t bound)
{
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % bound;
}

/* All have the least, and the next look is as near as it may be. */
static void
await_calm(void)
{
    for (uint32_t a = 0; a < run.application_count; a++) {
        client.of[a].period_ns = CALM_NS;
    }
    for (uint32_t a = 0; a < run.application_count;) {
        turn();
        a = is_calm(a) ? a + 1 : 0;
    }
    const uint64_t start_ns = leat_monotonic_ns() + below(INTERVAL_NS);
    while (leat_monotonic_ns() < start_ns) {
        turn();
    }
}

/* The second comes once the keeper has decided about the first, and rests. */
static void
measure(void)
{
    struct leat_scale_change change;

    for (uint32_t w = 0; w < run.options->windows; w++) {
        const uint32_t first = w % run.application_count, second = (w + 1) % run.application_count;
        await_calm();
        raise_load(0, first, run.times);
        do {
            turn();
        } while (!find_change(&client.jumps[0], &change));
        raise_load(1, second, second == first ? 2 : run.times);
        while (client.jumps[0].answer_ns == 0 || client.jumps[1].answer_ns == 0 ||
               !find_change(&client.jumps[1], &change)) {
            turn();
        }
        note_times(&run.idle, &client.jumps[0]);
        note_times(&run.resting, &client.jumps[1]);
        client.jumps[0] = client.jumps[1] = (struct jump){0};
    }
}

static void
end_client(void)
{
    struct leat_completion done[64];
    size_t count;

    while (leat_wait(client.session, done, LEAT_COUNT_OF(done), UINT64_MAX, &count) == LEAT_OK) {
        for (size_t i = 0; i < count; i++) {
            take_answer(&done[i]);
        }
    }
    leat_close(client.session);
}

static void
print_one(const char *from, const char *what, uint64_t *times_ns, uint32_t count)
{
    const struct bench_latency of = bench_order(times_ns, count);
    const uint64_t values[] = {of.p50, of.p99, of.max};
    static const char *const metrics[] = {"p50", "p99", "max"};
    char subject[128];

    (void)snprintf(subject, sizeof(subject), "%u applications, load times %u, %s: %s", run.application_count, run.times,
                   from, what);
    for (uint32_t m = 0; m < LEAT_COUNT_OF(values); m++) {
        bench_print(run.options, &(struct bench_row){.subject = subject,
                                                     .metric = metrics[m],
                                                     .value = (double)values[m] / 1e6,
                                                     .unit = "ms",
                                                     .windows = count});
    }
}

static void
print(const char *from, struct times *times)
{
    print_one(from, "to the look", times->looks_ns, times->count);
    print_one(from, "to the decision", times->decisions_ns, times->count);
    print_one(from, "to cores in force", times->cores_ns, times->count);
    bench_note(run.options, "%s: %u of %u were looked at before the time of the next look", from, times->early,
               times->count);
}

/* 0: it is none that can be. */
static uint32_t
number(const struct bench_option *option, uint32_t otherwise, uint32_t most)
{
    char *end;

    if (option->value == NULL) {
        return otherwise;
    }
    const unsigned long value = strtoul(option->value, &end, 10);
    return *end == '\0' && value <= most ? (uint32_t)value : 0;
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "scale_jump", .windows = 50, .window_ns = 1000000000, .own = own};
    int exit_code = 0;

    if (!bench_parse(argc, argv, measures, &options, &exit_code)) {
        return exit_code;
    }
    run.options = &options;
    run.application_count = number(&own[0], 1, APPLICATIONS_MAX);
    run.times = number(&own[1], 4, 32);
    if (run.application_count == 0 || run.times < 2) {
        (void)fprintf(stderr, "bench_scale_jump: --applications is 1 to %d, --times 2 to 32\n", APPLICATIONS_MAX);
        return 2;
    }
    start_daemon();
    open_client();
    measure();
    end_client();
    end_daemon();
    print("between looks", &run.idle);
    print("after a look", &run.resting);
    bench_note(&options, "%llu queries, all answered", (unsigned long long)run.answered);
    bench_note_load(&options);
    return 0;
}
