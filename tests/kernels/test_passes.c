/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Passes make graphs smaller and change no result beyond rounding.
 * Method   (1) one small model per rewriting, with the nodes that must be left, and per condition that
 *          must prevent it; (2) random convolutional models: every pass alone, all others without it, and all
 *          together, results against the untouched graph. Each pass has to have found work, or the models prove nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { ONNX_U8 = 2, ONNX_I8 = 3 };
enum { PASSES_MAX = 32, ITEMS = 3 };

static struct builder b;

static uint64_t
pass_bit(const char *name)
{
    for (size_t i = 0; i < leat_pass_count; i++) {
        if (strcmp(leat_passes[i].name, name) == 0) {
            return UINT64_C(1) << i;
        }
    }
    EXPECT(!"a pass of that name");
    return 0;
}

static float
random_float(uint64_t *random)
{
    return (float)((double)(leat_test_random(random) % 2001) / 1000.0 - 1.0);
}

static void
weights(const char *name, const int64_t *dims, size_t rank, uint64_t *random, bool positive)
{
    Onnx__TensorProto *tensor = builder_constant(&b, name, 1, NULL, dims, rank);
    float *data = (float *)(void *)tensor->raw_data.data;
    for (size_t i = 0; i < tensor->raw_data.len / sizeof(float); i++) {
        data[i] = positive ? fabsf(random_float(random)) + 0.1f : random_float(random);
    }
}

/* The same from 8-bit numbers, of which one stands for 1/64: channel c's zero point is c `shift`. */
static void
quantised_weights(const char *name, const int64_t *dims, size_t rank, int64_t shift, uint64_t *random)
{
    char numbers[24], scales[24], zeros[24], list[80];

    (void)snprintf(numbers, sizeof(numbers), "%s_q", name);
    (void)snprintf(scales, sizeof(scales), "%s_scale", name);
    (void)snprintf(zeros, sizeof(zeros), "%s_zero", name);
    (void)snprintf(list, sizeof(list), "%s %s %s", numbers, scales, zeros);
    Onnx__TensorProto *tensor = builder_constant(&b, numbers, ONNX_I8, NULL, dims, rank);
    for (size_t i = 0; i < tensor->raw_data.len; i++) {
        tensor->raw_data.data[i] = (uint8_t)leat_test_random(random);
    }
    tensor = builder_constant(&b, scales, 1, NULL, dims, 1);
    for (int64_t c = 0; c < dims[0]; c++) {
        ((float *)(void *)tensor->raw_data.data)[c] = 1.0f / 64;
    }
    tensor = builder_constant(&b, zeros, ONNX_I8, NULL, dims, 1);
    for (int64_t c = 0; c < dims[0]; c++) {
        tensor->raw_data.data[c] = (uint8_t)(c * shift);
    }
    (void)builder_int(&b, builder_node(&b, "DequantizeLinear", list, name), "axis", 0);
}

static struct leat_graph *
import(void)
{
    struct leat_graph *graph = NULL;
    const enum leat_status status = builder_import(&b, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    return graph;
}

/* All outputs of the graph for ITEMS items of seeded input, one after another. */
static float *
results(const struct leat_graph *graph, uint64_t seed, size_t *ret_count)
{
    struct leat_graph *concrete = NULL;
    const void *inputs[8];
    void *outputs[8];
    size_t scratch_bytes, count = 0;

    EXPECT(leat_graph_specialise(graph, ITEMS, &concrete) == LEAT_OK);
    EXPECT(leat_graph_check(concrete) == LEAT_OK);
    EXPECT(concrete->input_count <= 8 && concrete->output_count <= 8);
    for (uint32_t i = 0; i < concrete->input_count; i++) {
        const size_t elements = leat_value_elements(&concrete->values[concrete->inputs[i]]);
        float *data = malloc(elements * sizeof(float));
        EXPECT(data != NULL);
        for (size_t k = 0; k < elements; k++) {
            data[k] = random_float(&seed);
        }
        inputs[i] = data;
    }
    for (uint32_t o = 0; o < concrete->output_count; o++) {
        count += leat_value_elements(&concrete->values[concrete->outputs[o]]);
    }
    float *all = malloc(count * sizeof(float)), *next = all;
    EXPECT(all != NULL);
    for (uint32_t o = 0; o < concrete->output_count; o++) {
        outputs[o] = next;
        next += leat_value_elements(&concrete->values[concrete->outputs[o]]);
    }
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(scratch_bytes + 1, 64));
    EXPECT(scratch != NULL);
    EXPECT(leat_reference_run(concrete, inputs, outputs, scratch, NULL) == LEAT_OK);
    free(scratch);
    for (uint32_t i = 0; i < concrete->input_count; i++) {
        free((void *)(uintptr_t)inputs[i]);
    }
    leat_graph_destroy(concrete);
    *ret_count = count;
    return all;
}

static void
expect_same_results(const struct leat_graph *before, const struct leat_graph *after, uint64_t seed)
{
    size_t count, after_count;
    float *want = results(before, seed, &count), *have = results(after, seed, &after_count);

    EXPECT(count == after_count && count > 0);
    for (size_t i = 0; i < count; i++) {
        EXPECT(fabsf(want[i] - have[i]) <= 1e-4f + 1e-4f * fabsf(want[i]));
    }
    free(want);
    free(have);
}

/* Applies passes to the built model; checks the result and returns it. */
static struct leat_graph *
optimised(uint64_t mask)
{
    struct leat_graph *before = import(), *after = import();
    const enum leat_status status = leat_graph_optimise(after, mask);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    EXPECT(leat_graph_check(after) == LEAT_OK);
    EXPECT(after->input_count == before->input_count &&
           after->output_count == before->output_count);
    for (uint32_t o = 0; o < after->output_count; o++) {
        EXPECT(strcmp(after->values[after->outputs[o]].name,
                      before->values[before->outputs[o]].name) == 0);
    }
    expect_same_results(before, after, leat_test_seed);
    leat_graph_destroy(before);
    builder_fini(&b);
    return after;
}

static void
expect_nodes(uint64_t mask, uint32_t count)
{
    struct leat_graph *graph = optimised(mask);
    EXPECT(graph->node_count == count);
    leat_graph_destroy(graph);
}

static uint64_t random_state;

static void
start_conv(void)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, 5, 5));
    weights("w", DIMS(4, 3, 3, 3), &random_state, false);
    (void)builder_node(&b, "Conv", "x w", "c");
}

static void
add_norm(const char *names)
{
    weights("scale", DIMS(4), &random_state, false);
    weights("beta", DIMS(4), &random_state, false);
    weights("mean", DIMS(4), &random_state, false);
    weights("var", DIMS(4), &random_state, true);
    char inputs[64];
    const size_t split = strcspn(names, ">");
    (void)snprintf(inputs, sizeof(inputs), "%.*s scale beta mean var", (int)split, names);
    (void)builder_node(&b, "BatchNormalization", inputs, names + split + 1);
}

static void
test_batch_norm(void)
{
    start_conv();
    add_norm("c>y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-batch-norm"), 1);

    start_conv(); /* the convolution's own result is needed too */
    add_norm("c>y");
    builder_output(&b, "y");
    builder_output(&b, "c");
    expect_nodes(pass_bit("fold-batch-norm"), 2);

    start_conv(); /* read twice */
    add_norm("c>n");
    (void)builder_node(&b, "Add", "n c", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-batch-norm"), 3);
}

