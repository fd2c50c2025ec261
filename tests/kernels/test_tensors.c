/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Operators of sequences do with lists of tensors what the standard says, whatever form they have, and leave no node of
 *          their own; sequences of which a run alone knows how many tensors they have are errors that say so.
 * Method   Small models, run by every backend, against answers written down here (those of ONNX's node tests of SplitToSequence
 *          among them); and models that are wrong in one way each.
 */
#include <stdio.h>
#include <string.h>

#include "tests/kernels/one_batch.h"
#include "tests/leat_test.h"

enum { ROWS = 3, COLUMNS = 6, NUMBERS = ROWS * COLUMNS, OUTPUTS_MAX = 8 };

static const struct leat_backend *backends[2];
static size_t backend_count;

/* x[3][6] has 0, 1, .. 17. */
static void
start(struct builder *b, int64_t opset)
{
    builder_init(b, opset);
    (void)builder_input(b, "x", ONNX_F32, DIMS(ROWS, COLUMNS));
}

/* Output o has the name and the `columns` columns (rows where `by_rows`) from `first` on, and the rank, 1 without the axis. */
struct part {
    const char *name;
    int64_t first, size;
    uint32_t rank;
};

static float
element_of(const struct part *part, bool by_rows, size_t i)
{
    const size_t row = by_rows ? (size_t)part->first + i / COLUMNS : i / (size_t)part->size;
    const size_t column = by_rows ? i % COLUMNS : (size_t)part->first + i % (size_t)part->size;
    return (float)(row * COLUMNS + column);
}

static void
expect_parts(struct builder *b, bool by_rows, const struct part *parts, size_t count)
{
    struct leat_graph *graph = import_graph(b);

    EXPECT(leat_graph_check(graph) == LEAT_OK && graph->output_count == count && count <= OUTPUTS_MAX);
    for (size_t o = 0; o < count; o++) {
        const struct leat_value *value = &graph->values[graph->outputs[o]];
        EXPECT(strcmp(value->name, parts[o].name) == 0 && value->rank == parts[o].rank);
        EXPECT(leat_value_elements(value) == (size_t)(parts[o].size * (by_rows ? COLUMNS : ROWS)));
    }
    for (size_t i = 0; i < backend_count; i++) {
        struct loaded loaded;
        float x[NUMBERS], y[OUTPUTS_MAX][NUMBERS];
        void *outputs[OUTPUTS_MAX];
        for (size_t e = 0; e < NUMBERS; e++) {
            x[e] = (float)e;
        }
        for (size_t o = 0; o < count; o++) {
            outputs[o] = y[o];
        }
        load(backends[i], graph, &loaded);
        EXPECT(run(&loaded, (const void *const[]){x}, outputs) == LEAT_OK);
        for (size_t o = 0; o < count; o++) {
            for (size_t e = 0; e < (size_t)(parts[o].size * (by_rows ? COLUMNS : ROWS)); e++) {
                EXPECT(y[o][e] == element_of(&parts[o], by_rows, e));
            }
        }
        unload(&loaded);
    }
    leat_graph_destroy(graph);
}

