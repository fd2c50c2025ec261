/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The cpu backend's own convolutions give the sums that the definition says, whatever the shape, padding and
 *          number of members, write their results and scratch and nothing else, and are used where they should be.
 * Method   Random shapes against plain loops in double precision; places before and behind results and scratch hold
 *          what must stay; every number of members must give the same bytes; an item of NaN must not reach its
 *          neighbours. Then networks of one convolution through the backend against the reference backend, with what
 *          may be fused onto it; the program of some of them must hold a step of our own. Images in whole numbers: sums of
 *          pixels and weights as they are rounded, pixels beyond their range and none among them; in a network, half a step of
 *          its result and what 16 bits leave.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/inspect.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/activation.h"
#include "kernels/cpu/loops/depthwise.h"
#include "kernels/cpu/loops/direct.h"
#include "kernels/cpu/loops/expand.h"
#include "kernels/cpu/loops/function.h"
#include "kernels/cpu/loops/image.h"
#include "kernels/cpu/loops/whole_image.h"
#include "kernels/cpu/loops/winograd.h"
#include "kernels/cpu/loops/winograd_stages.h"
#include "kernels/cpu/program.h"
#include "kernels/graph.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "kernels/team.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

enum { KERNEL_ROUNDS = LEAT_TEST_ROUNDS(150), NETWORK_ROUNDS = LEAT_TEST_ROUNDS(60), MANY_ROUNDS = 8 };
enum { SAMPLES = 1000, GUARD = 64, MEMBERS = 3, TEAM = 2, ITEMS = 4 };

/* ---- Guarded memory ----------------------------------------------------------------------------- */

static float *
guarded(size_t count)
{
    float *block = aligned_alloc(64, (size_t)leat_round_up((count + (size_t)2 * GUARD) * sizeof(float), 64));
    EXPECT(block != NULL);
    for (size_t i = 0; i < count + (size_t)2 * GUARD; i++) {
        block[i] = 12345.0f;
    }
    return block + GUARD;
}

static float *
guarded_random(size_t count)
{
    float *data = guarded(count);
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)between(-1000, 1000) / 1000.0f;
    }
    return data;
}

static void
release(float *data, size_t count)
{
    for (size_t i = 0; i < GUARD; i++) {
        EXPECT(data[-1 - (ptrdiff_t)i] == 12345.0f && data[count + i] == 12345.0f);
    }
    free(data - GUARD);
}

/* ---- Kernels ------------------------------------------------------------------------------------ */

/* Which kernel takes a shape, and how channels lie. */
struct kernel {
    bool winograd, blocked;
};

static struct cpu_winograd
winograd_of(const struct cpu_direct *c, const struct kernel *kernel)
{
    return (struct cpu_winograd){c->items,    c->inputs, c->outputs, c->height, c->width, c->out_height,     c->out_width,
                                 c->pad_top, c->pad_left, c->add,    c->least, c->most,   kernel->blocked};
}

/* f32[items][pixels][channels] becomes f32[items][channels / lanes][pixels][lanes], or back. */
static void
block_channels(const float *x, int64_t items, int64_t pixels, int64_t channels, int64_t lanes, bool back, float *ret)
{
    for (int64_t i = 0; i < items * pixels * channels; i++) {
        const int64_t c = i % channels, p = i / channels % pixels, item = i / channels / pixels;
        const int64_t blocked = ((item * (channels / lanes) + c / lanes) * pixels + p) * lanes + c % lanes;
        ret[back ? i : blocked] = x[back ? blocked : i];
    }
}

static double
activated(double x, float least, float most, enum leat_activation smooth)
{
    const struct leat_node node = {.fused_activation = smooth};
    float y = (float)fmin(fmax(x, (double)least), (double)most);
    leat_reference_activate(&node, &y, 1);
    return (double)y;
}

/* The result at one place; *ret_size is the sum of the terms' sizes. */
static double
sum_at(const struct cpu_direct *c, const float *source, const float *weights, int64_t item, int64_t y, int64_t x, int64_t o,
       double *ret_size)
{
    const int64_t taps = c->kernel_down * c->kernel_across;
    double sum = 0;

    *ret_size = 0;
    for (int64_t k = 0; k < taps; k++) {
        const int64_t sy = y * c->stride_down + k / c->kernel_across - c->pad_top;
        const int64_t sx = x * c->stride_across + k % c->kernel_across - c->pad_left;
        for (int64_t i = 0; i < c->inputs && sy >= 0 && sy < c->height && sx >= 0 && sx < c->width; i++) {
            const double term = (double)source[((item * c->height + sy) * c->width + sx) * c->inputs + i] *
                                (double)weights[(o * c->inputs + i) * taps + k];
            sum += term;
            *ret_size += fabs(term);
        }
    }
    return sum;
}

static void
check(const struct cpu_direct *c, const float *source, const float *weights, const float *bias, const float *before,
      const float *result)
{
    const int64_t results = c->items * c->out_height * c->out_width * c->outputs;
    double largest = 0, error = 0;
    for (int64_t r = 0; r < results; r += between(1, 1 + 2 * results / SAMPLES)) {
        const int64_t o = r % c->outputs, x = r / c->outputs % c->out_width;
        const int64_t y = r / c->outputs / c->out_width % c->out_height;
        double size, sum = sum_at(c, source, weights, r / c->outputs / c->out_width / c->out_height, y, x, o, &size);
        sum += (bias != NULL ? (double)bias[o] : 0) + (c->add ? (double)before[r] : 0);
        sum = activated(sum, c->least, c->most, c->smooth);
        largest = fmax(largest, size + 2);
        error = fmax(error, fabs(sum - (double)result[r]));
    }
    EXPECT(error <= 1e-6 * largest);
}

static void
count_pause(void *context)
{
    int64_t *pauses = context;
    (*pauses)++;
}

static void
run_winograd(const struct cpu_direct *c, const struct kernel *kernel, const float *source, const float *packed,
             const float *bias, uint32_t members, float *result)
{
    const struct cpu_winograd w = winograd_of(c, kernel);
    const int64_t sources = c->items * c->height * c->width * c->inputs;
    const int64_t results = c->items * c->out_height * c->out_width * c->outputs;
    const size_t scratch_count = cpu_winograd_scratch_bytes(&w) / sizeof(float);
    float *scratch = guarded(scratch_count), *x = guarded((size_t)sources), *y = guarded((size_t)results);

    memcpy(x, source, (size_t)sources * sizeof(*x));
    memcpy(y, result, (size_t)results * sizeof(*y));
    if (kernel->blocked) {
        block_channels(source, c->items, c->height * c->width, c->inputs, cpu_vector_lanes(), false, x);
        block_channels(result, c->items, c->out_height * c->out_width, c->outputs, cpu_vector_lanes(), false, y);
    }
    for (uint32_t m = members; m-- > 0;) { /* in turn: they share nothing */
        int64_t pauses = 0;
        const struct cpu_pause pause = {count_pause, &pauses};
        cpu_winograd_run(&w, x, packed, bias, y, scratch, m, members, members == 1 ? &pause : NULL);
        /* Between any two groups of channels of each block of tiles. */
        EXPECT(members > 1 || (pauses + 1) % ((c->outputs + CPU_WINOGRAD_GROUP - 1) / CPU_WINOGRAD_GROUP) == 0);
    }
    memcpy(result, y, (size_t)results * sizeof(*y));
    if (kernel->blocked) {
        block_channels(y, c->items, c->out_height * c->out_width, c->outputs, cpu_vector_lanes(), true, result);
    }
    release(scratch, scratch_count);
    release(x, (size_t)sources);
    release(y, (size_t)results);
}

