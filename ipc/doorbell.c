/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void
leat_bell_futex_wake(struct leat_bell *bell, bool shared)
{
    (void)syscall(SYS_futex, &bell->asleep, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void
leat_bell_futex_sleep(struct leat_bell *bell, bool shared, uint64_t timeout_ns)
{
    const struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    /* EAGAIN, EINTR and ETIMEDOUT mean the same to the caller: look again. */
    (void)syscall(SYS_futex, &bell->asleep, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, LEAT_BELL_FUTEX,
                  timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}
