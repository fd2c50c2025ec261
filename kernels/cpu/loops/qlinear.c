/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/qlinear.h"

#include <math.h>
#include <string.h>

/* Beyond it, every number saturates, whatever the zero point is. */
#define FAR 512.0f
/* Added to floats of a magnitude of at most FAR, it leaves room for whole numbers alone. */
#define ROUNDING 12582912.0f

static int32_t
least_of(const struct cpu_scale *scale)
{
    return scale->is_signed ? INT8_MIN : 0;
}

static int32_t
most_of(const struct cpu_scale *scale)
{
    return scale->is_signed ? INT8_MAX : UINT8_MAX;
}

static uint8_t
quantise(float x, const struct cpu_scale *scale, int32_t least, int32_t most)
{
    const float quotient = x / scale->scale;
    const float near = quotient < -FAR ? -FAR : quotient > FAR ? FAR : quotient;
    const int32_t q = (isnan(near) ? 0 : (int32_t)((near + ROUNDING) - ROUNDING)) + scale->zero;

    return (uint8_t)(q < least ? least : q > most ? most : q);
}

static void
quantise_all(const float *x, uint8_t *y, size_t count, const struct cpu_scale *scale)
{
    const int32_t least = least_of(scale), most = most_of(scale);

    for (size_t i = 0; i < count; i++) {
        y[i] = quantise(x[i], scale, least, most);
    }
}

static float
dequantised(const uint8_t *x, size_t i, const struct cpu_scale *scale)
{
    const int32_t q = scale->is_signed ? (int8_t)x[i] : x[i];
    return (float)(q - scale->zero) * scale->scale;
}

static void
dequantise_all(const uint8_t *x, float *y, size_t count, const struct cpu_scale *scale)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = dequantised(x, i, scale);
    }
}

static void
combine_all(const struct cpu_combination *c, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t count)
{
    const int32_t least = least_of(&c->y), most = most_of(&c->y);

    for (size_t i = 0; i < count; i++) {
        const float left = dequantised(a, i, &c->a), right = dequantised(b, i, &c->b);
        y[i] = quantise(c->product ? left * right : left + right, &c->y, least, most);
    }
}

static void
find_range(const float *x, size_t count, float *low, float *high)
{
    for (size_t i = 0; i < count; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

static void
look_up_all(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = table[x[i]];
    }
}

void
cpu_dequantise_sums(const int32_t *x, float *y, size_t count, float scale, int32_t zero)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = (float)(((double)x[i] - (double)zero) * (double)scale);
    }
}

#if defined(__x86_64__)
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/product.h"

CPU_INLINE __m128i
quantised_vector(__m512 x, const struct cpu_scale *scale)
{
    const __m512 quotient = _mm512_div_ps(x, _mm512_set1_ps(scale->scale));
    const __mmask16 there = _mm512_cmp_ps_mask(quotient, quotient, _CMP_ORD_Q);
    const __m512 near =
        _mm512_min_ps(_mm512_max_ps(quotient, _mm512_set1_ps(-FAR)), _mm512_set1_ps(FAR));
    const __m512i q =
        _mm512_add_epi32(_mm512_maskz_cvtps_epi32(there, near), _mm512_set1_epi32(scale->zero));

    return scale->is_signed ? _mm512_cvtsepi32_epi8(q)
                            : _mm512_cvtusepi32_epi8(_mm512_max_epi32(q, _mm512_setzero_si512()));
}

CPU_INLINE __m512
dequantised_vector(const uint8_t *x, const struct cpu_scale *scale)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)x);
    const __m512i q = scale->is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);

    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(scale->zero))),
                         _mm512_set1_ps(scale->scale));
}

/* Of whole vectors; returns how many elements that were. */
CPU_AVX512 static size_t
quantise_vectors(const float *x, uint8_t *y, size_t count, const struct cpu_scale scale)
{
    size_t i = 0;

    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        _mm_storeu_si128((__m128i *)(void *)(y + i),
                         quantised_vector(_mm512_loadu_ps(x + i), &scale));
    }
    return i;
}

CPU_AVX512 static size_t
dequantise_vectors(const uint8_t *x, float *y, size_t count, const struct cpu_scale scale)
{
    size_t i = 0;

    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        _mm512_storeu_ps(y + i, dequantised_vector(x + i, &scale));
    }
    return i;
}

CPU_INLINE size_t
combine_vectors(const bool product, const uint8_t *a, const struct cpu_scale scale_a,
                const uint8_t *b, const struct cpu_scale scale_b, uint8_t *y,
                const struct cpu_scale scale_y, size_t count)
{
    size_t i = 0;

    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        const __m512 left = dequantised_vector(a + i, &scale_a);
        const __m512 right = dequantised_vector(b + i, &scale_b);
        const __m512 both = product ? _mm512_mul_ps(left, right) : _mm512_add_ps(left, right);
        _mm_storeu_si128((__m128i *)(void *)(y + i), quantised_vector(both, &scale_y));
    }
    return i;
}

