/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Quantising and dequantising give on the cpu backend, bit by bit, what they give on the reference backend; what
 *          passes make of the operators between them differs from what the file says by one step at most, and by nothing
 *          where floats are exact, or nothing is multiplied.
 * Method   Random tensors of u8, s8 and i32, one scale or one for each channel of any axis, with and without zero points,
 *          of sizes that fill no vector and such as a team shares; plain, and in the layout that a convolution in front of
 *          them leaves. Floats lie on the steps, half way between two of them, next to that, far beyond, and nowhere (NaN).
 *          Then random convolutions, products, sums and moves in QDQ form, the reference backend on the file's graph beside
 *          the cpu backend on what passes make of it, which has to be of 8 bits: single ones with scales of any size,
 *          chains with powers of two and even zero points, each once more with some pass left out. All of it again as
 *          processors do it that cap sums of 8-bit products. Sums that lie half way between two results, with any zero points, where
 *          kernels are ours.
 *          Sums and products of all pairs of numbers.
 *          A product whose sums are beyond 32 bits, and one as long whose sums are not.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/fours.h"
#include "kernels/cpu/loops/qlinear.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(400), NETWORKS = LEAT_TEST_ROUNDS(150), TEAM = 2 };

static struct builder b;

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
    EXPECT(count_plain_loops(graph, LEAT_OP_QUANTIZE_LINEAR) == 0);
    EXPECT(count_plain_loops(graph, LEAT_OP_DEQUANTIZE_LINEAR) == 0);
    EXPECT(count_plain_loops(graph, LEAT_OP_DYNAMIC_QUANTIZE_LINEAR) == 0);
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

static struct cpu_scale
random_quantisation(float about)
{
    struct cpu_scale scale = {.scale = about, .is_signed = between(0, 1) == 0};

    scale.zero = (int32_t)(between(0, 2) == 0 ? 0 : between(scale.is_signed ? -128 : 0, scale.is_signed ? 127 : 255));
    return scale;
}

static float
dequantised(uint8_t x, const struct cpu_scale *scale)
{
    return (float)((scale->is_signed ? (int8_t)x : x) - scale->zero) * scale->scale;
}

/* All pairs of numbers, of scales as networks have them, that are sums of each other, and odd ones; returns whether it was done quickly. */
static bool
combine_pairs(bool product)
{
    enum { ALL = UINT8_MAX + 1 };
    const bool odd = between(0, 4) == 0, ties = between(0, 4) == 0;
    const float first = odd ? random_scale() : (float)between(100, 9999) * 1e-5f, second = ties ? first : (float)between(100, 9999) * 1e-5f;
    const float about = ties ? 2 * first : (product ? 40 * first * second : first + second) * (float)between(500, 1500) * 1e-3f;
    struct cpu_combination c = {product, random_quantisation(first), random_quantisation(second), random_quantisation(about), false};
    const int64_t least = c.y.is_signed ? INT8_MIN : 0, most = c.y.is_signed ? INT8_MAX : UINT8_MAX;
    uint8_t a[ALL], b_all[ALL], y[ALL];

    c.quick = cpu_combines_quickly(&c);
    for (int i = 0; i < ALL; i++) {
        b_all[i] = (uint8_t)i;
    }
    for (int i = 0; i < ALL; i++) {
        memset(a, i, sizeof(a));
        cpu_combine_quantised(&c, a, b_all, y, ALL);
        for (int k = 0; k < ALL; k++) {
            const float left = dequantised((uint8_t)i, &c.a), right = dequantised((uint8_t)k, &c.b);
            const float both = product ? left * right : left + right, quotient = both / c.y.scale;
            const float near = isnan(quotient) ? 0 : nearbyintf(fmaxf(-1000, fminf(1000, quotient)));
            const int64_t want = (int64_t)near + c.y.zero, have = c.y.is_signed ? (int8_t)y[k] : y[k];
            EXPECT(have == (want < least ? least : want > most ? most : want));
        }
    }
    return c.quick;
}

static void
test_combinations(void)
{
    int quick = 0;

    for (int round = 0; round < ROUNDS / 4; round++) {
        quick += combine_pairs(false);
        quick += combine_pairs(true);
    }
    EXPECT(quick < ROUNDS / 2 && (!cpu_fours_run_here() || quick > ROUNDS / 8)); /* not all of them, and not none */
}

/* ---- Networks ------------------------------------------------------------------------------------------- */

