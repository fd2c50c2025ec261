/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     sched/mdp.h solves and evaluates the chain that RAMSIS describes, with every option.
 * Oracle   The paper's sums over arrivals in three intervals, 100 literal sweeps and 1000 literal steps on dense rows,
 *          sharing nothing with what is tested; where gain by time is the goal, all stationary policies of small problems.
 * Method   Random small problems of all options; the paper's text task in full size; certificates on the image task.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/csv.h"
#include "sched/latency_table.h"
#include "sched/mdp_chain.h"
#include "tests/leat_test.h"
#include "tests/sched/ramsis.h"

static uint64_t random_state;

static uint32_t
below(uint32_t bound)
{
    return (uint32_t)(leat_test_random(&random_state) % bound);
}

static double
unit(void)
{
    return (double)(leat_test_random(&random_state) >> 11) / 9007199254740992.0;
}

static void *
allocate(size_t bytes)
{
    void *memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes, LEAT_CACHE_LINE));
    EXPECT(memory != NULL);
    return memory;
}

static struct leat_mdp *
make(const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy, uint32_t parts)
{
    EXPECT(leat_mdp_check(problem) == LEAT_OK);
    struct leat_mdp *mdp = leat_mdp_init(allocate(leat_mdp_bytes(problem, policy, parts)), problem, policy, parts);
    for (uint32_t part = parts; part-- > 0;) {
        leat_mdp_build(mdp, part);
    }
    return mdp;
}

static struct leat_mdp_action *
make_policy(const struct leat_mdp_problem *problem)
{
    return allocate(problem->queue_max * leat_mdp_bin_count(problem) * sizeof(struct leat_mdp_action));
}

static struct leat_mdp_value
value_of(struct leat_mdp *mdp, const struct leat_mdp_action *policy)
{
    struct leat_mdp_value value;
    EXPECT(leat_mdp_evaluate(mdp, policy, &value) == LEAT_OK);
    return value;
}

static bool
near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (1 + fabs(a));
}

/* ---- The reference: arrivals ------------------------------------------------------------------- */

/* PF(k, T) of the paper. */
static double
reference_pf(double rate, double dispersion, double us, uint32_t k)
{
    const double mean = rate * us;
    if (mean <= 0) {
        return k == 0;
    }
    if (dispersion <= 1) {
        return exp(k * log(mean) - mean - lgamma(k + 1.0));
    }
    const double size = mean / (dispersion - 1);
    return exp(lgamma(size + k) - lgamma(size) - lgamma(k + 1.0) - size * log(dispersion) + k * log1p(-1 / dispersion));
}

struct reference {
    const struct leat_mdp_problem *problem;
    uint32_t bins, k, targets, counts; /* targets: (queue_max + 1) * bins, then full; counts: arrivals that are looked at */
    double *slack_us;
    double **kernels; /* [queue_max + 1][variant_count], where they were needed */
};

static struct reference
reference_of(const struct leat_mdp_problem *problem)
{
    struct reference ref = {.problem = problem, .bins = leat_mdp_bin_count(problem)};
    ref.k = problem->split == LEAT_MDP_ROUND_ROBIN ? problem->worker_count : 1;
    ref.targets = (problem->queue_max + 1) * ref.bins + 1;
    ref.counts = (problem->queue_max + 2) * ref.k + 200;
    ref.slack_us = allocate(ref.bins * sizeof(double));
    ref.kernels = allocate((problem->queue_max + 1) * (problem->variant_count + 1) * sizeof(*ref.kernels));
    memset(ref.kernels, 0, (problem->queue_max + 1) * (problem->variant_count + 1) * sizeof(*ref.kernels));
    leat_mdp_slacks(problem, ref.slack_us);
    return ref;
}

static void
free_reference(struct reference *ref)
{
    for (uint32_t i = 0; i < (ref->problem->queue_max + 1) * (ref->problem->variant_count + 1); i++) {
        free(ref->kernels[i]);
    }
    free(ref->kernels);
    free(ref->slack_us);
}

static double
reference_rate(const struct reference *ref, uint32_t n, double *ret_dispersion)
{
    const struct leat_mdp_problem *p = ref->problem;
    const double share = p->rate_per_us / p->worker_count;
    double rate = share;
    if (p->split == LEAT_MDP_ROUND_ROBIN) {
        *ret_dispersion = p->dispersion;
        return p->rate_per_us;
    }
    if (n >= 3) {
        EXPECT(p->service_rate_per_us > 0);
        rate = fmin(share, pow(share / p->service_rate_per_us, p->worker_count) * p->service_rate_per_us);
    }
    *ret_dispersion = 1 + (p->dispersion - 1) * rate / p->rate_per_us;
    return rate;
}

static void
reference_pmf(const struct reference *ref, uint32_t n, double us, double *pmf)
{
    double dispersion;
    const double rate = reference_rate(ref, n, &dispersion);
    for (uint32_t k = 0; k < ref->counts; k++) {
        pmf[k] = reference_pf(rate, dispersion, us, k);
    }
}

static void
reference_prior(const struct reference *ref, uint32_t n, uint32_t bin, double *prior)
{
    const double waited_us = ref->problem->objective_us - (n > ref->problem->queue_max ? 0 : ref->slack_us[bin]);
    double dispersion, sum = 0;
    bool underflow = false;
    const double rate = reference_rate(ref, 0, &dispersion);
    for (uint32_t r = 0; r < ref->k; r++) {
        prior[r] = reference_pf(rate, dispersion, waited_us, (n - 1) * ref->k + r);
        underflow = underflow || prior[r] == 0;
    }
    for (uint32_t r = 0; r < ref->k; r++) {
        prior[r] += underflow ? 4.94e-324 : 0;
        sum += prior[r];
    }
    for (uint32_t r = 0; r < ref->k; r++) {
        prior[r] /= sum;
    }
}

/* ---- The reference: transitions ---------------------------------------------------------------- */

/* P(n', j' | r) of all queries running for tau, n' from 1; by [r][target]. */
static void
reference_kernel(const struct reference *ref, uint32_t n, double tau_us, double *to)
{
    const uint32_t k = ref->k, counts = ref->counts, queue_max = ref->problem->queue_max;
    double *b = allocate(counts * 8), *c = allocate(counts * 8), *d = allocate(counts * 8), *both = allocate(counts * 8);

    memset(to, 0, (size_t)k * ref->targets * sizeof(double));
    for (uint32_t bin = 0; bin < ref->bins; bin++) {
        const double later_us = tau_us - ref->problem->objective_us;
        const double low = bin == 0 ? 0 : fmax(0, later_us + ref->slack_us[bin]);
        const double high = bin + 1 == ref->bins ? tau_us : fmax(0, later_us + ref->slack_us[bin + 1]);
        if (high <= low) {
            continue;
        }
        reference_pmf(ref, n, low, b);
        reference_pmf(ref, n, high - low, c);
        reference_pmf(ref, n, fmax(0, tau_us - high), d);
        uint32_t end = counts;
        while (end > 1 && c[end - 1] < 1e-40) {
            end--;
        }
        for (uint32_t i = counts; i-- > 0;) { /* from here on: at least i */
            d[i] += i + 1 < counts ? d[i + 1] : 0;
        }
        for (uint32_t r = 0; r < k; r++) {
            memset(both, 0, counts * sizeof(double)); /* of B and C together, the worker's next in C */
            for (uint32_t i = 0; i + r < k; i++) {
                for (uint32_t j = k - r - i; i + j < counts && j < end; j++) {
                    both[i + j] += b[i] * c[j];
                }
            }
            for (uint32_t next = 1; next <= queue_max; next++) {
                double sum = 0;
                for (uint32_t s = 0; s < counts && s < end + k; s++) {
                    const int64_t least = (int64_t)next * k - r - s, most = (int64_t)(next + 1) * k - r - s;
                    if (most > 0) {
                        sum += both[s] * ((least < counts ? d[least > 0 ? least : 0] : 0) - (most < counts ? d[most] : 0));
                    }
                }
                to[(size_t)r * ref->targets + next * ref->bins + bin] = sum;
            }
        }
    }
    free(b);
    free(c);
    free(d);
    free(both);
}

