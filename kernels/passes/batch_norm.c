/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conv + BatchNormalization with constant parameters: W'[m] = W[m] * f[m], b'[m] = (b[m] - mean[m]) * f[m]
 * + beta[m], where f[m] = scale[m] / sqrt(variance[m] + epsilon).
 */
#include <math.h>

#include "kernels/passes/passes.h"

static bool
can_fold(const struct leat_graph *graph, const struct leat_node *conv, const struct leat_node *norm)
{
    const struct leat_value *w = leat_node_input(graph, conv, 1);
    const struct leat_value *bias = leat_node_input(graph, conv, 2);

    if (conv->op->kind != LEAT_OP_CONV || conv->fused_add != LEAT_VALUE_NONE || w->data == NULL ||
        w->dtype != LEAT_DTYPE_F32 || (bias != NULL && bias->data == NULL)) {
        return false;
    }
    for (uint32_t i = 1; i < 5; i++) {
        const struct leat_value *parameter = leat_node_input(graph, norm, i);
        if (parameter->data == NULL || parameter->dims[0] != w->dims[0]) {
            return false;
        }
    }
    return true;
}

static enum leat_status
new_constant(struct leat_graph *graph, const char *name, uint32_t like, uint32_t *ret_index,
             float **ret_data)
{
    const struct leat_value shape = graph->values[like];
    void *data = NULL;
    enum leat_status status =
        leat_graph_add_value(graph, name, LEAT_DTYPE_F32, shape.rank, shape.dims, ret_index);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, *ret_index, &data);
    }
    *ret_data = data;
    return status;
}

/* LEAT_AGAIN: others read the weights too, and another copy of them would be too much. */
static enum leat_status
fold(struct leat_graph *graph, const struct leat_pass_index *index, struct leat_node *conv, const struct leat_node *norm)
{
    const uint32_t w = conv->inputs[1];
    const uint32_t b = conv->input_count > 2 ? conv->inputs[2] : LEAT_VALUE_NONE;
    uint32_t new_w = w, new_b;
    float *weights = NULL, *bias;

    const bool alone = index->uses[w] == 1;
    enum leat_status status = alone && graph->values[w].mapping != NULL
                                  ? leat_graph_unmap_constant(graph, w) /* the graph's own from now on */
                                  : leat_graph_settle_constant(graph, w);
    if (status == LEAT_OK) {
        weights = alone ? leat_graph_own_constant(graph, w) : NULL;
    }
    if (status == LEAT_OK && weights == NULL) {
        status = leat_graph_may_fold(graph, graph->values[w].data_bytes)
                     ? new_constant(graph, graph->values[w].name, w, &new_w, &weights)
                     : LEAT_AGAIN;
    }
    if (status == LEAT_OK) {
        status = new_constant(graph, graph->values[norm->inputs[2]].name, norm->inputs[2], &new_b,
                              &bias);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const float *old_w = graph->values[w].data;
    const float *old_b = b != LEAT_VALUE_NONE ? graph->values[b].data : NULL;
    const float *scale = graph->values[norm->inputs[1]].data,
                *beta = graph->values[norm->inputs[2]].data;
    const float *mean = graph->values[norm->inputs[3]].data;
    const float *variance = graph->values[norm->inputs[4]].data;
    const double epsilon = (double)leat_node_float(norm, "epsilon", 1e-5f);
    const size_t channels = (size_t)graph->values[w].dims[0];
    const size_t taps = channels > 0 ? leat_value_elements(&graph->values[w]) / channels : 0;
    for (size_t m = 0; m < channels; m++) {
        const double factor = (double)scale[m] / sqrt((double)variance[m] + epsilon);
        for (size_t i = 0; i < taps; i++) {
            weights[m * taps + i] = (float)((double)old_w[m * taps + i] * factor);
        }
        const double shifted = (old_b != NULL ? (double)old_b[m] : 0.0) - (double)mean[m];
        bias[m] = (float)(shifted * factor + (double)beta[m]);
    }
    conv->inputs[1] = new_w;
    return leat_pass_set_input(graph, conv, 2, new_b);
}

LEAT_PASS_FUNCTION(fold_batch_norm)
{
    struct leat_pass_index index;
    bool changed = false;

    enum leat_status status = leat_pass_index_create(graph, &index);
    if (status != LEAT_OK) {
        return status;
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        struct leat_node *norm = &graph->nodes[n];
        if (norm->op == NULL || norm->op->kind != LEAT_OP_BATCH_NORMALIZATION) {
            continue;
        }
        struct leat_node *conv = leat_pass_sole_producer(graph, &index, norm->inputs[0]);
        if (conv == NULL || !can_fold(graph, conv, norm)) {
            continue;
        }
        status = fold(graph, &index, conv, norm);
        if (status == LEAT_OK) {
            leat_pass_take_output(&index, graph, conv, norm);
            changed = true;
        }
        status = status == LEAT_AGAIN ? LEAT_OK : status;
    }
    leat_pass_index_destroy(&index);
    leat_graph_sweep_nodes(graph);
    *ret_changed = changed;
    return status;
}
