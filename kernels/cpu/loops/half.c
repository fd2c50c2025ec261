/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/half.h"

#include <string.h>

#include "base/status.h"
#include "kernels/half.h"

#if defined(__x86_64__)
#include "kernels/cpu/loops/product.h"

static CPU_AVX512 size_t
widen_vectors(const uint16_t *x, float *y, size_t count)
{
    size_t i = 0;
    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
    }
    return i;
}

CPU_INLINE void
narrow_vector(const float *x, uint16_t *y)
{
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)y, halves);
}

static CPU_AVX512 void
narrow_vectors(const float *x, uint16_t *y, size_t count)
{
    size_t i = 0;
    for (; i + CPU_LANES <= count; i += CPU_LANES) {
        narrow_vector(x + i, y + i);
    }
    if (i < count) {
        float last[CPU_LANES] = {0};
        uint16_t halves[CPU_LANES];
        memcpy(last, x + i, (count - i) * sizeof(*last));
        narrow_vector(last, halves);
        memcpy(y + i, halves, (count - i) * sizeof(*halves));
    }
}

bool
cpu_narrow_runs_here(void)
{
    return __builtin_cpu_supports("avx512f");
}

void
cpu_narrow(const float *x, uint16_t *y, size_t count)
{
    narrow_vectors(x, y, count);
}
#else
bool
cpu_narrow_runs_here(void)
{
    return false;
}

void
cpu_narrow(const float *x, uint16_t *y, size_t count)
{
    (void)x;
    (void)y;
    LEAT_ASSERT(count == 0);
}
#endif

void
cpu_widen(uint32_t dtype, const uint16_t *x, float *y, size_t count)
{
    size_t i = 0;
#if defined(__x86_64__)
    if (dtype == LEAT_DTYPE_F16 && __builtin_cpu_supports("avx512f")) {
        i = widen_vectors(x, y, count);
    }
#endif
    for (; i < count; i++) {
        y[i] = leat_half_widen(dtype, x[i]);
    }
}
