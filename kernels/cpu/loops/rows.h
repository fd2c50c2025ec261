/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/rows.h - rows of floats as one number, and taken to a mean of 0 and a deviation of 1; in vectors of either width.
 *
 * Numerics   The greatest and the least are NaN where one of a row is. Sums are of CPU_ROW_TERMS floats at most in each of the lanes,
 *            and sums of these in double.
 * Failure    None. Nothing needs to be aligned, and a row may be written where it is read.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_ROWS_H
#define LEAT_KERNELS_CPU_LOOPS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#define CPU_ROW_TERMS 64

float cpu_row_greatest_avx512(const float *x, size_t count); /* of none: -infinity */
float cpu_row_greatest_avx2(const float *x, size_t count);
float cpu_row_least_avx512(const float *x, size_t count); /* of none: infinity */
float cpu_row_least_avx2(const float *x, size_t count);
/* The place of the first that is greater (or less) than `bound`, which is a number, or is none; `count` where there is none. */
size_t cpu_row_first_beyond_avx512(const float *x, size_t count, float bound, bool greatest);
size_t cpu_row_first_beyond_avx2(const float *x, size_t count, float bound, bool greatest);
double cpu_row_total_avx512(const float *x, size_t count);
double cpu_row_total_avx2(const float *x, size_t count);
double cpu_row_magnitudes_avx512(const float *x, size_t count); /* sum of |x| */
double cpu_row_magnitudes_avx2(const float *x, size_t count);
double cpu_row_squares_avx512(const float *x, size_t count); /* sum of x^2, which may be more or less than floats are */
double cpu_row_squares_avx2(const float *x, size_t count);
double cpu_row_exponentials_avx512(const float *x, size_t count, float less); /* sum of e^(x - less), for x <= less */
double cpu_row_exponentials_avx2(const float *x, size_t count, float less);
/* The same of columns side by side, one term of each every `stride` floats; added to totals[width]. */
void cpu_add_exponentials_avx512(const float *x, size_t terms, size_t stride, size_t width, const float *less, double *totals);
void cpu_add_exponentials_avx2(const float *x, size_t terms, size_t stride, size_t width, const float *less, double *totals);

/* Adds the sum of x - middle, and that of squares. */
void cpu_add_moments_avx512(const float *x, size_t count, float middle, double *sum, double *squares);
void cpu_add_moments_avx2(const float *x, size_t count, float middle, double *sum, double *squares);
/* The same of columns side by side. */
void cpu_add_column_moments_avx512(const float *x, size_t terms, size_t stride, size_t width, const float *middle, double *sums,
                                   double *squares);
void cpu_add_column_moments_avx2(const float *x, size_t terms, size_t stride, size_t width, const float *middle, double *sums,
                                 double *squares);
/* y = (x - middle) * by + shift, of a row; and of columns. */
void cpu_move_row_avx512(const float *x, size_t count, float middle, float by, float shift, float *y);
void cpu_move_row_avx2(const float *x, size_t count, float middle, float by, float shift, float *y);
void cpu_move_columns_avx512(const float *x, size_t terms, size_t stride, size_t width, const float *middle, const float *by,
                             const float *shift, float *y);
void cpu_move_columns_avx2(const float *x, size_t terms, size_t stride, size_t width, const float *middle, const float *by,
                           const float *shift, float *y);

/* y = (x - mean) / sqrt(variance + epsilon) * scale + shift. */
void cpu_normalise_plane_avx512(const float *x, size_t count, float epsilon, float scale, float shift, float *y);
void cpu_normalise_plane_avx2(const float *x, size_t count, float epsilon, float scale, float shift, float *y);
/* The same of each channel of a vector of them; from one pixel to the next it is `stride` floats. */
void cpu_normalise_channels_avx512(const float *x, size_t count, size_t stride, float epsilon, const float *scale, const float *shift,
                                   float *y);
void cpu_normalise_channels_avx2(const float *x, size_t count, size_t stride, float epsilon, const float *scale, const float *shift,
                                 float *y);

#endif /* LEAT_KERNELS_CPU_LOOPS_ROWS_H */
