/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cpu backend: oneDNN primitives, and plain loops for what it does not have.
 *
 * Weights    Converted once into each layout that some kernel wants, kept by the model, shared read-only, by plans of
 *            all lengths too.
 * Inputs     Read where queries have them by what makes numbers of them, item by item, in private memory: layout
 *            conversions, roundings, first convolutions. A client that writes to them meanwhile changes its own answers.
 *            What reads them in another way, or as indices, gets a copy.
 * Plans      A program per team size. Items that a batch leaves over repeat the last one, so that they
 *            cannot fail where the items do not.
 * Runs       oneDNN's memory objects hold their address, so two runs cannot share them: a plan has a slot
 *            of them for each run that may be under way. A worker finds the slot that its scratch block was
 *            bound to last time; in the steady state nobody else writes to it.
 * Ordering   P0 a run that ends stores `busy` = 0, release -> P1 the next owner's exchange, acquire: it sees
 *            which block the slot is bound to, and the bindings.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/program.h"
#include "kernels/graph_build.h"
#include "kernels/mapping.h"
#include "kernels/sequence.h"
#include "kernels/team.h"

struct leat_model {
    uint32_t graph_count; /* lengths, or 1 */
    uint32_t lengths[LEAT_LENGTHS_MAX];
    struct leat_graph *graphs[LEAT_LENGTHS_MAX]; /* our copies; payloads are shared with the source */
    struct leat_payload *payloads;               /* of the graphs' constants */
    size_t payload_count, payload_bytes;
    dnnl_engine_t engine;
    dnnl_data_type_t type;
    bool quantised;
    uint32_t planned_without; /* LEAT_PLANS_* */
    pthread_mutex_t mutex; /* of `constants`: control threads only */
    struct cpu_constants constants;
    uint64_t memory_left;        /* of the graph's limit, for all that is made of it */
    _Atomic uint64_t memory_bytes; /* of that: W: control threads */
    uint32_t input_count, output_count;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX]; /* inputs, then outputs */
    bool one_by_one; /* programs are for 1 item */
    struct leat_item_layout layout;
};

/* One run under way. */
struct slot {
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t busy; /* W: whoever owns the slot, P0, P1 */
    _Atomic uintptr_t scratch;                    /* W: the owner; R: anyone, as a hint */
    struct cpu_run **runs;                        /* [program_count] */
};

struct leat_plan {
    const struct leat_model *model;
    uint32_t which, length; /* of the model's graphs */
    uint32_t items;
    uint32_t program_count;
    struct cpu_program **programs; /* by rising number of threads; the first has 1 */
    uint32_t slot_count;
    struct slot *slots;
    size_t scratch_bytes;
};

/* Native instructions only: emulated, bf16 is slower than f32. int8 is not measured, nor tested, in vectors narrower than those of AVX2. */
static uint32_t
cpu_precisions(void)
{
    const uint32_t bf16 = dnnl_cpu_isa_avx512_core_bf16, int8 = dnnl_cpu_isa_avx2, have = dnnl_get_effective_cpu_isa();
    return LEAT_PRECISION_BIT(LEAT_PRECISION_F32) |
           ((have & bf16) == bf16 ? LEAT_PRECISION_BIT(LEAT_PRECISION_BF16) : 0) |
           ((have & int8) == int8 ? LEAT_PRECISION_BIT(LEAT_PRECISION_INT8) : 0);
}

/* ---- Model ------------------------------------------------------------------------------------------ */

dnnl_engine_t
cpu_model_engine(const struct leat_model *model)
{
    return model->engine;
}

const struct leat_graph *
cpu_model_graph(const struct leat_model *model)
{
    return model->graphs[0];
}

dnnl_data_type_t
cpu_model_type(const struct leat_model *model)
{
    return model->type;
}

bool
cpu_model_is_quantised(const struct leat_model *model)
{
    return model->quantised;
}

bool
cpu_model_plans(const struct leat_model *model, uint32_t what)
{
    return (model->planned_without & what) == 0;
}

bool
cpu_model_takes_items(const struct leat_model *model, uint32_t input)
{
    return model->layout.tensors[input].outer == 0;
}

enum leat_status
cpu_model_may_take(const struct leat_model *model, uint64_t bytes)
{
    const uint64_t taken = atomic_load_explicit(&model->memory_bytes, memory_order_relaxed);

    if (taken > model->memory_left || bytes > model->memory_left - taken) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "its layouts and kernels take %llu bytes beside the constants, the model's limit leaves %llu",
                         (unsigned long long)(taken + bytes), (unsigned long long)model->memory_left);
    }
    return LEAT_OK;
}

