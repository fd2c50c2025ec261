/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/forecast.h - how high a load will rise in the next ten seconds, from how high it rose in the last six times ten.
 *
 * Source    Inputs and output are those of Themis' predictor (sched/scale_themis.h), which is a recurrent network; tools/predict trains
 *           one, which the engine runs. These are simpler. Weights of the quantile regressions: tools/predict/train.py.
 * Scale     A load c times as high has a forecast c times as high.
 * Quantiles The load is to stay below quantile 90 in 90 of 100 windows, as it did in those that the weights were learned from.
 * Threads   None; pure functions.
 */
#ifndef LEAT_SCHED_FORECAST_H
#define LEAT_SCHED_FORECAST_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_FORECAST_WINDOWS   6u
#define LEAT_FORECAST_WINDOW_S 10u

enum leat_forecast {
    LEAT_FORECAST_LAST,
    LEAT_FORECAST_MEAN,
    LEAT_FORECAST_MAXIMUM,
    LEAT_FORECAST_TREND, /* the line of least squares, one window on */
    LEAT_FORECAST_QUANTILE50,
    LEAT_FORECAST_QUANTILE90,
    LEAT_FORECAST_QUANTILE99,
    LEAT_FORECASTS,
};

const char *leat_forecast_name(enum leat_forecast forecast); /* "quantile50" */
bool leat_forecast_find(const char *name, enum leat_forecast *ret_forecast);

/* The highest rate of a second in the next window, from those of the last windows, the latest last; none is negative. */
double leat_forecast_qps(enum leat_forecast forecast, const double maxima_qps[LEAT_FORECAST_WINDOWS]);

#define LEAT_FORECAST_SECONDS (LEAT_FORECAST_WINDOWS * LEAT_FORECAST_WINDOW_S)

/* The rates of the last seconds. All zeroes at the start. */
struct leat_forecast_memory {
    uint64_t second_ns, arrived; /* when the last second ended, and how many had arrived by then */
    uint32_t seconds;            /* that are known; stays at LEAT_FORECAST_SECONDS */
    uint32_t next;               /* place of the next one */
    float rates_qps[LEAT_FORECAST_SECONDS]; /* ring */
};

/*
 * How many have arrived by now; to be told several times a second. A second ends at the first telling behind its end. Who has
 * fewer than before has begun anew, and so does the memory.
 */
void leat_forecast_remember(struct leat_forecast_memory *memory, uint64_t arrived, uint64_t now_ns);

/* From what is remembered; 0 until that is all windows. */
double leat_forecast_foresee(const struct leat_forecast_memory *memory, enum leat_forecast forecast);

#endif /* LEAT_SCHED_FORECAST_H */
