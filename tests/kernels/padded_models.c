/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/padded_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "tests/leat_test.h"

static const float wide[16] = {0.5f, -1, 0.25f, 2, 1, 0.75f, -0.5f, 1, -2, 1, 0.5f, 0.25f, 1, -1, 1, 0.5f};
static const int64_t zero = 0, one = 1, two = 2, minus_one = -1, hundreds = 1000, all_but_last[2] = {0, -1};

static Onnx__NodeProto *
node(struct builder *b, const char *op, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *made = builder_node(b, op, inputs, outputs);
    made->name = made->output[0];
    return made;
}

static void
scalar(struct builder *b, const char *name, float value)
{
    builder_constant(b, name, 1, &value, NULL, 0);
}

static void
whole(struct builder *b, const char *name, const int64_t *values, int64_t count)
{
    builder_constant(b, name, 7, values, DIMS(count));
}

/* f32 scores[N][M][M] of x, and keys of them that are 1 and 0: f32[N][1][M]. */
static void
scores(struct builder *b)
{
    builder_constant(b, "w", 1, wide, DIMS(4, 4));
    builder_ints(b, node(b, "Transpose", "x", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    node(b, "MatMul", "x w", "queries");
    node(b, "MatMul", "queries turned", "scores");
    builder_ints(b, node(b, "Unsqueeze", "mask", "row"), "axes", &one, 1);
    builder_int(b, node(b, "Cast", "row", "keys"), "to", 1);
}

static void
attend(struct builder *b, const char *from)
{
    builder_int(b, node(b, "Softmax", from, "weights"), "axis", 2);
    node(b, "MatMul", "weights x", "y");
}

static void
add_mask(struct builder *b, float excluded)
{
    scores(b);
    scalar(b, "one", 1);
    scalar(b, "excluded", excluded);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse excluded", "bias");
    node(b, "Add", "scores bias", "masked");
}

static void
bias_of_10000(struct builder *b)
{
    add_mask(b, -10000);
    attend(b, "masked");
}

static void
bias_in_doubles(struct builder *b)
{
    add_mask(b, -10000);
    builder_int(b, node(b, "Cast", "masked", "exact"), "to", 11);
    builder_int(b, node(b, "Softmax", "exact", "shares"), "axis", 2);
    builder_int(b, node(b, "Cast", "shares", "weights"), "to", 1);
    node(b, "MatMul", "weights x", "y");
}

static void
bias_that_is_scaled(struct builder *b)
{
    add_mask(b, -10000);
    scalar(b, "by", 2);
    node(b, "Div", "masked by", "scaled");
    attend(b, "scaled");
}

static void
bias_scaled_away(struct builder *b)
{
    add_mask(b, -10000);
    scalar(b, "by", 1000);
    node(b, "Div", "masked by", "scaled");
    attend(b, "scaled");
}

static void
bias_too_small(struct builder *b)
{
    add_mask(b, -100);
    attend(b, "masked");
}

static void
bias_of_the_others(struct builder *b)
{
    scores(b);
    scalar(b, "excluded", -10000);
    node(b, "Mul", "keys excluded", "bias");
    node(b, "Add", "scores bias", "masked");
    attend(b, "masked");
}

static void
bias_taken_back(struct builder *b)
{
    add_mask(b, -10000);
    node(b, "Sub", "masked bias", "unmasked");
    attend(b, "unmasked");
}

static void
no_bias(struct builder *b)
{
    scores(b);
    attend(b, "scores");
}

static void
replaced_by_infinity(struct builder *b)
{
    scores(b);
    scalar(b, "excluded", -INFINITY);
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts scores excluded", "masked");
    attend(b, "masked");
}

/* As a bias with -inf made ahead, which 0 must not be multiplied by. */
static void
infinite_bias(struct builder *b)
{
    scores(b);
    scalar(b, "excluded", -INFINITY);
    scalar(b, "zero", 0);
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts zero excluded", "bias");
    node(b, "Add", "scores bias", "masked");
    attend(b, "masked");
}

static void
infinite_product(struct builder *b)
{
    add_mask(b, -INFINITY); /* no number where a position counts */
    attend(b, "masked");
}

static void
mask_of_ids(struct builder *b)
{
    scores(b);
    builder_constant(b, "table", 1, wide, DIMS(16, 1));
    node(b, "Gather", "table mask", "rows");
    scalar(b, "excluded", -10000);
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts scores excluded", "masked");
    attend(b, "masked");
    node(b, "Add", "y rows", "sum");
    b->graph.output[0]->name = b->graph.node[b->graph.n_node - 1]->output[0];
}

static void
two_masks(struct builder *b)
{
    add_mask(b, -10000);
    builder_ints(b, node(b, "Unsqueeze", "ids", "other_row"), "axes", &one, 1);
    builder_int(b, node(b, "Cast", "other_row", "other_keys"), "to", 1);
    node(b, "Sub", "one other_keys", "other_inverse");
    node(b, "Mul", "other_inverse excluded", "other_bias");
    node(b, "Add", "masked other_bias", "twice");
    attend(b, "twice");
}

/* Constants that are folded from the length. */
static void
length_of_ids(struct builder *b)
{
    whole(b, "ends", &one, 1);
    node(b, "Shape", "ids", "shape");
    builder_int(b, node(b, "Gather", "shape ends", "length"), "axis", 0);
}

static void
causal(struct builder *b)
{
    scores(b);
    builder_constant(b, "ends", 7, &one, DIMS(1));
    node(b, "Shape", "ids", "shape");
    builder_int(b, node(b, "Gather", "shape ends", "length"), "axis", 0);
    builder_constant(b, "zero", 7, &zero, NULL, 0);
    builder_constant(b, "step", 7, &one, NULL, 0);
    builder_ints(b, node(b, "Squeeze", "length", "last"), "axes", &zero, 1);
    node(b, "Range", "zero last step", "positions");
    builder_ints(b, node(b, "Unsqueeze", "positions", "queried"), "axes", &one, 1);
    node(b, "Less", "queried positions", "later");
    builder_int(b, node(b, "Cast", "later", "later_float"), "to", 1);
    scalar(b, "excluded", -100000);
    node(b, "Mul", "later_float excluded", "bias");
    node(b, "Add", "scores bias", "masked");
    attend(b, "masked");
}

/* Positions later than the query's alone keep their scores: of the last one that counts, none. */
static void
later_ones_chosen(struct builder *b)
{
    causal(b);
    scalar(b, "lowered", -10000);
    node(b, "Where", "later scores lowered", "chosen");
    scalar(b, "one", 1);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse lowered", "penalties");
    node(b, "Add", "chosen penalties", "lower");
    builder_int(b, node(b, "Softmax", "lower", "shares"), "axis", 2);
    node(b, "MatMul", "shares x", "z");
    b->graph.output[0]->name = b->graph.node[b->graph.n_node - 1]->output[0];
}

/* What is added to later positions comes near to the mask only in all. */
static void
raised_twice(struct builder *b, float raised)
{
    const float eight[8] = {0, 0, 0, 0, raised, raised, raised, raised};

    length_of_ids(b);
    whole(b, "from", &zero, 1);
    builder_constant(b, "eight", 1, eight, DIMS(8));
    node(b, "Slice", "eight from length", "later");
    add_mask(b, -2000);
    node(b, "Add", "masked later", "higher");
    node(b, "Add", "higher later", "highest");
    attend(b, "highest");
}

static void
raised_twice_too_far(struct builder *b)
{
    raised_twice(b, 900);
}

static void
raised_twice_a_little(struct builder *b)
{
    raised_twice(b, 100);
}

/* As a table of relative positions with a row for each of many heads: 2^18 elements and more. */
static void
raised_by_a_large_table(struct builder *b)
{
    enum { HEADS = (1 << 15) + 1 };
    float *table = calloc(HEADS, 8 * sizeof(*table));

    EXPECT(table != NULL);
    for (size_t i = 4; i < 8; i++) {
        table[i] = 900;
    }
    length_of_ids(b);
    whole(b, "from", &zero, 1);
    whole(b, "last_axis", &two, 1);
    builder_constant(b, "table", 1, table, DIMS(HEADS, 1, 8));
    free(table);
    node(b, "Slice", "table from length last_axis", "later");
    add_mask(b, -1500);
    builder_ints(b, node(b, "Unsqueeze", "masked", "one_head"), "axes", &one, 1);
    node(b, "Add", "one_head later", "higher");
    builder_int(b, node(b, "Softmax", "higher", "weights"), "axis", 3);
    builder_ints(b, node(b, "Unsqueeze", "x", "of_one_head"), "axes", &one, 1);
    node(b, "MatMul", "weights of_one_head", "y");
}

static void
weights_of_what_is_infinite(struct builder *b)
{
    add_mask(b, -10000);
    builder_int(b, node(b, "Softmax", "masked", "weights"), "axis", 2);
    node(b, "Reciprocal", "x", "values");
    node(b, "MatMul", "weights values", "y");
}

static void
excluded_is_zero(struct builder *b)
{
    builder_ints(b, node(b, "Unsqueeze", "mask", "column"), "axes", &two, 1);
    builder_int(b, node(b, "Cast", "column", "counts"), "to", 1);
    scalar(b, "shift", 3);
    node(b, "Add", "x shift", "shifted");
}

static void
mean_of_counted(struct builder *b)
{
    excluded_is_zero(b);
    node(b, "Mul", "shifted counts", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "sum"), "axes", &one, 1);
    builder_ints(b, node(b, "ReduceSum", "counts", "count"), "axes", &one, 1);
    scalar(b, "least", 1e-9f);
    node(b, "Clip", "count least", "some");
    node(b, "Div", "sum some", "y");
}

static void
chosen_sum(struct builder *b)
{
    excluded_is_zero(b);
    scalar(b, "nothing", 0);
    builder_int(b, node(b, "Cast", "counts", "condition"), "to", 9);
    node(b, "Where", "condition shifted nothing", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "y"), "axes", &one, 1);
}

