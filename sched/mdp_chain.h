/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/mdp_chain.h - the transitions of sched/mdp.h, and how values and distributions pass through them.
 *
 * Role     Private to sched/mdp*.c and its tests.
 * Source   RAMSIS (EuroSys 2024), section 4.4.2: with r central arrivals since the worker's last query, its next query is
 *          central arrival a = K - r, and n' queries come while it is busy for tau if the number M of arrivals in tau
 *          has floor((M + r) / K) = n'. The paper sums over arrivals in three intervals for each bin. Here, with x the time
 *          from the start of tau to an edge between bins and y that from the edge to its end,
 *              H(n', a) = P(fewer than a come in x, n' queries in tau)
 *          falls from edge to edge by what the bins between hold, and grows with a by
 *              H(a) - H(a - 1) = pmf(a - 1; x) P(y holds (n'-1)K + 1 .. n'K)
 *                                + pmf(n'K + a - 1; tau) B(n', a) - pmf((n'-1)K + a - 1; tau) B(n' - 1, a)
 *          where B(n', a) = P(at most a - 2 of n'K + a - 1 arrivals in tau come in x) grows with a, too, by the probability
 *          that a - 1 do, times that the next comes in y. What depends on y alone is one table: edges are shared.
 * Kernel   All n queries run: the transition depends on the state by tau, and on its bin by the prior over r alone. So a
 *          kernel is kept by r, and a row of the chain is its mean over the prior.
 * Row      b < n queries run, or one is dropped: also depends on the bin by where the next deadline is. The query that is
 *          then the oldest was central arrival bK of the (n-1)K + r since the oldest, which in its waiting time A stand
 *          as in a uniform order (a Polya urn where they are over-dispersed).
 * Values   f64[queue_max][stride], then one for the full state; lanes beyond the bins are 0.
 */
#ifndef LEAT_SCHED_MDP_CHAIN_H
#define LEAT_SCHED_MDP_CHAIN_H

#include <stdbool.h>

#include "sched/mdp.h"
#include "sched/mdp_counts.h"

#define LEAT_MDP_NONE  UINT32_MAX
#define LEAT_MDP_LANES 4u

/* A stretch of bins of one n, for LEAT_MDP_LANES residuals that follow each other. */
struct leat_mdp_band {
    uint32_t at; /* in `to` of the kernel: f64[count][LEAT_MDP_LANES] */
    uint16_t bin, count;
};

struct leat_mdp_kernel {
    uint32_t n, variant; /* variant_count: the drop of the only query */
    double tau_us;
    uint32_t n_first, n_count;   /* of the next state; the rest is negligible, but for empty and full */
    struct leat_mdp_band *bands; /* [n_count][padded / LEAT_MDP_LANES] */
    double *to;
    double *empty;   /* f64[padded]: nothing came */
    double *full;    /* f64[padded]: more than queue_max came */
    double *idle_us; /* f64[padded]: expected wait for the next query, where nothing came, times that probability */
    double *value;   /* f64[padded]: of the last leat_mdp_apply */
    double *mass;    /* f64[padded]: for the next leat_mdp_push */
};

struct leat_mdp_row {
    uint32_t n_first, n_count, bin_first, bin_count, bin_stride; /* stride: count as a multiple of the lanes */
    double full;
    double *to; /* f64[n_count][bin_stride], 0 beyond the bins */
};

/* Rows of one variant and batch, by n and bin, in a chain for solving. */
struct leat_mdp_column {
    uint32_t bin_first; /* the first with time for it */
    uint32_t row;       /* the first; LEAT_MDP_NONE: there is none */
};

struct leat_mdp_choice {
    double value;
    struct leat_mdp_action action; /* batch 0: none yet */
};

struct leat_mdp {
    struct leat_mdp_problem problem;
    const struct leat_mdp_action *policy; /* of a chain for one policy, read by init only; NULL */
    uint32_t parts, bins, stride;
    uint32_t residuals, padded;      /* K, or 1; the latter a multiple of the lanes, 0 is what is kept beyond the former */
    uint32_t states;                 /* without the full one, which is number `states` */
    struct leat_mdp_counts counts[2]; /* round robin: central arrivals; shortest queue: the worker's, n <= 2 and n >= 3 */
    uint32_t regimes;                /* of counts */
    double *slack_us;                /* f64[bins] */
    double *window[2];               /* f64[queue_max + 1][stride]: P(y holds (n-1)K + 1 .. nK) */
    double *passage_us;              /* f64[residuals + 1]: expected time until so many arrivals */
    double *prior;                   /* f64[states + 1][padded] */
    uint16_t *prior_first, *prior_end; /* [states + 1]: the rest is negligible */
    uint32_t *kernel_of;             /* [queue_max + 1][variant_count + 1], by n - 1 */
    struct leat_mdp_kernel *kernels;
    uint32_t kernel_count;
    uint32_t *row_of;                /* [states + 1]: the only row of a state; in a chain for solving, that of a drop */
    struct leat_mdp_column *columns; /* [variant_count][queue_max], by batch - 1 */
    struct leat_mdp_row *rows;
    uint32_t row_count;
    double *values[2], *mass[2];     /* [queue_max * stride + 1]; mass[..][states + 1] */
    struct leat_mdp_choice *choices; /* [bins] */
    uint32_t *step;                  /* [states + 1]: kernel or kernel_count + row that a policy takes there */
    double *scratch;                 /* [parts][scratch_count] */
    size_t scratch_count;
};

/* State of n = 1..queue_max. */
static inline uint32_t
leat_mdp_state(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    return (n - 1) * mdp->bins + bin;
}

static inline double
leat_mdp_latency(const struct leat_mdp_problem *problem, uint32_t variant, uint32_t batch)
{
    const size_t at = (size_t)variant * problem->latency_stride + batch - 1;
    return variant == problem->variant_count ? 0 : problem->latency_us[at];
}

/* Is `batch` < n offered? */
bool leat_mdp_offers(const struct leat_mdp_problem *problem, uint32_t batch);

/* The bin that a slack of `us` belongs to. */
uint32_t leat_mdp_bin_of(const struct leat_mdp *mdp, double us);

/* Arrivals while a batch of n queries runs. */
const struct leat_mdp_counts *leat_mdp_counts_in(const struct leat_mdp *mdp, uint32_t n);

/* What the row of row_of is for, and how long an action takes. */
struct leat_mdp_action leat_mdp_own_action(const struct leat_mdp *mdp, uint32_t n, uint32_t bin);
double leat_mdp_action_us(const struct leat_mdp *mdp, struct leat_mdp_action action);

/*
 * Sets n_first and n_count of a kernel with n, variant and tau_us; returns how many numbers it keeps at most. Of a row,
 * everything but the numbers.
 */
size_t leat_mdp_measure_kernel(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel);
struct leat_mdp_row leat_mdp_measure_row(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, uint32_t batch,
                                         double tau_us);

/* Where an action leads: a kernel, or kernel_count + a row; LEAT_MDP_NONE: it was not built. n = queue_max + 1: full. */
uint32_t leat_mdp_step(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, struct leat_mdp_action action);

/* Expected values after a kernel, into kernel->value; after a row. */
void leat_mdp_apply(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, const double *values);
double leat_mdp_apply_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, const double *values);

/* Mean over the prior of a state. */
double leat_mdp_mean(const struct leat_mdp *mdp, uint32_t state, const double *by_residual);

/* Adds kernel->mass, or `mass` of a row, to where it goes; values has the layout of values. */
void leat_mdp_push(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, double *values);
void leat_mdp_push_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, double mass, double *values);

#endif /* LEAT_SCHED_MDP_CHAIN_H */
