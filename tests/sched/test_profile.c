/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A profile interpolates what it was given, learns what it sees, and no single sample throws it.
 * Method   Exhaustive over every item count for the shape; random curves and samples for the bounds;
 *          a known distribution for the quantile.
 */
#include "sched/profile.h"
#include "tests/leat_test.h"

#include <string.h>

#include <leat/tensor.h>

#include "base/align.h"

static bool
near(uint64_t got, double expected, double part)
{
    const double difference = (double)got - expected;
    return difference <= expected * part + 2 && difference >= -expected * part - 2;
}

static void
test_nothing_known_predicts_zero(void)
{
    struct leat_profile profile = {0};
    struct leat_profile_point point;

    EXPECT(leat_profile_predict(&profile, 1) == 0);
    EXPECT(leat_profile_predict(&profile, LEAT_ITEMS_MAX) == 0);
    EXPECT(!leat_profile_read(&profile, 7, &point) && point.mean_ns == 0);
}

/* The shape as the header states it, in doubles, over knots that are set or not. */
static double
oracle(const double *ns, uint32_t items)
{
    uint32_t left = 0, right = 0;
    for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
        const uint32_t knot = UINT32_C(1) << b;
        if (ns[b] > 0 && knot <= items) {
            left = knot;
        }
        if (ns[b] > 0 && knot >= items && right == 0) {
            right = knot;
        }
    }
    const double l = left ? ns[__builtin_ctz(left)] : 0, r = right ? ns[__builtin_ctz(right)] : 0;
    if (left == 0) {
        return r;
    }
    if (right == 0) {
        return l * items / left;
    }
    return left == right ? l : l + (r - l) * (items - left) / (right - left);
}

static void
test_shape_matches_its_statement_at_every_size(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < 200; round++) {
        struct leat_profile profile = {0};
        double ns[LEAT_PROFILE_BUCKETS] = {0};
        const uint64_t chosen = leat_test_random(&random);
        const uint64_t step = round < 4 ? 1 : 1 + leat_test_random(&random) % 997;

        for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
            if ((chosen >> b & 1) != 0 || chosen % LEAT_PROFILE_BUCKETS == b) {
                const uint64_t value = 1 + leat_test_random(&random) % 1000000000;
                leat_profile_set(&profile, UINT32_C(1) << b, value);
                ns[b] = (double)value;
            }
        }
        for (uint64_t items = 1; items <= LEAT_ITEMS_MAX; items += step) {
            const double expected = oracle(ns, (uint32_t)items);
            const uint64_t got = leat_profile_predict(&profile, (uint32_t)items);
            struct leat_profile_point point;
            EXPECT(leat_profile_read(&profile, (uint32_t)items, &point) && point.high_ns == got);
            /* Gap weights are 16-bit: what is lost is a 2^-9 part of the larger neighbour at most. */
            double slack = 0;
            for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
                slack = ns[b] > slack ? ns[b] : slack;
            }
            const double error = (double)got - expected;
            EXPECT(error <= slack / 256 + 2 && error >= -slack / 256 - 2);
        }
    }
}

static void
test_first_sample_is_exact_and_proportional(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < 10000; round++) {
        struct leat_profile profile = {0};
        const uint32_t items = 1 + (uint32_t)(leat_test_random(&random) % LEAT_ITEMS_MAX);
        const uint64_t ns = 1 + leat_test_random(&random) % 10000000000u;
        leat_profile_learn(&profile, items, ns);
        EXPECT(near(leat_profile_predict(&profile, items), (double)ns, 0.0001));
    }
}

/* One sample, from 0 to the largest number, on any curve: the stated bounds hold at every knot. */
static void
test_no_single_sample_moves_it_far(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < 20000; round++) {
        struct leat_profile profile = {0};
        const bool young = round % 2 == 0;
        for (int i = 0; i < 1 + round % 5; i++) {
            leat_profile_set(&profile, 1 + (uint32_t)(leat_test_random(&random) % LEAT_ITEMS_MAX),
                             1000 + leat_test_random(&random) % 100000000);
        }
        for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
            profile.knots[b].samples = young ? 0 : 64;
        }
        struct leat_profile_point before[LEAT_PROFILE_BUCKETS], after;
        for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
            EXPECT(leat_profile_read(&profile, UINT32_C(1) << b, &before[b]));
        }
        const uint32_t items = 1 + (uint32_t)(leat_test_random(&random) % LEAT_ITEMS_MAX);
        const uint64_t wild[] = {0, 1, UINT64_MAX, 100 * leat_profile_predict(&profile, items)};
        const uint32_t known = profile.known;
        leat_profile_learn(&profile, items, wild[leat_test_random(&random) % LEAT_COUNT_OF(wild)]);
        for (uint32_t b = 0; b < LEAT_PROFILE_BUCKETS; b++) {
            if ((known >> b & 1) == 0) {
                continue; /* derived from its neighbours, and judged with them */
            }
            EXPECT(leat_profile_read(&profile, UINT32_C(1) << b, &after));
            EXPECT(after.mean_ns <= before[b].mean_ns + before[b].mean_ns / 16 + 1);
            EXPECT(after.mean_ns + 1 >= before[b].mean_ns - before[b].mean_ns / 16);
            EXPECT(after.high_ns <= before[b].high_ns + before[b].high_ns / (young ? 8 : 16) + 1);
            EXPECT(after.high_ns + 1 >= before[b].high_ns - before[b].high_ns / 16);
            EXPECT(after.high_ns >= after.mean_ns);
        }
    }
}

