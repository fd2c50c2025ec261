/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/layers.h"

#include <stdio.h>
#include <string.h>

/* From operator set 13 on, Squeeze, Unsqueeze, Split and ReduceSum take axes and extents as an input. */
#define AXES_ARE_INPUTS 13

/* A node whose second argument is a list of integers, in the form that the operator set wants. */
static struct onnx_node *
node_with_list(struct onnx_builder *b, const char *op, const char *name, const char *input, const char *list_name,
               const int64_t *list, uint32_t count, uint32_t outputs)
{
    const char *inputs[2] = {input};

    if (onnx_builder_opset_version(b) >= AXES_ARE_INPUTS) {
        inputs[1] = onnx_builder_constant_integers(b, layer_part(name, list_name).text, list, count);
        return onnx_builder_node_outputs(b, op, name, inputs, 2, outputs);
    }
    struct onnx_node *node = onnx_builder_node_outputs(b, op, name, inputs, 1, outputs);
    onnx_node_ints(node, list_name, list, count);
    return node;
}

/* The extent of a symbol of x's shape: i64 of rank 0. */
static const char *
extent_of(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t symbol)
{
    const char *inputs[2];
    int64_t axis = 0;

    while (axis < x.rank && x.dims[axis] != symbol) {
        axis++;
    }
    LEAT_ASSERT(axis < x.rank);
    inputs[0] = onnx_node_output(onnx_builder_node(b, "Shape", layer_part(name, "shape").text, &x.name, 1));
    inputs[1] = onnx_builder_constant_integers(b, layer_part(name, "index").text, &axis, 0);
    struct onnx_node *node = onnx_builder_node(b, "Gather", layer_part(name, "gather").text, inputs, 2);
    onnx_node_int(node, "axis", 0);
    return onnx_node_output(node);
}

const char *
layer_extent_list(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t symbol)
{
    return onnx_node_output(node_with_list(b, "Unsqueeze", layer_part(name, "unsqueeze").text,
                                           extent_of(b, name, x, symbol), "axes", (const int64_t[]){0}, 1, 1));
}

const char *
layer_shape(struct onnx_builder *b, const char *name, struct onnx_tensor x, const int64_t *dims, uint32_t rank)
{
    const char *extents[ONNX_RANK_MAX];

    LEAT_ASSERT(rank > 0 && rank <= ONNX_RANK_MAX);
    for (uint32_t d = 0; d < rank; d++) {
        char index[16];
        (void)snprintf(index, sizeof(index), "dim%u", d);
        const struct part_name part = layer_part(name, index);
        extents[d] = dims[d] < 0 ? layer_extent_list(b, part.text, x, dims[d])
                                 : onnx_builder_constant_integers(b, part.text, &dims[d], 1);
    }
    struct onnx_node *node = onnx_builder_node(b, "Concat", layer_part(name, "concat").text, extents, rank);
    onnx_node_int(node, "axis", 0);
    return onnx_node_output(node);
}

static int64_t
elements(const struct onnx_builder *b, const int64_t *dims, uint32_t rank)
{
    int64_t product = 1;
    for (uint32_t d = 0; d < rank; d++) {
        product *= onnx_builder_extent(b, dims[d]);
    }
    return product;
}

static struct onnx_tensor
reshape(struct onnx_builder *b, const char *name, struct onnx_tensor x, const char *shape, const int64_t *dims,
        uint32_t rank)
{
    LEAT_ASSERT(elements(b, x.dims, x.rank) == elements(b, dims, rank));
    x.name = onnx_node_output(onnx_builder_node(b, "Reshape", name, (const char *[]){x.name, shape}, 2));
    memcpy(x.dims, dims, rank * sizeof(*dims));
    x.rank = rank;
    return x;
}

struct onnx_tensor
layer_view(struct onnx_builder *b, const char *name, struct onnx_tensor x, const int64_t *dims, uint32_t rank)
{
    return reshape(b, name, x, layer_shape(b, name, x, dims, rank), dims, rank);
}

struct onnx_tensor
layer_reshape_to(struct onnx_builder *b, const char *name, struct onnx_tensor x, const int64_t *dims, uint32_t rank)
{
    int64_t shape[ONNX_RANK_MAX];
    uint32_t symbols = 0;

    LEAT_ASSERT(rank > 0 && rank <= ONNX_RANK_MAX);
    for (uint32_t d = 0; d < rank; d++) {
        shape[d] = dims[d] < 0 ? -1 : dims[d];
        symbols += dims[d] < 0;
    }
    LEAT_ASSERT(symbols <= 1);
    return reshape(b, name, x, onnx_builder_integers(b, layer_part(name, "shape").text, shape, rank), dims, rank);
}

