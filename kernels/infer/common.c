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
        *ret = a >= 0 ? a : b; /* an unknown dim is 1 or the other one */
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
            product = product == 1 && dims[d] == LEAT_DIM_BATCH ? LEAT_DIM_BATCH : LEAT_DIM_UNKNOWN;
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
