/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products of 8-bit numbers with AVX2 beside sums of 64 bits, those by channels too: weights as large as may be, scales
 * that are powers of two, so that floats are exact as well. With something smooth behind them they are nearly so, and what lies
 * between two whole numbers may become either.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/depthwise_whole.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(1000), PANEL = 32, IMAGE_MAX = 9, MEMBERS_MAX = 4, CANARY = 0xa5, SUM_MOST = 1 << 22 };

static bool
coin(void)
{
    return between(0, 1) == 0;
}

/* So many bytes with 64 of a canary behind them. */
static void *
allocate(int64_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (size_t)leat_round_up((uint64_t)bytes + 64, 64));
    EXPECT(memory != NULL);
    memset(memory + bytes, CANARY, 64);
    return memory;
}

static unsigned char *
random_bytes(int64_t count, bool extreme)
{
    static const unsigned char extremes[] = {0, 1, 127, 128, 255};
    unsigned char *bytes = allocate(count);

    for (int64_t i = 0; i < count; i++) {
        bytes[i] = extreme ? extremes[between(0, 4)] : (unsigned char)between(0, 255);
    }
    return bytes;
}

/* Numbers of that type, floats that are whole too. */
static void *
random_numbers(dnnl_data_type_t type, int64_t count)
{
    if (type != dnnl_f32) {
        return random_bytes(count, false);
    }
    float *numbers = allocate(count * (int64_t)sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (float)between(-100, 100);
    }
    return numbers;
}

static double
number_at(dnnl_data_type_t type, const void *numbers, int64_t i)
{
    return type == dnnl_f32  ? (double)((const float *)numbers)[i]
           : type == dnnl_s8 ? (double)((const int8_t *)numbers)[i]
                             : (double)((const unsigned char *)numbers)[i];
}

static size_t
bytes_of(dnnl_data_type_t type)
{
    return type == dnnl_f32 ? sizeof(float) : 1;
}

struct layer {
    struct cpu_fours conv;
    unsigned char *source;
    int8_t *weights; /* [outputs][taps][inputs]; NULL: by channels */
    float *windows;  /* f32[channels][taps], whole */
    void *addend;    /* NULL: nothing is added */
    float *sums, *bias;
};

static int64_t
taps_of(const struct cpu_fours *conv)
{
    return conv->kernel_down * conv->kernel_across;
}

/* Any that fours let be: one of four takes all of it, or both signs take all. */
static int8_t *
random_weights(const struct cpu_fours *conv)
{
    const int64_t inputs = conv->inputs;
    int8_t *weights = allocate(conv->outputs * taps_of(conv) * inputs);

    for (int64_t pixel = 0; pixel < conv->outputs * taps_of(conv); pixel++) {
        for (int64_t four = 0; four < cpu_fours_count(inputs); four++) {
            int64_t above = CPU_FOURS_SUM, below = CPU_FOURS_SUM;
            for (int64_t place = 0; place < CPU_FOURS_INPUTS; place++) {
                const int64_t input = cpu_input_of_four(four, place);
                const bool positive = coin();
                int64_t *left = positive ? &above : &below;
                const int64_t most = *left < 127 ? *left : 127, size = between(0, 2) == 0 ? most : between(0, most);
                if (input < inputs) {
                    weights[pixel * inputs + input] = (int8_t)(positive ? size : -size);
                    *left -= size;
                }
            }
        }
    }
    return weights;
}

static double
smooth(const struct cpu_fours *conv, double x)
{
    const double y = conv->smooth == LEAT_ACTIVATION_SWISH        ? x / (1 + exp(-x))
                     : conv->smooth == LEAT_ACTIVATION_HARD_SWISH ? x * fmin(1, fmax(0, x / 6 + 0.5))
                     : conv->smooth == LEAT_ACTIVATION_LEAKY_RELU ? (x < 0 ? x * (double)conv->slope : x)
                                                                  : tanh(x);
    return conv->smooth == LEAT_ACTIVATION_NONE ? x : y * (double)conv->smooth_scale + (double)conv->smooth_zero;
}