static void
test_bias(void)
{
    start_conv();
    weights("per_channel", DIMS(4, 1, 1), &random_state, false);
    (void)builder_node(&b, "Add", "per_channel c", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-bias"), 1);

    start_conv(); /* along the last axis instead */
    weights("per_column", DIMS(3), &random_state, false);
    (void)builder_node(&b, "Add", "c per_column", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-bias"), 2);

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 5));
    weights("w", DIMS(5, 7), &random_state, false);
    weights("bias", DIMS(7), &random_state, false);
    weights("more", DIMS(1, 7), &random_state, false);
    (void)builder_node(&b, "MatMul", "x w", "p");
    (void)builder_node(&b, "Add", "p bias", "q");
    (void)builder_node(&b, "Add", "more q", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(pass_bit("fold-bias"));
    EXPECT(graph->node_count == 1 && graph->nodes[0].op->kind == LEAT_OP_GEMM);
    leat_graph_destroy(graph);

    builder_init(&b, 13); /* not matrices: it stays a MatMul, of another form */
    (void)builder_input(&b, "x", 1, DIMS(-1, 2, 5));
    weights("w", DIMS(5, 7), &random_state, false);
    weights("bias", DIMS(7), &random_state, false);
    (void)builder_node(&b, "MatMul", "x w", "p");
    (void)builder_node(&b, "Add", "p bias", "y");
    builder_output(&b, "y");
    graph = optimised(pass_bit("fold-bias"));
    EXPECT(graph->node_count == 1 && graph->nodes[0].op->kind == LEAT_OP_MATMUL);
    leat_graph_destroy(graph);

    builder_init(&b, 13); /* a stack of matrices, computed: no vector along the last axis goes in */
    (void)builder_input(&b, "x", 1, DIMS(-1, 2, 5));
    (void)builder_input(&b, "w", 1, DIMS(-1, 5, 7));
    weights("bias", DIMS(7), &random_state, false);
    (void)builder_node(&b, "MatMul", "x w", "p");
    (void)builder_node(&b, "Add", "p bias", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-bias"), 2);
}

static void
test_fusion(void)
{
    start_conv();
    weights("v", DIMS(4, 3, 3, 3), &random_state, false);
    (void)builder_node(&b, "Conv", "x v", "d");
    (void)builder_node(&b, "Softplus", "d", "s"); /* computed after c: c has to move behind it */
    (void)builder_node(&b, "Add", "c s", "sum");
    (void)builder_node(&b, "Relu", "sum", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(pass_bit("fuse-add") | pass_bit("fuse-activation"));
    EXPECT(graph->node_count == 3);
    EXPECT(graph->nodes[2].fused_add != LEAT_VALUE_NONE);
    EXPECT(graph->nodes[2].fused_activation == LEAT_ACTIVATION_RELU);
    leat_graph_destroy(graph);

    start_conv(); /* both sides are convolutions: one takes the other */
    weights("v", DIMS(4, 3, 3, 3), &random_state, false);
    (void)builder_node(&b, "Conv", "x v", "d");
    (void)builder_node(&b, "Add", "c d", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-add"), 2);

    start_conv(); /* activation first: an addition afterwards must not go before it */
    (void)builder_node(&b, "Relu", "c", "r");
    weights("v", DIMS(4, 3, 3, 3), &random_state, false);
    (void)builder_node(&b, "Conv", "x v", "d");
    (void)builder_node(&b, "Softplus", "d", "s");
    (void)builder_node(&b, "Add", "r s", "y");
    builder_output(&b, "y");
    struct leat_graph *kept = optimised(pass_bit("fuse-activation") | pass_bit("fuse-add"));
    EXPECT(kept->node_count == 4); /* passes run in list order: add before activation */
    leat_graph_destroy(kept);

    start_conv(); /* c + c reads c twice */
    (void)builder_node(&b, "Add", "c c", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-add"), 2);

    start_conv(); /* broadcast: not the shape of the result */
    (void)builder_input(&b, "z", 1, DIMS(-1, 4, 1, 1));
    (void)builder_node(&b, "Add", "c z", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-add"), 2);

    start_conv(); /* of a node's second result */
    (void)builder_int(&b, builder_node(&b, "Split", "c", "first second"), "axis", 1);
    (void)builder_node(&b, "Relu", "second", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-activation"), 3);

    start_conv();
    const float low = -0.25f, high = 0.5f;
    (void)builder_constant(&b, "low", 1, &low, NULL, 0);
    (void)builder_constant(&b, "high", 1, &high, NULL, 0);
    (void)builder_node(&b, "Clip", "c low high", "y");
    builder_output(&b, "y");
    graph = optimised(pass_bit("fuse-activation"));
    EXPECT(graph->node_count == 1 && graph->nodes[0].fused_activation == LEAT_ACTIVATION_CLIP);
    EXPECT(graph->nodes[0].clip_min == low && graph->nodes[0].clip_max == high);
    leat_graph_destroy(graph);
}

/* x is an input of the model: what becomes of it is one node. */
static void
start_pattern(int64_t width)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, width));
}

static void
scalar(const char *name, float value)
{
    (void)builder_constant(&b, name, 1, &value, NULL, 0);
}

static void
gate_by_erf(void)
{
    start_pattern(5);
    scalar("sqrt2", 1.41421356f);
    scalar("one", 1.0f);
    scalar("half", 0.5f);
    (void)builder_node(&b, "Div", "x sqrt2", "u");
    (void)builder_node(&b, "Erf", "u", "erf");
    (void)builder_node(&b, "Add", "erf one", "gate");
}

static void
gate_by_tanh(bool by_pow)
{
    start_pattern(5);
    scalar("three", 3.0f);
    scalar("third", 0.044715f);
    scalar("slope", 0.7978845608f);
    scalar("one", 1.0f);
    scalar("half", 0.5f);
    if (by_pow) {
        (void)builder_node(&b, "Pow", "x three", "cube");
    } else {
        (void)builder_node(&b, "Mul", "x x", "square");
        (void)builder_node(&b, "Mul", "square x", "cube");
    }
    (void)builder_node(&b, "Mul", "third cube", "term");
    (void)builder_node(&b, "Add", "x term", "sum");
    (void)builder_node(&b, "Mul", "slope sum", "u");
    (void)builder_node(&b, "Tanh", "u", "tanh");
    (void)builder_node(&b, "Add", "one tanh", "gate");
}

static void
expect_one(uint64_t mask, enum leat_op_kind kind)
{
    struct leat_graph *graph = optimised(mask);
    EXPECT(graph->node_count == 1 && graph->nodes[0].op->kind == kind);
    leat_graph_destroy(graph);
}

static void
test_gelu(void)
{
    static const char *const orders[][2] = {
        {"x gate", "product half"}, {"half x", "gate product"}, {"gate half", "product x"}, {"gate x", "half product"}};

    for (size_t o = 0; o < LEAT_COUNT_OF(orders); o++) {
        for (int kind = 0; kind < 3; kind++) {
            kind == 0 ? gate_by_erf() : gate_by_tanh(kind == 1);
            (void)builder_node(&b, "Mul", orders[o][0], "product");
            (void)builder_node(&b, "Mul", orders[o][1], "z");
            builder_output(&b, "z");
            expect_one(pass_bit("fuse-gelu"), LEAT_OP_GELU);
        }
    }

    gate_by_erf(); /* another slope */
    scalar("quarter", 0.25f);
    (void)builder_node(&b, "Mul", "x gate", "product");
    (void)builder_node(&b, "Mul", "product quarter", "z");
    builder_output(&b, "z");
    expect_nodes(pass_bit("fuse-gelu"), 5);

    gate_by_erf(); /* the gate of another x */
    (void)builder_node(&b, "Mul", "u gate", "product");
    (void)builder_node(&b, "Mul", "product half", "z");
    builder_output(&b, "z");
    expect_nodes(pass_bit("fuse-gelu"), 5);

    gate_by_erf(); /* what is inside is needed too: it stays */
    (void)builder_node(&b, "Mul", "x gate", "product");
    (void)builder_node(&b, "Mul", "product half", "z");
    builder_output(&b, "z");
    builder_output(&b, "erf");
    expect_nodes(pass_bit("fuse-gelu"), 3);
}

static void
test_swish(void)
{
    start_pattern(5);
    (void)builder_node(&b, "Sigmoid", "x", "gate");
    (void)builder_node(&b, "Mul", "gate x", "y");
    builder_output(&b, "y");
    expect_one(pass_bit("fuse-swish"), LEAT_OP_SWISH);

    start_pattern(5);
    Onnx__NodeProto *hard = builder_node(&b, "HardSigmoid", "x", "gate");
    (void)builder_float(&b, hard, "alpha", 1.0f / 6.0f);
    (void)builder_node(&b, "Mul", "x gate", "y");
    builder_output(&b, "y");
    expect_one(pass_bit("fuse-swish"), LEAT_OP_HARD_SWISH);

    start_pattern(5); /* of another slope */
    (void)builder_node(&b, "HardSigmoid", "x", "gate");
    (void)builder_node(&b, "Mul", "x gate", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-swish"), 2);

    start_pattern(5); /* the gate of something else */
    (void)builder_node(&b, "Tanh", "x", "t");
    (void)builder_node(&b, "Sigmoid", "t", "gate");
    (void)builder_node(&b, "Mul", "x gate", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fuse-swish"), 3);

    start_conv(); /* both passes: it goes into the convolution */
    (void)builder_node(&b, "Sigmoid", "c", "gate");
    (void)builder_node(&b, "Mul", "gate c", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(pass_bit("fuse-swish") | pass_bit("fuse-activation"));
    EXPECT(graph->node_count == 1 && graph->nodes[0].fused_activation == LEAT_ACTIVATION_SWISH);
    leat_graph_destroy(graph);
}

/* Of x; `axis` is what means are taken over. */
static void
add_layer_norm(const char *x, int64_t axis, int64_t width, bool by_pow, bool twice)
{
    char difference[24];

    scalar("two", 2.0f);
    scalar("epsilon", 1e-5f);
    weights("ln_scale", DIMS(width), &random_state, false);
    weights("ln_shift", DIMS(width), &random_state, false);
    (void)snprintf(difference, sizeof(difference), "%s mean", x);
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", x, "mean"), "axes", DIMS(axis));
    (void)builder_node(&b, "Sub", difference, "d");
    if (twice) {
        (void)builder_node(&b, "Sub", difference, "e");
    }
    (void)builder_node(&b, by_pow ? "Pow" : "Mul", by_pow ? "d two" : "d d", "square");
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", "square", "variance"), "axes", DIMS(axis));
    (void)builder_node(&b, "Add", "variance epsilon", "shifted");
    (void)builder_node(&b, "Sqrt", "shifted", "deviation");
    (void)builder_node(&b, "Div", twice ? "e deviation" : "d deviation", "normal");
    (void)builder_node(&b, "Mul", "ln_scale normal", "scaled");
    (void)builder_node(&b, "Add", "scaled ln_shift", "normalised");
}

static void
test_layer_norm(void)
{
    for (int form = 0; form < 4; form++) {
        start_pattern(5);
        add_layer_norm("x", form == 0 ? 2 : -1, 5, form < 2, form % 2 != 0);
        builder_output(&b, "normalised");
        expect_one(pass_bit("fuse-layer-norm"), LEAT_OP_LAYER_NORMALIZATION);
    }

    start_pattern(3); /* over another axis, as long as the last one */
    add_layer_norm("x", 1, 3, true, false);
    builder_output(&b, "normalised");
    expect_nodes(pass_bit("fuse-layer-norm"), 9);

    start_pattern(5); /* the deviation is an output too */
    add_layer_norm("x", -1, 5, true, false);
    builder_output(&b, "normalised");
    builder_output(&b, "deviation");
    expect_nodes(pass_bit("fuse-layer-norm"), 7);
}

/* What the nodes of an attention differ in. */
struct attention {
    const char *scale;          /* of queries, of scores or of neither */
    const char *mask;           /* NULL: none; x: an input; else constant */
    int64_t mask_dims[4];
    int64_t queries, keys, axis, items;
    bool twice;                 /* keys are transposed twice */
    bool scores_too;            /* are an output */
};

static void
split(const char *from, const char *to, int64_t length, const int64_t perm[4])
{
    char target[16], name[16], inputs[40];

    (void)snprintf(target, sizeof(target), "%s_dims", to);
    (void)snprintf(name, sizeof(name), "%s_apart", to);
    (void)snprintf(inputs, sizeof(inputs), "%s %s", from, target);
    (void)builder_constant(&b, target, 7, (const int64_t[]){0, length, 2, 3}, DIMS(4));
    (void)builder_node(&b, "Reshape", inputs, name);
    (void)builder_ints(&b, builder_node(&b, "Transpose", name, to), "perm", perm, 4);
}

static void
add_attention(const struct attention *a)
{
    static const int64_t heads[4] = {0, 2, 1, 3}, across[4] = {0, 2, 3, 1}, last[4] = {0, 1, 3, 2}, whole[3] = {0, 0, 6};
    const char *q = "q", *scores = "scores", *masked = "masked";
    char list[32];

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(a->items, a->queries, 6));
    (void)builder_input(&b, "y", 1, DIMS(-1, a->keys, 6));
    split("x", "q", a->queries, heads);
    split("y", "k", a->keys, a->twice ? heads : across);
    split("y", "v", a->keys, heads);
    scalar("factor", 0.6f);
    if (a->twice) {
        (void)builder_ints(&b, builder_node(&b, "Transpose", "k", "kt"), "perm", last, 4);
    }
    if (strcmp(a->scale, "queries") == 0) {
        (void)builder_node(&b, "Mul", "factor q", "scaled_q");
        q = "scaled_q";
    }
    (void)snprintf(list, sizeof(list), "%s %s", q, a->twice ? "kt" : "k");
    (void)builder_node(&b, "MatMul", list, "scores");
    if (strcmp(a->scale, "scores") == 0) {
        (void)builder_node(&b, "Div", "scores factor", "scaled");
        scores = "scaled";
    }
    if (a->mask != NULL && strcmp(a->mask, "x") == 0) {
        (void)builder_input(&b, "mask", 1, a->mask_dims, 4);
    } else if (a->mask != NULL) {
        weights("mask", a->mask_dims, 4, &random_state, false);
    }
    if (a->mask != NULL) {
        (void)snprintf(list, sizeof(list), "mask %s", scores);
        (void)builder_node(&b, "Add", list, "masked");
    } else {
        masked = scores;
    }
    (void)builder_int(&b, builder_node(&b, "Softmax", masked, "shares"), "axis", a->axis);
    (void)builder_node(&b, "MatMul", "shares v", "context");
    (void)builder_ints(&b, builder_node(&b, "Transpose", "context", "rows"), "perm", heads, 4);
    (void)builder_constant(&b, "whole", 7, whole, DIMS(3));
    (void)builder_node(&b, "Reshape", "rows whole", "z");
    builder_output(&b, "z");
    if (a->scores_too) {
        builder_output(&b, "scores");
    }
}

static void
test_attention(void)
{
    const struct attention fitting[] = {
        {"scores", "x", {-1, 1, 1, 5}, 4, 5, -1, -1, false, false},
        {"queries", "x", {-1, 2, 4, 5}, 4, 5, 3, -1, true, false},
        {"", "constant", {1, 2, 1, 5}, 1, 5, -1, -1, false, false},
        {"scores", "constant", {1, 1, 4, 5}, 4, 5, -1, -1, true, false},
        {"scores", NULL, {0}, 7, 1, -1, -1, false, false},
    };
    const struct attention others[] = {
        {"scores", "x", {-1, 1, 4, 1}, 4, 5, -1, -1, false, false},    /* a mask of rows */
        {"scores", NULL, {0}, 5, 5, 2, -1, false, false},              /* shares of queries */
        {"scores", NULL, {0}, 4, 5, -1, 1, false, false},              /* one item's queries for all */
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(fitting); i++) {
        add_attention(&fitting[i]);
        expect_one(pass_bit("fuse-attention"), LEAT_OP_ATTENTION);
    }
    struct attention shown = fitting[0];
    shown.scores_too = true;
    add_attention(&shown);
    expect_nodes(pass_bit("fuse-attention"), 6);
    for (size_t i = 0; i < LEAT_COUNT_OF(others); i++) {
        add_attention(&others[i]);
        struct leat_graph *graph = optimised(pass_bit("fuse-attention"));
        EXPECT(graph->node_count > 1);
        leat_graph_destroy(graph);
    }
}

/* The two first sizes of x, then `last`. */
static void
add_computed_target(const char *last)
{
    static const int64_t first[1] = {0}, second[1] = {1};
    char list[48];

    (void)builder_node(&b, "Shape", "x", "sizes");
    (void)builder_constant(&b, "first", 7, first, DIMS(1));
    (void)builder_constant(&b, "second", 7, second, DIMS(1));
    (void)builder_node(&b, "Gather", "sizes first", "batch");
    (void)builder_node(&b, "Gather", "sizes second", "length");
    (void)snprintf(list, sizeof(list), "batch length %s", last);
    (void)builder_int(&b, builder_node(&b, "Concat", list, "target"), "axis", 0);
    (void)builder_node(&b, "Reshape", "x target", "y");
    builder_output(&b, "y");
}

static void
test_shapes(void)
{
    static const int64_t sizes[2] = {2, 3}, rest[1] = {-1};

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 5, 6));
    (void)builder_constant(&b, "last", 7, sizes, DIMS(2));
    add_computed_target("last");
    struct leat_graph *graph = optimised(pass_bit("fold-shapes"));
    EXPECT(graph->node_count == 1);
    const struct leat_value *y = &graph->values[graph->outputs[0]];
    EXPECT(y->rank == 4 && y->dims[0] == LEAT_DIM_BATCH && y->dims[1] == 5 && y->dims[2] == 2 && y->dims[3] == 3);
    leat_graph_destroy(graph);

    builder_init(&b, 13); /* two entries that are not known */
    (void)builder_input(&b, "x", 1, DIMS(-1, 6));
    (void)builder_constant(&b, "rest", 7, rest, DIMS(1));
    add_computed_target("rest");
    expect_nodes(pass_bit("fold-shapes"), 4); /* but the second size of x is */
}

static void
test_embedding(void)
{
    static const int64_t ids[6] = {0, 3, -1, 2, 2, 4};
    const struct {
        int64_t axis, keep, over;
        uint32_t nodes;
    } cases[] = {{0, 0, 1, 1}, {0, 1, 1, 2}, {1, 0, 1, 2}, {0, 0, 2, 2}};

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        builder_init(&b, 13);
        weights("table", DIMS(5, 5), &random_state, false);
        (void)builder_constant(&b, "ids", 7, ids, DIMS(2, 3));
        (void)builder_constant(&b, "axes", 7, &cases[c].over, DIMS(1));
        (void)builder_int(&b, builder_node(&b, "Gather", "table ids", "rows"), "axis", cases[c].axis);
        (void)builder_int(&b, builder_node(&b, "ReduceSum", "rows axes", "y"), "keepdims", cases[c].keep);
        builder_output(&b, "y");
        expect_nodes(pass_bit("fuse-embedding"), cases[c].nodes);
    }
}

static void
test_identities(void)
{
    start_conv();
    (void)builder_node(&b, "Identity", "c", "i");
    (void)builder_node(&b, "Dropout", "i", "d mask");
    (void)builder_int(&b, builder_node(&b, "Cast", "d", "e"), "to", 1);
    (void)builder_ints(&b, builder_node(&b, "Transpose", "e", "t"), "perm", DIMS(0, 1, 2, 3));
    (void)builder_node(&b, "Identity", "t", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("remove-identities"), 1);

    builder_init(&b, 13); /* an input that is an output needs its copy */
    (void)builder_input(&b, "x", 1, DIMS(-1, 3));
    (void)builder_node(&b, "Identity", "x", "y");
    builder_output(&b, "y");
    expect_nodes(~UINT64_C(0), 1);

    start_conv(); /* one result under three names, two of them outputs */
    (void)builder_node(&b, "Identity", "c", "y");
    (void)builder_node(&b, "Identity", "c", "z");
    (void)builder_node(&b, "Relu", "c", "r");
    builder_output(&b, "y");
    builder_output(&b, "z");
    builder_output(&b, "r");
    expect_nodes(pass_bit("remove-identities"), 3);

    start_conv();
    (void)builder_node(&b, "Dropout", "c", "d mask");
    (void)builder_int(&b, builder_node(&b, "Cast", "mask", "y"), "to", 1);
    builder_output(&b, "d");
    builder_output(&b, "y");
    expect_nodes(pass_bit("remove-identities"), 3);
}

/* u is c with its axes in another order, twice. */
static void
add_transposes(const char *c, const int64_t *first, const int64_t *second)
{
    (void)builder_ints(&b, builder_node(&b, "Transpose", c, "t"), "perm", first, 4);
    (void)builder_ints(&b, builder_node(&b, "Transpose", "t", "u"), "perm", second, 4);
}

static void
test_transposes(void)
{
    static const int64_t last[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2}, swap[] = {0, 1, 3, 2};
    const uint64_t pass = pass_bit("merge-transposes");
    struct leat_graph *graph;

    start_conv(); /* there and back */
    (void)builder_node(&b, "Relu", "c", "r");
    add_transposes("r", last, back);
    (void)builder_node(&b, "Neg", "u", "y");
    builder_output(&b, "y");
    graph = optimised(pass);
    EXPECT(graph->node_count == 3 && graph->nodes[2].op->kind == LEAT_OP_NEG);
    EXPECT(graph->nodes[2].inputs[0] == graph->nodes[1].outputs[0]);
    leat_graph_destroy(graph);

    start_conv(); /* two in a row become one: not each the other's inverse, nor its own */
    add_transposes("c", last, swap);
    (void)builder_node(&b, "Neg", "u", "y");
    builder_output(&b, "y");
    graph = optimised(pass);
    EXPECT(graph->node_count == 3 && graph->nodes[1].op->kind == LEAT_OP_TRANSPOSE);
    const struct leat_attribute *perm = leat_node_attribute(&graph->nodes[1], "perm");
    EXPECT(perm != NULL && perm->count == 4 && perm->ints[0] == 0 && perm->ints[1] == 2 && perm->ints[2] == 1 &&
           perm->ints[3] == 3);
    leat_graph_destroy(graph);

    start_conv(); /* three, of which the last two say nothing of their order: axes reversed */
    (void)builder_ints(&b, builder_node(&b, "Transpose", "c", "t"), "perm", last, 4);
    (void)builder_node(&b, "Transpose", "t", "u");
    (void)builder_node(&b, "Transpose", "u", "v");
    (void)builder_node(&b, "Neg", "v", "y");
    builder_output(&b, "y");
    expect_nodes(pass, 3);

    start_conv(); /* others read what is between: the way back goes alone */
    add_transposes("c", last, back);
    (void)builder_node(&b, "Neg", "u", "y");
    (void)builder_node(&b, "Relu", "t", "z");
    builder_output(&b, "y");
    builder_output(&b, "z");
    expect_nodes(pass, 4);

    start_conv(); /* the same, as an output of the graph */
    add_transposes("c", last, back);
    (void)builder_node(&b, "Neg", "u", "y");
    builder_output(&b, "y");
    builder_output(&b, "t");
    expect_nodes(pass, 3);

    start_conv(); /* one of both would be a third */
    add_transposes("c", last, swap);
    (void)builder_node(&b, "Neg", "u", "y");
    (void)builder_node(&b, "Relu", "t", "z");
    builder_output(&b, "y");
    builder_output(&b, "z");
    expect_nodes(pass, 5);

    start_conv(); /* the end is an output: what is transposed has its name */
    add_transposes("c", last, back);
    builder_output(&b, "u");
    expect_nodes(pass, 1);

    builder_init(&b, 13); /* an input that is an output needs its copy */
    (void)builder_input(&b, "c", 1, DIMS(-1, 3, 4, 5));
    add_transposes("c", last, back);
    builder_output(&b, "u");
    expect_nodes(~UINT64_C(0), 1);

    start_conv(); /* other nodes that change nothing are another pass's */
    add_transposes("c", last, back);
    (void)builder_node(&b, "Identity", "u", "y");
    builder_output(&b, "y");
    expect_nodes(pass, 2);
}

/* How many nodes of this kind the pass left among `count`. */
static void
expect_sunk(uint32_t count, uint32_t transposes)
{
    struct leat_graph *graph = optimised(pass_bit("sink-transposes"));
    uint32_t found = 0;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        found += graph->nodes[n].op->kind == LEAT_OP_TRANSPOSE;
    }
    EXPECT(graph->node_count == count && found == transposes);
    leat_graph_destroy(graph);
}

static Onnx__NodeProto *
add_transpose(const char *from, const int64_t *perm, const char *to)
{
    Onnx__NodeProto *node = builder_node(&b, "Transpose", from, to);
    (void)builder_ints(&b, node, "perm", perm, 4);
    return node;
}

static const int64_t channels_last[] = {0, 2, 3, 1}, channels_back[] = {0, 3, 1, 2};

/* t is c with channels last. */
static void
start_channels_last(void)
{
    start_conv();
    (void)add_transpose("c", channels_last, "t");
}

/* And back: y. */
static void
end_channels_last(const char *from)
{
    (void)add_transpose(from, channels_back, "u");
    (void)builder_node(&b, "Neg", "u", "y");
    builder_output(&b, "y");
}

static void
test_transposes_below_one_operand(void)
{
    static const int64_t batch_third[] = {1, 2, 0, 3}, batch_back[] = {2, 0, 1, 3}, swap[] = {0, 1, 3, 2};
    const float low = -0.1f, high = 0.2f;

    start_channels_last();
    (void)builder_node(&b, "Relu", "t", "r");
    (void)builder_node(&b, "Tanh", "r", "s");
    end_channels_last("s");
    expect_sunk(4, 0);

    start_channels_last(); /* bounds are scalars */
    (void)builder_constant(&b, "low", 1, &low, NULL, 0);
    (void)builder_constant(&b, "high", 1, &high, NULL, 0);
    (void)builder_node(&b, "Clip", "t low high", "r");
    end_channels_last("r");
    expect_sunk(3, 0);

    start_channels_last(); /* one of them is left out */
    (void)builder_constant(&b, "high", 1, &high, NULL, 0);
    (void)builder_node(&b, "Clip", "t - high", "r");
    end_channels_last("r");
    expect_sunk(3, 0);

    start_channels_last(); /* what is read for its type alone may have any shape */
    b.opset.version = 15;
    weights("like", DIMS(2, 2, 1, 1, 2), &random_state, false);
    (void)builder_node(&b, "CastLike", "t like", "r");
    (void)builder_node(&b, "Relu", "r", "s");
    end_channels_last("s");
    expect_sunk(6, 2);

    start_conv(); /* the batch moves, too */
    (void)add_transpose("c", batch_third, "t");
    (void)builder_node(&b, "Relu", "t", "r");
    (void)add_transpose("r", batch_back, "u");
    (void)builder_node(&b, "Neg", "u", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(pass_bit("sink-transposes"));
    EXPECT(graph->node_count == 3 && graph->nodes[1].op->kind == LEAT_OP_RELU);
    EXPECT(leat_node_output(graph, &graph->nodes[1], 0)->dims[0] == LEAT_DIM_BATCH);
    leat_graph_destroy(graph);

    start_channels_last(); /* no inverse: one of both */
    (void)builder_node(&b, "Relu", "t", "r");
    (void)add_transpose("r", swap, "y");
    builder_output(&b, "y");
    expect_sunk(3, 1);

    start_channels_last(); /* none would be saved */
    (void)builder_node(&b, "Relu", "t", "y");
    builder_output(&b, "y");
    graph = optimised(pass_bit("sink-transposes"));
    EXPECT(graph->node_count == 3 && graph->nodes[1].op->kind == LEAT_OP_TRANSPOSE);
    leat_graph_destroy(graph);

    start_channels_last(); /* another operator is between */
    (void)builder_int(&b, builder_node(&b, "Softmax", "t", "r"), "axis", 3);
    end_channels_last("r");
    expect_sunk(5, 2);

    start_conv(); /* in a row: what moves first changes what the next one has in front */
    (void)add_transpose("c", channels_last, "t");
    (void)builder_node(&b, "Relu", "t", "r");
    (void)add_transpose("r", swap, "u");
    (void)builder_node(&b, "Tanh", "u", "s");
    (void)add_transpose("s", swap, "v");
    (void)builder_node(&b, "Sigmoid", "v", "q");
    (void)add_transpose("q", channels_back, "y");
    builder_output(&b, "y");
    expect_sunk(4, 0);
}

static void
test_transposes_below_two_operands(void)
{
    static const int64_t flipped[] = {0, 3, 2, 1};

    start_channels_last(); /* constants: in their order, in another, and one that is a scalar */
    weights("bias", DIMS(4), &random_state, false);
    weights("factors", DIMS(3, 3, 4), &random_state, false);
    weights("shift", DIMS(1, 1), &random_state, false);
    (void)builder_node(&b, "Add", "t bias", "a");
    (void)builder_node(&b, "Mul", "factors a", "m");
    (void)builder_node(&b, "Sub", "shift m", "s");
    (void)builder_node(&b, "PRelu", "s bias", "p");
    end_channels_last("p");
    expect_sunk(6, 0);

    start_channels_last(); /* what others read is transposed for them */
    (void)builder_node(&b, "Relu", "t", "r");
    (void)builder_node(&b, "Exp", "r", "z");
    end_channels_last("r");
    builder_output(&b, "z");
    struct leat_graph *graph = optimised(pass_bit("sink-transposes"));
    EXPECT(graph->node_count == 5 && leat_node_output(graph, &graph->nodes[1], 0)->dims[1] == 4); /* Relu */
    for (uint32_t n = 0; n < graph->node_count; n++) { /* not moved below what nothing comes behind */
        EXPECT(graph->nodes[n].op->kind != LEAT_OP_EXP || leat_node_output(graph, &graph->nodes[n], 0)->dims[3] == 4);
    }
    leat_graph_destroy(graph);

    start_channels_last(); /* one for two */
    (void)builder_node(&b, "Sigmoid", "c", "d");
    (void)add_transpose("d", channels_last, "v");
    (void)builder_node(&b, "Add", "t v", "y");
    builder_output(&b, "y");
    expect_sunk(4, 1);

    start_channels_last(); /* others read what is in front, which stays */
    (void)builder_node(&b, "Mul", "t t", "r");
    end_channels_last("r");
    builder_output(&b, "t");
    expect_sunk(4, 1);

    start_channels_last(); /* as many would come as would go */
    (void)builder_node(&b, "Sigmoid", "c", "d");
    (void)add_transpose("d", channels_last, "v");
    (void)builder_node(&b, "Add", "t v", "r");
    end_channels_last("r");
    builder_output(&b, "r");
    builder_output(&b, "t");
    builder_output(&b, "v");
    graph = optimised(pass_bit("sink-transposes"));
    EXPECT(graph->node_count == 7 && graph->nodes[4].op->kind == LEAT_OP_ADD);
    EXPECT(leat_node_input(graph, &graph->nodes[4], 0)->dims[3] == 4);
    leat_graph_destroy(graph);

    start_channels_last(); /* by different ones: of 3 rows and columns either way */
    (void)add_transpose("c", flipped, "v");
    (void)builder_node(&b, "Add", "t v", "r");
    end_channels_last("r");
    expect_sunk(6, 3);

    start_channels_last(); /* another operand is as it is */
    (void)builder_input(&b, "e", 1, DIMS(-1, 3, 3, 4));
    (void)builder_node(&b, "Add", "t e", "r");
    end_channels_last("r");
    expect_sunk(5, 2);

    builder_init(&b, 6); /* slopes along the second axis, which is another one before */
    (void)builder_input(&b, "c", 1, DIMS(-1, 4, 3, 3));
    (void)add_transpose("c", channels_last, "t");
    weights("slopes", DIMS(3), &random_state, false);
    (void)builder_node(&b, "PRelu", "t slopes", "r");
    end_channels_last("r");
    expect_sunk(4, 2);
}

static void
test_constants_and_dead_code(void)
{
    start_conv();
    weights("a", DIMS(4, 1, 1), &random_state, false);
    weights("e", DIMS(1), &random_state, false);
    (void)builder_node(&b, "Mul", "a e", "f");
    (void)builder_node(&b, "Exp", "f", "g");
    (void)builder_node(&b, "Add", "c g", "y");
    (void)builder_node(&b, "Sigmoid", "c", "unused");
    (void)builder_node(&b, "Tanh", "unused", "unused2");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(pass_bit("fold-constants") | pass_bit("remove-dead-code"));
    EXPECT(graph->node_count == 2);
    EXPECT(graph->value_count == 5); /* x, w, g, c, y: all else is gone */
    leat_graph_destroy(graph);
}

static void
test_constant_products(void)
{
    builder_init(&b, 13); /* weights as adapters have them: W + A B, and what is behind */
    (void)builder_input(&b, "x", 1, DIMS(-1, 6));
    weights("w", DIMS(6, 40), &random_state, false);
    weights("a", DIMS(6, 2), &random_state, false);
    weights("b", DIMS(2, 40), &random_state, false);
    (void)builder_node(&b, "MatMul", "a b", "ab");
    (void)builder_node(&b, "Add", "w ab", "sum");
    weights("e", DIMS(40, 3), &random_state, false);
    (void)builder_node(&b, "MatMul", "sum e", "se");
    (void)builder_node(&b, "MatMul", "x se", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-constants"), 1);

    static const float scales[2] = {0.5f, 2.0f};
    for (int way = 0; way < 4; way++) { /* scaled and transposed */
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, DIMS(-1, 5));
        weights("a", way & 1 ? (const int64_t[]){3, 5} : (const int64_t[]){5, 3}, 2, &random_state, false);
        weights("b", way & 2 ? (const int64_t[]){33, 3} : (const int64_t[]){3, 33}, 2, &random_state, false);
        weights("c", DIMS(1, 33), &random_state, false);
        Onnx__NodeProto *gemm = builder_node(&b, "Gemm", "a b c", "w");
        (void)builder_int(&b, gemm, "transA", way & 1);
        (void)builder_int(&b, gemm, "transB", way >> 1);
        (void)builder_float(&b, gemm, "alpha", scales[0]);
        (void)builder_float(&b, gemm, "beta", scales[1]);
        (void)builder_node(&b, "MatMul", "x w", "y");
        builder_output(&b, "y");
        expect_nodes(pass_bit("fold-constants"), 1);
    }

    start_conv();
    weights("picture", DIMS(1, 3, 5, 5), &random_state, false);
    (void)builder_node(&b, "Conv", "picture w", "p");
    (void)builder_node(&b, "Add", "c p", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-constants"), 2);
}

/* Work is bounded: of three products that take a third more than half of it each, one is computed. */
static void
test_constant_products_are_bounded(void)
{
    struct leat_graph *graph;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 900));
    (void)builder_constant(&b, "w", 1, NULL, DIMS(900, 900));
    (void)builder_node(&b, "MatMul", "w w", "w2");
    (void)builder_node(&b, "MatMul", "w2 w", "w3");
    (void)builder_node(&b, "MatMul", "w3 w", "w4");
    (void)builder_node(&b, "MatMul", "x w4", "y");
    builder_output(&b, "y");
    graph = import();
    EXPECT(leat_graph_optimise(graph, pass_bit("fold-constants")) == LEAT_OK && graph->node_count == 3);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

static void
test_dequantised(void)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, 5, 5));
    quantised_weights("w", DIMS(4, 3, 3, 3), 1, &random_state);
    (void)builder_node(&b, "Conv", "x w", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-dequantised"), 1);

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, 5, 5));
    quantised_weights("w", DIMS(4, 3, 3, 3), 1, &random_state);
    (void)builder_node(&b, "Conv", "x w", "y");
    builder_output(&b, "y");
    expect_nodes(pass_bit("fold-constants"), 2); /* which is for what is cheap */
}

