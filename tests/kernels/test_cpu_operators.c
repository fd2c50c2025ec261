/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Single operators that the cpu backend has steps of its own or oneDNN's for give the reference backend's answers, whatever
 *          their shapes and attributes, for batches of every size, alone and on a team, whose size changes no bit; and they
 *          are left to the reference functions only where that is meant.
 * Method   Random networks of one node, all attributes drawn; shapes that fill whole vectors and such that do not, and such that each
 *          member of a team has its part. Reductions of NaN and infinities too.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/inspect.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(150), TEAM = 2, ITEMS = 3 };

static float *
numbers(size_t count, bool odd)
{
    static const float odd_ones[] = {INFINITY, -INFINITY, NAN};
    float *data = malloc((count + 1) * sizeof(*data));

    EXPECT(data != NULL);
    for (size_t i = 0; i < count; i++) {
        data[i] = odd && between(0, 39) == 0 ? odd_ones[between(0, 2)] : (float)between(-1000, 1000) / 1000.0f;
    }
    return data;
}

/* One input and output y of items, in one backend; `x` and `y` are of `items`. */
static void
answer(const struct leat_backend *backend, const struct leat_model_source *source, uint32_t items, struct leat_team *team,
       const float *x, float *y)
{
    const uint32_t size = leat_team_size(team);
    const struct leat_plan_options options = {.items = items, .team_sizes = &size, .team_size_count = 1};
    struct leat_segment segment = {.items = items, .tensors = {(void *)(uintptr_t)x, y}};
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(backend->model_load(source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &options, &plan) == LEAT_OK);
    const size_t bytes = (size_t)leat_round_up(backend->plan_scratch_bytes(plan) + 64, 64);
    void *scratch = aligned_alloc(64, bytes);
    EXPECT(scratch != NULL);
    memset(scratch, 0xa5, bytes);
    memset(y, 0x5a, items * source->infos[1].item_bytes);
    EXPECT(backend->plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static bool
near(float have, float want, float tolerance)
{
    return isnan(want) ? isnan(have) != 0 : isinf(want) ? have == want : fabsf(have - want) <= tolerance * (1 + fabsf(want));
}

/* The builder's network, of input x and output y. True when it is left to the reference function. */
static bool
check(struct builder *b, struct leat_team *team, enum leat_op_kind kind, bool odd, float tolerance)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};

    builder_output(b, "y");
    struct leat_graph *graph = import_graph(b);
    source.graph = graph;
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(source.input_count == 1 && source.output_count == 1);
    const uint32_t items = (uint32_t)between(1, ITEMS);
    const size_t count = items * infos[0].item_bytes / sizeof(float), results = items * infos[1].item_bytes / sizeof(float);
    float *x = numbers(count, odd), *want = numbers(results, false), *have = numbers(results, false), *shared = numbers(results, false);
    answer(&leat_backend_reference, &source, items, NULL, x, want);
    answer(&leat_backend_cpu, &source, items, NULL, x, have);
    answer(&leat_backend_cpu, &source, items, team, x, shared);
    for (size_t i = 0; i < results; i++) {
        if (!near(have[i], want[i], tolerance) || !near(shared[i], want[i], tolerance)) {
            (void)fprintf(stderr, "%s of %u items: element %zu is %g, on a team %g, the reference backend says %g\n",
                          graph->nodes[0].op->name, items, i, (double)have[i], (double)shared[i], (double)want[i]);
            EXPECT(!"the reference backend's answer");
        }
    }
    const bool plain = count_plain_loops(graph, kind) > 0;
    free(x);
    free(want);
    free(have);
    free(shared);
    leat_graph_destroy(graph);
    builder_fini(b);
    return plain;
}

/* ---- Reductions ------------------------------------------------------------------------------------- */

/* Of numbers near 1, or so large or so small that their squares are no floats. */
static void
test_reduction(struct leat_team *team, uint32_t round)
{
    static const struct {
        const char *name;
        enum leat_op_kind kind;
        const char *before;
        float tolerance;
    } rows[] = {{"ReduceMax", LEAT_OP_REDUCE_MAX, NULL, 0},
                {"ReduceMin", LEAT_OP_REDUCE_MIN, NULL, 0},
                {"ReduceSum", LEAT_OP_REDUCE_SUM, NULL, 3e-5f},
                {"ReduceMean", LEAT_OP_REDUCE_MEAN, NULL, 1e-5f},
                {"ReduceL1", LEAT_OP_REDUCE_L1, "Mul", 1e-5f},
                {"ReduceL2", LEAT_OP_REDUCE_L2, "Mul", 1e-6f},
                {"ReduceSumSquare", LEAT_OP_REDUCE_SUM_SQUARE, NULL, 1e-6f},
                {"ReduceLogSum", LEAT_OP_REDUCE_LOG_SUM, "Abs", 1e-6f},
                {"ReduceLogSumExp", LEAT_OP_REDUCE_LOG_SUM_EXP, "Mul", 1e-6f},
                {"ReduceProd", LEAT_OP_REDUCE_PROD, "Add", 1e-6f}};
    static const float factors[] = {1, 1e25f, 1e-25f}, spread = 50, shift = 1.2f;
    const size_t row = round % LEAT_COUNT_OF(rows), rank = (size_t)between(2, 6);
    const bool exponentials = rows[row].kind == LEAT_OP_REDUCE_LOG_SUM_EXP, multiplies = rows[row].before != NULL;
    const float factor = exponentials ? spread : factors[between(0, 2)], back = exponentials ? 1 : 1 / factor;
    const bool scales = multiplies && strcmp(rows[row].before, "Mul") == 0;
    int64_t dims[6] = {-1}, axes[6];
    struct builder b;
    size_t count = 0;
    bool reduces = false;

    for (size_t d = 1; d < rank; d++) {
        const int64_t long_one = between(0, 5);
        dims[d] = between(1, long_one == 0 && rank < 5 ? 300 : long_one == 1 ? 40 : 7);
        if (between(0, 1) != 0) {
            axes[count++] = between(0, 1) != 0 ? (int64_t)d : (int64_t)d - (int64_t)rank;
            reduces = reduces || dims[d] > 1;
        }
    }
    if (count == 0) {
        axes[count++] = -1;
        reduces = dims[rank - 1] > 1;
    }
    builder_init(&b, 11);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "back", ONNX_F32, &back, NULL, 0);
    (void)builder_constant(&b, "shift", ONNX_F32, &shift, NULL, 0);
    if (multiplies) {
        (void)builder_node(&b, rows[row].before, scales ? "x factor" : strcmp(rows[row].before, "Add") == 0 ? "x shift" : "x", "z");
    }
    Onnx__NodeProto *node = builder_node(&b, rows[row].name, multiplies ? "z" : "x", scales ? "r" : "y");
    (void)builder_ints(&b, node, "axes", axes, count);
    (void)builder_int(&b, node, "keepdims", between(0, 1));
    if (scales) {
        (void)builder_node(&b, "Mul", "r back", "y");
    }
    const bool plain = check(&b, team, rows[row].kind, round / LEAT_COUNT_OF(rows) % 3 == 0, rows[row].tolerance);
#if defined(__x86_64__)
    EXPECT(plain == !reduces);
#else
    EXPECT(exponentials || plain == !reduces);
#endif
}

/* Of rows and of columns; of 0, of numbers whose squares are no floats, and of what is none. */
static void
test_norms(struct leat_team *team, uint32_t round)
{
    static const float factors[] = {1, 0, 1e25f, 1e-25f, 1e-42f, 3e38f};
    const size_t rank = (size_t)between(2, 4);
    const int64_t axis = between(1, (int64_t)rank - 1);
    const float factor = factors[round % LEAT_COUNT_OF(factors)];
    int64_t dims[4] = {-1};
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, between(0, 2) == 0 ? 150 : 12);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_node(&b, "Mul", "x factor", "z");
    Onnx__NodeProto *node = builder_node(&b, "LpNormalization", "z", "y");
    (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : axis - (int64_t)rank);
    (void)builder_int(&b, node, "p", between(1, 2));
    EXPECT(!check(&b, team, LEAT_OP_LP_NORMALIZATION, round % 4 == 0, 1e-6f));
}

/* More terms than floats can add up one by one: of rows, and of two columns side by side. */
static void
test_long_sums(void)
{
    enum { TERMS = 1 << 20 };
    static float x[TERMS];

    for (size_t i = 0; i < TERMS; i++) {
        x[i] = 0.1f;
    }
    for (int64_t columns = 1; columns <= 2; columns++) {
        const double want = (double)0.1f * TERMS / (double)columns;
        float sums[2];
        struct builder b;
        struct loaded loaded;

        builder_init(&b, 11);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(TERMS / columns, columns));
        (void)builder_ints(&b, builder_node(&b, "ReduceSum", "x", "y"), "axes", DIMS(0));
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        load(&leat_backend_cpu, graph, &loaded);
        EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){sums}) == LEAT_OK);
        unload(&loaded);
        for (int64_t i = 0; i < columns; i++) {
            EXPECT(fabs((double)sums[i] - want) < 1e-6 * want);
        }
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* ---- Places ----------------------------------------------------------------------------------------- */

