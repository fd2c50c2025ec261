/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A reserve is what sched/reserve.h says of the batches that it was told.
 * Method   Against the same batches kept one by one: before any is forgotten no more than one in so many ended later, and a
 *          quarter less would not do; afterwards what was rare stays covered, and what has not been seen for long is let go.
 */
#include "sched/reserve.h"
#include "tests/leat_test.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { WORLDS = 200 };

static uint64_t random_state;
static uint64_t over_ns[LEAT_RESERVE_BATCHES];

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* One that ended so much later than may be, or in time. */
static void
tell(struct leat_reserve *reserve, uint64_t ns)
{
    const uint64_t predicted_ns = 1000 * below(1 << 20), spread_permille = below(3) == 0 ? below(300) : 0;
    const uint64_t may_ns = predicted_ns + predicted_ns / 1000 * (spread_permille * LEAT_RESERVE_DEVIATIONS_PERMILLE / 1000);
    const uint64_t most_ns = UINT64_MAX - may_ns;
    leat_reserve_learn(reserve, ns > 0 ? may_ns + (ns < most_ns ? ns : most_ns) : below(may_ns + 1), predicted_ns,
                       (uint32_t)spread_permille);
}

static uint32_t
count_above(uint32_t count, uint64_t ns)
{
    uint32_t above = 0;
    for (uint32_t i = 0; i < count; i++) {
        above += over_ns[i] > ns;
    }
    return above;
}

/* Its lowest time is not covered; so what ended by less than a quarter less is. */
static void
check(const struct leat_reserve *reserve, uint32_t count)
{
    const uint64_t ns = leat_reserve_ns(reserve, UINT64_MAX);
    const uint32_t may = (count + LEAT_RESERVE_ONE_IN - 1) / LEAT_RESERVE_ONE_IN;

    EXPECT(count_above(count, ns > 0 ? ns : LEAT_RESERVE_LEAST_NS - 1) <= may);
    EXPECT(ns == 0 || count_above(count, ns - ns / 5 - 1) > may);
    EXPECT(leat_reserve_ns(reserve, LEAT_RESERVE_SHARE * ns) == ns && leat_reserve_ns(reserve, 2 * ns) == 2 * ns / LEAT_RESERVE_SHARE);
}

static void
test_against_all(void)
{
    for (uint32_t world = 0; world < WORLDS; world++) {
        const uint64_t rare = 1 + below(500), bits = 1 + below(30);
        const uint32_t count = 1 + (uint32_t)below(LEAT_RESERVE_BATCHES - 1);
        struct leat_reserve reserve = {0};
        for (uint32_t i = 0; i < count; i++) {
            over_ns[i] = below(rare) == 0 ? below(UINT64_C(1) << bits) : 0;
            tell(&reserve, over_ns[i]);
        }
        const uint64_t ns = leat_reserve_ns(&reserve, UINT64_MAX);
        EXPECT(count_above(count, ns > 0 ? ns : LEAT_RESERVE_LEAST_NS - 1) <= (count + LEAT_RESERVE_ONE_IN - 1) / LEAT_RESERVE_ONE_IN);
    }
    for (uint32_t round = 1; round < 32; round++) { /* all such counts */
        const uint32_t count = round * (LEAT_RESERVE_BATCHES / 32);
        const uint64_t rare = 1 + below(500), bits = 14 + below(16);
        struct leat_reserve reserve = {0};
        for (uint32_t i = 0; i < count; i++) {
            over_ns[i] = below(rare) == 0 ? below(UINT64_C(1) << bits) : 0;
            tell(&reserve, over_ns[i]);
        }
        check(&reserve, count);
    }
}

/* So many batches, every so manyth of which ends that late. */
static uint64_t
after(struct leat_reserve *reserve, uint32_t count, uint32_t one_in, uint64_t ns)
{
    for (uint32_t i = 1; i <= count; i++) {
        tell(reserve, i % one_in == 0 ? ns : 0);
    }
    return leat_reserve_ns(reserve, UINT64_MAX);
}

static void
test_lately(void)
{
    const uint64_t long_ns = 10000000, short_ns = 100000;
    struct leat_reserve reserve = {0};

    EXPECT(leat_reserve_ns(&reserve, UINT64_MAX) == 0);
    EXPECT(after(&reserve, 1000000, LEAT_RESERVE_ONE_IN / 4, short_ns) >= short_ns);
    EXPECT(leat_reserve_ns(&reserve, UINT64_MAX) <= short_ns + short_ns / 4);
    /* Twice as rare as it may be: not covered, for however long. */
    EXPECT(after(&reserve, 1000000, 2 * LEAT_RESERVE_ONE_IN, long_ns) < short_ns);
    /* Twice as often as that: covered, for however long. */
    EXPECT(after(&reserve, 1000000, LEAT_RESERVE_ONE_IN / 2, long_ns) >= long_ns);
    EXPECT(leat_reserve_ns(&reserve, UINT64_MAX) <= long_ns + long_ns / 4);
    EXPECT(after(&reserve, 4 * LEAT_RESERVE_BATCHES, UINT32_MAX, 0) == 0); /* forgotten */
    /* Whatever is told, it is a time. */
    EXPECT(after(&reserve, 1000, 1, UINT64_MAX) >= UINT64_C(1) << 29);
    EXPECT(leat_reserve_ns(&reserve, 1000) == 1000 / LEAT_RESERVE_SHARE);
}

/* Times that spread as the policy knows are no reason for one; without that they are. */
static void
test_spread(void)
{
    struct leat_reserve told = {0}, untold = {0};

    for (uint32_t i = 0; i < 10 * LEAT_RESERVE_BATCHES; i++) {
        const double sum = (double)(below(1000001) + below(1000001) + below(1000001) + below(1000001)) / 1e6 - 2;
        const double took_ns = 1e7 * (1 + 0.1 * sum / sqrt(1.0 / 3)); /* four uniform ones are nearly normal */
        leat_reserve_learn(&told, (uint64_t)took_ns, 10000000, 100);
        leat_reserve_learn(&untold, (uint64_t)took_ns, 10000000, 0);
    }
    EXPECT(leat_reserve_ns(&told, UINT64_MAX) < 500000);
    EXPECT(leat_reserve_ns(&untold, UINT64_MAX) > 2000000 && leat_reserve_ns(&untold, UINT64_MAX) < 4500000);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_against_all();
    test_lately();
    test_spread();
    return 0;
}
