/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What passes make of matrix products, and of what stands before and behind them in transformers, gives on the
 *          cpu backend what the reference backend makes of the model as it was.
 * Method   Random shapes of x w + bias + side, with constant or computed w, an activation of one node or of many, and
 *          the layer norm of it; passes on and off, alone and with a team. Small weights, such as no cache holds, and those
 *          of one column: the latter two are multiplied by other kernels. One of many weights on one thread pauses inside, where
 *          another such runs, and neither changes what the other yields. Plans for batches of any size share its weights.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/inspect.h"
#include "kernels/cpu/isa.h"
#include "kernels/op.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(80), LARGE_ROUNDS = LEAT_TEST_ROUNDS(24), TEAM = 2 };

static struct builder b;

static void
constant(const char *name, const int64_t *dims, size_t rank)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    float *data = floats(count);
    (void)builder_constant(&b, name, ONNX_F32, data, dims, rank);
    free(data);
}

static void
scalar(const char *name, float value)
{
    (void)builder_constant(&b, name, ONNX_F32, &value, NULL, 0);
}

static void
add_gelu(const char *x)
{
    char halved[24], inner[24];

    scalar("root", 0.70710678f);
    scalar("unit", 1.0f);
    scalar("half", 0.5f);
    (void)snprintf(inner, sizeof(inner), "%s root", x);
    (void)snprintf(halved, sizeof(halved), "half %s", x);
    (void)builder_node(&b, "Mul", inner, "u");
    (void)builder_node(&b, "Erf", "u", "erf");
    (void)builder_node(&b, "Add", "erf unit", "gate");
    (void)builder_node(&b, "Mul", halved, "halved");
    (void)builder_node(&b, "Mul", "halved gate", "y");
}

static void
add_layer_norm(const char *x, int64_t width)
{
    char difference[24];

    scalar("two", 2.0f);
    scalar("epsilon", 1e-3f);
    constant("scale", DIMS(width));
    constant("shift", DIMS(width));
    (void)snprintf(difference, sizeof(difference), "%s mean", x);
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", x, "mean"), "axes", DIMS(-1));
    (void)builder_node(&b, "Sub", difference, "d");
    (void)builder_node(&b, "Pow", "d two", "square");
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", "square", "variance"), "axes", DIMS(-1));
    (void)builder_node(&b, "Add", "variance epsilon", "moved");
    (void)builder_node(&b, "Sqrt", "moved", "deviation");
    (void)builder_node(&b, "Div", "d deviation", "normal");
    (void)builder_node(&b, "Mul", "normal scale", "scaled");
    (void)builder_node(&b, "Add", "scaled shift", "z");
}

static void
expect_same(const struct leat_graph *fused, const struct leat_graph *plain, struct leat_team *team, const void *const *inputs)
{
    const size_t count = leat_value_elements(&plain->values[plain->outputs[0]]);
    float *want = floats(count), *have = floats(count);
    struct loaded loaded;

    load(&leat_backend_reference, plain, &loaded);
    EXPECT(run(&loaded, inputs, (void *const[]){want}) == LEAT_OK);
    unload(&loaded);
    for (int form = 0; form < 3; form++) { /* without passes, with them, and with a team */
        load_for_team(&leat_backend_cpu, form == 0 ? plain : fused, form == 2 ? team : NULL, &loaded);
        EXPECT(run(&loaded, inputs, (void *const[]){have}) == LEAT_OK);
        unload(&loaded);
        for (size_t i = 0; i < count; i++) {
            EXPECT(fabsf(have[i] - want[i]) <= 2e-4f * (1 + fabsf(want[i])));
        }
    }
    free(want);
    free(have);
}

/*
 * Those whose weights are large; all with one column, too, and with AVX2 others of few weights, and of two computed sides, for
 * oneDNN's lock a mutex in each run. With AVX-512 HardSwish and LeakyRelu behind constant weights of several columns are parts of
 * oneDNN's only.
 */