struct onnx_tensor
layer_transpose(struct onnx_builder *b, const char *name, struct onnx_tensor x, const int64_t *order)
{
    struct onnx_node *node = onnx_builder_node(b, "Transpose", name, &x.name, 1);
    const struct onnx_tensor from = x;

    onnx_node_ints(node, "perm", order, x.rank);
    for (uint32_t d = 0; d < x.rank; d++) {
        x.dims[d] = from.dims[order[d]];
    }
    x.name = onnx_node_output(node);
    return x;
}

static void
remove_axis(struct onnx_tensor *x, uint32_t axis)
{
    LEAT_ASSERT(axis < x->rank);
    memmove(&x->dims[axis], &x->dims[axis + 1], (x->rank - axis - 1) * sizeof(*x->dims));
    x->rank--;
}

struct onnx_tensor
layer_unsqueeze(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis)
{
    LEAT_ASSERT(axis <= x.rank && x.rank < ONNX_RANK_MAX);
    x.name = onnx_node_output(node_with_list(b, "Unsqueeze", name, x.name, "axes", (const int64_t[]){axis}, 1, 1));
    memmove(&x.dims[axis + 1], &x.dims[axis], (x.rank - axis) * sizeof(*x.dims));
    x.dims[axis] = 1;
    x.rank++;
    return x;
}

struct onnx_tensor
layer_squeeze(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis)
{
    LEAT_ASSERT(axis < x.rank && x.dims[axis] == 1);
    x.name = onnx_node_output(node_with_list(b, "Squeeze", name, x.name, "axes", (const int64_t[]){axis}, 1, 1));
    remove_axis(&x, axis);
    return x;
}

struct onnx_tensor
layer_slice(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis, int64_t first,
            int64_t end)
{
    const char *inputs[5] = {x.name};

    LEAT_ASSERT(axis < x.rank && 0 <= first && first < end && end <= x.dims[axis]);
    inputs[1] = onnx_builder_constant_integers(b, layer_part(name, "starts").text, &first, 1);
    inputs[2] = onnx_builder_constant_integers(b, layer_part(name, "ends").text, &end, 1);
    inputs[3] = onnx_builder_constant_integers(b, layer_part(name, "axes").text, (const int64_t[]){axis}, 1);
    inputs[4] = onnx_builder_constant_integers(b, layer_part(name, "steps").text, (const int64_t[]){1}, 1);
    x.name = onnx_node_output(onnx_builder_node(b, "Slice", name, inputs, 5));
    x.dims[axis] = end - first;
    return x;
}

struct onnx_tensor
layer_slice_to(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis, const char *extent,
               int64_t symbol)
{
    const char *inputs[5] = {x.name, NULL, extent};

    LEAT_ASSERT(axis < x.rank && (x.dims[axis] < 0 || onnx_builder_extent(b, symbol) <= x.dims[axis]));
    inputs[1] = onnx_builder_constant_integers(b, layer_part(name, "starts").text, (const int64_t[]){0}, 1);
    inputs[3] = onnx_builder_constant_integers(b, layer_part(name, "axes").text, (const int64_t[]){axis}, 1);
    inputs[4] = onnx_builder_constant_integers(b, layer_part(name, "steps").text, (const int64_t[]){1}, 1);
    x.name = onnx_node_output(onnx_builder_node(b, "Slice", name, inputs, 5));
    x.dims[axis] = symbol;
    return x;
}

struct onnx_tensor
layer_stride(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis, int64_t step,
             int64_t extent)
{
    const char *inputs[5] = {x.name};

    LEAT_ASSERT(axis < x.rank);
    LEAT_ASSERT(onnx_builder_extent(b, extent) == (onnx_builder_extent(b, x.dims[axis]) + step - 1) / step);
    inputs[1] = onnx_builder_constant_integers(b, layer_part(name, "starts").text, (const int64_t[]){0}, 1);
    inputs[2] = onnx_builder_constant_integers(b, layer_part(name, "ends").text, (const int64_t[]){INT64_MAX}, 1);
    inputs[3] = onnx_builder_constant_integers(b, layer_part(name, "axes").text, (const int64_t[]){axis}, 1);
    inputs[4] = onnx_builder_constant_integers(b, layer_part(name, "steps").text, &step, 1);
    x.name = onnx_node_output(onnx_builder_node(b, "Slice", name, inputs, 5));
    x.dims[axis] = extent;
    return x;
}