static void
sum_of_logarithms(struct builder *b)
{
    excluded_is_zero(b);
    node(b, "Log", "x", "logarithms");
    node(b, "Mul", "logarithms counts", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "y"), "axes", &one, 1);
}

static void
sum_of_all(struct builder *b)
{
    excluded_is_zero(b);
    builder_ints(b, node(b, "ReduceSum", "shifted", "y"), "axes", &one, 1);
}

static void
sum_of_zeros(struct builder *b)
{
    builder_ints(b, node(b, "ReduceSum", "x", "y"), "axes", &one, 1);
}

static void
mean(struct builder *b)
{
    builder_ints(b, node(b, "ReduceMean", "x", "y"), "axes", &one, 1);
}

static void
greatest(struct builder *b)
{
    builder_ints(b, node(b, "ReduceMax", "x", "y"), "axes", &one, 1);
}

static void
product_of_positions(struct builder *b)
{
    scalar(b, "shift", 3);
    node(b, "Add", "x shift", "shifted");
    builder_ints(b, node(b, "Transpose", "shifted", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    node(b, "MatMul", "turned shifted", "y");
}

/* x is zeros behind the end. */
static void
product_of_zeros(struct builder *b)
{
    builder_ints(b, node(b, "Transpose", "x", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    node(b, "MatMul", "turned x", "y");
}

static void
window(struct builder *b)
{
    builder_ints(b, node(b, "Transpose", "x", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    builder_constant(b, "w", 1, wide, DIMS(1, 4, 3));
    builder_ints(b, node(b, "Conv", "turned w", "y"), "pads", (const int64_t[]){1, 1}, 2);
}

static void
turned_by_reshape(struct builder *b)
{
    whole(b, "shape", (const int64_t[]){0, 4, -1}, 3);
    node(b, "Reshape", "x shape", "y");
}

static void
rows(struct builder *b)
{
    whole(b, "flat", (const int64_t[]){-1, 4}, 2);
    node(b, "Reshape", "x flat", "matrix");
    builder_constant(b, "w", 1, wide, DIMS(4, 4));
    builder_constant(b, "c", 1, wide, DIMS(4));
    node(b, "Gemm", "matrix w c", "product");
    node(b, "Shape", "x", "shape");
    node(b, "Reshape", "product shape", "y");
}

static void
second(struct builder *b)
{
    builder_constant(b, "index", 7, &one, NULL, 0);
    builder_int(b, node(b, "Gather", "x index", "y"), "axis", 1);
}

static void
first(struct builder *b)
{
    builder_constant(b, "index", 7, &zero, NULL, 0);
    builder_int(b, node(b, "Gather", "x index", "y"), "axis", 1);
}

static void
last(struct builder *b)
{
    builder_constant(b, "index", 7, &minus_one, NULL, 0);
    builder_int(b, node(b, "Gather", "x index", "y"), "axis", 1);
}

static void
first_slice(struct builder *b)
{
    whole(b, "from", &zero, 1);
    whole(b, "to", &one, 1);
    whole(b, "axes", &one, 1);
    node(b, "Slice", "x from to axes", "y");
}

static void
two_of_them(struct builder *b)
{
    whole(b, "from", &zero, 1);
    whole(b, "to", &two, 1);
    whole(b, "axes", &one, 1);
    node(b, "Slice", "x from to axes", "y");
}

static void
but_the_last(struct builder *b)
{
    whole(b, "from", all_but_last, 1);
    whole(b, "to", all_but_last + 1, 1);
    whole(b, "axes", &one, 1);
    node(b, "Slice", "x from to axes", "y");
}

static void
sums_so_far(struct builder *b)
{
    builder_constant(b, "axis", 7, &one, NULL, 0);
    node(b, "CumSum", "x axis", "y");
}

static void
sums_from_here(struct builder *b)
{
    builder_constant(b, "axis", 7, &one, NULL, 0);
    builder_int(b, node(b, "CumSum", "x axis", "y"), "reverse", 1);
}

static void
joined(struct builder *b)
{
    builder_int(b, node(b, "Concat", "x x", "y"), "axis", 1);
}

static void
beside(struct builder *b)
{
    builder_int(b, node(b, "Concat", "x x", "y"), "axis", 2);
}

static void
by_the_length(struct builder *b)
{
    whole(b, "index", &one, 1);
    node(b, "Shape", "x", "shape");
    builder_int(b, node(b, "Gather", "shape index", "length"), "axis", 0);
    builder_int(b, node(b, "Cast", "length", "divisor"), "to", 1);
    node(b, "Div", "x divisor", "y");
}

static void
out_of_range(struct builder *b)
{
    builder_constant(b, "table", 1, wide, DIMS(16, 1));
    whole(b, "shift", &hundreds, 1);
    node(b, "Add", "ids shift", "indices");
    node(b, "Gather", "table indices", "y");
}

static void
looked_up(struct builder *b)
{
    builder_constant(b, "table", 1, wide, DIMS(16, 1));
    node(b, "Gather", "table ids", "y");
}

/* As RoBERTa counts its positions: those that are padding by their id have none. */
static void
counted_positions(struct builder *b, int64_t rows)
{
    builder_constant(b, "table", 1, wide, DIMS(rows, 1));
    builder_constant(b, "padding", 7, &one, NULL, 0);
    builder_constant(b, "axis", 7, &one, NULL, 0);
    node(b, "Equal", "ids padding", "is_padding");
    node(b, "Not", "is_padding", "counts");
    builder_int(b, node(b, "Cast", "counts", "steps"), "to", 7);
    node(b, "CumSum", "steps axis", "so_far");
    node(b, "Mul", "so_far steps", "positions");
    node(b, "Add", "positions padding", "places");
    node(b, "Gather", "table places", "y");
}

static void
positions_in_table(struct builder *b)
{
    counted_positions(b, 10);
}

static void
positions_beyond_table(struct builder *b)
{
    counted_positions(b, 9);
}

static void
cut_off(struct builder *b)
{
    add_mask(b, -1e30f);
    scalar(b, "lowest", -1e20f);
    node(b, "Max", "masked lowest", "cut");
    attend(b, "cut");
}

static void
cut_off_too_high(struct builder *b)
{
    add_mask(b, -1e30f);
    scalar(b, "lowest", -100);
    node(b, "Max", "masked lowest", "cut");
    attend(b, "cut");
}

static void
divided_by_zeros(struct builder *b)
{
    whole(b, "dividend", &hundreds, 1);
    node(b, "Div", "dividend ids", "quotient");
    builder_int(b, node(b, "Cast", "quotient", "y"), "to", 1);
}

static void
backwards(struct builder *b)
{
    builder_constant(b, "w", 1, wide, DIMS(1, 3, 4));
    builder_constant(b, "r", 1, wide, DIMS(1, 3, 1));
    builder_ints(b, node(b, "Transpose", "x", "steps"), "perm", (const int64_t[]){1, 0, 2}, 3);
    Onnx__NodeProto *gru = node(b, "GRU", "steps w r", "states");
    builder_int(b, gru, "hidden_size", 1);
    builder_string(b, gru, "direction", "reverse");
    builder_ints(b, node(b, "Transpose", "states", "y"), "perm", (const int64_t[]){2, 0, 1, 3}, 4);
}

static void
in_order(struct builder *b)
{
    builder_constant(b, "table", 1, wide, DIMS(16, 1));
    builder_int(b, node(b, "Hardmax", "x", "highest"), "axis", 2);
    builder_int(b, node(b, "ArgMax", "highest", "which"), "axis", 2);
    builder_int(b, node(b, "Cast", "which", "y"), "to", 1);
}

static void
divided_length(struct builder *b, int64_t dividend, const char *operands, const char *quotient)
{
    length_of_ids(b);
    whole(b, "by", &dividend, 1);
    node(b, "Div", operands, quotient);
}

static void
one_against_eight(struct builder *b)
{
    builder_constant(b, "places", 1, NULL, DIMS(8, 4));
    node(b, "Add", "x places", "y");
}

static void
expanded_to_eight(struct builder *b)
{
    whole(b, "shape", (const int64_t[]){1, 8, 4}, 3);
    node(b, "Expand", "x shape", "y");
}

static void
product_against_eight(struct builder *b)
{
    builder_constant(b, "right", 1, NULL, DIMS(8, 1, 2));
    builder_ints(b, node(b, "Unsqueeze", "x", "rows"), "axes", &two, 1);
    builder_constant(b, "left", 1, wide, DIMS(4, 1));
    node(b, "MatMul", "rows left", "column");
    node(b, "MatMul", "column right", "y");
}

static void
tiled_to_eight(struct builder *b)
{
    divided_length(b, 8, "by length", "times");
    whole(b, "once", &one, 1);
    builder_int(b, node(b, "Concat", "once times once", "repeats"), "axis", 0);
    node(b, "Tile", "x repeats", "y");
}

static void
slice_by_length(struct builder *b)
{
    divided_length(b, 4, "length by", "from");
    whole(b, "one", &one, 1);
    whole(b, "axes", &two, 1);
    node(b, "Add", "from one", "to");
    node(b, "Slice", "x from to axes", "y");
}

static void
greatest_of_one(struct builder *b)
{
    scalar(b, "three", 3);
    node(b, "Max", "three", "limit");
    node(b, "Max", "x", "only");
    node(b, "Add", "only limit", "y");
}

/* Weights times their transpose: behind the end of both axes there is something. */
static void
sum_of_squares_of_weights(struct builder *b)
{
    causal(b);
    builder_ints(b, node(b, "Transpose", "weights", "columns"), "perm", (const int64_t[]){0, 2, 1}, 3);
    node(b, "Mul", "weights columns", "products");
    builder_ints(b, node(b, "ReduceSum", "products", "z"), "axes", (const int64_t[]){1, 2}, 2);
    b->graph.output[0]->name = b->graph.node[b->graph.n_node - 1]->output[0];
}

/* f32 numbers[1][M][1], of eight. */
static void
numbers_of_length(struct builder *b, float last)
{
    float all[8] = {1, 2, 3, 4, last, last, last, last};

    length_of_ids(b);
    builder_constant(b, "eight", 1, all, DIMS(1, 8, 1));
    whole(b, "from", &zero, 1);
    whole(b, "axes", &one, 1);
    node(b, "Slice", "eight from length axes", "numbers");
    excluded_is_zero(b);
}

static void
divided_by_constants(struct builder *b, float last)
{
    numbers_of_length(b, last);
    node(b, "Div", "x numbers", "quotient");
    node(b, "Mul", "quotient counts", "kept");
    node(b, "Add", "kept x", "more");
    builder_ints(b, node(b, "ReduceSum", "more", "y"), "axes", &one, 1);
}

static void
divided_by_constant_zeros(struct builder *b)
{
    divided_by_constants(b, 0);
}

static void
divided_by_others(struct builder *b)
{
    divided_by_constants(b, -3);
}

static void
times_infinity(struct builder *b)
{
    numbers_of_length(b, INFINITY);
    node(b, "Mul", "x numbers", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "y"), "axes", &one, 1);
}

static void
constant_places(struct builder *b)
{
    length_of_ids(b);
    whole(b, "eight", (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    whole(b, "from", &zero, 1);
    node(b, "Slice", "eight from length", "places");
    builder_constant(b, "table", 1, wide, DIMS(8, 2));
    node(b, "Gather", "table places", "rows");
    builder_constant(b, "w", 1, wide, DIMS(4, 2));
    node(b, "MatMul", "x w", "narrow");
    node(b, "Add", "narrow rows", "y");
}

static void
undone_by_quotient(struct builder *b)
{
    add_mask(b, -10000);
    node(b, "Div", "bias one", "again");
    node(b, "Sub", "masked again", "undone");
    attend(b, "undone");
}

static void
undone_by_relu(struct builder *b)
{
    add_mask(b, -10000);
    node(b, "Neg", "bias", "opposite");
    node(b, "Relu", "opposite", "positive");
    node(b, "Add", "masked positive", "undone");
    attend(b, "undone");
}

static void
undone_by_sum(struct builder *b)
{
    add_mask(b, -10000);
    builder_ints(b, node(b, "Unsqueeze", "bias", "column"), "axes", (const int64_t[]){3}, 1);
    builder_ints(b, node(b, "ReduceSum", "column", "again"), "axes", (const int64_t[]){3}, 1);
    builder_int(b, b->graph.node[b->graph.n_node - 1], "keepdims", 0);
    node(b, "Sub", "masked again", "undone");
    attend(b, "undone");
}

static void
undone_before(struct builder *b)
{
    add_mask(b, -10000);
    node(b, "Sub", "scores bias", "raised");
    node(b, "Add", "raised bias", "undone");
    attend(b, "undone");
}

/* What other ids exclude is raised first. */
static void
undone_by_other(struct builder *b)
{
    add_mask(b, -10000);
    builder_ints(b, node(b, "Unsqueeze", "ids", "other_row"), "axes", &one, 1);
    builder_int(b, node(b, "Cast", "other_row", "other_keys"), "to", 1);
    node(b, "Sub", "one other_keys", "other_inverse");
    node(b, "Mul", "other_inverse excluded", "other_bias");
    node(b, "Neg", "other_bias", "opposite");
    node(b, "Relu", "opposite", "positive");
    node(b, "Add", "scores positive", "raised");
    node(b, "Add", "raised bias", "undone");
    attend(b, "undone");
}

static void
mask_as_numbers(struct builder *b)
{
    bias_of_10000(b);
    builder_ints(b, node(b, "Unsqueeze", "mask", "column"), "axes", &two, 1);
    builder_int(b, node(b, "Cast", "column", "numbers"), "to", 1);
    node(b, "Sqrt", "numbers", "root");
    node(b, "Mul", "y root", "z");
    b->graph.output[0]->name = b->graph.node[b->graph.n_node - 1]->output[0];
}

static void
mask_put_out(struct builder *b)
{
    bias_of_10000(b);
    builder_int(b, node(b, "Cast", "mask", "z"), "to", 1);
    builder_output(b, "z");
}

/* As sentence encoders do. */
static void
attention_and_mean(struct builder *b)
{
    add_mask(b, -10000);
    builder_int(b, node(b, "Softmax", "masked", "weights"), "axis", 2);
    node(b, "MatMul", "weights x", "values");
    builder_ints(b, node(b, "Unsqueeze", "mask", "column"), "axes", &two, 1);
    builder_int(b, node(b, "Cast", "column", "counts"), "to", 1);
    node(b, "Mul", "values counts", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "sum"), "axes", &one, 1);
    builder_ints(b, node(b, "ReduceSum", "counts", "count"), "axes", &one, 1);
    scalar(b, "least", 1e-9f);
    node(b, "Clip", "count least", "some");
    node(b, "Div", "sum some", "y");
}

/* ---- Numbers of 8 bits -------------------------------------------------------------------------------------- */

/* Constants `name`_s and `name`_z. */
static void
scale_of(struct builder *b, const char *name, float step, uint8_t zero_point)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%s_s", name);
    scalar(b, text, step);
    (void)snprintf(text, sizeof(text), "%s_z", name);
    builder_constant(b, text, 2, &zero_point, NULL, 0);
}

/* `from` in numbers `to`_q and back as `to`. */
static void
there_and_back(struct builder *b, const char *from, const char *to, float step, uint8_t zero_point)
{
    char inputs[64], numbers[32];

    scale_of(b, to, step, zero_point);
    (void)snprintf(inputs, sizeof(inputs), "%s %s_s %s_z", from, to, to);
    (void)snprintf(numbers, sizeof(numbers), "%s_q", to);
    node(b, "QuantizeLinear", inputs, numbers);
    (void)snprintf(inputs, sizeof(inputs), "%s %s_s %s_z", numbers, to, to);
    node(b, "DequantizeLinear", inputs, to);
}

static void
sum_of_numbers(struct builder *b)
{
    there_and_back(b, "x", "floats", 0.0078125f, 100);
    builder_ints(b, node(b, "ReduceSum", "floats", "y"), "axes", &one, 1);
}

/* 0 / 0 is no zero point. */
static void
sum_without_scale(struct builder *b)
{
    there_and_back(b, "x", "floats", 0, 100);
    builder_ints(b, node(b, "ReduceSum", "floats", "y"), "axes", &one, 1);
}

static void
sum_of_shifted_numbers(struct builder *b)
{
    scalar(b, "shift", 0.25f);
    node(b, "Add", "x shift", "shifted");
    there_and_back(b, "shifted", "floats", 0.0078125f, 100);
    builder_ints(b, node(b, "ReduceSum", "floats", "y"), "axes", &one, 1);
}

/* Another zero point is taken off than was added. */
static void
sum_of_other_numbers(struct builder *b)
{
    there_and_back(b, "x", "floats", 0.0078125f, 100);
    scale_of(b, "other", 0.0078125f, 101);
    node(b, "DequantizeLinear", "floats_q other_s other_z", "others");
    builder_ints(b, node(b, "ReduceSum", "others", "y"), "axes", &one, 1);
}

/* As they are, beside themselves, turned and back. */
static void
moved_numbers(struct builder *b, uint8_t second)
{
    there_and_back(b, "x", "floats", 0.0078125f, 100);
    there_and_back(b, "x", "others", 0.0078125f, second);
    builder_int(b, node(b, "Concat", "floats_q others_q", "both"), "axis", 2);
    builder_ints(b, node(b, "Transpose", "both", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    builder_constant(b, "order", 7, (const int64_t[]){3, 1, 6}, DIMS(3));
    builder_int(b, node(b, "Gather", "turned order", "some"), "axis", 1);
    node(b, "DequantizeLinear", "some floats_s floats_z", "again");
    builder_ints(b, node(b, "ReduceSum", "again", "y"), "axes", &two, 1);
}

static void
moved_numbers_of_one_scale(struct builder *b)
{
    moved_numbers(b, 100);
}

static void
moved_numbers_of_two(struct builder *b)
{
    moved_numbers(b, 7);
}

/* Sums over positions of products of numbers, whose zero points are `left` and `right` less or more than they were. */
static void
integer_product(struct builder *b, int left, int right)
{
    const uint8_t points[2] = {(uint8_t)(100 + left), (uint8_t)(100 + right)};

    there_and_back(b, "x", "floats", 0.0078125f, 100);
    builder_constant(b, "left", 2, &points[0], NULL, 0);
    builder_constant(b, "right", 2, &points[1], NULL, 0);
    builder_ints(b, node(b, "Transpose", "floats_q", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    node(b, "MatMulInteger", "turned floats_q left right", "sums");
    builder_int(b, node(b, "Cast", "sums", "y"), "to", 1);
}

static void
integer_product_of_zeros(struct builder *b)
{
    integer_product(b, 0, 0);
}

static void
integer_product_of_one_zero(struct builder *b)
{
    integer_product(b, 1, 0);
}

static void
integer_product_of_others(struct builder *b)
{
    integer_product(b, 1, 1);
}

/* Products of each position; what comes of the end is the result's zero point. */
static void
scaled_product(struct builder *b, uint8_t taken_off)
{
    static const int8_t weights[16] = {1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -11, 12, 13, 14, 15, -16}, none = 0;

    there_and_back(b, "x", "floats", 0.0078125f, 100);
    scale_of(b, "result", 0.25f, 130);
    scalar(b, "w_s", 0.125f);
    builder_constant(b, "w", 3, weights, DIMS(4, 4));
    builder_constant(b, "w_z", 3, &none, NULL, 0);
    node(b, "QLinearMatMul", "floats_q floats_s floats_z w w_s w_z result_s result_z", "numbers");
    builder_constant(b, "off", 2, &taken_off, NULL, 0);
    node(b, "DequantizeLinear", "numbers result_s off", "again");
    builder_ints(b, node(b, "ReduceSum", "again", "y"), "axes", &one, 1);
}

static void
scaled_product_of_zeros(struct builder *b)
{
    scaled_product(b, 130);
}

static void
scaled_product_of_others(struct builder *b)
{
    scaled_product(b, 129);
}

/* Rows, which are positions, have a scale each. */
static void
scaled_rows(struct builder *b)
{
    static const float steps[8] = {1, 0.5f, 0.25f, 1, 1, 2, 4, 1};
    static const uint8_t points[8] = {100, 100, 100, 100, 100, 100, 100, 100}, weights[16] = {1};

    length_of_ids(b);
    there_and_back(b, "x", "floats", 0.0078125f, 100);
    scale_of(b, "other", 1, 3);
    builder_constant(b, "w", 2, weights, DIMS(4, 4));
    builder_constant(b, "steps", 1, steps, DIMS(8));
    builder_constant(b, "points", 2, points, DIMS(8));
    whole(b, "from", &zero, 1);
    node(b, "Slice", "steps from length", "row_s");
    node(b, "Slice", "points from length", "row_z");
    node(b, "QLinearMatMul", "floats_q row_s row_z w other_s other_z other_s other_z", "numbers");
    node(b, "DequantizeLinear", "numbers other_s other_z", "y");
}

/* A scale for each position. */
static void
scaled_positions(struct builder *b)
{
    static const float steps[8] = {1, 0.5f, 0.25f, 1, 1, 2, 4, 1};

    b->opset.version = 13;
    length_of_ids(b);
    builder_constant(b, "steps", 1, steps, DIMS(8));
    whole(b, "from", &zero, 1);
    node(b, "Slice", "steps from length", "row_s");
    builder_int(b, node(b, "QuantizeLinear", "x row_s", "numbers"), "axis", 1);
    builder_int(b, node(b, "DequantizeLinear", "numbers row_s", "y"), "axis", 1);
}

static void
scaled_channels(struct builder *b)
{
    static const float steps[4] = {0.5f, 0.03125f, 0.25f, 0.0625f};
    static const int8_t points[4] = {0, -3, 100, 7};

    b->opset.version = 13;
    builder_constant(b, "steps", 1, steps, DIMS(4));
    builder_constant(b, "points", 3, points, DIMS(4));
    builder_int(b, node(b, "QuantizeLinear", "x steps points", "numbers"), "axis", 2);
    builder_int(b, node(b, "DequantizeLinear", "numbers steps points", "y"), "axis", 2);
}

/* Padding would be in the range. */
static void
range_of_all(struct builder *b)
{
    scalar(b, "shift", 3);
    node(b, "Add", "x shift", "shifted");
    node(b, "DynamicQuantizeLinear", "shifted", "numbers step point");
    node(b, "DequantizeLinear", "numbers step point", "y");
}

static void
window_of_numbers(struct builder *b)
{
    static const uint8_t weights[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

    there_and_back(b, "x", "floats", 0.0078125f, 100);
    builder_ints(b, node(b, "Transpose", "floats_q", "turned"), "perm", (const int64_t[]){0, 2, 1}, 3);
    builder_constant(b, "w", 2, weights, DIMS(1, 4, 3));
    builder_ints(b, node(b, "ConvInteger", "turned w floats_z", "sums"), "pads", (const int64_t[]){1, 1}, 2);
    builder_int(b, node(b, "Cast", "sums", "y"), "to", 1);
}

/* As quantisers leave attention: mask, scores, their sum and the weights in 8 bits each. */
static void
attend_in_numbers(struct builder *b, float bias_step, uint8_t bias_zero, float step, uint8_t zero_point)
{
    scores(b);
    scalar(b, "one", 1);
    scalar(b, "excluded", -10000);
    node(b, "Sub", "one keys", "plain_inverse");
    there_and_back(b, "plain_inverse", "inverse", 1.0f / 255, 0);
    node(b, "Mul", "inverse excluded", "plain_bias");
    there_and_back(b, "plain_bias", "bias", bias_step, bias_zero);
    node(b, "Add", "scores bias", "sum");
    there_and_back(b, "sum", "masked", step, zero_point);
    builder_int(b, node(b, "Softmax", "masked", "shares"), "axis", 2);
    there_and_back(b, "shares", "weights", 1.0f / 248, 0);
    there_and_back(b, "x", "values", 0.0078125f, 128);
    node(b, "MatMul", "weights values", "y");
}

static void
attention_in_numbers(struct builder *b)
{
    attend_in_numbers(b, 40, 255, 40, 254);
}

static void
bias_cut_off_by_numbers(struct builder *b)
{
    attend_in_numbers(b, 0.25f, 255, 40, 254);
}

static void
sum_cut_off_by_numbers(struct builder *b)
{
    attend_in_numbers(b, 40, 255, 0.5f, 128);
}

/* What counts is far above all that the numbers have. */
static void
raised_beyond_numbers(struct builder *b)
{
    scores(b);
    scalar(b, "raised", 10000);
    node(b, "Mul", "keys raised", "bias");
    node(b, "Add", "scores bias", "sum");
    there_and_back(b, "sum", "masked", 16, 255);
    attend(b, "masked");
}

/* Both, what counts and what does not, are below it. */
static void
cut_off_between(struct builder *b)
{
    scores(b);
    scalar(b, "three", 3);
    scalar(b, "by", 10000);
    scalar(b, "lowest", -1000);
    node(b, "Sub", "keys three", "less");
    node(b, "Mul", "less by", "bias");
    node(b, "Add", "scores bias", "sum");
    node(b, "Max", "sum lowest", "masked");
    attend(b, "masked");
}

/* The mask is in the numbers' range, but no longer behind what is added. */
static void
lowered_beyond_numbers(struct builder *b)
{
    add_mask(b, -10000);
    scalar(b, "lowered", -20000);
    node(b, "Add", "masked lowered", "less");
    there_and_back(b, "less", "numbers", 40, 254);
    attend(b, "numbers");
}

static void
lowered_beyond_limit(struct builder *b)
{
    add_mask(b, -10000);
    scalar(b, "lowered", 20000);
    scalar(b, "lowest", -10000);
    node(b, "Sub", "masked lowered", "less");
    node(b, "Max", "less lowest", "limited");
    attend(b, "limited");
}

/* Scores that are lowered before the mask is added, and cut off behind it. */
static void
lowered_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "one", 1);
    scalar(b, "excluded", -10000);
    scalar(b, "much", 20000);
    scalar(b, "lowest", -4000);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse excluded", "bias");
    node(b, "Sub", "scores much", "less");
    node(b, "Add", "less bias", "masked");
    node(b, "Max", "masked lowest", "limited");
    attend(b, "limited");
}

/* The mask behind `value`, cut off at `lowest`. */
static void
exclude_and_cut_off(struct builder *b, const char *value, float lowest)
{
    scalar(b, "one", 1);
    scalar(b, "excluded", -10000);
    scalar(b, "lowest", lowest);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse excluded", "bias");
    char both[64];
    (void)snprintf(both, sizeof(both), "%s bias", value);
    node(b, "Add", both, "masked");
    node(b, "Max", "masked lowest", "limited");
    attend(b, "limited");
}

/* Scores stay where they are if they are multiplied. */
static void
multiplied_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "twice", 2);
    node(b, "Mul", "scores twice", "more");
    exclude_and_cut_off(b, "more", -1500);
}

/* What was added before is multiplied, too: -900 alone is not below the limit. */
static void
lowered_and_multiplied_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "much", 900);
    scalar(b, "twice", 2);
    node(b, "Sub", "scores much", "less");
    node(b, "Mul", "twice less", "more");
    exclude_and_cut_off(b, "more", -1900);
}

static void
lowered_and_divided_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "much", 900);
    scalar(b, "half", 0.5f);
    node(b, "Sub", "scores much", "less");
    node(b, "Div", "less half", "more");
    exclude_and_cut_off(b, "more", -1900);
}

/* Where scores lie is not followed through what else is made of them. */
static void
lowered_and_turned_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "much", 1500);
    node(b, "Sub", "scores much", "less");
    node(b, "Abs", "less", "size");
    node(b, "Neg", "size", "negative");
    exclude_and_cut_off(b, "negative", -1400);
}

