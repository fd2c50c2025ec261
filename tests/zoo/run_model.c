/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_model [-b BACKEND] [-p PRECISION] [-c COUNT] [-l NAME=N:LENGTH,LENGTH...] [-w PASS,PASS...] FILE.onnx ITEMS
 * [NAME=N]...: one batch through a backend, or cpu, without those passes.
 *
 * With -l, tensors have room for the last of the lengths, and sequences N positions; it runs at all lengths that hold them.
 * Standard input has the inputs of COUNT items that ranges of values come from, for int8, and then those of the batch, one
 * whole input after the other. Standard output gets all outputs, in the order of the signature, and where some vary, how
 * much of them there is: u16[ITEMS][outputs that vary]; all of that for each length. Exit codes: 3, the engine does not
 * have what the model needs; 4, this processor does not have the precision.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph.h"
#include "kernels/sequence.h"
#include "tests/leat_test.h"

enum { EXIT_UNSUPPORTED = 3, EXIT_PRECISION = 4 };

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

/* Weights in other files are looked for beside it. */
static enum leat_status
import(char *path, struct leat_graph **ret_graph)
{
    struct leat_onnx_source source = {0};
    void *file = read_file(path, &source.byte_count);

    source.bytes = file;
    source.folder_fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(source.folder_fd >= 0);
    const enum leat_status status = leat_onnx_import_from(&source, ret_graph);
    EXPECT(close(source.folder_fd) == 0);
    free(file);
    return status;
}

/* One whose items may meet, or whose outputs vary, is run for one of them at a time, as the daemon does. */
static enum leat_status
sign(struct leat_model_source *source, struct leat_tensor_info *infos)
{
    source->infos = infos;
    enum leat_status status = leat_graph_signature(source->graph, infos, &source->input_count, &source->output_count);
    if (status == LEAT_ERR_UNSUPPORTED) {
        source->one_by_one = true;
        status = leat_graph_signature_of_one(source->graph, infos, &source->input_count, &source->output_count);
    }
    return status;
}

/* Item by item. */
static void
calibrate(const struct leat_model_source *source, struct leat_graph *graph, uint32_t count)
{
    struct leat_calibration *calibration;
    unsigned char *inputs[LEAT_TENSORS_MAX];
    const void *item[LEAT_TENSORS_MAX];

    EXPECT(leat_calibration_create(graph, 1, &calibration) == LEAT_OK);
    for (uint32_t t = 0; t < source->input_count; t++) {
        inputs[t] = aligned(count * source->infos[t].item_bytes);
        EXPECT(fread(inputs[t], source->infos[t].item_bytes, count, stdin) == count);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t t = 0; t < source->input_count; t++) {
            item[t] = inputs[t] + i * source->infos[t].item_bytes;
        }
        EXPECT(leat_calibration_run(calibration, item) == LEAT_OK);
    }
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        EXPECT(leat_graph_set_range(graph, &range));
    }
    leat_calibration_destroy(calibration);
    for (uint32_t t = 0; t < source->input_count; t++) {
        free(inputs[t]);
    }
}

static void
run_at(const struct leat_backend *backend, struct leat_model *model, uint32_t length,
       const struct leat_model_source *source, const struct leat_segment *segment)
{
    const size_t sizes = leat_signature_sizes(source->infos, source->input_count + source->output_count);
    const struct leat_plan_options options = {.items = segment->items, .length = length};
    struct leat_plan *plan;

    EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    EXPECT(backend->plan_run(plan, segment, 1, scratch, NULL) == LEAT_OK);
    for (uint32_t o = 0; o < source->output_count; o++) {
        const uint32_t t = source->input_count + o;
        EXPECT(fwrite(segment->tensors[t], source->infos[t].item_bytes, segment->items, stdout) == segment->items);
    }
    EXPECT(fwrite(segment->sizes, sizeof(uint16_t), segment->items * sizes, stdout) == segment->items * sizes);
    free(scratch);
    backend->plan_destroy(plan);
}

