/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Target    leat_pipeline_spec_read and leat_pipeline_bind.
 * Input     The description, byte for byte.
 * Property  No crash, leak or sanitizer report; a refusal says why; what is accepted reads of earlier stages only, lies
 *           within its memory, and begins on multiples of LEAT_TENSOR_ALIGN wherever a query may begin.
 */
#include <stdlib.h>

#include "base/status.h"
#include "tests/runtime/pipeline_house.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_stage(const struct leat_pipeline *pipeline, uint32_t s)
{
    const struct leat_pipeline_stage *stage = &pipeline->stages[s];
    const bool repeats = stage->each_stage != UINT32_MAX;

    LEAT_ASSERT(stage->after >> s == 0 && stage->name[0] != '\0');
    LEAT_ASSERT(!repeats || (stage->after >> stage->each_stage & 1) != 0);
    LEAT_ASSERT(!repeats || stage->each_size < pipeline->stages[stage->each_stage].size_count);
    LEAT_ASSERT(!repeats || (stage->each_items >= 1 && stage->each_items <= stage->each_max));
    for (uint32_t t = 0; t < stage->input_count + stage->output_count; t++) {
        const struct leat_pipeline_tensor at = stage->tensors[t];
        const uint64_t items = (uint64_t)pipeline->target.items_max * (repeats ? stage->each_max : 1);
        if (at.place == LEAT_PIPELINE_CLIENT) {
            LEAT_ASSERT(at.index < pipeline->target.input_count + pipeline->target.output_count - 1);
            LEAT_ASSERT(stage->item_bytes[t] * (repeats ? stage->each_max : 1) ==
                        pipeline->target.tensors[at.index].item_bytes);
        } else {
            LEAT_ASSERT((uint64_t)at.index * LEAT_TENSOR_ALIGN + items * stage->item_bytes[t] <= pipeline->workspace_bytes);
        }
        if (repeats) {
            LEAT_ASSERT(stage->each_items == stage->each_max ||
                        stage->each_items * stage->item_bytes[t] % LEAT_TENSOR_ALIGN == 0);
            LEAT_ASSERT(pipeline->target.items_max == 1 || stage->each_max * stage->item_bytes[t] % LEAT_TENSOR_ALIGN == 0);
        }
    }
}

static void
check(const struct leat_pipeline *pipeline)
{
    LEAT_ASSERT(pipeline->stage_count >= 1 && pipeline->runs_max >= 1 && pipeline->runs_max <= LEAT_PIPELINE_RUNS_MAX);
    LEAT_ASSERT(pipeline->workspace_bytes <= house.memory_bytes / pipeline->runs_max);
    LEAT_ASSERT(pipeline->workspace_bytes % LEAT_TENSOR_ALIGN == 0 && pipeline->target.items_max >= 1);
    LEAT_ASSERT(pipeline->size_count * pipeline->target.items_max <= LEAT_SIZES_MAX || pipeline->size_count == 0);
    for (uint32_t i = 0; i < pipeline->size_count; i++) {
        LEAT_ASSERT(pipeline->size_at[i] < pipeline->stages[pipeline->size_of[i]].size_count);
    }
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        check_stage(pipeline, s);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct leat_pipeline_spec spec;
    struct leat_pipeline *pipeline;
    json_t *object = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);

    house_init();
    if (object == NULL) {
        return 0;
    }
    if (leat_pipeline_spec_read(object, &spec) == LEAT_OK) {
        if (leat_pipeline_bind(&spec, &house, &pipeline) == LEAT_OK) {
            check(pipeline);
            free(pipeline);
        } else {
            LEAT_ASSERT(leat_error_text()[0] != '\0');
        }
    } else {
        LEAT_ASSERT(leat_error_text()[0] != '\0');
    }
    json_decref(object);
    return 0;
}
