/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/entries.h"

#include <string.h>

#include "kernels/infer/infer.h"

enum { VISITS_MAX = 64 }; /* of values, for one that is asked for */

struct walk {
    const struct leat_graph *graph;
    struct leat_producers producers;
    uint32_t visits;
};

static bool entries_of(struct walk *walk, uint32_t value, struct leat_entries *ret);

static bool
read_constant(const struct leat_value *value, struct leat_entries *ret)
{
    if (value->dtype != LEAT_DTYPE_BOOL) {
        return leat_read_ints(value, LEAT_RANK_MAX, ret->at, &ret->count);
    }
    if (leat_value_elements(value) > LEAT_RANK_MAX) {
        return false;
    }
    ret->count = (uint32_t)leat_value_elements(value);
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->at[i] = ((const uint8_t *)value->data)[i] != 0;
    }
    return true;
}

/* All that is known is how many there are. */
static bool
all_open(const struct leat_value *value, struct leat_entries *ret)
{
    if (value->bounded || (value->rank == 1 && (value->dims[0] < 0 || value->dims[0] > LEAT_RANK_MAX))) {
        return false;
    }
    ret->count = value->rank == 0 ? 1 : (uint32_t)value->dims[0];
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->at[i] = LEAT_ENTRY_OPEN;
    }
    return true;
}

/* ---- What moves them ------------------------------------------------------------------------------- */

static bool
follow_shape(const struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    const struct leat_value *x = leat_node_input(walk->graph, node, 0);
    int64_t start, end;

    leat_shape_range(node, x->rank, &start, &end);
    for (int64_t d = start; d < end; d++) {
        ret->at[ret->count++] = x->dims[d] >= 0 && !x->bounded ? x->dims[d] : LEAT_ENTRY_OPEN;
    }
    return true;
}

static bool
follow_gather(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    int64_t places[LEAT_RANK_MAX];
    struct leat_entries from;

    if (walk->graph->values[node->inputs[0]].rank != 1 ||
        !leat_read_ints(leat_node_input(walk->graph, node, 1), LEAT_RANK_MAX, places, &ret->count) ||
        !entries_of(walk, node->inputs[0], &from)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        const int64_t count = from.count;
        if (places[i] < -count || places[i] >= count) {
            return false; /* an error of the run, if it gets there */
        }
        ret->at[i] = from.at[places[i] < 0 ? places[i] + count : places[i]];
    }
    return true;
}

static bool
follow_slice(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    struct leat_slice slice;
    struct leat_entries from;
    bool known;

    const struct leat_value *x = leat_node_input(walk->graph, node, 0);
    if (x->rank != 1 || leat_slice_of(walk->graph, node, &slice, &known) != LEAT_OK || !known ||
        !entries_of(walk, node->inputs[0], &from) || x->dims[0] != from.count) {
        return false;
    }
    ret->count = (uint32_t)slice.count[0];
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->at[i] = from.at[slice.start[0] + i * slice.step[0]];
    }
    return true;
}

static bool
follow_concat(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        struct leat_entries part;
        if (!entries_of(walk, node->inputs[i], &part) || ret->count + part.count > LEAT_RANK_MAX) {
            return false;
        }
        for (uint32_t k = 0; k < part.count; k++) {
            ret->at[ret->count++] = part.at[k];
        }
    }
    return true;
}

/* ---- What computes with them ------------------------------------------------------------------------ */

