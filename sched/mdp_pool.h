/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/mdp_pool.h - which variant and batch the next idle worker should run, when all workers serve one queue: a policy
 * solved ahead of time.
 *
 * Source    Ours. The aim and the words are those of D. Mendoza et al., "Model Selection for Latency-Critical Inference
 *           Serving" (RAMSIS), EuroSys 2024, which deals queries to a queue for each worker; sched/mdp.h is that.
 * Model     Queries wait in one queue, oldest first. K identical workers are pooled into one that works K times as fast.
 *           All busy  When a worker becomes free n wait, and n - b + arrivals in l / K are there when the next one does,
 *                     for a batch of b that takes l.
 *           Some idle The others have work for V, of K workers' time, between 0 and V0 = (K - 1) / 2K of the mean time of a
 *                     batch: what is left where all others are busy, each in the midst of a batch. V falls like
 *                     exp(-2 t / mean time). A batch adds l / K; what exceeds V0 is how long no worker is free.
 *           Actions   Variant and batch 1..n that end in time; hold: wait for more queries though a worker is idle; give
 *                     up the oldest query. The oldest of n is taken to have waited for as long as n - 1 arrivals take, and
 *                     half the time between two free workers, or two arrivals if that is less, where all others are busy.
 *           Reward    accuracy * batch, less late_penalty for each query late or given up, per unit of time.
 *           For one worker this is exact but for the oldest's wait, which the table knows and the model does not.
 * Arrivals  The number in an interval of length t has mean m = rate * t and variance dispersion * m: Poisson at 1, above
 *           negative binomial, as in sched/mdp.h. That workers do not become free at even intervals adds a quarter of m^2
 *           to the variance while all are busy, for two workers and more.
 * Method    Policy iteration: values and the stationary distribution of a policy by elimination without subtraction
 *           (Grassmann, Taksar and Heyman, 1985), the mean time of a batch from that distribution. Ends with an improvement
 *           that changes nothing, or after LEAT_MDP_POOL_ROUNDS_MAX; residual tells how good the policy is then.
 * Table     u16 actions[rows][slack_bins + 1], a row for n and how many are idle, see leat_mdp_pool_row. Bin j is for
 *           slacks of the oldest query from objective * j / slack_bins to below the next, so what bin j starts ends in time
 *           for all of them. Which of these is best follows from the model's values; when to hold, from how the slack and V
 *           fall until the next query. An action is (variant | batch << 6), (LEAT_MDP_POOL_GIVE_UP | queries << 6) or
 *           (LEAT_MDP_POOL_HOLD | 1 << 6). Holding is decided anew when a query comes, a worker becomes free, or the slack
 *           falls into another bin. The row for more than queue_max takes as many to wait as come in the time that the
 *           oldest has waited. sched/policy_table.h keeps such tables, kind POOL.
 * Shape     64 rows from a model of 256, 64 bins and 8 levels of 16 lose next to nothing for 60 workers, 9 variants and up
 *           to 4000 queries a second: 25 KiB. More queries a second want more rows.
 * Memory    The caller's, leat_mdp_pool_bytes of it: 3 MB for a model of 256, 15 MB for 1024. Nothing is allocated or kept.
 * Threads   None of its own.
 * Units     Microseconds, queries a microsecond, accuracies as fractions.
 * Numerics  Doubles; exp, log and pow of libm. Tails of 1e-12 are left out.
 */
#ifndef LEAT_SCHED_MDP_POOL_H
#define LEAT_SCHED_MDP_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_MDP_POOL_VARIANTS_MAX 62u
#define LEAT_MDP_POOL_WORKERS_MAX  1024u
#define LEAT_MDP_POOL_QUEUE_MAX    1022u
#define LEAT_MDP_POOL_BINS_MAX     1023u
#define LEAT_MDP_POOL_MODEL_QUEUE_MAX 4096u
#define LEAT_MDP_POOL_LEVELS_MAX   64u
#define LEAT_MDP_POOL_HELD_MAX     64u
#define LEAT_MDP_POOL_ROUNDS_MAX   60u

#define LEAT_MDP_POOL_HOLD    62u /* in place of a variant */
#define LEAT_MDP_POOL_GIVE_UP 63u

