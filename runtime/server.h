/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/server.h - the set-up socket: who may connect, with what memory, and who has gone.
 *
 * Role     Accepts connections, checks peer credentials and quotas, answers FIND, passes ADMIN requests on, has sessions
 *          made (runtime/session_maker.h), and closes a session when its socket or its process ends. One thread with an
 *          io_uring, which waits for nothing else.
 * Trust    Every packet is copied and checked; whatever is wrong with one ends that connection with a typed
 *          error, nothing else.
 * Threads  create, run and destroy on one thread. stop from any thread or a signal handler.
 */
#ifndef LEAT_RUNTIME_SERVER_H
#define LEAT_RUNTIME_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include "ipc/socket.h"
#include "runtime/dispatcher.h"
#include "runtime/quota.h"

/*
 * The server's own descriptors: listener and the probe of its path, stop, ring, memory thread and who is just being accepted;
 * and those that came with a packet.
 */
#define LEAT_SERVER_DESCRIPTORS (6 + LEAT_SOCKET_FDS_MAX)

struct leat_server;

struct leat_server_options {
    const char *socket_path;
    mode_t socket_mode;
    gid_t socket_group; /* (gid_t)-1: leave */
    struct leat_quota_limits limits; /* as many sessions as RLIMIT_NOFILE allows: create raises it or says so */
    /* What else the daemon has open at the most, which sessions leave to it; files of weights, as far as there is room. */
    uint32_t descriptors, descriptors_of_files;
    uint32_t slots_default, slots_max; /* powers of two */
    uint64_t arena_default_bytes, arena_max_bytes; /* multiples of LEAT_TENSOR_ALIGN */
    uint32_t lane_count;
    uint64_t spin_ns;  /* what a waiting thread may spin at most, here and in the clients */
    uint32_t cores;    /* usable; threads may spin only while every one that does has one. UINT32_MAX: always */
    uint32_t spinners; /* threads of the daemon that spin */
    struct leat_shared_tables *tables;
    struct leat_dispatcher *dispatcher;

    /* Fills *ret_target; LEAT_ERR_NOT_FOUND with a text otherwise. On the server's thread. */
    enum leat_status (*find)(void *context, const char *name, struct leat_target *ret_target);
    /*
     * Takes over `request` (malloc'd) and `reply_socket`, and may take the descriptors out of the packet; answers later, by
     * leat_server_reply, from any thread. A client has one request answered at a time.
     */
    void (*admin)(void *context, char *request, uid_t uid, struct leat_packet *packet, int reply_socket);
    /* The dispatcher has let go of an application. */
    void (*application_gone)(void *context, struct leat_application *application);
    void (*profiles_copied)(void *context, struct leat_profile_copy *copy); /* NULL where none are asked for */
    void (*policy_set)(void *context, struct leat_policy_change *change); /* likewise */
    void (*resized)(void *context, struct leat_resize *resize);           /* likewise */
    void (*dedicated)(void *context, struct leat_dedication *dedication); /* likewise */
    void (*pipeline_gone)(void *context, struct leat_pipeline *pipeline); /* likewise */
    void (*jumped)(void *context); /* likewise: more waits for an application than was expected */
    /* About twice a second, until run returns: the dispatcher's rounds, to feed a watchdog. */
    void (*tick)(void *context, uint64_t rounds);
    /* The drain begins. */
    void (*stopping)(void *context);
    void *context;
};

struct leat_server_statistics {
    uint32_t sessions; /* that the dispatcher knows */
    uint32_t counted;  /* against the limits: those too that are being made or given back */
    uint64_t accepted, refused, closed;
    uint64_t accept_failures; /* for want of descriptors or memory */
};

LEAT_MUST_CHECK enum leat_status leat_server_create(const struct leat_server_options *options,
                                                    struct leat_server **ret_server);

/*
 * Serves until leat_server_stop, then drains: no new sessions, no new queries, waits for those accepted at
 * most drain_ns, or until leat_server_stop is called again, closes every session, and returns. What was not answered by
 * then is counted in the log. LEAT_TIMEOUT when a worker goes on with a batch for LEAT_SERVER_PATIENCE_NS after that:
 * the socket is gone then, but that worker's sessions are not, and only the end of the process ends them.
 */
LEAT_MUST_CHECK enum leat_status leat_server_run(struct leat_server *server, uint64_t drain_ns);

/*
 * One turn of run's loop: waits at most wait_ns for something to happen and handles what has, ret_handled things. On
 * the server's thread, for a test that drives it step by step instead of by run.
 */
LEAT_MUST_CHECK enum leat_status leat_server_turn(struct leat_server *server, uint64_t wait_ns,
                                                  uint32_t *ret_handled);

#define LEAT_SERVER_PATIENCE_NS UINT64_C(2000000000)
/* Beside turn: one part of the memory thread's work, which only run has a thread for. False: there was none. */
bool leat_server_make_memory(struct leat_server *server);

void leat_server_stop(struct leat_server *server);    /* async-signal-safe */
void leat_server_destroy(struct leat_server *server); /* accepts NULL; removes the socket */
void leat_server_statistics(const struct leat_server *server, struct leat_server_statistics *ret_statistics);

/* Sends {LEAT_WIRE_ADMIN_REPLY, json} and closes the socket; for the admin side. Never blocks. */
void leat_server_reply(int reply_socket, const char *json);

#endif /* LEAT_RUNTIME_SERVER_H */