/* Of a few whole numbers, 0 with both signs among them, most of which are there more than once; as often as not of NaN and infinities. */
static void
coarse(struct builder *b, const int64_t *dims, size_t rank)
{
    static const float factor = 4;

    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_node(b, "Mul", "x factor", "z");
    (void)builder_node(b, "Round", "z", "r");
}

static void
test_places(struct leat_team *team, uint32_t round)
{
    const size_t rank = (size_t)between(2, 4);
    const int64_t axis = between(1, (int64_t)rank - 1);
    const bool greatest = round % 2 != 0, fine = between(0, 2) == 0;
    int64_t dims[4] = {-1};
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, between(0, 2) == 0 ? 150 : 20);
    }
    coarse(&b, dims, rank);
    Onnx__NodeProto *node = builder_node(&b, greatest ? "ArgMax" : "ArgMin", fine ? "x" : "r", "places");
    (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : axis - (int64_t)rank);
    (void)builder_int(&b, node, "keepdims", between(0, 1));
    (void)builder_int(&b, node, "select_last_index", between(0, 1));
    (void)builder_int(&b, builder_node(&b, "Cast", "places", "y"), "to", ONNX_F32);
    EXPECT(!check(&b, team, greatest ? LEAT_OP_ARG_MAX : LEAT_OP_ARG_MIN, round % 3 == 0, 0));
}

/* Of the first of the greatest, along any axis; a NaN is not greater, nor is anything than it. */
static void
test_hardmax(struct leat_team *team, uint32_t round)
{
    const size_t rank = (size_t)between(2, 4);
    const int64_t axis = between(1, (int64_t)rank - 1);
    int64_t dims[4] = {-1};
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, between(0, 2) == 0 ? 150 : 20);
    }
    coarse(&b, dims, rank);
    (void)builder_int(&b, builder_node(&b, "Hardmax", "r", "y"), "axis", between(0, 1) != 0 ? axis : axis - (int64_t)rank);
    EXPECT(!check(&b, team, LEAT_OP_HARDMAX, round % 2 == 0, 0));
}

/*
 * Along one, two or three axes, padded and with gaps, of numbers of which many are equal, and of what is none. Places count items too: there
 * is one.
 */
static void
test_pooled_places(struct leat_team *team, uint32_t round)
{
    const size_t spatial = (size_t)between(1, 3);
    int64_t dims[5] = {between(1, 2), between(1, 4)}, kernel[3], strides[3], dilations[3], pads[6];
    const struct leat_backend *const backends[3] = {&leat_backend_reference, &leat_backend_cpu, &leat_backend_cpu};
    float *y[3];
    int64_t *where[3];
    struct builder b;
    struct loaded loaded;

    for (size_t d = 0; d < spatial; d++) {
        dims[2 + d] = between(4, d + 1 == spatial && between(0, 2) == 0 ? 150 : 12);
        kernel[d] = between(1, 4);
        strides[d] = between(1, 3);
        dilations[d] = kernel[d] > 1 && dims[2 + d] > 8 ? between(1, 2) : 1;
        pads[d] = between(0, kernel[d] - 1);
        pads[spatial + d] = between(0, kernel[d] - 1);
    }
    coarse(&b, dims, 2 + spatial);
    Onnx__NodeProto *node = builder_node(&b, "MaxPool", "r", "most where");
    (void)builder_ints(&b, node, "kernel_shape", kernel, spatial);
    (void)builder_ints(&b, node, "strides", strides, spatial);
    (void)builder_ints(&b, node, "dilations", dilations, spatial);
    (void)builder_ints(&b, node, "pads", pads, 2 * spatial);
    (void)builder_int(&b, node, "ceil_mode", between(0, 1));
    builder_output(&b, "most");
    builder_output(&b, "where");
    struct leat_graph *graph = import_graph(&b);
    const struct leat_value *most = &graph->values[graph->outputs[0]];
    const size_t count = leat_value_elements(most);
    float *x = numbers(leat_value_elements(&graph->values[graph->inputs[0]]), round % 2 == 0);
    for (size_t k = 0; k < 3; k++) {
        y[k] = numbers(count, false);
        where[k] = calloc(count, sizeof(*where[k]));
        EXPECT(where[k] != NULL);
        load_for_team(backends[k], graph, k == 2 ? team : NULL, &loaded);
        EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){y[k], where[k]}) == LEAT_OK);
        unload(&loaded);
        EXPECT(memcmp(where[0], where[k], count * sizeof(*where[k])) == 0);
        for (size_t i = 0; i < count; i++) {
            EXPECT(near(y[k][i], y[0][i], 0));
        }
    }
    EXPECT(count_plain_loops(graph, LEAT_OP_MAX_POOL) == 0);
    for (size_t k = 0; k < 3; k++) {
        free(y[k]);
        free(where[k]);
    }
    free(x);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* In order, equal ones by their places, whether these are asked for or not. */
static void
test_most(struct leat_team *team, uint32_t round)
{
    const size_t rank = (size_t)between(2, 3);
    const bool fine = between(0, 1) == 0, alone = between(0, 4) == 0;
    int64_t dims[3] = {-1, between(1, 20)};
    struct builder b;

    dims[rank - 1] = between(0, 4) == 0 ? between(500, 3000) : between(1, 90);
    const int64_t k = between(0, 2) == 0 ? dims[rank - 1] : between(1, dims[rank - 1]);
    coarse(&b, dims, rank);
    (void)builder_constant(&b, "k", ONNX_I64, &k, DIMS(1));
    Onnx__NodeProto *node = builder_node(&b, "TopK", fine ? "x k" : "r k", alone ? "y" : "most places");
    (void)builder_int(&b, node, "largest", round % 2);
    (void)builder_int(&b, node, "sorted", between(0, 1));
    if (!alone) {
        (void)builder_int(&b, builder_node(&b, "Cast", "places", "p"), "to", ONNX_F32);
        (void)builder_int(&b, builder_node(&b, "Concat", "most p", "y"), "axis", -1);
    }
    EXPECT(!check(&b, team, LEAT_OP_TOP_K, round % 3 == 0, 0));
}

/* ---- Sums so far ------------------------------------------------------------------------------------ */

/* Along any axis, of floats and of whole numbers, from either end. */
static void
test_cum_sum(struct leat_team *team, uint32_t round)
{
    static const int types[] = {ONNX_F32, ONNX_I32, ONNX_I64};
    const int type = types[round % LEAT_COUNT_OF(types)];
    const size_t rank = (size_t)between(2, 4);
    const int64_t place = between(1, (int64_t)rank - 1), axis = between(0, 1) != 0 ? place : place - (int64_t)rank;
    const float factor = 3e9f; /* sums of whole numbers wrap */
    int64_t dims[4] = {-1};
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, between(0, 2) == 0 ? 150 : 20);
    }
    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "axis", ONNX_I64, &axis, NULL, 0);
    if (type != ONNX_F32) {
        (void)builder_node(&b, "Mul", "x factor", "large");
        (void)builder_int(&b, builder_node(&b, "Cast", "large", "z"), "to", type);
    }
    Onnx__NodeProto *node = builder_node(&b, "CumSum", type == ONNX_F32 ? "x axis" : "z axis", type == ONNX_F32 ? "y" : "sums");
    (void)builder_int(&b, node, "exclusive", between(0, 1));
    (void)builder_int(&b, node, "reverse", between(0, 1));
    if (type != ONNX_F32) {
        (void)builder_int(&b, builder_node(&b, "Cast", "sums", "y"), "to", ONNX_F32);
    }
    EXPECT(!check(&b, team, LEAT_OP_CUM_SUM, type == ONNX_F32 && round % 2 == 0, 0));
}

/* ---- Comparisons ------------------------------------------------------------------------------------ */

