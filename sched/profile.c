/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/profile.h"

#include <leat/tensor.h>

#include "base/status.h"

#define FRACTION_BITS 8  /* struct leat_profile_knot's unit */
#define MEAN_SHIFT    4  /* EWMA weight 1/16 */
#define HIGH_SHIFT    4  /* 19 + 1 quantile steps are 1/16 of the value ... */
#define WARM_SHIFT    3  /* ... and 1/8 while a knot is young */
#define WARM_SAMPLES  64u
#define WEIGHT_BITS   16 /* a knot's share of a sample, in 1/65536 */
#define WEIGHT_ONE    (UINT32_C(1) << WEIGHT_BITS)
#define CAP           (LEAT_PROFILE_NS_MAX << FRACTION_BITS)

_Static_assert(LEAT_ITEMS_MAX == UINT32_C(1) << (LEAT_PROFILE_BUCKETS - 1), "knots reach the largest batch");

__extension__ typedef unsigned __int128 wide;

/* Where `items` lies: `weight` of the way from knot `low` to knot `low + 1`; 0 exactly on a knot. */
struct place {
    uint32_t low;
    uint32_t weight;
};

static struct place
place_of(uint32_t items)
{
    LEAT_ASSERT(items >= 1 && items <= LEAT_ITEMS_MAX);
    const uint32_t low = 31u - (uint32_t)__builtin_clz(items);
    const uint32_t beyond = items - (UINT32_C(1) << low);
    return (struct place){low, (uint32_t)(((uint64_t)beyond << WEIGHT_BITS) >> low)};
}

/* a + (b - a) * weight, rounded towards a. */
static uint64_t
between(uint64_t a, uint64_t b, uint32_t weight)
{
    if (b >= a) {
        return a + (uint64_t)(((wide)(b - a) * weight) >> WEIGHT_BITS);
    }
    return a - (uint64_t)(((wide)(a - b) * weight) >> WEIGHT_BITS);
}

static uint64_t
shifted_up(uint64_t value, uint32_t bits)
{
    const wide result = (wide)value << bits;
    return result < CAP ? (uint64_t)result : CAP;
}

/* The curve at knot `k`, from its neighbours where it is not known itself. known != 0. */
static struct leat_profile_knot
knot_at(const struct leat_profile *profile, uint32_t k)
{
    /* 2^16 / (2^d - 1) for a gap of d knots */
    static const uint32_t reciprocal[LEAT_PROFILE_BUCKETS] = {
        0, 65536, 21845, 9362, 4369, 2114, 1040, 516, 257, 128, 64, 32, 16, 8, 4, 2, 1,
    };

    if ((profile->known >> k & 1) != 0) {
        return profile->knots[k];
    }
    const uint32_t below = profile->known & ((UINT32_C(1) << k) - 1);
    const uint32_t above = profile->known & ~((UINT32_C(1) << k) - 1);
    LEAT_ASSERT((below | above) != 0);
    if (below == 0) {
        const struct leat_profile_knot first = profile->knots[__builtin_ctz(above)];
        return (struct leat_profile_knot){first.mean, first.high, 0};
    }
    const uint32_t left = 31u - (uint32_t)__builtin_clz(below);
    const struct leat_profile_knot *l = &profile->knots[left];
    if (above == 0) {
        return (struct leat_profile_knot){shifted_up(l->mean, k - left),
                                          shifted_up(l->high, k - left), 0};
    }
    const uint32_t right = (uint32_t)__builtin_ctz(above);
    const struct leat_profile_knot *r = &profile->knots[right];
    const uint32_t weight = ((UINT32_C(1) << (k - left)) - 1) * reciprocal[right - left];
    return (struct leat_profile_knot){between(l->mean, r->mean, weight),
                                      between(l->high, r->high, weight), 0};
}

static struct leat_profile_knot
curve_at(const struct leat_profile *profile, struct place place)
{
    const struct leat_profile_knot low = knot_at(profile, place.low);
    if (place.weight == 0) {
        return low;
    }
    const struct leat_profile_knot top = knot_at(profile, place.low + 1);
    return (struct leat_profile_knot){between(low.mean, top.mean, place.weight),
                                      between(low.high, top.high, place.weight),
                                      low.samples < top.samples ? top.samples : low.samples};
}

static uint64_t
to_fixed(uint64_t ns)
{
    const uint64_t clipped = ns == 0 ? 1 : ns > LEAT_PROFILE_NS_MAX ? LEAT_PROFILE_NS_MAX : ns;
    return clipped << FRACTION_BITS;
}

