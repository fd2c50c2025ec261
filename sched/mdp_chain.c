/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp_chain.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/align.h"

#define KERNEL_CUTOFF 1e-18 /* of probabilities that are left out */
#define ROW_CUTOFF    1e-13
#define PRIOR_CUTOFF  1e-20
#define SMALLEST      4.9406564584124654e-324

/* ---- States and actions ------------------------------------------------------------------------ */

bool
leat_mdp_offers(const struct leat_mdp_problem *problem, uint32_t batch)
{
    return problem->batching == LEAT_MDP_VARIABLE || (problem->batching == LEAT_MDP_POWERS && leat_is_power_of_two(batch));
}

uint32_t
leat_mdp_bin_from(const struct leat_mdp *mdp, double us)
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

/* The bin of a real slack. */
static uint32_t
bin_of(const struct leat_mdp *mdp, double us)
{
    const uint32_t bin = leat_mdp_bin_from(mdp, us);
    return bin < mdp->bins && mdp->slack_us[bin] <= us ? bin : bin > 0 ? bin - 1 : 0;
}

static const struct leat_mdp_counts *
counts_in(const struct leat_mdp *mdp, uint32_t n)
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
    const uint32_t bins = mdp->bins - leat_mdp_bin_from(mdp, leat_mdp_latency(&mdp->problem, variant, batch));
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
    const uint32_t first = leat_mdp_bin_from(mdp, leat_mdp_latency(problem, variant, action.batch));
    if (bin < first || column_rows(mdp, variant, action.batch) == 0) {
        return LEAT_MDP_NONE;
    }
    return mdp->kernel_count + mdp->column[variant * problem->queue_max + action.batch - 1] +
           (bin - first) * (problem->queue_max - action.batch) + n - action.batch - 1;
}

/* ---- Extents: what is likely enough to be kept ------------------------------------------------- */

/* Kernels are computed and kept where something is likely enough: by a = K - r, for some n' and some edges x. */
struct kernel_extent {
    struct leat_mdp_range arrivals; /* in tau */
    uint32_t bin_first, edges;      /* an edge lies between bins; edge e is where bin_first + 1 + e begins */
};

static double
edge_us(const struct leat_mdp *mdp, double tau_us, uint32_t bin)
{
    return fmax(0, tau_us - (mdp->problem.objective_us - mdp->slack_us[bin]));
}

static struct kernel_extent
extent_of(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel)
{
    struct kernel_extent extent;
    /* The first bin takes what is later than any, and none ends in the last bin: that is the objective itself. */
    const uint32_t bin = bin_of(mdp, mdp->problem.objective_us - kernel->tau_us);
    extent.arrivals = leat_mdp_counts_range(counts_in(mdp, kernel->n), kernel->tau_us, KERNEL_CUTOFF);
    extent.bin_first = bin < mdp->bins - 2 ? bin : mdp->bins - 2;
    extent.edges = mdp->bins - 2 - extent.bin_first;
    return extent;
}

/* The n' that a can lead to. What comes before the first has no arrival in common with it. */
static struct leat_mdp_range
n_range(const struct leat_mdp *mdp, const struct kernel_extent *extent, uint32_t a)
{
    const uint32_t k = mdp->residuals, r = k - a, queue_max = mdp->problem.queue_max;
    const uint32_t last = (extent->arrivals.last + r) / k;
    return (struct leat_mdp_range){(extent->arrivals.first + r) / k, last < queue_max ? last : queue_max};
}

/*
 * Edges before `begin` hold all arrivals up to the a-th almost never, those from `end` on almost always: `range` is that
 * of counts by edge. Starts from {0, 0} with a = 1 and goes up with a.
 */
struct edges {
    uint32_t begin, end;
};

static struct edges
edges_at(const struct leat_mdp_range *range, uint32_t count, uint32_t a, struct edges before)
{
    while (before.begin < count && range[before.begin].last < a) {
        before.begin++;
    }
    before.end = before.end < before.begin ? before.begin : before.end;
    while (before.end < count && range[before.end].first < a) {
        before.end++;
    }
    return before;
}

static void
edge_ranges(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, const struct kernel_extent *extent,
            struct leat_mdp_range *ret_ranges)
{
    for (uint32_t e = 0; e < extent->edges; e++) {
        const double x_us = edge_us(mdp, kernel->tau_us, extent->bin_first + 1 + e);
        ret_ranges[e] = leat_mdp_counts_range(counts_in(mdp, kernel->n), x_us, KERNEL_CUTOFF);
    }
}

