/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every operator of the table does what the ONNX project's own backend tests say.
 * Method   Each case of the distribution's libonnx-testdata is imported and run three ways, and compared
 *          with the outputs recorded there: (1) as imported, through the reference functions; (2) the same
 *          after all passes; (3) through each backend's own interface (tests/conformance/served.h). And all of
 *          that with other types for floats, where operators take them (tests/conformance/retyped.h).
 *          An operator of the table that no case reached is a failure too.
 * Shrink   Cases that cannot run are counted by reason; too few passes is a failure, because a test list
 *          that silently got shorter proves nothing.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"
#include "tests/conformance/case_data.h"
#include "tests/conformance/coverage.h"
#include "tests/conformance/retyped.h"
#include "tests/conformance/served.h"
#include "tests/leat_test.h"

#define DATA_ROOT "/usr/share/libonnx-testdata/data"

/* Of libonnx-testdata 1.12: raise these when operators are added, never lower them. */
enum {
    MINIMUM_PERCENT = 94,
    MINIMUM_DIRECT = 982,
    /* Through both backends: */
    MINIMUM_LIVE = 875,   /* with every input live */
    MINIMUM_SERVED = 959, /* so, or with constants where operators want them */
    MINIMUM_BATCH = 675,  /* as batches */
    MINIMUM_DOUBLES = 740, /* with doubles for their floats */
    MINIMUM_TYPES = 936    /* of operators, each by itself, that some case has */
};

/* Operators without a case here: tests/kernels/test_operators.c has some. */
static const char *const elsewhere[] = {"GlobalLpPool", "LpNormalization", "LpPool", NULL};

/* Runs a specialised graph by the reference functions. */
static bool
run_and_compare(const struct leat_graph *graph, const struct case_tensors *inputs, uint32_t constants,
                const struct case_tensors *outputs, const char *name)
{
    struct case_tensors have;

    bool good = case_run(graph, inputs, constants, &have) == LEAT_OK;
    if (!good) {
        (void)fprintf(stderr, "%s: %s\n", name, leat_error_text());
    }
    for (uint32_t o = 0; o < have.count; o++) {
        const struct leat_value *want = case_tensor(outputs, o);
        good = good && case_has_shape(case_tensor(&have, o), want, name) && case_is_near(want, case_tensor(&have, o)->data, false, name);
    }
    leat_graph_destroy(have.holder);
    return good;
}

static enum coverage
skip_reason(void)
{
    const char *text = leat_error_text();
    if (strstr(text, "docs/operators.md") != NULL) {
        return COVERAGE_OPERATOR;
    }
    if (strstr(text, "opset") != NULL) {
        return COVERAGE_OPSET;
    }
    if (strstr(text, "ONNX type") != NULL || strstr(text, "of type") != NULL ||
        strstr(text, "not of one type") != NULL || strstr(text, "not a tensor") != NULL) {
        return COVERAGE_TYPE;
    }
    if (strstr(text, "training") != NULL) {
        return COVERAGE_TRAINING;
    }
    return strstr(text, "contents") != NULL ? COVERAGE_CONTENTS : COVERAGE_FORM;
}

static enum leat_status
use_shapes(struct leat_graph *graph)
{
    struct leat_graph *concrete = NULL;
    const enum leat_status status = leat_graph_specialise(graph, 1, &concrete);

    leat_graph_destroy(concrete);
    return status;
}

/* LEAT_OK with *ret_good, or why the case cannot run: LEAT_ERR_INVALID when the case itself is wrong. */
static enum leat_status
run_set(const struct leat_graph *imported, const struct case_tensors *inputs,
        const struct case_tensors *outputs, const char *name, bool *ret_good, struct served *ret_served)
{
    struct leat_graph *plain = NULL, *concrete = NULL;
    uint32_t constants;

    enum leat_status status = case_use(imported, inputs, 0, use_shapes, &plain, &constants);
    if (status != LEAT_OK) {
        return status;
    }
    EXPECT(leat_graph_specialise(plain, 1, &concrete) == LEAT_OK && leat_graph_check(concrete) == LEAT_OK);
    if (concrete->values[concrete->outputs[0]].dtype == LEAT_DTYPE_BF16 &&
        case_tensor(outputs, 0)->dtype == LEAT_DTYPE_U16) {
        leat_graph_destroy(concrete);
        leat_graph_destroy(plain);
        return LEAT_ERR_INVALID;
    }
    *ret_good = run_and_compare(concrete, inputs, constants, outputs, name);
    leat_graph_destroy(concrete);

    status = leat_graph_optimise(plain, ~UINT64_C(0));
    EXPECT(status != LEAT_OK || leat_graph_check(plain) == LEAT_OK);
    status = status == LEAT_OK ? leat_graph_specialise(plain, 1, &concrete) : status;
    if (status != LEAT_OK || !run_and_compare(concrete, inputs, constants, outputs, name)) {
        (void)fprintf(stderr, "%s: differs after the passes (%s)\n", name, leat_error_text());
        *ret_good = false;
    }
    if (status == LEAT_OK) {
        leat_graph_destroy(concrete);
    }
    leat_graph_destroy(plain);
    *ret_good = served_run(imported, inputs, outputs, constants, name, ret_served) && *ret_good;
    return LEAT_OK;
}

