/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/logarithm.h - natural logarithms of many elements: oneDNN's are off by as much near 1, where they should be near 0, as
 * elsewhere.
 *
 * Source     ln m = 2 artanh((m - 1) / (m + 1)) by its Taylor polynomial of degree 9 for m in 0.75..1.5; without vectors: logf().
 * Numerics   Relative errors are below 4e-7, also near 1 and of subnormal numbers. Of 0 it is -infinity, of infinity infinity, of what
 *            is less than 0 and of NaN it is NaN.
 */
#ifndef LEAT_KERNELS_CPU_LOGARITHM_H
#define LEAT_KERNELS_CPU_LOGARITHM_H

#include <stddef.h>

/* y[i] = ln x[i]; both are aligned to 4 bytes and the same or apart. */
void cpu_logarithms(const float *x, float *y, size_t count);

#endif /* LEAT_KERNELS_CPU_LOGARITHM_H */
