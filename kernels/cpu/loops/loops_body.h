/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/loops/loops_body.h - the functions of loops.h. Included by one file for CPU_LOOP, the instructions that the compiler may use,
 * with CPU_LOOP_NAME for what others call them.
 */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/op.h"

enum { BLOCK = 32 };

#define CPU_LOOP_INLINE CPU_LOOP static inline __attribute__((always_inline))

/* ---- Two operands ----------------------------------------------------------------------------------- */

/* Blocks have a known size, and a place of their own, for the compiler to make vectors of them. */
#define LOOP_FUNCTION(name, type, result_type, expression)                                                                \
    CPU_LOOP_INLINE void name##_loops(const type *a, const type *b, result_type *y, int64_t count, const bool all_a, const bool all_b)\
    {                                                                                                                     \
        result_type block[BLOCK];                                                                                         \
        int64_t i = 0;                                                                                                    \
        for (; i + BLOCK <= count; i += BLOCK) {                                                                          \
            const type *block_a = all_a ? a + i : a, *block_b = all_b ? b + i : b;                                        \
            for (int64_t l = 0; l < BLOCK; l++) {                                                                         \
                const type p = block_a[all_a ? l : 0], q = block_b[all_b ? l : 0];                                        \
                block[l] = (result_type)(expression);                                                                     \
            }                                                                                                             \
            memcpy(y + i, block, sizeof(block));                                                                          \
        }                                                                                                                 \
        for (; i < count; i++) {                                                                                          \
            const type p = a[all_a ? i : 0], q = b[all_b ? i : 0];                                                        \
            y[i] = (result_type)(expression);                                                                             \
        }                                                                                                                 \
    }                                                                                                                     \
    CPU_LOOP static bool name(const void *a, int64_t a_stride, const void *b, int64_t b_stride, void *y, int64_t count)   \
    {                                                                                                                     \
        if (a_stride != 0 && b_stride != 0) {                                                                             \
            name##_loops(a, b, y, count, true, true);                                                                     \
        } else if (a_stride != 0) {                                                                                       \
            name##_loops(a, b, y, count, true, false);                                                                    \
        } else {                                                                                                          \
            name##_loops(a, b, y, count, false, b_stride != 0);                                                           \
        }                                                                                                                 \
        return true;                                                                                                      \
    }