/* Of two operands that are spread over each other, of every type that there are steps for, equal ones and NaN among them. */
static void
test_compared(struct leat_team *team, uint32_t round)
{
    static const struct {
        const char *name;
        enum leat_op_kind kind;
    } rows[] = {{"Max", LEAT_OP_MAX},
                {"Min", LEAT_OP_MIN},
                {"PRelu", LEAT_OP_PRELU},
                {"Pow", LEAT_OP_POW},
                {"Mod", LEAT_OP_MOD},
                {"Equal", LEAT_OP_EQUAL},
                {"Greater", LEAT_OP_GREATER},
                {"GreaterOrEqual", LEAT_OP_GREATER_OR_EQUAL},
                {"Less", LEAT_OP_LESS},
                {"LessOrEqual", LEAT_OP_LESS_OR_EQUAL},
                {"And", LEAT_OP_AND},
                {"Or", LEAT_OP_OR},
                {"Xor", LEAT_OP_XOR}};
    static const int types[] = {ONNX_F32, ONNX_F64, ONNX_I32, ONNX_I64, ONNX_U8, ONNX_BOOL};
    const size_t row = round % LEAT_COUNT_OF(rows);
    const bool computes = row < 5;
    const int type = computes ? ONNX_F32 : row > 9 ? ONNX_BOOL : types[between(0, row == 5 ? 5 : 4)];
    const size_t rank = (size_t)between(2, 4), less = (size_t)between(0, (int64_t)rank - 1);
    int64_t dims[4] = {-1}, other[4];
    struct builder b;
    size_t count = 1;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, between(0, 2) == 0 ? 60 : 9);
    }
    for (size_t d = less; d < rank; d++) {
        other[d] = d == 0 || between(0, 2) == 0 ? 1 : dims[d];
        count *= (size_t)other[d];
    }
    float *z = numbers(count, round % 3 == 0 && type == ONNX_F32);
    for (size_t i = 0; i < count; i++) {
        z[i] = roundf(2 * z[i]);
    }
    coarse(&b, dims, rank);
    (void)builder_constant(&b, "w", ONNX_F32, z, other + less, rank - less);
    if (type != ONNX_F32) {
        (void)builder_int(&b, builder_node(&b, "Cast", "r", "p"), "to", type);
        (void)builder_int(&b, builder_node(&b, "Cast", "w", "q"), "to", type);
    }
    if (rows[row].kind == LEAT_OP_MOD && between(0, 1) != 0) { /* more than 2^28 times what is divided by */
        (void)builder_constant(&b, "many", ONNX_F32, (const float[]){1e9f}, NULL, 0);
        b.nodes[1]->output[0] = strcpy(builder_alloc(&b, 8), "some");
        (void)builder_node(&b, "Mul", "some many", "r");
    }
    const char *inputs = type == ONNX_F32 ? (row == 2 || between(0, 1) != 0 ? "r w" : "w r") : between(0, 1) != 0 ? "p q" : "q p";
    Onnx__NodeProto *node = builder_node(&b, rows[row].name, inputs, computes ? "y" : "truth");
    if (rows[row].kind == LEAT_OP_MOD) {
        (void)builder_int(&b, node, "fmod", 1);
    }
    if (!computes) {
        (void)builder_int(&b, builder_node(&b, "Cast", "truth", "y"), "to", ONNX_F32);
    }
    EXPECT(!check(&b, team, rows[row].kind, round % 3 == 0 && type == ONNX_F32, rows[row].kind == LEAT_OP_POW ? 1e-6f : 0));
    free(z);
}

/* Remainders of whole numbers of every type, by numbers of either sign, and shifts by less than the width, by as much, and by more. */
static void
test_of_integers(struct leat_team *team, uint32_t round)
{
    static const int types[] = {ONNX_U8, ONNX_U16, ONNX_U32, ONNX_U64, ONNX_I8, ONNX_I16, ONNX_I32, ONNX_I64};
    const size_t kind_of_type = round / 2 % LEAT_COUNT_OF(types);
    const bool shifts = round % 2 != 0 && kind_of_type < 4, is_signed = kind_of_type >= 4;
    const int64_t dims[3] = {-1, between(1, 9), between(1, 70)}, spread[3] = {1, between(0, 1) != 0 ? 1 : dims[1], dims[2]};
    const size_t first = (size_t)between(0, 3);
    static const float factors[] = {1e2f, 1e5f, 1e12f};
    const float factor = factors[between(0, 2)], shift = is_signed ? 0 : factor;
    size_t count = 1;
    struct builder b;

    for (size_t d = first; d < 3; d++) {
        count *= (size_t)spread[d];
    }
    float *other = numbers(count, false);
    for (size_t i = 0; i < count; i++) {
        other[i] = shifts ? roundf(70 * fabsf(other[i])) : roundf(10 * other[i]);
        other[i] = shifts || other[i] != 0 ? other[i] : -1; /* by 0 nothing is divided: test_hostile_payload has that */
        other[i] = is_signed || shifts ? other[i] : fabsf(other[i]);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, 3);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "shift", ONNX_F32, &shift, NULL, 0);
    (void)builder_constant(&b, "w", ONNX_F32, other, spread + first, 3 - first);
    (void)builder_node(&b, "Mul", "x factor", "m");
    (void)builder_node(&b, "Add", "m shift", "a");
    (void)builder_int(&b, builder_node(&b, "Cast", "a", "p"), "to", types[kind_of_type]);
    (void)builder_int(&b, builder_node(&b, "Cast", "w", "q"), "to", types[kind_of_type]);
    Onnx__NodeProto *node = builder_node(&b, shifts ? "BitShift" : "Mod", "p q", "r");
    if (shifts) {
        (void)builder_string(&b, node, "direction", between(0, 1) != 0 ? "LEFT" : "RIGHT");
    } else {
        (void)builder_int(&b, node, "fmod", between(0, 1));
    }
    (void)builder_int(&b, builder_node(&b, "Cast", "r", "y"), "to", ONNX_F32);
    EXPECT(!check(&b, team, shifts ? LEAT_OP_BIT_SHIFT : LEAT_OP_MOD, false, 0));
    free(other);
}

/* By one exponent for all. */
static void
test_power(struct leat_team *team, uint32_t round)
{
    static const float exponents[] = {3, 2, 0.5f, -1, 1.7f, 0};
    const float exponent = exponents[round % LEAT_COUNT_OF(exponents)];
    const bool below = exponent == roundf(exponent);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 40), between(1, 300)));
    (void)builder_constant(&b, "e", ONNX_F32, &exponent, NULL, 0);
    (void)builder_node(&b, "Abs", "x", "a");
    (void)builder_node(&b, "Pow", below ? "x e" : "a e", "y");
    EXPECT(!check(&b, team, LEAT_OP_POW, round % 2 == 0 && exponent == 3, 1e-6f));
}

/* Of numbers, of what is none, and of truths. */
static void
test_tests(struct leat_team *team, uint32_t round)
{
    static const enum leat_op_kind kinds[] = {LEAT_OP_NOT, LEAT_OP_IS_NAN, LEAT_OP_IS_INF};
    static const char *const names[] = {"Not", "IsNaN", "IsInf"};
    const size_t row = round % LEAT_COUNT_OF(kinds);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 40), between(1, 40)));
    if (row == 0) {
        (void)builder_node(&b, "Round", "x", "r");
        (void)builder_int(&b, builder_node(&b, "Cast", "r", "b"), "to", ONNX_BOOL);
    }
    Onnx__NodeProto *node = builder_node(&b, names[row], row == 0 ? "b" : "x", "t");
    if (row == 2) {
        (void)builder_int(&b, node, "detect_positive", between(0, 1));
        (void)builder_int(&b, node, "detect_negative", between(0, 1));
    }
    (void)builder_int(&b, builder_node(&b, "Cast", "t", "y"), "to", ONNX_F32);
    EXPECT(!check(&b, team, kinds[row], row > 0, 0));
}

/* ---- Functions -------------------------------------------------------------------------------------- */