/* Turns a sum over priors into a row: what is missing is full; nothing came leads to one query with all of its time. */
static void
reference_finish(const struct reference *ref, double empty, double *row)
{
    double sum = empty;
    for (uint32_t t = 0; t < ref->targets; t++) {
        sum += row[t];
    }
    row[ref->targets - 1] += fmax(0, 1 - sum);
    row[ref->bins + ref->bins - 1] += empty;
    sum += fmax(0, 1 - sum);
    for (uint32_t t = 0; t < ref->targets; t++) {
        row[t] /= sum;
    }
}

/* Expected time until h arrivals: P(fewer than h by t), integrated by Simpson's rule. */
static double
reference_passage(const struct reference *ref, uint32_t h)
{
    double dispersion, sum = 0;
    const double rate = reference_rate(ref, 0, &dispersion), step = 1 / rate / 50;
    for (uint32_t i = 0;; i++) {
        double fewer = 0;
        for (uint32_t k = 0; k < h; k++) {
            fewer += reference_pf(rate, dispersion, step * i, k);
        }
        sum += fewer * step / 3 * (i == 0 ? 1 : i % 2 == 1 ? 4 : 2);
        if (fewer < 1e-12) {
            return sum;
        }
    }
}

/* One row; passage[h] for the idle time, or NULL. */
static void
reference_row(struct reference *ref, uint32_t n, uint32_t bin, struct leat_mdp_action action, const double *passage,
              double *row, double *ret_us)
{
    const struct leat_mdp_problem *p = ref->problem;
    const bool drop = action.variant == LEAT_MDP_DROP, full = n > p->queue_max;
    const double tau_us = drop ? 0 : p->latency_us[action.variant * p->latency_stride + action.batch - 1];
    const double slack_us = full ? 0 : ref->slack_us[bin], waited_us = p->objective_us - slack_us;
    const uint32_t k = ref->k, left = n - action.batch;
    double *prior = allocate(k * 8), *pmf = allocate(ref->counts * 8), empty = 0;

    memset(row, 0, ref->targets * sizeof(double));
    reference_prior(ref, n, bin, prior);
    reference_pmf(ref, n, tau_us, pmf);
    *ret_us = tau_us;
    if (left == 0) {
        double **kernel = &ref->kernels[(n - 1) * (p->variant_count + 1) + (drop ? p->variant_count : action.variant)];
        if (*kernel == NULL) {
            *kernel = allocate((size_t)k * ref->targets * 8);
            reference_kernel(ref, n, tau_us, *kernel);
        }
        for (uint32_t r = 0; r < k; r++) {
            for (uint32_t t = 0; t < ref->targets; t++) {
                row[t] += prior[r] * (*kernel)[(size_t)r * ref->targets + t];
            }
            for (uint32_t m = 0; m + r < k; m++) {
                empty += prior[r] * pmf[m];
                *ret_us += passage != NULL ? prior[r] * pmf[m] * passage[k - r - m] : 0;
            }
        }
    }
    for (uint32_t j = 0; j < ref->bins && left > 0; j++) {
        double dispersion;
        const double rate = reference_rate(ref, n, &dispersion);
        /* The new oldest query came u after the old; u below y is a slack below slack_us + y - tau_us. */
        const double low = ref->slack_us[j] - slack_us + tau_us;
        const double high = j + 1 < ref->bins ? ref->slack_us[j + 1] - slack_us + tau_us : INFINITY;
        for (uint32_t r = 0; r < k; r++) {
            const uint32_t came = (n - 1) * k + r, needed = action.batch * k;
            double reached[2];
            for (int side = 0; side < 2; side++) {
                const double y = side == 0 ? (j == 0 ? -1 : low) : high;
                reached[side] = y > waited_us;
                if (y > 0 && y <= waited_us) {
                    for (uint32_t s = needed; s <= came; s++) {
                        reached[side] += reference_pf(rate, dispersion, y, s) *
                                         reference_pf(rate, dispersion, waited_us - y, came - s) /
                                         reference_pf(rate, dispersion, waited_us, came);
                    }
                }
            }
            for (uint32_t m = 0; m + r < (p->queue_max + 1 - left) * k; m++) {
                row[(left + (m + r) / k) * ref->bins + j] += prior[r] * pmf[m] * (reached[1] - reached[0]);
            }
        }
    }
    reference_finish(ref, empty, row);
    free(prior);
    free(pmf);
}

/* ---- Random problems --------------------------------------------------------------------------- */

enum { SMALL_VARIANTS = 4, SMALL_QUEUE = 6, SMALL_BINS = 13, SMALL_TARGETS = (SMALL_QUEUE + 1) * (SMALL_BINS + 20) + 1 };

struct small {
    struct leat_mdp_problem problem;
    double accuracy[SMALL_VARIANTS], latency_us[SMALL_VARIANTS][SMALL_QUEUE + 1];
};

static void
make_small(struct small *small, bool options)
{
    struct leat_mdp_problem *p = &small->problem;
    double base_us = 0;

    *p = (struct leat_mdp_problem){.variant_count = 1 + below(SMALL_VARIANTS),
                                   .worker_count = 1 + below(5),
                                   .queue_max = 1 + below(SMALL_QUEUE),
                                   .slack_bins = 1 + below(SMALL_BINS - 1),
                                   .latency_stride = SMALL_QUEUE + 1,
                                   .accuracy = small->accuracy,
                                   .latency_us = small->latency_us[0],
                                   .objective_us = 1000 * (0.5 + unit()),
                                   .dispersion = 1};
    for (uint32_t v = 0; v < SMALL_VARIANTS; v++) {
        base_us += p->objective_us * 0.4 * unit() + 1;
        small->accuracy[v] = 0.3 + 0.15 * (v + unit());
        for (uint32_t b = 0; b <= SMALL_QUEUE; b++) {
            small->latency_us[v][b] = base_us * (1 + (0.2 + 0.6 * unit()) * b);
        }
        if (v > 0 && below(6) == 0) { /* a tie wherever it is admissible */
            small->accuracy[v] = small->accuracy[v - 1];
            memcpy(small->latency_us[v], small->latency_us[v - 1], sizeof(small->latency_us[v]));
        }
    }
    p->rate_per_us = p->worker_count * (0.2 + 2 * unit()) / p->objective_us;
    if (options) {
        p->dispersion = below(2) == 0 ? 1 : 1 + 3 * unit();
        p->late_penalty = below(2) == 0 ? 0 : unit();
        p->grid = below(4) == 0 ? LEAT_MDP_BY_LATENCY : LEAT_MDP_FIXED;
        p->batching = (enum leat_mdp_batching)below(3);
        p->split = below(3) == 0 ? LEAT_MDP_SHORTEST_QUEUE : LEAT_MDP_ROUND_ROBIN;
        p->late = (enum leat_mdp_late)below(2);
        p->service_rate_per_us = p->rate_per_us / p->worker_count * (0.9 + unit());
    }
}

