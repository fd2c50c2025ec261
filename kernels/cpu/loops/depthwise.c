/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/depthwise.h"

#include "base/align.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/product.h"

enum { PIXELS = 4 }; /* of the result at a time, times CPU_VECTORS: their sums stay in registers */

static int64_t
taps_of(const struct cpu_depthwise *conv)
{
    return conv->kernel_down * conv->kernel_across;
}

size_t
cpu_depthwise_weights_bytes(const struct cpu_depthwise *conv)
{
    return (size_t)(taps_of(conv) * conv->channels) * sizeof(float);
}

/* [taps][channels] */
void
cpu_depthwise_pack(const struct cpu_depthwise *conv, const float *weights, float *ret_packed)
{
    const int64_t taps = taps_of(conv);
    for (int64_t c = 0; c < conv->channels; c++) {
        for (int64_t t = 0; t < taps; t++) {
            ret_packed[t * conv->channels + c] = weights[c * taps + t];
        }
    }
}

/* What a pixel of the result sees through one place of its window, and the factors of that place. */
struct tap {
    const float *source, *weights;
};

size_t
cpu_depthwise_scratch_bytes(const struct cpu_depthwise *conv)
{
    return (size_t)leat_round_up((uint64_t)taps_of(conv) * sizeof(struct tap), 64);
}

/* `count` neighbouring pixels and `vectors` of their channels, both constants. */
CPU_INLINE void
sum_taps(const struct cpu_depthwise *conv, const struct tap *taps, int64_t tap_count, int64_t channel,
         const float *bias, float *result, const int vectors, const int count)
{
    const int64_t step = conv->stride_across * conv->channels;
    const __m512 least = _mm512_set1_ps(conv->least), most = _mm512_set1_ps(conv->most);
    __m512 sums[PIXELS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const __m512 start = bias != NULL ? _mm512_loadu_ps(bias + channel + v * CPU_LANES) : _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int p = 0; p < count; p++) {
            sums[p][v] = start;
        }
    }
    for (int64_t t = 0; t < tap_count; t++) {
        const float *source = taps[t].source + channel;
        __m512 weights[CPU_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            weights[v] = _mm512_load_ps(taps[t].weights + channel + v * CPU_LANES);
        }
#pragma GCC unroll 4
        for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                sums[p][v] = _mm512_fmadd_ps(weights[v], _mm512_loadu_ps(source + p * step + v * CPU_LANES), sums[p][v]);
            }
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) { /* in this order NaN stays NaN */
            _mm512_store_ps(result + p * conv->channels + channel + v * CPU_LANES,
                            _mm512_min_ps(most, _mm512_max_ps(least, sums[p][v])));
        }
    }
}

CPU_INLINE void
sum_pixels(const struct cpu_depthwise *conv, const struct tap *taps, int64_t tap_count, const float *bias, float *result,
           const int count)
{
    int64_t c = 0;
    for (; c + CPU_PANEL <= conv->channels; c += CPU_PANEL) {
        sum_taps(conv, taps, tap_count, c, bias, result, CPU_VECTORS, count);
    }
    switch ((conv->channels - c) / CPU_LANES) {
    case 1: sum_taps(conv, taps, tap_count, c, bias, result, 1, count); break;
    case 2: sum_taps(conv, taps, tap_count, c, bias, result, 2, count); break;
    case 3: sum_taps(conv, taps, tap_count, c, bias, result, 3, count); break;
    default: break;
    }
    if (conv->smooth != LEAT_ACTIVATION_NONE) {
        cpu_activate(conv->smooth, result, (size_t)(count * conv->channels));
    }
}

/* Those of pixel (y, x) that lie inside of the source; returns how many. */
static int64_t
find_taps(const struct cpu_depthwise *conv, const float *source, const float *packed, int64_t y, int64_t x,
          struct tap *ret_taps)
{
    const int64_t top = y * conv->stride_down - conv->pad_top, left = x * conv->stride_across - conv->pad_left;
    int64_t count = 0;

    for (int64_t ky = 0; ky < conv->kernel_down; ky++) {
        for (int64_t kx = 0; kx < conv->kernel_across; kx++) {
            const int64_t sy = top + ky, sx = left + kx;
            if (sy >= 0 && sy < conv->height && sx >= 0 && sx < conv->width) {
                ret_taps[count++] = (struct tap){source + (sy * conv->width + sx) * conv->channels,
                                                 packed + (ky * conv->kernel_across + kx) * conv->channels};
            }
        }
    }
    return count;
}

CPU_AVX512 void
cpu_depthwise_run(const struct cpu_depthwise *conv, const float *source, const float *packed, const float *bias,
                  float *result, void *scratch, uint32_t member, uint32_t members)
{
    const int64_t rows = conv->items * conv->out_height, width = conv->out_width;
    struct tap *taps = scratch;

    for (int64_t r = rows * member / members; r < rows * (member + 1) / members; r++) {
        const int64_t y = r % conv->out_height, item = r / conv->out_height;
        const float *from = source + item * conv->height * conv->width * conv->channels;
        float *to = result + r * width * conv->channels;
        for (int64_t x = 0; x < width;) {
            const int64_t left = x * conv->stride_across - conv->pad_left;
            const int64_t right = left + (PIXELS - 1) * conv->stride_across + conv->kernel_across;
            const int64_t count = find_taps(conv, from, packed, y, x, taps);
            if (left >= 0 && right <= conv->width && x + PIXELS <= width) { /* all see the same places of the window */
                sum_pixels(conv, taps, count, bias, to + x * conv->channels, PIXELS);
                x += PIXELS;
            } else {
                sum_pixels(conv, taps, count, bias, to + x * conv->channels, 1);
                x++;
            }
        }
    }
}
