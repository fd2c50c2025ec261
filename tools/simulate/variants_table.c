/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/latency_table.h"
#include "tools/simulate/variants.h"

#define EXTENDED_BATCH_MAX 128u /* of the second line in RAMSIS' simulator */

static enum leat_status
make_row(const struct simulate_profile *profile, struct variants_row *row)
{
    double latency_us[VARIANTS_LATENCY_MAX];

    enum leat_status status = simulate_profile_fill(profile, VARIANTS_BATCH_MAX, EXTENDED_BATCH_MAX, latency_us);
    status = status == LEAT_OK ? leat_latency_table_extend(EXTENDED_BATCH_MAX, VARIANTS_LATENCY_MAX, latency_us) : status;
    if (status != LEAT_OK) {
        return status;
    }
    memcpy(row->name, profile->name, sizeof(row->name));
    row->accuracy_ppm = (uint32_t)lround(profile->accuracy * 1e6);
    for (uint32_t b = 0; b < VARIANTS_LATENCY_MAX; b++) {
        row->latency_ns[b] = (uint64_t)llround(latency_us[b] * 1e3);
    }
    return LEAT_OK;
}

enum leat_status
variants_table_make(const struct simulate_profiles *profiles, struct variants_table *ret_table)
{
    struct variants_table table = {.count = profiles->count, .rows = calloc(profiles->count + 1, sizeof(*table.rows))};
    enum leat_status status = LEAT_OK;

    if (table.rows == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u variants", profiles->count);
    }
    for (uint32_t v = 0; v < table.count && status == LEAT_OK; v++) {
        status = make_row(&profiles->variants[v], &table.rows[v]);
    }
    if (status != LEAT_OK) {
        variants_table_free(&table);
        return status;
    }
    *ret_table = table;
    return LEAT_OK;
}

void
variants_table_free(struct variants_table *table)
{
    free(table->rows);
    *table = (struct variants_table){0};
}
