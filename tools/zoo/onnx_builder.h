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

#include "base/status.h"

#define ONNX_OPSET       13
#define ONNX_IR_VERSION  7 /* the one that came with operator set 13 */
#define ONNX_BATCH       INT64_C(-1)
#define ONNX_RANK_MAX    4u
#define ONNX_NODE_INPUTS 6u

enum onnx_type { ONNX_TYPE_F32 = 1, ONNX_TYPE_I64 = 7 }; /* values of TensorProto.DataType */

/* A value of the graph as the layers see it. */
struct onnx_tensor {
    const char *name;
    uint32_t rank;
    int64_t dims[ONNX_RANK_MAX]; /* dims[0] is ONNX_BATCH */
    double power;                /* estimate of the variance of its elements, for sane weights */
};

struct onnx_builder;
struct onnx_node;

enum onnx_weights {
    ONNX_WEIGHTS_DRAWN,  /* a file that can be run */
    ONNX_WEIGHTS_ABSENT, /* the figures of onnx_builder_summary() without the cost; cannot be packed */
};

LEAT_MUST_CHECK enum leat_status onnx_builder_create(const char *graph_name, uint64_t seed,
                                                     enum onnx_weights weights,
                                                     struct onnx_builder **ret_builder);
void onnx_builder_destroy(struct onnx_builder *builder); /* accepts NULL */

/* What stands before every name that follows, with a dot between; "" for nothing. */
void onnx_builder_scope(struct onnx_builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* dims are those of one item: the batch dimension comes before them. */
struct onnx_tensor onnx_builder_input(struct onnx_builder *builder, const char *name, enum onnx_type type,
                                      const int64_t *dims, uint32_t rank);

/* Makes x, the result of a node, an f32 output of the graph under that name. */
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
const char *onnx_builder_integers(struct onnx_builder *builder, const char *name, const int64_t *values,
                                  uint32_t count);

/* A node with one output, named like the node with ".out" added; its attributes follow. */
struct onnx_node *onnx_builder_node(struct onnx_builder *builder, const char *op, const char *name,
                                    const char *const *inputs, uint32_t input_count);
const char *onnx_node_output(const struct onnx_node *node);
void onnx_node_int(struct onnx_node *node, const char *name, int64_t value);
void onnx_node_float(struct onnx_node *node, const char *name, float value);
void onnx_node_ints(struct onnx_node *node, const char *name, const int64_t *values, uint32_t count);

/* Multiply-adds of one item that a layer causes, for the summary. */
void onnx_builder_count(struct onnx_builder *builder, int64_t multiply_adds);

struct onnx_port {
    const char *name;
    enum onnx_type type;
    uint32_t rank;
    int64_t dims[ONNX_RANK_MAX];
};

struct onnx_summary {
    uint64_t parameters;    /* elements of f32 constants of rank 1 and more */
    uint64_t flop_per_item; /* two per multiply-add of Conv and Gemm */
    uint32_t input_count, output_count;
    struct onnx_port inputs[4], outputs[4];
};

/* Names are the builder's. */
void onnx_builder_summary(const struct onnx_builder *builder, struct onnx_summary *ret_summary);

/* The finished file, to be freed with free(). LEAT_ERR_NOMEM when memory ran out here or before. */
LEAT_MUST_CHECK enum leat_status onnx_builder_pack(struct onnx_builder *builder, void **ret_bytes,
                                                   size_t *ret_size);

#endif /* LEAT_TOOLS_ZOO_ONNX_BUILDER_H */
