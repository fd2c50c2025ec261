/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 3x3 windows next to each other: F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016,
 * section 4.1, in whole numbers, with four ninths of the products. Weights are transformed with twice its G, so that sums are four times
 * what they stand for, and exact: they wrap, and the result does not. What is multiplied has 11 and 12 bits.
 */
#include "kernels/cpu/loops/qconv_stages.h"

enum {
    SEEN = 4,     /* pixels of the source that a tile sees, a side */
    MADE = 2,     /* of the result */
    POINTS = SEEN * SEEN,
    TILES = 64,   /* at a time */
    CHANNELS = 128, /* of which a panel's weights are transformed at a time */
    /* From one point to the next, a line longer than a power of two: sixteen of them must not share a set of a cache. */
    WEIGHTS_PLANE = CHANNELS * CPU_PANEL + CPU_LINE * 2,
    SUMS_PLANE = TILES * CPU_PANEL + CPU_LINE,
    INPUTS_MOST = INT32_MAX / 4 / (9 * 255 * 128),
    TIMES = 4,
};

bool
cpu_qconv_takes_winograd(const struct cpu_qconv *p)
{
    const struct leat_window *w = &p->window;

    return w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->pad_begin[0] == 0 && w->kernel[1] == 3 && w->kernel[2] == 3 &&
           w->stride[1] == 1 && w->stride[2] == 1 && w->dilation[1] == 1 && w->dilation[2] == 1 && p->inputs % CPU_QCONV_SHORTS == 0 &&
           p->inputs <= INPUTS_MOST && w->out[1] >= 2 * MADE && w->out[2] >= 2 * MADE;
}

/* All tiles of all images, line by line, and where blocks of TILES of them are multiplied. */
struct tiling {
    int64_t down, across;
    int16_t *source;  /* [POINTS][TILES][inputs], source_plane_of() apart */
    int16_t *weights; /* [POINTS][CHANNELS / 2][CPU_QCONV_PAIRS] */
    int32_t *sums;    /* [POINTS][TILES][CPU_PANEL] */
};

enum { WEIGHTS_BYTES = POINTS * WEIGHTS_PLANE * 2, SUMS_BYTES = POINTS * SUMS_PLANE * 4 };

static int64_t
source_plane_of(const struct cpu_qconv *p)
{
    return TILES * p->inputs + CPU_LINE * 2;
}

