/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Shapes follow from a symbolic batch where they can, are concrete after specialising, and a
 *          model whose operators mix the items of a batch gets no signature.
 * Method   One small model per rule. The values of concrete shapes are the conformance suite's business.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

#define N LEAT_DIM_BATCH
#define U LEAT_DIM_UNKNOWN
#define S LEAT_DIM_SYMBOL(0)
#define T LEAT_DIM_SYMBOL(1)

static struct builder b; /* one model at a time */

static void
start(int64_t opset, const int64_t *dims, size_t rank)
{
    builder_init(&b, opset);
    (void)builder_input(&b, "x", 1, dims, rank);
}

/* Adds an i64 vector. */
static void
ints(const char *name, const int64_t *values, size_t count)
{
    const int64_t dims[1] = {(int64_t)count};
    (void)builder_constant(&b, name, 7, values, dims, 1);
}

static void
weights(const char *name, const int64_t *dims, size_t rank)
{
    (void)builder_constant(&b, name, 1, NULL, dims, rank);
}

/* Imports the model with y as its output and compares y's symbolic shape. */
static void
expect_shape_at(int line, const int64_t *dims, size_t rank)
{
    struct leat_graph *graph = NULL;

    builder_output(&b, "y");
    const enum leat_status status = builder_import(&b, &graph);
    bool same = status == LEAT_OK;
    const struct leat_value *y = same ? &graph->values[graph->outputs[0]] : NULL;
    same = same && y->rank == rank;
    for (size_t d = 0; same && d < rank; d++) {
        same = y->dims[d] == dims[d];
    }
    if (!same) {
        (void)fprintf(stderr, "line %d: %s\n", line,
                      status == LEAT_OK ? "another shape" : leat_error_text());
    }
    EXPECT(same);
    EXPECT(leat_graph_check(graph) == LEAT_OK);
    leat_graph_destroy(graph);
    builder_fini(&b);
}
#define EXPECT_SHAPE(...) expect_shape_at(__LINE__, DIMS(__VA_ARGS__))

static void
expect_error_at(int line, enum leat_status wanted, const char *text)
{
    struct leat_graph *graph = NULL;

    builder_output(&b, "y");
    const enum leat_status status = builder_import(&b, &graph);
    if (status != wanted || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "line %d: status %d, %s\n", line, (int)status, leat_error_text());
    }
    EXPECT(status == wanted && strstr(leat_error_text(), text) != NULL);
    builder_fini(&b);
}
#define EXPECT_ERROR(status, text) expect_error_at(__LINE__, status, text)

/* The signature of the model with output y: LEAT_OK and y's dims, or a refusal. */
static enum leat_status
signature(struct leat_tensor_info *ret_y)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = NULL;
    uint32_t inputs, outputs;

    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    const enum leat_status status = leat_graph_signature(graph, infos, &inputs, &outputs);
    if (status == LEAT_OK) {
        EXPECT(inputs == b.graph.n_input && outputs == 1);
        *ret_y = infos[inputs];
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
    return status;
}

static void
expect_refusal_at(int line, const char *text)
{
    struct leat_tensor_info y;
    const enum leat_status status = signature(&y);
    if (status != LEAT_ERR_UNSUPPORTED || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "line %d: status %d, %s\n", line, (int)status, leat_error_text());
    }
    EXPECT(status == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), text) != NULL);
}
#define EXPECT_MIXING()   expect_refusal_at(__LINE__, "mixes the items")
#define EXPECT_COUNTING() expect_refusal_at(__LINE__, "computes with how many items a batch has")

static void
expect_signature_at(int line)
{
    struct leat_tensor_info y;
    const enum leat_status status = signature(&y);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "line %d: status %d, %s\n", line, (int)status, leat_error_text());
    }
    EXPECT(status == LEAT_OK);
}
#define EXPECT_SIGNATURE() expect_signature_at(__LINE__)

static void
test_symbolic_shapes(void)
{
    Onnx__NodeProto *node;

    start(13, DIMS(-1, 3, 4));
    (void)builder_node(&b, "Flatten", "x", "y");
    EXPECT_SHAPE(N, 12);

    start(13, DIMS(-1, 3, 4));
    (void)builder_int(&b, builder_node(&b, "Flatten", "x", "y"), "axis", 0);
    EXPECT_SHAPE(1, U);

    static const struct {
        int64_t target[3];
        size_t count;
        int64_t want[3];
    } reshapes[] = {
        {{0, -1}, 2, {N, 12}}, {{-1, 12}, 2, {N, 12}},     {{-1, 6}, 2, {U, 6}},
        {{2, -1}, 2, {2, U}},  {{0, 0, -1}, 3, {N, 3, 4}}, {{-1, 4, 3}, 3, {N, 4, 3}},
    };
    for (size_t i = 0; i < sizeof(reshapes) / sizeof(reshapes[0]); i++) {
        start(13, DIMS(-1, 3, 4));
        ints("shape", reshapes[i].target, reshapes[i].count);
        (void)builder_node(&b, "Reshape", "x shape", "y");
        expect_shape_at(__LINE__, reshapes[i].want, reshapes[i].count);
    }

    start(13, DIMS(-1, 4));
    weights("w", DIMS(4));
    (void)builder_node(&b, "Add", "x w", "y");
    EXPECT_SHAPE(N, 4);

    start(13, DIMS(-1, 4));
    weights("w", DIMS(3, 4));
    (void)builder_node(&b, "Add", "x w", "y");
    EXPECT_SHAPE(U, 4);

    start(13, DIMS(-1, 5, 6));
    weights("w", DIMS(6, 7));
    (void)builder_node(&b, "MatMul", "x w", "y");
    EXPECT_SHAPE(N, 5, 7);

    start(13, DIMS(-1, 5, 6));
    weights("w", DIMS(6));
    (void)builder_node(&b, "MatMul", "x w", "y");
    EXPECT_SHAPE(N, 5);

    start(13, DIMS(-1, 5, 6));
    node = builder_node(&b, "Transpose", "x", "y");
    (void)builder_ints(&b, node, "perm", DIMS(2, 0, 1));
    EXPECT_SHAPE(6, N, 5);

    start(13, DIMS(-1, 5));
    (void)builder_int(&b, builder_node(&b, "Concat", "x x x", "y"), "axis", -1);
    EXPECT_SHAPE(N, 15);

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 7, DIMS(-1, 3));
    weights("table", DIMS(10, 4));
    (void)builder_node(&b, "Gather", "table x", "y");
    EXPECT_SHAPE(N, 3, 4);

    start(13, DIMS(-1, 1, 5));
    ints("axes", (const int64_t[]){1}, 1);
    (void)builder_node(&b, "Squeeze", "x axes", "z");
    ints("more", (const int64_t[]){-1, 1}, 2);
    (void)builder_node(&b, "Unsqueeze", "z more", "y");
    EXPECT_SHAPE(N, 1, 5, 1);

    start(11, DIMS(-1, 3, 7, 7));
    ints("pads", (const int64_t[]){0, 0, 1, 2, 0, 0, 3, -1}, 8);
    (void)builder_node(&b, "Pad", "x pads", "y");
    EXPECT_SHAPE(N, 3, 11, 8);

    start(13, DIMS(-1, 3, 7, 7));
    weights("w", DIMS(8, 3, 3, 3));
    node = builder_node(&b, "Conv", "x w", "y");
    (void)builder_string(&b, node, "auto_pad", "SAME_LOWER");
    (void)builder_ints(&b, node, "strides", DIMS(2, 2));
    EXPECT_SHAPE(N, 8, 4, 4);

    start(13, DIMS(-1, 3, 8, 8));
    node = builder_node(&b, "MaxPool", "x", "y");
    (void)builder_ints(&b, node, "kernel_shape", DIMS(3, 3));
    (void)builder_ints(&b, node, "strides", DIMS(2, 2));
    (void)builder_int(&b, node, "ceil_mode", 1);
    EXPECT_SHAPE(N, 3, 4, 4);

    start(13, DIMS(-1, 3, 8, 8));
    node = builder_node(&b, "ReduceMean", "x", "y");
    (void)builder_ints(&b, node, "axes", DIMS(2, -1));
    (void)builder_int(&b, node, "keepdims", 0);
    EXPECT_SHAPE(N, 3);

    start(13, DIMS(-1, 3, 8));
    (void)builder_node(&b, "Shape", "x", "y");
    EXPECT_SHAPE(3);
}

