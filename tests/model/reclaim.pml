/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session's memory comes back: runtime/server.c, runtime/session_maker.c, runtime/dispatcher.c,
 * runtime/dispatcher_commands.c and runtime/worker.c as a model. Clients
 * submit, cancel, leave, or are killed at any moment, when a child that they forked may go on holding the socket. The
 * daemon's table has one place, so the second session takes the index of the first; a queue, a worker or a report names a
 * session by that index only, as in the daemon.
 *
 *   USE          whoever touches a session by its index finds the one that was meant, and finds it mapped
 *   responses    at most one to each query, exactly one if its client stays
 *   end states   the server comes to its end only when every session was given back, and a client only when it has
 *                all its answers; anything that hangs, or a session never given back, is an invalid end state
 *
 *   spin -run -DREMOVED=0 reclaim.pml    holds
 *   spin -run -DREMOVED=n reclaim.pml    each guard taken out in turn: the model can see what it is there for
 */
#ifndef REMOVED
#define REMOVED 0
#endif
#define WAIT_FOR_WORKERS 1 /* a session is gone only with no query of it in flight */
#define ANSWER_FIRST     2 /* a worker reports when it touches the session no more */
#define POLL_NO_MORE     3 /* a closed session's ring is not read */
#define COUNT_DROPPED    4 /* a waiting query that is dropped is in flight no more */
#define INDEX_LAST       5 /* an index is free when its session is gone, not when it is closed */
#define CLOSE_ONCE       6 /* of two notices of an end, the second is ignored */
#define CANCEL_WAITING   7 /* only a waiting query can be cancelled */
#define WATCH_PROCESS    8 /* the process is watched beside the socket */

#define SESSIONS 2
#define QUERIES  2 /* of the first session; of the second one is enough to tell whose index it is */
#define ALL      3 /* query q is of session q / QUERIES */
#define END(s)   (s == 0 -> QUERIES : ALL) /* past the last query of session s */
#define NONE     255

/* Shared between client and daemon. */
bit published[ALL], cancelled[ALL];
byte responses[ALL];
bit connected[SESSIONS], killed[SESSIONS];
bit process_gone[SESSIONS], socket_gone[SESSIONS]; /* what the server can be told */

/* The daemon's. */
bit mapped[SESSIONS];
byte table = NONE; /* the one index: which session it names */
byte in_flight[SESSIONS];
bit dead[SESSIONS];
mtype = { ADD, CLOSE };
chan command = [2] of { mtype, byte };
chan gone = [2] of { byte };
chan give_back = [2] of { byte };
chan given_back = [2] of { byte };
chan work = [1] of { byte };
chan done = [2] of { byte };

#define USE(q) assert(table == (q) / QUERIES && mapped[(q) / QUERIES])

inline respond(q) {
    USE(q);
    responses[q]++;
    assert(responses[q] == 1)
}

proctype client(byte me) {
    byte q = me * QUERIES;
    {
        connected[me];
        do
        :: q < END(me) ->
            atomic {
                published[q] = 1;
                if /* the cancel may be read much later */
                :: me == 0 -> cancelled[q] = 1
                :: skip
                fi;
                q++
            }
        :: break /* leaves early */
        od;
        do
        :: q > me * QUERIES -> q--; responses[q] == 1
        :: q == me * QUERIES -> break
        od;
        socket_gone[me] = 1
    } unless { killed[me] }
}

/* SIGKILL of the first client at any moment after connecting, or never. The socket ends too, unless a child holds it. */
active proctype killer() {
    if
    :: atomic {
        connected[0] -> killed[0] = 1;
        process_gone[0] = 1;
        if
        :: socket_gone[0] = 1
        :: skip
        fi
    }
    :: skip
    fi
}

inline close_connection(s) {
    if
    :: !closed[s] || REMOVED == CLOSE_ONCE ->
        closed[s] = 1;
        command ! CLOSE, s;
        if
        :: REMOVED == INDEX_LAST -> index_free = 1
        :: REMOVED != INDEX_LAST
        fi
    :: else
    fi
}

