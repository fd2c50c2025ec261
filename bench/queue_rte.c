/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK's rte_ring in plain memory: rte_ring_init on memory of ours needs no initialised environment layer. Flags choose the
 * algorithm at creation; here, as the inline functions do, by a switch on the ring's own fields.
 */
#define QUEUE_VERSION LEAT_BENCH_RTE_VERSION
#include "bench/queue_peer.h"
#include "runtime/central_queue.h"

#if LEAT_BENCH_RTE
#include <rte_ring.h>

static void *
rte_make(unsigned item_bytes, unsigned flags)
{
    const ssize_t bytes = rte_ring_get_memsize_elem(item_bytes, QUEUE_CAPACITY);
    LEAT_ASSERT(bytes > 0);
    struct rte_ring *ring = queue_memory((size_t)bytes);
    LEAT_MUST(rte_ring_init(ring, "bench", QUEUE_CAPACITY, flags) == 0);
    return ring;
}

#define RTE_RING(id, bytes, flags)                                                                     \
    static void *id##_create(void)                                                                     \
    {                                                                                                  \
        return rte_make(bytes, flags);                                                                 \
    }                                                                                                  \
    static void id##_destroy(void *queue)                                                              \
    {                                                                                                  \
        free(queue);                                                                                   \
    }                                                                                                  \
    QUEUE_INLINE bool id##_push(void *queue, const void *items, uint64_t count)                        \
    {                                                                                                  \
        return rte_ring_enqueue_bulk_elem(queue, items, bytes, (unsigned)count, NULL) == count;        \
    }                                                                                                  \
    QUEUE_INLINE uint64_t id##_pop(void *queue, void *items, uint64_t max)                             \
    {                                                                                                  \
        return rte_ring_dequeue_burst_elem(queue, items, bytes, (unsigned)max, NULL);                  \
    }

RTE_RING(rte_mp, sizeof(uint64_t), 0)
RTE_RING(rte_hts, sizeof(uint64_t), RING_F_MP_HTS_ENQ | RING_F_MC_HTS_DEQ)
RTE_RING(rte_hts_sc, sizeof(uint64_t), RING_F_MP_HTS_ENQ | RING_F_SC_DEQ)
RTE_RING(rte_hts_entries, sizeof(struct leat_query_entry), RING_F_MP_HTS_ENQ | RING_F_MC_HTS_DEQ)

QUEUE_PEER(rte_mp, "rte_ring MP/MC default, 8 B items", sizeof(uint64_t), 1, 1);
QUEUE_PEER(rte_hts, "rte_ring HTS, 8 B items", sizeof(uint64_t), 1, 1);
QUEUE_PEER(rte_hts_sc, "rte_ring HTS in, SC out, 8 B items", sizeof(uint64_t), 1, 1);
QUEUE_PEER(rte_hts_entries, "rte_ring HTS, entries", sizeof(struct leat_query_entry), 1, 1);
QUEUE_PEER(rte_hts, "rte_ring HTS, 8 B items, burst 16", sizeof(uint64_t), 16, 16);
QUEUE_PEER(rte_hts_entries, "rte_ring HTS, entries, burst 16", sizeof(struct leat_query_entry), 16, 16);

#else
#define RTE_WHY "not built: libdpdk-dev is not installed"
QUEUE_PEER_MISSING(rte_mp, "rte_ring MP/MC default", RTE_WHY, 1);
QUEUE_PEER_MISSING(rte_hts, "rte_ring HTS", RTE_WHY, 1);
QUEUE_PEER_MISSING(rte_hts_sc, "rte_ring HTS in, SC out", RTE_WHY, 1);
QUEUE_PEER_MISSING(rte_hts_entries, "rte_ring HTS, entries", RTE_WHY, 1);
QUEUE_PEER_MISSING(rte_hts, "rte_ring HTS, burst 16", RTE_WHY, 16);
QUEUE_PEER_MISSING(rte_hts_entries, "rte_ring HTS, entries, burst 16", RTE_WHY, 16);
#endif