/* With other types. Returns false on a wrong result. */
static bool
run_retyped(const struct leat_graph *imported, const struct case_tensors *inputs, const struct case_tensors *outputs,
            const char *name)
{
    struct retyped retyped;
    struct served served;
    bool good = true;

    if (retyped_doubles(imported, inputs, outputs, &retyped)) {
        if (run_set(retyped.graph, &retyped.inputs, &retyped.outputs, name, &good, &served) == LEAT_OK) {
            coverage_add_doubles(retyped.graph);
        }
        if (!good) {
            (void)fprintf(stderr, "%s: wrong in doubles\n", name);
        }
        retyped_fini(&retyped);
    }
    for (uint32_t dtype = 1; dtype <= LEAT_DTYPE_MAX && imported->node_count == 1; dtype++) {
        bool done = !coverage_wants(&imported->nodes[0], dtype), right = true;
        for (int which = 0; which < RETYPED_INPUTS && !done; which++) {
            if (!retyped_numbers(imported, inputs, dtype, (enum retyped_inputs)which, use_shapes, &retyped)) {
                continue;
            }
            done = run_set(retyped.graph, &retyped.inputs, &retyped.outputs, name, &right, &served) == LEAT_OK;
            if (done) {
                coverage_add_numbers(retyped.graph, dtype);
            }
            if (!right) {
                (void)fprintf(stderr, "%s: wrong with numbers of type %s\n", name, leat_dtype_text(dtype));
                good = false;
            }
            retyped_fini(&retyped);
        }
    }
    return good;
}

/* Returns false when the case gave a wrong result. */
static bool
run_case(const char *suite, const char *name)
{
    char path[512];
    size_t size;
    struct leat_graph *graph = NULL;
    struct served served = {0};
    bool good = true, ran = false;

    (void)snprintf(path, sizeof(path), DATA_ROOT "/%s/%s/model.onnx", suite, name);
    void *bytes = case_read_file(path, &size);
    if (bytes == NULL) {
        return true; /* real models: only their data is packaged */
    }
    ProtobufCMessage *message = NULL;
    EXPECT(leat_onnx_unpack(&onnx__model_proto__descriptor, bytes, size, 0, &message) == LEAT_OK);
    enum leat_status status = leat_onnx_import(bytes, size, &graph);
    free(bytes);
    for (int set = 0; status == LEAT_OK && good; set++) {
        struct case_tensors inputs, outputs = {0};
        (void)snprintf(path, sizeof(path), DATA_ROOT "/%s/%s/test_data_set_%d", suite, name, set);
        DIR *directory = opendir(path);
        if (directory == NULL) {
            break;
        }
        (void)closedir(directory);
        status = case_load_tensors(path, "input", &inputs);
        if (status == LEAT_OK) {
            status = case_load_tensors(path, "output", &outputs);
        }
        if (status == LEAT_OK) {
            EXPECT(inputs.count == graph->input_count && outputs.count == graph->output_count);
            status = run_set(graph, &inputs, &outputs, name, &good, &served);
            ran = status == LEAT_OK;
        }
        if (status == LEAT_OK && good && set == 0) {
            good = run_retyped(graph, &inputs, &outputs, name);
        }
        leat_graph_destroy(inputs.holder);
        leat_graph_destroy(outputs.holder);
    }
    enum coverage outcome = good && ran ? COVERAGE_PASSED : COVERAGE_FAILED;
    if (status != LEAT_OK) {
        outcome = status == LEAT_ERR_INVALID ? COVERAGE_RECORDED : skip_reason();
        if (outcome != COVERAGE_OPERATOR) {
            (void)printf("skipped %s: %s\n", name, leat_error_text());
        }
    } else if (!good) {
        (void)printf("FAILED %s/%s\n", suite, name);
    }
    coverage_add((const Onnx__ModelProto *)(void *)message, suite, name, outcome, graph, &served);
    leat_onnx_free(message);
    leat_graph_destroy(graph);
    return good;
}

