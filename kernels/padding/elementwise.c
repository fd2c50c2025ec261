/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that take each element of their result from the elements at its own place, broadcast. */
#include <math.h>

#include "base/align.h"
#include "kernels/padding/padding.h"

#define OPERANDS_MAX 8u /* beyond it nothing is evaluated */

static const struct padding_offset minus_one = {-1, -1};

/* ---- Evaluation --------------------------------------------------------------------------------------- */

static bool
evaluate(const struct leat_node *node, const double *x, uint32_t count, double *ret)
{
    switch (node->op->kind) {
    case LEAT_OP_IDENTITY:
    case LEAT_OP_DROPOUT:
    case LEAT_OP_CAST:
    case LEAT_OP_CAST_LIKE:
        *ret = x[0];
        return true;
    case LEAT_OP_NEG:
        *ret = -x[0];
        return true;
    case LEAT_OP_ABS:
        *ret = fabs(x[0]);
        return true;
    case LEAT_OP_NOT:
        *ret = x[0] == 0;
        return true;
    default:
        break;
    }
    if (node->op->kind == LEAT_OP_WHERE) {
        *ret = x[0] != 0 ? x[1] : x[2];
        return true;
    }
    if (count != 2) {
        return false;
    }
    switch (node->op->kind) {
    case LEAT_OP_ADD:
        *ret = x[0] + x[1];
        return true;
    case LEAT_OP_SUB:
        *ret = x[0] - x[1];
        return true;
    case LEAT_OP_MUL:
        *ret = x[0] * x[1];
        return true;
    case LEAT_OP_EQUAL:
        *ret = x[0] == x[1];
        return true;
    case LEAT_OP_GREATER:
        *ret = x[0] > x[1];
        return true;
    case LEAT_OP_GREATER_OR_EQUAL:
        *ret = x[0] >= x[1];
        return true;
    case LEAT_OP_LESS:
        *ret = x[0] < x[1];
        return true;
    case LEAT_OP_LESS_OR_EQUAL:
        *ret = x[0] <= x[1];
        return true;
    case LEAT_OP_AND:
        *ret = x[0] != 0 && x[1] != 0;
        return true;
    case LEAT_OP_OR:
        *ret = x[0] != 0 || x[1] != 0;
        return true;
    case LEAT_OP_MAX:
        *ret = x[0] > x[1] ? x[0] : x[1];
        return true;
    case LEAT_OP_MIN:
        *ret = x[0] < x[1] ? x[0] : x[1];
        return true;
    default:
        return false;
    }
}

/* Whole numbers up to 2^31 only, where all types agree. */
#define WHOLE_MAX 2147483647.0

/* What the operator makes of numbers; false when this is not followed. */
static bool
evaluate_as(const struct leat_node *node, const struct leat_value *output, const double *operands, uint32_t count, double *ret)
{
    double result;

    if (!evaluate(node, operands, count, &result)) {
        return false;
    }
    switch (output->dtype) {
    case LEAT_DTYPE_F32:
        *ret = (double)(float)result;
        return true;
    case LEAT_DTYPE_F64:
        *ret = result;
        return true;
    case LEAT_DTYPE_BOOL:
        *ret = result != 0;
        return true;
    case LEAT_DTYPE_I32:
    case LEAT_DTYPE_I64:
        *ret = trunc(result);
        return fabs(result) <= WHOLE_MAX;
    default:
        return false;
    }
}

/* ---- Kinds of operators --------------------------------------------------------------------------------- */

