/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp_counts.h"

#include <math.h>
#include <string.h>

#define NEGLIGIBLE 1e-60 /* products of two such, and of many ratios below 1, are still normal numbers */

struct leat_mdp_counts
leat_mdp_counts_of(double rate_per_us, double dispersion)
{
    return (struct leat_mdp_counts){.rate_per_us = rate_per_us,
                                    .dispersion = dispersion,
                                    .linear = rate_per_us / dispersion,
                                    .growth = (dispersion - 1) / dispersion};
}

static double
log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* Stirling's series: log_gamma(x) is (x - 1/2) log x - x + log(2 pi) / 2 and this, for x of at least 16. */
static double
stirling(double x)
{
    const double square = 1 / (x * x);
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - square / 1680) * square) * square) / x;
}

/* Logarithm of k! / (k / e)^k. */
static double
log_excess(double k)
{
    static const double half_log_2pi = 0.91893853320467274178;
    if (k < 16) {
        return log_gamma(k + 1) - (k > 0 ? k * log(k) : 0) + k;
    }
    return half_log_2pi + 0.5 * log(k) + stirling(k);
}

/* Loader's form: the large terms cancel on paper, not in the machine. */
static double
log_poisson(double mean, double k)
{
    if (k <= 0) {
        return -mean;
    }
    const double off = (mean - k) / k;
    return k * ((off > -0.5 ? log1p(off) : log(mean / k)) - off) - log_excess(k);
}

/* log of growth^k * size (size + 1) ... (size + k - 1), where size * growth = linear * us. */
static double
log_rising(const struct leat_mdp_counts *counts, double us, double size, double k)
{
    if (size < 16) {
        return log_gamma(size + k) - log_gamma(size) + k * log(counts->growth);
    }
    return k * log(counts->linear * us) + (size + k - 0.5) * log1p(k / size) - k + stirling(size + k) - stirling(size);
}

double
leat_mdp_counts_log(const struct leat_mdp_counts *counts, double us, uint32_t k)
{
    const double mean = counts->rate_per_us * us, excess = counts->dispersion - 1;

    if (mean <= 0) {
        return k == 0 ? 0 : -INFINITY;
    }
    if (excess <= 0) {
        return log_poisson(mean, k);
    }
    const double size = mean / excess;
    return log_rising(counts, us, size, k) - size * log1p(excess) - log_gamma((double)k + 1);
}

double
leat_mdp_counts_mode(const struct leat_mdp_counts *counts, double us)
{
    const double mode = (counts->linear * us - counts->growth) / (1 - counts->growth);
    return mode > 0 ? floor(mode) : 0;
}

void
leat_mdp_counts_fill(const struct leat_mdp_counts *counts, double us, uint32_t first, uint32_t count, double *ret_pmf)
{
    const double linear = counts->linear * us, growth = counts->growth, mode = leat_mdp_counts_mode(counts, us);
    const uint32_t anchor = (uint32_t)fmin(fmax(mode, first), (double)first + count - 1);
    const double log_anchor = leat_mdp_counts_log(counts, us, anchor);

    memset(ret_pmf, 0, count * sizeof(*ret_pmf));
    double value = log_anchor > log(NEGLIGIBLE) ? exp(log_anchor) : 0;
    ret_pmf[anchor - first] = value;
    for (uint32_t k = anchor + 1; k < first + count && value > NEGLIGIBLE; k++) {
        value *= (linear + growth * (k - 1)) / k;
        ret_pmf[k - first] = value;
    }
    value = ret_pmf[anchor - first];
    for (uint32_t k = anchor; k > first && value > NEGLIGIBLE; k--) {
        value *= k / (linear + growth * (k - 1));
        ret_pmf[k - 1 - first] = value;
    }
}

struct leat_mdp_range
leat_mdp_counts_range(const struct leat_mdp_counts *counts, double us, double cutoff)
{
    const double mean = counts->rate_per_us * us, surprise = -log(cutoff);
    const double deviation = sqrt(2 * counts->dispersion * mean * surprise);
    const double scale = counts->growth > 0 ? counts->dispersion : 1.0 / 3; /* the upper tail is below exp(-k / scale) */
    return (struct leat_mdp_range){.first = (uint32_t)fmax(0, mean - deviation),
                                   .last = (uint32_t)fmin(mean + deviation + scale * surprise + 1, UINT32_MAX / 2)};
}
