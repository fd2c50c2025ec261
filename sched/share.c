/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/share.h"

#include <stddef.h>

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
    share->demand_permille = share->demand_permille == 0 ? seen : (share->demand_permille + seen) / 2;
}

/* How the demands of flexible applications, not 0 in all, share how much of the workers. */
struct division {
    uint64_t demand_permille, divided_permille;
};

static uint64_t
part_permille(const struct division *division, const struct leat_share *share)
{
    return division->divided_permille * share->demand_permille / division->demand_permille;
}

static void
follow(struct leat_share *share, uint64_t part, uint32_t worker_count)
{
    const uint64_t in_force = share->workers * WORKER, to = larger(part, WORKER);
    const bool all = to == worker_count * WORKER && share->workers != worker_count;

    if (all || to > in_force + larger(in_force / 4, 3 * WORKER / 4) ||
        to + larger(in_force / 5, 3 * WORKER / 4) < in_force) {
        share->looks++;
    } else {
        share->looks = 0;
    }
    if (!share->busy || share->looks >= LEAT_SHARE_LOOKS) {
        share->looks = 0;
        share->workers = (uint32_t)((to + WORKER / 2) / WORKER);
        LEAT_ASSERT(share->workers >= 1 && share->workers <= worker_count);
    }
}

/* Has whoever has most beyond its part give one up, if they have more than there are; false: they have not. */
static bool
give_up(struct leat_share *const shares[], uint32_t count, const struct division *division, uint32_t worker_count)
{
    struct leat_share *richest = NULL;
    uint64_t sum = 0, most = 0;

    for (uint32_t s = 0; s < count; s++) {
        const uint64_t part = part_permille(division, shares[s]), in_force = shares[s]->workers * WORKER;
        if (shares[s]->busy && (part >= WORKER || shares[s]->workers > 1)) {
            sum += shares[s]->workers;
            if (in_force > part && in_force - part > most) {
                most = in_force - part;
                richest = shares[s];
            }
        }
    }
    if (sum <= worker_count) {
        return false;
    }
    LEAT_ASSERT(richest != NULL && richest->workers > 1); /* parts add up to all at most */
    richest->workers--;
    return true;
}

void
leat_share_divide(struct leat_share *const shares[], uint32_t count, uint64_t other_permille, uint32_t worker_count)
{
    const uint64_t all = worker_count * WORKER, other = other_permille;
    uint64_t flexible = 0;

    for (uint32_t s = 0; s < count; s++) {
        flexible += shares[s]->demand_permille;
    }
    const uint64_t left = all > other ? all - other : 0;
    const struct division division = {flexible, flexible > 0 ? larger(left, all * flexible / (flexible + other)) : left};
    for (uint32_t s = 0; s < count; s++) {
        if (shares[s]->demand_permille > 0) {
            follow(shares[s], part_permille(&division, shares[s]), worker_count);
        } else {
            shares[s]->looks = 0;
        }
        shares[s]->busy = shares[s]->demand_permille > 0;
    }
    while (flexible > 0 && give_up(shares, count, &division, worker_count)) {
    }
}
