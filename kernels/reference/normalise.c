/* SPDX-License-Identifier: Apache-2.0 */
/* LogSoftmax, Hardmax and normalisations by mean, variance or norm. */
#include <math.h>

#include "kernels/reference/element.h"

LEAT_REFERENCE_FUNCTION(log_softmax)
{
    const uint32_t dtype = leat_eval_input(eval, 0)->dtype;
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    struct leat_softmax_extent extent;

    leat_softmax_extent(eval->graph, eval->node, &extent);
    for (size_t row = 0; row < extent.outer * extent.inner; row++) {
        const size_t first = row / extent.inner * extent.axis * extent.inner + row % extent.inner;
        double max = -INFINITY, others = -1; /* one that is it counts as nothing, or takes the digits of all others */
        for (size_t i = 0; i < extent.axis; i++) {
            max = fmax(max, leat_element_real(dtype, in, first + i * extent.inner));
        }
        for (size_t i = 0; i < extent.axis; i++) {
            others += leat_element_real(dtype, in, first + i * extent.inner) == max;
        }
        for (size_t i = 0; i < extent.axis; i++) {
            const double less = leat_element_real(dtype, in, first + i * extent.inner) - max;
            others += less == 0 ? 0 : exp(less);
        }
        for (size_t i = 0; i < extent.axis; i++) {
            const size_t at = first + i * extent.inner;
            leat_element_set_real(dtype, out, at,
                                  leat_element_real(dtype, in, at) - max - log1p(others));
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(hardmax)
{
    const uint32_t dtype = leat_eval_input(eval, 0)->dtype;
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    struct leat_softmax_extent extent;

    leat_softmax_extent(eval->graph, eval->node, &extent);
    for (size_t row = 0; row < extent.outer * extent.inner; row++) {
        const size_t first = row / extent.inner * extent.axis * extent.inner + row % extent.inner;
        size_t best = 0;
        for (size_t i = 1; i < extent.axis; i++) {
            if (leat_element_real(dtype, in, first + i * extent.inner) >
                leat_element_real(dtype, in, first + best * extent.inner)) {
                best = i;
            }
        }
        for (size_t i = 0; i < extent.axis; i++) {
            leat_element_set_real(dtype, out, first + i * extent.inner, i == best ? 1 : 0);
        }
    }
    return LEAT_OK;
}

/* Mean and variance of `count` elements `stride` apart. */
static void
moments(uint32_t dtype, const void *in, size_t first, size_t count, size_t stride, double *ret_mean,
        double *ret_variance)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        sum += leat_element_real(dtype, in, first + i * stride);
    }
    *ret_mean = sum / (double)count;
    for (size_t i = 0; i < count; i++) {
        const double distance = leat_element_real(dtype, in, first + i * stride) - *ret_mean;
        squares += distance * distance;
    }
    *ret_variance = squares / (double)count;
}

LEAT_REFERENCE_FUNCTION(instance_normalization)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const double epsilon = (double)leat_node_float(eval->node, "epsilon", 1e-5f);
    const size_t planes = leat_extent(x, 0, 2), plane = leat_extent(x, 2, x->rank);
    const void *in = leat_eval_in(eval, 0);

    for (size_t p = 0; p < planes; p++) {
        const size_t channel = p % (size_t)x->dims[1];
        const double scale = leat_element_real(x->dtype, leat_eval_in(eval, 1), channel);
        const double bias = leat_element_real(x->dtype, leat_eval_in(eval, 2), channel);
        double mean, variance;
        moments(x->dtype, in, p * plane, plane, 1, &mean, &variance);
        for (size_t i = p * plane; i < (p + 1) * plane; i++) {
            const double centred = leat_element_real(x->dtype, in, i) - mean;
            leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i,
                                  centred / sqrt(variance + epsilon) * scale + bias);
        }
    }
    return LEAT_OK;
}

/* What scale or bias has for element i of a row, given the dims of the row. */
static double
affine_at(const struct leat_eval *eval, uint32_t input, uint32_t axis, size_t i, double otherwise)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *affine = leat_eval_input(eval, input);
    size_t index = 0, stride = 1;

    if (affine == NULL) {
        return otherwise;
    }
    if (affine->rank == 1 && affine->dims[0] == x->dims[x->rank - 1] && axis + 1 == x->rank) {
        return leat_element_real(affine->dtype, leat_eval_in(eval, input),
                                 i); /* one for each element of a row */
    }
    for (uint32_t d = x->rank, k = affine->rank; d-- > axis && k-- > 0;) {
        index += affine->dims[k] == 1 ? 0 : i % (size_t)x->dims[d] * stride;
        stride *= (size_t)affine->dims[k];
        i /= (size_t)x->dims[d];
    }
    return leat_element_real(affine->dtype, leat_eval_in(eval, input), index);
}