static void
lowered_by_a_bound_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "most", -1500);
    node(b, "Min", "scores most", "less");
    exclude_and_cut_off(b, "less", -1400);
}

/* Not by one that usual scores do not come to. */
static void
bounded_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "most", 50);
    node(b, "Min", "scores most", "less");
    exclude_and_cut_off(b, "less", -1500);
}

static void
lowered_and_rounded_before_limit(struct builder *b)
{
    scores(b);
    scalar(b, "much", 1500);
    node(b, "Sub", "scores much", "less");
    there_and_back(b, "less", "numbers", 40, 254);
    exclude_and_cut_off(b, "numbers", -1400);
}

/* The tail that a mask chooses is above what was lowered. */
static void
lowered_before_choice(struct builder *b)
{
    scores(b);
    scalar(b, "much", 20000);
    scalar(b, "excluded", -10000);
    node(b, "Sub", "scores much", "less");
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts less excluded", "masked");
    attend(b, "masked");
}

/* f32 `name` of one number of 8 bits. */
static void
number(struct builder *b, const char *name, float step, uint8_t value)
{
    char constant[32], inputs[64];

    scale_of(b, name, step, 100);
    (void)snprintf(constant, sizeof(constant), "%s_q", name);
    builder_constant(b, constant, 2, &value, NULL, 0);
    (void)snprintf(inputs, sizeof(inputs), "%s_q %s_s %s_z", name, name, name);
    node(b, "DequantizeLinear", inputs, name);
}

