/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/one_batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/inspect.h"
#include "tests/leat_test.h"

struct leat_tensor_info
info_of(const struct leat_value *value)
{
    return (struct leat_tensor_info){.dtype = value->dtype, .item_bytes = leat_value_bytes(value)};
}

void
load(const struct leat_backend *backend, const struct leat_graph *graph, struct loaded *ret)
{
    load_for_team(backend, graph, NULL, ret);
}

void
load_for_team(const struct leat_backend *backend, const struct leat_graph *graph, struct leat_team *team, struct loaded *ret)
{
    const uint32_t size = leat_team_size(team);
    const struct leat_plan_options options = {.items = 1, .team_sizes = &size, .team_size_count = 1};

    *ret = (struct loaded){.backend = backend, .team = team};
    ret->source = (struct leat_model_source){.graph = graph,
                                             .infos = ret->infos,
                                             .input_count = graph->input_count,
                                             .output_count = graph->output_count};
    EXPECT(graph->input_count + graph->output_count <= LEAT_TENSORS_MAX);
    for (uint32_t i = 0; i < graph->input_count; i++) {
        ret->infos[i] = info_of(&graph->values[graph->inputs[i]]);
    }
    for (uint32_t o = 0; o < graph->output_count; o++) {
        ret->infos[graph->input_count + o] = info_of(&graph->values[graph->outputs[o]]);
    }
    const enum leat_status loaded = backend->model_load(&ret->source, &ret->model);
    if (loaded != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(loaded == LEAT_OK);
    EXPECT(backend->plan_build(ret->model, &options, &ret->plan) == LEAT_OK);
    const size_t bytes = (size_t)leat_round_up(backend->plan_scratch_bytes(ret->plan) + 64, 64);
    ret->scratch = aligned_alloc(64, bytes);
    EXPECT(ret->scratch != NULL);
    memset(ret->scratch, 0xa5, bytes);
}

void
unload(struct loaded *loaded)
{
    free(loaded->scratch);
    loaded->backend->plan_destroy(loaded->plan);
    loaded->backend->model_destroy(loaded->model);
}

enum leat_status
run(const struct loaded *loaded, const void *const *inputs, void *const *outputs)
{
    struct leat_segment segment = {.items = 1};
    const uint32_t first = loaded->source.input_count, count = first + loaded->source.output_count;
    void *blocks[LEAT_TENSORS_MAX];

    for (uint32_t t = 0; t < count; t++) {
        blocks[t] = malloc(loaded->infos[t].item_bytes);
        EXPECT(blocks[t] != NULL);
        memset(blocks[t], 0x5a, loaded->infos[t].item_bytes);
        segment.tensors[t] = blocks[t];
        if (t < first) {
            memcpy(blocks[t], inputs[t], loaded->infos[t].item_bytes);
        }
    }
    const enum leat_status status =
        loaded->backend->plan_run(loaded->plan, &segment, 1, loaded->scratch, loaded->team);
    for (uint32_t t = 0; t < count; t++) {
        if (t >= first) {
            memcpy(outputs[t - first], blocks[t], loaded->infos[t].item_bytes);
        }
        free(blocks[t]);
    }
    return status;
}

struct leat_graph *
import_graph(struct builder *b)
{
    struct leat_graph *graph = NULL;
    const enum leat_status status = builder_import(b, &graph);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    return graph;
}

uint32_t
count_plain_loops(const struct leat_graph *graph, enum leat_op_kind kind)
{
    struct leat_inspection *inspection = NULL;
    uint32_t count = 0;

    EXPECT(leat_inspection_create(graph, LEAT_PRECISION_F32, 1, 1, &inspection) == LEAT_OK);
    const struct leat_graph *shown = leat_inspection_graph(inspection);
    for (uint32_t s = 0; s < leat_inspection_step_count(inspection); s++) {
        struct leat_inspection_step step;
        leat_inspection_step(inspection, s, &step);
        count += step.node != LEAT_VALUE_NONE && shown->nodes[step.node].op->kind == kind && strcmp(step.kernel, "reference") == 0;
    }
    leat_inspection_destroy(inspection);
    return count;
}
