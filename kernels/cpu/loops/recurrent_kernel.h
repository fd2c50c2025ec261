/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/recurrent_kernel.h - recurrent.h in vectors of one width.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_RECURRENT_KERNEL_H
#define LEAT_KERNELS_CPU_LOOPS_RECURRENT_KERNEL_H

#include "kernels/cpu/loops/recurrent.h"

struct cpu_recurrent_kernel {
    size_t (*weights_bytes)(const struct leat_recurrent *g, int64_t inner);
    void (*pack)(uint32_t directions, uint32_t gates, int64_t hidden, int64_t inner, const float *weights,
                 float *ret_packed);
    size_t (*scratch_bytes)(const struct cpu_recurrent *r, uint32_t threads);
    uint32_t (*members)(const struct cpu_recurrent *r, uint32_t threads);
    void (*run)(const struct cpu_recurrent *r, const struct cpu_recurrent_operands *o, void *scratch,
                struct leat_team *team, uint32_t member, uint32_t members);
};

extern const struct cpu_recurrent_kernel cpu_recurrent_avx512, cpu_recurrent_avx2;

#endif /* LEAT_KERNELS_CPU_LOOPS_RECURRENT_KERNEL_H */
