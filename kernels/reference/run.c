/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/align.h"
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
    if (node->fused_activation == LEAT_ACTIVATION_RELU) {
        for (size_t i = 0; i < count; i++) {
            y[i] = y[i] < 0 ? 0 : y[i];
        }
    } else if (node->fused_activation == LEAT_ACTIVATION_CLIP) {
        for (size_t i = 0; i < count; i++) {
            y[i] = y[i] < node->clip_min ? node->clip_min : y[i];
            y[i] = y[i] > node->clip_max ? node->clip_max : y[i];
        }
    }
}

enum leat_status
leat_reference_run_node(const struct leat_eval *eval)
{
    const enum leat_status status = eval->node->op->reference(eval);
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

/* Scratch is the pointer table, then every computed value in node order, each aligned, then one workspace. */
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
            /* LEAT_VALUE_BYTES_MAX * nodes * outputs is below 2^60: the sum cannot overflow. */
            total += value == NULL ? 0 : leat_round_up(leat_value_bytes(value), ALIGN);
        }
    }
    *ret_bytes = (size_t)(total + workspace);
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
leat_reference_run(const struct leat_graph *graph, const void *const *inputs, void *const *outputs,
                   void *scratch)
{
    void **data = scratch;

    void *workspace = point_at_values(graph, inputs, scratch, data);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_eval eval = {
            .graph = graph, .node = &graph->nodes[n], .data = data, .workspace = workspace};
        const enum leat_status status = leat_reference_run_node(&eval);
        if (status != LEAT_OK) {
            return status;
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        memcpy(outputs[o], data[graph->outputs[o]],
               leat_value_bytes(&graph->values[graph->outputs[o]]));
    }
    return LEAT_OK;
}
