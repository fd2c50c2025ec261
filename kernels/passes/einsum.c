/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Einsums of more operands become such of two first, and sums over one operand alone Einsums of one (contract.c). An Einsum of two
 * operands that is a product of matrices becomes MatMul and what brings operands and result into its order.
 *
 * A label of the equation counts matrices where both operands and the result carry it, rows where the left operand and the
 * result do, columns where the right one and the result do, and is summed over where the operands alone do. With them in the
 * result's order, MatMul reads
 *     left  f32[matrices ...][rows ...][row][summed]
 *     right f32[matrices ...][1 ...][summed][column]
 * Which operand is the left one is free. Rows but the last are as good as matrices that share what is right of them, so they
 * may be of any size; several columns, or labels summed over, become one axis by Reshape, where their sizes are known. A
 * missing row or column is an axis of one element, which goes afterwards. Where nothing is summed over, it is a Mul.
 *
 * An Einsum of one operand takes diagonals, sums and brings axes into order: a diagonal of axes of n elements, behind all others, is
 * each (1 + n + ...)th element of what they are as one axis.
 *
 * All else stays, as labels whose axes are not certainly equal, of which Einsum refuses what MatMul would broadcast. But an ellipsis is
 * broadcast by both, and its axes are labels like others.
 */
#include <stdlib.h>

#include "kernels/einsum.h"
#include "kernels/passes/passes.h"

#define ONE UINT8_MAX /* an axis of one element in a label's place */

/* For one Einsum at most, of each: four diagonals, a sum and an order. */
#define NODES_MAX  14u
#define VALUES_MAX 35u

struct axes {
    uint32_t count;
    uint8_t labels[2 * LEAT_RANK_MAX];
};

struct product {
    struct leat_einsum einsum;
    uint32_t left, right;                   /* which operand */
    struct axes matrices, rows, columns; /* in the result's order */
    struct axes summed;                  /* in the right operand's */
};

static void
append(struct axes *axes, uint8_t label)
{
    LEAT_ASSERT(axes->count < sizeof(axes->labels));
    axes->labels[axes->count++] = label;
}

static void
append_all(struct axes *axes, const struct axes *more)
{
    for (uint32_t i = 0; i < more->count; i++) {
        append(axes, more->labels[i]);
    }
}

/* Where the label is among so many, which is `count` where it is not. */
static uint32_t
place_of(const uint8_t *labels, uint32_t count, uint8_t label)
{
    uint32_t d = 0;
    while (d < count && labels[d] != label) {
        d++;
    }
    return d;
}

static bool
has_label(const uint8_t *labels, uint32_t count, uint8_t label)
{
    return place_of(labels, count, label) < count;
}

/* Axes that both operands carry are equal, in each run, or broadcast by both operators. */
static bool
fits(uint8_t label, int64_t left, int64_t right, bool in_result)
{
    return (left == right && left != LEAT_DIM_UNKNOWN) || (label >= LEAT_EINSUM_LETTERS && in_result);
}

/* Sorts the labels; false where one of them is of no kind. */
static bool
sort_labels(const struct leat_value *const x[2], struct product *p)
{
    const struct leat_einsum *einsum = &p->einsum;
    const uint8_t *left = einsum->labels[p->left], *right = einsum->labels[p->right];
    const uint32_t left_rank = x[p->left]->rank, right_rank = x[p->right]->rank;

    for (uint32_t d = 0; d < einsum->output_rank; d++) {
        const uint8_t label = einsum->output[d];
        const bool in_left = has_label(left, left_rank, label), in_right = has_label(right, right_rank, label);
        append(in_left && in_right ? &p->matrices : in_left ? &p->rows : &p->columns, label);
    }
    for (uint32_t d = 0; d < left_rank; d++) {
        const bool in_result = has_label(einsum->output, einsum->output_rank, left[d]);
        const uint32_t other = place_of(right, right_rank, left[d]);
        if (has_label(left, d, left[d]) || (other == right_rank && !in_result) ||
            (other < right_rank && !fits(left[d], x[p->left]->dims[d], x[p->right]->dims[other], in_result))) {
            return false;
        }
    }
    for (uint32_t d = 0; d < right_rank; d++) {
        const bool in_result = has_label(einsum->output, einsum->output_rank, right[d]);
        if (has_label(right, d, right[d]) || (!in_result && !has_label(left, left_rank, right[d]))) {
            return false;
        }
        if (!in_result) {
            append(&p->summed, right[d]);
        }
    }
    return true;
}

