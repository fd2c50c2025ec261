/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/histogram.h - counts of values in log-linear buckets: 16 to each power of two, so a bucket is within 1/16 of
 * the values in it, and exact below 32.
 *
 * Threads  One writer. Anyone may read meanwhile: each count is then some recent one, and no two are of one moment.
 * Hot path add() takes constant time: no division, no loop.
 * Memory   Fixed, 5 KiB, the caller's; all zeroes is empty.
 */
#ifndef LEAT_RUNTIME_HISTOGRAM_H
#define LEAT_RUNTIME_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define LEAT_HISTOGRAM_BITS    40u /* larger values count as the largest below 2^40: 18 minutes of nanoseconds */
#define LEAT_HISTOGRAM_BUCKETS (16 * (LEAT_HISTOGRAM_BITS - 3))

/* W: its one writer, relaxed. R: anyone, for statistics only. */
struct leat_histogram {
    _Atomic uint64_t counts[LEAT_HISTOGRAM_BUCKETS];
    _Atomic uint64_t max; /* as it was added */
};

struct leat_histogram_summary {
    uint64_t count, p50, p99, p999, max; /* percentiles: the largest value of their bucket, or max if that is less */
};

static inline uint32_t
leat_histogram_bucket(uint64_t value)
{
    const uint64_t last = (UINT64_C(1) << LEAT_HISTOGRAM_BITS) - 1;
    value = value < last ? value : last;
    const uint32_t shift = value < 32 ? 0 : 59u - (uint32_t)__builtin_clzll(value);
    return 16 * shift + (uint32_t)(value >> shift);
}

/* The largest value that belongs into it. */
static inline uint64_t
leat_histogram_top(uint32_t bucket)
{
    const uint32_t shift = bucket < 32 ? 0 : bucket / 16 - 1;
    return ((uint64_t)(bucket - 16 * shift + 1) << shift) - 1;
}

static inline void
leat_histogram_add(struct leat_histogram *histogram, uint64_t value)
{
    _Atomic uint64_t *count = &histogram->counts[leat_histogram_bucket(value)];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    if (value > atomic_load_explicit(&histogram->max, memory_order_relaxed)) {
        atomic_store_explicit(&histogram->max, value, memory_order_relaxed);
    }
}

/* Adds what was counted in the other; of both the caller is the writer. */
void leat_histogram_merge(struct leat_histogram *histogram, const struct leat_histogram *other);

struct leat_histogram_summary leat_histogram_summarise(const struct leat_histogram *histogram);

#endif /* LEAT_RUNTIME_HISTOGRAM_H */
