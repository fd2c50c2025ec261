/* SPDX-License-Identifier: Apache-2.0 */
/* tests/kernels/drawn_numbers.h - numbers and memory for tests of kernels: what a program draws is one sequence, by its seed. */
#ifndef LEAT_TEST_DRAWN_NUMBERS_H
#define LEAT_TEST_DRAWN_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/align.h"
#include "tests/leat_test.h"

static uint64_t random_state; /* set it to leat_test_seed */

/* low..high */
static inline int64_t
between(int64_t low, int64_t high)
{
    return low + (int64_t)(leat_test_random(&random_state) % (uint64_t)(high - low + 1));
}

/* To be freed. In [-1, 1], of three digits. */
static inline float *
floats(size_t count)
{
    float *data = malloc((count + 1) * sizeof(*data));
    EXPECT(data != NULL);
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)between(-1000, 1000) / 1000.0f;
    }
    return data;
}

/* To be freed; with room for what reads whole vectors. */
static inline void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 64, 64));
    EXPECT(block != NULL);
    return block;
}

#endif /* LEAT_TEST_DRAWN_NUMBERS_H */
