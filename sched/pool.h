/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/pool.h - which mix of workers a budget should buy.
 *
 * Source    B. Li et al., "Kairos: Building Cost-Efficient Machine Learning Inference Systems with Heterogeneous Cloud
 *           Resources", HPDC 2023, section 5.2: the bound (equations 9 to 15), the selection rule and Kairos+
 *           (algorithm 1). The paper leaves ties open; here they are decided.
 * Use       enumerate, rank, select: a mix, and nothing was measured. Or enumerate, rank, search: the caller measures
 *           the few mixes that may still be the best.
 * Words     A mix counts workers by class. One class is the base: it meets the objective at every size, so each mix
 *           has one of it at least. The other classes are auxiliaries, good for queries below some size.
 * Caution   The bound is an estimate, not a proof: it knows shares of queries and of time, so a router that keeps the
 *           smallest of the small for the auxiliaries gets past it; in the paper an oracle does (figure 14). Kairos+
 *           can then miss the best mix by as much as bounds are exceeded.
 * Memory    The caller's; nothing is allocated.
 * Numerics  Prices and counts are integers: what a budget buys is exact. Rates are doubles, summed in the order of the
 *           input: equal inputs give equal answers.
 * Units     Prices and budget: any one unit, such as micro-USD an hour. Rates: queries a second. Times: nanoseconds.
 * Threads   None of its own; what a call may write, one thread at a time.
 * Failure   What comes from files and users is checked and told; order of calls and ranks are the caller's duty.
 */
#ifndef LEAT_SCHED_POOL_H
#define LEAT_SCHED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy.h"

#define LEAT_POOL_CLASSES_MAX 8u

/* ---- What a budget buys ------------------------------------------------------------------------ */

struct leat_pool_class {
    uint64_t price;
    uint16_t count_max; /* as many can be had */
};

struct leat_pool_space {
    uint32_t class_count; /* 1..LEAT_POOL_CLASSES_MAX */
    uint32_t base;        /* a class */
    uint64_t budget;      /* what a mix may cost at most */
    struct leat_pool_class classes[LEAT_POOL_CLASSES_MAX];
};

struct leat_pool_mix {
    uint16_t count[LEAT_POOL_CLASSES_MAX]; /* by class; 0 from class_count on */
};

struct leat_pool_candidate {
    struct leat_pool_mix mix;
    uint64_t cost;
    double bound_qps; /* 0 until ranked */
    bool pruned;      /* leat_pool_search's */
};

/*
 * All mixes of at least one base that cost no more than the budget, those that leave money over too; in
 * lexicographic order of their counts, fewer first. *ret_count says how many. With candidates NULL they are only counted.
 * LEAT_ERR_INVALID: the space has no classes, too many, or no such base. LEAT_ERR_LIMIT: there are more than
 * candidates_max; what candidates then hold means nothing. Time: the number of mixes, at most candidates_max + 1.
 */
LEAT_MUST_CHECK enum leat_status leat_pool_enumerate(const struct leat_pool_space *space,
                                                     struct leat_pool_candidate *candidates, uint32_t candidates_max,
                                                     uint32_t *ret_count);

/* ---- What classes are good for ----------------------------------------------------------------- */

/*
 * Of one auxiliary class. Its small queries are those below the first size at which it misses the objective.
 */
struct leat_pool_auxiliary {
    uint32_t cut_items;     /* that first size; UINT32_MAX: there is none. For people: no bound depends on it */
    double small_share;     /* f: of all queries, 0..1 */
    double base_time_share; /* tau: of the time that all queries take the base, 0..1; below 1 where f is */
    double small_qps[LEAT_POOL_CLASSES_MAX]; /* Qa: a worker of each class, given this class's small queries only */
};

/*
 * A base worker serves base_qps (Qb) of queries as they come, and Qb+ = Qb * (1 - f) / (1 - tau) of those that are not
 * small. A caller who knows Qb+ instead sets tau = 1 - Qb * (1 - f) / Qb+. What no bound depends on may stay 0:
 * auxiliary[base], small_qps[base], and small_qps of classes with a larger small_share.
 */
struct leat_pool_rates {
    uint32_t class_count, base; /* as in the space */
    double base_qps;
    struct leat_pool_auxiliary auxiliary[LEAT_POOL_CLASSES_MAX];
};

