/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/exponential.h - e^x of a vector and what follows from it, for activations, softmax and recurrent cells.
 *
 * Source     Its Taylor polynomial of degree 6 between -ln(2) / 2 and ln(2) / 2.
 * Numerics   Relative errors of e^x are below 3e-7, errors of the sigmoid and of tanh below 4e-7.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_EXPONENTIAL_H
#define LEAT_KERNELS_CPU_LOOPS_EXPONENTIAL_H

#include "kernels/cpu/loops/product.h"

/* Neither e^x nor its reciprocal is a subnormal number. */
#define CPU_EXPONENT_MAX 87.0f

#define CPU_LOG2_E    1.44269504088896341
#define CPU_LN_2_HIGH 0.693145751953125 /* the first 16 bits of ln(2), and the rest */
#define CPU_LN_2_LOW  1.42860682030941723e-6

CPU_INLINE cpu_floats
cpu_all(double x)
{
    return CPU_V(set1)((float)x);
}

/* The nearest whole number; x 2^n for whole n in -126..127; 1 / x, to 14 bits with AVX-512 and to 12 with AVX2; y, but 0 where
 * x is below a bound; `yes` where x < y, else `no`. */
#if CPU_VECTOR_BITS == 512
CPU_INLINE __m512
cpu_round(__m512 x)
{
    return _mm512_roundscale_ps(x, 0);
}

CPU_INLINE __m512
cpu_scale(__m512 x, __m512 n)
{
    return _mm512_scalef_ps(x, n);
}

CPU_INLINE __m512
cpu_estimate(__m512 x)
{
    return _mm512_rcp14_ps(x);
}

CPU_INLINE __m512
cpu_unless_below(__m512 x, __m512 bound, __m512 y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), y);
}

CPU_INLINE __m512
cpu_if_less(__m512 x, __m512 y, __m512 yes, __m512 no)
{
    return _mm512_mask_mov_ps(no, _mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), yes);
}
#else
CPU_INLINE __m256
cpu_round(__m256 x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

CPU_INLINE __m256
cpu_scale(__m256 x, __m256 n)
{
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(exponent));
}

CPU_INLINE __m256
cpu_estimate(__m256 x)
{
    return _mm256_rcp_ps(x);
}

CPU_INLINE __m256
cpu_unless_below(__m256 x, __m256 bound, __m256 y)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ), y);
}

CPU_INLINE __m256
cpu_if_less(__m256 x, __m256 y, __m256 yes, __m256 no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
}
#endif

/*
 * x, or the bound that it is beyond, is n ln(2) + r; returned are the terms of (e^r - 1 - r) / r^2. NaN stays NaN, for it comes
 * second.
 */
CPU_INLINE cpu_floats
cpu_exponential_terms(cpu_floats x, cpu_floats *ret_n, cpu_floats *ret_r)
{
    x = CPU_V(max)(cpu_all(-CPU_EXPONENT_MAX), CPU_V(min)(cpu_all(CPU_EXPONENT_MAX), x));
    const cpu_floats n = cpu_round(CPU_V(mul)(x, cpu_all(CPU_LOG2_E)));
    const cpu_floats r = CPU_V(fnmadd)(n, cpu_all(CPU_LN_2_LOW), CPU_V(fnmadd)(n, cpu_all(CPU_LN_2_HIGH), x));
    cpu_floats p = cpu_all(1.0 / 720);
    p = CPU_V(fmadd)(p, r, cpu_all(1.0 / 120));
    p = CPU_V(fmadd)(p, r, cpu_all(1.0 / 24));
    p = CPU_V(fmadd)(p, r, cpu_all(1.0 / 6));
    *ret_n = n;
    *ret_r = r;
    return CPU_V(fmadd)(p, r, cpu_all(1.0 / 2));
}

/* e^x for x in -CPU_EXPONENT_MAX..CPU_EXPONENT_MAX, else e to that bound. */
CPU_INLINE cpu_floats
cpu_exponential(cpu_floats x)
{
    cpu_floats n, r;
    const cpu_floats p = cpu_exponential_terms(x, &n, &r);
    return cpu_scale(CPU_V(fmadd)(CPU_V(fmadd)(p, r, cpu_all(1)), r, cpu_all(1)), n);
}

/* e^x - 1, likewise. */
CPU_INLINE cpu_floats
cpu_exponential_less_one(cpu_floats x)
{
    cpu_floats n, r;
    const cpu_floats p = cpu_exponential_terms(x, &n, &r), power = cpu_scale(cpu_all(1), n);
    return CPU_V(fmadd)(CPU_V(fmadd)(CPU_V(mul)(p, r), r, r), power, CPU_V(sub)(power, cpu_all(1)));
}

/* 1 / x of normal numbers: the estimate and a step of Newton's. */
CPU_INLINE cpu_floats
cpu_reciprocal(cpu_floats x)
{
    const cpu_floats y = cpu_estimate(x);
    return CPU_V(mul)(y, CPU_V(fnmadd)(x, y, cpu_all(2)));
}

CPU_INLINE cpu_floats
cpu_sigmoid(cpu_floats x)
{
    return cpu_reciprocal(CPU_V(add)(cpu_all(1), cpu_exponential(CPU_V(sub)(CPU_V(setzero)(), x))));
}

CPU_INLINE cpu_floats
cpu_tanh(cpu_floats x)
{
    return CPU_V(fmsub)(cpu_all(2), cpu_sigmoid(CPU_V(add)(x, x)), cpu_all(1));
}

#endif /* LEAT_KERNELS_CPU_LOOPS_EXPONENTIAL_H */
