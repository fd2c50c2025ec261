/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce*, ArgMax, ArgMin, CumSum and TopK. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* The elements that one output element is made of: one nested loop per reduced axis, written as a counter. */
struct lane {
    const struct leat_value *x;
    uint32_t mask;
    size_t count, offset;
    size_t stride[LEAT_RANK_MAX];
    int64_t at[LEAT_RANK_MAX];
};

static void
lane_start(const struct leat_value *x, uint32_t mask, size_t output, struct lane *lane)
{
    *lane = (struct lane){.x = x, .mask = mask, .count = 1};
    leat_strides(x, lane->stride);
    /* Unravel the output element over the axes that are kept, from the last. */
    for (uint32_t d = x->rank; d-- > 0;) {
        if ((mask >> d & 1u) == 0) {
            lane->offset += output % (size_t)x->dims[d] * lane->stride[d];
            output /= (size_t)x->dims[d];
        } else {
            lane->count *= (size_t)x->dims[d];
        }
    }
}

static void
lane_next(struct lane *lane)
{
    for (uint32_t d = lane->x->rank; d-- > 0;) {
        if ((lane->mask >> d & 1u) == 0) {
            continue;
        }
        lane->offset += lane->stride[d];
        if (++lane->at[d] < lane->x->dims[d]) {
            return;
        }
        lane->offset -= lane->stride[d] * (size_t)lane->x->dims[d];
        lane->at[d] = 0;
    }
}

/* What happens to each element, and to the sum of all: in double, or in wrapping integers where that is exact. */
struct reducer {
    double start;
    double (*add)(double sum, double x);
    double (*finish)(double sum, size_t count);
    uint64_t start_bits;
    uint64_t (*add_bits)(uint64_t sum, uint64_t x); /* NULL: in double for all types */
};

static enum leat_status
reduce(const struct leat_eval *eval, const struct reducer *reducer)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t mask = leat_reduce_axes(eval->graph, eval->node);
    const size_t outputs = leat_value_elements(leat_eval_output(eval, 0));
    const bool in_bits = reducer->add_bits != NULL && !leat_dtype_is_float(x->dtype);
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    struct lane lane;

    for (size_t o = 0; o < outputs; o++) {
        double sum = reducer->start;
        uint64_t bits = reducer->start_bits;
        lane_start(x, mask, o, &lane);
        for (size_t i = 0; i < lane.count; i++, lane_next(&lane)) {
            if (in_bits) {
                const uint64_t element = (uint64_t)leat_element_int(x->dtype, in, lane.offset);
                bits = reducer->add_bits(bits, element);
            } else {
                sum = reducer->add(sum, leat_element_real(x->dtype, in, lane.offset));
            }
        }
        if (in_bits) {
            leat_element_set_int(x->dtype, out, o, (int64_t)bits);
        } else {
            leat_element_set_real(x->dtype, out, o, reducer->finish(sum, lane.count));
        }
    }
    return LEAT_OK;
}

static double
add(double sum, double x)
{
    return sum + x;
}

static double
add_magnitude(double sum, double x)
{
    return sum + fabs(x);
}

static double
add_square(double sum, double x)
{
    return sum + x * x;
}

static double
multiply(double sum, double x)
{
    return sum * x;
}

static uint64_t
add_bits(uint64_t sum, uint64_t x)
{
    return sum + x;
}

static uint64_t
multiply_bits(uint64_t sum, uint64_t x)
{
    return sum * x;
}

static uint64_t
add_square_bits(uint64_t sum, uint64_t x)
{
    return sum + x * x;
}

static double
as_it_is(double sum, size_t count)
{
    (void)count;
    return sum;
}

static double
divide(double sum, size_t count)
{
    return sum / (double)count;
}

static double
square_root(double sum, size_t count)
{
    (void)count;
    return sqrt(sum);
}

static double
logarithm(double sum, size_t count)
{
    (void)count;
    return log(sum);
}

