/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/softmax.h - softmax, or its logarithm, along an axis that is not the last: columns side by side, in vectors of either
 * width. Nothing needs to be aligned.
 *
 * Numerics   e^x as in exponential.h, and 0 where it would be no normal number. A NaN makes its column NaN. Relative errors of the
 *            logarithm are below 1e-5, also near 0.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_SOFTMAX_H
#define LEAT_KERNELS_CPU_LOOPS_SOFTMAX_H

#include <stdbool.h>
#include <stddef.h>

/* Columns first to last - 1 of x[rows][width], into y[rows][width]. */
void cpu_softmax_columns_avx512(const float *x, size_t rows, size_t width, size_t first, size_t last, bool logarithm, float *y);
void cpu_softmax_columns_avx2(const float *x, size_t rows, size_t width, size_t first, size_t last, bool logarithm, float *y);

#endif /* LEAT_KERNELS_CPU_LOOPS_SOFTMAX_H */
