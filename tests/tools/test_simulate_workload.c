/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A workload has the sizes and gaps that were asked for; equal options give equal bits, and what one option
 *          changes leaves the rest as it is.
 * Method   Moments and shares of many draws against theory, within six standard deviations; for the draws themselves also
 *          how many fall below some points. The first draws of one seed are written down: they are to be the same
 *          everywhere.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "tests/leat_test.h"
#include "tools/simulate/random.h"
#include "tools/simulate/simulate.h"

enum { COUNT = 200000 };

static const struct leat_pool_size three[] = {
    {.items = 5, .weight = 2}, {.items = 9, .weight = 0}, {.items = 100, .weight = 6}};
static const struct leat_pool_size other[] = {{.items = 7, .weight = 1}};

static const struct simulate_workload_options plain = {
    .query_count = COUNT, .sizes = {.sizes = three, .count = LEAT_COUNT_OF(three)}, .arrivals = ARRIVALS_POISSON};

static struct simulate_workload
make(struct simulate_workload_options options)
{
    struct simulate_workload workload;

    options.seed += leat_test_seed;
    if (simulate_workload_make(&options, &workload) != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
        EXPECT(!"a workload is made");
    }
    return workload;
}

/* How far `count` of COUNT is from its expectation, in standard deviations. */
static double
deviations(double count, double share)
{
    return fabs(count - COUNT * share) / sqrt(COUNT * share * (1 - share));
}

static void
test_draws(void)
{
    static const double points[] = {0.1, 0.5, 1, 1.5, 2, 3};
    double below_exponential[LEAT_COUNT_OF(points)] = {0}, below_normal[LEAT_COUNT_OF(points)] = {0};
    double sum = 0, squares = 0, fourths = 0, negative = 0;
    uint64_t random = leat_test_seed;

    for (int i = 0; i < COUNT; i++) {
        const double e = random_exponential(&random), n = random_normal(&random);
        EXPECT(e >= 0);
        for (size_t p = 0; p < LEAT_COUNT_OF(points); p++) {
            below_exponential[p] += e < points[p];
            below_normal[p] += fabs(n) < points[p];
        }
        negative += n < 0;
        sum += n;
        squares += n * n;
        fourths += n * n * n * n;
    }
    for (size_t p = 0; p < LEAT_COUNT_OF(points); p++) {
        EXPECT(deviations(below_exponential[p], -expm1(-points[p])) < 6);
        EXPECT(deviations(below_normal[p], erf(points[p] / sqrt(2))) < 6);
    }
    EXPECT(deviations(negative, 0.5) < 6);
    EXPECT(fabs(sum / COUNT) < 6 / sqrt(COUNT) && fabs(squares / COUNT - 1) < 6 * sqrt(2.0 / COUNT));
    EXPECT(fabs(fourths / COUNT - 3) < 6 * sqrt(96.0 / COUNT)); /* E x^8 - (E x^4)^2 = 105 - 9 */
}

static void
test_known_draws(void)
{
    uint64_t random = 1;

    EXPECT(random_u64(&random) == UINT64_C(0x910a2dec89025cc1)); /* splitmix64 as published */
    EXPECT(random_exponential(&random) == 0x1.7dd71b42cb1ddp-1);
    EXPECT(random_normal(&random) == -0x1.5d086f2c615f1p-1);
}

static void
test_weighted_sizes(void)
{
    struct simulate_workload w = make(plain);
    double small = 0;

    for (int i = 0; i < COUNT; i++) {
        EXPECT(w.items[i] == 5 || w.items[i] == 100);
        small += w.items[i] == 5;
    }
    EXPECT(deviations(small, 0.25) < 6);
    simulate_workload_free(&w);
}

static void
test_gaussian_sizes(void)
{
    struct simulate_workload_options options = plain;
    double sum = 0, squares = 0;

    options.sizes = (struct simulate_sizes){.gaussian_mean = 200, .gaussian_deviation = 20};
    struct simulate_workload w = make(options);
    for (int i = 0; i < COUNT; i++) {
        sum += w.items[i];
        squares += (w.items[i] - 200.0) * (w.items[i] - 200.0);
    }
    EXPECT(w.clipped == 0 && fabs(sum / COUNT - 200) < 6 * 20 / sqrt(COUNT));
    const double variance = 20 * 20 + 1.0 / 12; /* rounding adds a uniform */
    EXPECT(fabs(squares / COUNT - variance) < 6 * variance * sqrt(2.0 / COUNT));
    simulate_workload_free(&w);

    /* Cut at both ends. */
    options.sizes = (struct simulate_sizes){.gaussian_mean = 3, .gaussian_deviation = 60};
    options.items_max = 8;
    w = make(options);
    double low = 0, high = 0;
    for (int i = 0; i < COUNT; i++) {
        EXPECT(w.items[i] >= 1 && w.items[i] <= 8);
        low += w.items[i] == 1;
        high += w.items[i] == 8;
    }
    EXPECT(deviations(low, 0.5 * (1 + erf((1.5 - 3) / 60 / sqrt(2)))) < 6);
    EXPECT(deviations(high, 0.5 * (1 - erf((7.5 - 3) / 60 / sqrt(2)))) < 6);
    EXPECT(deviations(w.clipped, 0.5 * (1 - erf((8.5 - 3) / 60 / sqrt(2)))) < 6 && w.clipped < high);
    simulate_workload_free(&w);
}

