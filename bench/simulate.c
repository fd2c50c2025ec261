/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "tools/simulate/simulate.h"

static const char measures[] =
    "Measures   Queries that one core simulates in a second, by router: the Kairos paper's RM2 on 12 workers of its\n"
    "           four types of instances, 1 to 1000 items, at nine tenths of the rate that laxity carries within 350\n"
    "           ms.\n"
    "Beside it  The waiting times alone: each query in turn to the worker that is free first. No router, no events,\n"
    "           no queue.\n"
    "Does not   read files or draw workloads: both are there before.\n"
    "Method     One thread, all taking turns, a run of 20000 queries after another for a window each; medians over\n"
    "           windows. Times are the lines that were fitted to the paper's measurements, 99 samples of each size\n"
    "           around them.";

enum { CLASSES = 4, SIZES = 100, STEP = 10, SAMPLES = 99, QUERIES = 20000, WORKERS = 12, ROUTERS_MAX = 16 };

static const char recursion_name[] = "waiting times alone";
static const struct leat_pool_mix mix = {{2, 2, 4, 4}};
/* g4dn.xlarge, c5n.2xlarge, r5n.large, t3.xlarge */
static const double fixed_ms[CLASSES] = {3.70, 2.60, 3.90, 2.83};
static const double item_ms[CLASSES] = {0.257, 0.387, 0.401, 0.883};

static struct simulate_table table;
static struct simulate_workload workload;
static struct simulate_run *simulation;
static volatile uint64_t sink;

static void
make_table(void)
{
    static uint32_t sizes[SIZES];
    static uint16_t row_of_items[SIZES * STEP + 1];
    static uint64_t samples_ns[CLASSES * SIZES * SAMPLES], mean_ns[CLASSES * SIZES];

    table = (struct simulate_table){.class_count = CLASSES, .size_count = SIZES, .sizes = sizes,
                                    .row_of_items = row_of_items, .items_max = SIZES * STEP, .sample_count = SAMPLES,
                                    .samples_ns = samples_ns, .mean_ns = mean_ns};
    for (uint32_t items = 1; items <= table.items_max; items++) {
        row_of_items[items] = (uint16_t)((items - 1) / STEP);
    }
    for (uint32_t cell = 0; cell < CLASSES * SIZES; cell++) {
        const uint32_t row = cell % SIZES;
        sizes[row] = (row + 1) * STEP;
        mean_ns[cell] = (uint64_t)(1e6 * (fixed_ms[cell / SIZES] + item_ms[cell / SIZES] * sizes[row]));
        for (uint32_t s = 0; s < SAMPLES; s++) { /* 5 % to either side, rising */
            samples_ns[cell * SAMPLES + s] = mean_ns[cell] / 100 * 95 + mean_ns[cell] / 10 * s / (SAMPLES - 1);
        }
    }
}

/* Shaped as in the paper: mostly 100 to 200 items, some few, some up to all. */
static void
make_workload(void)
{
    static struct leat_pool_size sizes[SIZES * STEP];
    for (uint32_t i = 0; i < LEAT_COUNT_OF(sizes); i++) {
        const uint32_t items = i + 1;
        sizes[i].items = items;
        sizes[i].weight = items < 100 ? 8.0 / 99 : items < 200 ? 65.0 / 100 : items < 600 ? 22.0 / 400 : 5.0 / 400;
    }
    const struct simulate_workload_options options = {.seed = 1, .query_count = QUERIES, .arrivals = ARRIVALS_POISSON,
                                                      .sizes = {.sizes = sizes, .count = LEAT_COUNT_OF(sizes)}};
    LEAT_MUST(simulate_workload_make(&options, &workload) == LEAT_OK);
}

