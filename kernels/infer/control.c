/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If, Loop and Scan: nodes with graphs inside. What such a graph is given has the shapes of what the node is given; its own
 * shapes, and what is constant in it, follow.
 */
#include <string.h>

#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"

/* ---- What the attributes and constants say --------------------------------------------------------- */

bool
leat_node_has_graphs(const struct leat_node *node)
{
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        if (node->attributes[a].kind == LEAT_ATTRIBUTE_GRAPH) {
            return true;
        }
    }
    return false;
}

uint32_t
leat_node_own_inputs(const struct leat_node *node)
{
    uint32_t own = node->input_count;
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        own -= node->attributes[a].kind == LEAT_ATTRIBUTE_GRAPH ? node->attributes[a].count : 0;
    }
    return own;
}

struct leat_graph *
leat_node_graph(const struct leat_node *node, const char *name, uint32_t *ret_captured)
{
    uint32_t captured = leat_node_own_inputs(node);
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        const struct leat_attribute *attribute = &node->attributes[a];
        if (attribute->kind == LEAT_ATTRIBUTE_GRAPH) {
            if (strcmp(attribute->name, name) == 0) {
                *ret_captured = captured;
                return attribute->graph;
            }
            captured += attribute->count;
        }
    }
    LEAT_ASSERT(false && "the operator table requires it");
    return NULL;
}

/* A constant of one element; false where it is computed. */
static bool
constant_of(const struct leat_value *value, int64_t *ret)
{
    if (value->data == NULL || value->data_bytes != leat_dtype_bytes(value->dtype) ||
        (value->dtype != LEAT_DTYPE_BOOL && value->dtype != LEAT_DTYPE_I64)) {
        return false;
    }
    *ret = value->dtype == LEAT_DTYPE_BOOL ? *(const uint8_t *)value->data != 0 : *(const int64_t *)value->data;
    return true;
}

bool
leat_if_condition(const struct leat_graph *graph, const struct leat_node *node, bool *ret)
{
    int64_t condition;
    const bool known = constant_of(leat_node_input(graph, node, 0), &condition);
    *ret = known && condition != 0;
    return known;
}

bool
leat_node_runs(const struct leat_graph *graph, const struct leat_node *node, const struct leat_attribute *attribute)
{
    bool condition;
    return node->op->kind != LEAT_OP_IF || !leat_if_condition(graph, node, &condition) ||
           condition == (strcmp(attribute->name, "then_branch") == 0);
}

/* What an inner value is a copy of. */
static uint32_t
origin_of(const struct leat_graph *graph, uint32_t value)
{
    for (uint32_t n = graph->node_count; n-- > 0;) {
        if (graph->nodes[n].outputs[0] == value && graph->nodes[n].op->kind == LEAT_OP_IDENTITY) {
            value = graph->nodes[n].inputs[0];
        }
    }
    return value;
}

bool
leat_loop_trips(const struct leat_graph *graph, const struct leat_node *node, int64_t *ret)
{
    const struct leat_value *count = leat_node_input(graph, node, 0), *condition = leat_node_input(graph, node, 1);
    int64_t trips = INT64_MAX, first = 1, again = 1;
    uint32_t captured;

    if (condition != NULL && !constant_of(condition, &first)) {
        return false;
    }
    if (first == 0) {
        *ret = 0;
        return true;
    }
    const struct leat_graph *body = leat_node_graph(node, "body", &captured);
    const uint32_t origin = origin_of(body, body->outputs[0]);
    if ((count != NULL && !constant_of(count, &trips)) ||
        (origin != body->inputs[1] && !constant_of(&body->values[origin], &again))) {
        return false;
    }
    *ret = trips < 0 ? 0 : again == 0 && trips > 1 ? 1 : trips;
    return true;
}

/* Element i of a list of axes or directions; false when it is not there though the list is. */
static bool
list_element(const struct leat_node *node, const char *name, uint32_t i, int64_t *ret)
{
    const struct leat_attribute *attribute = leat_node_attribute(node, name);
    *ret = attribute != NULL && i < attribute->count ? attribute->ints[i] : 0;
    return attribute == NULL || i < attribute->count;
}

static bool
walk(const struct leat_node *node, const char *axes, const char *directions, uint32_t i, uint32_t rank,
     struct leat_scan_walk *ret)
{
    int64_t axis, direction;
    const bool there = list_element(node, axes, i, &axis) && list_element(node, directions, i, &direction);

