/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp_chain.h"

#include <math.h>
#include <string.h>

#include "base/align.h"

#define PRIOR_CUTOFF 1e-20 /* of what is left out */
#define SMALLEST     4.9406564584124654e-324

/* ---- States and actions ------------------------------------------------------------------------ */

bool
leat_mdp_offers(const struct leat_mdp_problem *problem, uint32_t batch)
{
    return problem->batching == LEAT_MDP_VARIABLE || (problem->batching == LEAT_MDP_POWERS && leat_is_power_of_two(batch));
}

/* The first bin whose slack is at least `us`; bins where none is. */
static uint32_t
bin_from(const struct leat_mdp *mdp, double us)
{
    uint32_t low = 0, high = mdp->bins;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (us <= mdp->slack_us[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

uint32_t
leat_mdp_bin_of(const struct leat_mdp *mdp, double us)
{
    const uint32_t bin = bin_from(mdp, us);
    return bin < mdp->bins && mdp->slack_us[bin] <= us ? bin : bin > 0 ? bin - 1 : 0;
}

const struct leat_mdp_counts *
leat_mdp_counts_in(const struct leat_mdp *mdp, uint32_t n)
{
    return &mdp->counts[mdp->regimes == 2 && n >= 3];
}

/* Nothing ends in time, whatever the batch. */
static bool
is_hopeless(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        for (uint32_t batch = 1; batch <= n; batch++) {
            if ((batch == n || leat_mdp_offers(problem, batch)) &&
                leat_mdp_latency(problem, variant, batch) <= mdp->slack_us[bin]) {
                return false;
            }
        }
    }
    return true;
}

static bool
needs_kernel(const struct leat_mdp *mdp, uint32_t n, uint32_t variant)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const bool drops = problem->late == LEAT_MDP_DROP_LATE;

    if (n > problem->queue_max) {
        return variant == 0 && !drops;
    }
    if (variant == problem->variant_count && n > 1) {
        return false;
    }
    if (mdp->policy == NULL) {
        return variant == problem->variant_count ? drops
               : variant == 0 && !drops          ? true
                                                 : leat_mdp_latency(problem, variant, n) <= problem->objective_us;
    }
    for (uint32_t bin = 0; bin < mdp->bins; bin++) {
        const struct leat_mdp_action action = mdp->policy[leat_mdp_state(mdp, n, bin)];
        if (action.batch == n && (action.variant == LEAT_MDP_DROP ? problem->variant_count : action.variant) == variant) {
            return true;
        }
    }
    return false;
}

/* Does the state have the one row that row_of is for? */
static bool
needs_own_row(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    if (n > mdp->problem.queue_max) {
        return mdp->problem.late == LEAT_MDP_DROP_LATE;
    }
    if (mdp->policy != NULL) {
        return mdp->policy[leat_mdp_state(mdp, n, bin)].batch < n;
    }
    return mdp->problem.late == LEAT_MDP_DROP_LATE && n > 1 && is_hopeless(mdp, n, bin);
}

/* Rows of one variant and batch, one for each bin that has time and each n above the batch. */
static uint32_t
column_rows(const struct leat_mdp *mdp, uint32_t variant, uint32_t batch)
{
    if (mdp->policy != NULL || batch >= mdp->problem.queue_max || !leat_mdp_offers(&mdp->problem, batch)) {
        return 0;
    }
    const uint32_t bins = mdp->bins - bin_from(mdp, leat_mdp_latency(&mdp->problem, variant, batch));
    return bins * (mdp->problem.queue_max - batch);
}

uint32_t
leat_mdp_step(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, struct leat_mdp_action action)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const uint32_t variant = action.variant == LEAT_MDP_DROP ? problem->variant_count : action.variant;
    const uint32_t state = leat_mdp_state(mdp, n, bin);

    if (variant > problem->variant_count || action.batch == 0 || action.batch > n) {
        return LEAT_MDP_NONE;
    }
    if (action.batch == n) {
        return mdp->kernel_of[(n - 1) * (problem->variant_count + 1) + variant];
    }
    if (mdp->policy != NULL || variant == problem->variant_count) {
        return mdp->row_of[state] != LEAT_MDP_NONE ? mdp->kernel_count + mdp->row_of[state] : LEAT_MDP_NONE;
    }
    const struct leat_mdp_column *column = &mdp->columns[variant * problem->queue_max + action.batch - 1];
    if (bin < column->bin_first || column->row == LEAT_MDP_NONE) {
        return LEAT_MDP_NONE;
    }
    return mdp->kernel_count + column->row + (n - action.batch - 1) * (mdp->bins - column->bin_first) + bin -
           column->bin_first;
}

