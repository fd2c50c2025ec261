/* SPDX-License-Identifier: Apache-2.0 */
#include "base/align.h"
#include "kernels/infer/infer.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"

#define F32   (1u << LEAT_DTYPE_F32)
#define BYTES (1u << LEAT_DTYPE_I8 | 1u << LEAT_DTYPE_U8)

static const struct leat_op_attribute none[] = {{NULL, LEAT_ATTRIBUTE_INT, false}};
static const struct leat_op_attribute gelu[] = {{"tanh", LEAT_ATTRIBUTE_INT, false}, {NULL, LEAT_ATTRIBUTE_INT, false}};
static const struct leat_op_attribute attention[] = {
    {"heads", LEAT_ATTRIBUTE_INT, true}, {"scale", LEAT_ATTRIBUTE_FLOAT, true}, {NULL, LEAT_ATTRIBUTE_INT, false}};

static const struct leat_op_attribute product[] = {{"transB", LEAT_ATTRIBUTE_INT, false},
                                                   {NULL, LEAT_ATTRIBUTE_INT, false}};

static const struct leat_op ops[] = {
    {.name = "Attention", .kind = LEAT_OP_ATTENTION, .input_min = 3, .input_max = 4, .output_max = 1, .types = F32,
     .attributes = attention, .infer = leat_infer_attention, .reference = leat_reference_attention,
     .workspace_bytes = leat_workspace_attention,
     .doc = "Softmax(scale Q K^T + mask) V for each head; Q, K and V are [items][length][heads * depth], the mask is broadcast to "
            "[items][heads][queries][keys], and has all keys"},
    {.name = "EmbeddingBag", .kind = LEAT_OP_EMBEDDING_BAG, .input_min = 2, .input_max = 2, .output_max = 1,
     .types = F32, .flags = LEAT_OP_INDEXING, .attributes = none, .infer = leat_infer_embedding_bag, .reference = leat_reference_embedding_bag,
     .doc = "sums of the rows of a table that each row of indices names; one that is out of range fails the batch"},
    {.name = "Gelu", .kind = LEAT_OP_GELU, .input_min = 1, .input_max = 1, .output_max = 1, .types = F32,
     .flags = LEAT_OP_FOLDABLE, .attributes = gelu, .infer = leat_infer_same, .reference = leat_reference_gelu,
     .doc = "y = x times the normal distribution's share below x; with tanh by Hendrycks' approximation"},
    {.name = "MatMul", .kind = LEAT_OP_MATMUL, .input_min = 2, .input_max = 3, .output_max = 1, .types = F32,
     .attributes = none, .infer = leat_infer_matmul, .reference = leat_reference_matmul,
     .doc = "MatMul plus a vector along the last axis"},
    {.name = "MatMulIntegerToFloat", .kind = LEAT_OP_MATMUL_INTEGER_TO_FLOAT, .input_min = 4, .input_max = 7, .output_max = 1,
     .types = BYTES, .attributes = none, .infer = leat_infer_matmul_integer_to_float,
     .reference = leat_reference_matmul_integer_to_float,
     .doc = "MatMulInteger of A and B, whose scales are inputs 2 and 3, zero points 4 and 5: sums as floats, times the scales' "
            "product, plus a vector along the last axis"},
    {.name = "QLinearAdd", .kind = LEAT_OP_QLINEAR_ADD, .input_min = 8, .input_max = 8, .output_max = 1, .types = BYTES,
     .attributes = none, .infer = leat_infer_qlinear_add, .reference = leat_reference_qlinear_add,
     .doc = "sum of quantised tensors as a quantised one; the second is repeated along the first axes of the first"},
    {.name = "QLinearLookup", .kind = LEAT_OP_QLINEAR_LOOKUP, .input_min = 2, .input_max = 2, .output_max = 1,
     .types = BYTES, .attributes = none, .infer = leat_infer_qlinear_lookup, .reference = leat_reference_qlinear_lookup,
     .doc = "what a table has for each 8-bit number"},
    {.name = "QLinearMatMul", .kind = LEAT_OP_QLINEAR_MATMUL, .input_min = 8, .input_max = 9, .output_max = 1,
     .types = BYTES, .attributes = product, .infer = leat_infer_qlinear_matmul, .reference = leat_reference_qlinear_matmul,
     .doc = "QLinearMatMul plus a vector along the last axis, in units of the sums; with transB of the second matrix's "
            "transpose"},
    {.name = "QLinearMul", .kind = LEAT_OP_QLINEAR_MUL, .input_min = 8, .input_max = 8, .output_max = 1, .types = BYTES,
     .attributes = none, .infer = leat_infer_qlinear_add, .reference = leat_reference_qlinear_add,
     .doc = "product of quantised tensors, element by element, as QLinearAdd"},
    {.name = "Swish", .kind = LEAT_OP_SWISH, .input_min = 1, .input_max = 1, .output_max = 1, .types = F32,
     .flags = LEAT_OP_FOLDABLE, .attributes = none, .infer = leat_infer_same, .reference = leat_reference_swish,
     .doc = "y = x / (1 + e^-x)"},
};

const struct leat_op *
leat_op_fused(enum leat_op_kind kind)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(ops); i++) {
        if (ops[i].kind == kind) {
            return &ops[i];
        }
    }
    return NULL;
}