/* Of zeros they make zero. */
static bool
keeps_zero(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_ABS:
    case LEAT_OP_ADD:
    case LEAT_OP_CAST:
    case LEAT_OP_CAST_LIKE:
    case LEAT_OP_CEIL:
    case LEAT_OP_DROPOUT:
    case LEAT_OP_ELU:
    case LEAT_OP_ERF:
    case LEAT_OP_FLOOR:
    case LEAT_OP_GELU:
    case LEAT_OP_HARD_SWISH:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_LEAKY_RELU:
    case LEAT_OP_MAX:
    case LEAT_OP_MEAN:
    case LEAT_OP_MIN:
    case LEAT_OP_NEG:
    case LEAT_OP_OR:
    case LEAT_OP_RELU:
    case LEAT_OP_ROUND:
    case LEAT_OP_SIGN:
    case LEAT_OP_SIN:
    case LEAT_OP_SOFTSIGN:
    case LEAT_OP_SQRT:
    case LEAT_OP_SUB:
    case LEAT_OP_SUM:
    case LEAT_OP_SWISH:
    case LEAT_OP_TANH:
        return true;
    default:
        return false;
    }
}

bool
padding_is_elementwise(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_ACOS:
    case LEAT_OP_ACOSH:
    case LEAT_OP_AND:
    case LEAT_OP_ASIN:
    case LEAT_OP_ASINH:
    case LEAT_OP_ATAN:
    case LEAT_OP_ATANH:
    case LEAT_OP_CELU:
    case LEAT_OP_CLIP:
    case LEAT_OP_COS:
    case LEAT_OP_COSH:
    case LEAT_OP_DIV:
    case LEAT_OP_EQUAL:
    case LEAT_OP_EXP:
    case LEAT_OP_GREATER:
    case LEAT_OP_GREATER_OR_EQUAL:
    case LEAT_OP_HARD_SIGMOID:
    case LEAT_OP_IS_INF:
    case LEAT_OP_IS_NAN:
    case LEAT_OP_LESS:
    case LEAT_OP_LESS_OR_EQUAL:
    case LEAT_OP_LOG:
    case LEAT_OP_MUL:
    case LEAT_OP_NOT:
    case LEAT_OP_POW:
    case LEAT_OP_PRELU:
    case LEAT_OP_RECIPROCAL:
    case LEAT_OP_SELU:
    case LEAT_OP_SHRINK:
    case LEAT_OP_SIGMOID:
    case LEAT_OP_SINH:
    case LEAT_OP_SOFTPLUS:
    case LEAT_OP_TAN:
    case LEAT_OP_THRESHOLDED_RELU:
    case LEAT_OP_WHERE:
    case LEAT_OP_XOR:
        return true;
    default:
        return keeps_zero(kind);
    }
}

/* ---- One node --------------------------------------------------------------------------------------------- */

struct operands {
    const struct padding *p;
    const struct leat_node *node;
    uint32_t count, out_rank;
    const struct padding_state *a, *b; /* the first two; NULL where there is none */
};

static const struct padding_state *
operand(const struct operands *all, uint32_t i)
{
    return &all->p->states[all->node->inputs[i]];
}

/* Axes of input i, counted as in the result. */
static uint32_t
shift_of(const struct operands *all, uint32_t i)
{
    return all->out_rank - all->p->graph->values[all->node->inputs[i]].rank;
}

/* One number, the same for all lengths. */
static bool
is_number(const struct padding_state *state)
{
    return state != NULL && state->known && state->mask == LEAT_VALUE_NONE;
}

static bool
is_constant(const struct operands *all, uint32_t i)
{
    return operand(all, i)->constant;
}

/* No score is in it. */
static bool
is_pure(const struct padding_state *state)
{
    return state->constant || state->known;
}

/* Given by attributes or as inputs, or not at all; false when one is not a constant number. */
static bool
clip_bounds(const struct operands *all, double *ret_least, double *ret_most)
{
    double bounds[3] = {0};

    bounds[1] = (double)leat_node_float(all->node, "min", -INFINITY);
    bounds[2] = (double)leat_node_float(all->node, "max", INFINITY);
    for (uint32_t i = 1; i < LEAT_COUNT_OF(bounds); i++) {
        const struct padding_state *bound = padding_input(all->p, all->node, i);
        if (bound != NULL && !is_number(bound)) {
            return false;
        }
        bounds[i] = bound != NULL ? bound->off : bounds[i];
    }
    *ret_least = bounds[1];
    *ret_most = bounds[2];
    return !isnan(bounds[1]) && !isnan(bounds[2]);
}