struct leat_mdp_action
leat_mdp_own_action(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    return mdp->policy != NULL && n <= mdp->problem.queue_max ? mdp->policy[leat_mdp_state(mdp, n, bin)]
                                                              : (struct leat_mdp_action){LEAT_MDP_DROP, 1};
}

double
leat_mdp_action_us(const struct leat_mdp *mdp, struct leat_mdp_action action)
{
    return action.variant == LEAT_MDP_DROP ? 0 : leat_mdp_latency(&mdp->problem, action.variant, action.batch);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static void *
carve(uintptr_t *at, size_t bytes)
{
    void *piece = (void *)*at;
    *at += leat_round_up(bytes, LEAT_CACHE_LINE);
    return piece;
}

/* Calls for each row, in order of their numbers; the first are those of row_of. */
struct walk {
    struct leat_mdp *mdp;
    uintptr_t at;
    bool store;
    uint32_t rows;
};

static void
place_row(struct walk *walk, uint32_t n, uint32_t bin, uint32_t batch, double tau_us)
{
    struct leat_mdp_row row = leat_mdp_measure_row(walk->mdp, n, bin, batch, tau_us);
    row.to = (double *)walk->at;
    walk->at += (size_t)row.n_count * row.bin_stride * sizeof(double);
    if (walk->store) {
        walk->mdp->rows[walk->rows] = row;
    }
    walk->rows++;
}

static void
place_rows(struct walk *walk)
{
    struct leat_mdp *mdp = walk->mdp;
    const uint32_t queue_max = mdp->problem.queue_max;

    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= queue_max ? mdp->bins : 1); bin++) {
            const bool needed = needs_own_row(mdp, n, bin);
            if (walk->store) {
                mdp->row_of[leat_mdp_state(mdp, n, bin)] = needed ? walk->rows : LEAT_MDP_NONE;
            }
            if (needed) {
                const struct leat_mdp_action action = leat_mdp_own_action(mdp, n, bin);
                place_row(walk, n, bin, action.batch, leat_mdp_action_us(mdp, action));
            }
        }
    }
    for (uint32_t variant = 0; variant < mdp->problem.variant_count; variant++) {
        for (uint32_t batch = 1; batch <= queue_max; batch++) {
            const double tau_us = leat_mdp_latency(&mdp->problem, variant, batch);
            const uint32_t first = bin_from(mdp, tau_us), rows = column_rows(mdp, variant, batch);
            if (walk->store) {
                mdp->columns[variant * queue_max + batch - 1] =
                    (struct leat_mdp_column){.bin_first = first, .row = rows > 0 ? walk->rows : LEAT_MDP_NONE};
            }
            for (uint32_t n = batch + 1; n <= queue_max && rows > 0; n++) {
                for (uint32_t bin = first; bin < mdp->bins; bin++) {
                    place_row(walk, n, bin, batch, tau_us);
                }
            }
        }
    }
}

static void
place_kernels(struct walk *walk)
{
    struct leat_mdp *mdp = walk->mdp;
    uint32_t count = 0;

    for (uint32_t n = 1; n <= mdp->problem.queue_max + 1; n++) {
        for (uint32_t variant = 0; variant <= mdp->problem.variant_count; variant++) {
            const bool needed = needs_kernel(mdp, n, variant);
            if (walk->store) {
                mdp->kernel_of[(n - 1) * (mdp->problem.variant_count + 1) + variant] = needed ? count : LEAT_MDP_NONE;
            }
            if (!needed) {
                continue;
            }
            struct leat_mdp_kernel kernel = {
                .n = n, .variant = variant, .tau_us = leat_mdp_latency(&mdp->problem, variant, n)};
            const size_t bytes = mdp->padded * sizeof(double);
            kernel.to = carve(&walk->at, leat_mdp_measure_kernel(mdp, &kernel) * sizeof(double));
            kernel.bands = carve(&walk->at, (size_t)kernel.n_count * mdp->padded / LEAT_MDP_LANES * sizeof(*kernel.bands));
            kernel.empty = carve(&walk->at, bytes);
            kernel.full = carve(&walk->at, bytes);
            kernel.idle_us = carve(&walk->at, bytes);
            kernel.value = carve(&walk->at, bytes);
            kernel.mass = carve(&walk->at, bytes);
            if (walk->store) {
                mdp->kernels[count] = kernel;
            }
            count++;
        }
    }
    mdp->kernel_count = count;
}

