/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/coverage.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/op.h"
#include "tests/leat_test.h"

enum { OPERATORS_MAX = 512, NAME_MAX_BYTES = 64, NUMBERS_MAX = 4 };

/* Why cases that pass do not run with every input live, or not as the batches that they look like. */
enum { WHY_CONSTANTS, WHY_MEET, WHY_REASON, WHYS = WHY_REASON + SERVED_REASONS };

/* What became of the cases that have a node of one operator. */
struct operator_cases {
    char name[NAME_MAX_BYTES];
    unsigned outcomes[COVERAGE_OUTCOMES];
    uint32_t types; /* of first inputs, in those that pass */
    unsigned with_numbers[LEAT_DTYPE_MAX + 1]; /* of each type */
};

static struct {
    struct operator_cases operators[OPERATORS_MAX];
    size_t operator_count;
    unsigned outcomes[COVERAGE_OUTCOMES], inference_covered, inference_cases;
    unsigned doubles, served[SERVED_MANNERS], whys[OPERATORS_MAX][WHYS];
    unsigned
        blamed[OPERATORS_MAX]
              [COVERAGE_OUTCOMES]; /* cases of inference that do not run, by their first operator */
} counts;

const char *
coverage_text(enum coverage outcome)
{
    static const char *const texts[COVERAGE_OUTCOMES] = {
        [COVERAGE_PASSED] = "runs, with the recorded result",
        [COVERAGE_OPERATOR] = "operator not in the table",
        [COVERAGE_OPSET] = "operator or graph of another opset",
        [COVERAGE_TYPE] = "element type or kind of value not supported",
        [COVERAGE_TRAINING] = "training mode",
        [COVERAGE_FORM] = "form of the operator not supported",
        [COVERAGE_CONTENTS] = "a shape depends on tensor contents",
        [COVERAGE_RECORDED] = "bf16 output recorded as u16, and truncated instead of rounded",
        [COVERAGE_FAILED] = "wrong result",
    };
    return texts[outcome];
}

static size_t
find(const char *name)
{
    size_t i = 0;
    while (i < counts.operator_count && strcmp(counts.operators[i].name, name) != 0) {
        i++;
    }
    if (i == counts.operator_count) {
        EXPECT(i < OPERATORS_MAX && strlen(name) < NAME_MAX_BYTES);
        (void)strcpy(counts.operators[i].name, name);
        counts.operator_count++;
    }
    return i;
}

static bool
is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool
concerns_inference(const Onnx__ModelProto *model, const char *name)
{
    static const char *const others[] = {
        "Bernoulli",     "NegativeLogLikelihoodLoss", "RandomNormal", "RandomNormalLike",
        "RandomUniform", "RandomUniformLike",         "Multinomial",  "SoftmaxCrossEntropyLoss"};

    if (strstr(name, "training") != NULL || strncmp(name, "test_nllloss", 12) == 0 ||
        strncmp(name, "test_sce", 8) == 0) {
        return false;
    }
    for (size_t n = 0; n < model->graph->n_node; n++) {
        const Onnx__NodeProto *node = model->graph->node[n];
        if (is_one_of(node->op_type, others, LEAT_COUNT_OF(others)) ||
            (node->domain != NULL && strstr(node->domain, "training") != NULL)) {
            return false;
        }
    }
    return true;
}

/* The first operator that the table does not have, in the graph or in one inside its nodes; else NULL. */
static const char *
first_unknown(const Onnx__GraphProto *graph)
{
    const char *unknown = NULL;
    uint32_t oldest, newest;

    for (size_t n = 0; n < graph->n_node && unknown == NULL; n++) {
        const Onnx__NodeProto *node = graph->node[n];
        unknown = leat_op_known(node->op_type, &oldest, &newest) ? NULL : node->op_type;
        for (size_t a = 0; a < node->n_attribute && unknown == NULL; a++) {
            unknown = node->attribute[a]->g != NULL ? first_unknown(node->attribute[a]->g) : NULL;
        }
    }
    return unknown;
}

