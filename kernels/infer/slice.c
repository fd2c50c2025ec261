/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that cut, repeat and rearrange: Slice, Split, Expand, Tile, DepthToSpace, ... */
#include "kernels/infer/infer.h"

#include <string.h>

/* ---- Slice ---------------------------------------------------------------------------------------------- */

/* Starts, ends, axes and steps, from attributes (opset < 10) or constant inputs; false when computed. */
struct slice_lists {
    int64_t starts[LEAT_RANK_MAX], ends[LEAT_RANK_MAX], axes[LEAT_RANK_MAX], steps[LEAT_RANK_MAX];
    uint32_t counts[4]; /* UINT32_MAX: not given */
};

static bool
read_list(const struct leat_graph *graph, const struct leat_node *node, const char *attribute,
          uint32_t input, int64_t *ret, uint32_t *ret_count)
{
    const struct leat_attribute *given = leat_node_attribute(node, attribute);

    *ret_count = UINT32_MAX;
    if (given != NULL && given->count <= LEAT_RANK_MAX) {
        memcpy(ret, given->ints, given->count * sizeof(*ret));
        *ret_count = given->count;
        return true;
    }
    return leat_node_input(graph, node, input) == NULL ||
           leat_read_ints(leat_node_input(graph, node, input), LEAT_RANK_MAX, ret, ret_count);
}

/* Where one axis of `size` is cut; a step beyond the axis takes one element. */
static void
cut(int64_t size, int64_t start, int64_t end, int64_t step, struct leat_slice *slice, uint32_t d)
{
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;

    step = step > LEAT_DIM_MAX ? LEAT_DIM_MAX : step < -LEAT_DIM_MAX ? -LEAT_DIM_MAX : step;
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    const int64_t way = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    slice->start[d] = start;
    slice->step[d] = step;
    slice->count[d] = size > 0 && way > 0 ? (way + stride - 1) / stride : 0;
}

enum leat_status
leat_slice_of(const struct leat_graph *graph, const struct leat_node *node, struct leat_slice *ret,
              bool *ret_known)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct slice_lists lists;
    uint32_t seen = 0;

    *ret_known = read_list(graph, node, "starts", 1, lists.starts, &lists.counts[0]) &&
                 read_list(graph, node, "ends", 2, lists.ends, &lists.counts[1]) &&
                 read_list(graph, node, "axes", 3, lists.axes, &lists.counts[2]) &&
                 read_list(graph, node, "steps", 4, lists.steps, &lists.counts[3]);
    if (!*ret_known) {
        return LEAT_OK;
    }
    const uint32_t count = lists.counts[0];
    if (count > x->rank || lists.counts[1] != count ||
        (lists.counts[2] != UINT32_MAX && lists.counts[2] != count) ||
        (lists.counts[3] != UINT32_MAX && lists.counts[3] != count)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                              "its starts, ends, axes and steps differ in number");
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        ret->start[d] = 0;
        ret->step[d] = 1;
        ret->count[d] = x->dims[d];
        ret->whole[d] = true;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int64_t step = lists.counts[3] == UINT32_MAX ? 1 : lists.steps[i];
        uint32_t axis = i;
        const enum leat_status status =
            lists.counts[2] == UINT32_MAX ? LEAT_OK
                                          : leat_axis_resolve(node, lists.axes[i], x->rank, &axis);
        if (status != LEAT_OK) {
            return status;
        }
        if (step == 0 || (seen >> axis & 1u) != 0) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "axis %u has step 0 or is named twice",
                                  axis);
        }
        seen |= 1u << axis;
        ret->whole[axis] = step == 1 && lists.starts[i] == 0 && lists.ends[i] >= LEAT_DIM_MAX;
        if (x->dims[axis] >= 0) {
            cut(x->dims[axis], lists.starts[i], lists.ends[i], step, ret, axis);
        } else if (!ret->whole[axis]) {
            ret->count[axis] = LEAT_DIM_UNKNOWN;
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(slice)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    struct leat_slice slice;
    bool known;

    enum leat_status status = LEAT_OK;
    for (uint32_t i = 1; i < 5 && status == LEAT_OK; i++) {
        status = leat_check_input(graph, node, i, LEAT_TYPE_INDEX, 1, 1);
    }
    if (status == LEAT_OK) {
        status = leat_slice_of(graph, node, &slice, &known);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (!known) {
        *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
        outputs[0] = leat_unknown_shape(x->dtype, x->rank);
        return LEAT_OK;
    }
    outputs[0] = leat_shape_of(x);
    for (uint32_t d = 0; d < x->rank; d++) {
        *mixes_items = *mixes_items || (x->dims[d] == LEAT_DIM_BATCH && !slice.whole[d]);
        outputs[0].dims[d] = slice.count[d];
    }
    return LEAT_OK;
}

/* ---- Split ---------------------------------------------------------------------------------------------- */

bool
leat_split_sizes(const struct leat_graph *graph, const struct leat_node *node,
                 int64_t sizes[LEAT_NODE_OUTPUTS_MAX])
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_attribute *attribute = leat_node_attribute(node, "split");
    const int64_t dim = x->dims[leat_node_axis(node, 0, x->rank)];
    uint32_t count = node->output_count;

    if (attribute != NULL) {
        memcpy(sizes, attribute->ints, count * sizeof(sizes[0]));
        return true;
    }
    if (leat_node_input(graph, node, 1) != NULL) {
        return leat_read_ints(leat_node_input(graph, node, 1), count, sizes, &count);
    }
    /* In as many parts as asked for, the last may be smaller; before opset 18 all are of one size. */
    const bool uneven = leat_node_attribute(node, "num_outputs") != NULL;
    const int64_t part = uneven ? (dim + count - 1) / count : dim / count;
    for (uint32_t o = 0; o < count; o++) {
        sizes[o] = uneven && o == count - 1 ? dim - part * o : part;
    }
    return dim >= 0;
}

