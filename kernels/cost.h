/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cost.h - what a node of a specialised graph computes and moves, from its shapes alone.
 *
 * Units    FLOP: two per multiply-add of convolutions, matrix products, Einsums, determinants and recurrences; what the passes of
 *          transforms take, which kernels/cpu/loops/fourier.h and the reference functions have alike; else one for each element that is
 *          computed, read by a reduction or under a window, and for each box that another may suppress; none where elements are
 *          only moved.
 *          Bytes: of all operands and results, once; of tables only what is read; none where a result is its operand in
 *          another shape.
 */
#ifndef LEAT_KERNELS_COST_H
#define LEAT_KERNELS_COST_H

#include "kernels/graph.h"

struct leat_cost {
    uint64_t product_flop; /* of multiply-adds and transforms */
    uint64_t other_flop;
    uint64_t bytes;
};

/* Saturates at UINT64_MAX. All shapes are known. */
struct leat_cost leat_node_cost(const struct leat_graph *graph, const struct leat_node *node);

enum {
    LEAT_WORK_OF_LOOPS = 64, /* a FLOP that is no product's, or of a product that plain loops make */
    LEAT_WORK_OF_BYTES = 8,  /* a byte that is only moved */
};

/*
 * What one run takes, in FLOP of products that would take as long, roughly: what is in a loop counts as often as that may run,
 * and both branches where tensor contents decide. Saturates likewise.
 */
uint64_t leat_graph_work(const struct leat_graph *graph);

#endif /* LEAT_KERNELS_COST_H */
