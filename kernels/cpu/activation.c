/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/activation.h"

#include "base/status.h"
#include "kernels/cpu/exponential.h"

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

bool
cpu_activation_runs_here(enum leat_activation activation)
{
    return __builtin_cpu_supports("avx512f") &&
           (activation == LEAT_ACTIVATION_SIGMOID || activation == LEAT_ACTIVATION_TANH ||
            activation == LEAT_ACTIVATION_SWISH || activation == LEAT_ACTIVATION_GELU ||
            activation == LEAT_ACTIVATION_GELU_TANH);
}

CPU_AVX512 void
cpu_activate(enum leat_activation activation, float *y, size_t count)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID:
        activate_all(LEAT_ACTIVATION_SIGMOID, y, count);
        break;
    case LEAT_ACTIVATION_TANH:
        activate_all(LEAT_ACTIVATION_TANH, y, count);
        break;
    case LEAT_ACTIVATION_SWISH:
        activate_all(LEAT_ACTIVATION_SWISH, y, count);
        break;
    case LEAT_ACTIVATION_GELU:
        activate_all(LEAT_ACTIVATION_GELU, y, count);
        break;
    default:
        LEAT_ASSERT(activation == LEAT_ACTIVATION_GELU_TANH);
        activate_all(LEAT_ACTIVATION_GELU_TANH, y, count);
    }
}
