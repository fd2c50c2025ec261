/* SPDX-License-Identifier: Apache-2.0 */
/* What the other operators do to positions; one that is not here may mix them. */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/padding/padding.h"

#define BIT(d) (UINT32_C(1) << (d))

static const struct leat_value *
value_of(const struct padding *p, const struct leat_node *node, uint32_t i)
{
    return leat_node_input(p->graph, node, i);
}

bool
padding_tail_is_finite(const struct padding_state *state)
{
    return state->finite && !(state->masked != 0 && isinf(state->margin));
}

bool
padding_loses_positions(const struct padding_state *in, uint32_t shift, const struct padding_state *out)
{
    return (in->axes << shift & ~out->axes) != 0;
}

static enum leat_status
mixes(const struct leat_node *node, const char *how)
{
    return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                          "padding could change its result, so the sequence can have one length only: %s", how);
}

/* ---- Axes that move ------------------------------------------------------------------------------------ */

static uint32_t
moved(uint32_t bits, const uint32_t *to, uint32_t rank)
{
    uint32_t result = 0;

    for (uint32_t d = 0; d < rank; d++) {
        result |= (bits & BIT(d)) != 0 && to[d] < LEAT_RANK_MAX ? BIT(to[d]) : 0;
    }
    return result;
}

/* Axis d of the input is axis to[d] of the result. */
static void
move_axes(const struct padding_state *in, const uint32_t *to, uint32_t rank, struct padding_state *out)
{
    const uint32_t axes = out->axes;

    *out = *in;
    out->axes = axes;
    out->zero = moved(in->zero, to, rank);
    out->resting = moved(in->resting, to, rank);
    out->masked = moved(in->masked, to, rank);
    if (in->known && in->mask != LEAT_VALUE_NONE) {
        out->mask_axis = to[in->mask_axis];
    }
    if (in->known && in->mask == LEAT_VALUE_NONE && in->off == 0) {
        out->zero = axes;
    }
}

static size_t
elements_before(const struct leat_value *value, uint32_t axis)
{
    size_t before = 1;

    for (uint32_t d = 0; d < axis; d++) {
        before *= (size_t)value->dims[d];
    }
    return before;
}

/* Row-major order keeps positions apart where as many elements are before their axis as there were. */
static enum leat_status
reshape(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    struct padding_state *out = &p->states[node->outputs[0]];
    const uint32_t from_rank = value_of(p, node, 0)->rank, to_rank = leat_node_output(p->graph, node, 0)->rank;
    uint32_t to[LEAT_RANK_MAX], found = 0;

    for (uint32_t d = 0; d < from_rank; d++) {
        to[d] = LEAT_RANK_MAX;
        for (uint32_t e = 0; e < to_rank && (in->axes & BIT(d)) != 0; e++) {
            bool same = (out->axes & BIT(e)) != 0;
            for (uint32_t k = 0; k < p->count && same; k++) {
                same = elements_before(leat_node_input(p->graphs[k], node, 0), d) ==
                       elements_before(leat_node_output(p->graphs[k], node, 0), e);
            }
            to[d] = same ? e : to[d];
        }
        if ((in->axes & BIT(d)) != 0 && to[d] == LEAT_RANK_MAX) {
            return mixes(node, "it puts positions and other elements in one row");
        }
        found |= (in->axes & BIT(d)) != 0 ? BIT(to[d]) : 0;
    }
    if (found != out->axes) {
        return mixes(node, "it spreads other elements over positions");
    }
    move_axes(in, to, from_rank, out);
    return LEAT_OK;
}

static enum leat_status
transpose(const struct padding *p, const struct leat_node *node)
{
    uint32_t perm[LEAT_RANK_MAX], to[LEAT_RANK_MAX];
    const uint32_t rank = value_of(p, node, 0)->rank;

    leat_transpose_perm(node, rank, perm);
    for (uint32_t d = 0; d < rank; d++) {
        to[perm[d]] = d;
    }
    move_axes(padding_input(p, node, 0), to, rank, &p->states[node->outputs[0]]);
    return LEAT_OK;
}

