/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/logarithm.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <float.h>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/isa.h"

CPU_INLINE __m512
logarithm(__m512 x)
{
    const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan); /* of infinity and zeros: 1 or -1 */
    const __mmask16 halved = _mm512_cmp_ps_mask(m, cpu_all(1), _CMP_LT_OQ);
    const __m512 floor = _mm512_getexp_ps(x), n = _mm512_mask_add_ps(floor, halved, floor, cpu_all(1));
    const __m512 d = _mm512_sub_ps(m, cpu_all(1));
    const __m512 s = _mm512_div_ps(d, _mm512_add_ps(d, cpu_all(2))), z = _mm512_mul_ps(s, s);
    __m512 p = cpu_all(2.0 / 9);
    p = _mm512_fmadd_ps(p, z, cpu_all(2.0 / 7));
    p = _mm512_fmadd_ps(p, z, cpu_all(2.0 / 5));
    p = _mm512_fmadd_ps(p, z, cpu_all(2.0 / 3));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, z), s, _mm512_add_ps(s, s));
    return _mm512_fmadd_ps(n, cpu_all(CPU_LN_2_HIGH), _mm512_fmadd_ps(n, cpu_all(CPU_LN_2_LOW), p));
}

static CPU_AVX512 void
take_vectors(const float *x, float *y, size_t count)
{
    size_t i = 0;
    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        _mm512_storeu_ps(y + i, logarithm(_mm512_loadu_ps(x + i)));
    }
    if (i < count) {
        const __mmask16 there = (__mmask16)((1u << (count - i)) - 1);
        _mm512_mask_storeu_ps(y + i, there, logarithm(_mm512_maskz_loadu_ps(there, x + i)));
    }
}

static inline CPU_AVX2 __m256
logarithm_of_eight(__m256 x)
{
    const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(FLT_MIN), _CMP_LT_OQ); /* which have no exponent of their own */
    const __m256i bits = _mm256_castps_si256(_mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(0x1p25f)), small));
    const __m256i exponent = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f400000)), 23); /* 0.75 */
    const __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
    const __m256 n = _mm256_sub_ps(_mm256_cvtepi32_ps(exponent), _mm256_and_ps(small, _mm256_set1_ps(25)));
    const __m256 d = _mm256_sub_ps(m, _mm256_set1_ps(1));
    const __m256 s = _mm256_div_ps(d, _mm256_add_ps(d, _mm256_set1_ps(2))), z = _mm256_mul_ps(s, s);
    __m256 p = _mm256_set1_ps(2.0f / 9);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(2.0f / 7));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(2.0f / 5));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(2.0f / 3));
    p = _mm256_fmadd_ps(_mm256_mul_ps(p, z), s, _mm256_add_ps(s, s));
    const __m256 low = _mm256_fmadd_ps(n, _mm256_set1_ps((float)CPU_LN_2_LOW), p), infinity = _mm256_set1_ps(INFINITY);
    __m256 y = _mm256_fmadd_ps(n, _mm256_set1_ps((float)CPU_LN_2_HIGH), low);
    y = _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, infinity, _CMP_EQ_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(-INFINITY), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ));
    return _mm256_blendv_ps(y, _mm256_set1_ps(NAN), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NGE_UQ));
}

static CPU_AVX2 void
take_eights(const float *x, float *y, size_t count)
{
    size_t i = 0;
    for (; i + CPU_HALF <= count; i += CPU_HALF) {
        _mm256_storeu_ps(y + i, logarithm_of_eight(_mm256_loadu_ps(x + i)));
    }
    if (i < count) {
        float last[CPU_HALF] = {0};
        memcpy(last, x + i, (count - i) * sizeof(*x));
        _mm256_storeu_ps(last, logarithm_of_eight(_mm256_loadu_ps(last)));
        memcpy(y + i, last, (count - i) * sizeof(*y));
    }
}
#endif

void
cpu_logarithms(const float *x, float *y, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        take_vectors(x, y, count);
        return;
    }
    if (cpu_has_avx2()) {
        take_eights(x, y, count);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++) {
        y[i] = logf(x[i]);
    }
}
