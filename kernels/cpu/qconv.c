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
    SCRATCH_MOST = 32 << 20,    /* numbers of a member's, of convolutions */
    TOGETHER = 4,               /* panels that read a slice one after the other: all slices would not stay in the second-level cache */
};
#define FAR 32767.0f /* beyond it every result saturates, whatever the zero point is */

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
    l.line = ((l.across - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1) * depth;
    l.unit = lines * l.line;
    l.units = l.parts > 1 ? 1 : BLOCK / l.across < SCRATCH_MOST / l.unit ? BLOCK / l.across : SCRATCH_MOST / l.unit;
    l.units = l.units > 1 ? l.units : 1;
    l.pixel = w->stride[2] * depth;
    l.segments = gaps ? lines * w->kernel[2] : lines;
    l.segment = gaps ? depth : w->kernel[2] * depth;
    l.panels = panels_of(p->outputs);
    l.inner = l.segments * l.segment;
    return l;
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

/* Pixels of three numbers, such as colours, as far as 16 bytes hold four of them; returns how many. */
CPU_KERNEL static int64_t
widen_colours(const struct cpu_qconv *p, const uint8_t *from, int64_t pixels, int16_t *ret)
{
    const __m128i apart = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m256i zeros = _mm256_set1_epi16((int16_t)p->source_zero);
    int64_t i = 0;

    for (; 3 * i + 16 <= 3 * pixels; i += 4) {
        const __m128i four = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(from + 3 * i)), apart);
        const __m256i numbers = p->source_signed ? _mm256_cvtepi8_epi16(four) : _mm256_cvtepu8_epi16(four);
        _mm256_storeu_si256((__m256i *)(void *)(ret + 4 * i), _mm256_sub_epi16(numbers, zeros));
    }
    return i;
}

/* `pixels` of them. What is behind an odd number of inputs is multiplied by 0, whatever it is. */
CPU_KERNEL static void
widen_pixels(const struct cpu_qconv *p, const uint8_t *from, int64_t pixels, int16_t *ret)
{
    const int64_t depth = depth_of(p->inputs);
    const bool even = depth == p->inputs;
    const int64_t each = even ? pixels * depth : p->inputs, done = p->inputs == 3 ? widen_colours(p, from, pixels, ret) : 0;

    from += done * each;
    ret += done * depth;
    for (int64_t i = done; i < (even ? 1 : pixels); i++, from += each, ret += depth) {
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

/* Rounded; what is beyond 32 bits below becomes the least of them. */
CPU_INLINE __m256i
rounded(const int32_t *sums, __m256 unit, __m256 bias)
{
    const __m256 y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)sums)), unit, bias);

    return _mm256_cvtps_epi32(_mm256_min_ps(y, _mm256_set1_ps(FAR)));
}

/* What all of a step are told. */
struct work {
    const struct cpu_qconv *p;
    const struct layout *l;
    const int8_t *packed;
    const float *units, *bias;
};

/* Of `count` pixels the outputs of the panel that begins at `column`; sums are so many `times` what they stand for. */
CPU_KERNEL static void
store(const struct work *work, const int32_t *sums, int64_t count, int64_t column, float times, uint8_t *result)
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

/* ---- All of it -------------------------------------------------------------------------------------- */

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
            store(work, sums + (m - n) * BLOCK * CPU_PANEL, count, m * CPU_PANEL, 1, result);
        }
    }
}

/* ---- Winograd's ------------------------------------------------------------------------------------- */

/*
 * 3x3 windows next to each other: F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016,
 * section 4.1, in whole numbers, with four ninths of the products. Weights are transformed with twice its G, so that sums are four times
 * what they stand for, and exact: they wrap, and the result does not. What is multiplied has 11 and 12 bits.
 */
enum {
    SEEN = 4,     /* pixels of the source that a tile sees, a side */
    MADE = 2,     /* of the result */
    POINTS = SEEN * SEEN,
    TILES = 64,   /* at a time */
    CHANNELS = 128, /* of which a panel's weights are transformed at a time */
    INPUTS_MOST = INT32_MAX / 4 / (9 * 255 * 128),
    TIMES = 4,
};

