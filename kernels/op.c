/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/op.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/infer/infer.h"
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
#define BINARY(name_, kind_, reference_, doc_)                                                      \
    ROW(name_, kind_, 7, 17, 2, 2, 1, NUMBERS, LEAT_OP_FOLDABLE, NO_ATTRIBUTES, broadcast,          \
        reference_, doc_)
#define FOLD LEAT_OP_FOLDABLE
#define MANY LEAT_NODE_ARITY_MAX

/* Sorted by name, then opset. A row ends where a later opset changed the operator's form or meaning. */
const struct leat_op leat_ops[] = {
    UNARY("Abs", ABS, NUMBERS, abs, "y = |x|"),
    BINARY("Add", ADD, add, "y = a + b, broadcast; integers wrap"),
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
    ROW("Cast", CAST, 6, 17, 1, 1, 1, ANY, FOLD, LIST({"to", LEAT_ATTRIBUTE_INT, true}), cast, cast,
        "element type conversion; floats truncate towards zero, what does not fit saturates"),
    UNARY("Ceil", CEIL, FLOATS, ceil, "y = smallest integer >= x"),
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
    BINARY("Div", DIV, div, "y = a / b, broadcast; an integer division by zero fails the batch"),
    ROW("Dropout", DROPOUT, 6, 6, 1, 1, 2, ANY, 0, LIST(INT("is_test"), FLOAT("ratio")), dropout,
        dropout, "y = x (inference)"),
    ROW("Dropout", DROPOUT, 7, 11, 1, 1, 2, ANY, 0, LIST(FLOAT("ratio")), dropout, dropout,
        "y = x (inference)"),
    ROW("Dropout", DROPOUT, 12, 17, 1, 3, 2, ANY, 0, LIST(INT("seed")), dropout, dropout,
        "y = x (inference)"),
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
    ROW("Identity", IDENTITY, 6, 17, 1, 1, 1, ANY, FOLD, NO_ATTRIBUTES, same, copy, "y = x"),
    UNARY("Log", LOG, FLOATS, log, "y = natural logarithm of x"),
    ROW("MatMul", MATMUL, 6, 17, 2, 2, 1, F32, 0, NO_ATTRIBUTES, matmul, matmul,
        "matrix product with NumPy's rules for other ranks"),
    ROW("MaxPool", MAX_POOL, 6, 17, 1, 1, 2, F32, 0,
        LIST(STRING("auto_pad"), INT("ceil_mode"), INTS("dilations"),
             {"kernel_shape", LEAT_ATTRIBUTE_INTS, true}, INTS("pads"), INT("storage_order"),
             INTS("strides")),
        pool, max_pool, "maximum over a sliding window"),
    BINARY("Mul", MUL, mul, "y = a * b, broadcast; integers wrap"),
    UNARY("Neg", NEG, NUMBERS, neg, "y = -x"),
    ROW("Pad", PAD, 6, 10, 1, 1, 1, NUMBERS, FOLD,
        LIST(STRING("mode"), {"pads", LEAT_ATTRIBUTE_INTS, true}, FLOAT("value")), pad, pad,
        "a constant border; negative pads crop"),
    ROW("Pad", PAD, 11, 17, 2, 3, 1, ANY, FOLD, LIST(STRING("mode")), pad, pad,
        "a constant border; negative pads crop"),
    ROW("Pow", POW, 7, 17, 2, 2, 1, FLOATS, FOLD, NO_ATTRIBUTES, broadcast, pow,
        "y = a to the power of b, broadcast"),
    UNARY("Reciprocal", RECIPROCAL, FLOATS, reciprocal, "y = 1 / x"),
    ROW("ReduceMean", REDUCE_MEAN, 6, 17, 1, 1, 1, F32, FOLD, LIST(INTS("axes"), INT("keepdims")),
        reduce_mean, reduce_mean, "mean over the named axes, all without any"),
    UNARY("Relu", RELU, FLOATS, relu, "y = max(x, 0)"),
    ROW("Reshape", RESHAPE, 6, 13, 2, 2, 1, ANY, FOLD, NO_ATTRIBUTES, reshape, copy,
        "the same elements in another shape"),
    ROW("Reshape", RESHAPE, 14, 17, 2, 2, 1, ANY, FOLD, LIST(INT("allowzero")), reshape, copy,
        "the same elements in another shape"),
    ROW("Shape", SHAPE, 6, 14, 1, 1, 1, ANY, FOLD, NO_ATTRIBUTES, shape, shape, "the dims of x"),
    ROW("Shape", SHAPE, 15, 17, 1, 1, 1, ANY, FOLD, LIST(INT("end"), INT("start")), shape, shape,
        "the dims [start, end) of x"),
    UNARY("Sigmoid", SIGMOID, FLOATS, sigmoid, "y = 1 / (1 + e^-x)"),
    ROW("Softmax", SOFTMAX, 6, 17, 1, 1, 1, F32, 0, LIST(INT("axis")), softmax, softmax,
        "normalised exponentials along an axis; before opset 13 over all dims from the axis on"),
    UNARY("Sqrt", SQRT, FLOATS, sqrt, "y = square root of x"),
    ROW("Squeeze", SQUEEZE, 6, 12, 1, 1, 1, ANY, FOLD, LIST(INTS("axes")), squeeze, copy,
        "drops axes of size 1"),
    ROW("Squeeze", SQUEEZE, 13, 17, 1, 2, 1, ANY, FOLD, NO_ATTRIBUTES, squeeze, copy,
        "drops axes of size 1"),
    BINARY("Sub", SUB, sub, "y = a - b, broadcast; integers wrap"),
    UNARY("Tanh", TANH, FLOATS, tanh, "y = hyperbolic tangent of x"),
    ROW("Transpose", TRANSPOSE, 6, 17, 1, 1, 1, ANY, FOLD, LIST(INTS("perm")), transpose, transpose,
        "axes in another order"),
    ROW("Unsqueeze", UNSQUEEZE, 6, 12, 1, 1, 1, ANY, FOLD, LIST({"axes", LEAT_ATTRIBUTE_INTS, true}),
        unsqueeze, copy, "inserts axes of size 1"),
    ROW("Unsqueeze", UNSQUEEZE, 13, 17, 2, 2, 1, ANY, FOLD, NO_ATTRIBUTES, unsqueeze, copy,
        "inserts axes of size 1"),
};
/* clang-format on */
const size_t leat_op_count = LEAT_COUNT_OF(leat_ops);

