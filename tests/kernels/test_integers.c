/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     ConvInteger, and MatMulInteger with a constant matrix, give on the cpu backend, bit by bit, what they give on the
 *          reference backend, of any numbers; so does what dynamic quantisation makes of a product, which passes make one
 *          node of, and so it does without that pass.
 * Method   Random sizes that fill no vector, no panel and no pair, some of several slices, blocks and panels, with one thread and
 *          a team; u8 and s8 on both sides, zero points of all kinds, numbers from the ends of their ranges, weights that are
 *          mostly small, as kernels have them that multiply 8 bits. Sums beyond 32 bits.
 *          Floats that are no numbers. Graphs of which a part is read elsewhere, or scaled otherwise, keep what they have.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/integers.h"
#include "tests/kernels/drawn_numbers.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROUNDS = LEAT_TEST_ROUNDS(120), TEAM = 2 };

static struct builder b;

/* Kernels of our own. */
static bool
has_vectors(void)
{
#if defined(__x86_64__)
    return cpu_vector_lanes() > 0;
#else
    return false;
#endif
}

static bool
coin(void)
{
    return between(0, 1) == 0;
}

static void *
random_bytes(size_t count)
{
    static const uint8_t ends[] = {0, 1, 127, 128, 255};
    const bool extreme = coin();
    uint8_t *data = malloc(count + 1);

    EXPECT(data != NULL);
    for (size_t i = 0; i < count; i++) {
        data[i] = extreme ? ends[between(0, 4)] : (uint8_t)leat_test_random(&random_state);
    }
    return data;
}

/* Numbers about the middle of their range, as weights are, seldom one from its ends, alone or with others. */
static void *
random_weights(size_t count, int type)
{
    const int64_t largest = coin() ? INT8_MAX : between(20, 70);
    int8_t *data = random_bytes(count);

    for (size_t i = 0; i < count && largest < INT8_MAX; i++) { /* else they are any */
        data[i] = (int8_t)(between(0, 999) == 0 ? data[i] : between(-largest, largest));
        data[i] = (int8_t)(type == ONNX_U8 ? data[i] ^ INT8_MIN : data[i]);
    }
    return data;
}

static void
random_floats(float *x, size_t count, float largest)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)between(-1000, 1000) / 1000 * largest;
    }
}

static void
add_bytes(const char *name, int type, const int64_t *dims, size_t rank)
{
    int64_t count = 1;
    for (size_t d = 0; d < rank; d++) {
        count *= dims[d];
    }
    void *bytes = count > 1 ? random_weights((size_t)count, type) : random_bytes(1);
    (void)builder_constant(&b, name, type, bytes, dims, rank);
    free(bytes);
}

/* What no number is may have any bits. */
static bool
same(const struct leat_value *value, const void *want, const void *have)
{
    const size_t count = leat_value_elements(value);

    if (value->dtype != LEAT_DTYPE_F32) {
        return memcmp(want, have, leat_value_bytes(value)) == 0;
    }
    for (size_t i = 0; i < count; i++) {
        const float x = ((const float *)want)[i], y = ((const float *)have)[i];
        if (memcmp(&x, &y, sizeof(x)) != 0 && !(isnan(x) && isnan(y))) {
            return false;
        }
    }
    return true;
}

/* What the reference backend makes of `file`, cpu makes of all of `graphs`, alone and with the team. */
static void
expect_same(const struct leat_graph *file, struct leat_graph *const *graphs, size_t count, struct leat_team *team,
            const void *const *inputs)
{
    const struct leat_value *value = &file->values[file->outputs[0]];
    void *want = random_bytes(leat_value_bytes(value)), *have = random_bytes(leat_value_bytes(value));
    struct loaded loaded;

    EXPECT(file->output_count == 1);
    load(&leat_backend_reference, file, &loaded);
    EXPECT(run(&loaded, inputs, &want) == LEAT_OK);
    unload(&loaded);
    for (size_t g = 0; g < count; g++) {
        load(&leat_backend_reference, graphs[g], &loaded);
        EXPECT(run(&loaded, inputs, &have) == LEAT_OK);
        unload(&loaded);
        EXPECT(same(value, want, have));
        for (int form = 0; form < 2; form++) {
            load_for_team(&leat_backend_cpu, graphs[g], form == 1 ? team : NULL, &loaded);
            EXPECT(run(&loaded, inputs, &have) == LEAT_OK);
            unload(&loaded);
            EXPECT(same(value, want, have));
        }
        if (has_vectors()) {
            EXPECT(count_plain_loops(graphs[g], LEAT_OP_MATMUL_INTEGER) == 0);
            EXPECT(count_plain_loops(graphs[g], LEAT_OP_MATMUL_INTEGER_TO_FLOAT) == 0);
        }
        EXPECT(count_plain_loops(graphs[g], LEAT_OP_CAST) == 0);
    }
    free(want);
    free(have);
}

