/* SPDX-License-Identifier: Apache-2.0 */
#include "base/align.h"
#include "kernels/infer/infer.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"

#define BIT(dtype) (1u << LEAT_DTYPE_##dtype)
#define F32        BIT(F32)
#define FLOATS     (BIT(F32) | BIT(F64))
#define INTEGERS \
    (BIT(I8) | BIT(U8) | BIT(I16) | BIT(U16) | BIT(I32) | BIT(U32) | BIT(I64) | BIT(U64))
#define NUMBERS (FLOATS | INTEGERS)
#define ANY     (NUMBERS | BIT(F16) | BIT(BF16) | BIT(BOOL))

/* clang-format off */
#define INT(name)    {name, LEAT_ATTRIBUTE_INT, false}
#define FLOAT(name)  {name, LEAT_ATTRIBUTE_FLOAT, false}
#define STRING(name) {name, LEAT_ATTRIBUTE_STRING, false}
#define INTS(name)   {name, LEAT_ATTRIBUTE_INTS, false}
#define LIST(...)                                                                                   \
    (const struct leat_op_attribute[])                                                              \
    {                                                                                               \
        __VA_ARGS__, {NULL, LEAT_ATTRIBUTE_INT, false}                                              \
    }
#define NO_ATTRIBUTES ((const struct leat_op_attribute[]){{NULL, LEAT_ATTRIBUTE_INT, false}})

/* name, kind, since, until, inputs, max outputs, types, flags, attributes, infer, reference, doc */
#define ROW(name_, kind_, since_, until_, min_, max_, outputs_, types_, flags_, attributes_, infer_, \
            reference_, doc_)                                                                       \
    {                                                                                               \
        .name = name_, .kind = LEAT_OP_##kind_, .since = since_, .until = until_,                   \
        .input_min = min_, .input_max = max_, .output_max = outputs_, .types = types_,              \
        .flags = flags_, .attributes = attributes_, .infer = leat_infer_##infer_,                   \
        .reference = leat_reference_##reference_, .doc = doc_,                                      \
    }
#define UNARY(name_, kind_, types_, reference_, doc_)                                               \
    ROW(name_, kind_, 6, 17, 1, 1, 1, types_, LEAT_OP_FOLDABLE, NO_ATTRIBUTES, same, reference_, doc_)
#define SINCE(name_, kind_, since_, types_, reference_, doc_)                                       \
    ROW(name_, kind_, since_, 17, 1, 1, 1, types_, LEAT_OP_FOLDABLE, NO_ATTRIBUTES, same, reference_, doc_)
#define LOGIC(name_, kind_, since_, types_, reference_, doc_)                                       \
    ROW(name_, kind_, since_, 17, 2, 2, 1, types_, LEAT_OP_FOLDABLE, NO_ATTRIBUTES, compare,        \
        reference_, doc_)
#define BINARY(name_, kind_, reference_, doc_)                                                      \
    ROW(name_, kind_, 7, 17, 2, 2, 1, NUMBERS, LEAT_OP_FOLDABLE, NO_ATTRIBUTES, broadcast,          \
        reference_, doc_)
#define FOLD LEAT_OP_FOLDABLE
#define MANY LEAT_NODE_ARITY_MAX

