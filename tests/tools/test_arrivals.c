/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Arrivals come at the rate asked for and with the burstiness that they are named for, from the first moment on;
 *          the same seed gives the same ones. A file of times is taken as it is, and a malformed one is an error.
 * Method   Moments of many arrivals against theory, within six standard deviations. For the bursty ones the variance of the
 *          counts in windows, over their mean (W. Fischer, K. Meier-Hellstern, "The Markov-modulated Poisson process (MMPP)
 *          cookbook", Performance Evaluation 18, 1993): two lengths of window, so that the time scale shows too.
 */
#include <math.h>

#include "base/align.h"
#include "tests/runtime/fake_root.h"
#include "tools/simulate/arrivals.h"

enum { COUNT = 200000, WINDOWS = 20000, STARTS = 20000 };

static void
test_constant(void)
{
    struct arrivals arrivals = {.kind = ARRIVALS_CONSTANT, .rate_qps = 250};

    arrivals_start(&arrivals, leat_test_seed);
    for (int n = 1; n <= 1000; n++) {
        EXPECT(fabs(arrivals_next(&arrivals) - n / 250.0) < 1e-9);
    }
}

/* Independent intervals of exponential length: mean and deviation are the same. */
static void
test_poisson(void)
{
    struct arrivals arrivals = {.kind = ARRIVALS_POISSON, .rate_qps = 40};
    double sum = 0, squares = 0, products = 0, last_s = 0, before = 0;

    arrivals_start(&arrivals, leat_test_seed);
    for (int n = 0; n < COUNT; n++) {
        const double next_s = arrivals_next(&arrivals), interval = (next_s - last_s) * arrivals.rate_qps;
        EXPECT(next_s >= last_s);
        sum += interval;
        squares += interval * interval;
        products += (interval - 1) * (before - 1) * (n > 0);
        before = interval;
        last_s = next_s;
    }
    EXPECT(fabs(sum / COUNT - 1) < 6 / sqrt(COUNT));
    EXPECT(fabs(squares / COUNT - 2) < 6 * sqrt(20.0 / COUNT)); /* E x^4 - (E x^2)^2 = 24 - 4 */
    EXPECT(fabs(products / COUNT) < 6 / sqrt(COUNT));           /* no interval tells of the next */
}

static const struct arrivals bursty = {
    .kind = ARRIVALS_BURSTY, .rate_qps = 100, .burst_factor = 5, .burst_share = 0.1, .burst_mean_s = 0.1};

/* Variance over mean of the number of arrivals in `window_s`. */
static double
dispersion(const struct arrivals *a, double window_s)
{
    const double calm_qps = a->rate_qps / (1 - a->burst_share + a->burst_share * a->burst_factor);
    const double apart_qps = calm_qps * (a->burst_factor - 1);
    const double calm_mean_s = a->burst_mean_s * (1 - a->burst_share) / a->burst_share;
    const double changes = 1 / a->burst_mean_s + 1 / calm_mean_s;
    const double limit = 2 * a->burst_share * (1 - a->burst_share) * apart_qps * apart_qps / (a->rate_qps * changes);

    return 1 + limit * (1 - (1 - exp(-changes * window_s)) / (changes * window_s));
}

static void
test_bursty(double window_s)
{
    struct arrivals arrivals = bursty;
    double sum = 0, squares = 0, bursting = 0, next_s;

    arrivals_start(&arrivals, leat_test_seed);
    next_s = arrivals_next(&arrivals);
    for (int w = 0; w < WINDOWS; w++) {
        double count = 0;
        while (next_s < (w + 1) * window_s) {
            count++;
            bursting += arrivals.bursting;
            next_s = arrivals_next(&arrivals);
        }
        sum += count;
        squares += count * count;
    }
    const double mean = sum / WINDOWS, expected = bursty.rate_qps * window_s;
    const double far = dispersion(&bursty, 1e6); /* neighbouring windows are not independent */
    EXPECT(fabs(mean - expected) < 6 * sqrt(far * expected / WINDOWS));
    const double found = (squares / WINDOWS - mean * mean) / mean, right = dispersion(&bursty, window_s);
    (void)printf("windows of %g s: mean %.3f for %.3f, dispersion %.3f for %.3f\n", window_s, mean, expected, found, right);
    EXPECT(fabs(found - right) < 0.15 * right);
    const double in_bursts =
        bursty.burst_share * bursty.burst_factor / (1 - bursty.burst_share + bursty.burst_share * bursty.burst_factor);
    EXPECT(fabs(bursting / sum - in_bursts) < 0.1 * in_bursts);
}

/* The first moments are as busy as any: a short measurement is not of calm times only. */
static void
test_bursty_start(void)
{
    const double window_s = bursty.burst_mean_s / 2, expected = bursty.rate_qps * window_s;
    double sum = 0;

    for (uint64_t s = 0; s < STARTS; s++) {
        struct arrivals arrivals = bursty;
        arrivals_start(&arrivals, leat_test_seed * STARTS + s);
        while (arrivals_next(&arrivals) < window_s) {
            sum++;
        }
    }
    EXPECT(fabs(sum / STARTS - expected) < 6 * sqrt(dispersion(&bursty, window_s) * expected / STARTS));
}

/* Counts in windows of any length: the mean asked for, and as many times a Poisson variance as asked for. */
static void
test_clusters(enum arrivals_kind kind, double dispersed, double window_s)
{
    struct rates_step step = {.end_s = 0.7, .qps = 100};
    const struct rates rates = {.steps = &step, .count = 1};
    struct arrivals arrivals = {.kind = kind, .rate_qps = 100, .dispersion = dispersed, .rates = &rates};
    double sum = 0, squares = 0, next_s, last_s = 0;

    arrivals_start(&arrivals, leat_test_seed);
    next_s = arrivals_next(&arrivals);
    for (int w = 0; w < WINDOWS; w++) {
        double count = 0;
        while (next_s < (w + 1) * window_s) {
            EXPECT(next_s >= last_s);
            last_s = next_s;
            count++;
            next_s = arrivals_next(&arrivals);
        }
        sum += count;
        squares += count * count;
    }
    const double mean = sum / WINDOWS, expected = 100 * window_s, found = (squares / WINDOWS - mean * mean) / mean;
    (void)printf("clusters, windows of %g s: mean %.3f for %.3f, dispersion %.3f for %.3f\n", window_s, mean, expected,
                 found, dispersed);
    EXPECT(fabs(mean - expected) < 6 * sqrt(dispersed * expected / WINDOWS));
    EXPECT(fabs(found / dispersed - 1) < 0.12 + 0.04 * (dispersed - 1) / expected);
}

/* Poisson at each of the rates, cycle after cycle; nothing at a rate of 0. */
static void
test_rates(void)
{
    enum { CYCLES = 2000, STEPS = 4 };
    struct rates_step steps[STEPS] = {{0.1, 50}, {0.35, 0}, {0.4, 1000}, {1, 20}};
    const struct rates rates = {.steps = steps, .count = STEPS};
    struct arrivals arrivals = {.kind = ARRIVALS_RATES, .rates = &rates};
    double counts[STEPS] = {0}, squares[STEPS] = {0}, last_s = 0, next_s;

    EXPECT(fabs(rates_mean_qps(&rates) - 67) < 1e-9);
    arrivals_start(&arrivals, leat_test_seed);
    next_s = arrivals_next(&arrivals);
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        for (int i = 0; i < STEPS; i++) {
            double count = 0;
            while (next_s < cycle + steps[i].end_s) {
                EXPECT(next_s >= last_s && next_s >= cycle + (i > 0 ? steps[i - 1].end_s : 0) - 1e-9);
                last_s = next_s;
                next_s = arrivals_next(&arrivals);
                count++;
            }
            counts[i] += count;
            squares[i] += count * count;
        }
    }
    for (int i = 0; i < STEPS; i++) {
        const double expected = steps[i].qps * (steps[i].end_s - (i > 0 ? steps[i - 1].end_s : 0));
        const double mean = counts[i] / CYCLES;
        EXPECT(fabs(mean - expected) <= 6 * sqrt(expected / CYCLES));
        EXPECT(expected == 0 || fabs((squares[i] / CYCLES - mean * mean) / mean - 1) < 6 * sqrt(2.5 / CYCLES));
    }
}

