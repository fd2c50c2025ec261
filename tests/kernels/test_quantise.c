/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Convolutions and products of 8-bit whole numbers give what their definition says, with everything that is fused onto
 *          them, about 0 and about other numbers, and nothing is capped on the way; so do products with a factor for each
 *          channel, in every precision; calibration finds ranges, the same in any order of the batches.
 * Method   Random nodes between others that do nothing: the first and the last stay in floats, and one behind it makes the result
 *          whole numbers too. Inputs lie on the steps of their ranges or far beyond them, weights on steps of theirs, so that
 *          rounding is no matter of taste; sums by plain loops in double. A result in floats has to be right to 1e-5 of what is
 *          added up, one in whole numbers to 0.51 steps. Ranges against those of sorted elements.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/inspect.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/depthwise_whole.h"
#include "kernels/cpu/loops/points.h"
#include "kernels/cpu/loops/whole_image.h"
#include "kernels/cpu/program.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(300), CHANNELS_MAX = 48, IMAGE_MAX = 9 };

struct layer {
    bool product;    /* else a convolution */
    bool transposed; /* of a product: weights are [columns][inner] */
    int64_t items, inputs, outputs, image, kernel, stride, pad, groups;
    bool bias, add, pool, whole;       /* whole: its result is too */
    bool signed_source, signed_addend; /* ranges reach below 0 */
    int64_t zero;                      /* what stands for 0 in a source of u8 */
    bool shifted; /* 0 of a whole result is stored as another number, which its range asks for */
    bool beside;  /* it is read in floats too, and reaches "z" */
    bool extreme;                      /* the greatest inputs and weights alone */
    const char *activation;            /* operator, or NULL */
};

static float *
aligned_floats(size_t count)
{
    return aligned(count * sizeof(float));
}

/* ---- The graph -------------------------------------------------------------------------------------- */

static void
add_node(struct builder *b, const struct layer *l, const char *weights, const float *data,
         int64_t outputs, int64_t inputs, int64_t kernel, int64_t groups, const char *names,
         const char *output)
{
    Onnx__NodeProto *node = builder_node(b, l->product ? "Gemm" : "Conv", names, output);

    if (l->product) {
        (void)builder_constant(b, weights, 1, data,
                               l->transposed ? (const int64_t[]){outputs, inputs}
                                             : (const int64_t[]){inputs, outputs},
                               2);
        (void)builder_int(b, node, "transB", l->transposed);
    } else {
        (void)builder_constant(b, weights, 1, data, DIMS(outputs, inputs / groups, kernel, kernel));
        (void)builder_int(b, node, "group", groups);
    }
    if (!l->product && kernel == l->kernel && groups == l->groups && strcmp(output, "main") == 0) {
        (void)builder_ints(b, node, "strides", DIMS(l->stride, l->stride));
        (void)builder_ints(b, node, "pads", DIMS(l->pad, l->pad, l->pad, l->pad));
    }
}

/* One that returns its input. */
static void
add_identity(struct builder *b, const struct layer *l, int64_t channels, const char *weights,
             const char *input, const char *output)
{
    float *data = calloc((size_t)(channels * channels), sizeof(*data));
    char names[64];

    EXPECT(data != NULL);
    for (int64_t c = 0; c < channels; c++) {
        data[c * channels + c] = 1;
    }
    (void)snprintf(names, sizeof(names), "%s %s", input, weights);
    add_node(b, l, weights, data, channels, channels, 1, 1, names, output);
    free(data);
}

