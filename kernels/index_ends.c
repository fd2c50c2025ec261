/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/index_ends.h"

#include <stdlib.h>

#include "kernels/op.h"

/* An end of 0 says nothing. */
static int64_t
lesser(int64_t a, int64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Of an operator that gives what it is given, whole or in parts; all of its results together. */
static int64_t
end_of_results(const struct leat_node *node, const int64_t *ends)
{
    int64_t end = 0;

    for (uint32_t o = 0; o < node->output_count; o++) {
        end = lesser(end, node->outputs[o] != LEAT_VALUE_NONE ? ends[node->outputs[o]] : 0);
    }
    return end;
}

static int64_t
rows_of(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *table = leat_node_input(graph, node, 0);
    const int64_t axis = leat_node_axis(node, 0, table->rank);
    return axis >= 0 && axis < table->rank && table->dims[axis] > 0 ? table->dims[axis] : 0;
}

static int64_t
greatest_divisor(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *divisors = leat_node_input(graph, node, 1);
    int64_t greatest = 0;

    if (divisors->data == NULL || !leat_value_in_place(divisors) ||
        (divisors->dtype != LEAT_DTYPE_I64 && divisors->dtype != LEAT_DTYPE_I32)) {
        return 0;
    }
    for (size_t i = 0; i < leat_value_elements(divisors); i++) {
        const int64_t divisor = divisors->dtype == LEAT_DTYPE_I64 ? ((const int64_t *)divisors->data)[i]
                                                                  : ((const int32_t *)divisors->data)[i];
        greatest = divisor > greatest ? divisor : greatest;
    }
    return greatest;
}

static void
narrow(int64_t *ends, const struct leat_node *node, uint32_t input, int64_t end)
{
    if (node->inputs[input] != LEAT_VALUE_NONE) {
        ends[node->inputs[input]] = lesser(ends[node->inputs[input]], end);
    }
}

/* From what is known of a node's results to its inputs. */
static void
go_back(const struct leat_graph *graph, const struct leat_node *node, int64_t *ends)
{
    switch (node->op->kind) {
    case LEAT_OP_GATHER:
    case LEAT_OP_GATHER_ELEMENTS:
        narrow(ends, node, 1, rows_of(graph, node));
        narrow(ends, node, 0, end_of_results(node, ends));
        break;
    case LEAT_OP_EMBEDDING_BAG:
        narrow(ends, node, 1, rows_of(graph, node));
        break;
    case LEAT_OP_MOD:
        if (end_of_results(node, ends) > 0) {
            narrow(ends, node, 0, greatest_divisor(graph, node));
        }
        break;
    case LEAT_OP_CONCAT:
        for (uint32_t i = 0; i < node->input_count; i++) {
            narrow(ends, node, i, end_of_results(node, ends));
        }
        break;
    case LEAT_OP_CAST:
    case LEAT_OP_EXPAND:
    case LEAT_OP_FLATTEN:
    case LEAT_OP_IDENTITY:
    case LEAT_OP_RESHAPE:
    case LEAT_OP_SLICE:
    case LEAT_OP_SPLIT:
    case LEAT_OP_SQUEEZE:
    case LEAT_OP_TILE:
    case LEAT_OP_TRANSPOSE:
    case LEAT_OP_UNSQUEEZE:
        narrow(ends, node, 0, end_of_results(node, ends));
        break;
    default:
        break;
    }
}

enum leat_status
leat_graph_index_ends(const struct leat_graph *graph, int64_t *ret_ends)
{
    int64_t *ends = calloc((size_t)graph->value_count + 1, sizeof(*ends));

    if (ends == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to look for a model's tables");
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        go_back(graph, &graph->nodes[n], ends);
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *input = &graph->values[graph->inputs[i]];
        const bool whole = input->dtype == LEAT_DTYPE_I64 || input->dtype == LEAT_DTYPE_I32;
        ret_ends[i] = whole ? ends[graph->inputs[i]] : 0;
    }
    free(ends);
    return LEAT_OK;
}