enum leat_status
cpu_model_take(struct leat_model *model, struct cpu_program *program, uint64_t bytes)
{
    const enum leat_status status = cpu_model_may_take(model, bytes);

    if (status == LEAT_OK) {
        (void)atomic_fetch_add_explicit(&model->memory_bytes, bytes, memory_order_relaxed);
        if (program != NULL) {
            program->memory_bytes += bytes;
        }
    }
    return status;
}

void
cpu_model_give_back(struct leat_model *model, uint64_t bytes)
{
    (void)atomic_fetch_sub_explicit(&model->memory_bytes, bytes, memory_order_relaxed);
}

bool
cpu_model_owns(const struct leat_model *model, const void *payload)
{
    return leat_payloads_have(model->payloads, model->payload_count, payload);
}

struct cpu_constants *
cpu_model_lock_constants(struct leat_model *model)
{
    LEAT_MUST(pthread_mutex_lock(&model->mutex) == 0);
    return &model->constants;
}

void
cpu_model_unlock_constants(struct leat_model *model)
{
    LEAT_MUST(pthread_mutex_unlock(&model->mutex) == 0);
}

static void
cpu_model_destroy(struct leat_model *model)
{
    if (model == NULL) {
        return;
    }
    cpu_constants_fini(&model->constants);
    (void)dnnl_engine_destroy(model->engine);
    for (uint32_t k = 0; k < model->graph_count; k++) {
        leat_graph_destroy(model->graphs[k]);
    }
    LEAT_MUST(pthread_mutex_destroy(&model->mutex) == 0);
    free(model->payloads);
    free(model);
}

/* oneDNN writes the code of its own matrix product when one first runs, which takes some ms: not in somebody's batch. */
static void
write_product(void)
{
    const float one = 1;
    float sum = 0;

    LEAT_MUST(dnnl_sgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &sum, 1) == dnnl_success);
}

static enum leat_status
cpu_model_load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint32_t tensors = source->input_count + source->output_count;
    struct cpu_program *program = NULL;

    if (source->graph == NULL || tensors > LEAT_TENSORS_MAX || source->input_count != source->graph->input_count ||
        source->output_count != source->graph->output_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the cpu backend needs a graph and its signature");
    }
    struct leat_model *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model");
    }
    LEAT_MUST(pthread_once(&once, write_product) == 0);
    LEAT_MUST(pthread_mutex_init(&model->mutex, NULL) == 0);
    model->input_count = source->input_count;
    model->output_count = source->output_count;
    model->type = source->precision == LEAT_PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
    model->quantised = source->precision == LEAT_PRECISION_INT8;
    model->planned_without = source->graph->planned_without;
    memcpy(model->infos, source->infos, tensors * sizeof(model->infos[0]));
    model->one_by_one = source->one_by_one;
    leat_item_layout_init(&model->layout, source);
    enum leat_status status = cpu_check(NULL, "engine", dnnl_engine_create(&model->engine, dnnl_cpu, 0));
    if (status == LEAT_OK) {
        status = leat_source_copy_graphs(source, model->graphs, model->lengths, &model->graph_count);
    }
    /* The full length first: weights that become floats are kept once for all. */
    for (uint32_t k = model->graph_count; k-- > 0 && status == LEAT_OK;) {
        status = leat_graph_split_quantised(model->graphs[k], cpu_multiplies_whole);
        if (status == LEAT_OK) {
            leat_graph_unify(model->graphs[k], model->graphs[model->graph_count - 1]);
        }
    }
    if (status == LEAT_OK) {
        status = leat_graphs_payloads(model->graphs, model->graph_count, &model->payloads, &model->payload_count);
    }
    if (status == LEAT_OK) {
        const uint64_t most = leat_graph_memory_max(model->graphs[0]);
        model->payload_bytes = leat_payloads_bytes(model->payloads, model->payload_count);
        model->memory_left = model->payload_bytes < most ? most - model->payload_bytes : 0;
        /* What no plan could do is refused now, and the weights are there before the first plan. */
        status = cpu_program_build(model, model->graphs[model->graph_count - 1], 1, 1, &program);
        if (status == LEAT_OK && leat_graph_is_bounded(program->graph) && !model->one_by_one) {
            status = LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "a shape depends on tensor contents");
        }
        cpu_program_destroy(program);
    }
    if (status != LEAT_OK) {
        cpu_model_destroy(model);
        return status;
    }
    *ret_model = model;
    return LEAT_OK;
}

static size_t
cpu_model_bytes(const struct leat_model *model)
{
    struct leat_model *mutable = (struct leat_model *)(uintptr_t)model; /* for the mutex alone */
    const size_t constants = cpu_constants_bytes(cpu_model_lock_constants(mutable));

    cpu_model_unlock_constants(mutable);
    return sizeof(*model) + model->payload_bytes + constants;
}

/* ---- Plan ------------------------------------------------------------------------------------------- */

