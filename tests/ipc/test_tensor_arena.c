/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The arena never hands out overlapping or out-of-range pieces, refuses only when no run is long
 *          enough, and gets everything back together.
 * Method   Random takes and gives against a bitmap of units, with the longest free run found by brute force.
 */
#include "ipc/tensor_arena.h"

#include <string.h>

#include "tests/leat_test.h"

enum { UNITS = 3000, HELD_MAX = 400, STEPS = 60000 };

static unsigned char taken[UNITS];

static uint32_t
longest_run(void)
{
    uint32_t longest = 0, run = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        run = taken[u] ? 0 : run + 1;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static void
mark(uint32_t unit, uint32_t units, unsigned char value)
{
    for (uint32_t u = unit; u < unit + units; u++) {
        EXPECT(u < UNITS && taken[u] != value);
        taken[u] = value;
    }
}

static void
test_random_against_bitmap(void)
{
    struct {
        uint32_t unit, units;
    } held[HELD_MAX];
    uint32_t count = 0, used = 0, refused = 0;
    uint64_t random = leat_test_seed;
    struct leat_tensor_arena *arena;

    EXPECT(leat_tensor_arena_create(UNITS, &arena) == LEAT_OK);
    for (int step = 0; step < STEPS; step++) {
        const bool take = count == 0 || (count < HELD_MAX && leat_test_random(&random) % 100 < 55);
        if (take) {
            const uint32_t units = leat_test_random(&random) % 8 == 0 ? 1 + (uint32_t)(leat_test_random(&random) % 700)
                                                                      : 1 + (uint32_t)(leat_test_random(&random) % 20);
            const uint32_t unit = leat_tensor_arena_take(arena, units);
            if (unit == LEAT_ARENA_NONE) {
                EXPECT(longest_run() < units);
                refused++;
                continue;
            }
            mark(unit, units, 1);
            held[count].unit = unit;
            held[count++].units = units;
            used += units;
        } else {
            const uint32_t i = (uint32_t)(leat_test_random(&random) % count);
            EXPECT(leat_tensor_arena_give(arena, held[i].unit));
            mark(held[i].unit, held[i].units, 0);
            used -= held[i].units;
            held[i] = held[--count];
        }
        EXPECT(leat_tensor_arena_free_units(arena) == UNITS - used);
        if (step % 64 == 0) {
            EXPECT(leat_tensor_arena_longest(arena) == longest_run());
        }
    }
    EXPECT(refused > 0); /* the walk met a full arena */
    while (count > 0) {
        EXPECT(leat_tensor_arena_give(arena, held[--count].unit));
    }
    EXPECT(leat_tensor_arena_longest(arena) == UNITS); /* everything has grown together again */
    EXPECT(leat_tensor_arena_take(arena, UNITS) == 0);
    leat_tensor_arena_destroy(arena);
}

static void
test_wrong_gives_are_refused(void)
{
    struct leat_tensor_arena *arena;
    EXPECT(leat_tensor_arena_create(100, &arena) == LEAT_OK);
    const uint32_t unit = leat_tensor_arena_take(arena, 10);
    EXPECT(!leat_tensor_arena_give(arena, unit + 1));  /* inside a piece */
    EXPECT(!leat_tensor_arena_give(arena, unit + 10)); /* a free piece */
    EXPECT(!leat_tensor_arena_give(arena, 100));       /* outside */
    EXPECT(!leat_tensor_arena_give(arena, LEAT_ARENA_NONE));
    EXPECT(leat_tensor_arena_give(arena, unit));
    EXPECT(!leat_tensor_arena_give(arena, unit)); /* twice */
    EXPECT(leat_tensor_arena_take(arena, 0) == LEAT_ARENA_NONE);
    EXPECT(leat_tensor_arena_take(arena, 101) == LEAT_ARENA_NONE);
    leat_tensor_arena_destroy(arena);
}

/* Where a piece began that has grown together with what lies before or behind it nothing begins any more. */
static void
test_pieces_within_others_are_refused(void)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct leat_tensor_arena *arena;

    for (size_t o = 0; o < sizeof(orders) / sizeof(orders[0]); o++) {
        uint32_t pieces[3];
        EXPECT(leat_tensor_arena_create(30, &arena) == LEAT_OK);
        for (uint32_t p = 0; p < 3; p++) {
            pieces[p] = leat_tensor_arena_take(arena, 10);
        }
        for (uint32_t p = 0; p < 3; p++) {
            EXPECT(leat_tensor_arena_give(arena, pieces[orders[o][p]]));
        }
        EXPECT(leat_tensor_arena_take(arena, 30) == 0);
        for (uint32_t unit = 1; unit < 30; unit++) {
            EXPECT(!leat_tensor_arena_give(arena, unit));
        }
        EXPECT(leat_tensor_arena_free_units(arena) == 0 && leat_tensor_arena_give(arena, 0));
        EXPECT(leat_tensor_arena_longest(arena) == 30);
        leat_tensor_arena_destroy(arena);
    }
}

int
main(void)
{
    leat_test_init();
    test_random_against_bitmap();
    test_wrong_gives_are_refused();
    test_pieces_within_others_are_refused();
    return 0;
}
