/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution, also transposed, pooling, enlarging and batch normalisation. oneDNN chooses the layouts of their activations. */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "kernels/resize.h"
#include "kernels/window.h"

/* The operator's own spatial dimensions as oneDNN wants them. */
struct geometry {
    dnnl_dims_t kernel, stride, dilation, pad_begin, pad_end; /* dilation counts from 0 */
};

static void
geometry_of(const struct leat_window *window, struct geometry *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = 0; i < window->rank; i++) {
        const uint32_t d = LEAT_WINDOW_RANK - window->rank + i;
        ret->kernel[i] = window->kernel[d];
        ret->stride[i] = window->stride[d];
        ret->dilation[i] = window->dilation[d] - 1;
        ret->pad_begin[i] = window->pad_begin[d];
        ret->pad_end[i] = window->pad_end[d];
    }
}

/* [outputs][inputs]... becomes [groups][outputs / groups][inputs]...; the same elements. */
static uint32_t
grouped_dims(const struct leat_value *weights, int64_t groups, int64_t dims[LEAT_RANK_MAX + 1])
{
    if (groups == 1) {
        memcpy(dims, weights->dims, weights->rank * sizeof(*dims));
        return weights->rank;
    }
    dims[0] = groups;
    dims[1] = weights->dims[0] / groups;
    memcpy(dims + 2, weights->dims + 1, (weights->rank - 1) * sizeof(*dims));
    return weights->rank + 1;
}

/*
 * What oneDNN is told of the spatial axes, so that it has a good kernel. Depthwise along one axis it has one for along two only, and
 * else its gemm, which locks: a line gets another axis, of one element, in front. A window along the height of images that are one
 * pixel wide takes several times as long as one along the width of such that are one high.
 */
enum axes { AS_THEY_ARE, WITH_HEIGHT, TURNED };

static enum axes
axes_of(const struct cpu_builder *b, const struct leat_window *window)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const int64_t groups = leat_node_int(b->node, "group", 1);
    const uint32_t across = LEAT_WINDOW_RANK - 1;

    if (window->rank == 1 && groups > 1 && groups == x->dims[1] && groups == y->dims[1]) {
        return WITH_HEIGHT;
    }
    return window->rank == 2 && window->kernel[across - 1] > 1 && window->kernel[across] == 1 && x->dims[3] == 1 && y->dims[3] == 1
               ? TURNED
               : AS_THEY_ARE;
}

static void
turn(int64_t *pair)
{
    const int64_t kept = pair[0];
    pair[0] = pair[1];
    pair[1] = kept;
}

static void
change_geometry(struct geometry *geometry, enum axes axes)
{
    int64_t *const all[5] = {geometry->kernel, geometry->stride, geometry->dilation, geometry->pad_begin, geometry->pad_end};

    for (size_t i = 0; i < 5 && axes != AS_THEY_ARE; i++) {
        if (axes == WITH_HEIGHT) {
            all[i][1] = i < 2; /* a kernel and a stride of 1 */
        }
        turn(all[i]);
    }
}

/* Returns the rank that they have then. */
static uint32_t
change_dims(int64_t dims[LEAT_RANK_MAX + 2], uint32_t rank, enum axes axes)
{
    if (axes == WITH_HEIGHT) {
        dims[rank++] = 1;
    }
    if (axes != AS_THEY_ARE) {
        turn(dims + rank - 2);
    }
    return rank;
}

/* In any layout. */
static dnnl_memory_desc_t
any_changed(const struct leat_value *value, enum axes axes, dnnl_data_type_t type)
{
    int64_t dims[LEAT_RANK_MAX + 2];

    memcpy(dims, value->dims, value->rank * sizeof(*dims));
    const uint32_t rank = change_dims(dims, value->rank, axes);
    return cpu_any_md(dims, rank, type);
}

/* The same bytes without the axis before the last. */
static dnnl_memory_desc_t
without_height(const dnnl_memory_desc_t *md)
{
    const int last = md->ndims - 1;
    dnnl_memory_desc_t less = *md;

    LEAT_ASSERT(md->format_kind == dnnl_blocked && md->dims[last - 1] == 1 && md->padded_dims[last - 1] == 1);
    for (int i = 0; i < md->format_desc.blocking.inner_nblks; i++) {
        LEAT_ASSERT(md->format_desc.blocking.inner_idxs[i] < last - 1);
    }
    less.ndims = last;
    less.dims[last - 1] = md->dims[last];
    less.padded_dims[last - 1] = md->padded_dims[last];
    less.padded_offsets[last - 1] = md->padded_offsets[last];
    less.format_desc.blocking.strides[last - 1] = md->format_desc.blocking.strides[last];
    return less;
}

