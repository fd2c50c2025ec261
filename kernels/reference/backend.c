/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference backend: gathers a batch into contiguous tensors, runs the specialised graph, scatters.
 *
 * A plan holds the graph for 1, 2, 4, ... items up to its limit; a batch runs on the smallest that fits.
 * The rows that are left over repeat the last item, so that they cannot fail where the items do not.
 * A model whose items are run one by one has a graph for 1 item alone.
 * Models with sequences have a graph for each length; a plan is of one of them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph_build.h"
#include "kernels/mapping.h"
#include "kernels/reference/reference.h"
#include "kernels/sequence.h"

#define ALIGN     64u
#define SIZES_MAX 18u /* 1, 2, ... 2^16, and one in between that is the limit itself */

struct leat_model {
    uint32_t graph_count; /* lengths, or 1 */
    uint32_t lengths[LEAT_LENGTHS_MAX];
    struct leat_graph *graphs[LEAT_LENGTHS_MAX]; /* our copies; payloads are shared with the source */
    uint32_t input_count, output_count;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX]; /* inputs, then outputs */
    size_t payload_bytes; /* of the graphs' constants */
    bool one_by_one;
    struct leat_item_layout layout;
};

struct leat_plan {
    const struct leat_model *model;
    uint32_t items;
    uint32_t which, length; /* of the model's graphs */
    uint32_t size_count;
    uint32_t sizes[SIZES_MAX]; /* ascending */
    struct leat_graph *graphs[SIZES_MAX];
    size_t tensor_offset[SIZES_MAX][LEAT_TENSORS_MAX]; /* of the gathered tensors in scratch */
    size_t run_offset[SIZES_MAX];                      /* of leat_reference_run()'s own scratch */
    size_t scratch_bytes;
};

static void
reference_model_destroy(struct leat_model *model)
{
    if (model != NULL) {
        for (uint32_t k = 0; k < model->graph_count; k++) {
            leat_graph_destroy(model->graphs[k]);
        }
        free(model);
    }
}

static enum leat_status
reference_model_load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    const uint32_t tensors = source->input_count + source->output_count;
    struct leat_payload *payloads;
    size_t count;

    if (source->graph == NULL || tensors > LEAT_TENSORS_MAX ||
        source->input_count != source->graph->input_count ||
        source->output_count != source->graph->output_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the reference backend needs a graph and its signature");
    }
    struct leat_model *model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model");
    }
    model->input_count = source->input_count;
    model->output_count = source->output_count;
    memcpy(model->infos, source->infos, tensors * sizeof(model->infos[0]));
    model->one_by_one = source->one_by_one;
    leat_item_layout_init(&model->layout, source);
    enum leat_status status = leat_source_copy_graphs(source, model->graphs, model->lengths, &model->graph_count);
    for (uint32_t k = 0; k < model->graph_count && status == LEAT_OK; k++) {
        status = leat_graph_settle(model->graphs[k]);
    }
    if (status == LEAT_OK) {
        status = leat_graphs_payloads(model->graphs, model->graph_count, &payloads, &count);
    }
    if (status != LEAT_OK) {
        reference_model_destroy(model);
        return status;
    }
    model->payload_bytes = leat_payloads_bytes(payloads, count);
    free(payloads);
    *ret_model = model;
    return LEAT_OK;
}

static size_t
reference_model_bytes(const struct leat_model *model)
{
    return sizeof(*model) + model->payload_bytes;
}

static void
reference_plan_destroy(struct leat_plan *plan)
{
    if (plan != NULL) {
        for (uint32_t s = 0; s < plan->size_count; s++) {
            leat_graph_destroy(plan->graphs[s]);
        }
        free(plan);
    }
}

/* The value of tensor t: inputs first, then outputs. */
static const struct leat_value *
tensor_value(const struct leat_model *model, const struct leat_graph *graph, uint32_t t)
{
    return &graph->values[t < model->input_count ? graph->inputs[t]
                                                 : graph->outputs[t - model->input_count]];
}

static enum leat_status
add_size(struct leat_plan *plan, uint32_t items)
{
    const struct leat_model *model = plan->model;
    const uint32_t s = plan->size_count;
    size_t run_bytes, used = 0;

    LEAT_ASSERT(s < SIZES_MAX);
    enum leat_status status = leat_graph_specialise(model->graphs[plan->which], items, &plan->graphs[s]);
    if (status != LEAT_OK) {
        return status;
    }
    plan->sizes[s] = items;
    plan->size_count++;
    if (leat_graph_is_bounded(plan->graphs[s]) && !model->one_by_one) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "a shape depends on tensor contents");
    }
    for (uint32_t t = 0; t < model->input_count + model->output_count; t++) {
        const size_t bytes = leat_value_bytes(tensor_value(model, plan->graphs[s], t));
        const size_t expected = items * leat_item_bytes(&model->layout, t, plan->length);
        if (bytes != expected) {
            return LEAT_FAIL(LEAT_ERR_SHAPE,
                             "tensor %u has %zu bytes for %u items, its signature says %zu", t,
                             bytes, items, expected);
        }
        plan->tensor_offset[s][t] = used;
        used += (size_t)leat_round_up(bytes, ALIGN);
    }
    status = leat_reference_scratch_bytes(plan->graphs[s], &run_bytes);
    plan->run_offset[s] = used;
    used += run_bytes;
    plan->scratch_bytes = used > plan->scratch_bytes ? used : plan->scratch_bytes;
    return status;
}

