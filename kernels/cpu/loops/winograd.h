/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/winograd.h - 3x3 convolutions of stride 1 with a quarter of the multiplications.
 *
 * Source     Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.3: F(4x4,
 *            3x3), tile by tile. Points of interpolation are 0, +-sqrt(1/2), +-sqrt(2) and infinity instead of its
 *            0, +-1, +-2 and infinity: the transforms then have no large coefficients.
 * Vectors    Of AVX-512, else of AVX2: cpu_vector_lanes() is not 0.
 * Shapes     source f32[items][height][width][inputs], result f32[items][out_height][out_width][outputs], weights
 *            f32[outputs][inputs][3][3], bias f32[outputs] or NULL. Blocked: source
 *            f32[items][inputs / lanes][height][width][lanes], and so the result.
 * Numerics   Errors are about twice those of summing the products. A tile of 4x4 results that sees an infinity may
 *            hold NaN where the sum is infinite; no tile reaches beyond its item.
 * Threads    cpu_winograd_run() is called by each member of a team with its own scratch; members share nothing that
 *            they write. The result does not depend on their number.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_WINOGRAD_H
#define LEAT_KERNELS_CPU_LOOPS_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cpu_winograd {
    int64_t items, inputs, outputs; /* channels are multiples of cpu_vector_lanes() */
    int64_t height, width, out_height, out_width;
    int64_t pad_top, pad_left; /* 0 to 2; what is missing below and to the right is zero as well */
    bool add;                  /* to what the result's place holds */
    float least, most;         /* then clamped to these */
    bool blocked;
};

size_t cpu_winograd_weights_bytes(int64_t inputs, int64_t outputs);
void cpu_winograd_pack(const float *weights, int64_t inputs, int64_t outputs, float *ret_packed);

/* Of one member. */
size_t cpu_winograd_scratch_bytes(const struct cpu_winograd *conv);

/* Called now and then while a step runs; what else runs meanwhile uses other memory. */
struct cpu_pause {
    void (*call)(void *context);
    void *context;
};

/* All pointers but bias and pause have 64-byte alignment. `pause` may be NULL. */
void cpu_winograd_run(const struct cpu_winograd *conv, const float *source, const float *packed, const float *bias,
                      float *result, float *scratch, uint32_t member, uint32_t members, const struct cpu_pause *pause);

#endif /* LEAT_KERNELS_CPU_LOOPS_WINOGRAD_H */