/* How the tensors of a network are quantised. */
static struct {
    int type;                           /* of activations */
    bool exact;                         /* scales are powers of two, zero points even */
    bool divides;                       /* by a result, which may be 0 of either sign: backends choose one */
    uint32_t count;                     /* of tensors */
    int zero;                           /* of the last one */
    uint32_t products, sums, functions; /* that have to become such of 8-bit numbers */
} net;

static float
some_scale(float about)
{
    return net.exact ? exp2f(roundf(log2f(about))) : about * (float)between(700, 1400) / 1000;
}

/* Value `from` in whole numbers and back; returns the name of the floats, which is good until 16 more were made. */
static const char *
add_qdq(const char *from, float scale, int zero)
{
    static char names[16][16];
    char *name = names[net.count % 16], inputs[64], quantised[16], scales[16], zeros[16];
    const int8_t number = (int8_t)zero;

    (void)snprintf(quantised, sizeof(quantised), "q%u", net.count);
    (void)snprintf(scales, sizeof(scales), "s%u", net.count);
    (void)snprintf(zeros, sizeof(zeros), "z%u", net.count);
    (void)snprintf(name, sizeof(names[0]), "d%u", net.count++);
    net.zero = zero;
    (void)builder_constant(&b, scales, ONNX_F32, &scale, NULL, 0);
    (void)builder_constant(&b, zeros, net.type, &number, NULL, 0);
    (void)snprintf(inputs, sizeof(inputs), "%s %s %s", from, scales, zeros);
    (void)builder_node(&b, "QuantizeLinear", inputs, quantised);
    (void)snprintf(inputs, sizeof(inputs), "%s %s %s", quantised, scales, zeros);
    (void)builder_node(&b, "DequantizeLinear", inputs, name);
    return name;
}

static int
some_zero(void)
{
    const int zero = (int)between(net.type == ONNX_U8 ? 0 : -128, net.type == ONNX_U8 ? 255 : 127);
    return between(0, 2) == 0 ? (net.type == ONNX_U8 ? 0 : -128) : net.exact ? zero & ~1 : zero;
}

/*
 * Weights `name`, scales along `axis` or one, and with them a bias `name`_bias: none, of i32 or of floats. Returns
 * whether there is one.
 */
static bool
add_weights(const char *name, const int64_t *dims, size_t rank, int64_t axis, float source)
{
    const int64_t channels = dims[axis], scales = between(0, 1) == 0 ? channels : 1,
                  form = between(0, 2);
    const size_t count = elements_of(dims, rank);
    char numbers[24], steps[24], zeros[24], bias[24], inputs[80];
    float *step = malloc((size_t)channels * sizeof(*step)),
          *product = malloc((size_t)channels * sizeof(*product));
    float *floats = malloc((size_t)channels * sizeof(*floats));
    int32_t *sums = malloc((size_t)channels * sizeof(*sums));
    int8_t *data = random_bytes(count), *zero = calloc((size_t)channels, 1);

    EXPECT(step != NULL && product != NULL && floats != NULL && sums != NULL && zero != NULL);
    for (int64_t c = 0; c < channels; c++) {
        step[c] = scales == 1 && c > 0 ? step[0] : some_scale(0.01f);
        product[c] = source * step[c];
        sums[c] = (int32_t)between(-2000, 2000);
        floats[c] = (float)sums[c] * product[c];
    }
    (void)snprintf(numbers, sizeof(numbers), "%s_q", name);
    (void)snprintf(steps, sizeof(steps), "%s_s", name);
    (void)snprintf(zeros, sizeof(zeros), "%s_z", name);
    (void)snprintf(bias, sizeof(bias), "%s_bias", name);
    (void)builder_constant(&b, numbers, ONNX_I8, data, dims, rank);
    (void)builder_constant(&b, steps, ONNX_F32, step, &scales, 1);
    (void)builder_constant(&b, zeros, ONNX_I8, zero, &scales, 1);
    (void)snprintf(inputs, sizeof(inputs), "%s %s %s", numbers, steps, zeros);
    (void)builder_int(&b, builder_node(&b, "DequantizeLinear", inputs, name), "axis", axis);
    if (form == 1) {
        (void)builder_constant(&b, bias, ONNX_F32, floats, &channels, 1);
    } else if (form == 2) {
        char bias_sums[32], bias_steps[32];
        (void)snprintf(bias_sums, sizeof(bias_sums), "%s_q", bias);
        (void)snprintf(bias_steps, sizeof(bias_steps), "%s_s", bias);
        (void)builder_constant(&b, bias_sums, ONNX_I32, sums, &channels, 1);
        (void)builder_constant(&b, bias_steps, ONNX_F32, product, &channels, 1);
        (void)snprintf(inputs, sizeof(inputs), "%s %s", bias_sums, bias_steps);
        (void)builder_int(&b, builder_node(&b, "DequantizeLinear", inputs, bias), "axis", 0);
    }
    free(step);
    free(product);
    free(floats);
    free(sums);
    free(data);
    free(zero);
    return form != 0;
}

