/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc/doorbell.h - sleep without missing a message; wake without a system call when nobody sleeps.
 *
 * Sleeper                                        Waker
 *   B0  asleep = FUTEX or EVENT                    publish the message (release, e.g. S0 or C0)
 *   B1  seq_cst fence, then look for messages      B2  seq_cst fence
 *   found: withdraw, go on                         B3  load asleep; if not AWAKE, exchange it to AWAKE
 *   none: sleep; on waking go to the top           the one who got the old value wakes the sleeper
 *
 * Why      B1 orders "I sleep" before "I look"; B2 orders "I published" before "does it sleep?". Without
 *          either fence both sides can pass each other (store-load): the sleeper sees no message, the waker
 *          sees nobody asleep, and the message waits for ever. With both, at least one sees the other. The
 *          word itself publishes nothing, so every access to it is relaxed.
 * Trust    A hostile waker can forget to wake, or wake for nothing: it harms its own session. The daemon
 *          never waits for one client alone, and never loops on this word.
 * Model    tests/model/doorbell.pml is this protocol with one sleeper and two wakers; tests/ipc/test_doorbell.c is a race
 *          of the two sides that loses a wake-up without either fence.
 */
#ifndef LEAT_IPC_DOORBELL_H
#define LEAT_IPC_DOORBELL_H

#include <stdbool.h>

#include "base/status.h"
#include "ipc/wire.h"

/* TSan does not model fences; a read-modify-write of the word itself orders the same accesses for it. */
#if defined(__SANITIZE_THREAD__)
#define LEAT_BELL_FENCE(bell) ((void)atomic_fetch_add_explicit(&(bell)->asleep, 0, memory_order_seq_cst))
#else
#define LEAT_BELL_FENCE(bell) ((void)(bell), atomic_thread_fence(memory_order_seq_cst))
#endif

/* Sleeper: announces the sleep. It must look for messages once more before it really sleeps. */
static inline void
leat_bell_announce(struct leat_bell *bell, enum leat_bell_mode mode)
{
    atomic_store_explicit(&bell->asleep, (uint32_t)mode, memory_order_relaxed); /* B0 */
    LEAT_BELL_FENCE(bell);                                                      /* B1 */
}

/* Sleeper: takes the announcement back, having found a message or been woken. */
static inline void
leat_bell_withdraw(struct leat_bell *bell)
{
    atomic_store_explicit(&bell->asleep, LEAT_BELL_AWAKE, memory_order_relaxed);
}

/*
 * Waker, after publishing: the mode in which the caller must wake the sleeper, or LEAT_BELL_AWAKE when it
 * need not. At most one of several wakers is told to. A fence and a load when nobody sleeps.
 */
static inline uint32_t
leat_bell_ring(struct leat_bell *bell)
{
    LEAT_BELL_FENCE(bell); /* B2 */
    if (LEAT_LIKELY(atomic_load_explicit(&bell->asleep, memory_order_relaxed) == LEAT_BELL_AWAKE)) { /* B3 */
        return LEAT_BELL_AWAKE;
    }
    /* Relaxed: it only decides who of several wakes. */
    return atomic_exchange_explicit(&bell->asleep, LEAT_BELL_AWAKE, memory_order_relaxed);
}

/* Waker, told LEAT_BELL_FUTEX. `shared`: the sleeper is another process. Never blocks. */
void leat_bell_futex_wake(struct leat_bell *bell, bool shared);

/*
 * Sleeper that announced LEAT_BELL_FUTEX: sleeps until woken or timeout_ns passed (UINT64_MAX: none).
 * Returns at once if the announcement was already taken. Spurious returns are possible.
 */
void leat_bell_futex_sleep(struct leat_bell *bell, bool shared, uint64_t timeout_ns);

#endif /* LEAT_IPC_DOORBELL_H */
