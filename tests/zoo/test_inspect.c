/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Of every network that the engine runs: its nodes' multiply-adds add up to what leat-zoo says it has, before and after
 *          the passes; an inspection has its steps in order, each of a node, calls between them, needs no less memory than its
 *          bound, and runs again and again, alone and on a team; costs saturate and count what is read of a table alone.
 *          Of a file that is quantised it says which products are done in floats, and why.
 * Method   Test sizes at nominal lengths.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cost.h"
#include "kernels/cpu/inspect.h"
#include "kernels/cpu/loops/fours.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/op.h"
#include "kernels/team.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

static void
note_flop(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    (void)model;
    *(uint64_t *)context = summary->flop_per_item;
}

static uint64_t
product_flop(const struct leat_graph *graph)
{
    uint64_t flop = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_cost cost = leat_node_cost(graph, &graph->nodes[n]);
        EXPECT(cost.product_flop < UINT64_MAX && cost.bytes < UINT64_MAX);
        flop += cost.product_flop;
    }
    return flop;
}

struct marks {
    uint32_t next;
};

static void
note_mark(void *context, uint32_t count)
{
    struct marks *marks = context;
    EXPECT(count == marks->next);
    marks->next++;
}

/* Whether the cpu backend has it. */
static bool
check_inspection(const struct zoo_model *model, const struct leat_graph *graph, struct leat_team *team)
{
    struct leat_inspection *inspection = NULL;
    struct leat_inspection_step step;
    void *inputs[LEAT_TENSORS_MAX] = {NULL};
    uint32_t node = 0;

    const enum leat_status status = leat_inspection_create(graph, LEAT_PRECISION_F32, 2, leat_team_size(team), &inspection);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: not inspected: %s\n", model->name, leat_error_text());
        EXPECT(status == LEAT_ERR_UNSUPPORTED);
        return false;
    }
    const struct leat_graph *shown = leat_inspection_graph(inspection);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        leat_inspection_step(inspection, s, &step);
        EXPECT(step.kernel[0] != '\0' && step.node >= node);
        EXPECT(step.node < shown->node_count || (step.node == LEAT_VALUE_NONE && step.converts));
        node = step.node;
    }
    EXPECT(leat_inspection_bound_bytes(inspection) > 0);
    EXPECT(leat_inspection_planned_bytes(inspection) >= leat_inspection_bound_bytes(inspection));
    EXPECT(leat_inspection_model_bytes(inspection) > 0);
    for (uint32_t i = 0; i < shown->input_count; i++) {
        const size_t bytes = leat_value_bytes(&shown->values[shown->inputs[i]]);
        inputs[i] = calloc(1, bytes + 1);
        EXPECT(inputs[i] != NULL);
    }
    for (int round = 0; round < 3; round++) {
        struct marks marks = {0};
        EXPECT(leat_inspection_run(inspection, (const void *const *)inputs, team, round == 1 ? NULL : note_mark, &marks) ==
               LEAT_OK);
        EXPECT(marks.next == (round == 1 ? 0 : leat_inspection_step_count(inspection) + 1));
    }
    for (uint32_t i = 0; i < shown->input_count; i++) {
        free(inputs[i]);
    }
    leat_inspection_destroy(inspection);
    return true;
}

static bool
test_network(const struct zoo_model *model, struct leat_team *team)
{
    struct leat_graph *graph = NULL, *alone = NULL;
    uint64_t flop = 0, passes;
    bool ran = false;
    size_t size;
    void *file;

    EXPECT(zoo_write(model, ZOO_SIZE_TEST, 1, &file, &size) == LEAT_OK);
    EXPECT(zoo_describe(model, ZOO_SIZE_TEST, note_flop, &flop) == LEAT_OK);
    enum leat_status status = leat_onnx_import(file, size, &graph);
    free(file);
    if (status == LEAT_OK) {
        status = zoo_lengths(model, ZOO_SIZE_TEST, graph);
    }
    EXPECT(leat_passes_without("fold-constants", &passes) == LEAT_OK); /* products, too: of positions in conformers */
    for (int optimised = 0; optimised < 2 && status == LEAT_OK; optimised++) {
        if (optimised == 1) {
            EXPECT(leat_graph_optimise(graph, passes) == LEAT_OK);
        }
        status = leat_graph_specialise(graph, 1, &alone);
        if (status == LEAT_OK) {
            const uint64_t got = product_flop(alone);
            if (got != flop) {
                (void)fprintf(stderr, "%s %s the passes: %llu FLOP, not %llu\n", model->name, optimised == 1 ? "after" : "before",
                              (unsigned long long)got, (unsigned long long)flop);
            }
            EXPECT(got == flop);
            leat_graph_destroy(alone);
            ran = check_inspection(model, graph, optimised == 1 ? team : NULL);
        }
    }
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: left out: %s\n", model->name, leat_error_text());
        EXPECT(status == LEAT_ERR_UNSUPPORTED);
    }
    leat_graph_destroy(graph);
    return ran;
}

