/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements are counted by their exponent and the first STEP_BITS of their fraction, so that no range has to be known before: a
 * range that is cut off is up to 2^-STEP_BITS too wide.
 */
#include "kernels/cpu/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

enum { STEP_BITS = 5, BINS = 1 << (8 + STEP_BITS), SHIFT = 23 - STEP_BITS };

/* Of one value. */
struct histogram {
    uint32_t value;
    bool multiplied; /* by a convolution or product, as its source */
    bool infinite;   /* some element was, or was no number */
    uint64_t elements;
    uint64_t counts[2][BINS]; /* by sign; 0 and what is not finite are in none */
    float furthest[2];
};

struct cpu_observer {
    struct histogram **by_value; /* [value_count]; NULL where nobody wants to know */
    uint32_t value_count;
};

struct leat_calibration {
    struct leat_model *model;
    struct cpu_program *program;
    struct cpu_run *run;
    unsigned char *scratch;
    struct cpu_observer observer;
    struct leat_range *ranges; /* [range_count] of the batches until now */
    uint32_t range_count;
};

/* ---- In a run --------------------------------------------------------------------------------------- */

static void
count(struct histogram *histogram, const float *data, size_t elements)
{
    for (size_t i = 0; i < elements; i++) {
        const float magnitude = fabsf(data[i]);
        const uint32_t sign = data[i] < 0;
        uint32_t bits;
        if (magnitude > 0 && magnitude <= 3.402823466e38f) {
            memcpy(&bits, &magnitude, sizeof(bits));
            histogram->counts[sign][bits >> SHIFT]++;
            histogram->furthest[sign] = fmaxf(histogram->furthest[sign], magnitude);
        }
        histogram->infinite = histogram->infinite || !(magnitude <= 3.402823466e38f);
    }
    histogram->elements += elements;
}

/* args: the plain tensor of value `outer`, of `count` floats. */
static enum leat_status
observe(const struct cpu_call *call)
{
    count(call->program->observer->by_value[call->step->outer], call->pointers[0],
          call->step->count);
    return LEAT_OK;
}

enum leat_status
cpu_observe(struct cpu_builder *b)
{
    for (uint32_t o = 0; o < b->node->output_count; o++) {
        const uint32_t value = b->node->outputs[o];
        struct cpu_arg arg = {0, 0};
        struct cpu_step *step;
        if (value == LEAT_VALUE_NONE || b->observer->by_value[value] == NULL) {
            continue;
        }
        enum leat_status status = cpu_plain(b, value, &arg.tensor);
        if (status == LEAT_OK) {
            status = cpu_add_kernel(b, observe, &arg, 1, &step);
        }
        if (status != LEAT_OK) {
            return status;
        }
        step->outer = value;
        step->count = leat_value_elements(&b->graph->values[value]);
    }
    return LEAT_OK;
}

/* ---- Around it -------------------------------------------------------------------------------------- */

static enum leat_status
no_memory(void)
{
    return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to calibrate a model");
}

static enum leat_status
want(struct leat_model *model, struct cpu_observer *observer, const struct leat_graph *graph, uint32_t value)
{
    if (value == LEAT_VALUE_NONE || observer->by_value[value] != NULL ||
        graph->values[value].data != NULL || graph->values[value].dtype != LEAT_DTYPE_F32) {
        return LEAT_OK;
    }
    const enum leat_status status = cpu_model_take(model, NULL, sizeof(struct histogram));
    if (status != LEAT_OK) {
        return status;
    }
    struct histogram *histogram = calloc(1, sizeof(*histogram));
    if (histogram == NULL) {
        return no_memory();
    }
    histogram->value = value;
    observer->by_value[value] = histogram;
    return LEAT_OK;
}

/* Its first input is, or could be, in whole numbers. */
static bool
multiplies(const struct leat_graph *graph, const struct leat_node *node)
{
    return (node->op->kind == LEAT_OP_CONV || node->op->kind == LEAT_OP_GEMM || node->op->kind == LEAT_OP_MATMUL) &&
           leat_node_input(graph, node, 0)->dtype == LEAT_DTYPE_F32;
}

