/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/passes/passes.h - the rewriting steps that kernels/passes.c lists, one file each.
 *
 * Each leaves a graph that leat_graph_check() accepts and that computes the same results up to
 * rounding, on symbolic and on specialised graphs. Replaced nodes get a NULL op and are swept out before
 * the pass returns; values that nobody reads stay until the dead-code pass.
 */
#ifndef LEAT_KERNELS_PASSES_PASSES_H
#define LEAT_KERNELS_PASSES_PASSES_H

#include "kernels/graph_build.h"
#include "kernels/op.h"

#define LEAT_PASS_FUNCTION(name) \
    enum leat_status leat_pass_##name(struct leat_graph *graph, bool *ret_changed)
LEAT_PASS_FUNCTION(fold_constants);
LEAT_PASS_FUNCTION(fold_shapes);
LEAT_PASS_FUNCTION(split_einsums);
LEAT_PASS_FUNCTION(remove_identities);
LEAT_PASS_FUNCTION(shift_quantised);
LEAT_PASS_FUNCTION(fuse_quantised);
LEAT_PASS_FUNCTION(fold_dequantised);
LEAT_PASS_FUNCTION(fuse_integers);
LEAT_PASS_FUNCTION(fuse_layer_norm);
LEAT_PASS_FUNCTION(fuse_gelu);
LEAT_PASS_FUNCTION(fuse_swish);
LEAT_PASS_FUNCTION(fuse_embedding);
LEAT_PASS_FUNCTION(fuse_attention);
LEAT_PASS_FUNCTION(sink_transposes);
LEAT_PASS_FUNCTION(merge_transposes);
LEAT_PASS_FUNCTION(fold_batch_norm);
LEAT_PASS_FUNCTION(fold_bias);
LEAT_PASS_FUNCTION(fuse_add);
LEAT_PASS_FUNCTION(fuse_activation);
LEAT_PASS_FUNCTION(remove_dead_code);

/* An Einsum of f32 with nothing fused onto it, none of whose sizes a run decides. */
bool leat_einsum_is_free(const struct leat_graph *graph, const struct leat_node *node);
/* Einsums of several operands become such of two, and of one where that is summed over alone (contract.c). */
LEAT_MUST_CHECK enum leat_status leat_einsum_contract(struct leat_graph *graph, bool *ret_changed);

/* What passes look up again and again. Values made after it are constants: nothing produces them. */
struct leat_pass_index {
    uint32_t count;
    uint32_t *uses;     /* per value: how often it is read, graph outputs included */
    uint32_t *producer; /* per value: node index, or UINT32_MAX */
};
LEAT_MUST_CHECK enum leat_status leat_pass_index_create(const struct leat_graph *graph,
                                                        struct leat_pass_index *index);
void leat_pass_index_destroy(struct leat_pass_index *index);

/*
 * The Conv, Gemm, MatMul or MatMulIntegerToFloat node whose first output is `value`, when the value is read exactly once and
 * nothing is fused onto the node that would have to happen before what comes next; NULL otherwise.
 */
struct leat_node *leat_pass_sole_producer(struct leat_graph *graph, const struct leat_pass_index *index,
                                          uint32_t value);

/* `node` takes over the output of `last`, which goes; what it computed before has no reader left. */
void leat_pass_take_output(struct leat_pass_index *index, struct leat_graph *graph,
                           struct leat_node *node, struct leat_node *last);

/* The node of this kind whose first output is `value`, when nothing is fused onto it; NULL otherwise. */
const struct leat_node *leat_pass_producer(const struct leat_graph *graph, const struct leat_pass_index *index,
                                           uint32_t value, enum leat_op_kind kind);

/* An Add or Mul with a constant of one element: true when it is `wanted`, or nearly; *ret_other is the other operand. */
bool leat_pass_has_scalar(const struct leat_graph *graph, const struct leat_node *node, double wanted, uint32_t *ret_other);

/* A constant of one element, and of no more axes than others have, that is within 1e-5 |wanted| of `wanted`. */
bool leat_pass_is_scalar(const struct leat_graph *graph, uint32_t value, double wanted);

/*
 * `last` becomes `op` with these inputs and attributes and keeps its first output; what it read goes where nobody
 * else reads it.
 */
LEAT_MUST_CHECK enum leat_status
leat_pass_replace(struct leat_graph *graph, struct leat_pass_index *index, struct leat_node *last,
                  const struct leat_op *op, const uint32_t *inputs, uint32_t input_count,
                  const struct leat_attribute *attributes, uint32_t attribute_count);

/* For a pass that looks at one node after the other: *ret_done where `rewrite` made something else of it. */
typedef enum leat_status (*leat_pass_rewrite)(struct leat_graph *graph, struct leat_pass_index *index,
                                              struct leat_node *node, bool *ret_done);
LEAT_MUST_CHECK enum leat_status leat_pass_each(struct leat_graph *graph, leat_pass_rewrite rewrite,
                                                bool *ret_changed);

/* Transposes that change nothing go. */
LEAT_MUST_CHECK enum leat_status leat_pass_remove_transposes(struct leat_graph *graph, bool *ret_changed);

/* Sets input i, lengthening the list with omitted inputs when needed. */
LEAT_MUST_CHECK enum leat_status leat_pass_set_input(struct leat_graph *graph, struct leat_node *node,
                                                     uint32_t i, uint32_t value);

#endif /* LEAT_KERNELS_PASSES_PASSES_H */
