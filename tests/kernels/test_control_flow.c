/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     If, Loop and Scan do what ONNX says, whether constants or known sizes decide (they are unrolled) or payload does (they run as graphs
 *          inside a node), with values of the graphs around, in every backend; counts and conditions of any kind fail a batch
 *          at the most.
 */
#include <string.h>

#include "base/align.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

#define ONNX_BOOL 9

static const struct leat_backend *backends[2];
static size_t backend_count;

/* Nodes with graphs inside that are left. */
static uint32_t
control_nodes(const struct leat_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        count += leat_node_has_graphs(&graph->nodes[n]);
    }
    return count;
}

static void
expect_floats(const float *got, const float *want, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (got[i] != want[i]) {
            (void)fprintf(stderr, "%s: element %zu is %g instead of %g\n", what, i, (double)got[i], (double)want[i]);
        }
        EXPECT(got[i] == want[i]);
    }
}

/* ---- If ------------------------------------------------------------------------------------------------------- */

/* y = c ? x + w : x * k, where w is an initialiser outside and k one inside. */
static void
build_if(struct builder *b, struct builder *then_graph, struct builder *else_graph, bool constant, bool value)
{
    static const float w[3] = {10, 20, 30}, k[1] = {-2};
    const uint8_t condition[1] = {value};

    builder_init(then_graph, 13);
    (void)builder_node(then_graph, "Add", "x w", "t");
    builder_output(then_graph, "t");
    builder_init(else_graph, 13);
    (void)builder_constant(else_graph, "k", ONNX_F32, k, DIMS(1));
    (void)builder_node(else_graph, "Mul", "x k", "e");
    builder_output(else_graph, "e");
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, DIMS(3));
    if (constant) {
        (void)builder_constant(b, "c", ONNX_BOOL, condition, DIMS(1));
    } else {
        (void)builder_input(b, "c", ONNX_BOOL, DIMS(1));
    }
    (void)builder_constant(b, "w", ONNX_F32, w, DIMS(3));
    Onnx__NodeProto *node = builder_node(b, "If", "c", "y");
    builder_graph(b, node, "then_branch", then_graph);
    builder_graph(b, node, "else_branch", else_graph);
    builder_output(b, "y");
}

static void
test_if(void)
{
    static const float x[3] = {1, 2, 3}, wanted[2][3] = {{-2, -4, -6}, {11, 22, 33}};
    for (int form = 0; form < 3; form++) { /* false, true, as payload says */
        struct builder b, inner[2];
        build_if(&b, &inner[0], &inner[1], form < 2, form == 1);
        struct leat_graph *graph = import_graph(&b);
        EXPECT(leat_graph_check(graph) == LEAT_OK);
        EXPECT(control_nodes(graph) == (form == 2));
        for (size_t i = 0; i < backend_count; i++) {
            struct loaded loaded;
            load(backends[i], graph, &loaded);
            for (int value = 0; value < 2; value++) {
                const uint8_t condition = value == 1 ? 0x80 : 0; /* any bit */
                const void *inputs[2] = {x, &condition};
                float y[3];
                void *outputs[1] = {y};
                EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
                expect_floats(y, wanted[form < 2 ? form : value], 3, "If");
            }
            unload(&loaded);
        }
        leat_graph_destroy(graph);
        for (int i = 0; i < 2; i++) {
            builder_fini(&inner[i]);
        }
        builder_fini(&b);
    }
}