LEAT_INFER_FUNCTION(split)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_attribute *attribute = leat_node_attribute(node, "split");
    const uint32_t count = node->output_count;
    int64_t sizes[LEAT_NODE_OUTPUTS_MAX], total = 0;
    uint32_t axis = 0;

    enum leat_status status =
        leat_axis_resolve(node, leat_node_int(node, "axis", 0), x->rank, &axis);
    if (status == LEAT_OK) {
        status = leat_check_vector(graph, node, 1, LEAT_TYPE(I64), count);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (attribute != NULL && attribute->count != count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%u sizes for %u outputs", attribute->count,
                              count);
    }
    if (leat_node_int(node, "num_outputs", count) != (int64_t)count) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "num_outputs is %lld, and it has %u outputs",
                              (long long)leat_node_int(node, "num_outputs", count), count);
    }
    if (leat_node_attribute(node, "num_outputs") != NULL && leat_node_input(graph, node, 1) != NULL) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "it has both num_outputs and sizes");
    }
    const int64_t dim = x->dims[axis];
    const bool known = leat_split_sizes(graph, node, sizes);
    *mixes_items = *mixes_items || dim == LEAT_DIM_BATCH;
    for (uint32_t o = 0; o < count; o++) {
        outputs[o] = leat_shape_of(x);
        outputs[o].dims[axis] = known ? sizes[o] : LEAT_DIM_UNKNOWN;
        if (known && (sizes[o] < 0 || sizes[o] > LEAT_DIM_MAX)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "output %u has the size %lld", o,
                                  (long long)sizes[o]);
        }
        total += known ? sizes[o] : 0;
    }
    if (known && dim >= 0 && total != dim) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "sizes of %lld in all for %lld elements",
                              (long long)total, (long long)dim);
    }
    return LEAT_OK;
}

/* ---- Expand, Tile ----------------------------------------------------------------------------------------- */

LEAT_INFER_FUNCTION(expand)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t dims[LEAT_RANK_MAX];
    uint32_t rank = 0, count;

    const enum leat_status status = leat_check_shape(graph, node, 1, &rank);
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_shape *out = &outputs[0];
    *out = leat_unknown_shape(x->dtype, x->rank > rank ? x->rank : rank);
    if (!leat_read_ints(leat_node_input(graph, node, 1), LEAT_RANK_MAX, dims, &count)) {
        return LEAT_OK;
    }
    for (uint32_t d = 0; d < out->rank; d++) {
        const uint32_t before_x = out->rank - x->rank, before_shape = out->rank - count;
        const int64_t dim_x = d < before_x ? 1 : x->dims[d - before_x];
        const int64_t want = d < before_shape ? 1 : dims[d - before_shape];
        if (want < 0 || want > LEAT_DIM_MAX ||
            !leat_dim_broadcast(dim_x, want, &out->dims[d], mixes_items)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "dimension %lld cannot become %lld",
                                  (long long)dim_x, (long long)want);
        }
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(tile)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t repeats[LEAT_RANK_MAX];
    uint32_t count;

    const enum leat_status status = leat_check_vector(graph, node, 1, LEAT_TYPE(I64), x->rank);
    if (status != LEAT_OK) {
        return status;
    }
    outputs[0] = leat_unknown_shape(x->dtype, x->rank);
    if (!leat_read_ints(leat_node_input(graph, node, 1), LEAT_RANK_MAX, repeats, &count)) {
        *mixes_items = *mixes_items || leat_has_batch(x, 0, x->rank);
        return LEAT_OK;
    }
    for (uint32_t d = 0; d < count; d++) {
        if (repeats[d] < 0 || repeats[d] > LEAT_DIM_MAX) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "%lld repeats", (long long)repeats[d]);
        }
        *mixes_items = *mixes_items || (x->dims[d] == LEAT_DIM_BATCH && repeats[d] != 1);
        outputs[0].dims[d] = repeats[d] == 1   ? x->dims[d]
                             : x->dims[d] >= 0 ? x->dims[d] * repeats[d]
                                               : LEAT_DIM_UNKNOWN;
    }
    return LEAT_OK;
}

