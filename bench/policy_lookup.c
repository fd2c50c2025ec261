/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/policy_table.h"

static const char measures[] =
    "Measures   What a policy that was solved ahead costs a decision: an action by rate, items that wait, idle workers and\n"
    "           slack, among 20 rungs that fill 512 KiB. States are random, each named by the action before it. A reader for\n"
    "           each rung in turn, as many applications would be; or one reader whose rate changes each 64th time.\n"
    "Beside it  Dependent loads, one a cache line, in random order through 512 KiB: what the second-level cache gives.\n"
    "Does not   say what a decision costs in whole: counting what waits and taking the batch come on top.\n"
    "Method     One thread, the three taking turns, a window each; ratios are medians over rounds.";

enum { RUNGS = 20, VARIANTS = 9, RATE_STEP_QPS = 200, WORKERS = 60, BLOCK = 4096, STAY = 64 };
enum { QUEUE_MAX = 64, BINS = 100, LEVELS = 20, HELD_MAX = 3, CHAIN_BYTES = 512 * 1024 };
enum { LINES = CHAIN_BYTES / LEAT_CACHE_LINE };
#define OBJECTIVE_NS UINT64_C(150000000)

struct line {
    _Alignas(LEAT_CACHE_LINE) uint32_t next;
};

static struct line lines[LINES];
static _Alignas(LEAT_CACHE_LINE) uint8_t block[2 * CHAIN_BYTES];
static struct leat_policy_lookup readers[RUNGS];
static volatile uint64_t sink;

static uint64_t
draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* One cycle through all lines (Sattolo's shuffle). */
static void
make_chain(uint64_t *random)
{
    static uint32_t order[LINES];
    for (uint32_t i = 0; i < LINES; i++) {
        order[i] = i;
    }
    for (uint32_t i = LINES - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)(draw(random) % i), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (uint32_t i = 0; i < LINES; i++) {
        lines[order[i]].next = order[(i + 1) % LINES];
    }
}

static const struct leat_policy *
make_policy(uint64_t *random)
{
    const struct leat_policy shape = {.kind = LEAT_POLICY_POOL,
                                      .objective_ns = OBJECTIVE_NS,
                                      .worker_count = WORKERS,
                                      .rung_count = RUNGS,
                                      .variant_count = VARIANTS,
                                      .queue_max = QUEUE_MAX,
                                      .slack_bins = BINS,
                                      .idle_levels = LEVELS,
                                      .held_max = HELD_MAX,
                                      .latency_items = 1};
    size_t bytes;

    LEAT_MUST(leat_policy_bytes(&shape, &bytes) == LEAT_OK && bytes <= sizeof(block));
    struct leat_policy *policy = leat_policy_init(block, &shape);
    for (uint32_t v = 0; v < VARIANTS; v++) {
        const char name[] = {(char)('a' + v), '\0'};
        const uint64_t latency_ns = 20000000 * (v + 1);
        LEAT_MUST(leat_policy_set_variant(policy, v, name, 500000 + 50000 * v, &latency_ns) == LEAT_OK);
    }
    for (uint32_t r = 0; r < RUNGS; r++) {
        struct leat_policy_rung rung = *leat_policy_rung(policy, r);
        rung.rate_qps = (r + 1) * RATE_STEP_QPS;
        leat_policy_set_rung(policy, r, &rung);
        for (uint32_t row = 1; row < leat_policy_row_count(policy); row++) {
            for (uint32_t bin = 0; bin <= BINS; bin++) {
                const struct leat_policy_action action = {.variant = (uint32_t)(draw(random) % VARIANTS),
                                                          .items = 1 + (uint32_t)(draw(random) % row) % 32};
                leat_policy_set_action(policy, r, row, bin, action);
            }
        }
    }
    LEAT_MUST(leat_policy_seal(policy) == LEAT_OK);
    return policy;
}

static double
chain_window(const struct leat_clock *clock, uint64_t window_ns)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    uint32_t at = 0;

    while (now_ns - start_ns < window_ns) {
        for (int i = 0; i < BLOCK; i++) {
            at = lines[at].next;
        }
        count += BLOCK;
        now_ns = leat_clock_now(clock);
    }
    sink = at;
    return (double)(now_ns - start_ns) / (double)count;
}

