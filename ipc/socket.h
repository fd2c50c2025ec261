/* SPDX-License-Identifier: Apache-2.0 */
/* ipc/socket.h - one packet with descriptors over a SOCK_SEQPACKET socket; used by both sides. */
#ifndef LEAT_IPC_SOCKET_H
#define LEAT_IPC_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_SOCKET_FDS_MAX 65u /* a model and the files of its weights */

struct leat_packet {
    void *bytes;
    size_t capacity; /* of bytes */
    size_t size;     /* received */
    int fds[LEAT_SOCKET_FDS_MAX]; /* received and owned by the caller; close-on-exec */
    size_t fd_count;
};

/* Fills sockaddr_un for `path`. LEAT_ERR_INVALID when it is too long. `ret` is a struct sockaddr_un. */
struct sockaddr_un;
LEAT_MUST_CHECK enum leat_status leat_socket_address(const char *path, struct sockaddr_un *ret);

/*
 * Sends one packet. LEAT_AGAIN: the socket is full (non-blocking sockets); LEAT_ERR_DISCONNECTED: the peer is gone.
 * Raises no SIGPIPE.
 */
LEAT_MUST_CHECK enum leat_status leat_socket_send(int socket, const void *bytes, size_t size, const int *fds,
                                                  size_t fd_count);

/*
 * Receives one packet whole. LEAT_AGAIN: none there (non-blocking, or the receive timeout passed);
 * LEAT_ERR_DISCONNECTED: the peer closed; LEAT_ERR_PROTO: larger than the capacity, or too many descriptors.
 * On failure no descriptor is kept.
 */
LEAT_MUST_CHECK enum leat_status leat_socket_receive(int socket, struct leat_packet *packet);

void leat_packet_close_fds(struct leat_packet *packet);

#endif /* LEAT_IPC_SOCKET_H */