/* The operator that a case which does not run is counted under: where the table has them all, the first one. */
static size_t
blame(const Onnx__ModelProto *model)
{
    const char *unknown = first_unknown(model->graph);
    return find(unknown != NULL ? unknown : model->graph->n_node > 0 ? model->graph->node[0]->op_type : "");
}

static void
add_served(const Onnx__ModelProto *model, const struct served *served)
{
    unsigned *whys = counts.whys[blame(model)];

    counts.served[served->one]++;
    counts.served[SERVED_BATCH] += served->apart;
    whys[WHY_CONSTANTS] += served->one == SERVED_CONSTANTS;
    whys[WHY_REASON + served->reason] += served->one == SERVED_NEITHER;
    whys[WHY_MEET] += served->batch && !served->apart;
}

static void
add_types(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        const struct leat_value *first = leat_node_input(graph, node, 0);
        if (first != NULL) {
            counts.operators[find(node->op->name)].types |= 1u << first->dtype;
        }
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            if (node->attributes[a].kind == LEAT_ATTRIBUTE_GRAPH) {
                add_types(node->attributes[a].graph);
            }
        }
    }
}

void
coverage_add(const Onnx__ModelProto *model, const char *suite, const char *name,
             enum coverage outcome, const struct leat_graph *imported, const struct served *served)
{
    const Onnx__GraphProto *graph = model->graph;
    const bool counts_in = strcmp(suite, "node") == 0 && concerns_inference(model, name);

    counts.outcomes[outcome]++;
    for (size_t n = 0; n < graph->n_node; n++) {
        bool again = false;
        for (size_t k = 0; k < n; k++) {
            again = again || strcmp(graph->node[k]->op_type, graph->node[n]->op_type) == 0;
        }
        if (!again) {
            counts.operators[find(graph->node[n]->op_type)].outcomes[outcome]++;
        }
    }
    if (outcome == COVERAGE_PASSED) {
        add_types(imported);
        add_served(model, served);
    }
    counts.inference_cases += counts_in;
    counts.inference_covered += counts_in && outcome == COVERAGE_PASSED;
    if (counts_in && outcome != COVERAGE_PASSED) {
        counts.blamed[blame(model)][outcome]++;
    }
}

unsigned
coverage_count(enum coverage outcome)
{
    return counts.outcomes[outcome];
}

void
coverage_add_doubles(const struct leat_graph *graph)
{
    add_types(graph);
    counts.doubles++;
}

bool
coverage_wants(const struct leat_node *node, uint32_t dtype)
{
    return (node->op->types >> dtype & 1u) != 0 && counts.operators[find(node->op->name)].with_numbers[dtype] < NUMBERS_MAX;
}

void
coverage_add_numbers(const struct leat_graph *graph, uint32_t dtype)
{
    add_types(graph);
    counts.operators[find(graph->nodes[0].op->name)].with_numbers[dtype]++;
}

unsigned
coverage_doubles(void)
{
    return counts.doubles;
}

unsigned
coverage_served(enum served_manner manner)
{
    return counts.served[manner];
}

void
coverage_share(unsigned *ret_covered, unsigned *ret_cases)
{
    *ret_covered = counts.inference_covered;
    *ret_cases = counts.inference_cases;
}

bool
coverage_reached(const char *op)
{
    return counts.operators[find(op)].outcomes[COVERAGE_PASSED] > 0;
}

/* ---- The page ------------------------------------------------------------------------------------------------- */

/* "f32, f64" and so on; rows of one operator may differ. */
static void
write_types(FILE *page, uint32_t types)
{
    const char *before = "";
    uint32_t all = 0;

    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX; dtype++) {
        all |= 1u << dtype;
    }
    if ((types & all) == all || types == 0) {
        (void)fprintf(page, types == 0 ? "-" : "any");
        return;
    }
    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX; dtype++) {
        if ((types >> dtype & 1u) != 0) {
            (void)fprintf(page, "%s%s", before, leat_dtype_text(dtype));
            before = " ";
        }
    }
}

/* Text for a cell of a table. */
static void
write_cell(FILE *page, const char *text)
{
    for (; *text != '\0'; text++) {
        (void)fprintf(page, *text == '|' ? "\\|" : "%c", *text);
    }
}

