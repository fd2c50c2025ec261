/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move, reduce or describe data: the Reshape family, Transpose, Concat, Gather, Pad, ... */
#include "kernels/infer/infer.h"

#include <string.h>

LEAT_INFER_FUNCTION(constant)
{
    (void)mixes_items;
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        if (node->attributes[a].kind == LEAT_ATTRIBUTE_TENSOR) {
            outputs[0] = leat_shape_of(&graph->values[node->attributes[a].value]);
            return LEAT_OK;
        }
    }
    return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "it has no tensor, float or integer value");
}

LEAT_INFER_FUNCTION(flatten)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t axis = leat_node_int(node, "axis", 1);
    const int64_t split = axis < 0 ? axis + (int64_t)x->rank : axis;

    if (split < 0 || split > (int64_t)x->rank) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %lld is outside a tensor of rank %u",
                              (long long)axis, x->rank);
    }
    outputs[0] = (struct leat_shape){
        .dtype = x->dtype,
        .rank = 2,
        .dims = {leat_dims_product(x->dims, 0, (uint32_t)split),
                 leat_dims_product(x->dims, (uint32_t)split, x->rank)},
    };
    return LEAT_OK;
}

/* Takes one that is certainly the same from the list. */
static void
cancel(int64_t *list, uint32_t *count, int64_t dim)
{
    for (uint32_t i = 0; i < *count && dim != LEAT_DIM_UNKNOWN; i++) {
        if (list[i] == dim) {
            list[i] = list[--*count];
            return;
        }
    }
}

/*
 * The dim that a -1 in a Reshape target stands for: the elements of x over those of the other dims. A symbol
 * on one side cancels the same one on the other, and what is left is known, one symbol or unknown.
 */