/* Nanoseconds a query. */
static double
run_window(const struct leat_clock *clock, uint64_t window_ns, const struct simulate_options *options)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    struct simulate_result result;
    while (now_ns - start_ns < window_ns) {
        LEAT_MUST(simulate_run(simulation, options, &result) == LEAT_OK);
        LEAT_ASSERT(result.queries == QUERIES);
        count += result.queries;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

static double
recursion_window(const struct leat_clock *clock, uint64_t window_ns, double rate_qps)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    while (now_ns - start_ns < window_ns) {
        uint64_t free_ns[WORKERS] = {0}, waited_ns = 0;
        for (uint32_t i = 0; i < QUERIES; i++) {
            const uint64_t at_ns = (uint64_t)(workload.arrival_s[i] * (1e9 / rate_qps));
            uint32_t w = 0;
            for (uint32_t other = 1; other < WORKERS; other++) {
                w = free_ns[other] < free_ns[w] ? other : w;
            }
            const uint32_t class = w < 2 ? 0 : w < 4 ? 1 : w < 8 ? 2 : 3;
            const size_t cell = class * SIZES + table.row_of_items[workload.items[i]];
            const uint64_t sample = (uint64_t)workload.luck[i] * SAMPLES >> 32;
            const uint64_t begin_ns = free_ns[w] > at_ns ? free_ns[w] : at_ns;
            waited_ns += begin_ns - at_ns;
            free_ns[w] = begin_ns + table.samples_ns[cell * SAMPLES + sample];
        }
        sink = waited_ns;
        count += QUERIES;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

int
main(int argc, char **argv)
{
    static double recursion[BENCH_WINDOWS_MAX];
    static double ours[ROUTERS_MAX][BENCH_WINDOWS_MAX], ratio[ROUTERS_MAX][BENCH_WINDOWS_MAX];
    struct bench_options options = {.name = "simulate", .windows = 20, .window_ns = 50000000};
    struct leat_clock clock;
    uint32_t routers = 0;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_table();
    make_workload();
    LEAT_MUST(simulate_run_create(&simulation) == LEAT_OK);
    struct simulate_options run = {.table = &table, .workload = &workload, .router = &leat_router_laxity, .mix = mix,
                                   .objective_ns = 350000000, .percentile = 95, .violation_share = 0.01};
    LEAT_MUST(simulate_throughput(simulation, &run, 0.01, &run.rate_qps) == LEAT_OK && run.rate_qps > 0);
    run.rate_qps *= 0.9;
    while (routers < ROUTERS_MAX && leat_router_at(routers) != NULL) {
        routers++;
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        recursion[w] = recursion_window(&clock, options.window_ns, run.rate_qps);
        for (uint32_t r = 0; r < routers; r++) {
            run.router = leat_router_at(r);
            ours[r][w] = run_window(&clock, options.window_ns, &run);
            ratio[r][w] = ours[r][w] / recursion[w];
        }
    }
    bench_print(&options, &(struct bench_row){.subject = recursion_name, .metric = "throughput",
                                              .value = 1e3 / bench_median(recursion, options.windows),
                                              .unit = "million/s", .windows = options.windows});
    for (uint32_t r = 0; r < routers; r++) {
        const struct leat_router *router = leat_router_at(r);
        bench_print(&options, &(struct bench_row){.subject = router->name, .metric = "throughput",
                                                  .value = 1e3 / bench_median(ours[r], options.windows),
                                                  .unit = "million/s", .windows = options.windows,
                                                  .goal = router == &leat_router_fcfs ? BENCH_AT_LEAST : BENCH_NO_GOAL,
                                                  .target = 2});
        bench_print(&options, &(struct bench_row){.subject = router->name, .metric = "time of a query",
                                                  .value = bench_median(ours[r], options.windows), .unit = "ns",
                                                  .windows = options.windows, .peer = recursion_name,
                                                  .ratio = bench_median(ratio[r], options.windows)});
    }
    simulate_workload_free(&workload);
    simulate_run_destroy(simulation);
    bench_note_load(&options);
    return 0;
}
