/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/clock.h"
#include "bench/support.h"
#include "sched/autoscale.h"
#include "tests/sched/autoscale_ilp.h"
#include "tests/sched/autoscale_world.h"

static const char measures[] =
    "Measures   Time of one decision about the variants of 1 and of 22 applications on one core, where there is enough for all and where\n"
    "           there is not: INFaaS' heuristic, and leat's search.\n"
    "Beside it  GLPK on the same integer programs.\n"
    "Does not   say what the answers cost: test_autoscale_ilp does.\n"
    "Method     One thread, all taking turns, a window each, of the same random worlds; medians over windows of the mean decision.";

enum { WORLDS = 8, KINDS = 3, NODES_MAX = 10000 };
static const char *const kinds[KINDS] = {"GLPK", "heuristic", "search"};
static struct autoscale_world worlds[WORLDS];
static const struct leat_autoscale_options ours = LEAT_AUTOSCALE_OPTIONS_INIT;

static void
decide(uint32_t kind, struct autoscale_world *world)
{
    switch (kind) {
    case 0: (void)autoscale_ilp(&ours, &world->box, world->applications, world->count, true, NODES_MAX); break;
    case 1: leat_autoscale_aim_paper(&ours, &world->box, world->applications, world->count); break;
    default: leat_autoscale_solve(&ours, &world->box, world->applications, world->count, true); break;
    }
}

/* Every world at least once, so that all kinds decide the same. */
static double
window(const struct leat_clock *clock, uint64_t window_ns, uint32_t kind)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;

    while (count == 0 || now_ns - start_ns < window_ns) {
        for (uint32_t w = 0; w < WORLDS; w++) {
            decide(kind, &worlds[w]);
        }
        count += WORLDS;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

static void
measure(const struct bench_options *options, const struct leat_clock *clock, uint32_t applications, uint32_t flags)
{
    static double means[KINDS][BENCH_WINDOWS_MAX], ratios[KINDS][BENCH_WINDOWS_MAX];
    uint64_t random_state = 1;

    for (uint32_t w = 0; w < WORLDS; w++) {
        autoscale_world_draw(&worlds[w], applications, flags, &random_state);
    }
    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            means[kind][w] = window(clock, options->window_ns, kind);
            ratios[kind][w] = means[kind][w] / means[0][w];
        }
    }
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        char subject[64];
        (void)snprintf(subject, sizeof(subject), "%u, %s, %s", applications, flags & AUTOSCALE_SCARCE ? "scarce" : "plenty", kinds[kind]);
        bench_print(options, &(struct bench_row){.subject = subject,
                                                 .metric = "mean",
                                                 .value = bench_median(means[kind], options->windows) / 1e3,
                                                 .unit = "us",
                                                 .windows = options->windows,
                                                 .peer = kind > 0 ? kinds[0] : NULL,
                                                 .ratio = kind > 0 ? bench_median(ratios[kind], options->windows) : 0});
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "autoscale", .windows = 5, .window_ns = 20000000};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    for (uint32_t applications = 1; applications <= (options.smoke ? 1 : 22); applications += 21) {
        measure(&options, &clock, applications, 0);
        measure(&options, &clock, applications, AUTOSCALE_SCARCE);
    }
    bench_note_load(&options);
    return 0;
}
