/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/profile.h - how long a batch takes: measured points first, then what completions teach.
 *
 * Role     One profile is one (variant, worker class): latency by number of items, at powers of two, linear
 *          in between. Every decision asks leat_profile_predict.
 * Bounds   Fixed memory. One completion moves a bucket by at most 1/16 of the bucket's own value upwards
 *          and 1/16 of the difference downwards, so one outlier, however large, changes little.
 * Units    Nanoseconds, items.
 * Threads  One writer; readers on the same thread.
 */
#ifndef LEAT_SCHED_PROFILE_H
#define LEAT_SCHED_PROFILE_H

#include <stdint.h>

#define LEAT_PROFILE_BUCKETS 17u /* 2^0 .. 2^16 items */

struct leat_profile {
    uint64_t high_ns[LEAT_PROFILE_BUCKETS]; /* about the 95th percentile; 0: nothing known */
    uint64_t mean_ns[LEAT_PROFILE_BUCKETS];
};

/* Sets the bucket that `items` falls into (rounded up to a power of two) to a measured value. */
void leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/* Learns from one completed batch of `items` (>= 1). Constant time. */
void leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/* Predicted high-percentile latency of a batch of `items` (>= 1); 0 when nothing at all is known. */
uint64_t leat_profile_predict(const struct leat_profile *profile, uint32_t items);

#endif /* LEAT_SCHED_PROFILE_H */
