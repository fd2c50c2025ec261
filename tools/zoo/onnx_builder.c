/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/zoo/onnx_builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>

#include "base/align.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "raw_data is little-endian and written as it lies in memory"
#endif

enum {
    NODES_MAX = 4096,
    CONSTANTS_MAX = 1024,
    PORTS_MAX = 6,
    SYMBOLS_MAX = 6,
    ATTRIBUTES_MAX = 8,
    INTS_MAX = 8,
    NAME_BYTES = 96,
    BODY_NODES_MAX = 64,
    EXTERNAL_BYTES_MIN = 1024, /* smaller constants, such as shapes, stay in the model's file */
};

/* A tensor that an attribute holds. */
struct value {
    Onnx__TensorProto proto;
    int64_t dims[1];
    union {
        int64_t integers[INTS_MAX];
        float number;
    };
};

struct onnx_node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attributes[ATTRIBUTES_MAX];
    Onnx__AttributeProto *attribute_list[ATTRIBUTES_MAX];
    int64_t ints[ATTRIBUTES_MAX][INTS_MAX];
    struct value value;
    char *inputs[ONNX_NODE_INPUTS];
    char *output_list[ONNX_NODE_OUTPUTS];
    char name[NAME_BYTES];
    char outputs[ONNX_NODE_OUTPUTS][NAME_BYTES];
};

struct constant {
    Onnx__TensorProto proto;
    void *data;
    int64_t dims[ONNX_RANK_MAX];
    char name[NAME_BYTES];
    /* Of one in a file of its own: location, offset, length. */
    Onnx__StringStringEntryProto external[3];
    Onnx__StringStringEntryProto *external_list[3];
    char offset[24], length[24];
};

struct port {
    Onnx__ValueInfoProto proto;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dims[ONNX_RANK_MAX];
    Onnx__TensorShapeProto__Dimension *dim_list[ONNX_RANK_MAX];
    struct onnx_port port;
    char name[NAME_BYTES];
};

struct onnx_body {
    Onnx__GraphProto graph;
    Onnx__NodeProto *node_list[BODY_NODES_MAX];
    struct port inputs[PORTS_MAX], outputs[PORTS_MAX];
    Onnx__ValueInfoProto *input_list[PORTS_MAX], *output_list[PORTS_MAX];
    char name[NAME_BYTES];
    bool begun, ended;
};

struct onnx_builder {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset;
    Onnx__OperatorSetIdProto *opset_list[1];

    struct onnx_node nodes[NODES_MAX];
    size_t node_count; /* of the graph and its bodies */
    Onnx__NodeProto *node_list[NODES_MAX];
    struct onnx_body body; /* one is enough for every model so far */
    struct constant constants[CONSTANTS_MAX];
    Onnx__TensorProto *constant_list[CONSTANTS_MAX];
    struct port inputs[PORTS_MAX], outputs[PORTS_MAX];
    Onnx__ValueInfoProto *input_list[PORTS_MAX], *output_list[PORTS_MAX];

    char graph_name[NAME_BYTES];
    char scope[NAME_BYTES];
    struct onnx_symbol symbols[SYMBOLS_MAX];
    uint32_t symbol_count;
    uint64_t random;
    uint64_t parameters, constant_bytes, multiply_adds;
    enum onnx_weights weights;
    bool out_of_memory;
};

/* protobuf-c takes char * for strings that it only reads. */
static char *
text(const char *constant)
{
    union {
        const char *from;
        char *to;
    } cast = {.from = constant};
    return cast.to;
}

static void
compose_name(const struct onnx_builder *builder, const char *name, char ret[NAME_BYTES])
{
    const int length = snprintf(ret, NAME_BYTES, "%s%s%s", builder->scope, builder->scope[0] ? "." : "", name);
    LEAT_ASSERT(length > 0 && length < NAME_BYTES);
}

enum leat_status
onnx_builder_create(const char *graph_name, uint64_t seed, enum onnx_weights weights,
                    struct onnx_builder **ret_builder)
{
    struct onnx_builder *b = calloc(1, sizeof(*b));

    LEAT_ASSERT(strlen(graph_name) < sizeof(b->graph_name));
    if (b == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to build '%s'", graph_name);
    }
    onnx__model_proto__init(&b->model);
    onnx__graph_proto__init(&b->graph);
    onnx__operator_set_id_proto__init(&b->opset);
    b->weights = weights;
    b->random = seed;

