/* SPDX-License-Identifier: Apache-2.0 */
/* sched/select.h - what the selectors and the dispatcher share about variants. Private to leat. */
#ifndef LEAT_SCHED_SELECT_H
#define LEAT_SCHED_SELECT_H

#include "sched/policy.h"

/* Is the variant large, accurate and cheap enough for the query? Whether it is ready is another question. */
static inline bool
leat_select_suits(const struct leat_sched_variant *variant, const struct leat_sched_query *query)
{
    return query->items <= variant->items_max && query->accuracy_floor_ppm <= variant->accuracy_ppm &&
           (query->cost_cap_nano == 0 || (uint64_t)query->items * variant->cost_nano <= query->cost_cap_nano);
}

#endif /* LEAT_SCHED_SELECT_H */
