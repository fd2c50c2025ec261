/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/queue_peer.h - one bounded queue as bench/queue.c drives it, and the loops that are compiled around each.
 *
 * Role      A peer is a table of functions. `produce` and `consume` are the loops below with that queue's push and pop
 *           inlined, so that no peer pays for a call through a pointer and all run the same code around their own.
 * Items     The first eight bytes of an item are its identity: producer << 48 | sequence. Some peers carry a whole
 *           struct leat_query_entry, some eight bytes only; `item_bytes` says which.
 * Checks    The consumer demands of every item that it is the next one of its producer: none lost, none twice,
 *           each producer's in order.
 */
#ifndef LEAT_BENCH_QUEUE_PEER_H
#define LEAT_BENCH_QUEUE_PEER_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/status.h"

enum { QUEUE_CAPACITY = 1024, QUEUE_BURST = 16, QUEUE_PRODUCERS_MAX = 64, QUEUE_ITEM_BYTES_MAX = 128 };
enum { QUEUE_TRIES = 64 }; /* failed tries before a thread gives its CPU away */

/* What all threads of one window share. */
struct queue_run {
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t stop;  /* W: main  R: producers */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t drain; /* W: main, once producers have ended  R: consumer */
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t received; /* W: consumer  R: main */
    _Alignas(LEAT_ISOLATE) uint64_t sent[QUEUE_PRODUCERS_MAX]; /* W: each producer once, at its end */
    uint64_t expected[QUEUE_PRODUCERS_MAX];                    /* W: consumer */
    void *queue;                                               /* constant */
};

struct queue_peer {
    const char *name;
    const char *missing; /* not NULL: why it is not here; the rest is not set then */
    const char *version; /* NULL: it is part of this bench */
    void *(*create)(void);
    void (*destroy)(void *queue);
    void (*produce)(struct queue_run *run, uint64_t producer);
    void (*consume)(struct queue_run *run);
};

/* All `count` or nothing. */
typedef bool queue_push_function(void *queue, const void *items, uint64_t count);
/* Up to `max`; how many. */
typedef uint64_t queue_pop_function(void *queue, void *items, uint64_t max);

#define QUEUE_INLINE static inline __attribute__((always_inline))

QUEUE_INLINE void
queue_produce(struct queue_run *run, uint64_t producer, queue_push_function *push, uint64_t item_bytes, uint64_t burst)
{
    _Alignas(LEAT_CACHE_LINE) unsigned char items[QUEUE_BURST * QUEUE_ITEM_BYTES_MAX] = {0};
    uint64_t sequence = 0;
    uint32_t failed = 0;

    while (atomic_load_explicit(&run->stop, memory_order_relaxed) == 0) {
        for (uint64_t i = 0; i < burst; i++) {
            const uint64_t identity = producer << 48 | (sequence + i);
            memcpy(&items[i * item_bytes], &identity, sizeof(identity));
        }
        if (push(run->queue, items, burst)) {
            sequence += burst;
            failed = 0;
            continue;
        }
        leat_spin_pause();
        if (++failed % QUEUE_TRIES == 0) {
            (void)sched_yield();
        }
    }
    run->sent[producer] = sequence;
}

QUEUE_INLINE void
queue_consume(struct queue_run *run, queue_pop_function *pop, uint64_t item_bytes, uint64_t max)
{
    _Alignas(LEAT_CACHE_LINE) unsigned char items[QUEUE_BURST * QUEUE_ITEM_BYTES_MAX];
    uint64_t received = 0;
    uint32_t failed = 0;

    for (;;) {
        /* Read before the pop: once it is set, what an empty pop says is final. */
        const bool drained = atomic_load_explicit(&run->drain, memory_order_acquire) != 0;
        const uint64_t count = pop(run->queue, items, max);
        if (count == 0) {
            if (drained) {
                return;
            }
            leat_spin_pause();
            if (++failed % QUEUE_TRIES == 0) {
                (void)sched_yield();
            }
            continue;
        }
        failed = 0;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t identity;
            memcpy(&identity, &items[i * item_bytes], sizeof(identity));
            const uint64_t producer = identity >> 48;
            LEAT_ASSERT(producer < QUEUE_PRODUCERS_MAX && identity == (producer << 48 | run->expected[producer]));
            run->expected[producer]++;
        }
        received += count;
        atomic_store_explicit(&run->received, received, memory_order_relaxed);
    }
}

/* Defines the peer <id>_<in>: <id>_push with `in` items at a time, <id>_pop with up to `out`, of `bytes` each. */
#define QUEUE_PEER(id, label, bytes, in, out)                                \
    static void id##_produce_##in(struct queue_run *run, uint64_t producer)  \
    {                                                                        \
        queue_produce(run, producer, id##_push, bytes, in);                  \
    }                                                                        \
    static void id##_consume_##in(struct queue_run *run)                     \
    {                                                                        \
        queue_consume(run, id##_pop, bytes, out);                            \
    }                                                                        \
    const struct queue_peer id##_##in = {.name = label,                      \
                                         .version = QUEUE_VERSION,           \
                                         .create = id##_create,              \
                                         .destroy = id##_destroy,            \
                                         .produce = id##_produce_##in,       \
                                         .consume = id##_consume_##in}

#define QUEUE_PEER_MISSING(id, label, why, most) \
    const struct queue_peer id##_##most = {.name = label, .missing = why}

/* queue_ours.c */
extern const struct queue_peer central_1, central_16, dispatcher_1;
/* queue_vyukov.c */
extern const struct queue_peer vyukov_words_1, vyukov_entries_1;
/* queue_ck.c */
extern const struct queue_peer ck_mpmc_1, ck_mpsc_1;
/* queue_rte.c */
extern const struct queue_peer rte_mp_1, rte_hts_1, rte_hts_sc_1, rte_hts_entries_1, rte_hts_16, rte_hts_entries_16;

/* Cells and rings start on lines of their own, and their pages exist before anything is timed. */
static inline void *
queue_memory(size_t bytes)
{
    const size_t rounded = leat_round_up(bytes, LEAT_ISOLATE);
    void *memory = aligned_alloc(LEAT_ISOLATE, rounded);
    LEAT_ASSERT(memory != NULL);
    return memset(memory, 0, rounded);
}

#endif /* LEAT_BENCH_QUEUE_PEER_H */