static enum leat_status
solve_free_dim(const struct leat_node *node, const struct leat_value *x, struct leat_shape *out,
               uint32_t free_dim)
{
    int64_t have = 1, given = 1, left[LEAT_RANK_MAX];
    uint32_t left_count = 0; /* symbols of x that nothing cancelled */
    bool unknown = false;

    for (uint32_t d = 0; d < x->rank; d++) {
        if (x->dims[d] < 0) {
            left[left_count++] = x->dims[d];
        } else {
            unknown = unknown || __builtin_mul_overflow(have, x->dims[d], &have);
        }
    }
    for (uint32_t d = 0; d < out->rank; d++) {
        if (d != free_dim && out->dims[d] < 0) {
            /* It is one of x: what cancels nothing is unknown there, and stays. */
            cancel(left, &left_count, out->dims[d]);
        } else if (d != free_dim) {
            unknown = unknown || __builtin_mul_overflow(given, out->dims[d], &given);
        }
    }
    const bool divides = given > 0 && have % given == 0;
    if (!unknown && left_count == 0 && divides) {
        out->dims[free_dim] = have / given;
    } else if (!unknown && left_count == 1 && divides && have == given) {
        out->dims[free_dim] = left[0];
    } else if (unknown || left_count != 0) {
        out->dims[free_dim] = LEAT_DIM_UNKNOWN;
    } else {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "%lld elements cannot be arranged in rows of %lld", (long long)have,
                              (long long)given);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(reshape)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *target = leat_node_input(graph, node, 1);
    const bool allow_zero = leat_node_int(node, "allowzero", 0) != 0;
    const int64_t *dims;
    uint32_t count;
    int64_t free_dim = -1;

    if (target->dtype != LEAT_DTYPE_I64 || target->rank != 1 || target->dims[0] < 0 ||
        target->dims[0] > LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "its target shape is not i64 with at most %d entries", LEAT_RANK_MAX);
    }
    struct leat_shape *out = &outputs[0];
    *out = (struct leat_shape){.dtype = x->dtype, .rank = (uint32_t)target->dims[0]};
    if (!leat_value_ints(target, &dims, &count)) {
        *out = leat_unknown_shape(out->dtype, out->rank);
        return LEAT_OK;
    }
    LEAT_ASSERT(count == out->rank);
    for (uint32_t d = 0; d < count; d++) {
        if (dims[d] == -1 && free_dim < 0) {
            free_dim = (int64_t)d;
            out->dims[d] = 1;
        } else if (dims[d] == 0 && !allow_zero && d < x->rank) {
            out->dims[d] = x->dims[d];
        } else if (dims[d] >= (allow_zero ? 0 : 1) && dims[d] <= LEAT_DIM_MAX) {
            out->dims[d] = dims[d];
        } else {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its target shape has the entry %lld at %u",
                                  (long long)dims[d], d);
        }
    }
    if (free_dim >= 0) {
        return solve_free_dim(node, x, out, (uint32_t)free_dim);
    }
    const int64_t have = leat_dims_product(x->dims, 0, x->rank);
    const int64_t want = leat_dims_product(out->dims, 0, out->rank);
    if (have >= 0 && want >= 0 && have != want) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%lld elements do not fill a shape of %lld",
                              (long long)have, (long long)want);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(squeeze)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t *axes;
    uint32_t count, mask = 0;
    bool computed;

    enum leat_status status = leat_read_axes(graph, node, &axes, &count, &computed);
    if (status == LEAT_OK && computed) {
        if (count > x->rank) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%u axes of a tensor of rank %u", count,
                                  x->rank);
        }
        outputs[0] = leat_unknown_shape(x->dtype, x->rank - count);
        return LEAT_OK;
    }
    if (status == LEAT_OK) {
        status = leat_axes_mask(node, axes, count, x->rank, &mask);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const bool all_ones = axes == NULL;
    outputs[0] = (struct leat_shape){.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (all_ones && x->dims[d] < 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                  "without axes its rank would depend on the batch, or another free dimension; give that a value, as 1, "
                                  "or name the axes");
        }
        const bool drop = all_ones ? x->dims[d] == 1 : (mask >> d & 1u) != 0;
        if (!drop) {
            outputs[0].dims[outputs[0].rank++] = x->dims[d];
        } else if (x->dims[d] != 1 && x->dims[d] > LEAT_DIM_UNKNOWN) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u is not of size 1", d);
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(unsqueeze)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t *axes;
    uint32_t count, mask = 0;
    bool computed;

    enum leat_status status = leat_read_axes(graph, node, &axes, &count, &computed);
    if (status != LEAT_OK) {
        return status;
    }
    if (count > LEAT_RANK_MAX - x->rank) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d", LEAT_RANK_MAX);
    }
    if (computed) {
        outputs[0] = leat_unknown_shape(x->dtype, x->rank + count);
        return LEAT_OK;
    }
    status = leat_axes_mask(node, axes, count, x->rank + count, &mask);
    if (status != LEAT_OK) {
        return status;
    }
    outputs[0] = (struct leat_shape){.dtype = x->dtype, .rank = x->rank + count};
    for (uint32_t d = 0, from = 0; d < outputs[0].rank; d++) {
        outputs[0].dims[d] = (mask >> d & 1u) != 0 ? 1 : x->dims[from++];
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(transpose)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_attribute *attribute = leat_node_attribute(node, "perm");
    uint32_t perm[LEAT_RANK_MAX], seen = 0;

    for (uint32_t d = 0; attribute != NULL && d < attribute->count && d < LEAT_RANK_MAX; d++) {
        if (attribute->ints[d] >= 0 && attribute->ints[d] < (int64_t)x->rank) {
            seen |= 1u << attribute->ints[d];
        }
    }
    if (attribute != NULL && (attribute->count != x->rank || seen != (1u << x->rank) - 1)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "perm is not a permutation of %u axes",
                              x->rank);
    }
    leat_transpose_perm(node, x->rank, perm);
    outputs[0] = (struct leat_shape){.dtype = x->dtype, .rank = x->rank};
    for (uint32_t d = 0; d < x->rank; d++) {
        outputs[0].dims[d] = x->dims[perm[d]];
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(concat)
{
    const struct leat_value *first = leat_node_input(graph, node, 0);
    uint32_t axis;

    enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", 0), first->rank, &axis);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_shape *out = &outputs[0];
    *out = leat_shape_of(first);
    *mixes_items = *mixes_items || first->dims[axis] == LEAT_DIM_BATCH;
    for (uint32_t i = 1; i < node->input_count; i++) {
        const struct leat_value *x = leat_node_input(graph, node, i);
        if (x == NULL || x->rank != out->rank || x->dtype != out->dtype) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u differs in rank or type", i);
        }
        for (uint32_t d = 0; d < out->rank; d++) {
            if (d == axis) {
                *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
                /* At most LEAT_NODE_ARITY_MAX times LEAT_DIM_MAX: no overflow. */
                out->dims[d] = out->dims[d] >= 0 && x->dims[d] >= 0 ? out->dims[d] + x->dims[d]
                                                                    : LEAT_DIM_UNKNOWN;
            } else if (out->dims[d] < 0) {
                out->dims[d] = x->dims[d] != LEAT_DIM_UNKNOWN ? x->dims[d] : out->dims[d];
            } else if (x->dims[d] >= 0 && x->dims[d] != out->dims[d]) {
                return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input %u differs along axis %u", i, d);
            }
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(gather)
{
    const struct leat_value *data = leat_node_input(graph, node, 0);
    const struct leat_value *indices = leat_node_input(graph, node, 1);
    uint32_t axis;

    if (indices->dtype != LEAT_DTYPE_I32 && indices->dtype != LEAT_DTYPE_I64) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its indices are %s, not i32 or i64",
                              leat_dtype_text(indices->dtype));
    }
    const enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", 0), data->rank, &axis);
    if (status != LEAT_OK) {
        return status;
    }
    if (data->rank - 1 + indices->rank > LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "its output has a rank over %d", LEAT_RANK_MAX);
    }
    struct leat_shape *out = &outputs[0];
    *out = (struct leat_shape){.dtype = data->dtype};
    for (uint32_t d = 0; d < data->rank; d++) {
        if (d != axis) {
            out->dims[out->rank++] = data->dims[d];
            continue;
        }
        for (uint32_t i = 0; i < indices->rank; i++) {
            out->dims[out->rank++] = indices->dims[i];
        }
    }
    *mixes_items = *mixes_items || data->dims[axis] == LEAT_DIM_BATCH;
    return LEAT_OK;
}

