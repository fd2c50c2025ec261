/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation along the last axis. oneDNN's allocates in each run. */
#include <math.h>

#include "kernels/cpu/product.h"
#include "kernels/cpu/program.h"

enum { SHARED_LEAST = 16384 }; /* elements that are worth a team */

CPU_INLINE __mmask16
first_lanes(size_t count)
{
    return (__mmask16)((1u << count) - 1);
}

/* Of x[width] less `middle`, or of their squares; four sums at a time hide each other's latency. */
CPU_INLINE float
sum_row(const float *x, size_t width, float middle, const bool squares)
{
    const __m512 less = _mm512_set1_ps(middle);
    __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    size_t i = 0, s = 0;

    for (; i + 4 * CPU_LANES <= width; i += 4 * CPU_LANES) {
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++) {
            const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + i + v * CPU_LANES), less);
            sums[v] = squares ? _mm512_fmadd_ps(d, d, sums[v]) : _mm512_add_ps(sums[v], d);
        }
    }
    for (; i < width; i += CPU_LANES, s++) { /* what is left has at most four vectors */
        const __mmask16 there = first_lanes(width - i < CPU_LANES ? width - i : CPU_LANES);
        const __m512 d = _mm512_maskz_sub_ps(there, _mm512_maskz_loadu_ps(there, x + i), less);
        sums[s] = squares ? _mm512_fmadd_ps(d, d, sums[s]) : _mm512_add_ps(sums[s], d);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

CPU_INLINE void
normalise_row(const float *x, const float *scale, const float *shift, size_t width, float epsilon, float *y)
{
    const float mean = sum_row(x, width, 0, false) / (float)width;
    const float variance = sum_row(x, width, mean, true) / (float)width;
    const __m512 middle = _mm512_set1_ps(mean), by = _mm512_set1_ps(1 / sqrtf(variance + epsilon));

    for (size_t i = 0; i < width; i += CPU_LANES) {
        const __mmask16 there = first_lanes(width - i < CPU_LANES ? width - i : CPU_LANES);
        const __m512 normal = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + i), middle), by);
        const __m512 moved = shift != NULL ? _mm512_maskz_loadu_ps(there, shift + i) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(y + i, there, _mm512_fmadd_ps(normal, _mm512_maskz_loadu_ps(there, scale + i), moved));
    }
}

/* args: x, the scale, the shift if there are four, and y; rows of `inner` elements. */
CPU_AVX512 static void
normalise_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t width = step->inner;
    const float epsilon = leat_node_float(step->node, "epsilon", 1e-5f);
    const float *x = call->pointers[0], *scale = call->pointers[1], *shift = step->arg_count > 3 ? call->pointers[2] : NULL;
    float *y = call->pointers[step->arg_count - 1];

    for (size_t r = begin; r < end; r++) {
        normalise_row(x + r * width, scale, shift, width, epsilon, y + r * width);
    }
}

static enum leat_status
normalise(const struct cpu_call *call)
{
    cpu_share(call, normalise_rows, call->step->outer, SHARED_LEAST / call->step->inner);
    return LEAT_OK;
}

bool
cpu_layer_norm_runs_here(void)
{
    return __builtin_cpu_supports("avx512f");
}

enum leat_status
cpu_add_layer_norm(struct cpu_builder *b, const struct cpu_arg *args, uint32_t arg_count, size_t rows, size_t width)
{
    struct cpu_step *step;

    const enum leat_status status = cpu_add_kernel(b, normalise, args, arg_count, &step);
    if (status == LEAT_OK) {
        step->outer = rows;
        step->inner = width;
    }
    return status;
}
