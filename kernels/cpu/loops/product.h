/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/product.h - what our convolutions spend their time in: a few rows times a panel of weights.
 *
 * Shapes     rows f32[CPU_ROWS][channels], each at its own address; panel f32[channels][CPU_PANEL], 64-byte aligned, or
 *            some vectors of it; sums [CPU_ROWS][CPU_VECTORS], which stay in registers together with one row of the panel.
 * Numerics   A sum's terms are added in the order of the channels, whatever the number of rows.
 * Vectors    Of AVX-512. A file that defines CPU_VECTOR_BITS as 256 first gets these words for AVX2: CPU_V(add) is the
 *            intrinsic function that adds floats, CPU_D(add) the one for doubles, CPU_SIZED(x) what others call x_avx2.
 *            With CPU_VECTORS as 4 its panels are wider and its rows fewer: of one row, too, four sums are made at a time.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_PRODUCT_H
#define LEAT_KERNELS_CPU_LOOPS_PRODUCT_H

#include <immintrin.h>
#include <stdint.h>

#include "base/status.h"

#ifndef CPU_VECTOR_BITS
#define CPU_VECTOR_BITS 512
#endif

#define CPU_AVX512 __attribute__((target("avx512f")))
#define CPU_AVX2   __attribute__((target("avx2,fma")))

#define CPU_HALF 8 /* floats of a vector of AVX2 */

#if CPU_VECTOR_BITS == 512
#define CPU_LANES       16 /* floats of a vector */
#define CPU_VECTORS     4
#define CPU_ROWS        6
#define CPU_KERNEL      CPU_AVX512
#define CPU_V(op)       _mm512_##op##_ps
#define CPU_D(op)       _mm512_##op##_pd
#define CPU_SIZED(name) name##_avx512
typedef __m512 cpu_floats;
typedef __m512d cpu_doubles;
#else
#define CPU_LANES CPU_HALF
#ifndef CPU_VECTORS
#define CPU_VECTORS 2
#endif
#define CPU_ROWS        (12 / CPU_VECTORS) /* twelve of 16 registers are sums */
#define CPU_KERNEL      CPU_AVX2
#define CPU_V(op)       _mm256_##op##_ps
#define CPU_D(op)       _mm256_##op##_pd
#define CPU_SIZED(name) name##_avx2
typedef __m256 cpu_floats;
typedef __m256d cpu_doubles;
#endif
#define CPU_INLINE   static inline __attribute__((always_inline)) CPU_KERNEL
#define CPU_PANEL    (CPU_VECTORS * CPU_LANES)
#define CPU_LINE     16 /* floats of a cache line */
#define CPU_STEPS    8 /* channels of cpu_product_in_steps() at a time */
/* Its step where nothing comes next: a vector that is a line asks for one beside each channel, of what is there. */
#define CPU_NO_STEP  (CPU_LANES < CPU_LINE ? 0 : CPU_LINE)
/*
 * Channels at a time: their part of a panel comes from the caches as fast as it is multiplied. From the second-level one does a line
 * in the six cycles that twelve vectors take.
 */
#define CPU_CHANNELS (CPU_PANEL > CPU_LINE ? 512 / CPU_VECTORS : 768)

/* In how many products `rows` of them are taken, of one size or nearly: group g begins at rows * g / groups. */
static inline int64_t
cpu_groups(int64_t rows)
{
    return (rows + CPU_ROWS - 1) / CPU_ROWS;
}

/* One channel of a product. */
CPU_INLINE void
cpu_product_step(const float *const rows[CPU_ROWS], int64_t channel, const float *weights_at,
                 cpu_floats sums[CPU_ROWS][CPU_VECTORS], const int vectors, const int count)
{
    if (CPU_VECTORS <= CPU_ROWS) { /* the fewer wait in registers */
        cpu_floats weights[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = CPU_V(load)(weights_at + v * CPU_LANES);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const cpu_floats x = CPU_V(set1)(rows[r][channel]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = CPU_V(fmadd)(x, weights[v], sums[r][v]);
            }
        }
    } else {
        cpu_floats x[CPU_ROWS];
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            x[r] = CPU_V(set1)(rows[r][channel]);
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const cpu_floats weights = CPU_V(load)(weights_at + v * CPU_LANES);
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
                sums[r][v] = CPU_V(fmadd)(x[r], weights, sums[r][v]);
            }
        }
    }
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
        _mm_prefetch((const char *)(ahead + c * step), _MM_HINT_T1);
        cpu_product_step(rows, c, panel + c * CPU_PANEL, sums, vectors, count);
    }
}

/*
 * The same, but where a vector is less than a line CPU_STEPS channels are taken at a time, and the lines of as many times `step`
 * floats asked for before them, none twice, none where `step` is 0, and none for fewer channels at the end: less is left to do
 * beside the multiplications, which counts where somebody else has the core's hyperthread.
 */
