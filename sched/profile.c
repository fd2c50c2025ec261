/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/profile.h"

#include <stdbool.h>
#include <string.h>

#include <leat/tensor.h>

#include "base/status.h"

#define FRACTION_BITS  8 /* the unit of times */
#define SLOPE_BITS     6 /* beyond FRACTION_BITS */
#define RATIO_BITS     24
#define SHARE_BITS     16 /* a knot's share of a sample */
#define SAMPLE_BITS    4  /* the unit of knot->samples */
#define FULL_BITS      3  /* 8 samples make a knot full */
#define RATIO_ONE      (UINT32_C(1) << RATIO_BITS)
#define RATIO_MAX      (UINT32_C(255) << RATIO_BITS)
#define SHARE_ONE      (UINT32_C(1) << SHARE_BITS)
#define SAMPLES_FULL   (1u << (SAMPLE_BITS + FULL_BITS))
#define MEMORY_ONE     2u /* the unit of knot->memory */
#define MEMORY_SET     (8 * MEMORY_ONE)
#define MEMORY_MAX     (63 * MEMORY_ONE)
#define MEMORY_CHANGED (2 * MEMORY_ONE)
#define FAR_RUN        3 /* far samples, running, that mean a change of level */
#define FIT_EVERY      16u
#define HANDFUL        5u /* observations before the line is good enough to start knots from */
#define ONE_NS         (UINT64_C(1) << FRACTION_BITS)
#define CAP            (LEAT_PROFILE_NS_MAX << FRACTION_BITS)
#define PPM            1000000u

_Static_assert(LEAT_ITEMS_MAX == 1u << 16 && LEAT_PROFILE_KNOTS == 8 * (16 - 3) + 8 + 1, "knots reach the largest batch");
_Static_assert(sizeof(struct leat_profile) <= 3072, "as the header says");

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

/* Where `items` lies: `beyond` of the 1 << shift items from knot `low` to the next; 0 exactly on a knot. */
struct place {
    uint32_t low, beyond, shift;
};

static inline struct place
place_of(uint32_t items)
{
    LEAT_ASSERT(items >= 1 && items <= LEAT_ITEMS_MAX);
    const uint32_t shift = 28u - (uint32_t)__builtin_clz(items | 8);
    return (struct place){(shift << 3) + (items >> shift), items & ((UINT32_C(1) << shift) - 1), shift};
}

static uint32_t
items_of(uint32_t knot)
{
    const uint32_t shift = knot < 16 ? 0 : (knot >> 3) - 1;
    return (knot - (shift << 3)) << shift;
}

/* a + (b - a) * part / 2^shift, rounded down; part < 2^shift or both are 0. */
static inline uint64_t
between(uint64_t a, uint64_t b, uint32_t part, uint32_t shift)
{
    return a + (uint64_t)(((signed_wide)(int64_t)(b - a) * part) >> shift);
}

static uint64_t
clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t
to_fixed(uint64_t ns)
{
    return clamp(ns, 1, LEAT_PROFILE_NS_MAX) << FRACTION_BITS;
}

/* Whole nanoseconds, never down to 0. */
static inline uint64_t
from_fixed(uint64_t fixed)
{
    return (fixed + ONE_NS - 1) >> FRACTION_BITS;
}

static uint64_t
at_ratio(uint64_t mean, uint32_t ratio)
{
    const wide product = ((wide)mean * ratio) >> RATIO_BITS;
    return product < CAP ? clamp((uint64_t)product, ONE_NS, CAP) : CAP;
}

/* ---- The line --------------------------------------------------------------------------------- */

static uint64_t
line_at(const struct leat_profile *profile, uint32_t items)
{
    const wide sum = profile->line_base + (((wide)profile->line_slope * items) >> SLOPE_BITS);
    return clamp(sum < CAP ? (uint64_t)sum : CAP, profile->line_floor, CAP);
}

struct weighted {
    int64_t value;
    uint32_t weight;
};