/* The same bytes with the last two axes, the first of which has one element, in the other order. */
static dnnl_memory_desc_t
turned_back(const dnnl_memory_desc_t *md)
{
    const int last = md->ndims - 1;
    dnnl_memory_desc_t turned = *md;

    LEAT_ASSERT(md->format_kind == dnnl_blocked && md->dims[last - 1] == 1 && md->padded_dims[last - 1] == 1);
    for (int i = 0; i < md->format_desc.blocking.inner_nblks; i++) {
        LEAT_ASSERT(md->format_desc.blocking.inner_idxs[i] < last - 1);
    }
    turn(turned.dims + last - 1);
    turn(turned.padded_dims + last - 1);
    turn(turned.padded_offsets + last - 1);
    turned.format_desc.blocking.strides[last - 1] = turned.format_desc.blocking.strides[last]; /* of one element any will do */
    return turned;
}

static dnnl_memory_desc_t
changed_back(const dnnl_memory_desc_t *md, enum axes axes)
{
    return axes == WITH_HEIGHT ? without_height(md) : axes == TURNED ? turned_back(md) : *md;
}

/* The node's operand in that layout, and the tensor that its result goes to. */
static enum leat_status
conv_tensors(struct cpu_builder *b, enum axes axes, const dnnl_memory_desc_t *src, const dnnl_memory_desc_t *dst,
             uint32_t *ret_source, uint32_t *ret_result, uint32_t *ret_output)
{
    const dnnl_memory_desc_t src_md = changed_back(src, axes), dst_md = changed_back(dst, axes);

    enum leat_status status = cpu_in_layout(b, b->node->inputs[0], &src_md, ret_source);
    if (status == LEAT_OK) {
        status = cpu_destination(b, &dst_md, ret_output);
    }
    *ret_result = *ret_output;
    if (status == LEAT_OK && axes != AS_THEY_ARE) {
        status = cpu_view(b, *ret_source, src, ret_source);
    }
    return status == LEAT_OK && axes != AS_THEY_ARE ? cpu_view(b, *ret_output, dst, ret_result) : status;
}

static bool
has_elements(const struct leat_graph *graph, const struct leat_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *value = leat_node_input(graph, node, i);
        if (value != NULL && leat_value_elements(value) == 0) {
            return false;
        }
    }
    return leat_value_elements(leat_node_output(graph, node, 0)) != 0;
}

/* Weights as a constant in the layout that the kernel wants, or converted in every run. */
static enum leat_status
weights_tensor(struct cpu_builder *b, uint32_t value, const dnnl_memory_desc_t *seen_as, const dnnl_memory_desc_t *md,
               uint32_t *ret_tensor)
{
    uint32_t plain, seen;

    if (b->graph->values[value].data != NULL) {
        return cpu_constant_as(b, value, seen_as, md, ret_tensor);
    }
    enum leat_status status = cpu_plain(b, value, &plain);
    if (status == LEAT_OK) {
        status = cpu_view(b, plain, seen_as, &seen);
    }
    if (status == LEAT_OK && cpu_same_bytes(seen_as, md)) {
        return cpu_view(b, plain, md, ret_tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_new_tensor(b, md, dnnl_memory_desc_get_size(md), ret_tensor);
    }
    return status == LEAT_OK ? cpu_add_reorder(b, seen, *ret_tensor) : status;
}

static enum leat_status
describe_conv(struct cpu_builder *b, const struct geometry *geometry, const dnnl_memory_desc_t *src,
              const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *dst,
              dnnl_primitive_desc_t *ret_pd)
{
    dnnl_convolution_desc_t conv;
    const dnnl_status_t made = dnnl_dilated_convolution_forward_desc_init(
        &conv, dnnl_forward_inference, dnnl_convolution_direct, src, weights, bias, dst, geometry->stride,
        geometry->dilation, geometry->pad_begin, geometry->pad_end);
    const enum leat_status status = CPU_TRY(b, "convolution", made);
    return status == LEAT_OK ? cpu_describe(b, &conv, true, ret_pd) : status;
}

static enum leat_status
describe_quantised(struct cpu_builder *b, const void *context, dnnl_data_type_t source, const dnnl_memory_desc_t *weights,
                   const dnnl_memory_desc_t *bias, dnnl_data_type_t result, void *ret_op)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const dnnl_memory_desc_t src = cpu_any_md(x->dims, x->rank, source), dst = cpu_any_md(y->dims, y->rank, result);
    const struct geometry *geometry = context;

    return CPU_TRY(b, "convolution",
                   dnnl_dilated_convolution_forward_desc_init(ret_op, dnnl_forward_inference, dnnl_convolution_direct, &src,
                                                              weights, bias, &dst, geometry->stride, geometry->dilation,
                                                              geometry->pad_begin, geometry->pad_end));
}

