/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/expand.h - a 1x1 convolution and the depthwise convolution of its result, a few rows at a time.
 *
 * Role       Networks of inverted bottlenecks make many channels of few and sum each over windows: what lies between is
 *            the largest that they have, and does not stay in the second-level cache. Here it is a few rows of a panel.
 * Shapes     source f32[items][height][width][inputs], result f32[items][out_height][out_width][channels]; weights as
 *            cpu_direct_pack() and cpu_depthwise_pack() write them; biases f32[channels] or NULL.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_EXPAND_H
#define LEAT_KERNELS_CPU_LOOPS_EXPAND_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/loops/depthwise.h"
#include "kernels/graph.h"

#define CPU_EXPAND_WINDOW_MAX 16 /* rows */

struct cpu_expand {
    struct cpu_depthwise depthwise; /* of the expanded channels, a multiple of 16 */
    int64_t inputs;
    float least, most;           /* what is between is clamped to these */
    enum leat_activation smooth; /* then one of kernels/cpu/loops/activation.h, or none */
};

struct cpu_expand_weights {
    const float *points, *points_bias, *windows, *windows_bias;
};

/* Of one member. */
size_t cpu_expand_scratch_bytes(const struct cpu_expand *conv);
/* All pointers but biases have 64-byte alignment; the source's, that of floats. */
void cpu_expand_run(const struct cpu_expand *conv, const float *source, const struct cpu_expand_weights *weights,
                    float *result, void *scratch, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_EXPAND_H */
