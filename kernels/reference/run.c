/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "kernels/infer/infer.h"
#include "kernels/reference/reference.h"

#define ALIGN 64u

static void
apply_fused(const struct leat_eval *eval)
{
    const struct leat_node *node = eval->node;
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    float *y = leat_eval_out(eval, 0);

    LEAT_ASSERT(output->dtype == LEAT_DTYPE_F32);
    if (node->fused_add != LEAT_VALUE_NONE) {
        const float *addend = eval->data[node->fused_add];
        for (size_t i = 0; i < count; i++) {
            y[i] += addend[i];
        }
    }
    leat_reference_activate(node, y, count);
}

/* Loops over the other dims of empty outputs would do nothing, perhaps for minutes: 2^31 times 2^7 times 0. */
static bool
writes_nothing(const struct leat_eval *eval)
{
    for (uint32_t o = 0; o < eval->node->output_count; o++) {
        const struct leat_value *output = leat_eval_output(eval, o);
        if (output != NULL && (output->bounded || leat_value_elements(output) > 0)) {
            return false;
        }
    }
    return true;
}

/* The functions themselves are not looked at by ThreadSanitizer: it is told of whole tensors what a node has read, and written. */
#if defined(__SANITIZE_THREAD__)
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);

static void
tell_tsan(const struct leat_eval *eval)
{
    for (uint32_t i = 0; i < eval->node->input_count; i++) {
        const struct leat_value *input = leat_eval_input(eval, i);
        if (input != NULL && input->data == NULL) { /* constants are nobody's to write */
            __tsan_read_range(eval->data[eval->node->inputs[i]], leat_value_bytes(input));
        }
    }
    for (uint32_t o = 0; o < eval->node->output_count; o++) {
        if (leat_eval_output(eval, o) != NULL) {
            __tsan_write_range(leat_eval_out(eval, o), leat_value_bytes(leat_eval_output(eval, o)));
        }
    }
}
#else
static void
tell_tsan(const struct leat_eval *eval)
{
    (void)eval;
}
#endif

enum leat_status
leat_reference_run_node(const struct leat_eval *eval)
{
    if (writes_nothing(eval)) {
        return LEAT_OK;
    }
    const enum leat_status status = eval->node->op->reference(eval);
    if (status == LEAT_OK) {
        tell_tsan(eval);
    }
    if (status == LEAT_OK && (eval->node->fused_add != LEAT_VALUE_NONE ||
                              eval->node->fused_activation != LEAT_ACTIVATION_NONE)) {
        apply_fused(eval);
    }
    return status;
}

size_t
leat_reference_workspace_bytes(const struct leat_graph *graph, const struct leat_node *node)
{
    return node->op->workspace_bytes != NULL ? node->op->workspace_bytes(graph, node) : 0;
}

/*
 * Scratch is the pointer table, then every computed value in node order, each aligned, then one workspace, and the
 * values of this run where some of them are bounded.
 */
static size_t
table_bytes(const struct leat_graph *graph)
{
    return (size_t)leat_round_up(graph->value_count * sizeof(void *), ALIGN);
}

enum leat_status
leat_reference_scratch_bytes(const struct leat_graph *graph, size_t *ret_bytes)
{
    uint64_t total = table_bytes(graph), workspace = 0;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        const uint64_t needed = leat_reference_workspace_bytes(graph, &graph->nodes[n]);
        workspace = needed > workspace ? needed : workspace;
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            const struct leat_value *value = leat_node_output(graph, &graph->nodes[n], o);
            /* LEAT_VALUE_BYTES_MAX * nodes * outputs is below 2^62: the sum cannot overflow. */
            total += value == NULL ? 0 : leat_round_up(leat_value_bytes(value), ALIGN);
        }
    }
    total += leat_round_up(workspace, ALIGN);
    if (leat_graph_is_bounded(graph)) {
        total += graph->value_count * sizeof(struct leat_value);
    }
    *ret_bytes = (size_t)total;
    return LEAT_OK;
}

