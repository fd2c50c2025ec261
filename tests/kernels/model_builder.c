/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/model_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void *
builder_alloc(struct builder *builder, size_t bytes)
{
    void *block = calloc(1, bytes + 1);
    void **blocks = realloc(builder->blocks, (builder->block_count + 1) * sizeof(*blocks));
    LEAT_ASSERT(block != NULL && blocks != NULL);
    builder->blocks = blocks;
    blocks[builder->block_count++] = block;
    return block;
}

static char *
copy_text(struct builder *builder, const char *text, size_t length)
{
    char *copy = builder_alloc(builder, length);
    memcpy(copy, text, length);
    return copy;
}

void
builder_init(struct builder *builder, int64_t opset)
{
    memset(builder, 0, sizeof(*builder));
    onnx__model_proto__init(&builder->model);
    onnx__graph_proto__init(&builder->graph);
    onnx__operator_set_id_proto__init(&builder->opset);
    builder->model.has_ir_version = 1;
    builder->model.ir_version = 8;
    builder->model.graph = &builder->graph;
    builder->model.n_opset_import = 1;
    builder->model.opset_import = builder->opsets;
    builder->opsets[0] = &builder->opset;
    builder->opset.has_version = 1;
    builder->opset.version = opset;
    builder->graph.name = copy_text(builder, "test", 4);
    builder->graph.node = builder->nodes;
    builder->graph.initializer = builder->initialisers;
    builder->graph.input = builder->inputs;
    builder->graph.output = builder->outputs;
    builder->model.functions = builder->functions;
}

void
builder_fini(struct builder *builder)
{
    for (size_t i = 0; i < builder->block_count; i++) {
        free(builder->blocks[i]);
    }
    free(builder->blocks);
    builder->blocks = NULL;
    builder->block_count = 0;
}

Onnx__ValueInfoProto *
builder_input(struct builder *builder, const char *name, int type, const int64_t *dims, size_t rank)
{
    Onnx__ValueInfoProto *info = builder_alloc(builder, sizeof(*info));
    Onnx__TypeProto *proto = builder_alloc(builder, sizeof(*proto));
    Onnx__TypeProto__Tensor *tensor = builder_alloc(builder, sizeof(*tensor));
    Onnx__TensorShapeProto *shape = builder_alloc(builder, sizeof(*shape));

    onnx__value_info_proto__init(info);
    onnx__type_proto__init(proto);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    info->name = copy_text(builder, name, strlen(name));
    info->type = proto;
    proto->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    proto->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = type;
    tensor->shape = shape;
    shape->n_dim = rank;
    shape->dim = builder_alloc(builder, rank * sizeof(*shape->dim));
    for (size_t d = 0; d < rank; d++) {
        shape->dim[d] = builder_alloc(builder, sizeof(*shape->dim[d]));
        onnx__tensor_shape_proto__dimension__init(shape->dim[d]);
        if (dims[d] < 0) {
            char symbol[24];
            (void)snprintf(symbol, sizeof(symbol), "D%lld", -(long long)dims[d]);
            const char *param = dims[d] == -1 ? "N" : dims[d] == -2 ? "M" : symbol;
            shape->dim[d]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            shape->dim[d]->dim_param = copy_text(builder, param, strlen(param));
        } else {
            shape->dim[d]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            shape->dim[d]->dim_value = dims[d];
        }
    }
    LEAT_ASSERT(builder->graph.n_input < BUILDER_MAX);
    builder->inputs[builder->graph.n_input++] = info;
    return info;
}

void
builder_output(struct builder *builder, const char *name)
{
    Onnx__ValueInfoProto *info = builder_alloc(builder, sizeof(*info));
    onnx__value_info_proto__init(info);
    info->name = copy_text(builder, name, strlen(name));
    LEAT_ASSERT(builder->graph.n_output < BUILDER_MAX);
    builder->outputs[builder->graph.n_output++] = info;
}

