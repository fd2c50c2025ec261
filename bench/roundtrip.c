/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/align.h"
#include "bench/roundtrip.h"

static const char measures[] =
    "Measures   Round trip of a query through the whole of leat: client process, ring, dispatcher, worker, client, with\n"
    "           validation, central queue and decision, each of the three on a CPU of its own. Handed over, with an\n"
    "           empty model, at 64 B, 4 KiB and 600 KiB that nobody touches; 600 KiB written by the client and read\n"
    "           by the worker, or copied by it. All spinning, and all parked. The first query of a new session.\n"
    "           Throughput with 64 in flight.\n"
    "Beside it  The raw cache-line ping-pong L; the same three hand-overs by bare lines (floor 1.5 L) and by bare\n"
    "           futexes; the rings alone, between two processes, and a plain pair of rings; a busy-polled\n"
    "           SOCK_SEQPACKET pair; iceoryx, polling; ZeroMQ, nng and gRPC as they come. Servers read every byte and\n"
    "           answer with 64.\n"
    "Does not   say anything of models, or of queueing under open-loop load; leat bench does.\n"
    "Method     Closed loop, one outstanding, TSC. The cases take turns, a window each. L is that of the client's and the\n"
    "           dispatcher's CPU where two processes take part, and the mean of the three pairs where three do. It is\n"
    "           probed before and after, and a spinning window is repeated when a pair of them differs by more\n"
    "           than a quarter: the host has moved the CPUs meanwhile. Nor are windows of different L compared.\n"
    "           Ratios are medians over rounds. Sleepers get 50 us to go to sleep.";

enum kind { CHAIN, CHAIN_SLEEPING, DIRECT, LEAT, PARKED, SOCKET, TRANSPORT };

static const struct bench_case {
    const char *name;
    enum kind kind;
    size_t bytes;
    enum bench_payload payload;
    const struct bench_transport *transport;
} cases[] = {
    {"rings alone, 64 B", DIRECT, 64, BENCH_HANDED_OVER, NULL},
    {"bare lines, three hand-overs", CHAIN, 64, BENCH_HANDED_OVER, NULL},
    {"leat 64 B", LEAT, 64, BENCH_HANDED_OVER, NULL},
    {"leat 4 KiB", LEAT, 4096, BENCH_HANDED_OVER, NULL},
    {"leat 600 KiB", LEAT, 614400, BENCH_HANDED_OVER, NULL},
    {"bare lines, 600 KiB read", CHAIN, 614400, BENCH_READ, NULL},
    {"leat 600 KiB read", LEAT, 614400, BENCH_READ, NULL},
    {"bare lines, 600 KiB copied", CHAIN, 614400, BENCH_COPIED, NULL},
    {"leat 600 KiB copied", LEAT, 614400, BENCH_COPIED, NULL},
    {"UDS seqpacket 64 B, busy-polled", SOCKET, 64, BENCH_READ, NULL},
    {"UDS seqpacket 4 KiB, busy-polled", SOCKET, 4096, BENCH_READ, NULL},
    {"UDS seqpacket 600 KiB, busy-polled", SOCKET, 614400, BENCH_READ, NULL},
    {"iceoryx 64 B", TRANSPORT, 64, BENCH_READ, &bench_iceoryx},
    {"iceoryx 4 KiB", TRANSPORT, 4096, BENCH_READ, &bench_iceoryx},
    {"iceoryx 600 KiB", TRANSPORT, 614400, BENCH_READ, &bench_iceoryx},
    {"bare futexes, three hand-overs", CHAIN_SLEEPING, 64, BENCH_HANDED_OVER, NULL},
    {"leat 64 B parked", PARKED, 64, BENCH_HANDED_OVER, NULL},
    {"ZeroMQ ipc 64 B", TRANSPORT, 64, BENCH_READ, &bench_zmq},
    {"ZeroMQ ipc 4 KiB", TRANSPORT, 4096, BENCH_READ, &bench_zmq},
    {"ZeroMQ ipc 600 KiB", TRANSPORT, 614400, BENCH_READ, &bench_zmq},
    {"nng ipc 64 B", TRANSPORT, 64, BENCH_READ, &bench_nng},
    {"nng ipc 4 KiB", TRANSPORT, 4096, BENCH_READ, &bench_nng},
    {"nng ipc 600 KiB", TRANSPORT, 614400, BENCH_READ, &bench_nng},
    {"gRPC unix 64 B", TRANSPORT, 64, BENCH_READ, &bench_grpc},
    {"gRPC unix 4 KiB", TRANSPORT, 4096, BENCH_READ, &bench_grpc},
    {"gRPC unix 600 KiB", TRANSPORT, 614400, BENCH_READ, &bench_grpc},
};
enum { CASES = LEAT_COUNT_OF(cases), FIRSTS = 2, ATTACHES = 10, ATTEMPTS = 4, JUDGED_WINDOWS = 5 };

