/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/npy.h - arrays in NumPy's .npy format (versions 1.0 to 3.0, C order, little endian). */
#ifndef LEAT_TOOLS_NPY_H
#define LEAT_TOOLS_NPY_H

#include <stdbool.h>

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
/* Are these items of the tensor: of its type, and of its shape behind the first dimension, which counts them? */
bool npy_holds_items(const struct npy_array *array, const struct leat_tensor_info *info);

/* "f32[N,1,28,28]"; a dimension of -1 reads N. */
struct npy_shape {
    char text[200];
};
struct npy_shape npy_shape(uint32_t dtype, const int64_t *dims, uint32_t rank);

void npy_free(struct npy_array *array);

#endif /* LEAT_TOOLS_NPY_H */
