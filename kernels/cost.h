/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cost.h - what a node of a specialised graph computes and moves, from its shapes alone.
 *
 * Units    FLOP: two per multiply-add of convolutions, matrix products, Einsums and recurrences; else one for each element
 *          that is computed, read by a reduction or under the window of a pool; none where elements are only moved.
 *          Bytes: of all operands and results, once; of tables only what is read; none where a result is its operand in
 *          another shape.
 */
#ifndef LEAT_KERNELS_COST_H
#define LEAT_KERNELS_COST_H

#include "kernels/graph.h"

struct leat_cost {
    uint64_t product_flop; /* of multiply-adds */
    uint64_t other_flop;
    uint64_t bytes;
};

/* Saturates at UINT64_MAX. All shapes are known. */
struct leat_cost leat_node_cost(const struct leat_graph *graph, const struct leat_node *node);

/*
 * Of all nodes in one run, both kinds of FLOP: what is in a loop as often as that may run, and both branches where tensor
 * contents decide. Saturates likewise.
 */
uint64_t leat_graph_flop(const struct leat_graph *graph);

#endif /* LEAT_KERNELS_COST_H */
