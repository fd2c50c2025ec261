/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A node that calls a function of its file is what the function's body does, wherever the node is, and by the names of
 *          who reads it; a body sees nothing but what it is given; bad functions are errors that say where, in bounded time.
 * Method   Small models, run by every backend, against answers written down here; and one good model broken in one way per case.
 */
#include <string.h>

#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

#define FLOAT ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT
#define INT   ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT

static const struct leat_backend *backends[2];
static size_t backend_count;

/* The only output, of three floats, of models whose inputs are `x`, and a condition where there is one more. */
static void
expect_answer(struct builder *b, const float *x, uint8_t condition, const float *wanted)
{
    struct leat_graph *graph = import_graph(b);

    EXPECT(leat_graph_check(graph) == LEAT_OK);
    EXPECT(graph->output_count == 1 && strcmp(graph->values[graph->outputs[0]].name, "y") == 0);
    for (size_t i = 0; i < backend_count; i++) {
        struct loaded loaded;
        const void *inputs[2] = {x, &condition};
        float y[3];
        void *outputs[1] = {y};
        load(backends[i], graph, &loaded);
        EXPECT(run(&loaded, inputs, outputs) == LEAT_OK);
        for (size_t e = 0; e < 3; e++) {
            if (y[e] != wanted[e]) {
                (void)fprintf(stderr, "element %zu is %g instead of %g\n", e, (double)y[e], (double)wanted[e]);
            }
            EXPECT(y[e] == wanted[e]);
        }
        unload(&loaded);
    }
    leat_graph_destroy(graph);
}

static void
expect_refused(struct builder *b, enum leat_status status, const char *text)
{
    struct leat_graph *graph = NULL;
    const enum leat_status got = builder_import(b, &graph);

    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "status %d, text \"%s\"; wanted %d, \"%s\"\n", (int)got, leat_error_text(), (int)status, text);
    }
    EXPECT(got == status && strstr(leat_error_text(), text) != NULL && graph == NULL);
}

static void
start(struct builder *b)
{
    builder_init(b, 13);
    (void)builder_input(b, "x", ONNX_F32, DIMS(3));
    builder_output(b, "y");
}

/* step(a, b) = relu(a * b), with names that the graph has, too: y = step(step(x, w), w) + x. */
static void
build_steps(struct builder *b, struct builder *body)
{
    static const float w[3] = {1, -2, 3};

    builder_init(body, 13);
    (void)builder_node(body, "Relu", "y", "x"); /* before what it reads, as a graph may have it */
    (void)builder_node(body, "Mul", "a w", "y");
    start(b);
    (void)builder_constant(b, "w", ONNX_F32, w, DIMS(3));
    Onnx__NodeProto *first = builder_call(b, "step", "x w", "once");
    first->name = strcpy(builder_alloc(b, 8), "first");
    (void)builder_call(b, "step", "once w", "twice");
    (void)builder_node(b, "Add", "twice x", "y");
    (void)builder_function(b, "step", "a w", "x", body);
}

static void
test_steps(void)
{
    static const float x[3] = {1, -2, -3}, wanted[3] = {2, -2, -3};
    struct builder b, body;

    build_steps(&b, &body);
    expect_answer(&b, x, 0, wanted);
    struct leat_graph *graph = import_graph(&b);
    EXPECT(graph->node_count == 5);
    EXPECT(strcmp(graph->nodes[0].name, "first/y") == 0 && strcmp(graph->nodes[3].name, "twice/x") == 0);
    EXPECT(strcmp(graph->values[graph->nodes[3].outputs[0]].name, "twice") == 0);
    leat_graph_destroy(graph);
    builder_fini(&body);
    builder_fini(&b);
}

/*
 * scale(a; by, bias = 1) = leaky(a; slope = by) * 2 + bias, where leaky's slope goes to an operator and `bias` to a Constant:
 * given, by default, and neither, where the operator has a default of its own, 0.01.
 */