/* x[items][inputs][image][image] into [items][outputs]...; returns the quantised result, *image and *scale are its own. */
static const char *
add_conv(const char *x, const char *name, int64_t inputs, int64_t outputs, int64_t groups,
         int64_t *image, float *scale)
{
    const int64_t kernel = between(1, *image < 3 ? *image : 3), stride = between(1, 2),
                  pad = between(0, kernel - 1);
    const int64_t fan = inputs / groups * kernel * kernel;
    char weights[24], list[80], result[24], active[24];
    const int activation = (int)between(0, 2);

    (void)snprintf(weights, sizeof(weights), "%s_w", name);
    (void)snprintf(result, sizeof(result), "%s_y", name);
    (void)snprintf(active, sizeof(active), "%s_a", name);
    const bool bias = add_weights(
        weights, (const int64_t[]){outputs, inputs / groups, kernel, kernel}, 4, 0, *scale);
    (void)snprintf(list, sizeof(list), "%s %s%s%s%s", x, weights, bias ? " " : "",
                   bias ? weights : "", bias ? "_bias" : "");
    Onnx__NodeProto *node = builder_node(&b, "Conv", list, result);
    (void)builder_ints(&b, node, "strides", DIMS(stride, stride));
    (void)builder_ints(&b, node, "pads", DIMS(pad, pad, pad, pad));
    (void)builder_int(&b, node, "group", groups);
    *image = (*image + 2 * pad - kernel) / stride + 1;
    *scale = some_scale(*scale * 0.01f * 128 * sqrtf((float)fan));
    const int least = net.type == ONNX_U8 ? 0 : -128;
    net.products++;
    if (activation == 0) {
        return add_qdq(result, *scale, some_zero());
    }
    if (activation == 1) {
        (void)builder_node(&b, "Relu", result, active);
    } else {
        const float bounds[2] = {0, 256 * *scale};
        char low[24], high[24];
        (void)snprintf(low, sizeof(low), "%s_low", name);
        (void)snprintf(high, sizeof(high), "%s_high", name);
        (void)builder_constant(&b, low, ONNX_F32, &bounds[0], NULL, 0);
        (void)builder_constant(&b, high, ONNX_F32, &bounds[1], NULL, 0);
        (void)snprintf(list, sizeof(list), "%s %s %s", result, low, high);
        (void)builder_node(&b, "Clip", list, active);
    }
    return add_qdq(active, *scale, least);
}

static uint32_t
count_kind(const struct leat_graph *graph, enum leat_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op->kind == kind;
    }
    return count;
}

static const enum leat_op_kind quantised_kinds[] = {LEAT_OP_QLINEAR_CONV, LEAT_OP_QLINEAR_MATMUL, LEAT_OP_QLINEAR_ADD,
                                                    LEAT_OP_QLINEAR_MUL,  LEAT_OP_QLINEAR_LOOKUP, LEAT_OP_QUANTIZE_LINEAR};

/* As many operators of 8-bit numbers of each kind. */
static bool
has_same_kinds(const struct leat_graph *graph, const struct leat_graph *other)
{
    for (size_t k = 0; k < LEAT_COUNT_OF(quantised_kinds); k++) {
        if (count_kind(graph, quantised_kinds[k]) != count_kind(other, quantised_kinds[k])) {
            return false;
        }
    }
    return true;
}

/*
 * What the passes but one make of the built network answers `want`. What is in floats without it may be rounded to another
 * step; in the cpu backend, whose convolutions of floats are not exact, that is bounded behind one product alone, and where
 * nothing is divided by what may be 0.
 */
static void
expect_without_one(const struct leat_graph *fused, const float *x, const float *want, size_t count, float step, int steps,
                   struct leat_team *team)
{
    const size_t pass = (size_t)between(0, (int64_t)leat_all_pass_count - 1);
    struct leat_graph *graph = import_graph(&b);
    float *have = random_bytes(count * sizeof(*have));
    struct loaded loaded;

