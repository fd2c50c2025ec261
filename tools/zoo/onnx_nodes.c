/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and their attributes. */
#include <string.h>

#include "tools/zoo/onnx_parts.h"

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
    struct onnx_body *body = open_body(builder);
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

/* A tensor of integers of rank 1, or of rank 0 where count is 0. */
static void
set_integers(struct onnx_node *node, const char *name, const int64_t *values, uint32_t count)
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
    set_integers(node, "value", values, count);
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
onnx_node_body(struct onnx_node *node, const char *name, struct onnx_body *body)
{
    add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)->g = &body->graph;
}
