/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and products of 8-bit numbers about zero points with AVX2 beside sums of 64 bits: all ends of their ranges, of weights
 * too, odd numbers of inputs, gaps, lines longer than a block, outputs that are no whole panels, windows of several slices, and such as
 * are Winograd's, products of 8 bits at the bounds of what 16 hold, on one to nine members, of which each has its share where there are
 * enough tiles. Scales are powers of two, so that floats are exact, and so that results lie half way between two steps.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/fours.h"
#include "kernels/cpu/loops/qconv.h"
#include "kernels/cpu/loops/qconv_stages.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(1500), MEMBERS_MAX = 9, CANARY = 0xa5, Z = 0, Y = 1, X = 2 };

static bool
coin(void)
{
    return between(0, 1) == 0;
}

/* So many bytes, as aligned as kernels want them, with 64 of a canary behind them. */
static void *
allocate(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (size_t)leat_round_up(bytes + 64, 64));
    EXPECT(memory != NULL);
    memset(memory, CANARY, bytes + 64);
    return memory;
}

static void
expect_canary(const void *memory, size_t bytes)
{
    for (size_t i = bytes; i < bytes + 64; i++) {
        EXPECT(((const unsigned char *)memory)[i] == CANARY);
    }
}

/* Exactly so many, which the address sanitizer sees. */
static void *
random_bytes(int64_t count)
{
    static const unsigned char ends[] = {0, 1, 127, 128, 255};
    unsigned char *bytes = malloc((size_t)count);
    const bool extreme = coin();

    EXPECT(bytes != NULL);
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = extreme ? ends[between(0, 4)] : (unsigned char)between(0, 255);
    }
    return bytes;
}

/* Some just below what pairs of 8 bits may be, some above it, or a few of those. */
static void
near_bounds(int8_t *weights, int64_t count)
{
    const int64_t far = between(64, 66), few = between(1, 200);

    for (int64_t i = 0; i < count; i++) {
        const int64_t size = between(0, few) == 0 ? far : between(60, 64);
        weights[i] = (int8_t)(between(0, 9) == 0 ? -size : size);
    }
}

static int64_t
volume_of(const int64_t *sizes)
{
    return sizes[Z] * sizes[Y] * sizes[X];
}

static int32_t
random_zero(bool is_signed)
{
    return (int32_t)(is_signed ? between(-128, 127) : between(0, 255));
}

static void
random_axis(struct leat_window *w, int axis, int64_t size_most, int64_t kernel_most)
{
    w->kernel[axis] = between(1, kernel_most);
    w->stride[axis] = between(1, 3);
    w->dilation[axis] = coin() ? 1 : between(2, 3);
    w->pad_begin[axis] = coin() ? 0 : between(0, (w->kernel[axis] - 1) * w->dilation[axis] + 1);
    w->in[axis] = between(1, size_most);
    /* Windows reach beyond the image on the other side, too, and some see nothing of it, whole parts of a line, too. */
    w->out[axis] = (w->in[axis] + w->pad_begin[axis] - 1) / w->stride[axis] + 1 + between(0, axis == X && between(0, 5) == 0 ? 300 : 2);
}

