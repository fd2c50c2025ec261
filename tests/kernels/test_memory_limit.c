/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The limit of a graph's memory holds for all that the cpu backend makes of it: weights in other layouts, kernels,
 *          constants of a batch, a run's scratch, and what counts elements while a model is calibrated. A plan that is gone
 *          gives back what it took. What is in graphs inside nodes counts like everything else, and so do names, nodes and
 *          values of a file that has very many of them, and the message that they come in.
 * Method   The least limit with which something works, by bisection: it is what was made, or more, and one byte less is
 *          LEAT_ERR_LIMIT.
 */
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/calibrate.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { BRANCHES = 8, BRANCH_ELEMENTS = 1 << 16, BRANCH_BYTES = 4 * BRANCH_ELEMENTS };
enum { LAYERS = 6, CHANNELS = 40, SIDE = 128, HISTOGRAM_BYTES = 128 << 10 };

/* Convolutions one after the other, whose weights no kernel wants as they are. */
static struct leat_graph *
make_graph(void)
{
    static const char *const names[LAYERS + 1] = {"x", "a", "b", "c", "d", "e", "y"};
    static const char *const weights[LAYERS] = {"w0", "w1", "w2", "w3", "w4", "w5"};
    static float data[CHANNELS * CHANNELS * 9];
    struct builder b;
    char inputs[16];

    for (size_t i = 0; i < LEAT_COUNT_OF(data); i++) {
        data[i] = (float)(i % 7) / 64;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, CHANNELS, SIDE, SIDE));
    for (int l = 0; l < LAYERS; l++) {
        (void)builder_constant(&b, weights[l], ONNX_F32, data, DIMS(CHANNELS, CHANNELS, 3, 3));
        (void)snprintf(inputs, sizeof(inputs), "%s %s", names[l], weights[l]);
        Onnx__NodeProto *node = builder_node(&b, "Conv", inputs, names[l + 1]);
        (void)builder_ints(&b, node, "pads", DIMS(1, 1, 1, 1));
    }
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    return graph;
}

/* What a trial with this limit gives; *ret_bytes: what is certain to have been taken. */
typedef enum leat_status (*trial)(struct leat_graph *graph, uint64_t *ret_bytes);

static enum leat_status
make_model(const struct leat_graph *graph, struct leat_model **ret_model)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.graph = graph, .infos = infos, .one_by_one = true};

    const enum leat_status status = leat_graph_signature_of_one(graph, infos, &source.input_count, &source.output_count);
    return status == LEAT_OK ? leat_backend_cpu.model_load(&source, ret_model) : status;
}

static enum leat_status
make_plan_for(struct leat_graph *graph, uint32_t teams, uint64_t *ret_bytes)
{
    static const uint32_t sizes[3] = {2, 3, 4};
    const struct leat_plan_options options = {
        .items = 1, .team_sizes = sizes, .team_size_count = teams};
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL;

    enum leat_status status = make_model(graph, &model);
    if (status == LEAT_OK) {
        status = leat_backend_cpu.plan_build(model, &options, &plan);
    }
    if (status == LEAT_OK) {
        *ret_bytes =
            leat_backend_cpu.model_bytes(model) + leat_backend_cpu.plan_scratch_bytes(plan);
    }
    leat_backend_cpu.plan_destroy(plan);
    leat_backend_cpu.model_destroy(model);
    return status;
}

static enum leat_status
make_plan(struct leat_graph *graph, uint64_t *ret_bytes)
{
    return make_plan_for(graph, 0, ret_bytes);
}

/* A program each: for one thread and for three teams. */
static enum leat_status
make_plans(struct leat_graph *graph, uint64_t *ret_bytes)
{
    return make_plan_for(graph, 3, ret_bytes);
}

