/* SPDX-License-Identifier: Apache-2.0 */
/* Dealt like cards: each query has its worker before anyone looks at how busy that is. */
#include "sched/route.h"

__extension__ typedef unsigned __int128 wide;

/* x % y without a division, given UINT64_MAX / y + 1 (D. Lemire, O. Kaser, N. Kurz, "Faster remainder", 2019). */
static uint32_t
remainder_of(uint32_t x, uint32_t y, uint64_t inverse)
{
    return (uint32_t)((wide)(inverse * x) * y >> 64);
}

static uint32_t
dealt_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    uint32_t oldest[LEAT_SCHED_WORKERS_MAX]; /* of an idle worker's own; pending_count: none */
    uint32_t looking = 0, count = 0;

    (void)state;
    LEAT_ASSERT(input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        oldest[w] = input->pending_count;
        looking += leat_route_is_idle(&input->workers[w]);
    }
    const uint64_t inverse = looking > 0 ? UINT64_MAX / input->worker_count + 1 : 0;
    for (uint32_t q = 0; q < input->pending_count && looking > 0; q++) {
        const uint32_t owner = remainder_of(input->pending[q].ordinal, input->worker_count, inverse);
        if (oldest[owner] == input->pending_count && leat_route_is_idle(&input->workers[owner])) {
            oldest[owner] = q;
            looking--;
        }
    }
    for (uint32_t w = 0; w < input->worker_count && count < pairs_max; w++) {
        if (oldest[w] < input->pending_count) {
            pairs[count++] = (struct leat_route_pair){.query = oldest[w], .worker = w};
        }
    }
    return count;
}

const struct leat_router leat_router_dealt = {.name = "dealt", .deals = true, .route = dealt_route};