static const struct {
    const char *name;
    size_t bytes;
    enum bench_payload payload;
} firsts[FIRSTS] = {{"first query of a session, 64 B", 64, BENCH_HANDED_OVER},
                    {"first query of a session, 600 KiB copied", 614400, BENCH_COPIED}};

struct results {
    double p50[CASES][BENCH_WINDOWS_MAX], p99[CASES][BENCH_WINDOWS_MAX];
    double line[CASES][BENCH_WINDOWS_MAX]; /* L around the window */
    struct bench_lines lines[BENCH_WINDOWS_MAX]; /* after a round's last window */
    bool kept[CASES][BENCH_WINDOWS_MAX];
    double first[FIRSTS][BENCH_WINDOWS_MAX], first_of_warm[FIRSTS][BENCH_WINDOWS_MAX];
    double rate[BENCH_WINDOWS_MAX], direct_rate[BENCH_WINDOWS_MAX], plain_rate[BENCH_WINDOWS_MAX]; /* queries/s */
    uint32_t windows, measured, discarded;
};

/* ---- Rounds ----------------------------------------------------------------------------------- */

static bool
present(const struct bench_case *c)
{
    return c->transport == NULL || c->transport->missing == NULL;
}

static bool
spins(const struct bench_case *c)
{
    return c->kind == TRANSPORT ? c->transport->polls : c->kind != PARKED && c->kind != CHAIN_SLEEPING;
}

static bool
alike(double a, double b)
{
    return a <= 1.25 * b && b <= 1.25 * a;
}

static bool
takes_three(const struct bench_case *c)
{
    return c->kind == CHAIN || c->kind == CHAIN_SLEEPING || c->kind == LEAT || c->kind == PARKED;
}

/* Have the CPUs that take part moved between two probes? */
static bool
moved(const struct bench_case *c, const struct bench_lines *before, const struct bench_lines *after)
{
    return !alike(before->client_dispatcher, after->client_dispatcher) ||
           (takes_three(c) && (!alike(before->dispatcher_worker, after->dispatcher_worker) ||
                               !alike(before->worker_client, after->worker_client)));
}

/* L for a case: of the CPUs that take part. */
static double
line_of(const struct bench_case *c, const struct bench_lines *lines)
{
    return takes_three(c) ? (lines->client_dispatcher + lines->dispatcher_worker + lines->worker_client) / 3
                 : lines->client_dispatcher;
}

static struct bench_latency
measure_case(const struct bench_env *env, struct bench_subject *awake, struct bench_subject *parked,
             const struct bench_case *c)
{
    switch (c->kind) {
    case CHAIN: return bench_chain(env, c->payload, false);
    case CHAIN_SLEEPING: return bench_chain(env, c->payload, true);
    case DIRECT: return bench_direct_ring(env);
    case LEAT: return bench_subject_trips(env, awake, c->bytes, c->payload);
    case PARKED: return bench_subject_trips(env, parked, c->bytes, c->payload);
    case SOCKET: return bench_unix_socket(env, c->bytes);
    default: return bench_transport_trips(env, c->transport, c->bytes);
    }
}

/* One window between two probes of L; again, a few times, when the CPUs moved meanwhile. */
static void
measure_kept(const struct bench_env *env, struct bench_subject *awake, struct bench_subject *parked, uint32_t c,
             struct results *results)
{
    const uint32_t w = results->windows;
    for (int attempt = 0; attempt < ATTEMPTS && !results->kept[c][w]; attempt++) {
        const struct bench_lines before = bench_line_ping_pong(env);
        const struct bench_latency latency = measure_case(env, awake, parked, &cases[c]);
        const struct bench_lines after = bench_line_ping_pong(env);
        results->p50[c][w] = (double)latency.p50;
        results->p99[c][w] = (double)latency.p99;
        results->line[c][w] = (line_of(&cases[c], &before) + line_of(&cases[c], &after)) / 2;
        results->lines[w] = after;
        results->kept[c][w] = !(spins(&cases[c]) && moved(&cases[c], &before, &after));
        results->measured++;
        results->discarded += results->kept[c][w] ? 0 : 1;
    }
}

