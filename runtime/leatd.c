/* SPDX-License-Identifier: Apache-2.0 */
/* leatd: reads the configuration, places threads, loads models, serves, drains. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/graph.h"
#include "kernels/mapping.h"
#include "runtime/cgroup.h"
#include "runtime/config.h"
#include "runtime/cores.h"
#include "runtime/cpuset.h"
#include "runtime/daemon.h"
#include "runtime/log.h"
#include "runtime/policy_make.h"
#include "runtime/registry.h"
#include "runtime/synthetic_times.h"

#define DEFAULT_CONFIG_PATH "/etc/leat/leat.yaml"
/* dispatcher.spin auto: more than a round trip's pauses, less than a sleep and its wake-up cost in a virtual machine. */
#define SPIN_AUTO_NS UINT64_C(50000)

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct arguments {
    const char *config_path, *socket_path, *state_dir;
    bool check_config, json;
};

static struct leat_daemon *the_daemon; /* for the signal handler */

static void
print_help(void)
{
    (void)printf(
        "usage: leatd [--config FILE] [--socket PATH] [--state-dir DIR] [--check-config [--json]]\n\n"
        "Serves machine-learning models to processes on this machine. Runs in the foreground and logs to standard\n"
        "error; SIGTERM or SIGINT drains and ends it, a second one ends it at once.\n\n"
        "  --config FILE    settings (default %s if it is there)\n"
        "  --socket PATH    where clients connect, instead of the configured path\n"
        "  --state-dir DIR  where added models are kept, instead of the configured folder\n"
        "  --check-config   say what is in force, or what is wrong and where, and exit\n"
        "  --json           with --check-config: as one JSON object\n"
        "  --version        print the version\n\n"
        "example: leatd --config my.yaml --socket /tmp/leat.sock --state-dir /tmp/leat\n",
        DEFAULT_CONFIG_PATH);
}

/* -1 to go on, else an exit code. */
static int
parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    static const struct option known[] = {
        {"config", required_argument, NULL, 'c'}, {"socket", required_argument, NULL, 's'},
        {"state-dir", required_argument, NULL, 'd'}, {"check-config", no_argument, NULL, 'k'},
        {"json", no_argument, NULL, 'j'},         {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    int option;

    *arguments = (struct arguments){0};
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'c': arguments->config_path = optarg; break;
        case 's': arguments->socket_path = optarg; break;
        case 'd': arguments->state_dir = optarg; break;
        case 'k': arguments->check_config = true; break;
        case 'j': arguments->json = true; break;
        case 'v': (void)printf("leatd %s\n", LEAT_VERSION_TEXT); return EXIT_DONE;
        case 'h': print_help(); return EXIT_DONE;
        default: (void)fprintf(stderr, "Try 'leatd --help'.\n"); return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "leatd: unexpected argument '%s'. Try 'leatd --help'.\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (arguments->json && !arguments->check_config) {
        (void)fprintf(stderr, "leatd: --json goes with --check-config. Try 'leatd --help'.\n");
        return EXIT_USAGE;
    }
    return -1;
}

static enum leat_status
load_config(const struct arguments *arguments, struct leat_config **ret_config)
{
    enum leat_status status;

    if (arguments->config_path != NULL) {
        status = leat_config_load(arguments->config_path, ret_config);
    } else if (access(DEFAULT_CONFIG_PATH, F_OK) == 0) {
        status = leat_config_load(DEFAULT_CONFIG_PATH, ret_config);
    } else {
        status = leat_config_default(ret_config);
    }
    if (status != LEAT_OK) {
        return status;
    }
    const struct {
        const char *given;
        char **setting;
    } overrides[] = {{arguments->socket_path, &(*ret_config)->socket}, {arguments->state_dir, &(*ret_config)->state_dir}};
    for (size_t i = 0; i < LEAT_COUNT_OF(overrides); i++) {
        if (overrides[i].given != NULL) {
            char *copy = strdup(overrides[i].given);
            if (copy == NULL) {
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the configuration");
            }
            free(*overrides[i].setting);
            *overrides[i].setting = copy;
        }
    }
    return LEAT_OK;
}

/* ---- Models ----------------------------------------------------------------------------------- */

