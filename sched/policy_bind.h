/* SPDX-License-Identifier: Apache-2.0 */
/* sched/policy_bind.h - which variant of an application a policy means. Private to sched/. */
#ifndef LEAT_SCHED_POLICY_BIND_H
#define LEAT_SCHED_POLICY_BIND_H

#include <string.h>

#include "sched/policy.h"
#include "sched/policy_table.h"

#define LEAT_POLICY_NOBODY 255u /* no variant of the application */
_Static_assert(LEAT_SCHED_VARIANTS_MAX < LEAT_POLICY_NOBODY, "variants fit a byte");

/* By number of the policy, the application's variant of that name: u8[LEAT_SCHED_VARIANTS_MAX]. Returns how many it has. */
static inline uint32_t
leat_policy_bind(const struct leat_policy *policy, const struct leat_selector_options *options, uint8_t *ret_variant_of)
{
    uint32_t bound = 0;

    for (uint32_t p = 0; p < policy->variant_count; p++) {
        uint32_t v = 0;
        if (options->variant_names == NULL) {
            v = p;
        } else {
            while (v < options->variant_count &&
                   strcmp(options->variant_names[v], leat_policy_variant(policy, p)->name) != 0) {
                v++;
            }
            v = v < options->variant_count ? v : LEAT_POLICY_NOBODY;
        }
        ret_variant_of[p] = (uint8_t)v;
        bound += v != LEAT_POLICY_NOBODY;
    }
    return bound;
}

#endif /* LEAT_SCHED_POLICY_BIND_H */
