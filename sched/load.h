/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/load.h - how many items a second arrive, and how unevenly, over a moving window.
 *
 * Role      An application's arrivals are told one by one, those as well that are refused because it has too much to do;
 *           selectors, and whoever makes their policies or scales, ask what they amount to.
 * Items     What counts are a query's items: eight queries of one are the same load as one of eight, but arrive more evenly.
 * Rate      Arrivals of the last window over its length, by LEAT_LOAD_BUCKETS buckets: of the oldest, which the window
 *           only partly covers, as large a part is counted. While less than a window has passed since the start the time
 *           since then counts instead, a bucket's length at least: the first arrivals after a start look too many rather
 *           than too few. Asked on an arrival it counts that arrival, so it then says one query a window too much, at
 *           most.
 * Reaction  A rate that changes at once is seen in full a window later, in proportion before. After a silence of a window
 *           it is 0.
 * Rise      Queries, not items, say whether there is a rise: those of the present and the last LEAT_LOAD_RECENT - 1 whole buckets are
 *           more than an eighth of the whole window's, and two, by three standard deviations of a Poisson distribution.
 *           Then the rate is that of the items in these. It is seen within an eighth of a window, and of 1000 questions about
 *           even arrivals one at most sees a rise that is not there; bursts of that length are rises.
 * Dispersion  Index of dispersion of counts: variance of the arrivals in a bucket over their mean, of the whole buckets
 *           in the window. 1 for Poisson arrivals, more for bursts of up to a window's length, 0 for clockwork. By 64
 *           buckets it is known to 18 % (standard deviation).
 * Cost      An arrival and a question: no division, but for a rate within the first window and for the dispersion; no
 *           loop, but over buckets that have passed since the last call, at most LEAT_LOAD_BUCKETS + 1 of them.
 * Numerics  Integers: equal inputs, equal answers on every host. Rates are rounded down, after an error of 10^-4 at most.
 * Units     Nanoseconds on the caller's time line. It may stand still, and what runs backwards counts as standing still.
 * Threads   One owner; asking moves the window on, so it is for the owner too.
 */
#ifndef LEAT_SCHED_LOAD_H
#define LEAT_SCHED_LOAD_H

#include <stdint.h>

#define LEAT_LOAD_BUCKETS       64u
#define LEAT_LOAD_RECENT        8u
#define LEAT_LOAD_WINDOW_NS     UINT64_C(500000000) /* as in RAMSIS (EuroSys 2024) */
#define LEAT_LOAD_WINDOW_MIN_NS UINT64_C(1000000)
#define LEAT_LOAD_WINDOW_MAX_NS UINT64_C(60000000000)
#define LEAT_LOAD_POISSON_PPM   1000000u

struct leat_load {
    uint64_t bucket_ns;
    uint64_t started_ns;
    uint64_t bucket_start_ns; /* of the present bucket */
    uint64_t part_multiplier; /* part of a bucket, 1/2^16 = time in it * this >> 32 */
    uint64_t rate_multiplier; /* queries a second = arrivals in a window * this >> 20 */
    uint64_t sum, square_sum; /* of the whole buckets; of their squares */
    uint64_t queries, items;  /* since the start */
    uint32_t whole;           /* buckets since the start, or since there was nothing to know: at most LEAT_LOAD_BUCKETS */
    uint32_t present;         /* index of the present bucket */
    uint64_t query_sum;                     /* of the whole buckets */
    uint64_t recent_sum, recent_query_sum;  /* of the last LEAT_LOAD_RECENT - 1 whole ones */
    uint32_t counts[LEAT_LOAD_BUCKETS + 1]; /* ring: the present one, behind it the oldest whole one */
    uint32_t query_counts[LEAT_LOAD_BUCKETS + 1];
};

/* A window of 0 is LEAT_LOAD_WINDOW_NS; it is held between the bounds and rounded down to a multiple of buckets. */
void leat_load_init(struct leat_load *load, uint64_t window_ns, uint64_t now_ns);

void leat_load_arrive(struct leat_load *load, uint64_t now_ns, uint32_t items);

uint32_t leat_load_rate_qps(struct leat_load *load, uint64_t now_ns); /* at most UINT32_MAX */

/* The same, but for a rise: who decides for the next moments is not to wait until the window is full of it. */
uint32_t leat_load_rising_qps(struct leat_load *load, uint64_t now_ns);

/*
 * Parts per million; LEAT_LOAD_POISSON_PPM while fewer than half of the buckets are whole or less than two arrivals in
 * them.
 */
uint32_t leat_load_dispersion_ppm(struct leat_load *load, uint64_t now_ns);

#endif /* LEAT_SCHED_LOAD_H */
