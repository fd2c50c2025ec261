/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum leat_log_level log_level = LEAT_LOG_INFO;

void
leat_log_level_set(enum leat_log_level level)
{
    log_level = level;
}

void
leat_log(enum leat_log_level level, const char *format, ...)
{
    char line[2048];
    va_list args;

    if (level > log_level) {
        return;
    }
    int used = 0;
    if (secure_getenv("JOURNAL_STREAM") != NULL) {
        used = snprintf(line, sizeof(line), "<%d>", (int)level);
    } else if (level <= LEAT_LOG_WARNING) {
        used = snprintf(line, sizeof(line), "leatd: %s: ", level == LEAT_LOG_ERROR ? "error" : "warning");
    } else {
        used = snprintf(line, sizeof(line), "leatd: ");
    }
    va_start(args, format);
    const int body = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
    va_end(args);
    if (body < 0) {
        return;
    }
    size_t length = (size_t)used + (size_t)body;
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, length); /* one write: lines of threads do not mix */
    (void)written;
}
