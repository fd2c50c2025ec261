/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "sched/mdp_chain.h"

enum { SWEEPS_PAPER = 100, SWEEPS_MAX = 20000, STEPS_PAPER = 1000, STEPS_MAX = 100000 };

#define ALIKE         1e-13 /* sweeps and steps that change less repeat themselves */
#define RESIDUAL_GOAL 1e-9
#define DAMPED        0.75  /* of the way: batches of one size after another of another make chains that nearly alternate */

/* ---- Problems ---------------------------------------------------------------------------------- */

static enum leat_status
check_number(const char *name, double value, double min, double max)
{
    return value >= min && value <= max
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "%s is %g; it has to be from %g to %g", name, value, min, max);
}

static enum leat_status
check_tables(const struct leat_mdp_problem *problem)
{
    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        enum leat_status status = check_number("an accuracy", problem->accuracy[variant], 0, 1);
        for (uint32_t batch = 1; batch <= problem->queue_max + 1 && status == LEAT_OK; batch++) {
            status = check_number("a latency in microseconds", leat_mdp_latency(problem, variant, batch), DBL_MIN, 1e12);
        }
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_mdp_check(const struct leat_mdp_problem *problem)
{
    const struct {
        const char *name;
        double value, min, max;
    } fields[] = {
        {"variant_count", problem->variant_count, 1, LEAT_MDP_VARIANTS_MAX},
        {"worker_count", problem->worker_count, 1, LEAT_MDP_WORKERS_MAX},
        {"queue_max", problem->queue_max, 1, LEAT_MDP_QUEUE_MAX},
        {"slack_bins", problem->slack_bins, 1, LEAT_MDP_BINS_MAX - 1},
        {"latency_stride", problem->latency_stride, problem->queue_max + 1.0, UINT32_MAX},
        {"objective_us", problem->objective_us, 1e-3, 1e12},
        {"rate_per_us", problem->rate_per_us, 1e-12, 1e6},
        {"dispersion", problem->dispersion, 1, 1e6},
        {"late_penalty", problem->late_penalty, 0, 1e6},
        {"service_rate_per_us", problem->service_rate_per_us, 0, 1e6},
        {"grid", problem->grid, 0, LEAT_MDP_BY_LATENCY},
        {"batching", problem->batching, 0, LEAT_MDP_POWERS},
        {"split", problem->split, 0, LEAT_MDP_SHORTEST_QUEUE},
        {"late", problem->late, 0, LEAT_MDP_DROP_LATE},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const enum leat_status status = check_number(fields[i].name, fields[i].value, fields[i].min, fields[i].max);
        if (status != LEAT_OK) {
            return status;
        }
    }
    const enum leat_status status = check_tables(problem);
    if (status != LEAT_OK) {
        return status;
    }
    const uint32_t bins = leat_mdp_bin_count(problem);
    if (bins > LEAT_MDP_BINS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u different latencies within the objective; take a fixed grid", bins);
    }
    const double states = (double)problem->queue_max * bins;
    const double all = states * problem->variant_count * problem->queue_max / 2;
    const double rows = problem->batching == LEAT_MDP_MAXIMAL ? 0 : all;
    return rows <= LEAT_MDP_ROWS_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT, "%g states and batches of less than all; lower queue_max or slack_bins", rows);
}

/* The least latency above `us` and below the objective, or the objective. */
static double
next_latency(const struct leat_mdp_problem *problem, double us)
{
    double next = problem->objective_us;
    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        for (uint32_t batch = 1; batch <= problem->queue_max; batch++) {
            const double latency_us = leat_mdp_latency(problem, variant, batch);
            next = latency_us > us && latency_us < next ? latency_us : next;
        }
    }
    return next;
}

uint32_t
leat_mdp_bin_count(const struct leat_mdp_problem *problem)
{
    if (problem->grid == LEAT_MDP_FIXED) {
        return problem->slack_bins + 1;
    }
    uint32_t bins = 1;
    for (double us = 0; us < problem->objective_us; bins++) {
        us = next_latency(problem, us);
    }
    return bins;
}