/* Several labels can become one axis: Reshape can be told of its size. */
static bool
can_merge(const struct leat_einsum *einsum, const struct axes *axes)
{
    int64_t size = 1;
    for (uint32_t i = 0; i < axes->count && axes->count > 1 && size > 0; i++) {
        const int64_t own = einsum->size[axes->labels[i]];
        size = own > 0 && own <= LEAT_DIM_MAX / size ? size * own : 0;
    }
    return size > 0;
}

/* Reshape can be told of it, or that it is what is left: of no elements that is not known. */
static bool
may_be_left(int64_t size)
{
    return size != 0 && size != LEAT_DIM_UNKNOWN;
}

static void
left_axes(const struct product *p, struct axes *ret)
{
    *ret = (struct axes){0};
    append_all(ret, &p->matrices);
    append_all(ret, &p->rows);
    if (p->rows.count == 0) {
        append(ret, ONE);
    }
    append_all(ret, &p->summed);
}

static void
right_axes(const struct product *p, struct axes *ret)
{
    *ret = (struct axes){0};
    append_all(ret, &p->matrices);
    for (uint32_t i = 1; i < p->rows.count && p->matrices.count > 0; i++) {
        append(ret, ONE);
    }
    append_all(ret, &p->summed);
    append_all(ret, &p->columns);
    if (p->columns.count == 0) {
        append(ret, ONE);
    }
}

/* With operand `left` on the left. */
static bool
is_product(const struct leat_value *const x[2], uint32_t left, struct product *p)
{
    struct axes of_left, of_right;

    p->left = left;
    p->right = 1 - left;
    p->matrices.count = p->rows.count = p->columns.count = p->summed.count = 0;
    if (!sort_labels(x, p)) {
        return false;
    }
    if (p->summed.count == 0) {
        return true;
    }
    left_axes(p, &of_left);
    right_axes(p, &of_right);
    /* One column behind labels that become one axis is in another place then. */
    return of_left.count <= LEAT_RANK_MAX && of_right.count <= LEAT_RANK_MAX && can_merge(&p->einsum, &p->columns) &&
           can_merge(&p->einsum, &p->summed) &&
           (p->summed.count == 1 || p->columns.count != 1 || may_be_left(p->einsum.size[p->columns.labels[0]]));
}

/* How to bring axes into another order, ONEs left out; false where they are in it. */
static bool
find_order(const uint8_t *from, uint32_t rank, const struct axes *to, int64_t perm[LEAT_RANK_MAX])
{
    uint32_t count = 0;
    bool moves = false;

    for (uint32_t i = 0; i < to->count; i++) {
        const uint32_t d = place_of(from, rank, to->labels[i]);
        if (d < rank) {
            perm[count] = d;
            moves = moves || d != count;
            count++;
        }
    }
    LEAT_ASSERT(count == rank);
    return moves;
}

/* From what MatMul returns, several columns apart and missing axes gone, to what the Einsum does. */
static bool
find_result_order(const struct product *p, int64_t perm[LEAT_RANK_MAX])
{
    struct axes have = p->matrices, wanted = {.count = 0};

    append_all(&have, &p->rows);
    append_all(&have, &p->columns);
    for (uint32_t d = 0; d < p->einsum.output_rank; d++) {
        append(&wanted, p->einsum.output[d]);
    }
    return find_order(have.labels, have.count, &wanted, perm);
}