static void
expect_own_kernel(const struct leat_graph *graph)
{
    struct leat_inspection *inspection = NULL;
    int64_t lanes = 0;

#if defined(__x86_64__)
    lanes = cpu_vector_lanes();
#endif
    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, TEAM, &inspection) == LEAT_OK);
    const struct leat_graph *shown = leat_inspection_graph(inspection);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        struct leat_inspection_step step;
        leat_inspection_step(inspection, s, &step);
        const enum leat_op_kind kind = shown->nodes[step.node].op->kind;
        const bool multiplies = !step.converts && (kind == LEAT_OP_MATMUL || kind == LEAT_OP_GEMM);
        const struct leat_value *y = leat_node_output(shown, &shown->nodes[step.node], 0);
        const bool column = multiplies && y->dims[y->rank - 1] == 1;
        const enum leat_activation activation = shown->nodes[step.node].fused_activation;
        const bool apart = lanes != 8 && !column && (activation == LEAT_ACTIVATION_HARD_SWISH || activation == LEAT_ACTIVATION_LEAKY_RELU);
        EXPECT(lanes == 0 || apart || !multiplies || strcmp(step.kernel, "leat") == 0);
    }
    leat_inspection_destroy(inspection);
}

static bool
has_avx2_alone(void)
{
#if defined(__x86_64__)
    return cpu_vector_lanes() == 8;
#else
    return false;
#endif
}

enum weights { SMALL, LARGE, COLUMN };

static void
test_product(struct leat_team *team, enum weights weights)
{
    static const char *const activations[] = {"",     "Relu",      "Sigmoid",   "Tanh", "Swish",
                                              "Gelu", "LeakyRelu", "HardSwish", "Clip"};
    const bool large = weights == LARGE, column = weights == COLUMN;
    const int64_t heads = between(1, 3), rows = between(1, weights != SMALL ? 100 : 40);
    const int64_t inner = large ? between(130, 2300) : between(1, column && between(0, 1) != 0 ? 700 : 40);
    const int64_t vectors = large ? 16 * ((128 << 10) / inner / 16 + between(1, 4)) : 0;
    const int64_t columns = large ? vectors - (between(0, 1) != 0 ? between(1, 15) : 0) : column ? 1 : between(2, 70);
    const bool computed = weights == SMALL && between(0, 2) == 0, matrices = !computed && between(0, 2) == 0;
    const bool transposed = weights != SMALL && matrices;
    const bool bias = between(0, 1) != 0, side = between(0, 1) != 0, norm = !column && between(0, 2) == 0;
    const char *activation = activations[between(0, 8)], *last = "p";
    char list[32];

    builder_init(&b, 14);
    const bool left_for_all = computed && between(0, 3) == 0, right_for_all = computed && !left_for_all && between(0, 2) == 0;
    const int64_t x_dims[3] = {left_for_all ? 1 : heads, rows, inner}, y_dims[3] = {heads, rows, columns};
    const size_t first = matrices ? 1 : 0; /* dimension of x and y; then heads are left out */
    (void)builder_input(&b, "x", ONNX_F32, x_dims + first, 3 - first);
    if (computed) {
        (void)builder_input(&b, "w", ONNX_F32, DIMS(right_for_all ? 1 : heads, inner, columns));
    } else {
        constant("w", (const int64_t[]){transposed ? columns : inner, transposed ? inner : columns}, 2);
    }
    (void)builder_input(&b, "side", ONNX_F32, y_dims + first, 3 - first);
    if (transposed) {
        (void)builder_int(&b, builder_node(&b, "Gemm", "x w", "p"), "transB", 1);
    } else {
        (void)builder_node(&b, "MatMul", "x w", "p");
    }
    if (bias) {
        constant("bias", DIMS(columns));
        (void)builder_node(&b, "Add", "bias p", "biased");
        last = "biased";
    }
    if (side) {
        (void)snprintf(list, sizeof(list), "%s side", last);
        (void)builder_node(&b, "Add", list, "sum");
        last = "sum";
    }
    if (strcmp(activation, "Gelu") == 0) {
        add_gelu(last);
        last = "y";
    } else if (strcmp(activation, "Swish") == 0) {
        (void)snprintf(list, sizeof(list), "%s gate", last);
        (void)builder_node(&b, "Sigmoid", last, "gate");
        (void)builder_node(&b, "Mul", list, "y");
        last = "y";
    } else if (strcmp(activation, "Clip") == 0) {
        scalar("low", -0.5f);
        scalar("high", 0.75f);
        (void)snprintf(list, sizeof(list), "%s low high", last);
        (void)builder_node(&b, "Clip", list, "y");
        last = "y";
    } else if (activation[0] != '\0') {
        (void)builder_node(&b, activation, last, "y");
        last = "y";
    }
    if (norm) {
        add_layer_norm(last, columns);
        last = "z";
    }
    builder_output(&b, last);
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK && leat_graph_check(fused) == LEAT_OK);
    /* A vector goes into a product with a constant matrix only; what comes then goes behind it, not before. */
    const bool apart = bias && computed;
    const uint32_t behind = apart ? 1u + side + (activation[0] != 0) : 0;
    EXPECT(fused->node_count == 1 + behind + norm);
    float *x = floats((size_t)(heads * rows * inner)), *w = floats((size_t)(heads * inner * columns));
    float *addend = floats((size_t)(heads * rows * columns));
    const void *const with_w[3] = {x, w, addend}, *const without[2] = {x, addend};
    expect_same(fused, plain, team, computed ? with_w : without);
    if (column || (columns > 256 && !side) || has_avx2_alone()) {
        expect_own_kernel(fused);
    }
    free(x);
    free(w);
    free(addend);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
}

