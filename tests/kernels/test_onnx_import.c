/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every kind of bad ONNX file is an error that says what is wrong and where; good ones import.
 * Method   One good model, broken in one way per case; each case names the status and a part of the text.
 *          Then every prefix and every single flipped byte of a good file: any status, no crash, and what
 *          imports passes leat_graph_check().
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/graph_build.h"
#include "kernels/mapping.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"

/* x[N,3,8,8] -> Conv -> Relu -> y, as the importer should like it. */
static Onnx__NodeProto *
good_model(struct builder *builder)
{
    builder_init(builder, 13);
    (void)builder_input(builder, "x", 1, DIMS(-1, 3, 8, 8));
    (void)builder_constant(builder, "w", 1, NULL, DIMS(4, 3, 3, 3));
    Onnx__NodeProto *conv = builder_node(builder, "Conv", "x w", "c");
    conv->name = builder_alloc(builder, 8);
    memcpy(conv->name, "conv3", 5);
    (void)builder_ints(builder, conv, "pads", DIMS(1, 1, 1, 1));
    (void)builder_node(builder, "Relu", "c", "y");
    builder_output(builder, "y");
    return conv;
}

static void
expect_refused(struct builder *builder, enum leat_status status, const char *text)
{
    struct leat_graph *graph = NULL;
    const enum leat_status got = builder_import(builder, &graph);
    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "status %d, text \"%s\"; wanted %d, \"%s\"\n", (int)got,
                      leat_error_text(), (int)status, text);
    }
    EXPECT(got == status);
    EXPECT(strstr(leat_error_text(), text) != NULL);
    EXPECT(graph == NULL);
    builder_fini(builder);
}

static void
test_good_model(void)
{
    struct builder builder;
    struct leat_graph *graph = NULL;

    (void)good_model(&builder);
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    builder_fini(&builder); /* the graph must not need the file any more */
    EXPECT(leat_graph_check(graph) == LEAT_OK);
    EXPECT(graph->node_count == 2 && graph->input_count == 1 && graph->output_count == 1);
    EXPECT(graph->opset == 13 && graph->items == 0);
    EXPECT(strcmp(graph->nodes[0].name, "conv3") == 0);
    EXPECT(strcmp(graph->nodes[1].name, "y") == 0); /* unnamed: the first output's name */
    const struct leat_value *y = &graph->values[graph->outputs[0]];
    EXPECT(y->rank == 4 && y->dims[0] == LEAT_DIM_BATCH && y->dims[1] == 4 && y->dims[2] == 8);
    leat_graph_destroy(graph);
}

static void
test_operators(void)
{
    struct builder builder;
    Onnx__NodeProto *conv = good_model(&builder);
    conv->op_type = strcpy(builder_alloc(&builder, 8), "Foo");
    expect_refused(
        &builder, LEAT_ERR_UNSUPPORTED,
        "node 'conv3' (operator Foo, domain '') is not supported; docs/operators.md lists");

    conv = good_model(&builder); /* what a terminal would obey, as ASCII and as UTF-8 */
    conv->op_type = strcpy(builder_alloc(&builder, 16), "A\x1b[1m\n\xc2\x9b\x7f\xc3\xa4");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "(operator A?[1m????\xc3\xa4, domain '')");

    conv = good_model(&builder);
    conv->domain = strcpy(builder_alloc(&builder, 16), "com.example");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "(operator Conv, domain 'com.example')");

    conv = good_model(&builder);
    conv->op_type = strcpy(builder_alloc(&builder, 8), "Erf");
    builder.opset.version = 8;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "(operator Erf) is not supported at opset 8: from 9");

    conv = good_model(&builder); /* an operator that a later opset changed is refused, and not the file */
    conv->op_type = strcpy(builder_alloc(&builder, 9), "Upsample");
    builder.opset.version = 20;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "node 'conv3' (operator Upsample) is not supported at opset 20: up to 9");

    (void)good_model(&builder);
    builder.opset.version = LEAT_OPSET_MAX + 1;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "opset 29 is not supported; 1 to 28 are");

    (void)good_model(&builder);
    builder.model.n_opset_import = 0;
    expect_refused(&builder, LEAT_ERR_PROTO, "no opset");

    (void)good_model(&builder);
    builder.model.graph = NULL;
    expect_refused(&builder, LEAT_ERR_PROTO, "no graph");
}

/* Constants of types that graphs do not have are errors of who reads them, and of nobody else. */
static void
test_foreign_constants(void)
{
    struct leat_graph *graph = NULL;
    struct builder builder;
    Onnx__NodeProto *node;

    (void)good_model(&builder);
    builder_constant(&builder, "words", 1, NULL, DIMS(1))->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
    builder_constant(&builder, "waves", 1, NULL, DIMS(1))->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX64;
    node = builder_node(&builder, "Constant", "", "texts");
    (void)builder_strings(&builder, node, "value_strings", "a b");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        EXPECT(strcmp(graph->values[v].name, "words") != 0 && strcmp(graph->values[v].name, "waves") != 0);
        EXPECT(strcmp(graph->values[v].name, "texts") != 0);
    }
    leat_graph_destroy(graph);
    builder_fini(&builder);

    (void)good_model(&builder);
    builder_constant(&builder, "words", 1, NULL, DIMS(1))->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__STRING;
    builder_node(&builder, "Identity", "words", "again")->name = strcpy(builder_alloc(&builder, 8), "echo");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED,
                   "node 'echo' (operator Identity): 'words' is a constant of the ONNX type STRING (8), which is not "
                   "supported");

    (void)good_model(&builder);
    builder_constant(&builder, "waves", 1, NULL, DIMS(1))->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX128;
    builder_output(&builder, "waves");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "'waves' is a constant of the ONNX type COMPLEX128 (15)");

    (void)good_model(&builder);
    node = builder_node(&builder, "Constant", "", "texts");
    (void)builder_strings(&builder, node, "value_strings", "a b");
    (void)builder_node(&builder, "Shape", "texts", "counts");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED,
                   "node 'counts' (operator Shape): 'texts' is a constant of the ONNX type STRING");

    (void)good_model(&builder);
    builder_constant(&builder, "odd", 1, NULL, DIMS(1))->data_type = 4242;
    (void)builder_node(&builder, "Identity", "odd", "again");
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED,
                   "node 'again' (operator Identity): 'odd' is a constant of the ONNX type 4242,");
}