static uint32_t
count_transposes(const struct leat_value *const x[2], const struct product *p)
{
    int64_t perm[LEAT_RANK_MAX];
    struct axes left, right;

    if (p->summed.count == 0) {
        return 0; /* the same either way */
    }
    left_axes(p, &left);
    right_axes(p, &right);
    return (uint32_t)find_order(p->einsum.labels[p->left], x[p->left]->rank, &left, perm) +
           (uint32_t)find_order(p->einsum.labels[p->right], x[p->right]->rank, &right, perm) +
           (uint32_t)find_result_order(p, perm);
}

bool
leat_einsum_is_free(const struct leat_graph *graph, const struct leat_node *node)
{
    if (node->op->kind != LEAT_OP_EINSUM || node->fused_add != LEAT_VALUE_NONE ||
        node->fused_activation != LEAT_ACTIVATION_NONE) {
        return false;
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        const struct leat_value *x = leat_node_input(graph, node, k);
        if (x->dtype != LEAT_DTYPE_F32 || x->bounded) {
            return false;
        }
    }
    return true;
}

/* Weights are right, where backends prepare them; else that operand which leaves fewer axes to move. */
static bool
find_product(const struct leat_graph *graph, const struct leat_node *node, struct product *p)
{
    if (!leat_einsum_is_free(graph, node) || node->input_count != 2 || leat_einsum_of(graph, node, &p->einsum) != LEAT_OK) {
        return false;
    }
    const struct leat_value *const x[2] = {leat_node_input(graph, node, 0), leat_node_input(graph, node, 1)};
    const bool weights_left = x[0]->data != NULL && x[1]->data == NULL;
    const bool weights_right = x[0]->data == NULL && x[1]->data != NULL;
    struct product other = *p;
    const bool can = is_product(x, 0, p), other_can = is_product(x, 1, &other);
    if (other_can && (!can || weights_left || (!weights_right && count_transposes(x, &other) < count_transposes(x, p)))) {
        *p = other;
    }
    return can || other_can;
}

/* ---- One operand --------------------------------------------------------------------------------------- */

/* Its first label that several axes carry; false where there is none. */
static bool
find_diagonal(const struct axes *axes, uint8_t *ret_label)
{
    for (uint32_t d = 0; d < axes->count; d++) {
        if (has_label(axes->labels, d, axes->labels[d])) {
            *ret_label = axes->labels[d];
            return true;
        }
    }
    return false;
}

/* Those without the label, in their order; *ret_gone axes had it. */
static struct axes
without(const struct axes *axes, uint8_t label, uint32_t *ret_gone)
{
    struct axes others = {.count = 0};

    for (uint32_t d = 0; d < axes->count; d++) {
        if (axes->labels[d] != label) {
            append(&others, axes->labels[d]);
        }
    }
    *ret_gone = axes->count - others.count;
    return others;
}

/* Of so many axes of `size` as one axis, and how far apart the diagonal's elements are in it; false where that is too long. */
static bool
find_steps(int64_t size, uint32_t count, int64_t *ret_length, int64_t *ret_step)
{
    int64_t length = 1, step = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (size <= 0 || length > LEAT_DIM_MAX / size) {
            return false;
        }
        step += length;
        length *= size;
    }
    *ret_length = length;
    *ret_step = step;
    return true;
}

static bool
find_single(const struct leat_graph *graph, const struct leat_node *node, struct leat_einsum *einsum)
{
    struct axes axes = {.count = 0};
    int64_t length, step;
    uint32_t count;
    uint8_t label;

    if (!leat_einsum_is_free(graph, node) || node->input_count != 1 || leat_einsum_of(graph, node, einsum) != LEAT_OK) {
        return false;
    }
    const struct leat_value *x = leat_node_input(graph, node, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        append(&axes, einsum->labels[0][d]);
    }
    while (find_diagonal(&axes, &label)) {
        for (uint32_t d = 0; d < x->rank; d++) {
            if (einsum->labels[0][d] == label && x->dims[d] != einsum->size[label]) {
                return false; /* that may be known of one axis alone */
            }
        }
        axes = without(&axes, label, &count);
        append(&axes, label);
        if (!find_steps(einsum->size[label], count, &length, &step)) {
            return false;
        }
    }
    return true;
}

