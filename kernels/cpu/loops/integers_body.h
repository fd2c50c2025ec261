/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/integers_body.h - what integers.h lists, in vectors of CPU_VECTOR_BITS. Included by one file for each width.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/integers.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

#ifndef INTEGERS_CAP_NOTHING
#define INTEGERS_CAP_NOTHING 0 /* 1: with VNNI */
#define INTEGERS_KERNEL      CPU_SIZED(cpu_integers)
#endif

#if CPU_VECTOR_BITS == 512
#if INTEGERS_CAP_NOTHING
#define INTS_TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#else
#define INTS_TARGET __attribute__((target("avx512f,avx512bw")))
#endif
#define INTS(op)    _mm512_##op
#define LOAD(from)  _mm512_load_si512(from)
#define LOADU(from) _mm512_loadu_si512(from)
#define STORE(to, x)  _mm512_store_si512(to, x)
#define STOREU(to, x) _mm512_storeu_si512(to, x)
#define LOAD_BYTES(from) _mm256_loadu_si256((const __m256i *)(const void *)(from)) /* one for each number of 16 bits */
#define LOAD_FEW(from) _mm_loadu_si128((const __m128i *)(const void *)(from)) /* of 32 */
#define FLOATS_OF(x) _mm512_castsi512_ps(x)
typedef __m512i ints;
#else
#define INTS_TARGET CPU_AVX2
#define INTS(op)    _mm256_##op
#define LOAD(from)  _mm256_load_si256((const __m256i *)(const void *)(from))
#define LOADU(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define STORE(to, x)  _mm256_store_si256((__m256i *)(void *)(to), x)
#define STOREU(to, x) _mm256_storeu_si256((__m256i *)(void *)(to), x)
#define LOAD_BYTES(from) _mm_loadu_si128((const __m128i *)(const void *)(from))
#define LOAD_FEW(from) _mm_loadl_epi64((const __m128i *)(const void *)(from))
#define FLOATS_OF(x) _mm256_castsi256_ps(x)
typedef __m256i ints;
#endif
#define INTS_INLINE static inline __attribute__((always_inline)) INTS_TARGET

enum {
    SHORTS = 2 * CPU_LANES,          /* numbers of 16 bits in a vector */
    PAIRS = CPU_PANEL * 2,           /* numbers of a pair of rows of a panel */
    SLICE_BYTES = 16 << 10,          /* of a panel in 16 bits: half of the first-level cache */
    SLICE = SLICE_BYTES / 2 / CPU_PANEL,
    BLOCK_ROWS = 128,
    /* Panels that read a slice of the rows one after the other: all slices would not stay in the second-level cache. */
    TOGETHER = CPU_PANEL < 64 ? 64 / CPU_PANEL : 1,
    FLIP = 128 /* makes u8 s8 */
};

static int64_t
pairs_of(int64_t inner)
{
    return (inner + 1) / 2;
}

static int64_t
panels_of(int64_t columns)
{
    return (columns + CPU_PANEL - 1) / CPU_PANEL;
}

/* Numbers of the slice that begins at `from`, in whole pairs. */
static int64_t
width_of(int64_t inner, int64_t from)
{
    return inner - from < SLICE ? 2 * pairs_of(inner - from) : SLICE;
}

/* ---- Operands --------------------------------------------------------------------------------------- */

static void
pack_wide(const uint8_t *b, bool b_signed, int64_t inner, int64_t columns, uint8_t *to)
{
    const uint8_t flip = b_signed ? 0 : FLIP;

    for (int64_t first = 0; first < columns; first += CPU_PANEL) {
        const int64_t count = columns - first < CPU_PANEL ? columns - first : CPU_PANEL;
        for (int64_t i = 0; i < inner; i += 2, to += PAIRS) {
            const uint8_t *row = b + i * columns + first;
            memset(to, 0, PAIRS);
            for (int64_t c = 0; c < count; c++) {
                to[2 * c] = row[c] ^ flip;
                to[2 * c + 1] = i + 1 < inner ? row[columns + c] ^ flip : 0;
            }
        }
    }
}

static int32_t
zero_of(const uint8_t *zeros, bool is_signed, int64_t i)
{
    return zeros == NULL ? 0 : is_signed ? (int8_t)zeros[i] : zeros[i];
}

