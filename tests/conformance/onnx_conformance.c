/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Every operator of the table does what the ONNX project's own backend tests say.
 * Method   Each case of the distribution's libonnx-testdata is imported and run three ways, and compared
 *          with the outputs recorded there: (1) as imported, through the reference functions; (2) the same
 *          after all passes; (3) where the case has a batch (first input and all outputs agree in their
 *          first dimension), through each backend's own interface, split over two segments, with the other
 *          inputs as constants.
 *          An operator of the table that no case reached is a failure too.
 * Shrink   Cases that cannot run are counted by reason; too few passes is a failure, because a test list
 *          that silently got shorter proves nothing.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/onnx/onnx.h"
#include "kernels/op.h"
#include "kernels/reference/reference.h"
#include "tests/conformance/coverage.h"
#include "tests/leat_test.h"

#define DATA_ROOT   "/usr/share/libonnx-testdata/data"
#define TENSORS_MAX 16u
#define RTOL        1e-3
#define ATOL        1e-7

/* Of libonnx-testdata 1.12: raise these when operators are added, never lower them. */
enum {
    MINIMUM_PERCENT = 94,
    MINIMUM_DIRECT = 975,
    /* Rows of an EyeLike and indices of a MaxPool differ by their place in the batch; three slices end at item 20. */
    MINIMUM_SERVED_REFERENCE = 514,
    MINIMUM_SERVED_CPU = 514
};

/* Operators without a case here: tests/kernels/test_operators.c has some. */
static const char *const elsewhere[] = {"GlobalLpPool", "LpNormalization", "LpPool", NULL};

static struct {
    unsigned served_reference, served_cpu, cpu_refused;
} counts;

/* The tensors of one data set: constants of a graph that exists to hold them. */
struct tensors {
    struct leat_graph *holder;
    uint32_t count;
    uint32_t index[TENSORS_MAX];
};

static const struct leat_value *
tensor(const struct tensors *tensors, uint32_t i)
{
    return &tensors->holder->values[tensors->index[i]];
}

/* NULL when the file does not exist. */
static void *
read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    EXPECT(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    void *bytes = malloc((size_t)size + 1);
    EXPECT(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size);
    (void)fclose(file);
    *ret_size = (size_t)size;
    return bytes;
}

/* All of input_0.pb, input_1.pb, ...; an unsupported type is a status. */
static enum leat_status
load_tensors(const char *set, const char *stem, struct tensors *ret)
{
    *ret = (struct tensors){0};
    EXPECT(leat_graph_create(stem, LEAT_OPSET_MAX, &ret->holder) == LEAT_OK);
    for (enum leat_status status = LEAT_OK; ret->count < TENSORS_MAX; ret->count++) {
        char path[1024];
        size_t size = 0;
        ProtobufCMessage *message = NULL;
        (void)snprintf(path, sizeof(path), "%s/%s_%u.pb", set, stem, ret->count);
        void *bytes = read_file(path, &size);
        if (bytes == NULL) {
            return LEAT_OK;
        }
        status = leat_onnx_unpack(&onnx__tensor_proto__descriptor, bytes, size, 0, &message);
        if (status == LEAT_OK) {
            status =
                leat_onnx_tensor(ret->holder, NULL, "tensor", (const Onnx__TensorProto *)(void *)message,
                                 &ret->index[ret->count]);
        }
        leat_onnx_free(message);
        free(bytes);
        if (status != LEAT_OK) {
            return status;
        }
    }
    EXPECT(ret->count < TENSORS_MAX);
    return LEAT_OK;
}

static double
element(const struct leat_value *value, const void *data, size_t i)
{
    switch (value->dtype) {
    case LEAT_DTYPE_F32:
        return (double)((const float *)data)[i];
    case LEAT_DTYPE_F64:
        return ((const double *)data)[i];
    default:
        return NAN;
    }
}

/* `sums`: each is of all elements, of which those in floats are as near as the greatest one is. */
static bool
near(const struct leat_value *expected, const void *data, bool sums, const char *name)
{
    const size_t count = leat_value_elements(expected);
    double greatest = 1;
    if (expected->dtype != LEAT_DTYPE_F32 && expected->dtype != LEAT_DTYPE_F64) {
        const bool same = memcmp(expected->data, data, expected->data_bytes) == 0;
        if (!same) {
            (void)fprintf(stderr, "%s: elements of type %s differ\n", name,
                          leat_dtype_text(expected->dtype));
        }
        return same;
    }
    for (size_t i = 0; i < count && sums; i++) {
        const double want = fabs(element(expected, expected->data, i));
        greatest = isfinite(want) ? fmax(greatest, want) : greatest;
    }
    for (size_t i = 0; i < count; i++) {
        const double want = element(expected, expected->data, i), have = element(expected, data, i);
        const bool good = isnan(want)   ? isnan(have)
                          : isinf(want) ? have == want
                                        : fabs(have - want) <= ATOL * greatest + RTOL * fabs(want);
        if (!good) {
            (void)fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", name, i, have, want);
            return false;
        }
    }
    return true;
}

