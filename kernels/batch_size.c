/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/batch_size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/op.h"

enum {
    OPERANDS_MAX = 64,   /* of one element */
    ELEMENTS_MAX = 4096, /* of numbers */
};
#define WHOLE_MAX (INT64_C(1) << 45) /* sums and multiples of such fit in 64 bits */

/* ---- Lines ------------------------------------------------------------------------------------------ */

static int64_t
at(const struct leat_batch_line *line, int64_t items)
{
    return line->base + line->per * items;
}

/* Whole numbers up to this are exact in a type, and so is what one operation makes of them; 0: they are not followed. */
static int64_t
exact_max(uint32_t dtype)
{
    switch (dtype) {
    case LEAT_DTYPE_I64:
    case LEAT_DTYPE_F64:
        return WHOLE_MAX;
    case LEAT_DTYPE_I32:
        return INT64_C(1) << 30;
    case LEAT_DTYPE_F32:
        return INT64_C(1) << 24;
    case LEAT_DTYPE_BOOL:
        return 1;
    default:
        return 0;
    }
}

static bool
is_within(const struct leat_batch_line *line, int64_t most)
{
    const int64_t first = at(line, 1), last = at(line, LEAT_ITEMS_MAX);
    return first >= -most && first <= most && last >= -most && last <= most;
}

static bool
whole_at(const struct leat_value *value, size_t i, int64_t *ret)
{
    double number;

    switch (value->dtype) {
    case LEAT_DTYPE_I64:
        *ret = ((const int64_t *)value->data)[i];
        break;
    case LEAT_DTYPE_I32:
        *ret = ((const int32_t *)value->data)[i];
        break;
    case LEAT_DTYPE_BOOL:
        *ret = ((const uint8_t *)value->data)[i] != 0;
        break;
    case LEAT_DTYPE_F32:
    case LEAT_DTYPE_F64:
        number = value->dtype == LEAT_DTYPE_F32 ? (double)((const float *)value->data)[i]
                                                : ((const double *)value->data)[i];
        if (!(fabs(number) <= (double)WHOLE_MAX) || number != nearbyint(number)) {
            return false;
        }
        *ret = (int64_t)number;
        break;
    default:
        return false;
    }
    return *ret >= -WHOLE_MAX && *ret <= WHOLE_MAX;
}

static bool
line_through(const struct leat_batch_probe *probe, int64_t few, int64_t many,
             struct leat_batch_line *ret)
{
    const int64_t from = probe->a->items, step = probe->b->items - from;

    ret->per = (many - few) / step;
    ret->base = few - ret->per * from;
    return (many - few) % step == 0;
}

bool
leat_batch_line_at(const struct leat_batch_probe *probe, uint32_t value, size_t i,
                   struct leat_batch_line *ret)
{
    const struct leat_value *a = &probe->a->values[value], *b = &probe->b->values[value];
    const size_t bytes = leat_dtype_bytes(a->dtype);
    int64_t few, many;

    *ret = (struct leat_batch_line){0};
    if (a->data == NULL || b->data == NULL || !leat_value_in_place(a) || !leat_value_in_place(b)) {
        return false;
    }
    ret->is_constant =
        memcmp((const char *)a->data + i * bytes, (const char *)b->data + i * bytes, bytes) == 0;
    ret->is_whole = whole_at(a, i, &few) && whole_at(b, i, &many) &&
                    line_through(probe, few, many, ret) && is_within(ret, exact_max(a->dtype));
    return ret->is_constant || ret->is_whole;
}

bool
leat_batch_line_reaches(const struct leat_batch_line *line, const struct leat_batch_line *least)
{
    return line->is_whole && least->is_whole && at(line, 1) >= at(least, 1) &&
           at(line, LEAT_ITEMS_MAX) >= at(least, LEAT_ITEMS_MAX);
}

/* ---- Arithmetic ------------------------------------------------------------------------------------- */

static struct leat_batch_line
add(const struct leat_batch_line *x, int64_t factor, const struct leat_batch_line *y)
{
    return (struct leat_batch_line){
        .is_whole = true, .base = x->base + factor * y->base, .per = x->per + factor * y->per};
}