/* All actions of a state, in order. */
static uint32_t
actions_of(const struct reference *ref, uint32_t n, uint32_t bin, struct leat_mdp_action *ret_actions)
{
    const struct leat_mdp_problem *p = ref->problem;
    uint32_t count = 0;
    if (n > p->queue_max) {
        ret_actions[0] = p->late == LEAT_MDP_DROP_LATE ? (struct leat_mdp_action){LEAT_MDP_DROP, 1}
                                                       : (struct leat_mdp_action){0, (uint16_t)n};
        return 1;
    }
    for (uint32_t v = 0; v < p->variant_count; v++) {
        for (uint32_t b = 1; b <= n; b++) {
            const bool offered = b == n || p->batching == LEAT_MDP_VARIABLE ||
                                 (p->batching == LEAT_MDP_POWERS && (b == 1 || b == 2 || b == 4));
            if (offered && p->latency_us[v * p->latency_stride + b - 1] <= ref->slack_us[bin]) {
                ret_actions[count++] = (struct leat_mdp_action){(uint16_t)v, (uint16_t)b};
            }
        }
    }
    if (p->late == LEAT_MDP_SERVE_LATE && p->latency_us[n - 1] > ref->slack_us[bin]) {
        ret_actions[count++] = (struct leat_mdp_action){0, (uint16_t)n};
    }
    if (count == 0) {
        ret_actions[count++] = (struct leat_mdp_action){LEAT_MDP_DROP, 1};
    }
    return count;
}

/* One row of what is tested, dense, in the reference's layout. */
static void
dense_row(struct leat_mdp *mdp, uint32_t n, uint32_t bin, struct leat_mdp_action action, double *row)
{
    const uint32_t queue_max = mdp->problem.queue_max, step = leat_mdp_step(mdp, n, bin, action);
    const uint32_t state = leat_mdp_state(mdp, n, bin);
    double *values = allocate(((size_t)queue_max * mdp->stride + 1) * sizeof(double));

    EXPECT(step != LEAT_MDP_NONE);
    memset(values, 0, ((size_t)queue_max * mdp->stride + 1) * sizeof(double));
    if (step < mdp->kernel_count) {
        memcpy(mdp->kernels[step].mass, mdp->prior + (size_t)state * mdp->padded, mdp->padded * sizeof(double));
        leat_mdp_push(mdp, &mdp->kernels[step], values);
    } else {
        leat_mdp_push_row(mdp, &mdp->rows[step - mdp->kernel_count], 1, values);
    }
    memset(row, 0, mdp->bins * sizeof(double));
    for (uint32_t i = 0; i < queue_max; i++) {
        memcpy(row + (size_t)(i + 1) * mdp->bins, values + (size_t)i * mdp->stride, mdp->bins * sizeof(double));
    }
    row[(queue_max + 1) * mdp->bins] = values[(size_t)queue_max * mdp->stride];
    free(values);
}

static void
test_transitions(void)
{
    enum { PROBLEMS = LEAT_TEST_ROUNDS(150) };
    static double expected[SMALL_TARGETS], row[SMALL_TARGETS];
    for (uint32_t i = 0; i < PROBLEMS; i++) {
        struct leat_mdp_action actions[SMALL_VARIANTS * SMALL_QUEUE + 2];
        struct small small;
        make_small(&small, true);
        struct reference ref = reference_of(&small.problem);
        struct leat_mdp *mdp = make(&small.problem, NULL, 1 + below(3));
        EXPECT(ref.targets <= SMALL_TARGETS);
        EXPECT(ref.slack_us[0] == 0 && ref.slack_us[ref.bins - 1] == small.problem.objective_us);
        for (uint32_t sample = 0; sample < 12; sample++) {
            const uint32_t n = 1 + below(small.problem.queue_max + 1);
            const uint32_t bin = n > small.problem.queue_max ? 0 : below(ref.bins);
            const uint32_t count = actions_of(&ref, n, bin, actions);
            const struct leat_mdp_action action = actions[below(count)];
            double us, sum = 0;
            reference_row(&ref, n, bin, action, NULL, expected, &us);
            dense_row(mdp, n, bin, action, row);
            for (uint32_t t = 0; t < ref.targets; t++) {
                EXPECT(row[t] >= 0 && fabs(row[t] - expected[t]) < 1e-9);
                sum += row[t];
            }
            EXPECT(fabs(sum - 1) < 1e-12);
        }
        free(mdp);
        free_reference(&ref);
    }
}

/* ---- Literal solution -------------------------------------------------------------------------- */

/* All rows of a problem, as the reference has them. */
struct dense {
    struct reference ref;
    uint32_t states; /* with the full one, the last */
    uint32_t *first; /* [states + 1]: its first choice */
    struct leat_mdp_action *actions;
    double *rows, *us, *reward[2]; /* by choice; rewards by mode */
    uint32_t (*span)[2];           /* by choice: the states from the first to behind the last that it leads to */
};

static void
state_of(const struct dense *dense, uint32_t state, uint32_t *ret_n, uint32_t *ret_bin)
{
    *ret_n = state / dense->ref.bins + 1;
    *ret_bin = state % dense->ref.bins;
}

