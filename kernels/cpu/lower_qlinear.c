/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on tensors that the file has quantised. */
#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/qlinear.h"
#include "kernels/op.h"

enum { SHARED_LEAST = 4096 }; /* elements for each member of a team */

/* Element `channel` of a vector, or the only element there is. */
static size_t
place_in(const struct leat_value *vector, size_t channel)
{
    return leat_value_elements(vector) > 1 ? channel : 0;
}

/* ---- Scales of tensors ------------------------------------------------------------------------------ */

enum { FROM, TO, SCALE, ZERO }; /* args of a step; the last only where there are zero points */

/* Of channel `channel`, numbers of type `dtype`; as the payload has them. */
static struct cpu_scale
scale_of(const struct cpu_call *call, uint32_t dtype, size_t channel)
{
    const struct leat_graph *graph = call->program->graph;
    const struct leat_node *node = call->step->node;
    struct cpu_scale scale = {.is_signed = dtype == LEAT_DTYPE_I8};

    scale.scale =
        ((const float *)call->pointers[SCALE])[place_in(leat_node_input(graph, node, 1), channel)];
    if (call->step->arg_count > ZERO) {
        const size_t place = place_in(leat_node_input(graph, node, 2), channel);
        const void *zeros = call->pointers[ZERO];
        scale.zero = dtype == LEAT_DTYPE_I8   ? ((const int8_t *)zeros)[place]
                     : dtype == LEAT_DTYPE_U8 ? ((const uint8_t *)zeros)[place]
                                              : ((const int32_t *)zeros)[place];
    }
    return scale;
}

static void
quantise_some(const struct cpu_call *call, uint32_t dtype, size_t channel, size_t first,
              size_t count)
{
    const struct cpu_scale scale = scale_of(call, dtype, channel);
    cpu_quantise((const float *)call->pointers[FROM] + first, (uint8_t *)call->pointers[TO] + first,
                 count, &scale);
}

static void
dequantise_some(const struct cpu_call *call, uint32_t dtype, size_t channel, size_t first,
                size_t count)
{
    const struct cpu_scale scale = scale_of(call, dtype, channel);
    float *to = (float *)call->pointers[TO] + first;

    if (dtype == LEAT_DTYPE_I32) {
        cpu_dequantise_sums((const int32_t *)call->pointers[FROM] + first, to, count, scale.scale,
                            scale.zero);
    } else {
        cpu_dequantise((const uint8_t *)call->pointers[FROM] + first, to, count, &scale);
    }
}

/* Elements begin..end; `outer` channels of `inner` elements follow each other. */
static void
convert_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const bool quantises = step->node->op->kind == LEAT_OP_QUANTIZE_LINEAR;
    const struct leat_graph *graph = call->program->graph;
    const uint32_t dtype = quantises ? leat_node_output(graph, step->node, 0)->dtype
                                     : leat_node_input(graph, step->node, 0)->dtype;

    for (size_t i = begin, next; i < end; i = next) {
        const size_t row = i / step->inner, row_end = (row + 1) * step->inner;
        next = row_end < end ? row_end : end;
        (quantises ? quantise_some : dequantise_some)(call, dtype, row % step->outer, i, next - i);
    }
}

