/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If, Loop and Scan whose way tensor contents decide, or that are too long to unroll: the inner graph is run as it was planned,
 * as often as it takes. Counts and conditions are payload: they are read once, and a run has so many iterations at most.
 */
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "kernels/payload.h"
#include "kernels/reference/reference.h"

#define ALIGN 64u

/* Where things lie in the workspace: offsets. */
struct frame {
    size_t inputs, outputs; /* pointers that the inner graph is called with */
    size_t flags;           /* the number of the iteration, then the conditions before and after it */
    size_t states[2];       /* before and after an iteration, in turns */
    size_t slices;          /* of the inputs that a Scan walks along */
    size_t step;            /* what an iteration yields of the outputs that are stacked */
    size_t scratch, bytes;
};

static size_t
reserve(struct frame *frame, size_t bytes)
{
    const size_t at = frame->bytes;
    frame->bytes += (size_t)leat_round_up(bytes, ALIGN);
    return at;
}

static size_t
values_bytes(const struct leat_graph *graph, const uint32_t *values, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += (size_t)leat_round_up(leat_value_bytes(&graph->values[values[i]]), ALIGN);
    }
    return bytes;
}

/* inputs [first, first + states) and outputs [results, ...) of the inner graph are carried along and stacked. */
static struct frame
lay_out(const struct leat_graph *inner, uint32_t first, uint32_t states, uint32_t slices, uint32_t results)
{
    struct frame frame = {0};
    size_t scratch = 0;

    frame.inputs = reserve(&frame, inner->input_count * sizeof(void *));
    frame.outputs = reserve(&frame, inner->output_count * sizeof(void *));
    frame.flags = reserve(&frame, 3 * ALIGN);
    frame.states[0] = reserve(&frame, values_bytes(inner, inner->inputs + first, states));
    frame.states[1] = reserve(&frame, values_bytes(inner, inner->inputs + first, states));
    frame.slices = reserve(&frame, values_bytes(inner, inner->inputs + first + states, slices));
    frame.step = reserve(&frame, values_bytes(inner, inner->outputs + results, inner->output_count - results));
    LEAT_MUST(leat_reference_scratch_bytes(inner, &scratch) == LEAT_OK);
    frame.scratch = reserve(&frame, scratch);
    return frame;
}

static struct frame
lay_out_node(const struct leat_node *node, const struct leat_graph *inner)
{
    const uint32_t own = leat_node_own_inputs(node);

    switch (node->op->kind) {
    case LEAT_OP_LOOP:
        return lay_out(inner, 2, own - 2, 0, own - 1);
    case LEAT_OP_SCAN:
        return lay_out(inner, 0, leat_scan_states(node), own - leat_scan_states(node), leat_scan_states(node));
    default:
        return lay_out(inner, 0, 0, 0, inner->output_count);
    }
}

