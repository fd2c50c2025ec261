/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The rate and the dispersion of arrivals are what sched/load.h says, and as near to the truth as it says.
 * Method   Random arrivals, silences and questions, against all of the times; then arrivals whose rate is known.
 */
#include "sched/load.h"
#include "tests/leat_test.h"

#include <math.h>
#include <stdbool.h>

enum { WORLDS = LEAT_TEST_ROUNDS(300), CALLS = 3000, BUCKETS = LEAT_LOAD_BUCKETS };

static uint64_t random_state;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static double
exponential(void)
{
    return -log(1 - (double)(leat_test_random(&random_state) >> 11) * 0x1p-53);
}

/* All that ever came, and where buckets begin: whole ones from the start, or from the first call after a silence. */
static struct {
    uint64_t times_ns[2 * CALLS];
    bool first[2 * CALLS]; /* of the items that arrived with a query */
    uint32_t count;
    uint64_t bucket_ns, started_ns;
    uint64_t grid_ns, present_ns; /* a bucket's beginning; that of the present one */
    bool silence;                 /* there was one, so the window is full */
} naive;

static void
naive_move(uint64_t now_ns)
{
    if (now_ns >= naive.present_ns + (BUCKETS + 1) * naive.bucket_ns) {
        naive.grid_ns = now_ns;
        naive.silence = true;
    }
    if (now_ns > naive.present_ns) {
        naive.present_ns = now_ns - (now_ns - naive.grid_ns) % naive.bucket_ns;
    }
}

/* Of those in [from, to). */
static uint32_t
naive_count(uint64_t from_ns, uint64_t to_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive.count; i++) {
        count += naive.times_ns[i] >= from_ns && naive.times_ns[i] < to_ns;
    }
    return count;
}

/* Where the k-th bucket before the present one begins; time has no beginning in front of 0. */
static uint64_t
naive_bucket(uint32_t k)
{
    return naive.present_ns > k * naive.bucket_ns ? naive.present_ns - k * naive.bucket_ns : 0;
}

static uint32_t
naive_whole(void)
{
    const uint64_t whole = (naive.present_ns - naive.started_ns) / naive.bucket_ns;
    return naive.silence || whole > BUCKETS ? BUCKETS : (uint32_t)whole;
}

static void
check_rate(struct leat_load *load, uint64_t now_ns)
{
    const double window_s = (double)(BUCKETS * naive.bucket_ns) / 1e9;
    const uint32_t rate_qps = leat_load_rate_qps(load, now_ns);

    naive_move(now_ns);
    const uint32_t in_all = naive_count(naive_bucket(naive_whole()), now_ns + 1);
    double expected = in_all / window_s;
    if (naive_whole() < BUCKETS) {
        const uint64_t since_ns = now_ns - naive.started_ns;
        expected = in_all / ((double)(since_ns > naive.bucket_ns ? since_ns : naive.bucket_ns) / 1e9);
    } else {
        const uint32_t oldest = naive_count(naive_bucket(BUCKETS), naive_bucket(BUCKETS - 1));
        expected -= oldest * ((double)(now_ns - naive.present_ns) / (double)naive.bucket_ns) / window_s;
        const uint64_t window_ns = BUCKETS * naive.bucket_ns;
        const uint32_t exactly = naive_count(now_ns >= window_ns ? now_ns - window_ns + 1 : 0, now_ns + 1);
        EXPECT(fabs(rate_qps - exactly / window_s) <= 1 + oldest / window_s + 1e-4 * rate_qps);
    }
    EXPECT(rate_qps <= expected * (1 + 1e-4) && rate_qps >= expected * (1 - 1e-4) - 1.001);
}

static uint32_t
naive_queries(uint64_t from_ns, uint64_t to_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < naive.count; i++) {
        count += naive.first[i] && naive.times_ns[i] >= from_ns && naive.times_ns[i] < to_ns;
    }
    return count;
}

/* Says whether there was one. */
static bool
check_rise(struct leat_load *load, uint64_t now_ns)
{
    const uint32_t rising_qps = leat_load_rising_qps(load, now_ns), rate_qps = leat_load_rate_qps(load, now_ns);

    naive_move(now_ns);
    const uint64_t recent_ns = naive_bucket(LEAT_LOAD_RECENT - 1);
    const double share = naive_queries(naive_bucket(BUCKETS), naive.present_ns) / (BUCKETS / LEAT_LOAD_RECENT) + 2;
    const double beyond = naive_queries(recent_ns, now_ns + 1) - share;
    const double recent_s = (double)((LEAT_LOAD_RECENT - 1) * naive.bucket_ns + now_ns - naive.present_ns) / 1e9;
    const double recent_qps = naive_count(recent_ns, now_ns + 1) / recent_s;
    if (naive_whole() < BUCKETS || beyond <= 3 * sqrt(share) || recent_qps < rate_qps) {
        EXPECT(rising_qps == rate_qps);
        return false;
    }
    EXPECT(fabs(rising_qps - recent_qps) <= 1);
    return true;
}

