/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/whole_image.h - the first convolution of a network in 8-bit whole numbers: of images as they come, in 16.
 *
 * Role       Eight bits are few for what all else is made of, and floats cost more than they decide: pixels of 13 bits and
 *            weights of 10 bits and more, whose products are added in 32 bits without loss.
 * Shapes     As kernels/cpu/loops/image.h, windows CPU_WHOLE_ACROSS_MAX pixels wide at most; the result in floats, u8 or s8.
 * Numerics   A pixel is rounded to CPU_WHOLE_PIXEL steps of its range, and capped eight times as far out. A channel's
 *            weights are rounded such that no sum leaves 32 bits, whatever the pixels: they add up to CPU_WHOLE_SUM at most.
 * Trust      As kernels/cpu/loops/image.h.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_WHOLE_IMAGE_H
#define LEAT_KERNELS_CPU_LOOPS_WHOLE_IMAGE_H

#include "kernels/cpu/loops/direct.h"

#define CPU_WHOLE_ACROSS_MAX 16
#define CPU_WHOLE_PIXEL      4095  /* what the greatest pixel of the range is stored as */
#define CPU_WHOLE_SUM        65535 /* times INT16_MAX is less than 2^31 */

enum cpu_whole_result { CPU_WHOLE_F32, CPU_WHOLE_U8, CPU_WHOLE_S8 };

struct cpu_whole_image {
    struct cpu_direct conv; /* nothing is added, nothing smooth; bounds in units of the result */
    float pixels_in_one;    /* a pixel is stored as so many times what it is */
    enum cpu_whole_result result;
};

/* The processor has what this needs, AVX-512 with VNNI, and no AMX, with which bf16 is as fast. */
bool cpu_whole_image_runs_here(void);

size_t cpu_whole_image_weights_bytes(const struct cpu_direct *conv);
/* f32[outputs][inputs][kernel_down][kernel_across]; all finite. */
void cpu_whole_image_pack(const struct cpu_direct *conv, const float *weights, int16_t *ret_packed);
/* What a weight of that channel is multiplied by before it is rounded; 0 or not finite where floats are too coarse. */
float cpu_whole_image_factor(const struct cpu_direct *conv, const float *weights, int64_t channel);

/* Of one member. */
size_t cpu_whole_image_scratch_bytes(const struct cpu_direct *conv);
/*
 * A result is a sum of stored products times sums[channel], plus bias[channel], within the bounds, all in units of the result.
 * All pointers but items have 64-byte alignment.
 */
void cpu_whole_image_run(const struct cpu_whole_image *image, const void *const items[], const int16_t *packed,
                         const float *sums, const float *bias, void *result, void *scratch, uint32_t member,
                         uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_WHOLE_IMAGE_H */