/* ONNX's node tests of SplitToSequence, and the forms that they have not; the sequence is the model's output. */
static void
test_split(void)
{
    static const int64_t two = 2, four = 4, one_two[2] = {1, 2}, some[4] = {3, 0, 2, 1};
    static const int32_t two_of_i32 = 2;
    static const struct part pairs[] = {{"s.0", 0, 2, 2}, {"s.1", 2, 2, 2}, {"s.2", 4, 2, 2}};
    static const struct part uneven[] = {{"s.0", 0, 4, 2}, {"s.1", 4, 2, 2}};
    static const struct part rows[] = {{"s.0", 0, 1, 2}, {"s.1", 1, 2, 2}};
    static const struct part listed[] = {{"s.0", 0, 3, 2}, {"s.1", 3, 2, 2}, {"s.2", 5, 1, 2}};
    struct part each[COLUMNS], dropped[COLUMNS];
    char names[COLUMNS][8];

    for (uint32_t i = 0; i < COLUMNS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "s.%u", i);
        each[i] = (struct part){names[i], i, 1, 2};
        dropped[i] = (struct part){names[i], i, 1, 1};
    }
    for (int64_t opset = 11; opset <= LEAT_OPSET_MAX; opset++) {
        for (int form = 0; form < 8; form++) {
            struct builder b;
            start(&b, opset);
            (void)builder_constant(&b, "two", ONNX_I64, &two, NULL, 0);
            (void)builder_constant(&b, "two-of-i32", ONNX_I32, &two_of_i32, NULL, 0);
            (void)builder_constant(&b, "four", ONNX_I64, &four, NULL, 0);
            (void)builder_constant(&b, "list", ONNX_I64, one_two, DIMS(2));
            Onnx__NodeProto *node = builder_node(&b, "SplitToSequence",
                                                 form == 0   ? "x two"
                                                 : form == 1 ? "x two-of-i32"
                                                 : form == 2 ? "x four"
                                                 : form == 3 ? "x list"
                                                 : form == 7 ? "x -"
                                                             : "x",
                                                 "s");
            if (form != 3) {
                (void)builder_int(&b, node, "axis", form % 2 == 0 ? 1 : -1);
            }
            if (form > 4 || form == 1) { /* which parts of given sizes have anyway */
                (void)builder_int(&b, node, "keepdims", 0);
            }
            builder_output(&b, "s");
            switch (form) {
            case 0:
            case 1:
                expect_parts(&b, false, pairs, 3);
                break;
            case 2:
                expect_parts(&b, false, uneven, 2);
                break;
            case 3:
                expect_parts(&b, true, rows, 2);
                break;
            case 4:
                expect_parts(&b, false, each, COLUMNS);
                break;
            default:
                expect_parts(&b, false, dropped, COLUMNS);
            }
            builder_fini(&b);
        }
    }

    struct builder b; /* a part of nothing, and a list that nodes make of shapes */
    static const int64_t last = 1;
    start(&b, 13);
    (void)builder_constant(&b, "list", ONNX_I64, some, DIMS(4));
    (void)builder_node(&b, "Abs", "list", "sizes");
    (void)builder_constant(&b, "last", ONNX_I64, &last, DIMS(1));
    (void)builder_int(&b, builder_node(&b, "SplitToSequence", "x sizes", "t"), "axis", 1);
    (void)builder_node(&b, "SequenceErase", "t last", "s");
    builder_output(&b, "s");
    expect_parts(&b, false, listed, 3);
    builder_fini(&b);
}

/* Columns 2 and 5, 0 and 3: made, put in, taken out, counted and found again, from either end. */
static void
build_lists(struct builder *b, int64_t opset)
{
    static const int64_t places[] = {0, 1, 2, 3, -1, -2, -6, 5};
    static const char *const names[] = {"0", "1", "2", "3", "-1", "-2", "-6", "5"};

    start(b, opset);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)builder_constant(b, names[i], ONNX_I64, &places[i], NULL, 0);
    }
    (void)builder_int(b, builder_node(b, "SplitToSequence", "x", "all"), "axis", 1);
    (void)builder_node(b, "SequenceAt", "all 2", "second");
    (void)builder_node(b, "SequenceAt", "all -1", "fifth");
    (void)builder_node(b, "SequenceAt", "all -6", "zeroth");
    (void)builder_node(b, "SequenceAt", "all 3", "third");
    (void)builder_node(b, "SequenceEmpty", "", "none");
    (void)builder_node(b, "SequenceInsert", "none third", "one");     /* 3 */
    (void)builder_node(b, "SequenceInsert", "one second 0", "two");   /* 2 3 */
    (void)builder_node(b, "SequenceInsert", "two zeroth -1", "three"); /* 2 0 3 */
    (void)builder_node(b, "SequenceInsert", "three fifth 3", "four"); /* 2 0 3 5 */
    (void)builder_node(b, "SequenceErase", "four 2", "more");         /* 2 0 5 */
    (void)builder_node(b, "SequenceErase", "more", "less");           /* 2 0 */
    (void)builder_node(b, "SequenceConstruct", "fifth third", "pair"); /* 5 3 */
}

