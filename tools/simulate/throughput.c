/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define RATE_SHARE_MIN 1e-3 /* of what the mix could serve at best: below it, a mix serves nothing */
#define STRIDE         0.1 /* between rates, until one holds */

static const uint64_t *
mean_cell(const struct simulate_table *table, uint32_t worker_class, uint32_t items)
{
    const uint32_t row = table->row_of_items[items < table->items_max ? items : table->items_max];
    return &table->mean_ns[(size_t)worker_class * table->size_count + row];
}

/* What no schedule exceeds for long: every worker busy all the time, every query where it is served fastest. */
static double
fluid_qps(const struct simulate_options *options)
{
    double sum_ns = 0;
    uint32_t workers = 0;

    for (uint32_t class = 0; class < options->table->class_count; class ++) {
        workers += options->mix.count[class];
    }
    for (uint32_t i = 0; i < options->workload->count; i++) {
        uint64_t least_ns = UINT64_MAX;
        for (uint32_t class = 0; class < options->table->class_count; class ++) {
            const uint64_t ns = *mean_cell(options->table, class, options->workload->items[i]);
            least_ns = options->mix.count[class] > 0 && ns < least_ns ? ns : least_ns;
        }
        sum_ns += (double)least_ns;
    }
    return workers * 1e9 * options->workload->count / sum_ns;
}

enum leat_status
simulate_throughput(struct simulate_run *run, const struct simulate_options *options, double tolerance,
                    double *ret_rate_qps)
{
    struct simulate_options at = *options;
    struct simulate_result result;

    if (!(tolerance > 0) || !(tolerance < 1)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a tolerance of %g is not between 0 and 1", tolerance);
    }
    if (options->workload->count == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a workload without queries has no throughput");
    }
    /* Twice, because a workload ends: what is left then may be served within the objective. */
    const double top_qps = 2 * fluid_qps(options);
    const double step = log1p(-tolerance);
    const uint32_t none = (uint32_t)ceil(log(RATE_SHARE_MIN) / step); /* as powers of (1 - tolerance), as all below */
    const uint32_t stride = step > log1p(-STRIDE) ? (uint32_t)(log1p(-STRIDE) / step) : 1;
    uint32_t fails = 0, holds = none, middle = stride;
    at.stop_early = true;
    /* Down in strides, which ends soon as long as too much is asked for; then between the two last ones. */
    while (holds - fails > 1 && middle < none) {
        at.rate_qps = top_qps * exp(step * middle);
        const enum leat_status status = simulate_run(run, &at, &result);
        if (status != LEAT_OK) {
            return status;
        }
        if (result.stopped_early) {
            fails = middle;
        } else {
            holds = middle;
        }
        middle = holds == none ? fails + stride : fails + (holds - fails) / 2;
    }
    *ret_rate_qps = holds == none ? 0 : top_qps * exp(step * holds);
    return LEAT_OK;
}

/* ---- Oracle ------------------------------------------------------------------------------------ */

static int
compare_u16(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

enum leat_status
simulate_oracle(const struct simulate_table *table, const struct simulate_workload *workload,
                const struct leat_pool_mix *mix, uint32_t base, uint64_t objective_ns, double *ret_rate_qps)
{
    uint64_t free_ns[LEAT_SCHED_WORKERS_MAX] = {0}, end_ns = 0;
    uint32_t class_of[LEAT_SCHED_WORKERS_MAX], worker_count = 0;
    uint16_t *sorted = malloc(workload->count * sizeof(*sorted) + 1);

    if (sorted == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for an oracle of %u queries", workload->count);
    }
    memcpy(sorted, workload->items, workload->count * sizeof(*sorted));
    qsort(sorted, workload->count, sizeof(*sorted), compare_u16);
    for (uint32_t class = 0; class < table->class_count; class ++) {
        for (uint32_t i = 0; i < mix->count[class] && worker_count < LEAT_SCHED_WORKERS_MAX; i++) {
            class_of[worker_count++] = class;
        }
    }
    uint32_t low = 0, high = workload->count; /* [low, high) is left */
    while (low < high && worker_count > 0) {
        uint32_t w = 0;
        for (uint32_t other = 1; other < worker_count; other++) {
            w = free_ns[other] < free_ns[w] ? other : w;
        }
        const uint32_t items = class_of[w] == base ? sorted[high - 1] : sorted[low];
        const uint64_t ns = *mean_cell(table, class_of[w], items);
        if (class_of[w] != base && ns > objective_ns) { /* all that is left is too large for it */
            worker_count--;
            memmove(&free_ns[w], &free_ns[w + 1], (worker_count - w) * sizeof(*free_ns));
            memmove(&class_of[w], &class_of[w + 1], (worker_count - w) * sizeof(*class_of));
            continue;
        }
        free_ns[w] += ns;
        end_ns = free_ns[w] > end_ns ? free_ns[w] : end_ns;
        high -= class_of[w] == base;
        low += class_of[w] != base;
    }
    free(sorted);
    *ret_rate_qps = low < high || end_ns == 0 ? 0 : workload->count * 1e9 / (double)end_ns;
    return LEAT_OK;
}