static enum leat_status
map_path(const char *path, struct leat_mapping **ret_mapping, const void **ret_bytes, size_t *ret_count)
{
    const char *slash = strrchr(path, '/');
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    return fd >= 0 ? leat_variant_map_file(fd, slash != NULL ? slash + 1 : path, ret_mapping, ret_bytes, ret_count)
                   : LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
}

/* Those that the model names, beside its own. */
static enum leat_status
open_files_beside(const char *path, const void *onnx, size_t onnx_bytes, struct leat_onnx_file *ret_files, uint32_t *ret_count)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');

    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open the folder %s", folder);
    }
    const enum leat_status status = leat_onnx_open_files(onnx, onnx_bytes, fd, ret_files, ret_count);
    (void)close(fd);
    return status;
}

static uint64_t
size_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_size > 0 ? (uint64_t)info.st_size : 0;
}

static enum leat_status
load_configured_model(struct leat_daemon *daemon, const struct leat_config_model *model)
{
    struct leat_mapping *mapping = NULL;
    const void *onnx = NULL;
    size_t onnx_bytes = 0;
    char *options_json = NULL;
    struct leat_onnx_file opened[LEAT_ONNX_FILES_MAX];
    struct leat_variant_file files[LEAT_ONNX_FILES_MAX];
    uint32_t file_count = 0;

    if (model->synthetic_times != NULL && model->synthetic_times[0] != '\0') {
        const enum leat_status status = leat_synthetic_times_add(model->options_json, model->synthetic_times,
                                                                 model->synthetic_times_model, &options_json);
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "model '%s'", model->name);
        }
    }
    if (model->path[0] != '\0') {
        enum leat_status status = map_path(model->path, &mapping, &onnx, &onnx_bytes);
        if (status == LEAT_OK) {
            status = open_files_beside(model->path, onnx, onnx_bytes, opened, &file_count);
        }
        if (status != LEAT_OK) {
            leat_mapping_release(mapping);
            return leat_err_prefix(status, "model '%s'", model->name);
        }
    }
    for (uint32_t f = 0; f < file_count; f++) {
        files[f] = (struct leat_variant_file){.name = opened[f].name, .fd = opened[f].fd, .bytes = size_of(opened[f].fd)};
    }
    const struct leat_variant_source source = {
        .name = model->name,
        .backend = model->backend,
        .onnx = onnx,
        .onnx_bytes = onnx_bytes,
        .onnx_mapping = mapping,
        .files = files,
        .file_count = file_count,
        .options_json = options_json != NULL ? options_json : model->options_json,
        .items_max = model->items_max,
        .accuracy_ppm = model->accuracy_ppm,
        .infos = model->infos,
        .input_count = model->input_count,
        .output_count = model->output_count,
    };
    const enum leat_status status = leat_daemon_load_model(daemon, &source, NULL, false);
    leat_onnx_close_files(opened, file_count);
    free(options_json);
    leat_mapping_release(mapping); /* weights that stay there hold it */
    return status;
}

/* Those of a kept model, checked; what was opened is to be closed, in any case. */
static enum leat_status
open_kept_files(struct leat_registry *registry, const struct leat_registry_model *model, struct leat_variant_file *files,
                uint32_t *ret_count)
{
    enum leat_status status = LEAT_OK;

    *ret_count = 0;
    if (model->file_count > LEAT_ONNX_FILES_MAX) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "it has %u files", model->file_count);
    }
    for (uint32_t f = 0; f < model->file_count && status == LEAT_OK; f++) {
        const struct leat_registry_file *file = &model->files[f];
        files[f] = (struct leat_variant_file){.name = file->name, .bytes = file->bytes};
        memcpy(files[f].sha256, file->sha256, sizeof(files[f].sha256));
        status = leat_registry_open_file(registry, file, &files[f].fd);
        *ret_count += status == LEAT_OK;
    }
    return status;
}