static void
measure_firsts(const struct bench_env *env, const struct bench_subject *awake, int f, struct results *results)
{
    double first[ATTACHES], ratio[ATTACHES];
    for (uint32_t i = 0; i < ATTACHES; i++) {
        const struct bench_first one = bench_subject_first(env, awake, firsts[f].bytes, firsts[f].payload);
        first[i] = (double)one.first_ns;
        ratio[i] = (double)one.first_ns / (double)one.warm_ns;
    }
    results->first[f][results->windows] = bench_median(first, ATTACHES);
    results->first_of_warm[f][results->windows] = bench_median(ratio, ATTACHES);
}

static void
measure_round(const struct bench_env *env, struct bench_subject *awake, struct bench_subject *parked,
              struct results *results)
{
    for (uint32_t c = 0; c < CASES; c++) {
        if (present(&cases[c])) {
            measure_kept(env, awake, parked, c, results);
        }
    }
    for (int f = 0; f < FIRSTS; f++) {
        measure_firsts(env, awake, f, results);
    }
    results->plain_rate[results->windows] = bench_plain_ring_rate(env);
    results->direct_rate[results->windows] = bench_direct_ring_rate(env);
    results->rate[results->windows] = bench_subject_throughput(env, awake);
    results->windows++;
}

/* ---- Figures ---------------------------------------------------------------------------------- */

static uint32_t
find(const char *name)
{
    uint32_t c = 0;
    while (strcmp(cases[c].name, name) != 0) {
        c++;
    }
    return c;
}

/* Median over kept rounds of a / b, or of a alone. */
static double
median_kept(const struct results *results, uint32_t c, const double *a, uint32_t d, const double *b, uint32_t *ret_count)
{
    double values[BENCH_WINDOWS_MAX];
    uint32_t count = 0;
    for (uint32_t w = 0; w < results->windows; w++) {
        const bool placed_alike = !spins(&cases[c]) || !spins(&cases[d]) || alike(results->line[c][w], results->line[d][w]);
        if (results->kept[c][w] && results->kept[d][w] && placed_alike) {
            values[count++] = a[w] / (b != NULL && b[w] > 0 ? b[w] : 1);
        }
    }
    *ret_count = count;
    return bench_median(values, count);
}

struct goal {
    const char *subject, *metric, *peer; /* peer "L": the line ping-pong */
    enum bench_goal goal;
    double target;
};

static void
print_ratio(const struct bench_options *options, const struct results *results, const struct goal *goal)
{
    const uint32_t c = find(goal->subject);
    const bool line = strcmp(goal->peer, "L") == 0;
    const uint32_t d = line ? c : find(goal->peer);
    const double *values = strcmp(goal->metric, "p99") == 0 ? results->p99[c] : results->p50[c];
    const double *peers = line ? results->line[c] : strcmp(goal->metric, "p99") == 0 ? results->p99[d] : results->p50[d];
    uint32_t count;

    if (!present(&cases[d])) {
        return;
    }
    const double ratio = median_kept(results, c, values, d, peers, &count);
    if (count == 0) {
        bench_note(options, "%s to %s: no window in which the CPUs stayed", goal->subject, goal->peer);
        return;
    }
    /* The target of a few windows that happened to be kept says nothing. */
    const bool judged = goal->goal != BENCH_NO_GOAL && (count >= JUDGED_WINDOWS || count == results->windows);
    uint32_t kept;
    const double value = median_kept(results, c, values, c, NULL, &kept);
    bench_print(options, &(struct bench_row){.subject = goal->subject, .metric = goal->metric, .value = value / 1e3,
                                             .unit = "us", .windows = count, .peer = goal->peer, .ratio = ratio,
                                             .goal = judged ? goal->goal : BENCH_NO_GOAL, .target = goal->target,
                                             .peer_version = cases[d].transport != NULL && !line
                                                                 ? cases[d].transport->version : NULL});
}

