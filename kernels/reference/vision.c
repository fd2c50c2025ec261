/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample and RoiAlign. Places come from payload: any number, infinite or none at all. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* ---- GridSample ------------------------------------------------------------------------------------------- */

enum padding { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

struct sampler {
    const struct leat_value *x;
    const float *plane;
    bool align_corners;
    enum padding padding;
};

/* x mirrored at the borders of [low, high] until it is inside. */
static double
reflect(double x, double low, double high)
{
    const double range = high - low;
    if (range <= 0) {
        return 0;
    }
    const double turn = fmod(fabs(x - low), 2 * range);
    return low + (turn > range ? 2 * range - turn : turn);
}

/* Where a place outside an axis of `size` is read; zeros are read nowhere. */
static double
pad(const struct sampler *s, double x, int64_t size)
{
    const double last = (double)(size - 1);
    if (s->padding == PAD_ZEROS) {
        return x;
    }
    if (s->padding == PAD_REFLECTION) {
        x = s->align_corners ? reflect(x, 0, last) : reflect(x, -0.5, last + 0.5);
    }
    return x < 0 ? 0 : x > last ? last : x;
}

/* A grid coordinate in [-1, 1] as a place; what is far away, infinite or no number stays far outside. */
static double
place_of(const struct sampler *s, float coordinate, int64_t size)
{
    const double g = (double)coordinate, n = (double)size, far = 1e9;
    const double x = s->align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    return x > far ? far : x > -far ? x : -far;
}

/* The element at a whole place, padded. */
static double
pixel(const struct sampler *s, double y, double x)
{
    const int64_t height = s->x->dims[2], width = s->x->dims[3];
    const int64_t row = (int64_t)nearbyint(pad(s, y, height)),
                  column = (int64_t)nearbyint(pad(s, x, width));
    return row >= 0 && row < height && column >= 0 && column < width
               ? (double)s->plane[row * width + column]
               : 0;
}

static double
bilinear(const struct sampler *s, double y, double x)
{
    y = pad(s, y, s->x->dims[2]);
    x = pad(s, x, s->x->dims[3]);
    const double top = floor(y), left = floor(x), down = y - top, right = x - left;
    return (1 - down) * ((1 - right) * pixel(s, top, left) + right * pixel(s, top, left + 1)) +
           down * ((1 - right) * pixel(s, top + 1, left) + right * pixel(s, top + 1, left + 1));
}

/* The cubic convolution kernel (Keys, 1981) with a = -0.75 at distance t. */
static double
cubic(double t)
{
    const double a = -0.75;
    t = fabs(t);
    return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : ((t - 5) * t + 8) * t * a - 4 * a;
}

static double
bicubic(const struct sampler *s, double y, double x)
{
    const double top = floor(y), left = floor(x);
    double sum = 0;
    for (int i = -1; i <= 2; i++) {
        for (int k = -1; k <= 2; k++) {
            sum += cubic(y - top - i) * cubic(x - left - k) * pixel(s, top + i, left + k);
        }
    }
    return sum;
}

LEAT_REFERENCE_FUNCTION(grid_sample)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const struct leat_attribute *mode = leat_node_attribute(eval->node, "mode");
    const bool cubic = mode != NULL && (strcmp(mode->s, "bicubic") == 0 || strcmp(mode->s, "cubic") == 0);
    const bool nearest = mode != NULL && strcmp(mode->s, "nearest") == 0;
    const struct leat_attribute *padding = leat_node_attribute(eval->node, "padding_mode");
    const size_t in_plane = leat_extent(x, 2, 4), plane = leat_extent(output, 2, 4);
    const size_t count = leat_value_elements(output), channels = (size_t)x->dims[1];
    const float *grid = leat_eval_in(eval, 1);
    float *out = leat_eval_out(eval, 0);
    struct sampler s = {
        .x = x,
        .align_corners = leat_node_int(eval->node, "align_corners", 0) != 0,
        .padding = padding == NULL || strcmp(padding->s, "zeros") == 0 ? PAD_ZEROS
                   : strcmp(padding->s, "border") == 0                 ? PAD_BORDER
                                                                       : PAD_REFLECTION,
    };

    for (size_t i = 0; i < count; i++) {
        const size_t n = i / plane / channels, at = 2 * (n * plane + i % plane);
        const double column = place_of(&s, grid[at], x->dims[3]),
                     row = place_of(&s, grid[at + 1], x->dims[2]);
        s.plane = (const float *)leat_eval_in(eval, 0) + i / plane * in_plane;
        out[i] = (float)(nearest ? pixel(&s, nearbyint(row), nearbyint(column))
                         : cubic ? bicubic(&s, row, column)
                                 : bilinear(&s, row, column));
    }
    return LEAT_OK;
}

