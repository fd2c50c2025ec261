/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/fours.h - convolutions and products of 8-bit whole numbers with AVX2, four products at a time.
 *
 * Role       Without VNNI an instruction multiplies pairs of u8 and s8 and caps their sums at 16 bits, a second one widens
 *            them to 32. Where weights are such that sums of two pairs fit 16 bits as well, the second is needed half as
 *            often: three multiplications do what takes oneDNN four. These weights are no coarser than those of 7 bits, which pairs
 *            need if nothing is known of them.
 * Fours      Of one pixel of the window, of eight inputs that follow each other: 0, 1, 4 and 5; 2, 3, 6 and 7. Stored weights of
 *            one sign add up to CPU_FOURS_SUM in a four at most.
 * Shapes     source u8 or s8[items][height][width][inputs]; result f32, u8 or s8[items][out_height][out_width][outputs]; dense, no
 *            groups, padded with `rest`. A product of matrices is a 1x1 convolution of an image that is one pixel wide.
 * Weights    s8, the layout of cpu_fours_weights_md().
 * Numerics   Sums of 32 bits, which the caller knows not to overflow. A result is a sum, from its start on, times sums[channel],
 *            plus bias[channel], plus the addend times addend_scale; or `smooth` of that (activation.h, held.h; Swish to 1e-4 of it where
 *            it is rounded), times smooth_scale, plus smooth_zero; within the bounds, and rounded to even, plus `zero`, where it is no float.
 * Trust      Sizes and pointers are the caller's; any numbers may be in the tensors.
 * Threads    As kernels/cpu/loops/direct.h. The result does not depend on the number of members.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_FOURS_H
#define LEAT_KERNELS_CPU_LOOPS_FOURS_H

#include <oneapi/dnnl/dnnl_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/graph.h"

enum {
    CPU_FOURS_INPUTS = 4,
    CPU_FOURS_OUTPUTS = 8, /* of a vector */
    CPU_FOURS_SUM = 128,         /* times 255 it fits 16 bits */
    CPU_FOURS_TAPS_MAX = 49,     /* pixels of a window */
    CPU_FOURS_PADDED_MAX = 4096, /* inputs, where the window reaches beyond the image */
};

struct cpu_fours {
    int64_t items, inputs, outputs;
    int64_t height, width, out_height, out_width;
    int64_t kernel_down, kernel_across, stride_down, stride_across, pad_top, pad_left;
    bool source_signed;
    unsigned char rest; /* what is outside of the image */
    dnnl_data_type_t result, addend; /* dnnl_f32, dnnl_u8, dnnl_s8; an addend in floats has the result's place, as has the result */
    float addend_scale;
    enum leat_activation smooth; /* LEAT_ACTIVATION_NONE, or one of kernels/cpu/loops/activation.h, or one that bends */
    float slope;                 /* of LeakyRelu */
    float smooth_scale, smooth_zero;
    float least, most; /* of whole numbers that can be stored, less `zero` */
    int32_t zero;      /* is added to a whole number when it is rounded; halves become even before that */
};

/* The processor has AVX2 and no AVX-512, where oneDNN has vectors twice as wide. */
bool cpu_fours_run_here(void);

/* How many fours the inputs of a pixel have, and which input one has at `place`, of the last ones beyond those that there are. */
static inline int64_t
cpu_fours_count(int64_t inputs)
{
    return (inputs + 7) / 8 * 2;
}

static inline int64_t
cpu_input_of_four(int64_t four, int64_t place)
{
    return four / 2 * 8 + four % 2 * 2 + place / 2 * 4 + place % 2;
}

/* s8[outputs][inputs][kernel_down][kernel_across], filled up with zeros: outputs to whole panels, inputs to whole fours. */
dnnl_memory_desc_t cpu_fours_weights_md(const struct cpu_fours *conv);
/* What sums begin with: what numbers of s8, which become those of u8 by adding 128, would add to them, taken off. */
void cpu_fours_starts(const struct cpu_fours *conv, const int8_t *weights, int32_t *ret_starts);

/*
 * addend is NULL where nothing is added, and may be the result. starts, sums and bias are of [outputs], filled up to whole
 * vectors of 8. All have 64-byte alignment.
 */
void cpu_fours_run(const struct cpu_fours *conv, const void *source, const int8_t *weights, const int32_t *starts, const float *sums,
                   const float *bias, const void *addend, void *result, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_FOURS_H */