/* Expand and Tile: axes of one element are repeated, others once. */
static enum leat_status
expand(const struct padding *p, const struct leat_node *node)
{
    const struct leat_value *x = value_of(p, node, 0), *y = leat_node_output(p->graph, node, 0);
    const struct padding_state *in = padding_input(p, node, 0);
    struct padding_state *out = &p->states[node->outputs[0]];
    const uint32_t shift = y->rank - x->rank;
    uint32_t to[LEAT_RANK_MAX];

    if (padding_loses_positions(in, shift, out)) {
        return mixes(node, "it repeats positions as other elements");
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        to[d] = d + shift;
        if ((out->axes & BIT(to[d])) != 0 && (in->axes & BIT(d)) == 0 && x->dims[d] != 1) {
            return mixes(node, "it repeats other elements as positions");
        }
    }
    move_axes(in, to, x->rank, out);
    return LEAT_OK;
}

/* Parts of axes; of positions all, or the first one, which every sequence has. */
static enum leat_status
slice(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    const struct leat_value *x = value_of(p, node, 0);
    struct leat_slice first;
    uint32_t to[LEAT_RANK_MAX];

    for (uint32_t d = 0; d < x->rank; d++) {
        to[d] = d;
    }
    for (uint32_t k = 0; k < p->count; k++) {
        struct leat_slice slice = {.whole = {false}};
        bool known = false;
        enum leat_status status = leat_slice_of(p->graphs[k], node, &slice, &known);
        if (status != LEAT_OK) {
            return status;
        }
        if (!known) {
            return mixes(node, "what it takes is not constant");
        }
        first = k == 0 ? slice : first;
        for (uint32_t d = 0; d < x->rank; d++) {
            if ((in->axes & BIT(d)) == 0 &&
                (slice.start[d] != first.start[d] || slice.step[d] != first.step[d] || slice.count[d] != first.count[d])) {
                return mixes(node, "what it takes depends on the length of the sequence");
            }
            if ((in->axes & BIT(d)) == 0 || slice.whole[d]) {
                continue;
            }
            if (slice.start[d] != 0 || slice.count[d] != 1) {
                return mixes(node, "it takes certain positions, which a shorter sequence does not have");
            }
            to[d] = LEAT_RANK_MAX;
        }
    }
    if (in->known && in->mask != LEAT_VALUE_NONE && to[in->mask_axis] == LEAT_RANK_MAX) {
        struct padding_state plain = *in;
        plain.known = false;
        plain.mask = LEAT_VALUE_NONE;
        move_axes(&plain, to, x->rank, &p->states[node->outputs[0]]);
        return LEAT_OK;
    }
    move_axes(in, to, x->rank, &p->states[node->outputs[0]]);
    return LEAT_OK;
}

static enum leat_status
split(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    const uint32_t rank = value_of(p, node, 0)->rank;
    uint32_t to[LEAT_RANK_MAX];

    if ((in->axes & BIT(leat_node_axis(node, 0, rank))) != 0) {
        return mixes(node, "it takes certain positions, which a shorter sequence does not have");
    }
    for (uint32_t k = 0; k < p->count; k++) {
        int64_t first[LEAT_NODE_OUTPUTS_MAX], sizes[LEAT_NODE_OUTPUTS_MAX];
        if (!leat_split_sizes(p->graphs[0], node, first) || !leat_split_sizes(p->graphs[k], node, sizes) ||
            memcmp(first, sizes, node->output_count * sizeof(*sizes)) != 0) {
            return mixes(node, "what it takes depends on the length of the sequence");
        }
    }
    for (uint32_t d = 0; d < rank; d++) {
        to[d] = d;
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            move_axes(in, to, rank, &p->states[node->outputs[o]]);
        }
    }
    return LEAT_OK;
}

