/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/config_check.c - the configuration against the machine and the registry: what the file alone does not show. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/backend.h"
#include "runtime/application.h"
#include "runtime/config.h"
#include "runtime/policy_make.h"
#include "runtime/registry.h"
#include "runtime/synthetic_times.h"
#include "sched/scale_joint.h"

/* Every error's text begins with the setting's path, which leat_config_place finds in the file. */

static enum leat_status
check_file(const struct leat_config_model *model, uint32_t number)
{
    struct stat info;
    const int fd = open(model->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* whatever it is, we do not wait for it */

    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return LEAT_FAIL(LEAT_ERR_CONFIG, "models[%u].path: cannot open %s: %s", number, model->path, strerror(error));
    }
    (void)close(fd);
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "models[%u].path: %s is %s, not an ONNX file", number, model->path,
                         S_ISREG(info.st_mode) ? "empty" : S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
    }
    return LEAT_OK;
}

static enum leat_status
load_backends(const struct leat_config *config)
{
    for (uint32_t b = 0; b < config->backend_count; b++) {
        const struct leat_config_backend *backend = &config->backends[b];
        if (leat_backend_load(backend->name, backend->path, backend->options) != LEAT_OK) {
            return leat_err_prefix(LEAT_ERR_CONFIG, "backends[%u].path", b);
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_models(const struct leat_config *config)
{
    for (uint32_t m = 0; m < config->model_count; m++) {
        const struct leat_config_model *model = &config->models[m];
        const enum leat_status status = model->path[0] != '\0' ? check_file(model, m) : LEAT_OK;
        if (status != LEAT_OK) {
            return status;
        }
    }
    if (config->model_count + config->application_count > LEAT_APPLICATIONS_MAX) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "models: %u models and %u applications; allowed are %u in all",
                         config->model_count, config->application_count, LEAT_APPLICATIONS_MAX);
    }
    return LEAT_OK;
}

/* Models that were added at run time; they are served after a restart too. */
struct kept {
    struct leat_registry_model *models;
    uint32_t count;
};

static bool
is_kept(const struct kept *kept, const char *name)
{
    for (uint32_t k = 0; k < kept->count; k++) {
        if (strcmp(kept->models[k].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_configured(const struct leat_config *config, const char *name)
{
    for (uint32_t m = 0; m < config->model_count; m++) {
        if (strcmp(config->models[m].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static enum leat_status
check_application(const struct leat_config *config, const struct kept *kept, uint32_t number)
{
    const struct leat_config_application *application = &config->applications[number];

    if (is_configured(config, application->name) || is_kept(kept, application->name)) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "applications[%u].name: a model that %s is called '%s': choose another name",
                         number,
                         is_configured(config, application->name) ? "stands under models" : "was added at run time",
                         application->name);
    }
    for (uint32_t m = 0; m < application->model_count; m++) {
        if (!is_configured(config, application->models[m]) && !is_kept(kept, application->models[m])) {
            return LEAT_FAIL(LEAT_ERR_CONFIG,
                             "applications[%u].models[%u]: there is no model '%s', neither under models nor among those "
                             "that were added at run time", number, m, application->models[m]);
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_policy(const struct leat_config_application *application, uint32_t number)
{
    struct leat_policy *policy = NULL;
    enum leat_status status = LEAT_OK;

    if (strcmp(application->policy, "auto") == 0) {
        return LEAT_OK;
    }
    if (application->selector == NULL || !application->selector->follows_policy) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "applications[%u].policy: only for a selector that follows one, such as mdp; this one is %s",
                         number, application->selector == NULL ? "auto" : application->selector->name);
    }
    status = leat_policy_read(application->policy, &policy);
    free(policy);
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(LEAT_ERR_CONFIG, "applications[%u].policy", number);
}

static enum leat_status
check_applications(const struct leat_config *config)
{
    struct kept kept = {0};
    enum leat_status status = LEAT_OK;

    if (config->application_count == 0) {
        return LEAT_OK;
    }
    status = leat_registry_peek(config->state_dir, &kept.models, &kept.count);
    if (status != LEAT_OK) {
        return leat_err_prefix(status, "state_dir");
    }
    for (uint32_t a = 0; a < config->application_count && status == LEAT_OK; a++) {
        status = check_application(config, &kept, a);
        status = status == LEAT_OK ? check_policy(&config->applications[a], a) : status;
    }
    leat_registry_list_free(kept.models, kept.count);
    return status;
}

/* What the solver goes by. */
static enum leat_status
check_scaling(const struct leat_config *config)
{
    for (uint32_t i = 0; i < config->scaling.application_count; i++) {
        for (uint32_t a = 0; a < config->application_count; a++) {
            const struct leat_config_application *application = &config->applications[a];
            if (strcmp(application->name, config->scaling.applications[i].name) == 0 && application->latency_ns == 0) {
                return LEAT_FAIL(LEAT_ERR_CONFIG,
                                 "scaling.applications[%u].name: applications[%u] has no objective: give it 'latency'", i,
                                 a);
            }
        }
    }
    return LEAT_OK;
}

/* By their names, of those that have workers. */
static uint32_t
count_classes(const struct leat_placement *placement)
{
    uint32_t count = 0;

    for (uint32_t w = 0; w < placement->worker_count; w++) {
        const char *name = placement->classes[placement->workers[w].worker_class].name;
        uint32_t before = 0;
        while (before < w && strcmp(placement->classes[placement->workers[before].worker_class].name, name) != 0) {
            before++;
        }
        count += before == w;
    }
    return count;
}

/* What the scaler cannot decide about, or would have nothing to decide about. */
static enum leat_status
check_scaled_workers(const struct leat_config *config, const struct leat_placement *placement)
{
    const uint32_t class_count = count_classes(placement);
    bool resizes = false;

    if (config->scaling.mode == LEAT_SCALING_OFF) {
        return LEAT_OK;
    }
    if (class_count > LEAT_JOINT_CLASSES_MAX) {
        return LEAT_FAIL(LEAT_ERR_CONFIG,
                         "scaling.mode: %s knows up to %u classes of workers, and there are %u: list fewer under workers",
                         leat_scaling_modes[config->scaling.mode], LEAT_JOINT_CLASSES_MAX, class_count);
    }
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        const struct leat_worker_place *place = &placement->workers[w];
        if (place->cpu_count > LEAT_SCALE_CORES_MAX) {
            return LEAT_FAIL(LEAT_ERR_CONFIG,
                             "scaling.mode: %s knows workers of up to %u cores, and worker %u has %u: give it fewer under "
                             "workers",
                             leat_scaling_modes[config->scaling.mode], LEAT_SCALE_CORES_MAX, w, place->cpu_count);
        }
        resizes = resizes || place->cores_max > place->cpu_count;
    }
    return resizes || config->scaling.mode != LEAT_SCALING_VERTICAL
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_CONFIG,
                           "scaling.mode: vertical changes the cores of workers, and none can have more than it begins with: "
                           "set cores_max under workers");
}

/* Each class that has workers needs times, up to the model's largest batch. */
static enum leat_status
check_tables(const struct leat_config_model *model, uint32_t number, const json_t *tables,
             const struct leat_placement *placement)
{
    for (uint32_t c = 0; c < placement->class_count; c++) {
        const char *class = placement->classes[c].name;
        const json_t *rows = json_object_get(tables, class);
        const json_t *last = json_array_get(rows, json_array_size(rows) - 1); /* NULL where there is none */
        const json_int_t largest = json_integer_value(json_object_get(last, "items"));
        if (last == NULL) {
            return LEAT_FAIL(LEAT_ERR_CONFIG,
                             "models[%u].synthetic.times: %s has no times of '%s' on '%s', a class of workers", number,
                             model->synthetic_times, model->synthetic_times_model, class);
        }
        if (largest < (json_int_t)model->items_max) {
            return LEAT_FAIL(
                LEAT_ERR_CONFIG,
                "models[%u].items_max: batches of up to %u items, but on class '%s' %s has times up to %lld: lower "
                "it to that",
                number, model->items_max, class, model->synthetic_times, (long long)largest);
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_times(const struct leat_config *config, const struct leat_placement *placement)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t m = 0; m < config->model_count && status == LEAT_OK; m++) {
        const struct leat_config_model *model = &config->models[m];
        char *text = NULL;
        if (model->synthetic_times == NULL || model->synthetic_times[0] == '\0') {
            continue;
        }
        status = leat_synthetic_times_add(model->options_json, model->synthetic_times, model->synthetic_times_model, &text);
        if (status != LEAT_OK) {
            return leat_err_prefix(LEAT_ERR_CONFIG, "models[%u].synthetic.times", m);
        }
        json_t *options = json_loads(text, 0, NULL);
        status = options == NULL ? LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the times in %s", model->synthetic_times)
                                 : check_tables(model, m, json_object_get(options, "tables"), placement);
        json_decref(options);
        free(text);
    }
    return status;
}

uint32_t
leat_config_class_workers(const struct leat_config_class *class, const struct leat_placement *placement)
{
    uint32_t count = 0;

    for (uint32_t w = 0; w < placement->worker_count; w++) {
        count += strcmp(placement->classes[placement->workers[w].worker_class].name, class->name) == 0;
    }
    return count;
}

static enum leat_status
check_classes(const struct leat_config *config, const struct leat_placement *placement)
{
    for (uint32_t c = 0; c < config->class_count; c++) {
        const struct leat_config_class *class = &config->classes[c];
        const uint32_t workers = leat_config_class_workers(class, placement);
        if (class->count_max != LEAT_AUTO && workers > class->count_max) {
            return LEAT_FAIL(LEAT_ERR_CONFIG,
                             "classes[%u].count_max: %u could be had, but there are %u workers of class '%s'", c,
                             class->count_max, workers, class->name);
        }
    }
    return LEAT_OK;
}

enum leat_status
leat_config_check(const struct leat_config *config, const struct leat_topology *topology,
                  struct leat_placement **ret_placement)
{
    const struct leat_placement_request request = {.dispatcher_cpu = config->dispatcher.own_core ? config->dispatcher.cpu : LEAT_ANYWHERE,
                                                   .groups = config->workers,
                                                   .group_count = config->worker_group_count};
    enum leat_status status = load_backends(config);

    if (status == LEAT_OK && !config->dispatcher.own_core && config->dispatcher.cpu != LEAT_AUTO) {
        status = LEAT_FAIL(LEAT_ERR_CONFIG, "dispatcher.cpu: without a core of its own (own_core) it has no CPU: leave it out");
    }
    if (status == LEAT_OK) {
        status = check_models(config);
    }
    if (status == LEAT_OK) {
        status = check_applications(config);
    }
    if (status == LEAT_OK) {
        status = check_scaling(config);
    }
    struct leat_placement *placement = NULL;
    if (status == LEAT_OK) {
        status = leat_placement_make(topology, &request, &placement);
    }
    if (status == LEAT_OK) {
        status = check_scaled_workers(config, placement);
    }
    if (status == LEAT_OK) {
        status = check_classes(config, placement);
    }
    if (status == LEAT_OK) {
        status = check_times(config, placement);
    }
    if (status != LEAT_OK) {
        leat_placement_destroy(placement);
        return leat_config_place(config, status);
    }
    *ret_placement = placement;
    return LEAT_OK;
}