static void
test_it_follows_a_real_change(void)
{
    struct leat_profile profile = {0};

    leat_profile_set(&profile, 4, 1000000);
    for (int i = 0; i < 120; i++) {
        leat_profile_learn(&profile, 4, 10000000);
    }
    struct leat_profile_point point;
    EXPECT(leat_profile_read(&profile, 4, &point));
    EXPECT(near(point.mean_ns, 10000000, 0.02));
    EXPECT(point.high_ns >= 9900000 && point.high_ns <= 11300000);
    EXPECT(point.samples == 120);
    for (int i = 0; i < 2000; i++) {
        leat_profile_learn(&profile, 4, 1000000);
    }
    EXPECT(leat_profile_read(&profile, 4, &point));
    EXPECT(near(point.mean_ns, 1000000, 0.01));
    EXPECT(near(point.high_ns, 1000000, 0.08));
}

/* Uniform on [1 ms, 2 ms]: mean 1.5 ms, 95th percentile 1.95 ms; one in 200 is 100 times too long. */
static void
test_mean_and_quantile_of_a_known_distribution(void)
{
    struct leat_profile profile = {0};
    uint64_t random = leat_test_seed;
    double mean_sum = 0, high_sum = 0;
    int above = 0;
    enum { WARM = 2000, STEPS = 20000 };

    for (int i = 0; i < WARM + STEPS; i++) {
        uint64_t ns = 1000000 + leat_test_random(&random) % 1000000;
        if (leat_test_random(&random) % 200 == 0) {
            ns *= 100;
        }
        above += i >= WARM && ns > leat_profile_predict(&profile, 8);
        leat_profile_learn(&profile, 8, ns);
        if (i >= WARM) {
            struct leat_profile_point point;
            EXPECT(leat_profile_read(&profile, 8, &point));
            EXPECT(point.mean_ns > 1200000 && point.mean_ns < 1900000);
            EXPECT(point.high_ns > 1600000 && point.high_ns < 2700000);
            mean_sum += (double)point.mean_ns;
            high_sum += (double)point.high_ns;
        }
    }
    EXPECT(near((uint64_t)(mean_sum / STEPS), 1510000, 0.02));
    EXPECT(near((uint64_t)(high_sum / STEPS), 1955000, 0.05));
    EXPECT(above > STEPS * 45 / 1000 && above < STEPS * 55 / 1000); /* 1 in 20 */
}

static void
test_sizes_teach_each_other_a_line(void)
{
    struct leat_profile profile = {0};
    uint64_t random = leat_test_seed;

    /* 0.5 ms + 0.1 ms an item, sizes 1..32 at random: every size is learned, powers of two or not. */
    for (int i = 0; i < 20000; i++) {
        const uint32_t items = 1 + (uint32_t)(leat_test_random(&random) % 32);
        leat_profile_learn(&profile, items, 500000 + 100000 * (uint64_t)items);
    }
    for (uint32_t items = 1; items <= 32; items++) {
        struct leat_profile_point point;
        EXPECT(leat_profile_read(&profile, items, &point));
        EXPECT(near(point.mean_ns, 500000 + 100000 * items, 0.02));
        EXPECT(near(point.high_ns, 500000 + 100000 * items, 0.10));
    }
}

int
main(void)
{
    leat_test_init();
    test_nothing_known_predicts_zero();
    test_shape_matches_its_statement_at_every_size();
    test_first_sample_is_exact_and_proportional();
    test_no_single_sample_moves_it_far();
    test_it_follows_a_real_change();
    test_mean_and_quantile_of_a_known_distribution();
    test_sizes_teach_each_other_a_line();
    return 0;
}
