/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/loops/qconv_stages.h - what the ways of kernels/cpu/loops/qconv.h share: how members divide, sums of products, results. */
#ifndef LEAT_KERNELS_CPU_LOOPS_QCONV_STAGES_H
#define LEAT_KERNELS_CPU_LOOPS_QCONV_STAGES_H

#define CPU_VECTOR_BITS 256
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/qconv.h"

enum {
    CPU_QCONV_SHORTS = 2 * CPU_LANES, /* numbers of 16 bits in a vector */
    CPU_QCONV_PAIRS = CPU_PANEL * 2,  /* weights of a pair of numbers of the source */
    CPU_QCONV_BLOCK = 128,            /* windows that are multiplied at a time, at most */
};

_Static_assert(CPU_PANEL == CPU_QCONV_PANEL, "two vectors of sums");

/* What all of a step are told. */
struct cpu_qconv_work {
    const struct cpu_qconv *p;
    const int8_t *packed;
    const float *units, *bias;
};

/* Numbers of a window that follow each other. */
struct cpu_qconv_piece {
    int64_t at, count;
};

/* What a member of a team does: rows, which are windows, times panels. */
struct cpu_qconv_part {
    int64_t first_row, last_row, first_panel, last_panel;
};

enum { CPU_QCONV_PARTS = 3 };

/*
 * The parts of a member, no row in two of them; returns how many there are. Where there are at least as many tiles, of CPU_ROWS rows
 * and a panel, as members, none is without.
 */
int64_t cpu_qconv_parts(int64_t rows, int64_t panels, uint32_t member, uint32_t members, struct cpu_qconv_part ret_parts[CPU_QCONV_PARTS]);

/* Numbers of a pixel, of whole pairs. */
static inline int64_t
cpu_qconv_depth(int64_t inputs)
{
    return (inputs + 1) / 2 * 2;
}

static inline int64_t
cpu_qconv_panels(int64_t outputs)
{
    return (outputs + CPU_PANEL - 1) / CPU_PANEL;
}

/* Pairs of a panel, as they are multiplied. */
void cpu_qconv_unpack(const int8_t *packed, int64_t pairs, int16_t *ret_panel);
/* Pieces of `count` windows times a panel, of which there are `outputs` left; added to sums[count][CPU_PANEL], or the first. */
void cpu_qconv_add_products(const int16_t *const *windows, int64_t count, const struct cpu_qconv_piece *pieces, int64_t piece_count,
                            const int16_t *panel, int32_t *sums, bool first, int64_t outputs);
/* Of `count` pixels the outputs of the panel that begins at `column`; sums are so many `times` what they stand for. */
void cpu_qconv_store(const struct cpu_qconv_work *work, const int32_t *sums, int64_t count, int64_t column, float times,
                     uint8_t *result);

/* Winograd's; `scratch` is of so many bytes. */
bool cpu_qconv_takes_winograd(const struct cpu_qconv *p);
size_t cpu_qconv_winograd_bytes(const struct cpu_qconv *p);
void cpu_qconv_run_winograd(const struct cpu_qconv_work *work, const uint8_t *source, void *scratch, uint8_t *result, uint32_t member,
                            uint32_t members);

/* Of weights that cpu_qconv_pack_narrow() has packed: those of cpu_qconv_pack(), where it has kept to them, else NULL. */
const int8_t *cpu_qconv_wide_part(const void *packed);
/* Of the others. */
void cpu_qconv_run_narrow(const struct cpu_qconv_work *work, const uint8_t *source, int16_t *scratch, uint8_t *result, uint32_t member,
                          uint32_t members);

#endif /* LEAT_KERNELS_CPU_LOOPS_QCONV_STAGES_H */
