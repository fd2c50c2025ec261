/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/policy_make.h - a policy for one queue before all workers, from what variants take.
 *
 * Role       Has sched/policy_solve.h solve it in mode LEAT for a ladder of loads that suits the variants; selector mdp follows
 *            the result. Slow: tens of milliseconds a rung.
 * Ladder     From what the most accurate variant carries easily to LEAT_POLICY_MAKE_HEADROOM of what the workers can do in
 *            time, or of the rate that is seen, where queries are given up. Rungs are close where the best accuracy that is possible falls fast with the
 *            rate, for each is used up to the next lower one.
 * Threads    Any; a call starts as many as it is told, and has joined them when it returns.
 */
#ifndef LEAT_RUNTIME_POLICY_MAKE_H
#define LEAT_RUNTIME_POLICY_MAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy_table.h"

#define LEAT_POLICY_MAKE_ITEMS_MAX 64u /* no batch of a policy is larger */
#define LEAT_POLICY_POISSON_PERMILLE 1000u /* dispersion of arrivals; the least that a policy is made for */
#define LEAT_POLICY_MAKE_HEADROOM  1.25
#define LEAT_POLICY_KEY_BYTES      65u /* with the closing zero */

struct leat_policy_order {
    uint32_t variant_count;          /* 1..LEAT_MDP_POOL_VARIANTS_MAX */
    const char *const *names;        /* [variant_count], the application's */
    const uint32_t *accuracy_ppm;    /* [variant_count] */
    const uint64_t *latency_ns;      /* [variant_count][items_max], means, of batches of 1, 2, ...; 0: there is no such batch */
    uint32_t rate_qps;               /* that is seen; the ladder covers it */
    uint32_t spread_ppm;             /* standard deviation of what a batch takes, over its mean */
    uint32_t items_max;              /* 1..LEAT_POLICY_MAKE_ITEMS_MAX */
    uint32_t unit_shift;             /* all items and rates here are of units of 1 << this: sched/policy_table.h */
    uint64_t objective_ns;           /* > 0 */
    uint32_t worker_count;
    uint32_t dispersion_permille;    /* of arrivals, 1000 and more */
    bool drops_late;
    const uint32_t *rates_qps;       /* [rate_count], rising; NULL: the ladder above */
    uint32_t rate_count;
    uint32_t threads; /* that make it, at a low priority, while the caller waits; 0: one */
};

/*
 * *ret_policy is free()'d by the caller. LEAT_ERR_INVALID: an order out of range, or no variant is in time even alone;
 * LEAT_AGAIN: *cancel was set meanwhile (it may be NULL).
 */
LEAT_MUST_CHECK enum leat_status leat_policy_make(const struct leat_policy_order *order, const _Atomic bool *cancel,
                                                  struct leat_policy **ret_policy);

/*
 * The dispersion of arrivals to make policies for, when it was `mean` so far and a window says `seen`. A window says it roughly,
 * and one in which arrivals begin ten times too much: it moves by an eighth of the difference, and of no more than itself.
 */
uint32_t leat_policy_dispersion(uint32_t mean_permille, uint64_t seen_ppm);

/*
 * How many items count as one, as a power of two, when that was `before` and `queries` have come since with so many items: as
 * many as a query has on average, rounded down, and no more than items_max. It stays while the average is from three quarters
 * to two and a half times of it.
 */
uint32_t leat_policy_unit_shift(uint32_t before, uint64_t queries, uint64_t items, uint32_t items_max);

/*
 * Is the policy still for that order, which has the same variants? Not when what it was made of is off: in the unit; in the
 * number of workers; by more than a tenth in the time of a batch, a power of two of items, that is or was in time; by more than
 * a half in dispersion; by 0.05 in spread; or when the rate is beyond the ladder.
 */
bool leat_policy_fits(const struct leat_policy *policy, uint32_t made_for_spread_ppm, const struct leat_policy_order *order);

/*
 * What a policy of that order is made from, in 64 hexadecimal digits: the same for the same variants, times, spread, objective,
 * workers, arrivals, rates, host and sources of what makes it, and different where any of them differs.
 */
void leat_policy_order_key(const struct leat_policy_order *order, const char *host, char ret_key[LEAT_POLICY_KEY_BYTES]);

/* A checked copy of bytes that were kept, to be free()'d. LEAT_ERR_PROTO or LEAT_ERR_VERSION. */
LEAT_MUST_CHECK enum leat_status leat_policy_copy(const void *bytes, size_t size, struct leat_policy **ret_policy);

/* One that `leat policy generate` wrote, to be free()'d. LEAT_ERR_SYS, LEAT_ERR_PROTO or LEAT_ERR_VERSION; the text names the file. */
LEAT_MUST_CHECK enum leat_status leat_policy_read(const char *path, struct leat_policy **ret_policy);

#endif /* LEAT_RUNTIME_POLICY_MAKE_H */