/* `from` in numbers of this type and back: `to`. Their value is `to`_q. */
static void
add_qdq(const char *from, int type, float scale, int zero, const char *to)
{
    const int8_t number = (int8_t)zero;
    char scales[24], zeros[24], numbers[24], list[80];

    (void)snprintf(scales, sizeof(scales), "%s_scale", to);
    (void)snprintf(zeros, sizeof(zeros), "%s_zero", to);
    (void)snprintf(numbers, sizeof(numbers), "%s_q", to);
    (void)builder_constant(&b, scales, 1, &scale, NULL, 0);
    (void)builder_constant(&b, zeros, type, &number, NULL, 0);
    (void)snprintf(list, sizeof(list), "%s %s %s", from, scales, zeros);
    (void)builder_node(&b, "QuantizeLinear", list, numbers);
    (void)snprintf(list, sizeof(list), "%s %s %s", numbers, scales, zeros);
    (void)builder_node(&b, "DequantizeLinear", list, to);
}

/* x[N][3][5][5], quantised, times quantised weights: c; what is fused leaves Q, QLinearConv and DQ. */
static void
start_quantised(int type, int64_t shift, bool bias)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, 5, 5));
    add_qdq("x", type, 1.0f / 64, 3, "xq");
    quantised_weights("w", DIMS(4, 3, 3, 3), shift, &random_state);
    if (bias) {
        weights("bias", DIMS(4), &random_state, false);
    }
    (void)builder_node(&b, "Conv", bias ? "xq w bias" : "xq w", "c");
}

