/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Look-ups, alone and several one after the other, sums of looked-up rows and of tensors, ranges of tensors, and
 *          what repeats, permutes or surrounds elements, spreads operands over each other or puts feature maps in several
 *          layouts together give the reference backend's answers on the cpu backend, alone and split between the members of
 *          a team, and an index out of range fails the batch wherever it stands.
 * Method   Random shapes and indices, small ones and such that every member gets its part; elements of one, four and eight
 *          bytes; hostile indices at random places of both halves. Sums may differ in rounding, everything else in no bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/inspect.h"
#include "kernels/op.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(60), TEAM = 2 };

/* What the backend makes of the inputs; NULL when it refuses the batch. */
static float *
answer(const struct leat_backend *backend, const struct leat_graph *graph, struct leat_team *team, const void *const *inputs,
       size_t outputs)
{
    float *y = floats(outputs);
    void *const out[1] = {y};
    struct loaded loaded;

    load_for_team(backend, graph, team, &loaded);
    const enum leat_status status = run(&loaded, inputs, out);
    unload(&loaded);
    EXPECT(status == LEAT_OK || status == LEAT_ERR_SHAPE);
    if (status != LEAT_OK) {
        free(y);
        return NULL;
    }
    return y;
}

/* `graph` on cpu against `plain` on reference; both take the same inputs. */
static void
expect_same(const struct leat_graph *graph, const struct leat_graph *plain, struct leat_team *team, const void *const *inputs,
            float tolerance, bool refused)
{
    const size_t outputs = leat_value_elements(&plain->values[plain->outputs[0]]);
    float *want = answer(&leat_backend_reference, plain, NULL, inputs, outputs);

    EXPECT((want == NULL) == refused);
    for (int with_team = 0; with_team < 2; with_team++) {
        float *have = answer(&leat_backend_cpu, graph, with_team != 0 ? team : NULL, inputs, outputs);
        EXPECT((have == NULL) == refused);
        for (size_t i = 0; !refused && i < outputs; i++) {
            EXPECT(fabsf(have[i] - want[i]) <= tolerance * (1 + fabsf(want[i])));
        }
        free(have);
    }
    free(want);
}

static void
expect_no_plain_loops(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const enum leat_op_kind kind = graph->nodes[n].op->kind;
        EXPECT(kind == LEAT_OP_CAST || kind == LEAT_OP_GREATER || count_plain_loops(graph, kind) == 0);
    }
}

