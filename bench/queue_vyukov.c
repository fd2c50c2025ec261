/* SPDX-License-Identifier: Apache-2.0 */
/*
 * D. Vyukov's bounded multi-producer multi-consumer queue as published (1024cores.net, "Bounded MPMC queue"): a sequence
 * number in every cell, one compare-and-swap per operation on either side. Once with eight bytes an item in cells
 * of a line each, once with the entries and the cells of the central queue.
 */
#define QUEUE_VERSION NULL
#include "bench/queue_peer.h"
#include "runtime/central_queue.h"

struct vyukov_position {
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t value;
};

/* Reserves the position whose cell has `sequence == position + ready`, moving `next`; false when full or empty. */
#define VYUKOV_RESERVE(vyukov, next, ready, ret_position)                                                     \
    do {                                                                                                      \
        (ret_position) = atomic_load_explicit(&(vyukov)->next.value, memory_order_relaxed);                   \
        for (;;) {                                                                                            \
            const uint64_t sequence = atomic_load_explicit(                                                   \
                &(vyukov)->cells[(ret_position) & (vyukov)->mask].sequence, memory_order_acquire);               \
            const int64_t ahead = (int64_t)(sequence - ((ret_position) + (ready)));                           \
            if (ahead == 0) {                                                                                 \
                if (atomic_compare_exchange_weak_explicit(&(vyukov)->next.value, &(ret_position),             \
                                                          (ret_position) + 1, memory_order_relaxed,           \
                                                          memory_order_relaxed)) {                            \
                    break;                                                                                    \
                }                                                                                             \
            } else if (ahead < 0) {                                                                           \
                return 0;                                                                                     \
            } else {                                                                                          \
                (ret_position) = atomic_load_explicit(&(vyukov)->next.value, memory_order_relaxed);           \
            }                                                                                                 \
        }                                                                                                     \
    } while (false)

#define VYUKOV(id, item)                                                                                      \
    struct id##_cell {                                                                                        \
        _Alignas(LEAT_CACHE_LINE) _Atomic uint64_t sequence;                                                  \
        item value;                                                                                           \
    };                                                                                                        \
    struct id {                                                                                               \
        struct vyukov_position enqueue, dequeue;                                                              \
        _Alignas(LEAT_ISOLATE) struct id##_cell *cells; /* constant */                                        \
        uint64_t mask;                                  /* constant */                                        \
    };                                                                                                        \
    static void *id##_create(void)                                                                            \
    {                                                                                                         \
        struct id *queue = queue_memory(sizeof(*queue));                                                      \
        queue->cells = queue_memory(QUEUE_CAPACITY * sizeof(struct id##_cell));                               \
        queue->mask = QUEUE_CAPACITY - 1;                                                                     \
        for (uint64_t i = 0; i < QUEUE_CAPACITY; i++) {                                                       \
            atomic_init(&queue->cells[i].sequence, i);                                                        \
        }                                                                                                     \
        return queue;                                                                                         \
    }                                                                                                         \
    static void id##_destroy(void *queue)                                                                     \
    {                                                                                                         \
        free(((struct id *)queue)->cells);                                                                    \
        free(queue);                                                                                          \
    }                                                                                                         \
    QUEUE_INLINE bool id##_push(void *queue, const void *items, uint64_t count)                               \
    {                                                                                                         \
        struct id *vyukov = queue;                                                                            \
        uint64_t position;                                                                                    \
        LEAT_ASSERT(count == 1);                                                                              \
        VYUKOV_RESERVE(vyukov, enqueue, 0, position);                                                         \
        struct id##_cell *cell = &vyukov->cells[position & vyukov->mask];                                     \
        memcpy(&cell->value, items, sizeof(item));                                                            \
        atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);                           \
        return true;                                                                                          \
    }                                                                                                         \
    QUEUE_INLINE uint64_t id##_pop(void *queue, void *items, uint64_t max)                                    \
    {                                                                                                         \
        struct id *vyukov = queue;                                                                            \
        uint64_t position;                                                                                    \
        LEAT_ASSERT(max == 1);                                                                                \
        VYUKOV_RESERVE(vyukov, dequeue, 1, position);                                                         \
        struct id##_cell *cell = &vyukov->cells[position & vyukov->mask];                                     \
        memcpy(items, &cell->value, sizeof(item));                                                            \
        atomic_store_explicit(&cell->sequence, position + vyukov->mask + 1, memory_order_release);            \
        return 1;                                                                                             \
    }

VYUKOV(vyukov_words, uint64_t)
VYUKOV(vyukov_entries, struct leat_query_entry)
_Static_assert(sizeof(struct vyukov_entries_cell) == sizeof(struct leat_queue_cell), "the same lines to move");

QUEUE_PEER(vyukov_words, "Vyukov MPMC, 8 B items", sizeof(uint64_t), 1, 1);
QUEUE_PEER(vyukov_entries, "Vyukov MPMC, entries", sizeof(struct leat_query_entry), 1, 1);