static void
test_attributes(void)
{
    static const float x[3] = {1, -2, -100}, wanted[3][3] = {{7, 3, -95}, {3, -1, -99}, {3, 0.96f, -1}};

    for (int form = 0; form < 3; form++) {
        struct builder b, leaky, scale;
        builder_init(&leaky, 13);
        builder_reference(&leaky, builder_node(&leaky, "LeakyRelu", "a", "r"), "alpha", FLOAT, "slope");
        builder_init(&scale, 13);
        builder_reference(&scale, builder_call(&scale, "leaky", "a", "l"), "slope", FLOAT, "by");
        builder_reference(&scale, builder_node(&scale, "Constant", "", "bias"), "value_float", FLOAT, "bias");
        (void)builder_node(&scale, "Add", "l l", "twice");
        (void)builder_node(&scale, "Add", "twice bias", "r");
        start(&b);
        Onnx__NodeProto *call = builder_call(&b, "scale", "x", "y");
        if (form < 2) {
            (void)builder_float(&b, call, "by", 0.5f);
        }
        if (form == 0) {
            (void)builder_float(&b, call, "bias", 5);
        }
        builder_attribute(&b, builder_function(&b, "leaky", "a", "r", &leaky), "slope");
        Onnx__FunctionProto *function = builder_function(&b, "scale", "a", "r", &scale);
        builder_attribute(&b, function, "by");
        builder_default(&b, function, "bias", 1);
        expect_answer(&b, x, 0, wanted[form]);
        builder_fini(&leaky);
        builder_fini(&scale);
        builder_fini(&b);
    }
}

/* clip(a, low, high): bounds may be left out, at the end and between, down to a function in the function. */
static void
test_left_out(void)
{
    static const float x[3] = {-5, 0.5f, 5}, low[1] = {-1}, high[1] = {1};
    static const char *const given[4] = {"x low high", "x - high", "x low", "x"};
    static const float wanted[4][3] = {{-1, 0.5f, 1}, {-5, 0.5f, 1}, {-1, 0.5f, 5}, {-5, 0.5f, 5}};

    for (int form = 0; form < 4; form++) {
        struct builder b, inner, outer;
        builder_init(&inner, 13);
        (void)builder_node(&inner, "Clip", "a l h", "r");
        builder_init(&outer, 13);
        (void)builder_call(&outer, "inner", "a low high", "r");
        start(&b);
        (void)builder_constant(&b, "low", ONNX_F32, low, NULL, 0);
        (void)builder_constant(&b, "high", ONNX_F32, high, NULL, 0);
        (void)builder_call(&b, "clip", given[form], "y");
        (void)builder_function(&b, "inner", "a l h", "r", &inner);
        (void)builder_function(&b, "clip", "a low high", "r", &outer);
        expect_answer(&b, x, 0, wanted[form]);
        builder_fini(&inner);
        builder_fini(&outer);
        builder_fini(&b);
    }
}

