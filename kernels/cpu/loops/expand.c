/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/expand.h"

#include <stdbool.h>
#include <string.h>

#include "base/status.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

enum {
    BUFFER_BYTES = 64 << 10, /* of expanded rows, where more than one row of results fits into it */
    PIXELS = 4,              /* of the result at a time, times CPU_VECTORS: their sums stay in registers */
};

static int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/*
 * Expanded rows of one panel, [slots][columns][CPU_PANEL] with zeros for the padding left and right: row r of the source
 * is in slot r % slots. So many slots as `rows` rows of the result see.
 */
struct buffer {
    int64_t slots, columns, rows;
};

static struct buffer
buffer_of(const struct cpu_depthwise *d)
{
    const int64_t seen = (d->out_width - 1) * d->stride_across + d->kernel_across;
    struct buffer buffer = {.columns = most_of(d->pad_left + d->width, seen)};
    const int64_t slots = BUFFER_BYTES / (buffer.columns * CPU_PANEL * (int64_t)sizeof(float));

    buffer.rows = slots > d->kernel_down ? (slots - d->kernel_down) / d->stride_down + 1 : 1;
    buffer.rows = least_of(buffer.rows, d->out_height);
    buffer.slots = (buffer.rows - 1) * d->stride_down + d->kernel_down;
    return buffer;
}

size_t
cpu_expand_scratch_bytes(const struct cpu_expand *conv)
{
    const struct buffer buffer = buffer_of(&conv->depthwise);
    return (size_t)(buffer.slots * buffer.columns * CPU_PANEL) * sizeof(float);
}

/* Up to CPU_VECTORS vectors of one panel, of one item. */
struct part {
    const struct cpu_expand *conv;
    struct buffer buffer;
    float *expanded;
    const float *source; /* the item's */
    float *result;       /* the item's first of these channels */
    struct cpu_expand_weights weights; /* from the first of these channels on */
    const float *next;   /* points of the panel that comes next */
    int64_t asked;       /* products that have asked for a part of it */
    int vectors;
};

/* Where row y of the source is expanded to. */
static float *
slot_of(const struct part *part, int64_t y)
{
    return part->expanded + y % part->buffer.slots * part->buffer.columns * CPU_PANEL;
}

/* ---- Expansion -------------------------------------------------------------------------------------- */

/* `count` pixels, a constant. */
CPU_INLINE void
expand_pixels(const struct part *part, const float *const from[CPU_ROWS], float *const to[CPU_ROWS], const float *ahead,
              const int vectors, const int count)
{
    const struct cpu_expand *conv = part->conv;
    const __m512 least = _mm512_set1_ps(conv->least), most = _mm512_set1_ps(conv->most);
    const float *bias = part->weights.points_bias;
    __m512 sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const __m512 start = bias != NULL ? _mm512_loadu_ps(bias + v * CPU_LANES) : _mm512_setzero_ps();
#pragma GCC unroll 6
        for (int r = 0; r < count; r++) {
            sums[r][v] = start;
        }
    }
    cpu_product(from, conv->inputs, part->weights.points, ahead, CPU_LANES, sums, vectors, count);
#pragma GCC unroll 6
    for (int r = 0; r < count; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) { /* in this order NaN stays NaN */
            _mm512_store_ps(to[r] + v * CPU_LANES, _mm512_min_ps(most, _mm512_max_ps(least, sums[r][v])));
        }
    }
}

CPU_INLINE void
expand_group(const struct part *part, const float *const from[CPU_ROWS], float *const to[CPU_ROWS], const float *ahead,
             const int count)
{
    switch (part->vectors) {
    case 1: expand_pixels(part, from, to, ahead, 1, count); break;
    case 2: expand_pixels(part, from, to, ahead, 2, count); break;
    case 3: expand_pixels(part, from, to, ahead, 3, count); break;
    default: expand_pixels(part, from, to, ahead, CPU_VECTORS, count); break;
    }
}

static void
activate(const struct part *part, float *const to[CPU_ROWS], int64_t count)
{
    for (int64_t r = 0, run; r < count; r += run) {
        run = 1;
        while (part->vectors == CPU_VECTORS && r + run < count && to[r + run] == to[r] + run * CPU_PANEL) {
            run++;
        }
        cpu_activate(part->conv->smooth, to[r], (size_t)(run * part->vectors * CPU_LANES));
    }
}

