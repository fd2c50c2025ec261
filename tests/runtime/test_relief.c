/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A disturbed worker moves to free cores, or changes places with one that runs little, one worker at a look; who shares cores,
 *          is parked or has just been moved stays, longer each time it did not help; who could not be moved is tried again
 *          soon, and then less and less often, so that all have their turn; nobody moves who is not disturbed, but as the
 *          other of two.
 * Method   Examples, then random worlds against the rules.
 */
#include "runtime/relief.h"

#include <string.h>

#include "tests/leat_test.h"

enum { WORKERS = 6, POOLS = 2, LOOKS = 20000 };

static struct leat_relief_worker workers[WORKERS];

/* A look whose move succeeds. */
static bool
move_one(uint32_t count, const uint32_t *free_cores, struct leat_relief_move *ret_move)
{
    const bool moves = leat_relief_look(workers, count, free_cores, ret_move);
    if (moves) {
        leat_relief_note(workers, ret_move, true);
    }
    return moves;
}

/* All on one core of pool 0, and `busy_ns` longer since the last look. */
static void
begin(uint32_t count)
{
    memset(workers, 0, sizeof(workers));
    for (uint32_t w = 0; w < count; w++) {
        workers[w].cores = 1;
    }
}

static void
test_examples(void)
{
    struct leat_relief_move move;
    uint32_t free_cores[POOLS] = {1, 0};

    begin(3);
    EXPECT(!move_one(3, free_cores, &move));
    workers[1].disturbed = workers[2].disturbed = true;
    workers[1].busy_ns = 10;
    workers[2].busy_ns = 20;
    EXPECT(move_one(3, free_cores, &move) && move.worker == 2 && move.other == UINT32_MAX);
    workers[1].busy_ns += 5;
    EXPECT(move_one(3, free_cores, &move) && move.worker == 1); /* while the other rests */
    EXPECT(!move_one(3, free_cores, &move));

    free_cores[0] = 0; /* then it is a swap */
    begin(3);
    workers[0].disturbed = true;
    workers[0].busy_ns = 100;
    workers[1].busy_ns = 51;
    workers[2].busy_ns = 50;
    EXPECT(move_one(3, free_cores, &move) && move.worker == 0 && move.other == 2);
    EXPECT(workers[2].rest > 0);

    begin(2);
    workers[0].disturbed = true;
    workers[0].busy_ns = 100;
    workers[1].busy_ns = 51; /* which would be disturbed about as much */
    EXPECT(!move_one(2, free_cores, &move));
}

/* Disturbed wherever it is: it tries less and less often, and as at first once it has long been well. */
static void
test_rest(void)
{
    const uint32_t free_cores[POOLS] = {1, 0};
    struct leat_relief_move move;
    uint32_t stays = LEAT_RELIEF_REST;

    begin(1);
    workers[0].disturbed = true;
    EXPECT(move_one(1, free_cores, &move));
    for (uint32_t moves = 0; moves < 8; moves++) {
        for (uint32_t look = 1; look < stays; look++) {
            EXPECT(!move_one(1, free_cores, &move));
        }
        EXPECT(move_one(1, free_cores, &move));
        stays = stays < LEAT_RELIEF_REST_MAX ? 2 * stays : LEAT_RELIEF_REST_MAX;
    }
    workers[0].disturbed = false;
    for (uint32_t look = 0; look < 2 * LEAT_RELIEF_REST_MAX + 1; look++) {
        EXPECT(!move_one(1, free_cores, &move));
    }
    workers[0].disturbed = true;
    EXPECT(move_one(1, free_cores, &move) && workers[0].rest == LEAT_RELIEF_REST);
}

