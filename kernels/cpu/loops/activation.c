/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/activation.h"

#include "base/status.h"
#include "kernels/cpu/isa.h"

bool
cpu_activation_runs_here(enum leat_activation activation)
{
    return cpu_has_avx2() && (activation == LEAT_ACTIVATION_SIGMOID || activation == LEAT_ACTIVATION_TANH ||
                              activation == LEAT_ACTIVATION_SWISH || activation == LEAT_ACTIVATION_GELU ||
                              activation == LEAT_ACTIVATION_GELU_TANH);
}

void
cpu_activate(enum leat_activation activation, float *y, size_t count)
{
    LEAT_ASSERT(cpu_activation_runs_here(activation));
    (cpu_has_avx512() ? cpu_activate_avx512 : cpu_activate_avx2)(activation, y, count);
}
