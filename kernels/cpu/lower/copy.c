/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators whose results are elements of their operand at other places: Transpose, Tile, Expand, DepthToSpace and
 * SpaceToDepth. All are one step: a walk through the result, of which each axis goes through the operand with a stride of its own.
 */
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum {
    AXES_MAX = 2 * LEAT_RANK_MAX,
    SHARED_LEAST = 16 << 10, /* bytes for each member of a team */
};

/* The axes of one side, outermost first, and how many elements of the other side lie between neighbours along each. */
struct walk {
    uint32_t rank;
    int64_t dims[AXES_MAX], strides[AXES_MAX];
};

/* ---- The step --------------------------------------------------------------------------------------- */

/* `count` blocks of `bytes`, `stride` bytes apart, become neighbours. */
static void
copy_blocks(unsigned char *out, const unsigned char *in, size_t count, size_t stride, size_t bytes)
{
    switch (bytes) {
    case 1:
        for (size_t i = 0; i < count; i++) {
            out[i] = in[i * stride];
        }
        break;
    case 4:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * 4, in + i * stride, 4);
        }
        break;
    case 8:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * 8, in + i * stride, 8);
        }
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            memcpy(out + i * bytes, in + i * stride, bytes);
        }
    }
}

/* The place of a row in the side that is walked through, and how to go on; dims and strides (in bytes) are the walk's. */
struct place {
    int64_t at[LEAT_RANK_MAX], offset;
};

static struct place
place_of(const struct cpu_step *step, size_t row)
{
    struct place place = {.offset = 0};

    for (uint32_t d = step->rank - 1; d-- > 0; row /= (size_t)step->dims[d]) {
        place.at[d] = (int64_t)(row % (size_t)step->dims[d]);
        place.offset += place.at[d] * step->strides[d];
    }
    return place;
}

static void
next_place(const struct cpu_step *step, struct place *place)
{
    for (uint32_t d = step->rank - 1; d-- > 0;) {
        place->offset += step->strides[d];
        if (++place->at[d] < step->dims[d]) {
            break;
        }
        place->offset -= step->strides[d] * step->dims[d];
        place->at[d] = 0;
    }
}

/* Rows are what the last axis has. */
static void
copy_rows(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const uint32_t last = step->rank - 1;
    const size_t count = (size_t)step->dims[last], stride = (size_t)step->strides[last], bytes = step->element_bytes;
    struct place place = place_of(step, begin);

    for (size_t row = begin; row < end; row++) {
        const unsigned char *in = (const unsigned char *)call->pointers[0] + place.offset;
        copy_blocks((unsigned char *)call->pointers[1] + row * count * bytes, in, count, stride, bytes);
        next_place(step, &place);
    }
}

/* args: operand, result. count: rows. */
static enum leat_status
run_copy(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t row = (size_t)step->dims[step->rank - 1] * step->element_bytes;

    cpu_share(call, copy_rows, step->count, SHARED_LEAST / row + 1);
    return LEAT_OK;
}

/* ---- Walks ------------------------------------------------------------------------------------------ */

/* Behind the axes that are there, with the last of which it becomes one where it goes on as that does. */
static void
add_axis(struct walk *walk, int64_t dim, int64_t stride)
{
    const uint32_t last = walk->rank - 1;

    if (dim == 1) {
        return;
    }
    if (walk->rank > 0 && walk->strides[last] == stride * dim) {
        walk->dims[last] *= dim;
        walk->strides[last] = stride;
        return;
    }
    walk->dims[walk->rank] = dim;
    walk->strides[walk->rank++] = stride;
}

/* How many elements lie between neighbours along each axis of a plain tensor. */
static void
plain_strides(const struct leat_value *x, int64_t strides[LEAT_RANK_MAX])
{
    int64_t stride = 1;

    for (uint32_t d = x->rank; d-- > 0;) {
        strides[d] = stride;
        stride *= x->dims[d];
    }
}

/* A step that goes along the walk. */
static enum leat_status
add_copy(struct cpu_builder *b, struct walk *walk)
{
    const struct leat_value *y = leat_node_output(b->graph, b->node, 0);
    const size_t size = leat_dtype_bytes(y->dtype);
    struct cpu_arg args[2] = {{0, 0}, {0, 0}};
    struct cpu_step *step;
    size_t block = size;

    if (walk->rank > 0 && walk->strides[walk->rank - 1] == 1) {
        block *= (size_t)walk->dims[--walk->rank];
    }
    if (walk->rank == 0) {
        walk->dims[0] = 1;
        walk->strides[walk->rank++] = 0;
    }
    if (walk->rank > LEAT_RANK_MAX) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, run_copy, args, 2, &step);
    }
    if (status != LEAT_OK) {
        return status;
    }
    step->rank = walk->rank;
    step->element_bytes = block;
    for (uint32_t d = 0; d < walk->rank; d++) {
        step->dims[d] = walk->dims[d];
        step->strides[d] = walk->strides[d] * (int64_t)size;
    }
    step->count = leat_value_elements(y) * size / block / (size_t)walk->dims[walk->rank - 1];
    return LEAT_OK;
}

