/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/qconv_stages.h"

#include <string.h>

#include "base/status.h"

#define FAR 32767.0f /* beyond it every result saturates, whatever the zero point is */

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* As the instruction has them: GCC keeps arrays of these in registers, but not of __m256i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(32)));

/* Pieces of some windows times the first `vectors` of a panel; added to sums[count][CPU_PANEL], or the first. */
CPU_INLINE void
tile(const int16_t *const *windows, const struct cpu_qconv_piece *pieces, int64_t piece_count, const int16_t *panel, int32_t *sums_at,
     bool first, const int vectors, const int count)
{
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const __m256i *from = (const __m256i *)(const void *)(sums_at + r * CPU_PANEL + v * CPU_LANES);
            sums[r][v] = (sums_of)(first ? _mm256_setzero_si256() : _mm256_load_si256(from));
        }
    }
    for (int64_t i = 0; i < piece_count; i++) {
        const int16_t *rows[CPU_ROWS];
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            rows[r] = windows[r] + pieces[i].at;
        }
        for (int64_t k = 0; k < pieces[i].count; k += 2, panel += CPU_QCONV_PAIRS) {
            __m256i weights[CPU_VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                weights[v] = _mm256_load_si256((const __m256i *)(const void *)(panel + v * CPU_QCONV_SHORTS));
            }
#pragma GCC unroll 6
            for (int r = 0; r < count; r++) {
                int32_t pair;
                memcpy(&pair, rows[r] + k, sizeof(pair));
                const __m256i x = _mm256_set1_epi32(pair);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    sums[r][v] = (sums_of)_mm256_add_epi32((__m256i)sums[r][v], _mm256_madd_epi16(x, weights[v]));
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            _mm256_store_si256((__m256i *)(void *)(sums_at + r * CPU_PANEL + v * CPU_LANES), (__m256i)sums[r][v]);
        }
    }
}

CPU_INLINE void
tiles(const int16_t *const *windows, int64_t count, const struct cpu_qconv_piece *pieces, int64_t piece_count,
      const int16_t *panel, int32_t *sums, bool first, const int vectors)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = count * g / groups;
        const int16_t *const *from = windows + begin;
        int32_t *to = sums + begin * CPU_PANEL;
        switch (count * (g + 1) / groups - begin) {
        case 1: tile(from, pieces, piece_count, panel, to, first, vectors, 1); break;
        case 2: tile(from, pieces, piece_count, panel, to, first, vectors, 2); break;
        case 3: tile(from, pieces, piece_count, panel, to, first, vectors, 3); break;
        case 4: tile(from, pieces, piece_count, panel, to, first, vectors, 4); break;
        case 5: tile(from, pieces, piece_count, panel, to, first, vectors, 5); break;
        default: tile(from, pieces, piece_count, panel, to, first, vectors, CPU_ROWS); break;
        }
    }
}

CPU_KERNEL void
cpu_qconv_unpack(const int8_t *packed, int64_t pairs, int16_t *ret_panel)
{
    for (int64_t k = 0; k < pairs; k++, packed += CPU_QCONV_PAIRS, ret_panel += CPU_QCONV_PAIRS) {
#pragma GCC unroll 2
        for (int v = 0; v < CPU_VECTORS; v++) {
            const __m128i bytes = _mm_load_si128((const __m128i *)(const void *)(packed + v * CPU_QCONV_SHORTS));
            _mm256_store_si256((__m256i *)(void *)(ret_panel + v * CPU_QCONV_SHORTS), _mm256_cvtepi8_epi16(bytes));
        }
    }
}

CPU_KERNEL void
cpu_qconv_add_products(const int16_t *const *windows, int64_t count, const struct cpu_qconv_piece *pieces, int64_t piece_count,
                       const int16_t *panel, int32_t *sums, bool first, int64_t outputs)
{
    if (outputs <= CPU_LANES) {
        tiles(windows, count, pieces, piece_count, panel, sums, first, 1);
    } else {
        tiles(windows, count, pieces, piece_count, panel, sums, first, CPU_VECTORS);
    }
}

/* ---- Results ---------------------------------------------------------------------------------------- */

/* Rounded; what is beyond 32 bits below becomes the least of them. */
CPU_INLINE __m256i
rounded(const int32_t *sums, __m256 unit, __m256 bias)
{
    const __m256 y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)sums)), unit, bias);

    return _mm256_cvtps_epi32(_mm256_min_ps(y, _mm256_set1_ps(FAR)));
}

CPU_KERNEL void
cpu_qconv_store(const struct cpu_qconv_work *work, const int32_t *sums, int64_t count, int64_t column, float times, uint8_t *result)
{
    const struct cpu_qconv *p = work->p;
    const float *units = work->units + column, *bias = work->bias + column;
    const __m256 share = _mm256_set1_ps(1 / times), low = _mm256_load_ps(bias), high = _mm256_load_ps(bias + CPU_LANES);
    const __m256 low_unit = _mm256_mul_ps(_mm256_load_ps(units), share);
    const __m256 high_unit = _mm256_mul_ps(_mm256_load_ps(units + CPU_LANES), share);
    const int64_t left = p->outputs - column;

    for (int64_t r = 0; r < count; r++, sums += CPU_PANEL) {
        const __m256i near = _mm256_packs_epi32(rounded(sums, low_unit, low), rounded(sums + CPU_LANES, high_unit, high));
        const __m256i words = _mm256_adds_epi16(near, _mm256_set1_epi16((int16_t)p->result_zero));
        const __m256i bytes = p->result_signed ? _mm256_packs_epi16(words, words) : _mm256_packus_epi16(words, words);
        const __m256i line = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
        uint8_t *to = result + r * p->outputs + column;
        if (LEAT_LIKELY(left >= CPU_PANEL)) {
            _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(line));
        } else {
            uint8_t some[CPU_PANEL];
            _mm_storeu_si128((__m128i *)(void *)some, _mm256_castsi256_si128(line));
            memcpy(to, some, (size_t)left);
        }
    }
}
