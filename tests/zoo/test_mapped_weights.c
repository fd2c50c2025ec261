/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Models whose weights stay in their mapped file give what they give with all weights in memory, bit by bit, whatever
 *          plans were built before; nothing but weights of convolutions and products stays there, wherever it lies; a file that has become another
 *          gives an error, and no answer of old and new weights.
 * Method   Every network of the zoo at test size, from memory and from a file, where all that may stays there. Plans of the cpu
 *          backend of several sizes, in f32 in two orders, in bf16, and in int8 with ranges of one batch; the reference backend.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph_build.h"
#include "kernels/mapping.h"
#include "kernels/op.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

enum { ITEMS_MAX = 8, PLANS = 4 };

static const uint32_t orders[2][PLANS] = {{1, 8, 1, 3}, {8, 3, 1, 8}};

struct network {
    const struct zoo_model *model;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source; /* its graph is the one in memory */
    int64_t ends[LEAT_TENSORS_MAX];  /* of indices */
    void *inputs[LEAT_TENSORS_MAX];  /* ITEMS_MAX items */
};

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(LEAT_CACHE_LINE, (size_t)leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    EXPECT(block != NULL);
    return block;
}

/* Another file of the same bytes, without a name. */
static int
make_file(const void *bytes, size_t size)
{
    const int fd = memfd_create("model", MFD_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

/* fd -1: from memory. NULL where the engine does not have what the model needs. */
static struct leat_graph *
import(const struct zoo_model *model, const void *bytes, size_t size, int fd)
{
    struct leat_onnx_source source = {.bytes = bytes, .byte_count = size, .folder_fd = -1, .mapped_bytes_min = 1};
    struct leat_graph *graph = NULL;

    if (fd >= 0) {
        EXPECT(leat_mapping_create(fd, "model", &source.mapping) == LEAT_OK);
        source.bytes = leat_mapping_data(source.mapping, &source.byte_count);
    }
    enum leat_status status = leat_onnx_import_from(&source, &graph);
    leat_mapping_release(source.mapping);
    if (status == LEAT_OK) {
        status = zoo_lengths(model, ZOO_SIZE_TEST, graph);
    }
    if (status != LEAT_OK) {
        EXPECT(status == LEAT_ERR_UNSUPPORTED);
        leat_graph_destroy(graph);
        return NULL;
    }
    return graph;
}

static uint32_t
count_in_file(const struct leat_graph *graph)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        count += graph->values[v].mapping != NULL;
    }
    return count;
}

/* What is read again and again, like a table, lies in memory of ours. */
static void
expect_packed_alone(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const bool packed = node->op->kind == LEAT_OP_CONV || node->op->kind == LEAT_OP_MATMUL || node->op->kind == LEAT_OP_GEMM;
        for (uint32_t i = 0; i < node->input_count; i++) {
            const struct leat_value *input = leat_node_input(graph, node, i);
            EXPECT(input == NULL || input->mapping == NULL || (packed && i == 1));
        }
    }
}

/* A table is not left in the model's own file even where it is aligned there: behind a name of 0 to 63 bytes one is. */
static void
test_aligned_tables(const char *name)
{
    const struct zoo_model *model = zoo_find(name);
    void *bytes;
    size_t size;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    for (size_t more = 0; more < LEAT_CACHE_LINE; more++) {
        unsigned char *shifted = calloc(1, size + 2 + more);
        EXPECT(shifted != NULL);
        shifted[0] = 0x12; /* producer_name: the file has another one behind it, which counts */
        shifted[1] = (unsigned char)more;
        memset(shifted + 2, 'a', more);
        memcpy(shifted + 2 + more, bytes, size);
        const int fd = make_file(shifted, size + 2 + more);
        struct leat_graph *graph = import(model, NULL, 0, fd);
        EXPECT(graph != NULL && close(fd) == 0);
        expect_packed_alone(graph);
        leat_graph_destroy(graph);
        free(shifted);
    }
    free(bytes);
}

static void
note_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct network *network = context;
    (void)model;

    for (uint32_t t = 0; t < summary->input_count; t++) {
        network->ends[t] = summary->inputs[t].end;
    }
}

static void
make_inputs(struct network *network)
{
    uint64_t random = leat_test_seed;

    for (uint32_t t = 0; t < network->source.input_count; t++) {
        const struct leat_tensor_info *info = &network->infos[t];
        const size_t count = ITEMS_MAX * info->item_bytes / leat_dtype_bytes(info->dtype);
        network->inputs[t] = aligned(ITEMS_MAX * info->item_bytes);
        for (size_t i = 0; i < count; i++) {
            const uint64_t bits = leat_test_random(&random);
            if (info->dtype == LEAT_DTYPE_I64) {
                ((int64_t *)network->inputs[t])[i] = (int64_t)(bits % (uint64_t)network->ends[t]);
            } else {
                ((float *)network->inputs[t])[i] = (float)(bits % 4000) / 1000.0f - 2.0f;
            }
        }
    }
}

/* Both graphs get the ranges that the one in memory has for this batch. */
static void
set_ranges(const struct network *network, struct leat_graph *mapped)
{
    struct leat_calibration *calibration;

    EXPECT(leat_calibration_create(network->source.graph, ITEMS_MAX, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const *)network->inputs) == LEAT_OK);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        EXPECT(leat_graph_set_range((struct leat_graph *)(uintptr_t)network->source.graph, &range));
        EXPECT(leat_graph_set_range(mapped, &range));
    }
    leat_calibration_destroy(calibration);
}

