/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move elements of any type: Transpose, Concat, Gather, Pad, Shape. */
#include <string.h>

#include "kernels/reference/element.h"
#include "kernels/reference/reference.h"

static size_t
product(const struct leat_value *value, uint32_t from, uint32_t to)
{
    size_t elements = 1;
    for (uint32_t d = from; d < to; d++) {
        elements *= (size_t)value->dims[d];
    }
    return elements;
}

LEAT_REFERENCE_FUNCTION(transpose)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    uint32_t perm[LEAT_RANK_MAX];

    leat_transpose_perm(eval->node, x->rank, perm);
    for (size_t i = 0; i < count; i++) {
        size_t rest = i, from = 0;
        for (uint32_t d = output->rank; d-- > 0;) {
            from += rest % (size_t)output->dims[d] * product(x, perm[d] + 1, x->rank);
            rest /= (size_t)output->dims[d];
        }
        memcpy(out + i * size, in + from * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(concat)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 0, output->rank);
    const size_t size = leat_dtype_bytes(output->dtype), outer = product(output, 0, axis);
    const size_t out_row = product(output, axis, output->rank) * size;
    unsigned char *out = leat_eval_out(eval, 0);
    size_t before = 0;

    for (uint32_t i = 0; i < eval->node->input_count; i++) {
        const size_t row = product(leat_eval_input(eval, i), axis, output->rank) * size;
        const unsigned char *in = leat_eval_in(eval, i);
        for (size_t o = 0; o < outer; o++) {
            memcpy(out + o * out_row + before, in + o * row, row);
        }
        before += row;
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(gather)
{
    const struct leat_value *data = leat_eval_input(eval, 0), *indices = leat_eval_input(eval, 1);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 0, data->rank);
    const int64_t rows = data->dims[axis];
    const size_t outer = product(data, 0, axis), count = leat_value_elements(indices);
    const size_t row = product(data, axis + 1, data->rank) * leat_dtype_bytes(data->dtype);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);

    for (size_t o = 0; o < outer; o++) {
        for (size_t i = 0; i < count; i++) {
            size_t from;
            const enum leat_status status = leat_eval_index(eval, 1, i, rows, &from);
            if (status != LEAT_OK) {
                return status;
            }
            memcpy(out + (o * count + i) * row, in + (o * (size_t)rows + from) * row, row);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(embedding_bag)
{
    const struct leat_value *table = leat_eval_input(eval, 0), *indices = leat_eval_input(eval, 1);
    const size_t width = (size_t)table->dims[1], bag = (size_t)indices->dims[1];
    const float *in = leat_eval_in(eval, 0);
    float *out = leat_eval_out(eval, 0);

    memset(out, 0, leat_value_bytes(leat_eval_output(eval, 0)));
    for (size_t i = 0; i < leat_value_elements(indices); i++) {
        size_t row;
        const enum leat_status status = leat_eval_index(eval, 1, i, table->dims[0], &row);
        if (status != LEAT_OK) {
            return status;
        }
        for (size_t c = 0; c < width; c++) {
            out[i / bag * width + c] += in[row * width + c];
        }
    }
    return LEAT_OK;
}

static void
fill_value(const struct leat_eval *eval, uint32_t dtype, unsigned char fill[8])
{
    const float value = leat_node_float(eval->node, "value", 0.0f);

    memset(fill, 0, 8);
    if (leat_eval_input(eval, 2) != NULL) {
        memcpy(fill, leat_eval_in(eval, 2), leat_dtype_bytes(dtype));
    } else {
        leat_element_set_real(dtype, fill, 0, (double)value);
    }
}

LEAT_REFERENCE_FUNCTION(pad)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    _Alignas(8) unsigned char fill[8];
    struct leat_pads pads;
    bool known = false;

    const enum leat_status status = leat_pads_of(eval->graph, eval->node, &pads, &known);
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_ASSERT(known || x->rank == 0); /* or its output would have no shape */
    fill_value(eval, x->dtype, fill);
    const struct leat_attribute *mode = leat_node_attribute(eval->node, "mode");
    const bool reflect = mode != NULL && strcmp(mode->s, "reflect") == 0;
    const bool edge = mode != NULL && strcmp(mode->s, "edge") == 0;
    const bool wrap = mode != NULL && strcmp(mode->s, "wrap") == 0;
    for (size_t i = 0; i < count; i++) {
        size_t rest = i, from = 0, stride = 1;
        bool inside = true;
        for (uint32_t d = output->rank; d-- > 0;) {
            const int64_t place = (int64_t)(rest % (size_t)output->dims[d]) - pads.begin[d];
            /* Negative pads crop first: what wraps around is what they leave. */
            const int64_t last = x->dims[d] - 1, start = pads.begin[d] < 0 ? -pads.begin[d] : 0;
            const int64_t kept = x->dims[d] - start + (pads.end[d] < 0 ? pads.end[d] : 0);
            const int64_t turn = wrap ? (place - start) % kept : 0;
            const int64_t at = reflect && place < 0      ? -place
                               : reflect && place > last ? 2 * last - place
                               : edge && place < 0       ? 0
                               : edge && place > last    ? last
                               : wrap                    ? start + turn + (turn < 0 ? kept : 0)
                                                         : place;
            rest /= (size_t)output->dims[d];
            inside = inside && at >= 0 && at < x->dims[d];
            from += inside ? (size_t)at * stride : 0;
            stride *= (size_t)x->dims[d];
        }
        memcpy(out + i * size, inside ? in + from * size : fill, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(shape)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    int64_t start, end, *out = leat_eval_out(eval, 0);

    leat_shape_range(eval->node, x->rank, &start, &end);
    for (int64_t d = start; d < end; d++) {
        *out++ = x->dims[d];
    }
    return LEAT_OK;
}
