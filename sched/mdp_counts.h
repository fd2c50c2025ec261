/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/mdp_counts.h - how many arrivals an interval holds: Poisson, or negative binomial where they are over-dispersed.
 *
 * Role     Private to sched/mdp*.c and its tests. Counts of disjoint intervals are independent, and both families are
 *          closed under sums and have one recurrence (Panjer's):
 *          pmf(k) = pmf(k - 1) * (linear * us + growth * (k - 1)) / k.
 */
#ifndef LEAT_SCHED_MDP_COUNTS_H
#define LEAT_SCHED_MDP_COUNTS_H

#include <stdint.h>

struct leat_mdp_counts {
    double rate_per_us;
    double dispersion; /* variance over mean, at least 1 */
    double linear, growth;
};

struct leat_mdp_counts leat_mdp_counts_of(double rate_per_us, double dispersion);

/* Logarithm of the probability of k in `us`, at least 0; -INFINITY where it is 0. */
double leat_mdp_counts_log(const struct leat_mdp_counts *counts, double us, uint32_t k);

/* The most likely k. */
double leat_mdp_counts_mode(const struct leat_mdp_counts *counts, double us);

/* pmf(first), ..., pmf(first + count - 1); what is below 1e-60 may be 0. */
void leat_mdp_counts_fill(const struct leat_mdp_counts *counts, double us, uint32_t first, uint32_t count, double *ret_pmf);

/* All k but for a share of at most `cutoff` on either side, by Bernstein's bounds. */
struct leat_mdp_range {
    uint32_t first, last;
};
struct leat_mdp_range leat_mdp_counts_range(const struct leat_mdp_counts *counts, double us, double cutoff);

#endif /* LEAT_SCHED_MDP_COUNTS_H */