static void
excluded_by_a_number(struct builder *b)
{
    scores(b);
    scalar(b, "one", 1);
    number(b, "excluded", 128, 0);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse excluded", "bias");
    node(b, "Add", "scores bias", "masked");
    attend(b, "masked");
}

static void
undone_by_a_number(struct builder *b)
{
    add_mask(b, -10000);
    number(b, "raised", 100, 200);
    node(b, "Mul", "inverse raised", "again");
    node(b, "Add", "masked again", "undone");
    attend(b, "undone");
}

/* Constants of 8 bits, one for each position: those behind the first four are far greater. */
static void
undone_by_numbers(struct builder *b, float step, const char *operands)
{
    static const uint8_t eight[8] = {0, 0, 0, 0, 255, 255, 255, 255};

    add_mask(b, -10000);
    length_of_ids(b);
    builder_constant(b, "eight", 2, eight, DIMS(8));
    whole(b, "from", &zero, 1);
    node(b, "Slice", "eight from length", "numbers");
    scalar(b, "step", step);
    scalar(b, "hundred", 100);
    node(b, "DequantizeLinear", "numbers step", "floats");
    node(b, "Mul", "floats hundred", "more");
    node(b, "Add", operands, "undone");
    attend(b, "undone");
}

static void
undone_by_large_numbers(struct builder *b)
{
    undone_by_numbers(b, 100, "masked floats");
}

