/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table that are looked up and added up, as recommendation models do, become one node. */
#include "kernels/passes/passes.h"

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const struct leat_node *gather = leat_pass_producer(graph, index, node->inputs[0], LEAT_OP_GATHER);

    if (node->op->kind != LEAT_OP_REDUCE_SUM || gather == NULL || leat_node_int(node, "keepdims", 1) != 0) {
        return LEAT_OK;
    }
    const struct leat_value *table = leat_node_input(graph, gather, 0), *ids = leat_node_input(graph, gather, 1);
    const struct leat_value *axes = leat_node_input(graph, node, 1);
    if (table->dtype != LEAT_DTYPE_F32 || table->rank != 2 || table->data == NULL || ids->rank != 2 ||
        ids->dims[1] == LEAT_DIM_BATCH || leat_node_axis(gather, 0, 2) != 0 || (axes != NULL && axes->data == NULL) ||
        leat_node_int(node, "noop_with_empty_axes", 0) != 0 || leat_reduce_axes(graph, node) != 1u << 1) {
        return LEAT_OK;
    }
    *ret_done = true;
    return leat_pass_replace(graph, index, node, leat_op_fused(LEAT_OP_EMBEDDING_BAG), gather->inputs, 2, NULL, 0);
}

LEAT_PASS_FUNCTION(fuse_embedding)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