struct leat_mdp_pool_problem {
    uint32_t variant_count;    /* 1..LEAT_MDP_POOL_VARIANTS_MAX, in any order; those that others dominate are not chosen */
    uint32_t worker_count;     /* 1..LEAT_MDP_POOL_WORKERS_MAX */
    uint32_t batch_max;        /* 1..queue_max */
    uint32_t latency_stride;   /* from variant to variant, at least batch_max */
    const double *accuracy;    /* f64[variant_count], 0..1 */
    const double *latency_us;  /* f64[variant_count][latency_stride], of batch 1, 2, ..., batch_max; above 0 */
    double objective_us;       /* above 0 */
    double rate_per_us;        /* at least 0; below 1e-3 / objective_us it counts as that */
    double dispersion;         /* 1..1000 */
    double late_penalty;       /* what a query that is given up or late costs, as accuracy; 0..1e6 */
    double latency_spread;     /* standard deviation of what a batch takes, over its latency_us; 0..10; 0: exactly that */
    uint32_t queue_max;        /* 1..LEAT_MDP_POOL_QUEUE_MAX: the table has one row for all longer queues */
    uint32_t model_queue_max;  /* queue_max..LEAT_MDP_POOL_MODEL_QUEUE_MAX: queries that come to a queue of so many count as
                                * given up. Should be larger than queues get: what it costs misguides those before it.
                                * 0: four times queue_max, but no more than 256; or as many as come in the time of
                                * the objective, but no more than 1024; or queue_max, whichever is the most */
    uint32_t slack_bins;       /* 1..LEAT_MDP_POOL_BINS_MAX */
    uint32_t idle_levels;      /* 1..LEAT_MDP_POOL_LEVELS_MAX, of two idle workers and more; worker_count - 1 are enough */
    uint32_t held_max;         /* 1..LEAT_MDP_POOL_HELD_MAX and at most queue_max: longer queues count as that while two
                                * workers or more are idle, and shorter ones alone are held */
    bool hold;                 /* may hold; without it a worker is idle only when nobody waits */
};

/* What the policy is expected to do, in the model. */
struct leat_mdp_pool_value {
    double accuracy;    /* mean of the queries served; 0 when there is none */
    double violation;   /* share of queries given up or late */
    double gain_per_us; /* accuracy served less penalties, a microsecond */
    double bound_per_us; /* leat_mdp_pool_bound */
    double batch_us;    /* mean time of a batch */
    double residual;    /* no policy makes more than this an action above gain_per_us * time, with this batch_us */
    uint32_t rounds;
};

/* Rows of a table, and the one for `waiting` >= 1 queries while `idle` >= 1 of worker_count workers are. */
static inline uint32_t
leat_mdp_pool_row_count(const struct leat_mdp_pool_problem *problem)
{
    return problem->queue_max + 2 + problem->idle_levels * problem->held_max;
}

/*
 * Row 0 is unused; n = 1..queue_max wait and one worker is idle; more wait; then held_max rows for each level, the
 * least idle first: with i >= 2 idle it is (i - 2) * idle_levels / (worker_count - 1), rounded down.
 */
static inline uint32_t
leat_mdp_pool_row(const struct leat_mdp_pool_problem *problem, uint32_t waiting, uint32_t idle)
{
    if (idle < 2) {
        return waiting <= problem->queue_max ? waiting : problem->queue_max + 1;
    }
    const uint32_t level = (idle - 2) * problem->idle_levels / (problem->worker_count - 1);
    const uint32_t held = waiting < problem->held_max ? waiting : problem->held_max;
    return problem->queue_max + 1 + level * problem->held_max + held;
}

/* LEAT_ERR_INVALID: a field is out of its range. The others assume it was asked. */
LEAT_MUST_CHECK enum leat_status leat_mdp_pool_check(const struct leat_mdp_pool_problem *problem);

/* 64-byte aligned memory for leat_mdp_pool_solve. */
size_t leat_mdp_pool_bytes(const struct leat_mdp_pool_problem *problem);

/* ret_actions: u16[rows][slack_bins + 1]; ret_value may be NULL. */
void leat_mdp_pool_solve(void *memory, const struct leat_mdp_pool_problem *problem, uint16_t *ret_actions,
                         struct leat_mdp_pool_value *ret_value);

/*
 * No policy whatever has more accuracy in time less penalties a microsecond, for any arrivals of that rate: the most that
 * workers' time buys where a batch (m, b) gives accuracy(m) * b for latency(m, b) and a query that is not served costs
 * late_penalty. It is the linear program's dual, the least over a price p of workers' time of
 * rate * max(accuracy - p * latency / b, -late_penalty) + p * worker_count. Every latency is taken for certain.
 */
double leat_mdp_pool_bound(const struct leat_mdp_pool_problem *problem);

#endif /* LEAT_SCHED_MDP_POOL_H */
