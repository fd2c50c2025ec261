/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/fourier_body.h - the functions of fourier.h in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <string.h>

#include "kernels/cpu/loops/fourier.h"
#include "kernels/cpu/loops/product.h"

_Static_assert(CPU_LANES <= CPU_FOURIER_ASIDE, "a vector fits beside a plane");

/* Complex numbers, and where many of them lie. */
struct numbers {
    cpu_floats re, im;
};

struct planes {
    float *re, *im;
};

/* ---- Complex numbers -------------------------------------------------------------------------------- */

CPU_INLINE struct numbers
load(struct planes from, size_t i)
{
    return (struct numbers){CPU_V(loadu)(from.re + i), CPU_V(loadu)(from.im + i)};
}

CPU_INLINE void
store(struct planes to, size_t i, struct numbers a)
{
    CPU_V(storeu)(to.re + i, a.re);
    CPU_V(storeu)(to.im + i, a.im);
}

CPU_INLINE struct numbers
plus(struct numbers a, struct numbers b)
{
    return (struct numbers){CPU_V(add)(a.re, b.re), CPU_V(add)(a.im, b.im)};
}

CPU_INLINE struct numbers
minus(struct numbers a, struct numbers b)
{
    return (struct numbers){CPU_V(sub)(a.re, b.re), CPU_V(sub)(a.im, b.im)};
}

CPU_INLINE struct numbers
times(struct numbers a, cpu_floats re, cpu_floats im)
{
    return (struct numbers){CPU_V(fmsub)(a.re, re, CPU_V(mul)(a.im, im)), CPU_V(fmadd)(a.re, im, CPU_V(mul)(a.im, re))};
}

/* a less i b. */
CPU_INLINE struct numbers
minus_turned(struct numbers a, struct numbers b)
{
    return (struct numbers){CPU_V(add)(a.re, b.im), CPU_V(sub)(a.im, b.re)};
}

CPU_INLINE struct numbers
plus_turned(struct numbers a, struct numbers b)
{
    return (struct numbers){CPU_V(sub)(a.re, b.im), CPU_V(add)(a.im, b.re)};
}

/* In the other order; pairs of two vectors apart; and the pairs again. */
#if CPU_VECTOR_BITS == 512
CPU_INLINE __m512
reversed(__m512 x)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), x);
}

CPU_INLINE struct numbers
apart(__m512 a, __m512 b)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return (struct numbers){_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}

CPU_INLINE void
pairs(struct numbers a, __m512 ret[2])
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    ret[0] = _mm512_permutex2var_ps(a.re, low, a.im);
    ret[1] = _mm512_permutex2var_ps(a.re, _mm512_add_epi32(low, _mm512_set1_epi32(8)), a.im);
}
#else
CPU_INLINE __m256
reversed(__m256 x)
{
    return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

CPU_INLINE struct numbers
apart(__m256 a, __m256 b)
{
    const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    return (struct numbers){_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd)};
}

CPU_INLINE void
pairs(struct numbers a, __m256 ret[2])
{
    const __m256 low = _mm256_unpacklo_ps(a.re, a.im), high = _mm256_unpackhi_ps(a.re, a.im);
    ret[0] = _mm256_permute2f128_ps(low, high, 0x20);
    ret[1] = _mm256_permute2f128_ps(low, high, 0x31);
}
#endif

/* ---- Passes ----------------------------------------------------------------------------------------- */

/* An odd number of them: what two that are as far from either end have in common is computed once. */
CPU_INLINE void
transform_odd(struct numbers *a, const size_t radix, const float *roots)
{
    struct numbers sums[CPU_RADIX_MAX / 2], differences[CPU_RADIX_MAX / 2];
    const struct numbers first = a[0];

#pragma GCC unroll 2
    for (size_t k = 1; k <= radix / 2; k++) {
        sums[k - 1] = plus(a[k], a[radix - k]);
        differences[k - 1] = minus(a[k], a[radix - k]);
        a[0] = plus(a[0], sums[k - 1]);
    }
#pragma GCC unroll 2
    for (size_t j = 1; j <= radix / 2; j++) {
        struct numbers even = first, odd = {CPU_V(setzero)(), CPU_V(setzero)()};
        size_t at = 0;
#pragma GCC unroll 2
        for (size_t k = 0; k < radix / 2; k++) {
            at = at + j < radix ? at + j : at + j - radix;
            const cpu_floats cosine = CPU_V(set1)(roots[2 * at]), sine = CPU_V(set1)(roots[2 * at + 1]);
            even.re = CPU_V(fmadd)(sums[k].re, cosine, even.re);
            even.im = CPU_V(fmadd)(sums[k].im, cosine, even.im);
            odd.re = CPU_V(fmadd)(differences[k].re, sine, odd.re);
            odd.im = CPU_V(fmadd)(differences[k].im, sine, odd.im);
        }
        a[j] = minus_turned(even, odd);
        a[radix - j] = plus_turned(even, odd);
    }
}