/* `mixed` as a state: 1..128 items, 0..63 idle, any slack up to 1.17 of the objective. */
static struct leat_policy_action
look_up(const struct leat_policy_lookup *reader, uint64_t mixed)
{
    const uint32_t waiting = 1 + (mixed >> 12 & 127), idle = mixed >> 20 & 63;
    return leat_policy_action(reader, waiting, idle, (mixed >> 30 & 0xffffff) * 10);
}

static uint64_t
mix(uint64_t last, uint32_t i)
{
    return (last + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static double
spread_window(const struct leat_clock *clock, uint64_t window_ns)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0, last = 1;

    while (now_ns - start_ns < window_ns) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const uint64_t mixed = mix(last, i);
            const struct leat_policy_action action = look_up(&readers[i % RUNGS], mixed);
            last = action.variant + action.items;
        }
        count += BLOCK;
        now_ns = leat_clock_now(clock);
    }
    sink = last;
    return (double)(now_ns - start_ns) / (double)count;
}

static double
turning_window(const struct leat_clock *clock, uint64_t window_ns)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0, last = 1;
    struct leat_policy_lookup *reader = &readers[0];

    while (now_ns - start_ns < window_ns) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const uint64_t mixed = mix(last, i);
            leat_policy_follow(reader, (i / STAY * 7 % RUNGS + 1) * RATE_STEP_QPS);
            const struct leat_policy_action action = look_up(reader, mixed);
            last = action.variant + action.items;
        }
        count += BLOCK;
        now_ns = leat_clock_now(clock);
    }
    leat_policy_follow(reader, RATE_STEP_QPS);
    sink = last;
    return (double)(now_ns - start_ns) / (double)count;
}

static void
print(const struct bench_options *options, const char *subject, const double *values, const double *ratios)
{
    bench_print(options, &(struct bench_row){.subject = subject,
                                             .metric = "mean",
                                             .unit = "ns",
                                             .windows = options->windows,
                                             .value = bench_median(values, options->windows),
                                             .peer = ratios != NULL ? "dependent load, 512 KiB" : NULL,
                                             .ratio = ratios != NULL ? bench_median(ratios, options->windows) : 0,
                                             .goal = ratios != NULL ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                             .target = 2.5});
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "policy_lookup", .windows = 20, .window_ns = 50000000};
    static double chain[BENCH_WINDOWS_MAX], spread[BENCH_WINDOWS_MAX], turning[BENCH_WINDOWS_MAX];
    static double spread_ratio[BENCH_WINDOWS_MAX], turning_ratio[BENCH_WINDOWS_MAX];
    struct leat_clock clock;
    uint64_t random = 1;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_chain(&random);
    const struct leat_policy *policy = make_policy(&random);
    for (uint32_t r = 0; r < RUNGS; r++) {
        leat_policy_lookup_init(&readers[r], policy, 0);
        leat_policy_follow(&readers[r], (r + 1) * RATE_STEP_QPS);
        LEAT_ASSERT(readers[r].rung == r);
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        chain[w] = chain_window(&clock, options.window_ns);
        spread[w] = spread_window(&clock, options.window_ns);
        turning[w] = turning_window(&clock, options.window_ns);
        spread_ratio[w] = spread[w] / chain[w];
        turning_ratio[w] = turning[w] / chain[w];
    }
    print(&options, "dependent load, 512 KiB", chain, NULL);
    print(&options, "policy, a reader each rung", spread, spread_ratio);
    print(&options, "policy, turning rungs", turning, turning_ratio);
    bench_note(&options, "the policy has %llu KiB", (unsigned long long)(policy->bytes / 1024));
    bench_note_load(&options);
    return 0;
}
