/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/activation.h"

#include <string.h>

#include "base/status.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/isa.h"

#define SQRT_2_OVER_PI 0.797884560802865356

CPU_INLINE __m512
gelu(__m512 x)
{
    const __m512 u = _mm512_mul_ps(_mm512_abs_ps(x), cpu_all(0.707106781186547524));
    const __m512 t = cpu_reciprocal(_mm512_fmadd_ps(u, cpu_all(0.3275911), cpu_all(1)));
    __m512 p = cpu_all(1.061405429);
    p = _mm512_fmadd_ps(p, t, cpu_all(-1.453152027));
    p = _mm512_fmadd_ps(p, t, cpu_all(1.421413741));
    p = _mm512_fmadd_ps(p, t, cpu_all(-0.284496736));
    p = _mm512_fmadd_ps(p, t, cpu_all(0.254829592));
    const __m512 e = cpu_exponential(_mm512_fnmadd_ps(u, u, _mm512_setzero_ps()));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(p, t), e), _mm512_mul_ps(x, cpu_all(0.5)));
    /* x (1 - tail') / 2 ... of a negative x the tail is all that is left */
    const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_sub_ps(x, tail), negative, tail);
}

CPU_INLINE __m512
activation_of(enum leat_activation activation, __m512 x)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID:
        return cpu_sigmoid(x);
    case LEAT_ACTIVATION_TANH:
        return cpu_tanh(x);
    case LEAT_ACTIVATION_SWISH:
        return _mm512_mul_ps(x, cpu_sigmoid(x));
    case LEAT_ACTIVATION_GELU:
        return gelu(x);
    default: { /* GELU_TANH: x (1 + tanh(u)) / 2 = x s(2u) */
        const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(x, x), cpu_all(0.044715), cpu_all(1));
        const __m512 u = _mm512_mul_ps(_mm512_mul_ps(x, cubic), cpu_all(2 * SQRT_2_OVER_PI));
        return _mm512_mul_ps(x, cpu_sigmoid(u));
    }
    }
}

CPU_INLINE void
activate_all(const enum leat_activation activation, float *y, size_t count)
{
    size_t i = 0;
    for (; i + 2 * CPU_LANES <= count; i += 2 * CPU_LANES) { /* two at a time hide each other's latency */
        const __m512 a = _mm512_loadu_ps(y + i), b = _mm512_loadu_ps(y + i + CPU_LANES);
        _mm512_storeu_ps(y + i, activation_of(activation, a));
        _mm512_storeu_ps(y + i + CPU_LANES, activation_of(activation, b));
    }
    for (; i < count; i += CPU_LANES) {
        const __mmask16 there = (__mmask16)(count - i >= CPU_LANES ? 0xffffu : (1u << (count - i)) - 1);
        _mm512_mask_storeu_ps(y + i, there, activation_of(activation, _mm512_maskz_loadu_ps(there, y + i)));
    }
}

CPU_AVX512 static void
activate_avx512(enum leat_activation activation, float *y, size_t count)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID: activate_all(LEAT_ACTIVATION_SIGMOID, y, count); break;
    case LEAT_ACTIVATION_TANH: activate_all(LEAT_ACTIVATION_TANH, y, count); break;
    case LEAT_ACTIVATION_SWISH: activate_all(LEAT_ACTIVATION_SWISH, y, count); break;
    case LEAT_ACTIVATION_GELU: activate_all(LEAT_ACTIVATION_GELU, y, count); break;
    default: activate_all(LEAT_ACTIVATION_GELU_TANH, y, count);
    }
}

/* ---- Without AVX-512 ---------------------------------------------------------------------------------- */

CPU_HALF_INLINE __m256
half_all(double x)
{
    return _mm256_set1_ps((float)x);
}

