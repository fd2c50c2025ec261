/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/function.h - functions of single floats that oneDNN has not, or takes several times as long for, in vectors of either
 * width.
 *
 * Source     Sine, cosine and tangent: the polynomials of Cephes (sinf.c), behind a reduction by pi / 2 in three parts; their arcs:
 *            Cephes (atanf.c, asinf.c); erf: its Taylor series about 0, else Abramowitz and Stegun, "Handbook of Mathematical
 *            Functions", 7.1.26; e^x - 1, hyperbolic functions and their areas: as kernels/cpu/loops/exponential.h and logarithm.h.
 * Numerics   Errors are below 1e-6 max(1, |y|), of Elu, Selu, Celu, Erf, Tanh, Sinh, Tan and the odd arcs and areas below 1e-6 |y| where |x|
 *            is below 1/4, of logarithms as logarithm.h says. Rounding, Sign, HardSigmoid, Shrink and ThresholdedRelu are right but for
 *            the last digit. A NaN stays one, but in Shrink and ThresholdedRelu.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_FUNCTION_H
#define LEAT_KERNELS_CPU_LOOPS_FUNCTION_H

#include "kernels/op.h"

/* There is one, and this CPU has the vectors. */
bool cpu_function_runs_here(const struct leat_node *node);
/* y[i] of x[i], which are the same place or apart. */
void cpu_compute(const struct leat_node *node, const float *x, float *y, size_t count);

/* Of an operator with these parameters. */
struct cpu_parameters {
    enum leat_op_kind kind;
    float a, b;
};
void cpu_compute_avx512(const struct cpu_parameters *function, const float *x, float *y, size_t count);
void cpu_compute_avx2(const struct cpu_parameters *function, const float *x, float *y, size_t count);

#endif /* LEAT_KERNELS_CPU_LOOPS_FUNCTION_H */
