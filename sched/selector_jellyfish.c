/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V. Nigade et al., "Jellyfish: Timely Inference Serving for Dynamic Edge Networks", RTSS 2022, as RAMSIS (D. Mendoza et
 * al., EuroSys 2024, section 7) compares with it and its published code does: one variant and largest batch for each
 * load, whatever waits and whatever its slack. A decision is O(variants + queries of the batch).
 */
#include "sched/batch.h"

#define MARGIN_PERCENT 105u  /* in that code, not in the paper */
#define REUSES_MAX     4096u /* predictions are learned, so what follows from them is not for ever */

/* What holds for one class of workers while the load is on one rung. */
struct level {
    uint32_t from_qps, span_qps; /* the rates that are on the rung */
    uint32_t worker_count, variant_count;
    uint32_t reuses; /* left; 0: compute anew */
    struct leat_batch_limits limits;
};

struct jellyfish {
    uint64_t objective_ns;
    uint32_t step_qps;
    struct level levels[LEAT_SCHED_CLASSES_MAX];
};

static enum leat_status
jellyfish_init(void *state, const struct leat_selector_options *options)
{
    struct jellyfish *jellyfish = state;

    jellyfish->objective_ns = options->objective_ns;
    jellyfish->step_qps = options->rate_step_qps > 0 ? options->rate_step_qps : LEAT_SELECTOR_RATE_STEP_QPS;
    return LEAT_OK;
}

static const struct leat_batch_limits *
look_up(struct jellyfish *jellyfish, const struct leat_select_input *input)
{
    LEAT_ASSERT(input->worker->worker_class < LEAT_SCHED_CLASSES_MAX);
    struct level *level = &jellyfish->levels[input->worker->worker_class];

    if (LEAT_LIKELY(level->reuses > 0 && input->rate_qps - level->from_qps <= level->span_qps &&
                    level->worker_count == input->worker_count && level->variant_count == input->variant_count)) {
        level->reuses--;
        return &level->limits;
    }
    const uint32_t step_qps = jellyfish->step_qps, below = input->rate_qps > 0 ? (input->rate_qps - 1) / step_qps : 0;
    const uint64_t top_qps = (uint64_t)(below + 1) * step_qps;
    const uint32_t rung_qps = top_qps < UINT32_MAX ? (uint32_t)top_qps : UINT32_MAX;

    level->from_qps = below > 0 ? below * step_qps + 1 : 0;
    level->span_qps = rung_qps - level->from_qps;
    level->worker_count = input->worker_count;
    level->variant_count = input->variant_count;
    level->reuses = REUSES_MAX;
    leat_batch_limits(input, jellyfish->objective_ns, rung_qps, MARGIN_PERCENT, &level->limits);
    return &level->limits;
}

static struct leat_selection
select_by_load(void *state, const struct leat_select_input *input)
{
    const struct leat_batch_limits *limits = look_up(state, input);
    const struct leat_sched_variant *variants = input->variants;
    uint32_t best = input->variant_count, fastest = input->variant_count; /* none */

    LEAT_ASSERT(input->pending_count >= 1);
    const uint32_t items = input->pending[0].items, least = items < LEAT_BATCH_ITEMS_MAX ? items : LEAT_BATCH_ITEMS_MAX;
    for (uint32_t v = 0; v < input->variant_count; v++) {
        if (!variants[v].ready || !leat_select_suits(input, &variants[v], &input->pending[0])) {
            continue;
        }
        if (limits->largest[v] >= least && /* a larger batch would not keep up */
            (best == input->variant_count || variants[v].accuracy_ppm > variants[best].accuracy_ppm)) {
            best = v;
        }
        if (fastest == input->variant_count || limits->single_ns[v] < limits->single_ns[fastest]) {
            fastest = v;
        }
    }
    if (fastest == input->variant_count) {
        return (struct leat_selection){0};
    }
    const uint32_t chosen = best < input->variant_count ? best : fastest;
    const uint32_t items_max = best < input->variant_count ? limits->largest[chosen] : variants[chosen].items_max;
    const struct leat_batch_prefix prefix = leat_batch_prefix(input, &variants[chosen], items_max);
    return (struct leat_selection){.variant = chosen, .queries = prefix.queries};
}

const struct leat_selector leat_selector_jellyfish = {
    .name = "jellyfish", .when_idle = true, .counts_workers = true, .state_bytes = sizeof(struct jellyfish), .init = jellyfish_init,
    .select = select_by_load};