LEAT_REFERENCE_FUNCTION(layer_normalization)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, -1, x->rank);
    const double epsilon = (double)leat_node_float(eval->node, "epsilon", 1e-5f);
    const size_t rows = leat_extent(x, 0, axis), row = leat_extent(x, axis, x->rank);
    const void *in = leat_eval_in(eval, 0);

    for (size_t r = 0; r < rows; r++) {
        double mean, variance;
        moments(x->dtype, in, r * row, row, 1, &mean, &variance);
        const double factor = 1 / sqrt(variance + epsilon);
        for (size_t i = 0; i < row; i++) {
            const double centred = leat_element_real(x->dtype, in, r * row + i) - mean;
            const double scale = affine_at(eval, 1, axis, i, 1),
                         bias = affine_at(eval, 2, axis, i, 0);
            leat_element_set_real(x->dtype, leat_eval_out(eval, 0), r * row + i,
                                  centred * factor * scale + bias);
        }
        if (leat_eval_output(eval, 1) != NULL) {
            leat_element_set_real(x->dtype, leat_eval_out(eval, 1), r, mean);
        }
        if (leat_eval_output(eval, 2) != NULL) {
            leat_element_set_real(x->dtype, leat_eval_out(eval, 2), r, factor);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(lp_normalization)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, -1, x->rank);
    const bool euclidean = leat_node_int(eval->node, "p", 2) == 2;
    const size_t size = (size_t)x->dims[axis], inner = leat_extent(x, axis + 1, x->rank);
    const size_t lanes = leat_extent(x, 0, axis) * inner;
    const void *in = leat_eval_in(eval, 0);

    for (size_t lane = 0; lane < lanes; lane++) {
        const size_t first = lane / inner * size * inner + lane % inner;
        double sum = 0;
        for (size_t i = 0; i < size; i++) {
            const double value = leat_element_real(x->dtype, in, first + i * inner);
            sum += euclidean ? value * value : fabs(value);
        }
        const double norm = euclidean ? sqrt(sum) : sum;
        for (size_t i = 0; i < size; i++) {
            const double value = leat_element_real(x->dtype, in, first + i * inner);
            leat_element_set_real(x->dtype, leat_eval_out(eval, 0), first + i * inner,
                                  norm == 0 ? 0 : value / norm);
        }
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(lrn)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const int64_t size = leat_node_int(eval->node, "size", 1), channels = x->dims[1];
    const double alpha = (double)leat_node_float(eval->node, "alpha", 1e-4f);
    const double beta = (double)leat_node_float(eval->node, "beta", 0.75f);
    const double bias = (double)leat_node_float(eval->node, "bias", 1.0f);
    const size_t count = leat_value_elements(x), inner = leat_extent(x, 2, x->rank);
    const void *in = leat_eval_in(eval, 0);

    for (size_t i = 0; i < count; i++) {
        const int64_t channel = (int64_t)(i / inner % (size_t)channels);
        const int64_t from = channel - (size - 1) / 2, to = channel + size / 2;
        double squares = 0;
        for (int64_t c = from < 0 ? 0 : from; c <= to && c < channels; c++) {
            const double value = leat_element_real(x->dtype, in, i - (size_t)channel * inner + (size_t)c * inner);
            squares += value * value;
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i,
                              leat_element_real(x->dtype, in, i) / pow(bias + alpha / (double)size * squares, beta));
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(mean_variance)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t mask = leat_mean_variance_axes(eval->graph, eval->node);
    const size_t count = leat_value_elements(x);
    const void *in = leat_eval_in(eval, 0);
    size_t strides[LEAT_RANK_MAX], lane_size = 1;

    leat_strides(x, strides);
    for (uint32_t d = 0; d < x->rank; d++) {
        lane_size *= (mask >> d & 1u) != 0 ? (size_t)x->dims[d] : 1;
    }
    for (size_t lane = 0; lane_size > 0 && lane < count / lane_size; lane++) {
        double sum = 0, squares = 0, mean = 0, deviation = 0;
        for (int pass = 0; pass < 3; pass++) {
            for (size_t i = 0; i < lane_size; i++) {
                size_t at = 0, kept = lane, reduced = i;
                for (uint32_t d = x->rank; d-- > 0;) {
                    size_t *rest = (mask >> d & 1u) != 0 ? &reduced : &kept;
                    at += *rest % (size_t)x->dims[d] * strides[d];
                    *rest /= (size_t)x->dims[d];
                }
                const double centred = leat_element_real(x->dtype, in, at) - mean;
                sum += centred;
                squares += centred * centred;
                if (pass == 2) {
                    leat_element_set_real(x->dtype, leat_eval_out(eval, 0), at, centred / (deviation + 1e-9));
                }
            }
            mean = pass == 0 ? sum / (double)lane_size : mean;
            deviation = sqrt(squares / (double)lane_size);
            squares = 0;
        }
    }
    return LEAT_OK;
}
