/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/entries.h - elements of small integer tensors that shapes decide, of which some may be known and some not.
 *
 * Role    Files compute sizes, targets of Reshape and conditions of If from the Shape of what they are given. While a dimension
 *         is free, such a tensor is no constant, though most of its elements may be known.
 * Method  Backwards from the value that is asked for, through what moves integers, computes with them or compares them, up to
 *         constants and Shapes.
 * Claim   An entry is what every run that gets there has in its place, for all numbers of items and all sizes of free
 *         dimensions. The batch, symbols, upper bounds and payload are open, and so is what an operator makes of something
 *         open or does not make without failing or wrapping around.
 */
#ifndef LEAT_KERNELS_ENTRIES_H
#define LEAT_KERNELS_ENTRIES_H

#include "kernels/graph_build.h"

#define LEAT_ENTRY_OPEN INT64_MIN

/* Of an i64, i32 or bool vector, or of a scalar. A bool is 0 or 1. */
struct leat_entries {
    uint32_t count;
    int64_t at[LEAT_RANK_MAX];
};

/* Which node makes value v < count; UINT32_MAX: none. What came later are constants. */
struct leat_producers {
    const uint32_t *node;
    uint32_t count;
};

/* False when not even their number is known. */
bool leat_entries_of(const struct leat_graph *graph, struct leat_producers producers, uint32_t value,
                     struct leat_entries *ret);

/* Makes a constant of what an inferred node yields where all of it is known: then the node is to go. */
LEAT_MUST_CHECK enum leat_status leat_entries_fold(struct leat_graph *graph, struct leat_producers producers,
                                                   const struct leat_node *node, bool *ret_folded);

#endif /* LEAT_KERNELS_ENTRIES_H */
