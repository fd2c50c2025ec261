/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/payload.h"
#include "kernels/team.h"

struct sharing {
    const struct cpu_call *call;
    void (*part)(const struct cpu_call *call, size_t begin, size_t end); /* or: */
    bool (*checked)(const struct cpu_call *call, size_t begin, size_t end);
    size_t count, members;
    atomic_bool failed; /* W: any member; the end of the team's run orders it before the leader's look */
};

static void
run_share(void *context, uint32_t member, uint32_t size)
{
    struct sharing *s = context;
    const size_t begin = s->count * member / s->members, end = s->count * (member + 1) / s->members;

    (void)size;
    if (member >= s->members) {
        return;
    }
    if (s->part != NULL) {
        s->part(s->call, begin, end);
    } else if (!s->checked(s->call, begin, end)) {
        atomic_store_explicit(&s->failed, true, memory_order_relaxed);
    }
}

static bool
share(struct sharing *s, size_t least)
{
    const size_t most = s->count / (least > 0 ? least : 1), threads = s->call->program->threads;

    s->members = most < 1 ? 1 : most < threads ? most : threads;
    if (s->members > 1) {
        leat_team_run(s->call->team, run_share, s);
    } else {
        run_share(s, 0, 1);
    }
    return !atomic_load_explicit(&s->failed, memory_order_relaxed);
}

void
cpu_share(const struct cpu_call *call, void (*part)(const struct cpu_call *call, size_t begin, size_t end),
          size_t count, size_t least)
{
    struct sharing s = {.call = call, .part = part, .count = count};
    (void)share(&s, least);
}

bool
cpu_share_checked(const struct cpu_call *call, bool (*part)(const struct cpu_call *call, size_t begin, size_t end),
                  size_t count, size_t least)
{
    struct sharing s = {.call = call, .checked = part, .count = count};
    return share(&s, least);
}

struct cpu_run {
    const struct cpu_program *program;
    unsigned char *scratch; /* that everything below points into; NULL before the first bind */
    dnnl_stream_t stream;
    dnnl_memory_t *memories; /* [tensor_count]; NULL for constants and types that oneDNN does not have */
    dnnl_exec_arg_t *args;   /* [arg_count] */
    void **pointers;         /* [arg_count] */
    void **values;           /* [value_count] plain forms */
    struct cpu_run **branches; /* [branch_count] */
    void *const *given;        /* of a branch: [input_count] where its inputs are; NULL before the first bind */
    const void **places;     /* [place_count] of lists */
    /*
     * The program's graph with values of its own where some are bounded: these become what they are before anybody reads them,
     * in each run anew. Else values is NULL.
     */
    struct leat_graph live;
};

static unsigned char *
buffer_at(const struct cpu_run *run, uint32_t buffer)
{
    const struct cpu_program *program = run->program;

    return program->is_branch && buffer < program->graph->input_count ? run->given[buffer]
                                                                      : run->scratch + program->buffers[buffer].offset;
}

void *
cpu_run_tensor(const struct cpu_run *run, uint32_t tensor)
{
    const struct cpu_tensor *t = &run->program->tensors[tensor];

    if (t->by_item) {
        return run->places + run->program->lists[t->list].first;
    }
    /* The cast drops const: nothing writes to a constant. */
    return t->constant != NULL ? (void *)(uintptr_t)t->constant->data : buffer_at(run, t->buffer);
}

const void **
cpu_run_places(struct cpu_run *run, uint32_t input)
{
    LEAT_ASSERT(!run->program->copied[input]);
    return run->places + run->program->lists[input].first;
}

/* Where the list's items follow each other from `from` on. */
static void
set_places(struct cpu_run *run, uint32_t list, const unsigned char *from)
{
    const struct cpu_list *l = &run->program->lists[list];

    for (uint32_t i = 0; i < l->count; i++) {
        run->places[l->first + i] = from + i * l->item_bytes;
    }
}

void
cpu_run_set_input(struct cpu_run *run, uint32_t input, const void *batch)
{
    const struct cpu_program *program = run->program;

    if (program->copied[input]) {
        memcpy(cpu_run_tensor(run, program->inputs[input]), batch, program->tensors[program->inputs[input]].bytes);
    } else {
        set_places(run, input, batch);
    }
}

const int64_t *
cpu_run_dims(const struct cpu_run *run, uint32_t value)
{
    return run->live.values != NULL ? run->live.values[value].dims : run->program->graph->values[value].dims;
}

