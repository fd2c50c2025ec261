/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/cli/simulate_forecast.h - forecasts of the load by name, or by a model that the engine runs.
 *
 * Model     Input f32[N][6], output f32[N][1], as sched/forecast.h has them; tools/predict/lstm.onnx is one.
 * Threads   forecaster_qps() on any, at most as many at once as were opened for.
 */
#ifndef LEAT_TOOLS_CLI_SIMULATE_FORECAST_H
#define LEAT_TOOLS_CLI_SIMULATE_FORECAST_H

#include <stdatomic.h>

#include "kernels/backend.h"
#include "kernels/graph.h"
#include "sched/forecast.h"

struct forecaster {
    enum leat_forecast simple; /* where there is no plan */
    const struct leat_backend *backend;
    struct leat_graph *graph;
    struct leat_model *model;
    struct leat_plan *plan;
    atomic_bool failed; /* W: who forecasts  R: who closes; relaxed: threads have been joined */
};

/* `name` is one of leat_forecast_name(), or a file *.onnx, which `backend` is to run. */
LEAT_MUST_CHECK enum leat_status forecaster_open(const char *name, const struct leat_backend *backend, uint32_t threads,
                                                 struct forecaster *ret_forecaster);
/* Accepts zeros. */
void forecaster_close(struct forecaster *forecaster);

/* `context` is a forecaster. When a model fails it is noted and the last window counts. */
double forecaster_qps(void *context, const double maxima_qps[LEAT_FORECAST_WINDOWS]);

#endif /* LEAT_TOOLS_CLI_SIMULATE_FORECAST_H */
