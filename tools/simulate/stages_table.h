/* SPDX-License-Identifier: Apache-2.0 */
/* tools/simulate/stages_table.h - the stages of a pipeline from a file. */
#ifndef LEAT_TOOLS_SIMULATE_STAGES_TABLE_H
#define LEAT_TOOLS_SIMULATE_STAGES_TABLE_H

#include "sched/scale_themis.h"

/*
 * A CSV file with a row for each stage, in order: alpha, beta, gamma and zeta, in milliseconds (sched/scale.h), and max_batch and max_cores
 * of an instance. With a column `pipeline` the rows of that one, which is NULL where there is no such column. Errors name file and
 * line; the objective is left to the caller.
 */
LEAT_MUST_CHECK enum leat_status stages_table_read(const char *path, const char *pipeline,
                                                   struct leat_themis_pipeline *ret_pipeline);

#endif /* LEAT_TOOLS_SIMULATE_STAGES_TABLE_H */