/* y = c ? choose(x) : x, where choose(a) has an If in it that reads what is around it in the function: -a where a[0] > 0. */
static void
build_branches(struct builder *b, struct builder *inner)
{
    static const float zero[1] = {0};
    static const int64_t at[1] = {0};

    builder_init(&inner[0], 13);
    (void)builder_node(&inner[0], "Neg", "a", "t");
    builder_output(&inner[0], "t");
    builder_init(&inner[1], 13);
    (void)builder_node(&inner[1], "Identity", "a", "t");
    builder_output(&inner[1], "t");
    builder_init(&inner[2], 13); /* the function */
    Onnx__NodeProto *constant = builder_node(&inner[2], "Constant", "", "zero");
    builder_int(&inner[2], constant, "value", 0)->t = builder_tensor(&inner[2], "t", ONNX_F32, zero, DIMS(1));
    constant->attribute[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    constant = builder_node(&inner[2], "Constant", "", "at");
    builder_int(&inner[2], constant, "value", 0)->t = builder_tensor(&inner[2], "t", ONNX_I64, at, DIMS(1));
    constant->attribute[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    (void)builder_node(&inner[2], "Gather", "a at", "first");
    (void)builder_node(&inner[2], "Greater", "first zero", "c");
    Onnx__NodeProto *node = builder_node(&inner[2], "If", "c", "r");
    builder_graph(&inner[2], node, "then_branch", &inner[0]);
    builder_graph(&inner[2], node, "else_branch", &inner[1]);
    builder_init(&inner[3], 13);
    (void)builder_call(&inner[3], "choose", "x", "t");
    builder_output(&inner[3], "t");
    builder_init(&inner[4], 13);
    (void)builder_node(&inner[4], "Identity", "x", "e");
    builder_output(&inner[4], "e");
    start(b);
    (void)builder_input(b, "c", ONNX_BOOL, DIMS(1));
    node = builder_node(b, "If", "c", "y");
    builder_graph(b, node, "then_branch", &inner[3]);
    builder_graph(b, node, "else_branch", &inner[4]);
    (void)builder_function(b, "choose", "a", "r", &inner[2]);
}

static void
test_branches(void)
{
    static const float x[2][3] = {{1, 2, 3}, {-1, 2, 3}}, wanted[2][3] = {{-1, -2, -3}, {-1, 2, 3}};
    struct builder b, inner[5];

    build_branches(&b, inner);
    for (uint8_t c = 0; c < 2; c++) {
        expect_answer(&b, x[0], c, c == 1 ? wanted[0] : x[0]);
        expect_answer(&b, x[1], c, c == 1 ? wanted[1] : x[1]);
    }
    inner[2].nodes[2]->input[0] = (char[]){"x"};
    expect_refused(&b, LEAT_ERR_PROTO, "node 't' (function choose): node 'first' (operator Gather) reads 'x', which nothing defines");
    for (int i = 0; i < 5; i++) {
        builder_fini(&inner[i]);
    }
    builder_fini(&b);
}

/* Outputs that are inputs, or that nobody reads, and a function that has no nodes at all. */
static void
test_outputs(void)
{
    static const float x[3] = {1, -2, 3}, wanted[3] = {1, 4, 9};

    for (int form = 0; form < 2; form++) {
        struct builder b, body;
        builder_init(&body, 13);
        (void)builder_node(&body, "Mul", "a a", "s");
        start(&b);
        (void)builder_call(&b, "split", "x", form == 0 ? "y same" : "- y");
        (void)builder_function(&b, "split", "a", "s a", &body);
        expect_answer(&b, x, 0, form == 0 ? wanted : x);
        body.graph.n_node = 0;
        b.functions[0]->n_node = 0;
        b.functions[0]->output[0] = b.functions[0]->output[1];
        expect_answer(&b, x, 0, x);
        builder_fini(&body);
        builder_fini(&b);
    }
}

/* One name may be of two functions, in other domains or overloads; operators come before functions of the standard domain. */
static void
test_names(void)
{
    static const float x[3] = {1, -2, 3}, negative[3] = {-1, 2, -3}, absolute[3] = {1, 2, 3}, relu[3] = {1, 0, 3};
    struct builder b, one, other;

    builder_init(&one, 13);
    (void)builder_node(&one, "Neg", "a", "r");
    builder_init(&other, 13);
    (void)builder_node(&other, "Abs", "a", "r");
    start(&b);
    Onnx__NodeProto *node = builder_call(&b, "f", "x", "y");
    Onnx__FunctionProto *first = builder_function(&b, "f", "a", "r", &one);
    Onnx__FunctionProto *second = builder_function(&b, "f", "a", "r", &other);
    first->overload = (char[]){"one"};
    second->overload = (char[]){"other"};
    node->overload = first->overload;
    expect_answer(&b, x, 0, negative);
    node->overload = second->overload;
    expect_answer(&b, x, 0, absolute);
    first->overload = second->overload = node->overload = NULL;
    second->domain = (char[]){"ai.onnx"};
    expect_answer(&b, x, 0, negative);
    node->domain = (char[]){""};
    expect_answer(&b, x, 0, absolute);
    node->op_type = first->name = second->name = (char[]){"Relu"};
    expect_answer(&b, x, 0, relu);
    builder_fini(&one);
    builder_fini(&other);
    builder_fini(&b);
}

/* Of another opset than the model's, where operators mean the same. */
static void
test_opsets(void)
{
    static const struct {
        const char *op;
        int64_t model, function;
        bool good;
    } cases[] = {{"Relu", 17, 13, true},  {"Relu", 13, 17, true},   {"Softmax", 17, 13, true}, {"Softmax", 13, 12, false},
                 {"Softmax", 12, 13, false}, {"Relu", 12, 12, true}, {"Relu", 13, 99, false},   {"Relu", 13, -1, false}};

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct builder b, body;
        struct leat_graph *graph = NULL;
        builder_init(&body, cases[c].function);
        (void)builder_node(&body, cases[c].op, "a", "r");
        start(&b);
        b.opset.version = cases[c].model;
        (void)builder_call(&b, "f", "x", "y");
        (void)builder_function(&b, "f", "a", "r", &body);
        const enum leat_status status = builder_import(&b, &graph);
        if (status != (cases[c].good ? LEAT_OK : LEAT_ERR_UNSUPPORTED)) {
            (void)fprintf(stderr, "case %zu: status %d, \"%s\"\n", c, (int)status, leat_error_text());
        }
        EXPECT(status == (cases[c].good ? LEAT_OK : LEAT_ERR_UNSUPPORTED));
        EXPECT(cases[c].good || strstr(leat_error_text(), "of the function that it is in may mean another operator") != NULL);
        leat_graph_destroy(graph);
        builder_fini(&body);
        builder_fini(&b);
    }
}

/* ---- Bad files ------------------------------------------------------------------------------------------------- */

static void
test_refused(void)
{
    for (int form = 0; form < 12; form++) {
        struct builder b, body, branch;
        build_steps(&b, &body);
        Onnx__NodeProto *first = b.nodes[0];
        Onnx__FunctionProto *step = b.functions[0];
        switch (form) {
        case 0:
            body.nodes[1]->input[1] = (char[]){"once"}; /* of the graph around */
            expect_refused(&b, LEAT_ERR_PROTO, "node 'first' (function step): node 'y' (operator Mul) reads 'once', which nothing");
            break;
        case 1:
            step->output[0] = (char[]){"z"};
            expect_refused(&b, LEAT_ERR_PROTO, "node 'first' (function step): output 'z' is never computed");
            break;
        case 2:
            first->n_input = 1;
            expect_refused(&b, LEAT_ERR_PROTO, "node 'first/y' (operator Mul)");
            break;
        case 3:
            step->n_input = 1;
            expect_refused(&b, LEAT_ERR_PROTO, "it has 2 inputs and 1 outputs; the function has 1 and 1");
            break;
        case 4:
            (void)builder_float(&b, first, "alpha", 1);
            expect_refused(&b, LEAT_ERR_PROTO, "node 'first' (function step): the function has no attribute 'alpha'");
            break;
        case 5:
            builder_attribute(&b, step, "alpha");
            (void)builder_int(&b, first, "alpha", 1);
            body.nodes[0]->op_type = (char[]){"LeakyRelu"};
            builder_reference(&body, body.nodes[0], "alpha", FLOAT, "alpha");
            expect_refused(&b, LEAT_ERR_PROTO, "attribute 'alpha' refers to 'alpha', which is given in another type");
            break;
        case 6:
            builder_reference(&b, builder_node(&b, "LeakyRelu", "x", "z"), "alpha", FLOAT, "alpha");
            expect_refused(&b, LEAT_ERR_PROTO, "attribute 'alpha' refers to that of a function, but is in none");
            break;
        case 7:
            builder_attribute(&b, step, "alpha");
            builder_init(&branch, 13);
            builder_graph(&b, first, "alpha", &branch);
            expect_refused(&b, LEAT_ERR_UNSUPPORTED, "attribute 'alpha' of a function is a graph");
            builder_fini(&branch);
            break;
        case 8:
            (void)builder_function(&b, "step", "a", "a", &body);
            expect_refused(&b, LEAT_ERR_PROTO, "function 'step' of domain 'own' is defined twice");
            break;
        case 9:
            body.nodes[0]->op_type = (char[]){"step"};
            body.nodes[0]->domain = (char[]){"own"};
            expect_refused(&b, LEAT_ERR_PROTO, "node 'first/x' (function step): the function calls itself");
            break;
        case 10:
            body.nodes[0]->op_type = (char[]){"Foo"};
            expect_refused(&b, LEAT_ERR_UNSUPPORTED, "node 'first/x' (operator Foo, domain '') is not supported");
            break;
        default:
            step->input[1] = step->input[0];
            expect_refused(&b, LEAT_ERR_PROTO, "value 'a' is defined twice");
            break;
        }
        builder_fini(&body);
        builder_fini(&b);
    }
}

/* f0 calls f1 `times` times, that f2 and so on, and the last computes. */
static void
build_chain(struct builder *b, struct builder *bodies, int length, int times)
{
    char name[8], next[8];

    start(b);
    (void)builder_call(b, "f0", "x", "y");
    for (int f = 0; f < length; f++) {
        builder_init(&bodies[f], 13);
        (void)snprintf(name, sizeof(name), "f%d", f);
        (void)snprintf(next, sizeof(next), "f%d", f + 1);
        for (int t = 0; t < times - 1 && f < length - 1; t++) {
            (void)builder_call(&bodies[f], next, "a", t == 0 ? "s" : "t");
        }
        if (f < length - 1) {
            (void)builder_call(&bodies[f], next, "a", "r");
        } else {
            (void)builder_node(&bodies[f], "Neg", "a", "r");
        }
        (void)builder_function(b, name, "a", "r", &bodies[f]);
    }
}

static void
test_bounds(void)
{
    static const float x[3] = {1, 2, 3}, wanted[3] = {-1, -2, -3};
    static struct builder b, bodies[33];

    for (int length = 32; length < 34; length++) {
        build_chain(&b, bodies, length, 1);
        if (length == 32) {
            expect_answer(&b, x, 0, wanted);
        } else {
            expect_refused(&b, LEAT_ERR_LIMIT, "there are more than 32 calls in each other");
        }
        for (int f = 0; f < length; f++) {
            builder_fini(&bodies[f]);
        }
        builder_fini(&b);
    }
    for (int form = 0; form < 2; form++) { /* two million calls of a function with a node, and with none */
        build_chain(&b, bodies, 22, 2);
        for (int f = 0; f < 22 && form == 1; f++) {
            b.functions[f]->output[0] = b.functions[f]->input[0];
            for (size_t n = 0; n < b.functions[f]->n_node; n++) {
                b.functions[f]->node[n]->output[0][0] = '\0';
            }
        }
        b.functions[21]->n_node = form == 0;
        expect_refused(&b, LEAT_ERR_LIMIT, form == 0 ? "has more than 65536 nodes" : "nodes of functions have more than");
        for (int f = 0; f < 22; f++) {
            builder_fini(&bodies[f]);
        }
        builder_fini(&b);
    }
}

/* A thousand calls of a function in which is a graph with thousands of outputs, each of which is looked up, that never runs. */
static void
test_bound_of_graphs(void)
{
    enum { LENGTH = 11, YIELDED = 4000 };
    static struct builder b, bodies[LENGTH], branches[2];
    static Onnx__ValueInfoProto *outputs[YIELDED];
    static const uint8_t no = 0;

    build_chain(&b, bodies, LENGTH, 2);
    struct builder *last = &bodies[LENGTH - 1];
    for (int i = 0; i < 2; i++) {
        builder_init(&branches[i], 13);
        (void)builder_node(&branches[i], "Neg", "a", "t");
        builder_output(&branches[i], "t");
    }
    for (int o = 0; o < YIELDED; o++) {
        outputs[o] = branches[0].outputs[0];
    }
    branches[0].graph.output = outputs;
    branches[0].graph.n_output = YIELDED;
    last->graph.n_node = 0;
    Onnx__NodeProto *constant = builder_node(last, "Constant", "", "c");
    builder_int(last, constant, "value", 0)->t = builder_tensor(last, "t", ONNX_BOOL, &no, NULL, 0);
    constant->attribute[0]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    Onnx__NodeProto *node = builder_node(last, "If", "c", "r");
    builder_graph(last, node, "then_branch", &branches[0]);
    builder_graph(last, node, "else_branch", &branches[1]);
    b.functions[LENGTH - 1]->n_node = 2;
    expect_refused(&b, LEAT_ERR_LIMIT,
                   "nodes of functions have more than 2097152 inputs, outputs, attributes and initialisers in all calls");
    for (int f = 0; f < LENGTH; f++) {
        builder_fini(&bodies[f]);
    }
    builder_fini(&branches[0]);
    builder_fini(&branches[1]);
    builder_fini(&b);
}

static bool
has_value(const struct leat_graph *graph, const char *name)
{
    bool has = false;

    for (uint32_t v = 0; v < graph->value_count && !has; v++) {
        has = strcmp(graph->values[v].name, name) == 0;
    }
    return has;
}

/* Values in a body have names of their own in each call, in calls in it, too: what is measured of them goes by names. */
static void
test_value_names(void)
{
    static const char *const wanted[] = {"first/h", "first/k", "first/b/m", "second/h", "second/k", "second/b/m", "between", "y"};
    struct builder b, inner, outer;

    builder_init(&inner, 13);
    (void)builder_node(&inner, "Neg", "a", "m");
    (void)builder_node(&inner, "Neg", "m", "r");
    builder_init(&outer, 13);
    (void)builder_float(&outer, builder_node(&outer, "Constant", "", "k"), "value_float", 2);
    builder_call(&outer, "inner", "a", "h")->name = (char[]){"b"};
    (void)builder_node(&outer, "Mul", "h k", "r");
    start(&b);
    builder_call(&b, "outer", "x", "between")->name = (char[]){"first"};
    builder_call(&b, "outer", "between", "y")->name = (char[]){"second"};
    (void)builder_function(&b, "inner", "a", "r", &inner);
    (void)builder_function(&b, "outer", "a", "r", &outer);
    expect_answer(&b, (const float[]){1, -2, 3}, 0, (const float[]){4, -8, 12});
    struct leat_graph *graph = import_graph(&b);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (!has_value(graph, wanted[i])) {
            (void)fprintf(stderr, "no value is called '%s'\n", wanted[i]);
        }
        EXPECT(has_value(graph, wanted[i]));
    }
    leat_graph_destroy(graph);
    builder_fini(&inner);
    builder_fini(&outer);
    builder_fini(&b);
}

