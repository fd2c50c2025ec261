/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose output has the shape of their inputs: activations, arithmetic, Cast, Clip, Dropout. */
#include "kernels/infer/infer.h"

#include <string.h>

LEAT_INFER_FUNCTION(same)
{
    (void)mixes_items;
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(same_bool)
{
    (void)mixes_items;
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = LEAT_DTYPE_BOOL;
    return LEAT_OK;
}

/* Broadcasts the shape of input i into *out, which keeps its type. */
static enum leat_status
broadcast_into(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
               struct leat_shape *out, bool *mixes_items)
{
    const struct leat_value *x = leat_node_input(graph, node, i);
    const struct leat_shape before = *out;

    if (x == NULL) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "input %u must not be omitted", i);
    }
    out->rank = before.rank > x->rank ? before.rank : x->rank;
    for (uint32_t d = 0; d < out->rank; d++) {
        const uint32_t before_a = out->rank - before.rank, before_b = out->rank - x->rank;
        const int64_t dim_a = d < before_a ? 1 : before.dims[d - before_a];
        const int64_t dim_b = d < before_b ? 1 : x->dims[d - before_b];
        if (!leat_dim_broadcast(dim_a, dim_b, &out->dims[d], mixes_items)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                                  "dimensions %lld and %lld (axis %u) cannot be broadcast",
                                  (long long)dim_a, (long long)dim_b, d);
        }
    }
    return LEAT_OK;
}

/* Inputs [first, input_count), all of one type when `alike`. */
static enum leat_status
broadcast_from(const struct leat_graph *graph, const struct leat_node *node, uint32_t first,
               bool alike, struct leat_shape *out, bool *mixes_items)
{
    const struct leat_value *a = leat_node_input(graph, node, first);

    *out = leat_shape_of(a);
    for (uint32_t i = first + 1; i < node->input_count; i++) {
        const struct leat_value *b = leat_node_input(graph, node, i);
        if (alike && b != NULL && a->dtype != b->dtype) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its inputs are %s and %s, not of one type",
                                  leat_dtype_text(a->dtype), leat_dtype_text(b->dtype));
        }
        const enum leat_status status = broadcast_into(graph, node, i, out, mixes_items);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(broadcast)
{
    return broadcast_from(graph, node, 0, true, &outputs[0], mixes_items);
}

LEAT_INFER_FUNCTION(compare)
{
    const enum leat_status status = broadcast_from(graph, node, 0, true, &outputs[0], mixes_items);
    outputs[0].dtype = LEAT_DTYPE_BOOL;
    return status;
}

LEAT_INFER_FUNCTION(where)
{
    const enum leat_status status = broadcast_from(graph, node, 1, true, &outputs[0], mixes_items);
    return status == LEAT_OK ? broadcast_into(graph, node, 0, &outputs[0], mixes_items) : status;
}

LEAT_INFER_FUNCTION(pow)
{
    const uint32_t exponent = leat_node_input(graph, node, 1)->dtype;
    const bool alike = node->op->until < 12; /* before opset 12 both have one type */
    if ((node->op->types >> exponent & 1u) == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "an exponent of type %s is not supported",
                              leat_dtype_text(exponent));
    }
    return broadcast_from(graph, node, 0, alike, &outputs[0], mixes_items);
}

LEAT_INFER_FUNCTION(bit_shift)
{
    const char *direction = leat_node_attribute(node, "direction")->s;
    if (strcmp(direction, "LEFT") != 0 && strcmp(direction, "RIGHT") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "direction '%.32s' is neither LEFT nor RIGHT",
                              direction);
    }
    return leat_infer_broadcast(graph, node, outputs, mixes_items);
}

LEAT_INFER_FUNCTION(mod)
{
    const uint32_t dtype = leat_node_input(graph, node, 0)->dtype;
    const bool is_float =
        ((LEAT_TYPE(F32) | LEAT_TYPE(F64) | LEAT_TYPE(F16) | LEAT_TYPE(BF16)) >> dtype & 1u) != 0;
    if (is_float && leat_node_int(node, "fmod", 0) == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "floating-point inputs need fmod = 1");
    }
    return leat_infer_broadcast(graph, node, outputs, mixes_items);
}

