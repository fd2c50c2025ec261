/* SPDX-License-Identifier: Apache-2.0 */
/* A size decides the side: large queries to the base class, the others to the auxiliaries, each in order of arrival. */
#include "sched/route.h"

struct threshold {
    uint32_t items; /* 0: half of items_max */
};

static enum leat_status
threshold_init(void *state, const struct leat_router_options *options)
{
    struct threshold *threshold = state;
    threshold->items = options->threshold_items;
    return LEAT_OK;
}

/* Classes that have workers, the fastest first; returns how many. */
static uint32_t
order_classes(const struct leat_route_input *input, uint32_t *order)
{
    uint64_t class_ns[LEAT_SCHED_CLASSES_MAX];
    uint32_t mask = 0, count = 0;

    for (uint32_t w = 0; w < input->worker_count; w++) {
        if (input->workers[w].depth > 0) {
            LEAT_ASSERT(input->workers[w].worker_class < LEAT_SCHED_CLASSES_MAX);
            mask |= UINT32_C(1) << input->workers[w].worker_class;
        }
    }
    for (; mask != 0; mask &= mask - 1, count++) {
        const uint32_t class = (uint32_t)__builtin_ctz(mask);
        uint32_t at = count;
        class_ns[class] = leat_route_class_ns(input, class);
        while (at > 0 && class_ns[order[at - 1]] > class_ns[class]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = class;
    }
    return count;
}

/* One side's idle workers, class after class, each from the lowest number up. */
struct side {
    const uint32_t *order;
    uint32_t left; /* classes in it, the one that is being used first */
    uint32_t next; /* worker to look at */
};

/* -1: none is left, and there will be none. */
static int
take_idle(const struct leat_route_input *input, struct side *side)
{
    for (; side->left > 0; side->left--, side->order++, side->next = 0) {
        while (side->next < input->worker_count) {
            const uint32_t w = side->next++;
            if (input->workers[w].worker_class == *side->order && leat_route_is_idle(&input->workers[w])) {
                return (int)w;
            }
        }
    }
    return -1;
}

static uint32_t
threshold_route(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs, uint32_t pairs_max)
{
    const struct threshold *threshold = state;
    const uint32_t items = threshold->items > 0 ? threshold->items : input->items_max / 2;
    uint32_t order[LEAT_SCHED_CLASSES_MAX], count = 0;

    if (input->pending_count == 0 || pairs_max == 0) {
        return 0;
    }
    const uint32_t classes = order_classes(input, order);
    if (classes <= 1) {
        return leat_router_fcfs.route(NULL, input, pairs, pairs_max);
    }
    const uint32_t base_bit = UINT32_C(1) << order[0];
    uint32_t present = 0;
    for (uint32_t c = 0; c < classes; c++) {
        present |= UINT32_C(1) << order[c];
    }
    struct side base = {.order = order, .left = 1}, auxiliary = {.order = order + 1, .left = classes - 1};
    for (uint32_t i = 0; i < input->pending_count && count < pairs_max && (base.left > 0 || auxiliary.left > 0); i++) {
        const uint32_t allowed = ~input->pending[i].barred_classes & present;
        const bool large = (allowed & ~base_bit) == 0 || (input->pending[i].items > items && (allowed & base_bit) != 0);
        const int worker = take_idle(input, large ? &base : &auxiliary);
        if (worker >= 0) {
            pairs[count++] = (struct leat_route_pair){.query = i, .worker = (uint32_t)worker};
        }
    }
    return count;
}

const struct leat_router leat_router_threshold = {.name = "threshold",
                                                  .state_bytes = sizeof(struct threshold),
                                                  .per_query = true,
                                                  .init = threshold_init,
                                                  .route = threshold_route};
