/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/attention_kernel.h - attention.h in vectors of one width.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_ATTENTION_KERNEL_H
#define LEAT_KERNELS_CPU_LOOPS_ATTENTION_KERNEL_H

#include "kernels/cpu/loops/attention.h"

struct cpu_attention_kernel {
    size_t (*scratch_bytes)(const struct cpu_attention *a);
    void (*run)(const struct cpu_attention *a, const float *queries, const float *keys, const float *values, const float *mask,
                float *result, void *scratch, uint32_t member, uint32_t members);
};

extern const struct cpu_attention_kernel cpu_attention_avx512, cpu_attention_avx2;

#endif /* LEAT_KERNELS_CPU_LOOPS_ATTENTION_KERNEL_H */
