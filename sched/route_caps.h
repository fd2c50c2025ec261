/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/route_caps.h - any router, for queries that some classes of workers are too dear for.
 *
 * Role     A router knows nothing of costs. It is shown one group of queries after the other, each with the same classes
 *          barred, the group of the oldest query first, and workers of those classes as busy for long, until it gives pairs.
 * Bounds   O((queries + workers) * groups) beside the router's own time; at most 2^LEAT_SCHED_CLASSES_MAX groups, and mostly two.
 * Not      For routers that deal: whose a query is must be settled before (sched/policy.h, ordinal).
 */
#ifndef LEAT_SCHED_ROUTE_CAPS_H
#define LEAT_SCHED_ROUTE_CAPS_H

#include "sched/policy.h"

/* What a router is shown; the caller's, of no interest between calls. */
struct leat_route_view {
    struct leat_sched_query pending[LEAT_SCHED_PENDING_MAX];
    uint16_t at[LEAT_SCHED_PENDING_MAX]; /* their places in all that wait */
    struct leat_sched_worker workers[LEAT_SCHED_WORKERS_MAX];
};

/* As router->route, but no pair has a worker of a class that is barred for its query. */
uint32_t leat_route_within_caps(const struct leat_router *router, void *state, const struct leat_route_input *input,
                                struct leat_route_view *view, struct leat_route_pair *pairs, uint32_t pairs_max);

#endif /* LEAT_SCHED_ROUTE_CAPS_H */