CPU_INLINE void
cpu_product_in_steps(const float *const rows[CPU_ROWS], int64_t channels, const float *panel, const float *ahead, int64_t step,
                     cpu_floats sums[CPU_ROWS][CPU_VECTORS], const int vectors, const int count)
{
    int64_t c = 0;

    if (CPU_LANES == CPU_LINE) {
        cpu_product(rows, channels, panel, ahead, step, sums, vectors, count);
        return;
    }
    for (; c + CPU_STEPS <= channels; c += CPU_STEPS) {
        for (int64_t line = 0; line < CPU_STEPS * step; line += CPU_LINE) {
            _mm_prefetch((const char *)(ahead + c * step + line), _MM_HINT_T1);
        }
#pragma GCC unroll 8
        for (int64_t s = 0; s < CPU_STEPS; s++) {
            cpu_product_step(rows, c + s, panel + (c + s) * CPU_PANEL, sums, vectors, count);
        }
    }
    for (; c < channels; c++) {
        cpu_product_step(rows, c, panel + c * CPU_PANEL, sums, vectors, count);
    }
}

/* ---- Vectors ---------------------------------------------------------------------------------------- */

#if CPU_VECTOR_BITS == 512
/* The first `count` of a vector. */
static inline __mmask16
cpu_lanes(int64_t count)
{
    return (__mmask16)(count >= CPU_LANES ? 0xffffu : count <= 0 ? 0u : (1u << count) - 1);
}

/* The first `count`, zeros behind them. */
CPU_INLINE __m512
cpu_load_first(const float *x, int64_t count)
{
    return _mm512_maskz_loadu_ps(cpu_lanes(count), x);
}

CPU_INLINE void
cpu_store_first(float *to, int64_t count, __m512 x)
{
    _mm512_mask_storeu_ps(to, cpu_lanes(count), x);
}

/* `x` in the first `count` places, `y` in the others. */
CPU_INLINE __m512
cpu_first(int64_t count, __m512 x, __m512 y)
{
    return _mm512_mask_mov_ps(y, cpu_lanes(count), x);
}

CPU_INLINE float
cpu_sum(__m512 x)
{
    return _mm512_reduce_add_ps(x);
}

CPU_INLINE __m512
cpu_abs(__m512 x)
{
    return _mm512_abs_ps(x);
}

/* y[4 g + c] has columns c, c + 4, c + 8 and c + 12 of rows 4 g to 4 g + 3. */
CPU_INLINE void
cpu_gather_columns(const __m512 y[CPU_LANES], __m512 ret[CPU_LANES])
{
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 a = _mm512_shuffle_f32x4(y[c], y[4 + c], 0x88), b = _mm512_shuffle_f32x4(y[c], y[4 + c], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(y[8 + c], y[12 + c], 0x88), e = _mm512_shuffle_f32x4(y[8 + c], y[12 + c], 0xdd);
        ret[c] = _mm512_shuffle_f32x4(a, d, 0x88);
        ret[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
        ret[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
        ret[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
}
#else
CPU_INLINE __m256i
cpu_lanes(int64_t count)
{
    const __m256i all = _mm256_set1_epi32((int)(count < CPU_LANES ? count : CPU_LANES));
    return _mm256_cmpgt_epi32(all, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

CPU_INLINE __m256
cpu_load_first(const float *x, int64_t count)
{
    return LEAT_LIKELY(count >= CPU_LANES) ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, cpu_lanes(count));
}

CPU_INLINE void
cpu_store_first(float *to, int64_t count, __m256 x)
{
    if (LEAT_LIKELY(count >= CPU_LANES)) {
        _mm256_storeu_ps(to, x); /* a masked one takes twenty cycles on AMD's processors */
    } else {
        _mm256_maskstore_ps(to, cpu_lanes(count), x);
    }
}

CPU_INLINE __m256
cpu_first(int64_t count, __m256 x, __m256 y)
{
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(cpu_lanes(count)));
}

CPU_INLINE float
cpu_sum(__m256 x)
{
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

CPU_INLINE __m256
cpu_abs(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* y[4 g + c] has columns c and c + 4 of rows 4 g to 4 g + 3. */
CPU_INLINE void
cpu_gather_columns(const __m256 y[CPU_LANES], __m256 ret[CPU_LANES])
{
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        ret[c] = _mm256_permute2f128_ps(y[c], y[4 + c], 0x20);
        ret[4 + c] = _mm256_permute2f128_ps(y[c], y[4 + c], 0x31);
    }
}
#endif

/* Rows become columns. */
CPU_INLINE void
cpu_transpose(cpu_floats x[CPU_LANES])
{
    cpu_floats y[CPU_LANES];

#pragma GCC unroll 8
    for (int i = 0; i < CPU_LANES; i += 2) {
        y[i] = CPU_V(unpacklo)(x[i], x[i + 1]);
        y[i + 1] = CPU_V(unpackhi)(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < CPU_LANES; i += 4) {
        for (int half = 0; half < 2; half++) {
            const cpu_doubles low = CPU_D(castps)(y[i + half]), high = CPU_D(castps)(y[i + half + 2]);
            x[i + 2 * half] = CPU_V(castpd)(CPU_D(unpacklo)(low, high));
            x[i + 2 * half + 1] = CPU_V(castpd)(CPU_D(unpackhi)(low, high));
        }
    }
    cpu_gather_columns(x, y);
#pragma GCC unroll 16
    for (int i = 0; i < CPU_LANES; i++) {
        x[i] = y[i];
    }
}

#endif /* LEAT_KERNELS_CPU_LOOPS_PRODUCT_H */
