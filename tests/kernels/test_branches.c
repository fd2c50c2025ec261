/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Branches of an If that payload decides are run by backend cpu as programs of its own: nested, with what they read of
 *          the graphs around left as it is, wherever a run's scratch lies, by teams, before and after the passes; but those with
 *          loops inside, whose iterations are counted together, are left to the reference functions. So is an If that constants decide
 *          and that is too large to be unrolled: of the branch that never runs nobody makes anything.
 * Method   Against backend reference and the graph as it was imported, for all conditions, in turns.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { CHANNELS = 8, SIDE = 6, ELEMENTS = CHANNELS * SIDE * SIDE };

static const struct leat_backend *cpu;

static void
draw(float *values, size_t count, float scale)
{
    static uint32_t state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = scale * ((float)(state >> 8) / (float)(1u << 23) - 1);
    }
}

static void
expect_close(const float *got, const float *want, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        const float apart = fabsf(got[i] - want[i]);
        if (!(apart <= 1e-4f + 1e-3f * fabsf(want[i]))) {
            (void)fprintf(stderr, "%s: element %zu is %g instead of %g\n", what, i, (double)got[i], (double)want[i]);
        }
        EXPECT(apart <= 1e-4f + 1e-3f * fabsf(want[i]));
    }
}

static void
convolve(struct builder *b, const char *inputs, const char *output)
{
    Onnx__NodeProto *node = builder_node(b, "Conv", inputs, output);
    (void)builder_ints(b, node, "pads", DIMS(1, 1, 1, 1));
}

/*
 * h = Relu(Conv(x)); y = a ? Relu(Conv(h)) + (b ? Sigmoid(h + r) : k r) : b ? x m + h : x; z = y + h; r is what the branch
 * around made. `last`: nobody reads h after the If but its branches.
 */
struct nested {
    struct builder b, yes, yes_yes, yes_no, no, no_yes, no_no;
    float w[2][CHANNELS * CHANNELS * 9], m[SIDE * SIDE], k[1];
};

static struct leat_graph *
make_nested(struct nested *n, bool last)
{
    draw(n->w[0], LEAT_COUNT_OF(n->w[0]), 0.2f);
    draw(n->w[1], LEAT_COUNT_OF(n->w[1]), 0.2f);
    draw(n->m, LEAT_COUNT_OF(n->m), 0.5f);
    n->k[0] = -3;
    builder_init(&n->yes_yes, 13);
    (void)builder_node(&n->yes_yes, "Add", "h r", "sum");
    (void)builder_node(&n->yes_yes, "Sigmoid", "sum", "deep");
    builder_output(&n->yes_yes, "deep");
    builder_init(&n->yes_no, 13);
    (void)builder_constant(&n->yes_no, "k", ONNX_F32, n->k, DIMS(1));
    (void)builder_node(&n->yes_no, "Mul", "k r", "other");
    builder_output(&n->yes_no, "other");
    builder_init(&n->yes, 13);
    convolve(&n->yes, "h w1", "u");
    (void)builder_node(&n->yes, "Relu", "u", "r");
    Onnx__NodeProto *node = builder_node(&n->yes, "If", "b", "p");
    builder_graph(&n->yes, node, "then_branch", &n->yes_yes);
    builder_graph(&n->yes, node, "else_branch", &n->yes_no);
    (void)builder_node(&n->yes, "Add", "p r", "q");
    builder_output(&n->yes, "q");
    builder_init(&n->no_yes, 13);
    (void)builder_node(&n->no_yes, "MatMul", "x m", "over");
    (void)builder_node(&n->no_yes, "Add", "over h", "t"); /* h is read last in here, but not by others */
    builder_output(&n->no_yes, "t");
    builder_init(&n->no_no, 13);
    (void)builder_node(&n->no_no, "Identity", "x", "through");
    builder_output(&n->no_no, "through");
    builder_init(&n->no, 13);
    node = builder_node(&n->no, "If", "b", "v");
    builder_graph(&n->no, node, "then_branch", &n->no_yes);
    builder_graph(&n->no, node, "else_branch", &n->no_no);
    builder_output(&n->no, "v");
    builder_init(&n->b, 13);
    (void)builder_input(&n->b, "x", ONNX_F32, DIMS(1, CHANNELS, SIDE, SIDE));
    (void)builder_input(&n->b, "a", ONNX_BOOL, DIMS(1));
    (void)builder_input(&n->b, "b", ONNX_BOOL, NULL, 0);
    (void)builder_constant(&n->b, "w0", ONNX_F32, n->w[0], DIMS(CHANNELS, CHANNELS, 3, 3));
    (void)builder_constant(&n->b, "w1", ONNX_F32, n->w[1], DIMS(CHANNELS, CHANNELS, 3, 3));
    (void)builder_constant(&n->b, "m", ONNX_F32, n->m, DIMS(SIDE, SIDE));
    convolve(&n->b, "x w0", "c");
    (void)builder_node(&n->b, "Relu", "c", "h");
    node = builder_node(&n->b, "If", "a", "y");
    builder_graph(&n->b, node, "then_branch", &n->yes);
    builder_graph(&n->b, node, "else_branch", &n->no);
    (void)builder_node(&n->b, "Add", last ? "y x" : "y h", "z");
    builder_output(&n->b, "y");
    builder_output(&n->b, "z");
    return import_graph(&n->b);
}