static struct leat_graph *
make_graph(const struct layer *l, const float *weights, const float *bias)
{
    struct leat_graph *graph = NULL;
    const char *last = "main";
    struct builder b;

    builder_init(&b, 14);
    if (l->product) {
        (void)builder_input(&b, "x", 1, DIMS(-1, l->inputs));
    } else {
        (void)builder_input(&b, "x", 1, DIMS(-1, l->inputs, l->image, l->image));
    }
    add_identity(&b, l, l->inputs, "first_weights", "x", "first");
    if (l->bias) {
        (void)builder_constant(&b, "bias", 1, bias, DIMS(l->outputs));
    }
    if (l->add) {
        add_identity(&b, l, l->inputs, "side_weights", "first", "side");
    }
    add_node(&b, l, "weights", weights, l->outputs, l->inputs, l->kernel, l->groups,
             l->bias ? "first weights bias" : "first weights", "main");
    if (l->add) {
        (void)builder_node(&b, "Add", "main side", "sum");
        last = "sum";
    }
    if (l->activation != NULL && strcmp(l->activation, "Swish") == 0) {
        char operands[32];
        (void)builder_node(&b, "Sigmoid", last, "gate");
        (void)snprintf(operands, sizeof(operands), "%s gate", last);
        (void)builder_node(&b, "Mul", operands, "active");
        last = "active";
    } else if (l->activation != NULL) {
        (void)builder_node(&b, l->activation, last, "active");
        last = "active";
    }
    (void)builder_node(&b, "Identity", last, "result"); /* has gone when it is optimised */
    if (l->pool) {
        Onnx__NodeProto *node = builder_node(&b, "MaxPool", last, "pooled");
        (void)builder_ints(&b, node, "kernel_shape", DIMS(2, 2));
        last = "pooled";
    }
    if (l->beside) {
        (void)builder_node(&b, "Neg", last, "z");
    }
    if (l->whole) {
        add_identity(&b, l, l->outputs, "middle_weights", last, "middle");
        last = "middle";
    }
    add_identity(&b, l, l->outputs, "last_weights", last, "y");
    builder_output(&b, "y");
    if (l->beside) {
        builder_output(&b, "z");
    }
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* ---- What it should answer -------------------------------------------------------------------------- */

static double
activate(const struct layer *l, double x)
{
    return l->activation == NULL                     ? x
           : strcmp(l->activation, "Relu") == 0      ? fmax(x, 0)
           : strcmp(l->activation, "Sigmoid") == 0   ? 1 / (1 + exp(-x))
           : strcmp(l->activation, "Swish") == 0     ? x / (1 + exp(-x))
           : strcmp(l->activation, "HardSwish") == 0 ? x * fmax(0, fmin(1, x / 6 + 0.5))
           : strcmp(l->activation, "LeakyRelu") == 0 ? (x < 0 ? 0.01 * x : x)
                                                     : tanh(x);
}

static double
cut(double x, double least, double most)
{
    return fmax(least, fmin(most, x));
}

/* On our kernel for AVX2, by its shape. */
static bool
in_fours(const struct layer *l)
{
    return cpu_fours_run_here() && l->groups == 1 &&
           (l->product || (l->inputs % CPU_FOURS_INPUTS == 0 && l->outputs % CPU_FOURS_OUTPUTS == 0));
}

/* On that of convolutions by channels. */
static bool
by_channels(const struct layer *l)
{
    return cpu_fours_run_here() && l->groups > 1 && l->groups == l->outputs && l->outputs % CPU_DEPTHWISE_WHOLE_CHANNELS == 0 && !l->add;
}

static bool
in_floats(const struct layer *l)
{
    return !in_fours(l) && !by_channels(l) && cpu_weights_most(!l->product, l->signed_source ? dnnl_s8 : dnnl_u8) == 0;
}

/* What makes the addend, or reads the result. */
static struct layer
identity_of(const struct layer *l, bool signed_source)
{
    return (struct layer){
        .product = l->product, .inputs = l->outputs, .outputs = l->outputs, .groups = 1, .signed_source = signed_source};
}

/* What weights of one sign add up to in a four at most, each times `factor` and rounded where it is not 0. */
static double
most_of_fours(const struct layer *l, const double *channel, float factor)
{
    const int64_t taps = l->kernel * l->kernel;
    double most = 0;

    for (int64_t four = 0; four < cpu_fours_count(l->inputs) * taps; four++) {
        double sums[2] = {0, 0};
        for (int64_t place = 0; place < CPU_FOURS_INPUTS; place++) {
            const int64_t input = cpu_input_of_four(four / taps, place);
            const float weight = input < l->inputs ? (float)channel[input * taps + four % taps] : 0;
            sums[weight < 0] += fabs((double)(factor != 0 ? nearbyintf(weight * factor) : weight));
        }
        most = fmax(most, fmax(sums[0], sums[1]));
    }
    return most;
}

/* In floats, as ours is: what lies between two steps is rounded by the same numbers. */
static float
step_of_fours(const struct layer *l, const double *channel, float furthest)
{
    const double fours = most_of_fours(l, channel, 0);
    const float step = fmaxf(furthest / 127, (float)(fours / CPU_FOURS_SUM));
    return most_of_fours(l, channel, 1 / step) <= CPU_FOURS_SUM ? step : fmaxf(furthest / 127, (float)(fours / (CPU_FOURS_SUM - 2)));
}

/* Weights as they are stored, times their step: [outputs][inputs / groups][kernel][kernel]. */
static void
round_weights(const struct layer *l, const float *weights, double *rounded)
{
    const size_t each = (size_t)(l->inputs / l->groups * l->kernel * l->kernel);
    const double given =
        (double)cpu_weights_most(!l->product, l->signed_source ? dnnl_s8 : dnnl_u8);
    const double most =
        !l->product && l->signed_source && given < 127 ? given / 2 : given; /* oneDNN halves them */

    for (size_t c = 0; c < (size_t)l->outputs; c++) {
        double furthest = 0;
        for (size_t i = 0; i < each; i++) {
            const size_t at =
                l->product && !l->transposed ? i * (size_t)l->outputs + c : c * each + i;
            rounded[c * each + i] = (double)weights[at];
            furthest = fmax(furthest, fabs((double)weights[at]));
        }
        if (in_fours(l)) {
            const float step = step_of_fours(l, rounded + c * each, (float)furthest);
            for (size_t i = 0; i < each; i++) {
                rounded[c * each + i] = (double)nearbyintf((float)rounded[c * each + i] * (1 / step)) * (double)step;
            }
        }
        const float fine = (float)furthest / CPU_DEPTHWISE_WHOLE_MOST; /* in floats, too */
        for (size_t i = 0; i < each && by_channels(l); i++) {
            rounded[c * each + i] = (double)nearbyintf((float)rounded[c * each + i] * (1 / fine)) * (double)fine;
        }
        for (size_t i = 0; i < each && !in_floats(l) && !in_fours(l) && !by_channels(l); i++) {
            rounded[c * each + i] =
                nearbyint(rounded[c * each + i] / furthest * most) * furthest / most;
        }
    }
}

static int64_t
out_image(const struct layer *l)
{
    return (l->image + 2 * l->pad - l->kernel) / l->stride + 1;
}

/* Results before they are stored and pooled, and what each adds up, for the bound. */
static void
expect_layer(const struct layer *l, const double *source, const double *addend,
             const double *weights, const float *bias, double *results, double *magnitudes)
{
    const int64_t out = out_image(l), fan = l->inputs / l->groups, k = l->kernel;

    for (int64_t n = 0; n < l->items; n++) {
        for (int64_t c = 0; c < l->outputs; c++) {
            for (int64_t p = 0; p < out * out; p++) {
                const int64_t at = (n * l->outputs + c) * out * out + p;
                double sum = l->bias ? (double)bias[c] : 0, magnitude = fabs(sum);
                for (int64_t i = 0; i < fan * k * k; i++) {
                    const int64_t y = p / out * l->stride - l->pad + i / k % k,
                                  x = p % out * l->stride - l->pad + i % k;
                    const int64_t channel = c / (l->outputs / l->groups) * fan + i / (k * k);
                    if (y >= 0 && y < l->image && x >= 0 && x < l->image) {
                        const double term =
                            source[((n * l->inputs + channel) * l->image + y) * l->image + x] *
                            weights[c * fan * k * k + i];
                        sum += term;
                        magnitude += fabs(term);
                    }
                }
                sum += l->add ? addend[at] : 0;
                magnitudes[at] = magnitude + (l->add ? fabs(addend[at]) : 0);
                results[at] = activate(l, sum);
            }
        }
    }
}

/* ---- One node --------------------------------------------------------------------------------------- */

static void
set_range(struct leat_graph *graph, const char *name, float least, float most, bool needed)
{
    const bool there = leat_graph_set_range(graph, &(struct leat_range){name, least, most});
    EXPECT(there || !needed);
}

static void
run_in(enum leat_precision precision, struct leat_graph *graph, const struct leat_segment *segment)
{
    struct leat_model_source source = {.graph = graph, .precision = precision};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) ==
           LEAT_OK);
    source.infos = infos;
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(leat_backend_cpu.plan_build(model, &(struct leat_plan_options){.items = segment->items},
                                       &plan) == LEAT_OK);
    void *scratch =
        aligned_alloc(64, (size_t)leat_round_up(leat_backend_cpu.plan_scratch_bytes(plan) + 1, 64));
    EXPECT(scratch != NULL);
    EXPECT(leat_backend_cpu.plan_run(plan, segment, 1, scratch, NULL) == LEAT_OK);
    free(scratch);
    leat_backend_cpu.plan_destroy(plan);
    leat_backend_cpu.model_destroy(model);
}