/* ---- Elements rearranged --------------------------------------------------------------------------------- */

static enum leat_status
read_block(const struct leat_graph *graph, const struct leat_node *node, bool *mixes_items,
           int64_t *ret_block)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    *ret_block = leat_node_int(node, "blocksize", 0);
    if (x->rank != 4 || *ret_block < 1 || *ret_block > 32768) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u and blocksize %lld", x->rank,
                              (long long)*ret_block);
    }
    *mixes_items = *mixes_items || leat_has_batch(x, 1, 4);
    return LEAT_OK;
}

/* *ret = dim / by, unknown when dim is; false when it does not divide. */
static bool
divide(int64_t dim, int64_t by, int64_t *ret)
{
    *ret = dim >= 0 ? dim / by : LEAT_DIM_UNKNOWN;
    return dim < 0 || dim % by == 0;
}

static int64_t
times(int64_t dim, int64_t by)
{
    return dim >= 0 ? dim * by : LEAT_DIM_UNKNOWN;
}

LEAT_INFER_FUNCTION(depth_to_space)
{
    const struct leat_attribute *mode = leat_node_attribute(node, "mode");
    int64_t block = 1;

    const enum leat_status status = read_block(graph, node, mixes_items, &block);
    if (status != LEAT_OK) {
        return status;
    }
    if (mode != NULL && strcmp(mode->s, "DCR") != 0 && strcmp(mode->s, "CRD") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "mode '%.32s' is neither DCR nor CRD", mode->s);
    }
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    if (!divide(outputs[0].dims[1], block * block, &outputs[0].dims[1])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its channels are no multiple of %lld",
                              (long long)(block * block));
    }
    outputs[0].dims[2] = times(outputs[0].dims[2], block);
    outputs[0].dims[3] = times(outputs[0].dims[3], block);
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(space_to_depth)
{
    const struct leat_attribute *mode = leat_node_attribute(node, "mode");
    int64_t block = 1;

    const enum leat_status status = read_block(graph, node, mixes_items, &block);
    if (status != LEAT_OK) {
        return status;
    }
    if (mode != NULL && strcmp(mode->s, "DCR") != 0) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "mode '%.32s' is not supported", mode->s);
    }
    outputs[0] = leat_shape_of(leat_node_input(graph, node, 0));
    outputs[0].dims[1] = times(outputs[0].dims[1], block * block);
    if (!divide(outputs[0].dims[2], block, &outputs[0].dims[2]) ||
        !divide(outputs[0].dims[3], block, &outputs[0].dims[3])) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its planes are no multiple of %lld",
                              (long long)block);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(reverse_sequence)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const int64_t time = leat_node_int(node, "time_axis", 0);
    const int64_t batch = leat_node_int(node, "batch_axis", 1);

    if (x->rank < 2 || time < 0 || time > 1 || batch != 1 - time) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "rank %u, time_axis %lld and batch_axis %lld",
                              x->rank, (long long)time, (long long)batch);
    }
    *mixes_items = *mixes_items || x->dims[time] == LEAT_DIM_BATCH;
    outputs[0] = leat_shape_of(x);
    return leat_check_vector(graph, node, 1, LEAT_TYPE(I64), x->dims[batch]);
}

LEAT_INFER_FUNCTION(trilu)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);

    if (x->rank < 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its input has rank %u, at least 2 is needed",
                              x->rank);
    }
    *mixes_items = *mixes_items || leat_has_batch(x, x->rank - 2, x->rank);
    outputs[0] = leat_shape_of(x);
    return leat_check_scalar(graph, node, 1, LEAT_TYPE(I64));
}
