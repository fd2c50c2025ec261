/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/mapping.h"
#include "kernels/padding/padding.h"

void
leat_sequence_destroy(struct leat_sequence *sequence)
{
    if (sequence != NULL) {
        for (uint32_t k = 0; k < sequence->length_count; k++) {
            leat_graph_destroy(sequence->graphs[k]);
        }
        free(sequence);
    }
}

static enum leat_status
check_lengths(const uint32_t *lengths, uint32_t count)
{
    bool good = count >= 2 && count <= LEAT_LENGTHS_MAX && lengths[0] >= 1;

    for (uint32_t k = 1; good && k < count; k++) {
        good = lengths[k] > lengths[k - 1];
    }
    return good && lengths[count - 1] <= LEAT_LENGTH_MAX
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "a sequence has 2 to %u lengths from 1 to %u, each larger than the one before",
                           LEAT_LENGTHS_MAX, LEAT_LENGTH_MAX);
}

/* Where a tensor's shape depends on the length, it is the length, in one dimension. */
static enum leat_status
find_axis(const struct leat_tensor_info *full, uint32_t full_length, const struct leat_tensor_info *info, uint32_t length,
          int32_t *axis)
{
    bool good = info->rank == full->rank;

    for (uint32_t d = 0; good && d < full->rank; d++) {
        if (info->dims[d] != full->dims[d]) {
            good = full->dims[d] == (int64_t)full_length && info->dims[d] == (int64_t)length && (*axis < 0 || *axis == (int32_t)d);
            *axis = (int32_t)d;
        }
    }
    return good ? LEAT_OK
                : LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                            "the shape of '%.64s' depends on the length of the sequence, but is not that length in one dimension",
                            full->name);
}

static enum leat_status
find_axes(struct leat_sequence *sequence, uint32_t which)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    const uint32_t full = sequence->lengths[sequence->length_count - 1];
    uint32_t inputs, outputs;

    enum leat_status status = leat_graph_signature(sequence->graphs[which], infos, &inputs, &outputs);
    for (uint32_t t = 0; status == LEAT_OK && t < inputs + outputs; t++) {
        status = find_axis(&sequence->infos[t], full, &infos[t], sequence->lengths[which], &sequence->axes[t]);
    }
    return status;
}

static enum leat_status
bind_all(struct leat_sequence *sequence, const struct leat_graph *graph, const char *name, const uint32_t *lengths, uint32_t count)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t k = 0; k < count && status == LEAT_OK; k++) {
        const struct leat_dim_value value = {.name = name, .value = lengths[k]};
        status = leat_graph_copy(graph, &sequence->graphs[k]);
        if (status == LEAT_OK) {
            sequence->lengths[k] = lengths[k];
            sequence->length_count++;
            status = leat_graph_bind(sequence->graphs[k], &value, 1);
        }
    }
    if (status == LEAT_OK) {
        status = leat_graph_signature(sequence->graphs[count - 1], sequence->infos, &sequence->input_count,
                                      &sequence->output_count);
    }
    memset(sequence->axes, 0xff, sizeof(sequence->axes)); /* -1 */
    for (uint32_t k = 0; k + 1 < count && status == LEAT_OK; k++) {
        status = find_axes(sequence, k);
    }
    return status;
}

/* Items do not touch each other, so what holds for one holds for all. */
static enum leat_status
check_padding(struct leat_sequence *sequence)
{
    struct leat_graph *single[LEAT_LENGTHS_MAX] = {NULL};
    enum leat_status status = LEAT_OK;

    for (uint32_t k = 0; k < sequence->length_count && status == LEAT_OK; k++) {
        status = leat_graph_specialise(sequence->graphs[k], 1, &single[k]);
    }
    if (status == LEAT_OK) {
        status = leat_padding_check(single, sequence->lengths, sequence->length_count, &sequence->masks);
    }
    for (uint32_t k = 0; k < sequence->length_count; k++) {
        leat_graph_destroy(single[k]);
    }
    return status;
}

enum leat_status
leat_sequence_create(const struct leat_graph *graph, const char *name, const uint32_t *lengths, uint32_t length_count,
                     struct leat_sequence **ret_sequence)
{
    enum leat_status status = check_lengths(lengths, length_count);
    struct leat_sequence *sequence = status == LEAT_OK ? calloc(1, sizeof(*sequence)) : NULL;

    if (sequence == NULL) {
        return status != LEAT_OK ? status : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the lengths of a model");
    }
    status = bind_all(sequence, graph, name, lengths, length_count);
    if (status == LEAT_OK) {
        status = check_padding(sequence);
    }
    if (status != LEAT_OK) {
        leat_sequence_destroy(sequence);
        return status;
    }
    *ret_sequence = sequence;
    return LEAT_OK;
}

void
leat_graph_unify(struct leat_graph *graph, const struct leat_graph *from)
{
    for (uint32_t v = 0; v < graph->value_count && v < from->value_count; v++) {
        (void)leat_graph_unify_constant(graph, v, &from->values[v]);
    }
}

