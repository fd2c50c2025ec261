/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Quantising and dequantising give on the cpu backend, bit by bit, what they give on the reference backend.
 * Method   Random tensors of u8, s8 and i32, one scale or one for each channel of any axis, with and without zero points,
 *          of sizes that fill no vector and such as a team shares; plain, and in the layout that a convolution in front of
 *          them leaves. Floats lie on the steps, half way between two of them, next to that, far beyond, and nowhere (NaN).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = 400, TEAM = 2, ONNX_U8 = 2, ONNX_I8 = 3 };

static uint64_t random_state;
static struct builder b;

static int64_t
between(int64_t low, int64_t high)
{
    return low + (int64_t)(leat_test_random(&random_state) % (uint64_t)(high - low + 1));
}

static size_t
elements_of(const int64_t *dims, size_t rank)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= (size_t)dims[d];
    }
    return count;
}

static size_t
bytes_of(int type)
{
    return type == ONNX_U8 || type == ONNX_I8 ? 1 : 4;
}

static void *
random_bytes(size_t count)
{
    uint8_t *data = malloc(count + 1);
    EXPECT(data != NULL);
    for (size_t i = 0; i < count; i++) {
        data[i] = (uint8_t)leat_test_random(&random_state);
    }
    return data;
}

/* Some multiple of half a step of `scale`, or next to it, or what is no number or as large as nothing else. */
static float
random_float(float scale)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
    const float x = (float)between(-700, 700) / 2 * scale;

    switch (between(0, 9)) {
    case 0:
        return odd[between(0, (int64_t)LEAT_COUNT_OF(odd) - 1)];
    case 1:
        return nextafterf(x, INFINITY);
    case 2:
        return nextafterf(x, -INFINITY);
    default:
        return x;
    }
}

static float
random_scale(void)
{
    static const float odd[] = {1e-38f, 1e-42f, 1e30f, 1.0f, 0.0078125f};
    return between(0, 3) == 0 ? odd[between(0, (int64_t)LEAT_COUNT_OF(odd) - 1)]
                              : (float)between(1, 1000) / 999.0f;
}

