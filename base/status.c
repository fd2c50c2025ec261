/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char err_text[1024];

static const char *const texts[LEAT_STATUS_MAX - LEAT_STATUS_MIN + 1] = {
    [LEAT_OK - LEAT_STATUS_MIN] = "ok",
    [LEAT_AGAIN - LEAT_STATUS_MIN] = "nothing to do or no room right now",
    [LEAT_TIMEOUT - LEAT_STATUS_MIN] = "timed out",
    [LEAT_ERR_PROTO - LEAT_STATUS_MIN] = "malformed data",
    [LEAT_ERR_SYS - LEAT_STATUS_MIN] = "system call failed",
    [LEAT_ERR_NOMEM - LEAT_STATUS_MIN] = "out of memory",
    [LEAT_ERR_DEVICE - LEAT_STATUS_MIN] = "device library error",
    [LEAT_ERR_INVALID - LEAT_STATUS_MIN] = "invalid argument",
    [LEAT_ERR_NOT_FOUND - LEAT_STATUS_MIN] = "not found",
    [LEAT_ERR_EXISTS - LEAT_STATUS_MIN] = "already exists",
    [LEAT_ERR_UNSUPPORTED - LEAT_STATUS_MIN] = "not supported",
    [LEAT_ERR_ACCESS - LEAT_STATUS_MIN] = "permission denied",
    [LEAT_ERR_LIMIT - LEAT_STATUS_MIN] = "limit reached",
    [LEAT_ERR_VERSION - LEAT_STATUS_MIN] = "no common protocol version",
    [LEAT_ERR_DISCONNECTED - LEAT_STATUS_MIN] = "the daemon is gone",
    [LEAT_ERR_SHAPE - LEAT_STATUS_MIN] = "wrong tensor type, shape or size",
    [LEAT_ERR_BUSY - LEAT_STATUS_MIN] = "still in use",
    [LEAT_ERR_CONFIG - LEAT_STATUS_MIN] = "wrong configuration",
};

const char *
leat_status_text(enum leat_status status)
{
    const int value = (int)status;
    return value < LEAT_STATUS_MIN || value > LEAT_STATUS_MAX ? "unknown status"
                                                              : texts[value - LEAT_STATUS_MIN];
}

/* What errors repeat of files and requests may hold what a terminal obeys. */
static void
make_plain(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        const bool control = *c < 0x20 || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0);
        if (control && *c == 0xc2) {
            *c++ = '?';
        }
        *c = control ? '?' : *c;
    }
}

enum leat_status
leat_err_record(enum leat_status status, const char *format, ...)
{
    const int saved_errno = errno;
    va_list args;

    va_start(args, format);
    const int used = vsnprintf(err_text, sizeof(err_text), format, args);
    va_end(args);
    LEAT_ASSERT(used >= 0);
    if (status == LEAT_ERR_SYS && saved_errno != 0 && (size_t)used < sizeof(err_text)) {
        (void)snprintf(err_text + used, sizeof(err_text) - (size_t)used, ": %s",
                       strerror(saved_errno));
    }
    make_plain(err_text);
    errno = saved_errno;
    return status;
}

enum leat_status
leat_err_prefix(enum leat_status status, const char *format, ...)
{
    char old[sizeof(err_text)];
    va_list args;

    memcpy(old, err_text, sizeof(old));
    va_start(args, format);
    const int used = vsnprintf(err_text, sizeof(err_text), format, args);
    va_end(args);
    LEAT_ASSERT(used >= 0);
    if ((size_t)used < sizeof(err_text)) {
        (void)snprintf(err_text + used, sizeof(err_text) - (size_t)used, ": %s", old);
    }
    make_plain(err_text);
    return status;
}

const char *
leat_error_text(void)
{
    return err_text;
}

_Noreturn void
leat_assert_failed(const char *cond, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, cond);
    abort();
}