/* Four rows of 2^20 floats, of which two are read; their sum; the same in another shape. */
static void
test_costs(void)
{
    struct leat_graph *graph = NULL, *alone = NULL;
    struct builder builder;
    static const int64_t shape[] = {-1, 1024, 1024};

    builder_init(&builder, 13);
    builder_input(&builder, "i", 7, DIMS(-1));
    builder_constant(&builder, "table", 1, NULL, DIMS(4, 1 << 20));
    builder_constant(&builder, "shape", 7, shape, DIMS(3));
    builder_node(&builder, "Gather", "table i", "rows");
    builder_node(&builder, "Reshape", "rows shape", "square");
    builder_node(&builder, "ReduceSum", "square", "y");
    builder_output(&builder, "y");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 2, &alone) == LEAT_OK);
    EXPECT(alone->node_count == 3);
    const struct leat_cost gather = leat_node_cost(alone, &alone->nodes[0]);
    EXPECT(gather.product_flop == 0 && gather.other_flop == 0 && gather.bytes == 2 * (2 << 22) + 2 * sizeof(int64_t));
    const struct leat_cost reshape = leat_node_cost(alone, &alone->nodes[1]);
    EXPECT(reshape.product_flop == 0 && reshape.other_flop == 0 && reshape.bytes == 0);
    const struct leat_cost sum = leat_node_cost(alone, &alone->nodes[2]);
    EXPECT(sum.product_flop == 0 && sum.other_flop == 2 << 20 && sum.bytes == (2 << 22) + sizeof(float));
    leat_graph_destroy(alone);
    leat_graph_destroy(graph);
    builder_fini(&builder);
}

/* One node of what takes more than its results show: its work for a batch of 2 must be `expected`, and its graph that of "y". */
static void
expect_work(struct builder *builder, uint64_t expected)
{
    struct leat_graph *graph = NULL, *alone = NULL;

    builder_output(builder, "y");
    EXPECT(builder_import(builder, &graph) == LEAT_OK && leat_graph_specialise(graph, 2, &alone) == LEAT_OK);
    EXPECT(leat_graph_work(alone) == expected);
    leat_graph_destroy(alone);
    leat_graph_destroy(graph);
    builder_fini(builder);
}

/* A batch of two transforms of so many elements. */
static void
expect_transform(int64_t length, int64_t parts, uint64_t flop)
{
    struct builder builder;

    builder_init(&builder, 17);
    builder_input(&builder, "x", 1, DIMS(-1, length, parts));
    (void)builder_int(&builder, builder_node(&builder, "DFT", "x", "y"), "axis", 1);
    expect_work(&builder, LEAT_WORK_OF_LOOPS * 2 * flop);
}

