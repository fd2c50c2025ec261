/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leatd that kills itself at the step of its changes of the disk that $LEAT_TEST_KILL_STEP says, counted from when the file
 * $LEAT_TEST_KILL_ARM is there.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/registry.h"

static void
count_step(unsigned step)
{
    static _Atomic unsigned counted;
    const char *arm = getenv("LEAT_TEST_KILL_ARM"), *number = getenv("LEAT_TEST_KILL_STEP");

    (void)step;
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