static void
test_misfits(void)
{
    start(13, DIMS(-1, 4));
    weights("w", DIMS(5));
    (void)builder_node(&b, "Add", "x w", "y");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "dimensions 4 and 5 (axis 1) cannot be broadcast");

    start(13, DIMS(-1, 4));
    weights("w", DIMS(5, 2));
    (void)builder_node(&b, "MatMul", "x w", "y");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "inner dimensions 4 and 5 differ");

    start(13, DIMS(2, 3));
    ints("shape", (const int64_t[]){-1, 4}, 2);
    (void)builder_node(&b, "Reshape", "x shape", "y");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "6 elements cannot be arranged in rows of 4");

    /* A target without entries makes a scalar, whatever it is computed from. */
    start(13, DIMS(2, 3, 0));
    (void)builder_input(&b, "shape", 7, DIMS(0));
    (void)builder_node(&b, "Reshape", "x shape", "y");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "0 elements do not fill a shape of 1");

    start(13, DIMS(4));
    (void)builder_input(&b, "axes", 7, DIMS(1));
    (void)builder_node(&b, "Squeeze", "x axes", "y");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "4 elements do not fill a shape of 1");

    start(13, DIMS(-1, 3));
    (void)builder_node(&b, "Squeeze", "x", "y");
    EXPECT_ERROR(LEAT_ERR_UNSUPPORTED, "without axes its rank would depend on the batch");

    start(13, DIMS(-1, 3));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "y"), "perm", DIMS(0, 0));
    EXPECT_ERROR(LEAT_ERR_SHAPE, "perm is not a permutation");

    start(13, DIMS(-1, 3));
    (void)builder_int(&b, builder_node(&b, "Softmax", "x", "y"), "axis", 2);
    EXPECT_ERROR(LEAT_ERR_SHAPE, "axis 2 is outside a tensor of rank 2");

    start(13, DIMS(-1, 70000, 1));
    weights("w", DIMS(70000));
    (void)builder_node(&b, "Add", "x w", "z");
    (void)builder_node(&b, "Flatten", "z", "y");
    EXPECT_ERROR(LEAT_ERR_LIMIT, "output dimension 1 is 4900000000");

    start(13, DIMS(-1, 70000, 1, 1, 1));
    weights("w", DIMS(70000, 1, 1));
    (void)builder_node(&b, "Add", "x w", "z");
    weights("v", DIMS(70000, 1));
    (void)builder_node(&b, "Add", "z v", "y"); /* 70000^3 floats for each item */
    EXPECT_ERROR(LEAT_ERR_LIMIT, "an output is larger than");
}

static void
test_specialise(void)
{
    struct leat_graph *graph = NULL, *five = NULL;

    start(13, DIMS(-1, 3, 4));
    (void)builder_node(&b, "Flatten", "x", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 0, &five) == LEAT_ERR_INVALID);
    EXPECT(leat_graph_specialise(graph, (int64_t)LEAT_ITEMS_MAX + 1, &five) == LEAT_ERR_INVALID);
    EXPECT(leat_graph_specialise(graph, 5, &five) == LEAT_OK);
    leat_graph_destroy(graph); /* the copy stands on its own */
    EXPECT(leat_graph_check(five) == LEAT_OK && five->items == 5);
    EXPECT(five->values[five->outputs[0]].dims[0] == 5 &&
           five->values[five->outputs[0]].dims[1] == 12);
    leat_graph_destroy(five);
    builder_fini(&b);

    start(13, DIMS(-1, -2)); /* a free inner dimension */
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    graph = five = NULL;
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 5, &five) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "dimension 1 of input 'x' is free, it is called 'M'") != NULL);
    EXPECT(strstr(leat_error_text(), "--dim M=N") != NULL);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

/* ---- Other symbols than the batch ------------------------------------------------------------------ */