static enum leat_status
concat(const struct padding *p, const struct leat_node *node)
{
    struct padding_state *out = &p->states[node->outputs[0]];

    if ((out->axes & BIT(leat_node_axis(node, 0, value_of(p, node, 0)->rank))) != 0) {
        return mixes(node, "it joins sequences");
    }
    out->zero = out->resting = out->axes;
    out->rest = padding_input(p, node, 0)->rest;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct padding_state *in = padding_input(p, node, i);
        if (in->varies) {
            return mixes(node, "it reads a constant that is another one for each length");
        }
        out->zero &= in->zero;
        out->resting &= in->rest == out->rest ? in->resting : 0;
        out->finite = out->finite && padding_tail_is_finite(in);
    }
    return LEAT_OK;
}

/* ---- Sums over positions ----------------------------------------------------------------------------------- */

/* A matrix product's operands, and their axes: the one it sums over, the other one of each side, and those before. */
struct product_axes {
    uint32_t a, b;                       /* inputs */
    uint32_t zero_a, zero_b;             /* bit d: the tail along d of a, of b, stands for 0 */
    uint32_t sum_a, sum_b;               /* axes of a and b */
    uint32_t to_a[LEAT_RANK_MAX], to_b[LEAT_RANK_MAX]; /* in the result; LEAT_RANK_MAX: not there */
};

static enum leat_status
product(struct padding *p, const struct leat_node *node, const struct product_axes *axes)
{
    const bool biased = node->op->kind == LEAT_OP_GEMM || node->op->kind == LEAT_OP_MATMUL;
    const struct padding_state *a = padding_input(p, node, axes->a), *b = padding_input(p, node, axes->b);
    const struct padding_state *c = biased ? padding_input(p, node, 2) : NULL;
    struct padding_state *out = &p->states[node->outputs[0]];
    const uint32_t rank_a = value_of(p, node, axes->a)->rank, rank_b = value_of(p, node, axes->b)->rank;
    const bool sums = ((a->axes >> axes->sum_a) & 1) != 0 || ((b->axes >> axes->sum_b) & 1) != 0;
    const bool zero = ((axes->zero_a >> axes->sum_a) & 1) != 0 || ((axes->zero_b >> axes->sum_b) & 1) != 0;

    const uint32_t rows = a->axes & ~BIT(axes->sum_a), columns = b->axes & ~BIT(axes->sum_b);
    if (((moved(rows, axes->to_a, rank_a) | moved(columns, axes->to_b, rank_b)) & ~out->axes) != 0 ||
        (c != NULL && padding_loses_positions(c, leat_node_output(p->graph, node, 0)->rank - value_of(p, node, 2)->rank, out))) {
        return mixes(node, "it repeats positions as other elements");
    }
    out->finite = padding_tail_is_finite(a) && padding_tail_is_finite(b) && (c == NULL || padding_tail_is_finite(c));
    if (sums && !zero) {
        return mixes(node, "it sums over positions without a mask");
    }
    if (sums && !out->finite) {
        return mixes(node, "it sums over positions, and what padding has there may be infinite");
    }
    if (!sums && out->finite && c == NULL) {
        out->zero = (moved(axes->zero_a, axes->to_a, rank_a) | moved(axes->zero_b, axes->to_b, rank_b)) & out->axes;
    }
    return LEAT_OK;
}

