/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on tensors that the file has quantised. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/qlinear_node.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { SHARED_LEAST = 4096 }; /* elements for each member of a team */

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
        ((const float *)call->pointers[SCALE])[cpu_qlinear_place(leat_node_input(graph, node, 1), channel)];
    if (call->step->arg_count > ZERO) {
        const size_t place = cpu_qlinear_place(leat_node_input(graph, node, 2), channel);
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
    const bool by_item = call->program->tensors[call->step->args[FROM].tensor].by_item; /* each has step->inner elements */
    const void *const *items = call->pointers[FROM];
    const float *from = by_item ? (const float *)items[first / call->step->inner] + first % call->step->inner
                                : (const float *)call->pointers[FROM] + first;
    cpu_quantise(from, (uint8_t *)call->pointers[TO] + first, count, &scale);
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
    size_t inner = count; /* elements that follow each other */

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
    if (status == LEAT_OK && quantises && channels == 1 && cpu_gathers(b, args[FROM].tensor)) {
        status = cpu_by_item(b, args[FROM].tensor, &args[FROM].tensor);
        inner = status == LEAT_OK ? count / (size_t)x->dims[0] : count;
        status = status == LEAT_AGAIN ? LEAT_OK : status;
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
        step->inner = channels > 1 ? 1 : inner;
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

/* ---- Convolutions and products ------------------------------------------------------------------------ */

/* Sums of products of any 8-bit source stay within 32 bits. Weights that lie in a file are not read for that. */
static bool
sums_fit(const struct leat_value *w, bool channels_last)
{
    const size_t count = leat_value_elements(w), channels = (size_t)w->dims[channels_last ? 1 : 0];
    const int64_t most = INT32_MAX / UINT8_MAX; /* of the sum of all |w| of a channel */
    const int8_t *weights = w->data;

    if (count == 0 || (int64_t)(count / channels) <= most / -INT8_MIN) {
        return true;
    }
    bool fit = leat_value_in_place(w);
    for (size_t c = 0; c < channels && fit; c++) {
        int64_t sum = 0;
        for (size_t i = 0; i < count / channels; i++) {
            sum += abs(weights[channels_last ? i * channels + c : c * (count / channels) + i]);
        }
        fit = sum <= most;
    }
    return fit;
}

#if !defined(__x86_64__)
bool
cpu_qconv_runs_here(void)
{
    return false;
}

bool
cpu_qconv_suits(const struct leat_graph *graph, const struct leat_node *node, const struct leat_value *weights)
{
    (void)graph;
    (void)node;
    (void)weights;
    return false;
}
#endif

bool
cpu_multiplies_whole(const struct leat_graph *graph, const struct leat_node *node)
{
    const bool conv = node->op->kind == LEAT_OP_QLINEAR_CONV;
    const struct leat_value *x = leat_node_input(graph, node, CPU_QLINEAR_X),
                            *w = leat_node_input(graph, node, CPU_QLINEAR_W);
    const struct leat_value *zeros = leat_node_input(graph, node, CPU_QLINEAR_W_ZERO),
                            *scales = leat_node_input(graph, node, CPU_QLINEAR_W_SCALE);

    for (uint32_t i = CPU_QLINEAR_X_SCALE; i < node->input_count; i++) {
        if (i != CPU_QLINEAR_W && node->inputs[i] != LEAT_VALUE_NONE && !cpu_qlinear_is_constant(graph, node, i)) {
            return false;
        }
    }
    if (w->data == NULL || w->dtype != LEAT_DTYPE_I8 || (!conv && w->rank != 2) ||
        leat_value_elements(leat_node_input(graph, node, CPU_QLINEAR_X_SCALE)) != 1 ||
        leat_value_elements(leat_node_input(graph, node, CPU_QLINEAR_X_ZERO)) != 1 ||
        leat_value_elements(leat_node_input(graph, node, CPU_QLINEAR_Y_SCALE)) != 1 || (!conv && x->rank < 2) ||
        (cpu_weights_most(conv, x->dtype == LEAT_DTYPE_I8 ? dnnl_s8 : dnnl_u8) < INT8_MAX && !cpu_qconv_suits(graph, node, w))) {
        return false;
    }
    for (size_t i = 0; i < leat_value_elements(zeros); i++) {
        if (((const int8_t *)zeros->data)[i] != 0) {
            return false;
        }
    }
    if (!sums_fit(w, !conv && leat_node_int(node, "transB", 0) == 0)) {
        return false;
    }
    const float zero = (float)cpu_qlinear_scale(graph, node, CPU_QLINEAR_Y_SCALE, CPU_QLINEAR_Y_ZERO).zero;
    for (size_t c = 0; c < leat_value_elements(scales); c++) {
        const float unit = cpu_qlinear_unit(graph, node, c);
        if (!(unit > 0) || !isfinite(unit) || !isfinite(zero / unit)) {
            return false;
        }
    }
    return true;
}

/* Of all weights of channel c, which lie together, or `channels` apart. */
static int64_t
sum_of_channel(const int8_t *weights, size_t count, size_t channels, size_t c, bool last)
{
    const size_t each = count / channels;
    int64_t sum = 0;

    for (size_t i = 0; i < each; i++) {
        sum += weights[last ? i * channels + c : c * each + i];
    }
    return sum;
}

/* [channels] units, then what is added to the sums: bias and zero points, those of the source where nothing is padded. */
static enum leat_status
find_units(struct cpu_builder *b, const struct cpu_qlinear *q, float **ret)
{
    const struct leat_node *node = b->node;
    const struct leat_value *bias = leat_node_input(b->graph, node, CPU_QLINEAR_BIAS),
                            *w = leat_node_input(b->graph, node, CPU_QLINEAR_W);
    const size_t channels = (size_t)q->channels, count = leat_value_elements(w);
    const int32_t source = q->padded ? 0 : cpu_qlinear_scale(b->graph, node, CPU_QLINEAR_X_SCALE, CPU_QLINEAR_X_ZERO).zero;
    const int32_t result = cpu_qlinear_scale(b->graph, node, CPU_QLINEAR_Y_SCALE, CPU_QLINEAR_Y_ZERO).zero;
    const bool last = q->weights_as.ndims == 2 &&
                      q->weights_as.format_desc.blocking.strides[0] == 1 &&
                      q->weights_as.dims[1] != 1;
    const void *elements = NULL;
    float *units = malloc(2 * channels * sizeof(*units));

    enum leat_status status =
        units != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    if (status == LEAT_OK && source != 0) {
        status = cpu_open_constant(b, w, &elements);
    }
    if (status != LEAT_OK) {
        free(units);
        return status;
    }
    for (size_t c = 0; c < channels; c++) {
        const int64_t sum =
            source != 0 ? sum_of_channel(elements, count, channels, c, last) : 0;
        const int32_t given = bias != NULL ? ((const int32_t *)bias->data)[c] : 0;
        units[c] = cpu_qlinear_unit(b->graph, node, c);
        units[channels + c] = (float)((double)given - (double)source * (double)sum +
                                      (double)result / (double)units[c]);
    }
    *ret = units;
    return LEAT_OK;
}

static enum leat_status
describe_qlinear(struct cpu_builder *b, const struct cpu_qlinear *q, const float *units,
                 const_dnnl_op_desc_t op, dnnl_primitive_desc_t *ret_pd)
{
    const int32_t zero = cpu_qlinear_scale(b->graph, b->node, CPU_QLINEAR_X_SCALE, CPU_QLINEAR_X_ZERO).zero;
    dnnl_primitive_attr_t attributes = NULL;

    enum leat_status status = CPU_TRY(b, "attributes", dnnl_primitive_attr_create(&attributes));
    if (status == LEAT_OK) {
        status =
            CPU_TRY(b, "attributes",
                    dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    }
    if (status == LEAT_OK) {
        status =
            CPU_TRY(b, "attributes",
                    dnnl_primitive_attr_set_output_scales(attributes, q->channels, 1 << 1, units));
    }
    if (status == LEAT_OK && q->padded && zero != 0) {
        status =
            CPU_TRY(b, "attributes",
                    dnnl_primitive_attr_set_zero_points(attributes, DNNL_ARG_SRC, 1, 0, &zero));
    }
    if (status == LEAT_OK) {
        status = cpu_describe_as(b, op, attributes, ret_pd);
    }
    (void)dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* The step; source and result in the layouts that the operation wants. */
static enum leat_status
add_qlinear(struct cpu_builder *b, const struct cpu_qlinear *q, const float *added,
            dnnl_primitive_desc_t pd)
{
    const bool viewed = q->source_as.ndims != 0;
    const dnnl_memory_desc_t weights = cpu_query_md(pd, dnnl_query_weights_md),
                             source = cpu_query_md(pd, dnnl_query_src_md);
    const dnnl_memory_desc_t seen = cpu_query_md(pd, dnnl_query_dst_md);
    const dnnl_memory_desc_t result =
        viewed ? cpu_value_md(leat_node_output(b->graph, b->node, 0)) : seen;
    struct cpu_arg args[4] = {
        {DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, 0}};
    uint32_t output = CPU_NONE, plain;

    enum leat_status status = viewed
                                  ? cpu_plain(b, b->node->inputs[CPU_QLINEAR_X], &plain)
                                  : cpu_in_layout(b, b->node->inputs[CPU_QLINEAR_X], &source, &args[0].tensor);
    if (status == LEAT_OK && viewed) {
        status = cpu_view(b, plain, &source, &args[0].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_as(b, b->node->inputs[CPU_QLINEAR_W], &q->weights_as, &weights, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_private_vector(b, added, (size_t)q->channels, &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, &result, dnnl_memory_desc_get_size(&result), &output);
        args[2].tensor = output;
    }
    if (status == LEAT_OK && viewed) {
        status = cpu_view(b, output, &seen, &args[2].tensor);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, 4);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

enum leat_status
cpu_lower_qlinear(struct cpu_builder *b, const struct cpu_qlinear *q)
{
    const dnnl_memory_desc_t bias = cpu_plain_md(&q->channels, 1);
    const dnnl_memory_desc_t weights =
        cpu_any_md(q->weights_as.dims, (uint32_t)q->weights_as.ndims, dnnl_s8);
    const dnnl_data_type_t source = cpu_value_md(leat_node_input(b->graph, b->node, CPU_QLINEAR_X)).data_type;
    const dnnl_data_type_t result = cpu_value_md(leat_node_output(b->graph, b->node, 0)).data_type;
    dnnl_primitive_desc_t pd;
    float *units;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } op;

    enum leat_status status = find_units(b, q, &units);
    if (status != LEAT_OK) {
        return status;
    }
    status = q->describe(b, q->context, source, &weights, &bias, result, &op);
    if (status == LEAT_OK) {
        status = describe_qlinear(b, q, units, &op, &pd);
    }
    if (status == LEAT_OK) {
        status = add_qlinear(b, q, units + q->channels, pd);
    }
    free(units);
    return status;
}

/* ---- Sums and functions of single elements ------------------------------------------------------------- */

enum { REPEATED = 2048 }; /* elements of a short operand that are added at a time, at most */

static struct cpu_combination
combination_of(const struct leat_graph *graph, const struct leat_node *node)
{
    return (struct cpu_combination){
        .product = node->op->kind == LEAT_OP_QLINEAR_MUL,
        .a = cpu_qlinear_scale(graph, node, CPU_QLINEAR_X_SCALE, CPU_QLINEAR_X_ZERO),
        .b = cpu_qlinear_scale(graph, node, CPU_QLINEAR_W_SCALE, CPU_QLINEAR_W_ZERO),
        .y = cpu_qlinear_scale(graph, node, CPU_QLINEAR_Y_SCALE, CPU_QLINEAR_Y_ZERO),
    };
}

/* Elements begin..end of a, with the first `period` of b repeated from 0 on. */
static void
add_repeated(const struct cpu_combination *combination, const uint8_t *a, const uint8_t *b, size_t period, size_t begin, size_t end,
             uint8_t *y)
{
    uint8_t repeated[REPEATED];

    if (period == 1) {
        memset(repeated, *b, sizeof(repeated));
        b = repeated;
        period = REPEATED;
    } else if (period <= REPEATED / 2 && end - begin > period) {
        const size_t fit = REPEATED / period, wanted = (end - begin) / period + 1, times = fit < wanted ? fit : wanted;
        for (size_t t = 0; t < times; t++) {
            memcpy(repeated + t * period, b, period);
        }
        b = repeated;
        period *= times;
    }
    for (size_t i = begin, count; i < end; i += count) {
        const size_t left = period - i % period;
        count = left < end - i ? left : end - i;
        cpu_combine_quantised(combination, a + i, b + i % period, y + i, count);
    }
}

/* Of each `dims[0]` elements `inner` others of b are repeated; `outer`: quickly; args: a, b, y. */
static void
add_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const size_t run = (size_t)call->step->dims[0], period = call->step->inner;
    struct cpu_combination combination = combination_of(call->program->graph, call->step->node);
    const uint8_t *a = call->pointers[0], *b = call->pointers[1];
    uint8_t *y = call->pointers[2];

    combination.quick = call->step->outer != 0;
    for (size_t i = begin, next; i < end; i = next) {
        const size_t first = i / run * run;
        next = first + run < end ? first + run : end;
        add_repeated(&combination, a + first, b + i / run * period, period, i - first, next - first, y + first);
    }
}

static enum leat_status
add_numbers(const struct cpu_call *call)
{
    cpu_share(call, add_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

/* Of dense feature maps: the channels of a pixel are side by side, and the pixels of an item. */
static bool
channels_are_last(const dnnl_memory_desc_t *md, size_t elements)
{
    return md->ndims > 2 && md->format_desc.blocking.inner_nblks == 0 && md->format_desc.blocking.strides[1] == 1 &&
           (md->dims[0] == 1 || md->format_desc.blocking.strides[0] == (int64_t)elements / md->dims[0]);
}

enum leat_status
cpu_lower_qlinear_add(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *y = leat_node_output(b->graph, node, 0);
    const size_t count = leat_value_elements(y),
                 period = leat_value_elements(leat_node_input(b->graph, node, CPU_QLINEAR_W));
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    for (uint32_t i = CPU_QLINEAR_X_SCALE; i <= CPU_QLINEAR_Y_ZERO; i++) {
        if (i != CPU_QLINEAR_W && !cpu_qlinear_is_constant(b->graph, node, i)) {
            return LEAT_AGAIN;
        }
    }
    if (count == 0 || period == 0) {
        return LEAT_AGAIN;
    }
    const bool as_many = leat_node_input(b->graph, node, CPU_QLINEAR_W)->rank == y->rank;
    const bool whole = as_many && period == count, spread = as_many && period < count;
    enum leat_status status = source_of(b, !as_many, &args[0].tensor);
    const bool last = spread && status == LEAT_OK && channels_are_last(&b->program->tensors[args[0].tensor].md, count);
    if (status == LEAT_OK && spread && !last) {
        status = cpu_plain(b, node->inputs[CPU_QLINEAR_X], &args[0].tensor);
    }
    if (status != LEAT_OK) {
        return status;
    }
    dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    if (whole) {
        dnnl_memory_desc_t second = md;
        second.data_type = cpu_value_md(leat_node_input(b->graph, node, CPU_QLINEAR_W)).data_type;
        status = cpu_in_layout(b, node->inputs[CPU_QLINEAR_W], &second, &args[1].tensor);
    } else {
        status = cpu_plain(b, node->inputs[CPU_QLINEAR_W], &args[1].tensor);
    }
    if (status == LEAT_OK) {
        md.data_type = cpu_value_md(y).data_type;
        status = cpu_new_tensor(b, &md, count, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, add_numbers, args, 3, &step);
    }
    if (status == LEAT_OK) {
        const struct cpu_combination combination = combination_of(b->graph, node);
        step->count = count;
        step->inner = !spread ? period : last ? (size_t)y->dims[1] : 1;
        step->dims[0] = (int64_t)(!spread ? count : last ? count / (size_t)y->dims[0] : count / period);
        step->outer = cpu_combines_quickly(&combination);
        cpu_set_output(b, 0, args[2].tensor);
    }
    return status;
}

/* args: numbers, table, result. */
static void
look_up_part(const struct cpu_call *call, size_t begin, size_t end)
{
    cpu_look_up_bytes((const uint8_t *)call->pointers[0] + begin, call->pointers[1],
                      (uint8_t *)call->pointers[2] + begin, end - begin);
}

static enum leat_status
look_up(const struct cpu_call *call)
{
    cpu_share(call, look_up_part, call->step->count, SHARED_LEAST);
    return LEAT_OK;
}

enum leat_status
cpu_lower_qlinear_lookup(struct cpu_builder *b)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    enum leat_status status = source_of(b, false, &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain(b, b->node->inputs[1], &args[1].tensor);
    }
    if (status == LEAT_OK) {
        dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
        md.data_type = cpu_value_md(y).data_type;
        status = cpu_new_tensor(b, &md, leat_value_bytes(y), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, look_up, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->count = leat_value_elements(y);
        cpu_set_output(b, 0, args[2].tensor);
    }
    return status;
}