static void
test_symbols(void)
{
    static const struct {
        int64_t target[4];
        size_t count;
        int64_t want[4];
    } reshapes[] = {
        {{0, 0, 2, 2}, 4, {N, S, 2, 2}},  {{0, -1, 4}, 3, {N, S, 4}},
        {{0, 2, -1, 2}, 4, {N, 2, S, 2}}, {{-1, 0, 4}, 3, {N, S, 4}},
        {{0, 0, -1}, 3, {N, S, 4}},       {{0, -1}, 2, {N, U}},
        {{0, 0, -1, 1}, 4, {N, S, 4, 1}}, {{-1, 8}, 2, {U, 8}},
    };

    for (size_t i = 0; i < sizeof(reshapes) / sizeof(reshapes[0]); i++) {
        start(13, DIMS(-1, -2, 4));
        ints("shape", reshapes[i].target, reshapes[i].count);
        (void)builder_node(&b, "Reshape", "x shape", "y");
        expect_shape_at(__LINE__, reshapes[i].want, reshapes[i].count);
    }

    start(13, DIMS(-1, -2, 1));
    (void)builder_node(&b, "Flatten", "x", "y");
    EXPECT_SHAPE(N, S);

    start(13, DIMS(-1, -2, -3));
    (void)builder_node(&b, "Flatten", "x", "y");
    EXPECT_SHAPE(N, U);

    start(13, DIMS(-1, -2, 4));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "y"), "perm",
                       (const int64_t[]){1, 2, 0}, 3);
    EXPECT_SHAPE(S, 4, N);

    start(13, DIMS(-1, -2, 4));
    (void)builder_input(&b, "z", 1, DIMS(-1, -2, 1)); /* the same names */
    (void)builder_node(&b, "Add", "x z", "y");
    EXPECT_SHAPE(N, S, 4);

    start(13, DIMS(-1, -2));
    (void)builder_input(&b, "z", 1, DIMS(-1, -3)); /* equal, or one of them 1 */
    (void)builder_node(&b, "Add", "x z", "y");
    EXPECT_SHAPE(N, U);

    start(13, DIMS(-1, -2));
    (void)builder_input(&b, "z", 1, DIMS(-1, -3));
    (void)builder_node(&b, "Concat", "x x z", "w");
    (void)builder_int(&b, b.nodes[0], "axis", 1);
    (void)builder_node(&b, "Add", "w z", "y"); /* an unknown dim and a symbol */
    EXPECT_SHAPE(N, U);

    start(13, DIMS(-1, -2, 4));
    ints("axes", (const int64_t[]){1}, 1);
    (void)builder_node(&b, "Squeeze", "x axes", "y"); /* it may turn out to be 1 */
    EXPECT_SHAPE(N, 4);

    start(13, DIMS(-1, -2, 4));
    weights("w", DIMS(4, 5));
    (void)builder_node(&b, "MatMul", "x w", "y");
    EXPECT_SHAPE(N, S, 5);

    start(13, DIMS(-1, -2, 4));
    (void)builder_input(&b, "z", 1, DIMS(-1, 4, -3));
    (void)builder_node(&b, "MatMul", "x z", "y");
    EXPECT_SHAPE(N, S, T);
}

static void
test_names_of_symbols(void)
{
    struct leat_graph *graph = NULL;

    /* The batch by its name; one without a name; one with control characters in it. */
    start(13, DIMS(-1, -2, -3));
    Onnx__ValueInfoProto *z = builder_input(&b, "z", 1, DIMS(4, -1, -2, -4));
    Onnx__TensorShapeProto__Dimension **dims = z->type->tensor_type->shape->dim;
    dims[2]->dim_param[0] = '\n';
    dims[3]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE__NOT_SET;
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    builder_fini(&b);
    EXPECT(graph->symbol_count == 4);
    EXPECT(strcmp(graph->symbols[0], "M") == 0 && strcmp(graph->symbols[1], "D3") == 0);
    EXPECT(strcmp(graph->symbols[2], "?") == 0 && strcmp(graph->symbols[3], "z.3") == 0);
    const int64_t *found = graph->values[graph->inputs[1]].dims;
    EXPECT(found[0] == 4 && found[1] == N && found[2] == LEAT_DIM_SYMBOL(2) &&
           found[3] == LEAT_DIM_SYMBOL(3));
    EXPECT(leat_graph_check(graph) == LEAT_OK);

    struct leat_graph *copy = NULL;
    EXPECT(leat_graph_copy(graph, &copy) == LEAT_OK);
    leat_graph_destroy(graph);
    EXPECT(copy->symbol_count == 4 && strcmp(copy->symbols[3], "z.3") == 0 &&
           leat_graph_check(copy) == LEAT_OK);
    EXPECT(leat_graph_bind(copy, &(struct leat_dim_value){"?", 6}, 1) == LEAT_OK);
    EXPECT(copy->values[copy->inputs[1]].dims[2] == 6);
    leat_graph_destroy(copy);

    start(13, DIMS(-1, -2, -3)); /* the same "name" twice, which some exporters write for none */
    dims = b.inputs[0]->type->tensor_type->shape->dim;
    dims[1]->dim_param = dims[2]->dim_param = (char[]){"?"};
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    builder_fini(&b);
    EXPECT(graph->symbol_count == 2 && strcmp(graph->symbols[0], "x.1") == 0 && strcmp(graph->symbols[1], "x.2") == 0);
    leat_graph_destroy(graph);

    for (int more = 0; more < 2; more++) { /* as many as there may be, and one more */
        const int64_t first[] = {-1, -2};
        graph = NULL;
        builder_init(&b, 13);
        (void)builder_input(&b, "x", 1, first, 2);
        for (int64_t i = 0; i < (int64_t)LEAT_GRAPH_SYMBOLS_MAX - 1 + more; i++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "i%lld", (long long)i);
            (void)builder_input(&b, name, 1, (const int64_t[]){-1, -3 - i}, 2);
        }
        (void)builder_node(&b, "Relu", "x", "y");
        builder_output(&b, "y");
        EXPECT(builder_import(&b, &graph) == (more == 0 ? LEAT_OK : LEAT_ERR_LIMIT));
        EXPECT(more == 1 || graph->symbol_count == LEAT_GRAPH_SYMBOLS_MAX);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* x: [N, M, D3], y: [N, D3, M]; z is there, [N, D4], and nobody reads it. */
static struct leat_graph *
transposed(void)
{
    struct leat_graph *graph = NULL;

    start(13, DIMS(-1, -2, -3));
    (void)builder_input(&b, "z", 1, DIMS(-1, -4));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "y"), "perm",
                       (const int64_t[]){0, 2, 1}, 3);
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    builder_fini(&b);
    return graph;
}

