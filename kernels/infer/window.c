/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution and pooling: window geometry and the shapes that follow from it. */
#include "kernels/window.h"

#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"

enum auto_pad { PAD_EXPLICIT, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };

/* Per-axis ints of an attribute: absent means `otherwise`; values in [min, LEAT_DIM_MAX]. */
static enum leat_status
read_ints(const struct leat_node *node, const char *name, uint32_t count, int64_t min,
          int64_t otherwise, int64_t *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, name);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = otherwise;
    }
    if (attribute == NULL) {
        return LEAT_OK;
    }
    if (attribute->count != count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "attribute %s has %u entries, %u are needed",
                              name, attribute->count, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (attribute->ints[i] < min || attribute->ints[i] > LEAT_DIM_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "attribute %s has the entry %lld", name,
                                  (long long)attribute->ints[i]);
        }
        ret[i] = attribute->ints[i];
    }
    return LEAT_OK;
}

static enum leat_status
read_auto_pad(const struct leat_node *node, enum auto_pad *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "auto_pad");
    if (attribute == NULL || strcmp(attribute->s, "NOTSET") == 0 || attribute->s[0] == '\0') {
        *ret = PAD_EXPLICIT;
    } else if (strcmp(attribute->s, "SAME_UPPER") == 0) {
        *ret = PAD_SAME_UPPER;
    } else if (strcmp(attribute->s, "SAME_LOWER") == 0) {
        *ret = PAD_SAME_LOWER;
    } else if (strcmp(attribute->s, "VALID") == 0) {
        *ret = PAD_VALID;
    } else {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "auto_pad '%.32s' is not a known mode",
                              attribute->s);
    }
    return LEAT_OK;
}

/* Fills out[d], and for SAME the padding, of one axis. All numbers are at most LEAT_DIM_MAX: no overflow. */
static enum leat_status
place(const struct leat_node *node, enum auto_pad mode, bool ceil_mode, uint32_t d,
      struct leat_window *window)
{
    const int64_t in = window->in[d], stride = window->stride[d];
    const int64_t reach = (window->kernel[d] - 1) * window->dilation[d] + 1;

    if (mode != PAD_EXPLICIT) {
        window->pad_begin[d] = window->pad_end[d] = 0;
    }
    if (in < 0) {
        window->out[d] = LEAT_DIM_UNKNOWN;
        return LEAT_OK;
    }
    if (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER) {
        window->out[d] = (in + stride - 1) / stride;
        const int64_t needed = in == 0 ? 0 : (window->out[d] - 1) * stride + reach - in;
        const int64_t total = needed > 0 ? needed : 0;
        window->pad_begin[d] = mode == PAD_SAME_UPPER ? total / 2 : total - total / 2;
        window->pad_end[d] = total - window->pad_begin[d];
        return LEAT_OK;
    }
    const int64_t room = in + window->pad_begin[d] + window->pad_end[d] - reach;
    if (room < 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "a kernel reach of %lld does not fit into %lld",
                              (long long)reach, (long long)(room + reach));
    }
    window->out[d] = (ceil_mode ? (room + stride - 1) / stride : room / stride) + 1;
    if (ceil_mode && (window->out[d] - 1) * stride >= in + window->pad_begin[d]) {
        window->out[d]--; /* a window that would start in the padding after the end is left out */
    }
    return LEAT_OK;
}

/* Of a convolution: the input that holds its weights. */
static const struct leat_value *
weights_of(const struct leat_graph *graph, const struct leat_node *node)
{
    switch (node->op->kind) {
    case LEAT_OP_CONV:
    case LEAT_OP_CONV_INTEGER:
        return leat_node_input(graph, node, 1);
    case LEAT_OP_QLINEAR_CONV:
        return leat_node_input(graph, node, 3);
    default:
        return NULL;
    }
}

