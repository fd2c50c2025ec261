/* SPDX-License-Identifier: Apache-2.0 */
/* Workers in turn, whatever they are doing; one without room loses its turn. */
#include "sched/policy.h"

struct round_robin {
    uint32_t next;
};

static uint32_t
round_robin_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs,
                  uint32_t pairs_max)
{
    struct round_robin *turn = state;

    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    uint32_t worker = turn->next < input->worker_count ? turn->next : 0;
    for (uint32_t tried = 0; tried < input->worker_count; tried++) {
        const uint32_t after = worker + 1 < input->worker_count ? worker + 1 : 0;
        if (input->workers[worker].outstanding < input->workers[worker].depth) {
            turn->next = after;
            pairs[0] = (struct leat_route_pair){.query = 0, .worker = worker};
            return 1;
        }
        worker = after;
    }
    return 0;
}

const struct leat_router leat_router_round_robin = {
    .name = "round_robin", .state_bytes = sizeof(struct round_robin), .queues = true, .route = round_robin_route};