/* With VNNI all read u8 about another number than 0, which a range asks for. */
static bool
may_shift(void)
{
    return cpu_weights_most(true, dnnl_u8) == 127;
}

/* The greatest of 2x2. */
static double
pooled_at(const struct layer *l, const double *results, int64_t plane, int64_t y, int64_t x)
{
    const int64_t out = out_image(l);
    const double *r = results + plane * out * out + y * out + x;
    return fmax(fmax(r[0], r[1]), fmax(r[out], r[out + 1]));
}

/* How many steps of a program have kernels with `part` in their names. */
static uint32_t
count_kernels(const struct leat_graph *graph, const char *part)
{
    struct leat_inspection *inspection;
    uint32_t count = 0;

    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_INT8, 2, 1, &inspection) == LEAT_OK);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        struct leat_inspection_step step;
        leat_inspection_step(inspection, s, &step);
        count += strstr(step.kernel, part) != NULL;
    }
    leat_inspection_destroy(inspection);
    return count;
}

static void
test_layer(const struct layer *l)
{
    const int64_t out = out_image(l), fan = l->inputs / l->groups * l->kernel * l->kernel;
    const size_t source_count = (size_t)(l->items * l->inputs * l->image * l->image),
                 weight_count = (size_t)(l->outputs * fan);
    const size_t result_count = (size_t)(l->items * l->outputs * out * out);
    const struct layer side = identity_of(l, l->signed_source);
    const int64_t source_least = l->signed_source ? -128 : -l->zero,
                  /* a step below the range is a number too */ source_most =
                      l->signed_source ? 127 : 255 - l->zero;
    /* Powers of two, so that the first layer may be in bf16; the addend's is the side's own. */
    const double source_step = 1.0 / 64, addend_step = l->signed_source ? 1.0 / 64 : 3.0 / 64;
    float *x = aligned_floats(source_count), *weights = aligned_floats(weight_count),
          *bias = aligned_floats((size_t)l->outputs), *y = aligned_floats(result_count), *z = aligned_floats(result_count);
    double *source = calloc(source_count, sizeof(double)),
           *addend = calloc(source_count, sizeof(double)),
           *rounded = calloc(weight_count, sizeof(double)),
           *results = calloc(result_count, sizeof(double)),
           *magnitudes = calloc(result_count, sizeof(double));

    EXPECT(source != NULL && addend != NULL && rounded != NULL && results != NULL &&
           magnitudes != NULL);
    for (size_t i = 0; i < source_count; i++) {
        const int64_t steps =
            l->extreme ? source_most : between(source_least - 20, source_most + 20);
        x[i] = (float)((double)steps * source_step);
        const double stored = cut((double)steps, (double)source_least, (double)source_most);
        source[i] = (in_floats(l) ? (double)steps : stored) * source_step;
        addend[i] = (in_floats(&side) ? (double)steps : stored) * source_step;
        if (l->whole && !in_floats(l)) {
            addend[i] = cut(nearbyint(addend[i] / addend_step), l->signed_addend ? -128 : 0, l->signed_addend ? 127 : 255) *
                        addend_step;
        }
    }
    for (size_t i = 0; i < weight_count; i++) {
        const int64_t parts = by_channels(l) ? 64 : 1; /* finer than 8 bits */
        weights[i] = (float)(l->extreme ? 127 * parts : between(-127 * parts, 127 * parts)) / (float)(1270 * parts);
    }
    for (int64_t c = 0; c < l->outputs; c++) {
        /* The greatest of each channel: so none lies between two steps. */
        weights[l->product && !l->transposed ? (fan - 1) * l->outputs + c : c * fan] =
            127.0f / 1270;
        bias[c] = (float)between(-1000, 1000) / 1000;
    }
    round_weights(l, weights, rounded);
    expect_layer(l, source, addend, rounded, bias, results, magnitudes);

    double furthest = 0, least = 0, most_added = 0;
    for (size_t i = 0; i < result_count; i++) {
        furthest = fmax(furthest, fabs(results[i]));
        most_added = fmax(most_added, magnitudes[i]);
        least = fmin(least, results[i]);
    }
    furthest *= 0.9; /* some are beyond it */
    const bool signed_result = least < 0;
    /* Where products of s8 are in floats: so is the one behind it, and no u8 is added to s8. */
    const struct layer behind = identity_of(l, signed_result);
    const bool floats_behind = in_floats(&behind);
    const bool whole =
        l->whole && !(floats_behind && (l->signed_source || (l->add && !l->signed_addend)));
    const float most = (float)furthest, result_least = l->shifted      ? -most / 4
                                                       : signed_result ? -most
                                                                       : 0;
    const double result_step = ((double)most - (l->shifted ? (double)result_least : 0)) /
                               (signed_result && !l->shifted ? 127 : 255);
    const double zero = l->shifted      ? nearbyint(-(double)result_least / result_step)
                        : signed_result ? 128
                                        : 0;
    struct leat_graph *graph = make_graph(l, weights, bias);
    const float source_range = (float)(source_step * (double)source_most),
                source_below = (float)(source_step * (double)l->zero),
                addend_range = (float)(addend_step * (l->signed_addend ? 127 : 255));
    const char *name = l->activation != NULL ? "active" : l->add ? "sum" : "main";
    set_range(graph, "first", l->signed_source ? -source_range : -source_below, source_range, true);
    set_range(graph, "side", l->signed_addend ? -addend_range : 0, addend_range, l->add);
    if (l->whole && furthest > 0) {
        set_range(graph, name, result_least, most, true);
        set_range(graph, "pooled", result_least, most, l->pool);
    }
    const struct leat_segment segment = {.items = (uint32_t)l->items, .tensors = {x, y, z}};
    EXPECT(!cpu_fours_run_here() || !l->product || count_kernels(graph, "gemm") == 0); /* it locks */
    run_in(LEAT_PRECISION_INT8, graph, &segment);

    const int64_t last = l->pool ? out - 1 : out;
    for (int64_t plane = 0; plane < l->items * l->outputs; plane++) {
        for (int64_t p = 0; p < last * last; p++) {
            const double exact = l->pool ? pooled_at(l, results, plane, p / last, p % last)
                                         : results[plane * out * out + p];
            const double wanted =
                whole ? cut(exact, -zero * result_step, (255 - zero) * result_step) : exact;
            const double bound = (whole ? 0.51 * result_step : 0) + 1e-5 * (1 + most_added);
            const double got = (double)y[plane * last * last + p];
            const double beside = l->beside ? -(double)z[plane * last * last + p] : got;
            /* Not all of it is made in whole numbers: oneDNN does not add s8 to u8 everywhere. */
            const bool beside_right =
                fabs(beside - wanted) <= bound || fabs(beside - exact) <= 1e-5 * (1 + most_added);
            if (!(fabs(got - wanted) <= bound && beside_right)) {
                (void)fprintf(stderr,
                              "%s %lld times %lld -> %lld, image %lld, kernel %lld, stride %lld, "
                              "pad %lld, groups %lld%s%s%s%s%s%s%s%s, zero %lld, %s: %g, beside it "
                              "%g, not %g "
                              "(step %g)\n",
                              l->product ? "product" : "convolution", (long long)l->items,
                              (long long)l->inputs, (long long)l->outputs, (long long)l->image,
                              (long long)l->kernel, (long long)l->stride, (long long)l->pad,
                              (long long)l->groups, l->bias ? " bias" : "", l->add ? " add" : "",
                              l->pool ? " pool" : "", l->whole ? " whole" : "",
                              l->signed_source ? " s8" : " u8", l->shifted ? " shifted" : "",
                              l->signed_addend ? " addend s8" : "", l->extreme ? " extreme" : "",
                              (long long)l->zero, l->activation != NULL ? l->activation : "linear",
                              got, beside, wanted, result_step);
                EXPECT(!"what the definition says");
            }
        }
    }
    leat_graph_destroy(graph);
    free(x);
    free(weights);
    free(bias);
    free(y);
    free(z);
    free(source);
    free(addend);
    free(rounded);
    free(results);
    free(magnitudes);
}