/* Rows [first, end) of the table are one operator's. */
static void
write_operator(FILE *page, size_t first, size_t end, const char *const *elsewhere)
{
    const struct leat_op *op = &leat_ops[end - 1]; /* the newest form */
    const unsigned *outcomes = counts.operators[find(op->name)].outcomes;
    uint32_t types = 0;
    unsigned cases = 0, own = 0;

    for (size_t i = first; i < end; i++) {
        types |= leat_ops[i].types;
    }
    for (int outcome = 0; outcome < COVERAGE_OUTCOMES; outcome++) {
        cases += outcomes[outcome];
    }
    for (; elsewhere[own] != NULL && strcmp(elsewhere[own], op->name) != 0; own++) {
    }
    (void)fprintf(page, "| %s | %u to %u | ", op->name, leat_ops[first].since, op->until);
    if (op->input_max == 0) {
        (void)fprintf(page, "any"); /* Constant */
    } else {
        write_types(page, types);
    }
    (void)fprintf(page, " | ");
    write_types(page, counts.operators[find(op->name)].types);
    if (elsewhere[own] != NULL) {
        (void)fprintf(page, " | own | ");
    } else {
        (void)fprintf(page, " | %u of %u | ", outcomes[COVERAGE_PASSED], cases);
    }
    write_cell(page, op->doc);
    (void)fprintf(page, " |\n");
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(counts.operators[*(const size_t *)a].name,
                  counts.operators[*(const size_t *)b].name);
}

/* A row of how many cases, and of which operators; of_each[i] of operator i, `step` apart. */
static void
write_cases(FILE *page, const char *why, const unsigned *of_each, size_t step)
{
    size_t order[OPERATORS_MAX];
    unsigned total = 0;

    for (size_t i = 0; i < counts.operator_count; i++) {
        order[i] = i;
        total += of_each[i * step];
    }
    if (total == 0) {
        return;
    }
    qsort(order, counts.operator_count, sizeof(order[0]), compare_names);
    (void)fprintf(page, "| %s | %u |", why, total);
    const char *before = " ";
    for (size_t i = 0; i < counts.operator_count; i++) {
        const unsigned cases = of_each[order[i] * step];
        if (cases > 0) {
            (void)fprintf(page, "%s%s %u", before, counts.operators[order[i]].name, cases);
            before = ", ";
        }
    }
    (void)fprintf(page, " |\n");
}

static void
write_served(FILE *page)
{
    (void)fprintf(page,
                  "\n## Through the backends\n\n"
                  "Of the %u cases of all suites that run with the recorded result by the reference functions, so many do so through "
                  "`reference`\n"
                  "and as many through `cpu`, after all passes:\n\n"
                  "| how | cases |\n|---|---|\n"
                  "| one item at a time, every input live | %u |\n"
                  "| one item at a time, some inputs constant | %u |\n"
                  "| not one item at a time | %u |\n"
                  "| as a batch in two segments too, those inputs live that have it | %u |\n\n"
                  "%u of them run with doubles for all of their floats, too, in these ways and by the reference functions.\n\n"
                  "Why cases do not run in the first way, or not as the batch that outputs and an input have, by the first "
                  "operator:\n\n"
                  "| why | cases | operators |\n|---|---|---|\n",
                  counts.outcomes[COVERAGE_PASSED], counts.served[SERVED_LIVE], counts.served[SERVED_CONSTANTS],
                  counts.served[SERVED_NEITHER], counts.served[SERVED_BATCH], counts.doubles);
    write_cases(page, "an input has to be a constant", &counts.whys[0][WHY_CONSTANTS], WHYS);
    for (int reason = SERVED_NO_REASON + 1; reason < SERVED_REASONS; reason++) {
        write_cases(page, served_text((enum served_reason)reason), &counts.whys[0][WHY_REASON + reason], WHYS);
    }
    write_cases(page, "no batch: items of it meet, or their number counts", &counts.whys[0][WHY_MEET], WHYS);
}

