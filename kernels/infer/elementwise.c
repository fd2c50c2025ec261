/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose output has the shape of their inputs: activations, arithmetic, Cast, Clip, Dropout. */
#include "kernels/infer/infer.h"

LEAT_INFER_FUNCTION(same)
{
    (void)mixes_items;
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(broadcast)
{
    const struct leat_value *a = leat_node_input(graph, node, 0);
    const struct leat_value *b = leat_node_input(graph, node, 1);

    if (a->dtype != b->dtype) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its inputs are %s and %s, not of one type",
                              leat_dtype_text(a->dtype), leat_dtype_text(b->dtype));
    }
    struct leat_shape *out = &outputs[0];
    out->dtype = a->dtype;
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    for (uint32_t d = 0; d < out->rank; d++) {
        const uint32_t before_a = out->rank - a->rank, before_b = out->rank - b->rank;
        const int64_t dim_a = d < before_a ? 1 : a->dims[d - before_a];
        const int64_t dim_b = d < before_b ? 1 : b->dims[d - before_b];
        if (!leat_dim_broadcast(dim_a, dim_b, &out->dims[d], mixes_items)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                                  "dimensions %lld and %lld (axis %u) cannot be broadcast",
                                  (long long)dim_a, (long long)dim_b, d);
        }
    }
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
    if (value->dtype != LEAT_DTYPE_F32 || value->rank != 1 ||
        (value->dims[0] != channels && value->dims[0] >= 0 && channels >= 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u '%.64s' is not f32[%lld]", i,
                              value->name, (long long)channels);
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
