/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/winograd.h"

#include <string.h>

#include "base/status.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"

enum {
    LANES = CPU_LANES,
    PANEL = CPU_PANEL,
    ROWS = CPU_ROWS,
    TILE = 4,          /* results of a tile, a side */
    SEEN = TILE + 2,   /* of the source, a side */
    POINTS = SEEN * SEEN,
    BLOCK_BYTES = 1 << 20,   /* of one block's tiles: half of a second-level cache of 2 MiB */
    BLOCK_LEAST = 96,        /* tiles, where the weights do not stay in that cache: they are read for each block */
    WEIGHTS_BYTES = 4 << 20, /* such weights */
};

/* The points a = sqrt(1/2) and b = sqrt(2). */
#define A  0.70710678118654752440
#define B  1.41421356237309504880
#define A2 0.5
#define B2 2.0

bool
cpu_winograd_runs_here(void)
{
    return cpu_has_avx512();
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

static int64_t
panels_of(int64_t outputs)
{
    return (outputs + PANEL - 1) / PANEL;
}

size_t
cpu_winograd_weights_bytes(int64_t inputs, int64_t outputs)
{
    return (size_t)(panels_of(outputs) * POINTS * inputs * PANEL) * sizeof(float);
}

/* Of the polynomials through three weights: their values at the points over what the interpolation divides by. */
CPU_INLINE void
transform_weights(const __m512d g[3], __m512d ret[SEEN])
{
    const __m512d at_a = _mm512_set1_pd(1 / (2 * A2 * (A2 - B2))), at_b = _mm512_set1_pd(1 / (2 * B2 * (B2 - A2)));
    const __m512d even_a = _mm512_fmadd_pd(_mm512_set1_pd(A2), g[2], g[0]), odd_a = _mm512_mul_pd(_mm512_set1_pd(A), g[1]);
    const __m512d even_b = _mm512_fmadd_pd(_mm512_set1_pd(B2), g[2], g[0]), odd_b = _mm512_mul_pd(_mm512_set1_pd(B), g[1]);

    ret[0] = _mm512_mul_pd(_mm512_set1_pd(1 / (A2 * B2)), g[0]);
    ret[1] = _mm512_mul_pd(at_a, _mm512_add_pd(even_a, odd_a));
    ret[2] = _mm512_mul_pd(at_a, _mm512_sub_pd(even_a, odd_a));
    ret[3] = _mm512_mul_pd(at_b, _mm512_add_pd(even_b, odd_b));
    ret[4] = _mm512_mul_pd(at_b, _mm512_sub_pd(even_b, odd_b));
    ret[5] = g[2];
}

/* The points of half a vector of outputs, whose weights are `from` floats apart, of one input. */
CPU_INLINE void
transform_outputs(const float *w, int64_t from, __m256 ret[POINTS])
{
    const __m512i places = _mm512_set_epi64(7 * from, 6 * from, 5 * from, 4 * from, 3 * from, 2 * from, from, 0);
    __m512d columns[3][SEEN], row[SEEN];

    for (int x = 0; x < 3; x++) {
        __m512d g[3];
        for (int y = 0; y < 3; y++) {
            g[y] = _mm512_cvtps_pd(_mm512_i64gather_ps(places, w + y * 3 + x, sizeof(*w)));
        }
        transform_weights(g, columns[x]);
    }
    for (int y = 0; y < SEEN; y++) {
        transform_weights((const __m512d[3]){columns[0][y], columns[1][y], columns[2][y]}, row);
        for (int x = 0; x < SEEN; x++) {
            ret[y * SEEN + x] = _mm512_cvtpd_ps(row[x]);
        }
    }
}

/*
 * [panels][POINTS][inputs][PANEL], with zeros behind the last output. Nothing of it is read soon: whole lines go past the
 * caches, of which the points of an input would share one set.
 */
CPU_AVX512 void
cpu_winograd_pack(const float *weights, int64_t inputs, int64_t outputs, float *ret_packed)
{
    const int64_t from = inputs * 9; /* one output to the next */

    LEAT_ASSERT(outputs % LANES == 0);
    if (outputs % PANEL != 0) {
        memset(ret_packed, 0, cpu_winograd_weights_bytes(inputs, outputs));
    }
    for (int64_t o = 0; o < outputs; o += LANES) {
        float *panel = ret_packed + o / PANEL * POINTS * inputs * PANEL + o % PANEL;
        for (int64_t i = 0; i < inputs; i++) {
            __m256 low[POINTS], high[POINTS];
            transform_outputs(weights + o * from + i * 9, from, low);
            transform_outputs(weights + (o + LANES / 2) * from + i * 9, from, high);
            for (int p = 0; p < POINTS; p++) {
                const __m512d half = _mm512_castpd256_pd512(_mm256_castps_pd(low[p]));
                const __m512d both = _mm512_insertf64x4(half, _mm256_castps_pd(high[p]), 1);
                _mm512_stream_ps(panel + (p * inputs + i) * PANEL, _mm512_castpd_ps(both));
            }
        }
    }
    _mm_sfence(); /* before anybody is told where they are */
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* How the work is cut: blocks of tiles that go through all three stages while they are in the cache. */
struct blocking {
    int64_t down, across, tiles; /* of an item, of an item, of all */
    int64_t block;               /* tiles, a multiple of ROWS */
    /* In floats, each a cache line longer than a power of two at most: 36 streams must not fall into one set. */
    int64_t input_plane, product_plane;
};

static struct blocking
blocking_of(const struct cpu_winograd *conv)
{
    struct blocking b = {.down = (conv->out_height + TILE - 1) / TILE, .across = (conv->out_width + TILE - 1) / TILE};
    int64_t block = BLOCK_BYTES / (int64_t)sizeof(float) / POINTS / (conv->inputs + PANEL) + 1;

    b.tiles = conv->items * b.down * b.across;
    if (block < BLOCK_LEAST && cpu_winograd_weights_bytes(conv->inputs, conv->outputs) > WEIGHTS_BYTES) {
        block = BLOCK_LEAST;
    }
    const int64_t blocks = (b.tiles + block - 1) / block; /* of the same size, or nearly */
    b.block = (b.tiles + blocks - 1) / blocks;
    b.block = (b.block + ROWS - 1) / ROWS * ROWS;
    b.input_plane = b.block * conv->inputs + LANES;
    b.product_plane = b.block * PANEL + LANES;
    return b;
}

size_t
cpu_winograd_scratch_bytes(const struct cpu_winograd *conv)
{
    const struct blocking b = blocking_of(conv);
    const int64_t floats = POINTS * (b.input_plane + b.product_plane) + conv->inputs + conv->outputs;
    return (size_t)floats * sizeof(float);
}

struct place {
    int64_t item, y, x; /* of the tile's first result */
};

static struct place
place_of(const struct blocking *b, int64_t tile)
{
    const int64_t in_item = tile % (b->down * b->across);
    return (struct place){tile / (b->down * b->across), in_item / b->across * TILE, in_item % b->across * TILE};
}

CPU_INLINE __m512
times(double factor, __m512 x)
{
    return _mm512_mul_ps(_mm512_set1_ps((float)factor), x);
}

/* y + factor * x */
CPU_INLINE __m512
plus(__m512 y, double factor, __m512 x)
{
    return _mm512_fmadd_ps(_mm512_set1_ps((float)factor), x, y);
}

CPU_INLINE void
transform_input(const __m512 d[SEEN], __m512 ret[SEEN])
{
    const __m512 even_a = plus(d[4], -B2, d[2]), odd_a = plus(d[3], -B2, d[1]);
    const __m512 even_b = plus(d[4], -A2, d[2]), odd_b = plus(d[3], -A2, d[1]);
    ret[0] = plus(_mm512_add_ps(d[4], d[0]), -(A2 + B2), d[2]); /* A2 * B2 is 1 */
    ret[1] = plus(even_a, A, odd_a);
    ret[2] = plus(even_a, -A, odd_a);
    ret[3] = plus(even_b, B, odd_b);
    ret[4] = plus(even_b, -B, odd_b);
    ret[5] = plus(_mm512_add_ps(d[5], d[1]), -(A2 + B2), d[3]);
}

CPU_INLINE void
transform_output(const __m512 m[SEEN], __m512 ret[TILE])
{
    const __m512 even_a = _mm512_add_ps(m[1], m[2]), odd_a = _mm512_sub_ps(m[1], m[2]);
    const __m512 even_b = _mm512_add_ps(m[3], m[4]), odd_b = _mm512_sub_ps(m[3], m[4]);
    ret[0] = _mm512_add_ps(m[0], _mm512_add_ps(even_a, even_b));
    ret[1] = plus(times(A, odd_a), B, odd_b);
    ret[2] = plus(times(A2, even_a), B2, even_b);
    ret[3] = plus(plus(m[5], A * A2, odd_a), B * B2, odd_b);
}

/* [POINTS][block][inputs] of `count` tiles from `first` on. */
CPU_AVX512 static void
gather(const struct cpu_winograd *conv, const struct blocking *b, const float *source, const float *zeros, int64_t first,
       int64_t count, float *ret)
{
    for (int64_t t = 0; t < count; t++) {
        const struct place place = place_of(b, first + t);
        const float *pixels[POINTS];
        for (int y = 0; y < SEEN; y++) {
            for (int x = 0; x < SEEN; x++) {
                const int64_t sy = place.y - conv->pad_top + y, sx = place.x - conv->pad_left + x;
                const bool inside = sy >= 0 && sy < conv->height && sx >= 0 && sx < conv->width;
                pixels[y * SEEN + x] =
                    inside ? source + ((place.item * conv->height + sy) * conv->width + sx) * conv->inputs : zeros;
            }
        }
        float *to = ret + t * conv->inputs;
        for (int64_t c = 0; c < conv->inputs; c += LANES) {
            __m512 half[SEEN][SEEN]; /* [column][row]: columns are transformed */
#pragma GCC unroll 6
            for (int x = 0; x < SEEN; x++) {
                __m512 column[SEEN];
#pragma GCC unroll 6
                for (int y = 0; y < SEEN; y++) {
                    column[y] = _mm512_load_ps(pixels[y * SEEN + x] + c);
                }
                transform_input(column, half[x]);
            }
#pragma GCC unroll 6
            for (int y = 0; y < SEEN; y++) {
                __m512 row[SEEN], done[SEEN];
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    row[x] = half[x][y];
                }
                transform_input(row, done);
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    _mm512_store_ps(to + (y * SEEN + x) * b->input_plane + c, done[x]);
                }
            }
        }
    }
}