enum leat_status
leat_window_of(const struct leat_graph *graph, const struct leat_node *node,
               struct leat_window *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = weights_of(graph, node);
    const bool is_conv = w != NULL;
    int64_t pads[2 * LEAT_WINDOW_RANK], kernel[LEAT_WINDOW_RANK], strides[LEAT_WINDOW_RANK],
        dilations[LEAT_WINDOW_RANK];
    enum auto_pad mode = PAD_EXPLICIT;

    if (x->rank < 3 || x->rank > 2 + LEAT_WINDOW_RANK) {
        return LEAT_NODE_FAIL(
            node, LEAT_ERR_UNSUPPORTED,
            "its input has rank %u; one to three spatial dimensions are supported", x->rank);
    }
    const uint32_t rank = x->rank - 2, first = LEAT_WINDOW_RANK - rank;
    enum leat_status status = read_auto_pad(node, &mode);
    if (status != LEAT_OK ||
        (status = read_ints(node, "kernel_shape", rank, 1, 1, kernel)) != LEAT_OK ||
        (status = read_ints(node, "strides", rank, 1, 1, strides)) != LEAT_OK ||
        (status = read_ints(node, "dilations", rank, 1, 1, dilations)) != LEAT_OK ||
        (status = read_ints(node, "pads", 2 * rank, 0, 0, pads)) != LEAT_OK) {
        return status;
    }
    struct leat_window window = {.rank = rank};
    int64_t volume = 1;
    const bool ceil_mode = !is_conv && leat_node_int(node, "ceil_mode", 0) != 0;
    for (uint32_t d = 0; d < first; d++) {
        window.in[d] = window.out[d] = window.kernel[d] = window.stride[d] = window.dilation[d] = 1;
    }
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t d = first + i;
        window.in[d] = x->dims[2 + i];
        window.kernel[d] = is_conv ? w->dims[2 + i] : kernel[i];
        window.stride[d] = strides[i];
        window.dilation[d] = dilations[i];
        window.pad_begin[d] = pads[i];
        window.pad_end[d] = pads[rank + i];
        const int64_t reach = (window.kernel[d] - 1) * window.dilation[d] + 1;
        /* Each factor is at most LEAT_DIM_MAX and the product is checked at once: no overflow. */
        volume *= window.kernel[d];
        if (volume > LEAT_WINDOW_VOLUME_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its kernel has more than %lld elements",
                                  (long long)LEAT_WINDOW_VOLUME_MAX);
        }
        if (!is_conv && (pads[i] >= reach || pads[rank + i] >= reach)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "padding is as large as the kernel");
        }
        if ((status = place(node, mode, ceil_mode, d, &window)) != LEAT_OK) {
            return status;
        }
    }
    *ret = window;
    return LEAT_OK;
}

/* True when a window slides over the batch. */
static bool
slides_over_batch(const struct leat_value *x)
{
    for (uint32_t d = 1; d < x->rank; d++) {
        if (x->dims[d] == LEAT_DIM_BATCH) {
            return true;
        }
    }
    return false;
}

static void
output_of(const struct leat_value *x, int64_t channels, const struct leat_window *window,
          struct leat_shape *ret)
{
    ret->dtype = x->dtype;
    ret->rank = x->rank;
    ret->dims[0] = x->dims[0];
    ret->dims[1] = channels;
    for (uint32_t i = 0; i < window->rank; i++) {
        ret->dims[2 + i] = window->out[LEAT_WINDOW_RANK - window->rank + i];
    }
}

/* `bias` is NULL or of type `bias_type`. */
static enum leat_status
check_weights(const struct leat_node *node, const struct leat_value *x, const struct leat_value *w,
              const struct leat_value *bias, uint32_t bias_type)
{
    const struct leat_attribute *kernel = leat_node_attribute(node, "kernel_shape");
    const int64_t group = leat_node_int(node, "group", 1);

    if (x->rank < 3 || w->rank != x->rank || !leat_value_is_known(w)) {
        return LEAT_NODE_FAIL(
            node, LEAT_ERR_SHAPE,
            "weights of rank %u and type %s do not fit an input of rank %u and type %s", w->rank,
            leat_dtype_text(w->dtype), x->rank, leat_dtype_text(x->dtype));
    }
    for (uint32_t d = 2; d < w->rank; d++) {
        if (w->dims[d] < 1 ||
            (kernel != NULL && kernel->count == w->rank - 2 && kernel->ints[d - 2] != w->dims[d])) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "kernel_shape differs from the weights");
        }
    }
    if (group < 1 || group > LEAT_DIM_MAX || w->dims[0] % group != 0 ||
        (x->dims[1] >= 0 && x->dims[1] != w->dims[1] * group)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "%lld input channels do not fit %lld groups of %lld (%lld outputs)",
                              (long long)x->dims[1], (long long)group, (long long)w->dims[1],
                              (long long)w->dims[0]);
    }
    if (bias != NULL &&
        (bias->dtype != bias_type || bias->rank != 1 || bias->dims[0] != w->dims[0])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "the bias does not have %lld elements",
                              (long long)w->dims[0]);
    }
    return LEAT_OK;
}

