/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/qlinear_node.h - what nodes on tensors that the file has quantised say of scales. */
#ifndef LEAT_KERNELS_CPU_LOOPS_QLINEAR_NODE_H
#define LEAT_KERNELS_CPU_LOOPS_QLINEAR_NODE_H

#include "kernels/cpu/loops/qlinear.h"
#include "kernels/graph.h"

/* Element `channel` of a vector, or the only element there is. */
static inline size_t
cpu_qlinear_place(const struct leat_value *vector, size_t channel)
{
    return leat_value_elements(vector) > 1 ? channel : 0;
}

/* Inputs of QLinearConv, QLinearMatMul and, but for the last, QLinearAdd. */
enum {
    CPU_QLINEAR_X,
    CPU_QLINEAR_X_SCALE,
    CPU_QLINEAR_X_ZERO,
    CPU_QLINEAR_W,
    CPU_QLINEAR_W_SCALE,
    CPU_QLINEAR_W_ZERO,
    CPU_QLINEAR_Y_SCALE,
    CPU_QLINEAR_Y_ZERO,
    CPU_QLINEAR_BIAS
};

static inline bool
cpu_qlinear_is_constant(const struct leat_graph *graph, const struct leat_node *node, uint32_t input)
{
    const struct leat_value *value = leat_node_input(graph, node, input);
    return value->data != NULL && leat_value_in_place(value);
}

static inline float
cpu_qlinear_float(const struct leat_graph *graph, const struct leat_node *node, uint32_t input,
         size_t channel)
{
    const struct leat_value *value = leat_node_input(graph, node, input);
    return ((const float *)value->data)[cpu_qlinear_place(value, channel)];
}

static inline struct cpu_scale
cpu_qlinear_scale(const struct leat_graph *graph, const struct leat_node *node, uint32_t scale,
               uint32_t zero)
{
    const struct leat_value *zeros = leat_node_input(graph, node, zero);
    const bool is_signed = zeros->dtype == LEAT_DTYPE_I8;

    return (struct cpu_scale){.scale = cpu_qlinear_float(graph, node, scale, 0),
                              .zero = is_signed ? *(const int8_t *)zeros->data
                                                : *(const uint8_t *)zeros->data,
                              .is_signed = is_signed};
}

/* A sum, in units of the result, is times this. */
static inline float
cpu_qlinear_unit(const struct leat_graph *graph, const struct leat_node *node, size_t channel)
{
    const double unit = (double)cpu_qlinear_float(graph, node, CPU_QLINEAR_X_SCALE, 0) *
                        (double)cpu_qlinear_float(graph, node, CPU_QLINEAR_W_SCALE, channel) /
                        (double)cpu_qlinear_float(graph, node, CPU_QLINEAR_Y_SCALE, 0);
    return (float)unit;
}

#endif /* LEAT_KERNELS_CPU_LOOPS_QLINEAR_NODE_H */
