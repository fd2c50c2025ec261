/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample: separable interpolation. For each axis and output place, the input places and their weights. */
#include "kernels/resize.h"

#include <math.h>

#include "kernels/reference/element.h"

size_t
leat_workspace_resize(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_value *output = leat_node_output(graph, node, 0);
    size_t places = 0;
    for (uint32_t d = 0; d < output->rank; d++) {
        places += (size_t)output->dims[d];
    }
    return places * sizeof(struct leat_resize_taps);
}

/* Where output place i of axis d lies in the input. */
static double
place_of(const struct leat_resize *r, const struct leat_value *x, const float *roi, uint32_t d, int64_t i)
{
    const double in = (double)x->dims[d], at = (double)i;
    const double out = in * r->scale[d]; /* before it was rounded down, as the definition has it */

    switch (r->place) {
    case LEAT_PLACE_HALF_PIXEL:
        return (at + 0.5) / r->scale[d] - 0.5;
    case LEAT_PLACE_PYTORCH_HALF_PIXEL:
        return out > 1 ? (at + 0.5) / r->scale[d] - 0.5 : 0;
    case LEAT_PLACE_ALIGN_CORNERS:
        return out > 1 ? at * (in - 1) / (out - 1) : 0;
    case LEAT_PLACE_ASYMMETRIC:
        return at / r->scale[d];
    case LEAT_PLACE_TF_HALF_PIXEL_FOR_NN:
        return (at + 0.5) / r->scale[d];
    case LEAT_PLACE_TF_CROP_AND_RESIZE:
        break;
    }
    const double start = (double)roi[d], end = (double)roi[x->rank + d];
    return out > 1 ? start * (in - 1) + at * (end - start) * (in - 1) / (out - 1)
                   : 0.5 * (start + end) * (in - 1);
}

static double
round_place(const struct leat_resize *r, double x)
{
    switch (r->round) {
    case LEAT_ROUND_PREFER_FLOOR:
        return ceil(x - 0.5);
    case LEAT_ROUND_PREFER_CEIL:
        return floor(x + 0.5);
    case LEAT_ROUND_FLOOR:
        return floor(x);
    case LEAT_ROUND_CEIL:
        break;
    }
    return ceil(x);
}

/* The cubic convolution kernel (Keys, 1981) at distance t. */
static double
cubic(double a, double t)
{
    t = fabs(t);
    return t <= 1  ? ((a + 2) * t - (a + 3)) * t * t + 1
           : t < 2 ? ((t - 5) * t + 8) * t * a - 4 * a
                   : 0;
}

static void
fill_taps(const struct leat_resize *r, double x, int64_t size, struct leat_resize_taps *taps)
{
    const double last = (double)(size - 1);

    *taps = (struct leat_resize_taps){.outside =
                              r->place == LEAT_PLACE_TF_CROP_AND_RESIZE && !(x >= 0 && x <= last)};
    if (taps->outside) {
        return;
    }
    x = x < -2 ? -2 : x > last + 2 ? last + 2 : x; /* beyond the borders all places are alike */
    const double whole = r->mode == LEAT_RESIZE_NEAREST ? round_place(r, x) : floor(x);
    const double ratio = x - whole;
    const int64_t first = (int64_t)whole - (r->mode == LEAT_RESIZE_CUBIC ? 1 : 0);
    double total = 0;
    taps->count = r->mode == LEAT_RESIZE_NEAREST ? 1 : r->mode == LEAT_RESIZE_LINEAR ? 2 : 4;
    for (uint32_t k = 0; k < taps->count; k++) {
        const int64_t at = first + (int64_t)k;
        const bool inside = at >= 0 && at < size;
        taps->index[k] = at < 0 ? 0 : at >= size ? (size_t)size - 1 : (size_t)at;
        taps->weight[k] = r->mode == LEAT_RESIZE_NEAREST ? 1
                          : r->mode == LEAT_RESIZE_LINEAR
                              ? (k == 0 ? 1 - ratio : ratio)
                              : cubic(r->cubic_a, ratio + 1 - (double)k);
        if (r->exclude_outside && !inside && taps->count > 1) {
            taps->weight[k] = 0;
        }
        total += taps->weight[k];
    }
    for (uint32_t k = 0; k < taps->count && r->exclude_outside && total != 0; k++) {
        taps->weight[k] /= total;
    }
}

void
leat_resize_taps(const struct leat_resize *resize, const struct leat_value *x, const float *roi, uint32_t d, int64_t i,
                 struct leat_resize_taps *ret)
{
    fill_taps(resize, place_of(resize, x, roi, d, i), x->dims[d], ret);
}

/* The output element at these taps, one per axis: a sum over all combinations of them. */
static double
interpolate(const struct leat_value *x, const void *in, const struct leat_resize_taps *const *taps,
            const size_t *strides)
{
    uint32_t k[LEAT_RANK_MAX] = {0};
    double sum = 0;

    for (;;) {
        size_t at = 0;
        double weight = 1;
        for (uint32_t d = 0; d < x->rank; d++) {
            at += taps[d]->index[k[d]] * strides[d];
            weight *= taps[d]->weight[k[d]];
        }
        sum += weight != 0 ? weight * leat_element_real(x->dtype, in, at) : 0;
        uint32_t d = x->rank;
        while (d > 0 && ++k[d - 1] == taps[d - 1]->count) {
            k[--d] = 0;
        }
        if (d == 0) {
            return sum;
        }
    }
}

LEAT_REFERENCE_FUNCTION(resize)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    size_t strides[LEAT_RANK_MAX];
    int64_t at[LEAT_RANK_MAX];
    struct leat_resize_taps *axes[LEAT_RANK_MAX], *next = eval->workspace;
    const struct leat_resize_taps *here[LEAT_RANK_MAX];
    struct leat_resize resize;
    bool known;

    const enum leat_status status = leat_resize_of(eval->graph, eval->node, &resize, &known);
    if (status != LEAT_OK) {
        return status;
    }
    const bool crops = resize.place == LEAT_PLACE_TF_CROP_AND_RESIZE;
    leat_strides(x, strides);
    for (uint32_t d = 0; d < x->rank; d++) {
        axes[d] = next;
        for (int64_t i = 0; i < output->dims[d] && count > 0; i++) {
            leat_resize_taps(&resize, x, crops ? leat_eval_in(eval, 1) : NULL, d, i, next++);
        }
    }
    for (size_t i = 0; i < count; i++) {
        bool outside = false;
        leat_coordinates(output, i, at);
        for (uint32_t d = 0; d < x->rank; d++) {
            here[d] = &axes[d][at[d]];
            outside = outside || here[d]->outside;
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i,
                              outside ? resize.extrapolation
                                      : interpolate(x, leat_eval_in(eval, 0), here, strides));
    }
    return LEAT_OK;
}