void
leat_mdp_slacks(const struct leat_mdp_problem *problem, double *ret_slack_us)
{
    const uint32_t bins = leat_mdp_bin_count(problem);
    double us = 0;
    for (uint32_t bin = 0; bin < bins; bin++) {
        ret_slack_us[bin] = problem->grid == LEAT_MDP_FIXED ? problem->objective_us / problem->slack_bins * bin : us;
        us = problem->grid == LEAT_MDP_FIXED ? 0 : next_latency(problem, us);
    }
    ret_slack_us[bins - 1] = problem->objective_us; /* whatever the rounding: nobody has waited there */
}

enum leat_status
leat_mdp_check_policy(const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy)
{
    const uint32_t bins = leat_mdp_bin_count(problem);
    for (uint32_t state = 0; state < problem->queue_max * bins; state++) {
        const struct leat_mdp_action action = policy[state];
        const uint32_t n = state / bins + 1;
        const bool drop = action.variant == LEAT_MDP_DROP;
        if (action.batch == 0 || action.batch > (drop ? 1 : n) || (!drop && action.variant >= problem->variant_count)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "variant %u with a batch of %u where %u wait; there are %u variants",
                             action.variant, action.batch, n, problem->variant_count);
        }
    }
    return LEAT_OK;
}

/* ---- Sweeps ------------------------------------------------------------------------------------ */

/* What a decision is worth, and how far a sweep goes. */
struct terms {
    enum leat_mdp_mode mode;
    double gain_per_us; /* what time costs */
    double pace;
};

static double
reward_of(const struct leat_mdp_problem *problem, const struct terms *terms, struct leat_mdp_action action, uint32_t n,
          double slack_us)
{
    const bool drop = action.variant == LEAT_MDP_DROP;
    const bool late = drop || n > problem->queue_max || leat_mdp_latency(problem, action.variant, action.batch) > slack_us;

    if (terms->mode == LEAT_MDP_PAPER) {
        return late ? 0 : problem->accuracy[action.variant] * action.batch / n;
    }
    return (late ? -problem->late_penalty : problem->accuracy[action.variant]) * action.batch;
}

static double
time_of(const struct leat_mdp_problem *problem, struct leat_mdp_action action)
{
    return action.variant == LEAT_MDP_DROP ? 0 : leat_mdp_latency(problem, action.variant, action.batch);
}

/* After the decision, idle time paid for; kernels have been applied. */
static double
future_of(const struct leat_mdp *mdp, uint32_t state, uint32_t step, const double *values)
{
    return step < mdp->kernel_count ? leat_mdp_mean(mdp, state, mdp->kernels[step].value)
                                    : leat_mdp_apply_row(mdp, &mdp->rows[step - mdp->kernel_count], values);
}

/* Offers an action to the states of n queries and bins first..end - 1; what is as good as what they have is refused. */
static void
offer(struct leat_mdp *mdp, const struct terms *terms, uint32_t n, uint32_t first, uint32_t end,
      struct leat_mdp_action action, const double *values)
{
    const double cost = terms->gain_per_us * time_of(&mdp->problem, action);

    for (uint32_t bin = first; bin < end; bin++) {
        const uint32_t step = leat_mdp_step(mdp, n, bin, action);
        LEAT_ASSERT(step != LEAT_MDP_NONE);
        const double value = reward_of(&mdp->problem, terms, action, n, mdp->slack_us[bin]) - cost +
                             future_of(mdp, leat_mdp_state(mdp, n, bin), step, values);
        struct leat_mdp_choice *choice = &mdp->choices[bin];
        if (choice->action.batch == 0 || value > choice->value) {
            *choice = (struct leat_mdp_choice){value, action};
        }
    }
}

/* The best actions of the states of n queries, into mdp->choices. */
static void
choose(struct leat_mdp *mdp, const struct terms *terms, uint32_t n, const double *values)
{
    const struct leat_mdp_problem *problem = &mdp->problem;

    memset(mdp->choices, 0, mdp->bins * sizeof(*mdp->choices));
    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        for (uint32_t batch = problem->batching == LEAT_MDP_MAXIMAL ? n : 1; batch <= n; batch++) {
            if (batch == n || leat_mdp_offers(problem, batch)) {
                const struct leat_mdp_action action = {(uint16_t)variant, (uint16_t)batch};
                offer(mdp, terms, n, mdp->columns[variant * problem->queue_max + batch - 1].bin_first, mdp->bins, action,
                      values);
            }
        }
    }
    if (problem->late == LEAT_MDP_SERVE_LATE) {
        offer(mdp, terms, n, 0, mdp->columns[n - 1].bin_first, (struct leat_mdp_action){0, (uint16_t)n}, values);
        return;
    }
    for (uint32_t bin = 0; bin < mdp->bins; bin++) {
        if (mdp->choices[bin].action.batch == 0) {
            offer(mdp, terms, n, bin, bin + 1, (struct leat_mdp_action){LEAT_MDP_DROP, 1}, values);
        }
    }
}