static void
test_names(void)
{
    struct builder builder;
    Onnx__NodeProto *conv = good_model(&builder);
    conv->input[1] = strcpy(builder_alloc(&builder, 8), "ghost");
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "node 'conv3' (operator Conv) reads 'ghost', which nothing defines");

    (void)good_model(&builder);
    (void)builder_node(&builder, "Relu", "c", "y");
    expect_refused(&builder, LEAT_ERR_PROTO, "value 'y' is defined twice");

    (void)good_model(&builder);
    (void)builder_input(&builder, "x", 1, DIMS(-1, 3));
    expect_refused(&builder, LEAT_ERR_PROTO, "value 'x' is defined twice");

    (void)good_model(&builder);
    (void)builder_constant(&builder, "w", 1, NULL, DIMS(1));
    expect_refused(&builder, LEAT_ERR_PROTO, "value 'w' is defined twice");

    conv = good_model(&builder);
    conv->input[0] = strcpy(builder_alloc(&builder, 8), "y"); /* conv reads relu reads conv */
    expect_refused(&builder, LEAT_ERR_PROTO, "cycle");

    (void)good_model(&builder);
    builder_output(&builder, "nowhere");
    expect_refused(&builder, LEAT_ERR_PROTO, "output 'nowhere' is never computed");

    (void)good_model(&builder);
    builder.graph.n_output = 0;
    expect_refused(&builder, LEAT_ERR_PROTO, "a graph with 0 outputs");

    (void)good_model(&builder);
    builder.initialisers[0]->name = NULL;
    expect_refused(&builder, LEAT_ERR_PROTO, "has no name");
}

/* Which node it is: by its name, its first output that has one, or its number. */
static void
test_nameless_nodes(void)
{
    static const char *const cases[][2] = {{"y", "node 'y' (operator LSTM) reads 'ghost'"},
                                           {"- h", "node 'h' (operator LSTM) reads 'ghost'"},
                                           {"- - c", "node 'c' (operator LSTM) reads 'ghost'"},
                                           {"-", "node '#1' (operator LSTM) reads 'ghost'"}};
    struct builder builder;

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        builder_init(&builder, 14);
        (void)builder_input(&builder, "x", 1, DIMS(1, -1, 4));
        (void)builder_node(&builder, "Relu", "x", "z");
        (void)builder_node(&builder, "LSTM", "x ghost ghost", cases[c][0]);
        builder_output(&builder, "z");
        expect_refused(&builder, LEAT_ERR_PROTO, cases[c][1]);
    }
    builder_init(&builder, 14);
    (void)builder_input(&builder, "x", 1, DIMS(-1, 4));
    (void)builder_node(&builder, "Relu", "x", "y");
    (void)builder_node(&builder, "Relu", "x", "-");
    builder_output(&builder, "y");
    expect_refused(&builder, LEAT_ERR_PROTO, "node '#1' (operator Relu): output 0 must not be omitted");
}

