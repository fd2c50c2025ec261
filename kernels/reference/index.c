/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that pick, place or repeat elements of any type. Indices are payload: checked where they are used. */
#include <string.h>

#include "kernels/reference/element.h"

/* ---- By position -------------------------------------------------------------------------------------------- */

LEAT_REFERENCE_FUNCTION(slice)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    size_t strides[LEAT_RANK_MAX];
    int64_t at[LEAT_RANK_MAX];
    struct leat_slice slice = {0};
    bool known;

    const enum leat_status status = leat_slice_of(eval->graph, eval->node, &slice, &known);
    if (status != LEAT_OK) {
        return status;
    }
    leat_strides(x, strides);
    for (size_t i = 0; i < count; i++) {
        size_t from = 0;
        leat_coordinates(output, i, at);
        for (uint32_t d = 0; d < x->rank; d++) {
            from += (size_t)(slice.start[d] + at[d] * slice.step[d]) * strides[d];
        }
        memcpy(out + i * size, in + from * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(split)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 0, x->rank);
    const size_t outer = leat_extent(x, 0, axis);
    const size_t inner = leat_extent(x, axis + 1, x->rank) * leat_dtype_bytes(x->dtype);
    const size_t in_row = (size_t)x->dims[axis] * inner;
    const unsigned char *in = leat_eval_in(eval, 0);
    int64_t sizes[LEAT_NODE_OUTPUTS_MAX] = {0};
    size_t before = 0;

    if (!leat_split_sizes(eval->graph, eval->node, sizes)) {
        return LEAT_ERR_UNSUPPORTED;
    }
    for (uint32_t o = 0; o < eval->node->output_count; o++) {
        const size_t row = (size_t)sizes[o] * inner;
        for (size_t i = 0; leat_eval_output(eval, o) != NULL && i < outer; i++) {
            unsigned char *out = leat_eval_out(eval, o);
            memcpy(out + i * row, in + i * in_row + before, row);
        }
        before += row;
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(expand)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(output->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    struct leat_walk walk;

    leat_walk_start(eval, 0, 1, &walk);
    for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {
        memcpy(out + i * size, in + walk.index[0] * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(tile)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        size_t from = 0;
        leat_coordinates(output, i, at);
        for (uint32_t d = 0; d < x->rank; d++) {
            from = from * (size_t)x->dims[d] + (size_t)(at[d] % x->dims[d]);
        }
        memcpy(out + i * size, in + from * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(depth_to_space)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const struct leat_attribute *mode = leat_node_attribute(eval->node, "mode");
    const bool depth_first = mode == NULL || strcmp(mode->s, "DCR") == 0;
    const int64_t block = leat_node_int(eval->node, "blocksize", 1), channels = output->dims[1];
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        leat_coordinates(output, i, at);
        const int64_t place = at[2] % block * block + at[3] % block;
        const int64_t channel =
            depth_first ? place * channels + at[1] : at[1] * block * block + place;
        const int64_t from =
            ((at[0] * x->dims[1] + channel) * x->dims[2] + at[2] / block) * x->dims[3] +
            at[3] / block;
        memcpy(out + i * size, in + (size_t)from * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(space_to_depth)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const int64_t block = leat_node_int(eval->node, "blocksize", 1), channels = x->dims[1];
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        leat_coordinates(output, i, at);
        const int64_t place = at[1] / channels;
        const int64_t row = at[2] * block + place / block, column = at[3] * block + place % block;
        const int64_t from =
            ((at[0] * channels + at[1] % channels) * x->dims[2] + row) * x->dims[3] + column;
        memcpy(out + i * size, in + (size_t)from * size, size);
    }
    return LEAT_OK;
}

/* The diagonal is a column of the row r: r + k. Sums of two of these cannot overflow after clamping k. */
LEAT_REFERENCE_FUNCTION(trilu)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const bool upper = leat_node_int(eval->node, "upper", 1) != 0;
    const int64_t given = leat_eval_scalar(eval, 1, 0);
    const int64_t k = given > LEAT_DIM_MAX    ? LEAT_DIM_MAX
                      : given < -LEAT_DIM_MAX ? -LEAT_DIM_MAX
                                              : given;
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(x);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        leat_coordinates(x, i, at);
        const int64_t row = at[x->rank - 2], column = at[x->rank - 1];
        if (upper ? column >= row + k : column <= row + k) {
            memcpy(out + i * size, in + i * size, size);
        } else {
            memset(out + i * size, 0, size);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(reverse_sequence)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t time = leat_node_int(eval->node, "time_axis", 0) != 0 ? 1 : 0;
    const size_t size = leat_dtype_bytes(x->dtype), inner = leat_extent(x, 2, x->rank) * size;
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);

    for (int64_t b = 0; b < x->dims[1 - time]; b++) {
        const int64_t length = leat_eval_int(eval, 1, (size_t)b);
        if (length < 0 || length > x->dims[time]) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "a sequence of %lld in %lld steps",
                                  (long long)length, (long long)x->dims[time]);
        }
        for (int64_t t = 0; t < x->dims[time]; t++) {
            const int64_t from = t < length ? length - 1 - t : t;
            const int64_t to_row = time == 0 ? t * x->dims[1] + b : b * x->dims[1] + t;
            const int64_t from_row = time == 0 ? from * x->dims[1] + b : b * x->dims[1] + from;
            memcpy(out + (size_t)to_row * inner, in + (size_t)from_row * inner, inner);
        }
    }
    return LEAT_OK;
}

/* ---- By index ----------------------------------------------------------------------------------------------- */

/* The element of x that element i of the indices names, which lies where that does but along the axis. */
static enum leat_status
find_element(const struct leat_eval *eval, const struct leat_value *x, uint32_t axis, size_t i, size_t *ret)
{
    size_t strides[LEAT_RANK_MAX], index = 0;
    int64_t at[LEAT_RANK_MAX];
    const enum leat_status status = leat_eval_index(eval, 1, i, x->dims[axis], &index);

    if (status != LEAT_OK) {
        return status;
    }
    leat_strides(x, strides);
    leat_coordinates(leat_eval_input(eval, 1), i, at);
    *ret = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        *ret += (d == axis ? index : (size_t)at[d]) * strides[d];
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(gather_elements)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 0, x->rank);
    const size_t size = leat_dtype_bytes(x->dtype), count = leat_value_elements(output);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        size_t from;
        const enum leat_status status = find_element(eval, x, axis, i, &from);
        if (status != LEAT_OK) {
            return status;
        }
        memcpy(out + i * size, in + from * size, size);
    }
    return LEAT_OK;
}

