/* SPDX-License-Identifier: Apache-2.0 */
#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   How long after it is asked for another size of a worker's team takes effect while queries run: until the first\n"
    "           batch of that size begins, as the daemon says, and until who asked has the answer, which comes when that batch\n"
    "           has ended. leatd has one worker on the cpu backend, of 1 core or 2, and a small network; one process\n"
    "           keeps 8 queries under way; resizes that found the worker idle all the same are counted, and left out.\n"
    "Beside it  Latencies of these queries in windows without a resize, of 1 core and of 2, which take turns with those with\n"
    "           resizes one after the other, a millisecond apart; and how many of each would be late for an objective of three\n"
    "           times the median on 1 core, which is what 16 batches take beside those that are under way. No more are wanted\n"
    "           with resizes than without on the size that has more: a team waits for the slower of two cores.\n"
    "           On two CPUs the dispatcher has no core of its own, and the client runs beside the worker.\n"
    "           With --cgroups KIND (auto) workers' threads are held as the setting of that name says.\n"
    "Does not   measure a resize of an idle worker, nor what a size is worth.\n"
    "Method     Closed loop on both sides. Percentiles are of all windows of a kind together.";

enum kind { ONE_CORE, TWO_CORES, RESIZES, KINDS, WARMING = KINDS, END };

enum { SLOTS = 8, RECORDS_MAX = 1 << 21, RESIZES_MAX = 1 << 18, PAUSE_NS = 1000000, WARM_NS = 300000000 };

static struct shared {
    _Atomic uint32_t kind; /* enum kind */
    _Atomic uint64_t counts[KINDS]; /* W: the client */
    uint64_t latencies_ns[KINDS][RECORDS_MAX];
} *shared;

static struct bench_option own[] = {{.name = "cgroups"}, {.name = NULL}};

static struct run {
    const struct bench_options *options;
    char folder[64], socket_path[96];
    pid_t daemon;
    uint64_t effects_ns[RESIZES_MAX], answers_ns[RESIZES_MAX];
    uint32_t resizes, idle;
} run;

/* ---- The daemon ------------------------------------------------------------------------------- */

static int
remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void
write_file(const char *name, const void *bytes, size_t count)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/%s", run.folder, name);
    FILE *file = fopen(path, "wb");
    LEAT_MUST(file != NULL && fwrite(bytes, count, 1, file) == 1 && fclose(file) == 0);
}

static void
start_daemon(void)
{
    char config[512];
    size_t bytes;
    void *file;

    (void)strcpy(run.folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(run.folder) != NULL);
    (void)snprintf(run.socket_path, sizeof(run.socket_path), "%s/leat.sock", run.folder);
    LEAT_MUST(zoo_write(zoo_find("resnet18"), ZOO_SIZE_TEST, 1, &file, &bytes) == LEAT_OK);
    write_file("net.onnx", file, bytes);
    free(file);
    (void)snprintf(config, sizeof(config),
                   "socket: %s\nstate_dir: %s/state\ncgroups: %s\n"
                   "dispatcher: {%s}\n"
                   "workers: [{count: 1, cores: 1, cores_max: 2}]\n"
                   "models: [{name: net, path: %s/net.onnx, items_max: 1}]\n",
                   run.socket_path, run.folder, own[0].value != NULL ? own[0].value : "auto",
                   /* who asks for sizes counts as a client that spins, and does not */
                   run.options->cpu_count < 3 ? "own_core: false" : "spin: 50us", run.folder);
    write_file("leat.yaml", config, strlen(config));
    (void)snprintf(config, sizeof(config), "%s/leat.yaml", run.folder);
    run.daemon = bench_fork();
    if (run.daemon == 0) {
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(run.options->daemon_path, "leatd", "--config", config, (char *)NULL);
        _exit(127);
    }
}

static void
end_daemon(int signal_number)
{
    (void)kill(run.daemon, signal_number);
    (void)nftw(run.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static struct leat_session *
open_session(void)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    enum leat_status status;

    options.socket_path = run.socket_path;
    options.slots = SLOTS;
    options.arena_bytes = 64 << 20;
    do {
        status = leat_open(&options, &session);
    } while (status == LEAT_ERR_SYS && waitpid(run.daemon, NULL, WNOHANG) == 0); /* SYS: it does not listen yet */
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "bench_resize: %s: %s\n", run.options->daemon_path, leat_error_text());
        end_daemon(SIGKILL);
        exit(1);
    }
    return session;
}

/* ---- The client ------------------------------------------------------------------------------- */

/* Queries of windows of a kind, so far. */
static uint64_t
count_of(enum kind kind)
{
    return atomic_load_explicit(&shared->counts[kind], memory_order_relaxed);
}

