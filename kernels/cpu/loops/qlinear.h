/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/qlinear.h - elements of quantised tensors, many at a time.
 *
 * Units      A number q stands for (q - zero) * scale.
 * Numerics   Bit by bit what the reference backend has (kernels/reference/quantise.c): x / scale is rounded to the nearest
 *            whole number, halves to the even one, and saturates; NaN becomes the zero point.
 * Threads    Any; the rounding mode is the default one.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_QLINEAR_H
#define LEAT_KERNELS_CPU_LOOPS_QLINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_scale {
    float scale;
    int32_t zero;
    bool is_signed; /* the numbers are s8, else u8 */
};

/* x and y are apart. */
void cpu_quantise(const float *x, void *y, size_t count, const struct cpu_scale *scale);
void cpu_dequantise(const void *x, float *y, size_t count, const struct cpu_scale *scale);
/* The same of i32. */
void cpu_dequantise_sums(const int32_t *x, float *y, size_t count, float scale, int32_t zero);

/* y = a + b or a b, in floats between. */
struct cpu_combination {
    bool product;
    struct cpu_scale a, b, y;
    bool quick; /* see cpu_combines_quickly(); false is right for all */
};

/*
 * Whether multiples of a and b come to the same as floats between and a division, with AVX2, where that is done: all pairs of numbers
 * are tried. Of three in four combinations they do.
 */
bool cpu_combines_quickly(const struct cpu_combination *combination);
void cpu_combine_quantised(const struct cpu_combination *combination, const void *a, const void *b, void *y, size_t count);

/* y[i] = table[x[i]] */
void cpu_look_up_bytes(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y,
                       size_t count);

/* Widens low..high to all of x, NaN aside. */
void cpu_find_range(const float *x, size_t count, float *low, float *high);

#endif /* LEAT_KERNELS_CPU_LOOPS_QLINEAR_H */