static bool
run_suite(const char *suite)
{
    char path[512];
    struct dirent **names = NULL;
    bool good = true;

    (void)snprintf(path, sizeof(path), DATA_ROOT "/%s", suite);
    const int count = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            good = run_case(suite, names[i]->d_name) && good;
        }
        free(names[i]);
    }
    free(names);
    return good;
}

/* Writes the page to `path`, or compares it with what stands there. */
static bool
check_page(const char *path, bool write)
{
    char *wanted = NULL;
    size_t wanted_size = 0, size = 0;
    FILE *page = open_memstream(&wanted, &wanted_size);

    EXPECT(page != NULL);
    coverage_write(page, elsewhere);
    EXPECT(fclose(page) == 0);
    if (write) {
        FILE *file = fopen(path, "wb");
        EXPECT(file != NULL && fwrite(wanted, 1, wanted_size, file) == wanted_size &&
               fclose(file) == 0);
        free(wanted);
        return true;
    }
    char *have = case_read_file(path, &size);
    const bool same = have != NULL && size == wanted_size && memcmp(have, wanted, size) == 0;
    if (!same) {
        (void)printf("%s is out of date: write it with onnx_conformance --write %s\n", path, path);
    }
    free(have);
    free(wanted);
    return same;
}

/* onnx_conformance [[--write] docs/operators.md] */
int
main(int argc, char **argv)
{
    static const char *const suites[] = {"node", "pytorch-converted", "pytorch-operator", "simple"};
    const bool write = argc == 3 && strcmp(argv[1], "--write") == 0;
    unsigned covered, cases;
    bool good = true;

    leat_test_init();
    DIR *directory = opendir(DATA_ROOT);
    if (directory == NULL) {
        (void)printf("skipped: %s is missing; install libonnx-testdata\n", DATA_ROOT);
        return LEAT_TEST_SKIP;
    }
    (void)closedir(directory);
    for (size_t i = 0; i < LEAT_COUNT_OF(suites); i++) {
        good = run_suite(suites[i]) && good;
    }
    (void)printf("in doubles too: %u\n", coverage_doubles());
    (void)printf("passed %u; through the backends %u with every input live, %u with constants, %u not; %u as a batch\n",
                 coverage_count(COVERAGE_PASSED), coverage_served(SERVED_LIVE), coverage_served(SERVED_CONSTANTS),
                 coverage_served(SERVED_NEITHER), coverage_served(SERVED_BATCH));
    for (int outcome = COVERAGE_PASSED + 1; outcome < COVERAGE_OUTCOMES; outcome++) {
        (void)printf("%u: %s\n", coverage_count((enum coverage)outcome),
                     coverage_text((enum coverage)outcome));
    }
    coverage_share(&covered, &cases);
    (void)printf("%u of %u node tests that concern inference\n", covered, cases);
    for (size_t i = 0; i < leat_op_count; i++) {
        bool tested = coverage_reached(leat_ops[i].name) ||
                      leat_ops[i].kind == LEAT_OP_CONSTANT; /* the importer turns it into a value */
        for (size_t k = 0; elsewhere[k] != NULL; k++) {
            tested = tested || strcmp(elsewhere[k], leat_ops[i].name) == 0;
        }
        if (!tested) {
            (void)printf("no case reaches operator %s\n", leat_ops[i].name);
            good = false;
        }
    }
    if (argc >= 2) {
        good = check_page(argv[argc - 1], write) && good;
    }
    EXPECT(coverage_count(COVERAGE_PASSED) >= MINIMUM_DIRECT);
    EXPECT(100 * covered >= MINIMUM_PERCENT * cases);
    EXPECT(coverage_served(SERVED_LIVE) >= MINIMUM_LIVE);
    EXPECT(coverage_served(SERVED_LIVE) + coverage_served(SERVED_CONSTANTS) >= MINIMUM_SERVED);
    EXPECT(coverage_served(SERVED_BATCH) >= MINIMUM_BATCH);
    EXPECT(coverage_doubles() >= MINIMUM_DOUBLES);
    EXPECT(coverage_types() >= MINIMUM_TYPES);
    return good ? 0 : 1;
}
