/* SPDX-License-Identifier: Apache-2.0 */
/* Constant folding of one node, and the concrete copy of a graph that backends plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/entries.h"
#include "kernels/graph_build.h"
#include "kernels/reference/reference.h"

#define UNROLL_ROUNDS_MAX 16

static bool
can_fold(struct leat_graph *graph, const struct leat_node *node)
{
    uint64_t bytes = 0;

    if (node->output_count != 1 || node->op->workspace_bytes != NULL || node->fused_add != LEAT_VALUE_NONE || node->fused_activation != LEAT_ACTIVATION_NONE) {
        return false;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *input = leat_node_input(graph, node, i);
        /* These look at the dims alone. */
        const bool dims_only = node->op->kind == LEAT_OP_SHAPE || node->op->kind == LEAT_OP_SIZE ||
                               node->op->kind == LEAT_OP_EYE_LIKE;
        if (input != NULL && (!leat_value_is_known(input) || input->bounded ||
                              (input->data == NULL && !dims_only))) {
            return false;
        }
    }
    const struct leat_value *output = leat_node_output(graph, node, 0);
    if (!leat_value_is_known(output)) {
        return false;
    }
    bytes = leat_value_bytes(output);
    return leat_graph_may_fold(graph, bytes);
}

/* Points data[v] at the constants that a node reads. */
static void
point_at_inputs(const struct leat_graph *graph, const struct leat_node *node, void **data)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != LEAT_VALUE_NONE) {
            /* The cast drops const: reference functions write outputs only. */
            data[node->inputs[i]] = (void *)(uintptr_t)graph->values[node->inputs[i]].data;
        }
    }
}

static enum leat_status
settle_inputs(struct leat_graph *graph, const struct leat_node *node)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < node->input_count && status == LEAT_OK; i++) {
        status = node->inputs[i] != LEAT_VALUE_NONE ? leat_graph_settle_constant(graph, node->inputs[i]) : LEAT_OK;
    }
    return status;
}

enum leat_status
leat_graph_fold_node(struct leat_graph *graph, const struct leat_node *node, void **data, bool *ret_folded)
{
    void *result = NULL;

    *ret_folded = false;
    if (!can_fold(graph, node)) {
        return LEAT_OK;
    }
    const uint32_t output = node->outputs[0];
    enum leat_status status = settle_inputs(graph, node);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, output, &result);
    }
    if (status != LEAT_OK) {
        return status;
    }
    point_at_inputs(graph, node, data);
    data[output] = result;
    const struct leat_eval eval = {.graph = graph, .node = node, .data = data};
    status = leat_reference_run_node(&eval);
    *ret_folded = status == LEAT_OK;
    return status;
}

/* Captured constants of this node's graphs are theirs. */
void
leat_graph_absorb(struct leat_node *node, const struct leat_graph *graph)
{
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        struct leat_attribute *attribute = &node->attributes[a];
        uint32_t first, kept = 0;
        if (attribute->kind != LEAT_ATTRIBUTE_GRAPH) {
            continue;
        }
        struct leat_graph *inner = leat_node_graph(node, attribute->name, &first);
        uint32_t *captures = inner->inputs + inner->input_count - attribute->count;
        for (uint32_t c = 0; c < attribute->count; c++) {
            const struct leat_value *value = &graph->values[node->inputs[first + c]];
            if (value->data != NULL) {
                leat_graph_share_constant(inner, captures[c], value);
            } else {
                captures[kept] = captures[c];
                node->inputs[first + kept++] = node->inputs[first + c];
            }
        }
        const uint32_t gone = attribute->count - kept;
        memmove(node->inputs + first + kept, node->inputs + first + attribute->count,
                (node->input_count - first - attribute->count) * sizeof(*node->inputs));
        node->input_count -= gone;
        inner->input_count -= gone;
        attribute->count = kept;
    }
}

enum leat_status
leat_folding_init(struct leat_folding *folding, uint32_t count)
{
    folding->count = count;
    folding->data = calloc((size_t)count + 1, sizeof(*folding->data));
    folding->producer = malloc(((size_t)count + 1) * sizeof(*folding->producer));
    if (folding->data == NULL || folding->producer == NULL) {
        leat_folding_fini(folding);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to fold constants");
    }
    memset(folding->producer, 0xff, ((size_t)count + 1) * sizeof(*folding->producer));
    return LEAT_OK;
}

void
leat_folding_fini(struct leat_folding *folding)
{
    free(folding->data);
    free(folding->producer);
    *folding = (struct leat_folding){0};
}

