/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/ramsis.h - the numbers in tests/sched/data/ramsis: two tasks, a trace, and problems of sched/mdp.h. */
#ifndef LEAT_TESTS_SCHED_RAMSIS_H
#define LEAT_TESTS_SCHED_RAMSIS_H

#include "sched/mdp.h"

enum { RAMSIS_BATCHES = 128, RAMSIS_QUEUE = 32, RAMSIS_TRACE_SECONDS = 261 };

struct ramsis_task {
    const char *name;
    uint32_t worker_count; /* of the paper: 60 for image, 20 for text */
    double objective_us;   /* 150 and 100 ms */
    uint32_t variant_count;
    double accuracy[LEAT_MDP_VARIANTS_MAX];
    double latency_us[LEAT_MDP_VARIANTS_MAX][RAMSIS_BATCHES]; /* filled to 32, extended to 128 */
};

/* "image": nine variants, "text": five. Ends the process where a file is missing or not as expected. The name stays where it is. */
void ramsis_read(const char *task, struct ramsis_task *ret_task);

/* The trace's queries a second, for each second until it begins anew: of its last interval one second counts. */
void ramsis_read_trace(double ret_qps[RAMSIS_TRACE_SECONDS]);

/* The paper's problem: 32 queries, 100 bins, maximal batches. The task stays where it is. */
struct leat_mdp_problem ramsis_problem(const struct ramsis_task *task, double qps);

/* `count` variants on lines between those of the task, for problems of more variants than the paper profiled. */
void ramsis_interpolate(const struct ramsis_task *task, uint32_t count, struct ramsis_task *ret_task);

#endif /* LEAT_TESTS_SCHED_RAMSIS_H */
