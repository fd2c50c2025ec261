/* SPDX-License-Identifier: Apache-2.0 */
/* sched/scale_joint_private.h - the two ways in which scale_joint.c solves, shared by scale_joint*.c only. */
#ifndef LEAT_SCHED_SCALE_JOINT_PRIVATE_H
#define LEAT_SCHED_SCALE_JOINT_PRIVATE_H

#include <stdbool.h>

#include "sched/scale_joint.h"

/* Takes the next bytes of the memory; with NULL, counts them. */
void *leat_joint_carve(char *memory, size_t *at, size_t bytes);

uint64_t leat_joint_shed(const struct leat_joint_application *application,
                         uint32_t share); /* by carrying so much alone */

/*
 * The batch of least time in which n instances carry the demand, of equal ones the smallest: batches[n - 1], or 0.
 * latency_ns: of c cores, by batch. Times of limit_ns and more are none. Returns the fewest instances that do, or one more
 * than instances_max.
 */
uint32_t leat_joint_batches(const uint64_t *latency_ns, uint32_t batch_max, double demand_qps,
                            uint64_t limit_ns, uint32_t instances_max, uint8_t *batches);

/* ---- All cells of a machine: exact ------------------------------------------------------------------ */

#define LEAT_JOINT_CELLS_MAX 2048u

size_t leat_joint_cells_bytes(uint32_t cells, uint32_t application_count);

/* False: that takes more than so many steps. */
bool leat_joint_cells_solve(const struct leat_joint_box *box,
                            const struct leat_joint_application *applications, uint32_t count,
                            uint64_t steps_max, void *memory, struct leat_joint_answer *ret_answers,
                            uint64_t *ret_price);

/* ---- One application, by what its cores cost in all ------------------------------------------------- */

#define LEAT_JOINT_LINE_MAX 512u /* steps that the cores of several classes cost in all */

struct leat_joint_point {
    uint64_t latency_ns;
    uint32_t cost,
        how; /* of a stage: its class, cores and batch; of two joined: the points of both */
    uint32_t instances; /* of a stage */
};

struct leat_joint_line {
    const struct leat_joint_box *box;
    uint32_t *costs[LEAT_JOINT_CLASSES_MAX]; /* of so many cores of the class */
    uint32_t most;                           /* that all cores cost, or the last step */
    bool exact;                              /* steps are such that nothing is rounded */
    uint64_t *latency_ns;                    /* by cost */
    uint32_t *how, *instances;
    uint8_t *batches;
    struct leat_joint_point
        *points[LEAT_JOINT_TERMS_MAX]; /* of each term: the more it costs, the faster it is */
    uint32_t point_count[LEAT_JOINT_TERMS_MAX];
};

void leat_joint_line_lay_out(struct leat_joint_line *line, const struct leat_joint_box *box,
                             char *memory, size_t *at);

/*
 * What a core of each class costs from now on. Where there are several, costs are rounded up to steps of the line: the less is
 * to be spent at most, the finer they are.
 */
void leat_joint_line_set(struct leat_joint_line *line, const uint64_t *prices, uint64_t spent_max);

/*
 * The least cost, `limit` at most, of carrying the share in time. The answer may take more cores of a class than there are
 * where there are several. Exact while no two terms have more than pairs_max pairs of points; of more, each is thinned
 * evenly first.
 */
bool leat_joint_line_solve(struct leat_joint_line *line,
                           const struct leat_joint_application *application, uint32_t share,
                           uint32_t limit, uint32_t pairs_max, struct leat_joint_answer *ret_answer,
                           uint32_t *ret_cost);

#endif /* LEAT_SCHED_SCALE_JOINT_PRIVATE_H */