/* Rows begin..end of the source. Meanwhile the next panel comes into the second-level cache. */
CPU_AVX512 static void
expand(struct part *part, int64_t begin, int64_t end)
{
    const struct cpu_depthwise *d = &part->conv->depthwise;
    const int64_t pixels = (end - begin) * d->width, groups = (pixels + CPU_ROWS - 1) / CPU_ROWS;
    const int64_t inputs = part->conv->inputs;
    const float *source = part->source + begin * d->width * inputs;
    float *row = slot_of(part, begin) + d->pad_left * CPU_PANEL;
    int64_t y = begin, x = 0;

    for (int64_t g = 0; g < groups; g++) {
        const int64_t count = pixels * (g + 1) / groups - pixels * g / groups;
        const float *ahead = part->asked < CPU_VECTORS ? part->next + part->asked * inputs * CPU_LANES : part->weights.points;
        const float *from[CPU_ROWS];
        float *to[CPU_ROWS];
        for (int64_t r = 0; r < count; r++) {
            from[r] = source;
            to[r] = row + x * CPU_PANEL;
            source += inputs;
            if (++x == d->width) {
                x = 0;
                row = slot_of(part, ++y) + d->pad_left * CPU_PANEL;
            }
        }
        part->asked++;
        switch (count) {
        case 1: expand_group(part, from, to, ahead, 1); break;
        case 2: expand_group(part, from, to, ahead, 2); break;
        case 3: expand_group(part, from, to, ahead, 3); break;
        case 4: expand_group(part, from, to, ahead, 4); break;
        case 5: expand_group(part, from, to, ahead, 5); break;
        default: expand_group(part, from, to, ahead, CPU_ROWS); break;
        }
        if (part->conv->smooth != LEAT_ACTIVATION_NONE) {
            activate(part, to, count);
        }
    }
}

/* ---- Windows ---------------------------------------------------------------------------------------- */

/* Rows of the source that row y of the result sees; those of the window that lie inside of it are first..last. */
struct seen {
    const float *rows[CPU_EXPAND_WINDOW_MAX];
    int64_t first, last;
};

/* `count` neighbouring pixels of row y of the result, a constant, from column x on. */
CPU_INLINE void
sum_pixels(const struct part *part, const struct seen *seen, int64_t y, int64_t x, const int vectors, const int count)
{
    const struct cpu_depthwise *d = &part->conv->depthwise;
    const int64_t step = d->stride_across * CPU_PANEL;
    const __m512 least = _mm512_set1_ps(d->least), most = _mm512_set1_ps(d->most);
    const float *bias = part->weights.windows_bias;
    float *to = part->result + (y * d->out_width + x) * d->channels;
    __m512 sums[PIXELS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const __m512 start = bias != NULL ? _mm512_loadu_ps(bias + v * CPU_LANES) : _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int p = 0; p < count; p++) {
            sums[p][v] = start;
        }
    }
    for (int64_t ky = seen->first; ky < seen->last; ky++) {
        const float *row = seen->rows[ky] + x * step;
        const float *windows = part->weights.windows + ky * d->kernel_across * d->channels;
        for (int64_t kx = 0; kx < d->kernel_across; kx++, row += CPU_PANEL, windows += d->channels) {
            __m512 weights[CPU_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                weights[v] = _mm512_load_ps(windows + v * CPU_LANES);
            }
#pragma GCC unroll 4
            for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sums[p][v] = _mm512_fmadd_ps(weights[v], _mm512_load_ps(row + p * step + v * CPU_LANES), sums[p][v]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) { /* in this order NaN stays NaN */
            _mm512_store_ps(to + p * d->channels + v * CPU_LANES, _mm512_min_ps(most, _mm512_max_ps(least, sums[p][v])));
        }
    }
    if (d->smooth != LEAT_ACTIVATION_NONE) {
        for (int p = 0; p < count; p++) {
            cpu_activate(d->smooth, to + p * d->channels, (size_t)(vectors * CPU_LANES));
        }
    }
}

CPU_INLINE void
sum_row(const struct part *part, const struct seen *seen, int64_t y, const int vectors)
{
    const int64_t width = part->conv->depthwise.out_width, groups = (width + PIXELS - 1) / PIXELS;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t x = width * g / groups;
        switch (width * (g + 1) / groups - x) {
        case 1: sum_pixels(part, seen, y, x, vectors, 1); break;
        case 2: sum_pixels(part, seen, y, x, vectors, 2); break;
        case 3: sum_pixels(part, seen, y, x, vectors, 3); break;
        default: sum_pixels(part, seen, y, x, vectors, PIXELS); break;
        }
    }
}