/* Of numbers near 0, of usual ones, and of such that go around many times; in the layout of a convolution too. */
static void
test_functions(struct leat_team *team, uint32_t round)
{
    static const struct {
        const char *name;
        enum leat_op_kind kind;
    } rows[] = {{"Acos", LEAT_OP_ACOS},     {"Acosh", LEAT_OP_ACOSH},
                {"Asin", LEAT_OP_ASIN},     {"Asinh", LEAT_OP_ASINH},
                {"Atan", LEAT_OP_ATAN},     {"Atanh", LEAT_OP_ATANH},
                {"Ceil", LEAT_OP_CEIL},     {"Celu", LEAT_OP_CELU},
                {"Cos", LEAT_OP_COS},       {"Cosh", LEAT_OP_COSH},
                {"Elu", LEAT_OP_ELU},       {"Erf", LEAT_OP_ERF},
                {"Floor", LEAT_OP_FLOOR},   {"Round", LEAT_OP_ROUND},
                {"HardSigmoid", LEAT_OP_HARD_SIGMOID}, {"Selu", LEAT_OP_SELU},
                {"Shrink", LEAT_OP_SHRINK}, {"Sigmoid", LEAT_OP_SIGMOID},
                {"Sign", LEAT_OP_SIGN},     {"Sin", LEAT_OP_SIN},
                {"Sinh", LEAT_OP_SINH},     {"Softplus", LEAT_OP_SOFTPLUS},
                {"Softsign", LEAT_OP_SOFTSIGN}, {"Tan", LEAT_OP_TAN},
                {"Tanh", LEAT_OP_TANH},     {"ThresholdedRelu", LEAT_OP_THRESHOLDED_RELU},
                {"Log", LEAT_OP_LOG}};
    static const float factors[] = {1, 8, 100, 4e4f, 3e7f, 1e-3f, 1e-42f};
    const size_t row = round % LEAT_COUNT_OF(rows);
    const enum leat_op_kind kind = rows[row].kind;
    const float factor = factors[between(0, kind == LEAT_OP_LOG ? 6 : 5)];
    const bool odd_at_0 = kind != LEAT_OP_COS && kind != LEAT_OP_COSH && kind != LEAT_OP_LOG && kind != LEAT_OP_ACOS && kind != LEAT_OP_SOFTPLUS;
    const float back = factor < 1 && odd_at_0 ? 1 / factor : 1;
    const bool bounded = kind == LEAT_OP_LOG || kind == LEAT_OP_ACOS || kind == LEAT_OP_ACOSH || kind == LEAT_OP_ASIN || kind == LEAT_OP_ATANH;
    const bool behind = between(0, 3) == 0 && factor == 1 && !bounded && kind != LEAT_OP_TAN, parameters = between(0, 1) != 0;
    const bool steps = kind == LEAT_OP_CEIL || kind == LEAT_OP_FLOOR || kind == LEAT_OP_ROUND || kind == LEAT_OP_SIGN;
    const bool shifted = kind == LEAT_OP_SIGMOID || kind == LEAT_OP_HARD_SIGMOID;
    const int64_t channels = behind ? between(1, 20) : between(1, 40);
    float *weights = numbers((size_t)(channels * channels), false);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, channels, between(1, 12), between(1, 40)));
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "back", ONNX_F32, &back, NULL, 0);
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(channels, channels, 1, 1));
    (void)builder_node(&b, behind ? "Conv" : "Mul", behind ? "x w" : "x factor", "z");
    Onnx__NodeProto *node = builder_node(&b, rows[row].name, "z", back != 1 && !shifted ? "r" : "y");
    if (parameters && (kind == LEAT_OP_ELU || kind == LEAT_OP_CELU || kind == LEAT_OP_SELU || kind == LEAT_OP_HARD_SIGMOID ||
                       kind == LEAT_OP_THRESHOLDED_RELU)) {
        (void)builder_float(&b, node, "alpha", 0.3f);
    }
    if (parameters && (kind == LEAT_OP_SELU || kind == LEAT_OP_HARD_SIGMOID)) {
        (void)builder_float(&b, node, kind == LEAT_OP_SELU ? "gamma" : "beta", 0.7f);
    }
    if (parameters && kind == LEAT_OP_SHRINK) {
        (void)builder_float(&b, node, "lambd", 0.3f);
        (void)builder_float(&b, node, "bias", 0.1f);
    }
    if (back != 1 && !shifted) {
        (void)builder_node(&b, "Mul", "r back", "y");
    }
    const bool jumps = steps || kind == LEAT_OP_THRESHOLDED_RELU || kind == LEAT_OP_SHRINK; /* what a convolution rounds otherwise may be on the other side */
    const bool plain = check(&b, team, kind, !behind && round % 3 == 0, behind ? (jumps ? INFINITY : 1e-4f) : steps ? 0 : 1e-6f);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
    free(weights);
}

/* ---- Softmax ---------------------------------------------------------------------------------------- */

/* Along any axis, as often as not one that is not the last; scores are up to 60 apart, or have infinities and NaN among them. */
static void
test_softmax(struct leat_team *team, uint32_t round)
{
    static const float factor = 30;
    const bool logarithm = round % 2 != 0, odd = round % 4 >= 2, large = between(0, 7) == 0;
    const size_t rank = (size_t)between(2, 5);
    int64_t dims[5] = {-1};
    bool last = true;
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        dims[d] = between(1, large && d < 4 ? 40 : d == rank - 1 ? 70 : 6);
    }
    const int64_t axis = between(1, (int64_t)rank - 1);
    for (size_t d = (size_t)axis + 1; d < rank; d++) {
        last = last && dims[d] == 1;
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    if (!odd) {
        (void)builder_node(&b, "Mul", "x factor", "scores");
    }
    Onnx__NodeProto *node = builder_node(&b, logarithm ? "LogSoftmax" : "Softmax", odd ? "x" : "scores", "y");
    (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : axis - (int64_t)rank);
    if (last && odd && !logarithm) { /* of NaN oneDNN, which has it along the last axis, makes numbers */
        builder_fini(&b);
        return;
    }
    const bool plain = check(&b, team, logarithm ? LEAT_OP_LOG_SOFTMAX : LEAT_OP_SOFTMAX, odd, last && !logarithm ? 1e-5f : 2e-6f);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    EXPECT(!plain || logarithm);
#endif
}

/* LogSoftmax where one is far ahead, along the last axis or one before: what there is of its 0 is right to as many digits as all else. */
static void
test_far_ahead(struct leat_team *team, uint32_t round)
{
    const int64_t choices = between(2, 40), width = round % 2 != 0 ? between(2, 20) : 1;
    const int64_t dims[3] = {-1, choices, width};
    const size_t count = (size_t)(choices * width);
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, width > 1 ? 3 : 2);
    (void)builder_int(&b, builder_node(&b, "LogSoftmax", "x", "y"), "axis", 1);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    source.graph = graph;
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    float *x = numbers(count, false), *y = numbers(count, false);
    const int64_t ahead = between(0, choices - 1);
    for (int64_t w = 0; w < width; w++) {
        x[ahead * width + w] += (float)between(5, 80);
    }
    for (int backend = 0; backend < 2; backend++) {
        answer(backend == 0 ? &leat_backend_reference : &leat_backend_cpu, &source, 1, team, x, y);
        for (int64_t w = 0; w < width; w++) {
            double others = 0;
            for (int64_t c = 0; c < choices; c++) {
                others += c == ahead ? 0 : exp((double)x[c * width + w] - (double)x[ahead * width + w]);
            }
            const double want = -log1p(others), have = (double)y[ahead * width + w];
            EXPECT(want < 0 && fabs(have - want) <= 1e-5 * fabs(want));
        }
    }
    free(x);
    free(y);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* ---- Whole numbers as floats ------------------------------------------------------------------------ */

/* Made without a Cast, so that the one that follows is known to be ours; and of a type that only a Cast makes. */
static void
test_whole(struct leat_team *team, uint32_t round)
{
    static const char *const made_by[] = {"Greater", "ArgMax", "QuantizeLinear", "QuantizeLinear", "Cast"};
    static const float zero, scale = 0.01f, factor = 3e9f;
    static const int8_t negative = -3;
    static const uint8_t positive = 100;
    const uint32_t way = round % LEAT_COUNT_OF(made_by);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 90), between(1, 90)));
    (void)builder_constant(&b, "zero", ONNX_F32, &zero, NULL, 0);
    (void)builder_constant(&b, "scale", ONNX_F32, &scale, NULL, 0);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "point", way == 2 ? ONNX_U8 : ONNX_I8, way == 2 ? (const void *)&positive : &negative, NULL, 0);
    (void)builder_node(&b, "Mul", "x factor", "far");
    Onnx__NodeProto *node = builder_node(&b, made_by[way], way == 0   ? "x zero"
                                                           : way == 1 ? "x"
                                                           : way < 4  ? "x scale point"
                                                                      : "far",
                                         "whole");
    if (way == 1) {
        (void)builder_int(&b, node, "axis", between(1, 2));
    } else if (way == 4) {
        (void)builder_int(&b, node, "to", between(0, 1) != 0 ? ONNX_I32 : ONNX_I64); /* beyond i32, and what f32 has */
    }
    (void)builder_int(&b, builder_node(&b, "Cast", "whole", "y"), "to", ONNX_F32);
    EXPECT(!check(&b, team, LEAT_OP_CAST, way == 4 && round % 2 != 0, 0));
}

/* From each of the types to each of the others, of numbers that do not fit too. */
static void
test_casts(struct leat_team *team, uint32_t round)
{
    static const int types[] = {ONNX_F32, ONNX_I32, ONNX_I64, ONNX_BOOL};
    static const float factors[] = {3, 3e9f, 3e19f};
    const int from = types[round % 4], to = types[(round / 4 + round % 4 + 1) % 4];
    const float factor = factors[between(0, 2)];
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 90), between(1, 90)));
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_node(&b, "Mul", "x factor", "far");
    (void)builder_int(&b, builder_node(&b, "Cast", "far", "from"), "to", from);
    (void)builder_int(&b, builder_node(&b, "Cast", "from", "to"), "to", to);
    (void)builder_int(&b, builder_node(&b, "Cast", "to", "y"), "to", ONNX_F32);
    EXPECT(!check(&b, team, LEAT_OP_CAST, round % 3 == 0, 0) || from == to || from == ONNX_F32 || to == ONNX_F32);
}

/* ---- Elements by index ------------------------------------------------------------------------------ */