/* What the file says of an output: its type is true or the file is refused. */
static void
test_declared_types(void)
{
    static const struct {
        int input, output;
        const char *text; /* NULL: the file is read */
    } cases[] = {
        {1, 1, NULL},   {1, 0, NULL}, {10, 10, NULL},
        {1, 7, "output 'y' has type f32, and not INT64 (7) as the file says"},
        {1, 8, "output 'y' has type f32, and not STRING (8) as the file says"},
        {1, 10, "output 'y' has type f32, and not FLOAT16 (10) as the file says"},
        {10, 16, "output 'y' has type f16, and not BFLOAT16 (16) as the file says"},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_graph *graph = NULL;
        struct builder b;
        builder_init(&b, 14);
        (void)builder_input(&b, "x", cases[c].input, DIMS(-1, 4));
        (void)builder_node(&b, "Relu", "x", "y");
        builder_output(&b, "y");
        b.outputs[0]->type = builder_input(&b, "other", cases[c].output, DIMS(-1, 4))->type;
        b.graph.n_input--;
        if (cases[c].text != NULL) {
            expect_refused(&b, LEAT_ERR_PROTO, cases[c].text);
            continue;
        }
        EXPECT(builder_import(&b, &graph) == LEAT_OK);
        EXPECT(graph->values[graph->outputs[0]].dtype == leat_dtype_from_onnx(cases[c].input) && graph->misdeclared == NULL);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Dimensions that it has wrong are told, and inference is believed. The first axis is free, the second is where a value is given. */
static void
test_declared_dims(void)
{
    static const char first[] = "output 'y' of node 'y' is [?,4,5], and not ";
    static const struct {
        uint32_t rank;
        int64_t dims[4];
        const char *said; /* NULL: it is right */
    } cases[] = {
        {3, {-1, 4, 5}, NULL},        {3, {7, 4, 5}, NULL}, {3, {-1, -1, -1}, NULL},          {3, {-1, 0, 5}, NULL},
        {0, {0}, NULL},               {2, {-1, 20}, "[?,20]"}, {4, {1, 1, 4, 5}, "[1,1,4,5]"},
        {3, {-1, 5, 4}, "[?,5,4]"},   {3, {7, 4, 6}, "[7,4,6]"},
    };

    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_graph *graph = NULL;
        char text[128];
        struct builder b;
        builder_init(&b, 14);
        (void)builder_input(&b, "x", 1, DIMS(-1, 4, 5));
        (void)builder_node(&b, "Relu", "x", "y");
        builder_output(&b, "x");
        builder_output(&b, "y");
        b.outputs[1]->type = builder_input(&b, "other", 1, cases[c].dims, cases[c].rank)->type;
        b.graph.n_input--;
        EXPECT(builder_import(&b, &graph) == LEAT_OK);
        const struct leat_value *y = &graph->values[graph->outputs[1]];
        EXPECT(y->rank == 3 && y->dims[0] == LEAT_DIM_BATCH && y->dims[1] == 4 && y->dims[2] == 5);
        (void)snprintf(text, sizeof(text), "%s%s as the file says", first, cases[c].said != NULL ? cases[c].said : "");
        EXPECT((graph->misdeclared != NULL) == (cases[c].said != NULL));
        EXPECT(graph->misdeclared == NULL || strcmp(graph->misdeclared, text) == 0);
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

/* Nor is what a size from outside makes of an output in the file. */
static void
test_declared_before_sizes(void)
{
    const struct leat_dim_value five = {"M", 5}, seven = {"M", 7};
    struct leat_onnx_source source = {.folder_fd = -1, .dims = &five, .dim_count = 1};
    struct builder b;

    builder_init(&b, 14);
    (void)builder_input(&b, "x", 1, DIMS(-1, -2));
    (void)builder_node(&b, "Relu", "x", "y");
    builder_output(&b, "y");
    b.outputs[0]->type = builder_input(&b, "other", 1, DIMS(-1, 7))->type;
    b.graph.n_input--;
    source.bytes = builder_pack(&b, &source.byte_count);
    for (int i = 0; i < 3; i++) {
        struct leat_graph *graph = NULL;
        source.dim_count = i < 2;
        source.dims = i == 0 ? &five : &seven;
        EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK && graph->misdeclared == NULL);
        leat_graph_destroy(graph);
    }
    builder_fini(&b);
}

static void
test_arity(void)
{
    struct builder builder;
    Onnx__NodeProto *conv = good_model(&builder);
    conv->n_input = 1;
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "node 'conv3' (operator Conv): it has 1 inputs; 2 to 3");

    conv = good_model(&builder);
    conv->input[0] = strcpy(builder_alloc(&builder, 8), "");
    expect_refused(&builder, LEAT_ERR_PROTO, "input 0 must not be omitted");

    (void)good_model(&builder);
    (void)builder_node(&builder, "Relu", "c", "z zz");
    expect_refused(&builder, LEAT_ERR_PROTO, "it has 2 outputs; 1 to 1");

    conv = good_model(&builder);
    conv->output[0] = strcpy(builder_alloc(&builder, 8), "");
    builder.graph.node[1]->input[0] = strcpy(builder_alloc(&builder, 8), "x");
    expect_refused(&builder, LEAT_ERR_PROTO, "output 0 must not be omitted");
}

static void
test_attributes(void)
{
    struct builder builder;
    Onnx__NodeProto *conv = good_model(&builder);
    (void)builder_int(&builder, conv, "strides", 2);
    expect_refused(&builder, LEAT_ERR_PROTO, "attribute strides has type INT instead of INTS");

    conv = good_model(&builder);
    (void)builder_int(&builder, conv, "colour", 2);
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "attribute 'colour' is not supported");

    conv = good_model(&builder);
    (void)builder_int(&builder, conv, "group", 1);
    (void)builder_int(&builder, conv, "group", 1);
    expect_refused(&builder, LEAT_ERR_PROTO, "attribute group is there twice");

    (void)good_model(&builder);
    (void)builder_node(&builder, "Cast", "c", "z");
    expect_refused(&builder, LEAT_ERR_PROTO, "attribute to is missing");

    conv = good_model(&builder);
    builder_int(&builder, conv, "group", 1)->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "attribute 'group': its type is not supported");

    conv = good_model(&builder);
    builder_string(&builder, conv, "auto_pad", "SAME_UPPER")->s.data[3] = '\0';
    expect_refused(&builder, LEAT_ERR_PROTO, "a string is too long or has a zero byte");
}

static void
test_tensors(void)
{
    struct builder builder;

    (void)good_model(&builder);
    builder.initialisers[0]->raw_data.len -= 4;
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "tensor 'w' has 428 raw bytes, its shape needs 108 elements");

    (void)good_model(&builder);
    builder.initialisers[0]->has_raw_data = 0;
    builder.initialisers[0]->n_float_data = 107;
    builder.initialisers[0]->float_data = builder_alloc(&builder, 107 * sizeof(float));
    expect_refused(&builder, LEAT_ERR_PROTO, "tensor 'w' has 107 elements");

    (void)good_model(&builder);
    builder.initialisers[0]->n_int64_data =
        1; /* raw data and typed data of another type: ignored */
    builder.initialisers[0]->int64_data = builder_alloc(&builder, sizeof(int64_t));
    struct leat_graph *graph = NULL;
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    leat_graph_destroy(graph);
    builder_fini(&builder);

    (void)good_model(&builder);
    builder.initialisers[0]->dims[0] = INT64_C(1) << 30;
    builder.initialisers[0]->dims[1] = INT64_C(1) << 30;
    expect_refused(&builder, LEAT_ERR_LIMIT, "impossible or too large dimension");

    (void)good_model(&builder);
    builder.initialisers[0]->dims[0] = INT64_C(1) << 30; /* 108 GiB of weights in a small file */
    expect_refused(&builder, LEAT_ERR_PROTO, "raw bytes, its shape needs");

    (void)good_model(&builder);
    builder.initialisers[0]->dims[0] = -4;
    expect_refused(&builder, LEAT_ERR_LIMIT, "dimension -4");

    (void)good_model(&builder);
    builder.initialisers[0]->data_type = 8;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED,
                   "node 'conv3' (operator Conv): 'w' is a constant of the ONNX type STRING (8)");

    (void)good_model(&builder);
    builder.initialisers[0]->has_data_location = 1;
    builder.initialisers[0]->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "data in another file (external data)");

    (void)good_model(&builder);
    (void)builder_constant(&builder, "nine", 1, NULL, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1));
    expect_refused(&builder, LEAT_ERR_LIMIT, "tensor 'nine' has rank 9, the limit is 8");
}

/* w is [4][3]: 7 at 1, 8 at 5, 9 at 11. */
struct sparse {
    Onnx__SparseTensorProto proto;
    int64_t dims[2], numbers[3], pairs[6];
    float values[3];
};

