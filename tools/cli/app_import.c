/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/app_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "sched/policy.h"

#define FILLED         32u /* sizes that the paper's tables have */
#define CLASS_BYTES    32u
#define LOAD_MAX_MS    1e9
#define PEAK_MAX_BYTES 1e18

struct classes {
    char names[LEAT_SCHED_CLASSES_MAX][CLASS_BYTES];
    uint32_t count;
};

/* ---- What the file says beside times ------------------------------------------------------------ */

static enum leat_status
enter_class(const struct leat_csv *csv, uint32_t column, struct classes *classes)
{
    char name[CLASS_BYTES];

    const enum leat_status status = leat_csv_name(csv, column, name, sizeof(name));
    for (uint32_t c = 0; c < classes->count && status == LEAT_OK; c++) {
        if (strcmp(classes->names[c], name) == 0) {
            return LEAT_OK;
        }
    }
    if (status == LEAT_OK && classes->count == LEAT_SCHED_CLASSES_MAX) {
        return leat_csv_fail(csv, "more than %u classes of workers", LEAT_SCHED_CLASSES_MAX);
    }
    if (status == LEAT_OK) {
        memcpy(classes->names[classes->count++], name, sizeof(name));
    }
    return status;
}

/* A number of a model, from the first row that has one: "load_ns" or "peak_bytes" of the object that stands under its name. */
static enum leat_status
enter_number(const struct leat_csv *csv, uint32_t column, double most, double unit, const char *key, json_t *object)
{
    double number;

    if (column == LEAT_CSV_NO_COLUMN || csv->fields[column][0] == '\0' || json_object_get(object, key) != NULL) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_csv_number(csv, column, 0, most, &number);
    if (status == LEAT_OK) {
        (void)json_object_set_new(object, key, json_integer((json_int_t)(number * unit + 0.5)));
    }
    return status;
}

/* Classes of workers, and load times and memory of models; all of them where the file has such columns. */
static enum leat_status
scan(const char *path, struct classes *classes, json_t *facts)
{
    struct leat_csv csv;

    enum leat_status status = leat_csv_open(path, &csv);
    if (status != LEAT_OK) {
        return status;
    }
    const uint32_t class_column = leat_csv_find(&csv, "class"), load = leat_csv_find(&csv, "load_ms"),
                   peak = leat_csv_find(&csv, "peak_bytes"), variant = leat_csv_find(&csv, "variant");
    const uint32_t name = variant != LEAT_CSV_NO_COLUMN ? variant : leat_csv_find(&csv, "model");
    while (status == LEAT_OK && (status = leat_csv_next(&csv)) == LEAT_OK) {
        if (class_column != LEAT_CSV_NO_COLUMN) {
            status = enter_class(&csv, class_column, classes);
        }
        if (status == LEAT_OK && name != LEAT_CSV_NO_COLUMN &&
            (load != LEAT_CSV_NO_COLUMN || peak != LEAT_CSV_NO_COLUMN)) {
            json_t *object = json_object_get(facts, csv.fields[name]);
            if (object == NULL) {
                object = json_object();
                if (json_object_set_new(facts, csv.fields[name], object) != 0) {
                    status = leat_csv_fail(&csv, "the name of the model is not UTF-8");
                    break;
                }
            }
            status = enter_number(&csv, load, LOAD_MAX_MS, 1e6, "load_ns", object);
            status = status == LEAT_OK ? enter_number(&csv, peak, PEAK_MAX_BYTES, 1, "peak_bytes", object) : status;
        }
    }
    leat_csv_close(&csv);
    return status == LEAT_AGAIN ? LEAT_OK : status;
}

/* ---- Models ------------------------------------------------------------------------------------- */

static json_t *
find_model(const json_t *models, const char *name)
{
    size_t m;
    json_t *model;

    json_array_foreach((json_t *)(uintptr_t)models, m, model) {
        if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0) {
            return model;
        }
    }
    return NULL;
}

static void
add_row(json_t *rows, json_t *points, const char *worker_class, uint32_t items, double latency_us)
{
    const json_int_t latency_ns = (json_int_t)(latency_us * 1000 + 0.5);

    (void)json_array_append_new(rows, json_pack("{s:I, s:[I]}", "items", (json_int_t)items, "samples_ns", latency_ns));
    (void)json_array_append_new(points, json_pack("[s, I, I, I, I, I, I, I]", worker_class, (json_int_t)0, (json_int_t)items,
                                                  (json_int_t)0, latency_ns, latency_ns, latency_ns, latency_ns));
}

