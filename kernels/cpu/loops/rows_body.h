/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/rows_body.h - the functions of rows.h in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/rows.h"

#define RUN (4 * CPU_LANES) /* floats at a time: four vectors hide each other's latency */

/* ---- The greatest and the least --------------------------------------------------------------------- */

/* Which lanes have been NaN, in x or in y. */
#if CPU_VECTOR_BITS == 512
typedef __mmask16 lanes;

CPU_INLINE lanes
no_numbers(lanes before, __m512 x, __m512 y)
{
    return (lanes)(before | _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q));
}

CPU_INLINE bool
any(lanes x)
{
    return x != 0;
}
#else
typedef __m256 lanes;

CPU_INLINE lanes
no_numbers(lanes before, __m256 x, __m256 y)
{
    return _mm256_or_ps(before, _mm256_cmp_ps(x, y, _CMP_UNORD_Q));
}

CPU_INLINE bool
any(lanes x)
{
    return _mm256_movemask_ps(x) != 0;
}
#endif

CPU_INLINE cpu_floats
beyond(cpu_floats a, cpu_floats b, const bool greatest)
{
    return greatest ? CPU_V(max)(a, b) : CPU_V(min)(a, b);
}

/* Of the lanes of x, none of which is NaN. */
CPU_INLINE float
extreme_lane(cpu_floats x, const bool greatest)
{
#if CPU_VECTOR_BITS == 512
    return greatest ? _mm512_reduce_max_ps(x) : _mm512_reduce_min_ps(x);
#else
    const __m128 low = _mm256_castps256_ps128(x), high = _mm256_extractf128_ps(x, 1);
    const __m128 four = greatest ? _mm_max_ps(low, high) : _mm_min_ps(low, high), turned = _mm_movehl_ps(four, four);
    const __m128 two = greatest ? _mm_max_ps(four, turned) : _mm_min_ps(four, turned), last = _mm_movehdup_ps(two);
    return _mm_cvtss_f32(greatest ? _mm_max_ss(two, last) : _mm_min_ss(two, last));
#endif
}

CPU_INLINE float
extreme(const float *x, size_t count, const bool greatest)
{
    const cpu_floats none = CPU_V(set1)(greatest ? -INFINITY : INFINITY);
    cpu_floats best[4] = {none, none, none, none};
    lanes nans = {0};
    size_t i = 0;

    for (; i + RUN <= count; i += RUN) {
        cpu_floats next[4];
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            next[v] = CPU_V(loadu)(x + i + v * CPU_LANES);
            best[v] = beyond(best[v], next[v], greatest);
        }
        nans = no_numbers(no_numbers(nans, next[0], next[1]), next[2], next[3]);
    }
    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        const cpu_floats next = CPU_V(loadu)(x + i);
        best[0] = beyond(best[0], next, greatest);
        nans = no_numbers(nans, next, next);
    }
    if (i < count) { /* the last vector of the row, of which some have been looked at, if it has one */
        const int64_t left = (int64_t)(count - i);
        const cpu_floats next =
            count >= CPU_LANES ? CPU_V(loadu)(x + count - CPU_LANES) : cpu_first(left, cpu_load_first(x + i, left), none);
        best[1] = beyond(best[1], next, greatest);
        nans = no_numbers(nans, next, next);
    }
    const float found =
        extreme_lane(beyond(beyond(best[0], best[1], greatest), beyond(best[2], best[3], greatest), greatest), greatest);
    return any(nans) ? NAN : found;
}

CPU_KERNEL float
CPU_SIZED(cpu_row_greatest)(const float *x, size_t count)
{
    return extreme(x, count, true);
}

CPU_KERNEL float
CPU_SIZED(cpu_row_least)(const float *x, size_t count)
{
    return extreme(x, count, false);
}