/* Sets n_first and n_count; returns how many numbers it keeps at most. */
static size_t
measure_kernel(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel)
{
    struct leat_mdp_range ranges[LEAT_MDP_BINS_MAX];
    const struct kernel_extent extent = extent_of(mdp, kernel);
    struct edges edges = {0, 0};
    uint32_t least = UINT32_MAX, most = 0;
    size_t count = 0;

    kernel->n_first = 1;
    kernel->n_count = 0;
    if (kernel->tau_us <= 0) {
        return 0;
    }
    edge_ranges(mdp, kernel, &extent, ranges);
    for (uint32_t a = 1; a <= mdp->residuals; a++) {
        const struct leat_mdp_range n = n_range(mdp, &extent, a);
        const uint32_t first = n.first > 0 ? n.first : 1;
        edges = edges_at(ranges, extent.edges, a, edges);
        if (n.last >= first) {
            least = first < least ? first : least;
            most = n.last > most ? n.last : most;
            count += (n.last - first + 1) * leat_round_up(edges.end - edges.begin + 1, LEAT_MDP_LANES);
        }
    }
    kernel->n_first = least <= most ? least : 1;
    kernel->n_count = least <= most ? most - least + 1 : 0;
    return count;
}

/* Chernoff's bound on the share of k draws that are successes being beyond s / k. */
static bool
is_negligible(double k, double s, double share)
{
    const double p = s / k;
    if (share <= 0 || share >= 1) {
        return p != share;
    }
    const double above = p > 0 ? p * log(p / share) : 0, below = p < 1 ? (1 - p) * log((1 - p) / (1 - share)) : 0;
    return k * (above + below) > -log(ROW_CUTOFF);
}

static struct leat_mdp_row
row_extent(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, uint32_t batch, double tau_us)
{
    const uint32_t queue_max = mdp->problem.queue_max, k = mdp->residuals, left = n - batch;
    const double waited_us = mdp->problem.objective_us - mdp->slack_us[bin], after_us = mdp->slack_us[bin] - tau_us;
    struct leat_mdp_row row = {.n_first = left};
    const struct leat_mdp_range arrivals = leat_mdp_counts_range(counts_in(mdp, n), tau_us, ROW_CUTOFF);
    uint32_t last = left + (arrivals.last + k - 1) / k;

    row.n_first = left + arrivals.first / k;
    last = last < queue_max ? last : queue_max;
    row.n_count = row.n_first <= last ? last - row.n_first + 1 : 0;

    row.bin_first = bin_of(mdp, after_us);
    last = bin_of(mdp, after_us + waited_us);
    if (counts_in(mdp, n)->growth == 0 && waited_us > 0) {
        const double successes = (double)batch * k, most = (double)n * k - 1, least = (double)(n - 1) * k;
        while (row.bin_first < last) { /* the next edge: is it reached by the latest of bK in the most arrivals? */
            const double share = (mdp->slack_us[row.bin_first + 1] - after_us) / waited_us;
            if (share * most >= successes || !is_negligible(most, successes, share)) {
                break;
            }
            row.bin_first++;
        }
        while (last > row.bin_first) { /* the edge below: could the bK-th of the least arrivals be beyond it? */
            const double share = (mdp->slack_us[last] - after_us) / waited_us;
            if (share * least <= successes - 1 || !is_negligible(least, successes - 1, share)) {
                break;
            }
            last--;
        }
    }
    row.bin_count = last - row.bin_first + 1;
    return row;
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
    struct leat_mdp_row row = row_extent(walk->mdp, n, bin, batch, tau_us);
    row.to = (double *)walk->at;
    walk->at += (size_t)row.n_count * row.bin_count * sizeof(double);
    if (walk->store) {
        walk->mdp->rows[walk->rows] = row;
    }
    walk->rows++;
}

static struct leat_mdp_action
own_action(const struct leat_mdp *mdp, uint32_t n, uint32_t bin)
{
    return mdp->policy != NULL && n <= mdp->problem.queue_max ? mdp->policy[leat_mdp_state(mdp, n, bin)]
                                                              : (struct leat_mdp_action){LEAT_MDP_DROP, 1};
}

