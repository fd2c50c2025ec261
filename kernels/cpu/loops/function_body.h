/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/function_body.h - what function.h lists, in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <math.h>

#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/function.h"
#include "kernels/cpu/loops/logarithm.h"

#define TURNS_MAX 65536.0 /* of larger ones the C library takes sine, cosine and tangent */

/* ---- What differs by width -------------------------------------------------------------------------- */

#if CPU_VECTOR_BITS == 512
typedef __m512i whole;

/* Some are not, or are no numbers. */
CPU_INLINE bool
some_beyond(__m512 x, __m512 most)
{
    return _mm512_cmp_ps_mask(x, most, _CMP_NLE_UQ) != 0;
}

CPU_INLINE __m512i
whole_of(__m512 x)
{
    return _mm512_cvtps_epi32(x);
}

CPU_INLINE __m512i
one_more(__m512i x)
{
    return _mm512_add_epi32(x, _mm512_set1_epi32(1));
}

/* `odd` where that is odd, and the other sign where it is 2 or 3 modulo 4. */
CPU_INLINE __m512
by_quarter(__m512i quarter, __m512 even, __m512 odd)
{
    const __m512 y = _mm512_mask_mov_ps(even, _mm512_test_epi32_mask(quarter, _mm512_set1_epi32(1)), odd);
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(quarter, _mm512_set1_epi32(2)), 30);
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(y), sign));
}

/* |y| with the sign of x. */
CPU_INLINE __m512
signed_as(__m512 x, __m512 y)
{
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(y), sign));
}

#define ROUNDED(x, direction) _mm512_roundscale_ps(x, (direction) | _MM_FROUND_NO_EXC)
#else
typedef __m256i whole;

CPU_INLINE bool
some_beyond(__m256 x, __m256 most)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, most, _CMP_NLE_UQ)) != 0;
}

CPU_INLINE __m256i
whole_of(__m256 x)
{
    return _mm256_cvtps_epi32(x);
}

CPU_INLINE __m256i
one_more(__m256i x)
{
    return _mm256_add_epi32(x, _mm256_set1_epi32(1));
}

CPU_INLINE __m256
by_quarter(__m256i quarter, __m256 even, __m256 odd)
{
    const __m256 y = _mm256_blendv_ps(even, odd, _mm256_castsi256_ps(_mm256_slli_epi32(quarter, 31)));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(quarter, _mm256_set1_epi32(2)), 30);
    return _mm256_xor_ps(y, _mm256_castsi256_ps(sign));
}