static bool
takes_winograd(const struct cpu_qconv *p)
{
    const struct leat_window *w = &p->window;

    return w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->pad_begin[0] == 0 && w->kernel[1] == 3 && w->kernel[2] == 3 &&
           w->stride[1] == 1 && w->stride[2] == 1 && w->dilation[1] == 1 && w->dilation[2] == 1 && p->inputs % SHORTS == 0 &&
           p->inputs <= INPUTS_MOST && w->out[1] >= 2 * MADE && w->out[2] >= 2 * MADE;
}

/* Tiles are taken by lines of them, or by parts of lines. */
struct tiling {
    int64_t lines, parts, across, units; /* as of struct layout, but `lines` of one image */
    int16_t *source;                     /* [POINTS][TILES][inputs] */
    int16_t *weights;                    /* [POINTS][CHANNELS / 2][PAIRS] */
    int32_t *sums;                       /* [POINTS][TILES][CPU_PANEL] */
};

enum { WEIGHTS_BYTES = POINTS * CHANNELS / 2 * PAIRS * 2, SUMS_BYTES = POINTS * TILES * CPU_PANEL * 4 };

static struct tiling
tiling_of(const struct cpu_qconv *p, void *scratch)
{
    const int64_t across = (p->window.out[2] + MADE - 1) / MADE;
    unsigned char *at = scratch;
    struct tiling t = {.lines = (p->window.out[1] + MADE - 1) / MADE, .parts = (across + TILES - 1) / TILES};

    t.across = (across + t.parts - 1) / t.parts;
    t.units = t.parts == 1 ? TILES / t.across : 1;
    if (at != NULL) {
        t.weights = (int16_t *)(void *)at;
        t.sums = (int32_t *)(void *)(at + WEIGHTS_BYTES);
        t.source = (int16_t *)(void *)(at + WEIGHTS_BYTES + SUMS_BYTES);
    }
    return t;
}

typedef int16_t shorts __attribute__((vector_size(32)));

/* Sixteen channels of a pixel, NULL where it is outside. */
CPU_INLINE shorts
pixel_at(const uint8_t *pixel, const bool is_signed, shorts zeros)
{
    if (pixel == NULL) {
        return (shorts)_mm256_setzero_si256();
    }
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)pixel);
    return (shorts)(is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes)) - zeros;
}

/* A line or column of a tile. */
CPU_INLINE void
transform_source(shorts *x, int step)
{
    const shorts a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];

    x[0] = a - c;
    x[step] = b + c;
    x[2 * step] = c - b;
    x[3 * step] = b - d;
}

/* The tile whose first pixel of the source is at y, x. */
CPU_KERNEL static void
transform_tile(const struct cpu_qconv *p, const uint8_t *image, int64_t y, int64_t x, int16_t *ret)
{
    const int64_t height = p->window.in[1], width = p->window.in[2];
    const shorts zeros = (shorts)_mm256_set1_epi16((int16_t)p->source_zero);
    const uint8_t *pixels[POINTS];
    shorts tile[POINTS];

    for (int64_t i = 0; i < POINTS; i++) {
        const int64_t at_y = y + i / SEEN, at_x = x + i % SEEN;
        const bool inside = at_y >= 0 && at_y < height && at_x >= 0 && at_x < width;
        pixels[i] = inside ? image + (at_y * width + at_x) * p->inputs : NULL;
    }
    for (int64_t c = 0; c < p->inputs; c += SHORTS) {
        for (int i = 0; i < POINTS; i++) {
            const uint8_t *pixel = pixels[i] != NULL ? pixels[i] + c : NULL;
            tile[i] = p->source_signed ? pixel_at(pixel, true, zeros) : pixel_at(pixel, false, zeros);
        }
#pragma GCC unroll 4
        for (int i = 0; i < SEEN; i++) {
            transform_source(tile + i, SEEN);
        }
#pragma GCC unroll 4
        for (int i = 0; i < SEEN; i++) {
            transform_source(tile + i * SEEN, 1);
        }
#pragma GCC unroll 16
        for (int i = 0; i < POINTS; i++) {
            _mm256_storeu_si256((__m256i *)(void *)(ret + i * TILES * p->inputs + c), (__m256i)tile[i]);
        }
    }
}

