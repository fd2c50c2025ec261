/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/image.h"

#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

size_t
cpu_image_weights_bytes(const struct cpu_direct *conv)
{
    return (size_t)(conv->inputs * conv->kernel_down * conv->kernel_across * conv->outputs) * sizeof(float);
}

/* [inputs][kernel_down][kernel_across][outputs] */
void
cpu_image_pack(const struct cpu_direct *conv, const float *weights, float *ret_packed)
{
    const int64_t taps = conv->inputs * conv->kernel_down * conv->kernel_across;
    for (int64_t o = 0; o < conv->outputs; o++) {
        for (int64_t t = 0; t < taps; t++) {
            ret_packed[t * conv->outputs + o] = weights[o * taps + t];
        }
    }
}

/* Floats of a row with the padding left and right. */
static int64_t
columns_of(const struct cpu_direct *conv)
{
    const int64_t own = conv->pad_left + conv->width, seen = (conv->out_width - 1) * conv->stride_across + conv->kernel_across;
    return (int64_t)leat_round_up((uint64_t)(own > seen ? own : seen), CPU_LANES);
}

/* [inputs][kernel_down] rows, row r of a plane in place r % kernel_down, and one of zeros. */
size_t
cpu_image_scratch_bytes(const struct cpu_direct *conv)
{
    return (size_t)((conv->inputs * conv->kernel_down + 1) * columns_of(conv)) * sizeof(float);
}

/* What a row of the result sees, and some of its channels. */
struct view {
    const float *rows[CPU_IMAGE_INPUTS_MAX * CPU_IMAGE_WINDOW_MAX]; /* [inputs][kernel_down], with their padding */
    const float *weights, *bias;
    float *result; /* the row's */
};

/* `count` neighbouring pixels from column x on, and `vectors` of their channels, both constants. */
CPU_INLINE void
sum_pixels(const struct cpu_direct *conv, const struct view *view, int64_t x, const int vectors, const int count)
{
    const __m512 least = _mm512_set1_ps(conv->least), most = _mm512_set1_ps(conv->most);
    const int64_t step = conv->stride_across;
    const float *weights = view->weights;
    float *to = view->result + x * conv->outputs;
    __m512 sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const __m512 start = view->bias != NULL ? _mm512_loadu_ps(view->bias + v * CPU_LANES) : _mm512_setzero_ps();
#pragma GCC unroll 6
        for (int p = 0; p < count; p++) {
            sums[p][v] = start;
        }
    }
    for (int64_t r = 0; r < conv->inputs * conv->kernel_down; r++) {
        const float *row = view->rows[r] + x * step;
        for (int64_t kx = 0; kx < conv->kernel_across; kx++, weights += conv->outputs) {
            __m512 factors[CPU_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                factors[v] = _mm512_load_ps(weights + v * CPU_LANES);
            }
#pragma GCC unroll 6
            for (int p = 0; p < count; p++) {
                const __m512 pixel = _mm512_set1_ps(row[p * step + kx]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sums[p][v] = _mm512_fmadd_ps(pixel, factors[v], sums[p][v]);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) { /* in this order NaN stays NaN */
            _mm512_store_ps(to + p * conv->outputs + v * CPU_LANES,
                            _mm512_min_ps(most, _mm512_max_ps(least, sums[p][v])));
        }
    }
    if (conv->smooth != LEAT_ACTIVATION_NONE) {
        for (int p = 0; p < count; p++) {
            cpu_activate(conv->smooth, to + p * conv->outputs, (size_t)(vectors * CPU_LANES));
        }
    }
}

CPU_INLINE void
sum_row(const struct cpu_direct *conv, const struct view *view, const int vectors)
{
    const int64_t width = conv->out_width, groups = (width + CPU_ROWS - 1) / CPU_ROWS;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t x = width * g / groups;
        switch (width * (g + 1) / groups - x) {
        case 1: sum_pixels(conv, view, x, vectors, 1); break;
        case 2: sum_pixels(conv, view, x, vectors, 2); break;
        case 3: sum_pixels(conv, view, x, vectors, 3); break;
        case 4: sum_pixels(conv, view, x, vectors, 4); break;
        case 5: sum_pixels(conv, view, x, vectors, 5); break;
        default: sum_pixels(conv, view, x, vectors, CPU_ROWS); break;
        }
    }
}

CPU_AVX512 static void
sum_channels(const struct cpu_direct *conv, const struct view *view, int64_t vectors)
{
    switch (vectors) {
    case 1: sum_row(conv, view, 1); break;
    case 2: sum_row(conv, view, 2); break;
    case 3: sum_row(conv, view, 3); break;
    default: sum_row(conv, view, CPU_VECTORS); break;
    }
}

/* Rows of one item that are being copied: those up to `next` are there, or are not needed. */
struct copies {
    const float *source; /* the item's */
    float *rows;
    int64_t next;
};

/* Finds the rows that row y of the result sees. */
static void
see(const struct cpu_direct *conv, struct copies *copies, int64_t y, struct view *ret_view)
{
    const int64_t top = y * conv->stride_down - conv->pad_top, columns = columns_of(conv), kernel = conv->kernel_down;
    const int64_t end = top + kernel < conv->height ? top + kernel : conv->height;
    const float *zeros = copies->rows + conv->inputs * kernel * columns;

    for (int64_t r = copies->next > top ? copies->next : top; r < end; r++) {
        for (int64_t i = 0; i < conv->inputs; i++) {
            memcpy(copies->rows + (i * kernel + r % kernel) * columns + conv->pad_left,
                   copies->source + (i * conv->height + r) * conv->width, (size_t)conv->width * sizeof(float));
        }
        copies->next = r + 1;
    }
    for (int64_t i = 0; i < conv->inputs; i++) {
        for (int64_t k = 0; k < kernel; k++) {
            const int64_t r = top + k;
            ret_view->rows[i * kernel + k] =
                r >= 0 && r < conv->height ? copies->rows + (i * kernel + r % kernel) * columns : zeros;
        }
    }
}

void
cpu_image_run(const struct cpu_direct *conv, const void *const items[], const float *packed, const float *bias,
              float *result, void *scratch, uint32_t member, uint32_t members)
{
    const struct cpu_portion share =
        cpu_portion_of(conv->items * conv->out_height, conv->outputs / CPU_LANES, member, members);
    struct copies copies = {.rows = scratch};
    struct view view;

    LEAT_ASSERT(conv->inputs <= CPU_IMAGE_INPUTS_MAX && conv->kernel_down <= CPU_IMAGE_WINDOW_MAX && !conv->add);
    memset(scratch, 0, cpu_image_scratch_bytes(conv));
    for (int64_t row = share.first_row; row < share.last_row; row++) {
        const int64_t item = row / conv->out_height, y = row % conv->out_height;
        if (row == share.first_row || y == 0) {
            copies.source = items[item];
            copies.next = 0;
        }
        see(conv, &copies, y, &view);
        for (int64_t v = share.first_vector; v < share.last_vector; v += CPU_VECTORS) {
            const int64_t left = share.last_vector - v;
            view.weights = packed + v * CPU_LANES;
            view.bias = bias != NULL ? bias + v * CPU_LANES : NULL;
            view.result = result + row * conv->out_width * conv->outputs + v * CPU_LANES;
            sum_channels(conv, &view, left < CPU_VECTORS ? left : CPU_VECTORS);
        }
    }
}