static void
test_lists(void)
{
    static const struct part less[] = {{"less.0", 2, 1, 2}, {"less.1", 0, 1, 2}, {"pair.0", 5, 1, 2}, {"pair.1", 3, 1, 2}};
    static const struct part more[] = {{"more.0", 2, 1, 2}, {"more.1", 0, 1, 2}, {"more.2", 5, 1, 2}};
    struct builder b;

    build_lists(&b, 13);
    builder_output(&b, "less");
    builder_output(&b, "pair");
    expect_parts(&b, false, less, 4);
    struct leat_graph *graph = import_graph(&b);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        EXPECT(strstr(graph->nodes[n].op->name, "Sequence") == NULL);
    }
    leat_graph_destroy(graph);
    builder_fini(&b);
    build_lists(&b, 13);
    builder_output(&b, "more");
    expect_parts(&b, false, more, 3);
    builder_fini(&b);
}

/* All parts together are what was split, whether they have an axis of their own or get one; and how many they are is a number. */
static void
test_joined(void)
{
    static const struct part whole[] = {{"y", 0, COLUMNS, 2}};

    for (int64_t opset = 11; opset <= LEAT_OPSET_MAX; opset += opset == 11 ? 1 : 3) {
        for (int form = 0; form < 4; form++) {
            struct builder b;
            start(&b, opset);
            Onnx__NodeProto *split = builder_node(&b, "SplitToSequence", "x", "s");
            (void)builder_int(&b, split, "axis", 1);
            (void)builder_int(&b, split, "keepdims", form < 2);
            Onnx__NodeProto *join = builder_node(&b, "ConcatFromSequence", "s", form == 3 ? "z" : "y");
            (void)builder_int(&b, join, "axis", form % 2 == 0 ? 1 : -1);
            (void)builder_int(&b, join, "new_axis", form >= 2);
            if (form == 3) { /* [3][6] times the number of parts, by it */
                (void)builder_node(&b, "SequenceLength", "s", "count");
                (void)builder_int(&b, builder_node(&b, "Cast", "count", "n"), "to", ONNX_F32);
                (void)builder_node(&b, "Mul", "z n", "t");
                (void)builder_node(&b, "Div", "t n", "y");
            }
            builder_output(&b, "y");
            expect_parts(&b, false, whole, 1);
            builder_fini(&b);
        }
    }
}

/* The branch that runs splits columns, of which the branch does not know how many there are, and joins them again. */
static void
build_branches(struct builder *b, struct builder *then_branch, struct builder *else_branch, int64_t opset, const int64_t *columns)
{
    static const uint8_t yes = 1;

    builder_init(then_branch, opset);
    (void)builder_constant(then_branch, "n", ONNX_I64, columns, DIMS(2));
    (void)builder_int(then_branch, builder_node(then_branch, "SplitToSequence", "x n", "s"), "axis", 1);
    (void)builder_int(then_branch, builder_node(then_branch, "ConcatFromSequence", "s", "r"), "axis", 1);
    builder_output(then_branch, "r");
    builder_init(else_branch, opset);
    (void)builder_node(else_branch, "Neg", "x", "r");
    builder_output(else_branch, "r");
    start(b, opset);
    (void)builder_constant(b, "c", ONNX_BOOL, &yes, NULL, 0);
    Onnx__NodeProto *node = builder_node(b, "If", "c", "y");
    builder_graph(b, node, "then_branch", then_branch);
    builder_graph(b, node, "else_branch", else_branch);
}

/* In functions, which may return one, and in branches. */
static void
test_inside(void)
{
    struct builder then_branch, else_branch;
    static const struct part parts[] = {{"s.0", 0, 1, 2}, {"s.1", 1, 2, 2}}, whole[] = {{"y", 0, COLUMNS, 2}};
    static const int64_t sizes[] = {1, 2}, columns[] = {2, 4};
    struct builder b, body;

    builder_init(&body, 13);
    (void)builder_node(&body, "SplitToSequence", "a n", "r");
    start(&b, 13);
    (void)builder_constant(&b, "n", ONNX_I64, sizes, DIMS(2));
    (void)builder_function(&b, "cut", "a n", "r", &body);
    (void)builder_call(&b, "cut", "x n", "s");
    builder_output(&b, "s");
    expect_parts(&b, true, parts, 2);
    builder_fini(&b);
    builder_fini(&body);

    for (int64_t opset = 11; opset <= 13; opset += 2) {
        build_branches(&b, &then_branch, &else_branch, opset, columns);
        builder_output(&b, "y");
        expect_parts(&b, false, whole, 1);
        builder_fini(&b);
        builder_fini(&then_branch);
        builder_fini(&else_branch);
    }
}