    EXPECT(leat_graph_optimise(graph, ~(UINT64_C(1) << pass)) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    const bool as_numbers = has_same_kinds(graph, fused);
    for (int cpu = 0; cpu < (as_numbers || (net.products <= 1 && !net.divides) ? 2 : 1); cpu++) {
        const int most = as_numbers || (net.exact && !cpu) ? steps : 1;
        load_for_team(cpu ? &leat_backend_cpu : &leat_backend_reference, graph, cpu ? team : NULL, &loaded);
        EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){have}) == LEAT_OK);
        unload(&loaded);
        for (size_t i = 0; i < count; i++) {
            if (!(fabsf(have[i] - want[i]) <= (float)most * step * 1.0001f)) {
                (void)fprintf(stderr, "without %s, %s: element %zu is %g, not %g, of steps of %g\n", leat_passes[pass].name,
                              cpu ? "cpu" : "reference", i, (double)have[i], (double)want[i], (double)step);
                EXPECT(!"the answer with all passes");
            }
        }
    }
    free(have);
    leat_graph_destroy(graph);
}

/* The network ends in `last`, whose step is `step`; its results are off by `steps` at most. */
static void
expect_network(const char *last, float step, int steps, struct leat_team *team, float input)
{
    const struct leat_backend *const backends[3] = {&leat_backend_reference, &leat_backend_cpu,
                                                    &leat_backend_cpu};
    struct loaded loaded;

    builder_output(&b, last);
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK &&
           leat_graph_check(fused) == LEAT_OK);
    EXPECT(count_kind(fused, LEAT_OP_QLINEAR_CONV) + count_kind(fused, LEAT_OP_QLINEAR_MATMUL) ==
           net.products);
    EXPECT(count_kind(fused, LEAT_OP_QLINEAR_ADD) + count_kind(fused, LEAT_OP_QLINEAR_MUL) ==
           net.sums);
    EXPECT(count_kind(fused, LEAT_OP_QLINEAR_LOOKUP) <= net.functions);
    EXPECT(count_kind(fused, LEAT_OP_QUANTIZE_LINEAR) == fused->input_count);
    for (size_t k = 0; k < LEAT_COUNT_OF(quantised_kinds); k++) {
        EXPECT(count_plain_loops(fused, quantised_kinds[k]) == 0);
    }
    const size_t x_count = leat_value_elements(&plain->values[plain->inputs[0]]);
    const size_t count = leat_value_elements(&plain->values[plain->outputs[0]]);
    float *x = malloc((x_count + 1) * sizeof(*x)), *want = random_bytes(count * sizeof(*want));
    float *have = random_bytes(count * sizeof(*have));
    EXPECT(x != NULL);
    for (size_t i = 0; i < x_count; i++) {
        x[i] = (float)between(-280, 280) * input;
    }
    load(&leat_backend_reference, plain, &loaded);
    EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){want}) == LEAT_OK);
    unload(&loaded);
    for (int form = 0; form < 3;
         form++) { /* what passes made, as the oracle has it; on the cpu, and with a team */
        load_for_team(backends[form], fused, form == 2 ? team : NULL, &loaded);
        EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){have}) == LEAT_OK);
        unload(&loaded);
        for (size_t i = 0; i < count; i++) {
            if (!(fabsf(have[i] - want[i]) <= (float)steps * step * 1.0001f)) {
                (void)fprintf(stderr, "form %d: element %zu of %zu is %g, not %g, of steps of %g\n", form, i, count,
                              (double)have[i], (double)want[i], (double)step);
                EXPECT(!"what the file says");
            }
        }
    }
    expect_without_one(fused, x, want, count, step, steps, team);
    free(x);
    free(want);
    free(have);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
}

static void
start_network(bool exact)
{
    memset(&net, 0, sizeof(net));
    net.type = between(0, 1) == 0 ? ONNX_U8 : ONNX_I8;
    net.exact = exact;
    builder_init(&b, 13);
}

static void
test_conv(struct leat_team *team)
{
    const int64_t groups = between(0, 1) == 0 ? 1 : between(1, 20),
                  depth = between(0, 1) == 0 ? 1 : between(1, 12);
    const int64_t inputs = groups * depth, outputs = groups * between(1, groups == 1 ? 40 : 2);
    int64_t image = between(1, 9);

    start_network(false);
    float scale = some_scale(0.02f);
    const float input = scale;
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, inputs, image, image));
    const char *last =
        add_conv(add_qdq("x", scale, some_zero()), "c", inputs, outputs, groups, &image, &scale);
    expect_network(last, scale, 1, team, input);
}

