/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
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
    LEAT_ASSERT(node->op != NULL);
    const enum leat_op_kind kind = node->op->kind;
    return (kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL ||
            kind == LEAT_OP_MATMUL_INTEGER_TO_FLOAT) &&
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
            return leat_graph_shortage(graph);
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

const struct leat_node *
leat_pass_producer(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t value,
                   enum leat_op_kind kind)
{
    if (value == LEAT_VALUE_NONE || value >= index->count || index->producer[value] == UINT32_MAX) {
        return NULL;
    }
    const struct leat_node *node = &graph->nodes[index->producer[value]];
    return node->op != NULL && node->op->kind == kind && node->outputs[0] == value &&
                   node->fused_add == LEAT_VALUE_NONE && node->fused_activation == LEAT_ACTIVATION_NONE
               ? node
               : NULL;
}

bool
leat_pass_is_scalar(const struct leat_graph *graph, uint32_t value, double wanted)
{
    double scalar;
    return value != LEAT_VALUE_NONE && graph->values[value].rank <= 1 &&
           leat_value_scalar(&graph->values[value], &scalar) && fabs(scalar - wanted) <= 1e-5 * fabs(wanted);
}

bool
leat_pass_has_scalar(const struct leat_graph *graph, const struct leat_node *node, double wanted, uint32_t *ret_other)
{
    for (uint32_t side = 0; node != NULL && side < 2; side++) {
        if (leat_pass_is_scalar(graph, node->inputs[side], wanted)) {
            *ret_other = node->inputs[1 - side];
            return true;
        }
    }
    return false;
}

/* One reader less; nodes that nobody reads any more go. Producers come first, so this ends. */
static void
release(struct leat_graph *graph, struct leat_pass_index *index, uint32_t value)
{
    if (value == LEAT_VALUE_NONE || value >= index->count || --index->uses[value] > 0 ||
        index->producer[value] == UINT32_MAX) {
        return;
    }
    struct leat_node *node = &graph->nodes[index->producer[value]];
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE && index->uses[node->outputs[o]] > 0) {
            return;
        }
    }
    node->op = NULL;
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            index->producer[node->outputs[o]] = UINT32_MAX;
        }
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        release(graph, index, node->inputs[i]);
    }
    release(graph, index, node->fused_add);
}

enum leat_status
leat_pass_replace(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *last,
                  const struct leat_op *op, const uint32_t *inputs, uint32_t input_count,
                  const struct leat_attribute *attributes, uint32_t attribute_count)
{
    const struct leat_node old = *last;
    uint32_t *new_inputs = leat_graph_alloc(graph, input_count, sizeof(*new_inputs));
    struct leat_attribute *new_attributes =
        leat_graph_alloc(graph, (size_t)attribute_count + 1, sizeof(*new_attributes));

    LEAT_ASSERT(op != NULL && old.output_count == 1);
    if (new_inputs == NULL || new_attributes == NULL) {
        return leat_graph_shortage(graph);
    }
    for (uint32_t i = 0; i < input_count; i++) {
        new_inputs[i] = inputs[i];
        if (inputs[i] < index->count) {
            index->uses[inputs[i]]++; /* before the old ones are released */
        }
    }
    for (uint32_t a = 0; a < attribute_count; a++) {
        new_attributes[a] = attributes[a];
    }
    last->op = op;
    last->inputs = new_inputs;
    last->input_count = input_count;
    last->attributes = new_attributes;
    last->attribute_count = attribute_count;
    for (uint32_t i = 0; i < old.input_count; i++) {
        release(graph, index, old.inputs[i]);
    }
    return LEAT_OK;
}

enum leat_status
leat_pass_each(struct leat_graph *graph, leat_pass_rewrite rewrite, bool *ret_changed)
{
    struct leat_pass_index index;
    bool changed = false;

    enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        if (node->op != NULL && node->fused_add == LEAT_VALUE_NONE &&
            node->fused_activation == LEAT_ACTIVATION_NONE) {
            bool done = false;
            status = rewrite(graph, &index, node, &done);
            changed = changed || done;
        }
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return status;
}