INTS_TARGET static void
widen(const struct cpu_integers *p, const uint8_t *a, int64_t begin, int64_t end, int16_t *ret_wide)
{
    for (int64_t from = 0; from < p->inner; from += SLICE) {
        const int64_t width = width_of(p->inner, from), count = p->inner - from < SLICE ? p->inner - from : SLICE;
        for (int64_t r = begin; r < end; r++) {
            const int32_t zero = zero_of(p->a_zeros, p->a_signed, p->a_zero_count > 1 ? r % p->a_zero_count : 0);
            const uint8_t *x = a + r * p->inner + from;
            int16_t *to = ret_wide + from * p->rows + r * width;
            int64_t i = 0;
            for (; i + SHORTS <= count; i += SHORTS) {
                const ints numbers = p->a_signed ? INTS(cvtepi8_epi16)(LOAD_BYTES(x + i)) : INTS(cvtepu8_epi16)(LOAD_BYTES(x + i));
                STOREU(to + i, INTS(sub_epi16)(numbers, INTS(set1_epi16)((int16_t)zero)));
            }
            for (; i < count; i++) {
                to[i] = (int16_t)((p->a_signed ? (int8_t)x[i] : x[i]) - zero);
            }
            if (i < width) {
                to[i] = 0;
            }
        }
    }
}

/* Of the columns of a panel, each twice: less 128 where b is. */
static void
find_zeros(const struct cpu_integers *p, int64_t column, int16_t *ret_zeros)
{
    for (int64_t c = 0; c < CPU_PANEL; c++) {
        const int64_t at = p->b_zero_count > 1 ? column + c : 0;
        const int32_t zero = column + c < p->columns ? zero_of(p->b_zeros, p->b_signed, at) - (p->b_signed ? 0 : FLIP) : 0;
        ret_zeros[2 * c] = ret_zeros[2 * c + 1] = (int16_t)zero;
    }
}

/* Pairs of rows of a panel. */
INTS_TARGET static void
unpack(const int8_t *packed, int64_t pairs, const int16_t *zeros, int16_t *ret_panel)
{
    for (int64_t k = 0; k < pairs; k++, packed += PAIRS, ret_panel += PAIRS) {
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            const ints numbers = INTS(cvtepi8_epi16)(LOAD_BYTES(packed + v * SHORTS));
            STORE(ret_panel + v * SHORTS, INTS(sub_epi16)(numbers, LOAD(zeros + v * SHORTS)));
        }
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* As the instruction has them: GCC keeps arrays of these in registers, but not of those whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(CPU_VECTOR_BITS / 8)));

/* `count` rows, `width` numbers apart, times the first `vectors` of a panel; added to sums[count][CPU_PANEL], or the first. */
INTS_INLINE void
tile(const int16_t *rows, int64_t width, const int16_t *panel, int32_t *sums_at, bool first, const int vectors, const int count)
{
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sums[r][v] = first ? (sums_of)INTS(set1_epi32)(0) : (sums_of)LOAD(sums_at + r * CPU_PANEL + v * CPU_LANES);
        }
    }
#pragma GCC unroll 2
    for (int64_t k = 0; k < width; k += 2, panel += PAIRS) {
        ints weights[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = LOAD(panel + v * SHORTS);
        }
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            int32_t pair;
            memcpy(&pair, rows + r * width + k, sizeof(pair));
            const ints x = INTS(set1_epi32)(pair);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[r][v] = (sums_of)INTS(add_epi32)((ints)sums[r][v], INTS(madd_epi16)(x, weights[v]));
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            STORE(sums_at + r * CPU_PANEL + v * CPU_LANES, (ints)sums[r][v]);
        }
    }
}

INTS_INLINE void
tiles(const int16_t *rows, int64_t count, int64_t width, const int16_t *panel, int32_t *sums, bool first, const int vectors)
{
    const int64_t groups = cpu_groups(count);

    for (int64_t g = 0; g < groups; g++) {
        const int64_t begin = count * g / groups;
        const int16_t *from = rows + begin * width;
        int32_t *to = sums + begin * CPU_PANEL;
        switch (count * (g + 1) / groups - begin) {
        case 1: tile(from, width, panel, to, first, vectors, 1); break;
        case 2: tile(from, width, panel, to, first, vectors, 2); break;
        case 3: tile(from, width, panel, to, first, vectors, 3); break;
        case 4: tile(from, width, panel, to, first, vectors, 4); break;
        case 5: tile(from, width, panel, to, first, vectors, 5); break;
        default: tile(from, width, panel, to, first, vectors, CPU_ROWS); break;
        }
    }
}

