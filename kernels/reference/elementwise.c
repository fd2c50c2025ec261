/* SPDX-License-Identifier: Apache-2.0 */
/* Element by element: unary functions, broadcast arithmetic, Clip, Cast, copies, BatchNormalization. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "kernels/reference/element.h"

LEAT_REFERENCE_FUNCTION(copy)
{
    LEAT_ASSERT(leat_value_bytes(leat_eval_input(eval, 0)) ==
                leat_value_bytes(leat_eval_output(eval, 0)));
    memmove(leat_eval_out(eval, 0), leat_eval_in(eval, 0),
            leat_value_bytes(leat_eval_output(eval, 0)));
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(constant)
{
    const uint32_t value = leat_node_attribute(eval->node, "value")->value;
    const struct leat_value *constant = &eval->graph->values[value];
    memcpy(leat_eval_out(eval, 0), constant->data, constant->data_bytes);
    return LEAT_OK;
}

LEAT_REFERENCE_FUNCTION(dropout)
{
    const struct leat_value *mask = leat_eval_output(eval, 1);
    if (mask != NULL) {
        memset(leat_eval_out(eval, 1), 1, leat_value_bytes(mask)); /* nothing was dropped */
    }
    return leat_reference_copy(eval);
}

/* clang-format off */
/* One unary function for f32 and f64; FLOAT_EXPRESSION and DOUBLE_EXPRESSION use x. */
#define UNARY(name, FLOAT_EXPRESSION, DOUBLE_EXPRESSION)                                            \
    LEAT_REFERENCE_FUNCTION(name)                                                                   \
    {                                                                                               \
        const struct leat_value *output = leat_eval_output(eval, 0);                                \
        const size_t count = leat_value_elements(output);                                           \
        if (output->dtype == LEAT_DTYPE_F32) {                                                      \
            const float *in = leat_eval_in(eval, 0);                                                \
            float *out = leat_eval_out(eval, 0);                                                    \
            for (size_t i = 0; i < count; i++) {                                                    \
                const float x = in[i];                                                              \
                out[i] = (FLOAT_EXPRESSION);                                                        \
            }                                                                                       \
            return LEAT_OK;                                                                         \
        }                                                                                           \
        LEAT_ASSERT(output->dtype == LEAT_DTYPE_F64);                                               \
        const double *in = leat_eval_in(eval, 0);                                                   \
        double *out = leat_eval_out(eval, 0);                                                       \
        for (size_t i = 0; i < count; i++) {                                                        \
            const double x = in[i];                                                                 \
            out[i] = (DOUBLE_EXPRESSION);                                                           \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }

UNARY(ceil, ceilf(x), ceil(x))
UNARY(erf, erff(x), erf(x))
UNARY(exp, expf(x), exp(x))
UNARY(floor, floorf(x), floor(x))
UNARY(log, logf(x), log(x))
UNARY(reciprocal, 1.0f / x, 1.0 / x)
UNARY(relu, x < 0 ? 0 : x, x < 0 ? 0 : x) /* a NaN stays one */
UNARY(sigmoid, 1.0f / (1.0f + expf(-x)), 1.0 / (1.0 + exp(-x)))
UNARY(sqrt, sqrtf(x), sqrt(x))
UNARY(tanh, tanhf(x), tanh(x))

/* Every arithmetic type: X(dtype, C type, the unsigned type that integer arithmetic wraps in). */
#define FOR_INTEGERS(X)                                                                             \
    X(I8, int8_t, uint32_t)                                                                         \
    X(U8, uint8_t, uint32_t)                                                                        \
    X(I16, int16_t, uint32_t)                                                                       \
    X(U16, uint16_t, uint32_t)                                                                      \
    X(I32, int32_t, uint32_t)                                                                       \
    X(U32, uint32_t, uint32_t)                                                                      \
    X(I64, int64_t, uint64_t)                                                                       \
    X(U64, uint64_t, uint64_t)
#define FOR_FLOATS(X)                                                                               \
    X(F32, float, float)                                                                            \
    X(F64, double, double)

#define BINARY_CASE(DTYPE, type, EXPRESSION)                                                        \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type *in_a = leat_eval_in(eval, 0), *in_b = leat_eval_in(eval, 1);                    \
        type *out = leat_eval_out(eval, 0);                                                         \
        for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {                                      \
            const type a = in_a[walk.index[0]], b = in_b[walk.index[1]];                            \
            out[i] = (type)(EXPRESSION);                                                            \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }
#define BINARY_BEGIN(name)                                                                          \
    LEAT_REFERENCE_FUNCTION(name)                                                                   \
    {                                                                                               \
        const size_t count = leat_value_elements(leat_eval_output(eval, 0));                        \
        struct leat_walk walk;                                                                           \
        leat_walk_start(eval, 0, 2, &walk);                                                                    \
        switch (leat_eval_output(eval, 0)->dtype) {
#define BINARY_END                                                                                  \
    default:                                                                                        \
        LEAT_ASSERT(false && "the operator table lets no other type through");                              \
        return LEAT_ERR_SHAPE;                                                                      \
        }                                                                                           \
        }

#define ADD(DTYPE, type, wide) BINARY_CASE(DTYPE, type, (wide)a + (wide)b)
#define SUB(DTYPE, type, wide) BINARY_CASE(DTYPE, type, (wide)a - (wide)b)
#define MUL(DTYPE, type, wide) BINARY_CASE(DTYPE, type, (wide)a *(wide)b)
BINARY_BEGIN(add) FOR_FLOATS(ADD) FOR_INTEGERS(ADD) BINARY_END
BINARY_BEGIN(sub) FOR_FLOATS(SUB) FOR_INTEGERS(SUB) BINARY_END
BINARY_BEGIN(mul) FOR_FLOATS(MUL) FOR_INTEGERS(MUL) BINARY_END

static enum leat_status
division_by_zero(const struct leat_eval *eval)
{
    return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "division of an integer by zero");
}