/* Returns what follows the values. */
static void *
point_at_values(const struct leat_graph *graph, const void *const *inputs, unsigned char *scratch,
                void **data)
{
    unsigned char *next = scratch + table_bytes(graph);

    /* The casts drop const: reference functions write outputs only. */
    for (uint32_t v = 0; v < graph->value_count; v++) {
        LEAT_ASSERT(leat_value_in_place(&graph->values[v]));
        data[v] = (void *)(uintptr_t)graph->values[v].data;
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        data[graph->inputs[i]] = (void *)(uintptr_t)inputs[i];
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        for (uint32_t o = 0; o < graph->nodes[n].output_count; o++) {
            const struct leat_value *value = leat_node_output(graph, &graph->nodes[n], o);
            if (value != NULL) {
                data[graph->nodes[n].outputs[o]] = next;
                next += leat_round_up(leat_value_bytes(value), ALIGN);
            }
        }
    }
    return next;
}

enum leat_status
leat_reference_shrink_outputs(const struct leat_graph *graph, struct leat_graph *live, uint32_t n)
{
    struct leat_node *node = &live->nodes[n];

    if (!leat_node_reads_bounded(live, node)) {
        for (uint32_t o = 0; o < node->output_count; o++) { /* as planned, whatever the last run made of them */
            if (node->outputs[o] != LEAT_VALUE_NONE) {
                memcpy(live->values[node->outputs[o]].dims, graph->values[node->outputs[o]].dims,
                       sizeof(live->values[0].dims));
            }
        }
        return LEAT_OK;
    }
    if (leat_graph_infer_node(live, node) != LEAT_OK) {
        return LEAT_ERR_SHAPE;
    }
    if (leat_reference_workspace_bytes(live, node) > leat_reference_workspace_bytes(graph, node)) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE, "it needs more workspace than its bound");
    }
    for (uint32_t o = 0; o < node->output_count; o++) {
        const struct leat_value *now = leat_node_output(live, node, o);
        if (now != NULL &&
            (!leat_value_is_known(now) ||
             leat_value_bytes(now) > leat_value_bytes(leat_node_output(graph, node, o)))) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_SHAPE,
                                  "output '%.64s' has become larger than its bound", now->name);
        }
    }
    return LEAT_OK;
}

/* `live` has values of its own where shapes shrink; else it is as the graph. */
static enum leat_status
run_nodes(const struct leat_graph *graph, struct leat_graph *live, bool shrinks, void **data,
          void *workspace, uint32_t *trips)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_eval eval = {.graph = live,
                                       .node = &live->nodes[n],
                                       .data = data,
                                       .values = shrinks ? live->values : NULL,
                                       .workspace = workspace,
                                       .trips = trips};
        enum leat_status status = shrinks ? leat_reference_shrink_outputs(graph, live, n) : LEAT_OK;
        if (status == LEAT_OK) {
            status = leat_reference_run_node(&eval);
        }
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_reference_run(const struct leat_graph *graph, const void *const *inputs, void *const *outputs,
                   void *scratch, struct leat_shape *ret_shapes)
{
    uint32_t trips = graph->trips_max;
    return leat_reference_run_inner(graph, inputs, outputs, scratch, ret_shapes, &trips);
}

enum leat_status
leat_reference_run_inner(const struct leat_graph *graph, const void *const *inputs, void *const *outputs,
                         void *scratch, struct leat_shape *ret_shapes, uint32_t *trips)
{
    const bool shrinks = leat_graph_is_bounded(graph);
    struct leat_graph live = *graph;
    size_t scratch_bytes = 0;
    void **data = scratch;

    void *workspace = point_at_values(graph, inputs, scratch, data);
    enum leat_status status = leat_reference_scratch_bytes(graph, &scratch_bytes);
    if (shrinks && status == LEAT_OK) {
        const size_t bytes = graph->value_count * sizeof(struct leat_value);
        live.values =
            (struct leat_value *)(void *)((unsigned char *)scratch + scratch_bytes - bytes);
        memcpy(live.values, graph->values, bytes);
    }
    if (status == LEAT_OK) {
        status = run_nodes(graph, &live, shrinks, data, workspace, trips);
    }
    for (uint32_t o = 0; o < graph->output_count && status == LEAT_OK; o++) {
        const struct leat_value *value = &live.values[graph->outputs[o]];
        if (outputs[o] != NULL) {
            memcpy(outputs[o], data[graph->outputs[o]], leat_value_bytes(value));
        }
        if (ret_shapes != NULL) {
            ret_shapes[o] = leat_shape_of(value);
        }
    }
    return status;
}
