/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/reserve.h"

#define BUCKETS    LEAT_RESERVE_BUCKETS
#define LEAST_BITS 14u /* of LEAT_RESERVE_LEAST_NS */

_Static_assert(LEAT_RESERVE_LEAST_NS == UINT64_C(1) << LEAST_BITS, "the first bucket begins there");

/* Of a time of LEAT_RESERVE_LEAST_NS and more. */
static uint32_t
bucket_of(uint64_t over_ns)
{
    const uint32_t octave = 63u - (uint32_t)__builtin_clzll(over_ns);
    const uint32_t bucket = (octave - LEAST_BITS) * 4 + ((uint32_t)(over_ns >> (octave - 2)) & 3u);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The lowest bucket such that those from it on hold no more than may be. */
static void
settle(struct leat_reserve *reserve)
{
    const uint32_t may = (reserve->batches + LEAT_RESERVE_ONE_IN - 1) / LEAT_RESERVE_ONE_IN;
    uint32_t beyond = 0, bucket = BUCKETS;

    while (bucket > 0 && beyond + reserve->counts[bucket - 1] <= may) {
        beyond += reserve->counts[--bucket];
    }
    reserve->bucket = bucket;
}

void
leat_reserve_learn(struct leat_reserve *reserve, uint64_t took_ns, uint64_t predicted_ns, uint32_t spread_permille)
{
    const uint64_t permille = (uint64_t)spread_permille * LEAT_RESERVE_DEVIATIONS_PERMILLE / 1000;
    const uint64_t may_ns = predicted_ns + predicted_ns / 1000 * permille;
    const uint64_t over_ns = took_ns > may_ns ? took_ns - may_ns : 0;
    const uint32_t bucket = over_ns >= LEAT_RESERVE_LEAST_NS ? bucket_of(over_ns) + 1 : 0;

    reserve->batches++;
    if (bucket > 0) {
        reserve->counts[bucket - 1]++;
    }
    if (reserve->batches == LEAT_RESERVE_BATCHES) {
        reserve->batches /= 2;
        for (uint32_t b = 0; b < BUCKETS; b++) {
            reserve->counts[b] /= 2;
        }
    }
    if (bucket > reserve->bucket || reserve->batches % (LEAT_RESERVE_BATCHES / 32) == 0) {
        settle(reserve);
    }
}

/* Where the bucket begins. */
uint64_t
leat_reserve_ns(const struct leat_reserve *reserve, uint64_t objective_ns)
{
    const uint32_t bucket = reserve->bucket;
    const uint64_t wanted_ns = bucket == 0 ? 0 : (UINT64_C(4) + (bucket & 3u)) << (LEAST_BITS - 2 + bucket / 4);
    const uint64_t most_ns = objective_ns / LEAT_RESERVE_SHARE;
    return wanted_ns < most_ns ? wanted_ns : most_ns;
}
