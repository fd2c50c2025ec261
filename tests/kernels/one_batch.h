/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/kernels/one_batch.h - models of fixed shapes, run as a batch of one item through any backend.
 *
 * Method   Inputs and outputs are exactly as large as the signature says, for the address sanitizer.
 */
#ifndef LEAT_TEST_ONE_BATCH_H
#define LEAT_TEST_ONE_BATCH_H

#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"

enum { ONNX_F32 = 1, ONNX_U8 = 2, ONNX_I8 = 3, ONNX_U16 = 4, ONNX_I16 = 5, ONNX_I32 = 6, ONNX_I64 = 7, ONNX_BOOL = 9, ONNX_F64 = 11 };
enum { ONNX_U32 = 12, ONNX_U64 = 13 };

/* A graph loaded into one backend. */
struct loaded {
    const struct leat_backend *backend;
    struct leat_model_source source;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
    struct leat_team *team; /* NULL: one thread */
};

/* The graph of a builder that is known to be right. */
struct leat_graph *import_graph(struct builder *b);

/* Of a value with known dims: all of it is one item. */
struct leat_tensor_info info_of(const struct leat_value *value);

void load(const struct leat_backend *backend, const struct leat_graph *graph, struct loaded *ret);
void load_for_team(const struct leat_backend *backend, const struct leat_graph *graph, struct leat_team *team,
                   struct loaded *ret);
void unload(struct loaded *loaded);

/* outputs[o] receives output o, filled with 0x5a before. */
enum leat_status run(const struct loaded *loaded, const void *const *inputs, void *const *outputs);

/* How many steps of such nodes the cpu backend leaves to the reference functions. */
uint32_t count_plain_loops(const struct leat_graph *graph, enum leat_op_kind kind);

#endif /* LEAT_TEST_ONE_BATCH_H */
