/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: demand counts for more only where what was planned does not do, and no longer than it takes. */
#include "sched/shortfall.h"
#include "tests/leat_test.h"

static uint64_t queries, late;

/* A spell in which so many of a hundred are late. */
static double
spell(struct leat_shortfall *shortfall, uint32_t late_percent, bool more)
{
    for (uint32_t look = 0; look < LEAT_SHORTFALL_LOOKS; look++) {
        queries += 10;
        late += late_percent / LEAT_SHORTFALL_LOOKS + (look < late_percent % LEAT_SHORTFALL_LOOKS);
        leat_shortfall_look(shortfall, queries, late, true, more);
    }
    return shortfall->factor;
}

static void
begin(struct leat_shortfall *shortfall)
{
    *shortfall = (struct leat_shortfall)LEAT_SHORTFALL_INIT;
    queries = late = 1000;
    leat_shortfall_look(shortfall, queries, late, false, true);
}

static void
test_up(void)
{
    struct leat_shortfall shortfall;

    begin(&shortfall);
    EXPECT(spell(&shortfall, 0, true) == 1 && spell(&shortfall, 5, true) == 1); /* which is one in twenty */
    EXPECT(spell(&shortfall, 6, true) == 1.125);
    EXPECT(spell(&shortfall, 50, true) == 1.125 * 1.5);
    EXPECT(spell(&shortfall, 50, false) == 1.125 * 1.5); /* nothing is left */
    EXPECT(spell(&shortfall, 100, true) == 1.125 * 1.5 * 2);
    EXPECT(spell(&shortfall, 100, true) == LEAT_SHORTFALL_MAX && spell(&shortfall, 100, true) == LEAT_SHORTFALL_MAX);
}

/* What is under way may yet do: the looks before it has ended count for nothing. */
static void
test_unsettled(void)
{
    struct leat_shortfall shortfall;

    begin(&shortfall);
    for (uint32_t look = 0; look < 100; look++) {
        leat_shortfall_look(&shortfall, queries += 10, late += 10, look % LEAT_SHORTFALL_LOOKS != 0, true);
        EXPECT(shortfall.factor == 1);
    }
    leat_shortfall_look(&shortfall, queries, late, false, true);
    EXPECT(spell(&shortfall, 0, true) == 1);
}

/* One of few that is late says little: the spell goes on until there are more. */
static void
test_few(void)
{
    struct leat_shortfall shortfall;

    begin(&shortfall);
    for (uint32_t look = 1; look < 60; look++) {
        queries += look % 3 == 0;
        late += look == 3;
        leat_shortfall_look(&shortfall, queries, late, true, true);
        EXPECT(shortfall.factor == 1 && shortfall.queries_seen == 1000);
    }
    leat_shortfall_look(&shortfall, ++queries, late, true, true); /* of twenty */
    EXPECT(shortfall.factor == 1 && shortfall.queries_seen == queries);
    for (uint32_t look = 1; look <= 60; look++) {
        queries += look % 3 == 0;
        late += look == 3 || look == 6;
        leat_shortfall_look(&shortfall, queries, late, true, true);
    }
    EXPECT(shortfall.factor == 1.125); /* two of twenty are enough */
    leat_shortfall_look(&shortfall, 5, 5, true, true); /* another is there, of which nothing is known */
    EXPECT(shortfall.looks == 0 && shortfall.queries_seen == 5);
}

static void
test_down(void)
{
    struct leat_shortfall shortfall;

    begin(&shortfall);
    (void)spell(&shortfall, 20, true);
    for (uint32_t round = 0; round < 9; round++) { /* up again after each step down: it waits twice as long then */
        const uint32_t patience = round < 6 ? UINT32_C(10) << round : 640;
        const double factor = shortfall.factor;
        for (uint32_t calm = 1; calm < patience; calm++) {
            EXPECT(spell(&shortfall, 0, true) == factor);
        }
        EXPECT(spell(&shortfall, 5, true) == (factor * 0.875 > 1 ? factor * 0.875 : 1));
        (void)spell(&shortfall, 20, true);
    }
    for (uint32_t calm = 0; calm < 20 * 640; calm++) {
        (void)spell(&shortfall, 0, true);
    }
    EXPECT(shortfall.factor == 1);
}

int
main(void)
{
    test_up();
    test_unsettled();
    test_few();
    test_down();
    return 0;
}
