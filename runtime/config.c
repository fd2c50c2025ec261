/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <jansson.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "runtime/config_schema.h"

struct loader {
    struct leat_config_text text;
    struct leat_config *config;
};

static const char *
join(char *path, const char *prefix, const char *key)
{
    (void)snprintf(path, LEAT_CONFIG_PATH_BYTES, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", key);
    return path;
}

static void *
allocate(uint32_t count, size_t bytes)
{
    return calloc(count == 0 ? 1 : count, bytes);
}

static enum leat_status
no_memory(void)
{
    return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the configuration");
}

/* Every setting of a table: what the file says, or the default. */
static enum leat_status
read_table(const struct loader *loader, const struct leat_setting_table *table, const char *prefix,
           const void *raw, void *target)
{
    char path[LEAT_CONFIG_PATH_BYTES], problem[LEAT_SETTING_TEXT_BYTES];

    for (uint32_t i = 0; i < table->count; i++) {
        const struct leat_setting *setting = &table->settings[i];
        const char *given =
            raw == NULL ? NULL
                        : *(char *const *)(const void *)((const unsigned char *)raw + setting->raw);
        if (given == NULL && setting->fallback == NULL) {
            return leat_config_fail(&loader->text, prefix, "'%s' is missing", setting->key);
        }
        if (!leat_setting_read(setting, given == NULL ? setting->fallback : given, target, problem)) {
            LEAT_ASSERT(given != NULL); /* every default is valid: a test loads them all */
            return leat_config_fail(&loader->text, join(path, prefix, setting->key), "%s", problem);
        }
    }
    return LEAT_OK;
}

/* ---- access ------------------------------------------------------------------------------------ */

/* A number, or the name of a user (or group) of this machine. */
static bool
resolve(const char *text, bool group, uint32_t *ret_id)
{
    char buffer[16384];
    char *end;

    errno = 0;
    const unsigned long number = strtoul(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0') {
        *ret_id = (uint32_t)number;
        return errno == 0 && number < UINT32_MAX;
    }
    if (group) {
        struct group entry, *found = NULL;
        if (getgrnam_r(text, &entry, buffer, sizeof(buffer), &found) != 0 || found == NULL) {
            return false;
        }
        *ret_id = found->gr_gid;
        return true;
    }
    struct passwd entry, *found = NULL;
    if (getpwnam_r(text, &entry, buffer, sizeof(buffer), &found) != 0 || found == NULL) {
        return false;
    }
    *ret_id = found->pw_uid;
    return true;
}

static enum leat_status
read_access(const struct loader *loader, const struct leat_raw_access *raw)
{
    struct leat_config *config = loader->config;
    char path[LEAT_CONFIG_PATH_BYTES];
    uint32_t id = 0;

    const enum leat_status status = read_table(loader, &leat_settings_access, "access", raw, config);
    if (status != LEAT_OK) {
        return status;
    }
    config->access.gid = (gid_t)-1;
    if (config->access.group[0] != '\0') {
        if (!resolve(config->access.group, true, &id)) {
            return leat_config_fail(&loader->text, "access.group",
                                    "this machine has no group '%.60s'; create it or leave it empty",
                                    config->access.group);
        }
        config->access.gid = id;
    }
    config->access.operators = allocate(raw->operators_count, sizeof(uid_t));
    if (config->access.operators == NULL) {
        return no_memory();
    }
    for (uint32_t i = 0; i < raw->operators_count; i++) {
        if (!resolve(raw->operators[i], false, &id)) {
            (void)snprintf(path, sizeof(path), "access.operators[%u]", i);
            return leat_config_fail(&loader->text, path,
                                    "this machine has no user '%.60s'; allowed are names and numbers",
                                    raw->operators[i]);
        }
        config->access.operators[config->access.operator_count++] = id;
    }
    return LEAT_OK;
}

/* ---- limits ------------------------------------------------------------------------------------- */

static enum leat_status
read_limits(const struct loader *loader, const struct leat_raw_limits *raw)
{
    const struct leat_config *config = loader->config;
    const enum leat_status status =
        read_table(loader, &leat_settings_limits, "limits", raw, loader->config);

    if (status != LEAT_OK) {
        return status;
    }
    if (config->limits.sessions_per_user > config->limits.sessions) {
        return leat_config_fail(&loader->text, "limits.sessions_per_user",
                                "%u is more than limits.sessions, %u: lower one or raise the other",
                                config->limits.sessions_per_user, config->limits.sessions);
    }
    if (config->limits.arena_default_bytes > config->limits.arena_bytes_per_session) {
        return leat_config_fail(
            &loader->text, "limits.arena_default_bytes",
            "more than limits.arena_bytes_per_session: lower one or raise the other");
    }
    uint64_t all, user;
    leat_config_memory(config, 0, &all, &user); /* as far as the file says it */
    if (all != 0 && user > all) {
        return leat_config_fail(&loader->text, "limits.session_memory_per_user",
                                "more than limits.session_memory: lower one or raise the other");
    }
    if (user != 0 && config->limits.arena_default_bytes >= user) { /* rings need some too */
        return leat_config_fail(&loader->text, "limits.session_memory_per_user",
                                "a user would have %" PRIu64
                                " KiB and a session's arena limits.arena_default_bytes, %" PRIu64
                                " KiB, beside its rings: raise limits.session_memory or this, or lower that",
                                user / 1024, config->limits.arena_default_bytes / 1024);
    }
    return LEAT_OK;
}

void
leat_config_memory(const struct leat_config *config, uint64_t machine_bytes, uint64_t *ret_bytes,
                   uint64_t *ret_bytes_per_user)
{
    const uint64_t all = config->limits.session_memory_bytes, user = config->limits.session_memory_per_user_bytes;

    *ret_bytes = all != 0 ? all : machine_bytes / 2;
    *ret_bytes_per_user = user != 0 ? user : *ret_bytes / 2;
}

/* ---- classes ------------------------------------------------------------------------------------ */

const struct leat_config_class *
leat_config_find_class(const struct leat_config *config, const char *name)
{
    for (uint32_t c = 0; c < config->class_count; c++) {
        if (strcmp(config->classes[c].name, name) == 0) {
            return &config->classes[c];
        }
    }
    return NULL;
}

static enum leat_status
read_classes(const struct loader *loader, const struct leat_raw_config *raw)
{
    struct leat_config *config = loader->config;
    char prefix[LEAT_CONFIG_PATH_BYTES], path[LEAT_CONFIG_PATH_BYTES];

    if (raw->classes_count > LEAT_PLACEMENT_CLASSES_MAX) {
        return leat_config_fail(&loader->text, "classes", "%u classes; allowed are up to %u", raw->classes_count,
                                LEAT_PLACEMENT_CLASSES_MAX);
    }
    config->classes = allocate(raw->classes_count, sizeof(*config->classes));
    if (config->classes == NULL) {
        return no_memory();
    }
    for (uint32_t i = 0; i < raw->classes_count; i++) {
        struct leat_config_class *class = &config->classes[i];
        (void)snprintf(prefix, sizeof(prefix), "classes[%u]", i);
        const enum leat_status status = read_table(loader, &leat_settings_class, prefix, &raw->classes[i], class);
        if (status == LEAT_OK && leat_config_find_class(config, class->name) != NULL) {
            free(class->name);
            return leat_config_fail(&loader->text, join(path, prefix, "name"), "this class is listed before");
        }
        if (status != LEAT_OK) {
            free(class->name);
            return status;
        }
        config->class_count++;
    }
    return LEAT_OK;
}

/* Where classes are listed, workers are of those, and those of one are alike. */
static enum leat_status
check_worker_class(const struct loader *loader, uint32_t number)
{
    const struct leat_config *config = loader->config;
    const struct leat_worker_group *group = &config->workers[number];
    char path[LEAT_CONFIG_PATH_BYTES], names[LEAT_PLACEMENT_CLASSES_MAX * 40] = "";

    if (config->class_count == 0) {
        return LEAT_OK;
    }
    if (leat_config_find_class(config, group->class_name) == NULL) {
        for (uint32_t c = 0; c < config->class_count; c++) {
            const size_t used = strlen(names);
            (void)snprintf(names + used, sizeof(names) - used, "%s%s", c > 0 ? ", " : "", config->classes[c].name);
        }
        (void)snprintf(path, sizeof(path), "workers[%u].class", number);
        return leat_config_fail(&loader->text, path, "there is no class '%s'; listed under classes: %s", group->class_name,
                                names);
    }
    for (uint32_t before = 0; before < number; before++) {
        const struct leat_worker_group *other = &config->workers[before];
        if (strcmp(other->class_name, group->class_name) == 0 && other->cores != group->cores) {
            (void)snprintf(path, sizeof(path), "workers[%u].cores", number);
            return leat_config_fail(
                &loader->text, path,
                "workers of class '%s' have %u cores, and %u in workers[%u]: give each a class of its own",
                group->class_name, group->cores, other->cores, before);
        }
    }
    return LEAT_OK;
}

/* ---- workers ------------------------------------------------------------------------------------ */

static enum leat_status
read_workers(const struct loader *loader, const struct leat_raw_config *raw)
{
    struct leat_config *config = loader->config;
    const uint32_t count = raw->workers_count == 0 ? 1 : raw->workers_count; /* one of defaults */
    char path[LEAT_CONFIG_PATH_BYTES];

    config->workers = allocate(count, sizeof(*config->workers));
    if (config->workers == NULL) {
        return no_memory();
    }
    for (; config->worker_group_count < count;) {
        const uint32_t i = config->worker_group_count++;
        (void)snprintf(path, sizeof(path), "workers[%u]", i);
        enum leat_status status = read_table(loader, &leat_settings_worker, path,
                                             raw->workers_count == 0 ? NULL : &raw->workers[i], &config->workers[i]);
        if (status == LEAT_OK) {
            status = check_worker_class(loader, i);
        }
        if (status != LEAT_OK) {
            return status;
        }
    }
    return LEAT_OK;
}

/* ---- scaling ------------------------------------------------------------------------------------- */

static enum leat_status
read_scaled(const struct loader *loader, const struct leat_raw_scaling *raw)
{
    struct leat_scaling *scaling = &loader->config->scaling;
    char prefix[LEAT_CONFIG_PATH_BYTES], path[LEAT_CONFIG_PATH_BYTES];

    if (raw->applications_count > LEAT_SCALER_APPLICATIONS_MAX) {
        return leat_config_fail(&loader->text, "scaling.applications", "lists %u; allowed are up to %u",
                                raw->applications_count, LEAT_SCALER_APPLICATIONS_MAX);
    }
    while (scaling->application_count < raw->applications_count) {
        const uint32_t i = scaling->application_count++;
        (void)snprintf(prefix, sizeof(prefix), "scaling.applications[%u]", i);
        const enum leat_status status =
            read_table(loader, &leat_settings_scaled, prefix, &raw->applications[i], &scaling->applications[i]);
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t before = 0; before < i; before++) {
            if (strcmp(scaling->applications[before].name, scaling->applications[i].name) == 0) {
                return leat_config_fail(&loader->text, join(path, prefix, "name"), "'%s' is listed twice",
                                        scaling->applications[i].name);
            }
        }
    }
    return LEAT_OK;
}

