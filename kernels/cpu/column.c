/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with one column, which end many recommenders: of each row the sum of its products with one vector. oneDNN's
 * lock a mutex in each run.
 *
 * Numerics   A row's terms are added in one order, whatever the number of rows and of members.
 */
#include <math.h>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/program.h"

enum {
    CHAINS = 4,           /* of sums in a row, which hide each other's latency */
    TOGETHER = 4,         /* rows that share what is read of the vector */
    SHARED_LEAST = 16384  /* elements that are worth a team */
};

enum { X, WEIGHTS, Y, BIAS, ARGS }; /* of a step; without the bias, if there is none */

/* sums[r]: those of lane l are all that stand in column l of some vector of row r. `rows` is constant. */
CPU_INLINE void
multiply_rows(const float *x, const float *weights, size_t width, __m512 *sums, const int rows)
{
    __m512 chains[TOGETHER][CHAINS];
    size_t i = 0;

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            chains[r][c] = _mm512_setzero_ps();
        }
    }
    for (; i + CHAINS * CPU_LANES <= width; i += CHAINS * CPU_LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            const __m512 w = _mm512_loadu_ps(weights + i + (size_t)c * CPU_LANES);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const float *row = x + (size_t)r * width + i + (size_t)c * CPU_LANES;
                chains[r][c] = _mm512_fmadd_ps(_mm512_loadu_ps(row), w, chains[r][c]);
            }
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < CHAINS; c++) {
        const size_t at = i + (size_t)c * CPU_LANES;
        if (at < width) {
            const __mmask16 there = cpu_lanes((int64_t)(width - at));
            const __m512 w = _mm512_maskz_loadu_ps(there, weights + at);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                chains[r][c] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(there, x + (size_t)r * width + at), w, chains[r][c]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        sums[r] = _mm512_add_ps(_mm512_add_ps(chains[r][0], chains[r][1]), _mm512_add_ps(chains[r][2], chains[r][3]));
    }
}

/* Of each vector the sum of its lanes: each time two of them become one, half of whose lanes are of either. */
CPU_INLINE __m512
sum_lanes(__m512 sums[CPU_LANES])
{
#pragma GCC unroll 8
    for (int i = 0; i < CPU_LANES; i += 2) {
        sums[i] = _mm512_add_ps(_mm512_unpacklo_ps(sums[i], sums[i + 1]), _mm512_unpackhi_ps(sums[i], sums[i + 1]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < CPU_LANES; i += 4) {
        const __m512d a = _mm512_castps_pd(sums[i]), b = _mm512_castps_pd(sums[i + 2]);
        sums[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    /* Each quarter of sums[i] has a sum of four lanes of rows i to i + 3. */
#pragma GCC unroll 2
    for (int i = 0; i < CPU_LANES; i += 8) {
        const __m512 even = _mm512_shuffle_f32x4(sums[i], sums[i + 4], 0x88);
        sums[i] = _mm512_add_ps(even, _mm512_shuffle_f32x4(sums[i], sums[i + 4], 0xdd));
    }
    return _mm512_add_ps(_mm512_shuffle_f32x4(sums[0], sums[8], 0x88), _mm512_shuffle_f32x4(sums[0], sums[8], 0xdd));
}

/* As the reference backend has them, of NaN too; the smooth ones are kernels/cpu/activation.h. */
CPU_INLINE __m512
held(const struct leat_node *node, __m512 y)
{
    const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);

    switch (node->fused_activation) {
    case LEAT_ACTIVATION_RELU:
        return _mm512_max_ps(zero, y);
    case LEAT_ACTIVATION_CLIP:
        return _mm512_min_ps(_mm512_set1_ps(node->clip_max), _mm512_max_ps(_mm512_set1_ps(node->clip_min), y));
    case LEAT_ACTIVATION_HARD_SWISH: {
        const __m512 gate = _mm512_fmadd_ps(y, _mm512_set1_ps(1.0f / 6), _mm512_set1_ps(0.5f));
        return _mm512_mul_ps(y, _mm512_min_ps(one, _mm512_max_ps(zero, gate)));
    }
    case LEAT_ACTIVATION_LEAKY_RELU:
        return _mm512_mask_mul_ps(y, _mm512_cmp_ps_mask(y, zero, _CMP_LT_OQ), y, _mm512_set1_ps(node->slope));
    default:
        return y;
    }
}

/* x has `count` rows of `inner` floats. By CPU_LANES rows. */
CPU_AVX512 static void
multiply_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const struct leat_node *node = step->node;
    const size_t width = step->inner, last = end * CPU_LANES < step->count ? end * CPU_LANES : step->count;
    const __m512 bias = _mm512_set1_ps(step->arg_count > BIAS ? *(const float *)call->pointers[BIAS] : 0);
    const float *x = call->pointers[X], *weights = call->pointers[WEIGHTS];
    float *y = call->pointers[Y];

    for (size_t row = begin * CPU_LANES; row < last; row += CPU_LANES) {
        const size_t count = last - row < CPU_LANES ? last - row : CPU_LANES;
        const __mmask16 there = cpu_lanes((int64_t)count);
        __m512 sums[CPU_LANES];
        size_t r = 0;
        for (; r + TOGETHER <= count; r += TOGETHER) {
            multiply_rows(x + (row + r) * width, weights, width, sums + r, TOGETHER);
        }
        for (; r < count; r++) {
            multiply_rows(x + (row + r) * width, weights, width, sums + r, 1);
        }
        for (; r < CPU_LANES; r++) {
            sums[r] = _mm512_setzero_ps();
        }
        __m512 result = _mm512_add_ps(sum_lanes(sums), bias);
        if (node->fused_add != LEAT_VALUE_NONE) {
            result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(there, y + row));
        }
        _mm512_mask_storeu_ps(y + row, there, held(node, result));
    }
    if (cpu_activation_runs_here(node->fused_activation)) {
        cpu_activate(node->fused_activation, y + begin * CPU_LANES, last - begin * CPU_LANES);
    }
}

static enum leat_status
multiply(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    cpu_share(call, multiply_part, (step->count + CPU_LANES - 1) / CPU_LANES, SHARED_LEAST / (CPU_LANES * step->inner) + 1);
    return LEAT_OK;
}

enum leat_status
cpu_lower_column(struct cpu_builder *b, const struct cpu_product *product)
{
    const struct leat_node *node = b->node;
    const dnnl_memory_desc_t vector = cpu_plain_md(&product->inner, 1);
    const dnnl_memory_desc_t value_md = cpu_value_md(leat_node_output(b->graph, node, 0));
    struct cpu_arg args[ARGS] = {[BIAS] = {0, product->bias}};
    struct cpu_step *step;

    if (product->columns != 1 || !cpu_has_avx512()) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, node->inputs[0], &args[X].tensor);
    if (status == LEAT_OK) {
        status = cpu_destination(b, &value_md, &args[Y].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_constant_as(b, node->inputs[1], &vector, &vector, &args[WEIGHTS].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, multiply, args, product->has_bias ? ARGS : BIAS, &step);
    }
    if (status == LEAT_OK) {
        step->count = (size_t)product->rows;
        step->inner = (size_t)product->inner;
        cpu_set_output(b, 0, args[Y].tensor);
    }
    return status;
}