/* However long a name in a body is, each call has its first bytes alone, and no part of a character. */
static void
test_long_names(void)
{
    enum { BYTES = 1 << 20 };
    struct builder b, body;

    build_steps(&b, &body);
    char *name = builder_alloc(&body, BYTES);
    for (int i = 0; i < BYTES / 2; i++) {
        (void)memcpy(name + (size_t)2 * (size_t)i, "\xc3\xa4", 2);
    }
    body.nodes[0]->name = name;
    struct leat_graph *graph = import_graph(&b);
    const char *first = graph->nodes[1].name, *second = graph->nodes[3].name; /* "first/" and "twice/" have six bytes */
    EXPECT(strlen(first) == 512 && memcmp(first, "first/", 6) == 0 && memcmp(first + 6, name, 506) == 0);
    EXPECT(strlen(second) == 512 && memcmp(second, "twice/", 6) == 0);
    leat_graph_destroy(graph);
    name[0] = 'a';
    name[1] = 'b';
    (void)memmove(name + 1, name + 2, BYTES - 2); /* characters begin at odd places */
    graph = import_graph(&b);
    EXPECT(strlen(graph->nodes[1].name) == 511 && memcmp(graph->nodes[1].name + 6, name, 505) == 0);
    leat_graph_destroy(graph);
    builder_fini(&body);
    builder_fini(&b);
}

