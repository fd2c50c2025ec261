/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/function.h"

#include "kernels/cpu/isa.h"

static bool
parameters_of(const struct leat_node *node, struct cpu_parameters *ret)
{
    *ret = (struct cpu_parameters){.kind = node->op->kind};
    switch (node->op->kind) {
    case LEAT_OP_ACOS:
    case LEAT_OP_ACOSH:
    case LEAT_OP_ASIN:
    case LEAT_OP_ASINH:
    case LEAT_OP_ATAN:
    case LEAT_OP_ATANH:
    case LEAT_OP_CEIL:
    case LEAT_OP_COS:
    case LEAT_OP_COSH:
    case LEAT_OP_ERF:
    case LEAT_OP_FLOOR:
    case LEAT_OP_LOG:
    case LEAT_OP_ROUND:
    case LEAT_OP_SIGMOID:
    case LEAT_OP_SIGN:
    case LEAT_OP_SIN:
    case LEAT_OP_SINH:
    case LEAT_OP_SOFTPLUS:
    case LEAT_OP_SOFTSIGN:
    case LEAT_OP_TAN:
    case LEAT_OP_TANH:
        return true;
    case LEAT_OP_CELU:
        ret->a = leat_node_float(node, "alpha", 1.0f);
        return ret->a > 0;
    case LEAT_OP_ELU:
    case LEAT_OP_THRESHOLDED_RELU:
        ret->a = leat_node_float(node, "alpha", 1.0f);
        return true;
    case LEAT_OP_HARD_SIGMOID:
        ret->a = leat_node_float(node, "alpha", 0.2f);
        ret->b = leat_node_float(node, "beta", 0.5f);
        return true;
    case LEAT_OP_SELU:
        ret->a = leat_node_float(node, "alpha", 1.67326319217681884765625f);
        ret->b = leat_node_float(node, "gamma", 1.05070102214813232421875f);
        return true;
    case LEAT_OP_SHRINK:
        ret->a = leat_node_float(node, "lambd", 0.5f);
        ret->b = leat_node_float(node, "bias", 0.0f);
        return true;
    default:
        return false;
    }
}

bool
cpu_function_runs_here(const struct leat_node *node)
{
    struct cpu_parameters parameters;
    return cpu_vector_lanes() > 0 && parameters_of(node, &parameters);
}

void
cpu_compute(const struct leat_node *node, const float *x, float *y, size_t count)
{
    struct cpu_parameters parameters;

    LEAT_MUST(parameters_of(node, &parameters));
    (cpu_has_avx512() ? cpu_compute_avx512 : cpu_compute_avx2)(&parameters, x, y, count);
}