/* Of all types of all operators, those that cases have. */
static void
count_types(unsigned *ret_reached, unsigned *ret_types)
{
    *ret_reached = *ret_types = 0;
    for (size_t first = 0, end; first < leat_op_count; first = end) {
        uint32_t types = 0;
        for (end = first; end < leat_op_count && strcmp(leat_ops[end].name, leat_ops[first].name) == 0; end++) {
            types |= leat_ops[end].input_max > 0 ? leat_ops[end].types : 0;
        }
        *ret_types += (unsigned)__builtin_popcount(types);
        *ret_reached += (unsigned)__builtin_popcount(types & counts.operators[find(leat_ops[first].name)].types);
    }
}

unsigned
coverage_types(void)
{
    unsigned reached, types;

    count_types(&reached, &types);
    return reached;
}

void
coverage_write(FILE *page, const char *const *elsewhere)
{
    unsigned reached, types;

    count_types(&reached, &types);
    (void)fprintf(page,
                  "# Operators\n\n"
                  "Written by `onnx_conformance --write docs/operators.md`; the test fails when "
                  "this page is out of date.\n\n"
                  "Of the %u cases of ONNX's own node tests that concern inference, %u run with "
                  "the recorded result by the reference functions;\n"
                  "how many of all that run through the backends `reference` and `cpu` stands at the end. Left out of\n"
                  "that count are training, losses and random generators "
                  "(`tests/conformance/coverage.h`). *types* are those of the\n"
                  "first input, *in cases* those that it has in cases which run, as recorded or with other types for floats, of which\n"
                  "doubles alone are held against what is recorded, others against the reference function in doubles\n"
                  "(`tests/conformance/retyped.h`), %u of %u of all operators; *cases* are those of the suite that have a node of the\n"
                  "operator and run, of all that have; *own* stands for tests of our own alone\n"
                  "(`tests/kernels/test_operators.c`).\n\n"
                  "Files of opsets %d to %d are read, up to the last one here of each operator: later ones changed it. "
                  "The suite is of\n"
                  "opset 17 and before; forms of later ones have tests of our own (`tests/zoo/test_newer_opsets.c`).\n"
                  "Operators of sequences of tensors (ConcatFromSequence, SequenceAt, SequenceConstruct, SequenceEmpty, "
                  "SequenceErase,\n"
                  "SequenceInsert, SequenceLength, SplitToSequence) are nodes of the tensors, where the file says how many "
                  "there are\n"
                  "(`kernels/onnx/tensors.c`), and DynamicQuantizeLSTM of domain com.microsoft is an LSTM.\n\n"
                  "Operators without f16 and bf16 compute such tensors in f32, their results and all behind them too "
                  "(`kernels/onnx/halves.c`).\n\n"
                  "NaN: the backend `reference` keeps it, in Relu and Clip as ONNX Runtime does. In `cpu`, oneDNN makes a "
                  "number of it in\n"
                  "Relu (0), Clip (the lower bound), Exp (infinity), Softmax, MaxPool and GlobalMaxPool, also where these "
                  "are fused onto\n"
                  "another operator; kernels of the engine's own keep it there (`docs/architecture.md`), and so does `cpu` "
                  "in all other\n"
                  "operators on single elements (`tests/kernels/test_nan.c`). In int8 it is the zero point or the least "
                  "number.\n\n"
                  "| operator | opsets | types | in cases | cases | what it does |\n|---|---|---|---|---|---|\n",
                  counts.inference_cases, counts.inference_covered, reached, types, LEAT_OPSET_MIN, LEAT_OPSET_MAX);
    for (size_t first = 0, end; first < leat_op_count; first = end) {
        end = first + 1;
        while (end < leat_op_count && strcmp(leat_ops[end].name, leat_ops[first].name) == 0) {
            end++;
        }
        write_operator(page, first, end, elsewhere);
    }
    (void)fprintf(
        page,
        "\n## What is not covered\n\n"
        "Cases that concern inference and do not run, by the first operator that is in the way:\n\n"
        "| why | cases | operators |\n|---|---|---|\n");
    for (int outcome = COVERAGE_PASSED + 1; outcome < COVERAGE_OUTCOMES; outcome++) {
        write_cases(page, coverage_text((enum coverage)outcome), &counts.blamed[0][outcome], COVERAGE_OUTCOMES);
    }
    write_served(page);
}