CPU_INLINE void
transform_few(struct numbers *a, const size_t radix, const float *roots)
{
    if (radix == 2) {
        const struct numbers first = a[0];
        a[0] = plus(first, a[1]);
        a[1] = minus(first, a[1]);
    } else if (radix == 4) {
        const struct numbers even = plus(a[0], a[2]), odd = plus(a[1], a[3]);
        const struct numbers even_less = minus(a[0], a[2]), odd_less = minus(a[1], a[3]);
        a[0] = plus(even, odd);
        a[1] = minus_turned(even_less, odd_less);
        a[2] = minus(even, odd);
        a[3] = plus_turned(even_less, odd_less);
    } else {
        transform_odd(a, radix, roots);
    }
}

/* x[radix][rest][stride] becomes y[rest][radix][stride]. */
CPU_INLINE void
pass(struct planes x, struct planes y, const size_t radix, size_t rest, size_t stride, const float *factors, const float *roots)
{
    for (size_t p = 0; p < rest; p++) {
        const float *turn = factors + 2 * p * (radix - 1);
        for (size_t q = 0; q < stride; q += CPU_LANES) {
            struct numbers a[CPU_RADIX_MAX];
#pragma GCC unroll 5
            for (size_t k = 0; k < radix; k++) {
                a[k] = load(x, (k * rest + p) * stride + q);
            }
            transform_few(a, radix, roots);
            store(y, p * radix * stride + q, a[0]);
#pragma GCC unroll 4
            for (size_t j = 1; j < radix; j++) {
                const cpu_floats re = CPU_V(set1)(turn[2 * j - 2]), im = CPU_V(set1)(turn[2 * j - 1]);
                store(y, (p * radix + j) * stride + q, p == 0 ? a[j] : times(a[j], re, im));
            }
        }
    }
}

/* cos(2 pi i / 16) */
static const float sixteenths[16] = {1,  0.92387953251128674f,  0.70710678118654752f,  0.38268343236508977f,
                                     0,  -0.38268343236508977f, -0.70710678118654752f, -0.92387953251128674f,
                                     -1, -0.92387953251128674f, -0.70710678118654752f, -0.38268343236508977f,
                                     0,  0.38268343236508977f,  0.70710678118654752f,  0.92387953251128674f};

/* Those that are `half` apart, of twice as many each. */
CPU_INLINE void
halve(struct numbers *a, const size_t half)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < CPU_LANES / 2; i++) {
        const size_t j = i % half, at = i / half * 2 * half + j, sixteenth = j * 8 / half;
        const struct numbers first = a[at], second = a[at + half];
        a[at] = plus(first, second);
        a[at + half] = minus(first, second);
        if (2 * j == half) {
            a[at + half] = minus_turned((struct numbers){CPU_V(setzero)(), CPU_V(setzero)()}, a[at + half]);
        } else if (j > 0) {
            a[at + half] = times(a[at + half], CPU_V(set1)(sixteenths[sixteenth]), CPU_V(set1)(sixteenths[(sixteenth + 4) % 16]));
        }
    }
}

