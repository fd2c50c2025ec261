/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/direct_kernel.h - direct.h in vectors of one width. Weights that one has packed are not for another.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_DIRECT_KERNEL_H
#define LEAT_KERNELS_CPU_LOOPS_DIRECT_KERNEL_H

#include "kernels/cpu/loops/direct.h"

struct cpu_direct_kernel {
    size_t (*weights_bytes)(const struct cpu_direct *conv);
    void (*pack)(const struct cpu_direct *conv, const float *weights, float *ret_packed);
    void (*pack_transposed)(const struct cpu_direct *conv, const float *weights, float *ret_packed);
    size_t (*scratch_bytes)(const struct cpu_direct *conv);
    void (*run)(const struct cpu_direct *conv, const float *source, const float *packed, const float *bias, float *result,
                void *scratch, uint32_t member, uint32_t members);
    /*
     * What one thread makes of rows that lie anywhere, by vectors first_vector..last_vector of results: of a convolution of
     * one tap. The results of rows are conv->outputs floats apart, whole vectors; with conv->add they are added to what is
     * there.
     */
    void (*multiply)(const struct cpu_direct *conv, const float *const rows[], int64_t count, const float *packed,
                     const float *bias, int64_t first_vector, int64_t last_vector, float *result);
};

/*
 * Of the two with AVX2 one is for few rows: its panels are wider, so that four sums of a row are made at a time; the other reads
 * fewer weights where there are many.
 */
extern const struct cpu_direct_kernel cpu_direct_avx512, cpu_direct_avx2, cpu_direct_few_avx2;

#endif /* LEAT_KERNELS_CPU_LOOPS_DIRECT_KERNEL_H */
