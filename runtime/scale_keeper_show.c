/* SPDX-License-Identifier: Apache-2.0 */
/* What the keeper has decided, for people and tools. */
#include <jansson.h>

#include "runtime/scale_keeper_private.h"

static json_t *
describe_part(const struct leat_scale_part *part)
{
    return json_pack("{s:i, s:i, s:i}", "instances", (int)part->ready, "starting", (int)part->starting, "cores",
                     (int)part->cores);
}

/* The workers of a stage go to both lists. */
static json_t *
describe_stage(const struct leat_daemon *daemon, uint32_t a, uint32_t s, json_t *all_workers)
{
    const struct leat_scale_application *scaled = &daemon->scaling->applications[a];
    const struct leat_scale_stage *stage = &scaled->stages[s];
    const struct leat_scaler_order *order = &scaled->scaler.orders[s];
    json_t *object = describe_part(&stage->part), *workers = json_array();

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (daemon->scaling->workers[w].application == leat_scale_unit(a, s)) {
            (void)json_array_append_new(workers, json_integer(w));
            (void)json_array_append_new(all_workers, json_integer(w));
        }
    }
    json_t *more =
        json_pack("{s:s, s:o, s:f, s:I, s:i, s:i, s:i}", "application", stage->name, "workers", workers, "rate_items_per_s",
                  stage->rate_qps, "waiting_items", (json_int_t)stage->waiting_items, "wanted_instances",
                  (int)order->instances, "wanted_cores_each", (int)order->cores, "wanted_batch", (int)order->batch);
    (void)json_object_update(object, more);
    json_decref(more);
    return object;
}

static json_t *
describe_application(const struct leat_daemon *daemon, uint32_t a)
{
    const struct leat_scaled *option = &daemon->options.scaling.applications[a];
    const struct leat_scale_application *scaled = &daemon->scaling->applications[a];
    json_t *workers = json_array(), *stages = json_array();
    struct leat_scale_part sum = {0};
    uint64_t waiting_items = 0;

    for (uint32_t s = 0; s < scaled->scaler.joint.stage_count; s++) {
        const struct leat_scale_stage *stage = &scaled->stages[s];
        sum.ready += stage->part.ready;
        sum.starting += stage->part.starting;
        sum.cores += stage->part.cores;
        waiting_items += stage->waiting_items;
        (void)json_array_append_new(stages, describe_stage(daemon, a, s, workers));
    }
    json_t *object = describe_part(&sum);
    json_t *more = json_pack("{s:s, s:i, s:b, s:s, s:o, s:f, s:f, s:f, s:I, s:o}", "name", option->name, "weight",
                             (int)option->weight, "scaled", (int)scaled->served, "trouble", scaled->trouble, "workers",
                             workers, "rate_items_per_s", scaled->stages[0].rate_qps, "expected_items_per_s",
                             scaled->foreseen_qps, "counted_times", scaled->shortfall.factor, "waiting_items", (json_int_t)waiting_items, "stages", stages);
    (void)json_object_update(object, more);
    json_decref(more);
    return object;
}

/* The latest first. */
static json_t *
describe_history(const struct leat_daemon *daemon)
{
    const struct leat_scale_keeper *keeper = daemon->scaling;
    const uint64_t now_ns = leat_monotonic_ns();
    json_t *history = json_array();

    for (uint64_t c = keeper->changes; c > 0 && keeper->changes - c < LEAT_SCALE_CHANGES_KEPT; c--) {
        const struct leat_scale_change *change = &keeper->history[(c - 1) % LEAT_SCALE_CHANGES_KEPT];
        (void)json_array_append_new(history, json_pack("{s:I, s:I, s:b, s:s, s:s, s:o, s:o, s:s}", "ago_ns",
                                                       (json_int_t)(now_ns - change->at_ns), "took_ns",
                                                       (json_int_t)(change->at_ns - change->looked_ns), "early",
                                                       (int)change->early, "application",
                                                       daemon->options.scaling.applications[change->application].name,
                                                       "stage", change->stage, "from", describe_part(&change->from), "to",
                                                       describe_part(&change->to), "why", change->why));
    }
    return history;
}

json_t *
leat_scale_keeper_describe(struct leat_daemon *daemon)
{
    const struct leat_scaling *options = &daemon->options.scaling;
    json_t *object = json_pack("{s:s}", "mode", leat_scaling_modes[options->mode]), *applications = json_array();

    if (daemon->scaling == NULL) {
        json_decref(applications);
        return object;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t a = 0; a < options->application_count; a++) {
        (void)json_array_append_new(applications, describe_application(daemon, a));
    }
    json_t *more =
        json_pack("{s:I, s:s, s:I, s:I, s:s, s:o, s:o}", "interval_ns", (json_int_t)options->interval_ns, "forecast",
                  options->forecast == LEAT_SCALING_FORESEES_NOTHING ? "off" : leat_forecast_name(options->forecast),
                  "decisions", (json_int_t)daemon->scaling->decisions, "changes", (json_int_t)daemon->scaling->changes,
                  "trouble", daemon->scaling->trouble, "applications", applications, "history", describe_history(daemon));
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    (void)json_object_update(object, more);
    json_decref(more);
    return object;
}
