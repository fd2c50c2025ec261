/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/depthwise_whole.h - convolutions of each channel with a window of its own, of 8-bit whole numbers, with AVX2.
 *
 * Role       oneDNN's kernels cap sums of two products at 16 bits, so weights would have 7. Here both sides are widened to 16 bits, of
 *            which an instruction adds pairs of products in 32.
 * Shapes     As kernels/cpu/loops/fours.h, with as many outputs as inputs, a multiple of CPU_DEPTHWISE_WHOLE_CHANNELS, and without addend.
 * Weights    s16, of 14 bits, in an order of their own: for sixteen channels at a time pairs of pixels of the window.
 * Numerics   As kernels/cpu/loops/fours.h; sums begin with 0.
 * Trust, Threads  As kernels/cpu/loops/fours.h.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_WHOLE_H
#define LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_WHOLE_H

#include "kernels/cpu/loops/fours.h"

enum {
    CPU_DEPTHWISE_WHOLE_CHANNELS = 16,
    CPU_DEPTHWISE_WHOLE_MOST = 8191, /* that a weight is, about 0: sums of CPU_FOURS_TAPS_MAX fit 32 bits */
};

size_t cpu_depthwise_whole_weights_bytes(const struct cpu_fours *conv);
/* Of f32[channels][kernel_down][kernel_across], a channel's times its factor, and rounded to even. */
void cpu_depthwise_whole_pack(const struct cpu_fours *conv, const float *weights, const float *factors, int16_t *ret_packed);

/* All pointers have 64-byte alignment. */
void cpu_depthwise_whole_run(const struct cpu_fours *conv, const void *source, const int16_t *packed, const float *sums, const float *bias,
                             void *result, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_WHOLE_H */
