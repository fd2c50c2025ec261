/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/synthetic_times.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include <leat/tensor.h>

#include "base/csv.h"

#define TIME_MAX_MS 60000.0 /* as long as a synthetic batch may take */

struct columns {
    uint32_t model, instance, items, mean;
    uint32_t *samples; /* [sample_count]; with none the mean is the only one */
    uint32_t sample_count;
};

/* s and a number. */
static bool
is_sample(const char *name)
{
    return name[0] == 's' && name[1] != '\0' && name[1 + strspn(name + 1, "0123456789")] == '\0';
}

static enum leat_status
find_columns(const struct leat_csv *csv, struct columns *columns)
{
    const struct {
        const char *name;
        uint32_t *column;
    } needed[] = {{"model", &columns->model}, {"instance", &columns->instance}, {"batch", &columns->items}};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        const enum leat_status status = leat_csv_need(csv, needed[i].name, needed[i].column);
        if (status != LEAT_OK) {
            return status;
        }
    }
    columns->samples = calloc(csv->column_count, sizeof(columns->samples[0]));
    if (columns->samples == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the columns of %s", csv->path);
    }
    for (uint32_t c = 0; c < csv->column_count; c++) {
        if (is_sample(csv->names[c])) {
            columns->samples[columns->sample_count++] = c;
        }
    }
    if (columns->sample_count > 0) {
        return LEAT_OK;
    }
    columns->sample_count = 1;
    columns->samples[0] = leat_csv_find(csv, "mean_ms");
    return columns->samples[0] != LEAT_CSV_NO_COLUMN
               ? LEAT_OK
               : leat_csv_fail(csv, "there are neither samples (columns s0, s1, ...) nor a column 'mean_ms'");
}

static enum leat_status
add_row(const struct leat_csv *csv, const struct columns *columns, json_t *tables)
{
    char instance[32];
    uint32_t items = 0;

    enum leat_status status = leat_csv_name(csv, columns->instance, instance, sizeof(instance));
    if (status == LEAT_OK) {
        status = leat_csv_integer(csv, columns->items, 1, LEAT_ITEMS_MAX, &items);
    }
    if (status != LEAT_OK) {
        return status;
    }
    json_t *table = json_object_get(tables, instance);
    if (table == NULL) {
        (void)json_object_set_new(tables, instance, json_array());
        table = json_object_get(tables, instance);
    }
    const json_t *last = json_array_get(table, json_array_size(table) - 1); /* NULL where there is none */
    if (last != NULL && items <= json_integer_value(json_object_get(last, "items"))) {
        return leat_csv_fail(csv, "batch %u: sizes of an instance are to rise", items);
    }
    json_t *samples = json_array();
    for (uint32_t s = 0; s < columns->sample_count && status == LEAT_OK; s++) {
        double time_ms = 0;
        status = leat_csv_number(csv, columns->samples[s], 0, TIME_MAX_MS, &time_ms);
        (void)json_array_append_new(samples, json_integer((json_int_t)(time_ms * 1e6 + 0.5)));
    }
    json_t *row = json_pack("{s:I, s:o}", "items", (json_int_t)items, "samples_ns", samples);
    if (json_array_append_new(table, row) != 0 && status == LEAT_OK) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the times in %s", csv->path);
    }
    return status;
}

static enum leat_status
read_tables(const char *path, const char *model, json_t *tables)
{
    struct leat_csv csv;
    struct columns columns = {0};

    enum leat_status status = leat_csv_open(path, &csv);
    if (status != LEAT_OK) {
        return status;
    }
    status = find_columns(&csv, &columns);
    while (status == LEAT_OK && (status = leat_csv_next(&csv)) == LEAT_OK) {
        if (strcmp(csv.fields[columns.model], model) == 0) {
            status = add_row(&csv, &columns, tables);
        }
    }
    free(columns.samples);
    leat_csv_close(&csv);
    if (status == LEAT_AGAIN) {
        status =
            json_object_size(tables) > 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s has no model '%s'", path, model);
    }
    return status;
}

enum leat_status
leat_synthetic_times_add(const char *options_json, const char *path, const char *model, char **ret_json)
{
    json_t *options = json_loads(options_json, 0, NULL), *tables = json_object();
    enum leat_status status = LEAT_ERR_NOMEM;
    char *text = NULL;

    if (options != NULL && tables != NULL) {
        status = read_tables(path, model, tables);
    }
    if (status == LEAT_OK && json_object_set(options, "tables", tables) == 0) {
        text = json_dumps(options, JSON_COMPACT);
    }
    json_decref(options);
    json_decref(tables);
    if (status == LEAT_OK && text == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the times in %s", path);
    }
    *ret_json = text;
    return status;
}