static enum leat_status
reference_plan_build(struct leat_model *model, const struct leat_plan_options *options,
                     struct leat_plan **ret_plan)
{
    const uint32_t items = options->items;

    if (items < 1 || items > LEAT_ITEMS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a plan for %u items; 1 to %u are possible", items,
                         LEAT_ITEMS_MAX);
    }
    struct leat_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    plan->model = model;
    plan->items = items;
    const uint32_t largest = model->one_by_one ? 1 : items;
    enum leat_status status = leat_length_find(model->lengths, model->graph_count, options->length, &plan->which);
    plan->length = status == LEAT_OK ? model->lengths[plan->which] : 0;
    for (uint32_t size = 1; size < largest && status == LEAT_OK; size *= 2) {
        status = add_size(plan, size);
    }
    if (status == LEAT_OK) {
        status = add_size(plan, largest);
    }
    if (status != LEAT_OK) {
        reference_plan_destroy(plan);
        return status;
    }
    *ret_plan = plan;
    return LEAT_OK;
}

static size_t
reference_plan_scratch_bytes(const struct leat_plan *plan)
{
    return plan->scratch_bytes;
}

/* On graph s, whose items these are together. */
static enum leat_status
run_graph(const struct leat_plan *plan, uint32_t s, const struct leat_segment *segments, uint32_t count, uint32_t items,
          unsigned char *scratch)
{
    const struct leat_model *model = plan->model;
    const void *inputs[LEAT_TENSORS_MAX];
    void *outputs[LEAT_TENSORS_MAX];
    struct leat_shape shapes[LEAT_TENSORS_MAX];
    uint16_t size, *next_size = segments[0].sizes;

    for (uint32_t t = 0; t < model->input_count; t++) {
        unsigned char *gathered = scratch + plan->tensor_offset[s][t];
        leat_items_gather(&model->layout, plan->length, segments, count, t, plan->sizes[s] - items, gathered);
        inputs[t] = gathered;
    }
    for (uint32_t o = 0; o < model->output_count; o++) {
        outputs[o] = scratch + plan->tensor_offset[s][model->input_count + o];
    }
    enum leat_status status = leat_reference_run(plan->graphs[s], inputs, outputs, scratch + plan->run_offset[s], shapes);
    if (LEAT_UNLIKELY(leat_mapping_any_damaged()) && leat_graph_is_damaged(model->graphs[plan->which])) {
        return LEAT_ERR_SYS;
    }
    for (uint32_t o = 0; o < model->output_count && status == LEAT_OK; o++) {
        const uint32_t t = model->input_count + o;
        if (!model->one_by_one) {
            leat_items_scatter(&model->layout, plan->length, segments, count, t, outputs[o]);
            continue;
        }
        /* The cast drops const: output tensors of a segment are for us to write. */
        status = leat_signature_store(&model->infos[t], tensor_value(model, plan->graphs[s], t), shapes[o].dims, outputs[o],
                                      (void *)(uintptr_t)segments[0].tensors[t], &size);
        if (status == LEAT_OK && model->infos[t].varying != 0 && next_size != NULL) {
            *next_size++ = size;
        }
    }
    return status;
}

static enum leat_status
reference_plan_run(const struct leat_plan *plan, const struct leat_segment *segments,
                   uint32_t count, void *scratch, struct leat_team *team)
{
    const struct leat_model *model = plan->model;
    enum leat_status status = LEAT_OK;
    uint64_t items = 0;
    uint32_t s = 0;

    (void)team; /* plain loops on the leader */
    for (uint32_t i = 0; i < count; i++) {
        items += segments[i].items;
    }
    if (items == 0 || items > plan->items || !leat_items_fit(&model->layout, plan->length, segments, count)) {
        return LEAT_ERR_INVALID;
    }
    if (!model->one_by_one) {
        while (plan->sizes[s] < items) {
            s++;
        }
        return run_graph(plan, s, segments, count, (uint32_t)items, scratch);
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t item = 0; item < segments[i].items && status == LEAT_OK; item++) {
            const struct leat_segment one =
                leat_segment_item(&segments[i], item, model->infos, model->input_count + model->output_count);
            status = run_graph(plan, 0, &one, 1, 1, scratch);
        }
    }
    return status;
}

const struct leat_backend leat_backend_reference = {
    .abi = LEAT_BACKEND_ABI,
    .name = "reference",
    .takes_lengths = true,
    .model_load = reference_model_load,
    .model_destroy = reference_model_destroy,
    .model_bytes = reference_model_bytes,
    .plan_build = reference_plan_build,
    .plan_destroy = reference_plan_destroy,
    .plan_scratch_bytes = reference_plan_scratch_bytes,
    .plan_run = reference_plan_run,
};