/* `count` elements from `to` on are those from `from` on, or combined with them. */
static void
place(const struct leat_eval *eval, uint32_t dtype, size_t to, size_t from, size_t count)
{
    const struct leat_attribute *reduction = leat_node_attribute(eval->node, "reduction");
    const size_t size = leat_dtype_bytes(dtype);
    unsigned char *out = leat_eval_out(eval, 0);
    const unsigned char *updates = leat_eval_in(eval, 2);

    if (reduction == NULL || strcmp(reduction->s, "none") == 0 || reduction->s[0] == '\0') {
        memcpy(out + to * size, updates + from * size, count * size);
        return;
    }
    const bool add = strcmp(reduction->s, "add") == 0, max = strcmp(reduction->s, "max") == 0;
    const bool extreme = max || strcmp(reduction->s, "min") == 0;
    for (size_t i = 0; i < count; i++) {
        const struct leat_number a = leat_number_read(dtype, out, to + i);
        const struct leat_number b = leat_number_read(dtype, updates, from + i);
        if (extreme) {
            leat_number_write(dtype, out, to + i, leat_number_beyond(&b, &a, max) ? &b : &a);
        } else if (a.is_float) {
            leat_element_set_real(dtype, out, to + i, add ? a.real + b.real : a.real * b.real);
        } else {
            leat_element_set_int(dtype, out, to + i, (int64_t)(add ? a.bits + b.bits : a.bits * b.bits));
        }
    }
}

LEAT_REFERENCE_FUNCTION(scatter_elements)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *indices = leat_eval_input(eval, 1);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, 0, x->rank);
    const size_t count = leat_value_elements(indices);

    memcpy(leat_eval_out(eval, 0), leat_eval_in(eval, 0), leat_value_bytes(x));
    for (size_t i = 0; i < count; i++) {
        size_t to;
        const enum leat_status status = find_element(eval, x, axis, i, &to);
        if (status != LEAT_OK) {
            return status;
        }
        place(eval, x->dtype, to, i, 1);
    }
    return LEAT_OK;
}