static void
test_triangles(struct leat_team *team)
{
    const int64_t right = between(-12, 12), far = between(0, 1) != 0 ? INT64_MAX : INT64_MIN, k = between(0, 9) == 0 ? far : right;
    const bool given = between(0, 3) != 0, whole = between(0, 2) == 0;
    struct builder b;

    builder_init(&b, 14);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 3), between(1, 30), between(1, 90)));
    (void)builder_constant(&b, "k", ONNX_I64, &k, NULL, 0);
    (void)builder_int(&b, builder_node(&b, "Cast", "x", "z"), "to", ONNX_BOOL);
    Onnx__NodeProto *node = builder_node(&b, "Trilu", whole ? (given ? "z k" : "z") : given ? "x k" : "x", whole ? "t" : "y");
    (void)builder_int(&b, node, "upper", between(0, 1));
    if (whole) {
        (void)builder_int(&b, builder_node(&b, "Cast", "t", "y"), "to", ONNX_F32);
    }
    EXPECT(!check(&b, team, LEAT_OP_TRILU, between(0, 1) != 0, 0));
}

/* Indices are -size and more, and less than size; OneHot's are outside as well. */
static void
test_by_index(struct leat_team *team, uint32_t round)
{
    const bool hot = round % 2 != 0, wide = between(0, 1) != 0, long_ones = hot && between(0, 1) != 0;
    const size_t rank = (size_t)between(2, 4);
    const int64_t axis = between(1, (int64_t)rank - 1), below = axis - (int64_t)rank - hot;
    const float values[2] = {-3, 7};
    const int64_t long_values[2] = {-3, 7}, depth = between(1, 30);
    int64_t dims[4] = {-1}, part[4];
    struct builder b;

    for (size_t d = 0; d < rank; d++) {
        dims[d] = d > 0 ? between(1, between(0, 2) == 0 ? 90 : 9) : -1;
        part[d] = dims[d];
    }
    const float factor = (float)(hot ? 2 * depth : dims[axis]) * 0.999f;
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "depth", ONNX_I64, &depth, NULL, 0);
    (void)builder_constant(&b, "values", long_ones ? ONNX_I64 : ONNX_F32, long_ones ? (const void *)long_values : values, DIMS(2));
    (void)builder_node(&b, "Mul", "x factor", "far");
    (void)builder_int(&b, builder_node(&b, "Cast", "far", "places"), "to", wide ? ONNX_I64 : ONNX_I32);
    if (hot) {
        Onnx__NodeProto *node = builder_node(&b, "OneHot", "places depth values", long_ones ? "h" : "y");
        (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : below + (int64_t)between(0, 1));
        if (long_ones) {
            (void)builder_int(&b, builder_node(&b, "Cast", "h", "y"), "to", ONNX_F32);
        }
        EXPECT(!check(&b, team, LEAT_OP_ONE_HOT, false, 0));
        return;
    }
    const size_t cut = (size_t)between(1, (int64_t)rank - 1); /* fewer indices than x has, along another axis too */
    part[cut] = between(1, part[cut]);
    (void)builder_constant(&b, "starts", ONNX_I64, (const int64_t[]){0}, DIMS(1));
    (void)builder_constant(&b, "ends", ONNX_I64, &part[cut], DIMS(1));
    (void)builder_constant(&b, "axes", ONNX_I64, (const int64_t[]){(int64_t)cut}, DIMS(1));
    (void)builder_node(&b, "Slice", "places starts ends axes", "some");
    Onnx__NodeProto *node = builder_node(&b, "GatherElements", "x some", "y");
    (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : below);
    EXPECT(!check(&b, team, LEAT_OP_GATHER_ELEMENTS, false, 0));
}

/* ---- Greater and lesser ones ------------------------------------------------------------------------ */

/* Of two tensors, or of one and an element, a row or a value for each channel, perhaps behind a convolution, in its layout. */
static void
test_extreme(struct leat_team *team)
{
    static const char *const operands[] = {"v one", "one v", "v n", "n v", "v channels", "row v", "v row n"};
    const int64_t channels = between(0, 1) != 0 ? 8 * between(1, 4) : between(1, 20), rows = between(1, 20), columns = between(1, 30);
    const size_t way = (size_t)between(0, 6);
    const bool greatest = between(0, 1) != 0, conv = between(0, 1) != 0;
    float *w = numbers((size_t)(channels * channels), false), *row = numbers((size_t)(channels + columns), !conv);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, channels, rows, columns));
    (void)builder_constant(&b, "w", ONNX_F32, w, DIMS(channels, channels, 1, 1));
    (void)builder_constant(&b, "one", ONNX_F32, row, DIMS(1, 1));
    (void)builder_constant(&b, "channels", ONNX_F32, row, DIMS(channels, 1, 1));
    (void)builder_constant(&b, "row", ONNX_F32, row + channels, DIMS(columns));
    (void)builder_node(&b, conv ? "Conv" : "Identity", conv ? "x w" : "x", "v");
    (void)builder_node(&b, "Neg", "v", "n");
    (void)builder_node(&b, greatest ? "Max" : "Min", operands[way], conv ? "z" : "y");
    if (conv) {
        (void)builder_node(&b, "Conv", "z w", "y"); /* of what a layout has beside its channels, too */
    }
    const bool plain = check(&b, team, greatest ? LEAT_OP_MAX : LEAT_OP_MIN, !conv, conv ? 1e-4f : 0);
    EXPECT(plain == (way == 6));
    free(w);
    free(row);
}

/* ---- Transposed convolutions ------------------------------------------------------------------------ */

/* One, with 1 to 3 spatial axes. True when it is left to the reference function. */
static bool
test_transposed(struct leat_team *team, uint32_t round)
{
    static const char *const auto_pads[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    const size_t rank = (size_t)between(1, between(0, 4) == 0 ? 3 : 2);
    const bool depthwise = between(0, 4) == 0, computed = between(0, 4) == 0, bias = between(0, 1) != 0;
    const bool column = rank == 2 && between(0, 4) == 0; /* images are one pixel wide */
    const int64_t groups = between(0, 2) == 0 || depthwise ? between(1, depthwise ? 40 : 4) : 1;
    const int64_t group_inputs = depthwise ? 1 : between(1, between(0, 2) == 0 ? 40 : 9), group_outputs = depthwise ? 1 : between(1, 20);
    const char *auto_pad = auto_pads[between(0, 3) == 0 ? between(1, 3) : 0];
    int64_t dims[5] = {-1, groups * group_inputs}, w[5] = {groups * group_inputs, group_outputs};
    int64_t strides[3], dilations[3], pads[6], extra[3], shape[3];
    size_t taps = (size_t)(w[0] * w[1]);
    struct builder b;

    for (size_t d = 0; d < rank; d++) {
        dims[2 + d] = between(1, rank == 3 ? 5 : 13);
        w[2 + d] = between(1, 5);
        strides[d] = between(1, 4);
        dilations[d] = between(0, 2) == 0 ? between(1, 3) : 1;
        const int64_t reach = (w[2 + d] - 1) * dilations[d] + 1, full = (dims[2 + d] - 1) * strides[d] + reach;
        pads[d] = between(0, 1) != 0 ? between(0, reach - 1) : 0;
        pads[rank + d] = between(0, 1) != 0 ? between(0, reach - 1) : 0;
        extra[d] = between(0, 2) == 0 ? between(0, strides[d] - 1) : 0;
        while (pads[d] + pads[rank + d] >= full) {
            pads[d] /= 2;
            pads[rank + d] /= 2;
        }
        shape[d] = between(1, full + 2 * strides[d]);
        if (column && d == 1) {
            dims[3] = w[3] = shape[1] = 1;
            pads[1] = pads[3] = extra[1] = 0;
        }
        taps *= (size_t)w[2 + d];
    }
    float *weights = numbers(taps, false), *shifts = numbers((size_t)(groups * group_outputs), false);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, 2 + rank);
    (void)builder_constant(&b, "w", ONNX_F32, weights, w, 2 + rank);
    (void)builder_constant(&b, "shifts", ONNX_F32, shifts, DIMS(groups * group_outputs));
    if (computed) {
        (void)builder_node(&b, "Identity", "w", "weights");
    }
    const char *inputs = computed ? (bias ? "x weights shifts" : "x weights") : bias ? "x w shifts" : "x w";
    Onnx__NodeProto *node = builder_node(&b, "ConvTranspose", inputs, "y");
    (void)builder_ints(&b, node, "strides", strides, rank);
    (void)builder_ints(&b, node, "dilations", dilations, rank);
    (void)builder_int(&b, node, "group", groups);
    (void)builder_string(&b, node, "auto_pad", auto_pad);
    if (strcmp(auto_pad, "NOTSET") == 0) {
        (void)builder_ints(&b, node, "pads", pads, 2 * rank);
        (void)builder_ints(&b, node, "output_padding", extra, rank);
    }
    if (round % 5 == 0 && strcmp(auto_pad, "VALID") != 0) {
        (void)builder_ints(&b, node, "output_shape", shape, rank);
    }
    const bool plain = check(&b, team, LEAT_OP_CONV_TRANSPOSE, false, 1e-4f);
    free(weights);
    free(shifts);
    return plain;
}