/* A constant that is nowhere zero. */
static bool
divides(const struct operands *all, uint32_t i)
{
    const struct leat_value *value = &all->p->graph->values[all->node->inputs[i]];
    double x;

    for (size_t e = 0; value->data != NULL && e < leat_value_elements(value); e++) {
        if (!padding_element(value, e, &x) || x == 0) {
            return false;
        }
    }
    return value->data != NULL;
}

/* The result is a function of one mask along one axis, or a number. */
static void
follow_mask(const struct operands *all, const struct leat_value *output, struct padding_state *out)
{
    double off[OPERANDS_MAX], on[OPERANDS_MAX];

    if (all->count > OPERANDS_MAX) {
        return;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        const struct padding_state *x = operand(all, i);
        const uint32_t axis = x->mask_axis + shift_of(all, i);
        if (!x->known) {
            return;
        }
        if (x->mask != LEAT_VALUE_NONE) {
            if (out->mask != LEAT_VALUE_NONE && (out->mask != x->mask || out->mask_axis != axis)) {
                out->mask = LEAT_VALUE_NONE;
                return;
            }
            out->mask = x->mask;
            out->mask_axis = axis;
        }
        off[i] = x->off;
        on[i] = x->on;
    }
    out->known = evaluate_as(all->node, output, off, all->count, &out->off) &&
                 evaluate_as(all->node, output, on, all->count, &out->on);
    if (!out->known) {
        out->mask = LEAT_VALUE_NONE;
        return;
    }
    if (out->off == 0) {
        out->zero |= out->mask != LEAT_VALUE_NONE ? UINT32_C(1) << out->mask_axis : out->axes;
    }
}

/* How much less the tail of a mask is than its counted positions; 0: no such thing. */
static double
margin_of(const struct padding_state *x)
{
    return x->known && x->mask != LEAT_VALUE_NONE && x->on - x->on == 0 && x->on - x->off >= LEAT_PADDING_MARGIN
               ? x->on - x->off
               : 0;
}

/* How much more is added to some positions than to others, as far as that is followed. */
static double
spread_of(const struct padding_state *x)
{
    const double spread = x->offset.most - x->offset.least;
    return x->axes != 0 && isfinite(spread) ? spread : 0;
}

/* Scores plus one mask. Of two, one could undo what the other does, or no position could count for both. */
static void
add_mask(const struct operands *all, struct padding_state *out)
{
    struct padding_offset offset = {0, 0};
    double spread = 0;
    uint32_t masked = 0;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct padding_state *x = operand(all, i);
        const double margin = x->masked != 0 ? x->margin : margin_of(x);
        const bool subtracted = all->node->op->kind == LEAT_OP_SUB && i == 1;
        if (margin == 0 && !x->of_masks) {
            offset = padding_offset_sum(offset, subtracted ? padding_offset_product(x->offset, minus_one) : x->offset);
            spread += spread_of(x);
            continue;
        }
        if (margin == 0 || masked++ > 0 || subtracted) {
            out->masked = 0;
            return;
        }
        out->masked = x->masked != 0 ? x->masked << shift_of(all, i) : UINT32_C(1) << (x->mask_axis + shift_of(all, i));
        out->margin = margin;
        offset = padding_offset_sum(offset, x->masked != 0 ? x->offset : padding_offset_of(x->on, x->on));
        out->masks = x->masked != 0 ? x->masks : UINT64_C(1) << x->mask;
    }
    if (masked > 0) {
        out->offset = offset;
        out->margin -= spread;
    }
}