static bool
multiply(const struct leat_batch_line *x, const struct leat_batch_line *y,
         struct leat_batch_line *ret)
{
    const struct leat_batch_line *one = x->per == 0 ? x : y, *other = one == x ? y : x;

    *ret = (struct leat_batch_line){.is_whole = true};
    return one->per == 0 && !__builtin_mul_overflow(one->base, other->base, &ret->base) &&
           !__builtin_mul_overflow(one->base, other->per, &ret->per) &&
           llabs(ret->base) <= INT64_MAX / 4 && llabs(ret->per) <= INT64_MAX / 4 / LEAT_ITEMS_MAX;
}

/* Nothing is left over, whatever the number of items is. */
static bool
divides(const struct leat_batch_line *x, const struct leat_batch_line *by,
        const struct leat_batch_line *quotient)
{
    const int64_t first = at(by, 1), last = at(by, LEAT_ITEMS_MAX);
    struct leat_batch_line product;

    return ((first > 0 && last > 0) || (first < 0 && last < 0)) &&
           multiply(by, quotient, &product) && product.base == x->base && product.per == x->per;
}

static bool
holds(enum leat_op_kind kind, int64_t difference)
{
    switch (kind) {
    case LEAT_OP_GREATER:
        return difference > 0;
    case LEAT_OP_GREATER_OR_EQUAL:
        return difference >= 0;
    case LEAT_OP_LESS:
        return difference < 0;
    case LEAT_OP_LESS_OR_EQUAL:
        return difference <= 0;
    default:
        return difference == 0;
    }
}

/* The same is true for every number of items. A line crosses zero once. */
static bool
compares(enum leat_op_kind kind, const struct leat_batch_line *x, const struct leat_batch_line *y)
{
    const struct leat_batch_line difference = add(x, -1, y);
    const int64_t first = at(&difference, 1), last = at(&difference, LEAT_ITEMS_MAX);

    if (kind == LEAT_OP_EQUAL && difference.per != 0) {
        const int64_t where = -difference.base / difference.per;
        return difference.base % difference.per != 0 || where < 1 ||
               where > (int64_t)LEAT_ITEMS_MAX;
    }
    return holds(kind, first) == holds(kind, last);
}

/* The one that is never below the other, or never above it. */
static bool
choose(enum leat_op_kind kind, const struct leat_batch_line *x, const struct leat_batch_line *y,
       struct leat_batch_line *ret)
{
    const bool x_reaches = leat_batch_line_reaches(x, y), y_reaches = leat_batch_line_reaches(y, x);
    *ret = x_reaches == (kind == LEAT_OP_MAX) ? *x : *y;
    return x_reaches || y_reaches;
}

/* Operators of as many operands as there are, from the first two on. */
static bool
accumulate(enum leat_op_kind kind, const struct leat_batch_line *x, uint32_t count, int64_t most,
           struct leat_batch_line *ret)
{
    bool known = count > 0 && x[0].is_whole;

    *ret = count > 0 ? x[0] : (struct leat_batch_line){0};
    for (uint32_t i = 1; i < count && known; i++) {
        const struct leat_batch_line before = *ret;
        known = x[i].is_whole;
        if (known && kind == LEAT_OP_ADD) {
            *ret = add(&before, 1, &x[i]);
        } else if (known && kind == LEAT_OP_MUL) {
            known = multiply(&before, &x[i], ret);
        } else if (known) {
            known = choose(kind, &before, &x[i], ret);
        }
        known = known && is_within(ret, most);
    }
    return known;
}

static bool
are_same(const struct leat_batch_line *x, const struct leat_batch_line *y)
{
    return x->is_whole && y->is_whole ? x->base == y->base && x->per == y->per
                                      : x->is_constant && y->is_constant;
}

