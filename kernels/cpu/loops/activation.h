/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/activation.h - smooth activations of many elements, where oneDNN's take several times as long.
 *
 * Source     erf: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26; exp: kernels/cpu/loops/exponential.h.
 * Numerics   Errors are below 4e-7 max(1, |x|). Of an infinity the result is the limit, or NaN; of NaN it is NaN.
 */
#ifndef LEAT_KERNELS_CPU_LOOPS_ACTIVATION_H
#define LEAT_KERNELS_CPU_LOOPS_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/graph.h"

/* Whether there is one here for the activation, and this CPU has the instructions. */
bool cpu_activation_runs_here(enum leat_activation activation);

/* HardSwish and LeakyRelu, a few instructions each: kernels/cpu/loops/held.h. */
static inline bool
cpu_bends(enum leat_activation activation)
{
    return activation == LEAT_ACTIVATION_HARD_SWISH || activation == LEAT_ACTIVATION_LEAKY_RELU;
}

/* y[i] = activation(y[i]); y is aligned to 4 bytes. */
void cpu_activate(enum leat_activation activation, float *y, size_t count);
/* What that is, by the vectors that this CPU has. */
void cpu_activate_avx512(enum leat_activation activation, float *y, size_t count);
void cpu_activate_avx2(enum leat_activation activation, float *y, size_t count);

#endif /* LEAT_KERNELS_CPU_LOOPS_ACTIVATION_H */