static void
submit(struct leat_session *session, struct leat_query *query, uint64_t *ret_at_ns)
{
    *ret_at_ns = leat_monotonic_ns();
    LEAT_MUST(leat_submit(session, query, NULL) == LEAT_OK);
}

/* A query is of the window that it is asked and ends in: no resize of another one is its matter. */
static void
send_all(void)
{
    struct leat_session *session = open_session();
    struct leat_query queries[SLOTS];
    struct leat_completion done[SLOTS];
    struct leat_target target;
    uint64_t begun_ns[SLOTS];
    enum kind begun[SLOTS], kind;
    size_t got;

    LEAT_MUST(leat_find(session, "net", &target) == LEAT_OK);
    for (uint32_t q = 0; q < SLOTS; q++) {
        queries[q] = (struct leat_query)LEAT_QUERY_INIT;
        queries[q].target = target.id;
        queries[q].user_data = q;
        for (int t = 0; t < 2; t++) {
            LEAT_MUST(leat_tensor_alloc(session, target.tensors[t].item_bytes, &queries[q].tensors[t]) == LEAT_OK);
            memset(queries[q].tensors[t], 0, target.tensors[t].item_bytes);
        }
        begun[q] = WARMING;
        submit(session, &queries[q], &begun_ns[q]);
    }
    while (leat_in_flight(session) > 0) {
        LEAT_MUST(leat_wait(session, done, SLOTS, UINT64_MAX, &got) == LEAT_OK);
        kind = atomic_load_explicit(&shared->kind, memory_order_relaxed);
        for (size_t i = 0; i < got; i++) {
            const uint64_t q = done[i].user_data;
            LEAT_ASSERT(done[i].outcome == LEAT_OUTCOME_OK); /* none is lost */
            if (kind < KINDS && kind == begun[q] && count_of(kind) < RECORDS_MAX) {
                shared->latencies_ns[kind][count_of(kind)] = leat_monotonic_ns() - begun_ns[q];
                atomic_store_explicit(&shared->counts[kind], count_of(kind) + 1, memory_order_relaxed);
            }
            if (kind != END) {
                begun[q] = kind;
                submit(session, &queries[q], &begun_ns[q]);
            }
        }
    }
    leat_close(session);
    _exit(0);
}

/* ---- Windows ---------------------------------------------------------------------------------- */

static void
pause_ns(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    (void)nanosleep(&time, NULL);
}

