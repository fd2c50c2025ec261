/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/attention.h"

#include "base/align.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/product.h"

/* Of one head: its keys and values as panels, and the scores of a few rows. */
struct panels {
    float *keys;   /* [keys / CPU_PANEL][depth][CPU_PANEL] */
    float *values; /* [width / CPU_PANEL][keys][CPU_PANEL] */
    float *scores; /* [CPU_ROWS][padded keys] */
};

static int64_t
padded(int64_t count)
{
    return (count + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
}

size_t
cpu_attention_scratch_bytes(const struct cpu_attention *a)
{
    return (size_t)(padded(a->keys) * (a->depth + CPU_ROWS) + a->keys * padded(a->width)) * sizeof(float);
}

/* `from` is the first key of the head; behind the last one there are zeros. */
CPU_AVX512 static void
pack_keys(const struct cpu_attention *a, const float *from, float *to)
{
    const int64_t stride = a->heads * a->depth;

    for (int64_t j = 0; j < padded(a->keys); j += CPU_LANES) {
        float *panel = to + j / CPU_PANEL * CPU_PANEL * a->depth + j % CPU_PANEL;
        for (int64_t d = 0; d < a->depth; d += CPU_LANES) {
            __m512 x[CPU_LANES];
            for (int64_t r = 0; r < CPU_LANES; r++) {
                x[r] = j + r < a->keys ? _mm512_maskz_loadu_ps(cpu_lanes(a->depth - d), from + (j + r) * stride + d)
                                       : _mm512_setzero_ps();
            }
            cpu_transpose(x);
            for (int64_t c = 0; c < CPU_LANES && d + c < a->depth; c++) {
                _mm512_store_ps(panel + (d + c) * CPU_PANEL, x[c]);
            }
        }
    }
}

CPU_AVX512 static void
pack_values(const struct cpu_attention *a, const float *from, float *to)
{
    const int64_t stride = a->heads * a->width;

    for (int64_t p = 0; p < a->width; p += CPU_PANEL) {
        for (int64_t j = 0; j < a->keys; j++, to += CPU_PANEL) {
            for (int64_t v = 0; v < CPU_PANEL; v += CPU_LANES) {
                const __mmask16 there = cpu_lanes(a->width - p - v);
                _mm512_store_ps(to + v, _mm512_maskz_loadu_ps(there, from + j * stride + (there != 0 ? p + v : 0)));
            }
        }
    }
}

/* Scores become weights e^(score - largest); returns the reciprocal of their sum. */
CPU_AVX512 static float
weigh(float *scores, int64_t keys)
{
    __m512 most = cpu_all(-__builtin_inff()), sum = _mm512_setzero_ps();

    for (int64_t j = 0; j < keys; j += CPU_LANES) { /* NaN comes first: it is passed over, and shows in the sum */
        const __mmask16 there = cpu_lanes(keys - j);
        most = _mm512_mask_max_ps(most, there, _mm512_load_ps(scores + j), most);
    }
    const __m512 largest = cpu_all((double)_mm512_reduce_max_ps(most));
    for (int64_t j = 0; j < keys; j += CPU_LANES) {
        const __m512 x = _mm512_sub_ps(_mm512_load_ps(scores + j), largest);
        const __mmask16 some = _mm512_cmp_ps_mask(x, cpu_all(-CPU_EXPONENT_MAX), _CMP_NLT_UQ) & cpu_lanes(keys - j);
        const __m512 weight = _mm512_maskz_mov_ps(some, cpu_exponential(x));
        _mm512_store_ps(scores + j, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    return 1 / _mm512_reduce_add_ps(sum);
}

/* `count` rows, a constant: the scores of all keys, their weights, and the mean of the values. */
CPU_INLINE void
attend_rows(const struct cpu_attention *a, const struct panels *panels, const float *queries, const float *mask, float *result,
            const int count)
{
    const int64_t stride = padded(a->keys);
    const float *rows[CPU_ROWS];
    float shares[CPU_ROWS];
    const __m512 scale = _mm512_set1_ps(a->scale);
    __m512 sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = queries + r * a->heads * a->depth;
    }
    for (int64_t p = 0; p < a->keys; p += CPU_PANEL) {
#pragma GCC unroll 24
        for (int i = 0; i < count * CPU_VECTORS; i++) {
            sums[i / CPU_VECTORS][i % CPU_VECTORS] = _mm512_setzero_ps();
        }
        cpu_product(rows, a->depth, panels->keys + p * a->depth, panels->keys + p * a->depth, CPU_LANES, sums, CPU_VECTORS,
                    count);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < CPU_VECTORS; v++) {
                const int64_t j = p + v * CPU_LANES;
                const __mmask16 there = mask != NULL ? cpu_lanes(a->keys - j) : 0;
                const __m512 added =
                    there != 0 ? _mm512_maskz_loadu_ps(there, mask + r * a->mask_strides[2] + j) : _mm512_setzero_ps();
                _mm512_store_ps(panels->scores + r * stride + j, _mm512_fmadd_ps(sums[r][v], scale, added));
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = panels->scores + r * stride;
        shares[r] = weigh(panels->scores + r * stride, a->keys);
    }
    for (int64_t p = 0; p < a->width; p += CPU_PANEL) {
#pragma GCC unroll 24
        for (int i = 0; i < count * CPU_VECTORS; i++) {
            sums[i / CPU_VECTORS][i % CPU_VECTORS] = _mm512_setzero_ps();
        }
        cpu_product(rows, a->keys, panels->values + p * a->keys, panels->values + p * a->keys, CPU_LANES, sums, CPU_VECTORS,
                    count);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const __m512 share = _mm512_set1_ps(shares[r]);
#pragma GCC unroll 4
            for (int v = 0; v < CPU_VECTORS; v++) {
                const int64_t d = p + v * CPU_LANES;
                if (d < a->width) {
                    _mm512_mask_storeu_ps(result + r * a->heads * a->width + d, cpu_lanes(a->width - d),
                                          _mm512_mul_ps(sums[r][v], share));
                }
            }
        }
    }
}

CPU_AVX512 static void
attend(const struct cpu_attention *a, const struct panels *panels, const float *queries, const float *mask, float *result)
{
    const int64_t groups = (a->rows + CPU_ROWS - 1) / CPU_ROWS;

    for (int64_t g = 0; g < groups; g++) {
        const int64_t r = a->rows * g / groups;
        const float *from = queries + r * a->heads * a->depth, *added = mask != NULL ? mask + r * a->mask_strides[2] : NULL;
        float *to = result + r * a->heads * a->width;
        switch (a->rows * (g + 1) / groups - r) {
        case 1: attend_rows(a, panels, from, added, to, 1); break;
        case 2: attend_rows(a, panels, from, added, to, 2); break;
        case 3: attend_rows(a, panels, from, added, to, 3); break;
        case 4: attend_rows(a, panels, from, added, to, 4); break;
        case 5: attend_rows(a, panels, from, added, to, 5); break;
        default: attend_rows(a, panels, from, added, to, CPU_ROWS); break;
        }
    }
}

void
cpu_attention_run(const struct cpu_attention *a, const float *queries, const float *keys, const float *values,
                  const float *mask, float *result, void *scratch, uint32_t member, uint32_t members)
{
    const int64_t count = a->items * a->heads;
    struct panels panels = {.keys = scratch};

    panels.scores = panels.keys + padded(a->keys) * a->depth;
    panels.values = panels.scores + padded(a->keys) * CPU_ROWS;
    for (int64_t n = count * member / members; n < count * (member + 1) / members; n++) {
        const int64_t item = n / a->heads, head = n % a->heads;
        pack_keys(a, keys + (item * a->keys * a->heads + head) * a->depth, panels.keys);
        pack_values(a, values + (item * a->keys * a->heads + head) * a->width, panels.values);
        attend(a, &panels, queries + (item * a->rows * a->heads + head) * a->depth,
               mask != NULL ? mask + item * a->mask_strides[0] + head * a->mask_strides[1] : NULL,
               result + (item * a->rows * a->heads + head) * a->width);
    }
}
