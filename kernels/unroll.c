/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If, Loop and Scan become what they do where that is known before a run: backends see plain nodes, and passes fuse across
 * iterations. What would grow too large stays, and runs as a graph inside a node.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"

#define UNROLLED_NODES_MAX (LEAT_GRAPH_NODES_MAX / 2)
#define TRIPS_MAX          LEAT_NODE_ARITY_MAX /* results of all iterations are operands of one Concat */

struct unroller {
    struct leat_graph *graph;
    const struct leat_node *node; /* being unrolled */
    const struct leat_graph *inner;
    uint32_t *constants; /* [inner->value_count] what an inner constant is outside, or LEAT_VALUE_NONE */
    uint32_t *map;       /* the same for all values, in one iteration */
    uint32_t *states;    /* [LEAT_NODE_ARITY_MAX] before the next iteration */
    uint32_t *results;   /* [LEAT_NODE_OUTPUTS_MAX][TRIPS_MAX] to be stacked */
    uint32_t trips;
};

/* ---- Nodes ----------------------------------------------------------------------------------------- */

static enum leat_status
add(struct unroller *u, const char *op, const uint32_t *inputs, uint32_t input_count, uint32_t output,
    const struct leat_attribute *attribute)
{
    return leat_graph_add_node(u->graph, leat_op_find(op, u->graph->opset), u->node->name, inputs, input_count, &output, 1,
                               attribute, attribute != NULL);
}

static enum leat_status
new_value(struct unroller *u, uint32_t *ret)
{
    return leat_graph_add_value(u->graph, u->node->name, LEAT_DTYPE_F32, 0, NULL, ret);
}

static enum leat_status
add_number(struct unroller *u, uint32_t rank, int64_t number, uint32_t *ret)
{
    return leat_graph_add_constant(u->graph, u->node->name, LEAT_DTYPE_I64, rank, (const int64_t[]){1}, &number, ret);
}

/* Output o of the node, unless nobody reads it, is `value`. */
static enum leat_status
yield(struct unroller *u, uint32_t o, uint32_t value)
{
    return o >= u->node->output_count || u->node->outputs[o] == LEAT_VALUE_NONE
               ? LEAT_OK
               : add(u, "Identity", &value, 1, u->node->outputs[o], NULL);
}

/* ---- One iteration --------------------------------------------------------------------------------- */

static enum leat_status
share_constants(struct unroller *u)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t v = 0; v < u->inner->value_count && status == LEAT_OK; v++) {
        const struct leat_value *value = &u->inner->values[v];
        u->constants[v] = LEAT_VALUE_NONE;
        if (value->data != NULL) {
            status = leat_graph_add_value(u->graph, value->name, value->dtype, value->rank, value->dims, &u->constants[v]);
            if (status == LEAT_OK) {
                leat_graph_share_constant(u->graph, u->constants[v], value);
            }
        }
    }
    return status;
}

/* Constants and captures; the caller adds what changes from one iteration to the next. */
static void
begin_iteration(struct unroller *u, const char *name)
{
    const uint32_t captures = leat_node_attribute(u->node, name)->count;
    const uint32_t declared = u->inner->input_count - captures;
    uint32_t captured;

    memcpy(u->map, u->constants, u->inner->value_count * sizeof(*u->map));
    (void)leat_node_graph(u->node, name, &captured);
    for (uint32_t c = 0; c < captures; c++) {
        u->map[u->inner->inputs[declared + c]] = u->node->inputs[captured + c];
    }
}