static struct leat_graph *
optimised(const struct leat_graph *file, const char *without)
{
    struct leat_graph *graph = NULL;
    uint64_t passes = UINT64_MAX;

    EXPECT(leat_passes_without(without, &passes) == LEAT_OK && leat_graph_copy(file, &graph) == LEAT_OK &&
           leat_graph_optimise(graph, passes) == LEAT_OK);
    return graph;
}

static uint32_t
count_kind(const struct leat_graph *graph, enum leat_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op->kind == kind;
    }
    return count;
}

/* ---- Sums ------------------------------------------------------------------------------------------- */

struct sizes {
    int64_t rows, inner, columns;
};

/* Mostly small; now and then more than a slice, a block, or some panels. */
static struct sizes
random_sizes(void)
{
    struct sizes s = {between(1, 20), between(1, 80), between(1, 70)};

    switch (between(0, 7)) {
    case 0: s.inner = between(500, 1200); break;
    case 1: s.rows = between(120, 300); break;
    case 2: s.columns = between(100, 400); break;
    case 3: s = (struct sizes){between(1, 13), between(300, 600), between(200, 300)}; break; /* members divide columns */
    case 4: s = (struct sizes){between(120, 160), between(30, 60), between(60, 140)}; break;  /* rows */
    default: break;
    }
    return s;
}

/* "zero" of u8 or s8, of one element or of `count`, or none. */
static const char *
add_zero(const char *name, int type, int64_t count)
{
    const int64_t form = between(0, 3);

    if (form == 0) {
        return "-";
    }
    if (form == 1) {
        add_bytes(name, type, &count, 1);
    } else {
        add_bytes(name, type, DIMS(1)); /* as a scalar, or a vector of one */
        b.initialisers[b.graph.n_initializer - 1]->n_dims = form == 2 ? 0 : 1;
    }
    return name;
}