size_t
leat_workspace_control(const struct leat_graph *graph, const struct leat_node *node)
{
    size_t most = 0;

    for (uint32_t a = 0; a < node->attribute_count; a++) {
        const struct leat_attribute *attribute = &node->attributes[a];
        if (attribute->kind != LEAT_ATTRIBUTE_GRAPH || !leat_node_runs(graph, node, attribute)) {
            continue;
        }
        const size_t bytes = lay_out_node(node, attribute->graph).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* One call of an inner graph, set up so that only what changes is set again. */
struct call {
    const struct leat_eval *eval;
    const struct leat_graph *inner;
    unsigned char *base;
    const void **inputs;
    void **outputs;
    struct frame frame;
    uint32_t *trips, all_trips;
};

static void
begin(const struct leat_eval *eval, const char *name, struct call *call)
{
    uint32_t captured;
    const struct leat_graph *inner = leat_node_graph(eval->node, name, &captured);
    const uint32_t declared = inner->input_count - leat_node_attribute(eval->node, name)->count;

    *call = (struct call){.eval = eval,
                          .inner = inner,
                          .base = eval->workspace,
                          .frame = lay_out_node(eval->node, inner),
                          .all_trips = eval->graph->trips_max};
    call->inputs = (const void **)(void *)(call->base + call->frame.inputs);
    call->outputs = (void **)(void *)(call->base + call->frame.outputs);
    call->trips = eval->trips;
    for (uint32_t i = declared; i < inner->input_count; i++) {
        call->inputs[i] = eval->data[eval->node->inputs[captured + i - declared]];
    }
}

static enum leat_status
enter(struct call *call, struct leat_shape *ret_shapes)
{
    return leat_reference_run_inner(call->inner, call->inputs, call->outputs, call->base + call->frame.scratch, ret_shapes,
                                    call->trips != NULL ? call->trips : &call->all_trips);
}

/* One iteration less is left. */
static enum leat_status
take_trip(struct call *call)
{
    uint32_t *left = call->trips != NULL ? call->trips : &call->all_trips;
    if (*left == 0) {
        return LEAT_NODE_FAIL(call->eval->node, LEAT_ERR_SHAPE, "more than %u iterations in one batch (limits.loop_iterations)",
                              call->eval->graph->trips_max);
    }
    (*left)--;
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(if)
{
    static const char *const names[] = {"else_branch", "then_branch"};
    const bool condition = leat_payload_u8(leat_eval_in(eval, 0), 0) != 0;
    struct leat_shape shapes[LEAT_NODE_OUTPUTS_MAX];
    struct call call;

    begin(eval, names[condition], &call);
    for (uint32_t o = 0; o < call.inner->output_count; o++) {
        call.outputs[o] = leat_eval_output(eval, o) != NULL ? leat_eval_out(eval, o) : NULL;
    }
    const enum leat_status status = enter(&call, shapes);
    for (uint32_t o = 0; o < call.inner->output_count && status == LEAT_OK; o++) {
        const struct leat_value *out = leat_eval_output(eval, o);
        if (out == NULL || !out->bounded) {
            continue;
        }
        if (eval->values == NULL) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_UNSUPPORTED, "the shape of an output depends on tensor contents");
        }
        memcpy(eval->values[eval->node->outputs[o]].dims, shapes[o].dims, sizeof(shapes[o].dims));
    }
    return status;
}

/* Inputs [first, ...) of the inner graph are the states at `from`; outputs [result, ...) go to `to`. */
static void
carry(struct call *call, uint32_t first, uint32_t states, uint32_t result, size_t from, size_t to)
{
    for (uint32_t s = 0; s < states; s++) {
        const size_t bytes = leat_value_bytes(&call->inner->values[call->inner->inputs[first + s]]);
        call->inputs[first + s] = call->base + from;
        call->outputs[result + s] = call->base + to;
        from += (size_t)leat_round_up(bytes, ALIGN);
        to += (size_t)leat_round_up(bytes, ALIGN);
    }
}

static void
begin_states(struct call *call, uint32_t node_input, uint32_t first, uint32_t states)
{
    carry(call, first, states, 0, call->frame.states[0], call->frame.states[1]);
    for (uint32_t s = 0; s < states; s++) {
        /* The cast drops const: the place is ours. */
        memcpy((void *)(uintptr_t)call->inputs[first + s], leat_eval_in(call->eval, node_input + s),
               leat_value_bytes(&call->inner->values[call->inner->inputs[first + s]]));
    }
}

static void
end_states(const struct call *call, uint32_t first, uint32_t states)
{
    for (uint32_t s = 0; s < states; s++) {
        const struct leat_value *out = leat_eval_output(call->eval, s);
        if (out != NULL) {
            memcpy(leat_eval_out(call->eval, s), call->inputs[first + s], leat_value_bytes(out));
        }
    }
}

/* Element `at` along an axis, between a whole of `trips` of them and a slice. */
static void
copy_slice(const struct leat_value *slice, uint32_t axis, size_t trips, size_t at, unsigned char *whole, unsigned char *part,
           bool into_whole)
{
    size_t outer = 1, inner = leat_dtype_bytes(slice->dtype);

    for (uint32_t d = 0; d < slice->rank; d++) {
        *(d < axis ? &outer : &inner) *= (size_t)slice->dims[d];
    }
    for (size_t i = 0; i < outer; i++) {
        unsigned char *place = whole + (i * trips + at) * inner;
        if (into_whole) {
            memcpy(place, part + i * inner, inner);
        } else {
            memcpy(part + i * inner, place, inner);
        }
    }
}

/* Outputs [result, ...) of the inner graph, each in its place for one iteration. */
static void
point_at_step(struct call *call, uint32_t result)
{
    size_t at = call->frame.step;
    for (uint32_t o = result; o < call->inner->output_count; o++) {
        call->outputs[o] = call->base + at;
        at += (size_t)leat_round_up(leat_value_bytes(&call->inner->values[call->inner->outputs[o]]), ALIGN);
    }
}

static enum leat_status
iterate(struct call *call, uint32_t states, int64_t count, bool goes_on, int64_t *ret_done)
{
    int64_t *number = (int64_t *)(void *)(call->base + call->frame.flags);
    uint8_t *before = call->base + call->frame.flags + ALIGN, *after = before + ALIGN;
    int64_t i = 0;

    call->inputs[0] = number;
    call->inputs[1] = before;
    call->outputs[0] = after;
    for (; i < count && goes_on; i++) {
        enum leat_status status = take_trip(call);
        if (status != LEAT_OK) {
            return status;
        }
        *number = i;
        *before = 1;
        carry(call, 2, states, 1, call->frame.states[i % 2], call->frame.states[(i + 1) % 2]);
        status = enter(call, NULL);
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t o = states; o + 1 < call->inner->output_count; o++) {
            if (leat_eval_output(call->eval, o) != NULL) {
                copy_slice(&call->inner->values[call->inner->outputs[1 + o]], 0, 0, (size_t)i, leat_eval_out(call->eval, o),
                           call->outputs[1 + o], true);
            }
        }
        goes_on = *after != 0;
    }
    carry(call, 2, states, 1, call->frame.states[i % 2], call->frame.states[(i + 1) % 2]);
    *ret_done = i;
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(loop)
{
    const struct leat_node *node = eval->node;
    const uint32_t states = leat_node_own_inputs(node) - 2;
    const int64_t count = leat_eval_input(eval, 0) != NULL ? leat_payload_i64(leat_eval_in(eval, 0), 0) : INT64_MAX;
    const bool goes_on = leat_eval_input(eval, 1) == NULL || leat_payload_u8(leat_eval_in(eval, 1), 0) != 0;
    struct call call;
    int64_t done = 0;

    begin(eval, "body", &call);
    begin_states(&call, 2, 2, states);
    point_at_step(&call, 1 + states);
    const enum leat_status status = iterate(&call, states, count, goes_on, &done);
    if (status != LEAT_OK) {
        return status;
    }
    end_states(&call, 2, states);
    for (uint32_t o = states; o < node->output_count; o++) {
        const struct leat_value *out = leat_eval_output(eval, o);
        if (out != NULL && out->bounded) {
            if (eval->values == NULL) {
                return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "the shape of an output depends on tensor contents");
            }
            eval->values[node->outputs[o]].dims[0] = done;
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(scan)
{
    const struct leat_node *node = eval->node;
    const uint32_t states = leat_scan_states(node), walked = leat_node_own_inputs(node) - states;
    struct leat_scan_walk walk;
    struct call call;

    begin(eval, "body", &call);
    begin_states(&call, 0, 0, states);
    point_at_step(&call, states);
    size_t slice = call.frame.slices;
    for (uint32_t i = 0; i < walked; i++) {
        call.inputs[states + i] = call.base + slice;
        slice += (size_t)leat_round_up(leat_value_bytes(&call.inner->values[call.inner->inputs[states + i]]), ALIGN);
    }
    const struct leat_value *first = leat_eval_input(eval, states);
    LEAT_MUST(leat_scan_input(node, 0, first->rank, &walk));
    const size_t trips = (size_t)first->dims[walk.axis];
    for (size_t t = 0; t < trips; t++) {
        enum leat_status status = take_trip(&call);
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t i = 0; i < walked; i++) {
            LEAT_MUST(leat_scan_input(node, i, leat_eval_input(eval, states + i)->rank, &walk));
            /* The casts drop const: the whole is only read. */
            copy_slice(&call.inner->values[call.inner->inputs[states + i]], walk.axis, trips,
                       walk.backwards ? trips - 1 - t : t, (unsigned char *)(uintptr_t)leat_eval_in(eval, states + i),
                       (unsigned char *)(uintptr_t)call.inputs[states + i], false);
        }
        carry(&call, 0, states, 0, call.frame.states[t % 2], call.frame.states[(t + 1) % 2]);
        status = enter(&call, NULL);
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t o = states; o < call.inner->output_count; o++) {
            const struct leat_value *result = &call.inner->values[call.inner->outputs[o]];
            if (leat_eval_output(eval, o) != NULL) {
                LEAT_MUST(leat_scan_output(node, o - states, result->rank + 1, &walk));
                copy_slice(result, walk.axis, trips, walk.backwards ? trips - 1 - t : t, leat_eval_out(eval, o),
                           call.outputs[o], true);
            }
        }
    }
    carry(&call, 0, states, 0, call.frame.states[trips % 2], call.frame.states[(trips + 1) % 2]);
    end_states(&call, 0, states);
    return LEAT_OK;
}
