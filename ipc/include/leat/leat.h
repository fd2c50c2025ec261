/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat/leat.h - the client library: ask the leat daemon on this machine for answers.
 *
 *     open -> find -> tensor_alloc -> submit -> wait or poll -> tensor_free -> close
 *
 * Role       A session is one connection: rings and a tensor arena in memory that the daemon created and
 *            shares with this process alone. Inputs are written, and answers appear, in that arena; nothing
 *            is copied on the way. The daemon chooses worker, batch and moment.
 * Ownership  A tensor is the caller's from leat_tensor_alloc to leat_submit, the daemon's until the query's
 *            completion was returned by leat_poll or leat_wait, then the caller's again. Inputs may be
 *            shared by several queries in flight as long as nobody writes them; outputs may not.
 * Planes     A call returns a status (leat/status.h); one that fails has no effect. Every query accepted by
 *            leat_submit ends in exactly one completion, whose outcome says how it ended. A wait that times
 *            out and a cancel that comes too late change nothing of that.
 * Threads    A session is used by one thread at a time; each function says where that differs. Different
 *            sessions are independent: a thread that wants to submit on its own opens its own.
 * Fork       A session does not survive fork() in the child: close it there, nothing else.
 * Library    installs no signal handler, starts no thread, never exits, and writes nothing; but leat_tensor_free() of memory
 *            that is no tensor aborts the process with a line on standard error, as free() does.
 * Units      Nanoseconds and bytes; names say so.
 */
#ifndef LEAT_LEAT_H
#define LEAT_LEAT_H

#include <stddef.h>
#include <stdint.h>

#include <leat/status.h>
#include <leat/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header, and of the build, which reads it here. */
#define LEAT_VERSION_MAJOR 0
#define LEAT_VERSION_MINOR 1
#define LEAT_VERSION_PATCH 0

struct leat_session;

/* How an accepted query ended. Values never change. */
enum leat_outcome {
    LEAT_OUTCOME_NONE = 0,
    LEAT_OUTCOME_OK = 1,        /* the outputs hold the answer */
    LEAT_OUTCOME_REJECTED = 2,  /* never started: see enum leat_reason */
    LEAT_OUTCOME_EXPIRED = 3,   /* accepted, but the deadline passed before it could start */
    LEAT_OUTCOME_CANCELLED = 4, /* leat_cancel came in time */
    LEAT_OUTCOME_FAILED = 5,    /* it ran and failed; the outputs are undefined */
    LEAT_OUTCOME_LOST = 6,      /* the daemon died or closed the session; it may or may not have run */
};

/* Why, for outcomes that are not OK. Values never change. */
enum leat_reason {
    LEAT_REASON_NONE = 0,
    LEAT_REASON_DEADLINE = 1,   /* the latency objective cannot be met with the work already queued */
    LEAT_REASON_QUEUE_FULL = 2, /* the application's or the daemon's queue is at its bound, or runs of the pipeline are */
    LEAT_REASON_DRAINING = 3,   /* the daemon is shutting down */
    LEAT_REASON_TARGET = 4,     /* the application, model or pipeline was removed, or is not loaded */
    LEAT_REASON_TENSOR = 5,     /* a tensor lies outside the arena, is misaligned or overlaps an output */
    LEAT_REASON_ITEMS = 6,      /* more items than the largest batch, or none */
    LEAT_REASON_ACCURACY = 7,   /* no variant reaches the accuracy floor */
    LEAT_REASON_IN_FLIGHT = 8,  /* more queries in flight than the session has slots */
    LEAT_REASON_PAYLOAD = 9,    /* the model refused the values in the tensors (an index out of range) */
    LEAT_REASON_DEVICE = 10,    /* the engine or a device failed */
    LEAT_REASON_MALFORMED = 11, /* the request asks for something that this daemon does not know */
    LEAT_REASON_COST = 12,      /* no variant that is accurate enough is cheap enough */
    LEAT_REASON_PRICE = 13,     /* nor on classes of workers that have a price; `worker` is of one that has none */
    LEAT_REASON_LENGTH = 14,    /* a longer sequence than the model has, or the model has none */
};

struct leat_options {
    uint32_t size;           /* sizeof(struct leat_options); set by LEAT_OPTIONS_INIT */
    uint32_t slots;          /* queries in flight, 1..8192 and at most what the daemon allows; 0: 256, or that. Rounded up to a
                              * power of two */
    const char *socket_path; /* NULL: $LEAT_SOCKET, else /run/leat/leat.sock */
    uint64_t arena_bytes;    /* tensor memory; 0: the daemon's default */
    uint64_t spin_ns;        /* how long leat_wait spins before it sleeps; UINT64_MAX: adaptive */
    uint64_t reserved[4];    /* zero */
};
#define LEAT_OPTIONS_INIT {sizeof(struct leat_options), 0, NULL, 0, UINT64_MAX, {0, 0, 0, 0}}

