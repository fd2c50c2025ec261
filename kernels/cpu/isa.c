/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/isa.h"

#include <oneapi/dnnl/dnnl.h>

static bool avx512, avx2;

/* Before anything runs: kernels ask often, and from all threads. */
__attribute__((constructor)) static void
look(void)
{
    const unsigned here = (unsigned)dnnl_get_effective_cpu_isa();

    avx512 = (here & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
    avx2 = (here & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && __builtin_cpu_supports("fma");
}

bool
cpu_has_avx512(void)
{
    return avx512;
}

bool
cpu_has_avx2(void)
{
    return avx2;
}

int64_t
cpu_vector_lanes(void)
{
    return avx512 ? 16 : avx2 ? 8 : 0;
}