static void
test_layers(void)
{
    static const char *const activations[] = {NULL, "Relu", "Sigmoid", "Tanh", "Swish", "HardSwish", "LeakyRelu"};

    for (int round = 0; round < ROUNDS; round++) {
        struct layer l = {
            .product = between(0, 2) == 0,
            .items = between(1, 3),
            .inputs = between(1, CHANNELS_MAX),
            .outputs = between(1, CHANNELS_MAX),
            .image = 1,
            .kernel = 1,
            .stride = 1,
            .groups = 1,
            .bias = between(0, 1) == 0,
            .add = between(0, 2) == 0,
            .whole = between(0, 2) != 0,
            .signed_source = between(0, 1) == 0,
            .extreme = between(0, 4) == 0,
            .activation = activations[between(0, LEAT_COUNT_OF(activations) - 1)],
        };
        l.transposed = l.product && between(0, 1) == 0;
        if (!l.product) {
            l.image = between(3, IMAGE_MAX);
            l.kernel = between(0, 1) == 0 ? 1 : 3;
            l.pad = l.kernel > 1 ? 1 : between(0, l.add ? 0 : 1);
            l.stride = l.add ? 1 : between(1, 2);
            l.pool = l.whole && between(0, 3) == 0 && out_image(&l) >= 2;
        }
        if (between(0, 1) == 0) { /* as our own kernel of 1x1 convolutions needs them */
            l.inputs = (int64_t)leat_round_up((uint64_t)l.inputs, CPU_POINTS_INPUTS);
            l.outputs = 16 * between(1, 6); /* more than a panel */
        }
        if (l.add) {
            l.inputs = l.outputs;
        }
        if (!l.product && l.inputs == l.outputs && between(0, 1) == 0) {
            l.groups = l.inputs; /* depthwise */
        }
        const struct layer side = identity_of(&l, false); /* as well where something is added, and what reads the result */
        if (!l.signed_source && (may_shift() || by_channels(&l) || (in_fours(&l) && (!l.add || in_fours(&side)))) &&
            between(0, 1) == 0) { /* not about in the middle, where it would be s8 */
            l.zero = between(0, 1) == 0 ? between(1, 109) : between(146, 254);
        }
        l.shifted = l.whole && !l.add && !l.pool && (may_shift() || in_fours(&side)) && between(0, 1) == 0;
        l.beside = l.whole && !l.pool && between(0, 1) == 0;
        l.signed_addend = l.signed_source || l.zero != 0 || (l.add && between(0, 1) == 0);
        test_layer(&l);
    }
}

/* ---- Calibration ------------------------------------------------------------------------------------ */

enum { BATCH = 8, BATCHES = 800, WIDTH = 40, CALIBRATED = BATCH * BATCHES * WIDTH };

static int
compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Of the input, and so of what the first node makes, which is the same. */
static struct leat_range
calibrate(const struct leat_graph *graph, const float *data, bool backwards)
{
    struct leat_range range = {.name = NULL}, first = {.name = NULL};
    struct leat_calibration *calibration;

    EXPECT(leat_calibration_create(graph, BATCH, &calibration) == LEAT_OK);
    for (size_t batch = 0; batch < BATCHES; batch++) {
        const void *const inputs[1] = {data +
                                       (backwards ? BATCHES - 1 - batch : batch) * BATCH * WIDTH};
        EXPECT(leat_calibration_run(calibration, inputs) == LEAT_OK);
    }
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range one = leat_calibration_range(calibration, i);
        range = strcmp(one.name, "x") == 0 ? one : range;
        first = strcmp(one.name, "first") == 0 ? one : first;
    }
    EXPECT(range.name != NULL && first.name != NULL);
    EXPECT(range.least == first.least && range.most == first.most);
    range.name = NULL; /* it goes with the calibration */
    leat_calibration_destroy(calibration);
    return range;
}