static void
run_kernel(const struct cpu_direct *c, const struct kernel *kernel, const float *source, const float *packed, const float *bias,
           const float *before, size_t results, uint32_t members, float *result)
{
    memcpy(result, before, results * sizeof(*result));
    if (kernel->winograd) {
        run_winograd(c, kernel, source, packed, bias, members, result);
        return;
    }
    const size_t scratch_count = cpu_direct_scratch_bytes(c) / sizeof(float);
    float *scratch = guarded(scratch_count);
    for (uint32_t m = members; m-- > 0;) { /* in turn: they share nothing */
        cpu_direct_run(c, source, packed, bias, result, scratch, m, members);
    }
    release(scratch, scratch_count);
}

/* NaN in an item stays in it, and is not clamped away. */
static void
check_nan(const struct cpu_direct *c, const struct kernel *kernel, float *source, const float *packed, const float *before,
          const float *result, size_t sources, size_t results)
{
    const size_t item = (size_t)between(0, c->items - 1), of_item = results / (size_t)c->items;
    float *again = guarded(results);

    for (size_t i = 0; i < sources / (size_t)c->items; i++) {
        source[item * (sources / (size_t)c->items) + i] = NAN;
    }
    run_kernel(c, kernel, source, packed, NULL, before, results, 1, again);
    for (size_t r = 0; r < results; r++) {
        EXPECT(r / of_item == item || memcmp(&result[r], &again[r], sizeof(*result)) == 0);
    }
    if (c->pad_top < c->height && c->pad_left < c->width && c->pad_top < c->kernel_down && c->pad_left < c->kernel_across) {
        EXPECT(isnan(again[item * of_item])); /* its first sees a pixel */
    }
    release(again, results);
}

static void
test_shape(const struct cpu_direct *c, const struct kernel *kernel)
{
    const size_t sources = (size_t)(c->items * c->height * c->width * c->inputs);
    const size_t results = (size_t)(c->items * c->out_height * c->out_width * c->outputs);
    const size_t weight_count = (size_t)(c->outputs * c->inputs * c->kernel_down * c->kernel_across);
    const size_t packed_bytes =
        kernel->winograd ? cpu_winograd_weights_bytes(c->inputs, c->outputs) : cpu_direct_weights_bytes(c);
    const size_t packed_count = packed_bytes / sizeof(float);
    float *source = guarded_random(sources), *weights = guarded_random(weight_count);
    float *bias = guarded_random((size_t)c->outputs), *before = guarded_random(results);
    float *packed = guarded(packed_count), *result = guarded(results), *again = guarded(results);

    if (kernel->winograd) {
        cpu_winograd_pack(weights, c->inputs, c->outputs, packed);
    } else {
        cpu_direct_pack(c, weights, packed);
    }
    run_kernel(c, kernel, source, packed, bias, before, results, 1, result);
    check(c, source, weights, bias, before, result);
    for (uint32_t members = 2; members <= MEMBERS; members++) {
        run_kernel(c, kernel, source, packed, bias, before, results, members, again);
        EXPECT(memcmp(result, again, results * sizeof(*result)) == 0);
    }
    run_kernel(c, kernel, source, packed, NULL, before, results, 1, result);
    check(c, source, weights, NULL, before, result);
    check_nan(c, kernel, source, packed, before, result, sources, results);
    release(source, sources);
    release(weights, weight_count);
    release(bias, (size_t)c->outputs);
    release(before, results);
    release(packed, packed_count);
    release(result, results);
    release(again, results);
}

static void
test_kernel(const struct kernel *kernel)
{
    const bool winograd = kernel->winograd;

    for (int round = 0; round < KERNEL_ROUNDS / 2; round++) {
        struct cpu_direct c = {.items = between(1, 3),
                               .inputs = winograd ? cpu_vector_lanes() * between(1, 18) : between(1, 150),
                               .outputs = cpu_vector_lanes() * between(1, 9),
                               .height = between(1, 13),
                               .width = between(1, 13),
                               .kernel_down = winograd ? 3 : between(1, 4),
                               .kernel_across = winograd ? 3 : between(1, 4),
                               .stride_down = winograd ? 1 : between(1, 3),
                               .stride_across = winograd ? 1 : between(1, 3),
                               .pad_top = between(0, 3),
                               .pad_left = between(0, 3),
                               .add = between(0, 1) != 0,
                               .least = between(0, 1) != 0 ? 0 : -INFINITY,
                               .most = between(0, 2) == 0 ? 1.5f : INFINITY,
                               .smooth = winograd || between(0, 1) != 0 ? LEAT_ACTIVATION_NONE : LEAT_ACTIVATION_SWISH};
        c.out_height = (c.height + c.pad_top + between(0, 3) - c.kernel_down) / c.stride_down + 1;
        c.out_width = (c.width + c.pad_left + between(0, 3) - c.kernel_across) / c.stride_across + 1;
        if (c.out_height >= 1 && c.out_width >= 1) {
            test_shape(&c, kernel);
        }
    }
    /* More tiles or rows than a block has; weights that are read in long blocks; pixels that follow each other. */
    if (winograd) {
        test_shape(&(struct cpu_direct){3, 16, 16, 50, 50, 50, 50, 3, 3, 1, 1, 1, 1, true, .most = INFINITY}, kernel);
        test_shape(&(struct cpu_direct){7, 192, 160, 14, 14, 14, 14, 3, 3, 1, 1, 1, 1, false, .most = INFINITY}, kernel);
    } else {
        test_shape(&(struct cpu_direct){2, 300, 80, 20, 20, 20, 20, 1, 1, 1, 1, 0, 0, true, .most = INFINITY, .smooth = LEAT_ACTIVATION_SWISH}, kernel);
        test_shape(&(struct cpu_direct){1, 5000, 80, 5, 5, 5, 5, 1, 1, 1, 1, 0, 0, false, .most = INFINITY}, kernel);
    }
}

static void
test_kernels(void)
{
    test_kernel(&(struct kernel){.winograd = true, .blocked = false});
    test_kernel(&(struct kernel){.winograd = true, .blocked = true});
    test_kernel(&(struct kernel){.winograd = false});
}

/* Items of a batch, each in a block of its own. */
static void
take_apart(const float *batch, int64_t count, size_t floats, const void *ret_items[ITEMS])
{
    EXPECT(count <= ITEMS);
    for (int64_t i = 0; i < count; i++) {
        float *item = guarded(floats);
        memcpy(item, batch + (size_t)i * floats, floats * sizeof(*item));
        ret_items[i] = item;
    }
}

static void
release_items(const void *const *items, int64_t count, size_t floats)
{
    for (int64_t i = 0; i < count; i++) {
        release((void *)(uintptr_t)items[i], floats);
    }
}

static void
test_image_shape(const struct cpu_direct *c)
{
    const size_t pixels = (size_t)(c->height * c->width), inputs = (size_t)c->inputs, sources = (size_t)c->items * inputs * pixels;
    const size_t results = (size_t)(c->items * c->out_height * c->out_width * c->outputs);
    const size_t weight_count = (size_t)(c->outputs * c->inputs * c->kernel_down * c->kernel_across);
    const size_t scratch_count = cpu_image_scratch_bytes(c) / sizeof(float);
    float *source = guarded_random(sources), *planes = guarded(sources), *weights = guarded_random(weight_count);
    float *bias = between(0, 1) != 0 ? guarded_random((size_t)c->outputs) : NULL;
    float *packed = guarded(weight_count), *result = guarded(results), *again = guarded(results);
    const void *items[ITEMS];

    for (size_t i = 0; i < sources; i++) {
        planes[(i / inputs / pixels * inputs + i % inputs) * pixels + i / inputs % pixels] = source[i];
    }
    EXPECT(cpu_image_weights_bytes(c) == weight_count * sizeof(float));
    cpu_image_pack(c, weights, packed);
    take_apart(planes, c->items, inputs * pixels, items);
    for (uint32_t members = 1; members <= MEMBERS; members++) {
        float *scratch = guarded(scratch_count), *to = members == 1 ? result : again;
        for (uint32_t m = 0; m < members; m++) {
            cpu_image_run(c, items, packed, bias, to, scratch, m, members);
        }
        release(scratch, scratch_count);
        EXPECT(memcmp(result, to, results * sizeof(*result)) == 0);
    }
    check(c, source, weights, bias, result, result);
    release_items(items, c->items, inputs * pixels);
    release(source, sources);
    release(planes, sources);
    release(weights, weight_count);
    if (bias != NULL) {
        release(bias, (size_t)c->outputs);
    }
    release(packed, weight_count);
    release(result, results);
    release(again, results);
}

