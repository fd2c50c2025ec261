/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Files of opsets after 17 give what they say: an operator that did not change does what it did, one that did has its
 *          new form, and where that is not supported the node is refused by name, operator and opset.
 * Method   (1) Networks of leat-zoo say that they are of each later opset: the same answers, bit for bit, or a refusal of
 *          the node, the operator and the opsets of its form that a table names. (2) Each new form against the same in
 *          words of opset 17, by the reference and the cpu backend, before and after the passes; in the opset before, it is
 *          refused by the same. test_onnxruntime compares forms up to opset 22 with ONNX Runtime.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "kernels/op.h"
#include "tests/leat_test.h"
#include "tests/zoo/newer_forms.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

enum { ITEMS = 2, OLDER_OPSET = 17, LATER = LEAT_OPSET_MAX - OLDER_OPSET };
/* With a sanitizer of these the first and the last, for networks. */
enum { STEP = LEAT_TEST_SHARE > 1 ? LATER - 1 : 1, TAKEN = (LATER - 1) / STEP + 1 };

struct answer {
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;
    void *tensors[LEAT_TENSORS_MAX];
};

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
    EXPECT(block != NULL);
    return block;
}

/* Indices 0 and 1, which every table has, or f32 in [-2, 2). */
static void
fill(const struct leat_tensor_info *info, void *data, uint64_t *random)
{
    for (size_t i = 0; i < ITEMS * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t bits = leat_test_random(random);
        if (info->dtype == LEAT_DTYPE_I64) {
            ((int64_t *)data)[i] = (int64_t)(bits % 2);
        } else {
            EXPECT(info->dtype == LEAT_DTYPE_F32);
            ((float *)data)[i] = (float)(bits % 4000) / 1000.0f - 2.0f;
        }
    }
}

/* What a backend makes of seeded inputs; the graph stays. */
static void
answer_of(const struct leat_backend *backend, const struct leat_graph *graph, struct answer *ret)
{
    struct leat_model_source source = {.graph = graph, .infos = ret->infos};
    struct leat_segment segment = {.items = ITEMS};
    uint64_t random = leat_test_seed;
    struct leat_model *model;
    struct leat_plan *plan;

    const enum leat_status status = leat_graph_signature(graph, ret->infos, &source.input_count, &source.output_count);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    ret->inputs = source.input_count;
    ret->outputs = source.output_count;
    EXPECT(backend->model_load(&source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = ITEMS}, &plan) == LEAT_OK);
    void *scratch = aligned(backend->plan_scratch_bytes(plan));
    for (uint32_t t = 0; t < ret->inputs + ret->outputs; t++) {
        segment.tensors[t] = ret->tensors[t] = aligned(ITEMS * ret->infos[t].item_bytes);
        if (t < ret->inputs) {
            fill(&ret->infos[t], ret->tensors[t], &random);
        }
    }
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static void
answer_free(struct answer *answer)
{
    for (uint32_t t = 0; t < answer->inputs + answer->outputs; t++) {
        free(answer->tensors[t]);
    }
}

/* ---- Networks of another opset ------------------------------------------------------------------ */

/* The file with another opset in it; to be freed. */
static void *
restamp(const void *file, size_t size, int64_t opset, size_t *ret_size)
{
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, file);
    EXPECT(model != NULL && model->n_opset_import == 1);
    model->opset_import[0]->version = opset;
    void *bytes = malloc(onnx__model_proto__get_packed_size(model));
    EXPECT(bytes != NULL);
    *ret_size = onnx__model_proto__pack(model, bytes);
    onnx__model_proto__free_unpacked(model, NULL);
    return bytes;
}

