/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/notify.h"

#include <systemd/sd-daemon.h>

void
leat_notify_ready(const char *status)
{
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void
leat_notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void
leat_notify_watchdog(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}