static void
test_calibration(void)
{
    const struct layer l = {.product = true,
                            .inputs = WIDTH,
                            .outputs = WIDTH,
                            .image = 1,
                            .kernel = 1,
                            .stride = 1,
                            .groups = 1};
    const size_t beyond = CALIBRATED / LEAT_CALIBRATION_BEYOND;
    float *data = aligned_floats(CALIBRATED), *weights = aligned_floats((size_t)WIDTH * WIDTH);

    for (size_t i = 0; i < (size_t)WIDTH * WIDTH; i++) {
        weights[i] = (float)between(-127, 127) / 127;
    }
    struct leat_graph *graph = make_graph(&l, weights, NULL);
    for (size_t i = 0; i < CALIBRATED; i++) {
        data[i] = (float)between(-1000000, 3000000) / 1e6f;
    }
    EXPECT(beyond >= 2);
    for (size_t i = 0; i < beyond; i++) { /* as many as are left out */
        data[(size_t)between(0, CALIBRATED / 2) + i * (CALIBRATED / 8)] = 1e6f;
    }
    const struct leat_range range = calibrate(graph, data, false),
                            again = calibrate(graph, data, true);
    EXPECT(range.least == again.least && range.most == again.most);
    qsort(data, CALIBRATED, sizeof(*data), compare_floats);
    const float most = data[CALIBRATED - 1 - beyond], least = data[beyond];
    EXPECT(data[CALIBRATED - 1] >= 1e6f && most <= 3);
    EXPECT(range.most >= most && range.most <= most * (1 + 1.0f / 32));
    EXPECT(range.least <= least && range.least >= least * (1 + 1.0f / 32));

    for (size_t i = 0; i < CALIBRATED; i++) {
        data[i] = i % 2 == 0 ? 0.25f : 0; /* what is the greatest of all is no wider than it is */
    }
    const struct leat_range flat = calibrate(graph, data, false);
    EXPECT(flat.least == 0 && flat.most == 0.25f);
    leat_graph_destroy(graph);
    free(data);
    free(weights);
}

/* Two products, and behind `place`, one of "x", "first" and "y", 8 bits and back. */
static bool
is_quantised_at(const char *place)
{
    const struct layer l = {.product = true, .inputs = 3};
    const bool at_x = strcmp(place, "x") == 0, at_first = strcmp(place, "first") == 0, at_y = strcmp(place, "y") == 0;
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, l.inputs));
    (void)builder_constant(&b, "step", 1, (const float[]){0.25f}, NULL, 0);
    (void)builder_constant(&b, "zero", 2, (const uint8_t[]){100}, NULL, 0);
    if (at_x) {
        (void)builder_node(&b, "QuantizeLinear", "x step zero", "whole");
        (void)builder_node(&b, "DequantizeLinear", "whole step zero", "x_again");
    }
    add_identity(&b, &l, l.inputs, "first_weights", at_x ? "x_again" : "x", "first");
    if (at_first) {
        (void)builder_node(&b, "QuantizeLinear", "first step zero", "whole");
        (void)builder_node(&b, "DequantizeLinear", "whole step zero", "first_again");
    }
    add_identity(&b, &l, l.inputs, "last_weights", at_first ? "first_again" : "first", "y");
    if (at_y) {
        (void)builder_node(&b, "QuantizeLinear", "y step zero", "whole");
    }
    builder_output(&b, at_y ? "whole" : "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    const bool quantised = leat_graph_is_quantised(graph);
    leat_graph_destroy(graph);
    return quantised;
}

/* Inputs and outputs in 8 bits are how a model is asked: what it multiplies can be quantised. */
static void
test_quantised_files(void)
{
    EXPECT(!is_quantised_at("nowhere"));
    EXPECT(!is_quantised_at("x"));
    EXPECT(is_quantised_at("first"));
    EXPECT(!is_quantised_at("y"));
}

/* ---- Factors of channels ---------------------------------------------------------------------------- */

/*
 * Between two convolutions that do nothing, and before a third, so that in int8 its result is whole numbers. `beside`: what is
 * scaled is read as whole numbers too, and reaches "z". `again`: one more before it, which in int8 multiplies whole numbers.
 */
static struct leat_graph *
make_scaled(const struct layer *l, bool beside, bool again)
{
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, l->inputs, l->image, l->image));
    (void)builder_input(&b, "factors", 1, DIMS(-1, l->inputs, 1, 1));
    add_identity(&b, l, l->inputs, "first_weights", "x", "first");
    if (again) {
        add_identity(&b, l, l->inputs, "again_weights", "first", "again");
    }
    (void)builder_node(&b, "Mul", again ? "again factors" : "first factors", "scaled");
    add_identity(&b, l, l->inputs, "middle_weights", "scaled", "middle");
    add_identity(&b, l, l->inputs, "last_weights", "middle", "y");
    builder_output(&b, "y");
    if (beside) {
        add_identity(&b, l, l->inputs, "side_weights", "first", "side");
        add_identity(&b, l, l->inputs, "end_weights", "side", "z");
        builder_output(&b, "z");
    }
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* In a precision that the processor has; inputs are exact in all of them. */
static void
test_scaled(enum leat_precision precision)
{
    const struct layer l = {.items = between(1, 3), .inputs = between(1, CHANNELS_MAX), .image = between(1, IMAGE_MAX)};
    const size_t pixels = (size_t)(l.image * l.image), count = (size_t)(l.items * l.inputs) * pixels;
    const bool is_signed = between(0, 1) == 0, beside = between(0, 1) == 0, again = between(0, 1) == 0;
    const struct layer reader = identity_of(&(struct layer){.outputs = l.inputs}, true);
    const bool shifted = is_signed && (may_shift() || in_fours(&reader)) && between(0, 1) == 0;
    const float range = again ? (is_signed ? 127 : 255) : 100; /* of the first: so that its numbers are whole */
    const float range_least = shifted ? -30 : is_signed ? -90 : 0;
    const float step = shifted     ? 120.0f / 255
                       : is_signed ? 90.0f / 127
                                   : 90.0f / 255; /* some results are beyond the range */
    float *x = aligned_floats(count), *factors = aligned_floats((size_t)(l.items * l.inputs)), *y = aligned_floats(count), *z = aligned_floats(count);
    struct leat_graph *graph = make_scaled(&l, beside, again);
    const struct leat_segment segment = {.items = (uint32_t)l.items, .tensors = {x, factors, y, z}};

    for (size_t i = 0; i < count; i++) {
        x[i] = (float)between(is_signed ? -100 : 0, 100);
    }
    for (int64_t i = 0; i < l.items * l.inputs; i++) {
        factors[i] = (float)between(0, 255) / 256;
    }
    set_range(graph, "scaled", range_least, 90, true);
    set_range(graph, "first", is_signed ? -range : 0, range, true);
    run_in(precision, graph, &segment);
    for (size_t i = 0; i < count; i++) {
        const float exact = x[i] * factors[i / pixels];
        const float zero = shifted     ? nearbyintf(30 / step)
                           : is_signed ? 128
                                       : 0,
                    least = -zero * step, most = (255 - zero) * step;
        const float wanted = precision == LEAT_PRECISION_INT8 ? fmaxf(least, fminf(most, exact)) : exact;
        const float bound = precision == LEAT_PRECISION_INT8   ? 0.51f * step
                            : precision == LEAT_PRECISION_BF16 ? fabsf(exact) / 256
                                                               : 0;
        EXPECT(fabsf(y[i] - wanted) <= bound + 1e-5f * fabsf(exact));
        EXPECT(!beside || fabsf(z[i] - x[i]) <= 0.51f * range / (is_signed ? 127 : 255));
    }
    leat_graph_destroy(graph);
    free(x);
    free(factors);
    free(y);
    free(z);
}

