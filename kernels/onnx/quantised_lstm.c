/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DynamicQuantizeLSTM, which ONNX Runtime's tools make of an LSTM (domain com.microsoft): one whose weights have 8 bits. Here it
 * is an LSTM again, with weights in floats. ONNX Runtime rounds what it multiplies by them to 8 bits as well, for each product anew.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/onnx/importer.h"
#include "kernels/op.h"

bool
leat_onnx_is_quantised_lstm(const Onnx__NodeProto *node)
{
    return strcmp(leat_onnx_text(node->domain), "com.microsoft") == 0 &&
           strcmp(leat_onnx_text(node->op_type), "DynamicQuantizeLSTM") == 0;
}

static enum leat_status
find_constant(struct importer *importer, uint32_t value)
{
    struct leat_graph *graph = importer->graph;
    enum leat_status status = LEAT_OK;

    if (value == LEAT_VALUE_NONE) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "weights, or what they are multiplied by, are left out");
    }
    if (graph->values[value].data == NULL && importer->parent == NULL) {
        status = leat_onnx_fold(importer);
    }
    if (status == LEAT_OK && graph->values[value].data == NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "'%.64s' is not constant", graph->values[value].name);
    }
    return status == LEAT_OK ? leat_graph_settle_constant(graph, value) : status;
}

/* Weights [directions][inputs][gates] have a factor, and another value in place of 0, each or each gate's. */
static enum leat_status
check_weights(const struct leat_value *w, const struct leat_value *scale, const struct leat_value *zero)
{
    const bool of_gates = scale->rank == 2;
    bool fit = w->rank == 3 && (w->dtype == LEAT_DTYPE_I8 || w->dtype == LEAT_DTYPE_U8) && scale->dtype == LEAT_DTYPE_F32 &&
               (scale->rank == 1 || of_gates) && zero->dtype == w->dtype && zero->rank == scale->rank;

    for (uint32_t d = 0; fit && d < scale->rank; d++) {
        fit = scale->dims[d] == w->dims[2 * d] && zero->dims[d] == scale->dims[d];
    }
    return fit ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_SHAPE,
                           "'%.64s' is no weights of 8 bits [directions][inputs][gates] with a scale and a zero point for each "
                           "direction, or for each gate of each",
                           w->name);
}

/* As LSTM has them: [directions][gates][inputs]. */
static void
fill(const struct leat_value *w, const struct leat_value *scale, const struct leat_value *zero, float *to)
{
    const size_t directions = (size_t)w->dims[0], inputs = (size_t)w->dims[1], gates = (size_t)w->dims[2];
    const bool of_gates = scale->rank == 2, is_signed = w->dtype == LEAT_DTYPE_I8;

    for (size_t d = 0; d < directions; d++) {
        for (size_t g = 0; g < gates; g++) {
            const size_t which = of_gates ? d * gates + g : d;
            const float by = ((const float *)scale->data)[which];
            const int32_t less = is_signed ? ((const int8_t *)zero->data)[which] : ((const uint8_t *)zero->data)[which];
            for (size_t i = 0; i < inputs; i++) {
                const size_t from = (d * inputs + i) * gates + g;
                const int32_t x = is_signed ? ((const int8_t *)w->data)[from] : ((const uint8_t *)w->data)[from];
                to[(d * gates + g) * inputs + i] = (float)(x - less) * by;
            }
        }
    }
}

enum leat_status
leat_onnx_dequantise_weights(struct importer *importer, uint32_t *weights, uint32_t scale, uint32_t zero)
{
    const uint32_t needed[] = {*weights, scale, zero};
    struct leat_graph *graph = importer->graph;
    enum leat_status status = LEAT_OK;
    char text[128];
    uint32_t made;
    void *data;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]) && status == LEAT_OK; i++) {
        status = find_constant(importer, needed[i]);
    }
    if (status == LEAT_OK) {
        status = check_weights(&graph->values[*weights], &graph->values[scale], &graph->values[zero]);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_value *w = &graph->values[*weights];
    (void)snprintf(text, sizeof(text), "%.96s, in f32", w->name);
    const char *name = leat_graph_text(graph, text);
    if (name == NULL) {
        return leat_graph_shortage(graph);
    }
    status = leat_graph_add_value(graph, name, LEAT_DTYPE_F32, 3, (const int64_t[]){w->dims[0], w->dims[2], w->dims[1]}, &made);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, made, &data);
    }
    if (status == LEAT_OK) {
        fill(&graph->values[*weights], &graph->values[scale], &graph->values[zero], data);
        *weights = made;
    }
    return status;
}