static void
test_product(struct leat_team *team)
{
    const int64_t rows = between(1, 20), inner = between(1, 90), columns = between(1, 70),
                  form = between(0, 2);
    const int64_t dims[2] = {form == 1 ? columns : inner, form == 1 ? inner : columns};
    char list[64];

    start_network(false);
    const float input = some_scale(0.02f),
                scale = some_scale(input * 0.01f * 128 * sqrtf((float)inner));
    const int64_t x_dims[3] = {3, rows, inner};
    (void)builder_input(&b, "x", ONNX_F32, x_dims + (form < 2), form < 2 ? 2 : 3);
    const char *x = add_qdq("x", input, some_zero());
    const bool bias = add_weights("w", dims, 2, form == 1 ? 0 : 1, input);
    (void)snprintf(list, sizeof(list), "%s w%s", x, bias && form < 2 ? " w_bias" : "");
    Onnx__NodeProto *node = builder_node(&b, form < 2 ? "Gemm" : "MatMul", list, "y");
    if (form < 2) {
        (void)builder_int(&b, node, "transB", form == 1);
    }
    net.products++;
    expect_network(add_qdq("y", scale, some_zero()), scale, 1, team, input);
}

/* Sums of 255 times `weight` in the first column, of 255 in the second: those of 127 are beyond 32 bits. */
static void
test_long_product(struct leat_team *team, int8_t weight)
{
    enum { INNER = 70000 };
    const float unit = 1, step = 255.0f * INNER * (float)weight / 200;
    const uint8_t no_shift = 0;
    uint8_t *x = random_bytes(INNER);
    int8_t *w = random_bytes((size_t)2 * INNER);

    memset(x, UINT8_MAX, INNER);
    for (size_t k = 0; k < INNER; k++) {
        w[2 * k] = weight;
        w[2 * k + 1] = 1;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_U8, DIMS(1, INNER));
    (void)builder_constant(&b, "unit", ONNX_F32, &unit, NULL, 0);
    (void)builder_constant(&b, "step", ONNX_F32, &step, NULL, 0);
    (void)builder_constant(&b, "u8", ONNX_U8, &no_shift, NULL, 0);
    (void)builder_constant(&b, "s8", ONNX_I8, &no_shift, NULL, 0);
    (void)builder_constant(&b, "w", ONNX_I8, w, DIMS(INNER, 2));
    (void)builder_node(&b, "QLinearMatMul", "x unit u8 w unit s8 step u8", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_same(graph, team, (const void *const[]){x});
    leat_graph_destroy(graph);
    builder_fini(&b);
    free(x);
    free(w);
}

/* Something that keeps the numbers of `last`, whose names end in `layer`. Of some, passes find that all stay where they are. */
static const char *
add_move(const char *last, int layer, int64_t *channels, int64_t *image, float scale, bool *ret_stays)
{
    const int zero = net.zero;
    Onnx__NodeProto *node;
    int64_t order[64];
    char list[64], name[16];

    EXPECT(*channels <= (int64_t)LEAT_COUNT_OF(order));
    (void)snprintf(name, sizeof(name), "move%d", layer);
    const int64_t form = between(0, 4);
    *ret_stays = form == 3;
    switch (form) {
    case 4: /* channels backwards */
        (void)snprintf(list, sizeof(list), "order%d", layer);
        for (int64_t c = 0; c < *channels; c++) {
            order[c] = *channels - 1 - c;
        }
        (void)builder_constant(&b, list, ONNX_I64, order, DIMS(*channels));
        (void)snprintf(list, sizeof(list), "%s order%d", last, layer);
        node = builder_node(&b, "Gather", list, name);
        (void)builder_int(&b, node, "axis", 1);
        break;
    case 0:
        node = builder_node(&b, "MaxPool", last, name);
        (void)builder_ints(&b, node, "kernel_shape", DIMS(2, 2));
        (void)builder_ints(&b, node, "pads", DIMS(1, 1, 0, 0));
        break;
    case 1:
        (void)builder_ints(&b, builder_node(&b, "Transpose", last, name), "perm", DIMS(0, 1, 3, 2));
        break;
    case 2:
        (void)snprintf(list, sizeof(list), "%s %s", last, last);
        (void)builder_int(&b, builder_node(&b, "Concat", list, name), "axis", 1);
        *channels *= 2;
        break;
    default:
        (void)snprintf(list, sizeof(list), "dims%d", layer);
        (void)builder_constant(&b, list, ONNX_I64, (const int64_t[]){2, *channels, *image, *image},
                               DIMS(4));
        (void)snprintf(list, sizeof(list), "%s dims%d", last, layer);
        (void)builder_node(&b, "Reshape", list, name);
    }
    return add_qdq(name, scale, zero);
}

/* Convolutions, sums, maxima and what moves, one behind the other. */
static void
test_chain(struct leat_team *team)
{
    /*
     * Floats are not exact in the convolutions that take the place of whole numbers: without VNNI all of them are such, with AVX2 alone
     * those by groups, or channels that are no multiple of 16.
     */
    const bool ours = cpu_fours_run_here() && between(0, 1) == 0, whole = ours || cpu_weights_most(true, dnnl_u8) == INT8_MAX;
    int64_t channels = ours && between(0, 1) == 0 ? 16 : between(1, 10), image = between(4, 9);
    float scale = 1.0f / 64;
    char list[64], name[16];

    start_network(true);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, channels, image, image));
    const char *last = add_qdq("x", scale, some_zero());
    for (int layer = 0; layer < (whole ? 3 : 1); layer++) {
        (void)snprintf(name, sizeof(name), "conv%d", layer);
        const bool by_channels = between(0, 1) == 0 && (!ours || channels % 16 == 0);
        last = add_conv(last, name, channels, channels, by_channels ? channels : 1, &image, &scale);
        const char *before = last;
        const int64_t channels_before = channels;
        bool stays = true;
        if (between(0, 1) == 0 && layer < 2) {
            last = add_move(last, layer, &channels, &image, scale, &stays);
        }
        if (between(0, 1) == 0) {
            before = channels == channels_before && !stays ? before : last;
            (void)snprintf(name, sizeof(name), "sum%d", layer);
            (void)snprintf(list, sizeof(list), "%s %s", before, last);
            (void)builder_node(&b, "Add", list, name);
            scale *= 2;
            net.sums += before != last;
            net.functions += before == last; /* of one number */
            last = add_qdq(name, scale, some_zero());
        }
    }
    expect_network(last, scale, whole ? 0 : 1, team, 1.0f / 128);
}

