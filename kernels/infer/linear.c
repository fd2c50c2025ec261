/* SPDX-License-Identifier: Apache-2.0 */
/* Gemm, MatMul and Attention. */
#include <math.h>

#include "kernels/infer/infer.h"

#define WHOLE_MAX 0x1p62f

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
    const float alpha = leat_node_float(node, "alpha", 1), beta = leat_node_float(node, "beta", 1);
    if (a->dtype != LEAT_DTYPE_F32 && a->dtype != LEAT_DTYPE_F64 &&
        !(fabsf(alpha) <= WHOLE_MAX && alpha == nearbyintf(alpha) && fabsf(beta) <= WHOLE_MAX && beta == nearbyintf(beta))) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "of integers, alpha and beta have to be whole numbers");
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

/* Both are known and differ. Whoever has the batch against a number mixes items. */
static bool
differ(int64_t a, int64_t b, bool *mixes_items)
{
    *mixes_items = *mixes_items || ((a == LEAT_DIM_BATCH) != (b == LEAT_DIM_BATCH) && (a >= 0 || b >= 0));
    return a >= 0 && b >= 0 && a != b;
}

LEAT_INFER_FUNCTION(attention)
{
    const int64_t heads = leat_node_int(node, "heads", 1);
    const struct leat_value *x[4];

    for (uint32_t i = 0; i < 4; i++) {
        x[i] = leat_node_input(graph, node, i);
        if (x[i] != NULL && (x[i]->dtype != LEAT_DTYPE_F32 || (i < 3 ? x[i]->rank != 3 : x[i]->rank < 1 || x[i]->rank > 4))) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "it needs three f32 tensors of rank 3, and a mask of rank 1 to 4");
        }
    }
    const int64_t *q = x[0]->dims, *k = x[1]->dims, *v = x[2]->dims;
    bool wrong = differ(q[0], k[0], mixes_items) || differ(q[0], v[0], mixes_items) || differ(k[1], v[1], mixes_items) ||
                 differ(q[2], k[2], mixes_items) || heads < 1;
    for (uint32_t i = 0; i < 3 && !wrong; i++) {
        wrong = x[i]->dims[2] == 0 || (x[i]->dims[2] > 0 && x[i]->dims[2] % heads != 0);
        *mixes_items = *mixes_items || leat_has_batch(x[i], 1, 3);
    }
    const int64_t scores[4] = {q[0], heads, q[1], k[1]};
    for (uint32_t d = 0; x[3] != NULL && d < x[3]->rank && !wrong; d++) {
        const uint32_t axis = 4 - x[3]->rank + d;
        wrong = (axis == 3 || x[3]->dims[d] != 1) && differ(x[3]->dims[d], scores[axis], mixes_items);
    }
    if (wrong) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its operands do not fit together");
    }
    outputs[0] = (struct leat_shape){.dtype = LEAT_DTYPE_F32, .rank = 3, .dims = {q[0], q[1], v[2]}};
    return LEAT_OK;
}