/* The output of a convolution with these weights. */
static enum leat_status
convolve(const struct leat_graph *graph, const struct leat_node *node, const struct leat_value *w,
         const struct leat_value *bias, uint32_t bias_type, struct leat_shape *ret,
         bool *mixes_items)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct leat_window window;

    enum leat_status status = check_weights(node, x, w, bias, bias_type);
    if (status == LEAT_OK) {
        status = leat_window_of(graph, node, &window);
    }
    if (status == LEAT_OK) {
        output_of(x, w->dims[0], &window, ret);
        *mixes_items = *mixes_items || slides_over_batch(x);
    }
    return status;
}

LEAT_INFER_FUNCTION(conv)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    const enum leat_status status =
        leat_check_input(graph, node, 1, 1u << x->dtype, 0, LEAT_RANK_MAX);
    return status == LEAT_OK
               ? convolve(graph, node, leat_node_input(graph, node, 1),
                          leat_node_input(graph, node, 2), x->dtype, &outputs[0], mixes_items)
               : status;
}

LEAT_INFER_FUNCTION(conv_integer)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = leat_node_input(graph, node, 1);

    enum leat_status status =
        leat_check_input(graph, node, 1, LEAT_TYPE(I8) | LEAT_TYPE(U8), 0, LEAT_RANK_MAX);
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 2, 1u << x->dtype);
    }
    if (status == LEAT_OK) {
        status = convolve(graph, node, w, NULL, 0, &outputs[0], mixes_items);
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 3, 1u << w->dtype, w->dims[0]);
    }
    outputs[0].dtype = LEAT_DTYPE_I32;
    return status;
}

/* x, its scale and zero point, w, its scale and zero point, scale and zero point of y, bias */
LEAT_INFER_FUNCTION(qlinear_conv)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = leat_node_input(graph, node, 3);

    enum leat_status status =
        leat_check_input(graph, node, 3, LEAT_TYPE(I8) | LEAT_TYPE(U8), 0, LEAT_RANK_MAX);
    if (status == LEAT_OK) {
        status = convolve(graph, node, w, leat_node_input(graph, node, 8), LEAT_DTYPE_I32,
                          &outputs[0], mixes_items);
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 1, LEAT_TYPE(F32));
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 2, 1u << x->dtype);
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 4, LEAT_TYPE(F32), w->dims[0]);
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 5, 1u << w->dtype, w->dims[0]);
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 6, LEAT_TYPE(F32));
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 7, LEAT_TYPE(I8) | LEAT_TYPE(U8));
    }
    outputs[0].dtype = leat_node_input(graph, node, 7)->dtype;
    return status;
}

/* ---- Transposed convolution ------------------------------------------------------------------------- */

/* One axis: `window->out` is how far the kernels reach, less the padding, or what output_shape wants. */
static enum leat_status
place_transposed(const struct leat_node *node, enum auto_pad mode, int64_t output_padding,
                 int64_t wanted, uint32_t d, struct leat_window *window)
{
    const int64_t in = window->in[d], stride = window->stride[d];
    const int64_t reach = (window->kernel[d] - 1) * window->dilation[d] + 1;

    if (mode == PAD_VALID) {
        window->pad_begin[d] = window->pad_end[d] = 0;
    }
    if (in < 0) {
        window->out[d] = wanted >= 0 ? wanted : LEAT_DIM_UNKNOWN;
        return LEAT_OK;
    }
    /* All factors are at most LEAT_DIM_MAX: no overflow. */
    const int64_t full = in > 0 ? stride * (in - 1) + output_padding + reach : 0;
    if (wanted < 0 && (mode == PAD_SAME_UPPER || mode == PAD_SAME_LOWER)) {
        wanted = in * stride < full ? in * stride : full; /* as ONNX infers it: kernels reach no further */
    }
    if (wanted >= 0) {
        const int64_t total = full > wanted ? full - wanted : 0;
        window->pad_begin[d] = mode == PAD_SAME_UPPER ? total / 2 : total - total / 2;
        window->pad_end[d] = total - window->pad_begin[d];
        window->out[d] = wanted;
        return LEAT_OK;
    }
    window->out[d] = full - window->pad_begin[d] - window->pad_end[d];
    return window->out[d] >= 0
               ? LEAT_OK
               : LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "padding leaves nothing of axis %u", d);
}

