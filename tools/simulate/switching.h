/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/switching.h - ModelSwitching's table, by simulating every variant at every rate.
 *
 * Source    J. Zhang et al., HotCloud 2020, as the published code of RAMSIS (EuroSys 2024) makes it: of the variants that
 *           have less than 1 % of queries late at a constant rate of Poisson arrivals, the one whose queries in time are
 *           the most accurate; if there is none, the first. All variants are given batches as large as the most accurate
 *           one could have that keeps up with the rate within half of the objective (as for selector jellyfish, without
 *           its margin), or up to VARIANTS_BATCH_MAX where none keeps up: that is that code's way, not the paper's.
 * Repeats   Equal inputs give equal tables, whatever the number of threads.
 */
#ifndef LEAT_TOOLS_SWITCHING_H
#define LEAT_TOOLS_SWITCHING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy_table.h"
#include "tools/simulate/variants.h"

struct switching_options {
    const struct variants_table *table;
    const uint32_t *rates_qps; /* [rate_count], rising, at least 1 */
    uint32_t rate_count;       /* 1..LEAT_POLICY_RUNGS_MAX */
    uint32_t worker_count;
    uint64_t objective_ns;
    uint64_t duration_ns; /* of each simulation; 0: 300 s */
    uint64_t seed;
    uint32_t threads;         /* 0: as many as there are cores */
    const _Atomic bool *stop; /* NULL, or what ends it early: LEAT_AGAIN */
};

/* A sealed policy of kind load, which the caller frees. LEAT_ERR_INVALID: an option is out of range. */
LEAT_MUST_CHECK enum leat_status switching_generate(const struct switching_options *options,
                                                    struct leat_policy **ret_policy);

#endif /* LEAT_TOOLS_SWITCHING_H */
