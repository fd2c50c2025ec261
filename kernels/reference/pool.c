/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool with indices and for integers, MaxUnpool, LpPool, ConvTranspose. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"
#include "kernels/window.h"

/* Runs over the elements of one window that lie inside the input. */
struct taps {
    const struct leat_window *window;
    int64_t o[LEAT_WINDOW_RANK];
    size_t count; /* all taps, those in the padding too */
};

/* Of output element `output` of a plane. */
static void
taps_start(const struct leat_window *window, size_t output, struct taps *taps)
{
    *taps = (struct taps){.window = window, .count = 1};
    for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0;) {
        taps->o[d] = (int64_t)(output % (size_t)window->out[d]);
        output /= (size_t)window->out[d];
        taps->count *= (size_t)window->kernel[d];
    }
}

/* Place of a tap in the input plane; false in the padding. */
static bool
tap_at(const struct taps *taps, size_t tap, size_t *ret)
{
    const struct leat_window *window = taps->window;
    size_t at = 0, stride = 1;
    for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0;) {
        const int64_t k = (int64_t)(tap % (size_t)window->kernel[d]);
        const int64_t place =
            taps->o[d] * window->stride[d] - window->pad_begin[d] + k * window->dilation[d];
        tap /= (size_t)window->kernel[d];
        if (place < 0 || place >= window->in[d]) {
            return false;
        }
        at += (size_t)place * stride;
        stride *= (size_t)window->in[d];
    }
    *ret = at;
    return true;
}

/* The number of an element of a plane with the first spatial axis running fastest. */
static size_t
column_major(const struct leat_window *window, size_t at)
{
    size_t index = 0, stride = 1, place[LEAT_WINDOW_RANK];
    for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0;) {
        place[d] = at % (size_t)window->in[d];
        at /= (size_t)window->in[d];
    }
    for (uint32_t d = 0; d < LEAT_WINDOW_RANK; d++) {
        index += place[d] * stride;
        stride *= (size_t)window->in[d];
    }
    return index;
}

LEAT_REFERENCE_FUNCTION(max_pool)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t in_plane = leat_extent(x, 2, x->rank),
                 plane = leat_extent(output, 2, output->rank);
    const bool by_columns = leat_node_int(eval->node, "storage_order", 0) != 0;
    const size_t count = leat_value_elements(output);
    const void *in = leat_eval_in(eval, 0);
    int64_t *indices = leat_eval_output(eval, 1) != NULL ? leat_eval_out(eval, 1) : NULL;
    struct leat_window window;

    const enum leat_status status = leat_window_of(eval->graph, eval->node, &window);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        const size_t first = i / plane * in_plane;
        struct leat_number max = {.is_float = true, .real = (double)-INFINITY};
        size_t at = 0, best = 0;
        bool any = false;
        struct taps taps;
        taps_start(&window, i % plane, &taps);
        for (size_t tap = 0; tap < taps.count; tap++) {
            if (!tap_at(&taps, tap, &at)) {
                continue;
            }
            const struct leat_number y = leat_number_read(x->dtype, in, first + at);
            if (!any || leat_number_beyond(&y, &max, true)) {
                max = y;
                best = at;
                any = true;
            }
        }
        leat_number_write(x->dtype, leat_eval_out(eval, 0), i, &max);
        if (indices != NULL) {
            indices[i] = (int64_t)(first + (by_columns ? column_major(&window, best) : best));
        }
    }
    return status;
}

LEAT_REFERENCE_FUNCTION(lp_pool)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t in_plane = leat_extent(x, 2, x->rank),
                 plane = leat_extent(output, 2, output->rank);
    const double p = (double)leat_node_int(eval->node, "p", 2);
    const size_t count = leat_value_elements(output);
    const void *in = leat_eval_in(eval, 0);
    struct leat_window window;

    const enum leat_status status = leat_window_of(eval->graph, eval->node, &window);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        double sum = 0;
        size_t at = 0;
        struct taps taps;
        taps_start(&window, i % plane, &taps);
        for (size_t tap = 0; tap < taps.count; tap++) {
            sum += tap_at(&taps, tap, &at) ? pow(fabs(leat_element_real(x->dtype, in, i / plane * in_plane + at)), p) : 0;
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, pow(sum, 1 / p));
    }
    return status;
}

