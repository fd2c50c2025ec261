/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     It is known of a model's inputs which are indices, and into how many rows: as many as whoever wrote the model
 *          says, as imported and after the passes; which are lengths of sequences or counts of loops, and that those are of
 *          full length and these run; of other inputs, or of rows and steps that are not known, nothing is. What inputs are
 *          filled with is in these ranges, all over them, and of the input's type; ones are ones.
 * Method   Every model of leat-zoo against what it says of its inputs; small graphs for each way from an input to a table,
 *          a sequence or a loop; all types.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/made_inputs.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"
#include "tools/zoo/zoo.h"

enum { F32 = 1, I32 = 6, I64 = 7, ROWS = 50, FEWER = 20 };

/* ---- Models of the zoo ------------------------------------------------------------------------------ */

/* Masks are no indices. dlrm-criteo takes any number: it goes by remainders, whose greatest divisor is 50 in this size. */
static int64_t
said(const struct zoo_model *model, const struct onnx_port *input)
{
    if (strstr(input->name, "mask") != NULL) {
        return 0;
    }
    return input->end > 0 && strcmp(model->name, "dlrm-criteo") == 0 ? 50 : input->end;
}

static void
expect_as_said(const struct zoo_model *model, const struct onnx_summary *summary, const struct leat_graph *graph,
               uint32_t *tables)
{
    struct leat_made_range ranges[LEAT_TENSORS_MAX];

    EXPECT(leat_graph_made_ranges(graph, ranges) == LEAT_OK && graph->input_count == summary->input_count);
    for (uint32_t i = 0; i < graph->input_count; i++) {
        EXPECT(ranges[i].least == 0 && ranges[i].end == said(model, &summary->inputs[i]));
        *tables += ranges[i].end > 0;
    }
}

static void
check_model(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct leat_graph *graph;
    size_t size;
    void *bytes;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    EXPECT(leat_onnx_import(bytes, size, &graph) == LEAT_OK);
    expect_as_said(model, summary, graph, context);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    expect_as_said(model, summary, graph, context);
    leat_graph_destroy(graph);
    free(bytes);
}

static void
test_zoo(void)
{
    uint32_t tables = 0;

    for (size_t m = 0; m < zoo_model_count; m++) {
        EXPECT(zoo_describe(&zoo_models[m], ZOO_SIZE_TEST, check_model, &tables) == LEAT_OK);
    }
    EXPECT(tables >= 20);
}

/* ---- Ways to a table -------------------------------------------------------------------------------- */

static struct builder b; /* one model at a time */

