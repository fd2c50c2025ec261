/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/central_queue.h - bounded lock-free queue of queries: many producers, the dispatcher consumes.
 *
 * Role      The only way into scheduling: for clients' queries, and for what other threads of the daemon submit.
 * Source    D. Vyukov's bounded queue (a sequence number in every cell), narrowed to one consumer and widened to
 *           reserve several cells with one compare-and-swap.
 * Progress  push is lock-free: a producer that is preempted between reserving and publishing delays the
 *           consumer at its own cell, never another producer. pop is wait-free.
 * Order     First in, first out by reservation.
 * Ordering  Q0 producer stores sequence, release -> Q1 consumer loads it, acquire: the cell is whole.
 *           Q2 consumer stores sequence, release -> Q3 producer loads it, acquire: the cell has been read
 *              and may be overwritten.
 *           Reserving moves `tail` with a relaxed compare-and-swap: it hands out positions, it publishes nothing.
 */
#ifndef LEAT_RUNTIME_CENTRAL_QUEUE_H
#define LEAT_RUNTIME_CENTRAL_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <leat/tensor.h>

#include "base/align.h"
#include "base/status.h"
#include "ipc/wire.h"

/* A query that passed validation. Offsets are trusted from here on; those in a list of the client's are not, and checked again. */
struct leat_query_entry {
    uint64_t submit_ns;
    uint64_t deadline_ns; /* LEAT_NO_DEADLINE for none */
    uint32_t units[LEAT_WIRE_UNITS]; /* as the request has them */
    uint32_t accuracy_floor_ppm : 20;
    uint32_t cost_cap : 11; /* leat_wire_cost_code */
    uint32_t offline : 1;
    uint32_t ticket_low;
    uint64_t items_less_1 : 16;
    uint64_t length : 15; /* of its sequences; 0: its application has none */
    uint64_t slot : 13;
    uint64_t session : 10;
    uint64_t application : 10;
};
_Static_assert(LEAT_ITEMS_MAX - 1 <= UINT16_MAX && LEAT_LENGTH_MAX < 1 << 15, "the largest batch and the longest sequence fit");

struct leat_queue_cell {
    _Alignas(LEAT_CACHE_LINE) _Atomic uint64_t sequence; /* W: producer Q0, consumer Q2 */
    struct leat_query_entry entry;
};
_Static_assert(sizeof(struct leat_queue_cell) == LEAT_CACHE_LINE, "one query is one line");

struct leat_central_queue {
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t tail; /* W: producers  next position to reserve */
    _Alignas(LEAT_ISOLATE) uint64_t head;         /* W: consumer, private to it */
    _Alignas(LEAT_ISOLATE) struct leat_queue_cell *cells; /* constant */
    uint64_t capacity;                                    /* power of two, constant */
};

/* `cells` has `capacity` cells and belongs to the caller; it outlives the queue. */
static inline void
leat_central_queue_init(struct leat_central_queue *queue, struct leat_queue_cell *cells, uint64_t capacity)
{
    LEAT_ASSERT(leat_is_power_of_two(capacity));
    atomic_init(&queue->tail, 0);
    queue->head = 0;
    queue->cells = cells;
    queue->capacity = capacity;
    for (uint64_t i = 0; i < capacity; i++) {
        atomic_init(&cells[i].sequence, i); /* free for the producer that gets position i */
    }
}

/* Appends entries[0..count) next to each other. LEAT_AGAIN: not that much room. 1 <= count <= capacity. */
LEAT_MUST_CHECK static inline enum leat_status
leat_central_queue_push(struct leat_central_queue *queue, const struct leat_query_entry *entries, uint64_t count)
{
    const uint64_t mask = queue->capacity - 1;
    uint64_t position = atomic_load_explicit(&queue->tail, memory_order_relaxed);

    LEAT_ASSERT(count >= 1 && count <= queue->capacity);
    for (;;) {
        /* The consumer frees in order: if the last cell is free for this lap, all before it are. */
        const uint64_t last = position + count - 1;
        const uint64_t sequence =
            atomic_load_explicit(&queue->cells[last & mask].sequence, memory_order_acquire); /* Q3 */
        if (sequence == last) {
            if (atomic_compare_exchange_weak_explicit(&queue->tail, &position, position + count,
                                                      memory_order_relaxed, memory_order_relaxed)) {
                break;
            }
        } else if ((int64_t)(sequence - last) < 0) {
            return LEAT_AGAIN; /* still holds the previous lap */
        } else {
            position = atomic_load_explicit(&queue->tail, memory_order_relaxed);
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        struct leat_queue_cell *cell = &queue->cells[(position + i) & mask];
        cell->entry = entries[i];
        atomic_store_explicit(&cell->sequence, position + i + 1, memory_order_release); /* Q0 */
    }
    __builtin_prefetch(&queue->cells[(position + count) & mask], 1); /* last used a whole lap ago */
    return LEAT_OK;
}

/* Consumer only. Takes up to `max` entries; returns how many. */
static inline uint64_t
leat_central_queue_pop(struct leat_central_queue *queue, struct leat_query_entry *entries, uint64_t max)
{
    const uint64_t mask = queue->capacity - 1;
    uint64_t count = 0;

    while (count < max) {
        struct leat_queue_cell *cell = &queue->cells[queue->head & mask];
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != queue->head + 1) { /* Q1 */
            break;
        }
        entries[count++] = cell->entry;
        atomic_store_explicit(&cell->sequence, queue->head + queue->capacity, memory_order_release); /* Q2 */
        queue->head++;
    }
    return count;
}

#endif /* LEAT_RUNTIME_CENTRAL_QUEUE_H */
