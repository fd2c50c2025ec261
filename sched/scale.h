/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/scale.h - how long a batch takes on so many cores, and what an answer about cores and instances is.
 *
 * Source    K. Razavi et al., "A Tale of Two Scales: Reconciling Horizontal and Vertical Scaling for Inference Serving
 *           Systems", 2024 (Themis), section 4.1, equation 1.
 * Words     A stage is one model of a pipeline; all its instances have the same cores and the same largest batch.
 * Numerics  Doubles, evaluated in the order that is written here: equal inputs give equal answers.
 * Threads   None of its own; what a call may write, one thread at a time.
 */
#ifndef LEAT_SCHED_SCALE_H
#define LEAT_SCHED_SCALE_H

#include <stdint.h>

#include "base/status.h"

#define LEAT_SCALE_STAGES_MAX 8u
#define LEAT_SCALE_CORES_MAX  32u /* of one instance */
#define LEAT_SCALE_BATCH_MAX  32u

/* alpha b / c + beta b + gamma / c + zeta, of batches of b items on c cores; coefficients may be negative. */
struct leat_scale_latency {
    double alpha_ms, beta_ms, gamma_ms, zeta_ms;
};

static inline double
leat_scale_latency_ms(const struct leat_scale_latency *latency, uint32_t batch, uint32_t cores)
{
    const double b = batch, c = cores;
    return latency->alpha_ms * b / c + latency->beta_ms * b + latency->gamma_ms / c + latency->zeta_ms;
}

struct leat_scale_point {
    uint32_t batch, cores; /* 1 and more */
    double latency_ms;     /* measured: the paper takes the 99th percentile */
};

/*
 * The coefficients with the least sum of squared errors. LEAT_ERR_INVALID: a point is out of range, or the points do not tell the
 * coefficients apart (two batches on each of two numbers of cores do).
 */
LEAT_MUST_CHECK enum leat_status leat_scale_fit(const struct leat_scale_point *points, uint32_t count,
                                                struct leat_scale_latency *ret_latency);

struct leat_scale_choice {
    uint32_t instances, cores, batch; /* 1 and more; cores of each instance */
};

struct leat_scale_plan {
    struct leat_scale_choice stages[LEAT_SCALE_STAGES_MAX];
    uint64_t cost;
    uint32_t latency_ms; /* of all stages, as the program that made it counts */
};

#endif /* LEAT_SCHED_SCALE_H */
