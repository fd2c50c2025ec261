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

void
leat_forecast_remember(struct leat_forecast_memory *memory, uint64_t arrived, uint64_t now_ns)
{
    const uint64_t second_ns = 1000000000, passed_ns = now_ns - memory->second_ns;

    if (memory->second_ns == 0 || arrived < memory->arrived) {
        *memory = (struct leat_forecast_memory){0};
    } else if (passed_ns < second_ns) {
        return;
    } else {
        memory->rates_qps[memory->next] = (float)((double)(arrived - memory->arrived) * (double)second_ns / (double)passed_ns);
        memory->next = (memory->next + 1) % LEAT_FORECAST_SECONDS;
        memory->seconds += memory->seconds < LEAT_FORECAST_SECONDS;
    }
    memory->second_ns = now_ns;
    memory->arrived = arrived;
}

double
leat_forecast_foresee(const struct leat_forecast_memory *memory, enum leat_forecast forecast)
{
    double maxima_qps[LEAT_FORECAST_WINDOWS] = {0};

    if (memory->seconds < LEAT_FORECAST_SECONDS) {
        return 0;
    }
    for (uint32_t s = 0; s < LEAT_FORECAST_SECONDS; s++) { /* from the oldest, which is the next to be replaced */
        const double qps = memory->rates_qps[(memory->next + s) % LEAT_FORECAST_SECONDS];
        double *most_qps = &maxima_qps[s / LEAT_FORECAST_WINDOW_S];
        *most_qps = qps > *most_qps ? qps : *most_qps;
    }
    return leat_forecast_qps(forecast, maxima_qps);
}
