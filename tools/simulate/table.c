/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/csv.h"

#define TIME_MIN_MS 1e-6 /* one nanosecond */
#define TIME_MAX_MS 1e8  /* more than a day */

/* Rows of one class, as they come. */
struct class_rows {
    uint32_t *sizes;
    uint64_t *samples_ns; /* [count][sample_count] */
    uint32_t count, room;
};

struct reader {
    struct leat_csv csv;
    struct simulate_table *table;
    uint32_t model_column, instance_column, items_column;
    uint32_t *sample_columns; /* [table->sample_count] */
    bool classes_given;
    struct class_rows rows[LEAT_SCHED_CLASSES_MAX];
};

/* ---- Rows -------------------------------------------------------------------------------------- */

/* s and a number. */
static bool
is_sample(const char *name)
{
    return name[0] == 's' && name[1] != '\0' && name[1 + strspn(name + 1, "0123456789")] == '\0';
}

static enum leat_status
find_columns(struct reader *reader)
{
    const struct leat_csv *csv = &reader->csv;
    enum leat_status status = leat_csv_need(csv, "model", &reader->model_column);

    if (status == LEAT_OK) {
        status = leat_csv_need(csv, "instance", &reader->instance_column);
    }
    if (status == LEAT_OK) {
        status = leat_csv_need(csv, "batch", &reader->items_column);
    }
    if (status != LEAT_OK) {
        return status;
    }
    reader->sample_columns = calloc(csv->column_count, sizeof(*reader->sample_columns));
    if (reader->sample_columns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the columns of %s", csv->path);
    }
    for (uint32_t c = 0; c < csv->column_count; c++) {
        if (is_sample(csv->names[c])) {
            reader->sample_columns[reader->table->sample_count++] = c;
        }
    }
    if (reader->table->sample_count == 0) {
        reader->sample_columns[0] = leat_csv_find(csv, "mean_ms");
        if (reader->sample_columns[0] == LEAT_CSV_NO_COLUMN) {
            return leat_csv_fail(csv, "there are neither samples (columns s0, s1, ...) nor a column 'mean_ms'");
        }
        reader->table->sample_count = 1;
    }
    return LEAT_OK;
}

/* LEAT_AGAIN: none of those that were asked for. */
static enum leat_status
find_class(const struct reader *reader, uint32_t *ret_class)
{
    struct simulate_table *table = reader->table;
    char name[SIMULATE_NAME_MAX];

    const enum leat_status status = leat_csv_name(&reader->csv, reader->instance_column, name, sizeof(name));
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t c = 0; c < table->class_count; c++) {
        if (strcmp(table->class_names[c], name) == 0) {
            *ret_class = c;
            return LEAT_OK;
        }
    }
    if (reader->classes_given) {
        return LEAT_AGAIN;
    }
    if (table->class_count == LEAT_SCHED_CLASSES_MAX) {
        return leat_csv_fail(&reader->csv, "more than %u instances; say which", LEAT_SCHED_CLASSES_MAX);
    }
    memcpy(table->class_names[table->class_count], name, sizeof(name));
    *ret_class = table->class_count++;
    return LEAT_OK;
}

static bool
grow_rows(struct class_rows *rows, uint32_t sample_count)
{
    const uint32_t room = rows->room == 0 ? 16 : 2 * rows->room;
    uint32_t *sizes = realloc(rows->sizes, room * sizeof(*sizes));

    if (sizes == NULL) {
        return false;
    }
    rows->sizes = sizes;
    uint64_t *samples_ns = realloc(rows->samples_ns, (size_t)room * sample_count * sizeof(*samples_ns));
    if (samples_ns == NULL) {
        return false;
    }
    rows->samples_ns = samples_ns;
    rows->room = room;
    return true;
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static enum leat_status
add_row(struct reader *reader, struct class_rows *rows)
{
    const uint32_t sample_count = reader->table->sample_count;
    uint32_t items;
    double time_ms;

    enum leat_status status = leat_csv_integer(&reader->csv, reader->items_column, 1, SIMULATE_ITEMS_MAX, &items);
    if (status != LEAT_OK) {
        return status;
    }
    if (rows->count > 0 && items <= rows->sizes[rows->count - 1]) {
        return leat_csv_fail(&reader->csv, "batch %u after %u: sizes of an instance are to rise", items,
                        rows->sizes[rows->count - 1]);
    }
    if (rows->count == rows->room && !grow_rows(rows, sample_count)) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the samples of %s", reader->csv.path);
    }
    uint64_t *samples_ns = rows->samples_ns + (size_t)rows->count * sample_count;
    for (uint32_t s = 0; s < sample_count; s++) {
        status = leat_csv_number(&reader->csv, reader->sample_columns[s], TIME_MIN_MS, TIME_MAX_MS, &time_ms);
        if (status != LEAT_OK) {
            return status;
        }
        samples_ns[s] = (uint64_t)(time_ms * 1e6 + 0.5);
    }
    qsort(samples_ns, sample_count, sizeof(*samples_ns), compare_u64);
    rows->sizes[rows->count++] = items;
    return LEAT_OK;
}

