/* SPDX-License-Identifier: Apache-2.0 */
/* base/align.h - alignment constants and checked size arithmetic for outside numbers. */
#ifndef LEAT_BASE_ALIGN_H
#define LEAT_BASE_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAT_CACHE_LINE 64u
#define LEAT_ISOLATE    128u /* bytes: x86 fetches 64-byte lines in adjacent pairs */

#define LEAT_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline bool
leat_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Rounds up to a multiple of `unit`, a power of two. The caller knows that it cannot overflow. */
static inline uint64_t
leat_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

/* False, and *result untouched, on overflow. */
static inline bool
leat_mul_u64(uint64_t a, uint64_t b, uint64_t *result)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *result = product;
    return true;
}

static inline bool
leat_add_u64(uint64_t a, uint64_t b, uint64_t *result)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *result = sum;
    return true;
}

#endif /* LEAT_BASE_ALIGN_H */