const struct leat_op *
leat_op_find(const char *name, int64_t opset)
{
    for (size_t i = 0; i < leat_op_count; i++) {
        const struct leat_op *op = &leat_ops[i];
        if (opset >= (int64_t)op->since && opset <= (int64_t)op->until &&
            strcmp(op->name, name) == 0) {
            return op;
        }
    }
    return NULL;
}

bool
leat_op_known(const char *name)
{
    for (size_t i = 0; i < leat_op_count; i++) {
        if (strcmp(leat_ops[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static const char *
kind_text(enum leat_attribute_kind kind)
{
    static const char *const texts[] = {
        [LEAT_ATTRIBUTE_INT] = "INT",       [LEAT_ATTRIBUTE_FLOAT] = "FLOAT",
        [LEAT_ATTRIBUTE_STRING] = "STRING", [LEAT_ATTRIBUTE_INTS] = "INTS",
        [LEAT_ATTRIBUTE_FLOATS] = "FLOATS", [LEAT_ATTRIBUTE_TENSOR] = "TENSOR",
    };
    return texts[kind];
}

static enum leat_status
check_attributes(const struct leat_node *node)
{
    for (uint32_t a = 0; a < node->attribute_count; a++) {
        const struct leat_attribute *attribute = &node->attributes[a];
        const struct leat_op_attribute *schema = node->op->attributes;
        while (schema->name != NULL && strcmp(schema->name, attribute->name) != 0) {
            schema++;
        }
        if (schema->name == NULL) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_UNSUPPORTED, "attribute '%.64s' is not supported",
                                  attribute->name);
        }
        if (schema->kind != attribute->kind) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s has type %s instead of %s",
                                  schema->name, kind_text(attribute->kind),
                                  kind_text(schema->kind));
        }
        if (leat_node_attribute(node, attribute->name) != attribute) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s is there twice",
                                  schema->name);
        }
    }
    for (const struct leat_op_attribute *schema = node->op->attributes; schema->name != NULL;
         schema++) {
        if (schema->required && leat_node_attribute(node, schema->name) == NULL) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "attribute %s is missing", schema->name);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_op_check(const struct leat_node *node)
{
    const struct leat_op *op = node->op;

    if (node->input_count < op->input_min || node->input_count > op->input_max) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has %u inputs; %u to %u are possible",
                              node->input_count, op->input_min, op->input_max);
    }
    if (node->output_count < 1 || node->output_count > op->output_max) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "it has %u outputs; 1 to %u are possible",
                              node->output_count, op->output_max);
    }
    for (uint32_t i = 0; i < op->input_min; i++) {
        if (node->inputs[i] == LEAT_VALUE_NONE) {
            return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "input %u must not be omitted", i);
        }
    }
    if (node->outputs[0] == LEAT_VALUE_NONE) {
        return LEAT_NODE_FAIL(node, LEAT_ERR_PROTO, "output 0 must not be omitted");
    }
    return check_attributes(node);
}

enum leat_status
leat_node_failed(const struct leat_node *node, enum leat_status status)
{
    return leat_err_prefix(status, "node '%.64s' (operator %s)", node->name, node->op->name);
}

