/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 256
#include "kernels/cpu/qconv.h"

#include <string.h>

#include "base/align.h"
#include "kernels/cpu/portion.h"
#include "kernels/cpu/product.h"

enum {
    SHORTS = 2 * CPU_LANES,     /* numbers of 16 bits in a vector */
    PAIRS = CPU_PANEL * 2,      /* weights of a pair of numbers of the source */
    SLICE = 512,                /* of a window: a panel's weights for it are half of the first-level cache */
    BLOCK = 128,                /* pixels of the result */
    TOGETHER = 4,               /* panels that read a slice one after the other: all slices would not stay in the second-level cache */
};
#define FAR 512.0f /* beyond it every result saturates, whatever the zero point is */

_Static_assert(CPU_PANEL == CPU_QCONV_PANEL, "two vectors of sums");

static int64_t
depth_of(int64_t inputs)
{
    return (inputs + 1) / 2 * 2;
}

static int64_t
panels_of(int64_t outputs)
{
    return (outputs + CPU_PANEL - 1) / CPU_PANEL;
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

size_t
cpu_qconv_packed_bytes(int64_t outputs, int64_t inputs, int64_t taps)
{
    return (size_t)(panels_of(outputs) * CPU_PANEL * taps * depth_of(inputs));
}

/* [panels][taps][pairs of inputs][CPU_PANEL][2] */
void
cpu_qconv_pack(const int8_t *weights, const struct cpu_qconv_strides *strides, int64_t outputs, int64_t inputs, int64_t taps,
               int8_t *ret_packed)
{
    for (int64_t first = 0; first < outputs; first += CPU_PANEL) {
        const int64_t count = outputs - first < CPU_PANEL ? outputs - first : CPU_PANEL;
        for (int64_t t = 0; t < taps; t++) {
            for (int64_t i = 0; i < inputs; i += 2, ret_packed += PAIRS) {
                const int8_t *from = weights + first * strides->output + t * strides->tap + i * strides->input;
                memset(ret_packed, 0, PAIRS);
                for (int64_t o = 0; o < count; o++) {
                    ret_packed[2 * o] = from[o * strides->output];
                    ret_packed[2 * o + 1] = i + 1 < inputs ? from[o * strides->output + strides->input] : 0;
                }
            }
        }
    }
}

/* Pairs of a panel, as they are multiplied. */
CPU_KERNEL static void
unpack(const int8_t *packed, int64_t pairs, int16_t *ret_panel)
{
    for (int64_t k = 0; k < pairs; k++, packed += PAIRS, ret_panel += PAIRS) {
#pragma GCC unroll 2
        for (int v = 0; v < CPU_VECTORS; v++) {
            const __m128i bytes = _mm_load_si128((const __m128i *)(const void *)(packed + v * SHORTS));
            _mm256_store_si256((__m256i *)(void *)(ret_panel + v * SHORTS), _mm256_cvtepi8_epi16(bytes));
        }
    }
}

/* ---- Windows ---------------------------------------------------------------------------------------- */

/*
 * The result in units: lines, or parts of them where they are long. In scratch each unit has the lines of the source that its
 * windows see, one behind the other. Of a window in it those numbers follow each other that one line has, where it has no gaps.
 */
struct layout {
    int64_t lines, parts;         /* of all items, and of a line */
    int64_t across, units;        /* pixels of a part, and parts that are multiplied at a time */
    int64_t line, unit;           /* numbers of each in scratch */
    int64_t pixel;                /* from one pixel of the result to the next */
    int64_t segments, segment;    /* of a window, and their numbers */
    int64_t panels, inner;        /* inner: numbers of a window */
};

static struct layout
layout_of(const struct cpu_qconv *p)
{
    const struct leat_window *w = &p->window;
    const int64_t depth = depth_of(p->inputs), lines = w->kernel[0] * w->kernel[1];
    const bool gaps = w->dilation[2] > 1 && w->kernel[2] > 1;
    struct layout l = {.lines = p->items * w->out[0] * w->out[1], .parts = (w->out[2] + BLOCK - 1) / BLOCK};

    l.across = (w->out[2] + l.parts - 1) / l.parts;
    l.units = l.parts == 1 ? BLOCK / l.across : 1;
    l.line = ((l.across - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1) * depth;
    l.unit = lines * l.line;
    l.pixel = w->stride[2] * depth;
    l.segments = gaps ? lines * w->kernel[2] : lines;
    l.segment = gaps ? depth : w->kernel[2] * depth;
    l.panels = panels_of(p->outputs);
    l.inner = l.segments * l.segment;
    return l;
}

size_t
cpu_qconv_scratch_bytes(const struct cpu_qconv *p)
{
    const struct layout l = layout_of(p);
    const int64_t units = l.lines * l.parts < l.units ? l.lines * l.parts : l.units;

    return (size_t)leat_round_up((uint64_t)(units * l.unit) * sizeof(int16_t), 64);
}

CPU_INLINE void
widen(const uint8_t *from, int64_t count, int32_t zero, const bool is_signed, int16_t *ret)
{
    int64_t i = 0;

    for (; i + SHORTS <= count; i += SHORTS) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        const __m256i numbers = is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
        _mm256_storeu_si256((__m256i *)(void *)(ret + i), _mm256_sub_epi16(numbers, _mm256_set1_epi16((int16_t)zero)));
    }
    for (; i < count; i++) {
        ret[i] = (int16_t)((is_signed ? (int8_t)from[i] : from[i]) - zero);
    }
}

/* `pixels` of them. What is behind an odd number of inputs is multiplied by 0, whatever it is. */
CPU_KERNEL static void
widen_pixels(const struct cpu_qconv *p, const uint8_t *from, int64_t pixels, int16_t *ret)
{
    const int64_t depth = depth_of(p->inputs);
    const bool even = depth == p->inputs;
    const int64_t each = even ? pixels * depth : p->inputs;

    for (int64_t i = 0; i < (even ? 1 : pixels); i++, from += each, ret += depth) {
        if (p->source_signed) {
            widen(from, each, p->source_zero, true, ret);
        } else {
            widen(from, each, p->source_zero, false, ret);
        }
    }
}

/* What a line of the source, NULL where it is outside, has from pixel `first` on. */
static void
lay_line(const struct cpu_qconv *p, const uint8_t *line, int64_t first, int64_t pixels, int16_t *ret)
{
    const int64_t depth = depth_of(p->inputs), width = p->window.in[2];
    const int64_t before = line == NULL || first <= -pixels ? pixels : first < 0 ? -first : 0;
    const int64_t left = width - first - before, inside = left < 0 ? 0 : left < pixels - before ? left : pixels - before;

    memset(ret, 0, (size_t)(before * depth) * sizeof(*ret));
    if (inside > 0) {
        widen_pixels(p, line + (first + before) * p->inputs, inside, ret + before * depth);
    }
    memset(ret + (before + inside) * depth, 0, (size_t)((pixels - before - inside) * depth) * sizeof(*ret));
}

/* What the windows of a unit see. */
static void
lay_unit(const struct cpu_qconv *p, const struct layout *l, const uint8_t *source, int64_t unit, int16_t *ret)
{
    const struct leat_window *w = &p->window;
    const int64_t line = unit / l->parts, pixels = l->line / depth_of(p->inputs);
    const int64_t first = unit % l->parts * l->across * w->stride[2] - w->pad_begin[2];
    const int64_t z = line / w->out[1] % w->out[0], y = line % w->out[1], item = line / w->out[1] / w->out[0];

    for (int64_t a = 0; a < w->kernel[0]; a++) {
        for (int64_t b = 0; b < w->kernel[1]; b++, ret += l->line) {
            const int64_t in_z = z * w->stride[0] + a * w->dilation[0] - w->pad_begin[0];
            const int64_t in_y = y * w->stride[1] + b * w->dilation[1] - w->pad_begin[1];
            const bool inside = in_z >= 0 && in_z < w->in[0] && in_y >= 0 && in_y < w->in[1];
            const int64_t from = ((item * w->in[0] + in_z) * w->in[1] + in_y) * w->in[2] * p->inputs;
            lay_line(p, inside ? source + from : NULL, first, pixels, ret);
        }
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

/* Numbers of a window that follow each other. */
struct piece {
    int64_t at, count;
};

/* Of the slice that begins at number `begin` of a window; returns how many pieces it has. */
static int64_t
find_pieces(const struct cpu_qconv *p, const struct layout *l, int64_t begin, struct piece ret_pieces[SLICE / 2])
{
    const struct leat_window *w = &p->window;
    const int64_t end = l->inner - begin < SLICE ? l->inner : begin + SLICE;
    const int64_t of_line = l->segments / (w->kernel[0] * w->kernel[1]);
    int64_t count = 0;

    for (int64_t i = begin, next; i < end; i = next) {
        const int64_t segment = i / l->segment, from = i % l->segment;
        next = (segment + 1) * l->segment < end ? (segment + 1) * l->segment : end;
        const int64_t gap = segment % of_line * w->dilation[2] * depth_of(p->inputs);
        ret_pieces[count++] = (struct piece){segment / of_line * l->line + gap + from, next - i};
    }
    return count;
}

/* As the instruction has them: GCC keeps arrays of these in registers, but not of __m256i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(32)));

/* Pieces of some windows times the first `vectors` of a panel; added to sums[count][CPU_PANEL], or the first. */
CPU_INLINE void
tile(const int16_t *const *windows, const struct piece *pieces, int64_t piece_count, const int16_t *panel, int32_t *sums_at,
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
        for (int64_t k = 0; k < pieces[i].count; k += 2, panel += PAIRS) {
            __m256i weights[CPU_VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                weights[v] = _mm256_load_si256((const __m256i *)(const void *)(panel + v * SHORTS));
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
tiles(const int16_t *const *windows, int64_t count, const struct piece *pieces, int64_t piece_count, const int16_t *panel,
      int32_t *sums, bool first, const int vectors)
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

CPU_KERNEL static void
add_products(const int16_t *const *windows, int64_t count, const struct piece *pieces, int64_t piece_count, const int16_t *panel,
             int32_t *sums, bool first, int64_t outputs)
{
    if (outputs <= CPU_LANES) {
        tiles(windows, count, pieces, piece_count, panel, sums, first, 1);
    } else {
        tiles(windows, count, pieces, piece_count, panel, sums, first, CPU_VECTORS);
    }
}

/* ---- Results ---------------------------------------------------------------------------------------- */

CPU_INLINE __m256i
requantised(const struct cpu_qconv *p, const int32_t *sums, __m256 unit, __m256 bias)
{
    const __m256 exact = _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)sums));
    const __m256 y = _mm256_fmadd_ps(exact, unit, bias);
    const __m256 near = _mm256_min_ps(_mm256_max_ps(y, _mm256_set1_ps(-FAR)), _mm256_set1_ps(FAR));

    return _mm256_add_epi32(_mm256_cvtps_epi32(near), _mm256_set1_epi32(p->result_zero));
}

/* Of `count` pixels the outputs of the panel that begins at `column`. */
CPU_KERNEL static void
store(const struct cpu_qconv *p, const int32_t *sums, int64_t count, int64_t column, const float *units, const float *bias,
      uint8_t *result)
{
    const __m256 unit[CPU_VECTORS] = {_mm256_load_ps(units + column), _mm256_load_ps(units + column + CPU_LANES)};
    const __m256 added[CPU_VECTORS] = {_mm256_load_ps(bias + column), _mm256_load_ps(bias + column + CPU_LANES)};
    const int64_t left = p->outputs - column;

    for (int64_t r = 0; r < count; r++, sums += CPU_PANEL) {
        const __m256i words = _mm256_packs_epi32(requantised(p, sums, unit[0], added[0]),
                                                 requantised(p, sums + CPU_LANES, unit[1], added[1]));
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

/* ---- All of it -------------------------------------------------------------------------------------- */

/* What all of a step are told. */
struct work {
    const struct cpu_qconv *p;
    const struct layout *l;
    const int8_t *packed;
    const float *units, *bias;
};

/* The panels begin..end for some pixels that follow each other, the first of which is `result`. */
static void
multiply(const struct work *work, const int16_t *const *windows, int64_t count, int64_t begin, int64_t end, uint8_t *result)
{
    const struct layout *l = work->l;
    const int64_t together = l->inner > SLICE ? TOGETHER : 1;
    _Alignas(64) int32_t sums[TOGETHER * BLOCK * CPU_PANEL];
    _Alignas(64) int16_t panel[SLICE * CPU_PANEL];
    struct piece pieces[SLICE / 2];

    for (int64_t n = begin, next; n < end; n = next) {
        next = n + together < end ? n + together : end;
        for (int64_t i = 0; i < l->inner; i += SLICE) {
            const int64_t piece_count = find_pieces(work->p, l, i, pieces);
            const int64_t width = l->inner - i < SLICE ? l->inner - i : SLICE;
            for (int64_t m = n; m < next; m++) {
                unpack(work->packed + (m * l->inner + i) * CPU_PANEL, width / 2, panel);
                add_products(windows, count, pieces, piece_count, panel, sums + (m - n) * BLOCK * CPU_PANEL, i == 0,
                             work->p->outputs - m * CPU_PANEL);
            }
        }
        for (int64_t m = n; m < next; m++) {
            store(work->p, sums + (m - n) * BLOCK * CPU_PANEL, count, m * CPU_PANEL, work->units, work->bias, result);
        }
    }
}

void
cpu_qconv_run(const struct cpu_qconv *p, const void *source, const int8_t *packed, const float *units, const float *bias,
              int16_t *scratch, void *result, uint32_t member, uint32_t members)
{
    const struct layout l = layout_of(p);
    const struct work work = {p, &l, packed, units, bias};
    const struct cpu_portion share = cpu_portion_of(l.lines * l.parts, l.panels, member, members);
    const int64_t all = share.last_row - share.first_row, blocks = (all + l.units - 1) / l.units, width = p->window.out[2];
    const int16_t *windows[BLOCK];

    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = share.first_row + all * b / blocks, end = share.first_row + all * (b + 1) / blocks;
        const int64_t column = first % l.parts * l.across, pixel = first / l.parts * width + column;
        int64_t count = 0;
        for (int64_t u = first; u < end; u++) {
            int16_t *unit = scratch + (u - first) * l.unit;
            lay_unit(p, &l, source, u, unit);
            for (int64_t x = 0; x < l.across && column + x < width; x++) {
                windows[count++] = unit + x * l.pixel;
            }
        }
        multiply(&work, windows, count, share.first_vector, share.last_vector, (uint8_t *)result + pixel * p->outputs);
    }
}