/* One model of the registry; one that does not load any more is listed with the reason, and the rest go on. */
static void
load_kept_model(struct leat_daemon *daemon, struct leat_registry *registry, const struct leat_registry_model *model)
{
    struct leat_measured measured = {0};
    struct leat_registry_validation validation = {0};
    struct leat_variant_file files[LEAT_ONNX_FILES_MAX];
    uint32_t file_count = 0;
    struct leat_mapping *mapping = NULL;
    const void *onnx = NULL;
    size_t onnx_bytes = 0;
    enum leat_status status = LEAT_OK;

    if (model->sha256[0] != '\0') {
        int fd;
        status = leat_registry_open_model(registry, model, &fd);
        if (status == LEAT_OK) {
            status = leat_variant_map_file(fd, model->name, &mapping, &onnx, &onnx_bytes);
        }
    }
    if (status == LEAT_OK) {
        status = open_kept_files(registry, model, files, &file_count);
    }
    if (status == LEAT_OK && leat_registry_get_measured(registry, model->name, &measured) != LEAT_OK) {
        leat_log(LEAT_LOG_INFO, "model '%s' is measured: %s", model->name, leat_error_text());
    }
    const bool validated = leat_registry_get_validation(registry, model->name, &validation) == LEAT_OK;
    if (status == LEAT_OK) {
        const struct leat_variant_source source = {
            .name = model->name,
            .backend = model->backend,
            .onnx = onnx,
            .onnx_bytes = onnx_bytes,
            .onnx_mapping = mapping,
            .files = files,
            .file_count = file_count,
            .options_json = model->options_json,
            .items_max = model->items_max,
            .accuracy_ppm = model->accuracy_ppm,
            .infos = model->infos,
            .input_count = model->input_count,
            .output_count = model->output_count,
            .measured = measured.count > 0 ? &measured : NULL,
            .kept = true,
        };
        status = leat_daemon_load_model(daemon, &source, validated ? &validation : NULL, true);
    }
    leat_measured_free(&measured);
    for (uint32_t f = 0; f < file_count; f++) {
        (void)close(files[f].fd);
    }
    leat_mapping_release(mapping);
    if (status != LEAT_OK) {
        leat_log(LEAT_LOG_ERROR, "kept model '%s' is not served: %s", model->name, leat_error_text());
        leat_daemon_note_failure(daemon, false, model->name, leat_error_text());
    }
}

static enum leat_status
keep_model(struct leat_registry *registry, const struct leat_daemon_addition *addition)
{
    const struct leat_variant_source *source = addition->source;
    struct leat_registry_file files[LEAT_ONNX_FILES_MAX];
    struct leat_registry_model model = {
        .files = files,
        .file_count = source->file_count,
        .items_max = source->items_max,
        .accuracy_ppm = source->accuracy_ppm,
        .options_json = (char *)(uintptr_t)source->options_json, /* only read */
        .input_count = source->input_count,
        .output_count = source->output_count,
    };
    (void)snprintf(model.name, sizeof(model.name), "%s", source->name);
    (void)snprintf(model.backend, sizeof(model.backend), "%s", source->backend);
    for (uint32_t t = 0; t < source->input_count + source->output_count; t++) {
        model.infos[t] = source->infos[t];
    }
    for (uint32_t f = 0; f < source->file_count; f++) {
        files[f] = (struct leat_registry_file){.name = (char *)(uintptr_t)source->files[f].name, .bytes = source->files[f].bytes};
        memcpy(files[f].sha256, source->files[f].sha256, sizeof(files[f].sha256));
    }
    model.created_s = (uint64_t)time(NULL);
    if (source->onnx_sha256 != NULL) {
        (void)snprintf(model.sha256, sizeof(model.sha256), "%s", source->onnx_sha256);
    }
    enum leat_status status = leat_registry_add(registry, &model, source->onnx, source->onnx_bytes);
    if (status == LEAT_OK) {
        status = leat_registry_put_measured(registry, model.name, addition->measured);
    }
    if (status == LEAT_OK && addition->validation != NULL) {
        status = leat_registry_put_validation(registry, model.name, addition->validation);
    }
    return status;
}