static struct product_axes
matrices(const struct padding *p, const struct leat_node *node, uint32_t a, uint32_t b)
{
    const uint32_t rank_a = value_of(p, node, a)->rank, rank_b = value_of(p, node, b)->rank;
    const uint32_t rank = leat_node_output(p->graph, node, 0)->rank;
    struct product_axes axes = {.a = a,
                                .b = b,
                                .zero_a = padding_input(p, node, a)->zero,
                                .zero_b = padding_input(p, node, b)->zero,
                                .sum_a = rank_a - 1,
                                .sum_b = rank_b >= 2 ? rank_b - 2 : 0};
    /* As if both were matrices: where the result would have them. */
    const uint32_t full = rank + (rank_a == 1) + (rank_b == 1);

    for (uint32_t d = 0; d + 1 < rank_a; d++) {
        axes.to_a[d] = d + full - rank_a;
    }
    for (uint32_t d = 0; d < rank_b; d++) {
        axes.to_b[d] = d + full - rank_b - (rank_a == 1 && d + 1 == rank_b);
    }
    axes.to_a[axes.sum_a] = axes.to_b[axes.sum_b] = LEAT_RANK_MAX;
    return axes;
}

static enum leat_status
matmul(struct padding *p, const struct leat_node *node)
{
    const struct product_axes axes = matrices(p, node, 0, 1);
    return product(p, node, &axes);
}

/* MatMulInteger and QLinearMatMul: numbers that are the zero point add nothing, and a sum of nothing is the result's. */
static enum leat_status
matmul_numbers(struct padding *p, const struct leat_node *node)
{
    const bool scaled = node->op->kind == LEAT_OP_QLINEAR_MATMUL;
    const uint32_t b = scaled ? 3 : 1, zero_a = 2, zero_b = scaled ? 5 : 3, zero_y = 7;
    struct product_axes axes = matrices(p, node, 0, b);
    struct padding_state *out = &p->states[node->outputs[0]];
    double point;

    for (uint32_t i = 1; i < node->input_count; i++) {
        if (i != b && padding_input(p, node, i) != NULL && padding_input(p, node, i)->axes != 0) {
            return mixes(node, "its scales are those of positions");
        }
    }
    axes.zero_a = padding_resting(p, node, 0, zero_a);
    axes.zero_b = padding_resting(p, node, b, zero_b);
    const enum leat_status status = product(p, node, &axes);
    const uint32_t nothing = out->zero;
    if (status == LEAT_OK && scaled) {
        out->zero = 0;
        if (padding_zero_point(p, node, zero_y, &point) && padding_scales_hold(p, node, 1) &&
            padding_scales_hold(p, node, 4) && padding_scales_hold(p, node, 6)) {
            padding_rest(out, nothing, point);
        }
    }
    return status;
}

static enum leat_status
gemm(struct padding *p, const struct leat_node *node)
{
    const bool turned_a = leat_node_int(node, "transA", 0) != 0, turned_b = leat_node_int(node, "transB", 0) != 0;
    struct product_axes axes = {.a = 0,
                                .b = 1,
                                .zero_a = padding_input(p, node, 0)->zero,
                                .zero_b = padding_input(p, node, 1)->zero,
                                .sum_a = turned_a ? 0 : 1,
                                .sum_b = turned_b ? 1 : 0};

    axes.to_a[0] = axes.to_a[1] = axes.to_b[0] = axes.to_b[1] = LEAT_RANK_MAX;
    axes.to_a[turned_a ? 1 : 0] = 0;
    axes.to_b[turned_b ? 0 : 1] = 1;
    return product(p, node, &axes);
}

