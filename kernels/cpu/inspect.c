/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/op.h"

struct leat_inspection {
    struct leat_model *model;
    struct cpu_program *program;
    struct cpu_run *run;
    unsigned char *scratch;
    size_t live_bytes;
};

static enum leat_status
check_memory(const struct leat_inspection *inspection, uint64_t most)
{
    const uint64_t weights = leat_backend_cpu.model_bytes(inspection->model), run = inspection->program->scratch_bytes;

    return weights <= most && run <= most - weights
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_LIMIT, "its weights take %llu bytes and a run %llu; the model's limit is %llu",
                           (unsigned long long)weights, (unsigned long long)run, (unsigned long long)most);
}

enum leat_status
leat_inspection_create(const struct leat_graph *graph, enum leat_precision precision, uint32_t items, uint32_t threads,
                       struct leat_inspection **ret_inspection)
{
    const struct leat_tensor_info infos[LEAT_TENSORS_MAX] = {{.rank = 0}}; /* for plans, of which there are none */
    const struct leat_model_source source = {.graph = graph,
                                             .precision = precision,
                                             .infos = infos,
                                             .one_by_one = true, /* whoever runs it knows how many items meet */
                                             .input_count = graph->input_count,
                                             .output_count = graph->output_count};

    if (graph->input_count > LEAT_TENSORS_MAX || graph->output_count > LEAT_TENSORS_MAX - graph->input_count) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u inputs and %u outputs; up to %u in all are possible", graph->input_count,
                         graph->output_count, LEAT_TENSORS_MAX);
    }
    struct leat_inspection *inspection = calloc(1, sizeof(*inspection));
    if (inspection == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    enum leat_status status = leat_backend_cpu.model_load(&source, &inspection->model);
    if (status == LEAT_OK) {
        status = cpu_program_build(inspection->model, cpu_model_graph(inspection->model), items, threads, &inspection->program);
    }
    if (status == LEAT_OK) {
        status = check_memory(inspection, leat_graph_memory_max(graph));
    }
    if (status == LEAT_OK) {
        status = cpu_live_bytes(inspection->program->buffers, inspection->program->buffer_count, &inspection->live_bytes);
    }
    if (status == LEAT_OK) {
        status = cpu_run_create(inspection->program, cpu_model_engine(inspection->model), &inspection->run);
    }
    if (status == LEAT_OK) {
        inspection->scratch = aligned_alloc(4096, (size_t)leat_round_up(inspection->program->scratch_bytes + 1, 4096));
        status = inspection->scratch != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    if (status != LEAT_OK) {
        leat_inspection_destroy(inspection);
        return status;
    }
    *ret_inspection = inspection;
    return LEAT_OK;
}

void
leat_inspection_destroy(struct leat_inspection *inspection)
{
    if (inspection == NULL) {
        return;
    }
    free(inspection->scratch);
    cpu_run_destroy(inspection->run);
    cpu_program_destroy(inspection->program);
    leat_backend_cpu.model_destroy(inspection->model);
    free(inspection);
}

const struct leat_graph *
leat_inspection_graph(const struct leat_inspection *inspection)
{
    return inspection->program->graph;
}

uint32_t
leat_inspection_step_count(const struct leat_inspection *inspection)
{
    return inspection->program->step_count;
}

void
leat_inspection_step(const struct leat_inspection *inspection, uint32_t s, struct leat_inspection_step *ret_step)
{
    const struct cpu_step *step = &inspection->program->steps[s];
    const_dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    const char *kernel = cpu_is_reference(step) ? "reference" : "leat";

    if (step->primitive != NULL && dnnl_primitive_get_primitive_desc(step->primitive, &pd) == dnnl_success) {
        (void)dnnl_primitive_desc_query(pd, dnnl_query_primitive_kind, 0, &kind);
        (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel);
    }
    *ret_step = (struct leat_inspection_step){
        .node = step->node != NULL ? (uint32_t)(step->node - inspection->program->graph->nodes) : LEAT_VALUE_NONE,
        .converts = kind == dnnl_reorder,
    };
    (void)strncpy(ret_step->kernel, kernel, sizeof(ret_step->kernel) - 1);
}

bool
leat_inspection_copies(const struct leat_inspection *inspection, uint32_t input)
{
    LEAT_ASSERT(input < inspection->program->graph->input_count);
    return inspection->program->copied[input];
}

size_t
leat_inspection_planned_bytes(const struct leat_inspection *inspection)
{
    return inspection->program->scratch_bytes;
}

size_t
leat_inspection_bound_bytes(const struct leat_inspection *inspection)
{
    return inspection->live_bytes;
}

size_t
leat_inspection_model_bytes(const struct leat_inspection *inspection)
{
    return leat_backend_cpu.model_bytes(inspection->model);
}

/* ---- Numbers of 8 bits ------------------------------------------------------------------------------ */

const char *
leat_in_floats_text(enum leat_in_floats why)
{
    static const char *const texts[LEAT_IN_FLOATS_COUNT] = {
        "both factors are computed", "the constant is the first factor", "weights are not in s8 about 0",
        "the processor has no VNNI", "its groups or window need VNNI",
        "scales, bias or result are not as whole numbers need them"};

    LEAT_ASSERT(why < LEAT_IN_FLOATS_COUNT);
    return texts[why];
}

static bool
is_qlinear(const struct leat_node *node)
{
    return node->op->kind == LEAT_OP_QLINEAR_CONV || node->op->kind == LEAT_OP_QLINEAR_MATMUL;
}

/* The factors of a product, and the second's zero points. */
struct factors {
    const struct leat_value *first, *weights, *zeros; /* zeros: NULL where they are 0 */
};

/* False where the node is no product of 8-bit numbers. */
static bool
find_factors(const struct leat_graph *graph, const uint32_t *producers, const struct leat_node *node, struct factors *ret)
{
    const enum leat_op_kind kind = node->op->kind;

    if (is_qlinear(node)) {
        *ret = (struct factors){leat_node_input(graph, node, 0), leat_node_input(graph, node, 3), leat_node_input(graph, node, 5)};
        return true;
    }
    ret->weights = NULL;
    for (uint32_t i = 0; i < 2 && (kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL); i++) {
        const uint32_t producer = producers[node->inputs[i]];
        if (producer == UINT32_MAX || graph->nodes[producer].op->kind != LEAT_OP_DEQUANTIZE_LINEAR) {
            return false;
        }
        ret->first = ret->weights;
        ret->weights = leat_node_input(graph, &graph->nodes[producer], 0);
        ret->zeros = leat_node_input(graph, &graph->nodes[producer], 2);
    }
    return kind == LEAT_OP_CONV || kind == LEAT_OP_GEMM || kind == LEAT_OP_MATMUL;
}

/* LEAT_IN_FLOATS_OTHER where nothing speaks against whole numbers. */
static enum leat_in_floats
why_in_floats(const struct leat_graph *file, const struct leat_node *node, const struct factors *factors)
{
    const bool conv = node->op->kind == LEAT_OP_CONV || node->op->kind == LEAT_OP_QLINEAR_CONV;
    const struct leat_value *weights = factors->weights;
    const uint8_t *points = factors->zeros != NULL ? factors->zeros->data : NULL;

    if (weights->data == NULL) {
        return factors->first->data != NULL ? LEAT_IN_FLOATS_FIRST : LEAT_IN_FLOATS_COMPUTED;
    }
    for (size_t i = 0; points != NULL && i < factors->zeros->data_bytes; i++) {
        if (points[i] != 0) {
            return LEAT_IN_FLOATS_WEIGHTS;
        }
    }
    if (weights->dtype != LEAT_DTYPE_I8) {
        return LEAT_IN_FLOATS_WEIGHTS;
    }
    if (cpu_weights_most(conv, dnnl_u8) == INT8_MAX || cpu_qconv_suits(file, node, weights)) {
        return LEAT_IN_FLOATS_OTHER;
    }
    return cpu_qconv_runs_here() ? LEAT_IN_FLOATS_SHAPE : LEAT_IN_FLOATS_PROCESSOR;
}

enum leat_status
leat_inspection_numbers(const struct leat_inspection *inspection, const struct leat_graph *file,
                        struct leat_inspection_numbers *ret_numbers)
{
    const struct leat_graph *after = inspection->program->graph;
    uint32_t *producers = malloc(((size_t)file->value_count + 1) * sizeof(*producers)), whole = 0, said = 0;
    struct leat_inspection_numbers numbers = {.products = 0};

    if (producers == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to inspect a model");
    }
    memset(producers, 0xff, ((size_t)file->value_count + 1) * sizeof(*producers)); /* UINT32_MAX */
    for (uint32_t n = 0; n < file->node_count; n++) {
        const struct leat_node *node = &file->nodes[n];
        struct factors factors;
        for (uint32_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] != LEAT_VALUE_NONE) {
                producers[node->outputs[o]] = n;
            }
        }
        if (find_factors(file, producers, node, &factors)) {
            const enum leat_in_floats why = why_in_floats(file, node, &factors);
            numbers.products++;
            numbers.in_floats[why]++;
            said += why != LEAT_IN_FLOATS_OTHER;
        }
    }
    free(producers);
    for (uint32_t n = 0; n < after->node_count; n++) {
        whole += is_qlinear(&after->nodes[n]);
    }
    numbers.in_floats[LEAT_IN_FLOATS_OTHER] = numbers.products > said + whole ? numbers.products - said - whole : 0;
    *ret_numbers = numbers;
    return LEAT_OK;
}

