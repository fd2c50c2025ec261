/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/batch.h"

#define SECOND_NS UINT64_C(1000000000)

__extension__ typedef unsigned __int128 wide;

void
leat_batch_limits(const struct leat_select_input *input, uint64_t objective_ns, uint32_t rate_qps,
                  uint32_t margin_percent, struct leat_batch_limits *ret_limits)
{
    const wide needed = (wide)margin_percent * rate_qps;

    LEAT_ASSERT(input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    for (uint32_t v = 0; v < input->variant_count; v++) {
        const uint32_t items_max = input->variants[v].items_max;
        uint32_t items = items_max < LEAT_BATCH_ITEMS_MAX ? items_max : LEAT_BATCH_ITEMS_MAX;
        for (; items > 0; items--) {
            const uint64_t batch_ns = leat_batch_predict_ns(input, v, items);
            const bool quick = objective_ns == 0 || batch_ns <= objective_ns / 2;
            if (quick && (wide)items * input->worker_count * (100 * SECOND_NS) >= needed * batch_ns) {
                break;
            }
        }
        ret_limits->largest[v] = (uint16_t)items;
        ret_limits->single_ns[v] = leat_batch_predict_ns(input, v, 1);
    }
}

struct leat_selection
leat_batch_of_late(const struct leat_select_input *input)
{
    const struct leat_sched_query *query = &input->pending[0];
    struct leat_selection best = {0};
    uint64_t best_ns = UINT64_MAX;

    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    for (uint32_t v = 0; v < input->variant_count; v++) {
        const struct leat_sched_variant *variant = &input->variants[v];
        if (!variant->ready || !leat_select_suits(input, variant, query)) {
            continue;
        }
        const uint64_t batch_ns = leat_batch_predict_ns(input, v, query->items);
        if (best.queries == 0 || batch_ns < best_ns) {
            best = (struct leat_selection){.variant = v, .queries = 1};
            best_ns = batch_ns;
        }
    }
    return best;
}

uint32_t
leat_batch_first_in_time(const struct leat_select_input *input, uint32_t variant)
{
    for (uint32_t k = 0; k < input->pending_count; k++) {
        const struct leat_sched_query *query = &input->pending[k];
        if (leat_batch_end_ns(input, variant, query->items) <= query->deadline_ns &&
            leat_select_suits(input, &input->variants[variant], query)) {
            return k;
        }
    }
    return 0;
}

uint32_t
leat_batch_within(const struct leat_select_input *input, struct leat_selection selection, uint64_t batch_ns)
{
    uint32_t queries = 1, items = input->pending[selection.skip].items;

    LEAT_ASSERT(selection.queries >= 1 && selection.skip + selection.queries <= input->pending_count);
    for (; queries < selection.queries; queries++) {
        items += input->pending[selection.skip + queries].items;
        if (leat_batch_predict_ns(input, selection.variant, items) > batch_ns) {
            break;
        }
    }
    return queries;
}
