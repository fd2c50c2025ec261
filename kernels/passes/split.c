/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way back from passes/quantised.c, for a backend that does not multiply 8-bit numbers, or not these:
 * DequantizeLinear, the operator of floats, and QuantizeLinear. Weights become floats here and now.
 */
#include <stdlib.h>

#include "kernels/passes/passes.h"

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, SUM_BIAS }; /* inputs */

/* A value like that of index `like`, with the elements of `shape`. */
static enum leat_status
add_floats(struct leat_graph *graph, const char *name, uint32_t shape, uint32_t *ret)
{
    const struct leat_value like = graph->values[shape];
    return leat_graph_add_value(graph, name, LEAT_DTYPE_F32, like.rank, like.dims, ret);
}

/* Scales of such a row are along `axis`. */
static enum leat_status
put_dequantise(struct leat_graph *graph, const struct leat_node *node, uint32_t q, uint32_t scale,
               uint32_t zero, int64_t axis, uint32_t *ret)
{
    const struct leat_attribute along = {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = axis};
    const struct leat_op *op =
        leat_op_find("DequantizeLinear", graph->opset < 13 ? 13 : graph->opset);
    const uint32_t inputs[3] = {q, scale, zero};

    const enum leat_status status = add_floats(graph, graph->values[q].name, q, ret);
    return status == LEAT_OK
               ? leat_graph_add_node(graph, op, node->name, inputs, zero != LEAT_VALUE_NONE ? 3 : 2,
                                     ret, 1, &along, 1)
               : status;
}

/* The bias in floats; scales are constants. */
static enum leat_status
add_bias(struct leat_graph *graph, const struct leat_node *node, uint32_t *ret)
{
    const struct leat_value bias = graph->values[node->inputs[SUM_BIAS]];
    const struct leat_value steps = graph->values[node->inputs[W_SCALE]];
    const double source = (double)*(const float *)graph->values[node->inputs[X_SCALE]].data;
    const size_t count = leat_value_elements(&bias);
    float *floats = malloc((count + 1) * sizeof(*floats));

    if (floats == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a bias");
    }
    for (size_t c = 0; c < count; c++) {
        const size_t place = leat_value_elements(&steps) > 1 ? c : 0;
        floats[c] = (float)((double)((const int32_t *)bias.data)[c] * source *
                            (double)((const float *)steps.data)[place]);
    }
    const enum leat_status status = leat_graph_add_constant(graph, bias.name, LEAT_DTYPE_F32,
                                                            bias.rank, bias.dims, floats, ret);
    free(floats);
    return status;
}

static bool
has_constants(const struct leat_graph *graph, const struct leat_node *node)
{
    static const uint32_t inputs[] = {X_SCALE, W_SCALE, SUM_BIAS};
    bool constants = true;

    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        const struct leat_value *value = leat_node_input(graph, node, inputs[i]);
        constants =
            constants && (value == NULL || (value->data != NULL && leat_value_in_place(value)));
    }
    return constants;
}

static enum leat_status
split(struct leat_graph *graph, const struct leat_node *node)
{
    const bool conv = node->op->kind == LEAT_OP_QLINEAR_CONV,
               transposed = leat_node_int(node, "transB", 0) != 0;
    const bool biased = leat_node_input(graph, node, SUM_BIAS) != NULL;
    const uint32_t x_rank = graph->values[node->inputs[X]].rank,
                   w_rank = graph->values[node->inputs[W]].rank;
    const int64_t axis = conv || transposed || w_rank == 0 ? 0 : w_rank - 1,
                  row_axis = x_rank > 1 ? x_rank - 2 : 0;
    const struct leat_op *op = conv         ? leat_op_find("Conv", graph->opset)
                               : transposed ? leat_op_find("Gemm", graph->opset)
                               : biased     ? leat_op_fused(LEAT_OP_MATMUL)
                                            : leat_op_find("MatMul", graph->opset);
    const uint32_t *in = node->inputs;
    uint32_t inputs[3], y;

    enum leat_status status =
        put_dequantise(graph, node, in[X], in[X_SCALE], in[X_ZERO], row_axis, &inputs[0]);
    if (status == LEAT_OK) {
        status = put_dequantise(graph, node, in[W], in[W_SCALE], in[W_ZERO], axis, &inputs[1]);
    }
    if (status == LEAT_OK && biased) {
        status = add_bias(graph, node, &inputs[2]);
    }
    if (status == LEAT_OK) {
        status = add_floats(graph, graph->values[node->outputs[0]].name, node->outputs[0], &y);
    }
    if (status == LEAT_OK) {
        status =
            leat_graph_add_node(graph, op, node->name, inputs, biased ? 3 : 2, &y, 1,
                                node->attributes, conv || transposed ? node->attribute_count : 0);
    }
    if (status == LEAT_OK) {
        const uint32_t numbers[3] = {y, in[Y_SCALE], in[Y_ZERO]};
        status = leat_graph_add_node(graph, leat_op_find("QuantizeLinear", graph->opset),
                                     node->name, numbers, 3, node->outputs, 1, NULL, 0);
    }
    return status;
}

enum leat_status
leat_graph_split_quantised(struct leat_graph *graph, bool (*stays)(const struct leat_graph *graph,
                                                                   const struct leat_node *node))
{
    bool any = false, changed = false;
    uint32_t count;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const bool product =
            node->op->kind == LEAT_OP_QLINEAR_CONV || node->op->kind == LEAT_OP_QLINEAR_MATMUL;
        any = any || (product && !stays(graph, node));
    }
    if (!any) {
        return LEAT_OK;
    }
    const struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    enum leat_status status = LEAT_OK;
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        const struct leat_node *node = &nodes[n];
        const bool product =
            node->op->kind == LEAT_OP_QLINEAR_CONV || node->op->kind == LEAT_OP_QLINEAR_MATMUL;
        status = product && !stays(graph, node) && has_constants(graph, node)
                     ? split(graph, node)
                     : leat_graph_put_node(graph, node);
    }
    if (status == LEAT_OK) {
        status = leat_pass_fold_dequantised(graph, &changed);
    }
    if (status == LEAT_OK) {
        status = leat_pass_remove_dead_code(graph, &changed);
    }
    return status == LEAT_OK ? leat_graph_infer(graph) : status;
}