static enum leat_status
read_scaling(const struct loader *loader, const struct leat_raw_scaling *raw)
{
    const struct leat_scaling *scaling = &loader->config->scaling;
    enum leat_status status = read_table(loader, &leat_settings_scaling, "scaling", raw, loader->config);

    if (status == LEAT_OK) {
        status = read_scaled(loader, raw);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (scaling->hold_ns / scaling->interval_ns > LEAT_SCALER_HOLD_MAX) {
        return leat_config_fail(&loader->text, "scaling.hold", "is %" PRIu64 " intervals; allowed are up to %u",
                                scaling->hold_ns / scaling->interval_ns, LEAT_SCALER_HOLD_MAX);
    }
    if (scaling->mode != LEAT_SCALING_OFF && scaling->application_count == 0) {
        return leat_config_fail(&loader->text, "scaling", "mode %s needs 'applications': which are to be scaled",
                                leat_scaling_modes[scaling->mode]);
    }
    return LEAT_OK;
}

/* ---- backends ------------------------------------------------------------------------------------ */

static enum leat_status
read_backends(const struct loader *loader, const struct leat_raw_config *raw)
{
    struct leat_config *config = loader->config;
    char prefix[LEAT_CONFIG_PATH_BYTES], path[LEAT_CONFIG_PATH_BYTES];

    if (raw->backends_count > LEAT_BACKENDS_LOADED) {
        return leat_config_fail(&loader->text, "backends", "lists %u; allowed are up to %u", raw->backends_count,
                                LEAT_BACKENDS_LOADED);
    }
    config->backends = allocate(raw->backends_count, sizeof(*config->backends));
    if (config->backends == NULL) {
        return no_memory();
    }
    while (config->backend_count < raw->backends_count) {
        const uint32_t i = config->backend_count++;
        struct leat_config_backend *backend = &config->backends[i];
        (void)snprintf(prefix, sizeof(prefix), "backends[%u]", i);
        const enum leat_status status = read_table(loader, &leat_settings_backend, prefix, &raw->backends[i], backend);
        if (status != LEAT_OK) {
            return status;
        }
        if (strlen(backend->name) >= LEAT_BACKEND_NAME_MAX) {
            return leat_config_fail(&loader->text, join(path, prefix, "name"), "'%s' is longer than %d bytes", backend->name,
                                    LEAT_BACKEND_NAME_MAX - 1);
        }
        bool taken = leat_backend_find(backend->name) != NULL;
        for (uint32_t before = 0; before < i; before++) {
            taken = taken || strcmp(config->backends[before].name, backend->name) == 0;
        }
        if (taken) {
            return leat_config_fail(&loader->text, join(path, prefix, "name"), "there is a backend '%s' already", backend->name);
        }
    }
    return LEAT_OK;
}

static bool
has_backend(const struct leat_config *config, const char *name)
{
    for (uint32_t b = 0; b < config->backend_count; b++) {
        if (strcmp(config->backends[b].name, name) == 0) {
            return true;
        }
    }
    return leat_backend_find(name) != NULL;
}

/* ---- applications -------------------------------------------------------------------------------- */

static enum leat_status
read_application_models(const struct loader *loader, const struct leat_raw_application *raw,
                        const char *prefix, struct leat_config_application *application)
{
    char path[LEAT_CONFIG_PATH_BYTES];

    if (raw->models_count == 0 || raw->models_count > LEAT_SCHED_VARIANTS_MAX) {
        return leat_config_fail(&loader->text, join(path, prefix, "models"),
                                "lists %u models; allowed are 1 to %u", raw->models_count,
                                LEAT_SCHED_VARIANTS_MAX);
    }
    application->models = allocate(raw->models_count, sizeof(*application->models));
    if (application->models == NULL) {
        return no_memory();
    }
    for (uint32_t m = 0; m < raw->models_count; m++) {
        (void)snprintf(path, sizeof(path), "%.200s.models[%u]", prefix, m);
        if (!leat_name_is_valid(raw->models[m])) {
            return leat_config_fail(&loader->text, path, "'%.70s' is not a model's name",
                                    raw->models[m]);
        }
        for (uint32_t before = 0; before < m; before++) {
            if (strcmp(application->models[before], raw->models[m]) == 0) {
                return leat_config_fail(&loader->text, path, "'%s' is listed twice", raw->models[m]);
            }
        }
        (void)snprintf(application->models[m], LEAT_NAME_MAX, "%s", raw->models[m]);
        application->model_count++;
    }
    return LEAT_OK;
}

static enum leat_status
read_applications(const struct loader *loader, const struct leat_raw_config *raw)
{
    struct leat_config *config = loader->config;
    char prefix[LEAT_CONFIG_PATH_BYTES], path[LEAT_CONFIG_PATH_BYTES];

    config->applications = allocate(raw->applications_count, sizeof(*config->applications));
    if (config->applications == NULL) {
        return no_memory();
    }
    while (config->application_count < raw->applications_count) {
        const uint32_t i = config->application_count++;
        struct leat_config_application *application = &config->applications[i];
        (void)snprintf(prefix, sizeof(prefix), "applications[%u]", i);
        enum leat_status status = read_table(loader, &leat_settings_application, prefix,
                                             &raw->applications[i], application);
        if (status == LEAT_OK && application->threshold_items != LEAT_AUTO &&
            (application->router == NULL || strcmp(application->router->name, "threshold") != 0)) {
            return leat_config_fail(&loader->text, join(path, prefix, "threshold"),
                                    "only for router: threshold; this one is %s",
                                    application->router == NULL ? "auto" : application->router->name);
        }
        if (status == LEAT_OK) {
            status = read_application_models(loader, &raw->applications[i], prefix, application);
        }
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t before = 0; before < i; before++) {
            if (strcmp(config->applications[before].name, application->name) == 0) {
                return leat_config_fail(&loader->text, join(path, prefix, "name"),
                                        "'%s' is taken by applications[%u]", application->name, before);
            }
        }
    }
    return LEAT_OK;
}

