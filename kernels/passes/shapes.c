/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters compute sizes and the targets of Reshape from the Shape of operands. Sizes that are known become constants, and so
 * does a target that is known but for one entry, which is -1 then: so other passes know the shapes that they ask for.
 */
#include "kernels/entries.h"
#include "kernels/passes/passes.h"

/* The target that says the same; false when there is none, or it is constant already. */
static bool
target_of(const struct leat_graph *graph, struct leat_producers producers, const struct leat_node *node,
          struct leat_entries *ret)
{
    uint32_t free_entries = 0;

    if (node->op->kind != LEAT_OP_RESHAPE || graph->values[node->inputs[1]].data != NULL ||
        graph->values[node->inputs[0]].bounded ||
        !leat_entries_of(graph, producers, node->inputs[1], ret)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        if (ret->at[i] == 0 || (ret->at[i] < -1 && ret->at[i] != LEAT_ENTRY_OPEN)) {
            return false; /* a copy, or nothing at all; an error */
        }
        if (ret->at[i] < 0) {
            ret->at[i] = -1;
            free_entries++;
        }
    }
    return free_entries <= 1;
}

LEAT_PASS_FUNCTION(fold_shapes)
{
    struct leat_pass_index index;
    bool changed = false;

    enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_producers producers = {.node = index.producer, .count = index.count};
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        struct leat_entries target;
        bool folded;
        status = leat_entries_fold(graph, producers, node, &folded);
        if (folded) {
            node->op = NULL;
            changed = true;
            continue;
        }
        if (status == LEAT_OK && target_of(graph, producers, node, &target)) {
            const int64_t count = target.count;
            uint32_t constant;
            status = leat_graph_add_constant(graph, graph->values[node->inputs[1]].name, LEAT_DTYPE_I64, 1, &count, target.at,
                                             &constant);
            if (status == LEAT_OK) {
                node->inputs[1] = constant;
                changed = true;
            }
        }
        if (status == LEAT_OK && changed) {
            status = leat_graph_infer_node(graph, node); /* for the targets that come */
        }
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    if (status == LEAT_OK && changed) {
        status = leat_pass_remove_dead_code(graph, ret_changed); /* what computed targets reads values that others would fuse */
    }
    *ret_changed = changed;
    return status;
}
