/* SPDX-License-Identifier: Apache-2.0 */
/* tools/zoo/onnx_parts.h - what a builder is made of; for its own files only. */
#ifndef LEAT_TOOLS_ZOO_ONNX_PARTS_H
#define LEAT_TOOLS_ZOO_ONNX_PARTS_H

#include <stdio.h>

#include <onnx.pb-c.h>

#include "tools/zoo/onnx_builder.h"

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
static inline char *
text(const char *constant)
{
    union {
        const char *from;
        char *to;
    } cast = {.from = constant};
    return cast.to;
}

static inline void
compose_name(const struct onnx_builder *builder, const char *name, char ret[NAME_BYTES])
{
    const int length = snprintf(ret, NAME_BYTES, "%s%s%s", builder->scope, builder->scope[0] ? "." : "", name);
    LEAT_ASSERT(length > 0 && length < NAME_BYTES);
}

/* The body that is being built; NULL outside of one. */
static inline struct onnx_body *
open_body(struct onnx_builder *builder)
{
    return builder->body.begun && !builder->body.ended ? &builder->body : NULL;
}

#endif /* LEAT_TOOLS_ZOO_ONNX_PARTS_H */
