/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The doorbell's two fences: of a sleeper that announces and then looks, and a waker that publishes and then
 *          rings, at least one sees the other; and of several wakers exactly one is told to wake.
 * Method   The two sides of ipc/doorbell.h over rows of bells, by two threads that pass along the row together, so that
 *          they meet at many of them. Each row's lines are first put into the cache of the thread that
 *          will not write them: a store then waits in its core's buffer while the load behind it goes ahead, which is
 *          what the fences are there to prevent. The order of the words is all that is tested: nobody sleeps.
 */
#include <pthread.h>
#include <sched.h>

#include "ipc/doorbell.h"
#include "tests/leat_test.h"

enum { BELLS = 512, ROWS = 400, WAKERS = 2 };

static struct {
    struct leat_bell bell;
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t message;
    _Alignas(LEAT_ISOLATE) uint32_t found; /* W: sleeper */
    _Alignas(LEAT_ISOLATE) uint32_t told[WAKERS]; /* W: each waker its own */
} row[BELLS];

static _Atomic uint32_t arrived; /* at meetings of both threads, ever */

static void
meet(void)
{
    const uint32_t mine = atomic_fetch_add_explicit(&arrived, 1, memory_order_acq_rel);
    for (uint32_t spins = 1; atomic_load_explicit(&arrived, memory_order_acquire) < (mine | 1) + 1; spins++) {
        if (spins % 4096 == 0) {
            (void)sched_yield();
        } else {
            leat_spin_pause();
        }
    }
}

static void
stagger(uint64_t *random)
{
    for (uint64_t n = leat_test_random(random) % 64; n > 0; n--) {
        leat_spin_pause();
    }
}

/* ---- One sleeper, one waker ------------------------------------------------------------------- */

static void *
sleeper(void *argument)
{
    uint64_t random = leat_test_seed + 1;

    (void)argument;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t b = 0; b < BELLS; b++) {
            atomic_store_explicit(&row[b].message, 0, memory_order_relaxed);
        }
        meet();
        stagger(&random);
        for (uint32_t b = 0; b < BELLS; b++) {
            leat_bell_announce(&row[b].bell, LEAT_BELL_FUTEX);
            row[b].found = atomic_load_explicit(&row[b].message, memory_order_acquire);
        }
        meet();
    }
    return NULL;
}

static void
test_one_sees_the_other(void)
{
    uint64_t random = leat_test_seed, both = 0, neither = 0;
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t b = 0; b < BELLS; b++) {
            leat_bell_withdraw(&row[b].bell);
        }
        meet();
        stagger(&random);
        for (uint32_t b = 0; b < BELLS; b++) {
            atomic_store_explicit(&row[b].message, 1, memory_order_release);
            row[b].told[0] = leat_bell_ring(&row[b].bell);
        }
        meet();
        for (uint32_t b = 0; b < BELLS; b++) {
            const bool told = row[b].told[0] == LEAT_BELL_FUTEX;
            both += told && row[b].found == 1;
            neither += !told && row[b].found == 0;
        }
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    (void)printf("%u meetings: both saw the other %llu times, neither %llu times\n", BELLS * ROWS,
                 (unsigned long long)both, (unsigned long long)neither);
    EXPECT(neither == 0);
}

/* ---- Two wakers ------------------------------------------------------------------------------- */

static void *
other_waker(void *argument)
{
    uint64_t random = leat_test_seed + 2;

    (void)argument;
    for (uint32_t r = 0; r < ROWS; r++) {
        meet();
        stagger(&random);
        for (uint32_t b = 0; b < BELLS; b++) {
            row[b].told[1] = leat_bell_ring(&row[b].bell);
        }
        meet();
    }
    return NULL;
}

static void
test_one_waker_is_told(void)
{
    uint64_t random = leat_test_seed;
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, other_waker, NULL) == 0);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t b = 0; b < BELLS; b++) {
            leat_bell_announce(&row[b].bell, LEAT_BELL_EVENT);
        }
        meet();
        stagger(&random);
        for (uint32_t b = 0; b < BELLS; b++) {
            row[b].told[0] = leat_bell_ring(&row[b].bell);
        }
        meet();
        for (uint32_t b = 0; b < BELLS; b++) {
            EXPECT(row[b].told[0] + row[b].told[1] == LEAT_BELL_EVENT && row[b].told[0] * row[b].told[1] == 0);
        }
    }
    EXPECT(pthread_join(thread, NULL) == 0);
}

int
main(void)
{
    cpu_set_t usable;

    leat_test_init();
    EXPECT(sched_getaffinity(0, sizeof(usable), &usable) == 0);
    if (CPU_COUNT(&usable) < 2) {
        (void)printf("skipped: on one CPU no store passes a load\n");
        return LEAT_TEST_SKIP;
    }
    test_one_sees_the_other();
    test_one_waker_is_told();
    return 0;
}
