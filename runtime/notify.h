/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/notify.h - telling systemd how the daemon is; every call does nothing outside systemd. Any thread. */
#ifndef LEAT_RUNTIME_NOTIFY_H
#define LEAT_RUNTIME_NOTIFY_H

void leat_notify_ready(const char *status); /* start-up is over; `status` is a short text for people */
void leat_notify_stopping(void);
void leat_notify_watchdog(void); /* "alive"; to be called only after real progress */

#endif /* LEAT_RUNTIME_NOTIFY_H */
