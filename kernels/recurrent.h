/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/recurrent.h - the geometry of an RNN, GRU or LSTM node.
 *
 * Shapes   x f32[steps][batch][input], W f32[directions][gates * hidden][input], R f32[directions][gates *
 *          hidden][hidden]; batch_first swaps the first two axes of x, y and the states.
 */
#ifndef LEAT_KERNELS_RECURRENT_H
#define LEAT_KERNELS_RECURRENT_H

#include "kernels/op.h"

/* Functions of gates and states. */
enum leat_recurrent_function {
    LEAT_RECURRENT_SIGMOID,
    LEAT_RECURRENT_TANH,
    LEAT_RECURRENT_RELU,
    LEAT_RECURRENT_HARD_SIGMOID,
    LEAT_RECURRENT_SOFTSIGN,
    LEAT_RECURRENT_AFFINE,
    LEAT_RECURRENT_ELU,
    LEAT_RECURRENT_LEAKY_RELU,
    LEAT_RECURRENT_SCALED_TANH,
    LEAT_RECURRENT_SOFTPLUS,
    LEAT_RECURRENT_THRESHOLDED_RELU,
};

struct leat_recurrent {
    uint32_t gates;      /* 1 of an RNN, 3 of a GRU, 4 of an LSTM */
    uint32_t directions; /* 1 or 2: the second one runs backwards */
    bool reverse;        /* the only one runs backwards */
    bool batch_first;
    enum leat_recurrent_function functions[2][3]; /* f, g and h of each direction, as many as the operator has */
    float alpha[2][3], beta[2][3]; /* of functions that take them */
    int64_t steps, batch, input, hidden; /* hidden is known; the others may be symbolic */
};

LEAT_MUST_CHECK enum leat_status leat_recurrent_of(const struct leat_graph *graph,
                                                   const struct leat_node *node,
                                                   struct leat_recurrent *ret);

#endif /* LEAT_KERNELS_RECURRENT_H */
