/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offset assignment for buffers with known lifetimes: largest first, each at the lowest gap between the
 * buffers already placed that live at the same time (greedy by size, as in Pisarchyk and Lee, "Efficient
 * Memory Management for Deep Neural Net Inference", MLSys 2020, section 5.2).
 */
#include <stdlib.h>

#include "base/align.h"
#include "kernels/cpu/program.h"

/* Falling bytes, then rising index. */
static int
compare_bytes(const void *a, const void *b, void *context)
{
    const struct cpu_buffer *buffers = context;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (buffers[x].bytes != buffers[y].bytes) {
        return buffers[x].bytes > buffers[y].bytes ? -1 : 1;
    }
    return (x > y) - (x < y);
}

/* `placed` holds indices by rising offset. */
static size_t
lowest_gap(const struct cpu_buffer *buffers, const uint32_t *placed, uint32_t count, const struct cpu_buffer *buffer)
{
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cpu_buffer *other = &buffers[placed[i]];
        if (other->last < buffer->first || buffer->last < other->first) {
            continue;
        }
        if (at + buffer->bytes <= other->offset) {
            return at;
        }
        const size_t end = other->offset + other->bytes;
        at = end > at ? end : at;
    }
    return at;
}

size_t
cpu_place_buffers(struct cpu_buffer *buffers, uint32_t count, uint32_t *order)
{
    uint32_t live = 0;
    size_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        buffers[i].bytes = (size_t)leat_round_up(buffers[i].bytes, CPU_ALIGN);
        if (buffers[i].first != CPU_NONE && buffers[i].bytes > 0) {
            order[live++] = i;
        }
    }
    qsort_r(order, live, sizeof(*order), compare_bytes, buffers);
    /* order[0..k) becomes the placed ones by offset, while order[k..] is still by size. */
    for (uint32_t k = 0; k < live; k++) {
        const uint32_t index = order[k];
        struct cpu_buffer *buffer = &buffers[index];
        buffer->offset = lowest_gap(buffers, order, k, buffer);
        total = buffer->offset + buffer->bytes > total ? buffer->offset + buffer->bytes : total;
        uint32_t at = k;
        while (at > 0 && buffers[order[at - 1]].offset > buffer->offset) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = index;
    }
    return total;
}
