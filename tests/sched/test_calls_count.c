/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What is counted of a stage's calls is what came, whenever and however seldom somebody looks, and follows what
 *          changes.
 * Method   Random pipelines whose stage is asked a random number of times an item, some items later; who looks skips looks,
 *          and sees one stage later than the other.
 */
#include "sched/calls.h"
#include "tests/leat_test.h"

#include <math.h>

static uint64_t random_state;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* So many items, each of which calls the stage up to `most` times; looks come after random numbers of them. */
static void
serve(struct leat_calls *calls, uint64_t *first, uint64_t *own, uint32_t items, uint32_t most, uint64_t apart)
{
    for (uint32_t i = 0; i < items; i++) {
        ++*first;
        *own += below(most + 1);
        if (below(apart) == 0) {
            leat_calls_count(calls, *first, *own - (*own > 3 ? below(4) : 0)); /* some are not there yet */
        }
    }
    leat_calls_count(calls, *first + LEAT_CALLS_ITEMS, *own + LEAT_CALLS_ITEMS * most / 2);
    *first += LEAT_CALLS_ITEMS;
    *own += LEAT_CALLS_ITEMS * most / 2;
}

static void
test_looks(void)
{
    for (uint32_t world = 0; world < 200; world++) {
        struct leat_calls calls = LEAT_CALLS_INIT;
        uint64_t first = below(1000), own = below(1000);
        const uint64_t apart = UINT64_C(1) << below(12);
        const uint32_t most = 2 + (uint32_t)below(30);

        serve(&calls, &first, &own, 30000, most, apart);
        EXPECT(fabs(calls.each / (most / 2.0) - 1) < 0.15);
        serve(&calls, &first, &own, 30000, 2 * most, apart);
        EXPECT(fabs(calls.each / most - 1) < 0.15);
    }
}

static void
test_rules(void)
{
    struct leat_calls calls = LEAT_CALLS_INIT;

    leat_calls_count(&calls, 1000, 5000); /* what was before says nothing */
    EXPECT(calls.each == 1);
    leat_calls_count(&calls, 1015, 9000); /* too few, but not forgotten */
    EXPECT(calls.each == 1);
    leat_calls_count(&calls, 1016, 5048); /* all that is known */
    EXPECT(calls.each == 3);
    leat_calls_count(&calls, 1032, 5064);
    EXPECT(calls.each == 2);
    leat_calls_count(&calls, 1032 + LEAT_CALLS_ITEMS, 5064 + 2 * LEAT_CALLS_ITEMS);
    EXPECT(calls.each == 2);
    leat_calls_count(&calls, 10, 5); /* others are there now */
    EXPECT(calls.each == 2);
    leat_calls_count(&calls, 10 + LEAT_CALLS_ITEMS, 5);
    EXPECT(calls.each == 1);
    leat_calls_count(&calls, 10 + 1000000 * (uint64_t)LEAT_CALLS_ITEMS, 5);
    EXPECT(calls.each == LEAT_CALLS_MIN);
    leat_calls_count(&calls, 10 + 2000000 * (uint64_t)LEAT_CALLS_ITEMS, UINT64_MAX);
    EXPECT(calls.each == LEAT_CALLS_MAX);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_looks();
    test_rules();
    return 0;
}