static enum leat_status
copy_node(struct unroller *u, const struct leat_node *from)
{
    struct leat_graph *graph = u->graph;
    uint32_t *inputs = leat_graph_alloc(graph, from->input_count, sizeof(*inputs));
    uint32_t *outputs = leat_graph_alloc(graph, from->output_count, sizeof(*outputs));
    struct leat_attribute *attributes;

    enum leat_status status = inputs == NULL || outputs == NULL
                                  ? leat_graph_shortage(graph)
                                  : leat_graph_copy_attributes(graph, from, u->map, &attributes);
    for (uint32_t i = 0; i < from->input_count && status == LEAT_OK; i++) {
        inputs[i] = from->inputs[i] == LEAT_VALUE_NONE ? LEAT_VALUE_NONE : u->map[from->inputs[i]];
    }
    for (uint32_t o = 0; o < from->output_count && status == LEAT_OK; o++) {
        outputs[o] = LEAT_VALUE_NONE;
        if (from->outputs[o] != LEAT_VALUE_NONE) {
            const struct leat_value *value = &u->inner->values[from->outputs[o]];
            status = leat_graph_add_value(graph, value->name, value->dtype, value->rank, value->dims, &outputs[o]);
            u->map[from->outputs[o]] = outputs[o];
        }
    }
    if (status == LEAT_OK) {
        status = leat_graph_add_node(graph, from->op, from->name, inputs, from->input_count, outputs, from->output_count, attributes,
                                     from->attribute_count);
    }
    if (status == LEAT_OK) { /* passes have been in branches */
        leat_node_copy_fused(&graph->nodes[graph->node_count - 1], from, u->map);
    }
    return status;
}

static enum leat_status
copy_nodes(struct unroller *u)
{
    enum leat_status status = LEAT_OK;
    for (uint32_t n = 0; n < u->inner->node_count && status == LEAT_OK; n++) {
        status = copy_node(u, &u->inner->nodes[n]);
    }
    return status;
}

/* ---- Slices and stacks ------------------------------------------------------------------------------ */

static enum leat_status
add_slice(struct unroller *u, uint32_t whole, const struct leat_scan_walk *walk, uint32_t trip, uint32_t *ret)
{
    const struct leat_attribute axis = {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = walk->axis};
    uint32_t inputs[2] = {whole, LEAT_VALUE_NONE};

    enum leat_status status = add_number(u, 0, walk->backwards ? u->trips - 1 - trip : trip, &inputs[1]);
    if (status == LEAT_OK) {
        status = new_value(u, ret);
    }
    return status == LEAT_OK ? add(u, "Gather", inputs, 2, *ret, &axis) : status;
}

static enum leat_status
add_axis(struct unroller *u, uint32_t axis, uint32_t *value)
{
    int64_t *axes = leat_graph_alloc(u->graph, 1, sizeof(*axes));
    uint32_t inputs[2] = {*value, LEAT_VALUE_NONE};

    if (axes == NULL) {
        return leat_graph_shortage(u->graph);
    }
    *axes = axis;
    const struct leat_attribute attribute = {.name = "axes", .kind = LEAT_ATTRIBUTE_INTS, .count = 1, .ints = axes};
    const bool as_input = u->graph->opset >= 13;
    enum leat_status status = as_input ? add_number(u, 1, axis, &inputs[1]) : LEAT_OK;
    if (status == LEAT_OK) {
        status = new_value(u, value);
    }
    return status == LEAT_OK ? add(u, "Unsqueeze", inputs, as_input ? 2 : 1, *value, as_input ? NULL : &attribute) : status;
}

/* Node output `o` is what inner output `result` was in all iterations. */
static enum leat_status
stack(struct unroller *u, uint32_t o, uint32_t result, const struct leat_scan_walk *walk)
{
    const struct leat_attribute axis = {.name = "axis", .kind = LEAT_ATTRIBUTE_INT, .i = walk->axis};
    uint32_t *list = u->results + (size_t)o * TRIPS_MAX;
    enum leat_status status = LEAT_OK;

    if (o >= u->node->output_count || u->node->outputs[o] == LEAT_VALUE_NONE) {
        return LEAT_OK;
    }
    if (u->trips == 0) {
        const struct leat_value *step = &u->inner->values[result];
        int64_t dims[LEAT_RANK_MAX];
        uint32_t empty;
        for (uint32_t d = 0, from = 0; d <= step->rank; d++) {
            dims[d] = d == walk->axis ? 0 : step->dims[from++];
        }
        status = leat_graph_add_constant(u->graph, u->node->name, step->dtype, step->rank + 1, dims, NULL, &empty);
        return status == LEAT_OK ? yield(u, o, empty) : status;
    }
    for (uint32_t t = 0; t < u->trips && status == LEAT_OK; t++) {
        status = add_axis(u, walk->axis, &list[t]);
    }
    for (uint32_t t = 0; walk->backwards && t < u->trips / 2; t++) {
        const uint32_t other = list[u->trips - 1 - t];
        list[u->trips - 1 - t] = list[t];
        list[t] = other;
    }
    return status == LEAT_OK ? add(u, "Concat", list, u->trips, u->node->outputs[o], &axis) : status;
}