static enum leat_status
reduce(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    struct padding_state *out = &p->states[node->outputs[0]];
    const uint32_t rank = value_of(p, node, 0)->rank, reduced = leat_reduce_axes(p->graph, node);
    const bool keeps = leat_node_int(node, "keepdims", 1) != 0;
    const enum leat_op_kind kind = node->op->kind;
    const bool sum = kind == LEAT_OP_REDUCE_SUM || kind == LEAT_OP_REDUCE_SUM_SQUARE || kind == LEAT_OP_REDUCE_L1 ||
                     kind == LEAT_OP_REDUCE_L2;
    const bool of_zeros = sum || kind == LEAT_OP_REDUCE_MEAN || kind == LEAT_OP_REDUCE_MAX || kind == LEAT_OP_REDUCE_MIN;
    const bool squares = kind == LEAT_OP_REDUCE_SUM_SQUARE || kind == LEAT_OP_REDUCE_L1 || kind == LEAT_OP_REDUCE_L2;
    uint32_t to[LEAT_RANK_MAX], kept = 0;

    for (uint32_t d = 0; d < rank; d++) {
        const bool gone = (reduced & BIT(d)) != 0;
        to[d] = gone ? LEAT_RANK_MAX : kept;
        kept += !gone || keeps;
    }
    if ((reduced & in->axes) != 0 && (!sum || (reduced & in->axes & ~in->zero) != 0)) {
        return mixes(node, sum ? "it sums over positions without a mask" : "it reduces over positions");
    }
    const uint32_t positions = reduced & in->axes; /* of two tails, the corner that is in both is not known */
    if ((positions & (positions - 1)) != 0) {
        return mixes(node, "it sums over two axes of positions at once");
    }
    out->finite = padding_tail_is_finite(in) && kind != LEAT_OP_REDUCE_LOG_SUM;
    if ((reduced & in->axes) == 0 && of_zeros) {
        out->zero = moved(in->zero, to, rank);
    }
    out->sign = squares                                                        ? PADDING_NOT_NEGATIVE
                : of_zeros && kind != LEAT_OP_REDUCE_MIN && in->sign != PADDING_ANY ? PADDING_NOT_NEGATIVE
                                                                               : PADDING_ANY;
    return LEAT_OK;
}

/* Sums up to each position see nothing behind it. */
static enum leat_status
cum_sum(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    struct padding_state *out = &p->states[node->outputs[0]];
    const struct leat_value *x = value_of(p, node, 0);
    double axis;

    if (!leat_value_scalar(value_of(p, node, 1), &axis)) {
        return mixes(node, "its axis is not constant");
    }
    const uint32_t d = (uint32_t)(axis < 0 ? axis + (double)x->rank : axis);
    if ((in->axes & BIT(d)) != 0 && leat_node_int(node, "reverse", 0) != 0) {
        return mixes(node, "it sums over positions without a mask");
    }
    out->finite = padding_tail_is_finite(in);
    out->zero = in->zero & ~BIT(d);
    if (in->bounded && (x->dtype == LEAT_DTYPE_I64 || x->dtype == LEAT_DTYPE_I32)) {
        padding_set_bounds(out, fmin(0, in->least * (double)x->dims[d]), fmax(0, in->most * (double)x->dims[d]));
    }
    return LEAT_OK;
}

static enum leat_status
softmax(struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    struct padding_state *out = &p->states[node->outputs[0]];
    const struct leat_value *x = value_of(p, node, 0);
    struct leat_softmax_extent extent;
    uint32_t over = 0;
    size_t before = 1;

    leat_softmax_extent(p->graph, node, &extent);
    for (uint32_t d = 0; d < x->rank; d++) { /* the axes between outer and inner */
        over |= before >= extent.outer && before < extent.outer * extent.axis ? BIT(d) : 0;
        before *= (size_t)x->dims[d];
    }
    over &= in->axes;
    out->finite = in->finite;
    out->sign = PADDING_NOT_NEGATIVE;
    if (over == 0) {
        out->finite = padding_tail_is_finite(in);
        return LEAT_OK;
    }
    if ((over & (over - 1)) != 0 || (over & in->masked) == 0 || in->margin < LEAT_PADDING_MARGIN || !in->finite || in->uneven ||
        node->op->kind == LEAT_OP_HARDMAX) {
        return mixes(node, "it normalises over positions without one mask that excludes padding");
    }
    if (x->dtype != LEAT_DTYPE_F32) {
        return mixes(node, "it normalises over positions in doubles, of which less vanish");
    }
    p->masks_needed |= in->masks;
    if (node->op->kind == LEAT_OP_SOFTMAX) {
        out->zero = over;
    } else {
        out->sign = PADDING_ANY;
        out->finite = !isinf(in->margin);
    }
    return LEAT_OK;
}