static bool
same_shape(const struct leat_shape *have, const struct leat_value *want, const char *name)
{
    bool same = have->dtype == want->dtype && have->rank == want->rank;
    for (uint32_t d = 0; same && d < have->rank; d++) {
        same = have->dims[d] == want->dims[d];
    }
    if (!same) {
        (void)fprintf(stderr, "%s: an output has another type or shape than expected\n", name);
    }
    return same;
}

/* Gives the graph's inputs the shapes of the data; input i becomes a constant when fixed[i]. */
static void
bind_inputs(struct leat_graph *graph, const struct tensors *inputs, const bool *fixed)
{
    uint32_t kept[TENSORS_MAX], count = 0;

    for (uint32_t i = 0; i < graph->input_count; i++) {
        const struct leat_value *from = tensor(inputs, i);
        struct leat_value *value = &graph->values[graph->inputs[i]];
        value->rank = from->rank;
        memcpy(value->dims, from->dims, sizeof(value->dims));
        if (fixed[i]) {
            void *data;
            EXPECT(leat_graph_make_constant(graph, graph->inputs[i], &data) == LEAT_OK);
            memcpy(data, from->data, from->data_bytes);
        } else {
            kept[count++] = graph->inputs[i];
        }
    }
    EXPECT(leat_graph_set_inputs(graph, kept, count) == LEAT_OK);
}

/* Runs a specialised graph by the reference functions. */
static bool
run_and_compare(const struct leat_graph *graph, const struct tensors *inputs, const bool *fixed,
                const struct tensors *outputs, const char *name)
{
    const void *in[TENSORS_MAX];
    void *out[TENSORS_MAX];
    struct leat_shape shapes[TENSORS_MAX];
    size_t scratch_bytes;
    bool good = true;

    for (uint32_t i = 0, k = 0; i < inputs->count; i++) {
        if (!fixed[i]) {
            in[k++] = tensor(inputs, i)->data;
        }
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        out[o] = calloc(1, leat_value_bytes(&graph->values[graph->outputs[o]]) + 1);
        EXPECT(out[o] != NULL);
    }
    EXPECT(leat_reference_scratch_bytes(graph, &scratch_bytes) == LEAT_OK);
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(scratch_bytes + 64, 64));
    EXPECT(scratch != NULL);
    if (leat_reference_run(graph, in, out, scratch, shapes) != LEAT_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, leat_error_text());
        good = false;
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        good = good && same_shape(&shapes[o], tensor(outputs, o), name) &&
               near(tensor(outputs, o), out[o], false, name);
        free(out[o]);
    }
    free(scratch);
    return good;
}

/* True and a batch size when the first input and all outputs share their first dimension. */
static bool
has_batch(const struct tensors *inputs, const struct tensors *outputs, int64_t *ret_items)
{
    if (inputs->count == 0 || tensor(inputs, 0)->rank == 0 || tensor(inputs, 0)->dims[0] < 1) {
        return false;
    }
    for (uint32_t o = 0; o < outputs->count; o++) {
        if (tensor(outputs, o)->rank == 0 ||
            tensor(outputs, o)->dims[0] != tensor(inputs, 0)->dims[0]) {
            return false;
        }
    }
    *ret_items = tensor(inputs, 0)->dims[0];
    return true;
}

