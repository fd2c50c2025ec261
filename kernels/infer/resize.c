/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample. */
#include "kernels/resize.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/infer/infer.h"

/* The place of an attribute's text in a list; the first one when it is not given. */
static enum leat_status
choose(const struct leat_node *node, const char *name, const char *const *texts, uint32_t count,
       uint32_t *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, name);

    for (uint32_t i = 0; i < count; i++) {
        if (attribute == NULL || attribute->s[0] == '\0' || strcmp(attribute->s, texts[i]) == 0) {
            *ret = i;
            return LEAT_OK;
        }
    }
    return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "%s '%.32s' is not supported", name,
                          attribute->s);
}

static enum leat_status
read_modes(const struct leat_node *node, struct leat_resize *ret)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const places[] = {"half_pixel",           "pytorch_half_pixel",
                                         "align_corners",        "asymmetric",
                                         "tf_half_pixel_for_nn", "tf_crop_and_resize"};
    static const char *const rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                         "ceil"};
    uint32_t mode = 0, place = 0, round = 0;

    enum leat_status status = choose(node, "mode", modes, LEAT_COUNT_OF(modes), &mode);
    if (status == LEAT_OK) {
        status =
            choose(node, "coordinate_transformation_mode", places, LEAT_COUNT_OF(places), &place);
    }
    if (status == LEAT_OK) {
        status = choose(node, "nearest_mode", rounds, LEAT_COUNT_OF(rounds), &round);
    }
    const bool old = node->op->kind == LEAT_OP_UPSAMPLE || node->op->until < 11;
    *ret = (struct leat_resize){
        .mode = (enum leat_resize_mode)mode,
        .place = old ? LEAT_PLACE_ASYMMETRIC : (enum leat_resize_place)place,
        .round = old ? LEAT_ROUND_FLOOR : (enum leat_resize_round)round,
        .exclude_outside = leat_node_int(node, "exclude_outside", 0) != 0,
        .cubic_a = (double)leat_node_float(node, "cubic_coeff_a", -0.75f),
        .extrapolation = (double)leat_node_float(node, "extrapolation_value", 0.0f),
    };
    return status;
}

static bool
is_empty(const struct leat_value *value)
{
    return value == NULL || (value->rank == 1 && value->dims[0] == 0);
}

/* One axis of `dim` elements, scaled: a symbol stays what it is when the scale is 1. */
static enum leat_status
scale_axis(const struct leat_node *node, int64_t dim, double scale, uint32_t d,
           struct leat_resize *ret)
{
    if (!(scale > 0) || !isfinite(scale)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "scale %g at axis %u", scale, d);
    }
    ret->scale[d] = scale;
    ret->out[d] = scale == 1 ? dim : LEAT_DIM_UNKNOWN;
    if (dim >= 0) {
        const double out = floor((double)dim * scale);
        if (out > (double)LEAT_DIM_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "axis %u would have %g elements", d, out);
        }
        ret->out[d] = (int64_t)out;
    }
    return LEAT_OK;
}

static enum leat_status
size_axis(const struct leat_node *node, int64_t dim, int64_t size, uint32_t d,
          struct leat_resize *ret)
{
    if (size < 0 || size > LEAT_DIM_MAX || (dim == 0 && size > 0)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u cannot have %lld elements", d,
                              (long long)size);
    }
    ret->scale[d] = dim > 0 ? (double)size / (double)dim : 1;
    ret->out[d] = size;
    return LEAT_OK;
}

/* What opset 18 added: some of the axes, each once; the rest only as it was before. */
static enum leat_status
check_newer(const struct leat_node *node, const struct leat_attribute *axes, uint32_t rank)
{
    const struct leat_attribute *policy = leat_node_attribute(node, "keep_aspect_ratio_policy");
    const struct leat_attribute *place = leat_node_attribute(node, "coordinate_transformation_mode");
    uint32_t mask;

    if (leat_node_int(node, "antialias", 0) != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "antialias is not supported");
    }
    if (policy != NULL && strcmp(policy->s, "stretch") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "keep_aspect_ratio_policy '%.32s' is not supported", policy->s);
    }
    if (axes != NULL && place != NULL && strcmp(place->s, "tf_crop_and_resize") == 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "a region of some axes is not supported");
    }
    return axes != NULL ? leat_axes_mask(node, axes->ints, axes->count, rank, &mask) : LEAT_OK;
}