static size_t
scratch_count(const struct leat_mdp *mdp)
{
    const size_t queue = mdp->problem.queue_max + 2, k = mdp->residuals;
    /* Counts, their windows and the rest of them; by edge: shares, counts, and recurrences. */
    return (2 * queue + 2) * k + (2 + k + (3 + LEAT_MDP_LANES) * queue) * mdp->stride;
}

/* Lays everything out from `memory` on, or from 0 on to learn the size. slack_us is there already. */
static size_t
lay_out(struct leat_mdp *mdp, uintptr_t memory)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const uint32_t queue_max = problem->queue_max, residuals = mdp->residuals;
    struct walk kernels = {.mdp = mdp}, rows = {.mdp = mdp};
    const size_t all = mdp->states + 1, kernels_max = (size_t)(queue_max + 1) * (problem->variant_count + 1);
    uintptr_t at = memory;

    place_rows(&rows);
    mdp->row_count = rows.rows;
    (void)carve(&at, sizeof(*mdp));
    double *slack_us = carve(&at, mdp->bins * sizeof(double));
    for (uint32_t regime = 0; regime < mdp->regimes; regime++) {
        mdp->window[regime] = carve(&at, (size_t)(queue_max + 1) * mdp->stride * sizeof(double));
    }
    mdp->passage_us = carve(&at, (residuals + 1) * sizeof(double));
    mdp->prior = carve(&at, all * mdp->padded * sizeof(double));
    mdp->prior_first = carve(&at, all * sizeof(uint16_t));
    mdp->prior_end = carve(&at, all * sizeof(uint16_t));
    mdp->kernel_of = carve(&at, kernels_max * sizeof(uint32_t));
    mdp->kernels = carve(&at, kernels_max * sizeof(*mdp->kernels));
    mdp->row_of = carve(&at, all * sizeof(uint32_t));
    mdp->columns = carve(&at, (size_t)problem->variant_count * queue_max * sizeof(*mdp->columns));
    mdp->rows = carve(&at, rows.rows * sizeof(*mdp->rows));
    for (int i = 0; i < 2; i++) {
        mdp->values[i] = carve(&at, ((size_t)queue_max * mdp->stride + 1) * sizeof(double));
        mdp->mass[i] = carve(&at, ((size_t)queue_max * mdp->stride + 1) * sizeof(double));
    }
    mdp->choices = carve(&at, mdp->bins * sizeof(*mdp->choices));
    mdp->step = carve(&at, all * sizeof(uint32_t));
    mdp->scratch_count = leat_round_up(scratch_count(mdp), LEAT_CACHE_LINE / sizeof(double));
    mdp->scratch = carve(&at, mdp->parts * mdp->scratch_count * sizeof(double));
    if (memory != 0) {
        memcpy(slack_us, mdp->slack_us, mdp->bins * sizeof(double));
        mdp->slack_us = slack_us;
    }
    kernels = (struct walk){.mdp = mdp, .at = at, .store = memory != 0};
    place_kernels(&kernels);
    if (memory == 0) {
        return kernels.at + rows.at;
    }
    rows = (struct walk){.mdp = mdp, .at = kernels.at, .store = true};
    place_rows(&rows);
    return rows.at - memory;
}

/* ---- Arrivals of one worker -------------------------------------------------------------------- */

static double
service_rate(const struct leat_mdp_problem *problem)
{
    double chosen = 0;

    if (problem->service_rate_per_us > 0) {
        return problem->service_rate_per_us;
    }
    for (uint32_t variant = 0; variant < problem->variant_count; variant++) {
        double best = 0;
        for (uint32_t batch = 1; batch <= problem->queue_max; batch++) {
            const double us = leat_mdp_latency(problem, variant, batch);
            best = us <= problem->objective_us || (variant == 0 && best == 0) ? fmax(best, batch / us) : best;
        }
        chosen = variant == 0 || best >= problem->rate_per_us / problem->worker_count ? best : chosen;
    }
    return chosen;
}

