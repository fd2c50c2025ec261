/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/product.h - what our convolutions spend their time in: a few rows times a panel of weights.
 *
 * Shapes     rows f32[CPU_ROWS][channels], each at its own address; panel f32[channels][CPU_PANEL], 64-byte aligned, or
 *            some vectors of it; sums [CPU_ROWS][CPU_VECTORS], which stay in registers together with one row of the panel.
 * Numerics   A sum's terms are added in the order of the channels, whatever the number of rows.
 */
#ifndef LEAT_KERNELS_CPU_PRODUCT_H
#define LEAT_KERNELS_CPU_PRODUCT_H

#include <immintrin.h>
#include <stdint.h>

#define CPU_LANES   16 /* floats of a vector */
#define CPU_VECTORS 4
#define CPU_PANEL   (CPU_VECTORS * CPU_LANES)
#define CPU_ROWS    6
#define CPU_CHANNELS 128 /* at a time: their part of a panel comes from the second-level cache as fast as it is multiplied */

#define CPU_AVX512 __attribute__((target("avx512f")))
#define CPU_INLINE static inline __attribute__((always_inline)) CPU_AVX512

/* Vectors of half as many floats, for CPUs without AVX-512. */
#define CPU_HALF        8
#define CPU_AVX2        __attribute__((target("avx2,fma")))
#define CPU_HALF_INLINE static inline __attribute__((always_inline)) CPU_AVX2

/* In how many products `rows` of them are taken, of one size or nearly: group g begins at rows * g / groups. */
static inline int64_t
cpu_groups(int64_t rows)
{
    return (rows + CPU_ROWS - 1) / CPU_ROWS;
}

/*
 * Adds the products of `count` rows and the first `vectors` of the panel, constants, to the sums. Meanwhile asks for what
 * comes next, one cache line for each channel from `ahead` on, `step` floats apart: CPU_VECTORS of these products bring in
 * a panel.
 */
CPU_INLINE void
cpu_product(const float *const rows[CPU_ROWS], int64_t channels, const float *panel, const float *ahead, int64_t step,
            __m512 sums[CPU_ROWS][CPU_VECTORS], const int vectors, const int count)
{
    for (int64_t c = 0; c < channels; c++) {
        __m512 weights[CPU_VECTORS];
        _mm_prefetch((const char *)(ahead + c * step), _MM_HINT_T1);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = _mm512_load_ps(panel + c * CPU_PANEL + v * CPU_LANES);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const __m512 x = _mm512_set1_ps(rows[r][c]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = _mm512_fmadd_ps(x, weights[v], sums[r][v]);
            }
        }
    }
}

/* The first `count` of a vector. */
static inline __mmask16
cpu_lanes(int64_t count)
{
    return (__mmask16)(count >= CPU_LANES ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1);
}

/* Rows become columns. */
CPU_INLINE void
cpu_transpose(__m512 x[CPU_LANES])
{
    __m512 y[CPU_LANES];

#pragma GCC unroll 8
    for (int i = 0; i < CPU_LANES; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < CPU_LANES; i += 4) {
        for (int half = 0; half < 2; half++) {
            const __m512d low = _mm512_castps_pd(y[i + half]), high = _mm512_castps_pd(y[i + half + 2]);
            x[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    /* x[4 g + c] has columns c, c + 4, c + 8 and c + 12 of rows 4 g to 4 g + 3. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 a = _mm512_shuffle_f32x4(x[c], x[4 + c], 0x88), b = _mm512_shuffle_f32x4(x[c], x[4 + c], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0x88), e = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0xdd);
        y[c] = _mm512_shuffle_f32x4(a, d, 0x88);
        y[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
        y[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
        y[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < CPU_LANES; i++) {
        x[i] = y[i];
    }
}

#endif /* LEAT_KERNELS_CPU_PRODUCT_H */