CPU_INLINE __m256
signed_as(__m256 x, __m256 y)
{
    return _mm256_or_ps(y, _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
}

#define ROUNDED(x, direction) _mm256_round_ps(x, (direction) | _MM_FROUND_NO_EXC)
#endif

/* ---- Functions -------------------------------------------------------------------------------------- */

/* Of y = e^(2 |x|) - 1: y / (y + 2). */
CPU_INLINE cpu_floats
hyperbolic_tangent(cpu_floats x)
{
    const cpu_floats twice = CPU_V(min)(cpu_all(20), CPU_V(mul)(cpu_all(2), cpu_abs(x)));
    const cpu_floats y = cpu_exponential_less_one(twice);
    return signed_as(x, CPU_V(div)(y, CPU_V(add)(y, cpu_all(2))));
}

CPU_INLINE cpu_floats
error_function(cpu_floats x)
{
    const cpu_floats u = CPU_V(min)(cpu_all(10), cpu_abs(x)), square = CPU_V(mul)(u, u);
    const cpu_floats t = cpu_reciprocal(CPU_V(fmadd)(u, cpu_all(0.3275911), cpu_all(1)));
    cpu_floats p = cpu_all(1.061405429), near = cpu_all(-1.0 / 1320);
    p = CPU_V(fmadd)(p, t, cpu_all(-1.453152027));
    p = CPU_V(fmadd)(p, t, cpu_all(1.421413741));
    p = CPU_V(fmadd)(p, t, cpu_all(-0.284496736));
    p = CPU_V(fmadd)(p, t, cpu_all(0.254829592));
    const cpu_floats tail = CPU_V(mul)(CPU_V(mul)(p, t), cpu_exponential(CPU_V(fnmadd)(u, u, CPU_V(setzero)())));
    near = CPU_V(fmadd)(near, square, cpu_all(1.0 / 216));
    near = CPU_V(fmadd)(near, square, cpu_all(-1.0 / 42));
    near = CPU_V(fmadd)(near, square, cpu_all(1.0 / 10));
    near = CPU_V(fmadd)(near, square, cpu_all(-1.0 / 3));
    near = CPU_V(fmadd)(near, square, cpu_all(1));
    near = CPU_V(mul)(CPU_V(mul)(near, u), cpu_all(1.12837916709551257)); /* 2 / sqrt(pi) */
    return signed_as(x, cpu_if_less(u, cpu_all(0.5), near, CPU_V(sub)(cpu_all(1), tail)));
}

/* x is quarter times pi / 2 and what lies between -pi / 4 and pi / 4: of that both. */
CPU_INLINE whole
turned(cpu_floats x, cpu_floats *ret_sine, cpu_floats *ret_cosine)
{
    const cpu_floats n = cpu_round(CPU_V(mul)(x, cpu_all(0.636619772367581343)));
    cpu_floats r = CPU_V(fnmadd)(n, cpu_all(1.57079637050628662109375), x);
    r = CPU_V(fnmadd)(n, cpu_all(-4.37113900018624283e-8), r);
    r = CPU_V(fnmadd)(n, cpu_all(-1.71512451000509e-15), r);
    const cpu_floats square = CPU_V(mul)(r, r);
    cpu_floats s = cpu_all(-1.9515295891e-4), c = cpu_all(2.443315711809948e-5);
    s = CPU_V(fmadd)(s, square, cpu_all(8.3321608736e-3));
    s = CPU_V(fmadd)(s, square, cpu_all(-1.6666654611e-1));
    *ret_sine = CPU_V(fmadd)(CPU_V(mul)(s, square), r, r);
    c = CPU_V(fmadd)(c, square, cpu_all(-1.388731625493765e-3));
    c = CPU_V(fmadd)(c, square, cpu_all(4.166664568298827e-2));
    *ret_cosine = CPU_V(fmadd)(CPU_V(mul)(c, square), square, CPU_V(fnmadd)(square, cpu_all(0.5), cpu_all(1)));
    return whole_of(n);
}

CPU_INLINE cpu_floats
sine(cpu_floats x, const bool cosine)
{
    cpu_floats s, c;
    const whole quarter = turned(x, &s, &c);
    return by_quarter(cosine ? one_more(quarter) : quarter, s, c);
}

CPU_INLINE cpu_floats
tangent(cpu_floats x)
{
    cpu_floats s, c;
    const whole quarter = turned(x, &s, &c);
    return CPU_V(div)(by_quarter(quarter, s, c), by_quarter(one_more(quarter), s, c));
}

/* Of what is beyond tan(pi / 8) and tan(3 pi / 8) it is pi / 4 and pi / 2 more than of another number. */
CPU_INLINE cpu_floats
arc_tangent(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), one = cpu_all(1), low = cpu_all(0.414213562373095), high = cpu_all(2.41421356237309);
    const cpu_floats above = cpu_if_less(low, a, CPU_V(sub)(a, one), a), below = cpu_if_less(low, a, CPU_V(add)(a, one), one);
    const cpu_floats t = CPU_V(div)(cpu_if_less(high, a, cpu_all(-1), above), cpu_if_less(high, a, a, below));
    const cpu_floats square = CPU_V(mul)(t, t);
    cpu_floats p = cpu_all(8.05374449538e-2);
    p = CPU_V(fmadd)(p, square, cpu_all(-1.38776856032e-1));
    p = CPU_V(fmadd)(p, square, cpu_all(1.99777106478e-1));
    p = CPU_V(fmadd)(p, square, cpu_all(-3.33329491539e-1));
    p = CPU_V(fmadd)(CPU_V(mul)(p, square), t, t);
    const cpu_floats more = cpu_if_less(high, a, cpu_all(M_PI / 2), cpu_if_less(low, a, cpu_all(M_PI / 4), CPU_V(setzero)()));
    return signed_as(x, CPU_V(add)(more, p));
}

/* Of a in 0..1 the arc sine; where a is beyond 1/2, half of the arc cosine. */
CPU_INLINE cpu_floats
arc_sine_near(cpu_floats a)
{
    const cpu_floats half = cpu_all(0.5), rest = CPU_V(fnmadd)(half, a, half);
    const cpu_floats square = cpu_if_less(half, a, rest, CPU_V(mul)(a, a)), t = cpu_if_less(half, a, CPU_V(sqrt)(rest), a);
    cpu_floats p = cpu_all(4.2163199048e-2);
    p = CPU_V(fmadd)(p, square, cpu_all(2.4181311049e-2));
    p = CPU_V(fmadd)(p, square, cpu_all(4.5470025998e-2));
    p = CPU_V(fmadd)(p, square, cpu_all(7.4953002686e-2));
    p = CPU_V(fmadd)(p, square, cpu_all(1.6666752422e-1));
    return CPU_V(fmadd)(CPU_V(mul)(p, square), t, t);
}

