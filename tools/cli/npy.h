/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/npy.h - arrays in NumPy's .npy format (version 1.0 and 2.0, C order, little endian). */
#ifndef LEAT_TOOLS_NPY_H
#define LEAT_TOOLS_NPY_H

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
void npy_free(struct npy_array *array);

#endif /* LEAT_TOOLS_NPY_H */
