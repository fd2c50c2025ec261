/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/exponential.h - e^x of 16 floats and what follows from it, for activations, softmax and recurrent cells.
 *
 * Source     Its Taylor polynomial of degree 6 between -ln(2) / 2 and ln(2) / 2.
 * Numerics   Relative errors of e^x are below 3e-7, errors of the sigmoid and of tanh below 4e-7.
 */
#ifndef LEAT_KERNELS_CPU_EXPONENTIAL_H
#define LEAT_KERNELS_CPU_EXPONENTIAL_H

#include "kernels/cpu/product.h"

/* Neither e^x nor its reciprocal is a subnormal number. */
#define CPU_EXPONENT_MAX 87.0f

#define CPU_LOG2_E    1.44269504088896341
#define CPU_LN_2_HIGH 0.693145751953125 /* the first 16 bits of ln(2), and the rest */
#define CPU_LN_2_LOW  1.42860682030941723e-6

CPU_INLINE __m512
cpu_all(double x)
{
    return _mm512_set1_ps((float)x);
}

/* e^x for x in -CPU_EXPONENT_MAX..CPU_EXPONENT_MAX, else e to that bound; NaN stays NaN, for it comes second. */
CPU_INLINE __m512
cpu_exponential(__m512 x)
{
    x = _mm512_max_ps(cpu_all(-CPU_EXPONENT_MAX), _mm512_min_ps(cpu_all(CPU_EXPONENT_MAX), x));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, cpu_all(CPU_LOG2_E)), 0);
    const __m512 r = _mm512_fnmadd_ps(n, cpu_all(CPU_LN_2_LOW), _mm512_fnmadd_ps(n, cpu_all(CPU_LN_2_HIGH), x));
    __m512 p = cpu_all(1.0 / 720);
    p = _mm512_fmadd_ps(p, r, cpu_all(1.0 / 120));
    p = _mm512_fmadd_ps(p, r, cpu_all(1.0 / 24));
    p = _mm512_fmadd_ps(p, r, cpu_all(1.0 / 6));
    p = _mm512_fmadd_ps(p, r, cpu_all(1.0 / 2));
    p = _mm512_fmadd_ps(p, r, cpu_all(1));
    p = _mm512_fmadd_ps(p, r, cpu_all(1));
    return _mm512_scalef_ps(p, n);
}

/* 1 / x of normal numbers: an estimate of 14 bits and a step of Newton's. */
CPU_INLINE __m512
cpu_reciprocal(__m512 x)
{
    const __m512 y = _mm512_rcp14_ps(x);
    return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, cpu_all(2)));
}

CPU_INLINE __m512
cpu_sigmoid(__m512 x)
{
    return cpu_reciprocal(_mm512_add_ps(cpu_all(1), cpu_exponential(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

CPU_INLINE __m512
cpu_tanh(__m512 x)
{
    return _mm512_fmsub_ps(cpu_all(2), cpu_sigmoid(_mm512_add_ps(x, x)), cpu_all(1));
}

#endif /* LEAT_KERNELS_CPU_EXPONENTIAL_H */
