/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/attention.h - Softmax(scale Q K^T + mask) V of each head, heads where they lie in their tensors.
 *
 * Shapes     queries f32[items][rows][heads][depth], keys f32[items][keys][heads][depth], values
 *            f32[items][keys][heads][width], result f32[items][rows][heads][width]; mask f32, NULL or what is added to the
 *            scores of a row, its keys side by side.
 * Threads    cpu_attention_run() is called by each member of a team with its own scratch; members share nothing that they
 *            write. The result does not depend on their number.
 * Numerics   As softmax in floats; a key whose weight is below e^-87 of the largest has none. NaN in a row of scores makes
 *            the result of that row NaN.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_ATTENTION_H
#define LEAT_KERNELS_CPU_LOOPS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

struct cpu_attention {
    int64_t items, heads, rows, keys, depth, width; /* at least 1 */
    float scale;
    int64_t mask_strides[3]; /* in floats, of items, heads and rows; 0: the same mask */
};

/* Of one member. */
size_t cpu_attention_scratch_bytes(const struct cpu_attention *a);
/* `scratch` has 64-byte alignment. In vectors of AVX-512, else of AVX2, of which one is needed. */
void cpu_attention_run(const struct cpu_attention *a, const float *queries, const float *keys, const float *values,
                       const float *mask, float *result, void *scratch, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_ATTENTION_H */