static void
cpu_plan_destroy(struct leat_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (uint32_t s = 0; s < plan->slot_count; s++) {
        for (uint32_t p = 0; p < plan->program_count; p++) {
            cpu_run_destroy(plan->slots[s].runs[p]);
        }
        free(plan->slots[s].runs);
    }
    for (uint32_t p = 0; p < plan->program_count; p++) {
        cpu_program_destroy(plan->programs[p]);
    }
    free(plan->programs);
    free(plan->slots);
    free(plan);
}

/* The next larger team size than `size`, or UINT32_MAX. */
static uint32_t
next_team_size(const struct leat_plan_options *options, uint32_t size)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t i = 0; i < options->team_size_count; i++) {
        if (options->team_sizes[i] > size && options->team_sizes[i] < next) {
            next = options->team_sizes[i];
        }
    }
    return next;
}

static enum leat_status
check_signature(const struct leat_model *model, const struct leat_graph *graph, uint32_t items, uint32_t length)
{
    for (uint32_t t = 0; t < model->input_count + model->output_count; t++) {
        const uint32_t value = t < model->input_count ? graph->inputs[t] : graph->outputs[t - model->input_count];
        const size_t bytes = leat_value_bytes(&graph->values[value]);
        const size_t expected = items * leat_item_bytes(&model->layout, t, length);
        if (bytes != expected) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "tensor %u has %zu bytes for %u items, its signature says %zu", t, bytes,
                             items, expected);
        }
    }
    return LEAT_OK;
}

static enum leat_status
build_programs(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan *plan)
{
    plan->programs = calloc((size_t)options->team_size_count + 1, sizeof(struct cpu_program *));
    if (plan->programs == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    const uint32_t items = model->one_by_one ? 1 : plan->items;
    for (uint32_t threads = 1; threads != UINT32_MAX; threads = next_team_size(options, threads)) {
        struct cpu_program *program;
        if (threads > LEAT_TEAM_MAX) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "a plan for a team of %u; 1 to %u are possible", threads, LEAT_TEAM_MAX);
        }
        enum leat_status status = cpu_program_build(model, model->graphs[plan->which], items, threads, &program);
        if (status != LEAT_OK) {
            return status;
        }
        plan->programs[plan->program_count++] = program;
        status = check_signature(model, program->graph, items, plan->length);
        if (status != LEAT_OK) {
            return status;
        }
        plan->scratch_bytes = program->scratch_bytes > plan->scratch_bytes ? program->scratch_bytes : plan->scratch_bytes;
    }
    return LEAT_OK;
}

