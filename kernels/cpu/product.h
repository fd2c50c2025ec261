/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/product.h - what our convolutions spend their time in: a few rows times a panel of weights.
 *
 * Shapes     rows f32[CPU_ROWS][channels], each at its own address; panel f32[channels][CPU_PANEL], 64-byte aligned, or
 *            some vectors of it; sums [CPU_ROWS][CPU_VECTORS], which stay in registers together with one row of the panel.
 * Numerics   A sum's terms are added in the order of the channels, whatever the number of rows.
 * Vectors    Of AVX-512. A file that defines CPU_VECTOR_BITS as 256 first gets these words for AVX2: CPU_V(add) is the
 *            intrinsic function that adds floats, CPU_D(add) the one for doubles.
 */
#ifndef LEAT_KERNELS_CPU_PRODUCT_H
#define LEAT_KERNELS_CPU_PRODUCT_H

#include <immintrin.h>
#include <stdint.h>

#ifndef CPU_VECTOR_BITS
#define CPU_VECTOR_BITS 512
#endif

#define CPU_AVX512 __attribute__((target("avx512f")))
#define CPU_AVX2   __attribute__((target("avx2,fma")))

#define CPU_HALF        8 /* floats of a vector of AVX2 */
#define CPU_HALF_INLINE static inline __attribute__((always_inline)) CPU_AVX2

#if CPU_VECTOR_BITS == 512
#define CPU_LANES   16 /* floats of a vector */
#define CPU_VECTORS 4
#define CPU_KERNEL  CPU_AVX512
#define CPU_V(op)   _mm512_##op##_ps
#define CPU_D(op)   _mm512_##op##_pd
typedef __m512 cpu_floats;
typedef __m512d cpu_doubles;
#else
#define CPU_LANES   CPU_HALF
#define CPU_VECTORS 2
#define CPU_KERNEL  CPU_AVX2
#define CPU_V(op)   _mm256_##op##_ps
#define CPU_D(op)   _mm256_##op##_pd
typedef __m256 cpu_floats;
typedef __m256d cpu_doubles;
#endif
#define CPU_INLINE   static inline __attribute__((always_inline)) CPU_KERNEL
#define CPU_PANEL    (CPU_VECTORS * CPU_LANES)
#define CPU_LINE     16 /* floats of a cache line */
#define CPU_ROWS     6
#define CPU_CHANNELS 128 /* at a time: their part of a panel comes from the second-level cache as fast as it is multiplied */

/* In how many products `rows` of them are taken, of one size or nearly: group g begins at rows * g / groups. */
static inline int64_t
cpu_groups(int64_t rows)
{
    return (rows + CPU_ROWS - 1) / CPU_ROWS;
}

/*
 * Adds the products of `count` rows and the first `vectors` of the panel, constants, to the sums. Meanwhile asks for what
 * comes next, one cache line for each channel from `ahead` on, `step` floats apart: as many of these products bring in a panel
 * as a row of it has lines.
 */
CPU_INLINE void
cpu_product(const float *const rows[CPU_ROWS], int64_t channels, const float *panel, const float *ahead, int64_t step,
            cpu_floats sums[CPU_ROWS][CPU_VECTORS], const int vectors, const int count)
{
    for (int64_t c = 0; c < channels; c++) {
        cpu_floats weights[CPU_VECTORS];
        _mm_prefetch((const char *)(ahead + c * step), _MM_HINT_T1);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = CPU_V(load)(panel + c * CPU_PANEL + v * CPU_LANES);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const cpu_floats x = CPU_V(set1)(rows[r][c]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = CPU_V(fmadd)(x, weights[v], sums[r][v]);
            }
        }
    }
}

#if CPU_VECTOR_BITS == 512
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
#endif

#endif /* LEAT_KERNELS_CPU_PRODUCT_H */
