/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/mdp.h - which variant and batch a worker should run, by its queue and slack: a policy solved ahead of time.
 *
 * Source    D. Mendoza et al., "Model Selection for Latency-Critical Inference Serving" (RAMSIS), EuroSys 2024, sections
 *           4 and 5 and appendix I.1. Where the paper is silent or its published code departs from it, mode PAPER does as
 *           the code does: an empty queue costs no decision; the full state serves queue_max + 1 queries; the oldest
 *           query has waited as long as its bin allows; values are those of 100 sweeps without a discount.
 * Model     One worker, one queue. A state is (n, j): n queries wait, 1..queue_max, and the oldest has a slack in bin j.
 *           Real slack x belongs to the last bin with slack_us[bin] <= x, or to bin 0. One more state is full: more than
 *           queue_max wait. An action is a variant and how many queries, the oldest first, it is given. It is
 *           admissible where it ends within the slack. Where variant 0 with all n is not, that is offered beside the
 *           admissible ones, as being late.
 * Modes     PAPER   sum of accuracy * batch / n over the next 101 decisions, nothing for late ones.
 *           LEAT    accuracy * batch less penalties for late queries, per unit of time: a semi-Markov process, as the
 *                   worker is busy for the latency and idle until a query comes. Rate iteration (Dinkelbach's method)
 *                   over relative value iteration, until no state gains more than 1e-9 by another action.
 * Arrivals  At the central queue. The number in an interval of length t has mean rate * t and variance dispersion times
 *           that, independently of what disjoint intervals hold, as the paper asks: Poisson at 1; above, negative
 *           binomial, which is a Poisson process of clusters of logarithmic size. A rate that itself drifts is something
 *           else: it makes variance over mean grow with the interval. The dispersion should be that of intervals as
 *           long as a batch takes.
 * Splits    ROUND_ROBIN     every worker_count-th arrival is this worker's.
 *           SHORTEST_QUEUE  appendix I.1: this worker's arrivals have rate / worker_count while n <= 2, and from 3 on
 *                           service_rate * (rate / worker_count / service_rate)^worker_count. The paper calls the
 *                           service rate a latency; its source (Gupta et al. 2007) says what it is. Dispersion is
 *                           then that of arrivals each kept with the same probability.
 * Batches   MAXIMAL: all n. VARIABLE: 1..n. POWERS: powers of two, and n. What remains of the queue has the slack of
 *           the query that is then the oldest; where it stood among the n - 1 later arrivals is not known, so it is
 *           distributed as their order says (the paper leaves this to the reader).
 * Late      SERVE: by variant 0, all n. DROP: where nothing is admissible the oldest query is given up at once.
 * Memory    The caller's, from leat_mdp_bytes; nothing is allocated. Tables in the problem stay the caller's and where they
 *           are. Only transitions that are likely enough are kept: 7 MB for the paper's nine variants and 60 workers, 90 MB
 *           for 60 variants and VARIABLE.
 * Threads   None of its own. Different objects are independent: a ladder of rates is one object each. Of one object,
 *           leat_mdp_build with different parts may run on different threads.
 * Units     Microseconds, queries a microsecond, accuracies as fractions.
 * Numerics  Doubles; exp, log and lgamma of libm. Probabilities are within 1e-12.
 */
#ifndef LEAT_SCHED_MDP_H
#define LEAT_SCHED_MDP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy.h"

#define LEAT_MDP_VARIANTS_MAX LEAT_SCHED_VARIANTS_MAX
#define LEAT_MDP_WORKERS_MAX  512u /* exp(-workers), and a bit, has to be a number */
#define LEAT_MDP_QUEUE_MAX    256u
#define LEAT_MDP_BINS_MAX     4096u
#define LEAT_MDP_PARTS_MAX    64u
#define LEAT_MDP_ROWS_MAX     (1u << 28)
#define LEAT_MDP_DROP         UINT16_MAX /* as variant: the oldest query, batch 1, is given up */

enum leat_mdp_grid { LEAT_MDP_FIXED, LEAT_MDP_BY_LATENCY };
enum leat_mdp_batching { LEAT_MDP_MAXIMAL, LEAT_MDP_VARIABLE, LEAT_MDP_POWERS };
enum leat_mdp_split { LEAT_MDP_ROUND_ROBIN, LEAT_MDP_SHORTEST_QUEUE };
enum leat_mdp_late { LEAT_MDP_SERVE_LATE, LEAT_MDP_DROP_LATE };
enum leat_mdp_mode { LEAT_MDP_PAPER, LEAT_MDP_LEAT };

struct leat_mdp_problem {
    uint32_t variant_count;    /* 1..LEAT_MDP_VARIANTS_MAX; rising latency, so that 0 is the fastest */
    uint32_t worker_count;     /* 1..LEAT_MDP_WORKERS_MAX */
    uint32_t queue_max;        /* 1..LEAT_MDP_QUEUE_MAX; 32 in the paper */
    uint32_t slack_bins;       /* D, 1..LEAT_MDP_BINS_MAX - 1: FIXED has bins at j * objective / D; 100 in the paper */
    uint32_t latency_stride;   /* from variant to variant, at least queue_max + 1 */
    const double *accuracy;    /* f64[variant_count], 0..1 */
    const double *latency_us;  /* f64[variant_count][latency_stride], of batch 1, 2, ..., queue_max + 1; above 0 */
    double objective_us;
    double rate_per_us;        /* at the central queue */
    double dispersion;         /* at least 1 */
    double late_penalty;       /* LEAT only: what a late or dropped query costs, as accuracy; at least 0 */
    double service_rate_per_us; /* SHORTEST_QUEUE only: a worker's. 0: the best that the most accurate variant does in
                                 * time, of those that carry rate / worker_count; of none, that of variant 0 */
    enum leat_mdp_grid grid;   /* BY_LATENCY: bins at 0, the objective and every latency between, as in the paper's 4.2.1 */
    enum leat_mdp_batching batching;
    enum leat_mdp_split split;
    enum leat_mdp_late late;
};

struct leat_mdp_action {
    uint16_t variant; /* or LEAT_MDP_DROP */
    uint16_t batch;   /* 1..n */
};

/*
 * A policy is an action for each state but the full one, which has no choice: struct leat_mdp_action[queue_max][bins],
 * n = 1 first. In the full state variant 0 serves queue_max + 1, or with DROP the oldest is given up.
 */

/* What a policy is expected to do. */
struct leat_mdp_value {
    double accuracy;           /* mean of the queries served in time; 0 when there is none */
    double violation;          /* share of queries that are dropped, or in a batch that is late for its oldest */
    double gain_per_us;        /* accuracy in time less penalties, a microsecond */
    double accuracy_per_query; /* gain_per_us over this worker's share of the rate: late queries count as they are priced.
                                * A percent too high as a rule, as the oldest query is taken to have waited longer */
    double busy;               /* share of time */
    double batch;              /* mean, of decisions */
    double full;               /* share of decisions in the full state */
    uint32_t steps;            /* of the distribution of states, until it stood still */
};

struct leat_mdp_solution {
    uint32_t sweeps;
    double gain_per_us; /* LEAT: of the policy. PAPER: 0 */
    double residual; /* LEAT: no policy makes more than this a decision above gain_per_us * time; above 1e-9 where 20000
                      * sweeps were not enough. PAPER: how far the last sweep was from adding one number to all values */
};

/*
 * LEAT_ERR_INVALID: a field is out of its range; LEAT_ERR_LIMIT: more bins than LEAT_MDP_BINS_MAX, or more than
 * LEAT_MDP_ROWS_MAX triples of state, variant and smaller batch. All other functions are for problems that passed.
 */
LEAT_MUST_CHECK enum leat_status leat_mdp_check(const struct leat_mdp_problem *problem);

/* Bins, and where each begins: f64[bins], from 0 to the objective. */
uint32_t leat_mdp_bin_count(const struct leat_mdp_problem *problem);
void leat_mdp_slacks(const struct leat_mdp_problem *problem, double *ret_slack_us);

/* LEAT_ERR_INVALID: a variant or batch that does not exist in some state. */
LEAT_MUST_CHECK enum leat_status leat_mdp_check_policy(const struct leat_mdp_problem *problem,
                                                       const struct leat_mdp_action *policy);

/*
 * 64-byte aligned memory. With a policy: for evaluating that one, whatever it is, admissible or not, and no other. NULL:
 * for solving, and for evaluating policies of admissible actions. `parts` is how many calls of leat_mdp_build will complete
 * it, 1..LEAT_MDP_PARTS_MAX; each takes about as long.
 */
size_t leat_mdp_bytes(const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy, uint32_t parts);
struct leat_mdp *leat_mdp_init(void *memory, const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy,
                               uint32_t parts);

/* Computes the transitions of one part, 0..parts - 1; each once, in any order. All of them come before what follows. */
void leat_mdp_build(struct leat_mdp *mdp, uint32_t part);

/* The best policy; of equal actions the one of the lowest variant, then batch. ret_solution may be NULL. */
void leat_mdp_solve(struct leat_mdp *mdp, enum leat_mdp_mode mode, struct leat_mdp_action *ret_policy,
                    struct leat_mdp_solution *ret_solution);

/*
 * By the distribution of states in the long run; the published code takes that of 1000 decisions after an empty queue,
 * which is the same wherever it stands still by then. Shares are of queries, not of decisions. LEAT_ERR_INVALID: the
 * policy has an action that this object was not made for.
 */
LEAT_MUST_CHECK enum leat_status leat_mdp_evaluate(struct leat_mdp *mdp, const struct leat_mdp_action *policy,
                                                   struct leat_mdp_value *ret_value);

#endif /* LEAT_SCHED_MDP_H */
