/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/qlinear_node.h - what nodes on tensors that the file has quantised say of scales. */
#ifndef LEAT_KERNELS_CPU_QLINEAR_NODE_H
#define LEAT_KERNELS_CPU_QLINEAR_NODE_H

#include "kernels/cpu/qlinear.h"
#include "kernels/graph.h"

/* Element `channel` of a vector, or the only element there is. */
static inline size_t
place_in(const struct leat_value *vector, size_t channel)
{
    return leat_value_elements(vector) > 1 ? channel : 0;
}

/* Inputs of QLinearConv, QLinearMatMul and, but for the last, QLinearAdd. */
enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, SUM_BIAS };

static inline bool
is_constant(const struct leat_graph *graph, const struct leat_node *node, uint32_t input)
{
    const struct leat_value *value = leat_node_input(graph, node, input);
    return value->data != NULL && leat_value_in_place(value);
}

static inline float
float_of(const struct leat_graph *graph, const struct leat_node *node, uint32_t input,
         size_t channel)
{
    const struct leat_value *value = leat_node_input(graph, node, input);
    return ((const float *)value->data)[place_in(value, channel)];
}

static inline struct cpu_scale
constant_scale(const struct leat_graph *graph, const struct leat_node *node, uint32_t scale,
               uint32_t zero)
{
    const struct leat_value *zeros = leat_node_input(graph, node, zero);
    const bool is_signed = zeros->dtype == LEAT_DTYPE_I8;

    return (struct cpu_scale){.scale = float_of(graph, node, scale, 0),
                              .zero = is_signed ? *(const int8_t *)zeros->data
                                                : *(const uint8_t *)zeros->data,
                              .is_signed = is_signed};
}

/* A sum, in units of the result, is times this. */
static inline float
unit_of(const struct leat_graph *graph, const struct leat_node *node, size_t channel)
{
    const double unit = (double)float_of(graph, node, X_SCALE, 0) *
                        (double)float_of(graph, node, W_SCALE, channel) /
                        (double)float_of(graph, node, Y_SCALE, 0);
    return (float)unit;
}

#endif /* LEAT_KERNELS_CPU_QLINEAR_NODE_H */