/* As many graphs in each other as a file without functions can have, with a call in each, and one more. */
static void
test_depth(void)
{
    static struct builder b, bodies[8], branches[8];
    static const float x[3] = {1, 2, 3}, wanted[3] = {-1, -2, -3};
    char name[8], next[8];

    for (int depth = 7; depth < 9; depth++) {
        start(&b);
        (void)builder_input(&b, "c", ONNX_BOOL, DIMS(1));
        (void)builder_call(&b, "f0", "x c", "y");
        for (int f = 0; f < depth; f++) {
            (void)snprintf(name, sizeof(name), "f%d", f);
            (void)snprintf(next, sizeof(next), "f%d", f + 1);
            builder_init(&branches[f], 13);
            if (f < depth - 1) {
                (void)builder_call(&branches[f], next, "a c", "t");
            } else {
                (void)builder_node(&branches[f], "Neg", "a", "t");
            }
            builder_output(&branches[f], "t");
            builder_init(&bodies[f], 13);
            Onnx__NodeProto *node = builder_node(&bodies[f], "If", "c", "r");
            builder_graph(&bodies[f], node, "then_branch", &branches[f]);
            builder_graph(&bodies[f], node, "else_branch", &branches[f]);
            (void)builder_function(&b, name, "a c", "r", &bodies[f]);
        }
        if (depth == 7) {
            expect_answer(&b, x, 1, wanted);
        } else {
            expect_refused(&b, LEAT_ERR_LIMIT, "there are more than 7 graphs in each other");
        }
        for (int f = 0; f < depth; f++) {
            builder_fini(&bodies[f]);
            builder_fini(&branches[f]);
        }
        builder_fini(&b);
    }
}

int
main(void)
{
    leat_test_init();
    backends[backend_count++] = &leat_backend_reference;
    if (leat_backend_find("cpu") != NULL) {
        backends[backend_count++] = leat_backend_find("cpu");
    }
    test_steps();
    test_attributes();
    test_left_out();
    test_branches();
    test_outputs();
    test_names();
    test_opsets();
    test_refused();
    test_bounds();
    test_bound_of_graphs();
    test_value_names();
    test_long_names();
    test_depth();
    return 0;
}
