/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of graph.h as a program: for tests and the fuzzer. */
#include <stdlib.h>

#include "kernels/graph_build.h"
#include "kernels/op.h"

static enum leat_status
check_value(const struct leat_graph *graph, const struct leat_value *value, uint32_t v)
{
    if (value->name == NULL || leat_dtype_bytes(value->dtype) == 0 || value->rank > LEAT_RANK_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "value %u has no name, type or rank", v);
    }
    uint64_t bytes = leat_dtype_bytes(value->dtype);
    for (uint32_t d = 0; d < value->rank; d++) {
        const int64_t symbol = LEAT_DIM_SYMBOL(0) - value->dims[d];
        if (value->dims[d] > LEAT_DIM_MAX ||
            (symbol >= 0 && (symbol >= graph->symbol_count || graph->symbols[symbol] == NULL))) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "value %u has dimension %lld", v,
                             (long long)value->dims[d]);
        }
        if (value->dims[d] > 0 &&
            (__builtin_mul_overflow(bytes, (uint64_t)value->dims[d], &bytes) ||
             bytes > LEAT_VALUE_BYTES_MAX)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "value %u is too large", v);
        }
    }
    if (value->data != NULL &&
        (!leat_value_is_known(value) || value->data_bytes != leat_value_bytes(value) ||
         (value->mapping == NULL && !leat_value_in_place(value)))) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "constant %u does not have the bytes of its shape", v);
    }
    return LEAT_OK;
}

/* defined[v]: v is a constant, a graph input or the output of an earlier node. */
static bool
all_defined(const struct leat_graph *graph, const uint32_t *indices, uint32_t count, bool optional,
            const bool *defined)
{
    for (uint32_t i = 0; i < count; i++) {
        if (indices[i] == LEAT_VALUE_NONE
                ? !optional
                : indices[i] >= graph->value_count || !defined[indices[i]]) {
            return false;
        }
    }
    return true;
}

static enum leat_status
check_node(const struct leat_graph *graph, uint32_t n, bool *defined)
{
    const struct leat_node *node = &graph->nodes[n];

    if (node->op == NULL || node->name == NULL ||
        !all_defined(graph, node->inputs, node->input_count, true, defined) ||
        !all_defined(graph, &node->fused_add, 1, true, defined)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "node %u reads what is not computed before it", n);
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        const uint32_t v = node->outputs[o];
        if (v != LEAT_VALUE_NONE) {
            if (v >= graph->value_count || defined[v]) {
                return LEAT_FAIL(LEAT_ERR_INVALID,
                                 "node %u writes value %u, which has another source", n, v);
            }
            defined[v] = true;
        }
    }
    uint32_t captures = 0;
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        const struct leat_attribute *attribute = &node->attributes[a];
        if (attribute->kind != LEAT_ATTRIBUTE_GRAPH) {
            continue;
        }
        captures += attribute->count;
        if (attribute->count > attribute->graph->input_count || captures > node->input_count) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "node %u has fewer inputs than its graphs capture", n);
        }
        const enum leat_status status = leat_graph_check(attribute->graph);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return leat_op_check(node);
}

static enum leat_status
check_all(const struct leat_graph *graph, bool *defined)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t v = 0; v < graph->value_count && status == LEAT_OK; v++) {
        status = check_value(graph, &graph->values[v], v);
        defined[v] = graph->values[v].data != NULL;
    }
    for (uint32_t i = 0; i < graph->input_count && status == LEAT_OK; i++) {
        const uint32_t v = graph->inputs[i];
        if (v >= graph->value_count || defined[v]) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "graph input %u is a constant or there twice", i);
        }
        defined[v] = true;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        status = check_node(graph, n, defined);
    }
    if (status == LEAT_OK &&
        !all_defined(graph, graph->outputs, graph->output_count, false, defined)) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "a graph output is never computed");
    }
    return status;
}

enum leat_status
leat_graph_check(const struct leat_graph *graph)
{
    bool *defined = calloc((size_t)graph->value_count + 1, sizeof(*defined));
    if (defined == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to check a graph");
    }
    const enum leat_status status = check_all(graph, defined);
    free(defined);
    return status;
}