/* All outputs of one batch behind one another, to be freed. */
static unsigned char *
answer(const struct leat_backend *backend, struct leat_model *model, const struct network *network, uint32_t items, size_t *ret_bytes)
{
    const struct leat_model_source *source = &network->source;
    struct leat_segment segment = {.items = items};
    struct leat_plan *plan;
    size_t bytes = 0, at = 0;

    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = items}, &plan) == LEAT_OK);
    for (uint32_t t = 0; t < source->input_count + source->output_count; t++) {
        bytes += t < source->input_count ? 0 : (size_t)leat_round_up(items * network->infos[t].item_bytes, LEAT_CACHE_LINE);
    }
    unsigned char *outputs = aligned(bytes);
    memset(outputs, 0, bytes);
    for (uint32_t t = 0; t < source->input_count + source->output_count; t++) {
        segment.tensors[t] = t < source->input_count ? network->inputs[t] : outputs + at;
        at += t < source->input_count ? 0 : (size_t)leat_round_up(items * network->infos[t].item_bytes, LEAT_CACHE_LINE);
    }
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
    free(scratch);
    backend->plan_destroy(plan);
    *ret_bytes = bytes;
    return outputs;
}

static void
compare(const struct leat_backend *backend, const struct network *network, const struct leat_graph *mapped,
        enum leat_precision precision, const uint32_t *sizes, size_t size_count)
{
    struct leat_model_source source = network->source;
    struct leat_model *kept, *model;
    size_t expected_bytes, bytes;

    source.precision = precision;
    EXPECT(backend->model_load(&source, &kept) == LEAT_OK);
    source.graph = mapped;
    EXPECT(backend->model_load(&source, &model) == LEAT_OK);
    for (size_t i = 0; i < size_count; i++) {
        unsigned char *expected = answer(backend, kept, network, sizes[i], &expected_bytes);
        unsigned char *got = answer(backend, model, network, sizes[i], &bytes);
        EXPECT(bytes == expected_bytes && memcmp(got, expected, bytes) == 0);
        free(expected);
        free(got);
    }
    EXPECT(backend->model_bytes(model) <= backend->model_bytes(kept) + 64 * mapped->value_count);
    backend->model_destroy(kept);
    backend->model_destroy(model);
}

/* Whether some weights stayed in the file. */
static bool
test_network(const struct zoo_model *model)
{
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);
    struct network network = {.model = model};
    void *bytes;
    size_t size;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    struct leat_graph *graph = import(model, bytes, size, -1);
    network.source = (struct leat_model_source){.graph = graph, .infos = network.infos};
    if (graph == NULL ||
        leat_graph_signature(graph, network.infos, &network.source.input_count, &network.source.output_count) != LEAT_OK) {
        (void)fprintf(stderr, "%s: left out: %s\n", model->name, leat_error_text());
        leat_graph_destroy(graph);
        free(bytes);
        return false;
    }
    const int fd = make_file(bytes, size);
    struct leat_graph *mapped = import(model, NULL, 0, fd);
    EXPECT(mapped != NULL && close(fd) == 0);
    expect_packed_alone(mapped);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK && leat_graph_optimise(mapped, UINT64_MAX) == LEAT_OK);
    EXPECT(leat_graph_check(mapped) == LEAT_OK && count_in_file(graph) == 0);
    const uint32_t in_file = count_in_file(mapped);
    (void)fprintf(stderr, "%s: %u weights in the file\n", model->name, in_file);
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, note_ends, &network) == LEAT_OK);
    make_inputs(&network);
    compare(&leat_backend_reference, &network, mapped, LEAT_PRECISION_F32, orders[0], 1);
    for (size_t o = 0; o < LEAT_COUNT_OF(orders); o++) {
        compare(&leat_backend_cpu, &network, mapped, LEAT_PRECISION_F32, orders[o], PLANS);
    }
    if ((precisions & LEAT_PRECISION_BIT(LEAT_PRECISION_BF16)) != 0) {
        compare(&leat_backend_cpu, &network, mapped, LEAT_PRECISION_BF16, orders[1], PLANS);
    }
    if ((precisions & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0) {
        set_ranges(&network, mapped);
        compare(&leat_backend_cpu, &network, mapped, LEAT_PRECISION_INT8, orders[0], PLANS);
    }
    for (uint32_t t = 0; t < network.source.input_count; t++) {
        free(network.inputs[t]);
    }
    leat_graph_destroy(graph);
    leat_graph_destroy(mapped);
    free(bytes);
    return in_file > 0;
}

/* Cut short or written to, before its weights are read. */
static void
test_changed_file(bool cut)
{
    const struct zoo_model *model = zoo_find("whisper-tiny-encoder");
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct leat_model *loaded;
    void *bytes;
    size_t size;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    const int fd = make_file(bytes, size);
    struct leat_graph *graph = import(model, NULL, 0, fd);
    EXPECT(graph != NULL && count_in_file(graph) > 0);
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    source.graph = graph;
    if (cut) {
        EXPECT(ftruncate(fd, 1) == 0);
    } else {
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
        EXPECT(futimens(fd, times) == 0);
    }
    EXPECT(leat_backend_cpu.model_load(&source, &loaded) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), cut ? "has become shorter" : "has changed") != NULL);
    EXPECT(leat_backend_reference.model_load(&source, &loaded) == LEAT_ERR_PROTO);
    EXPECT(close(fd) == 0);
    leat_graph_destroy(graph);
    free(bytes);
}

int
main(void)
{
    unsigned in_files = 0;

    leat_test_init();
    for (size_t m = 0; m < zoo_model_count; m++) {
        in_files += test_network(&zoo_models[m]);
    }
    EXPECT(in_files >= 8);
    test_aligned_tables("ncf");
    test_changed_file(true);
    test_changed_file(false);
    return 0;
}
