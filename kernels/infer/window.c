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

enum leat_status
leat_window_of(const struct leat_graph *graph, const struct leat_node *node,
               struct leat_window *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool is_conv = node->op->kind == LEAT_OP_CONV;
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
        window.kernel[d] = is_conv ? leat_node_input(graph, node, 1)->dims[2 + i] : kernel[i];
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

static enum leat_status
check_weights(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *w = leat_node_input(graph, node, 1);
    const struct leat_value *bias = leat_node_input(graph, node, 2);
    const struct leat_attribute *kernel = leat_node_attribute(node, "kernel_shape");
    const int64_t group = leat_node_int(node, "group", 1);

    if (x->rank < 3 || w->rank != x->rank || w->dtype != x->dtype || !leat_value_is_known(w)) {
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
        (bias->dtype != x->dtype || bias->rank != 1 || bias->dims[0] != w->dims[0])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "the bias does not have %lld elements",
                              (long long)w->dims[0]);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(conv)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct leat_window window;

    enum leat_status status = check_weights(graph, node);
    if (status == LEAT_OK) {
        status = leat_window_of(graph, node, &window);
    }
    if (status == LEAT_OK) {
        output_of(x, leat_node_input(graph, node, 1)->dims[0], &window, &outputs[0]);
        *mixes_items = *mixes_items || slides_over_batch(x);
    }
    return status;
}

LEAT_INFER_FUNCTION(pool)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct leat_window window;

    if (leat_node_output(graph, node, 1) != NULL) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its Indices output is not supported");
    }
    const enum leat_status status = leat_window_of(graph, node, &window);
    if (status == LEAT_OK) {
        output_of(x, x->dims[1], &window, &outputs[0]);
        *mixes_items = *mixes_items || slides_over_batch(x);
    }
    return status;
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