static bool
check_dispersion(struct leat_load *load, uint64_t now_ns)
{
    const uint32_t found = leat_load_dispersion_ppm(load, now_ns);
    double sum = 0, squares = 0;

    naive_move(now_ns);
    const uint32_t whole = naive_whole();
    for (uint32_t k = 1; k <= whole; k++) {
        const double count = naive_count(naive_bucket(k), naive_bucket(k - 1));
        sum += count;
        squares += count * count;
    }
    if (whole < BUCKETS / 2 || sum < 2) {
        EXPECT(found == LEAT_LOAD_POISSON_PPM);
        return false;
    }
    const double mean = sum / whole, variance = (squares - whole * mean * mean) / (whole - 1);
    EXPECT(fabs(found - 1e6 * variance / mean) <= 1 + 1e-9 * found);
    return true;
}

static void
test_against_all_times(void)
{
    static const uint64_t windows_ns[] = {0, LEAT_LOAD_WINDOW_MIN_NS, 64 * UINT64_C(1000000), LEAT_LOAD_WINDOW_MAX_NS};
    uint32_t silences = 0, dispersions = 0, rises = 0, questions = 0;

    for (int world = 0; world < WORLDS; world++) {
        struct leat_load load;
        uint64_t now_ns = below(2) == 0 ? 0 : UINT64_C(1) << (below(2) == 0 ? 40 : 62);
        const uint64_t window_ns = windows_ns[below(4)];
        leat_load_init(&load, window_ns, now_ns);
        naive.count = 0;
        naive.bucket_ns = (window_ns > 0 ? window_ns : LEAT_LOAD_WINDOW_NS) / BUCKETS;
        naive.started_ns = naive.grid_ns = naive.present_ns = now_ns;
        naive.silence = false;
        uint64_t gap_ns = 1;
        for (int call = 0; call < CALLS; call++) {
            const uint64_t what = below(400);
            if (what < 20) {
                gap_ns = 1 + below(naive.bucket_ns << below(4));
            }
            if (what == 399) {
                now_ns += below(BUCKETS * 4 * naive.bucket_ns);
                silences++;
            } else {
                now_ns += below(4) == 0 ? 0 : below(gap_ns);
            }
            if (what < 380) {
                const uint32_t items = below(8) == 0 ? 2 + (uint32_t)below(7) : 1; /* as many arrivals at once */
                leat_load_arrive(&load, now_ns, items);
                naive_move(now_ns);
                for (uint32_t i = 0; i < items; i++) {
                    naive.first[naive.count] = i == 0;
                    naive.times_ns[naive.count++] = now_ns;
                }
            } else if (what < 390) {
                check_rate(&load, now_ns);
                rises += check_rise(&load, now_ns);
                questions++;
            } else {
                dispersions += check_dispersion(&load, now_ns);
            }
        }
    }
    EXPECT(silences > WORLDS && dispersions > WORLDS && rises > questions / 20 && rises < questions / 2);
}

/* Means over many windows, in which bursts are one window in two at four times the rate. */
static void
test_known_rates(void)
{
    static const struct {
        double rate_qps, burst_factor; /* 0: clockwork */
        double dispersion_low, dispersion_high;
    } kinds[] = {{2000, 1, 0.95, 1.05}, {40, 1, 0.9, 1.1}, {4000, 4, 3, 100}, {2000, 0, 0, 0.1}};

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct leat_load load;
        double now_ns = 0, rates = 0, dispersions = 0;
        uint32_t looks = 0;
        leat_load_init(&load, 0, 0);
        for (uint32_t i = 0; i < 400000 * (kinds[k].rate_qps > 100 ? 1 : 0.2); i++) {
            const bool burst = (uint64_t)(now_ns / 1e8) % 2 == 1;
            const double factor = kinds[k].burst_factor, part = factor > 1 ? (burst ? factor : 1) * 2 / (1 + factor) : 1;
            now_ns += 1e9 / kinds[k].rate_qps / part * (factor > 0 ? exponential() : 1);
            leat_load_arrive(&load, (uint64_t)now_ns, 1);
            if (i % 97 == 96 && now_ns > 1e9) {
                rates += leat_load_rate_qps(&load, (uint64_t)now_ns);
                dispersions += leat_load_dispersion_ppm(&load, (uint64_t)now_ns) / 1e6;
                looks++;
            }
        }
        const double rate_qps = rates / looks, dispersion = dispersions / looks;
        /* One too many a window, as it is asked on arrivals; those come in bursts, which says more of the rate there. */
        const double extra_qps = kinds[k].burst_factor > 1 ? 802 : 2;
        EXPECT(rate_qps > 0.97 * kinds[k].rate_qps && rate_qps < 1.03 * kinds[k].rate_qps + extra_qps);
        EXPECT(dispersion >= kinds[k].dispersion_low && dispersion <= kinds[k].dispersion_high);
    }
}