/* ids: i64[N][4]; tables f32[ROWS][2] and [FEWER][2], and [2][ROWS]. */
static void
start(int type)
{
    builder_init(&b, 13);
    (void)builder_input(&b, "ids", type, DIMS(-1, 4));
    (void)builder_constant(&b, "table", F32, NULL, DIMS(ROWS, 2));
    (void)builder_constant(&b, "fewer", F32, NULL, DIMS(FEWER, 2));
    (void)builder_constant(&b, "wide", F32, NULL, DIMS(2, ROWS));
    (void)builder_constant(&b, "moduli", I64, (const int64_t[]){7, 31, 5, 30}, DIMS(4));
    (void)builder_constant(&b, "first", I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_constant(&b, "last", I64, (const int64_t[]){2}, DIMS(1));
    (void)builder_constant(&b, "axis", I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_constant(&b, "deep", I64, (const int64_t[]){2}, DIMS(1));
}

/* Of the first input. */
static struct leat_made_range
range_of(const char *output)
{
    struct leat_made_range ranges[LEAT_TENSORS_MAX];
    struct leat_graph *graph;

    builder_output(&b, output);
    const enum leat_status status = builder_import(&b, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK && leat_graph_made_ranges(graph, ranges) == LEAT_OK);
    leat_graph_destroy(graph);
    builder_fini(&b);
    return ranges[0];
}

static int64_t
end_of(const char *output)
{
    const struct leat_made_range range = range_of(output);
    EXPECT(range.least == 0);
    return range.end;
}

static void
test_ways(void)
{
    start(I64);
    (void)builder_node(&b, "Gather", "table ids", "y");
    EXPECT(end_of("y") == ROWS);

    start(I32);
    (void)builder_int(&b, builder_node(&b, "Gather", "wide ids", "y"), "axis", -1);
    EXPECT(end_of("y") == ROWS);

    start(I64); /* the least, whichever comes first */
    (void)builder_node(&b, "Gather", "fewer ids", "x");
    (void)builder_node(&b, "Gather", "table ids", "z");
    (void)builder_node(&b, "Add", "x z", "y");
    EXPECT(end_of("y") == FEWER);

    start(I64);
    (void)builder_node(&b, "Slice", "ids first last axis", "part");
    (void)builder_int(&b, builder_node(&b, "Concat", "part part", "twice"), "axis", 1);
    (void)builder_node(&b, "Unsqueeze", "twice deep", "apart");
    (void)builder_node(&b, "Gather", "table apart", "y");
    EXPECT(end_of("y") == ROWS);

    start(I64); /* some of the indices */
    (void)builder_int(&b, builder_node(&b, "Gather", "ids last", "some"), "axis", 1);
    (void)builder_node(&b, "Gather", "table some", "y");
    EXPECT(end_of("y") == ROWS);

    start(I64); /* by the remainder: the greatest divisor, whatever the table */
    (void)builder_node(&b, "Mod", "ids moduli", "below");
    (void)builder_node(&b, "Gather", "table below", "y");
    EXPECT(end_of("y") == 31);
}

static void
test_nothing(void)
{
    start(I64); /* made of the number, not the number */
    (void)builder_node(&b, "Add", "ids moduli", "more");
    (void)builder_node(&b, "Gather", "table more", "y");
    EXPECT(end_of("y") == 0);

    start(I64); /* a remainder that is no index */
    (void)builder_node(&b, "Mod", "ids moduli", "y");
    EXPECT(end_of("y") == 0);

    start(F32); /* what is no whole number is no index */
    (void)builder_int(&b, builder_node(&b, "Cast", "ids", "whole"), "to", I64);
    (void)builder_node(&b, "Gather", "table whole", "y");
    EXPECT(end_of("y") == 0);

    start(I64); /* as many rows as there are items */
    (void)builder_input(&b, "own", F32, DIMS(-1, 2));
    (void)builder_node(&b, "Gather", "own ids", "y");
    EXPECT(end_of("y") == 0);
}

/* ---- Sequences and loops ---------------------------------------------------------------------------- */

enum { STEPS = 9, FEWER_STEPS = 6, BOOL = 9 };

/* lens: i32[N]; x: f32[N][STEPS][2], and [STEPS][N][2]; of both, the first steps alone; weights of all three. */
static void
start_sequences(int type)
{
    builder_init(&b, 14);
    (void)builder_input(&b, "lens", type, DIMS(-1));
    (void)builder_input(&b, "rows", F32, DIMS(-1, STEPS, 2));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "rows", "x"), "perm", (const int64_t[]){1, 0, 2}, 3);
    (void)builder_constant(&b, "zero", I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_constant(&b, "fewer", I64, (const int64_t[]){FEWER_STEPS}, DIMS(1));
    (void)builder_node(&b, "Slice", "x zero fewer", "short");
    (void)builder_constant(&b, "w1", F32, NULL, DIMS(1, 2, 2));
    (void)builder_constant(&b, "w3", F32, NULL, DIMS(1, 6, 2));
    (void)builder_constant(&b, "w4", F32, NULL, DIMS(1, 8, 2));
    (void)builder_constant(&b, "table", F32, NULL, DIMS(ROWS, 2));
    (void)builder_constant(&b, "least", I32, (const int32_t[]){1}, NULL, 0);
}

static void
expect_length(const char *output, int64_t length)
{
    const struct leat_made_range range = range_of(output);
    EXPECT(range.least == length && range.end == length + 1);
}

static void
test_sequences(void)
{
    static const char *const ops[][2] = {{"RNN", "x w1 w1 - lens"}, {"GRU", "x w3 w3 - lens"}, {"LSTM", "x w4 w4 - lens"}};

    for (size_t o = 0; o < LEAT_COUNT_OF(ops); o++) {
        start_sequences(I32);
        (void)builder_int(&b, builder_node(&b, ops[o][0], ops[o][1], "y"), "hidden_size", 2);
        expect_length("y", STEPS);
    }
    start_sequences(I32); /* steps are the second axis */
    Onnx__NodeProto *node = builder_node(&b, "GRU", "rows w3 w3 - lens", "y");
    (void)builder_int(&b, node, "hidden_size", 2);
    (void)builder_int(&b, node, "layout", 1);
    expect_length("y", STEPS);

    start_sequences(I64);
    node = builder_node(&b, "ReverseSequence", "rows lens", "y");
    (void)builder_int(&b, node, "time_axis", 1);
    (void)builder_int(&b, node, "batch_axis", 0);
    expect_length("y", STEPS);
    start_sequences(I64); /* the first axis is that of time */
    (void)builder_node(&b, "ReverseSequence", "x lens", "y");
    expect_length("y", STEPS);

    start_sequences(I64); /* the least, whichever comes first, of what bounds and casts leave */
    (void)builder_int(&b, builder_node(&b, "Cast", "lens", "whole"), "to", I32);
    (void)builder_node(&b, "Clip", "whole least", "some");
    (void)builder_int(&b, builder_node(&b, "GRU", "x w3 w3 - some", "a"), "hidden_size", 2);
    (void)builder_int(&b, builder_node(&b, "GRU", "short w3 w3 - some", "c"), "hidden_size", 2);
    (void)builder_int(&b, builder_node(&b, "GRU", "x w3 w3 - some", "d"), "hidden_size", 2);
    (void)builder_int(&b, builder_node(&b, "Concat", "a c d", "y"), "axis", 0);
    expect_length("y", FEWER_STEPS);

    start_sequences(I32); /* an index that is a length as well */
    (void)builder_int(&b, builder_node(&b, "GRU", "x w3 w3 - lens", "- h"), "hidden_size", 2);
    (void)builder_node(&b, "Gather", "table lens", "rest");
    (void)builder_node(&b, "Add", "h rest", "y");
    expect_length("y", STEPS);

    builder_init(&b, 14); /* as many steps as a query has */
    (void)builder_input(&b, "lens", I32, DIMS(-1));
    (void)builder_input(&b, "x", F32, DIMS(-2, -1, 2));
    (void)builder_constant(&b, "w3", F32, NULL, DIMS(1, 6, 2));
    (void)builder_int(&b, builder_node(&b, "GRU", "x w3 w3 - lens", "y"), "hidden_size", 2);
    EXPECT(end_of("y") == 0);
}

/* A state that is doubled in each of `count` iterations, while `go`. */
static void
start_loop(struct builder *body, const char *first, int type, const char *own)
{
    builder_init(body, 16);
    (void)builder_input(body, "i", I64, NULL, 0);
    (void)builder_input(body, "on", BOOL, NULL, 0);
    (void)builder_input(body, "s", F32, DIMS(2));
    (void)builder_node(body, "Identity", "on", "still");
    (void)builder_node(body, "Add", "s s", "twice");
    builder_output(body, "still");
    builder_output(body, "twice");
    builder_init(&b, 16);
    (void)builder_input(&b, first, type, DIMS(1));
    (void)builder_input(&b, "x", F32, DIMS(2));
    builder_graph(&b, builder_node(&b, "Loop", own, "y"), "body", body);
}

static void
test_loops(void)
{
    struct builder body;

    start_loop(&body, "count", I64, "count - x");
    expect_length("y", LEAT_MADE_TRIPS);
    builder_fini(&body);
    start_loop(&body, "go", BOOL, "- go x");
    expect_length("y", 1);
    builder_fini(&body);
    start_loop(&body, "count", I64, "count - x"); /* what is known comes before what is guessed, wherever */
    (void)builder_constant(&b, "table", F32, NULL, DIMS(ROWS, 2));
    (void)builder_node(&b, "Gather", "table count", "row");
    (void)builder_node(&b, "Add", "row y", "z");
    EXPECT(end_of("z") == ROWS);
    builder_fini(&body);
}

/* ---- Fillings --------------------------------------------------------------------------------------- */

static void
test_fillings(void)
{
    enum { COUNT = 1000 };
    static const struct leat_made_range rows = {0, FEWER}, length = {STEPS, STEPS + 1}, truth = {1, 2}, nothing = {0, 0};
    int64_t wide[COUNT], again[COUNT];
    int32_t narrow[COUNT];
    uint8_t flags[COUNT];
    uint64_t drawn = 0, redrawn = 0;
    uint32_t seen = 0;

    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_I64, rows, COUNT, &drawn, wide);
    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_I32, rows, COUNT, &redrawn, narrow);
    for (uint32_t i = 0; i < COUNT; i++) {
        EXPECT(wide[i] >= 0 && wide[i] < FEWER && narrow[i] == wide[i]);
        seen |= UINT32_C(1) << wide[i];
    }
    EXPECT(seen == (UINT32_C(1) << FEWER) - 1 && drawn == COUNT);
    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_I64, rows, COUNT, &drawn, again);
    EXPECT(memcmp(wide, again, sizeof(wide)) != 0);

    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_I32, length, COUNT, &drawn, narrow);
    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_BOOL, truth, COUNT, &drawn, flags);
    leat_made_fill(LEAT_FILLING_DRAWN, LEAT_DTYPE_I64, nothing, COUNT, &drawn, wide);
    leat_made_fill(LEAT_FILLING_ZEROS, LEAT_DTYPE_I64, rows, COUNT, &drawn, again);
    for (uint32_t i = 0; i < COUNT; i++) {
        EXPECT(narrow[i] == STEPS && flags[i] == 1 && wide[i] == 0 && again[i] == 0);
    }
    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX; dtype++) {
        static const unsigned char f32[] = {0, 0, 0x80, 0x3f}, f64[] = {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, whole[8] = {1};
        static const unsigned char f16[] = {0, 0x3c}, bf16[] = {0x80, 0x3f};
        const unsigned char *const one = dtype == LEAT_DTYPE_F32    ? f32
                                         : dtype == LEAT_DTYPE_F64  ? f64
                                         : dtype == LEAT_DTYPE_F16  ? f16
                                         : dtype == LEAT_DTYPE_BF16 ? bf16
                                                                    : whole;
        const size_t bytes = leat_dtype_bytes(dtype);
        unsigned char elements[4 * 8] = {0};
        leat_made_fill(LEAT_FILLING_ONES, dtype, rows, 3, &drawn, elements);
        for (size_t i = 0; i < 3; i++) {
            EXPECT(memcmp(elements + i * bytes, one, bytes) == 0);
        }
        EXPECT(elements[3 * bytes] == 0);
    }
}

int
main(void)
{
    leat_test_init();
    test_zoo();
    test_ways();
    test_nothing();
    test_sequences();
    test_loops();
    test_fillings();
    return 0;
}
