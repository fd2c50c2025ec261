/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The largest batch is the last one that did 5 % more items a second on some class of workers in time, or 8 where
 *          that is in time; it says what bounds it. A variant is kept if it is faster somewhere and hardly less accurate.
 * Method   Times from formulas whose answers are known; random times against the definition.
 */
#include <string.h>

#include <leat/tensor.h>

#include "runtime/variant_choice.h"
#include "tests/leat_test.h"

/* Each class takes once + each * items; p95 is an eighth more. */
struct shape {
    uint64_t once_ns, each_ns;
};

static struct leat_batch_choice
choose(const struct shape *shapes, uint32_t class_count, uint64_t latency_max_ns, uint64_t item_bytes, uint64_t bytes_max)
{
    struct leat_batch_choice choice = {
        .latency_max_ns = latency_max_ns, .bytes_max = bytes_max, .class_count = class_count};
    struct leat_batch_times times[LEAT_SCHED_CLASSES_MAX];
    bool more = true;

    for (uint32_t items = 1; more; items *= 2) {
        more = leat_batch_choice_fits(&choice, items, items * item_bytes);
        for (uint32_t c = 0; c < class_count; c++) {
            times[c].p50_ns = shapes[c].once_ns + shapes[c].each_ns * items;
            times[c].p95_ns = times[c].p50_ns * 9 / 8;
        }
        more = more && leat_batch_choice_take(&choice, items, times);
    }
    return choice;
}

static void
test_bounds(void)
{
    const struct shape even = {0, 1000}, once = {1000, 0}, both = {7000, 1000};
    struct leat_batch_choice choice = choose(&even, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == 8 && choice.bound == LEAT_BATCH_GAIN); /* two take twice as long */
    choice = choose(&even, 1, 4500, 1, UINT64_MAX);
    EXPECT(choice.items == 4 && choice.bound == LEAT_BATCH_LATENCY);
    choice = choose(&once, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == LEAT_ITEMS_MAX && choice.bound == LEAT_BATCH_LIMIT);
    /* 64 take 71, 128 take 135: 5.2 % faster; 256 take 263: 2.7 %. */
    choice = choose(&both, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == 128 && choice.bound == LEAT_BATCH_GAIN);
    /* 95 of 100 take 9/8 of 23 for 16, of 15 for 8. */
    choice = choose(&both, 1, 25875, 1, UINT64_MAX);
    EXPECT(choice.items == 16 && choice.bound == LEAT_BATCH_LATENCY);
    choice = choose(&both, 1, 25874, 1, UINT64_MAX);
    EXPECT(choice.items == 8 && choice.bound == LEAT_BATCH_LATENCY);
    choice = choose(&both, 1, UINT64_MAX, 100, 3200);
    EXPECT(choice.items == 32 && choice.bound == LEAT_BATCH_MEMORY);
    choice = choose(&both, 1, UINT64_MAX, 100, 3199);
    EXPECT(choice.items == 16 && choice.bound == LEAT_BATCH_MEMORY);
    choice = choose(&both, 1, 1, 100, 1); /* one item there must be, even late and large */
    EXPECT(choice.items == 1);
}

/* One class that gains is enough, unless it is the one that is late. */
static void
test_classes(void)
{
    const struct shape shapes[2] = {{0, 1000}, {7000, 1000}}, slow[2] = {{0, 200000}, {70000, 10000}};
    struct leat_batch_choice choice = choose(shapes, 2, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == 128 && choice.bound == LEAT_BATCH_GAIN);
    choice = choose(slow, 2, 100000, 1, UINT64_MAX); /* two take it 90 us, and an eighth */
    EXPECT(choice.items == 1 && choice.bound == LEAT_BATCH_LATENCY);
}

/* The answer is a power of two; up to it every step paid somewhere, and the next one did not. */
static void
test_random(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < 2000; round++) {
        struct shape shapes[3];
        const uint32_t classes = 1 + (uint32_t)(leat_test_random(&random) % 3);
        const uint64_t latency_ns = 1000 + leat_test_random(&random) % 1000000;
        for (uint32_t c = 0; c < classes; c++) {
            shapes[c] = (struct shape){leat_test_random(&random) % 100000, 1 + leat_test_random(&random) % 10000};
        }
        const struct leat_batch_choice choice = choose(shapes, classes, latency_ns, 1, UINT64_MAX);
        EXPECT(choice.items >= 1 && (choice.items & (choice.items - 1)) == 0);
        double best[3];
        for (uint32_t c = 0; c < classes; c++) {
            best[c] = (double)shapes[c].once_ns + (double)shapes[c].each_ns; /* for an item */
        }
        for (uint32_t items = 2; items <= 2 * choice.items && items <= LEAT_ITEMS_MAX; items *= 2) {
            bool paid = false, would_pay = false;
            for (uint32_t c = 0; c < classes; c++) {
                const uint64_t time_ns = shapes[c].once_ns + shapes[c].each_ns * items;
                const double each = (double)time_ns / items;
                const bool gains = each * 1.05 <= best[c] * (1 + 1e-12), in_time = time_ns * 9 / 8 <= latency_ns;
                would_pay = would_pay || gains;
                would_pay = would_pay || items <= 8;
                paid = paid || ((gains || items <= 8) && in_time);
                best[c] = gains && in_time ? each : best[c];
            }
            EXPECT(paid == (items <= choice.items));
            EXPECT(paid || choice.bound == (would_pay ? LEAT_BATCH_LATENCY : LEAT_BATCH_GAIN));
        }
    }
}

static void
test_words(void)
{
    enum leat_batch_bound bound;

    for (uint32_t b = 0; b < LEAT_BATCH_BOUND_COUNT; b++) {
        EXPECT(leat_batch_bound_find(leat_batch_bound_text(b), &bound) && bound == b);
    }
    EXPECT(!leat_batch_bound_find("", &bound));
}

static void
test_verdicts(void)
{
    const struct leat_variant_speed first[2] = {{1000, 8000, 8}, {2000, 16000, 8}};
    const struct leat_variant_speed same[2] = {{960, 7700, 8}, {2100, 15300, 8}}; /* 4 % are nothing */
    const struct leat_variant_speed quick[2] = {{1500, 9000, 8}, {1900, 17000, 8}};
    const struct leat_variant_speed wide[2] = {{1500, 15200, 16}, {2500, 40000, 16}};

    EXPECT(leat_variant_judge(first, 900000, quick, 900000, 2, 10000) == LEAT_VARIANT_KEPT);
    EXPECT(leat_variant_judge(first, 900000, quick, 900000, 1, 10000) == LEAT_VARIANT_SLOW); /* on the other class only */
    EXPECT(leat_variant_judge(first, 900000, wide, 900000, 2, 10000) == LEAT_VARIANT_KEPT);
    EXPECT(leat_variant_judge(first, 900000, same, 910000, 2, 10000) == LEAT_VARIANT_SLOW);
    EXPECT(leat_variant_judge(first, 900000, quick, 890000, 2, 10000) == LEAT_VARIANT_KEPT);
    EXPECT(leat_variant_judge(first, 900000, quick, 889999, 2, 10000) == LEAT_VARIANT_INACCURATE);
    EXPECT(leat_variant_judge(first, 900000, quick, 899999, 2, 0) == LEAT_VARIANT_INACCURATE);
    EXPECT(leat_variant_judge(first, 900000, quick, 950000, 2, 0) == LEAT_VARIANT_KEPT);
}

int
main(void)
{
    leat_test_init();
    test_bounds();
    test_classes();
    test_random();
    test_words();
    test_verdicts();
    return 0;
}
