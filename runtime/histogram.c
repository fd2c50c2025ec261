/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/histogram.h"

/* The value that at least `rank` of the counted ones do not exceed. */
static uint64_t
value_at(const uint64_t *counts, uint64_t rank, uint64_t max)
{
    uint64_t before = 0;

    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        before += counts[b];
        if (before >= rank) {
            const uint64_t top = leat_histogram_top(b);
            return top < max ? top : max;
        }
    }
    return max;
}

/* The least whole number that is not below count * ppm / 10^6. */
static uint64_t
rank_of(uint64_t count, uint64_t ppm)
{
    return count / 1000000 * ppm + (count % 1000000 * ppm + 999999) / 1000000;
}

void
leat_histogram_merge(struct leat_histogram *histogram, const struct leat_histogram *other)
{
    const uint64_t max = atomic_load_explicit(&other->max, memory_order_relaxed);

    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        const uint64_t count = atomic_load_explicit(&other->counts[b], memory_order_relaxed);
        atomic_store_explicit(&histogram->counts[b],
                              atomic_load_explicit(&histogram->counts[b], memory_order_relaxed) + count, memory_order_relaxed);
    }
    if (max > atomic_load_explicit(&histogram->max, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max, max, memory_order_relaxed);
    }
}

struct leat_histogram_summary
leat_histogram_summarise(const struct leat_histogram *histogram)
{
    struct leat_histogram_summary summary = {.max = atomic_load_explicit(&histogram->max, memory_order_relaxed)};
    uint64_t counts[LEAT_HISTOGRAM_BUCKETS];

    for (uint32_t b = 0; b < LEAT_HISTOGRAM_BUCKETS; b++) {
        counts[b] = atomic_load_explicit(&histogram->counts[b], memory_order_relaxed);
        summary.count += counts[b];
    }
    if (summary.count > 0) {
        summary.p50 = value_at(counts, rank_of(summary.count, 500000), summary.max);
        summary.p99 = value_at(counts, rank_of(summary.count, 990000), summary.max);
        summary.p999 = value_at(counts, rank_of(summary.count, 999000), summary.max);
    }
    return summary;
}
