/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/session.h - the daemon's half of a session: its memory, its descriptors and who works on it.
 *
 * Ownership  The control side creates and destroys, on its memory thread (runtime/session_maker.h). Between
 *            LEAT_COMMAND_ADD_SESSION and LEAT_EVENT_SESSION_GONE the dispatcher owns the fields in `dispatcher`, and
 *            the mapping stays valid for dispatcher and workers even if the client has died.
 * Model      tests/model/reclaim.pml is how a session's memory comes back, with a client that dies at any moment.
 * Trust      `rings`, with the lists, and `arena` are writable by the client at any time. Everything else is private.
 */
#ifndef LEAT_RUNTIME_SESSION_H
#define LEAT_RUNTIME_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "ipc/wire.h"

#define LEAT_SESSIONS_MAX 1024u /* places in the daemon's table; clients have those below LEAT_PIPELINE_SESSION */

enum leat_slot_state {
    LEAT_SLOT_IDLE = 0,
    LEAT_SLOT_WAITS = 1,     /* in the central queue or in the application's list */
    LEAT_SLOT_CANCELLED = 2, /* the same, and it is to leave them when next looked at */
};

/* What a slot's last accepted query was, as long as it waits: what a cancel is looked up in. */
struct leat_waiting_slot {
    uint32_t ticket_low;
    uint16_t application; /* id; LEAT_PIPELINE_TARGET and above: a pipeline's, whose run it is until that has ended */
    uint16_t state : 2;   /* enum leat_slot_state */
    uint16_t run : 14;
};
_Static_assert(sizeof(struct leat_waiting_slot) == 8, "eight to a line");

struct leat_daemon_session {
    /* Constant after creation; what a worker reads comes first. */
    struct leat_wire_rings *rings;
    struct leat_wire_response *lanes;
    unsigned char *arena;
    struct leat_wire_list *lists; /* the client's, as rings and arena; of LEAT_PIPELINE_SESSION the dispatcher's */
    uint32_t slots, lane_count;
    _Atomic bool dead; /* set once, by the dispatcher; workers skip queries of a dead session */
    uint16_t index;    /* in the daemon's table */
    struct leat_wire_request *submit_cells;
    uint64_t arena_bytes;
    uint64_t arena_present; /* bytes of it, from its start, that have their pages. W: who makes it and gives it back */
    size_t rings_bytes;
    int rings_fd, arena_fd;
    int wake_fd;   /* eventfd that the client writes; edge-triggered in the dispatcher's epoll, never read */
    int pipe_read; /* the client's end, closed here once it was sent */
    int pipe_write;
    uid_t uid;
    pid_t pid;

    /* W: dispatcher, with every request: no worker reads a line of it. */
    struct {
        _Alignas(LEAT_ISOLATE) uint64_t submit_position;
        uint32_t in_flight; /* accepted and not yet reported done by a worker */
        bool closing;
        struct leat_waiting_slot *slots; /* [slots], the daemon's own memory */
    } dispatcher;

    struct leat_lane_position {
        _Alignas(LEAT_CACHE_LINE) uint64_t next;
    } lane_positions[]; /* [lane_count], W: the lane's producer */
};

struct leat_session_options {
    uint32_t slots;      /* power of two, LEAT_SLOTS_MIN..LEAT_SLOTS_MAX */
    uint32_t lane_count; /* 1..LEAT_LANES_MAX */
    uint64_t arena_bytes; /* multiple of LEAT_TENSOR_ALIGN */
    uint32_t near_node;   /* 1 + NUMA node that its memory prefers; 0: none. From the client: any number */
};

/*
 * Makes, seals, maps and prefaults the memory. `ret_note` (160 bytes) says what could not be given in full. A gigabyte
 * takes half a second: begin does all but the arena's pages, populate makes the next `bytes` of those, and the session
 * is as create makes it once arena_present is arena_bytes.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_session_create(const struct leat_session_options *options,
                                                            struct leat_daemon_session **ret_session,
                                                            char ret_note[160]);
LEAT_MUST_CHECK enum leat_status leat_daemon_session_begin(const struct leat_session_options *options,
                                                           struct leat_daemon_session **ret_session,
                                                           char ret_note[160]);
LEAT_MUST_CHECK enum leat_status leat_daemon_session_populate(struct leat_daemon_session *session, uint64_t bytes);

/*
 * The way back, before destroy: a client that has left, or was sent away, may still hold the memory, and what it holds
 * nobody counts. Gives the last `bytes` of the arena's pages back, and with the first of them the rings' but the page
 * that says that the session has ended.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_session_take_back(struct leat_daemon_session *session, uint64_t bytes);
void leat_daemon_session_destroy(struct leat_daemon_session *session); /* accepts NULL */

/*
 * TSan does not see the client, another process, collect an answer (C1) before it submits its next query (S0) with the same
 * tensors. Told here, it knows that what was written for answers is older than what is done for later queries. It still
 * sees a missing order between the client's two ends: tests/runtime/test_session.c runs them in one process.
 */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define LEAT_TSAN_ANSWERED(session) __tsan_release(session)
#define LEAT_TSAN_ASKED(session)    __tsan_acquire(session)
#else
#define LEAT_TSAN_ANSWERED(session) ((void)(session))
#define LEAT_TSAN_ASKED(session)    ((void)(session))
#endif

/* Publishes one response on `lane`. Only the lane's producer calls it. Does not ring. */
static inline void
leat_daemon_session_respond(struct leat_daemon_session *session, uint32_t lane,
                            const struct leat_wire_response *response)
{
    const uint64_t position = session->lane_positions[lane].next++;
    struct leat_wire_response *cell =
        &session->lanes[(size_t)lane * session->slots + (position & (session->slots - 1))];
    const size_t body = offsetof(struct leat_wire_response, queue_ns);

    memcpy((char *)cell + body, (const char *)response + body, sizeof(*cell) - body);
    LEAT_TSAN_ANSWERED(session);
    atomic_store_explicit(&cell->sequence, position + 1, memory_order_release); /* C0 */
}

/* The client may write to the list at any time, so who uses the copy checks the copy. */
static inline void
leat_daemon_session_copy_list(const struct leat_daemon_session *session, uint32_t slot, uint32_t count, uint32_t *ret_units)
{
    const _Atomic uint32_t *list = (const void *)session->lists[slot].units;
    for (uint32_t t = 0; t < count; t++) {
        ret_units[t] = atomic_load_explicit(&list[t], memory_order_relaxed); /* once */
    }
}

/* Whether every tensor, of so many bytes, below 2^57, lies inside the arena, and no output overlaps another tensor. */
static inline bool
leat_daemon_session_holds(const struct leat_daemon_session *session, const uint32_t *units, const uint64_t *bytes,
                          uint32_t input_count, uint32_t count)
{
    uint64_t start[LEAT_TENSORS_MAX], end[LEAT_TENSORS_MAX];

    for (uint32_t i = 0; i < count; i++) {
        start[i] = (uint64_t)units[i] * LEAT_TENSOR_ALIGN;
        end[i] = start[i] + bytes[i];
        if (end[i] > session->arena_bytes) {
            return false;
        }
    }
    for (uint32_t out = input_count; out < count; out++) {
        for (uint32_t other = 0; other < out; other++) {
            if (start[out] < end[other] && start[other] < end[out]) {
                return false;
            }
        }
    }
    return true;
}

/* Wakes the client if it sleeps. A fence and a load when it does not. Never blocks. */
void leat_daemon_session_ring(struct leat_daemon_session *session);

#endif /* LEAT_RUNTIME_SESSION_H */