/* The smallest value at which half of the weight is reached. Sorts. */
static int64_t
weighted_median(struct weighted *values, uint32_t count)
{
    uint64_t total = 0, sum = 0;
    uint32_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct weighted value = values[i];
        uint32_t hole = i;
        for (; hole > 0 && values[hole - 1].value > value.value; hole--) {
            values[hole] = values[hole - 1];
        }
        values[hole] = value;
        total += value.weight;
    }
    LEAT_ASSERT(total > 0);
    while ((sum += values[at].weight) * 2 < total) {
        at++;
    }
    return values[at].value;
}

static void
fit_line(struct leat_profile *profile)
{
    const struct leat_profile_observation *points = profile->points;
    const uint32_t count = profile->point_count;
    struct weighted values[LEAT_PROFILE_POINTS * (LEAT_PROFILE_POINTS - 1) / 2];
    int64_t slope = 0, base = -1;
    uint32_t pairs = 0;

    profile->line_floor = ONE_NS;
    if (8 * points[count - 1].items >= 9 * points[0].items) {
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t j = i + 1; j < count; j++) {
                const uint32_t apart = points[j].items - points[i].items;
                const int64_t rise = (int64_t)points[j].latency - (int64_t)points[i].latency;
                if (apart > 0) {
                    values[pairs++] =
                        (struct weighted){rise * (1 << SLOPE_BITS) / (int64_t)apart, 32u - (uint32_t)__builtin_clz(apart)};
                }
            }
        }
        slope = weighted_median(values, pairs);
        slope = slope > 0 ? slope : 0;
        for (uint32_t i = 0; i < count; i++) {
            const int64_t rise = (int64_t)(((wide)slope * points[i].items) >> SLOPE_BITS);
            values[i] = (struct weighted){(int64_t)points[i].latency - rise, 1};
        }
        base = weighted_median(values, count);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            values[i] = (struct weighted){(int64_t)points[i].latency, 1};
        }
        profile->line_floor = (uint64_t)weighted_median(values, count);
    }
    if (base < 0) { /* through no time at no items */
        base = 0;
        for (uint32_t i = 0; i < count; i++) {
            values[i] = (struct weighted){(int64_t)((points[i].latency << SLOPE_BITS) / points[i].items), 1};
        }
        slope = weighted_median(values, count);
    }
    profile->line_base = (uint64_t)base;
    profile->line_slope = (uint64_t)slope;
}

/* Which of `count` points by items makes room: the older of the two nearest by ratio. */
static uint32_t
superfluous(const struct leat_profile_observation *points, uint32_t count)
{
    const bool alike = points[0].items == points[count - 1].items;
    uint32_t nearest = 0;

    for (uint32_t i = 1; i + 1 < count && !alike; i++) { /* p[i] : p[i + 1] > p[nearest] : p[nearest + 1] */
        if ((uint64_t)points[i].items * points[nearest + 1].items > (uint64_t)points[nearest].items * points[i + 1].items) {
            nearest = i;
        }
    }
    const bool first_is_older = (int32_t)(points[nearest].number - points[nearest + 1].number) < 0;
    return first_is_older ? nearest : nearest + 1;
}

static void
observe(struct leat_profile *profile, uint32_t items, uint64_t latency)
{
    struct leat_profile_observation *points = profile->points;
    const uint32_t number = profile->number++, before = profile->point_count;
    uint32_t at = 0;

    while (at < before && points[at].items <= items) {
        at++;
    }
    memmove(points + at + 1, points + at, (before - at) * sizeof(points[0]));
    points[at] = (struct leat_profile_observation){.latency = latency, .items = items, .number = number};
    if (before < LEAT_PROFILE_POINTS) {
        profile->point_count++;
    } else {
        const uint32_t out = superfluous(points, before + 1);
        memmove(points + out, points + out + 1, (before - out) * sizeof(points[0]));
    }
    if (before < LEAT_PROFILE_POINTS || number % FIT_EVERY == 0) {
        fit_line(profile);
    }
}