INTS_TARGET static void
add_products(const int16_t *rows, int64_t count, int64_t width, const int16_t *panel, int32_t *sums, bool first, int64_t vectors)
{
    switch (vectors) {
    case 1: tiles(rows, count, width, panel, sums, first, 1); break;
#if CPU_VECTORS == 4
    case 2: tiles(rows, count, width, panel, sums, first, 2); break;
    case 3: tiles(rows, count, width, panel, sums, first, 3); break;
#endif
    default: tiles(rows, count, width, panel, sums, first, CPU_VECTORS); break;
    }
}

/* Sums of rows first..first + count and the panels begin..end, one behind the other. */
static void
sum_panels(const struct cpu_integers *p, const int16_t *wide, const int8_t *packed, int64_t first, int64_t count, int64_t begin,
           int64_t end, int32_t *ret_sums)
{
    _Alignas(64) int16_t panel[SLICE_BYTES / 2], zeros[PAIRS];

    for (int64_t i = 0; i < p->inner; i += SLICE) {
        const int64_t width = width_of(p->inner, i);
        for (int64_t n = begin; n < end; n++) {
            const int64_t column = n * CPU_PANEL, vectors = (p->columns - column + CPU_LANES - 1) / CPU_LANES;
            find_zeros(p, column, zeros);
            unpack(packed + (n * pairs_of(p->inner) + i / 2) * PAIRS, width / 2, zeros, panel);
            add_products(wide + i * p->rows + first * width, count, width, panel, ret_sums + (n - begin) * count * CPU_PANEL,
                         i == 0, vectors);
        }
    }
}

#include "kernels/cpu/loops/integers_narrow.h"

/* ---- Results ---------------------------------------------------------------------------------------- */

/* Of rows first..first + count, the columns of the panel that begins at `column`. */
INTS_TARGET static void
store_sums(const struct cpu_integers *p, const int32_t *sums, int64_t first, int64_t count, int64_t column, int32_t *result)
{
    for (int64_t r = 0; r < count; r++) {
        float *row = (float *)(void *)(result + (first + r) * p->columns); /* bits are stored, whatever they are */
        for (int64_t c = 0; c < CPU_PANEL && column + c < p->columns; c += CPU_LANES) {
            cpu_store_first(row + column + c, p->columns - column - c, FLOATS_OF(LOAD(sums + r * CPU_PANEL + c)));
        }
    }
}

INTS_TARGET static void
store_floats(const struct cpu_integers *p, const int32_t *sums, int64_t first, int64_t count, int64_t column, float *result)
{
    for (int64_t c = column; c < column + CPU_PANEL && c < p->columns; c += CPU_LANES) {
        const int64_t left = p->columns - c;
        const cpu_floats given = p->b_scale_count > 1 ? cpu_load_first(p->b_scales + c, left) : CPU_V(set1)(p->b_scales[0]);
        const cpu_floats scale = CPU_V(mul)(CPU_V(set1)(p->a_scale[0]), given);
        const cpu_floats bias = p->bias != NULL ? cpu_load_first(p->bias + c, left) : CPU_V(setzero)();
        for (int64_t r = 0; r < count; r++) {
            const int64_t at = (first + r) * p->columns + c;
            cpu_floats y = CPU_V(mul)(CPU_V(cvtepi32)(LOAD(sums + r * CPU_PANEL + c - column)), scale);
            y = p->bias != NULL ? CPU_V(add)(y, bias) : y;
            y = p->addend != NULL ? CPU_V(add)(y, cpu_load_first(p->addend + at, left)) : y;
            cpu_store_first(result + at, left, y);
        }
    }
}

/* ---- Both ways -------------------------------------------------------------------------------------- */

/* A line that says whether they are narrow is in front of them. */
static size_t
packed_bytes(int64_t inner, int64_t columns)
{
    const size_t wide = 64 + (size_t)(panels_of(columns) * pairs_of(inner) * PAIRS);
    size_t narrow;

    (void)narrow_of(NULL, inner, columns, &narrow);
    return wide > narrow ? wide : narrow;
}

static bool
is_narrow(const void *packed)
{
    return *(const unsigned char *)packed != 0;
}

static void
pack(const uint8_t *b, bool b_signed, int64_t inner, int64_t columns, void *ret_packed)
{
    const bool narrow = pack_narrow(b, b_signed, inner, columns, ret_packed);

    *(unsigned char *)ret_packed = narrow;
    if (!narrow) {
        pack_wide(b, b_signed, inner, columns, (uint8_t *)ret_packed + 64);
    }
}