/* ---- Look-ups ---------------------------------------------------------------------------------------------- */

static enum leat_status
gather(struct padding *p, const struct leat_node *node)
{
    const struct padding_state *data = padding_input(p, node, 0), *index = padding_input(p, node, 1);
    struct padding_state *out = &p->states[node->outputs[0]];
    const struct leat_value *x = value_of(p, node, 0), *i = value_of(p, node, 1);
    const uint32_t axis = (uint32_t)leat_node_axis(node, 0, x->rank);
    const double rows = (double)x->dims[axis];
    uint32_t to[LEAT_RANK_MAX];

    padding_use_as_numbers(p, index);
    for (uint32_t d = 0; d < x->rank; d++) {
        to[d] = d < axis ? d : d == axis ? LEAT_RANK_MAX : d + i->rank - 1;
    }
    if ((data->axes & BIT(axis)) != 0 && !(index->known && index->mask == LEAT_VALUE_NONE && index->off == 0)) {
        return mixes(node, "it takes certain positions, which a shorter sequence does not have");
    }
    const bool in_range = (index->known && index->off >= -rows && index->off < rows) ||
                          (index->bounded && index->least >= -rows && index->most < rows);
    const bool zero = (index->axes & (index->axes - 1)) == 0 && index->zero == index->axes;
    if (index->axes != 0 && !in_range && !zero) {
        return mixes(node, "what padding looks up may be out of range");
    }
    out->finite = padding_tail_is_finite(data);
    out->zero = moved(data->zero, to, x->rank) & out->axes;
    out->resting = moved(data->resting, to, x->rank) & out->axes;
    out->rest = data->rest;
    out->even = data->even;
    return LEAT_OK;
}

/* ---- Others -------------------------------------------------------------------------------------------------- */

static enum leat_status
layer_norm(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    const uint32_t rank = value_of(p, node, 0)->rank;
    const int64_t axis = leat_node_axis(node, -1, rank);

    if (in->axes >> axis != 0) {
        return mixes(node, "it takes the mean over positions");
    }
    bool finite = padding_tail_is_finite(in) && leat_node_float(node, "epsilon", 1e-5f) > 0;
    for (uint32_t i = 1; i < node->input_count; i++) {
        const struct padding_state *other = padding_input(p, node, i);
        if (other != NULL && padding_loses_positions(other, rank - value_of(p, node, i)->rank, in)) {
            return mixes(node, "it repeats positions as other elements");
        }
        finite = finite && (other == NULL || padding_tail_is_finite(other));
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            p->states[node->outputs[o]].finite = finite;
        }
    }
    return LEAT_OK;
}

/* Forward, a state sees no later position; the last state has seen all. */
static enum leat_status
recurrent(const struct padding *p, const struct leat_node *node)
{
    const struct padding_state *in = padding_input(p, node, 0);
    const struct leat_attribute *direction = leat_node_attribute(node, "direction");
    const bool forward = direction == NULL || direction->s[0] == 'f';

    for (uint32_t i = 1; i < node->input_count; i++) {
        const struct padding_state *other = padding_input(p, node, i);
        if (other != NULL && (other->axes != 0 || other->varies)) {
            return mixes(node, "a parameter of it has positions");
        }
    }
    if (in->axes != BIT(0) || leat_node_int(node, "layout", 0) != 0 || !forward || padding_input(p, node, 4) != NULL) {
        return mixes(node, "its steps are not along the sequence, forward, and all of it");
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            p->states[node->outputs[o]].finite = padding_tail_is_finite(in);
            p->states[node->outputs[o]].varies = o > 0;
        }
    }
    return LEAT_OK;
}

