/* SPDX-License-Identifier: Apache-2.0 */
/* Backends by name, and those that shared libraries bring. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/team.h"

static const struct leat_backend *const built_in[] = {&leat_backend_cpu, &leat_backend_reference, &leat_backend_synthetic};

/* Of a plug-in; written while one thread is there. */
static struct loaded {
    char name[LEAT_BACKEND_NAME_MAX];
    const struct leat_backend_plugin *plugin;
    struct leat_backend backend; /* the plug-in's, under our name */
} loaded[LEAT_BACKENDS_LOADED];
static uint32_t loaded_count;

const struct leat_backend *
leat_backend_find(const char *name)
{
    for (size_t i = 0; i < LEAT_COUNT_OF(built_in); i++) {
        if (strcmp(built_in[i]->name, name) == 0) {
            return built_in[i];
        }
    }
    for (uint32_t i = 0; i < loaded_count; i++) {
        if (strcmp(loaded[i].name, name) == 0) {
            return &loaded[i].backend;
        }
    }
    return NULL;
}

const char *
leat_backend_names(char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < LEAT_COUNT_OF(built_in) + loaded_count && used < bytes; i++) {
        const char *name = i < LEAT_COUNT_OF(built_in) ? built_in[i]->name : loaded[i - LEAT_COUNT_OF(built_in)].name;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", name);
    }
    return text;
}

/* ---- Files -------------------------------------------------------------------------------------- */

/* One step of a path, which has no links any more. In a folder with the sticky bit others can add files, not replace ours. */
static enum leat_status
check_step(const char *path, bool is_file)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "%s", path);
    }
    if (is_file && !S_ISREG(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s is no regular file", path);
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        return LEAT_FAIL(LEAT_ERR_ACCESS,
                         "%s belongs to user %u: what is loaded has all rights of this process, so it and its folders must be "
                         "root's or those of user %u, whom this process runs as", path, (unsigned)info.st_uid,
                         (unsigned)geteuid());
    }
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (is_file || (info.st_mode & S_ISVTX) == 0)) {
        return LEAT_FAIL(LEAT_ERR_ACCESS,
                         "%s has mode %04o: what is loaded has all rights of this process, so nobody but the owner may write to "
                         "it or its folders; chmod go-w mends that", path, (unsigned)(info.st_mode & 07777));
    }
    return LEAT_OK;
}

/* The folders from the root down, then the file: whoever could exchange one of them is root or us. */
static enum leat_status
check_path(char *path)
{
    enum leat_status status = check_step("/", false);

    for (char *at = path + 1; status == LEAT_OK && (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        status = check_step(path, false);
        *at = '/';
    }
    return status == LEAT_OK ? check_step(path, true) : status;
}

static enum leat_status
open_file(const char *path, void **ret_handle)
{
    char *real = realpath(path, NULL);

    if (real == NULL) {
        return errno == ENOENT ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no file %s", path)
                               : LEAT_FAIL(LEAT_ERR_SYS, "%s", path);
    }
    enum leat_status status = check_path(real);
    if (status == LEAT_OK) {
        *ret_handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
        status = *ret_handle != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_PROTO, "%s", dlerror());
    }
    free(real);
    return status;
}

static enum leat_status
open_library(const char *name, void **ret_handle)
{
    void *handle = NULL;
    enum leat_status status = LEAT_OK;

    if (strchr(name, '/') != NULL) {
        status = open_file(name, &handle);
    } else {
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        status = handle != NULL ? LEAT_OK : LEAT_FAIL(LEAT_ERR_NOT_FOUND, "%s", dlerror());
    }
    if (status == LEAT_OK) {
        *ret_handle = handle;
    }
    return status;
}

/* ---- Plug-ins ----------------------------------------------------------------------------------- */

static const struct leat_backend_host host = {
    .abi = LEAT_BACKEND_ABI,
    .fail = leat_err_record,
    .team_size = leat_team_size,
    .team_class = leat_team_class,
    .team_cpu = leat_team_cpu,
    .team_run = leat_team_run,
    .team_barrier = leat_team_barrier,
    .team_yield = leat_team_yield,
    .segments_gather = leat_segments_gather,
    .segments_scatter = leat_segments_scatter,
    .library_open = open_library,
};

static enum leat_status
check_abi(const char *path, uint32_t abi)
{
    return abi == LEAT_BACKEND_ABI
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_VERSION, "%s is built for version %u of the backend interface, this leat has %u: build it anew",
                           path, abi, LEAT_BACKEND_ABI);
}

static enum leat_status
check_backend(const char *path, const struct leat_backend *backend)
{
    const enum leat_status status = check_abi(path, backend->abi);

    if (status != LEAT_OK) {
        return status;
    }
    if (backend->model_load == NULL || backend->model_destroy == NULL || backend->model_bytes == NULL ||
        backend->plan_build == NULL || backend->plan_destroy == NULL || backend->plan_scratch_bytes == NULL ||
        backend->plan_run == NULL) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s lacks functions: only precisions, model_describe and plan_times may be NULL", path);
    }
    if ((leat_backend_precisions(backend) & LEAT_PRECISION_BIT(LEAT_PRECISION_F32)) == 0) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%s does not run models as they are in the file (f32)", path);
    }
    return LEAT_OK;
}

enum leat_status
leat_backend_load(const char *name, const char *path, const char *options)
{
    const struct leat_backend *backend = NULL;
    void *handle = NULL;

    if (name[0] == '\0' || strlen(name) >= LEAT_BACKEND_NAME_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "'%.40s' is no backend's name: 1 to %d bytes are", name, LEAT_BACKEND_NAME_MAX - 1);
    }
    if (leat_backend_find(name) != NULL) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "there is a backend '%s' already", name);
    }
    if (loaded_count == LEAT_BACKENDS_LOADED) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "%u backends are loaded already", loaded_count);
    }
    enum leat_status status = open_file(path, &handle);
    if (status != LEAT_OK) {
        return status;
    }
    const struct leat_backend_plugin *plugin = dlsym(handle, LEAT_BACKEND_SYMBOL);
    if (plugin == NULL) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s has no symbol " LEAT_BACKEND_SYMBOL ": it is not a backend, or hides it", path);
    }
    for (uint32_t i = 0; i < loaded_count; i++) {
        if (loaded[i].plugin == plugin) {
            return LEAT_FAIL(LEAT_ERR_EXISTS, "%s is loaded already, as backend '%s'", path, loaded[i].name);
        }
    }
    status = check_abi(path, plugin->abi);
    if (status == LEAT_OK && plugin->open == NULL) {
        status = LEAT_FAIL(LEAT_ERR_INVALID, "%s lacks the function `open`", path);
    }
    if (status == LEAT_OK) {
        status = plugin->open(&host, options, &backend);
    }
    if (status == LEAT_OK) {
        status = backend != NULL ? check_backend(path, backend) : LEAT_FAIL(LEAT_ERR_INVALID, "%s returned no backend", path);
    }
    if (status != LEAT_OK) {
        return status;
    }
    struct loaded *place = &loaded[loaded_count++];
    (void)strcpy(place->name, name);
    place->plugin = plugin;
    place->backend = *backend;
    place->backend.name = place->name;
    return LEAT_OK;
}
