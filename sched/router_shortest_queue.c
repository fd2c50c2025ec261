/* SPDX-License-Identifier: Apache-2.0 */
/* Join the shortest queue: the oldest query to the worker with the fewest batches outstanding. */
#include "sched/route.h"

static uint32_t
shortest_queue_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    int best = -1;

    (void)state;
    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        if (!leat_route_has_room(worker)) {
            continue;
        }
        if (best < 0 || worker->outstanding < input->workers[best].outstanding ||
            (worker->outstanding == input->workers[best].outstanding &&
             leat_route_wait_ns(input, worker) < leat_route_wait_ns(input, &input->workers[best]))) {
            best = (int)w;
        }
    }
    if (best < 0) {
        return 0;
    }
    pairs[0] = (struct leat_route_pair){.query = 0, .worker = (uint32_t)best};
    return 1; /* one at a time: how many queries join the batch is the selector's choice */
}

const struct leat_router leat_router_shortest_queue = {
    .name = "shortest_queue", .queues = true, .narrowed = true, .route = shortest_queue_route};