/* ---- models -------------------------------------------------------------------------------------- */

static enum leat_status
read_dims(const struct loader *loader, const struct leat_raw_tensor *raw, const char *prefix,
          struct leat_tensor_info *info)
{
    char path[LEAT_CONFIG_PATH_BYTES];

    if (raw->dims_count > LEAT_RANK_MAX - 1) {
        return leat_config_fail(&loader->text, join(path, prefix, "dims"),
                                "%u dimensions; allowed are up to %d, without the batch dimension",
                                raw->dims_count, LEAT_RANK_MAX - 1);
    }
    info->rank = 1;
    info->dims[0] = -1;
    info->item_bytes = leat_dtype_bytes(info->dtype);
    for (uint32_t d = 0; d < raw->dims_count; d++) {
        const struct leat_setting setting = {.kind = LEAT_SETTING_U32, .min = 1, .max = 1u << 30};
        char problem[LEAT_SETTING_TEXT_BYTES];
        uint32_t dim = 0;
        (void)snprintf(path, sizeof(path), "%.200s.dims[%u]", prefix, d);
        if (!leat_setting_read(&setting, raw->dims[d], &dim, problem)) {
            return leat_config_fail(&loader->text, path, "%s", problem);
        }
        info->dims[info->rank++] = dim;
        if (!leat_mul_u64(info->item_bytes, dim, &info->item_bytes) ||
            info->item_bytes > UINT64_C(1) << 37) {
            return leat_config_fail(&loader->text, path, "one item would be larger than 128 GiB");
        }
    }
    return LEAT_OK;
}