static void
test_image(void)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        struct cpu_direct c = {.items = between(1, 3),
                               .inputs = between(1, CPU_IMAGE_INPUTS_MAX),
                               .outputs = 16 * between(1, 9),
                               .height = between(1, 30),
                               .width = between(1, 30),
                               .kernel_down = between(1, 7),
                               .kernel_across = between(1, 7),
                               .stride_down = between(1, 3),
                               .stride_across = between(1, 3),
                               .pad_top = between(0, 3),
                               .pad_left = between(0, 3),
                               .least = between(0, 1) != 0 ? 0 : -INFINITY,
                               .most = between(0, 2) == 0 ? 1.5f : INFINITY,
                               .smooth = between(0, 1) != 0 ? LEAT_ACTIVATION_NONE : LEAT_ACTIVATION_SWISH};
        c.out_height = (c.height + c.pad_top + between(0, 3) - c.kernel_down) / c.stride_down + 1;
        c.out_width = (c.width + c.pad_left + between(0, 3) - c.kernel_across) / c.stride_across + 1;
        if (c.out_height >= 1 && c.out_width >= 1) {
            test_image_shape(&c);
        }
    }
}

/* ---- Images in whole numbers ------------------------------------------------------------------------ */

/* As it is stored: rounded, and capped where that is not. */
static double
whole_pixel(const struct cpu_whole_image *w, float pixel)
{
    const float steps = pixel * w->pixels_in_one;
    return isnan(pixel) ? -INT16_MAX : nearbyint((double)fminf(fmaxf(steps, -INT16_MAX), INT16_MAX));
}

static void
check_whole_image(const struct cpu_whole_image *w, const float *planes, const float *weights, const float *sums, const float *bias,
                  const unsigned char *result)
{
    const struct cpu_direct *c = &w->conv;
    const size_t sources = (size_t)(c->items * c->inputs * c->height * c->width);
    const int64_t taps = c->kernel_down * c->kernel_across, count = c->outputs * c->inputs * taps;
    float *pixels = guarded(sources), *whole = guarded((size_t)count);

    for (size_t i = 0; i < sources; i++) { /* [items][height][width][inputs] */
        const size_t plane = (size_t)(c->height * c->width), channels = (size_t)c->inputs;
        const size_t item = i / plane / channels, pixel = i / channels % plane, channel = i % channels;
        pixels[i] = (float)whole_pixel(w, planes[(item * channels + channel) * plane + pixel]);
    }
    for (int64_t o = 0; o < c->outputs; o++) {
        double total = 0, most = 0;
        for (int64_t t = 0; t < c->inputs * taps; t++) {
            const float *weight = &weights[o * c->inputs * taps + t];
            whole[o * c->inputs * taps + t] = rintf(*weight * cpu_whole_image_factor(c, weights, o));
            total += fabs((double)whole[o * c->inputs * taps + t]);
            most = fmax(most, fabs((double)whole[o * c->inputs * taps + t]));
        }
        EXPECT(total <= CPU_WHOLE_SUM && most <= INT16_MAX);
        EXPECT(most == 0 || most >= 0.9 * CPU_WHOLE_SUM / (double)(c->inputs * taps) || most >= INT16_MAX - 1); /* and not coarser */
    }
    const int64_t results = c->items * c->out_height * c->out_width * c->outputs;
    for (int64_t r = 0; r < results; r += between(1, 1 + 2 * results / SAMPLES)) {
        const int64_t o = r % c->outputs, x = r / c->outputs % c->out_width, y = r / c->outputs / c->out_width % c->out_height;
        double size, sum = sum_at(c, pixels, whole, r / c->outputs / c->out_width / c->out_height, y, x, o, &size);
        EXPECT(fabs(sum) <= INT32_MAX);
        sum = fmin(fmax(sum * (double)sums[o] + (double)bias[o], (double)c->least), (double)c->most);
        const double bound = 1e-6 * (size * (double)sums[o] + fabs((double)bias[o]) + 1);
        const double got = w->result == CPU_WHOLE_F32  ? (double)((const float *)(const void *)result)[r]
                           : w->result == CPU_WHOLE_U8 ? (double)result[r]
                                                       : (double)((const int8_t *)result)[r];
        EXPECT(fabs(got - sum) <= bound + (w->result == CPU_WHOLE_F32 ? 0 : 0.5));
    }
    release(pixels, sources);
    release(whole, (size_t)count);
}

static void
test_whole_image_shape(const struct cpu_whole_image *w)
{
    const struct cpu_direct *c = &w->conv;
    const size_t sources = (size_t)(c->items * c->inputs * c->height * c->width);
    const size_t results = (size_t)(c->items * c->out_height * c->out_width * c->outputs);
    const size_t result_floats = w->result == CPU_WHOLE_F32 ? results : results / sizeof(float), channels = (size_t)c->outputs;
    const size_t weight_count = (size_t)(c->outputs * c->inputs * c->kernel_down * c->kernel_across);
    const size_t packed_count = cpu_whole_image_weights_bytes(c) / sizeof(float);
    const size_t scratch_count = cpu_whole_image_scratch_bytes(c) / sizeof(float);
    float *planes = guarded_random(sources), *weights = guarded_random(weight_count), *packed = guarded(packed_count);
    float *sums = guarded_random(channels), *bias = guarded_random(channels);
    float *result = guarded(result_floats), *again = guarded(result_floats);
    const void *items[ITEMS];

    for (size_t i = 0; i < sources; i++) {
        const float hostile[] = {NAN, INFINITY, -INFINITY, 1e30f, 9, -9};
        if (between(0, 40) == 0) {
            planes[i] = hostile[between(0, LEAT_COUNT_OF(hostile) - 1)];
        } else if (between(0, 3) == 0) {
            planes[i] = between(0, 1) != 0 ? 8 : -8; /* as far as it is not capped */
        }
    }
    for (size_t o = 0; o < channels; o++) {
        const size_t of_channel = weight_count / channels;
        const bool lone = between(0, 5) == 0; /* all of the channel's in one weight, or none at all */
        for (size_t t = 0; t < of_channel && lone; t++) {
            weights[o * of_channel + t] = t == o % of_channel && o % 2 == 0 ? 1e-3f : 0;
        }
        sums[o] = (w->result == CPU_WHOLE_F32 ? 1e-8f : 1e-6f) * (1.5f + sums[o]);
        bias[o] *= w->result == CPU_WHOLE_F32 ? 1 : 100;
    }
    cpu_whole_image_pack(c, weights, (int16_t *)(void *)packed);
    take_apart(planes, c->items, sources / (size_t)c->items, items);
    for (uint32_t members = 1; members <= MEMBERS; members++) {
        float *scratch = guarded(scratch_count), *to = members == 1 ? result : again;
        for (uint32_t m = 0; m < members; m++) {
            cpu_whole_image_run(w, items, (const int16_t *)(void *)packed, sums, bias, to, scratch, m, members);
        }
        release(scratch, scratch_count);
        EXPECT(memcmp(result, to, result_floats * sizeof(*result)) == 0);
    }
    check_whole_image(w, planes, weights, sums, bias, (const unsigned char *)result);
    release_items(items, c->items, sources / (size_t)c->items);
    release(planes, sources);
    release(weights, weight_count);
    release(packed, packed_count);
    release(sums, channels);
    release(bias, channels);
    release(result, result_floats);
    release(again, result_floats);
}