static void
scale_mask(const struct operands *all, struct padding_state *out)
{
    const bool divides = all->node->op->kind == LEAT_OP_DIV;
    const uint32_t scores = !divides && is_number(all->a) ? 1 : 0;
    const struct padding_state *x = operand(all, scores), *factor = operand(all, 1 - scores);

    if (x->masked != 0 && is_number(factor) && factor->off > 0 && factor->off - factor->off == 0) {
        out->masked = x->masked << shift_of(all, scores);
        out->margin = divides ? x->margin / factor->off : x->margin * factor->off;
        out->masks = x->masks;
    }
}

/* Scores that are cut off below: still far below those that count. */
static void
limit_mask(const struct operands *all, struct padding_state *out)
{
    if (all->count != 2) {
        return;
    }
    const uint32_t scores = is_number(all->a) ? 1 : 0;
    const struct padding_state *x = operand(all, scores), *limit = operand(all, 1 - scores);
    if (x->masked != 0 && is_number(limit) && x->offset.least - limit->off >= LEAT_PADDING_MARGIN) {
        out->masked = x->masked << shift_of(all, scores);
        out->margin = fmin(x->margin, x->offset.least - limit->off);
        out->masks = x->masks;
    }
}

/* Where a mask chooses, its tail gets what it chooses there. */
static void
choose(const struct operands *all, struct padding_state *out)
{
    const struct padding_state *condition = all->a;
    if (!condition->known || condition->mask == LEAT_VALUE_NONE || (condition->off != 0) == (condition->on != 0)) {
        return;
    }
    const struct padding_state *tail = operand(all, condition->off != 0 ? 1 : 2), *counted = operand(all, condition->on != 0 ? 1 : 2);
    const uint32_t bit = UINT32_C(1) << (condition->mask_axis + shift_of(all, 0));
    if (!is_number(tail)) {
        return;
    }
    out->zero |= tail->off == 0 ? bit : 0;
    const double margin = tail->off == -INFINITY ? INFINITY : counted->offset.least - tail->off;
    if (margin >= LEAT_PADDING_MARGIN && tail->off <= -LEAT_PADDING_MARGIN && counted->finite && counted->masked == 0) {
        out->masked = bit;
        out->margin = margin;
        out->offset = counted->offset;
        out->masks = UINT64_C(1) << condition->mask;
        out->finite = true;
    }
}

/* Of the greater of two scores one is no less than the other: the greater of their offsets is its own. */
static struct padding_offset
meet(enum leat_op_kind kind, struct padding_offset a, struct padding_offset b)
{
    switch (kind) {
    case LEAT_OP_MAX:
        return padding_offset_of(fmax(a.least, b.least), fmax(a.most, b.most));
    case LEAT_OP_MIN:
        return padding_offset_of(fmin(a.least, b.least), fmin(a.most, b.most));
    default:
        return padding_offset_sum(a, b);
    }
}

