/* SPDX-License-Identifier: Apache-2.0 */
/* sched/select.h - what the selectors and the dispatcher share about variants. Private to leat. */
#ifndef LEAT_SCHED_SELECT_H
#define LEAT_SCHED_SELECT_H

#include "sched/policy.h"

/* Does the variant serve queries whose sequences are that long? */
static inline bool
leat_select_holds(const struct leat_sched_variant *variant, const struct leat_sched_query *query)
{
    return query->length >= variant->length_min && query->length <= variant->length_max;
}

/* And is it large and accurate enough for the query? Whether it is ready is another question. */
static inline bool
leat_select_fits(const struct leat_sched_variant *variant, const struct leat_sched_query *query)
{
    return query->items <= variant->items_max && query->accuracy_floor_ppm <= variant->accuracy_ppm &&
           leat_select_holds(variant, query);
}

/* And cheap enough on the routed worker? `variant` is one of the input's. */
static inline bool
leat_select_suits(const struct leat_select_input *input, const struct leat_sched_variant *variant,
                  const struct leat_sched_query *query)
{
    return leat_select_fits(variant, query) &&
           (query->cost_cap_nano == 0 ||
            input->cost(input->profiles, input->application, (uint32_t)(variant - input->variants),
                        input->worker->worker_class, query->items) <= query->cost_cap_nano);
}

#endif /* LEAT_SCHED_SELECT_H */
