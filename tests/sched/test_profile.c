/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A profile predicts from little, learns what it sees, settles at the percentile asked for, follows a change,
 *          and no single sample throws it.
 * Method   Set points against their statement in doubles at every size; lines and known distributions for what is
 *          learned; random profiles and wild samples for the bounds that the header states.
 */
#include "sched/profile.h"
#include "tests/leat_test.h"

#include <stdbool.h>
#include <string.h>

#include <leat/tensor.h>

#include "base/align.h"

static const uint32_t quantiles_ppm[] = {
    LEAT_PROFILE_DEFAULT, LEAT_PROFILE_QUANTILE_MIN, 900000, 990000, LEAT_PROFILE_QUANTILE_MAX, LEAT_PROFILE_MEAN};

static bool
near(uint64_t got, double expected, double part)
{
    const double difference = (double)got - expected;
    return difference <= expected * part + 2 && difference >= -expected * part - 2;
}

static uint32_t
random_below(uint64_t *random, uint32_t bound)
{
    return (uint32_t)(leat_test_random(random) % bound);
}

/* Nearly normal, mean 1 and the given deviation; never below half. */
static double
noise(uint64_t *random, double deviation)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        sum += (double)(leat_test_random(random) >> 11) / (double)(UINT64_C(1) << 53);
    }
    return 1 + sum * deviation > 0.5 ? 1 + sum * deviation : 0.5;
}

static void
test_nothing_known_predicts_zero(void)
{
    struct leat_profile profile;

    for (size_t q = 0; q < LEAT_COUNT_OF(quantiles_ppm); q++) {
        leat_profile_init(&profile, quantiles_ppm[q], NULL);
        for (uint32_t items = 1; items <= LEAT_ITEMS_MAX; items++) {
            EXPECT(leat_profile_predict(&profile, items) == 0 && leat_profile_mean(&profile, items) == 0);
        }
    }
    memset(&profile, 0, sizeof(profile));
    leat_profile_learn(&profile, 1, 1000);
    EXPECT(leat_profile_predict(&profile, 1) == 1000);
}

/* Between set sizes straight; below the first never more, above the last never less. */
static void
test_set_points_are_joined_by_lines(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(200); round++) {
        struct leat_profile profile = {0};
        uint32_t chosen = random_below(&random, UINT32_C(1) << 17), first = 17, last = 0;
        uint64_t ns[17];
        chosen |= UINT32_C(1) << random_below(&random, 17);

        for (uint32_t turn = 0, b = random_below(&random, 17); turn < 17; turn++, b = (b + 5) % 17) {
            ns[b] = 1 + leat_test_random(&random) % 1000000000;
            if ((chosen >> b & 1) != 0) {
                leat_profile_set(&profile, UINT32_C(1) << b, ns[b]);
                first = b < first ? b : first;
                last = b > last ? b : last;
            }
        }
        const uint32_t step = round < 4 ? 1 : 1 + random_below(&random, 997);
        for (uint32_t items = 1; items <= LEAT_ITEMS_MAX; items += step) {
            const uint64_t got = leat_profile_predict(&profile, items);
            EXPECT(got == leat_profile_mean(&profile, items) && got > 0);
            if (items < UINT32_C(1) << first) {
                EXPECT(got <= ns[first]);
            } else if (items >= UINT32_C(1) << last) {
                EXPECT(got >= ns[last]);
            } else {
                uint32_t left = 31u - (uint32_t)__builtin_clz(items), right = left + 1;
                while ((chosen >> left & 1) == 0) {
                    left--;
                }
                while ((chosen >> right & 1) == 0) {
                    right++;
                }
                const double whole = (double)((UINT32_C(1) << right) - (UINT32_C(1) << left));
                const double part = (double)(items - (UINT32_C(1) << left)) / whole;
                EXPECT(near(got, (double)ns[left] + ((double)ns[right] - (double)ns[left]) * part, 1e-6));
            }
        }
    }
}

