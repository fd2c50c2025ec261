/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised operators: scales are f32, zero points and weights 8-bit, accumulators i32. */
#include "base/align.h"
#include "kernels/infer/infer.h"

#define TYPES_8BIT (LEAT_TYPE(I8) | LEAT_TYPE(U8))

/*
 * Attributes of later opsets that are supported where they say nothing new: "saturate" is of float8 alone, and 1 as a type is f32,
 * which all scales are.
 */
static enum leat_status
check_defaults(const struct leat_node *node)
{
    static const char *const names[] = {"block_size", "output_dtype", "precision"};

    for (uint32_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        const int64_t value = leat_node_int(node, names[i], 0);
        const bool is_f32 = value == 1 && (i == 2 || (i == 1 && node->op->kind == LEAT_OP_DEQUANTIZE_LINEAR));
        if (value != 0 && !is_f32) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "%s %lld is not supported", names[i], (long long)value);
        }
    }
    return LEAT_OK;
}

/* Scale and zero point of input 0: scalars, or vectors along the axis (from opset 13 on). */
static enum leat_status
check_axis(const struct leat_graph *graph, const struct leat_node *node, uint32_t zero_types)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *scale = leat_node_input(graph, node, 1);
    const struct leat_value *zero = leat_node_input(graph, node, 2);
    int64_t channels = 1;

    if (scale->rank == 1 && scale->dims[0] != 1 && node->op->since >= 13) {
        uint32_t axis = 0;
        const enum leat_status status =
            leat_axis_resolve(node, leat_node_int(node, "axis", 1), x->rank, &axis);
        if (status != LEAT_OK) {
            return status;
        }
        channels = x->dims[axis];
    }
    enum leat_status status = check_defaults(node);
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 1, LEAT_TYPE(F32), channels);
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 2, zero_types, channels);
    }
    return status == LEAT_OK && zero != NULL && zero->rank == 1 && scale->rank == 1 &&
                   zero->dims[0] != scale->dims[0]
               ? LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "scale and zero point differ in shape")
               : status;
}

LEAT_INFER_FUNCTION(quantize_linear)
{
    (void)mixes_items;
    const struct leat_value *zero = leat_node_input(graph, node, 2);
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = zero != NULL ? zero->dtype : LEAT_DTYPE_U8;
    return check_axis(graph, node, TYPES_8BIT);
}

LEAT_INFER_FUNCTION(dequantize_linear)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    outputs[0] = leat_shape_of(x);
    outputs[0].dtype = LEAT_DTYPE_F32;
    return check_axis(graph, node, 1u << x->dtype);
}

LEAT_INFER_FUNCTION(dynamic_quantize)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank); /* one scale for all */
    outputs[0] = leat_shape_of(x);
    outputs[0].dtype = LEAT_DTYPE_U8;
    outputs[1] = (struct leat_shape){.dtype = LEAT_DTYPE_F32};
    outputs[2] = (struct leat_shape){.dtype = LEAT_DTYPE_U8};
    return LEAT_OK;
}

/* Rows of A or columns of B: the elements that a vector of zero points or scales has. */
static int64_t
rows_of(const struct leat_value *a)
{
    return a->rank > 1 ? a->dims[a->rank - 2] : 1;
}

static int64_t
columns_of(const struct leat_value *b)
{
    return b->rank > 1 ? b->dims[b->rank - 1] : 1;
}

/* a and b, and their zero points from input `zeros` on */
static enum leat_status
infer_integers(const struct leat_graph *graph, const struct leat_node *node, uint32_t zeros, struct leat_shape *outputs,
               bool *mixes_items)
{
    const struct leat_value *a = leat_node_input(graph, node, 0);
    const struct leat_value *b = leat_node_input(graph, node, 1);

    enum leat_status status = leat_check_input(graph, node, 1, TYPES_8BIT, 1, LEAT_RANK_MAX);
    if (status == LEAT_OK) {
        status = leat_infer_product(node, a, b, outputs, mixes_items);
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, zeros, 1u << a->dtype, rows_of(a));
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, zeros + 1, 1u << b->dtype, columns_of(b));
    }
    return status;
}