Onnx__TensorProto *
builder_tensor(struct builder *builder, const char *name, int type, const void *data,
               const int64_t *dims, size_t rank)
{
    static const size_t sizes[17] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2};
    Onnx__TensorProto *tensor = builder_alloc(builder, sizeof(*tensor));
    size_t bytes = sizes[type];

    onnx__tensor_proto__init(tensor);
    tensor->name = copy_text(builder, name, strlen(name));
    tensor->has_data_type = 1;
    tensor->data_type = type;
    tensor->n_dims = rank;
    tensor->dims = builder_alloc(builder, rank * sizeof(*tensor->dims));
    for (size_t d = 0; d < rank; d++) {
        tensor->dims[d] = dims[d];
        bytes *= (size_t)dims[d];
    }
    tensor->has_raw_data = 1;
    tensor->raw_data.len = bytes;
    tensor->raw_data.data = builder_alloc(builder, bytes);
    if (data != NULL) {
        memcpy(tensor->raw_data.data, data, bytes);
    }
    return tensor;
}

Onnx__TensorProto *
builder_constant(struct builder *builder, const char *name, int type, const void *data,
                 const int64_t *dims, size_t rank)
{
    LEAT_ASSERT(builder->graph.n_initializer < BUILDER_MAX);
    Onnx__TensorProto *tensor = builder_tensor(builder, name, type, data, dims, rank);
    builder->initialisers[builder->graph.n_initializer++] = tensor;
    return tensor;
}

static void
split(struct builder *builder, const char *names, char ***ret, size_t *ret_count)
{
    char **list = builder_alloc(builder, (strlen(names) + 1) * sizeof(*list));
    size_t count = 0;

    for (const char *at = names; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        list[count++] = copy_text(builder, at, length == 1 && at[0] == '-' ? 0 : length);
        at += length + (at[length] == ' ');
    }
    *ret = list;
    *ret_count = count;
}

Onnx__NodeProto *
builder_node(struct builder *builder, const char *op, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *node = builder_alloc(builder, sizeof(*node));

    onnx__node_proto__init(node);
    node->op_type = copy_text(builder, op, strlen(op));
    split(builder, inputs, &node->input, &node->n_input);
    split(builder, outputs, &node->output, &node->n_output);
    node->attribute = builder_alloc(builder, 8 * sizeof(*node->attribute));
    LEAT_ASSERT(builder->graph.n_node < BUILDER_MAX);
    builder->nodes[builder->graph.n_node++] = node;
    return node;
}

static Onnx__AttributeProto *
make_attribute(struct builder *builder, const char *name, Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = builder_alloc(builder, sizeof(*attribute));
    onnx__attribute_proto__init(attribute);
    attribute->name = copy_text(builder, name, strlen(name));
    attribute->has_type = 1;
    attribute->type = type;
    return attribute;
}

static Onnx__AttributeProto *
add_attribute(struct builder *builder, Onnx__NodeProto *node, const char *name,
              Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = make_attribute(builder, name, type);
    LEAT_ASSERT(node->n_attribute < 8);
    node->attribute[node->n_attribute++] = attribute;
    return attribute;
}

Onnx__AttributeProto *
builder_int(struct builder *builder, Onnx__NodeProto *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute =
        add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = 1;
    attribute->i = value;
    return attribute;
}

Onnx__AttributeProto *
builder_float(struct builder *builder, Onnx__NodeProto *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute =
        add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = 1;
    attribute->f = value;
    return attribute;
}

Onnx__AttributeProto *
builder_string(struct builder *builder, Onnx__NodeProto *node, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute =
        add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = 1;
    attribute->s.len = strlen(value);
    attribute->s.data = (uint8_t *)copy_text(builder, value, strlen(value));
    return attribute;
}