static void
test_a_set_point_is_exact_at_every_size(void)
{
    uint64_t random = leat_test_seed;

    for (uint32_t items = 1; items <= LEAT_ITEMS_MAX; items++) {
        struct leat_profile profile = {0};
        const uint64_t ns = 1 + leat_test_random(&random) % 10000000000u;
        leat_profile_set(&profile, items, ns);
        EXPECT(near(leat_profile_predict(&profile, items), (double)ns, 1e-9));
    }
}

/* Set at every knot, a profile knows all sizes up to 16 and every eighth of an octave from there. */
static void
test_knots(void)
{
    struct leat_profile profile = {0};
    uint32_t knots = 0;

    for (uint32_t items = 1; items <= LEAT_ITEMS_MAX; items = leat_profile_next_knot(items)) {
        leat_profile_set(&profile, items, 1000 + items % 7 * 1000);
        knots++;
    }
    EXPECT(knots == LEAT_PROFILE_KNOTS - 1);
    for (uint32_t items = 1; items <= LEAT_ITEMS_MAX; items++) {
        uint32_t next = items + 1;
        while (next > 16 && next % (UINT32_C(1) << (28 - __builtin_clz(next))) != 0) {
            next++;
        }
        EXPECT(leat_profile_next_knot(items) == next);
        if (leat_profile_next_knot(items > 1 ? items - 1 : 1) == items) {
            EXPECT(near(leat_profile_predict(&profile, items), 1000 + items % 7 * 1000, 1e-9));
        }
    }
}

/* One size says nothing of others: proportional above, constant below, and the bend is rounded off between knots. */
static void
test_first_sample_is_believed(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(10000); round++) {
        struct leat_profile profile;
        const uint32_t items = 1 + random_below(&random, LEAT_ITEMS_MAX);
        const uint64_t ns = 100000 + random_below(&random, 1000000000);
        leat_profile_init(&profile, quantiles_ppm[(size_t)round % LEAT_COUNT_OF(quantiles_ppm)], NULL);
        leat_profile_learn(&profile, items, ns);
        EXPECT(near(leat_profile_mean(&profile, items), (double)ns, leat_is_power_of_two(items) ? 1e-4 : 0.03));
        EXPECT(near(leat_profile_mean(&profile, 1), (double)ns, 1e-4));
        EXPECT(near(leat_profile_mean(&profile, LEAT_ITEMS_MAX), (double)ns * LEAT_ITEMS_MAX / items, 0.03));
    }
}

/* Exact observations at any sizes give the line exactly, everywhere. */
static void
test_a_line_is_learned_from_few(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(2000); round++) {
        struct leat_profile profile = {0};
        const double base = (double)random_below(&random, 10000000), slope = 1 + (double)random_below(&random, 100000);
        const uint32_t count = 2 + random_below(&random, 40), largest = 2u << random_below(&random, 15);

        leat_profile_learn(&profile, 1, (uint64_t)(base + slope));
        leat_profile_learn(&profile, largest, (uint64_t)(base + slope * largest));
        for (uint32_t i = 2; i < count; i++) {
            const uint32_t items = 1 + random_below(&random, largest);
            leat_profile_learn(&profile, items, (uint64_t)(base + slope * items));
        }
        for (uint32_t items = 1; items < LEAT_ITEMS_MAX; items += 1 + items / 7) {
            EXPECT(near(leat_profile_mean(&profile, items), base + slope * items, 0.001));
        }
    }
}

