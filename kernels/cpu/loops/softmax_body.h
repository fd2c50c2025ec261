/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/softmax_body.h - what softmax.h lists, in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <math.h>

#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/logarithm.h"
#include "kernels/cpu/loops/softmax.h"

enum { VECTORS_MAX = 4, TERMS = 128 /* that are added up one after another */ };

/* `columns` of them, which `vectors`, a constant, hold. */
CPU_INLINE void
soften(const float *x, size_t rows, size_t width, int64_t columns, const size_t vectors, const bool logarithm, float *y)
{
    cpu_floats most[VECTORS_MAX], sums[VECTORS_MAX], totals[VECTORS_MAX], greatest[VECTORS_MAX]; /* how many of each column are it */

#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        most[v] = cpu_all(-(double)INFINITY);
        sums[v] = totals[v] = greatest[v] = CPU_V(setzero)();
    }
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) { /* NaN comes first: it is passed over, and shows in the sum */
            const int64_t left = columns - (int64_t)(v * CPU_LANES);
            most[v] = CPU_V(max)(cpu_load_first(x + r * width + v * CPU_LANES, left), most[v]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            const int64_t left = columns - (int64_t)(v * CPU_LANES);
            const cpu_floats less = CPU_V(sub)(cpu_load_first(x + r * width + v * CPU_LANES, left), most[v]);
            const cpu_floats zero = CPU_V(setzero)();
            cpu_floats weight = cpu_unless_below(less, cpu_all(-CPU_EXPONENT_MAX), cpu_exponential(less));
            cpu_store_first(y + r * width + v * CPU_LANES, left, logarithm ? less : weight);
            if (logarithm) { /* next to 1 nothing of the others would be left */
                greatest[v] = CPU_V(add)(greatest[v], cpu_unless_below(less, zero, cpu_all(1)));
                weight = cpu_if_less(less, zero, weight, CPU_V(sub)(weight, cpu_all(1)));
            }
            sums[v] = CPU_V(add)(sums[v], weight);
        }
        if (LEAT_UNLIKELY((r + 1) % TERMS == 0)) {
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++) {
                totals[v] = CPU_V(add)(totals[v], sums[v]);
                sums[v] = CPU_V(setzero)();
            }
        }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        sums[v] = CPU_V(add)(totals[v], sums[v]);
        if (logarithm) {
            sums[v] = cpu_logarithm_of_more(CPU_V(add)(CPU_V(sub)(greatest[v], cpu_all(1)), sums[v]));
        } else {
            sums[v] = CPU_V(div)(cpu_all(1), sums[v]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            const int64_t left = columns - (int64_t)(v * CPU_LANES);
            const cpu_floats so_far = cpu_load_first(y + r * width + v * CPU_LANES, left);
            cpu_store_first(y + r * width + v * CPU_LANES, left,
                            logarithm ? CPU_V(sub)(so_far, sums[v]) : CPU_V(mul)(so_far, sums[v]));
        }
    }
}

CPU_INLINE void
soften_all(const float *x, size_t rows, size_t width, size_t first, size_t last, const bool logarithm, float *y)
{
    size_t c = first;

    for (; c + VECTORS_MAX * CPU_LANES <= last; c += VECTORS_MAX * CPU_LANES) {
        soften(x + c, rows, width, VECTORS_MAX * CPU_LANES, VECTORS_MAX, logarithm, y + c);
    }
    for (; c < last; c += CPU_LANES) {
        soften(x + c, rows, width, (int64_t)(last - c), 1, logarithm, y + c);
    }
}

CPU_KERNEL void
CPU_SIZED(cpu_softmax_columns)(const float *x, size_t rows, size_t width, size_t first, size_t last, bool logarithm, float *y)
{
    if (logarithm) {
        soften_all(x, rows, width, first, last, true, y);
    } else {
        soften_all(x, rows, width, first, last, false, y);
    }
}