static void
undone_by_product_of_numbers(struct builder *b)
{
    undone_by_numbers(b, 1, "masked more");
}

static void
small_numbers_added(struct builder *b)
{
    undone_by_numbers(b, 0.0078125f, "masked floats");
}

/* ---- Scores elsewhere, before they are cut off --------------------------------------------------------- */

/* A model that is built with how much scores are lowered: 1500 is below the limit, 100 is not. */
#define PAIR(name) \
    static void name##_far(struct builder *b) \
    { \
        name(b, 1500); \
    } \
    static void name##_near(struct builder *b) \
    { \
        name(b, 100); \
    }

#define ROWS_OF_PAIR(text, name) {"far: " text, name##_far, "'weights'", USUAL}, {"near: " text, name##_near, NULL, USUAL}

/* Two heads of `from`, with another number added to each: f32 heads[N][2][M][M]. */
static void
two_heads(struct builder *b, const char *from, float first_more, float second_more)
{
    const float more[2] = {first_more, second_more};

    builder_ints(b, node(b, "Unsqueeze", from, "one_head"), "axes", &one, 1);
    builder_constant(b, "more", 1, more, DIMS(2, 1, 1));
    node(b, "Add", "one_head more", "heads");
}

static void
one_of_them(struct builder *b, const char *from, float lowest)
{
    char inputs[64];

    builder_constant(b, "head", 7, &zero, NULL, 0);
    (void)snprintf(inputs, sizeof(inputs), "%s head", from);
    builder_int(b, node(b, "Gather", inputs, "chosen"), "axis", 1);
    exclude_and_cut_off(b, "chosen", lowest);
}