static void
test_rates_files(void)
{
    static const struct {
        const char *text;
        double cycle_s;
        int count; /* -1: malformed */
        double end_s, mean_qps;
    } cases[] = {
        {"interval_index,start_s,qps\n0,0,100\n1,10,200\n2,20,300\n", 0, 3, 30, 200},
        {"start_s,qps\n0,100\n10,200\n20,300\n", 21, 3, 21, 3300.0 / 21},
        {"start_s,qps\n0,100\n10,200\n20,300\n", 15, 2, 15, 2000.0 / 15},
        {"start_s,qps\n0,100\n10,200\n20,300\n", 100, 3, 100, (1000 + 2000 + 24000) / 100.0},
        {"start_s,qps\n0,5\n", 0, 1, 1, 5},
        {"start_s,qps\n1,5\n", 0, -1, 0, 0},
        {"start_s,qps\n0,5\n0,6\n", 0, -1, 0, 0},
        {"start_s,qps\n0,-5\n", 0, -1, 0, 0},
        {"start_s,rate\n0,5\n", 0, -1, 0, 0},
        {"start_s,qps\n", 0, -1, 0, 0},
        {"start_s,qps\n0,0\n1,0\n", 0, -1, 0, 0},
        {"52\n55\n\n 48.5\r\n", 0, 3, 3, 155.5 / 3},
        {"52\n55\n48", 2, 2, 2, 53.5},
        {"52\n55x\n", 0, -1, 0, 0},
        {"52\n-1\n", 0, -1, 0, 0},
        {"52,1\n", 0, -1, 0, 0},
        {"0\n0\n", 0, -1, 0, 0},
        {"", 0, -1, 0, 0},
    };
    struct fake_root root;
    char path[160];
    struct rates rates;

    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/rates", root.path);
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        fake_root_write(&root, "/rates", cases[i].text);
        const enum leat_status status = rates_read(path, cases[i].cycle_s, &rates);
        EXPECT(status == (cases[i].count < 0 ? LEAT_ERR_PROTO : LEAT_OK));
        EXPECT(status == LEAT_OK || strstr(leat_error_text(), path) != NULL);
        if (status == LEAT_OK) {
            EXPECT(rates.count == (uint32_t)cases[i].count);
            EXPECT(fabs(rates.steps[rates.count - 1].end_s - cases[i].end_s) < 1e-9);
            EXPECT(fabs(rates_mean_qps(&rates) - cases[i].mean_qps) < 1e-9);
            rates_scale(&rates, 3);
            EXPECT(fabs(rates_mean_qps(&rates) - 3 * cases[i].mean_qps) < 1e-9);
            rates_free(&rates);
        }
    }
    EXPECT(rates_read("/nonexistent/rates", 0, &rates) == LEAT_ERR_SYS);
    fake_root_fini(&root);
}