static void
make_dense(struct dense *dense, const struct leat_mdp_problem *problem, bool idle)
{
    struct reference ref = reference_of(problem);
    const uint32_t batches = problem->batching == LEAT_MDP_MAXIMAL ? 1 : problem->queue_max;
    const uint32_t choices_max = problem->variant_count * batches + 2;
    double *passage = allocate((ref.k + 1) * sizeof(double));
    uint32_t count = 0;

    *dense = (struct dense){.ref = ref, .states = problem->queue_max * ref.bins + 1};
    dense->first = allocate((dense->states + 1) * sizeof(uint32_t));
    dense->actions = allocate((size_t)dense->states * choices_max * sizeof(struct leat_mdp_action));
    for (uint32_t h = 0; h <= ref.k; h++) {
        passage[h] = idle ? reference_passage(&ref, h) : 0;
    }
    for (uint32_t state = 0; state < dense->states; state++) {
        uint32_t n, bin;
        state_of(dense, state, &n, &bin);
        dense->first[state] = count;
        count += actions_of(&ref, n, bin, dense->actions + count);
    }
    dense->first[dense->states] = count;
    dense->rows = allocate((size_t)count * ref.targets * sizeof(double));
    dense->us = allocate(count * sizeof(double));
    dense->span = allocate(count * sizeof(*dense->span));
    dense->reward[0] = allocate(count * sizeof(double));
    dense->reward[1] = allocate(count * sizeof(double));
    for (uint32_t state = 0; state < dense->states; state++) {
        for (uint32_t i = dense->first[state]; i < dense->first[state + 1]; i++) {
            const struct leat_mdp_action action = dense->actions[i];
            uint32_t n, bin;
            state_of(dense, state, &n, &bin);
            reference_row(&ref, n, bin, action, passage, dense->rows + (size_t)i * ref.targets, &dense->us[i]);
            const bool late = n > problem->queue_max || action.variant == LEAT_MDP_DROP ||
                              problem->latency_us[action.variant * problem->latency_stride + action.batch - 1] >
                                  ref.slack_us[bin];
            double *row = dense->rows + (size_t)i * ref.targets + ref.bins; /* nothing leads to an empty queue */
            dense->span[i][0] = 0;
            dense->span[i][1] = dense->states;
            while (row[dense->span[i][0]] < 1e-30) {
                dense->span[i][0]++;
            }
            while (row[dense->span[i][1] - 1] < 1e-30) {
                dense->span[i][1]--;
            }
            dense->reward[0][i] = late ? 0 : problem->accuracy[action.variant] * action.batch / n;
            dense->reward[1][i] = (late ? -problem->late_penalty : problem->accuracy[action.variant]) * action.batch;
        }
    }
    free(passage);
}

static void
free_dense(struct dense *dense)
{
    free_reference(&dense->ref);
    free(dense->first);
    free(dense->span);
    free(dense->actions);
    free(dense->rows);
    free(dense->us);
    free(dense->reward[0]);
    free(dense->reward[1]);
}

static double
worth(const struct dense *dense, uint32_t choice, const double *values)
{
    const double *row = dense->rows + (size_t)choice * dense->ref.targets + dense->ref.bins;
    double sum = dense->reward[0][choice];
    for (uint32_t state = dense->span[choice][0]; state < dense->span[choice][1]; state++) {
        sum += row[state] * values[state];
    }
    return sum;
}

/* 100 sweeps, then what is best; `policy` has to be that, or as good. Returns how many actions are not the same. */
static uint32_t
check_paper(const struct dense *dense, const struct leat_mdp_action *policy)
{
    double *values = allocate(dense->states * sizeof(double)), *next = allocate(dense->states * sizeof(double));
    uint32_t differ = 0;
    memset(values, 0, dense->states * sizeof(double));
    for (uint32_t sweep = 0; sweep < 100; sweep++) {
        for (uint32_t state = 0; state < dense->states; state++) {
            next[state] = -INFINITY;
            for (uint32_t i = dense->first[state]; i < dense->first[state + 1]; i++) {
                next[state] = fmax(next[state], worth(dense, i, values));
            }
        }
        memcpy(values, next, dense->states * sizeof(double));
    }
    for (uint32_t state = 0; state + 1 < dense->states; state++) {
        double best = -INFINITY, ours = -INFINITY;
        struct leat_mdp_action action = {0};
        for (uint32_t i = dense->first[state]; i < dense->first[state + 1]; i++) {
            const double value = worth(dense, i, values);
            action = value > best ? dense->actions[i] : action;
            best = fmax(best, value);
            ours = memcmp(&dense->actions[i], &policy[state], sizeof(action)) == 0 ? value : ours;
        }
        EXPECT(ours >= best - 1e-8);
        differ += memcmp(&action, &policy[state], sizeof(action)) != 0;
    }
    free(values);
    free(next);
    return differ;
}

/* A policy's distribution after `steps`; choice[state] is its place in the rows. */
static void
reference_settle(const struct dense *dense, const uint32_t *choice, uint32_t steps, double *mass)
{
    double *next = allocate(dense->states * sizeof(double));
    memset(mass, 0, dense->states * sizeof(double));
    mass[dense->ref.bins - 1] = 1;
    for (uint32_t step = 1; step < steps; step++) {
        memset(next, 0, dense->states * sizeof(double));
        for (uint32_t state = 0; state < dense->states; state++) {
            if (mass[state] > 1e-30) {
                const double *row = dense->rows + (size_t)choice[state] * dense->ref.targets + dense->ref.bins;
                for (uint32_t t = dense->span[choice[state]][0]; t < dense->span[choice[state]][1]; t++) {
                    next[t] += mass[state] * row[t];
                }
            }
        }
        memcpy(mass, next, dense->states * sizeof(double));
    }
    free(next);
}

static void
choices_of(const struct dense *dense, const struct leat_mdp_action *policy, uint32_t *choice)
{
    for (uint32_t state = 0; state < dense->states; state++) {
        choice[state] = dense->first[state];
        while (state + 1 < dense->states && memcmp(&dense->actions[choice[state]], &policy[state], sizeof(*policy)) != 0) {
            choice[state]++;
            EXPECT(choice[state] < dense->first[state + 1]);
        }
    }
}

static void
check_value(const struct dense *dense, const struct leat_mdp_action *policy, const struct leat_mdp_value *value)
{
    const struct leat_mdp_problem *p = dense->ref.problem;
    if (value->steps > 1000) {
        return; /* the published code's figure is then not of the long run */
    }
    double *mass = allocate(dense->states * sizeof(double)), queries = 0, late = 0, accuracy = 0;
    uint32_t *choice = allocate(dense->states * sizeof(uint32_t));
    choices_of(dense, policy, choice);
    reference_settle(dense, choice, 1000, mass);
    for (uint32_t state = 0; state < dense->states; state++) {
        const struct leat_mdp_action action = dense->actions[choice[state]];
        const double weight = mass[state] * action.batch;
        const bool in_time = state + 1 < dense->states && action.variant != LEAT_MDP_DROP &&
                             p->latency_us[action.variant * p->latency_stride + action.batch - 1] <=
                                 dense->ref.slack_us[state % dense->ref.bins];
        queries += weight;
        late += in_time ? 0 : weight;
        accuracy += in_time ? weight * p->accuracy[action.variant] : 0;
    }
    EXPECT(near(value->violation, late / queries, 1e-9));
    EXPECT(near(value->accuracy, late < queries ? accuracy / (queries - late) : 0, 1e-8));
    free(mass);
    free(choice);
}

static void
test_paper_small(void)
{
    enum { PROBLEMS = LEAT_TEST_ROUNDS(120) };
    for (uint32_t i = 0; i < PROBLEMS; i++) {
        struct small small;
        struct dense dense;
        make_small(&small, i % 2 == 1);
        make_dense(&dense, &small.problem, false);
        struct leat_mdp *mdp = make(&small.problem, NULL, 1);
        struct leat_mdp_action *policy = make_policy(&small.problem);
        leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
        EXPECT(check_paper(&dense, policy) == 0);
        const struct leat_mdp_value value = value_of(mdp, policy);
        check_value(&dense, policy, &value);
        free(mdp);
        free(policy);
        free_dense(&dense);
    }
}