/* Lists of elements in fields of their types, or as raw data. */
static void
add_sparse(struct builder *builder, struct sparse *sparse, bool pairs, bool raw)
{
    static Onnx__SparseTensorProto *list[1];
    Onnx__TensorProto *values = builder_tensor(builder, "w", 1, raw ? sparse->values : NULL, DIMS(3));
    Onnx__TensorProto *indices = pairs ? builder_tensor(builder, "", 7, raw ? sparse->pairs : NULL, DIMS(3, 2))
                                       : builder_tensor(builder, "", 7, raw ? sparse->numbers : NULL, DIMS(3));
    if (!raw) {
        values->has_raw_data = indices->has_raw_data = 0;
        values->n_float_data = 3;
        values->float_data = sparse->values;
        indices->n_int64_data = pairs ? 6 : 3;
        indices->int64_data = pairs ? sparse->pairs : sparse->numbers;
    }
    sparse->proto = (Onnx__SparseTensorProto)ONNX__SPARSE_TENSOR_PROTO__INIT;
    sparse->proto.values = values;
    sparse->proto.indices = indices;
    sparse->proto.n_dims = 2;
    sparse->proto.dims = sparse->dims;
    list[0] = &sparse->proto;
    builder->graph.n_sparse_initializer = 1;
    builder->graph.sparse_initializer = list;
}

static void
start_sparse(struct builder *builder, struct sparse *sparse, bool pairs, bool raw)
{
    *sparse = (struct sparse){
        .dims = {4, 3}, .numbers = {1, 5, 11}, .pairs = {0, 1, 1, 2, 3, 2}, .values = {7, 8, 9}};
    builder_init(builder, 13);
    (void)builder_input(builder, "x", 1, DIMS(-1, 4));
    add_sparse(builder, sparse, pairs, raw);
    builder_node(builder, "MatMul", "x w", "y")->name = strcpy(builder_alloc(builder, 8), "dense");
    builder_output(builder, "y");
}

static void
expect_spread(struct builder *builder)
{
    static const float wanted[12] = {0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 9};
    struct leat_graph *graph = NULL;

    EXPECT(builder_import(builder, &graph) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
    const struct leat_value *w = leat_node_input(graph, &graph->nodes[0], 1);
    EXPECT(strcmp(w->name, "w") == 0 && w->dtype == LEAT_DTYPE_F32 && w->rank == 2 && w->dims[0] == 4 && w->dims[1] == 3);
    EXPECT(w->data_bytes == sizeof(wanted) && memcmp(w->data, wanted, sizeof(wanted)) == 0);
    leat_graph_destroy(graph);
    builder_fini(builder);
}

static void
expect_sparse_limit(struct builder *builder, uint64_t memory_bytes_max, const char *text)
{
    struct leat_onnx_source source = {.folder_fd = -1, .memory_bytes_max = memory_bytes_max};
    struct leat_graph *graph = NULL;

    source.bytes = builder_pack(builder, &source.byte_count);
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_ERR_LIMIT && graph == NULL);
    EXPECT(strstr(leat_error_text(), text) != NULL);
    builder_fini(builder);
}

/* Initialisers and constants of which the file has only what is not 0. */
static void
test_sparse(void)
{
    struct sparse sparse;
    struct builder builder;

    for (int form = 0; form < 4; form++) {
        start_sparse(&builder, &sparse, (form & 1) != 0, (form & 2) != 0);
        expect_spread(&builder);

        start_sparse(&builder, &sparse, (form & 1) != 0, (form & 2) != 0);
        builder.graph.n_sparse_initializer = 0;
        builder.graph.n_node = 0;
        Onnx__NodeProto *node = builder_node(&builder, "Constant", "", "w");
        Onnx__AttributeProto *attribute = builder_float(&builder, node, "sparse_value", 0);
        attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR;
        attribute->sparse_tensor = &sparse.proto;
        (void)builder_node(&builder, "MatMul", "x w", "y");
        expect_spread(&builder);
    }
    start_sparse(&builder, &sparse, false, true);
    builder.graph.sparse_initializer[0]->values->n_dims = 0;
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "node 'dense' (operator MatMul) reads 'w': sparse tensor 'w'");

    start_sparse(&builder, &sparse, false, false);
    sparse.proto.indices = NULL;
    expect_refused(&builder, LEAT_ERR_PROTO, "sparse tensor 'w' has no list of indices");

    start_sparse(&builder, &sparse, false, false);
    sparse.proto.values = NULL;
    expect_refused(&builder, LEAT_ERR_PROTO, "has no name");

    start_sparse(&builder, &sparse, true, false);
    sparse.proto.n_dims = 1;
    expect_refused(&builder, LEAT_ERR_PROTO, "one for each of 1 dimensions");

    start_sparse(&builder, &sparse, false, false);
    sparse.proto.indices->n_int64_data = 2;
    expect_refused(&builder, LEAT_ERR_PROTO, "tensor 'w' has 2 elements, its shape needs 3");

    start_sparse(&builder, &sparse, false, false);
    sparse.numbers[2] = 12;
    expect_refused(&builder, LEAT_ERR_PROTO, "sparse tensor 'w': index 2 is out of range, or not behind the one before");

    start_sparse(&builder, &sparse, false, false);
    sparse.numbers[0] = -1;
    expect_refused(&builder, LEAT_ERR_PROTO, "index 0 is out of range");

    start_sparse(&builder, &sparse, false, false);
    sparse.numbers[1] = 1;
    expect_refused(&builder, LEAT_ERR_PROTO, "index 1 is out of range, or not behind");

    start_sparse(&builder, &sparse, true, false);
    sparse.pairs[1] = 3; /* would be element 3 */
    expect_refused(&builder, LEAT_ERR_PROTO, "index 0 is out of range");

    start_sparse(&builder, &sparse, false, false);
    sparse.proto.values->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX64;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED,
                   "node 'dense' (operator MatMul): 'w' is a constant of the ONNX type COMPLEX64");

    start_sparse(&builder, &sparse, false, false);
    sparse.proto.values->has_data_location = 1;
    sparse.proto.values->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "the values of sparse tensor 'w' lie in another file");

    start_sparse(&builder, &sparse, false, false);
    sparse.dims[1] = 1 << 24; /* 256 MiB, of a hundred bytes of file */
    expect_sparse_limit(&builder, 0, "sparse tensor 'w' would take 268435456 bytes, many times what the file has");

    start_sparse(&builder, &sparse, false, false);
    sparse.dims[1] = 1 << 24;
    expect_sparse_limit(&builder, 1 << 20, "the model's constants take 268435456 bytes, its limit is 1048576");
}