    b->model.has_ir_version = true;
    b->model.producer_name = text("leat-zoo");
    b->model.graph = &b->graph;
    b->model.opset_import = b->opset_list;
    b->model.n_opset_import = 1;
    b->opset_list[0] = &b->opset;
    b->opset.domain = text("");
    b->opset.has_version = true;
    onnx_builder_opset(b, ONNX_OPSET);
    b->symbols[0] = (struct onnx_symbol){.name = "N", .nominal = 1};
    b->symbol_count = 1;

    memcpy(b->graph_name, graph_name, strlen(graph_name));
    b->graph.name = b->graph_name;
    b->graph.node = b->node_list;
    b->graph.initializer = b->constant_list;
    b->graph.input = b->input_list;
    b->graph.output = b->output_list;
    *ret_builder = b;
    return LEAT_OK;
}

void
onnx_builder_destroy(struct onnx_builder *builder)
{
    if (builder == NULL) {
        return;
    }
    for (size_t i = 0; i < builder->graph.n_initializer; i++) {
        free(builder->constants[i].data);
    }
    free(builder);
}

void
onnx_builder_scope(struct onnx_builder *builder, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(builder->scope, sizeof(builder->scope), format, arguments);
    va_end(arguments);
    LEAT_ASSERT(length >= 0 && (size_t)length < sizeof(builder->scope));
}

void
onnx_builder_opset(struct onnx_builder *builder, int64_t version)
{
    LEAT_ASSERT(builder->node_count == 0 && version >= 10 && version <= 18);
    builder->opset.version = version;
    /* The IR version that came with the operator set. */
    builder->model.ir_version = version >= 15 ? 8 : version >= 12 ? 7 : version == 11 ? 6 : 5;
}

int64_t
onnx_builder_opset_version(const struct onnx_builder *builder)
{
    return builder->opset.version;
}

int64_t
onnx_builder_symbol(struct onnx_builder *builder, const char *name, int64_t nominal)
{
    LEAT_ASSERT(builder->symbol_count < SYMBOLS_MAX && nominal > 0);
    builder->symbols[builder->symbol_count++] = (struct onnx_symbol){.name = name, .nominal = nominal};
    return -(int64_t)builder->symbol_count;
}

int64_t
onnx_builder_extent(const struct onnx_builder *builder, int64_t dim)
{
    LEAT_ASSERT(dim != 0 && -dim <= (int64_t)builder->symbol_count);
    return dim > 0 ? dim : builder->symbols[-1 - dim].nominal;
}

/* dims include the batch. */
static void
fill_port(const struct onnx_builder *builder, struct port *port, const char *name, enum onnx_type type,
          const int64_t *dims, uint32_t rank)
{
    LEAT_ASSERT(strlen(name) < sizeof(port->name));
    LEAT_ASSERT(rank >= 1 && rank <= ONNX_RANK_MAX);
    onnx__value_info_proto__init(&port->proto);
    onnx__type_proto__init(&port->type);
    onnx__type_proto__tensor__init(&port->tensor);
    onnx__tensor_shape_proto__init(&port->shape);

    memcpy(port->name, name, strlen(name) + 1);
    port->proto.name = port->name;
    port->proto.type = &port->type;
    port->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    port->type.tensor_type = &port->tensor;
    port->tensor.has_elem_type = true;
    port->tensor.elem_type = (int32_t)type;
    port->tensor.shape = &port->shape;
    port->shape.dim = port->dim_list;
    port->shape.n_dim = rank;
    port->port = (struct onnx_port){.name = port->name, .type = type, .rank = rank};
    for (uint32_t d = 0; d < rank; d++) {
        Onnx__TensorShapeProto__Dimension *dim = &port->dims[d];
        onnx__tensor_shape_proto__dimension__init(dim);
        port->dim_list[d] = dim;
        port->port.dims[d] = dims[d];
        if (dims[d] < 0) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = text(builder->symbols[-1 - dims[d]].name);
        } else {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = dims[d];
        }
    }
}

static struct onnx_tensor
add_input(struct onnx_builder *builder, const char *name, enum onnx_type type, const int64_t *dims, uint32_t rank)
{
    struct onnx_body *body = builder->body.begun && !builder->body.ended ? &builder->body : NULL;
    Onnx__GraphProto *graph = body != NULL ? &body->graph : &builder->graph;
    LEAT_ASSERT(graph->n_input < PORTS_MAX);
    struct port *port = body != NULL ? &body->inputs[graph->n_input] : &builder->inputs[graph->n_input];
    struct onnx_tensor tensor = {.name = port->name, .rank = rank, .power = 1.0};

    fill_port(builder, port, name, type, dims, rank);
    memcpy(tensor.dims, dims, rank * sizeof(*dims));
    graph->input[graph->n_input++] = &port->proto;
    return tensor;
}

