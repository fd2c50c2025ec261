/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/latency_table.h"

#include <math.h>
#include <stddef.h>

struct line {
    double base, slope;
};

/* Through (batch[i], latency[i]), or (i + 1, latency[i]) without `batch`; of those up to batch_max. */
static struct line
fit(const uint32_t *batch, const double *latency, uint32_t count, uint32_t batch_max)
{
    double mean_batch = 0, mean_latency = 0, products = 0, squares = 0, used = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t size = batch != NULL ? batch[i] : i + 1;
        if (size <= batch_max) {
            mean_batch += size;
            mean_latency += latency[i];
            used++;
        }
    }
    mean_batch /= used;
    mean_latency /= used;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t size = batch != NULL ? batch[i] : i + 1;
        if (size <= batch_max) {
            products += (size - mean_batch) * (latency[i] - mean_latency);
            squares += (size - mean_batch) * (size - mean_batch);
        }
    }
    const double slope = products / squares;
    return (struct line){mean_latency - slope * mean_batch, slope};
}

enum leat_status
leat_latency_table_fill(const uint32_t *batch, const double *latency, uint32_t count, uint32_t batch_max,
                        double *ret_latency)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (batch[i] == 0 || !isfinite(latency[i]) || latency[i] <= 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "a latency of %g for a batch of %u", latency[i], batch[i]);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (batch[k] == batch[i]) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "two latencies for a batch of %u", batch[i]);
            }
        }
        used += batch[i] <= batch_max;
    }
    if (used < 2) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "latencies of %u batch sizes up to %u; a line needs two", used, batch_max);
    }
    const struct line line = fit(batch, latency, count, batch_max);
    for (uint32_t b = 1; b <= batch_max; b++) {
        ret_latency[b - 1] = line.base + line.slope * b;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (batch[i] <= batch_max) {
            ret_latency[batch[i] - 1] = latency[i];
        }
    }
    for (uint32_t b = batch_max - 1; b >= 1; b--) {
        ret_latency[b - 1] = fmin(ret_latency[b - 1], ret_latency[b]);
    }
    return ret_latency[0] > 0
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "the line through the latencies falls to %g; measure more batch sizes",
                           ret_latency[0]);
}

enum leat_status
leat_latency_table_extend(uint32_t known, uint32_t batch_max, double *latency)
{
    LEAT_ASSERT(known >= 2);
    const struct line line = fit(NULL, latency, known, known);
    for (uint32_t b = known + 1; b <= batch_max; b++) {
        latency[b - 1] = line.base + line.slope * b;
        if (!(latency[b - 1] > 0)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "the line through the latencies falls to %g at a batch of %u",
                             latency[b - 1], b);
        }
    }
    return LEAT_OK;
}
