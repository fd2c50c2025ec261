/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/config_check.c - the configuration against the machine and the registry: what the file alone does not show. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/application.h"
#include "runtime/config.h"
#include "runtime/registry.h"
#include "runtime/synthetic_times.h"

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
check_times(const struct leat_config_model *model, uint32_t number)
{
    char *json = NULL;

    if (model->synthetic_times == NULL || model->synthetic_times[0] == '\0') {
        return LEAT_OK;
    }
    const enum leat_status status =
        leat_synthetic_times_add(model->options_json, model->synthetic_times, model->synthetic_times_model, &json);
    free(json);
    return status == LEAT_OK ? LEAT_OK : leat_err_prefix(LEAT_ERR_CONFIG, "models[%u].synthetic.times", number);
}

static enum leat_status
check_models(const struct leat_config *config)
{
    for (uint32_t m = 0; m < config->model_count; m++) {
        const struct leat_config_model *model = &config->models[m];
        const enum leat_status status = model->path[0] != '\0' ? check_file(model, m) : check_times(model, m);
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
        return LEAT_FAIL(LEAT_ERR_CONFIG, "applications[%u].name: a model that %s is called '%s': choose another name", number,
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
    }
    leat_registry_list_free(kept.models, kept.count);
    return status;
}

enum leat_status
leat_config_check(const struct leat_config *config, const struct leat_topology *topology,
                  struct leat_placement **ret_placement)
{
    const struct leat_placement_request request = {.dispatcher_cpu = config->dispatcher.cpu,
                                                   .groups = config->workers,
                                                   .group_count = config->worker_group_count};
    enum leat_status status = check_models(config);

    if (status == LEAT_OK) {
        status = check_applications(config);
    }
    if (status == LEAT_OK) {
        status = leat_placement_make(topology, &request, ret_placement);
    }
    return status == LEAT_OK ? LEAT_OK : leat_config_place(config, status);
}