/* Three weights in a line become four. */
CPU_INLINE void
transform_three(const shorts *g, int step, shorts *ret, int ret_step)
{
    const shorts ends = g[0] + g[2 * step];

    ret[0] = g[0] + g[0];
    ret[ret_step] = ends + g[step];
    ret[2 * ret_step] = ends - g[step];
    ret[3 * ret_step] = g[2 * step] + g[2 * step];
}

/* Of panel n, inputs begin..end. */
CPU_KERNEL static void
transform_weights(const struct cpu_qconv *p, const int8_t *packed, int64_t n, int64_t begin, int64_t end, int16_t *ret)
{
    const int8_t *from = packed + (n * 9 * p->inputs + begin) * CPU_PANEL;

    for (int64_t at = 0; at < (end - begin) * CPU_PANEL; at += SHORTS) {
        shorts g[9], lines[SEEN * 3], u[POINTS];
#pragma GCC unroll 9
        for (int t = 0; t < 9; t++) {
            const int8_t *tap = from + t * p->inputs * CPU_PANEL + at;
            g[t] = (shorts)_mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(const void *)tap));
        }
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            transform_three(g + i, 3, lines + i, 3);
        }
#pragma GCC unroll 4
        for (int i = 0; i < SEEN; i++) {
            transform_three(lines + i * 3, 1, u + i * SEEN, 1);
        }
#pragma GCC unroll 16
        for (int i = 0; i < POINTS; i++) {
            _mm256_store_si256((__m256i *)(void *)(ret + i * CHANNELS * CPU_PANEL + at), (__m256i)u[i]);
        }
    }
}

typedef uint32_t wraps __attribute__((vector_size(32)));

/* Four sums in a line become two. */
CPU_INLINE void
transform_four(const wraps *m, int step, wraps *ret, int ret_step)
{
    ret[0] = m[0] + m[step] + m[2 * step];
    ret[ret_step] = m[step] - m[2 * step] - m[3 * step];
}

/* Of tile t, its pixels in both lines. */
CPU_KERNEL static void
transform_sums(const int32_t *sums, int32_t *ret_first, int32_t *ret_second)
{
    for (int v = 0; v < CPU_PANEL; v += CPU_LANES) {
        wraps m[POINTS], half[MADE * SEEN], y[MADE * MADE];
#pragma GCC unroll 16
        for (int i = 0; i < POINTS; i++) {
            m[i] = (wraps)_mm256_load_si256((const __m256i *)(const void *)(sums + i * TILES * CPU_PANEL + v));
        }
#pragma GCC unroll 4
        for (int i = 0; i < SEEN; i++) {
            transform_four(m + i, SEEN, half + i, SEEN);
        }
#pragma GCC unroll 2
        for (int i = 0; i < MADE; i++) {
            transform_four(half + i * SEEN, 1, y + i * MADE, 1);
        }
#pragma GCC unroll 2
        for (int i = 0; i < MADE; i++) {
            _mm256_store_si256((__m256i *)(void *)(ret_first + i * CPU_PANEL + v), (__m256i)y[i]);
            _mm256_store_si256((__m256i *)(void *)(ret_second + i * CPU_PANEL + v), (__m256i)y[MADE + i]);
        }
    }
}

/* Line `line` of tiles of an image, `count` of them from `first` on, in the panel n. */
static void
store_tiles(const struct work *work, const int32_t *sums, int64_t count, int64_t n, int64_t line, int64_t first, uint8_t *image)
{
    const struct leat_window *w = &work->p->window;
    const int64_t column = first * MADE, left = w->out[2] - column, pixels = left < count * MADE ? left : count * MADE;
    _Alignas(64) int32_t lines[MADE][TILES * MADE * CPU_PANEL];

    for (int64_t t = 0; t < count; t++) {
        transform_sums(sums + t * CPU_PANEL, lines[0] + t * MADE * CPU_PANEL, lines[1] + t * MADE * CPU_PANEL);
    }
    for (int64_t i = 0; i < MADE && line * MADE + i < w->out[1]; i++) {
        uint8_t *to = image + ((line * MADE + i) * w->out[2] + column) * work->p->outputs;
        store(work, lines[i], pixels, n * CPU_PANEL, TIMES, to);
    }
}

