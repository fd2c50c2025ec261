/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/fours_store.h - results of kernels/cpu/loops/fours.h and depthwise_whole.h, from floats to what is stored; for AVX2. */
#ifndef LEAT_KERNELS_CPU_LOOPS_FOURS_STORE_H
#define LEAT_KERNELS_CPU_LOOPS_FOURS_STORE_H

#include <string.h>

#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/fours.h"
#include "kernels/cpu/loops/held.h"
#include "kernels/cpu/loops/product.h"

/* A row of a panel, `vectors` of it. */
CPU_INLINE void
cpu_fours_store(const struct cpu_fours *conv, const __m256 *results, unsigned char *result, int64_t at, const int vectors)
{
    const __m256 least = _mm256_set1_ps(conv->least), most = _mm256_set1_ps(conv->most);
    __m256i numbers[CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const __m256 bounded = _mm256_min_ps(most, _mm256_max_ps(least, results[v]));
        if (conv->result == dnnl_f32) {
            _mm256_storeu_ps((float *)(void *)result + at + v * CPU_LANES, bounded);
        }
        numbers[v] = _mm256_cvtps_epi32(bounded);
    }
    if (conv->result == dnnl_f32) {
        return;
    }
#pragma GCC unroll 4
    for (int v = vectors; v < CPU_VECTORS; v++) {
        numbers[v] = _mm256_setzero_si256();
    }
    const __m256i zeros = _mm256_set1_epi16((int16_t)conv->zero);
    const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(numbers[0], numbers[1]), zeros);
    const __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(numbers[2], numbers[3]), zeros);
    const __m256i packed = conv->result == dnnl_s8 ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    const __m256i line = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (vectors == CPU_VECTORS) {
        _mm256_storeu_si256((__m256i *)(void *)(result + at), line);
    } else if (vectors == CPU_VECTORS / 2) {
        _mm_storeu_si128((__m128i *)(void *)(result + at), _mm256_castsi256_si128(line));
    } else {
        unsigned char bytes[CPU_PANEL];
        _mm256_storeu_si256((__m256i *)(void *)bytes, line);
        memcpy(result + at, bytes, (size_t)vectors * CPU_LANES);
    }
}

/*
 * x times its sigmoid, to 1e-4 of it, a fortieth of a step of 8 bits at the most: 2^f by the polynomial of the third degree whose
 * largest relative error between -1/2 and 1/2 is the least, 7.5e-5. A division takes less than an estimate that is made better.
 */
CPU_INLINE __m256
cpu_fours_swish(__m256 x)
{
    const __m256 bound = _mm256_set1_ps(126);
    const __m256 exact = _mm256_mul_ps(x, _mm256_set1_ps(-0x1.715476p+0f)); /* -log2(e) */
    const __m256 t = _mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), bound), _mm256_min_ps(bound, exact));
    const __m256i n = _mm256_cvtps_epi32(t);
    const __m256 f = _mm256_sub_ps(t, _mm256_cvtepi32_ps(n));
    __m256 p = _mm256_set1_ps(0.05517167f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.24261112f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.69326099f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.99992807f));
    const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(n, 23)));
    return _mm256_div_ps(x, _mm256_add_ps(power, _mm256_set1_ps(1)));
}

/* Numbers of some rows, of each `vectors`, a constant. */
CPU_INLINE void
cpu_fours_store_rows(const struct cpu_fours *conv, const float *numbers, int rows, unsigned char *result, int64_t at, const int vectors,
                     const bool swishes)
{
    const __m256 smooth_scale = _mm256_set1_ps(conv->smooth_scale), zero = _mm256_set1_ps(conv->smooth_zero);

    for (int r = 0; r < rows; r++, at += conv->outputs, numbers += vectors * CPU_LANES) {
        __m256 results[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const __m256 x = _mm256_load_ps(numbers + v * CPU_LANES);
            results[v] = _mm256_fmadd_ps(swishes ? cpu_fours_swish(x) : x, smooth_scale, zero);
        }
        cpu_fours_store(conv, results, result, at, vectors);
    }
}

/* The same: once for all tiles, as it is long. */
__attribute__((noinline)) CPU_KERNEL static void
cpu_fours_store_smooth(const struct cpu_fours *conv, float *numbers, int rows, int vectors, unsigned char *result, int64_t at)
{
    const bool swishes = conv->result != dnnl_f32 && conv->smooth == LEAT_ACTIVATION_SWISH;

    if (cpu_bends(conv->smooth)) {
        for (int i = 0; i < rows * vectors * CPU_LANES; i += CPU_LANES) {
            _mm256_store_ps(numbers + i, cpu_bent(conv->smooth, conv->slope, _mm256_load_ps(numbers + i)));
        }
    } else if (!swishes) {
        cpu_activate_avx2(conv->smooth, numbers, (size_t)(rows * vectors) * CPU_LANES);
    }
    switch (vectors + (swishes ? CPU_VECTORS : 0)) {
    case 1: cpu_fours_store_rows(conv, numbers, rows, result, at, 1, false); break;
    case 2: cpu_fours_store_rows(conv, numbers, rows, result, at, 2, false); break;
    case 3: cpu_fours_store_rows(conv, numbers, rows, result, at, 3, false); break;
    case 4: cpu_fours_store_rows(conv, numbers, rows, result, at, 4, false); break;
    case 5: cpu_fours_store_rows(conv, numbers, rows, result, at, 1, true); break;
    case 6: cpu_fours_store_rows(conv, numbers, rows, result, at, 2, true); break;
    case 7: cpu_fours_store_rows(conv, numbers, rows, result, at, 3, true); break;
    default: cpu_fours_store_rows(conv, numbers, rows, result, at, CPU_VECTORS, true); break;
    }
}

#endif /* LEAT_KERNELS_CPU_LOOPS_FOURS_STORE_H */