static void
free_nested(struct nested *n)
{
    struct builder *all[] = {&n->b, &n->yes, &n->yes_yes, &n->yes_no, &n->no, &n->no_yes, &n->no_no};
    for (size_t i = 0; i < LEAT_COUNT_OF(all); i++) {
        builder_fini(all[i]);
    }
}

/* All conditions, each round in other scratch. */
static void
run_nested(struct loaded *loaded, float x[ELEMENTS], float want[4][2][ELEMENTS], bool is_reference)
{
    const size_t bytes = (size_t)leat_round_up(loaded->backend->plan_scratch_bytes(loaded->plan) + 64, 64);
    static float y[ELEMENTS], z[ELEMENTS];
    void *scratch[2] = {loaded->scratch, aligned_alloc(64, bytes)};

    EXPECT(scratch[1] != NULL);
    for (int round = 0; round < 12; round++) {
        const int which = round * 3 % 4;
        const uint8_t a = which & 1 ? 0x40 : 0, b = (uint8_t)(which >> 1); /* any bit is true */
        const void *inputs[3] = {x, &a, &b};
        void *outputs[2] = {is_reference ? want[which][0] : y, is_reference ? want[which][1] : z};
        loaded->scratch = scratch[round / 4 % 2];
        memset(loaded->scratch, 0xa5, bytes - 64);
        EXPECT(run(loaded, inputs, outputs) == LEAT_OK);
        if (!is_reference) {
            expect_close(y, want[which][0], ELEMENTS, "branch");
            expect_close(z, want[which][1], ELEMENTS, "behind the branches");
        }
    }
    loaded->scratch = scratch[0];
    free(scratch[1]);
}

