/* SPDX-License-Identifier: Apache-2.0 */
/* base/npy.h - arrays in NumPy's .npy format (versions 1.0 to 3.0, C order, little endian). */
#ifndef LEAT_BASE_NPY_H
#define LEAT_BASE_NPY_H

#include <stdbool.h>
#include <stdio.h>

#include <leat/tensor.h>

struct npy_array {
    uint32_t dtype; /* enum leat_dtype */
    uint32_t rank;
    int64_t dims[LEAT_RANK_MAX];
    uint64_t elements;
    void *data; /* elements * leat_dtype_bytes(dtype) */
};

/* Reads a file. Any file gives an array or an error that says what is wrong with it. */
LEAT_MUST_CHECK enum leat_status npy_read(const char *path, struct npy_array *ret_array);
LEAT_MUST_CHECK enum leat_status npy_write(const char *path, const struct npy_array *array);
/*
 * The same of an open file, which stays open, from where it is: the header alone, and then its data, to be asked for while the
 * array has none; where that fails it has none still. A file that is cut short meanwhile is an error like any other.
 */
LEAT_MUST_CHECK enum leat_status npy_read_header(FILE *file, struct npy_array *ret_array);
LEAT_MUST_CHECK enum leat_status npy_read_data(FILE *file, struct npy_array *array);
LEAT_MUST_CHECK enum leat_status npy_write_file(FILE *file, const struct npy_array *array);
/* Are these items of the tensor: of its type, and of its shape behind the first dimension, which counts them? */
bool npy_holds_items(const struct npy_array *array, const struct leat_tensor_info *info);

/* "f32[N,1,28,28]"; a dimension of -1 reads N. */
struct npy_shape {
    char text[200];
};
struct npy_shape npy_shape(uint32_t dtype, const int64_t *dims, uint32_t rank);

void npy_free(struct npy_array *array);

#endif /* LEAT_BASE_NPY_H */