static void
expect_refused(struct builder *b, const char *output, enum leat_status status, const char *text)
{
    struct leat_graph *graph = NULL;

    builder_output(b, output);
    const enum leat_status got = builder_import(b, &graph);
    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "status %d, text \"%s\"; wanted %d, \"%s\"\n", (int)got, leat_error_text(), (int)status, text);
    }
    EXPECT(got == status && strstr(leat_error_text(), text) != NULL && graph == NULL);
    builder_fini(b);
}

static void
test_refused(void)
{
    static const int64_t numbers[] = {0, -1, 6, 4, 3};
    static const float half = 0.5f;
    struct builder b;

    for (int form = 0; form < 13; form++) {
        start(&b, 13);
        (void)builder_input(&b, "free", ONNX_F32, DIMS(-1, COLUMNS));
        (void)builder_input(&b, "n", ONNX_I64, NULL, 0);
        (void)builder_constant(&b, "0", ONNX_I64, &numbers[0], NULL, 0);
        (void)builder_constant(&b, "-1", ONNX_I64, &numbers[1], NULL, 0);
        (void)builder_constant(&b, "6", ONNX_I64, &numbers[2], NULL, 0);
        (void)builder_constant(&b, "short", ONNX_I64, numbers + 3, DIMS(1));
        (void)builder_constant(&b, "below", ONNX_I64, numbers + 1, DIMS(3));
        (void)builder_constant(&b, "half", ONNX_F32, &half, NULL, 0);
        Onnx__NodeProto *all = form > 0 ? builder_node(&b, "SplitToSequence", "x", "all") : NULL;
        if (all != NULL) {
            (void)builder_int(&b, all, "axis", 1);
        }
        switch (form) {
        case 0:
            (void)builder_node(&b, "SplitToSequence", "free", "s");
            expect_refused(&b, "s", LEAT_ERR_UNSUPPORTED, "dimension 0 of 'free' is free: it says how many tensors there are");
            break;
        case 1:
            (void)builder_node(&b, "SplitToSequence", "x n", "s");
            expect_refused(&b, "s", LEAT_ERR_UNSUPPORTED, "'n' is not constant: it says how many tensors there are, or which");
            break;
        case 2:
            (void)builder_node(&b, "SplitToSequence", "x 0", "s");
            expect_refused(&b, "s", LEAT_ERR_SHAPE, "parts of 0 elements");
            break;
        case 3:
            (void)builder_node(&b, "SplitToSequence", "x short", "s");
            expect_refused(&b, "s", LEAT_ERR_SHAPE, "parts of 4 elements in all of 3");
            break;
        case 4:
            (void)builder_node(&b, "SplitToSequence", "x below", "s");
            expect_refused(&b, "s", LEAT_ERR_SHAPE, "a part of -1 elements");
            break;
        case 5:
            (void)builder_node(&b, "SplitToSequence", "x half", "s");
            expect_refused(&b, "s", LEAT_ERR_SHAPE, "'half' is no whole number");
            break;
        case 6:
            (void)builder_int(&b, builder_node(&b, "SplitToSequence", "x", "s"), "axis", 2);
            expect_refused(&b, "s", LEAT_ERR_SHAPE, "axis 2 of a tensor of rank 2");
            break;
        case 7:
            (void)builder_node(&b, "SequenceAt", "all 6", "y");
            expect_refused(&b, "y", LEAT_ERR_SHAPE, "there is no place 6 in a sequence of 6");
            break;
        case 8:
            (void)builder_node(&b, "SequenceAt", "all short", "y");
            (void)builder_node(&b, "SequenceAt", "all n", "z");
            expect_refused(&b, "z", LEAT_ERR_UNSUPPORTED, "'n' is not constant");
            break;
        case 9:
            (void)builder_node(&b, "Relu", "all", "y");
            expect_refused(&b, "y", LEAT_ERR_UNSUPPORTED, "'all' is a sequence, which operators of sequences alone can read");
            break;
        case 10:
            (void)builder_node(&b, "SequenceLength", "x", "y");
            expect_refused(&b, "y", LEAT_ERR_UNSUPPORTED, "'x' is no sequence");
            break;
        case 11:
            (void)builder_node(&b, "ConcatFromSequence", "all", "y");
            expect_refused(&b, "y", LEAT_ERR_PROTO, "attribute 'axis' is missing");
            break;
        default:
            (void)builder_node(&b, "SequenceEmpty", "", "none");
            (void)builder_int(&b, builder_node(&b, "ConcatFromSequence", "none", "y"), "axis", 0);
            expect_refused(&b, "y", LEAT_ERR_SHAPE, "there is nothing in the sequence");
        }
    }
    struct builder then_branch, else_branch;
    build_branches(&b, &then_branch, &else_branch, 13, numbers + 3); /* 4 and 3 columns of 6 */
    expect_refused(&b, "y", LEAT_ERR_SHAPE, "(operator Split)");
    builder_fini(&then_branch);
    builder_fini(&else_branch);
    builder_init(&b, 10); /* there are none in this opset */
    (void)builder_input(&b, "x", ONNX_F32, DIMS(ROWS, COLUMNS));
    (void)builder_node(&b, "SplitToSequence", "x", "s");
    expect_refused(&b, "s", LEAT_ERR_UNSUPPORTED, "(operator SplitToSequence, domain '') is not supported");
}

