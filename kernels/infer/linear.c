/* SPDX-License-Identifier: Apache-2.0 */
/* Gemm and MatMul. */
#include "kernels/infer/infer.h"

/* The inner dimensions of a product: equal, or one of them not known yet. */
static enum leat_status
check_inner(const struct leat_node *node, int64_t a, int64_t b, bool *mixes_items)
{
    if (a >= 0 && b >= 0 && a != b) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "inner dimensions %lld and %lld differ",
                              (long long)a, (long long)b);
    }
    *mixes_items = *mixes_items || a == LEAT_DIM_BATCH || b == LEAT_DIM_BATCH;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(gemm)
{
    const struct leat_value *a = leat_node_input(graph, node, 0);
    const struct leat_value *b = leat_node_input(graph, node, 1);
    const struct leat_value *c = leat_node_input(graph, node, 2);
    const bool trans_a = leat_node_int(node, "transA", 0) != 0;
    const bool trans_b = leat_node_int(node, "transB", 0) != 0;

    if (a->rank != 2 || b->rank != 2 || b->dtype != a->dtype ||
        (c != NULL && (c->rank > 2 || c->dtype != a->dtype))) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "it needs two matrices and at most a matrix, all %s",
                              leat_dtype_text(a->dtype));
    }
    struct leat_shape *out = &outputs[0];
    *out = (struct leat_shape){
        .dtype = a->dtype, .rank = 2, .dims = {a->dims[trans_a ? 1 : 0], b->dims[trans_b ? 0 : 1]}};
    for (uint32_t d = 0; c != NULL && d < c->rank; d++) {
        const uint32_t axis = 2 - c->rank + d;
        int64_t merged;
        if (!leat_dim_broadcast(out->dims[axis], c->dims[d], &merged, mixes_items) ||
            (merged >= 0 && out->dims[axis] >= 0 && merged != out->dims[axis])) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "C cannot be broadcast to the product");
        }
    }
    return check_inner(node, a->dims[trans_a ? 0 : 1], b->dims[trans_b ? 1 : 0], mixes_items);
}

LEAT_INFER_FUNCTION(matmul)
{
    const struct leat_value *a = leat_node_input(graph, node, 0);
    const struct leat_value *b = leat_node_input(graph, node, 1);

    if (a->dtype != b->dtype) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "it needs two tensors of one type and rank >= 1");
    }
    return leat_infer_product(node, a, b, outputs, mixes_items);
}

enum leat_status
leat_infer_product(const struct leat_node *node, const struct leat_value *a,
                   const struct leat_value *b, struct leat_shape *out, bool *mixes_items)
{
    if (a->rank < 1 || b->rank < 1) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "it needs two tensors of one type and rank >= 1");
    }
    /* A vector counts as a row (left) or column (right) whose dimension of 1 is dropped afterwards. */
    const uint32_t batch_a = a->rank > 2 ? a->rank - 2 : 0, batch_b = b->rank > 2 ? b->rank - 2 : 0;
    const uint32_t batches = batch_a > batch_b ? batch_a : batch_b;
    *out = (struct leat_shape){.dtype = a->dtype};
    for (uint32_t d = 0; d < batches; d++) {
        const int64_t dim_a = d < batches - batch_a ? 1 : a->dims[d - (batches - batch_a)];
        const int64_t dim_b = d < batches - batch_b ? 1 : b->dims[d - (batches - batch_b)];
        if (!leat_dim_broadcast(dim_a, dim_b, &out->dims[out->rank++], mixes_items)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "batch dimensions %lld and %lld do not fit",
                                  (long long)dim_a, (long long)dim_b);
        }
    }
    if (a->rank > 1) {
        out->dims[out->rank++] = a->dims[a->rank - 2];
    }
    if (b->rank > 1) {
        out->dims[out->rank++] = b->dims[b->rank - 1];
    }
    return check_inner(node, a->dims[a->rank - 1], b->dims[b->rank > 1 ? b->rank - 2 : 0],
                       mixes_items);
}