/* Two tensors of any scale, one and a constant vector, or one and a function of it, element by element. */
static void
test_sum(struct leat_team *team, bool product)
{
    const int64_t rows = between(1, 40), columns = between(1, 300);
    const enum { VECTOR, OTHER, ITSELF, FUNCTION } with = (int)between(0, 3);
    const char *second = "floats", *names[2];
    char list[64];

    start_network(false);
    const float scale_x = product ? some_scale(0.1f) : random_scale(),
                scale_y = product ? some_scale(0.02f) : random_scale();
    const float scale = product ? scale_x * scale_y * 100 : scale_x + scale_y;
    int8_t *numbers = random_bytes((size_t)columns);
    const int8_t zero = (int8_t)some_zero();
    (void)builder_input(&b, "x", ONNX_F32, DIMS(rows, columns));
    (void)builder_constant(&b, "v", net.type, numbers, DIMS(columns));
    (void)builder_constant(&b, "v_zero", net.type, &zero, NULL, 0);
    (void)builder_constant(&b, "v_scale", ONNX_F32, &scale_y, NULL, 0);
    (void)builder_node(&b, "DequantizeLinear", "v v_scale v_zero", "floats");
    const char *first = add_qdq("x", scale_x, some_zero());
    if (with == OTHER) { /* the columns backwards */
        int64_t order[300];
        for (int64_t c = 0; c < columns; c++) {
            order[c] = columns - 1 - c;
        }
        (void)builder_constant(&b, "order", ONNX_I64, order, DIMS(columns));
        (void)snprintf(list, sizeof(list), "%s order", first);
        (void)builder_int(&b, builder_node(&b, "Gather", list, "other"), "axis", 1);
        second = add_qdq("other", scale_x, net.zero);
    } else if (with == FUNCTION) {
        (void)builder_node(&b, "Tanh", first, "function");
        second = add_qdq("function", scale_y, some_zero());
    } else if (with == ITSELF) {
        second = first;
    }
    names[0] = first;
    names[1] = second;
    const int64_t swapped = between(0, 1);
    (void)snprintf(list, sizeof(list), "%s %s", names[swapped], names[1 - swapped]);
    (void)builder_node(&b, product ? "Mul" : "Add", list, "y");
    net.sums += with == VECTOR || with == OTHER;
    net.functions += with == ITSELF || with == FUNCTION;
    expect_network(add_qdq("y", scale, some_zero()), scale, 0, team, scale_x / 2);
    free(numbers);
}

