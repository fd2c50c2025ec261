/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/policy_solve.h - solves policies for a ladder of rates, into a block that selector mdp follows.
 *
 * Role      From latencies and accuracies of variants to sched/policy_table.h, by sched/mdp.h (a queue for each worker) or
 *           sched/mdp_pool.h (one queue).
 * Use       check; a block of leat_policy_problem_bytes, begun by leat_policy_begin; leat_policy_solve for each rung, each
 *           with leat_policy_solve_bytes of its own memory, in any order and on any threads; leat_policy_seal.
 * Memory    The caller's; nothing is allocated, and nothing but the block is kept.
 * Units     Microseconds, nanoseconds, queries a second, accuracies as fractions.
 */
#ifndef LEAT_SCHED_POLICY_SOLVE_H
#define LEAT_SCHED_POLICY_SOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/mdp.h"
#include "sched/policy_table.h"

#define LEAT_POLICY_PENALTY 2.0 /* leat's own price of a late query: what two perfect answers would earn */

enum leat_policy_mode {
    LEAT_POLICY_PAPER, /* RAMSIS: kind queue, accuracy a decision */
    LEAT_POLICY_DEALT, /* the same queues, accuracy less penalties a query */
    LEAT_POLICY_LEAT,  /* kind pool, accuracy less penalties a query */
};

struct leat_policy_problem {
    enum leat_policy_mode mode;
    uint32_t variant_count;    /* 1..LEAT_POLICY_VARIANTS_MAX; PAPER, DEALT: rising latency, so that 0 is the fastest */
    uint32_t worker_count;     /* 1..LEAT_POLICY_WORKERS_MAX */
    uint32_t unit_shift;       /* for the block: all items and rates here are of units of 1 << this */
    uint32_t latency_items;    /* LEAT: the largest batch, 1..queue_max; others: queue_max + 1 */
    const char *const *names;  /* [variant_count] */
    const double *accuracy;    /* f64[variant_count], 0..1 */
    const double *latency_us;  /* f64[variant_count][latency_items], of 1, 2, ... items */
    uint64_t objective_ns;
    double dispersion;         /* of arrivals, 1 is Poisson; at least 1 */
    double late_penalty;       /* what a late query costs, as accuracy, 0..1000; PAPER: in the expected gain alone */
    uint32_t queue_max;
    uint32_t slack_bins;
    bool drops_late;           /* late queries are dropped, not served */

    /* PAPER, DEALT: queue_max to LEAT_MDP_QUEUE_MAX. */
    enum leat_mdp_grid grid; /* BY_LATENCY: solved on a grid of its own, looked up at slack_bins */
    enum leat_mdp_batching batching;
    enum leat_mdp_split split;

    /* LEAT. */
    uint32_t idle_levels, held_max; /* of idle workers; queries that are told apart, and may be held, meanwhile */
    uint32_t model_queue_max;       /* as in sched/mdp_pool.h */
    bool hold;                      /* at rates at which not all can have the best answer, but nine tenths of the workers' time would do */
    double latency_spread;          /* standard deviation of what a batch takes, over its latency; 0..10 */
};

/* LEAT_ERR_INVALID, LEAT_ERR_LIMIT: what cannot be solved. The others assume that this was asked. */
LEAT_MUST_CHECK enum leat_status leat_policy_problem_check(const struct leat_policy_problem *problem, uint32_t rung_count);

size_t leat_policy_problem_bytes(const struct leat_policy_problem *problem, uint32_t rung_count);

/* A block with variants and rates (rates_qps[rung_count], rising) and no actions. LEAT_ERR_INVALID: a name. */
LEAT_MUST_CHECK enum leat_status leat_policy_begin(void *memory, const struct leat_policy_problem *problem,
                                                   const uint32_t *rates_qps, uint32_t rung_count,
                                                   struct leat_policy **ret_policy);

/* 64-byte aligned memory, for a rung of that rate. SIZE_MAX: it would not fit in it. */
size_t leat_policy_solve_bytes(const struct leat_policy_problem *problem, uint32_t rate_qps);
void leat_policy_solve(void *memory, const struct leat_policy_problem *problem, struct leat_policy *policy, uint32_t rung);

/* The problem of one rate as sched/mdp.h has it: PAPER, DEALT. It refers to the same tables. */
struct leat_mdp_problem leat_policy_queue_problem(const struct leat_policy_problem *problem, uint32_t rate_qps);

/* Of all queries: accuracy of those in time less penalties. */
static inline double
leat_policy_gain(double accuracy, double violation, double late_penalty)
{
    return (1 - violation) * accuracy - violation * late_penalty;
}

/* No policy has a larger gain at that rate: leat_mdp_pool_bound. */
double leat_policy_bound(const struct leat_policy_problem *problem, uint32_t rate_qps);

#endif /* LEAT_SCHED_POLICY_SOLVE_H */
