/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/resample.h - rows of feature maps made longer or shorter, sums of rows with weights, and sums of elements anywhere in a
 * plane; in vectors of either width.
 *
 * Numerics   Of rows, what has weight 0 is left out, whatever it is.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_RESAMPLE_H
#define LEAT_KERNELS_CPU_LOOPS_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_RESAMPLE_LANES 16 /* a row of tables is whole vectors */

/* Pixel i of `width` is the sum of pixels index[t][i] times weight[t][i]. */
struct cpu_resample {
    size_t from, width; /* pixels of a row as it is, and as it is to be */
    size_t stride;      /* from the table of a tap to the next one's: whole vectors; behind `width` the last index goes on */
    size_t inner;       /* floats of a pixel */
    size_t taps;        /* of 1 the weight is 1 */
    const int32_t *index; /* which does not fall */
    const float *weight;
};

void cpu_resample_row_avx512(const struct cpu_resample *r, const float *row, float *to);
void cpu_resample_row_avx2(const struct cpu_resample *r, const float *row, float *to);
/* Each of `count` floats twice, into two rows. */
void cpu_double_row_avx512(const float *row, size_t count, float *first, float *second);
void cpu_double_row_avx2(const float *row, size_t count, float *first, float *second);
/* to[floats] = the sum of `count` rows, each times its weight. */
void cpu_mix_rows_avx512(const float *const *rows, const float *weights, size_t count, size_t floats, float *to);
void cpu_mix_rows_avx2(const float *const *rows, const float *weights, size_t count, size_t floats, float *to);

#define CPU_POINTS     256 /* at a time */
#define CPU_POINT_TAPS 16
#define CPU_POINTS_TOGETHER 8

/* Point i is the sum of elements index[t][i] times weight[t][i]; of one tap, the element. */
struct cpu_samples {
    size_t taps;
    int32_t index[CPU_POINT_TAPS][CPU_POINTS]; /* negative: 0 is there */
    float weight[CPU_POINT_TAPS][CPU_POINTS];
    bool beside[CPU_POINTS / CPU_POINTS_TOGETHER]; /* of so many points' four taps, all there, the second and fourth are beside others */
};

/* The first `count` of them. */
void cpu_sample_points_avx512(const struct cpu_samples *samples, size_t count, const float *plane, float *to);
void cpu_sample_points_avx2(const struct cpu_samples *samples, size_t count, const float *plane, float *to);

#endif /* LEAT_KERNELS_CPU_LOOPS_RESAMPLE_H */
