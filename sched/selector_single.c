/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One query a batch, as in B. Li et al., "Kairos: Building Cost-Efficient Machine Learning Inference Systems with
 * Heterogeneous Cloud Resources", HPDC 2023: a query is a batch of its own there. O(variants + queries).
 */
#include "sched/batch.h"

static struct leat_selection
select_one(void *state, const struct leat_select_input *input)
{
    const struct leat_sched_query *query = &input->pending[0];

    (void)state;
    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    for (uint32_t v = 0; v < input->variant_count; v++) {
        const struct leat_sched_variant *variant = &input->variants[v];
        if (variant->ready && leat_select_suits(input, variant, query)) {
            return (struct leat_selection){.variant = v, .queries = 1, .skip = leat_batch_first_in_time(input, v)};
        }
    }
    return (struct leat_selection){0};
}

const struct leat_selector leat_selector_single = {.name = "single", .single = true, .select = select_one};
