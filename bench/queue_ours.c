/* SPDX-License-Identifier: Apache-2.0 */
/* The subject: runtime/central_queue.h, carrying whole entries as the dispatcher does. */
#define QUEUE_VERSION NULL
#include "bench/queue_peer.h"
#include "runtime/central_queue.h"

_Static_assert(offsetof(struct leat_query_entry, submit_ns) == 0, "an item starts with its identity");

struct central {
    struct leat_central_queue queue;
    struct leat_queue_cell cells[QUEUE_CAPACITY];
};

static void *
central_create(void)
{
    struct central *central = queue_memory(sizeof(*central));
    leat_central_queue_init(&central->queue, central->cells, QUEUE_CAPACITY);
    return central;
}

static void
central_destroy(void *queue)
{
    free(queue);
}

QUEUE_INLINE bool
central_push(void *queue, const void *items, uint64_t count)
{
    return leat_central_queue_push(&((struct central *)queue)->queue, items, count) == LEAT_OK;
}

QUEUE_INLINE uint64_t
central_pop(void *queue, void *items, uint64_t max)
{
    return leat_central_queue_pop(&((struct central *)queue)->queue, items, max);
}

QUEUE_PEER(central, "central queue", sizeof(struct leat_query_entry), 1, 1);
QUEUE_PEER(central, "central queue, burst 16", sizeof(struct leat_query_entry), 16, 16);

/* As the dispatcher uses it: single items in, whatever is there out. */
#define dispatcher_create  central_create
#define dispatcher_destroy central_destroy
#define dispatcher_push    central_push
#define dispatcher_pop     central_pop
QUEUE_PEER(dispatcher, "central queue, out by 16", sizeof(struct leat_query_entry), 1, 16);
