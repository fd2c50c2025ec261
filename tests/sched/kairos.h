/* SPDX-License-Identifier: Apache-2.0 */
/* tests/sched/kairos.h - the numbers in tests/sched/data/kairos: five models on four types of instances. */
#ifndef LEAT_TESTS_SCHED_KAIROS_H
#define LEAT_TESTS_SCHED_KAIROS_H

#include "sched/pool.h"

enum { KAIROS_MODELS = 5, KAIROS_TYPES = 4, KAIROS_MIXES = 331 };

extern const char *const kairos_models[KAIROS_MODELS];

struct kairos {
    struct leat_pool_space space; /* classes are types, in micro-USD an hour; the budget is the paper's 2.5 USD */
    struct leat_pool_rates rates[KAIROS_MODELS];
    struct leat_pool_mix mixes[KAIROS_MIXES];
    double bounds_qps[KAIROS_MODELS][KAIROS_MIXES]; /* computed independently, see kairos_bounds.py */
};

/* Ends the process where a file is missing or not as expected. */
void kairos_read(struct kairos *kairos);

#endif /* LEAT_TESTS_SCHED_KAIROS_H */