/* ---- The table -------------------------------------------------------------------------------- */

/* The nearest knots of a set, below `knot` and from it on; 0 where there is none. */
static uint32_t
nearest_below(const uint64_t *set, uint32_t knot)
{
    const uint64_t near = set[knot / 64] & ((UINT64_C(1) << knot % 64) - 1);

    if (near != 0) {
        return knot / 64 * 64 + 63 - (uint32_t)__builtin_clzll(near);
    }
    return knot >= 64 && set[0] != 0 ? 63 - (uint32_t)__builtin_clzll(set[0]) : 0;
}

static uint32_t
nearest_from(const uint64_t *set, uint32_t knot)
{
    const uint64_t near = set[knot / 64] >> knot % 64;

    if (near != 0) {
        return knot + (uint32_t)__builtin_ctzll(near);
    }
    return knot < 64 && set[1] != 0 ? 64 + (uint32_t)__builtin_ctzll(set[1]) : 0;
}

static void
enter(uint64_t *set, uint32_t knot)
{
    set[knot / 64] |= UINT64_C(1) << knot % 64;
}

static bool
is_full(const struct leat_profile_knot *knot)
{
    return knot->samples >= SAMPLES_FULL;
}

static uint32_t
ratio_of(const struct leat_profile *profile)
{
    return profile->ratio != 0 ? profile->ratio : RATIO_ONE;
}

/* What a knot without samples is taken to be. */
static struct leat_profile_knot
untaught(const struct leat_profile *profile, uint32_t knot)
{
    const uint32_t below = nearest_below(profile->full, knot), above = nearest_from(profile->full, knot);
    const uint32_t ratio = ratio_of(profile);
    uint64_t mean = line_at(profile, items_of(knot));

    if (below != 0 && mean < profile->knots[below].mean) {
        mean = profile->knots[below].mean;
    }
    if (above != 0 && mean > profile->knots[above].mean) {
        mean = profile->knots[above].mean;
    }
    return (struct leat_profile_knot){.mean = mean, .predicted = at_ratio(mean, ratio), .ratio = ratio};
}

struct times {
    uint64_t mean, predicted;
};

static struct times
times_at_knot(const struct leat_profile *profile, uint32_t knot)
{
    const struct leat_profile_knot *own = &profile->knots[knot];

    if (is_full(own)) {
        return (struct times){own->mean, own->predicted};
    }
    const struct leat_profile_knot line = untaught(profile, knot);
    return (struct times){between(line.mean, own->mean, own->samples, SAMPLE_BITS + FULL_BITS),
                          between(line.predicted, own->predicted, own->samples, SAMPLE_BITS + FULL_BITS)};
}

static LEAT_COLD struct times
times_at(const struct leat_profile *profile, struct place place)
{
    const struct times low = times_at_knot(profile, place.low);

    if (place.beyond == 0) {
        return low;
    }
    const struct times top = times_at_knot(profile, place.low + 1);
    return (struct times){between(low.mean, top.mean, place.beyond, place.shift),
                          between(low.predicted, top.predicted, place.beyond, place.shift)};
}

static void
put_measured(struct leat_profile *profile, uint32_t knot, uint64_t mean)
{
    const uint64_t bounded = clamp(mean, ONE_NS, CAP);
    profile->knots[knot] = (struct leat_profile_knot){
        .mean = bounded, .predicted = bounded, .ratio = RATIO_ONE, .samples = SAMPLES_FULL, .memory = MEMORY_SET};
    enter(profile->full, knot);
}

/* Makes the curve straight between two knots. */
static void
fill_between(struct leat_profile *profile, uint32_t below, uint32_t above)
{
    const int64_t from = (int64_t)profile->knots[below].mean, to = (int64_t)profile->knots[above].mean;
    const uint32_t whole = items_of(above) - items_of(below);

    for (uint32_t knot = below + 1; knot < above; knot++) {
        const uint32_t part = items_of(knot) - items_of(below);
        put_measured(profile, knot, (uint64_t)(from + (int64_t)((signed_wide)(to - from) * part / whole)));
    }
}