static void
clipped_by_attribute(struct builder *b, float lowered)
{
    b->opset.version = 10;
    scores(b);
    builder_float(b, node(b, "Clip", "scores", "less"), "max", -lowered);
    exclude_and_cut_off(b, "less", -1400);
}

static void
clipped_above_alone(struct builder *b, float lowered)
{
    scores(b);
    scalar(b, "most", -lowered);
    node(b, "Clip", "scores - most", "less");
    exclude_and_cut_off(b, "less", -1400);
}

static void
heads_gathered(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", -lowered, -lowered - 50);
    one_of_them(b, "heads", -1400);
}

static void
heads_negated(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", lowered, lowered + 50);
    node(b, "Neg", "heads", "negative");
    one_of_them(b, "negative", -1400);
}

static void
heads_reduced(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", -lowered, -lowered - 50);
    Onnx__NodeProto *most = node(b, "ReduceMax", "heads", "most");
    builder_ints(b, most, "axes", &one, 1);
    builder_int(b, most, "keepdims", 0);
    exclude_and_cut_off(b, "most", -1400);
}

static void
heads_joined(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", -lowered, -lowered - 50);
    builder_int(b, node(b, "Concat", "heads heads", "four"), "axis", 1);
    one_of_them(b, "four", -1400);
}

static void
heads_rounded(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", -lowered, -lowered - 50);
    there_and_back(b, "heads", "numbers", 40, 200);
    one_of_them(b, "numbers", -1400);
}

/* Numbers of two heads, `both`, and scores for them: f32 one_head[N][1][M][M]. */
static void
two_numbers(struct builder *b, float lowered)
{
    const float both[2] = {-lowered, -lowered - 50};

    scores(b);
    builder_constant(b, "both", 1, both, DIMS(2, 1, 1));
    builder_ints(b, node(b, "Unsqueeze", "scores", "one_head"), "axes", &one, 1);
}

static void
heads_limited(struct builder *b, float lowered)
{
    two_numbers(b, lowered);
    node(b, "Min", "one_head both", "heads");
    one_of_them(b, "heads", -1400);
}

static void
heads_summed(struct builder *b, float lowered)
{
    two_numbers(b, lowered);
    node(b, "Sum", "one_head both", "heads");
    one_of_them(b, "heads", -1400);
}

static void
heads_averaged(struct builder *b, float lowered)
{
    two_numbers(b, 2 * lowered);
    node(b, "Mean", "one_head both", "heads");
    one_of_them(b, "heads", -1400);
}

static void
summed_twice(struct builder *b, float lowered)
{
    scores(b);
    scalar(b, "half", -lowered / 2);
    node(b, "Sum", "scores half half", "less");
    exclude_and_cut_off(b, "less", -1400);
}

static void
heads_before_choice(struct builder *b, float lowered)
{
    scores(b);
    two_heads(b, "scores", -lowered, -lowered - 50);
    builder_constant(b, "head", 7, &zero, NULL, 0);
    builder_int(b, node(b, "Gather", "heads head", "chosen"), "axis", 1);
    scalar(b, "excluded", -1400);
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts chosen excluded", "masked");
    attend(b, "masked");
}

/* One number of f32 `from`[N][M][4] for each key. */
static void
one_for_each_key(struct builder *b, const char *from)
{
    char inputs[64];

    builder_constant(b, "feature", 7, &zero, NULL, 0);
    (void)snprintf(inputs, sizeof(inputs), "%s feature", from);
    builder_int(b, node(b, "Gather", inputs, "by_key"), "axis", 2);
    builder_ints(b, node(b, "Unsqueeze", "by_key", "all_keys"), "axes", &one, 1);
    exclude_and_cut_off(b, "all_keys", -1400);
}

static void
product_with_bias(struct builder *b, float lowered)
{
    const float bias[4] = {-lowered, 0, 1, -2};

    scores(b);
    whole(b, "flat", (const int64_t[]){-1, 4}, 2);
    node(b, "Reshape", "x flat", "matrix");
    builder_constant(b, "c", 1, bias, DIMS(4));
    node(b, "Gemm", "matrix w c", "product");
    node(b, "Shape", "x", "shape");
    node(b, "Reshape", "product shape", "lines");
    one_for_each_key(b, "lines");
}

/* Axes are inputs there. */
static void
normalised_with_shift(struct builder *b, float lowered)
{
    const float shift[4] = {-lowered, 0, 1, -2}, excluded = -10000, lowest = -1400;

    b->opset.version = 17;
    whole(b, "axis", &one, 1);
    builder_constant(b, "feature", 7, &zero, NULL, 0);
    builder_constant(b, "gain", 1, wide, DIMS(4));
    builder_constant(b, "shift", 1, shift, DIMS(4));
    node(b, "LayerNormalization", "x gain shift", "normal");
    builder_int(b, node(b, "Gather", "normal feature", "by_key"), "axis", 2);
    builder_int(b, node(b, "Cast", "mask", "keys"), "to", 1);
    scalar(b, "one", 1);
    scalar(b, "excluded", excluded);
    scalar(b, "lowest", lowest);
    node(b, "Sub", "one keys", "inverse");
    node(b, "Mul", "inverse excluded", "bias");
    node(b, "Add", "by_key bias", "masked");
    node(b, "Max", "masked lowest", "limited");
    builder_int(b, node(b, "Softmax", "limited", "weights"), "axis", 1);
    node(b, "Unsqueeze", "weights axis", "row");
    node(b, "MatMul", "row x", "y");
}