/* The first convolution, of an image, whose sums are of 16-bit numbers: its result about another number than 0. */
static void
test_first(void)
{
    enum { OUTPUTS = 16 };
    const struct layer l = {
        .items = between(1, 3), .inputs = between(1, 4), .image = between(1, IMAGE_MAX)};
    const size_t pixels = (size_t)(l.image * l.image), count = (size_t)l.items * pixels;
    const float step = 120.0f / 255, zero = nearbyintf(30 / step);
    float *x = aligned_floats(count * (size_t)l.inputs), *y = aligned_floats(count * OUTPUTS),
          *weights = aligned_floats(OUTPUTS * (size_t)l.inputs);
    const struct leat_segment segment = {.items = (uint32_t)l.items, .tensors = {x, y}};
    struct leat_graph *graph = NULL;
    struct builder b;

    for (size_t i = 0; i < count * (size_t)l.inputs; i++) {
        x[i] = (float)between(-4095, 4095) / 64;
    }
    for (size_t i = 0; i < OUTPUTS * (size_t)l.inputs; i++) {
        weights[i] = (float)between(-128, 128) / 128;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, l.inputs, l.image, l.image));
    (void)builder_constant(&b, "weights", 1, weights, DIMS(OUTPUTS, l.inputs, 1, 1));
    (void)builder_node(&b, "Conv", "x weights", "first");
    add_identity(&b, &l, OUTPUTS, "middle_weights", "first", "middle");
    add_identity(&b, &l, OUTPUTS, "last_weights", "middle", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    set_range(graph, "x", -4095.0f / 64, 4095.0f / 64, true);
    set_range(graph, "first", -30, 90, true);
    run_in(LEAT_PRECISION_INT8, graph, &segment);
    for (size_t i = 0; i < count * OUTPUTS; i++) {
        const size_t item = i / (OUTPUTS * pixels), o = i / pixels % OUTPUTS;
        double sum = 0;
        for (size_t c = 0; c < (size_t)l.inputs; c++) {
            sum += (double)weights[o * (size_t)l.inputs + c] *
                   (double)x[(item * (size_t)l.inputs + c) * pixels + i % pixels];
        }
        /* Its weights are rounded too: to a thousandth. */
        EXPECT(fabs((double)y[i] -
                    cut(sum, -(double)(zero * step), (255 - (double)zero) * (double)step)) <=
               0.51 * (double)step + 64e-3 * (double)l.inputs);
    }
    leat_graph_destroy(graph);
    free(x);
    free(y);
    free(weights);
}

/*
 * The greatest of whole planes, which is an input and the addend of one convolution: y = 2 max x, and z = x beside it. Without
 * `beside`, nobody reads the greatest once they are added, and the sum may lie in their memory.
 */
static struct leat_graph *
make_global_pool(const struct layer *l)
{
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, l->inputs, l->image, l->image));
    add_identity(&b, l, l->inputs, "first_weights", "x", "first");
    add_identity(&b, l, l->inputs, "side_weights", "first", "side");
    add_identity(&b, l, l->inputs, "end_weights", "side", "z");
    (void)builder_node(&b, "GlobalMaxPool", "first", "greatest");
    add_identity(&b, l, l->inputs, "pooled_weights", "greatest", "again");
    (void)builder_node(&b, "Add", "again greatest", "sum");
    add_identity(&b, l, l->inputs, "middle_weights", "sum", "middle");
    add_identity(&b, l, l->inputs, "last_weights", "middle", "y");
    builder_output(&b, "y");
    builder_output(&b, "z");
    if (l->beside) {
        add_identity(&b, l, l->inputs, "late_weights", "greatest", "late");
        (void)builder_node(&b, "Add", "late middle", "w");
        builder_output(&b, "w");
    }
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

static void
test_global_pool(void)
{
    const struct layer l = {.items = between(1, 3),
                            .inputs = between(1, CHANNELS_MAX),
                            .image = between(2, IMAGE_MAX),
                            .beside = between(0, 1) == 0};
    const size_t pixels = (size_t)(l.image * l.image), planes = (size_t)(l.items * l.inputs);
    const double step = 90.0 / 127; /* about 0, however the range lies */
    float *x = aligned_floats(planes * pixels), *y = aligned_floats(planes), *z = aligned_floats(planes * pixels), *w = aligned_floats(planes);
    const struct leat_segment segment = {.items = (uint32_t)l.items, .tensors = {x, y, z, w}};
    struct leat_graph *graph = make_global_pool(&l);

    for (size_t plane = 0; plane < planes; plane++) {
        const int64_t most = between(-30, 90); /* some are negative throughout */
        for (size_t i = 0; i < pixels; i++) {
            x[plane * pixels + i] = (float)between(-30, most);
        }
    }
    set_range(graph, "first", -30, 90, true);
    set_range(graph, "greatest", -30, 90, true);
    set_range(graph, "sum", -60, 180, true);
    run_in(LEAT_PRECISION_INT8, graph, &segment);
    for (size_t plane = 0; plane < planes; plane++) {
        double most = -30;
        for (size_t i = plane * pixels; i < (plane + 1) * pixels; i++) {
            most = fmax(most, (double)x[i]);
            EXPECT(fabs((double)z[i] - (double)x[i]) <= 0.51 * step);
        }
        /* Rounded as an input, as an addend and as a sum, whose steps are twice as wide. */
        EXPECT(fabs((double)y[plane] - 2 * most) <= 4 * 0.51 * step);
        EXPECT(!l.beside || fabs((double)w[plane] - 3 * most) <= 5 * 0.51 * step);
    }
    leat_graph_destroy(graph);
    free(x);
    free(y);
    free(z);
    free(w);
}

