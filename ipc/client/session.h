/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc/client/session.h - the inside of a client's session; private to libleat and its tests.
 *
 * Threads  One at a time, the caller's.
 * Trust    The daemon is trusted with the answers, not with this process's memory: positions, slot states
 *          and geometry are private, and every index read from shared memory is checked.
 */
#ifndef LEAT_IPC_CLIENT_SESSION_H
#define LEAT_IPC_CLIENT_SESSION_H

#include <stdbool.h>
#include <sys/types.h>

#include <leat/leat.h>

#include "ipc/tensor_arena.h"
#include "ipc/wire.h"

struct leat_client_slot {
    uint64_t ticket; /* of the query that holds the slot; 0: free */
    uint64_t user_data;
    uint64_t submit_ns; /* session clock */
    bool cancel_sent;
};

struct leat_client_target {
    bool known;
    uint32_t items_max;
    uint32_t length_max;
    uint32_t tensor_count;
    uint64_t item_bytes[LEAT_TENSORS_MAX];
};

struct leat_session {
    /* Hot: one submission or one poll touches these. */
    struct leat_wire_rings *rings;
    struct leat_wire_request *submit_cells;
    struct leat_wire_response *lanes; /* [lane_count][slots] */
    struct leat_wire_list *lists;     /* [slots] */
    uint64_t submit_position;         /* next cell of the submission ring */
    uint64_t lane_positions[LEAT_LANES_MAX];
    uint32_t lane_count;
    uint32_t lane_next; /* where the next poll starts, so that no lane starves */
    uint32_t slots;     /* power of two */
    uint32_t in_flight;
    uint32_t free_count;
    uint16_t *free_slots; /* stack of free_count slots */
    struct leat_client_slot *slot_states;
    uint64_t next_ticket; /* from 1 */
    unsigned char *arena;
    uint64_t arena_bytes;
    struct leat_clock clock;
    struct leat_client_target *targets; /* by id, target_count of them */
    uint32_t target_count;
    bool connected; /* false: completions are LOST from here on */
    uint32_t empty_polls;
    uint64_t peer_checked_ns;
    uint64_t spin_budget_ns; /* adaptive; ipc/client/wait.c */
    /*
     * Completions that leat_run met while waiting for its own: a ring of `slots`. Submitting counts them as in flight,
     * so in_flight + stash_count <= slots and the ring cannot overflow.
     */
    struct leat_completion *stash;
    uint32_t stash_head, stash_count;

    /* Cold. */
    struct leat_tensor_arena *allocator;
    size_t rings_bytes;
    int socket;
    int daemon_fd; /* eventfd that wakes the dispatcher */
    int client_fd; /* read end of the wake-up pipe */
    int event_fd;  /* epoll over client_fd and socket, made on first use; -1 */
    pid_t owner;   /* the process that opened it */
    struct leat_options options;
    char socket_path[108];
    char daemon_version[16];
    char note[160];
};

/* True while the daemon is known to live; asks the kernel when `now_ns` is far enough from the last time. */
bool leat_session_check_peer(struct leat_session *session, uint64_t now_ns, uint64_t every_ns);

#endif /* LEAT_IPC_CLIENT_SESSION_H */