LEAT_REFERENCE_FUNCTION(global_lp_pool)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t planes = leat_extent(x, 0, 2), plane = leat_extent(x, 2, x->rank);
    const double p = (double)leat_node_int(eval->node, "p", 2);
    const void *in = leat_eval_in(eval, 0);

    for (size_t i = 0; i < planes; i++) {
        double sum = 0;
        for (size_t k = 0; k < plane; k++) {
            sum += pow(fabs(leat_element_real(x->dtype, in, i * plane + k)), p);
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, pow(sum, 1 / p));
    }
    return LEAT_OK;
}

/*
 * Indices number the elements of the whole unpooled tensor. One that leaves the plane of its own channel would write
 * into another item's: it fails the batch.
 */
LEAT_REFERENCE_FUNCTION(max_unpool)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(x);
    const size_t in_plane = leat_extent(x, 2, x->rank),
                 out_plane = leat_extent(output, 2, output->rank);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t dims[LEAT_RANK_MAX], plane = 1;

    const enum leat_status status = leat_unpool_shape(eval->graph, eval->node, dims);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t d = 2; d < x->rank; d++) {
        plane *=
            dims[d]; /* at most three factors, and of a product that was checked or is not used */
    }
    memset(out, 0, leat_value_bytes(output));
    for (size_t i = 0; i < count; i++) {
        const int64_t given = leat_eval_int(eval, 1, i);
        const int64_t first = (int64_t)(i / in_plane) * plane;
        if (given < first || given >= first + plane) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "index %lld is outside its plane",
                                  (long long)given);
        }
        size_t to = 0, stride = 1;
        int64_t rest = given - first;
        bool inside = true;
        for (uint32_t d = x->rank; d-- > 2;) {
            inside = inside && rest % dims[d] < output->dims[d];
            to += (size_t)(rest % dims[d]) * stride;
            stride *= (size_t)output->dims[d];
            rest /= dims[d];
        }
        if (!inside) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "index %lld is outside the output",
                                  (long long)given);
        }
        memcpy(out + (i / in_plane * out_plane + to) * size, in + i * size, size);
    }
    return LEAT_OK;
}

/* Input place along axis d that reaches output o with kernel k; false when there is none. */
static bool
reaches(const struct leat_window *window, uint32_t d, int64_t o, int64_t k, int64_t *ret)
{
    const int64_t offset = o + window->pad_begin[d] - k * window->dilation[d];
    *ret = offset / window->stride[d];
    return offset >= 0 && offset % window->stride[d] == 0 && *ret < window->in[d];
}

LEAT_REFERENCE_FUNCTION(conv_transpose)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *w = leat_eval_input(eval, 1);
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t in_plane = leat_extent(x, 2, x->rank),
                 plane = leat_extent(output, 2, output->rank);
    const size_t taps = leat_extent(w, 2, w->rank), count = leat_value_elements(output);
    const size_t channels = (size_t)x->dims[1], outputs = (size_t)output->dims[1];
    const size_t group_outputs = (size_t)w->dims[1];
    const size_t group_channels = channels / (size_t)leat_node_int(eval->node, "group", 1);
    const void *in = leat_eval_in(eval, 0), *weights = leat_eval_in(eval, 1);
    const void *bias = leat_eval_input(eval, 2) != NULL ? leat_eval_in(eval, 2) : NULL;
    struct leat_window window;

    const enum leat_status status = leat_transposed_window_of(eval->graph, eval->node, &window);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        const size_t m = i / plane % outputs, n = i / plane / outputs;
        const size_t first = m / group_outputs * group_channels;
        double sum = bias != NULL ? leat_element_real(x->dtype, bias, m) : 0;
        for (size_t tap = 0; tap < taps; tap++) {
            size_t rest = i % plane, tap_rest = tap, at = 0, stride = 1;
            bool inside = true;
            for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0 && inside;) {
                int64_t place = 0;
                inside = reaches(&window, d, (int64_t)(rest % (size_t)window.out[d]),
                                 (int64_t)(tap_rest % (size_t)window.kernel[d]), &place);
                at += (size_t)place * stride;
                stride *= (size_t)window.in[d];
                rest /= (size_t)window.out[d];
                tap_rest /= (size_t)window.kernel[d];
            }
            for (size_t c = first; inside && c < first + group_channels; c++) {
                sum += leat_element_real(x->dtype, in, (n * channels + c) * in_plane + at) *
                       leat_element_real(x->dtype, weights, (c * group_outputs + m % group_outputs) * taps + tap);
            }
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, sum);
    }
    return status;
}