static enum leat_status
check_tensor_name(const struct loader *loader, const struct leat_config_model *model, uint32_t tensor,
                  const char *path)
{
    for (uint32_t before = 0; before < tensor; before++) {
        if (strcmp(model->infos[before].name, model->infos[tensor].name) == 0) {
            return leat_config_fail(&loader->text, path,
                                    "'%s' is taken by another tensor of this model",
                                    model->infos[tensor].name);
        }
    }
    return LEAT_OK;
}

static enum leat_status
read_tensors(const struct loader *loader, const struct leat_raw_tensor *raw, uint32_t count,
             const char *prefix, const char *list, struct leat_config_model *model,
             uint32_t *ret_count)
{
    char path[LEAT_CONFIG_PATH_BYTES], name_path[LEAT_CONFIG_PATH_BYTES];
    const uint32_t first = model->input_count; /* 0 for the inputs themselves */

    if (count == 0) { /* 64 bytes called "input" and "output" */
        struct leat_tensor_info *info = &model->infos[first];
        (void)snprintf(info->name, sizeof(info->name), "%.*s", (int)strlen(list) - 1, list);
        info->dtype = LEAT_DTYPE_U8;
        info->rank = 2;
        info->dims[0] = -1;
        info->dims[1] = 64;
        info->item_bytes = 64;
        *ret_count = 1;
        return check_tensor_name(loader, model, first, join(path, prefix, list));
    }
    if (first + count > LEAT_TENSORS_MAX - (first == 0)) {
        return leat_config_fail(&loader->text, join(path, prefix, list),
                                "too many: a model has at most %d inputs and outputs in all",
                                LEAT_TENSORS_MAX);
    }
    for (uint32_t t = 0; t < count; t++) {
        struct leat_tensor_info *info = &model->infos[first + t];
        (void)snprintf(path, sizeof(path), "%.200s.%s[%u]", prefix, list, t);
        enum leat_status status = read_table(loader, &leat_settings_tensor, path, &raw[t], info);
        if (status == LEAT_OK) {
            status = read_dims(loader, &raw[t], path, info);
        }
        if (status != LEAT_OK) {
            return status;
        }
        status = check_tensor_name(loader, model, first + t, join(name_path, path, "name"));
        if (status != LEAT_OK) {
            return status;
        }
    }
    *ret_count = count;
    return LEAT_OK;
}