/*
 * An application, a model or a pipeline, resolved once. A query to a pipeline is one query: with one deadline, floor, cap and
 * answer. It asks the pipeline's stages, each an application, one after another or side by side; what flows between them never
 * leaves the daemon. Its last output, `stage_ns`, u64 [items][stages][2], says of each stage how long it waited from when what
 * it needs was there until it began, and how long it took then: zeros where there was nothing for it to do.
 */
struct leat_target {
    uint32_t id;
    uint32_t items_max; /* largest number of items in one query */
    uint32_t input_count, output_count;
    /*
     * Of a model of sequences: how long they may be. Tensors are as large as for the longest, whatever a query says; a shorter one
     * takes less time, as the next of `lengths` does that holds it. 0: the model has none.
     */
    uint32_t length_max;
    uint32_t length_count;
    uint32_t lengths[LEAT_LENGTHS_MAX]; /* ascending, length_count of them; the last is length_max */
    uint8_t length_axes[LEAT_TENSORS_MAX]; /* of each tensor, the dimension that counts positions; 0: none does */
    struct leat_tensor_info tensors[LEAT_TENSORS_MAX]; /* inputs, then outputs */
};

/* flags of struct leat_query */
/*
 * For when nobody waits: no worker takes it while a query without this flag waits, in any application, however long that lasts.
 * It has the latency objective that it names, never the application's.
 */
#define LEAT_QUERY_OFFLINE 1u

struct leat_query {
    uint32_t size;   /* sizeof(struct leat_query); set by LEAT_QUERY_INIT */
    uint32_t target; /* leat_target.id */
    uint32_t items;  /* 1..items_max */
    uint32_t flags;
    uint64_t latency_ns;         /* objective, from now, rounded up to microseconds, at most 2^32 - 1 of them; 0: the application's */
    uint32_t accuracy_floor_ppm; /* 0: any. 950000 is 95 %. Of a pipeline: the product of its stages' */
    /*
     * What an answer may cost, in billionths of what prices are in; kept to 3 %, never exceeded. 0: any. The cost of an answer is
     * the time that its items take by themselves, as measured when the model was loaded, at the worker's price. Workers of a
     * class without a price do not serve a query that has a cap. Of a pipeline, all stages together: each may cost a part of
     * what those before it left, by what it and those behind it cost at the least.
     */
    uint32_t cost_cap_nano;
    uint64_t user_data;              /* comes back in the completion */
    void *tensors[LEAT_TENSORS_MAX]; /* from leat_tensor_alloc: inputs, then outputs */
    /*
     * Of its items' sequences, 1..leat_target.length_max; 0: that. What lies in inputs behind it is not read, zeros count there; outputs
     * are zeros there. So an answer is that of a model for exactly this length.
     */
    uint32_t length;
    uint32_t reserved_0; /* zero, as the next */
    uint64_t reserved[1];
};
#define LEAT_QUERY_INIT {sizeof(struct leat_query), 0, 1, 0, 0, 0, 0, 0, {0}, 0, 0, {0}}

/*
 * Of a pipeline: batch_items is 0, worker UINT16_MAX; execution is from when its first stage began until its last one ended.
 * OK: variant is UINT16_MAX, and accuracy_ppm the product of what the variants of its stages stand for, 0 if one is unknown.
 * Else the first stage that was refused, expired or failed says how it ended and why: variant is its place in the pipeline,
 * UINT16_MAX where it came to none; accuracy_ppm and cost_nano are 0.
 */
struct leat_completion {
    uint64_t user_data;
    uint64_t ticket;       /* as returned by leat_submit */
    uint32_t outcome;      /* enum leat_outcome */
    uint32_t reason;       /* enum leat_reason */
    uint64_t queue_ns;     /* to the start of execution or the refusal, and in pauses of what is offline; LOST: 0 */
    uint64_t exec_ns;      /* execution of the whole batch; refused: what the closest variant would take, or 0; LOST: 0 */
    uint64_t total_ns;     /* from submission to the answer being written; LOST: to the loss being noticed */
    uint32_t batch_items;  /* items in the batch that it ran in */
    /*
     * Which of the application's variants it came to, from 0: leat_admin has their names. Refused for DEADLINE, ITEMS, ACCURACY,
     * COST or PRICE: the one that comes closest to what was asked. UINT16_MAX: none.
     */
    uint32_t variant;
    uint32_t worker;       /* that it came to, or see LEAT_REASON_PRICE; UINT16_MAX: none */
    uint32_t accuracy_ppm; /* that the variant stands for; 0: unknown */
    uint32_t cost_nano;    /* refused: what the closest variant would cost where it is cheapest; 0: unknown */
    /* OK: how much of each output that varies (leat_tensor_info.varying) an item has: [items][such outputs], in their order. */
    uint16_t sizes[LEAT_SIZES_MAX];
};

