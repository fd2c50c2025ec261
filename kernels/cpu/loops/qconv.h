/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/qconv.h - convolutions and products of tensors that the file has quantised, with AVX2: their sums are exact.
 *
 * Role       Without VNNI what multiplies 8 bits caps sums of two products at 16 bits, and a file's weights have 8. Here both sides
 *            are widened to 16 bits, of which an instruction adds up two products in 32, twice as many as of floats. 3x3 windows next to
 *            each other are Winograd's, with four ninths of the products, and as exact.
 *            Of products of u8 those are multiplied as 8 bits whose weights are known to leave sums of pairs below that cap.
 * Shapes     source u8 or s8[items][in][inputs], result u8 or s8[items][out][outputs], in and out of up to three axes; dense, no
 *            groups. A product of matrices is a convolution of images of one pixel.
 * Weights    s8, as cpu_qconv_pack() or cpu_qconv_pack_narrow() writes them, in panels of CPU_QCONV_PANEL outputs.
 * Scratch    For each member some lines of windows, or tiles, less the source's zero point: what is outside is 0.
 * Numerics   Sums of 32 bits, which the caller knows not to overflow. A result is a sum times units[output] plus bias[output],
 *            rounded, halves to the even number, plus the result's zero point, and saturates.
 * Trust      Sizes and pointers are the caller's; any numbers may be in the tensors.
 * Threads    As kernels/cpu/loops/direct.h. Members divide tiles of six windows, or six of Winograd's tiles, and a panel: none is idle where
 *            there are as many. The result does not depend on their number.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_QCONV_H
#define LEAT_KERNELS_CPU_LOOPS_QCONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/window.h"

enum { CPU_QCONV_PANEL = 16 };

struct cpu_qconv {
    int64_t items, inputs, outputs;
    struct leat_window window;
    bool source_signed, result_signed;
    int32_t source_zero, result_zero;
    bool narrow; /* weights are as cpu_qconv_pack_narrow() writes them */
};

/* How far apart neighbouring weights lie in each direction. */
struct cpu_qconv_strides {
    int64_t output, input, tap;
};

size_t cpu_qconv_packed_bytes(int64_t outputs, int64_t inputs, int64_t taps);
void cpu_qconv_pack(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t outputs, int64_t inputs, int64_t taps,
                    int8_t *ret_packed);
/*
 * The same for a source of u8 and windows of one pixel, all in one line, whose inputs are a multiple of four: weights that may be
 * multiplied as 8 bits are, others as 16. `packed` has 64-byte alignment; strides->tap is not looked at.
 */
bool cpu_qconv_takes_narrow(const struct cpu_qconv *p);
size_t cpu_qconv_narrow_bytes(int64_t outputs, int64_t inputs);
void cpu_qconv_pack_narrow(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t outputs, int64_t inputs,
                           void *ret_packed);
/* Whether the windows of some pixels side by side are few enough bytes, whatever a file says of them: else it is none of these. */
bool cpu_qconv_fits(const struct leat_window *window, int64_t inputs);
/* Of one member. */
size_t cpu_qconv_scratch_bytes(const struct cpu_qconv *p);
/* units and bias are of whole panels. All but source and result have 64-byte alignment. */
void cpu_qconv_run(const struct cpu_qconv *p, const void *source, const int8_t *packed, const float *units, const float *bias,
                   int16_t *scratch, void *result, uint32_t member, uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_QCONV_H */
