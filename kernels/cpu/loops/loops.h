/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/loops.h - comparisons, logic, shifts, remainders, powers and tests: loops over blocks of a known size, which the compiler
 * makes vectors of, of AVX2 where the processor has them.
 *
 * Numerics   As the reference functions.
 * Trust      A divisor is read once. A shift by the width or more leaves 0.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_LOOPS_H
#define LEAT_KERNELS_CPU_LOOPS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct leat_node;

/* y[i] of a[i] and b[i], or of a[0] or b[0] where they are spread: strides are 1 or 0. False: an integer is to be divided by 0. */
typedef bool (*cpu_loop)(const void *a, int64_t a_stride, const void *b, int64_t b_stride, void *y, int64_t count);

/* Of two operands of this type; NULL: there is none. */
cpu_loop cpu_loop_of(const struct leat_node *node, uint32_t dtype);
cpu_loop cpu_loop_of_avx2(const struct leat_node *node, uint32_t dtype);
cpu_loop cpu_loop_of_plain(const struct leat_node *node, uint32_t dtype);
/* Not of truths, IsNaN and IsInf of floats. */
void cpu_loop_test(const struct leat_node *node, const void *x, uint8_t *y, size_t count);
void cpu_loop_test_avx2(const struct leat_node *node, const void *x, uint8_t *y, size_t count);
void cpu_loop_test_plain(const struct leat_node *node, const void *x, uint8_t *y, size_t count);

#endif /* LEAT_KERNELS_CPU_LOOPS_LOOPS_H */