/* `count` tiles, a constant, times some channels of a panel; `first` where these are the first ones. */
CPU_INLINE void
multiply_rows(const float *inputs, int64_t stride, int64_t channels, const float *weights, const float *ahead, bool first,
              float *products, const int count)
{
    const float *rows[ROWS];
    __m512 sums[ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = inputs + r * stride;
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            sums[r][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(products + r * PANEL + v * LANES);
        }
    }
    cpu_product(rows, channels, weights, ahead, LANES, sums, CPU_VECTORS, count);
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            _mm512_store_ps(products + r * PANEL + v * LANES, sums[r][v]);
        }
    }
}

/* While it runs, the next weights come into the second-level cache: a quarter with each of the first products. */
CPU_AVX512 static void
multiply(const float *inputs, int64_t stride, int64_t channels, const float *weights, const float *next, bool first,
         int64_t count, float *products)
{
    const int64_t groups = cpu_groups(count);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t t = count * g / groups;
        const float *x = inputs + t * stride, *ahead = g < CPU_VECTORS ? next + g * channels * LANES : weights;
        float *to = products + t * PANEL;
        switch (count * (g + 1) / groups - t) {
        case 1: multiply_rows(x, stride, channels, weights, ahead, first, to, 1); break;
        case 2: multiply_rows(x, stride, channels, weights, ahead, first, to, 2); break;
        case 3: multiply_rows(x, stride, channels, weights, ahead, first, to, 3); break;
        case 4: multiply_rows(x, stride, channels, weights, ahead, first, to, 4); break;
        case 5: multiply_rows(x, stride, channels, weights, ahead, first, to, 5); break;
        default: multiply_rows(x, stride, channels, weights, ahead, first, to, ROWS); break;
        }
    }
}

