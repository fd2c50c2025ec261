/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/layer_norm_body.h - one row of layer_norm.c in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/loops/layer_norm.h"
#include "kernels/cpu/loops/product.h"

/* Of x[width] less `middle`, or of their squares; four sums at a time hide each other's latency. */
CPU_INLINE float
sum_row(const float *x, size_t width, float middle, const bool squares)
{
    const cpu_floats less = CPU_V(set1)(middle);
    cpu_floats sums[4] = {CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)(), CPU_V(setzero)()};
    size_t i = 0, s = 0;

    for (; i + 4 * CPU_LANES <= width; i += 4 * CPU_LANES) {
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            const cpu_floats d = CPU_V(sub)(CPU_V(loadu)(x + i + v * CPU_LANES), less);
            sums[v] = squares ? CPU_V(fmadd)(d, d, sums[v]) : CPU_V(add)(sums[v], d);
        }
    }
    for (; i < width; i += CPU_LANES, s++) { /* what is left has at most four vectors */
        const int64_t left = (int64_t)(width - i);
        const cpu_floats d = cpu_first(left, CPU_V(sub)(cpu_load_first(x + i, left), less), CPU_V(setzero)());
        sums[s] = squares ? CPU_V(fmadd)(d, d, sums[s]) : CPU_V(add)(sums[s], d);
    }
    return cpu_sum(CPU_V(add)(CPU_V(add)(sums[0], sums[1]), CPU_V(add)(sums[2], sums[3])));
}

CPU_KERNEL void
CPU_SIZED(cpu_normalise)(const float *x, const float *scale, const float *shift, size_t width, float epsilon, float *y)
{
    const float mean = sum_row(x, width, 0, false) / (float)width;
    const float variance = sum_row(x, width, mean, true) / (float)width;
    const cpu_floats middle = CPU_V(set1)(mean), by = CPU_V(set1)(1 / sqrtf(variance + epsilon));

    for (size_t i = 0; i < width; i += CPU_LANES) {
        const int64_t left = (int64_t)(width - i);
        const cpu_floats normal = CPU_V(mul)(CPU_V(sub)(cpu_load_first(x + i, left), middle), by);
        const cpu_floats moved = shift != NULL ? cpu_load_first(shift + i, left) : CPU_V(setzero)();
        cpu_store_first(y + i, left, CPU_V(fmadd)(normal, cpu_load_first(scale + i, left), moved));
    }
}
