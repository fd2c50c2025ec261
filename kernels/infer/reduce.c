/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that combine elements along axes: Softmax, Reduce*, ArgMax, CumSum, TopK and normalisations. */
#include "kernels/infer/infer.h"

#include <string.h>

LEAT_INFER_FUNCTION(softmax)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    uint32_t axis;

    const enum leat_status status = leat_axis_resolve(
        node, leat_node_int(node, "axis", graph->opset < 13 ? 1 : -1), x->rank, &axis);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = axis; d < (graph->opset < 13 ? x->rank : axis + 1); d++) {
        *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
    }
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(reduce)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool keep = leat_node_int(node, "keepdims", 1) != 0;
    const enum leat_op_kind kind = node->op->kind;
    const bool needs_elements =
        kind == LEAT_OP_REDUCE_MEAN || kind == LEAT_OP_REDUCE_MAX || kind == LEAT_OP_REDUCE_MIN;
    const int64_t *axes;
    uint32_t count, mask = 0;
    bool computed;

    enum leat_status status = leat_read_axes(graph, node, &axes, &count, &computed);
    if (status == LEAT_OK && computed) {
        *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
        if (count > x->rank) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%u axes of a tensor of rank %u", count,
                                  x->rank);
        }
        outputs[0] = leat_unknown_shape(x->dtype, keep ? x->rank : x->rank - count);
        return LEAT_OK;
    }
    if (status == LEAT_OK) {
        status = leat_axes_mask(node, axes, count, x->rank, &mask);
    }
    if (status != LEAT_OK) {
        return status;
    }
    mask = leat_reduce_axes(graph, node);
    outputs[0] = (struct leat_shape){.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++) {
        const bool reduced = (mask >> d & 1u) != 0;
        if (reduced && x->dims[d] == 0 && needs_elements) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u is empty", d);
        }
        *mixes_items = *mixes_items || (reduced && x->dims[d] == LEAT_DIM_BATCH);
        if (!reduced || keep) {
            outputs[0].dims[outputs[0].rank++] = reduced ? 1 : x->dims[d];
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(arg_reduce)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool keep = leat_node_int(node, "keepdims", 1) != 0;
    uint32_t axis = 0;

    const enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", 0), x->rank, &axis);
    if (status != LEAT_OK) {
        return status;
    }
    if (x->dims[axis] == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u is empty", axis);
    }
    *mixes_items = *mixes_items || x->dims[axis] == LEAT_DIM_BATCH;
    outputs[0] = (struct leat_shape){.dtype = LEAT_DTYPE_I64};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d != axis || keep) {
            outputs[0].dims[outputs[0].rank++] = d == axis ? 1 : x->dims[d];
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(cum_sum)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *along = leat_node_input(graph, node, 1);
    uint32_t axis = 0, count;
    int64_t given;

    enum leat_status status = leat_check_scalar(graph, node, 1, LEAT_TYPE_INDEX);
    if (status == LEAT_OK && leat_read_ints(along, 1, &given, &count)) {
        status = leat_axis_resolve(node, given, x->rank, &axis);
        if (status == LEAT_OK) {
            *mixes_items = *mixes_items || x->dims[axis] == LEAT_DIM_BATCH;
        }
    } else {
        *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
    }
    outputs[0] = leat_shape_of(x);
    return status;
}

LEAT_INFER_FUNCTION(top_k)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t k = leat_node_int(node, "k", -1);
    uint32_t axis = 0, count = 1;

    enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", -1), x->rank, &axis);
    if (status == LEAT_OK && node->op->since >= 10) {
        status = leat_check_scalar(graph, node, 1, LEAT_TYPE(I64));
        k = leat_read_ints(leat_node_input(graph, node, 1), 1, &k, &count) ? k : LEAT_DIM_UNKNOWN;
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (k != LEAT_DIM_UNKNOWN &&
        (k < 0 || k > LEAT_DIM_MAX || (x->dims[axis] >= 0 && k > x->dims[axis]))) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "the %lld largest of %lld elements",
                              (long long)k, (long long)x->dims[axis]);
    }
    *mixes_items = *mixes_items || x->dims[axis] == LEAT_DIM_BATCH;
    outputs[0] = leat_shape_of(x);
    outputs[0].dims[axis] = k;
    outputs[1] = outputs[0];
    outputs[1].dtype = LEAT_DTYPE_I64;
    return LEAT_OK;
}

