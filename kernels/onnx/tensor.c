/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto: where its elements lie, and that there are exactly as many as its shape says. */
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "raw_data is little-endian and copied as it is"
#endif

static bool
is_external(const Onnx__TensorProto *tensor)
{
    return (tensor->has_data_location && tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) ||
           tensor->n_external_data > 0;
}

bool
leat_onnx_is_elsewhere(const Onnx__TensorProto *tensor)
{
    return is_external(tensor) || tensor->segment != NULL;
}

enum leat_status
leat_onnx_shape(const char *name, size_t rank, const int64_t *dims, uint32_t dtype, uint64_t *ret_elements)
{
    uint64_t elements = 1, bound = leat_dtype_bytes(dtype);

    if (rank > LEAT_RANK_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "tensor '%.64s' has rank %zu, the limit is %d", name, rank, LEAT_RANK_MAX);
    }
    for (size_t d = 0; d < rank; d++) {
        const int64_t dim = dims[d];
        if (dim < 0 || dim > LEAT_DIM_MAX ||
            (dim > 0 &&
             (!leat_mul_u64(bound, (uint64_t)dim, &bound) || bound > LEAT_VALUE_BYTES_MAX))) {
            return LEAT_FAIL(LEAT_ERR_LIMIT,
                             "tensor '%.64s' has the impossible or too large dimension %lld", name,
                             (long long)dim);
        }
        elements *= (uint64_t)dim;
    }
    *ret_elements = elements;
    return LEAT_OK;
}

/* The typed field that holds elements of a dtype: how many there are. */
static size_t
typed_count(const Onnx__TensorProto *tensor, uint32_t dtype)
{
    switch (dtype) {
    case LEAT_DTYPE_F32:
        return tensor->n_float_data;
    case LEAT_DTYPE_F64:
        return tensor->n_double_data;
    case LEAT_DTYPE_I64:
        return tensor->n_int64_data;
    case LEAT_DTYPE_U32:
    case LEAT_DTYPE_U64:
        return tensor->n_uint64_data;
    default:
        return tensor->n_int32_data;
    }
}

static void
copy_typed(const Onnx__TensorProto *tensor, uint32_t dtype, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        switch (dtype) {
        case LEAT_DTYPE_F32:
            ((float *)to)[i] = tensor->float_data[i];
            break;
        case LEAT_DTYPE_F64:
            ((double *)to)[i] = tensor->double_data[i];
            break;
        case LEAT_DTYPE_I64:
            ((int64_t *)to)[i] = tensor->int64_data[i];
            break;
        case LEAT_DTYPE_U64:
            ((uint64_t *)to)[i] = tensor->uint64_data[i];
            break;
        case LEAT_DTYPE_U32:
            ((uint32_t *)to)[i] = (uint32_t)tensor->uint64_data[i];
            break;
        case LEAT_DTYPE_I32:
            ((int32_t *)to)[i] = tensor->int32_data[i];
            break;
        case LEAT_DTYPE_I16:
        case LEAT_DTYPE_U16:
        case LEAT_DTYPE_F16:
        case LEAT_DTYPE_BF16:
            ((uint16_t *)to)[i] = (uint16_t)tensor->int32_data[i];
            break;
        case LEAT_DTYPE_I8:
        case LEAT_DTYPE_U8:
            ((uint8_t *)to)[i] = (uint8_t)tensor->int32_data[i];
            break;
        case LEAT_DTYPE_BOOL:
            ((uint8_t *)to)[i] = tensor->int32_data[i] != 0;
            break;
        default:
            LEAT_ASSERT(false && "leat_dtype_from_onnx knows no other type");
        }
    }
}

const char *
leat_onnx_type_text(int64_t type, char *room)
{
    const ProtobufCEnumValue *known =
        type >= 0 && type <= INT32_MAX
            ? protobuf_c_enum_descriptor_get_value(&onnx__tensor_proto__data_type__descriptor, (int)type)
            : NULL;
    (void)snprintf(room, 32, known != NULL ? "%s (%lld)" : "%.0s%lld", known != NULL ? known->name : "", (long long)type);
    return room;
}