/* With weights that all programs of a model share. */
static void
test_upsampling(struct leat_team *team)
{
    float *weights = numbers((size_t)32 * 16 * 4 * 4, false);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 32, 24, 20));
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(32, 16, 4, 4));
    Onnx__NodeProto *node = builder_node(&b, "ConvTranspose", "x w", "y");
    (void)builder_ints(&b, node, "strides", DIMS(2, 2));
    (void)builder_ints(&b, node, "pads", DIMS(1, 1, 1, 1));
    const bool plain = check(&b, team, LEAT_OP_CONV_TRANSPOSE, false, 1e-4f);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
    free(weights);
}

/* By channels along one axis: not on oneDNN's gemm, which locks. */
static void
test_line(void)
{
#if defined(__x86_64__)
    float *weights = numbers((size_t)32 * 4, false);
    struct leat_inspection *inspection;
    struct leat_inspection_step step;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, 32, 24));
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(32, 1, 4));
    Onnx__NodeProto *node = builder_node(&b, "ConvTranspose", "x w", "y");
    (void)builder_ints(&b, node, "strides", DIMS(2));
    (void)builder_int(&b, node, "group", 32);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, 1, &inspection) == LEAT_OK);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        leat_inspection_step(inspection, s, &step);
        EXPECT(strstr(step.kernel, "gemm") == NULL && strcmp(step.kernel, "reference") != 0);
    }
    leat_inspection_destroy(inspection);
    leat_graph_destroy(graph);
    builder_fini(&b);
    free(weights);
#endif
}

/* ---- Columns ---------------------------------------------------------------------------------------- */

/* Convolutions of images that are one pixel wide, with what is fused onto them, and what reads them as they are laid out. */
static void
test_column(struct leat_team *team)
{
    const bool depthwise = between(0, 3) == 0, bias = between(0, 1) != 0, adds = between(0, 1) != 0, follows = between(0, 1) != 0;
    const int64_t groups = depthwise ? between(2, 40) : between(0, 2) == 0 ? between(2, 4) : 1;
    const int64_t inputs = groups * (depthwise ? 1 : between(1, 20)), outputs = groups * (depthwise ? 1 : between(1, 20));
    const int64_t kernel = between(2, 7), dilation = between(1, 2), stride = between(1, 3), across = between(1, 2);
    const int64_t length = (kernel - 1) * dilation + between(1, 30), before = between(0, kernel - 1), behind = between(0, kernel - 1);
    const int64_t long_w = outputs * (inputs / groups) * kernel;
    float *weights = numbers((size_t)long_w, false), *shifts = numbers((size_t)outputs, false), *next = numbers((size_t)(3 * outputs * 3), false);
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, inputs, length, 1));
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(outputs, inputs / groups, kernel, 1));
    (void)builder_constant(&b, "shifts", ONNX_F32, shifts, DIMS(outputs));
    (void)builder_constant(&b, "v", ONNX_F32, next, DIMS(3, outputs, 3, 1));
    Onnx__NodeProto *node = builder_node(&b, "Conv", bias ? "x w shifts" : "x w", follows || adds ? "c" : "y");
    (void)builder_ints(&b, node, "strides", DIMS(stride, across));
    (void)builder_ints(&b, node, "dilations", DIMS(dilation, across));
    (void)builder_ints(&b, node, "pads", DIMS(before, 0, behind, 0));
    (void)builder_int(&b, node, "group", groups);
    if (adds) {
        (void)builder_node(&b, "Sigmoid", "c", "s");
        (void)builder_node(&b, "Add", "s c", follows ? "a" : "y");
    }
    if (follows) {
        (void)builder_node(&b, "Relu", adds ? "a" : "c", "r");
        (void)builder_ints(&b, builder_node(&b, "Conv", "r v", "y"), "pads", DIMS(1, 0, 1, 0));
    }
    EXPECT(!check(&b, team, LEAT_OP_CONV, false, 1e-4f));
    free(weights);
    free(shifts);
    free(next);
}

/* ---- Resizing --------------------------------------------------------------------------------------- */

static const char *const resize_modes[] = {"linear", "nearest", "cubic"};
static const char *const resize_rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

/*
 * In every mode, by every convention, by sizes or scales, of pixels as they come, as a convolution leaves them, or with channels last
 * in the file too.
 */
static void
test_resized(struct leat_team *team, uint32_t round)
{
    static const char *const places[] = {"half_pixel", "pytorch_half_pixel", "half_pixel", "asymmetric", "align_corners"};
    const bool single = round % 20 == 0; /* of one pixel, which PyTorch's convention has a rule for */
    const char *mode = resize_modes[single ? 0 : round % LEAT_COUNT_OF(resize_modes)], *place = places[single ? 1 : between(0, 4)];
    const size_t rank = single ? (size_t)(1 + 2 * between(0, 1)) : (size_t)between(1, 3), first = !single && between(0, 4) == 0 ? 1 : 2;
    const bool twice = !single && between(0, 3) == 0, by_sizes = !twice && (single || between(0, 1) != 0), exclude = strcmp(mode, "nearest") != 0 && !single && between(0, 2) == 0;
    const bool behind = first == 2 && (single || between(0, 2) != 0);
    int64_t dims[5] = {-1, between(1, 20)}, sizes[3], axes[3];
    float scales[3];
    struct builder b;

    dims[1] = behind && between(0, 3) != 0 ? 8 * between(1, 3) : rank == 3 ? between(1, 3) : dims[1];
    dims[1 + rank] = between(1, rank == 3 ? 3 : 20);
    for (size_t d = 0; d < rank; d++) {
        const size_t axis = first + d;
        dims[axis] = between(1, rank == 3 ? 5 : rank == 1 ? 40 : 12);
        axes[d] = (int64_t)axis;
        scales[d] = twice ? 2 : between(0, 1) != 0 ? (float)between(1, 4) : (float)between(3, 11) / 4.0f;
        scales[d] = (float)dims[axis] * scales[d] < 1 ? 1 : scales[d];
        sizes[d] = single && d == 0 ? 1 : between(0, 4) == 0 ? dims[axis] : between(1, rank == 3 ? 9 : rank == 1 ? 60 : 24);
    }
    float *weights = numbers((size_t)(dims[1] * dims[1]), false);
    builder_init(&b, 18);
    (void)builder_input(&b, "x", ONNX_F32, dims, 2 + rank);
    (void)builder_constant(&b, "w", ONNX_F32, weights, (const int64_t[]){dims[1], dims[1], 1, 1, 1}, 2 + rank);
    (void)builder_constant(&b, "sizes", ONNX_I64, sizes, DIMS((int64_t)rank));
    (void)builder_constant(&b, "scales", ONNX_F32, scales, DIMS((int64_t)rank));
    if (behind) {
        (void)builder_node(&b, "Conv", "x w", "pixels");
    }
    const char *inputs = behind ? (by_sizes ? "pixels - - sizes" : "pixels - scales") : by_sizes ? "x - - sizes" : "x - scales";
    Onnx__NodeProto *node = builder_node(&b, "Resize", inputs, "y");
    (void)builder_ints(&b, node, "axes", axes, rank);
    (void)builder_string(&b, node, "mode", mode);
    (void)builder_string(&b, node, "coordinate_transformation_mode", place);
    (void)builder_string(&b, node, "nearest_mode", resize_rounds[between(0, 3)]);
    (void)builder_int(&b, node, "exclude_outside", exclude);
    const bool plain = check(&b, team, LEAT_OP_RESIZE, !behind, strcmp(mode, "nearest") == 0 && !behind ? 0 : 1e-4f);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
    free(weights);
}

/* Nearest pixels, each of which becomes four: rows shorter than a vector, and such of several. */
static void
test_doubled(struct leat_team *team)
{
    static const float scales[] = {1, 1, 2, 2};
    const bool asymmetric = between(0, 1) != 0;
    struct builder b;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, between(1, 20), between(1, 9), between(1, 70)));
    (void)builder_constant(&b, "scales", ONNX_F32, scales, DIMS(4));
    Onnx__NodeProto *node = builder_node(&b, "Resize", "x - scales", "y");
    (void)builder_string(&b, node, "mode", "nearest");
    (void)builder_string(&b, node, "coordinate_transformation_mode", asymmetric ? "asymmetric" : "half_pixel");
    (void)builder_string(&b, node, "nearest_mode", asymmetric ? "floor" : "round_prefer_floor");
    const bool plain = check(&b, team, LEAT_OP_RESIZE, true, 0);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
}

/* ---- Padding ---------------------------------------------------------------------------------------- */

