/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "sched/mdp_chain.h"

#define KERNEL_CUTOFF 1e-18 /* of probabilities that are left out */
#define ROW_CUTOFF    1e-13

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
    const uint32_t bin = leat_mdp_bin_of(mdp, mdp->problem.objective_us - kernel->tau_us);
    extent.arrivals = leat_mdp_counts_range(leat_mdp_counts_in(mdp, kernel->n), kernel->tau_us, KERNEL_CUTOFF);
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
        ret_ranges[e] = leat_mdp_counts_range(leat_mdp_counts_in(mdp, kernel->n), x_us, KERNEL_CUTOFF);
    }
}

size_t
leat_mdp_measure_kernel(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel)
{
    struct leat_mdp_range ranges[LEAT_MDP_BINS_MAX];
    const struct kernel_extent extent = extent_of(mdp, kernel);
    struct edges edges = {0, 0};
    uint32_t least = UINT32_MAX, most = 0, begin = 0, last = 0;
    size_t count = 0;

    kernel->n_first = 1;
    kernel->n_count = 0;
    if (kernel->tau_us <= 0) {
        return 0;
    }
    edge_ranges(mdp, kernel, &extent, ranges);
    for (uint32_t a = 1; a <= mdp->residuals; a++) {
        const struct leat_mdp_range n = n_range(mdp, &extent, a);
        const uint32_t first = n.first > 0 ? n.first : 1, r = mdp->residuals - a;
        edges = edges_at(ranges, extent.edges, a, edges);
        if (a == 1 || r % LEAT_MDP_LANES == LEAT_MDP_LANES - 1) { /* n falls with a, edges rise */
            begin = edges.begin;
            last = n.last;
        }
        if (last >= first) {
            least = first < least ? first : least;
            most = last > most ? last : most;
            count += r % LEAT_MDP_LANES > 0 ? 0 : (last - first + 1) * (edges.end - begin + 1) * LEAT_MDP_LANES;
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

struct leat_mdp_row
leat_mdp_measure_row(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, uint32_t batch, double tau_us)
{
    const uint32_t queue_max = mdp->problem.queue_max, k = mdp->residuals, left = n - batch;
    const double waited_us = mdp->problem.objective_us - mdp->slack_us[bin], after_us = mdp->slack_us[bin] - tau_us;
    struct leat_mdp_row row = {.n_first = left};
    const struct leat_mdp_range arrivals = leat_mdp_counts_range(leat_mdp_counts_in(mdp, n), tau_us, ROW_CUTOFF);
    uint32_t last = left + (arrivals.last + k - 1) / k;

    row.n_first = left + arrivals.first / k;
    last = last < queue_max ? last : queue_max;
    row.n_count = row.n_first <= last ? last - row.n_first + 1 : 0;

    row.bin_first = leat_mdp_bin_of(mdp, after_us);
    last = leat_mdp_bin_of(mdp, after_us + waited_us);
    if (leat_mdp_counts_in(mdp, n)->growth == 0 && waited_us > 0) {
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
    row.bin_stride = (uint32_t)leat_round_up(row.bin_count, LEAT_MDP_LANES);
    return row;
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

/* By edge, for one n. */
struct recurrence {
    double *among; /* P(at most a - 2 of v = nK + a - 1 come before | v) */
    double *exact; /* P(a - 1 of v | v): a number wherever it will matter, see LEAT_MDP_WORKERS_MAX */
    double *after; /* H */
    double *bins;  /* f64[edges + 1][LEAT_MDP_LANES]: what lies between edges, until all lanes are there */
    uint32_t first, end; /* of them that hold something */
};

/* `share` is what all bins hold, `after` an edge what those beyond it do. */
static void
take_bins(struct recurrence *recurrence, double share, struct edges edges, uint32_t lane)
{
    double beyond = share;
    for (uint32_t i = edges.begin; i <= edges.end; i++) {
        const double after = i < edges.end ? recurrence->after[i] : 0, here = beyond - after;
        beyond = after;
        if (here > KERNEL_CUTOFF) { /* rounding may leave less than nothing */
            recurrence->bins[i * LEAT_MDP_LANES + lane] = here;
            recurrence->first = i < recurrence->first ? i : recurrence->first;
            recurrence->end = i + 1 > recurrence->end ? i + 1 : recurrence->end;
        }
    }
}

static uint32_t
keep_band(struct leat_mdp_kernel *kernel, uint32_t at, uint32_t bin_first, struct recurrence *recurrence,
          struct leat_mdp_band *ret_band)
{
    const uint32_t first = recurrence->first, count = recurrence->end > first ? recurrence->end - first : 0;
    double *from = recurrence->bins + (count > 0 ? (size_t)first * LEAT_MDP_LANES : 0);
    const size_t bytes = (size_t)count * LEAT_MDP_LANES * sizeof(*from);

    *ret_band = (struct leat_mdp_band){.at = at, .bin = (uint16_t)(bin_first + (count > 0 ? first : 0)),
                                       .count = (uint16_t)count};
    if (count > 0) {
        memcpy(kernel->to + at, from, bytes);
        memset(from, 0, bytes);
    }
    recurrence->first = UINT32_MAX;
    recurrence->end = 0;
    return at + count * LEAT_MDP_LANES;
}

static void
build_bands(const struct leat_mdp *mdp, struct leat_mdp_kernel *kernel, const double *pmf, const struct windows *windows,
            double *scratch)
{
    const uint32_t k = mdp->residuals, stride = mdp->stride, n_end = kernel->n_first + kernel->n_count;
    const struct leat_mdp_counts *counts = leat_mdp_counts_in(mdp, kernel->n);
    struct urn urn = {.total = counts->linear * kernel->tau_us, .growth = counts->growth};
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
        here->bins = next + (size_t)3 * stride;
        memset(next, 0, (size_t)(3 + LEAT_MDP_LANES) * stride * sizeof(*next));
        next += (size_t)(3 + LEAT_MDP_LANES) * stride;
        here->first = UINT32_MAX;
        here->end = 0;
        for (uint32_t e = 0; e < extent.edges; e++) {
            urn.successes = early[e];
            here->exact[e] = n == 0 ? 1 : exp(urn_log(&urn, n * k, 0));
        }
    }
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
                take_bins(here, windows->share[(size_t)n * k + k - a], edges, (k - a) % LEAT_MDP_LANES);
            }
            if (n >= kernel->n_first && (k - a) % LEAT_MDP_LANES == 0) {
                at = keep_band(kernel, at, extent.bin_first, here,
                               &kernel->bands[((size_t)(n - kernel->n_first) * mdp->padded + k - a) / LEAT_MDP_LANES]);
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

    fill_windows(mdp, leat_mdp_counts_in(mdp, kernel->n), kernel->tau_us, pmf, windows);
    for (uint32_t r = 0; r < mdp->padded; r++) {
        kernel->empty[r] = r < k ? windows->share[r] : 0;
        kernel->full[r] = r < k ? windows->beyond[r] : 0;
        kernel->idle_us[r] = 0;
        kernel->mass[r] = 0;
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
    const struct leat_mdp_counts *counts = leat_mdp_counts_in(mdp, n);
    const double waited_us = mdp->problem.objective_us - mdp->slack_us[bin], after_us = mdp->slack_us[bin] - tau_us;
    struct urn urn = {.total = counts->linear * waited_us, .growth = counts->growth};
    double *early = scratch, *reached = early + mdp->stride, *exact = reached + mdp->stride, *spread = exact + mdp->stride;
    double sum = 0;

    row->full = 0;
    memset(row->to, 0, (size_t)row->n_count * row->bin_stride * sizeof(*row->to));
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
        const double weight = mdp->prior[(size_t)state * mdp->padded + r];
        spread[0] = edges > 0 ? reached[0] : 1;
        for (uint32_t e = 1; e < edges; e++) {
            spread[e] = reached[e] - reached[e - 1];
        }
        spread[edges] = edges > 0 ? 1 - reached[edges - 1] : 1;
        for (uint32_t i = 0; i < row->n_count; i++) {
            const double share = weight * windows->share[(size_t)(row->n_first + i - left) * k + r];
            double *restrict to = row->to + (size_t)i * row->bin_stride;
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
        }
    }
    for (uint32_t i = 0; i < row->n_count * row->bin_stride; i++) {
        row->to[i] = row->to[i] > 0 ? row->to[i] : 0;
        sum += row->to[i];
    }
    for (uint32_t i = 0; i < row->n_count * row->bin_stride; i++) {
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
            const struct leat_mdp_action action = leat_mdp_own_action(mdp, n, bin);
            fill_windows(mdp, leat_mdp_counts_in(mdp, n), leat_mdp_action_us(mdp, action), pmf, windows);
            build_row(mdp, &mdp->rows[row], n, bin, action.batch, leat_mdp_action_us(mdp, action), windows, scratch);
        }
    }
}

/* Those of all states that a variant and batch are admissible in. */
static void
build_column(struct leat_mdp *mdp, uint32_t variant, uint32_t batch, double *pmf, struct windows *windows, double *scratch)
{
    const uint32_t queue_max = mdp->problem.queue_max;
    const double tau_us = leat_mdp_latency(&mdp->problem, variant, batch);
    const struct leat_mdp_column *column = &mdp->columns[variant * queue_max + batch - 1];
    struct leat_mdp_row *row = mdp->rows + column->row;
    const struct leat_mdp_counts *filled = NULL;

    for (uint32_t n = batch + 1; n <= queue_max; n++) {
        if (leat_mdp_counts_in(mdp, n) != filled) {
            filled = leat_mdp_counts_in(mdp, n);
            fill_windows(mdp, filled, tau_us, pmf, windows);
        }
        for (uint32_t bin = column->bin_first; bin < mdp->bins; bin++) {
            build_row(mdp, row++, n, bin, batch, tau_us, windows, scratch);
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
        if (mdp->columns[i].row != LEAT_MDP_NONE) {
            build_column(mdp, i / queue_max, i % queue_max + 1, pmf, &windows, beyond + k);
        }
    }
}