static int64_t
compute(enum leat_op_kind kind, int64_t a, int64_t b)
{
    int64_t result;

    if ((kind == LEAT_OP_AND && (a == 0 || b == 0)) || (kind == LEAT_OP_OR && (a == 1 || b == 1))) {
        return kind == LEAT_OP_OR; /* whatever the other one is */
    }
    if (a == LEAT_ENTRY_OPEN || b == LEAT_ENTRY_OPEN) {
        return LEAT_ENTRY_OPEN;
    }
    switch (kind) {
    case LEAT_OP_ADD:
        return __builtin_add_overflow(a, b, &result) ? LEAT_ENTRY_OPEN : result;
    case LEAT_OP_SUB:
        return __builtin_sub_overflow(a, b, &result) ? LEAT_ENTRY_OPEN : result;
    case LEAT_OP_MUL:
        return __builtin_mul_overflow(a, b, &result) ? LEAT_ENTRY_OPEN : result;
    case LEAT_OP_DIV:
        return a >= 0 && b > 0 ? a / b : LEAT_ENTRY_OPEN;
    case LEAT_OP_MOD:
        return a >= 0 && b > 0 ? a % b : LEAT_ENTRY_OPEN;
    case LEAT_OP_MAX:
        return a > b ? a : b;
    case LEAT_OP_MIN:
        return a < b ? a : b;
    case LEAT_OP_EQUAL:
        return a == b;
    case LEAT_OP_GREATER:
        return a > b;
    case LEAT_OP_GREATER_OR_EQUAL:
        return a >= b;
    case LEAT_OP_LESS:
        return a < b;
    case LEAT_OP_LESS_OR_EQUAL:
        return a <= b;
    case LEAT_OP_AND:
        return a && b;
    case LEAT_OP_OR:
        return a || b;
    case LEAT_OP_XOR:
        return a != b;
    default:
        return LEAT_ENTRY_OPEN;
    }
}

/* How many there are of two together; false when they do not fit. */
static bool
broadcast(uint32_t a, uint32_t b, uint32_t *ret)
{
    *ret = a == 1 ? b : a;
    return a == b || a == 1 || b == 1;
}

static int64_t
element(const struct leat_entries *entries, uint32_t i)
{
    return entries->at[entries->count == 1 ? 0 : i];
}

static bool
follow_two(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    struct leat_entries a, b;

    if (node->input_count != 2 || !entries_of(walk, node->inputs[0], &a) || !entries_of(walk, node->inputs[1], &b) ||
        !broadcast(a.count, b.count, &ret->count)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        ret->at[i] = compute(node->op->kind, element(&a, i), element(&b, i));
    }
    return true;
}

static bool
follow_where(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    struct leat_entries which, a, b;
    uint32_t count;

    if (!entries_of(walk, node->inputs[0], &which) || !entries_of(walk, node->inputs[1], &a) ||
        !entries_of(walk, node->inputs[2], &b) || !broadcast(which.count, a.count, &count) ||
        !broadcast(count, b.count, &ret->count)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        const int64_t first = element(&which, i);
        ret->at[i] = first == LEAT_ENTRY_OPEN ? LEAT_ENTRY_OPEN : first != 0 ? element(&a, i) : element(&b, i);
    }
    return true;
}

/* Of one operand, in another type or inverted. */
static bool
follow_one(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    const bool flag = walk->graph->values[node->outputs[0]].dtype == LEAT_DTYPE_BOOL;

    if (!entries_of(walk, node->inputs[0], ret)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count && flag; i++) {
        const bool is_open = ret->at[i] == LEAT_ENTRY_OPEN;
        ret->at[i] = is_open ? LEAT_ENTRY_OPEN : (ret->at[i] != 0) != (node->op->kind == LEAT_OP_NOT);
    }
    return true;
}

/* ---- One step back ----------------------------------------------------------------------------------- */