/* ---- Operators -------------------------------------------------------------------------------------- */

/* In floats by oneDNN, which walks through tiles of both sides. */
static enum leat_status
lower_transpose(struct cpu_builder *b, const struct leat_value *x, const struct leat_value *y, const int64_t *strides)
{
    uint32_t perm[LEAT_RANK_MAX], from, turned, to;
    int64_t permuted[LEAT_RANK_MAX];
    struct walk walk = {.rank = 0};

    leat_transpose_perm(b->node, x->rank, perm);
    for (uint32_t d = 0; d < y->rank; d++) {
        permuted[d] = strides[perm[d]];
        add_axis(&walk, y->dims[d], permuted[d]);
    }
    if (y->dtype != LEAT_DTYPE_F32 || y->rank > 6) {
        return add_copy(b, &walk);
    }
    const dnnl_memory_desc_t md = cpu_strided_md(y->dims, permuted, y->rank);
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &from);
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &to);
    }
    if (status == LEAT_OK) {
        status = cpu_view(b, from, &md, &turned);
    }
    return status == LEAT_OK ? cpu_add_reorder(b, turned, to) : status;
}

/* [items][channels][height][width], where blocks of blocksize x blocksize pixels come out of channels. */
static enum leat_status
lower_depth_to_space(struct cpu_builder *b, const struct leat_value *x, const struct leat_value *y, const int64_t *strides)
{
    const struct leat_attribute *mode = leat_node_attribute(b->node, "mode");
    const bool depth_first = mode == NULL || strcmp(mode->s, "DCR") == 0;
    const int64_t block = leat_node_int(b->node, "blocksize", 1), channels = y->dims[1];
    const int64_t place = depth_first ? channels * strides[1] : strides[1]; /* from one pixel of a block to the next */
    struct walk walk = {.rank = 0};

    add_axis(&walk, y->dims[0], strides[0]);
    add_axis(&walk, channels, depth_first ? strides[1] : block * block * strides[1]);
    add_axis(&walk, x->dims[2], strides[2]);
    add_axis(&walk, block, block * place);
    add_axis(&walk, x->dims[3], strides[3]);
    add_axis(&walk, block, place);
    return add_copy(b, &walk);
}

static enum leat_status
lower_space_to_depth(struct cpu_builder *b, const struct leat_value *x, const struct leat_value *y, const int64_t *strides)
{
    const int64_t block = leat_node_int(b->node, "blocksize", 1);
    struct walk walk = {.rank = 0};

    add_axis(&walk, y->dims[0], strides[0]);
    add_axis(&walk, block, strides[2]);
    add_axis(&walk, block, strides[3]);
    add_axis(&walk, x->dims[1], strides[1]);
    add_axis(&walk, y->dims[2], block * strides[2]);
    add_axis(&walk, y->dims[3], block * strides[3]);
    return add_copy(b, &walk);
}

/* Each axis of the result is the operand's, so many times. */
static enum leat_status
lower_tile(struct cpu_builder *b, const struct leat_value *x, const struct leat_value *y, const int64_t *strides)
{
    struct walk walk = {.rank = 0};

    for (uint32_t d = 0; d < y->rank; d++) {
        add_axis(&walk, y->dims[d] / x->dims[d], 0);
        add_axis(&walk, x->dims[d], strides[d]);
    }
    return add_copy(b, &walk);
}

/* The operand's axes are the result's last ones; of one element, they stay where they are. */
static enum leat_status
lower_expand(struct cpu_builder *b, const struct leat_value *x, const struct leat_value *y, const int64_t *strides)
{
    const uint32_t missing = y->rank - x->rank;
    struct walk walk = {.rank = 0};

    for (uint32_t d = 0; d < y->rank; d++) {
        add_axis(&walk, y->dims[d], d < missing || x->dims[d - missing] == 1 ? 0 : strides[d - missing]);
    }
    return add_copy(b, &walk);
}

enum leat_status
cpu_lower_copy(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    int64_t strides[LEAT_RANK_MAX];

    if (x->rank == 0 || leat_value_elements(x) == 0 || leat_value_elements(y) == 0) {
        return LEAT_AGAIN;
    }
    plain_strides(x, strides);
    switch (b->node->op->kind) {
    case LEAT_OP_TRANSPOSE:
        return lower_transpose(b, x, y, strides);
    case LEAT_OP_DEPTH_TO_SPACE:
        return lower_depth_to_space(b, x, y, strides);
    case LEAT_OP_SPACE_TO_DEPTH:
        return lower_space_to_depth(b, x, y, strides);
    case LEAT_OP_TILE:
        return lower_tile(b, x, y, strides);
    default:
        LEAT_ASSERT(b->node->op->kind == LEAT_OP_EXPAND);
        return lower_expand(b, x, y, strides);
    }
}
