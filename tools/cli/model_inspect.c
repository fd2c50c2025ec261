/* SPDX-License-Identifier: Apache-2.0 */
/* leat model inspect: finds the file, has it looked at, shows what was seen. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/cli.h"
#include "tools/cli/inspect.h"
#include "tools/cli/output.h"

/* A model and what it is to be inspected with. */
struct found {
    int fd;
    struct leat_onnx_file files[LEAT_ONNX_FILES_MAX];
    uint32_t file_count;
    enum leat_precision precision;
    json_t *reply; /* of the daemon; NULL: it was not asked */
};

static void
forget(struct found *found)
{
    if (found->fd >= 0) {
        (void)close(found->fd);
    }
    leat_onnx_close_files(found->files, found->file_count);
    json_decref(found->reply);
}

enum leat_status
open_model_files(const char *path, int fd, struct leat_onnx_file *ret_files, uint32_t *ret_count)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    enum leat_status status = LEAT_OK;
    struct stat info;

    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    const int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open the folder %s", folder);
    }
    void *file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0
                     ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                     : MAP_FAILED;
    if (file != MAP_FAILED) {
        status = leat_onnx_open_files(file, (size_t)info.st_size, folder_fd, ret_files, ret_count);
        (void)munmap(file, (size_t)info.st_size);
    }
    (void)close(folder_fd);
    return status;
}

/* A file of that name beside a model that the daemon keeps, on disk until it is closed. */
static bool
fetch_file(const char *model, const char *name, const struct inspect_flags *flags, struct found *found, int *ret_exit)
{
    const char *folder = getenv("TMPDIR");

    *ret_exit = EXIT_FAILED;
    if (found->file_count == LEAT_ONNX_FILES_MAX) {
        (void)report_status("model", model, LEAT_FAIL(LEAT_ERR_LIMIT, "it has too many files"));
        return false;
    }
    struct leat_onnx_file file = {.name = strdup(name),
                                  .fd = open(folder != NULL ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
    if (file.fd < 0 || file.name == NULL) {
        (void)report_status("model", model, LEAT_FAIL(LEAT_ERR_SYS, "cannot make a file in $TMPDIR"));
        free(file.name);
        return false;
    }
    found->files[found->file_count++] = file;
    json_t *reply = ask_daemon("model", flags->socket_path,
                               json_pack("{s:s, s:s, s:s}", "op", "model-file", "name", model, "file", name), file.fd, ret_exit);
    const bool good = reply != NULL;
    json_decref(reply);
    return good;
}

/* The file, or what the daemon keeps under that name. False: reported. */
static bool
find_model(const char *name, const struct inspect_flags *flags, struct found *found, int *ret_exit)
{
    found->fd = open(name, O_RDONLY | O_CLOEXEC);
    if (found->fd >= 0 || strchr(name, '/') != NULL || access(name, F_OK) == 0) {
        *ret_exit = EXIT_FAILED;
        if (found->fd < 0) {
            (void)report_status("model", name, LEAT_FAIL(LEAT_ERR_SYS, "cannot open it"));
            return false;
        }
        const enum leat_status status = open_model_files(name, found->fd, found->files, &found->file_count);
        if (status != LEAT_OK) {
            (void)report_status("model", name, status);
        }
        return status == LEAT_OK;
    }
    found->fd = memfd_create("leat-model", MFD_CLOEXEC);
    if (found->fd < 0) {
        *ret_exit = report_status("model", name, LEAT_FAIL(LEAT_ERR_SYS, "no memory for a file"));
        return false;
    }
    found->reply = ask_daemon("model", flags->socket_path, json_pack("{s:s, s:s}", "op", "model-file", "name", name), found->fd,
                              ret_exit);
    if (found->reply != NULL && !leat_precision_find(text_of(found->reply, "precision"), &found->precision)) {
        found->precision = LEAT_PRECISION_F32;
    }
    bool good = found->reply != NULL;
    json_t *file;
    size_t f;
    json_array_foreach(json_object_get(found->reply, "files"), f, file) {
        good = good && fetch_file(name, text_of(file, "name"), flags, found, ret_exit);
    }
    return good;
}

/* What the command line says, else the daemon; names stay theirs. Of several lengths the longest. */
static bool
read_dims(const struct inspect_flags *flags, const struct found *found, struct inspect_order *order)
{
    const json_t *dims = json_object_size(flags->dims) > 0 ? flags->dims : json_object_get(found->reply, "dims");
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)dims, name, value) { /* only read */
        if (json_is_string(value)) { /* "items" */
            order->batch = name;
            continue;
        }
        if (order->dim_count == LEAT_GRAPH_SYMBOLS_MAX) {
            return false;
        }
        const json_t *last = json_is_array(value) ? json_array_get(value, json_array_size(value) - 1) : value;
        order->dims[order->dim_count++] = (struct leat_dim_value){.name = name, .value = json_integer_value(last)};
    }
    return true;
}