static void
test_whole_image(void)
{
    static const float least[] = {-INFINITY, 0, -128}, most[] = {INFINITY, 255, 127};

    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        struct cpu_whole_image w = {.conv = {.items = between(1, 3),
                                             .inputs = between(1, CPU_IMAGE_INPUTS_MAX),
                                             .outputs = 16 * between(1, 9),
                                             .height = between(1, 30),
                                             .width = between(1, 40),
                                             .kernel_down = between(1, 7),
                                             .kernel_across = between(1, 7),
                                             .stride_down = between(1, 3),
                                             .stride_across = between(1, 3),
                                             .pad_top = between(0, 3),
                                             .pad_left = between(0, 3)},
                                    .pixels_in_one = CPU_WHOLE_PIXEL,
                                    .result = (enum cpu_whole_result)between(0, 2)};
        struct cpu_direct *c = &w.conv;
        c->out_height = (c->height + c->pad_top + between(0, 3) - c->kernel_down) / c->stride_down + 1;
        c->out_width = (c->width + c->pad_left + between(0, 3) - c->kernel_across) / c->stride_across + 1;
        c->least = fmaxf(least[w.result], between(0, 1) != 0 ? 0 : -INFINITY);
        c->most = fminf(most[w.result], between(0, 2) == 0 ? 60 : INFINITY);
        if (c->out_height >= 1 && c->out_width >= 1) {
            test_whole_image_shape(&w);
        }
    }
}

static void
check_depthwise(const struct cpu_depthwise *c, const float *source, const float *weights, const float *bias,
                const float *result, double tolerance)
{
    const struct cpu_direct one = { /* a channel, as one of many that lie further apart */
        .inputs = 1, .height = c->height, .width = c->width, .kernel_down = c->kernel_down,
        .kernel_across = c->kernel_across, .stride_down = c->stride_down, .stride_across = c->stride_across,
        .pad_top = c->pad_top, .pad_left = c->pad_left};
    const int64_t pixels = c->height * c->width, taps = c->kernel_down * c->kernel_across;
    float *channel = guarded((size_t)(c->items * pixels));

    for (int64_t o = 0; o < c->channels; o++) {
        for (int64_t p = 0; p < c->items * pixels; p++) {
            channel[p] = source[p * c->channels + o];
        }
        for (int64_t r = 0; r < c->items * c->out_height * c->out_width; r++) {
            const int64_t x = r % c->out_width, y = r / c->out_width % c->out_height;
            double size, sum = bias != NULL ? (double)bias[o] : 0;
            sum += sum_at(&one, channel, weights + o * taps, r / c->out_width / c->out_height, y, x, 0, &size);
            sum = activated(sum, c->least, c->most, c->smooth);
            EXPECT(fabs(sum - (double)result[r * c->channels + o]) <= tolerance * (size + 2));
        }
    }
    release(channel, (size_t)(c->items * pixels));
}

static void
test_depthwise(void)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        struct cpu_depthwise c = {.items = between(1, 3), .channels = 16 * between(1, 9),
                                  .height = between(1, 13), .width = between(1, 19),
                                  .kernel_down = between(1, 5), .kernel_across = between(1, 5),
                                  .stride_down = between(1, 3), .stride_across = between(1, 3),
                                  .pad_top = between(0, 3), .pad_left = between(0, 3),
                                  .least = between(0, 1) != 0 ? 0 : -INFINITY,
                                  .most = between(0, 2) == 0 ? 0.5f : INFINITY,
                                  .smooth = between(0, 1) != 0 ? LEAT_ACTIVATION_NONE : LEAT_ACTIVATION_SWISH};
        c.out_height = (c.height + c.pad_top + between(0, 3) - c.kernel_down) / c.stride_down + 1;
        c.out_width = (c.width + c.pad_left + between(0, 3) - c.kernel_across) / c.stride_across + 1;
        if (c.out_height < 1 || c.out_width < 1) {
            continue;
        }
        const size_t sources = (size_t)(c.items * c.height * c.width * c.channels);
        const size_t results = (size_t)(c.items * c.out_height * c.out_width * c.channels);
        const size_t weight_count = (size_t)(c.channels * c.kernel_down * c.kernel_across);
        const size_t scratch_count = cpu_depthwise_scratch_bytes(&c) / sizeof(float);
        float *source = guarded_random(sources), *weights = guarded_random(weight_count);
        float *bias = between(0, 1) != 0 ? guarded_random((size_t)c.channels) : NULL;
        float *packed = guarded(weight_count), *result = guarded(results), *again = guarded(results);
        EXPECT(cpu_depthwise_weights_bytes(&c) == weight_count * sizeof(float));
        cpu_depthwise_pack(&c, weights, packed);
        for (uint32_t members = 1; members <= MEMBERS; members++) {
            float *scratch = guarded(scratch_count), *to = members == 1 ? result : again;
            for (uint32_t m = 0; m < members; m++) {
                cpu_depthwise_run(&c, source, packed, bias, to, scratch, m, members);
            }
            release(scratch, scratch_count);
            EXPECT(memcmp(result, to, results * sizeof(*result)) == 0);
        }
        check_depthwise(&c, source, weights, bias, result, 1e-6);
        release(source, sources);
        release(weights, weight_count);
        if (bias != NULL) {
            release(bias, (size_t)c.channels);
        }
        release(packed, weight_count);
        release(result, results);
        release(again, results);
    }
}

/* What lies between, by the definition. */
static float *
expanded_of(const struct cpu_expand *c, const float *source, const float *weights, const float *bias)
{
    const struct cpu_depthwise *d = &c->depthwise;
    const struct cpu_direct points = {.inputs = c->inputs, .height = d->height, .width = d->width, .kernel_down = 1,
                                      .kernel_across = 1, .stride_down = 1, .stride_across = 1};
    float *expanded = guarded((size_t)(d->items * d->height * d->width * d->channels));

    for (int64_t i = 0; i < d->items * d->height * d->width * d->channels; i++) {
        const int64_t o = i % d->channels, x = i / d->channels % d->width, y = i / d->channels / d->width % d->height;
        double size, sum = sum_at(&points, source, weights, i / d->channels / d->width / d->height, y, x, o, &size);
        sum += bias != NULL ? (double)bias[o] : 0;
        expanded[i] = (float)activated(sum, c->least, c->most, c->smooth);
    }
    return expanded;
}

static void
test_expand_shape(const struct cpu_expand *c)
{
    const struct cpu_depthwise *d = &c->depthwise;
    const struct cpu_direct points = {.outputs = d->channels, .inputs = c->inputs, .kernel_down = 1, .kernel_across = 1};
    const size_t channels = (size_t)d->channels, pixels = (size_t)(d->items * d->height * d->width);
    const size_t sources = pixels * (size_t)c->inputs, middle = pixels * channels;
    const size_t results = (size_t)(d->items * d->out_height * d->out_width) * channels;
    const size_t point_count = channels * (size_t)c->inputs, packed_count = cpu_direct_weights_bytes(&points) / sizeof(float);
    const size_t window_count = channels * (size_t)(d->kernel_down * d->kernel_across);
    const size_t scratch_count = cpu_expand_scratch_bytes(c) / sizeof(float);
    float *source = guarded_random(sources), *point = guarded_random(point_count), *window = guarded_random(window_count);
    float *point_bias = between(0, 1) != 0 ? guarded_random(channels) : NULL;
    float *window_bias = between(0, 1) != 0 ? guarded_random(channels) : NULL;
    float *packed_points = guarded(packed_count), *packed_windows = guarded(window_count);
    float *result = guarded(results), *again = guarded(results);

    cpu_direct_pack(&points, point, packed_points);
    cpu_depthwise_pack(d, window, packed_windows);
    const struct cpu_expand_weights weights = {packed_points, point_bias, packed_windows, window_bias};
    for (uint32_t members = 1; members <= MEMBERS; members++) {
        float *scratch = guarded(scratch_count), *to = members == 1 ? result : again;
        for (uint32_t m = 0; m < members; m++) {
            cpu_expand_run(c, source, &weights, to, scratch, m, members);
        }
        release(scratch, scratch_count);
        EXPECT(memcmp(result, to, results * sizeof(*result)) == 0);
    }
    float *expanded = expanded_of(c, source, point, point_bias);
    check_depthwise(d, expanded, window, window_bias, result, 1e-5);
    release(expanded, middle);
    release(source, sources);
    release(point, point_count);
    release(window, window_count);
    if (point_bias != NULL) {
        release(point_bias, channels);
    }
    if (window_bias != NULL) {
        release(window_bias, channels);
    }
    release(packed_points, packed_count);
    release(packed_windows, window_count);
    release(result, results);
    release(again, results);
}