static void
test_costly_operators(void)
{
    static const int64_t step = 4, most = 3, eight = 8;
    static const float overlap = 0.5f;
    struct builder builder;

    const uint64_t four = 8 * 2 + 3 * 6, joined = 14 * 5; /* a pass over four points, 5 bins made of their transform */
    expect_transform(8, 1, four + joined);
    expect_transform(8, 2, 2 * four + 4 * (2 * 2 + 6)); /* twice 4 points, four times 2 */
    expect_transform(15, 1, 5 * (4 + 2 + 8 + 4 + 2 * 6) + 3 * (2 * (4 + 2 + 2 * 8 + 4) + 4 * 6));
    const uint64_t convolved = 3 * (128 / 4 * four) + 128 / 2 * (2 * 2 + 6); /* 37 is prime, and 73 numbers or more do */
    expect_transform(37, 2, 2 * convolved + 6 * (2 * 37 + 128));
    const uint64_t half = 1 << 21, passes = 10 * (half / 4 * four) + half / 2 * (2 * 2 + 6);
    expect_transform(2 * (1 << 21), 1, passes + 14 * (half + 1)); /* what limits.item_gflop is by default has room for it */
    EXPECT(LEAT_WORK_OF_LOOPS * (passes + 14 * (half + 1)) < UINT64_C(1000000000) * 1000);

    builder_init(&builder, 17); /* 3 frames of 8 numbers, each times the window's, 5 bins */
    builder_input(&builder, "x", 1, DIMS(-1, 16, 1));
    builder_constant(&builder, "step", 7, &step, NULL, 0);
    builder_constant(&builder, "window", 1, NULL, DIMS(8));
    builder_node(&builder, "STFT", "x step window", "y");
    expect_work(&builder, LEAT_WORK_OF_LOOPS * (2 * 3) * (four + joined + 8));

    builder_init(&builder, 17); /* the same without a window */
    builder_input(&builder, "x", 1, DIMS(-1, 16, 1));
    builder_constant(&builder, "step", 7, &step, NULL, 0);
    builder_constant(&builder, "length", 7, &eight, NULL, 0);
    builder_node(&builder, "STFT", "x step - length", "y");
    expect_work(&builder, LEAT_WORK_OF_LOOPS * (2 * 3) * (four + joined));

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 6, 6));
    builder_node(&builder, "Det", "x", "y");
    expect_work(&builder, LEAT_WORK_OF_LOOPS * 2 * (2 * 6 * 6) * 6);

    builder_init(&builder, 13); /* 100 boxes of each class beside the 3 that are selected at most, and one */
    builder_input(&builder, "boxes", 1, DIMS(-1, 100, 4));
    builder_input(&builder, "scores", 1, DIMS(-1, 5, 100));
    builder_constant(&builder, "most", 7, &most, NULL, 0);
    builder_constant(&builder, "overlap", 1, &overlap, NULL, 0);
    builder_node(&builder, "NonMaxSuppression", "boxes scores most overlap", "y");
    expect_work(&builder, LEAT_WORK_OF_LOOPS * (2 * 5 * 100) * (3 + 1));

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 3, 4, 4));
    (void)builder_int(&builder, builder_node(&builder, "LRN", "x", "y"), "size", 5);
    expect_work(&builder, LEAT_WORK_OF_LOOPS * (2 * 3 * 4 * 4) * 5);

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 3, 4));
    builder_node(&builder, "Transpose", "x", "y");
    expect_work(&builder, LEAT_WORK_OF_BYTES * 2 * (2 * 3 * 4 * sizeof(float)));
}

/* Products in disguise, and in a loop that ends when contents say so. */
static void
test_work(void)
{
    struct leat_graph *graph = NULL, *alone = NULL;
    struct builder builder, body;

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 4, 6));
    builder_constant(&builder, "w", 1, NULL, DIMS(6, 5));
    (void)builder_string(&builder, builder_node(&builder, "Einsum", "x w", "y"), "equation", "bij,jk->bik");
    builder_output(&builder, "y");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK && leat_graph_specialise(graph, 3, &alone) == LEAT_OK);
    EXPECT(leat_graph_work(alone) == LEAT_WORK_OF_LOOPS * 2 * 3 * 4 * 6 * 5);
    leat_graph_destroy(alone);
    leat_graph_destroy(graph);
    builder_fini(&builder);

    builder_init(&body, 13);
    builder_input(&body, "i", 7, NULL, 0);
    builder_input(&body, "more_in", 9, NULL, 0);
    builder_input(&body, "s", 1, DIMS(1, 4, 4));
    builder_constant(&body, "factor", 1, NULL, DIMS(4, 4));
    builder_node(&body, "Identity", "more_in", "more");
    builder_node(&body, "MatMul", "s factor", "t");
    builder_output(&body, "more");
    builder_output(&body, "t");
    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 4, 4));
    (void)builder_int(&builder, builder_node(&builder, "ReduceMax", "x", "most"), "keepdims", 0);
    (void)builder_int(&builder, builder_node(&builder, "Cast", "most", "n"), "to", 7);
    builder_graph(&builder, builder_node(&builder, "Loop", "n - x", "y"), "body", &body);
    builder_output(&builder, "y");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK && leat_graph_specialise(graph, 1, &alone) == LEAT_OK);
    const uint64_t product = 2 * 4 * 4 * 4, others = LEAT_WORK_OF_LOOPS * 4 * 4 + LEAT_WORK_OF_BYTES * (4 + 8);
    EXPECT(leat_graph_work(alone) == LEAT_TRIPS_MAX * product + others);
    leat_graph_destroy(alone);
    leat_graph_destroy(graph);
    builder_fini(&builder);
    builder_fini(&body);
}