uint32_t
leat_dtype_from_onnx(int64_t data_type)
{
    static const uint8_t dtypes[] = {
        [1] = LEAT_DTYPE_F32,   [2] = LEAT_DTYPE_U8,   [3] = LEAT_DTYPE_I8,   [4] = LEAT_DTYPE_U16,
        [5] = LEAT_DTYPE_I16,   [6] = LEAT_DTYPE_I32,  [7] = LEAT_DTYPE_I64,  [9] = LEAT_DTYPE_BOOL,
        [10] = LEAT_DTYPE_F16,  [11] = LEAT_DTYPE_F64, [12] = LEAT_DTYPE_U32, [13] = LEAT_DTYPE_U64,
        [16] = LEAT_DTYPE_BF16,
    };
    return data_type >= 0 && data_type < (int64_t)sizeof(dtypes) ? dtypes[data_type]
                                                                 : LEAT_DTYPE_NONE;
}

bool
leat_value_scalar(const struct leat_value *value, double *ret)
{
    if (value == NULL || value->data == NULL ||
        value->data_bytes != leat_dtype_bytes(value->dtype)) {
        return false;
    }
    switch (value->dtype) {
    case LEAT_DTYPE_F32:
        *ret = (double)*(const float *)value->data;
        return true;
    case LEAT_DTYPE_F64:
        *ret = *(const double *)value->data;
        return true;
    case LEAT_DTYPE_I32:
        *ret = (double)*(const int32_t *)value->data;
        return true;
    case LEAT_DTYPE_I64:
        *ret = (double)*(const int64_t *)value->data;
        return true;
    default:
        return false;
    }
}

int64_t
leat_node_axis(const struct leat_node *node, int64_t otherwise, uint32_t rank)
{
    const int64_t axis = leat_node_int(node, "axis", otherwise);
    return axis < 0 ? axis + (int64_t)rank : axis;
}

void
leat_softmax_extent(const struct leat_graph *graph, const struct leat_node *node,
                    struct leat_softmax_extent *ret)
{
    const struct leat_value *x = leat_node_input(graph, node, 0);
    const bool flat = graph->opset < 13;
    const int64_t axis = leat_node_axis(node, flat ? 1 : -1, x->rank);

    *ret = (struct leat_softmax_extent){.outer = 1, .axis = 1, .inner = 1};
    for (uint32_t d = 0; d < x->rank; d++) {
        if ((int64_t)d < axis) {
            ret->outer *= (size_t)x->dims[d];
        } else if ((int64_t)d == axis || flat) {
            ret->axis *= (size_t)x->dims[d];
        } else {
            ret->inner *= (size_t)x->dims[d];
        }
    }
}

bool
leat_clip_bounds(const struct leat_graph *graph, const struct leat_node *node, float *ret_min,
                 float *ret_max)
{
    double bound;

    *ret_min = leat_node_float(node, "min", -INFINITY);
    *ret_max = leat_node_float(node, "max", INFINITY);
    for (uint32_t i = 1; i < node->input_count; i++) {
        if (node->inputs[i] == LEAT_VALUE_NONE) {
            continue;
        }
        if (!leat_value_scalar(leat_node_input(graph, node, i), &bound)) {
            return false;
        }
        *(i == 1 ? ret_min : ret_max) = (float)bound;
    }
    return true;
}

uint32_t
leat_reduce_axes(const struct leat_graph *graph, const struct leat_node *node)
{
    const struct leat_attribute *axes = leat_node_attribute(node, "axes");
    const uint32_t rank = leat_node_input(graph, node, 0)->rank;
    uint32_t mask = 0;

    for (uint32_t i = 0; axes != NULL && i < axes->count; i++) {
        mask |= 1u << (axes->ints[i] < 0 ? axes->ints[i] + (int64_t)rank : axes->ints[i]);
    }
    return mask == 0 ? (1u << rank) - 1 : mask;
}

void
leat_shape_range(const struct leat_node *node, uint32_t rank, int64_t *ret_start, int64_t *ret_end)
{
    const int64_t size = (int64_t)rank;
    int64_t bounds[2] = {leat_node_int(node, "start", 0), leat_node_int(node, "end", size)};

    for (int i = 0; i < 2; i++) {
        bounds[i] = bounds[i] < 0 ? (bounds[i] < -size ? 0 : bounds[i] + size) : bounds[i];
        bounds[i] = bounds[i] > size ? size : bounds[i];
    }
    *ret_start = bounds[0];
    *ret_end = bounds[1];
}

void
leat_transpose_perm(const struct leat_node *node, uint32_t rank, uint32_t perm[LEAT_RANK_MAX])
{
    const struct leat_attribute *attribute = leat_node_attribute(node, "perm");
    for (uint32_t d = 0; d < rank; d++) {
        perm[d] = attribute != NULL ? (uint32_t)attribute->ints[d] : rank - 1 - d;
    }
}