/* Five observations, one of them a hundred times too long: at sizes evenly spread the line stays in place. */
static void
test_one_wild_observation_in_five(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(2000); round++) {
        struct leat_profile profile = {0};
        const double base = 1e5 + (double)random_below(&random, 1000000);
        const double slope = 1e3 + (double)random_below(&random, 100000);
        const uint32_t wild = random_below(&random, 5);
        for (uint32_t i = 0; i < 5; i++) {
            const uint32_t n = (i + (uint32_t)round) % 5, items = 100 + 200 * n;
            leat_profile_learn(&profile, items, (uint64_t)((base + slope * items) * (i == wild ? 100 : 1)));
        }
        for (uint32_t items = 1; items <= 1000; items++) {
            const double expected = base + slope * items;
            const uint64_t got = leat_profile_mean(&profile, items);
            EXPECT(near(got, expected, 0.1)); /* the wild one's own knot gives a 16th to it, at most */
        }
    }
}

/* From the line alone, whatever was seen: above 0, never falling, never far above what was seen, in proportion to items. */
static void
test_the_line_never_falls(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(5000); round++) {
        struct leat_profile profile = {0};
        const uint32_t count = 1 + random_below(&random, 40);
        uint32_t smallest = LEAT_ITEMS_MAX;
        double longest = 1;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t items = 1 + random_below(&random, LEAT_ITEMS_MAX >> random_below(&random, 17));
            const uint64_t ns = leat_test_random(&random) >> (16 + random_below(&random, 48));
            leat_profile_learn(&profile, items, ns);
            smallest = items < smallest ? items : smallest;
            longest = (double)ns > longest ? (double)ns : longest;
        }
        memset(profile.knots, 0, sizeof(profile.knots)); /* the table's part is to be as it may */
        memset(profile.full, 0, sizeof(profile.full));
        uint64_t before = 1;
        for (uint32_t items = 1; items < LEAT_ITEMS_MAX; items += 1 + items / 50) {
            const uint64_t got = leat_profile_mean(&profile, items);
            EXPECT(got >= before);
            EXPECT((double)got <= longest * (items > smallest ? 2.25 * items / smallest : 1.13) + 2);
            before = got;
        }
    }
}

/* Full knots that rise, in any part of the table, and a line that knows better or worse. */
static void
test_the_curve_rises_where_full_knots_do(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(500); round++) {
        struct leat_profile profile = {0};
        uint32_t items = 1 + random_below(&random, 16);
        uint64_t ns = 1 + random_below(&random, 1000000);
        while (items <= LEAT_ITEMS_MAX) {
            for (int i = 0; i < 100; i++) {
                leat_profile_learn(&profile, items, ns);
            }
            items = items < 8 ? items + 1 + random_below(&random, 9) : items * (2 + random_below(&random, 9)) / 2;
            items &= ~((UINT32_C(1) << (28u - (uint32_t)__builtin_clz(items | 8))) - 1); /* on a knot */
            ns += ns / 10 + random_below(&random, 1000000);
        }
        uint64_t before = 1;
        for (items = 1; items < LEAT_ITEMS_MAX; items += 1 + items / 50) {
            const uint64_t got = leat_profile_mean(&profile, items);
            EXPECT(got >= before && got <= LEAT_PROFILE_NS_MAX);
            before = got;
        }
    }
}

/* No sample takes a knot over at once: half a time's difference moves the prediction by a 16th for each of 8 samples. */
static void
test_the_table_takes_over_by_degrees(void)
{
    struct leat_profile profile = {0};

    for (uint32_t items = 1; items <= 1 << 12; items *= 2) {
        leat_profile_learn(&profile, items, 1000 * (uint64_t)items);
    }
    for (uint32_t i = 0; i <= 8; i++) {
        const uint64_t before = leat_profile_mean(&profile, 96);
        EXPECT(near(before, 96000 + 36000 * i / 8.0, 0.03));
        leat_profile_learn(&profile, 96, 132000);
    }
    EXPECT(near(leat_profile_mean(&profile, 96), 132000, 0.01));
    EXPECT(near(leat_profile_mean(&profile, 64), 64000, 0.02)); /* what it knows of others stays */
}