/* Times are given or come from a file, with settings of their own each; those of the other stay at their defaults. */
static enum leat_status
check_times(const struct loader *loader, const char *prefix, const struct leat_config_model *model)
{
    char path[LEAT_CONFIG_PATH_BYTES];
    const bool from_file = model->synthetic_times[0] != '\0';

    if (from_file != (model->synthetic_times_model[0] != '\0')) {
        return leat_config_fail(&loader->text, join(path, prefix, from_file ? "times" : "times_model"),
                                "a file of times and 'times_model', the model in it, come together");
    }
    for (uint32_t i = 0; i < leat_settings_synthetic.count; i++) {
        const struct leat_setting *setting = &leat_settings_synthetic.settings[i];
        const bool given = strcmp(setting->key, "latency") == 0 || strcmp(setting->key, "per_item") == 0 ||
                           strncmp(setting->key, "parallel", 8) == 0;
        const bool drawn = strcmp(setting->key, "seed") == 0;
        if ((from_file ? given : drawn) && !leat_setting_is_default(setting, model)) {
            return leat_config_fail(&loader->text, join(path, prefix, setting->key), "%s",
                                    from_file ? "'times' has the times of batches: leave this out"
                                              : "only with a file of times");
        }
    }
    return LEAT_OK;
}

static enum leat_status
read_synthetic(const struct loader *loader, const struct leat_raw_synthetic *raw, const char *prefix,
               struct leat_config_model *model)
{
    static const struct leat_raw_synthetic nothing = {0};
    char path[LEAT_CONFIG_PATH_BYTES], options[240];

    raw = raw == NULL ? &nothing : raw;
    join(path, prefix, "synthetic");
    enum leat_status status = read_table(loader, &leat_settings_synthetic, path, raw, model);
    if (status == LEAT_OK) {
        status = check_times(loader, path, model);
    }
    if (status == LEAT_OK) {
        status = read_tensors(loader, raw->inputs, raw->inputs_count, path, "inputs", model,
                              &model->input_count);
    }
    if (status == LEAT_OK) {
        status = read_tensors(loader, raw->outputs, raw->outputs_count, path, "outputs", model,
                              &model->output_count);
    }
    if (status != LEAT_OK) {
        return status;
    }
    if (model->synthetic_times[0] != '\0') { /* what the file says is added when the model is loaded */
        (void)snprintf(options, sizeof(options), "{\"seed\":%" PRIu32 ",\"mode\":\"%s\"}", model->synthetic_seed,
                       model->synthetic_burn ? "burn" : "sleep");
        model->options_json = strdup(options);
        return model->options_json == NULL ? no_memory() : LEAT_OK;
    }
    (void)snprintf(options, sizeof(options),
                   "{\"latency_ns\":%" PRIu64 ",\"per_item_ns\":%" PRIu64 ",\"parallel_ns\":%" PRIu64
                   ",\"parallel_per_item_ns\":%" PRIu64 ",\"mode\":\"%s\"}",
                   model->synthetic_latency_ns, model->synthetic_per_item_ns, model->synthetic_parallel_ns,
                   model->synthetic_parallel_per_item_ns, model->synthetic_burn ? "burn" : "sleep");
    model->options_json = strdup(options);
    return model->options_json == NULL ? no_memory() : LEAT_OK;
}