/* What is wrong with a tensor is said with the node that reads it, whichever graph that is in. */
static void
test_readers(void)
{
    struct builder builder, inner;
    Onnx__NodeProto *node;

    (void)good_model(&builder);
    builder.initialisers[0]->raw_data.len -= 4;
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "node 'conv3' (operator Conv) reads 'w': tensor 'w' has 428");

    (void)good_model(&builder);
    (void)builder_constant(&builder, "nine", 1, NULL, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1));
    (void)builder_node(&builder, "Relu", "nine", "z");
    expect_refused(&builder, LEAT_ERR_LIMIT,
                   "node 'z' (operator Relu) reads 'nine': tensor 'nine' has rank 9");

    for (int inside = 0; inside < 2; inside++) { /* a graph inside reads a tensor of the one around, or one of its own */
        (void)good_model(&builder);
        (void)builder_input(&builder, "b", ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, DIMS(1));
        builder_init(&inner, 13);
        (void)builder_constant(inside ? &inner : &builder, "nine", 1, NULL, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1));
        (void)builder_node(&inner, "Relu", "nine", "z");
        builder_output(&inner, "z");
        node = builder_node(&builder, "If", "b", "either");
        builder_graph(&builder, node, "then_branch", &inner);
        builder_graph(&builder, node, "else_branch", &inner);
        expect_refused(&builder, LEAT_ERR_LIMIT,
                       inside ? "node 'either' (operator If): attribute 'then_branch': node 'z' (operator Relu) reads "
                                "'nine': tensor 'nine' has rank 9"
                              : "node 'either' (operator If) reads 'nine': tensor 'nine' has rank 9");
        builder_fini(&inner);
    }

    (void)good_model(&builder);
    node = builder_node(&builder, "ConstantOfShape", "c", "z");
    Onnx__AttributeProto *attribute = builder_float(&builder, node, "value", 0);
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    attribute->t = builder_tensor(&builder, "v", 1, NULL, DIMS(1));
    attribute->t->raw_data.len = 3;
    expect_refused(&builder, LEAT_ERR_PROTO,
                   "node 'z' (operator ConstantOfShape): attribute 'value': tensor 'value' has 3 raw bytes");

    (void)good_model(&builder);
    builder.initialisers[0]->data_type = 8;
    builder_output(&builder, "w");
    builder.graph.n_node = 0;
    builder.graph.output[0] = builder.graph.output[1];
    builder.graph.n_output = 1;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "'w' is a constant of the ONNX type STRING");
}

static void
test_inputs(void)
{
    struct builder builder;

    (void)good_model(&builder);
    builder.inputs[0]->type->tensor_type->shape = NULL;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "input 'x' is not a tensor with a shape");

    (void)good_model(&builder);
    builder.inputs[0]->type->tensor_type->elem_type = 8;
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "input 'x' has the ONNX type STRING (8)");

    (void)good_model(&builder);
    (void)builder_input(&builder, "z", 1, DIMS(-1, INT64_C(1) << 40));
    expect_refused(&builder, LEAT_ERR_LIMIT, "input 'z' is too large: dimension 1099511627776");

    (void)good_model(&builder);
    (void)builder_input(&builder, "z", 1, DIMS(1 << 30, 1 << 30, 1 << 30));
    expect_refused(&builder, LEAT_ERR_LIMIT, "input 'z' is too large");

    (void)good_model(&builder);
    builder.inputs[0]->type->tensor_type->elem_type = 6; /* i32 convolution */
    expect_refused(&builder, LEAT_ERR_UNSUPPORTED, "input 'x' of type i32 is not supported");
}

/* ---- Inputs that are constant ------------------------------------------------------------------- */

enum { TYPE_F32 = 1, TYPE_U8 = 2, TYPE_I64 = 7, TYPE_STRING = 8, TYPE_BOOL = 9, TYPE_F16 = 10, TYPE_U64 = 13, TYPE_BF16 = 16 };

/* y = rate is 16000 ? -(x without axis 1) : x + x, of other ranks, so that `rate` has to be known. */
static void
rate_model(struct builder *b, struct builder inner[2])
{
    static const int64_t axes[1] = {1}, fast = 16000;

    builder_init(&inner[0], 13);
    (void)builder_node(&inner[0], "Squeeze", "x axes", "s");
    (void)builder_node(&inner[0], "Neg", "s", "t");
    builder_output(&inner[0], "t");
    builder_init(&inner[1], 13);
    (void)builder_node(&inner[1], "Add", "x x", "e");
    builder_output(&inner[1], "e");
    builder_init(b, 13);
    (void)builder_input(b, "rate", TYPE_I64, NULL, 0);
    (void)builder_input(b, "x", TYPE_F32, DIMS(-1, 1, 4));
    (void)builder_constant(b, "axes", TYPE_I64, axes, DIMS(1));
    (void)builder_constant(b, "fast", TYPE_I64, &fast, NULL, 0);
    (void)builder_node(b, "Equal", "rate fast", "c");
    Onnx__NodeProto *node = builder_node(b, "If", "c", "y");
    builder_graph(b, node, "then_branch", &inner[0]);
    builder_graph(b, node, "else_branch", &inner[1]);
    builder_output(b, "y");
}

static enum leat_status
import_with(struct builder *b, const struct leat_constant_input *constants, uint32_t count, struct leat_graph **ret_graph)
{
    struct leat_onnx_source source = {.folder_fd = -1, .constants = constants, .constant_count = count};
    source.bytes = builder_pack(b, &source.byte_count);
    return leat_onnx_import_from(&source, ret_graph);
}