/* One batch of all items, in two segments when there are two. */
static bool
run_plan(const struct leat_backend *backend, const struct leat_plan *plan, const void *input,
         const struct leat_tensor_info *infos, const struct tensors *outputs, uint32_t items,
         bool sums, const char *name)
{
    const uint32_t first = items >= 2 ? items / 2 : items, shares[2] = {first, items - first};
    const size_t scratch_bytes = (size_t)leat_round_up(backend->plan_scratch_bytes(plan) + 64, 64);
    struct leat_segment segments[2] = {0};
    void *scratch = aligned_alloc(64, scratch_bytes);
    void *blocks[2][LEAT_TENSORS_MAX] = {0};
    bool good = true;

    EXPECT(scratch != NULL);
    memset(scratch, 0xa5, scratch_bytes);
    for (uint32_t s = 0, before = 0; s < 2; before += shares[s++]) {
        segments[s].items = shares[s];
        for (uint32_t t = 0; t < 1 + outputs->count; t++) {
            const size_t bytes = shares[s] * infos[t].item_bytes;
            blocks[s][t] = aligned_alloc(64, (size_t)leat_round_up(bytes + 1, 64));
            EXPECT(blocks[s][t] != NULL);
            segments[s].tensors[t] = blocks[s][t];
        }
        memcpy(blocks[s][0], (const char *)input + before * infos[0].item_bytes,
               shares[s] * infos[0].item_bytes);
    }
    if (backend->plan_run(plan, segments, shares[1] > 0 ? 2 : 1, scratch, NULL) != LEAT_OK) {
        (void)fprintf(stderr, "%s: backend %s failed: %s\n", name, backend->name,
                      leat_error_text());
        good = false;
    }
    for (uint32_t o = 0; o < outputs->count && good; o++) {
        const size_t item = infos[1 + o].item_bytes;
        char *joined = malloc(items * item + 1);
        EXPECT(joined != NULL);
        memcpy(joined, blocks[0][1 + o], shares[0] * item);
        memcpy(joined + shares[0] * item, blocks[1][1 + o], shares[1] * item);
        good = near(tensor(outputs, o), joined, sums, name);
        free(joined);
    }
    for (uint32_t t = 0; t < 2 * LEAT_TENSORS_MAX; t++) {
        free(blocks[t / LEAT_TENSORS_MAX][t % LEAT_TENSORS_MAX]);
    }
    free(scratch);
    return good;
}

/* Fast transforms are of floats. */
static bool
transforms(const struct leat_backend *backend, const struct leat_graph *graph)
{
    bool has = false;

    for (uint32_t n = 0; n < graph->node_count; n++) {
        has = has || graph->nodes[n].op->kind == LEAT_OP_DFT || graph->nodes[n].op->kind == LEAT_OP_STFT;
    }
    return has && backend != &leat_backend_reference;
}

/* False on a wrong result; *ret_ran is false when the backend does not take the model. */
static bool
serve(const struct leat_backend *backend, const struct leat_graph *graph,
      const struct leat_tensor_info *infos, const struct tensors *inputs,
      const struct tensors *outputs, int64_t items, const char *name, bool *ret_ran)
{
    const struct leat_model_source source = {
        .graph = graph, .infos = infos, .input_count = 1, .output_count = outputs->count};
    struct leat_model *model = NULL;
    struct leat_plan *plan = NULL;
    bool good = true;

    *ret_ran = false;
    if (backend->model_load(&source, &model) != LEAT_OK) {
        (void)fprintf(stderr, "%s: backend %s refuses the model: %s\n", name, backend->name,
                      leat_error_text());
        return true;
    }
    const struct leat_plan_options options = {.items = (uint32_t)items};
    if (backend->plan_build(model, &options, &plan) == LEAT_OK) {
        *ret_ran = true;
        good = run_plan(backend, plan, tensor(inputs, 0)->data, infos, outputs, (uint32_t)items,
                        transforms(backend, graph), name);
        backend->plan_destroy(plan);
    } else {
        (void)fprintf(stderr, "%s: backend %s refuses the plan: %s\n", name, backend->name,
                      leat_error_text());
    }
    backend->model_destroy(model);
    return good;
}

static bool
serve_all(const struct leat_graph *imported, const struct tensors *inputs,
          const struct tensors *outputs, const char *name)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_graph *graph = NULL;
    bool fixed[TENSORS_MAX], good = true, ran = false;
    uint32_t input_count, output_count;
    int64_t items;

    if (imported->input_count == 0 || outputs->count + 1 > LEAT_TENSORS_MAX ||
        !has_batch(inputs, outputs, &items)) {
        return true;
    }
    memset(fixed, true, sizeof(fixed));
    fixed[0] = false;
    EXPECT(leat_graph_copy(imported, &graph) == LEAT_OK);
    bind_inputs(graph, inputs, fixed);
    graph->values[graph->inputs[0]].dims[0] = LEAT_DIM_BATCH;
    /* Not every case works for other batch sizes; those that mix items must not. */
    if (leat_graph_infer(graph) == LEAT_OK && leat_graph_optimise(graph, ~UINT64_C(0)) == LEAT_OK &&
        leat_graph_signature(graph, infos, &input_count, &output_count) == LEAT_OK) {
        good = serve(&leat_backend_reference, graph, infos, inputs, outputs, items, name, &ran);
        EXPECT(ran);
        counts.served_reference += good;
        const struct leat_backend *cpu = leat_backend_find("cpu");
        if (cpu != NULL) {
            const bool cpu_good = serve(cpu, graph, infos, inputs, outputs, items, name, &ran);
            counts.served_cpu += cpu_good && ran;
            counts.cpu_refused += !ran;
            good = good && cpu_good;
        }
    }
    leat_graph_destroy(graph);
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