static struct tiling
tiling_of(const struct cpu_qconv *p, unsigned char *scratch)
{
    return (struct tiling){
        .down = (p->window.out[1] + MADE - 1) / MADE,
        .across = (p->window.out[2] + MADE - 1) / MADE,
        .weights = (int16_t *)(void *)scratch,
        .sums = (int32_t *)(void *)(scratch + WEIGHTS_BYTES),
        .source = (int16_t *)(void *)(scratch + WEIGHTS_BYTES + SUMS_BYTES),
    };
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
    const int64_t height = p->window.in[1], width = p->window.in[2], plane = source_plane_of(p);
    const shorts zeros = (shorts)_mm256_set1_epi16((int16_t)p->source_zero);
    const uint8_t *pixels[POINTS];
    shorts tile[POINTS];

    for (int64_t i = 0; i < POINTS; i++) {
        const int64_t at_y = y + i / SEEN, at_x = x + i % SEEN;
        const bool inside = at_y >= 0 && at_y < height && at_x >= 0 && at_x < width;
        pixels[i] = inside ? image + (at_y * width + at_x) * p->inputs : NULL;
    }
    for (int64_t c = 0; c < p->inputs; c += CPU_QCONV_SHORTS) {
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
            _mm256_storeu_si256((__m256i *)(void *)(ret + i * plane + c), (__m256i)tile[i]);
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

    for (int64_t at = 0; at < (end - begin) * CPU_PANEL; at += CPU_QCONV_SHORTS) {
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
            _mm256_store_si256((__m256i *)(void *)(ret + i * WEIGHTS_PLANE + at), (__m256i)u[i]);
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
            m[i] = (wraps)_mm256_load_si256((const __m256i *)(const void *)(sums + i * SUMS_PLANE + v));
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

/* Of `count` tiles of a line from `tile` of all tiles on, in the panel n. */
static void
store_tiles(const struct cpu_qconv_work *work, const struct tiling *t, const int32_t *sums, int64_t count, int64_t n, int64_t tile,
            uint8_t *result)
{
    const struct leat_window *w = &work->p->window;
    const int64_t line = tile / t->across % t->down * MADE, item = tile / t->across / t->down;
    const int64_t column = tile % t->across * MADE, left = w->out[2] - column, pixels = left < count * MADE ? left : count * MADE;
    _Alignas(64) int32_t lines[MADE][TILES * MADE * CPU_PANEL];

    for (int64_t i = 0; i < count; i++) {
        transform_sums(sums + i * CPU_PANEL, lines[0] + i * MADE * CPU_PANEL, lines[1] + i * MADE * CPU_PANEL);
    }
    for (int64_t i = 0; i < MADE && line + i < w->out[1]; i++) {
        uint8_t *to = result + ((item * w->out[1] + line + i) * w->out[2] + column) * work->p->outputs;
        cpu_qconv_store(work, lines[i], pixels, n * CPU_PANEL, TIMES, to);
    }
}

/* A panel of the tiles in scratch. */
static void
multiply_tiles(const struct cpu_qconv_work *work, const struct tiling *t, int64_t count, int64_t n)
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
            const struct cpu_qconv_piece piece = {i * source_plane_of(p) + c, end - c};
            cpu_qconv_add_products(tiles_at, count, &piece, 1, t->weights + i * WEIGHTS_PLANE, t->sums + i * SUMS_PLANE, c == 0,
                                   p->outputs - n * CPU_PANEL);
        }
    }
}

/* Tiles first..end in the panels of a part. */
static void
run_block(const struct cpu_qconv_work *work, const struct tiling *t, const struct cpu_qconv_part *part, int64_t first, int64_t end,
          const uint8_t *source, uint8_t *result)
{
    const struct cpu_qconv *p = work->p;
    const struct leat_window *w = &p->window;

    for (int64_t i = first; i < end; i++) {
        const int64_t line = i / t->across % t->down, item = i / t->across / t->down;
        transform_tile(p, source + item * w->in[1] * w->in[2] * p->inputs, line * MADE - w->pad_begin[1],
                       i % t->across * MADE - w->pad_begin[2], t->source + (i - first) * p->inputs);
    }
    for (int64_t n = part->first_panel; n < part->last_panel; n++) {
        multiply_tiles(work, t, end - first, n);
        for (int64_t i = first, next; i < end; i = next) {
            next = i + t->across - i % t->across;
            next = next < end ? next : end;
            store_tiles(work, t, t->sums + (i - first) * CPU_PANEL, next - i, n, i, result);
        }
    }
}

size_t
cpu_qconv_winograd_bytes(const struct cpu_qconv *p)
{
    return WEIGHTS_BYTES + SUMS_BYTES + (size_t)(POINTS * source_plane_of(p)) * sizeof(int16_t);
}

void
cpu_qconv_run_winograd(const struct cpu_qconv_work *work, const uint8_t *source, void *scratch, uint8_t *result, uint32_t member,
                       uint32_t members)
{
    const struct cpu_qconv *p = work->p;
    const struct tiling t = tiling_of(p, scratch);
    struct cpu_qconv_part parts[CPU_QCONV_PARTS];

    const int64_t count = cpu_qconv_parts(p->items * t.down * t.across, cpu_qconv_panels(p->outputs), member, members, parts);
    for (int64_t i = 0; i < count; i++) {
        const int64_t all = parts[i].last_row - parts[i].first_row, blocks = (all + TILES - 1) / TILES;
        for (int64_t b = 0; b < blocks; b++) {
            run_block(work, &t, &parts[i], parts[i].first_row + all * b / blocks, parts[i].first_row + all * (b + 1) / blocks, source,
                      result);
        }
    }
}
