/* SPDX-License-Identifier: Apache-2.0 */
#define CPU_VECTOR_BITS 256
#define CPU_VECTORS     4
#include "kernels/cpu/loops/depthwise_whole.h"

#include <math.h>

#include "kernels/cpu/loops/fours_store.h"
#include "kernels/cpu/loops/portion.h"

enum {
    PIXELS = 8, /* of the result, for which an activation is called once */
    CHANNELS = CPU_DEPTHWISE_WHOLE_CHANNELS,
    PAIR = 2 * CHANNELS, /* weights */
    HALF = 4,            /* channels that follow each other where words of two vectors are interleaved */
};

static int64_t
taps_of(const struct cpu_fours *conv)
{
    return conv->kernel_down * conv->kernel_across;
}

/* Of the window's pixels; of an odd number the last one is beside nothing. */
static int64_t
pairs_of(const struct cpu_fours *conv)
{
    return (taps_of(conv) + 1) / 2;
}

size_t
cpu_depthwise_whole_weights_bytes(const struct cpu_fours *conv)
{
    return (size_t)(conv->outputs * 2 * pairs_of(conv)) * sizeof(int16_t);
}

/* [channels / CHANNELS][pairs][2: of channels 0-3 and 8-11, of 4-7 and 12-15][8][2: the pair] */
void
cpu_depthwise_whole_pack(const struct cpu_fours *conv, const float *weights, const float *factors, int16_t *ret_packed)
{
    const int64_t taps = taps_of(conv);

    for (int64_t c = 0; c < conv->outputs; c++) {
        const int64_t place = c % CHANNELS, lane = place / (2 * HALF) * HALF + place % HALF;
        int16_t *to = ret_packed + c / CHANNELS * pairs_of(conv) * PAIR + place / HALF % 2 * CHANNELS + 2 * lane;
        for (int64_t t = 0; t < 2 * pairs_of(conv); t++) {
            const float stored = t < taps ? nearbyintf(weights[c * taps + t] * factors[c]) : 0;
            to[t / 2 * PAIR + t % 2] = (int16_t)fmaxf(-CPU_DEPTHWISE_WHOLE_MOST, fminf(CPU_DEPTHWISE_WHOLE_MOST, stored)); /* NaN, too */
        }
    }
}

/* Sixteen bytes as words. */
CPU_INLINE __m256i
widen(const unsigned char *bytes, const bool is_signed)
{
    const __m128i line = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    return is_signed ? _mm256_cvtepi8_epi16(line) : _mm256_cvtepu8_epi16(line);
}

/* Pixels first..first + count; what the window of the first sees lies at rows[taps], of the others `step` behind each other. */
struct pixels {
    const unsigned char *rows[CPU_FOURS_TAPS_MAX];
    int64_t first, step;
    int count;
};

_Static_assert((int64_t)CPU_FOURS_TAPS_MAX * 255 * CPU_DEPTHWISE_WHOLE_MOST <= INT32_MAX, "sums fit 32 bits");

/*
 * Sums of 32 bits of `vectors` times eight channels, `offset` behind the rows. Vectors are a constant, two or four; taps where they
 * are few.
 */
CPU_INLINE void
sum_window(const struct pixels *pixels, int64_t offset, const int16_t *weights, int64_t block, const int vectors, const int64_t taps,
           const bool is_signed, __m256i *ret_sums)
{
    __m256i low[CPU_VECTORS / 2], high[CPU_VECTORS / 2];

#pragma GCC unroll 2
    for (int k = 0; k < vectors / 2; k++) {
        low[k] = high[k] = _mm256_setzero_si256();
    }
#pragma GCC unroll 13
    for (int64_t t = 0; t < taps; t += 2, weights += PAIR) {
        const unsigned char *one = pixels->rows[t] + offset, *other = t + 1 < taps ? pixels->rows[t + 1] + offset : one;
#pragma GCC unroll 2
        for (int k = 0; k < vectors / 2; k++) {
            const __m256i a = widen(one + k * CHANNELS, is_signed);
            const __m256i b = t + 1 < taps ? widen(other + k * CHANNELS, is_signed) : _mm256_setzero_si256();
            const __m256i *pair = (const __m256i *)(const void *)(weights + k * block);
            low[k] = _mm256_add_epi32(low[k], _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), _mm256_load_si256(pair)));
            high[k] = _mm256_add_epi32(high[k], _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), _mm256_load_si256(pair + 1)));
        }
    }
#pragma GCC unroll 2
    for (int k = 0; k < vectors / 2; k++) {
        ret_sums[2 * k] = _mm256_permute2x128_si256(low[k], high[k], 0x20);
        ret_sums[2 * k + 1] = _mm256_permute2x128_si256(low[k], high[k], 0x31);
    }
}

/* What all of a step are told, from a channel on. */
struct work {
    const struct cpu_fours *conv;
    const int16_t *packed;
    const float *sums, *bias;
    unsigned char *result;
};