static void
test_expand(void)
{
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        struct cpu_expand c = {.depthwise = {.items = between(1, 3), .channels = 16 * between(1, 9),
                                             .height = between(1, 30), .width = between(1, 30),
                                             .kernel_down = between(1, 5), .kernel_across = between(1, 5),
                                             .stride_down = between(1, 3), .stride_across = between(1, 3),
                                             .pad_top = between(0, 3), .pad_left = between(0, 3),
                                             .least = between(0, 1) != 0 ? 0 : -INFINITY,
                                             .most = between(0, 2) == 0 ? 0.5f : INFINITY,
                                             .smooth = between(0, 1) != 0 ? LEAT_ACTIVATION_NONE : LEAT_ACTIVATION_SWISH},
                               .inputs = between(1, 20),
                               .least = between(0, 1) != 0 ? 0 : -INFINITY,
                               .most = between(0, 2) == 0 ? 1.5f : INFINITY,
                               .smooth = between(0, 1) != 0 ? LEAT_ACTIVATION_NONE : LEAT_ACTIVATION_SWISH};
        struct cpu_depthwise *d = &c.depthwise;
        d->out_height = (d->height + d->pad_top + between(0, 3) - d->kernel_down) / d->stride_down + 1;
        d->out_width = (d->width + d->pad_left + between(0, 3) - d->kernel_across) / d->stride_across + 1;
        if (d->out_height >= 1 && d->out_width >= 1) {
            test_expand_shape(&c);
        }
    }
}

/* Alone: errors as the header says, everywhere, and nothing else is written. */
static void
test_activations(void)
{
    static const enum leat_activation all[] = {LEAT_ACTIVATION_SIGMOID, LEAT_ACTIVATION_TANH, LEAT_ACTIVATION_SWISH,
                                               LEAT_ACTIVATION_GELU, LEAT_ACTIVATION_GELU_TANH};
    enum { POINTS = 40001 };

    for (size_t a = 0; a < LEAT_COUNT_OF(all); a++) {
        const struct leat_node node = {.fused_activation = all[a]};
        float *x = guarded(POINTS), *y = guarded(POINTS);
        EXPECT(cpu_activation_runs_here(all[a]));
        for (int i = 0; i < POINTS; i++) {
            const float t = (float)(i - POINTS / 2) / (POINTS / 2);
            x[i] = y[i] = 150.0f * t * t * t; /* dense about 0 */
        }
        cpu_activate(all[a], y, POINTS);
        for (int i = 0; i < POINTS; i++) {
            float wanted = x[i];
            leat_reference_activate(&node, &wanted, 1);
            EXPECT(fabsf(y[i] - wanted) <= 4e-7f * fmaxf(1, fabsf(x[i])));
        }
        release(x, POINTS);
        release(y, POINTS);
        for (size_t count = 0; count < 70; count++) {
            float *some = guarded(count), nan = NAN, zero = 0;
            for (size_t i = 0; i < count; i++) {
                some[i] = 0;
            }
            cpu_activate(all[a], some, count);
            cpu_activate(all[a], &zero, 1);
            cpu_activate(all[a], &nan, 1);
            EXPECT(isnan(nan) && fabsf(zero - (all[a] == LEAT_ACTIVATION_SIGMOID ? 0.5f : 0)) < 1e-6f);
            for (size_t i = 0; i < count; i++) {
                EXPECT(some[i] == zero);
            }
            release(some, count);
        }
    }
    EXPECT(!cpu_activation_runs_here(LEAT_ACTIVATION_NONE) && !cpu_activation_runs_here(LEAT_ACTIVATION_RELU));
}

static void
take_logarithms(const float *x, float *y, size_t count)
{
    (cpu_has_avx512() ? cpu_compute_avx512 : cpu_compute_avx2)(&(struct cpu_parameters){.kind = LEAT_OP_LOG}, x, y, count);
}

/* Of one in a thousand of all floats, and of all near 1; nothing else is written, and it may be in place. */
static void
test_logarithms(void)
{
    enum { POINTS = 4096 };
    const float special[] = {0, -0.0f, INFINITY, 1, -1, -INFINITY, NAN}, wanted[] = {-INFINITY, -INFINITY, INFINITY, 0, NAN, NAN, NAN};
    const uint32_t one = 0x3f800000, infinity = 0x7f800000;
    float *x = guarded(POINTS), *y = guarded(POINTS), answer[LEAT_COUNT_OF(special)];

    for (uint32_t round = 0; round < 2; round++) {
        const uint32_t stride = round == 0 ? 1009 : 1;
        const uint32_t begin = stride > 1 ? 1 : one - 50000, end = stride > 1 ? infinity - stride * POINTS : one + 50000;
        for (uint32_t from = begin; from < end; from += stride * POINTS) {
            for (uint32_t i = 0; i < POINTS; i++) {
                const uint32_t bits = from + i * stride;
                memcpy(&x[i], &bits, sizeof(bits));
            }
            take_logarithms(x, y, POINTS);
            for (uint32_t i = 0; i < POINTS; i++) {
                const double exact = log((double)x[i]);
                EXPECT(fabs((double)y[i] - exact) <= 4e-7 * fabs(exact));
            }
        }
    }
    release(x, POINTS);
    release(y, POINTS);
    take_logarithms(special, answer, LEAT_COUNT_OF(special));
    for (size_t i = 0; i < LEAT_COUNT_OF(special); i++) {
        EXPECT(isnan(wanted[i]) ? isnan(answer[i]) : answer[i] == wanted[i]);
    }
    for (size_t count = 0; count < 40; count++) {
        float *some = guarded(count);
        for (size_t i = 0; i < count; i++) {
            some[i] = 1;
        }
        take_logarithms(some, some, count);
        for (size_t i = 0; i < count; i++) {
            EXPECT(some[i] == 0);
        }
        release(some, count);
    }
}

/* ---- Through the backend --------------------------------------------------------------------------- */

/* y = activation(Conv(x) + side), and side a convolution of its own: what networks with shortcuts do. */
struct network {
    int64_t inputs, outputs, image, kernel, stride, pad, groups;
    bool bias, add;
    const char *activation; /* operator, Swish for one of two, or NULL */
    bool excite; /* times the sigmoid of the mean over its plane */
    int64_t line; /* its dilation, of images that have one axis; 0: they have two */
};

static void
add_conv(struct builder *b, const struct network *n, const char *weights, const char *inputs, const char *output)
{
    const int64_t count = n->outputs * (n->inputs / n->groups) * n->kernel * n->kernel;
    float *data = guarded_random((size_t)count);
    Onnx__NodeProto *node = builder_node(b, "Conv", inputs, output);

    if (n->line > 0) {
        (void)builder_constant(b, weights, 1, data, DIMS(n->outputs, n->inputs / n->groups, n->kernel));
        (void)builder_ints(b, node, "strides", DIMS(n->stride));
        (void)builder_ints(b, node, "pads", DIMS(n->pad, n->pad));
        (void)builder_ints(b, node, "dilations", DIMS(n->line));
    } else {
        (void)builder_constant(b, weights, 1, data, DIMS(n->outputs, n->inputs / n->groups, n->kernel, n->kernel));
        (void)builder_ints(b, node, "strides", DIMS(n->stride, n->stride));
        (void)builder_ints(b, node, "pads", DIMS(n->pad, n->pad, n->pad, n->pad));
    }
    release(data, (size_t)count);
    (void)builder_int(b, node, "group", n->groups);
}

