/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/made_inputs.h - what a model is run on where there is no query: to measure it, to warm it up, to inspect it.
 *
 * Role    Beside shapes, it is indices, lengths and counts among a model's inputs that decide how long a run takes: row 0
 *         of a table is always near, sequences of length 0 and loops of no iterations take no time. So indices are from all
 *         over their tables, sequences as long as can be, for objectives have to hold for these, and loops run.
 * Method  Backwards from each look-up, sequence and loop, through what only moves or bounds numbers, and through remainders
 *         by a constant.
 * Claim   None: other operators may make the index of a number, and may mind which it is. A run on such numbers can fail
 *         with LEAT_ERR_SHAPE: then the next filling is tried.
 */
#ifndef LEAT_KERNELS_MADE_INPUTS_H
#define LEAT_KERNELS_MADE_INPUTS_H

#include "kernels/graph.h"

/*
 * What a loop runs whose count is an input: nothing in a file says what queries will ask for. Sixteen outweigh what a loop
 * takes once, and three loops inside each other are within LEAT_TRIPS_MAX.
 */
#define LEAT_MADE_TRIPS 16

/* Of an input: numbers from least to end - 1. An end of 0: nothing is known of it. */
struct leat_made_range {
    int64_t least, end;
};

/*
 * ret_ranges[i] of input i, [graph->input_count]. Of an index: 0 to the least number of rows among the tables that it is
 * one of; of one that goes by its remainder, to the greatest divisor. Of lengths of sequences (sequence_lens of RNN, GRU,
 * LSTM and ReverseSequence): the number of steps, alone. Of a Loop's count: LEAT_MADE_TRIPS, where nothing else is known of
 * it; of its condition: true. Nothing of rows or steps that are not known. Graphs inside nodes are not looked into.
 * LEAT_ERR_NOMEM.
 */
LEAT_MUST_CHECK enum leat_status leat_graph_made_ranges(const struct leat_graph *graph, struct leat_made_range *ret_ranges);

/* What inputs are; where the model refuses it, the next. */
enum leat_filling {
    LEAT_FILLING_DRAWN, /* from their ranges, zeros where nothing is known */
    LEAT_FILLING_ZEROS,
    LEAT_FILLING_ONES,
};
const char *leat_filling_text(enum leat_filling filling);

/*
 * `elements` of an input, of a type that models have. *drawn counts the numbers that were drawn so far; number n is a hash
 * of n, so that those who begin with 0 get the same.
 */
void leat_made_fill(enum leat_filling filling, uint32_t dtype, struct leat_made_range range, size_t elements,
                    uint64_t *drawn, void *ret_elements);

#endif /* LEAT_KERNELS_MADE_INPUTS_H */