LEAT_REFERENCE_FUNCTION(reduce_sum)
{
    return reduce(eval, &(struct reducer){0, add, as_it_is, 0, add_bits});
}

LEAT_REFERENCE_FUNCTION(reduce_mean)
{
    return reduce(eval, &(struct reducer){0, add, divide, 0, NULL});
}

LEAT_REFERENCE_FUNCTION(reduce_prod)
{
    return reduce(eval, &(struct reducer){1, multiply, as_it_is, 1, multiply_bits});
}

LEAT_REFERENCE_FUNCTION(reduce_l1)
{
    return reduce(eval, &(struct reducer){0, add_magnitude, as_it_is, 0, NULL});
}

LEAT_REFERENCE_FUNCTION(reduce_l2)
{
    return reduce(eval, &(struct reducer){0, add_square, square_root, 0, NULL});
}

LEAT_REFERENCE_FUNCTION(reduce_sum_square)
{
    return reduce(eval, &(struct reducer){0, add_square, as_it_is, 0, add_square_bits});
}

LEAT_REFERENCE_FUNCTION(reduce_log_sum)
{
    return reduce(eval, &(struct reducer){0, add, logarithm, 0, NULL});
}

/* With the maximum taken out of the exponentials, so that none overflows. */
LEAT_REFERENCE_FUNCTION(reduce_log_sum_exp)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t mask = leat_reduce_axes(eval->graph, eval->node);
    const size_t outputs = leat_value_elements(leat_eval_output(eval, 0));
    const void *in = leat_eval_in(eval, 0);
    struct lane lane;

    for (size_t o = 0; o < outputs; o++) {
        double max = -INFINITY, sum = 0;
        lane_start(x, mask, o, &lane);
        for (size_t i = 0; i < lane.count; i++, lane_next(&lane)) {
            max = fmax(max, leat_element_real(x->dtype, in, lane.offset));
        }
        const double shift = isfinite(max) ? max : 0;
        lane_start(x, mask, o, &lane);
        for (size_t i = 0; i < lane.count; i++, lane_next(&lane)) {
            sum += exp(leat_element_real(x->dtype, in, lane.offset) - shift);
        }
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), o, log(sum) + shift);
    }
    return LEAT_OK;
}

/* The greatest or least of a lane, and how many elements come before it. */
static struct leat_number
extreme_of(struct lane *lane, const void *in, bool greatest, bool last, size_t *ret_index)
{
    struct leat_number best = {0};
    *ret_index = 0;
    for (size_t i = 0; i < lane->count; i++, lane_next(lane)) {
        const struct leat_number x = leat_number_read(lane->x->dtype, in, lane->offset);
        if (i == 0 || leat_number_beyond(&x, &best, greatest) ||
            (last && !leat_number_beyond(&best, &x, greatest))) {
            best = x;
            *ret_index = i;
        }
    }
    return best;
}

