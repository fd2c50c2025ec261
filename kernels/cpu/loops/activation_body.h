/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/activation_body.h - cpu_activate() in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/exponential.h"

#define SQRT_2_OVER_PI 0.797884560802865356

CPU_INLINE cpu_floats
gelu(cpu_floats x)
{
    const cpu_floats u = CPU_V(mul)(cpu_abs(x), cpu_all(0.707106781186547524));
    const cpu_floats t = cpu_reciprocal(CPU_V(fmadd)(u, cpu_all(0.3275911), cpu_all(1)));
    cpu_floats p = cpu_all(1.061405429);
    p = CPU_V(fmadd)(p, t, cpu_all(-1.453152027));
    p = CPU_V(fmadd)(p, t, cpu_all(1.421413741));
    p = CPU_V(fmadd)(p, t, cpu_all(-0.284496736));
    p = CPU_V(fmadd)(p, t, cpu_all(0.254829592));
    const cpu_floats e = cpu_exponential(CPU_V(fnmadd)(u, u, CPU_V(setzero)()));
    const cpu_floats tail = CPU_V(mul)(CPU_V(mul)(CPU_V(mul)(p, t), e), CPU_V(mul)(x, cpu_all(0.5)));
    /* x (1 - tail') / 2 ... of a negative x the tail is all that is left */
#if CPU_VECTOR_BITS == 512
    const __mmask16 negative = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_sub_ps(x, tail), negative, tail);
#else
    return _mm256_blendv_ps(_mm256_sub_ps(x, tail), tail, x); /* by the sign of x */
#endif
}

CPU_INLINE cpu_floats
activation_of(enum leat_activation activation, cpu_floats x)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID:
        return cpu_sigmoid(x);
    case LEAT_ACTIVATION_TANH:
        return cpu_tanh(x);
    case LEAT_ACTIVATION_SWISH:
        return CPU_V(mul)(x, cpu_sigmoid(x));
    case LEAT_ACTIVATION_GELU:
        return gelu(x);
    default: { /* GELU_TANH: x (1 + tanh(u)) / 2 = x s(2u) */
        const cpu_floats cubic = CPU_V(fmadd)(CPU_V(mul)(x, x), cpu_all(0.044715), cpu_all(1));
        const cpu_floats u = CPU_V(mul)(CPU_V(mul)(x, cubic), cpu_all(2 * SQRT_2_OVER_PI));
        return CPU_V(mul)(x, cpu_sigmoid(u));
    }
    }
}

CPU_INLINE void
activate_all(const enum leat_activation activation, float *y, size_t count)
{
    size_t i = 0;
    for (; i + 2 * CPU_LANES <= count; i += 2 * CPU_LANES) { /* two at a time hide each other's latency */
        const cpu_floats a = CPU_V(loadu)(y + i), b = CPU_V(loadu)(y + i + CPU_LANES);
        CPU_V(storeu)(y + i, activation_of(activation, a));
        CPU_V(storeu)(y + i + CPU_LANES, activation_of(activation, b));
    }
    for (; i < count; i += CPU_LANES) {
        const int64_t left = (int64_t)(count - i);
        cpu_store_first(y + i, left, activation_of(activation, cpu_load_first(y + i, left)));
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_activate)(enum leat_activation activation, float *y, size_t count)
{
    switch (activation) {
    case LEAT_ACTIVATION_SIGMOID: activate_all(LEAT_ACTIVATION_SIGMOID, y, count); break;
    case LEAT_ACTIVATION_TANH: activate_all(LEAT_ACTIVATION_TANH, y, count); break;
    case LEAT_ACTIVATION_SWISH: activate_all(LEAT_ACTIVATION_SWISH, y, count); break;
    case LEAT_ACTIVATION_GELU: activate_all(LEAT_ACTIVATION_GELU, y, count); break;
    default: activate_all(LEAT_ACTIVATION_GELU_TANH, y, count);
    }
}
