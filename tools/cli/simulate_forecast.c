/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/simulate_forecast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"

enum { FILE_BYTES_MAX = 16 << 20 };

static enum leat_status
import(const char *path, struct leat_graph **ret_graph)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(FILE_BYTES_MAX);
    enum leat_status status = LEAT_OK;

    if (file == NULL || bytes == NULL) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    } else {
        status = leat_onnx_import(bytes, fread(bytes, 1, FILE_BYTES_MAX, file), ret_graph);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(bytes);
    return status;
}

static enum leat_status
open_model(const char *path, uint32_t threads, struct forecaster *forecaster)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    enum leat_status status = import(path, &forecaster->graph);
    if (status == LEAT_OK) {
        status = leat_graph_signature(forecaster->graph, infos, &inputs, &outputs);
    }
    if (status == LEAT_OK && (inputs != 1 || outputs != 1 || infos[0].dtype != LEAT_DTYPE_F32 || infos[1].dtype != LEAT_DTYPE_F32 ||
                              infos[0].item_bytes != LEAT_FORECAST_WINDOWS * sizeof(float) || infos[1].item_bytes != sizeof(float))) {
        return LEAT_FAIL(LEAT_ERR_SHAPE, "%s makes no forecast: f32[N][%u] to f32[N][1] would", path, LEAT_FORECAST_WINDOWS);
    }
    if (status == LEAT_OK) {
        status = leat_graph_optimise(forecaster->graph, UINT64_MAX);
    }
    const struct leat_model_source source = {.graph = forecaster->graph, .infos = infos, .input_count = 1, .output_count = 1};
    if (status == LEAT_OK) {
        status = forecaster->backend->model_load(&source, &forecaster->model);
    }
    const struct leat_plan_options options = {.items = 1, .runs = threads};
    return status == LEAT_OK ? forecaster->backend->plan_build(forecaster->model, &options, &forecaster->plan) : status;
}

enum leat_status
forecaster_open(const char *name, const struct leat_backend *backend, uint32_t threads, struct forecaster *ret_forecaster)
{
    const size_t length = strlen(name);

    *ret_forecaster = (struct forecaster){.backend = backend};
    if (leat_forecast_find(name, &ret_forecaster->simple)) {
        return LEAT_OK;
    }
    if (length < 5 || strcmp(name + length - 5, ".onnx") != 0) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no forecast '%s'", name);
    }
    const enum leat_status status = open_model(name, threads, ret_forecaster);
    if (status != LEAT_OK) {
        forecaster_close(ret_forecaster);
    }
    return status;
}

void
forecaster_close(struct forecaster *forecaster)
{
    if (forecaster->backend != NULL) {
        forecaster->backend->plan_destroy(forecaster->plan);
        forecaster->backend->model_destroy(forecaster->model);
    }
    leat_graph_destroy(forecaster->graph);
    *forecaster = (struct forecaster){0};
}

double
forecaster_qps(void *context, const double maxima_qps[LEAT_FORECAST_WINDOWS])
{
    struct forecaster *forecaster = context;
    _Alignas(64) float input[LEAT_FORECAST_WINDOWS], output[1];

    if (forecaster->plan == NULL) {
        return leat_forecast_qps(forecaster->simple, maxima_qps);
    }
    for (uint32_t w = 0; w < LEAT_FORECAST_WINDOWS; w++) {
        input[w] = (float)maxima_qps[w];
    }
    const struct leat_segment segment = {.items = 1, .tensors = {input, output}};
    void *scratch = aligned_alloc(64, leat_round_up(forecaster->backend->plan_scratch_bytes(forecaster->plan) + 1, 64));
    const bool good =
        scratch != NULL && forecaster->backend->plan_run(forecaster->plan, &segment, 1, scratch, NULL) == LEAT_OK;
    free(scratch);
    if (!good) {
        atomic_store_explicit(&forecaster->failed, true, memory_order_relaxed);
        return leat_forecast_qps(LEAT_FORECAST_LAST, maxima_qps);
    }
    return (double)output[0];
}
