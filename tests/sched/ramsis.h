/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/ramsis.h - the numbers in tests/sched/data/ramsis as problems of sched/mdp.h. */
#ifndef LEAT_TESTS_SCHED_RAMSIS_H
#define LEAT_TESTS_SCHED_RAMSIS_H

#include "sched/mdp.h"

enum { RAMSIS_BATCHES = 128, RAMSIS_QUEUE = 32 };

struct ramsis_task {
    uint32_t variant_count;
    double accuracy[LEAT_MDP_VARIANTS_MAX];
    double latency_us[LEAT_MDP_VARIANTS_MAX][RAMSIS_BATCHES]; /* filled to 32, extended to 128 */
};

/* "image": nine variants, "text": five. Ends the process where a file is missing or not as expected. */
void ramsis_read(const char *task, struct ramsis_task *ret_task);

/*
 * The paper's problem: 150 ms and 60 workers for image, 100 ms and 20 workers for text; 32 queries, 100 bins, maximal
 * batches. The task stays where it is.
 */
struct leat_mdp_problem ramsis_problem(const struct ramsis_task *task, double qps);

/* `count` variants on lines between those of the task, for problems of more variants than the paper profiled. */
void ramsis_interpolate(const struct ramsis_task *task, uint32_t count, struct ramsis_task *ret_task);

#endif /* LEAT_TESTS_SCHED_RAMSIS_H */