static struct onnx_tensor
add_batch_input(struct onnx_builder *builder, const char *name, enum onnx_type type, const int64_t *dims,
                uint32_t rank)
{
    int64_t all[ONNX_RANK_MAX] = {ONNX_BATCH};

    LEAT_ASSERT(rank + 1 <= ONNX_RANK_MAX);
    memcpy(all + 1, dims, rank * sizeof(*dims));
    return add_input(builder, name, type, all, rank + 1);
}

struct onnx_tensor
onnx_builder_input(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank)
{
    return add_batch_input(builder, name, ONNX_TYPE_F32, dims, rank);
}

struct onnx_tensor
onnx_builder_indices(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank, int64_t end)
{
    LEAT_ASSERT(end > 0);
    const struct onnx_tensor tensor = add_batch_input(builder, name, ONNX_TYPE_I64, dims, rank);
    builder->inputs[builder->graph.n_input - 1].port.end = end;
    return tensor;
}

void
onnx_builder_output(struct onnx_builder *builder, struct onnx_tensor x, const char *name)
{
    struct onnx_body *body = builder->body.begun && !builder->body.ended ? &builder->body : NULL;
    Onnx__GraphProto *graph = body != NULL ? &body->graph : &builder->graph;
    LEAT_ASSERT(graph->n_output < PORTS_MAX);
    struct port *port = body != NULL ? &body->outputs[graph->n_output] : &builder->outputs[graph->n_output];
    char *output = NULL;

    for (size_t i = 0; i < builder->node_count * ONNX_NODE_OUTPUTS; i++) {
        char *candidate = builder->nodes[i / ONNX_NODE_OUTPUTS].outputs[i % ONNX_NODE_OUTPUTS];
        output = candidate == x.name ? candidate : output;
    }
    LEAT_ASSERT(output != NULL);
    fill_port(builder, port, name, ONNX_TYPE_F32, x.dims, x.rank);
    memcpy(output, port->name, NAME_BYTES); /* nodes that read it point here */
    graph->output[graph->n_output++] = &port->proto;
}

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

struct onnx_node *
onnx_builder_node(struct onnx_builder *builder, const char *op, const char *name, const char *const *inputs,
                  uint32_t input_count)
{
    return onnx_builder_node_outputs(builder, op, name, inputs, input_count, 1);
}

struct onnx_node *
onnx_builder_node_outputs(struct onnx_builder *builder, const char *op, const char *name, const char *const *inputs,
                          uint32_t input_count, uint32_t output_count)
{
    LEAT_ASSERT(builder->node_count < NODES_MAX && input_count <= ONNX_NODE_INPUTS);
    LEAT_ASSERT(output_count > 0 && output_count <= ONNX_NODE_OUTPUTS);
    struct onnx_node *node = &builder->nodes[builder->node_count++];
    struct onnx_body *body = builder->body.begun && !builder->body.ended ? &builder->body : NULL;
    Onnx__GraphProto *graph = body != NULL ? &body->graph : &builder->graph;

    onnx__node_proto__init(&node->proto);
    compose_name(builder, name, node->name);
    for (uint32_t i = 0; i < input_count; i++) {
        node->inputs[i] = text(inputs[i] != NULL ? inputs[i] : "");
    }
    const size_t length = strlen(node->name);
    for (uint32_t o = 0; o < output_count; o++) {
        char suffix[16] = ".out";
        if (o > 0) {
            (void)snprintf(suffix, sizeof(suffix), ".out%u", o);
        }
        LEAT_ASSERT(length + strlen(suffix) < NAME_BYTES);
        memcpy(node->outputs[o], node->name, length);
        memcpy(node->outputs[o] + length, suffix, strlen(suffix) + 1);
        node->output_list[o] = node->outputs[o];
    }
    node->proto.name = node->name;
    node->proto.op_type = text(op);
    node->proto.input = node->inputs;
    node->proto.n_input = input_count;
    node->proto.output = node->output_list;
    node->proto.n_output = output_count;
    node->proto.attribute = node->attribute_list;
    LEAT_ASSERT(body == NULL || graph->n_node < BODY_NODES_MAX);
    graph->node[graph->n_node++] = &node->proto;
    return node;
}

const char *
onnx_node_output(const struct onnx_node *node)
{
    return node->outputs[0];
}

const char *
onnx_node_output_at(const struct onnx_node *node, uint32_t index)
{
    LEAT_ASSERT(index < node->proto.n_output);
    return node->outputs[index];
}