/* One sample, from 0 to the largest number, in any state of full knots: the stated bounds hold at each of them. */
static void
test_no_single_sample_moves_it_far(void)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(3000); round++) {
        struct leat_profile profile, before;
        const uint32_t quantile_ppm = quantiles_ppm[random_below(&random, LEAT_COUNT_OF(quantiles_ppm))];
        leat_profile_init(&profile, quantile_ppm, NULL);
        for (uint32_t b = 0; b <= 10; b++) {
            leat_profile_set(&profile, UINT32_C(1) << b, 1000 + leat_test_random(&random) % 100000000);
        }
        const uint32_t items = 1 + random_below(&random, 1024), samples = random_below(&random, 300);
        const uint64_t usual = leat_profile_mean(&profile, items);
        for (uint32_t i = 0; i < samples; i++) {
            const bool far = random_below(&random, 8) == 0;
            leat_profile_learn(&profile, items, (uint64_t)((double)usual * noise(&random, 0.1)) * (far ? 3 : 1));
        }
        const bool settled = round % 2 == 0;
        for (uint32_t i = 0; settled && i < 300; i++) {
            leat_profile_learn(&profile, items, usual);
        }
        before = profile;
        const uint64_t wild[] = {0, 1, UINT64_MAX, 100 * usual, usual / 3};
        leat_profile_learn(&profile, items, wild[random_below(&random, LEAT_COUNT_OF(wild))]);
        uint32_t moved = 0;
        for (uint32_t k = 1; k < LEAT_PROFILE_KNOTS; k++) {
            const struct leat_profile_knot *was = &before.knots[k], *is = &profile.knots[k];
            if (was->mean == is->mean && was->ratio == is->ratio) {
                continue;
            }
            moved += (profile.taught[k / 64] >> k % 64 & 1) != 0; /* the others go along with a level */
            const uint64_t bound = was->mean / (settled && items < 8 ? 128 : 6) + 1;
            EXPECT(is->mean <= was->mean + bound && is->mean >= was->mean - bound);
            if (was->samples >= 16 * 2000) { /* its ratio is its own, whatever the percentile */
                EXPECT(is->ratio <= was->ratio + was->ratio / 7 && is->ratio >= was->ratio - was->ratio / 14);
            }
        }
        EXPECT(moved <= 2);
        EXPECT(profile.ratio <= (before.ratio != 0 ? before.ratio : UINT32_C(1) << 24) / 7 * 8);
    }
}

/*
 * What was measured while something held the machine up comes down where it was never tried, once sizes that were say so; what
 * was tried stays, and a few slow batches move nothing else.
 */
static void
test_a_new_level_is_handed_on(void)
{
    struct leat_profile slow, profile;

    for (int up = 0; up < 2; up++) {
        const uint64_t measured_ns = up != 0 ? 1000000 : 3000000, now_ns = up != 0 ? 3000000 : 1000000;
        leat_profile_init(&slow, LEAT_PROFILE_DEFAULT, NULL);
        for (uint32_t items = 1; items <= 64; items *= 2) {
            leat_profile_set(&slow, items, measured_ns * items);
        }
        profile = slow;
        for (uint32_t i = 0; i < 64; i++) {
            leat_profile_learn(&profile, 4, now_ns * 4);
        }
        EXPECT(near(leat_profile_mean(&profile, 4), (double)now_ns * 4, 0.02));
        for (uint32_t items = 1; items <= 64; items *= 2) { /* the first two far samples are not believed yet */
            const double level = (double)leat_profile_mean(&profile, items) / (double)items / (double)now_ns;
            EXPECT(level > 0.5 && level < 2);
        }
        EXPECT(leat_profile_predict(&profile, 64) >= leat_profile_mean(&profile, 64));

        /* Size 64 is known to be as it was measured: what lies between goes half of the way, and 64 none. */
        profile = slow;
        for (uint32_t i = 0; i < 64; i++) {
            leat_profile_learn(&profile, 64, measured_ns * 64);
        }
        for (uint32_t i = 0; i < 64; i++) {
            leat_profile_learn(&profile, 4, now_ns * 4);
        }
        EXPECT(near(leat_profile_mean(&profile, 64), (double)measured_ns * 64, 0.02));
        const uint64_t at_5 = leat_profile_mean(&profile, 5) / 5, at_60 = leat_profile_mean(&profile, 60) / 60;
        EXPECT(up != 0 ? at_5 > at_60 && at_60 >= measured_ns : at_5 < at_60 && at_60 <= measured_ns);
        EXPECT(near(at_60, (double)measured_ns, 0.2));
        profile = slow;
        for (uint32_t i = 0; i < 2; i++) {
            leat_profile_learn(&profile, 4, now_ns * 4);
        }
        EXPECT(leat_profile_mean(&profile, 64) == measured_ns * 64);
    }
}

