/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/stages_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "tools/simulate/stages.h"

#define COEFFICIENT_MAX_MS 1e9
#define LATENCY_MIN_NS     1000
#define REVISIONS_MAX      16u /* that errors list */
#define NAME_ROOM          40u

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
    if (status == LEAT_OK && leat_themis_least_ms(&stage) <= 0) {
        return leat_csv_fail(csv, "batches would take no time, of any size, on any cores");
    }
    if (status == LEAT_OK) {
        *ret_stage = stage;
    }
    return status;
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* Those that are asked for: of a name, and of a revision where there is such a column. */
struct rows {
    const char *name, *revision; /* NULL: any, and the only one */
    uint32_t name_column, revision_column;
    char seen[REVISIONS_MAX][NAME_ROOM]; /* revisions of that name, each once, in order */
    uint32_t seen_count;                 /* one more: others, too */
};

static enum leat_status
rows_begin(const struct leat_csv *csv, struct rows *rows)
{
    rows->revision_column = leat_csv_find(csv, "revision");
    if (rows->revision != NULL && rows->revision_column == LEAT_CSV_NO_COLUMN) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: no column revision: --revision has nothing to choose from", csv->path);
    }
    return LEAT_OK;
}

/* Sets the revision's place in the order of their first rows. */
static enum leat_status
rows_see(const struct leat_csv *csv, struct rows *rows, uint32_t *ret_place)
{
    char revision[NAME_ROOM];
    uint32_t place = 0;

    const enum leat_status status = leat_csv_name(csv, rows->revision_column, revision, sizeof(revision));
    if (status != LEAT_OK) {
        return status;
    }
    while (place < rows->seen_count && place < REVISIONS_MAX && strcmp(rows->seen[place], revision) != 0) {
        place++;
    }
    if (place < REVISIONS_MAX) {
        memcpy(rows->seen[place], revision, sizeof(revision));
    }
    rows->seen_count = place < rows->seen_count ? rows->seen_count : place + 1;
    *ret_place = place;
    return LEAT_OK;
}

/* The next one; where no revision is asked for, of the first. LEAT_AGAIN behind the last. */
static enum leat_status
rows_next(struct leat_csv *csv, struct rows *rows)
{
    enum leat_status status;

    while ((status = leat_csv_next(csv)) == LEAT_OK) {
        uint32_t place = 0;
        if (rows->name != NULL && strcmp(csv->fields[rows->name_column], rows->name) != 0) {
            continue;
        }
        if (rows->revision_column == LEAT_CSV_NO_COLUMN) {
            return LEAT_OK;
        }
        status = rows_see(csv, rows, &place);
        if (status != LEAT_OK) {
            return status;
        }
        if (rows->revision != NULL ? strcmp(csv->fields[rows->revision_column], rows->revision) == 0 : place == 0) {
            return LEAT_OK;
        }
    }
    return status;
}

/* Behind the last: whether it was clear which ones were meant, and there were any. Messages put `what` before the name. */
static enum leat_status
rows_end(const struct leat_csv *csv, const struct rows *rows, const char *what, bool any)
{
    char listed[REVISIONS_MAX * (NAME_ROOM + 2) + 16] = "";
    const char *const name = rows->name != NULL ? rows->name : "";
    size_t at = 0;

    for (uint32_t r = 0; r < rows->seen_count; r++) {
        const char *revision = r < REVISIONS_MAX ? rows->seen[r] : "others";
        at += (size_t)snprintf(listed + at, sizeof(listed) - at, "%s%s", r > 0 ? ", " : "", revision);
    }
    if (rows->revision == NULL && rows->seen_count > 1) {
        return LEAT_FAIL(LEAT_ERR_INVALID,
                         "%s: more than one revision has a %s%s: --revision is to say which one is meant: %s",
                         csv->path, what, name, listed);
    }
    if (!any && rows->seen_count > 0) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s: revision %s has no %s%s: there are %s", csv->path, rows->revision, what,
                         name, listed);
    }
    return any ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s: no %s%s", csv->path, what, name);
}

