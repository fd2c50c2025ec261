/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/element.h"

#include <math.h>
#include <string.h>

#include "kernels/payload.h"

static double
half_to_double(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const double fraction = (double)(half & 1023);
    const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024.0, exponent - 25));
}

static uint16_t
double_to_half(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double magnitude = fabs(x);
    int exponent;

    if (isnan(x)) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (magnitude >= 65520.0) { /* halfway between the largest half and the next step */
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude < 0x1p-14) {
        /* Subnormal: a multiple of 2^-24; 1024 of them are the smallest normal number. */
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(magnitude, 24)));
    }
    (void)frexp(magnitude, &exponent); /* magnitude = f * 2^exponent with f in [0.5, 1) */
    /* 1024 <= scaled <= 2048; a carry to 2048 moves into the exponent by itself. */
    const uint32_t scaled = (uint32_t)nearbyint(ldexp(magnitude, 11 - exponent));
    return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + scaled));
}

static uint16_t
float_to_bfloat(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (isnan(x)) {
        return (uint16_t)((bits >> 16) | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* clang-format off */
#define READ_INTEGER(DTYPE, type)                                                                   \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type x = atomic_load_explicit((const _Atomic type *)data + i, memory_order_relaxed);  \
        return (struct leat_number){.is_negative = x < 1 && x != 0, .bits = (uint64_t)x};                \
    }
#define READ_REAL(DTYPE, type, EXPRESSION)                                                          \
    case LEAT_DTYPE_##DTYPE: {                                                                      \
        const type x = ((const type *)data)[i];                                                     \
        return (struct leat_number){.is_float = true, .real = (EXPRESSION)};                             \
    }

static double
bfloat_to_double(uint16_t bfloat)
{
    const uint32_t bits = (uint32_t)bfloat << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return (double)x;
}

struct leat_number
leat_number_read(uint32_t dtype, const void *data, size_t i)
{
    switch (dtype) {
        READ_REAL(F32, float, (double)x)
        READ_REAL(F64, double, x)
        READ_REAL(F16, uint16_t, half_to_double(x))
        READ_REAL(BF16, uint16_t, bfloat_to_double(x))
        READ_INTEGER(I8, int8_t)
        READ_INTEGER(U8, uint8_t)
        READ_INTEGER(I16, int16_t)
        READ_INTEGER(U16, uint16_t)
        READ_INTEGER(I32, int32_t)
        READ_INTEGER(U32, uint32_t)
        READ_INTEGER(I64, int64_t)
        READ_INTEGER(U64, uint64_t)
    case LEAT_DTYPE_BOOL: {
        const uint8_t x = leat_payload_u8(data, i); /* payload is untrusted: any byte may stand here */
        return (struct leat_number){.bits = x != 0};
    }
    default:
        LEAT_ASSERT(false && "the operator table lets no other type through");
        return (struct leat_number){0};
    }
}

double
leat_number_real(const struct leat_number *number)
{
    if (number->is_float) {
        return number->real;
    }
    return number->is_negative ? (double)(int64_t)number->bits : (double)number->bits;
}

/* Truncated and saturated into [low, high], both exact in double up to rounding outwards. */
static uint64_t
as_integer(const struct leat_number *number, int64_t low, uint64_t high)
{
    if (!number->is_float) {
        return number->bits; /* wraps when stored */
    }
    if (isnan(number->real)) {
        return 0;
    }
    if (number->real <= (double)low) {
        return (uint64_t)low;
    }
    if (number->real >= (double)high) {
        return high;
    }
    return number->real < 0 ? (uint64_t)(int64_t)number->real : (uint64_t)number->real;
}

#define WRITE_INTEGER(DTYPE, type, low, high)                                                       \
    case LEAT_DTYPE_##DTYPE:                                                                        \
        ((type *)data)[i] = (type)as_integer(number, low, high);                                    \
        return;

void
leat_number_write(uint32_t dtype, void *data, size_t i, const struct leat_number *number)
{
    switch (dtype) {
    case LEAT_DTYPE_F32:
        ((float *)data)[i] = (float)leat_number_real(number);
        return;
    case LEAT_DTYPE_F64:
        ((double *)data)[i] = leat_number_real(number);
        return;
    case LEAT_DTYPE_F16:
        ((uint16_t *)data)[i] = double_to_half(leat_number_real(number));
        return;
    case LEAT_DTYPE_BF16:
        ((uint16_t *)data)[i] = float_to_bfloat((float)leat_number_real(number));
        return;
        WRITE_INTEGER(I8, int8_t, INT8_MIN, INT8_MAX)
        WRITE_INTEGER(U8, uint8_t, 0, UINT8_MAX)
        WRITE_INTEGER(I16, int16_t, INT16_MIN, INT16_MAX)
        WRITE_INTEGER(U16, uint16_t, 0, UINT16_MAX)
        WRITE_INTEGER(I32, int32_t, INT32_MIN, INT32_MAX)
        WRITE_INTEGER(U32, uint32_t, 0, UINT32_MAX)
        WRITE_INTEGER(I64, int64_t, INT64_MIN, INT64_MAX)
        WRITE_INTEGER(U64, uint64_t, 0, UINT64_MAX)
    case LEAT_DTYPE_BOOL:
        ((uint8_t *)data)[i] = number->is_float ? number->real != 0 : number->bits != 0;
        return;
    default:
        LEAT_ASSERT(false && "leat_dtype_from_onnx knows no other type");
    }
}

/* clang-format on */
bool
leat_number_beyond(const struct leat_number *x, const struct leat_number *best, bool greatest)
{
    if (x->is_float) {
        return !isnan(best->real) &&
               (isnan(x->real) || (greatest ? x->real > best->real : x->real < best->real));
    }
    if (x->is_negative != best->is_negative) {
        return x->is_negative != greatest;
    }
    return greatest ? x->bits > best->bits : x->bits < best->bits;
}

int64_t
leat_element_int(uint32_t dtype, const void *data, size_t i)
{
    return (int64_t)leat_number_read(dtype, data, i).bits;
}

void
leat_element_set_int(uint32_t dtype, void *data, size_t i, int64_t x)
{
    leat_number_write(dtype, data, i,
                      &(struct leat_number){.is_negative = x < 0, .bits = (uint64_t)x});
}

bool
leat_dtype_is_float(uint32_t dtype)
{
    return dtype == LEAT_DTYPE_F32 || dtype == LEAT_DTYPE_F64 || dtype == LEAT_DTYPE_F16 ||
           dtype == LEAT_DTYPE_BF16;
}

void
leat_walk_start(const struct leat_eval *eval, uint32_t first, uint32_t count,
                struct leat_walk *walk)
{
    const struct leat_value *output = leat_eval_output(eval, 0);

    LEAT_ASSERT(count <= LEAT_WALK_MAX);
    *walk = (struct leat_walk){.rank = output->rank, .inputs = count};
    memcpy(walk->dims, output->dims, sizeof(walk->dims));
    for (uint32_t k = 0; k < count; k++) {
        const struct leat_value *input = leat_eval_input(eval, first + k);
        size_t stride = 1;
        for (uint32_t d = input->rank; d-- > 0;) {
            walk->stride[k][output->rank - input->rank + d] = input->dims[d] == 1 ? 0 : stride;
            stride *= (size_t)input->dims[d];
        }
    }
}

size_t
leat_extent(const struct leat_value *value, uint32_t from, uint32_t to)
{
    size_t elements = 1;
    for (uint32_t d = from; d < to; d++) {
        elements *= (size_t)value->dims[d];
    }
    return elements;
}

void
leat_strides(const struct leat_value *value, size_t strides[LEAT_RANK_MAX])
{
    size_t stride = 1;
    for (uint32_t d = value->rank; d-- > 0;) {
        strides[d] = stride;
        stride *= (size_t)value->dims[d];
    }
}

void
leat_coordinates(const struct leat_value *value, size_t i, int64_t at[LEAT_RANK_MAX])
{
    for (uint32_t d = value->rank; d-- > 0;) {
        at[d] = (int64_t)(i % (size_t)value->dims[d]);
        i /= (size_t)value->dims[d];
    }
}

int64_t
leat_eval_int(const struct leat_eval *eval, uint32_t input, size_t i)
{
    return leat_eval_input(eval, input)->dtype == LEAT_DTYPE_I32
               ? leat_payload_i32(leat_eval_in(eval, input), i)
               : leat_payload_i64(leat_eval_in(eval, input), i);
}

enum leat_status
leat_eval_index(const struct leat_eval *eval, uint32_t input, size_t i, int64_t size, size_t *ret)
{
    const int64_t given = leat_eval_int(eval, input, i);
    if (given < -size || given >= size) {
        return LEAT_NODE_FAIL(eval->node, LEAT_ERR_SHAPE, "index %lld is outside %lld elements",
                              (long long)given, (long long)size);
    }
    *ret = (size_t)(given < 0 ? given + size : given);
    return LEAT_OK;
}

int64_t
leat_eval_scalar(const struct leat_eval *eval, uint32_t input, int64_t otherwise)
{
    const struct leat_value *value = leat_eval_input(eval, input);
    return value == NULL ? otherwise : leat_element_int(value->dtype, leat_eval_in(eval, input), 0);
}

size_t
leat_matrix_offset(const struct leat_value *x, const struct leat_value *output, uint32_t batches,
                   size_t batch, size_t matrix)
{
    size_t offset = 0, stride = matrix;
    /* Batch axes from the last: output axis batches-1-i pairs with input axis rank-3-i. */
    for (uint32_t i = 0; i < batches && i + 2 < x->rank; i++) {
        const size_t size = (size_t)output->dims[batches - 1 - i];
        const size_t own = (size_t)x->dims[x->rank - 3 - i];
        offset += (own == 1 ? 0 : batch % size) * stride;
        batch /= size;
        stride *= own;
    }
    return offset;
}

enum leat_status
leat_eval_set_dims(const struct leat_eval *eval, uint32_t o, const int64_t *dims)
{
    const struct leat_value *bound = leat_eval_output(eval, o);

    if (bound == NULL) {
        return LEAT_OK;
    }
    if (eval->values == NULL) {
        return LEAT_NODE_FAIL(eval->node, LEAT_ERR_UNSUPPORTED,
                              "its shape depends on tensor contents");
    }
    for (uint32_t d = 0; d < bound->rank; d++) {
        LEAT_ASSERT(dims[d] >= 0 && dims[d] <= bound->dims[d]);
        eval->values[eval->node->outputs[o]].dims[d] = dims[d];
    }
    return LEAT_OK;
}