static void
test_nested(bool last)
{
    static float x[ELEMENTS], want[4][2][ELEMENTS];
    struct leat_team *team = NULL;
    struct loaded loaded;
    struct nested n;

    struct leat_graph *graph = make_nested(&n, last);
    draw(x, ELEMENTS, 1);
    load(&leat_backend_reference, graph, &loaded);
    run_nested(&loaded, x, want, true);
    unload(&loaded);
    EXPECT(memcmp(want[0][0], x, sizeof(x)) == 0); /* neither: x as it is */
    EXPECT(leat_team_create(&(struct leat_team_options){.size = 2}, &team) == LEAT_OK);
    for (int form = 0; form < 2; form++) { /* as it was imported, and after the passes */
        EXPECT(form == 0 || leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
        EXPECT(leat_graph_check(graph) == LEAT_OK);
        EXPECT(count_plain_loops(graph, LEAT_OP_IF) == 0);
        load(cpu, graph, &loaded);
        run_nested(&loaded, x, want, false);
        unload(&loaded);
        load_for_team(cpu, graph, team, &loaded);
        run_nested(&loaded, x, want, false);
        unload(&loaded);
        load(&leat_backend_reference, graph, &loaded);
        run_nested(&loaded, x, want, false);
        unload(&loaded);
    }
    leat_team_destroy(team);
    leat_graph_destroy(graph);
    free_nested(&n);
}

/* Passes fuse inside of branches, too: the convolution there has its activation. */
static void
test_passes_inside(void)
{
    struct leat_graph *branch = NULL;
    struct nested n;
    uint32_t fused = 0, captured;

    struct leat_graph *graph = make_nested(&n, false);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].op->kind == LEAT_OP_IF) {
            branch = leat_node_graph(&graph->nodes[i], "then_branch", &captured);
        }
    }
    for (uint32_t i = 0; branch != NULL && i < branch->node_count; i++) {
        fused += branch->nodes[i].op->kind == LEAT_OP_CONV && branch->nodes[i].fused_activation == LEAT_ACTIVATION_RELU;
        EXPECT(strcmp(branch->nodes[i].op->name, "Relu") != 0);
    }
    EXPECT(fused == 1);
    leat_graph_destroy(graph);
    free_nested(&n);
}

/* y = Shape(x)[0] is 1 ? Relu(Conv(x)) + x : -x: the batch decides, when it is known, after passes have been in the branches. */
static void
test_decided_by_batch(void)
{
    static float w[CHANNELS * CHANNELS * 9], x[2 * ELEMENTS], got[2 * ELEMENTS], want[2 * ELEMENTS];
    struct leat_graph *graph, *concrete;
    struct builder b, yes, no;
    struct loaded loaded;

    draw(w, LEAT_COUNT_OF(w), 0.2f);
    draw(x, LEAT_COUNT_OF(x), 1);
    builder_init(&yes, 13);
    convolve(&yes, "x w", "c");
    (void)builder_node(&yes, "Add", "c x", "sum");
    (void)builder_node(&yes, "Relu", "sum", "t");
    builder_output(&yes, "t");
    builder_init(&no, 13);
    (void)builder_node(&no, "Neg", "x", "e");
    builder_output(&no, "e");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, CHANNELS, SIDE, SIDE));
    (void)builder_constant(&b, "w", ONNX_F32, w, DIMS(CHANNELS, CHANNELS, 3, 3));
    (void)builder_constant(&b, "zero", ONNX_I64, (const int64_t[]){0}, NULL, 0);
    (void)builder_constant(&b, "one", ONNX_I64, (const int64_t[]){1}, NULL, 0);
    (void)builder_node(&b, "Shape", "x", "sizes");
    (void)builder_node(&b, "Gather", "sizes zero", "n");
    (void)builder_node(&b, "Equal", "n one", "single");
    Onnx__NodeProto *node = builder_node(&b, "If", "single", "y");
    builder_graph(&b, node, "then_branch", &yes);
    builder_graph(&b, node, "else_branch", &no);
    builder_output(&b, "y");
    for (int form = 0; form < 2; form++) { /* as it was imported, and after the passes */
        graph = import_graph(&b);
        EXPECT(form == 0 || leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
        for (int64_t items = 1; items <= 2; items++) {
            EXPECT(leat_graph_specialise(graph, items, &concrete) == LEAT_OK && leat_graph_check(concrete) == LEAT_OK);
            load(&leat_backend_reference, concrete, &loaded);
            EXPECT(run(&loaded, (const void *[]){x}, (void *[]){form == 0 && items == 1 ? want : got}) == LEAT_OK);
            for (size_t i = 0; items == 2 && i < LEAT_COUNT_OF(x); i++) {
                EXPECT(got[i] == -x[i]);
            }
            if (form == 1 && items == 1) {
                expect_close(got, want, ELEMENTS, "a branch that the batch decides");
            }
            unload(&loaded);
            leat_graph_destroy(concrete);
        }
        leat_graph_destroy(graph);
    }
    builder_fini(&b);
    builder_fini(&yes);
    builder_fini(&no);
}

