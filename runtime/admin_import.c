/* SPDX-License-Identifier: Apache-2.0 */
/* Admin request app-import: an application of synthetic models that take as long as somebody else's did. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "runtime/admin_private.h"

#define FILE_BYTES_MAX ((off_t)256 << 20)

/* One model of the list, as it is loaded and kept. */
struct import {
    struct leat_variant_source source;
    struct leat_measured measured;
    struct leat_tensor_info infos[2];
    char *options_json;
};

/* ---- The list ----------------------------------------------------------------------------------- */

static enum leat_status
read_list(int fd, json_t **ret_list)
{
    struct stat info;
    json_error_t error = {0};
    size_t done = 0;

    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > FILE_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "an import comes with a regular file of at most %lld bytes",
                         (long long)FILE_BYTES_MAX);
    }
    char *text = malloc((size_t)info.st_size + 1); /* a private copy: the client could change the file under us */
    if (text == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an import of %lld bytes", (long long)info.st_size);
    }
    while (done < (size_t)info.st_size) {
        const ssize_t got = pread(fd, text + done, (size_t)info.st_size - done, (off_t)done);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            free(text);
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot read the import");
        }
        done += got > 0 ? (size_t)got : 0;
    }
    json_t *object = json_loadb(text, done, JSON_REJECT_DUPLICATES, &error);
    free(text);
    json_t *list = json_incref(json_object_get(object, "models"));
    json_decref(object);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        json_decref(list);
        return LEAT_FAIL(LEAT_ERR_INVALID, "the import is no JSON object with a list \"models\": %s", error.text);
    }
    *ret_list = list;
    return LEAT_OK;
}

/* [class, cores, items, runs, mean, p50, p95, p99] */
static enum leat_status
read_point(const json_t *array, struct leat_measured *measured)
{
    struct leat_measured_point point = {0};
    const char *worker_class = json_string_value(json_array_get(array, 0));
    uint64_t numbers[7];
    static const uint64_t most[7] = {LEAT_TEAM_MAX,       LEAT_ITEMS_MAX,      UINT32_MAX,         LEAT_PROFILE_NS_MAX,
                                     LEAT_PROFILE_NS_MAX, LEAT_PROFILE_NS_MAX, LEAT_PROFILE_NS_MAX};
    bool good = json_array_size(array) == 8 && worker_class != NULL && worker_class[0] != '\0' &&
                strlen(worker_class) < sizeof(point.worker_class);

    for (size_t n = 0; n < LEAT_COUNT_OF(numbers) && good; n++) {
        const json_t *value = json_array_get(array, n + 1);
        const json_int_t number = json_integer_value(value);
        good = json_is_integer(value) && number >= 0 && (uint64_t)number <= most[n];
        numbers[n] = (uint64_t)number;
    }
    if (!good || numbers[1] == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a point must be [class, cores, items, runs, mean, p50, p95, p99]");
    }
    (void)strcpy(point.worker_class, worker_class);
    point.cores = (uint32_t)numbers[0];
    point.items = (uint32_t)numbers[1];
    point.runs = (uint32_t)numbers[2];
    point.mean_ns = numbers[3];
    point.p50_ns = numbers[4];
    point.p95_ns = numbers[5];
    point.p99_ns = numbers[6];
    return leat_measured_add(measured, &point);
}

/* As the keys of the registry: no two of one class, cores and items. */
static int
compare_points(const void *a, const void *b)
{
    const struct leat_measured_point *x = a, *y = b;
    const int by_class = strcmp(x->worker_class, y->worker_class);

    if (by_class != 0) {
        return by_class;
    }
    return x->cores != y->cores ? (x->cores > y->cores) - (x->cores < y->cores) : (x->items > y->items) - (x->items < y->items);
}

static enum leat_status
read_points(const json_t *points, struct leat_measured *measured)
{
    enum leat_status status = json_array_size(points) > 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_INVALID, "it has no points");
    const json_t *point;
    size_t p;

    json_array_foreach((json_t *)(uintptr_t)points, p, point) {
        status = status == LEAT_OK ? read_point(point, measured) : status;
    }
    if (status != LEAT_OK) {
        return status;
    }
    qsort(measured->points, measured->count, sizeof(measured->points[0]), compare_points);
    for (uint32_t i = 1; i < measured->count; i++) {
        if (compare_points(&measured->points[i - 1], &measured->points[i]) == 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "there are two points for %u items", measured->points[i].items);
        }
    }
    return LEAT_OK;
}

/* A whole number from min to max; *ret_number stays where the key is missing. */
static enum leat_status
read_number(const json_t *object, const char *key, uint64_t min, uint64_t max, uint64_t *ret_number)
{
    const json_t *value = json_object_get(object, key);
    const json_int_t number = json_integer_value(value);

    if (value == NULL) {
        return LEAT_OK;
    }
    if (!json_is_integer(value) || number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' must be a whole number from %llu to %llu", key, (unsigned long long)min,
                         (unsigned long long)max);
    }
    *ret_number = (uint64_t)number;
    return LEAT_OK;
}

