/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/csv.h"
#include "tools/simulate/random.h"

#define WEIGHT_MAX    1e15
#define PRICE_MAX_USD 1e9 /* an hour */

static uint32_t
find_any(const struct leat_csv *csv, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t column = leat_csv_find(csv, names[i]);
        if (column != LEAT_CSV_NO_COLUMN) {
            return column;
        }
    }
    return LEAT_CSV_NO_COLUMN;
}

/* weights[items] sums over rows; *ret_total over all. */
static enum leat_status
add_weights(struct leat_csv *csv, double *weights, double *ret_total)
{
    static const char *const items_names[] = {"items", "batch", "batch_size", "batch_bucket"};
    static const char *const weight_names[] = {"weight", "count", "share", "probability", "probability_estimate"};
    const uint32_t items_column = find_any(csv, items_names, LEAT_COUNT_OF(items_names));
    const uint32_t weight_column = find_any(csv, weight_names, LEAT_COUNT_OF(weight_names));
    enum leat_status status;
    double total = 0;

    if (items_column == LEAT_CSV_NO_COLUMN) {
        return leat_csv_fail(csv, "there is no column 'items' (nor 'batch', 'batch_size' or 'batch_bucket')");
    }
    while ((status = leat_csv_next(csv)) == LEAT_OK) {
        double weight = 1;
        uint32_t items;
        status = leat_csv_integer(csv, items_column, 1, SIMULATE_ITEMS_MAX, &items);
        if (status == LEAT_OK && weight_column != LEAT_CSV_NO_COLUMN) {
            status = leat_csv_number(csv, weight_column, 0, WEIGHT_MAX, &weight);
        }
        if (status != LEAT_OK) {
            return status;
        }
        weights[items] += weight;
        total += weight;
    }
    *ret_total = total;
    return status == LEAT_AGAIN ? LEAT_OK : status;
}

enum leat_status
simulate_sizes_read(const char *path, struct leat_pool_size **ret_sizes, uint32_t *ret_count)
{
    struct leat_csv csv;
    double total = 0;
    uint32_t count = 0;

    enum leat_status status = leat_csv_open(path, &csv);
    if (status != LEAT_OK) {
        return status;
    }
    double *weights = calloc(SIMULATE_ITEMS_MAX + 1, sizeof(*weights));
    struct leat_pool_size *sizes = calloc(SIMULATE_ITEMS_MAX, sizeof(*sizes));
    if (weights == NULL || sizes == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the sizes of %s", path);
    } else {
        status = add_weights(&csv, weights, &total);
    }
    if (status == LEAT_OK && !(total > 0)) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s has no size with a weight above 0", path);
    }
    for (uint32_t items = 1; status == LEAT_OK && items <= SIMULATE_ITEMS_MAX; items++) {
        if (weights[items] > 0) {
            sizes[count++] = (struct leat_pool_size){.items = items, .weight = weights[items]};
        }
    }
    free(weights);
    leat_csv_close(&csv);
    if (status != LEAT_OK) {
        free(sizes);
        return status;
    }
    *ret_sizes = sizes;
    *ret_count = count;
    return LEAT_OK;
}

enum leat_status
simulate_sizes_parse(const char *text, struct simulate_sizes *ret_sizes)
{
    static const char gaussian[] = "gaussian:";
    struct simulate_sizes sizes = {0};
    struct leat_pool_size *read = NULL;
    char *end;

    if (strncmp(text, gaussian, strlen(gaussian)) != 0) {
        const enum leat_status status = simulate_sizes_read(text, &read, &sizes.count);
        if (status == LEAT_OK) {
            sizes.sizes = read;
            *ret_sizes = sizes;
        }
        return status;
    }
    const char *mean = text + strlen(gaussian);
    sizes.gaussian_mean = strtod(mean, &end);
    const char *deviation = end + 1;
    bool good = end != mean && *end == ':';
    if (good) {
        sizes.gaussian_deviation = strtod(deviation, &end);
        good = end != deviation && *end == '\0';
    }
    if (!good) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%s' is not gaussian:MEAN:DEVIATION", text);
    }
    *ret_sizes = sizes;
    return LEAT_OK;
}

void
simulate_sizes_free(struct simulate_sizes *sizes)
{
    free((void *)(uintptr_t)sizes->sizes);
    *sizes = (struct simulate_sizes){0};
}

/* ---- Draws ------------------------------------------------------------------------------------- */