/* The farther of the two knots around a size moves by its share of what the nearer one does, however wild the sample. */
static void
test_a_knot_moves_by_its_share(void)
{
    struct leat_profile profile = {0};

    leat_profile_set(&profile, 64, 64000000);
    leat_profile_set(&profile, 128, 128000000);
    leat_profile_learn(&profile, 65, UINT64_MAX);
    EXPECT(leat_profile_mean(&profile, 64) > 66000000 && leat_profile_mean(&profile, 72) > 72000000);
    EXPECT(leat_profile_mean(&profile, 72) < 73000000);
}

/* Mean and percentile of a known distribution, the share above it, and what wild samples do to both. */
static void
test_percentiles_of_a_known_distribution(void)
{
    enum { WARM = 20000, STEPS = 50000 };
    static const struct {
        uint32_t quantile_ppm;
        double percentile; /* of the uniform distribution on [1 ms, 2 ms] */
        double part;       /* how near the average of what is predicted comes */
    } cases[] = {{0, 1.95e6, 0.02},      {500000, 1.5e6, 0.02}, {750000, 1.75e6, 0.02}, {900000, 1.9e6, 0.02},
                 {990000, 1.99e6, 0.03}, {999000, 2.0e6, 0.10}, {LEAT_PROFILE_MEAN, 1.5e6, 0.01}};

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_profile profile;
        uint64_t random = leat_test_seed;
        double mean_sum = 0, predicted_sum = 0, above = 0;
        leat_profile_init(&profile, cases[c].quantile_ppm, NULL);
        for (int i = 0; i < WARM + STEPS; i++) {
            const uint64_t ns = 1000000 + leat_test_random(&random) % 1000000;
            if (i >= WARM) {
                const uint64_t mean = leat_profile_mean(&profile, 9), predicted = leat_profile_predict(&profile, 9);
                EXPECT(near(mean, 1.5e6, 0.15));
                EXPECT(near(predicted, cases[c].percentile, 0.35));
                mean_sum += (double)mean;
                predicted_sum += (double)predicted;
                above += ns > predicted;
            }
            leat_profile_learn(&profile, 9, ns);
        }
        EXPECT(near((uint64_t)(mean_sum / STEPS), 1.5e6, 0.01));
        EXPECT(near((uint64_t)(predicted_sum / STEPS), cases[c].percentile, cases[c].part));
        if (cases[c].quantile_ppm != LEAT_PROFILE_MEAN) {
            const double share = 1 - (cases[c].quantile_ppm != 0 ? cases[c].quantile_ppm : 950000) / 1e6;
            EXPECT(above / STEPS > share * 0.85 && above / STEPS < share * 1.15);
        }
    }
}

