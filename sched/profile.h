/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/profile.h - how long a batch takes: a line from a handful of observations, then a table.
 *
 * Role     One profile is one (variant, worker class) of an application; every decision asks leat_profile_predict.
 *          All zeroes is a profile that knows nothing and predicts the 95th percentile.
 * Source   Kairos (HPDC'23), section 5.1: latency is close to linear in items, so a few queries give a line, and more
 *          of them fill a look-up table. Here the line is a robust one, the table has linear pieces between its
 *          knots, and a knot takes over from the line by degrees.
 * Line     Theil-Sen, pairs weighted by the logarithm of how many items they are apart, over at most
 *          LEAT_PROFILE_POINTS observations: of the two whose sizes are nearest by ratio the older makes room. Neither
 *          its slope nor its time at no items is ever negative. While all sizes lie within an eighth, times are
 *          proportional to items above them and constant below.
 * Table    Knots at every size up to 8, then 8 to an octave; linear in items between them. The first 4 observations
 *          teach the line alone. From then on a knot's share against the line grows with its samples, to the whole at 8:
 *          it is full. Elsewhere the line is held between the nearest full knots on both sides, so that times do not
 *          fall with items but where knots were taught so.
 * Learning A batch's time moves the two knots around its size, each by its share, by 1 / (n + 1) of what they were off,
 *          n growing with their samples to 63. An error counts for at most half of the prediction. Three
 *          running, all of them beyond 3/2 of it or all below 2/3, mean that the level has changed: n falls back to 2. Knots
 *          that were set and had no sample yet then move along, in proportion, by less the nearer the next one is that had:
 *          a class of workers that was measured while something held it up would else look slow for ever at sizes that it is
 *          never given for looking slow.
 *          The percentile is kept as a ratio to the mean, so that it follows the mean. The ratio moves by sign steps, up
 *          p / (1 - p) times as far as down, so that it settles where 1 - p of the samples lie above. That of
 *          a knot is that of all samples until it has had 2 / (1 - p) of its own.
 * Bounds   One sample, however wild, moves the mean at a full knot by at most 1/6 of itself, by 1/128 after 63 samples
 *          without a change of level; it moves the ratio by at most 1/7. With 1 in 50 samples a hundred times too long the
 *          mean settles at most 2 % high and the 95th percentile where 5 in 100 of all samples lie above. When all
 *          batches of a size take twice or half as long from now on, the mean is within 10 % of that after 32 of them;
 *          ten times or a tenth, after 48; less than half as much more or less, after 128.
 * Numerics Integers only: equal inputs give equal predictions on every host. Predicting between full knots takes no
 *          division and no loop; learning takes bounded time, and fits the line anew with one sample in 16.
 * Memory   sizeof(struct leat_profile), 3 KiB, the caller's. It may be copied.
 * Units    Nanoseconds, items, parts per million.
 * Threads  One writer; readers on the same thread.
 */
#ifndef LEAT_SCHED_PROFILE_H
#define LEAT_SCHED_PROFILE_H

#include <stdint.h>

#define LEAT_PROFILE_KNOTS  113u                 /* the first is not used */
#define LEAT_PROFILE_POINTS 12u
#define LEAT_PROFILE_NS_MAX (UINT64_C(1) << 48) /* three days; what took longer counts as this */

/* What to predict: a percentile from 50 to 99.9 as parts per million, or one of these. */
#define LEAT_PROFILE_DEFAULT      0u /* 950000 */
#define LEAT_PROFILE_QUANTILE_MIN 500000u
#define LEAT_PROFILE_QUANTILE_MAX 999000u
#define LEAT_PROFILE_MEAN         1000000u

struct leat_profile_knot {
    uint64_t mean;      /* 1/256 ns, so that small steps of small times do not vanish */
    uint64_t predicted; /* mean times ratio */
    uint32_t ratio;     /* of the percentile to the mean, 1/2^24 */
    uint16_t samples;   /* 1/16; those of its own, or 8 where it was set */
    uint8_t memory;     /* 1/2; the n of its next step */
    int8_t far;         /* samples beyond 3/2 of the mean, running: > 0; below 2/3: < 0 */
};

struct leat_profile_observation {
    uint64_t latency; /* 1/256 ns */
    uint32_t items;
    uint32_t number; /* counts observations */
};

struct leat_profile {
    uint32_t quantile_ppm;
    uint32_t ratio;      /* 1/2^24, of all samples; 0: none yet */
    uint32_t above;      /* samples above the percentile, running */
    uint32_t number;     /* of the next observation */
    uint32_t point_count;
    uint64_t full[2];    /* bit k: knots[k] has its whole share */
    uint64_t told[2];    /* of those, knots that were set or learned, not put on a line between such */
    uint64_t taught[2];  /* knots that had a sample */
    uint64_t line_floor; /* 1/256 ns; no time on the line is less */
    uint64_t line_base;  /* 1/256 ns, at no items */
    uint64_t line_slope; /* 1/2^14 ns an item */
    struct leat_profile_observation points[LEAT_PROFILE_POINTS + 1]; /* by items, the older first; the last for a moment */
    struct leat_profile_knot knots[LEAT_PROFILE_KNOTS];
};

/* Predicts `quantile_ppm` from now on; starts with what `measured` knows of means, or with nothing where that is NULL. */
void leat_profile_init(struct leat_profile *profile, uint32_t quantile_ppm, const struct leat_profile *measured);

/*
 * A measured time replaces what is known at `items` (1..LEAT_ITEMS_MAX) and, linearly, from there to the nearest
 * knots that are full by themselves. It counts as 8 samples with nothing above it. Takes time in proportion to the knots.
 */
void leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/* The smallest size above `items` (1..LEAT_ITEMS_MAX) that has a knot of its own; beyond LEAT_ITEMS_MAX there is none. */
uint32_t leat_profile_next_knot(uint32_t items);

/* Learns from one completed batch of `items`. */
void leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns);

/*
 * The chosen percentile of the time of a batch of `items`; 0 when nothing at all is known: an untried variant
 * looks free, is tried, and is known after one batch.
 */
uint64_t leat_profile_predict(const struct leat_profile *profile, uint32_t items);

/* Its mean, whatever is predicted; 0 when nothing at all is known. */
uint64_t leat_profile_mean(const struct leat_profile *profile, uint32_t items);

#endif /* LEAT_SCHED_PROFILE_H */
