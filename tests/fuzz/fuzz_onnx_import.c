/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_onnx_import and all that follows: check, passes, specialising, signature, a small run.
 * Input     An ONNX file, byte for byte.
 * Property  No crash, no sanitizer report. What is imported keeps the promises of graph.h, before and
 *           after the passes and specialised; a graph with a signature runs to a result or a status.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "kernels/window.h"

#define RUN_BYTES_MAX  ((size_t)16 << 10) /* larger runs would only be slow */
#define RUN_VOLUME_MAX 1024
#define INPUTS_MAX     8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
is_small(const struct leat_graph *graph, size_t scratch_bytes)
{
    size_t bytes = scratch_bytes;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        bytes += leat_value_bytes(&graph->values[graph->inputs[i]]);
        if (bytes > RUN_BYTES_MAX) {
            return false;
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        bytes += leat_value_bytes(&graph->values[graph->outputs[o]]);
        if (bytes > RUN_BYTES_MAX) {
            return false;
        }
    }
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const enum leat_op_kind kind = graph->nodes[n].op->kind;
        struct leat_window window;
        if (kind == LEAT_OP_MAX_POOL || kind == LEAT_OP_AVERAGE_POOL || kind == LEAT_OP_LP_POOL ||
            kind == LEAT_OP_CONV || kind == LEAT_OP_CONV_INTEGER || kind == LEAT_OP_QLINEAR_CONV) {
            LEAT_MUST(leat_window_of(graph, &graph->nodes[n], &window) == LEAT_OK);
            if (window.kernel[0] * window.kernel[1] * window.kernel[2] > RUN_VOLUME_MAX) {
                return false;
            }
        }
    }
    return graph->input_count <= INPUTS_MAX && graph->output_count <= INPUTS_MAX;
}

/* Payload from the file itself: any bytes must do. */
static void
run(const struct leat_graph *graph, const uint8_t *data, size_t size)
{
    void *inputs[INPUTS_MAX] = {0}, *outputs[INPUTS_MAX] = {0};
    size_t scratch_bytes;

    LEAT_MUST(leat_reference_scratch_bytes(graph, &scratch_bytes) == LEAT_OK);
    if (!is_small(graph, scratch_bytes)) {
        return;
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const size_t bytes = leat_value_bytes(&graph->values[graph->inputs[i]]);
        inputs[i] = calloc(1, bytes + 1);
        LEAT_ASSERT(inputs[i] != NULL);
        memcpy(inputs[i], data + (size > bytes ? size - bytes : 0), size > bytes ? bytes : size);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        outputs[o] = malloc(leat_value_bytes(&graph->values[graph->outputs[o]]) + 1);
        LEAT_ASSERT(outputs[o] != NULL);
    }
    void *scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    LEAT_ASSERT(scratch != NULL);
    const enum leat_status status =
        leat_reference_run(graph, (const void *const *)inputs, outputs, scratch, NULL);
    LEAT_ASSERT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
    free(scratch);
    for (uint32_t i = 0; i < INPUTS_MAX; i++) {
        free(inputs[i]);
        free(outputs[i]);
    }
}

static void
look_at_signature(const struct leat_graph *graph)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    if (leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_OK) {
        LEAT_ASSERT(inputs >= 1 && outputs >= 1 && inputs + outputs <= LEAT_TENSORS_MAX);
    }
}

static void
specialise_and_run(const struct leat_graph *graph, int64_t items, const uint8_t *data, size_t size)
{
    struct leat_graph *concrete = NULL;

    if (leat_graph_specialise(graph, items, &concrete) == LEAT_OK) {
        LEAT_MUST(leat_graph_check(concrete) == LEAT_OK);
        run(concrete, data, size);
        leat_graph_destroy(concrete);
    }
}

/* Free dimensions get values that the last bytes choose, sensible and not. */
static void
bind_and_run(const struct leat_graph *graph, const uint8_t *data, size_t size)
{
    static const int64_t choices[] = {1, 2, 3, 4, 7, 16, 1000, LEAT_DIM_MAX, 2, 1, 3, 0};
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    struct leat_graph *bound = NULL;

    LEAT_MUST(leat_graph_copy(graph, &bound) == LEAT_OK);
    for (uint32_t s = 0; s < graph->symbol_count; s++) {
        values[s].name = graph->symbols[s];
        values[s].value = choices[size > s ? data[size - 1 - s] % LEAT_COUNT_OF(choices) : 0];
    }
    if (leat_graph_bind(bound, values, graph->symbol_count) == LEAT_OK) {
        LEAT_MUST(leat_graph_check(bound) == LEAT_OK);
        specialise_and_run(bound, 2, data, size);
        look_at_signature(bound);
    }
    leat_graph_destroy(bound);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct leat_graph *graph = NULL;

    if (leat_onnx_import(data, size, &graph) != LEAT_OK) {
        LEAT_ASSERT(graph == NULL);
        return 0;
    }
    LEAT_MUST(leat_graph_check(graph) == LEAT_OK);
    specialise_and_run(graph, 1, data, size);
    bind_and_run(graph, data, size);
    if (leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK) {
        LEAT_MUST(leat_graph_check(graph) == LEAT_OK);
        specialise_and_run(graph, 3, data, size);
        bind_and_run(graph, data, size);
        look_at_signature(graph);
    }
    leat_graph_destroy(graph);
    return 0;
}
