/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto whose elements lie in another file: "location", "offset" and "length". */
#include <string.h>

#include "base/align.h"
#include "kernels/mapping.h"
#include "kernels/onnx/importer.h"

#define MAPPED_ALIGN 64u

/* All of it decimal digits. */
static bool
read_number(const char *text, uint64_t *ret)
{
    uint64_t number = 0;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || !leat_mul_u64(number, 10, &number) ||
            !leat_add_u64(number, (uint64_t)(*at - '0'), &number)) {
            return false;
        }
    }
    *ret = number;
    return text[0] != '\0';
}

enum leat_status
leat_onnx_place(const char *name, const Onnx__TensorProto *tensor, struct leat_onnx_place *ret_place)
{
    struct leat_onnx_place place = {0};

    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const char *key = leat_onnx_text(tensor->external_data[i]->key);
        const char *value = leat_onnx_text(tensor->external_data[i]->value);
        bool good = true;
        if (strcmp(key, "location") == 0) {
            place.location = value;
        } else if (strcmp(key, "offset") == 0) {
            good = read_number(value, &place.offset);
        } else if (strcmp(key, "length") == 0) {
            place.has_length = good = read_number(value, &place.length);
        }
        if (!good) {
            return LEAT_FAIL(LEAT_ERR_PROTO, "tensor '%.64s': the %s '%.32s' of its external data is no number", name, key,
                             value);
        }
    }
    if (place.location == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "tensor '%.64s': its external data have no location", name);
    }
    *ret_place = place;
    return LEAT_OK;
}

static enum leat_status
map_file(const struct leat_onnx_source *source, const char *location, struct leat_mapping **ret)
{
    for (uint32_t i = 0; i < source->file_count; i++) {
        if (strcmp(source->files[i].name, location) == 0) {
            return leat_mapping_create(source->files[i].fd, location, ret);
        }
    }
    return source->folder_fd >= 0 ? leat_mapping_open(source->folder_fd, location, ret)
                                  : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "its file '%.64s' did not come with the model", location);
}

static enum leat_status
find_file(struct leat_onnx_files *files, const char *name, const char *location, struct leat_mapping **ret)
{
    for (uint32_t i = 0; i < files->count; i++) {
        if (strcmp(files->names[i], location) == 0) {
            *ret = files->mappings[i];
            return LEAT_OK;
        }
    }
    if (files->count == LEAT_ONNX_FILES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "the model's data lie in more than %u files", LEAT_ONNX_FILES_MAX);
    }
    const enum leat_status status = map_file(files->source, location, ret);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "tensor '%.64s'", name);
    }
    files->names[files->count] = location;
    files->mappings[files->count++] = *ret;
    return LEAT_OK;
}

void
leat_onnx_files_close(struct leat_onnx_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        leat_mapping_release(files->mappings[i]);
    }
    files->count = 0;
}

/*
 * Floats decide nothing but answers: other types may be shapes, axes or indices, which must stay as they were checked. f32 that is
 * not aligned is copied when it is known who reads it, unless nobody minds; where there are graphs inside, at once.
 */
static bool
may_map(const struct leat_value *value, const unsigned char *data, uint64_t offset, bool graphs_inside)
{
    const bool aligned = ((uintptr_t)data + offset) % MAPPED_ALIGN == 0;
    const bool is_float = value->dtype == LEAT_DTYPE_F32 || value->dtype == LEAT_DTYPE_F64 ||
                          value->dtype == LEAT_DTYPE_F16 || value->dtype == LEAT_DTYPE_BF16;
    return is_float && leat_value_bytes(value) >= LEAT_MAPPED_BYTES_MIN &&
           (aligned || (value->dtype == LEAT_DTYPE_F32 && !graphs_inside));
}

enum leat_status
leat_onnx_external(struct leat_graph *graph, struct leat_onnx_files *files, const Onnx__TensorProto *tensor, uint32_t index)
{
    const struct leat_value *value = &graph->values[index];
    const uint64_t bytes = leat_value_bytes(value);
    struct leat_mapping *mapping = NULL;
    struct leat_onnx_place place = {0};
    size_t file_bytes;
    void *copy;

    if (files == NULL || (files->source->folder_fd < 0 && files->source->file_count == 0)) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "tensor '%.64s' has its data in another file (external data), which is not "
                         "read; save the model with its weights inside",
                         value->name);
    }
    enum leat_status status = leat_onnx_place(value->name, tensor, &place);
    if (status == LEAT_OK) {
        status = find_file(files, value->name, place.location, &mapping);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const unsigned char *data = leat_mapping_data(mapping, &file_bytes);
    if ((place.has_length && place.length != bytes) || place.offset > file_bytes || bytes > file_bytes - place.offset) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "tensor '%.64s' needs %llu bytes; '%.64s' has %llu from %llu on, of %zu in all",
                         value->name, (unsigned long long)bytes, place.location,
                         (unsigned long long)(place.has_length ? place.length : file_bytes),
                         (unsigned long long)place.offset, file_bytes);
    }
    if (may_map(value, data, place.offset, files->graphs_inside)) {
        leat_graph_map_constant(graph, index, mapping, (size_t)place.offset);
        return LEAT_OK;
    }
    status = leat_graph_make_constant(graph, index, &copy);
    return status == LEAT_OK ? leat_mapping_read(mapping, (size_t)place.offset, copy, (size_t)bytes) : status;
}