/* More products of the greatest numbers than 32 bits can add up. */
static void
test_long_sums(void)
{
    enum { INPUTS = 8, SIDE = 112, INNER = INPUTS * SIDE * SIDE, OUTPUTS = 16 };
    const struct layer convolution = {.items = 1}, product = {.product = true};
    float *x = aligned_floats(INNER), *weights = aligned_floats((size_t)INNER * OUTPUTS), y[OUTPUTS];
    const struct leat_segment segment = {.items = 1, .tensors = {x, y}};
    struct leat_graph *graph = NULL;
    struct builder b;

    for (size_t i = 0; i < INNER; i++) {
        x[i] = 1;
    }
    for (size_t i = 0; i < (size_t)INNER * OUTPUTS; i++) { /* some are negative throughout */
        weights[i] = i % OUTPUTS < OUTPUTS / 2 ? 0.125f : -0.125f;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, INPUTS, SIDE, SIDE));
    add_identity(&b, &convolution, INPUTS, "first_weights", "x", "first");
    (void)builder_node(&b, "Flatten", "first", "flat");
    (void)builder_constant(&b, "weights", 1, weights, DIMS(INNER, OUTPUTS));
    (void)builder_node(&b, "Gemm", "flat weights", "main");
    add_identity(&b, &product, OUTPUTS, "last_weights", "main", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    set_range(graph, "first", 0, 1, true);
    set_range(graph, "flat", 0, 1, true);
    run_in(LEAT_PRECISION_INT8, graph, &segment);
    for (size_t i = 0; i < OUTPUTS; i++) {
        const float wanted = (i < OUTPUTS / 2 ? 0.125f : -0.125f) * INNER;
        EXPECT(fabsf(y[i] - wanted) <= 1e-3f * fabsf(wanted));
    }
    leat_graph_destroy(graph);
    free(x);
    free(weights);
}

/* y = (x a) c, one `middle` between them in whole numbers; numbers are such that every way to multiply them is exact. */
static void
test_large_products(void)
{
    enum { SIZE = 256, ITEMS = 2 };
    const bool narrows = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_BF16)) != 0;
    float *a = aligned_floats(SIZE * SIZE), *c = aligned_floats(SIZE * SIZE), x[ITEMS * SIZE], y[ITEMS * SIZE];
    const struct layer product = {.product = true};
    const struct leat_segment segment = {.items = ITEMS, .tensors = {x, y}};
    struct leat_graph *graph = NULL;
    struct builder b;

    for (size_t i = 0; i < SIZE * SIZE; i++) {
        a[i] = (float)between(-1, 1);
        c[i] = (float)between(-1, 1);
    }
    for (size_t i = 0; i < ITEMS * SIZE; i++) {
        x[i] = (float)between(-4, 4);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, SIZE));
    (void)builder_constant(&b, "a", 1, a, DIMS(SIZE, SIZE));
    (void)builder_constant(&b, "c", 1, c, DIMS(SIZE, SIZE));
    (void)builder_node(&b, "MatMul", "x a", "first");
    add_identity(&b, &product, SIZE, "middle_weights", "first", "middle");
    (void)builder_node(&b, "MatMul", "middle c", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    set_range(graph, "first", -127, 127, true);
    EXPECT(count_kernels(graph, "bf16") == (narrows ? 2 : 0));
    run_in(LEAT_PRECISION_INT8, graph, &segment);
    for (size_t item = 0; item < ITEMS; item++) {
        double middle[SIZE];
        for (size_t o = 0; o < SIZE; o++) {
            middle[o] = 0;
            for (size_t i = 0; i < SIZE; i++) {
                middle[o] += (double)x[item * SIZE + i] * (double)a[i * SIZE + o];
            }
            middle[o] = cut(middle[o], -128, 127); /* a step below the range is a number too */
        }
        for (size_t o = 0; o < SIZE; o++) {
            double sum = 0;
            for (size_t i = 0; i < SIZE; i++) {
                sum += middle[i] * (double)c[i * SIZE + o];
            }
            EXPECT((double)y[item * SIZE + o] == sum);
        }
    }
    leat_graph_destroy(graph);
    free(a);
    free(c);
}

/*
 * Of four 1x1 convolutions the second has whole numbers before and behind it, and is ours; but with VNNI not where its result's
 * range is so small that sums are too many steps of it for 32 bits: they are capped all the same. So it is with Swish behind it.
 * With AVX2 the third, which makes floats, is ours too.
 */
static void
test_own_kernel(float middle_most, bool swish)
{
    const struct layer l = {.inputs = 16, .image = 4};
    const uint32_t ours = cpu_fours_run_here() ? 2 : cpu_points_run_here() && middle_most == 1;
    float x[16 * 4 * 4], y[16 * 4 * 4];
    const struct leat_segment segment = {.items = 1, .tensors = {x, y}};
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, l.inputs, l.image, l.image));
    add_identity(&b, &l, l.inputs, "first_weights", "x", "first");
    add_identity(&b, &l, l.inputs, "middle_weights", "first", swish ? "sums" : "middle");
    if (swish) {
        (void)builder_node(&b, "Sigmoid", "sums", "gate");
        (void)builder_node(&b, "Mul", "sums gate", "middle");
    }
    add_identity(&b, &l, l.inputs, "next_weights", "middle", "next");
    add_identity(&b, &l, l.inputs, "last_weights", "next", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    set_range(graph, "first", -1, 1, true);
    set_range(graph, "middle", -middle_most, middle_most, true);
    EXPECT(count_kernels(graph, "leat") == ours);
    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        x[i] = (float)between(0, 1);
    }
    run_in(LEAT_PRECISION_INT8, graph, &segment);
    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        const float exact = swish ? x[i] / (1 + expf(-x[i])) : x[i];
        EXPECT(fabsf(y[i] - fminf(exact, middle_most)) <= (swish ? 4e-3f : 1e-4f) * middle_most);
    }
    leat_graph_destroy(graph);
}

static void
test_factors(void)
{
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);

    for (int round = 0; round < ROUNDS; round++) {
        const enum leat_precision precision = (enum leat_precision)(round % LEAT_PRECISION_COUNT);
        if ((precisions & LEAT_PRECISION_BIT(precision)) != 0) {
            test_scaled(precision);
        }
    }
}

/* ---- Masks ------------------------------------------------------------------------------------------ */

/*
 * Two heads of attention as exporters write it, y = (softmax(Q K^T / sqrt(HEAD) + mask) V) o, between products that make the others'
 * sources whole numbers. The mask is an input, and the same for all queries of an item; or, where the product Q K^T adds it itself and
 * nothing is scaled, one for each.
 */
enum { MASKED = 4, POSITIONS = 8, HEADS = 2, HEAD = 8, MODEL = HEADS * HEAD };