static void
print_cases(const struct bench_options *options, const struct results *results)
{
    for (uint32_t c = 0; c < CASES; c++) {
        if (!present(&cases[c])) {
            bench_print_missing(options, cases[c].name, cases[c].transport->missing);
            continue;
        }
        print_ratio(options, results, &(struct goal){cases[c].name, "p50", "L", BENCH_NO_GOAL, 0});
        print_ratio(options, results, &(struct goal){cases[c].name, "p99", "L", BENCH_NO_GOAL, 0});
    }
}

static void
print_goals(const struct bench_options *options, const struct results *results)
{
    static const struct goal goals[] = {
        {"rings alone, 64 B", "p50", "L", BENCH_AT_MOST, 1.25},
        {"rings alone, 64 B", "p99", "L", BENCH_AT_MOST, 1.8},
        {"rings alone, 64 B", "p50", "gRPC unix 64 B", BENCH_AT_MOST, 0.01},
        {"rings alone, 64 B", "p50", "iceoryx 64 B", BENCH_AT_MOST, 0.15},
        {"leat 64 B", "p50", "L", BENCH_AT_MOST, 2.5},
        {"leat 64 B", "p99", "L", BENCH_AT_MOST, 8},
        {"leat 64 B", "p50", "bare lines, three hand-overs", BENCH_NO_GOAL, 0},
        {"leat 64 B", "p50", "UDS seqpacket 64 B, busy-polled", BENCH_AT_MOST, 0.2},
        {"leat 64 B", "p50", "iceoryx 64 B", BENCH_NO_GOAL, 0},
        {"leat 64 B", "p50", "ZeroMQ ipc 64 B", BENCH_NO_GOAL, 0},
        {"leat 64 B", "p50", "nng ipc 64 B", BENCH_NO_GOAL, 0},
        {"leat 64 B", "p50", "gRPC unix 64 B", BENCH_AT_MOST, 0.01},
        {"leat 4 KiB", "p50", "UDS seqpacket 4 KiB, busy-polled", BENCH_NO_GOAL, 0},
        {"leat 4 KiB", "p50", "gRPC unix 4 KiB", BENCH_NO_GOAL, 0},
        {"leat 600 KiB", "p50", "leat 64 B", BENCH_AT_MOST, 1.15},
        {"leat 600 KiB copied", "p50", "bare lines, 600 KiB copied", BENCH_AT_MOST, 1.1},
        {"leat 600 KiB read", "p50", "bare lines, 600 KiB read", BENCH_AT_MOST, 1.1},
        {"leat 600 KiB read", "p50", "iceoryx 600 KiB", BENCH_AT_MOST, 1},
        {"leat 600 KiB read", "p50", "UDS seqpacket 600 KiB, busy-polled", BENCH_AT_MOST, 0.4},
        {"bare lines, 600 KiB read", "p50", "UDS seqpacket 600 KiB, busy-polled", BENCH_NO_GOAL, 0},
        {"leat 600 KiB read", "p50", "ZeroMQ ipc 600 KiB", BENCH_NO_GOAL, 0},
        {"leat 600 KiB read", "p50", "nng ipc 600 KiB", BENCH_NO_GOAL, 0},
        {"leat 600 KiB read", "p50", "gRPC unix 600 KiB", BENCH_AT_MOST, 0.06},
        {"leat 64 B parked", "p50", "bare futexes, three hand-overs", BENCH_AT_MOST, 1.5},
        {"leat 64 B parked", "p99", "bare futexes, three hand-overs", BENCH_NO_GOAL, 0},
    };
    for (size_t g = 0; g < LEAT_COUNT_OF(goals); g++) {
        print_ratio(options, results, &goals[g]);
    }
}

static void
print_rates(const struct bench_options *options, const struct results *results)
{
    double of_plain[BENCH_WINDOWS_MAX];
    for (uint32_t w = 0; w < results->windows; w++) {
        of_plain[w] = results->direct_rate[w] / results->plain_rate[w];
    }
    bench_print(options, &(struct bench_row){.subject = "rings alone, 64 in flight", .metric = "throughput",
                                             .value = bench_median(results->direct_rate, results->windows) / 1e6,
                                             .unit = "M/s", .windows = results->windows, .peer = "plain pair of rings",
                                             .ratio = bench_median(of_plain, results->windows),
                                             .goal = BENCH_AT_LEAST, .target = 0.5});
    bench_print(options, &(struct bench_row){.subject = "leat 64 B, 64 in flight",
                                             .metric = "throughput",
                                             .value = bench_median(results->rate, results->windows) / 1e6,
                                             .unit = "M/s",
                                             .windows = results->windows,
                                             .goal = BENCH_AT_LEAST,
                                             .target = 3});
}