/* A size about where blocks of so many begin and end, or a small one. */
static int64_t
size_about(int64_t block)
{
    const int64_t size = between(0, 2) * block + between(-1, 1);
    return size < 1 || between(0, 3) == 0 ? between(1, 20) : size;
}

/* As often as it is run, and by as many members as there may be: the same bits. */
static void
expect_same_bits(const struct leat_graph *graph, const void *const *inputs)
{
    const size_t count = leat_value_elements(&graph->values[graph->outputs[0]]);
    float *first = floats(count), *have = floats(count);

    for (uint32_t size = 1; size <= TEAM + 1; size++) {
        struct leat_team *team;
        struct loaded loaded;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = size, .spin_ns = 20000}, &team) == LEAT_OK);
        load_for_team(&leat_backend_cpu, graph, team, &loaded);
        for (int again = 0; again < 2; again++) {
            EXPECT(run(&loaded, inputs, (void *const[]){size == 1 && again == 0 ? first : have}) == LEAT_OK);
            EXPECT((size == 1 && again == 0) || memcmp(first, have, count * sizeof(*first)) == 0);
        }
        unload(&loaded);
        leat_team_destroy(team);
    }
    free(first);
    free(have);
}

/*
 * Of two computed sides, of any sizes, of as many matrices as broadcasting makes, along several axes, too; or of two matrices, either
 * of them transposed, and a bias. `dots`: rows of one are multiplied by rows of the other.
 */
static void
test_computed(struct leat_team *team, bool dots)
{
    static const char *const activations[] = {"", "", "Relu", "Sigmoid", "LeakyRelu", "HardSwish"};
    const bool gemm = dots || between(0, 2) == 0, across[2] = {gemm && !dots && between(0, 1) != 0, gemm && (dots || between(0, 1) != 0)};
    const bool bias = gemm && between(0, 1) != 0, side = between(0, 1) != 0, few = between(0, 2) == 0;
    const int64_t rows = dots ? between(1, 4) : few ? between(1, 13) : size_about(96), inner = size_about(256), columns = size_about(256);
    const size_t rank = gemm ? 2 : (size_t)between(2, 5);
    const char *activation = activations[between(0, 5)], *last = "p";
    int64_t dims[3][5]; /* of x, w and y */

    for (size_t d = 0; d + 2 < rank; d++) {
        const bool one[2] = {between(0, 2) == 0, between(0, 2) == 0};
        dims[2][d] = one[0] && one[1] ? 1 : between(1, 3);
        dims[0][d] = one[0] ? 1 : dims[2][d];
        dims[1][d] = one[1] ? 1 : dims[2][d];
    }
    dims[0][rank - 2] = across[0] ? inner : rows;
    dims[0][rank - 1] = across[0] ? rows : inner;
    dims[1][rank - 2] = across[1] ? columns : inner;
    dims[1][rank - 1] = across[1] ? inner : columns;
    dims[2][rank - 2] = rows;
    dims[2][rank - 1] = columns;
    size_t counts[3] = {1, 1, 1};
    for (size_t t = 0; t < 3; t++) {
        for (size_t d = 0; d < rank; d++) {
            counts[t] *= (size_t)dims[t][d];
        }
    }
    const size_t missing = rank > 2 && dims[1][0] == 1 ? 1 : 0; /* of w */
    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, dims[0], rank);
    (void)builder_input(&b, "w", ONNX_F32, dims[1] + missing, rank - missing);
    (void)builder_input(&b, "side", ONNX_F32, dims[2], rank);
    if (bias) {
        constant("bias", DIMS(columns));
    }
    Onnx__NodeProto *node = builder_node(&b, gemm ? "Gemm" : "MatMul", bias ? "x w bias" : "x w", "p");
    if (gemm) {
        (void)builder_int(&b, node, "transA", across[0]);
        (void)builder_int(&b, node, "transB", across[1]);
    }
    if (side) {
        (void)builder_node(&b, "Add", "p side", "sum");
        last = "sum";
    }
    if (activation[0] != '\0') {
        (void)builder_node(&b, activation, last, "y");
        last = "y";
    }
    builder_output(&b, last);
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK && leat_graph_check(fused) == LEAT_OK);
    float *x = floats(counts[0]), *w = floats(counts[1]), *addend = floats(counts[2]);
    expect_same(fused, plain, team, (const void *const[3]){x, w, addend});
    if (has_avx2_alone()) { /* oneDNN's gemm adds up in another order for each team */
        expect_same_bits(fused, (const void *const[3]){x, w, addend});
        expect_own_kernel(fused);
    }
    free(x);
    free(w);
    free(addend);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
}