/* Results of `count` tiles, outputs from `channel` on. */
CPU_AVX512 static void
scatter(const struct cpu_winograd *conv, const struct blocking *b, const float *products, const float *bias,
        int64_t channel, int64_t first, int64_t count, float *result, float *sink)
{
    const int64_t left = conv->outputs - channel, channels = left < PANEL ? left : PANEL;
    const __m512 least = _mm512_set1_ps(conv->least), most = _mm512_set1_ps(conv->most);

    for (int64_t t = 0; t < count; t++) {
        const struct place place = place_of(b, first + t);
        float *pixels[TILE * TILE];
        for (int y = 0; y < TILE; y++) {
            for (int x = 0; x < TILE; x++) {
                const int64_t ry = place.y + y, rx = place.x + x;
                const bool inside = ry < conv->out_height && rx < conv->out_width;
                pixels[y * TILE + x] =
                    (inside ? result + ((place.item * conv->out_height + ry) * conv->out_width + rx) * conv->outputs
                            : sink) + channel;
            }
        }
        const float *from = products + t * PANEL;
        for (int64_t c = 0; c < channels; c += LANES) {
            const __m512 shift = bias != NULL ? _mm512_loadu_ps(bias + channel + c) : _mm512_setzero_ps();
            __m512 half[SEEN][TILE]; /* [column][row] */
#pragma GCC unroll 6
            for (int x = 0; x < SEEN; x++) {
                __m512 column[SEEN];
#pragma GCC unroll 6
                for (int y = 0; y < SEEN; y++) {
                    column[y] = _mm512_load_ps(from + (y * SEEN + x) * b->product_plane + c);
                }
                transform_output(column, half[x]);
            }
#pragma GCC unroll 4
            for (int y = 0; y < TILE; y++) {
                __m512 row[SEEN], done[TILE];
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    row[x] = half[x][y];
                }
                transform_output(row, done);
#pragma GCC unroll 4
                for (int x = 0; x < TILE; x++) {
                    float *to = pixels[y * TILE + x] + c;
                    __m512 sum = _mm512_add_ps(done[x], shift);
                    if (conv->add) {
                        sum = _mm512_add_ps(sum, _mm512_load_ps(to));
                    }
                    /* In this order NaN stays NaN. */
                    _mm512_store_ps(to, _mm512_min_ps(most, _mm512_max_ps(least, sum)));
                }
            }
        }
    }
}