/* Branches of other sizes: as large as the branch that runs. */
static void
test_if_of_sizes(void)
{
    struct builder b, one, two;
    struct leat_graph *concrete = NULL;
    float y[6];
    size_t scratch_bytes;

    builder_init(&one, 13);
    (void)builder_int(&one, builder_node(&one, "Concat", "x x", "t"), "axis", 0);
    builder_output(&one, "t");
    builder_init(&two, 13);
    (void)builder_node(&two, "Identity", "x", "e");
    builder_output(&two, "e");
    builder_init(&b, 13);
    (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
    (void)builder_input(&b, "x", ONNX_F32, DIMS(3));
    Onnx__NodeProto *node = builder_node(&b, "If", "c", "y");
    builder_graph(&b, node, "then_branch", &one);
    builder_graph(&b, node, "else_branch", &two);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    EXPECT(leat_graph_is_bounded(concrete));
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    EXPECT(scratch != NULL);
    for (uint8_t condition = 0; condition < 2; condition++) {
        static const float x[3] = {1, 2, 3};
        const void *inputs[2] = {&condition, x};
        void *outputs[1] = {y};
        struct leat_shape shape;
        EXPECT(leat_reference_run(concrete, inputs, outputs, scratch, &shape) == LEAT_OK);
        EXPECT(shape.rank == 1 && shape.dims[0] == (condition == 1 ? 6 : 3));
    }
    free(scratch);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    builder_fini(&one);
    builder_fini(&two);
    builder_fini(&b);
}

/* What computes condition c of x's sizes; `one`, `zero`, `two` are scalars, `ones` and so on vectors of one element. */
struct step {
    const char *op, *inputs, *output;
    int64_t number; /* of axis or to */
};

/* y = c ? -(x without axis 1) : x + x */
static void
build_squeeze(struct builder *b, struct builder *then_graph, struct builder *else_graph, const int64_t *dims, size_t rank,
              const struct step *steps)
{
    static const int64_t numbers[] = {0, 1, 2, 100};
    static const char *const scalars[] = {"zero", "one", "two", "beyond"}, *const vectors[] = {"zeros", "ones", "twos", "many"};

    builder_init(then_graph, 13);
    (void)builder_node(then_graph, "Squeeze", "x ones", "s");
    (void)builder_node(then_graph, "Neg", "s", "t");
    builder_output(then_graph, "t");
    builder_init(else_graph, 13);
    (void)builder_node(else_graph, "Add", "x x", "e");
    builder_output(else_graph, "e");
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, dims, rank);
    for (size_t i = 0; i < LEAT_COUNT_OF(numbers); i++) {
        (void)builder_constant(b, scalars[i], ONNX_I64, &numbers[i], NULL, 0);
        (void)builder_constant(b, vectors[i], ONNX_I64, &numbers[i], DIMS(1));
    }
    for (const struct step *step = steps; step->op != NULL; step++) {
        Onnx__NodeProto *node = builder_node(b, step->op, step->inputs, step->output);
        if (strcmp(step->op, "Concat") == 0 || strcmp(step->op, "Cast") == 0) {
            (void)builder_int(b, node, step->op[1] == 'o' ? "axis" : "to", step->number);
        }
    }
    Onnx__NodeProto *node = builder_node(b, "If", "c", "y");
    builder_graph(b, node, "then_branch", then_graph);
    builder_graph(b, node, "else_branch", else_graph);
    builder_output(b, "y");
}

/* The graph of sizes that are known now runs on three items as the branch says. */
static void
expect_branch(const struct leat_graph *graph, bool squeezed)
{
    struct leat_graph *concrete = NULL;
    float x[3 * 3 * 4], y[3 * 3 * 4];

    EXPECT(leat_graph_check(graph) == LEAT_OK && control_nodes(graph) == 0);
    const struct leat_value *output = &graph->values[graph->outputs[0]];
    EXPECT(output->rank == (squeezed ? 2 : 3) && output->dims[0] == LEAT_DIM_BATCH);
    EXPECT(leat_graph_specialise(graph, 3, &concrete) == LEAT_OK);
    const size_t count = leat_value_elements(&concrete->values[concrete->inputs[0]]);
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)i + 1;
    }
    for (size_t k = 0; k < backend_count; k++) {
        const void *inputs[1] = {x};
        void *outputs[1] = {y};
        struct loaded loaded;
        load(backends[k], concrete, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        for (size_t i = 0; i < count; i++) {
            EXPECT(y[i] == (squeezed ? -x[i] : x[i] + x[i]));
        }
        unload(&loaded);
    }
    leat_graph_destroy(concrete);
}

static void
test_if_of_shape(void)
{
    static const struct step ways[][8] = {
        {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Equal", "d one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s ones", "d", 0}, {"Equal", "d ones", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Slice", "s ones twos zeros", "d", 0}, {"Squeeze", "d zeros", "e", 0}, {"Less", "e two", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Cast", "s", "n", ONNX_I32}, {"Cast", "n", "w", ONNX_I64}, {"Gather", "w one", "d", 0}, {"Greater", "two d", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Unsqueeze", "d zeros", "u", 0}, {"Shape", "x", "s2", 0}, {"Concat", "u s2", "l", 0}, {"Gather", "l zero", "e", 0}, {"Equal", "e one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Mul", "s two", "m", 0}, {"Sub", "m one", "n", 0}, {"Gather", "n one", "d", 0}, {"Equal", "d one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Equal", "s one", "f", 0}, {"Cast", "f", "g", ONNX_I64}, {"Gather", "g one", "d", 0}, {"Cast", "d", "c", ONNX_BOOL}},
        {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Greater", "d one", "g", 0}, {"Not", "g", "n", 0}, {"Gather", "s two", "l", 0}, {"Less", "l zero", "f", 0}, {"Or", "n f", "c", 0}},
    };
    for (size_t w = 0; w < LEAT_COUNT_OF(ways); w++) {
        for (int64_t size = 1; size <= 3; size += 2) { /* of 3, the branch for 1 does not even fit */
            struct builder b, inner[2];
            build_squeeze(&b, &inner[0], &inner[1], DIMS(-1, size, 4), ways[w]);
            struct leat_graph *graph = import_graph(&b);
            expect_branch(graph, size == 1);
            leat_graph_destroy(graph);
            for (int i = 0; i < 2; i++) {
                builder_fini(&inner[i]);
            }
            builder_fini(&b);
        }
    }
}