/* ---- Nodes --------------------------------------------------------------------------------------------- */

struct maker {
    struct leat_graph *graph;
    const char *name; /* of the Einsum that goes, and so of all nodes that come */
};

/* Into *to, or a new value called `called` where that is LEAT_VALUE_NONE: what it has is the same numbers, in another order. */
static enum leat_status
put(const struct maker *m, const char *op, const char *called, const uint32_t *inputs, uint32_t input_count,
    const struct leat_attribute *attribute, uint32_t *to)
{
    const int64_t opset = m->graph->opset < 13 ? 13 : m->graph->opset; /* axes are an operand */
    enum leat_status status = LEAT_OK;

    if (*to == LEAT_VALUE_NONE) {
        status = leat_graph_add_value(m->graph, called, LEAT_DTYPE_F32, 0, NULL, to);
    }
    if (status == LEAT_OK) {
        status = leat_graph_add_node(m->graph, leat_op_find(op, opset), m->name, inputs, input_count, to, 1, attribute,
                                     attribute != NULL ? 1 : 0);
    }
    return status == LEAT_OK ? leat_graph_infer_node(m->graph, &m->graph->nodes[m->graph->node_count - 1]) : status;
}

/* Unsqueeze, Squeeze or Reshape by these numbers. */
static enum leat_status
put_reshaping(const struct maker *m, const char *op, uint32_t x, const int64_t *numbers, uint32_t count, uint32_t *to)
{
    const int64_t dim = count;
    uint32_t inputs[2] = {x, LEAT_VALUE_NONE};

    const enum leat_status status =
        leat_graph_add_constant(m->graph, m->name, LEAT_DTYPE_I64, 1, &dim, numbers, &inputs[1]);
    return status == LEAT_OK ? put(m, op, m->graph->values[x].name, inputs, 2, NULL, to) : status;
}

static enum leat_status
put_transpose(const struct maker *m, uint32_t x, const int64_t *perm, uint32_t rank, uint32_t *to)
{
    int64_t *axes = leat_graph_alloc(m->graph, rank, sizeof(*axes));
    const struct leat_attribute attribute = {.name = "perm", .kind = LEAT_ATTRIBUTE_INTS, .count = rank, .ints = axes};

    if (axes == NULL) {
        return leat_graph_shortage(m->graph);
    }
    for (uint32_t d = 0; d < rank; d++) {
        axes[d] = perm[d];
    }
    return put(m, "Transpose", m->graph->values[x].name, &x, 1, &attribute, to);
}

/* Axes of *x, which carry these labels, as they are wanted: those that it does not have are of one element. */
static enum leat_status
arrange(const struct maker *m, const uint8_t *labels, const struct axes *wanted, uint32_t *x)
{
    const uint32_t rank = m->graph->values[*x].rank;
    int64_t perm[LEAT_RANK_MAX], new_axes[LEAT_RANK_MAX];
    uint32_t new_count = 0, y = LEAT_VALUE_NONE;
    enum leat_status status = LEAT_OK;

    if (find_order(labels, rank, wanted, perm)) {
        status = put_transpose(m, *x, perm, rank, &y);
        *x = y;
    }
    for (uint32_t i = 0; i < wanted->count; i++) {
        if (!has_label(labels, rank, wanted->labels[i])) {
            new_axes[new_count++] = i;
        }
    }
    if (status == LEAT_OK && new_count > 0) {
        y = LEAT_VALUE_NONE;
        status = put_reshaping(m, "Unsqueeze", *x, new_axes, new_count, &y);
        *x = y;
    }
    return status;
}

static int64_t
merged_size(const struct leat_einsum *einsum, const struct axes *axes)
{
    int64_t size = 1;
    for (uint32_t i = 0; i < axes->count; i++) {
        size *= einsum->size[axes->labels[i]];
    }
    return size;
}

