/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/share.h"

#include "base/status.h"

#define WORKER UINT64_C(1000)

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void
leat_share_look(struct leat_share *share, uint64_t seen_permille)
{
    const uint64_t seen = seen_permille < LEAT_SHARE_DEMAND_MAX ? seen_permille : LEAT_SHARE_DEMAND_MAX;
    share->demand_permille = (share->demand_permille + seen) / 2;
}

uint64_t
leat_share_part_permille(const struct leat_share *share, const struct leat_share_sums *sums, uint32_t worker_count)
{
    const uint64_t all = worker_count * WORKER, flexible = sums->flexible_permille, other = sums->other_permille;

    LEAT_ASSERT(share->demand_permille <= flexible);
    if (share->demand_permille == 0) {
        return 0;
    }
    const uint64_t left = all > other ? all - other : 0;
    const uint64_t divided = larger(left, all * flexible / (flexible + other));
    return larger(divided * share->demand_permille / flexible, WORKER);
}

bool
leat_share_follow(struct leat_share *share, uint64_t part_permille, uint32_t worker_count)
{
    const uint64_t in_force = share->workers * WORKER;
    const bool all = part_permille == worker_count * WORKER && share->workers != worker_count;

    if (part_permille != 0 && (all || part_permille > in_force + larger(in_force / 4, 3 * WORKER / 4) ||
                               part_permille + larger(in_force / 5, 3 * WORKER / 4) < in_force)) {
        share->looks++;
    } else {
        share->looks = 0;
    }
    if (share->looks < LEAT_SHARE_LOOKS) {
        return false;
    }
    share->looks = 0;
    share->workers = (uint32_t)((part_permille + WORKER / 2) / WORKER);
    LEAT_ASSERT(share->workers >= 1 && share->workers <= worker_count);
    return true;
}