static struct leat_mdp_action
full_action(const struct leat_mdp_problem *problem)
{
    return problem->late == LEAT_MDP_DROP_LATE ? (struct leat_mdp_action){LEAT_MDP_DROP, 1}
                                               : (struct leat_mdp_action){0, (uint16_t)(problem->queue_max + 1)};
}

static size_t
value_index(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    return (size_t)(n - 1) * mdp->stride + bin;
}

/* One Jacobi sweep, from `values` to `next`; tells the least and the largest change. The policy may be NULL. */
static void
sweep(struct leat_mdp *mdp, const struct terms *terms, const double *values, double *next, struct leat_mdp_action *policy,
      double *ret_least, double *ret_most)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    double least = INFINITY, most = -INFINITY;

    for (uint32_t i = 0; i < mdp->kernel_count; i++) {
        struct leat_mdp_kernel *kernel = &mdp->kernels[i];
        leat_mdp_apply(mdp, kernel, values);
        for (uint32_t r = 0; r < mdp->padded && terms->gain_per_us != 0; r++) {
            kernel->value[r] -= terms->gain_per_us * kernel->idle_us[r];
        }
    }
    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        const bool full = n > queue_max;
        if (full) {
            mdp->choices[0].action.batch = 0;
            offer(mdp, terms, n, 0, 1, full_action(&mdp->problem), values);
        } else {
            choose(mdp, terms, n, values);
        }
        for (uint32_t bin = 0; bin < (full ? 1 : mdp->bins); bin++) {
            const size_t at = value_index(mdp, n, bin);
            const double change = mdp->choices[bin].value - values[at];
            least = change < least ? change : least;
            most = change > most ? change : most;
            next[at] = values[at] + terms->pace * change;
            if (policy != NULL && !full) {
                policy[leat_mdp_state(mdp, n, bin)] = mdp->choices[bin].action;
            }
        }
    }
    *ret_least = least;
    *ret_most = most;
}

/* Values count from the state that follows an empty queue: so they stay small, and exact. */
static void
rebase(const struct leat_mdp *mdp, double *values)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    const double base = values[mdp->bins - 1];
    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= queue_max ? mdp->bins : 1); bin++) {
            values[value_index(mdp, n, bin)] -= base;
        }
    }
}

static void
swap(double **a, double **b)
{
    double *const old = *a;
    *a = *b;
    *b = old;
}

static void
clear_values(struct leat_mdp *mdp)
{
    for (int i = 0; i < 2; i++) {
        memset(mdp->values[i], 0, ((size_t)mdp->problem.queue_max * mdp->stride + 1) * sizeof(double));
    }
}

/* Sweeps that only add one number to all values change no later decision: they are left out. */
static void
solve_paper(struct leat_mdp *mdp, struct leat_mdp_action *ret_policy, struct leat_mdp_solution *solution)
{
    const struct terms terms = {.mode = LEAT_MDP_PAPER, .pace = 1};
    double least, most;

    do {
        sweep(mdp, &terms, mdp->values[0], mdp->values[1], NULL, &least, &most);
        rebase(mdp, mdp->values[1]);
        swap(&mdp->values[0], &mdp->values[1]);
        solution->residual = most - least;
        solution->sweeps++;
    } while (solution->sweeps < SWEEPS_PAPER && most - least > ALIKE);
    sweep(mdp, &terms, mdp->values[0], mdp->values[1], ret_policy, &least, &most);
}

/* ---- Distribution of states -------------------------------------------------------------------- */

