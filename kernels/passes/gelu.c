/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hendrycks, Gimpel, "Gaussian Error Linear Units": the three factors x, 1/2 and 1 + Erf(x / sqrt(2)), or
 * 1 + Tanh(sqrt(2 / pi) (x + 0.044715 x^3)), multiplied in any order.
 */
#include "kernels/passes/passes.h"

#define SQRT_2         1.41421356237309505
#define SQRT_2_OVER_PI 0.797884560802865356

/* u = x / sqrt(2): its x */
static bool
is_scaled(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t u, uint32_t *ret_x)
{
    const struct leat_node *quotient = leat_pass_producer(graph, index, u, LEAT_OP_DIV);

    if (quotient != NULL && leat_pass_is_scalar(graph, quotient->inputs[1], SQRT_2)) {
        *ret_x = quotient->inputs[0];
        return true;
    }
    return leat_pass_has_scalar(graph, leat_pass_producer(graph, index, u, LEAT_OP_MUL), 1 / SQRT_2, ret_x);
}

static bool
is_cube(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t cube, uint32_t x)
{
    const struct leat_node *power = leat_pass_producer(graph, index, cube, LEAT_OP_POW);
    const struct leat_node *product = leat_pass_producer(graph, index, cube, LEAT_OP_MUL);

    if (power != NULL) {
        return power->inputs[0] == x && leat_pass_is_scalar(graph, power->inputs[1], 3);
    }
    for (uint32_t side = 0; product != NULL && side < 2; side++) {
        const struct leat_node *square = leat_pass_producer(graph, index, product->inputs[1 - side], LEAT_OP_MUL);
        if (product->inputs[side] == x && square != NULL && square->inputs[0] == x && square->inputs[1] == x) {
            return true;
        }
    }
    return false;
}

/* u = sqrt(2 / pi) (x + 0.044715 x^3): its x */
static bool
is_approximate(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t u, uint32_t *ret_x)
{
    uint32_t sum, cube;

    if (!leat_pass_has_scalar(graph, leat_pass_producer(graph, index, u, LEAT_OP_MUL), SQRT_2_OVER_PI, &sum)) {
        return false;
    }
    const struct leat_node *add = leat_pass_producer(graph, index, sum, LEAT_OP_ADD);
    for (uint32_t side = 0; add != NULL && side < 2; side++) {
        const struct leat_node *term = leat_pass_producer(graph, index, add->inputs[1 - side], LEAT_OP_MUL);
        if (leat_pass_has_scalar(graph, term, 0.044715, &cube) && is_cube(graph, index, cube, add->inputs[side])) {
            *ret_x = add->inputs[side];
            return true;
        }
    }
    return false;
}

/* gate = 1 + Erf(...) or 1 + Tanh(...): their x */
static bool
is_gate(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t gate, uint32_t *ret_x, bool *ret_tanh)
{
    uint32_t inner;

    if (!leat_pass_has_scalar(graph, leat_pass_producer(graph, index, gate, LEAT_OP_ADD), 1, &inner)) {
        return false;
    }
    const struct leat_node *erf = leat_pass_producer(graph, index, inner, LEAT_OP_ERF);
    const struct leat_node *tanh = leat_pass_producer(graph, index, inner, LEAT_OP_TANH);
    *ret_tanh = tanh != NULL;
    return (erf != NULL && is_scaled(graph, index, erf->inputs[0], ret_x)) ||
           (tanh != NULL && is_approximate(graph, index, tanh->inputs[0], ret_x));
}

static bool
is_gelu(const struct leat_graph *graph, const struct leat_pass_index *index, const uint32_t factors[3], uint32_t *ret_x,
        bool *ret_tanh)
{
    for (uint32_t half = 0; half < 3; half++) {
        for (uint32_t gate = 0; gate < 3; gate++) {
            if (gate != half && leat_pass_is_scalar(graph, factors[half], 0.5) &&
                is_gate(graph, index, factors[gate], ret_x, ret_tanh) && factors[3 - half - gate] == *ret_x) {
                return true;
            }
        }
    }
    return false;
}

static enum leat_status
fuse(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const struct leat_op *op = leat_op_fused(LEAT_OP_GELU);

    if (node->op->kind != LEAT_OP_MUL || leat_node_output(graph, node, 0)->dtype != LEAT_DTYPE_F32) {
        return LEAT_OK;
    }
    for (uint32_t side = 0; side < 2; side++) {
        const struct leat_node *inner = leat_pass_producer(graph, index, node->inputs[1 - side], LEAT_OP_MUL);
        uint32_t x;
        bool tanh;
        if (inner != NULL && is_gelu(graph, index, (const uint32_t[3]){node->inputs[side], inner->inputs[0], inner->inputs[1]},
                                     &x, &tanh) &&
            graph->values[x].rank == leat_node_output(graph, node, 0)->rank) {
            const struct leat_attribute by_tanh = {.name = "tanh", .kind = LEAT_ATTRIBUTE_INT, .count = 1, .i = tanh};
            *ret_done = true;
            return leat_pass_replace(graph, index, node, op, &x, 1, &by_tanh, 1);
        }
    }
    return LEAT_OK;
}

LEAT_PASS_FUNCTION(fuse_gelu)
{
    return leat_pass_each(graph, fuse, ret_changed);
}
