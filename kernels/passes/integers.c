/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cast of a MatMulInteger to floats, times the product of two scales, plus a bias: what dynamic quantisation makes of a
 * product with constant weights becomes one node, MatMulIntegerToFloat. The numbers stay what they are, bit by bit.
 */
#include <string.h>

#include "kernels/passes/passes.h"

enum { A, B, A_SCALE, B_SCALE, A_ZERO, B_ZERO, BIAS, INPUTS };

/* One element, or a vector of `count`. */
static bool
is_vector(const struct leat_graph *graph, uint32_t value, int64_t count)
{
    const struct leat_value *v = &graph->values[value];
    const bool one = v->rank == 0 || (v->rank == 1 && v->dims[0] == 1);
    return v->dtype == LEAT_DTYPE_F32 && (one || (v->rank == 1 && count > 0 && v->dims[0] == count));
}

/* The product that `value` is cast from, where nobody else reads what lies between. */
static const struct leat_node *
product_of(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t value)
{
    const struct leat_node *cast = leat_pass_producer(graph, index, value, LEAT_OP_CAST);
    const uint32_t sums = cast != NULL ? cast->inputs[0] : LEAT_VALUE_NONE;
    const struct leat_node *product = leat_pass_producer(graph, index, sums, LEAT_OP_MATMUL_INTEGER);

    return product != NULL && index->uses[value] == 1 && index->uses[sums] == 1 ? product : NULL;
}

static int64_t
columns_of(const struct leat_graph *graph, const struct leat_node *product)
{
    const struct leat_value *b = leat_node_input(graph, product, B);
    return b->rank > 1 ? b->dims[b->rank - 1] : 1;
}

/* product times scale, which is itself the product of one number and one or `columns`; *ret_done where that is so. */
static enum leat_status
fuse_scale(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *mul, const struct leat_node *product,
           uint32_t scale, bool *ret_done)
{
    const struct leat_node *scales = leat_pass_producer(graph, index, scale, LEAT_OP_MUL);
    const uint32_t rank = leat_node_output(graph, product, 0)->rank;

    if (scales == NULL || rank < 1 || leat_node_output(graph, mul, 0)->rank != rank) {
        return LEAT_OK;
    }
    for (uint32_t side = 0; side < 2; side++) {
        const uint32_t one = scales->inputs[side], others = scales->inputs[1 - side];
        if (is_vector(graph, one, 1) && is_vector(graph, others, columns_of(graph, product))) {
            const uint32_t inputs[INPUTS] = {product->inputs[0],
                                             product->inputs[1],
                                             one,
                                             others,
                                             product->input_count > 2 ? product->inputs[2] : LEAT_VALUE_NONE,
                                             product->input_count > 3 ? product->inputs[3] : LEAT_VALUE_NONE};
            mul->name = product->name;
            *ret_done = true;
            return leat_pass_replace(graph, index, mul, leat_op_fused(LEAT_OP_MATMUL_INTEGER_TO_FLOAT), inputs, BIAS, NULL, 0);
        }
    }
    return LEAT_OK;
}

/* Its result, which nobody else reads, plus a constant for each column. */
static enum leat_status
fuse_bias(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *add, const struct leat_node *product,
          uint32_t bias, bool *ret_done)
{
    const struct leat_value *vector = &graph->values[bias];
    uint32_t inputs[INPUTS];

    if (product->input_count > BIAS || vector->data == NULL || vector->rank != 1 ||
        vector->dims[0] != columns_of(graph, product) || index->uses[product->outputs[0]] != 1 ||
        leat_node_output(graph, add, 0)->rank != leat_node_output(graph, product, 0)->rank) {
        return LEAT_OK;
    }
    memcpy(inputs, product->inputs, BIAS * sizeof(*inputs));
    inputs[BIAS] = bias;
    add->name = product->name;
    *ret_done = true;
    return leat_pass_replace(graph, index, add, product->op, inputs, INPUTS, NULL, 0);
}

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const enum leat_op_kind kind = node->op->kind;
    enum leat_status status = LEAT_OK;

    if ((kind != LEAT_OP_MUL && kind != LEAT_OP_ADD) || leat_node_output(graph, node, 0)->dtype != LEAT_DTYPE_F32) {
        return LEAT_OK;
    }
    for (uint32_t side = 0; side < 2 && status == LEAT_OK && !*ret_done; side++) {
        const uint32_t value = node->inputs[side], other = node->inputs[1 - side];
        const struct leat_node *product = kind == LEAT_OP_MUL
                                              ? product_of(graph, index, value)
                                              : leat_pass_producer(graph, index, value, LEAT_OP_MATMUL_INTEGER_TO_FLOAT);
        if (product != NULL) {
            status = kind == LEAT_OP_MUL ? fuse_scale(graph, index, node, product, other, ret_done)
                                         : fuse_bias(graph, index, node, product, other, ret_done);
        }
    }
    return status;
}

LEAT_PASS_FUNCTION(fuse_integers)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
