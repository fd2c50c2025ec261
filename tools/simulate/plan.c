/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/plan.h"

#include <stdlib.h>

#include "base/status.h"
#include "tools/simulate/parallel.h"

#define BLOCK          32u   /* candidates raced at one incumbent */
#define KEEPS_UP       0.97  /* of the incumbent's rate: within what a brief workload can tell apart */
#define ROUGH          0.01  /* tolerances of measured rates */
#define FINE           0.004
#define FINALISTS      8u
#define BOUND_EXCEEDED 1.15  /* by any router on any mix: an oracle was seen 11 % above the bound */

struct candidate {
    const struct leat_pool_mix *mix;
    bool raced, lost;
    double rate_qps; /* measured on the brief workload */
};

struct planning {
    const struct simulate_plan_options *options;
    struct candidate *candidates;
    uint32_t jobs[BLOCK]; /* candidates of this block */
    double race_qps;
    double fine_qps[FINALISTS];
};

static struct simulate_options
options_for(const struct planning *planning, const struct leat_pool_mix *mix,
            const struct simulate_workload *workload)
{
    struct simulate_options options = planning->options->run;
    options.mix = *mix;
    options.workload = workload;
    return options;
}

static enum leat_status
race(struct simulate_run *run, uint32_t index, void *context)
{
    struct planning *planning = context;
    struct candidate *candidate = &planning->candidates[planning->jobs[index]];
    struct simulate_options options = options_for(planning, candidate->mix, planning->options->brief);
    struct simulate_result result;

    candidate->raced = true;
    candidate->lost = false;
    if (planning->race_qps > 0) {
        options.rate_qps = planning->race_qps;
        options.stop_early = true;
        const enum leat_status status = simulate_run(run, &options, &result);
        if (status != LEAT_OK) {
            return status;
        }
        candidate->lost = result.stopped_early;
    }
    return candidate->lost ? LEAT_OK : simulate_throughput(run, &options, ROUGH, &candidate->rate_qps);
}

static enum leat_status
measure(struct simulate_run *run, uint32_t index, void *context)
{
    struct planning *planning = context;
    const struct candidate *candidate = &planning->candidates[planning->jobs[index]];
    const struct simulate_options options = options_for(planning, candidate->mix, planning->options->thorough);
    return simulate_throughput(run, &options, FINE, &planning->fine_qps[index]);
}

/* The next candidates; none once bounds are too low. */
static uint32_t
next_block(struct planning *planning, uint32_t *at, uint32_t block_max, double best_qps)
{
    const struct leat_pool_candidate *candidates = planning->options->candidates;
    uint32_t count = 0;
    for (; *at < planning->options->candidate_count && count < block_max; (*at)++) {
        if (candidates[*at].bound_qps * BOUND_EXCEEDED < best_qps) {
            break; /* they fall */
        }
        planning->jobs[count++] = *at;
    }
    return count;
}

static enum leat_status
race_all(struct planning *planning, uint32_t threads, struct simulate_plan *plan)
{
    const struct simulate_plan_options *options = planning->options;
    double best_qps = 0;
    uint32_t at = 0, count;

    /* The first alone: a good incumbent makes the others' races short. */
    while ((count = next_block(planning, &at, best_qps > 0 ? BLOCK : 1, best_qps)) > 0) {
        planning->race_qps = best_qps * KEEPS_UP;
        const enum leat_status status = simulate_parallel(threads, count, race, planning, options->stop, NULL);
        if (status != LEAT_OK) {
            return status;
        }
        plan->raced += count;
        for (uint32_t i = 0; i < count; i++) {
            const struct candidate *done = &planning->candidates[planning->jobs[i]];
            plan->measured += !done->lost;
            best_qps = !done->lost && done->rate_qps > best_qps ? done->rate_qps : best_qps;
        }
    }
    return LEAT_OK;
}

/* The best on the brief workload, best first; of equal ones the first by bound. */
static uint32_t
find_finalists(struct planning *planning)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < planning->options->candidate_count; c++) {
        const struct candidate *candidate = &planning->candidates[c];
        if (!candidate->raced || candidate->lost) {
            continue;
        }
        uint32_t place = count < FINALISTS ? count++ : FINALISTS;
        for (; place > 0 && planning->candidates[planning->jobs[place - 1]].rate_qps < candidate->rate_qps; place--) {
            if (place < FINALISTS) {
                planning->jobs[place] = planning->jobs[place - 1];
            }
        }
        if (place < FINALISTS) {
            planning->jobs[place] = c;
        }
    }
    return count;
}

enum leat_status
simulate_plan(const struct simulate_plan_options *options, struct simulate_plan *ret_plan)
{
    const uint32_t threads = options->threads > 0 ? options->threads : simulate_core_count();
    struct planning planning = {.options = options};
    struct simulate_plan plan = {0};

    if (options->candidate_count == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "there is no mix to choose from: the budget buys no base worker");
    }
    planning.candidates = calloc(options->candidate_count, sizeof(*planning.candidates));
    if (planning.candidates == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u mixes", options->candidate_count);
    }
    for (uint32_t c = 0; c < options->candidate_count; c++) {
        planning.candidates[c].mix = &options->candidates[c].mix;
    }
    enum leat_status status = race_all(&planning, threads, &plan);
    if (status == LEAT_OK) {
        plan.finalists = find_finalists(&planning);
        status = simulate_parallel(threads, plan.finalists, measure, &planning, options->stop, NULL);
    }
    if (status == LEAT_OK) {
        uint32_t best = 0;
        for (uint32_t f = 1; f < plan.finalists; f++) {
            best = planning.fine_qps[f] > planning.fine_qps[best] ? f : best;
        }
        plan.mix = *planning.candidates[planning.jobs[best]].mix;
        plan.rate_qps = planning.fine_qps[best];
        *ret_plan = plan;
    }
    free(planning.candidates);
    return status;
}