static void
test_bind(void)
{
    const struct leat_dim_value height = {"M", 6}, width = {"D3", 7}, both[] = {width, height},
                                last = {"D4", 2};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;

    struct leat_graph *graph = transposed();
    EXPECT(leat_graph_bind(graph, NULL, 0) == LEAT_OK && graph->symbol_count == 3);
    EXPECT(leat_graph_bind(graph, both, 2) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    const int64_t *y = graph->values[graph->outputs[0]].dims;
    EXPECT(y[0] == N && y[1] == 7 && y[2] == 6);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "input 'z' is free, it is called 'D4'") != NULL);
    EXPECT(leat_graph_bind(graph, &height, 1) == LEAT_ERR_INVALID); /* it has its value */
    EXPECT(strstr(leat_error_text(), "beside the batch, free is 'D4'") != NULL);
    EXPECT(leat_graph_bind(graph, &last, 1) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_OK);
    EXPECT(inputs == 2 && infos[0].item_bytes == 6 * 7 * 4 && infos[1].dims[1] == 2 &&
           infos[2].dims[1] == 7);
    EXPECT(leat_graph_bind(graph, &last, 1) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "free is nothing") != NULL);
    leat_graph_destroy(graph);

    /* Shape arithmetic over what is bound is done at once. */
    start(13, DIMS(-1, -2, 4));
    (void)builder_node(&b, "Shape", "x", "s");
    ints("where", (const int64_t[]){1}, 1);
    (void)builder_node(&b, "Gather", "s where", "length");
    ints("minus", (const int64_t[]){-1}, 1);
    (void)builder_node(&b, "Concat", "minus length", "target");
    (void)builder_int(&b, b.nodes[2], "axis", 0);
    (void)builder_node(&b, "Reshape", "x target", "y");
    builder_output(&b, "y");
    graph = NULL;
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    builder_fini(&b);
    EXPECT(leat_graph_bind(graph, &height, 1) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    struct leat_graph *five = NULL;
    EXPECT(leat_graph_specialise(graph, 5, &five) == LEAT_OK);
    EXPECT(five->values[five->outputs[0]].dims[0] == 20 &&
           five->values[five->outputs[0]].dims[1] == 6);
    leat_graph_destroy(five);
    leat_graph_destroy(graph);
}

static void
test_hostile_values(void)
{
    static const struct {
        struct leat_dim_value values[2];
        uint32_t count;
        const char *text;
    } wrong[] = {
        {{{"M", 0}}, 1, "dimension 'M' cannot be 0; 1 to 2147483647 are possible"},
        {{{"M", -1}}, 1, "cannot be -1"},
        {{{"M", INT64_MIN}}, 1, "cannot be -9223372036854775808"},
        {{{"M", LEAT_DIM_MAX + 1}}, 1, "cannot be 2147483648"},
        {{{"M", INT64_MAX}}, 1, "cannot be 9223372036854775807"},
        {{{"M", 3}, {"M", 3}}, 2, "dimension 'M' is given two values"},
        {{{"M", 3}, {"D3", 0}}, 2, "dimension 'D3' cannot be 0"},
        {{{"N", 3}},
         1,
         "no dimension 'N' can be given a value; beside the batch, free is 'M', 'D3', 'D4'"},
        {{{"", 3}}, 1, "no dimension ''"},
        {{{"m", 3}}, 1, "no dimension 'm'"},
    };
    struct leat_graph *graph = transposed(), *none = NULL;

    for (size_t i = 0; i < LEAT_COUNT_OF(wrong); i++) {
        EXPECT(leat_graph_bind(graph, wrong[i].values, wrong[i].count) == LEAT_ERR_INVALID);
        EXPECT(strstr(leat_error_text(), wrong[i].text) != NULL);
        EXPECT(leat_graph_check(graph) == LEAT_OK); /* as it was */
        EXPECT(graph->values[graph->inputs[0]].dims[1] == S &&
               graph->values[graph->inputs[0]].dims[2] == T);
    }
    leat_graph_destroy(graph);

    graph = transposed(); /* the input alone is too large */
    const struct leat_dim_value huge[] = {{"M", LEAT_DIM_MAX}, {"D3", LEAT_DIM_MAX}};
    EXPECT(leat_graph_bind(graph, huge, 2) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "'x' is too large with these dimensions") != NULL);
    leat_graph_destroy(graph);

    graph = transposed(); /* too large once there are items */
    const struct leat_dim_value large[] = {{"M", LEAT_DIM_MAX}, {"D3", 64}, {"D4", 1}};
    EXPECT(leat_graph_bind(graph, large, 3) == LEAT_OK);
    EXPECT(leat_graph_specialise(graph, 5, &none) == LEAT_ERR_LIMIT && none == NULL);
    leat_graph_destroy(graph);

    graph = NULL; /* the input is small, what is made of it is not */
    start(13, DIMS(-1, -2, 1));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "t"), "perm",
                       (const int64_t[]){0, 2, 1}, 3);
    (void)builder_node(&b, "MatMul", "x t", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    EXPECT(leat_graph_bind(graph, huge, 1) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "'y' is too large with these dimensions") !=
           NULL);
    leat_graph_destroy(graph);
    builder_fini(&b);

    graph = NULL; /* two symbols that the graph adds: they contradict each other */
    start(13, DIMS(-1, -2));
    (void)builder_input(&b, "z", 1, DIMS(-1, -3));
    (void)builder_node(&b, "Add", "x z", "y");
    builder_output(&b, "y");
    EXPECT(builder_import(&b, &graph) == LEAT_OK);
    const struct leat_dim_value apart[] = {{"M", 3}, {"D3", 4}};
    EXPECT(leat_graph_bind(graph, apart, 2) == LEAT_ERR_SHAPE);
    EXPECT(strstr(leat_error_text(), "node 'y' (operator Add)") != NULL);
    leat_graph_destroy(graph);
    builder_fini(&b);
}

static void
test_signature(void)
{
    struct leat_tensor_info y;

    /* What exporters make of x.view(x.size(0), -1): the shape is computed by the graph. */
    start(13, DIMS(-1, 3, 4));
    ints("zero", (const int64_t[]){0}, 1);
    (void)builder_node(&b, "Shape", "x", "dims");
    (void)builder_node(&b, "Gather", "dims zero", "first");
    ints("rest", (const int64_t[]){-1}, 1);
    (void)builder_int(&b, builder_node(&b, "Concat", "first rest", "target"), "axis", 0);
    (void)builder_node(&b, "Reshape", "x target", "y");
    EXPECT(signature(&y) == LEAT_OK);
    EXPECT(y.rank == 2 && y.dims[0] == -1 && y.dims[1] == 12 && y.item_bytes == 48);
    EXPECT(y.dtype == LEAT_DTYPE_F32 && strcmp(y.name, "y") == 0);

    start(13, DIMS(1, 3));
    (void)builder_node(&b, "Relu", "x", "y");
    EXPECT(signature(&y) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "input 'x' has no leading batch dimension") != NULL);

    start(13, DIMS(-1, 3));
    (void)builder_node(&b, "Shape", "x", "y");
    EXPECT(signature(&y) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "output 'y' has no leading batch dimension") != NULL);

    /* The batch may travel through other axes as long as items stay apart. */
    start(13, DIMS(-1, 4, 6));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "t"), "perm", DIMS(1, 0, 2));
    (void)builder_int(&b, builder_node(&b, "Softmax", "t", "s"), "axis", 0);
    (void)builder_ints(&b, builder_node(&b, "Transpose", "s", "y"), "perm", DIMS(1, 0, 2));
    EXPECT(signature(&y) == LEAT_OK);
    EXPECT(y.dims[1] == 4 && y.dims[2] == 6);
}

