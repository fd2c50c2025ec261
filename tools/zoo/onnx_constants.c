/* SPDX-License-Identifier: Apache-2.0 */
/* Constants, drawn and given. */
#include <stdlib.h>
#include <string.h>

#include "tools/zoo/onnx_parts.h"

static uint64_t
next_random(struct onnx_builder *builder)
{
    uint64_t z = (builder->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

enum source { DRAWN, GIVEN };

/* A constant with undefined contents at *ret_data, which is NULL where there is nothing to fill. */
static const char *
add_constant(struct onnx_builder *builder, const char *name, enum onnx_type type, enum source source,
             const int64_t *dims, uint32_t rank, size_t *ret_elements, void **ret_data)
{
    LEAT_ASSERT(builder->graph.n_initializer < CONSTANTS_MAX && rank <= ONNX_RANK_MAX);
    struct constant *constant = &builder->constants[builder->graph.n_initializer];
    size_t elements = 1;

    onnx__tensor_proto__init(&constant->proto);
    compose_name(builder, name, constant->name);
    for (uint32_t d = 0; d < rank; d++) {
        LEAT_ASSERT(dims[d] > 0);
        constant->dims[d] = dims[d];
        elements *= (size_t)dims[d];
    }
    constant->proto.name = constant->name;
    constant->proto.dims = constant->dims;
    constant->proto.n_dims = rank;
    constant->proto.has_data_type = true;
    constant->proto.data_type = (int32_t)type;
    const size_t bytes = elements * (type == ONNX_TYPE_F32 ? sizeof(float) : sizeof(int64_t));
    builder->constant_bytes += bytes;

    *ret_elements = elements;
    *ret_data = NULL;
    if (builder->weights == ONNX_WEIGHTS_DRAWN || source == GIVEN) {
        *ret_data = malloc(bytes);
        builder->out_of_memory |= *ret_data == NULL;
        constant->data = *ret_data;
        constant->proto.has_raw_data = true;
        constant->proto.raw_data = (ProtobufCBinaryData){.len = bytes, .data = *ret_data};
    }
    builder->constant_list[builder->graph.n_initializer++] = &constant->proto;
    return constant->name;
}

static const char *
add_parameter(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank,
              size_t *ret_elements, void **ret_data)
{
    const char *full_name = add_constant(builder, name, ONNX_TYPE_F32, DRAWN, dims, rank, ret_elements, ret_data);
    builder->parameters += *ret_elements;
    return full_name;
}

/* Approximately normal with mean 0 and deviation 1: four uniforms added have variance 1/3. */
static double
next_normal(struct onnx_builder *builder)
{
    const uint64_t bits = next_random(builder);
    const int64_t sum = (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));

    return (double)(sum - 2 * 65535) * (1.7320508075688772 / 65536.0);
}

const char *
onnx_builder_normal(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank,
                    double mean, double deviation)
{
    size_t elements;
    void *data;
    const char *full_name = add_parameter(builder, name, dims, rank, &elements, &data);
    float *to = data;

    for (size_t i = 0; to != NULL && i < elements; i++) {
        to[i] = (float)(mean + next_normal(builder) * deviation);
    }
    return full_name;
}

const char *
onnx_builder_filters(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank,
                     double deviation)
{
    size_t elements;
    void *data;
    const char *full_name = add_parameter(builder, name, dims, rank, &elements, &data);
    const size_t width = elements / (size_t)dims[0];
    float *row = data;

    for (int64_t r = 0; row != NULL && r < dims[0]; r++, row += width) {
        double sum = 0.0;
        for (size_t i = 0; i < width; i++) {
            row[i] = (float)(next_normal(builder) * deviation);
            sum += (double)row[i];
        }
        for (size_t i = 0; width > 1 && i < width; i++) {
            row[i] = (float)((double)row[i] - sum / (double)width);
        }
    }
    return full_name;
}

const char *
onnx_builder_uniform(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank,
                     double low, double high)
{
    size_t elements;
    void *data;
    const char *full_name = add_parameter(builder, name, dims, rank, &elements, &data);
    float *to = data;

    for (size_t i = 0; to != NULL && i < elements; i++) {
        const double unit = (double)(next_random(builder) >> 11) * 0x1p-53;
        to[i] = (float)(low + (high - low) * unit);
    }
    return full_name;
}

static const char *
add_given(struct onnx_builder *builder, const char *name, enum onnx_type type, const void *values,
          const int64_t *dims, uint32_t rank)
{
    size_t elements;
    void *data;
    const char *full_name = add_constant(builder, name, type, GIVEN, dims, rank, &elements, &data);

    if (data != NULL) {
        memcpy(data, values, elements * (type == ONNX_TYPE_F32 ? sizeof(float) : sizeof(int64_t)));
    }
    return full_name;
}

const char *
onnx_builder_scalar(struct onnx_builder *builder, const char *name, float value)
{
    return add_given(builder, name, ONNX_TYPE_F32, &value, NULL, 0);
}

const char *
onnx_builder_floats(struct onnx_builder *builder, const char *name, const float *values, const int64_t *dims,
                    uint32_t rank)
{
    return add_given(builder, name, ONNX_TYPE_F32, values, dims, rank);
}

const char *
onnx_builder_integers(struct onnx_builder *builder, const char *name, const int64_t *values, uint32_t count)
{
    return add_given(builder, name, ONNX_TYPE_I64, values, (const int64_t[]){count}, 1);
}

const char *
onnx_builder_integer_table(struct onnx_builder *builder, const char *name, const int64_t *values,
                           const int64_t *dims, uint32_t rank)
{
    return add_given(builder, name, ONNX_TYPE_I64, values, dims, rank);
}
