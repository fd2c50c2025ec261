/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Alone is all; equal demands get equal parts; what others take is theirs unless that leaves less than a part in
 *          proportion. Whoever had asked for nothing has its part at its first look; what is in force follows after three looks,
 *          once, and never swings under demands that stay, whatever they are. Never do shares of those that ask add up to more
 *          than the workers, but for one each of those whose part is less.
 * Method   Cases by hand, then random demands on up to 256 workers.
 */
#include <stdio.h>

#include "sched/share.h"
#include "tests/leat_test.h"

enum { APPS = 6 };

static uint64_t random_state;

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

/* What an application has at its first look, before which it had all. */
static uint32_t
first(uint64_t demand, uint64_t flexible, uint64_t other, uint32_t workers)
{
    struct leat_share share = {.workers = workers}, rest = {.workers = workers};
    struct leat_share *const shares[] = {&share, &rest};

    leat_share_look(&share, demand);
    leat_share_look(&rest, flexible - demand);
    leat_share_divide(shares, 2, other, workers);
    return share.workers;
}

static void
test_parts(void)
{
    EXPECT(first(10, 10, 0, 40) == 40 && first(1000000, 1000000, 0, 40) == 40);
    EXPECT(first(8000, 16000, 0, 40) == 20 && first(4000, 16000, 0, 40) == 10);
    EXPECT(first(1, 1000000, 0, 40) == 1); /* one worker at the least */
    EXPECT(first(0, 0, 30000, 40) == 40 && first(0, 500, 0, 40) == 40);
    EXPECT(first(4000, 8000, 10000, 40) == 15); /* 10 are others', 30 are left for both */
    EXPECT(first(10000, 10000, 30000, 40) == 10);
    EXPECT(first(10000, 10000, 70000, 40) == 5); /* nothing is left: an eighth of what is asked */
}

/* One look at all. */
static void
look(struct leat_share *const shares[], const uint64_t *seen_permille, uint32_t count, uint64_t other_permille, uint32_t workers)
{
    for (uint32_t s = 0; s < count; s++) {
        leat_share_look(shares[s], seen_permille[s]);
    }
    leat_share_divide(shares, count, other_permille, workers);
}

/* 120 and 70 items a second, of which a worker does 20 at the most, on 8: whichever comes first, or both at once. */
static void
test_two(void)
{
    static const uint64_t both[2] = {6000, 3500};

    for (uint32_t one = 0; one < 3; one++) { /* comes first; 2: neither */
        struct leat_share a = {.workers = 8}, b = {.workers = 8};
        struct leat_share *const shares[] = {&a, &b};
        for (uint32_t n = 0; n < 2 && one < 2; n++) {
            look(shares, (const uint64_t[2]){one == 0 ? both[0] : 0, one == 1 ? both[1] : 0}, 2, 0, 8);
            EXPECT(a.workers == 8 && b.workers == 8);
        }
        for (uint32_t n = 0; n < 30; n++) {
            look(shares, both, 2, 0, 8);
            EXPECT(a.workers == 5 && b.workers == 3 && a.demand_permille == both[0] && b.demand_permille == both[1]);
        }
        while (b.demand_permille > 0) { /* it rests */
            look(shares, (const uint64_t[2]){both[0], 0}, 2, 0, 8);
        }
        EXPECT(a.workers == 8 && b.workers == 1 && !b.busy);
        while (a.demand_permille > 0) {
            look(shares, (const uint64_t[2]){0, 0}, 2, 0, 8);
        }
        look(shares, (const uint64_t[2]){0, 1}, 2, 0, 8); /* alone, it has all at once */
        EXPECT(b.workers == 8);
    }
}

/* Three that ask as much have 3, 3 and 2 of 8; what a fourth hardly asks for takes nobody's. */
static void
test_whole_workers(void)
{
    struct leat_share all[4] = {{.workers = 8}, {.workers = 8}, {.workers = 8}, {.workers = 8}};
    struct leat_share *const shares[] = {&all[0], &all[1], &all[2], &all[3]};

    look(shares, (const uint64_t[4]){5000, 5000, 5000, 0}, 4, 0, 8);
    EXPECT(all[0].workers + all[1].workers + all[2].workers == 8 && all[3].workers == 8);
    EXPECT(all[0].workers >= 2 && all[1].workers >= 2 && all[2].workers >= 2);
    for (uint32_t n = 0; n < 10; n++) {
        const uint32_t before[3] = {all[0].workers, all[1].workers, all[2].workers};
        look(shares, (const uint64_t[4]){5000, 5000, 5000, 20}, 4, 0, 8);
        EXPECT(all[0].workers == before[0] && all[1].workers == before[1] && all[2].workers == before[2] && all[3].workers == 1);
    }
}

