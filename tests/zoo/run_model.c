/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_model FILE.onnx ITEMS [NAME=N]...: one batch through the reference backend and then through cpu.
 *
 * Standard input has all inputs, standard output gets all outputs of the one and then of the other, in the order of the
 * signature. Exit code 3: the engine does not have what the model needs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "tests/leat_test.h"

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
    EXPECT(block != NULL);
    return block;
}

static void *
read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL && fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    void *bytes = aligned((size_t)size);
    EXPECT(fread(bytes, 1, (size_t)size, file) == (size_t)size);
    EXPECT(fclose(file) == 0);
    *ret_size = (size_t)size;
    return bytes;
}

static void
run(const struct leat_backend *backend, const struct leat_model_source *source, const struct leat_segment *segment)
{
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = segment->items}, &plan) == LEAT_OK);
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    EXPECT(backend->plan_run(plan, segment, 1, scratch, NULL) == LEAT_OK);
    for (uint32_t o = 0; o < source->output_count; o++) {
        const uint32_t t = source->input_count + o;
        EXPECT(fwrite(segment->tensors[t], source->infos[t].item_bytes, segment->items, stdout) == segment->items);
    }
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

int
main(int argc, char **argv)
{
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct leat_graph *graph = NULL;
    void *blocks[LEAT_TENSORS_MAX];
    uint32_t count = 0;
    size_t size;

    EXPECT(argc >= 3 && argc - 3 <= (int)LEAT_GRAPH_SYMBOLS_MAX);
    for (int a = 3; a < argc; a++) {
        char *equals = strrchr(argv[a], '=');
        EXPECT(equals != NULL);
        *equals = '\0';
        values[count++] = (struct leat_dim_value){.name = argv[a], .value = strtoll(equals + 1, NULL, 10)};
    }
    void *file = read_file(argv[1], &size);
    struct leat_segment segment = {.items = (uint32_t)strtoul(argv[2], NULL, 10)};
    enum leat_status status = leat_onnx_import(file, size, &graph);
    if (status == LEAT_OK) {
        status = leat_graph_bind(graph, values, count);
    }
    if (status == LEAT_OK) {
        status = leat_graph_signature(graph, infos, &source.input_count, &source.output_count);
    }
    free(file);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
        leat_graph_destroy(graph);
        return status == LEAT_ERR_UNSUPPORTED ? 3 : 1;
    }
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    source.graph = graph;
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        blocks[t] = aligned(segment.items * infos[t].item_bytes);
        segment.tensors[t] = blocks[t];
        EXPECT(t >= source.input_count || fread(blocks[t], infos[t].item_bytes, segment.items, stdin) == segment.items);
    }
    EXPECT(getchar() == EOF);
    run(&leat_backend_reference, &source, &segment);
    run(&leat_backend_cpu, &source, &segment);
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        free(blocks[t]);
    }
    leat_graph_destroy(graph);
    return 0;
}