static void
test_sums(struct leat_team *team)
{
    const int a_type = coin() ? ONNX_U8 : ONNX_I8, b_type = coin() ? ONNX_U8 : ONNX_I8;
    const struct sizes s = random_sizes();
    const size_t rank = (size_t)between(1, 4), w_rank = (size_t)between(1, 3);
    int64_t dims[4] = {between(1, 3), between(1, 3), s.rows, s.inner}, count = s.inner;
    char list[64];

    for (size_t d = 4 - rank; d < 3; d++) {
        count *= dims[d];
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "a", a_type, dims + 4 - rank, rank);
    const int64_t w_dims[3] = {1, s.inner, s.columns};
    if (w_rank == 1) {
        add_bytes("w", b_type, DIMS(s.inner));
    } else {
        add_bytes("w", b_type, w_dims + 3 - w_rank, w_rank);
    }
    const char *a_zero = add_zero("a_zero", a_type, rank > 1 ? s.rows : 1);
    const char *b_zero = add_zero("b_zero", b_type, w_rank > 1 ? s.columns : 1);
    (void)snprintf(list, sizeof(list), "a w %s %s", a_zero, b_zero);
    (void)builder_node(&b, "MatMulInteger", list, "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    void *a = random_bytes((size_t)count);
    expect_same(graph, &graph, 1, team, (const void *const[]){a});
    free(a);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* 255 255 so often that 32 bits do not hold it. */
static void
test_wrapping(struct leat_team *team)
{
    enum { INNER = 34001 };
    uint8_t *most = malloc(INNER);

    EXPECT(most != NULL);
    memset(most, UINT8_MAX, INNER);
    builder_init(&b, 13);
    (void)builder_input(&b, "a", ONNX_U8, DIMS(1, INNER));
    (void)builder_constant(&b, "w", ONNX_U8, most, DIMS(INNER, 1));
    (void)builder_node(&b, "MatMulInteger", "a w", "y");
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    expect_same(graph, &graph, 1, team, (const void *const[]){most});
    leat_graph_destroy(graph);
    builder_fini(&b);
    free(most);
}

/* One pair of weights that 16 bits just hold times 255, or just do not; few enough for 8 bits to be multiplied. */
static void
test_pairs(struct leat_team *team)
{
    enum { INNER = 64, COLUMNS = 20 };
    uint8_t most[INNER];

    memset(most, UINT8_MAX, INNER);
    for (int sum = 120; sum <= 140; sum++) {
        int8_t weights[INNER * COLUMNS] = {0};
        int8_t *pair = weights + between(0, INNER / 2 - 1) * 2 * COLUMNS + between(0, COLUMNS - 1);
        const int sign = coin() ? 1 : -1, first = (int)between(sum - 127, 127);
        pair[0] = (int8_t)(sign * first);
        pair[COLUMNS] = (int8_t)(sign * (sum - first));
        builder_init(&b, 13);
        (void)builder_input(&b, "a", ONNX_U8, DIMS(1, INNER));
        (void)builder_constant(&b, "w", ONNX_I8, weights, DIMS(INNER, COLUMNS));
        (void)builder_node(&b, "MatMulInteger", "a w", "y");
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        expect_same(graph, &graph, 1, team, (const void *const[]){most});
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* ---- Convolutions ----------------------------------------------------------------------------------- */

static void
test_conv(struct leat_team *team)
{
    const int x_type = coin() ? ONNX_U8 : ONNX_I8, w_type = coin() ? ONNX_U8 : ONNX_I8;
    const size_t rank = (size_t)between(1, 3);
    const int64_t groups = between(0, 2) == 0 ? between(1, 4) : 1, inputs = between(1, between(0, 3) == 0 ? 90 : 9);
    const int64_t outputs = between(1, between(0, 3) == 0 ? 40 : 7) * groups;
    int64_t x_dims[5] = {between(1, 3), inputs * groups}, w_dims[5] = {outputs, inputs};
    int64_t strides[3], dilations[3], pads[6], count = x_dims[0] * x_dims[1];
    char list[64];

    for (size_t d = 0; d < rank; d++) {
        w_dims[2 + d] = between(1, 3);
        strides[d] = between(0, 2) == 0 ? between(2, 3) : 1;
        dilations[d] = between(1, 2);
        pads[d] = between(0, 2);
        pads[rank + d] = between(0, 2);
        x_dims[2 + d] = (w_dims[2 + d] - 1) * dilations[d] + between(1, rank == 1 ? 60 : rank == 2 ? 20 : 5);
        count *= x_dims[2 + d];
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", x_type, x_dims, rank + 2);
    if (coin()) {
        add_bytes("w", w_type, w_dims, rank + 2);
    } else {
        (void)builder_input(&b, "w", w_type, w_dims, rank + 2);
    }
    const char *zero = add_zero("x_zero", x_type, 1), *zeros = add_zero("w_zero", w_type, outputs);
    (void)snprintf(list, sizeof(list), "x w %s %s", zero, zeros);
    Onnx__NodeProto *node = builder_node(&b, "ConvInteger", list, "y");
    builder_int(&b, node, "group", groups);
    builder_ints(&b, node, "strides", strides, rank);
    builder_ints(&b, node, "dilations", dilations, rank);
    builder_ints(&b, node, "pads", pads, 2 * rank);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    void *x = random_bytes((size_t)count), *w = random_bytes((size_t)(outputs * inputs * 27));
    expect_same(graph, &graph, 1, team, (const void *const[]){x, w});
    EXPECT(!has_vectors() || count_plain_loops(graph, LEAT_OP_CONV_INTEGER) == 0);
    free(x);
    free(w);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

#if defined(__x86_64__)
/* Images that end with their memory, which the address sanitizer looks at: of a row of pixels, some panels and a part of one. */
static void
test_bounds(void)
{
    const struct cpu_integers_kernel *kernel = &cpu_integers_avx2;

    for (int64_t pixels = 1; pixels <= 3 * kernel->panel && cpu_has_avx2(); pixels++) {
        const struct leat_window window = {
            .rank = 1, .in = {1, 1, pixels}, .out = {1, 1, pixels}, .kernel = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
        const struct cpu_integers_conv conv = {.items = 1, .groups = 1, .inputs = 1, .outputs = 1, .taps = 1, .window = &window};
        const int16_t weight[2] = {3, 0};
        int32_t *result = calloc((size_t)pixels, sizeof(*result));
        int32_t *sums = aligned_alloc(64, (size_t)kernel->panel * sizeof(*sums));
        uint8_t *source = malloc((size_t)pixels);
        EXPECT(source != NULL && result != NULL && sums != NULL);
        for (int64_t i = 0; i < pixels; i++) {
            source[i] = (uint8_t)leat_test_random(&random_state);
        }
        kernel->convolve(&conv, source, weight, sums, result, 0, 1);
        for (int64_t i = 0; i < pixels; i++) {
            EXPECT(result[i] == 3 * source[i]);
        }
        free(source);
        free(result);
        free(sums);
    }
}
#endif

/* ---- Floats ----------------------------------------------------------------------------------------- */

static void
start_product(const struct sizes *s, int64_t items, int type, bool by_column)
{
    float *scales = malloc(((size_t)s->columns + 1) * sizeof(*scales)), *bias = malloc(((size_t)s->columns + 1) * sizeof(*bias));
    const int64_t count = by_column ? s->columns : 1;

    EXPECT(scales != NULL && bias != NULL);
    random_floats(scales, (size_t)count, 0.01f);
    random_floats(bias, (size_t)s->columns, 3);
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(items, s->rows, s->inner));
    (void)builder_input(&b, "before", ONNX_F32, DIMS(items, s->rows, s->columns));
    add_bytes("w", type, DIMS(s->inner, s->columns));
    add_bytes("w_zero", type, &count, by_column ? 1 : 0);
    (void)builder_constant(&b, "w_scale", ONNX_F32, scales, &count, by_column ? 1 : 0);
    (void)builder_constant(&b, "bias", ONNX_F32, bias, DIMS(s->columns));
    (void)builder_node(&b, "DynamicQuantizeLinear", "x", "q scale zero");
    (void)builder_node(&b, "MatMulInteger", "q w zero w_zero", "sums");
    (void)builder_int(&b, builder_node(&b, "Cast", "sums", "floats"), "to", ONNX_F32);
    free(scales);
    free(bias);
}

static void
test_floats(struct leat_team *team)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f};
    const struct sizes s = random_sizes();
    const int64_t items = between(1, 3), last = between(0, 2);
    const size_t count = (size_t)(items * s.rows * s.inner), results = (size_t)(items * s.rows * s.columns);
    float *x = malloc((count + 1) * sizeof(*x)), *before = malloc((results + 1) * sizeof(*before));

    EXPECT(x != NULL && before != NULL);
    random_floats(x, count, between(0, 9) == 0 ? 0 : 5);
    random_floats(before, results, 3);
    for (int64_t i = between(0, 3) == 0 ? between(1, 3) : 0; i > 0; i--) {
        x[between(0, (int64_t)count - 1)] = odd[between(0, 5)];
    }
    start_product(&s, items, coin() ? ONNX_U8 : ONNX_I8, coin());
    (void)builder_node(&b, "Mul", coin() ? "scale w_scale" : "w_scale scale", "scales");
    (void)builder_node(&b, "Mul", coin() ? "floats scales" : "scales floats", "product");
    (void)builder_node(&b, "Add", coin() ? "product bias" : "bias product", "biased");
    (void)builder_node(&b, "Add", coin() ? "biased before" : "before biased", "sum");
    builder_output(&b, last == 0 ? "product" : last == 1 ? "biased" : "sum");
    struct leat_graph *file = import_graph(&b);
    struct leat_graph *graphs[] = {optimised(file, NULL), optimised(file, "fuse-integers"), optimised(file, "fuse-add")};
    EXPECT(count_kind(graphs[0], LEAT_OP_MATMUL_INTEGER_TO_FLOAT) == 1 && count_kind(graphs[0], LEAT_OP_CAST) == 0);
    EXPECT(count_kind(graphs[0], LEAT_OP_ADD) == 0 && count_kind(graphs[0], LEAT_OP_MUL) == 0);
    EXPECT(count_kind(graphs[1], LEAT_OP_MATMUL_INTEGER) == 1);
    expect_same(file, graphs, 3, team, (const void *const[]){x, before});
    for (int g = 0; g < 3; g++) {
        leat_graph_destroy(graphs[g]);
    }
    leat_graph_destroy(file);
    builder_fini(&b);
    free(x);
    free(before);
}

/* How many nodes are left, and how many of them are sums and products of floats. */
static void
expect_kept(struct leat_team *team, uint32_t products, uint32_t fused)
{
    struct leat_graph *file = import_graph(&b), *graph = optimised(file, NULL);
    float x[2 * 5], before[2 * 3];

    random_floats(x, 10, 5);
    random_floats(before, 6, 3);
    EXPECT(count_kind(graph, LEAT_OP_MATMUL_INTEGER) == products);
    EXPECT(count_kind(graph, LEAT_OP_MATMUL_INTEGER_TO_FLOAT) == fused);
    expect_same(file, &graph, 1, team, (const void *const[]){x, before});
    leat_graph_destroy(file);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* Every step of the way, something is otherwise. */
static void
test_others(struct leat_team *team)
{
    static const float by_row[2] = {0.5f, 0.25f}, four[4] = {1, 2, 3, 4};
    const struct sizes s = {2, 5, 3};

    start_product(&s, 1, ONNX_I8, true); /* the sums are read twice */
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_int(&b, builder_node(&b, "Cast", "sums", "again"), "to", ONNX_F32);
    (void)builder_node(&b, "Add", "product again", "y");
    builder_output(&b, "y");
    expect_kept(team, 1, 0);

    start_product(&s, 1, ONNX_I8, true); /* so are they as floats */
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_node(&b, "Add", "product floats", "y");
    builder_output(&b, "y");
    expect_kept(team, 1, 0);

    start_product(&s, 1, ONNX_I8, true); /* they are multiplied by another number first */
    (void)builder_node(&b, "Mul", "floats scale", "half");
    (void)builder_node(&b, "Mul", "half w_scale", "y");
    builder_output(&b, "y");
    expect_kept(team, 1, 0);

    start_product(&s, 1, ONNX_I8, false); /* the scale is one for each row */
    (void)builder_constant(&b, "rows", ONNX_F32, by_row, DIMS(2, 1));
    (void)builder_node(&b, "Mul", "scale rows", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "y");
    builder_output(&b, "y");
    expect_kept(team, 1, 0);

    start_product(&s, 1, ONNX_I8, false); /* a vector is added to rows */
    (void)builder_constant(&b, "rows", ONNX_F32, by_row, DIMS(2, 1));
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_node(&b, "Add", "product rows", "y");
    builder_output(&b, "y");
    expect_kept(team, 0, 1);

    start_product(&s, 1, ONNX_I8, true); /* what is scaled is read twice: the bias is added behind it */
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_node(&b, "Add", "product bias", "biased");
    (void)builder_node(&b, "Mul", "product biased", "y");
    builder_output(&b, "y");
    expect_kept(team, 0, 1);

    start_product(&s, 1, ONNX_I8, true); /* a second bias stays an Add */
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_node(&b, "Add", "product bias", "biased");
    (void)builder_node(&b, "Add", "biased bias", "y");
    builder_output(&b, "y");
    expect_kept(team, 0, 1);

    start_product(&s, 1, ONNX_I8, true); /* nobody would make an activation in registers */
    (void)builder_node(&b, "Mul", "scale w_scale", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "product");
    (void)builder_node(&b, "Relu", "product", "y");
    builder_output(&b, "y");
    expect_kept(team, 0, 1);

    const struct sizes one = {2, 5, 1}; /* one column becomes four */
    start_product(&one, 1, ONNX_I8, false);
    (void)builder_constant(&b, "four", ONNX_F32, four, DIMS(4));
    (void)builder_node(&b, "Mul", "scale four", "scales");
    (void)builder_node(&b, "Mul", "floats scales", "y");
    builder_output(&b, "y");
    expect_kept(team, 1, 0);
}

int
main(void)
{
    struct leat_team *team;

    leat_test_init();
    (void)printf("seed %llu\n", (unsigned long long)leat_test_seed);
    random_state = leat_test_seed;
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    test_wrapping(team);
    test_pairs(team);
#if defined(__x86_64__)
    test_bounds();
#endif
    test_others(team);
    for (int round = 0; round < ROUNDS; round++) {
        test_sums(team);
        test_floats(team);
        test_conv(team);
    }
    leat_team_destroy(team);
    return 0;
}
