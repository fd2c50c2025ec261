/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/pool_world.h - policies of sched/mdp_pool.h at work: one queue, identical workers, a virtual clock. */
#ifndef LEAT_TESTS_SCHED_POOL_WORLD_H
#define LEAT_TESTS_SCHED_POOL_WORLD_H

#include <stdint.h>

#include "sched/mdp_pool.h"
#include "tests/sched/ramsis.h"

/* A policy and what it was solved for; the problem points to its own numbers. */
struct pool_policy {
    struct leat_mdp_pool_problem problem;
    struct leat_mdp_pool_value value;
    uint16_t *actions;
    double accuracy[LEAT_MDP_POOL_VARIANTS_MAX];
    double latency_us[LEAT_MDP_POOL_VARIANTS_MAX][RAMSIS_QUEUE];
};

/*
 * The task at a rate: 64 rows from a model of 256, 64 bins, 8 levels of 16, holding, a penalty of 2; batches that miss the objective
 * by themselves take a second. Not solved yet.
 */
void pool_policy_init(struct pool_policy *policy, const struct ramsis_task *task, uint32_t worker_count,
                      double rate_qps);
void pool_policy_solve(struct pool_policy *policy); /* in memory that is not zero before */
void pool_policy_fini(struct pool_policy *policy);

struct pool_world {
    const struct pool_policy *policies; /* rising in rate; the lowest that covers what came in the last 500 ms counts */
    uint32_t policy_count;
    const double *rate_qps; /* of each second, over and over */
    uint32_t rate_count;
    double seconds;
    double dispersion; /* of arrivals, as in the problem */
    double noise;      /* standard deviation of what batches take, over what the table says */
    uint64_t seed;
};

struct pool_world_result {
    uint64_t queries, late, given_up;
    double accuracy;  /* mean of those in time */
    double violation; /* share of late and given up */
};

/* Queries that wait at the end are left out, but for those past their deadline, which are late. */
struct pool_world_result pool_world_run(const struct pool_world *world);

#endif /* LEAT_TESTS_SCHED_POOL_WORLD_H */