    if (!there || axis < -(int64_t)rank || axis >= (int64_t)rank || (direction != 0 && direction != 1)) {
        return false;
    }
    *ret = (struct leat_scan_walk){.axis = (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis), .backwards = direction == 1};
    return true;
}

bool
leat_scan_input(const struct leat_node *node, uint32_t i, uint32_t rank, struct leat_scan_walk *ret)
{
    return walk(node, "scan_input_axes", "scan_input_directions", i, rank, ret);
}

bool
leat_scan_output(const struct leat_node *node, uint32_t i, uint32_t rank, struct leat_scan_walk *ret)
{
    return walk(node, "scan_output_axes", "scan_output_directions", i, rank, ret);
}

uint32_t
leat_scan_states(const struct leat_node *node)
{
    return leat_node_own_inputs(node) - (uint32_t)leat_node_int(node, "num_scan_inputs", 0);
}

/* ---- Shapes ---------------------------------------------------------------------------------------- */

/* No input but those in [0, optional) is omitted, and none has a size that tensor contents decide. */
static enum leat_status
check_inputs(const struct leat_graph *graph, const struct leat_node *node, uint32_t optional)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct leat_value *input = leat_node_input(graph, node, i);
        if (input == NULL && i >= optional) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "input %u must not be omitted", i);
        }
        if (input != NULL && input->bounded) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "the shape of its input '%.64s' depends on tensor contents",
                                  input->name);
        }
    }
    return LEAT_OK;
}

/* A count or a condition. */
static enum leat_status
check_scalar(const struct leat_node *node, const struct leat_value *value, uint32_t dtype)
{
    if (value != NULL && (value->dtype != dtype || (value->rank > 0 && !leat_value_is_known(value)) ||
                          leat_value_elements(value) != 1)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "'%.64s' is not one element of type %s", value->name,
                              leat_dtype_text(dtype));
    }
    return LEAT_OK;
}

static void
give(struct leat_graph *inner, uint32_t i, const struct leat_shape *shape)
{
    struct leat_value *value = &inner->values[inner->inputs[i]];
    value->dtype = shape->dtype;
    value->rank = shape->rank;
    for (uint32_t d = 0; d < shape->rank; d++) {
        /* Symbols are the outermost graph's alone. */
        value->dims[d] = shape->dims[d] < LEAT_DIM_UNKNOWN ? LEAT_DIM_UNKNOWN : shape->dims[d];
    }
}

/* The inner graph's declared inputs are given: so are the captures, and shapes follow. mixes_items: NULL when nobody asks. */
static enum leat_status
infer_inner(const struct leat_graph *graph, const struct leat_node *node, struct leat_graph *inner, uint32_t declared,
            uint32_t captured, bool *mixes_items)
{
    bool changed;

    for (uint32_t i = declared; i < inner->input_count; i++) {
        const struct leat_shape shape = leat_shape_of(leat_node_input(graph, node, captured + i - declared));
        give(inner, i, &shape);
    }
    inner->items = graph->items;
    inner->repeats = graph->repeats || node->op->kind != LEAT_OP_IF;
    enum leat_status status = leat_graph_fold(inner, &changed);
    for (uint32_t n = 0; mixes_items != NULL && n < inner->node_count && status == LEAT_OK; n++) {
        status = leat_graph_infer_mixing(inner, &inner->nodes[n], mixes_items);
    }
    for (uint32_t o = 0; o < inner->output_count && status == LEAT_OK; o++) {
        if (inner->values[inner->outputs[o]].bounded) {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "the shape of output '%.64s' depends on tensor contents",
                               inner->values[inner->outputs[o]].name);
        }
    }
    return status == LEAT_OK ? LEAT_OK : leat_node_failed(node, status);
}

static uint32_t
declared_inputs(const struct leat_node *node, const char *name, const struct leat_graph *inner)
{
    return inner->input_count - leat_node_attribute(node, name)->count;
}

/* ---- If -------------------------------------------------------------------------------------------- */

