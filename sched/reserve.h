/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/reserve.h - how much of the time to a deadline is to be kept in reserve, for batches that take longer than predicted.
 *
 * Role      A policy that packs batches up to the deadline has to know how late they end when the machine stands still, which
 *           no profile of usual times says. Whoever starts batches tells how far over its predicted end each one ended; a
 *           selector that plans to the deadline plans to the reserve before it.
 * Reserve   The least time that no more than one in LEAT_RESERVE_ONE_IN batches, rounded up, ended later by, of those told lately: of the
 *           last LEAT_RESERVE_BATCHES / 2 to LEAT_RESERVE_BATCHES, older ones counting half, then a quarter and so on. It is known to
 *           a quarter, upwards, from LEAT_RESERVE_LEAST_NS on; what is less is none.
 * Spread    A policy that was made for times that spread keeps such batches from being late itself: what they may take is then
 *           LEAT_RESERVE_DEVIATIONS_PERMILLE of the standard deviation more, which of a normal distribution one in
 *           LEAT_RESERVE_ONE_IN exceeds. What stalls is beyond that.
 * Numerics  Integers: equal inputs, equal answers on every host.
 * Cost      O(1) a batch; O(buckets) where it ends later than the reserve, and every LEAT_RESERVE_BATCHES / 32 batches.
 * Threads   One owner.
 */
#ifndef LEAT_SCHED_RESERVE_H
#define LEAT_SCHED_RESERVE_H

#include <stdint.h>

#define LEAT_RESERVE_ONE_IN   256u
#define LEAT_RESERVE_BATCHES  8192u
#define LEAT_RESERVE_BUCKETS  64u
#define LEAT_RESERVE_SHARE    8u
#define LEAT_RESERVE_DEVIATIONS_PERMILLE 2660u
#define LEAT_RESERVE_LEAST_NS (UINT64_C(1) << 14)

struct leat_reserve {
    uint32_t batches;                      /* told, as far as they still count */
    uint32_t counts[LEAT_RESERVE_BUCKETS]; /* of these, by how far over they ended: four to an octave, the last open */
    uint32_t bucket;                       /* the reserve covers those below it */
};

/*
 * All zeroes is one that was told nothing. Of a batch: how long it took, and how long on average by prediction, below 2^48; how far such
 * times spread, as the policy has it: standard deviation over mean, at most LEAT_POLICY_SPREAD_MAX_PERMILLE.
 */
void leat_reserve_learn(struct leat_reserve *reserve, uint64_t took_ns, uint64_t predicted_ns, uint32_t spread_permille);

/* No more than objective_ns / LEAT_RESERVE_SHARE. */
uint64_t leat_reserve_ns(const struct leat_reserve *reserve, uint64_t objective_ns);

#endif /* LEAT_SCHED_RESERVE_H */