static void
test_change(void)
{
    struct leat_share share = {.workers = 40};
    struct leat_share *const shares[] = {&share};
    /* It hardly asks for anything, and gets what others leave of 40. */
#define FOLLOW(part, expected)                                                                              \
    do {                                                                                                    \
        share.demand_permille = (part) > 0;                                                                 \
        leat_share_divide(shares, 1, UINT64_C(40000) - (part), 40);                                         \
        EXPECT(share.workers == (expected));                                                                \
    } while (0)

    leat_share_look(&share, 8000);
    EXPECT(share.demand_permille == 8000); /* the first one counts whole */
    leat_share_look(&share, 4000);
    EXPECT(share.demand_permille == 6000);
    share.busy = true;
    FOLLOW(32000, 40); /* a fifth less */
    EXPECT(share.looks == 0);
    FOLLOW(20000, 40);
    FOLLOW(20000, 40);
    FOLLOW(33000, 40); /* it was nothing */
    FOLLOW(20000, 40);
    FOLLOW(20000, 40);
    FOLLOW(0, 40); /* who asks for nothing keeps what there is */
    EXPECT(share.looks == 0 && !share.busy);
    FOLLOW(20000, 20); /* and has its part at once when it asks again */
    share.workers = 40;
    FOLLOW(20000, 40);
    FOLLOW(20000, 40);
    FOLLOW(20400, 20);
    for (uint32_t n = 0; n < 10; n++) {
        FOLLOW(25000, 20);
        FOLLOW(16000, 20);
    }
    share.workers = 39;
    FOLLOW(40000, 39);
    FOLLOW(40000, 39);
    FOLLOW(40000, 40);
    EXPECT(share.looks == 0);
    share.workers = 1;
    FOLLOW(1750, 1);
    EXPECT(share.looks == 0);
#undef FOLLOW
}

/* What those have whose part is a worker or more. */
static uint64_t
claimed(struct leat_share *const shares[], uint32_t count, uint64_t other_permille, uint32_t workers)
{
    __extension__ unsigned __int128 flexible = 0, divided;
    uint64_t sum = 0;

    for (uint32_t s = 0; s < count; s++) {
        flexible += shares[s]->demand_permille;
    }
    divided = 1000u * workers * flexible / (flexible + other_permille + (flexible == 0));
    if (1000u * workers > other_permille && 1000u * workers - other_permille > divided) {
        divided = 1000u * workers - other_permille;
    }
    for (uint32_t s = 0; s < count; s++) {
        const bool less = shares[s]->workers == 1 && divided * shares[s]->demand_permille < 1000 * flexible;
        EXPECT(shares[s]->workers >= 1 && shares[s]->workers <= workers);
        sum += shares[s]->demand_permille > 0 && !less ? shares[s]->workers : 0;
    }
    return sum;
}

/* Demands that come, go and stay. */
static void
test_sums_and_swings(void)
{
    for (uint32_t n = 0; n < 3000; n++) {
        const uint32_t workers = 1 + (uint32_t)below(256);
        struct leat_share all[APPS] = {0}, *shares[APPS];
        uint32_t before[APPS];
        uint64_t seen_permille[APPS], other_permille = 0;

        for (uint32_t a = 0; a < APPS; a++) {
            all[a].workers = workers;
            shares[a] = &all[a];
        }
        for (uint32_t turn = 0; turn < 90; turn++) {
            for (uint32_t a = 0; a < APPS && turn < 30; a++) {
                seen_permille[a] = below(3) == 0 ? 0 : below(below(50) == 0 ? UINT64_MAX : 1000u * workers);
                other_permille = below(2) * below(2000u * workers);
            }
            look(shares, seen_permille, APPS, other_permille, workers);
            EXPECT(claimed(shares, APPS, other_permille, workers) <= workers);
            for (uint32_t a = 0; a < APPS; a++) {
                EXPECT(all[a].demand_permille <= LEAT_SHARE_DEMAND_MAX && all[a].busy == (all[a].demand_permille > 0));
                EXPECT(turn < 80 || all[a].workers == before[a]);
                before[a] = all[a].workers;
            }
        }
    }
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    test_parts();
    test_two();
    test_whole_workers();
    test_change();
    test_sums_and_swings();
    return 0;
}
