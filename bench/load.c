/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/load.h"

static const char measures[] =
    "Measures   What an arrival costs that is told to the load monitor, and what the rate costs that is asked of it after\n"
    "           each, at 4000 arrivals a second, half of the gaps thrice as long as the others, with a window of 500 ms.\n"
    "Beside it  The times of all arrivals in the window, in a ring: exact, in as much memory as there are arrivals.\n"
    "Does not   take the time: that comes in as an argument.\n"
    "Method     One thread, the four taking turns, a window each; ratios are medians over rounds.";

enum { BLOCK = 4096, RING = 1 << 16 };

static uint64_t gaps_ns[BLOCK];
static uint64_t ring_ns[RING];
static struct leat_load load;
static uint32_t head, tail;
static uint64_t load_ns, exact_ns; /* where each one's time line stands */
static volatile uint32_t sink;

static void
make_gaps(void)
{
    uint64_t random = 1;
    for (uint32_t i = 0; i < BLOCK; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        gaps_ns[i] = 125000 + (random >> 63) * 250000; /* 250 us on average */
    }
}

static void
load_block(bool ask)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        load_ns += gaps_ns[i];
        leat_load_arrive(&load, load_ns, 1);
        sum += ask ? leat_load_rate_qps(&load, load_ns) : 0;
    }
    sink = sum;
}

static uint32_t
exact_count(void)
{
    while (exact_ns - ring_ns[head % RING] >= LEAT_LOAD_WINDOW_NS) {
        head++;
    }
    return tail - head;
}

static void
exact_block(bool ask)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        exact_ns += gaps_ns[i];
        ring_ns[tail++ % RING] = exact_ns;
        (void)exact_count();
        sum += ask ? exact_count() * (uint32_t)(1000000000 / LEAT_LOAD_WINDOW_NS) : 0;
    }
    sink = sum;
}

static double
window(const struct leat_clock *clock, uint64_t window_ns, void (*block)(bool), bool ask)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;

    while (now_ns - start_ns < window_ns) {
        block(ask);
        count += BLOCK;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

/* What is measured must be right: the two agree. */
static void
check(void)
{
    load_block(false);
    exact_block(false);
    const int64_t apart = (int64_t)leat_load_rate_qps(&load, load_ns) - 2 * (int64_t)exact_count();
    LEAT_ASSERT(apart > -70 && apart < 70); /* a bucket's arrivals */
}

int
main(int argc, char **argv)
{
    static double ours[2][BENCH_WINDOWS_MAX], exact[2][BENCH_WINDOWS_MAX], ratio[2][BENCH_WINDOWS_MAX];
    static const char *const metrics[] = {"an arrival", "an arrival and the rate"};
    struct bench_options options = {.name = "load", .windows = 50, .window_ns = 10000000};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    make_gaps();
    leat_load_init(&load, LEAT_LOAD_WINDOW_NS, 0);
    check();
    for (uint32_t w = 0; w < options.windows; w++) {
        for (uint32_t ask = 0; ask < 2; ask++) {
            ours[ask][w] = window(&clock, options.window_ns, load_block, ask);
            exact[ask][w] = window(&clock, options.window_ns, exact_block, ask);
            ratio[ask][w] = ours[ask][w] / exact[ask][w];
        }
    }
    for (uint32_t ask = 0; ask < 2; ask++) {
        bench_print(&options, &(struct bench_row){.subject = "sched/load.h", .metric = metrics[ask],
                                                  .value = bench_median(ours[ask], options.windows), .unit = "ns",
                                                  .windows = options.windows, .peer = "all times in a ring",
                                                  .ratio = bench_median(ratio[ask], options.windows)});
        bench_print(&options, &(struct bench_row){.subject = "all times in a ring", .metric = metrics[ask],
                                                  .value = bench_median(exact[ask], options.windows), .unit = "ns",
                                                  .windows = options.windows});
    }
    bench_note_load(&options);
    return 0;
}