static void
test_seeds(void)
{
    static const enum arrivals_kind kinds[] = {ARRIVALS_POISSON, ARRIVALS_BURSTY};

    for (size_t k = 0; k < LEAT_COUNT_OF(kinds); k++) {
        struct arrivals a = bursty, b, c;
        int same = 0;
        a.kind = kinds[k];
        b = c = a;
        arrivals_start(&a, leat_test_seed);
        arrivals_start(&b, leat_test_seed);
        arrivals_start(&c, leat_test_seed + 1);
        for (int n = 0; n < 1000; n++) {
            const double at_s = arrivals_next(&a);
            EXPECT(arrivals_next(&b) == at_s);
            same += arrivals_next(&c) == at_s;
        }
        EXPECT(same == 0);
    }
}

static void
test_files(void)
{
    static const struct {
        const char *text;
        int count;      /* -1: malformed */
        uint32_t items; /* of the last */
    } cases[] = {
        {"0.5\n1\n1.0\n2e0\n", 4, 0},
        {"# seconds\n\n0.25\n  \t\n 0.5 \r\n0.75", 3, 0},
        {"0\n1000000000\n", 2, 0},
        {"", -1, 0},
        {"# nothing\n", -1, 0},
        {"1\n0.5\n", -1, 0},
        {"-1\n", -1, 0},
        {"1000000001\n", -1, 0},
        {"nan\n", -1, 0},
        {"inf\n", -1, 0},
        {"1e999\n", -1, 0},
        {"1 2\n", 1, 2},
        {"# time and items\n0 10\n0.5\t65536 \r\n1e0  00300\n", 3, 300},
        {"1 2\n2\n", -1, 0},
        {"1\n2 2\n", -1, 0},
        {"1 0\n", -1, 0},
        {"1 65537\n", -1, 0},
        {"1 99999999999999999999\n", -1, 0},
        {"1 -2\n", -1, 0},
        {"1 +2\n", -1, 0},
        {"1 2.5\n", -1, 0},
        {"1 2 3\n", -1, 0},
        {"1 two\n", -1, 0},
        {"1.5s\n", -1, 0},
        {"soon\n", -1, 0},
        {"0.5,1\n", -1, 0},
    };
    struct fake_root root;
    char path[160], longer[2000];
    struct arrivals_trace trace;

    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/times", root.path);
    for (size_t i = 0; i < LEAT_COUNT_OF(cases); i++) {
        fake_root_write(&root, "/times", cases[i].text);
        const enum leat_status status = arrivals_read_file(path, &trace);
        EXPECT(status == (cases[i].count < 0 ? LEAT_ERR_PROTO : LEAT_OK));
        EXPECT(status == LEAT_OK || strstr(leat_error_text(), path) != NULL);
        if (status == LEAT_OK) {
            struct arrivals arrivals = {.kind = ARRIVALS_FILE, .times_s = trace.times_s, .time_count = trace.count};
            EXPECT(trace.count == (size_t)cases[i].count && (trace.items != NULL) == (cases[i].items != 0));
            EXPECT(trace.items == NULL || trace.items[trace.count - 1] == cases[i].items);
            arrivals_start(&arrivals, leat_test_seed);
            for (size_t n = 0; n < trace.count; n++) {
                const double time_s = trace.times_s[n];
                EXPECT(arrivals_next(&arrivals) == time_s && (n == 0 || time_s >= trace.times_s[n - 1]));
            }
            EXPECT(arrivals_next(&arrivals) == -1);
            arrivals_trace_free(&trace);
        }
    }
    memset(longer, ' ', sizeof(longer)); /* a line is a line, however long */
    (void)strcpy(longer + 300, "7\n8\n");
    longer[0] = '#';
    fake_root_write(&root, "/times", longer);
    EXPECT(arrivals_read_file(path, &trace) == LEAT_OK && trace.count == 1 && trace.times_s[0] == 8);
    arrivals_trace_free(&trace);
    EXPECT(arrivals_read_file(root.path, &trace) == LEAT_ERR_SYS); /* a folder */
    EXPECT(arrivals_read_file("/nonexistent/times", &trace) == LEAT_ERR_SYS);
    fake_root_fini(&root);
}