/* What a batch, a free dimension, payload or an index out of range decides is not known. */
static void
test_if_of_free_shape(void)
{
    static const struct step ways[][12] = {
        {{"Shape", "x", "s", 0}, {"Gather", "s zero", "d", 0}, {"Equal", "d one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s two", "d", 0}, {"Equal", "d one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s beyond", "d", 0}, {"Equal", "d one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Div", "d zero", "q", 0}, {"Equal", "q one", "c", 0}},
        {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Equal", "d one", "e", 0}, {"Gather", "s zero", "n", 0}, {"Equal", "n one", "f", 0}, {"And", "e f", "c", 0}},
        {{"Shape", "x", "s", 0}, {"NonZero", "s", "at", 0}, {"Shape", "at", "n", 0}, {"Gather", "n one", "d", 0}, {"Equal", "d one", "c", 0}},
        /* 10^12 of 32 bits wraps around */
        {{"Shape", "x", "s", 0}, {"Cast", "s", "n", ONNX_I32}, {"Cast", "beyond", "h", ONNX_I32}, {"Mul", "h h", "h2", 0}, {"Mul", "h2 h2", "h4", 0}, {"Mul", "n h4", "p", 0}, {"Mul", "p h2", "q", 0}, {"Cast", "q", "w", ONNX_I64}, {"Greater", "w zero", "f", 0}, {"Gather", "f one", "c", 0}},
    };
    static const char both[] = "node 'y' (operator If): its branches yield different types or ranks, and 'c' is not known before a run";
    static const char *const texts[] = {both, both, both, "(operator Div)", both, "depends on tensor contents", both};
    for (size_t w = 0; w < LEAT_COUNT_OF(ways); w++) {
        struct leat_graph *graph = NULL;
        struct builder b, inner[2];
        build_squeeze(&b, &inner[0], &inner[1], DIMS(-1, 1, -2), ways[w]);
        EXPECT(builder_import(&b, &graph) == (w == 3 ? LEAT_ERR_SHAPE : LEAT_ERR_UNSUPPORTED) && graph == NULL);
        if (strstr(leat_error_text(), texts[w]) == NULL) {
            (void)fprintf(stderr, "way %zu: \"%s\"\n", w, leat_error_text());
        }
        EXPECT(strstr(leat_error_text(), texts[w]) != NULL);
        for (int i = 0; i < 2; i++) {
            builder_fini(&inner[i]);
        }
        builder_fini(&b);
    }
}

/* But a free dimension that is given its value before anything is inferred is. */
static void
test_if_of_given_shape(void)
{
    static const struct step steps[] = {{"Shape", "x", "s", 0}, {"Gather", "s one", "d", 0}, {"Equal", "d one", "c", 0}, {0}};

    for (int64_t given = 1; given <= 3; given += 2) {
        const struct leat_dim_value value = {.name = "M", .value = given};
        struct leat_onnx_source source = {.folder_fd = -1, .dims = &value, .dim_count = 1};
        struct leat_graph *graph = NULL;
        struct builder b, inner[2];
        build_squeeze(&b, &inner[0], &inner[1], DIMS(-1, -2, 4), steps);
        source.bytes = builder_pack(&b, &source.byte_count);
        EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK && leat_graph_bind(graph, NULL, 0) == LEAT_OK);
        expect_branch(graph, given == 1);
        leat_graph_destroy(graph);
        source.dims = (const struct leat_dim_value[]){{.name = "L", .value = 2}};
        EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_ERR_INVALID);
        EXPECT(strstr(leat_error_text(), "no dimension 'L' can be given a value; beside the batch, free is 'M'") != NULL);
        for (int i = 0; i < 2; i++) {
            builder_fini(&inner[i]);
        }
        builder_fini(&b);
    }
}

