/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/half.h - a float of 16 bits (f16 or bf16) as f32, which has all of them. */
#ifndef LEAT_KERNELS_HALF_H
#define LEAT_KERNELS_HALF_H

#include <leat/tensor.h>
#include <stdint.h>
#include <string.h>

static inline float
leat_half_widen(uint32_t dtype, uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    uint32_t wide = sign | (exponent == 31 ? UINT32_C(0x7f800000) : (exponent + 112) << 23) | fraction << 13;
    float result;

    if (dtype == LEAT_DTYPE_BF16) {
        wide = (uint32_t)bits << 16;
    } else if (exponent == 0) { /* below the normal numbers, 2^-24 apart */
        return (sign != 0 ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    }
    memcpy(&result, &wide, sizeof(result));
    return result;
}

#endif /* LEAT_KERNELS_HALF_H */