static void
test_items_that_mix(void)
{
    start(13, DIMS(-1, 4));
    (void)builder_int(&b, builder_node(&b, "Softmax", "x", "y"), "axis", 0);
    EXPECT_MIXING();

    start(11, DIMS(-1, 4)); /* before opset 13: over all dims from the axis on */
    (void)builder_int(&b, builder_node(&b, "Softmax", "x", "y"), "axis", 0);
    EXPECT_MIXING();

    start(13, DIMS(-1, 4));
    (void)builder_ints(&b, builder_node(&b, "ReduceMean", "x", "m"), "axes", DIMS(0));
    (void)builder_node(&b, "Sub", "x m", "y"); /* centring by the batch's mean */
    EXPECT_MIXING();

    start(13, DIMS(-1, 4)); /* rows of y hold elements of several items */
    (void)builder_node(&b, "Transpose", "x", "t");
    ints("shape", (const int64_t[]){-1, 4}, 2);
    (void)builder_node(&b, "Reshape", "t shape", "y");
    EXPECT_MIXING();

    start(13, DIMS(-1, 4)); /* x times its own transpose times x: attention across clients */
    (void)builder_node(&b, "Transpose", "x", "t");
    (void)builder_node(&b, "MatMul", "x t", "s");
    (void)builder_node(&b, "MatMul", "s x", "y");
    EXPECT_MIXING();

    start(13, DIMS(-1, 4));
    (void)builder_node(&b, "Transpose", "x", "t");
    (void)builder_node(&b, "MatMul", "t x", "g");
    (void)builder_node(&b, "MatMul", "x g", "y");
    EXPECT_MIXING();

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4));
    (void)builder_input(&b, "i", 7, DIMS(-1));
    (void)builder_node(&b, "Gather", "x i", "y"); /* anyone's row by index */
    EXPECT_MIXING();

    start(13, DIMS(-1, 1, 8)); /* a convolution along the batch */
    (void)builder_ints(&b, builder_node(&b, "Transpose", "x", "t"), "perm", DIMS(1, 2, 0));
    weights("w", DIMS(8, 8, 3));
    (void)builder_ints(&b, builder_node(&b, "Conv", "t w", "c"), "pads", DIMS(1, 1));
    (void)builder_ints(&b, builder_node(&b, "Transpose", "c", "y"), "perm", DIMS(2, 0, 1));
    EXPECT_MIXING();
}

/* y = op(x) and, with a second operand, op(x other). */
static void
apply(const char *op, const char *inputs)
{
    (void)builder_node(&b, op, inputs, "y");
}