/* From one query to the next, and only the sizes from there on. */
static void
test_change(void)
{
    struct simulate_workload_options options = plain;
    struct simulate_workload before = make(options);

    options.size_change_at = 777;
    options.later_sizes = (struct simulate_sizes){.sizes = other, .count = 1};
    struct simulate_workload after = make(options);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(after.items[i] == (i < 777 ? before.items[i] : 7));
    }
    EXPECT(memcmp(before.arrival_s, after.arrival_s, COUNT * sizeof(double)) == 0);
    EXPECT(memcmp(before.luck, after.luck, COUNT * sizeof(uint32_t)) == 0);
    EXPECT(memcmp(before.noise, after.noise, COUNT * sizeof(float)) == 0);
    simulate_workload_free(&before);
    simulate_workload_free(&after);
}

static void
test_luck_and_noise(void)
{
    struct simulate_workload w = make(plain);
    double quarters[4] = {0}, sum = 0, squares = 0, with_items = 0;

    for (int i = 0; i < COUNT; i++) {
        quarters[w.luck[i] >> 30]++;
        sum += w.noise[i];
        squares += (double)w.noise[i] * w.noise[i];
        with_items += w.noise[i] * (w.items[i] == 5 ? 3 : -1);
    }
    for (int q = 0; q < 4; q++) {
        EXPECT(deviations(quarters[q], 0.25) < 6);
    }
    EXPECT(fabs(sum / COUNT) < 6 / sqrt(COUNT) && fabs(squares / COUNT - 1) < 6 * sqrt(2.0 / COUNT));
    EXPECT(fabs(with_items / COUNT) < 6 * sqrt(3.0 / COUNT)); /* no stream tells of another; 3 = (3 * 3 + 3 * 1) / 4 */
    simulate_workload_free(&w);
}

static void
test_gaps(void)
{
    static const enum arrivals_kind kinds[] = {ARRIVALS_CONSTANT, ARRIVALS_POISSON, ARRIVALS_BURSTY};
    static const double squares_expected[] = {1, 2, 0};

    for (size_t k = 0; k < LEAT_COUNT_OF(kinds); k++) {
        struct simulate_workload_options options = plain;
        double squares = 0, last_s = 0;
        options.arrivals = kinds[k];
        options.burst_factor = 5;
        options.burst_share = 0.1;
        options.burst_mean_queries = 20;
        struct simulate_workload w = make(options);
        for (int i = 0; i < COUNT; i++) {
            EXPECT(w.arrival_s[i] >= last_s);
            squares += (w.arrival_s[i] - last_s) * (w.arrival_s[i] - last_s);
            last_s = w.arrival_s[i];
        }
        /* For bursts of this kind counts over long times vary 8.4 times as much as Poisson's: see test_arrivals. */
        EXPECT(fabs(last_s / COUNT - 1) < 6 * sqrt((kinds[k] == ARRIVALS_BURSTY ? 8.4 : 1.0) / COUNT));
        EXPECT(w.own_rate_qps == 1);
        if (kinds[k] != ARRIVALS_BURSTY) {
            EXPECT(fabs(squares / COUNT - squares_expected[k]) < 6 * sqrt(20.0 / COUNT));
        } else {
            EXPECT(squares / COUNT > 2.2); /* more than Poisson's */
        }
        simulate_workload_free(&w);
    }
}

/*
 * As many queries in a burst, on average, as asked for. Bursts are so fast that gaps tell them: n queries of one show as a
 * run of n - 1 short gaps. n is geometric, so those of 2 and more, (40/41)^2 of all, have 41 of them on average.
 */
static void
test_burst_length(void)
{
    struct simulate_workload_options options = plain;
    double runs = 0, shorts = 0, last_s = 0;
    bool was_short = false;

    options.arrivals = ARRIVALS_BURSTY;
    options.burst_factor = 1e6;
    options.burst_share = 1e-6; /* half of all queries; one a second outside is 500,000 within */
    options.burst_mean_queries = 40;
    struct simulate_workload w = make(options);
    for (int i = 0; i < COUNT; i++) {
        const bool is_short = w.arrival_s[i] - last_s < 1e-4;
        runs += is_short && !was_short;
        shorts += is_short;
        was_short = is_short;
        last_s = w.arrival_s[i];
    }
    EXPECT(fabs(shorts / runs - 41) < 6 * 41 / sqrt(runs));
    EXPECT(fabs(runs - COUNT / 80.0 * 40 * 40 / 41 / 41) < 6 * sqrt(COUNT / 80.0)); /* a burst begins once in 80 queries */
    simulate_workload_free(&w);
}

