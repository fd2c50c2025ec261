/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One variant for everything: the first that is ready and accurate enough, in the largest batch that keeps
 * every member inside its own deadline.
 */
#include "sched/policy.h"

/* The first ready variant that meets the floor and holds the query; -1 for none. */
static int
first_fitting(const struct leat_select_input *input)
{
    const struct leat_sched_query *first = &input->pending[0];
    for (uint32_t v = 0; v < input->variant_count; v++) {
        const struct leat_sched_variant *variant = &input->variants[v];
        if (variant->ready && variant->accuracy_ppm >= first->accuracy_floor_ppm &&
            variant->items_max >= first->items) {
            return (int)v;
        }
    }
    return -1;
}

static struct leat_selection
fixed_select(void *state, const struct leat_select_input *input)
{
    (void)state;
    const int chosen = first_fitting(input);
    if (chosen < 0) {
        return (struct leat_selection){0, 0};
    }
    const struct leat_sched_variant *variant = &input->variants[chosen];
    const uint64_t start_ns =
        input->worker->free_at_ns > input->now_ns ? input->worker->free_at_ns : input->now_ns;
    uint64_t earliest_ns = input->pending[0].deadline_ns;
    uint32_t items = input->pending[0].items;
    uint32_t queries = 1;

    while (queries < input->pending_count) {
        const struct leat_sched_query *next = &input->pending[queries];
        if (next->items > variant->items_max - items || next->accuracy_floor_ppm > variant->accuracy_ppm) {
            break;
        }
        const uint64_t deadline_ns = next->deadline_ns < earliest_ns ? next->deadline_ns : earliest_ns;
        if (deadline_ns != LEAT_NO_DEADLINE) {
            const uint64_t exec_ns = input->predict(input->profiles, input->application, (uint32_t)chosen,
                                                    input->worker->worker_class, items + next->items);
            if (start_ns + exec_ns > deadline_ns) {
                break; /* joining would make somebody late; alone, or with fewer, it may still be in time */
            }
        }
        earliest_ns = deadline_ns;
        items += next->items;
        queries++;
    }
    return (struct leat_selection){(uint32_t)chosen, queries};
}

const struct leat_selector leat_selector_fixed = {.name = "fixed", .select = fixed_select};
