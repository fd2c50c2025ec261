/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and scatter by index tensors; Gather itself is in move.c. */
#include "kernels/infer/infer.h"

#include <string.h>

/*
 * Elements are looked up along `axis` by an index tensor of x's rank: items stay apart when both have the
 * batch at the same other axis.
 */
static bool
lookup_mixes(const struct leat_value *x, const struct leat_value *indices, uint32_t axis)
{
    bool mixes = x->dims[axis] == LEAT_DIM_BATCH;
    for (uint32_t d = 0; d < x->rank; d++) {
        mixes = mixes || (d != axis && x->dims[d] != indices->dims[d] &&
                          (x->dims[d] == LEAT_DIM_BATCH || indices->dims[d] == LEAT_DIM_BATCH));
    }
    return mixes;
}

/* Input 1: indices of x's rank, nowhere longer than x but along the axis. */
static enum leat_status
check_lookup(const struct leat_graph *graph, const struct leat_node *node, uint32_t *ret_axis,
             bool *mixes_items)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);

    enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", 0), x->rank, ret_axis);
    if (status == LEAT_OK) {
        status = leat_check_input(graph, node, 1, LEAT_TYPE_INDEX, x->rank, x->rank);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d != *ret_axis && x->dims[d] >= 0 && indices->dims[d] > x->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%lld indices along axis %u of %lld",
                                  (long long)indices->dims[d], d, (long long)x->dims[d]);
        }
    }
    *mixes_items = *mixes_items || lookup_mixes(x, indices, *ret_axis);
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(gather_elements)
{
    uint32_t axis = 0;
    const enum leat_status status = check_lookup(graph, node, &axis, mixes_items);
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 1));
    outputs[0].dtype = leat_node_input(graph, node, 0)->dtype;
    return status;
}

static enum leat_status
check_reduction(const struct leat_node *node, uint32_t dtype)
{
    const struct leat_attribute *reduction = leat_node_attribute(node, "reduction");
    if (reduction == NULL || strcmp(reduction->s, "none") == 0 || reduction->s[0] == '\0') {
        return LEAT_OK;
    }
    const bool extreme = node->op->since >= 18 && (strcmp(reduction->s, "max") == 0 || strcmp(reduction->s, "min") == 0);
    if (!extreme && strcmp(reduction->s, "add") != 0 && strcmp(reduction->s, "mul") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "reduction '%.32s' is not supported",
                              reduction->s);
    }
    return dtype == LEAT_DTYPE_BOOL
               ? LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "a reduction of elements of type bool")
               : LEAT_OK;
}

LEAT_INFER_FUNCTION(scatter_elements)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    const struct leat_value *updates = leat_node_input(graph, node, 2);
    uint32_t axis = 0;

    enum leat_status status = check_lookup(graph, node, &axis, mixes_items);
    if (status == LEAT_OK) {
        status = leat_check_input(graph, node, 2, 1u << x->dtype, x->rank, x->rank);
    }
    if (status == LEAT_OK) {
        status = check_reduction(node, x->dtype);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        if (indices->dims[d] >= 0 && updates->dims[d] >= 0 &&
            indices->dims[d] != updates->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "updates differ from indices along axis %u",
                                  d);
        }
    }
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

/* The length of an index tuple, which is the last dim of the indices. */
static enum leat_status
tuple_length(const struct leat_graph *graph, const struct leat_node *node, uint32_t most,
             uint32_t *ret)
{
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    const enum leat_status status =
        leat_check_input(graph, node, 1, LEAT_TYPE_INDEX, 1, LEAT_RANK_MAX);
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t length = indices->dims[indices->rank - 1];
    if (length < 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its rank depends on tensor contents");
    }
    if (length < 1 || length > (int64_t)most) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "index tuples of %lld; 1 to %u are possible",
                              (long long)length, most);
    }
    *ret = (uint32_t)length;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(gather_nd)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    const int64_t batch_dims = leat_node_int(node, "batch_dims", 0);
    uint32_t length = 0;

    if (batch_dims < 0 || batch_dims >= (int64_t)x->rank || batch_dims >= (int64_t)indices->rank) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "batch_dims is %lld", (long long)batch_dims);
    }
    const uint32_t batches = (uint32_t)batch_dims;
    const enum leat_status status = tuple_length(graph, node, x->rank - batches, &length);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_shape *out = &outputs[0];
    *out = (struct leat_shape){.dtype = x->dtype};
    if (indices->rank - 1 + x->rank - batches - length > LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d", LEAT_RANK_MAX);
    }
    for (uint32_t d = 0; d < batches; d++) {
        if (x->dims[d] >= 0 && indices->dims[d] >= 0 && x->dims[d] != indices->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "indices differ from data along axis %u",
                                  d);
        }
        *mixes_items =
            *mixes_items || (x->dims[d] == LEAT_DIM_BATCH) != (indices->dims[d] == LEAT_DIM_BATCH);
    }
    for (uint32_t d = 0; d < indices->rank - 1; d++) {
        out->dims[out->rank++] = indices->dims[d];
    }
    for (uint32_t d = batches; d < x->rank; d++) {
        if (d < batches + length) {
            *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
        } else {
            out->dims[out->rank++] = x->dims[d];
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(scatter_nd)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    const struct leat_value *updates = leat_node_input(graph, node, 2);
    uint32_t length = 0;

    enum leat_status status = tuple_length(graph, node, x->rank, &length);
    if (status == LEAT_OK) {
        const uint32_t rank = indices->rank - 1 + x->rank - length;
        status = leat_check_input(graph, node, 2, 1u << x->dtype, rank, rank);
    }
    if (status == LEAT_OK) {
        status = check_reduction(node, x->dtype);
    }
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = 0; d < updates->rank; d++) {
        const int64_t want =
            d < indices->rank - 1 ? indices->dims[d] : x->dims[d - (indices->rank - 1) + length];
        if (want >= 0 && updates->dims[d] >= 0 && want != updates->dims[d]) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "updates have %lld elements along axis %u",
                                  (long long)updates->dims[d], d);
        }
    }
    /* Any tuple may name any place: items stay apart only where neither has a batch in it. */
    *mixes_items = *mixes_items || leat_has_batch(x, 0, length) ||
                   leat_has_batch(indices, 0, indices->rank) ||
                   leat_has_batch(updates, 0, indices->rank - 1);
    outputs[0] = leat_shape_of(x);
    return LEAT_OK;
}

/* A table of known shape and indices of two axes: the pass saw to it. */
LEAT_INFER_FUNCTION(embedding_bag)
{
    const struct leat_value *table = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);

    if (table->rank != 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its table has rank %u", table->rank);
    }
    const enum leat_status status = leat_check_input(graph, node, 1, LEAT_TYPE_INDEX, 2, 2);
    if (status == LEAT_OK) {
        outputs[0] = (struct leat_shape){
            .dtype = table->dtype, .rank = 2, .dims = {indices->dims[0], table->dims[1]}};
        *mixes_items = *mixes_items || leat_has_batch(table, 0, 2) || indices->dims[1] == LEAT_DIM_BATCH;
    }
    return status;
}
