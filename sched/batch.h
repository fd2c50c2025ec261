/* SPDX-License-Identifier: Apache-2.0 */
/* sched/batch.h - what the selectors share about batches. Private to leat. */
#ifndef LEAT_SCHED_BATCH_H
#define LEAT_SCHED_BATCH_H

#include "sched/select.h"

struct leat_batch_prefix {
    uint32_t queries;
    uint32_t items;
};

/* The longest prefix of what waits that the variant can hold, the first query in any case, of at most items_max items. */
static inline struct leat_batch_prefix
leat_batch_prefix(const struct leat_select_input *input, const struct leat_sched_variant *variant, uint32_t items_max)
{
    struct leat_batch_prefix prefix = {.queries = 1, .items = input->pending[0].items};
    for (; prefix.queries < input->pending_count; prefix.queries++) {
        const struct leat_sched_query *query = &input->pending[prefix.queries];
        if (!leat_select_suits(input, variant, query) || prefix.items >= items_max ||
            query->items > items_max - prefix.items) {
            break;
        }
        prefix.items += query->items;
    }
    return prefix;
}

static inline uint64_t
leat_batch_predict_ns(const struct leat_select_input *input, uint32_t variant, uint32_t items)
{
    return input->predict(input->profiles, input->application, variant, input->worker->worker_class, items);
}

/* When a batch that is dispatched now is predicted to end. */
static inline uint64_t
leat_batch_end_ns(const struct leat_select_input *input, uint32_t variant, uint32_t items)
{
    const uint64_t start_ns = input->worker->free_at_ns > input->now_ns ? input->worker->free_at_ns : input->now_ns;
    uint64_t end_ns;
    return __builtin_add_overflow(start_ns, leat_batch_predict_ns(input, variant, items), &end_ns) ? UINT64_MAX : end_ns;
}

/* ---- What keeps up ----------------------------------------------------------------------------- */

#define LEAT_BATCH_ITEMS_MAX 256u /* items; larger batches are not looked at */

/* By variant, on workers of one class at one rate. */
struct leat_batch_limits {
    uint64_t single_ns[LEAT_SCHED_VARIANTS_MAX]; /* of one item */
    uint16_t largest[LEAT_SCHED_VARIANTS_MAX];   /* items of the largest batch that keeps up and is quick enough; 0: none */
};

/*
 * A batch of b items keeps up if b / its time >= margin_percent / 100 * rate / workers, and is quick enough if twice its
 * time is no more than the objective. Larger batches may do where smaller ones do not. O(all items_max, each at most
 * LEAT_BATCH_ITEMS_MAX), by predictions.
 */
void leat_batch_limits(const struct leat_select_input *input, uint64_t objective_ns, uint32_t rate_qps,
                       uint32_t margin_percent, struct leat_batch_limits *ret_limits);

/* ---- What is late already ----------------------------------------------------------------------- */

/*
 * The first query alone, in the variant that ends soonest, for selectors that weigh accuracy against being in time: whoever
 * comes next and still has time is to wait no longer for it than needs be. None where nothing suits. O(variants).
 */
struct leat_selection leat_batch_of_late(const struct leat_select_input *input);

/* The place of the oldest query that alone would be in time in the variant; 0, the oldest of all, where none would. O(queries). */
uint32_t leat_batch_first_in_time(const struct leat_select_input *input, uint32_t variant);

/*
 * How many queries of the selection make a batch that is predicted to take no more than batch_ns, from its first on: one at
 * least. input: what it was selected from. O(queries), by predictions.
 */
uint32_t leat_batch_within(const struct leat_select_input *input, struct leat_selection selection, uint64_t batch_ns);

#endif /* LEAT_SCHED_BATCH_H */
