/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leatd that kills itself at the step of its changes of the disk that $LEAT_TEST_KILL_STEP says, counted from when the file
 * $LEAT_TEST_KILL_ARM is there. Threads that finish answers wait at such steps until somebody writes to the FIFO
 * $LEAT_TEST_HOLD, if that is set.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/registry.h"

static void
hold(void)
{
    static _Atomic bool released;
    const char *fifo = getenv("LEAT_TEST_HOLD");
    char name[16] = "";

    if (fifo == NULL || released || pthread_getname_np(pthread_self(), name, sizeof(name)) != 0 || strcmp(name, "leat-answers") != 0) {
        return;
    }
    const int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    released = true;
    (void)close(fd);
}

static void
count_step(unsigned step)
{
    static _Atomic unsigned counted;
    const char *arm = getenv("LEAT_TEST_KILL_ARM"), *number = getenv("LEAT_TEST_KILL_STEP");

    (void)step;
    hold();
    if (arm == NULL || number == NULL || access(arm, F_OK) != 0) {
        return;
    }
    if (1 + atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed) == strtoul(number, NULL, 10)) {
        (void)raise(SIGKILL);
    }
}

__attribute__((constructor)) static void
install(void)
{
    leat_registry_step_hook = count_step;
}
