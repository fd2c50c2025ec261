/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/log.h - one line to standard error, with the priority prefix that journald understands when
 * standard error goes there. Any thread. Never from the hot path.
 */
#ifndef LEAT_RUNTIME_LOG_H
#define LEAT_RUNTIME_LOG_H

enum leat_log_level { LEAT_LOG_ERROR = 3, LEAT_LOG_WARNING = 4, LEAT_LOG_INFO = 6, LEAT_LOG_DEBUG = 7 };

void leat_log_level_set(enum leat_log_level level); /* before threads start; INFO until then */
void leat_log(enum leat_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* LEAT_RUNTIME_LOG_H */