struct onnx_tensor
layer_range(struct onnx_builder *b, const char *name, struct onnx_tensor x, int64_t symbol)
{
    const char *inputs[3];

    inputs[0] = layer_integer(b, layer_part(name, "start").text, 0).name;
    inputs[1] = extent_of(b, layer_part(name, "limit").text, x, symbol);
    inputs[2] = layer_integer(b, layer_part(name, "delta").text, 1).name;
    return (struct onnx_tensor){.name = onnx_node_output(onnx_builder_node(b, "Range", name, inputs, 3)),
                                .rank = 1,
                                .dims = {symbol},
                                .power = 1.0};
}

struct onnx_tensor
layer_where(struct onnx_builder *b, const char *name, struct onnx_tensor condition, struct onnx_tensor x,
            struct onnx_tensor y)
{
    const char *inputs[3] = {condition.name, x.name, y.name};

    /* Broadcast all three; the condition is the widest in every model so far. */
    for (uint32_t d = 0; d < condition.rank; d++) {
        const uint32_t from_end = condition.rank - d;
        LEAT_ASSERT(x.rank < from_end || x.dims[x.rank - from_end] == condition.dims[d]);
        LEAT_ASSERT(y.rank < from_end || y.dims[y.rank - from_end] == condition.dims[d]);
    }
    condition.name = onnx_node_output(onnx_builder_node(b, "Where", name, inputs, 3));
    condition.power = x.power > y.power ? x.power : y.power;
    return condition;
}

struct onnx_tensor
layer_select(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis, int64_t index)
{
    const char *inputs[2] = {x.name};

    inputs[1] = onnx_builder_constant_integers(b, layer_part(name, "index").text, &index, 0);
    struct onnx_node *node = onnx_builder_node(b, "Gather", name, inputs, 2);
    onnx_node_int(node, "axis", axis);
    x.name = onnx_node_output(node);
    remove_axis(&x, axis);
    return x;
}

void
layer_split(struct onnx_builder *b, const char *name, struct onnx_tensor x, uint32_t axis, const int64_t *extents,
            uint32_t count, struct onnx_tensor *ret_parts)
{
    LEAT_ASSERT(axis < x.rank);
    int64_t rest = x.dims[axis];
    struct onnx_node *node = node_with_list(b, "Split", name, x.name, "split", extents, count, count);

    onnx_node_int(node, "axis", axis);
    for (uint32_t i = 0; i < count; i++) {
        ret_parts[i] = x;
        ret_parts[i].name = onnx_node_output_at(node, i);
        ret_parts[i].dims[axis] = extents[i];
        rest -= extents[i];
    }
    LEAT_ASSERT(rest == 0);
}

struct onnx_tensor
layer_reduce(struct onnx_builder *b, const char *op, const char *name, struct onnx_tensor x, uint32_t axis, bool keep)
{
    const int64_t axes[1] = {axis};
    struct onnx_node *node;

    LEAT_ASSERT(axis < x.rank);
    if (strcmp(op, "ReduceSum") == 0) {
        node = node_with_list(b, op, name, x.name, "axes", axes, 1, 1);
    } else { /* the others follow with operator set 18 */
        node = onnx_builder_node(b, op, name, &x.name, 1);
        onnx_node_ints(node, "axes", axes, 1);
    }
    onnx_node_int(node, "keepdims", keep);
    x.name = onnx_node_output(node);
    if (keep) {
        x.dims[axis] = 1;
    } else {
        remove_axis(&x, axis);
    }
    return x;
}

struct onnx_tensor
layer_cast(struct onnx_builder *b, const char *name, struct onnx_tensor x, enum onnx_type type)
{
    struct onnx_node *node = onnx_builder_node(b, "Cast", name, &x.name, 1);

    onnx_node_int(node, "to", type);
    x.name = onnx_node_output(node);
    return x;
}

struct onnx_tensor
layer_matmul(struct onnx_builder *b, const char *name, struct onnx_tensor x, struct onnx_tensor y)
{
    const uint32_t lead = y.rank - 2;
    const int64_t depth = x.dims[x.rank - 1];

    LEAT_ASSERT(x.rank >= 2 && y.rank >= 2 && x.rank >= y.rank && y.dims[lead] == depth);
    for (uint32_t d = 0; d < lead; d++) {
        LEAT_ASSERT(y.dims[d] == x.dims[d + x.rank - y.rank] || y.dims[d] == 1);
    }
    x.name = onnx_node_output(onnx_builder_node(b, "MatMul", name, (const char *[]){x.name, y.name}, 2));
    x.dims[x.rank - 1] = y.dims[y.rank - 1];
    x.power *= y.power * (double)onnx_builder_extent(b, depth);
    onnx_builder_count(b, elements(b, x.dims, x.rank) * onnx_builder_extent(b, depth));
    return x;
}