/* The paper's text task; a smaller one without the optimiser or with a sanitizer. */
static void
test_paper_text(void)
{
    struct ramsis_task task;
    struct dense dense;
    ramsis_read("text", &task);
    struct leat_mdp_problem problem = ramsis_problem(&task, 1200);
#if !defined(__OPTIMIZE__) || LEAT_TEST_SHARE > 1
    problem.queue_max = 10;
    problem.slack_bins = 25;
    problem.worker_count = 10;
#endif
    make_dense(&dense, &problem, false);
    struct leat_mdp *mdp = make(&problem, NULL, 1);
    struct leat_mdp_action *policy = make_policy(&problem);
    leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
    EXPECT(check_paper(&dense, policy) == 0);
    const struct leat_mdp_value value = value_of(mdp, policy);
    check_value(&dense, policy, &value);
    free(mdp);
    free(policy);
    free_dense(&dense);
}

/* ---- Gain by time ------------------------------------------------------------------------------ */

/* By the 2^14-th power of its transitions. */
static double
reference_gain(const struct dense *dense, const uint32_t *choice)
{
    enum { STATES_MAX = 12 };
    double power[STATES_MAX][STATES_MAX], square[STATES_MAX][STATES_MAX], reward = 0, us = 0;
    const uint32_t states = dense->states;
    EXPECT(states <= STATES_MAX);
    for (uint32_t state = 0; state < states; state++) {
        memcpy(power[state], dense->rows + (size_t)choice[state] * dense->ref.targets + dense->ref.bins,
               states * sizeof(double));
    }
    for (uint32_t times = 0; times < 14; times++) {
        for (uint32_t i = 0; i < states; i++) {
            for (uint32_t j = 0; j < states; j++) {
                square[i][j] = 0;
                for (uint32_t k = 0; k < states; k++) {
                    square[i][j] += power[i][k] * power[k][j];
                }
            }
        }
        memcpy(power, square, sizeof(power));
    }
    for (uint32_t state = 0; state < states; state++) {
        reward += power[0][state] * dense->reward[1][choice[state]];
        us += power[0][state] * dense->us[choice[state]];
    }
    return reward / us;
}

/* The next of all policies; false behind the last. */
static bool
next_policy(const struct dense *dense, uint32_t *choice)
{
    for (uint32_t state = 0; state < dense->states; state++) {
        if (++choice[state] < dense->first[state + 1]) {
            return true;
        }
        choice[state] = dense->first[state];
    }
    return false;
}

static void
test_gain_small(void)
{
    enum { PROBLEMS = LEAT_TEST_ROUNDS(60), POLICIES_MAX = 3000 };
    uint32_t tried = 0;
    while (tried < PROBLEMS) {
        struct small small;
        struct dense dense;
        struct leat_mdp_solution solution;
        double policies = 1, best = -INFINITY;
        make_small(&small, true);
        small.problem.queue_max = 1 + below(2);
        small.problem.slack_bins = 1 + below(3);
        small.problem.variant_count = 1 + below(2);
        small.problem.worker_count = 1 + below(3);
        small.problem.grid = LEAT_MDP_FIXED;
        make_dense(&dense, &small.problem, true);
        for (uint32_t state = 0; state < dense.states; state++) {
            policies *= dense.first[state + 1] - dense.first[state];
        }
        if (policies > 1 && policies <= POLICIES_MAX) {
            uint32_t *choice = allocate(dense.states * sizeof(uint32_t));
            memcpy(choice, dense.first, dense.states * sizeof(uint32_t));
            do {
                best = fmax(best, reference_gain(&dense, choice));
            } while (next_policy(&dense, choice));
            struct leat_mdp *mdp = make(&small.problem, NULL, 1);
            struct leat_mdp_action *policy = make_policy(&small.problem);
            leat_mdp_solve(mdp, LEAT_MDP_LEAT, policy, &solution);
            const struct leat_mdp_value value = value_of(mdp, policy);
            const double scale = small.problem.objective_us;
            EXPECT(near(value.gain_per_us * scale, solution.gain_per_us * scale, 1e-8));
            EXPECT(near(best * scale, solution.gain_per_us * scale, 1e-8));
            EXPECT(solution.residual >= -1e-12 && solution.residual <= 1e-9);
            choices_of(&dense, policy, choice);
            EXPECT(near(reference_gain(&dense, choice) * scale, best * scale, 1e-8));
            free(mdp);
            free(policy);
            free(choice);
            tried++;
        }
        free_dense(&dense);
    }
}

/* ---- The paper's tasks ------------------------------------------------------------------------- */

static void
test_sizes(void)
{
    struct ramsis_task task;
    uint32_t pairs = 0;
    ramsis_read("image", &task);
    const struct leat_mdp_problem problem = ramsis_problem(&task, 2000);
    struct leat_mdp *mdp = make(&problem, NULL, 1);
    struct reference ref = reference_of(&problem);
    EXPECT(mdp->kernel_count == 51);
    for (uint32_t n = 1; n <= problem.queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= problem.queue_max ? ref.bins : 1); bin++) {
            struct leat_mdp_action actions[64];
            const uint32_t count = actions_of(&ref, n, bin, actions);
            for (uint32_t i = 0; i < count; i++) {
                EXPECT(leat_mdp_step(mdp, n, bin, actions[i]) < mdp->kernel_count);
            }
            pairs += count;
        }
    }
    EXPECT(pairs + ref.bins == 3979); /* the published code counts the states of an empty queue, one action each */
    for (uint32_t i = 0; i < mdp->kernel_count; i++) {
        const struct leat_mdp_kernel *kernel = &mdp->kernels[i];
        for (uint32_t r = 0; r < mdp->residuals; r++) {
            double sum = kernel->empty[r] + kernel->full[r];
            for (uint32_t n = 0; n < kernel->n_count; n++) {
                const struct leat_mdp_band band = kernel->bands[(n * mdp->padded + r) / LEAT_MDP_LANES];
                for (uint32_t bin = 0; bin < band.count; bin++) {
                    sum += kernel->to[band.at + bin * LEAT_MDP_LANES + r % LEAT_MDP_LANES];
                }
            }
            EXPECT(fabs(sum - 1) < 1e-12);
        }
    }
    free(mdp);
    free_reference(&ref);
}

/* Where sweeps do not come to repeat themselves there are as many as in the paper's code. */
static void
test_sweeps(void)
{
    struct ramsis_task task;
    struct leat_mdp_solution solution;
    ramsis_read("text", &task);
    const struct leat_mdp_problem problem = ramsis_problem(&task, 4000);
    struct leat_mdp *mdp = make(&problem, NULL, 1);
    struct leat_mdp_action *policy = make_policy(&problem);
    leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, &solution);
    EXPECT(solution.sweeps == 100 && solution.residual > 1e-9);
    free(mdp);
    free(policy);
}

