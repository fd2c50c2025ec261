/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    simulate_table_read, simulate_sizes_read, simulate_prices_read and import_profiles.
 * Input     The file, byte for byte; the model that is looked for is "m". Of profiles it is that of accuracies too.
 * Property  No crash, leak or sanitizer report; a refusal names the file; what is accepted is as its description says, and
 *           a workload can be drawn from it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/cli/app_import.h"
#include "tools/simulate/simulate.h"

enum { QUERIES = 50 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void
write_input(const uint8_t *data, size_t size)
{
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz.csv", 0);
        LEAT_ASSERT(fd >= 0);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    LEAT_MUST(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
}

static void
check_table(const struct simulate_table *t)
{
    LEAT_ASSERT(t->class_count >= 1 && t->class_count <= LEAT_SCHED_CLASSES_MAX && t->size_count >= 1 &&
                t->sample_count >= 1);
    LEAT_ASSERT(t->items_max == t->sizes[t->size_count - 1] && t->items_max <= SIMULATE_ITEMS_MAX);
    for (uint32_t c = 0; c < t->class_count; c++) {
        LEAT_ASSERT(strnlen(t->class_names[c], SIMULATE_NAME_MAX) < SIMULATE_NAME_MAX);
        for (uint32_t other = 0; other < c; other++) {
            LEAT_ASSERT(strcmp(t->class_names[c], t->class_names[other]) != 0);
        }
    }
    for (uint32_t i = 0; i <= t->items_max; i++) {
        const uint32_t row = t->row_of_items[i];
        LEAT_ASSERT(row < t->size_count && t->sizes[row] >= i && (row == 0 || t->sizes[row - 1] < i));
    }
    for (size_t cell = 0; cell < (size_t)t->class_count * t->size_count; cell++) {
        const uint64_t *samples_ns = t->samples_ns + cell * t->sample_count;
        const uint64_t least_ns = samples_ns[0], most_ns = samples_ns[t->sample_count - 1];
        for (uint32_t s = 1; s < t->sample_count; s++) {
            LEAT_ASSERT(samples_ns[s] >= samples_ns[s - 1]);
        }
        LEAT_ASSERT(least_ns >= 1 && t->mean_ns[cell] >= least_ns && t->mean_ns[cell] <= most_ns);
        const uint32_t class = (uint32_t)(cell / t->size_count), items = t->sizes[cell % t->size_count];
        LEAT_ASSERT(simulate_table_percentile(t, class, items, 100) == most_ns);
        LEAT_ASSERT(simulate_table_percentile(t, class, items, 1e-9) == least_ns);
    }
}

static void
check_sizes(const struct leat_pool_size *sizes, uint32_t count)
{
    struct simulate_workload workload;
    const struct simulate_workload_options options = {
        .query_count = QUERIES, .sizes = {.sizes = sizes, .count = count}, .arrivals = ARRIVALS_POISSON};

    LEAT_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        LEAT_ASSERT(sizes[i].items >= 1 && sizes[i].items <= SIMULATE_ITEMS_MAX && sizes[i].weight > 0);
        LEAT_ASSERT(i == 0 || sizes[i].items > sizes[i - 1].items);
    }
    LEAT_MUST(simulate_workload_make(&options, &workload) == LEAT_OK);
    for (uint32_t i = 0; i < QUERIES; i++) {
        uint32_t at = 0;
        while (at < count && sizes[at].items != workload.items[i]) {
            at++;
        }
        LEAT_ASSERT(at < count);
    }
    simulate_workload_free(&workload);
}

/* Every model has rising sizes up to its largest batch, each with one time, and a point for each of them. */
static void
check_import(const json_t *list)
{
    const json_t *models = json_object_get(list, "models"), *model;
    size_t m;

    LEAT_ASSERT(json_array_size(models) >= 1 && json_array_size(models) <= SIMULATE_VARIANTS_MAX);
    json_array_foreach((json_t *)(uintptr_t)models, m, model) {
        const json_int_t items_max = json_integer_value(json_object_get(model, "items_max"));
        const char *worker_class;
        json_t *rows, *row;
        size_t points = 0, r;
        json_object_foreach(json_object_get(json_object_get(model, "options"), "tables"), worker_class, rows) {
            json_int_t last = 0;
            json_array_foreach(rows, r, row) {
                const json_int_t items = json_integer_value(json_object_get(row, "items"));
                LEAT_ASSERT(items > last && items <= LEAT_ITEMS_MAX);
                LEAT_ASSERT(json_array_size(json_object_get(row, "samples_ns")) == 1);
                last = items;
            }
            LEAT_ASSERT(worker_class[0] != '\0' && last >= items_max);
            points += json_array_size(rows);
        }
        LEAT_ASSERT(items_max >= 1 && points >= 1 && json_array_size(json_object_get(model, "points")) == points);
        LEAT_ASSERT(json_integer_value(json_object_get(model, "accuracy_ppm")) <= 1000000);
    }
}

static void
import(bool apart, bool repair)
{
    const struct import_options options = {.profiles = {.path = path, .accuracies_path = apart ? path : NULL},
                                           .mode = "sleep",
                                           .prefix = "p-",
                                           .repair = repair,
                                           .front = repair,
                                           .items_max = repair ? 40 : 0};
    json_t *list;
    const char *unit;

    if (import_profiles(&options, &list, &unit) == LEAT_OK) {
        check_import(list);
        json_decref(list);
    } else {
        LEAT_ASSERT(strstr(leat_error_text(), path) != NULL);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct simulate_table two = {.class_count = 2, .class_names = {"x", "y"}};
    struct leat_pool_class classes[LEAT_SCHED_CLASSES_MAX];
    struct simulate_table table;
    struct leat_pool_size *sizes;
    uint32_t count;

    write_input(data, size);
    if (simulate_table_read(path, "m", NULL, 0, &table) == LEAT_OK) {
        check_table(&table);
        simulate_table_free(&table);
    } else {
        LEAT_ASSERT(strstr(leat_error_text(), path) != NULL);
    }
    if (simulate_sizes_read(path, &sizes, &count) == LEAT_OK) {
        check_sizes(sizes, count);
        free(sizes);
    } else {
        LEAT_ASSERT(strstr(leat_error_text(), path) != NULL);
    }
    if (simulate_prices_read(path, &two, classes) != LEAT_OK) {
        LEAT_ASSERT(strstr(leat_error_text(), path) != NULL);
    }
    for (uint32_t variant = 0; variant < 4; variant++) {
        import((variant & 1) != 0, (variant & 2) != 0);
    }
    return 0;
}
