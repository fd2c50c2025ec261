/* SPDX-License-Identifier: Apache-2.0 */
/* leat/tensor.h - element types and tensor signatures, shared by the client library and the engine. */
#ifndef LEAT_TENSOR_H
#define LEAT_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <leat/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are part of the wire protocol and of plan files: they never change. */
enum leat_dtype {
    LEAT_DTYPE_NONE = 0,
    LEAT_DTYPE_F32 = 1,
    LEAT_DTYPE_F16 = 2,
    LEAT_DTYPE_BF16 = 3,
    LEAT_DTYPE_F64 = 4,
    LEAT_DTYPE_I8 = 5,
    LEAT_DTYPE_U8 = 6,
    LEAT_DTYPE_I16 = 7,
    LEAT_DTYPE_U16 = 8,
    LEAT_DTYPE_I32 = 9,
    LEAT_DTYPE_U32 = 10,
    LEAT_DTYPE_I64 = 11,
    LEAT_DTYPE_U64 = 12,
    LEAT_DTYPE_BOOL = 13,
};

#define LEAT_DTYPE_MAX      13
#define LEAT_RANK_MAX       8
#define LEAT_TENSOR_NAME_MAX 64 /* bytes with the closing zero */
#define LEAT_NAME_MAX       64  /* bytes with the closing zero; application and model names */
#define LEAT_TENSORS_MAX    64  /* inputs plus outputs of one query */
#define LEAT_ITEMS_MAX      65536u
#define LEAT_LENGTH_MAX     32767u /* of a sequence */
#define LEAT_LENGTHS_MAX    8u     /* that a model has plans for */

#define LEAT_SIZES_MAX      4u      /* that an answer tells: its items times the outputs that vary */
#define LEAT_SIZE_MAX       65535u  /* of a dimension that varies */

/*
 * One input or output of an application or model. dims[0] is the batch dimension and always reads
 * -1: a query of `items` items has items * item_bytes bytes, densely packed, row-major.
 * A detector finds as many boxes as there are: of an output that varies, dims[varying] is the most that an item can have.
 * The answer tells how many it has (leat_completion.sizes); they come first, what is behind them is zeros,
 * in answers of pipelines anything.
 */
struct leat_tensor_info {
    char name[LEAT_TENSOR_NAME_MAX];
    uint32_t dtype; /* enum leat_dtype */
    uint32_t rank;  /* 1..LEAT_RANK_MAX */
    int64_t dims[LEAT_RANK_MAX];
    uint64_t item_bytes; /* bytes of one item: product of dims[1..] * element bytes; > 0 */
    uint32_t varying;    /* of an output: the dimension, 1..rank-1, whose size tensor contents decide; 0: none */
    uint32_t reserved;   /* 0 */
};

/* Bytes of one element, 0 for an unknown type. */
LEAT_PUBLIC size_t leat_dtype_bytes(uint32_t dtype);

/* "f32", "u8", ...; "?" for an unknown type. */
LEAT_PUBLIC const char *leat_dtype_text(uint32_t dtype);

#ifdef __cplusplus
}
#endif
#endif /* LEAT_TENSOR_H */