static enum leat_status
make_calibration(struct leat_graph *graph, uint64_t *ret_bytes)
{
    struct leat_calibration *calibration = NULL;
    uint64_t model_bytes = 0;

    const enum leat_status status = leat_calibration_create(graph, 1, &calibration);
    leat_calibration_destroy(calibration);
    if (status == LEAT_OK) {
        leat_graph_limit_memory(graph, 0);
        EXPECT(make_plan(graph, &model_bytes) == LEAT_OK);
        *ret_bytes = model_bytes + (LAYERS + 1) * HISTOGRAM_BYTES;
    }
    return status;
}

/* The least limit that is enough. */
static uint64_t
least(struct leat_graph *graph, trial made, const char *name)
{
    uint64_t refused = 1, enough = UINT64_C(1) << 30, bytes = 0, payload = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        payload += graph->values[v].data_bytes;
    }
    leat_graph_limit_memory(graph, enough);
    EXPECT(made(graph, &bytes) == LEAT_OK);
    while (enough - refused > 1) {
        const uint64_t limit = refused + (enough - refused) / 2;
        leat_graph_limit_memory(graph, limit);
        const enum leat_status status = made(graph, &bytes);
        EXPECT(status == LEAT_OK || status == LEAT_ERR_LIMIT);
        *(status == LEAT_OK ? &enough : &refused) = limit;
    }
    (void)printf("%s: %llu bytes of weights, at least %llu of all, limit %llu\n", name,
                 (unsigned long long)payload, (unsigned long long)bytes,
                 (unsigned long long)enough);
    /* What the backend needs for itself, a few structures, is not of a size that a file can choose. */
    EXPECT(bytes > payload && enough + 4096 >= bytes && enough <= 64 * bytes);
    return enough;
}