/* ---- Operators ------------------------------------------------------------------------------------- */

static enum leat_status
unroll_if(struct unroller *u, const char *name)
{
    begin_iteration(u, name);
    enum leat_status status = copy_nodes(u);
    for (uint32_t o = 0; o < u->inner->output_count && status == LEAT_OK; o++) {
        status = yield(u, o, u->map[u->inner->outputs[o]]);
    }
    return status;
}

/* Inner inputs [first, ...) and outputs [result, ...) begin with the states, which are the node's inputs [first, ...) too. */
static enum leat_status
unroll_iterations(struct unroller *u, uint32_t first, uint32_t state_count, uint32_t result)
{
    const bool scan = u->node->op->kind == LEAT_OP_SCAN;
    const uint32_t walked = leat_node_own_inputs(u->node) - first - state_count;
    const uint32_t stacked = u->inner->output_count - result - state_count;
    const uint8_t yes = 1;
    enum leat_status status = LEAT_OK;
    uint32_t on = LEAT_VALUE_NONE;

    if (!scan) {
        status = leat_graph_add_constant(u->graph, u->node->name, LEAT_DTYPE_BOOL, 0, NULL, &yes, &on);
    }
    memcpy(u->states, u->node->inputs + first, state_count * sizeof(*u->states));
    for (uint32_t t = 0; t < u->trips && status == LEAT_OK; t++) {
        begin_iteration(u, "body");
        if (!scan) {
            status = add_number(u, 0, t, &u->map[u->inner->inputs[0]]);
            u->map[u->inner->inputs[1]] = on;
        }
        for (uint32_t s = 0; s < state_count; s++) {
            u->map[u->inner->inputs[first + s]] = u->states[s];
        }
        for (uint32_t i = 0; i < walked && status == LEAT_OK; i++) {
            const uint32_t whole = u->node->inputs[first + state_count + i];
            struct leat_scan_walk walk;
            LEAT_MUST(leat_scan_input(u->node, i, u->graph->values[whole].rank, &walk));
            status = add_slice(u, whole, &walk, t, &u->map[u->inner->inputs[first + state_count + i]]);
        }
        if (status == LEAT_OK) {
            status = copy_nodes(u);
        }
        for (uint32_t s = 0; s < state_count && status == LEAT_OK; s++) {
            u->states[s] = u->map[u->inner->outputs[result + s]];
        }
        for (uint32_t o = 0; o < stacked && status == LEAT_OK; o++) {
            u->results[(size_t)(state_count + o) * TRIPS_MAX + t] = u->map[u->inner->outputs[result + state_count + o]];
        }
    }
    for (uint32_t s = 0; s < state_count && status == LEAT_OK; s++) {
        status = yield(u, s, u->states[s]);
    }
    for (uint32_t o = 0; o < stacked && status == LEAT_OK; o++) {
        const uint32_t inner = u->inner->outputs[result + state_count + o];
        struct leat_scan_walk walk = {0};
        LEAT_MUST(!scan || leat_scan_output(u->node, o, u->inner->values[inner].rank + 1, &walk));
        status = stack(u, state_count + o, inner, &walk);
    }
    return status;
}

/* How often the inner graph runs, and which; false where that is not known or too often. */
static bool
is_decided(const struct leat_graph *graph, const struct leat_node *node, const char **ret_name, uint32_t *ret_trips)
{
    struct leat_scan_walk walk;
    int64_t trips = 1;
    bool condition;

    *ret_name = "body";
    if (node->op->kind == LEAT_OP_IF) {
        if (!leat_if_condition(graph, node, &condition)) {
            return false;
        }
        *ret_name = condition ? "then_branch" : "else_branch";
    } else if (node->op->kind == LEAT_OP_LOOP) {
        if (!leat_loop_trips(graph, node, &trips)) {
            return false;
        }
    } else if (node->op->kind == LEAT_OP_SCAN) {
        const struct leat_value *first = leat_node_input(graph, node, leat_scan_states(node));
        LEAT_MUST(leat_scan_input(node, 0, first->rank, &walk));
        trips = first->dims[walk.axis];
    } else {
        return false;
    }
    *ret_trips = trips >= 0 && trips <= (int64_t)TRIPS_MAX ? (uint32_t)trips : 0;
    return trips >= 0 && trips <= (int64_t)TRIPS_MAX;
}