static bool
is_wanted(const struct layer *l, int64_t row, int64_t o, double got)
{
    const struct cpu_fours *c = &l->conv;
    const dnnl_data_type_t source_type = c->source_signed ? dnnl_s8 : dnnl_u8;
    const int64_t line = row / c->out_width, item = line / c->out_height;
    int64_t sum = 0;

    for (int64_t t = 0; t < taps_of(c); t++) {
        const int64_t y = line % c->out_height * c->stride_down - c->pad_top + t / c->kernel_across;
        const int64_t x = row % c->out_width * c->stride_across - c->pad_left + t % c->kernel_across;
        const bool inside = y >= 0 && y < c->height && x >= 0 && x < c->width;
        const int64_t first = l->weights != NULL ? 0 : o, end = l->weights != NULL ? c->inputs : o + 1;
        for (int64_t i = first; i < end; i++) {
            const int64_t at = ((item * c->height + y) * c->width + x) * c->inputs + i;
            const int64_t one = inside ? (int64_t)number_at(source_type, l->source, at) : (int64_t)number_at(source_type, &c->rest, 0);
            const int64_t weight = l->weights != NULL ? l->weights[(o * taps_of(c) + t) * c->inputs + i]
                                                      : (int64_t)l->windows[o * taps_of(c) + t];
            sum += one * weight;
        }
    }
    double result = (double)sum * (double)l->sums[o] + (double)l->bias[o];
    if (l->addend != NULL) {
        result += number_at(c->addend, l->addend, row * c->outputs + o) * (c->addend == dnnl_f32 ? 1 : (double)c->addend_scale);
    }
    const double bounded = fmin(fmax(smooth(c, result), (double)c->least), (double)c->most);
    const double wanted = c->result == dnnl_f32 ? bounded : nearbyint(bounded);
    const bool rounds_swish = c->smooth == LEAT_ACTIVATION_SWISH && c->result != dnnl_f32; /* which is not so exact there */
    const double size = rounds_swish ? smooth(c, result) - (double)c->smooth_zero : result * (double)c->smooth_scale;
    const double rest = c->smooth != LEAT_ACTIVATION_NONE ? 1e-4 + (rounds_swish ? 1e-4 : 1e-6) * fabs(size) : 0;
    return fabs(got - wanted) <= rest || (rest > 0 && c->result != dnnl_f32 && fabs(got - bounded) <= 0.5 + rest);
}

/* As the layout says, zeros behind inputs and outputs. */
static int8_t *
pack(const struct layer *l)
{
    const int64_t taps = taps_of(&l->conv), inputs = l->conv.inputs, width = (int64_t)leat_round_up((uint64_t)inputs, 4);
    const int64_t length = taps * width, panels = (l->conv.outputs + PANEL - 1) / PANEL;
    int8_t *packed = allocate(panels * PANEL * length);

    memset(packed, 0, (size_t)(panels * PANEL * length));
    for (int64_t o = 0; o < l->conv.outputs; o++) {
        for (int64_t t = 0; t < taps; t++) {
            int8_t *to = packed + o / PANEL * PANEL * length + t * width * PANEL + o % PANEL * 4;
            for (int64_t i = 0; i < inputs; i++) {
                to[i / 4 * PANEL * 4 + i % 4] = l->weights[(o * taps + t) * inputs + i];
            }
        }
    }
    return packed;
}

static struct cpu_fours
random_conv(void)
{
    static const dnnl_data_type_t types[] = {dnnl_f32, dnnl_u8, dnnl_s8};
    const enum leat_activation smooths[] = {LEAT_ACTIVATION_NONE,       LEAT_ACTIVATION_NONE, LEAT_ACTIVATION_NONE,
                                            LEAT_ACTIVATION_SWISH,      LEAT_ACTIVATION_TANH, LEAT_ACTIVATION_HARD_SWISH,
                                            LEAT_ACTIVATION_LEAKY_RELU};
    struct cpu_fours conv = {
        .items = between(1, 3), .inputs = coin() ? 4 * between(1, 40) : between(1, 160), .outputs = coin() ? 8 * between(1, 13) : between(1, 104),
        .height = between(1, IMAGE_MAX), .width = between(1, IMAGE_MAX),
        .kernel_down = 1, .kernel_across = 1, .stride_down = between(1, 3), .stride_across = between(1, 3),
        .source_signed = coin(), .rest = (unsigned char)between(0, 255), .result = types[between(0, 2)],
        .addend_scale = ldexpf(1, (int)between(-3, 1)),
        .smooth = smooths[between(0, 6)], .slope = 0.25f, .smooth_scale = ldexpf(1, (int)between(-3, 6)), .smooth_zero = (float)between(-100, 100),
    };

    if (between(0, 3) == 0) { /* of one pixel, and padded */
        conv.pad_top = between(0, 2);
        conv.pad_left = between(0, 2);
    } else if (coin()) {
        conv.inputs = between(1, 24);
        conv.kernel_down = between(1, 5);
        conv.kernel_across = between(1, 5);
        conv.pad_top = between(0, conv.kernel_down - 1);
        conv.pad_left = between(0, conv.kernel_across - 1);
    }
    /* Windows reach beyond the image on the other side, too. */
    conv.out_height = (conv.height + conv.pad_top - 1) / conv.stride_down + 1;
    conv.out_width = (conv.width + conv.pad_left - 1) / conv.stride_across + 1;
    conv.addend = conv.result == dnnl_f32 ? dnnl_f32 : types[between(1, 2)];
    const float least = conv.result == dnnl_u8 ? 0 : -128, most = conv.result == dnnl_u8 ? 255 : 127;
    const bool clips = between(0, 2) == 0;
    conv.least = clips ? (float)between((int64_t)least, 20) : conv.result == dnnl_f32 ? -INFINITY : least;
    conv.most = clips ? (float)between(21, (int64_t)most) : conv.result == dnnl_f32 ? INFINITY : most;
    return conv;
}

