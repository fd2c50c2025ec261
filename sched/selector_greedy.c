/* SPDX-License-Identifier: Apache-2.0 */
/* The most accurate variant that is in time for what waits now, as if nothing more came. O(variants * queries). */
#include "sched/batch.h"

static struct leat_selection
select_greedily(void *state, const struct leat_select_input *input)
{
    const struct leat_sched_variant *variants = input->variants;
    struct leat_selection best = {0}, fastest = {0}; /* none */
    uint64_t fastest_ns = UINT64_MAX;

    (void)state;
    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    for (uint32_t v = 0; v < input->variant_count; v++) {
        if (!variants[v].ready || !leat_select_suits(input, &variants[v], &input->pending[0]) ||
            (best.queries > 0 && variants[v].accuracy_ppm <= variants[best.variant].accuracy_ppm)) {
            continue;
        }
        const struct leat_batch_prefix prefix = leat_batch_prefix(input, &variants[v], variants[v].items_max);
        const struct leat_selection selection = {.variant = v, .queries = prefix.queries};
        if (leat_batch_end_ns(input, v, prefix.items) <= input->pending[0].deadline_ns) {
            best = selection;
        } else if (best.queries == 0) {
            const uint64_t single_ns = leat_batch_predict_ns(input, v, 1);
            if (fastest.queries == 0 || single_ns < fastest_ns) {
                fastest = selection;
                fastest_ns = single_ns;
            }
        }
    }
    return best.queries > 0 ? best : fastest;
}

const struct leat_selector leat_selector_greedy = {.name = "greedy", .when_idle = true, .select = select_greedily};
