/* SPDX-License-Identifier: Apache-2.0 */
/* First come, first served: the oldest query to an idle worker, else to the one that is free soonest. */
#include "sched/policy.h"

/* The worker with room that is free soonest, idle ones first, ties to the lowest number; -1 for none. */
static int
soonest_with_room(const struct leat_route_input *input)
{
    int best = -1;
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        if (worker->outstanding >= worker->depth) {
            continue;
        }
        if (worker->outstanding == 0) {
            return (int)w;
        }
        if (best < 0 || worker->free_at_ns < input->workers[best].free_at_ns) {
            best = (int)w;
        }
    }
    return best;
}

static uint32_t
fcfs_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state;
    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    const int worker = soonest_with_room(input);
    if (worker < 0) {
        return 0;
    }
    pairs[0] = (struct leat_route_pair){.query = 0, .worker = (uint32_t)worker};
    return 1; /* one at a time: how many queries join the batch is the selector's choice */
}

const struct leat_router leat_router_fcfs = {.name = "fcfs", .queues = true, .route = fcfs_route};