static void
test_file(void)
{
    static const double times_s[] = {10, 10.5, 10.5, 13, 14};
    static const double expected_s[] = {0, 0.5, 0.5, 3, 4, 5, 5.5, 5.5, 8, 9, 10, 10.5};
    static const double still_s[] = {3, 3}, falling_s[] = {3, 4, 3.5};
    static const uint32_t items[] = {7, 1, 65536, 20, 21};
    struct simulate_workload_options options = plain;
    struct simulate_workload w;

    options.arrivals = ARRIVALS_FILE;
    options.times_s = times_s;
    options.time_count = LEAT_COUNT_OF(times_s);
    options.query_count = LEAT_COUNT_OF(expected_s);
    w = make(options);
    EXPECT(w.own_rate_qps == 1 && memcmp(w.arrival_s, expected_s, sizeof(expected_s)) == 0);
    simulate_workload_free(&w);

    double faster_s[LEAT_COUNT_OF(times_s)];
    for (size_t i = 0; i < LEAT_COUNT_OF(times_s); i++) {
        faster_s[i] = times_s[i] / 8;
    }
    options.times_s = faster_s;
    w = make(options);
    EXPECT(w.own_rate_qps == 8 && memcmp(w.arrival_s, expected_s, sizeof(expected_s)) == 0);
    simulate_workload_free(&w);

    options.items = items; /* and larger ones than there may be become the largest */
    options.items_max = 20;
    w = make(options);
    for (uint32_t i = 0; i < LEAT_COUNT_OF(expected_s); i++) {
        EXPECT(w.items[i] == (items[i % 5] < 20 ? items[i % 5] : 20));
    }
    simulate_workload_free(&w);
    options.items_max = 0;
    w = make(options);
    EXPECT(w.items[2] == SIMULATE_ITEMS_MAX && w.items[3] == 20);
    simulate_workload_free(&w);

    options.times_s = still_s;
    options.time_count = 2;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    options.times_s = falling_s;
    options.time_count = 3;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    options.time_count = 1;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
}

static void
test_seeds(void)
{
    struct simulate_workload_options options = plain;
    struct simulate_workload a = make(options), b = make(options);
    int same = 0;

    options.seed = 1;
    struct simulate_workload c = make(options);
    EXPECT(memcmp(a.arrival_s, b.arrival_s, COUNT * sizeof(double)) == 0 &&
           memcmp(a.items, b.items, COUNT * sizeof(uint16_t)) == 0);
    EXPECT(memcmp(a.luck, b.luck, COUNT * sizeof(uint32_t)) == 0 && memcmp(a.noise, b.noise, COUNT * sizeof(float)) == 0);
    for (int i = 0; i < COUNT; i++) {
        same += a.luck[i] == c.luck[i];
    }
    EXPECT(same < 10 && memcmp(a.arrival_s, c.arrival_s, COUNT * sizeof(double)) != 0);
    simulate_workload_free(&a);
    simulate_workload_free(&b);
    simulate_workload_free(&c);
}

static void
test_refusals(void)
{
    static const struct leat_pool_size nothing[] = {{.items = 5, .weight = 0}},
                                       negative[] = {{.items = 5, .weight = -1}}, none[] = {{.items = 0, .weight = 1}},
                                       large[] = {{.items = 65536, .weight = 1}}, nan[] = {{.items = 5, .weight = NAN}},
                                       infinite[] = {{.items = 5, .weight = INFINITY}};
    static const struct leat_pool_size *const wrong_sizes[] = {nothing, negative, none, large, nan, infinite};
    static const struct simulate_sizes wrong_gaussians[] = {{.gaussian_mean = 0},
                                                            {.gaussian_mean = NAN},
                                                            {.gaussian_mean = 1e9},
                                                            {.gaussian_mean = 5, .gaussian_deviation = -1}};
    static const double wrong_bursts[][3] = {{1, 0.1, 10}, {NAN, 0.1, 10}, {5, 0, 10},
                                             {5, 1, 10},   {5, 0.1, 0},    {5, 0.1, 1e300}};
    struct simulate_workload_options options;
    struct simulate_workload w;

    options = plain;
    options.query_count = 0;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    options.query_count = SIMULATE_QUERIES_MAX + 1;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    options = plain;
    options.items_max = 65536;
    EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong_sizes); i++) {
        options = plain;
        options.sizes = (struct simulate_sizes){.sizes = wrong_sizes[i], .count = 1};
        EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
        options = plain;
        options.size_change_at = 1;
        options.later_sizes = (struct simulate_sizes){.sizes = wrong_sizes[i], .count = 1};
        EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong_gaussians); i++) {
        options = plain;
        options.sizes = wrong_gaussians[i];
        EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(wrong_bursts); i++) {
        options = plain;
        options.arrivals = ARRIVALS_BURSTY;
        options.burst_factor = wrong_bursts[i][0];
        options.burst_share = wrong_bursts[i][1];
        options.burst_mean_queries = wrong_bursts[i][2];
        EXPECT(simulate_workload_make(&options, &w) == LEAT_ERR_INVALID);
    }
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_draws();
    test_known_draws();
    test_weighted_sizes();
    test_gaussian_sizes();
    test_change();
    test_luck_and_noise();
    test_gaps();
    test_burst_length();
    test_file();
    test_seeds();
    test_refusals();
    return 0;
}
