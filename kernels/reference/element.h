/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/reference/element.h - single elements of any type, broadcasting and indices, for the files in this
 * folder.
 *
 * Numerics  A number keeps every digit of its element: floats in a double, integers in 64 bits. Conversions
 *           are those of Cast: floats round to nearest even into f16 and bf16 and truncate towards zero into
 *           integers; what does not fit saturates, NaN becomes 0; integers wrap into narrower ones.
 */
#ifndef LEAT_KERNELS_REFERENCE_ELEMENT_H
#define LEAT_KERNELS_REFERENCE_ELEMENT_H

#include "kernels/reference/reference.h"

/* Either a floating number or an integer of 64 bits with its sign known. */
struct leat_number {
    bool is_float, is_negative;
    double real;
    uint64_t bits; /* two's complement */
};

struct leat_number leat_number_read(uint32_t dtype, const void *data, size_t i);
void leat_number_write(uint32_t dtype, void *data, size_t i, const struct leat_number *number);
double leat_number_real(const struct leat_number *number);

/* x is greater (or less) than `best`, of one type. A NaN is beyond every number. */
bool leat_number_beyond(const struct leat_number *x, const struct leat_number *best, bool greatest);

/* Element i as a real number; exact for all but large 64-bit integers. */
static inline double
leat_element_real(uint32_t dtype, const void *data, size_t i)
{
    if (dtype == LEAT_DTYPE_F32) {
        return (double)((const float *)data)[i];
    }
    if (dtype == LEAT_DTYPE_F64) {
        return ((const double *)data)[i];
    }
    const struct leat_number number = leat_number_read(dtype, data, i);
    return leat_number_real(&number);
}

static inline void
leat_element_set_real(uint32_t dtype, void *data, size_t i, double x)
{
    if (dtype == LEAT_DTYPE_F32) {
        ((float *)data)[i] = (float)x;
        return;
    }
    leat_number_write(dtype, data, i, &(struct leat_number){.is_float = true, .real = x});
}

/* Element i of an integer or bool type; u64 wraps. */
int64_t leat_element_int(uint32_t dtype, const void *data, size_t i);
void leat_element_set_int(uint32_t dtype, void *data, size_t i, int64_t x);

bool leat_dtype_is_float(uint32_t dtype);

/* ---- Broadcasting ------------------------------------------------------------------------------------- */

#define LEAT_WALK_MAX 3u

/* Output element i comes from element index[k] of input k: strides are 0 along broadcast axes. */
struct leat_walk {
    uint32_t rank, inputs;
    int64_t dims[LEAT_RANK_MAX], at[LEAT_RANK_MAX];
    size_t stride[LEAT_WALK_MAX][LEAT_RANK_MAX];
    size_t index[LEAT_WALK_MAX];
};

/* At the first element of output 0, over inputs [first, first + count). */
void leat_walk_start(const struct leat_eval *eval, uint32_t first, uint32_t count, struct leat_walk *walk);

static inline void
leat_walk_next(struct leat_walk *walk)
{
    for (uint32_t d = walk->rank; d-- > 0;) {
        for (uint32_t k = 0; k < walk->inputs; k++) {
            walk->index[k] += walk->stride[k][d];
        }
        if (++walk->at[d] < walk->dims[d]) {
            return;
        }
        walk->at[d] = 0;
        for (uint32_t k = 0; k < walk->inputs; k++) {
            walk->index[k] -= walk->stride[k][d] * (size_t)walk->dims[d];
        }
    }
}

/* ---- Shapes ----------------------------------------------------------------------------------------------- */

/* Elements of dims [from, to). */
size_t leat_extent(const struct leat_value *value, uint32_t from, uint32_t to);

/* Row-major strides in elements. */
void leat_strides(const struct leat_value *value, size_t strides[LEAT_RANK_MAX]);

/* Coordinates of element i. */
void leat_coordinates(const struct leat_value *value, size_t i, int64_t at[LEAT_RANK_MAX]);

/* First element of the matrix (of `matrix` elements) of `x` that belongs to matrix number `batch` of a product. */
size_t leat_matrix_offset(const struct leat_value *x, const struct leat_value *output, uint32_t batches, size_t batch,
                          size_t matrix);

/*
 * Output `o` has these dims in this run, each at most the bound; LEAT_ERR_UNSUPPORTED where the caller has no place
 * for that.
 */
LEAT_MUST_CHECK enum leat_status leat_eval_set_dims(const struct leat_eval *eval, uint32_t o, const int64_t *dims);

/* ---- Indices ------------------------------------------------------------------------------------------------ */

/* Element i of an i32 or i64 input, read once: checked and used is the same number whatever the owner of the memory does. */
int64_t leat_eval_int(const struct leat_eval *eval, uint32_t input, size_t i);

/*
 * Element i of index tensor `input` (i32 or i64), negative ones counted from the end of `size`.
 * LEAT_ERR_SHAPE when it is outside [-size, size).
 */
LEAT_MUST_CHECK enum leat_status leat_eval_index(const struct leat_eval *eval, uint32_t input, size_t i,
                                                 int64_t size, size_t *ret);

/* The only element of an i32 or i64 tensor, or `otherwise` when the input is omitted. */
int64_t leat_eval_scalar(const struct leat_eval *eval, uint32_t input, int64_t otherwise);

#endif /* LEAT_KERNELS_REFERENCE_ELEMENT_H */