static void
test_quantised(void)
{
    const uint64_t fuse = pass_bit("fuse-quantised"), shift = pass_bit("shift-quantised");
    struct leat_graph *graph;

    start_quantised(ONNX_U8, 0, false);
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 3);

    start_quantised(ONNX_U8, 0, false); /* a rectifier that the numbers are anyway, and one that they are not */
    (void)builder_node(&b, "Relu", "c", "r");
    add_qdq("r", ONNX_U8, 1.0f / 8, 0, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 3);
    start_quantised(ONNX_U8, 0, false);
    (void)builder_node(&b, "Relu", "c", "r");
    add_qdq("r", ONNX_U8, 1.0f / 8, 1, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 7);

    start_quantised(ONNX_U8, 0, false); /* a bound below the greatest number */
    const float bounds[2] = {0, 6};
    (void)builder_constant(&b, "low", 1, &bounds[0], NULL, 0);
    (void)builder_constant(&b, "high", 1, &bounds[1], NULL, 0);
    (void)builder_node(&b, "Clip", "c low high", "r");
    add_qdq("r", ONNX_U8, 1.0f / 8, 0, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 7);

    builder_init(&b, 13); /* scales of weights along the inputs */
    (void)builder_input(&b, "x", 1, DIMS(-1, 3, 5, 5));
    add_qdq("x", ONNX_U8, 1.0f / 64, 3, "xq");
    quantised_weights("w", DIMS(3, 3, 1, 1), 0, &random_state);
    b.nodes[b.graph.n_node - 1]->attribute[0]->i = 1;
    (void)builder_node(&b, "Conv", "xq w", "c");
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 6);

    start_quantised(ONNX_U8, 0, false); /* the convolution's own result is needed too */
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "y");
    builder_output(&b, "y");
    builder_output(&b, "c");
    expect_nodes(fuse, 6);

    start_quantised(ONNX_U8, 1, false); /* zero points of weights */
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 6);

    start_quantised(ONNX_U8, 0, true); /* a bias in floats, which has no whole number of steps near enough */
    add_qdq("c", ONNX_U8, 1.0f / 64 / 64, 100, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 6);

    start_quantised(ONNX_U8, 0, false); /* what moves numbers, and the sum of two */
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "first");
    (void)builder_int(&b, builder_node(&b, "Concat", "first first", "two"), "axis", 1);
    add_qdq("two", ONNX_U8, 1.0f / 8, 100, "second");
    (void)builder_node(&b, "Add", "second second", "sum");
    add_qdq("sum", ONNX_U8, 1.0f / 4, 3, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 5);

    for (int other = 0; other < 2; other++) { /* functions of one number, and such of two, which may be the same */
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, DIMS(-1, 3));
        (void)builder_input(&b, "z", 1, DIMS(-1, 3));
        const float half = 0.5f;
        (void)builder_constant(&b, "half", 1, &half, NULL, 0);
        add_qdq("x", ONNX_U8, 1.0f / 64, 100, "first");
        add_qdq("z", ONNX_U8, 1.0f / 64, 100, "third");
        (void)builder_node(&b, "Mul", "half first", "halved");
        (void)builder_node(&b, "Tanh", "halved", "active");
        add_qdq("active", ONNX_U8, 1.0f / 64, 100, "second");
        (void)builder_node(&b, "Mul", other != 0 ? "third second" : "first second", "product");
        add_qdq("product", ONNX_U8, 1.0f / 64, 100, "y");
        builder_output(&b, "y");
        builder_output(&b, "third");
        graph = optimised(fuse | pass_bit("remove-dead-code"));
        /* Two of x and z as numbers and two as floats; a table, and the product of its numbers and others or another table. */
        EXPECT(graph->node_count == (other != 0 ? 6 : 5));
        leat_graph_destroy(graph);
    }

    start_quantised(ONNX_U8, 0, false); /* other numbers behind a move than before it */
    add_qdq("c", ONNX_U8, 1.0f / 8, 100, "first");
    (void)builder_node(&b, "Flatten", "first", "flat");
    add_qdq("flat", ONNX_U8, 1.0f / 8, 101, "y");
    builder_output(&b, "y");
    expect_nodes(fuse, 6);

    start_quantised(ONNX_I8, 0, false);
    add_qdq("c", ONNX_I8, 1.0f / 8, -100, "y");
    builder_output(&b, "y");
    graph = optimised(shift | fuse);
    EXPECT(graph->node_count == 3 && leat_node_output(graph, &graph->nodes[1], 0)->dtype == LEAT_DTYPE_U8);
    leat_graph_destroy(graph);

    builder_init(&b, 13); /* somebody sees the numbers */
    (void)builder_input(&b, "x", 1, DIMS(-1, 3));
    add_qdq("x", ONNX_I8, 1.0f / 64, 3, "y");
    (void)builder_int(&b, builder_node(&b, "Cast", "y_q", "seen"), "to", 1);
    builder_output(&b, "y");
    builder_output(&b, "seen");
    graph = optimised(shift);
    EXPECT(leat_node_output(graph, &graph->nodes[0], 0)->dtype == LEAT_DTYPE_I8);
    leat_graph_destroy(graph);
}