static struct cpu_qconv
random_conv(void)
{
    struct cpu_qconv c = {.items = between(1, 3), .inputs = between(1, 40), .outputs = between(1, 70),
                          .source_signed = coin(), .result_signed = coin()};

    c.window.rank = LEAT_WINDOW_RANK;
    random_axis(&c.window, Z, 1, 1);
    random_axis(&c.window, Y, 1, 1);
    random_axis(&c.window, X, 1, 1);
    switch (between(0, 8)) {
    case 0: /* a product */
    case 8:
        c.inputs = coin() ? between(1, 1400) : 4 * between(1, 350);
        c.window = (struct leat_window){.rank = 1, .in = {1, 1, 1}, .out = {1, 1, 1}, .kernel = {1, 1, 1}, .stride = {1, 1, 1},
                                        .dilation = {1, 1, 1}};
        c.window.in[X] = c.window.out[X] = between(1, 300);
        break;
    case 1: /* lines longer than a block */
        c.inputs = between(1, 6);
        random_axis(&c.window, X, 700, 5);
        break;
    case 2:
        c.inputs = between(1, 5);
        random_axis(&c.window, Z, 4, 3);
        random_axis(&c.window, Y, 5, 3);
        random_axis(&c.window, X, 6, 3);
        break;
    case 3: /* several slices */
        c.inputs = between(60, 140);
        random_axis(&c.window, Y, 7, 4);
        random_axis(&c.window, X, 7, 4);
        break;
    case 4: /* Winograd's, some lines of which are longer than a block */
        c.inputs = 16 * between(1, between(0, 3) == 0 ? 20 : 3);
        c.window = (struct leat_window){.rank = 2, .in = {1, between(4, 12), between(4, between(0, 9) == 0 ? 200 : 20)},
                                        .out = {1, 0, 0}, .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
        for (int d = Y; d <= X; d++) {
            c.window.pad_begin[d] = between(0, 3);
            c.window.out[d] = c.window.in[d] + between(0, c.window.pad_begin[d]);
        }
        break;
    default:
        random_axis(&c.window, Y, 20, 4);
        random_axis(&c.window, X, 20, 4);
    }
    c.source_zero = random_zero(c.source_signed);
    c.result_zero = random_zero(c.result_signed);
    return c;
}

struct layer {
    struct cpu_qconv conv;
    uint8_t *source;
    int8_t *weights; /* in strides */
    struct cpu_qconv_strides strides;
    float *units, *bias;
};

/* What is outside stands for 0. */
static int64_t
sum_of(const struct layer *l, int64_t item, const int64_t *pixel, int64_t output)
{
    const struct leat_window *w = &l->conv.window;
    int64_t sum = 0, tap[3], at[3];

    for (int64_t t = 0; t < volume_of(w->kernel); t++) {
        bool inside = true;
        tap[Z] = t / w->kernel[X] / w->kernel[Y];
        tap[Y] = t / w->kernel[X] % w->kernel[Y];
        tap[X] = t % w->kernel[X];
        for (int d = 0; d < 3; d++) {
            at[d] = pixel[d] * w->stride[d] - w->pad_begin[d] + tap[d] * w->dilation[d];
            inside = inside && at[d] >= 0 && at[d] < w->in[d];
        }
        for (int64_t i = 0; i < l->conv.inputs && inside; i++) {
            const uint8_t x = l->source[(((item * w->in[Z] + at[Z]) * w->in[Y] + at[Y]) * w->in[X] + at[X]) * l->conv.inputs + i];
            const int64_t weight = l->weights[output * l->strides.output + i * l->strides.input + t * l->strides.tap];
            sum += ((l->conv.source_signed ? (int8_t)x : x) - l->conv.source_zero) * weight;
        }
    }
    return sum;
}

static int64_t
wanted(const struct layer *l, int64_t sum, int64_t output)
{
    const double y = nearbyint((double)sum * (double)l->units[output] + (double)l->bias[output]) + l->conv.result_zero;

    return (int64_t)(l->conv.result_signed ? fmax(-128, fmin(127, y)) : fmax(0, fmin(255, y)));
}

static void
check(const struct layer *l, const uint8_t *result)
{
    const struct leat_window *w = &l->conv.window;
    const int64_t pixels = volume_of(w->out);

    for (int64_t p = 0; p < l->conv.items * pixels; p++) {
        const int64_t in_item = p % pixels;
        const int64_t pixel[3] = {in_item / w->out[X] / w->out[Y], in_item / w->out[X] % w->out[Y], in_item % w->out[X]};
        for (int64_t o = 0; o < l->conv.outputs; o++) {
            const uint8_t have = result[p * l->conv.outputs + o];
            EXPECT((l->conv.result_signed ? (int8_t)have : have) == wanted(l, sum_of(l, p / pixels, pixel, o), o));
        }
    }
}

/* On all members. `extreme`: sums are as large as may be, else weights and source are any. */
static void
test_layer(const struct cpu_qconv *conv, bool extreme)
{
    struct layer l = {.conv = *conv};
    struct cpu_qconv *c = &l.conv;
    const int64_t taps = volume_of(c->window.kernel), inner = taps * c->inputs;
    const uint32_t members = (uint32_t)between(1, MEMBERS_MAX);
    const size_t panels = (size_t)leat_round_up((uint64_t)c->outputs, CPU_QCONV_PANEL);
    c->narrow = cpu_qconv_takes_narrow(c) && between(0, 9) != 0;
    const size_t packed_bytes = c->narrow ? cpu_qconv_narrow_bytes(c->outputs, c->inputs)
                                          : cpu_qconv_packed_bytes(c->outputs, c->inputs, taps);
    const size_t scratch_bytes = cpu_qconv_scratch_bytes(c);
    const size_t results = (size_t)(c->items * volume_of(c->window.out) * c->outputs);

    l.strides = coin() ? (struct cpu_qconv_strides){inner, taps, 1} : (struct cpu_qconv_strides){taps, taps * c->outputs, 1};
    l.source = random_bytes(c->items * volume_of(c->window.in) * c->inputs);
    l.weights = random_bytes(c->outputs * inner);
    l.units = allocate(panels * sizeof(float));
    l.bias = allocate(panels * sizeof(float));
    if (extreme) {
        memset(l.source, UINT8_MAX, (size_t)(c->items * volume_of(c->window.in) * c->inputs));
        memset(l.weights, INT8_MAX, (size_t)(c->outputs * inner));
    }
    if (!extreme && c->narrow && coin()) {
        near_bounds(l.weights, c->outputs * inner);
    }
    const int about = -(int)log2(sqrt((double)inner) * 128);
    const bool far = between(0, 7) == 0; /* results that 32 bits do not hold */
    for (int64_t o = 0; o < c->outputs; o++) {
        l.units[o] = ldexpf(1, far ? (int)between(5, 40) : (int)between(about - 1, about + 1));
        l.bias[o] = (float)between(-512, 512) / 4;
        l.units[o] = extreme ? ldexpf(1, -22) : l.units[o];
    }
    int8_t *packed = allocate(packed_bytes);
    uint8_t *result = allocate(results);
    int16_t *scratch = allocate(scratch_bytes);
    if (c->narrow) {
        cpu_qconv_pack_narrow(l.weights, &l.strides, c->outputs, c->inputs, packed);
    } else {
        cpu_qconv_pack(l.weights, &l.strides, c->outputs, c->inputs, taps, packed);
    }
    expect_canary(packed, packed_bytes);
    for (uint32_t m = 0; m < members; m++) {
        memset(scratch, CANARY, scratch_bytes);
        cpu_qconv_run(c, l.source, packed, l.units, l.bias, scratch, result, m, members);
    }
    expect_canary(scratch, scratch_bytes);
    expect_canary(result, results);
    check(&l, result);
    free(l.source);
    free(l.weights);
    free(l.units);
    free(l.bias);
    free(packed);
    free(result);
    free(scratch);
}

/* Four times what 3x3 windows of so many inputs add up to is beyond 32 bits. */
static void
test_long(void)
{
    const struct cpu_qconv conv = {.items = 1, .inputs = 1920, .outputs = 1,
                                   .window = {.rank = 2, .in = {1, 4, 4}, .out = {1, 4, 4}, .kernel = {1, 3, 3},
                                              .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .pad_begin = {0, 1, 1}}};
    test_layer(&conv, true);
}

/* Of inputs in fours: as 8 bits where one four in four may be, and these are sixteen, or all. */
static void
expect_narrow(int64_t inputs, int64_t may, bool wanted)
{
    enum { OUTPUTS = 20 };
    const struct cpu_qconv_strides strides = {inputs, 1, 0};
    int8_t *weights = malloc((size_t)(OUTPUTS * inputs)), *packed = allocate(cpu_qconv_narrow_bytes(OUTPUTS, inputs));

    EXPECT(weights != NULL);
    for (int64_t i = 0; i < OUTPUTS * inputs; i++) {
        weights[i] = i % inputs / 4 < may ? 64 : -65;
    }
    cpu_qconv_pack_narrow(weights, &strides, OUTPUTS, inputs, packed);
    EXPECT((cpu_qconv_wide_part(packed) == NULL) == wanted);
    free(packed);
    free(weights);
}

static void
test_narrow(void)
{
    expect_narrow(4, 1, true);
    expect_narrow(4, 0, false);
    expect_narrow(32, 8, true);
    expect_narrow(32, 7, false);
    expect_narrow(256, 16, true);
    expect_narrow(256, 15, false);
    expect_narrow(1024, 64, true);
    expect_narrow(1024, 63, false);
}

/* Results that a member writes: the same on whatever was there. */
static int64_t
written_by(const struct cpu_qconv *c, uint32_t member, uint32_t members)
{
    const size_t results = (size_t)(c->items * volume_of(c->window.out) * c->outputs), panels = 2 * CPU_QCONV_PANEL;
    const size_t packed_bytes = cpu_qconv_packed_bytes(c->outputs, c->inputs, volume_of(c->window.kernel));
    void *source = calloc((size_t)(c->items * volume_of(c->window.in)), (size_t)c->inputs), *scratch = allocate(cpu_qconv_scratch_bytes(c));
    int8_t *packed = allocate(packed_bytes);
    float *zeros = allocate(panels * sizeof(float));
    uint8_t *result[2] = {allocate(results), allocate(results)};
    int64_t written = 0;

    EXPECT(source != NULL && (size_t)c->outputs <= panels);
    memset(packed, 0, packed_bytes);
    memset(zeros, 0, panels * sizeof(float));
    for (int r = 0; r < 2; r++) {
        memset(result[r], r, results);
        cpu_qconv_run(c, source, packed, zeros, zeros, scratch, result[r], member, members);
    }
    for (size_t i = 0; i < results; i++) {
        written += result[0][i] == result[1][i];
    }
    free(source);
    free(scratch);
    free(packed);
    free(zeros);
    free(result[0]);
    free(result[1]);
    return written;
}

/* Small images of few outputs: whole lines and panels are fewer than members. */
static void
test_shares(void)
{
    enum { ROWS = 6 }; /* of a tile */
    struct cpu_qconv c = {.items = 1, .inputs = 16, .outputs = 20, .result_zero = 7,
                          .window = {.rank = 1, .in = {1, 1, 196}, .out = {1, 1, 196}, .kernel = {1, 1, 1}, .stride = {1, 1, 1},
                                     .dilation = {1, 1, 1}}};

    for (int shape = 0; shape < 3; shape++) {
        const bool winograd = shape == 2;
        if (shape == 1) { /* of lines */
            c.window.kernel[Y] = c.window.kernel[X] = 3;
            c.window.stride[Y] = c.window.stride[X] = 2;
            c.window.in[Y] = c.window.in[X] = 15;
            c.window.out[Y] = c.window.out[X] = 7;
        } else if (winograd) {
            c.window.stride[Y] = c.window.stride[X] = 1;
            c.window.out[Y] = c.window.out[X] = 13;
        }
        const int64_t pixels = volume_of(c.window.out), rows = winograd ? 7 * 7 : pixels, tiles = (rows + ROWS - 1) / ROWS * 2;
        for (uint32_t members = 1; members <= 16; members++) {
            const int64_t most = (tiles + members - 1) / members * ROWS * CPU_QCONV_PANEL * (winograd ? 4 : 1);
            int64_t all = 0;
            EXPECT(tiles >= members);
            for (uint32_t m = 0; m < members; m++) {
                const int64_t written = written_by(&c, m, members);
                EXPECT(written > 0 && written <= most);
                all += written;
            }
            EXPECT(all == pixels * c.outputs);
        }
    }
}

/* What a file says of windows may be more than there is memory, or than numbers hold. */
static void
test_sizes(void)
{
    const struct leat_window usual = {.rank = 2, .in = {1, 14, 14}, .out = {1, 7, 7}, .kernel = {1, 7, 7}, .stride = {1, 2, 2},
                                      .dilation = {1, 1, 1}};
    struct leat_window w = usual;

    EXPECT(cpu_qconv_fits(&usual, 2048));
    EXPECT(!cpu_qconv_fits(&usual, INT64_C(1) << 40));
    w.dilation[X] = INT32_MAX;
    EXPECT(!cpu_qconv_fits(&w, 1));
    w.kernel[X] = INT64_C(1) << 40;
    EXPECT(!cpu_qconv_fits(&w, 1));
    w = usual;
    w.stride[X] = INT64_MAX;
    EXPECT(!cpu_qconv_fits(&w, 1));
    w = usual;
    w.kernel[Y] = w.kernel[Z] = INT64_C(1) << 32;
    EXPECT(!cpu_qconv_fits(&w, 1));
    /* So many that they would be none in 64 bits. */
    w = (struct leat_window){.rank = 2, .in = {1, 1, 2}, .out = {1, 128, 1}, .kernel = {1, 256, 4}, .stride = {1, 1, 1},
                             .dilation = {1, 1, 1431655765}};
    EXPECT(!cpu_qconv_fits(&w, 1 << 16));
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    if (!cpu_fours_run_here()) {
        return LEAT_TEST_SKIP;
    }
    test_sizes();
    test_long();
    test_shares();
    test_narrow();
    for (int round = 0; round < ROUNDS; round++) {
        const struct cpu_qconv conv = random_conv();
        test_layer(&conv, false);
    }
    return 0;
}