static enum leat_status
keep_parts(struct leat_registry *registry, const struct leat_daemon_change *change)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t m = 0; m < change->model_count && status == LEAT_OK; m++) {
        status = keep_model(registry, &change->models[m]);
    }
    if (status == LEAT_OK && change->measured_model != NULL) {
        status = leat_registry_put_measured(registry, change->measured_model, change->measured);
    }
    if (status == LEAT_OK && change->application != NULL) {
        status = leat_registry_put_application(registry, change->application);
    }
    if (status == LEAT_OK && change->made != NULL) {
        status = leat_registry_put_made(registry, change->made->application, change->made->made_from, change->made->policy,
                                        change->made->policy->bytes);
    }
    if (status == LEAT_OK && change->job != NULL) {
        status = leat_registry_put_job(registry, change->job);
    }
    if (status == LEAT_OK && change->pipeline != NULL) {
        status = leat_registry_add_pipeline(registry, change->pipeline);
    }
    if (status == LEAT_OK && change->removed_pipeline != NULL) {
        status = leat_registry_remove_pipeline(registry, change->removed_pipeline);
    }
    if (status == LEAT_OK && change->removed_application != NULL) {
        status = leat_registry_remove_application(registry, change->removed_application);
    }
    for (uint32_t m = 0; m < change->removed_model_count && status == LEAT_OK; m++) {
        status = leat_registry_remove(registry, change->removed_models[m]);
    }
    return status;
}

/* The registry, for one thread at a time: offline jobs change it beside whoever loads models. */
struct kept {
    struct leat_registry *registry;
    pthread_mutex_t mutex;
};

static struct leat_registry *
take(void *context)
{
    struct kept *kept = context;
    LEAT_MUST(pthread_mutex_lock(&kept->mutex) == 0);
    return kept->registry;
}

static void
give(void *context)
{
    struct kept *kept = context;
    LEAT_MUST(pthread_mutex_unlock(&kept->mutex) == 0);
}

static enum leat_status
keep(void *context, const struct leat_daemon_change *change)
{
    struct leat_registry *registry = take(context);

    enum leat_status status = leat_registry_begin(registry);
    if (status == LEAT_OK) {
        status = keep_parts(registry, change);
        if (status == LEAT_OK) {
            status = leat_registry_commit(registry);
        } else {
            leat_registry_rollback(registry);
        }
    }
    give(context);
    return status;
}

static enum leat_status
find_made(void *context, const char *application, const char *made_from, struct leat_policy **ret_policy)
{
    void *bytes = NULL;
    size_t size = 0;

    enum leat_status status = leat_registry_get_made(take(context), application, made_from, &bytes, &size);
    give(context);
    if (status == LEAT_OK) {
        status = leat_policy_copy(bytes, size, ret_policy);
    }
    free(bytes);
    return status;
}

static enum leat_status
read_kept(void *context, const char *name, void **ret_bytes, size_t *ret_count)
{
    struct leat_registry *registry = take(context);
    struct leat_registry_model model;

    enum leat_status status = leat_registry_get(registry, name, &model);
    if (status == LEAT_OK) {
        status = model.sha256[0] != '\0' ? leat_registry_read(registry, &model, ret_bytes)
                                         : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "model '%s' is synthetic: it has no file", name);
        leat_registry_free_model(&model);
    }
    give(context);
    if (status == LEAT_OK) {
        *ret_count = model.bytes;
    }
    return status;
}

static enum leat_status
take_file(void *context, int fd, uint64_t most, struct leat_variant_file *ret_file)
{
    struct leat_registry_file taken = {.name = (char *)(uintptr_t)ret_file->name}; /* only read */

    const enum leat_status status = leat_registry_take_file(take(context), fd, most, &taken, &ret_file->fd);
    give(context);
    if (status == LEAT_OK) {
        ret_file->bytes = taken.bytes;
        memcpy(ret_file->sha256, taken.sha256, sizeof(ret_file->sha256));
    }
    return status;
}

static void
release_files(void *context)
{
    leat_registry_release_files(take(context));
    give(context);
}

static enum leat_status
open_kept_file(struct leat_registry *registry, const char *name, const char *file, int *ret_fd)
{
    struct leat_registry_model model;

    enum leat_status status = leat_registry_get(registry, name, &model);
    if (status != LEAT_OK) {
        return status;
    }
    status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "model '%s' has no file '%.64s'", name, file);
    for (uint32_t f = 0; f < model.file_count; f++) {
        if (strcmp(model.files[f].name, file) == 0) {
            status = leat_registry_open_file(registry, &model.files[f], ret_fd);
        }
    }
    leat_registry_free_model(&model);
    return status;
}

static enum leat_status
open_kept(void *context, const char *name, const char *file, int *ret_fd)
{
    const enum leat_status status = open_kept_file(take(context), name, file, ret_fd);
    give(context);
    return status;
}

