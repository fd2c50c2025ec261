/* SPDX-License-Identifier: Apache-2.0 */
/* tools/simulate/stages_table.h - the stages of a pipeline from a file, and as the joint program sees them. */
#ifndef LEAT_TOOLS_SIMULATE_STAGES_TABLE_H
#define LEAT_TOOLS_SIMULATE_STAGES_TABLE_H

#include "sched/scale_joint.h"
#include "sched/scale_themis.h"

/*
 * A CSV file with a row for each stage, in order: alpha, beta, gamma and zeta, in milliseconds (sched/scale.h), and
 * max_batch and max_cores of an instance; some batch on some cores takes longer than nothing. With a column
 * `pipeline` the rows of that one, which is NULL where there is no such column; with a column `revision` those of
 * that one, which may be NULL where the pipeline's rows are of one only. What other rows say is not looked at. Errors
 * name file and line; the objective is left to the caller.
 */
LEAT_MUST_CHECK enum leat_status stages_table_read(const char *path, const char *pipeline, const char *revision,
                                                   struct leat_themis_pipeline *ret_pipeline);

/*
 * The row with that name in the column `application`, which such a file has instead; and what it says in the columns items_min and
 * items_max of how many items a stage has that repeats, 0 where there are none.
 */
LEAT_MUST_CHECK enum leat_status stages_table_find(const char *path, const char *application, const char *revision,
                                                   struct leat_themis_stage *ret_stage, uint32_t *ret_items_min,
                                                   uint32_t *ret_items_max);

/*
 * The same stages, one after another, on cores of one class, with no bounds on instances and no demand yet. Batches that
 * would take no time are not to be had. *ret_latency_ns is what their times lie in: the caller's to free.
 */
LEAT_MUST_CHECK enum leat_status stages_joint_make(const struct leat_themis_pipeline *pipeline,
                                                   struct leat_joint_application *ret_joint, uint64_t **ret_latency_ns);

#endif /* LEAT_TOOLS_SIMULATE_STAGES_TABLE_H */
