/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/profile.h"

#include "base/status.h"

/* The bucket whose power of two is the smallest not below `items`: a batch runs in that plan. */
static uint32_t
bucket_of(uint32_t items)
{
    LEAT_ASSERT(items >= 1);
    const uint32_t bucket = items == 1 ? 0 : 32u - (uint32_t)__builtin_clz(items - 1);
    return bucket < LEAT_PROFILE_BUCKETS ? bucket : LEAT_PROFILE_BUCKETS - 1;
}

void
leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    const uint32_t bucket = bucket_of(items);
    profile->mean_ns[bucket] = profile->high_ns[bucket] = latency_ns > 0 ? latency_ns : 1;
}

void
leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    const uint32_t bucket = bucket_of(items);
    uint64_t *mean_ns = &profile->mean_ns[bucket];
    uint64_t *high_ns = &profile->high_ns[bucket];

    if (*high_ns == 0) {
        leat_profile_set(profile, items, latency_ns);
        return;
    }
    /* A stochastic quantile step: up 19 times as far as down, so it settles where 1 in 20 lies above. */
    const uint64_t capped_ns = latency_ns < 2 * *mean_ns ? latency_ns : 2 * *mean_ns;
    *mean_ns = *mean_ns - *mean_ns / 16 + capped_ns / 16;
    *mean_ns += *mean_ns == 0;
    const uint64_t step_ns = *mean_ns / 304 + 1; /* 19 steps are 1/16 of the mean */
    if (latency_ns > *high_ns) {
        *high_ns += 19 * step_ns;
    } else if (*high_ns > step_ns + *mean_ns) {
        *high_ns -= step_ns;
    }
}

uint64_t
leat_profile_predict(const struct leat_profile *profile, uint32_t items)
{
    const uint32_t bucket = bucket_of(items);
    if (profile->high_ns[bucket] != 0) {
        return profile->high_ns[bucket];
    }
    /* Nothing there yet: scale from the nearest known neighbours, linear between and beyond them. */
    uint32_t below = bucket, above = bucket;
    while (below > 0 && profile->high_ns[below] == 0) {
        below--;
    }
    while (above < LEAT_PROFILE_BUCKETS - 1 && profile->high_ns[above] == 0) {
        above++;
    }
    const uint64_t low_ns = profile->high_ns[below], high_ns = profile->high_ns[above];
    if (low_ns != 0 && high_ns != 0) {
        const uint64_t span = (UINT64_C(1) << above) - (UINT64_C(1) << below);
        const uint64_t at = (UINT64_C(1) << bucket) - (UINT64_C(1) << below);
        return high_ns > low_ns ? low_ns + (high_ns - low_ns) / span * at : low_ns;
    }
    if (low_ns != 0) {
        return low_ns << (bucket - below); /* pessimistic: proportional to items */
    }
    return high_ns; /* smaller batches take at most as long; 0 when nothing is known */
}