/* What either branch may yield; `is_bound` where only the size is open. */
static enum leat_status
join(const struct leat_node *node, const char *condition, const struct leat_shape *other, struct leat_shape *out)
{
    if (other->dtype != out->dtype || other->rank != out->rank) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED,
                              "its branches yield different types or ranks, and '%.64s' is not known before a run", condition);
    }
    for (uint32_t d = 0; d < out->rank; d++) {
        if (out->dims[d] == other->dims[d]) {
            continue;
        }
        out->bounded = true;
        out->open |= 1u << d;
        out->dims[d] = out->dims[d] < 0 || other->dims[d] < 0 ? LEAT_DIM_UNKNOWN
                       : out->dims[d] > other->dims[d]        ? out->dims[d]
                                                              : other->dims[d];
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(if)
{
    static const char *const names[] = {"else_branch", "then_branch"};
    bool condition, first = true;

    enum leat_status status = check_inputs(graph, node, 0);
    if (status == LEAT_OK) {
        status = check_scalar(node, leat_node_input(graph, node, 0), LEAT_DTYPE_BOOL);
    }
    if (status == LEAT_OK && leat_node_own_inputs(node) != 1) {
        status = LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has more inputs than its condition");
    }
    const bool known = status == LEAT_OK && leat_if_condition(graph, node, &condition);
    *mixes_items = *mixes_items || !known; /* one condition for all items */
    for (int branch = 0; branch < 2 && status == LEAT_OK; branch++) {
        uint32_t captured;
        struct leat_graph *inner = leat_node_graph(node, names[branch], &captured);
        if (known && condition != (branch == 1)) {
            continue;
        }
        if (declared_inputs(node, names[branch], inner) != 0 || inner->output_count != node->output_count) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "its %s takes %u inputs and yields %u outputs instead of 0 and %u",
                                  names[branch], declared_inputs(node, names[branch], inner), inner->output_count,
                                  node->output_count);
        }
        status = infer_inner(graph, node, inner, 0, captured, mixes_items);
        for (uint32_t o = 0; o < node->output_count && status == LEAT_OK; o++) {
            const struct leat_shape shape = leat_shape_of(&inner->values[inner->outputs[o]]);
            if (first) {
                outputs[o] = shape;
            } else {
                status = join(node, leat_node_input(graph, node, 0)->name, &shape, &outputs[o]);
            }
        }
        first = false;
    }
    return status;
}

/* ---- Loop and Scan --------------------------------------------------------------------------------- */

/* The states of a Loop or Scan: where they begin among the body's inputs, which are the node's, and among its outputs. */
struct states {
    uint32_t input, output, count;
};

static void
give_states(const struct leat_graph *graph, const struct leat_node *node, struct leat_graph *body, const struct states *states)
{
    for (uint32_t s = 0; s < states->count; s++) {
        const struct leat_shape shape = leat_shape_of(leat_node_input(graph, node, states->input + s));
        give(body, states->input + s, &shape);
    }
}

/* Dims that states do not keep become unknown; all of theirs with `all`. False when they keep them. */
static bool
loosen(struct leat_graph *body, const struct leat_graph *tried, const struct states *states, bool all)
{
    bool changed = false;

    for (uint32_t s = 0; s < states->count; s++) {
        struct leat_value *before = &body->values[body->inputs[states->input + s]];
        const struct leat_value *after = &tried->values[tried->outputs[states->output + s]];
        for (uint32_t d = 0; d < before->rank && d < after->rank; d++) {
            if (before->dims[d] >= 0 && (all || before->dims[d] != after->dims[d])) {
                before->dims[d] = LEAT_DIM_UNKNOWN;
                changed = true;
            }
        }
    }
    return changed;
}

/*
 * As infer_inner(). Before specialisation a state may grow, for the loop may be unrolled: nothing inside may be computed from
 * a size of the first iteration alone. What is computed once stays, so copies show which sizes the states keep. A body is inferred
 * four times at most for each level of loops: they do not lie deep in each other (LEAT_ONNX_LOOPS_MAX).
 */