/* What goes wrong with a configured model or application is said with its place, as by leat_config_check. */
static enum leat_status
place(const struct leat_config *config, enum leat_status status, const char *list, uint32_t number)
{
    return status == LEAT_OK ? LEAT_OK : leat_config_place(config, leat_err_prefix(status, "%s[%u]", list, number));
}

static enum leat_status
load_kept_models(struct leat_daemon *daemon, struct leat_registry *registry)
{
    struct leat_registry_model *kept = NULL;
    uint32_t count = 0;

    const enum leat_status status = leat_registry_list(registry, &kept, &count);
    for (uint32_t m = 0; m < count && !leat_daemon_is_stopping(daemon); m++) {
        load_kept_model(daemon, registry, &kept[m]);
    }
    leat_registry_list_free(kept, count);
    return status;
}

static enum leat_status
add_configured_application(struct leat_daemon *daemon, const struct leat_config_application *configured)
{
    struct leat_registry_application app = {
        .threshold_items = configured->threshold_items != LEAT_AUTO ? configured->threshold_items : 0,
        .latency_ns = configured->latency_ns,
        .drop_late = configured->drop_late,
        .quantile_ppm = configured->quantile_ppm,
        .queue = configured->queue,
        .model_count = configured->model_count,
    };
    struct leat_policy *policy = NULL;

    LEAT_ASSERT(configured->model_count <= LEAT_SCHED_VARIANTS_MAX); /* as the configuration says */
    (void)snprintf(app.name, sizeof(app.name), "%s", configured->name);
    (void)snprintf(app.router, sizeof(app.router), "%s", configured->router != NULL ? configured->router->name : "");
    (void)snprintf(app.selector, sizeof(app.selector), "%s", configured->selector != NULL ? configured->selector->name : "");
    if (strcmp(configured->policy, "auto") != 0) {
        LEAT_ASSERT(strlen(configured->policy) < sizeof(app.policy)); /* as the configuration says */
        const enum leat_status status = leat_policy_read(configured->policy, &policy);
        if (status != LEAT_OK) {
            return leat_err_prefix(status, "application '%s'", app.name);
        }
        (void)strcpy(app.policy, configured->policy);
        app.policy_table = policy;
        app.policy_bytes = policy->bytes;
    }
    for (uint32_t m = 0; m < configured->model_count; m++) {
        (void)snprintf(app.models[m], sizeof(app.models[m]), "%s", configured->models[m]);
    }
    const enum leat_status status = leat_daemon_add_application(daemon, &app, true);
    free(policy);
    return status;
}

/* Schema 2 kept only the name of a policy: what is in the file is kept from now on. */
static void
adopt_policy(struct leat_registry *registry, struct leat_registry_application *kept)
{
    struct leat_policy *policy = NULL;

    if (kept->policy[0] == '\0' || kept->policy_table != NULL) {
        return;
    }
    enum leat_status status = leat_policy_read(kept->policy, &policy);
    if (status == LEAT_OK) {
        kept->policy_table = policy;
        kept->policy_bytes = policy->bytes;
        status = leat_registry_put_application(registry, kept);
    }
    if (status != LEAT_OK) {
        leat_log(LEAT_LOG_WARNING, "application '%s': %s", kept->name, leat_error_text());
    }
}

/* One that cannot be served any more is told of, and the rest go on. */
static enum leat_status
add_kept_applications(struct leat_daemon *daemon, struct leat_registry *registry)
{
    struct leat_registry_application *kept = NULL;
    uint32_t count = 0;

    const enum leat_status status = leat_registry_list_applications(registry, &kept, &count);
    for (uint32_t a = 0; a < count; a++) {
        adopt_policy(registry, &kept[a]);
        const enum leat_status added = leat_daemon_add_application(daemon, &kept[a], false);
        if (added != LEAT_OK) {
            leat_log(LEAT_LOG_ERROR, "kept application '%s' is not served: %s", kept[a].name, leat_error_text());
        }
        if (added == LEAT_ERR_EXISTS) {
            leat_daemon_note_failure(daemon, true, kept[a].name, leat_error_text());
        }
    }
    leat_registry_free_applications(kept, count);
    return status;
}

