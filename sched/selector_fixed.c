/* SPDX-License-Identifier: Apache-2.0 */
/* sched/selector_fixed.c - the first ready variant and the largest batch that harms nobody. */
#include "sched/batch.h"

static uint64_t
add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t
end_ns(const struct leat_select_input *input, uint32_t v, uint64_t start_ns, uint32_t items)
{
    return add_saturating(start_ns, input->predict(input->profiles, input->application, v, input->worker->worker_class, items));
}

/* A batch of the queries from `first` on: so many there is room for, so many of them harm nobody. */
struct batch {
    uint32_t room, queries;
    uint64_t end_ns; /* with these */
};

static struct batch
fill(const struct leat_select_input *input, uint32_t v, uint64_t start_ns, uint32_t first)
{
    const struct leat_sched_variant *variant = &input->variants[v];
    uint64_t tightest_ns = LEAT_NO_DEADLINE; /* of the chosen queries that alone would be in time */
    struct batch batch = {0};
    uint32_t items = 0;

    for (uint32_t k = first; k < input->pending_count; k++) {
        const struct leat_sched_query *query = &input->pending[k];
        LEAT_ASSERT(query->items >= 1);
        if (!leat_select_suits(input, variant, query) || query->items > variant->items_max - items) {
            break;
        }
        items += query->items;
        /* Its time alone matters only where it could bind. */
        if (query->deadline_ns < tightest_ns && end_ns(input, v, start_ns, query->items) <= query->deadline_ns) {
            tightest_ns = query->deadline_ns;
        }
        const uint64_t all_ns = end_ns(input, v, start_ns, items);
        batch.room++;
        if (batch.room == 1 || all_ns <= tightest_ns) { /* predictions may dip, so a later prefix may fit again */
            batch.queries = batch.room;
            batch.end_ns = all_ns;
        }
    }
    return batch;
}

/*
 * Does a batch that is kept small, for the oldest to be in time, make the next one, from `behind` on, late? The worker that it goes to is
 * taken to be free once a worker's share of this one is over.
 */
static bool
harms_next(const struct leat_select_input *input, uint32_t v, uint64_t start_ns, struct batch batch, uint32_t behind)
{
    const uint64_t next_ns = start_ns + (batch.end_ns - start_ns) / input->worker_count;
    const struct batch next = fill(input, v, next_ns, behind);

    return input->idle_count <= 1 && (next.queries < next.room || next.end_ns > input->pending[behind].deadline_ns);
}

/* From the oldest query behind `first` on from which a batch need not be kept small, if it has more queries then than this one. */
static struct leat_selection
give_up_oldest(const struct leat_select_input *input, uint32_t v, uint64_t start_ns, struct batch batch, uint32_t first)
{
    uint32_t kept_small = first, not = input->pending_count - 1; /* a batch from there */

    while (not - kept_small > 1) {
        const uint32_t middle = kept_small + (not - kept_small) / 2;
        const struct batch from = fill(input, v, start_ns, middle);
        if (from.queries < from.room) {
            kept_small = middle;
        } else {
            not = middle;
        }
    }
    const struct batch from = fill(input, v, start_ns, not);
    return from.queries > batch.queries ? (struct leat_selection){.variant = v, .queries = from.queries, .skip = not}
                                        : (struct leat_selection){.variant = v, .queries = batch.queries, .skip = first};
}

static struct leat_selection
select_batch(void *state, const struct leat_select_input *input)
{
    const struct leat_sched_query *oldest = &input->pending[0];
    uint32_t v = 0;

    (void)state;
    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    while (v < input->variant_count &&
           !(input->variants[v].ready && leat_select_suits(input, &input->variants[v], oldest))) {
        v++;
    }
    if (v == input->variant_count) {
        return (struct leat_selection){0};
    }

    const uint64_t free_ns = input->worker->free_at_ns, start_ns = free_ns > input->now_ns ? free_ns : input->now_ns;
    const uint32_t first = leat_batch_first_in_time(input, v);
    const struct batch batch = fill(input, v, start_ns, first);
    if (LEAT_UNLIKELY(batch.queries < batch.room) && harms_next(input, v, start_ns, batch, first + batch.queries)) {
        return give_up_oldest(input, v, start_ns, batch, first);
    }
    return (struct leat_selection){.variant = v, .queries = batch.queries, .skip = first};
}

const struct leat_selector leat_selector_fixed = {
    .name = "fixed",
    .state_bytes = 0,
    .init = NULL,
    .select = select_batch,
};
