/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/listener.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/socket.h"

enum { BACKLOG = 128 };

/*
 * Whether the process behind a connection still exists. The kernel takes a killed process's io_uring, and with it
 * its listening socket, apart a moment after the process has gone: such a socket still accepts connections.
 */
static bool
listener_lives(int connected)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);

    if (getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return true; /* another pid namespace, perhaps: believe that it lives */
    }
    return kill(peer.pid, 0) == 0 || errno != ESRCH;
}

/* A socket file that nobody listens on is left over from a daemon that died: take its place. */
static enum leat_status
remove_stale_socket(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0) {
        return LEAT_OK;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "%s exists and is not a socket: remove it, or choose another ('socket' or --socket)",
                         address->sun_path);
    }
    const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make a socket");
    }
    const int connected = connect(probe, (const struct sockaddr *)address, sizeof(*address));
    const int error = errno;
    const bool alive = connected == 0 && listener_lives(probe);
    (void)close(probe);
    if (alive || (connected != 0 && error != ECONNREFUSED)) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "another daemon listens on %s: stop it, or choose another ('socket' or --socket)",
                         address->sun_path);
    }
    if (unlink(address->sun_path) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot remove the stale socket %s", address->sun_path);
    }
    return LEAT_OK;
}

enum leat_status
leat_listener_open(struct leat_listener *listener, const char *path, mode_t mode, gid_t group)
{
    struct sockaddr_un address;
    struct stat info;

    *listener = (struct leat_listener){.fd = -1};
    enum leat_status status = leat_socket_address(path, &address);
    if (status == LEAT_OK) {
        status = remove_stale_socket(&address);
    }
    if (status != LEAT_OK) {
        return status;
    }
    listener->address = address;
    listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener->fd < 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot make a socket");
    }
    /* Nobody gets in between bind and chmod: the file is born without permissions. */
    const mode_t old_mask = umask(0777);
    const int bound = bind(listener->fd, (const struct sockaddr *)&address, sizeof(address));
    const int bind_error = errno;
    (void)umask(old_mask);
    if (bound != 0) {
        errno = bind_error;
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot bind %s (does its directory exist, and may this user write there?)", path);
    }
    if (stat(path, &info) == 0) {
        listener->device = info.st_dev;
        listener->inode = info.st_ino;
    }
    if (group != (gid_t)-1 && chown(path, (uid_t)-1, group) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot give %s to group %u", path, (unsigned)group);
    }
    if (chmod(path, mode) != 0 || listen(listener->fd, BACKLOG) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot listen on %s", path);
    }
    return LEAT_OK;
}

void
leat_listener_close(struct leat_listener *listener)
{
    struct stat info;

    if (listener->fd < 0) {
        return;
    }
    (void)close(listener->fd);
    if (stat(listener->address.sun_path, &info) == 0 && info.st_dev == listener->device &&
        info.st_ino == listener->inode) {
        (void)unlink(listener->address.sun_path);
    }
    listener->fd = -1;
}
