/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/profile.h"

static const char measures[] =
    "Measures   What a decision looks up: the predicted time of a batch, among as many profiles as fill 512 KiB, of batch\n"
    "           sizes between knots, each lookup naming the next.\n"
    "Beside it  Dependent loads, one a cache line, in random order through 256 KiB: what the second-level cache gives.\n"
    "Does not   say what a decision costs in whole; the round trip in bench_roundtrip holds one.\n"
    "Method     One thread, the two taking turns, a window each; ratios are medians over rounds.";

enum { TABLE_BYTES = 512 * 1024, CHAIN_BYTES = 256 * 1024, BLOCK = 4096, ITEMS = 64 };
enum { PROFILES = TABLE_BYTES / sizeof(struct leat_profile), LINES = CHAIN_BYTES / LEAT_CACHE_LINE };

struct line {
    _Alignas(LEAT_CACHE_LINE) uint32_t next;
};

static struct leat_profile profiles[PROFILES];
static struct line lines[LINES];
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

static void
make_profiles(uint64_t *random)
{
    for (uint32_t p = 0; p < PROFILES; p++) {
        const uint64_t base_ns = 1000 + draw(random) % 1000000, item_ns = 1 + draw(random) % 100000;
        for (uint32_t items = 1; items <= ITEMS; items *= 2) {
            leat_profile_set(&profiles[p], items, base_ns + item_ns * items);
        }
    }
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

static double
lookup_window(const struct leat_clock *clock, uint64_t window_ns)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0, last = 1;

    while (now_ns - start_ns < window_ns) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const uint32_t mixed = (uint32_t)last * UINT32_C(2654435761) + i;
            const uint32_t which = (uint32_t)((uint64_t)mixed * PROFILES >> 32);
            last = leat_profile_predict(&profiles[which], 1 + (mixed & (ITEMS - 1)));
        }
        count += BLOCK;
        now_ns = leat_clock_now(clock);
    }
    sink = last;
    return (double)(now_ns - start_ns) / (double)count;
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "lookup", .windows = 20, .window_ns = 50000000};
    static double chain[BENCH_WINDOWS_MAX], lookup[BENCH_WINDOWS_MAX], ratio[BENCH_WINDOWS_MAX];
    struct leat_clock clock;
    uint64_t random = 1;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_chain(&random);
    make_profiles(&random);
    for (uint32_t w = 0; w < options.windows; w++) {
        chain[w] = chain_window(&clock, options.window_ns);
        lookup[w] = lookup_window(&clock, options.window_ns);
        ratio[w] = lookup[w] / chain[w];
    }
    bench_print(&options, &(struct bench_row){.subject = "dependent load, 256 KiB", .metric = "mean",
                                              .value = bench_median(chain, options.windows), .unit = "ns",
                                              .windows = options.windows});
    bench_print(&options, &(struct bench_row){.subject = "profile lookup, 512 KiB", .metric = "mean",
                                              .value = bench_median(lookup, options.windows), .unit = "ns",
                                              .windows = options.windows, .peer = "dependent load, 256 KiB",
                                              .ratio = bench_median(ratio, options.windows), .goal = BENCH_AT_MOST,
                                              .target = 2.5});
    bench_note_load(&options);
    return 0;
}
