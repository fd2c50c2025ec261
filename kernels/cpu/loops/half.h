/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/half.h - conversions between floats of 16 and of 32 bits, many at a time: what the reference functions do, which
 * take them one by one, but for the bits of a NaN.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_HALF_H
#define LEAT_KERNELS_CPU_LOOPS_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y[i] = x[i], of f16 or bf16. */
void cpu_widen(uint32_t dtype, const uint16_t *x, float *y, size_t count);

bool cpu_narrow_runs_here(void);
/* y[i] = x[i] in f16, rounded to the nearest, to the even one of two; beyond them infinity. */
void cpu_narrow(const float *x, uint16_t *y, size_t count);

#endif /* LEAT_KERNELS_CPU_LOOPS_HALF_H */
