/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/logarithm.h - natural logarithms of a vector: oneDNN's are off by as much near 1, where they should be near 0, as
 * elsewhere.
 *
 * Source     ln m = 2 artanh((m - 1) / (m + 1)) by its Taylor polynomial of degree 9 for m in 0.75..1.5.
 * Numerics   Relative errors are below 4e-7, also near 1 and of subnormal numbers. Of 0 it is -infinity, of infinity infinity, of what
 *            is less than 0 and of NaN it is NaN. Of ln(1 + x) they are below 1e-6, also near 0.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_LOGARITHM_H
#define LEAT_KERNELS_CPU_LOOPS_LOGARITHM_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/loops/exponential.h"

/* x is n powers of 2 of 1 + d; 25 more where it is subnormal, which AVX-512 sees to. */
#if CPU_VECTOR_BITS == 512
CPU_INLINE cpu_floats
cpu_logarithm(cpu_floats x)
{
    const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan); /* of infinity and zeros: 1 or -1 */
    const __mmask16 halved = _mm512_cmp_ps_mask(m, cpu_all(1), _CMP_LT_OQ);
    const __m512 floor = _mm512_getexp_ps(x), n = _mm512_mask_add_ps(floor, halved, floor, cpu_all(1));
    const __m512 d = _mm512_sub_ps(m, cpu_all(1));
#else
CPU_INLINE cpu_floats
cpu_logarithm(cpu_floats x)
{
    const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(FLT_MIN), _CMP_LT_OQ); /* which have no exponent of their own */
    const __m256i bits = _mm256_castps_si256(_mm256_blendv_ps(x, _mm256_mul_ps(x, _mm256_set1_ps(0x1p25f)), small));
    const __m256i exponent = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f400000)), 23); /* 0.75 */
    const __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(exponent, 23)));
    const __m256 n = _mm256_sub_ps(_mm256_cvtepi32_ps(exponent), _mm256_and_ps(small, _mm256_set1_ps(25)));
    const __m256 d = _mm256_sub_ps(m, _mm256_set1_ps(1));
#endif
    const cpu_floats s = CPU_V(div)(d, CPU_V(add)(d, cpu_all(2))), z = CPU_V(mul)(s, s);
    cpu_floats p = cpu_all(2.0 / 9);
    p = CPU_V(fmadd)(p, z, cpu_all(2.0 / 7));
    p = CPU_V(fmadd)(p, z, cpu_all(2.0 / 5));
    p = CPU_V(fmadd)(p, z, cpu_all(2.0 / 3));
    p = CPU_V(fmadd)(CPU_V(mul)(p, z), s, CPU_V(add)(s, s));
    cpu_floats y = CPU_V(fmadd)(n, cpu_all(CPU_LN_2_HIGH), CPU_V(fmadd)(n, cpu_all(CPU_LN_2_LOW), p));
#if CPU_VECTOR_BITS == 256
    y = _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, _mm256_set1_ps(INFINITY), _CMP_EQ_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(-INFINITY), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(NAN), _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NGE_UQ));
#endif
    return y;
}

/* ln(1 + x): what rounding 1 + x lost is made up for; the lesser of what is no number and a bound is the bound, and nothing by infinity. */
CPU_INLINE cpu_floats
cpu_logarithm_of_more(cpu_floats x)
{
    const cpu_floats y = CPU_V(add)(cpu_all(1), x), lost = CPU_V(sub)(x, CPU_V(sub)(y, cpu_all(1)));
    return CPU_V(add)(cpu_logarithm(y), CPU_V(div)(CPU_V(min)(lost, cpu_all(FLT_MAX)), y));
}

/* ln(1 + e^x) */
CPU_INLINE cpu_floats
cpu_soft_plus(cpu_floats x)
{
    const cpu_floats zero = CPU_V(setzero)(), near = cpu_exponential(CPU_V(sub)(zero, cpu_abs(x)));
    return CPU_V(add)(CPU_V(max)(zero, x), cpu_logarithm_of_more(near));
}

#endif /* LEAT_KERNELS_CPU_LOOPS_LOGARITHM_H */