void
leat_profile_init(struct leat_profile *profile, uint32_t quantile_ppm, const struct leat_profile *measured)
{
    LEAT_ASSERT(quantile_ppm == LEAT_PROFILE_DEFAULT || quantile_ppm == LEAT_PROFILE_MEAN ||
                (quantile_ppm >= LEAT_PROFILE_QUANTILE_MIN && quantile_ppm <= LEAT_PROFILE_QUANTILE_MAX));
    if (measured == NULL) {
        *profile = (struct leat_profile){.quantile_ppm = quantile_ppm};
        return;
    }
    memmove(profile, measured, sizeof(*profile));
    profile->quantile_ppm = quantile_ppm;
    profile->ratio = 0;
    profile->above = 0;
    for (uint32_t knot = 1; knot < LEAT_PROFILE_KNOTS; knot++) {
        profile->knots[knot].ratio = RATIO_ONE;
        profile->knots[knot].predicted = profile->knots[knot].mean;
    }
}

void
leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    const struct place place = place_of(items);
    const uint64_t latency = to_fixed(latency_ns);
    const uint32_t top = place.low + (place.beyond != 0);

    observe(profile, items, latency);
    for (uint32_t knot = place.low; knot <= top; knot++) { /* off the knots, a proportional piece that is exact here */
        put_measured(profile, knot, (uint64_t)((wide)latency * items_of(knot) / items));
        enter(profile->told, knot);
    }
    const uint32_t below = nearest_below(profile->told, place.low), above = nearest_from(profile->told, top + 1);
    if (below != 0) {
        fill_between(profile, below, place.low);
    }
    if (above != 0) {
        fill_between(profile, top, above);
    }
}

uint32_t
leat_profile_next_knot(uint32_t items)
{
    return items_of(place_of(items).low + 1);
}

/* ---- Learning --------------------------------------------------------------------------------- */

/* How many samples above the percentile can run without the level having changed: but once in a thousand. */
static uint32_t
longest_run(uint32_t quantile_ppm)
{
    uint64_t chance_ppm = PPM;
    uint32_t run = 0;

    while (chance_ppm > PPM / 1000) {
        chance_ppm = chance_ppm * (PPM - quantile_ppm) / PPM;
        run++;
    }
    return run;
}

/* A sign step: an eighth of how far the percentile is from the mean, and a 128th of itself. */
static uint32_t
move_ratio(uint32_t ratio, uint32_t quantile_ppm, bool above, uint32_t share)
{
    const uint32_t off = ratio > RATIO_ONE ? ratio - RATIO_ONE : RATIO_ONE - ratio;
    const uint64_t step = ((uint64_t)((off < ratio ? off : ratio) / 8 + ratio / 128) * share) >> SHARE_BITS;

    if (!above) {
        return ratio - (uint32_t)(step * (PPM - quantile_ppm) / PPM);
    }
    const uint64_t moved = ratio + step * quantile_ppm / PPM;
    return moved < RATIO_MAX ? (uint32_t)moved : RATIO_MAX;
}

/* One sample's part in one knot. */
struct lesson {
    uint64_t error; /* of the mean, bounded */
    bool up, far, above;
    bool steady;       /* no change of level under way */
    uint32_t share;    /* how much of the sample is this knot's */
    uint32_t step;     /* share, such that both knots' steps together take the prediction the whole way */
};

/* a / b: of what is below 2^32, as times up to milliseconds are, in a third of the time of a division in 64 bits. */
static uint64_t
divide(uint64_t a, uint32_t b)
{
    return a <= UINT32_MAX ? (uint32_t)a / b : a / b;
}