static size_t
scratch_bytes(int64_t rows, int64_t inner)
{
    const size_t wide = (size_t)(rows * pairs_of(inner)) * 2 * sizeof(int16_t), narrow = narrow_bytes(rows, inner);
    return wide > narrow ? wide : narrow;
}

static void
prepare(const struct cpu_integers *p, const uint8_t *a, const void *packed, int64_t begin, int64_t end, void *ret_scratch)
{
    if (is_narrow(packed)) {
        copy_rows(p, a, begin, end, ret_scratch);
    } else {
        widen(p, a, begin, end, ret_scratch);
    }
}

static void
multiply(const struct cpu_integers *p, const void *scratch, const void *packed, void *result, uint32_t member, uint32_t members)
{
    _Alignas(64) int32_t sums[TOGETHER * BLOCK_ROWS * CPU_PANEL];
    const struct cpu_portion share = cpu_portion_of(p->rows, panels_of(p->columns), member, members);
    const int64_t rows = share.last_row - share.first_row, blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;

    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = share.first_row + rows * b / blocks, count = share.first_row + rows * (b + 1) / blocks - first;
        for (int64_t begin = share.first_vector, end; begin < share.last_vector; begin = end) {
            end = share.last_vector - begin < TOGETHER ? share.last_vector : begin + TOGETHER;
            if (is_narrow(packed)) {
                sum_narrow_panels(p, scratch, packed, first, count, begin, end, sums);
            } else {
                sum_panels(p, scratch, (const int8_t *)packed + 64, first, count, begin, end, sums);
            }
            for (int64_t n = begin; n < end; n++) {
                const int32_t *from = sums + (n - begin) * count * CPU_PANEL;
                if (p->a_scale != NULL) {
                    store_floats(p, from, first, count, n * CPU_PANEL, result);
                } else {
                    store_sums(p, from, first, count, n * CPU_PANEL, result);
                }
            }
        }
    }
}

/* ---- Windows ---------------------------------------------------------------------------------------- */

/* Where a tap finds the pixels of a panel in a plane of the source. */
struct places {
    _Alignas(64) int32_t at[CPU_PANEL]; /* -1: outside, or there is no such pixel */
    int64_t from;                       /* what is inside follows it, as far as a panel has pixels, in the plane; -1: it does not */
};

static int64_t
volume_of(const int64_t sizes[LEAT_WINDOW_RANK])
{
    return sizes[0] * sizes[1] * sizes[2];
}

/* Of a tap of the pixels whose windows begin at begin[][pixel]. */
static void
find_places(const struct leat_window *w, int64_t begin[LEAT_WINDOW_RANK][CPU_PANEL], int64_t count, const int64_t *tap,
            struct places *ret)
{
    bool found = false, together = true;

    ret->from = 0;
    for (int64_t j = 0; j < CPU_PANEL; j++) {
        int64_t at = 0;
        bool inside = j < count;
        for (uint32_t d = 0; d < LEAT_WINDOW_RANK && inside; d++) {
            const int64_t i = begin[d][j] + tap[d] * w->dilation[d];
            inside = i >= 0 && i < w->in[d];
            at = at * w->in[d] + i;
        }
        ret->at[j] = inside ? (int32_t)at : -1;
        ret->from = inside && !found ? at - j : ret->from;
        found = found || inside;
        together = together && (!inside || at == ret->from + j);
    }
    if (!together || ret->from < 0 || ret->from + CPU_PANEL > volume_of(w->in)) {
        ret->from = -1;
    }
}

/* Of all taps, for the pixels from `first` on. */
static void
find_all_places(const struct leat_window *w, int64_t first, struct places *ret_places)
{
    const int64_t left = volume_of(w->out) - first, count = left < CPU_PANEL ? left : CPU_PANEL;
    int64_t begin[LEAT_WINDOW_RANK][CPU_PANEL], tap[LEAT_WINDOW_RANK];

    for (int64_t j = 0; j < count; j++) {
        int64_t rest = first + j;
        for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0; rest /= w->out[d]) {
            begin[d][j] = rest % w->out[d] * w->stride[d] - w->pad_begin[d];
        }
    }
    for (tap[0] = 0; tap[0] < w->kernel[0]; tap[0]++) {
        for (tap[1] = 0; tap[1] < w->kernel[1]; tap[1]++) {
            for (tap[2] = 0; tap[2] < w->kernel[2]; tap[2]++) {
                find_places(w, begin, count, tap, ret_places++);
            }
        }
    }
}

