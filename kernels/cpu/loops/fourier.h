/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/fourier.h - discrete Fourier transforms of floats, one after the other or some side by side.
 *
 * Source     Stockham's passes: Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), 1.7. Lengths with prime
 *            factors beyond CPU_RADIX_MAX are a convolution: Bluestein, "A linear filtering approach to the computation of discrete
 *            Fourier transform" (1970). Of real numbers two are taken as one complex one.
 * Shapes     A transform has `length` elements, of which the first `given` are there. Lanes of a vector are transforms side by side,
 *            or, `across`, every CPU_LANES-th element of one, whose transforms a last pass makes one of.
 * Numerics   Factors are rounded from double. Errors are below 1e-6 of the root mean square of the results times the logarithm to base 2 of
 *            the length. No transform has any part in another's results. Infinities make NaN, also where one alone is infinite.
 * Trust      What is transformed is read as numbers alone, each once.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_FOURIER_H
#define LEAT_KERNELS_CPU_LOOPS_FOURIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_RADIX_MAX      31u
#define CPU_PASSES_MAX     32u
#define CPU_FOURIER_MAX    (1u << 22) /* elements: tables of more take seconds to make; longer ones are the reference's */
#define CPU_FOURIER_ASIDE  16u        /* floats before and behind a plane that vectors may touch */

/* Behind it lie tables, whose places count from its beginning in floats; pairs are real and imaginary parts. */
struct cpu_fourier {
    size_t length, bins; /* bins are what is written */
    size_t points;       /* complex numbers that are transformed: half the length where two real ones are taken as one */
    size_t size;         /* of the transform: the points, or that of the convolution */
    size_t rows;         /* that passes go over: the size, or a vector's part of it */
    size_t plane;        /* floats of one of four planes of scratch */
    bool halved, across, convolves;
    uint32_t passes, radices[CPU_PASSES_MAX];
    size_t factors; /* of each pass [rows that are left][radix - 1] pairs */
    size_t roots;   /* of each pass with a radix beyond 4 or of 3: [radix] pairs, cosines and sines */
    size_t turns;   /* across: [rows][2][lanes] */
    size_t halves;  /* halved: [2][points and a vector] */
    size_t chirp;   /* of a convolution: [2][size], 0 behind the points */
    size_t spectrum; /* [2][size] */

    size_t count, beside; /* transforms; that follow each other by `inner` */
    size_t parts, given;  /* of the input; from one of its elements to the next it is `step` floats */
    size_t step, inner, outer;
    size_t result_step, result_inner, result_outer; /* of the output, likewise */
    bool inverse;
};

/* Transforms first..end of x, each times the window where that is not NULL; four planes of scratch. */
void cpu_fourier_avx512(const struct cpu_fourier *fourier, const float *x, const float *window, float *y, size_t first, size_t end,
                        float *scratch);
void cpu_fourier_avx2(const struct cpu_fourier *fourier, const float *x, const float *window, float *y, size_t first, size_t end,
                      float *scratch);

#endif /* LEAT_KERNELS_CPU_LOOPS_FOURIER_H */
