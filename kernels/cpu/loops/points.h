/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/points.h - 1x1 convolutions of 8-bit whole numbers.
 *
 * Role       Sums of few products each, so that what comes behind them, an addend, scaling, rounding, is a good part of the
 *            work: all of it on sums in registers, and four vectors become one line of results at once.
 * Shapes     source u8 or s8[items][height][width][inputs], inputs a multiple of CPU_POINTS_INPUTS; addend and result u8 or
 *            s8[items][out_height][out_width][outputs], outputs a multiple of CPU_LANES; dense, no padding, no groups.
 * Weights    s8, the layout of cpu_points_weights_md().
 * Numerics   Sums of 32 bits, which the caller knows not to overflow. A result is a sum, from its start on, times sums[channel],
 *            plus bias[channel], plus the addend times addend_scale; or x / (1 + e^-x) of that, times swish_scale, plus
 *            swish_zero; rounded to even and capped. Before, it is less than 2^31, which CPU_POINTS_SUM and CPU_POINTS_BIAS
 *            see to. x / (1 + e^-x) is within 4e-7 |x|.
 * Trust      Sizes and pointers are the caller's; any numbers may be in the tensors.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_POINTS_H
#define LEAT_KERNELS_CPU_LOOPS_POINTS_H

#include <oneapi/dnnl/dnnl_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_POINTS_INPUTS 4    /* that one instruction multiplies and adds */
#define CPU_POINTS_SUM    0.5f /* sums[channel] at most, in units of the result */
#define CPU_POINTS_BIAS   0x1p+28f /* |bias[channel]| at most, and 255 times addend_scale, likewise */

struct cpu_points {
    int64_t items, inputs, outputs;
    int64_t height, width, out_height, out_width, stride_down, stride_across;
    bool source_signed, addend_signed, result_signed;
    float addend_scale; /* in units of the result */
    bool swish;
    float swish_scale, swish_zero;
};

/* The processor has what this needs, AVX-512 with VNNI, and no AMX, with which oneDNN is faster. */
bool cpu_points_run_here(void);

/* s8[outputs][inputs][1][1], outputs filled up with zeros to whole panels. */
dnnl_memory_desc_t cpu_points_weights_md(int64_t outputs, int64_t inputs);
/* What sums begin with: what numbers of s8, which become those of u8 by adding 128, would add to them, taken off. */
void cpu_points_starts(const struct cpu_points *points, const int8_t *weights, int32_t *ret_starts);

/* addend may be NULL, and may be the result. starts, sums and bias are of [outputs]. All have 64-byte alignment. */
void cpu_points_run(const struct cpu_points *points, const void *source, const int8_t *weights, const int32_t *starts,
                    const float *sums, const float *bias, const void *addend, void *result, uint32_t member,
                    uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_POINTS_H */