static struct leat_tensor_info
bytes_tensor(const char *name, uint64_t bytes)
{
    struct leat_tensor_info info = {
        .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, (int64_t)bytes}, .item_bytes = bytes};
    (void)snprintf(info.name, sizeof(info.name), "%s", name);
    return info;
}

static enum leat_status
read_model(const json_t *object, struct import *import)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const json_t *options = json_object_get(object, "options");
    uint64_t items_max = 0, accuracy_ppm = 0, input_bytes = 64, output_bytes = 64;

    if (!leat_admin_name_is_good(name)) {
        return LEAT_FAIL(LEAT_ERR_INVALID,
                         "'%.80s' cannot be a model's name, which has 1 to %d letters, digits, '.', '_' or '-', and starts with "
                         "a letter, digit or '_'",
                         name != NULL ? name : "", LEAT_NAME_MAX - 1);
    }
    enum leat_status status = read_number(object, "items_max", 1, LEAT_ITEMS_MAX, &items_max);
    if (status == LEAT_OK) {
        status = read_number(object, "accuracy_ppm", 0, 1000000, &accuracy_ppm);
    }
    if (status == LEAT_OK) {
        status = read_number(object, "input_bytes", 1, UINT32_MAX, &input_bytes);
    }
    if (status == LEAT_OK) {
        status = read_number(object, "output_bytes", 1, UINT32_MAX, &output_bytes);
    }
    if (status == LEAT_OK) {
        status = read_number(object, "load_ns", 0, LEAT_PROFILE_NS_MAX, &import->measured.load_ns);
    }
    if (status == LEAT_OK) {
        status = read_number(object, "peak_bytes", 0, INT64_MAX, &import->measured.peak_bytes);
    }
    if (status == LEAT_OK) {
        status = read_points(json_object_get(object, "points"), &import->measured);
    }
    import->options_json = json_is_object(options) ? json_dumps(options, JSON_COMPACT) : NULL;
    if (status == LEAT_OK && (items_max == 0 || import->options_json == NULL)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "'items_max' or 'options' is missing");
    }
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "model '%s'", name);
    }
    import->infos[0] = bytes_tensor("input", input_bytes);
    import->infos[1] = bytes_tensor("output", output_bytes);
    import->source = (struct leat_variant_source){
        .name = name,
        .backend = "synthetic",
        .options_json = import->options_json,
        .items_max = (uint32_t)items_max,
        .accuracy_ppm = (uint32_t)accuracy_ppm,
        .infos = import->infos,
        .input_count = 1,
        .output_count = 1,
        .measured = &import->measured,
    };
    return LEAT_OK;
}

/* ---- The application ---------------------------------------------------------------------------- */

static enum leat_status
load(struct leat_daemon *daemon, const struct import *import)
{
    struct leat_daemon_model *model;

    const enum leat_status status = leat_daemon_prepare_model(daemon, &import->source, &model);
    if (status != LEAT_OK) {
        return status;
    }
    model->persistent = daemon->options.store != NULL;
    return leat_daemon_enter_model(daemon, model);
}

/* Serves all of them, or none. */
static enum leat_status
serve(struct leat_daemon *daemon, struct leat_registry_application *application, const struct import *imports, uint32_t count)
{
    struct leat_daemon_addition additions[LEAT_SCHED_VARIANTS_MAX];
    const struct leat_daemon_change change = {.models = additions, .model_count = count};
    enum leat_status status = LEAT_OK;
    uint32_t loaded = 0;

    while (loaded < count && status == LEAT_OK) {
        additions[loaded] =
            (struct leat_daemon_addition){.source = &imports[loaded].source, .measured = &imports[loaded].measured};
        status = load(daemon, &imports[loaded]);
        if (status == LEAT_OK) {
            status = leat_admin_add_member(daemon, application, imports[loaded].source.name);
            loaded++;
        }
    }
    if (status == LEAT_OK) {
        status = leat_daemon_put_application(daemon, application, &change);
    }
    while (status != LEAT_OK && loaded > 0) {
        const enum leat_status undone = leat_daemon_unload_model(daemon, imports[--loaded].source.name);
        (void)undone; /* the first failure is the one to report */
    }
    return status;
}

enum leat_status
leat_admin_import(struct leat_daemon *daemon, struct leat_registry_application *application, int fd)
{
    struct import *imports = NULL;
    uint32_t count = 0;
    json_t *list;

    enum leat_status status = read_list(fd, &list);
    if (status != LEAT_OK) {
        return status;
    }
    if (json_array_size(list) > LEAT_SCHED_VARIANTS_MAX) {
        status = LEAT_FAIL(LEAT_ERR_LIMIT, "%zu models; an application may have %u", json_array_size(list),
                           LEAT_SCHED_VARIANTS_MAX);
    } else if ((imports = calloc(json_array_size(list), sizeof(*imports))) == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an import");
    }
    while (status == LEAT_OK && count < json_array_size(list)) {
        status = read_model(json_array_get(list, count), &imports[count]);
        count++;
    }
    if (status == LEAT_OK) {
        status = serve(daemon, application, imports, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        leat_measured_free(&imports[i].measured);
        free(imports[i].options_json);
    }
    free(imports);
    json_decref(list);
    return status;
}
