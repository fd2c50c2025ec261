/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leatd with two backends more, by --wrap=leat_backend_find: `reference`, said to have bf16, which computes the same in times that
 * are given. With `quicker` it takes a batch half as long, but for one item, which takes twice; with `slower` always a little more.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

struct leat_model {
    struct leat_model *of_reference;
    enum leat_precision precision;
};

struct leat_plan {
    struct leat_plan *of_reference;
    enum leat_precision precision;
};

const struct leat_backend *__real_leat_backend_find(const char *name);
const struct leat_backend *__wrap_leat_backend_find(const char *name);

static uint32_t
two_precisions(void)
{
    return LEAT_PRECISION_BIT(LEAT_PRECISION_F32) | LEAT_PRECISION_BIT(LEAT_PRECISION_BF16);
}

static enum leat_status
two_model_load(const struct leat_model_source *source, struct leat_model **ret_model)
{
    struct leat_model *model = calloc(1, sizeof(*model));
    struct leat_model_source exact = *source;

    if (model == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a model");
    }
    exact.precision = LEAT_PRECISION_F32;
    model->precision = source->precision;
    const enum leat_status status = leat_backend_reference.model_load(&exact, &model->of_reference);
    if (status != LEAT_OK) {
        free(model);
        return status;
    }
    *ret_model = model;
    return LEAT_OK;
}

static void
two_model_destroy(struct leat_model *model)
{
    if (model != NULL) {
        leat_backend_reference.model_destroy(model->of_reference);
        free(model);
    }
}

static size_t
two_model_bytes(const struct leat_model *model)
{
    return leat_backend_reference.model_bytes(model->of_reference);
}

static enum leat_status
two_plan_build(struct leat_model *model, const struct leat_plan_options *options, struct leat_plan **ret_plan)
{
    struct leat_plan *plan = calloc(1, sizeof(*plan));

    if (plan == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a plan");
    }
    plan->precision = model->precision;
    const enum leat_status status = leat_backend_reference.plan_build(model->of_reference, options, &plan->of_reference);
    if (status != LEAT_OK) {
        free(plan);
        return status;
    }
    *ret_plan = plan;
    return LEAT_OK;
}

static void
two_plan_destroy(struct leat_plan *plan)
{
    if (plan != NULL) {
        leat_backend_reference.plan_destroy(plan->of_reference);
        free(plan);
    }
}

static size_t
two_plan_scratch_bytes(const struct leat_plan *plan)
{
    return leat_backend_reference.plan_scratch_bytes(plan->of_reference);
}

static enum leat_status
two_plan_run(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
             struct leat_team *team)
{
    return leat_backend_reference.plan_run(plan->of_reference, segments, count, scratch, team);
}

/* 32 times as long for 32 as for one is no gain: f32 stays at 8. */
static bool
quicker_plan_times(const struct leat_plan *plan, uint32_t worker_class, uint32_t items, struct leat_plan_times *ret_times)
{
    (void)worker_class;
    const uint64_t time_ns = plan->precision == LEAT_PRECISION_F32 ? items * UINT64_C(1000000)
                             : items == 1                          ? 2000000
                                                                   : 600000 + items * UINT64_C(400000);
    *ret_times = (struct leat_plan_times){time_ns, time_ns, time_ns, time_ns};
    return true;
}

/* Its largest batch is larger, for it gains by that; but at no size is it as fast. */
static bool
slower_plan_times(const struct leat_plan *plan, uint32_t worker_class, uint32_t items, struct leat_plan_times *ret_times)
{
    (void)worker_class;
    const uint64_t time_ns = (plan->precision == LEAT_PRECISION_F32 ? 0 : 2000000) + items * UINT64_C(1000000);
    *ret_times = (struct leat_plan_times){time_ns, time_ns, time_ns, time_ns};
    return true;
}

#define TWO_PRECISIONS(spoken_name, times)                                                                                   \
    {                                                                                                                        \
        .abi = LEAT_BACKEND_ABI, .name = (spoken_name), .precisions = two_precisions, .model_load = two_model_load,          \
        .model_destroy = two_model_destroy, .model_bytes = two_model_bytes, .plan_build = two_plan_build,                    \
        .plan_destroy = two_plan_destroy, .plan_scratch_bytes = two_plan_scratch_bytes, .plan_run = two_plan_run,            \
        .plan_times = (times),                                                                                               \
    }

const struct leat_backend *
__wrap_leat_backend_find(const char *name)
{
    static const struct leat_backend quicker = TWO_PRECISIONS("quicker", quicker_plan_times);
    static const struct leat_backend slower = TWO_PRECISIONS("slower", slower_plan_times);

    return strcmp(name, "quicker") == 0  ? &quicker
           : strcmp(name, "slower") == 0 ? &slower
                                         : __real_leat_backend_find(name);
}