static enum leat_status
create_live(struct cpu_run *run)
{
    const struct leat_graph *graph = run->program->graph;

    if (!leat_graph_is_bounded(graph)) {
        return LEAT_OK;
    }
    run->live = *graph;
    run->live.values = malloc(graph->value_count * sizeof(*graph->values));
    if (run->live.values == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    memcpy(run->live.values, graph->values, graph->value_count * sizeof(*graph->values));
    return LEAT_OK;
}

static enum leat_status
create_memories(struct cpu_run *run, dnnl_engine_t engine)
{
    const struct cpu_program *program = run->program;

    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const struct cpu_tensor *tensor = &program->tensors[t];
        if (tensor->constant == NULL && tensor->md.ndims != 0) {
            const enum leat_status status = cpu_check(
                NULL, "memory", dnnl_memory_create(&run->memories[t], &tensor->md, engine, DNNL_MEMORY_NONE));
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        for (uint32_t a = 0; a < step->arg_count && step->primitive != NULL; a++) {
            const struct cpu_tensor *tensor = &program->tensors[step->args[a].tensor];
            dnnl_memory_t memory =
                tensor->constant != NULL ? tensor->constant->memory : run->memories[step->args[a].tensor];
            LEAT_ASSERT(memory != NULL);
            run->args[step->first_arg + a] = (dnnl_exec_arg_t){step->args[a].id, memory};
        }
    }
    return LEAT_OK;
}

static enum leat_status
create_branches(struct cpu_run *run, dnnl_engine_t engine)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < run->program->branch_count && status == LEAT_OK; i++) {
        status = cpu_run_create(run->program->branches[i].program, engine, &run->branches[i]);
    }
    return status;
}

enum leat_status
cpu_run_create(const struct cpu_program *program, dnnl_engine_t engine, struct cpu_run **ret_run)
{
    struct cpu_run *run = calloc(1, sizeof(*run));
    enum leat_status status = LEAT_OK;

    if (run == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    run->program = program;
    run->memories = calloc((size_t)program->tensor_count + 1, sizeof(*run->memories));
    run->args = calloc((size_t)program->arg_count + 1, sizeof(*run->args));
    run->pointers = calloc((size_t)program->arg_count + 1, sizeof(*run->pointers));
    run->values = calloc((size_t)program->graph->value_count + 1, sizeof(*run->values));
    run->places = calloc((size_t)program->place_count + 1, sizeof(*run->places));
    run->branches = calloc((size_t)program->branch_count + 1, sizeof(struct cpu_run *));
    if (run->memories == NULL || run->args == NULL || run->pointers == NULL || run->values == NULL || run->places == NULL ||
        run->branches == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    } else {
        status = cpu_check(NULL, "stream", dnnl_stream_create(&run->stream, engine, dnnl_stream_default_flags));
    }
    if (status == LEAT_OK) {
        status = create_memories(run, engine);
    }
    if (status == LEAT_OK) {
        status = create_live(run);
    }
    if (status == LEAT_OK) {
        status = create_branches(run, engine);
    }
    if (status != LEAT_OK) {
        cpu_run_destroy(run);
        return status;
    }
    *ret_run = run;
    return LEAT_OK;
}

void
cpu_run_destroy(struct cpu_run *run)
{
    if (run == NULL) {
        return;
    }
    for (uint32_t t = 0; run->memories != NULL && t < run->program->tensor_count; t++) {
        (void)dnnl_memory_destroy(run->memories[t]);
    }
    (void)dnnl_stream_destroy(run->stream);
    free(run->memories);
    free(run->args);
    free(run->pointers);
    free(run->values);
    free(run->places);
    free(run->live.values);
    for (uint32_t i = 0; run->branches != NULL && i < run->program->branch_count; i++) {
        cpu_run_destroy(run->branches[i]); /* as deep as the file nests them */
    }
    free(run->branches);
    free(run);
}

/* It lies where its program around does, which is bound to another place now. */
static void
bind_branch(struct cpu_run *run, const struct cpu_step *step, uint32_t index)
{
    const struct cpu_branch *branch = &run->program->branches[index];
    void *const *pointers = run->pointers + step->first_arg;

    run->branches[index]->given = pointers + branch->first_input;
    cpu_run_bind(run->branches[index], pointers[branch->scratch]);
}

void
cpu_run_bind(struct cpu_run *run, unsigned char *scratch)
{
    const struct cpu_program *program = run->program;

    if (LEAT_LIKELY(run->scratch == scratch)) {
        return;
    }
    run->scratch = scratch;
    for (uint32_t l = 0; l < program->list_count; l++) { /* where inputs are not copied, each run says it anew */
        set_places(run, l, buffer_at(run, program->lists[l].buffer));
    }
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        if (run->memories[t] != NULL && !program->tensors[t].by_item) {
            LEAT_MUST(dnnl_memory_set_data_handle_v2(run->memories[t], cpu_run_tensor(run, t), run->stream) ==
                      dnnl_success);
        }
    }
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct cpu_step *step = &program->steps[s];
        for (uint32_t a = 0; a < step->arg_count; a++) {
            run->pointers[step->first_arg + a] = cpu_run_tensor(run, step->args[a].tensor);
        }
        for (uint32_t i = 0; step->branch != CPU_NONE && i < 2; i++) {
            bind_branch(run, step, step->branch + i);
        }
    }
    for (uint32_t v = 0; v < program->graph->value_count; v++) {
        if (program->plain[v] != CPU_NONE) {
            run->values[v] = cpu_run_tensor(run, program->plain[v]);
        }
    }
}

