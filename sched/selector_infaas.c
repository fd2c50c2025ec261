/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F. Romero et al., "INFaaS: Automated Model-less Inference Serving", ATC 2021, section 4.1: the cheapest variant that does,
 * but not where it is overloaded or disturbed while another does too. O(variants + queries of the batch).
 */
#include "sched/batch.h"
#include "sched/instance.h"

#define STEP_BIT 62

/* What is to be known of the variants before one is chosen. */
struct look {
    uint64_t end_ns[LEAT_SCHED_VARIANTS_MAX]; /* of query [0] alone */
    uint64_t overloaded_ns; /* the worker has no time for what ends then or later; UINT64_MAX: it has for all */
};

/* How good a variant is for the query; less is better, the first difference decides. */
struct rank {
    uint32_t step; /* of the three of section 4.1 */
    uint32_t cost_nano;
    uint64_t end_ns;
};

static void
look_at(const struct leat_select_input *input, struct look *look)
{
    look->overloaded_ns = UINT64_MAX;
    for (uint32_t v = 0; v < input->variant_count; v++) {
        if (input->variants[v].ready) {
            look->end_ns[v] = leat_batch_end_ns(input, v, input->pending[0].items);
            if (input->instances != NULL && input->instances[v].state == LEAT_INSTANCE_OVERLOADED &&
                look->end_ns[v] < look->overloaded_ns) {
                look->overloaded_ns = look->end_ns[v];
            }
        }
    }
}

static struct rank
rank_of(const struct leat_select_input *input, const struct look *look, uint32_t v)
{
    const bool has_time = look->end_ns[v] < look->overloaded_ns || look->overloaded_ns == UINT64_MAX;
    const bool active = input->instances == NULL || (input->instances[v].state == LEAT_INSTANCE_ACTIVE && has_time);
    const uint32_t step = look->end_ns[v] > input->pending[0].deadline_ns ? 2 : active ? 0 : 1;

    return (struct rank){
        .step = step, .cost_nano = step == 0 ? input->variants[v].cost_nano : 0, .end_ns = look->end_ns[v]};
}

static bool
is_better(const struct rank *a, const struct rank *b)
{
    if (a->step != b->step) {
        return a->step < b->step;
    }
    return a->cost_nano != b->cost_nano ? a->cost_nano < b->cost_nano : a->end_ns < b->end_ns;
}

/* How many queries the variant suits and ends in time. */
static uint32_t
count_in_time(const struct leat_select_input *input, uint32_t v)
{
    const struct leat_sched_variant *variant = &input->variants[v];
    uint64_t tightest_ns = input->pending[0].deadline_ns;
    uint32_t items = input->pending[0].items, count = 1;

    while (count < input->pending_count) {
        const struct leat_sched_query *query = &input->pending[count];
        if (!leat_select_suits(input, variant, query) || query->items > variant->items_max - items) {
            break;
        }
        items += query->items;
        tightest_ns = query->deadline_ns < tightest_ns ? query->deadline_ns : tightest_ns;
        if (leat_batch_end_ns(input, v, items) > tightest_ns) {
            break;
        }
        count++;
    }
    return count;
}

/* The variant for query [0], and its rank; variant_count: none suits. */
static uint32_t
choose(const struct leat_select_input *input, struct rank *ret_rank)
{
    struct look look;
    uint32_t chosen = input->variant_count;

    LEAT_ASSERT(input->pending_count >= 1 && input->variant_count <= LEAT_SCHED_VARIANTS_MAX);
    look_at(input, &look);
    for (uint32_t v = 0; v < input->variant_count; v++) {
        if (!input->variants[v].ready || !leat_select_suits(input, &input->variants[v], &input->pending[0])) {
            continue;
        }
        const struct rank rank = rank_of(input, &look, v);
        if (chosen == input->variant_count || is_better(&rank, ret_rank)) {
            *ret_rank = rank;
            chosen = v;
        }
    }
    return chosen;
}

static struct leat_selection
select_cheapest(void *state, const struct leat_select_input *input)
{
    struct rank best = {0};
    const uint32_t chosen = choose(input, &best);

    (void)state;
    if (chosen == input->variant_count) {
        return (struct leat_selection){0};
    }
    const struct leat_sched_variant *variant = &input->variants[chosen];
    const uint32_t queries = best.step < 2 ? count_in_time(input, chosen)
                                           : leat_batch_prefix(input, variant, variant->items_max).queries;
    return (struct leat_selection){.variant = chosen, .queries = queries};
}

/* The step in the upper bits. Where an active instance is in time, how soon is the router's to say. */
static uint64_t
rank_worker(void *state, const struct leat_select_input *input)
{
    const uint64_t most = (UINT64_C(1) << STEP_BIT) - 1;
    struct rank best = {0};

    (void)state;
    if (choose(input, &best) == input->variant_count) {
        return UINT64_MAX;
    }
    const uint64_t within = best.step == 0 ? best.cost_nano : best.end_ns;
    return (uint64_t)best.step << STEP_BIT | (within < most ? within : most);
}

const struct leat_selector leat_selector_infaas = {
    .name = "infaas", .follows_instances = true, .select = select_cheapest, .rank_worker = rank_worker};