static void
teach_mean(struct leat_profile_knot *knot, const struct lesson *lesson)
{
    if (!lesson->far) {
        knot->far = 0;
    } else if (lesson->up) {
        knot->far = (int8_t)(knot->far < 0 ? 1 : knot->far < FAR_RUN ? knot->far + 1 : FAR_RUN);
    } else {
        knot->far = (int8_t)(knot->far > 0 ? -1 : knot->far > -FAR_RUN ? knot->far - 1 : -FAR_RUN);
    }
    if ((knot->far == FAR_RUN || knot->far == -FAR_RUN) && knot->memory > MEMORY_CHANGED) {
        knot->memory = MEMORY_CHANGED;
    }
    const uint64_t error = (uint64_t)(((wide)lesson->error * lesson->step) >> SHARE_BITS);
    const uint64_t step = divide(clamp(error, 0, knot->mean / 2) * MEMORY_ONE, knot->memory + MEMORY_ONE);
    knot->mean = clamp(lesson->up ? knot->mean + step : knot->mean - step, ONE_NS, CAP);
    const uint32_t memory = knot->memory + ((MEMORY_ONE * lesson->share + SHARE_ONE / 2) >> SHARE_BITS);
    const uint32_t samples = knot->samples + ((lesson->share << SAMPLE_BITS) >> SHARE_BITS);
    knot->memory = (uint8_t)(memory < MEMORY_MAX ? memory : MEMORY_MAX);
    knot->samples = (uint16_t)(samples < UINT16_MAX ? samples : UINT16_MAX);
}

static void
teach_ratio(struct leat_profile_knot *knot, uint32_t quantile_ppm, uint32_t ratio_of_all, const struct lesson *lesson)
{
    if ((uint64_t)knot->samples * (PPM - quantile_ppm) < (UINT64_C(2) * PPM << SAMPLE_BITS)) {
        knot->ratio = ratio_of_all;
    } else if (lesson->steady && knot->far > -2 && knot->far < 2) {
        const uint32_t share = lesson->step < SHARE_ONE ? lesson->step : SHARE_ONE;
        knot->ratio = move_ratio(knot->ratio, quantile_ppm, lesson->above, share);
    }
    knot->predicted = at_ratio(knot->mean, knot->ratio);
}

/*
 * Knot `from` has moved to a new level: those that were set and had no sample go along, as far as the next one that had, which
 * does not; `step` is 1 or, downwards, -1.
 */
static void
move_along(struct leat_profile *profile, uint32_t from, int step, uint64_t old_mean)
{
    const uint64_t new_mean = profile->knots[from].mean;
    const uint32_t fixed = step > 0 ? nearest_from(profile->taught, from + 1) : nearest_below(profile->taught, from);
    const uint32_t end = fixed != 0 ? fixed : step > 0 ? LEAT_PROFILE_KNOTS : 0;

    for (uint32_t k = from + (uint32_t)step; k != end; k += (uint32_t)step) {
        struct leat_profile_knot *knot = &profile->knots[k];
        const uint32_t whole = end > from ? end - from : from - end, left = end > k ? end - k : k - end;
        const uint64_t moved = (uint64_t)((wide)knot->mean * new_mean / old_mean);
        const int64_t change = (int64_t)(clamp(moved, ONE_NS, CAP) - knot->mean);
        if (is_full(knot)) {
            knot->mean += (uint64_t)(fixed == 0 ? change : (int64_t)((signed_wide)change * left / whole));
            knot->predicted = at_ratio(knot->mean, profile->quantile_ppm == LEAT_PROFILE_MEAN ? RATIO_ONE : knot->ratio);
        }
    }
}

