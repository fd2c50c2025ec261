/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     It is known of a model's inputs which are indices, and into how many rows: as many as whoever wrote the model
 *          says, as imported and after the passes; of what is no index, or of rows that are not known, nothing is.
 * Method   Every model of leat-zoo against what it says of its inputs; small graphs for each way from an input to a table.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/index_ends.h"
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
    int64_t ends[LEAT_TENSORS_MAX];

    EXPECT(leat_graph_index_ends(graph, ends) == LEAT_OK && graph->input_count == summary->input_count);
    for (uint32_t i = 0; i < graph->input_count; i++) {
        EXPECT(ends[i] == said(model, &summary->inputs[i]));
        *tables += ends[i] > 0;
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

static int64_t
end_of(const char *output)
{
    int64_t ends[LEAT_TENSORS_MAX];
    struct leat_graph *graph;

    builder_output(&b, output);
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_index_ends(graph, ends) == LEAT_OK);
    leat_graph_destroy(graph);
    builder_fini(&b);
    return ends[0];
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

int
main(void)
{
    leat_test_init();
    test_zoo();
    test_ways();
    test_nothing();
    return 0;
}