static enum leat_status
make_observer(struct leat_model *model, struct cpu_observer *observer, const struct leat_graph *graph)
{
    enum leat_status status = LEAT_OK;

    observer->value_count = graph->value_count;
    observer->by_value = calloc((size_t)graph->value_count + 1, sizeof(struct histogram *));
    if (observer->by_value == NULL) {
        return no_memory();
    }
    for (uint32_t n = 0; n < graph->node_count && status == LEAT_OK; n++) {
        const struct leat_node *node = &graph->nodes[n];
        if (!multiplies(graph, node)) {
            continue;
        }
        const uint32_t values[3] = {node->inputs[0], node->outputs[0], node->fused_add};
        for (uint32_t i = 0; i < LEAT_COUNT_OF(values) && status == LEAT_OK; i++) {
            status = want(model, observer, graph, values[i]);
        }
        if (status == LEAT_OK && observer->by_value[node->inputs[0]] != NULL) {
            observer->by_value[node->inputs[0]]->multiplied = true;
        }
    }
    return status;
}

enum leat_status
leat_calibration_create(const struct leat_graph *graph, uint32_t items,
                        struct leat_calibration **ret_calibration)
{
    const struct leat_tensor_info infos[LEAT_TENSORS_MAX] = {
        {.rank = 0}}; /* for plans, of which there are none */
    const struct leat_model_source source = {.graph = graph,
                                             .infos = infos,
                                             .input_count = graph->input_count,
                                             .output_count = graph->output_count,
                                             .one_by_one = true}; /* whoever runs it knows how many items meet */
    struct leat_graph *known = NULL;

    if (graph->input_count > LEAT_TENSORS_MAX ||
        graph->output_count > LEAT_TENSORS_MAX - graph->input_count) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u inputs and %u outputs; up to %u in all are possible",
                         graph->input_count, graph->output_count, LEAT_TENSORS_MAX);
    }
    struct leat_calibration *calibration = calloc(1, sizeof(*calibration));
    if (calibration == NULL) {
        return no_memory();
    }
    enum leat_status status = leat_backend_cpu.model_load(&source, &calibration->model);
    if (status == LEAT_OK) {
        graph = cpu_model_graph(calibration->model);
        status = leat_graph_specialise(graph, items, &known); /* as the program will do */
    }
    if (status == LEAT_OK) {
        status = make_observer(calibration->model, &calibration->observer, known);
    }
    if (status == LEAT_OK) {
        status = cpu_program_build_observed(calibration->model, graph, items,
                                            &calibration->observer, &calibration->program);
    }
    if (status == LEAT_OK) {
        status = cpu_run_create(calibration->program, cpu_model_engine(calibration->model),
                                &calibration->run);
    }
    if (status == LEAT_OK) {
        calibration->scratch = aligned_alloc(
            4096, (size_t)leat_round_up(calibration->program->scratch_bytes + 1, 4096));
        calibration->ranges =
            calloc((size_t)calibration->observer.value_count + 1, sizeof(*calibration->ranges));
        status =
            calibration->scratch != NULL && calibration->ranges != NULL ? LEAT_OK : no_memory();
    }
    leat_graph_destroy(known);
    if (status != LEAT_OK) {
        leat_calibration_destroy(calibration);
        return status;
    }
    *ret_calibration = calibration;
    return LEAT_OK;
}

void
leat_calibration_destroy(struct leat_calibration *calibration)
{
    if (calibration == NULL) {
        return;
    }
    cpu_run_destroy(calibration->run);
    cpu_program_destroy(calibration->program);
    leat_backend_cpu.model_destroy(calibration->model);
    for (uint32_t v = 0;
         calibration->observer.by_value != NULL && v < calibration->observer.value_count; v++) {
        free(calibration->observer.by_value[v]);
    }
    free(calibration->observer.by_value);
    free(calibration->ranges);
    free(calibration->scratch);
    free(calibration);
}

/* ---- Ranges ----------------------------------------------------------------------------------------- */

/* The magnitude that all but one in LEAT_CALIBRATION_BEYOND elements stay within on that side of 0. */
static float
reach(const struct histogram *histogram, uint32_t sign)
{
    const uint64_t beyond = histogram->elements / LEAT_CALIBRATION_BEYOND;
    uint64_t seen = 0;
    uint32_t bin = BINS;
    float edge;

    if (histogram->furthest[sign] <= 0) {
        return 0;
    }
    while (bin > 0 && seen + histogram->counts[sign][bin - 1] <= beyond) {
        seen += histogram->counts[sign][--bin];
    }
    const uint32_t bits = bin << SHIFT; /* of the first number above the last bin that counts */
    memcpy(&edge, &bits, sizeof(edge));
    return fminf(edge, histogram->furthest[sign]);
}

