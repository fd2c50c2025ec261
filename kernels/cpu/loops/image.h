/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/image.h - convolutions of images as they come: few channels, each a plane of its own.
 *
 * Shapes     As kernels/cpu/loops/direct.h, but each item f32[inputs][height][width] by itself, at `items[i]`; inputs are
 *            CPU_IMAGE_INPUTS_MAX and rows of a window CPU_IMAGE_WINDOW_MAX at most; nothing is added.
 * Trust      Items may change meanwhile: each member copies what it reads, row by row, and sums are of the copy.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_IMAGE_H
#define LEAT_KERNELS_CPU_LOOPS_IMAGE_H

#include "kernels/cpu/loops/direct.h"

#define CPU_IMAGE_INPUTS_MAX 4
#define CPU_IMAGE_WINDOW_MAX 16

size_t cpu_image_weights_bytes(const struct cpu_direct *conv);
void cpu_image_pack(const struct cpu_direct *conv, const float *weights, float *ret_packed);

/* Of one member. */
size_t cpu_image_scratch_bytes(const struct cpu_direct *conv);
/* All pointers but items and bias have 64-byte alignment. */
void cpu_image_run(const struct cpu_direct *conv, const void *const items[], const float *packed, const float *bias,
                   float *result, void *scratch, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_IMAGE_H */
