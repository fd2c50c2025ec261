/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/listener.h - the socket file that clients connect to: makes it, takes a dead daemon's over, removes it. */
#ifndef LEAT_RUNTIME_LISTENER_H
#define LEAT_RUNTIME_LISTENER_H

#include <sys/types.h>
#include <sys/un.h>

#include "base/status.h"

struct leat_listener {
    int fd; /* -1: none */
    struct sockaddr_un address;
    dev_t device; /* of the file that we made, so that we remove only that */
    ino_t inode;
};

/* `group` (gid_t)-1 leaves it. LEAT_ERR_EXISTS: another daemon listens there. On failure close is still in order. */
LEAT_MUST_CHECK enum leat_status leat_listener_open(struct leat_listener *listener, const char *path, mode_t mode,
                                                    gid_t group);
void leat_listener_close(struct leat_listener *listener);

#endif /* LEAT_RUNTIME_LISTENER_H */