/* NULL where it is refused. */
static struct leat_graph *
import(const struct zoo_model *model, const void *file, size_t size)
{
    struct leat_graph *graph = NULL;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    if (leat_onnx_import(file, size, &graph) != LEAT_OK) {
        return NULL;
    }
    if (zoo_lengths(model, ZOO_SIZE_TEST, graph) != LEAT_OK ||
        leat_graph_signature(graph, infos, &inputs, &outputs) != LEAT_OK) {
        leat_graph_destroy(graph);
        return NULL;
    }
    return graph;
}

/* Networks with a node whose operator has another form at all later opsets: the first is named, and the form's opsets. */
static const struct {
    const char *network, *refusal;
} refusals[] = {
    {"shufflenetv2", "node 'mean_width' (operator ReduceMean): attribute 'axes' is not supported at opsets 18 to 28"},
    {"yolov5n",
     "node 'model.24.0.apart.dim0.unsqueeze' (operator Unsqueeze): it has 1 inputs; 2 to 2 are possible at opsets 13 to 28"},
    {"bert-tiny",
     "node 'embeddings.LayerNorm.mean' (operator ReduceMean): attribute 'axes' is not supported at opsets 18 to 28"},
    {"bert-base",
     "node 'embeddings.LayerNorm.mean' (operator ReduceMean): attribute 'axes' is not supported at opsets 18 to 28"},
    {"distilbert",
     "node 'embeddings.length.unsqueeze' (operator Unsqueeze): it has 1 inputs; 2 to 2 are possible at opsets 13 to 28"},
    {"t5-small-encoder",
     "node 'block.0.layer.0.layer_norm.mean' (operator ReduceMean): attribute 'axes' is not supported at opsets 18 to 28"},
    {"t5-small-decoder",
     "node 'block.0.layer.0.layer_norm.mean' (operator ReduceMean): attribute 'axes' is not supported at opsets 18 to 28"},
    {"wide-deep",
     "node 'linear.weights.0.squeeze' (operator Squeeze): attribute 'axes' is not supported at opsets 13 to 28"},
    {"dien", "node 'fcn.sum' (operator ReduceSum): attribute 'axes' is not supported at opsets 13 to 28"},
};

/* Networks that have no batches at their own opset. */
static const struct {
    const char *network, *refusal;
} one_by_one[] = {
    {"yolov5n-nms", "the shape of output 'output' depends on tensor contents"},
    {"yolov5n-crops", "the shape of output 'detections' depends on tensor contents"},
    {"yolov5n-crops-128", "the shape of output 'detections' depends on tensor contents"},
};

static const char *
refusal_of(const char *network)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(refusals); i++) {
        if (strcmp(refusals[i].network, network) == 0) {
            return refusals[i].refusal;
        }
    }
    return NULL;
}

/* The last error is that one. */
static void
expect_text(const char *network, int64_t opset, const char *wanted)
{
    if (wanted == NULL || strcmp(leat_error_text(), wanted) != 0) {
        (void)fprintf(stderr, "%s at opset %lld: '%s', not '%s'\n", network, (long long)opset, leat_error_text(),
                      wanted != NULL ? wanted : "");
        EXPECT(!"it is refused by what it has, where it is");
    }
}

/* The same at a later opset, or the refusal that is known of it. True where it runs. */
static bool
test_restamped(const struct zoo_model *model, const void *file, size_t size, int64_t opset, const struct answer *before)
{
    const char *refusal = refusal_of(model->name);
    struct answer after;
    size_t newer_size;
    void *newer = restamp(file, size, opset, &newer_size);
    struct leat_graph *graph = import(model, newer, newer_size);

    free(newer);
    if (graph == NULL) {
        expect_text(model->name, opset, refusal);
        return false;
    }
    EXPECT(refusal == NULL);
    answer_of(&leat_backend_reference, graph, &after);
    EXPECT(before->inputs == after.inputs && before->outputs == after.outputs);
    for (uint32_t t = before->inputs; t < before->inputs + before->outputs; t++) {
        EXPECT(before->infos[t].item_bytes == after.infos[t].item_bytes);
        EXPECT(memcmp(before->tensors[t], after.tensors[t], ITEMS * after.infos[t].item_bytes) == 0);
    }
    answer_free(&after);
    leat_graph_destroy(graph);
    return true;
}