/* By time a policy is never worse than the paper's, whatever the load; and what solve says, evaluate says. */
static void
test_gain_tasks(void)
{
    static const char *const names[] = {"image", "text"};
    for (uint32_t i = 0; i < 2; i++) {
        struct ramsis_task task;
        ramsis_read(names[i], &task);
        /* At the last, what is best for text nearly alternates between two sizes of batches. */
        static const double rates_qps[] = {800, 1600, 2400, 3200, 5600};
        for (uint32_t rate = 0; rate < LEAT_COUNT_OF(rates_qps); rate++) {
            const struct leat_mdp_problem problem = ramsis_problem(&task, rates_qps[rate]);
            struct leat_mdp *mdp = make(&problem, NULL, 1);
            struct leat_mdp_action *paper = make_policy(&problem), *leat = make_policy(&problem);
            struct leat_mdp_solution solution;
            leat_mdp_solve(mdp, LEAT_MDP_PAPER, paper, NULL);
            leat_mdp_solve(mdp, LEAT_MDP_LEAT, leat, &solution);
            const struct leat_mdp_value of_paper = value_of(mdp, paper), of_leat = value_of(mdp, leat);
            EXPECT(solution.residual <= 1e-9);
            EXPECT(near(of_leat.gain_per_us * 1e6, solution.gain_per_us * 1e6, 1e-8));
            EXPECT(of_leat.accuracy_per_query >= of_paper.accuracy_per_query - 1e-9);
            free(mdp);
            free(paper);
            free(leat);
        }
    }
}

/* ---- Options ----------------------------------------------------------------------------------- */

static double
best_gain(const struct leat_mdp_problem *problem)
{
    struct leat_mdp_solution solution;
    struct leat_mdp_action *policy = make_policy(problem);
    struct leat_mdp *mdp = make(problem, NULL, 1);
    leat_mdp_solve(mdp, LEAT_MDP_LEAT, policy, &solution);
    EXPECT(solution.residual <= 1e-9);
    free(mdp);
    free(policy);
    return solution.gain_per_us * problem->objective_us;
}

static void
test_batching(void)
{
    for (uint32_t i = 0; i < 40; i++) {
        struct small small;
        struct leat_mdp_problem *p = &small.problem;
        make_small(&small, true);
        p->late = LEAT_MDP_SERVE_LATE; /* who drops does so where nothing that is offered is in time */
        p->batching = LEAT_MDP_VARIABLE;
        const double variable = best_gain(p);
        p->batching = LEAT_MDP_POWERS;
        const double powers = best_gain(p);
        p->batching = LEAT_MDP_MAXIMAL;
        const double maximal = best_gain(p);
        EXPECT(variable >= powers - 1e-8 && powers >= maximal - 1e-8); /* each offers what the next does */

        /* Where two take too long for the objective, batches of one are all that can be in time. */
        for (uint32_t v = 0; v < SMALL_VARIANTS; v++) {
            for (uint32_t b = 1; b <= SMALL_QUEUE; b++) {
                small.latency_us[v][b] = p->objective_us * (1 + 0.01 * b);
            }
        }
        p->batching = LEAT_MDP_POWERS;
        const double ones = best_gain(p);
        p->batching = LEAT_MDP_VARIABLE;
        EXPECT(near(best_gain(p), ones, 1e-8));
    }
}

/* Dispersion just above 1 is Poisson, and more of it never helps where the paper's policies have no slack left. */
static void
test_dispersion(void)
{
    struct ramsis_task task;
    ramsis_read("text", &task);
    struct leat_mdp_problem problem = ramsis_problem(&task, 2000);
    struct leat_mdp_value values[3];
    const double dispersions[] = {1, 1 + 1e-9, 2};
    for (uint32_t i = 0; i < 3; i++) {
        problem.dispersion = dispersions[i];
        struct leat_mdp *mdp = make(&problem, NULL, 2);
        struct leat_mdp_action *policy = make_policy(&problem);
        leat_mdp_solve(mdp, LEAT_MDP_LEAT, policy, NULL);
        values[i] = value_of(mdp, policy);
        free(mdp);
        free(policy);
    }
    EXPECT(near(values[0].accuracy_per_query, values[1].accuracy_per_query, 1e-7));
    EXPECT(near(values[0].accuracy, values[1].accuracy, 1e-5));
    EXPECT(values[2].accuracy_per_query < values[0].accuracy_per_query - 1e-4);
}

/* A chain for one policy says of it what the chain for solving says, and takes policies that are not admissible. */
static void
test_policies(void)
{
    for (uint32_t i = 0; i < 60; i++) {
        struct small small;
        struct leat_mdp_value value;
        make_small(&small, true);
        small.problem.queue_max += small.problem.queue_max == 1;
        struct leat_mdp *mdp = make(&small.problem, NULL, 1), *parts = make(&small.problem, NULL, 1 + below(5));
        struct leat_mdp_action *policy = make_policy(&small.problem), *same = make_policy(&small.problem);
        leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
        leat_mdp_solve(parts, LEAT_MDP_PAPER, same, NULL);
        EXPECT(memcmp(policy, same, mdp->states * sizeof(*policy)) == 0);
        const struct leat_mdp_value all = value_of(mdp, policy);
        struct leat_mdp *one = make(&small.problem, policy, 1 + below(3));
        const struct leat_mdp_value alone = value_of(one, policy);
        EXPECT(near(all.accuracy, alone.accuracy, 1e-10) && near(all.violation, alone.violation, 1e-10));
        EXPECT(near(all.gain_per_us, alone.gain_per_us, 1e-10) && near(all.busy, alone.busy, 1e-10));
        free(one);

        const uint32_t last = small.problem.variant_count - 1;
        for (uint32_t state = 0; state < mdp->states; state++) { /* the slowest variant, one query a batch, however late */
            policy[state] = (struct leat_mdp_action){(uint16_t)last, 1};
        }
        EXPECT(leat_mdp_check_policy(&small.problem, policy) == LEAT_OK);
        EXPECT(leat_mdp_evaluate(mdp, policy, &value) == LEAT_ERR_INVALID);
        one = make(&small.problem, policy, 1);
        value = value_of(one, policy);
        EXPECT(value.violation >= 0 && value.violation <= 1 && value.accuracy <= small.accuracy[last] + 1e-12);
        free(one);
        policy[mdp->states - 1] = (struct leat_mdp_action){(uint16_t)(last + 1), 1};
        EXPECT(leat_mdp_check_policy(&small.problem, policy) == LEAT_ERR_INVALID);
        policy[mdp->states - 1] = (struct leat_mdp_action){LEAT_MDP_DROP, 2};
        EXPECT(leat_mdp_check_policy(&small.problem, policy) == LEAT_ERR_INVALID);
        policy[mdp->states - 1] = (struct leat_mdp_action){0, 1};
        policy[0] = (struct leat_mdp_action){0, 2};
        EXPECT(leat_mdp_check_policy(&small.problem, policy) == LEAT_ERR_INVALID);
        free(mdp);
        free(parts);
        free(policy);
        free(same);
    }
}

/* The service rate that is taken where none is given. */
static void
test_service_rate(void)
{
    struct ramsis_task task;
    double chosen = 0;
    ramsis_read("text", &task);
    struct leat_mdp_problem problem = ramsis_problem(&task, 1600);
    problem.split = LEAT_MDP_SHORTEST_QUEUE;
    for (uint32_t v = 0; v < task.variant_count; v++) {
        double best = 0;
        for (uint32_t b = 1; b <= 32; b++) {
            best = task.latency_us[v][b - 1] <= problem.objective_us ? fmax(best, b / task.latency_us[v][b - 1]) : best;
        }
        chosen = best >= problem.rate_per_us / problem.worker_count ? best : chosen;
    }
    EXPECT(chosen > 0);
    const double given = best_gain(&problem);
    problem.service_rate_per_us = chosen;
    EXPECT(best_gain(&problem) == given);
    problem.service_rate_per_us = chosen * 1.1;
    EXPECT(best_gain(&problem) != given);
}