struct leat_pool_size {
    uint32_t items;
    double weight; /* how many queries have it, or what share of them */
};

struct leat_pool_workload {
    leat_predict_fn predict; /* judges whether a size meets the objective; its worker_class is the class */
    leat_predict_fn mean;    /* how long a worker is busy, on average; NULL: as predicted */
    const void *profiles;
    uint16_t application;
    uint32_t variant;
    uint64_t objective_ns;
    const struct leat_pool_size *sizes; /* in any order */
    uint32_t size_count;
};

/*
 * Rates from predictions and a distribution of sizes. LEAT_ERR_INVALID: a space as above, no query at all, a size of 0
 * items, a weight below 0, a prediction of 0 (nothing is known), or a base that misses the objective at some size.
 */
LEAT_MUST_CHECK enum leat_status leat_pool_rates(const struct leat_pool_space *space,
                                                 const struct leat_pool_workload *workload,
                                                 struct leat_pool_rates *ret_rates);

/* ---- Bound, rank and choice -------------------------------------------------------------------- */

/*
 * Throughput that the mix is not expected to exceed, however queries are distributed (equation 15). All its auxiliaries
 * are taken to serve what the one with the largest small_share does; of equal ones, the first. Rates in their ranges.
 */
double leat_pool_bound(const struct leat_pool_rates *rates, const struct leat_pool_mix *mix);

/* Bounds and orders all candidates. LEAT_ERR_INVALID: a rate is out of its range, infinite or no number. */
LEAT_MUST_CHECK enum leat_status leat_pool_rank(const struct leat_pool_rates *rates,
                                                struct leat_pool_candidate *candidates, uint32_t count);

/*
 * The order alone, for bounds of the caller's own, none of them a NaN: the largest first; of equal ones the cheaper mix
 * first, then as enumerated.
 */
void leat_pool_sort(struct leat_pool_candidate *candidates, uint32_t count);

/*
 * The choice without measuring, of ranked candidates, at least one. If the first three have the same number of base
 * workers: the first. Otherwise, of the first ten, the one with the least sum of squared distances to the others, which is
 * the one nearest to their middle; of equal ones the first. Where there are fewer than three or ten, those.
 */
const struct leat_pool_candidate *leat_pool_select(const struct leat_pool_candidate *candidates, uint32_t count,
                                                   uint32_t base);

/* ---- Kairos+: the best mix, by measuring few --------------------------------------------------- */

/*
 * Asks for the mix with the largest bound that is left. A report removes what cannot be better: bounds that do not
 * exceed the incumbent, and mixes that have no more of any class than the one measured. Finds the best of all where
 * bounds hold and more workers never serve less; no mix is then measured whose bound is below the best.
 *
 *     leat_pool_search_init(&search, candidates, count);
 *     while ((candidate = leat_pool_search_next(&search)) != NULL) {
 *         leat_pool_search_report(&search, measure(&candidate->mix));
 *     }
 *
 * An evaluator may race a mix against search->best instead and stop as soon as it has lost: leat_pool_search_not_better.
 * If it wins, any rate that it reaches and the incumbent does not is a sound report, but a low one prunes little: racing
 * the losers and measuring the winners visits the same mixes as measuring all.
 */
struct leat_pool_search {
    struct leat_pool_candidate *candidates;
    uint32_t count; /* beyond it, no bound exceeds the incumbent */
    uint32_t at;    /* asked for, or to be looked at next */
    uint32_t measured;
    double best_qps;                        /* the incumbent's, as reported; 0 until there is one */
    const struct leat_pool_candidate *best; /* the incumbent; NULL: none served anything yet */
};

/* Ranked candidates; they stay the caller's and where they are. */
void leat_pool_search_init(struct leat_pool_search *search, struct leat_pool_candidate *candidates, uint32_t count);

/* The mix to measure, the same until it is reported; NULL: none is left, search->best is the best. */
const struct leat_pool_candidate *leat_pool_search_next(struct leat_pool_search *search);

/* The throughput, at least 0, of the mix that was asked for. It becomes the incumbent if it is above search->best_qps. */
void leat_pool_search_report(struct leat_pool_search *search, double qps);
void leat_pool_search_not_better(struct leat_pool_search *search);

#endif /* LEAT_SCHED_POOL_H */