static const char *const column_names[] = {"alpha", "beta", "gamma", "zeta", "max_batch", "max_cores"};

static enum leat_status
read_rows(struct leat_csv *csv, struct rows *rows, struct leat_themis_pipeline *table)
{
    uint32_t columns[6];
    enum leat_status status = rows_begin(csv, rows), stage_status = LEAT_OK;

    rows->name_column = leat_csv_find(csv, "pipeline");
    if ((rows->name_column != LEAT_CSV_NO_COLUMN) != (rows->name != NULL)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s: %s", csv->path,
                         rows->name != NULL ? "no column pipeline: it has one pipeline, which needs no name"
                                            : "a column pipeline: --pipeline is to say which one is meant");
    }
    for (uint32_t i = 0; i < 6 && status == LEAT_OK; i++) {
        status = leat_csv_need(csv, column_names[i], &columns[i]);
    }
    while (status == LEAT_OK && (status = rows_next(csv, rows)) == LEAT_OK) {
        if (table->stage_count == LEAT_SCALE_STAGES_MAX) {
            return leat_csv_fail(csv, "more than %u stages", LEAT_SCALE_STAGES_MAX);
        }
        /* To the end even so: what is wrong may be of a revision that is not meant. */
        struct leat_themis_stage *stage = &table->stages[table->stage_count++];
        stage_status = stage_status == LEAT_OK ? read_stage(csv, columns, stage) : stage_status;
    }
    if (status == LEAT_AGAIN) {
        status = rows_end(csv, rows, rows->name != NULL ? "stage of pipeline " : "stage", table->stage_count > 0);
    }
    return status == LEAT_OK ? stage_status : status;
}

enum leat_status
stages_table_read(const char *path, const char *pipeline, const char *revision, struct leat_themis_pipeline *ret_pipeline)
{
    struct leat_themis_pipeline table = {0};
    struct rows rows = {.name = pipeline, .revision = revision};
    struct leat_csv csv;
    enum leat_status status = leat_csv_open(path, &csv);

    if (status != LEAT_OK) {
        return status;
    }
    status = read_rows(&csv, &rows, &table);
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

static enum leat_status
find_row(struct leat_csv *csv, struct rows *rows, struct leat_themis_stage *ret_stage, uint32_t *ret_items_min,
         uint32_t *ret_items_max)
{
    uint32_t columns[6];
    bool any = false;
    enum leat_status status = rows_begin(csv, rows), stage_status = LEAT_OK;

    status = status == LEAT_OK ? leat_csv_need(csv, "application", &rows->name_column) : status;
    for (uint32_t i = 0; i < 6 && status == LEAT_OK; i++) {
        status = leat_csv_need(csv, column_names[i], &columns[i]);
    }
    while (status == LEAT_OK && (status = rows_next(csv, rows)) == LEAT_OK) {
        if (!any) {
            stage_status = read_stage(csv, columns, ret_stage);
            stage_status = stage_status == LEAT_OK ? read_items(csv, ret_items_min, ret_items_max) : stage_status;
            any = true;
        }
    }
    if (status == LEAT_AGAIN) {
        status = rows_end(csv, rows, "row of application ", any);
    }
    return status == LEAT_OK ? stage_status : status;
}

enum leat_status
stages_table_find(const char *path, const char *application, const char *revision, struct leat_themis_stage *ret_stage,
                  uint32_t *ret_items_min, uint32_t *ret_items_max)
{
    struct rows rows = {.name = application, .revision = revision};
    struct leat_csv csv;
    enum leat_status status = leat_csv_open(path, &csv);

    if (status != LEAT_OK) {
        return status;
    }
    status = find_row(&csv, &rows, ret_stage, ret_items_min, ret_items_max);
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
                *next_ns++ = ns > LATENCY_MIN_NS ? (uint64_t)ns : ns > 0 ? LATENCY_MIN_NS : 0; /* 0: not to be had */
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