/* Of what is masked add_mask() and choose() know better. What is not here makes something else of scores. */
static struct padding_offset
follow_offset(const struct operands *all, const struct leat_value *output)
{
    const struct padding_state *a = all->a, *b = all->b;
    const enum leat_op_kind kind = all->node->op->kind;
    const bool is_float = output->dtype == LEAT_DTYPE_F32 || output->dtype == LEAT_DTYPE_F64;
    const bool wide = is_float || output->dtype == LEAT_DTYPE_I32 || output->dtype == LEAT_DTYPE_I64;
    struct padding_offset offset = a->offset;
    double least, most;

    if (!wide) {
        return output->dtype == LEAT_DTYPE_BOOL ? padding_offset_of(0, 1) : padding_offset_lost();
    }
    switch (kind) {
    case LEAT_OP_IDENTITY:
    case LEAT_OP_DROPOUT:
    case LEAT_OP_CAST:
    case LEAT_OP_CAST_LIKE:
        return a->offset;
    case LEAT_OP_NEG:
        return padding_offset_product(a->offset, minus_one);
    case LEAT_OP_SUB:
        return padding_offset_sum(a->offset, padding_offset_product(b->offset, minus_one));
    case LEAT_OP_MUL:
        return is_pure(a) || is_pure(b) ? padding_offset_product(a->offset, b->offset) : padding_offset_lost();
    case LEAT_OP_DIV:
        return is_pure(b) && (b->offset.least > 0 || b->offset.most < 0)
                   ? padding_offset_product(a->offset, padding_offset_of(1 / b->offset.most, 1 / b->offset.least))
                   : padding_offset_lost();
    case LEAT_OP_CLIP:
        if (!clip_bounds(all, &least, &most)) {
            return padding_offset_lost();
        }
        return meet(LEAT_OP_MIN, meet(LEAT_OP_MAX, offset, padding_offset_of(least, least)), padding_offset_of(most, most));
    case LEAT_OP_WHERE:
        return padding_offset_hull(b->offset, operand(all, 2)->offset);
    case LEAT_OP_ADD:
    case LEAT_OP_SUM:
    case LEAT_OP_MEAN:
    case LEAT_OP_MAX:
    case LEAT_OP_MIN:
        for (uint32_t i = 1; i < all->count; i++) {
            offset = meet(kind, offset, operand(all, i)->offset);
        }
        return kind == LEAT_OP_MEAN ? padding_offset_of(offset.least / all->count, offset.most / all->count) : offset;
    default:
        return padding_offset_lost();
    }
}

/* Whether what the node does with masks is in its result's state. */
static bool
is_followed(const struct operands *all, const struct padding_state *out)
{
    const enum leat_op_kind kind = all->node->op->kind;
    bool zeroes = true; /* as a factor, a mask leaves all but the tail alone */

    for (uint32_t i = 0; i < all->count; i++) {
        const struct padding_state *x = operand(all, i);
        zeroes = zeroes && (!x->of_masks || (x->known && x->off == 0));
    }
    switch (kind) {
    case LEAT_OP_ADD:
    case LEAT_OP_SUB:
        return out->known || out->masked != 0;
    case LEAT_OP_MUL:
        return out->known || out->masked != 0 || zeroes;
    case LEAT_OP_WHERE: /* of a mask alone: the tail is 0, or masked */
        return out->known || (all->a->known && (out->masked != 0 || out->zero != 0) && !operand(all, 1)->of_masks &&
                              !operand(all, 2)->of_masks);
    default:
        return out->known;
    }
}

/* After all else is known of the result. */
static void
mind_masks(struct padding *p, const struct operands *all, const struct leat_value *output, struct padding_state *out)
{
    const bool followed = is_followed(all, out);
    bool masks = false, others = false;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct padding_state *x = operand(all, i);
        masks = masks || x->of_masks;
        others = others || (!x->of_masks && !is_constant(all, i));
        out->uneven = out->uneven || x->uneven || (x->masked != 0 && out->masked == 0);
        if (!followed) {
            padding_use_as_numbers(p, x);
        }
    }
    out->of_masks = masks && !others;
    out->uneven = (out->uneven || (masks && others && !followed)) && output->dtype != LEAT_DTYPE_BOOL;
}

static uint32_t
zeros(const struct operands *all)
{
    const enum leat_op_kind kind = all->node->op->kind;
    const bool product = kind == LEAT_OP_MUL || kind == LEAT_OP_AND;
    uint32_t every = UINT32_MAX, any = 0;
    bool finite = true;

    for (uint32_t i = 0; i < all->count; i++) {
        const struct padding_state *x = operand(all, i);
        const uint32_t zero = x->zero << shift_of(all, i);
        if (kind == LEAT_OP_WHERE && i == 0) {
            continue;
        }
        every &= is_number(x) && x->off == 0 ? UINT32_MAX : zero;
        any |= zero;
        finite = finite && padding_tail_is_finite(x);
    }
    if (product) {
        return finite ? any : 0;
    }
    return keeps_zero(kind) || kind == LEAT_OP_WHERE ? every : 0;
}