/* The axes of *x behind the `lead` first, which are of `first` and `second`, become one of each. */
static enum leat_status
merge(const struct maker *m, const struct leat_einsum *einsum, uint32_t lead, const struct axes *first,
      const struct axes *second, uint32_t *x)
{
    int64_t target[LEAT_RANK_MAX] = {0}; /* 0: as it is */
    uint32_t count = lead, y = LEAT_VALUE_NONE;

    target[count++] = first->count > 1 ? merged_size(einsum, first) : 0;
    if (second != NULL) {
        const int64_t size = merged_size(einsum, second);
        target[count++] = size > 0 ? size : -1;
    }
    const enum leat_status status = put_reshaping(m, "Reshape", *x, target, count, &y);
    *x = y;
    return status;
}

static enum leat_status
put_operands(const struct maker *m, const struct product *p, uint32_t operands[2])
{
    const struct leat_einsum *einsum = &p->einsum;
    struct axes wanted;

    left_axes(p, &wanted);
    enum leat_status status = arrange(m, einsum->labels[p->left], &wanted, &operands[0]);
    if (status == LEAT_OK && p->summed.count > 1) {
        status = merge(m, einsum, wanted.count - p->summed.count, &p->summed, NULL, &operands[0]);
    }
    if (status == LEAT_OK) {
        right_axes(p, &wanted);
        status = arrange(m, einsum->labels[p->right], &wanted, &operands[1]);
    }
    if (status == LEAT_OK && (p->summed.count > 1 || p->columns.count > 1)) {
        const uint32_t behind = p->summed.count + (p->columns.count > 0 ? p->columns.count : 1);
        status = merge(m, einsum, wanted.count - behind, &p->summed, &p->columns, &operands[1]);
    }
    return status;
}

/* f32[matrices ...][rows ...][row][column] to what the Einsum returns. */
static enum leat_status
put_result(const struct maker *m, const struct product *p, uint32_t operands[2], uint32_t result)
{
    const bool several = p->columns.count > 1, missing = p->rows.count == 0 || p->columns.count == 0;
    const uint32_t lead = p->matrices.count + p->rows.count;
    const char *called = m->graph->values[result].name;
    int64_t perm[LEAT_RANK_MAX], numbers[LEAT_RANK_MAX] = {0}; /* in a target 0: as it is */
    const bool moves = find_result_order(p, perm);
    uint32_t count = 0, x, y;

    x = several || missing || moves ? LEAT_VALUE_NONE : result;
    enum leat_status status = put(m, "MatMul", called, operands, 2, NULL, &x);
    y = moves ? LEAT_VALUE_NONE : result;
    if (status == LEAT_OK && several) {
        for (uint32_t i = 0; i < p->columns.count; i++) {
            numbers[lead + i] = p->einsum.size[p->columns.labels[i]];
        }
        status = put_reshaping(m, "Reshape", x, numbers, lead + p->columns.count, &y);
        x = y;
    } else if (status == LEAT_OK && missing) {
        if (p->rows.count == 0) {
            numbers[count++] = lead;
        }
        if (p->columns.count == 0) {
            numbers[count++] = lead + (p->rows.count == 0);
        }
        status = put_reshaping(m, "Squeeze", x, numbers, count, &y);
        x = y;
    }
    return status == LEAT_OK && moves ? put_transpose(m, x, perm, p->einsum.output_rank, &result) : status;
}

/* Without a sum: each operand in the result's order, and broadcast to it. */
static enum leat_status
put_elementwise(const struct maker *m, const struct product *p, uint32_t operands[2], uint32_t result)
{
    const struct leat_einsum *einsum = &p->einsum;
    enum leat_status status = LEAT_OK;

    for (uint32_t k = 0; k < 2 && status == LEAT_OK; k++) {
        const uint8_t *labels = einsum->labels[k == 0 ? p->left : p->right];
        const uint32_t rank = m->graph->values[operands[k]].rank;
        struct axes wanted = {.count = 0};
        for (uint32_t d = 0; d < einsum->output_rank; d++) {
            if (wanted.count > 0 || has_label(labels, rank, einsum->output[d])) {
                append(&wanted, einsum->output[d]);
            }
        }
        status = arrange(m, labels, &wanted, &operands[k]);
    }
    return status == LEAT_OK ? put(m, "Mul", NULL, operands, 2, NULL, &result) : status;
}