/* Without positions there is nothing to mix. */
static enum leat_status
other(const struct padding *p, const struct leat_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct padding_state *in = padding_input(p, node, i);
        if (in != NULL && in->axes != 0) {
            return mixes(node, "this operator may mix positions");
        }
        if (in != NULL && in->varies) {
            return mixes(node, "it reads what is another one for each length");
        }
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE && p->states[node->outputs[o]].axes != 0) {
            return mixes(node, "it spreads other elements over positions");
        }
    }
    return LEAT_OK;
}

/* How many of the first inputs are data; the others say shapes, axes and ends. */
static uint32_t
data_inputs(const struct leat_node *node)
{
    switch (node->op->kind) {
    case LEAT_OP_RESHAPE:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
    case LEAT_OP_EXPAND:
    case LEAT_OP_TILE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SPLIT:
        return 1;
    default:
        return node->input_count;
    }
}

static bool
is_reduction(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_REDUCE_L1:
    case LEAT_OP_REDUCE_L2:
    case LEAT_OP_REDUCE_LOG_SUM:
    case LEAT_OP_REDUCE_LOG_SUM_EXP:
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MEAN:
    case LEAT_OP_REDUCE_MIN:
    case LEAT_OP_REDUCE_PROD:
    case LEAT_OP_REDUCE_SUM:
    case LEAT_OP_REDUCE_SUM_SQUARE:
        return true;
    default:
        return false;
    }
}

enum leat_status
padding_apply(struct padding *p, const struct leat_node *node)
{
    bool sequence = false;

    for (uint32_t i = 0; i < data_inputs(node); i++) {
        const struct padding_state *in = padding_input(p, node, i);
        if (in != NULL && in->varies) {
            return mixes(node, "it reads what is another one for each length");
        }
        sequence = sequence || (in != NULL && in->axes != 0);
    }
    if (padding_is_elementwise(node->op->kind)) {
        return padding_elementwise(p, node);
    }
    if (node->op->kind == LEAT_OP_QUANTIZE_LINEAR || node->op->kind == LEAT_OP_DEQUANTIZE_LINEAR) {
        return padding_convert(p, node);
    }
    switch (node->op->kind) {
    case LEAT_OP_RESHAPE:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
        return reshape(p, node);
    case LEAT_OP_TRANSPOSE:
        return transpose(p, node);
    case LEAT_OP_EXPAND:
    case LEAT_OP_TILE:
        return expand(p, node);
    default:
        break;
    }
    if (!sequence) {
        return other(p, node);
    }
    if (is_reduction(node->op->kind)) {
        return reduce(p, node);
    }
    switch (node->op->kind) {
    case LEAT_OP_SLICE:
        return slice(p, node);
    case LEAT_OP_SPLIT:
        return split(p, node);
    case LEAT_OP_CONCAT:
        return concat(p, node);
    case LEAT_OP_CUM_SUM:
        return cum_sum(p, node);
    case LEAT_OP_GATHER:
        return gather(p, node);
    case LEAT_OP_GRU:
    case LEAT_OP_LSTM:
    case LEAT_OP_RNN:
        padding_use_as_numbers(p, padding_input(p, node, 0));
        return recurrent(p, node);
    case LEAT_OP_LAYER_NORMALIZATION:
        return layer_norm(p, node);
    default:
        break;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (padding_input(p, node, i) != NULL) {
            padding_use_as_numbers(p, padding_input(p, node, i));
        }
    }
    switch (node->op->kind) {
    case LEAT_OP_GEMM:
        return gemm(p, node);
    case LEAT_OP_MATMUL:
        return matmul(p, node);
    case LEAT_OP_MATMUL_INTEGER:
    case LEAT_OP_QLINEAR_MATMUL:
        return matmul_numbers(p, node);
    case LEAT_OP_SOFTMAX:
    case LEAT_OP_LOG_SOFTMAX:
        return softmax(p, node);
    default:
        return other(p, node);
    }
}
