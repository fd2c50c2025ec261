/* SPDX-License-Identifier: Apache-2.0 */
/* sched/route.h - what the routers share about workers and classes. Private to sched/. */
#ifndef LEAT_SCHED_ROUTE_H
#define LEAT_SCHED_ROUTE_H

#include "sched/policy.h"

static inline bool
leat_route_has_room(const struct leat_sched_worker *worker)
{
    return worker->outstanding < worker->depth;
}

/* It can start a batch at once. */
static inline bool
leat_route_is_idle(const struct leat_sched_worker *worker)
{
    return worker->outstanding == 0 && worker->depth > 0;
}

/* Until it can start another batch, as predicted; 0 when that is overdue. */
static inline uint64_t
leat_route_wait_ns(const struct leat_route_input *input, const struct leat_sched_worker *worker)
{
    return worker->outstanding > 0 && worker->free_at_ns > input->now_ns ? worker->free_at_ns - input->now_ns : 0;
}

/* By which classes are compared, the base being the least: the mean time of the largest query; UINT64_MAX if unknown. */
static inline uint64_t
leat_route_class_ns(const struct leat_route_input *input, uint32_t worker_class)
{
    const uint64_t mean_ns =
        input->mean(input->profiles, input->application, input->variant, (uint16_t)worker_class, input->items_max);
    return mean_ns > 0 ? mean_ns : UINT64_MAX;
}

#endif /* LEAT_SCHED_ROUTE_H */
