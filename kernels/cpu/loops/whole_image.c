/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/loops/whole_image.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/align.h"
#include "base/status.h"
#include "kernels/cpu/loops/image.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"

#define WHOLE        __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define WHOLE_INLINE static inline __attribute__((always_inline)) WHOLE

enum { PAIR = 2 }; /* neighbouring pixels that one instruction multiplies */

bool
cpu_whole_image_runs_here(void)
{
    const uint32_t vnni = dnnl_cpu_isa_avx512_core_vnni, amx = dnnl_cpu_isa_avx512_core_amx;
    const uint32_t here = dnnl_get_effective_cpu_isa();

    return (here & vnni) == vnni && (here & amx) != amx;
}

static int64_t
pairs_of(const struct cpu_direct *conv)
{
    return (conv->kernel_across + PAIR - 1) / PAIR;
}

/* ---- Weights ---------------------------------------------------------------------------------------- */

size_t
cpu_whole_image_weights_bytes(const struct cpu_direct *conv)
{
    return (size_t)(conv->inputs * conv->kernel_down * pairs_of(conv) * conv->outputs * PAIR) * sizeof(int16_t);
}

float
cpu_whole_image_factor(const struct cpu_direct *conv, const float *weights, int64_t channel)
{
    const int64_t taps = conv->inputs * conv->kernel_down * conv->kernel_across;
    double sum = 0, most = 0;

    for (int64_t t = 0; t < taps; t++) {
        const double each = fabs((double)weights[channel * taps + t]);
        sum += each;
        most = fmax(most, each);
    }
    /* Rounding adds half a step to each at most. */
    return !isfinite(sum) ? 0 : most > 0 ? (float)fmin((CPU_WHOLE_SUM - (double)taps) / sum, INT16_MAX / most) : 1;
}

/* [inputs][kernel_down][pairs][outputs][PAIR] */
void
cpu_whole_image_pack(const struct cpu_direct *conv, const float *weights, int16_t *ret_packed)
{
    const int64_t pairs = pairs_of(conv), rows = conv->inputs * conv->kernel_down;

    memset(ret_packed, 0, cpu_whole_image_weights_bytes(conv));
    for (int64_t o = 0; o < conv->outputs; o++) {
        const float factor = cpu_whole_image_factor(conv, weights, o);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t k = 0; k < conv->kernel_across; k++) {
                const float whole = rintf(weights[(o * rows + r) * conv->kernel_across + k] * factor);
                ret_packed[((r * pairs + k / PAIR) * conv->outputs + o) * PAIR + k % PAIR] =
                    (int16_t)fminf(fmaxf(whole, -INT16_MAX), INT16_MAX);
            }
        }
    }
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

/* Pixels of a row with the padding left and right. */
static int64_t
columns_of(const struct cpu_direct *conv)
{
    const int64_t own = conv->pad_left + conv->width;
    const int64_t seen = (conv->out_width - 1) * conv->stride_across + pairs_of(conv) * PAIR;
    return (int64_t)leat_round_up((uint64_t)(own > seen ? own : seen), 2 * CPU_LANES);
}

/* [inputs][kernel_down] rows, row r of a plane in place r % kernel_down, and one of zeros. */
size_t
cpu_whole_image_scratch_bytes(const struct cpu_direct *conv)
{
    return (size_t)((conv->inputs * conv->kernel_down + 1) * columns_of(conv)) * sizeof(int16_t);
}

WHOLE static void
round_row(const float *from, int64_t count, float factor, int16_t *to)
{
    const __m512 most = _mm512_set1_ps(INT16_MAX), least = _mm512_set1_ps(-INT16_MAX), factors = _mm512_set1_ps(factor);

    for (int64_t i = 0; i < count; i += CPU_LANES) {
        const __mmask16 mask = (__mmask16)(count - i < CPU_LANES ? (1U << (count - i)) - 1 : UINT16_MAX);
        const __m512 steps = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from + i), factors);
        const __m512i whole = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(steps, least), most)); /* NaN is the least */
        _mm512_mask_cvtepi32_storeu_epi16(to + i, mask, whole);
    }
}

/* Rows of one item that were rounded: those up to `next` are there, or are not needed. */
struct rounded {
    const float *source; /* the item's */
    int16_t *rows;
    int64_t next;
};

/* What a row of the result sees, and some of its channels. */
struct view {
    const int16_t *rows[CPU_IMAGE_INPUTS_MAX * CPU_IMAGE_WINDOW_MAX]; /* [inputs][kernel_down], with their padding */
    const int16_t *weights;
    const float *sums, *bias;
    unsigned char *result; /* the row's */
};

/* Finds the rows that row y of the result sees. */
static void
see(const struct cpu_whole_image *image, struct rounded *rounded, int64_t y, struct view *ret_view)
{
    const struct cpu_direct *conv = &image->conv;
    const int64_t top = y * conv->stride_down - conv->pad_top, columns = columns_of(conv), kernel = conv->kernel_down;
    const int64_t end = top + kernel < conv->height ? top + kernel : conv->height;
    const int16_t *zeros = rounded->rows + conv->inputs * kernel * columns;

    for (int64_t r = rounded->next > top ? rounded->next : top; r < end; r++) {
        for (int64_t i = 0; i < conv->inputs; i++) {
            round_row(rounded->source + (i * conv->height + r) * conv->width, conv->width, image->pixels_in_one,
                      rounded->rows + (i * kernel + r % kernel) * columns + conv->pad_left);
        }
        rounded->next = r + 1;
    }
    for (int64_t i = 0; i < conv->inputs; i++) {
        for (int64_t k = 0; k < kernel; k++) {
            const int64_t r = top + k;
            ret_view->rows[i * kernel + k] =
                r >= 0 && r < conv->height ? rounded->rows + (i * kernel + r % kernel) * columns : zeros;
        }
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

WHOLE_INLINE void
store(const struct cpu_whole_image *image, const struct view *view, __m512i sum, int v, int64_t pixel)
{
    const int64_t at = pixel * image->conv.outputs + v * CPU_LANES;
    const __m512 least = _mm512_set1_ps(image->conv.least), most = _mm512_set1_ps(image->conv.most);
    const __m512 scaled = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(view->sums + v * CPU_LANES),
                                          _mm512_loadu_ps(view->bias + v * CPU_LANES));
    const __m512 result = _mm512_min_ps(most, _mm512_max_ps(least, scaled));

    switch (image->result) {
    case CPU_WHOLE_F32: _mm512_store_ps((float *)(void *)view->result + at, result); break;
    case CPU_WHOLE_U8:
        _mm_store_si128((__m128i *)(void *)(view->result + at), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(result)));
        break;
    default:
        _mm_store_si128((__m128i *)(void *)(view->result + at), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(result)));
        break;
    }
}

