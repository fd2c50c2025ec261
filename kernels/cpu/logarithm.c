/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/logarithm.h"

#include <math.h>

#if defined(__x86_64__)
#include "kernels/cpu/exponential.h"

CPU_INLINE __m512
logarithm(__m512 x)
{
    const double ln_2_high = 0.693145751953125, ln_2_low = 1.42860682030941723e-6; /* its first 16 bits, and the rest */

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
    return _mm512_fmadd_ps(n, cpu_all(ln_2_high), _mm512_fmadd_ps(n, cpu_all(ln_2_low), p));
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
#endif

void
cpu_logarithms(const float *x, float *y, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        take_vectors(x, y, count);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++) {
        y[i] = logf(x[i]);
    }
}