/* False: an action was not built. */
static bool
resolve(struct leat_mdp *mdp, const struct leat_mdp_action *policy)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= queue_max ? mdp->bins : 1); bin++) {
            const uint32_t state = leat_mdp_state(mdp, n, bin);
            mdp->step[state] = leat_mdp_step(mdp, n, bin, n <= queue_max ? policy[state] : full_action(&mdp->problem));
            if (mdp->step[state] == LEAT_MDP_NONE) {
                return false;
            }
        }
    }
    return true;
}

/* One step from `mass` to `next`, or a part of it; returns how much the whole step moves. */
static double
step(struct leat_mdp *mdp, const double *mass, double *next, double pace)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    const size_t count = (size_t)queue_max * mdp->stride + 1;
    double moved = 0;

    memset(next, 0, count * sizeof(*next));
    for (uint32_t i = 0; i < mdp->kernel_count; i++) {
        memset(mdp->kernels[i].mass, 0, mdp->padded * sizeof(double));
    }
    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= queue_max ? mdp->bins : 1); bin++) {
            const uint32_t state = leat_mdp_state(mdp, n, bin);
            const double here = mass[value_index(mdp, n, bin)];
            if (here <= 0) {
                continue;
            }
            if (mdp->step[state] >= mdp->kernel_count) {
                leat_mdp_push_row(mdp, &mdp->rows[mdp->step[state] - mdp->kernel_count], here, next);
                continue;
            }
            const double *prior = mdp->prior + (size_t)state * mdp->padded;
            double *by_residual = mdp->kernels[mdp->step[state]].mass;
            for (uint32_t r = mdp->prior_first[state]; r < mdp->prior_end[state]; r++) {
                by_residual[r] += here * prior[r];
            }
        }
    }
    for (uint32_t i = 0; i < mdp->kernel_count; i++) {
        leat_mdp_push(mdp, &mdp->kernels[i], next);
    }
    for (size_t i = 0; i < count; i++) {
        const double change = next[i] - mass[i];
        moved += fabs(change);
        next[i] = pace < 1 ? mass[i] + pace * change : next[i];
        next[i] = next[i] < 1e-100 ? 0 : next[i]; /* nothing that could become a subnormal number */
    }
    return moved;
}

/* An empty queue leads to one query with all of its time. */
static void
start(struct leat_mdp *mdp)
{
    memset(mdp->mass[0], 0, ((size_t)mdp->problem.queue_max * mdp->stride + 1) * sizeof(double));
    mdp->mass[0][mdp->bins - 1] = 1;
}

/* From mdp->mass[0] to where the policy that was resolved leads in the long run; returns how many steps it took. */
static uint32_t
settle(struct leat_mdp *mdp, double pace, uint32_t steps_max)
{
    uint32_t steps = 0;
    double moved;

    do {
        moved = step(mdp, mdp->mass[0], mdp->mass[1], pace);
        swap(&mdp->mass[0], &mdp->mass[1]);
        steps++;
    } while (steps < steps_max && moved > ALIKE);
    return steps;
}

struct sums {
    double decisions, reward, time_us, busy_us, in_time, late, accuracy, full; /* in_time and late: queries */
};

static struct sums
sum_up(const struct leat_mdp *mdp, const struct leat_mdp_action *policy)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const struct terms terms = {.mode = LEAT_MDP_LEAT};
    struct sums sums = {0};

    for (uint32_t n = 1; n <= problem->queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= problem->queue_max ? mdp->bins : 1); bin++) {
            const uint32_t state = leat_mdp_state(mdp, n, bin), taken = mdp->step[state];
            const double mass = mdp->mass[0][value_index(mdp, n, bin)], slack_us = mdp->slack_us[bin];
            const bool full = n > problem->queue_max;
            const struct leat_mdp_action action = full ? full_action(problem) : policy[state];
            const bool late = full || action.variant == LEAT_MDP_DROP || time_of(problem, action) > slack_us;
            if (mass <= 0) {
                continue;
            }
            const double idle_us = taken < mdp->kernel_count ? leat_mdp_mean(mdp, state, mdp->kernels[taken].idle_us) : 0;
            sums.decisions += mass;
            sums.full += full ? mass : 0;
            sums.reward += mass * reward_of(problem, &terms, action, n, slack_us);
            sums.busy_us += mass * time_of(problem, action);
            sums.time_us += mass * (time_of(problem, action) + idle_us);
            sums.in_time += late ? 0 : mass * action.batch;
            sums.late += late ? mass * action.batch : 0;
            sums.accuracy += late ? 0 : mass * action.batch * problem->accuracy[action.variant];
        }
    }
    return sums;
}