static enum leat_status
make_slots(struct leat_plan *plan, uint32_t count)
{
    plan->slots = aligned_alloc(LEAT_ISOLATE, count * sizeof(struct slot));
    if (plan->slots == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    memset(plan->slots, 0, count * sizeof(struct slot));
    for (uint32_t s = 0; s < count; s++) {
        plan->slots[s].runs = calloc(plan->program_count, sizeof(struct cpu_run *));
        if (plan->slots[s].runs == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
        }
        plan->slot_count++;
        for (uint32_t p = 0; p < plan->program_count; p++) {
            const enum leat_status status =
                cpu_run_create(plan->programs[p], plan->model->engine, &plan->slots[s].runs[p]);
            if (status != LEAT_OK) {
                return status;
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
cpu_plan_build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    if (options->items < 1 || options->items > LEAT_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a plan for %u items; 1 to %u are possible", options->items, LEAT_ITEMS_MAX);
    }
    struct leat_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    plan->model = model;
    plan->items = options->items;
    enum leat_status status = leat_length_find(model->lengths, model->graph_count, options->length, &plan->which);
    if (status == LEAT_OK) {
        plan->length = model->lengths[plan->which];
        status = build_programs(model, options, plan);
    }
    if (status == LEAT_OK) {
        status = make_slots(plan, options->runs > 0 ? options->runs : 1);
    }
    if (status != LEAT_OK) {
        cpu_plan_destroy(plan);
        return status;
    }
    *ret_plan = plan;
    return LEAT_OK;
}

static size_t
cpu_plan_scratch_bytes(const struct leat_plan *plan)
{
    return plan->scratch_bytes;
}

/* ---- Run -------------------------------------------------------------------------------------------- */

static struct slot *
acquire_slot(const struct leat_plan *plan, const void *scratch)
{
    for (int pass = 0; pass < 2; pass++) { /* first the one that knows this block, then any */
        for (uint32_t s = 0; s < plan->slot_count; s++) {
            struct slot *slot = &plan->slots[s];
            if (pass == 0 && atomic_load_explicit(&slot->scratch, memory_order_relaxed) != (uintptr_t)scratch) {
                continue;
            }
            if (atomic_load_explicit(&slot->busy, memory_order_relaxed) == 0 &&
                atomic_exchange_explicit(&slot->busy, 1, memory_order_acquire) == 0) { /* P1 */
                if (pass == 1) {
                    atomic_store_explicit(&slot->scratch, (uintptr_t)scratch, memory_order_relaxed);
                }
                return slot;
            }
        }
    }
    return NULL;
}

/* What a run made of one item. */
static enum leat_status
store_outputs(const struct leat_model *model, const struct cpu_program *program, const struct cpu_run *run,
              const struct leat_segment *segment)
{
    uint16_t size, *next_size = segment->sizes;

    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct leat_tensor_info *info = &model->infos[model->input_count + o];
        const uint32_t value = program->graph->outputs[o];
        /* The cast drops const: output tensors of a segment are for us to write. */
        const enum leat_status status =
            leat_signature_store(info, &program->graph->values[value], cpu_run_dims(run, value),
                                 cpu_run_tensor(run, program->outputs[o]),
                                 (void *)(uintptr_t)segment->tensors[model->input_count + o], &size);
        if (status != LEAT_OK) {
            return status;
        }
        if (info->varying != 0 && next_size != NULL) {
            *next_size++ = size;
        }
    }
    return LEAT_OK;
}

static enum leat_status
run_program(const struct leat_plan *plan, const struct cpu_program *program, struct cpu_run *run,
            const struct leat_segment *segments, uint32_t count, uint32_t missing, struct leat_team *team)
{
    const struct leat_model *model = plan->model;

    for (uint32_t t = 0; t < model->input_count; t++) {
        if (program->copied[t]) {
            leat_items_gather(&model->layout, plan->length, segments, count, t, missing,
                              cpu_run_tensor(run, program->inputs[t]));
        } else {
            leat_segments_list(segments, count, t, model->infos[t].item_bytes, missing, cpu_run_places(run, t));
        }
    }
    enum leat_status status = cpu_run_execute(run, team);
    if (LEAT_UNLIKELY(leat_mapping_any_damaged()) && leat_graph_is_damaged(model->graphs[plan->which])) {
        status = LEAT_ERR_SYS;
    }
    if (status == LEAT_OK && model->one_by_one) {
        return store_outputs(model, program, run, &segments[0]);
    }
    for (uint32_t o = 0; o < model->output_count && status == LEAT_OK; o++) {
        const uint32_t t = model->input_count + o;
        leat_items_scatter(&model->layout, plan->length, segments, count, t, cpu_run_tensor(run, program->outputs[o]));
    }
    return status;
}

static enum leat_status
run_one_by_one(const struct leat_plan *plan, const struct cpu_program *program, struct cpu_run *run,
               const struct leat_segment *segments, uint32_t count, struct leat_team *team)
{
    const struct leat_model *model = plan->model;
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t item = 0; item < segments[i].items && status == LEAT_OK; item++) {
            const struct leat_segment one =
                leat_segment_item(&segments[i], item, model->infos, model->input_count + model->output_count);
            status = run_program(plan, program, run, &one, 1, 0, team);
        }
    }
    return status;
}

static enum leat_status
cpu_plan_run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
             struct leat_team *team)
{
    uint32_t p = plan->program_count - 1;
    uint64_t items = 0;

    for (uint32_t i = 0; i < count; i++) {
        items += segments[i].items;
    }
    if (LEAT_UNLIKELY(items == 0 || items > plan->items ||
                      !leat_items_fit(&plan->model->layout, plan->length, segments, count))) {
        return LEAT_ERR_INVALID;
    }
    while (plan->programs[p]->threads > leat_team_size(team)) {
        p--; /* the first program has one thread */
    }
    struct slot *slot = acquire_slot(plan, scratch);
    if (LEAT_UNLIKELY(slot == NULL)) {
        return LEAT_ERR_BUSY;
    }
    leat_openmp_enter(team, plan->programs[p]->threads);
    leat_cxx_heap_enter();
    cpu_run_bind(slot->runs[p], scratch);
    const enum leat_status status =
        plan->model->one_by_one
            ? run_one_by_one(plan, plan->programs[p], slot->runs[p], segments, count, team)
            : run_program(plan, plan->programs[p], slot->runs[p], segments, count, plan->items - (uint32_t)items, team);
    leat_cxx_heap_leave();
    leat_openmp_leave();
    atomic_store_explicit(&slot->busy, 0, memory_order_release); /* P0 */
    return status;
}

const struct leat_backend leat_backend_cpu = {
    .abi = LEAT_BACKEND_ABI,
    .name = "cpu",
    .takes_lengths = true,
    .yields = true,
    .precisions = cpu_precisions,
    .model_load = cpu_model_load,
    .model_destroy = cpu_model_destroy,
    .model_bytes = cpu_model_bytes,
    .plan_build = cpu_plan_build,
    .plan_destroy = cpu_plan_destroy,
    .plan_scratch_bytes = cpu_plan_scratch_bytes,
    .plan_run = cpu_plan_run,
};