/* Of the axis behind `others`, which has `length` elements, each `step`th. */
static enum leat_status
put_slice(const struct maker *m, uint32_t others, int64_t length, int64_t step, uint32_t *x)
{
    const int64_t numbers[4] = {0, length, others, step}, dim = 1;
    uint32_t inputs[5] = {*x}, y = LEAT_VALUE_NONE;
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < 4 && status == LEAT_OK; i++) {
        status = leat_graph_add_constant(m->graph, m->name, LEAT_DTYPE_I64, 1, &dim, &numbers[i], &inputs[1 + i]);
    }
    if (status == LEAT_OK) {
        status = put(m, "Slice", m->graph->values[*x].name, inputs, 5, NULL, &y);
    }
    *x = y;
    return status;
}

/* The axes of *x that carry the label become one, their diagonal, behind the others. */
static enum leat_status
put_diagonal(const struct maker *m, int64_t size, uint8_t label, struct axes *axes, uint32_t *x)
{
    int64_t perm[LEAT_RANK_MAX], target[LEAT_RANK_MAX] = {0}; /* as it is */
    uint32_t count, at = 0, y = LEAT_VALUE_NONE;
    struct axes others = without(axes, label, &count);
    enum leat_status status = LEAT_OK;
    int64_t length, step;
    bool moves = false;

    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t d = 0; d < axes->count; d++) {
            if ((axes->labels[d] == label) == (turn == 1)) {
                moves = moves || d != at;
                perm[at++] = d;
            }
        }
    }
    LEAT_MUST(find_steps(size, count, &length, &step));
    if (moves) {
        status = put_transpose(m, *x, perm, axes->count, &y);
        *x = y;
    }
    target[others.count] = length;
    y = LEAT_VALUE_NONE;
    if (status == LEAT_OK) {
        status = put_reshaping(m, "Reshape", *x, target, others.count + 1, &y);
    }
    *x = y;
    *axes = others;
    append(axes, label);
    return status == LEAT_OK ? put_slice(m, others.count, length, step, x) : status;
}

/* Sums over what the result has not, if there is such. */
static enum leat_status
put_sum(const struct maker *m, const struct leat_einsum *einsum, struct axes *axes, uint32_t *x)
{
    static const struct leat_attribute dropped = {.name = "keepdims", .kind = LEAT_ATTRIBUTE_INT, .i = 0};
    const struct axes all = *axes;
    int64_t gone[LEAT_RANK_MAX], dim = 0;
    uint32_t inputs[2] = {*x, LEAT_VALUE_NONE}, y = LEAT_VALUE_NONE;

    axes->count = 0;
    for (uint32_t d = 0; d < all.count; d++) {
        if (has_label(einsum->output, einsum->output_rank, all.labels[d])) {
            append(axes, all.labels[d]);
        } else {
            gone[dim++] = d;
        }
    }
    if (dim == 0) {
        return LEAT_OK;
    }
    enum leat_status status = leat_graph_add_constant(m->graph, m->name, LEAT_DTYPE_I64, 1, &dim, gone, &inputs[1]);
    if (status == LEAT_OK) {
        status = put(m, "ReduceSum", m->graph->values[*x].name, inputs, 2, &dropped, &y);
    }
    *x = y;
    return status;
}