/* As many loops in each other as there may be, or one more, each in a branch: `levels` of them add one, twice each. */
static void
test_depth(void)
{
    enum { LEVELS_MAX = 4 };

    for (int levels = LEVELS_MAX - 1; levels <= LEVELS_MAX; levels++) {
        struct builder b, body[LEVELS_MAX], branch[LEVELS_MAX];
        struct leat_graph *graph = NULL;
        char s[LEVELS_MAX + 1][8], t[LEVELS_MAX][8], inputs[40];

        (void)snprintf(s[levels], sizeof(s[levels]), "s%d", levels);
        for (int l = levels; l-- > 0;) { /* innermost first */
            char i[8], go[8], result[8];
            (void)snprintf(s[l], sizeof(s[l]), "s%d", l);
            (void)snprintf(t[l], sizeof(t[l]), "t%d", l);
            (void)snprintf(i, sizeof(i), "i%d", l);
            (void)snprintf(go, sizeof(go), "go%d", l);
            (void)snprintf(result, sizeof(result), "r%d", l);
            builder_init(&branch[l], 13);
            builder_init(&body[l], 13);
            (void)builder_input(&body[l], i, ONNX_I64, NULL, 0);
            (void)builder_input(&body[l], go, ONNX_BOOL, NULL, 0);
            (void)builder_input(&body[l], s[l], ONNX_F32, DIMS(1));
            if (l + 1 == levels) {
                (void)snprintf(inputs, sizeof(inputs), "%s x", s[l]);
                (void)builder_node(&body[l], "Add", inputs, t[l]);
            } else {
                (void)snprintf(inputs, sizeof(inputs), "n true %s", s[l]);
                builder_graph(&branch[l], builder_node(&branch[l], "Loop", inputs, result), "body", &body[l + 1]);
                builder_output(&branch[l], result);
                Onnx__NodeProto *node = builder_node(&body[l], "If", "which", t[l]);
                builder_graph(&body[l], node, "then_branch", &branch[l]);
                builder_graph(&body[l], node, "else_branch", &branch[l]);
            }
            builder_output(&body[l], go);
            builder_output(&body[l], t[l]);
        }
        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(1));
        (void)builder_input(&b, "n", ONNX_I64, NULL, 0);
        (void)builder_input(&b, "which", ONNX_BOOL, NULL, 0);
        (void)builder_constant(&b, "true", ONNX_BOOL, (const uint8_t[]){1}, NULL, 0);
        (void)builder_constant(&b, "start", ONNX_F32, (const float[]){1}, DIMS(1));
        builder_graph(&b, builder_node(&b, "Loop", "n true start", "y"), "body", &body[0]);
        builder_output(&b, "y");
        if (levels == LEVELS_MAX) {
            EXPECT(builder_import(&b, &graph) == LEAT_ERR_LIMIT);
            EXPECT(strstr(leat_error_text(), "more than 3 loops in each other") != NULL);
        } else {
            graph = import_graph(&b);
        }
        builder_fini(&b);
        for (size_t k = 0; k < backend_count && levels < LEVELS_MAX; k++) {
            const float x[1] = {3};
            const int64_t n = 2;
            const uint8_t which = 1;
            const void *of[3] = {x, &n, &which};
            float y[1];
            struct loaded loaded;
            load(backends[k], graph, &loaded);
            EXPECT(run(&loaded, of, (void *[]){y}) == LEAT_OK && y[0] == 1 + 3 * 2 * 2 * 2);
            unload(&loaded);
        }
        leat_graph_destroy(graph);
        for (int l = 0; l < levels; l++) {
            builder_fini(&body[l]);
            builder_fini(&branch[l]);
        }
    }
}

/* A first dimension of 1 in the file is a number as others: the graph never has more, and is run for one item at a time. */
static void
test_if_of_one_item(void)
{
    static const struct step steps[] = {{"Shape", "x", "s", 0}, {"Gather", "s zero", "d", 0}, {"Equal", "d one", "c", 0}, {NULL, NULL, NULL, 0}};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *concrete = NULL;
    struct builder b, inner[2];
    uint32_t inputs, outputs;

    build_squeeze(&b, &inner[0], &inner[1], DIMS(1, 1, 4), steps);
    struct leat_graph *graph = import_graph(&b);
    EXPECT(control_nodes(graph) == 0 && graph->values[graph->outputs[0]].rank == 2);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_ERR_UNSUPPORTED);
    EXPECT(leat_graph_signature_of_one(graph, infos, &inputs, &outputs) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 5, &concrete) == LEAT_OK);
    EXPECT(concrete->values[concrete->inputs[0]].dims[0] == 1);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    for (int i = 0; i < 2; i++) {
        builder_fini(&inner[i]);
    }
    builder_fini(&b);
}

/* ---- Loop ----------------------------------------------------------------------------------------------------- */