/* A branch that reads more values than a query has tensors, and one that reads none. */
static void
test_many_captures(void)
{
    enum { COUNT = 150 };
    struct builder b, yes, no;
    char name[16], inputs[COUNT * 8] = "", pair[32];
    struct loaded loaded;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2));
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    for (int i = 0; i < COUNT; i++) {
        const float factor = (float)(i + 1);
        (void)snprintf(name, sizeof(name), "k%d", i);
        (void)builder_constant(&b, name, ONNX_F32, &factor, DIMS(1));
        (void)snprintf(pair, sizeof(pair), "x k%d", i);
        (void)snprintf(name, sizeof(name), "v%d", i);
        (void)builder_node(&b, "Mul", pair, name);
        (void)snprintf(inputs + strlen(inputs), sizeof(inputs) - strlen(inputs), "%sv%d", i > 0 ? " " : "", i);
    }
    builder_init(&yes, 13);
    (void)builder_node(&yes, "Sum", inputs, "t");
    builder_output(&yes, "t");
    builder_init(&no, 13);
    (void)builder_constant(&no, "fixed", ONNX_F32, (const float[]){7, 8}, DIMS(2));
    builder_output(&no, "fixed");
    Onnx__NodeProto *node = builder_node(&b, "If", "c", "y");
    builder_graph(&b, node, "then_branch", &yes);
    builder_graph(&b, node, "else_branch", &no);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(count_plain_loops(graph, LEAT_OP_IF) == 0);
    load(cpu, graph, &loaded);
    for (uint8_t c = 0; c < 2; c++) {
        const float x[2] = {1, -2};
        const void *of[2] = {x, &c};
        const float sum = COUNT * (COUNT + 1) / 2, wanted[2][2] = {{7, 8}, {sum, -2 * sum}};
        float y[2];
        EXPECT(run(&loaded, of, (void *[]){y}) == LEAT_OK && memcmp(y, wanted[c], sizeof(y)) == 0);
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
    builder_fini(&yes);
    builder_fini(&no);
}

/* t = s + 1, n times */
static void
add_loop(struct builder *b, struct builder *body, const char *inputs, const char *output, const char *tag)
{
    char names[5][16];
    static const char *const prefixes[5] = {"i", "go", "s", "one", "t"};
    char pair[48];

    for (int i = 0; i < 5; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%s%s", prefixes[i], tag);
    }
    builder_init(body, 13);
    (void)builder_input(body, names[0], ONNX_I64, NULL, 0);
    (void)builder_input(body, names[1], ONNX_BOOL, NULL, 0);
    (void)builder_input(body, names[2], ONNX_F32, DIMS(1));
    (void)builder_constant(body, names[3], ONNX_F32, (const float[]){1}, DIMS(1));
    (void)snprintf(pair, sizeof(pair), "%s %s", names[2], names[3]);
    (void)builder_node(body, "Add", pair, names[4]);
    builder_output(body, names[1]);
    builder_output(body, names[4]);
    builder_graph(b, builder_node(b, "Loop", inputs, output), "body", body);
}

/* Two loops of a branch have so many iterations together. */
static void
test_loops_inside(void)
{
    struct builder b, yes, no, bodies[2];
    struct loaded loaded;
    const uint8_t c = 1;

    builder_init(&yes, 13);
    add_loop(&yes, &bodies[0], "n true x", "first", "0");
    add_loop(&yes, &bodies[1], "n true first", "second", "1");
    builder_output(&yes, "second");
    builder_init(&no, 13);
    (void)builder_node(&no, "Neg", "x", "negative");
    builder_output(&no, "negative");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1));
    (void)builder_input(&b, "n", ONNX_I64, NULL, 0);
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    (void)builder_constant(&b, "true", ONNX_BOOL, (const uint8_t[]){1}, NULL, 0);
    Onnx__NodeProto *node = builder_node(&b, "If", "c", "y");
    builder_graph(&b, node, "then_branch", &yes);
    builder_graph(&b, node, "else_branch", &no);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(count_plain_loops(graph, LEAT_OP_IF) == 1);
    load(cpu, graph, &loaded);
    for (int64_t n = LEAT_TRIPS_MAX / 2; n <= LEAT_TRIPS_MAX / 2 + 1; n++) {
        const float x[1] = {3};
        const void *of[3] = {x, &n, &c};
        float y[1];
        EXPECT(run(&loaded, of, (void *[]){y}) == (2 * n <= LEAT_TRIPS_MAX ? LEAT_OK : LEAT_ERR_SHAPE));
        EXPECT(2 * n > LEAT_TRIPS_MAX || y[0] == (float)(3 + 2 * n));
    }
    unload(&loaded);
    leat_graph_destroy(graph);
    builder_fini(&b);
    builder_fini(&yes);
    builder_fini(&no);
    builder_fini(&bodies[0]);
    builder_fini(&bodies[1]);
}