static enum padding_sign
sign_of(const struct operands *all)
{
    const struct padding_state *a = all->a, *b = all->b;
    const enum padding_sign less = b == NULL || a->sign < b->sign ? a->sign : b->sign;
    const enum padding_sign more = b == NULL || a->sign > b->sign ? a->sign : b->sign;
    const bool same = all->count == 2 && all->node->inputs[0] == all->node->inputs[1];
    double lower, upper;

    switch (all->node->op->kind) {
    case LEAT_OP_ADD:
        return less == PADDING_ANY ? PADDING_ANY : more;
    case LEAT_OP_MUL: /* a product of positive ones may be too small for a float */
    case LEAT_OP_DIV:
        return same || less != PADDING_ANY ? PADDING_NOT_NEGATIVE : PADDING_ANY;
    case LEAT_OP_POW: /* of an even number */
        return less != PADDING_ANY || (is_number(b) && fmod(b->off, 2) == 0) ? PADDING_NOT_NEGATIVE : PADDING_ANY;
    case LEAT_OP_MAX:
        return all->count <= 2 ? more : PADDING_ANY;
    case LEAT_OP_CLIP:
        if (!clip_bounds(all, &lower, &upper)) {
            return PADDING_ANY;
        }
        return lower > 0 && upper > 0 ? PADDING_POSITIVE
               : upper > 0            ? a->sign
                                      : PADDING_ANY;
    case LEAT_OP_ABS:
    case LEAT_OP_RELU:
        return a->sign != PADDING_ANY ? a->sign : PADDING_NOT_NEGATIVE;
    case LEAT_OP_EXP:
    case LEAT_OP_SIGMOID:
        return PADDING_NOT_NEGATIVE;
    case LEAT_OP_SQRT:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_DROPOUT:
        return a->sign;
    default:
        return PADDING_ANY;
    }
}

/* Finite operands make a finite result, as long as nothing overflows. */
static bool
stays_finite(const struct operands *all)
{
    const struct padding_state *a = all->a, *b = all->b;
    double lower, upper;

    switch (all->node->op->kind) {
    case LEAT_OP_DIV:
        return divides(all, 1) || b->sign == PADDING_POSITIVE;
    case LEAT_OP_LOG:
    case LEAT_OP_RECIPROCAL:
        return a->sign == PADDING_POSITIVE;
    case LEAT_OP_SQRT:
        return a->sign != PADDING_ANY;
    case LEAT_OP_POW:
        return a->sign == PADDING_POSITIVE ||
               (is_number(b) && b->off >= 0 && (a->sign != PADDING_ANY || b->off - floor(b->off) == 0));
    case LEAT_OP_CLIP:
        return clip_bounds(all, &lower, &upper) && lower < INFINITY && upper > -INFINITY;
    case LEAT_OP_ACOS:
    case LEAT_OP_ACOSH:
    case LEAT_OP_ASIN:
    case LEAT_OP_ATANH:
    case LEAT_OP_TAN:
        return false;
    default:
        return true;
    }
}

static bool
is_whole(const struct leat_value *value)
{
    return value->dtype != LEAT_DTYPE_F32 && value->dtype != LEAT_DTYPE_F64 && value->dtype != LEAT_DTYPE_BOOL;
}

void
padding_set_bounds(struct padding_state *state, double least, double most)
{
    state->bounded = least >= -WHOLE_MAX && most <= WHOLE_MAX;
    state->least = least;
    state->most = most;
}