static void
set_counts(struct leat_mdp *mdp)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    const double share = problem->rate_per_us / problem->worker_count;

    if (problem->split == LEAT_MDP_ROUND_ROBIN) {
        mdp->residuals = problem->worker_count;
        mdp->regimes = 1;
        mdp->counts[0] = leat_mdp_counts_of(problem->rate_per_us, problem->dispersion);
        return;
    }
    const double service = service_rate(problem), load = share / service;
    const double rates[] = {share, fmin(share, service * pow(load, problem->worker_count))};
    mdp->residuals = 1;
    mdp->regimes = 2;
    for (int i = 0; i < 2; i++) {
        const double kept = rates[i] / problem->rate_per_us;
        mdp->counts[i] = leat_mdp_counts_of(rates[i], 1 + kept * (problem->dispersion - 1));
    }
}

/* Expected time until h arrivals: clusters come as a Poisson process, and their sizes renew. */
static void
fill_passage(struct leat_mdp *mdp, double *size_pmf, double *visited)
{
    const struct leat_mdp_counts *counts = &mdp->counts[0];
    const double z = counts->growth, cluster_rate = z > 0 ? counts->linear * -log1p(-z) / z : counts->linear;

    mdp->passage_us[0] = 0;
    for (uint32_t k = 0; k < mdp->residuals; k++) {
        size_pmf[k] = k == 0 ? 0 : z > 0 ? pow(z, k) / (k * -log1p(-z)) : k == 1;
        visited[k] = k == 0;
        for (uint32_t i = 1; i <= k; i++) {
            visited[k] += size_pmf[i] * visited[k - i];
        }
        mdp->passage_us[k + 1] = mdp->passage_us[k] + visited[k] / cluster_rate;
    }
}

/* What the kernels have in common: y is from a bin's edge to the objective. */
static void
fill_edges(struct leat_mdp *mdp, double *pmf)
{
    const uint32_t queue_max = mdp->problem.queue_max, k = mdp->residuals;

    for (uint32_t regime = 0; regime < mdp->regimes; regime++) {
        const struct leat_mdp_counts *counts = &mdp->counts[regime];
        for (uint32_t bin = 0; bin < mdp->bins; bin++) {
            const double y_us = mdp->problem.objective_us - mdp->slack_us[bin];
            leat_mdp_counts_fill(counts, y_us, 0, queue_max * k + 1, pmf);
            for (uint32_t n = 0; n <= queue_max; n++) {
                double sum = 0;
                for (uint32_t i = n == 0 ? 0 : (n - 1) * k + 1; i <= n * k; i++) {
                    sum += pmf[i];
                }
                mdp->window[regime][(size_t)n * mdp->stride + bin] = n == 0 ? 0 : sum;
            }
        }
    }
}