static enum leat_status
lower_quantised(struct cpu_builder *b, const struct geometry *geometry, const dnnl_memory_desc_t *weights_as)
{
    const struct leat_value *bias = leat_node_input(b->graph, b->node, 2), *y = leat_node_output(b->graph, b->node, 0);
    const bool grouped = leat_node_int(b->node, "group", 1) != 1;
    bool padded = false;

    if (!b->quantised[b->node - b->graph->nodes] || (bias != NULL && bias->data == NULL)) {
        return LEAT_AGAIN;
    }
    LEAT_ASSERT(bias == NULL || leat_value_in_place(bias));
    for (uint32_t i = 0; i < LEAT_WINDOW_RANK; i++) {
        padded = padded || geometry->pad_begin[i] != 0 || geometry->pad_end[i] != 0;
    }
    const bool dense = (geometry->dilation[0] == 0 || weights_as->dims[2] == 1) && (geometry->dilation[1] == 0 || weights_as->dims[3] == 1);
    const int64_t window[6] = {weights_as->dims[2],  weights_as->dims[3],    geometry->stride[0],
                               geometry->stride[1],  geometry->pad_begin[0], geometry->pad_begin[1]};
    return cpu_lower_quantised(b, &(struct cpu_quantised){
                                      .channels = y->dims[1],
                                      .padded = padded,
                                      .window = !grouped && weights_as->ndims == 4 && dense ? window : NULL,
                                      .weights_mask = grouped ? 3 : 1,
                                      .weights_as = *weights_as,
                                      .bias = bias != NULL ? bias->data : NULL,
                                      .describe = describe_quantised,
                                      .context = geometry,
                                  });
}

/* Of a convolution in floats: where AMX makes bf16 several times as fast, that is enough for a result that is rounded to 8 bits next. */
static dnnl_data_type_t
float_type(const struct cpu_builder *b)
{
    const uint32_t amx = dnnl_cpu_isa_avx512_core_amx;
    const bool narrow = b->wants_whole[b->node->outputs[0]] && !cpu_activates_apart(b); /* such a step is of f32 */

    return narrow && (dnnl_get_effective_cpu_isa() & amx) == amx ? dnnl_bf16 : cpu_model_type(b->model);
}

/* In floats; with weights of those dims. */
static enum leat_status
describe_floats(struct cpu_builder *b, const struct leat_window *window, enum axes axes, dnnl_memory_desc_t *ret_seen_as,
                dnnl_primitive_desc_t *ret_pd)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *w = leat_node_input(b->graph, b->node, 1);
    const struct leat_value *bias = leat_node_input(b->graph, b->node, 2), *y = leat_node_output(b->graph, b->node, 0);
    const dnnl_data_type_t type = float_type(b);
    int64_t w_dims[LEAT_RANK_MAX + 2];
    struct geometry geometry;

    geometry_of(window, &geometry);
    change_geometry(&geometry, axes);
    const uint32_t w_rank = change_dims(w_dims, grouped_dims(w, leat_node_int(b->node, "group", 1), w_dims), axes);
    const dnnl_memory_desc_t any_w = cpu_any_md(w_dims, w_rank, type);
    const dnnl_memory_desc_t any_x = any_changed(x, axes, type), any_y = any_changed(y, axes, type);
    const dnnl_memory_desc_t bias_md = bias != NULL ? cpu_value_md(bias) : (dnnl_memory_desc_t){.ndims = 0};
    *ret_seen_as = cpu_plain_md(w_dims, w_rank);
    return describe_conv(b, &geometry, &any_x, &any_w, bias != NULL ? &bias_md : NULL, &any_y, ret_pd);
}