static struct leat_graph *
network_graph(const struct network *n)
{
    float *bias = guarded_random((size_t)n->outputs);
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    if (n->line > 0) {
        (void)builder_input(&b, "x", 1, DIMS(-1, n->inputs, n->image));
    } else {
        (void)builder_input(&b, "x", 1, DIMS(-1, n->inputs, n->image, n->image));
    }
    (void)builder_constant(&b, "bias", 1, bias, DIMS(n->outputs));
    release(bias, (size_t)n->outputs);
    if (n->add) {
        add_conv(&b, n, "side_weights", "x side_weights", "side");
    }
    add_conv(&b, n, "weights", n->bias ? "x weights bias" : "x weights", "main");
    if (n->add) {
        (void)builder_node(&b, "Add", "main side", "sum");
    }
    const char *last = n->add ? "sum" : "main";
    if (n->activation != NULL && strcmp(n->activation, "Swish") == 0) {
        char inputs[16];
        (void)snprintf(inputs, sizeof(inputs), "%s gate", last);
        (void)builder_node(&b, "Sigmoid", last, "gate");
        (void)builder_node(&b, "Mul", inputs, "y");
        last = "y";
    } else if (n->activation != NULL) {
        (void)builder_node(&b, n->activation, last, "y");
        last = "y";
    }
    if (n->excite) {
        char inputs[16];
        (void)snprintf(inputs, sizeof(inputs), "factors %s", last);
        (void)builder_node(&b, "GlobalAveragePool", last, "means");
        (void)builder_node(&b, "Sigmoid", "means", "factors");
        (void)builder_node(&b, "Mul", inputs, "excited");
        last = "excited";
    }
    builder_output(&b, last);
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* Not activations, which are in place. */
static uint32_t
own_convolutions(struct leat_model *model, const struct leat_graph *graph, uint32_t items, uint32_t threads)
{
    struct cpu_program *program;
    uint32_t count = 0;

    EXPECT(cpu_program_build(model, graph, items, threads, &program) == LEAT_OK);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        count += step->primitive == NULL && step->arg_count > 1 && step->node != NULL && step->node->op->kind == LEAT_OP_CONV;
    }
    cpu_program_destroy(program);
    return count;
}

static void
answer(const struct leat_backend *backend, const struct leat_model_source *source, uint32_t items, struct leat_team *team,
       const float *x, size_t count, float *y)
{
    const uint32_t team_size = leat_team_size(team);
    const struct leat_plan_options options = {.items = items, .team_sizes = &team_size, .team_size_count = 1};
    struct leat_segment segment = {.items = items, .tensors = {x, y}};
    struct leat_model *model;
    struct leat_plan *plan;
    float *again = guarded(count);

    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
    float *scratch = guarded(backend->plan_scratch_bytes(plan) / sizeof(float) + 1);
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    segment.tensors[1] = again; /* over what the first run has left in the scratch */
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    EXPECT(memcmp(y, again, count * sizeof(*y)) == 0);
    release(scratch, backend->plan_scratch_bytes(plan) / sizeof(float) + 1);
    release(again, count);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

/* The cpu backend's answers, alone and with a team, and the reference's. */
static void
compare_backends(const struct leat_model_source *source, uint32_t items, struct leat_team *team)
{
    const size_t inputs = items * source->infos[0].item_bytes / sizeof(float);
    const size_t outputs = items * source->infos[1].item_bytes / sizeof(float);
    float *x = guarded_random(inputs), *expected = guarded(outputs), *y = guarded(outputs);
    answer(&leat_backend_reference, source, items, NULL, x, outputs, expected);
    for (int with_team = 0; with_team < 2; with_team++) {
        answer(&leat_backend_cpu, source, items, with_team != 0 ? team : NULL, x, outputs, y);
        for (size_t i = 0; i < outputs; i++) {
            EXPECT(fabsf(y[i] - expected[i]) <= 1e-4f * (1 + fabsf(expected[i])));
        }
    }
    release(x, inputs);
    release(expected, outputs);
    release(y, outputs);
}

static void
test_network(const struct network *n, uint32_t items, struct leat_team *team)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = network_graph(n);
    struct leat_model_source source = {.graph = graph, .infos = infos};

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    compare_backends(&source, items, team);
    leat_graph_destroy(graph);
}

static void
test_networks(struct leat_team *team)
{
    static const char *const activations[] = {NULL, "Relu", "Sigmoid", "Tanh", "Swish", "Swish"};

    for (int round = 0; round < NETWORK_ROUNDS; round++) {
        const int64_t kernel = between(0, 1) != 0 ? 3 : 1;
        const bool depthwise = between(0, 3) == 0;
        const int64_t unit = between(0, 3) != 0 ? 16 : 6, parts = between(0, 5) == 0 ? 2 : 1;
        const int64_t inputs = unit * between(1, 6) * parts, groups = depthwise ? inputs : parts;
        test_network(&(struct network){.inputs = inputs,
                                       .outputs = depthwise ? inputs : unit * between(1, 8) * parts,
                                       .image = between(3, 13),
                                       .kernel = kernel,
                                       .stride = between(1, 2),
                                       .pad = kernel == 3 ? between(0, 1) : 0,
                                       .groups = groups,
                                       .bias = between(0, 1) != 0,
                                       .add = between(0, 1) != 0,
                                       .activation = activations[between(0, 5)],
                                       .excite = between(0, 2) == 0},
                     ITEMS, team);
    }
}

/* Each channel by itself along one axis, as in conformers: none is left to a gemm, which locks, where there are kernels. */
static void
test_lines(struct leat_team *team)
{
    static const char *const activations[] = {NULL, "Relu", "Sigmoid", "Swish"};

    for (int round = 0; round < NETWORK_ROUNDS; round++) {
        const int64_t channels = between(2, 70), kernel = between(1, 33), line = between(0, 3) == 0 ? between(2, 3) : 1;
        const struct network n = {.inputs = channels,
                                  .outputs = channels,
                                  .image = (kernel - 1) * line + between(1, 40),
                                  .kernel = kernel,
                                  .stride = between(1, 3),
                                  .pad = between(0, kernel / 2),
                                  .groups = channels,
                                  .bias = between(0, 1) != 0,
                                  .add = between(0, 1) != 0,
                                  .activation = activations[between(0, 3)],
                                  .excite = between(0, 2) == 0,
                                  .line = line};
        struct leat_graph *graph = network_graph(&n);
        struct leat_inspection *inspection = NULL;
        struct leat_inspection_step step;

        test_network(&n, ITEMS, team);
        EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, ITEMS, 1, &inspection) == LEAT_OK);
        for (uint32_t s = 0; s < leat_inspection_step_count(inspection) && cpu_has_avx512(); s++) {
            leat_inspection_step(inspection, s, &step);
            EXPECT(line > 1 || strstr(step.kernel, "gemm") == NULL);
        }
        leat_inspection_destroy(inspection);
        leat_graph_destroy(graph);
    }
}

/*
 * The first of a network in 8 bits: an image, and two that pass on what it makes, of which the second is in floats. Its activation
 * is Relu, Clip at `clip` or NULL. No value has a range.
 */