static void
test_symbolic_shapes_of_indexing(void)
{
    start(13, DIMS(-1, 6, 4));
    ints("from", (const int64_t[]){0, 1}, 2);
    ints("to", (const int64_t[]){INT64_MAX, -1}, 2);
    apply("Slice", "x from to");
    EXPECT_SHAPE(N, 4, 4);

    start(13, DIMS(-1, 6, 4));
    ints("from", (const int64_t[]){-1}, 1);
    ints("to", (const int64_t[]){INT64_MIN}, 1);
    ints("axis", (const int64_t[]){1}, 1);
    ints("step", (const int64_t[]){-2}, 1);
    apply("Slice", "x from to axis step");
    EXPECT_SHAPE(N, 3, 4);

    start(13, DIMS(-1, 6));
    (void)builder_int(&b, builder_node(&b, "Split", "x", "a y c"), "axis", 1);
    EXPECT_SHAPE(N, 2);

    start(13, DIMS(-1, 1, 4));
    ints("shape", (const int64_t[]){5, 1}, 2);
    apply("Expand", "x shape");
    EXPECT_SHAPE(N, 5, 4);

    start(13, DIMS(-1, 3));
    ints("repeats", (const int64_t[]){1, 2}, 2);
    apply("Tile", "x repeats");
    EXPECT_SHAPE(N, 6);

    start(13, DIMS(-1, 3, 4));
    ints("axes", (const int64_t[]){-1}, 1);
    (void)builder_int(&b, builder_node(&b, "ReduceSum", "x axes", "y"), "keepdims", 0);
    EXPECT_SHAPE(N, 3);

    start(13, DIMS(-1, 8, 3, 5));
    (void)builder_int(&b, builder_node(&b, "DepthToSpace", "x", "y"), "blocksize", 2);
    EXPECT_SHAPE(N, 2, 6, 10);

    start(13, DIMS(-1, 8, 3, 5));
    (void)builder_constant(&b, "scales", 1, (const float[]){1, 1, 2, 1.5f}, DIMS(4));
    apply("Resize", "x - scales");
    EXPECT_SHAPE(N, 8, 6, 7);

    start(13, DIMS(-1, 3, 5, 6));
    weights("w", DIMS(3, 2, 3, 3));
    (void)builder_ints(&b, builder_node(&b, "ConvTranspose", "x w", "y"), "strides", DIMS(2, 2));
    EXPECT_SHAPE(N, 2, 11, 13);
    for (int lower = 0; lower < 2; lower++) { /* kernels reach 10 of 2 * 5 rows and 17 of 3 * 6 columns */
        start(13, DIMS(-1, 3, 5, 6));
        weights("w", DIMS(3, 2, 3, 2));
        Onnx__NodeProto *node = builder_node(&b, "ConvTranspose", "x w", "y");
        (void)builder_string(&b, node, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
        (void)builder_ints(&b, node, "strides", DIMS(2, 3));
        EXPECT_SHAPE(N, 2, 10, 17);
    }

    start(14, DIMS(-1, 7, 3)); /* sequences of 7, the batch first */
    weights("w", DIMS(1, 20, 3));
    weights("r", DIMS(1, 20, 5));
    (void)builder_int(&b, builder_node(&b, "LSTM", "x w r", "y"), "layout", 1);
    EXPECT_SHAPE(N, 7, 1, 5);

    start(13, DIMS(-1, 3, 4));
    weights("w", DIMS(4, 5));
    (void)builder_string(&b, builder_node(&b, "Einsum", "x w", "y"), "equation",
                         "...i, ij -> j...");
    EXPECT_SHAPE(5, N, 3);

    /* A rank that the file computes from constants. */
    start(13, DIMS(-1, 3, 4));
    ints("two", (const int64_t[]){2}, 1);
    (void)builder_node(&b, "ConstantOfShape", "two", "zeros");
    (void)builder_node(&b, "Add", "two two", "four");
    (void)builder_node(&b, "Sub", "four two", "from");
    ints("list", (const int64_t[]){9, 9, -1, 12}, 4);
    ints("end", (const int64_t[]){4}, 1);
    (void)builder_node(&b, "Slice", "list from end", "target");
    apply("Reshape", "x target");
    EXPECT_SHAPE(N, 12);
}

static void
test_misfits_of_indexing(void)
{
    start(13, DIMS(-1, 6));
    ints("from", (const int64_t[]){0}, 1);
    ints("to", (const int64_t[]){3}, 1);
    ints("axis", (const int64_t[]){1}, 1);
    ints("step", (const int64_t[]){0}, 1);
    apply("Slice", "x from to axis step");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "has step 0");

    start(13, DIMS(-1, 6));
    ints("sizes", (const int64_t[]){2, 3}, 2);
    (void)builder_int(&b, builder_node(&b, "Split", "x sizes", "y z"), "axis", 1);
    EXPECT_ERROR(LEAT_ERR_SHAPE, "sizes of 5 in all for 6 elements");

    start(13, DIMS(-1, 6));
    ints("k", (const int64_t[]){7}, 1);
    apply("TopK", "x k");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "the 7 largest of 6");

    start(13, DIMS(-1, 6));
    ints("pads", (const int64_t[]){0, 6, 0, 0}, 4);
    (void)builder_string(&b, builder_node(&b, "Pad", "x pads", "y"), "mode", "reflect");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "too few elements");

    for (const char *const *mode = (const char *const[]){"reflect", "edge", "wrap", NULL}; *mode != NULL; mode++) {
        start(19, DIMS(-1, 6)); /* all are cropped, and two wanted */
        ints("pads", (const int64_t[]){0, -6, 0, 2}, 4);
        (void)builder_string(&b, builder_node(&b, "Pad", "x pads", "y"), "mode", *mode);
        EXPECT_ERROR(LEAT_ERR_SHAPE, "axis 1 of 6 has too few elements");
    }

    start(13, DIMS(-1, 3));
    weights("w", DIMS(4, 5));
    (void)builder_string(&b, builder_node(&b, "Einsum", "x w", "y"), "equation", "ni,ij->nj");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "axes of 3 and 4 have one label");

    start(13, DIMS(-1, 3));
    (void)builder_string(&b, builder_node(&b, "Einsum", "x", "y"), "equation", "ni->nk");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "has one of its own");

    start(13, DIMS(-1, 3, 4, 4));
    (void)builder_constant(&b, "scales", 1, (const float[]){1, 1, NAN, 2}, DIMS(4));
    apply("Resize", "x - scales");
    EXPECT_ERROR(LEAT_ERR_SHAPE, "scale nan");

    start(13, DIMS(-1, 3));
    apply("Foo", "x");
    EXPECT_ERROR(LEAT_ERR_UNSUPPORTED, "docs/operators.md lists the operators");
}

static void
test_indexing_that_mixes(void)
{
    struct leat_tensor_info y;

    start(13, DIMS(-1, 4)); /* the first item for everyone */
    ints("from", (const int64_t[]){0}, 1);
    ints("to", (const int64_t[]){1}, 1);
    (void)builder_node(&b, "Slice", "x from to", "first");
    apply("Add", "x first");
    EXPECT_MIXING();

    start(13, DIMS(-1, 4)); /* items in another order */
    ints("from", (const int64_t[]){-1}, 1);
    ints("to", (const int64_t[]){INT64_MIN}, 1);
    ints("axis", (const int64_t[]){0}, 1);
    ints("step", (const int64_t[]){-1}, 1);
    apply("Slice", "x from to axis step");
    EXPECT_MIXING();

    /* A slice whose end is the batch, as exporters compute it, leaves items where they are. */
    start(13, DIMS(-1, 4));
    ints("zero", (const int64_t[]){0}, 1);
    (void)builder_node(&b, "Shape", "x", "dims");
    (void)builder_node(&b, "Gather", "dims zero", "end");
    apply("Slice", "x zero end");
    EXPECT(signature(&y) == LEAT_OK);
    EXPECT(y.rank == 2 && y.dims[1] == 4);

    start(13, DIMS(-1, 4)); /* backwards again, behind a computed end */
    ints("zero", (const int64_t[]){0}, 1);
    ints("last", (const int64_t[]){-1}, 1);
    ints("step", (const int64_t[]){-1}, 1);
    ints("one", (const int64_t[]){1}, 1);
    (void)builder_node(&b, "Shape", "x", "dims");
    (void)builder_node(&b, "Gather", "dims zero", "size");
    (void)builder_node(&b, "Add", "size one", "more");
    (void)builder_node(&b, "Neg", "more", "end");
    apply("Slice", "x last end zero step");
    EXPECT_MIXING();

    start(13, DIMS(-1, 4));
    ints("k", (const int64_t[]){1}, 1);
    (void)builder_int(&b, builder_node(&b, "TopK", "x k", "best i"), "axis", 0);
    apply("Add", "x best");
    EXPECT_MIXING();

    start(13, DIMS(-1, 4));
    ints("axis", (const int64_t[]){0}, 1);
    apply("CumSum", "x axis");
    EXPECT_MIXING();

    start(15, DIMS(-1, 4));
    (void)builder_node(&b, "ArgMax", "x", "m");
    (void)builder_node(&b, "CastLike", "m x", "f");
    apply("Add", "x f");
    EXPECT_MIXING();

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4));
    (void)builder_input(&b, "i", 7, DIMS(-1, 4));
    (void)builder_int(&b, builder_node(&b, "GatherElements", "x i", "y"), "axis", 0);
    EXPECT_MIXING();

    builder_init(&b, 13);
    (void)builder_input(&b, "x", 1, DIMS(-1, 4));
    (void)builder_input(&b, "i", 7, DIMS(-1, 1));
    apply("ScatterND", "x i x"); /* rows of other items overwritten */
    EXPECT_MIXING();

    start(12, DIMS(-1, 4)); /* products of every item with every other */
    (void)builder_string(&b, builder_node(&b, "Einsum", "x x", "s"), "equation", "ni,mi->nm");
    (void)builder_string(&b, builder_node(&b, "Einsum", "s x", "y"), "equation", "nm,mi->ni");
    EXPECT_MIXING();

    start(12, DIMS(-1, 4)); /* of each item with itself */
    (void)builder_string(&b, builder_node(&b, "Einsum", "x x", "y"), "equation", "ni,ni->ni");
    EXPECT(signature(&y) == LEAT_OK);

    start(13, DIMS(-1, 4));
    (void)builder_node(&b, "DynamicQuantizeLinear", "x", "q s z");
    apply("DequantizeLinear", "q s z"); /* one scale for all */
    EXPECT_MIXING();
}