#if defined(__x86_64__)
static bool
is_gemm(dnnl_primitive_desc_t pd)
{
    const char *name = "";

    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return strstr(name, "gemm") != NULL && strstr(name, "brgemm") == NULL;
}
#endif

enum leat_status
cpu_lower_conv(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *w = leat_node_input(b->graph, node, 1), *bias = leat_node_input(b->graph, node, 2);
    int64_t w_dims[LEAT_RANK_MAX + 1];
    struct leat_window window;
    struct geometry geometry;
    dnnl_memory_desc_t seen_as;
    dnnl_primitive_desc_t pd;
    struct cpu_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, 0}};
    uint32_t output;

    if (!has_elements(b->graph, node)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = leat_window_of(b->graph, node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    geometry_of(&window, &geometry);
    const uint32_t w_rank = grouped_dims(w, leat_node_int(node, "group", 1), w_dims);
    seen_as = cpu_plain_md(w_dims, w_rank);
    status = lower_quantised(b, &geometry, &seen_as);
#if defined(__x86_64__)
    if (status == LEAT_AGAIN) {
        status = cpu_lower_whole_image(b, &window);
    }
#endif
    if (status != LEAT_AGAIN) {
        return status;
    }
    const enum axes axes = axes_of(b, &window);
    status = describe_floats(b, &window, axes, &seen_as, &pd);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t src = cpu_query_md(pd, dnnl_query_src_md), weights = cpu_query_md(pd, dnnl_query_weights_md);
    const dnnl_memory_desc_t dst = cpu_query_md(pd, dnnl_query_dst_md);
#if defined(__x86_64__)
    status = axes != TURNED ? cpu_lower_own_conv(b, &(struct cpu_conv){&window, &src, &dst}) : LEAT_AGAIN;
    if (status == LEAT_AGAIN && is_gemm(pd)) {
        status = cpu_lower_group_conv(b, &window);
    }
#else
    status = LEAT_AGAIN;
#endif
    if (status != LEAT_AGAIN) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = weights_tensor(b, node->inputs[1], &seen_as, &weights, &args[1].tensor);
    if (status == LEAT_OK && bias != NULL) {
        status = cpu_plain(b, node->inputs[2], &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = conv_tensors(b, axes, &src, &dst, &args[0].tensor, &args[2].tensor, &output);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, bias != NULL ? 4 : 3);
    if (status == LEAT_OK) {
        status = cpu_add_activation(b, args[2].tensor);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

enum leat_status
cpu_lower_qlinear_conv(struct cpu_builder *b)
{
    const struct leat_value *w = leat_node_input(b->graph, b->node, 3);
    int64_t w_dims[LEAT_RANK_MAX + 1];
    struct leat_window window;
    struct geometry geometry;
    bool padded = false;

    if (!cpu_multiplies_whole(b->graph, b->node) || !has_elements(b->graph, b->node)) {
        return LEAT_AGAIN;
    }
#if defined(__x86_64__)
    if (cpu_qconv_suits(b->graph, b->node, w)) {
        return cpu_lower_qconv(b);
    }
#endif
    const enum leat_status status = leat_window_of(b->graph, b->node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    geometry_of(&window, &geometry);
    for (uint32_t i = 0; i < window.rank; i++) {
        padded = padded || geometry.pad_begin[i] != 0 || geometry.pad_end[i] != 0;
    }
    const uint32_t w_rank = grouped_dims(w, leat_node_int(b->node, "group", 1), w_dims);
    dnnl_memory_desc_t weights_as = cpu_plain_md(w_dims, w_rank);
    weights_as.data_type = dnnl_s8; /* dense as it was */
    return cpu_lower_qlinear(b, &(struct cpu_qlinear){.channels = w->dims[0],
                                                      .weights_as = weights_as,
                                                      .padded = padded,
                                                      .describe = describe_quantised,
                                                      .context = &geometry});
}

/* ---- Transposed convolution ------------------------------------------------------------------------- */

/* [inputs][outputs / groups]... becomes [groups][outputs / groups][inputs / groups]...: the same elements, in strides. */
static dnnl_memory_desc_t
transposed_weights(const struct leat_value *weights, int64_t groups, enum axes axes)
{
    const int64_t *w = weights->dims;
    int64_t dims[LEAT_RANK_MAX + 2], strides[LEAT_RANK_MAX + 2], taps = 1;
    uint32_t rank = 0;

    for (uint32_t d = 2; d < weights->rank; d++) {
        taps *= w[d];
    }
    if (groups > 1) {
        dims[rank] = groups;
        strides[rank++] = w[0] / groups * w[1] * taps;
    }
    dims[rank] = w[1];
    strides[rank++] = taps;
    dims[rank] = w[0] / groups;
    strides[rank++] = w[1] * taps;
    for (uint32_t d = 2; d < weights->rank; d++) {
        taps /= w[d];
        dims[rank] = w[d];
        strides[rank++] = taps;
    }
    strides[rank] = 1; /* of one element it is any */
    if (axes != AS_THEY_ARE) {
        rank = change_dims(dims, rank, axes);
        turn(strides + rank - 2);
    }
    return cpu_strided_md(dims, strides, rank);
}

/*
 * The padding behind is what makes oneDNN's arithmetic come out; where the result goes beyond what is reached, by less than a
 * stride, it is none. False where oneDNN has nothing like it.
 */
static bool
fit_transposed(const struct leat_window *window, struct geometry *geometry)
{
    for (uint32_t i = 0; i < window->rank; i++) {
        const uint32_t d = LEAT_WINDOW_RANK - window->rank + i;
        const int64_t reach = (window->kernel[d] - 1) * window->dilation[d] + 1;
        const int64_t end = (window->in[d] - 1) * window->stride[d] + reach - window->pad_begin[d] - window->out[d];
        geometry->pad_end[i] = end > 0 ? end : 0;
        if (window->pad_begin[d] < 0 || window->pad_begin[d] >= reach || end >= reach || end <= -window->stride[d]) {
            return false;
        }
    }
    return true;
}

/* oneDNN's transposed convolution is a convolution's gradient, of which it may have but plain loops. */
static bool
is_plain_gradient(const_dnnl_primitive_desc_t pd)
{
    const char *kernel = "";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel) == dnnl_success && strstr(kernel, "ref") != NULL;
}

static enum leat_status
describe_transposed(struct cpu_builder *b, const struct geometry *geometry, enum axes axes, const dnnl_memory_desc_t *seen_as,
                    dnnl_primitive_desc_t *ret_pd)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    const struct leat_value *bias = leat_node_input(b->graph, b->node, 2);
    const dnnl_memory_desc_t any_x = any_changed(x, axes, dnnl_f32), any_y = any_changed(y, axes, dnnl_f32);
    const dnnl_memory_desc_t any_w = cpu_any_md(seen_as->dims, (uint32_t)seen_as->ndims, dnnl_f32);
    const dnnl_memory_desc_t bias_md = bias != NULL ? cpu_value_md(bias) : (dnnl_memory_desc_t){.ndims = 0};
    dnnl_deconvolution_desc_t conv;

    const dnnl_status_t made = dnnl_dilated_deconvolution_forward_desc_init(
        &conv, dnnl_forward_inference, dnnl_deconvolution_direct, &any_x, &any_w, bias != NULL ? &bias_md : NULL, &any_y,
        geometry->stride, geometry->dilation, geometry->pad_begin, geometry->pad_end);
    enum leat_status status = CPU_TRY(b, "transposed convolution", made);
    if (status == LEAT_OK) {
        status = cpu_describe(b, &conv, false, ret_pd);
    }
    if (status == LEAT_OK && is_plain_gradient(*ret_pd)) {
        (void)dnnl_primitive_desc_destroy(*ret_pd);
        return LEAT_AGAIN;
    }
    return status;
}

enum leat_status
cpu_lower_conv_transpose(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const struct leat_value *bias = leat_node_input(b->graph, node, 2);
    struct cpu_arg args[4] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_WEIGHTS, 0}, {DNNL_ARG_DST, 0}, {DNNL_ARG_BIAS, 0}};
    struct leat_window window;
    struct geometry geometry;
    dnnl_primitive_desc_t pd;
    uint32_t output;

    if (!has_elements(b->graph, node)) {
        return LEAT_AGAIN;
    }
    enum leat_status status = leat_transposed_window_of(b->graph, node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    geometry_of(&window, &geometry);
    if (!fit_transposed(&window, &geometry)) {
        return LEAT_AGAIN;
    }
    const enum axes axes = axes_of(b, &window);
    const dnnl_memory_desc_t seen_as =
        transposed_weights(leat_node_input(b->graph, node, 1), leat_node_int(node, "group", 1), axes);
    change_geometry(&geometry, axes);
    status = describe_transposed(b, &geometry, axes, &seen_as, &pd);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t src = cpu_query_md(pd, dnnl_query_src_md), weights = cpu_query_md(pd, dnnl_query_weights_md);
    const dnnl_memory_desc_t dst = cpu_query_md(pd, dnnl_query_dst_md);
    status = weights_tensor(b, node->inputs[1], &seen_as, &weights, &args[1].tensor);
    if (status == LEAT_OK && bias != NULL) {
        status = cpu_plain(b, node->inputs[2], &args[3].tensor);
    }
    if (status == LEAT_OK) {
        status = conv_tensors(b, axes, &src, &dst, &args[0].tensor, &args[2].tensor, &output);
    }
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, bias != NULL ? 4 : 3);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, output);
    }
    return status;
}

