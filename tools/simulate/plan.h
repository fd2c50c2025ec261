/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/plan.h - the mix to buy, chosen by simulating the candidates.
 *
 * Instead of a rule over bounds (sched/pool.h): every mix that might be the best is raced. A mix whose only known fault is that
 * it cannot do as much as the best so far costs one short run that is given up as soon as it has lost; those whose bound is
 * far below what the best reaches are never run. A mix of more workers may serve less (fcfs uses slow ones too), so nothing
 * follows from a loss for any other mix. The few that keep up are measured on a longer workload.
 *
 * Repeats   Equal inputs give equal answers, whatever the number of threads: candidates are raced in blocks of fixed size.
 */
#ifndef LEAT_TOOLS_SIMULATE_PLAN_H
#define LEAT_TOOLS_SIMULATE_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/pool.h"
#include "tools/simulate/simulate.h"

struct simulate_plan_options {
    struct simulate_options run;                /* table, router, objective, ...; workload, mix and rate are filled in */
    const struct simulate_workload *brief;      /* for the race, some 4,000 queries */
    const struct simulate_workload *thorough;   /* for the finalists, some 20,000 */
    struct leat_pool_candidate *candidates;     /* ranked, see leat_pool_rank; its order is kept */
    uint32_t candidate_count;
    uint32_t threads;                           /* 0: as many as there are cores */
    const _Atomic bool *stop;                   /* NULL, or what ends it early: LEAT_AGAIN */
};

struct simulate_plan {
    struct leat_pool_mix mix;
    double rate_qps;         /* its allowable throughput on the thorough workload */
    uint32_t raced, measured, finalists;
};

LEAT_MUST_CHECK enum leat_status simulate_plan(const struct simulate_plan_options *options,
                                               struct simulate_plan *ret_plan);

#endif /* LEAT_TOOLS_SIMULATE_PLAN_H */