/* In every mode, some taken away, of elements as they come or as a convolution leaves them. */
static void
test_padded(struct leat_team *team, uint32_t round)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const char *mode = modes[round % LEAT_COUNT_OF(modes)];
    const bool behind = between(0, 1) != 0, channels = between(0, 3) == 0, wide = between(0, 5) == 0;
    const size_t rank = behind ? 4 : (size_t)between(2, 5);
    int64_t dims[5] = {-1}, pads[10] = {0};
    const float value = -7;
    struct builder b;

    for (size_t d = 1; d < rank; d++) {
        const int64_t reach = strcmp(mode, "reflect") == 0 ? -1 : 3;
        dims[d] = d == 1 && behind ? 8 * between(1, 3) : between(1, wide && rank < 5 ? 60 : 9);
        for (size_t side = 0; side < 2 && (d > 1 || channels); side++) {
            const int64_t left = dims[d] + (pads[d] < 0 ? pads[d] : 0), most = reach < 0 ? left - 1 : reach;
            pads[side * rank + d] = between(0, 7) == 0 && left > 1 ? -1 : between(0, most < 0 ? 0 : most);
        }
        const int64_t kept = dims[d] + (pads[d] < 0 ? pads[d] : 0) + (pads[rank + d] < 0 ? pads[rank + d] : 0);
        if (reach < 0 && (pads[d] >= kept || pads[rank + d] >= kept)) {
            pads[d] = pads[rank + d] = 0;
        }
    }
    float *weights = numbers((size_t)(dims[1] * dims[1]), false);
    builder_init(&b, 19);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(dims[1], dims[1], 1, 1));
    (void)builder_constant(&b, "pads", ONNX_I64, pads, DIMS(2 * (int64_t)rank));
    (void)builder_constant(&b, "value", ONNX_F32, &value, NULL, 0);
    if (behind) {
        (void)builder_node(&b, "Conv", "x w", "maps");
    }
    Onnx__NodeProto *node = builder_node(&b, "Pad", behind ? "maps pads value" : between(0, 1) != 0 ? "x pads value" : "x pads", "y");
    (void)builder_string(&b, node, "mode", mode);
    EXPECT(!check(&b, team, LEAT_OP_PAD, !behind, behind ? 1e-5f : 0));
    free(weights);
}

/* ---- Normalisation ---------------------------------------------------------------------------------- */

/* Of planes of every size, whose mean is beside 0, as they come or as a convolution leaves them, in place where that may be. */
static void
test_normalised(struct leat_team *team)
{
    const bool behind = between(0, 1) != 0, kept = between(0, 2) == 0, long_one = between(0, 3) == 0;
    const size_t rank = behind ? 4 : (size_t)between(3, 5);
    int64_t dims[5] = {-1, behind && between(0, 1) != 0 ? 8 * between(1, 4) : between(1, 20)};
    const float beside = (float)between(-20, 20);
    struct builder b;

    for (size_t d = 2; d < rank; d++) {
        dims[d] = between(1, long_one && rank == 4 ? 90 : 12);
    }
    float *weights = numbers((size_t)(dims[1] * dims[1]), false), *scale = numbers((size_t)dims[1], false);
    float *shift = numbers((size_t)dims[1], false);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "w", ONNX_F32, weights, DIMS(dims[1], dims[1], 1, 1));
    (void)builder_constant(&b, "scale", ONNX_F32, scale, DIMS(dims[1]));
    (void)builder_constant(&b, "shift", ONNX_F32, shift, DIMS(dims[1]));
    (void)builder_constant(&b, "beside", ONNX_F32, &beside, NULL, 0);
    (void)builder_node(&b, "Add", "x beside", "a");
    if (behind) {
        (void)builder_node(&b, "Conv", "a w", "maps");
    }
    Onnx__NodeProto *node = builder_node(&b, "InstanceNormalization", behind ? "maps scale shift" : "a scale shift", kept ? "n" : "y");
    (void)builder_float(&b, node, "epsilon", (float)between(1, 9) / 1000.0f);
    if (kept) { /* what it reads is read again */
        (void)builder_node(&b, "Add", behind ? "n maps" : "n a", "y");
    }
    const bool plain = check(&b, team, LEAT_OP_INSTANCE_NORMALIZATION, !behind && between(0, 3) == 0, 1e-4f);
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
    free(weights);
    free(scale);
    free(shift);
}

/* Over any axes but the items', of numbers beside 0, of such whose squares are no floats, of equal ones, and of what is none. */
static void
test_centred(struct leat_team *team, uint32_t round)
{
    static const float factors[] = {1, 1e-3f, 1e25f, 3e38f, 0, 0};
    const float factor = factors[between(0, 5)], same = (float)between(1000, 9999) * powf(10, (float)between(-4, 2));
    const float beside = factor == 0 ? same : factor < 1e38f ? factor * (float)between(-20, 20) * (between(0, 3) == 0 ? 1000 : 1) : 0; /* of all numbers the same: to 0 */
    const size_t rank = (size_t)between(2, 5);
    int64_t dims[5] = {-1}, axes[5];
    struct builder b;
    size_t count = 0;
    bool reduces = false;

    for (size_t d = 1; d < rank; d++) {
        const int64_t long_one = between(0, 5);
        dims[d] = between(1, long_one == 0 && rank < 5 ? 300 : long_one == 1 ? 40 : 7);
        if (between(0, 1) != 0 || (count == 0 && d + 1 == rank)) {
            axes[count++] = between(0, 1) != 0 ? (int64_t)d : (int64_t)d - (int64_t)rank;
            reduces = reduces || dims[d] > 1;
        }
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "beside", ONNX_F32, &beside, NULL, 0);
    (void)builder_node(&b, "Mul", "x factor", "m");
    (void)builder_node(&b, "Add", "m beside", "a");
    (void)builder_ints(&b, builder_node(&b, "MeanVarianceNormalization", "a", "y"), "axes", axes, count);
    const bool plain = check(&b, team, LEAT_OP_MEAN_VARIANCE_NORMALIZATION, round % 4 == 0 && factor == 1, 2e-5f);
#if defined(__x86_64__)
    EXPECT(plain == !reduces);
#else
    (void)plain, (void)reduces;
#endif
}

/* To 0, though floats do not hold sums of them: the deviation, of which 1e-9 is left, divides what is beside the mean. */
static void
test_equal_numbers(struct leat_team *team)
{
    static const struct {
        float number;
        int64_t count;
    } cases[] = {{58448.85f, 196}, {7209.52f, 49}, {1975.51f, 49}, {1000.1f, 196}};

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        for (int64_t axis = 1; axis <= 2; axis++) { /* columns, and rows */
            const float none = 0;
            const int64_t dims[3] = {-1, axis == 1 ? cases[c].count : 5, axis == 1 ? 9 : cases[c].count};
            struct builder b;
            builder_init(&b, 13);
            (void)builder_input(&b, "x", ONNX_F32, dims, 3);
            (void)builder_constant(&b, "none", ONNX_F32, &none, NULL, 0);
            (void)builder_constant(&b, "number", ONNX_F32, &cases[c].number, NULL, 0);
            (void)builder_node(&b, "Mul", "x none", "m");
            (void)builder_node(&b, "Add", "m number", "a");
            (void)builder_ints(&b, builder_node(&b, "MeanVarianceNormalization", "a", "y"), "axes", &axis, 1);
            (void)check(&b, team, LEAT_OP_MEAN_VARIANCE_NORMALIZATION, false, 2e-5f);
        }
    }
}

/* ---- Transforms ------------------------------------------------------------------------------------- */

static void
expect_transformed(struct builder *b, struct leat_team *team, enum leat_op_kind kind)
{
    const bool plain = check(b, team, kind, false, 1e-6f); /* of results about 1 */
#if defined(__x86_64__)
    EXPECT(!plain);
#else
    (void)plain;
#endif
}

/* Of every length to 300, of some longer ones; along any axis, of real and of complex numbers, cut and filled up, there and back. */
static void
test_transform(struct leat_team *team, int64_t length)
{
    const size_t rank = (size_t)between(3, 4);
    const int64_t axis = between(1, (int64_t)rank - 2), parts = between(1, 2), given = between(0, 2) == 0 ? between(1, length + 9) : length;
    const bool inverse = between(0, 2) == 0, onesided = parts == 1 && !inverse && between(0, 1) != 0;
    const float root = sqrtf((float)length), factor = inverse ? root : 1 / root;
    const int64_t beside = length < 60 ? 20 : length < 300 ? 2 : 1;
    int64_t dims[4] = {-1, between(1, beside), between(1, beside)};
    struct builder b;

    dims[axis] = given;
    dims[rank - 1] = parts;
    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, dims, rank);
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "length", ONNX_I64, &length, NULL, 0);
    (void)builder_node(&b, "Mul", "x factor", "z");
    Onnx__NodeProto *node = builder_node(&b, "DFT", given == length && between(0, 1) != 0 ? "z" : "z length", "y");
    (void)builder_int(&b, node, "axis", between(0, 1) != 0 ? axis : axis - (int64_t)rank);
    (void)builder_int(&b, node, "inverse", inverse);
    (void)builder_int(&b, node, "onesided", onesided);
    expect_transformed(&b, team, LEAT_OP_DFT);
}