static enum leat_status
read_rows(struct reader *reader, const char *model)
{
    enum leat_status status;
    bool found = false;
    uint32_t class = 0;

    while ((status = leat_csv_next(&reader->csv)) == LEAT_OK) {
        if (strcmp(reader->csv.fields[reader->model_column], model) != 0) {
            continue;
        }
        found = true;
        status = find_class(reader, &class);
        if (status == LEAT_OK) {
            status = add_row(reader, &reader->rows[class]);
        }
        if (status < LEAT_OK) {
            return status;
        }
    }
    if (status != LEAT_AGAIN) {
        return status;
    }
    return found ? LEAT_OK : LEAT_FAIL(LEAT_ERR_INVALID, "%s has no model '%s'", reader->csv.path, model);
}

/* ---- Table ------------------------------------------------------------------------------------- */

/* Every class has the sizes of the first. */
static enum leat_status
check_sizes(const struct reader *reader)
{
    const struct simulate_table *table = reader->table;
    const struct class_rows *first = &reader->rows[0];

    for (uint32_t c = 0; c < table->class_count; c++) {
        const struct class_rows *rows = &reader->rows[c];
        uint32_t same = 0;
        if (rows->count == 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "%s has no rows of instance '%s' for this model", reader->csv.path,
                             table->class_names[c]);
        }
        while (same < first->count && same < rows->count && rows->sizes[same] == first->sizes[same]) {
            same++;
        }
        if (same < first->count || same < rows->count) {
            const bool lacks = same == rows->count || (same < first->count && first->sizes[same] < rows->sizes[same]);
            return LEAT_FAIL(LEAT_ERR_PROTO, "%s: '%s' has batch %u, but '%s' has not", reader->csv.path,
                             table->class_names[lacks ? 0 : c], (lacks ? first : rows)->sizes[same],
                             table->class_names[lacks ? c : 0]);
        }
    }
    return LEAT_OK;
}

static enum leat_status
build(const struct reader *reader)
{
    struct simulate_table *table = reader->table;
    const struct class_rows *first = &reader->rows[0];
    const size_t samples = (size_t)first->count * table->sample_count; /* of a class */

    table->size_count = first->count;
    table->items_max = first->sizes[first->count - 1];
    table->sizes = calloc(table->size_count, sizeof(*table->sizes));
    table->row_of_items = calloc(table->items_max + 1, sizeof(*table->row_of_items));
    table->samples_ns = calloc(table->class_count * samples, sizeof(*table->samples_ns));
    table->mean_ns = calloc((size_t)table->class_count * table->size_count, sizeof(*table->mean_ns));
    if (table->sizes == NULL || table->row_of_items == NULL || table->samples_ns == NULL || table->mean_ns == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the table of %s", reader->csv.path);
    }
    memcpy(table->sizes, first->sizes, table->size_count * sizeof(*table->sizes));
    for (uint32_t items = 0, row = 0; items <= table->items_max; items++) {
        row += items > table->sizes[row];
        table->row_of_items[items] = (uint16_t)row;
    }
    for (uint32_t c = 0; c < table->class_count; c++) {
        memcpy(table->samples_ns + c * samples, reader->rows[c].samples_ns, samples * sizeof(*table->samples_ns));
    }
    for (size_t cell = 0; cell < (size_t)table->class_count * table->size_count; cell++) {
        uint64_t sum_ns = 0; /* at most LEAT_CSV_COLUMNS_MAX samples of at most TIME_MAX_MS: it fits */
        for (uint32_t s = 0; s < table->sample_count; s++) {
            sum_ns += table->samples_ns[cell * table->sample_count + s];
        }
        table->mean_ns[cell] = (sum_ns + table->sample_count / 2) / table->sample_count;
    }
    return LEAT_OK;
}

static enum leat_status
name_classes(struct reader *reader, const char *const *classes, uint32_t class_count)
{
    if (class_count > LEAT_SCHED_CLASSES_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u classes, but there can be %u", class_count, LEAT_SCHED_CLASSES_MAX);
    }
    for (uint32_t c = 0; c < class_count; c++) {
        const size_t length = strlen(classes[c]);
        if (length >= SIMULATE_NAME_MAX) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "the name of a class has %zu characters, but can have %u", length,
                             SIMULATE_NAME_MAX - 1);
        }
        memcpy(reader->table->class_names[c], classes[c], length + 1);
    }
    reader->table->class_count = class_count;
    reader->classes_given = class_count > 0;
    return LEAT_OK;
}