/* Sums as the instruction has them: GCC keeps arrays of these in registers, but not of __m512i, whose lanes have 64 bits. */
typedef int32_t sums_of __attribute__((vector_size(64)));

/* Two neighbouring pixels, in all lanes; they begin at any of them. */
WHOLE_INLINE __m512i
both_pixels(const int16_t *first)
{
    int32_t both;
    memcpy(&both, first, sizeof(both));
    return _mm512_set1_epi32(both);
}

/* `count` neighbouring pixels from column x on, and `vectors` of their channels, both constants. */
WHOLE_INLINE void
sum_pixels(const struct cpu_whole_image *image, const struct view *view, int64_t x, const int vectors, const int count)
{
    const struct cpu_direct *conv = &image->conv;
    const int64_t step = conv->stride_across, pairs = pairs_of(conv);
    const int16_t *weights = view->weights;
    sums_of sums[CPU_ROWS][CPU_VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 6
        for (int p = 0; p < count; p++) {
            sums[p][v] = (sums_of){0};
        }
    }
    for (int64_t r = 0; r < conv->inputs * conv->kernel_down; r++) {
        const int16_t *row = view->rows[r] + x * step;
        for (int64_t k = 0; k < pairs; k++, weights += conv->outputs * PAIR) {
            __m512i factors[CPU_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                factors[v] = _mm512_load_si512(weights + v * CPU_LANES * PAIR);
            }
#pragma GCC unroll 6
            for (int p = 0; p < count; p++) {
                const __m512i pixels = both_pixels(row + p * step + k * PAIR);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sums[p][v] = (sums_of)_mm512_dpwssd_epi32((__m512i)sums[p][v], pixels, factors[v]);
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int p = 0; p < count; p++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            store(image, view, (__m512i)sums[p][v], v, x + p);
        }
    }
}

WHOLE_INLINE void
sum_row(const struct cpu_whole_image *image, const struct view *view, const int vectors)
{
    const int64_t width = image->conv.out_width, groups = cpu_groups(width);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t x = width * g / groups;
        switch (width * (g + 1) / groups - x) {
        case 1: sum_pixels(image, view, x, vectors, 1); break;
        case 2: sum_pixels(image, view, x, vectors, 2); break;
        case 3: sum_pixels(image, view, x, vectors, 3); break;
        case 4: sum_pixels(image, view, x, vectors, 4); break;
        case 5: sum_pixels(image, view, x, vectors, 5); break;
        default: sum_pixels(image, view, x, vectors, CPU_ROWS); break;
        }
    }
}

WHOLE static void
sum_channels(const struct cpu_whole_image *image, const struct view *view, int64_t vectors)
{
    switch (vectors) {
    case 1: sum_row(image, view, 1); break;
    case 2: sum_row(image, view, 2); break;
    case 3: sum_row(image, view, 3); break;
    default: sum_row(image, view, CPU_VECTORS); break;
    }
}

void
cpu_whole_image_run(const struct cpu_whole_image *image, const void *const items[], const int16_t *packed,
                    const float *sums, const float *bias, void *result, void *scratch, uint32_t member, uint32_t members)
{
    const struct cpu_direct *conv = &image->conv;
    const size_t element = image->result == CPU_WHOLE_F32 ? sizeof(float) : 1;
    const struct cpu_portion share =
        cpu_portion_of(conv->items * conv->out_height, conv->outputs / CPU_LANES, member, members);
    struct rounded rounded = {.rows = scratch};
    struct view view;

    LEAT_ASSERT(conv->inputs <= CPU_IMAGE_INPUTS_MAX && conv->kernel_down <= CPU_IMAGE_WINDOW_MAX &&
                conv->kernel_across <= CPU_WHOLE_ACROSS_MAX && !conv->add && conv->smooth == LEAT_ACTIVATION_NONE);
    memset(scratch, 0, cpu_whole_image_scratch_bytes(conv));
    for (int64_t row = share.first_row; row < share.last_row; row++) {
        const int64_t item = row / conv->out_height, y = row % conv->out_height;
        if (row == share.first_row || y == 0) {
            rounded.source = items[item];
            rounded.next = 0;
        }
        see(image, &rounded, y, &view);
        for (int64_t v = share.first_vector; v < share.last_vector; v += CPU_VECTORS) {
            const int64_t left = share.last_vector - v;
            view.weights = packed + v * CPU_LANES * PAIR;
            view.sums = sums + v * CPU_LANES;
            view.bias = bias + v * CPU_LANES;
            view.result = (unsigned char *)result +
                          (size_t)(row * conv->out_width * conv->outputs + v * CPU_LANES) * element;
            sum_channels(image, &view, left < CPU_VECTORS ? left : CPU_VECTORS);
        }
    }
}
