/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/winograd_body.h - the stages of winograd_stages.h in vectors of CPU_VECTOR_BITS. Included by one file for each
 * width.
 */
#include <string.h>

#include "base/status.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/loops/winograd_stages.h"

enum {
    LANES = CPU_LANES,
    PANEL = CPU_PANEL,
    ROWS = CPU_ROWS,
    TILE = CPU_WINOGRAD_TILE,
    SEEN = CPU_WINOGRAD_SEEN,
    POINTS = CPU_WINOGRAD_POINTS,
    GROUP = CPU_WINOGRAD_GROUP,
};

/* The points a = sqrt(1/2) and b = sqrt(2). */
#define A  0.70710678118654752440
#define B  1.41421356237309504880
#define A2 0.5
#define B2 2.0

/* ---- Weights ---------------------------------------------------------------------------------------- */

#if CPU_VECTOR_BITS == 512
typedef __m256 half_floats; /* as many as doubles */

/* Floats that are `apart` from each other. */
CPU_INLINE cpu_doubles
widen_apart(const float *x, int64_t apart)
{
    const __m512i places = _mm512_set_epi64(7 * apart, 6 * apart, 5 * apart, 4 * apart, 3 * apart, 2 * apart, apart, 0);
    return _mm512_cvtps_pd(_mm512_i64gather_ps(places, x, sizeof(*x)));
}

CPU_INLINE half_floats
narrow(cpu_doubles x)
{
    return _mm512_cvtpd_ps(x);
}

CPU_INLINE cpu_floats
join(half_floats low, half_floats high)
{
    const __m512d half = _mm512_castpd256_pd512(_mm256_castps_pd(low));
    return _mm512_castpd_ps(_mm512_insertf64x4(half, _mm256_castps_pd(high), 1));
}
#else
typedef __m128 half_floats;

CPU_INLINE cpu_doubles
widen_apart(const float *x, int64_t apart)
{
    return _mm256_cvtps_pd(_mm_set_ps(x[3 * apart], x[2 * apart], x[apart], x[0]));
}

CPU_INLINE half_floats
narrow(cpu_doubles x)
{
    return _mm256_cvtpd_ps(x);
}

CPU_INLINE cpu_floats
join(half_floats low, half_floats high)
{
    return _mm256_set_m128(high, low);
}
#endif

/* Of the polynomials through three weights: their values at the points over what the interpolation divides by. */
CPU_INLINE void
transform_weights(const cpu_doubles g[3], cpu_doubles ret[SEEN])
{
    const cpu_doubles at_a = CPU_D(set1)(1 / (2 * A2 * (A2 - B2))), at_b = CPU_D(set1)(1 / (2 * B2 * (B2 - A2)));
    const cpu_doubles even_a = CPU_D(fmadd)(CPU_D(set1)(A2), g[2], g[0]), odd_a = CPU_D(mul)(CPU_D(set1)(A), g[1]);
    const cpu_doubles even_b = CPU_D(fmadd)(CPU_D(set1)(B2), g[2], g[0]), odd_b = CPU_D(mul)(CPU_D(set1)(B), g[1]);

    ret[0] = CPU_D(mul)(CPU_D(set1)(1 / (A2 * B2)), g[0]);
    ret[1] = CPU_D(mul)(at_a, CPU_D(add)(even_a, odd_a));
    ret[2] = CPU_D(mul)(at_a, CPU_D(sub)(even_a, odd_a));
    ret[3] = CPU_D(mul)(at_b, CPU_D(add)(even_b, odd_b));
    ret[4] = CPU_D(mul)(at_b, CPU_D(sub)(even_b, odd_b));
    ret[5] = g[2];
}

/* The points of half a vector of outputs, whose weights are `from` floats apart, of one input. */
CPU_INLINE void
transform_outputs(const float *w, int64_t from, half_floats ret[POINTS])
{
    cpu_doubles columns[3][SEEN], row[SEEN];

    for (int x = 0; x < 3; x++) {
        cpu_doubles g[3];
        for (int y = 0; y < 3; y++) {
            g[y] = widen_apart(w + y * 3 + x, from);
        }
        transform_weights(g, columns[x]);
    }
    for (int y = 0; y < SEEN; y++) {
        transform_weights((const cpu_doubles[3]){columns[0][y], columns[1][y], columns[2][y]}, row);
        for (int x = 0; x < SEEN; x++) {
            ret[y * SEEN + x] = narrow(row[x]);
        }
    }
}