void
cpu_winograd_run(const struct cpu_winograd *conv, const float *source, const float *packed, const float *bias,
                 float *result, float *scratch, uint32_t member, uint32_t members)
{
    const struct blocking b = blocking_of(conv);
    const int64_t begin = b.tiles * member / members, end = b.tiles * (member + 1) / members;
    const int64_t panels = panels_of(conv->outputs);
    const float *end_of_weights = packed + panels * POINTS * conv->inputs * PANEL;
    float *inputs = scratch, *products = inputs + POINTS * b.input_plane;
    float *zeros = products + POINTS * b.product_plane, *sink = zeros + conv->inputs;

    memset(zeros, 0, (size_t)(conv->inputs + conv->outputs) * sizeof(float));
    for (int64_t first = begin; first < end; first += b.block) {
        const int64_t count = end - first < b.block ? end - first : b.block;
        gather(conv, &b, source, zeros, first, count, inputs);
        for (int64_t panel = 0; panel < panels; panel++) {
            const float *weights = packed + panel * POINTS * conv->inputs * PANEL;
            for (int64_t point = 0; point < POINTS; point++) {
                for (int64_t c = 0; c < conv->inputs; c += CPU_CHANNELS) {
                    const int64_t left = conv->inputs - c, channels = left < CPU_CHANNELS ? left : CPU_CHANNELS;
                    const float *next = weights + channels * PANEL;
                    multiply(inputs + point * b.input_plane + c, conv->inputs, channels, weights,
                             next < end_of_weights ? next : packed, c == 0, count, products + point * b.product_plane);
                    weights = next;
                }
            }
            scatter(conv, &b, products, bias, panel * PANEL, first, count, result, sink);
        }
    }
}
