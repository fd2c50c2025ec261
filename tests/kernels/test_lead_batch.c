/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A model that has its sequences before its items is served in batches once it is said which dimension counts items:
 *          each item's answer is that of the file for this item alone.
 * Method   A recurrence and an attention that computes its shapes, both as PyTorch has them by default, in each backend, before
 *          and after the passes, in batches of several sizes; against the file with one item, by leat_reference_run().
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/reference/reference.h"
#include "kernels/sequence.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { F32 = 1, I64 = 7, STEPS = 6, WIDTH = 4, ITEMS_MAX = 5 };

static const struct leat_backend *backends[2];
static uint32_t backend_count;
static float weights[16 * WIDTH];

/* Of x[length][items][WIDTH], where these are -2 and -1 if they are free: all states, and the last. */
static void
build_recurrence(struct builder *b, int64_t length, int64_t items)
{
    builder_init(b, 14);
    (void)builder_input(b, "x", F32, DIMS(length, items, WIDTH));
    (void)builder_constant(b, "w", F32, weights, DIMS(1, 4 * 2, WIDTH));
    (void)builder_constant(b, "r", F32, weights + 32, DIMS(1, 4 * 2, 2));
    (void)builder_constant(b, "one", I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_int(b, builder_node(b, "LSTM", "x w r", "all last"), "hidden_size", 2);
    (void)builder_node(b, "Squeeze", "all one", "y");
    builder_output(b, "y");
    builder_output(b, "last");
}

/* Two heads: rows of items and heads by computed shapes, as nn.MultiheadAttention has them. */
static void
build_attention(struct builder *b, int64_t length, int64_t items)
{
    builder_init(b, 14);
    (void)builder_input(b, "x", F32, DIMS(length, items, WIDTH));
    (void)builder_constant(b, "w", F32, weights, DIMS(WIDTH, WIDTH));
    (void)builder_constant(b, "one", I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_constant(b, "zero", I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_constant(b, "two", I64, (const int64_t[]){2}, DIMS(1));
    (void)builder_node(b, "Shape", "x", "dims");
    (void)builder_node(b, "Gather", "dims zero", "length");
    (void)builder_node(b, "Gather", "dims one", "items");
    (void)builder_node(b, "Mul", "items two", "rows");
    (void)builder_int(b, builder_node(b, "Concat", "length rows two", "heads"), "axis", 0);
    (void)builder_node(b, "MatMul", "x w", "q");
    (void)builder_node(b, "Reshape", "q heads", "by_time");
    (void)builder_ints(b, builder_node(b, "Transpose", "by_time", "v"), "perm", DIMS(1, 0, 2));
    (void)builder_ints(b, builder_node(b, "Transpose", "by_time", "k"), "perm", DIMS(1, 2, 0));
    (void)builder_node(b, "MatMul", "v k", "scores");
    (void)builder_int(b, builder_node(b, "Softmax", "scores", "p"), "axis", -1);
    (void)builder_node(b, "MatMul", "p v", "mixed");
    (void)builder_ints(b, builder_node(b, "Transpose", "mixed", "back"), "perm", DIMS(1, 0, 2));
    (void)builder_node(b, "Reshape", "back dims", "joined");
    (void)builder_node(b, "Add", "joined x", "y");
    builder_output(b, "y");
}

static void (*const models[])(struct builder *b, int64_t length, int64_t items) = {build_recurrence, build_attention};

static enum leat_status
import(struct builder *b, const char *batch, struct leat_graph **ret_graph)
{
    struct leat_onnx_source source = {.folder_fd = -1, .batch = batch};

    source.bytes = builder_pack(b, &source.byte_count);
    const enum leat_status status = leat_onnx_import_from(&source, ret_graph);
    builder_fini(b);
    return status;
}

/* Free dimensions are called N, for -1, and M; M becomes `length`. */
static struct leat_graph *
import_led(size_t model)
{
    const struct leat_dim_value length = {.name = "M", .value = STEPS};
    struct leat_graph *graph = NULL;
    struct builder b;

    models[model](&b, -2, -1);
    EXPECT(import(&b, "N", &graph) == LEAT_OK);
    const enum leat_status status = leat_graph_bind(graph, &length, 1);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    return graph;
}

/* What the file with one item says of x[STEPS][1][WIDTH]; outputs have a dimension of one item somewhere. */
static void
answer_alone(size_t model, const float *x, float *outputs[2])
{
    struct leat_graph *graph = NULL, *one = NULL;
    struct builder b;
    size_t bytes;

    models[model](&b, STEPS, 1);
    EXPECT(import(&b, NULL, &graph) == LEAT_OK && leat_graph_specialise(graph, 1, &one) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(one, &bytes) == LEAT_OK);
    void *scratch = aligned(bytes);
    EXPECT(leat_reference_run(one, (const void *[]){x}, (void *[]){outputs[0], outputs[1]}, scratch, NULL) == LEAT_OK);
    free(scratch);
    leat_graph_destroy(one);
    leat_graph_destroy(graph);
}

static void
check_batches(const struct leat_backend *backend, size_t model, const struct leat_graph *graph,
              const struct leat_tensor_info *infos, uint32_t output_count)
{
    const struct leat_model_source source = {.graph = graph, .infos = infos, .input_count = 1, .output_count = output_count};
    float x[ITEMS_MAX][STEPS * WIDTH], got[2][ITEMS_MAX * STEPS * WIDTH], wanted[2][STEPS * WIDTH];
    struct leat_model *loaded;
    struct leat_plan *plan;

    for (int i = 0; i < ITEMS_MAX * STEPS * WIDTH; i++) {
        x[i / (STEPS * WIDTH)][i % (STEPS * WIDTH)] = (float)(i * 7 % 23) / 8 - 1;
    }
    EXPECT(backend->model_load(&source, &loaded) == LEAT_OK);
    EXPECT(backend->plan_build(loaded, &(struct leat_plan_options){.items = ITEMS_MAX}, &plan) == LEAT_OK);
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    for (uint32_t items = 1; items <= ITEMS_MAX; items++) {
        const struct leat_segment segment = {.items = items, .tensors = {x, got[0], got[1]}};
        EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
        for (uint32_t i = 0; i < items; i++) {
            answer_alone(model, x[i], (float *[]){wanted[0], wanted[1]});
            for (uint32_t o = 0; o < output_count; o++) {
                const size_t count = infos[1 + o].item_bytes / sizeof(float);
                for (size_t e = 0; e < count; e++) {
                    EXPECT(fabsf(got[o][i * count + e] - wanted[o][e]) <= 1e-4f);
                }
            }
        }
    }
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(loaded);
}

static void
test_answers(void)
{
    for (size_t m = 0; m < LEAT_COUNT_OF(models); m++) {
        struct leat_tensor_info infos[LEAT_TENSORS_MAX];
        struct leat_graph *graph = import_led(m);
        uint32_t inputs, outputs;

        const enum leat_status status = leat_graph_signature(graph, infos, &inputs, &outputs);
        if (status != LEAT_OK) {
            (void)fprintf(stderr, "%s\n", leat_error_text());
        }
        EXPECT(status == LEAT_OK && inputs == 1 && outputs == (m == 0 ? 2 : 1));
        EXPECT(strcmp(infos[0].name, "x") == 0 && strcmp(infos[1].name, "y") == 0);
        EXPECT(infos[0].rank == 3 && infos[0].dims[0] == -1 && infos[0].dims[1] == STEPS && infos[0].dims[2] == WIDTH);
        EXPECT(infos[1].rank == 3 && infos[1].dims[0] == -1 && infos[1].dims[1] == STEPS);
        EXPECT(m != 0 || (infos[2].rank == 3 && infos[2].dims[1] == 1 && infos[2].dims[2] == 2)); /* layers come second */
        for (uint32_t b = 0; b < backend_count; b++) {
            check_batches(backends[b], m, graph, infos, outputs);
        }
        EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
        for (uint32_t b = 0; b < backend_count; b++) {
            check_batches(backends[b], m, graph, infos, outputs);
        }
        leat_graph_destroy(graph);
    }
}

/* Several lengths, which then are a dimension of each item. */
static void
test_lengths(void)
{
    const uint32_t lengths[] = {3, STEPS};
    struct leat_sequence *sequence;
    struct leat_graph *graph = NULL;
    struct builder b;

    build_recurrence(&b, -2, -1);
    /* The last state of a sequence that was padded would be another one. */
    b.graph.n_output = 1;
    EXPECT(import(&b, "N", &graph) == LEAT_OK);
    const enum leat_status status = leat_sequence_create(graph, "M", lengths, 2, &sequence);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK && sequence->axes[0] == 1 && sequence->axes[1] == 1 && sequence->infos[0].dims[1] == STEPS);
    leat_sequence_destroy(sequence);
    leat_graph_destroy(graph);
}

/* Unless it is named, the first dimension counts items: here, positions of a sequence, which meet. */
static void
test_names(void)
{
    const struct leat_dim_value one = {.name = "N", .value = 1};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = NULL;
    uint32_t inputs, outputs;
    struct builder b;

    build_recurrence(&b, -2, -1);
    EXPECT(import(&b, NULL, &graph) == LEAT_OK && leat_graph_bind(graph, &one, 1) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_ERR_UNSUPPORTED);
    leat_graph_destroy(graph);

    graph = NULL;
    build_recurrence(&b, -2, -1);
    EXPECT(import(&b, "batch", &graph) == LEAT_ERR_INVALID && graph == NULL);
    EXPECT(strstr(leat_error_text(), "no free dimension of an input is called 'batch'") != NULL);
    build_recurrence(&b, STEPS, 1);
    EXPECT(import(&b, "N", &graph) == LEAT_ERR_INVALID && graph == NULL);

    /* One without a name is called by its place. */
    build_recurrence(&b, STEPS, -1);
    b.inputs[0]->type->tensor_type->shape->dim[1]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
    EXPECT(import(&b, "x.1", &graph) == LEAT_OK && leat_graph_bind(graph, NULL, 0) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_OK && infos[0].dims[1] == STEPS);
    leat_graph_destroy(graph);
}

/* Of what is squeezed without axes, the rank is known where the batch has a value, and then it is no batch. */
static void
test_given_batch(void)
{
    const struct leat_dim_value given[2] = {{.name = "N", .value = 1}, {.name = "x.0", .value = 1}};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    for (int form = 0; form < 3; form++) { /* none, by its name, by its place */
        struct leat_onnx_source source = {.folder_fd = -1, .dims = form > 0 ? &given[form - 1] : NULL, .dim_count = form > 0};
        struct leat_graph *graph = NULL;
        struct builder b;
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, DIMS(-1, 1, 3));
        (void)builder_input(&b, "w", 1, DIMS(-2, 3));
        if (form == 2) {
            b.inputs[0]->type->tensor_type->shape->dim[0]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
        }
        (void)builder_node(&b, "Squeeze", "x", "s");
        (void)builder_node(&b, "Add", "w s", "y");
        builder_output(&b, "s");
        builder_output(&b, "y");
        source.bytes = builder_pack(&b, &source.byte_count);
        const enum leat_status status = leat_onnx_import_from(&source, &graph);
        builder_fini(&b);
        EXPECT(status == (form == 0 ? LEAT_ERR_UNSUPPORTED : LEAT_OK));
        if (form == 0) {
            EXPECT(strstr(leat_error_text(), "without axes its rank would depend on the batch") != NULL);
            continue;
        }
        const struct leat_value *x = &graph->values[graph->inputs[0]], *w = &graph->values[graph->inputs[1]];
        EXPECT(x->dims[0] == 1 && w->dims[0] == LEAT_DIM_BATCH && graph->values[graph->outputs[0]].rank == 1);
        EXPECT(leat_graph_signature_of_one(graph, infos, &inputs, &outputs) == LEAT_OK);
        EXPECT(infos[2].rank == 2 && infos[2].dims[0] == -1 && infos[2].dims[1] == 3);
        leat_graph_destroy(graph);
    }
}

/* A dimension that has a value does not say what the batch is called, as those of inputs that are constant have: the next one does. */
static void
test_batch_behind_given(void)
{
    static const struct leat_dim_value given[2] = {{.name = "k", .value = 1}, {.name = "sr.0", .value = 1}};
    static const struct leat_constant_input rate = {.name = "sr", .is_whole = true, .whole = 16000};

    for (int form = 0; form < 4; form++) { /* constant or not, by a name or by its place */
        struct leat_onnx_source source = {
            .folder_fd = -1, .dims = &given[form % 2], .dim_count = 1, .constants = &rate, .constant_count = form < 2};
        struct leat_graph *graph = NULL;
        struct builder b;
        builder_init(&b, 13);
        Onnx__TensorShapeProto__Dimension *dim = builder_input(&b, "sr", 7, DIMS(-2))->type->tensor_type->shape->dim[0];
        if (form % 2 == 0) {
            dim->dim_param = strcpy(builder_alloc(&b, 2), "k");
        } else {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
        }
        (void)builder_input(&b, "x", 1, DIMS(-1, 512));
        (void)builder_input(&b, "state", 1, DIMS(2, -1, 128));
        (void)builder_node(&b, "Neg", "x", "y");
        (void)builder_node(&b, "Neg", "state", "next");
        (void)builder_node(&b, "Neg", "sr", "z");
        builder_output(&b, "y");
        builder_output(&b, "next");
        builder_output(&b, "z");
        source.bytes = builder_pack(&b, &source.byte_count);
        const enum leat_status status = leat_onnx_import_from(&source, &graph);
        builder_fini(&b);
        if (status != LEAT_OK) {
            (void)fprintf(stderr, "form %d: %s\n", form, leat_error_text());
        }
        EXPECT(status == LEAT_OK && graph->input_count == (form < 2 ? 2 : 3));
        const struct leat_value *x = &graph->values[graph->inputs[graph->input_count - 2]];
        const struct leat_value *state = &graph->values[graph->inputs[graph->input_count - 1]];
        EXPECT(x->dims[0] == LEAT_DIM_BATCH && state->dims[1] == LEAT_DIM_BATCH && state->dims[0] == 2);
        leat_graph_destroy(graph);
    }
}

int
main(void)
{
    leat_test_init();
    for (size_t i = 0; i < LEAT_COUNT_OF(weights); i++) {
        weights[i] = (float)(i * 5 % 17) / 16 - 0.5f;
    }
    backends[backend_count++] = &leat_backend_reference;
    if (leat_backend_find("cpu") != NULL) {
        backends[backend_count++] = leat_backend_find("cpu");
    }
    test_answers();
    test_lengths();
    test_names();
    test_given_batch();
    test_batch_behind_given();
    return 0;
}