static enum leat_status
replace_single(struct leat_graph *graph, const struct leat_node *node, const struct leat_einsum *einsum)
{
    const struct maker m = {.graph = graph, .name = node->name};
    uint32_t x = node->inputs[0], y = LEAT_VALUE_NONE;
    struct axes axes = {.count = 0}, wanted = {.count = 0};
    enum leat_status status = LEAT_OK;
    int64_t perm[LEAT_RANK_MAX];
    uint8_t label;

    for (uint32_t d = 0; d < graph->values[x].rank; d++) {
        append(&axes, einsum->labels[0][d]);
    }
    for (uint32_t d = 0; d < einsum->output_rank; d++) {
        append(&wanted, einsum->output[d]);
    }
    while (find_diagonal(&axes, &label) && status == LEAT_OK) {
        status = put_diagonal(&m, einsum->size[label], label, &axes, &x);
    }
    if (status == LEAT_OK) {
        status = put_sum(&m, einsum, &axes, &x);
    }
    if (status == LEAT_OK && find_order(axes.labels, axes.count, &wanted, perm)) {
        status = put_transpose(&m, x, perm, axes.count, &y);
        x = y;
    }
    if (status == LEAT_OK && x == node->inputs[0]) {
        y = LEAT_VALUE_NONE;
        status = put(&m, "Identity", graph->values[x].name, &x, 1, NULL, &y);
    }
    if (status != LEAT_OK) {
        return status;
    }
    struct leat_node *last = &graph->nodes[graph->node_count - 1];
    last->outputs[0] = node->outputs[0]; /* what it made is nobody's */
    return leat_graph_infer_node(graph, last);
}

static enum leat_status
replace(struct leat_graph *graph, const struct leat_node *node, const struct product *p)
{
    const struct maker m = {.graph = graph, .name = node->name};
    uint32_t operands[2] = {node->inputs[p->left], node->inputs[p->right]};

    if (p->summed.count == 0) {
        return put_elementwise(&m, p, operands, node->outputs[0]);
    }
    const enum leat_status status = put_operands(&m, p, operands);
    return status == LEAT_OK ? put_result(&m, p, operands, node->outputs[0]) : status;
}

/* ---- The pass ------------------------------------------------------------------------------------------ */

/* Weights are brought into order once. */
static enum leat_status
fold_operands(struct leat_graph *graph)
{
    void **data = calloc((size_t)graph->value_count + 1, sizeof(*data));
    enum leat_status status = LEAT_OK;

    if (data == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to fold constants");
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        const enum leat_op_kind kind = node->op->kind;
        bool folded = false;
        if (kind == LEAT_OP_TRANSPOSE || kind == LEAT_OP_UNSQUEEZE || kind == LEAT_OP_RESHAPE || kind == LEAT_OP_SLICE ||
            kind == LEAT_OP_REDUCE_SUM) {
            status = leat_graph_fold_node(graph, node, data, &folded);
        }
        if (folded) {
            node->op = NULL;
        }
    }
    free(data);
    leat_graph_sweep_nodes(graph);
    return status;
}

LEAT_PASS_FUNCTION(split_einsums)
{
    struct leat_einsum single;
    struct product product;
    uint64_t found = 0;
    bool contracted;
    uint32_t count;

    enum leat_status status = leat_einsum_contract(graph, &contracted);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        found += find_product(graph, node, &product) || find_single(graph, node, &single);
    }
    const bool splits = found > 0 && graph->node_count + found * NODES_MAX <= LEAT_GRAPH_NODES_MAX &&
                        graph->value_count + found * VALUES_MAX <= LEAT_GRAPH_VALUES_MAX;
    *ret_changed = contracted || splits;
    if (!splits) {
        return LEAT_OK;
    }
    const struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        if (found > 0 && find_product(graph, &nodes[n], &product)) {
            found--; /* those that there was room for */
            status = replace(graph, &nodes[n], &product);
        } else if (found > 0 && find_single(graph, &nodes[n], &single)) {
            found--;
            status = replace_single(graph, &nodes[n], &single);
        } else {
            status = leat_graph_put_node(graph, &nodes[n]);
        }
    }
    return status == LEAT_OK ? fold_operands(graph) : status;
}
