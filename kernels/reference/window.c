/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution and pooling: seven plain loops each. */
#include "kernels/window.h"

#include <math.h>

#include "kernels/reference/element.h"

static size_t
volume(const int64_t dims[LEAT_WINDOW_RANK])
{
    return (size_t)(dims[0] * dims[1] *
                    dims[2]); /* of a value whose bytes are limited: no overflow */
}

/* Offset of input element (d, h, w) of output o and kernel k in one channel; false in the padding. */
static bool
position(const struct leat_window *window, const int64_t o[3], const int64_t k[3], size_t *ret)
{
    size_t offset = 0;
    for (uint32_t d = 0; d < LEAT_WINDOW_RANK; d++) {
        const int64_t at =
            o[d] * window->stride[d] - window->pad_begin[d] + k[d] * window->dilation[d];
        if (at < 0 || at >= window->in[d]) {
            return false;
        }
        offset = offset * (size_t)window->in[d] + (size_t)at;
    }
    *ret = offset;
    return true;
}

/* The part of one output element that comes from the inputs: x is the first of the channels, w the first weight. */
static inline __attribute__((always_inline)) double
convolve_as(uint32_t dtype, const struct leat_window *window, const int64_t o[3], size_t channels, const void *x, size_t first,
            const void *weights, size_t w)
{
    const size_t in_plane = volume(window->in), taps = volume(window->kernel);
    double sum = 0;
    int64_t k[3];
    size_t at;

    for (k[0] = 0; k[0] < window->kernel[0]; k[0]++) {
        for (k[1] = 0; k[1] < window->kernel[1]; k[1]++) {
            for (k[2] = 0; k[2] < window->kernel[2]; k[2]++, w++) {
                if (!position(window, o, k, &at)) {
                    continue;
                }
                for (size_t c = 0; c < channels; c++) {
                    sum += leat_element_real(dtype, x, first + c * in_plane + at) * leat_element_real(dtype, weights, w + c * taps);
                }
            }
        }
    }
    return sum;
}

static double
convolve_channels(uint32_t dtype, const struct leat_window *window, const int64_t o[3], size_t channels, const void *x,
                  size_t first, const void *weights, size_t w)
{
    return dtype == LEAT_DTYPE_F32 ? convolve_as(LEAT_DTYPE_F32, window, o, channels, x, first, weights, w)
                                   : convolve_as(LEAT_DTYPE_F64, window, o, channels, x, first, weights, w);
}

LEAT_REFERENCE_FUNCTION(conv)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *w = leat_eval_input(eval, 1);
    const void *bias = leat_eval_input(eval, 2) != NULL ? leat_eval_in(eval, 2) : NULL;
    const void *weights = leat_eval_in(eval, 1), *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    struct leat_window window;
    size_t y = 0;
    int64_t o[3];

    const enum leat_status status = leat_window_of(eval->graph, eval->node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t images = (size_t)x->dims[0], outputs = (size_t)w->dims[0];
    const size_t group_inputs = (size_t)w->dims[1];
    const size_t group_outputs = outputs / (size_t)leat_node_int(eval->node, "group", 1);
    const size_t in_plane = volume(window.in);
    const size_t taps = volume(window.kernel);
    for (size_t plane = 0; plane < images * outputs; plane++) {
        const size_t n = plane / outputs, m = plane % outputs;
        const size_t first = n * (size_t)x->dims[1] + m / group_outputs * group_inputs;
        const double shift = bias != NULL ? leat_element_real(x->dtype, bias, m) : 0;
        for (o[0] = 0; o[0] < window.out[0]; o[0]++) {
            for (o[1] = 0; o[1] < window.out[1]; o[1]++) {
                for (o[2] = 0; o[2] < window.out[2]; o[2]++) {
                    const double sum = convolve_channels(x->dtype, &window, o, group_inputs, in, first * in_plane, weights,
                                                         m * group_inputs * taps);
                    leat_element_set_real(x->dtype, out, y++, shift + sum);
                }
            }
        }
    }
    return LEAT_OK;
}

