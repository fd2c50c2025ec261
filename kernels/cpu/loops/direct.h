/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/direct.h - convolutions as products of pixels and weights, the pixels where they lie.
 *
 * Shapes     source f32[items][height][width][inputs], result f32[items][out_height][out_width][outputs], weights
 *            f32[outputs][inputs][kernel_down][kernel_across], bias f32[outputs] or NULL.
 * Vectors    Of AVX-512 where the processor has it, else of AVX2.
 * Threads    cpu_direct_run() is called by each member of a team with its own scratch; members share nothing that they
 *            write. The result does not depend on their number.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_DIRECT_H
#define LEAT_KERNELS_CPU_LOOPS_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/graph.h"

struct cpu_direct {
    int64_t items, inputs, outputs; /* outputs are whole vectors: a multiple of 16 with AVX-512, else of 8 */
    int64_t height, width, out_height, out_width;
    int64_t kernel_down, kernel_across, stride_down, stride_across; /* windows do not overlap themselves: no dilation */
    int64_t pad_top, pad_left; /* what is missing below and to the right is zero as well */
    bool add;                  /* to what the result's place holds */
    float least, most;         /* then clamped to these */
    enum leat_activation bend; /* then one that bends (activation.h), or none, with this slope */
    float slope;
    enum leat_activation smooth; /* then one of kernels/cpu/loops/activation.h, or none */
};

size_t cpu_direct_weights_bytes(const struct cpu_direct *conv);
void cpu_direct_pack(const struct cpu_direct *conv, const float *weights, float *ret_packed);
/* The same of f32[inputs][outputs], for a window of one pixel. */
void cpu_direct_pack_transposed(const struct cpu_direct *conv, const float *weights, float *ret_packed);

/* Of one member. */
size_t cpu_direct_scratch_bytes(const struct cpu_direct *conv);
/* All pointers but source and bias have 64-byte alignment. */
void cpu_direct_run(const struct cpu_direct *conv, const float *source, const float *packed, const float *bias,
                    float *result, void *scratch, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_DIRECT_H */