static struct leat_graph *
make_attention(bool fused)
{
    static const char *const weights[] = {"first", "q", "k", "v", "o", "last"};
    const float scale = sqrtf(HEAD);
    struct leat_graph *graph = NULL;
    uint64_t passes = UINT64_MAX;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, POSITIONS, MODEL));
    if (fused) {
        (void)builder_input(&b, "mask", 1, DIMS(-1, 1, 1, POSITIONS));
    } else {
        (void)builder_input(&b, "mask", 1, DIMS(-1, HEADS, POSITIONS, POSITIONS));
        EXPECT(leat_passes_without("fuse-attention", &passes) == LEAT_OK);
    }
    for (size_t w = 0; w < LEAT_COUNT_OF(weights); w++) {
        float data[MODEL * MODEL];
        char name[32];
        for (size_t i = 0; i < LEAT_COUNT_OF(data); i++) {
            data[i] = (float)between(-1000, 1000) / 2000;
        }
        (void)snprintf(name, sizeof(name), "w_%s", weights[w]);
        (void)builder_constant(&b, name, 1, data, DIMS(MODEL, MODEL));
    }
    (void)builder_constant(&b, "scale", 1, &scale, NULL, 0);
    (void)builder_constant(&b, "split", 7, (const int64_t[]){0, POSITIONS, HEADS, HEAD}, DIMS(4));
    (void)builder_constant(&b, "join", 7, (const int64_t[]){0, POSITIONS, MODEL}, DIMS(3));
    (void)builder_node(&b, "MatMul", "x w_first", "h");
    for (size_t w = 1; w < 4; w++) {
        char from[32], to[32];
        (void)snprintf(from, sizeof(from), "h w_%s", weights[w]);
        (void)builder_node(&b, "MatMul", from, weights[w]);
        (void)snprintf(from, sizeof(from), "%s split", weights[w]);
        (void)snprintf(to, sizeof(to), "%s_split", weights[w]);
        (void)builder_node(&b, "Reshape", from, to);
        (void)snprintf(from, sizeof(from), "%s_heads", weights[w]);
        Onnx__NodeProto *node = builder_node(&b, "Transpose", to, from);
        (void)(w == 2 ? builder_ints(&b, node, "perm", DIMS(0, 2, 3, 1)) : builder_ints(&b, node, "perm", DIMS(0, 2, 1, 3)));
    }
    (void)builder_node(&b, "MatMul", "q_heads k_heads", "scores");
    (void)builder_node(&b, fused ? "Div" : "Identity", fused ? "scores scale" : "scores", "scaled");
    (void)builder_node(&b, "Add", "scaled mask", "masked");
    (void)builder_int(&b, builder_node(&b, "Softmax", "masked", "p"), "axis", -1);
    (void)builder_node(&b, "MatMul", "p v_heads", "heads");
    (void)builder_ints(&b, builder_node(&b, "Transpose", "heads", "turned"), "perm", DIMS(0, 2, 1, 3));
    (void)builder_node(&b, "Reshape", "turned join", "context");
    (void)builder_node(&b, "MatMul", "context w_o", "all");
    (void)builder_node(&b, "MatMul", "all w_last", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, passes) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* Whatever hides a position, no range knows of it, and int8 answers as it does without: about as f32. */
static void
test_masks(float hidden, bool fused)
{
    float x[MASKED * POSITIONS * MODEL], mask[MASKED * HEADS * POSITIONS * POSITIONS], exact[LEAT_COUNT_OF(x)], whole[LEAT_COUNT_OF(x)];
    const struct leat_segment in_floats = {.items = MASKED, .tensors = {x, mask, exact}};
    const struct leat_segment in_whole = {.items = MASKED, .tensors = {x, mask, whole}};
    struct leat_calibration *calibration;
    float largest = 0, furthest = 0;
    const size_t each = fused ? POSITIONS : HEADS * POSITIONS * POSITIONS; /* of an item */
    struct leat_graph *graph = make_attention(fused);

    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        x[i] = (float)between(-1000, 1000) / 1000;
    }
    for (size_t i = 0; i < MASKED * each; i++) { /* some end early */
        mask[i] = i % POSITIONS > i / each + 2 ? hidden : 0;
    }
    EXPECT(leat_calibration_create(graph, MASKED, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const[]){x, mask}) == LEAT_OK);
    EXPECT(leat_calibration_is_finite(calibration) && !leat_calibration_reads(calibration, 1));
    uint32_t multiplied = 0;
    for (uint32_t r = 0; r < leat_calibration_count(calibration); r++) {
        const struct leat_range range = leat_calibration_range(calibration, r);
        EXPECT(isfinite(range.least) && isfinite(range.most));
        multiplied += strcmp(range.name, "h") == 0 || strcmp(range.name, "context") == 0;
        EXPECT(leat_graph_set_range(graph, &range));
    }
    EXPECT(multiplied == 2);
    run_in(LEAT_PRECISION_F32, graph, &in_floats);
    run_in(LEAT_PRECISION_INT8, graph, &in_whole);
    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        largest = fmaxf(largest, fabsf(exact[i]));
        furthest = fmaxf(furthest, fabsf(whole[i] - exact[i]));
        EXPECT(isfinite(exact[i]) && isfinite(whole[i]));
    }
    (void)printf("masks of %g, %s: %g of %g\n", (double)hidden, fused ? "fused" : "as in the file", (double)furthest, (double)largest);
    EXPECT(furthest > 0 && furthest <= 0.06f * largest);
    x[0] = NAN; /* which products see */
    EXPECT(leat_calibration_run(calibration, (const void *const[]){x, mask}) == LEAT_OK);
    EXPECT(!leat_calibration_is_finite(calibration));
    leat_calibration_destroy(calibration);
    leat_graph_destroy(graph);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    if ((leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) ==
        0) {
        return LEAT_TEST_SKIP;
    }
    test_layers();
    test_factors();
    test_long_sums();
    test_large_products();
    test_own_kernel(1, false);
    test_own_kernel(1, true);
    test_own_kernel(1e-9f, false);
    for (int round = 0; round < ROUNDS / 10; round++) {
        test_global_pool();
    }
    if (!cpu_whole_image_runs_here()) {
        (void)printf("skipped: a first layer in whole numbers: this processor has no VNNI, or has AMX and takes bf16\n");
    }
    for (int round = 0; round < ROUNDS / 10 && cpu_whole_image_runs_here(); round++) {
        test_first();
    }
    test_calibration();
    test_quantised_files();
    for (int fused = 0; fused < 2; fused++) {
        test_masks(-1e4f, fused);
        test_masks(-3.402823466e38f, fused);
        test_masks(-INFINITY, fused);
    }
    return 0;
}