/* The rows of one class of workers; returns the largest size. */
static enum leat_status
add_rows(const struct import_options *options, const struct simulate_profile *profile, const char *worker_class, json_t *rows,
         json_t *points, uint32_t *ret_items_max)
{
    const uint32_t most = options->items_max != 0 ? options->items_max : options->repair ? FILLED : LEAT_ITEMS_MAX;

    *ret_items_max = 0;
    if (options->repair) {
        const uint32_t filled = most < FILLED ? most : FILLED;
        double *latency_us = calloc(most, sizeof(*latency_us));
        if (latency_us == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u sizes", most);
        }
        const enum leat_status status = simulate_profile_fill(profile, filled, most, latency_us);
        for (uint32_t items = 1; items <= most && status == LEAT_OK; items++) {
            add_row(rows, points, worker_class, items, latency_us[items - 1]);
        }
        free(latency_us);
        *ret_items_max = most;
        return status;
    }
    for (uint32_t r = 0; r < profile->count && profile->items[r] <= most; r++) {
        add_row(rows, points, worker_class, profile->items[r], profile->latency_us[r]);
        *ret_items_max = profile->items[r];
    }
    return *ret_items_max > 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_INVALID, "there is no size of at most %u items", most);
}

static enum leat_status
add_profile(const struct import_options *options, const struct simulate_profile *profile, const char *worker_class,
            const json_t *facts, json_t *models)
{
    char name[2 * LEAT_NAME_MAX];
    uint32_t items_max = 0;

    (void)snprintf(name, sizeof(name), "%s%s", options->prefix, profile->name);
    json_t *model = find_model(models, name);
    if (model == NULL) {
        model = json_pack("{s:s, s:I, s:I, s:I, s:{s:s, s:{}}, s:[]}", "name", name, "accuracy_ppm",
                          (json_int_t)(profile->accuracy * 1e6 + 0.5), "input_bytes", (json_int_t)options->input_bytes,
                          "output_bytes", (json_int_t)options->output_bytes, "options", "mode", options->mode, "tables",
                          "points");
        (void)json_object_update(model, json_object_get(facts, profile->name));
        (void)json_array_append_new(models, model);
    }
    json_t *rows = json_array();
    const enum leat_status status =
        add_rows(options, profile, worker_class, rows, json_object_get(model, "points"), &items_max);
    (void)json_object_set_new(json_object_get(json_object_get(model, "options"), "tables"), worker_class, rows);
    const json_t *other = json_object_get(model, "items_max"); /* of another class: the smaller serves on both */
    if (other == NULL || json_integer_value(other) > items_max) {
        (void)json_object_set_new(model, "items_max", json_integer(items_max));
    }
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(status, "%s: model '%s'", options->profiles.path, profile->name);
}

/* All models for one class of workers; NULL: the file tells none apart. */
static enum leat_status
add_class(const struct import_options *options, const char *worker_class, const json_t *facts, json_t *models,
          const char **ret_accuracy_unit)
{
    struct simulate_profiles_options profiles_options = options->profiles;
    struct simulate_profiles profiles;

    profiles_options.worker_class = worker_class;
    enum leat_status status = simulate_profiles_read(&profiles_options, &profiles);
    if (status != LEAT_OK) {
        return status;
    }
    if (options->front) {
        simulate_profiles_keep_front(&profiles);
    }
    for (uint32_t v = 0; v < profiles.count && status == LEAT_OK; v++) {
        status = add_profile(options, &profiles.variants[v], worker_class != NULL ? worker_class : "*", facts, models);
    }
    *ret_accuracy_unit = profiles.accuracy_unit;
    simulate_profiles_free(&profiles);
    return status;
}

enum leat_status
import_profiles(const struct import_options *options, json_t **ret_list, const char **ret_accuracy_unit)
{
    struct classes classes = {.count = 0};
    const char *unit = NULL;
    json_t *facts = json_object(), *models = json_array();

    enum leat_status status = scan(options->profiles.path, &classes, facts);
    if (status == LEAT_OK && classes.count == 0) {
        status = add_class(options, NULL, facts, models, &unit);
    }
    for (uint32_t c = 0; c < classes.count && status == LEAT_OK; c++) {
        status = add_class(options, classes.names[c], facts, models, &unit);
    }
    json_decref(facts);
    if (status != LEAT_OK) {
        json_decref(models);
        return status;
    }
    *ret_list = json_pack("{s:o}", "models", models);
    *ret_accuracy_unit = unit;
    return LEAT_OK;
}