/* As cpu_exponential(); the exponent is added as a whole number. */
CPU_HALF_INLINE __m256
half_exponential(__m256 x)
{
    static const double over_factorials[] = {1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1};
    __m256 p = half_all(1.0 / 720);

    x = _mm256_max_ps(half_all(-CPU_EXPONENT_MAX), _mm256_min_ps(half_all(CPU_EXPONENT_MAX), x));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, half_all(CPU_LOG2_E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 r = _mm256_fnmadd_ps(n, half_all(CPU_LN_2_LOW), _mm256_fnmadd_ps(n, half_all(CPU_LN_2_HIGH), x));
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) {
        p = _mm256_fmadd_ps(p, r, half_all(over_factorials[i]));
    }
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

/* 1 / x of normal numbers: an estimate of 12 bits and a step of Newton's. */
CPU_HALF_INLINE __m256
half_reciprocal(__m256 x)
{
    const __m256 y = _mm256_rcp_ps(x);
    return _mm256_mul_ps(y, _mm256_fnmadd_ps(x, y, half_all(2)));
}

CPU_HALF_INLINE __m256
half_sigmoid(__m256 x)
{
    return half_reciprocal(_mm256_add_ps(half_all(1), half_exponential(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

CPU_HALF_INLINE __m256
half_gelu(__m256 x)
{
    static const double a[] = {-1.453152027, 1.421413741, -0.284496736, 0.254829592};
    const __m256 u = _mm256_mul_ps(_mm256_andnot_ps(half_all(-0.0), x), half_all(0.707106781186547524));
    const __m256 t = half_reciprocal(_mm256_fmadd_ps(u, half_all(0.3275911), half_all(1)));
    __m256 p = half_all(1.061405429);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        p = _mm256_fmadd_ps(p, t, half_all(a[i]));
    }
    const __m256 e = half_exponential(_mm256_fnmadd_ps(u, u, _mm256_setzero_ps()));
    const __m256 tail = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(p, t), e), _mm256_mul_ps(x, half_all(0.5)));
    return _mm256_blendv_ps(_mm256_sub_ps(x, tail), tail, x); /* by the sign of x */
}

CPU_HALF_INLINE __m256
half_activation(enum leat_activation activation, __m256 x)
{
    if (activation == LEAT_ACTIVATION_SIGMOID) {
        return half_sigmoid(x);
    }
    if (activation == LEAT_ACTIVATION_TANH) {
        return _mm256_fmsub_ps(half_all(2), half_sigmoid(_mm256_add_ps(x, x)), half_all(1));
    }
    if (activation == LEAT_ACTIVATION_GELU) {
        return half_gelu(x);
    }
    const __m256 cubic = _mm256_fmadd_ps(_mm256_mul_ps(x, x), half_all(0.044715), half_all(1));
    const __m256 u = _mm256_mul_ps(_mm256_mul_ps(x, cubic), half_all(2 * SQRT_2_OVER_PI));
    return _mm256_mul_ps(x, half_sigmoid(activation == LEAT_ACTIVATION_SWISH ? x : u));
}

CPU_HALF_INLINE void
activate_halves(const enum leat_activation activation, float *y, size_t count)
{
    size_t i = 0;
    float last[CPU_HALF] = {0};

    for (; i + 2 * CPU_HALF <= count; i += 2 * CPU_HALF) { /* two at a time hide each other's latency */
        const __m256 a = _mm256_loadu_ps(y + i), b = _mm256_loadu_ps(y + i + CPU_HALF);
        _mm256_storeu_ps(y + i, half_activation(activation, a));
        _mm256_storeu_ps(y + i + CPU_HALF, half_activation(activation, b));
    }
    for (; i < count; i += CPU_HALF) {
        const size_t left = count - i < CPU_HALF ? count - i : CPU_HALF;
        memcpy(last, y + i, left * sizeof(*y));
        _mm256_storeu_ps(last, half_activation(activation, _mm256_loadu_ps(last)));
        memcpy(y + i, last, left * sizeof(*y));
    }
}

CPU_AVX2 static void
activate_avx2(enum leat_activation activation, float *y, size_t count)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID: activate_halves(LEAT_ACTIVATION_SIGMOID, y, count); break;
    case LEAT_ACTIVATION_TANH: activate_halves(LEAT_ACTIVATION_TANH, y, count); break;
    case LEAT_ACTIVATION_SWISH: activate_halves(LEAT_ACTIVATION_SWISH, y, count); break;
    case LEAT_ACTIVATION_GELU: activate_halves(LEAT_ACTIVATION_GELU, y, count); break;
    default: activate_halves(LEAT_ACTIVATION_GELU_TANH, y, count);
    }
}

/* ---- What others call --------------------------------------------------------------------------------- */

bool
cpu_activation_runs_here(enum leat_activation activation)
{
    return cpu_has_avx2() && (activation == LEAT_ACTIVATION_SIGMOID || activation == LEAT_ACTIVATION_TANH ||
                              activation == LEAT_ACTIVATION_SWISH || activation == LEAT_ACTIVATION_GELU ||
                              activation == LEAT_ACTIVATION_GELU_TANH);
}

void
cpu_activate(enum leat_activation activation, float *y, size_t count)
{
    LEAT_ASSERT(cpu_activation_runs_here(activation));
    (cpu_has_avx512() ? activate_avx512 : activate_avx2)(activation, y, count);
}