/* A panel of the tiles in scratch. */
static void
multiply_tiles(const struct work *work, const struct tiling *t, int64_t count, int64_t n)
{
    const struct cpu_qconv *p = work->p;
    const int16_t *tiles_at[TILES];

    for (int64_t i = 0; i < count; i++) {
        tiles_at[i] = t->source + i * p->inputs;
    }
    for (int64_t c = 0; c < p->inputs; c += CHANNELS) {
        const int64_t end = p->inputs - c < CHANNELS ? p->inputs : c + CHANNELS;
        transform_weights(p, work->packed, n, c, end, t->weights);
        for (int64_t i = 0; i < POINTS; i++) {
            const struct piece piece = {i * TILES * p->inputs + c, end - c};
            add_products(tiles_at, count, &piece, 1, t->weights + i * CHANNELS * CPU_PANEL, t->sums + i * TILES * CPU_PANEL, c == 0,
                         p->outputs - n * CPU_PANEL);
        }
    }
}

static void
run_winograd(const struct work *work, const uint8_t *source, void *scratch, uint8_t *result, uint32_t member, uint32_t members)
{
    const struct cpu_qconv *p = work->p;
    const struct leat_window *w = &p->window;
    const struct tiling t = tiling_of(p, scratch);
    const struct cpu_portion share = cpu_portion_of(p->items * t.lines * t.parts, panels_of(p->outputs), member, members);
    const int64_t all = share.last_row - share.first_row, blocks = (all + t.units - 1) / t.units;
    const int64_t tiles_across = (w->out[2] + MADE - 1) / MADE;

    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = share.first_row + all * b / blocks, end = share.first_row + all * (b + 1) / blocks;
        const int64_t column = first % t.parts * t.across;
        const int64_t across = tiles_across - column < t.across ? tiles_across - column : t.across;
        for (int64_t u = first; u < end; u++) {
            const int64_t line = u / t.parts % t.lines, item = u / t.parts / t.lines;
            for (int64_t x = 0; x < across; x++) {
                transform_tile(p, source + item * w->in[1] * w->in[2] * p->inputs, line * MADE - w->pad_begin[1],
                               (column + x) * MADE - w->pad_begin[2], t.source + ((u - first) * across + x) * p->inputs);
            }
        }
        for (int64_t n = share.first_vector; n < share.last_vector; n++) {
            multiply_tiles(work, &t, (end - first) * across, n);
            for (int64_t u = first; u < end; u++) {
                const int64_t line = u / t.parts % t.lines, item = u / t.parts / t.lines;
                store_tiles(work, t.sums + (u - first) * across * CPU_PANEL, across, n, line, column,
                            result + item * w->out[1] * w->out[2] * p->outputs);
            }
        }
    }
}

/* ---- Which of them ---------------------------------------------------------------------------------- */

bool
cpu_qconv_fits(const struct leat_window *w, int64_t inputs)
{
    int64_t gaps, pixels, lines, numbers;

    return !__builtin_mul_overflow(w->kernel[2] - 1, w->dilation[2], &gaps) &&
           !__builtin_mul_overflow(w->stride[2], (int64_t)BLOCK - 1, &pixels) && !__builtin_add_overflow(pixels, gaps, &pixels) &&
           !__builtin_mul_overflow(w->kernel[0], w->kernel[1], &lines) && !__builtin_mul_overflow(lines, depth_of(inputs), &numbers) &&
           !__builtin_mul_overflow(numbers, pixels + 1, &numbers) && numbers <= SCRATCH_MOST;
}

size_t
cpu_qconv_scratch_bytes(const struct cpu_qconv *p)
{
    const struct layout l = layout_of(p);
    const int64_t units = l.lines * l.parts < l.units ? l.lines * l.parts : l.units;

    if (takes_winograd(p)) {
        return WEIGHTS_BYTES + SUMS_BYTES + (size_t)(POINTS * TILES * p->inputs) * sizeof(int16_t);
    }
    return (size_t)leat_round_up((uint64_t)(units * l.unit) * sizeof(int16_t), 64);
}

void
cpu_qconv_run(const struct cpu_qconv *p, const void *source, const int8_t *packed, const float *units, const float *bias,
              int16_t *scratch, void *result, uint32_t member, uint32_t members)
{
    const struct layout l = layout_of(p);
    const struct work work = {p, &l, packed, units, bias};
    if (takes_winograd(p)) {
        run_winograd(&work, source, scratch, result, member, members);
        return;
    }
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
