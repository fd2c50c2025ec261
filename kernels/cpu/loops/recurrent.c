/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/recurrent.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/recurrent_kernel.h"

static const struct cpu_recurrent_kernel *
kernel(void)
{
    return cpu_has_avx512() ? &cpu_recurrent_avx512 : &cpu_recurrent_avx2;
}

size_t
cpu_recurrent_weights_bytes(const struct leat_recurrent *g, int64_t inner)
{
    return kernel()->weights_bytes(g, inner);
}

void
cpu_recurrent_pack(uint32_t directions, uint32_t gates, int64_t hidden, int64_t inner, const float *weights,
                   float *ret_packed)
{
    kernel()->pack(directions, gates, hidden, inner, weights, ret_packed);
}

size_t
cpu_recurrent_scratch_bytes(const struct cpu_recurrent *r, uint32_t threads)
{
    return kernel()->scratch_bytes(r, threads);
}

uint32_t
cpu_recurrent_members(const struct cpu_recurrent *r, uint32_t threads)
{
    return kernel()->members(r, threads);
}

void
cpu_recurrent_run(const struct cpu_recurrent *r, const struct cpu_recurrent_operands *o, void *scratch,
                  struct leat_team *team, uint32_t member, uint32_t members)
{
    kernel()->run(r, o, scratch, team, member, members);
}
