/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/csv.h"
#include "tools/simulate/autoscale.h"

static const char *const hardware_names[AUTOSCALE_HARDWARE] = {"cpu", "inferentia", "gpu"};
const double autoscale_gb_s_prices[AUTOSCALE_HARDWARE] = {0.031, 0.190, 0.498};

enum { APPLICATION, OBJECTIVE, SHARE, VARIANT, HARDWARE, BATCH, ITEM, MAX_BATCH, MEMORY, CPU_CORES, INFERENTIA_CORES, GPU_SHARE, LOAD, COLUMNS };
static const char *const names[COLUMNS] = {"application", "objective_ms", "share", "variant", "hardware", "batch_ms", "item_ms", "max_batch",
                                           "memory_gb", "cpu_cores", "inferentia_cores", "gpu_share", "load_s"};

static enum leat_status
read_application(const struct leat_csv *csv, const uint32_t *columns, struct autoscale_table *table)
{
    struct autoscale_application row = {.name = ""};
    double objective_ms = 0;

    enum leat_status status = leat_csv_name(csv, columns[APPLICATION], row.name, sizeof(row.name));
    status = status == LEAT_OK ? leat_csv_number(csv, columns[OBJECTIVE], 0.001, 1e6, &objective_ms) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[SHARE], 1e-9, 1e9, &row.share) : status;
    if (status != LEAT_OK) {
        return status;
    }
    row.objective_ns = (uint64_t)llround(objective_ms * 1e6);
    if (table->count > 0 && strcmp(table->applications[table->count - 1].name, row.name) == 0) {
        const struct autoscale_application *last = &table->applications[table->count - 1];
        return last->objective_ns == row.objective_ns && last->share == row.share
                   ? LEAT_OK
                   : leat_csv_fail(csv, "%s had another objective or share in the row before", row.name);
    }
    for (uint32_t a = 0; a < table->count; a++) {
        if (strcmp(table->applications[a].name, row.name) == 0) {
            return leat_csv_fail(csv, "rows of %s do not follow one another", row.name);
        }
    }
    if (table->count == AUTOSCALE_APPLICATIONS_MAX) {
        return leat_csv_fail(csv, "more than %u applications", AUTOSCALE_APPLICATIONS_MAX);
    }
    table->applications[table->count++] = row;
    return LEAT_OK;
}

static enum leat_status
read_variant(const struct leat_csv *csv, const uint32_t *columns, struct autoscale_application *application)
{
    char variant_name[AUTOSCALE_NAME_MAX], hardware_name[AUTOSCALE_NAME_MAX];
    struct leat_autoscale_variant variant = {0};
    double batch_ms = 0, item_ms = 0, memory_gb = 0, load_s = 0, gpu_share = 0;
    enum autoscale_hardware hardware = AUTOSCALE_CPU;

    enum leat_status status = leat_csv_name(csv, columns[VARIANT], variant_name, sizeof(variant_name));
    status = status == LEAT_OK ? leat_csv_name(csv, columns[HARDWARE], hardware_name, sizeof(hardware_name)) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[BATCH], 0, 1e5, &batch_ms) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[ITEM], 1e-3, 1e5, &item_ms) : status;
    status = status == LEAT_OK ? leat_csv_integer(csv, columns[MAX_BATCH], 1, 64, &variant.batch_max) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[MEMORY], 1e-3, 1e4, &memory_gb) : status;
    status = status == LEAT_OK ? leat_csv_integer(csv, columns[CPU_CORES], 0, 1024, &variant.uses[AUTOSCALE_CPU]) : status;
    status = status == LEAT_OK ? leat_csv_integer(csv, columns[INFERENTIA_CORES], 0, 1024, &variant.uses[AUTOSCALE_INFERENTIA]) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[GPU_SHARE], 0, 64, &gpu_share) : status;
    status = status == LEAT_OK ? leat_csv_number(csv, columns[LOAD], 0, 1e4, &load_s) : status;
    if (status != LEAT_OK) {
        return status;
    }
    while (hardware < AUTOSCALE_HARDWARE && strcmp(hardware_names[hardware], hardware_name) != 0) {
        hardware++;
    }
    if (hardware == AUTOSCALE_HARDWARE) {
        return leat_csv_fail(csv, "hardware '%s' is none of cpu, inferentia, gpu", hardware_name);
    }
    if (application->variant_count == LEAT_AUTOSCALE_VARIANTS_MAX) {
        return leat_csv_fail(csv, "more than %u variants of %s", LEAT_AUTOSCALE_VARIANTS_MAX, application->name);
    }
    variant.batch_ns = (uint64_t)llround(batch_ms * 1e6);
    variant.item_ns = (uint64_t)llround(item_ms * 1e6);
    variant.load_ns = (uint64_t)llround(load_s * 1e9);
    variant.price = (uint64_t)llround(memory_gb * autoscale_gb_s_prices[hardware] / AUTOSCALE_PRICE_UNIT);
    variant.uses[AUTOSCALE_GPU] = (uint32_t)lround(100 * gpu_share);
    application->hardware[application->variant_count] = hardware;
    application->variants[application->variant_count++] = variant;
    return LEAT_OK;
}

enum leat_status
autoscale_table_read(const char *path, struct autoscale_table *ret_table)
{
    static const struct autoscale_table empty;
    uint32_t columns[COLUMNS];
    struct leat_csv csv;
    enum leat_status status = leat_csv_open(path, &csv);

    if (status != LEAT_OK) {
        return status;
    }
    *ret_table = empty;
    for (uint32_t i = 0; i < COLUMNS && status == LEAT_OK; i++) {
        status = leat_csv_need(&csv, names[i], &columns[i]);
    }
    while (status == LEAT_OK && (status = leat_csv_next(&csv)) == LEAT_OK) {
        status = read_application(&csv, columns, ret_table);
        status = status == LEAT_OK ? read_variant(&csv, columns, &ret_table->applications[ret_table->count - 1]) : status;
    }
    leat_csv_close(&csv);
    if (status == LEAT_AGAIN) {
        status = ret_table->count > 0 ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s: no variant", path);
    }
    return status;
}
