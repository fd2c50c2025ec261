/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "tests/runtime/steps.h"

static const char measures[] =
    "Measures   Time of a round's decisions in the daemon's dispatcher, as its own histogram has it: from the\n"
    "           question to the router to the last batch in its worker's ring. 20 queries before 20 workers of four\n"
    "           classes, shaped as in Kairos, of which all, half or one are idle; and with thousands of queries\n"
    "           waiting.\n"
    "Beside it  fcfs in the same dispatcher, and for deep queues a shorter one.\n"
    "Does not   have workers on other cores: what the misses on their rings cost, and waking them, is not in it.\n"
    "Method     One thread drives dispatcher and workers step by step; routers take turns, a window each. Medians\n"
    "           over windows of each window's median and 99th percentile, rounded up to the histogram's buckets, 1/16\n"
    "           apart.";

enum { WORKERS = 20, QUERIES = 20, CLASSES = 4, SAMPLES_MAX = 1 << 16, SHALLOW = 3000, DEEP = 17000, DEEP_SAMPLES = 1500 };

static const uint16_t classes[WORKERS] = {0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3};
static const char *const routers[] = {"fcfs", "matching", "laxity"};
enum { ROUTERS = LEAT_COUNT_OF(routers) };

static uint64_t samples_ns[SAMPLES_MAX];
static uint64_t before[LEAT_HISTOGRAM_BUCKETS];
static uint64_t random_state = 1;

static uint64_t
below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static uint32_t
query_items(void)
{
    const uint64_t r = 1 + below(99);
    return (uint32_t)(r <= 8 ? 1 + below(99) : r <= 30 ? 200 + below(400) : r <= 35 ? 600 + below(400) : 100 + below(100));
}

static void
start(const struct leat_router *router, uint32_t sessions)
{
    const struct steps_options options = {
        .worker_count = WORKERS,
        .classes = classes,
        .worker_depth = 1,
        .sessions = sessions,
        .router = router,
        .selector = &leat_selector_single,
        .latency_ns = {20000000, 15000000, 18000000, 25000000},
        .per_item_ns = {100000, 350000, 300000, 500000},
        .real_clock = true,
    };
    steps_start(&options);
}

/* How long the round's decisions took in all. */
static uint64_t
timed_round(void)
{
    const struct leat_histogram *times = leat_dispatcher_decision_times(steps.dispatcher);
    uint64_t sum_ns = 0;

    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        before[b] = atomic_load_explicit(&times->counts[b], memory_order_relaxed);
    }
    steps_round(1000);
    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        sum_ns += leat_histogram_top(b) * (atomic_load_explicit(&times->counts[b], memory_order_relaxed) - before[b]);
    }
    return sum_ns;
}

/* All workers run all that there is. */
static void
finish_all(void)
{
    bool any = true;

    while (any) {
        any = false;
        for (uint32_t w = 0; w < WORKERS; w++) {
            any = steps_run(w) || any;
        }
        steps_round(1000);
    }
    LEAT_ASSERT(steps.app.running == 0 && leat_waiting_total(steps.app.waiting) == 0);
}

/* QUERIES come at once to WORKERS, of which `busy` have work: whichever the router gave it to. */
static struct bench_latency
measure_arrivals(const struct bench_options *options, const struct leat_router *router, uint32_t busy)
{
    struct leat_wire_response ignored;
    uint32_t count = 0;

    start(router, 1);
    const uint64_t end_ns = leat_clock_now(&steps.tables.clock) + options->window_ns;
    do {
        for (uint32_t q = 0; q < busy; q++) {
            steps_submit(q, query_items(), 350000);
            steps_round(1000);
        }
        for (uint32_t q = 0; q < QUERIES; q++) {
            steps_submit(WORKERS + q, query_items(), 350000);
        }
        samples_ns[count++] = timed_round();
        finish_all();
        for (uint32_t q = 0; q < WORKERS + QUERIES; q++) {
            (void)steps_answer(q, &ignored);
        }
    } while (leat_clock_now(&steps.tables.clock) < end_ns && count < SAMPLES_MAX);
    steps_stop();
    return bench_order(samples_ns, count);
}

