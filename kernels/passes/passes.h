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
LEAT_PASS_FUNCTION(remove_identities);
LEAT_PASS_FUNCTION(fold_batch_norm);
LEAT_PASS_FUNCTION(fold_bias);
LEAT_PASS_FUNCTION(fuse_add);
LEAT_PASS_FUNCTION(fuse_activation);
LEAT_PASS_FUNCTION(remove_dead_code);

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
 * The Conv, Gemm or MatMul node whose first output is `value`, when the value is read exactly once and
 * nothing is fused onto the node that would have to happen before what comes next; NULL otherwise.
 */
struct leat_node *leat_pass_sole_producer(struct leat_graph *graph, const struct leat_pass_index *index,
                                          uint32_t value);

/* `node` takes over the output of `last`, which goes; what it computed before has no reader left. */
void leat_pass_take_output(struct leat_pass_index *index, struct leat_graph *graph,
                           struct leat_node *node, struct leat_node *last);

/* Sets input i, lengthening the list with omitted inputs when needed. */
LEAT_MUST_CHECK enum leat_status leat_pass_set_input(struct leat_graph *graph, struct leat_node *node,
                                                     uint32_t i, uint32_t value);

#endif /* LEAT_KERNELS_PASSES_PASSES_H */