/* A chain of doublings must not exhaust memory: folding stops at a bound, the graph still works. */
/* ---- Einsums ------------------------------------------------------------------------------------------- */

/* Sizes of axes, by a letter for each: n is the batch, s a symbol, 1 one element; others differ. */
static uint32_t
dims_of(const char *letters, size_t count, int64_t dims[LEAT_RANK_MAX])
{
    EXPECT(count <= LEAT_RANK_MAX);
    for (size_t d = 0; d < count; d++) {
        const char c = letters[d];
        dims[d] = c == 'n' ? -1 : c == 's' ? -2 : c == '1' ? 1 : c == 'w' ? 65536 : c - 'a' + 2;
    }
    return (uint32_t)count;
}

/* y is the Einsum of x0, x1 and so on, whose shapes are like "nij,=jk": behind = constants. */
static void
add_einsum(const char *equation, const char *shapes, int64_t opset)
{
    char list[32] = "";
    int64_t dims[LEAT_RANK_MAX];

    builder_init(&b, opset);
    for (uint32_t k = 0; shapes != NULL; k++) {
        const bool constant = *shapes == '=';
        const size_t length = strcspn(shapes + constant, ",");
        const uint32_t rank = dims_of(shapes + constant, length, dims);
        char name[4];
        (void)snprintf(name, sizeof(name), "x%u", k);
        (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", k > 0 ? " " : "", name);
        if (constant) {
            weights(name, dims, rank, &random_state, false);
        } else {
            (void)builder_input(&b, name, 1, dims, rank);
        }
        shapes += (size_t)constant + length;
        shapes = *shapes == ',' ? shapes + 1 : NULL;
    }
    (void)builder_string(&b, builder_node(&b, "Einsum", list, "y"), "equation", equation);
    builder_output(&b, "y");
}

static char
letter_of(enum leat_op_kind kind)
{
    return kind == LEAT_OP_EINSUM       ? 'E'
           : kind == LEAT_OP_IDENTITY   ? '='
           : kind == LEAT_OP_MATMUL     ? 'M'
           : kind == LEAT_OP_MUL        ? 'X'
           : kind == LEAT_OP_REDUCE_SUM ? '+'
           : kind == LEAT_OP_RESHAPE    ? 'R'
           : kind == LEAT_OP_SLICE      ? '/'
           : kind == LEAT_OP_SQUEEZE    ? 'S'
           : kind == LEAT_OP_TRANSPOSE  ? 'T'
           : kind == LEAT_OP_UNSQUEEZE  ? 'U'
                                        : '?';
}

/* What the pass makes of the built model, a letter for each node. */
static void
read_split(struct leat_graph *graph, char *ret, size_t size)
{
    EXPECT(leat_graph_optimise(graph, pass_bit("split-einsums")) == LEAT_OK);
    EXPECT(leat_graph_check(graph) == LEAT_OK);
    EXPECT(graph->node_count < size);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        ret[n] = letter_of(graph->nodes[n].op->kind);
    }
    ret[graph->node_count] = '\0';
}

static void
expect_split(const char *equation, const char *shapes, const char *nodes, bool runs)
{
    const struct leat_dim_value length = {"M", 4};
    char have[32];
    struct leat_graph *before = import(), *after = import();

    read_split(after, have, sizeof(have));
    if (strcmp(have, nodes) != 0) {
        (void)fprintf(stderr, "%s of %s is %s\n", equation, shapes, have);
    }
    EXPECT(strcmp(have, nodes) == 0);
    const struct leat_value *y = &before->values[before->outputs[0]], *z = &after->values[after->outputs[0]];
    EXPECT(strcmp(y->name, z->name) == 0 && y->rank == z->rank);
    for (uint32_t d = 0; d < y->rank; d++) {
        EXPECT(y->dims[d] == z->dims[d]);
    }
    if (before->symbol_count > 0) {
        EXPECT(leat_graph_bind(before, &length, 1) == LEAT_OK && leat_graph_bind(after, &length, 1) == LEAT_OK);
    }
    if (runs) {
        expect_same_results(before, after, leat_test_seed);
    }
    leat_graph_destroy(before);
    leat_graph_destroy(after);
    builder_fini(&b);
}

static void
test_einsums(void)
{
    static const struct {
        const char *equation, *shapes, *nodes;
    } cases[] = {
        /* rows, a column and what is summed over */
        {"ni,ij->nj", "ni,=ij", "M"},
        {"nij,jk->nik", "nij,=jk", "M"},
        {"nij,jk", "nij,=jk", "TMT"}, /* ikn */
        {" n i j, j k -> n i k ", "nij,=jk", "M"},
        {"nid,hd->nih", "nid,=hd", "M"}, /* weights, brought into order once */
        {"nid,hd->nhi", "nid,=hd", "MT"},
        {"hd,nid->nih", "=hd,nid", "M"},
        {"hd,nid->nhi", "=hd,nid", "MT"},
        {"ni,ji->jn", "ni,=ji", "MT"}, /* weights stay on the right, whatever that moves */
        {"ji,ni->jn", "=ji,ni", "MT"},
        {"nchw,cd->ndhw", "nchw,=cd", "TMT"},
        /* matrices */
        {"bij,bjk->bik", "bij,bjk", "M"},
        {"nhid,nhjd->nhij", "nhid,nhjd", "TM"},
        {"nhij,nhjd->nhid", "nhij,nhjd", "M"},
        {"nid,njd->nij", "nid,njd", "TM"},
        {"nid,njd->nji", "nid,njd", "TM"}, /* the second is the left one */
        {"nqhd,nkhd->nhqk", "nqhd,nkhd", "TTM"},
        {"nhqk,nkhd->nqhd", "nhqk,nkhd", "TMT"},
        {"nij,nj->ni", "nij,nj", "UMS"},
        {"nj,nij->ni", "nj,nij", "UMS"},
        {"nj,njk->nk", "nj,njk", "UMS"},
        {"nj,nj->n", "nj,nj", "UUMS"},
        {"j,j->", "=j,=j", "MS"},
        /* sizes that are not known */
        {"nsd,dh->nsh", "nsd,=dh", "M"},
        {"nqsd,nksd->nsqk", "nqsd,nksd", "TTM"},
        {"nhqd,nhsd->nhqs", "nhqd,nhsd", "TM"},
        {"nhqs,nhsd->nhqd", "nhqs,nhsd", "M"},
        {"nhsd,nkd->nhsk", "nhsd,nkd", "TUM"}, /* queries of several heads, one of keys */
        {"nshd,nkd->nshk", "nshd,nkd", "TUM"},
        /* several labels that become one axis */
        {"nsd,dhk->nshk", "nsd,=dhk", "MR"},
        {"nsd,dhk->nhsk", "nsd,=dhk", "MRT"},
        {"nshk,hkd->nsd", "nshk,=hkd", "RM"},
        {"nhsk,hkd->nsd", "nhsk,=hkd", "TRM"},
        {"nshk,khd->nsd", "nshk,=khd", "TRM"},
        {"nhk,nhksd->nsd", "nhk,nhksd", "TRURMS"}, /* columns that do not become one are rows of the other side */
        {"nqhk,nhks->nqs", "nqhk,nhks", "RRM"},
        {"nhk,hkde->nde", "nhk,=hkde", "RMR"},
        {"nhk,nhk->n", "nhk,nhk", "URURMS"},
        {"nd,ndhk->nhk", "nd,ndhk", "URMR"},
        /* an ellipsis */
        {"...ij,...jk->...ik", "npij,npjk", "M"},
        {"...ij,...jk->...ik", "npij,=1pjk", "M"},
        {"...ij,...jk->...ik", "npij,=jk", "M"},
        {"...ij,jk->...ik", "npsij,=jk", "M"},
        {"i...,...->i...", "=ia,nba", "X"},
        /* no sum */
        {"ni,nj->nij", "ni,nj", "UUX"},
        {"ni,nj->nji", "ni,nj", "UUX"},
        {"nij,ij->nij", "nij,=ij", "X"},
        {"nij,ji->nij", "nij,=ji", "X"},
        {"nhd,nd->nhd", "nhd,nd", "UX"},
        {"nhd,->nhd", "nhd,=", "X"},
        /* one operand */
        {"nij->nji", "nij", "T"},
        {"nij->nij", "nij", "="},
        {"nij->n", "nij", "+"},
        {"nsd->ds", "nsd", "+T"},
        {"...ij->...ji", "nsij", "T"},
        {"...ij->ji", "nsij", "+T"},
        {"nii->ni", "nii", "R/"},
        {"nii->n", "nii", "R/+"},
        {"niji->nij", "niji", "TR/T"},
        {"iij->ij", "iij", "TR/T"},
        {"niii", "niii", "R/+"},
        {"niijj->nji", "niijj", "TR/TR/T"},
        {"nii->in", "n11", "R/T"},
        {"nss->ns", "nss", "E"}, /* nobody knows how long the diagonal is */
        /* sums over one operand alone, and diagonals, of two */
        {"nii,ij->nj", "nii,=ij", "R/M"},
        {"nij,jj->ni", "nij,=jj", "MS"}, /* once, of weights */
        {"nij,jk->nk", "nij,=jk", "+M"},
        {"nij,jk->ni", "nij,=jk", "MS"},
        {"nss,nsd->nsd", "nss,nsd", "EUX"},
        /* several operands */
        {"ni,ij,jk->nk", "ni,=ij,=jk", "MM"},
        {"nij,njk,nkl->nil", "nij,njk,nkl", "MM"},
        {"ni,oij,nj->no", "ni,=oij,nj", "UUXRM"}, /* a bilinear form */
        {"ni,ni,ni->n", "ni,ni,ni", "XUUMS"},
        {"ni,ni,ni,ni->ni", "ni,ni,ni,ni", "XXX"},
        {"nij,ijj,nk->nk", "nij,=ijj,nk", "RMSUX"},
        {"...i,ij,...j->...", "npi,=ij,npj", "MUUMS"},
        {"...,i,...->...i", "npq,=i,q", "UXUX"},
        {"...i,...i,...i->...i", "npi,pi,=i", "XX"},
        {"...i,...i,...j->...ij", "pi,npi,npj", "XUUX"},
        /* what stays */
        {"nid,dsk->nisk", "nid,dsk", "E"}, /* a symbol among columns, on either side */
        {"bij,bjk->bik", "nij,=bjk", "E"}, /* as many items as b has */
        {"ned,dwv->newv", "ned,dww", "E"}, /* 2^32 columns */
        {"nabcdef,ndefghi->nabcghi", "nabcdef,ndef111", "E"}, /* nine axes on the right */
        {"...ij,...jk->ik", "bpij,=1pjk", "E"},
        {"...ij,jk->ik", "bpij,=jk", "E"}, /* an ellipsis that one of them carries alone */
        {"...ii,...ij->j", "bpii,bpij", "E"},
        {"...ij,...jk,k->i", "bpij,=1pjk,=k", "E"},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        add_einsum(cases[c].equation, cases[c].shapes, 13);
        expect_split(cases[c].equation, cases[c].shapes, cases[c].nodes, strchr(cases[c].shapes, 'w') == NULL);
    }
}