static struct leat_graph *
image_graph(const struct network *n, const float *weights, float clip)
{
    float identity[16 * 16] = {0};
    struct leat_graph *graph = NULL;
    struct builder b;

    for (int c = 0; c < 16; c++) {
        identity[c * 17] = 1;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, n->inputs, n->image, n->image));
    (void)builder_constant(&b, "weights", 1, weights, DIMS(16, n->inputs, n->kernel, n->kernel));
    (void)builder_constant(&b, "ones", 1, identity, DIMS(16, 16, 1, 1));
    (void)builder_constant(&b, "more_ones", 1, identity, DIMS(16, 16, 1, 1));
    Onnx__NodeProto *node = builder_node(&b, "Conv", "x weights", "first");
    (void)builder_ints(&b, node, "strides", DIMS(n->stride, n->stride));
    (void)builder_ints(&b, node, "pads", DIMS(n->pad, n->pad, n->pad, n->pad));
    (void)builder_constant(&b, "zero", 1, (const float[]){0}, NULL, 0);
    (void)builder_constant(&b, "clip", 1, &clip, NULL, 0);
    if (n->activation != NULL) {
        (void)builder_node(&b, n->activation, strcmp(n->activation, "Clip") == 0 ? "first zero clip" : "first", "active");
    }
    (void)builder_node(&b, "Conv", n->activation != NULL ? "active ones" : "first ones", "second");
    (void)builder_node(&b, "Conv", "second more_ones", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* Steps of our own that make whole numbers of images. */
static uint32_t
whole_convolutions(struct leat_model *model, const struct leat_graph *graph, uint32_t items)
{
    struct cpu_program *program;
    uint32_t count = 0;

    EXPECT(cpu_program_build(model, graph, items, 1, &program) == LEAT_OK);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        bool whole = false;
        for (uint32_t a = 0; a < step->arg_count; a++) {
            const dnnl_data_type_t type = program->tensors[step->args[a].tensor].md.data_type;
            whole = whole || type == dnnl_u8 || type == dnnl_s8;
        }
        count += whole && step->primitive == NULL && step->node != NULL && step->node->op->kind == LEAT_OP_CONV;
    }
    cpu_program_destroy(program);
    return count;
}

/* Its first layer, whose result is s8 or, signed or not, u8, is right to what 16 bits leave, not 8: half a step of its result. */
static void
test_first_image(const struct network *n, bool is_signed, float range, uint32_t items, struct leat_team *team)
{
    const int64_t out = (n->image + 2 * n->pad - n->kernel) / n->stride + 1, taps = n->kernel * n->kernel;
    const struct cpu_direct c = {.items = items, .inputs = n->inputs, .outputs = 16, .height = n->image, .width = n->image,
                                 .out_height = out, .out_width = out, .kernel_down = n->kernel, .kernel_across = n->kernel,
                                 .stride_down = n->stride, .stride_across = n->stride, .pad_top = n->pad, .pad_left = n->pad};
    const size_t plane = (size_t)(n->image * n->image), inputs = (size_t)n->inputs, sources = items * inputs * plane;
    const size_t results = items * 16 * (size_t)(out * out), weight_count = (size_t)(16 * n->inputs * taps);
    float *x = guarded_random(sources), *pixels = guarded(sources), *weights = guarded_random(weight_count), *y = guarded(results);
    const float clip = 0.6f * range;
    const char *made = n->activation != NULL ? "active" : "first";
    struct leat_graph *graph = image_graph(n, weights, clip);
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.graph = graph, .infos = infos, .precision = LEAT_PRECISION_INT8};
    struct leat_model *model;

    EXPECT(leat_graph_set_range(graph, &(struct leat_range){"x", -1, 1}));
    EXPECT(leat_graph_set_range(graph, &(struct leat_range){made, is_signed ? -range : 0, range}));
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(whole_convolutions(model, graph, items) == 1);
    leat_backend_cpu.model_destroy(model);
    for (size_t i = 0; i < sources; i++) {
        pixels[i] = x[(i / inputs / plane * inputs + i % inputs) * plane + i / inputs % plane];
    }
    for (int with_team = 0; with_team < 2; with_team++) {
        answer(&leat_backend_cpu, &source, items, with_team != 0 ? team : NULL, x, results, y);
        for (size_t i = 0; i < results; i++) { /* [items][16][out][out] */
            const int64_t at = (int64_t)(i % (size_t)(out * out)), o = (int64_t)(i / (size_t)(out * out) % 16);
            const double step = (double)range / (is_signed ? 127 : 255);
            double size, sum = sum_at(&c, pixels, weights, (int64_t)(i / (size_t)(16 * out * out)), at / out, at % out, o, &size);
            sum = fmin(fmax(sum, is_signed ? -128 * step : 0), (is_signed ? 127 : 255) * step);
            sum = n->activation != NULL && strcmp(n->activation, "Clip") == 0 ? fmin(sum, (double)clip) : sum;
            /* Each term is off by half a step of the pixel and of the weight, at most. */
            const double off = 0.5 * (double)(n->inputs * taps) * (1.0 / CPU_WHOLE_PIXEL + 1.1 * (double)(n->inputs * taps) / CPU_WHOLE_SUM);
            EXPECT(fabs((double)y[i] - sum) <= 0.5 * step + off + 1e-5);
        }
    }
    leat_graph_destroy(graph);
    release(x, sources);
    release(pixels, sources);
    release(weights, weight_count);
    release(y, results);
}

static void
test_first_images(struct leat_team *team)
{
    static const char *const activations[] = {NULL, NULL, "Relu", "Clip"};

    for (int round = 0; round < NETWORK_ROUNDS; round++) {
        const int64_t kernel = between(1, 7);
        const struct network n = {.inputs = between(1, 4), .image = between(7, 20), .kernel = kernel, .stride = between(1, 2),
                                  .pad = between(0, kernel / 2), .activation = activations[between(0, 3)]};
        test_first_image(&n, n.activation == NULL && between(0, 1) != 0, (float)between(1, 40), (uint32_t)between(1, ITEMS), team);
    }
}

/* All ranges that it needs are found: those of its image, which no step makes, too. */
static void
test_first_image_calibrated(void)
{
    const struct network n = {.inputs = 3, .image = 16, .kernel = 3, .stride = 2, .pad = 1, .activation = "Relu"};
    const size_t sources = ITEMS * 3 * 16 * 16, weight_count = 16 * 3 * 3 * 3;
    float *x = guarded_random(sources), *weights = guarded_random(weight_count);
    struct leat_graph *graph = image_graph(&n, weights, 0);
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.graph = graph, .infos = infos, .precision = LEAT_PRECISION_INT8};
    struct leat_calibration *calibration;
    struct leat_model *model;

    EXPECT(leat_calibration_create(graph, ITEMS, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const[]){x}) == LEAT_OK);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        (void)leat_graph_set_range(graph, &range); /* some are the program's own */
    }
    leat_calibration_destroy(calibration);
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(whole_convolutions(model, graph, ITEMS) == 1);
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
    release(x, sources);
    release(weights, weight_count);
}

/* More members than rows and vectors of channels, which leaves some of them without work, whatever the step. */
static void
test_many_members(void)
{
    for (uint32_t size = 1; size <= 9; size++) {
        struct leat_team *team;
        EXPECT(leat_team_create(&(struct leat_team_options){.size = size}, &team) == LEAT_OK);
        for (int round = 0; round < MANY_ROUNDS; round++) {
            const int64_t channels = 16 * between(1, 3);
            const bool depthwise = between(0, 2) == 0;
            test_network(&(struct network){.inputs = channels,
                                           .outputs = channels,
                                           .image = between(1, 5),
                                           .kernel = 3,
                                           .stride = between(1, 2),
                                           .pad = 1,
                                           .groups = depthwise ? channels : 1,
                                           .add = between(0, 1) != 0,
                                           .activation = between(0, 1) != 0 ? "Relu" : NULL,
                                           .excite = true},
                         (uint32_t)between(1, 3), team);
        }
        leat_team_destroy(team);
    }
}

/* ---- An expansion and its windows ------------------------------------------------------------------- */

struct bottleneck {
    int64_t inputs, channels, image, kernel, stride;
    const char *activation;
    bool shortcut; /* a convolution is added to what is expanded, between the two */
    bool shared;   /* somebody else reads what is between */
};