/* The element that both copies have is what the operator makes of its operands for every number of items. */
static bool
is_computed(enum leat_op_kind kind, const struct leat_batch_line *x, uint32_t count, int64_t most,
            const struct leat_batch_line *result)
{
    struct leat_batch_line wanted = {0};
    bool constant = true, whole = result->is_whole;

    for (uint32_t i = 0; i < count; i++) {
        constant = constant && x[i].is_constant;
        whole = whole && x[i].is_whole;
    }
    if (constant) {
        return result->is_constant;
    }
    switch (kind) {
    case LEAT_OP_ADD:
    case LEAT_OP_SUM:
    case LEAT_OP_REDUCE_SUM:
        return accumulate(LEAT_OP_ADD, x, count, most, &wanted) && are_same(&wanted, result);
    case LEAT_OP_MUL:
    case LEAT_OP_REDUCE_PROD:
        return accumulate(LEAT_OP_MUL, x, count, most, &wanted) && are_same(&wanted, result);
    case LEAT_OP_MAX:
    case LEAT_OP_REDUCE_MAX:
        return accumulate(LEAT_OP_MAX, x, count, most, &wanted) && are_same(&wanted, result);
    case LEAT_OP_MIN:
    case LEAT_OP_REDUCE_MIN:
        return accumulate(LEAT_OP_MIN, x, count, most, &wanted) && are_same(&wanted, result);
    case LEAT_OP_SUB:
        wanted = whole ? add(&x[0], -1, &x[1]) : wanted;
        return whole && are_same(&wanted, result);
    case LEAT_OP_NEG:
        wanted.is_whole = true;
        wanted = whole ? add(&wanted, -1, &x[0]) : wanted;
        return whole && are_same(&wanted, result);
    case LEAT_OP_DIV:
        return whole && divides(&x[0], &x[1], result);
    case LEAT_OP_CAST:
    case LEAT_OP_CEIL:
    case LEAT_OP_FLOOR:
    case LEAT_OP_ROUND:
        return whole && are_same(&x[0], result);
    case LEAT_OP_EQUAL:
    case LEAT_OP_GREATER:
    case LEAT_OP_GREATER_OR_EQUAL:
    case LEAT_OP_LESS:
    case LEAT_OP_LESS_OR_EQUAL:
        return x[0].is_whole && x[1].is_whole && compares(kind, &x[0], &x[1]) &&
               result->is_constant;
    case LEAT_OP_WHERE:
        return x[0].is_constant && x[0].is_whole && are_same(&x[x[0].base != 0 ? 1 : 2], result);
    default:
        return false;
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------ */

static enum leat_batch_role
role_of_elements(const struct leat_batch_probe *probe, uint32_t value)
{
    const struct leat_value *a = &probe->a->values[value], *b = &probe->b->values[value];
    return a->data_bytes == b->data_bytes && memcmp(a->data, b->data, a->data_bytes) == 0
               ? LEAT_BATCH_APART
               : LEAT_BATCH_NUMBERS;
}

/* Each of its elements is one of an operand's, from a place that is the same in each batch. */
static bool
moves(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    switch (node->op->kind) {
    case LEAT_OP_CONCAT:
        return true;
    case LEAT_OP_EXPAND:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_GATHER:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_TILE:
    case LEAT_OP_TRANSPOSE:
    case LEAT_OP_UNSQUEEZE:
        break;
    default:
        return false;
    }
    for (uint32_t i = 1; i < node->input_count; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE &&
            probe->roles[node->inputs[i]] != LEAT_BATCH_APART) {
            return false;
        }
    }
    return true;
}

/* Where element i of the output has its operand, by the rules of broadcasting. */
static size_t
operand_of(const struct leat_value *x, const struct leat_value *y, size_t i)
{
    size_t place = 0, stride = 1;

    for (uint32_t d = y->rank; d-- > 0;) {
        const size_t along = i % (size_t)y->dims[d];
        i /= (size_t)y->dims[d];
        if (d + x->rank >= y->rank) {
            const size_t dim = (size_t)x->dims[d + x->rank - y->rank];
            place += dim > 1 ? along * stride : 0;
            stride *= dim;
        }
    }
    return place;
}

/* Each of its elements is of one element of each operand. */
static bool
is_elementwise(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_ABS:
    case LEAT_OP_ADD:
    case LEAT_OP_AND:
    case LEAT_OP_CAST:
    case LEAT_OP_CEIL:
    case LEAT_OP_DIV:
    case LEAT_OP_EQUAL:
    case LEAT_OP_FLOOR:
    case LEAT_OP_GREATER:
    case LEAT_OP_GREATER_OR_EQUAL:
    case LEAT_OP_LESS:
    case LEAT_OP_LESS_OR_EQUAL:
    case LEAT_OP_MAX:
    case LEAT_OP_MIN:
    case LEAT_OP_MOD:
    case LEAT_OP_MUL:
    case LEAT_OP_NEG:
    case LEAT_OP_NOT:
    case LEAT_OP_OR:
    case LEAT_OP_POW:
    case LEAT_OP_ROUND:
    case LEAT_OP_SQRT:
    case LEAT_OP_SUB:
    case LEAT_OP_SUM:
    case LEAT_OP_WHERE:
        return true;
    default:
        return false;
    }
}

