/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend outside leat's tree: y = scale * x + offset, element by element. Its model files are one line of text,
 * "affine WIDTH SCALE OFFSET": x and y are f32[items][WIDTH]. A worker's team shares the elements of each query; between
 * two queries of a batch the worker may do something more urgent.
 */
#include <leat/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct leat_backend_host *leat;

struct leat_model {
    unsigned width;
    float scale, offset;
};

struct leat_plan {
    const struct leat_model *model;
};

/* A file is no text that ends with a zero, and anything may be in it. */
static enum leat_status
read_file(const void *file, size_t bytes, struct leat_model *ret_model)
{
    char line[128];
    int used = 0;

    if (bytes >= sizeof(line)) return leat->fail(LEAT_ERR_PROTO, "%zu bytes are too many for a line", bytes);
    memcpy(line, file, bytes);
    line[bytes] = '\0';
    if (sscanf(line, "affine %u %f %f %n", &ret_model->width, &ret_model->scale, &ret_model->offset, &used) != 3 ||
        line[used] != '\0' || ret_model->width < 1 || ret_model->width > 1u << 20) {
        return leat->fail(LEAT_ERR_PROTO, "not 'affine WIDTH SCALE OFFSET'");
    }
    return LEAT_OK;
}

static enum leat_status
describe(const struct leat_model_source *source, struct leat_tensor_info *ret_infos, uint32_t *ret_inputs, uint32_t *ret_outputs)
{
    struct leat_model model;
    const enum leat_status status = read_file(source->file, source->file_bytes, &model);

    if (status != LEAT_OK) return status;
    if (source->dim_count > 0) return leat->fail(LEAT_ERR_INVALID, "there is no dimension '%s'", source->dims[0].name);
    for (int t = 0; t < 2; t++) {
        ret_infos[t] = (struct leat_tensor_info){.dtype = LEAT_DTYPE_F32, .rank = 2, .dims = {-1, model.width}};
        ret_infos[t].item_bytes = model.width * sizeof(float);
        strcpy(ret_infos[t].name, t == 0 ? "x" : "y");
    }
    *ret_inputs = *ret_outputs = 1;
    return LEAT_OK;
}

static enum leat_status
load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    struct leat_model *model = malloc(sizeof(*model));

    if (model == NULL) return leat->fail(LEAT_ERR_NOMEM, "no memory for a model");
    const enum leat_status status = read_file(source->file, source->file_bytes, model);
    if (status != LEAT_OK) {
        free(model);
        return status;
    }
    *ret_model = model;
    return LEAT_OK;
}

static void
unload(struct leat_model *model)
{
    free(model);
}

static size_t
model_bytes(const struct leat_model *model)
{
    return sizeof(*model);
}

static enum leat_status
build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    struct leat_plan *plan = malloc(sizeof(*plan));

    (void)options; /* any number of items, on any number of threads */
    if (plan == NULL) return leat->fail(LEAT_ERR_NOMEM, "no memory for a plan");
    plan->model = model;
    *ret_plan = plan;
    return LEAT_OK;
}

static void
unbuild(struct leat_plan *plan)
{
    free(plan);
}

static size_t
scratch_bytes(const struct leat_plan *plan)
{
    (void)plan;
    return 0;
}

struct step {
    const struct leat_model *model;
    const struct leat_segment *segment;
};

static void
compute_part(void *context, uint32_t member, uint32_t size)
{
    const struct step *step = context;
    const size_t elements = (size_t)step->segment->items * step->model->width;
    const float *x = step->segment->tensors[0];
    float *y = (float *)(uintptr_t)step->segment->tensors[1]; /* outputs are ours to write */

    for (size_t i = elements * member / size; i < elements * (member + 1) / size; i++) {
        y[i] = step->model->scale * x[i] + step->model->offset;
    }
}

static enum leat_status
run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    (void)scratch;
    for (uint32_t s = 0; s < count; s++) {
        struct step step = {plan->model, &segments[s]};
        if (s > 0) leat->team_yield(team);
        leat->team_run(team, compute_part, &step);
    }
    return LEAT_OK;
}

static const struct leat_backend affine = {
    .abi = LEAT_BACKEND_ABI,
    .name = "affine",
    .model_describe = describe,
    .model_load = load,
    .model_destroy = unload,
    .model_bytes = model_bytes,
    .plan_build = build,
    .plan_destroy = unbuild,
    .plan_scratch_bytes = scratch_bytes,
    .plan_run = run,
    .yields = true,
};

static enum leat_status
open_affine(const struct leat_backend_host *host, const char *options, const struct leat_backend **ret_backend)
{
    leat = host;
    if (options[0] != '\0') return leat->fail(LEAT_ERR_INVALID, "affine has no options, not '%s'", options);
    *ret_backend = &affine;
    return LEAT_OK;
}

const struct leat_backend_plugin leat_backend_plugin = {LEAT_BACKEND_ABI, open_affine};
