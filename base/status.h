/* SPDX-License-Identifier: Apache-2.0 */
/* base/status.h - error records and assertions used by every module. */
#ifndef LEAT_BASE_STATUS_H
#define LEAT_BASE_STATUS_H

#include <leat/status.h>

#define LEAT_COLD     __attribute__((cold, noinline))
#define LEAT_LIKELY(x)   __builtin_expect(!!(x), 1)
#define LEAT_UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * Records why an operation failed and returns `status`, so `return LEAT_FAIL(...)` is one line.
 * The first function that knows the cause calls it; callers only propagate. The record is a
 * fixed thread-local buffer: no allocation, and the hot path never gets here. The text is for
 * people: what was wrong, where, and what to do. With LEAT_ERR_SYS, strerror(errno) is appended.
 */
#define LEAT_FAIL(status, ...) leat_err_record((status), __VA_ARGS__)
enum leat_status leat_err_record(enum leat_status status, const char *format, ...) LEAT_COLD
    __attribute__((format(printf, 2, 3)));

/* Puts "context: " before the recorded text and returns `status`; for a caller that knows more. */
enum leat_status leat_err_prefix(enum leat_status status, const char *format, ...) LEAT_COLD
    __attribute__((format(printf, 2, 3)));

/*
 * Both stay on in release builds, and both are only for bugs in this process: bytes that another
 * process, a file or a device could have written are checked with `if`, never asserted.
 * LEAT_ASSERT states a fact and has no side effects. LEAT_MUST runs a call that cannot fail here.
 */
#define LEAT_ASSERT(cond) (LEAT_LIKELY(cond) ? (void)0 : leat_assert_failed(#cond, __FILE__, __LINE__))
#define LEAT_MUST(call)   LEAT_ASSERT(call)
_Noreturn void leat_assert_failed(const char *cond, const char *file, int line) LEAT_COLD;

#endif /* LEAT_BASE_STATUS_H */