/* A second plan fits only where the first one is gone. */
static void
test_given_back(struct leat_graph *graph, uint64_t limit)
{
    const struct leat_plan_options options = {.items = 1};
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL, *other = NULL;

    leat_graph_limit_memory(graph, limit);
    EXPECT(make_model(graph, &model) == LEAT_OK);
    for (int i = 0; i < 3; i++) {
        EXPECT(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
        EXPECT(leat_backend_cpu.plan_build(model, &options, &other) == LEAT_ERR_LIMIT &&
               other == NULL);
        leat_backend_cpu.plan_destroy(plan);
    }
    leat_backend_cpu.model_destroy(model);
}

/* ---- Graphs inside nodes ----------------------------------------------------------------------------- */

enum origin {
    INSIDE,  /* each branch has a constant of its own */
    OUTSIDE, /* all read the same one, and a small one is made after that */
    MADE,    /* each computes one */
    OF_BATCH /* each computes one once the batch is known */
};

/* y is the sum of what half as many Ifs as there are branches yield, by payload; each branch multiplies x by a constant. */
static enum leat_status
import_branches(enum origin origin, uint64_t memory_bytes_max, struct leat_graph **ret_graph)
{
    static const char *const names[2] = {"then_branch", "else_branch"};
    static const int64_t size[1] = {BRANCH_ELEMENTS}, one[1] = {1};
    static float data[BRANCH_ELEMENTS];
    struct leat_onnx_source source = {.folder_fd = -1, .memory_bytes_max = memory_bytes_max};
    struct builder b, branches[BRANCHES];
    Onnx__NodeProto *node = NULL;
    char inputs[16], output[16];

    builder_init(&b, 13);
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    (void)builder_input(&b, "x", ONNX_F32, DIMS(origin == OF_BATCH ? -1 : 1, BRANCH_ELEMENTS));
    if (origin == OUTSIDE) {
        (void)builder_constant(&b, "w", ONNX_F32, data, DIMS(BRANCH_ELEMENTS));
    }
    for (int k = 0; k < BRANCHES; k++) {
        builder_init(&branches[k], 13);
        if (origin == INSIDE) {
            (void)builder_constant(&branches[k], "w", ONNX_F32, data, DIMS(BRANCH_ELEMENTS));
        } else if (origin == MADE) {
            (void)builder_constant(&branches[k], "size", ONNX_I64, size, DIMS(1));
            (void)builder_node(&branches[k], "ConstantOfShape", "size", "w");
        } else if (origin == OF_BATCH) {
            (void)builder_node(&branches[k], "Shape", "x", "size");
            (void)builder_node(&branches[k], "ConstantOfShape", "size", "w");
        }
        (void)builder_node(&branches[k], "Mul", "x w", "product");
        builder_output(&branches[k], "product");
        (void)snprintf(output, sizeof(output), "y%d", k / 2);
        node = k % 2 == 0 ? builder_node(&b, "If", "c", output) : node;
        builder_graph(&b, node, names[k % 2], &branches[k]);
    }
    for (int k = 0; k < BRANCHES / 2; k++) {
        (void)snprintf(inputs, sizeof(inputs), k == 0 ? "x y0" : "s%d y%d", k - 1, k);
        (void)snprintf(output, sizeof(output), "s%d", k);
        (void)builder_node(&b, "Add", inputs, output);
    }
    if (origin == OUTSIDE) {
        (void)builder_constant(&b, "one", ONNX_I64, one, DIMS(1));
        (void)builder_node(&b, "ConstantOfShape", "one", "late");
        (void)snprintf(inputs, sizeof(inputs), "%s late", output);
        (void)builder_node(&b, "Add", inputs, "y");
    }
    builder_output(&b, origin == OUTSIDE ? "y" : output);
    source.bytes = builder_pack(&b, &source.byte_count);
    const enum leat_status status = leat_onnx_import_from(&source, ret_graph);
    for (int k = 0; k < BRANCHES; k++) {
        builder_fini(&branches[k]);
    }
    builder_fini(&b);
    return status;
}

/* All together have one limit, and what they share counts once. */
static void
test_branches(enum origin origin, uint64_t constants)
{
    static const struct leat_backend *const backends[] = {&leat_backend_cpu, &leat_backend_reference};
    struct leat_graph *graph = NULL;
    struct loaded loaded;

    EXPECT(import_branches(origin, constants - 1, &graph) == LEAT_ERR_LIMIT && graph == NULL);
    EXPECT(import_branches(origin, constants, &graph) == LEAT_OK);
    leat_graph_limit_memory(graph, 0);
    for (size_t i = 0; i < LEAT_COUNT_OF(backends); i++) {
        load(backends[i], graph, &loaded);
        const size_t bytes = backends[i]->model_bytes(loaded.model);
        EXPECT(bytes > constants && bytes < constants + BRANCH_BYTES);
        unload(&loaded);
    }
    EXPECT(least(graph, make_plan, "branches") > constants);
    leat_graph_destroy(graph);
}

/* Copies for a batch take more, which no model's bytes tell. */
static void
test_branches_of_batch(void)
{
    struct leat_graph *graph = NULL;
    uint64_t bytes = 0;

    EXPECT(import_branches(OF_BATCH, 0, &graph) == LEAT_OK);
    EXPECT(make_plan(graph, &bytes) == LEAT_OK);
    EXPECT(least(graph, make_plan, "branches of a batch") >= bytes + BRANCHES * BRANCH_BYTES);
    leat_graph_destroy(graph);
}

enum { HOLLOW = 32, NAME_BYTES = 1 << 20, NAMES = 40 };

static void
add_conditions(struct builder *b, int count, struct builder *branch)
{
    char output[16];

    for (int k = 0; k < count; k++) {
        (void)snprintf(output, sizeof(output), "i%d", k);
        Onnx__NodeProto *node = builder_node(b, "If", "c", output);
        builder_graph(b, node, "then_branch", branch);
        builder_graph(b, node, "else_branch", branch);
    }
}

/* y = x beside `hollow` conditions whose branches have as many again, about nothing, and `names` nodes of long names. */
static enum leat_status
import_structure(int hollow, int names, uint64_t memory_bytes_max, struct leat_graph **ret_graph)
{
    struct leat_onnx_source source = {.folder_fd = -1, .memory_bytes_max = memory_bytes_max};
    struct builder b, branch, leaf;
    char output[16];

    builder_init(&b, 13);
    builder_init(&branch, 13);
    builder_init(&leaf, 13);
    (void)builder_node(&leaf, "Identity", "x", "inside");
    builder_output(&leaf, "inside");
    add_conditions(&branch, hollow, &leaf);
    (void)builder_node(&branch, "Identity", "x", "inside");
    builder_output(&branch, "inside");
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 1));
    (void)builder_node(&b, "Identity", "x", "y");
    add_conditions(&b, hollow, &branch);
    for (int k = 0; k < names; k++) {
        (void)snprintf(output, sizeof(output), "n%d", k);
        Onnx__NodeProto *node = builder_node(&b, "Identity", "x", output);
        node->name = memset(builder_alloc(&b, NAME_BYTES), 'n', NAME_BYTES - 1);
    }
    builder_output(&b, "y");
    source.bytes = builder_pack(&b, &source.byte_count);
    const enum leat_status status = leat_onnx_import_from(&source, ret_graph);
    builder_fini(&leaf);
    builder_fini(&branch);
    builder_fini(&b);
    return status;
}