CPU_AVX512 static size_t
add_vectors(const uint8_t *a, const struct cpu_scale *scale_a, const uint8_t *b,
            const struct cpu_scale *scale_b, uint8_t *y, const struct cpu_scale *scale_y,
            size_t count)
{
    return combine_vectors(false, a, *scale_a, b, *scale_b, y, *scale_y, count);
}

CPU_AVX512 static size_t
multiply_vectors(const uint8_t *a, const struct cpu_scale *scale_a, const uint8_t *b,
                 const struct cpu_scale *scale_b, uint8_t *y, const struct cpu_scale *scale_y,
                 size_t count)
{
    return combine_vectors(true, a, *scale_a, b, *scale_b, y, *scale_y, count);
}

CPU_AVX512 static size_t
range_of_vectors(const float *x, size_t count, float *low, float *high)
{
    __m512 least = _mm512_set1_ps(*low), most = _mm512_set1_ps(*high);
    size_t i = 0;

    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        const __m512 v = _mm512_loadu_ps(x + i);
        least = _mm512_min_ps(v, least); /* of NaN and another the second */
        most = _mm512_max_ps(v, most);
    }
    *low = _mm512_reduce_min_ps(least);
    *high = _mm512_reduce_max_ps(most);
    return i;
}

/* ---- The same with AVX2: four vectors of floats make one of bytes ------------------------------------- */

#define HALF_INLINE static inline __attribute__((always_inline)) CPU_AVX2
enum { HALF_BYTES = 4 * CPU_HALF };

HALF_INLINE __m256i
rounded_half(__m256 x, const struct cpu_scale *scale)
{
    const __m256 quotient = _mm256_div_ps(x, _mm256_set1_ps(scale->scale));
    const __m256i there = _mm256_castps_si256(_mm256_cmp_ps(quotient, quotient, _CMP_ORD_Q));
    const __m256 near = _mm256_min_ps(_mm256_max_ps(quotient, _mm256_set1_ps(-FAR)), _mm256_set1_ps(FAR));

    return _mm256_and_si256(_mm256_cvtps_epi32(near), there);
}

/* Of numbers up to FAR, about the zero point. */
HALF_INLINE void
store_halves(const __m256i numbers[4], const struct cpu_scale *scale, uint8_t *y)
{
    const __m256i zeros = _mm256_set1_epi16((int16_t)scale->zero);
    const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(numbers[0], numbers[1]), zeros);
    const __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(numbers[2], numbers[3]), zeros);
    const __m256i bytes = scale->is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);

    _mm256_storeu_si256((__m256i *)(void *)y, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

HALF_INLINE __m256i
numbers_of_half(const uint8_t *x, const bool is_signed)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)x);
    return is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
}

HALF_INLINE __m256
dequantised_half(const uint8_t *x, const struct cpu_scale *scale)
{
    const __m256i q = numbers_of_half(x, scale->is_signed);

    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(scale->zero))), _mm256_set1_ps(scale->scale));
}

CPU_AVX2 static size_t
quantise_halves(const float *x, uint8_t *y, size_t count, const struct cpu_scale scale)
{
    size_t i = 0;

    for (; i + HALF_BYTES <= count; i += HALF_BYTES) {
        __m256i numbers[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            numbers[v] = rounded_half(_mm256_loadu_ps(x + i + v * CPU_HALF), &scale);
        }
        store_halves(numbers, &scale, y + i);
    }
    return i;
}

CPU_AVX2 static size_t
dequantise_halves(const uint8_t *x, float *y, size_t count, const struct cpu_scale scale)
{
    size_t i = 0;

    for (; i + CPU_HALF <= count; i += CPU_HALF) {
        _mm256_storeu_ps(y + i, dequantised_half(x + i, &scale));
    }
    return i;
}

CPU_AVX2 static size_t
combine_halves(const struct cpu_combination c, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t count)
{
    size_t i = 0;

    for (; i + HALF_BYTES <= count; i += HALF_BYTES) {
        __m256i numbers[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            const size_t at = i + (size_t)v * CPU_HALF;
            const __m256 left = dequantised_half(a + at, &c.a), right = dequantised_half(b + at, &c.b);
            numbers[v] = rounded_half(c.product ? _mm256_mul_ps(left, right) : _mm256_add_ps(left, right), &c.y);
        }
        store_halves(numbers, &c.y, y + i);
    }
    return i;
}

