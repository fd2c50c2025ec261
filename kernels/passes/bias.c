/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conv + constant per channel, Gemm or MatMul + constant per column: into the bias input. A MatMul of matrices becomes
 * a Gemm; one of more axes with a constant matrix gets a third input (leat_op_fused()).
 */
#include <string.h>

#include "kernels/passes/passes.h"

/*
 * True when `value` is an f32 constant that, broadcast to a tensor of `rank` axes, varies along `axis`
 * (of `size` elements) alone or not at all.
 */
static bool
varies_along(const struct leat_value *value, uint32_t rank, uint32_t axis, int64_t size)
{
    if (value == NULL || value->data == NULL || value->dtype != LEAT_DTYPE_F32 ||
        value->rank > rank) {
        return false;
    }
    for (uint32_t d = 0; d < value->rank; d++) {
        const bool along = rank - value->rank + d == axis;
        if (value->dims[d] != 1 && !(along && value->dims[d] == size)) {
            return false;
        }
    }
    return true;
}

/* size elements of a + b, each with one or `size` elements; b may be NULL. */
static enum leat_status
sum_vectors(struct leat_graph *graph, const char *name, uint32_t a, uint32_t b, int64_t size,
            uint32_t *ret)
{
    void *data = NULL;
    enum leat_status status = leat_graph_add_value(graph, name, LEAT_DTYPE_F32, 1, &size, ret);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, *ret, &data);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_value *values[2] = {&graph->values[a],
                                          b != LEAT_VALUE_NONE ? &graph->values[b] : NULL};
    float *sum = data;
    for (int k = 0; k < 2; k++) {
        const bool single = values[k] != NULL && leat_value_elements(values[k]) == 1;
        for (int64_t i = 0; values[k] != NULL && i < size; i++) {
            sum[i] += ((const float *)values[k]->data)[single ? 0 : i];
        }
    }
    return LEAT_OK;
}

/* Which axis of the result the bias runs along, and how long it is; false when the node takes none. */
static bool
bias_axis(const struct leat_graph *graph, const struct leat_node *node, uint32_t *ret_axis,
          int64_t *ret_size)
{
    const struct leat_value *y = leat_node_output(graph, node, 0);
    const struct leat_value *b = leat_node_input(graph, node, 1);
    const uint32_t old = node->input_count > 2 ? node->inputs[2] : LEAT_VALUE_NONE;
    const struct leat_value *bias = old != LEAT_VALUE_NONE ? &graph->values[old] : NULL;

    if (node->fused_add != LEAT_VALUE_NONE || y->dtype != LEAT_DTYPE_F32) {
        return false;
    }
    switch (node->op->kind) {
    case LEAT_OP_CONV:
        *ret_axis = 1;
        *ret_size = b->dims[0];
        return bias == NULL || bias->data != NULL;
    case LEAT_OP_MATMUL:
        *ret_axis = y->rank - 1;
        *ret_size = b->dims[b->rank - 1];
        return leat_node_input(graph, node, 0)->rank >= 2 && b->rank == 2 && *ret_size >= 1 &&
               (b->data != NULL || y->rank == 2);
    case LEAT_OP_GEMM:
        *ret_axis = 1;
        *ret_size = y->dims[1];
        return *ret_size >= 1 && leat_node_float(node, "beta", 1.0f) == 1.0f &&
               (bias == NULL || varies_along(bias, 2, 1, *ret_size));
    default:
        return false;
    }
}

/* Add of `node`'s result and constant `addend`: true in *ret_done when it went into the bias. */
static enum leat_status
fold_into(struct leat_graph *graph, struct leat_node *node, const struct leat_node *add,
          uint32_t addend, bool *ret_done)
{
    const struct leat_value *result = leat_node_output(graph, node, 0);
    const uint32_t rank = result->rank;
    uint32_t axis, bias;
    int64_t size;

    *ret_done = false;
    if (!bias_axis(graph, node, &axis, &size) ||
        !varies_along(&graph->values[addend], rank, axis, size) ||
        graph->values[add->outputs[0]].rank != rank ||
        !leat_graph_may_fold(graph, (uint64_t)size * 4)) {
        return LEAT_OK;
    }
    const uint32_t old = node->input_count > 2 ? node->inputs[2] : LEAT_VALUE_NONE;
    enum leat_status status =
        sum_vectors(graph, graph->values[addend].name, addend, old, size, &bias);
    if (status == LEAT_OK) {
        status = leat_pass_set_input(graph, node, 2, bias);
    }
    if (status == LEAT_OK && node->op->kind == LEAT_OP_MATMUL) {
        node->op = rank == 2 ? leat_op_find("Gemm", graph->opset) : leat_op_fused(LEAT_OP_MATMUL);
        LEAT_ASSERT(node->op != NULL);
    }
    *ret_done = status == LEAT_OK;
    return status;
}

LEAT_PASS_FUNCTION(fold_bias)
{
    struct leat_pass_index index;
    bool changed = false;

    enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *add = &graph->nodes[n];
        if (add->op == NULL || add->op->kind != LEAT_OP_ADD) {
            continue;
        }
        for (uint32_t side = 0; side < 2 && status == LEAT_OK; side++) {
            struct leat_node *node = leat_pass_sole_producer(graph, &index, add->inputs[side]);
            bool done = false;
            if (node != NULL) {
                status = fold_into(graph, node, add, add->inputs[1 - side], &done);
            }
            if (done) {
                leat_pass_take_output(&index, graph, node, add);
                changed = true;
                break;
            }
        }
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return status;
}