/* y = true ? x k : bad, behind more nodes than may be unrolled; bad has more outputs than an If may have, and its Conv does not fit. */
static void
test_decided_too_large(void)
{
    enum { COUNT = 33000, YIELDED = 100 };
    static Onnx__NodeProto *nodes[COUNT + 1];
    const uint8_t yes_always = 1;
    char in[16] = "x", out[16], name[16];
    struct builder b, yes, no;
    struct loaded loaded;

    builder_init(&yes, 13);
    (void)builder_constant(&yes, "k", ONNX_F32, (const float[]){4}, DIMS(1));
    (void)builder_node(&yes, "Mul", "h k", "t");
    builder_output(&yes, "t");
    builder_init(&no, 13);
    (void)builder_constant(&no, "one", ONNX_F32, (const float[]){1}, DIMS(1));
    (void)builder_node(&no, "Add", "one one", "two"); /* a pass would fold it, and infer all again */
    (void)builder_node(&no, "Conv", "h two", "u");
    builder_output(&no, "u");
    for (int o = 1; o < YIELDED; o++) {
        (void)snprintf(name, sizeof(name), "c%d", o);
        (void)builder_constant(&no, name, ONNX_F32, (const float[]){1}, DIMS(1));
        builder_output(&no, name);
    }
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2));
    (void)builder_constant(&b, "true", ONNX_BOOL, &yes_always, NULL, 0);
    for (int n = 0; n < COUNT; n++, b.graph.n_node = 0) {
        (void)snprintf(out, sizeof(out), n == COUNT - 1 ? "h" : "n%d", n);
        nodes[n] = builder_node(&b, "Neg", in, out);
        (void)strcpy(in, out);
    }
    nodes[COUNT] = builder_node(&b, "If", "true", "y");
    builder_graph(&b, nodes[COUNT], "then_branch", &yes);
    builder_graph(&b, nodes[COUNT], "else_branch", &no);
    builder_output(&b, "y");
    b.graph.node = nodes;
    b.graph.n_node = COUNT + 1;
    struct leat_graph *graph = import_graph(&b);
    EXPECT(graph->node_count == COUNT + 1);
    for (int form = 0; form < 2; form++) { /* as it was imported, and after the passes */
        const enum leat_status status = form == 0 ? LEAT_OK : leat_graph_optimise(graph, UINT64_MAX);
        if (status != LEAT_OK) {
            (void)fprintf(stderr, "%s\n", leat_error_text());
        }
        EXPECT(status == LEAT_OK && count_plain_loops(graph, LEAT_OP_IF) == 1);
        load(cpu, graph, &loaded);
        float y[2];
        EXPECT(run(&loaded, (const void *[]){(const float[]){1, -2}}, (void *[]){y}) == LEAT_OK && y[0] == 4 && y[1] == -8);
        unload(&loaded);
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
    builder_fini(&yes);
    builder_fini(&no);
}

int
main(void)
{
    leat_test_init();
    cpu = leat_backend_find("cpu");
    EXPECT(cpu != NULL);
    test_nested(false);
    test_nested(true);
    test_passes_inside();
    test_decided_by_batch();
    test_many_captures();
    test_loops_inside();
    if (LEAT_TEST_SHARE == 1) { /* so many nodes take minutes with a sanitizer */
        test_decided_too_large();
    }
    return 0;
}
