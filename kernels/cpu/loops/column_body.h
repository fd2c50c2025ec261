/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/column_body.h - see kernels/cpu/loops/column.h; compiled for vectors of each width. */
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/column.h"
#include "kernels/cpu/loops/held.h"

enum {
    CHAINS = CPU_LANES > CPU_HALF ? 4 : 2, /* of sums in a row, which hide each other's latency and stay in registers */
    TOGETHER = 4,                          /* rows that share what is read of the vector */
};

/* sums[r]: those of lane l are all that stand in column l of some vector of row r. `rows` is constant. */
CPU_INLINE void
multiply_rows(const float *x, const float *weights, size_t width, cpu_floats *sums, const int rows)
{
    cpu_floats chains[TOGETHER][CHAINS];
    size_t i = 0;

#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            chains[r][c] = CPU_V(setzero)();
        }
    }
    for (; i + CHAINS * CPU_LANES <= width; i += CHAINS * CPU_LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            const cpu_floats w = CPU_V(loadu)(weights + i + (size_t)c * CPU_LANES);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const float *row = x + (size_t)r * width + i + (size_t)c * CPU_LANES;
                chains[r][c] = CPU_V(fmadd)(CPU_V(loadu)(row), w, chains[r][c]);
            }
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < CHAINS; c++) {
        const size_t at = i + (size_t)c * CPU_LANES;
        if (at < width) {
            const int64_t there = (int64_t)(width - at);
            const cpu_floats w = cpu_load_first(weights + at, there);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                chains[r][c] = CPU_V(fmadd)(cpu_load_first(x + (size_t)r * width + at, there), w, chains[r][c]);
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        sums[r] = CPU_V(add)(chains[r][0], chains[r][1]);
#if CPU_VECTOR_BITS == 512
        sums[r] = CPU_V(add)(sums[r], CPU_V(add)(chains[r][2], chains[r][3]));
#endif
    }
}

/* Of each vector the sum of its lanes: each time two of them become one, half of whose lanes are of either. */
#if CPU_VECTOR_BITS == 512
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
#else
CPU_INLINE __m256
sum_lanes(__m256 sums[CPU_LANES])
{
#pragma GCC unroll 2
    for (int i = 0; i < CPU_LANES; i += 4) {
        sums[i] = _mm256_hadd_ps(_mm256_hadd_ps(sums[i], sums[i + 1]), _mm256_hadd_ps(sums[i + 2], sums[i + 3]));
    }
    /* Each half of sums[i] has a sum of four lanes of rows i to i + 3. */
    return _mm256_add_ps(_mm256_permute2f128_ps(sums[0], sums[4], 0x20), _mm256_permute2f128_ps(sums[0], sums[4], 0x31));
}
#endif

CPU_KERNEL void
CPU_SIZED(cpu_column)(const struct cpu_column *column, const float *x, size_t count, float *y)
{
    const struct leat_node *node = column->node;
    const cpu_floats bias = CPU_V(set1)(column->bias);
    const size_t width = column->width;

    for (size_t row = 0; row < count; row += CPU_LANES) {
        const size_t left = count - row < CPU_LANES ? count - row : CPU_LANES;
        cpu_floats sums[CPU_LANES];
        size_t r = 0;
        for (; r + TOGETHER <= left; r += TOGETHER) {
            multiply_rows(x + (row + r) * width, column->weights, width, sums + r, TOGETHER);
        }
        for (; r < left; r++) {
            multiply_rows(x + (row + r) * width, column->weights, width, sums + r, 1);
        }
        for (; r < CPU_LANES; r++) {
            sums[r] = CPU_V(setzero)();
        }
        cpu_floats result = CPU_V(add)(sum_lanes(sums), bias);
        if (node->fused_add != LEAT_VALUE_NONE) {
            result = CPU_V(add)(result, cpu_load_first(y + row, (int64_t)left));
        }
        cpu_store_first(y + row, (int64_t)left, cpu_held(node, result));
    }
    if (cpu_activation_runs_here(node->fused_activation)) {
        cpu_activate(node->fused_activation, y, count);
    }
}