active proctype server() {
    byte next = 0, s, left = SESSIONS;
    bit index_free = 1;
    bit closed[SESSIONS], seen_process, seen_socket[SESSIONS];

    do
    :: next < SESSIONS && index_free ->
        d_step { index_free = 0; mapped[next] = 1; table = next };
        command ! ADD, next; /* known to the dispatcher before the client hears of it */
        connected[next] = 1;
        next++
    :: REMOVED != WATCH_PROCESS && process_gone[0] && !seen_process -> seen_process = 1; close_connection(0)
    :: socket_gone[0] && !seen_socket[0] -> seen_socket[0] = 1; close_connection(0)
    :: socket_gone[1] && !seen_socket[1] -> seen_socket[1] = 1; close_connection(1)
    :: atomic {
        gone ? s ->
        assert(mapped[s]);
        table = (table == s -> NONE : table);
        give_back ! s;
        s = 0
       }
    :: atomic { given_back ? s -> index_free = 1; left--; s = 0 }
    :: left == 0 -> break
    od
}

active proctype memory() {
    byte s;

end:
    do
    :: atomic { give_back ? s -> mapped[s] = 0; given_back ! s; s = 0 }
    od
}

/* Takes a request that was not taken yet, or its cancel. */
#define TAKE(n) \
    :: atomic { polled[(n) / QUERIES] && published[n] && !seen[n] -> \
        q = n; USE(q); seen[q] = 1; \
        if \
        :: in_flight[q / QUERIES]++; waiting[q] = 1 \
        :: respond(q) /* refused */ \
        fi; q = 0 } \
    :: atomic { polled[(n) / QUERIES] && cancelled[n] && seen[n] && !cancel_seen[n] -> \
        q = n; USE(q); cancel_seen[q] = 1; \
        if \
        :: waiting[q] -> waiting[q] = 0; in_flight[q / QUERIES]--; respond(q) \
        :: !waiting[q] && REMOVED == CANCEL_WAITING && responses[q] == 0 -> respond(q) \
        :: else \
        fi; q = 0 }

#define HAND_OVER(n) \
    :: atomic { waiting[n] && nfull(work) -> USE(n); waiting[n] = 0; work ! n }

active proctype dispatcher() {
    byte s, q;
    bit polled[SESSIONS], closing[SESSIONS];
    bit seen[ALL], cancel_seen[ALL], waiting[ALL];

end:
    do
    :: atomic { command ? ADD, s -> polled[s] = 1; s = 0 }
    :: command ? CLOSE, s ->
        d_step {
            assert(mapped[s]); /* the client is told */
            dead[s] = 1;
            if
            :: REMOVED != POLL_NO_MORE -> polled[s] = 0
            :: else
            fi;
            q = s * QUERIES;
            do
            :: q < END(s) ->
                if
                :: waiting[q] ->
                    waiting[q] = 0;
                    if
                    :: REMOVED != COUNT_DROPPED -> in_flight[s]--
                    :: else
                    fi
                :: else
                fi;
                q++
            :: else -> break
            od;
            closing[s] = 1;
            q = 0;
            s = 0
        }
    :: polled[0] && !mapped[0] -> assert(false) /* looks at a ring that is no more */
    :: polled[1] && !mapped[1] -> assert(false)
    TAKE(0)
    TAKE(1)
    TAKE(2)
    HAND_OVER(0)
    HAND_OVER(1)
    HAND_OVER(2)
    :: atomic { done ? q -> USE(q); assert(in_flight[q / QUERIES] > 0); in_flight[q / QUERIES]--; q = 0 }
    :: atomic { closing[0] && (in_flight[0] == 0 || REMOVED == WAIT_FOR_WORKERS) -> closing[0] = 0; gone ! 0 }
    :: atomic { closing[1] && (in_flight[1] == 0 || REMOVED == WAIT_FOR_WORKERS) -> closing[1] = 0; gone ! 1 }
    od
}

active proctype worker() {
    byte q;

end:
    do
    :: work ? q ->
        USE(q);
        if
        :: dead[q / QUERIES] -> done ! q
        :: else ->
            USE(q); /* reads the inputs, writes the outputs */
            if
            :: REMOVED == ANSWER_FIRST -> done ! q
            :: else
            fi;
            atomic { respond(q) }; /* C0 */
            USE(q); /* rings the client */
            if
            :: REMOVED != ANSWER_FIRST -> done ! q
            :: else
            fi
        fi
    od
}

init {
    atomic {
        run client(0);
        run client(1)
    }
}