/* A move that fails costs neither the one nor the other a rest, and is no reason to rest longer later; it is tried less and less often. */
static void
test_failed_move(void)
{
    const uint32_t free_cores[POOLS] = {1, 0}, none[POOLS] = {0};
    struct leat_relief_move move;

    /* Whoever runs most comes first, and all have their turn before it comes for the third time. */
    begin(WORKERS);
    uint32_t tried[WORKERS] = {0};
    while (tried[WORKERS - 1] == 0) {
        for (uint32_t w = 0; w < WORKERS; w++) {
            workers[w].disturbed = true;
            workers[w].busy_ns += 100 - w;
        }
        EXPECT(leat_relief_look(workers, WORKERS, free_cores, &move));
        EXPECT(tried[move.worker]++ < 3);
        leat_relief_note(workers, &move, false);
    }
    for (uint32_t retry = workers[0].retry; retry < LEAT_RELIEF_REST; retry = workers[0].retry) {
        workers[0].busy_ns += 1000;
        if (leat_relief_look(workers, 1, free_cores, &move)) {
            leat_relief_note(workers, &move, false);
            EXPECT(workers[0].retry == 2 * retry && workers[0].rest == 2 * retry);
        }
    }
    for (uint32_t look = 1; look < LEAT_RELIEF_REST; look++) {
        EXPECT(!leat_relief_look(workers, 1, free_cores, &move));
    }
    EXPECT(leat_relief_look(workers, 1, free_cores, &move));
    leat_relief_note(workers, &move, false);
    EXPECT(workers[0].rest == LEAT_RELIEF_REST); /* and no longer */
    workers[0].disturbed = false;
    for (uint32_t look = 0; look < LEAT_RELIEF_REST; look++) {
        EXPECT(!leat_relief_look(workers, 1, free_cores, &move));
    }
    workers[0].disturbed = true; /* by something else, it may be */
    EXPECT(leat_relief_look(workers, 1, free_cores, &move));
    leat_relief_note(workers, &move, false);
    EXPECT(workers[0].rest == LEAT_RELIEF_RETRY && workers[0].last == 0);
    EXPECT(!leat_relief_look(workers, 1, free_cores, &move));
    EXPECT(move_one(1, free_cores, &move) && workers[0].rest == LEAT_RELIEF_REST && workers[0].retry == 0);

    begin(2);
    workers[0].disturbed = true;
    workers[0].busy_ns = 100;
    EXPECT(leat_relief_look(workers, 2, none, &move) && move.worker == 0 && move.other == 1);
    leat_relief_note(workers, &move, false);
    EXPECT(workers[1].rest == 0 && workers[0].last == 0);
    EXPECT(!leat_relief_look(workers, 2, none, &move));
    EXPECT(move_one(2, none, &move) && move.worker == 0 && move.other == 1 && workers[1].rest == LEAT_RELIEF_REST);
}

static void
test_random(uint64_t *random)
{
    uint32_t swaps = 0, frees = 0, failures = 0;

    begin(WORKERS);
    for (uint32_t look = 0; look < LOOKS; look++) {
        const uint32_t free_cores[POOLS] = {(uint32_t)(leat_test_random(random) % 3),
                                            (uint32_t)(leat_test_random(random) % 3)};
        struct leat_relief_worker before[WORKERS];
        struct leat_relief_move move;
        for (uint32_t w = 0; w < WORKERS; w++) {
            workers[w].pool = w % POOLS;
            workers[w].cores = (uint32_t)(leat_test_random(random) % 3);
            workers[w].disturbed = leat_test_random(random) % 64 == 0;
            workers[w].fixed = leat_test_random(random) % 8 == 0;
            workers[w].busy_ns += leat_test_random(random) % 1000;
        }
        memcpy(before, workers, sizeof(before));
        if (!leat_relief_look(workers, WORKERS, free_cores, &move)) {
            for (uint32_t w = 0; w < WORKERS; w++) { /* nobody could have gone to free cores */
                const bool might = before[w].disturbed && !before[w].fixed && before[w].cores > 0 && before[w].rest <= 1;
                EXPECT(!might || free_cores[before[w].pool] < before[w].cores);
            }
            continue;
        }
        const struct leat_relief_worker *moved = &before[move.worker];
        EXPECT(moved->disturbed && !moved->fixed && moved->cores > 0 && moved->rest <= 1);
        if (move.other == UINT32_MAX) {
            EXPECT(free_cores[moved->pool] >= moved->cores);
            frees++;
        } else {
            const struct leat_relief_worker *other = &before[move.other];
            EXPECT(move.other != move.worker && !other->disturbed && !other->fixed && other->rest <= 1);
            EXPECT(other->cores == moved->cores && other->pool == moved->pool &&
                   free_cores[moved->pool] < moved->cores);
            EXPECT(other->busy_ns - other->seen_ns <= (moved->busy_ns - moved->seen_ns) / 2);
            swaps++;
        }
        const bool success = leat_test_random(random) % 4 != 0;
        leat_relief_note(workers, &move, success);
        EXPECT(workers[move.worker].rest >= (success ? LEAT_RELIEF_REST : LEAT_RELIEF_RETRY));
        failures += !success;
    }
    EXPECT(swaps > 50 && frees > 200 && failures > 50);
}

int
main(void)
{
    uint64_t random;

    leat_test_init();
    random = leat_test_seed;
    test_examples();
    test_rest();
    test_failed_move();
    test_random(&random);
    return 0;
}
