/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "kernels/passes/passes.h"

enum leat_status
leat_pass_index_create(const struct leat_graph *graph, struct leat_pass_index *index)
{
    const size_t count = (size_t)graph->value_count + 1;

    index->count = graph->value_count;
    index->uses = calloc(count, sizeof(*index->uses));
    index->producer = malloc(count * sizeof(*index->producer));
    if (index->uses == NULL || index->producer == NULL) {
        leat_pass_index_destroy(index);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values", graph->value_count);
    }
    leat_graph_count_uses(graph, index->uses);
    memset(index->producer, 0xff, count * sizeof(*index->producer));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            if (graph->nodes[n].outputs[o] != LEAT_VALUE_NONE) {
                index->producer[graph->nodes[n].outputs[o]] = n;
            }
        }
    }
    return LEAT_OK;
}

void
leat_pass_index_destroy(struct leat_pass_index *index)
{
    free(index->uses);
    free(index->producer);
    *index = (struct leat_pass_index){0};
}

struct leat_node *
leat_pass_sole_producer(struct leat_graph *graph, const struct leat_pass_index *index,
                        uint32_t value)
{
    if (value == LEAT_VALUE_NONE || value >= index->count || index->uses[value] != 1 ||
        index->producer[value] == UINT32_MAX) {
        return NULL;
    }
    struct leat_node *node = &graph->nodes[index->producer[value]];
    LEAT_ASSERT(node->op != NULL && node->outputs[0] == value);
    const enum leat_op_kind kind = node->op->kind;
    return (kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL) &&
                   node->fused_activation == LEAT_ACTIVATION_NONE
               ? node
               : NULL;
}

void
leat_pass_take_output(struct leat_pass_index *index, struct leat_graph *graph,
                      struct leat_node *node, struct leat_node *last)
{
    index->uses[node->outputs[0]] = 0;
    index->producer[node->outputs[0]] = UINT32_MAX;
    node->outputs[0] = last->outputs[0];
    index->producer[node->outputs[0]] = (uint32_t)(node - graph->nodes);
    last->op = NULL;
}

enum leat_status
leat_pass_set_input(struct leat_graph *graph, struct leat_node *node, uint32_t i, uint32_t value)
{
    if (i >= node->input_count) {
        uint32_t *longer = leat_graph_alloc(graph, (size_t)i + 1, sizeof(*longer));
        if (longer == NULL) {
            return LEAT_ERR_NOMEM;
        }
        for (uint32_t k = 0; k <= i; k++) {
            longer[k] = k < node->input_count ? node->inputs[k] : LEAT_VALUE_NONE;
        }
        node->inputs = longer;
        node->input_count = i + 1;
    }
    node->inputs[i] = value;
    return LEAT_OK;
}