/* x[items][length][heads * depth] as [items][heads][length][depth], or with the last two axes across. */
static void
split_heads(const char *x, int64_t length, int64_t heads, int64_t depth, bool across, const char *to)
{
    char dims[16], apart[16], list[32];

    (void)snprintf(dims, sizeof(dims), "%s_dims", to);
    (void)snprintf(apart, sizeof(apart), "%s_apart", to);
    (void)snprintf(list, sizeof(list), "%s %s", x, dims);
    (void)builder_constant(&b, dims, ONNX_I64, (const int64_t[]){-1, length, heads, depth}, DIMS(4));
    (void)builder_node(&b, "Reshape", list, apart);
    (void)builder_ints(&b, builder_node(&b, "Transpose", apart, to), "perm",
                       across ? (const int64_t[]){0, 2, 3, 1} : (const int64_t[]){0, 2, 1, 3}, 4);
}

static void
test_attention(struct leat_team *team)
{
    const int64_t items = between(1, 3), heads = between(1, 4), rows = between(1, 20), keys = between(1, 150);
    const int64_t depth = between(1, 80), width = between(1, 80), mask_form = between(0, 4);
    const int64_t mask_dims[5][4] = {{items, 1, 1, keys}, {1, heads, rows, keys}, {items, heads, 1, keys}, {items, 1, rows, keys}};
    const bool gone = between(0, 1) != 0; /* some keys have no weight */

    builder_init(&b, 13);
    (void)builder_input(&b, "q", ONNX_F32, DIMS(items, rows, heads * depth));
    (void)builder_input(&b, "k", ONNX_F32, DIMS(items, keys, heads * depth));
    (void)builder_input(&b, "v", ONNX_F32, DIMS(items, keys, heads * width));
    split_heads("q", rows, heads, depth, false, "qh");
    split_heads("k", keys, heads, depth, true, "kh");
    split_heads("v", keys, heads, width, false, "vh");
    scalar("factor", 1.5f);
    (void)builder_node(&b, "MatMul", "qh kh", "p");
    (void)builder_node(&b, "Div", "p factor", "scores");
    const char *last = "scores";
    if (mask_form < 4) {
        (void)builder_input(&b, "mask", ONNX_F32, mask_dims[mask_form], 4);
        (void)builder_node(&b, "Add", "scores mask", "masked");
        last = "masked";
    }
    (void)builder_int(&b, builder_node(&b, "Softmax", last, "shares"), "axis", -1);
    (void)builder_node(&b, "MatMul", "shares vh", "yh");
    (void)builder_ints(&b, builder_node(&b, "Transpose", "yh", "merged"), "perm", DIMS(0, 2, 1, 3));
    (void)builder_constant(&b, "whole", ONNX_I64, (const int64_t[]){-1, rows, heads * width}, DIMS(3));
    (void)builder_node(&b, "Reshape", "merged whole", "y");
    builder_output(&b, "y");
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK && leat_graph_check(fused) == LEAT_OK);
    EXPECT(fused->node_count == 1 && fused->nodes[0].op->kind == LEAT_OP_ATTENTION);
    float *q = floats((size_t)(items * rows * heads * depth)), *k = floats((size_t)(items * keys * heads * depth));
    float *v = floats((size_t)(items * keys * heads * width)), *mask = floats((size_t)(items * heads * rows * keys));
    for (size_t i = 0; gone && i < (size_t)(items * heads * rows * keys); i++) {
        mask[i] = between(0, 3) == 0 ? -3.4028235e38f : mask[i];
    }
    expect_same(fused, plain, team, (const void *const[4]){q, k, v, mask});
    free(q);
    free(k);
    free(v);
    free(mask);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
}