enum leat_status
leat_resize_of(const struct leat_graph *graph, const struct leat_node *node,
               struct leat_resize *ret, bool *ret_known)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_attribute *attribute = leat_node_attribute(node, "scales");
    const struct leat_attribute *axes = leat_node_attribute(node, "axes");
    const bool recent = node->op->kind == LEAT_OP_RESIZE && node->op->since >= 11;
    const struct leat_value *scales = leat_node_input(graph, node, recent ? 2 : 1);
    const struct leat_value *sizes = recent ? leat_node_input(graph, node, 3) : NULL;
    int64_t given[LEAT_RANK_MAX];
    uint32_t count = x->rank;

    *ret_known = false;
    enum leat_status status = read_modes(node, ret);
    if (status == LEAT_OK) {
        status = check_newer(node, axes, x->rank);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (attribute == NULL && is_empty(scales) == is_empty(sizes)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "it needs either scales or sizes");
    }
    if (!is_empty(sizes) && !leat_read_ints(sizes, LEAT_RANK_MAX, given, &count)) {
        return LEAT_OK;
    }
    if (attribute == NULL && is_empty(sizes) && scales->data == NULL) {
        return LEAT_OK;
    }
    if (attribute != NULL) {
        count = attribute->count;
    } else if (is_empty(sizes)) {
        count = (uint32_t)scales->dims[0]; /* infer has made sure that it is a vector */
    }
    const uint32_t wanted = axes != NULL ? axes->count : x->rank;
    if (count != wanted) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%u scales or sizes for %u axes", count, wanted);
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        ret->scale[d] = 1;
        ret->out[d] = x->dims[d];
    }
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const int64_t axis = axes != NULL ? axes->ints[i] : (int64_t)i;
        const uint32_t d = (uint32_t)(axis < 0 ? axis + (int64_t)x->rank : axis);
        status = !is_empty(sizes)    ? size_axis(node, x->dims[d], given[i], d, ret)
                 : attribute != NULL ? scale_axis(node, x->dims[d], (double)attribute->floats[i], d, ret)
                                     : scale_axis(node, x->dims[d], (double)((const float *)scales->data)[i], d, ret);
    }
    *ret_known = status == LEAT_OK;
    return status;
}

LEAT_INFER_FUNCTION(resize)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool recent = node->op->kind == LEAT_OP_RESIZE && node->op->since >= 11;
    struct leat_resize resize;
    bool known = false;

    enum leat_status status = leat_check_vector(graph, node, recent ? 2 : 1, LEAT_TYPE(F32), -1);
    if (status == LEAT_OK && recent) {
        status = leat_check_vector(graph, node, 1, LEAT_TYPE(F32), -1);
    }
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 3, LEAT_TYPE(I64), -1);
    }
    if (status == LEAT_OK) {
        status = leat_resize_of(graph, node, &resize, &known);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (resize.place == LEAT_PLACE_TF_CROP_AND_RESIZE) {
        const struct leat_value *roi = leat_node_input(graph, node, 1);
        if (roi == NULL || (roi->dims[0] >= 0 && roi->dims[0] != 2 * (int64_t)x->rank)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its region does not have %u bounds",
                                  2 * x->rank);
        }
    }
    outputs[0] = leat_unknown_shape(x->dtype, x->rank);
    for (uint32_t d = 0; d < x->rank; d++) {
        const bool kept =
            known && resize.out[d] == x->dims[d] && resize.place != LEAT_PLACE_TF_CROP_AND_RESIZE;
        *mixes_items = *mixes_items || (x->dims[d] == LEAT_DIM_BATCH && !kept);
        outputs[0].dims[d] = known ? resize.out[d] : LEAT_DIM_UNKNOWN;
    }
    return LEAT_OK;
}