/* ---- Pooling ---------------------------------------------------------------------------------------- */

/* args: source, and the result, which becomes a new tensor in the layout that the primitive wants, of the source's scale. */
static enum leat_status
add_with_result(struct cpu_builder *b, const_dnnl_op_desc_t operation, struct cpu_arg args[2])
{
    dnnl_primitive_desc_t pd;

    enum leat_status status = cpu_describe(b, operation, false, &pd);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t dst = cpu_query_md(pd, dnnl_query_dst_md);
    status = cpu_new_tensor(b, &dst, dnnl_memory_desc_get_size(&dst), &args[1].tensor);
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    b->program->tensors[args[1].tensor].scale = b->program->tensors[args[0].tensor].scale;
    b->program->tensors[args[1].tensor].zero = b->program->tensors[args[0].tensor].zero;
    return cpu_add_primitive(b, pd, args, 2);
}

static enum leat_status
add_pool(struct cpu_builder *b, const struct geometry *geometry, dnnl_alg_kind_t algorithm)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    const uint32_t x = b->node->inputs[0];
    const bool whole = algorithm == dnnl_pooling_max && b->whole[x] != CPU_NONE && b->wants_whole[b->node->outputs[0]];
    struct cpu_arg args[2] = {{DNNL_ARG_SRC, b->whole[x]}, {DNNL_ARG_DST, 0}};
    dnnl_pooling_v2_desc_t pool;

    enum leat_status status = whole ? LEAT_OK : cpu_best(b, x, &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t found = b->program->tensors[args[0].tensor].md;
    if (!whole && found.ndims == 4 && dnnl_data_type_size(found.data_type) == 1) { /* else it is a loop over single numbers */
        const int64_t *d = found.dims, strides[4] = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
        dnnl_memory_desc_t channels_last = cpu_strided_md(d, strides, 4);
        channels_last.data_type = found.data_type;
        status = cpu_in_layout(b, x, &channels_last, &args[0].tensor);
        if (status != LEAT_OK) {
            return status;
        }
    }
    const dnnl_memory_desc_t src = b->program->tensors[args[0].tensor].md;
    const dnnl_memory_desc_t any_y = cpu_any_md(y->dims, y->rank, src.data_type);
    status = CPU_TRY(b, "pooling",
                     dnnl_pooling_v2_forward_desc_init(&pool, dnnl_forward_inference, algorithm, &src, &any_y,
                                                       geometry->stride, geometry->kernel, geometry->dilation,
                                                       geometry->pad_begin, geometry->pad_end));
    if (status == LEAT_OK) {
        status = add_with_result(b, &pool, args);
    }
    if (status == LEAT_OK && whole) {
        cpu_set_whole(b, args[1].tensor);
    } else if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[1].tensor);
    }
    return status;
}

