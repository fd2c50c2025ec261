/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every model that leat-zoo writes is well formed, repeats byte for byte, has the published cost,
 *          and gives finite results that depend on the input.
 * Method   Both sizes are parsed back and checked name by name, the full ones without their numbers; the engine
 *          imports the test sizes for their signature, at their nominal lengths, and runs them on its reference
 *          backend. Nothing here shares code with the builder. Detectors find as many boxes as there are: they are run item
 *          by item.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

enum { ITEMS = 3, TEST_BYTES_MAX = 640 * 1024 };

struct file {
    void *bytes;
    size_t size;
};

static struct file
write_file(const struct zoo_model *model, enum zoo_size size, uint64_t seed)
{
    struct file file = {0};
    EXPECT(zoo_write(model, size, seed, &file.bytes, &file.size) == LEAT_OK);
    return file;
}

static bool
same(struct file a, struct file b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static void
test_repeats(const struct zoo_model *model)
{
    struct file a = write_file(model, ZOO_SIZE_TEST, 7);
    struct file b = write_file(model, ZOO_SIZE_TEST, 7);
    struct file c = write_file(model, ZOO_SIZE_TEST, 8);

    EXPECT(same(a, b));
    EXPECT(a.size == c.size && !same(a, c));
    EXPECT(a.size <= TEST_BYTES_MAX);
    free(a.bytes);
    free(b.bytes);
    free(c.bytes);
}

/* Index of a constant of that name, or -1. */
static int
find_constant(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (strcmp(graph->initializer[i]->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool
is_input(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_input; i++) {
        if (strcmp(graph->input[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* How many of the first `count` nodes make that value. */
static int
makers(const Onnx__GraphProto *graph, size_t count, const char *name)
{
    int found = 0;
    for (size_t n = 0; n < count; n++) {
        for (size_t o = 0; o < graph->node[n]->n_output; o++) {
            found += strcmp(graph->node[n]->output[o], name) == 0;
        }
    }
    return found;
}

static void
check_constant(const Onnx__TensorProto *tensor, bool numbers)
{
    size_t elements = 1;
    for (size_t d = 0; d < tensor->n_dims; d++) {
        EXPECT(tensor->dims[d] > 0);
        elements *= (size_t)tensor->dims[d];
    }
    EXPECT(tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ||
           tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64);
    const size_t size = tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ? 4 : 8;
    EXPECT(tensor->has_raw_data ? tensor->raw_data.len == elements * size : !numbers && size == 4);
    for (size_t i = 0; tensor->has_raw_data && size == 4 && i < elements; i++) {
        float value;
        memcpy(&value, tensor->raw_data.data + 4 * i, 4);
        EXPECT(isfinite(value));
    }
}

/* Every value is made once, before it is used; a body sees what the graph around it made before its node. */
static void
check_nodes(const Onnx__GraphProto *graph, const Onnx__GraphProto *around, size_t around_count, int *uses)
{
    for (size_t n = 0; n < graph->n_node; n++) {
        const Onnx__NodeProto *node = graph->node[n];
        for (size_t i = 0; i < node->n_input; i++) {
            const char *name = node->input[i];
            const int constant = find_constant(around != NULL ? around : graph, name);
            const int outside = around == NULL ? 0 : is_input(around, name) + makers(around, around_count, name);
            uses[constant >= 0 ? constant : 0] += constant >= 0;
            EXPECT(name[0] == '\0' ||
                   (constant >= 0) + is_input(graph, name) + makers(graph, n, name) + outside == 1);
        }
        for (size_t o = 0; o < node->n_output; o++) {
            EXPECT(makers(graph, graph->n_node, node->output[o]) == 1);
        }
        for (size_t a = 0; a < node->n_attribute; a++) {
            if (node->attribute[a]->g != NULL) {
                EXPECT(around == NULL);
                check_nodes(node->attribute[a]->g, graph, n, uses);
            }
        }
    }
    EXPECT(graph->n_output > 0);
    for (size_t o = 0; o < graph->n_output; o++) {
        EXPECT(makers(graph, graph->n_node, graph->output[o]->name) == 1);
    }
}

static void
check_structure(struct file file, bool numbers)
{
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, file.size, file.bytes);
    EXPECT(model != NULL && model->n_opset_import == 1);
    const Onnx__GraphProto *graph = model->graph;
    const int64_t opset = model->opset_import[0]->version;
    int *uses = calloc(graph->n_initializer, sizeof(*uses));

    EXPECT(opset >= 11 && opset <= 17 && uses != NULL);
    EXPECT(model->ir_version == (opset >= 15 ? 8 : opset >= 12 ? 7 : 6));
    check_nodes(graph, NULL, 0, uses);
    for (size_t c = 0; c < graph->n_initializer; c++) {
        EXPECT(find_constant(graph, graph->initializer[c]->name) == (int)c); /* no name twice */
        EXPECT(uses[c] >= 1);
        check_constant(graph->initializer[c], numbers);
    }
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__TensorShapeProto *shape = graph->input[i]->type->tensor_type->shape;
        EXPECT(shape->n_dim >= 1 && strcmp(shape->dim[0]->dim_param, "N") == 0);
    }
    free(uses);
    onnx__model_proto__free_unpacked(model, NULL);
}

static void
check_topology(struct file full, struct file test)
{
    Onnx__ModelProto *a = onnx__model_proto__unpack(NULL, full.size, full.bytes);
    Onnx__ModelProto *b = onnx__model_proto__unpack(NULL, test.size, test.bytes);

    EXPECT(a != NULL && b != NULL && a->graph->n_node == b->graph->n_node);
    for (size_t n = 0; n < a->graph->n_node; n++) {
        const Onnx__NodeProto *x = a->graph->node[n], *y = b->graph->node[n];
        EXPECT(strcmp(x->op_type, y->op_type) == 0 && x->n_input == y->n_input);
        EXPECT(x->n_output == y->n_output && strcmp(x->output[0], y->output[0]) == 0);
        for (size_t i = 0; i < x->n_input; i++) {
            EXPECT(strcmp(x->input[i], y->input[i]) == 0);
        }
    }
    onnx__model_proto__free_unpacked(a, NULL);
    onnx__model_proto__free_unpacked(b, NULL);
}

struct ports {
    const struct leat_tensor_info *infos;
    int64_t ends[LEAT_TENSORS_MAX]; /* of indices */
};

/* What the builder claims of inputs and outputs is what the engine infers from the file. */
static void
compare_ports(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct ports *ports = context;
    const struct leat_tensor_info *infos = ports->infos;
    (void)model;

    for (uint32_t t = 0; t < summary->input_count + summary->output_count; t++) {
        const struct onnx_port *port =
            t < summary->input_count ? &summary->inputs[t] : &summary->outputs[t - summary->input_count];
        EXPECT(strcmp(infos[t].name, port->name) == 0);
        EXPECT(infos[t].dtype == (port->type == ONNX_TYPE_F32 ? LEAT_DTYPE_F32 : LEAT_DTYPE_I64));
        const bool varies = port->dims[0] != ONNX_BATCH; /* items have as many rows as they have: one dimension more */
        EXPECT(infos[t].dims[0] == -1 && infos[t].varying == (varies ? 1 : 0));
        EXPECT(infos[t].rank == port->rank + varies);
        for (uint32_t d = varies ? 0 : 1; d < port->rank; d++) {
            const int64_t dim = port->dims[d];
            EXPECT(infos[t].dims[d + varies] == (dim < 0 ? summary->symbols[-1 - dim].nominal : dim));
        }
        ports->ends[t] = port->end;
    }
}

/* As the daemon does: a model whose items may meet, or whose outputs vary, is run for one item at a time. */
static struct leat_graph *
import(const struct zoo_model *model, struct file file, struct leat_model_source *source,
       struct leat_tensor_info *infos, struct ports *ports)
{
    struct leat_graph *graph = NULL;

    EXPECT(leat_onnx_import(file.bytes, file.size, &graph) == LEAT_OK);
    EXPECT(zoo_lengths(model, ZOO_SIZE_TEST, graph) == LEAT_OK);
    *source = (struct leat_model_source){.graph = graph, .infos = infos};
    enum leat_status status = leat_graph_signature(graph, infos, &source->input_count, &source->output_count);
    if (status == LEAT_ERR_UNSUPPORTED) {
        source->one_by_one = true;
        status = leat_graph_signature_of_one(graph, infos, &source->input_count, &source->output_count);
    }
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: %s\n", model->name, leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    ports->infos = infos;
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, compare_ports, ports) == LEAT_OK);
    EXPECT(source->one_by_one == (infos[source->input_count].varying != 0));
    return graph;
}

/* Deterministic payload: indices below `end`, or f32 in [-2, 2). */
static void
fill_input(const struct leat_tensor_info *info, int64_t end, void *data, uint64_t *random)
{
    const size_t count = ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype);

    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = leat_test_random(random);
        if (info->dtype == LEAT_DTYPE_I64) {
            ((int64_t *)data)[i] = (int64_t)(bits % (uint64_t)end);
        } else {
            ((float *)data)[i] = (float)(bits % 4000) / 1000.0f - 2.0f;
        }
    }
}

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
    EXPECT(block != NULL);
    return block;
}

static void
check_scores(const float *scores, size_t width)
{
    for (size_t i = 0; i < ITEMS * width; i++) {
        EXPECT(isfinite(scores[i]) && fabsf(scores[i]) < 10000.0f); /* boxes are in pixels */
    }
    for (size_t i = 1; i < ITEMS; i++) {
        float difference = 0.0f;
        for (size_t k = 0; k < width; k++) {
            difference = fmaxf(difference, fabsf(scores[i * width + k] - scores[k]));
        }
        EXPECT(difference > 1e-3f); /* the answer depends on the item */
    }
}

/* The last output, to be freed. */
static float *
check_run(const struct leat_model_source *source, const struct ports *ports)
{
    const struct leat_backend *backend = &leat_backend_reference;
    const struct leat_tensor_info *infos = source->infos;
    const uint32_t tensors = source->input_count + source->output_count;
    struct leat_segment segment = {.items = ITEMS};
    void *blocks[LEAT_TENSORS_MAX];
    uint64_t random = leat_test_seed;
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = ITEMS}, &plan) == LEAT_OK);
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    for (uint32_t t = 0; t < tensors; t++) {
        blocks[t] = aligned(ITEMS * infos[t].item_bytes);
        segment.tensors[t] = blocks[t];
        if (t < source->input_count) {
            fill_input(&infos[t], ports->ends[t], blocks[t], &random);
        }
    }
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
    check_scores(blocks[tensors - 1], infos[tensors - 1].item_bytes / sizeof(float));
    for (uint32_t t = 0; t + 1 < tensors; t++) {
        free(blocks[t]);
    }
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
    return blocks[tensors - 1];
}

