/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "bench/queue_peer.h"
#include "bench/support.h"

static const char measures[] =
    "Measures   Items per second through a bounded queue of 1,024, three producers and one consumer, with more\n"
    "           threads than CPUs: on two CPUs, and on all with twice as many threads; and three and one on all CPUs.\n"
    "           The central queue beside Vyukov's, Concurrency Kit's and DPDK's, in single items and in bursts of 16.\n"
    "Does not   say anything of latency, or of several consumers: the central queue has one.\n"
    "Method     Closed loop, flat out; 64 failed tries, then sched_yield; ordinary scheduling. The queues take turns, a\n"
    "           window each. Ratios are medians over rounds. Every item is checked: each producer's come once, in order.\n"
    "Payload    The central queue carries entries of 56 bytes; peers that carry 8 bytes say so.";

static const struct queue_peer *const peers[] = {
    &central_1, &dispatcher_1, &vyukov_words_1, &vyukov_entries_1, &ck_mpsc_1, &ck_mpmc_1, &rte_mp_1,
    &rte_hts_1, &rte_hts_sc_1,   &rte_hts_entries_1, &central_16, &rte_hts_16, &rte_hts_entries_16,
};
enum { PEERS = LEAT_COUNT_OF(peers) };

struct placement {
    char name[48];
    uint32_t cpu_count; /* the last ones of the options' */
    uint32_t producers;
    bool judged; /* the targets are for more threads than CPUs */
};

struct thread {
    pthread_t id;
    const struct queue_peer *peer;
    struct queue_run *run;
    const int *cpus;
    uint32_t cpu_count;
    uint64_t producer;
};

static void *
producer_main(void *argument)
{
    const struct thread *thread = argument;
    bench_pin(thread->cpus, thread->cpu_count);
    thread->peer->produce(thread->run, thread->producer);
    return NULL;
}

static void *
consumer_main(void *argument)
{
    const struct thread *thread = argument;
    bench_pin(thread->cpus, thread->cpu_count);
    thread->peer->consume(thread->run);
    return NULL;
}

static void
let_run(uint64_t ns)
{
    const struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    (void)nanosleep(&time, NULL);
}

/* Items per second in one window, after a tenth of a window to warm up. */
static double
measure_window(const struct queue_peer *peer, const struct placement *placement, const struct bench_options *options)
{
    static struct queue_run run;
    struct thread threads[QUEUE_PRODUCERS_MAX + 1];
    const uint32_t count = placement->producers + 1;

    run = (struct queue_run){.queue = peer->create()};
    for (uint32_t i = 0; i < count; i++) {
        threads[i] = (struct thread){.peer = peer, .run = &run, .producer = i,
                                     .cpus = &options->cpus[options->cpu_count - placement->cpu_count],
                                     .cpu_count = placement->cpu_count};
        LEAT_MUST(pthread_create(&threads[i].id, NULL, i + 1 < count ? producer_main : consumer_main, &threads[i]) == 0);
    }
    let_run(options->window_ns / 10);
    const uint64_t before = atomic_load_explicit(&run.received, memory_order_relaxed);
    const uint64_t start_ns = leat_monotonic_ns();
    let_run(options->window_ns);
    const uint64_t after = atomic_load_explicit(&run.received, memory_order_relaxed);
    const uint64_t end_ns = leat_monotonic_ns();

    atomic_store_explicit(&run.stop, 1, memory_order_relaxed);
    for (uint32_t i = 0; i + 1 < count; i++) {
        LEAT_MUST(pthread_join(threads[i].id, NULL) == 0);
    }
    atomic_store_explicit(&run.drain, 1, memory_order_release);
    LEAT_MUST(pthread_join(threads[count - 1].id, NULL) == 0);
    for (uint32_t i = 0; i + 1 < count; i++) {
        LEAT_ASSERT(run.sent[i] == run.expected[i]); /* all arrived */
    }
    peer->destroy(run.queue);
    return (double)(after - before) * 1e9 / (double)(end_ns - start_ns);
}

struct results {
    double rates[PEERS][BENCH_WINDOWS_MAX];
    uint32_t windows;
};

static uint32_t
index_of(const struct queue_peer *peer)
{
    uint32_t p = 0;
    while (peers[p] != peer) {
        p++;
    }
    return p;
}

static double
median_ratio(const struct results *results, const struct queue_peer *subject, const struct queue_peer *peer)
{
    double ratios[BENCH_WINDOWS_MAX];
    for (uint32_t w = 0; w < results->windows; w++) {
        const double rate = results->rates[index_of(peer)][w];
        ratios[w] = results->rates[index_of(subject)][w] / (rate > 0 ? rate : 1);
    }
    return bench_median(ratios, results->windows);
}