CPU_INLINE cpu_floats
arc_sine(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), near = arc_sine_near(a);
    return signed_as(x, cpu_if_less(cpu_all(0.5), a, CPU_V(fnmadd)(near, cpu_all(2), cpu_all(M_PI / 2)), near));
}

CPU_INLINE cpu_floats
arc_cosine(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), near = arc_sine_near(a), twice = CPU_V(add)(near, near), zero = CPU_V(setzero)();
    const cpu_floats of_negative = cpu_if_less(cpu_all(0.5), a, CPU_V(sub)(cpu_all(M_PI), twice), CPU_V(add)(cpu_all(M_PI / 2), near));
    const cpu_floats of_others = cpu_if_less(cpu_all(0.5), a, twice, CPU_V(sub)(cpu_all(M_PI / 2), near));
    return cpu_if_less(x, zero, of_negative, of_others);
}

/* Half of e^|x| and of e^-|x|, more or less; of the first's root, which is no more than floats are where that is. */
CPU_INLINE cpu_floats
hyperbolic_cosine(cpu_floats x)
{
    const cpu_floats root = cpu_exponential(CPU_V(mul)(cpu_all(0.5), cpu_abs(x))), half = CPU_V(mul)(cpu_all(0.5), root);
    return CPU_V(fmadd)(half, root, CPU_V(div)(cpu_all(0.5), CPU_V(mul)(root, root)));
}

CPU_INLINE cpu_floats
hyperbolic_sine(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), half = cpu_all(0.5), root = cpu_exponential(CPU_V(mul)(half, a));
    const cpu_floats y = cpu_exponential_less_one(a), near = CPU_V(add)(y, CPU_V(div)(y, CPU_V(add)(y, cpu_all(1))));
    return signed_as(x, cpu_if_less(a, cpu_all(20), CPU_V(mul)(half, near), CPU_V(mul)(CPU_V(mul)(half, root), root)));
}

/* From where on ln(2 |x|) is what ln(|x| + sqrt(x^2 + 1)) and ln(x + sqrt(x^2 - 1)) are: squares are floats below it. */
#define AREA_FAR 1e8

CPU_INLINE cpu_floats
area_sine(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), one = cpu_all(1), far = CPU_V(add)(cpu_logarithm(a), cpu_all(M_LN2));
    const cpu_floats bounded = CPU_V(min)(cpu_all(AREA_FAR), a), square = CPU_V(mul)(bounded, bounded);
    const cpu_floats more = CPU_V(div)(square, CPU_V(add)(one, CPU_V(sqrt)(CPU_V(add)(one, square))));
    return signed_as(x, cpu_if_less(cpu_all(AREA_FAR), a, far, cpu_logarithm_of_more(CPU_V(add)(a, more))));
}

CPU_INLINE cpu_floats
area_cosine(cpu_floats x)
{
    const cpu_floats one = cpu_all(1), far = CPU_V(add)(cpu_logarithm(x), cpu_all(M_LN2));
    const cpu_floats d = CPU_V(sub)(CPU_V(min)(cpu_all(AREA_FAR), x), one);
    const cpu_floats near = cpu_logarithm_of_more(CPU_V(add)(d, CPU_V(sqrt)(CPU_V(fmadd)(d, d, CPU_V(add)(d, d)))));
    return cpu_if_less(x, one, cpu_all((double)NAN), cpu_if_less(cpu_all(AREA_FAR), x, far, near));
}

CPU_INLINE cpu_floats
area_tangent(cpu_floats x)
{
    const cpu_floats a = cpu_abs(x), y = CPU_V(div)(CPU_V(add)(a, a), CPU_V(sub)(cpu_all(1), a));
    return signed_as(x, CPU_V(mul)(cpu_all(0.5), cpu_logarithm_of_more(y)));
}

