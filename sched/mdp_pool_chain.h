/* SPDX-License-Identifier: Apache-2.0 */
/* sched/mdp_pool_chain.h - the chain behind sched/mdp_pool.h, for that module alone. */
#ifndef LEAT_SCHED_MDP_POOL_CHAIN_H
#define LEAT_SCHED_MDP_POOL_CHAIN_H

#include <math.h>

#include "sched/mdp_pool.h"

#define HOLD    (UINT32_MAX - 1) /* as action; others are numbers of pairs */
#define GIVE_UP UINT32_MAX
#define NOWHERE UINT32_MAX

/* A variant and a batch that may be worth running. */
struct pair {
    double latency_us, accuracy;
    uint32_t variant, batch;
};

/* What a row's policy does until its next step. */
struct sums {
    double reward, time_us, accuracy, served, late, batches, busy_us;
};

/*
 * A state is how many wait, n, and a level: V = V0 * level / levels. All but one worker are busy at the last one, where n
 * is 0..queue_max; at the others n is 0..held. State of (n, level): level * (held + 1) + n.
 */
struct solver {
    const struct leat_mdp_pool_problem *problem;
    double rate, workers, cluster_rate, batch_us, gain;
    uint32_t queue, held, levels, full; /* full: state of n = 0 at the last level */
    uint32_t pair_count, states, unknowns, cluster_count, taps_max;
    struct pair *pairs;   /* by rising latency */
    double *value;        /* [states] */
    uint32_t *action;     /* [states] */
    uint32_t *unknown;    /* [states]: row of the state, or NOWHERE where its action takes no time and so needs none */
    uint32_t *state;      /* [unknowns] */
    double *grid;         /* [states] */
    double *visits;       /* [unknowns], of the stationary distribution */
    struct sums *sums;    /* [unknowns] */
    double *reward, *time_us; /* [unknowns]: until a state is left that remains */
    uint32_t *reach;      /* [unknowns]: of the rows before `border`, where the last column before it is */
    double *matrix;       /* [states][states], used as [unknowns][unknowns] */
    double *cluster;      /* [cluster_count]: probability that 1, 2, ... come at once */
    double *wait;         /* [levels + 1][levels + 1]: from level to level until the next arrival */
    double *taps;         /* [taps_max]: a distribution of arrivals */
    double *best;         /* [states] or [queue + 1][bins + 1] */
    uint32_t *choice;     /* as best */
    double *result;       /* [queue + 1] */
    double *held_value;   /* [levels + 1][held + 1][bins + 1] */
};

static inline uint32_t
state_of(const struct solver *solver, uint32_t waiting, uint32_t level)
{
    return level * (solver->held + 1) + waiting;
}

static inline uint32_t
longest(const struct solver *solver, uint32_t level)
{
    return level < solver->levels ? solver->held : solver->queue;
}

static inline double
reward_of(const struct solver *solver, const struct pair *pair, double chance)
{
    return pair->batch * (chance * pair->accuracy - (1 - chance) * solver->problem->late_penalty);
}

static inline bool
may_hold(const struct solver *solver, uint32_t waiting)
{
    return waiting == 0 || (solver->problem->hold && waiting < solver->held);
}

static inline void
offer(struct solver *solver, uint32_t at, double value, uint32_t action)
{
    if (value > solver->best[at]) {
        solver->best[at] = value;
        solver->choice[at] = action;
    }
}

/* Chance that the oldest, and with it all of the batch, is in time; 0 where it is not predicted to be. */
static inline double
in_time(const struct solver *solver, const struct pair *pair, double slack_us)
{
    const double spread = solver->problem->latency_spread;

    if (pair->latency_us > slack_us) {
        return 0;
    }
    return spread > 0 ? 0.5 * erfc((1 - slack_us / pair->latency_us) / (spread * 1.4142135623730951)) : 1;
}

/* What follows when the pair is started at that level so that from..to queries remain; its own reward is not in it. */
void leat_mdp_pool_value_pair(struct solver *solver, const struct pair *pair, uint32_t level, uint32_t from, uint32_t to,
                              double *ret_values);

/* The best policy: actions, values and gain. */
void leat_mdp_pool_iterate(struct solver *solver, struct leat_mdp_pool_value *ret_value);

#endif /* LEAT_SCHED_MDP_POOL_CHAIN_H */
