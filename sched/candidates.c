/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/candidates.h"

#include "sched/route.h"

void
leat_candidates_show(const struct leat_candidates_input *input, struct leat_sched_worker *ret_workers)
{
    struct leat_select_input select = *input->select;
    uint64_t ranks[LEAT_SCHED_WORKERS_MAX], best = UINT64_MAX;

    LEAT_ASSERT(input->worker_count <= LEAT_SCHED_WORKERS_MAX && select.pending_count >= 1);
    for (uint32_t w = 0; w < input->worker_count; w++) {
        ret_workers[w] = input->workers[w];
        if (!leat_route_has_room(&input->workers[w]) || (input->idle_only && !leat_route_is_idle(&input->workers[w]))) {
            ret_workers[w].depth = 0;
            continue;
        }
        select.worker = &input->workers[w];
        select.instances = &input->instances[(size_t)(input->at != NULL ? input->at[w] : w) * input->stride];
        ranks[w] = input->selector->rank_worker(input->selector_state, &select);
        best = ranks[w] < best ? ranks[w] : best;
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        if (ret_workers[w].depth > 0 && ranks[w] > best) {
            ret_workers[w].depth = 0;
        }
    }
}
