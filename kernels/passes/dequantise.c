/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that a file has in 8 bits become floats once, not in every run. That takes four times their bytes; what
 * multiplies 8-bit numbers has to take its weights before.
 */
#include <stdlib.h>

#include "kernels/passes/passes.h"

LEAT_PASS_FUNCTION(fold_dequantised)
{
    void **data = calloc((size_t)graph->value_count + 1, sizeof(*data));
    enum leat_status status = LEAT_OK;

    if (data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to fold constants");
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        bool folded = false;
        if (node->op->kind == LEAT_OP_DEQUANTIZE_LINEAR) {
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
