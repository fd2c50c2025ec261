/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/forecast.h"

#include <string.h>

#include "base/status.h"
#include "sched/forecast_weights.h"

static const char *const names[LEAT_FORECASTS] = {"last", "mean", "maximum", "trend", "quantile50", "quantile90", "quantile99"};

/* Of those that are sums. */
static const double weights[LEAT_FORECASTS][LEAT_FORECAST_WINDOWS] = {
    [LEAT_FORECAST_LAST] = {0, 0, 0, 0, 0, 1},
    [LEAT_FORECAST_MEAN] = {1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0},
    [LEAT_FORECAST_TREND] = {-5 / 15.0, -2 / 15.0, 1 / 15.0, 4 / 15.0, 7 / 15.0, 10 / 15.0},
    [LEAT_FORECAST_QUANTILE50] = LEAT_FORECAST_WEIGHTS_50,
    [LEAT_FORECAST_QUANTILE90] = LEAT_FORECAST_WEIGHTS_90,
    [LEAT_FORECAST_QUANTILE99] = LEAT_FORECAST_WEIGHTS_99,
};

const char *
leat_forecast_name(enum leat_forecast forecast)
{
    LEAT_ASSERT(forecast < LEAT_FORECASTS);
    return names[forecast];
}

bool
leat_forecast_find(const char *name, enum leat_forecast *ret_forecast)
{
    for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
        if (strcmp(name, names[forecast]) == 0) {
            *ret_forecast = forecast;
            return true;
        }
    }
    return false;
}

double
leat_forecast_qps(enum leat_forecast forecast, const double maxima_qps[LEAT_FORECAST_WINDOWS])
{
    double sum_qps = 0, most_qps = 0;

    LEAT_ASSERT(forecast < LEAT_FORECASTS);
    for (unsigned w = 0; w < LEAT_FORECAST_WINDOWS; w++) {
        sum_qps += weights[forecast][w] * maxima_qps[w];
        most_qps = maxima_qps[w] > most_qps ? maxima_qps[w] : most_qps;
    }
    const double qps = forecast == LEAT_FORECAST_MAXIMUM ? most_qps : sum_qps;
    return qps > 0 ? qps : 0; /* a line that falls steeply ends below */
}
