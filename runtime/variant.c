/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/variant.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/graph.h"
#include "kernels/team.h"
#include "runtime/memory.h"

enum { MEASURED_RUNS = 5, MEASURE_BUDGET_MS = 200, TEAM_SPIN_NS = 50000 };

/* The smallest b with 2^b >= items. */
static uint32_t
plan_bucket(uint32_t items)
{
    return items == 1 ? 0 : 32u - (uint32_t)__builtin_clz(items - 1);
}

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Runs one plan on zeros and returns the median time; at least once, at most for MEASURE_BUDGET_MS. */
static enum leat_status
measure_plan(const struct leat_variant *variant, const struct leat_plan *plan, uint32_t items, struct leat_team *team,
             uint64_t *ret_ns)
{
    struct leat_segment segment = {.items = items};
    unsigned char *memory[LEAT_TENSORS_MAX] = {0};
    uint64_t samples_ns[MEASURED_RUNS];
    uint32_t count = 0;
    enum leat_status status = LEAT_OK;
    const size_t scratch_bytes = leat_round_up(variant->backend->plan_scratch_bytes(plan) + 1, 4096);

    void *scratch = aligned_alloc(4096, scratch_bytes);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        const size_t bytes = leat_round_up(variant->item_bytes[t] * items, 4096);
        memory[t] = aligned_alloc(4096, bytes);
        if (memory[t] != NULL) {
            memset(memory[t], 0, bytes);
        }
        segment.tensors[t] = memory[t];
        status = memory[t] == NULL ? LEAT_ERR_NOMEM : status;
    }
    if (scratch == NULL || status != LEAT_OK) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to measure a batch of %u", items);
        goto out_free;
    }
    const uint64_t begin_ns = leat_monotonic_ns();
    while (count < MEASURED_RUNS) {
        const uint64_t start_ns = leat_monotonic_ns();
        status = variant->backend->plan_run(plan, &segment, 1, scratch, team);
        const uint64_t end_ns = leat_monotonic_ns();
        if (status != LEAT_OK && status != LEAT_ERR_SHAPE) { /* zeros may be refused as payload: still timed */
            goto out_free;
        }
        status = LEAT_OK;
        samples_ns[count++] = end_ns - start_ns;
        if (end_ns - begin_ns > MEASURE_BUDGET_MS * UINT64_C(1000000)) {
            break;
        }
    }
    qsort(samples_ns, count, sizeof(samples_ns[0]), compare_u64);
    *ret_ns = samples_ns[count / 2];

out_free:
    free(scratch);
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        free(memory[t]);
    }
    return status;
}

/* The items of the plan in `bucket`. */
static uint32_t
plan_items(const struct leat_variant *variant, uint32_t bucket)
{
    return 1u << bucket < variant->items_max ? 1u << bucket : variant->items_max;
}

static enum leat_status
build_plans(const struct leat_variant_source *source, const struct leat_variant *variant, struct leat_variant_copy *copy,
            struct leat_loaded_variant *loaded)
{
    for (uint32_t bucket = 0; bucket <= plan_bucket(variant->items_max); bucket++) {
        const struct leat_plan_options options = {
            .items = plan_items(variant, bucket),
            .team_sizes = source->team_sizes,
            .team_size_count = source->team_size_count,
            .runs = source->runs,
        };
        const enum leat_status status = variant->backend->plan_build(copy->model, &options, &copy->plans[bucket]);
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "batch of %u", options.items);
        }
        const size_t scratch = variant->backend->plan_scratch_bytes(copy->plans[bucket]);
        loaded->scratch_bytes = scratch > loaded->scratch_bytes ? scratch : loaded->scratch_bytes;
    }
    return LEAT_OK;
}

static enum leat_status
measure_with_team(const struct leat_variant *variant, uint32_t team_size, uint32_t worker_class,
                  struct leat_profile *profile)
{
    struct leat_team *team = NULL;
    enum leat_status status = LEAT_OK;

    if (team_size > 1 || worker_class > 0) {
        status = leat_team_create(&(struct leat_team_options){.size = team_size, .spin_ns = TEAM_SPIN_NS,
                                                              .worker_class = worker_class}, &team);
    }
    for (uint32_t bucket = 0; bucket <= plan_bucket(variant->items_max) && status == LEAT_OK; bucket++) {
        uint64_t latency_ns = 0;
        status = measure_plan(variant, variant->copies[0].plans[bucket], plan_items(variant, bucket), team, &latency_ns);
        if (status == LEAT_OK) {
            leat_profile_set(profile, 1u << bucket, latency_ns);
        } else {
            (void)leat_err_prefix(status, "batch of %u", plan_items(variant, bucket));
        }
    }
    leat_team_destroy(team);
    return status;
}