/* Of residuals, given that (n - 1)K + r arrived while the oldest query waited. */
static void
fill_prior(struct leat_mdp *mdp, uint32_t n, double waited_us, uint32_t state)
{
    const struct leat_mdp_counts *counts = &mdp->counts[0];
    const uint32_t residuals = mdp->residuals, first = (n - 1) * residuals;
    double *prior = mdp->prior + (size_t)state * mdp->padded, sum = 0;

    memset(prior, 0, mdp->padded * sizeof(*prior));
    if (residuals == 1) {
        prior[0] = 1;
        mdp->prior_first[state] = 0;
        mdp->prior_end[state] = 1;
        return;
    }
    const double linear = counts->linear * waited_us;
    const double mode = fmin(fmax(leat_mdp_counts_mode(counts, waited_us), first), first + residuals - 1);
    const double most = leat_mdp_counts_log(counts, waited_us, (uint32_t)mode);
    if (most < -700) {
        /* The published code computes each probability, and where one underflows adds the smallest number to all. */
        bool underflow = false;
        for (uint32_t r = 0; r < residuals; r++) {
            prior[r] = most < -746 ? 0 : exp(leat_mdp_counts_log(counts, waited_us, first + r));
            underflow = underflow || prior[r] == 0;
        }
        for (uint32_t r = 0; r < residuals; r++) {
            prior[r] += underflow ? SMALLEST : 0;
        }
    } else {
        const uint32_t anchor = (uint32_t)mode - first;
        prior[anchor] = 1;
        for (uint32_t r = anchor + 1; r < residuals && prior[r - 1] > PRIOR_CUTOFF; r++) {
            prior[r] = prior[r - 1] * ((linear + counts->growth * (first + r - 1)) / (first + r));
        }
        for (uint32_t r = anchor; r > 0 && prior[r] > PRIOR_CUTOFF; r--) {
            prior[r - 1] = prior[r] * ((first + r) / (linear + counts->growth * (first + r - 1)));
        }
    }
    for (uint32_t r = 0; r < residuals; r++) {
        sum += prior[r];
    }
    uint32_t begin = 0, end = residuals;
    while (prior[begin] <= PRIOR_CUTOFF * sum) {
        prior[begin++] = 0;
    }
    while (prior[end - 1] <= PRIOR_CUTOFF * sum) {
        prior[--end] = 0;
    }
    for (uint32_t r = begin; r < end; r++) {
        prior[r] /= sum;
    }
    mdp->prior_first[state] = (uint16_t)begin;
    mdp->prior_end[state] = (uint16_t)end;
}

/* ---- Starting ---------------------------------------------------------------------------------- */

static struct leat_mdp
outline(const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy, uint32_t parts, double *slack_us)
{
    struct leat_mdp mdp = {.problem = *problem, .policy = policy, .parts = parts, .slack_us = slack_us};

    LEAT_ASSERT(parts >= 1 && parts <= LEAT_MDP_PARTS_MAX);
    mdp.bins = leat_mdp_bin_count(problem);
    mdp.stride = (uint32_t)leat_round_up(mdp.bins + LEAT_MDP_LANES - 1, LEAT_MDP_LANES);
    mdp.states = problem->queue_max * mdp.bins;
    leat_mdp_slacks(problem, slack_us);
    set_counts(&mdp);
    mdp.padded = (uint32_t)leat_round_up(mdp.residuals, LEAT_MDP_LANES);
    return mdp;
}

size_t
leat_mdp_bytes(const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy, uint32_t parts)
{
    double slack_us[LEAT_MDP_BINS_MAX];
    struct leat_mdp mdp = outline(problem, policy, parts, slack_us);
    return lay_out(&mdp, 0);
}

struct leat_mdp *
leat_mdp_init(void *memory, const struct leat_mdp_problem *problem, const struct leat_mdp_action *policy, uint32_t parts)
{
    double slack_us[LEAT_MDP_BINS_MAX];
    struct leat_mdp *mdp = memory;

    LEAT_ASSERT((uintptr_t)memory % LEAT_CACHE_LINE == 0);
    *mdp = outline(problem, policy, parts, slack_us);
    (void)lay_out(mdp, (uintptr_t)memory);
    fill_passage(mdp, mdp->scratch, mdp->scratch + mdp->residuals);
    fill_edges(mdp, mdp->scratch);
    for (uint32_t n = 1; n <= problem->queue_max; n++) {
        for (uint32_t bin = 0; bin < mdp->bins; bin++) {
            fill_prior(mdp, n, problem->objective_us - mdp->slack_us[bin], leat_mdp_state(mdp, n, bin));
        }
    }
    fill_prior(mdp, problem->queue_max + 1, problem->objective_us, mdp->states);
    return mdp;
}

/* ---- Through the chain ------------------------------------------------------------------------- */