static bool
computes_elements(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_value *y = leat_node_output(probe->a, node, 0);
    const int64_t most = exact_max(y->dtype);
    struct leat_batch_line x[OPERANDS_MAX], result;

    if (node->input_count > OPERANDS_MAX) {
        return false;
    }
    for (size_t i = 0; i < leat_value_elements(y); i++) {
        for (uint32_t k = 0; k < node->input_count; k++) {
            if (node->inputs[k] == LEAT_VALUE_NONE ||
                !leat_batch_line_at(probe, node->inputs[k],
                                    operand_of(leat_node_input(probe->a, node, k), y, i), &x[k])) {
                return false;
            }
        }
        if (!leat_batch_line_at(probe, node->outputs[0], i, &result) ||
            !is_computed(node->op->kind, x, node->input_count, most, &result)) {
            return false;
        }
    }
    return true;
}

/* One number from all elements of the first input. */
static bool
reduces_all(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(probe->a, node, 0);
    const size_t count = leat_value_elements(x);
    struct leat_batch_line elements[OPERANDS_MAX], result;

    if ((x->dtype != LEAT_DTYPE_I64 && x->dtype != LEAT_DTYPE_I32) || count > OPERANDS_MAX ||
        leat_value_elements(leat_node_output(probe->a, node, 0)) != 1 ||
        leat_reduce_axes(probe->a, node) != (1u << x->rank) - 1) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!leat_batch_line_at(probe, node->inputs[0], i, &elements[i])) {
            return false;
        }
    }
    return leat_batch_line_at(probe, node->outputs[0], 0, &result) &&
           is_computed(node->op->kind, elements, (uint32_t)count, exact_max(x->dtype), &result);
}

enum leat_batch_role
leat_batch_compute(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const uint32_t output = node->outputs[0];
    const struct leat_value *a = &probe->a->values[output], *b = &probe->b->values[output];
    bool known = a->dtype == b->dtype && leat_value_elements(a) <= ELEMENTS_MAX;

    for (uint32_t d = 0; d < a->rank; d++) {
        known = known && a->dims[d] == b->dims[d];
    }
    if (!known) {
        return LEAT_BATCH_OTHER;
    }
    switch (node->op->kind) {
    case LEAT_OP_REDUCE_MAX:
    case LEAT_OP_REDUCE_MIN:
    case LEAT_OP_REDUCE_PROD:
    case LEAT_OP_REDUCE_SUM:
        known = reduces_all(probe, node);
        break;
    default:
        known = moves(probe, node) ||
                (is_elementwise(node->op->kind) && computes_elements(probe, node));
        break;
    }
    return known ? role_of_elements(probe, output) : LEAT_BATCH_OTHER;
}

enum leat_batch_role
leat_batch_describe(const struct leat_batch_probe *probe, const struct leat_node *node)
{
    const struct leat_value *x = leat_node_input(probe->marked, node, 0);
    uint32_t axes = 0;

    for (uint32_t d = 0; d < x->rank; d++) {
        axes += x->dims[d] == LEAT_DIM_BATCH;
    }
    /* A product of several is no line. */
    return node->op->kind == LEAT_OP_SHAPE || axes <= 1 ? role_of_elements(probe, node->outputs[0])
                                                        : LEAT_BATCH_OTHER;
}