static struct leat_graph *
bottleneck_graph(const struct bottleneck *n)
{
    const struct network stem = {.inputs = 16, .outputs = n->inputs, .kernel = 1, .stride = 1, .groups = 1};
    const struct network points = {.inputs = n->inputs, .outputs = n->channels, .kernel = 1, .stride = 1, .groups = 1};
    const struct network windows = {.inputs = n->channels, .outputs = n->channels, .kernel = n->kernel, .stride = n->stride,
                                    .pad = n->kernel / 2, .groups = n->channels};
    struct leat_graph *graph = NULL;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 16, n->image, n->image));
    add_conv(&b, &stem, "stem_weights", "x stem_weights", "stem");
    add_conv(&b, &points, "point_weights", "stem point_weights", "points");
    (void)builder_node(&b, n->activation, "points", "expanded");
    if (n->shortcut) { /* in the place of stem, if nobody else read that */
        add_conv(&b, &stem, "side_weights", "x side_weights", "side");
        (void)builder_node(&b, "Add", "side stem", "sum");
    }
    add_conv(&b, &windows, "window_weights", "expanded window_weights", "windows");
    (void)builder_node(&b, n->activation, "windows", "result");
    const char *last = n->shared ? "result expanded" : n->shortcut ? "result sum" : NULL;
    if (last != NULL) {
        (void)builder_int(&b, builder_node(&b, "Concat", last, "both"), "axis", 1);
    }
    builder_output(&b, last != NULL ? "both" : "result");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

/* Right, and without a step for the expansion where `together` says so. */
static void
test_bottleneck(const struct bottleneck *n, bool together, struct leat_team *team)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = bottleneck_graph(n);
    struct leat_model_source source = {.graph = graph, .infos = infos};
    struct leat_model *model;
    struct cpu_program *program;
    uint32_t convolutions = 0;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    compare_backends(&source, ITEMS, team);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(cpu_program_build(model, graph, ITEMS, TEAM, &program) == LEAT_OK);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        dnnl_primitive_kind_t kind = dnnl_convolution;
        const_dnnl_primitive_desc_t pd;
        if (step->primitive != NULL) {
            EXPECT(dnnl_primitive_get_primitive_desc(step->primitive, &pd) == dnnl_success);
            EXPECT(dnnl_primitive_desc_query(pd, dnnl_query_primitive_kind, 0, &kind) == dnnl_success);
        }
        convolutions += kind == dnnl_convolution && step->node != NULL && step->node->op->kind == LEAT_OP_CONV;
    }
    EXPECT(!cpu_has_avx512() || convolutions == (n->shortcut ? 4 : 3) - (together ? 1u : 0u));
    cpu_program_destroy(program);
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
}

static void
test_bottlenecks(struct leat_team *team)
{
    for (int round = 0; round < NETWORK_ROUNDS / 2; round++) {
        const int64_t unit = 16 * between(1, 3);
        struct bottleneck n = {.inputs = unit, .channels = between(0, 1) != 0 ? unit : 16 * between(1, 9),
                               .image = between(3, 20), .kernel = between(0, 1) != 0 ? 3 : 5, .stride = between(1, 2),
                               .activation = "Relu"};
        n.shortcut = n.stride == 1 && between(0, 1) != 0;
        test_bottleneck(&n, true, team);
        n.shortcut = false;
        n.shared = n.stride == 1;
        test_bottleneck(&n, !n.shared, team);
    }
    test_bottleneck(&(struct bottleneck){24, 24, 9, 3, 1, "Relu", false, false}, false, team); /* no whole vectors */
}

/* What ours are there for: windows of stride 1, products of whole panels, weights that are too many for the caches. */
static void
test_choice(const struct network *n, uint32_t items, uint32_t threads, bool expected)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = network_graph(n);
    struct leat_model_source source = {.graph = graph, .infos = infos};
    struct leat_model *model;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    const uint32_t convolutions = n->add ? 2 : 1;
    EXPECT(own_convolutions(model, graph, items, threads) == (expected ? convolutions : 0));
    leat_backend_cpu.model_destroy(model);
    leat_graph_destroy(graph);
}

/* oneDNN's generated convolutions run in four parts for each thread of several; in how many steps? */
static uint32_t
steps_in_parts(struct leat_model *model, const struct leat_graph *graph, uint32_t threads)
{
    struct cpu_program *program;
    uint32_t count = 0;

    EXPECT(cpu_program_build(model, graph, ITEMS, threads, &program) == LEAT_OK);
    for (uint32_t s = 0; s < program->step_count; s++) {
        EXPECT(program->steps[s].parts <= 1 || program->steps[s].parts == 4);
        count += program->steps[s].parts == 4;
    }
    cpu_program_destroy(program);
    return count;
}

static void
test_parts(struct leat_team *team)
{
    const struct network in_groups = {128, 128, 14, 3, 1, 1, 32, true, false, "Relu", false, 0};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = network_graph(&in_groups);
    struct leat_model_source source = {.graph = graph, .infos = infos};
    struct leat_model *model;

    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    compare_backends(&source, ITEMS, team);
    EXPECT(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    EXPECT(steps_in_parts(model, graph, 1) == 0);
    if (cpu_whole_image_runs_here()) {
        EXPECT(steps_in_parts(model, graph, 2) == 1 && steps_in_parts(model, graph, 4) == 1);
    } else {
        (void)printf("skipped: convolutions in parts: what oneDNN generates is known of processors with VNNI and no AMX\n");
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
    test_logarithms();
    if (cpu_vector_lanes() > 0) {
        test_kernels();
    }
    if (cpu_has_avx512()) {
        test_image();
        test_depthwise();
        test_expand();
    }
    if (cpu_has_avx2()) {
        test_activations();
    } else {
        (void)printf("skipped: products of pixels and weights, activations: this processor has no AVX2\n");
    }
    if (cpu_whole_image_runs_here()) {
        test_whole_image();
    }
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    test_networks(team);
    test_lines(team);
    if (cpu_whole_image_runs_here()) {
        test_first_images(team);
        test_first_image_calibrated();
    } else {
        (void)printf("skipped: first images in whole numbers: this processor has no VNNI, or has AMX and takes bf16\n");
    }
    test_many_members();
    test_parts(team);
    test_bottlenecks(team);
    const bool here = cpu_has_avx512(), windows = cpu_vector_lanes() > 0;
    const struct network window = {64, 64, 14, 3, 1, 1, 1, true, true, "Relu", false, 0};
    test_choice(&window, 8, 1, windows);
    test_choice(&window, 8, 2, windows);
    test_choice(&window, 1, 16, false);
    const struct network point = {64, 128, 7, 1, 2, 0, 1, true, true, "Relu", false, 0};
    test_choice(&point, 1, 2, here);
    const struct network narrow = {48, 32, 7, 1, 1, 0, 1, true, false, "Relu", false, 0};
    test_choice(&narrow, 1, 1, false);
    const struct network heavy = {256, 256, 7, 3, 2, 1, 1, true, false, NULL, false, 0};
    test_choice(&heavy, 1, 1, here);
    const struct network swish = {48, 32, 7, 1, 1, 0, 1, true, false, "Swish", true, 0}; /* oneDNN's takes longer */
    test_choice(&swish, 1, 1, here);
    const struct network channels = {32, 32, 7, 3, 1, 1, 32, true, false, "Swish", false, 0};
    test_choice(&channels, 1, 1, here);
    const struct network clamped = {32, 32, 7, 3, 1, 1, 32, true, false, "Relu", false, 0};
    test_choice(&clamped, 1, 1, false);
    const struct network photo = {3, 32, 15, 3, 2, 1, 1, true, false, "Relu", false, 0};
    test_choice(&photo, 1, 2, here);
    const struct network large = {3, 32, 15, 5, 2, 2, 1, true, false, "Relu", false, 0};
    test_choice(&large, 1, 2, false);
    leat_team_destroy(team);
    return 0;
}