/* All values of a graph that come of sequences have names of their own, whatever the file calls its tensors. */
static void
test_names(void)
{
    static const int64_t three = 3;

    for (int in_function = 0; in_function < 2; in_function++) {
        struct builder b, body;
        struct builder *const of = in_function ? &body : &b;
        start(&b, 17);
        builder_init(&body, 17);
        (void)builder_constant(&b, "three", ONNX_I64, &three, NULL, 0);
        (void)builder_node(of, "SplitToSequence", "x three", "s");
        (void)builder_node(of, "Relu", "x", "s.0");
        (void)builder_node(of, "Neg", "x", "s.0#0");
        (void)builder_node(of, "Neg", "s.0", "s.1#1");
        (void)builder_node(of, "SequenceConstruct", "s.0 x", "s.1");
        if (in_function) {
            (void)builder_node(of, "ConcatFromSequence", "s", "t");
            (void)builder_int(of, body.nodes[body.graph.n_node - 1], "axis", 1);
            (void)builder_function(&b, "F", "x three", "t s.1#1", &body);
            (void)builder_call(&b, "F", "x three", "t u");
            builder_output(&b, "t");
            builder_output(&b, "u");
        } else {
            builder_output(&b, "s");
            builder_output(&b, "s.0");
            builder_output(&b, "s.0#0");
            builder_output(&b, "s.1");
            builder_output(&b, "s.1#1");
        }
        struct leat_graph *graph = import_graph(&b);
        for (uint32_t o = 0; o < graph->output_count; o++) {
            for (uint32_t p = 0; p < o; p++) {
                EXPECT(strcmp(graph->values[graph->outputs[o]].name, graph->values[graph->outputs[p]].name) != 0);
            }
        }
        for (uint32_t v = 0; v < graph->value_count; v++) { /* but for what nodes of the importer read: constants */
            for (uint32_t w = 0; w < v && graph->values[v].data == NULL; w++) {
                EXPECT(graph->values[w].data != NULL || strcmp(graph->values[v].name, graph->values[w].name) != 0);
            }
        }
        leat_graph_destroy(graph);
        builder_fini(&b);
        builder_fini(&body);
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
    test_split();
    test_lists();
    test_joined();
    test_inside();
    test_refused();
    test_names();
    return 0;
}
