/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/random.h"

#include <stdbool.h>

#define EXP_MINUS_HALF 0.60653065971263342

uint64_t
random_u64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double
random_uniform(uint64_t *state)
{
    return (double)(random_u64(state) >> 11) * 0x1p-53;
}

/* True with probability exp(-x), 0 <= x <= 1: uniforms fall from x on for n steps with probability x^n / n!; n is even. */
static bool
chance_exp(uint64_t *state, double x)
{
    bool even = true;

    for (;;) {
        const double u = random_uniform(state);
        if (!(u < x)) {
            return even;
        }
        x = u;
        even = !even;
    }
}

double
random_exponential(uint64_t *state)
{
    for (double whole = 0;; whole++) {
        const double part = random_uniform(state);
        if (chance_exp(state, part)) {
            return whole + part;
        }
    }
}

/* True with probability exp(-k (k - 1) / 2). */
static bool
chance_square(uint64_t *state, uint32_t k)
{
    for (uint32_t i = 0; i < k * (k - 1); i++) {
        if (random_uniform(state) >= EXP_MINUS_HALF) {
            return false;
        }
    }
    return true;
}

double
random_normal(uint64_t *state)
{
    for (;;) {
        uint32_t k = 0;
        while (random_uniform(state) < EXP_MINUS_HALF) {
            k++;
        }
        if (!chance_square(state, k)) {
            continue;
        }
        const double x = random_uniform(state);
        uint32_t left = k + 1;
        while (left > 0 && chance_exp(state, x * (2 * k + x) / (2 * k + 2))) {
            left--;
        }
        if (left == 0) {
            return (random_u64(state) & 1) != 0 ? k + x : -(k + x);
        }
    }
}
