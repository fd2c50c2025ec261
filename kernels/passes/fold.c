/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes whose inputs are all constant are computed now, with the reference functions. So are products, such as those of
 * weights W + A B, up to a bound on work: what is beyond it is left to backends, which are faster at it.
 */
#include <stdlib.h>

#include "kernels/cost.h"
#include "kernels/passes/passes.h"

#define PRODUCT_FLOP_MAX (UINT64_C(1) << 31) /* of a graph: a second or two */

/* A Conv, Gemm or MatMul of constants, for which there is still time; what it takes is off *left_flop. */
static bool
may_multiply(const struct leat_graph *graph, const struct leat_node *node, uint64_t *left_flop)
{
    const enum leat_op_kind kind = node->op->kind;
    bool constant = kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL;

    for (uint32_t i = 0; i < node->input_count && constant; i++) {
        constant = node->inputs[i] == LEAT_VALUE_NONE || graph->values[node->inputs[i]].data != NULL;
    }
    if (!constant || !leat_value_is_known(&graph->values[node->outputs[0]])) {
        return false;
    }
    const uint64_t flop = leat_node_cost(graph, node).product_flop;
    if (flop > *left_flop) {
        return false;
    }
    *left_flop -= flop;
    return true;
}

/* And what is behind products that were computed. */
static enum leat_status
fold_products(struct leat_graph *graph, bool *ret_changed)
{
    void **data = calloc((size_t)graph->value_count + 1, sizeof(*data));
    uint64_t left_flop = PRODUCT_FLOP_MAX;
    enum leat_status status = LEAT_OK;

    if (data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to fold constants");
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        bool folded = false;
        if ((*ret_changed && (node->op->flags & LEAT_OP_FOLDABLE) != 0) || may_multiply(graph, node, &left_flop)) {
            status = leat_graph_fold_node(graph, node, data, &folded);
        }
        if (folded) {
            node->op = NULL;
            *ret_changed = true;
        }
    }
    free(data);
    leat_graph_sweep_nodes(graph);
    return status;
}

LEAT_PASS_FUNCTION(fold_constants)
{
    bool folded, products = false, unrolled = false;

    enum leat_status status = leat_graph_fold(graph, &folded);
    if (status == LEAT_OK) {
        status = fold_products(graph, &products);
    }
    if (status == LEAT_OK && products) { /* which may be what a loop waits for */
        status = leat_graph_fold(graph, &unrolled);
    }
    *ret_changed = folded || products;
    return status;
}
