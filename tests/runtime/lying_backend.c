/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that says of a model what its file says: numbers, from which nothing is checked. No model of it is ever loaded. */
#include <leat/backend.h>
#include <stdio.h>
#include <string.h>

static const struct leat_backend_host *leat;

/* "inputs outputs dtype rank dim0 dim1 item_bytes", the same for each tensor, and how the outputs vary, or all of them: "1", "1 all". */
static enum leat_status
describe(const struct leat_model_source *source, struct leat_tensor_info *ret_infos, uint32_t *ret_inputs, uint32_t *ret_outputs)
{
    struct leat_tensor_info info = {.name = "tensor"};
    char text[128] = "";
    long long dims[2];
    unsigned long long item_bytes;

    memcpy(text, source->file, source->file_bytes < sizeof(text) ? source->file_bytes : sizeof(text) - 1);
    if (sscanf(text, "%u %u %u %u %lld %lld %llu %u", ret_inputs, ret_outputs, &info.dtype, &info.rank, &dims[0], &dims[1],
               &item_bytes, &info.varying) < 7) {
        return leat->fail(LEAT_ERR_PROTO, "seven numbers are needed");
    }
    info.dims[0] = dims[0];
    info.dims[1] = dims[1];
    info.item_bytes = item_bytes;
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        ret_infos[t] = info;
        ret_infos[t].varying = t >= *ret_inputs || strstr(text, "all") != NULL ? info.varying : 0;
    }
    return LEAT_OK;
}

static enum leat_status
load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    (void)ret_model;
    return leat->fail(LEAT_ERR_DEVICE, "believed: %u and %u, %s a graph", source->input_count, source->output_count,
                      source->graph == NULL ? "without" : "with");
}

static void
unload(struct leat_model *model)
{
    (void)model;
}

static size_t
model_bytes(const struct leat_model *model)
{
    (void)model;
    return 0;
}

static enum leat_status
build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    (void)model;
    (void)options;
    (void)ret_plan;
    return LEAT_ERR_DEVICE;
}

static void
unbuild(struct leat_plan *plan)
{
    (void)plan;
}

static size_t
scratch_bytes(const struct leat_plan *plan)
{
    (void)plan;
    return 0;
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    (void)plan;
    (void)segments;
    (void)count;
    (void)scratch;
    (void)team;
    return LEAT_ERR_DEVICE;
}

static const struct leat_backend backend = {
    .abi = LEAT_BACKEND_ABI,
    .name = "lying",
    .model_describe = describe,
    .model_load = load,
    .model_destroy = unload,
    .model_bytes = model_bytes,
    .plan_build = build,
    .plan_destroy = unbuild,
    .plan_scratch_bytes = scratch_bytes,
    .plan_run = run,
};

static enum leat_status
open_lying(const struct leat_backend_host *host, const char *options, const struct leat_backend **ret_backend)
{
    (void)options;
    leat = host;
    *ret_backend = &backend;
    return LEAT_OK;
}

const struct leat_backend_plugin leat_backend_plugin = {LEAT_BACKEND_ABI, open_lying};