CPU_AVX512 static void
sum_windows(const struct part *part, int64_t y)
{
    const struct cpu_depthwise *d = &part->conv->depthwise;
    const int64_t top = y * d->stride_down - d->pad_top;
    struct seen seen = {.first = most_of(0, -top), .last = least_of(d->kernel_down, d->height - top)};

    for (int64_t ky = seen.first; ky < seen.last; ky++) {
        seen.rows[ky] = slot_of(part, top + ky);
    }
    switch (part->vectors) {
    case 1: sum_row(part, &seen, y, 1); break;
    case 2: sum_row(part, &seen, y, 2); break;
    case 3: sum_row(part, &seen, y, 3); break;
    default: sum_row(part, &seen, y, CPU_VECTORS); break;
    }
}

/* ---- Shares ----------------------------------------------------------------------------------------- */

/* Rows begin..end of the result. */
static void
run_rows(struct part *part, int64_t begin, int64_t end)
{
    const struct cpu_depthwise *d = &part->conv->depthwise;
    int64_t expanded = 0; /* rows of the source up to here are, or are not needed */

    for (int64_t y = begin; y < end; y += part->buffer.rows) {
        const int64_t next = least_of(y + part->buffer.rows, end);
        const int64_t first = most_of(expanded, y * d->stride_down - d->pad_top);
        const int64_t last = least_of(d->height, (next - 1) * d->stride_down - d->pad_top + d->kernel_down);
        if (first < last) {
            expand(part, first, last);
            expanded = last;
        }
        for (int64_t row = y; row < next; row++) {
            sum_windows(part, row);
        }
    }
}

static void
clear_padding(const struct cpu_depthwise *d, const struct buffer *buffer, float *expanded)
{
    const size_t left = (size_t)d->pad_left, right = (size_t)(buffer->columns - d->pad_left - d->width);
    for (int64_t s = 0; s < buffer->slots; s++) {
        float *row = expanded + s * buffer->columns * CPU_PANEL;
        memset(row, 0, left * CPU_PANEL * sizeof(*row));
        memset(row + (d->pad_left + d->width) * CPU_PANEL, 0, right * CPU_PANEL * sizeof(*row));
    }
}

static const float *
behind(const float *bias, int64_t channel)
{
    return bias != NULL ? bias + channel : NULL;
}

void
cpu_expand_run(const struct cpu_expand *conv, const float *source, const struct cpu_expand_weights *weights, float *result,
               void *scratch, uint32_t member, uint32_t members)
{
    const struct cpu_depthwise *d = &conv->depthwise;
    LEAT_ASSERT(d->kernel_down <= CPU_EXPAND_WINDOW_MAX);
    const struct cpu_portion share = cpu_portion_of(d->items * d->out_height, d->channels / CPU_LANES, member, members);
    struct part part = {.conv = conv, .buffer = buffer_of(d), .expanded = scratch};

    clear_padding(d, &part.buffer, scratch);
    for (int64_t row = share.first_row, end; row < share.last_row; row = end) {
        const int64_t item = row / d->out_height, first = item * d->out_height;
        end = least_of(share.last_row, first + d->out_height);
        part.source = source + item * d->height * d->width * conv->inputs;
        for (int64_t v = share.first_vector, next; v < share.last_vector; v = next) {
            next = least_of(share.last_vector, (v / CPU_VECTORS + 1) * CPU_VECTORS);
            const int64_t channel = v * CPU_LANES, panel = v / CPU_VECTORS;
            const float *points = weights->points + panel * conv->inputs * CPU_PANEL;
            part.vectors = (int)(next - v);
            part.result = result + first * d->out_width * d->channels + channel;
            part.weights = (struct cpu_expand_weights){points + v % CPU_VECTORS * CPU_LANES,
                                                       behind(weights->points_bias, channel), weights->windows + channel,
                                                       behind(weights->windows_bias, channel)};
            part.next = next < share.last_vector ? points + conv->inputs * CPU_PANEL
                                                 : weights->points + share.first_vector / CPU_VECTORS * conv->inputs * CPU_PANEL;
            part.asked = 0;
            run_rows(&part, row - first, end - first);
        }
    }
}
