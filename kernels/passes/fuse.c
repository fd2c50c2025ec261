/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a Conv or Gemm moves into its fused_* fields, where a backend does it in registers. */
#include "kernels/passes/passes.h"

static bool
can_fuse(const struct leat_graph *graph, const struct leat_node *node)
{
    return node != NULL && (node->op->kind == LEAT_OP_CONV || node->op->kind == LEAT_OP_GEMM) &&
           leat_node_output(graph, node, 0)->dtype == LEAT_DTYPE_F32;
}

static bool
same_known_dims(const struct leat_value *a, const struct leat_value *b)
{
    bool same = a->rank == b->rank && a->dtype == b->dtype;
    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d] && a->dims[d] != LEAT_DIM_UNKNOWN;
    }
    return same;
}

/* The side of an Add that comes from a Conv or Gemm, the later one if both do; 2 when none fits. */
static uint32_t
choose_side(struct leat_graph *graph, const struct leat_pass_index *index,
            const struct leat_node *add)
{
    const struct leat_value *sum = leat_node_output(graph, add, 0);
    uint32_t best = 2;

    for (uint32_t side = 0; side < 2; side++) {
        const uint32_t v = add->inputs[side];
        const struct leat_node *node = leat_pass_sole_producer(graph, index, v);
        if (can_fuse(graph, node) && node->fused_add == LEAT_VALUE_NONE &&
            same_known_dims(&graph->values[add->inputs[0]], sum) &&
            same_known_dims(&graph->values[add->inputs[1]], sum) &&
            (best == 2 || index->producer[v] > index->producer[add->inputs[best]])) {
            best = side;
        }
    }
    return best;
}

LEAT_PASS_FUNCTION(fuse_add)
{
    struct leat_pass_index index;
    bool changed = false;

    const enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *add = &graph->nodes[n];
        if (add->op == NULL || add->op->kind != LEAT_OP_ADD) {
            continue;
        }
        const uint32_t side = choose_side(graph, &index, add);
        if (side == 2) {
            continue;
        }
        /* The node moves to the Add's place: the other operand may be computed after its own. */
        struct leat_node *old = &graph->nodes[index.producer[add->inputs[side]]];
        struct leat_node moved = *old;
        moved.fused_add = add->inputs[1 - side];
        moved.outputs[0] = add->outputs[0];
        old->op = NULL;
        *add = moved;
        changed = true;
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return LEAT_OK;
}

LEAT_PASS_FUNCTION(fuse_activation)
{
    struct leat_pass_index index;
    bool changed = false;

    const enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *activation = &graph->nodes[n];
        float min = 0, max = 0;
        if (activation->op == NULL || (activation->op->kind != LEAT_OP_RELU &&
                                       (activation->op->kind != LEAT_OP_CLIP ||
                                        !leat_clip_bounds(graph, activation, &min, &max)))) {
            continue;
        }
        struct leat_node *node = leat_pass_sole_producer(graph, &index, activation->inputs[0]);
        if (!can_fuse(graph, node)) {
            continue;
        }
        node->fused_activation =
            activation->op->kind == LEAT_OP_RELU ? LEAT_ACTIVATION_RELU : LEAT_ACTIVATION_CLIP;
        node->clip_min = min;
        node->clip_max = max;
        leat_pass_take_output(&index, graph, node, activation);
        changed = true;
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return LEAT_OK;
}
