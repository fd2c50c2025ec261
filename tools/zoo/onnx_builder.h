/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/zoo/onnx_builder.h - collects inputs, constants, nodes and outputs, and packs them into an ONNX file.
 *
 * Role       The messages only; tools/zoo/layers.h says what a convolution or a normalisation is.
 * Ownership  Names and handles live in the builder and die with it. The caller frees what pack returns.
 * Numerics   Weights come from splitmix64 and exact IEEE operations, drawn in the order of the calls: the
 *            same calls with the same seed give the same bytes on every host.
 * Failure    Running out of memory is remembered and reported by onnx_builder_pack(); the calls between
 *            go on and do nothing harmful. Graphs beyond the limits below are this program's own bug.
 */
#ifndef LEAT_TOOLS_ZOO_ONNX_BUILDER_H
#define LEAT_TOOLS_ZOO_ONNX_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define ONNX_OPSET        13           /* unless onnx_builder_opset() says otherwise */
#define ONNX_BATCH        INT64_C(-1)  /* the first of the symbols */
#define ONNX_RANK_MAX     6u
#define ONNX_NODE_INPUTS  48u
#define ONNX_NODE_OUTPUTS 4u
#define ONNX_FILE_MAX     INT32_MAX /* bytes that readers of the format take */
#define ONNX_DATA_ALIGN   4096      /* where constants begin in a file of their own, so that it can be mapped */

/* Values of TensorProto.DataType. */
enum onnx_type { ONNX_TYPE_F32 = 1, ONNX_TYPE_I32 = 6, ONNX_TYPE_I64 = 7, ONNX_TYPE_BOOL = 9 };

/* A value of the graph as the layers see it. */
struct onnx_tensor {
    const char *name;
    uint32_t rank;
    int64_t dims[ONNX_RANK_MAX]; /* negative: a symbol, mostly dims[0] == ONNX_BATCH */
    double power;                /* estimate of the variance of its elements, for sane weights */
};

struct onnx_builder;
struct onnx_node;
struct onnx_body;

enum onnx_weights {
    ONNX_WEIGHTS_DRAWN,  /* a file that can be run */
    ONNX_WEIGHTS_ABSENT, /* the same graph at no cost: constants that are drawn have a shape but no data */
};

LEAT_MUST_CHECK enum leat_status onnx_builder_create(const char *graph_name, uint64_t seed,
                                                     enum onnx_weights weights,
                                                     struct onnx_builder **ret_builder);
void onnx_builder_destroy(struct onnx_builder *builder); /* accepts NULL */