enum leat_status
simulate_draw_init(const struct simulate_sizes *sizes, struct simulate_draw *ret_draw)
{
    double sum = 0;

    if (sizes->count == 0) {
        if (!(sizes->gaussian_mean >= 1 && sizes->gaussian_mean <= SIMULATE_ITEMS_MAX &&
              sizes->gaussian_deviation >= 0 && sizes->gaussian_deviation <= SIMULATE_ITEMS_MAX)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "sizes of mean %g and deviation %g: a mean is 1 to %u, a deviation 0 to %u",
                             sizes->gaussian_mean, sizes->gaussian_deviation, SIMULATE_ITEMS_MAX, SIMULATE_ITEMS_MAX);
        }
        *ret_draw = (struct simulate_draw){.sizes = sizes};
        return LEAT_OK;
    }
    double *sums = calloc(sizes->count, sizeof(*sums));
    if (sums == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u sizes", sizes->count);
    }
    for (uint32_t i = 0; i < sizes->count; i++) {
        const struct leat_pool_size *size = &sizes->sizes[i];
        if (!(size->weight >= 0) || size->items == 0 || size->items > SIMULATE_ITEMS_MAX) {
            free(sums);
            return LEAT_FAIL(LEAT_ERR_INVALID, "size %u of weight %g: a size is 1 to %u, a weight not below 0", size->items,
                             size->weight, SIMULATE_ITEMS_MAX);
        }
        sum += size->weight;
        sums[i] = sum;
    }
    if (!(sum > 0 && sum <= 1e300)) {
        free(sums);
        return LEAT_FAIL(LEAT_ERR_INVALID, "the weights of sizes sum up to %g", sum);
    }
    *ret_draw = (struct simulate_draw){.sizes = sizes, .sums = sums};
    return LEAT_OK;
}

void
simulate_draw_fini(struct simulate_draw *draw)
{
    free(draw->sums);
    draw->sums = NULL;
}

/* The first size up to which more than a share u of all weight lies: never one of weight 0. */
static uint32_t
draw_weighted(const struct simulate_draw *draw, double u)
{
    const double target = u * draw->sums[draw->sizes->count - 1];
    uint32_t low = 0, high = draw->sizes->count - 1;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (draw->sums[middle] > target) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return draw->sizes->sizes[low].items;
}

uint32_t
simulate_draw_size(const struct simulate_draw *draw, uint64_t *random)
{
    if (draw->sums != NULL) {
        return draw_weighted(draw, random_uniform(random));
    }
    const double size = draw->sizes->gaussian_mean + draw->sizes->gaussian_deviation * random_normal(random) + 0.5;
    return size < 1 ? 1 : size > SIMULATE_ITEMS_MAX ? SIMULATE_ITEMS_MAX : (uint32_t)size;
}

/* ---- Prices ------------------------------------------------------------------------------------ */

static enum leat_status
read_price(const struct leat_csv *csv, uint32_t price_column, uint32_t count_column, struct leat_pool_class *ret_class)
{
    double price_usd;
    uint32_t count_max = UINT16_MAX;

    enum leat_status status = leat_csv_number(csv, price_column, 0, PRICE_MAX_USD, &price_usd);
    if (status == LEAT_OK && count_column != LEAT_CSV_NO_COLUMN) {
        status = leat_csv_integer(csv, count_column, 0, UINT16_MAX, &count_max);
    }
    if (status == LEAT_OK) {
        *ret_class = (struct leat_pool_class){.price = (uint64_t)(price_usd * 1e6 + 0.5), .count_max = (uint16_t)count_max};
    }
    return status;
}

static enum leat_status
read_prices(struct leat_csv *csv, const struct simulate_table *table, struct leat_pool_class *classes)
{
    const uint32_t count_column = leat_csv_find(csv, "max_count_in_search");
    bool known[LEAT_SCHED_CLASSES_MAX] = {false};
    uint32_t name_column, price_column;

    enum leat_status status = leat_csv_need(csv, "instance", &name_column);
    if (status == LEAT_OK) {
        status = leat_csv_need(csv, "price_usd_per_hour", &price_column);
    }
    while (status == LEAT_OK && (status = leat_csv_next(csv)) == LEAT_OK) {
        for (uint32_t c = 0; c < table->class_count && status == LEAT_OK; c++) {
            if (strcmp(csv->fields[name_column], table->class_names[c]) != 0) {
                continue;
            }
            status = known[c] ? leat_csv_fail(csv, "a second price of '%s'", table->class_names[c])
                              : read_price(csv, price_column, count_column, &classes[c]);
            known[c] = true;
        }
    }
    if (status != LEAT_AGAIN) {
        return status;
    }
    for (uint32_t c = 0; c < table->class_count; c++) {
        if (!known[c]) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "%s has no price of '%s'", csv->path, table->class_names[c]);
        }
    }
    return LEAT_OK;
}

enum leat_status
simulate_prices_read(const char *path, const struct simulate_table *table, struct leat_pool_class *ret_classes)
{
    struct leat_pool_class classes[LEAT_SCHED_CLASSES_MAX];
    struct leat_csv csv;

    enum leat_status status = leat_csv_open(path, &csv);
    if (status != LEAT_OK) {
        return status;
    }
    status = read_prices(&csv, table, classes);
    leat_csv_close(&csv);
    if (status == LEAT_OK) {
        memcpy(ret_classes, classes, table->class_count * sizeof(classes[0]));
    }
    return status;
}
