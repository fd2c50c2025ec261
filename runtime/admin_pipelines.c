/* SPDX-License-Identifier: Apache-2.0 */
/* Administrative requests about pipelines; docs/control.md lists them. */
#include <string.h>

#include "runtime/admin_private.h"

/* ---- Looking, all with the mutex held ------------------------------------------------------------ */

static void
add_counters(json_t *object, const struct leat_pipeline *pipeline)
{
    const struct leat_pipeline_counters *counters = &pipeline->counters;
    const struct {
        const char *key;
        const _Atomic uint64_t *counter;
    } all[] = {{"accepted", &counters->accepted},   {"ok", &counters->ok},
               {"rejected", &counters->rejected},   {"expired", &counters->expired},
               {"cancelled", &counters->cancelled}, {"failed", &counters->failed},
               {"running", &counters->running},     {"ok_late", &counters->late}};

    for (size_t c = 0; c < LEAT_COUNT_OF(all); c++) {
        const uint64_t value = atomic_load_explicit(all[c].counter, memory_order_relaxed);
        (void)json_object_set_new(object, all[c].key, json_integer((json_int_t)value));
    }
}

static json_t *
describe_times(const struct leat_histogram *histogram)
{
    const struct leat_histogram_summary summary = leat_histogram_summarise(histogram);
    return json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)summary.count, "p50", (json_int_t)summary.p50, "p99",
                     (json_int_t)summary.p99, "max", (json_int_t)summary.max);
}

/* Names of the stages in the mask. */
static json_t *
names_of(const struct leat_pipeline *pipeline, uint32_t mask)
{
    json_t *names = json_array();

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        if ((mask >> s & 1) != 0) {
            (void)json_array_append_new(names, json_string(pipeline->stages[s].name));
        }
    }
    return names;
}

/* `whole`: all that is known; else what it takes. */
static json_t *
describe_stages(const struct leat_pipeline *pipeline, bool whole)
{
    json_t *stages = json_array();

    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const struct leat_pipeline_stage *stage = &pipeline->stages[s];
        json_t *object =
            json_pack("{s:s, s:s, s:o, s:o}", "name", stage->name, "application", stage->application_name, "queue_ns",
                      describe_times(&pipeline->times[s].queue_ns), "exec_ns", describe_times(&pipeline->times[s].exec_ns));
        if (whole) {
            (void)json_object_set_new(object, "after", names_of(pipeline, stage->after));
        }
        if (whole && stage->each_stage != UINT32_MAX) {
            (void)json_object_set_new(object, "each",
                                      json_pack("{s:s, s:I, s:I}", "stage", pipeline->stages[stage->each_stage].name,
                                                "items_max", (json_int_t)stage->each_max, "query_items",
                                                (json_int_t)stage->each_items));
        }
        (void)json_array_append_new(stages, object);
    }
    return stages;
}

json_t *
leat_admin_pipelines_status(const struct leat_daemon *daemon)
{
    json_t *array = json_array();

    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        const struct leat_pipeline *pipeline = daemon->pipelines.all[p]->pipeline;
        if (pipeline != NULL) {
            json_t *object = json_pack("{s:s, s:I, s:o}", "name", pipeline->name, "latency_ns",
                                       (json_int_t)pipeline->latency_ns, "stages", describe_stages(pipeline, false));
            add_counters(object, pipeline);
            (void)json_array_append_new(array, object);
        }
    }
    return array;
}

static const char *
late_text(enum leat_pipeline_late late)
{
    return late == LEAT_PIPELINE_SERVE ? "serve" : late == LEAT_PIPELINE_DROP_THRICE ? "drop_thrice" : "drop";
}

static json_t *
describe_pipeline(const struct leat_daemon_pipeline *own)
{
    const struct leat_pipeline *pipeline = own->pipeline;
    json_t *object =
        json_pack("{s:s, s:b, s:I, s:s}", "name", own->spec.name, "served", (int)(pipeline != NULL && !own->removing),
                  "latency_ns", (json_int_t)own->spec.latency_ns, "late", late_text(own->spec.late));

    if (own->failure[0] != '\0') {
        (void)json_object_set_new(object, "failure", leat_json_text(own->failure));
    }
    if (pipeline != NULL) {
        (void)json_object_set_new(object, "in_flight", json_integer((json_int_t)pipeline->runs_max));
        (void)json_object_set_new(object, "items_max", json_integer((json_int_t)pipeline->target.items_max));
        (void)json_object_set_new(object, "workspace_bytes", json_integer((json_int_t)pipeline->workspace_bytes));
        add_counters(object, pipeline);
    }
    return object;
}

json_t *
leat_admin_pipeline_list(struct leat_daemon *daemon)
{
    json_t *array = json_array();

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t p = 0; p < daemon->pipelines.count; p++) {
        const struct leat_daemon_pipeline *own = daemon->pipelines.all[p];
        json_t *object = describe_pipeline(own), *applications = json_array();
        for (uint32_t s = 0; s < own->spec.stage_count; s++) {
            (void)json_array_append_new(applications, json_string(own->spec.stages[s].application));
        }
        (void)json_object_set_new(object, "applications", applications);
        (void)json_array_append_new(array, object);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return json_pack("{s:o, s:I}", "pipelines", array, "memory_bytes", (json_int_t)daemon->options.pipeline_memory_bytes);
}

static json_t *
show(struct leat_daemon *daemon, const char *name)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    const struct leat_daemon_pipeline *own = leat_daemon_find_pipeline(daemon, name);
    json_t *object = NULL;
    if (own != NULL) {
        object = describe_pipeline(own);
        (void)json_object_set_new(object, "description",
                                  own->description != NULL ? json_loads(own->description, 0, NULL) : json_null());
        if (own->pipeline != NULL) {
            (void)json_object_set_new(object, "tensors", leat_admin_describe_tensors(&own->pipeline->target));
            (void)json_object_set_new(object, "stages", describe_stages(own->pipeline, true));
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return object != NULL ? object
                          : leat_admin_refusal(LEAT_FAIL(
                                LEAT_ERR_NOT_FOUND, "there is no pipeline '%.64s': 'leat pipeline list' shows them", name));
}

json_t *
leat_admin_pipeline_show(struct leat_daemon *daemon, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "name"));
    return name != NULL ? show(daemon, name) : leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing"));
}

/* ---- Changing ------------------------------------------------------------------------------------ */

bool
leat_admin_changes_pipeline(const char *op)
{
    return strcmp(op, "pipeline-add") == 0 || strcmp(op, "pipeline-remove") == 0;
}

json_t *
leat_admin_change_pipeline(struct leat_daemon *daemon, const char *op, const json_t *request)
{
    const json_t *given = json_object_get(request, "name"), *description = json_object_get(request, "pipeline");
    const char *name = json_string_value(given);
    enum leat_status status;

    if (strcmp(op, "pipeline-remove") == 0) {
        status =
            name != NULL ? leat_daemon_remove_pipeline(daemon, name) : LEAT_FAIL(LEAT_ERR_INVALID, "'name' is missing");
        return status == LEAT_OK ? json_pack("{s:s}", "removed", name) : leat_admin_refusal(status);
    }
    if (given != NULL && name == NULL) {
        return leat_admin_refusal(LEAT_FAIL(LEAT_ERR_INVALID, "'name' must be a text"));
    }
    status = leat_daemon_add_pipeline(daemon, name, description);
    return status == LEAT_OK ? show(daemon, name != NULL ? name : json_string_value(json_object_get(description, "name")))
                             : leat_admin_refusal(status);
}