/* ---- Session ---------------------------------------------------------------------------------- */

/*
 * Connects to the daemon. options may be NULL. LEAT_ERR_SYS: no daemon at the path (the text says how to
 * start one), or a system call failed; LEAT_ERR_ACCESS: the socket or the daemon does not let this user in;
 * LEAT_ERR_VERSION; LEAT_ERR_LIMIT: too many sessions, slots or too large an arena, or the daemon is shutting down;
 * LEAT_ERR_PROTO: not a leat daemon; LEAT_ERR_INVALID: options out of range, or a path of more than 107 bytes;
 * LEAT_ERR_NOMEM; LEAT_TIMEOUT: no answer within 10 s; LEAT_ERR_DISCONNECTED: the daemon went meanwhile. Any thread.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_open(const struct leat_options *options,
                                                       struct leat_session **ret_session);

/*
 * After LEAT_ERR_DISCONNECTED: connects again with the same options. Every completion must have been collected
 * first, so that leat_in_flight says 0 (what the daemon left open completes as LOST), else LEAT_ERR_BUSY. Tensors and
 * targets from before are gone, not to be freed: allocate and find again. Fails as leat_open does; the session stays disconnected
 * then; try again later.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_reconnect(struct leat_session *session);

/* Leaves the daemon; queries in flight are dropped. Accepts NULL. Never waits for the daemon. */
LEAT_PUBLIC void leat_close(struct leat_session *session);

/*
 * What leat_open could not give in full, for people: "huge pages: none reserved". "" if nothing. The session's, until
 * leat_reconnect or leat_close.
 */
LEAT_PUBLIC const char *leat_session_note(const struct leat_session *session);

/* ---- Targets ---------------------------------------------------------------------------------- */

/*
 * Looks up an application, a model or a pipeline; names are of one of them. Asks the daemon: not for the hot path.
 * LEAT_ERR_NOT_FOUND: none of that name is served; LEAT_ERR_INVALID: a name has 1 to 63 bytes; LEAT_ERR_NOMEM;
 * LEAT_ERR_DISCONNECTED. LEAT_TIMEOUT: no answer within 10 s, and LEAT_ERR_PROTO: a malformed one: then the session is
 * disconnected, as if the daemon had gone.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_find(struct leat_session *session, const char *name,
                                                       struct leat_target *ret_target);

/* ---- Tensors ---------------------------------------------------------------------------------- */

/*
 * Memory in the session's arena, 64-byte aligned, contents undefined. LEAT_ERR_NOMEM: arena exhausted; LEAT_ERR_INVALID: of
 * 0 bytes; LEAT_ERR_DISCONNECTED.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_tensor_alloc(struct leat_session *session, uint64_t bytes,
                                                               void **ret_memory);

/*
 * Accepts NULL. The memory must not belong to a query in flight. What leat_tensor_alloc did not return, since the last
 * leat_reconnect, or what was freed already, is a fault of the caller that would spoil other tensors: it ends the process by abort().
 */
LEAT_PUBLIC void leat_tensor_free(struct leat_session *session, void *memory);

/* ---- Queries ---------------------------------------------------------------------------------- */

/*
 * Hands a query to the daemon. LEAT_AGAIN: as many queries are in flight as the session has slots;
 * collect completions first. LEAT_ERR_SHAPE: a tensor is missing or not from this session's arena;
 * LEAT_ERR_INVALID: a field is out of range; LEAT_ERR_DISCONNECTED. ret_ticket may be NULL. No system
 * call unless the daemon sleeps.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_submit(struct leat_session *session,
                                                         const struct leat_query *query,
                                                         uint64_t *ret_ticket);

/*
 * Submits queries[0..count) with one doorbell. *ret_submitted says how many went out; those after it are
 * untouched. Returns OK if all did, else why the next one did not.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_submit_batch(struct leat_session *session,
                                                               const struct leat_query *queries, size_t count,
                                                               size_t *ret_submitted);

/*
 * Collects up to `max` completions without waiting; returns how many. After the daemon died it returns
 * what had finished, then one LOST for each query still in flight.
 */
LEAT_PUBLIC size_t leat_poll(struct leat_session *session, struct leat_completion *completions, size_t max);

