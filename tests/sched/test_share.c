/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Alone is all; equal demands get equal parts; what others take is theirs unless that leaves less than a part in
 *          proportion; parts of all applications are no more than the workers. What is in force follows after three looks,
 *          once, and never swings under a demand that stays, whatever it is.
 * Method   Cases by hand, then random demands on up to 300 workers.
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

static uint64_t
part(uint64_t demand, uint64_t flexible, uint64_t other, uint32_t workers)
{
    const struct leat_share share = {.demand_permille = demand};
    const struct leat_share_sums sums = {.flexible_permille = flexible, .other_permille = other};
    return leat_share_part_permille(&share, &sums, workers);
}

static void
test_parts(void)
{
    EXPECT(part(10, 10, 0, 40) == 40000 && part(1000000, 1000000, 0, 40) == 40000);
    EXPECT(part(8000, 16000, 0, 40) == 20000 && part(4000, 16000, 0, 40) == 10000);
    EXPECT(part(1, 1000000, 0, 40) == 1000); /* one worker at the least */
    EXPECT(part(0, 0, 30000, 40) == 0 && part(0, 500, 0, 40) == 0);
    EXPECT(part(4000, 8000, 10000, 40) == 15000); /* 10 are others', 30 are left for both */
    EXPECT(part(10000, 10000, 30000, 40) == 10000);
    EXPECT(part(10000, 10000, 70000, 40) == 5000); /* nothing is left: an eighth of what is asked */
}

static void
test_parts_are_no_more_than_all(void)
{
    for (uint32_t n = 0; n < 10000; n++) {
        const uint32_t workers = 1 + (uint32_t)below(300);
        struct leat_share_sums sums = {.other_permille = below(2) * below(2000u * workers)};
        struct leat_share shares[APPS] = {0};
        uint64_t sum = 0, least = 0;

        for (uint32_t a = 0; a < APPS; a++) {
            leat_share_look(&shares[a], below(3) == 0 ? 0 : below(below(50) == 0 ? UINT64_MAX : 1000u * workers));
            EXPECT(shares[a].demand_permille <= LEAT_SHARE_DEMAND_MAX);
            sums.flexible_permille += shares[a].demand_permille;
        }
        for (uint32_t a = 0; a < APPS; a++) {
            const uint64_t own = leat_share_part_permille(&shares[a], &sums, workers);
            EXPECT((own == 0) == (shares[a].demand_permille == 0) && (own == 0 || own >= 1000) && own <= 1000u * workers);
            sum += own;
            least += own == 1000 ? own : 0;
        }
        EXPECT(sum <= 1000u * workers + least);
    }
}

static void
test_change(void)
{
    struct leat_share share = {.workers = 40};

    leat_share_look(&share, 8000);
    EXPECT(share.demand_permille == 4000);
    leat_share_look(&share, 8000);
    EXPECT(share.demand_permille == 6000);
    EXPECT(!leat_share_follow(&share, 32000, 40) && share.looks == 0); /* a fifth less */
    EXPECT(!leat_share_follow(&share, 20000, 40) && !leat_share_follow(&share, 20000, 40));
    EXPECT(!leat_share_follow(&share, 33000, 40)); /* it was nothing */
    EXPECT(!leat_share_follow(&share, 20000, 40) && !leat_share_follow(&share, 20000, 40));
    EXPECT(!leat_share_follow(&share, 0, 40) && share.looks == 0); /* who asks for nothing keeps what there is */
    EXPECT(!leat_share_follow(&share, 20000, 40) && !leat_share_follow(&share, 20000, 40));
    EXPECT(leat_share_follow(&share, 20400, 40) && share.workers == 20);
    for (uint32_t n = 0; n < 10; n++) {
        EXPECT(!leat_share_follow(&share, 25000, 40) && !leat_share_follow(&share, 16000, 40));
    }
    share.workers = 39;
    EXPECT(!leat_share_follow(&share, 40000, 40) && !leat_share_follow(&share, 40000, 40));
    EXPECT(leat_share_follow(&share, 40000, 40) && share.workers == 40);
    EXPECT(!leat_share_follow(&share, 40000, 40) && share.looks == 0);
    share.workers = 1;
    EXPECT(!leat_share_follow(&share, 1750, 40) && share.looks == 0);
}

/* A part that stays is followed once, if at all. */
static void
test_no_swings(void)
{
    for (uint32_t n = 0; n < 10000; n++) {
        const uint32_t workers = 1 + (uint32_t)below(300);
        struct leat_share share = {.workers = 1 + (uint32_t)below(workers)};
        const uint64_t to = 1000 + below(1000u * workers - 999);
        uint32_t changes = 0;

        for (uint32_t look = 0; look < 20; look++) {
            const uint32_t before = share.workers;
            if (leat_share_follow(&share, to, workers)) {
                EXPECT(share.workers != before && look == LEAT_SHARE_LOOKS - 1);
                changes++;
            }
        }
        EXPECT(changes <= 1 && share.workers >= 1 && share.workers <= workers);
    }
}

int
main(void)
{
    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    test_parts();
    test_parts_are_no_more_than_all();
    test_change();
    test_no_swings();
    return 0;
}