/* In units of the result: a sum of multiples of both and a constant, or a multiple of both less their zero points. */
HALF_INLINE size_t
combine_units(const struct cpu_combination c, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t count, const bool is_product,
              const bool a_signed, const bool b_signed)
{
    const double a_unit = (double)c.a.scale / (double)c.y.scale, b_unit = (double)c.b.scale / (double)c.y.scale;
    const __m256 of_a = _mm256_set1_ps((float)a_unit), of_b = _mm256_set1_ps((float)b_unit);
    const __m256 of_both = _mm256_set1_ps((float)(a_unit * (double)c.b.scale));
    const __m256 added = _mm256_set1_ps((float)-(c.a.zero * a_unit + c.b.zero * b_unit));
    const __m256 a_zero = _mm256_set1_ps((float)c.a.zero), b_zero = _mm256_set1_ps((float)c.b.zero);
    size_t i = 0;

    for (; i + HALF_BYTES <= count; i += HALF_BYTES) {
        __m256i numbers[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            const size_t at = i + (size_t)v * CPU_HALF;
            const __m256 left = _mm256_cvtepi32_ps(numbers_of_half(a + at, a_signed));
            const __m256 right = _mm256_cvtepi32_ps(numbers_of_half(b + at, b_signed));
            const __m256 product = _mm256_mul_ps(_mm256_sub_ps(left, a_zero), _mm256_sub_ps(right, b_zero));
            const __m256 sum = _mm256_fmadd_ps(left, of_a, _mm256_fmadd_ps(right, of_b, added));
            const __m256 near = _mm256_min_ps(is_product ? _mm256_mul_ps(product, of_both) : sum, _mm256_set1_ps(FAR));
            numbers[v] = _mm256_cvtps_epi32(near);
        }
        store_halves(numbers, &c.y, y + i);
    }
    return i;
}

CPU_AVX2 static size_t
combine_quickly(const struct cpu_combination c, const uint8_t *a, const uint8_t *b, uint8_t *y, size_t count)
{
    if (c.a.is_signed || c.b.is_signed) {
        return combine_units(c, a, b, y, count, c.product, c.a.is_signed, c.b.is_signed);
    }
    return c.product ? combine_units(c, a, b, y, count, true, false, false) : combine_units(c, a, b, y, count, false, false, false);
}

CPU_AVX2 static size_t
range_of_halves(const float *x, size_t count, float *low, float *high)
{
    __m256 least = _mm256_set1_ps(*low), most = _mm256_set1_ps(*high);
    float lows[CPU_HALF], highs[CPU_HALF];
    size_t i = 0;

    for (; i + CPU_HALF <= count; i += CPU_HALF) {
        const __m256 v = _mm256_loadu_ps(x + i);
        least = _mm256_min_ps(v, least); /* of NaN and another the second */
        most = _mm256_max_ps(v, most);
    }
    _mm256_storeu_ps(lows, least);
    _mm256_storeu_ps(highs, most);
    find_range(lows, CPU_HALF, low, high);
    find_range(highs, CPU_HALF, low, high);
    return i;
}

/* ---- Which of them ------------------------------------------------------------------------------------- */

/* The table lies in four registers. An instruction looks seven bits up in two of them, the eighth says in which two. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static size_t
look_up_vectors(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y, size_t count)
{
    enum { BYTES = 64 };
    const __m512i first = _mm512_loadu_si512(table), second = _mm512_loadu_si512(table + BYTES);
    const __m512i third = _mm512_loadu_si512(table + 2 * BYTES), fourth = _mm512_loadu_si512(table + 3 * BYTES);
    size_t i = 0;

    for (; i + BYTES <= count; i += BYTES) {
        const __m512i from = _mm512_loadu_si512(x + i);
        const __m512i low = _mm512_permutex2var_epi8(first, from, second), high = _mm512_permutex2var_epi8(third, from, fourth);
        _mm512_storeu_si512(y + i, _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(from), high));
    }
    return i;
}

/*
 * An instruction looks four bits up, and answers 0 where the eighth is set. Of either half of the table there are eight sixteenths: with
 * 16 taken off each time, numbers of seven bits are below 0 from the one on that is behind theirs. Each sixteenth is stored as what it
 * differs in from the one before it, so that those which answer make up the last of them.
 */