/*
 * Like leat_poll, but waits for the first: spins for a while, then sleeps. timeout_ns UINT64_MAX: for ever.
 * LEAT_TIMEOUT, and nothing changes hands; LEAT_AGAIN when nothing is in flight. *ret_count is set on
 * LEAT_OK only and is at least 1.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_wait(struct leat_session *session,
                                                       struct leat_completion *completions, size_t max,
                                                       uint64_t timeout_ns, size_t *ret_count);

/*
 * Asks that a query not run. It still ends in exactly one completion: CANCELLED if it had not been handed to
 * a worker, else as it would have; of a pipeline, if some of its work had not been, once what had been has ended.
 * LEAT_ERR_NOT_FOUND: no such query is in flight.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_cancel(struct leat_session *session, uint64_t ticket);

/* Queries submitted whose completion has not been collected. */
LEAT_PUBLIC uint32_t leat_in_flight(const struct leat_session *session);

/*
 * Submits one query and waits for its completion. Others that come meanwhile stay in flight, queued for leat_poll: when
 * they fill all slots, LEAT_AGAIN, as from leat_submit.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_run(struct leat_session *session,
                                                      const struct leat_query *query,
                                                      struct leat_completion *ret_completion);

/*
 * The convenience for first contact: copies inputs[0..target->input_count) into the arena, runs one query of `items` items, and
 * copies the answers to outputs[0..target->output_count); each has items * item_bytes of its tensor in the target. latency_ns 0:
 * the application's own objective. `outputs` are written only when the outcome is OK. LEAT_ERR_INVALID: not 1 to items_max items;
 * else it fails as leat_tensor_alloc and leat_run do, and keeps no tensor.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_call(struct leat_session *session,
                                                       const struct leat_target *target, uint32_t items,
                                                       const void *const *inputs, void *const *outputs,
                                                       uint64_t latency_ns,
                                                       struct leat_completion *ret_completion);

/*
 * How much of tensor `tensor` item `item` of an answered query has: of its dimension `varying`, where it varies, else 0. That is
 * the element of completion->sizes which stands for both. Any thread.
 */
LEAT_PUBLIC uint32_t leat_output_size(const struct leat_target *target, const struct leat_completion *completion,
                                      uint32_t tensor, uint32_t item);

/* ---- Event loops ------------------------------------------------------------------------------ */

/*
 * A descriptor for poll, epoll or io_uring; the session owns it. Protocol: leat_event_arm; if it returns
 * LEAT_AGAIN, wait until the descriptor is readable; leat_poll until it returns 0; arm again. The descriptor
 * also becomes readable when the daemon goes away. Spurious wake-ups are possible. -1 when
 * disconnected before there was one, or where none can be made, which leat_error_text says. leat_reconnect closes it: ask for
 * another one then.
 */
LEAT_PUBLIC int leat_event_fd(struct leat_session *session);

/*
 * LEAT_OK: completions are there, poll now. LEAT_AGAIN: armed, the descriptor will become readable. LEAT_ERR_DISCONNECTED, once
 * all completions were collected.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_event_arm(struct leat_session *session);

/* ---- Control ---------------------------------------------------------------------------------- */

/*
 * Sends one administrative request, a JSON object, and returns the daemon's JSON answer, to be released with
 * leat_admin_free. `fd` goes along when it is not negative (a model file, say); it stays the caller's, who may close it. This is
 * what the `leat` command uses; docs/control.md describes the requests. Blocks until answered, however long that takes. A refusal
 * by the daemon is LEAT_OK with {"status": ..., "error": ...} in the answer. LEAT_ERR_INVALID: longer than 196600 bytes, or too
 * many descriptors; LEAT_ERR_SYS: it could not be sent, as with a descriptor that is not open; LEAT_ERR_NOMEM;
 * LEAT_ERR_DISCONNECTED; LEAT_ERR_PROTO as from leat_find. {"op":"status"} lists the applications: there "models"[v]
 * is the name of the variant that completions call v, and "latency_ns" the objective of queries that bring none; of very
 * many it lists a part and says with "next" how to ask for the rest.
 */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_admin(struct leat_session *session, const char *request_json,
                                                        int fd, char **ret_reply_json);
/* The same with several descriptors, at most 65. */
LEAT_PUBLIC LEAT_MUST_CHECK enum leat_status leat_admin_files(struct leat_session *session, const char *request_json,
                                                              const int *fds, size_t fd_count, char **ret_reply_json);
LEAT_PUBLIC void leat_admin_free(char *reply_json); /* accepts NULL */

/* ---- Texts and versions: any thread ----------------------------------------------------------- */

LEAT_PUBLIC const char *leat_outcome_text(uint32_t outcome); /* "ok", "rejected", ... */
LEAT_PUBLIC const char *leat_reason_text(uint32_t reason);
LEAT_PUBLIC const char *leat_version(void); /* of the library, "0.1.0" */
/* The session's, until leat_reconnect or leat_close. */
LEAT_PUBLIC const char *leat_daemon_version(const struct leat_session *session);

#ifdef __cplusplus
}
#endif
#endif /* LEAT_LEAT_H */