CPU_INLINE size_t
bits_reversed(size_t i)
{
    const size_t four = (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3;
    return CPU_LANES == 16 ? four : four >> 1;
}

/* The lanes of x[rows][lanes] have been transformed: y[lanes][rows] is the transform of all. */
CPU_INLINE void
transform_across(struct planes x, struct planes y, size_t rows, const float *turns)
{
    for (size_t p = 0; p < rows; p += CPU_LANES) {
        const int64_t left = (int64_t)(rows - p);
        cpu_floats re[CPU_LANES], im[CPU_LANES];
        struct numbers a[CPU_LANES];
#pragma GCC unroll 16
        for (size_t r = 0; r < CPU_LANES; r++) {
            const size_t at = p + r < rows ? p + r : p; /* of what is not there nothing is stored */
            const float *turn = turns + 2 * at * CPU_LANES;
            const struct numbers turned = times(load(x, at * CPU_LANES), CPU_V(loadu)(turn), CPU_V(loadu)(turn + CPU_LANES));
            re[r] = turned.re;
            im[r] = turned.im;
        }
        cpu_transpose(re);
        cpu_transpose(im);
#pragma GCC unroll 16
        for (size_t l = 0; l < CPU_LANES; l++) {
            a[l] = (struct numbers){re[l], im[l]};
        }
        if (CPU_LANES == 16) {
            halve(a, 8);
        }
        halve(a, 4);
        halve(a, 2);
        halve(a, 1);
#pragma GCC unroll 16
        for (size_t l = 0; l < CPU_LANES; l++) {
            cpu_store_first(y.re + bits_reversed(l) * rows + p, left, a[l].re);
            cpu_store_first(y.im + bits_reversed(l) * rows + p, left, a[l].im);
        }
    }
}

/* What lies in `x`; where it is then is returned, and the other one in *ret_free. */
CPU_KERNEL static struct planes
transform(const struct cpu_fourier *fourier, struct planes x, struct planes y, struct planes *ret_free)
{
    const float *table = (const float *)fourier, *factors = table + fourier->factors, *roots = table + fourier->roots;
    size_t rest = fourier->rows, stride = CPU_LANES;

    for (uint32_t i = 0; i < fourier->passes; i++) {
        const size_t radix = fourier->radices[i];
        const struct planes from = x;
        rest /= radix;
        switch (radix) {
        case 2:
            pass(x, y, 2, rest, stride, factors, roots);
            break;
        case 3:
            pass(x, y, 3, rest, stride, factors, roots);
            break;
        case 4:
            pass(x, y, 4, rest, stride, factors, roots);
            break;
        case 5:
            pass(x, y, 5, rest, stride, factors, roots);
            break;
        default:
            pass(x, y, radix, rest, stride, factors, roots);
        }
        factors += 2 * rest * (radix - 1);
        roots += radix % 2 != 0 ? 2 * radix : 0;
        stride *= radix;
        x = y;
        y = from;
    }
    if (fourier->across) {
        const struct planes from = x;
        transform_across(x, y, fourier->rows, table + fourier->turns);
        x = y;
        y = from;
    }
    *ret_free = y;
    return x;
}

/* ---- Around them ------------------------------------------------------------------------------------ */

CPU_INLINE size_t
place_of(const struct cpu_fourier *fourier, size_t transform_number, size_t inner, size_t outer)
{
    return transform_number / fourier->beside * outer + transform_number % fourier->beside * inner;
}

/* Elements from, from + 1, .. of a transform as complex numbers, `stride` floats apart. */
CPU_INLINE void
gather(const struct cpu_fourier *fourier, const float *x, const float *window, size_t from, size_t stride, struct planes to)
{
    const size_t step = fourier->step, given = fourier->given, each = fourier->halved ? 2 : 1;
    const float sign = fourier->inverse ? -1 : 1;

    for (size_t n = from; n < fourier->points; n++) {
        const size_t i = n * each;
        const float by = window != NULL && i < given ? window[i] : 1, next = window != NULL && i + 1 < given ? window[i + 1] : 1;
        to.re[n * stride] = i < given ? x[i * step] * by : 0;
        to.im[n * stride] = fourier->halved       ? (i + 1 < given ? x[(i + 1) * step] * next : 0)
                            : fourier->parts == 2 ? (i < given ? sign * x[i * step + 1] * by : 0)
                                                  : 0;
    }
}

/* The same of one transform, in vectors where pairs follow each other. */
CPU_INLINE void
gather_one(const struct cpu_fourier *fourier, const float *x, const float *window, struct planes to)
{
    const bool follow = fourier->step == fourier->parts && (fourier->halved || (fourier->parts == 2 && window == NULL));
    const size_t there = follow ? fourier->given * fourier->parts / (2 * CPU_LANES) * CPU_LANES : 0;
    const size_t whole = there < fourier->points ? there : fourier->points / CPU_LANES * CPU_LANES;
    const cpu_floats sign = CPU_V(set1)(fourier->inverse && !fourier->halved ? -1.0f : 1.0f);

    for (size_t n = 0; n < whole; n += CPU_LANES) {
        cpu_floats low = CPU_V(loadu)(x + 2 * n), high = CPU_V(loadu)(x + 2 * n + CPU_LANES);
        if (window != NULL) {
            low = CPU_V(mul)(low, CPU_V(loadu)(window + 2 * n));
            high = CPU_V(mul)(high, CPU_V(loadu)(window + 2 * n + CPU_LANES));
        }
        const struct numbers a = apart(low, high);
        store(to, n, (struct numbers){a.re, CPU_V(mul)(a.im, sign)});
    }
    gather(fourier, x, window, whole, 1, to);
}

/* One bin of real numbers, z at k of the transform of their pairs, the other at its mirror image. */
CPU_INLINE struct numbers
bin_of_halves(struct numbers z, struct numbers mirrored, cpu_floats re, cpu_floats im)
{
    const cpu_floats half = CPU_V(set1)(0.5f);
    const struct numbers conjugate = {mirrored.re, CPU_V(sub)(CPU_V(setzero)(), mirrored.im)};
    const struct numbers even = plus(z, conjugate), odd = minus(z, conjugate);
    const struct numbers turned = times((struct numbers){odd.im, CPU_V(sub)(CPU_V(setzero)(), odd.re)}, re, im);
    const struct numbers twice = plus(even, turned);
    return (struct numbers){CPU_V(mul)(twice.re, half), CPU_V(mul)(twice.im, half)};
}

/* The transforms of CPU_LANES real signals from those of their pairs. */
CPU_INLINE void
join_lanes(const struct cpu_fourier *fourier, struct planes z, struct planes y)
{
    const size_t points = fourier->points, all = points + CPU_FOURIER_ASIDE;
    const float *halves = (const float *)fourier + fourier->halves;

    for (size_t k = 0; k <= points; k++) {
        const struct numbers at = load(z, (k < points ? k : 0) * CPU_LANES), mirrored = load(z, (k > 0 ? points - k : 0) * CPU_LANES);
        store(y, k * CPU_LANES, bin_of_halves(at, mirrored, CPU_V(set1)(halves[k]), CPU_V(set1)(halves[all + k])));
    }
    for (size_t k = points + 1; k < fourier->bins; k++) {
        const struct numbers a = load(y, (fourier->length - k) * CPU_LANES);
        store(y, k * CPU_LANES, (struct numbers){a.re, CPU_V(sub)(CPU_V(setzero)(), a.im)});
    }
}

/* The same of one. */
CPU_INLINE void
join_one(const struct cpu_fourier *fourier, struct planes z, struct planes y)
{
    const size_t points = fourier->points, all = points + CPU_FOURIER_ASIDE;
    const float *halves = (const float *)fourier + fourier->halves;

    z.re[points] = z.re[0];
    z.im[points] = z.im[0];
    for (size_t k = 0; k <= points; k += CPU_LANES) {
        const float *re = z.re + points - k - (CPU_LANES - 1), *im = z.im + points - k - (CPU_LANES - 1);
        const struct numbers mirrored = {reversed(CPU_V(loadu)(re)), reversed(CPU_V(loadu)(im))};
        store(y, k, bin_of_halves(load(z, k), mirrored, CPU_V(loadu)(halves + k), CPU_V(loadu)(halves + all + k)));
    }
    for (size_t k = points + 1; k < fourier->bins; k++) {
        y.re[k] = y.re[fourier->length - k];
        y.im[k] = -y.im[fourier->length - k];
    }
}

/* Times other ones, the first `count`, or more. */
CPU_INLINE void
multiply(struct planes a, const float *by, size_t size, size_t count)
{
    for (size_t i = 0; i < count; i += CPU_LANES) {
        store(a, i, times(load(a, i), CPU_V(loadu)(by + i), CPU_V(loadu)(by + size + i)));
    }
}

CPU_INLINE void
scatter(const struct cpu_fourier *fourier, struct planes from, size_t stride, size_t first, float *y)
{
    const float scale = fourier->inverse ? 1 / (float)fourier->length : 1, sign = fourier->inverse ? -scale : scale;

    for (size_t k = first; k < fourier->bins; k++) {
        y[k * fourier->result_step] = from.re[k * stride] * scale;
        y[k * fourier->result_step + 1] = from.im[k * stride] * sign;
    }
}

CPU_INLINE void
scatter_one(const struct cpu_fourier *fourier, struct planes from, float *y)
{
    const float scale = fourier->inverse ? 1 / (float)fourier->length : 1;
    const cpu_floats by = CPU_V(set1)(scale), sign = CPU_V(set1)(fourier->inverse ? -scale : scale);
    const size_t whole = fourier->result_step == 2 ? fourier->bins / CPU_LANES * CPU_LANES : 0;

    for (size_t k = 0; k < whole; k += CPU_LANES) {
        const struct numbers a = load(from, k);
        cpu_floats both[2];
        pairs((struct numbers){CPU_V(mul)(a.re, by), CPU_V(mul)(a.im, sign)}, both);
        CPU_V(storeu)(y + 2 * k, both[0]);
        CPU_V(storeu)(y + 2 * k + CPU_LANES, both[1]);
    }
    scatter(fourier, from, 1, whole, y);
}

CPU_INLINE void
transform_one(const struct cpu_fourier *fourier, const float *x, const float *window, float *y, struct planes a, struct planes b)
{
    const float *table = (const float *)fourier;
    const size_t size = fourier->size;

    gather_one(fourier, x, window, a);
    if (fourier->convolves) {
        memset(a.re + fourier->points, 0, (size - fourier->points) * sizeof(float));
        memset(a.im + fourier->points, 0, (size - fourier->points) * sizeof(float));
        multiply(a, table + fourier->chirp, size, size);
    }
    a = transform(fourier, a, b, &b);
    if (fourier->convolves) { /* the inverse of one with parts exchanged is the transform with parts exchanged */
        multiply(a, table + fourier->spectrum, size, size);
        a = transform(fourier, (struct planes){a.im, a.re}, b, &b);
        a = (struct planes){a.im, a.re};
        multiply(a, table + fourier->chirp, size, fourier->points);
    }
    if (fourier->halved) {
        join_one(fourier, a, b);
    }
    scatter_one(fourier, fourier->halved ? b : a, y);
}

CPU_INLINE void
transform_lanes(const struct cpu_fourier *fourier, const float *x, const float *window, float *y, size_t first, size_t end,
                struct planes a, struct planes b)
{
    for (size_t l = 0; l < CPU_LANES; l++) {
        const struct planes lane = {a.re + l, a.im + l};
        if (first + l < end) {
            gather(fourier, x + place_of(fourier, first + l, fourier->inner, fourier->outer), window, 0, CPU_LANES, lane);
        }
        for (size_t n = 0; n < fourier->points && first + l >= end; n++) {
            lane.re[n * CPU_LANES] = lane.im[n * CPU_LANES] = 0;
        }
    }
    a = transform(fourier, a, b, &b);
    if (fourier->halved) {
        join_lanes(fourier, a, b);
        a = b;
    }
    for (size_t l = 0; l < CPU_LANES && first + l < end; l++) {
        float *to = y + place_of(fourier, first + l, fourier->result_inner, fourier->result_outer);
        scatter(fourier, (struct planes){a.re + l, a.im + l}, CPU_LANES, 0, to);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_fourier)(const struct cpu_fourier *fourier, const float *x, const float *window, float *y, size_t first, size_t end,
                       float *scratch)
{
    float *planes = scratch + CPU_FOURIER_ASIDE;
    const struct planes a = {planes, planes + fourier->plane};
    const struct planes b = {planes + 2 * fourier->plane, planes + 3 * fourier->plane};

    for (size_t t = first; t < end; t += fourier->across ? 1 : CPU_LANES) {
        if (fourier->across) {
            transform_one(fourier, x + place_of(fourier, t, fourier->inner, fourier->outer), window,
                          y + place_of(fourier, t, fourier->result_inner, fourier->result_outer), a, b);
        } else {
            transform_lanes(fourier, x, window, y, t, end, a, b);
        }
    }
}