CPU_KERNEL static void
pack(const float *weights, int64_t inputs, int64_t outputs, float *ret_packed)
{
    const int64_t from = inputs * 9; /* one output to the next */

    LEAT_ASSERT(outputs % LANES == 0);
    if (outputs % GROUP != 0) {
        memset(ret_packed, 0, cpu_winograd_weights_bytes(inputs, outputs));
    }
    for (int64_t o = 0; o < outputs; o += LANES) {
        float *group = ret_packed + o / GROUP * POINTS * inputs * GROUP;
        for (int64_t i = 0; i < inputs; i++) {
            const int64_t begin = i / CPU_WINOGRAD_CHANNELS * CPU_WINOGRAD_CHANNELS, left = inputs - begin;
            const int64_t channels = left < CPU_WINOGRAD_CHANNELS ? left : CPU_WINOGRAD_CHANNELS;
            float *to = group + begin * GROUP + (o % GROUP / PANEL * channels + i - begin) * PANEL + o % PANEL;
            half_floats low[POINTS], high[POINTS];
            transform_outputs(weights + o * from + i * 9, from, low);
            transform_outputs(weights + (o + LANES / 2) * from + i * 9, from, high);
            for (int p = 0; p < POINTS; p++) {
                if (LANES == CPU_LINE) {
                    CPU_V(stream)(to + p * inputs * GROUP, join(low[p], high[p]));
                } else {
                    CPU_V(store)(to + p * inputs * GROUP, join(low[p], high[p]));
                }
            }
        }
    }
    _mm_sfence(); /* before anybody is told where they are */
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

struct place {
    int64_t item, y, x; /* of the tile's first result */
};

static struct place
place_of(const struct cpu_winograd_blocking *b, int64_t tile)
{
    const int64_t in_item = tile % (b->down * b->across);
    return (struct place){tile / (b->down * b->across), in_item / b->across * TILE, in_item % b->across * TILE};
}

CPU_INLINE cpu_floats
times(double factor, cpu_floats x)
{
    return CPU_V(mul)(CPU_V(set1)((float)factor), x);
}

/* y + factor * x */
CPU_INLINE cpu_floats
plus(cpu_floats y, double factor, cpu_floats x)
{
    return CPU_V(fmadd)(CPU_V(set1)((float)factor), x, y);
}

CPU_INLINE void
transform_input(const cpu_floats d[SEEN], cpu_floats ret[SEEN])
{
    const cpu_floats even_a = plus(d[4], -B2, d[2]), odd_a = plus(d[3], -B2, d[1]);
    const cpu_floats even_b = plus(d[4], -A2, d[2]), odd_b = plus(d[3], -A2, d[1]);
    ret[0] = plus(CPU_V(add)(d[4], d[0]), -(A2 + B2), d[2]); /* A2 * B2 is 1 */
    ret[1] = plus(even_a, A, odd_a);
    ret[2] = plus(even_a, -A, odd_a);
    ret[3] = plus(even_b, B, odd_b);
    ret[4] = plus(even_b, -B, odd_b);
    ret[5] = plus(CPU_V(add)(d[5], d[1]), -(A2 + B2), d[3]);
}

CPU_INLINE void
transform_output(const cpu_floats m[SEEN], cpu_floats ret[TILE])
{
    const cpu_floats even_a = CPU_V(add)(m[1], m[2]), odd_a = CPU_V(sub)(m[1], m[2]);
    const cpu_floats even_b = CPU_V(add)(m[3], m[4]), odd_b = CPU_V(sub)(m[3], m[4]);
    ret[0] = CPU_V(add)(m[0], CPU_V(add)(even_a, even_b));
    ret[1] = plus(times(A, odd_a), B, odd_b);
    ret[2] = plus(times(A2, even_a), B2, even_b);
    ret[3] = plus(plus(m[5], A * A2, odd_a), B * B2, odd_b);
}

/* Where a pixel's channels lie, in floats. */
struct layout {
    int64_t pixel, vector; /* to the next pixel, to the next LANES channels */
};

static struct layout
layout_of(const struct cpu_winograd *conv, int64_t channels, int64_t pixels)
{
    return conv->blocked ? (struct layout){LANES, pixels * LANES} : (struct layout){channels, LANES};
}

CPU_KERNEL static void
gather(const struct cpu_winograd *conv, const struct cpu_winograd_blocking *b, const float *source, const float *zeros, int64_t first,
       int64_t count, float *ret)
{
    const struct layout layout = layout_of(conv, conv->inputs, conv->height * conv->width);

    for (int64_t t = 0; t < count; t++) {
        const struct place place = place_of(b, first + t);
        const float *from = source + place.item * conv->height * conv->width * conv->inputs;
        const float *pixels[POINTS];
        int64_t moves[POINTS]; /* all ones, or zero: who is outside has one vector */
        for (int y = 0; y < SEEN; y++) {
            for (int x = 0; x < SEEN; x++) {
                const int64_t sy = place.y - conv->pad_top + y, sx = place.x - conv->pad_left + x;
                const bool inside = sy >= 0 && sy < conv->height && sx >= 0 && sx < conv->width;
                pixels[y * SEEN + x] = inside ? from + (sy * conv->width + sx) * layout.pixel : zeros;
                moves[y * SEEN + x] = inside ? -1 : 0;
            }
        }
        float *to = ret + t * conv->inputs;
        for (int64_t c = 0, at = 0; c < conv->inputs; c += LANES, at += layout.vector) {
            cpu_floats half[SEEN][SEEN]; /* [column][row]: columns are transformed */
#pragma GCC unroll 6
            for (int x = 0; x < SEEN; x++) {
                cpu_floats column[SEEN];
#pragma GCC unroll 6
                for (int y = 0; y < SEEN; y++) {
                    const int p = y * SEEN + x;
                    column[y] = CPU_V(load)(pixels[p] + (at & moves[p]));
                }
                transform_input(column, half[x]);
            }
#pragma GCC unroll 6
            for (int y = 0; y < SEEN; y++) {
                cpu_floats row[SEEN], done[SEEN];
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    row[x] = half[x][y];
                }
                transform_input(row, done);
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    CPU_V(store)(to + (y * SEEN + x) * b->input_plane + c, done[x]);
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
    cpu_floats sums[ROWS][CPU_VECTORS];

#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
        rows[r] = inputs + r * stride;
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            sums[r][v] = first ? CPU_V(setzero)() : CPU_V(load)(products + r * GROUP + v * LANES);
        }
    }
    cpu_product(rows, channels, weights, ahead, CPU_LINE, sums, CPU_VECTORS, count);
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < CPU_VECTORS; v++) {
            CPU_V(store)(products + r * GROUP + v * LANES, sums[r][v]);
        }
    }
}