/* "128", "items" or, as an array, "32,64,128", which is cut up. NULL, with a problem, where it is none of them. */
static json_t *
read_free_dim(char *text, char problem[LEAT_SETTING_TEXT_BYTES])
{
    const struct leat_setting number = {.kind = LEAT_SETTING_U32, .min = 1, .max = (uint64_t)LEAT_DIM_MAX};
    if (strcmp(text, "items") == 0) {
        return json_string(text);
    }
    json_t *array = json_array();
    while (text != NULL) {
        char *comma = strchr(text, ',');
        uint32_t value = 0;
        if (comma != NULL) {
            *comma = '\0';
        }
        if (!leat_setting_read(&number, text, &value, problem)) {
            json_decref(array);
            return NULL;
        }
        (void)json_array_append_new(array, json_integer(value));
        text = comma != NULL ? comma + 1 : NULL;
    }
    json_t *dim = json_incref(json_array_size(array) == 1 ? json_array_get(array, 0) : array);
    json_decref(array);
    return dim;
}

/* "sequence=128": values of dimensions that the file leaves free. */
static enum leat_status
read_free_dims(const struct loader *loader, const struct leat_raw_model *raw, const char *prefix, json_t *dims)
{
    char path[LEAT_CONFIG_PATH_BYTES], problem[LEAT_SETTING_TEXT_BYTES];
    enum leat_status status = LEAT_OK;

    for (uint32_t d = 0; d < raw->dims_count && status == LEAT_OK; d++) {
        char *name = raw->dims[d], *equals = strrchr(name, '='); /* what follows the last one is the number */
        json_t *value = equals != NULL && equals != name ? read_free_dim(equals + 1, problem) : NULL;
        (void)snprintf(path, sizeof(path), "%.200s.dims[%u]", prefix, d);
        if (equals == NULL || equals == name) {
            status = leat_config_fail(&loader->text, path, "'%.64s' is no dimension; write for example sequence=128", name);
        } else if (value == NULL) {
            status = leat_config_fail(&loader->text, path, "%s", problem);
        } else {
            *equals = '\0';
            if (json_object_get(dims, name) != NULL) {
                status = leat_config_fail(&loader->text, path, "dimension '%.64s' is there twice", name);
            } else if (json_object_set(dims, name, value) != 0) {
                status = no_memory();
            }
        }
        json_decref(value);
    }
    if (status == LEAT_OK && raw->dims_count > LEAT_GRAPH_SYMBOLS_MAX) {
        status = leat_config_fail(&loader->text, join(path, prefix, "dims"), "lists %u; allowed are up to %u", raw->dims_count,
                                  LEAT_GRAPH_SYMBOLS_MAX);
    }
    return status;
}

/* "sr=16000": numbers that inputs of the file are. */
static enum leat_status
read_constants(const struct loader *loader, const struct leat_raw_model *raw, const char *prefix, json_t *constants)
{
    char path[LEAT_CONFIG_PATH_BYTES];
    enum leat_status status = LEAT_OK;

    for (uint32_t c = 0; c < raw->constants_count && status == LEAT_OK; c++) {
        char *name = raw->constants[c], *equals = strrchr(name, '='); /* as above */
        json_t *value = equals != NULL && equals != name ? json_loads(equals + 1, JSON_DECODE_ANY, NULL) : NULL;
        (void)snprintf(path, sizeof(path), "%.200s.constants[%u]", prefix, c);
        if (!json_is_number(value)) {
            status = leat_config_fail(&loader->text, path, "'%.64s' is no number for an input; write for example sr=16000 or x=0.5",
                                      name);
        } else {
            *equals = '\0';
            if (json_object_get(constants, name) != NULL) {
                status = leat_config_fail(&loader->text, path, "input '%.64s' is there twice", name);
            } else if (json_object_set(constants, name, value) != 0) {
                status = no_memory();
            }
        }
        json_decref(value);
    }
    if (status == LEAT_OK && raw->constants_count > LEAT_CONSTANT_INPUTS_MAX) {
        status = leat_config_fail(&loader->text, join(path, prefix, "constants"), "lists %u; allowed are up to %u",
                                  raw->constants_count, LEAT_CONSTANT_INPUTS_MAX);
    }
    return status;
}

/* What goes to the backend with a file. */
static enum leat_status
read_file_options(const struct loader *loader, const struct leat_raw_model *raw, const char *prefix, struct leat_config_model *model)
{
    json_t *options = json_object(), *dims = json_object(), *constants = json_object();

    enum leat_status status = read_free_dims(loader, raw, prefix, dims);
    if (status == LEAT_OK) {
        status = read_constants(loader, raw, prefix, constants);
    }
    if (raw->dims_count > 0) {
        (void)json_object_set(options, "dims", dims);
    }
    if (raw->constants_count > 0) {
        (void)json_object_set(options, "constants", constants);
    }
    if (status == LEAT_OK && json_object_size(options) > 0) {
        model->options_json = json_dumps(options, JSON_COMPACT);
        status = model->options_json == NULL ? no_memory() : LEAT_OK;
    }
    json_decref(options);
    json_decref(dims);
    json_decref(constants);
    return status;
}