/* Even arrivals, however few, seem to rise once in 1000 questions at most. */
static double
test_even(struct leat_load *load, double rate_qps)
{
    double now_ns = 0;
    uint32_t rises = 0, questions = 0;

    leat_load_init(load, 0, 0);
    while (questions < 200000) {
        now_ns += 1e9 / rate_qps * exponential();
        leat_load_arrive(load, (uint64_t)now_ns, 16);
        if (now_ns > 1e9) {
            rises += leat_load_rising_qps(load, (uint64_t)now_ns) != leat_load_rate_qps(load, (uint64_t)now_ns);
            questions++;
        }
    }
    (void)printf("%u rises in %u questions at %g/s\n", rises, questions, rate_qps);
    EXPECT(rises < questions / 1000);
    return now_ns;
}

/* Arrivals that treble are seen to within an eighth of a window. */
static void
test_rises(void)
{
    static const double rates_qps[] = {2, 5, 10, 20, 50, 200, 2000};
    struct leat_load load;
    double now_ns = 0;

    for (size_t r = 0; r < sizeof(rates_qps) / sizeof(rates_qps[0]); r++) {
        now_ns = test_even(&load, rates_qps[r]);
    }
    const double until_ns = now_ns + (double)LEAT_LOAD_RECENT / BUCKETS * (double)LEAT_LOAD_WINDOW_NS;
    while (now_ns < until_ns) {
        now_ns += 1e9 / 6000 * exponential();
        leat_load_arrive(&load, (uint64_t)now_ns, 16);
    }
    const uint32_t rising_qps = leat_load_rising_qps(&load, (uint64_t)now_ns);
    EXPECT(rising_qps > 0.7 * 96000 && rising_qps < 1.3 * 96000);
}

static void
test_edges(void)
{
    struct leat_load load;

    leat_load_init(&load, 0, 1000);
    EXPECT(leat_load_rate_qps(&load, 1000) == 0 && leat_load_dispersion_ppm(&load, 1000) == LEAT_LOAD_POISSON_PPM);
    leat_load_arrive(&load, 1000, 1);
    EXPECT(leat_load_rate_qps(&load, 1000) == 128); /* one in a bucket, which is 1/128 of a second */
    EXPECT(leat_load_rate_qps(&load, 1000 + LEAT_LOAD_WINDOW_NS / 2) == 4);
    EXPECT(leat_load_rate_qps(&load, 0) == 4); /* time runs backwards: it stands still */
    leat_load_arrive(&load, 0, 1);
    EXPECT(leat_load_rate_qps(&load, 1000 + LEAT_LOAD_WINDOW_NS / 2) == 8);
    EXPECT(leat_load_rate_qps(&load, 1000 + 2 * LEAT_LOAD_WINDOW_NS) == 0);
    leat_load_arrive(&load, UINT64_C(1) << 63, 1); /* no step for each of the buckets between */
    EXPECT(leat_load_rate_qps(&load, UINT64_C(1) << 63) == 2);

    leat_load_init(&load, 1, 0); /* held to the least window */
    EXPECT(load.bucket_ns == LEAT_LOAD_WINDOW_MIN_NS / BUCKETS);
    leat_load_init(&load, UINT64_MAX, 0);
    EXPECT(load.bucket_ns == LEAT_LOAD_WINDOW_MAX_NS / BUCKETS);

    /* More than can be told: as many as there are numbers for, and nothing runs over. */
    leat_load_init(&load, LEAT_LOAD_WINDOW_MIN_NS, 0);
    for (uint32_t b = 0; b <= 2 * BUCKETS; b++) {
        leat_load_arrive(&load, b * load.bucket_ns, 100000);
        leat_load_arrive(&load, b * load.bucket_ns, UINT32_MAX);
    }
    EXPECT(leat_load_rate_qps(&load, 2 * BUCKETS * load.bucket_ns) == UINT32_MAX);
    EXPECT(leat_load_dispersion_ppm(&load, 2 * BUCKETS * load.bucket_ns) == 0);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    test_edges();
    test_against_all_times();
    test_known_rates();
    test_rises();
    return 0;
}