/* The next weights come with the first products. */
CPU_INLINE void
multiply_panel(const float *inputs, int64_t stride, int64_t channels, const float *weights, const float *next, bool first,
         int64_t count, float *products)
{
    const int64_t groups = cpu_groups(count);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t t = count * g / groups;
        const float *x = inputs + t * stride, *ahead = g < PANEL / CPU_LINE ? next + g * channels * CPU_LINE : weights;
        float *to = products + t * GROUP;
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

CPU_KERNEL static void
multiply(const float *inputs, int64_t stride, int64_t channels, const float *weights, const float *next, bool first,
         int64_t count, int64_t outputs, float *products)
{
    for (int64_t o = 0; o < outputs; o += PANEL) {
        multiply_panel(inputs, stride, channels, weights + o * channels, next + o * channels, first, count, products + o);
    }
}

CPU_KERNEL static void
scatter(const struct cpu_winograd *conv, const struct cpu_winograd_blocking *b, const float *products, const float *bias,
        int64_t channel, int64_t first, int64_t count, float *result, float *sink)
{
    const struct layout layout = layout_of(conv, conv->outputs, conv->out_height * conv->out_width);
    const int64_t left = conv->outputs - channel, channels = left < GROUP ? left : GROUP;
    const cpu_floats least = CPU_V(set1)(conv->least), most = CPU_V(set1)(conv->most);

    for (int64_t t = 0; t < count; t++) {
        const struct place place = place_of(b, first + t);
        float *to_item = result + place.item * conv->out_height * conv->out_width * conv->outputs + channel / LANES * layout.vector;
        float *pixels[TILE * TILE];
        int64_t moves[TILE * TILE];
        for (int y = 0; y < TILE; y++) {
            for (int x = 0; x < TILE; x++) {
                const int64_t ry = place.y + y, rx = place.x + x;
                const bool inside = ry < conv->out_height && rx < conv->out_width;
                pixels[y * TILE + x] = inside ? to_item + (ry * conv->out_width + rx) * layout.pixel : sink;
                moves[y * TILE + x] = inside ? -1 : 0;
            }
        }
        const float *from = products + t * GROUP;
        for (int64_t c = 0, at = 0; c < channels; c += LANES, at += layout.vector) {
            const cpu_floats shift = bias != NULL ? CPU_V(loadu)(bias + channel + c) : CPU_V(setzero)();
            cpu_floats half[SEEN][TILE]; /* [column][row] */
#pragma GCC unroll 6
            for (int x = 0; x < SEEN; x++) {
                cpu_floats column[SEEN];
#pragma GCC unroll 6
                for (int y = 0; y < SEEN; y++) {
                    column[y] = CPU_V(load)(from + (y * SEEN + x) * b->product_plane + c);
                }
                transform_output(column, half[x]);
            }
#pragma GCC unroll 4
            for (int y = 0; y < TILE; y++) {
                cpu_floats row[SEEN], done[TILE];
#pragma GCC unroll 6
                for (int x = 0; x < SEEN; x++) {
                    row[x] = half[x][y];
                }
                transform_output(row, done);
#pragma GCC unroll 4
                for (int x = 0; x < TILE; x++) {
                    float *to = pixels[y * TILE + x] + (at & moves[y * TILE + x]);
                    cpu_floats sum = CPU_V(add)(done[x], shift);
                    if (conv->add) {
                        sum = CPU_V(add)(sum, CPU_V(load)(to));
                    }
                    /* In this order NaN stays NaN. */
                    CPU_V(store)(to, CPU_V(min)(most, CPU_V(max)(least, sum)));
                }
            }
        }
    }
}

const struct cpu_winograd_stages CPU_SIZED(cpu_winograd) = {pack, gather, multiply, scatter};