/* First element of the slice that index tuple `tuple` names in x, behind `batches` leading axes. */
static enum leat_status
slice_of_tuple(const struct leat_eval *eval, uint32_t batches, size_t tuple, size_t length,
               size_t *ret)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    size_t strides[LEAT_RANK_MAX], index = 0, offset = 0;

    leat_strides(x, strides);
    for (uint32_t k = 0; k < length; k++) {
        const enum leat_status status =
            leat_eval_index(eval, 1, tuple * length + k, x->dims[batches + k], &index);
        if (status != LEAT_OK) {
            return status;
        }
        offset += index * strides[batches + k];
    }
    *ret = offset;
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(gather_nd)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *indices = leat_eval_input(eval, 1);
    const uint32_t batches = (uint32_t)leat_node_int(eval->node, "batch_dims", 0);
    const size_t length = (size_t)indices->dims[indices->rank - 1];
    const size_t tuples = leat_extent(indices, 0, indices->rank - 1);
    const size_t outer = leat_extent(indices, 0, batches), batch = leat_extent(x, batches, x->rank);
    const size_t bytes =
        leat_extent(x, batches + (uint32_t)length, x->rank) * leat_dtype_bytes(x->dtype);
    const unsigned char *in = leat_eval_in(eval, 0);
    unsigned char *out = leat_eval_out(eval, 0);
    size_t offset = 0;

    for (size_t i = 0; i < tuples; i++) {
        const enum leat_status status = slice_of_tuple(eval, batches, i, length, &offset);
        if (status != LEAT_OK) {
            return status;
        }
        const size_t first = i / (tuples / outer) * batch + offset;
        memcpy(out + i * bytes, in + first * leat_dtype_bytes(x->dtype), bytes);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(scatter_nd)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *indices = leat_eval_input(eval, 1);
    const size_t length = (size_t)indices->dims[indices->rank - 1];
    const size_t tuples = leat_extent(indices, 0, indices->rank - 1);
    const size_t elements = leat_extent(x, (uint32_t)length, x->rank);
    size_t offset = 0;

    memcpy(leat_eval_out(eval, 0), leat_eval_in(eval, 0), leat_value_bytes(x));
    for (size_t i = 0; i < tuples; i++) {
        const enum leat_status status = slice_of_tuple(eval, 0, i, length, &offset);
        if (status != LEAT_OK) {
            return status;
        }
        place(eval, x->dtype, offset, i * elements, elements);
    }
    return LEAT_OK;
}

/* An index outside the depth has no element that is on. */
LEAT_REFERENCE_FUNCTION(one_hot)
{
    const struct leat_value *indices = leat_eval_input(eval, 0),
                            *output = leat_eval_output(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, -1, output->rank);
    const size_t size = leat_dtype_bytes(output->dtype), count = leat_value_elements(indices);
    const size_t inner = leat_extent(output, axis + 1, output->rank);
    const size_t depth = (size_t)output->dims[axis];
    const unsigned char *values = leat_eval_in(eval, 2); /* off, then on */
    unsigned char *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        const double given = leat_element_real(indices->dtype, leat_eval_in(eval, 0), i);
        const double index = given < 0 ? given + (double)depth : given;
        const size_t first = i / inner * depth * inner + i % inner;
        for (size_t k = 0; k < depth; k++) {
            const bool on = (double)k <= index && index < (double)k + 1;
            memcpy(out + (first + k * inner) * size, values + (on ? size : 0), size);
        }
    }
    return LEAT_OK;
}

/* ---- From nothing ------------------------------------------------------------------------------------------- */

LEAT_REFERENCE_FUNCTION(size)
{
    *(int64_t *)leat_eval_out(eval, 0) = (int64_t)leat_value_elements(leat_eval_input(eval, 0));
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(constant_of_shape)
{
    const struct leat_attribute *value = leat_node_attribute(eval->node, "value");
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t size = leat_dtype_bytes(output->dtype), count = leat_value_elements(output);
    unsigned char *out = leat_eval_out(eval, 0);

    for (size_t i = 0; i < count; i++) {
        if (value != NULL) {
            memcpy(out + i * size, eval->graph->values[value->value].data, size);
        } else {
            memset(out + i * size, 0, size);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(eye_like)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const int64_t k = leat_node_int(eval->node, "k", 0);
    const size_t count = leat_value_elements(output);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        leat_coordinates(output, i, at);
        const bool on = at[1] - at[0] == k;
        leat_element_set_int(output->dtype, leat_eval_out(eval, 0), i, on);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(range)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const uint32_t dtype = output->dtype;
    const size_t count = leat_value_elements(output);
    const struct leat_number start = leat_number_read(dtype, leat_eval_in(eval, 0), 0);
    const struct leat_number step = leat_number_read(dtype, leat_eval_in(eval, 2), 0);

    for (size_t i = 0; i < count; i++) {
        if (start.is_float) {
            leat_element_set_real(dtype, leat_eval_out(eval, 0), i,
                                  start.real + (double)i * step.real);
        } else {
            leat_element_set_int(dtype, leat_eval_out(eval, 0), i,
                                 (int64_t)(start.bits + i * step.bits));
        }
    }
    return LEAT_OK;
}