/* Likewise. */
static bool
read_constants(const struct inspect_flags *flags, const struct found *found, struct inspect_order *order)
{
    const json_t *constants =
        json_object_size(flags->constants) > 0 ? flags->constants : json_object_get(found->reply, "constants");
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)constants, name, value) { /* only read */
        if (order->constant_count == LEAT_CONSTANT_INPUTS_MAX) {
            return false;
        }
        order->constants[order->constant_count++] = (struct leat_constant_input){.name = name,
                                                                                 .is_whole = json_is_integer(value),
                                                                                 .whole = json_integer_value(value),
                                                                                 .real = json_real_value(value)};
    }
    return true;
}

/* What the command line says, else the daemon, whose limit may be none. */
static uint64_t
memory_of(const struct inspect_flags *flags, const struct found *found)
{
    const json_t *memory = json_object_get(found->reply, "memory");

    return flags->memory > 0       ? flags->memory
           : memory != NULL        ? (uint64_t)json_integer_value(memory)
                                   : INSPECT_MEMORY_BYTES;
}

/* Likewise; 0: what graphs have that say nothing else. */
static uint32_t
trips_of(const struct inspect_flags *flags, const struct found *found)
{
    const json_t *trips = json_object_get(found->reply, "loop_iterations");

    return (uint32_t)(flags->trips > 0 ? flags->trips : (uint64_t)json_integer_value(trips));
}

static int
show(const struct inspect_order *order, const struct inspect_flags *flags)
{
    struct inspected inspected;

    enum leat_status status = inspect_model(order, &inspected);
    if (status != LEAT_OK) {
        return report_status("model", order->name, status);
    }
    const struct output svg = {.path = flags->svg, .write = inspect_plot};
    status = output_write(&svg, 1, &inspected);
    if (status == LEAT_OK && flags->json) {
        inspect_print_json(&inspected);
    } else if (status == LEAT_OK) {
        inspect_print(&inspected, stdout);
    }
    inspect_free(&inspected);
    return status == LEAT_OK ? EXIT_DONE : report_status("model", flags->svg, status);
}

int
model_inspect(int argc, char **argv, const struct inspect_flags *flags)
{
    struct inspect_order order = {.items = (uint32_t)flags->items,
                                  .cores = flags->cores,
                                  .runs = (uint32_t)flags->runs,
                                  .passes = UINT64_MAX};
    struct found found = {.fd = -1, .precision = LEAT_PRECISION_F32};
    enum leat_precision precision = LEAT_PRECISION_F32;
    struct stat info;
    int exit_code = EXIT_FAILED;

    if (flags->passes && argc > 0) {
        return usage_error("model", "--passes takes no file or name");
    }
    if (flags->passes) {
        inspect_list_passes(flags->json);
        return EXIT_DONE;
    }
    if (argc != 1) {
        return usage_error("model", "inspect needs one file or name");
    }
    if (flags->without != NULL && leat_passes_without(flags->without, &order.passes) != LEAT_OK) {
        return usage_error("model", "--without: %s", leat_error_text());
    }
    if (flags->precision != NULL && !leat_precision_find(flags->precision, &precision)) {
        return usage_error("model", "there is no precision '%s'", flags->precision);
    }
    if (flags->cores > INSPECT_CORES_MAX) {
        return usage_error("model", "--cores: at most %d", INSPECT_CORES_MAX);
    }
    if (output_check("model", "--svg", flags->svg) != EXIT_DONE) {
        return EXIT_FAILED;
    }
    if (!find_model(argv[0], flags, &found, &exit_code)) {
        forget(&found);
        return exit_code;
    }
    void *file = fstat(found.fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0
                     ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, found.fd, 0)
                     : MAP_FAILED;
    if (file == MAP_FAILED) {
        exit_code = report_status("model", argv[0], LEAT_FAIL(LEAT_ERR_PROTO, "it is empty, or no regular file"));
    } else if (!read_dims(flags, &found, &order)) {
        exit_code = usage_error("model", "--dim: at most %u dimensions", LEAT_GRAPH_SYMBOLS_MAX);
    } else if (!read_constants(flags, &found, &order)) {
        exit_code = usage_error("model", "--constant: at most %u inputs", LEAT_CONSTANT_INPUTS_MAX);
    } else {
        order.name = argv[0];
        order.file = file;
        order.file_bytes = (size_t)info.st_size;
        order.files = found.files;
        order.file_count = found.file_count;
        order.precision = flags->precision != NULL ? precision : found.precision;
        order.ranges = json_object_get(found.reply, "ranges");
        order.memory_bytes_max = memory_of(flags, &found);
        order.trips_max = trips_of(flags, &found);
        if (order.precision == LEAT_PRECISION_INT8 && order.ranges == NULL) {
            exit_code = report_status("model", argv[0],
                                      LEAT_FAIL(LEAT_ERR_INVALID, "int8 is for a model that the daemon has calibrated"));
        } else {
            exit_code = show(&order, flags);
        }
    }
    if (file != MAP_FAILED) {
        (void)munmap(file, (size_t)info.st_size);
    }
    forget(&found);
    return exit_code;
}
