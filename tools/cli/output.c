/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/cli.h"

int
output_check(const char *verb, const char *option, const char *path)
{
    char folder[4096];
    struct stat info;

    if (path == NULL || (stat(path, &info) == 0 && access(path, W_OK) == 0 && !S_ISDIR(info.st_mode))) {
        return EXIT_DONE;
    }
    const char *slash = strrchr(path, '/');
    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    if (stat(path, &info) == 0 || access(folder, W_OK) != 0) {
        (void)fprintf(stderr, "leat %s: %s: cannot write %s\n", verb, option, path);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static enum leat_status
fill_file(const void *of, FILE *out, void (*write)(const void *, FILE *))
{
    errno = ENOMEM; /* unless writing says something else */
    write(of, out);
    const bool good = ferror(out) == 0 && ftell(out) != 0;
    return fclose(out) == 0 && good ? LEAT_OK : LEAT_ERR_SYS;
}

/* Under another name beside it first, then in its place: who reads it sees the old or the new. */
static enum leat_status
replace_file(const void *of, const char *path, void (*write)(const void *, FILE *))
{
    enum leat_status status = LEAT_ERR_SYS;
    char *beside = NULL;
    const mode_t mask = umask(0);

    (void)umask(mask);
    if (asprintf(&beside, "%s.XXXXXX", path) < 0) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a file name");
    }
    const int fd = mkstemp(beside);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out != NULL) {
        status = fill_file(of, out, write);
        if (status != LEAT_OK || chmod(beside, 0666 & ~mask) != 0 || rename(beside, path) != 0) {
            status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
            (void)unlink(beside);
        }
    } else {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
    }
    free(beside);
    return status;
}

static enum leat_status
write_file(const void *of, const char *path, void (*write)(const void *, FILE *))
{
    struct stat info;

    if (path == NULL) {
        return LEAT_OK;
    }
    if (stat(path, &info) != 0) {
        return replace_file(of, path, write);
    }
    if (S_ISREG(info.st_mode)) { /* what a link points to, not the link */
        char *real = realpath(path, NULL);
        const enum leat_status status = real != NULL ? replace_file(of, real, write)
                                                     : LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
        free(real);
        return status;
    }
    FILE *out = fopen(path, "w"); /* a pipe or a terminal */
    if (out == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
    }
    write(of, out);
    const bool good = ferror(out) == 0;
    return fclose(out) == 0 && good ? LEAT_OK : LEAT_FAIL(LEAT_ERR_SYS, "cannot write %s", path);
}

enum leat_status
output_write(const struct output *outputs, size_t count, const void *of)
{
    enum leat_status status = LEAT_OK;
    sigset_t signals, before;

    /* Not interrupted between a file's making and its naming; only this thread is left. */
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    LEAT_MUST(sigprocmask(SIG_BLOCK, &signals, &before) == 0);
    for (size_t i = 0; i < count && status == LEAT_OK; i++) {
        status = write_file(of, outputs[i].path, outputs[i].write);
    }
    LEAT_MUST(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    return status;
}

void
output_csv_field(FILE *out, const char *field)
{
    if (strpbrk(field, ",\"\r\n") == NULL) {
        (void)fputs(field, out);
        return;
    }
    (void)fputc('"', out);
    for (; *field != '\0'; field++) {
        (void)fputs(*field == '"' ? "\"" : "", out);
        (void)fputc(*field, out);
    }
    (void)fputc('"', out);
}
