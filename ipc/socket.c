/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/align.h"

enum leat_status
leat_socket_address(const char *path, struct sockaddr_un *ret)
{
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof(ret->sun_path)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "socket path '%s' must have 1 to %zu bytes", path,
                         sizeof(ret->sun_path) - 1);
    }
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, path, length + 1);
    return LEAT_OK;
}

enum leat_status
leat_socket_send(int socket, const void *bytes, size_t size, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(LEAT_SOCKET_FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    LEAT_ASSERT(fd_count <= LEAT_SOCKET_FDS_MAX);
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        return LEAT_OK;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return LEAT_AGAIN;
    }
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the other side has closed the connection");
    }
    return LEAT_FAIL(LEAT_ERR_SYS, "cannot send %zu bytes on the socket", size);
}

/* Takes the descriptors out of the control data; false when there were more than fit. */
static bool
collect_fds(struct msghdr *message, struct leat_packet *packet)
{
    bool complete = (message->msg_flags & MSG_CTRUNC) == 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (packet->fd_count < LEAT_SOCKET_FDS_MAX) {
                packet->fds[packet->fd_count++] = fd;
            } else {
                (void)close(fd);
                complete = false;
            }
        }
    }
    return complete;
}

enum leat_status
leat_socket_receive(int socket, struct leat_packet *packet)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(LEAT_SOCKET_FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = packet->bytes, .iov_len = packet->capacity};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t received;

    packet->size = 0;
    packet->fd_count = 0;
    do {
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return LEAT_AGAIN;
        }
        if (errno == ECONNRESET) {
            return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the other side has closed the connection");
        }
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot receive from the socket");
    }
    const bool complete = collect_fds(&message, packet);
    if (received == 0) {
        leat_packet_close_fds(packet);
        return LEAT_FAIL(LEAT_ERR_DISCONNECTED, "the other side has closed the connection");
    }
    if (!complete || (message.msg_flags & MSG_TRUNC) != 0) {
        leat_packet_close_fds(packet);
        return LEAT_FAIL(LEAT_ERR_PROTO, "a packet with more than %zu bytes or %u descriptors", packet->capacity,
                         LEAT_SOCKET_FDS_MAX);
    }
    packet->size = (size_t)received;
    return LEAT_OK;
}

void
leat_packet_close_fds(struct leat_packet *packet)
{
    for (size_t i = 0; i < packet->fd_count; i++) {
        (void)close(packet->fds[i]);
    }
    packet->fd_count = 0;
}
