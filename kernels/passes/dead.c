/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes whose results nobody reads go, and with them the values and constants that only they needed. */
#include <stdlib.h>

#include "kernels/passes/passes.h"

static void
mark(bool *keep, const uint32_t *indices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (indices[i] != LEAT_VALUE_NONE) {
            keep[indices[i]] = true;
        }
    }
}

/* Backwards from the outputs: one sweep is enough, because producers come first. */
static bool
drop_nodes(struct leat_graph *graph, bool *keep)
{
    bool changed = false;

    mark(keep, graph->inputs, graph->input_count);
    mark(keep, graph->outputs, graph->output_count);
    for (uint32_t n = graph->node_count; n-- > 0;) {
        struct leat_node *node = &graph->nodes[n];
        bool needed = false;
        for (uint32_t o = 0; o < node->output_count; o++) {
            needed = needed || (node->outputs[o] != LEAT_VALUE_NONE && keep[node->outputs[o]]);
        }
        if (!needed) {
            node->op = NULL;
            changed = true;
            continue;
        }
        for (uint32_t o = 1; o < node->output_count; o++) {
            if (node->outputs[o] != LEAT_VALUE_NONE && !keep[node->outputs[o]]) {
                node->outputs[o] = LEAT_VALUE_NONE; /* an optional output that nobody reads */
            }
        }
        mark(keep, node->inputs, node->input_count);
        mark(keep, node->outputs, 1);
        mark(keep, &node->fused_add, 1);
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            if (node->attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
                keep[node->attributes[a].value] = true;
            }
        }
    }
    leat_graph_sweep_nodes(graph);
    return changed;
}

LEAT_PASS_FUNCTION(remove_dead_code)
{
    const uint32_t before = graph->value_count;
    bool *keep = calloc((size_t)before + 1, sizeof(*keep));
    uint32_t *map = calloc((size_t)before + 1, sizeof(*map));
    enum leat_status status = LEAT_OK;

    if (keep == NULL || map == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to look for dead code");
    } else {
        const bool changed = drop_nodes(graph, keep);
        leat_graph_keep_values(graph, keep, map);
        *ret_changed = changed || graph->value_count < before;
    }
    free(keep);
    free(map);
    return status;
}
