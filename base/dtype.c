/* SPDX-License-Identifier: Apache-2.0 */
#include <leat/tensor.h>

static const struct {
    const char *text;
    size_t bytes;
} dtypes[LEAT_DTYPE_MAX + 1] = {
    [LEAT_DTYPE_NONE] = {"?", 0},    [LEAT_DTYPE_F32] = {"f32", 4}, [LEAT_DTYPE_F16] = {"f16", 2},
    [LEAT_DTYPE_BF16] = {"bf16", 2}, [LEAT_DTYPE_F64] = {"f64", 8}, [LEAT_DTYPE_I8] = {"i8", 1},
    [LEAT_DTYPE_U8] = {"u8", 1},     [LEAT_DTYPE_I16] = {"i16", 2}, [LEAT_DTYPE_U16] = {"u16", 2},
    [LEAT_DTYPE_I32] = {"i32", 4},   [LEAT_DTYPE_U32] = {"u32", 4}, [LEAT_DTYPE_I64] = {"i64", 8},
    [LEAT_DTYPE_U64] = {"u64", 8},   [LEAT_DTYPE_BOOL] = {"bool", 1},
};

size_t
leat_dtype_bytes(uint32_t dtype)
{
    return dtype <= LEAT_DTYPE_MAX ? dtypes[dtype].bytes : 0;
}

const char *
leat_dtype_text(uint32_t dtype)
{
    return dtype <= LEAT_DTYPE_MAX ? dtypes[dtype].text : "?";
}