enum leat_status
leat_pads_of(const struct leat_graph *graph, const struct leat_node *node, struct leat_pads *ret, bool *ret_known)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "pads");
    const struct leat_value *given = leat_node_input(graph, node, 3);
    const uint32_t rank = leat_node_input(graph, node, 0)->rank;
    const int64_t *pads = attribute != NULL ? attribute->ints : NULL;
    int64_t axes[LEAT_RANK_MAX];
    uint32_t count = attribute != NULL ? attribute->count : 0, axis_count = rank, mask;

    *ret_known = false;
    if (attribute == NULL && !leat_value_ints(leat_node_input(graph, node, 1), &pads, &count)) {
        return LEAT_OK;
    }
    for (uint32_t d = 0; d < rank; d++) {
        axes[d] = d;
    }
    if (given != NULL && !leat_read_ints(given, LEAT_RANK_MAX, axes, &axis_count)) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_axes_mask(node, axes, axis_count, rank, &mask);
    if (status != LEAT_OK) {
        return status;
    }
    if (count != 2 * axis_count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%u pads for %u axes", count, axis_count);
    }
    *ret = (struct leat_pads){.begin = {0}};
    for (uint32_t i = 0; i < axis_count; i++) {
        const int64_t d = axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i];
        ret->begin[d] = pads[i];
        ret->end[d] = pads[axis_count + i];
    }
    *ret_known = true;
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(pad)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *fill = leat_node_input(graph, node, 2);
    const struct leat_attribute *mode = leat_node_attribute(node, "mode");
    struct leat_pads pads;
    bool known = false;

    const bool reflect = mode != NULL && strcmp(mode->s, "reflect") == 0;
    const bool edge = mode != NULL && strcmp(mode->s, "edge") == 0;
    const bool wrap = mode != NULL && strcmp(mode->s, "wrap") == 0 && graph->opset >= 19;
    if (mode != NULL && !reflect && !edge && !wrap && mode->s[0] != '\0' &&
        strcmp(mode->s, "constant") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "mode '%.32s' is not supported", mode->s);
    }
    if (fill != NULL &&
        (fill->dtype != x->dtype || fill->rank > 1 || (fill->rank == 1 && fill->dims[0] != 1))) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its constant_value is not a scalar of type %s",
                              leat_dtype_text(x->dtype));
    }
    enum leat_status status = leat_check_vector(graph, node, 3, LEAT_TYPE_INDEX, -1);
    if (status == LEAT_OK) {
        status = leat_pads_of(graph, node, &pads, &known);
    }
    if (status != LEAT_OK) {
        return status;
    }
    outputs[0] = known ? leat_shape_of(x) : leat_unknown_shape(x->dtype, x->rank);
    for (uint32_t d = 0; known && d < x->rank; d++) {
        const int64_t begin = pads.begin[d], end = pads.end[d];
        if (begin < -LEAT_DIM_MAX || begin > LEAT_DIM_MAX || end < -LEAT_DIM_MAX ||
            end > LEAT_DIM_MAX || (x->dims[d] >= 0 && x->dims[d] + begin + end < 0)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "pads %lld and %lld at axis %u",
                                  (long long)begin, (long long)end, d);
        }
        /* After what is cropped. A reflection does not repeat the border: it reaches as far as there are others. */
        const int64_t kept = x->dims[d] + (begin < 0 ? begin : 0) + (end < 0 ? end : 0);
        const int64_t reach = reflect ? kept - 1 : kept > 0 ? LEAT_DIM_MAX : 0;
        if ((reflect || edge || wrap) && x->dims[d] >= 0 &&
            ((begin > 0 && begin > reach) || (end > 0 && end > reach))) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u of %lld has too few elements", d,
                                  (long long)x->dims[d]);
        }
        if (begin != 0 || end != 0) {
            *mixes_items = *mixes_items || x->dims[d] == LEAT_DIM_BATCH;
            outputs[0].dims[d] = x->dims[d] >= 0 ? x->dims[d] + begin + end : LEAT_DIM_UNKNOWN;
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(shape)
{
    (void)mixes_items;
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t start, end;

    leat_shape_range(node, x->rank, &start, &end);
    outputs[0] = (struct leat_shape){
        .dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {end > start ? end - start : 0}};
    return LEAT_OK;
}