/* Feature maps, plain or as a convolution leaves them, and one number for each channel of each item, one of their pixels. */
static void
test_spread(struct leat_team *team, bool product)
{
    const bool whole = cpu_fours_run_here() || cpu_weights_most(true, dnnl_u8) == INT8_MAX, behind = whole && between(0, 1) == 0;
    int64_t channels = between(0, 1) == 0 ? 16 * between(1, 9) : between(1, 40), image = between(2, 9);
    float scale = 1.0f / 64;
    char list[64];

    start_network(true);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, channels, image, image));
    const char *first = add_qdq("x", scale, some_zero());
    if (behind) {
        const int64_t outputs = between(1, 40);
        first = add_conv(first, "conv", channels, outputs, 1, &image, &scale);
    }
    (void)builder_constant(&b, "begin", ONNX_I64, (const int64_t[]){0, 0}, DIMS(2));
    (void)builder_constant(&b, "end", ONNX_I64, (const int64_t[]){1, 1}, DIMS(2));
    (void)builder_constant(&b, "axes", ONNX_I64, (const int64_t[]){2, 3}, DIMS(2));
    (void)snprintf(list, sizeof(list), "%s begin end axes", first);
    (void)builder_node(&b, "Slice", list, "pixel");
    const char *second = add_qdq("pixel", scale, net.zero);
    const bool swapped = between(0, 1) == 0;
    (void)snprintf(list, sizeof(list), "%s %s", swapped ? second : first, swapped ? first : second);
    (void)builder_node(&b, product ? "Mul" : "Add", list, "r");
    const float result = some_scale(product ? scale * scale * 100 : 2 * scale);
    net.sums = 1;
    expect_network(add_qdq("r", result, some_zero()), result, 0, team, 1.0f / 128);
}

/* Functions of single elements, one behind the other: the same for all numbers that are equal. */
static void
test_functions(struct leat_team *team)
{
    static const char *const functions[] = {"Sigmoid", "Tanh", "Relu", "Erf", "HardSwish",
                                            "Abs",     "Mul",  "Div",  "Add", ""};
    const float two = 2, scale = some_scale(0.05f);
    const int64_t rows = between(1, 100), columns = between(1, 200);
    char list[64], name[16], kept[4][16];

    start_network(false);
    b.opset.version = 14; /* for HardSwish */
    (void)builder_input(&b, "x", ONNX_F32, DIMS(rows, columns));
    (void)builder_constant(&b, "two", ONNX_F32, &two, NULL, 0);
    const char *last = add_qdq("x", scale, some_zero());
    for (int64_t i = 0, count = between(1, 4); i < count; i++) {
        const char *function = functions[between(0, (int64_t)LEAT_COUNT_OF(functions) - 1)];
        if (function[0] == '\0') {
            continue;
        }
        const bool both = strcmp(function, "Mul") == 0 || strcmp(function, "Div") == 0 ||
                          strcmp(function, "Add") == 0;
        (void)snprintf(list, sizeof(list),
                       both && i % 2 == 0 ? "two %s"
                       : both             ? "%s two"
                                          : "%s",
                       last);
        (void)snprintf(name, sizeof(name), "f%d", (int)i);
        (void)builder_node(&b, function, list, name);
        net.divides = net.divides || (i % 2 == 0 && strcmp(function, "Div") == 0);
        (void)snprintf(kept[i], sizeof(kept[i]), "%s", name);
        last = kept[i];
    }
    const float result = some_scale(0.02f);
    net.functions = 1;
    expect_network(add_qdq(last, result, some_zero()), result, 0, team, scale / 2);
}

/* Windows along up to three axes, which differ in all that an axis may have; by groups, too. */
static void
test_windows(struct leat_team *team)
{
    const uint32_t rank = (uint32_t)between(1, 3);
    const bool apart = between(0, 2) == 0;
    const int64_t groups = apart ? 16 * between(1, 3) : between(0, 3) == 0 ? 2 : 1;
    const int64_t depth = apart ? 1 : between(0, 3) == 0 ? 16 : between(1, 9);
    int64_t x_dims[5] = {2, groups * depth}, w_dims[5] = {apart ? groups : groups * between(1, 20), depth}, fan = depth;
    int64_t strides[3], dilations[3], pads[6];
    char list[80];

    for (uint32_t d = 0; d < rank; d++) {
        const bool winograd = between(0, 3) == 0;
        w_dims[2 + d] = winograd ? 3 : between(1, 3);
        strides[d] = winograd ? 1 : between(1, 3);
        dilations[d] = winograd || between(0, 2) != 0 ? 1 : between(1, 3);
        x_dims[2 + d] = between(1, d + 1 == rank ? 14 : 8);
        pads[d] = between(0, 4);
        pads[rank + d] = between(0, 8);
        const int64_t missing = (w_dims[2 + d] - 1) * dilations[d] + 1 - x_dims[2 + d] - pads[d] - pads[rank + d];
        pads[d] += missing > 0 ? missing : 0;
        fan *= w_dims[2 + d];
    }
    start_network(false);
    const float scale = some_scale(0.02f);
    (void)builder_input(&b, "x", ONNX_F32, x_dims, rank + 2);
    const char *x = add_qdq("x", scale, some_zero());
    (void)snprintf(list, sizeof(list), "%s w%s", x, add_weights("w", w_dims, rank + 2, 0, scale) ? " w_bias" : "");
    Onnx__NodeProto *node = builder_node(&b, "Conv", list, "r");
    (void)builder_ints(&b, node, "strides", strides, rank);
    (void)builder_ints(&b, node, "dilations", dilations, rank);
    (void)builder_ints(&b, node, "pads", pads, 2 * rank);
    (void)builder_int(&b, node, "group", groups);
    net.products++;
    const float result = some_scale(scale * 0.01f * 128 * sqrtf((float)fan));
    expect_network(add_qdq("r", result, some_zero()), result, 1, team, scale);
}

