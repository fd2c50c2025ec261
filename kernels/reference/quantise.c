/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised operators. A number q of a quantised tensor stands for (q - zero point) * scale; sums are exact in 64
 * bits and wrap into i32; quotients are rounded to the nearest integer, halves to the even one, and saturate.
 */
#include <math.h>

#include "kernels/reference/element.h"
#include "kernels/window.h"

/* Element `channel` of a vector, or the only element there is; 0 when the input is omitted. */
static int64_t
zero_point(const struct leat_eval *eval, uint32_t input, size_t channel)
{
    const struct leat_value *value = leat_eval_input(eval, input);
    if (value == NULL) {
        return 0;
    }
    return leat_element_int(value->dtype, leat_eval_in(eval, input),
                            leat_value_elements(value) > 1 ? channel : 0);
}

static double
scale(const struct leat_eval *eval, uint32_t input, size_t channel)
{
    const struct leat_value *value = leat_eval_input(eval, input);
    const float *in = leat_eval_in(eval, input);
    return (double)in[leat_value_elements(value) > 1 ? channel : 0];
}

/* round(x) + zero, saturated; a NaN becomes the zero point. */
static void
store_quantised(uint32_t dtype, void *out, size_t i, double x, int64_t zero)
{
    const double low = dtype == LEAT_DTYPE_I8 ? INT8_MIN : 0;
    const double high = dtype == LEAT_DTYPE_I8 ? INT8_MAX : UINT8_MAX;
    const double y = isnan(x) ? (double)zero : nearbyint(x) + (double)zero;
    leat_element_set_real(dtype, out, i, y < low ? low : y > high ? high : y);
}

/* Elements behind the axis that scales vary along: neighbours of one channel. */
static size_t
inner_of(const struct leat_eval *eval)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    if (leat_value_elements(leat_eval_input(eval, 1)) <= 1) {
        return leat_value_elements(x);
    }
    return leat_extent(x, (uint32_t)leat_node_axis(eval->node, 1, x->rank) + 1, x->rank);
}

