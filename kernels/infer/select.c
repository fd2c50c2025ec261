/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose output is as long as tensor contents say: shapes are upper bounds. */
#include "kernels/infer/infer.h"

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

LEAT_INFER_FUNCTION(non_zero)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "a scalar has no axes to count along");
    }
    const int64_t elements = leat_dims_product(x->dims, 0, x->rank);
    *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
    outputs[0] =
        (struct leat_shape){.dtype = LEAT_DTYPE_I64,
                            .rank = 2,
                            .dims = {(int64_t)x->rank, elements >= 0 ? elements : LEAT_DIM_UNKNOWN},
                            .bounded = true,
                            .open = 1u << 1};
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(compress)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *condition = leat_node_input(graph, node, 1);
    const bool flat = leat_node_attribute(node, "axis") == NULL;
    uint32_t axis = 0;

    enum leat_status status = leat_check_vector(graph, node, 1, LEAT_TYPE(BOOL), -1);
    if (status == LEAT_OK && !flat) {
        status = leat_axis_resolve(node, leat_node_int(node, "axis", 0), x->rank, &axis);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t size = flat ? leat_dims_product(x->dims, 0, x->rank) : x->dims[axis];
    const int64_t given = condition->dims[0];
    *mixes_items = *mixes_items || (flat ? leat_has_batch(x, 0, x->rank) : size == LEAT_DIM_BATCH);
    outputs[0] = flat ? (struct leat_shape){.dtype = x->dtype, .rank = 1} : leat_shape_of(x);
    outputs[0].dims[axis] = size >= 0 && given >= 0 ? least(size, given) : LEAT_DIM_UNKNOWN;
    outputs[0].bounded = true;
    outputs[0].open = 1u << axis;
    return LEAT_OK;
}

/* y, the first index of each, what each element became, how often each occurs */
LEAT_INFER_FUNCTION(unique)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool flat = leat_node_attribute(node, "axis") == NULL;
    uint32_t axis = 0;

    if (!flat) {
        const enum leat_status status =
            leat_axis_resolve(node, leat_node_int(node, "axis", 0), x->rank, &axis);
        if (status != LEAT_OK) {
            return status;
        }
    }
    const int64_t product = leat_dims_product(x->dims, 0, x->rank);
    const int64_t size = flat ? (product >= 0 ? product : LEAT_DIM_UNKNOWN) : x->dims[axis];
    *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
    outputs[0] =
        flat ? (struct leat_shape){.dtype = x->dtype, .rank = 1, .dims = {size}} : leat_shape_of(x);
    outputs[0].bounded = true;
    outputs[0].open = 1u << axis;
    for (uint32_t o = 1; o < node->output_count; o++) {
        outputs[o] = (struct leat_shape){
            .dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {size}, .bounded = o != 2, .open = o != 2};
    }
    return LEAT_OK;
}

/* boxes [images][boxes][4], scores [images][classes][boxes], the most per class, overlap, score */
LEAT_INFER_FUNCTION(non_max_suppression)
{
    const struct leat_value *boxes = leat_node_input(graph, node, 0);
    const struct leat_value *scores = leat_node_input(graph, node, 1);
    int64_t most = 0;
    uint32_t count = 0;

    enum leat_status status = leat_check_input(graph, node, 0, LEAT_TYPE(F32), 3, 3);
    if (status == LEAT_OK) {
        status = leat_check_input(graph, node, 1, LEAT_TYPE(F32), 3, 3);
    }
    if (status == LEAT_OK) {
        status = leat_check_scalar(graph, node, 2, LEAT_TYPE(I64));
    }
    for (uint32_t i = 3; i < 5 && status == LEAT_OK; i++) {
        status = leat_check_scalar(graph, node, i, LEAT_TYPE(F32));
    }
    if (status != LEAT_OK) {
        return status;
    }
    const int64_t images = boxes->dims[0], places = boxes->dims[1], classes = scores->dims[1];
    if ((boxes->dims[2] >= 0 && boxes->dims[2] != 4) ||
        (images >= 0 && scores->dims[0] >= 0 && images != scores->dims[0]) ||
        (places >= 0 && scores->dims[2] >= 0 && places != scores->dims[2])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its boxes and scores do not fit");
    }
    const struct leat_value *limit = leat_node_input(graph, node, 2);
    most = limit == NULL                             ? 0
           : leat_read_ints(limit, 1, &most, &count) ? (most < 0 ? 0 : most)
                                                     : LEAT_DIM_MAX;
    *mixes_items = *mixes_items || leat_has_batch(boxes, 0, 3) || leat_has_batch(scores, 0, 3);
    const int64_t dims[3] = {images, classes, places >= 0 ? least(places, most) : places};
    const int64_t rows = leat_dims_product(dims, 0, 3);
    outputs[0] = (struct leat_shape){.dtype = LEAT_DTYPE_I64,
                                     .rank = 2,
                                     .dims = {rows >= 0 ? rows : LEAT_DIM_UNKNOWN, 3},
                                     .bounded = true,
                                     .open = 1u << 0};
    return LEAT_OK;
}