/* ---- How many items there are ---------------------------------------------------------------------- */

static void
number(const char *name, int64_t value)
{
    (void)builder_constant(&b, name, 7, &value, NULL, 0);
}

/* x: f32[N][dims...]; `items`: i64[1], how many; `dims`: i64[rank], x's; vectors `zero`, `one` and `minus`. */
static void
start_counting(const int64_t *dims, size_t rank)
{
    start(13, dims, rank);
    ints("zero", (const int64_t[]){0}, 1);
    ints("one", (const int64_t[]){1}, 1);
    ints("minus", (const int64_t[]){-1}, 1);
    (void)builder_node(&b, "Shape", "x", "dims");
    (void)builder_node(&b, "Gather", "dims zero", "items");
}

static void
cast_to(const char *from, const char *to, int64_t type)
{
    (void)builder_int(&b, builder_node(&b, "Cast", from, to), "to", type);
}

/* `places`: f32[N][1], 0 to N - 1. */
static void
places(void)
{
    number("start", 0);
    number("step", 1);
    (void)builder_node(&b, "Squeeze", "items zero", "end");
    (void)builder_node(&b, "Range", "start end step", "range");
    (void)builder_node(&b, "Unsqueeze", "range one", "column");
    cast_to("column", "places", 1);
}

static void
concat(const char *parts, const char *to)
{
    (void)builder_int(&b, builder_node(&b, "Concat", parts, to), "axis", 0);
}

static void
test_numbers_of_items(void)
{
    start_counting(DIMS(-1, 2));
    cast_to("items", "f", 1);
    apply("Mul", "x f");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* of all items */
    (void)builder_node(&b, "Size", "x", "size");
    cast_to("size", "f", 1);
    apply("Div", "x f");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* an item's place in the batch */
    places();
    apply("Add", "x places");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* whether it is the fifth of five */
    places();
    ints("five", (const int64_t[]){5}, 1);
    (void)builder_node(&b, "Sub", "items five", "more");
    ints("many", (const int64_t[]){9}, 1);
    (void)builder_node(&b, "Mul", "more many", "far");
    ints("four", (const int64_t[]){4}, 1);
    (void)builder_node(&b, "Add", "far four", "fifth");
    (void)builder_node(&b, "Equal", "column fifth", "same");
    cast_to("same", "f", 1);
    apply("Add", "x f");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* nothing but places */
    places();
    (void)builder_node(&b, "Expand", "places dims", "y");
    expect_refusal_at(__LINE__, "output 'y' tells how many items a batch has");

    start_counting(DIMS(-1, 2)); /* as many, but another number for each batch */
    cast_to("items", "f", 1);
    (void)builder_node(&b, "Expand", "f dims", "many");
    apply("Sub", "x many");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* a row of a table for each place */
    places();
    cast_to("range", "row", 7);
    ints("two", (const int64_t[]){2}, 1);
    (void)builder_node(&b, "Mod", "row two", "parity");
    (void)builder_constant(&b, "table", 1, (const float[]){1, 2, 3, 4}, DIMS(2, 2));
    (void)builder_node(&b, "Gather", "table parity", "rows");
    apply("Add", "x rows");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 2)); /* one thing in large batches, another in small ones */
    ints("six", (const int64_t[]){6}, 1);
    (void)builder_node(&b, "Greater", "items six", "many");
    (void)builder_node(&b, "Neg", "x", "n");
    apply("Where", "many x n");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 20)); /* columns from the number of items on */
    ints("three", (const int64_t[]){3}, 1);
    (void)builder_node(&b, "Add", "items three", "to");
    apply("Slice", "x items to one");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 1, 20)); /* the width of an image, and back */
    ints("height", (const int64_t[]){1}, 1);
    ints("width", (const int64_t[]){20}, 1);
    concat("items height items", "small");
    concat("items height width", "large");
    (void)builder_node(&b, "Resize", "x - - small", "s");
    apply("Resize", "s - - large");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 20)); /* the best, as many as there are items */
    (void)builder_node(&b, "TopK", "x items", "best i");
    (void)builder_constant(&b, "axes", 7, (const int64_t[]){1}, DIMS(1));
    (void)builder_node(&b, "ReduceSum", "best axes", "s");
    apply("Add", "x s");
    EXPECT_COUNTING();
}

static struct builder body; /* of a Scan */

/*
 * y[n][0] is a state of x[n] after a Scan along axis 1, too long to be unrolled. It multiplies by `factor`:
 * "inner" or "outer" is the number of items, found in the Scan or around it, "twos" are as many twos.
 */
static void
scan(const char *factor)
{
    char operands[16];

    builder_init(&body, 13);
    (void)builder_input(&body, "s", 1, DIMS(-1));
    (void)builder_input(&body, "e", 1, DIMS(-1));
    (void)builder_constant(&body, "none", 7, (const int64_t[]){0}, NULL, 0);
    (void)builder_node(&body, "Shape", "s", "inside");
    (void)builder_node(&body, "Gather", "inside none", "length");
    (void)builder_int(&body, builder_node(&body, "Cast", "length", "inner"), "to", 1);
    (void)builder_node(&body, "Expand", "two inside", "twos");
    (void)builder_node(&body, "Add", "s e", "A");
    for (char from[] = "A", to[] = "B"; to[0] <= 'I'; from[0]++, to[0]++) {
        (void)builder_node(&body, "Tanh", from, to);
    }
    (void)snprintf(operands, sizeof(operands), "I %s", factor);
    (void)builder_node(&body, "Mul", operands, "s2");
    builder_output(&body, "s2");
    start_counting(DIMS(-1, 4096));
    cast_to("items", "outer", 1);
    (void)builder_constant(&b, "two", 1, (const float[]){2}, DIMS(1));
    (void)builder_node(&b, "ConstantOfShape", "items", "first");
    Onnx__NodeProto *node = builder_node(&b, "Scan", "first x", "last");
    (void)builder_int(&b, node, "num_scan_inputs", 1);
    (void)builder_ints(&b, node, "scan_input_axes", DIMS(1));
    builder_graph(&b, node, "body", &body);
    (void)builder_node(&b, "Unsqueeze", "last one", "y");
}

