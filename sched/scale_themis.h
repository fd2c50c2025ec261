/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/scale_themis.h - cores and instances of a pipeline's stages as Themis decides them, rule by rule.
 *
 * Source    K. Razavi et al., "A Tale of Two Scales: Reconciling Horizontal and Vertical Scaling for Inference Serving
 *           Systems", 2024 (Themis), sections 4 and 5; where the paper leaves rules open, those of the authors' program
 *           of the paper's time: latency is a whole number of milliseconds, cut off towards zero; the wait for a batch to fill
 *           counts in what an instance can serve; whole queries a second; a plan is shorter than the objective, never
 *           as long; of two of the same cost the shorter, then the one found first.
 * Use       Kept for comparison: sched/scale_joint.h asks the better question.
 * Model     Latency of a stage is l(b, c) + q(b), q the time in which b - 1 queries come. It serves n trunc(1000 b / (l + q))
 *           queries a second. Latencies of stages add up to the pipeline's. Where l is 0 or less, as a fit may say of sizes
 *           that nobody measured, no program chooses that.
 * Memory    The caller's, leat_themis_bytes(); contents mean nothing between calls.
 * Cost      stage_count * objective_ms * cores_max * batch_max steps.
 * Failure   LEAT_ERR_NOT_FOUND: no plan is in time. Pipelines in their ranges are the caller's duty.
 */
#ifndef LEAT_SCHED_SCALE_THEMIS_H
#define LEAT_SCHED_SCALE_THEMIS_H

#include <stdbool.h>
#include <stddef.h>

#include "sched/scale.h"

#define LEAT_THEMIS_PREFIX_CORES_MAX 32u /* the authors' machines had no more for an instance of each stage but the last */

struct leat_themis_stage {
    struct leat_scale_latency latency;
    uint32_t cores_max, batch_max; /* 1..LEAT_SCALE_CORES_MAX, 1..LEAT_SCALE_BATCH_MAX */
};

struct leat_themis_pipeline {
    struct leat_themis_stage stages[LEAT_SCALE_STAGES_MAX];
    uint32_t stage_count;  /* 1..LEAT_SCALE_STAGES_MAX */
    uint32_t objective_ms; /* 1..1000000 */
};

size_t leat_themis_bytes(const struct leat_themis_pipeline *pipeline);

/* The least l(b, c) above 0; 0: there is none. */
double leat_themis_least_ms(const struct leat_themis_stage *stage);

/* l(b, c) and q(b); the rate is 1 or more. */
int64_t leat_themis_latency_ms(const struct leat_themis_stage *stage, uint32_t batch, uint32_t cores);
uint32_t leat_themis_queue_ms(uint32_t batch, uint32_t rate_qps);

/*
 * At a rate of 0 both programs answer one instance of one core and no batching for each stage, or the next larger that the
 * model has a time for. Latency is the sum of l and q of what is chosen.
 */

/* Least number of instances of one core. Cost: that number. */
LEAT_MUST_CHECK enum leat_status leat_themis_horizontal(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps,
                                                        void *memory, struct leat_scale_plan *ret_plan);

/* Least sum over stages of one instance's cores, with `instances` (by stage, 1 and more) of each. Cost: that sum. */
LEAT_MUST_CHECK enum leat_status leat_themis_vertical(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps,
                                                      const uint32_t *instances, void *memory,
                                                      struct leat_scale_plan *ret_plan);

/*
 * The same, and where cores are not enough: the plan of the highest rate that they are enough for, with more instances
 * of its cores for the rest. Cost and latency are those of that plan. ret_added: how many of each stage's instances are new.
 */
LEAT_MUST_CHECK enum leat_status leat_themis_vertical_grown(const struct leat_themis_pipeline *pipeline, uint32_t rate_qps,
                                                            const uint32_t *instances, void *memory,
                                                            struct leat_scale_plan *ret_plan, uint32_t *ret_added);

/* ---- From decision to decision ------------------------------------------------------------------ */

enum leat_themis_kind {
    LEAT_THEMIS_KEEP,
    LEAT_THEMIS_VERTICAL,   /* cores and batches at once; what is added starts */
    LEAT_THEMIS_HORIZONTAL, /* one core each: what is missing starts, and only then do the others shrink */
};

struct leat_themis_state {
    uint32_t settle_decisions; /* stable ones in a row before it goes horizontal; set by the caller */
    uint32_t stable;           /* so far; 0 at first */
};

/*
 * The decision of every second: `current` is in force, rate_qps comes now and predicted_qps at most in the next ten
 * seconds. ret_plan is what is to be in force, `current` when kept. Cores never shrink in a vertical step, and instances never go.
 */
LEAT_MUST_CHECK enum leat_status leat_themis_decide(struct leat_themis_state *state,
                                                    const struct leat_themis_pipeline *pipeline,
                                                    const struct leat_scale_plan *current, uint32_t rate_qps,
                                                    uint32_t predicted_qps, void *memory,
                                                    enum leat_themis_kind *ret_kind, struct leat_scale_plan *ret_plan);

#endif /* LEAT_SCHED_SCALE_THEMIS_H */
