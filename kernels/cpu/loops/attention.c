/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/attention.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/attention_kernel.h"

static const struct cpu_attention_kernel *
kernel(void)
{
    return cpu_has_avx512() ? &cpu_attention_avx512 : &cpu_attention_avx2;
}

size_t
cpu_attention_scratch_bytes(const struct cpu_attention *a)
{
    return kernel()->scratch_bytes(a);
}

void
cpu_attention_run(const struct cpu_attention *a, const float *queries, const float *keys, const float *values, const float *mask,
                  float *result, void *scratch, uint32_t member, uint32_t members)
{
    kernel()->run(a, queries, keys, values, mask, result, scratch, member, members);
}
