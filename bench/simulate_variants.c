/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "tools/simulate/variants.h"

static const char measures[] =
    "Measures   Queries that one core simulates in a second where an application has variants: 60 workers, 9 variants\n"
    "           of 20 to 370 ms, objective 150 ms, Poisson arrivals at 800, 2000 and 3200 a second, by selector and router.\n"
    "Beside it  The waiting times alone: each query in turn to the worker that is free first, at 60 % load. No router,\n"
    "           no selector, no batches, no queue.\n"
    "Does not   read files; each run draws its arrivals and makes its policies anew.\n"
    "Method     One thread, all taking turns, runs of 5 s on the virtual clock for a window each; medians over windows.";

enum { WORKERS = 60, VARIANTS = 9, RATES = 3, CASES = 4 };

static const char recursion_name[] = "waiting times alone";
static const double rates_qps[RATES] = {800, 2000, 3200};
/* A batch of one, each further query, and accuracy; shaped as in RAMSIS (EuroSys 2024). */
static const struct {
    double first_ms, more_ms;
    uint32_t accuracy_ppm;
} shapes[VARIANTS] = {{22, 13, 580000},  {31, 17, 730000},  {54, 35, 777000},   {68, 55, 806000},  {81, 70, 820000},
                      {106, 100, 834000}, {117, 95, 842000}, {194, 138, 851000}, {367, 270, 858000}};
static const struct {
    const char *selector, *router;
} cases[CASES] = {{"jellyfish", "fcfs"}, {"jellyfish", "dealt"}, {"greedy", "fcfs"}, {"single", "fcfs"}};

static struct variants_row rows[VARIANTS];
static const struct variants_table table = {.count = VARIANTS, .rows = rows};
static struct variants_run *simulation;
static volatile uint64_t sink;

static void
make_table(void)
{
    for (uint32_t v = 0; v < VARIANTS; v++) {
        (void)snprintf(rows[v].name, sizeof(rows[v].name), "v%u", v);
        rows[v].accuracy_ppm = shapes[v].accuracy_ppm;
        for (uint32_t b = 0; b < VARIANTS_LATENCY_MAX; b++) {
            rows[v].latency_ns[b] = (uint64_t)(1e6 * (shapes[v].first_ms + shapes[v].more_ms * b));
        }
    }
}

/* Nanoseconds a query. */
static double
run_window(const struct leat_clock *clock, uint64_t window_ns, const struct variants_options *options)
{
    static struct variants_result result;
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;

    while (now_ns - start_ns < window_ns) {
        LEAT_MUST(variants_simulate(simulation, options, &result) == LEAT_OK);
        LEAT_ASSERT(result.served + result.waiting == result.arrived && result.served > 0);
        count += result.arrived;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

static double
recursion_window(const struct leat_clock *clock, uint64_t window_ns, double rate_qps)
{
    const uint64_t service_ns = (uint64_t)(0.6 * WORKERS * 1e9 / rate_qps);
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0, seed = 1;

    while (now_ns - start_ns < window_ns) {
        struct arrivals arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = rate_qps};
        uint64_t free_ns[WORKERS] = {0}, waited_ns = 0, at_ns = 0;
        arrivals_start(&arrivals, seed++);
        for (; at_ns < UINT64_C(5000000000); count++) {
            uint32_t w = 0;
            at_ns = (uint64_t)(arrivals_next(&arrivals) * 1e9);
            for (uint32_t other = 1; other < WORKERS; other++) {
                w = free_ns[other] < free_ns[w] ? other : w;
            }
            const uint64_t begin_ns = free_ns[w] > at_ns ? free_ns[w] : at_ns;
            waited_ns += begin_ns - at_ns;
            free_ns[w] = begin_ns + service_ns;
        }
        sink = waited_ns;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

int
main(int argc, char **argv)
{
    static double recursion[RATES][BENCH_WINDOWS_MAX];
    static double ours[CASES][RATES][BENCH_WINDOWS_MAX], ratio[CASES][RATES][BENCH_WINDOWS_MAX];
    struct bench_options options = {.name = "simulate_variants", .windows = 20, .window_ns = 50000000};
    struct leat_clock clock;
    char subject[64];
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_table();
    LEAT_MUST(variants_run_create(&simulation) == LEAT_OK);
    for (uint32_t w = 0; w < options.windows; w++) {
        for (uint32_t r = 0; r < RATES; r++) {
            recursion[r][w] = recursion_window(&clock, options.window_ns, rates_qps[r]);
            for (uint32_t c = 0; c < CASES; c++) {
                const struct variants_options run = {
                    .table = &table,
                    .router = leat_router_find(cases[c].router),
                    .selector = leat_selector_find(cases[c].selector),
                    .arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = rates_qps[r]},
                    .seed = w,
                    .worker_count = WORKERS,
                    .objective_ns = 150000000,
                    .duration_ns = UINT64_C(5000000000),
                };
                ours[c][r][w] = run_window(&clock, options.window_ns, &run);
                ratio[c][r][w] = ours[c][r][w] / recursion[r][w];
            }
        }
    }
    for (uint32_t r = 0; r < RATES; r++) {
        (void)snprintf(subject, sizeof(subject), "%s, %.0f/s", recursion_name, rates_qps[r]);
        bench_print(&options, &(struct bench_row){.subject = subject, .metric = "throughput",
                                                  .value = 1e3 / bench_median(recursion[r], options.windows),
                                                  .unit = "million/s", .windows = options.windows});
        for (uint32_t c = 0; c < CASES; c++) {
            (void)snprintf(subject, sizeof(subject), "%s, %s, %.0f/s", cases[c].selector, cases[c].router, rates_qps[r]);
            bench_print(&options, &(struct bench_row){.subject = subject, .metric = "throughput",
                                                      .value = 1e3 / bench_median(ours[c][r], options.windows),
                                                      .unit = "million/s", .windows = options.windows,
                                                      .goal = c == 0 ? BENCH_AT_LEAST : BENCH_NO_GOAL, .target = 2});
            bench_print(&options, &(struct bench_row){.subject = subject, .metric = "time of a query",
                                                      .value = bench_median(ours[c][r], options.windows), .unit = "ns",
                                                      .windows = options.windows, .peer = recursion_name,
                                                      .ratio = bench_median(ratio[c][r], options.windows)});
        }
    }
    variants_run_destroy(simulation);
    bench_note_load(&options);
    return 0;
}