/* Of indices that are computed; floats have none. */
static void
bound(const struct operands *all, const struct leat_value *output, struct padding_state *out)
{
    const struct padding_state *a = all->a, *b = all->b;

    if (output->dtype == LEAT_DTYPE_BOOL) {
        padding_set_bounds(out, 0, 1);
        return;
    }
    if ((output->dtype != LEAT_DTYPE_I64 && output->dtype != LEAT_DTYPE_I32) || !a->bounded || (all->count > 1 && !b->bounded)) {
        return;
    }
    switch (all->node->op->kind) {
    case LEAT_OP_CAST:
    case LEAT_OP_IDENTITY:
        padding_set_bounds(out, a->least, a->most);
        break;
    case LEAT_OP_ADD:
        padding_set_bounds(out, a->least + b->least, a->most + b->most);
        break;
    case LEAT_OP_SUB:
        padding_set_bounds(out, a->least - b->most, a->most - b->least);
        break;
    case LEAT_OP_MUL:
        padding_set_bounds(out, fmin(fmin(a->least * b->least, a->least * b->most), fmin(a->most * b->least, a->most * b->most)),
                           fmax(fmax(a->least * b->least, a->least * b->most), fmax(a->most * b->least, a->most * b->most)));
        break;
    default:
        break;
    }
}

enum leat_status
padding_elementwise(struct padding *p, const struct leat_node *node)
{
    const struct leat_value *output = &p->graph->values[node->outputs[0]];
    struct padding_state *out = &p->states[node->outputs[0]];
    struct operands all = {.p = p, .node = node, .out_rank = output->rank};

    /* Omitted bounds of a Clip are at the end or in the middle: only what is there before counts. */
    while (all.count < node->input_count && node->inputs[all.count] != LEAT_VALUE_NONE) {
        all.count++;
    }
    all.a = operand(&all, 0);
    all.b = all.count > 1 ? operand(&all, 1) : NULL;
    for (uint32_t i = 0; i < all.count; i++) {
        if (padding_loses_positions(operand(&all, i), shift_of(&all, i), out)) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "it repeats positions as other elements");
        }
    }
    if (node->op->kind == LEAT_OP_DIV && is_whole(output) && out->axes != 0 && !divides(&all, 1)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "it would divide by the zeros of padding");
    }
    out->finite = stays_finite(&all);
    for (uint32_t i = 0; i < all.count; i++) {
        /* -inf may stand for what is excluded. */
        const struct padding_state *x = operand(&all, i);
        out->finite = out->finite && (x->finite || is_number(x) || margin_of(x) > 0);
    }
    out->zero = zeros(&all) & out->axes;
    out->sign = sign_of(&all);
    out->offset = follow_offset(&all, output);
    bound(&all, output, out);
    follow_mask(&all, output, out);
    if (out->known) {
        out->finite = out->off - out->off == 0 && out->on - out->on == 0;
        out->offset = padding_offset_of(fmin(out->off, out->on), fmax(out->off, out->on));
    } else {
        switch (node->op->kind) {
        case LEAT_OP_ADD:
        case LEAT_OP_SUB:
            add_mask(&all, out);
            break;
        case LEAT_OP_MUL:
        case LEAT_OP_DIV:
            scale_mask(&all, out);
            break;
        case LEAT_OP_MAX:
            limit_mask(&all, out);
            break;
        case LEAT_OP_WHERE:
            choose(&all, out);
            break;
        case LEAT_OP_IDENTITY:
        case LEAT_OP_DROPOUT:
        case LEAT_OP_CAST:
            out->masked = all.a->masked;
            out->margin = all.a->margin;
            out->masks = all.a->masks;
            break;
        default:
            break;
        }
    }
    /* An infinite tail survives only where it is known to be one. */
    for (uint32_t i = 0; i < all.count && out->masked == 0 && !out->known; i++) {
        out->finite = out->finite && padding_tail_is_finite(operand(&all, i));
    }
    if (output->dtype != LEAT_DTYPE_F32 && output->dtype != LEAT_DTYPE_F64) {
        out->masked = 0;
        out->finite = true;
    }
    mind_masks(p, &all, output, out);
    return LEAT_OK;
}