/* How many later opsets it runs at. */
static unsigned
test_network(const struct zoo_model *model)
{
    struct answer before;
    unsigned ran = 0;
    void *file;
    size_t size;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    struct leat_graph *graph = import(model, file, size);
    if (graph == NULL) {
        size_t i = 0;
        while (i < LEAT_COUNT_OF(one_by_one) && strcmp(one_by_one[i].network, model->name) != 0) {
            i++;
        }
        expect_text(model->name, 0, i < LEAT_COUNT_OF(one_by_one) ? one_by_one[i].refusal : NULL);
        free(file);
        return 0;
    }
    answer_of(&leat_backend_reference, graph, &before);
    leat_graph_destroy(graph);
    for (int64_t opset = OLDER_OPSET + 1; opset <= LEAT_OPSET_MAX; opset += STEP) {
        ran += test_restamped(model, file, size, opset, &before);
    }
    answer_free(&before);
    free(file);
    return ran;
}

static void
test_networks(void)
{
    size_t all = 0;

    for (size_t i = 0; i < zoo_model_count; i++) {
        const unsigned ran = test_network(&zoo_models[i]);
        EXPECT(ran == 0 || ran == TAKEN);
        all += ran == TAKEN;
    }
    (void)printf("%zu of %zu networks at %d of the %d later opsets\n", all, zoo_model_count, TAKEN, LATER);
    EXPECT(all + LEAT_COUNT_OF(refusals) + LEAT_COUNT_OF(one_by_one) == zoo_model_count);
}

/* ---- New forms ---------------------------------------------------------------------------------- */

static void
compare(const struct newer_form *form, int64_t opset, const struct answer *expected, const struct answer *got)
{
    EXPECT(expected->inputs == got->inputs && expected->outputs == got->outputs);
    for (uint32_t t = expected->inputs; t < expected->inputs + expected->outputs; t++) {
        const float *want = expected->tensors[t], *have = got->tensors[t];
        EXPECT(expected->infos[t].item_bytes == got->infos[t].item_bytes && expected->infos[t].dtype == LEAT_DTYPE_F32);
        for (size_t i = 0; i < ITEMS * got->infos[t].item_bytes / sizeof(float); i++) {
            if (!(fabsf(want[i] - have[i]) <= 1e-5f + 1e-5f * fabsf(want[i]))) {
                (void)fprintf(stderr, "%s at opset %lld: %s[%zu] is %g, not %g\n", form->name, (long long)opset,
                              got->infos[t].name, i, (double)have[i], (double)want[i]);
                EXPECT(!"answers agree");
            }
        }
    }
}