/* Likewise. */
static enum leat_status
restore_pipelines(struct leat_daemon *daemon, struct leat_registry *registry)
{
    struct leat_registry_pipeline *kept = NULL;
    uint32_t count = 0;

    const enum leat_status status = leat_registry_list_pipelines(registry, &kept, &count);
    for (uint32_t p = 0; p < count; p++) {
        if (leat_daemon_restore_pipeline(daemon, &kept[p]) != LEAT_OK) {
            leat_log(LEAT_LOG_ERROR, "kept pipeline '%s' is not served: %s", kept[p].name, leat_error_text());
        }
    }
    leat_registry_free_pipelines(kept, count);
    leat_daemon_serve_pipelines(daemon);
    return status;
}

static enum leat_status
add_kept_jobs(struct leat_daemon *daemon, struct leat_registry *registry)
{
    struct leat_registry_job *kept = NULL;
    uint32_t count = 0;

    enum leat_status status = leat_registry_list_jobs(registry, &kept, &count);
    for (uint32_t j = 0; j < count && status == LEAT_OK; j++) {
        status = leat_daemon_add_job(daemon, &kept[j]);
    }
    free(kept);
    return status;
}

/* Forgets what was made for applications that are gone. */
static enum leat_status
prune_policies(const struct leat_config *config, struct leat_registry *registry)
{
    const char **names = calloc(config->application_count + 1, sizeof(*names));

    if (names == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the names of %u applications", config->application_count);
    }
    for (uint32_t a = 0; a < config->application_count; a++) {
        names[a] = config->applications[a].name;
    }
    const enum leat_status status = leat_registry_prune_made(registry, names, config->application_count);
    free(names);
    return status;
}

/* Configured models and applications come first: a kept one of the same name gives way and is listed as not served. */
static enum leat_status
load_everything(struct leat_daemon *daemon, const struct leat_config *config, struct leat_registry *registry)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t m = 0; m < config->model_count && status == LEAT_OK && !leat_daemon_is_stopping(daemon); m++) {
        status = place(config, load_configured_model(daemon, &config->models[m]), "models", m);
    }
    if (status == LEAT_OK) {
        status = load_kept_models(daemon, registry);
    }
    for (uint32_t a = 0; a < config->application_count && status == LEAT_OK && !leat_daemon_is_stopping(daemon); a++) {
        status = place(config, add_configured_application(daemon, &config->applications[a]), "applications", a);
    }
    if (status == LEAT_OK && !leat_daemon_is_stopping(daemon)) {
        status = add_kept_applications(daemon, registry);
    }
    if (status == LEAT_OK && !leat_daemon_is_stopping(daemon)) {
        status = restore_pipelines(daemon, registry);
    }
    if (status == LEAT_OK) {
        status = prune_policies(config, registry);
    }
    if (status == LEAT_OK) {
        status = add_kept_jobs(daemon, registry);
    }
    return status;
}

/* ---- Serving ---------------------------------------------------------------------------------- */

static void
on_signal(int signal_number)
{
    (void)signal_number;
    leat_daemon_stop(the_daemon);
}

static struct sigaction earlier_bus;

/* A page of weights is gone when somebody cuts their file short; what else raises SIGBUS goes its way, but one that was sent. */
static void
on_bus(int signal_number, siginfo_t *info, void *machine)
{
    const int saved_errno = errno;

    if (info->si_code == BUS_ADRERR && leat_mapping_repair(info->si_addr)) {
        errno = saved_errno;
    } else if (info->si_code <= 0) { /* somebody sent it: no handler says where, and a sanitizer's may hang then */
        if (earlier_bus.sa_handler != SIG_IGN) {
            (void)signal(SIGBUS, SIG_DFL);
            (void)raise(SIGBUS);
        }
    } else if ((earlier_bus.sa_flags & SA_SIGINFO) != 0) {
        earlier_bus.sa_sigaction(signal_number, info, machine);
    } else if (earlier_bus.sa_handler != SIG_DFL && earlier_bus.sa_handler != SIG_IGN) {
        earlier_bus.sa_handler(signal_number);
    } else {
        (void)signal(SIGBUS, SIG_DFL); /* returning, it happens again */
    }
}

static void
handle_bus(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    (void)sigemptyset(&action.sa_mask);
    LEAT_MUST(sigaction(SIGBUS, &action, &earlier_bus) == 0);
}