/*
 * Where a window reaches beyond the padded input (ceil_mode), or the input is not used up, oneDNN wants the
 * end padding that makes its own arithmetic come out. False where that changes the divisor of a mean.
 */
static bool
fit_end_padding(const struct leat_window *window, struct geometry *geometry, bool counts_padding)
{
    for (uint32_t i = 0; i < window->rank; i++) {
        const uint32_t d = LEAT_WINDOW_RANK - window->rank + i;
        const int64_t reach = (window->kernel[d] - 1) * window->dilation[d] + 1;
        const int64_t end = (window->out[d] - 1) * window->stride[d] + reach - window->in[d] - window->pad_begin[d];
        if (counts_padding && end > window->pad_end[d]) {
            return false;
        }
        geometry->pad_end[i] = end > window->pad_end[d] ? end : window->pad_end[d];
        /* A window of padding alone has no maximum and no mean that the two libraries agree on. */
        if (window->pad_begin[d] >= reach || geometry->pad_end[i] >= reach) {
            return false;
        }
    }
    return true;
}

enum leat_status
cpu_lower_pool(struct cpu_builder *b)
{
    const struct leat_node *node = b->node;
    const bool is_max = node->op->kind == LEAT_OP_MAX_POOL;
    const bool include = !is_max && leat_node_int(node, "count_include_pad", 0) != 0;
    struct leat_window window;
    struct geometry geometry;

    if (!has_elements(b->graph, node) || (!is_max && leat_node_input(b->graph, node, 0)->dtype != LEAT_DTYPE_F32) ||
        cpu_value_md(leat_node_input(b->graph, node, 0)).ndims == 0) {
        return LEAT_AGAIN;
    }
    if (node->output_count > 1 && node->outputs[1] != LEAT_VALUE_NONE) {
        return cpu_lower_max_places(b);
    }
    const enum leat_status status = leat_window_of(b->graph, node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    geometry_of(&window, &geometry);
    if (!fit_end_padding(&window, &geometry, include)) {
        return LEAT_AGAIN;
    }
    return add_pool(b, &geometry, is_max    ? dnnl_pooling_max
                                  : include ? dnnl_pooling_avg_include_padding
                                            : dnnl_pooling_avg_exclude_padding);
}

enum leat_status
cpu_lower_global_pool(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0);
    struct geometry geometry = {.kernel = {0}};

    if (!has_elements(b->graph, b->node) || x->rank < 3 || x->rank > 5) {
        return LEAT_AGAIN;
    }
#if defined(__x86_64__)
    const enum leat_status mean = b->node->op->kind == LEAT_OP_GLOBAL_AVERAGE_POOL ? cpu_lower_mean(b) : LEAT_AGAIN;
    if (mean != LEAT_AGAIN) {
        return mean;
    }
#endif
    for (uint32_t d = 2; d < x->rank; d++) {
        geometry.kernel[d - 2] = x->dims[d];
        geometry.stride[d - 2] = 1;
    }
    return add_pool(b, &geometry, b->node->op->kind == LEAT_OP_GLOBAL_MAX_POOL ? dnnl_pooling_max
                                                                                : dnnl_pooling_avg_exclude_padding);
}

