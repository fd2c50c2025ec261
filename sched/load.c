/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/load.h"

#include <string.h>

#include "base/status.h"

#define BUCKETS    LEAT_LOAD_BUCKETS
#define SECOND_NS  UINT64_C(1000000000)
#define PART_SHIFT 16 /* of a part of a bucket */
#define RATE_SHIFT 20
#define COUNT_MAX  (UINT32_C(1) << 24) /* of a bucket: its square, 64 times, and a window's arrivals in 1/2^16 fit */

void
leat_load_init(struct leat_load *load, uint64_t window_ns, uint64_t now_ns)
{
    uint64_t held_ns = window_ns > 0 ? window_ns : LEAT_LOAD_WINDOW_NS;

    held_ns = held_ns > LEAT_LOAD_WINDOW_MIN_NS ? held_ns : LEAT_LOAD_WINDOW_MIN_NS;
    held_ns = held_ns < LEAT_LOAD_WINDOW_MAX_NS ? held_ns : LEAT_LOAD_WINDOW_MAX_NS;
    memset(load, 0, sizeof(*load));
    load->bucket_ns = held_ns / BUCKETS;
    load->started_ns = load->bucket_start_ns = now_ns;
    load->part_multiplier = (UINT64_C(1) << (32 + PART_SHIFT)) / load->bucket_ns;
    load->rate_multiplier = (SECOND_NS << RATE_SHIFT) / (load->bucket_ns * BUCKETS);
}

/* The present bucket is whole; the oldest makes room for the next one. */
static void
turn(struct leat_load *load)
{
    const uint64_t done = load->counts[load->present];
    const uint32_t left = (load->present + BUCKETS + 2 - LEAT_LOAD_RECENT) % (BUCKETS + 1); /* is recent no more */

    load->sum += done;
    load->query_sum += load->query_counts[load->present];
    load->recent_sum += done - load->counts[left];
    load->recent_query_sum += load->query_counts[load->present];
    load->recent_query_sum -= load->query_counts[left];
    load->square_sum += done * done;
    load->present = load->present < BUCKETS ? load->present + 1 : 0;
    const uint64_t oldest = load->counts[load->present]; /* 0 while there are fewer than BUCKETS whole ones */
    load->sum -= oldest;
    load->square_sum -= oldest * oldest;
    load->query_sum -= load->query_counts[load->present];
    load->counts[load->present] = 0;
    load->query_counts[load->present] = 0;
    load->whole += load->whole < BUCKETS;
    load->bucket_start_ns += load->bucket_ns;
}

/* Moves the window on. Returns the time spent in the present bucket, less than bucket_ns. */
static uint64_t
advance(struct leat_load *load, uint64_t now_ns)
{
    if (now_ns <= load->bucket_start_ns) {
        return 0;
    }
    if (LEAT_UNLIKELY(now_ns - load->bucket_start_ns >= (BUCKETS + 1) * load->bucket_ns)) { /* nothing in it is left */
        memset(load->counts, 0, sizeof(load->counts));
        memset(load->query_counts, 0, sizeof(load->query_counts));
        load->sum = load->square_sum = 0;
        load->query_sum = load->recent_sum = load->recent_query_sum = 0;
        load->whole = BUCKETS;
        load->bucket_start_ns = now_ns;
    }
    while (now_ns - load->bucket_start_ns >= load->bucket_ns) {
        turn(load);
    }
    return now_ns - load->bucket_start_ns;
}

void
leat_load_arrive(struct leat_load *load, uint64_t now_ns, uint32_t items)
{
    (void)advance(load, now_ns);
    load->queries++;
    load->items += items;
    load->query_counts[load->present] += load->query_counts[load->present] < COUNT_MAX;
    uint32_t *count = &load->counts[load->present];
    *count = items < COUNT_MAX - *count ? *count + items : COUNT_MAX;
}

uint32_t
leat_load_rate_qps(struct leat_load *load, uint64_t now_ns)
{
    const uint64_t into_ns = advance(load, now_ns);
    const uint64_t arrivals = load->sum + load->counts[load->present];
    uint64_t rate_qps;

    if (LEAT_UNLIKELY(load->whole < BUCKETS)) {
        const uint64_t since_ns = load->bucket_start_ns + into_ns - load->started_ns;
        rate_qps = arrivals * SECOND_NS / (since_ns > load->bucket_ns ? since_ns : load->bucket_ns);
    } else {
        const uint64_t oldest = load->counts[load->present < BUCKETS ? load->present + 1 : 0];
        const uint64_t part = into_ns * load->part_multiplier >> 32; /* of it that has left the window */
        uint64_t scaled;
        if (__builtin_mul_overflow((arrivals << PART_SHIFT) - oldest * part, load->rate_multiplier, &scaled)) {
            return UINT32_MAX;
        }
        rate_qps = scaled >> (PART_SHIFT + RATE_SHIFT);
    }
    return rate_qps < UINT32_MAX ? (uint32_t)rate_qps : UINT32_MAX;
}

uint32_t
leat_load_rising_qps(struct leat_load *load, uint64_t now_ns)
{
    const uint32_t rate_qps = leat_load_rate_qps(load, now_ns);
    const uint64_t recent = load->recent_query_sum + load->query_counts[load->present];
    const uint64_t expected = load->query_sum / (BUCKETS / LEAT_LOAD_RECENT) + 2; /* where few come, one more or less says nothing */

    if (LEAT_LIKELY(recent <= expected || load->whole < BUCKETS)) {
        return rate_qps;
    }
    const uint64_t beyond = recent - expected; /* below 2^27: its square fits */
    if (LEAT_LIKELY(beyond * beyond <= 9 * expected)) {
        return rate_qps;
    }
    const uint64_t items = load->recent_sum + load->counts[load->present]; /* below 2^27 */
    const uint64_t ns = (LEAT_LOAD_RECENT - 1) * load->bucket_ns + advance(load, now_ns);
    const uint64_t rising_qps = items * SECOND_NS / ns; /* the product is below 2^58 */
    const uint64_t held_qps = rising_qps < UINT32_MAX ? rising_qps : UINT32_MAX;
    return held_qps > rate_qps ? (uint32_t)held_qps : rate_qps;
}

uint32_t
leat_load_dispersion_ppm(struct leat_load *load, uint64_t now_ns)
{
    (void)advance(load, now_ns);
    if (load->whole < BUCKETS / 2 || load->sum < 2) {
        return LEAT_LOAD_POISSON_PPM;
    }
    /* n * square_sum >= sum^2, by Cauchy and Schwarz. */
    const uint64_t n = load->whole, spread = n * load->square_sum - load->sum * load->sum;
    const uint64_t unit = (n - 1) * load->sum;
    uint64_t scaled;
    if (__builtin_mul_overflow(spread, UINT64_C(1000000), &scaled)) { /* millions of arrivals: whole numbers do */
        const uint64_t ratio = spread / unit;
        return ratio < UINT32_MAX / 1000000 ? (uint32_t)ratio * 1000000u : UINT32_MAX;
    }
    const uint64_t dispersion = scaled / unit;
    return dispersion < UINT32_MAX ? (uint32_t)dispersion : UINT32_MAX;
}
