/* SPDX-License-Identifier: Apache-2.0 */
/*
 * J. Zhang et al., "Model-Switching: Dealing with Fluctuating Workloads in Machine-Learning-as-a-Service Systems", HotCloud
 * 2020, as RAMSIS (D. Mendoza et al., EuroSys 2024, section 7) compares with it: a table says which variant and largest
 * batch a rate of arrivals allows. O(variants + queries of the batch).
 */
#include "sched/batch.h"
#include "sched/policy_bind.h"

struct switching {
    struct leat_policy_lookup lookup;
    uint8_t variant_of[LEAT_SCHED_VARIANTS_MAX];
};

static enum leat_status
switching_init(void *state, const struct leat_selector_options *options)
{
    const struct leat_policy *policy = options->policy;
    struct switching *switching = state;

    if (policy == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector model_switching needs a policy: see 'leat policy generate'");
    }
    if (policy->kind != LEAT_POLICY_LOAD) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "selector model_switching needs a policy of kind load, not %s",
                         leat_policy_kind_text(policy->kind));
    }
    if (options->worker_count > LEAT_POLICY_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "policies are for %u workers at most, not %u", LEAT_POLICY_WORKERS_MAX,
                         options->worker_count);
    }
    if (leat_policy_bind(policy, options, switching->variant_of) == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the policy is for variants such as '%s', none of which is the application's",
                         leat_policy_variant(policy, 0)->name);
    }
    leat_policy_lookup_init(&switching->lookup, policy, options->worker_count);
    return LEAT_OK;
}

static bool
can_serve(const struct leat_select_input *input, uint32_t v)
{
    return v < input->variant_count && input->variants[v].ready &&
           leat_select_suits(input, &input->variants[v], &input->pending[0]);
}

static struct leat_selection
select_by_table(void *state, const struct leat_select_input *input)
{
    struct switching *switching = state;

    LEAT_ASSERT(input->pending_count >= 1);
    leat_policy_staff(&switching->lookup, input->worker_count);
    leat_policy_follow(&switching->lookup, input->rate_qps);
    const struct leat_policy_action action = leat_policy_action(&switching->lookup, 1, 1, 0);
    uint32_t chosen = switching->variant_of[action.variant];
    if (LEAT_UNLIKELY(!can_serve(input, chosen))) {
        chosen = input->variant_count;
        for (uint32_t v = 0; v < input->variant_count; v++) {
            if (can_serve(input, v) && (chosen == input->variant_count ||
                                        input->variants[v].accuracy_ppm < input->variants[chosen].accuracy_ppm)) {
                chosen = v;
            }
        }
        if (chosen == input->variant_count) {
            return (struct leat_selection){0};
        }
    }
    const struct leat_sched_variant *variant = &input->variants[chosen];
    const bool capped = action.items != LEAT_POLICY_ALL && action.items < variant->items_max;
    const struct leat_batch_prefix prefix =
        leat_batch_prefix(input, variant, capped ? action.items : variant->items_max);
    return (struct leat_selection){.variant = chosen, .queries = prefix.queries};
}

const struct leat_selector leat_selector_model_switching = {.name = "model_switching",
                                                            .when_idle = true,
                                                            .follows_policy = true,
                                                            .counts_workers = true,
                                                            .state_bytes = sizeof(struct switching),
                                                            .init = switching_init,
                                                            .select = select_by_table};