static enum leat_status
infer_body(const struct leat_graph *graph, const struct leat_node *node, struct leat_graph *body, uint32_t captured,
           const struct states *states, bool *mixes_items)
{
    const uint32_t declared = declared_inputs(node, "body", body);
    enum leat_status status = LEAT_OK;
    bool loosened = graph->items == 0;

    for (int round = 0; round < 2 && loosened && status == LEAT_OK; round++) {
        struct leat_graph *tried = NULL;
        status = leat_graph_copy(body, &tried);
        if (status == LEAT_OK) {
            status = infer_inner(graph, node, tried, declared, captured, NULL);
            loosened = status == LEAT_OK && loosen(body, tried, states, round > 0);
            leat_graph_destroy(tried);
        }
    }
    return status == LEAT_OK ? infer_inner(graph, node, body, declared, captured, mixes_items) : status;
}

/* Of a state: as it is at first, but for dims that it does not keep. */
static struct leat_shape
state_shape(const struct leat_graph *graph, const struct leat_node *node, const struct leat_graph *body,
            const struct states *states, uint32_t s)
{
    const struct leat_value *given = &body->values[body->inputs[states->input + s]];
    struct leat_shape shape = leat_shape_of(leat_node_input(graph, node, states->input + s));

    for (uint32_t d = 0; d < shape.rank; d++) {
        shape.dims[d] = shape.dims[d] >= 0 ? given->dims[d] : shape.dims[d];
    }
    return shape;
}

/* A state leaves the body as it entered it. */
static enum leat_status
check_state(const struct leat_node *node, const struct leat_shape *before, const struct leat_value *after)
{
    bool same = before->dtype == after->dtype && before->rank == after->rank;
    for (uint32_t d = 0; same && d < before->rank; d++) {
        same = before->dims[d] == after->dims[d] || before->dims[d] <= LEAT_DIM_UNKNOWN || after->dims[d] <= LEAT_DIM_UNKNOWN;
    }
    return same ? LEAT_OK
                : LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "state '%.64s' changes its type or shape inside", after->name);
}

/* The shape of a step's results, `trips` of them along an axis. */
static enum leat_status
stack(const struct leat_node *node, const struct leat_value *step, uint32_t axis, int64_t trips, struct leat_shape *out)
{
    if (step->rank == LEAT_RANK_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "an output has more than %d dimensions", LEAT_RANK_MAX);
    }
    *out = (struct leat_shape){.dtype = step->dtype, .rank = step->rank + 1};
    for (uint32_t d = 0, from = 0; d <= step->rank; d++) {
        out->dims[d] = d == axis ? trips : step->dims[from++];
    }
    return LEAT_OK;
}

static enum leat_status
check_trips(const struct leat_graph *graph, const struct leat_node *node, int64_t trips)
{
    return trips <= (int64_t)graph->trips_max
               ? LEAT_OK
               : LEAT_NODE_FAIL(node, LEAT_ERR_LIMIT, "%lld iterations, the limit is %u (limits.loop_iterations of leatd, --loop-iterations of inspect)",
                              (long long)trips, graph->trips_max);
}

/* Declared inputs and outputs of a body: `before` of its own, the states, and what else there is. */
static enum leat_status
check_body(const struct leat_node *node, const struct leat_graph *body, uint32_t inputs_wanted, uint32_t outputs_before,
           uint32_t states)
{
    const uint32_t declared = declared_inputs(node, "body", body);
    if (declared != inputs_wanted || body->output_count < outputs_before + states ||
        node->output_count > body->output_count - outputs_before || body->output_count > LEAT_NODE_OUTPUTS_MAX) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "its body has %u inputs and %u outputs, which do not fit its own", declared,
                              body->output_count);
    }
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(loop)
{
    const struct leat_shape count = {.dtype = LEAT_DTYPE_I64}, flag = {.dtype = LEAT_DTYPE_BOOL};
    const uint32_t own = leat_node_own_inputs(node);
    uint32_t captured;
    int64_t trips;

    if (own < 2) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has no count or no condition");
    }
    struct leat_graph *body = leat_node_graph(node, "body", &captured);
    const struct states states = {.input = 2, .output = 1, .count = own - 2};
    enum leat_status status = check_inputs(graph, node, 2);
    if (status == LEAT_OK) {
        status = check_scalar(node, leat_node_input(graph, node, 0), LEAT_DTYPE_I64);
    }
    if (status == LEAT_OK) {
        status = check_scalar(node, leat_node_input(graph, node, 1), LEAT_DTYPE_BOOL);
    }
    if (status == LEAT_OK) {
        status = check_body(node, body, own, states.output, states.count);
    }
    if (status != LEAT_OK) {
        return status;
    }
    give(body, 0, &count);
    give(body, 1, &flag);
    give_states(graph, node, body, &states);
    status = infer_body(graph, node, body, captured, &states, mixes_items);
    if (status == LEAT_OK) {
        status = check_scalar(node, &body->values[body->outputs[0]], LEAT_DTYPE_BOOL);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const bool known = leat_loop_trips(graph, node, &trips);
    *mixes_items = *mixes_items || !known;
    status = known ? check_trips(graph, node, trips) : LEAT_OK;
    for (uint32_t o = 0; o < body->output_count - 1 && status == LEAT_OK; o++) {
        const struct leat_value *result = &body->values[body->outputs[1 + o]];
        struct leat_shape shape = o < states.count ? state_shape(graph, node, body, &states, o) : leat_shape_of(result);
        if (o < states.count) {
            status = check_state(node, &shape, result);
        } else {
            status = stack(node, result, 0, known ? trips : (int64_t)graph->trips_max, &shape);
            shape.bounded = !known;
            shape.open = !known;
        }
        if (status == LEAT_OK && o < node->output_count) {
            outputs[o] = shape;
        }
    }
    return status;
}

