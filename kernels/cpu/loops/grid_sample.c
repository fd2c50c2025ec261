/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample: what a point is a sum of is found once for all channels, some points at a time. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/resample.h"
#include "kernels/cpu/program.h"

enum padding { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

struct sampler {
    bool nearest, cubic, align_corners;
    enum padding padding;
};

static struct sampler
sampler_of(const struct leat_node *node)
{
    const struct leat_attribute *mode = leat_node_attribute(node, "mode"), *padding = leat_node_attribute(node, "padding_mode");

    return (struct sampler){
        .nearest = mode != NULL && strcmp(mode->s, "nearest") == 0,
        .cubic = mode != NULL && (strcmp(mode->s, "bicubic") == 0 || strcmp(mode->s, "cubic") == 0),
        .align_corners = leat_node_int(node, "align_corners", 0) != 0,
        .padding = padding == NULL || strcmp(padding->s, "zeros") == 0 ? PAD_ZEROS
                   : strcmp(padding->s, "border") == 0                 ? PAD_BORDER
                                                                       : PAD_REFLECTION,
    };
}

/* A coordinate in [-1, 1] as a place; what is far away, infinite or no number stays far outside. */
static double
place_of(const struct sampler *s, float coordinate, int64_t size)
{
    const double g = (double)coordinate, n = (double)size, far = 1e9;
    const double x = s->align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    return x > far ? far : x > -far ? x : -far;
}

/* Where a place outside an axis is read; of zeros it stays there. */
static double
padded(const struct sampler *s, double x, int64_t size)
{
    const double last = (double)(size - 1), low = s->align_corners ? 0 : -0.5, range = last - 2 * low;

    if (s->padding == PAD_ZEROS || (x >= 0 && x <= last)) {
        return x;
    }
    if (s->padding == PAD_REFLECTION) {
        const double turn = range > 0 ? fmod(fabs(x - low), 2 * range) : 0;
        x = range > 0 ? low + (turn > range ? 2 * range - turn : turn) : 0;
    }
    return x < 0 ? 0 : x > last ? last : x;
}

/* Along one axis; an index of -1 reads 0. */
struct line {
    int count;
    int32_t index[4];
    double weight[4];
};

static int32_t
index_of(const struct sampler *s, double whole, int64_t size)
{
    const double at = nearbyint(padded(s, whole, size));
    return at >= 0 && at < (double)size ? (int32_t)at : -1;
}

/* The cubic convolution kernel (Keys, 1981) with a = -0.75 at distance t. */
static double
cubic(double t)
{
    const double a = -0.75;
    t = fabs(t);
    return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : ((t - 5) * t + 8) * t * a - 4 * a;
}

static void
find(const struct sampler *s, float coordinate, int64_t size, struct line *ret)
{
    double x = place_of(s, coordinate, size);

    if (s->nearest) {
        *ret = (struct line){1, {index_of(s, nearbyint(x), size)}, {1}};
        return;
    }
    x = s->cubic ? x : padded(s, x, size);
    const double first = floor(x), beyond = x - first;
    ret->count = s->cubic ? 4 : 2;
    for (int k = 0; k < ret->count; k++) {
        const int place = s->cubic ? k - 1 : k;
        ret->index[k] = index_of(s, first + place, size);
        ret->weight[k] = s->cubic ? cubic(beyond - place) : k == 0 ? 1 - beyond : beyond;
    }
}

static void
find_neighbours(size_t count, struct cpu_samples *samples)
{
    for (size_t i = 0; i < count; i += CPU_POINTS_TOGETHER) {
        bool beside = samples->taps == 4 && i + CPU_POINTS_TOGETHER <= count;
        for (size_t p = i; p < i + CPU_POINTS_TOGETHER && beside; p++) {
            for (int t = 0; t < 4; t += 2) {
                beside = beside && samples->index[t][p] >= 0 && samples->index[t + 1][p] == samples->index[t][p] + 1;
            }
        }
        samples->beside[i / CPU_POINTS_TOGETHER] = beside;
    }
}

/* args: planes, grid, result. outer: channels; inner: points of an item; dims: height and width. Units: some points of an item. */
static void
sample_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_step *step = call->step;
    const size_t channels = step->outer, points = step->inner, each = (points + CPU_POINTS - 1) / CPU_POINTS;
    const int64_t height = step->dims[0], width = step->dims[1];
    const size_t plane = (size_t)(height * width);
    const struct sampler s = sampler_of(step->node);
    struct cpu_samples samples;
    struct line down, across;

    memset(samples.index, 0xff, sizeof(samples.index)); /* -1 */
    memset(samples.weight, 0, sizeof(samples.weight));
    for (size_t unit = begin; unit < end; unit++) {
        const size_t item = unit / each, first = unit % each * CPU_POINTS;
        const size_t count = points - first < CPU_POINTS ? points - first : CPU_POINTS;
        const float *grid = (const float *)call->pointers[1] + 2 * (item * points + first);
        const float *x = (const float *)call->pointers[0] + item * channels * plane;
        float *y = (float *)call->pointers[2] + item * channels * points + first;
        for (size_t i = 0; i < count; i++) {
            find(&s, grid[2 * i], width, &across);
            find(&s, grid[2 * i + 1], height, &down);
            samples.taps = 0;
            for (int r = 0; r < down.count; r++) {
                for (int c = 0; c < across.count; c++, samples.taps++) {
                    const bool inside = down.index[r] >= 0 && across.index[c] >= 0;
                    samples.index[samples.taps][i] = inside ? down.index[r] * (int32_t)width + across.index[c] : -1;
                    samples.weight[samples.taps][i] = (float)(down.weight[r] * across.weight[c]);
                }
            }
        }
        find_neighbours(count, &samples);
        for (size_t c = 0; c < channels; c++) {
            if (cpu_has_avx512()) {
                cpu_sample_points_avx512(&samples, count, x + c * plane, y + c * points);
            } else {
                cpu_sample_points_avx2(&samples, count, x + c * plane, y + c * points);
            }
        }
    }
}

static enum leat_status
grid_sample(const struct cpu_call *call)
{
    cpu_share(call, sample_part, call->step->count, 1);
    return LEAT_OK;
}

enum leat_status
cpu_lower_grid_sample(struct cpu_builder *b)
{
    const struct leat_value *x = leat_node_input(b->graph, b->node, 0), *y = leat_node_output(b->graph, b->node, 0);
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;

    if (x->rank != 4 || leat_value_elements(x) == 0 || leat_value_elements(y) == 0 || cpu_vector_lanes() == 0 ||
        x->dims[2] > INT32_MAX / x->dims[3]) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_plain(b, b->node->inputs[0], &args[0].tensor);
    if (status == LEAT_OK) {
        status = cpu_plain(b, b->node->inputs[1], &args[1].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_plain_output(b, 0, &args[2].tensor);
    }
    if (status == LEAT_OK) {
        status = cpu_add_kernel(b, grid_sample, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->outer = (size_t)x->dims[1];
        step->inner = (size_t)(y->dims[2] * y->dims[3]);
        step->count = (size_t)x->dims[0] * ((step->inner + CPU_POINTS - 1) / CPU_POINTS);
        memcpy(step->dims, x->dims + 2, 2 * sizeof(*step->dims));
    }
    return status;
}