/* Sorted by name, then opset. A row ends where a later opset changed the operator's form or meaning. */
const struct leat_op leat_ops[] = {
    UNARY("Abs", ABS, NUMBERS, abs, "y = |x|"),
    SINCE("Acos", ACOS, 7, FLOATS, acos, "y = arc cosine of x"),
    SINCE("Acosh", ACOSH, 9, FLOATS, acosh, "y = inverse hyperbolic cosine of x"),
    BINARY("Add", ADD, add, "y = a + b, broadcast; integers wrap"),
    LOGIC("And", AND, 7, BIT(BOOL), and, "y = a and b, broadcast"),
    SINCE("Asin", ASIN, 7, FLOATS, asin, "y = arc sine of x"),
    SINCE("Asinh", ASINH, 9, FLOATS, asinh, "y = inverse hyperbolic sine of x"),
    SINCE("Atan", ATAN, 7, FLOATS, atan, "y = arc tangent of x"),
    SINCE("Atanh", ATANH, 9, FLOATS, atanh, "y = inverse hyperbolic tangent of x"),
    ROW("AveragePool", AVERAGE_POOL, 6, 6, 1, 1, 1, F32, 0,
        LIST(STRING("auto_pad"), {"kernel_shape", LEAT_ATTRIBUTE_INTS, true}, INTS("pads"),
             INTS("strides")),
        pool, average_pool, "mean over a sliding window"),
    ROW("AveragePool", AVERAGE_POOL, 7, 17, 1, 1, 1, F32, 0,
        LIST(STRING("auto_pad"), INT("ceil_mode"), INT("count_include_pad"),
             {"kernel_shape", LEAT_ATTRIBUTE_INTS, true}, INTS("pads"), INTS("strides")),
        pool, average_pool, "mean over a sliding window"),
    ROW("BatchNormalization", BATCH_NORMALIZATION, 6, 6, 5, 5, 5, F32, 0,
        LIST(FLOAT("epsilon"), INT("is_test"), FLOAT("momentum"), INT("spatial")),
        batch_normalization, batch_normalization, "y = (x - mean) / sqrt(var + epsilon) * scale + b"),
    ROW("BatchNormalization", BATCH_NORMALIZATION, 7, 8, 5, 5, 5, F32, 0,
        LIST(FLOAT("epsilon"), FLOAT("momentum"), INT("spatial")), batch_normalization,
        batch_normalization, "y = (x - mean) / sqrt(var + epsilon) * scale + b"),
    ROW("BatchNormalization", BATCH_NORMALIZATION, 9, 17, 5, 5, 5, F32, 0,
        LIST(FLOAT("epsilon"), FLOAT("momentum"), INT("training_mode")), batch_normalization,
        batch_normalization, "y = (x - mean) / sqrt(var + epsilon) * scale + b"),
    ROW("BitShift", BIT_SHIFT, 11, 17, 2, 2, 1, BIT(U8) | BIT(U16) | BIT(U32) | BIT(U64), FOLD,
        LIST({"direction", LEAT_ATTRIBUTE_STRING, true}), bit_shift, bit_shift,
        "y = a shifted left or right by b bits, broadcast; 0 when b is the width or more"),
    ROW("Cast", CAST, 6, 17, 1, 1, 1, ANY, FOLD, LIST({"to", LEAT_ATTRIBUTE_INT, true}), cast, cast,
        "element type conversion; floats truncate towards zero, what does not fit saturates"),
    ROW("CastLike", CAST_LIKE, 15, 17, 2, 2, 1, ANY, FOLD, NO_ATTRIBUTES, cast_like, cast,
        "element type conversion to the type of another tensor"),
    UNARY("Ceil", CEIL, FLOATS, ceil, "y = smallest integer >= x"),
    ROW("Celu", CELU, 12, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha")), same, celu,
        "y = max(0, x) + min(0, alpha (e^(x / alpha) - 1))"),
    ROW("Clip", CLIP, 6, 10, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("max"), FLOAT("min")), clip, clip,
        "y = min(max(x, lower), upper)"),
    ROW("Clip", CLIP, 11, 17, 1, 3, 1, NUMBERS, FOLD, NO_ATTRIBUTES, clip, clip,
        "y = min(max(x, lower), upper)"),
    ROW("Concat", CONCAT, 6, 17, 1, MANY, 1, ANY, FOLD, LIST({"axis", LEAT_ATTRIBUTE_INT, true}),
        concat, concat, "inputs one after another along an axis"),
    ROW("Constant", CONSTANT, 6, 17, 0, 0, 1, ANY, FOLD,
        LIST({"value", LEAT_ATTRIBUTE_TENSOR, true}), constant, constant, "a tensor from the file"),
    ROW("Conv", CONV, 6, 17, 2, 3, 1, F32, 0,
        LIST(STRING("auto_pad"), INTS("dilations"), INT("group"), INTS("kernel_shape"), INTS("pads"),
             INTS("strides")),
        conv, conv, "grouped, dilated convolution with bias"),
    SINCE("Cos", COS, 7, FLOATS, cos, "y = cosine of x"),
    SINCE("Cosh", COSH, 9, FLOATS, cosh, "y = hyperbolic cosine of x"),
    BINARY("Div", DIV, div, "y = a / b, broadcast; an integer division by zero fails the batch"),
    ROW("Dropout", DROPOUT, 6, 6, 1, 1, 2, ANY, 0, LIST(INT("is_test"), FLOAT("ratio")), dropout,
        dropout, "y = x (inference)"),
    ROW("Dropout", DROPOUT, 7, 11, 1, 1, 2, ANY, 0, LIST(FLOAT("ratio")), dropout, dropout,
        "y = x (inference)"),
    ROW("Dropout", DROPOUT, 12, 17, 1, 3, 2, ANY, 0, LIST(INT("seed")), dropout, dropout,
        "y = x (inference)"),
    ROW("Elu", ELU, 6, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha")), same, elu,
        "y = x, below 0 alpha (e^x - 1)"),
    LOGIC("Equal", EQUAL, 7, NUMBERS | BIT(BOOL), equal, "y = a equals b, broadcast"),
    ROW("Erf", ERF, 9, 17, 1, 1, 1, FLOATS, FOLD, NO_ATTRIBUTES, same, erf, "y = erf(x)"),
    UNARY("Exp", EXP, FLOATS, exp, "y = e^x"),
    ROW("Flatten", FLATTEN, 6, 17, 1, 1, 1, ANY, FOLD, LIST(INT("axis")), flatten, copy,
        "a matrix: dims before the axis by dims from the axis on"),
    UNARY("Floor", FLOOR, FLOATS, floor, "y = largest integer <= x"),
    ROW("Gather", GATHER, 6, 17, 2, 2, 1, ANY, FOLD, LIST(INT("axis")), gather, gather,
        "slices by index; an index out of range fails the batch"),
    ROW("Gemm", GEMM, 6, 6, 3, 3, 1, F32, 0,
        LIST(FLOAT("alpha"), FLOAT("beta"), INT("broadcast"), INT("transA"), INT("transB")), gemm,
        gemm, "y = alpha A B + beta C"),
    ROW("Gemm", GEMM, 7, 10, 3, 3, 1, F32, 0,
        LIST(FLOAT("alpha"), FLOAT("beta"), INT("transA"), INT("transB")), gemm, gemm,
        "y = alpha A B + beta C"),
    ROW("Gemm", GEMM, 11, 17, 2, 3, 1, F32, 0,
        LIST(FLOAT("alpha"), FLOAT("beta"), INT("transA"), INT("transB")), gemm, gemm,
        "y = alpha A B + beta C"),
    ROW("GlobalAveragePool", GLOBAL_AVERAGE_POOL, 1, 17, 1, 1, 1, F32, 0, NO_ATTRIBUTES, global_pool,
        global_average_pool, "mean over all spatial dimensions"),
    ROW("GlobalMaxPool", GLOBAL_MAX_POOL, 1, 17, 1, 1, 1, F32, 0, NO_ATTRIBUTES, global_pool,
        global_max_pool, "maximum over all spatial dimensions"),
    LOGIC("Greater", GREATER, 7, NUMBERS, greater, "y = a > b, broadcast"),
    LOGIC("GreaterOrEqual", GREATER_OR_EQUAL, 12, NUMBERS, greater_or_equal, "y = a >= b, broadcast"),
    ROW("HardSigmoid", HARD_SIGMOID, 6, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha"), FLOAT("beta")),
        same, hard_sigmoid, "y = max(0, min(1, alpha x + beta))"),
    SINCE("HardSwish", HARD_SWISH, 14, FLOATS, hard_swish, "y = x max(0, min(1, x / 6 + 1 / 2))"),
    ROW("Identity", IDENTITY, 6, 17, 1, 1, 1, ANY, FOLD, NO_ATTRIBUTES, same, copy, "y = x"),
    ROW("IsInf", IS_INF, 10, 17, 1, 1, 1, FLOATS, FOLD,
        LIST(INT("detect_negative"), INT("detect_positive")), same_bool, is_inf, "y = x is infinite"),
    ROW("IsNaN", IS_NAN, 9, 17, 1, 1, 1, FLOATS | BIT(F16) | BIT(BF16), FOLD, NO_ATTRIBUTES, same_bool,
        is_nan, "y = x is not a number"),
    ROW("LeakyRelu", LEAKY_RELU, 6, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha")), same, leaky_relu,
        "y = x, below 0 alpha x"),
    LOGIC("Less", LESS, 7, NUMBERS, less, "y = a < b, broadcast"),
    LOGIC("LessOrEqual", LESS_OR_EQUAL, 12, NUMBERS, less_or_equal, "y = a <= b, broadcast"),
    UNARY("Log", LOG, FLOATS, log, "y = natural logarithm of x"),
    ROW("MatMul", MATMUL, 6, 17, 2, 2, 1, F32, 0, NO_ATTRIBUTES, matmul, matmul,
        "matrix product with NumPy's rules for other ranks"),
    ROW("Max", MAX, 6, 17, 1, MANY, 1, NUMBERS | BIT(F16) | BIT(BF16), FOLD, NO_ATTRIBUTES, broadcast, max,
        "the greatest of all operands, broadcast; a NaN wins"),
    ROW("MaxPool", MAX_POOL, 6, 17, 1, 1, 2, F32, 0,
        LIST(STRING("auto_pad"), INT("ceil_mode"), INTS("dilations"),
             {"kernel_shape", LEAT_ATTRIBUTE_INTS, true}, INTS("pads"), INT("storage_order"),
             INTS("strides")),
        pool, max_pool, "maximum over a sliding window"),
    ROW("Mean", MEAN, 6, 17, 1, MANY, 1, FLOATS, FOLD, NO_ATTRIBUTES, broadcast, mean,
        "mean of all operands, broadcast"),
    ROW("Min", MIN, 6, 17, 1, MANY, 1, NUMBERS | BIT(F16) | BIT(BF16), FOLD, NO_ATTRIBUTES, broadcast, min,
        "the least of all operands, broadcast; a NaN wins"),
    ROW("Mod", MOD, 10, 17, 2, 2, 1, NUMBERS | BIT(F16), FOLD, LIST(INT("fmod")), mod, mod,
        "y = a modulo b, broadcast; an integer modulo zero fails the batch"),
    BINARY("Mul", MUL, mul, "y = a * b, broadcast; integers wrap"),
    UNARY("Neg", NEG, NUMBERS, neg, "y = -x"),
    ROW("Not", NOT, 1, 17, 1, 1, 1, BIT(BOOL), FOLD, NO_ATTRIBUTES, same_bool, not, "y = not x"),
    LOGIC("Or", OR, 7, BIT(BOOL), or, "y = a or b, broadcast"),
    ROW("PRelu", PRELU, 6, 6, 2, 2, 1, FLOATS, FOLD, NO_ATTRIBUTES, prelu, prelu,
        "y = x, below 0 slope x; a slope per channel"),
    ROW("PRelu", PRELU, 7, 17, 2, 2, 1, FLOATS, FOLD, NO_ATTRIBUTES, prelu, prelu,
        "y = x, below 0 slope x; slopes broadcast to x"),
    ROW("Pad", PAD, 6, 10, 1, 1, 1, NUMBERS, FOLD,
        LIST(STRING("mode"), {"pads", LEAT_ATTRIBUTE_INTS, true}, FLOAT("value")), pad, pad,
        "a constant border; negative pads crop"),
    ROW("Pad", PAD, 11, 17, 2, 3, 1, ANY, FOLD, LIST(STRING("mode")), pad, pad,
        "a constant border; negative pads crop"),
    ROW("Pow", POW, 7, 11, 2, 2, 1, FLOATS, FOLD, NO_ATTRIBUTES, pow, pow,
        "y = a to the power of b, broadcast"),
    ROW("Pow", POW, 12, 17, 2, 2, 1, NUMBERS, FOLD, NO_ATTRIBUTES, pow, pow,
        "y = a to the power of b, broadcast; the result has a's type"),
    UNARY("Reciprocal", RECIPROCAL, FLOATS, reciprocal, "y = 1 / x"),
    ROW("ReduceMean", REDUCE_MEAN, 6, 17, 1, 1, 1, F32, FOLD, LIST(INTS("axes"), INT("keepdims")),
        reduce_mean, reduce_mean, "mean over the named axes, all without any"),
    UNARY("Relu", RELU, FLOATS, relu, "y = max(x, 0)"),
    ROW("Reshape", RESHAPE, 6, 13, 2, 2, 1, ANY, FOLD, NO_ATTRIBUTES, reshape, copy,
        "the same elements in another shape"),
    ROW("Reshape", RESHAPE, 14, 17, 2, 2, 1, ANY, FOLD, LIST(INT("allowzero")), reshape, copy,
        "the same elements in another shape"),
    SINCE("Round", ROUND, 11, FLOATS, round, "y = nearest integer, halves to the even one"),
    ROW("Selu", SELU, 6, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha"), FLOAT("gamma")), same, selu,
        "y = gamma x, below 0 gamma alpha (e^x - 1)"),
    ROW("Shape", SHAPE, 6, 14, 1, 1, 1, ANY, FOLD, NO_ATTRIBUTES, shape, shape, "the dims of x"),
    ROW("Shape", SHAPE, 15, 17, 1, 1, 1, ANY, FOLD, LIST(INT("end"), INT("start")), shape, shape,
        "the dims [start, end) of x"),
    ROW("Shrink", SHRINK, 9, 17, 1, 1, 1, NUMBERS, FOLD, LIST(FLOAT("bias"), FLOAT("lambd")), same, shrink,
        "y = x moved towards 0 by the bias, 0 within lambd"),
    UNARY("Sigmoid", SIGMOID, FLOATS, sigmoid, "y = 1 / (1 + e^-x)"),
    SINCE("Sign", SIGN, 9, NUMBERS, sign, "y = -1, 0 or 1"),
    SINCE("Sin", SIN, 7, FLOATS, sin, "y = sine of x"),
    SINCE("Sinh", SINH, 9, FLOATS, sinh, "y = hyperbolic sine of x"),
    ROW("Softmax", SOFTMAX, 6, 17, 1, 1, 1, F32, 0, LIST(INT("axis")), softmax, softmax,
        "normalised exponentials along an axis; before opset 13 over all dims from the axis on"),
    SINCE("Softplus", SOFTPLUS, 1, FLOATS, softplus, "y = log(1 + e^x)"),
    SINCE("Softsign", SOFTSIGN, 1, FLOATS, softsign, "y = x / (1 + |x|)"),
    UNARY("Sqrt", SQRT, FLOATS, sqrt, "y = square root of x"),
    ROW("Squeeze", SQUEEZE, 6, 12, 1, 1, 1, ANY, FOLD, LIST(INTS("axes")), squeeze, copy,
        "drops axes of size 1"),
    ROW("Squeeze", SQUEEZE, 13, 17, 1, 2, 1, ANY, FOLD, NO_ATTRIBUTES, squeeze, copy,
        "drops axes of size 1"),
    BINARY("Sub", SUB, sub, "y = a - b, broadcast; integers wrap"),
    ROW("Sum", SUM, 6, 17, 1, MANY, 1, FLOATS, FOLD, NO_ATTRIBUTES, broadcast, sum,
        "sum of all operands, broadcast"),
    SINCE("Tan", TAN, 7, FLOATS, tan, "y = tangent of x"),
    UNARY("Tanh", TANH, FLOATS, tanh, "y = hyperbolic tangent of x"),
    ROW("ThresholdedRelu", THRESHOLDED_RELU, 10, 17, 1, 1, 1, FLOATS, FOLD, LIST(FLOAT("alpha")), same,
        thresholded_relu, "y = x above alpha, else 0"),
    ROW("Transpose", TRANSPOSE, 6, 17, 1, 1, 1, ANY, FOLD, LIST(INTS("perm")), transpose, transpose,
        "axes in another order"),
    ROW("Unsqueeze", UNSQUEEZE, 6, 12, 1, 1, 1, ANY, FOLD, LIST({"axes", LEAT_ATTRIBUTE_INTS, true}),
        unsqueeze, copy, "inserts axes of size 1"),
    ROW("Unsqueeze", UNSQUEEZE, 13, 17, 2, 2, 1, ANY, FOLD, NO_ATTRIBUTES, unsqueeze, copy,
        "inserts axes of size 1"),
    ROW("Where", WHERE, 9, 17, 3, 3, 1, BIT(BOOL), FOLD, NO_ATTRIBUTES, where, where,
        "y = a where the condition holds, else b; broadcast"),
    LOGIC("Xor", XOR, 7, BIT(BOOL), xor, "y = either a or b, broadcast"),
};
/* clang-format on */
const size_t leat_op_count = LEAT_COUNT_OF(leat_ops);