enum leat_status
leat_transposed_window_of(const struct leat_graph *graph, const struct leat_node *node,
                          struct leat_window *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = leat_node_input(graph, node, 1);
    int64_t pads[2 * LEAT_WINDOW_RANK], strides[LEAT_WINDOW_RANK], dilations[LEAT_WINDOW_RANK],
        extra[LEAT_WINDOW_RANK], wanted[LEAT_WINDOW_RANK];
    enum auto_pad mode = PAD_EXPLICIT;

    if (x->rank < 3 || x->rank > 2 + LEAT_WINDOW_RANK) {
        return LEAT_NODE_FAIL(
            node, LEAT_ERR_UNSUPPORTED,
            "its input has rank %u; one to three spatial dimensions are supported", x->rank);
    }
    const uint32_t rank = x->rank - 2, first = LEAT_WINDOW_RANK - rank;
    enum leat_status status = read_auto_pad(node, &mode);
    if (status != LEAT_OK ||
        (status = read_ints(node, "strides", rank, 1, 1, strides)) != LEAT_OK ||
        (status = read_ints(node, "dilations", rank, 1, 1, dilations)) != LEAT_OK ||
        (status = read_ints(node, "output_padding", rank, 0, 0, extra)) != LEAT_OK ||
        (status = read_ints(node, "output_shape", rank, 0, -1, wanted)) != LEAT_OK ||
        (status = read_ints(node, "pads", 2 * rank, 0, 0, pads)) != LEAT_OK) {
        return status;
    }
    struct leat_window window = {.rank = rank};
    int64_t volume = 1;
    for (uint32_t d = 0; d < first; d++) {
        window.in[d] = window.out[d] = window.kernel[d] = window.stride[d] = window.dilation[d] = 1;
    }
    for (uint32_t i = 0; i < rank && status == LEAT_OK; i++) {
        const uint32_t d = first + i;
        window.in[d] = x->dims[2 + i];
        window.kernel[d] = w->dims[2 + i];
        window.stride[d] = strides[i];
        window.dilation[d] = dilations[i];
        window.pad_begin[d] = pads[i];
        window.pad_end[d] = pads[rank + i];
        volume *= window.kernel[d];
        if (volume > LEAT_WINDOW_VOLUME_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its kernel has more than %lld elements",
                                  (long long)LEAT_WINDOW_VOLUME_MAX);
        }
        status = place_transposed(node, mode, extra[i], wanted[i], d, &window);
    }
    *ret = window;
    return status;
}

LEAT_INFER_FUNCTION(conv_transpose)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = leat_node_input(graph, node, 1);
    const struct leat_attribute *kernel = leat_node_attribute(node, "kernel_shape");
    const int64_t group = leat_node_int(node, "group", 1);
    struct leat_window window;

    enum leat_status status = leat_check_input(graph, node, 1, 1u << x->dtype, x->rank, x->rank);
    if (status != LEAT_OK) {
        return status;
    }
    if (!leat_value_is_known(w) || x->rank < 3 || group < 1 || group > LEAT_DIM_MAX ||
        w->dims[0] % group != 0 || (x->dims[1] >= 0 && x->dims[1] != w->dims[0])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "%lld input channels do not fit weights for %lld in %lld groups",
                              (long long)x->dims[1], (long long)w->dims[0], (long long)group);
    }
    for (uint32_t d = 2; d < w->rank; d++) {
        if (w->dims[d] < 1 ||
            (kernel != NULL && kernel->count == w->rank - 2 && kernel->ints[d - 2] != w->dims[d])) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "kernel_shape differs from the weights");
        }
    }
    status = leat_check_vector(graph, node, 2, 1u << x->dtype, w->dims[1] * group);
    if (status == LEAT_OK) {
        status = leat_transposed_window_of(graph, node, &window);
    }
    if (status == LEAT_OK) {
        output_of(x, w->dims[1] * group, &window, &outputs[0]);
        *mixes_items = *mixes_items || slides_over_batch(x);
    }
    return status;
}

/* ---- Pooling ---------------------------------------------------------------------------------------------- */

LEAT_INFER_FUNCTION(pool)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct leat_window window;

    const enum leat_status status = leat_window_of(graph, node, &window);
    if (status == LEAT_OK) {
        output_of(x, x->dims[1], &window, &outputs[0]);
        outputs[1] = outputs[0]; /* of MaxPool: where the maxima were */
        outputs[1].dtype = LEAT_DTYPE_I64;
        *mixes_items = *mixes_items || slides_over_batch(x);
    }
    return status;
}