static void
note_outputs(const struct leat_node *node, uint32_t n, uint32_t *producer)
{
    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] != LEAT_VALUE_NONE) {
            producer[node->outputs[o]] = n;
        }
    }
}

/* An inferred node that is computed is to go. */
static enum leat_status
fold_inferred(struct leat_graph *graph, uint32_t n, struct leat_folding *folding, bool *ret_folded)
{
    const struct leat_node *node = &graph->nodes[n];
    enum leat_status status = LEAT_OK;

    *ret_folded = false;
    if ((node->op->flags & LEAT_OP_FOLDABLE) != 0) {
        status = leat_graph_fold_node(graph, node, folding->data, ret_folded);
    }
    if (status == LEAT_OK && !*ret_folded && !graph->repeats) {
        const struct leat_producers producers = {.node = folding->producer, .count = folding->count};
        note_outputs(node, n, folding->producer);
        status = leat_entries_fold(graph, producers, node, ret_folded);
    }
    return status;
}

enum leat_status
leat_graph_fold_from(struct leat_graph *graph, uint32_t first, struct leat_folding *folding, bool *ret_changed)
{
    enum leat_status status = LEAT_OK;
    uint32_t kept = first;

    for (uint32_t n = first; n < graph->node_count; n++) {
        bool folded = false;
        if (status == LEAT_OK) {
            leat_graph_absorb(&graph->nodes[n], graph);
            status = leat_graph_infer_node(graph, &graph->nodes[n]);
        }
        if (status == LEAT_OK) {
            status = fold_inferred(graph, n, folding, &folded);
        }
        if (!folded) {
            note_outputs(&graph->nodes[n], kept, folding->producer);
            graph->nodes[kept++] = graph->nodes[n];
        }
    }
    *ret_changed = kept < graph->node_count;
    graph->node_count = kept;
    return status;
}

static enum leat_status
fold_once(struct leat_graph *graph, bool *ret_changed)
{
    struct leat_folding folding = {0};

    enum leat_status status = leat_folding_init(&folding, graph->value_count);
    if (status == LEAT_OK) {
        status = leat_graph_fold_from(graph, 0, &folding, ret_changed);
    }
    leat_folding_fini(&folding);
    return status;
}

enum leat_status
leat_graph_fold(struct leat_graph *graph, bool *ret_changed)
{
    bool unrolled = true;

    /* What one loop yields may decide the next. */
    enum leat_status status = fold_once(graph, ret_changed);
    for (int round = 0; round < UNROLL_ROUNDS_MAX && unrolled && status == LEAT_OK; round++) {
        bool folded = false;
        status = leat_graph_unroll(graph, &unrolled);
        if (status == LEAT_OK && unrolled) {
            status = fold_once(graph, &folded);
            *ret_changed = true;
        }
    }
    return status;
}

/* The known dims multiply to an acceptable size. */
static bool
has_room(const struct leat_value *value)
{
    uint64_t bytes = leat_dtype_bytes(value->dtype);

    for (uint32_t d = 0; d < value->rank; d++) {
        if (value->dims[d] > 0 && (!leat_mul_u64(bytes, (uint64_t)value->dims[d], &bytes) ||
                                   bytes > LEAT_VALUE_BYTES_MAX)) {
            return false;
        }
    }
    return true;
}

static enum leat_status
fix_inputs(struct leat_graph *graph, int64_t items)
{
    for (uint32_t i = 0; i < graph->input_count; i++) {
        struct leat_value *value = &graph->values[graph->inputs[i]];
        for (uint32_t d = 0; d < value->rank; d++) {
            if (value->dims[d] <= LEAT_DIM_SYMBOL(0)) {
                const char *name = graph->symbols[LEAT_DIM_SYMBOL(0) - value->dims[d]];
                return LEAT_FAIL(
                    LEAT_ERR_UNSUPPORTED,
                    "dimension %u of input '%.64s' is free, it is called '%.64s': give it a value "
                    "(--dim %.64s=N)",
                    d, value->name, name, name);
            }
            if (value->dims[d] == LEAT_DIM_BATCH) {
                value->dims[d] = items;
            }
        }
        if (!has_room(value)) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "input '%.64s' is too large for %lld items",
                             value->name, (long long)items);
        }
    }
    return LEAT_OK;
}

/* "'height', 'width'", or as many as there is room for. */
static void
list_symbols(const struct leat_graph *graph, char *text, size_t bytes)
{
    size_t used = 0;

    (void)snprintf(text, bytes, "nothing");
    for (uint32_t s = 0; s < graph->symbol_count && used < bytes; s++) {
        if (graph->symbols[s] != NULL) {
            used += (size_t)snprintf(text + used, bytes - used, "%s'%.64s'", used > 0 ? ", " : "",
                                     graph->symbols[s]);
        }
    }
}