/* The numbers of one channel under one tap, less the zero point: outside it is 0. */
INTS_INLINE void
take_pixels(const struct cpu_integers_conv *p, const uint8_t *plane, const struct places *places, int32_t *ret)
{
    if (places->from < 0) {
        for (int j = 0; j < CPU_PANEL; j++) {
            const uint8_t x = places->at[j] >= 0 ? plane[places->at[j]] : 0;
            ret[j] = places->at[j] < 0 ? 0 : (p->source_signed ? (int8_t)x : x) - p->source_zero;
        }
        return;
    }
#pragma GCC unroll 4
    for (int v = 0; v < CPU_VECTORS; v++) {
        const __m128i bytes = LOAD_FEW(plane + places->from + v * CPU_LANES);
        const ints numbers = p->source_signed ? INTS(cvtepi8_epi32)(bytes) : INTS(cvtepu8_epi32)(bytes);
        const sums_of inside = (sums_of)LOAD(places->at + v * CPU_LANES) >= 0;
        STORE(ret + v * CPU_LANES, (ints)((sums_of)INTS(sub_epi32)(numbers, INTS(set1_epi32)(p->source_zero)) & inside));
    }
}

/* Rows begin..begin + width of a panel of pixels: a row is a channel under a tap. */
INTS_TARGET static void
take_panel(const struct cpu_integers_conv *p, const uint8_t *source, const struct places *places, int64_t begin, int64_t width,
           int16_t *ret_panel)
{
    const int64_t plane = volume_of(p->window->in), inner = p->inputs * p->taps;
    _Alignas(64) int32_t rows[2][CPU_PANEL];
    int64_t channel = begin / p->taps, tap = begin % p->taps;

    for (int64_t i = begin; i < begin + width; i += 2, ret_panel += PAIRS) {
        for (int64_t odd = 0; odd < 2; odd++) {
            if (i + odd == inner) {
                memset(rows[odd], 0, sizeof(rows[odd]));
                continue;
            }
            take_pixels(p, source + channel * plane, &places[tap], rows[odd]);
            tap = tap + 1 < p->taps ? tap + 1 : 0;
            channel += tap == 0;
        }
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            const sums_of low = (sums_of)LOAD(rows[0] + v * CPU_LANES), high = (sums_of)LOAD(rows[1] + v * CPU_LANES);
            STORE(ret_panel + v * SHORTS, (ints)((low & UINT16_MAX) | (high << 16)));
        }
    }
}

/* All outputs of a group, for a panel of pixels. */
static void
convolve_panel(const struct cpu_integers_conv *p, const uint8_t *source, const int16_t *wide, int64_t first_output,
               const struct places *places, int64_t first, int32_t *sums, int32_t *result)
{
    const int64_t pixels = volume_of(p->window->out), inner = p->inputs * p->taps;
    const int64_t vectors = (pixels - first + CPU_LANES - 1) / CPU_LANES;
    _Alignas(64) int16_t panel[SLICE_BYTES / 2];

    for (int64_t i = 0; i < inner; i += SLICE) {
        const int64_t width = width_of(inner, i);
        take_panel(p, source, places, i, width, panel);
        add_products(wide + i * p->outputs * p->groups + first_output * width, p->outputs, width, panel, sums, i == 0, vectors);
    }
    store_sums(&(struct cpu_integers){.columns = pixels}, sums, 0, p->outputs, first, result);
}

/* Groups of a panel follow each other: they have the same places. */
static void
convolve(const struct cpu_integers_conv *p, const uint8_t *source, const int16_t *wide, int32_t *sums, int32_t *result,
         uint32_t member, uint32_t members)
{
    const int64_t pixels = volume_of(p->window->out), panels = panels_of(pixels), plane = volume_of(p->window->in);
    const int64_t all = p->items * panels * p->groups, begin = all * member / members;
    struct places places[CPU_INTEGERS_TAPS_MAX];

    for (int64_t n = begin; n < all * (member + 1) / members; n++) {
        const int64_t group = n % p->groups, first = n / p->groups % panels * CPU_PANEL, item = n / p->groups / panels;
        if (n == begin || group == 0) {
            find_all_places(p->window, first, places);
        }
        convolve_panel(p, source + (item * p->groups + group) * p->inputs * plane, wide, group * p->outputs, places, first, sums,
                       result + (item * p->groups + group) * p->outputs * pixels);
    }
}

const struct cpu_integers_kernel INTEGERS_KERNEL = {packed_bytes, pack,  scratch_bytes, prepare,
                                                    multiply,     widen, convolve,      CPU_PANEL};
