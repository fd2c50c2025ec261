/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/index_ends.h - how many rows the tables have that a model's inputs name rows of.
 *
 * Role    Whoever runs a model without queries, to measure it or to warm it up, gives it indices from all over its
 *         tables: what a look-up takes is decided by where the row is, and row 0 is always near.
 * Method  Backwards from each look-up, through what only moves numbers, and through remainders by a constant.
 * Claim   None: other operators may make the index of a number, and may mind which it is. A run on such numbers can fail.
 */
#ifndef LEAT_KERNELS_INDEX_ENDS_H
#define LEAT_KERNELS_INDEX_ENDS_H

#include "kernels/graph.h"

/*
 * ret_ends[i] of input i, [graph->input_count]: the least number of rows among the tables that it is an index of; of an
 * index that goes by its remainder, the greatest divisor; 0: it is no index, or the rows are not known. Graphs inside nodes
 * are not looked into. LEAT_ERR_NOMEM.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_index_ends(const struct leat_graph *graph, int64_t *ret_ends);

#endif /* LEAT_KERNELS_INDEX_ENDS_H */