/* ---- Enlarging -------------------------------------------------------------------------------------- */

/* Each pixel becomes several equal ones: what the nearest one is, all conventions agree on then, but those that count from corners. */
static bool
repeats_pixels(const struct leat_resize *resize, const struct leat_value *x, const struct leat_value *y)
{
    const bool centres = (resize->place == LEAT_PLACE_HALF_PIXEL || resize->place == LEAT_PLACE_PYTORCH_HALF_PIXEL) &&
                         (resize->round == LEAT_ROUND_PREFER_FLOOR || resize->round == LEAT_ROUND_PREFER_CEIL);
    const bool edges = (resize->place == LEAT_PLACE_ASYMMETRIC || resize->place == LEAT_PLACE_TF_HALF_PIXEL_FOR_NN) &&
                       resize->round == LEAT_ROUND_FLOOR;

    if (resize->mode != LEAT_RESIZE_NEAREST || !(centres || edges) || x->rank < 3 || x->rank > 5) {
        return false;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t times = x->dims[d] > 0 ? y->dims[d] / x->dims[d] : 0;
        if (times < 1 || times * x->dims[d] != y->dims[d] || resize->scale[d] != (double)times || (d < 2 && times != 1)) {
            return false;
        }
    }
    return true;
}

/*
 * Between the nearest two pixels along each axis, whose places count from centres: oneDNN's rule, whose scales are those of the sizes.
 * Beyond an edge there is one pixel, whether the other counts or not.
 * Where one pixel is left, what PyTorch's convention says of its place is another one.
 */