#define COMPARISONS(type, ending)                                                                                         \
    LOOP_FUNCTION(equal_##ending, type, uint8_t, p == q)                                                                  \
    LOOP_FUNCTION(greater_##ending, type, uint8_t, p > q)                                                                 \
    LOOP_FUNCTION(greater_or_equal_##ending, type, uint8_t, p >= q)                                                       \
    LOOP_FUNCTION(less_##ending, type, uint8_t, p < q)                                                                    \
    LOOP_FUNCTION(less_or_equal_##ending, type, uint8_t, p <= q)
COMPARISONS(float, f32)
COMPARISONS(double, f64)
COMPARISONS(int32_t, i32)
COMPARISONS(int64_t, i64)
COMPARISONS(uint8_t, u8)
/* Every byte but 0 is true. */
LOOP_FUNCTION(equal_truths, uint8_t, uint8_t, (p != 0) == (q != 0))
LOOP_FUNCTION(both_truths, uint8_t, uint8_t, (p != 0) & (q != 0))
LOOP_FUNCTION(some_truths, uint8_t, uint8_t, (p | q) != 0)
LOOP_FUNCTION(other_truths, uint8_t, uint8_t, (p != 0) != (q != 0))
/* By the width or more nothing is left. */
#define SHIFTS(type, wide, ending)                                                                                        \
    LOOP_FUNCTION(left_##ending, type, type, q < 8 * sizeof(type) ? (wide)p << q : 0)                                     \
    LOOP_FUNCTION(right_##ending, type, type, q < 8 * sizeof(type) ? (wide)p >> q : 0)
SHIFTS(uint8_t, uint32_t, u8)
SHIFTS(uint16_t, uint32_t, u16)
SHIFTS(uint32_t, uint32_t, u32)
SHIFTS(uint64_t, uint64_t, u64)

/* What is left of p in whole q's: exact where there are less than 2^28 of them, as long as both are numbers. */
CPU_LOOP_INLINE float
remainder_of(float p, float q)
{
    const double quotient = (double)p / (double)q;

    if (LEAT_UNLIKELY(!(fabs(quotient) < 0x1p28 && fabsf(q) <= FLT_MAX))) {
        return fmodf(p, q);
    }
    return copysignf((float)((double)p - (double)(int32_t)quotient * (double)q), p);
}
LOOP_FUNCTION(remainder_f32, float, float, remainder_of(p, q))
LOOP_FUNCTION(power_f32, float, float, powf(p, q))

/* The divisor is read once: who owns it may change it meanwhile. By -1 there is no rest, and the least number would trap. */
#define REMAINDER_FUNCTION(name, type, rest)                                                                              \
    CPU_LOOP static bool name(const void *a, int64_t a_stride, const void *b, int64_t b_stride, void *y, int64_t count)   \
    {                                                                                                                     \
        const type *in = a;                                                                                               \
        type *out = y;                                                                                                    \
        for (int64_t i = 0; i < count; i++) {                                                                             \
            const type p = in[i * a_stride];                                                                              \
            const type q = atomic_load_explicit((const _Atomic type *)b + i * b_stride, memory_order_relaxed);            \
            if (LEAT_UNLIKELY(q == 0)) {                                                                                  \
                return false;                                                                                             \
            }                                                                                                             \
            out[i] = (type)(rest);                                                                                        \
        }                                                                                                                 \
        return true;                                                                                                      \
    }
#define SIGNED_REMAINDERS(type, ending)                                                                                   \
    CPU_LOOP_INLINE type divisors_##ending(type rest, type q)                                                             \
    {                                                                                                                     \
        return (type)(rest != 0 && (rest < 0) != (q < 0) ? rest + q : rest);                                              \
    }                                                                                                                     \
    REMAINDER_FUNCTION(remainder_##ending, type, q == -1 ? 0 : p % q)                                                     \
    REMAINDER_FUNCTION(modulo_##ending, type, q == -1 ? 0 : divisors_##ending((type)(p % q), q))
SIGNED_REMAINDERS(int8_t, i8)
SIGNED_REMAINDERS(int16_t, i16)
SIGNED_REMAINDERS(int32_t, i32)
SIGNED_REMAINDERS(int64_t, i64)
REMAINDER_FUNCTION(remainder_u8, uint8_t, p % q)
REMAINDER_FUNCTION(remainder_u16, uint16_t, p % q)
REMAINDER_FUNCTION(remainder_u32, uint32_t, p % q)
REMAINDER_FUNCTION(remainder_u64, uint64_t, p % q)

static cpu_loop
function_of_truths(enum leat_op_kind kind)
{
    switch (kind) {
    case LEAT_OP_EQUAL:
        return equal_truths;
    case LEAT_OP_AND:
        return both_truths;
    case LEAT_OP_OR:
        return some_truths;
    case LEAT_OP_XOR:
        return other_truths;
    default:
        return NULL;
    }
}

static cpu_loop
comparison_of(enum leat_op_kind kind, uint32_t dtype)
{
    static const struct {
        uint32_t dtype;
        cpu_loop equal, greater, greater_or_equal, less, less_or_equal;
    } all[] = {
        {LEAT_DTYPE_F32, equal_f32, greater_f32, greater_or_equal_f32, less_f32, less_or_equal_f32},
        {LEAT_DTYPE_F64, equal_f64, greater_f64, greater_or_equal_f64, less_f64, less_or_equal_f64},
        {LEAT_DTYPE_I32, equal_i32, greater_i32, greater_or_equal_i32, less_i32, less_or_equal_i32},
        {LEAT_DTYPE_I64, equal_i64, greater_i64, greater_or_equal_i64, less_i64, less_or_equal_i64},
        {LEAT_DTYPE_U8, equal_u8, greater_u8, greater_or_equal_u8, less_u8, less_or_equal_u8},
    };
    size_t i = 0;

    for (; i < LEAT_COUNT_OF(all) && all[i].dtype != dtype; i++) {
    }
    if (i == LEAT_COUNT_OF(all)) {
        return NULL;
    }
    switch (kind) {
    case LEAT_OP_EQUAL:
        return all[i].equal;
    case LEAT_OP_GREATER:
        return all[i].greater;
    case LEAT_OP_GREATER_OR_EQUAL:
        return all[i].greater_or_equal;
    case LEAT_OP_LESS:
        return all[i].less;
    case LEAT_OP_LESS_OR_EQUAL:
        return all[i].less_or_equal;
    default:
        return NULL;
    }
}

/* BitShift and Mod of integers. */
static cpu_loop
function_of_integers(const struct leat_node *node, uint32_t dtype)
{
    const bool shifts = node->op->kind == LEAT_OP_BIT_SHIFT, truncates = leat_node_int(node, "fmod", 0) != 0;
    const bool left = shifts && strcmp(leat_node_attribute(node, "direction")->s, "LEFT") == 0;

    switch (dtype) {
    case LEAT_DTYPE_I8:
        return truncates ? remainder_i8 : modulo_i8;
    case LEAT_DTYPE_I16:
        return truncates ? remainder_i16 : modulo_i16;
    case LEAT_DTYPE_I32:
        return truncates ? remainder_i32 : modulo_i32;
    case LEAT_DTYPE_I64:
        return truncates ? remainder_i64 : modulo_i64;
    case LEAT_DTYPE_U8:
        return !shifts ? remainder_u8 : left ? left_u8 : right_u8;
    case LEAT_DTYPE_U16:
        return !shifts ? remainder_u16 : left ? left_u16 : right_u16;
    case LEAT_DTYPE_U32:
        return !shifts ? remainder_u32 : left ? left_u32 : right_u32;
    case LEAT_DTYPE_U64:
        return !shifts ? remainder_u64 : left ? left_u64 : right_u64;
    default:
        return NULL;
    }
}

cpu_loop
CPU_LOOP_NAME(cpu_loop_of)(const struct leat_node *node, uint32_t dtype)
{
    const enum leat_op_kind kind = node->op->kind;

    if (dtype == LEAT_DTYPE_F32 && (kind == LEAT_OP_MOD || kind == LEAT_OP_POW)) {
        return kind == LEAT_OP_MOD ? remainder_f32 : power_f32;
    }
    return kind == LEAT_OP_BIT_SHIFT || kind == LEAT_OP_MOD ? function_of_integers(node, dtype)
           : dtype == LEAT_DTYPE_BOOL                        ? function_of_truths(kind)
                                                             : comparison_of(kind, dtype);
}

/* ---- One operand ------------------------------------------------------------------------------------ */

#define TEST_FUNCTION(name, type, expression)                                                                             \
    CPU_LOOP static void name(const type *in, uint8_t *out, size_t count, float high, float low)                          \
    {                                                                                                                     \
        uint8_t block[BLOCK];                                                                                             \
        size_t i = 0;                                                                                                     \
        for (; i + BLOCK <= count; i += BLOCK) {                                                                          \
            for (size_t l = 0; l < BLOCK; l++) {                                                                          \
                const type x = in[i + l];                                                                                 \
                block[l] = expression;                                                                                    \
            }                                                                                                             \
            memcpy(out + i, block, sizeof(block));                                                                        \
        }                                                                                                                 \
        for (; i < count; i++) {                                                                                          \
            const type x = in[i];                                                                                         \
            out[i] = expression;                                                                                          \
        }                                                                                                                 \
        (void)high, (void)low;                                                                                            \
    }
TEST_FUNCTION(test_not, uint8_t, x == 0)
TEST_FUNCTION(test_nan, float, x != x)
TEST_FUNCTION(test_infinite, float, (x == high) | (x == low))

void
CPU_LOOP_NAME(cpu_loop_test)(const struct leat_node *node, const void *x, uint8_t *y, size_t count)
{
    if (node->op->kind == LEAT_OP_NOT) {
        test_not(x, y, count, 0, 0);
    } else if (node->op->kind == LEAT_OP_IS_NAN) {
        test_nan(x, y, count, 0, 0);
    } else { /* what is not looked for is NaN, which nothing is equal to */
        test_infinite(x, y, count, leat_node_int(node, "detect_positive", 1) != 0 ? INFINITY : NAN,
                      leat_node_int(node, "detect_negative", 1) != 0 ? -INFINITY : NAN);
    }
}