/*
 * Many results lie half way between two steps, about zero points of which half are odd: with windows of all channels, and of each
 * channel, also of more than what is outside of the image is kept for. Where kernels are ours none is off by a step.
 */
static void
test_halves(struct leat_team *team)
{
    const bool apart = between(0, 3) != 0, many = apart && between(0, 9) == 0;
    const int64_t inputs = apart ? 1 : between(1, 9), outputs = apart ? 16 * (many ? 256 + between(1, 3) : between(1, 5)) : between(1, 40);
    const int64_t side = between(1, many ? 3 : 7), taps = side < 3 ? 1 : 9, kernel = taps == 9 ? 3 : 1;
    const int type = between(0, 1) == 0 ? ONNX_U8 : ONNX_I8;
    const float step = 0.5f, weight_step = 0.25f, result_step = ldexpf(0.125f, (int)between(1, 3));
    const size_t count = (size_t)(2 * outputs * side * side) * (size_t)inputs;
    int8_t *weights = random_bytes((size_t)(outputs * inputs * taps)), none = 0;
    uint8_t *x = random_bytes(count), *zeros = random_bytes(2);
    int32_t *bias = malloc((size_t)outputs * sizeof(*bias));

    EXPECT(bias != NULL);
    for (int64_t i = 0; i < outputs * inputs * taps; i++) {
        weights[i] = (int8_t)between(-2, 2);
    }
    for (int64_t o = 0; o < outputs; o++) {
        bias[o] = (int32_t)between(-99, 99);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", type, DIMS(2, apart ? outputs : inputs, side, side));
    (void)builder_constant(&b, "w", ONNX_I8, weights, DIMS(outputs, inputs, kernel, kernel));
    (void)builder_constant(&b, "bias", ONNX_I32, bias, DIMS(outputs));
    (void)builder_constant(&b, "xs", ONNX_F32, &step, NULL, 0);
    (void)builder_constant(&b, "xz", type, &zeros[0], NULL, 0);
    (void)builder_constant(&b, "ws", ONNX_F32, &weight_step, NULL, 0);
    (void)builder_constant(&b, "wz", ONNX_I8, &none, NULL, 0);
    (void)builder_constant(&b, "ys", ONNX_F32, &result_step, NULL, 0);
    (void)builder_constant(&b, "yz", type, &zeros[1], NULL, 0);
    Onnx__NodeProto *node = builder_node(&b, "QLinearConv", "x xs xz w ws wz ys yz bias", "y");
    (void)builder_ints(&b, node, "pads", DIMS(kernel / 2, kernel / 2, kernel / 2, kernel / 2));
    (void)builder_int(&b, node, "group", apart ? outputs : 1);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    if (cpu_fours_run_here()) {
        EXPECT(cpu_qconv_suits(graph, &graph->nodes[0], leat_node_input(graph, &graph->nodes[0], 3)));
        expect_same(graph, team, (const void *const[]){x});
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
    free(bias);
    free(zeros);
    free(x);
    free(weights);
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
    test_combinations();
    test_long_product(team, 1);
    test_long_product(team, 127);
    for (int round = 0; round < NETWORKS; round++) {
        test_conv(team);
        test_windows(team);
        test_halves(team);
        test_product(team);
        test_chain(team);
        test_sum(team, false);
        test_sum(team, true);
        test_spread(team, false);
        test_spread(team, true);
        test_functions(team);
    }
    leat_team_destroy(team);
    return 0;
}
