/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/einsum.h - the equation of an Einsum node against the shapes of its operands.
 *
 * Shapes   Every axis of an operand or of the result carries a label. The result is the sum of the products of the
 *          operands' elements over all labels that it does not carry itself. The axes that an ellipsis stands for
 *          have labels of their own, which are broadcast.
 */
#ifndef LEAT_KERNELS_EINSUM_H
#define LEAT_KERNELS_EINSUM_H

#include "kernels/op.h"

#define LEAT_EINSUM_OPERANDS_MAX 8u
#define LEAT_EINSUM_LETTERS      52u
#define LEAT_EINSUM_LABELS       (LEAT_EINSUM_LETTERS + LEAT_RANK_MAX)

/* Products in all: a file of 100 bytes must not run for years. */
#define LEAT_EINSUM_WORK_MAX (UINT64_C(1) << 48)

struct leat_einsum {
    int64_t size[LEAT_EINSUM_LABELS]; /* 0 or symbolic too; 1 of labels that nothing carries */
    bool carried[LEAT_EINSUM_LABELS]; /* by some operand */
    uint8_t labels[LEAT_EINSUM_OPERANDS_MAX][LEAT_RANK_MAX]; /* of each operand's axes */
    uint8_t output[LEAT_RANK_MAX];
    uint32_t output_rank;
    bool mixes_items; /* the batch is summed over, or meets another axis */
};

LEAT_MUST_CHECK enum leat_status leat_einsum_of(const struct leat_graph *graph, const struct leat_node *node,
                                                struct leat_einsum *ret);

#endif /* LEAT_KERNELS_EINSUM_H */