/* A body whose product is of [size][size], and which runs another, unless that is NULL, in a Loop of `count` iterations. */
static void
begin_body(struct builder *body, int64_t size, const char *count, struct builder *inner)
{
    builder_init(body, 13);
    builder_input(body, "i", 7, NULL, 0);
    builder_input(body, "more_in", 9, NULL, 0);
    builder_input(body, "s", 1, DIMS(1, size, size));
    builder_constant(body, "factor", 1, NULL, DIMS(size, size));
    builder_node(body, "Identity", "more_in", "more");
    builder_node(body, "MatMul", "s factor", "t");
    if (inner != NULL) {
        char inputs[32];
        (void)snprintf(inputs, sizeof(inputs), "%s - t", count);
        builder_graph(body, builder_node(body, "Loop", inputs, "u"), "body", inner);
    }
    builder_output(body, "more");
    builder_output(body, inner != NULL ? "u" : "t");
}

/*
 * What loops compute, inside each other or one after the other, is bounded by the iterations that they have all together:
 * "n" is a count that contents decide, "few" is 3000, too many to be unrolled.
 */
static void
expect_loops(const char *outer, const char *inner, const char *second, uint64_t products, uint64_t small_products)
{
    enum { SIZE = 16, SMALL = 8, FEW = 3000 };
    const uint64_t product = 2 * SIZE * SIZE * SIZE, small = 2 * SMALL * SMALL * SMALL;
    const int64_t few = FEW;
    struct builder builder, body, inner_body, second_body;
    struct leat_graph *graph = NULL, *alone = NULL;
    char inputs[32];

    begin_body(&inner_body, SIZE, NULL, NULL);
    begin_body(&body, SIZE, inner, inner != NULL ? &inner_body : NULL);
    begin_body(&second_body, SMALL, NULL, NULL);
    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, SIZE, SIZE));
    builder_input(&builder, "z", 1, DIMS(-1, SMALL, SMALL));
    builder_constant(&builder, "few", 7, &few, NULL, 0);
    (void)builder_int(&builder, builder_node(&builder, "ReduceMax", "x", "most"), "keepdims", 0);
    (void)builder_int(&builder, builder_node(&builder, "Cast", "most", "n"), "to", 7);
    (void)snprintf(inputs, sizeof(inputs), "%s - x", outer);
    builder_graph(&builder, builder_node(&builder, "Loop", inputs, "y"), "body", &body);
    (void)snprintf(inputs, sizeof(inputs), "%s - z", second);
    builder_graph(&builder, builder_node(&builder, "Loop", inputs, "w"), "body", &second_body);
    builder_output(&builder, "y");
    builder_output(&builder, "w");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK && leat_graph_specialise(graph, 1, &alone) == LEAT_OK);
    const uint64_t expected = products * product + small_products * small, work = leat_graph_work(alone);
    if (work < expected || work > expected + expected / 16 + product) {
        (void)fprintf(stderr, "%s, %s inside, then %s: %llu instead of %llu\n", outer, inner != NULL ? inner : "none",
                      second, (unsigned long long)work, (unsigned long long)expected);
    }
    EXPECT(work >= expected && work <= expected + expected / 16 + product); /* results of loops count, too */
    leat_graph_destroy(alone);
    leat_graph_destroy(graph);
    builder_fini(&builder);
    builder_fini(&second_body);
    builder_fini(&body);
    builder_fini(&inner_body);
}

static void
test_loops(void)
{
    expect_loops("n", NULL, "n", LEAT_TRIPS_MAX, 0);
    expect_loops("n", "n", "n", LEAT_TRIPS_MAX, 0);
    expect_loops("n", "few", "n", LEAT_TRIPS_MAX, 0);
    expect_loops("few", "n", "few", LEAT_TRIPS_MAX, 0);
    expect_loops("few", "few", "few", LEAT_TRIPS_MAX, 0);
    expect_loops("few", NULL, "few", 3000, 3000);
    expect_loops("few", NULL, "n", 3000, LEAT_TRIPS_MAX - 3000);
    expect_loops("n", NULL, "few", LEAT_TRIPS_MAX, 0);
}