Onnx__AttributeProto *
builder_ints(struct builder *builder, Onnx__NodeProto *node, const char *name,
             const int64_t *values, size_t count)
{
    Onnx__AttributeProto *attribute =
        add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attribute->n_ints = count;
    attribute->ints = builder_alloc(builder, count * sizeof(*values));
    memcpy(attribute->ints, values, count * sizeof(*values));
    return attribute;
}

void
builder_floats(struct builder *builder, Onnx__NodeProto *node, const char *name, const float *values, size_t count)
{
    Onnx__AttributeProto *attribute = add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);

    attribute->n_floats = count;
    attribute->floats = builder_alloc(builder, count * sizeof(*values));
    memcpy(attribute->floats, values, count * sizeof(*values));
}

void
builder_graph(struct builder *builder, Onnx__NodeProto *node, const char *name, struct builder *inner)
{
    add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = &inner->graph;
}

Onnx__FunctionProto *
builder_function(struct builder *builder, const char *name, const char *inputs, const char *outputs, struct builder *body)
{
    Onnx__FunctionProto *function = builder_alloc(builder, sizeof(*function));

    onnx__function_proto__init(function);
    function->name = copy_text(builder, name, strlen(name));
    function->domain = copy_text(builder, "own", 3);
    split(builder, inputs, &function->input, &function->n_input);
    split(builder, outputs, &function->output, &function->n_output);
    function->node = body->nodes;
    function->n_node = body->graph.n_node;
    function->opset_import = body->opsets;
    function->n_opset_import = 1;
    function->attribute = builder_alloc(builder, 8 * sizeof(*function->attribute));
    function->attribute_proto = builder_alloc(builder, 8 * sizeof(*function->attribute_proto));
    LEAT_ASSERT(builder->model.n_functions < BUILDER_MAX);
    builder->functions[builder->model.n_functions++] = function;
    return function;
}

void
builder_attribute(struct builder *builder, Onnx__FunctionProto *function, const char *name)
{
    LEAT_ASSERT(function->n_attribute < 8);
    function->attribute[function->n_attribute++] = copy_text(builder, name, strlen(name));
}

void
builder_default(struct builder *builder, Onnx__FunctionProto *function, const char *name, float value)
{
    Onnx__AttributeProto *attribute = make_attribute(builder, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = 1;
    attribute->f = value;
    LEAT_ASSERT(function->n_attribute_proto < 8);
    function->attribute_proto[function->n_attribute_proto++] = attribute;
}

Onnx__NodeProto *
builder_call(struct builder *builder, const char *name, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *node = builder_node(builder, name, inputs, outputs);
    node->domain = copy_text(builder, "own", 3);
    return node;
}

void
builder_reference(struct builder *builder, Onnx__NodeProto *node, const char *name, Onnx__AttributeProto__AttributeType type,
                  const char *from)
{
    add_attribute(builder, node, name, type)->ref_attr_name = copy_text(builder, from, strlen(from));
}

void
builder_strings(struct builder *builder, Onnx__NodeProto *node, const char *name, const char *values)
{
    Onnx__AttributeProto *attribute =
        add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
    char **list;

    split(builder, values, &list, &attribute->n_strings);
    attribute->strings = builder_alloc(builder, attribute->n_strings * sizeof(*attribute->strings));
    for (size_t i = 0; i < attribute->n_strings; i++) {
        attribute->strings[i].len = strlen(list[i]);
        attribute->strings[i].data = (uint8_t *)list[i];
    }
}

void *
builder_pack(struct builder *builder, size_t *ret_size)
{
    *ret_size = onnx__model_proto__get_packed_size(&builder->model);
    void *bytes = builder_alloc(builder, *ret_size);
    LEAT_MUST(onnx__model_proto__pack(&builder->model, bytes) == *ret_size);
    return bytes;
}

enum leat_status
builder_import(struct builder *builder, struct leat_graph **ret_graph)
{
    size_t size;
    const void *bytes = builder_pack(builder, &size);
    return leat_onnx_import(bytes, size, ret_graph);
}