/* Thousands wait; one worker after the other becomes free. */
static struct bench_latency
measure_deep(const struct bench_options *options, const struct leat_router *router, uint32_t waiting)
{
    const uint32_t samples = options->smoke ? 20 : DEEP_SAMPLES;

    start(router, (waiting + STEPS_SLOTS - 1) / STEPS_SLOTS);
    for (uint32_t q = 0; q < waiting; q++) {
        steps_submit(q, query_items(), 0);
    }
    for (uint32_t r = 0; r < STEPS_SLOTS / 32; r++) {
        steps_round(1000);
    }
    LEAT_ASSERT(leat_waiting_total(steps.app.waiting) == waiting - WORKERS);
    for (uint32_t i = 0; i < samples; i++) {
        LEAT_MUST(steps_run(i % WORKERS));
        samples_ns[i] = timed_round();
    }
    LEAT_ASSERT(leat_waiting_total(steps.app.waiting) == waiting - WORKERS - samples);
    finish_all();
    steps_stop();
    return bench_order(samples_ns, samples);
}

static void
print_rows(const struct bench_options *options, const char *subject, const double *median, const double *high,
           const double *ratio, const char *peer, double goal_us)
{
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "p50", .unit = "us", .windows = options->windows,
                                             .value = bench_median(median, options->windows) / 1e3, .peer = peer,
                                             .ratio = ratio != NULL ? bench_median(ratio, options->windows) : 0});
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "p99", .unit = "us", .windows = options->windows,
                                             .value = bench_median(high, options->windows) / 1e3,
                                             .goal = goal_us > 0 ? BENCH_AT_MOST : BENCH_NO_GOAL, .target = goal_us});
}

static double median[ROUTERS][BENCH_WINDOWS_MAX], high[ROUTERS][BENCH_WINDOWS_MAX], ratio[ROUTERS][BENCH_WINDOWS_MAX];

static void
compare_routers(const struct bench_options *options, uint32_t busy, const char *name)
{
    char subject[96];

    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t r = 0; r < ROUTERS; r++) {
            const struct bench_latency latency = measure_arrivals(options, leat_router_find(routers[r]), busy);
            median[r][w] = (double)latency.p50;
            high[r][w] = (double)latency.p99;
            ratio[r][w] = median[r][w] / median[0][w];
        }
    }
    for (uint32_t r = 0; r < ROUTERS; r++) {
        (void)snprintf(subject, sizeof(subject), "%s, 20 x 20, %s", routers[r], name);
        print_rows(options, subject, median[r], high[r], r == 0 ? NULL : ratio[r], r == 0 ? NULL : "fcfs",
                   r == 0 ? 0 : 10);
    }
}

static void
compare_depths(const struct bench_options *options, const char *router)
{
    static const uint32_t depths[] = {SHALLOW, DEEP};
    char subject[96];

    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t d = 0; d < LEAT_COUNT_OF(depths); d++) {
            const struct bench_latency latency = measure_deep(options, leat_router_find(router), depths[d]);
            median[d][w] = (double)latency.p50;
            high[d][w] = (double)latency.p99;
            ratio[d][w] = median[d][w] / median[0][w];
        }
    }
    for (uint32_t d = 0; d < LEAT_COUNT_OF(depths); d++) {
        (void)snprintf(subject, sizeof(subject), "%s, %u wait, one idle", router, depths[d]);
        print_rows(options, subject, median[d], high[d], d == 0 ? NULL : ratio[d], d == 0 ? NULL : "the shorter queue", 0);
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "dispatch", .windows = 8, .window_ns = 100000000};
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    compare_routers(&options, 0, "all idle");
    compare_routers(&options, WORKERS / 2, "half idle");
    compare_routers(&options, WORKERS - 1, "one idle");
    for (uint32_t r = 0; r < ROUTERS; r++) {
        compare_depths(&options, routers[r]);
    }
    bench_note_load(&options);
    return 0;
}