static void
run(const struct leat_backend *backend, const struct leat_model_source *source, uint32_t items, uint32_t positions)
{
    const uint32_t tensors = source->input_count + source->output_count;
    const uint32_t sizes = leat_signature_sizes(source->infos, tensors);
    struct leat_segment segment = {
        .items = items, .length = positions, .sizes = calloc((size_t)items * sizes + 1, sizeof(uint16_t))};
    void *blocks[LEAT_TENSORS_MAX];
    struct leat_model *model;

    EXPECT(segment.sizes != NULL);
    for (uint32_t t = 0; t < tensors; t++) {
        blocks[t] = aligned(items * source->infos[t].item_bytes);
        segment.tensors[t] = blocks[t];
        EXPECT(t >= source->input_count || fread(blocks[t], source->infos[t].item_bytes, items, stdin) == items);
    }
    EXPECT(getchar() == EOF);
    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    if (source->length_count == 0) {
        run_at(backend, model, 0, source, &segment);
    }
    for (uint32_t k = 0; k < source->length_count; k++) {
        if (source->lengths[k] >= positions) {
            run_at(backend, model, source->lengths[k], source, &segment);
        }
    }
    backend->model_destroy(model);
    for (uint32_t t = 0; t < tensors; t++) {
        free(blocks[t]);
    }
    free(segment.sizes);
}

/* What -l says. */
struct lengths {
    char *name; /* NULL: there are none */
    uint32_t positions, count, lengths[LEAT_LENGTHS_MAX];
};

static void
read_lengths(char *text, struct lengths *ret)
{
    char *end = strrchr(text, '=');

    EXPECT(end != NULL);
    *end = '\0';
    ret->name = text;
    ret->positions = (uint32_t)strtoul(end + 1, &end, 10);
    while (*end != '\0') {
        EXPECT(ret->count < LEAT_LENGTHS_MAX);
        ret->lengths[ret->count++] = (uint32_t)strtoul(end + 1, &end, 10);
    }
}

/* What backends load of the graph; *ret_sequence stays NULL where there are no lengths. */
static enum leat_status
describe(struct leat_graph *graph, const struct lengths *lengths, uint64_t passes, struct leat_tensor_info *infos,
         struct leat_model_source *source, struct leat_sequence **ret_sequence)
{
    if (lengths->name == NULL) {
        source->graph = graph;
        const enum leat_status status = sign(source, infos);
        return status == LEAT_OK ? leat_graph_optimise(graph, passes) : status;
    }
    enum leat_status status = leat_sequence_create(graph, lengths->name, lengths->lengths, lengths->count, ret_sequence);
    if (status == LEAT_OK) {
        status = leat_sequence_optimise(*ret_sequence, passes);
        leat_sequence_describe(*ret_sequence, source);
    }
    return status;
}

int
main(int argc, char **argv)
{
    const struct leat_backend *backend = &leat_backend_cpu;
    struct leat_dim_value values[LEAT_GRAPH_SYMBOLS_MAX];
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
    struct leat_sequence *sequence = NULL;
    struct leat_graph *graph = NULL;
    struct lengths lengths = {.name = NULL};
    uint32_t count = 0, calibrated = 0;
    uint64_t passes = UINT64_MAX;
    int option;

    while ((option = getopt(argc, argv, "b:p:c:l:w:")) != -1) {
        switch (option) {
        case 'b': backend = leat_backend_find(optarg); break;
        case 'p': EXPECT(leat_precision_find(optarg, &source.precision)); break;
        case 'c': calibrated = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'l': read_lengths(optarg, &lengths); break;
        case 'w': EXPECT(leat_passes_without(optarg, &passes) == LEAT_OK); break;
        default: EXPECT(!"an option that there is");
        }
    }
    EXPECT(backend != NULL && argc - optind >= 2 && argc - optind - 2 <= (int)LEAT_GRAPH_SYMBOLS_MAX);
    for (int a = optind + 2; a < argc; a++) {
        char *equals = strrchr(argv[a], '=');
        EXPECT(equals != NULL);
        *equals = '\0';
        values[count++] = (struct leat_dim_value){.name = argv[a], .value = strtoll(equals + 1, NULL, 10)};
    }
    if ((leat_backend_precisions(backend) & LEAT_PRECISION_BIT(source.precision)) == 0) {
        (void)fprintf(stderr, "backend %s has no %s on this processor\n", backend->name,
                      leat_precision_text(source.precision));
        return EXIT_PRECISION;
    }
    enum leat_status status = import(argv[optind], &graph);
    if (status == LEAT_OK) {
        status = leat_graph_bind(graph, values, count);
    }
    if (status == LEAT_OK) {
        status = describe(graph, &lengths, passes, infos, &source, &sequence);
    }
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
        leat_sequence_destroy(sequence);
        leat_graph_destroy(graph);
        return status == LEAT_ERR_UNSUPPORTED ? EXIT_UNSUPPORTED : EXIT_FAILURE;
    }
    if (calibrated > 0) {
        calibrate(&source, graph, calibrated);
    }
    run(backend, &source, (uint32_t)strtoul(argv[optind + 1], NULL, 10), lengths.positions);
    leat_sequence_destroy(sequence);
    leat_graph_destroy(graph);
    return EXIT_SUCCESS;
}