static double
action_us(const struct leat_mdp *mdp, struct leat_mdp_action action)
{
    return action.variant == LEAT_MDP_DROP ? 0 : leat_mdp_latency(&mdp->problem, action.variant, action.batch);
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
                const struct leat_mdp_action action = own_action(mdp, n, bin);
                place_row(walk, n, bin, action.batch, action_us(mdp, action));
            }
        }
    }
    for (uint32_t variant = 0; variant < mdp->problem.variant_count; variant++) {
        for (uint32_t batch = 1; batch <= queue_max; batch++) {
            const double tau_us = leat_mdp_latency(&mdp->problem, variant, batch);
            if (walk->store) {
                mdp->column[variant * queue_max + batch - 1] = walk->rows;
            }
            if (column_rows(mdp, variant, batch) == 0) {
                continue;
            }
            for (uint32_t bin = leat_mdp_bin_from(mdp, tau_us); bin < mdp->bins; bin++) {
                for (uint32_t n = batch + 1; n <= queue_max; n++) {
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
            const size_t bytes = mdp->residuals * sizeof(double);
            kernel.to = carve(&walk->at, measure_kernel(mdp, &kernel) * sizeof(double));
            kernel.bands = carve(&walk->at, (size_t)kernel.n_count * mdp->residuals * sizeof(*kernel.bands));
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
    return (2 * queue + 2) * k + (2 + k + 4 * queue) * mdp->stride;
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
    mdp->prior = carve(&at, all * residuals * sizeof(double));
    mdp->prior_first = carve(&at, all * sizeof(uint16_t));
    mdp->prior_end = carve(&at, all * sizeof(uint16_t));
    mdp->kernel_of = carve(&at, kernels_max * sizeof(uint32_t));
    mdp->kernels = carve(&at, kernels_max * sizeof(*mdp->kernels));
    mdp->row_of = carve(&at, all * sizeof(uint32_t));
    mdp->column = carve(&at, (size_t)problem->variant_count * queue_max * sizeof(uint32_t));
    mdp->rows = carve(&at, rows.rows * sizeof(*mdp->rows));
    for (int i = 0; i < 2; i++) {
        mdp->values[i] = carve(&at, ((size_t)queue_max * mdp->stride + 1) * sizeof(double));
        mdp->mass[i] = carve(&at, ((size_t)queue_max * mdp->stride + 1) * sizeof(double));
    }
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
    double *prior = mdp->prior + (size_t)state * residuals, sum = 0;

    if (residuals == 1) {
        prior[0] = 1;
        mdp->prior_first[state] = 0;
        mdp->prior_end[state] = 1;
        return;
    }
    const double linear = counts->linear * waited_us;
    const double mode = fmin(fmax(leat_mdp_counts_mode(counts, waited_us), first), first + residuals - 1);
    const double most = leat_mdp_counts_log(counts, waited_us, (uint32_t)mode);
    if (most < -600) {
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
        memset(prior, 0, residuals * sizeof(*prior));
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
    mdp->prior_first[state] = (uint16_t)residuals;
    mdp->prior_end[state] = 0;
    for (uint32_t r = 0; r < residuals; r++) {
        prior[r] /= sum;
        if (prior[r] > PRIOR_CUTOFF) {
            mdp->prior_first[state] = (uint16_t)(mdp->prior_end[state] == 0 ? r : mdp->prior_first[state]);
            mdp->prior_end[state] = (uint16_t)(r + 1);
        }
    }
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

/* ---- Transitions ------------------------------------------------------------------------------- */

/* P(n' queries come in tau | r) for n' from 0 to queue_max, and that of more. */
struct windows {
    double *share;  /* f64[queue_max + 1][residuals] */
    double *beyond; /* f64[residuals] */
};

static void
fill_windows(const struct leat_mdp *mdp, const struct leat_mdp_counts *counts, double tau_us, double *pmf,
             struct windows *windows)
{
    const uint32_t k = mdp->residuals, queue_max = mdp->problem.queue_max, end = (queue_max + 1) * k;
    const double linear = counts->linear * tau_us;
    double above = 0, below = 0;

    leat_mdp_counts_fill(counts, tau_us, 0, end + 1, pmf);
    for (uint32_t n = 0; n <= queue_max; n++) {
        double sum = 0;
        for (uint32_t i = n * k; i < (n + 1) * k; i++) {
            sum += pmf[i];
        }
        windows->share[(size_t)n * k] = sum;
        for (uint32_t r = 1; r < k; r++) { /* one more below, which at n = 0 does not exist, and one less above */
            sum += (n > 0 ? pmf[n * k - r] : 0) - pmf[(n + 1) * k - r];
            windows->share[(size_t)n * k + r] = fmax(0, sum);
        }
    }
    /* Summed from the end, where it converges, for a small number; else as what is left of 1. */
    if (counts->rate_per_us * tau_us < end) {
        double value = pmf[end];
        for (uint32_t i = end; value > 1e-30; i++) {
            above += value;
            value *= (linear + counts->growth * i) / (i + 1);
        }
    } else {
        for (uint32_t i = 0; i < end; i++) {
            below += pmf[i];
        }
        above = fmax(0, 1 - below);
    }
    for (uint32_t r = 0; r < k; r++) {
        windows->beyond[r] = above;
        above += pmf[end - 1 - r];
    }
}

/* Draws that are successes with chance (successes + growth s) / (total + growth k) after s of k: Bernoulli's or Polya's. */
struct urn {
    double successes, total, growth;
};

/* Logarithm of the probability of s of k. */
static double
urn_log(const struct urn *urn, uint32_t k, uint32_t s)
{
    const struct leat_mdp_counts counts = {.rate_per_us = 1, .dispersion = 1 / (1 - urn->growth), .linear = 1 - urn->growth,
                                           .growth = urn->growth};
    const double scale = 1 / (1 - urn->growth);
    return leat_mdp_counts_log(&counts, urn->successes * scale, s) +
           leat_mdp_counts_log(&counts, (urn->total - urn->successes) * scale, k - s) -
           leat_mdp_counts_log(&counts, urn->total * scale, k);
}

/* Keeps share, and what is left of it after each edge, as a band of differences. */
static uint32_t
keep_band(struct leat_mdp_kernel *kernel, uint32_t at, uint32_t bin, double share, const double *after, uint32_t edges,
          struct leat_mdp_band *ret_band)
{
    double *to = kernel->to + at;
    uint32_t first = edges + 1, end = 0;

    for (uint32_t i = 0; i <= edges; i++) { /* rounding may leave less than nothing */
        const double here = (i == 0 ? share : after[i - 1]) - (i == edges ? 0 : after[i]);
        to[i] = here > KERNEL_CUTOFF ? here : 0;
        first = to[i] > 0 && first > i ? i : first;
        end = to[i] > 0 ? i + 1 : end;
    }
    if (end == 0) {
        *ret_band = (struct leat_mdp_band){.at = at};
        return at;
    }
    memmove(to, to + first, (end - first) * sizeof(*to));
    const uint32_t count = end - first, padded = (uint32_t)leat_round_up(count, LEAT_MDP_LANES);
    memset(to + count, 0, (padded - count) * sizeof(*to));
    *ret_band = (struct leat_mdp_band){.at = at, .bin = (uint16_t)(bin + first), .count = (uint16_t)count};
    return at + padded;
}

/*
 * With v = nK + t arrivals in tau, t of them come before an edge: the probability at t = 0, or where that is too small to
 * be a number, at the first t where it matters.
 */
struct start {
    uint32_t t;
    double value;
};

static struct start
start_of(const struct urn *urn, uint32_t later, uint32_t k)
{
    const double growth = urn->growth, log_none = later == 0 ? 0 : urn_log(urn, later, 0);
    const double mode = later * urn->successes / (urn->total - urn->successes);
    uint32_t t = mode < k ? (uint32_t)mode : k;

    if (log_none > -600) {
        return (struct start){0, exp(log_none)};
    }
    double value = exp(urn_log(urn, later + t, t));
    while (t > 0 && value > 1e-25) {
        value *= t * (urn->total + growth * (later + t - 1.0)) / ((later + t) * (urn->successes + growth * (t - 1.0)));
        t--;
    }
    return (struct start){t, value};
}

/* By edge, for one n. */
struct recurrence {
    double *among; /* P(at most a - 2 of v = nK + a - 1 come before | v) */
    double *exact; /* P(a - 1 of v | v), 0 before it starts */
    double *after; /* H */
    uint32_t *start;
    uint32_t due; /* where the next one starts */
};

static void
start_exact(struct recurrence *recurrence, struct urn urn, const double *early, uint32_t edges, uint32_t later, uint32_t k,
            uint32_t t)
{
    recurrence->due = UINT32_MAX;
    for (uint32_t e = 0; e < edges; e++) {
        urn.successes = early[e];
        if (t == 0) {
            recurrence->start[e] = start_of(&urn, later, k).t;
        }
        if (recurrence->start[e] == t) {
            recurrence->exact[e] = start_of(&urn, later, k).value;
        } else if (recurrence->start[e] > t && recurrence->start[e] < recurrence->due) {
            recurrence->due = recurrence->start[e];
        }
    }
}

static void
build_bands(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel, const double *pmf, const struct windows *windows,
            double *scratch)
{
    const uint32_t k = mdp->residuals, stride = mdp->stride, n_end = kernel->n_first + kernel->n_count;
    const struct leat_mdp_counts *counts = counts_in(mdp, kernel->n);
    const struct urn urn = {.total = counts->linear * kernel->tau_us, .growth = counts->growth};
    const struct kernel_extent extent = extent_of(mdp, kernel);
    const double *window = mdp->window[counts - mdp->counts] + extent.bin_first + 1;
    double *early = scratch, *late = early + stride; /* linear x, linear y */
    double *one = late + stride, *before = one + k;  /* pmf(a - 1; x) */
    double *next = before + (size_t)k * stride;
    struct recurrence recurrences[LEAT_MDP_QUEUE_MAX + 1];
    struct leat_mdp_range ranges[LEAT_MDP_BINS_MAX];
    struct edges edges = {0, 0};
    uint32_t at = 0;

    edge_ranges(mdp, kernel, &extent, ranges);
    for (uint32_t e = 0; e < extent.edges; e++) {
        const uint32_t first = ranges[e].first, end = ranges[e].last < k ? ranges[e].last : k;
        const double x_us = edge_us(mdp, kernel->tau_us, extent.bin_first + 1 + e);
        early[e] = counts->linear * x_us;
        late[e] = urn.total - early[e];
        if (first < end) {
            leat_mdp_counts_fill(counts, x_us, first, end - first, one);
        }
        for (uint32_t i = first; i < end; i++) {
            before[(size_t)i * stride + e] = one[i - first];
        }
    }
    for (uint32_t n = kernel->n_first - 1; n < n_end; n++) {
        struct recurrence *here = &recurrences[n];
        here->among = next;
        here->exact = next + stride;
        here->after = next + (size_t)2 * stride;
        here->start = (uint32_t *)(next + (size_t)3 * stride);
        memset(next, 0, (size_t)3 * stride * sizeof(*next));
        next += (size_t)4 * stride;
        start_exact(here, urn, early, extent.edges, n * k, k, 0);
    }
    memset(kernel->bands, 0, (size_t)kernel->n_count * k * sizeof(*kernel->bands));
    for (uint32_t a = 1; a <= k; a++) {
        const struct leat_mdp_range range = n_range(mdp, &extent, a);
        const double *restrict x = before + (size_t)(a - 1) * stride;
        edges = edges_at(ranges, extent.edges, a, edges);
        for (uint32_t n = n_end; n-- > kernel->n_first - 1;) { /* that of n - 1 is still for a */
            struct recurrence *here = &recurrences[n];
            double *restrict among = here->among, *restrict exact = here->exact;
            const uint32_t v = n * k + a - 1;
            if (n >= kernel->n_first && n >= range.first && n <= range.last) {
                const double *restrict w = window + (size_t)n * stride, *restrict less = recurrences[n - 1].among;
                double *restrict after = here->after;
                const double likely = pmf[v], less_likely = pmf[v - k];
                for (uint32_t e = edges.begin; e < edges.end; e++) {
                    after[e] += x[e] * w[e] + (likely * among[e] - less_likely * less[e]);
                }
                at = keep_band(kernel, at, extent.bin_first + edges.begin, windows->share[(size_t)n * k + k - a],
                               after + edges.begin, edges.end - edges.begin,
                               &kernel->bands[(size_t)(n - kernel->n_first) * k + k - a]);
            }
            if (a - 1 == here->due) {
                start_exact(here, urn, early, extent.edges, n * k, k, a - 1);
            }
            const double drawn = urn.total + urn.growth * v, fewer = 1 / drawn, more = (v + 1) / (a * drawn);
            const double late_growth = urn.growth * ((double)n * k), early_growth = urn.growth * (a - 1);
            for (uint32_t e = edges.begin; e < extent.edges; e++) {
                among[e] += exact[e] * ((late[e] + late_growth) * fewer);
                exact[e] *= (early[e] + early_growth) * more;
            }
        }
    }
}

static void
build_kernel(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel, double *pmf, struct windows *windows,
             double *scratch)
{
    const uint32_t k = mdp->residuals;

    fill_windows(mdp, counts_in(mdp, kernel->n), kernel->tau_us, pmf, windows);
    for (uint32_t r = 0; r < k; r++) {
        kernel->empty[r] = windows->share[r];
        kernel->full[r] = windows->beyond[r];
        kernel->idle_us[r] = 0;
        for (uint32_t i = 0; i + r < k; i++) {
            kernel->idle_us[r] += pmf[i] * mdp->passage_us[k - r - i];
        }
    }
    if (kernel->n_count > 0) {
        build_bands(mdp, kernel, pmf, windows, scratch);
    }
}

/* P(at least s of k), and P(exactly s - 1). */
static double
urn_tail(const struct urn *urn, uint32_t k, uint32_t s, double *ret_less)
{
    const double g = urn->growth, failures = urn->total - urn->successes;
    double sum = 0;

    if (urn->successes <= 0 || failures <= 0) { /* none is one, or all are */
        *ret_less = failures <= 0 && s - 1 == k;
        return failures <= 0 && s <= k;
    }
    *ret_less = s - 1 <= k ? exp(urn_log(urn, k, s - 1)) : 0;
    if (s > k) {
        return 0;
    }
    /* Whichever side is the smaller, from s outwards. */
    if ((double)k * urn->successes < urn->total * s) {
        double value = exp(urn_log(urn, k, s));
        for (uint32_t i = s; value > 1e-25 && i <= k; i++) {
            sum += value;
            value *= (k - i) * (urn->successes + g * i) / ((i + 1) * (failures + g * (k - i - 1.0)));
        }
        return sum;
    }
    double value = *ret_less;
    for (uint32_t i = s - 1; value > 1e-25; i--) {
        sum += value;
        if (i == 0) {
            break;
        }
        value *= i * (failures + g * (k - i)) / ((k - i + 1.0) * (urn->successes + g * (i - 1.0)));
    }
    return 1 - sum;
}

/* What is drawn: the central arrivals while the oldest query waited. A success comes before the edge of a bin. */
static void
build_row(const struct leat_mdp *mdp, struct leat_mdp_row *row, uint32_t n, uint32_t bin, uint32_t batch, double tau_us,
          const struct windows *windows, double *scratch)
{
    const uint32_t k = mdp->residuals, queue_max = mdp->problem.queue_max, state = leat_mdp_state(mdp, n, bin);
    const uint32_t edges = row->bin_count - 1, s = batch * k, left = n - batch;
    const struct leat_mdp_counts *counts = counts_in(mdp, n);
    const double waited_us = mdp->problem.objective_us - mdp->slack_us[bin], after_us = mdp->slack_us[bin] - tau_us;
    struct urn urn = {.total = counts->linear * waited_us, .growth = counts->growth};
    double *early = scratch, *reached = early + mdp->stride, *exact = reached + mdp->stride, *spread = exact + mdp->stride;
    double sum = 0;

    row->full = 0;
    memset(row->to, 0, (size_t)row->n_count * row->bin_count * sizeof(*row->to));
    for (uint32_t e = 0; e < edges; e++) {
        const double us = mdp->slack_us[row->bin_first + 1 + e] - after_us;
        early[e] = urn.successes = counts->linear * fmin(fmax(us, 0), waited_us);
        reached[e] = us > 0;
        exact[e] = 0;
        if (waited_us > 0) {
            reached[e] = urn_tail(&urn, (n - 1) * k, s, &exact[e]);
        }
    }
    for (uint32_t r = 0; r < k; r++) {
        const uint32_t drawn = (n - 1) * k + r;
        const double weight = mdp->prior[(size_t)state * k + r];
        spread[0] = edges > 0 ? reached[0] : 1;
        for (uint32_t e = 1; e < edges; e++) {
            spread[e] = reached[e] - reached[e - 1];
        }
        spread[edges] = edges > 0 ? 1 - reached[edges - 1] : 1;
        for (uint32_t i = 0; i < row->n_count; i++) {
            const double share = weight * windows->share[(size_t)(row->n_first + i - left) * k + r];
            double *restrict to = row->to + (size_t)i * row->bin_count;
            for (uint32_t e = 0; e <= edges && share > 0; e++) {
                to[e] += share * spread[e];
            }
        }
        if (row->n_first + row->n_count > queue_max) { /* it goes as far as it can */
            double beyond = windows->beyond[r];
            for (uint32_t more = queue_max - left + 1; more <= queue_max; more++) {
                beyond += windows->share[(size_t)more * k + r];
            }
            row->full += weight * beyond;
        }
        const double fewer = 1 / (urn.total + urn.growth * drawn), more = (drawn + 1.0) / (drawn + 2.0 - s) * fewer;
        for (uint32_t e = 0; e < edges && waited_us > 0; e++) {
            reached[e] += exact[e] * ((early[e] + urn.growth * (s - 1)) * fewer);
            exact[e] *= (urn.total - early[e] + urn.growth * (drawn + 1.0 - s)) * more;
            if (exact[e] < 1e-290 && early[e] > 0 && early[e] < urn.total) { /* it may have been too small to be a number */
                urn.successes = early[e];
                exact[e] = exp(urn_log(&urn, drawn + 1, s - 1));
            }
        }
    }
    for (uint32_t i = 0; i < row->n_count * row->bin_count; i++) {
        row->to[i] = row->to[i] > 0 ? row->to[i] : 0;
        sum += row->to[i];
    }
    for (uint32_t i = 0; i < row->n_count * row->bin_count; i++) {
        row->to[i] /= sum + row->full;
    }
    row->full /= sum + row->full;
}

/* The rows of row_of, one in `parts`. */
static void
build_own_rows(struct leat_mdp *mdp, uint32_t part, double *pmf, struct windows *windows, double *scratch)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    for (uint32_t n = 1; n <= queue_max + 1; n++) {
        for (uint32_t bin = 0; bin < (n <= queue_max ? mdp->bins : 1); bin++) {
            const uint32_t row = mdp->row_of[leat_mdp_state(mdp, n, bin)];
            if (row == LEAT_MDP_NONE || row % mdp->parts != part) {
                continue;
            }
            const struct leat_mdp_action action = own_action(mdp, n, bin);
            fill_windows(mdp, counts_in(mdp, n), action_us(mdp, action), pmf, windows);
            build_row(mdp, &mdp->rows[row], n, bin, action.batch, action_us(mdp, action), windows, scratch);
        }
    }
}

/* Those of all states that a variant and batch are admissible in. */
static void
build_column(struct leat_mdp *mdp, uint32_t variant, uint32_t batch, double *pmf, struct windows *windows, double *scratch)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    const double tau_us = leat_mdp_latency(&mdp->problem, variant, batch);
    struct leat_mdp_row *column = mdp->rows + mdp->column[variant * queue_max + batch - 1];
    const uint32_t first = leat_mdp_bin_from(mdp, tau_us);
    const struct leat_mdp_counts *filled = NULL;

    for (uint32_t n = batch + 1; n <= queue_max; n++) {
        if (counts_in(mdp, n) != filled) {
            filled = counts_in(mdp, n);
            fill_windows(mdp, filled, tau_us, pmf, windows);
        }
        for (uint32_t bin = first; bin < mdp->bins; bin++) {
            build_row(mdp, &column[(bin - first) * (queue_max - batch) + n - batch - 1], n, bin, batch, tau_us, windows,
                      scratch);
        }
    }
}

void
leat_mdp_build(struct leat_mdp *mdp, uint32_t part)
{
    const uint32_t k = mdp->residuals, queue_max = mdp->problem.queue_max;
    double *pmf = mdp->scratch + part * mdp->scratch_count;
    double *share = pmf + (size_t)(queue_max + 2) * k, *beyond = share + (size_t)(queue_max + 1) * k;
    struct windows windows = {.share = share, .beyond = beyond};

    LEAT_ASSERT(part < mdp->parts);
    for (uint32_t i = part; i < mdp->kernel_count; i += mdp->parts) {
        build_kernel(mdp, &mdp->kernels[i], pmf, &windows, beyond + k);
    }
    build_own_rows(mdp, part, pmf, &windows, beyond + k);
    for (uint32_t i = part; i < mdp->problem.variant_count * queue_max; i += mdp->parts) {
        if (column_rows(mdp, i / queue_max, i % queue_max + 1) > 0) {
            build_column(mdp, i / queue_max, i % queue_max + 1, pmf, &windows, beyond + k);
        }
    }
}

/* ---- Through the chain ------------------------------------------------------------------------- */

typedef double lanes __attribute__((vector_size(LEAT_MDP_LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

/* In the same order on every machine. `count` is a multiple of the lanes. */
static inline double
dot(const double *a, const double *b, uint32_t count)
{
    lanes sum = *(const lanes *)a * *(const lanes *)b;
    for (uint32_t i = LEAT_MDP_LANES; i < count; i += LEAT_MDP_LANES) {
        sum += *(const lanes *)(a + i) * *(const lanes *)(b + i);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void
leat_mdp_apply(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, const double *values)
{
    const uint32_t k = mdp->residuals;
    const double idle = values[mdp->bins - 1], full = values[(size_t)mdp->problem.queue_max * mdp->stride];

    for (uint32_t r = 0; r < k; r++) {
        kernel->value[r] = kernel->empty[r] * idle + kernel->full[r] * full;
    }
    for (uint32_t i = 0; i < kernel->n_count; i++) {
        const struct leat_mdp_band *bands = kernel->bands + (size_t)i * k;
        const double *value = values + (size_t)(kernel->n_first + i - 1) * mdp->stride;
        for (uint32_t r = 0; r < k; r++) {
            if (bands[r].count > 0) {
                kernel->value[r] += dot(kernel->to + bands[r].at, value + bands[r].bin, bands[r].count);
            }
        }
    }
}

double
leat_mdp_mean(const struct leat_mdp *mdp, uint32_t state, const double *by_residual)
{
    const double *prior = mdp->prior + (size_t)state * mdp->residuals;
    double sums[4] = {0};
    uint32_t r = mdp->prior_first[state];
    const uint32_t end = mdp->prior_end[state];
    for (; r + 4 <= end; r += 4) {
        for (uint32_t i = 0; i < 4; i++) {
            sums[i] += prior[r + i] * by_residual[r + i];
        }
    }
    for (; r < end; r++) {
        sums[0] += prior[r] * by_residual[r];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

double
leat_mdp_apply_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, const double *values)
{
    double sum = row->full * values[(size_t)mdp->problem.queue_max * mdp->stride];
    for (uint32_t i = 0; i < row->n_count; i++) {
        const double *to = row->to + (size_t)i * row->bin_count;
        const double *value = values + (size_t)(row->n_first + i - 1) * mdp->stride + row->bin_first;
        for (uint32_t bin = 0; bin < row->bin_count; bin++) {
            sum += to[bin] * value[bin];
        }
    }
    return sum;
}

void
leat_mdp_push(const struct leat_mdp *mdp, const struct leat_mdp_kernel *kernel, double *values)
{
    const uint32_t k = mdp->residuals;

    for (uint32_t r = 0; r < k; r++) {
        const double mass = kernel->mass[r];
        if (mass <= 0) {
            continue;
        }
        values[mdp->bins - 1] += mass * kernel->empty[r];
        values[(size_t)mdp->problem.queue_max * mdp->stride] += mass * kernel->full[r];
        for (uint32_t i = 0; i < kernel->n_count; i++) {
            const struct leat_mdp_band band = kernel->bands[(size_t)i * k + r];
            const double *restrict to = kernel->to + band.at;
            double *restrict value = values + (size_t)(kernel->n_first + i - 1) * mdp->stride + band.bin;
            for (uint32_t bin = 0; bin < band.count; bin++) {
                value[bin] += mass * to[bin];
            }
        }
    }
}

void
leat_mdp_push_row(const struct leat_mdp *mdp, const struct leat_mdp_row *row, double mass, double *values)
{
    values[(size_t)mdp->problem.queue_max * mdp->stride] += mass * row->full;
    for (uint32_t i = 0; i < row->n_count; i++) {
        const double *restrict to = row->to + (size_t)i * row->bin_count;
        double *restrict value = values + (size_t)(row->n_first + i - 1) * mdp->stride + row->bin_first;
        for (uint32_t bin = 0; bin < row->bin_count; bin++) {
            value[bin] += mass * to[bin];
        }
    }
}