/* P(at least s of k), each with chance p. */
static double
binomial_tail(uint32_t k, uint32_t s, double p)
{
    double sum = 0;
    for (uint32_t i = s; i <= k && p > 0; i++) {
        const double ways_log = lgamma(k + 1.0) - lgamma(i + 1.0) - lgamma(k - i + 1.0);
        sum += p < 1 ? exp(ways_log + i * log(p) + (k - i) * log1p(-p)) : i == k;
    }
    return sum;
}

/*
 * The most workers: on the way to likely numbers are some that a machine can hardly hold. Against sums over all arrivals
 * while the batch runs, or while the oldest query waited, which lie in time as in a uniform order.
 */
static void
test_many_workers(void)
{
    enum { WORKERS = LEAT_MDP_WORKERS_MAX };
    static const double accuracy[] = {0.5};
    static const double latency_us[] = {20000, 26000, 32000, 38000, 44000, 50000, 56000};
    const struct leat_mdp_problem problem = {.variant_count = 1, .worker_count = WORKERS, .queue_max = 6, .slack_bins = 60,
                                             .latency_stride = 7, .accuracy = accuracy, .latency_us = latency_us,
                                             .objective_us = 60000, .rate_per_us = WORKERS * 9e-5, .dispersion = 1,
                                             .batching = LEAT_MDP_VARIABLE};
    struct leat_mdp *mdp = make(&problem, NULL, 1);
    for (uint32_t sample = 0; sample < 60; sample++) { /* 6 kernels, 1 to 6 queries next; where the next comes is likely */
        const uint32_t batch = 1 + sample % 6;
        const struct leat_mdp_action action = {0, (uint16_t)batch};
        const struct leat_mdp_kernel *kernel = &mdp->kernels[leat_mdp_step(mdp, batch, 59, action)];
        const uint32_t total = (uint32_t)(problem.rate_per_us * kernel->tau_us), r = sample * 8 + below(8), a = WORKERS - r;
        const uint32_t n = (total + r) / WORKERS;
        const uint32_t bin = (uint32_t)((60000 - kernel->tau_us + a / problem.rate_per_us) / 1000) + below(3) - 1;
        const double low = fmax(0, (kernel->tau_us - 60000 + 1000.0 * bin) / kernel->tau_us);
        const double high = fmin(1, (kernel->tau_us - 60000 + 1000.0 * (bin + 1)) / kernel->tau_us);
        double expected = 0, kept = 0;
        if (n < 1 || bin >= 60) {
            continue;
        }
        for (uint32_t k = n * WORKERS - r; k < (n + 1) * WORKERS - r; k++) {
            const double likely = reference_pf(problem.rate_per_us, 1, kernel->tau_us, k);
            expected += likely > 1e-13 ? likely * (binomial_tail(k, a, high) - binomial_tail(k, a, low)) : 0;
        }
        const struct leat_mdp_band band = kernel->bands[((n - kernel->n_first) * mdp->padded + r) / LEAT_MDP_LANES];
        if (bin >= band.bin && bin < (uint32_t)band.bin + band.count) {
            kept = kernel->to[band.at + (bin - band.bin) * LEAT_MDP_LANES + r % LEAT_MDP_LANES];
        }
        EXPECT(fabs(kept - expected) < 1e-10);
    }

    /* One of two queries runs: the slack of the other. */
    const uint32_t slack_bin = 38, state = leat_mdp_state(mdp, 2, slack_bin);
    double *row = allocate(((size_t)(problem.queue_max + 1) * mdp->bins + 1) * sizeof(double));
    const double waited_us = 60000 - 1000.0 * slack_bin;
    dense_row(mdp, 2, slack_bin, (struct leat_mdp_action){0, 1}, row);
    for (uint32_t bin = 26; bin < 34; bin++) {
        double expected = 0, kept = 0;
        const double low = fmax(0, 1000.0 * bin - 1000.0 * slack_bin + 20000) / waited_us;
        const double high = fmin(1, (1000.0 * (bin + 1) - 1000.0 * slack_bin + 20000) / waited_us);
        for (uint32_t r = 0; r < WORKERS; r++) {
            const double likely = mdp->prior[(size_t)state * mdp->padded + r];
            if (likely > 1e-13) {
                expected += likely * (binomial_tail(WORKERS + r, WORKERS, high) - binomial_tail(WORKERS + r, WORKERS, low));
            }
        }
        for (uint32_t n = 1; n <= problem.queue_max; n++) {
            kept += row[n * mdp->bins + bin];
        }
        EXPECT(fabs(kept - expected) < 1e-10);
    }
    free(row);
    free(mdp);
}

/* Counts on their own, from the hardly possible to the nearly certain. */
static void
test_counts(void)
{
    for (uint32_t i = 0; i < 3000; i++) {
        double pmf[40];
        const double dispersion = below(2) == 0 ? 1 : 1 + exp(-8 + 10 * unit()), mean = exp(-40 + 47 * unit());
        const struct leat_mdp_counts counts = leat_mdp_counts_of(mean / 7, dispersion);
        const uint32_t k = below(2) == 0 ? below(30) : (uint32_t)(mean * 2 * unit());
        const double expected = reference_pf(mean / 7, dispersion, 7, k), value = exp(leat_mdp_counts_log(&counts, 7, k));
        const double size = dispersion > 1 ? mean / (dispersion - 1) : 0; /* the reference's own error grows with it */
        const double tolerance = 1e-9 + 1e-14 * size * log(size + 2);
        EXPECT(fabs(value - expected) <= tolerance * expected + 1e-300);
        leat_mdp_counts_fill(&counts, 7, k, 40, pmf);
        for (uint32_t j = 0; j < 40; j++) {
            const double alone = exp(leat_mdp_counts_log(&counts, 7, k + j));
            EXPECT(fabs(pmf[j] - alone) <= 1e-10 * alone + 1e-50);
        }
        const struct leat_mdp_range range = leat_mdp_counts_range(&counts, 7, 1e-6);
        double below_first = 0, above_last = 0;
        for (uint32_t j = 0; j < range.first && j < 3000; j++) {
            below_first += exp(leat_mdp_counts_log(&counts, 7, j));
        }
        for (uint32_t j = range.last + 1; j < range.last + 2000; j++) {
            above_last += exp(leat_mdp_counts_log(&counts, 7, j));
        }
        EXPECT(below_first <= 1e-6 && above_last <= 1e-6);
    }
}