static double
worst(const struct results *results, uint32_t p)
{
    double low = results->rates[p][0];
    for (uint32_t w = 1; w < results->windows; w++) {
        low = results->rates[p][w] < low ? results->rates[p][w] : low;
    }
    return low;
}

static void
print_rates(const struct bench_options *options, const struct placement *placement, const struct results *results)
{
    for (uint32_t p = 0; p < PEERS; p++) {
        char subject[96];
        if (peers[p]->missing != NULL) {
            bench_print_missing(options, peers[p]->name, peers[p]->missing);
            continue;
        }
        const double rate = bench_median(results->rates[p], results->windows);
        const double low = worst(results, p);
        (void)snprintf(subject, sizeof(subject), "%s: %s", placement->name, peers[p]->name);
        const bool judged = placement->judged && peers[p] == &central_1;
        bench_print(options, &(struct bench_row){.subject = subject, .metric = "throughput", .value = rate / 1e6,
                                                 .worst = low / 1e6, .unit = "M/s", .windows = results->windows,
                                                 .peer = judged ? "own median, worst window" : NULL,
                                                 .ratio = rate > 0 ? low / rate : 0,
                                                 .goal = judged ? BENCH_AT_LEAST : BENCH_NO_GOAL, .target = 0.5});
    }
}

static void
print_verdicts(const struct bench_options *options, const struct placement *placement, const struct results *results)
{
    static const struct {
        const struct queue_peer *subject, *peer;
        double target; /* 0: shown without a target */
    } pairs[] = {
        {&central_1, &vyukov_words_1, 0.9},  {&central_1, &vyukov_entries_1, 0.9},
        {&central_1, &rte_hts_1, 3},         {&central_1, &rte_hts_sc_1, 0},
        {&central_1, &rte_hts_entries_1, 0}, {&central_1, &rte_mp_1, 50},
        {&central_1, &ck_mpsc_1, 0},         {&central_1, &ck_mpmc_1, 0},
        {&central_16, &rte_hts_16, 0.8},     {&central_16, &rte_hts_entries_16, 0.8},
        {&central_16, &central_1, 0},        {&dispatcher_1, &vyukov_entries_1, 0},
        {&dispatcher_1, &vyukov_words_1, 0},
    };
    for (size_t i = 0; i < LEAT_COUNT_OF(pairs); i++) {
        char subject[96];
        if (pairs[i].peer->missing != NULL) {
            continue;
        }
        (void)snprintf(subject, sizeof(subject), "%s: %s", placement->name, pairs[i].subject->name);
        bench_print(options, &(struct bench_row){
                                 .subject = subject, .metric = "throughput",
                                 .value = bench_median(results->rates[index_of(pairs[i].subject)], results->windows) / 1e6,
                                 .unit = "M/s", .windows = results->windows, .peer = pairs[i].peer->name,
                                 .peer_version = pairs[i].peer->version,
                                 .ratio = median_ratio(results, pairs[i].subject, pairs[i].peer),
                                 .goal = placement->judged && pairs[i].target > 0 ? BENCH_AT_LEAST : BENCH_NO_GOAL,
                                 .target = pairs[i].target});
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "queue", .windows = 10, .window_ns = 250000000};
    static struct results results[3];
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    if (options.cpu_count < 2) {
        (void)printf("skipped: two CPUs are needed\n");
        return 77;
    }
    const uint32_t all = options.cpu_count < QUEUE_PRODUCERS_MAX / 2 ? options.cpu_count : QUEUE_PRODUCERS_MAX / 2;
    struct placement placements[] = {{.cpu_count = 2, .producers = 3, .judged = true},
                                     {.cpu_count = all, .producers = 2 * all - 1, .judged = true},
                                     {.cpu_count = all, .producers = 3, .judged = all < 4}};
    for (size_t i = 0; i < LEAT_COUNT_OF(placements); i++) {
        (void)snprintf(placements[i].name, sizeof(placements[i].name), "%up1c on %u CPUs", placements[i].producers,
                       placements[i].cpu_count);
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        for (size_t i = 0; i < LEAT_COUNT_OF(placements); i++) {
            for (uint32_t p = 0; p < PEERS; p++) {
                if (peers[p]->missing == NULL) {
                    results[i].rates[p][w] = measure_window(peers[p], &placements[i], &options);
                }
            }
            results[i].windows = w + 1;
        }
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(placements); i++) {
        print_rates(&options, &placements[i], &results[i]);
        print_verdicts(&options, &placements[i], &results[i]);
    }
    bench_note_load(&options);
    return 0;
}