static bool
follow(struct walk *walk, const struct leat_node *node, struct leat_entries *ret)
{
    switch (node->op->kind) {
    case LEAT_OP_SHAPE:
        return follow_shape(walk, node, ret);
    case LEAT_OP_GATHER:
        return follow_gather(walk, node, ret);
    case LEAT_OP_SLICE:
        return follow_slice(walk, node, ret);
    case LEAT_OP_CONCAT:
        return follow_concat(walk, node, ret);
    case LEAT_OP_IDENTITY:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
        return entries_of(walk, node->inputs[0], ret);
    case LEAT_OP_CAST:
    case LEAT_OP_NOT:
        return follow_one(walk, node, ret);
    case LEAT_OP_WHERE:
        return follow_where(walk, node, ret);
    case LEAT_OP_ADD:
    case LEAT_OP_AND:
    case LEAT_OP_DIV:
    case LEAT_OP_EQUAL:
    case LEAT_OP_GREATER:
    case LEAT_OP_GREATER_OR_EQUAL:
    case LEAT_OP_LESS:
    case LEAT_OP_LESS_OR_EQUAL:
    case LEAT_OP_MAX:
    case LEAT_OP_MIN:
    case LEAT_OP_MOD:
    case LEAT_OP_MUL:
    case LEAT_OP_OR:
    case LEAT_OP_SUB:
    case LEAT_OP_XOR:
        return follow_two(walk, node, ret);
    default:
        return all_open(&walk->graph->values[node->outputs[0]], ret);
    }
}

static bool
entries_of(struct walk *walk, uint32_t value, struct leat_entries *ret)
{
    const struct leat_value *v = &walk->graph->values[value];

    *ret = (struct leat_entries){.count = 0};
    if (++walk->visits > VISITS_MAX || v->rank > 1 ||
        (v->dtype != LEAT_DTYPE_I64 && v->dtype != LEAT_DTYPE_I32 && v->dtype != LEAT_DTYPE_BOOL)) {
        return false;
    }
    if (v->data != NULL) {
        return read_constant(v, ret);
    }
    const uint32_t n = value < walk->producers.count ? walk->producers.node[value] : UINT32_MAX;
    if (n == UINT32_MAX || walk->graph->nodes[n].outputs[0] != value) {
        return all_open(v, ret);
    }
    const bool known = follow(walk, &walk->graph->nodes[n], ret);
    for (uint32_t i = 0; i < ret->count && v->dtype == LEAT_DTYPE_I32; i++) {
        ret->at[i] = ret->at[i] < INT32_MIN || ret->at[i] > INT32_MAX ? LEAT_ENTRY_OPEN : ret->at[i];
    }
    return known;
}

bool
leat_entries_of(const struct leat_graph *graph, struct leat_producers producers, uint32_t value, struct leat_entries *ret)
{
    struct walk walk = {.graph = graph, .producers = producers};
    return entries_of(&walk, value, ret);
}

static void
store(const struct leat_entries *entries, uint32_t dtype, void *ret_data)
{
    for (uint32_t i = 0; i < entries->count; i++) {
        switch (dtype) {
        case LEAT_DTYPE_I64: ((int64_t *)ret_data)[i] = entries->at[i]; break;
        case LEAT_DTYPE_I32: ((int32_t *)ret_data)[i] = (int32_t)entries->at[i]; break;
        default: ((uint8_t *)ret_data)[i] = entries->at[i] != 0; break;
        }
    }
}

enum leat_status
leat_entries_fold(struct leat_graph *graph, struct leat_producers producers, const struct leat_node *node, bool *ret_folded)
{
    const uint32_t output = node->outputs[0];
    struct leat_entries known;
    void *data = NULL;

    *ret_folded = false;
    if (node->output_count != 1 || !leat_value_is_known(&graph->values[output]) ||
        !leat_entries_of(graph, producers, output, &known) || leat_value_elements(&graph->values[output]) != known.count) {
        return LEAT_OK;
    }
    for (uint32_t i = 0; i < known.count; i++) {
        if (known.at[i] == LEAT_ENTRY_OPEN) {
            return LEAT_OK;
        }
    }
    if (!leat_graph_may_fold(graph, leat_value_bytes(&graph->values[output]))) {
        return LEAT_OK;
    }
    const enum leat_status status = leat_graph_make_constant(graph, output, &data);
    if (status == LEAT_OK) {
        store(&known, graph->values[output].dtype, data);
        graph->values[output].bounded = false; /* its elements are the same in every run, and so is their number */
        graph->values[output].open = 0;
        *ret_folded = true;
    }
    return status;
}
