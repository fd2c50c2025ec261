/* SPDX-License-Identifier: Apache-2.0 */
/* sched/selector_fixed.c - the first ready variant and the largest batch that harms nobody. O(queries). */
#include "sched/select.h"

static uint64_t
add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static struct leat_selection
select_batch(void *state, const struct leat_select_input *input)
{
    const struct leat_sched_query *first = &input->pending[0];
    struct leat_selection selection = {0};
    uint32_t v = 0;

    (void)state;
    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    while (v < input->variant_count &&
           !(input->variants[v].ready && leat_select_suits(input, &input->variants[v], first))) {
        v++;
    }
    if (v == input->variant_count) {
        return selection;
    }

    const struct leat_sched_variant *variant = &input->variants[v];
    const uint16_t worker_class = input->worker->worker_class;
    const uint64_t start_ns =
        input->worker->free_at_ns > input->now_ns ? input->worker->free_at_ns : input->now_ns;
    uint64_t tightest_ns = LEAT_NO_DEADLINE; /* of the chosen queries that alone would be in time */
    uint32_t items = 0;

    selection = (struct leat_selection){.variant = v, .queries = 1};
    for (uint32_t k = 0; k < input->pending_count; k++) {
        const struct leat_sched_query *query = &input->pending[k];
        LEAT_ASSERT(query->items >= 1);
        if (!leat_select_suits(input, variant, query) || query->items > variant->items_max - items) {
            break;
        }
        items += query->items;
        /* Its time alone matters only where it could bind. */
        if (query->deadline_ns < tightest_ns &&
            add_saturating(start_ns, input->predict(input->profiles, input->application, v,
                                                    worker_class, query->items)) <=
                query->deadline_ns) {
            tightest_ns = query->deadline_ns;
        }
        const uint64_t finish_ns = add_saturating(
            start_ns, input->predict(input->profiles, input->application, v, worker_class, items));
        if (finish_ns <= tightest_ns) {
            selection.queries = k + 1; /* predictions may dip, so a later prefix may fit again */
        }
    }
    return selection;
}

const struct leat_selector leat_selector_fixed = {
    .name = "fixed",
    .state_bytes = 0,
    .init = NULL,
    .select = select_batch,
};
