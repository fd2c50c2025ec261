/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/batch_size.h - whether answers follow from how many items a batch has, or from where in it an item is.
 *
 * Role   For the proof that items do not touch each other (kernels/signature.c). What a graph computes from
 *        its shapes is constant once the number of items is known. It may say shapes. As a number beside an
 *        item's own it tells of others.
 * Limits What is the same in both copies is not seen to follow: whether there are more than eight, or an even number, say.
 * Words  `a` and `b` are specialised copies of `marked` for different numbers of items, and `marked` has what
 *        its values' dims are in them: a number, or LEAT_DIM_BATCH.
 */
#ifndef LEAT_KERNELS_BATCH_SIZE_H
#define LEAT_KERNELS_BATCH_SIZE_H

#include "kernels/graph_build.h"

/* ret_follows[v]: value v is a constant of both copies, and not the same for each item or each number of items. */
void leat_values_follow_batch(const struct leat_graph *marked, const struct leat_graph *a,
                              const struct leat_graph *b, bool *ret_follows);

/* A node that is left in a copy takes such a constant as more than a shape, or makes one in a run. */
LEAT_MUST_CHECK enum leat_status leat_node_follows_batch(const struct leat_graph *marked,
                                                         const struct leat_node *node,
                                                         const struct leat_graph *a,
                                                         const struct leat_graph *b,
                                                         const bool *follows, bool *ret_follows);

#endif /* LEAT_KERNELS_BATCH_SIZE_H */
