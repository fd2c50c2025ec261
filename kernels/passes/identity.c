/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity, Dropout at inference, and Cast, Transpose or reshaping that change nothing, go. A Transpose of a Transpose
 * becomes one of what the first reads, and goes where that is the identity.
 */
#include <stdlib.h>

#include "kernels/passes/passes.h"

/* Same dims, symbols included: the batch equals itself, an unknown equals nothing. */
static bool
same_dims(const struct leat_value *a, const struct leat_value *b)
{
    bool same = a->rank == b->rank;
    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d] && a->dims[d] != LEAT_DIM_UNKNOWN;
    }
    return same;
}

static bool
changes_nothing(const struct leat_graph *graph, const struct leat_node *node, const uint32_t *uses)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const struct leat_value *y = leat_node_output(graph, node, 0);
    uint32_t perm[LEAT_RANK_MAX];

    switch (node->op->kind) {
    case LEAT_OP_IDENTITY:
        return true;
    case LEAT_OP_DROPOUT:
        return node->output_count < 2 || node->outputs[1] == LEAT_VALUE_NONE ||
               uses[node->outputs[1]] == 0;
    case LEAT_OP_CAST:
        return x->dtype == y->dtype;
    case LEAT_OP_RESHAPE:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_UNSQUEEZE:
        return same_dims(x, y);
    case LEAT_OP_TRANSPOSE:
        leat_transpose_perm(node, x->rank, perm);
        for (uint32_t d = 0; d < x->rank; d++) {
            if (perm[d] != d) {
                return false;
            }
        }
        return true;
    default:
        return false;
    }
}

struct renames {
    uint32_t *source; /* a removed node's output: what it was a copy of; else the value itself */
    uint32_t
        *output; /* what a graph output was a copy of: that graph output; else the value itself */
    bool *fixed; /* graph inputs, constants and graph outputs keep their place */
};

static void
apply(const struct renames *renames, uint32_t *indices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (indices[i] != LEAT_VALUE_NONE) {
            indices[i] = renames->output[renames->source[indices[i]]];
        }
    }
}

static bool
remove_all(struct leat_graph *graph, bool transposes_only, const uint32_t *uses, struct renames *renames)
{
    bool changed = false;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *node = &graph->nodes[n];
        if (node->fused_add != LEAT_VALUE_NONE || node->fused_activation != LEAT_ACTIVATION_NONE ||
            (transposes_only && node->op->kind != LEAT_OP_TRANSPOSE) || !changes_nothing(graph, node, uses)) {
            continue;
        }
        const uint32_t x = renames->source[node->inputs[0]], y = node->outputs[0];
        if (!renames->fixed[y]) {
            renames->source[y] = x;
        } else if (!renames->fixed[x] && renames->output[x] == x) {
            renames->output[x] = y; /* y is a graph output: whoever computes x writes y instead */
        } else {
            continue;
        }
        node->op = NULL;
        changed = true;
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct leat_node *node = &graph->nodes[n];
        apply(renames, node->inputs, node->input_count);
        apply(renames, &node->fused_add, 1);
        if (node->op != NULL) {
            apply(renames, node->outputs, node->output_count);
        }
    }
    return changed;
}

static enum leat_status
remove_identities(struct leat_graph *graph, bool transposes_only, bool *ret_changed)
{
    const size_t count = (size_t)graph->value_count + 1;
    struct renames renames = {.source = calloc(count, sizeof(uint32_t)),
                              .output = calloc(count, sizeof(uint32_t)),
                              .fixed = calloc(count, sizeof(bool))};
    uint32_t *uses = calloc(count, sizeof(*uses));
    enum leat_status status = LEAT_OK;

    if (renames.source == NULL || renames.output == NULL || renames.fixed == NULL || uses == NULL) {
        status =
            LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a pass over %u values", graph->value_count);
    } else {
        for (uint32_t v = 0; v < graph->value_count; v++) {
            renames.source[v] = renames.output[v] = v;
            renames.fixed[v] = graph->values[v].data != NULL;
        }
        for (uint32_t i = 0; i < graph->input_count; i++) {
            renames.fixed[graph->inputs[i]] = true;
        }
        for (uint32_t o = 0; o < graph->output_count; o++) {
            renames.fixed[graph->outputs[o]] = true;
        }
        leat_graph_count_uses(graph, uses);
        *ret_changed = remove_all(graph, transposes_only, uses, &renames);
        leat_graph_sweep_nodes(graph);
    }
    free(renames.source);
    free(renames.output);
    free(renames.fixed);
    free(uses);
    return status;
}

LEAT_PASS_FUNCTION(remove_identities)
{
    return remove_identities(graph, false, ret_changed);
}

enum leat_status
leat_pass_remove_transposes(struct leat_graph *graph, bool *ret_changed)
{
    return remove_identities(graph, true, ret_changed);
}

/* While others read what lies between, two Transposes stay two: only an identity is worth it then. */
static enum leat_status
merge_transposes(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *node, bool *ret_done)
{
    const struct leat_node *first =
        node->op->kind == LEAT_OP_TRANSPOSE ? leat_pass_producer(graph, index, node->inputs[0], LEAT_OP_TRANSPOSE) : NULL;
    uint32_t inner[LEAT_RANK_MAX], outer[LEAT_RANK_MAX];
    bool identity = true;

    if (first == NULL) {
        return LEAT_OK;
    }
    const uint32_t rank = leat_node_input(graph, node, 0)->rank, x = first->inputs[0];
    int64_t *perm = leat_graph_alloc(graph, rank, sizeof(*perm));
    if (perm == NULL) {
        return leat_graph_shortage(graph);
    }
    leat_transpose_perm(first, rank, inner);
    leat_transpose_perm(node, rank, outer);
    for (uint32_t d = 0; d < rank; d++) {
        perm[d] = inner[outer[d]];
        identity = identity && perm[d] == d;
    }
    if (!identity && index->uses[node->inputs[0]] > 1) {
        return LEAT_OK;
    }
    const struct leat_attribute attribute = {.name = "perm", .kind = LEAT_ATTRIBUTE_INTS, .count = rank, .ints = perm};
    *ret_done = true;
    return leat_pass_replace(graph, index, node, node->op, &x, 1, &attribute, 1);
}

LEAT_PASS_FUNCTION(merge_transposes)
{
    bool removed;
    const enum leat_status status = leat_pass_each(graph, merge_transposes, ret_changed);
    return status == LEAT_OK && *ret_changed ? leat_pass_remove_transposes(graph, &removed) : status;
}