CPU_AVX2 static size_t
look_up_halves(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y, size_t count)
{
    enum { BYTES = 32, PART = 16, PARTS = (UINT8_MAX + 1) / 2 / PART };
    const __m256i seven = _mm256_set1_epi8(INT8_MAX), part = _mm256_set1_epi8(PART);
    __m256i parts[2][PARTS];
    size_t i = 0;

    for (size_t h = 0; h < 2; h++) {
        __m128i before = _mm_setzero_si128();
        for (size_t p = 0; p < PARTS; p++) {
            const __m128i numbers = _mm_loadu_si128((const __m128i *)(const void *)(table + (h * PARTS + p) * PART));
            parts[h][p] = _mm256_broadcastsi128_si256(_mm_xor_si128(numbers, before));
            before = numbers;
        }
    }
    for (; i + BYTES <= count; i += BYTES) {
        const __m256i from = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m256i place = _mm256_and_si256(from, seven), low = _mm256_setzero_si256(), high = low;
#pragma GCC unroll 8
        for (size_t p = 0; p < PARTS; p++) {
            low = _mm256_xor_si256(low, _mm256_shuffle_epi8(parts[0][p], place));
            high = _mm256_xor_si256(high, _mm256_shuffle_epi8(parts[1][p], place));
            place = _mm256_sub_epi8(place, part);
        }
        _mm256_storeu_si256((__m256i *)(void *)(y + i), _mm256_blendv_epi8(low, high, from));
    }
    return i;
}

void
cpu_look_up_bytes(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y, size_t count)
{
    const size_t done = cpu_has_avx512() && __builtin_cpu_supports("avx512vbmi") ? look_up_vectors(x, table, y, count)
                        : cpu_has_avx2()                                                ? look_up_halves(x, table, y, count)
                                                                                        : 0;
    look_up_all(x + done, table, y + done, count - done);
}

void
cpu_quantise(const float *x, void *y, size_t count, const struct cpu_scale *scale)
{
    const size_t done = cpu_has_avx512() ? quantise_vectors(x, y, count, *scale)
                        : cpu_has_avx2() ? quantise_halves(x, y, count, *scale)
                                         : 0;
    quantise_all(x + done, (uint8_t *)y + done, count - done, scale);
}

void
cpu_dequantise(const void *x, float *y, size_t count, const struct cpu_scale *scale)
{
    const size_t done = cpu_has_avx512() ? dequantise_vectors(x, y, count, *scale)
                        : cpu_has_avx2() ? dequantise_halves(x, y, count, *scale)
                                         : 0;
    dequantise_all((const uint8_t *)x + done, y + done, count - done, scale);
}

bool
cpu_combines_quickly(const struct cpu_combination *c)
{
    uint8_t a[UINT8_MAX + 1], b[UINT8_MAX + 1], want[UINT8_MAX + 1], have[UINT8_MAX + 1];
    bool same = cpu_has_avx2() && !cpu_has_avx512();

    for (int i = 0; i <= UINT8_MAX; i++) {
        b[i] = (uint8_t)i;
    }
    for (int i = 0; i <= UINT8_MAX && same; i++) {
        memset(a, i, sizeof(a));
        (void)combine_halves(*c, a, b, want, sizeof(want));
        (void)combine_quickly(*c, a, b, have, sizeof(have));
        same = memcmp(want, have, sizeof(want)) == 0;
    }
    return same;
}

void
cpu_combine_quantised(const struct cpu_combination *c, const void *a, const void *b, void *y, size_t count)
{
    const size_t done = cpu_has_avx2() && !cpu_has_avx512() ? (c->quick ? combine_quickly : combine_halves)(*c, a, b, y, count)
                        : !cpu_has_avx512()                 ? 0
                        : c->product                        ? multiply_vectors(a, &c->a, b, &c->b, y, &c->y, count)
                                                            : add_vectors(a, &c->a, b, &c->b, y, &c->y, count);
    combine_all(c, (const uint8_t *)a + done, (const uint8_t *)b + done, (uint8_t *)y + done, count - done);
}

void
cpu_find_range(const float *x, size_t count, float *low, float *high)
{
    const size_t done = cpu_has_avx512() ? range_of_vectors(x, count, low, high)
                        : cpu_has_avx2() ? range_of_halves(x, count, low, high)
                                         : 0;
    find_range(x + done, count - done, low, high);
}
#else
void
cpu_look_up_bytes(const uint8_t *x, const uint8_t table[UINT8_MAX + 1], uint8_t *y, size_t count)
{
    look_up_all(x, table, y, count);
}

bool
cpu_combines_quickly(const struct cpu_combination *c)
{
    (void)c;
    return false;
}

void
cpu_combine_quantised(const struct cpu_combination *c, const void *a, const void *b, void *y, size_t count)
{
    combine_all(c, a, b, y, count);
}

void
cpu_quantise(const float *x, void *y, size_t count, const struct cpu_scale *scale)
{
    quantise_all(x, y, count, scale);
}

void
cpu_dequantise(const void *x, float *y, size_t count, const struct cpu_scale *scale)
{
    dequantise_all(x, y, count, scale);
}

void
cpu_find_range(const float *x, size_t count, float *low, float *high)
{
    find_range(x, count, low, high);
}
#endif