static bool
mixes_pixels(const struct leat_resize *resize, const struct leat_value *x, const struct leat_value *y)
{
    if (resize->mode != LEAT_RESIZE_LINEAR || x->rank < 3 || x->rank > 5 ||
        (resize->place != LEAT_PLACE_HALF_PIXEL && resize->place != LEAT_PLACE_PYTORCH_HALF_PIXEL)) {
        return false;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        const double given = resize->scale[d] * (double)x->dims[d];
        if (fabs(given - (double)y->dims[d]) > 1e-6 * (double)y->dims[d] || (d < 2 && x->dims[d] != y->dims[d]) ||
            (resize->place == LEAT_PLACE_PYTORCH_HALF_PIXEL && y->dims[d] == 1 && x->dims[d] != 1)) {
            return false;
        }
    }
    return true;
}

enum leat_status
cpu_lower_resize(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[2] = {{DNNL_ARG_SRC, 0}, {DNNL_ARG_DST, 0}};
    struct leat_resize resize;
    dnnl_resampling_desc_t resampling;
    bool known;

    if (leat_value_elements(y) == 0 || x->dtype != LEAT_DTYPE_F32) { /* a region that is not asked for may be empty */
        return LEAT_AGAIN;
    }
    enum leat_status status = leat_resize_of(b->graph, b->node, &resize, &known);
    if (status != LEAT_OK) {
        return status;
    }
    const bool repeats = known && repeats_pixels(&resize, x, y), mixes = known && !repeats && mixes_pixels(&resize, x, y);
#if defined(__x86_64__)
    /* Maps of other ranks, and in bf16, would have to become plain. */
    status = known && (!(repeats || mixes) || cpu_has_form(b, b->node->inputs[0])) ? cpu_lower_resample(b, &resize) : LEAT_AGAIN;
    if (status != LEAT_AGAIN) {
        return status;
    }
#endif
    if (!repeats && !mixes) {
        return LEAT_AGAIN;
    }
    status = cpu_best(b, b->node->inputs[0], &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    const dnnl_memory_desc_t src = b->program->tensors[args[0].tensor].md;
    const dnnl_memory_desc_t any_y = cpu_any_md(y->dims, y->rank, src.data_type);
    status = CPU_TRY(b, "resampling", dnnl_resampling_forward_desc_init(&resampling, dnnl_forward_inference,
                                                                        repeats ? dnnl_resampling_nearest : dnnl_resampling_linear,
                                                                        NULL, &src, &any_y));
    if (status == LEAT_OK) {
        status = add_with_result(b, &resampling, args);
    }
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[1].tensor);
    }
    return status;
}

enum leat_status
cpu_lower_batch_norm(struct cpu_builder *b)
{
    static const int ids[5] = {DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE};
    const struct leat_node *node = b->node;
    const unsigned flags = dnnl_use_global_stats | dnnl_use_scale | dnnl_use_shift;
    struct cpu_arg args[6];
    dnnl_batch_normalization_desc_t norm;
    dnnl_primitive_desc_t pd;

    for (uint32_t o = 1; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            return LEAT_AGAIN;
        }
    }
    if (!has_elements(b->graph, node) || leat_node_input(b->graph, node, 0)->rank < 2 ||
        leat_node_int(node, "spatial", 1) == 0) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, node->inputs[0], &args[0].tensor);
    for (uint32_t i = 1; i < 5 && status == LEAT_OK; i++) {
        status = cpu_plain(b, node->inputs[i], &args[i].tensor);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < 5; i++) {
        args[i].id = ids[i];
    }
    const dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    status = CPU_TRY(b, "batch normalisation",
                     dnnl_batch_normalization_forward_desc_init(&norm, dnnl_forward_inference, &md,
                                                                leat_node_float(node, "epsilon", 1e-5f), flags));
    if (status == LEAT_OK) {
        status = cpu_describe(b, &norm, false, &pd);
    }
    if (status != LEAT_OK) {
        return status;
    }
    args[5].id = DNNL_ARG_DST;
    status = cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), &args[5].tensor);
    if (status != LEAT_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return status;
    }
    status = cpu_add_primitive(b, pd, args, 6);
    if (status == LEAT_OK) {
        cpu_set_output(b, 0, args[5].tensor);
    }
    return status;
}