/* A run of the same on the same thread, in all places where the first pauses. */
struct passing {
    struct loaded other;
    const void *const *inputs;
    float *result;
    uint32_t pauses;
};

static void
pass(void *context)
{
    struct passing *passing = context;

    passing->pauses++;
    leat_team_set_yield(passing->other.team, NULL, NULL);
    EXPECT(run(&passing->other, passing->inputs, (void *const[]){passing->result}) == LEAT_OK);
    leat_team_set_yield(passing->other.team, pass, passing);
}

/* The weights are read in eight parts, so that it pauses seven times inside and before each step. */
static void
test_pauses_inside(void)
{
    enum { HEIGHT = 8, INNER = 2048, WIDTH = 4096, PARTS = 8, RESULTS = HEIGHT * WIDTH };
    float *x = floats(HEIGHT * INNER), *want = floats(RESULTS), *have = floats(RESULTS);
    const void *const inputs[] = {x};
    struct passing passing = {.inputs = inputs, .result = floats(RESULTS)};
    struct leat_inspection *inspection;
    struct leat_team *lone;
    struct loaded loaded;
    int64_t lanes = 0;

#if defined(__x86_64__)
    lanes = cpu_vector_lanes();
#endif
    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, (const int64_t[]){HEIGHT, INNER}, 2);
    constant("w", (const int64_t[]){INNER, WIDTH}, 2);
    (void)builder_node(&b, "MatMul", "x w", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, 1, &inspection) == LEAT_OK);
    const uint32_t steps = leat_inspection_step_count(inspection);
    leat_inspection_destroy(inspection);
    EXPECT(leat_team_create(&(struct leat_team_options){.size = 1}, &lone) == LEAT_OK);
    load_for_team(&leat_backend_cpu, graph, lone, &loaded);
    load_for_team(&leat_backend_cpu, graph, lone, &passing.other);
    EXPECT(run(&passing.other, inputs, (void *const[]){want}) == LEAT_OK); /* nothing of it is in the scratch of the first */
    leat_team_set_yield(lone, pass, &passing);
    EXPECT(run(&loaded, inputs, (void *const[]){have}) == LEAT_OK);
    leat_team_set_yield(lone, NULL, NULL);
    EXPECT(passing.pauses == steps + (lanes > 0 ? PARTS - 1 : 0));
    EXPECT(memcmp(have, want, RESULTS * sizeof(*want)) == 0 && memcmp(passing.result, want, RESULTS * sizeof(*want)) == 0);
    unload(&passing.other);
    unload(&loaded);
    leat_team_destroy(lone);
    leat_graph_destroy(graph);
    free(passing.result);
    free(have);
    free(want);
    free(x);
}

/* What is packed when the model is loaded is what plans for few rows and for many read. */
static void
test_one_form(void)
{
    enum { LENGTH = 40, INNER = 512, WIDTH = 512 };
    static const uint32_t items[] = {1, 6, 7, 32};
    struct leat_tensor_info infos[2];
    struct leat_model_source source = {.infos = infos};
    struct leat_model *model;
    int64_t lanes = 0;

#if defined(__x86_64__)
    lanes = cpu_vector_lanes();
#endif
    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, LENGTH, INNER));
    constant("w", DIMS(INNER, WIDTH));
    (void)builder_node(&b, "MatMul", "x w", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    builder_fini(&b);
    source.graph = graph;
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    const size_t bytes = leat_backend_cpu.model_bytes(model);
    for (size_t i = 0; i < LEAT_COUNT_OF(items); i++) {
        const struct leat_plan_options options = {.items = items[i]};
        struct leat_plan *plan;
        EXPECT(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
        EXPECT(lanes == 0 || leat_backend_cpu.model_bytes(model) == bytes);
        leat_backend_cpu.plan_destroy(plan);
    }
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
}

int
main(void)
{
    struct leat_team *team;

    leat_test_init();
    random_state = leat_test_seed;
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        test_product(team, SMALL);
        test_computed(team, round % 4 == 0);
        test_product(team, COLUMN);
    }
    for (int round = 0; round < LARGE_ROUNDS; round++) {
        test_product(team, LARGE);
    }
    for (int round = 0; round < ROUNDS; round++) {
        test_attention(team);
    }
    test_pauses_inside();
    test_one_form();
    leat_team_destroy(team);
    return 0;
}