static void
copy_places(const struct leat_placement *placement, struct leat_daemon_worker *workers)
{
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        const struct leat_worker_place *own = &placement->workers[w];
        LEAT_ASSERT(own->cpu_count <= LEAT_TEAM_MAX); /* as the configuration says */
        workers[w] = (struct leat_daemon_worker){
            .core_count = own->cpu_count,
            .cores_max = own->cores_max,
            .node = own->node,
            .worker_class = own->worker_class,
            .listed = own->listed,
        };
        memcpy(workers[w].cpus, own->cpus, workers[w].core_count * sizeof(workers[w].cpus[0]));
    }
}

/* What workers of that name start with: where classes are listed, all with the same. */
static uint32_t
cores_at_start(const struct leat_placement *placement, const char *class_name)
{
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        if (strcmp(placement->classes[placement->workers[w].worker_class].name, class_name) == 0) {
            return placement->workers[w].cpu_count;
        }
    }
    return 1;
}

static void
copy_classes(const struct leat_config *config, const struct leat_placement *placement, struct leat_daemon_class *classes)
{
    for (uint32_t c = 0; c < placement->class_count; c++) {
        const struct leat_config_class *own = leat_config_find_class(config, placement->classes[c].name);
        (void)snprintf(classes[c].name, sizeof(classes[c].name), "%s", placement->classes[c].name);
        classes[c].cores = placement->classes[c].cores;
        if (own != NULL) { /* the price is that of a worker as it starts: what has other cores costs in proportion */
            classes[c].price_micro =
                own->price_micro * classes[c].cores / cores_at_start(placement, placement->classes[c].name);
            classes[c].count_max = own->count_max != LEAT_AUTO ? own->count_max : 0;
        }
    }
}

static struct leat_quota_limits
session_limits(const struct leat_config *config)
{
    const uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t group_bytes = leat_cgroup_memory(NULL);
    struct leat_quota_limits limits = {.sessions = config->limits.sessions,
                                       .sessions_per_user = config->limits.sessions_per_user};

    leat_config_memory(config, group_bytes < machine_bytes ? group_bytes : machine_bytes, &limits.bytes,
                       &limits.bytes_per_user);
    leat_log(LEAT_LOG_INFO, "memory of sessions: at most %.1f GiB, of one user's %.1f GiB", (double)limits.bytes / 0x1p30,
             (double)limits.bytes_per_user / 0x1p30);
    return limits;
}