static void
test_checks(void)
{
    struct small small;
    make_small(&small, false);
    const struct leat_mdp_problem good = small.problem;
    struct leat_mdp_problem bad[12];
    for (uint32_t i = 0; i < LEAT_COUNT_OF(bad); i++) {
        bad[i] = good;
    }
    bad[0].variant_count = 0;
    bad[1].worker_count = LEAT_MDP_WORKERS_MAX + 1;
    bad[2].queue_max = 0;
    bad[3].slack_bins = LEAT_MDP_BINS_MAX;
    bad[4].latency_stride = good.queue_max;
    bad[5].objective_us = NAN;
    bad[6].rate_per_us = 0;
    bad[7].dispersion = 0.9;
    bad[8].late_penalty = -1;
    bad[9].rate_per_us = INFINITY;
    bad[10].batching = (enum leat_mdp_batching)7;
    bad[11].service_rate_per_us = -1;
    EXPECT(leat_mdp_check(&good) == LEAT_OK);
    for (uint32_t i = 0; i < LEAT_COUNT_OF(bad); i++) {
        EXPECT(leat_mdp_check(&bad[i]) == LEAT_ERR_INVALID);
    }
    struct leat_mdp_problem large = good;
    large.grid = LEAT_MDP_FIXED;
    large.slack_bins = LEAT_MDP_BINS_MAX - 1;
    large.queue_max = LEAT_MDP_QUEUE_MAX;
    large.variant_count = LEAT_MDP_VARIANTS_MAX;
    large.latency_stride = LEAT_MDP_QUEUE_MAX + 1;
    double *ones = allocate(LEAT_MDP_VARIANTS_MAX * (LEAT_MDP_QUEUE_MAX + 1) * sizeof(double));
    for (uint32_t i = 0; i < LEAT_MDP_VARIANTS_MAX * (LEAT_MDP_QUEUE_MAX + 1); i++) {
        ones[i] = 1;
    }
    large.accuracy = large.latency_us = ones;
    EXPECT(leat_mdp_check(&large) == LEAT_OK);
    large.batching = LEAT_MDP_VARIABLE;
    EXPECT(leat_mdp_check(&large) == LEAT_ERR_LIMIT);
    free(ones);
    small.latency_us[0][0] = 0;
    EXPECT(leat_mdp_check(&good) == LEAT_ERR_INVALID);
    small.latency_us[0][0] = 1;
    small.accuracy[0] = 1.5;
    EXPECT(leat_mdp_check(&good) == LEAT_ERR_INVALID);
}

/* ---- Latency tables ---------------------------------------------------------------------------- */

static void
test_tables(void)
{
    static const uint32_t batches[] = {4, 1, 2, 40};
    static const double latencies[] = {40, 10, 50, 1};
    double table[10];
    struct ramsis_task task;

    /* 2 was measured as longer than 4; 3 and 5 lie on the line through (1, 10), (2, 50), (4, 40): 15 + 55 b / 7. */
    EXPECT(leat_latency_table_fill(batches, latencies, 4, 5, table) == LEAT_OK);
    const double line_3 = 15 + 165.0 / 7, line_5 = 15 + 275.0 / 7;
    EXPECT(near(table[4], line_5, 1e-12) && near(table[3], 40, 1e-12) && near(table[2], line_3, 1e-12));
    EXPECT(near(table[1], line_3, 1e-12) && near(table[0], 10, 1e-12));
    for (uint32_t b = 0; b < 5; b++) {
        table[b] = 3 + 2 * b;
    }
    EXPECT(leat_latency_table_extend(5, 10, table) == LEAT_OK);
    for (uint32_t b = 0; b < 10; b++) {
        EXPECT(near(table[b], 3 + 2.0 * b, 1e-12));
    }
    EXPECT(leat_latency_table_fill((const uint32_t[]){1, 2}, (const double[]){5, 4}, 2, 2, table) == LEAT_OK);
    EXPECT(table[0] == 4 && table[1] == 4);
    EXPECT(leat_latency_table_fill(batches, latencies, 1, 5, table) == LEAT_ERR_INVALID);
    EXPECT(leat_latency_table_fill((const uint32_t[]){1, 1}, latencies, 2, 5, table) == LEAT_ERR_INVALID);
    EXPECT(leat_latency_table_fill((const uint32_t[]){0, 1}, latencies, 2, 5, table) == LEAT_ERR_INVALID);
    EXPECT(leat_latency_table_fill((const uint32_t[]){3, 4}, (const double[]){1, 100}, 2, 5, table) == LEAT_ERR_INVALID);
    EXPECT(leat_latency_table_fill((const uint32_t[]){1, 2}, (const double[]){1, -1}, 2, 5, table) == LEAT_ERR_INVALID);
    table[0] = 10;
    table[1] = 1;
    EXPECT(leat_latency_table_extend(2, 10, table) == LEAT_ERR_INVALID);

    ramsis_read("text", &task);
    for (uint32_t b = 2; b < 8; b++) { /* bert_tiny's were measured as longer than that of 8 */
        EXPECT(task.latency_us[0][b] == task.latency_us[0][1]);
    }
}

/* The excerpt is what was published, where that is at hand. */
static void
test_excerpt(void)
{
    const char *folder = getenv("LEAT_DATA");
    struct leat_csv published, excerpt;
    char path[512], task[2][64], model[2][64];
    double p95_us[2];
    uint32_t batch[2], compared = 0;

    if (folder == NULL) {
        (void)printf("skipped, the excerpt beside all that was published: LEAT_DATA names no directory\n");
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/ramsis/latency_profiles.csv", folder);
    EXPECT(leat_csv_open(LEAT_TESTS_RAMSIS_FOLDER "/p95.csv", &excerpt) == LEAT_OK);
    while (leat_csv_next(&excerpt) == LEAT_OK) {
        EXPECT(leat_csv_name(&excerpt, leat_csv_find(&excerpt, "task"), task[0], 64) == LEAT_OK);
        EXPECT(leat_csv_name(&excerpt, leat_csv_find(&excerpt, "model"), model[0], 64) == LEAT_OK);
        EXPECT(leat_csv_integer(&excerpt, leat_csv_find(&excerpt, "batch"), 1, 32, &batch[0]) == LEAT_OK);
        EXPECT(leat_csv_number(&excerpt, leat_csv_find(&excerpt, "p95_us"), 0, 1e9, &p95_us[0]) == LEAT_OK);
        EXPECT(leat_csv_open(path, &published) == LEAT_OK);
        while (leat_csv_next(&published) == LEAT_OK) {
            EXPECT(leat_csv_name(&published, leat_csv_find(&published, "task"), task[1], 64) == LEAT_OK);
            EXPECT(leat_csv_name(&published, leat_csv_find(&published, "model"), model[1], 64) == LEAT_OK);
            EXPECT(leat_csv_integer(&published, leat_csv_find(&published, "batch_size"), 1, 1000, &batch[1]) == LEAT_OK);
            EXPECT(leat_csv_number(&published, leat_csv_find(&published, "p95_us"), 0, 1e9, &p95_us[1]) == LEAT_OK);
            if (strcmp(task[0], task[1]) == 0 && strcmp(model[0], model[1]) == 0 && batch[0] == batch[1]) {
                EXPECT(p95_us[0] == p95_us[1]);
                compared++;
            }
        }
        leat_csv_close(&published);
    }
    leat_csv_close(&excerpt);
    EXPECT(compared == 357);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    test_transitions();
    test_paper_small();
    test_paper_text();
    test_gain_small();
    test_sizes();
    test_sweeps();
    test_gain_tasks();
    test_batching();
    test_dispersion();
    test_policies();
    test_service_rate();
    test_many_workers();
    test_counts();
    test_checks();
    test_tables();
    test_excerpt();
    return 0;
}
