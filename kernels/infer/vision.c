/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of detectors and spatial transformers: GridSample, RoiAlign, NonMaxSuppression. */
#include "kernels/infer/infer.h"

#include <string.h>

static bool
is_one_of(const struct leat_attribute *attribute, const char *a, const char *b, const char *c)
{
    return attribute == NULL || strcmp(attribute->s, a) == 0 || strcmp(attribute->s, b) == 0 ||
           strcmp(attribute->s, c) == 0;
}

LEAT_INFER_FUNCTION(grid_sample)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *grid = leat_node_input(graph, node, 1);

    const enum leat_status status = leat_check_input(graph, node, 1, LEAT_TYPE(F32), 4, 4);
    if (status != LEAT_OK) {
        return status;
    }
    const bool renamed = node->op->since >= 20;
    if (!is_one_of(leat_node_attribute(node, "mode"), renamed ? "linear" : "bilinear", "nearest",
                   renamed ? "cubic" : "bicubic") ||
        !is_one_of(leat_node_attribute(node, "padding_mode"), "zeros", "border", "reflection")) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "its mode is not a known one");
    }
    if (x->rank != 4 || (grid->dims[3] >= 0 && grid->dims[3] != 2) || x->dims[2] == 0 ||
        x->dims[3] == 0 || (x->dims[0] >= 0 && grid->dims[0] >= 0 && x->dims[0] != grid->dims[0])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input and grid do not fit");
    }
    *mixes_items = *mixes_items || leat_has_batch(x, 2, 4) ||
                   (x->dims[0] == LEAT_DIM_BATCH) != (grid->dims[0] == LEAT_DIM_BATCH);
    outputs[0] = leat_shape_of(x);
    outputs[0].dims[2] = grid->dims[1];
    outputs[0].dims[3] = grid->dims[2];
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(roi_align)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *rois = leat_node_input(graph, node, 1);
    const int64_t height = leat_node_int(node, "output_height", 1);
    const int64_t width = leat_node_int(node, "output_width", 1);
    const int64_t samples = leat_node_int(node, "sampling_ratio", 0);
    const struct leat_attribute *mode = leat_node_attribute(node, "mode");

    enum leat_status status = leat_check_input(graph, node, 1, LEAT_TYPE(F32), 2, 2);
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 2, LEAT_TYPE(I64), rois->dims[0]);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (mode != NULL && strcmp(mode->s, "avg") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "mode '%.32s' is not supported", mode->s);
    }
    if (!is_one_of(leat_node_attribute(node, "coordinate_transformation_mode"), "half_pixel",
                   "output_half_pixel", "half_pixel")) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "its coordinate_transformation_mode is not a known one");
    }
    if (x->rank != 4 || x->dims[2] == 0 || x->dims[3] == 0 ||
        (rois->dims[1] >= 0 && rois->dims[1] != 4) || height < 1 || width < 1 ||
        height > LEAT_DIM_MAX || width > LEAT_DIM_MAX || samples < 0 ||
        samples > LEAT_ROI_SAMPLES_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input and regions do not fit");
    }
    /* A region may name any image. */
    *mixes_items = *mixes_items || leat_has_batch(x, 0, 4) || leat_has_batch(rois, 0, 2);
    outputs[0] = leat_shape_of(x);
    outputs[0].dims[0] = rois->dims[0];
    outputs[0].dims[2] = height;
    outputs[0].dims[3] = width;
    return LEAT_OK;
}