/* An empty stack is a constant, and needs to know its shape. */
static bool
has_unknown_stack(const struct leat_node *node, const struct leat_graph *inner, uint32_t trips)
{
    const bool loops = node->op->kind != LEAT_OP_IF && trips == 0;
    for (uint32_t o = 0; loops && o < inner->output_count; o++) {
        if (!leat_value_is_known(&inner->values[inner->outputs[o]])) {
            return true;
        }
    }
    return false;
}

/* With `behind` nodes still to come. */
static bool
fits(const struct leat_graph *graph, const struct leat_node *node, const struct leat_graph *inner, uint32_t trips,
     uint32_t behind)
{
    const uint64_t edges = 2 * ((uint64_t)node->input_count + node->output_count + inner->output_count + 2);
    const uint64_t nodes = (uint64_t)graph->node_count + behind + (uint64_t)trips * (inner->node_count + edges) + edges;
    uint64_t values = 0;

    for (uint32_t n = 0; n < inner->node_count; n++) {
        values += inner->nodes[n].output_count;
    }
    values = graph->value_count + inner->value_count + trips * (values + edges) + edges;
    return nodes <= UNROLLED_NODES_MAX && values <= LEAT_GRAPH_VALUES_MAX / 2 && leat_op_find("Identity", graph->opset) != NULL &&
           leat_op_find("Concat", graph->opset) != NULL && leat_op_find("Unsqueeze", graph->opset) != NULL &&
           leat_op_find("Gather", graph->opset) != NULL;
}

static enum leat_status
unroll_node(struct unroller *u, const char *name)
{
    const size_t values = (size_t)u->inner->value_count + 1;
    enum leat_status status;

    u->constants = calloc(values, sizeof(*u->constants));
    u->map = calloc(values, sizeof(*u->map));
    u->states = calloc(LEAT_NODE_ARITY_MAX, sizeof(*u->states));
    u->results = calloc((size_t)LEAT_NODE_OUTPUTS_MAX * TRIPS_MAX, sizeof(*u->results));
    if (u->constants == NULL || u->map == NULL || u->states == NULL || u->results == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to unroll");
    } else {
        status = share_constants(u);
    }
    if (status == LEAT_OK) {
        status = u->node->op->kind == LEAT_OP_IF     ? unroll_if(u, name)
                 : u->node->op->kind == LEAT_OP_LOOP ? unroll_iterations(u, 2, leat_node_own_inputs(u->node) - 2, 1)
                                                     : unroll_iterations(u, 0, leat_scan_states(u->node), 0);
    }
    free(u->constants);
    free(u->map);
    free(u->states);
    free(u->results);
    return status == LEAT_OK ? LEAT_OK : leat_node_failed(u->node, status);
}

enum leat_status
leat_graph_unroll(struct leat_graph *graph, bool *ret_changed)
{
    enum leat_status status = LEAT_OK;
    uint32_t count, trips, captured;
    const char *name;
    bool any = false;

    *ret_changed = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        any = any || leat_node_has_graphs(&graph->nodes[n]);
    }
    if (!any) {
        return LEAT_OK;
    }
    const struct leat_node *nodes = leat_graph_take_nodes(graph, &count);
    for (uint32_t n = 0; n < count && status == LEAT_OK; n++) {
        const struct leat_node *node = &nodes[n];
        struct unroller u = {.graph = graph, .node = node};
        if (leat_node_has_graphs(node) && is_decided(graph, node, &name, &trips)) {
            u.inner = leat_node_graph(node, name, &captured);
            u.trips = trips;
        }
        if (u.inner == NULL || has_unknown_stack(node, u.inner, trips) ||
            !fits(graph, node, u.inner, trips, count - n)) {
            status = leat_graph_put_node(graph, node);
        } else {
            status = unroll_node(&u, name);
            *ret_changed = true;
        }
    }
    return status;
}