static void
find_ranges(struct leat_calibration *calibration)
{
    calibration->range_count = 0;
    for (uint32_t v = 0; v < calibration->observer.value_count; v++) {
        const struct histogram *histogram = calibration->observer.by_value[v];
        if (histogram == NULL) {
            continue;
        }
        const struct leat_range range = {calibration->program->graph->values[v].name,
                                         -reach(histogram, 1), reach(histogram, 0)};
        if (range.least < 0 || range.most > 0) {
            calibration->ranges[calibration->range_count++] = range;
        }
    }
}

enum leat_status
leat_calibration_run(struct leat_calibration *calibration, const void *const *inputs)
{
    const struct cpu_program *program = calibration->program;

    leat_openmp_enter(NULL, program->threads);
    leat_cxx_heap_enter();
    cpu_run_bind(calibration->run, calibration->scratch);
    for (uint32_t i = 0; i < program->graph->input_count; i++) {
        cpu_run_set_input(calibration->run, i, inputs[i]);
    }
    const enum leat_status status = cpu_run_execute(calibration->run, NULL);
    leat_cxx_heap_leave();
    leat_openmp_leave();
    for (uint32_t i = 0; i < program->graph->input_count && status == LEAT_OK; i++) {
        struct histogram *histogram = calibration->observer.by_value[program->graph->inputs[i]];
        if (histogram != NULL) { /* no step makes it */
            count(histogram, inputs[i], leat_value_elements(&program->graph->values[program->graph->inputs[i]]));
        }
    }
    if (status == LEAT_OK) {
        find_ranges(calibration);
    }
    return status;
}

bool
leat_calibration_reads(const struct leat_calibration *calibration, uint32_t input)
{
    const struct leat_graph *graph = calibration->program->graph;
    bool reads = false;

    LEAT_ASSERT(input < graph->input_count);
    for (uint32_t n = 0; n < graph->node_count && !reads; n++) {
        reads = multiplies(graph, &graph->nodes[n]) && graph->nodes[n].inputs[0] == graph->inputs[input];
    }
    return reads;
}

bool
leat_calibration_is_finite(const struct leat_calibration *calibration)
{
    bool finite = true;

    for (uint32_t v = 0; v < calibration->observer.value_count; v++) {
        const struct histogram *histogram = calibration->observer.by_value[v];
        finite = finite && (histogram == NULL || !histogram->multiplied || !histogram->infinite);
    }
    return finite;
}

uint32_t
leat_calibration_count(const struct leat_calibration *calibration)
{
    return calibration->range_count;
}

struct leat_range
leat_calibration_range(const struct leat_calibration *calibration, uint32_t i)
{
    LEAT_ASSERT(i < calibration->range_count);
    return calibration->ranges[i];
}

bool
leat_graph_set_range(struct leat_graph *graph, const struct leat_range *range)
{
    bool found = false;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct leat_value *value = &graph->values[v];
        if (value->data == NULL && value->dtype == LEAT_DTYPE_F32 &&
            strcmp(value->name, range->name) == 0) {
            value->least = range->least;
            value->most = range->most;
            found = true;
        }
    }
    return found;
}

static bool
is_one_of(const uint32_t *values, uint32_t count, uint32_t value)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] == value) {
            return true;
        }
    }
    return false;
}

bool
leat_graph_is_quantised(const struct leat_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct leat_node *node = &graph->nodes[n];
        switch (node->op->kind) {
        case LEAT_OP_QLINEAR_CONV:
        case LEAT_OP_QLINEAR_MATMUL:
        case LEAT_OP_CONV_INTEGER:
        case LEAT_OP_MATMUL_INTEGER:
        case LEAT_OP_MATMUL_INTEGER_TO_FLOAT: return true;
        case LEAT_OP_QUANTIZE_LINEAR:
            if (!is_one_of(graph->inputs, graph->input_count, node->inputs[0]) &&
                !is_one_of(graph->outputs, graph->output_count, node->outputs[0])) {
                return true;
            }
            break;
        default: break;
        }
    }
    return false;
}