/* Classes with teams of one size have one profile, unless the backend tells classes apart. */
static enum leat_status
measure(const struct leat_variant_source *source, struct leat_loaded_variant *loaded)
{
    static const uint32_t alone[] = {1};
    const uint32_t *sizes = source->team_size_count > 0 ? source->team_sizes : alone;
    const uint32_t count = source->team_size_count > 0 ? source->team_size_count : 1;

    LEAT_ASSERT(count <= LEAT_WORKER_CLASSES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = 0;
        while (sizes[first] != sizes[i] || (loaded->variant->backend->times_by_class && first != i)) {
            first++;
        }
        if (first < i) {
            loaded->profiles[i] = loaded->profiles[first];
            continue;
        }
        const enum leat_status status = measure_with_team(loaded->variant, sizes[i], i, &loaded->profiles[i]);
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

/* Fills the model source and the signature from the file, or from the synthetic description. */
static enum leat_status
describe(const struct leat_variant_source *source, struct leat_graph **ret_graph, struct leat_target *signature)
{
    if (source->onnx == NULL) {
        LEAT_ASSERT(source->input_count + source->output_count <= LEAT_TENSORS_MAX);
        signature->input_count = source->input_count;
        signature->output_count = source->output_count;
        memcpy(signature->tensors, source->infos,
               (source->input_count + source->output_count) * sizeof(signature->tensors[0]));
        return LEAT_OK;
    }
    struct leat_graph *graph;
    enum leat_status status = leat_onnx_import(source->onnx, source->onnx_bytes, &graph);
    if (status != LEAT_OK) {
        return status;
    }
    status = leat_graph_signature(graph, signature->tensors, &signature->input_count, &signature->output_count);
    if (status == LEAT_OK) {
        status = leat_graph_optimise(graph, UINT64_MAX);
    }
    if (status != LEAT_OK) {
        leat_graph_destroy(graph);
        return status;
    }
    *ret_graph = graph;
    return LEAT_OK;
}

/* Imports the file again for each copy: what a backend uses as it is, like large tables, must lie on the node too. */
static enum leat_status
load_copy(const struct leat_variant_source *source, struct leat_variant *variant, struct leat_variant_copy *copy,
          struct leat_loaded_variant *loaded)
{
    struct leat_graph *graph = NULL;
    enum leat_status status = describe(source, &graph, &loaded->signature);

    if (status != LEAT_OK) {
        return status;
    }
    variant->tensor_count = loaded->signature.input_count + loaded->signature.output_count;
    for (uint32_t t = 0; t < variant->tensor_count; t++) {
        variant->item_bytes[t] = loaded->signature.tensors[t].item_bytes;
    }
    const struct leat_model_source model_source = {
        .graph = graph,
        .options_json = source->options_json,
        .infos = loaded->signature.tensors,
        .input_count = loaded->signature.input_count,
        .output_count = loaded->signature.output_count,
        .class_names = source->class_names,
        .class_count = source->class_names != NULL ? source->team_size_count : 0,
    };
    status = variant->backend->model_load(&model_source, &copy->model);
    leat_graph_destroy(graph);
    if (status == LEAT_OK) {
        status = build_plans(source, variant, copy, loaded);
    }
    if (status == LEAT_OK) {
        loaded->model_bytes += variant->backend->model_bytes(copy->model);
    }
    return status;
}

static enum leat_status
load_copies(const struct leat_variant_source *source, struct leat_variant *variant, struct leat_loaded_variant *loaded)
{
    const uint32_t count = source->node_count > 0 ? source->node_count : 1;

    variant->copies = calloc(count, sizeof(*variant->copies));
    if (variant->copies == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u copies", count);
    }
    variant->copy_count = count;
    for (uint32_t c = 0; c < count; c++) {
        if (source->node_count > 0) {
            leat_memory_enter_node(source->nodes[c]);
        }
        const enum leat_status status = load_copy(source, variant, &variant->copies[c], loaded);
        leat_memory_leave_node();
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_variant_load(const struct leat_variant_source *source, struct leat_loaded_variant *ret_loaded)
{
    struct leat_loaded_variant loaded = {0};
    const uint64_t start_ns = leat_monotonic_ns();

    LEAT_ASSERT(source->items_max >= 1 && source->items_max <= LEAT_ITEMS_MAX);
    const struct leat_backend *backend = leat_backend_find(source->backend);
    if (backend == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "model '%s': there is no backend '%s' (cpu, reference, synthetic)",
                         source->name, source->backend);
    }
    struct leat_variant *variant = calloc(1, sizeof(*variant));
    if (variant == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for model '%s'", source->name);
    }
    (void)strncpy(variant->name, source->name, sizeof(variant->name) - 1);
    variant->backend = backend;
    variant->items_max = source->items_max;
    variant->accuracy_ppm = source->accuracy_ppm;
    loaded.variant = variant;
    enum leat_status status = load_copies(source, variant, &loaded);
    if (status == LEAT_OK) {
        status = measure(source, &loaded);
    }
    if (status != LEAT_OK) {
        leat_variant_destroy(variant);
        return leat_err_prefix(status, "model '%s'", source->name);
    }
    loaded.signature.items_max = source->items_max;
    loaded.load_ns = leat_monotonic_ns() - start_ns;
    *ret_loaded = loaded;
    return LEAT_OK;
}

void
leat_variant_destroy(struct leat_variant *variant)
{
    if (variant == NULL) {
        return;
    }
    for (uint32_t c = 0; c < variant->copy_count; c++) {
        struct leat_variant_copy *copy = &variant->copies[c];
        for (uint32_t bucket = 0; bucket < LEAT_PLANS_MAX; bucket++) {
            if (copy->plans[bucket] != NULL) {
                variant->backend->plan_destroy(copy->plans[bucket]);
            }
        }
        if (copy->model != NULL) {
            variant->backend->model_destroy(copy->model);
        }
    }
    free(variant->copies);
    free(variant);
}