static struct leat_graph *
import_form(struct builder *b)
{
    struct leat_graph *graph = NULL;
    const enum leat_status status = builder_import(b, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    builder_fini(b);
    return graph;
}

static void
test_form(const struct newer_form *form)
{
    const struct leat_backend *cpu = leat_backend_find("cpu");
    struct answer expected, got;
    struct builder b;

    newer_form_build_older(form, &b);
    struct leat_graph *graph = import_form(&b);
    answer_of(&leat_backend_reference, graph, &expected);
    leat_graph_destroy(graph);
    for (int64_t opset = form->since; opset <= LEAT_OPSET_MAX; opset++) {
        newer_form_build(form, opset, &b);
        graph = import_form(&b);
        for (int optimised = 0; optimised < 2; optimised++) {
            answer_of(&leat_backend_reference, graph, &got);
            compare(form, opset, &expected, &got);
            answer_free(&got);
            if (cpu != NULL) {
                answer_of(cpu, graph, &got);
                compare(form, opset, &expected, &got);
                answer_free(&got);
            }
            EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
        }
        leat_graph_destroy(graph);
    }
    answer_free(&expected);
    /* Before, there was no such form. */
    struct leat_graph *none = NULL;
    newer_form_build(form, form->since - 1, &b);
    EXPECT(builder_import(&b, &none) != LEAT_OK);
    expect_text(form->name, form->since - 1, form->refusal);
    builder_fini(&b);
}

/* ---- What is refused ---------------------------------------------------------------------------- */

static void
expect_refused(const char *op, int64_t opset, const char *name, const char *text, int64_t number, const char *error)
{
    struct leat_graph *graph = NULL;
    struct builder b;
    char wanted[160];

    builder_init(&b, opset);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4, 6, 7));
    (void)builder_constant(&b, "scales", 1, (const float[]){1, 1, 2, 2}, DIMS(4));
    (void)builder_constant(&b, "scale", 1, (const float[]){2}, NULL, 0);
    const bool resize = strcmp(op, "Resize") == 0, back = strcmp(op, "DequantizeLinear") == 0;
    const bool quantise = strcmp(op, "QuantizeLinear") == 0;
    if (back) {
        (void)builder_int(&b, builder_node(&b, "Cast", "x", "numbers"), "to", 2);
    }
    Onnx__NodeProto *node = builder_node(&b, op, back ? "numbers scale" : resize ? "x  scales" : quantise ? "x scale" : "x",
                                         strcmp(op, "Split") == 0 ? "y z" : "y");
    if (strcmp(op, "SpaceToDepth") == 0) {
        (void)builder_int(&b, node, "blocksize", 1);
    }
    if (text != NULL) {
        (void)builder_string(&b, node, name, text);
    } else {
        (void)builder_int(&b, node, name, number);
    }
    builder_output(&b, "y");
    const enum leat_status status = builder_import(&b, &graph);
    EXPECT(status != LEAT_OK);
    (void)snprintf(wanted, sizeof(wanted), "node 'y' (operator %s)%s", op, error);
    expect_text(op, opset, wanted);
    builder_fini(&b);
}

static void
test_refusals(void)
{
    expect_refused("Resize", 18, "antialias", NULL, 1, ": antialias is not supported");
    expect_refused("Resize", 18, "keep_aspect_ratio_policy", "not_larger", 0,
                   ": keep_aspect_ratio_policy 'not_larger' is not supported");
    expect_refused("Resize", 19, "coordinate_transformation_mode", "half_pixel_symmetric", 0,
                   ": coordinate_transformation_mode 'half_pixel_symmetric' is not supported");
    expect_refused("Resize", 17, "antialias", NULL, 0, ": attribute 'antialias' is not supported at opsets 11 to 17");
    expect_refused("QuantizeLinear", 21, "block_size", NULL, 2, ": block_size 2 is not supported");
    expect_refused("QuantizeLinear", 21, "output_dtype", NULL, 3, ": output_dtype 3 is not supported");
    expect_refused("Split", 18, "num_outputs", NULL, 3, ": num_outputs is 3, and it has 2 outputs");
    expect_refused("ReduceMean", 18, "axes", NULL, 1, ": attribute 'axes' is not supported at opsets 18 to 28");
    expect_refused("QuantizeLinear", 22, "precision", NULL, 1,
                   ": attribute 'precision' is not supported at opsets 21 to 22");
    expect_refused("QuantizeLinear", 23, "precision", NULL, 10, ": precision 10 is not supported");
    expect_refused("SpaceToDepth", 28, "mode", "CRD", 0, ": mode 'CRD' is not supported");
    expect_refused("DequantizeLinear", 23, "output_dtype", NULL, 10, ": output_dtype 10 is not supported");
    expect_refused("Upsample", 10, "mode", "nearest", 0, " is not supported at opset 10: up to 9");
}

int
main(void)
{
    leat_test_init();
    for (size_t f = 0; f < newer_form_count; f++) {
        test_form(&newer_forms[f]);
    }
    test_refusals();
    test_networks();
    return 0;
}
