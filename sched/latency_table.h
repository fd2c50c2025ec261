/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/latency_table.h - latency at every batch size, from the sizes that were measured.
 *
 * Source    RAMSIS (EuroSys 2024), as its published code fills its tables. Statistic and unit are the caller's, a 95th
 *           percentile in microseconds as a rule.
 */
#ifndef LEAT_SCHED_LATENCY_TABLE_H
#define LEAT_SCHED_LATENCY_TABLE_H

#include <stdint.h>

#include "base/status.h"

/*
 * Latency of batches 1..batch_max into ret_latency[batch_max]: measured where `batch`, in any order, has it, else on the
 * least-squares line through the measured ones up to batch_max; then, from the right, none is longer than that of a
 * larger batch. LEAT_ERR_INVALID: fewer than two sizes, one of 0 or twice, a latency that is not above 0, or a line
 * that leaves a size without one.
 */
LEAT_MUST_CHECK enum leat_status leat_latency_table_fill(const uint32_t *batch, const double *latency, uint32_t count,
                                                         uint32_t batch_max, double *ret_latency);

/*
 * Batches known + 1..batch_max of latency[batch_max] from the least-squares line through 1..known, known at least 2. Not
 * repaired: the first may be shorter than the last known one. LEAT_ERR_INVALID: the line falls to 0.
 */
LEAT_MUST_CHECK enum leat_status leat_latency_table_extend(uint32_t known, uint32_t batch_max, double *latency);

#endif /* LEAT_SCHED_LATENCY_TABLE_H */
