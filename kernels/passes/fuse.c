/* SPDX-License-Identifier: Apache-2.0 */
/* What follows a Conv, Gemm or MatMul moves into its fused_* fields, where a backend does it in registers. */
#include "kernels/passes/passes.h"

static bool
can_fuse(const struct leat_graph *graph, const struct leat_node *node)
{
    return node != NULL && leat_node_output(graph, node, 0)->dtype == LEAT_DTYPE_F32;
}

/* As the fields of the same names. */
struct activation {
    enum leat_activation kind;
    float clip_min, clip_max, slope;
};

/* False when the node is no activation, or its bounds are computed. */
static bool
activation_of(const struct leat_graph *graph, const struct leat_node *node, struct activation *ret)
{
    *ret = (struct activation){.kind = LEAT_ACTIVATION_NONE};
    switch (node->op->kind) {
    case LEAT_OP_RELU:
        ret->kind = LEAT_ACTIVATION_RELU;
        return true;
    case LEAT_OP_CLIP:
        ret->kind = LEAT_ACTIVATION_CLIP;
        /* Where they cross, all is the upper one: backends have no such activation. */
        return leat_clip_bounds(graph, node, &ret->clip_min, &ret->clip_max) && ret->clip_min <= ret->clip_max;
    case LEAT_OP_SIGMOID:
        ret->kind = LEAT_ACTIVATION_SIGMOID;
        return true;
    case LEAT_OP_TANH:
        ret->kind = LEAT_ACTIVATION_TANH;
        return true;
    case LEAT_OP_SWISH:
        ret->kind = LEAT_ACTIVATION_SWISH;
        return true;
    case LEAT_OP_HARD_SWISH:
        ret->kind = LEAT_ACTIVATION_HARD_SWISH;
        return true;
    case LEAT_OP_GELU:
        ret->kind = leat_node_int(node, "tanh", 0) != 0 ? LEAT_ACTIVATION_GELU_TANH : LEAT_ACTIVATION_GELU;
        return true;
    case LEAT_OP_LEAKY_RELU:
        ret->kind = LEAT_ACTIVATION_LEAKY_RELU;
        ret->slope = leat_node_float(node, "alpha", 0.01f);
        return ret->slope != 0; /* or backends take it for Relu, which NaN and infinities tell apart */
    default:
        return false;
    }
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
        struct activation fused;
        if (activation->op == NULL || !activation_of(graph, activation, &fused)) {
            continue;
        }
        struct leat_node *node = leat_pass_sole_producer(graph, &index, activation->inputs[0]);
        if (!can_fuse(graph, node) || node->op->kind == LEAT_OP_MATMUL_INTEGER_TO_FLOAT) { /* nobody would do it in registers */
            continue;
        }
        node->fused_activation = fused.kind;
        node->clip_min = fused.clip_min;
        node->clip_max = fused.clip_max;
        node->slope = fused.slope;
        leat_pass_take_output(&index, graph, node, activation);
        changed = true;
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return LEAT_OK;
}
