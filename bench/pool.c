/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/pool.h"
#include "tests/sched/kairos.h"

static const char measures[] =
    "Measures   Time of planning a pool on one core, for the five models and four types of instances of the Kairos paper:\n"
    "           all mixes that the budget buys, their bounds and ranks, and the choice; for each model anew.\n"
    "Beside it  qsort of the C library on the same candidates with their bounds: sorting alone.\n"
    "Does not   measure any mix: what a search costs is the evaluator's time.\n"
    "Method     One thread, the two taking turns, a window each; medians over windows, and the worst window.";

enum { CANDIDATES_MAX = 1 << 15 };

static struct kairos kairos;
static struct leat_pool_candidate unsorted[KAIROS_MODELS][CANDIDATES_MAX], candidates[CANDIDATES_MAX];
static volatile uint64_t sink;

static uint32_t
plan(const struct leat_pool_space *space, uint32_t model)
{
    uint32_t count;
    LEAT_MUST(leat_pool_enumerate(space, candidates, CANDIDATES_MAX, &count) == LEAT_OK);
    LEAT_MUST(leat_pool_rank(&kairos.rates[model], candidates, count) == LEAT_OK);
    sink = leat_pool_select(candidates, count, space->base)->cost;
    return count;
}

static double
plan_window(const struct leat_clock *clock, uint64_t window_ns, const struct leat_pool_space *space)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    while (now_ns - start_ns < window_ns) {
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            (void)plan(space, m);
        }
        count++;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

static int
compare(const void *left, const void *right)
{
    const struct leat_pool_candidate *a = left, *b = right;
    if (a->bound_qps != b->bound_qps) {
        return a->bound_qps > b->bound_qps ? -1 : 1;
    }
    return a->cost < b->cost ? -1 : a->cost > b->cost;
}

static double
sort_window(const struct leat_clock *clock, uint64_t window_ns, uint32_t mixes)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    while (now_ns - start_ns < window_ns) {
        for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
            memcpy(candidates, unsorted[m], mixes * sizeof(*candidates));
            qsort(candidates, mixes, sizeof(*candidates), compare);
            sink = candidates[0].cost;
        }
        count++;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

static void
measure_budget(const struct bench_options *options, const struct leat_clock *clock, uint64_t budget)
{
    static double ours[BENCH_WINDOWS_MAX], sorting[BENCH_WINDOWS_MAX], ratio[BENCH_WINDOWS_MAX];
    struct leat_pool_space space = kairos.space;
    char subject[64], peer[64];
    double worst = 0;
    uint32_t count = 0;

    space.budget = budget;
    for (uint32_t m = 0; m < KAIROS_MODELS; m++) {
        LEAT_MUST(leat_pool_enumerate(&space, unsorted[m], CANDIDATES_MAX, &count) == LEAT_OK);
        for (uint32_t i = 0; i < count; i++) {
            unsorted[m][i].bound_qps = leat_pool_bound(&kairos.rates[m], &unsorted[m][i].mix);
        }
        LEAT_MUST(plan(&space, m) == count);
        for (uint32_t i = 1; i < count; i++) {
            LEAT_ASSERT(compare(&candidates[i - 1], &candidates[i]) <= 0);
        }
    }
    for (uint32_t w = 0; w < options->windows; w++) {
        ours[w] = plan_window(clock, options->window_ns, &space);
        sorting[w] = sort_window(clock, options->window_ns, count);
        ratio[w] = ours[w] / sorting[w];
        worst = ours[w] > worst ? ours[w] : worst;
    }
    (void)snprintf(subject, sizeof(subject), "plan of %u mixes for %d models", count, KAIROS_MODELS);
    (void)snprintf(peer, sizeof(peer), "qsort of %u mixes for %d models", count, KAIROS_MODELS);
    bench_print(options, &(struct bench_row){.subject = peer, .metric = "mean", .unit = "us",
                                             .value = bench_median(sorting, options->windows) / 1e3,
                                             .windows = options->windows});
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "mean", .unit = "us",
                                             .value = bench_median(ours, options->windows) / 1e3,
                                             .windows = options->windows, .peer = peer,
                                             .ratio = bench_median(ratio, options->windows)});
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "worst window", .unit = "us",
                                             .value = worst / 1e3, .windows = options->windows,
                                             .goal = count == KAIROS_MIXES ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                             .target = 5000});
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "pool", .windows = 20, .window_ns = 50000000};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    kairos_read(&kairos);
    measure_budget(&options, &clock, 2500000);
    measure_budget(&options, &clock, 10000000);
    bench_note_load(&options);
    return 0;
}
