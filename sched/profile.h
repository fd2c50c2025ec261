/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/profile.h - how long a batch takes: measured points first, then what completions teach.
 *
 * Role     One profile is one (variant, worker class); every decision asks leat_profile_predict. All zeroes is
 *          a profile that knows nothing.
 * Shape    A knot at every power of two of items: mean, 95th percentile and sample count. Between knots the
 *          curve is linear in items. Above the last known knot it goes on proportionally (time per item does
 *          not improve where nobody measured); below the first it stays at the first knot's time.
 * Learning A batch's time adjusts the two knots around its size, each by its share. The mean is an EWMA with
 *          weight 1/16, each step bounded by 1/16 of the mean. The high quantile moves by sign steps, up
 *          19 times as far as down, so it settles where 1 in 20 lies above; no samples are kept.
 * Bounds   Once anything is known, one sample, however wild, raises mean and high each by at most 1/16 of
 *          its value (high: 1/8 in a knot's first 64 samples). The first sample of an empty profile
 *          is taken as it is. Fixed memory, constant time, no division by a variable but for the first sample.
 * Numerics Integers only: equal inputs give equal predictions on every host.
 * Units    Nanoseconds, items.
 * Threads  One writer; readers on the same thread.
 */
#ifndef LEAT_SCHED_PROFILE_H
#define LEAT_SCHED_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_PROFILE_BUCKETS 17u                 /* 2^0 .. 2^16 items */
#define LEAT_PROFILE_NS_MAX  (UINT64_C(1) << 48) /* three days; what took longer counts as this */

struct leat_profile_knot {
    uint64_t mean; /* 1/256 ns, so small steps of small times do not vanish */
    uint64_t high;
    uint64_t samples; /* learned, not set */
};

struct leat_profile {
    uint32_t known; /* bit b: knots[b] has a value */
    struct leat_profile_knot knots[LEAT_PROFILE_BUCKETS];
};

/* What is known at one size. */
struct leat_profile_point {
    uint64_t mean_ns;
    uint64_t high_ns;
    uint64_t samples;
};

/* A measured time replaces what is known at `items` (1..LEAT_ITEMS_MAX): its knot, or the two around it. */
void leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/* The same with mean and 95th percentile apart. high_ns >= mean_ns. */
void leat_profile_set_point(struct leat_profile *profile, uint32_t items, uint64_t mean_ns, uint64_t high_ns);

/* Learns from one completed batch of `items`. */
void leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/*
 * Predicted 95th percentile of a batch of `items`; 0 when nothing at all is known: an untried variant
 * looks free, is tried, and is known after one batch.
 */
uint64_t leat_profile_predict(const struct leat_profile *profile, uint32_t items);

/* False, and *point zero, when nothing at all is known. */
bool leat_profile_read(const struct leat_profile *profile, uint32_t items, struct leat_profile_point *point);

#endif /* LEAT_SCHED_PROFILE_H */