void
leat_profile_set_point(struct leat_profile *profile, uint32_t items, uint64_t mean_ns, uint64_t high_ns)
{
    const struct place place = place_of(items);
    const uint64_t mean = to_fixed(mean_ns), high = to_fixed(high_ns);

    LEAT_ASSERT(high >= mean);
    if (place.weight == 0) {
        profile->knots[place.low] = (struct leat_profile_knot){mean, high, 0};
        profile->known |= UINT32_C(1) << place.low;
        return;
    }
    /* A proportional line through both knots: exact at `items`. Each is at least 1/256 ns: items < 2^k+1. */
    for (uint32_t k = place.low; k <= place.low + 1; k++) {
        const uint64_t knot_mean = (uint64_t)(((wide)mean << k) / items);
        const uint64_t knot_high = (uint64_t)(((wide)high << k) / items);
        profile->knots[k] = (struct leat_profile_knot){knot_mean < CAP ? knot_mean : CAP,
                                                       knot_high < CAP ? knot_high : CAP, 0};
        profile->known |= UINT32_C(1) << k;
    }
}

void
leat_profile_set(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    leat_profile_set_point(profile, items, latency_ns, latency_ns);
}

/* Moves `value` by `weight`/16 of the way from `predicted` to `target`, at most by 1/16 of itself. */
static uint64_t
move_mean(uint64_t value, uint64_t predicted, uint64_t target, uint32_t weight)
{
    const bool up = target > predicted;
    const uint64_t distance = up ? target - predicted : predicted - target;
    const uint64_t limit = value >> MEAN_SHIFT;
    const uint64_t step = (uint64_t)(((wide)distance * weight) >> (WEIGHT_BITS + MEAN_SHIFT));
    const uint64_t bounded = step < limit ? step : limit;

    return up ? value + bounded : value - bounded;
}

static uint64_t
move_high(const struct leat_profile_knot *knot, bool up, uint32_t weight)
{
    const unsigned shift = knot->samples < WARM_SAMPLES ? WARM_SHIFT : HIGH_SHIFT;
    const uint64_t twentieth = (knot->high >> shift) / 20;
    const uint64_t step =
        (uint64_t)(((wide)twentieth * (up ? 19 : 1) * weight) >> WEIGHT_BITS);

    return up ? knot->high + step : knot->high - step;
}

void
leat_profile_learn(struct leat_profile *profile, uint32_t items, uint64_t latency_ns)
{
    const uint64_t sample = to_fixed(latency_ns);
    const struct place place = place_of(items);
    struct leat_profile_knot moved[2];

    if (profile->known == 0) {
        leat_profile_set(profile, items, latency_ns);
        return;
    }
    const struct leat_profile_knot predicted = curve_at(profile, place);
    const bool above = sample > predicted.high;
    const uint32_t knots = place.weight == 0 ? 1 : 2;

    for (uint32_t i = 0; i < knots; i++) { /* both from the curve as it was */
        struct leat_profile_knot *knot = &moved[i];
        const uint32_t weight = i == 0 ? WEIGHT_ONE - place.weight : place.weight;
        *knot = knot_at(profile, place.low + i);
        knot->mean = move_mean(knot->mean, predicted.mean, sample, weight);
        knot->high = move_high(knot, above, weight);
        knot->mean = knot->mean < CAP ? knot->mean : CAP;
        knot->high = knot->high < CAP ? knot->high : CAP;
        knot->high = knot->high > knot->mean ? knot->high : knot->mean;
        knot->samples++;
    }
    for (uint32_t i = 0; i < knots; i++) {
        profile->knots[place.low + i] = moved[i];
        profile->known |= UINT32_C(1) << (place.low + i);
    }
}

/* Whole nanoseconds, never down to 0. */
static uint64_t
from_fixed(uint64_t fixed)
{
    return (fixed + (UINT64_C(1) << FRACTION_BITS) - 1) >> FRACTION_BITS;
}

bool
leat_profile_read(const struct leat_profile *profile, uint32_t items, struct leat_profile_point *point)
{
    *point = (struct leat_profile_point){0};
    if (profile->known == 0) {
        return false;
    }
    const struct leat_profile_knot knot = curve_at(profile, place_of(items));
    *point = (struct leat_profile_point){
        .mean_ns = from_fixed(knot.mean),
        .high_ns = from_fixed(knot.high),
        .samples = knot.samples,
    };
    return true;
}

uint64_t
leat_profile_predict(const struct leat_profile *profile, uint32_t items)
{
    const struct place place = place_of(items);
    const uint32_t needed = (place.weight != 0 ? 3u : 1u) << place.low;

    if (LEAT_UNLIKELY(profile->known == 0)) {
        return 0;
    }
    if (LEAT_UNLIKELY((profile->known & needed) != needed)) {
        return from_fixed(curve_at(profile, place).high);
    }
    /* Every decision asks this, several times: both knots are there, and only this half of them is wanted. */
    const uint64_t low = profile->knots[place.low].high;
    return from_fixed(place.weight == 0 ? low : between(low, profile->knots[place.low + 1].high, place.weight));
}