/* What the body is given of an input that is walked along; the number of steps must be that of the others. */
static enum leat_status
give_slice(const struct leat_graph *graph, const struct leat_node *node, struct leat_graph *body, uint32_t i, int64_t *trips,
           bool *mixes_items)
{
    const uint32_t states = leat_scan_states(node);
    const struct leat_value *whole = leat_node_input(graph, node, states + i);
    struct leat_shape slice = {.dtype = whole->dtype};
    struct leat_scan_walk walked;

    if (!leat_scan_input(node, i, whole->rank, &walked)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "input '%.64s' has no such axis or direction", whole->name);
    }
    for (uint32_t d = 0; d < whole->rank; d++) {
        if (d != walked.axis) {
            slice.dims[slice.rank++] = whole->dims[d];
        }
    }
    const int64_t length = whole->dims[walked.axis];
    *mixes_items = *mixes_items || length == LEAT_DIM_BATCH;
    if (length >= 0 && *trips >= 0 && length != *trips) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "its inputs have %lld and %lld slices", (long long)*trips,
                              (long long)length);
    }
    *trips = *trips >= 0 ? *trips : length;
    give(body, states + i, &slice);
    return LEAT_OK;
}

LEAT_INFER_FUNCTION(scan)
{
    const int64_t walked = leat_node_int(node, "num_scan_inputs", 0);
    const uint32_t own = leat_node_own_inputs(node);
    int64_t trips = LEAT_DIM_UNKNOWN;
    uint32_t captured;

    if (walked < 1 || walked > (int64_t)own) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "num_scan_inputs is %lld of %u inputs", (long long)walked, own);
    }
    struct leat_graph *body = leat_node_graph(node, "body", &captured);
    const struct states states = {.count = own - (uint32_t)walked};
    enum leat_status status = check_inputs(graph, node, 0);
    if (status == LEAT_OK) {
        status = check_body(node, body, own, states.output, states.count);
    }
    if (status == LEAT_OK) {
        give_states(graph, node, body, &states);
    }
    for (uint32_t i = 0; i < (uint32_t)walked && status == LEAT_OK; i++) {
        status = give_slice(graph, node, body, i, &trips, mixes_items);
    }
    if (status == LEAT_OK) {
        status = infer_body(graph, node, body, captured, &states, mixes_items);
    }
    if (status == LEAT_OK && trips >= 0) {
        status = check_trips(graph, node, trips);
    }
    for (uint32_t o = 0; o < body->output_count && status == LEAT_OK; o++) {
        const struct leat_value *result = &body->values[body->outputs[o]];
        struct leat_shape shape = o < states.count ? state_shape(graph, node, body, &states, o) : leat_shape_of(result);
        struct leat_scan_walk along = {0};
        if (o < states.count) {
            status = check_state(node, &shape, result);
        } else if (!leat_scan_output(node, o - states.count, result->rank + 1, &along)) {
            status = LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "output %u has no such axis or direction", o);
        } else {
            status = stack(node, result, along.axis, trips, &shape);
        }
        if (status == LEAT_OK && o < node->output_count) {
            outputs[o] = shape;
        }
    }
    return status;
}