static Onnx__AttributeProto *
add_attribute(struct onnx_node *node, const char *name, Onnx__AttributeProto__AttributeType type)
{
    LEAT_ASSERT(node->proto.n_attribute < ATTRIBUTES_MAX);
    Onnx__AttributeProto *attribute = &node->attributes[node->proto.n_attribute];

    onnx__attribute_proto__init(attribute);
    attribute->name = text(name);
    attribute->has_type = true;
    attribute->type = type;
    node->attribute_list[node->proto.n_attribute++] = attribute;
    return attribute;
}

void
onnx_node_int(struct onnx_node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = true;
    attribute->i = value;
}

void
onnx_node_float(struct onnx_node *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = true;
    attribute->f = value;
}

void
onnx_node_ints(struct onnx_node *node, const char *name, const int64_t *values, uint32_t count)
{
    LEAT_ASSERT(count <= INTS_MAX);
    int64_t *own = node->ints[node->proto.n_attribute];
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    memcpy(own, values, count * sizeof(*values));
    attribute->ints = own;
    attribute->n_ints = count;
}

void
onnx_node_string(struct onnx_node *node, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = true;
    attribute->s = (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)text(value)};
}

static struct value *
add_value(struct onnx_node *node, const char *name, enum onnx_type type, uint32_t rank, uint32_t count)
{
    struct value *value = &node->value;
    LEAT_ASSERT(value->proto.dims == NULL); /* one for each node */
    Onnx__AttributeProto *attribute = add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);

    onnx__tensor_proto__init(&value->proto);
    value->dims[0] = count;
    value->proto.dims = value->dims;
    value->proto.n_dims = rank;
    value->proto.has_data_type = true;
    value->proto.data_type = (int32_t)type;
    value->proto.has_raw_data = true;
    value->proto.raw_data = (ProtobufCBinaryData){
        .len = count * (type == ONNX_TYPE_F32 ? sizeof(value->number) : sizeof(*value->integers)),
        .data = (uint8_t *)value->integers,
    };
    attribute->t = &value->proto;
    return value;
}

void
onnx_node_integers(struct onnx_node *node, const char *name, const int64_t *values, uint32_t count)
{
    LEAT_ASSERT(count <= INTS_MAX);
    const uint32_t elements = count == 0 ? 1 : count;
    struct value *value = add_value(node, name, ONNX_TYPE_I64, count == 0 ? 0 : 1, elements);
    memcpy(value->integers, values, elements * sizeof(*values));
}

void
onnx_node_scalar(struct onnx_node *node, const char *name, float value, uint32_t rank)
{
    LEAT_ASSERT(rank <= 1);
    add_value(node, name, ONNX_TYPE_F32, rank, 1)->number = value;
}

const char *
onnx_builder_constant_integers(struct onnx_builder *builder, const char *name, const int64_t *values, uint32_t count)
{
    struct onnx_node *node = onnx_builder_node(builder, "Constant", name, NULL, 0);
    onnx_node_integers(node, "value", values, count);
    return onnx_node_output(node);
}

const char *
onnx_builder_constant_float(struct onnx_builder *builder, const char *name, float value)
{
    struct onnx_node *node = onnx_builder_node(builder, "Constant", name, NULL, 0);
    onnx_node_scalar(node, "value", value, 0);
    return onnx_node_output(node);
}

const char *
onnx_builder_constant_empty(struct onnx_builder *builder, const char *name)
{
    struct onnx_node *node = onnx_builder_node(builder, "Constant", name, NULL, 0);
    (void)add_value(node, "value", ONNX_TYPE_F32, 1, 0);
    return onnx_node_output(node);
}

void
onnx_builder_body_begin(struct onnx_builder *builder, const char *name)
{
    struct onnx_body *body = &builder->body;

    LEAT_ASSERT(!body->begun);
    body->begun = true;
    onnx__graph_proto__init(&body->graph);
    compose_name(builder, name, body->name);
    body->graph.name = body->name;
    body->graph.node = body->node_list;
    body->graph.input = body->input_list;
    body->graph.output = body->output_list;
}

struct onnx_tensor
onnx_builder_body_input(struct onnx_builder *builder, const char *name, const int64_t *dims, uint32_t rank)
{
    LEAT_ASSERT(builder->body.begun && !builder->body.ended);
    return add_input(builder, name, ONNX_TYPE_F32, dims, rank);
}

struct onnx_body *
onnx_builder_body_end(struct onnx_builder *builder)
{
    LEAT_ASSERT(builder->body.begun && !builder->body.ended);
    builder->body.ended = true;
    return &builder->body;
}

void
onnx_node_body(struct onnx_node *node, const char *name, struct onnx_body *body)
{
    add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = &body->graph;
}

