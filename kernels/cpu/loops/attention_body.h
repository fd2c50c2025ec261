/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/attention_body.h - what attention.h lists, in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include "kernels/cpu/loops/attention_kernel.h"
#include "kernels/cpu/loops/exponential.h"
#include "kernels/cpu/loops/product.h"

#if CPU_VECTOR_BITS == 512
CPU_INLINE float
largest_of(__m512 x)
{
    return _mm512_reduce_max_ps(x);
}
#else
CPU_INLINE float
largest_of(__m256 x)
{
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#endif

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

static size_t
scratch_bytes(const struct cpu_attention *a)
{
    return (size_t)(padded(a->keys) * (a->depth + CPU_ROWS) + a->keys * padded(a->width)) * sizeof(float);
}

/* `from` is the first key of the head; behind the last one there are zeros. */
CPU_KERNEL static void
pack_keys(const struct cpu_attention *a, const float *from, float *to)
{
    const int64_t stride = a->heads * a->depth;

    for (int64_t j = 0; j < padded(a->keys); j += CPU_LANES) {
        float *panel = to + j / CPU_PANEL * CPU_PANEL * a->depth + j % CPU_PANEL;
        for (int64_t d = 0; d < a->depth; d += CPU_LANES) {
            cpu_floats x[CPU_LANES];
            for (int64_t r = 0; r < CPU_LANES; r++) {
                x[r] = j + r < a->keys ? cpu_load_first(from + (j + r) * stride + d, a->depth - d) : CPU_V(setzero)();
            }
            cpu_transpose(x);
            for (int64_t c = 0; c < CPU_LANES && d + c < a->depth; c++) {
                CPU_V(store)(panel + (d + c) * CPU_PANEL, x[c]);
            }
        }
    }
}

CPU_KERNEL static void
pack_values(const struct cpu_attention *a, const float *from, float *to)
{
    const int64_t stride = a->heads * a->width;

    for (int64_t p = 0; p < a->width; p += CPU_PANEL) {
        for (int64_t j = 0; j < a->keys; j++, to += CPU_PANEL) {
            for (int64_t v = 0; v < CPU_PANEL; v += CPU_LANES) {
                const int64_t left = a->width - p - v;
                CPU_V(store)(to + v, cpu_load_first(from + j * stride + (left > 0 ? p + v : 0), left));
            }
        }
    }
}

/* Scores become weights e^(score - largest); returns the reciprocal of their sum. */
CPU_KERNEL static float
weigh(float *scores, int64_t keys)
{
    cpu_floats most = cpu_all(-__builtin_inff()), sum = CPU_V(setzero)();

    for (int64_t j = 0; j < keys; j += CPU_LANES) { /* NaN comes first: it is passed over, and shows in the sum */
        most = cpu_first(keys - j, CPU_V(max)(CPU_V(load)(scores + j), most), most);
    }
    const cpu_floats largest = cpu_all((double)largest_of(most));
    for (int64_t j = 0; j < keys; j += CPU_LANES) {
        const cpu_floats x = CPU_V(sub)(CPU_V(load)(scores + j), largest);
        const cpu_floats some = cpu_unless_below(x, cpu_all(-CPU_EXPONENT_MAX), cpu_exponential(x));
        const cpu_floats weight = cpu_first(keys - j, some, CPU_V(setzero)());
        CPU_V(store)(scores + j, weight);
        sum = CPU_V(add)(sum, weight);
    }
    return 1 / cpu_sum(sum);
}

/* `count` rows, a constant: the scores of all keys, their weights, and the mean of the values. */
CPU_INLINE void
attend_rows(const struct cpu_attention *a, const struct panels *panels, const float *queries, const float *mask, float *result,
            const int count)
{
    const int64_t stride = padded(a->keys);
    const float *rows[CPU_ROWS];
    float shares[CPU_ROWS];
    const cpu_floats scale = CPU_V(set1)(a->scale);
    cpu_floats sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = queries + r * a->heads * a->depth;
    }
    for (int64_t p = 0; p < a->keys; p += CPU_PANEL) {
#pragma GCC unroll 24
        for (int i = 0; i < count * CPU_VECTORS; i++) {
            sums[i / CPU_VECTORS][i % CPU_VECTORS] = CPU_V(setzero)();
        }
        cpu_product_in_steps(rows, a->depth, panels->keys + p * a->depth, panels->keys + p * a->depth, CPU_NO_STEP, sums,
                             CPU_VECTORS, count);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < CPU_VECTORS; v++) {
                const int64_t j = p + v * CPU_LANES;
                const cpu_floats added = mask != NULL && j < a->keys
                                             ? cpu_load_first(mask + r * a->mask_strides[2] + j, a->keys - j)
                                             : CPU_V(setzero)();
                CPU_V(store)(panels->scores + r * stride + j, CPU_V(fmadd)(sums[r][v], scale, added));
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
            sums[i / CPU_VECTORS][i % CPU_VECTORS] = CPU_V(setzero)();
        }
        cpu_product_in_steps(rows, a->keys, panels->values + p * a->keys, panels->values + p * a->keys, CPU_NO_STEP, sums,
                             CPU_VECTORS, count);
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            const cpu_floats share = CPU_V(set1)(shares[r]);
#pragma GCC unroll 4
            for (int v = 0; v < CPU_VECTORS; v++) {
                const int64_t d = p + v * CPU_LANES;
                if (d < a->width) {
                    cpu_store_first(result + r * a->heads * a->width + d, a->width - d, CPU_V(mul)(sums[r][v], share));
                }
            }
        }
    }
}

CPU_KERNEL static void
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

static void
run(const struct cpu_attention *a, const float *queries, const float *keys, const float *values, const float *mask,
    float *result, void *scratch, uint32_t member, uint32_t members)
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

const struct cpu_attention_kernel CPU_SIZED(cpu_attention) = {scratch_bytes, run};