static void
test_frames(struct leat_team *team)
{
    const int64_t length = between(1, 130), step = between(1, 60), parts = between(1, 2), windowed = between(0, 2);
    const int64_t signal = length + between(0, 400);
    const float factor = 1 / sqrtf((float)length);
    float *window = numbers((size_t)length, false);
    struct builder b;

    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, signal, parts));
    (void)builder_constant(&b, "factor", ONNX_F32, &factor, NULL, 0);
    (void)builder_constant(&b, "step", ONNX_I64, &step, NULL, 0);
    (void)builder_constant(&b, "length", ONNX_I64, &length, NULL, 0);
    (void)builder_constant(&b, "window", ONNX_F32, window, DIMS(length));
    (void)builder_node(&b, "Mul", "x factor", "z");
    Onnx__NodeProto *node = builder_node(&b, "STFT", windowed == 0 ? "z step - length" : windowed == 1 ? "z step window" : "z step window length", "y");
    (void)builder_int(&b, node, "onesided", parts == 1 && between(0, 1) != 0);
    expect_transformed(&b, team, LEAT_OP_STFT);
    free(window);
}

/* Five transforms, one behind the other or side by side, in the cpu backend. */
static void
transform_five(struct leat_team *team, int64_t length, int64_t parts, bool beside, const float *x, float *y)
{
    struct builder b;
    struct loaded loaded;

    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, beside ? length : 5, beside ? 5 : length, parts));
    (void)builder_int(&b, builder_node(&b, "DFT", "x", "y"), "axis", beside ? 1 : 2);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    load_for_team(&leat_backend_cpu, graph, team, &loaded);
    EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){y}) == LEAT_OK);
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* What one transform is of has no part in what others are: of the second no real part is a number, of the others the bits are as they were. */
static void
test_transforms_apart(struct leat_team *team, int64_t length, int64_t parts, bool beside)
{
    const size_t count = (size_t)(5 * length * parts), results = (size_t)(5 * length * 2);
    float *x = numbers(count, false), *before = numbers(results, false), *after = numbers(results, false);

    transform_five(team, length, parts, beside, x, before);
    x[beside ? parts : length * parts] = NAN;
    transform_five(team, length, parts, beside, x, after);
    for (size_t i = 0; i < results; i++) {
        const bool second = (beside ? i / 2 % 5 : i / 2 / (size_t)length) == 1;
        EXPECT(second ? i % 2 != 0 || isnan(after[i]) : memcmp(&before[i], &after[i], sizeof(*before)) == 0);
    }
    free(x);
    free(before);
    free(after);
}

/* What transforms `length` elements by one backend, on a team or with NULL alone. */
static void
transform_long(const struct leat_backend *backend, struct leat_team *team, int64_t length, int64_t parts, const float *x, float *y)
{
    struct builder b;
    struct loaded loaded;

    builder_init(&b, 17);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, length, parts));
    (void)builder_node(&b, "DFT", "x", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    load_for_team(backend, graph, team, &loaded);
    EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){y}) == LEAT_OK);
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* So long that only some elements may be other than 0: their sums in double precision, of both backends. */
static void
test_long_transform(struct leat_team *const teams[], size_t team_count, int64_t length, int64_t parts)
{
    enum { SOME = 8 };
    float *x = calloc((size_t)(length * parts), sizeof(*x)), *y = numbers((size_t)(length * 2), false);
    float *plain = numbers((size_t)(length * 2), false), *shared = numbers((size_t)(length * 2), false);
    int64_t places[SOME];

    EXPECT(x != NULL);
    for (size_t i = 0; i < SOME; i++) {
        places[i] = between(0, length * parts - 1);
        x[places[i]] = (float)between(-1000, 1000) / 1000.0f;
    }
    transform_long(&leat_backend_reference, NULL, length, parts, x, plain);
    transform_long(&leat_backend_cpu, NULL, length, parts, x, y);
    for (size_t t = 0; t < team_count; t++) {
        transform_long(&leat_backend_cpu, teams[t], length, parts, x, shared);
        EXPECT(memcmp(shared, y, (size_t)(length * 2) * sizeof(*y)) == 0);
    }
    for (int64_t k = 0; k < length; k++) {
        double re = 0, im = 0;
        for (size_t i = 0; i < SOME; i++) {
            const double value = (double)x[places[i]];
            const int64_t n = places[i] / parts;
            const double angle = -2 * M_PI * (double)(n * k % length) / (double)length;
            bool again = false;
            for (size_t j = 0; j < i; j++) {
                again = again || places[j] == places[i];
            }
            const bool imaginary = parts == 2 && places[i] % 2 != 0;
            re += again ? 0 : value * (imaginary ? -sin(angle) : cos(angle));
            im += again ? 0 : value * (imaginary ? cos(angle) : sin(angle));
        }
        EXPECT(fabs((double)y[2 * k] - re) < 5e-6 && fabs((double)y[2 * k + 1] - im) < 5e-6);
        EXPECT(fabs((double)plain[2 * k] - re) < 1e-6 && fabs((double)plain[2 * k + 1] - im) < 1e-6); /* floats of up to 8 */
    }
    free(x);
    free(y);
    free(plain);
    free(shared);
}

static void
test_transforms(struct leat_team *team)
{
    static const int64_t longer[] = {512, 1000, 1021, 1024, 1250, 1536};
    static const int64_t longest[] = {1 << 16, 65537, 3 * 5 * 7 * 11 * 13, 2 * 50021, 1 << 17};
    static const int64_t apart[] = {8, 15, 37, 64, 100, 128, 256, 400, 1021};
    struct leat_team *three;

    EXPECT(leat_team_create(&(struct leat_team_options){.size = 3, .spin_ns = 1}, &three) == LEAT_OK);
    struct leat_team *const teams[] = {team, three};
    for (int64_t length = 1; length <= 300; length++) {
        test_transform(team, length);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(longer); i++) {
        test_transform(team, longer[i]);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(longest); i += LEAT_TEST_RACES_ONLY ? LEAT_COUNT_OF(longest) : 1) {
        test_long_transform(teams, LEAT_COUNT_OF(teams), longest[i], 1);
        test_long_transform(teams, LEAT_COUNT_OF(teams), longest[i], 2);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(apart); i++) {
        for (int form = 0; form < 4; form++) {
            test_transforms_apart(NULL, apart[i], 1 + form % 2, form > 1);
            test_transforms_apart(team, apart[i], 1 + form % 2, form > 1);
            test_transforms_apart(three, apart[i], 1 + form % 2, form > 1);
        }
    }
    leat_team_destroy(three);
}

/* What is clipped between bounds that cross is the upper one, behind a convolution, too. */
static void
test_crossed_bounds(void)
{
    static const float x[4] = {-3, -0.5f, 0.5f, 3}, w = 1, low = 0, high = -1;
    struct loaded loaded;
    struct builder b;
    float y[4];

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1, 1, 2, 2));
    (void)builder_constant(&b, "w", ONNX_F32, &w, DIMS(1, 1, 1, 1));
    (void)builder_constant(&b, "low", ONNX_F32, &low, NULL, 0);
    (void)builder_constant(&b, "high", ONNX_F32, &high, NULL, 0);
    (void)builder_node(&b, "Conv", "x w", "c");
    (void)builder_node(&b, "Clip", "c low high", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK);
    load(&leat_backend_cpu, graph, &loaded);
    EXPECT(run(&loaded, (const void *const[]){x}, (void *const[]){y}) == LEAT_OK);
    for (size_t i = 0; i < LEAT_COUNT_OF(y); i++) {
        EXPECT(y[i] == high);
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

int
main(void)
{
    struct leat_team *team;
    uint32_t plain = 0;

    leat_test_init();
    random_state = leat_test_seed;
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 1}, &team) == LEAT_OK);
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        test_reduction(team, round);
        test_norms(team, round);
    }
    for (uint32_t round = 0; round < 2 * ROUNDS; round++) {
        test_places(team, round);
        test_most(team, round);
        test_hardmax(team, round);
        test_pooled_places(team, round);
        test_cum_sum(team, round);
        test_compared(team, round);
        test_of_integers(team, round);
        test_power(team, round);
        test_tests(team, round);
        test_functions(team, round);
        test_centred(team, round);
    }
    test_equal_numbers(team);
    test_crossed_bounds();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_frames(team);
    }
    test_transforms(team);
    test_long_sums();
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        plain += test_transposed(team, round);
    }
#if defined(__x86_64__)
    EXPECT(plain < ROUNDS); /* of three times as many: padding, or what nothing reaches, is long */
#endif
    for (uint32_t round = 0; round < 2 * ROUNDS; round++) {
        test_softmax(team, round);
        test_far_ahead(team, round);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_whole(team, round);
        test_casts(team, round);
        test_triangles(team);
        test_by_index(team, round);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_extreme(team);
    }
    test_upsampling(team);
    test_line();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        test_column(team);
        test_doubled(team);
    }
    for (uint32_t round = 0; round < 3 * ROUNDS; round++) {
        test_resized(team, round);
        test_padded(team, round);
        test_normalised(team);
    }
    leat_team_destroy(team);
    return 0;
}