/* bound[s] is the value of symbol s, or the symbol. */
static enum leat_status
find_values(const struct leat_graph *graph, const struct leat_dim_value *values, uint32_t count,
            int64_t *bound)
{
    char free_ones[256];

    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        bound[s] = LEAT_DIM_SYMBOL(s);
    }
    for (uint32_t v = 0; v < count; v++) {
        uint32_t s = 0;
        while (s < graph->symbol_count &&
               (graph->symbols[s] == NULL || strcmp(graph->symbols[s], values[v].name) != 0)) {
            s++;
        }
        if (s == graph->symbol_count) {
            list_symbols(graph, free_ones, sizeof(free_ones));
            return LEAT_FAIL(
                LEAT_ERR_INVALID,
                "no dimension '%.64s' can be given a value; beside the batch, free is %s",
                values[v].name, free_ones);
        }
        if (bound[s] >= 0) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "dimension '%.64s' is given two values",
                             values[v].name);
        }
        if (values[v].value < 1 || values[v].value > LEAT_DIM_MAX) {
            return LEAT_FAIL(LEAT_ERR_INVALID,
                             "dimension '%.64s' cannot be %lld; 1 to %lld are possible",
                             values[v].name, (long long)values[v].value, (long long)LEAT_DIM_MAX);
        }
        bound[s] = values[v].value;
    }
    return LEAT_OK;
}

enum leat_status
leat_graph_give_dims(struct leat_graph *graph, const struct leat_dim_value *values, uint32_t count)
{
    int64_t bound[LEAT_GRAPH_SYMBOLS_MAX];

    const enum leat_status status = find_values(graph, values, count, bound);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct leat_value *value =
            &graph->values[v]; /* perhaps one that a pass left without a reader */
        for (uint32_t d = 0; d < value->rank; d++) {
            value->dims[d] = value->dims[d] <= LEAT_DIM_SYMBOL(0)
                                 ? bound[LEAT_DIM_SYMBOL(0) - value->dims[d]]
                                 : value->dims[d];
        }
        if (!has_room(value)) {
            return LEAT_FAIL(LEAT_ERR_LIMIT, "'%.64s' is too large with these dimensions",
                             value->name);
        }
    }
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        graph->symbols[s] = bound[s] >= 0 ? NULL : graph->symbols[s];
    }
    return LEAT_OK;
}

enum leat_status
leat_graph_bind(struct leat_graph *graph, const struct leat_dim_value *values, uint32_t count)
{
    bool changed;

    enum leat_status status = leat_graph_give_dims(graph, values, count);
    if (status == LEAT_OK && count > 0) {
        status = leat_graph_fold(graph, &changed);
    }
    return status == LEAT_OK ? leat_graph_lead_batch(graph) : status;
}

static enum leat_status
check_known(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        for (uint32_t o = 0; o < node->output_count; o++) {
            const struct leat_value *output = leat_node_output(graph, node, o);
            if (output != NULL && !leat_value_is_known(output)) {
                return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                                      "the shape of output '%.64s' depends on tensor contents",
                                      output->name);
            }
        }
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            const struct leat_attribute *attribute = &node->attributes[a];
            const enum leat_status status =
                attribute->kind == LEAT_ATTRIBUTE_GRAPH && leat_node_runs(graph, node, attribute)
                    ? check_known(attribute->graph)
                    : LEAT_OK;
            if (status != LEAT_OK) {
                return leat_node_failed(node, status);
            }
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_graph_specialise(const struct leat_graph *graph, int64_t items, struct leat_graph **ret_graph)
{
    struct leat_graph *copy = NULL;
    bool changed;

    if (items < 1 || items > (int64_t)LEAT_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a batch of %lld items; 1 to %u are possible",
                         (long long)items, LEAT_ITEMS_MAX);
    }
    enum leat_status status = leat_graph_copy(graph, &copy);
    if (status != LEAT_OK) {
        return status;
    }
    copy->items = items;
    status = fix_inputs(copy, items);
    if (status == LEAT_OK) {
        status = leat_graph_fold(copy, &changed);
    }
    if (status == LEAT_OK) {
        status = check_known(copy);
    }
    if (status != LEAT_OK) {
        leat_graph_destroy(copy);
        return status;
    }
    *ret_graph = copy;
    return LEAT_OK;
}