void
leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    const uint64_t sample = to_fixed(latency_ns);
    const struct place place = place_of(items);
    const uint32_t quantile_ppm = profile->quantile_ppm != LEAT_PROFILE_DEFAULT ? profile->quantile_ppm : 950000;
    const uint32_t top = place.low + (place.beyond != 0);
    struct leat_profile_knot knots[2];

    observe(profile, items, sample);
    for (uint32_t i = 0; i <= top - place.low; i++) {
        const struct leat_profile_knot *knot = &profile->knots[place.low + i];
        knots[i] = knot->samples != 0 ? *knot : untaught(profile, place.low + i);
    }
    const struct leat_profile_knot *last = &knots[top - place.low];
    const uint64_t mean = between(knots[0].mean, last->mean, place.beyond, place.shift);
    const uint64_t error = sample > mean ? sample - mean : mean - sample;
    struct lesson lesson = {
        .error = error < mean / 2 ? error : mean / 2,
        .up = sample > mean,
        .far = error > (sample > mean ? mean / 2 : mean / 3),
        .above = sample > between(knots[0].predicted, last->predicted, place.beyond, place.shift),
        .steady = true,
    };
    if (quantile_ppm != LEAT_PROFILE_MEAN) {
        const uint32_t longest = longest_run(quantile_ppm);
        const bool above = sample > at_ratio(mean, ratio_of(profile));
        profile->above = !above ? 0 : profile->above <= longest ? profile->above + 1 : longest + 1;
        lesson.steady = profile->above <= longest;
        profile->ratio = lesson.steady ? move_ratio(ratio_of(profile), quantile_ppm, above, SHARE_ONE) : ratio_of(profile);
    }
    const uint64_t top_share = (uint64_t)place.beyond << (SHARE_BITS - place.shift), low_share = SHARE_ONE - top_share;
    const uint64_t squares = low_share * low_share + top_share * top_share;
    for (uint32_t i = 0; i <= top - place.low; i++) {
        if (knots[i].samples == 0 && profile->point_count < HANDFUL) {
            continue;
        }
        lesson.share = (uint32_t)(i == 0 ? low_share : top_share);
        lesson.step = place.beyond == 0 ? SHARE_ONE : (uint32_t)(((uint64_t)lesson.share << (2 * SHARE_BITS)) / squares);
        teach_mean(&knots[i], &lesson);
        if (quantile_ppm == LEAT_PROFILE_MEAN) {
            knots[i].predicted = knots[i].mean;
        } else {
            teach_ratio(&knots[i], quantile_ppm, profile->ratio, &lesson);
        }
        const uint64_t old_mean = profile->knots[place.low + i].mean;
        profile->knots[place.low + i] = knots[i];
        enter(profile->taught, place.low + i);
        if (is_full(&knots[i])) {
            enter(profile->full, place.low + i);
            enter(profile->told, place.low + i);
        }
        if (LEAT_UNLIKELY(knots[i].far == FAR_RUN || knots[i].far == -FAR_RUN) && old_mean != 0) {
            if (i == 0) {
                move_along(profile, place.low, -1, old_mean);
            }
            if (i == top - place.low) {
                move_along(profile, top, 1, old_mean);
            }
        }
    }
}

/* ---- Predicting ------------------------------------------------------------------------------- */

uint64_t
leat_profile_predict(const struct leat_profile *profile, uint32_t items)
{
    const struct place place = place_of(items);
    const struct leat_profile_knot *low = &profile->knots[place.low], *top = low + (place.beyond != 0);

    if (LEAT_LIKELY(is_full(low) && is_full(top))) { /* every decision asks this and the mean, several times */
        return from_fixed(between(low->predicted, top->predicted, place.beyond, place.shift));
    }
    return profile->point_count != 0 ? from_fixed(times_at(profile, place).predicted) : 0;
}

uint64_t
leat_profile_mean(const struct leat_profile *profile, uint32_t items)
{
    const struct place place = place_of(items);
    const struct leat_profile_knot *low = &profile->knots[place.low], *top = low + (place.beyond != 0);

    if (LEAT_LIKELY(is_full(low) && is_full(top))) {
        return from_fixed(between(low->mean, top->mean, place.beyond, place.shift));
    }
    return profile->point_count != 0 ? from_fixed(times_at(profile, place).mean) : 0;
}