/* Compare before allocating: a few bytes of file must not ask for gigabytes. */
enum leat_status
leat_onnx_find_elements(const char *name, const Onnx__TensorProto *tensor, uint32_t dtype, uint64_t count,
                        struct leat_onnx_elements *ret)
{
    const size_t size = leat_dtype_bytes(dtype), typed = typed_count(tensor, dtype);
    ProtobufCBinaryData bytes;
    const bool has_raw = leat_onnx_raw(tensor, &bytes), raw = has_raw && (bytes.len > 0 || typed == 0);

    if (raw ? bytes.len != count * size || typed > 0 : typed != count) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "tensor '%.64s' has %zu %s, its shape needs %llu elements of %zu bytes", name,
                         raw ? bytes.len : typed, raw ? "raw bytes" : "elements", (unsigned long long)count, size);
    }
    *ret = (struct leat_onnx_elements){.tensor = tensor,
                                       .dtype = dtype,
                                       .count = (size_t)count,
                                       .is_raw = raw,
                                       .raw = raw ? bytes.data : NULL,
                                       .raw_bytes = raw ? bytes.len : 0};
    return LEAT_OK;
}

void
leat_onnx_copy_elements(const struct leat_onnx_elements *elements, void *to)
{
    if (!elements->is_raw) {
        copy_typed(elements->tensor, elements->dtype, elements->count, to);
    } else if (elements->raw_bytes > 0) {
        memcpy(to, elements->raw, elements->raw_bytes);
    }
}

enum leat_status
leat_onnx_tensor(struct leat_graph *graph, struct leat_onnx_files *files, const char *name,
                 const Onnx__TensorProto *tensor, uint32_t *ret_index)
{
    const uint32_t dtype =
        tensor->has_data_type ? leat_dtype_from_onnx(tensor->data_type) : LEAT_DTYPE_NONE;
    struct leat_onnx_elements elements;
    uint64_t count = 0;
    uint32_t index = 0;
    void *data = NULL;
    char type[32];

    if (dtype == LEAT_DTYPE_NONE) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "tensor '%.64s' has the ONNX type %s, which is not supported", name,
                         leat_onnx_type_text(tensor->has_data_type ? tensor->data_type : 0, type));
    }
    if (tensor->segment != NULL) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "tensor '%.64s' is split into segments", name);
    }
    enum leat_status status = leat_onnx_shape(name, tensor->n_dims, tensor->dims, dtype, &count);
    if (status != LEAT_OK) {
        return status;
    }
    if (is_external(tensor)) {
        status = leat_graph_add_value(graph, name, dtype, (uint32_t)tensor->n_dims, tensor->dims, ret_index);
        return status == LEAT_OK ? leat_onnx_external(graph, files, tensor, *ret_index) : status;
    }
    status = leat_onnx_find_elements(name, tensor, dtype, count, &elements);
    if (status != LEAT_OK) {
        return status;
    }
    status = leat_graph_add_value(graph, name, dtype, (uint32_t)tensor->n_dims, tensor->dims, &index);
    /* A short tensor may lie in a message that was copied. */
    const bool mapped =
        elements.is_raw && files != NULL && files->source->mapping != NULL && elements.raw_bytes >= LEAT_ONNX_IN_PLACE_MIN;
    if (status == LEAT_OK && mapped && dtype == LEAT_DTYPE_F32 && elements.raw_bytes >= files->in_place_min) {
        leat_graph_map_constant(graph, index, files->source->mapping,
                                (size_t)(elements.raw - (const unsigned char *)files->source->bytes));
    } else if (status == LEAT_OK && elements.is_raw) {
        status = leat_graph_copy_constant(graph, index, elements.raw, mapped);
    } else if (status == LEAT_OK) {
        status = leat_graph_make_constant(graph, index, &data);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (data != NULL) {
        leat_onnx_copy_elements(&elements, data);
    }
    *ret_index = index;
    return LEAT_OK;
}