/* a, b = b, a + b + late; the node that computes `late` stands behind the loop in the file. `count` NULL: payload. */
static void
build_fibonacci(struct builder *b, struct builder *body, const int64_t *count)
{
    static const float zero[1] = {0};

    builder_init(body, 13);
    (void)builder_input(body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(body, "a", ONNX_F32, DIMS(1));
    (void)builder_input(body, "b", ONNX_F32, DIMS(1));
    (void)builder_node(body, "Identity", "go", "go_on");
    (void)builder_node(body, "Add", "a b", "sum");
    (void)builder_node(body, "Add", "sum late", "next");
    builder_output(body, "go_on");
    builder_output(body, "b");
    builder_output(body, "next");
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, DIMS(1));
    (void)builder_input(b, "y", ONNX_F32, DIMS(1));
    if (count == NULL) {
        (void)builder_input(b, "n", ONNX_I64, DIMS(1));
    } else {
        (void)builder_constant(b, "n", ONNX_I64, count, DIMS(1));
    }
    (void)builder_constant(b, "zero", ONNX_F32, zero, DIMS(1));
    Onnx__NodeProto *node = builder_node(b, "Loop", "n - x y", "p q");
    builder_graph(b, node, "body", body);
    (void)builder_node(b, "Mul", "x zero", "late");
    builder_output(b, "p");
    builder_output(b, "q");
}

static void
test_loop_counts(void)
{
    static const int64_t counts[] = {0, 1, 2, 7, 20, -1, INT64_MIN};
    static const float ends[][2] = {{0, 1}, {1, 1}, {1, 2}, {13, 21}, {6765, 10946}, {0, 1}, {0, 1}};
    static const int64_t bad[] = {LEAT_TRIPS_MAX + 1, INT64_C(1) << 32, INT64_MAX};
    const float x[1] = {0}, y[1] = {1};

    for (size_t c = 0; c <= LEAT_COUNT_OF(counts); c++) {
        const bool constant = c < LEAT_COUNT_OF(counts);
        struct builder b, body;
        build_fibonacci(&b, &body, constant ? &counts[c] : NULL);
        struct leat_graph *graph = import_graph(&b);
        EXPECT(leat_graph_check(graph) == LEAT_OK);
        EXPECT(control_nodes(graph) == !constant);
        for (size_t i = 0; i < backend_count; i++) {
            struct loaded loaded;
            float p[1], q[1];
            void *outputs[2] = {p, q};
            load(backends[i], graph, &loaded);
            for (size_t k = 0; k < LEAT_COUNT_OF(counts); k++) {
                const void *inputs[3] = {x, y, &counts[k]};
                EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
                expect_floats(p, &ends[constant ? c : k][0], 1, "Loop");
                expect_floats(q, &ends[constant ? c : k][1], 1, "Loop");
            }
            for (size_t k = 0; k < LEAT_COUNT_OF(bad) && !constant; k++) {
                const void *inputs[3] = {x, y, &bad[k]};
                EXPECT(run(&loaded, inputs, outputs) == LEAT_ERR_SHAPE);
                EXPECT(strstr(leat_error_text(), "node 'p' (operator Loop): more than 4096 iterations") != NULL);
            }
            unload(&loaded);
        }
        leat_graph_destroy(graph);
        builder_fini(&body);
        builder_fini(&b);
    }
}