/* It is no input any more, and decides the branch before shapes are inferred. */
static void
test_constant_decides(void)
{
    for (int64_t rate = 8000; rate <= 16000; rate += 8000) {
        const struct leat_constant_input constant = {.name = "rate", .is_whole = true, .whole = rate};
        struct builder b, inner[2];
        struct leat_graph *graph = NULL;
        rate_model(&b, inner);
        EXPECT(import_with(&b, NULL, 0, &graph) == LEAT_ERR_UNSUPPORTED);
        EXPECT(strstr(leat_error_text(), "its branches yield different types or ranks") != NULL);
        EXPECT(import_with(&b, &constant, 1, &graph) == LEAT_OK && leat_graph_check(graph) == LEAT_OK);
        EXPECT(graph->input_count == 1 && strcmp(graph->values[graph->inputs[0]].name, "x") == 0);
        for (uint32_t n = 0; n < graph->node_count; n++) {
            EXPECT(strcmp(graph->nodes[n].op->name, "If") != 0);
        }
        EXPECT(graph->values[graph->outputs[0]].rank == (rate == 16000 ? 2 : 3));
        leat_graph_destroy(graph);
        builder_fini(&b);
        builder_fini(&inner[0]);
        builder_fini(&inner[1]);
    }
}

/* y = Identity(x), and z of some type and shape, which somebody else reads. */
static void
read_model(struct builder *b, int type, const int64_t *dims, size_t rank)
{
    static const float scale = 2;

    builder_init(b, 13);
    (void)builder_input(b, "x", TYPE_F32, DIMS(-1, 4));
    (void)builder_input(b, "z", type, dims, rank);
    (void)builder_constant(b, "scale", TYPE_F32, &scale, NULL, 0);
    (void)builder_node(b, "Mul", "x scale", "y");
    builder_output(b, "y");
    builder_output(b, "z");
}

/* All elements of the input's shape are the number, in the input's type. */
static void
test_constant_of_types(void)
{
    static const float half = 0.5f;
    static const uint16_t f16 = 0x3e00, bf16 = 0xbfc0;
    static const int64_t least = INT64_MIN, whole = 9007199254740993, rate = -16000, exact = INT64_C(1) << 53;
    static const uint64_t most = INT64_MAX;
    static const uint8_t byte = 255, one = 1;
    static const struct {
        int type;
        struct leat_constant_input given;
        const void *element;
        size_t bytes;
    } cases[] = {
        {TYPE_F32, {"z", false, 0, 0.5}, &half, sizeof(half)},       {TYPE_F16, {"z", false, 0, 1.5}, &f16, sizeof(f16)},
        {TYPE_BF16, {"z", false, 0, -1.5}, &bf16, sizeof(bf16)},     {TYPE_I64, {"z", true, INT64_MIN, 0}, &least, sizeof(least)},
        {TYPE_I64, {"z", true, 9007199254740993, 0}, &whole, sizeof(whole)},
        {TYPE_I64, {"z", false, 0, -16000.0}, &rate, sizeof(rate)},  {TYPE_I64, {"z", false, 0, 0x1p53}, &exact, sizeof(exact)},
        {TYPE_BOOL, {"z", false, 0, 1}, &one, sizeof(one)},
        {TYPE_U64, {"z", true, INT64_MAX, 0}, &most, sizeof(most)},  {TYPE_U8, {"z", true, 255, 0}, &byte, sizeof(byte)},
        {TYPE_BOOL, {"z", true, 1, 0}, &one, sizeof(one)},
    };
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_graph *graph = NULL;
        struct builder b;
        read_model(&b, cases[c].type, DIMS(2, 3));
        EXPECT(import_with(&b, &cases[c].given, 1, &graph) == LEAT_OK);
        const struct leat_value *z = &graph->values[graph->outputs[1]];
        EXPECT(graph->input_count == 1 && z->rank == 2 && z->data != NULL && z->data_bytes == 6 * cases[c].bytes);
        for (size_t i = 0; i < 6; i++) {
            EXPECT(memcmp((const char *)z->data + i * cases[c].bytes, cases[c].element, cases[c].bytes) == 0);
        }
        leat_graph_destroy(graph);
        builder_fini(&b);
    }
}

static void
test_constant_mistakes(void)
{
    static const struct {
        int type;
        int64_t dim;
        struct leat_constant_input given;
        const char *text;
    } cases[] = {
        {TYPE_F32, 3, {"w", true, 1, 0}, "no input is called 'w', so it cannot be constant; inputs are 'x', 'z'"},
        {TYPE_F32, 3, {"y", true, 1, 0}, "no input is called 'y'"}, /* what a node makes */
        {TYPE_F32, 3, {"scale", true, 1, 0}, "'scale' is constant in the file already"},
        {TYPE_I64, 3, {"z", false, 0, 0.5}, "input 'z' is of type i64, which has whole numbers from -9223372036854775808 to 9223372036854775807, and not 0.5"},
        {TYPE_I64, 3, {"z", false, 0, 9007199254740994.0}, "and not 9.0072e+15"}, /* which a double is not sure of */
        {TYPE_U8, 3, {"z", false, 0, 256}, "0 to 255, and not 256"},
        {TYPE_U8, 3, {"z", true, 256, 0}, "input 'z' is of type u8, which has whole numbers from 0 to 255, and not 256"},
        {TYPE_U8, 3, {"z", true, -1, 0}, "0 to 255, and not -1"},
        {TYPE_U64, 3, {"z", true, -1, 0}, "0 to 9223372036854775807, and not -1"},
        {TYPE_BOOL, 3, {"z", true, 2, 0}, "input 'z' is of type bool, which has whole numbers from 0 to 1, and not 2"},
        {TYPE_F16, 3, {"z", true, 100000, 0}, "input 'z' is of type f16, which has no number as large as 100000"},
        {TYPE_F32, 3, {"z", false, 0, -1e300}, "which has no number as large as -1e+300"},
        {TYPE_STRING, 3, {"z", true, 1, 0}, "input 'z' has the ONNX type STRING (8), which is not supported: only an input of numbers can be constant"},
        {TYPE_F32, -1, {"z", true, 1, 0}, "input 'z' cannot be constant: dimension 0 of it counts items"},
    };
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        struct leat_graph *graph = NULL;
        struct builder b;
        read_model(&b, cases[c].type, DIMS(cases[c].dim, 2));
        EXPECT(import_with(&b, &cases[c].given, 1, &graph) != LEAT_OK && graph == NULL);
        if (strstr(leat_error_text(), cases[c].text) == NULL) {
            (void)fprintf(stderr, "case %zu: \"%s\"\n", c, leat_error_text());
        }
        EXPECT(strstr(leat_error_text(), cases[c].text) != NULL);
        builder_fini(&b);
    }
}

