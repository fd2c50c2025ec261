/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/portion.h - how the members of a team divide f32[rows][width][channels].
 *
 * Role       Steps that follow each other and divide in the same way leave each member with what it has written itself: a
 *            line that another core has written, or has read too, costs several times as much. By rows, or by channels
 *            where rows are few: windows of neighbouring rows overlap, which would be computed twice.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_PORTION_H
#define LEAT_KERNELS_CPU_LOOPS_PORTION_H

#include <stdbool.h>
#include <stdint.h>

#define CPU_PORTION_ROWS 7 /* for each member, at least */

struct cpu_portion {
    int64_t first_row, last_row;
    int64_t first_vector, last_vector; /* of CPU_LANES channels */
    bool by_rows;
};

static inline struct cpu_portion
cpu_portion_of(int64_t rows, int64_t vectors, uint32_t member, uint32_t members)
{
    struct cpu_portion portion = {0, rows, 0, vectors, rows >= (int64_t)members * CPU_PORTION_ROWS || vectors < (int64_t)members};

    if (portion.by_rows) {
        portion.first_row = rows * member / members;
        portion.last_row = rows * (member + 1) / members;
    } else {
        portion.first_vector = vectors * member / members;
        portion.last_vector = vectors * (member + 1) / members;
    }
    return portion;
}

#endif /* LEAT_KERNELS_CPU_LOOPS_PORTION_H */
