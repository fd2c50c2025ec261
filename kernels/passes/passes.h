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

/* What passes look up again and again; valid until the graph gets more values. */
struct leat_pass_index {
    uint32_t *uses;     /* per value: how often it is read */
    uint32_t *producer; /* per value: node index, or UINT32_MAX */
    uint32_t *reader;   /* per value: the last node that reads it as an input, or UINT32_MAX */
};
LEAT_MUST_CHECK enum leat_status leat_pass_index_create(const struct leat_graph *graph,
                                                        struct leat_pass_index *index);
void leat_pass_index_destroy(struct leat_pass_index *index);

#endif /* LEAT_KERNELS_PASSES_PASSES_H */
