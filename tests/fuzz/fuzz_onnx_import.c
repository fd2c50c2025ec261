/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_onnx_import_from and all that follows: check, passes, specialising, signature, a small run, and a plan of
 *           the reference backend.
 * Input     An ONNX file, byte for byte. Mutations are those of onnx_mutate.h.
 * Property  No crash, no sanitizer report. What is imported keeps the promises of graph.h, before and
 *           after the passes and specialised; a graph with a signature runs to a result or a status.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/made_inputs.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "kernels/window.h"
#include "tests/fuzz/onnx_mutate.h"

#define RUN_BYTES_MAX  ((size_t)16 << 10) /* larger runs would only be slow */
#define RUN_VOLUME_MAX 1024
#define INPUTS_MAX     8u
#define ITEMS          3u
#define WEIGHTS_BYTES  ((size_t)256 << 10)
#define MEMORY_BYTES_MAX (UINT64_C(64) << 20)
#define TRIPS_MAX      256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

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

/* Two queries in a plan of the backend that clients would get, with payload from the file. */
static void
serve(const struct leat_graph *graph, const struct leat_tensor_info *infos, uint32_t inputs, uint32_t outputs,
      const uint8_t *data, size_t size)
{
    const struct leat_backend *backend = &leat_backend_reference;
    const struct leat_model_source source = {
        .graph = graph, .infos = infos, .input_count = inputs, .output_count = outputs};
    const struct leat_plan_options options = {.items = ITEMS};
    struct leat_segment segments[2] = {{.items = 1}, {.items = ITEMS - 1}};
    unsigned char *blocks[2][LEAT_TENSORS_MAX] = {0};
    struct leat_graph *concrete = NULL;
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL;
    size_t scratch_bytes = SIZE_MAX;

    if (leat_graph_specialise(graph, ITEMS, &concrete) != LEAT_OK) {
        return;
    }
    LEAT_MUST(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    const bool small = is_small(concrete, scratch_bytes);
    leat_graph_destroy(concrete);
    if (!small) {
        return;
    }
    LEAT_MUST(backend->model_load(&source, &model) == LEAT_OK);
    if (backend->plan_build(model, &options, &plan) == LEAT_OK) {
        for (uint32_t s = 0; s < 2; s++) {
            for (uint32_t t = 0; t < inputs + outputs; t++) {
                const size_t bytes = segments[s].items * infos[t].item_bytes;
                segments[s].tensors[t] = blocks[s][t] = aligned_alloc(64, (bytes + 64) / 64 * 64);
                LEAT_ASSERT(blocks[s][t] != NULL);
                for (size_t i = 0; i < bytes; i++) {
                    blocks[s][t][i] = size > 0 ? data[(i + s) % size] : 0;
                }
            }
        }
        scratch_bytes = backend->plan_scratch_bytes(plan);
        void *scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
        LEAT_ASSERT(scratch != NULL);
        const enum leat_status status = backend->plan_run(plan, segments, 2, scratch, NULL);
        LEAT_ASSERT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
        free(scratch);
        for (uint32_t t = 0; t < 2 * LEAT_TENSORS_MAX; t++) {
            free(blocks[t / LEAT_TENSORS_MAX][t % LEAT_TENSORS_MAX]);
        }
        backend->plan_destroy(plan);
    }
    backend->model_destroy(model);
}

static void
look_at_signature(const struct leat_graph *graph, const uint8_t *data, size_t size)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    if (leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_OK) {
        LEAT_ASSERT(inputs >= 1 && outputs >= 1 && inputs + outputs <= LEAT_TENSORS_MAX);
        serve(graph, infos, inputs, outputs, data, size);
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

/* What models are measured on. */
static void
make_inputs(const struct leat_graph *graph)
{
    struct leat_made_range *ranges = calloc((size_t)graph->input_count + 1, sizeof(*ranges));
    uint64_t drawn = 0, elements[2];

    LEAT_ASSERT(ranges != NULL);
    LEAT_MUST(leat_graph_made_ranges(graph, ranges) == LEAT_OK);
    for (uint32_t i = 0; i < graph->input_count; i++) {
        LEAT_ASSERT(ranges[i].least >= 0 && (ranges[i].end > ranges[i].least || ranges[i].end == 0));
        leat_made_fill(LEAT_FILLING_DRAWN, graph->values[graph->inputs[i]].dtype, ranges[i], 2, &drawn, elements);
    }
    free(ranges);
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
        make_inputs(bound);
        specialise_and_run(bound, 2, data, size);
        look_at_signature(bound, data, size);
    }
    leat_graph_destroy(bound);
}

size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    const size_t mutated = onnx_mutate(data, size, max_size, seed);
    if (mutated == 0 && size > 0) { /* no model: bytes */
        data[seed % size] ^= (uint8_t)(1u << (seed >> 8 & 7));
    }
    return mutated > 0 ? mutated : size;
}

static char folder[] = "/tmp/leat-fuzz-XXXXXX";
static int folder_fd = -1;

static void
remove_folder(void)
{
    (void)unlinkat(folder_fd, "weights", 0);
    (void)rmdir(folder);
}

/* With a file that external data may lie in. */
static void
make_folder(void)
{
    static unsigned char weights[WEIGHTS_BYTES];

    for (size_t i = 0; i < sizeof(weights); i++) {
        weights[i] = (unsigned char)(i % 8 == 0 ? i / 8 % 5 : 0);
    }
    LEAT_MUST(mkdtemp(folder) != NULL);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    LEAT_MUST(folder_fd >= 0);
    const int fd = openat(folder_fd, "weights", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    LEAT_MUST(fd >= 0 && write(fd, weights, sizeof(weights)) == (ssize_t)sizeof(weights) && close(fd) == 0);
    LEAT_MUST(atexit(remove_folder) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct leat_graph *graph = NULL;

    if (folder_fd < 0) {
        make_folder();
    }
    const struct leat_onnx_source source = {.bytes = data,
                                            .byte_count = size,
                                            .folder_fd = folder_fd,
                                            .memory_bytes_max = MEMORY_BYTES_MAX,
                                            .trips_max = TRIPS_MAX};
    if (leat_onnx_import_from(&source, &graph) != LEAT_OK) {
        LEAT_ASSERT(graph == NULL);
        return 0;
    }
    LEAT_MUST(leat_graph_check(graph) == LEAT_OK);
    make_inputs(graph);
    specialise_and_run(graph, 1, data, size);
    bind_and_run(graph, data, size);
    if (leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK) {
        LEAT_MUST(leat_graph_check(graph) == LEAT_OK);
        specialise_and_run(graph, 3, data, size);
        bind_and_run(graph, data, size);
        look_at_signature(graph, data, size);
    }
    leat_graph_destroy(graph);
    return 0;
}