static enum leat_status
reduce_extreme(const struct leat_eval *eval, bool greatest)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t mask = leat_reduce_axes(eval->graph, eval->node);
    const size_t outputs = leat_value_elements(leat_eval_output(eval, 0));
    struct lane lane;
    size_t index;

    for (size_t o = 0; o < outputs; o++) {
        lane_start(x, mask, o, &lane);
        const struct leat_number y =
            extreme_of(&lane, leat_eval_in(eval, 0), greatest, false, &index);
        leat_number_write(x->dtype, leat_eval_out(eval, 0), o, &y);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(reduce_max)
{
    return reduce_extreme(eval, true);
}

LEAT_REFERENCE_FUNCTION(reduce_min)
{
    return reduce_extreme(eval, false);
}

static enum leat_status
arg_extreme(const struct leat_eval *eval, bool greatest)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const uint32_t mask = 1u << leat_node_axis(eval->node, 0, x->rank);
    const bool last = leat_node_int(eval->node, "select_last_index", 0) != 0;
    const size_t outputs = leat_value_elements(leat_eval_output(eval, 0));
    int64_t *out = leat_eval_out(eval, 0);
    struct lane lane;
    size_t index;

    for (size_t o = 0; o < outputs; o++) {
        lane_start(x, mask, o, &lane);
        (void)extreme_of(&lane, leat_eval_in(eval, 0), greatest, last, &index);
        out[o] = (int64_t)index;
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(arg_max)
{
    return arg_extreme(eval, true);
}

LEAT_REFERENCE_FUNCTION(arg_min)
{
    return arg_extreme(eval, false);
}

LEAT_REFERENCE_FUNCTION(cum_sum)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const bool exclusive = leat_node_int(eval->node, "exclusive", 0) != 0;
    const bool reverse = leat_node_int(eval->node, "reverse", 0) != 0;
    const bool is_float = leat_dtype_is_float(x->dtype);
    const void *in = leat_eval_in(eval, 0);
    void *out = leat_eval_out(eval, 0);
    size_t axis;

    const enum leat_status status = leat_eval_index(eval, 1, 0, (int64_t)x->rank, &axis);
    if (status != LEAT_OK) {
        return status;
    }
    const size_t outer = leat_extent(x, 0, (uint32_t)axis), size = (size_t)x->dims[axis];
    const size_t inner = leat_extent(x, (uint32_t)axis + 1, x->rank);
    for (size_t lane = 0; lane < outer * inner; lane++) {
        double sum = 0;
        uint64_t bits = 0;
        for (size_t i = 0; i < size; i++) {
            const size_t at =
                (lane / inner * size + (reverse ? size - 1 - i : i)) * inner + lane % inner;
            const double before = sum;
            const uint64_t bits_before = bits;
            if (is_float) {
                sum += leat_element_real(x->dtype, in, at);
                leat_element_set_real(x->dtype, out, at, exclusive ? before : sum);
            } else {
                bits += (uint64_t)leat_element_int(x->dtype, in, at);
                leat_element_set_int(x->dtype, out, at, (int64_t)(exclusive ? bits_before : bits));
            }
        }
    }
    return LEAT_OK;
}

/* Keeps the k best of a lane in order by insertion; of equal ones the first. */
LEAT_REFERENCE_FUNCTION(top_k)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *output = leat_eval_output(eval, 0);
    const uint32_t axis = (uint32_t)leat_node_axis(eval->node, -1, x->rank);
    const bool largest = leat_node_int(eval->node, "largest", 1) != 0;
    const size_t size = (size_t)x->dims[axis], k = (size_t)output->dims[axis];
    const size_t outer = leat_extent(x, 0, axis), inner = leat_extent(x, axis + 1, x->rank);
    const void *in = leat_eval_in(eval, 0);
    void *values = leat_eval_out(eval, 0);
    int64_t *indices = leat_eval_output(eval, 1) != NULL ? leat_eval_out(eval, 1) : NULL;

    for (size_t lane = 0; lane < outer * inner && k > 0; lane++) {
        const size_t first_in = lane / inner * size * inner + lane % inner;
        const size_t first_out = lane / inner * k * inner + lane % inner;
        size_t kept = 0;
        for (size_t i = 0; i < size; i++) {
            const struct leat_number x_i = leat_number_read(x->dtype, in, first_in + i * inner);
            size_t place = kept < k ? kept++ : k; /* k: behind all that are kept */
            while (place > 0) {
                const size_t before = first_out + (place - 1) * inner;
                const struct leat_number y = leat_number_read(x->dtype, values, before);
                if (!leat_number_beyond(&x_i, &y, largest)) {
                    break;
                }
                if (place < k) {
                    leat_number_write(x->dtype, values, before + inner, &y);
                    if (indices != NULL) {
                        indices[before + inner] = indices[before];
                    }
                }
                place--;
            }
            if (place < k) {
                leat_number_write(x->dtype, values, first_out + place * inner, &x_i);
                if (indices != NULL) {
                    indices[first_out + place * inner] = (int64_t)i;
                }
            }
        }
    }
    return LEAT_OK;
}