typedef double lanes __attribute__((vector_size(LEAT_MDP_LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

#define LOAD(from)  (*(const lanes *)(from))
#define SUM_OF(all) (((all)[0] + (all)[1]) + ((all)[2] + (all)[3]))

/* Sums are in the same order on every machine. */
void
leat_mdp_apply(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, const double *values)
{
    const uint32_t padded = mdp->padded;
    const double idle = values[mdp->bins - 1], full = values[(size_t)mdp->problem.queue_max * mdp->stride];

    for (uint32_t r = 0; r < padded; r++) {
        kernel->value[r] = kernel->empty[r] * idle + kernel->full[r] * full;
    }
    for (uint32_t i = 0; i < kernel->n_count; i++) {
        const struct leat_mdp_band *bands = kernel->bands + (size_t)i * padded / LEAT_MDP_LANES;
        const double *all = values + (size_t)(kernel->n_first + i - 1) * mdp->stride;
        for (uint32_t r = 0; r < padded; r += LEAT_MDP_LANES) {
            const struct leat_mdp_band band = bands[r / LEAT_MDP_LANES];
            const double *to = kernel->to + band.at, *value = all + band.bin;
            lanes even = LOAD(kernel->value + r), odd = {0};
            uint32_t bin = 0;
            for (; bin + 2 <= band.count; bin += 2) {
                even += LOAD(to + (size_t)bin * LEAT_MDP_LANES) * value[bin];
                odd += LOAD(to + (size_t)(bin + 1) * LEAT_MDP_LANES) * value[bin + 1];
            }
            if (bin < band.count) {
                even += LOAD(to + (size_t)bin * LEAT_MDP_LANES) * value[bin];
            }
            *(lanes *)(kernel->value + r) = even + odd;
        }
    }
}

double
leat_mdp_mean(const struct leat_mdp *mdp, uint32_t state, const double *by_residual)
{
    const double *prior = mdp->prior + (size_t)state * mdp->padded;
    const uint32_t end = mdp->prior_end[state];
    uint32_t r = mdp->prior_first[state] & ~(LEAT_MDP_LANES - 1);
    lanes even = {0}, odd = {0};
    for (; r + LEAT_MDP_LANES < end; r += 2 * LEAT_MDP_LANES) {
        even += LOAD(prior + r) * LOAD(by_residual + r);
        odd += LOAD(prior + r + LEAT_MDP_LANES) * LOAD(by_residual + r + LEAT_MDP_LANES);
    }
    if (r < end) {
        even += LOAD(prior + r) * LOAD(by_residual + r);
    }
    even += odd;
    return SUM_OF(even);
}

double
leat_mdp_apply_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, const double *values)
{
    lanes sum = {0};
    for (uint32_t i = 0; i < row->n_count; i++) {
        const double *to = row->to + (size_t)i * row->bin_stride;
        const double *value = values + (size_t)(row->n_first + i - 1) * mdp->stride + row->bin_first;
        for (uint32_t bin = 0; bin < row->bin_stride; bin += LEAT_MDP_LANES) {
            sum += LOAD(to + bin) * LOAD(value + bin);
        }
    }
    return SUM_OF(sum) + row->full * values[(size_t)mdp->problem.queue_max * mdp->stride];
}

void
leat_mdp_push(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, double *values)
{
    const uint32_t padded = mdp->padded;

    for (uint32_t r = 0; r < padded; r += LEAT_MDP_LANES) {
        const lanes mass = LOAD(kernel->mass + r);
        if (SUM_OF(mass) <= 0) {
            continue;
        }
        values[mdp->bins - 1] += SUM_OF(mass * LOAD(kernel->empty + r));
        values[(size_t)mdp->problem.queue_max * mdp->stride] += SUM_OF(mass * LOAD(kernel->full + r));
        for (uint32_t i = 0; i < kernel->n_count; i++) {
            const struct leat_mdp_band band = kernel->bands[((size_t)i * padded + r) / LEAT_MDP_LANES];
            const double *to = kernel->to + band.at;
            double *value = values + (size_t)(kernel->n_first + i - 1) * mdp->stride + band.bin;
            for (uint32_t bin = 0; bin < band.count; bin++) {
                value[bin] += SUM_OF(mass * LOAD(to + (size_t)bin * LEAT_MDP_LANES));
            }
        }
    }
}

void
leat_mdp_push_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, double mass, double *values)
{
    values[(size_t)mdp->problem.queue_max * mdp->stride] += mass * row->full;
    for (uint32_t i = 0; i < row->n_count; i++) {
        const double *restrict to = row->to + (size_t)i * row->bin_stride;
        double *restrict value = values + (size_t)(row->n_first + i - 1) * mdp->stride + row->bin_first;
        for (uint32_t bin = 0; bin < row->bin_count; bin++) {
            value[bin] += mass * to[bin];
        }
    }
}
