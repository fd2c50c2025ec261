/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters compute sizes and the targets of Reshape from the Shape of operands. Sizes that are known become constants, and so
 * does a target that is known but for one entry, which is -1 then: so other passes know the shapes that they ask for.
 */
#include <string.h>

#include "kernels/infer/infer.h"
#include "kernels/passes/passes.h"

#define NOT_KNOWN INT64_MIN

enum { VISITS_MAX = 64 }; /* of nodes, for one target */

/* Of an integer vector, or of a scalar. */
struct entries {
    uint32_t count;
    int64_t at[LEAT_RANK_MAX];
};

static bool entries_of(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t value, uint32_t *visits,
                       struct entries *ret);

static bool
entries_of_shape(const struct leat_graph *graph, const struct leat_node *node, struct entries *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    int64_t start, end;

    leat_shape_range(node, x->rank, &start, &end);
    for (int64_t d = start; d < end; d++) {
        ret->at[ret->count++] = x->dims[d] >= 0 && !x->bounded ? x->dims[d] : NOT_KNOWN;
    }
    return true;
}

static bool
entries_of_gather(const struct leat_graph *graph, const struct leat_pass_index *index, const struct leat_node *node,
                  uint32_t *visits, struct entries *ret)
{
    int64_t places[LEAT_RANK_MAX];
    struct entries from;

    if (graph->values[node->inputs[0]].rank != 1 ||
        !leat_read_ints(leat_node_input(graph, node, 1), LEAT_RANK_MAX, places, &ret->count) ||
        !entries_of(graph, index, node->inputs[0], visits, &from)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        const int64_t place = places[i] < 0 ? places[i] + from.count : places[i];
        if (place < 0 || place >= from.count) {
            return false;
        }
        ret->at[i] = from.at[place];
    }
    return true;
}

static bool
entries_of_concat(const struct leat_graph *graph, const struct leat_pass_index *index, const struct leat_node *node,
                  uint32_t *visits, struct entries *ret)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        struct entries part;
        if (!entries_of(graph, index, node->inputs[i], visits, &part) || ret->count + part.count > LEAT_RANK_MAX) {
            return false;
        }
        for (uint32_t k = 0; k < part.count; k++) {
            ret->at[ret->count++] = part.at[k];
        }
    }
    return true;
}

/* False when not even their number is known. */
static bool
entries_of(const struct leat_graph *graph, const struct leat_pass_index *index, uint32_t value, uint32_t *visits,
           struct entries *ret)
{
    const struct leat_value *v = &graph->values[value];

    *ret = (struct entries){0};
    if (++*visits > VISITS_MAX || v->rank > 1 || v->dtype != LEAT_DTYPE_I64) {
        return false;
    }
    if (v->data != NULL) {
        return leat_read_ints(v, LEAT_RANK_MAX, ret->at, &ret->count);
    }
    const struct leat_node *node =
        value < index->count && index->producer[value] != UINT32_MAX ? &graph->nodes[index->producer[value]] : NULL;
    switch (node != NULL ? node->op->kind : LEAT_OP_CONSTANT) {
    case LEAT_OP_SHAPE:
        return entries_of_shape(graph, node, ret);
    case LEAT_OP_GATHER:
        return entries_of_gather(graph, index, node, visits, ret);
    case LEAT_OP_CONCAT:
        return entries_of_concat(graph, index, node, visits, ret);
    case LEAT_OP_IDENTITY:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
        return entries_of(graph, index, node->inputs[0], visits, ret);
    default:
        ret->count = v->rank == 0 ? 1 : v->dims[0] >= 0 && v->dims[0] <= LEAT_RANK_MAX ? (uint32_t)v->dims[0] : UINT32_MAX;
        for (uint32_t i = 0; ret->count != UINT32_MAX && i < ret->count; i++) {
            ret->at[i] = NOT_KNOWN;
        }
        return ret->count != UINT32_MAX;
    }
}

/* Makes a constant of the node's result where all of it is known. */
static enum leat_status
fold_entries(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const enum leat_op_kind kind = node->op->kind;
    const struct leat_value *y = leat_node_output(graph, node, 0);
    uint32_t visits = 0;
    struct entries known;
    void *data = NULL;

    *ret_done = false;
    if ((kind != LEAT_OP_SHAPE && kind != LEAT_OP_GATHER && kind != LEAT_OP_CONCAT && kind != LEAT_OP_SQUEEZE &&
         kind != LEAT_OP_UNSQUEEZE) ||
        !entries_of(graph, index, node->outputs[0], &visits, &known) || !leat_value_is_known(y) ||
        leat_value_elements(y) != known.count) {
        return LEAT_OK;
    }
    for (uint32_t i = 0; i < known.count; i++) {
        if (known.at[i] == NOT_KNOWN) {
            return LEAT_OK;
        }
    }
    const enum leat_status status = leat_graph_make_constant(graph, node->outputs[0], &data);
    if (status == LEAT_OK) {
        memcpy(data, known.at, known.count * sizeof(known.at[0]));
        node->op = NULL;
        *ret_done = true;
    }
    return status;
}

/* The target that says the same; false when there is none, or it is constant already. */
static bool
target_of(const struct leat_graph *graph, const struct leat_pass_index *index, const struct leat_node *node,
          struct entries *ret)
{
    uint32_t visits = 0, free_entries = 0;

    if (node->op->kind != LEAT_OP_RESHAPE || graph->values[node->inputs[1]].data != NULL ||
        graph->values[node->inputs[0]].bounded ||
        !entries_of(graph, index, node->inputs[1], &visits, ret)) {
        return false;
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        if (ret->at[i] == 0) {
            return false; /* a copy, or nothing at all */
        }
        if (ret->at[i] < 0) {
            ret->at[i] = -1;
            free_entries++;
        }
    }
    return free_entries <= 1;
}

LEAT_PASS_FUNCTION(fold_shapes)
{
    struct leat_pass_index index;
    bool changed = false;

    enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *node = &graph->nodes[n];
        struct entries target;
        bool folded;
        status = fold_entries(graph, &index, node, &folded);
        if (folded) {
            changed = true;
            continue;
        }
        if (status == LEAT_OK && target_of(graph, &index, node, &target)) {
            const int64_t count = target.count;
            uint32_t constant;
            status = leat_graph_add_constant(graph, graph->values[node->inputs[1]].name, LEAT_DTYPE_I64, 1, &count, target.at,
                                             &constant);
            if (status == LEAT_OK) {
                node->inputs[1] = constant;
                changed = true;
            }
        }
        if (status == LEAT_OK && changed) {
            status = leat_graph_infer_node(graph, node); /* for the targets that come */
        }
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    if (status == LEAT_OK && changed) {
        status = leat_pass_remove_dead_code(graph, ret_changed); /* what computed targets reads values that others would fuse */
    }
    *ret_changed = changed;
    return status;
}