/* LEAT_OK with *ret_good, or why the case cannot run: LEAT_ERR_INVALID when the case itself is wrong. */
static enum leat_status
run_set(const struct leat_graph *imported, const struct tensors *inputs,
        const struct tensors *outputs, const char *name, bool *ret_good)
{
    struct leat_graph *plain = NULL, *concrete = NULL;
    bool fixed[TENSORS_MAX] = {false};

    /*
     * Second try: integer vectors as constants, for operators that take a shape or axes; third: all vectors, for
     * scales, depths and the like.
     */
    enum leat_status status = LEAT_ERR_UNSUPPORTED;
    for (int attempt = 0; attempt < 3 && status != LEAT_OK; attempt++) {
        for (uint32_t i = 0; i < inputs->count; i++) {
            fixed[i] = attempt >= 1 && tensor(inputs, i)->rank <= 1 &&
                       (attempt == 2 || tensor(inputs, i)->dtype == LEAT_DTYPE_I64);
        }
        leat_graph_destroy(plain);
        EXPECT(leat_graph_copy(imported, &plain) == LEAT_OK);
        bind_inputs(plain, inputs, fixed);
        status = leat_graph_specialise(plain, 1, &concrete);
    }
    if (status != LEAT_OK) {
        leat_graph_destroy(plain);
        return status;
    }
    EXPECT(leat_graph_check(concrete) == LEAT_OK);
    if (concrete->values[concrete->outputs[0]].dtype == LEAT_DTYPE_BF16 &&
        tensor(outputs, 0)->dtype == LEAT_DTYPE_U16) {
        leat_graph_destroy(concrete);
        leat_graph_destroy(plain);
        return LEAT_ERR_INVALID;
    }
    *ret_good = run_and_compare(concrete, inputs, fixed, outputs, name);
    leat_graph_destroy(concrete);

    status = leat_graph_optimise(plain, ~UINT64_C(0));
    EXPECT(status != LEAT_OK || leat_graph_check(plain) == LEAT_OK);
    status = status == LEAT_OK ? leat_graph_specialise(plain, 1, &concrete) : status;
    if (status != LEAT_OK || !run_and_compare(concrete, inputs, fixed, outputs, name)) {
        (void)fprintf(stderr, "%s: differs after the passes (%s)\n", name, leat_error_text());
        *ret_good = false;
    }
    if (status == LEAT_OK) {
        leat_graph_destroy(concrete);
    }
    leat_graph_destroy(plain);
    *ret_good = serve_all(imported, inputs, outputs, name) && *ret_good;
    return LEAT_OK;
}

/* Returns false when the case gave a wrong result. */
static bool
run_case(const char *suite, const char *name)
{
    char path[512];
    size_t size;
    struct leat_graph *graph = NULL;
    bool good = true, ran = false;

    (void)snprintf(path, sizeof(path), DATA_ROOT "/%s/%s/model.onnx", suite, name);
    void *bytes = read_file(path, &size);
    if (bytes == NULL) {
        return true; /* real models: only their data is packaged */
    }
    ProtobufCMessage *message = NULL;
    EXPECT(leat_onnx_unpack(&onnx__model_proto__descriptor, bytes, size, 0, &message) == LEAT_OK);
    enum leat_status status = leat_onnx_import(bytes, size, &graph);
    free(bytes);
    for (int set = 0; status == LEAT_OK && good; set++) {
        struct tensors inputs, outputs = {0};
        (void)snprintf(path, sizeof(path), DATA_ROOT "/%s/%s/test_data_set_%d", suite, name, set);
        DIR *directory = opendir(path);
        if (directory == NULL) {
            break;
        }
        (void)closedir(directory);
        status = load_tensors(path, "input", &inputs);
        if (status == LEAT_OK) {
            status = load_tensors(path, "output", &outputs);
        }
        if (status == LEAT_OK) {
            EXPECT(inputs.count == graph->input_count && outputs.count == graph->output_count);
            status = run_set(graph, &inputs, &outputs, name, &good);
            ran = status == LEAT_OK;
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
    coverage_add((const Onnx__ModelProto *)(void *)message, suite, name, outcome);
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
    char *have = read_file(path, &size);
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
    (void)printf(
        "passed %u; through the reference backend %u, through the cpu backend %u (refused %u)\n",
        coverage_count(COVERAGE_PASSED), counts.served_reference, counts.served_cpu,
        counts.cpu_refused);
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
    EXPECT(counts.served_reference >= MINIMUM_SERVED_REFERENCE);
    EXPECT(leat_backend_find("cpu") == NULL || counts.served_cpu >= MINIMUM_SERVED_CPU);
    return good ? 0 : 1;
}