enum leat_status
leat_sequence_optimise(struct leat_sequence *sequence, uint64_t mask)
{
    const uint32_t last = sequence->length_count - 1;

    enum leat_status status = leat_graph_optimise(sequence->graphs[last], mask);
    for (uint32_t k = 0; k < last && status == LEAT_OK; k++) {
        status = leat_graph_optimise(sequence->graphs[k], mask);
        /* Passes that do the same make the same values in the same order; where they do not, some weights are kept twice. */
        if (status == LEAT_OK) {
            leat_graph_unify(sequence->graphs[k], sequence->graphs[last]);
        }
    }
    return status;
}

void
leat_sequence_describe(const struct leat_sequence *sequence, struct leat_model_source *source)
{
    source->graph = sequence->graphs[sequence->length_count - 1];
    source->infos = sequence->infos;
    source->input_count = sequence->input_count;
    source->output_count = sequence->output_count;
    source->length_count = sequence->length_count;
    source->lengths = sequence->lengths;
    source->graphs = (const struct leat_graph *const *)sequence->graphs;
    source->sequence_axes = sequence->axes;
    source->mask_inputs = sequence->masks;
}

/* ---- Models ---------------------------------------------------------------------------------------------- */

enum leat_status
leat_source_copy_graphs(const struct leat_model_source *source, struct leat_graph *ret_graphs[LEAT_LENGTHS_MAX],
                        uint32_t ret_lengths[LEAT_LENGTHS_MAX], uint32_t *ret_count)
{
    const uint32_t count = source->length_count > 0 ? source->length_count : 1;
    enum leat_status status = LEAT_OK;

    *ret_count = 0;
    if (count > LEAT_LENGTHS_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u lengths of a sequence; up to %u are possible", count, LEAT_LENGTHS_MAX);
    }
    for (uint32_t k = 0; k < count && status == LEAT_OK; k++) {
        ret_lengths[k] = source->length_count > 0 ? source->lengths[k] : 0;
        status = leat_graph_copy(source->length_count > 0 ? source->graphs[k] : source->graph, &ret_graphs[k]);
        *ret_count += status == LEAT_OK;
    }
    for (uint32_t k = 0; k < *ret_count && status == LEAT_OK && leat_mapping_any_damaged(); k++) {
        if (leat_graph_is_damaged(ret_graphs[k])) {
            status = LEAT_FAIL(LEAT_ERR_PROTO, "a file of weights has become shorter");
        }
    }
    return status;
}

/* As deep as the file nests graphs. `list` is NULL: they are only counted. */
static size_t
list_constants(const struct leat_graph *graph, struct leat_payload *list)
{
    size_t count = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct leat_value *value = &graph->values[v];
        if (value->data != NULL && list != NULL) {
            list[count].data = value->data;
            list[count].bytes = value->mapping == NULL ? value->data_bytes : 0;
        }
        count += value->data != NULL;
    }
    for (const struct leat_graph *inner = NULL; (inner = leat_graph_inner(graph, inner)) != NULL;) {
        count += list_constants(inner, list != NULL ? list + count : NULL);
    }
    return count;
}

static int
compare_payloads(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const struct leat_payload *)a)->data;
    const uintptr_t y = (uintptr_t)((const struct leat_payload *)b)->data;
    return (x > y) - (x < y);
}

enum leat_status
leat_graphs_payloads(struct leat_graph *const *graphs, uint32_t count, struct leat_payload **ret_payloads,
                     size_t *ret_count)
{
    size_t listed = 0, kept = 0;

    for (uint32_t k = 0; k < count; k++) {
        listed += list_constants(graphs[k], NULL);
    }
    struct leat_payload *list = calloc(listed + 1, sizeof(*list));
    if (list == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a list of %zu constants", listed);
    }
    for (size_t k = 0, at = 0; k < count; k++) {
        at += list_constants(graphs[k], list + at);
    }
    qsort(list, listed, sizeof(*list), compare_payloads);
    for (size_t i = 0; i < listed; i++) {
        if (kept == 0 || list[i].data != list[kept - 1].data) {
            list[kept++] = list[i];
        }
    }
    *ret_payloads = list;
    *ret_count = kept;
    return LEAT_OK;
}

bool
leat_payloads_have(const struct leat_payload *payloads, size_t count, const void *data)
{
    const struct leat_payload wanted = {.data = data};
    return bsearch(&wanted, payloads, count, sizeof(*payloads), compare_payloads) != NULL;
}

size_t
leat_payloads_bytes(const struct leat_payload *payloads, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += payloads[i].bytes;
    }
    return bytes;
}

enum leat_status
leat_length_find(const uint32_t *lengths, uint32_t count, uint32_t length, uint32_t *ret_which)
{
    for (uint32_t k = 0; k < count; k++) {
        if (lengths[k] == length || (length == 0 && k + 1 == count)) {
            *ret_which = k;
            return LEAT_OK;
        }
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "the model is not bound to sequences of %u", length);
}

/* ---- Items --------------------------------------------------------------------------------------------- */