/* The divisor is read once. b == -1 is negation in wrapping arithmetic: INT_MIN / -1 would trap. Unsigned types never equal -1. */
#define DIV_FLOAT(DTYPE, type, wide) BINARY_CASE(DTYPE, type, a / b)
#define DIV_INTEGER(DTYPE, type, wide)                                                              \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type *in_a = leat_eval_in(eval, 0), *in_b = leat_eval_in(eval, 1);                    \
        type *out = leat_eval_out(eval, 0);                                                         \
        for (size_t i = 0; i < count; i++, leat_walk_next(&walk)) {                                      \
            const type a = in_a[walk.index[0]];                                                     \
            const type b = atomic_load_explicit((const _Atomic type *)in_b + walk.index[1], memory_order_relaxed); \
            if (b == 0) {                                                                           \
                return division_by_zero(eval);                                                      \
            }                                                                                       \
            out[i] = (type)((type)-1 < 1 && b == (type)-1 ? (wide)0 - (wide)a : (wide)(a / b));      \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }
BINARY_BEGIN(div) FOR_FLOATS(DIV_FLOAT) FOR_INTEGERS(DIV_INTEGER) BINARY_END

#define UNARY_CASE(DTYPE, type, EXPRESSION)                                                         \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type *in = leat_eval_in(eval, 0);                                                     \
        type *out = leat_eval_out(eval, 0);                                                         \
        for (size_t i = 0; i < count; i++) {                                                        \
            const type x = in[i];                                                                   \
            out[i] = (type)(EXPRESSION);                                                            \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }
#define UNARY_BEGIN(name)                                                                           \
    LEAT_REFERENCE_FUNCTION(name)                                                                   \
    {                                                                                               \
        const size_t count = leat_value_elements(leat_eval_output(eval, 0));                        \
        switch (leat_eval_output(eval, 0)->dtype) {
#define NEG_FLOAT(DTYPE, type, wide)   UNARY_CASE(DTYPE, type, -x)
#define NEG_INTEGER(DTYPE, type, wide) UNARY_CASE(DTYPE, type, (wide)0 - (wide)x)
#define ABS_INTEGER(DTYPE, type, wide) UNARY_CASE(DTYPE, type, x < 1 ? (wide)0 - (wide)x : (wide)x)
UNARY_BEGIN(neg) FOR_FLOATS(NEG_FLOAT) FOR_INTEGERS(NEG_INTEGER) BINARY_END
UNARY_BEGIN(abs) UNARY_CASE(F32, float, fabsf(x)) UNARY_CASE(F64, double, fabs(x))
    FOR_INTEGERS(ABS_INTEGER) BINARY_END

/* A bound that is not there does not bound: lowest and highest are the type's limits. */
#define CLIP_CASE(DTYPE, type, lowest, highest)                                                     \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type *in = leat_eval_in(eval, 0);                                                     \
        type *out = leat_eval_out(eval, 0);                                                         \
        const type lower = has_lower ? *(const type *)leat_eval_in(eval, 1) : (lowest);             \
        const type upper = has_upper ? *(const type *)leat_eval_in(eval, 2) : (highest);            \
        for (size_t i = 0; i < count; i++) {                                                        \
            const type x = in[i] < lower ? lower : in[i];                                           \
            out[i] = x > upper ? upper : x;                                                         \
        }                                                                                           \
        return LEAT_OK;                                                                             \
    }
LEAT_REFERENCE_FUNCTION(clip)
{
    const size_t count = leat_value_elements(leat_eval_output(eval, 0));
    const bool has_lower = leat_eval_input(eval, 1) != NULL, has_upper = leat_eval_input(eval, 2) != NULL;

    switch (leat_eval_output(eval, 0)->dtype) {
        CLIP_CASE(F32, float, leat_node_float(eval->node, "min", -INFINITY),
                  leat_node_float(eval->node, "max", INFINITY))
        CLIP_CASE(F64, double, (double)leat_node_float(eval->node, "min", -INFINITY),
                  (double)leat_node_float(eval->node, "max", INFINITY))
        CLIP_CASE(I8, int8_t, INT8_MIN, INT8_MAX)
        CLIP_CASE(U8, uint8_t, 0, UINT8_MAX)
        CLIP_CASE(I16, int16_t, INT16_MIN, INT16_MAX)
        CLIP_CASE(U16, uint16_t, 0, UINT16_MAX)
        CLIP_CASE(I32, int32_t, INT32_MIN, INT32_MAX)
        CLIP_CASE(U32, uint32_t, 0, UINT32_MAX)
        CLIP_CASE(I64, int64_t, INT64_MIN, INT64_MAX)
        CLIP_CASE(U64, uint64_t, 0, UINT64_MAX)
    default:
        LEAT_ASSERT(false && "the operator table lets no other type through");
        return LEAT_ERR_SHAPE;
    }
}

/* clang-format on */
LEAT_REFERENCE_FUNCTION(batch_normalization)
{
    const struct leat_value *x = leat_eval_input(eval, 0);
    const void *in = leat_eval_in(eval, 0), *scale = leat_eval_in(eval, 1), *b = leat_eval_in(eval, 2);
    const void *mean = leat_eval_in(eval, 3), *variance = leat_eval_in(eval, 4);
    const double epsilon = (double)leat_node_float(eval->node, "epsilon", 1e-5f);
    const size_t channels = (size_t)x->dims[1];
    size_t inner = 1;

    for (uint32_t d = 2; d < x->rank; d++) {
        inner *= (size_t)x->dims[d];
    }
    const size_t count = leat_value_elements(x);
    for (size_t i = 0; i < count; i++) {
        const size_t c = i / inner % channels;
        const double factor = leat_element_real(x->dtype, scale, c) / sqrt(leat_element_real(x->dtype, variance, c) + epsilon);
        const double centred = leat_element_real(x->dtype, in, i) - leat_element_real(x->dtype, mean, c);
        leat_element_set_real(x->dtype, leat_eval_out(eval, 0), i, centred * factor + leat_element_real(x->dtype, b, c));
    }
    return LEAT_OK;
}