static void
expect_same(const struct leat_graph *graph, struct leat_team *team, const void *const *inputs)
{
    void *want[3] = {NULL}, *have[3] = {NULL};
    struct loaded loaded;

    for (uint32_t o = 0; o < graph->output_count; o++) {
        want[o] = random_bytes(leat_value_bytes(&graph->values[graph->outputs[o]]));
        have[o] = random_bytes(leat_value_bytes(&graph->values[graph->outputs[o]]));
    }
    load(&leat_backend_reference, graph, &loaded);
    EXPECT(run(&loaded, inputs, want) == LEAT_OK);
    unload(&loaded);
    for (int form = 0; form < 2; form++) {
        load_for_team(&leat_backend_cpu, graph, form == 1 ? team : NULL, &loaded);
        EXPECT(run(&loaded, inputs, have) == LEAT_OK);
        unload(&loaded);
        for (uint32_t o = 0; o < graph->output_count; o++) {
            EXPECT(memcmp(want[o], have[o], leat_value_bytes(&graph->values[graph->outputs[o]])) ==
                   0);
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        free(want[o]);
        free(have[o]);
    }
}

static void
random_dims(int64_t dims[4], size_t rank)
{
    for (size_t d = 0; d < rank; d++) {
        dims[d] = between(0, 5) == 0 ? between(30, 70) : between(1, 9);
    }
}

/* Constants "scale" and, where there is one, "zero"; returns the names of the inputs of a node. */
static const char *
add_scales(int type, int64_t channels, bool zero, float *ret_scale)
{
    float *scales = malloc(((size_t)channels + 1) * sizeof(*scales));
    uint8_t *zeros = random_bytes((size_t)channels * bytes_of(type));
    const size_t rank = channels > 1 || between(0, 1) == 0 ? 1 : 0;

    EXPECT(scales != NULL);
    for (int64_t c = 0; c < channels; c++) {
        scales[c] = random_scale();
    }
    *ret_scale = scales[0];
    (void)builder_constant(&b, "scale", ONNX_F32, scales, &channels, rank);
    if (zero) {
        (void)builder_constant(&b, "zero", type, zeros, &channels, rank);
    }
    free(scales);
    free(zeros);
    return zero ? "x scale zero" : "x scale";
}

static void
test_scales(struct leat_team *team, bool quantises)
{
    const int64_t kind = between(0, quantises ? 1 : 2);
    const int type = kind == 0 ? ONNX_U8 : kind == 1 ? ONNX_I8 : ONNX_I32;
    const size_t rank = (size_t)between(1, 4);
    const int64_t axis = between(0, (int64_t)rank - 1);
    const bool zero = type == ONNX_I8 || between(0, 3) != 0, by_channel = between(0, 1) == 0;
    int64_t dims[4];
    float scale;

    random_dims(dims, rank);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", quantises ? ONNX_F32 : type, dims, rank);
    const char *names = add_scales(type, by_channel ? dims[axis] : 1, zero, &scale);
    Onnx__NodeProto *node =
        builder_node(&b, quantises ? "QuantizeLinear" : "DequantizeLinear", names, "y");
    (void)builder_int(&b, node, "axis", axis);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    const size_t count = elements_of(dims, rank);
    void *x = random_bytes(count * sizeof(float));
    for (size_t i = 0; i < count && quantises; i++) {
        ((float *)x)[i] = random_float(scale);
    }
    expect_same(graph, team, (const void *const[]){x});
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* x in whole numbers and back, between convolutions that return their input: in the layout that those like. */
static void
test_layouts(struct leat_team *team)
{
    const int64_t channels = between(1, 40), side = between(1, 9);
    const int type = between(0, 1) == 0 ? ONNX_U8 : ONNX_I8;
    const float scale = 1.0f / 32;
    const uint8_t zero = (uint8_t)leat_test_random(&random_state);

    builder_init(&b, 13);
    (void)builder_input(&b, "input", ONNX_F32, DIMS(2, channels, side, side));
    float *identity = calloc((size_t)(channels * channels), sizeof(*identity));
    EXPECT(identity != NULL);
    for (int64_t c = 0; c < channels; c++) {
        identity[c * channels + c] = 1;
    }
    (void)builder_constant(&b, "w", ONNX_F32, identity, DIMS(channels, channels, 1, 1));
    (void)builder_constant(&b, "scale", ONNX_F32, &scale, NULL, 0);
    (void)builder_constant(&b, "zero", type, &zero, NULL, 0);
    (void)builder_node(&b, "Conv", "input w", "x");
    (void)builder_node(&b, "QuantizeLinear", "x scale zero", "q");
    (void)builder_node(&b, "DequantizeLinear", "q scale zero", "r");
    (void)builder_node(&b, "Conv", "r w", "y");
    builder_output(&b, "q");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    const size_t count = (size_t)(2 * channels * side * side);
    float *x = malloc((count + 1) * sizeof(*x));
    EXPECT(x != NULL);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)between(-300, 300) / 64;
    }
    expect_same(graph, team, (const void *const[]){x});
    free(x);
    free(identity);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

static void
test_dynamic(struct leat_team *team)
{
    const size_t rank = (size_t)between(1, 4);
    const int64_t outputs = between(1, 3), what = between(0, 5);
    const float scale = random_scale();
    int64_t dims[4];

    random_dims(dims, rank);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_node(&b, "DynamicQuantizeLinear", "x",
                       outputs == 1   ? "y"
                       : outputs == 2 ? "y s"
                                      : "y s z");
    builder_output(&b, "y");
    if (outputs > 1) {
        builder_output(&b, "s");
    }
    if (outputs > 2) {
        builder_output(&b, "z");
    }
    struct leat_graph *graph = import_graph(&b);
    const size_t count = elements_of(dims, rank);
    float *x = malloc((count + 1) * sizeof(*x));
    EXPECT(x != NULL);
    for (size_t i = 0; i < count;
         i++) { /* zeros alone, with or without what is no number, all of one sign, or others */
        const float given = (float)between(-1000, 1000) * scale;
        x[i] = what == 0   ? 0
               : what == 1 ? random_float(scale)
               : what == 2 ? fabsf(given)
               : what == 3 ? -fabsf(given)
                           : given;
    }
    expect_same(graph, team, (const void *const[]){x});
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

int
main(void)
{
    struct leat_team *team;

    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) ==
           LEAT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        test_scales(team, true);
        test_scales(team, false);
        test_layouts(team);
        test_dynamic(team);
    }
    leat_team_destroy(team);
    return 0;
}