static void
limited_and_multiplied(struct builder *b, float lowered)
{
    scores(b);
    scalar(b, "most", -lowered / 2);
    scalar(b, "twice", 2);
    node(b, "Min", "scores most", "less");
    node(b, "Mul", "less twice", "more");
    exclude_and_cut_off(b, "more", -1400);
}

/* By another zero point. */
static void
shifted_by_numbers(struct builder *b, float lowered)
{
    scores(b);
    there_and_back(b, "scores", "numbers", 20, 150);
    scale_of(b, "other", 20, (uint8_t)(150 + lowered / 20));
    node(b, "DequantizeLinear", "numbers_q other_s other_z", "less");
    exclude_and_cut_off(b, "less", -1400);
}

/* f32 lowered[N][4], which has no positions. */
static void
lowered_features(struct builder *b, float lowered)
{
    scores(b);
    builder_constant(b, "index", 7, &zero, NULL, 0);
    builder_int(b, node(b, "Gather", "x index", "features"), "axis", 1);
    scalar(b, "much", lowered);
    node(b, "Sub", "features much", "lowered");
}

/* f32 `from`[N][1][?]. */
static void
add_feature(struct builder *b, const char *from)
{
    char inputs[64];

    (void)snprintf(inputs, sizeof(inputs), "%s index", from);
    builder_int(b, node(b, "Gather", inputs, "feature"), "axis", 2);
    builder_ints(b, node(b, "Unsqueeze", "feature", "everywhere"), "axes", &two, 1);
    node(b, "Add", "scores everywhere", "less");
    exclude_and_cut_off(b, "less", -1400);
}

static void
features_taken(struct builder *b, float lowered)
{
    lowered_features(b, lowered);
    builder_ints(b, node(b, "Unsqueeze", "lowered", "row_of_them"), "axes", &one, 1);
    add_feature(b, "row_of_them");
}

static void
features_pooled(struct builder *b)
{
    lowered_features(b, 1500);
    builder_ints(b, node(b, "Unsqueeze", "lowered", "row_of_them"), "axes", &one, 1);
    builder_ints(b, node(b, "MaxPool", "row_of_them", "pooled"), "kernel_shape", &two, 1);
    add_feature(b, "pooled");
}

static void
features_padded(struct builder *b)
{
    lowered_features(b, 0);
    whole(b, "pads", (const int64_t[]){0, 0, 1, 0, 0, 0}, 6);
    scalar(b, "fill", -1500);
    builder_ints(b, node(b, "Unsqueeze", "lowered", "row_of_them"), "axes", &one, 1);
    node(b, "Pad", "row_of_them pads fill", "padded");
    add_feature(b, "padded");
}

static void
heads_turned(struct builder *b, const char *op)
{
    scores(b);
    two_heads(b, "scores", 1500, 1600);
    node(b, op, "heads", "size");
    node(b, "Neg", "size", "negative");
    one_of_them(b, "negative", -1400);
}

static void
heads_by_relu(struct builder *b)
{
    heads_turned(b, "Relu");
}

static void
heads_by_abs(struct builder *b)
{
    heads_turned(b, "Abs");
}

/* What a mask says of the first position alone. */
static void
lowered_by_first_of_mask(struct builder *b)
{
    scores(b);
    scalar(b, "much", -1500);
    node(b, "Mul", "keys much", "penalties");
    builder_constant(b, "index", 7, &zero, NULL, 0);
    builder_int(b, node(b, "Gather", "penalties index", "penalty"), "axis", 2);
    builder_ints(b, node(b, "Unsqueeze", "penalty", "everywhere"), "axes", &two, 1);
    node(b, "Add", "scores everywhere", "less");
    exclude_and_cut_off(b, "less", -1400);
}

/* Scores that are nowhere followed: only an infinite number is below all of them. */
static void
chosen_of_unknown(struct builder *b, float excluded)
{
    scores(b);
    node(b, "Mul", "scores scores", "squares");
    node(b, "Neg", "squares", "negative");
    scalar(b, "excluded", excluded);
    builder_int(b, node(b, "Cast", "keys", "counts"), "to", 9);
    node(b, "Where", "counts negative excluded", "masked");
    attend(b, "masked");
}

static void
infinite_choice_of_unknown(struct builder *b)
{
    chosen_of_unknown(b, -INFINITY);
}

static void
choice_of_unknown(struct builder *b)
{
    chosen_of_unknown(b, -10000);
}

/* Both bounds are far off, or the upper one is below the lower one. */
static void
clipped_far_off(struct builder *b)
{
    scores(b);
    scalar(b, "least", -10000);
    scalar(b, "most", 10000);
    node(b, "Clip", "scores least most", "same");
    exclude_and_cut_off(b, "same", -1400);
}

static void
root_of_clipped(struct builder *b)
{
    excluded_is_zero(b);
    scalar(b, "least", 1);
    scalar(b, "most", -5);
    node(b, "Clip", "x least most", "negative");
    node(b, "Sqrt", "negative", "root");
    node(b, "Mul", "root counts", "kept");
    builder_ints(b, node(b, "ReduceSum", "kept", "y"), "axes", &one, 1);
}

PAIR(clipped_by_attribute)
PAIR(clipped_above_alone)
PAIR(heads_gathered)
PAIR(heads_negated)
PAIR(heads_reduced)
PAIR(heads_joined)
PAIR(heads_rounded)
PAIR(heads_limited)
PAIR(heads_summed)
PAIR(heads_averaged)
PAIR(summed_twice)
PAIR(heads_before_choice)
PAIR(product_with_bias)
PAIR(normalised_with_shift)
PAIR(limited_and_multiplied)
PAIR(shifted_by_numbers)
PAIR(features_taken)

#define USUAL {3, 5, 8}

