/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/stages_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "tools/simulate/stages.h"

#define COEFFICIENT_MAX_MS 1e9
#define LATENCY_MIN_NS     1000

static enum leat_status
read_stage(const struct leat_csv *csv, const uint32_t *columns, struct leat_themis_stage *ret_stage)
{
    struct leat_themis_stage stage;
    double *const coefficients[] = {&stage.latency.alpha_ms, &stage.latency.beta_ms, &stage.latency.gamma_ms, &stage.latency.zeta_ms};
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < 4 && status == LEAT_OK; i++) {
        status = leat_csv_number(csv, columns[i], -COEFFICIENT_MAX_MS, COEFFICIENT_MAX_MS, coefficients[i]);
    }
    status = status == LEAT_OK ? leat_csv_integer(csv, columns[4], 1, LEAT_SCALE_BATCH_MAX, &stage.batch_max) : status;
    status = status == LEAT_OK ? leat_csv_integer(csv, columns[5], 1, LEAT_SCALE_CORES_MAX, &stage.cores_max) : status;
    for (uint32_t c = 1; status == LEAT_OK && c <= stage.cores_max; c++) {
        for (uint32_t b = 1; b <= stage.batch_max; b++) {
            if (leat_scale_latency_ms(&stage.latency, b, c) <= 0) {
                return leat_csv_fail(csv, "a batch of %u on %u cores would take no time", b, c);
            }
        }
    }
    if (status == LEAT_OK) {
        *ret_stage = stage;
    }
    return status;
}

static const char *const column_names[] = {"alpha", "beta", "gamma", "zeta", "max_batch", "max_cores"};

static enum leat_status
read_rows(struct leat_csv *csv, const char *pipeline, struct leat_themis_pipeline *table)
{
    const uint32_t of = leat_csv_find(csv, "pipeline");
    uint32_t columns[6];
    enum leat_status status = LEAT_OK;

    if ((of != LEAT_CSV_NO_COLUMN) != (pipeline != NULL)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: %s", csv->path,
                         pipeline != NULL ? "no column pipeline: it has one pipeline, which needs no name"
                                          : "a column pipeline: --pipeline is to say which one is meant");
    }
    for (uint32_t i = 0; i < 6 && status == LEAT_OK; i++) {
        status = leat_csv_need(csv, column_names[i], &columns[i]);
    }
    while (status == LEAT_OK && (status = leat_csv_next(csv)) == LEAT_OK) {
        if (pipeline != NULL && strcmp(csv->fields[of], pipeline) != 0) {
            continue;
        }
        if (table->stage_count == LEAT_SCALE_STAGES_MAX) {
            return leat_csv_fail(csv, "more than %u stages", LEAT_SCALE_STAGES_MAX);
        }
        status = read_stage(csv, columns, &table->stages[table->stage_count++]);
    }
    if (status == LEAT_AGAIN) {
        status = table->stage_count > 0 ? LEAT_OK
                                        : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s: no stage%s%s", csv->path,
                                                    pipeline != NULL ? " of pipeline " : "", pipeline != NULL ? pipeline : "");
    }
    return status;
}

enum leat_status
stages_table_read(const char *path, const char *pipeline, struct leat_themis_pipeline *ret_pipeline)
{
    struct leat_themis_pipeline table = {0};
    struct leat_csv csv;
    enum leat_status status = leat_csv_open(path, &csv);

    if (status != LEAT_OK) {
        return status;
    }
    status = read_rows(&csv, pipeline, &table);
    leat_csv_close(&csv);
    if (status == LEAT_OK) {
        *ret_pipeline = table;
    }
    return status;
}

static enum leat_status
read_items(const struct leat_csv *csv, uint32_t *ret_min, uint32_t *ret_max)
{
    const uint32_t least = leat_csv_find(csv, "items_min"), most = leat_csv_find(csv, "items_max");

    *ret_min = *ret_max = 0;
    if (least == LEAT_CSV_NO_COLUMN && most == LEAT_CSV_NO_COLUMN) {
        return LEAT_OK;
    }
    if (least == LEAT_CSV_NO_COLUMN || most == LEAT_CSV_NO_COLUMN) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: of the columns items_min and items_max there is one only", csv->path);
    }
    enum leat_status status = leat_csv_integer(csv, most, 1, STAGES_ITEMS_MAX, ret_max);
    return status == LEAT_OK ? leat_csv_integer(csv, least, 0, *ret_max, ret_min) : status;
}

enum leat_status
stages_table_find(const char *path, const char *application, struct leat_themis_stage *ret_stage, uint32_t *ret_items_min,
                  uint32_t *ret_items_max)
{
    uint32_t of, columns[6];
    struct leat_csv csv;
    enum leat_status status = leat_csv_open(path, &csv);

    if (status != LEAT_OK) {
        return status;
    }
    status = leat_csv_need(&csv, "application", &of);
    for (uint32_t i = 0; i < 6 && status == LEAT_OK; i++) {
        status = leat_csv_need(&csv, column_names[i], &columns[i]);
    }
    while (status == LEAT_OK && (status = leat_csv_next(&csv)) == LEAT_OK && strcmp(csv.fields[of], application) != 0) {
    }
    if (status == LEAT_OK) {
        status = read_stage(&csv, columns, ret_stage);
        status = status == LEAT_OK ? read_items(&csv, ret_items_min, ret_items_max) : status;
    } else if (status == LEAT_AGAIN) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s: no row of application '%s'", path, application);
    }
    leat_csv_close(&csv);
    return status;
}

enum leat_status
stages_joint_make(const struct leat_themis_pipeline *pipeline, struct leat_joint_application *ret_joint,
                  uint64_t **ret_latency_ns)
{
    struct leat_joint_application joint = {
        .stage_count = pipeline->stage_count, .objective_ns = pipeline->objective_ms * UINT64_C(1000000), .weight = 1};
    size_t cells = 0;

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        cells += (size_t)pipeline->stages[s].cores_max * pipeline->stages[s].batch_max;
    }
    uint64_t *const latency_ns = malloc(cells * sizeof(latency_ns[0]));
    if (latency_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for times of %u stages", pipeline->stage_count);
    }
    uint64_t *next_ns = latency_ns;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_themis_stage *stage = &pipeline->stages[s];
        joint.stages[s] = (struct leat_joint_stage){.latency_ns = {next_ns},
                                                    .cores_max = stage->cores_max,
                                                    .batch_max = stage->batch_max,
                                                    .cores_min = 1,
                                                    .instances_min = 1,
                                                    .instances_max = UINT32_MAX,
                                                    .calls = 1};
        for (uint32_t c = 1; c <= stage->cores_max; c++) {
            for (uint32_t b = 1; b <= stage->batch_max; b++) {
                const double ns = 1e6 * leat_scale_latency_ms(&stage->latency, b, c);
                *next_ns++ = ns > LATENCY_MIN_NS ? (uint64_t)ns : LATENCY_MIN_NS;
            }
        }
        joint.terms[joint.term_count++] = (int8_t)s;
        if (s > 0) {
            joint.terms[joint.term_count++] = LEAT_JOINT_SERIES;
        }
    }
    *ret_joint = joint;
    *ret_latency_ns = latency_ns;
    return LEAT_OK;
}