/* A free dimension needs its value; no input is given two constants. */
static void
test_constant_of_free_shape(void)
{
    static const struct leat_constant_input twice[2] = {{"z", true, 1, 0}, {"z", true, 1, 0}};
    static const struct leat_dim_value dim = {.name = "M", .value = 5};
    struct leat_onnx_source source = {.folder_fd = -1, .constants = twice, .constant_count = 1};
    struct leat_graph *graph = NULL;
    struct builder b;

    read_model(&b, TYPE_F32, DIMS(2, -2));
    source.bytes = builder_pack(&b, &source.byte_count);
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "input 'z' cannot be constant while dimension 1 of it is free: give 'M' a value (--dim M=N)") != NULL);
    source.dims = &dim;
    source.dim_count = 1;
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK);
    EXPECT(graph->values[graph->outputs[1]].data_bytes == 10 * sizeof(float));
    leat_graph_destroy(graph);
    source.constant_count = 2;
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "input 'z' is given two constants") != NULL);
    builder_fini(&b);
}

static void
test_shapes_that_do_not_fit(void)
{
    struct builder builder;
    Onnx__NodeProto *conv = good_model(&builder);
    (void)builder_int(&builder, conv, "group", 2);
    expect_refused(&builder, LEAT_ERR_SHAPE, "3 input channels do not fit 2 groups of 3");

    conv = good_model(&builder);
    conv->attribute[0]->ints[0] = -1;
    expect_refused(&builder, LEAT_ERR_SHAPE, "attribute pads has the entry -1");

    (void)good_model(&builder);
    const int64_t kernel[2] = {1 << 21, 1};
    Onnx__NodeProto *pool = builder_node(&builder, "MaxPool", "x", "p");
    (void)builder_ints(&builder, pool, "kernel_shape", kernel, 2);
    expect_refused(&builder, LEAT_ERR_LIMIT, "its kernel has more than");
}

/* Nodes may come in any order; names are what counts. */
static void
test_unsorted_nodes(void)
{
    struct builder builder;
    struct leat_graph *graph = NULL;

    (void)good_model(&builder);
    Onnx__NodeProto *first = builder.nodes[0];
    builder.nodes[0] = builder.nodes[1];
    builder.nodes[1] = first;
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    EXPECT(leat_graph_check(graph) == LEAT_OK);
    EXPECT(strcmp(graph->nodes[0].op->name, "Conv") == 0);
    leat_graph_destroy(graph);
    builder_fini(&builder);
}

/* Names reach terminals, logs and JSON: no control characters, valid UTF-8. */
static void
test_names_are_cleaned(void)
{
    struct builder builder;
    struct leat_graph *graph = NULL;
    Onnx__NodeProto *conv = good_model(&builder);

    conv->name = strcpy(builder_alloc(&builder, 16), "a\033[2J\n\xff\xc3\xa9\xc0");
    EXPECT(builder_import(&builder, &graph) == LEAT_OK);
    EXPECT(strcmp(graph->nodes[0].name, "a?[2J??\xc3\xa9?") == 0);
    leat_graph_destroy(graph);
    builder_fini(&builder);
}

static void
put_varint(uint8_t **at, uint64_t value)
{
    while (value >= 0x80) {
        *(*at)++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *(*at)++ = (uint8_t)value;
}

/* A type inside a type inside a type ...: protobuf-c alone would run out of stack. */
static void
test_deep_nesting(void)
{
    enum { DEPTH = 100000 };
    uint8_t *bytes = malloc(16 * DEPTH), *out = bytes;
    size_t *lengths = malloc((DEPTH + 1) * sizeof(*lengths));
    struct leat_graph *graph = NULL;

    EXPECT(bytes != NULL && lengths != NULL);
    /* Innermost first: sequence_type (field 4) { elem_type (field 1) { ... } }. */
    lengths[0] = 0;
    for (size_t i = 1; i <= DEPTH; i++) {
        uint8_t scratch[16], *at = scratch;
        put_varint(&at, lengths[i - 1]);
        lengths[i] = lengths[i - 1] + 1 + (size_t)(at - scratch);
    }
    uint8_t head[64], *at = head;
    const size_t type = lengths[DEPTH];
    uint8_t type_head[16], *t = type_head;
    *t++ = 2 << 3 | 2; /* ValueInfoProto.type */
    put_varint(&t, type);
    const size_t info = (size_t)(t - type_head) + type;
    uint8_t info_head[16], *v = info_head;
    *v++ = 11 << 3 | 2; /* GraphProto.input */
    put_varint(&v, info);
    *at++ = 7 << 3 | 2; /* ModelProto.graph */
    put_varint(&at, (size_t)(v - info_head) + info);
    memcpy(out, head, (size_t)(at - head));
    out += at - head;
    memcpy(out, info_head, (size_t)(v - info_head));
    out += v - info_head;
    memcpy(out, type_head, (size_t)(t - type_head));
    out += t - type_head;
    for (size_t i = DEPTH; i >= 1; i--) {
        *out++ = (uint8_t)((i % 2 == 0 ? 4 : 1) << 3 | 2);
        put_varint(&out, lengths[i - 1]);
    }
    EXPECT(leat_onnx_import(bytes, (size_t)(out - bytes), &graph) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "nested more than") != NULL);
    free(bytes);
    free(lengths);
}