/* While the sum is below a limit; what each iteration saw is stacked, as long as it lasted. */
static void
test_loop_while(void)
{
    struct builder b, body;
    struct leat_graph *concrete = NULL;
    static float seen[LEAT_TRIPS_MAX];
    float sum[1];
    size_t scratch_bytes;

    builder_init(&body, 13);
    (void)builder_input(&body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(&body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(&body, "s", ONNX_F32, NULL, 0);
    (void)builder_node(&body, "Add", "s step", "s2");
    (void)builder_node(&body, "Less", "s2 limit", "more");
    builder_output(&body, "more");
    builder_output(&body, "s2");
    builder_output(&body, "s");
    builder_init(&b, 13);
    (void)builder_input(&b, "s0", ONNX_F32, NULL, 0);
    (void)builder_input(&b, "step", ONNX_F32, NULL, 0);
    (void)builder_input(&b, "limit", ONNX_F32, NULL, 0);
    Onnx__NodeProto *node = builder_node(&b, "Loop", "- - s0", "s_end seen");
    builder_graph(&b, node, "body", &body);
    builder_output(&b, "s_end");
    builder_output(&b, "seen");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    EXPECT(leat_reference_scratch_bytes(concrete, &scratch_bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (scratch_bytes + 64) / 64 * 64);
    EXPECT(scratch != NULL);
    for (int round = 0; round < 3; round++) {
        const float start = 1, step = 2, limit = round == 0 ? 10 : round == 1 ? -5 : 1e30f;
        const void *inputs[3] = {&start, &step, &limit};
        void *outputs[2] = {sum, seen};
        struct leat_shape shapes[2];
        const enum leat_status status = leat_reference_run(concrete, inputs, outputs, scratch, shapes);
        EXPECT(status == (round == 2 ? LEAT_ERR_SHAPE : LEAT_OK));
        if (status == LEAT_OK) {
            EXPECT(shapes[1].rank == 1 && shapes[1].dims[0] == (round == 0 ? 5 : 1));
            expect_floats(sum, (const float[]){round == 0 ? 11 : 3}, 1, "while");
            expect_floats(seen, (const float[]){1, 3, 5, 7, 9}, (size_t)shapes[1].dims[0], "while");
        }
    }
    free(scratch);
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    builder_fini(&body);
    builder_fini(&b);
}

/*
 * A state that grows: its size is another in each iteration, though that of the first is known, and so is the one behind the
 * loop. It grows by a free dimension or a known one; with `known` all of its size is known at first.
 */
static void
check_loop_of_sizes(bool known, int64_t more)
{
    static const struct leat_dim_value three = {.name = "D3", .value = 3};
    static const int64_t trips[1] = {2}, second[1] = {1};
    const float x[1] = {0}, v[3] = {1, 2, 3};
    struct leat_graph *concrete = NULL;
    struct builder b, body;
    float end[7], sizes[2], last[1];

    builder_init(&body, 13);
    (void)builder_input(&body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(&body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(&body, "s", ONNX_F32, DIMS(-1, 1));
    (void)builder_int(&body, builder_node(&body, "Concat", "s v", "s2"), "axis", 1);
    (void)builder_node(&body, "Shape", "s", "shape");
    (void)builder_node(&body, "Gather", "shape second", "size");
    (void)builder_int(&body, builder_node(&body, "Cast", "size", "f"), "to", ONNX_F32);
    (void)builder_node(&body, "Identity", "go", "go_on");
    builder_output(&body, "go_on");
    builder_output(&body, "s2");
    builder_output(&body, "f");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, (const int64_t[]){known ? 1 : -1, 1}, 2);
    (void)builder_input(&b, "v", ONNX_F32, (const int64_t[]){known ? 1 : -1, more}, 2);
    (void)builder_constant(&b, "n", ONNX_I64, trips, NULL, 0);
    (void)builder_constant(&b, "second", ONNX_I64, second, NULL, 0);
    Onnx__NodeProto *node = builder_node(&b, "Loop", "n - x", "end sizes");
    builder_graph(&b, node, "body", &body);
    (void)builder_node(&b, "Shape", "end", "end_shape");
    (void)builder_node(&b, "Gather", "end_shape second", "end_size");
    (void)builder_int(&b, builder_node(&b, "Cast", "end_size", "last"), "to", ONNX_F32);
    builder_output(&b, "end");
    builder_output(&b, "sizes");
    builder_output(&b, "last");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(leat_graph_bind(graph, &three, more < 0) == LEAT_OK && leat_graph_specialise(graph, 1, &concrete) == LEAT_OK);
    for (size_t i = 0; i < backend_count; i++) {
        const void *inputs[2] = {x, v};
        void *outputs[3] = {end, sizes, last};
        struct loaded loaded;
        load(backends[i], concrete, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        expect_floats(end, (const float[]){0, 1, 2, 3, 1, 2, 3}, 7, "state");
        expect_floats(sizes, (const float[]){1, 4}, 2, "sizes of a state");
        expect_floats(last, (const float[]){7}, 1, "size behind the loop");
        unload(&loaded);
    }
    leat_graph_destroy(concrete);
    leat_graph_destroy(graph);
    builder_fini(&body);
    builder_fini(&b);
}

static void
test_loop_of_sizes(void)
{
    for (int known = 0; known < 2; known++) {
        check_loop_of_sizes(known, -3);
        check_loop_of_sizes(known, 3);
    }
}

/* A loop in a branch in a loop, reading the outermost graph's values; all iterations together are limited. */
static void
test_nested(void)
{
    struct builder b, outer, branch, other, inner;
    const float x[1] = {3};
    float y[1];

    builder_init(&inner, 13);
    (void)builder_input(&inner, "j", ONNX_I64, NULL, 0);
    (void)builder_input(&inner, "jgo", ONNX_BOOL, NULL, 0);
    (void)builder_input(&inner, "t", ONNX_F32, DIMS(1));
    (void)builder_node(&inner, "Add", "t x", "t2"); /* x: three graphs out */
    builder_output(&inner, "jgo");
    builder_output(&inner, "t2");
    builder_init(&branch, 13);
    Onnx__NodeProto *node = builder_node(&branch, "Loop", "m jtrue s", "deep");
    builder_graph(&branch, node, "body", &inner);
    builder_output(&branch, "deep");
    builder_init(&other, 13);
    (void)builder_node(&other, "Neg", "s", "negative");
    builder_output(&other, "negative");
    builder_init(&outer, 13);
    (void)builder_input(&outer, "i", ONNX_I64, NULL, 0);
    (void)builder_input(&outer, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(&outer, "s", ONNX_F32, DIMS(1));
    node = builder_node(&outer, "If", "which", "s2");
    builder_graph(&outer, node, "then_branch", &branch);
    builder_graph(&outer, node, "else_branch", &other);
    builder_output(&outer, "go");
    builder_output(&outer, "s2");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_F32, DIMS(1));
    (void)builder_input(&b, "n", ONNX_I64, NULL, 0);
    (void)builder_input(&b, "m", ONNX_I64, NULL, 0);
    (void)builder_input(&b, "which", ONNX_BOOL, NULL, 0);
    (void)builder_constant(&b, "jtrue", ONNX_BOOL, (const uint8_t[]){1}, NULL, 0);
    (void)builder_constant(&b, "start", ONNX_F32, (const float[]){1}, DIMS(1));
    node = builder_node(&b, "Loop", "n jtrue start", "y");
    builder_graph(&b, node, "body", &outer);
    builder_output(&b, "y");
    struct leat_graph *graph = import_graph(&b);
    for (size_t i = 0; i < backend_count; i++) {
        struct loaded loaded;
        load(backends[i], graph, &loaded);
        for (int round = 0; round < 4; round++) {
            const int64_t n = round == 2 ? 100 : 5, m = round == 2 ? 100 : 4;
            const uint8_t which = round != 1;
            const void *inputs[4] = {x, &n, &m, &which};
            void *outputs[1] = {y};
            EXPECT(run(&loaded, inputs, outputs) == (round == 2 ? LEAT_ERR_SHAPE : LEAT_OK));
            if (round != 2) {
                expect_floats(y, (const float[]){round == 1 ? -1 : 1 + 5 * 4 * 3}, 1, "nested");
            }
        }
        unload(&loaded);
    }
    leat_graph_destroy(graph);
    builder_fini(&inner);
    builder_fini(&branch);
    builder_fini(&other);
    builder_fini(&outer);
    builder_fini(&b);
}

/* ---- Scan ----------------------------------------------------------------------------------------------------- */

enum { STEPS_MAX = 4096 };

/* s += x[:, t] backwards or not, stacked along the last axis; unrolled when it is short. */
static void
test_scan(int64_t steps, bool backwards_in, bool backwards_out)
{
    static float x[2 * STEPS_MAX], y[2 * STEPS_MAX], wanted[2 * STEPS_MAX];
    const float start[2] = {100, 200};
    float end[2], sums[2] = {start[0], start[1]};
    struct builder b, body;
    uint64_t random = leat_test_seed;

    for (int64_t i = 0; i < 2 * steps; i++) {
        x[i] = (float)(leat_test_random(&random) % 16);
    }
    for (int64_t t = 0; t < steps; t++) {
        for (int64_t r = 0; r < 2; r++) {
            sums[r] += x[r * steps + (backwards_in ? steps - 1 - t : t)];
            wanted[r * steps + (backwards_out ? steps - 1 - t : t)] = sums[r];
        }
    }
    builder_init(&body, 13);
    (void)builder_input(&body, "s", ONNX_F32, DIMS(2));
    (void)builder_input(&body, "x_t", ONNX_F32, DIMS(2));
    (void)builder_node(&body, "Add", "s x_t", "s2");
    builder_output(&body, "s2");
    builder_output(&body, "s2");
    builder_init(&b, 13);
    (void)builder_input(&b, "s0", ONNX_F32, DIMS(2));
    (void)builder_input(&b, "x", ONNX_F32, DIMS(2, steps));
    Onnx__NodeProto *node = builder_node(&b, "Scan", "s0 x", "end all");
    builder_graph(&b, node, "body", &body);
    (void)builder_int(&b, node, "num_scan_inputs", 1);
    (void)builder_ints(&b, node, "scan_input_axes", DIMS(-1));
    (void)builder_ints(&b, node, "scan_output_axes", DIMS(1));
    (void)builder_ints(&b, node, "scan_input_directions", DIMS(backwards_in));
    (void)builder_ints(&b, node, "scan_output_directions", DIMS(backwards_out));
    builder_output(&b, "end");
    builder_output(&b, "all");
    struct leat_graph *graph = import_graph(&b);
    EXPECT(control_nodes(graph) == (steps > 1000));
    for (size_t i = 0; i < backend_count; i++) {
        const void *inputs[2] = {start, x};
        void *outputs[2] = {end, y};
        struct loaded loaded;
        load(backends[i], graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        expect_floats(end, sums, 2, "Scan");
        expect_floats(y, wanted, 2 * (size_t)steps, "Scan");
        unload(&loaded);
    }
    leat_graph_destroy(graph);
    builder_fini(&body);
    builder_fini(&b);
}

/* ---- What is refused ------------------------------------------------------------------------------------------- */

static void
expect_refused(struct builder *b, struct builder *body, enum leat_status status, const char *text)
{
    struct leat_graph *graph = NULL;
    const enum leat_status got = builder_import(b, &graph);
    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "status %d, text \"%s\"; wanted %d, \"%s\"\n", (int)got, leat_error_text(), (int)status, text);
    }
    EXPECT(got == status && strstr(leat_error_text(), text) != NULL && graph == NULL);
    builder_fini(body);
    builder_fini(b);
}

static void
test_refused(void)
{
    static const int64_t many = INT64_C(1) << 40;
    struct builder b, body;

    build_fibonacci(&b, &body, &many);
    expect_refused(&b, &body, LEAT_ERR_LIMIT, "node 'p' (operator Loop): 1099511627776 iterations, the limit is 4096");

    build_fibonacci(&b, &body, NULL);
    body.nodes[2]->input[1] = (char *)(uintptr_t) "nowhere";
    expect_refused(&b, &body, LEAT_ERR_PROTO, "node 'next' (operator Add) reads 'nowhere', which nothing defines");

    build_fibonacci(&b, &body, NULL);
    body.graph.n_output = 2;
    expect_refused(&b, &body, LEAT_ERR_PROTO, "its body has 4 inputs and 2 outputs, which do not fit");

    build_fibonacci(&b, &body, NULL);
    body.nodes[1]->op_type = (char *)(uintptr_t) "Less";
    expect_refused(&b, &body, LEAT_ERR_UNSUPPORTED, "node 'p' (operator Loop): node 'next' (operator Add)");

    build_fibonacci(&b, &body, NULL);
    body.nodes[2]->op_type = (char *)(uintptr_t) "Less";
    expect_refused(&b, &body, LEAT_ERR_UNSUPPORTED, "node 'p' (operator Loop): state 'next' changes its type or shape");

    build_fibonacci(&b, &body, NULL);
    body.nodes[2]->op_type = (char *)(uintptr_t) "Foo";
    expect_refused(&b, &body, LEAT_ERR_UNSUPPORTED, "node 'next' (operator Foo, domain '') is not supported");
}

/* One count for all items of a batch is no model for clients that do not know each other. */
static void
test_signature(void)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;
    struct builder b, body;

    builder_init(&body, 13);
    (void)builder_input(&body, "i", ONNX_I64, NULL, 0);
    (void)builder_input(&body, "go", ONNX_BOOL, NULL, 0);
    (void)builder_input(&body, "s", ONNX_F32, DIMS(1));
    (void)builder_node(&body, "Add", "s x", "s2");
    builder_output(&body, "go");
    builder_output(&body, "s2");
    for (int form = 0; form < 2; form++) {
        builder_init(&b, 13);
        (void)builder_input(&b, "x", ONNX_F32, DIMS(-1, 4));
        (void)builder_constant(&b, "three", ONNX_I64, (const int64_t[]){3}, NULL, 0);
        (void)builder_node(&b, "Size", "x", "size"); /* of all items */
        Onnx__NodeProto *node = builder_node(&b, "Loop", form == 0 ? "three - x" : "size - x", "y");
        builder_graph(&b, node, "body", &body);
        builder_output(&b, "y");
        struct leat_graph *graph = import_graph(&b);
        const enum leat_status status = leat_graph_signature(graph, infos, &inputs, &outputs);
        EXPECT(status == (form == 0 ? LEAT_OK : LEAT_ERR_UNSUPPORTED));
        EXPECT(form == 0 || strstr(leat_error_text(), "mixes the items of a batch") != NULL);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
    builder_fini(&body);
}

int
main(void)
{
    leat_test_init();
    backends[backend_count++] = &leat_backend_reference;
    if (leat_backend_find("cpu") != NULL) {
        backends[backend_count++] = leat_backend_find("cpu");
    }
    test_if();
    test_if_of_sizes();
    test_if_of_shape();
    test_if_of_free_shape();
    test_if_of_one_item();
    test_loop_counts();
    test_loop_while();
    test_loop_of_sizes();
    test_nested();
    test_if_of_given_shape();
    test_depth();
    for (int form = 0; form < 4; form++) {
        test_scan(1, form % 2 == 1, form / 2 == 1);
        test_scan(5, form % 2 == 1, form / 2 == 1);
    }
    test_scan(STEPS_MAX, true, false);
    test_refused();
    test_signature();
    return 0;
}
