/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of sequences may have them before the items: [length][items][features]. Clients and backends have each item's elements
 * together, so Transposes go in front of such inputs and behind such outputs; passes merge them with others.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/op.h"

#define FEW  5 /* as kernels/signature.c has them */
#define MANY 7

/* The axis that counts items, if it is one alone; else 0. */
static uint32_t
axis_of_input(const struct leat_value *value)
{
    uint32_t axis = 0, count = 0;

    for (uint32_t d = 0; d < value->rank; d++) {
        axis = value->dims[d] == LEAT_DIM_BATCH ? d : axis;
        count += value->dims[d] == LEAT_DIM_BATCH;
    }
    return count == 1 ? axis : 0;
}

static uint32_t
axis_of_output(const struct leat_value *few, const struct leat_value *many)
{
    uint32_t axis = 0, count = 0;

    for (uint32_t d = 0; d < few->rank && few->rank == many->rank; d++) {
        const bool differs = few->dims[d] != many->dims[d];
        axis = differs ? d : axis;
        count += differs;
    }
    return count == 1 && few->dims[axis] == FEW && many->dims[axis] == MANY ? axis : 0;
}

/* A value like `value`, with dimension `from` as its dimension `to`; it has the name, and `value` another one. */
static enum leat_status
add_moved(struct leat_graph *graph, uint32_t value, uint32_t from, uint32_t to, uint32_t *ret_moved)
{
    const struct leat_value lain = graph->values[value];
    int64_t dims[LEAT_RANK_MAX];
    char text[128];

    memcpy(dims, lain.dims, sizeof(dims));
    memmove(dims + from, dims + from + 1, (lain.rank - from - 1) * sizeof(dims[0]));
    memmove(dims + to + 1, dims + to, (lain.rank - to - 1) * sizeof(dims[0]));
    dims[to] = lain.dims[from];
    (void)snprintf(text, sizeof(text), "%.96s, as in the file", lain.name);
    const char *name = leat_graph_text(graph, text);
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    const enum leat_status status = leat_graph_add_value(graph, lain.name, lain.dtype, lain.rank, dims, ret_moved);
    if (status == LEAT_OK) {
        graph->values[value].name = name;
    }
    return status;
}

/* Axis `from` of x becomes axis `to` of y. */
static enum leat_status
add_transpose(struct leat_graph *graph, uint32_t x, uint32_t y, uint32_t from, uint32_t to)
{
    const uint32_t rank = graph->values[x].rank;
    int64_t *perm = leat_graph_alloc(graph, rank, sizeof(*perm));

    if (perm == NULL) {
        return leat_graph_shortage(graph);
    }
    for (uint32_t d = 0, next = 0; d < rank; d++) {
        next += next == from;
        perm[d] = d == to ? from : next++;
    }
    const struct leat_attribute attribute = {.name = "perm", .kind = LEAT_ATTRIBUTE_INTS, .count = rank, .ints = perm};
    const struct leat_op *op = leat_op_find("Transpose", graph->opset);
    return op != NULL ? leat_graph_add_node(graph, op, graph->values[y].name, &x, 1, &y, 1, &attribute, 1)
                      : LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "there is no Transpose at opset %lld", (long long)graph->opset);
}

static enum leat_status
lead_inputs(struct leat_graph *graph)
{
    enum leat_status status = LEAT_OK;
    uint32_t count;

    const struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    for (uint32_t i = 0; i < graph->input_count && status == LEAT_OK; i++) {
        const uint32_t input = graph->inputs[i], axis = axis_of_input(&graph->values[input]);
        uint32_t moved;
        if (axis == 0) {
            continue;
        }
        status = add_moved(graph, input, axis, 0, &moved);
        if (status == LEAT_OK) {
            status = add_transpose(graph, moved, input, 0, axis);
            graph->inputs[i] = moved;
        }
    }
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        status = leat_graph_put_node(graph, &nodes[n]);
    }
    return status;
}

static enum leat_status
lead_outputs(struct leat_graph *graph, const struct leat_graph *few, const struct leat_graph *many)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t o = 0; o < graph->output_count && status == LEAT_OK; o++) {
        const uint32_t output = graph->outputs[o];
        const uint32_t axis = axis_of_output(&few->values[output], &many->values[output]);
        uint32_t moved;
        if (axis == 0) {
            continue;
        }
        status = add_moved(graph, output, axis, 0, &moved);
        if (status == LEAT_OK) {
            status = add_transpose(graph, output, moved, axis, 0);
            graph->outputs[o] = moved;
        }
    }
    return status;
}

enum leat_status
leat_graph_lead_batch(struct leat_graph *graph)
{
    struct leat_graph *few = NULL, *many = NULL;

    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        if (graph->symbols[s] != NULL) {
            return LEAT_OK;
        }
    }
    enum leat_status status = graph->batch_named ? lead_inputs(graph) : LEAT_OK;
    if (status != LEAT_OK || !graph->batch_named) {
        return status;
    }
    status = leat_graph_specialise(graph, FEW, &few);
    if (status == LEAT_OK) {
        status = leat_graph_specialise(graph, MANY, &many);
    }
    if (status == LEAT_OK) {
        status = lead_outputs(graph, few, many);
    } else if (status != LEAT_ERR_NOMEM) {
        status = LEAT_OK; /* the signature says what is wrong */
    }
    leat_graph_destroy(few);
    leat_graph_destroy(many);
    return status == LEAT_OK ? leat_graph_infer(graph) : status;
}
