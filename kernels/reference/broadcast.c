/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of several operands that are broadcast to one shape: comparisons, logic, Where, Mod, Pow, Max, Sum. */
#include <math.h>
#include <string.h>

#include "kernels/reference/element.h"

/* clang-format off */
#define COMPARE_CASE(DTYPE, type, EXPRESSION)                                                       \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type *in_a = leat_eval_in(eval, 0), *in_b = leat_eval_in(eval, 1);                    \
        for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {                                 \
            const type a = in_a[walk.index[0]], b = in_b[walk.index[1]];                            \
            out[i] = (EXPRESSION);                                                                  \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }
/* Every byte but 0 is true. */
#define COMPARE(name, EXPRESSION, BOOL_EXPRESSION)                                                  \
    LEAT_REFERENCE_FUNCTION(name)                                                                   \
    {                                                                                               \
        const size_t count = leat_value_elements(leat_eval_output(eval, 0));                        \
        uint8_t *out = leat_eval_out(eval, 0);                                                      \
        struct leat_walk walk;                                                                      \
        leat_walk_start(eval, 0, 2, &walk);                                                         \
        switch (leat_eval_input(eval, 0)->dtype) {                                                  \
            COMPARE_CASE(F32, float, EXPRESSION)                                                    \
            COMPARE_CASE(F64, double, EXPRESSION)                                                   \
            COMPARE_CASE(I8, int8_t, EXPRESSION)                                                    \
            COMPARE_CASE(U8, uint8_t, EXPRESSION)                                                   \
            COMPARE_CASE(I16, int16_t, EXPRESSION)                                                  \
            COMPARE_CASE(U16, uint16_t, EXPRESSION)                                                 \
            COMPARE_CASE(I32, int32_t, EXPRESSION)                                                  \
            COMPARE_CASE(U32, uint32_t, EXPRESSION)                                                 \
            COMPARE_CASE(I64, int64_t, EXPRESSION)                                                  \
            COMPARE_CASE(U64, uint64_t, EXPRESSION)                                                 \
            COMPARE_CASE(BOOL, uint8_t, BOOL_EXPRESSION)                                            \
        default:                                                                                    \
            LEAT_ASSERT(false && "the operator table lets no other type through");                  \
            return LEAT_ERR_SHAPE;                                                                  \
        }                                                                                           \
    }
COMPARE(equal, a == b, (a != 0) == (b != 0))
COMPARE(greater, a > b, a != 0 && b == 0)
COMPARE(greater_or_equal, a >= b, a != 0 || b == 0)
COMPARE(less, a < b, a == 0 && b != 0)
COMPARE(less_or_equal, a <= b, a == 0 || b != 0)
COMPARE(and, a != 0 && b != 0, a != 0 && b != 0)
COMPARE(or, a != 0 || b != 0, a != 0 || b != 0)
COMPARE(xor, (a != 0) != (b != 0), (a != 0) != (b != 0))
/* clang-format on */

LEAT_REFERENCE_FUNCTION(where)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output), size = leat_dtype_bytes(output->dtype);
    const uint8_t *condition = leat_eval_in(eval, 0);
    const unsigned char *x = leat_eval_in(eval, 1), *y = leat_eval_in(eval, 2);
    unsigned char *out = leat_eval_out(eval, 0);
    struct leat_walk walk;

    leat_walk_start(eval, 0, 3, &walk);
    for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {
        const bool chosen = condition[walk.index[0]] != 0;
        memcpy(out + i * size, chosen ? x + walk.index[1] * size : y + walk.index[2] * size, size);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(bit_shift)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const uint32_t dtype = output->dtype;
    const bool left = strcmp(leat_node_attribute(eval->node, "direction")->s, "LEFT") == 0;
    const uint64_t width = 8 * leat_dtype_bytes(dtype);
    const size_t count = leat_value_elements(output);
    struct leat_walk walk;

    leat_walk_start(eval, 0, 2, &walk);
    for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {
        const uint64_t x = (uint64_t)leat_element_int(dtype, leat_eval_in(eval, 0), walk.index[0]);
        const uint64_t by = (uint64_t)leat_element_int(dtype, leat_eval_in(eval, 1), walk.index[1]);
        const uint64_t y = by >= width ? 0 : left ? x << by : x >> by;
        leat_element_set_int(dtype, leat_eval_out(eval, 0), i, (int64_t)y);
    }
    return LEAT_OK;
}

/* a modulo b of integers with the sign of b, or of a when `truncate`. b is not 0. */
static uint64_t
modulo(uint32_t dtype, uint64_t a, uint64_t b, bool truncate)
{
    if (dtype == LEAT_DTYPE_U64) {
        return a % b;
    }
    if ((int64_t)b == -1) {
        return 0; /* the smallest integer modulo -1 would trap */
    }
    const int64_t rest = (int64_t)a % (int64_t)b;
    const bool other_sign = rest != 0 && (rest < 0) != ((int64_t)b < 0);
    return (uint64_t)(!truncate && other_sign ? rest + (int64_t)b : rest);
}