/* Two products of numbers, whose weights have this type and zero point, one of two results, and one whose first factor is the constant. */
static void
test_numbers(int type, uint8_t point)
{
    static const uint8_t weights[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, zero = 0;
    static const float step = 0.0625f;
    struct leat_graph *file = NULL, *graph = NULL;
    struct leat_inspection *inspection = NULL;
    struct leat_inspection_numbers numbers;
    struct builder builder;

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 4, 4));
    builder_constant(&builder, "w", type, weights, DIMS(4, 4));
    builder_constant(&builder, "s", 1, &step, NULL, 0);
    builder_constant(&builder, "z", 2, &zero, NULL, 0);
    builder_constant(&builder, "wz", type, &point, NULL, 0);
    builder_node(&builder, "QuantizeLinear", "x s z", "xq");
    builder_node(&builder, "QLinearMatMul", "xq s z w s wz s z", "aq");
    builder_node(&builder, "DequantizeLinear", "aq s z", "a");
    builder_node(&builder, "DequantizeLinear", "w s wz", "wf");
    builder_node(&builder, "MatMul", "a wf", "b");
    builder_node(&builder, "QuantizeLinear", "b s z", "bq");
    builder_node(&builder, "DequantizeLinear", "bq s z", "c");
    builder_node(&builder, "MatMul", "a c", "d");
    builder_node(&builder, "QuantizeLinear", "d s z", "dq");
    builder_node(&builder, "QLinearMatMul", "w s wz dq s z s z", "y");
    builder_output(&builder, "y");
    EXPECT(builder_import(&builder, &file) == LEAT_OK && leat_graph_copy(file, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 2, 1, &inspection) == LEAT_OK);
    EXPECT(leat_inspection_numbers(inspection, file, &numbers) == LEAT_OK);
    const bool whole = cpu_weights_most(false, dnnl_u8) == INT8_MAX || cpu_fours_run_here(), usual = type == 3 && point == 0;
    EXPECT(numbers.products == 4 && numbers.in_floats[LEAT_IN_FLOATS_COMPUTED] == 1);
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_FIRST] == 1);
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_WEIGHTS] == (usual ? 0 : 2));
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_PROCESSOR] == (usual && !whole ? 2 : 0));
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_OTHER] == 0);
    leat_inspection_destroy(inspection);
    leat_graph_destroy(graph);
    leat_graph_destroy(file);
    builder_fini(&builder);
}

/* Two groups: without VNNI in floats, for that it is where kernels are ours, else for the processor. */
static void
test_groups(void)
{
    static const uint8_t weights[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, zero = 0;
    static const float step = 0.0625f;
    struct leat_graph *file = NULL, *graph = NULL;
    struct leat_inspection *inspection = NULL;
    struct leat_inspection_numbers numbers;
    struct builder builder;

    builder_init(&builder, 13);
    builder_input(&builder, "x", 1, DIMS(-1, 8, 3, 3));
    builder_constant(&builder, "w", 3, weights, DIMS(4, 4, 1, 1));
    builder_constant(&builder, "s", 1, &step, NULL, 0);
    builder_constant(&builder, "z", 2, &zero, NULL, 0);
    builder_constant(&builder, "wz", 3, &zero, NULL, 0);
    builder_node(&builder, "QuantizeLinear", "x s z", "xq");
    (void)builder_int(&builder, builder_node(&builder, "QLinearConv", "xq s z w s wz s z", "yq"), "group", 2);
    builder_node(&builder, "DequantizeLinear", "yq s z", "y");
    builder_output(&builder, "y");
    EXPECT(builder_import(&builder, &file) == LEAT_OK && leat_graph_copy(file, &graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 2, 1, &inspection) == LEAT_OK);
    EXPECT(leat_inspection_numbers(inspection, file, &numbers) == LEAT_OK);
    const bool whole = cpu_weights_most(true, dnnl_u8) == INT8_MAX, ours = cpu_fours_run_here();
    EXPECT(numbers.products == 1);
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_SHAPE] == (!whole && ours));
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_PROCESSOR] == (!whole && !ours));
    EXPECT(numbers.in_floats[LEAT_IN_FLOATS_OTHER] == 0);
    EXPECT(strstr(leat_in_floats_text(LEAT_IN_FLOATS_SHAPE), "groups") != NULL);
    leat_inspection_destroy(inspection);
    leat_graph_destroy(graph);
    leat_graph_destroy(file);
    builder_fini(&builder);
}

int
main(void)
{
    struct leat_team *team;
    unsigned ran = 0;

    leat_test_init();
    test_costs();
    test_costly_operators();
    test_work();
    test_loops();
    test_numbers(3, 0);
    test_numbers(3, 1);
    test_numbers(2, 0);
    test_groups();
    EXPECT(leat_team_create(&(struct leat_team_options){.size = 2}, &team) == LEAT_OK);
    for (size_t i = 0; i < zoo_model_count; i++) {
        ran += test_network(&zoo_models[i], team);
    }
    leat_team_destroy(team);
    EXPECT(ran >= 25);
    return 0;
}
