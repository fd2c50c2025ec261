/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/batch_size.h - numbers that a graph computes from how many items a batch has.
 *
 * Role    For the proof that items do not touch each other (kernels/items_apart.h). Graphs compute the shapes that they
 *         ask for from the Shape of what they are given. Such a tensor is followed as long as each element of it is a
 *         line, base + per * items, for every number of items: two copies of the graph then tell base and per.
 * Method  By induction over nodes. An element is a line where an operator only moves lines, or computes one from lines
 *         without a remainder, a rounding or an overflow, or compares two with the same outcome, for all of
 *         1..LEAT_ITEMS_MAX items. Nothing else is followed: N % 2, min(N, 4), N > 8 and N / 8 are no lines, though two
 *         copies might not tell.
 */
#ifndef LEAT_KERNELS_BATCH_SIZE_H
#define LEAT_KERNELS_BATCH_SIZE_H

#include "kernels/graph_build.h"

/* What is known of a value for all numbers of items. */
enum leat_batch_role {
    LEAT_BATCH_APART,   /* an item's own, or the same for each item and in each batch */
    LEAT_BATCH_NUMBERS, /* lines, some of which rise or fall; its shape is the same in each batch */
    LEAT_BATCH_OTHER,   /* not known */
};

/*
 * Copies `a` and `b` of `marked` are specialised for different numbers of items. `marked` has what its values' dims are in
 * them: a number, or LEAT_DIM_BATCH. roles[v] is of its value v.
 */
struct leat_batch_probe {
    struct leat_graph *marked;
    const struct leat_graph *a, *b;
    enum leat_batch_role *roles;
};

/* How many elements along an axis, or the numbers, are: base + per * items. */
struct leat_batch_line {
    bool is_constant; /* the same in both copies; it may be no whole number then */
    bool is_whole;    /* base and per are known, and all of its numbers are exact in its type */
    int64_t base, per;
};

/* Element i of a value with APART or NUMBERS. False when that is not known, or it is no number. */
bool leat_batch_line_at(const struct leat_batch_probe *probe, uint32_t value, size_t i,
                        struct leat_batch_line *ret);

/* Whole, and at least `least` for every number of items. */
bool leat_batch_line_reaches(const struct leat_batch_line *line,
                             const struct leat_batch_line *least);

/* Of the output of a node that both copies have computed, from NUMBERS among others. */
enum leat_batch_role leat_batch_compute(const struct leat_batch_probe *probe,
                                        const struct leat_node *node);

/* Of the Shape or Size of an input that has the batch among its axes. */
enum leat_batch_role leat_batch_describe(const struct leat_batch_probe *probe,
                                         const struct leat_node *node);

#endif /* LEAT_KERNELS_BATCH_SIZE_H */
