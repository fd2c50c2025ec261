/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/session_maker.h - makes the memory of sessions and gives it back, on a thread of its own.
 *
 * Role      A gigabyte of pages takes the kernel half a second. Nobody else waits for that: the work is cut into parts,
 *           and the jobs take turns, so that who asks for little gets it while others wait for much.
 * Ownership The server's jobs, one for each session that it counts, in an array of its own. Between submit and collect
 *           a job is the maker's; only `abandoned` may be written then.
 * Threads   [S] the server's thread.  step runs on the maker's thread; or on the server's in a test that does not start
 *           one.
 */
#ifndef LEAT_RUNTIME_SESSION_MAKER_H
#define LEAT_RUNTIME_SESSION_MAKER_H

#include "base/status.h"
#include "runtime/session.h"

enum leat_session_work {
    LEAT_SESSION_MAKE,
    LEAT_SESSION_GIVE_BACK, /* `session` */
};

struct leat_session_job {
    enum leat_session_work work;
    struct leat_session_options options;
    struct leat_daemon_session *session; /* made, or NULL */
    bool keep_pages;         /* of one given back: its client may go on reading them, for the daemon ends */
    _Atomic bool abandoned;  /* W: server, while it is made: nobody wants it any more */
    enum leat_status status; /* of making */
    char text[244];          /* why, when it failed */
    char note[160];
    void *owner; /* the server's */
    struct leat_session_job *next;
};

struct leat_session_maker;

LEAT_MUST_CHECK enum leat_status leat_session_maker_create(struct leat_session_maker **ret_maker); /* [S] */
LEAT_MUST_CHECK enum leat_status leat_session_maker_start(struct leat_session_maker *maker);       /* [S] */
void leat_session_maker_destroy(struct leat_session_maker *maker); /* [S] accepts NULL; every job was collected */

void leat_session_maker_submit(struct leat_session_maker *maker, struct leat_session_job *job); /* [S] */
int leat_session_maker_event_fd(const struct leat_session_maker *maker); /* readable when a job is done */
struct leat_session_job *leat_session_maker_collect(struct leat_session_maker *maker); /* [S] NULL: none is done */

/* One part of one job. False when there was none. */
bool leat_session_maker_step(struct leat_session_maker *maker);

#endif /* LEAT_RUNTIME_SESSION_MAKER_H */