static void
note_holder(struct leat_session *session)
{
    char *reply;

    LEAT_MUST(leat_admin(session, "{\"op\":\"scale-show\"}", -1, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, 0, NULL);
    bench_note(run.options, "threads of the worker are held by %s", json_string_value(json_object_get(answer, "held_by")));
    json_decref(answer);
    leat_admin_free(reply);
}

/* False where the machine has no core to give. */
static bool
resize(struct leat_session *session, uint32_t cores)
{
    char request[96], *reply;

    (void)snprintf(request, sizeof(request), "{\"op\":\"scale-set\",\"worker\":0,\"cores\":%u}", cores);
    const uint64_t begin_ns = leat_monotonic_ns();
    LEAT_MUST(leat_admin(session, request, -1, &reply) == LEAT_OK);
    const uint64_t answer_ns = leat_monotonic_ns() - begin_ns;
    json_t *answer = json_loads(reply, 0, NULL);
    const json_t *effect = json_object_get(answer, "effect_ns");
    const bool good = json_is_integer(effect), idle = json_is_true(json_object_get(answer, "idle"));
    run.idle += idle;
    if (good && !idle && run.resizes < RESIZES_MAX) {
        run.effects_ns[run.resizes] = (uint64_t)json_integer_value(effect);
        run.answers_ns[run.resizes++] = answer_ns;
    } else if (!good) {
        (void)fprintf(stderr, "bench_resize: %s\n", reply);
    }
    json_decref(answer);
    leat_admin_free(reply);
    return good;
}

/* A window without a resize; one that no query ended in, on a busy machine, goes on. */
static void
leave_alone(enum kind kind)
{
    atomic_store_explicit(&shared->kind, kind, memory_order_relaxed);
    do {
        pause_ns(run.options->window_ns);
    } while (count_of(kind) == 0);
}

/* From 2 cores to 1, and so on, to 1. */
static bool
resize_on_and_on(struct leat_session *session)
{
    const uint64_t end_ns = leat_monotonic_ns() + run.options->window_ns;
    uint32_t cores = 2;

    atomic_store_explicit(&shared->kind, RESIZES, memory_order_relaxed);
    do {
        cores = 3 - cores;
        if (!resize(session, cores)) {
            return false;
        }
        pause_ns(PAUSE_NS);
    } while (leat_monotonic_ns() < end_ns || cores == 2 || count_of(RESIZES) == 0 || run.resizes == 0);
    return true;
}

static bool
measure(struct leat_session *session)
{
    pause_ns(WARM_NS);
    for (uint32_t w = 0; w < run.options->windows; w++) {
        leave_alone(ONE_CORE);
        atomic_store_explicit(&shared->kind, WARMING, memory_order_relaxed);
        if (!resize(session, 2)) {
            return false;
        }
        pause_ns(PAUSE_NS);
        leave_alone(TWO_CORES);
        if (!resize_on_and_on(session)) {
            return false;
        }
    }
    return true;
}

static void
print_latency(const char *subject, struct bench_latency of, const char *peer, struct bench_latency beside, double target_us)
{
    const uint64_t values[] = {of.p50, of.p99, of.p999, of.max}, others[] = {beside.p50, beside.p99, beside.p999, beside.max};
    static const char *const metrics[] = {"p50", "p99", "p99.9", "max"};

    for (uint32_t m = 0; m < LEAT_COUNT_OF(values); m++) {
        const struct bench_row row = {.subject = subject,
                                      .metric = metrics[m],
                                      .value = (double)values[m] / 1e3,
                                      .unit = "us",
                                      .windows = run.options->windows,
                                      .peer = peer,
                                      .ratio = peer != NULL && others[m] > 0 ? (double)values[m] / (double)others[m] : 0,
                                      .goal = m == 1 && target_us > 0 ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                      .target = target_us};
        bench_print(run.options, &row);
    }
}

/* Of queries in order. */
static double
late_percent(const uint64_t *latencies_ns, uint64_t count, uint64_t objective_ns)
{
    uint64_t in_time = count;
    while (in_time > 0 && latencies_ns[in_time - 1] > objective_ns) {
        in_time--;
    }
    return 100.0 * (double)(count - in_time) / (double)count;
}

static const char *const subjects[KINDS] = {"query, 1 core", "query, 2 cores", "query, resizes"};

static void
print_late(uint64_t objective_ns)
{
    double late[KINDS];

    for (enum kind k = ONE_CORE; k < KINDS; k++) {
        late[k] = late_percent(shared->latencies_ns[k], count_of(k), objective_ns);
    }
    for (enum kind k = ONE_CORE; k < KINDS; k++) {
        bench_print(run.options, &(struct bench_row){.subject = subjects[k],
                                                     .metric = "late",
                                                     .unit = "%",
                                                     .value = late[k],
                                                     .windows = run.options->windows,
                                                     .goal = k == RESIZES ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                                     .target = fmax(late[ONE_CORE], late[TWO_CORES])});
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {
        .name = "resize", .windows = 10, .window_ns = 1000000000, .daemon_path = LEATD_PATH, .own = own};
    int exit_code = 0;

    if (!bench_parse(argc, argv, measures, &options, &exit_code)) {
        return exit_code;
    }
    run.options = &options;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LEAT_ASSERT(shared != MAP_FAILED);
    shared->kind = WARMING;
    start_daemon();
    struct leat_session *session = open_session();
    const pid_t client = bench_fork();
    if (client == 0) {
        send_all();
    }
    const bool good = measure(session);
    note_holder(session);
    atomic_store_explicit(&shared->kind, END, memory_order_relaxed);
    bench_reap(client);
    leat_close(session);
    end_daemon(SIGTERM);
    bench_reap(run.daemon);
    if (!good) {
        bench_note(&options, "no core is free for a second one: not measured");
        return 0;
    }
    const struct bench_latency none = {0};
    print_latency("request to effect", bench_order(run.effects_ns, run.resizes), NULL, none, 2000);
    print_latency("request to answer", bench_order(run.answers_ns, run.resizes), NULL, none, 0);
    struct bench_latency of[KINDS];
    for (enum kind k = ONE_CORE; k < KINDS; k++) {
        of[k] = bench_order(shared->latencies_ns[k], count_of(k));
        print_latency(subjects[k], of[k], k == ONE_CORE ? NULL : subjects[ONE_CORE], of[ONE_CORE], 0);
    }
    print_late(3 * of[ONE_CORE].p50);
    bench_note(&options,
               "%u resizes of a busy worker, %u of an idle one; %llu queries on 1 core, %llu on 2, %llu beside resizes, none lost",
               run.resizes, run.idle, (unsigned long long)of[ONE_CORE].count, (unsigned long long)of[TWO_CORES].count,
               (unsigned long long)of[RESIZES].count);
    bench_note_load(&options);
    return 0;
}