/* ---- Normalisations ----------------------------------------------------------------------------------- */

LEAT_INFER_FUNCTION(instance_normalization)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank < 3) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has rank %u, at least 3 is needed",
                              x->rank);
    }
    enum leat_status status = LEAT_OK;
    for (uint32_t i = 1; i < 3 && status == LEAT_OK; i++) {
        status = leat_check_vector(graph, node, i, 1u << x->dtype, x->dims[1]);
    }
    *mixes_items = *mixes_items || leat_has_batch(x, 2, x->rank);
    outputs[0] = leat_shape_of(x);
    return status;
}

LEAT_INFER_FUNCTION(lp_normalization)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t p = leat_node_int(node, "p", 2);
    uint32_t axis = 0;

    if (p != 1 && p != 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "p is %lld, neither 1 nor 2", (long long)p);
    }
    const enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", -1), x->rank, &axis);
    if (status == LEAT_OK) {
        *mixes_items = *mixes_items || x->dims[axis] == LEAT_DIM_BATCH;
        outputs[0] = leat_shape_of(x);
    }
    return status;
}

LEAT_INFER_FUNCTION(lrn)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t size = leat_node_int(node, "size", 0);

    if (x->rank < 2 || size < 1 || size > LEAT_DIM_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u and size %lld", x->rank,
                              (long long)size);
    }
    *mixes_items = *mixes_items || x->dims[1] == LEAT_DIM_BATCH;
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(mean_variance)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    uint32_t mask = 0;

    const struct leat_attribute *axes = leat_node_attribute(node, "axes");
    enum leat_status status = LEAT_OK;
    if (axes != NULL) {
        status = leat_axes_mask(node, axes->ints, axes->count, x->rank, &mask);
    } else if (x->rank < 4) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has rank %u, not 4", x->rank);
    }
    if (status != LEAT_OK) {
        return status;
    }
    mask = leat_mean_variance_axes(graph, node);
    for (uint32_t d = 0; d < x->rank; d++) {
        *mixes_items = *mixes_items || ((mask >> d & 1u) != 0 && x->dims[d] == LEAT_DIM_BATCH);
    }
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

/* Scale or bias: broadcasts to the dims from `axis` on. */
static enum leat_status
check_affine(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
             uint32_t axis)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *affine = leat_node_input(graph, node, i);

    const enum leat_status status =
        leat_check_input(graph, node, i, 1u << x->dtype, 0, x->rank - axis);
    if (status != LEAT_OK || affine == NULL) {
        return status;
    }
    for (uint32_t d = 0; d < affine->rank; d++) {
        const int64_t dim = x->dims[x->rank - affine->rank + d];
        if (affine->dims[d] != 1 && affine->dims[d] != dim && dim >= 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u does not fit axis %u", i,
                                  x->rank - affine->rank + d);
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(layer_normalization)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    uint32_t axis = 0;

    enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", -1), x->rank, &axis);
    if (status == LEAT_OK && leat_node_int(node, "stash_type", 1) != 1) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "stash_type %lld is not supported",
                              (long long)leat_node_int(node, "stash_type", 1));
    }
    for (uint32_t i = 1; i < 3 && status == LEAT_OK; i++) {
        status = check_affine(graph, node, i, axis);
    }
    if (status != LEAT_OK) {
        return status;
    }
    outputs[0] = outputs[1] = leat_shape_of(x);
    for (uint32_t d = axis; d < x->rank; d++) {
        *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
        outputs[1].dims[d] = 1;
    }
    outputs[2] = outputs[1];
    return LEAT_OK;
}