/* From nothing, the 99th percentile is near after 1,000 samples, and is exceeded as often as it should be from there. */
static void
test_the_99th_percentile_converges(void)
{
    uint64_t random = leat_test_seed;
    int above = 0, total = 0;

    for (int round = 0; round < LEAT_TEST_ROUNDS(100); round++) {
        struct leat_profile profile;
        leat_profile_init(&profile, 990000, NULL);
        for (int i = 0; i < 2000; i++) {
            const uint32_t items = 1 + random_below(&random, 4);
            const uint64_t ns = (uint64_t)(1e6 * items * noise(&random, 0.1));
            if (i >= 1000) {
                above += ns > leat_profile_predict(&profile, items);
                total++;
            }
            leat_profile_learn(&profile, items, ns);
        }
        for (uint32_t items = 1; items <= 4; items++) {
            EXPECT(near(leat_profile_predict(&profile, items), 1.23e6 * items, 0.20));
        }
    }
    EXPECT(above > total * 6 / 1000 && above < total * 16 / 1000);
}

/* One in 50 a hundred times too long: the true mean is three times as long, ours and the 95th percentile stay. */
static void
test_outliers_are_withstood(void)
{
    struct leat_profile profile = {0};
    uint64_t random = leat_test_seed;
    double mean_sum = 0, predicted_sum = 0, without = 0;
    enum { WARM = 2000, STEPS = 50000 };

    for (int i = 0; i < WARM + STEPS; i++) {
        const bool wild = i >= WARM && random_below(&random, 50) == 0;
        leat_profile_learn(&profile, 5, (uint64_t)(1e6 * noise(&random, 0.1)) * (wild ? 100 : 1));
        if (i == WARM - 1) {
            without = (double)leat_profile_predict(&profile, 5);
        }
        if (i >= WARM) {
            EXPECT(near(leat_profile_mean(&profile, 5), 1e6, 0.30)); /* three of them running, once in 10^5 */
            EXPECT(near(leat_profile_predict(&profile, 5), without, 0.45));
            mean_sum += (double)leat_profile_mean(&profile, 5);
            predicted_sum += (double)leat_profile_predict(&profile, 5);
        }
    }
    EXPECT(near((uint64_t)(mean_sum / STEPS), 1.01e6, 0.01));
    EXPECT(near((uint64_t)(predicted_sum / STEPS), 1.19e6, 0.05)); /* 3 in 98 of the others are above it: 1.187 */
}

/* A permanent change at a size on a knot or between two; `samples` of it, and the mean is within 10 %. */
static void
expect_followed(uint32_t items, double factor, int samples)
{
    uint64_t random = leat_test_seed;

    for (int round = 0; round < LEAT_TEST_ROUNDS(200); round++) {
        struct leat_profile profile;
        const uint32_t quantile_ppm = quantiles_ppm[(size_t)round % LEAT_COUNT_OF(quantiles_ppm)];
        leat_profile_init(&profile, quantile_ppm, NULL);
        for (int i = 0; i < 2000; i++) {
            leat_profile_learn(&profile, items, (uint64_t)(1e6 * noise(&random, 0.05)));
        }
        const uint64_t before = leat_profile_predict(&profile, items);
        for (int i = 0; i < samples; i++) {
            leat_profile_learn(&profile, items, (uint64_t)(factor * 1e6 * noise(&random, 0.05)));
        }
        EXPECT(near(leat_profile_mean(&profile, items), factor * 1e6, 0.10));
        EXPECT(near(leat_profile_predict(&profile, items), factor * (double)before, 0.25));
    }
}

static void
test_a_change_of_level_is_followed(void)
{
    const uint32_t sizes[] = {5, 64, 17, 100, 999};

    for (size_t s = 0; s < LEAT_COUNT_OF(sizes); s++) {
        expect_followed(sizes[s], 2, 32);
        expect_followed(sizes[s], 0.5, 32);
        expect_followed(sizes[s], 10, 48);
        expect_followed(sizes[s], 0.1, 48);
        expect_followed(sizes[s], 1.5, 128);
        expect_followed(sizes[s], 0.7, 128);
    }
}