static enum leat_status
read_model(const struct loader *loader, const struct leat_raw_model *raw, const char *prefix,
           struct leat_config_model *model)
{
    char path[LEAT_CONFIG_PATH_BYTES];
    const enum leat_status status = read_table(loader, &leat_settings_model, prefix, raw, model);

    if (status != LEAT_OK) {
        return status;
    }
    if (!has_backend(loader->config, model->backend)) {
        return leat_config_fail(&loader->text, join(path, prefix, "backend"),
                                "no backend '%s'; allowed are cpu, reference and synthetic, and those listed under backends",
                                model->backend);
    }
    if (strcmp(model->backend, "synthetic") == 0) {
        if (raw->dims_count > 0) {
            return leat_config_fail(&loader->text, join(path, prefix, "dims"), "a synthetic model has no file that leaves any free");
        }
        if (raw->constants_count > 0) {
            return leat_config_fail(&loader->text, join(path, prefix, "constants"), "a synthetic model has no file with such inputs");
        }
        if (model->path[0] != '\0') {
            return leat_config_fail(&loader->text, join(path, prefix, "path"),
                                    "a synthetic model has no file: remove path, or choose the backend "
                                    "cpu or reference");
        }
        return read_synthetic(loader, raw->synthetic, prefix, model);
    }
    if (raw->synthetic != NULL) {
        return leat_config_fail(&loader->text, join(path, prefix, "synthetic"),
                                "only for backend: synthetic; this one is %s", model->backend);
    }
    if (model->path[0] == '\0') {
        return leat_config_fail(&loader->text, prefix, "'path' is missing: the ONNX file");
    }
    return read_file_options(loader, raw, prefix, model);
}

static enum leat_status
read_models(const struct loader *loader, const struct leat_raw_config *raw)
{
    struct leat_config *config = loader->config;
    char prefix[LEAT_CONFIG_PATH_BYTES], path[LEAT_CONFIG_PATH_BYTES];

    config->models = allocate(raw->models_count, sizeof(*config->models));
    if (config->models == NULL) {
        return no_memory();
    }
    while (config->model_count < raw->models_count) {
        const uint32_t i = config->model_count++;
        (void)snprintf(prefix, sizeof(prefix), "models[%u]", i);
        const enum leat_status status =
            read_model(loader, &raw->models[i], prefix, &config->models[i]);
        if (status != LEAT_OK) {
            return status;
        }
        for (uint32_t before = 0; before < i; before++) {
            if (strcmp(config->models[before].name, config->models[i].name) == 0) {
                return leat_config_fail(&loader->text, join(path, prefix, "name"),
                                        "'%s' is taken by models[%u]", config->models[i].name, before);
            }
        }
    }
    return LEAT_OK;
}

/* ---- The whole ----------------------------------------------------------------------------------- */

static enum leat_status
read_all(const struct loader *loader, const struct leat_raw_config *raw)
{
    enum leat_status status = read_table(loader, &leat_settings_root, "", raw, loader->config);

    if (status == LEAT_OK) {
        status = read_access(loader, &raw->access);
    }
    if (status == LEAT_OK) {
        status = read_limits(loader, &raw->limits);
    }
    if (status == LEAT_OK) {
        status = read_table(loader, &leat_settings_dispatcher, "dispatcher", &raw->dispatcher,
                            loader->config);
    }
    if (status == LEAT_OK) {
        status = read_scaling(loader, &raw->scaling);
    }
    if (status == LEAT_OK) {
        status = read_classes(loader, raw);
    }
    if (status == LEAT_OK) {
        status = read_workers(loader, raw);
    }
    if (status == LEAT_OK) {
        status = read_backends(loader, raw);
    }
    if (status == LEAT_OK) {
        status = read_applications(loader, raw);
    }
    if (status == LEAT_OK) {
        status = read_models(loader, raw);
    }
    return status;
}

/* Keeps libcyaml's first complaint, for what the shape check did not foresee. */
static void
capture_log(cyaml_log_t level, void *context, const char *format, va_list args)
{
    char *first = context;

    (void)level;
    if (first[0] == '\0') {
        (void)vsnprintf(first, 256, format, args);
        first[strcspn(first, "\n")] = '\0';
    }
}

static enum leat_status
load_raw(const struct leat_config_text *text, const cyaml_config_t *options, const char *complaint,
         struct leat_raw_config **ret_raw)
{
    bool empty = false;
    enum leat_status status = leat_config_check_shape(text, &empty);