static void
test_duplicate_graph(void)
{
    static const uint8_t twice[] = {7 << 3 | 2, 0, 7 << 3 | 2, 0};
    struct leat_graph *graph = NULL;
    EXPECT(leat_onnx_import(twice, sizeof(twice), &graph) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "is there twice") != NULL);
}

/* Where elements lie is for leat to say, never for the file: 8 KiB of raw data stay in it, numbers for a place are nothing. */
static void
test_raw_data(void)
{
    enum { LARGE = 8192 };
    static uint8_t large[3 + LARGE] = {9 << 3 | 2, (LARGE & 0x7f) | 0x80, LARGE >> 7};
    static const uint8_t twice[] = {9 << 3 | 2, 1, 'a', 9 << 3 | 2, 1, 'b'};
    /* fixed64 of the fields 50001 and 50002 */
    static const uint8_t forged[] = {0x89, 0xb5, 0x18, 8, 7, 6, 5, 4, 3, 2, 1, 0x91, 0xb5, 0x18, 0, 0x20, 0, 0, 0, 0, 0, 0};
    const ProtobufCMessageDescriptor *tensor = &onnx__tensor_proto__descriptor;
    ProtobufCMessage *message;
    ProtobufCBinaryData raw;

    EXPECT(leat_onnx_unpack(tensor, large, sizeof(large), 0, &message) == LEAT_OK);
    EXPECT(leat_onnx_raw((const Onnx__TensorProto *)(const void *)message, &raw) && raw.data == large + 3 && raw.len == LARGE);
    leat_onnx_free(message);
    EXPECT(leat_onnx_unpack(tensor, twice, sizeof(twice), 0, &message) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "is there twice") != NULL);
    EXPECT(leat_onnx_unpack(tensor, twice, sizeof(twice) / 2, 0, &message) == LEAT_OK);
    EXPECT(leat_onnx_raw((const Onnx__TensorProto *)(const void *)message, &raw) && raw.data[0] == 'a' && raw.len == 1);
    leat_onnx_free(message);
    EXPECT(leat_onnx_unpack(tensor, forged, sizeof(forged), 0, &message) == LEAT_OK);
    EXPECT(message->n_unknown_fields == 0);
    EXPECT(!leat_onnx_raw((const Onnx__TensorProto *)(const void *)message, &raw));
    leat_onnx_free(message);
}

/* A file that is mapped becomes the same graph, and keeps its bytes. */
static void
test_mapped_file(void)
{
    enum { ROWS = 1000 };
    static float rows[ROWS * 64];
    char path[] = "/tmp/leat-test-XXXXXX";
    struct leat_graph *graph = NULL;
    struct builder builder;
    size_t size;

    for (size_t i = 0; i < LEAT_COUNT_OF(rows); i++) {
        rows[i] = (float)i;
    }
    builder_init(&builder, 13);
    (void)builder_input(&builder, "i", 7, DIMS(-1));
    (void)builder_constant(&builder, "table", 1, rows, DIMS(ROWS, 64));
    (void)builder_node(&builder, "Gather", "table i", "y");
    builder_output(&builder, "y");
    const uint8_t *bytes = builder_pack(&builder, &size);
    const int fd = mkstemp(path);
    EXPECT(fd >= 0 && unlink(path) == 0 && write(fd, bytes, size) == (ssize_t)size);
    struct leat_onnx_source source = {.folder_fd = -1};
    EXPECT(leat_mapping_create(fd, "model", &source.mapping) == LEAT_OK);
    source.bytes = leat_mapping_data(source.mapping, &source.byte_count);
    for (int round = 0; round < 2; round++) {
        EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK);
        const struct leat_value *table = leat_node_input(graph, &graph->nodes[0], 0);
        EXPECT(table->data_bytes == sizeof(rows) && memcmp(table->data, rows, sizeof(rows)) == 0);
        leat_graph_destroy(graph);
    }
    EXPECT(source.byte_count == size && memcmp(source.bytes, bytes, size) == 0);
    leat_mapping_release(source.mapping);
    EXPECT(close(fd) == 0);
    builder_fini(&builder);
}

static void
test_mangled_files(void)
{
    struct builder builder;
    size_t size, accepted = 0;

    (void)good_model(&builder);
    const uint8_t *bytes = builder_pack(&builder, &size);
    for (size_t length = 0; length < size; length++) {
        /* A copy of exactly this length, so that the address sanitizer sees a read beyond it. */
        uint8_t *cut = malloc(length + (length == 0));
        struct leat_graph *graph = NULL;
        EXPECT(cut != NULL);
        memcpy(cut, bytes, length);
        const enum leat_status status = leat_onnx_import(cut, length, &graph);
        EXPECT(status != LEAT_OK || leat_graph_check(graph) == LEAT_OK);
        leat_graph_destroy(graph);
        free(cut);
    }
    uint8_t *copy = malloc(size);
    EXPECT(copy != NULL);
    for (size_t i = 0; i < size * 8; i++) {
        struct leat_graph *graph = NULL;
        memcpy(copy, bytes, size);
        copy[i / 8] ^= (uint8_t)(1u << i % 8);
        const enum leat_status status = leat_onnx_import(copy, size, &graph);
        EXPECT(status != LEAT_OK || leat_graph_check(graph) == LEAT_OK);
        accepted += status == LEAT_OK;
        leat_graph_destroy(graph);
    }
    EXPECT(accepted > 0 && accepted < size * 8); /* weight bytes may change, structure may not */
    free(copy);
    builder_fini(&builder);
}

int
main(void)
{
    leat_test_init();
    test_good_model();
    test_operators();
    test_foreign_constants();
    test_names();
    test_nameless_nodes();
    test_declared_types();
    test_declared_dims();
    test_declared_before_sizes();
    test_arity();
    test_attributes();
    test_tensors();
    test_sparse();
    test_readers();
    test_inputs();
    test_constant_decides();
    test_constant_of_types();
    test_constant_mistakes();
    test_constant_of_free_shape();
    test_shapes_that_do_not_fit();
    test_unsorted_nodes();
    test_names_are_cleaned();
    test_deep_nesting();
    test_duplicate_graph();
    test_raw_data();
    test_mapped_file();
    test_mangled_files();
    return 0;
}