static enum leat_status
convert(const struct cpu_call *call)
{
    cpu_share(call, convert_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

/* Its elements follow each other in some order, with nothing between them. */
static bool
is_dense(const dnnl_memory_desc_t *md, size_t elements)
{
    return md->ndims != 0 && md->format_kind == dnnl_blocked && md->extra.flags == 0 &&
           md->offset0 == 0 &&
           dnnl_memory_desc_get_size(md) ==
               elements * (md->data_type == dnnl_f32 ? sizeof(float) : 1);
}

/* Input 0 in the layout that it has, where that is dense and channels do not matter, else plain. */
static enum leat_status
source_of(struct cpu_builder *b, bool by_channel, uint32_t *ret_tensor)
{
    const uint32_t x = b->node->inputs[0];
    const struct leat_value *value = &b->graph->values[x];
    enum leat_status status = LEAT_OK;

    if (!by_channel && cpu_value_md(value).ndims != 0) {
        status = cpu_best(b, x, ret_tensor);
        dnnl_memory_desc_t md = b->program->tensors[*ret_tensor].md;
        if (status == LEAT_OK && md.data_type == dnnl_bf16) { /* not all were made in floats */
            md.data_type = dnnl_f32;
            status = cpu_in_layout(b, x, &md, ret_tensor);
        }
        if (status != LEAT_OK ||
            is_dense(&b->program->tensors[*ret_tensor].md, leat_value_elements(value))) {
            return status;
        }
    }
    return cpu_plain(b, x, ret_tensor);
}

enum leat_status
cpu_lower_scale_tensor(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *x = leat_node_input(b->graph, node, 0),
                            *y = leat_node_output(b->graph, node, 0);
    const size_t count = leat_value_elements(x),
                 channels = leat_value_elements(leat_node_input(b->graph, node, 1));
    const bool quantises = node->op->kind == LEAT_OP_QUANTIZE_LINEAR;
    const bool has_zero = leat_node_input(b->graph, node, 2) != NULL;
    struct cpu_arg args[ZERO + 1] = {{0, 0}};
    struct cpu_step *step;

    if (count == 0 || (quantises && x->dtype != LEAT_DTYPE_F32)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = source_of(b, channels > 1, &args[FROM].tensor);
    if (status == LEAT_OK) {
        dnnl_memory_desc_t md = b->program->tensors[args[FROM].tensor].md;
        if (md.ndims == 0) { /* of i32 */
            md = cpu_value_md(y);
        }
        md.data_type = cpu_value_md(y).data_type;
        status = cpu_new_tensor(b, &md, leat_value_bytes(y), &args[TO].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain(b, node->inputs[1], &args[SCALE].tensor);
    }
    if (status == LEAT_OK && has_zero) {
        status = cpu_plain(b, node->inputs[2], &args[ZERO].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, convert, args, has_zero ? ZERO + 1 : ZERO, &step);
    }
    if (status == LEAT_OK) {
        const int64_t axis = channels > 1 ? leat_node_axis(node, 1, x->rank) : (int64_t)x->rank;
        step->count = count;
        step->outer = channels;
        step->inner = channels > 1 ? 1 : count;
        for (uint32_t d = (uint32_t)axis + 1; d < x->rank; d++) {
            step->inner *= (size_t)x->dims[d];
        }
        cpu_set_output(b, 0, args[TO].tensor);
    }
    return status;
}

/* ---- Scales that are found in each run ---------------------------------------------------------------- */

enum {
    FOUND = SCALE,
    RANGE_ARGS = FOUND + 3
}; /* then the other outputs, where they are asked for */

static void
quantise_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_scale *found = call->pointers[FOUND];
    cpu_quantise((const float *)call->pointers[FROM] + begin, (uint8_t *)call->pointers[TO] + begin,
                 end - begin, found);
}

static enum leat_status
quantise_in_range(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    struct cpu_scale *found = call->pointers[FOUND];
    float low = 0, high = 0;
    uint8_t zero;

    cpu_find_range(call->pointers[FROM], step->count, &low, &high);
    *found = (struct cpu_scale){.scale = (high - low) / UINT8_MAX};
    const float below = -low;
    cpu_quantise(&below, &zero, 1, found);
    found->zero = zero;
    cpu_share(call, quantise_part, step->count, SHARED_LEAST);
    if (step->outer != 0) {
        *(float *)call->pointers[step->outer] = found->scale;
    }
    if (step->inner != 0) {
        *(uint8_t *)call->pointers[step->inner] = zero;
    }
    return LEAT_OK;
}

enum leat_status
cpu_lower_dynamic_quantise(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const size_t count = leat_value_elements(leat_node_input(b->graph, node, 0));
    const dnnl_memory_desc_t none = {.ndims = 0};
    struct cpu_arg args[RANGE_ARGS] = {{0, 0}};
    uint32_t arg_count = FOUND + 1, places[3] = {0};
    struct cpu_step *step;

    if (count == 0) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[FROM].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[TO].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &none, sizeof(struct cpu_scale), &args[FOUND].tensor);
    }
    for (uint32_t o = 1; o < node->output_count && status == LEAT_OK; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            places[o] = arg_count++;
            status = cpu_plain_output(b, o, &args[places[o]].tensor);
        }
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, quantise_in_range, args, arg_count, &step);
    }
    if (status == LEAT_OK) {
        step->count = count;
        step->outer = places[1];
        step->inner = places[2];
    }
    return status;
}