/* A bit for each lane that is beyond the bound, or no number. */
CPU_INLINE uint64_t
beyond_bound(cpu_floats x, cpu_floats bound, const bool greatest)
{
#if CPU_VECTOR_BITS == 512
    return greatest ? _mm512_cmp_ps_mask(x, bound, _CMP_NLE_UQ) : _mm512_cmp_ps_mask(x, bound, _CMP_NGE_UQ);
#else
    const __m256 lanes_beyond = greatest ? _mm256_cmp_ps(x, bound, _CMP_NLE_UQ) : _mm256_cmp_ps(x, bound, _CMP_NGE_UQ);
    return (uint64_t)_mm256_movemask_ps(lanes_beyond);
#endif
}

CPU_INLINE size_t
first_beyond(const float *x, size_t count, float bound, const bool greatest)
{
    const cpu_floats limit = CPU_V(set1)(bound);
    size_t i = 0;

    for (; i + RUN <= count; i += RUN) {
        uint64_t found = 0;
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            found |= beyond_bound(CPU_V(loadu)(x + i + v * CPU_LANES), limit, greatest) << (v * CPU_LANES);
        }
        if (found != 0) {
            return i + (size_t)__builtin_ctzll(found);
        }
    }
    for (; i < count; i += CPU_LANES) {
        const int64_t left = (int64_t)(count - i);
        const uint64_t found = beyond_bound(cpu_first(left, cpu_load_first(x + i, left), limit), limit, greatest);
        if (found != 0) {
            return i + (size_t)__builtin_ctzll(found);
        }
    }
    return count;
}

CPU_KERNEL size_t
CPU_SIZED(cpu_row_first_beyond)(const float *x, size_t count, float bound, bool greatest)
{
    return greatest ? first_beyond(x, count, bound, true) : first_beyond(x, count, bound, false);
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

enum terms { AS_THEY_ARE, MAGNITUDES, SQUARES, EXPONENTIALS };

/* And one more term. */
CPU_INLINE cpu_floats
add_term(cpu_floats sum, cpu_floats d, const enum terms terms)
{
    switch (terms) {
    case MAGNITUDES:
        return CPU_V(add)(sum, cpu_abs(d));
    case SQUARES:
        return CPU_V(fmadd)(d, d, sum);
    case EXPONENTIALS:
        return CPU_V(add)(sum, cpu_unless_below(d, cpu_all(-CPU_EXPONENT_MAX), cpu_exponential(d)));
    default:
        return CPU_V(add)(sum, d);
    }
}

/* Of x[count] less `middle`, or of what is made of each, in floats. */
CPU_INLINE float
sum_run(const float *x, size_t count, float middle, const enum terms terms)
{
    const cpu_floats less = CPU_V(set1)(middle), none = CPU_V(setzero)();
    cpu_floats sums[4] = {none, none, none, none};
    size_t i = 0;

    for (; i + RUN <= count; i += RUN) {
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            sums[v] = add_term(sums[v], CPU_V(sub)(CPU_V(loadu)(x + i + v * CPU_LANES), less), terms);
        }
    }
    for (; i < count; i += CPU_LANES) {
        const int64_t left = (int64_t)(count - i);
        const cpu_floats d = CPU_V(sub)(cpu_load_first(x + i, left), less);
        sums[0] = cpu_first(left, add_term(sums[0], d, terms), sums[0]);
    }
    return cpu_sum(CPU_V(add)(CPU_V(add)(sums[0], sums[1]), CPU_V(add)(sums[2], sums[3])));
}

CPU_INLINE double
total(const float *x, size_t count, float middle, const enum terms terms)
{
    const size_t most = CPU_ROW_TERMS * RUN;
    double sum = 0;

    for (size_t i = 0; i < count; i += most) {
        sum += (double)sum_run(x + i, count - i < most ? count - i : most, middle, terms);
    }
    return sum;
}

CPU_KERNEL double
CPU_SIZED(cpu_row_total)(const float *x, size_t count)
{
    return total(x, count, 0, AS_THEY_ARE);
}

CPU_KERNEL double
CPU_SIZED(cpu_row_magnitudes)(const float *x, size_t count)
{
    return total(x, count, 0, MAGNITUDES);
}

CPU_KERNEL double
CPU_SIZED(cpu_row_squares)(const float *x, size_t count)
{
    return total(x, count, 0, SQUARES);
}