LEAT_REFERENCE_FUNCTION(mod)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const bool truncate = leat_node_int(eval->node, "fmod", 0) != 0;
    const size_t count = leat_value_elements(output);
    void *out = leat_eval_out(eval, 0);
    struct leat_walk walk;

    leat_walk_start(eval, 0, 2, &walk);
    for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {
        const struct leat_number a =
            leat_number_read(output->dtype, leat_eval_in(eval, 0), walk.index[0]);
        const struct leat_number b =
            leat_number_read(output->dtype, leat_eval_in(eval, 1), walk.index[1]);
        if (a.is_float) {
            leat_element_set_real(output->dtype, out, i, fmod(a.real, b.real));
        } else if (b.bits == 0) {
            return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "an integer modulo zero");
        } else {
            const uint64_t y = modulo(output->dtype, a.bits, b.bits, truncate);
            leat_element_set_int(output->dtype, out, i, (int64_t)y);
        }
    }
    return LEAT_OK;
}

/* Base and exponent may have different types; the result has the base's. Integers wrap. */
LEAT_REFERENCE_FUNCTION(pow)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const uint32_t type_a = output->dtype, type_b = leat_eval_input(eval, 1)->dtype;
    const size_t count = leat_value_elements(output);
    void *out = leat_eval_out(eval, 0);
    struct leat_walk walk;

    leat_walk_start(eval, 0, 2, &walk);
    for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {
        const struct leat_number a = leat_number_read(type_a, leat_eval_in(eval, 0), walk.index[0]);
        const struct leat_number b = leat_number_read(type_b, leat_eval_in(eval, 1), walk.index[1]);
        if (a.is_float || b.is_float || b.is_negative) {
            leat_element_set_real(type_a, out, i, pow(leat_number_real(&a), leat_number_real(&b)));
            continue;
        }
        uint64_t power = 1;
        for (uint64_t base = a.bits, left = b.bits; left > 0; left >>= 1, base *= base) {
            power *= (left & 1) != 0 ? base : 1;
        }
        leat_element_set_int(type_a, out, i, (int64_t)power);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(prelu)
{
    const struct leat_value *x = leat_eval_input(eval, 0), *slope = leat_eval_input(eval, 1);
    const size_t count = leat_value_elements(x);
    /* Before opset 7 a vector of slopes belongs to the channels. */
    const bool by_channel = eval->node->op->until < 7 && slope->rank == 1 && slope->dims[0] > 1;
    const size_t inner = by_channel ? leat_extent(x, 2, x->rank) : 1;
    void *out = leat_eval_out(eval, 0);
    struct leat_walk walk = {0};

    if (!by_channel) {
        leat_walk_start(eval, 1, 1, &walk);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t k = by_channel ? i / inner % (size_t)x->dims[1] : walk.index[0];
        const double value = leat_element_real(x->dtype, leat_eval_in(eval, 0), i);
        const double factor = leat_element_real(x->dtype, leat_eval_in(eval, 1), k);
        leat_element_set_real(x->dtype, out, i, value < 0 ? value * factor : value);
        if (!by_channel) {
            leat_walk_next(&walk);
        }
    }
    return LEAT_OK;
}

/* ---- Any number of operands ----------------------------------------------------------------------------- */

/* What stands in for an element of `input` at coordinates `at` of the output. */
static size_t
broadcast_index(const struct leat_value *input, uint32_t rank, const int64_t *at)
{
    size_t index = 0;
    for (uint32_t d = 0; d < input->rank; d++) {
        const size_t size = (size_t)input->dims[d];
        index = index * size + (size == 1 ? 0 : (size_t)at[rank - input->rank + d]);
    }
    return index;
}

static enum leat_status
extreme(const struct leat_eval *eval, bool greatest)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        struct leat_number best = {0};
        leat_coordinates(output, i, at);
        for (uint32_t k = 0; k < eval->node->input_count; k++) {
            const size_t index = broadcast_index(leat_eval_input(eval, k), output->rank, at);
            const struct leat_number x =
                leat_number_read(output->dtype, leat_eval_in(eval, k), index);
            if (k == 0 || leat_number_beyond(&x, &best, greatest)) {
                best = x;
            }
        }
        leat_number_write(output->dtype, leat_eval_out(eval, 0), i, &best);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(max)
{
    return extreme(eval, true);
}

LEAT_REFERENCE_FUNCTION(min)
{
    return extreme(eval, false);
}

static enum leat_status
total(const struct leat_eval *eval, double divisor)
{
    const struct leat_value *output = leat_eval_output(eval, 0);
    const size_t count = leat_value_elements(output);
    int64_t at[LEAT_RANK_MAX];

    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        leat_coordinates(output, i, at);
        for (uint32_t k = 0; k < eval->node->input_count; k++) {
            const size_t index = broadcast_index(leat_eval_input(eval, k), output->rank, at);
            sum += leat_element_real(output->dtype, leat_eval_in(eval, k), index);
        }
        leat_element_set_real(output->dtype, leat_eval_out(eval, 0), i, sum / divisor);
    }
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(sum)
{
    return total(eval, 1.0);
}

LEAT_REFERENCE_FUNCTION(mean)
{
    return total(eval, (double)eval->node->input_count);
}
