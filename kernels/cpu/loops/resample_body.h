/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/resample_body.h - the functions of resample.h in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <string.h>

#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/resample.h"

#if CPU_VECTOR_BITS == 512
CPU_INLINE __m512
gather(const float *row, const int32_t *index)
{
    return _mm512_i32gather_ps(_mm512_loadu_si512(index), row, sizeof(float));
}

CPU_INLINE __m512
choose(const float *from, const int32_t *index, int32_t first)
{
    return _mm512_permutexvar_ps(_mm512_sub_epi32(_mm512_loadu_si512(index), _mm512_set1_epi32(first)), _mm512_loadu_ps(from));
}

CPU_INLINE __m512
gather_some(const float *plane, const int32_t *index)
{
    const __m512i at = _mm512_loadu_si512(index);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512()), at, plane,
                                    sizeof(float));
}

/* x, or 0 where its weight is that. */
CPU_INLINE __m512
weighed(__m512 x, __m512 weight)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(weight, _mm512_setzero_ps(), _CMP_NEQ_UQ), x);
}
#else
CPU_INLINE __m256
gather(const float *row, const int32_t *index)
{
    return _mm256_i32gather_ps(row, _mm256_loadu_si256((const __m256i *)(const void *)index), sizeof(float));
}

CPU_INLINE __m256
choose(const float *from, const int32_t *index, int32_t first)
{
    const __m256i at = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(const void *)index), _mm256_set1_epi32(first));
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), at);
}

CPU_INLINE __m256
gather_some(const float *plane, const int32_t *index)
{
    const __m256i at = _mm256_loadu_si256((const __m256i *)(const void *)index);
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), plane, at,
                                    _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1))), sizeof(float));
}

CPU_INLINE __m256
weighed(__m256 x, __m256 weight)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(weight, _mm256_setzero_ps(), _CMP_NEQ_UQ));
}
#endif

/* Indices rise: if the last is less than a vector beyond the first, all are in one vector. */
CPU_INLINE cpu_floats
look_up(const struct cpu_resample *r, const float *row, const int32_t *index)
{
    const int32_t most = (int32_t)r->from - CPU_LANES, first = index[0] < most ? index[0] : most;

    return most >= 0 && index[CPU_LANES - 1] - first < CPU_LANES ? choose(row + first, index, first) : gather(row, index);
}

/* Of pixels of one float; `taps` is a constant. */
CPU_INLINE void
resample_floats(const struct cpu_resample *r, const float *row, float *to, const size_t taps)
{
    for (size_t i = 0; i < r->width; i += CPU_LANES) {
        cpu_floats sum = look_up(r, row, r->index + i);
        if (taps > 1) {
            const cpu_floats weight = CPU_V(loadu)(r->weight + i);
            sum = CPU_V(mul)(weighed(sum, weight), weight);
        }
#pragma GCC unroll 4
        for (size_t t = 1; t < taps; t++) {
            const cpu_floats weight = CPU_V(loadu)(r->weight + t * r->stride + i);
            sum = CPU_V(fmadd)(weighed(look_up(r, row, r->index + t * r->stride + i), weight), weight, sum);
        }
        cpu_store_first(to + i, (int64_t)(r->width - i), sum);
    }
}

