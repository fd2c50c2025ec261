/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"

struct leat_inspection {
    struct leat_model *model;
    struct cpu_program *program;
    struct cpu_run *run;
    unsigned char *scratch;
    size_t live_bytes;
};

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
        memcpy(cpu_run_tensor(inspection->run, program->inputs[i]), inputs[i],
               leat_value_bytes(&program->graph->values[program->graph->inputs[i]]));
    }
    const enum leat_status status = run_steps(inspection, team, mark, context);
    leat_cxx_heap_leave();
    leat_openmp_leave();
    return status;
}