/* Passes over named dimensions change nothing that passes over numbers do not. */
static void
check_early_passes(const struct zoo_model *model, struct file file, struct leat_model_source source,
                   const struct ports *ports, const float *expected)
{
    const struct leat_tensor_info *last = &source.infos[source.input_count + source.output_count - 1];
    struct leat_graph *graph = NULL;

    EXPECT(leat_onnx_import(file.bytes, file.size, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    EXPECT(zoo_lengths(model, ZOO_SIZE_TEST, graph) == LEAT_OK);
    source.graph = graph;
    float *answer = check_run(&source, ports);
    for (size_t i = 0; i < ITEMS * last->item_bytes / sizeof(float); i++) {
        EXPECT(fabsf(answer[i] - expected[i]) <= 1e-4f + 1e-4f * fabsf(expected[i]));
    }
    free(answer);
    leat_graph_destroy(graph);
}

static void
test_files(const struct zoo_model *model)
{
    struct file full = {0};
    struct file test = write_file(model, ZOO_SIZE_TEST, leat_test_seed);
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source;
    struct ports ports;

    EXPECT(zoo_write_graph(model, ZOO_SIZE_FULL, &full.bytes, &full.size) == LEAT_OK);
    check_structure(full, false);
    check_structure(test, true);
    check_topology(full, test);
    struct leat_graph *graph = import(model, test, &source, infos, &ports);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    float *answer = check_run(&source, &ports);
    check_early_passes(model, test, source, &ports, answer);
    free(answer);
    leat_graph_destroy(graph);
    free(full.bytes);
    free(test.bytes);
}

struct published {
    const char *name;
    uint64_t parameters, multiply_adds;
};

/*
 * Trainable parameters and multiply-adds at 224x224 (Inception v3: 299x299) as torchvision's model pages state
 * them; Inception v3 and GoogLeNet less their auxiliary classifiers (27161264 - 3326696 of Inception v3).
 * YOLOv3-tiny: Darknet's weights file has 35434956 bytes, of which 20 are a header and 4 * 6368 running statistics.
 * YOLOv5n: what release 7.0 prints for the fused model.
 * Text: num_parameters() of the published checkpoints bert-base-uncased (110 M), bert_uncased_L-2_H-128_A-2
 * (4.4 M), distilbert-base-uncased (66 M) and t5-small (60 M), whose two halves share the table of embeddings.
 * Speech: num_parameters() of the encoder of openai/whisper-tiny.
 * The classifier is that of Trevett's "Updated Sentiment Analysis" tutorial, NCF that of MLPerf Training v0.5,
 * each of which prints the count; DLRM's tables have the 33,762,577 rows of Criteo's Kaggle data set, its towers
 * 13-512-256-64-16 and 367-512-256-1.
 */
static const struct published published[] = {
    {"resnet18", 11689512, 1810000000},
    {"resnet50", 25557032, 4090000000},
    {"resnext50", 25028904, 4230000000},
    {"vgg16", 138357544, 15470000000},
    {"googlenet", 6624904, 1500000000},
    {"inceptionv3", 27161264 - 3326696, 5710000000},
    {"mobilenetv2", 3504872, 300000000},
    {"mobilenetv2-64", 3504872, 0},
    {"mobilenetv3-large", 5483032, 220000000},
    {"efficientnet-b0", 5288548, 390000000},
    {"shufflenetv2", 2278604, 140000000},
    {"yolov3-tiny", 8852366, 0},
    {"yolov5n", 1867405, 0},
    {"bert-tiny", 4385920, 0},
    {"bert-base", 109482240, 0},
    {"distilbert", 66362880, 0},
    {"t5-small-encoder", 35330816, 0},
    {"t5-small-decoder", 60506624 - 35330816 + 32128 * 512, 0},
    {"whisper-tiny-encoder", 8208384, 0},
    {"lstm-classifier", 4810857, 0},
    {"ncf", 31832577, 0},
    {"dlrm-criteo", UINT64_C(33762577) * 16 + 155984 + 320001, 0},
};

/* Stated in millions: Zaremba's medium network by Press and Wolf; NeMo's list of models. */
static const struct published in_millions[] = {
    {"lstm-lm", 20, 0},
    {"conformer-ctc-small", 13, 0},
};

static void
compare_millions(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    const struct published *stated = context;
    (void)model;

    EXPECT((summary->parameters + 500000) / 1000000 == stated->parameters);
}

static void
compare_cost(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    const struct published *stated = context;
    (void)model;

    if (summary->parameters != stated->parameters) {
        (void)fprintf(stderr, "%s: %llu parameters\n", stated->name, (unsigned long long)summary->parameters);
    }
    EXPECT(summary->parameters == stated->parameters);
    if (stated->multiply_adds != 0) { /* stated in hundredths of 10^9 */
        EXPECT(fabs((double)summary->flop_per_item / 2e9 - (double)stated->multiply_adds / 1e9) <= 0.015);
    }
}

static void
test_published_cost(void)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(published); i++) {
        struct published stated = published[i];
        EXPECT(zoo_describe(zoo_find(stated.name), ZOO_SIZE_FULL, compare_cost, &stated) == LEAT_OK);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(in_millions); i++) {
        struct published stated = in_millions[i];
        EXPECT(zoo_describe(zoo_find(stated.name), ZOO_SIZE_FULL, compare_millions, &stated) == LEAT_OK);
    }
}

int
main(void)
{
    leat_test_init();
    for (size_t i = 0; i < zoo_model_count; i++) {
        EXPECT(zoo_find(zoo_models[i].name) == &zoo_models[i]);
        test_repeats(&zoo_models[i]);
        test_files(&zoo_models[i]);
    }
    EXPECT(zoo_find("resnet") == NULL);
    test_published_cost();
    return 0;
}
