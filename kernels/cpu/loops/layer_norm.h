/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/layer_norm.h - y = (x - mean) / sqrt(variance + epsilon) * scale + shift of one row, in vectors of either width;
 * shift may be NULL. Nothing needs to be aligned.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_LAYER_NORM_H
#define LEAT_KERNELS_CPU_LOOPS_LAYER_NORM_H

#include <stddef.h>

void cpu_normalise_avx512(const float *x, const float *scale, const float *shift, size_t width, float epsilon, float *y);
void cpu_normalise_avx2(const float *x, const float *scale, const float *shift, size_t width, float epsilon, float *y);

#endif /* LEAT_KERNELS_CPU_LOOPS_LAYER_NORM_H */