/* In other types it stays, and so does what reads sizes that a run or the number of items decides. */
static void
test_einsums_that_stay(void)
{
    static const int types[] = {1, 11, 6}; /* f32, f64, i32 */
    static const int64_t target[2] = {-1, 2};
    char have[16];

    for (size_t t = 0; t < LEAT_COUNT_OF(types); t++) {
        builder_init(&b, 13);
        (void)builder_input(&b, "x", types[t], DIMS(-1, 3));
        (void)builder_constant(&b, "w", types[t], NULL, DIMS(3, 2));
        (void)builder_string(&b, builder_node(&b, "Einsum", "x w", "y"), "equation", "ni,ij->nj");
        builder_output(&b, "y");
        struct leat_graph *graph = import();
        read_split(graph, have, sizeof(have));
        EXPECT(strcmp(have, t == 0 ? "M" : "E") == 0);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }

    for (int matrices = 0; matrices < 2; matrices++) { /* rows of any number, but not as many matrices */
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, DIMS(-1, 4, 3));
        (void)builder_constant(&b, "target", 7, target, DIMS(2));
        (void)builder_node(&b, "Reshape", "x target", "r");
        weights("w", DIMS(2, 3), &random_state, false);
        (void)builder_string(&b, builder_node(&b, "Einsum", matrices != 0 ? "r r" : "r w", "y"), "equation",
                             matrices != 0 ? "ui,ui->u" : "ui,ij->uj");
        builder_output(&b, "y");
        expect_split("u", "x", matrices != 0 ? "RE" : "RM", true);
    }

    builder_init(&b, 13); /* a diagonal that is known to be as long as one of its axes */
    (void)builder_input(&b, "x", 1, DIMS(-1, 4, 3));
    (void)builder_constant(&b, "target", 7, target, DIMS(2));
    (void)builder_node(&b, "Reshape", "x target", "r");
    (void)builder_string(&b, builder_node(&b, "Einsum", "r", "y"), "equation", "ii->i");
    builder_output(&b, "y");
    struct leat_graph *square = import();
    read_split(square, have, sizeof(have));
    EXPECT(strcmp(have, "RE") == 0);
    leat_graph_destroy(square);
    builder_fini(&b);

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(4, 3));
    (void)builder_node(&b, "NonZero", "x", "places");
    (void)builder_int(&b, builder_node(&b, "Cast", "places", "p"), "to", 1);
    (void)builder_string(&b, builder_node(&b, "Einsum", "p p", "y"), "equation", "ij,ik->jk");
    builder_output(&b, "y");
    struct leat_graph *graph = import();
    read_split(graph, have, sizeof(have));
    EXPECT(strcmp(have, "??E") == 0);
    leat_graph_destroy(graph);
    builder_fini(&b);

    add_einsum("nij,nj->ni", "nij,nj", 12); /* when axes were no operand */
    expect_split("nij,nj->ni", "nij,nj", "UMS", true);
}

static void
shuffle(char *letters, uint64_t *random)
{
    for (size_t i = strlen(letters); i > 1; i--) {
        const size_t k = leat_test_random(random) % i;
        const char c = letters[i - 1];
        letters[i - 1] = letters[k];
        letters[k] = c;
    }
}

static void
append_letters(char *to, char first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const size_t length = strlen(to);
        to[length] = (char)(first + (char)i);
        to[length + 1] = '\0';
    }
}

/* Of several operands, which pair is the first: that which leaves the least to do, in whatever order they come. */
static void
test_einsums_in_order(void)
{
    static const struct {
        const char *equation, *shapes, *first; /* result */
    } cases[] = {
        {"zy,yx,xa->za", "zy,yx,xa", "ya"},
        {"xa,zy,yx->za", "xa,zy,yx", "ya"},
        {"ay,yx,xz->az", "ay,yx,xz", "ax"},
        {"az,by,zx,yx->ab", "az,by,zx,yx", "ax"},
        {"za,zb,zc->abc", "za,zb,zc", "zab"}, /* what is needed later stays */
        {"ncs,nsd,nde->nce", "ncs,nsd,nde", "ncd"}, /* a size that is not known is no small one */
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        int64_t want[LEAT_RANK_MAX];
        char have[32];
        add_einsum(cases[c].equation, cases[c].shapes, 13);
        struct leat_graph *graph = import();
        read_split(graph, have, sizeof(have));
        const uint32_t rank = dims_of(cases[c].first, strlen(cases[c].first), want);
        uint32_t n = 0;
        while (graph->nodes[n].op->kind != LEAT_OP_MATMUL && graph->nodes[n].op->kind != LEAT_OP_MUL) {
            n++;
        }
        const struct leat_value *first = leat_node_output(graph, &graph->nodes[n], 0);
        if (first->rank != rank || memcmp(first->dims, want, rank * sizeof(*want)) != 0) {
            (void)fprintf(stderr, "%s begins with another product: %s\n", cases[c].equation, have);
            EXPECT(!"the order with the least work");
        }
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Of one to eight operands, with any labels anywhere: none is left, and the result is the same. */
static void
test_einsums_of_many(void)
{
    enum { EQUATIONS = 1500, LABELS = 6, OPERANDS = 8 };
    uint64_t random = leat_test_seed ^ 1;

    for (int e = 0; e < LEAT_TEST_ROUNDS(EQUATIONS); e++) {
        const uint64_t operands = 1 + leat_test_random(&random) % (leat_test_random(&random) % 4 == 0 ? OPERANDS : 4);
        char equation[128] = "", list[64] = "", result[LABELS + 1] = "", have[256];
        bool carried[LABELS] = {false};
        int64_t sizes[LABELS], dims[LEAT_RANK_MAX];
        builder_init(&b, 13);
        for (int l = 0; l < LABELS; l++) {
            sizes[l] = 1 + (int64_t)(leat_test_random(&random) % 3);
        }
        for (uint64_t k = 0; k < operands; k++) {
            const size_t rank = (size_t)(leat_test_random(&random) % (operands > 4 ? 3 : 5));
            char name[4];
            (void)snprintf(name, sizeof(name), "x%u", (unsigned)k);
            (void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", k > 0 ? " " : "", name);
            append_letters(equation, ',', k > 0);
            for (size_t d = 0; d < rank; d++) {
                const uint64_t label = leat_test_random(&random) % LABELS;
                carried[label] = true;
                append_letters(equation, (char)('a' + (char)label), 1);
                dims[d] = sizes[label];
            }
            if (k > 0 && leat_test_random(&random) % 4 == 0) {
                weights(name, dims, rank, &random, false);
            } else {
                (void)builder_input(&b, name, 1, dims, rank);
            }
        }
        for (int l = 0; l < LABELS; l++) {
            append_letters(result, (char)('a' + l), carried[l] && leat_test_random(&random) % 2 == 0);
        }
        shuffle(result, &random);
        (void)snprintf(equation + strlen(equation), sizeof(equation) - strlen(equation), "->%s", result);
        (void)builder_string(&b, builder_node(&b, "Einsum", list, "y"), "equation", equation);
        builder_output(&b, "y");
        struct leat_graph *before = import(), *after = import();
        read_split(after, have, sizeof(have));
        if (strchr(have, 'E') != NULL) {
            (void)fprintf(stderr, "%s is %s\n", equation, have);
        }
        EXPECT(strchr(have, 'E') == NULL);
        expect_same_results(before, after, leat_test_seed);
        leat_graph_destroy(before);
        leat_graph_destroy(after);
        builder_fini(&b);
    }
}

/* So many that what comes of them would be more nodes than a graph may have stay. */
static void
einsums_are_bounded(const char *letters, uint32_t operands)
{
    enum { EINSUMS = 6000 };
    const struct leat_attribute equation = {.name = "equation", .kind = LEAT_ATTRIBUTE_STRING, .count = 1, .s = letters};
    const int64_t dims[2] = {LEAT_DIM_BATCH, 3};
    struct leat_graph *graph = NULL;
    uint32_t x;

    EXPECT(leat_graph_create("many", 13, &graph) == LEAT_OK);
    EXPECT(leat_graph_add_value(graph, "x", LEAT_DTYPE_F32, 2, dims, &x) == LEAT_OK);
    EXPECT(leat_graph_set_inputs(graph, &x, 1) == LEAT_OK);
    for (int i = 0; i < EINSUMS; i++) {
        uint32_t y;
        EXPECT(leat_graph_add_value(graph, "y", LEAT_DTYPE_F32, 2, dims, &y) == LEAT_OK);
        EXPECT(leat_graph_add_node(graph, leat_op_find("Einsum", 13), "y", (const uint32_t[3]){x, x, x}, operands, &y, 1, &equation,
                                   1) == LEAT_OK);
        x = y;
    }
    EXPECT(leat_graph_set_outputs(graph, &x, 1) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, pass_bit("split-einsums")) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    EXPECT(graph->node_count == EINSUMS && graph->nodes[0].op->kind == LEAT_OP_EINSUM);
    leat_graph_destroy(graph);
}

static void
test_einsums_are_bounded(void)
{
    einsums_are_bounded("ni->ni", 1);
    einsums_are_bounded("ni,ni->ni", 2);
    einsums_are_bounded("ni,ni,ni->ni", 3);
}

/* Attention as exporters write it with Einsum is attention for the passes that follow. */
static void
test_einsums_of_attention(void)
{
    static const int64_t apart[4] = {0, 0, 2, 3}, whole[3] = {0, 0, 6};

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4, 6));
    (void)builder_input(&b, "z", 1, DIMS(-1, 5, 6));
    (void)builder_constant(&b, "apart", 7, apart, DIMS(4));
    (void)builder_constant(&b, "whole", 7, whole, DIMS(3));
    scalar("factor", 0.6f);
    (void)builder_node(&b, "Reshape", "x apart", "q");
    (void)builder_node(&b, "Reshape", "z apart", "k");
    (void)builder_string(&b, builder_node(&b, "Einsum", "q k", "scores"), "equation", "bqhd,bkhd->bhqk");
    (void)builder_node(&b, "Mul", "scores factor", "scaled");
    (void)builder_int(&b, builder_node(&b, "Softmax", "scaled", "shares"), "axis", -1);
    (void)builder_string(&b, builder_node(&b, "Einsum", "shares k", "context"), "equation", "bhqk,bkhd->bqhd");
    (void)builder_node(&b, "Reshape", "context whole", "y");
    builder_output(&b, "y");
    expect_one(pass_bit("split-einsums") | pass_bit("fuse-attention"), LEAT_OP_ATTENTION);

    /* As Keras has it, with weights of three axes on either side, and keys before queries. */
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4, 6));
    weights("wq", DIMS(6, 2, 3), &random_state, false);
    weights("wk", DIMS(6, 2, 3), &random_state, false);
    weights("wo", DIMS(2, 3, 6), &random_state, false);
    (void)builder_string(&b, builder_node(&b, "Einsum", "x wq", "q"), "equation", "abc,cde->abde");
    (void)builder_string(&b, builder_node(&b, "Einsum", "x wk", "k"), "equation", "abc,cde->abde");
    (void)builder_string(&b, builder_node(&b, "Einsum", "k q", "scores"), "equation", "aecd,abcd->acbe");
    (void)builder_int(&b, builder_node(&b, "Softmax", "scores", "shares"), "axis", -1);
    (void)builder_string(&b, builder_node(&b, "Einsum", "shares k", "context"), "equation", "acbe,aecd->abcd");
    (void)builder_string(&b, builder_node(&b, "Einsum", "context wo", "y"), "equation", "abcd,cde->abe");
    builder_output(&b, "y");
    struct leat_graph *graph = optimised(~UINT64_C(0));
    EXPECT(graph->node_count == 4); /* three products with weights, and attention between them */
    for (uint32_t n = 0; n < graph->node_count; n++) {
        EXPECT(graph->nodes[n].op->kind == (n == 2 ? LEAT_OP_ATTENTION : LEAT_OP_MATMUL));
    }
    leat_graph_destroy(graph);
}

