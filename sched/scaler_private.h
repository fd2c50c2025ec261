/* SPDX-License-Identifier: Apache-2.0 */
/* sched/scaler_private.h - a decision, shared by scaler*.c only. */
#ifndef LEAT_SCHED_SCALER_PRIVATE_H
#define LEAT_SCHED_SCALER_PRIVATE_H

#include "sched/scaler.h"

struct leat_scaler_decision {
    const struct leat_scaler_options *options;
    struct leat_scaler_application *const *applications;
    uint32_t count;
    void *memory;
    struct leat_joint_answer answers[LEAT_SCALER_APPLICATIONS_MAX];

    /* What is solved for: some of the applications. */
    uint32_t of[LEAT_SCALER_APPLICATIONS_MAX], joint_count;
    double rates_qps[LEAT_SCALER_APPLICATIONS_MAX];
    bool waits; /* what waits counts, too */
    struct leat_joint_application
        joints[LEAT_SCALER_APPLICATIONS_MAX]; /* but for demand_qps and starved_qps */
    struct leat_joint_answer solved[LEAT_SCALER_APPLICATIONS_MAX];
    struct leat_scaler_attempt sufficed; /* what the answers are to */
};

/*
 * The answers to what is solved for. Of an application that cannot be carried whole, for an objective twice as long, and so
 * on; then for finer and finer shares, and the least for everybody. Where this was found for such applications before, one
 * solution of what sufficed then; and one of the search for that anew, if it is its turn.
 */
void leat_scaler_solve(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
                       struct leat_scaler_search *search, bool turn);

/*
 * Solves once more for what sufficed, with other bounds of instances: for as much, within the same objectives. The answers
 * stay, `solved` is another one. False: somebody had its least before all else, so there is none to compare.
 */
bool leat_scaler_solve_again(struct leat_scaler_decision *decision,
                             const struct leat_joint_box *box);

#endif /* LEAT_SCHED_SCALER_PRIVATE_H */
