/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SparseTensorProto: the elements that are not 0 and where they are, by number or by coordinates; graphs have all elements.
 *
 * Trust    A few bytes of file say how large the whole is. The model's limit bounds that; where there is none, what folding
 *          may make of a file of this size.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/importer.h"
#include "kernels/op.h"

/* What a sparse tensor is made of. */
struct parts {
    const char *name;
    const Onnx__TensorProto *values, *indices;
    uint64_t count;       /* of the elements that the file has */
    uint32_t coordinates; /* of each: its rank, or 1: a number */
};

/* A list of elements that lie in the model's own file. */
static enum leat_status
check_list(const struct parts *parts, const Onnx__TensorProto *list, const char *what)
{
    if (list == NULL || list->n_dims == 0 || list->dims[0] < 0 || list->dims[0] > LEAT_DIM_MAX) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "sparse tensor '%.64s' has no list of %s", parts->name, what);
    }
    if (leat_onnx_is_elsewhere(list)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "the %s of sparse tensor '%.64s' lie in another file or in segments, which is not read; save the "
                         "model with them inside",
                         what, parts->name);
    }
    return LEAT_OK;
}

static enum leat_status
find_parts(const char *name, const Onnx__SparseTensorProto *sparse, struct parts *parts)
{
    *parts = (struct parts){.name = name, .values = sparse->values, .indices = sparse->indices, .coordinates = 1};

    enum leat_status status = check_list(parts, parts->values, "values");
    if (status == LEAT_OK) {
        status = check_list(parts, parts->indices, "indices");
    }
    if (status != LEAT_OK) {
        return status;
    }
    const Onnx__TensorProto *indices = parts->indices;
    parts->count = (uint64_t)parts->values->dims[0];
    if (indices->n_dims == 2) {
        parts->coordinates = (uint32_t)sparse->n_dims;
    }
    if (parts->values->n_dims != 1 || indices->n_dims > 2 || indices->dims[0] != parts->values->dims[0] ||
        (indices->n_dims == 2 && indices->dims[1] != (int64_t)sparse->n_dims) || !indices->has_data_type ||
        indices->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
        return LEAT_FAIL(LEAT_ERR_PROTO,
                         "sparse tensor '%.64s' needs one index of type int64 for each of its %llu values, or one for each "
                         "of %zu dimensions",
                         name, (unsigned long long)parts->count, sparse->n_dims);
    }
    return LEAT_OK;
}

/* Which element of the whole entry `at` is; the end of the whole where it is none. */
static uint64_t
place_of(const struct parts *parts, const struct leat_value *whole, const int64_t *indices, uint64_t at)
{
    const int64_t *index = indices + at * parts->coordinates;
    const uint64_t elements = leat_value_elements(whole);
    uint64_t place = 0;

    if (parts->indices->n_dims == 1) {
        return index[0] >= 0 && (uint64_t)index[0] < elements ? (uint64_t)index[0] : elements;
    }
    for (uint32_t d = 0; d < whole->rank; d++) {
        if (index[d] < 0 || index[d] >= whole->dims[d]) {
            return elements;
        }
        place = place * (uint64_t)whole->dims[d] + (uint64_t)index[d];
    }
    return place;
}

/* In ascending order, as the format has it, none is there twice. */
static enum leat_status
spread(const struct parts *parts, const struct leat_value *whole, const int64_t *indices,
       const unsigned char *values, unsigned char *to)
{
    const size_t size = leat_dtype_bytes(whole->dtype);
    uint64_t next = 0;

    for (uint64_t i = 0; i < parts->count; i++) {
        const uint64_t place = place_of(parts, whole, indices, i);
        if (place < next || place >= leat_value_elements(whole)) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "sparse tensor '%.64s': index %llu is out of range, or not behind the one before",
                             parts->name, (unsigned long long)i);
        }
        memcpy(to + place * size, values + i * size, size);
        next = place + 1;
    }
    return LEAT_OK;
}

/* The file may be cut short at any time, so what is checked are copies. */
static enum leat_status
fill(const struct parts *parts, const struct leat_value *whole, unsigned char *to)
{
    const uint64_t index_count = parts->count * parts->coordinates;
    const size_t size = leat_dtype_bytes(whole->dtype);
    struct leat_onnx_elements values, indices;

    enum leat_status status = leat_onnx_find_elements(parts->name, parts->values, whole->dtype, parts->count, &values);
    if (status == LEAT_OK) {
        status = leat_onnx_find_elements(parts->name, parts->indices, LEAT_DTYPE_I64, index_count, &indices);
    }
    if (status != LEAT_OK) {
        return status;
    }
    unsigned char *copy = malloc((size_t)(index_count * sizeof(int64_t) + parts->count * size) + 1);
    if (copy == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the %llu elements of sparse tensor '%.64s'",
                         (unsigned long long)parts->count, parts->name);
    }
    unsigned char *behind = copy + index_count * sizeof(int64_t);
    leat_onnx_copy_elements(&indices, copy);
    leat_onnx_copy_elements(&values, behind);
    status = spread(parts, whole, (const int64_t *)(const void *)copy, behind, to);
    free(copy);
    return status;
}

enum leat_status
leat_onnx_sparse(struct leat_graph *graph, const char *name, const Onnx__SparseTensorProto *sparse, uint32_t *ret_index)
{
    struct parts parts;
    uint64_t elements;
    uint32_t index;
    void *data;

    enum leat_status status = find_parts(name, sparse, &parts);
    if (status != LEAT_OK) {
        return status;
    }
    const uint32_t dtype = leat_dtype_from_onnx(parts.values->has_data_type ? parts.values->data_type : 0);
    if (dtype == LEAT_DTYPE_NONE) {
        char type[32];
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "sparse tensor '%.64s' has the ONNX type %s, which is not supported", name,
                         leat_onnx_type_text(parts.values->has_data_type ? parts.values->data_type : 0, type));
    }
    status = leat_onnx_shape(name, sparse->n_dims, sparse->dims, dtype, &elements);
    if (status != LEAT_OK) {
        return status;
    }
    const uint64_t bytes = elements * leat_dtype_bytes(dtype);
    if (leat_graph_memory_max(graph) == UINT64_MAX && !leat_graph_may_fold(graph, bytes)) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "sparse tensor '%.64s' would take %llu bytes, many times what the file has", name,
                         (unsigned long long)bytes);
    }
    status = leat_graph_add_value(graph, name, dtype, (uint32_t)sparse->n_dims, sparse->dims, &index);
    if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, index, &data);
    }
    if (status == LEAT_OK) {
        status = fill(&parts, &graph->values[index], data);
    }
    if (status == LEAT_OK) {
        *ret_index = index;
    }
    return status;
}