/* What stands before every name that follows, with a dot between; "" for nothing. */
void onnx_builder_scope(struct onnx_builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The operator set, before the first node; the IR version follows it. */
void onnx_builder_opset(struct onnx_builder *builder, int64_t version);
int64_t onnx_builder_opset_version(const struct onnx_builder *builder);

/*
 * A dimension that the file leaves open, such as the length of a sequence. The figures of the summary are
 * for its nominal extent. onnx_builder_extent() is that, or what it was given where that is no symbol.
 */
int64_t onnx_builder_symbol(struct onnx_builder *builder, const char *name, int64_t nominal);
int64_t onnx_builder_extent(const struct onnx_builder *builder, int64_t dim);

/* f32, or i64 indices from 0 to end - 1. dims are those of one item: the batch dimension comes before them. */
struct onnx_tensor onnx_builder_input(struct onnx_builder *builder, const char *name, const int64_t *dims,
                                      uint32_t rank);
struct onnx_tensor onnx_builder_indices(struct onnx_builder *builder, const char *name, const int64_t *dims,
                                        uint32_t rank, int64_t end);

/* Makes x, the result of a node, an f32 output of the graph under that name, wherever it is used. */
void onnx_builder_output(struct onnx_builder *builder, struct onnx_tensor x, const char *name);

/* f32 constants: approximately normal (four uniforms added), and uniform in [low, high). */
const char *onnx_builder_normal(struct onnx_builder *builder, const char *name, const int64_t *dims,
                                uint32_t rank, double mean, double deviation);
const char *onnx_builder_uniform(struct onnx_builder *builder, const char *name, const int64_t *dims,
                                 uint32_t rank, double low, double high);
/* Normal, and every row (the elements under one index of dims[0]) adds up to zero. */
const char *onnx_builder_filters(struct onnx_builder *builder, const char *name, const int64_t *dims,
                                 uint32_t rank, double deviation);
const char *onnx_builder_scalar(struct onnx_builder *builder, const char *name, float value);
/* Given values. Floats are what a framework calls a buffer: they do not count as parameters. */
const char *onnx_builder_floats(struct onnx_builder *builder, const char *name, const float *values,
                                const int64_t *dims, uint32_t rank);
const char *onnx_builder_integers(struct onnx_builder *builder, const char *name, const int64_t *values,
                                  uint32_t count);
const char *onnx_builder_integer_table(struct onnx_builder *builder, const char *name, const int64_t *values,
                                       const int64_t *dims, uint32_t rank);

/*
 * A node with one output, named like the node with ".out" added; its attributes follow. An input that is NULL
 * is omitted. Further outputs have their number behind ".out".
 */
struct onnx_node *onnx_builder_node(struct onnx_builder *builder, const char *op, const char *name,
                                    const char *const *inputs, uint32_t input_count);
struct onnx_node *onnx_builder_node_outputs(struct onnx_builder *builder, const char *op, const char *name,
                                            const char *const *inputs, uint32_t input_count,
                                            uint32_t output_count);
const char *onnx_node_output(const struct onnx_node *node);
const char *onnx_node_output_at(const struct onnx_node *node, uint32_t index);
void onnx_node_int(struct onnx_node *node, const char *name, int64_t value);
void onnx_node_float(struct onnx_node *node, const char *name, float value);
void onnx_node_ints(struct onnx_node *node, const char *name, const int64_t *values, uint32_t count);
void onnx_node_string(struct onnx_node *node, const char *name, const char *value); /* value is a literal */
/* A tensor, at most one for each node: an f32 of rank 0 or 1. */
void onnx_node_scalar(struct onnx_node *node, const char *name, float value, uint32_t rank);

/* A Constant node and its output: integers of rank 1, or of rank 0 where count is 0; an f32 of rank 0; f32[0]. */
const char *onnx_builder_constant_integers(struct onnx_builder *builder, const char *name,
                                           const int64_t *values, uint32_t count);
const char *onnx_builder_constant_float(struct onnx_builder *builder, const char *name, float value);
const char *onnx_builder_constant_empty(struct onnx_builder *builder, const char *name);

/*
 * The body of a Scan or Loop: from begin to end, nodes, inputs and outputs are those of the body. Names of the
 * graph around it may be used. dims of its f32 inputs are complete.
 */
void onnx_builder_body_begin(struct onnx_builder *builder, const char *name);
struct onnx_tensor onnx_builder_body_input(struct onnx_builder *builder, const char *name,
                                           const int64_t *dims, uint32_t rank);
struct onnx_body *onnx_builder_body_end(struct onnx_builder *builder);
void onnx_node_body(struct onnx_node *node, const char *name, struct onnx_body *body);

/* Multiply-adds of one item that a layer causes, for the summary. */
void onnx_builder_count(struct onnx_builder *builder, int64_t multiply_adds);

/* That many of the drawn elements are no parameters. */
void onnx_builder_discount(struct onnx_builder *builder, int64_t elements);

struct onnx_port {
    const char *name;
    enum onnx_type type;
    uint32_t rank;
    int64_t dims[ONNX_RANK_MAX]; /* negative: symbol -1 - dims[d] */
    int64_t end;                 /* of indices */
};

struct onnx_symbol {
    const char *name;
    int64_t nominal;
};

struct onnx_summary {
    uint64_t parameters; /* learned: drawn elements less the discounted */
    uint64_t constant_bytes;
    uint64_t flop_per_item; /* two per multiply-add of convolutions, matrix products and recurrences */
    int64_t opset;
    uint32_t node_count;
    uint32_t input_count, output_count, symbol_count;
    struct onnx_port inputs[6], outputs[6];
    struct onnx_symbol symbols[6]; /* the first is the batch, of 1 */
};

/* Names are the builder's. */
void onnx_builder_summary(const struct onnx_builder *builder, struct onnx_summary *ret_summary);

/*
 * The finished file, to be freed with free(). LEAT_ERR_NOMEM when memory ran out here or before, LEAT_ERR_LIMIT
 * when it would be larger than ONNX_FILE_MAX.
 */
LEAT_MUST_CHECK enum leat_status onnx_builder_pack(struct onnx_builder *builder, void **ret_bytes,
                                                   size_t *ret_size);
/*
 * The same with the large constants written to `data`, an empty file which readers will find under the name
 * `location` beside the model. The builder can only be destroyed afterwards.
 */
LEAT_MUST_CHECK enum leat_status onnx_builder_pack_external(struct onnx_builder *builder, const char *location,
                                                            FILE *data, void **ret_bytes, size_t *ret_size);

#endif /* LEAT_TOOLS_ZOO_ONNX_BUILDER_H */
