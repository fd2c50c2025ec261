/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/integers.h - products of matrices of 8-bit whole numbers, in vectors of either width, whose sums are exact.
 *
 * Role       Where the sums are what is asked for (MatMulInteger), of any numbers of u8 and s8 about any zero points. Less
 *            these they have 16 bits, of which one instruction adds up two products in 32; what multiplies 8 bits caps sums
 *            at 16.
 * Shapes     a u8 or s8[rows][inner], b u8 or s8[inner][columns], result i32 or f32[rows][columns], dense; nothing is 0.
 * Packed     b as s8[panels][pairs of inner][panel][2], u8 less 128, filled up with zeros.
 * Wide       a, less its zero points, as s16: slices of `inner`, each [rows][its numbers, filled up to whole pairs with a 0].
 * Numerics   Sums wrap as those of the reference functions. Floats are what Cast, Mul and Add make, each rounded: a sum times
 *            (a_scale times its column's scale), plus the column's bias, plus the addend.
 * Trust      Sizes and pointers are the caller's; any numbers may be in the tensors.
 * Threads    As kernels/cpu/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_INTEGERS_H
#define LEAT_KERNELS_CPU_INTEGERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct cpu_integers_kernel {
    size_t (*packed_bytes)(int64_t inner, int64_t columns);
    void (*pack)(const uint8_t *b, bool b_signed, int64_t inner, int64_t columns, void *ret_packed);
    /* Rows begin..end of all of them. */
    void (*widen)(const struct cpu_integers *p, const uint8_t *a, int64_t begin, int64_t end, int16_t *ret_wide);
    /* Rows and panels of the member; what it reads of `wide` is there. Vectors of `packed` and `wide` are 64-byte aligned. */
    void (*multiply)(const struct cpu_integers *p, const int16_t *wide, const void *packed, void *result, uint32_t member,
                     uint32_t members);
    int64_t panel; /* columns */
};

extern const struct cpu_integers_kernel cpu_integers_avx512, cpu_integers_avx2;

#endif /* LEAT_KERNELS_CPU_INTEGERS_H */