void
leat_item_layout_init(struct leat_item_layout *layout, const struct leat_model_source *source)
{
    *layout = (struct leat_item_layout){.tensor_count = source->input_count + source->output_count};
    LEAT_ASSERT(layout->tensor_count <= LEAT_TENSORS_MAX);
    if (source->length_count > 0) {
        layout->full_length = source->lengths[source->length_count - 1];
        layout->masks = source->mask_inputs;
    }
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct leat_tensor_info *info = &source->infos[t];
        layout->tensors[t].item_bytes = info->item_bytes;
        layout->tensors[t].dtype = info->dtype;
        if (source->length_count > 0 && source->sequence_axes[t] >= 0) {
            size_t outer = 1;
            for (int32_t d = 1; d < source->sequence_axes[t]; d++) {
                outer *= (size_t)info->dims[d];
            }
            layout->tensors[t].outer = outer;
            layout->tensors[t].inner_bytes = info->item_bytes / outer / layout->full_length;
        }
    }
}

size_t
leat_item_bytes(const struct leat_item_layout *layout, uint32_t t, uint32_t length)
{
    return layout->tensors[t].outer > 0 ? layout->tensors[t].outer * layout->tensors[t].inner_bytes * length
                                        : layout->tensors[t].item_bytes;
}

static uint32_t
length_of(const struct leat_item_layout *layout, const struct leat_segment *segment)
{
    return segment->length > 0 ? segment->length : layout->full_length;
}

bool
leat_items_fit(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count)
{
    for (uint32_t i = 0; i < count && layout->full_length > 0; i++) {
        if (length_of(layout, &segments[i]) > length) {
            return false;
        }
    }
    return true;
}

/* The bytes of a 1. */
static uint64_t
one_of(uint32_t dtype)
{
    switch (dtype) {
    case LEAT_DTYPE_F32:
        return 0x3f800000;
    case LEAT_DTYPE_F64:
        return 0x3ff0000000000000;
    case LEAT_DTYPE_F16:
        return 0x3c00;
    case LEAT_DTYPE_BF16:
        return 0x3f80;
    default:
        return 1;
    }
}

/* `mask` has `count` elements. Little-endian, as everything here. */
static void
count_some(unsigned char *mask, size_t count, uint32_t dtype)
{
    const uint64_t one = one_of(dtype);
    const size_t bytes = leat_dtype_bytes(dtype);

    for (size_t i = 0; i < count; i++) {
        if (memcmp(mask + i * bytes, &one, bytes) == 0) {
            return;
        }
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(mask + i * bytes, &one, bytes);
    }
}

static void
gather_mask(const struct leat_item_layout *layout, uint32_t t, uint32_t length, unsigned char *mask)
{
    const uint32_t dtype = layout->tensors[t].dtype;

    for (size_t i = 0; i < length && dtype == LEAT_DTYPE_BOOL; i++) {
        mask[i] = mask[i] != 0; /* a client's byte may be any */
    }
    if (length < layout->full_length) { /* at none is a sequence of the full length padded */
        count_some(mask, length, dtype);
    }
}

void
leat_items_gather(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count,
                  uint32_t t, uint32_t missing, unsigned char *to)
{
    const size_t inner = layout->tensors[t].inner_bytes, outer = layout->tensors[t].outer;
    const size_t item_bytes = leat_item_bytes(layout, t, length);

    if (outer == 0) {
        leat_segments_gather(segments, count, t, item_bytes, missing, to);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *from = segments[i].tensors[t];
        const size_t used = length_of(layout, &segments[i]) * inner;
        for (uint32_t item = 0; item < segments[i].items; item++) {
            for (size_t o = 0; o < outer; o++) {
                memcpy(to + o * length * inner, from + o * layout->full_length * inner, used);
                memset(to + o * length * inner + used, 0, length * inner - used);
            }
            if ((layout->masks >> t & 1) != 0) {
                gather_mask(layout, t, length_of(layout, &segments[i]), to);
            }
            from += layout->tensors[t].item_bytes;
            to += item_bytes;
        }
    }
    for (uint32_t i = 0; i < missing; i++) {
        memcpy(to, to - item_bytes, item_bytes);
        to += item_bytes;
    }
}

void
leat_items_scatter(const struct leat_item_layout *layout, uint32_t length, const struct leat_segment *segments, uint32_t count,
                   uint32_t t, const unsigned char *from)
{
    const size_t inner = layout->tensors[t].inner_bytes, outer = layout->tensors[t].outer;
    const size_t item_bytes = leat_item_bytes(layout, t, length), full_bytes = layout->full_length * inner;

    if (outer == 0) {
        leat_segments_scatter(segments, count, t, item_bytes, from);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        /* The cast drops const: output tensors of a segment are for us to write. */
        unsigned char *to = (unsigned char *)(uintptr_t)segments[i].tensors[t];
        const size_t used = length_of(layout, &segments[i]) * inner;
        for (uint32_t item = 0; item < segments[i].items; item++) {
            for (size_t o = 0; o < outer; o++) {
                memcpy(to + o * full_bytes, from + o * length * inner, used);
                memset(to + o * full_bytes + used, 0, full_bytes - used);
            }
            to += layout->tensors[t].item_bytes;
            from += item_bytes;
        }
    }
}