enum leat_status
leat_mdp_evaluate(struct leat_mdp *mdp, const struct leat_mdp_action *policy, struct leat_mdp_value *ret_value)
{
    if (!resolve(mdp, policy)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the policy has actions that are not admissible; prepare for it alone");
    }
    start(mdp);
    uint32_t steps = 1 + settle(mdp, 1, STEPS_PAPER - 1);
    if (steps == STEPS_PAPER) {
        steps += settle(mdp, DAMPED, STEPS_MAX);
    }
    const struct sums sums = sum_up(mdp, policy);
    const double queries = sums.in_time + sums.late, share = mdp->problem.rate_per_us / mdp->problem.worker_count;
    *ret_value = (struct leat_mdp_value){
        .accuracy = sums.in_time > 0 ? sums.accuracy / sums.in_time : 0,
        .violation = sums.late / queries,
        .gain_per_us = sums.reward / sums.time_us,
        .accuracy_per_query = sums.reward / sums.time_us / share,
        .busy = sums.busy_us / sums.time_us,
        .batch = queries / sums.decisions,
        .full = sums.full / sums.decisions,
        .steps = steps,
    };
    return LEAT_OK;
}

/* ---- Gain by time ------------------------------------------------------------------------------ */

/* No decision takes longer, idle time after it counted. */
static double
longest_us(const struct leat_mdp *mdp)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    double us = problem->objective_us;
    for (uint32_t batch = 1; batch <= problem->queue_max + 1; batch++) {
        us = fmax(us, leat_mdp_latency(problem, 0, batch));
    }
    return us + mdp->passage_us[mdp->residuals];
}

/*
 * With time at its price, a decision of the best policy is worth nothing on average when the price is the gain. The gain
 * of the policy that is best at a price is a better price; it settles in a few rounds.
 */
static void
solve_leat(struct leat_mdp *mdp, struct leat_mdp_action *ret_policy, struct leat_mdp_solution *solution)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const double time_us = longest_us(mdp);
    struct terms terms = {.mode = LEAT_MDP_LEAT, .pace = DAMPED};
    double least, most, goal = 1e-3;
    bool settled = false;

    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        terms.gain_per_us = fmax(terms.gain_per_us, problem->accuracy[variant]);
    }
    terms.gain_per_us *= problem->rate_per_us / problem->worker_count;
    start(mdp);
    while (!settled && solution->sweeps < SWEEPS_MAX) {
        do {
            sweep(mdp, &terms, mdp->values[0], mdp->values[1], ret_policy, &least, &most);
            rebase(mdp, mdp->values[1]);
            swap(&mdp->values[0], &mdp->values[1]);
            solution->sweeps++;
        } while (most - least > goal && solution->sweeps < SWEEPS_MAX);
        LEAT_MUST(resolve(mdp, ret_policy));
        (void)settle(mdp, DAMPED, STEPS_MAX);
        const struct sums sums = sum_up(mdp, ret_policy);
        solution->gain_per_us = sums.reward / sums.time_us;
        solution->residual = most + fmax(0, terms.gain_per_us - solution->gain_per_us) * time_us;
        settled = goal <= RESIDUAL_GOAL / 4 &&
                  fabs(solution->gain_per_us - terms.gain_per_us) * time_us <= RESIDUAL_GOAL / 2;
        terms.gain_per_us = solution->gain_per_us;
        goal = fmax(goal * 0.01, RESIDUAL_GOAL / 4);
    }
}

void
leat_mdp_solve(struct leat_mdp *mdp, enum leat_mdp_mode mode, struct leat_mdp_action *ret_policy,
               struct leat_mdp_solution *ret_solution)
{
    struct leat_mdp_solution solution = {0};

    LEAT_ASSERT(mdp->policy == NULL);
    clear_values(mdp);
    if (mode == LEAT_MDP_PAPER) {
        solve_paper(mdp, ret_policy, &solution);
    } else {
        solve_leat(mdp, ret_policy, &solution);
    }
    if (ret_solution != NULL) {
        *ret_solution = solution;
    }
}