static void
test_slice(struct leat_team *team)
{
    int64_t dims[4], starts[4], ends[4], steps[4], axes[4];
    const size_t rank = (size_t)between(1, 4);
    struct builder b;
    size_t count = 1;

    for (size_t d = 0; d < rank; d++) {
        dims[d] = between(1, between(0, 3) == 0 ? 60 : 9);
        axes[d] = (int64_t)d;
        steps[d] = between(0, 2) == 0 ? between(0, 1) != 0 ? 2 : -1 : 1;
        const int64_t a = between(0, dims[d] - 1), z = between(a, dims[d] - 1);
        const bool whole = between(0, 2) == 0;
        starts[d] = steps[d] < 0 ? (whole ? dims[d] - 1 : z) : whole ? 0 : a;
        ends[d] = steps[d] < 0 ? (whole || a == 0 ? -dims[d] - 1 : a - 1) : whole ? dims[d] : z + 1;
        count *= (size_t)dims[d];
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "starts", ONNX_I64, starts, (const int64_t[]){(int64_t)rank}, 1);
    (void)builder_constant(&b, "ends", ONNX_I64, ends, (const int64_t[]){(int64_t)rank}, 1);
    (void)builder_constant(&b, "axes", ONNX_I64, axes, (const int64_t[]){(int64_t)rank}, 1);
    (void)builder_constant(&b, "steps", ONNX_I64, steps, (const int64_t[]){(int64_t)rank}, 1);
    (void)builder_node(&b, "Slice", "x starts ends axes steps", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    float *x = floats(count);
    expect_same(graph, graph, team, (const void *const[]){x}, 0, false);
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Gather; with `bag`, of two axes of indices whose rows are added up, fused by its pass. */
static void
test_look_up(struct leat_team *team, bool bag)
{
    const int64_t rows = between(1, 50), width = bag ? between(1, 100) : between(1, 40);
    const int64_t items = between(1, 40), each = between(1, 30), axis = bag ? 0 : between(0, 1);
    const bool narrow = between(0, 1) != 0;
    const int64_t along = axis == 0 ? rows : width;
    const size_t count = (size_t)(items * each);
    float *table = floats((size_t)(rows * width));
    int64_t *wide = malloc(count * sizeof(*wide));
    int32_t *indices = malloc(count * sizeof(*indices));
    struct builder b;

    EXPECT(wide != NULL && indices != NULL);
    const bool hostile = between(0, 2) == 0;
    const size_t wrong = (size_t)between(0, (int64_t)count - 1);
    for (size_t i = 0; i < count; i++) {
        wide[i] = between(-along, along - 1);
        if (hostile && i == wrong) {
            wide[i] = between(0, 1) != 0 ? along + between(0, 1000) : -along - 1 - between(0, 1000);
        }
        indices[i] = (int32_t)wide[i];
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "i", narrow ? ONNX_I32 : ONNX_I64, DIMS(items, each));
    (void)builder_constant(&b, "table", ONNX_F32, table, DIMS(rows, width));
    (void)builder_int(&b, builder_node(&b, "Gather", "table i", bag ? "g" : "y"), "axis", axis);
    if (bag) {
        const int64_t one = 1;
        (void)builder_constant(&b, "one", ONNX_I64, &one, DIMS(1));
        (void)builder_int(&b, builder_node(&b, "ReduceSum", "g one", "y"), "keepdims", 0);
    }
    builder_output(&b, "y");
    struct leat_graph *plain = import_graph(&b), *fused = import_graph(&b);
    EXPECT(leat_graph_optimise(fused, ~UINT64_C(0)) == LEAT_OK && fused->node_count == 1);
    EXPECT(fused->nodes[0].op->kind == (bag ? LEAT_OP_EMBEDDING_BAG : LEAT_OP_GATHER));
    const void *const inputs[1] = {narrow ? (const void *)indices : (const void *)wide};
    expect_same(fused, plain, team, inputs, bag ? 1e-5f : 0, hostile);
    leat_graph_destroy(plain);
    leat_graph_destroy(fused);
    builder_fini(&b);
    free(table);
    free(wide);
    free(indices);
}

/*
 * In several tables, one after the other, by indices that are computed before the first and dead behind their look-up; now
 * and then in a table that another look-up made just before. What they find is added up, so that little else takes room. One index
 * may be out of range.
 */
static void
test_look_ups(struct leat_team *team)
{
    const bool large = between(0, 1) != 0; /* enough for a team */
    const uint32_t tables = (uint32_t)(large ? between(12, 30) : between(2, 12));
    const bool chained = between(0, 1) != 0; /* a made table has as many rows as are looked up in it, as all that is done at once */
    const int64_t items = large ? between(100, 120) : between(1, 5), rows = chained ? items : between(1, 50);
    const int64_t columns = large ? between(7, 12) : between(1, 4);
    const bool hostile = between(0, 2) == 0;
    const uint32_t wrong = (uint32_t)between(0, tables - 1);
    int64_t *indices = malloc((size_t)items * tables * sizeof(*indices)), zero = 0;
    int64_t *row_numbers = malloc((size_t)rows * sizeof(*row_numbers));
    char name[32], operands[64], all[2048] = "";
    struct builder b;

    EXPECT(indices != NULL && row_numbers != NULL);
    builder_init(&b, 13);
    (void)builder_input(&b, "i", ONNX_I64, DIMS(tables, items));
    (void)builder_constant(&b, "zero", ONNX_I64, &zero, NULL, 0);
    for (size_t i = 0; i < (size_t)items * tables; i++) {
        indices[i] = between(-rows, rows - 1);
    }
    if (hostile) { /* now and then more than one: the first is named */
        indices[(chained ? wrong : between(wrong, tables - 1)) * items + between(0, items - 1)] = rows;
        indices[wrong * items + between(0, items - 1)] = between(0, 1) != 0 ? rows : -rows - 1;
    }
    for (int64_t r = 0; r < rows; r++) {
        row_numbers[r] = between(-rows, rows - 1);
    }
    (void)builder_input(&b, "r", ONNX_I64, DIMS(rows));
    (void)builder_node(&b, "Add", "r zero", "r0"); /* as deep as the others */
    (void)builder_node(&b, "Add", "r0 zero", "rows");
    for (uint32_t k = 0; k < tables; k++) {
        const int64_t which = k;
        (void)snprintf(name, sizeof(name), "k%u", k);
        (void)builder_constant(&b, name, ONNX_I64, &which, NULL, 0);
        (void)snprintf(operands, sizeof(operands), "i k%u", k);
        (void)snprintf(name, sizeof(name), "row%u", k);
        (void)builder_int(&b, builder_node(&b, "Gather", operands, name), "axis", 0);
        (void)snprintf(operands, sizeof(operands), "row%u zero", k);
        (void)snprintf(name, sizeof(name), "j%u", k);
        (void)builder_node(&b, "Add", operands, name);
    }
    for (uint32_t k = 0; k < tables; k++) {
        float *table = floats((size_t)(rows * columns));
        const bool made = chained && between(0, 1) != 0;
        (void)snprintf(name, sizeof(name), made ? "from%u" : "table%u", k);
        (void)builder_constant(&b, name, ONNX_F32, table, DIMS(rows, columns));
        free(table);
        if (made) {
            (void)snprintf(operands, sizeof(operands), "from%u rows", k);
            (void)snprintf(name, sizeof(name), "table%u", k);
            (void)builder_node(&b, "Gather", operands, name);
        }
        (void)snprintf(operands, sizeof(operands), "table%u j%u", k, k);
        (void)snprintf(name, sizeof(name), "y%u", k);
        builder_node(&b, "Gather", operands, name)->name = strcpy(builder_alloc(&b, sizeof(name)), name);
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%sy%u", k > 0 ? " " : "", k);
    }
    (void)builder_node(&b, "Sum", all, "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_same(graph, graph, team, (const void *const[]){indices, row_numbers}, 0, hostile);
    (void)snprintf(name, sizeof(name), "'y%u'", wrong);
    EXPECT(!hostile || strstr(leat_error_text(), name) != NULL); /* the node is named */
    leat_graph_destroy(graph);
    builder_fini(&b);
    free(indices);
    free(row_numbers);
}

/* Sums and means of tensors, one of which may have to be spread. */
static void
test_total(struct leat_team *team)
{
    const int64_t rows = between(1, between(0, 1) != 0 ? 4 : 300), columns = between(1, 40);
    const uint32_t operands = (uint32_t)between(1, LEAT_TENSORS_MAX - 1);
    const bool spread = operands > 1 && between(0, 3) == 0;
    const void *inputs[LEAT_TENSORS_MAX];
    char name[32], all[256] = "";
    struct builder b;

    builder_init(&b, 13);
    for (uint32_t k = 0; k < operands; k++) {
        const int64_t own_rows = spread && k == 1 ? 1 : rows;
        (void)snprintf(name, sizeof(name), "x%u", k);
        (void)builder_input(&b, name, ONNX_F32, DIMS(own_rows, columns));
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", k > 0 ? " " : "", name);
        inputs[k] = floats((size_t)(own_rows * columns));
    }
    (void)builder_node(&b, between(0, 1) != 0 ? "Sum" : "Mean", all, "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_same(graph, graph, team, inputs, 0, false);
    EXPECT(rows == 1 || (count_plain_loops(graph, graph->nodes[0].op->kind) > 0) == spread);
    for (uint32_t k = 0; k < operands; k++) {
        free((void *)(uintptr_t)inputs[k]);
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* The node `op` with a list of numbers as its second operand. */
static Onnx__NodeProto *
add_with_list(struct builder *b, const char *op, const int64_t *list, size_t count)
{
    (void)builder_constant(b, "list", ONNX_I64, list, (const int64_t[]){(int64_t)count}, 1);
    return builder_node(b, op, "v list", "w");
}

/* One of them on v, which has these dims, makes w. */
static void
add_copy(struct builder *b, int64_t *dims, size_t rank)
{
    int64_t list[2 * LEAT_RANK_MAX];

    switch (between(0, 4)) {
    case 0:
        for (size_t d = 0; d < rank; d++) {
            list[d] = between(1, 3);
        }
        (void)add_with_list(b, "Tile", list, rank);
        break;
    case 1:
        for (size_t d = 0; d < rank; d++) {
            list[1 + d] = dims[d] == 1 ? between(1, 5) : dims[d];
        }
        list[0] = between(1, 3);
        (void)(between(0, 1) != 0 ? add_with_list(b, "Expand", list, rank + 1) : add_with_list(b, "Expand", list + 1, rank));
        break;
    case 2:
        for (size_t d = 0; d < 2 * rank; d++) { /* taken away too, now and then */
            list[d] = between(0, 9) == 0 && dims[d % rank] > 2 ? -1 : between(0, 3);
        }
        (void)builder_string(b, add_with_list(b, "Pad", list, 2 * rank), "mode", between(0, 1) != 0 ? "edge" : "constant");
        break;
    case 3:
        for (size_t d = 0; d < rank; d++) {
            const size_t other = (size_t)between(0, (int64_t)d);
            list[d] = list[other];
            list[other] = (int64_t)d;
        }
        (void)builder_ints(b, builder_node(b, "Transpose", "v", "w"), "perm", list, rank);
        break;
    default: {
        const bool deep = between(0, 1) != 0;
        Onnx__NodeProto *node = builder_node(b, deep ? "DepthToSpace" : "SpaceToDepth", "v", "w");
        (void)builder_int(b, node, "blocksize", 2);
        if (deep) {
            (void)builder_string(b, node, "mode", between(0, 1) != 0 ? "DCR" : "CRD");
        }
    }
    }
}

/* GridSample in all its modes, of points inside, outside, and nowhere. */
static void
test_grid_sample(struct leat_team *team)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"}, *const paddings[] = {"zeros", "border", "reflection"};
    static const float odd_ones[] = {INFINITY, -INFINITY, NAN, 1e30f};
    const int64_t items = between(1, 3), channels = between(1, 9), height = between(1, 12), width = between(1, 12);
    const int64_t rows = between(1, 20), columns = between(1, between(0, 5) == 0 ? 40 : 20);
    const size_t count = (size_t)(items * channels * height * width), points = (size_t)(items * rows * columns);
    struct builder b;

    builder_init(&b, 16);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(items, channels, height, width));
    (void)builder_input(&b, "grid", ONNX_F32, DIMS(items, rows, columns, 2));
    Onnx__NodeProto *node = builder_node(&b, "GridSample", "x grid", "y");
    (void)builder_string(&b, node, "mode", modes[between(0, 3) % 3]);
    (void)builder_string(&b, node, "padding_mode", paddings[between(0, 2)]);
    (void)builder_int(&b, node, "align_corners", between(0, 1));
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    float *x = floats(count), *grid = floats(2 * points);
    const bool inside = between(0, 1) != 0; /* nearly all: some points side by side are */
    for (size_t i = 0; i < 2 * points; i++) {
        grid[i] = between(0, inside ? 200 : 30) == 0 ? odd_ones[between(0, 3)] : grid[i] * (inside ? 0.95f : 2.5f);
    }
    expect_same(graph, graph, team, (const void *const[]){x, grid}, 1e-5f, false);
#if defined(__x86_64__)
    EXPECT(count_plain_loops(graph, LEAT_OP_GRID_SAMPLE) == 0);
#endif
    free(x);
    free(grid);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

static void
test_copy(struct leat_team *team)
{
    static const int types[] = {ONNX_F32, ONNX_I64, ONNX_BOOL};
    const int type = types[between(0, 2)];
    int64_t dims[4];
    struct builder b;
    size_t count = 1;

    for (size_t d = 0; d < 4; d++) { /* blocks of 2 x 2 need what they divide */
        dims[d] = between(0, 3) == 0 && d == 0 ? 1 : d == 1 ? 4 * between(1, 3) : 2 * between(1, between(0, 3) == 0 ? 20 : 4);
        count *= (size_t)dims[d];
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, 4);
    (void)builder_int(&b, builder_node(&b, "Cast", "x", "v"), "to", type);
    add_copy(&b, dims, 4);
    (void)builder_int(&b, builder_node(&b, "Cast", "w", "y"), "to", ONNX_F32);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_no_plain_loops(graph);
    float *x = floats(count);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(i % 3 == 0 ? 0 : i); /* no two of them are one, but of truths */
    }
    expect_same(graph, graph, team, (const void *const[]){x}, 0, false);
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* An input of `rank` axes of `dims`, some of them 1; its payload has no 0. */
static float *
add_operand(struct builder *b, const char *name, const int64_t *dims, size_t rank)
{
    const size_t missing = (size_t)between(0, (int64_t)rank - 1);
    int64_t own[4];
    size_t count = 1;

    for (size_t d = missing; d < rank; d++) {
        own[d] = between(0, 2) == 0 ? 1 : dims[d];
        count *= (size_t)own[d];
    }
    (void)builder_input(b, name, ONNX_F32, own + missing, rank - missing);
    float *payload = floats(count);
    for (size_t i = 0; i < count; i++) {
        payload[i] = payload[i] == 0 ? 1 : payload[i];
    }
    return payload;
}

/* Operands that are spread over each other. */
static void
test_broadcast(struct leat_team *team)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div", "Where"};
    const size_t rank = (size_t)between(1, 4), op = (size_t)between(0, 4);
    int64_t dims[4];
    struct builder b;

    for (size_t d = 0; d < rank; d++) {
        dims[d] = between(1, between(0, 3) == 0 ? 40 : 6);
    }
    builder_init(&b, 13);
    float *x = add_operand(&b, "a", dims, rank), *y = add_operand(&b, "b", dims, rank), *z = NULL;
    if (op == 4) {
        z = add_operand(&b, "c", dims, rank);
        (void)builder_constant(&b, "zero", ONNX_F32, (const float[]){0}, NULL, 0);
        (void)builder_node(&b, "Greater", "c zero", "truth");
    }
    (void)builder_node(&b, ops[op], op == 4 ? "truth a b" : "a b", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_no_plain_loops(graph);
    expect_same(graph, graph, team, (const void *const[]){x, y, z}, 0, false);
    free(x);
    free(y);
    free(z);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Parts of an axis, some of no elements, put together in another order. */
static void
test_split(struct leat_team *team)
{
    const size_t rank = (size_t)between(1, 4);
    const int64_t axis = between(0, (int64_t)rank - 1);
    int64_t dims[4], sizes[3];
    struct builder b;
    size_t count = 1;

    for (size_t d = 0; d < rank; d++) {
        dims[d] = between(1, between(0, 3) == 0 ? 60 : 9);
        count *= (size_t)dims[d];
    }
    sizes[0] = between(0, dims[axis]);
    sizes[1] = between(0, dims[axis] - sizes[0]);
    sizes[2] = dims[axis] - sizes[0] - sizes[1];
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "sizes", ONNX_I64, sizes, DIMS(3));
    (void)builder_int(&b, builder_node(&b, "Split", "x sizes", "p q r"), "axis", axis);
    (void)builder_int(&b, builder_node(&b, "Concat", "r p q", "y"), "axis", axis);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_no_plain_loops(graph);
    float *x = floats(count);
    expect_same(graph, graph, team, (const void *const[]){x}, 0, false);
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Whole numbers, of which a convolution of a few channels makes sums that are exact. */
static float *
whole_numbers(size_t count)
{
    float *data = floats(count);
    for (size_t i = 0; i < count; i++) {
        data[i] = (float)between(-3, 3);
    }
    return data;
}

/* oneDNN's convolutions, of which it has others for other processors. */
static bool
likes_channels_last(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

/* How many steps of Concat nodes there are; none is a kernel of oneDNN's that allocates in each run. */
static uint32_t
count_concat_steps(const struct leat_graph *graph)
{
    struct leat_inspection *inspection = NULL;
    uint32_t count = 0;

    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, TEAM, &inspection) == LEAT_OK);
    const struct leat_graph *shown = leat_inspection_graph(inspection);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        struct leat_inspection_step step;
        leat_inspection_step(inspection, s, &step);
        if (step.node != LEAT_VALUE_NONE && shown->nodes[step.node].op->kind == LEAT_OP_CONCAT) {
            EXPECT(strcmp(step.kernel, "ref:any") != 0);
            count++;
        }
    }
    leat_inspection_destroy(inspection);
    return count;
}

/* Along any axis: of a convolution, in the layout that it likes, of an input, which is plain, and of what is turned. */
static uint32_t
test_concat_layouts(struct leat_team *team)
{
    static const char *const orders[] = {"c z", "z c", "c t", "t c", "c z t", "t c z", "z t c", "c z c", "z c t c"};
    const int64_t axis = between(1, 3), inputs = between(1, 8);
    const int64_t outputs = between(0, 1) != 0 ? 16 * between(1, 4) : between(1, 40);
    const int64_t x_dims[4] = {between(1, 4), inputs, between(1, 20), between(1, 20)};
    int64_t z_dims[4] = {x_dims[0], outputs, x_dims[2], x_dims[3]};
    struct builder b;

    z_dims[axis] = between(0, 1) != 0 ? 16 * between(1, 3) : between(1, 40);
    const size_t count = (size_t)(z_dims[0] * z_dims[1] * z_dims[2] * z_dims[3]);
    float *weights = whole_numbers((size_t)(outputs * inputs));
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, x_dims, 4);
    (void)builder_input(&b, "z", ONNX_F32, z_dims, 4);
    (void)builder_input(&b, "u", ONNX_F32, DIMS(z_dims[1], z_dims[0], z_dims[2], z_dims[3]));
    (void)builder_constant(&b, "weights", ONNX_F32, weights, DIMS(outputs, inputs, 1, 1));
    (void)builder_node(&b, "Conv", "x weights", "c");
    (void)builder_ints(&b, builder_node(&b, "Transpose", "u", "t"), "perm", DIMS(1, 0, 2, 3));
    (void)builder_int(&b, builder_node(&b, "Concat", orders[between(0, 8)], "y"), "axis", axis);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    float *x = whole_numbers((size_t)(x_dims[0] * x_dims[1] * x_dims[2] * x_dims[3]));
    float *z = whole_numbers(count), *u = whole_numbers(count);
    expect_same(graph, graph, team, (const void *const[]){x, z, u}, 0, false);
    const uint32_t steps = count_concat_steps(graph);
    free(weights);
    free(x);
    free(z);
    free(u);
    leat_graph_destroy(graph);
    builder_fini(&b);
    return steps;
}

/* Logic of what a client calls truths: every byte but 0 is true. */
static void
test_truths(struct leat_team *team, uint32_t round)
{
    static const char *const ops[] = {"And", "Or", "Xor", "Equal"};
    const int64_t rows = between(1, 9), width = between(1, 90);
    uint8_t p[9 * 90], q[90];
    struct builder b;

    for (size_t i = 0; i < LEAT_COUNT_OF(p); i++) {
        p[i] = (uint8_t)(between(0, 1) != 0 ? between(0, 255) : 0);
        q[i % LEAT_COUNT_OF(q)] = (uint8_t)(between(0, 1) != 0 ? between(0, 255) : 0);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "p", ONNX_BOOL, DIMS(rows, width));
    (void)builder_input(&b, "q", ONNX_BOOL, DIMS(1, width));
    (void)builder_node(&b, ops[round % LEAT_COUNT_OF(ops)], "p q", "truth");
    (void)builder_int(&b, builder_node(&b, "Cast", "truth", "y"), "to", ONNX_F32);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_same(graph, graph, team, (const void *const[]){p, q}, 0, false);
    expect_no_plain_loops(graph);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

int
main(void)
{
    struct leat_team *team;
    bool apart = false;

    leat_test_init();
    random_state = leat_test_seed;
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    for (int round = 0; round < ROUNDS; round++) {
        test_slice(team);
        test_split(team);
        apart = test_concat_layouts(team) > 1 || apart;
        test_copy(team);
        test_copy(team);
        test_copy(team);
        for (int i = 0; i < 5; i++) {
            test_grid_sample(team);
        }
        test_broadcast(team);
        test_broadcast(team);
        test_broadcast(team);
        test_look_up(team, true);
        test_look_up(team, false);
        test_look_ups(team);
        test_total(team);
        test_truths(team, (uint32_t)round);
    }
    EXPECT(apart || !likes_channels_last()); /* inputs in layouts that differ were put together */
    leat_team_destroy(team);
    return 0;
}