/* ---- Runs ------------------------------------------------------------------------------------------- */

static enum leat_status
run_steps(struct leat_inspection *inspection, struct leat_team *team, void (*mark)(void *context, uint32_t count), void *context)
{
    enum leat_status status = LEAT_OK;

    if (mark == NULL) {
        return cpu_run_execute(inspection->run, team);
    }
    mark(context, 0);
    for (uint32_t s = 0; s < inspection->program->step_count && status == LEAT_OK; s++) {
        status = cpu_run_step(inspection->run, s, team);
        mark(context, s + 1);
    }
    return status;
}

enum leat_status
leat_inspection_run(struct leat_inspection *inspection, const void *const *inputs, struct leat_team *team,
                    void (*mark)(void *context, uint32_t count), void *context)
{
    const struct cpu_program *program = inspection->program;

    leat_openmp_enter(team, program->threads);
    leat_cxx_heap_enter();
    cpu_run_bind(inspection->run, inspection->scratch);
    for (uint32_t i = 0; i < program->graph->input_count; i++) { /* anew: their memory may serve others after their last use */
        cpu_run_set_input(inspection->run, i, inputs[i]);
    }
    const enum leat_status status = run_steps(inspection, team, mark, context);
    leat_cxx_heap_leave();
    leat_openmp_leave();
    return status;
}
