/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <string.h>

#include "base/align.h"

static const char *const precision_texts[LEAT_PRECISION_COUNT] = {"f32", "bf16", "int8"};

uint32_t
leat_backend_precisions(const struct leat_backend *backend)
{
    return backend->precisions != NULL ? backend->precisions() : LEAT_PRECISION_BIT(LEAT_PRECISION_F32);
}

const char *
leat_precision_text(enum leat_precision precision)
{
    LEAT_ASSERT(precision < LEAT_PRECISION_COUNT);
    return precision_texts[precision];
}

bool
leat_precision_find(const char *text, enum leat_precision *ret_precision)
{
    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        if (strcmp(precision_texts[p], text) == 0) {
            *ret_precision = p;
            return true;
        }
    }
    return false;
}

void
leat_segments_gather(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                     uint32_t missing, unsigned char *to)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to, segments[i].tensors[t], segments[i].items * item_bytes);
        to += segments[i].items * item_bytes;
    }
    for (uint32_t i = 0; i < missing; i++) {
        memcpy(to, to - item_bytes, item_bytes);
        to += item_bytes;
    }
}

void
leat_segments_scatter(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                      const unsigned char *from)
{
    for (uint32_t i = 0; i < count; i++) {
        /* The cast drops const: output tensors of a segment are for us to write. */
        memcpy((void *)(uintptr_t)segments[i].tensors[t], from, segments[i].items * item_bytes);
        from += segments[i].items * item_bytes;
    }
}

void
leat_segments_list(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                   uint32_t missing, const void **ret_items)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t item = 0; item < segments[i].items; item++) {
            *ret_items++ = (const unsigned char *)segments[i].tensors[t] + item * item_bytes;
        }
    }
    for (uint32_t i = 0; i < missing; i++, ret_items++) {
        ret_items[0] = ret_items[-1];
    }
}

uint32_t
leat_signature_sizes(const struct leat_tensor_info *infos, uint32_t count)
{
    uint32_t sizes = 0;
    for (uint32_t t = 0; t < count; t++) {
        sizes += infos[t].varying != 0;
    }
    return sizes;
}

struct leat_segment
leat_segment_item(const struct leat_segment *segment, uint32_t i, const struct leat_tensor_info *infos, uint32_t tensor_count)
{
    struct leat_segment item = *segment;

    item.items = 1;
    for (uint32_t t = 0; t < tensor_count; t++) {
        item.tensors[t] = (const unsigned char *)segment->tensors[t] + i * infos[t].item_bytes;
    }
    if (segment->sizes != NULL) {
        item.sizes = segment->sizes + (size_t)i * leat_signature_sizes(infos, tensor_count);
    }
    return item;
}