/* f32[matrices][1 ...][summed][columns] and what it is multiplied by have no more axes than there may be. */
static bool
has_room(uint64_t matrices, uint64_t rows, uint64_t columns, uint64_t summed)
{
    const uint64_t shared = rows > 1 && matrices > 0 ? rows - 1 : 0;
    return summed == 0 || (matrices + (rows > 0 ? rows : 1) + summed <= LEAT_RANK_MAX &&
                           matrices + shared + summed + (columns > 0 ? columns : 1) <= LEAT_RANK_MAX);
}

/* Letters of all kinds in any order: what is a product of matrices becomes one, with the same result. */
static void
test_random_einsums(void)
{
    enum { EQUATIONS = 2000 };
    unsigned split = 0, left = 0;
    uint64_t random = leat_test_seed;

    (void)printf("Einsums: seed %llu\n", (unsigned long long)leat_test_seed);
    for (int e = 0; e < LEAT_TEST_ROUNDS(EQUATIONS); e++) {
        uint64_t kinds[5]; /* matrices, rows, columns, summed, and of the first operand alone */
        char terms[3][20] = {"", "", ""}, equation[64], have[16];
        static const char firsts[] = "aeimq";
        do {
            for (int k = 0; k < 5; k++) {
                kinds[k] = leat_test_random(&random) % (k < 4 ? 4 : 20) % 4 * (k < 4 || leat_test_random(&random) % 8 == 0);
            }
        } while (kinds[0] + kinds[1] + kinds[3] + kinds[4] > LEAT_RANK_MAX || kinds[0] + kinds[2] + kinds[3] > LEAT_RANK_MAX ||
                 kinds[0] + kinds[1] + kinds[2] > LEAT_RANK_MAX);
        for (int k = 0; k < 5; k++) {
            const bool in[3] = {k != 2, k != 1 && k != 4, k < 3};
            for (int t = 0; t < 3; t++) {
                append_letters(terms[t], firsts[k], in[t] ? kinds[k] : 0);
            }
        }
        builder_init(&b, 13);
        int64_t sizes[26];
        for (int i = 0; i < 26; i++) {
            sizes[i] = 1 + (int64_t)(leat_test_random(&random) % 3);
        }
        for (int t = 0; t < 3; t++) {
            shuffle(terms[t], &random);
        }
        for (int t = 0; t < 2; t++) {
            int64_t dims[LEAT_RANK_MAX];
            const size_t rank = strlen(terms[t]);
            for (size_t d = 0; d < rank; d++) {
                dims[d] = sizes[terms[t][d] - 'a'];
            }
            if (leat_test_random(&random) % 4 == 0 || rank == 0) {
                weights(t == 0 ? "x0" : "x1", dims, rank, &random, false);
            } else {
                (void)builder_input(&b, t == 0 ? "x0" : "x1", 1, dims, rank);
            }
        }
        (void)snprintf(equation, sizeof(equation), "%s,%s->%s", terms[0], terms[1], terms[2]);
        (void)builder_string(&b, builder_node(&b, "Einsum", "x0 x1", "y"), "equation", equation);
        builder_output(&b, "y");
        struct leat_graph *before = import(), *after = import();
        read_split(after, have, sizeof(have));
        const bool stays = !(has_room(kinds[0], kinds[1], kinds[2], kinds[3]) || has_room(kinds[0], kinds[2], kinds[1], kinds[3]));
        EXPECT((strchr(have, 'E') != NULL) == stays);
        EXPECT((strchr(have, 'M') != NULL) == (!stays && kinds[3] > 0));
        EXPECT(strchr(have, '+') == NULL || kinds[4] > 0);
        expect_same_results(before, after, leat_test_seed);
        split += !stays;
        left += stays;
        leat_graph_destroy(before);
        leat_graph_destroy(after);
        builder_fini(&b);
    }
    EXPECT(split > 0 && left > 0);
}

static void
test_folding_is_bounded(void)
{
    struct leat_graph *graph;
    char from[8] = "x0", to[8], pair[32];

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 1));
    builder_output(&b, "y");
    (void)builder_node(&b, "Relu", "x", "y");
    weights("x0", DIMS(1024), &random_state, false);
    for (int i = 1; i < 20; i++) { /* 2^29 elements in the end */
        (void)snprintf(to, sizeof(to), "x%d", i);
        (void)snprintf(pair, sizeof(pair), "%s %s", from, from);
        Onnx__NodeProto *concat = builder_node(&b, "Concat", pair, to);
        (void)builder_int(&b, concat, "axis", 0);
        memcpy(from, to, sizeof(from));
    }
    graph = import();
    EXPECT(leat_graph_optimise(graph, pass_bit("fold-constants")) == LEAT_OK);
    size_t bytes = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        bytes += graph->values[v].data_bytes;
    }
    EXPECT(bytes > (1u << 20) && bytes < (64u << 20));
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK && graph->node_count == 1);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* A node whose operands and result have the step's number behind them, but for `x`. */
static void
add_numbered(int step, const char *op, const char *x, const char *first, const char *second, const char *to)
{
    char inputs[64], output[24];

    (void)snprintf(inputs, sizeof(inputs), "%s%.0d", first, first == x ? 0 : step);
    if (second != NULL) {
        const size_t used = strlen(inputs);
        (void)snprintf(inputs + used, sizeof(inputs) - used, " %s%.0d", second, second == x ? 0 : step);
    }
    (void)snprintf(output, sizeof(output), "%s%d", to, step);
    (void)builder_node(&b, op, inputs, output);
}

static void
numbered_scalar(int step, const char *name, float value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%s%d", name, step);
    scalar(text, value);
}

static void
random_gelu(int step, const char *x, const char *to)
{
    char last[32];

    numbered_scalar(step, "root", 0.70710678f);
    numbered_scalar(step, "unit", 1.0f);
    numbered_scalar(step, "half", 0.5f);
    add_numbered(step, "Mul", x, x, "root", "inner");
    add_numbered(step, "Erf", x, "inner", NULL, "erf");
    add_numbered(step, "Add", x, "erf", "unit", "gate");
    add_numbered(step, "Mul", x, x, "half", "halved");
    (void)snprintf(last, sizeof(last), "halved%d gate%d", step, step);
    (void)builder_node(&b, "Mul", last, to);
}

static void
random_layer_norm(uint64_t *random, int step, const char *x, const char *to)
{
    char name[2][24], last[48];

    numbered_scalar(step, "two", 2.0f);
    numbered_scalar(step, "epsilon", 1e-2f);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "affine%d_%d", i, step);
        weights(name[i], DIMS(6), random, false);
    }
    (void)snprintf(last, sizeof(last), "mean%d", step);
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", x, last), "axes", DIMS(-1));
    add_numbered(step, "Sub", x, x, "mean", "d");
    add_numbered(step, "Pow", x, "d", "two", "square");
    char square[24], variance[24];
    (void)snprintf(square, sizeof(square), "square%d", step);
    (void)snprintf(variance, sizeof(variance), "variance%d", step);
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", square, variance), "axes", DIMS(3));
    add_numbered(step, "Add", x, "variance", "epsilon", "shifted");
    add_numbered(step, "Sqrt", x, "shifted", NULL, "deviation");
    add_numbered(step, "Div", x, "d", "deviation", "normal");
    (void)snprintf(last, sizeof(last), "normal%d %s", step, name[0]);
    char scaled[24];
    (void)snprintf(scaled, sizeof(scaled), "scaled%d", step);
    (void)builder_node(&b, "Mul", last, scaled);
    (void)snprintf(last, sizeof(last), "%s %s", scaled, name[1]);
    (void)builder_node(&b, "Add", last, to);
}

/* Attention of 24 rows of 6, each with itself, and back by a computed target. */
static void
random_attention(uint64_t *random, int step, const char *x, const char *to)
{
    static const int64_t flat[3] = {0, 24, 6}, apart[4] = {0, 24, 2, 3}, sizes[3] = {4, 6, 6}, first[1] = {0};
    static const char *const names[][2] = {{"flat", "apart"}, {"sizes", "first"}};
    const int64_t *const data[2][2] = {{flat, apart}, {sizes, first}}, counts[2][2] = {{3, 4}, {3, 1}};
    char text[24], pair[48];

    for (int i = 0; i < 4; i++) {
        (void)snprintf(text, sizeof(text), "%s%d", names[i / 2][i % 2], step);
        (void)builder_constant(&b, text, 7, data[i / 2][i % 2], &counts[i / 2][i % 2], 1);
    }
    numbered_scalar(step, "factor", 0.577f);
    (void)snprintf(text, sizeof(text), "mask%d", step);
    weights(text, DIMS(2, 1, 24), random, false);
    add_numbered(step, "Reshape", x, x, "flat", "r");
    add_numbered(step, "Reshape", x, "r", "apart", "h");
    (void)snprintf(text, sizeof(text), "h%d", step);
    (void)snprintf(pair, sizeof(pair), "q%d", step);
    (void)builder_ints(&b, builder_node(&b, "Transpose", text, pair), "perm", DIMS(0, 2, 1, 3));
    (void)snprintf(pair, sizeof(pair), "k%d", step);
    (void)builder_ints(&b, builder_node(&b, "Transpose", text, pair), "perm", DIMS(0, 2, 3, 1));
    add_numbered(step, "MatMul", x, "q", "k", "p");
    add_numbered(step, "Mul", x, "p", "factor", "scaled");
    add_numbered(step, "Add", x, "scaled", "mask", "masked");
    add_numbered(step, "Softmax", x, "masked", NULL, "shares");
    add_numbered(step, "MatMul", x, "shares", "q", "context");
    (void)snprintf(text, sizeof(text), "context%d", step);
    (void)snprintf(pair, sizeof(pair), "o%d", step);
    (void)builder_ints(&b, builder_node(&b, "Transpose", text, pair), "perm", DIMS(0, 2, 1, 3));
    add_numbered(step, "Reshape", x, "o", "flat", "whole");
    add_numbered(step, "Shape", x, x, NULL, "all");
    add_numbered(step, "Gather", x, "all", "first", "items");
    (void)snprintf(text, sizeof(text), "items%d sizes%d", step, step);
    (void)snprintf(pair, sizeof(pair), "target%d", step);
    (void)builder_int(&b, builder_node(&b, "Concat", text, pair), "axis", 0);
    (void)snprintf(pair, sizeof(pair), "whole%d target%d", step, step);
    (void)builder_node(&b, "Reshape", pair, to);
}

/* Up to three operators with channels last, or with the batch elsewhere, and what is read of another step likewise. */
static void
random_channels_last(uint64_t *random, int step, const char *from, const char *to, const char *earlier)
{
    static const int64_t items_last[] = {1, 2, 3, 0}, items_back[] = {3, 0, 1, 2};
    const bool batch_last = leat_test_random(random) % 4 == 0;
    const int64_t *there = batch_last ? items_last : channels_last, *back = batch_last ? items_back : channels_back;
    const int operators = (int)(leat_test_random(random) % 4);
    char last[24], next[24], other[24], list[64];

    (void)snprintf(last, sizeof(last), "last%d_0", step);
    (void)add_transpose(from, there, last);
    for (int i = 1; i <= operators; i++) {
        (void)snprintf(next, sizeof(next), "last%d_%d", step, i);
        (void)snprintf(other, sizeof(other), "other%d_%d", step, i);
        (void)snprintf(list, sizeof(list), "%s %s", last, other);
        switch (leat_test_random(random) % 5) {
        case 0:
            (void)add_transpose(earlier, there, other);
            (void)builder_node(&b, "Add", list, next);
            break;
        case 1:
            weights(other, DIMS(6, 6, 4), random, false);
            (void)builder_node(&b, batch_last ? "Tanh" : "Mul", batch_last ? last : list, next);
            break;
        case 2:
            (void)builder_node(&b, "Sigmoid", last, next);
            if (b.graph.n_output < 4) {
                builder_output(&b, next);
            }
            break;
        default:
            (void)builder_node(&b, "Relu", last, next);
        }
        memcpy(last, next, sizeof(last));
    }
    (void)add_transpose(last, back, to);
}