LEAT_INFER_FUNCTION(prelu)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *slope = leat_node_input(graph, node, 1);

    outputs[0] = leat_shape_of(x);
    if (node->op->until < 7 && slope->rank == 1 && slope->dims[0] > 1) {
        return x->rank >= 2 ? leat_check_vector(graph, node, 1, 1u << x->dtype, x->dims[1])
                            : LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has no channels");
    }
    struct leat_shape shape;
    const enum leat_status status = broadcast_from(graph, node, 0, true, &shape, mixes_items);
    if (status != LEAT_OK) {
        return status;
    }
    bool same = shape.rank == x->rank;
    for (uint32_t d = 0; same && d < x->rank; d++) {
        same = shape.dims[d] == x->dims[d] || x->dims[d] < 0;
    }
    return same ? LEAT_OK
                : LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "the slopes do not fit the shape of x");
}

LEAT_INFER_FUNCTION(cast_like)
{
    (void)mixes_items;
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = leat_node_input(graph, node, 1)->dtype;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(cast)
{
    (void)mixes_items;
    const uint32_t dtype = leat_dtype_from_onnx(leat_node_int(node, "to", 0));
    if (dtype == LEAT_DTYPE_NONE) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "a cast to ONNX type %lld is not supported",
                              (long long)leat_node_int(node, "to", 0));
    }
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = dtype;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(clip)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    for (uint32_t i = 1; i < node->input_count; i++) {
        const struct leat_value *bound = leat_node_input(graph, node, i);
        if (bound != NULL && (bound->dtype != x->dtype || bound->rank > 1 ||
                              (bound->rank == 1 && bound->dims[0] != 1))) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "bound %u is not a scalar of type %s", i,
                                  leat_dtype_text(x->dtype));
        }
    }
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

/* The training_mode input, when there is one, has to be a constant false. */
static bool
is_inference(const struct leat_value *training_mode)
{
    return training_mode == NULL ||
           (training_mode->data != NULL && training_mode->dtype == LEAT_DTYPE_BOOL &&
            training_mode->data_bytes == 1 && *(const uint8_t *)training_mode->data == 0);
}

LEAT_INFER_FUNCTION(dropout)
{
    (void)mixes_items;
    if (!is_inference(leat_node_input(graph, node, 2)) ||
        (node->op->until < 7 && leat_node_int(node, "is_test", 0) == 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "training mode is not supported; export the model for inference");
    }
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    if (leat_node_output(graph, node, 1) != NULL) {
        if (graph->opset < 10) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                  "its mask output is not supported at opset %lld",
                                  (long long)graph->opset);
        }
        outputs[1] = outputs[0];
        outputs[1].dtype = LEAT_DTYPE_BOOL;
    }
    return LEAT_OK;
}

static enum leat_status
check_channels(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
               int64_t channels)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    const uint32_t dtype = leat_node_input(graph, node, 0)->dtype;
    if (value->dtype != dtype || value->rank != 1 ||
        (value->dims[0] != channels && value->dims[0] >= 0 && channels >= 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u '%.64s' is not %s[%lld]", i,
                              value->name, leat_dtype_text(dtype), (long long)channels);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(batch_normalization)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank < 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has rank %u, at least 2 is needed",
                              x->rank);
    }
    for (uint32_t o = 1; o < node->output_count; o++) {
        if (leat_node_output(graph, node, o) != NULL) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                  "its training outputs are not supported");
        }
    }
    if (leat_node_int(node, "training_mode", 0) != 0 || leat_node_int(node, "spatial", 1) != 1 ||
        (node->op->until < 7 && leat_node_int(node, "is_test", 0) == 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "training mode and spatial = 0 are not supported");
    }
    enum leat_status status = LEAT_OK;
    for (uint32_t i = 1; i < 5 && status == LEAT_OK; i++) {
        status = check_channels(graph, node, i, x->dims[1]);
    }
    outputs[0] = leat_shape_of(x);
    return status;
}