static enum leat_status
run_each(struct cpu_run *run, const struct cpu_step *step)
{
    const struct cpu_tensor *from = &run->program->tensors[step->args[0].tensor];
    const uint32_t count = run->program->lists[from->list].count;
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        for (uint32_t a = 0; a < 2; a++) {
            const void *const *places = run->pointers[step->first_arg + a];
            /* The cast drops const: nothing is written to what is read. */
            void *place = (void *)(uintptr_t)places[i];
            LEAT_MUST(dnnl_memory_set_data_handle_v2(run->memories[step->args[a].tensor], place, run->stream) ==
                      dnnl_success);
        }
        status = cpu_check(step->node, "run",
                           dnnl_primitive_execute(step->primitive, run->stream, (int)step->arg_count,
                                                  run->args + step->first_arg));
    }
    return status;
}

static struct cpu_call
call_of(struct cpu_run *run, const struct cpu_step *step, struct leat_team *team)
{
    return (struct cpu_call){
        .program = run->program,
        .step = step,
        .pointers = run->pointers + step->first_arg,
        .values = run->values,
        .team = team,
        .live = run->live.values != NULL ? &run->live : NULL,
    };
}

/* What the branch made is the node's. */
static void
take_outputs(struct cpu_run *run, const struct cpu_step *step, const struct cpu_run *branch)
{
    const struct leat_node *node = step->node;
    const struct cpu_program *program = branch->program;

    for (uint32_t o = 0; o < node->output_count; o++) {
        if (node->outputs[o] == LEAT_VALUE_NONE) {
            continue;
        }
        const struct leat_value *made = &program->graph->values[program->graph->outputs[o]];
        memcpy(run->values[node->outputs[o]], cpu_run_tensor(branch, program->outputs[o]), leat_value_bytes(made));
        if (run->live.values != NULL) { /* branches may make other sizes */
            memcpy(run->live.values[node->outputs[o]].dims, made->dims, sizeof(made->dims));
        }
    }
}

/* The condition is payload, and read once. */
static enum leat_status
run_branch(struct cpu_run *run, const struct cpu_step *step, struct leat_team *team)
{
    const bool condition = leat_payload_u8(run->pointers[step->first_arg], 0) != 0;
    struct cpu_run *branch = run->branches[step->branch + condition];

    const enum leat_status status = cpu_run_execute(branch, team);
    if (LEAT_LIKELY(status == LEAT_OK)) {
        take_outputs(run, step, branch);
    }
    return status;
}

enum leat_status
cpu_run_step(struct cpu_run *run, uint32_t s, struct leat_team *team)
{
    const struct cpu_step *step = &run->program->steps[s];

    if (step->branch != CPU_NONE) {
        return run_branch(run, step, team);
    }
    if (step->each) {
        return run_each(run, step);
    }
    if (step->primitive != NULL) {
        leat_openmp_divide(step->parts);
        const dnnl_status_t ran = dnnl_primitive_execute(
            step->primitive, run->stream, (int)step->arg_count, run->args + step->first_arg);
        leat_openmp_divide(1);
        return cpu_check(step->node, "run", ran);
    }
    const struct cpu_call call = call_of(run, step, team);
    return step->kernel(&call);
}

/* That run is to find the thread as a run finds it. */
void
cpu_give_way(const struct cpu_program *program, struct leat_team *team)
{
    leat_cxx_heap_leave();
    leat_openmp_leave();
    leat_team_yield(team);
    leat_openmp_enter(team, program->threads);
    leat_cxx_heap_enter();
}

enum leat_status
cpu_run_execute(struct cpu_run *run, struct leat_team *team)
{
    for (uint32_t s = 0, next; s < run->program->step_count; s = next) {
        const struct cpu_step *step = &run->program->steps[s];
        enum leat_status status;
        if (LEAT_UNLIKELY(leat_team_yields(team))) {
            cpu_give_way(run->program, team);
        }
        if (step->together > 0) {
            const struct cpu_call first = call_of(run, step, team);
            status = cpu_look_up_together(&first);
            next = s + step->together;
        } else {
            status = cpu_run_step(run, s, team);
            next = s + 1;
        }
        if (LEAT_UNLIKELY(status != LEAT_OK)) {
            return status;
        }
    }
    return LEAT_OK;
}
