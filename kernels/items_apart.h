/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/items_apart.h - the proof that the items of a batch do not touch each other.
 *
 * Role    Queries of different clients share batches. A graph passes where the answer for an item is made of that item
 *         alone, whoever else is there, how many they are and where among them it is: in batches of 1..LEAT_ITEMS_MAX.
 * Method  Two copies for different numbers of items tell which dims are the same and which are multiples of that number.
 *         With these marked, inference reports operators that combine values along the batch. What is computed from the
 *         number itself is followed (kernels/batch_size.h): it may say shapes, and what cannot be followed may say
 *         nothing. Graphs inside nodes go through the same, as the two copies have them. What is not proved does not pass.
 * Claim   By induction over nodes, for every number of items: a value of role APART has dims that are each the same in all
 *         batches, or the same multiple of the number. Along the latter, equal parts belong to the items in their order,
 *         and depend on their item alone. There is one such axis at most, as elements of two items would be an item's own
 *         no more. Only the places of maxima, from MaxPool to MaxUnpool, count from the first item of all.
 */
#ifndef LEAT_KERNELS_ITEMS_APART_H
#define LEAT_KERNELS_ITEMS_APART_H

#include "kernels/graph_build.h"

/* `a` and `b` are `graph` for different numbers of items. LEAT_ERR_UNSUPPORTED names the node that is in the way. */
LEAT_MUST_CHECK enum leat_status leat_items_apart(const struct leat_graph *graph,
                                                  const struct leat_graph *a,
                                                  const struct leat_graph *b);

#endif /* LEAT_KERNELS_ITEMS_APART_H */