CPU_INLINE void
resample_pixels(const struct cpu_resample *r, const float *row, float *to)
{
    for (size_t i = 0; i < r->width; i++, to += r->inner) {
        for (size_t c = 0; c < r->inner; c += CPU_LANES) {
            const int64_t left = (int64_t)(r->inner - c);
            cpu_floats sum = CPU_V(setzero)();
            for (size_t t = 0; t < r->taps; t++) {
                const float weight = r->weight[t * r->stride + i];
                const float *from = row + (size_t)r->index[t * r->stride + i] * r->inner + c;
                if (weight != 0) {
                    sum = CPU_V(fmadd)(cpu_load_first(from, left), CPU_V(set1)(weight), sum);
                }
            }
            cpu_store_first(to + c, left, sum);
        }
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_resample_row)(const struct cpu_resample *r, const float *row, float *to)
{
    if (r->inner > 1 && r->taps > 1) {
        resample_pixels(r, row, to);
    } else if (r->inner > 1) {
        for (size_t i = 0; i < r->width; i++) {
            memcpy(to + i * r->inner, row + (size_t)r->index[i] * r->inner, r->inner * sizeof(*to));
        }
    } else if (r->taps == 1) {
        resample_floats(r, row, to, 1);
    } else if (r->taps == 2) {
        resample_floats(r, row, to, 2);
    } else {
        resample_floats(r, row, to, 4);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_double_row)(const float *row, size_t count, float *first, float *second)
{
    static const int32_t halves[2][CPU_RESAMPLE_LANES] = {{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
                                                          {8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15}};
    const int32_t *behind = CPU_LANES == CPU_RESAMPLE_LANES ? halves[1] : halves[0] + CPU_LANES;
    size_t i = 0;

    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        const cpu_floats a = choose(row + i, halves[0], 0), b = choose(row + i, behind, 0);
        CPU_V(storeu)(first + 2 * i, a);
        CPU_V(storeu)(first + 2 * i + CPU_LANES, b);
        CPU_V(storeu)(second + 2 * i, a);
        CPU_V(storeu)(second + 2 * i + CPU_LANES, b);
    }
    for (; i < count; i++) {
        first[2 * i] = first[2 * i + 1] = second[2 * i] = second[2 * i + 1] = row[i];
    }
}

/* `count` is a constant, or any. */
CPU_INLINE void
mix(const float *const *rows, const float *weights, const size_t count, size_t floats, float *to)
{
    for (size_t i = 0; i < floats; i += CPU_LANES) {
        const int64_t left = (int64_t)(floats - i);
        cpu_floats sum = CPU_V(mul)(cpu_load_first(rows[0] + i, left), CPU_V(set1)(weights[0]));
#pragma GCC unroll 4
        for (size_t r = 1; r < count; r++) {
            sum = CPU_V(fmadd)(cpu_load_first(rows[r] + i, left), CPU_V(set1)(weights[r]), sum);
        }
        cpu_store_first(to + i, left, sum);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_mix_rows)(const float *const *rows, const float *weights, size_t count, size_t floats, float *to)
{
    if (count == 2) {
        mix(rows, weights, 2, floats, to);
    } else if (count == 4) {
        mix(rows, weights, 4, floats, to);
    } else {
        mix(rows, weights, count, floats, to);
    }
}

#if CPU_VECTOR_BITS == 256
_Static_assert(CPU_LANES == CPU_POINTS_TOGETHER, "a vector of points");

/* Two elements side by side from each of two places. */
CPU_INLINE __m128
two_pairs(const float *plane, const int32_t *index)
{
    const __m128i first = _mm_loadl_epi64((const __m128i *)(const void *)(plane + index[0]));
    return _mm_loadh_pi(_mm_castsi128_ps(first), (const __m64 *)(const void *)(plane + index[1]));
}

/* From eight places: half as many loads as elements, and each a quarter of what a gathered one takes on AMD's processors. */
CPU_INLINE void
eight_pairs(const float *plane, const int32_t *index, __m256 *ret_left, __m256 *ret_right)
{
    const __m256 a = _mm256_set_m128(two_pairs(plane, index + 4), two_pairs(plane, index));
    const __m256 b = _mm256_set_m128(two_pairs(plane, index + 6), two_pairs(plane, index + 2));
    *ret_left = _mm256_shuffle_ps(a, b, 0x88);
    *ret_right = _mm256_shuffle_ps(a, b, 0xdd);
}

CPU_INLINE __m256
sample_pairs(const struct cpu_samples *samples, const float *plane, size_t i)
{
    __m256 x[4];

    eight_pairs(plane, samples->index[0] + i, &x[0], &x[1]);
    eight_pairs(plane, samples->index[2] + i, &x[2], &x[3]);
    __m256 sum = _mm256_mul_ps(x[0], _mm256_loadu_ps(samples->weight[0] + i));
#pragma GCC unroll 4
    for (size_t t = 1; t < 4; t++) {
        sum = _mm256_fmadd_ps(x[t], _mm256_loadu_ps(samples->weight[t] + i), sum);
    }
    return sum;
}
#endif

/* `taps` is a constant, or any. */
CPU_INLINE void
sample(const struct cpu_samples *samples, const size_t taps, size_t count, const float *plane, float *to)
{
    for (size_t i = 0; i < count; i += CPU_LANES) {
#if CPU_VECTOR_BITS == 256
        if (taps == 4 && samples->beside[i / CPU_LANES]) {
            _mm256_storeu_ps(to + i, sample_pairs(samples, plane, i));
            continue;
        }
#endif
        cpu_floats sum = gather_some(plane, samples->index[0] + i);
        if (taps > 1) {
            sum = CPU_V(mul)(sum, CPU_V(loadu)(samples->weight[0] + i));
        }
#pragma GCC unroll 4
        for (size_t t = 1; t < taps; t++) {
            sum = CPU_V(fmadd)(gather_some(plane, samples->index[t] + i), CPU_V(loadu)(samples->weight[t] + i), sum);
        }
        cpu_store_first(to + i, (int64_t)(count - i), sum);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_sample_points)(const struct cpu_samples *samples, size_t count, const float *plane, float *to)
{
    if (samples->taps == 1) {
        sample(samples, 1, count, plane, to);
    } else if (samples->taps == 4) {
        sample(samples, 4, count, plane, to);
    } else {
        sample(samples, samples->taps, count, plane, to);
    }
}