/* `vectors` from `channel` on of all pixels. */
CPU_INLINE void
convolve(const struct work *work, const struct pixels *pixels, int64_t channel, const int vectors, const int64_t taps, const bool is_signed)
{
    const struct cpu_fours *conv = work->conv;
    const int64_t block = pairs_of(conv) * PAIR, bytes = conv->result == dnnl_f32 ? (int64_t)sizeof(float) : 1;
    const int16_t *weights = work->packed + channel / CHANNELS * block;
    unsigned char *result = work->result + channel * bytes;
    _Alignas(32) float numbers[PIXELS * CPU_PANEL];

    for (int p = 0; p < pixels->count; p++) {
        __m256i whole[CPU_VECTORS];
        __m256 results[CPU_VECTORS];
        sum_window(pixels, p * pixels->step + channel, weights, block, vectors, taps, is_signed, whole);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const int64_t at = channel + v * CPU_LANES;
            results[v] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[v]), _mm256_load_ps(work->sums + at), _mm256_load_ps(work->bias + at));
        }
        if (conv->smooth == LEAT_ACTIVATION_NONE) {
            cpu_fours_store(conv, results, result, (pixels->first + p) * conv->outputs, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            _mm256_store_ps(numbers + (p * vectors + v) * CPU_LANES, results[v]);
        }
    }
    if (conv->smooth != LEAT_ACTIVATION_NONE) {
        cpu_fours_store_smooth(conv, numbers, pixels->count, vectors, result, pixels->first * conv->outputs);
    }
}

/* Channels from `channel` to `end`; `taps` is a constant where windows are the usual ones. */
CPU_INLINE void
run_channels(const struct work *work, const struct pixels *pixels, int64_t channel, int64_t end, const int64_t taps, const bool is_signed)
{
    for (; channel + CPU_PANEL <= end; channel += CPU_PANEL) {
        convolve(work, pixels, channel, CPU_VECTORS, taps, is_signed);
    }
    if (channel < end) {
        convolve(work, pixels, channel, CPU_VECTORS / 2, taps, is_signed);
    }
}

CPU_KERNEL static void
run_pixels(const struct work *work, const struct pixels *pixels, int64_t channel, int64_t end)
{
    const int64_t taps = taps_of(work->conv);

    if (work->conv->source_signed) {
        run_channels(work, pixels, channel, end, taps, true);
    } else if (taps == 9) {
        run_channels(work, pixels, channel, end, 9, false);
    } else if (taps == 25) {
        run_channels(work, pixels, channel, end, 25, false);
    } else {
        run_channels(work, pixels, channel, end, taps, false);
    }
}

/*
 * As many pixels from `first` on, up to `end`, as see the same places of the source's lines, one at the least. `outside` is what lies
 * outside of the source.
 */
static void
find_pixels(const struct cpu_fours *conv, const unsigned char *source, const unsigned char *outside, int64_t first, int64_t end,
            struct pixels *ret)
{
    const int64_t line = first / conv->out_width, item = line / conv->out_height, column = first % conv->out_width;
    const int64_t y = line % conv->out_height * conv->stride_down - conv->pad_top, x = column * conv->stride_across - conv->pad_left;
    const int64_t left = conv->out_width - column < end - first ? conv->out_width - column : end - first;
    const int64_t room = (conv->width - conv->kernel_across - x) / conv->stride_across + 1; /* pixels whose windows end in the line */
    const bool inside = y >= 0 && y + conv->kernel_down <= conv->height && x >= 0 && x + conv->kernel_across <= conv->width;
    const int64_t most = inside ? (room < left ? room : left) : 1;
    const unsigned char **to = ret->rows;

    ret->first = first;
    ret->count = most < PIXELS ? (int)most : PIXELS;
    ret->step = conv->stride_across * conv->inputs;
    for (int64_t sy = y; sy < y + conv->kernel_down; sy++) {
        for (int64_t sx = x; sx < x + conv->kernel_across; sx++) {
            const bool there = sy >= 0 && sy < conv->height && sx >= 0 && sx < conv->width;
            *to++ = there ? source + ((item * conv->height + sy) * conv->width + sx) * conv->inputs : outside;
        }
    }
}

void
cpu_depthwise_whole_run(const struct cpu_fours *conv, const void *source, const int16_t *packed, const float *sums, const float *bias,
                        void *result, uint32_t member, uint32_t members)
{
    const struct cpu_portion share =
        cpu_portion_of(conv->items * conv->out_height * conv->out_width, conv->outputs / CHANNELS, member, members);
    const int64_t last = share.last_vector * CHANNELS, bytes = conv->result == dnnl_f32 ? (int64_t)sizeof(float) : 1;
    unsigned char outside[CPU_FOURS_PADDED_MAX];
    struct pixels pixels = {.count = 0};

    memset(outside, conv->rest, sizeof(outside));
    for (int64_t channel = share.first_vector * CHANNELS, end; channel < last; channel = end) {
        end = last - channel < CPU_FOURS_PADDED_MAX ? last : channel + CPU_FOURS_PADDED_MAX;
        const struct work work = {conv, packed + channel * 2 * pairs_of(conv), sums + channel, bias + channel,
                                  (unsigned char *)result + channel * bytes};
        for (int64_t first = share.first_row; first < share.last_row; first += pixels.count) {
            find_pixels(conv, (const unsigned char *)source + channel, outside, first, share.last_row, &pixels);
            run_pixels(&work, &pixels, 0, end - channel);
        }
    }
}
