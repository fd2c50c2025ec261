/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/policy.h"

#include <string.h>

#include "base/align.h"

static const struct leat_router *const routers[] = {
    &leat_router_clockwork,
    &leat_router_dealt,
    &leat_router_edf,
    &leat_router_fcfs,
    &leat_router_laxity,
    &leat_router_matching,
    &leat_router_round_robin,
    &leat_router_shortest_queue,
    &leat_router_threshold,
};

static const struct leat_selector *const selectors[] = {
    &leat_selector_fixed,
    &leat_selector_greedy,
    &leat_selector_infaas,
    &leat_selector_jellyfish,
    &leat_selector_mdp,
    &leat_selector_model_switching,
    &leat_selector_single,
};

const struct leat_router *
leat_router_at(size_t index)
{
    return index < LEAT_COUNT_OF(routers) ? routers[index] : NULL;
}

const struct leat_selector *
leat_selector_at(size_t index)
{
    return index < LEAT_COUNT_OF(selectors) ? selectors[index] : NULL;
}

const struct leat_router *
leat_router_find(const char *name)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(routers); i++) {
        if (strcmp(routers[i]->name, name) == 0) {
            return routers[i];
        }
    }
    return NULL;
}

const struct leat_selector *
leat_selector_find(const char *name)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(selectors); i++) {
        if (strcmp(selectors[i]->name, name) == 0) {
            return selectors[i];
        }
    }
    return NULL;
}

const struct leat_router *
leat_router_default(uint32_t class_count)
{
    return leat_router_find(class_count > 1 ? LEAT_ROUTER_DEFAULT_MIXED : LEAT_ROUTER_DEFAULT);
}

const struct leat_selector *
leat_selector_default(uint32_t class_count, const struct leat_router *router, bool choice)
{
    if (choice && class_count == 1 && router == &leat_router_fcfs) {
        return &leat_selector_mdp;
    }
    return class_count > 1 && router->per_query ? &leat_selector_single : &leat_selector_fixed;
}
