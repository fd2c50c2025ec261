/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/integers.h - products of matrices of 8-bit whole numbers, in vectors of either width, whose sums are exact.
 *
 * Role       Where the sums are what is asked for (MatMulInteger), of any numbers of u8 and s8 about any zero points. Less
 *            these they have 16 bits, of which one instruction adds up two products in 32; what multiplies 8 bits caps sums
 *            at 16.
 *            Convolutions (ConvInteger) are products of weights and pixels, of 16 bits.
 * Shapes     a u8 or s8[rows][inner], b u8 or s8[inner][columns], result i32 or f32[rows][columns], dense; nothing is 0.
 * Narrow     What multiplies 8 bits does so with twice as many at a time, and is exact with VNNI, or where few weights are so large
 *            that it is not (kernels/cpu/loops/integers_narrow.h). Weights tell when they are packed.
 * Packed     b as s8, u8 less 128, in panels of columns, filled up with zeros.
 * Scratch    a as u8, with the sums of its rows, or less its zero points as s16.
 * Numerics   Sums wrap as those of the reference functions. Floats are what Cast, Mul and Add make, each rounded: a sum times
 *            (a_scale times its column's scale), plus the column's bias, plus the addend.
 * Trust      Sizes and pointers are the caller's; any numbers may be in the tensors.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_INTEGERS_H
#define LEAT_KERNELS_CPU_LOOPS_INTEGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/window.h"

struct cpu_integers {
    int64_t rows, inner, columns;
    bool a_signed, b_signed;
    /* NULL: they are 0. One of each, or one for each column, and one for each of so many rows, over and over. */
    const uint8_t *a_zeros, *b_zeros;
    int64_t a_zero_count, b_zero_count;
    /* Of floats; a result of sums has no scales. Scales are one or one for each column; bias and addend may be NULL. */
    const float *a_scale, *b_scales, *bias;
    int64_t b_scale_count;
    const float *addend; /* as the result, which it may be */
};

enum { CPU_INTEGERS_TAPS_MAX = 64 };

/* A convolution: the first operand of the product are weights, [outputs of all groups][inputs][taps], the second one pixels. */
struct cpu_integers_conv {
    int64_t items, groups, inputs, outputs, taps; /* inputs and outputs of a group */
    const struct leat_window *window;
    bool source_signed;
    int32_t source_zero;
};

struct cpu_integers_kernel {
    size_t (*packed_bytes)(int64_t inner, int64_t columns);
    void (*pack)(const uint8_t *b, bool b_signed, int64_t inner, int64_t columns, void *ret_packed);
    size_t (*scratch_bytes)(int64_t rows, int64_t inner);
    /* Rows begin..end of all of them. */
    void (*prepare)(const struct cpu_integers *p, const uint8_t *a, const void *packed, int64_t begin, int64_t end,
                    void *ret_scratch);
    /* What is the member's; all rows are prepared. `packed` and `scratch` are 64-byte aligned. */
    void (*multiply)(const struct cpu_integers *p, const void *scratch, const void *packed, void *result, uint32_t member,
                     uint32_t members);
    /* Rows begin..end of weights, `a` of a product, at full width. */
    void (*widen)(const struct cpu_integers *p, const uint8_t *a, int64_t begin, int64_t end, int16_t *ret_wide);
    /* sums are of the member alone, [outputs][panel]. */
    void (*convolve)(const struct cpu_integers_conv *p, const uint8_t *source, const int16_t *wide, int32_t *sums, int32_t *result,
                     uint32_t member, uint32_t members);
    int64_t panel; /* pixels */
};

extern const struct cpu_integers_kernel cpu_integers_vnni, cpu_integers_avx512, cpu_integers_avx2;

#endif /* LEAT_KERNELS_CPU_LOOPS_INTEGERS_H */