const struct padded_model padded_models[] = {
    {"bias", bias_of_10000, NULL, USUAL},
    {"bias in doubles", bias_in_doubles, "'shares'", USUAL},
    {"bias, scaled", bias_that_is_scaled, NULL, USUAL},
    {"bias, scaled away", bias_scaled_away, "'weights'", USUAL},
    {"small bias", bias_too_small, "'weights'", USUAL},
    {"bias of others", bias_of_the_others, "'weights'", USUAL},
    {"bias taken back", bias_taken_back, "'weights'", USUAL},
    {"no bias", no_bias, "'weights'", USUAL},
    {"replaced", replaced_by_infinity, NULL, USUAL},
    {"infinite bias", infinite_bias, NULL, USUAL},
    {"infinite product", infinite_product, "'weights'", USUAL},
    {"mask of ids", mask_of_ids, "'mask'", USUAL},
    {"two masks", two_masks, "'weights'", USUAL},
    {"causal", causal, NULL, USUAL},
    {"infinite values", weights_of_what_is_infinite, "'y'", USUAL},
    {"mean of counted", mean_of_counted, NULL, USUAL},
    {"chosen sum", chosen_sum, NULL, USUAL},
    {"sum of logarithms", sum_of_logarithms, "'y'", USUAL},
    {"sum of all", sum_of_all, "'y'", USUAL},
    {"sum of zeros", sum_of_zeros, NULL, USUAL},
    {"mean", mean, "'y'", USUAL},
    {"greatest", greatest, "'y'", USUAL},
    {"product", product_of_positions, "'y'", USUAL},
    {"product of zeros", product_of_zeros, NULL, USUAL},
    {"window", window, "'y'", USUAL},
    {"turned by reshape", turned_by_reshape, "'y'", USUAL},
    {"rows", rows, NULL, USUAL},
    {"second", second, "'y'", USUAL},
    {"first", first, NULL, USUAL},
    {"last", last, "'y'", USUAL},
    {"first slice", first_slice, NULL, USUAL},
    {"two of them", two_of_them, "'y'", USUAL},
    {"but the last", but_the_last, "'y'", USUAL},
    {"sums so far", sums_so_far, NULL, USUAL},
    {"sums from here", sums_from_here, "'y'", USUAL},
    {"joined", joined, "'y'", USUAL},
    {"beside", beside, NULL, USUAL},
    {"by the length", by_the_length, "'y'", USUAL},
    {"out of range", out_of_range, "'y'", USUAL},
    {"looked up", looked_up, NULL, USUAL},
    {"positions in a table", positions_in_table, NULL, USUAL},
    {"positions beyond it", positions_beyond_table, "'y'", USUAL},
    {"cut off", cut_off, NULL, USUAL},
    {"cut off too high", cut_off_too_high, "'weights'", USUAL},
    {"divided by zeros", divided_by_zeros, "'quotient'", USUAL},
    {"backwards", backwards, "'states'", USUAL},
    {"in order", in_order, "'highest'", USUAL},
    {"one against eight", one_against_eight, "'y'", {1, 8, 0}},
    {"expanded to eight", expanded_to_eight, "'y'", {1, 8, 0}},
    {"product against eight", product_against_eight, "'y'", {1, 8, 0}},
    {"tiled to eight", tiled_to_eight, "'y'", {4, 8, 0}},
    {"slice by length", slice_by_length, "'y'", {4, 8, 0}},
    {"greatest of one", greatest_of_one, NULL, USUAL},
    {"sum of squares of weights", sum_of_squares_of_weights, "'z'", USUAL},
    {"divided by constant zeros", divided_by_constant_zeros, "'y'", {4, 8, 0}},
    {"divided by others", divided_by_others, NULL, {4, 8, 0}},
    {"times infinity", times_infinity, "'y'", {4, 8, 0}},
    {"constant places", constant_places, NULL, USUAL},
    {"undone by quotient", undone_by_quotient, "'weights'", USUAL},
    {"undone by relu", undone_by_relu, "'weights'", USUAL},
    {"undone by sum", undone_by_sum, "'weights'", USUAL},
    {"undone before", undone_before, "'weights'", USUAL},
    {"undone by other", undone_by_other, "'weights'", USUAL},
    {"mask as numbers", mask_as_numbers, "'mask'", USUAL},
    {"mask put out", mask_put_out, "'mask'", USUAL},
    {"attention and mean", attention_and_mean, NULL, USUAL},
    {"cut off between", cut_off_between, "'weights'", USUAL},
    {"sum of numbers", sum_of_numbers, NULL, USUAL},
    {"sum of numbers of scale 0", sum_without_scale, "'y'", USUAL},
    {"sum of shifted numbers", sum_of_shifted_numbers, "'y'", USUAL},
    {"sum of other numbers", sum_of_other_numbers, "'y'", USUAL},
    {"moved numbers", moved_numbers_of_one_scale, NULL, USUAL},
    {"moved numbers of two scales", moved_numbers_of_two, "'y'", USUAL},
    {"integer product", integer_product_of_zeros, NULL, USUAL},
    {"integer product, one zero", integer_product_of_one_zero, NULL, USUAL},
    {"integer product, no zero", integer_product_of_others, "'sums'", USUAL},
    {"scaled product", scaled_product_of_zeros, NULL, USUAL},
    {"scaled product, other zero", scaled_product_of_others, "'y'", USUAL},
    {"scaled rows", scaled_rows, "'numbers'", USUAL},
    {"scaled positions", scaled_positions, "'numbers'", USUAL},
    {"scaled channels", scaled_channels, NULL, USUAL},
    {"range of all", range_of_all, "'numbers'", USUAL},
    {"window of numbers", window_of_numbers, "'sums'", USUAL},
    {"attention in numbers", attention_in_numbers, NULL, USUAL},
    {"bias cut off by numbers", bias_cut_off_by_numbers, "'shares'", USUAL},
    {"sum cut off by numbers", sum_cut_off_by_numbers, "'shares'", USUAL},
    {"raised beyond numbers", raised_beyond_numbers, "'weights'", USUAL},
    {"lowered beyond numbers", lowered_beyond_numbers, "'weights'", USUAL},
    {"lowered beyond a limit", lowered_beyond_limit, "'weights'", USUAL},
    {"lowered before a limit", lowered_before_limit, "'weights'", USUAL},
    {"lowered before a choice", lowered_before_choice, "'weights'", USUAL},
    {"multiplied before a limit", multiplied_before_limit, NULL, USUAL},
    {"lowered and multiplied before a limit", lowered_and_multiplied_before_limit, "'weights'", USUAL},
    {"lowered and divided before a limit", lowered_and_divided_before_limit, "'weights'", USUAL},
    {"lowered and turned before a limit", lowered_and_turned_before_limit, "'weights'", USUAL},
    {"lowered by a bound before a limit", lowered_by_a_bound_before_limit, "'weights'", USUAL},
    {"bounded before a limit", bounded_before_limit, NULL, USUAL},
    {"lowered and rounded before a limit", lowered_and_rounded_before_limit, "'weights'", USUAL},
    {"excluded by a number", excluded_by_a_number, NULL, USUAL},
    {"undone by a number", undone_by_a_number, "'weights'", USUAL},
    {"undone by large numbers", undone_by_large_numbers, "'weights'", USUAL},
    {"undone by product of numbers", undone_by_product_of_numbers, "'weights'", USUAL},
    {"small numbers added", small_numbers_added, NULL, USUAL},
    ROWS_OF_PAIR("clipped by an attribute", clipped_by_attribute),
    ROWS_OF_PAIR("clipped above alone", clipped_above_alone),
    ROWS_OF_PAIR("heads gathered", heads_gathered),
    ROWS_OF_PAIR("heads negated", heads_negated),
    ROWS_OF_PAIR("heads reduced", heads_reduced),
    ROWS_OF_PAIR("heads joined", heads_joined),
    ROWS_OF_PAIR("heads rounded", heads_rounded),
    ROWS_OF_PAIR("heads limited", heads_limited),
    ROWS_OF_PAIR("heads summed", heads_summed),
    ROWS_OF_PAIR("heads averaged", heads_averaged),
    ROWS_OF_PAIR("summed twice", summed_twice),
    ROWS_OF_PAIR("heads before a choice", heads_before_choice),
    ROWS_OF_PAIR("product with a bias", product_with_bias),
    ROWS_OF_PAIR("normalised with a shift", normalised_with_shift),
    ROWS_OF_PAIR("limited and multiplied", limited_and_multiplied),
    ROWS_OF_PAIR("shifted by numbers", shifted_by_numbers),
    ROWS_OF_PAIR("features taken", features_taken),
    {"features pooled", features_pooled, "'weights'", USUAL},
    {"features padded", features_padded, "'weights'", USUAL},
    {"heads by relu", heads_by_relu, "'weights'", USUAL},
    {"heads by abs", heads_by_abs, "'weights'", USUAL},
    {"lowered by the first of a mask", lowered_by_first_of_mask, "'weights'", USUAL},
    {"infinite choice of unknown scores", infinite_choice_of_unknown, NULL, USUAL},
    {"choice of unknown scores", choice_of_unknown, "'weights'", USUAL},
    {"clipped far off", clipped_far_off, NULL, USUAL},
    {"root of what is clipped", root_of_clipped, "'y'", USUAL},
    {"later ones chosen", later_ones_chosen, "'shares'", USUAL},
    {"raised twice, too far", raised_twice_too_far, "'weights'", USUAL},
    {"raised twice, a little", raised_twice_a_little, NULL, USUAL},
    {"raised by a large table", raised_by_a_large_table, "'weights'", USUAL},
};
const size_t padded_model_count = LEAT_COUNT_OF(padded_models);
