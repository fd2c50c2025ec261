/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/sched/autoscale_ilp.h - INFaaS' integer program (ATC 2021, 4.2.1), solved by GLPK's branch and cut.
 *
 * Variables are instances that stay and new ones, delta = stay + new - N, so that max(delta, 0) is linear; and what is not carried.
 * GLPK's environment is one for each thread.
 */
#ifndef LEAT_TESTS_AUTOSCALE_ILP_H
#define LEAT_TESTS_AUTOSCALE_ILP_H

#include "sched/autoscale.h"

/*
 * Sets the aims. False: not proved with nodes_max subproblems of branch and bound; aims are then the best that was found, zeros where
 * nothing was. No clock is asked: the answer is the same wherever the same GLPK runs.
 */
bool autoscale_ilp(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                   struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max);

#endif /* LEAT_TESTS_AUTOSCALE_ILP_H */