static enum leat_status
serve(const struct leat_config *config, const struct leat_topology *topology, const struct leat_placement *placement)
{
    struct leat_daemon_worker *workers = calloc(placement->worker_count, sizeof(*workers));
    json_t *described = leat_topology_json(topology, placement);
    struct leat_registry *registry = NULL;
    struct leat_cores *cores = NULL;
    struct leat_cpusets *cpusets = NULL;
    enum leat_status status = leat_registry_open(config->state_dir, &registry);

    if (status == LEAT_OK) {
        status = leat_cores_create(topology, placement, &cores);
    }
    if (status == LEAT_OK) {
        const struct leat_cpusets_options options = {.wanted = config->cgroups, .worker_count = placement->worker_count};
        status = leat_cpusets_create(&options, &cpusets);
    }
    if (status != LEAT_OK) {
        goto out_free;
    }
    if (workers == NULL || described == NULL) {
        status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to start");
        goto out_free;
    }
    struct leat_daemon_class classes[LEAT_PLACEMENT_CLASSES_MAX] = {0};
    copy_places(placement, workers);
    copy_classes(config, placement, classes);
    struct kept kept = {.registry = registry};
    LEAT_MUST(pthread_mutex_init(&kept.mutex, NULL) == 0);
    const bool spin_given = config->dispatcher.spin_ns != LEAT_CONFIG_SPIN_AUTO; /* an order, whatever the cores */
    const struct leat_daemon_store store = {.keep = keep,
                                            .find_made = find_made,
                                            .read_model = read_kept,
                                            .take_file = take_file,
                                            .release_files = release_files,
                                            .open_file = open_kept,
                                            .context = &kept};
    char host[LEAT_MEASURED_HOST_BYTES];
    leat_measured_host(topology->usable_cpus, host);
    const struct leat_daemon_options options = {
        .store = &store,
        .host = host,
        .server =
            {
                .socket_path = config->socket,
                .socket_mode = config->access.mode,
                .socket_group = config->access.gid,
                .limits = session_limits(config),
                .slots_default = config->limits.slots_per_session < 256 ? config->limits.slots_per_session : 256,
                .slots_max = config->limits.slots_per_session,
                .arena_default_bytes = config->limits.arena_default_bytes,
                .arena_max_bytes = config->limits.arena_bytes_per_session,
                .cores = spin_given ? UINT32_MAX : topology->usable_cpus,
            },
        .workers = workers,
        .worker_count = placement->worker_count,
        .classes = classes,
        .class_count = placement->class_count,
        .cores = cores,
        .cpusets = cpusets,
        .scaling = config->scaling,
        .pin = true,
        .dispatcher_cpu = placement->dispatcher_cpu == LEAT_ANYWHERE ? -1 : (int)placement->dispatcher_cpu,
        .worker_depth = config->worker_queue_depth,
        .queue_capacity = config->limits.central_queue,
        .model_memory_bytes = config->limits.model_memory_bytes,
        .item_gflop = config->limits.item_gflop,
        .loop_iterations = config->limits.loop_iterations,
        .pipeline_memory_bytes = config->limits.pipeline_memory_bytes,
        .offline_utilisation_ppm = config->offline_utilisation_ppm,
        .spin_ns = spin_given ? config->dispatcher.spin_ns : placement->may_spin ? SPIN_AUTO_NS : 0,
        .hold_cpu_dma_latency = config->dispatcher.hold_cpu_dma_latency,
        .operators = config->access.operators,
        .operator_count = config->access.operator_count,
        .topology = described,
    };
    status = leat_daemon_create(&options, &the_daemon);
    if (status != LEAT_OK) {
        goto out_free;
    }
    const struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    LEAT_MUST(sigaction(SIGTERM, &stop, NULL) == 0 && sigaction(SIGINT, &stop, NULL) == 0);
    status = load_everything(the_daemon, config, registry);
    if (status == LEAT_OK) {
        leat_log(LEAT_LOG_INFO, "serving on %s", config->socket);
        status = leat_daemon_run(the_daemon, config->drain_ns);
        if (status != LEAT_OK && status != LEAT_ERR_LIMIT) {
            leat_log(LEAT_LOG_ERROR, "%s", leat_error_text());
            _exit(EXIT_FAILED); /* what we would free is still in use */
        }
        leat_log(LEAT_LOG_INFO, "%s", status == LEAT_OK ? "stopped" : "not started");
    }
    LEAT_MUST(signal(SIGTERM, SIG_IGN) != SIG_ERR && signal(SIGINT, SIG_IGN) != SIG_ERR);
    leat_daemon_destroy(the_daemon);

out_free:
    leat_registry_close(registry);
    leat_cpusets_destroy(cpusets);
    leat_cores_destroy(cores);
    json_decref(described);
    free(workers);
    return status;
}

/* Says what is in force, or serves it, once it is known that it can be served here. */
static enum leat_status
check_and_serve(const struct leat_config *config, const struct arguments *arguments)
{
    struct leat_topology *topology = NULL;
    struct leat_placement *placement = NULL;
    const struct leat_topology_source here = {0};

    enum leat_status status = leat_topology_discover(&here, &topology);
    if (status == LEAT_OK) {
        status = leat_config_check(config, topology, &placement);
    }
    if (status == LEAT_OK && arguments->check_config) {
        leat_config_print(config, placement, stdout, arguments->json);
    } else if (status == LEAT_OK) {
        leat_log_level_set(config->log_level);
        leat_topology_print(topology, placement, stderr);
        status = serve(config, topology, placement);
    }
    leat_placement_destroy(placement);
    leat_topology_destroy(topology);
    return status;
}

int
main(int argc, char **argv)
{
    struct arguments arguments;
    struct leat_config *config = NULL;

    const int wanted = parse_arguments(argc, argv, &arguments);
    if (wanted >= 0) {
        return wanted;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    handle_bus();
    enum leat_status status = load_config(&arguments, &config);
    if (status == LEAT_OK) {
        status = check_and_serve(config, &arguments);
    }
    if (status != LEAT_OK) {
        leat_log(LEAT_LOG_ERROR, "%s", leat_error_text());
    }
    leat_config_free(config);
    return status == LEAT_OK ? EXIT_DONE : EXIT_FAILED;
}