CPU_INLINE cpu_floats
function_of(const enum leat_op_kind kind, cpu_floats x, cpu_floats a, cpu_floats b)
{
    const cpu_floats zero = CPU_V(setzero)(), one = cpu_all(1);

    switch (kind) {
    case LEAT_OP_ACOS:
        return arc_cosine(x);
    case LEAT_OP_ACOSH:
        return area_cosine(x);
    case LEAT_OP_ASIN:
        return arc_sine(x);
    case LEAT_OP_ASINH:
        return area_sine(x);
    case LEAT_OP_ATAN:
        return arc_tangent(x);
    case LEAT_OP_ATANH:
        return area_tangent(x);
    case LEAT_OP_CEIL:
        return ROUNDED(x, _MM_FROUND_TO_POS_INF);
    case LEAT_OP_CELU:
        return cpu_if_less(x, zero, CPU_V(mul)(a, cpu_exponential_less_one(CPU_V(div)(x, a))), x);
    case LEAT_OP_COS:
        return sine(x, true);
    case LEAT_OP_COSH:
        return hyperbolic_cosine(x);
    case LEAT_OP_ELU:
        return cpu_if_less(x, zero, CPU_V(mul)(a, cpu_exponential_less_one(x)), x);
    case LEAT_OP_ERF:
        return error_function(x);
    case LEAT_OP_FLOOR:
        return ROUNDED(x, _MM_FROUND_TO_NEG_INF);
    case LEAT_OP_HARD_SIGMOID:
        return CPU_V(max)(zero, CPU_V(min)(one, CPU_V(fmadd)(a, x, b)));
    case LEAT_OP_LOG:
        return cpu_logarithm(x);
    case LEAT_OP_ROUND:
        return cpu_round(x);
    case LEAT_OP_SELU:
        return CPU_V(mul)(b, cpu_if_less(x, zero, CPU_V(mul)(a, cpu_exponential_less_one(x)), x));
    case LEAT_OP_SHRINK:
        return cpu_if_less(x, CPU_V(sub)(zero, a), CPU_V(add)(x, b), cpu_if_less(a, x, CPU_V(sub)(x, b), zero));
    case LEAT_OP_SIGMOID:
        return cpu_sigmoid(x);
    case LEAT_OP_SIGN:
        return cpu_if_less(zero, x, one, cpu_if_less(x, zero, cpu_all(-1), x));
    case LEAT_OP_SIN:
        return sine(x, false);
    case LEAT_OP_SINH:
        return hyperbolic_sine(x);
    case LEAT_OP_SOFTPLUS:
        return cpu_soft_plus(x);
    case LEAT_OP_SOFTSIGN:
        return CPU_V(div)(x, CPU_V(add)(one, cpu_abs(x)));
    case LEAT_OP_TAN:
        return tangent(x);
    case LEAT_OP_TANH:
        return hyperbolic_tangent(x);
    default: /* ThresholdedRelu */
        return cpu_if_less(a, x, x, zero);
    }
}

/* ---- Many elements ---------------------------------------------------------------------------------- */

CPU_INLINE void
compute_all(const enum leat_op_kind kind, const struct cpu_parameters *function, const float *x, float *y, size_t count)
{
    const cpu_floats a = CPU_V(set1)(function->a), b = CPU_V(set1)(function->b);
    const bool turns = kind == LEAT_OP_SIN || kind == LEAT_OP_COS || kind == LEAT_OP_TAN;
    size_t i = 0;

    for (; i + 2 * CPU_LANES <= count && !turns; i += 2 * CPU_LANES) { /* two at a time hide each other's latency */
        const cpu_floats p = CPU_V(loadu)(x + i), q = CPU_V(loadu)(x + i + CPU_LANES);
        CPU_V(storeu)(y + i, function_of(kind, p, a, b));
        CPU_V(storeu)(y + i + CPU_LANES, function_of(kind, q, a, b));
    }
    for (; i < count; i += CPU_LANES) {
        const int64_t left = (int64_t)(count - i);
        const cpu_floats p = cpu_load_first(x + i, left);
        if (turns && LEAT_UNLIKELY(some_beyond(cpu_abs(p), cpu_all(TURNS_MAX)))) {
            for (size_t l = i; l < count && l < i + CPU_LANES; l++) {
                const double each = (double)x[l];
                y[l] = (float)(kind == LEAT_OP_SIN ? sin(each) : kind == LEAT_OP_COS ? cos(each) : tan(each));
            }
            continue;
        }
        cpu_store_first(y + i, left, function_of(kind, p, a, b));
    }
}

#define CASE(name)                                              \
    case LEAT_OP_##name:                                        \
        compute_all(LEAT_OP_##name, function, x, y, count);     \
        break

CPU_KERNEL void
CPU_SIZED(cpu_compute)(const struct cpu_parameters *function, const float *x, float *y, size_t count)
{
    switch (function->kind) {
        CASE(ACOS);
        CASE(ACOSH);
        CASE(ASIN);
        CASE(ASINH);
        CASE(ATAN);
        CASE(ATANH);
        CASE(CEIL);
        CASE(CELU);
        CASE(COS);
        CASE(COSH);
        CASE(ELU);
        CASE(ERF);
        CASE(FLOOR);
        CASE(HARD_SIGMOID);
        CASE(LOG);
        CASE(ROUND);
        CASE(SELU);
        CASE(SHRINK);
        CASE(SIGMOID);
        CASE(SIGN);
        CASE(SIN);
        CASE(SINH);
        CASE(SOFTPLUS);
        CASE(SOFTSIGN);
        CASE(TAN);
        CASE(TANH);
    default:
        compute_all(LEAT_OP_THRESHOLDED_RELU, function, x, y, count);
    }
}