/* A random step of a model with 4 channels of 6 x 6; returns false when nothing was added. */
static void
random_step(uint64_t *random, int step, const char *from, const char *to, const char *earlier)
{
    char a[16], c[16], list[64];
    Onnx__NodeProto *node;

    (void)snprintf(a, sizeof(a), "a%d", step);
    (void)snprintf(c, sizeof(c), "b%d", step);
    switch (leat_test_random(random) % 18) {
    case 0:
    case 1:
    case 2: {
        const bool wide = leat_test_random(random) % 2 == 0,
                   grouped = leat_test_random(random) % 3 == 0;
        const bool biased = leat_test_random(random) % 2 == 0;
        weights(a, DIMS(4, grouped ? 2 : 4, wide ? 3 : 1, wide ? 3 : 1), random, false);
        weights(c, DIMS(4), random, false);
        (void)snprintf(list, sizeof(list), biased ? "%s %s %s" : "%s %s", from, a, c);
        node = builder_node(&b, "Conv", list, to);
        (void)builder_int(&b, node, "group", grouped ? 2 : 1);
        (void)builder_string(&b, node, "auto_pad", "SAME_UPPER");
        return;
    }
    case 3: {
        char mean[16], var[16];
        (void)snprintf(mean, sizeof(mean), "m%d", step);
        (void)snprintf(var, sizeof(var), "v%d", step);
        weights(a, DIMS(4), random, false);
        weights(c, DIMS(4), random, false);
        weights(mean, DIMS(4), random, false);
        weights(var, DIMS(4), random, true);
        char wide_list[96], result[16], taps[16];
        (void)snprintf(result, sizeof(result), "r%d", step);
        (void)snprintf(taps, sizeof(taps), "w%d", step);
        weights(taps, DIMS(4, 4, 1, 1), random, false);
        (void)snprintf(list, sizeof(list), "%s %s", from, taps);
        const bool after_conv = leat_test_random(random) % 4 != 0;
        if (after_conv) {
            (void)builder_node(&b, "Conv", list, result);
        }
        (void)snprintf(wide_list, sizeof(wide_list), "%s %s %s %s %s", after_conv ? result : from,
                       a, c, mean, var);
        (void)builder_node(&b, "BatchNormalization", wide_list, to);
        return;
    }
    case 4:
        (void)builder_node(&b, "Relu", from, to);
        return;
    case 5: {
        const float low = -0.5f, high = 2.0f;
        (void)builder_constant(&b, a, 1, &low, NULL, 0);
        (void)builder_constant(&b, c, 1, &high, NULL, 0);
        (void)snprintf(list, sizeof(list), "%s %s %s", from, a, c);
        (void)builder_node(&b, "Clip", list, to);
        return;
    }
    case 6: {
        weights(c, DIMS(4, 1, 1), random, false);
        (void)builder_node(&b, "Tanh", c, a); /* something to fold */
        (void)snprintf(list, sizeof(list), "%s %s", from, a);
        (void)builder_node(&b, "Add", list, to);
        return;
    }
    case 7:
        (void)snprintf(list, sizeof(list), "%s %s", from, earlier);
        (void)builder_node(&b, "Add", list, to);
        return;
    case 8:
        (void)builder_node(&b, "Identity", from, to);
        return;
    case 9: { /* a residual block's end */
        weights(a, DIMS(4, 4, 1, 1), random, false);
        (void)snprintf(list, sizeof(list), "%s %s", from, a);
        (void)builder_node(&b, "Conv", list, c);
        (void)snprintf(list, sizeof(list), "%s %s", c, earlier);
        (void)builder_node(&b, "Add", list, to);
        return;
    }
    case 10:
        (void)builder_node(&b, "Sigmoid", from, a);
        (void)snprintf(list, sizeof(list), "%s %s", from, a);
        (void)builder_node(&b, "Mul", list, to);
        return;
    case 11:
        random_gelu(step, from, to);
        return;
    case 12:
        random_layer_norm(random, step, from, to);
        return;
    case 13:
        random_attention(random, step, from, to);
        return;
    case 14: /* channels last and back, or with rows for columns: 6 x 6 either way */
        (void)builder_ints(&b, builder_node(&b, "Transpose", from, a), "perm", DIMS(0, 2, 3, 1));
        node = builder_node(&b, "Transpose", a, to);
        (void)(leat_test_random(random) % 2 == 0 ? builder_ints(&b, node, "perm", DIMS(0, 3, 1, 2))
                                                 : builder_ints(&b, node, "perm", DIMS(0, 3, 2, 1)));
        return;
    case 15:
        random_channels_last(random, step, from, to, earlier);
        return;
    case 16: /* over channels, or over columns */
        weights(a, DIMS(4, 4), random, false);
        weights(c, DIMS(6, 6), random, false);
        if (leat_test_random(random) % 2 == 0) {
            (void)snprintf(list, sizeof(list), "%s %s", from, a);
            (void)builder_string(&b, builder_node(&b, "Einsum", list, to), "equation", "nchw,cd->ndhw");
        } else {
            (void)snprintf(list, sizeof(list), "%s %s", c, from);
            (void)builder_string(&b, builder_node(&b, "Einsum", list, to), "equation", "vw,nchw->nchv");
        }
        return;
    default:
        (void)builder_node(&b, "Sigmoid", from, to);
        return;
    }
}

/* x, quantised in each run, times weights of 6 columns, plus a bias. */
static void
add_dynamic(uint64_t *random, const char *to)
{
    (void)builder_node(&b, "DynamicQuantizeLinear", "x", "xi x_scale x_zero");
    quantised_weights("wi", DIMS(6, 6), 1, random);
    weights("bi", DIMS(6), random, false);
    (void)builder_node(&b, "MatMulInteger", "xi wi_q x_zero wi_zero", "sums");
    (void)builder_int(&b, builder_node(&b, "Cast", "sums", "floats"), "to", 1);
    (void)builder_node(&b, "Mul", "x_scale wi_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "scaled");
    (void)builder_node(&b, "Add", "scaled bi", to);
}

static void
random_model(uint64_t *random)
{
    const int steps = 3 + (int)(leat_test_random(random) % 9);
    char names[16][8] = {"x"};

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4, 6, 6));
    if (leat_test_random(random) % 2 == 0) { /* in front: floats that another pass rounds otherwise could be another step */
        add_qdq("x", ONNX_I8, 1.0f / 64, 3, "xq");
        quantised_weights("wq", DIMS(4, 4, 1, 1), 0, random);
        (void)builder_node(&b, "Conv", "xq wq", "cq");
        add_qdq("cq", ONNX_I8, 1.0f / 8, -5, "n0");
        (void)snprintf(names[0], sizeof(names[0]), "n0");
    } else if (leat_test_random(random) % 2 == 0) {
        add_dynamic(random, "n0");
        (void)snprintf(names[0], sizeof(names[0]), "n0");
    }
    for (int i = 1; i <= steps; i++) {
        const uint64_t earlier = leat_test_random(random) % (uint64_t)i;
        /* Mostly a chain; sometimes a branch, whose end may be dead code. */
        const uint64_t from = leat_test_random(random) % 4 == 0
                                  ? leat_test_random(random) % (uint64_t)i
                                  : (uint64_t)i - 1;
        (void)snprintf(names[i], sizeof(names[i]), "s%d", i);
        random_step(random, i, names[from], names[i], names[earlier]);
        if (leat_test_random(random) % 8 == 0 && i < steps && b.graph.n_output < 4) {
            builder_output(&b, names[i]);
        }
    }
    builder_node(&b, "GlobalAveragePool", names[steps], "pooled");
    (void)builder_node(&b, "Flatten", "pooled", "flat");
    if (leat_test_random(random) % 2 == 0) {
        quantised_weights("dense", DIMS(4, 5), 1, random);
    } else {
        weights("dense", DIMS(4, 5), random, false);
    }
    weights("dense_bias", DIMS(5), random, false);
    (void)builder_node(&b, "MatMul", "flat dense", "product");
    static const int64_t ids[3] = {2, 0, 2}, over = 1;
    weights("table", DIMS(3, 5), random, false);
    (void)builder_constant(&b, "ids", 7, ids, DIMS(1, 3));
    (void)builder_constant(&b, "over", 7, &over, DIMS(1));
    (void)builder_node(&b, "Gather", "table ids", "rows");
    (void)builder_int(&b, builder_node(&b, "ReduceSum", "rows over", "bag"), "keepdims", 0);
    (void)builder_node(&b, "Add", "product dense_bias", "offset");
    (void)builder_node(&b, "Add", "offset bag", "logits");
    (void)builder_node(&b, "Relu", "logits", "y");
    builder_output(&b, "y");
}

static void
test_random_models(void)
{
    enum { MODELS = 150 };
    unsigned found[PASSES_MAX] = {0};
    uint64_t random = leat_test_seed;

    EXPECT(leat_pass_count <= PASSES_MAX);
    for (int m = 0; m < MODELS; m++) {
        random_model(&random);
        struct leat_graph *before = import();
        for (size_t p = 0; p < leat_pass_count; p++) {
            struct leat_graph *after = import();
            bool changed = false;
            EXPECT(leat_passes[p].run(after, &changed) == LEAT_OK);
            EXPECT(leat_graph_check(after) == LEAT_OK);
            if (changed) {
                found[p]++;
                expect_same_results(before, after, leat_test_seed);
            }
            leat_graph_destroy(after);
            if (changed) { /* nor is it needed for what the others do */
                after = import();
                EXPECT(leat_graph_optimise(after, ~(UINT64_C(1) << p)) == LEAT_OK);
                EXPECT(leat_graph_check(after) == LEAT_OK);
                expect_same_results(before, after, leat_test_seed);
                leat_graph_destroy(after);
            }
        }
        struct leat_graph *all = import(), *concrete = NULL;
        EXPECT(leat_graph_optimise(all, ~UINT64_C(0)) == LEAT_OK);
        EXPECT(leat_graph_check(all) == LEAT_OK && all->node_count < before->node_count);
        expect_same_results(before, all, leat_test_seed);
        leat_graph_destroy(all);
        /* Passes also run on what is already specialised. */
        EXPECT(leat_graph_specialise(before, ITEMS, &concrete) == LEAT_OK);
        EXPECT(leat_graph_optimise(concrete, ~UINT64_C(0)) == LEAT_OK);
        EXPECT(leat_graph_check(concrete) == LEAT_OK);
        expect_same_results(before, concrete, leat_test_seed);
        leat_graph_destroy(concrete);
        leat_graph_destroy(before);
        builder_fini(&b);
    }
    for (size_t p = 0; p < leat_pass_count; p++) {
        (void)printf("%s: found work in %u of %d models\n", leat_passes[p].name, found[p], MODELS);
        EXPECT(found[p] >= MODELS / 20);
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_batch_norm();
    test_bias();
    test_fusion();
    test_gelu();
    test_swish();
    test_layer_norm();
    test_attention();
    test_shapes();
    test_embedding();
    test_identities();
    test_transposes();
    test_transposes_below_one_operand();
    test_transposes_below_two_operands();
    test_constants_and_dead_code();
    test_constant_products();
    test_constant_products_are_bounded();
    test_dequantised();
    test_quantised();
    test_einsums();
    test_einsums_that_stay();
    test_einsums_in_order();
    test_einsums_of_many();
    test_einsums_are_bounded();
    test_einsums_of_attention();
    test_random_einsums();
    test_folding_is_bounded();
    test_random_models();
    return 0;
}