void
onnx_builder_count(struct onnx_builder *builder, int64_t multiply_adds)
{
    LEAT_ASSERT(multiply_adds > 0);
    builder->multiply_adds += (uint64_t)multiply_adds;
}

void
onnx_builder_discount(struct onnx_builder *builder, int64_t elements)
{
    LEAT_ASSERT(elements > 0 && builder->parameters >= (uint64_t)elements);
    builder->parameters -= (uint64_t)elements;
}

void
onnx_builder_summary(const struct onnx_builder *builder, struct onnx_summary *ret_summary)
{
    struct onnx_summary summary = {.parameters = builder->parameters,
                                   .constant_bytes = builder->constant_bytes,
                                   .flop_per_item = 2 * builder->multiply_adds,
                                   .opset = builder->opset.version,
                                   .node_count = (uint32_t)builder->node_count,
                                   .input_count = (uint32_t)builder->graph.n_input,
                                   .output_count = (uint32_t)builder->graph.n_output,
                                   .symbol_count = builder->symbol_count};

    for (uint32_t i = 0; i < summary.input_count; i++) {
        summary.inputs[i] = builder->inputs[i].port;
    }
    for (uint32_t o = 0; o < summary.output_count; o++) {
        summary.outputs[o] = builder->outputs[o].port;
    }
    memcpy(summary.symbols, builder->symbols, sizeof(summary.symbols));
    *ret_summary = summary;
}

enum leat_status
onnx_builder_pack(struct onnx_builder *builder, void **ret_bytes, size_t *ret_size)
{
    const size_t size = builder->out_of_memory ? 0 : onnx__model_proto__get_packed_size(&builder->model);

    if (size > ONNX_FILE_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "'%s' takes %zu bytes, more than an ONNX file can have: its constants "
                         "must go to a file of their own", builder->graph_name, size);
    }
    void *bytes = builder->out_of_memory ? NULL : malloc(size);
    if (bytes == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the weights of '%s'", builder->graph_name);
    }
    const size_t packed = onnx__model_proto__pack(&builder->model, bytes);
    LEAT_ASSERT(packed == size);
    *ret_bytes = bytes;
    *ret_size = size;
    return LEAT_OK;
}

static bool
write_zeros(FILE *file, uint64_t count)
{
    static const char zeros[ONNX_DATA_ALIGN];

    LEAT_ASSERT(count < sizeof(zeros));
    return fwrite(zeros, 1, (size_t)count, file) == count;
}

/* Says in the model where the constant's data lie instead of holding them. */
static void
refer(struct constant *constant, const char *location, uint64_t offset)
{
    const struct {
        const char *key, *value;
    } entries[3] = {{"location", location}, {"offset", constant->offset}, {"length", constant->length}};

    (void)snprintf(constant->offset, sizeof(constant->offset), "%llu", (unsigned long long)offset);
    (void)snprintf(constant->length, sizeof(constant->length), "%zu", constant->proto.raw_data.len);
    for (size_t i = 0; i < LEAT_COUNT_OF(entries); i++) {
        onnx__string_string_entry_proto__init(&constant->external[i]);
        constant->external[i].key = text(entries[i].key);
        constant->external[i].value = text(entries[i].value);
        constant->external_list[i] = &constant->external[i];
    }
    constant->proto.external_data = constant->external_list;
    constant->proto.n_external_data = LEAT_COUNT_OF(entries);
    constant->proto.has_data_location = true;
    constant->proto.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    constant->proto.has_raw_data = false;
    constant->proto.raw_data = (ProtobufCBinaryData){0};
}

enum leat_status
onnx_builder_pack_external(struct onnx_builder *builder, const char *location, FILE *data, void **ret_bytes,
                           size_t *ret_size)
{
    LEAT_ASSERT(builder->weights == ONNX_WEIGHTS_DRAWN);
    uint64_t offset = 0;

    for (size_t i = 0; !builder->out_of_memory && i < builder->graph.n_initializer; i++) {
        struct constant *constant = &builder->constants[i];
        const size_t bytes = constant->proto.raw_data.len;
        const uint64_t begin = leat_round_up(offset, ONNX_DATA_ALIGN);
        if (bytes < EXTERNAL_BYTES_MIN) {
            continue;
        }
        if (!write_zeros(data, begin - offset) || fwrite(constant->data, 1, bytes, data) != bytes) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot write the constants of '%s'", builder->graph_name);
        }
        refer(constant, location, begin);
        offset = begin + bytes;
    }
    return onnx_builder_pack(builder, ret_bytes, ret_size);
}