LEAT_REFERENCE_FUNCTION(quantize_linear)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t count = leat_value_elements(x), inner = inner_of(eval);
    const size_t channels = leat_value_elements(leat_eval_input(eval, 1));

    for (size_t first = 0; first < count; first += inner) {
        const size_t channel = first / inner % channels;
        const float step = (float)scale(eval, 1, channel);
        const int64_t zero = zero_point(eval, 2, channel);
        for (size_t i = first; i < first + inner; i++) {
            const float value = (float)leat_element_real(x->dtype, leat_eval_in(eval, 0), i);
            store_quantised(leat_eval_output(eval, 0)->dtype, leat_eval_out(eval, 0), i, (double)(value / step), zero);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(dequantize_linear)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const size_t count = leat_value_elements(x), inner = inner_of(eval);
    const size_t channels = leat_value_elements(leat_eval_input(eval, 1));
    float *out = leat_eval_out(eval, 0);

    for (size_t first = 0; first < count; first += inner) {
        const size_t channel = first / inner % channels;
        const double step = scale(eval, 1, channel);
        const int64_t zero = zero_point(eval, 2, channel);
        for (size_t i = first; i < first + inner; i++) {
            const int64_t q = leat_element_int(x->dtype, leat_eval_in(eval, 0), i);
            out[i] = (float)((double)(q - zero) * step);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(dynamic_quantize)
{
    const size_t count = leat_value_elements(leat_eval_input(eval, 0));
    const float *in = leat_eval_in(eval, 0);
    float low = 0, high = 0;

    for (size_t i = 0; i < count; i++) {
        low = in[i] < low ? in[i] : low;
        high = in[i] > high ? in[i] : high;
    }
    const float step = (high - low) / 255;
    uint8_t zero = 0;
    store_quantised(LEAT_DTYPE_U8, &zero, 0, (double)(-low / step), 0);
    for (size_t i = 0; i < count; i++) {
        store_quantised(LEAT_DTYPE_U8, leat_eval_out(eval, 0), i, (double)(in[i] / step), zero);
    }
    if (leat_eval_output(eval, 1) != NULL) {
        *(float *)leat_eval_out(eval, 1) = step;
    }
    if (leat_eval_output(eval, 2) != NULL) {
        *(uint8_t *)leat_eval_out(eval, 2) = zero;
    }
    return LEAT_OK;
}

/* ---- Products --------------------------------------------------------------------------------------------- */

/* Where a product finds its operands and what becomes of a sum. */
struct product {
    uint32_t a, a_zero, b, b_zero; /* inputs */
    void (*store)(const struct leat_eval *eval, size_t i, size_t row, size_t column, int64_t sum);
};

static void
store_i32(const struct leat_eval *eval, size_t i, size_t row, size_t column, int64_t sum)
{
    (void)row;
    (void)column;
    leat_element_set_int(LEAT_DTYPE_I32, leat_eval_out(eval, 0), i, sum);
}

static void
multiply(const struct leat_eval *eval, const struct product *p)
{
    const struct leat_value *a = leat_eval_input(eval, p->a), *b = leat_eval_input(eval, p->b);
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t rows = a->rank > 1 ? (size_t)a->dims[a->rank - 2] : 1;
    const size_t inner = (size_t)a->dims[a->rank - 1];
    const bool turned = leat_node_int(eval->node, "transB", 0) != 0;
    const size_t columns = b->rank > 1 ? (size_t)b->dims[b->rank - (turned ? 2 : 1)] : 1;
    const size_t down = turned ? 1 : columns, across = turned ? inner : 1; /* neighbours in b */
    const uint32_t batches = output->rank - (a->rank > 1) - (b->rank > 1);
    const size_t count = leat_value_elements(output);

    for (size_t i = 0; i < count; i++) {
        const size_t column = i % columns, row = i / columns % rows, batch = i / columns / rows;
        const size_t first_a = leat_matrix_offset(a, output, batches, batch, rows * inner);
        const size_t first_b = leat_matrix_offset(b, output, batches, batch, inner * columns);
        const int64_t zero_a = zero_point(eval, p->a_zero, row);
        const int64_t zero_b = zero_point(eval, p->b_zero, column);
        int64_t sum = 0;
        for (size_t k = 0; k < inner; k++) {
            const int64_t q_a =
                leat_element_int(a->dtype, leat_eval_in(eval, p->a), first_a + row * inner + k);
            const int64_t q_b = leat_element_int(b->dtype, leat_eval_in(eval, p->b),
                                                 first_b + k * down + column * across);
            sum += (q_a - zero_a) * (q_b - zero_b);
        }
        p->store(eval, i, row, column, sum);
    }
}

LEAT_REFERENCE_FUNCTION(matmul_integer)
{
    multiply(eval, &(struct product){0, 2, 1, 3, store_i32});
    return LEAT_OK;
}

/* As Cast, Mul by the product of both scales, and Add make it, which all round. */
static void
store_f32(const struct leat_eval *eval, size_t i, size_t row, size_t column, int64_t sum)
{
    const float by = (float)scale(eval, 2, 0) * (float)scale(eval, 3, column);
    const float y = (float)(int32_t)(uint32_t)(uint64_t)sum * by;

    (void)row;
    ((float *)leat_eval_out(eval, 0))[i] = leat_eval_input(eval, 6) != NULL ? y + ((const float *)leat_eval_in(eval, 6))[column] : y;
}

LEAT_REFERENCE_FUNCTION(matmul_integer_to_float)
{
    multiply(eval, &(struct product){0, 4, 1, 5, store_f32});
    return LEAT_OK;
}

static void
store_product(const struct leat_eval *eval, size_t i, size_t row, size_t column, int64_t sum)
{
    const double factor = scale(eval, 1, row) * scale(eval, 4, column) / scale(eval, 6, 0);
    store_quantised(leat_eval_output(eval, 0)->dtype, leat_eval_out(eval, 0), i,
                    (double)sum * factor, zero_point(eval, 7, 0));
}

/* The same of a sum and the bias that there may be. */
static void
store_biased(const struct leat_eval *eval, size_t i, size_t row, size_t column, int64_t sum)
{
    const int64_t bias = leat_eval_input(eval, 8) != NULL
                             ? leat_element_int(LEAT_DTYPE_I32, leat_eval_in(eval, 8), column)
                             : 0;
    store_product(eval, i, row, column, sum + bias);
}

LEAT_REFERENCE_FUNCTION(qlinear_matmul)
{
    multiply(eval, &(struct product){0, 2, 3, 5, store_biased});
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(qlinear_lookup)
{
    const uint8_t *in = leat_eval_in(eval, 0), *table = leat_eval_in(eval, 1);
    const size_t count = leat_value_elements(leat_eval_input(eval, 0));
    uint8_t *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        out[i] = table[in[i]];
    }
    return LEAT_OK;
}

/* What DequantizeLinear, Add or Mul, and QuantizeLinear make; b is repeated, or, where it has as many dims, each of it goes for several. */
LEAT_REFERENCE_FUNCTION(qlinear_add)
{
    const bool sum = eval->node->op->kind == LEAT_OP_QLINEAR_ADD;
    const struct leat_value *a = leat_eval_input(eval, 0), *b = leat_eval_input(eval, 3);
    const size_t count = leat_value_elements(a), period = leat_value_elements(b);
    const bool spread = b->rank == a->rank;
    const float step = (float)scale(eval, 6, 0);

    for (size_t i = 0; i < count; i++) {
        const size_t place = spread ? i / (count / period) : i % period;
        const int64_t q_a = leat_element_int(a->dtype, leat_eval_in(eval, 0), i);
        const int64_t q_b = leat_element_int(b->dtype, leat_eval_in(eval, 3), place);
        const float x = (float)((double)(q_a - zero_point(eval, 2, 0)) * scale(eval, 1, 0));
        const float y = (float)((double)(q_b - zero_point(eval, 5, 0)) * scale(eval, 4, 0));
        store_quantised(leat_eval_output(eval, 0)->dtype, leat_eval_out(eval, 0), i, (double)((sum ? x + y : x * y) / step),
                        zero_point(eval, 7, 0));
    }
    return LEAT_OK;
}

/* ---- Convolutions ------------------------------------------------------------------------------------------- */

/* Sum of one output element: image n, output channel m, place o. Padding adds nothing. */
static int64_t
convolve(const struct leat_eval *eval, const struct product *p, const struct leat_window *window,
         size_t n, size_t m, const int64_t o[LEAT_WINDOW_RANK])
{
    const struct leat_value *x = leat_eval_input(eval, p->a), *w = leat_eval_input(eval, p->b);
    const size_t outputs = (size_t)w->dims[0], channels = (size_t)w->dims[1];
    const size_t group_outputs = outputs / (size_t)leat_node_int(eval->node, "group", 1);
    const size_t plane = leat_extent(x, 2, x->rank), taps = leat_extent(w, 2, w->rank);
    const int64_t zero_x = zero_point(eval, p->a_zero, 0), zero_w = zero_point(eval, p->b_zero, m);
    int64_t sum = 0;

    for (size_t c = 0; c < channels; c++) {
        const size_t first = (n * (size_t)x->dims[1] + m / group_outputs * channels + c) * plane;
        for (size_t tap = 0; tap < taps; tap++) {
            size_t rest = tap, at = 0, stride = 1;
            bool inside = true;
            for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0;) {
                const int64_t k = (int64_t)(rest % (size_t)window->kernel[d]);
                const int64_t place =
                    o[d] * window->stride[d] - window->pad_begin[d] + k * window->dilation[d];
                rest /= (size_t)window->kernel[d];
                inside = inside && place >= 0 && place < window->in[d];
                at += inside ? (size_t)place * stride : 0;
                stride *= (size_t)window->in[d];
            }
            if (inside) {
                const int64_t q_w = leat_element_int(w->dtype, leat_eval_in(eval, p->b),
                                                     (m * channels + c) * taps + tap);
                sum += (leat_element_int(x->dtype, leat_eval_in(eval, p->a), first + at) - zero_x) *
                       (q_w - zero_w);
            }
        }
    }
    return sum;
}

static enum leat_status
convolve_all(const struct leat_eval *eval, const struct product *p)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output), plane = leat_extent(output, 2, output->rank);
    struct leat_window window;

    const enum leat_status status = leat_window_of(eval->graph, eval->node, &window);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        const size_t m = i / plane % (size_t)output->dims[1],
                     n = i / plane / (size_t)output->dims[1];
        int64_t o[LEAT_WINDOW_RANK];
        size_t rest = i % plane;
        for (uint32_t d = LEAT_WINDOW_RANK; d-- > 0;) {
            o[d] = (int64_t)(rest % (size_t)window.out[d]);
            rest /= (size_t)window.out[d];
        }
        p->store(eval, i, 0, m, convolve(eval, p, &window, n, m, o));
    }
    return status;
}

LEAT_REFERENCE_FUNCTION(conv_integer)
{
    return convolve_all(eval, &(struct product){0, 2, 1, 3, store_i32});
}

LEAT_REFERENCE_FUNCTION(qlinear_conv)
{
    return convolve_all(eval, &(struct product){0, 2, 3, 5, store_biased});
}
