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

struct leat_joint_batch {
    double run_ns, items; /* whole numbers */
};

/* How a stage carries its part of a share with so many cores of one class. */
struct leat_joint_way {
    uint64_t latency_ns;
    uint16_t cores, instances; /* of all instances */
    uint8_t team, batch;       /* cores of one */
};

/* The ways of all stages of one application that carries a share, whatever cores cost. */
struct leat_joint_ways {
    const struct leat_joint_application *application; /* NULL: nobody's */
    uint32_t share;
    uint32_t cores[LEAT_SCALE_STAGES_MAX][LEAT_JOINT_CLASSES_MAX]; /* that have been looked at */
    uint32_t count[LEAT_SCALE_STAGES_MAX][LEAT_JOINT_CLASSES_MAX];
    struct leat_joint_way
        *of[LEAT_SCALE_STAGES_MAX][LEAT_JOINT_CLASSES_MAX]; /* more cores, no slower */
};

struct leat_joint_line {
    const struct leat_joint_box *box;
    const struct leat_joint_application
        *applications; /* all that are solved for: the caller's to set */
    struct leat_joint_ways kept[LEAT_JOINT_SHARES]; /* in fewer places on machines of many cores */
    uint32_t kept_count;
    struct leat_joint_way *best;             /* by cores, of one stage and class */
    uint32_t *costs[LEAT_JOINT_CLASSES_MAX]; /* of so many cores of the class */
    uint32_t most;                           /* that all cores cost, or the last step */
    bool exact;                              /* steps are such that nothing is rounded */
    uint64_t *latency_ns;                    /* by cost */
    uint32_t *how, *instances;
    const struct leat_joint_application
        *sorted; /* whose batches follow, by class and cores of an instance; NULL: nobody's */
    struct leat_joint_batch (*batches)[LEAT_JOINT_CLASSES_MAX][LEAT_SCALE_CORES_MAX]
                                      [LEAT_SCALE_BATCH_MAX]; /* by stage */
    uint8_t (*batch_count)[LEAT_JOINT_CLASSES_MAX][LEAT_SCALE_CORES_MAX];
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
 * evenly first. Applications stay as they are once the line has been laid out: how they carry a share is found once
 * and kept for all prices, while it is one application's turn.
 */
bool leat_joint_line_solve(struct leat_joint_line *line,
                           const struct leat_joint_application *application, uint32_t share,
                           uint32_t limit, uint32_t pairs_max, struct leat_joint_answer *ret_answer,
                           uint32_t *ret_cost);

#endif /* LEAT_SCHED_SCALE_JOINT_PRIVATE_H */