    if (status != LEAT_OK) {
        return status;
    }
    cyaml_data_t *data = NULL;
    const cyaml_err_t error =
        empty ? CYAML_OK
              : cyaml_load_data(text->bytes, text->size, options, &leat_config_schema, &data, NULL);
    if (error == CYAML_ERR_OOM) {
        return no_memory();
    }
    if (error == CYAML_ERR_ALIAS) {
        return leat_config_fail(text, "", "anchors and aliases (&, *) are not supported: write the "
                                          "value out");
    }
    if (error != CYAML_OK) {
        return leat_config_fail(text, "", "%s",
                                complaint[0] == '\0' ? cyaml_strerror(error) : complaint);
    }
    *ret_raw = data;
    return LEAT_OK;
}

static enum leat_status
keep_source(const struct loader *loader)
{
    struct leat_config *config = loader->config;

    config->source.name = strdup(loader->text.name);
    config->source.bytes = malloc(loader->text.size + 1);
    if (config->source.name == NULL || config->source.bytes == NULL) {
        return no_memory();
    }
    memcpy(config->source.bytes, loader->text.bytes, loader->text.size);
    config->source.size = loader->text.size;
    return LEAT_OK;
}

enum leat_status
leat_config_parse(const char *name, const void *yaml, size_t bytes, struct leat_config **ret_config)
{
    static const struct leat_raw_config nothing = {0};
    char complaint[256] = "";
    const cyaml_config_t options = {
        .log_fn = capture_log,
        .log_ctx = complaint,
        .log_level = CYAML_LOG_ERROR,
        .mem_fn = cyaml_mem,
        .flags = CYAML_CFG_NO_ALIAS,
    };
    struct loader loader = {.text = {name, bytes == 0 ? "" : yaml, bytes}};
    struct leat_raw_config *raw = NULL;

    if (bytes > LEAT_CONFIG_BYTES_MAX) {
        return LEAT_FAIL(LEAT_ERR_CONFIG, "%s: %zu bytes are too many for a configuration; at most %u",
                         name, bytes, LEAT_CONFIG_BYTES_MAX);
    }
    enum leat_status status = load_raw(&loader.text, &options, complaint, &raw);
    if (status != LEAT_OK) {
        return status;
    }
    loader.config = calloc(1, sizeof(*loader.config));
    status = loader.config == NULL ? no_memory() : keep_source(&loader);
    if (status == LEAT_OK) {
        status = read_all(&loader, raw == NULL ? &nothing : raw);
    }
    (void)cyaml_free(&options, &leat_config_schema, raw, 0);
    if (status != LEAT_OK) {
        leat_config_free(loader.config);
        return status;
    }
    *ret_config = loader.config;
    return LEAT_OK;
}

enum leat_status
leat_config_default(struct leat_config **ret_config)
{
    return leat_config_parse("defaults", "", 0, ret_config);
}

enum leat_status
leat_config_load(const char *path, struct leat_config **ret_config)
{
    enum leat_status status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "configuration file %s", path);
    }
    char *bytes = malloc(LEAT_CONFIG_BYTES_MAX + 1);
    size_t size = 0;
    ssize_t got = bytes == NULL ? 0 : 1;
    while (got > 0 && size <= LEAT_CONFIG_BYTES_MAX) { /* a pipe or /dev/stdin will do as well */
        got = read(fd, bytes + size, LEAT_CONFIG_BYTES_MAX + 1 - size);
        if (got > 0) {
            size += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            got = 1;
        }
    }
    if (bytes == NULL) {
        status = no_memory();
    } else if (got < 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "reading configuration file %s", path);
    } else {
        status = leat_config_parse(path, bytes, size, ret_config);
    }
    if (status == LEAT_OK) {
        (*ret_config)->file = strdup(path);
        if ((*ret_config)->file == NULL) {
            leat_config_free(*ret_config);
            status = no_memory();
        }
    }
    free(bytes);
    (void)close(fd);
    return status;
}

void
leat_config_free(struct leat_config *config)
{
    if (config == NULL) {
        return;
    }
    for (uint32_t i = 0; i < config->worker_group_count; i++) {
        free((void *)(uintptr_t)config->workers[i].cpus); /* const for readers, ours to free */
        free((void *)(uintptr_t)config->workers[i].class_name);
    }
    for (uint32_t i = 0; i < config->class_count; i++) {
        free(config->classes[i].name);
    }
    for (uint32_t i = 0; i < config->backend_count; i++) {
        free(config->backends[i].path);
        free(config->backends[i].options);
    }
    for (uint32_t i = 0; i < config->application_count; i++) {
        free(config->applications[i].models);
        free(config->applications[i].policy);
    }
    for (uint32_t i = 0; i < config->model_count; i++) {
        free(config->models[i].path);
        free(config->models[i].backend);
        free(config->models[i].options_json);
        free(config->models[i].synthetic_times);
        free(config->models[i].synthetic_times_model);
    }
    free(config->classes);
    free(config->workers);
    free(config->backends);
    free(config->applications);
    free(config->models);
    free(config->access.operators);
    free(config->access.group);
    free(config->socket);
    free(config->state_dir);
    free(config->file);
    free(config->source.name);
    free(config->source.bytes);
    free(config);
}
