/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrency Kit's ck_ring, which carries pointers: eight bytes an item. */
#define QUEUE_VERSION LEAT_BENCH_CK_VERSION
#include "bench/queue_peer.h"

#if LEAT_BENCH_CK
#include <ck_ring.h>

struct ck {
    _Alignas(LEAT_ISOLATE) ck_ring_t ring;
    _Alignas(LEAT_ISOLATE) ck_ring_buffer_t cells[QUEUE_CAPACITY];
};

static void *
ck_create(void)
{
    struct ck *ck = queue_memory(sizeof(*ck));
    ck_ring_init(&ck->ring, QUEUE_CAPACITY);
    return ck;
}

static void
ck_destroy(void *queue)
{
    free(queue);
}

QUEUE_INLINE bool
ck_mpmc_push(void *queue, const void *items, uint64_t count)
{
    struct ck *ck = queue;
    void *item;
    LEAT_ASSERT(count == 1);
    memcpy(&item, items, sizeof(item));
    return ck_ring_enqueue_mpmc(&ck->ring, ck->cells, item);
}

QUEUE_INLINE uint64_t
ck_mpmc_pop(void *queue, void *items, uint64_t max)
{
    struct ck *ck = queue;
    LEAT_ASSERT(max == 1);
    return ck_ring_dequeue_mpmc(&ck->ring, ck->cells, items) ? 1 : 0;
}

QUEUE_INLINE bool
ck_mpsc_push(void *queue, const void *items, uint64_t count)
{
    struct ck *ck = queue;
    void *item;
    LEAT_ASSERT(count == 1);
    memcpy(&item, items, sizeof(item));
    return ck_ring_enqueue_mpsc(&ck->ring, ck->cells, item);
}

QUEUE_INLINE uint64_t
ck_mpsc_pop(void *queue, void *items, uint64_t max)
{
    struct ck *ck = queue;
    LEAT_ASSERT(max == 1);
    return ck_ring_dequeue_mpsc(&ck->ring, ck->cells, items) ? 1 : 0;
}

#define ck_mpmc_create  ck_create
#define ck_mpmc_destroy ck_destroy
#define ck_mpsc_create  ck_create
#define ck_mpsc_destroy ck_destroy
QUEUE_PEER(ck_mpmc, "ck_ring MPMC, 8 B items", sizeof(void *), 1, 1);
QUEUE_PEER(ck_mpsc, "ck_ring MPSC, 8 B items", sizeof(void *), 1, 1);

#else
QUEUE_PEER_MISSING(ck_mpmc, "ck_ring MPMC", "not built: libck-dev is not installed", 1);
QUEUE_PEER_MISSING(ck_mpsc, "ck_ring MPSC", "not built: libck-dev is not installed", 1);
#endif
