/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ba, Kiros, Hinton, "Layer Normalization", as exporters before opset 17 write it: with d = x - mean(x),
 * d / sqrt(mean(d^2) + epsilon) * scale + shift, means over the last axis. Becomes LayerNormalization.
 */
#include "kernels/passes/passes.h"

/* A mean over the last axis, which stays with one element: of what? */
static bool
is_mean(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t mean, uint32_t *ret_of)
{
    const struct leat_node *node = leat_pass_producer(graph, index, mean, LEAT_OP_REDUCE_MEAN);

    if (node == NULL || leat_node_int(node, "keepdims", 1) == 0) {
        return false;
    }
    *ret_of = node->inputs[0];
    const uint32_t rank = graph->values[*ret_of].rank;
    return rank >= 1 && leat_reduce_axes(graph, node) == 1u << (rank - 1);
}

static bool
is_square(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t square, uint32_t *ret_of)
{
    const struct leat_node *power = leat_pass_producer(graph, index, square, LEAT_OP_POW);
    const struct leat_node *product = leat_pass_producer(graph, index, square, LEAT_OP_MUL);

    if (power != NULL && leat_pass_is_scalar(graph, power->inputs[1], 2)) {
        *ret_of = power->inputs[0];
        return true;
    }
    if (product != NULL && product->inputs[0] == product->inputs[1]) {
        *ret_of = product->inputs[0];
        return true;
    }
    return false;
}

/* d = x - mean(x): its x. Some write the difference twice. */
static bool
is_centred(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t d, uint32_t *ret_x)
{
    const struct leat_node *difference = leat_pass_producer(graph, index, d, LEAT_OP_SUB);
    uint32_t of;

    if (difference == NULL || !is_mean(graph, index, difference->inputs[1], &of) || of != difference->inputs[0]) {
        return false;
    }
    *ret_x = of;
    return true;
}

/* deviation = Sqrt(mean(d^2) + epsilon): x and epsilon */
static bool
is_deviation(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t deviation, uint32_t *ret_x,
             double *ret_epsilon)
{
    const struct leat_node *root = leat_pass_producer(graph, index, deviation, LEAT_OP_SQRT);
    const struct leat_node *add =
        root != NULL ? leat_pass_producer(graph, index, root->inputs[0], LEAT_OP_ADD) : NULL;

    for (uint32_t side = 0; add != NULL && side < 2; side++) {
        const struct leat_value *epsilon = &graph->values[add->inputs[side]];
        uint32_t square, d;
        if (epsilon->rank <= 1 && leat_value_scalar(epsilon, ret_epsilon) && *ret_epsilon >= 0 &&
            is_mean(graph, index, add->inputs[1 - side], &square) && is_square(graph, index, square, &d) &&
            is_centred(graph, index, d, ret_x)) {
            return true;
        }
    }
    return false;
}

static bool
is_vector(const struct leat_graph *graph, uint32_t value, int64_t size)
{
    const struct leat_value *v = &graph->values[value];
    return v->data != NULL && v->dtype == LEAT_DTYPE_F32 && v->rank == 1 && v->dims[0] == size;
}

/* y = d / deviation: x and epsilon */
static bool
is_normalised(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t y, uint32_t *ret_x,
              double *ret_epsilon)
{
    const struct leat_node *quotient = leat_pass_producer(graph, index, y, LEAT_OP_DIV);
    uint32_t x;

    return quotient != NULL && is_centred(graph, index, quotient->inputs[0], ret_x) &&
           is_deviation(graph, index, quotient->inputs[1], &x, ret_epsilon) && x == *ret_x;
}

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const struct leat_value *y = leat_node_output(graph, node, 0);

    if (node->op->kind != LEAT_OP_ADD || y->dtype != LEAT_DTYPE_F32 || y->rank == 0) {
        return LEAT_OK;
    }
    const int64_t size = y->dims[y->rank - 1];
    for (uint32_t side = 0; side < 4; side++) { /* of the sum and of the product */
        const uint32_t shift = node->inputs[side & 1];
        const struct leat_node *product = leat_pass_producer(graph, index, node->inputs[1 - (side & 1)], LEAT_OP_MUL);
        double epsilon;
        uint32_t x;
        if (product == NULL || !is_vector(graph, shift, size) || !is_vector(graph, product->inputs[side >> 1], size) ||
            !is_normalised(graph, index, product->inputs[1 - (side >> 1)], &x, &epsilon)) {
            continue;
        }
        const uint32_t inputs[3] = {x, product->inputs[side >> 1], shift};
        const struct leat_attribute attributes[2] = {
            {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .count = 1, .i = -1},
            {.name = "epsilon", .kind = LEAT_ATTRIBUTE_FLOAT, .count = 1, .f = (float)epsilon},
        };
        *ret_done = true;
        return leat_pass_replace(graph, index, node, leat_op_find("LayerNormalization", LEAT_OPSET_MAX), inputs, 3,
                                 attributes, 2);
    }
    return LEAT_OK;
}

LEAT_PASS_FUNCTION(fuse_layer_norm)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