static enum leat_status
check_norm(const struct leat_node *node)
{
    const int64_t p = leat_node_int(node, "p", 2);
    return p >= 1 && p <= 1024 ? LEAT_OK
                               : LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "p is %lld", (long long)p);
}

LEAT_INFER_FUNCTION(lp_pool)
{
    const enum leat_status status = check_norm(node);
    return status == LEAT_OK ? leat_infer_pool(graph, node, outputs, mixes_items) : status;
}

LEAT_INFER_FUNCTION(global_lp_pool)
{
    const enum leat_status status = check_norm(node);
    return status == LEAT_OK ? leat_infer_global_pool(graph, node, outputs, mixes_items) : status;
}

LEAT_INFER_FUNCTION(global_pool)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank < 3) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has rank %u, at least 3 is needed",
                              x->rank);
    }
    outputs[0] = leat_shape_of(x);
    for (uint32_t d = 2; d < x->rank; d++) {
        if (x->dims[d] == 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "spatial dimension %u is empty", d);
        }
        *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
        outputs[0].dims[d] = 1;
    }
    return LEAT_OK;
}

enum leat_status
leat_unpool_shape(const struct leat_graph *graph, const struct leat_node *node,
                  int64_t ret[LEAT_RANK_MAX])
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t pads[2 * LEAT_WINDOW_RANK], kernel[LEAT_WINDOW_RANK], strides[LEAT_WINDOW_RANK];

    if (x->rank < 3 || x->rank > 2 + LEAT_WINDOW_RANK) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its input has rank %u", x->rank);
    }
    const uint32_t rank = x->rank - 2;
    enum leat_status status = read_ints(node, "kernel_shape", rank, 1, 1, kernel);
    if (status != LEAT_OK ||
        (status = read_ints(node, "strides", rank, 1, 1, strides)) != LEAT_OK ||
        (status = read_ints(node, "pads", 2 * rank, 0, 0, pads)) != LEAT_OK) {
        return status;
    }
    ret[0] = x->dims[0];
    ret[1] = x->dims[1];
    uint64_t elements = x->dims[0] > 0 && x->dims[1] > 0 ? (uint64_t)(x->dims[0] * x->dims[1]) : 1;
    for (uint32_t d = 0; d < rank; d++) {
        const int64_t in = x->dims[2 + d];
        ret[2 + d] = in < 0 ? LEAT_DIM_UNKNOWN
                            : (in - 1) * strides[d] + kernel[d] - pads[d] - pads[rank + d];
        if (in >= 0 && (ret[2 + d] < 0 || ret[2 + d] > LEAT_DIM_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u would have %lld elements", 2 + d,
                                  (long long)ret[2 + d]);
        }
        if (ret[2 + d] > 0 && (__builtin_mul_overflow(elements, (uint64_t)ret[2 + d], &elements) ||
                               elements > LEAT_VALUE_BYTES_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its indices refer to too large a tensor");
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(max_unpool)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    int64_t dims[LEAT_RANK_MAX];
    uint32_t count = 0;

    enum leat_status status = leat_unpool_shape(graph, node, dims);
    if (status == LEAT_OK) {
        status = leat_check_input(graph, node, 1, LEAT_TYPE(I64), x->rank, x->rank);
    }
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 2, LEAT_TYPE(I64), x->rank);
    }
    if (status != LEAT_OK) {
        return status;
    }
    outputs[0] = leat_shape_of(x);
    *mixes_items = *mixes_items || slides_over_batch(x);
    for (uint32_t d = 0; d < x->rank; d++) {
        if (x->dims[d] >= 0 && indices->dims[d] >= 0 && x->dims[d] != indices->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "indices differ from x along axis %u", d);
        }
        outputs[0].dims[d] = dims[d];
    }
    if (leat_node_input(graph, node, 2) == NULL) {
        return LEAT_OK;
    }
    if (!leat_read_ints(leat_node_input(graph, node, 2), LEAT_RANK_MAX, dims, &count)) {
        for (uint32_t d = 2; d < x->rank; d++) {
            outputs[0].dims[d] = LEAT_DIM_UNKNOWN;
        }
        return LEAT_OK;
    }
    for (uint32_t d = 0; d < count; d++) {
        if (dims[d] < 0 || dims[d] > LEAT_DIM_MAX ||
            (d < 2 && x->dims[d] >= 0 && dims[d] != x->dims[d])) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "output_shape has the entry %lld at %u",
                                  (long long)dims[d], d);
        }
        outputs[0].dims[d] = d < 2 ? x->dims[d] : dims[d];
    }
    return LEAT_OK;
}
