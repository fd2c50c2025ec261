/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra: window functions, DFT, STFT and the mel weights. */
#include "kernels/infer/infer.h"

/* A constant scalar of type i32 or i64 in [min, LEAT_DIM_MAX]; *ret_known is false when it is computed. */
static enum leat_status
read_count(const struct leat_graph *graph, const struct leat_node *node, uint32_t i, int64_t min,
           int64_t *ret, bool *ret_known)
{
    uint32_t count;
    const enum leat_status status = leat_check_scalar(graph, node, i, LEAT_TYPE_INDEX);
    if (status != LEAT_OK) {
        return status;
    }
    *ret_known = leat_read_ints(leat_node_input(graph, node, i), 1, ret, &count);
    if (*ret_known && (*ret < min || *ret > LEAT_DIM_MAX)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u is %lld", i, (long long)*ret);
    }
    return LEAT_OK;
}

static enum leat_status
output_type(const struct leat_node *node, uint32_t *ret)
{
    *ret = leat_dtype_from_onnx(leat_node_int(node, "output_datatype", 1));
    return *ret != LEAT_DTYPE_NONE
               ? LEAT_OK
               : LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "ONNX type %lld is not supported",
                                (long long)leat_node_int(node, "output_datatype", 1));
}

LEAT_INFER_FUNCTION(window_function)
{
    (void)mixes_items;
    int64_t size = 0;
    uint32_t dtype = 0;
    bool known = false;

    enum leat_status status = output_type(node, &dtype);
    if (status == LEAT_OK) {
        status = read_count(graph, node, 0, 0, &size, &known);
    }
    outputs[0] =
        (struct leat_shape){.dtype = dtype, .rank = 1, .dims = {known ? size : LEAT_DIM_UNKNOWN}};
    return status;
}

LEAT_INFER_FUNCTION(mel_weights)
{
    (void)mixes_items;
    int64_t bins = 0, length = 0;
    uint32_t dtype = 0;
    bool bins_known = false, length_known = false;

    enum leat_status status = output_type(node, &dtype);
    if (status == LEAT_OK) {
        status = read_count(graph, node, 0, 0, &bins, &bins_known);
    }
    if (status == LEAT_OK) {
        status = read_count(graph, node, 1, 1, &length, &length_known);
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 2, LEAT_TYPE_INDEX);
    }
    for (uint32_t i = 3; i < 5 && status == LEAT_OK; i++) {
        status = leat_check_scalar(graph, node, i, LEAT_TYPE(F32) | LEAT_TYPE(F64));
    }
    outputs[0] = (struct leat_shape){.dtype = dtype,
                                     .rank = 2,
                                     .dims = {length_known ? length / 2 + 1 : LEAT_DIM_UNKNOWN,
                                              bins_known ? bins : LEAT_DIM_UNKNOWN}};
    return status;
}

/* The last axis of a signal: one number, or the real and the imaginary part. */
static enum leat_status
check_parts(const struct leat_node *node, const struct leat_value *x, bool onesided)
{
    const int64_t parts = x->dims[x->rank - 1];
    return parts == 1 || (parts == 2 && !onesided) || parts < 0
               ? LEAT_OK
               : LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "a signal with %lld parts%s",
                                (long long)parts,
                                onesided ? ", of which one side is asked for" : "");
}

/* False: it is computed, and may be any. */
static enum leat_status
read_axis(const struct leat_graph *graph, const struct leat_node *node, uint32_t rank, uint32_t *ret, bool *ret_known)
{
    const bool is_input = node->op->since >= 20;
    int64_t axis = is_input ? -2 : leat_node_int(node, "axis", 1);
    uint32_t count;

    *ret_known = true;
    if (is_input && leat_node_input(graph, node, 2) != NULL) {
        const enum leat_status status = leat_check_scalar(graph, node, 2, LEAT_TYPE_INDEX);
        if (status != LEAT_OK) {
            return status;
        }
        *ret_known = leat_read_ints(leat_node_input(graph, node, 2), 1, &axis, &count);
    }
    const enum leat_status status = *ret_known ? leat_axis_resolve(node, axis, rank, ret) : LEAT_OK;
    return status == LEAT_OK && *ret_known && *ret == rank - 1
               ? LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u is that of the parts", *ret)
               : status;
}

LEAT_INFER_FUNCTION(dft)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool onesided = leat_node_int(node, "onesided", 0) != 0;
    const bool inverse = leat_node_int(node, "inverse", 0) != 0;
    uint32_t axis = 0;
    bool known = true, axis_known = true;

    if (x->rank < 2 || (onesided && inverse)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u, or one side of an inverse", x->rank);
    }
    enum leat_status status = read_axis(graph, node, x->rank, &axis, &axis_known);
    if (status == LEAT_OK) {
        status = check_parts(node, x, onesided);
    }
    int64_t length = x->dims[axis];
    if (status == LEAT_OK && leat_node_input(graph, node, 1) != NULL) {
        status = read_count(graph, node, 1, 1, &length, &known);
    }
    if (status == LEAT_OK && axis_known && known && length == 0 && !x->bounded) {
        status = LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "a transform of no numbers");
    }
    if (status != LEAT_OK) {
        return status;
    }
    *mixes_items = *mixes_items || (axis_known ? x->dims[axis] == LEAT_DIM_BATCH : leat_has_batch(x, 0, x->rank));
    outputs[0] = leat_shape_of(x);
    for (uint32_t d = 0; d + 1 < x->rank && !axis_known; d++) {
        outputs[0].dims[d] = LEAT_DIM_UNKNOWN;
    }
    if (axis_known) {
        outputs[0].dims[axis] = !known || length < 0 ? LEAT_DIM_UNKNOWN
                                : onesided           ? length / 2 + (length > 0)
                                                     : length;
    }
    outputs[0].dims[x->rank - 1] = 2;
    return LEAT_OK;
}

/* signal, frame_step, window, frame_length */
LEAT_INFER_FUNCTION(stft)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *window = leat_node_input(graph, node, 2);
    const bool onesided = leat_node_int(node, "onesided", 1) != 0;
    int64_t step = 0, length = 0;
    bool step_known = false, length_known = false;

    if (x->rank != 3 || (window == NULL && leat_node_input(graph, node, 3) == NULL)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u, or neither window nor frame_length",
                              x->rank);
    }
    enum leat_status status = check_parts(node, x, onesided);
    if (status == LEAT_OK) {
        status = read_count(graph, node, 1, 1, &step, &step_known);
    }
    if (status == LEAT_OK && leat_node_input(graph, node, 3) != NULL) {
        status = read_count(graph, node, 3, 1, &length, &length_known);
    } else if (window != NULL && window->rank == 1) {
        length = window->dims[0];
        length_known = length > 0;
    }
    if (status == LEAT_OK && window != NULL) {
        status = leat_check_vector(graph, node, 2, 1u << x->dtype, length_known ? length : -1);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t signal = x->dims[1];
    if (length_known && signal >= 0 && length > signal) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "frames of %lld in a signal of %lld",
                              (long long)length, (long long)signal);
    }
    *mixes_items = *mixes_items || signal == LEAT_DIM_BATCH;
    outputs[0] = (struct leat_shape){.dtype = x->dtype, .rank = 4};
    outputs[0].dims[0] = x->dims[0];
    outputs[0].dims[1] =
        step_known && length_known && signal >= 0 ? (signal - length) / step + 1 : LEAT_DIM_UNKNOWN;
    outputs[0].dims[2] = !length_known ? LEAT_DIM_UNKNOWN : onesided ? length / 2 + 1 : length;
    outputs[0].dims[3] = 2;
    return LEAT_OK;
}