CPU_KERNEL double
CPU_SIZED(cpu_row_exponentials)(const float *x, size_t count, float less)
{
    return total(x, count, less, EXPONENTIALS);
}

CPU_KERNEL void
CPU_SIZED(cpu_add_exponentials)(const float *x, size_t terms, size_t stride, size_t width, const float *less, double *totals)
{
    float each[CPU_LANES];

    for (size_t c = 0; c < width; c += CPU_LANES) {
        const int64_t left = (int64_t)(width - c);
        const cpu_floats most = cpu_load_first(less + c, left);
        for (size_t first = 0; first < terms; first += CPU_ROW_TERMS) {
            const size_t end = terms - first < CPU_ROW_TERMS ? terms : first + CPU_ROW_TERMS;
            cpu_floats sum = CPU_V(setzero)();
            for (size_t t = first; t < end; t++) {
                sum = add_term(sum, CPU_V(sub)(cpu_load_first(x + t * stride + c, left), most), EXPONENTIALS);
            }
            CPU_V(storeu)(each, sum);
            for (size_t l = 0; l < CPU_LANES && c + l < width; l++) {
                totals[c + l] += (double)each[l];
            }
        }
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_add_moments)(const float *x, size_t count, float middle, double *sum, double *squares)
{
    const size_t most = CPU_ROW_TERMS * RUN;

    for (size_t i = 0; i < count; i += most) { /* which the first-level cache has when it is read again */
        const size_t some = count - i < most ? count - i : most;
        *sum += (double)sum_run(x + i, some, middle, AS_THEY_ARE);
        *squares += (double)sum_run(x + i, some, middle, SQUARES);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_add_column_moments)(const float *x, size_t terms, size_t stride, size_t width, const float *middle, double *sums,
                                  double *squares)
{
    float each[2][CPU_LANES];

    for (size_t c = 0; c < width; c += CPU_LANES) {
        const int64_t left = (int64_t)(width - c);
        const cpu_floats less = cpu_load_first(middle + c, left);
        for (size_t first = 0; first < terms; first += CPU_ROW_TERMS) {
            const size_t end = terms - first < CPU_ROW_TERMS ? terms : first + CPU_ROW_TERMS;
            cpu_floats sum = CPU_V(setzero)(), square = sum;
            for (size_t t = first; t < end; t++) {
                const cpu_floats d = CPU_V(sub)(cpu_load_first(x + t * stride + c, left), less);
                sum = CPU_V(add)(sum, d);
                square = CPU_V(fmadd)(d, d, square);
            }
            CPU_V(storeu)(each[0], sum);
            CPU_V(storeu)(each[1], square);
            for (size_t l = 0; l < CPU_LANES && c + l < width; l++) {
                sums[c + l] += (double)each[0][l];
                squares[c + l] += (double)each[1][l];
            }
        }
    }
}

/* ---- Normalisation ---------------------------------------------------------------------------------- */

CPU_KERNEL void
CPU_SIZED(cpu_move_row)(const float *x, size_t count, float middle, float by, float shift, float *y)
{
    const cpu_floats less = CPU_V(set1)(middle), times = CPU_V(set1)(by), more = CPU_V(set1)(shift);

    for (size_t i = 0; i < count; i += CPU_LANES) {
        const int64_t left = (int64_t)(count - i);
        cpu_store_first(y + i, left, CPU_V(fmadd)(CPU_V(sub)(cpu_load_first(x + i, left), less), times, more));
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_move_columns)(const float *x, size_t terms, size_t stride, size_t width, const float *middle, const float *by,
                            const float *shift, float *y)
{
    for (size_t c = 0; c < width; c += CPU_LANES) {
        const int64_t left = (int64_t)(width - c);
        const cpu_floats less = cpu_load_first(middle + c, left), times = cpu_load_first(by + c, left);
        const cpu_floats more = cpu_load_first(shift + c, left);
        for (size_t t = 0; t < terms; t++) {
            const cpu_floats d = CPU_V(sub)(cpu_load_first(x + t * stride + c, left), less);
            cpu_store_first(y + t * stride + c, left, CPU_V(fmadd)(d, times, more));
        }
    }
}

/* y = (x - middle) * by + shift; middle is the mean as a float has it, and shift makes up for what that is beside it. */
struct affine {
    float middle, by, shift;
};

CPU_INLINE struct affine
affine_of(double mean, double squares, double count, float epsilon, float scale, float shift)
{
    const double beside = (double)(float)mean - mean, variance = squares / count - beside * beside;
    const double by = (double)scale / sqrt((variance > 0 ? variance : variance * 0) + (double)epsilon);
    return (struct affine){(float)mean, (float)by, (float)((double)shift + beside * by)};
}

CPU_KERNEL void
CPU_SIZED(cpu_normalise_plane)(const float *x, size_t count, float epsilon, float scale, float shift, float *y)
{
    const double mean = total(x, count, 0, AS_THEY_ARE) / (double)count;
    const struct affine to = affine_of(mean, total(x, count, (float)mean, SQUARES), (double)count, epsilon, scale, shift);

    CPU_SIZED(cpu_move_row)(x, count, to.middle, to.by, to.shift, y);
}

/* Of each lane: of x less `middle`, or of their squares. */
CPU_INLINE void
total_of_lanes(const float *x, size_t count, size_t stride, cpu_floats middle, const bool squares, double ret[CPU_LANES])
{
    const size_t most = CPU_ROW_TERMS * 4;
    float each[CPU_LANES];

    for (size_t l = 0; l < CPU_LANES; l++) {
        ret[l] = 0;
    }
    for (size_t first = 0; first < count; first += most) {
        const size_t end = count - first < most ? count : first + most, whole = first + (end - first) / 4 * 4;
        cpu_floats sums[4] = {CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)()};
        for (size_t i = first; i < whole; i += 4) {
#pragma GCC unroll 4
            for (size_t v = 0; v < 4; v++) {
                const cpu_floats d = CPU_V(sub)(CPU_V(loadu)(x + (i + v) * stride), middle);
                sums[v] = squares ? CPU_V(fmadd)(d, d, sums[v]) : CPU_V(add)(sums[v], d);
            }
        }
        for (size_t i = whole; i < end; i++) {
            const cpu_floats d = CPU_V(sub)(CPU_V(loadu)(x + i * stride), middle);
            sums[0] = squares ? CPU_V(fmadd)(d, d, sums[0]) : CPU_V(add)(sums[0], d);
        }
        CPU_V(storeu)(each, CPU_V(add)(CPU_V(add)(sums[0], sums[1]), CPU_V(add)(sums[2], sums[3])));
        for (size_t l = 0; l < CPU_LANES; l++) {
            ret[l] += (double)each[l];
        }
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_normalise_channels)(const float *x, size_t count, size_t stride, float epsilon, const float *scale, const float *shift,
                                  float *y)
{
    double totals[CPU_LANES], squares[CPU_LANES];
    float middle[CPU_LANES], by[CPU_LANES], moved[CPU_LANES];

    total_of_lanes(x, count, stride, CPU_V(setzero)(), false, totals);
    for (size_t l = 0; l < CPU_LANES; l++) {
        middle[l] = (float)(totals[l] / (double)count);
    }
    total_of_lanes(x, count, stride, CPU_V(loadu)(middle), true, squares);
    for (size_t l = 0; l < CPU_LANES; l++) {
        const struct affine to = affine_of(totals[l] / (double)count, squares[l], (double)count, epsilon, scale[l], shift[l]);
        by[l] = to.by;
        moved[l] = to.shift;
    }
    const cpu_floats m = CPU_V(loadu)(middle), b = CPU_V(loadu)(by), s = CPU_V(loadu)(moved);
    for (size_t i = 0; i < count; i++) {
        CPU_V(storeu)(y + i * stride, CPU_V(fmadd)(CPU_V(sub)(CPU_V(loadu)(x + i * stride), m), b, s));
    }
}