static void
check(const struct layer *l, const unsigned char *result)
{
    const struct cpu_fours *c = &l->conv;
    const int64_t results = c->items * c->out_height * c->out_width * c->outputs;

    for (int64_t i = 0; i < results; i++) {
        EXPECT(is_wanted(l, i / c->outputs, i % c->outputs, number_at(c->result, result, i)));
    }
    for (int64_t i = 0; i < 64; i++) {
        EXPECT(result[(size_t)results * bytes_of(c->result) + (size_t)i] == CANARY);
    }
}

/* Sums are small enough for floats to be exact. */
static void
test_channels(void)
{
    const uint32_t members = (uint32_t)between(1, MEMBERS_MAX);
    struct layer l = {.conv = random_conv()};
    struct cpu_fours *c = &l.conv;

    c->inputs = c->outputs = CPU_DEPTHWISE_WHOLE_CHANNELS * between(1, 5);
    if (between(0, 39) == 0) { /* as large as may be */
        c->inputs = c->outputs = CPU_FOURS_PADDED_MAX;
        c->items = 1;
        c->kernel_down = c->kernel_across = 7;
        c->pad_top = c->pad_left = between(0, 3);
        c->out_height = (c->height + c->pad_top - 1) / c->stride_down + 1;
        c->out_width = (c->width + c->pad_left - 1) / c->stride_across + 1;
    } else if (coin()) { /* some windows next to each other */
        c->width = between(10, 40);
        c->out_width = (c->width + c->pad_left - 1) / c->stride_across + 1;
    }
    const int64_t taps = taps_of(c), rows = c->items * c->out_height * c->out_width;
    const int64_t most = SUM_MOST / (255 * taps) < CPU_DEPTHWISE_WHOLE_MOST ? SUM_MOST / (255 * taps) : CPU_DEPTHWISE_WHOLE_MOST;
    l.source = random_bytes(c->items * c->height * c->width * c->inputs, between(0, 3) == 0);
    l.windows = allocate(c->outputs * taps * (int64_t)sizeof(float));
    l.sums = allocate(c->outputs * (int64_t)sizeof(float));
    l.bias = allocate(c->outputs * (int64_t)sizeof(float));
    float *factors = allocate(c->outputs * (int64_t)sizeof(float)), *given = allocate(c->outputs * taps * (int64_t)sizeof(float));
    for (int64_t o = 0; o < c->outputs; o++) {
        l.sums[o] = ldexpf(1, (int)between(-14, -8));
        l.bias[o] = (float)between(-512, 512) / 4;
        factors[o] = ldexpf(1, (int)between(-4, 4));
        for (int64_t t = o * taps; t < (o + 1) * taps; t++) {
            l.windows[t] = between(0, 3) == 0 ? (float)(coin() ? most : -most) : (float)between(-most, most);
            given[t] = l.windows[t] / factors[o];
        }
    }
    int16_t *packed = allocate((int64_t)cpu_depthwise_whole_weights_bytes(c));
    unsigned char *result = random_numbers(c->result, rows * c->outputs);
    cpu_depthwise_whole_pack(c, given, factors, packed);
    for (uint32_t m = 0; m < members; m++) {
        cpu_depthwise_whole_run(c, l.source, packed, l.sums, l.bias, result, m, members);
    }
    check(&l, result);
    free(l.source);
    free(l.windows);
    free(l.sums);
    free(l.bias);
    free(factors);
    free(given);
    free(packed);
    free(result);
}

static void
test_layer(void)
{
    const uint32_t members = (uint32_t)between(1, MEMBERS_MAX);
    struct layer l = {.conv = random_conv()};
    const struct cpu_fours *c = &l.conv;
    const int64_t rows = c->items * c->out_height * c->out_width, results = rows * c->outputs;
    const bool adds = coin(), in_place = adds && (c->result == dnnl_f32 || coin());

    l.source = random_bytes(c->items * c->height * c->width * c->inputs, between(0, 3) == 0);
    l.weights = random_weights(c);
    l.addend = adds ? random_numbers(c->addend, results) : NULL;
    l.sums = allocate(c->outputs * (int64_t)sizeof(float));
    l.bias = allocate(c->outputs * (int64_t)sizeof(float));
    for (int64_t o = 0; o < c->outputs; o++) {
        l.sums[o] = ldexpf(1, (int)between(-14, -4));
        l.bias[o] = (float)between(-512, 512) / 4;
    }
    int8_t *packed = pack(&l);
    int32_t *starts = allocate(c->outputs * (int64_t)sizeof(*starts));
    unsigned char *result = random_numbers(c->result, results);
    if (in_place) {
        memcpy(result, l.addend, (size_t)results * bytes_of(c->result));
    }
    cpu_fours_starts(c, packed, starts);
    for (uint32_t m = 0; m < members; m++) {
        cpu_fours_run(c, l.source, packed, starts, l.sums, l.bias, in_place ? result : l.addend, result, m, members);
    }
    check(&l, result);
    free(l.source);
    free(l.weights);
    free(l.addend);
    free(l.sums);
    free(l.bias);
    free(packed);
    free(starts);
    free(result);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    if (!cpu_fours_run_here()) {
        return LEAT_TEST_SKIP;
    }
    for (int round = 0; round < ROUNDS; round++) {
        test_layer();
        test_channels();
    }
    return 0;
}
