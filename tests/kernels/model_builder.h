/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/kernels/model_builder.h - ONNX models in a few lines, right or deliberately wrong.
 *
 * Ownership  Everything that a builder hands out dies with builder_fini(). Tests may write to the
 *            messages that they get before they pack.
 * Names      Lists of names are separated by blanks; "-" stands for an omitted one.
 */
#ifndef LEAT_TEST_MODEL_BUILDER_H
#define LEAT_TEST_MODEL_BUILDER_H

#include <onnx.pb-c.h>

#include "kernels/graph.h"

#define BUILDER_MAX 512u

struct builder {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset;
    Onnx__OperatorSetIdProto *opsets[1];
    Onnx__NodeProto *nodes[BUILDER_MAX];
    Onnx__TensorProto *initialisers[BUILDER_MAX];
    Onnx__ValueInfoProto *inputs[BUILDER_MAX];
    Onnx__ValueInfoProto *outputs[BUILDER_MAX];
    Onnx__FunctionProto *functions[BUILDER_MAX];
    void **blocks;
    size_t block_count;
};

#define DIMS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

void builder_init(struct builder *builder, int64_t opset);
void builder_fini(struct builder *builder);
void *builder_alloc(struct builder *builder, size_t bytes); /* zeroed */

/* Negative dims become symbolic ones: -1 is "N", -2 is "M", then "D3" and so on. `type` is an ONNX type, 1 for f32, 7 for i64. */
Onnx__ValueInfoProto *builder_input(struct builder *builder, const char *name, int type,
                                    const int64_t *dims, size_t rank);
void builder_output(struct builder *builder, const char *name);
/* Raw data; `data` may be NULL for zeros. */
Onnx__TensorProto *builder_constant(struct builder *builder, const char *name, int type,
                                    const void *data, const int64_t *dims, size_t rank);
Onnx__TensorProto *builder_tensor(struct builder *builder, const char *name, int type,
                                  const void *data, const int64_t *dims, size_t rank);
Onnx__NodeProto *builder_node(struct builder *builder, const char *op, const char *inputs,
                              const char *outputs);
Onnx__AttributeProto *builder_int(struct builder *builder, Onnx__NodeProto *node, const char *name,
                                  int64_t value);
Onnx__AttributeProto *builder_float(struct builder *builder, Onnx__NodeProto *node, const char *name,
                                    float value);
Onnx__AttributeProto *builder_string(struct builder *builder, Onnx__NodeProto *node, const char *name,
                                     const char *value);
Onnx__AttributeProto *builder_ints(struct builder *builder, Onnx__NodeProto *node, const char *name,
                                   const int64_t *values, size_t count);

/* The graph of another builder, which must live as long. */
void builder_graph(struct builder *builder, Onnx__NodeProto *node, const char *name, struct builder *inner);

/* A function of domain "own" with the nodes of another builder, which must live as long. */
Onnx__FunctionProto *builder_function(struct builder *builder, const char *name, const char *inputs, const char *outputs,
                                      struct builder *body);
void builder_attribute(struct builder *builder, Onnx__FunctionProto *function, const char *name); /* 8 at most */
void builder_default(struct builder *builder, Onnx__FunctionProto *function, const char *name, float value); /* likewise */
Onnx__NodeProto *builder_call(struct builder *builder, const char *name, const char *inputs, const char *outputs);
/* An attribute of the node that is what its function's attribute `from` is. */
void builder_reference(struct builder *builder, Onnx__NodeProto *node, const char *name,
                       Onnx__AttributeProto__AttributeType type, const char *from);

/* Separated by blanks. */
void builder_strings(struct builder *builder, Onnx__NodeProto *node, const char *name, const char *values);
void builder_floats(struct builder *builder, Onnx__NodeProto *node, const char *name, const float *values, size_t count);

/* Bytes of the file; freed with the builder. */
void *builder_pack(struct builder *builder, size_t *ret_size);
enum leat_status builder_import(struct builder *builder, struct leat_graph **ret_graph);

#endif /* LEAT_TEST_MODEL_BUILDER_H */
