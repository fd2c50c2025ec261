/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Forecasts are what their names say, of the seconds that were remembered, grow with the load, and lie in the order of their quantiles on the paper's trace.
 * Method   Constant loads and lines by hand; random windows at several scales; windows of the committed slice of the Twitter stream,
 *          with how often the load then rose above each quantile.
 */
#include <math.h>
#include <string.h>

#include "sched/forecast.h"
#include "tests/leat_test.h"

static void
test_names(void)
{
    enum leat_forecast found;

    for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
        EXPECT(leat_forecast_find(leat_forecast_name(forecast), &found) && found == forecast);
    }
    EXPECT(!leat_forecast_find("", &found) && !leat_forecast_find("lasts", &found));
}

static void
test_by_hand(void)
{
    const double line[] = {10, 12, 14, 16, 18, 20}, fall[] = {100, 80, 60, 40, 20, 0}, odd[] = {3, 9, 4, 30, 7, 7}, none[6] = {0};

    EXPECT(fabs(leat_forecast_qps(LEAT_FORECAST_TREND, line) - 22) < 1e-9);
    EXPECT(leat_forecast_qps(LEAT_FORECAST_TREND, fall) == 0); /* the line goes below */
    EXPECT(leat_forecast_qps(LEAT_FORECAST_LAST, odd) == 7);
    EXPECT(leat_forecast_qps(LEAT_FORECAST_MAXIMUM, odd) == 30);
    EXPECT(fabs(leat_forecast_qps(LEAT_FORECAST_MEAN, odd) - 10) < 1e-9);
    for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
        EXPECT(leat_forecast_qps(forecast, none) == 0);
    }
}

static void
test_scale(void)
{
    uint64_t random_state = leat_test_seed;

    for (uint32_t round = 0; round < 1000; round++) {
        double one[LEAT_FORECAST_WINDOWS], more[LEAT_FORECAST_WINDOWS];
        const double scale = 0.01 * (double)(1 + leat_test_random(&random_state) % 100000);
        for (uint32_t w = 0; w < LEAT_FORECAST_WINDOWS; w++) {
            one[w] = (double)(leat_test_random(&random_state) % 1000);
            more[w] = scale * one[w];
        }
        for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
            const double qps = leat_forecast_qps(forecast, one);
            EXPECT(fabs(leat_forecast_qps(forecast, more) - scale * qps) <= 1e-9 * scale * (qps + 1000));
            EXPECT(qps >= 0);
        }
    }
}

/* Told at odd moments, and after stalls: as a plain list of the seconds says. */
static void
test_memory(void)
{
    static double rates[1000];
    struct leat_forecast_memory memory = {0};
    uint64_t random_state = leat_test_seed, now_ns = 5, arrived = 7, second_ns = 5, second_arrived = 7;
    uint32_t count = 0;

    leat_forecast_remember(&memory, arrived, now_ns);
    while (count < 1000) {
        double maxima[LEAT_FORECAST_WINDOWS] = {0};
        now_ns += 1 + leat_test_random(&random_state) % (leat_test_random(&random_state) % 50 == 0 ? 7000000000u : 300000000u);
        arrived += leat_test_random(&random_state) % 100;
        leat_forecast_remember(&memory, arrived, now_ns);
        if (now_ns - second_ns >= 1000000000) {
            rates[count++] = (double)(float)((double)(arrived - second_arrived) * 1e9 / (double)(now_ns - second_ns));
            second_ns = now_ns;
            second_arrived = arrived;
        }
        for (uint32_t s = 0; s < 60 && count >= 60; s++) {
            maxima[s / 10] = fmax(maxima[s / 10], rates[count - 60 + s]);
        }
        EXPECT(leat_forecast_foresee(&memory, LEAT_FORECAST_TREND) ==
               (count >= 60 ? leat_forecast_qps(LEAT_FORECAST_TREND, maxima) : 0));
    }
    leat_forecast_remember(&memory, 0, now_ns + 1); /* another one has begun */
    EXPECT(memory.seconds == 0 && leat_forecast_foresee(&memory, LEAT_FORECAST_MAXIMUM) == 0);
}

/* The slice is 64 windows of a load that jumps: shares are wide of those that were learned, their order is not. */
static void
test_quantiles(const char *path)
{
    double maxima_qps[64] = {0};
    uint32_t above[LEAT_FORECASTS] = {0}, windows = 0, seconds = 0;
    FILE *file = fopen(path, "r");
    double qps;

    EXPECT(file != NULL);
    for (; windows < 64 && fscanf(file, "%lf", &qps) == 1; seconds++) {
        windows = seconds / LEAT_FORECAST_WINDOW_S;
        if (windows < 64) {
            maxima_qps[windows] = fmax(maxima_qps[windows], qps);
        }
    }
    (void)fclose(file);
    EXPECT(windows == 64);
    for (uint32_t w = LEAT_FORECAST_WINDOWS; w < windows; w++) {
        for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
            above[forecast] += maxima_qps[w] > leat_forecast_qps(forecast, &maxima_qps[w - LEAT_FORECAST_WINDOWS]);
        }
    }
    EXPECT(above[LEAT_FORECAST_QUANTILE50] > above[LEAT_FORECAST_QUANTILE90]);
    EXPECT(above[LEAT_FORECAST_QUANTILE90] > above[LEAT_FORECAST_QUANTILE99]);
    EXPECT(above[LEAT_FORECAST_QUANTILE50] > 58 / 4 && above[LEAT_FORECAST_QUANTILE50] < 58 * 3 / 4);
    EXPECT(above[LEAT_FORECAST_QUANTILE90] < 58 / 4 && above[LEAT_FORECAST_QUANTILE99] < 58 / 10);
}

int
main(int argc, char **argv)
{
    leat_test_init();
    EXPECT(argc == 2);
    test_names();
    test_by_hand();
    test_scale();
    test_memory();
    test_quantiles(argv[1]);
    return 0;
}
