/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/depthwise.h - convolutions of each channel with a window of its own, and what is fused onto them.
 *
 * Shapes     source f32[items][height][width][channels], result f32[items][out_height][out_width][channels], weights
 *            f32[channels][1][kernel_down][kernel_across], bias f32[channels] or NULL.
 * Threads    cpu_depthwise_run() is called by each member of a team with its own scratch; members share nothing that
 *            they write. The result does not depend on their number.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_H
#define LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/graph.h"

struct cpu_depthwise {
    int64_t items, channels; /* channels are a multiple of 16 */
    int64_t height, width, out_height, out_width;
    int64_t kernel_down, kernel_across, stride_down, stride_across;
    int64_t pad_top, pad_left; /* what is missing below and to the right is zero as well */
    float least, most;         /* clamped to these */
    enum leat_activation smooth; /* then one of kernels/cpu/loops/activation.h, or none */
};

size_t cpu_depthwise_weights_bytes(const struct cpu_depthwise *conv);
void cpu_depthwise_pack(const struct cpu_depthwise *conv, const float *weights, float *ret_packed);

/* Of one member. */
size_t cpu_depthwise_scratch_bytes(const struct cpu_depthwise *conv);
/* All pointers but source and bias have 64-byte alignment. */
void cpu_depthwise_run(const struct cpu_depthwise *conv, const float *source, const float *packed, const float *bias,
                       float *result, void *scratch, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_DEPTHWISE_H */