/* What was measured at loading was ten times too long: where samples come, it is forgotten. */
static void
test_a_wrong_measurement_is_corrected(void)
{
    struct leat_profile measured = {0}, profile;

    for (uint32_t items = 1; items <= 64; items *= 2) {
        leat_profile_set(&measured, items, 10000000 * (uint64_t)items);
    }
    leat_profile_init(&profile, 990000, &measured);
    EXPECT(leat_profile_predict(&profile, 24) == 240000000);
    for (int i = 0; i < 32; i++) {
        leat_profile_learn(&profile, 24, 24000000);
    }
    EXPECT(near(leat_profile_mean(&profile, 24), 24000000, 0.10));
}

static void
test_init_keeps_means_only(void)
{
    struct leat_profile taught, copy;
    uint64_t random = leat_test_seed;

    leat_profile_init(&taught, 990000, NULL);
    for (int i = 0; i < 50000; i++) {
        const uint32_t items = 1 + random_below(&random, 32);
        leat_profile_learn(&taught, items, (uint64_t)(1e6 * items * noise(&random, 0.2)));
    }
    leat_profile_init(&copy, LEAT_PROFILE_MEAN, &taught);
    for (uint32_t items = 1; items <= 64; items++) {
        EXPECT(leat_profile_mean(&copy, items) == leat_profile_mean(&taught, items));
        EXPECT(leat_profile_predict(&copy, items) == leat_profile_mean(&taught, items));
        EXPECT(leat_profile_predict(&taught, items) > leat_profile_mean(&taught, items) * 5 / 4);
    }
}

/* Anything at all: times stay within their limits, and equal inputs give equal profiles. */
static void
test_any_input_is_survived(void)
{
    uint64_t random = leat_test_seed;
    static struct leat_profile a, b;

    for (int round = 0; round < LEAT_TEST_ROUNDS(300); round++) {
        const uint32_t quantile_ppm = quantiles_ppm[random_below(&random, LEAT_COUNT_OF(quantiles_ppm))];
        leat_profile_init(&a, quantile_ppm, NULL);
        leat_profile_init(&b, quantile_ppm, NULL);
        for (int i = 0; i < 1000; i++) {
            const uint32_t items = 1 + random_below(&random, LEAT_ITEMS_MAX >> random_below(&random, 17));
            const uint64_t ns = leat_test_random(&random) >> random_below(&random, 64);
            if (random_below(&random, 100) == 0) {
                leat_profile_set(&a, items, ns);
                leat_profile_set(&b, items, ns);
            } else {
                leat_profile_learn(&a, items, ns);
                leat_profile_learn(&b, items, ns);
            }
            const uint32_t asked = 1 + random_below(&random, LEAT_ITEMS_MAX);
            const uint64_t predicted = leat_profile_predict(&a, asked), mean = leat_profile_mean(&a, asked);
            EXPECT(predicted >= 1 && predicted <= LEAT_PROFILE_NS_MAX && mean >= 1 && mean <= LEAT_PROFILE_NS_MAX);
            EXPECT(quantile_ppm != LEAT_PROFILE_MEAN || predicted == mean);
        }
        EXPECT(memcmp(&a, &b, sizeof(a)) == 0);
    }
}

int
main(void)
{
    leat_test_init();
    test_nothing_known_predicts_zero();
    test_set_points_are_joined_by_lines();
    test_a_set_point_is_exact_at_every_size();
    test_knots();
    test_first_sample_is_believed();
    test_a_line_is_learned_from_few();
    test_one_wild_observation_in_five();
    test_the_line_never_falls();
    test_the_curve_rises_where_full_knots_do();
    test_the_table_takes_over_by_degrees();
    test_no_single_sample_moves_it_far();
    test_a_new_level_is_handed_on();
    test_a_knot_moves_by_its_share();
    test_percentiles_of_a_known_distribution();
    test_the_99th_percentile_converges();
    test_outliers_are_withstood();
    test_a_change_of_level_is_followed();
    test_a_wrong_measurement_is_corrected();
    test_init_keeps_means_only();
    test_any_input_is_survived();
    return 0;
}