LEAT_INFER_FUNCTION(matmul_integer)
{
    const enum leat_status status = infer_integers(graph, node, 2, outputs, mixes_items);
    outputs[0].dtype = LEAT_DTYPE_I32;
    return status;
}

/* a and b, their scales, their zero points, and what is added to columns */
LEAT_INFER_FUNCTION(matmul_integer_to_float)
{
    const int64_t columns = columns_of(leat_node_input(graph, node, 1));

    enum leat_status status = infer_integers(graph, node, 4, outputs, mixes_items);
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 2, LEAT_TYPE(F32));
    }
    if (status == LEAT_OK) {
        status = leat_check_by_channel(graph, node, 3, LEAT_TYPE(F32), columns);
    }
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 6, LEAT_TYPE(F32), columns);
    }
    outputs[0].dtype = LEAT_DTYPE_F32;
    return status;
}

/* a, its scale and zero point, b, its scale and zero point, scale and zero point of y; what passes make may have a bias */
LEAT_INFER_FUNCTION(qlinear_matmul)
{
    const struct leat_value *a = leat_node_input(graph, node, 0);
    struct leat_value turned = *leat_node_input(graph, node, 3);
    const struct leat_value *b = &turned;

    enum leat_status status = leat_check_input(graph, node, 3, TYPES_8BIT, 1, LEAT_RANK_MAX);
    if (status == LEAT_OK && leat_node_int(node, "transB", 0) != 0) {
        status = leat_check_input(graph, node, 3, TYPES_8BIT, 2, 2);
        turned.dims[0] = leat_node_input(graph, node, 3)->dims[1];
        turned.dims[1] = leat_node_input(graph, node, 3)->dims[0];
    }
    if (status == LEAT_OK) {
        status = leat_infer_product(node, a, b, outputs, mixes_items);
    }
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 8, LEAT_TYPE(I32), columns_of(b));
    }
    for (uint32_t i = 1; i < 7 && status == LEAT_OK; i += i == 2 ? 2 : 1) {
        const int64_t channels = i < 3 ? rows_of(a) : i < 6 ? columns_of(b) : 1;
        const uint32_t types = i == 2 ? 1u << a->dtype : i == 5 ? 1u << b->dtype : LEAT_TYPE(F32);
        status = leat_check_by_channel(graph, node, i, types, channels);
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 7, TYPES_8BIT);
    }
    outputs[0].dtype = leat_node_input(graph, node, 7)->dtype;
    return status;
}

/* a, its scale and zero point, b, its scale and zero point, scale and zero point of y; a has the shape of y, b the last dims or 1 for them */
LEAT_INFER_FUNCTION(qlinear_add)
{
    (void)mixes_items;
    enum leat_status status = leat_check_input(graph, node, 3, TYPES_8BIT, 0, leat_node_input(graph, node, 0)->rank);

    for (uint32_t i = 1; i < 8 && status == LEAT_OK; i += i == 2 ? 2 : 1) {
        const uint32_t types = i == 2   ? 1u << leat_node_input(graph, node, 0)->dtype
                               : i == 5 ? 1u << leat_node_input(graph, node, 3)->dtype
                               : i == 7 ? TYPES_8BIT
                                        : LEAT_TYPE(F32);
        status = leat_check_scalar(graph, node, i, types);
    }
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = leat_node_input(graph, node, 7)->dtype;
    return status;
}

/* 8-bit numbers, and what becomes of each: 256 others, in the order of their bits. */
LEAT_INFER_FUNCTION(qlinear_lookup)
{
    (void)mixes_items;
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dtype = leat_node_input(graph, node, 1)->dtype;
    return leat_check_vector(graph, node, 1, TYPES_8BIT, UINT8_MAX + 1);
}
