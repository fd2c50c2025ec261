/* SPDX-License-Identifier: Apache-2.0 */
/* tools/simulate/events.h - what is to happen to workers, the soonest first: a binary heap in the caller's memory. */
#ifndef LEAT_TOOLS_SIMULATE_EVENTS_H
#define LEAT_TOOLS_SIMULATE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct event {
    uint64_t at_ns;
    uint32_t worker; /* of two at once the lower number is first */
};

static inline bool
event_sooner(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->worker < b->worker;
}

/* heap[*count] is room for one more. */
static inline void
events_push(struct event *heap, uint32_t *count, struct event event)
{
    uint32_t at = (*count)++;
    while (at > 0 && event_sooner(&event, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = event;
}

/* Removes heap[0]. */
static inline void
events_pop(struct event *heap, uint32_t *count)
{
    const struct event last = heap[--*count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= *count) {
            break;
        }
        child += child + 1 < *count && event_sooner(&heap[child + 1], &heap[child]);
        if (!event_sooner(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
}

#endif /* LEAT_TOOLS_SIMULATE_EVENTS_H */