/* How far apart the CPUs were: all else hangs on it. */
static void
print_lines(const struct bench_options *options, const struct results *results)
{
    double pairs[3][BENCH_WINDOWS_MAX];
    static const char *const names[] = {"L, client and dispatcher", "L, dispatcher and worker", "L, worker and client"};
    for (uint32_t w = 0; w < results->windows; w++) {
        pairs[0][w] = results->lines[w].client_dispatcher;
        pairs[1][w] = results->lines[w].dispatcher_worker;
        pairs[2][w] = results->lines[w].worker_client;
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        bench_print(options, &(struct bench_row){.subject = names[i], .metric = "p50", .unit = "us",
                                                 .value = bench_median(pairs[i], results->windows) / 1e3,
                                                 .windows = results->windows});
    }
}

static void
print_results(const struct bench_options *options, const struct results *results)
{
    print_cases(options, results);
    print_goals(options, results);
    for (int f = 0; f < FIRSTS; f++) {
        bench_print(options, &(struct bench_row){.subject = firsts[f].name, .metric = "p50",
                                                 .value = bench_median(results->first[f], results->windows) / 1e3,
                                                 .unit = "us", .windows = results->windows, .peer = "later ones of it",
                                                 .ratio = bench_median(results->first_of_warm[f], results->windows),
                                                 .goal = BENCH_AT_MOST, .target = 1.5});
    }
    print_rates(options, results);
    print_lines(options, results);
    bench_note(options, "%u of %u windows discarded because the CPUs moved", results->discarded,
               results->measured);
    bench_note_load(options);
}

/* ---- Transports ------------------------------------------------------------------------------- */

static struct bench_transport *const transports[] = {&bench_iceoryx, &bench_zmq, &bench_nng, &bench_grpc};

static void
begin_transports(void)
{
    for (size_t t = 0; t < LEAT_COUNT_OF(transports); t++) {
        if (transports[t]->missing == NULL && transports[t]->begin != NULL) {
            transports[t]->missing = transports[t]->begin();
        }
    }
}

static void
end_transports(void)
{
    for (size_t t = 0; t < LEAT_COUNT_OF(transports); t++) {
        if (transports[t]->missing == NULL && transports[t]->end != NULL) {
            transports[t]->end();
        }
    }
}

/* ---- Start ------------------------------------------------------------------------------------ */

static void
make_memory(struct bench_env *env)
{
    const size_t bytes = BENCH_SAMPLES_MAX * sizeof(uint64_t);
    env->samples_ns = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    env->payload = mmap(NULL, BENCH_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LEAT_ASSERT(env->samples_ns != MAP_FAILED && env->payload != MAP_FAILED);
    for (size_t i = 0; i < BENCH_BYTES_MAX; i++) {
        env->payload[i] = (unsigned char)(i % 251);
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "roundtrip", .windows = 12, .window_ns = 200000000, .daemon_path = LEATD_PATH};
    static struct results results;
    int status, latency_fd = -1;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    if (options.cpu_count < 3) {
        (void)printf("skipped: three CPUs are needed\n");
        return 77;
    }
    const int *cpus = &options.cpus[options.cpu_count - 3];
    struct bench_env env = {.options = &options, .client_cpu = cpus[0], .dispatcher_cpu = cpus[1], .worker_cpu = cpus[2]};
    if (options.hold_dma_latency) {
        latency_fd = bench_hold_dma_latency();
        bench_note(&options, "/dev/cpu_dma_latency %s", latency_fd < 0 ? strerror(errno) : "held at 0");
    }
    leat_clock_init(&env.clock);
    make_memory(&env);
    begin_transports();
    struct bench_subject *awake = bench_subject_start(&env, false);
    struct bench_subject *parked = bench_subject_start(&env, true);
    bench_pin(&env.client_cpu, 1);
    for (uint32_t w = 0; w < options.windows; w++) {
        measure_round(&env, awake, parked, &results);
    }
    bench_subject_stop(parked);
    bench_subject_stop(awake);
    end_transports();
    print_results(&options, &results);
    if (latency_fd >= 0) {
        (void)close(latency_fd);
    }
    return 0;
}