/* From the first one on, gaps in proportion. */
static void
test_stretched_file(void)
{
    static const double times_s[] = {10, 10.5, 10.5, 13, 14}, still_s[] = {3, 3};
    struct arrivals a = {.kind = ARRIVALS_FILE, .rate_qps = 4, .times_s = times_s, .time_count = LEAT_COUNT_OF(times_s)};

    EXPECT(arrivals_own_rate_qps(times_s, LEAT_COUNT_OF(times_s)) == 1 && arrivals_own_rate_qps(times_s, 3) == 4);
    EXPECT(arrivals_own_rate_qps(still_s, 2) == 0 && arrivals_own_rate_qps(still_s, 1) == 0);
    arrivals_start(&a, leat_test_seed);
    for (size_t i = 0; i < LEAT_COUNT_OF(times_s); i++) {
        EXPECT(arrivals_next(&a) == (times_s[i] - 10) / 4);
    }
    EXPECT(arrivals_next(&a) == -1);
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_constant();
    test_poisson();
    test_bursty(bursty.burst_mean_s);
    test_bursty(10 * bursty.burst_mean_s);
    test_bursty_start();
    test_clusters(ARRIVALS_POISSON, 4, 0.05);
    test_clusters(ARRIVALS_POISSON, 4, 2);
    test_clusters(ARRIVALS_POISSON, 1.2, 0.2);
    test_clusters(ARRIVALS_RATES, 30, 1);
    test_rates();
    test_rates_files();
    test_seeds();
    test_files();
    test_stretched_file();
    return 0;
}
