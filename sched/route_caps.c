/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/route_caps.h"

#define FAR_NS (UINT64_C(1) << 60)

/* The queries from the `first` on that are barred from the same classes as that one. */
static struct leat_route_input
show_group(const struct leat_route_input *input, uint32_t first, struct leat_route_view *view)
{
    const uint32_t barred = input->pending[first].barred_classes;
    struct leat_route_input shown = *input;

    shown.pending_count = 0;
    for (uint32_t q = first; q < input->pending_count; q++) {
        if (input->pending[q].barred_classes == barred) {
            view->pending[shown.pending_count] = input->pending[q];
            view->at[shown.pending_count++] = (uint16_t)q;
        }
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        struct leat_sched_worker *worker = &view->workers[w];
        *worker = input->workers[w];
        if ((barred >> worker->worker_class & 1) != 0) {
            worker->outstanding = worker->depth;
            worker->free_at_ns = input->now_ns + FAR_NS;
        }
    }
    shown.pending = view->pending;
    shown.workers = view->workers;
    return shown;
}

uint32_t
leat_route_within_caps(const struct leat_router *router, void *state, const struct leat_route_input *input,
                       struct leat_route_view *view, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    uint64_t shown[(1u << LEAT_SCHED_CLASSES_MAX) / 64] = {0}; /* bit by barred_classes */

    LEAT_ASSERT(input->pending_count <= LEAT_SCHED_PENDING_MAX && input->worker_count <= LEAT_SCHED_WORKERS_MAX);
    for (uint32_t q = 0; q < input->pending_count; q++) {
        const uint32_t barred = input->pending[q].barred_classes;
        if ((shown[barred / 64] >> barred % 64 & 1) != 0) {
            continue;
        }
        shown[barred / 64] |= UINT64_C(1) << barred % 64;
        const struct leat_route_input group = show_group(input, q, view);
        const uint32_t count = router->route(state, &group, pairs, pairs_max);
        for (uint32_t p = 0; p < count; p++) {
            LEAT_ASSERT(pairs[p].query < group.pending_count);
            pairs[p].query = view->at[pairs[p].query];
        }
        if (count > 0) {
            return count;
        }
    }
    return 0;
}
