/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/column.h - products of rows and one vector, by vectors of either width. */
#ifndef LEAT_KERNELS_CPU_LOOPS_COLUMN_H
#define LEAT_KERNELS_CPU_LOOPS_COLUMN_H

#include <stddef.h>

#include "kernels/cpu/program.h"

/* y[r] becomes what the node makes of x[r] * weights + bias, x f32[count][width]; what it adds to is in y. */
struct cpu_column {
    const struct leat_node *node;
    const float *weights; /* [width] */
    size_t width;
    float bias;
};

void cpu_column_avx2(const struct cpu_column *column, const float *x, size_t count, float *y);
void cpu_column_avx512(const struct cpu_column *column, const float *x, size_t count, float *y);

#endif /* LEAT_KERNELS_CPU_LOOPS_COLUMN_H */
