/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/direct.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/direct_kernel.h"

static const struct cpu_direct_kernel *
kernel(void)
{
    return cpu_has_avx512() ? &cpu_direct_avx512 : &cpu_direct_avx2;
}

size_t
cpu_direct_weights_bytes(const struct cpu_direct *conv)
{
    return kernel()->weights_bytes(conv);
}

void
cpu_direct_pack(const struct cpu_direct *conv, const float *weights, float *ret_packed)
{
    kernel()->pack(conv, weights, ret_packed);
}

void
cpu_direct_pack_transposed(const struct cpu_direct *conv, const float *weights, float *ret_packed)
{
    kernel()->pack_transposed(conv, weights, ret_packed);
}

size_t
cpu_direct_scratch_bytes(const struct cpu_direct *conv)
{
    return kernel()->scratch_bytes(conv);
}

void
cpu_direct_run(const struct cpu_direct *conv, const float *source, const float *packed, const float *bias, float *result,
               void *scratch, uint32_t member, uint32_t members)
{
    kernel()->run(conv, source, packed, bias, result, scratch, member, members);
}