static void
test_structure(void)
{
    struct leat_graph *graph = NULL;

    /* Each of 4160 branches takes some KiB. */
    EXPECT(import_structure(HOLLOW, 0, 0, &graph) == LEAT_OK);
    leat_graph_destroy(graph);
    graph = NULL;
    EXPECT(import_structure(HOLLOW, 0, 8 << 20, &graph) == LEAT_ERR_LIMIT && graph == NULL);
    EXPECT(strstr(leat_error_text(), "more than the model's limit, 8388608") != NULL);
    EXPECT(import_structure(HOLLOW, 0, UINT64_C(256) << 20, &graph) == LEAT_OK);
    leat_graph_destroy(graph);
    graph = NULL;
    /* 40 MiB of names: in a message that is too large, in a graph that is. */
    EXPECT(import_structure(0, NAMES, NAME_BYTES * (NAMES - 2), &graph) == LEAT_ERR_LIMIT && graph == NULL);
    EXPECT(strstr(leat_error_text(), "a ModelProto of more than 39845888 bytes") != NULL);
    EXPECT(import_structure(0, NAMES, NAME_BYTES * (NAMES + 4), &graph) == LEAT_OK);
    /* A copy is not charged for what it is a copy of. */
    for (int i = 0; i < 4; i++) {
        struct leat_graph *copy = NULL;
        EXPECT(leat_graph_copy(graph, &copy) == LEAT_OK);
        leat_graph_destroy(graph);
        graph = copy;
    }
    leat_graph_limit_memory(graph, NAME_BYTES * (NAMES / 2));
    struct leat_graph *copy = NULL;
    EXPECT(leat_graph_copy(graph, &copy) == LEAT_ERR_LIMIT && copy == NULL);
    leat_graph_destroy(graph);
}

int
main(void)
{
    struct leat_graph *graph = make_graph();

    leat_test_init();
    const uint64_t one = least(graph, make_plan, "one plan");
    const uint64_t four = least(graph, make_plans, "a plan for four teams");
    EXPECT(four > one);
    EXPECT(least(graph, make_calibration, "calibration") > one);
    test_given_back(graph, one);
    leat_graph_destroy(graph);
    test_branches(INSIDE, BRANCHES * BRANCH_BYTES);
    test_branches(OUTSIDE, BRANCH_BYTES + sizeof(int64_t) + sizeof(float));
    test_branches(MADE, BRANCHES * (BRANCH_BYTES + sizeof(int64_t)));
    test_branches_of_batch();
    test_structure();
    return 0;
}
