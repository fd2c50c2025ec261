/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/infer/infer.h"

#include <string.h>

struct leat_shape
leat_shape_of(const struct leat_value *value)
{
    struct leat_shape shape = {.dtype = value->dtype, .rank = value->rank};
    memcpy(shape.dims, value->dims, sizeof(shape.dims));
    return shape;
}

bool
leat_dim_broadcast(int64_t a, int64_t b, int64_t *ret, bool *mixes_items)
{
    if (a == b || b == 1) {
        *ret = a;
    } else if (a == 1) {
        *ret = b;
    } else if (a >= 0 && b >= 0) {
        return false;
    } else if (a == LEAT_DIM_BATCH || b == LEAT_DIM_BATCH) {
        /* The batch against a number fits for one batch size only; against an unknown, who knows. */
        *mixes_items = *mixes_items || a >= 0 || b >= 0;
        *ret = LEAT_DIM_UNKNOWN;
    } else {
        /* An unknown dim is 1 or the other one. */
        *ret = a >= 0 ? a : b >= 0 ? b : LEAT_DIM_UNKNOWN;
    }
    return true;
}

int64_t
leat_dims_product(const int64_t *dims, uint32_t from, uint32_t to)
{
    int64_t product = 1;
    for (uint32_t d = from; d < to; d++) {
        if (dims[d] >= 0 && product >= 0) {
            if (__builtin_mul_overflow(product, dims[d], &product)) {
                return INT64_MAX; /* larger than LEAT_DIM_MAX: refused where it is stored */
            }
        } else if (dims[d] == 1) {
            continue;
        } else {
            product = product == 1 ? dims[d] : LEAT_DIM_UNKNOWN;
        }
    }
    return product;
}

bool
leat_value_ints(const struct leat_value *value, const int64_t **ret, uint32_t *ret_count)
{
    if (value == NULL || value->data == NULL || value->dtype != LEAT_DTYPE_I64 || value->rank > 1 ||
        value->data_bytes / sizeof(int64_t) > UINT32_MAX) {
        return false;
    }
    *ret = value->data;
    *ret_count = (uint32_t)(value->data_bytes / sizeof(int64_t));
    return true;
}

enum leat_status
leat_axis_resolve(const struct leat_node *node, int64_t axis, uint32_t rank, uint32_t *ret)
{
    if (axis < -(int64_t)rank || axis >= (int64_t)rank) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %lld is outside a tensor of rank %u",
                              (long long)axis, rank);
    }
    *ret = (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
    return LEAT_OK;
}

enum leat_status
leat_check_input(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
                 uint32_t types, uint32_t rank_min, uint32_t rank_max)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    if (value == NULL) {
        return LEAT_OK;
    }
    if ((types >> value->dtype & 1u) == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "input %u '%.64s' is of type %s", i,
                              value->name, leat_dtype_text(value->dtype));
    }
    if (value->rank < rank_min || value->rank > rank_max) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "input %u '%.64s' has rank %u; %u to %u are possible", i, value->name,
                              value->rank, rank_min, rank_max);
    }
    return LEAT_OK;
}

enum leat_status
leat_check_vector(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
                  uint32_t types, int64_t size)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    const enum leat_status status = leat_check_input(graph, node, i, types, 1, 1);
    if (status == LEAT_OK && value != NULL && size >= 0 && value->dims[0] >= 0 &&
        value->dims[0] != size) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u '%.64s' has %lld elements, not %lld",
                              i, value->name, (long long)value->dims[0], (long long)size);
    }
    return status;
}

enum leat_status
leat_check_scalar(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
                  uint32_t types)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    const enum leat_status status = leat_check_input(graph, node, i, types, 0, 1);
    if (status == LEAT_OK && value != NULL && value->rank == 1 && value->dims[0] != 1) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u '%.64s' is not a scalar", i,
                              value->name);
    }
    return status;
}

bool
leat_read_ints(const struct leat_value *value, uint32_t max, int64_t *ret, uint32_t *ret_count)
{
    if (value == NULL || value->data == NULL || value->rank > 1 ||
        (value->dtype != LEAT_DTYPE_I64 && value->dtype != LEAT_DTYPE_I32) ||
        leat_value_elements(value) > max) {
        return false;
    }
    *ret_count = (uint32_t)leat_value_elements(value);
    for (uint32_t i = 0; i < *ret_count; i++) {
        ret[i] = value->dtype == LEAT_DTYPE_I64 ? ((const int64_t *)value->data)[i]
                                                : ((const int32_t *)value->data)[i];
    }
    return true;
}

struct leat_shape
leat_unknown_shape(uint32_t dtype, uint32_t rank)
{
    struct leat_shape shape = {.dtype = dtype, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        shape.dims[d] = LEAT_DIM_UNKNOWN;
    }
    return shape;
}

bool
leat_has_batch(const struct leat_value *value, uint32_t from, uint32_t to)
{
    for (uint32_t d = from; d < to; d++) {
        if (value->dims[d] == LEAT_DIM_BATCH) {
            return true;
        }
    }
    return false;
}

enum leat_status
leat_read_axes(const struct leat_graph *graph, const struct leat_node *node, const int64_t **ret,
               uint32_t *ret_count, bool *ret_computed)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "axes");
    const struct leat_value *input = leat_node_input(graph, node, 1);

    *ret = NULL;
    *ret_count = 0;
    *ret_computed = false;
    if (attribute != NULL) {
        *ret = attribute->ints;
        *ret_count = attribute->count;
    } else if (input != NULL && !leat_value_ints(input, ret, ret_count)) {
        if (input->dtype != LEAT_DTYPE_I64 || input->rank != 1 || input->dims[0] < 0 ||
            input->dims[0] > LEAT_RANK_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its axes are not an i64 vector");
        }
        *ret_count = (uint32_t)input->dims[0];
        *ret_computed = true;
    }
    return LEAT_OK;
}

enum leat_status
leat_axes_mask(const struct leat_node *node, const int64_t *axes, uint32_t count, uint32_t rank,
               uint32_t *ret_mask)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t axis = 0;
        const enum leat_status status = leat_axis_resolve(node, axes[i], rank, &axis);
        if (status != LEAT_OK) {
            return status;
        }
        if ((mask >> axis & 1u) != 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u is named twice", axis);
        }
        mask |= 1u << axis;
    }
    *ret_mask = mask;
    return LEAT_OK;
}

enum leat_status
leat_check_by_channel(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
                      uint32_t types, int64_t channels)
{
    const struct leat_value *value = leat_node_input(graph, node, i);
    return value == NULL || value->rank == 0 || (value->rank == 1 && value->dims[0] == 1)
               ? leat_check_scalar(graph, node, i, types)
               : leat_check_vector(graph, node, i, types, channels);
}

enum leat_status
leat_check_shape(const struct leat_graph *graph, const struct leat_node *node, uint32_t i,
                 uint32_t *ret_rank)
{
    const struct leat_value *shape = leat_node_input(graph, node, i);
    const enum leat_status status = leat_check_vector(graph, node, i, LEAT_TYPE(I64), -1);
    if (status != LEAT_OK) {
        return status;
    }
    if (shape->dims[0] < 0 || shape->dims[0] > LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "its rank depends on tensor contents or is over %d", LEAT_RANK_MAX);
    }
    *ret_rank = (uint32_t)shape->dims[0];
    return LEAT_OK;
}
