/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What is no number stays none in the reference backend, and in cpu in all operators on single elements but those
 *          that docs/operators.md names; of those that it names, none makes a NaN of a number.
 * Method   Each operator by itself, and behind what it may be fused onto, of inputs of which a seventh is NaN. Which ones
 *          cpu does not keep is a matter of oneDNN's, and of the processor: that is left open here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { CHANNELS = 32, EDGE = 12, ELEMENTS = CHANNELS * EDGE * EDGE, WEIGHTS = CHANNELS * CHANNELS * 9 };

static struct builder b; /* one model at a time */

struct operator_row {
    const char *name, *more; /* inputs beside the first */
    bool named;              /* in docs/operators.md: cpu need not keep NaN */
};

static const struct operator_row rows[] = {
    {"Abs", "", false}, {"Clip", " zero six", true}, {"Elu", "", false}, {"Erf", "", false}, {"Exp", "", true},
    {"HardSigmoid", "", false}, {"HardSwish", "", false}, {"LeakyRelu", "", false}, {"Log", "", false}, {"LogSoftmax", "", false},
    {"Max", " six", false}, {"Min", " six", false}, {"Neg", "", false}, {"PRelu", " six", false},
    {"Pow", " six", false}, {"Reciprocal", "", false}, {"Relu", "", true}, {"Selu", "", false},
    {"Sigmoid", "", false}, {"Softmax", "", true}, {"Softplus", "", false}, {"Sqrt", "", false}, {"Tanh", "", false},
};

static void
fill(float *x, size_t count, bool odd, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = leat_test_random(random);
        x[i] = odd && bits % 7 == 0 ? NAN : (float)(bits % 100) / 40.0f - 1.0f;
    }
}

/* x to y through both backends: `kept` is where cpu has to have every NaN that reference has. */
static void
check(const char *host, const char *name, bool kept)
{
    const struct leat_backend *const backends[2] = {&leat_backend_reference, &leat_backend_cpu};
    uint64_t random = leat_test_seed;
    static float x[ELEMENTS];
    float *answers[2];
    struct loaded loaded;
    size_t bytes = 0, nans = 0, lost = 0, made = 0;

    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    fill(x, ELEMENTS, true, &random);
    for (int k = 0; k < 2; k++) {
        load(backends[k], graph, &loaded);
        bytes = loaded.infos[1].item_bytes;
        answers[k] = malloc(bytes);
        EXPECT(answers[k] != NULL);
        EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){answers[k]}) == LEAT_OK);
        unload(&loaded);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
        nans += isnan(answers[0][i]) != 0;
        lost += isnan(answers[0][i]) && !isnan(answers[1][i]);
        made += !isnan(answers[0][i]) && isnan(answers[1][i]);
    }
    if (nans == 0 || (kept && lost > 0) || made > 0) {
        (void)fprintf(stderr, "%s%s: %zu NaN in reference, of which cpu lost %zu; it made %zu (seed %llu)\n", host, name,
                      nans, lost, made, (unsigned long long)leat_test_seed);
    }
    EXPECT(nans > 0 && (!kept || lost == 0) && made == 0);
    free(answers[0]);
    free(answers[1]);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

static void
start(void)
{
    static float weights[WEIGHTS];
    uint64_t random = leat_test_seed;

    fill(weights, WEIGHTS, false, &random);
    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, CHANNELS, EDGE, EDGE));
    (void)builder_constant(&b, "zero", ONNX_F32, (const float[]){0}, NULL, 0);
    (void)builder_constant(&b, "six", ONNX_F32, (const float[]){6}, NULL, 0);
    (void)builder_constant(&b, "full", ONNX_F32, weights, DIMS(CHANNELS, CHANNELS, 3, 3));
    (void)builder_constant(&b, "point", ONNX_F32, weights, DIMS(CHANNELS, CHANNELS, 1, 1));
    (void)builder_constant(&b, "single", ONNX_F32, weights, DIMS(CHANNELS, 1, 3, 3));
    (void)builder_constant(&b, "square", ONNX_F32, weights, DIMS(EDGE, EDGE));
}

static void
same_size(Onnx__NodeProto *node)
{
    (void)builder_ints(&b, node, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
}

/* Where what it is fused onto leaves its result; "x": nothing. */
static const char *
add_host(const char *host)
{
    if (strcmp(host, "3x3 ") == 0) {
        same_size(builder_node(&b, "Conv", "x full", "h"));
    } else if (strcmp(host, "1x1 ") == 0) {
        (void)builder_node(&b, "Conv", "x point", "h");
    } else if (strcmp(host, "depthwise ") == 0) {
        Onnx__NodeProto *node = builder_node(&b, "Conv", "x single", "h");
        same_size(node);
        (void)builder_int(&b, node, "group", CHANNELS);
    } else if (strcmp(host, "MatMul ") == 0) {
        (void)builder_node(&b, "MatMul", "x square", "h");
    } else if (strcmp(host, "Add ") == 0) {
        (void)builder_node(&b, "Add", "x x", "h");
    } else {
        return "x";
    }
    return "h";
}

static void
test_operators(void)
{
    static const char *const hosts[] = {"", "3x3 ", "1x1 ", "depthwise ", "MatMul ", "Add "};
    char inputs[64];

    for (size_t h = 0; h < LEAT_COUNT_OF(hosts); h++) {
        for (size_t r = 0; r < LEAT_COUNT_OF(rows); r++) {
            start();
            (void)snprintf(inputs, sizeof(inputs), "%s%s", add_host(hosts[h]), rows[r].more);
            (void)builder_node(&b, rows[r].name, inputs, "y");
            check(hosts[h], rows[r].name, !rows[r].named);
        }
        start(); /* x Sigmoid(x), which becomes one function */
        const char *x = add_host(hosts[h]);
        (void)builder_node(&b, "Sigmoid", x, "gate");
        (void)snprintf(inputs, sizeof(inputs), "%s gate", x);
        (void)builder_node(&b, "Mul", inputs, "y");
        check(hosts[h], "Swish", true);
    }
}

static void
test_greatest(void)
{
    static const char *const kept[] = {"ReduceMax", "ReduceMin"};

    for (size_t r = 0; r < LEAT_COUNT_OF(kept); r++) {
        start();
        (void)builder_ints(&b, builder_node(&b, kept[r], "x", "y"), "axes", (const int64_t[]){1}, 1);
        check("", kept[r], true);
    }
    start();
    (void)builder_ints(&b, builder_node(&b, "MaxPool", "x", "y"), "kernel_shape", (const int64_t[]){2, 2}, 2);
    check("", "MaxPool", false);
    start();
    (void)builder_node(&b, "GlobalMaxPool", "x", "y");
    check("", "GlobalMaxPool", false);
}

int
main(void)
{
    leat_test_init();
    test_operators();
    test_greatest();
    return 0;
}