static void
test_shapes_of_batches(void)
{
    start_counting(DIMS(-1, 3, 4));
    concat("items minus", "target");
    apply("Reshape", "x target");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 4)); /* states that are the same for each item at first */
    (void)builder_node(&b, "ConstantOfShape", "dims", "zeros");
    apply("Add", "x zeros");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 4)); /* one row for all */
    (void)builder_constant(&b, "token", 1, (const float[]){1, 2, 3, 4}, DIMS(1, 4));
    (void)builder_node(&b, "Expand", "token dims", "tokens");
    (void)builder_int(&b, builder_node(&b, "Concat", "tokens x", "y"), "axis", 1);
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 1)); /* of what is computed in a run */
    ints("four", (const int64_t[]){4}, 1);
    concat("items four", "target");
    apply("Expand", "x target");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 6)); /* positions in a sequence, for each item */
    number("start", 0);
    number("step", 1);
    (void)builder_node(&b, "Gather", "dims step", "length");
    (void)builder_node(&b, "Range", "start length step", "range");
    (void)builder_node(&b, "Unsqueeze", "range zero", "row");
    (void)builder_node(&b, "Expand", "row dims", "ids");
    cast_to("ids", "positions", 1);
    apply("Add", "x positions");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 3, 2)); /* slopes of heads, for each item: rows are items and heads */
    (void)builder_constant(&b, "slopes", 1, (const float[]){1, 2, 4}, DIMS(1, 3, 1));
    (void)builder_node(&b, "Expand", "slopes dims", "each");
    ints("rows", (const int64_t[]){-1, 2}, 2);
    (void)builder_node(&b, "Reshape", "each rows", "heads");
    (void)builder_node(&b, "Reshape", "x rows", "flat");
    (void)builder_node(&b, "Mul", "flat heads", "product");
    apply("Reshape", "product dims");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 3, 2)); /* heads before items: another order than x's */
    (void)builder_constant(&b, "slopes", 1, (const float[]){1, 2, 4}, DIMS(3, 1, 1));
    ints("heads", (const int64_t[]){3}, 1);
    ints("two", (const int64_t[]){2}, 1);
    concat("heads items two", "order");
    (void)builder_node(&b, "Expand", "slopes order", "each");
    ints("rows", (const int64_t[]){-1, 2}, 2);
    (void)builder_node(&b, "Reshape", "each rows", "mixed");
    (void)builder_node(&b, "Reshape", "x rows", "flat");
    (void)builder_node(&b, "Mul", "flat mixed", "product");
    apply("Reshape", "product dims");
    EXPECT_COUNTING();

    start_counting(DIMS(-1, 6)); /* the number cancels out */
    (void)builder_node(&b, "Div", "items items", "same");
    cast_to("same", "f", 1);
    apply("Mul", "x f");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 1, 4, 4)); /* twice as large, by sizes of which the batch is one */
    ints("sizes", (const int64_t[]){1, 8, 8}, 3);
    concat("items sizes", "target");
    apply("Resize", "x - - target");
    EXPECT_SIGNATURE();

    start_counting(DIMS(-1, 3)); /* a diagonal, of the batch's rows */
    apply("EyeLike", "x");
    expect_refusal_at(__LINE__, "output 'y' tells how many items a batch has");

    scan("twos");
    EXPECT_SIGNATURE();
    builder_fini(&body);
    scan("outer");
    EXPECT_COUNTING();
    builder_fini(&body);
    scan("inner");
    EXPECT_COUNTING();
    builder_fini(&body);
}

/* Of a longer name than has room, clients see what fits, and no part of a character; two that look the same are refused. */
static void
test_long_names(void)
{
    static const char *const tails[3] = {"abcdefgh", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", "bcdefghi"};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    char names[3][96];
    uint32_t inputs, outputs;

    for (int of_one = 0; of_one < 2; of_one++) {
        for (int same = 0; same < 2; same++) {
            struct leat_graph *graph = NULL;
            for (int n = 0; n < 3; n++) {
                (void)snprintf(names[n], sizeof(names[n]), "123456789_123456789_123456789_123456789_123456789_123456789_%s",
                               same == 1 && n == 2 ? "abcdefghi" : tails[n]);
            }
            builder_init(&b, 13);
            (void)builder_input(&b, names[0], 1, DIMS(-1, 2));
            (void)builder_node(&b, "Relu", names[0], names[1]);
            (void)builder_node(&b, "Neg", names[0], names[2]);
            builder_output(&b, names[1]);
            builder_output(&b, names[2]);
            EXPECT(builder_import(&b, &graph) == LEAT_OK);
            builder_fini(&b);
            const enum leat_status status = of_one == 1 ? leat_graph_signature_of_one(graph, infos, &inputs, &outputs)
                                                        : leat_graph_signature(graph, infos, &inputs, &outputs);
            if (same == 1) {
                EXPECT(status == LEAT_ERR_UNSUPPORTED && strstr(leat_error_text(), "have names that begin with") != NULL);
            } else {
                EXPECT(status == LEAT_OK);
                EXPECT(strlen(infos[0].name) == 63 && strncmp(infos[0].name, names[0], 63) == 0);
                EXPECT(strlen(infos[1].name) == 62 && strncmp(infos[1].name, names[1], 62) == 0);
                EXPECT(strlen(infos[2].name) == 63 && strncmp(infos[2].name, names[2], 63) == 0);
            }
            leat_graph_destroy(graph);
        }
    }
}

int
main(void)
{
    leat_test_init();
    test_symbolic_shapes();
    test_misfits();
    test_specialise();
    test_symbols();
    test_names_of_symbols();
    test_bind();
    test_hostile_values();
    test_signature();
    test_items_that_mix();
    test_symbolic_shapes_of_indexing();
    test_misfits_of_indexing();
    test_indexing_that_mixes();
    test_numbers_of_items();
    test_shapes_of_batches();
    test_long_names();
    return 0;
}
