/* SPDX-License-Identifier: Apache-2.0 */
/* First come, first served: the oldest query to an idle worker of the fastest class, else to the one free soonest. */
#include "sched/route.h"

/* What can take a query: the lowest-numbered idle worker of each class; of the busy ones with room the soonest free. */
struct choice {
    uint32_t idle_classes; /* bit by class */
    uint32_t idle[LEAT_SCHED_CLASSES_MAX];
    int soonest; /* -1: none */
};

static struct choice
look_around(const struct leat_route_input *input)
{
    struct choice choice = {.soonest = -1};
    for (uint32_t w = 0; w < input->worker_count; w++) {
        const struct leat_sched_worker *worker = &input->workers[w];
        if (!leat_route_has_room(worker)) {
            continue;
        }
        if (worker->outstanding > 0) {
            if (choice.soonest < 0 || worker->free_at_ns < input->workers[choice.soonest].free_at_ns) {
                choice.soonest = (int)w;
            }
            continue;
        }
        LEAT_ASSERT(worker->worker_class < LEAT_SCHED_CLASSES_MAX);
        const uint32_t bit = UINT32_C(1) << worker->worker_class;
        if ((choice.idle_classes & bit) == 0) {
            choice.idle_classes |= bit;
            choice.idle[worker->worker_class] = w;
        }
    }
    return choice;
}

/* At least one class has an idle worker. Classes are compared only where there is a choice. */
static uint32_t
fastest_idle(const struct leat_route_input *input, const struct choice *choice)
{
    uint32_t left = choice->idle_classes;
    uint32_t worker = choice->idle[__builtin_ctz(left)];
    if ((left & (left - 1)) == 0) {
        return worker;
    }
    for (uint64_t least_ns = UINT64_MAX; left != 0; left &= left - 1) {
        const uint32_t class = (uint32_t)__builtin_ctz(left);
        const uint64_t class_ns = leat_route_class_ns(input, class);
        if (class_ns < least_ns || (class_ns == least_ns && choice->idle[class] < worker)) {
            least_ns = class_ns;
            worker = choice->idle[class];
        }
    }
    return worker;
}

static uint32_t
fcfs_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    (void)state;
    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    const struct choice choice = look_around(input);
    if (choice.idle_classes == 0 && choice.soonest < 0) {
        return 0;
    }
    const uint32_t worker = choice.idle_classes != 0 ? fastest_idle(input, &choice) : (uint32_t)choice.soonest;
    pairs[0] = (struct leat_route_pair){.query = 0, .worker = worker};
    return 1; /* one at a time: how many queries join the batch is the selector's choice */
}

const struct leat_router leat_router_fcfs = {.name = "fcfs", .queues = true, .narrowed = true, .route = fcfs_route};