/* Elements of window `o` that lie inside the padded input, which is what count_include_pad divides by. */
static int64_t
padded_count(const struct leat_window *window, const int64_t o[3])
{
    int64_t count = 1;
    for (uint32_t d = 0; d < LEAT_WINDOW_RANK; d++) {
        const int64_t start = o[d] * window->stride[d] - window->pad_begin[d];
        const int64_t dilation = window->dilation[d], limit = window->in[d] + window->pad_end[d];
        const int64_t room = (limit - start + dilation - 1) / dilation;
        count *= room < window->kernel[d] ? room : window->kernel[d];
    }
    return count;
}

static double
mean_of(uint32_t dtype, const struct leat_window *window, const int64_t o[3], const void *x, size_t first, bool include_pad)
{
    double sum = 0;
    int64_t inside = 0, k[3];
    size_t at;

    for (k[0] = 0; k[0] < window->kernel[0]; k[0]++) {
        for (k[1] = 0; k[1] < window->kernel[1]; k[1]++) {
            for (k[2] = 0; k[2] < window->kernel[2]; k[2]++) {
                if (position(window, o, k, &at)) {
                    sum += leat_element_real(dtype, x, first + at);
                    inside++;
                }
            }
        }
    }
    const int64_t count = include_pad ? padded_count(window, o) : inside;
    return count > 0 ? sum / (double)count : 0;
}

LEAT_REFERENCE_FUNCTION(average_pool)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const bool include_pad = leat_node_int(eval->node, "count_include_pad", 0) != 0;
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    struct leat_window window;
    size_t y = 0;
    int64_t o[3];

    const enum leat_status status = leat_window_of(eval->graph, eval->node, &window);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t planes = (size_t)x->dims[0] * (size_t)x->dims[1], in_plane = volume(window.in);
    for (size_t p = 0; p < planes; p++) {
        for (o[0] = 0; o[0] < window.out[0]; o[0]++) {
            for (o[1] = 0; o[1] < window.out[1]; o[1]++) {
                for (o[2] = 0; o[2] < window.out[2]; o[2]++) {
                    leat_element_set_real(x->dtype, out, y++, mean_of(x->dtype, &window, o, in, p * in_plane, include_pad));
                }
            }
        }
    }
    return LEAT_OK;
}

static size_t
plane_elements(const struct leat_value *x)
{
    size_t plane = 1;
    for (uint32_t d = 2; d < x->rank; d++) {
        plane *= (size_t)x->dims[d];
    }
    return plane;
}

LEAT_REFERENCE_FUNCTION(global_average_pool)
{
    const uint32_t dtype = leat_eval_input(eval, 0)->dtype;
    const void *in = leat_eval_in(eval, 0);
    const size_t planes = leat_value_elements(leat_eval_output(eval, 0));
    const size_t plane = plane_elements(leat_eval_input(eval, 0));

    for (size_t p = 0; p < planes; p++) {
        double sum = 0;
        for (size_t i = 0; i < plane; i++) {
            sum += leat_element_real(dtype, in, p * plane + i);
        }
        leat_element_set_real(dtype, leat_eval_out(eval, 0), p, sum / (double)plane);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(global_max_pool)
{
    const uint32_t dtype = leat_eval_input(eval, 0)->dtype;
    const void *in = leat_eval_in(eval, 0);
    const size_t planes = leat_value_elements(leat_eval_output(eval, 0));
    const size_t plane = plane_elements(leat_eval_input(eval, 0));

    for (size_t p = 0; p < planes; p++) {
        double max = -INFINITY;
        for (size_t i = 0; i < plane; i++) {
            const double x = leat_element_real(dtype, in, p * plane + i);
            max = x > max || isnan(x) ? x : max;
        }
        leat_element_set_real(dtype, leat_eval_out(eval, 0), p, max);
    }
    return LEAT_OK;
}