enum leat_status
simulate_table_read(const char *path, const char *model, const char *const *classes, uint32_t class_count,
                    struct simulate_table *ret_table)
{
    struct simulate_table table = {0};
    struct reader reader = {.table = &table};

    enum leat_status status = leat_csv_open(path, &reader.csv);
    if (status != LEAT_OK) {
        return status;
    }
    status = name_classes(&reader, classes, class_count);
    if (status == LEAT_OK) {
        status = find_columns(&reader);
    }
    if (status == LEAT_OK) {
        status = read_rows(&reader, model);
    }
    if (status == LEAT_OK) {
        status = check_sizes(&reader);
    }
    if (status == LEAT_OK) {
        status = build(&reader);
    }
    for (uint32_t c = 0; c < LEAT_SCHED_CLASSES_MAX; c++) {
        free(reader.rows[c].sizes);
        free(reader.rows[c].samples_ns);
    }
    free(reader.sample_columns);
    leat_csv_close(&reader.csv);
    if (status != LEAT_OK) {
        simulate_table_free(&table);
        return status;
    }
    *ret_table = table;
    return LEAT_OK;
}

void
simulate_table_free(struct simulate_table *table)
{
    free(table->sizes);
    free(table->row_of_items);
    free(table->samples_ns);
    free(table->mean_ns);
    *table = (struct simulate_table){0};
}

uint64_t
simulate_table_percentile(const struct simulate_table *table, uint32_t worker_class, uint32_t items, double percentile)
{
    LEAT_ASSERT(worker_class < table->class_count && items <= table->items_max);
    LEAT_ASSERT(percentile > 0 && percentile <= 100);
    const size_t cell = (size_t)worker_class * table->size_count + table->row_of_items[items];
    const double rank = ceil(percentile * table->sample_count / 100);
    return table->samples_ns[cell * table->sample_count + (rank > 1 ? (size_t)rank - 1 : 0)];
}

/* The share of a standard normal below z. */
static double
normal_share(double z)
{
    return erfc(-z * sqrt(0.5)) / 2;
}

static double
normal_quantile(double share)
{
    double low = -9, high = 9; /* doubles tell no more of the normal distribution */

    for (uint32_t i = 0; i < 50; i++) {
        const double middle = (low + high) / 2;
        *(normal_share(middle) < share ? &low : &high) = middle;
    }
    return high;
}

uint64_t
simulate_table_noisy_percentile(const struct simulate_table *table, uint32_t worker_class, uint32_t items, double percentile,
                                double noise_share)
{
    if (noise_share <= 0) {
        return simulate_table_percentile(table, worker_class, items, percentile);
    }
    LEAT_ASSERT(worker_class < table->class_count && items <= table->items_max);
    LEAT_ASSERT(percentile > 0 && percentile <= 100);
    const size_t cell = (size_t)worker_class * table->size_count + table->row_of_items[items];
    const uint64_t *samples_ns = &table->samples_ns[cell * table->sample_count];
    /* It lies between those of the least and of the largest sample alone. */
    const double factor = 1 + noise_share * normal_quantile(percentile / 100);
    double low_ns = (double)samples_ns[0] * factor, high_ns = (double)samples_ns[table->sample_count - 1] * factor;

    if (factor <= 0) {
        return 1;
    }
    while (high_ns - low_ns > high_ns * 0x1p-20) {
        const double middle_ns = (low_ns + high_ns) / 2;
        double count = 0;
        for (uint32_t s = 0; s < table->sample_count; s++) {
            count += normal_share((middle_ns / (double)samples_ns[s] - 1) / noise_share);
        }
        *(count * 100 < percentile * table->sample_count ? &low_ns : &high_ns) = middle_ns;
    }
    return high_ns > 1 ? (uint64_t)high_ns : 1;
}

void
simulate_samples_make(uint64_t mean_ns, uint64_t predicted_ns, double percentile, uint32_t count, uint64_t *samples_ns)
{
    LEAT_ASSERT(percentile > 0 && percentile <= 100 && count > 0);
    const double rank = ceil(percentile * count / 100); /* as simulate_table_percentile has it */
    const uint32_t below = rank > 1 ? (uint32_t)rank - 1 : 0;
    const double rest_ns = (double)count * (double)mean_ns - (double)(count - below) * (double)predicted_ns;
    const uint64_t below_ns = below > 0 && rest_ns > below ? (uint64_t)(rest_ns / below + 0.5) : 1;

    for (uint32_t i = 0; i < count; i++) {
        samples_ns[i] = predicted_ns <= mean_ns ? mean_ns : i < below ? below_ns : predicted_ns;
    }
}