/* ---- RoiAlign --------------------------------------------------------------------------------------------- */

/* Bilinear, with a border of one pixel around the plane in which values fade to the edge's. */
static double
sample(const struct leat_value *x, const float *plane, double row, double column)
{
    const double height = (double)x->dims[2], width = (double)x->dims[3];

    if (!(row >= -1 && row <= height && column >= -1 && column <= width)) {
        return 0;
    }
    row = row < 0 ? 0 : row > height - 1 ? height - 1 : row;
    column = column < 0 ? 0 : column > width - 1 ? width - 1 : column;
    const int64_t top = (int64_t)row, left = (int64_t)column;
    const int64_t bottom = top + 1 < x->dims[2] ? top + 1 : top;
    const int64_t end = left + 1 < x->dims[3] ? left + 1 : left;
    const double down = row - (double)top, right = column - (double)left;
    const float *a = plane + top * x->dims[3], *b = plane + bottom * x->dims[3];
    return (1 - down) * ((1 - right) * (double)a[left] + right * (double)a[end]) +
           down * ((1 - right) * (double)b[left] + right * (double)b[end]);
}

/* One region: where its cells lie and how many samples each one takes. */
struct region {
    size_t image;
    double top, left, cell_height, cell_width;
    int64_t rows, columns;
};

static enum leat_status
read_region(const struct leat_eval *eval, size_t r, struct region *ret)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const struct leat_attribute *mode =
        leat_node_attribute(eval->node, "coordinate_transformation_mode");
    const bool half_pixel =
        eval->node->op->since >= 16 && (mode == NULL || strcmp(mode->s, "half_pixel") == 0);
    const double factor = (double)leat_node_float(eval->node, "spatial_scale", 1.0f);
    const int64_t given = leat_node_int(eval->node, "sampling_ratio", 0);
    const float *roi = (const float *)leat_eval_in(eval, 1) + 4 * r;
    const double offset = half_pixel ? 0.5 : 0;
    const int64_t image = leat_eval_int(eval, 2, r);

    if (image < 0 || image >= x->dims[0]) {
        return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "index %lld is outside %lld images",
                              (long long)image, (long long)x->dims[0]);
    }
    ret->image = (size_t)image;
    ret->left = (double)roi[0] * factor - offset;
    ret->top = (double)roi[1] * factor - offset;
    double width = (double)roi[2] * factor - offset - ret->left;
    double height = (double)roi[3] * factor - offset - ret->top;
    if (!half_pixel) {
        width = width < 1 ? 1 : width;
        height = height < 1 ? 1 : height;
    }
    ret->cell_width = width / (double)output->dims[3];
    ret->cell_height = height / (double)output->dims[2];
    /* A region asks for the number of samples itself: bounded, and no number is none. */
    const double rows = given > 0 ? (double)given : ceil(ret->cell_height);
    const double columns = given > 0 ? (double)given : ceil(ret->cell_width);
    if (!(rows <= LEAT_ROI_SAMPLES_MAX && columns <= LEAT_ROI_SAMPLES_MAX)) {
        return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "a region of %g x %g", height, width);
    }
    ret->rows = rows > 0 ? (int64_t)rows : 0;
    ret->columns = columns > 0 ? (int64_t)columns : 0;
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(roi_align)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t channels = (size_t)x->dims[1], in_plane = leat_extent(x, 2, 4);
    const size_t plane = leat_extent(output, 2, 4), width = (size_t)output->dims[3];
    float *out = leat_eval_out(eval, 0);
    struct region region = {0};

    for (size_t r = 0; r < (size_t)output->dims[0]; r++) {
        const enum leat_status status = read_region(eval, r, &region);
        if (status != LEAT_OK) {
            return status;
        }
        for (size_t i = 0; i < channels * plane; i++) {
            const float *in = (const float *)leat_eval_in(eval, 0) +
                              (region.image * channels + i / plane) * in_plane;
            const double top = region.top + (double)(i % plane / width) * region.cell_height;
            const double left = region.left + (double)(i % width) * region.cell_width;
            double sum = 0;
            for (int64_t row = 0; row < region.rows; row++) {
                for (int64_t column = 0; column < region.columns; column++) {
                    sum += sample(
                        x, in, top + ((double)row + 0.5) * region.cell_height / (double)region.rows,
                        left + ((double)column + 0.5) * region.cell_width / (double)region.columns);
                }
            }
            const double samples = (double)(region.rows * region.columns);
            out[r * channels * plane + i] = (float)(samples > 0 ? sum / samples : 0);
        }
    }
    return LEAT_OK;
}
