/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The largest batch is the last one that did 5 % more items a second on some class of workers in time, or 8 where
 *          that is in time; it says what bounds it. A variant is kept if it is faster at a size that was measured of both,
 *          and hardly less accurate.
 * Method   Times from formulas whose answers are known; random times against the definition.
 */
#include <string.h>

#include <leat/tensor.h>

#include "runtime/variant_choice.h"
#include "tests/leat_test.h"

/* Each class takes once + each * items. */
struct shape {
    uint64_t once_ns, each_ns;
};

static struct leat_batch_choice
choose(const struct shape *shapes, uint32_t class_count, uint64_t latency_max_ns, uint64_t item_bytes, uint64_t bytes_max)
{
    struct leat_batch_choice choice = {
        .latency_max_ns = latency_max_ns, .bytes_max = bytes_max, .class_count = class_count};
    bool more = true;

    for (uint32_t items = 1; more; items *= 2) {
        more = leat_batch_choice_fits(&choice, items, items * item_bytes);
        for (uint32_t c = 0; c < class_count && more; c++) {
            choice.least_ns[choice.size_count][c] = shapes[c].once_ns + shapes[c].each_ns * items;
        }
        choice.size_count += more;
        more = leat_batch_choice_decide(&choice) && more;
    }
    return choice;
}

static void
test_bounds(void)
{
    const struct shape even = {0, 1000}, once = {1000, 0}, both = {7000, 1000};
    struct leat_batch_choice choice = choose(&even, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == 8 && choice.bound == LEAT_BATCH_GAIN); /* two take twice as long */
    choice = choose(&even, 1, 4000, 1, UINT64_MAX);
    EXPECT(choice.items == 4 && choice.bound == LEAT_BATCH_LATENCY);
    choice = choose(&once, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == LEAT_ITEMS_MAX && choice.bound == LEAT_BATCH_LIMIT);
    /* 64 take 71, 128 take 135: 5.2 % faster; 256 take 263: 2.7 %. */
    choice = choose(&both, 1, UINT64_MAX, 1, UINT64_MAX);
    EXPECT(choice.items == 128 && choice.bound == LEAT_BATCH_GAIN);
    choice = choose(&both, 1, 23000, 1, UINT64_MAX); /* what 16 take */
    EXPECT(choice.items == 16 && choice.bound == LEAT_BATCH_LATENCY);
    choice = choose(&both, 1, 22999, 1, UINT64_MAX);
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
    choice = choose(slow, 2, 89999, 1, UINT64_MAX); /* which two take */
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
                const bool gains = each * 1.05 <= best[c] * (1 + 1e-12), in_time = time_ns <= latency_ns;
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

/* Measured again: what paid once stays; what did not may pay now. A given size is none's to choose, but measured up to. */
static void
test_rounds(void)
{
    struct leat_batch_choice choice = {
        .latency_max_ns = 50000, .bytes_max = UINT64_MAX, .class_count = 1, .size_count = 5,
        .least_ns = {{1000}, {2000}, {4000}, {8000}, {16000}}};

    EXPECT(!leat_batch_choice_decide(&choice) && choice.items == 8 && choice.bound == LEAT_BATCH_GAIN);
    choice.least_ns[4][0] = 15000;
    EXPECT(leat_batch_choice_decide(&choice) && choice.items == 16 && choice.bound == LEAT_BATCH_LIMIT);
    choice.least_ns[4][0] = 16000;
    EXPECT(leat_batch_choice_decide(&choice) && choice.items == 16 && choice.bound == LEAT_BATCH_LIMIT);
    choice.size_count = 6;
    choice.least_ns[5][0] = 50001;
    EXPECT(!leat_batch_choice_decide(&choice) && choice.items == 16 && choice.bound == LEAT_BATCH_GAIN);
    choice.least_ns[0][0] = 2000; /* with the others: 32 would be faster by 5 %, but late */
    choice.least_ns[1][0] = 4000;
    choice.least_ns[2][0] = 8000;
    choice.least_ns[3][0] = 16000;
    choice.least_ns[4][0] = 32000;
    EXPECT(!leat_batch_choice_decide(&choice) && choice.items == 16 && choice.bound == LEAT_BATCH_LATENCY);
    choice.items_given = 48;
    EXPECT(!leat_batch_choice_decide(&choice) && choice.items == 48 && choice.bound == LEAT_BATCH_GIVEN);
    choice.size_count = 5;
    EXPECT(leat_batch_choice_decide(&choice) && choice.items == 48);
}

static void
test_verdicts(void)
{
    const struct leat_batch_choice first = {
        .class_count = 2, .size_count = 4, .items = 4, .least_ns = {{1000, 2000}, {2000, 4000}, {4000, 8000}, {8000, 16000}}};
    struct leat_batch_choice other = first;

    EXPECT(leat_variant_judge(&first, 900000, &other, 990000, 10000) == LEAT_VARIANT_SLOW);
    other.least_ns[2][1] = 7620; /* 4 to 5 % are nothing */
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 10000) == LEAT_VARIANT_SLOW);
    other.least_ns[2][1] = 7619;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 10000) == LEAT_VARIANT_KEPT);
    EXPECT(leat_variant_judge(&first, 900000, &other, 890000, 10000) == LEAT_VARIANT_KEPT);
    EXPECT(leat_variant_judge(&first, 900000, &other, 889999, 10000) == LEAT_VARIANT_INACCURATE);
    EXPECT(leat_variant_judge(&first, 900000, &other, 899999, 0) == LEAT_VARIANT_INACCURATE);
    EXPECT(leat_variant_judge(&first, 900000, &other, 950000, 0) == LEAT_VARIANT_KEPT);
    other.class_count = 1; /* on the other class only */
    const struct leat_batch_choice alone = {
        .class_count = 1, .size_count = 4, .items = 4, .least_ns = {{1000}, {2000}, {4000}, {8000}}};
    EXPECT(leat_variant_judge(&alone, 900000, &other, 900000, 0) == LEAT_VARIANT_SLOW);

    /* Not at a size that it does not serve, nor at one that was not measured of both, be it ever so fast. */
    other = first;
    other.least_ns[3][0] = 1;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 0) == LEAT_VARIANT_SLOW);
    other.items = 16;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 0) == LEAT_VARIANT_KEPT);
    other.least_ns[3][0] = 8000;
    other.size_count = 5;
    other.least_ns[4][0] = other.least_ns[4][1] = 1000;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 0) == LEAT_VARIANT_SLOW);
    other.least_ns[3][0] = 7000;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 0) == LEAT_VARIANT_KEPT);

    /* Twice as slow for one item, half as slow for four, is worth having; what eight of the first take no longer is not. */
    other = first;
    other.least_ns[0][0] = 2000;
    other.least_ns[2][0] = 2000;
    EXPECT(leat_variant_judge(&first, 900000, &other, 900000, 0) == LEAT_VARIANT_KEPT);
    struct leat_batch_choice uneven = first;
    uneven.least_ns[3][0] = 2000;
    EXPECT(leat_variant_judge(&uneven, 900000, &other, 900000, 0) == LEAT_VARIANT_SLOW);
}

int
main(void)
{
    leat_test_init();
    test_bounds();
    test_classes();
    test_random();
    test_words();
    test_rounds();
    test_verdicts();
    return 0;
}
