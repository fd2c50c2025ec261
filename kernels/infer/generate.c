/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that make new tensors from sizes: ConstantOfShape, EyeLike, OneHot, Range, Size. */
#include "kernels/infer/infer.h"
#include "kernels/graph_build.h"

LEAT_INFER_FUNCTION(size)
{
    (void)graph;
    (void)node;
    (void)mixes_items;
    outputs[0] = (struct leat_shape){.dtype = LEAT_DTYPE_I64};
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(constant_of_shape)
{
    (void)mixes_items;
    const struct leat_attribute *value = leat_node_attribute(node, "value");
    uint32_t rank = 0, count;
    int64_t dims[LEAT_RANK_MAX];

    const enum leat_status status = leat_check_shape(graph, node, 0, &rank);
    if (status != LEAT_OK) {
        return status;
    }
    if (value != NULL && leat_value_elements(&graph->values[value->value]) != 1) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its value is not one element");
    }
    outputs[0] = leat_unknown_shape(
        value != NULL ? graph->values[value->value].dtype : LEAT_DTYPE_F32, rank);
    if (leat_read_ints(leat_node_input(graph, node, 0), LEAT_RANK_MAX, dims, &count)) {
        for (uint32_t d = 0; d < count; d++) {
            if (dims[d] < 0 || dims[d] > LEAT_DIM_MAX) {
                return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "dimension %u is %lld", d,
                                      (long long)dims[d]);
            }
            outputs[0].dims[d] = dims[d];
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(eye_like)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t given = leat_node_int(node, "dtype", 0);
    const uint32_t dtype = given == 0 ? x->dtype : leat_dtype_from_onnx(given);

    if (dtype == LEAT_DTYPE_NONE || x->rank != 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "rank %u and ONNX type %lld", x->rank,
                              (long long)given);
    }
    *mixes_items = *mixes_items || leat_has_batch(x, 0, 2); /* rows differ by their place */
    outputs[0] = leat_shape_of(x);
    outputs[0].dtype = dtype;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(one_hot)
{
    (void)mixes_items;
    const struct leat_value *indices = leat_node_input(graph, node, 0);
    const struct leat_value *depth = leat_node_input(graph, node, 1);
    const struct leat_value *values = leat_node_input(graph, node, 2);
    const uint32_t numbers = LEAT_TYPE(F32) | LEAT_TYPE(F64) | LEAT_TYPE_INDEX;
    double size;
    uint32_t axis = 0;

    enum leat_status status = leat_check_scalar(graph, node, 1, numbers);
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 2, LEAT_TYPE_ANY, 2);
    }
    if (status == LEAT_OK && indices->rank == LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d", LEAT_RANK_MAX);
    }
    if (status == LEAT_OK) {
        status = leat_axis_resolve(node, leat_node_int(node, "axis", -1), indices->rank + 1, &axis);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const bool known = leat_value_scalar(depth, &size);
    if (known && !(size >= 1 && size <= (double)LEAT_DIM_MAX)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its depth is %g", size);
    }
    outputs[0] = (struct leat_shape){.dtype = values->dtype, .rank = indices->rank + 1};
    for (uint32_t d = 0, from = 0; d < outputs[0].rank; d++) {
        outputs[0].dims[d] = d != axis ? indices->dims[from++]
                             : known   ? (int64_t)size
                                       : LEAT_DIM_UNKNOWN;
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(range)
{
    (void)mixes_items;
    const uint32_t dtype = leat_node_input(graph, node, 0)->dtype;
    double bounds[3];
    bool known = true;

    if (leat_node_int(node, "stash_type", 1) != 1) { /* f32, in which halves are counted here */
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "stash_type %lld is not supported",
                              (long long)leat_node_int(node, "stash_type", 1));
    }
    for (uint32_t i = 0; i < 3; i++) {
        const enum leat_status status = leat_check_scalar(graph, node, i, 1u << dtype);
        if (status != LEAT_OK) {
            return status;
        }
        known = known && leat_value_scalar(leat_node_input(graph, node, i), &bounds[i]);
    }
    outputs[0] = leat_unknown_shape(dtype, 1);
    if (known) {
        const double count = (bounds[1] - bounds[0]) / bounds[2];
        if (!(count <= (double)LEAT_DIM_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "from %g to %g in steps of %g", bounds[0],
                                  bounds[1], bounds[2]);
        }
        const int64_t whole = count > 0 ? (int64_t)count : 0;
        outputs[0].dims[0] = (double)whole < count ? whole + 1 : whole; /* rounded up */
    }
    return LEAT_OK;
}
