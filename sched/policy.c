/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/policy.h"

#include <string.h>

#include "base/align.h"

const struct leat_router *
leat_router_find(const char *name)
{
    static const struct leat_router *const routers[] = {&leat_router_fcfs, &leat_router_round_robin};
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
    return strcmp(leat_selector_fixed.name, name) == 0 ? &leat_selector_fixed : NULL;
}
