/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/dispatcher.h - the one thread that takes queries in, decides, and hands them to workers.
 *
 * Role       The single writer of all scheduling state. It polls the sessions' submission rings, copies and
 *            checks each request, passes it through the central queue, asks the application's router and
 *            selector, and publishes batches on the workers' rings. It answers itself, on lane 0, what
 *            is refused, expired or cancelled.
 * Threads    [C] control side, any thread.  [D] the dispatcher's own thread.
 * Hot path   No allocation, no lock; a system call only to wake a sleeper or to sleep itself.
 * Bounds     One round takes at most a fixed number of requests from each session, so a flood from one client
 *            delays others by a bounded time; every loop is bounded by a table's size. What clients cancel, let
 *            expire or leave behind costs a round at most one pass over each application's waiting list.
 */
#ifndef LEAT_RUNTIME_DISPATCHER_H
#define LEAT_RUNTIME_DISPATCHER_H

#include "runtime/application.h"
#include "runtime/histogram.h"
#include "runtime/pipeline.h"
#include "runtime/session.h"
#include "runtime/worker.h"

struct leat_dispatcher;

#define LEAT_DISPATCHER_DESCRIPTORS 3u /* that it has open */
#define LEAT_DISPATCHER_PAUSES_NS   UINT64_C(1000000000) /* what gives way does so for this long, and is then let end */

struct leat_dispatcher_options {
    struct leat_shared_tables *tables;
    struct leat_worker *const *workers; /* filled in before start; worker_count of them */
    const uint16_t *worker_classes;     /* [worker_count], < LEAT_WORKER_CLASSES_MAX; that they start with */
    uint32_t class_count; /* those that they can become counted; 0: those that they start with */
    uint32_t worker_count;              /* 1..LEAT_SCHED_WORKERS_MAX */
    uint32_t worker_depth;              /* batches handed to a worker at once, 1..LEAT_WORKER_BATCHES */
    uint32_t queue_capacity;            /* of the central queue; power of two */
    int cpu;                            /* to pin to; -1: none */
};

enum leat_command_kind {
    LEAT_COMMAND_ADD_SESSION,        /* session */
    LEAT_COMMAND_CLOSE_SESSION,      /* session; answered by LEAT_EVENT_SESSION_GONE */
    LEAT_COMMAND_ADD_APPLICATION,    /* application */
    LEAT_COMMAND_REMOVE_APPLICATION, /* application; answered by LEAT_EVENT_APPLICATION_GONE */
    /*
     * application, which takes over from the one that has its id and name, with all that waits there, once nothing of that runs;
     * answered by LEAT_EVENT_APPLICATION_GONE of the other. Their signatures are the same but for the largest query.
     */
    LEAT_COMMAND_REPLACE_APPLICATION,
    LEAT_COMMAND_COPY_PROFILES,      /* profiles; answered by LEAT_EVENT_PROFILES_COPIED */
    LEAT_COMMAND_SET_POLICY,         /* policy; answered by LEAT_EVENT_POLICY_SET */
    LEAT_COMMAND_RESIZE,             /* resize; answered by LEAT_EVENT_RESIZED */
    LEAT_COMMAND_DEDICATE,           /* dedication; answered by LEAT_EVENT_DEDICATED */
    /*
     * held_back: what begins from now on and is offline is for none of these workers, until there is another such command. An
     * application that would have none left, or whose router deals, has them all the same.
     */
    LEAT_COMMAND_HOLD_BACK,
    /*
     * pipeline. The session of stages' queries is in the table by then, is always the same, and outlives all pipelines. Applications
     * of stages were added before, and are there until the event.
     */
    LEAT_COMMAND_ADD_PIPELINE,
    LEAT_COMMAND_REMOVE_PIPELINE, /* pipeline, whose runs go on; answered by LEAT_EVENT_PIPELINE_GONE */
    LEAT_COMMAND_DRAIN,              /* refuse what is new; answered by LEAT_EVENT_DRAINED when all is done */
    LEAT_COMMAND_STOP,               /* end the thread */
};

/* What is known now of a variant of an application. The dispatcher's from the command until the event. */
struct leat_profile_copy {
    uint16_t application;     /* id */
    char name[LEAT_NAME_MAX]; /* and its name: by now the id may be another's */
    uint32_t variant;
    /* LEAT_EVENT_JUMP once as many more wait than now, one lacks room or time, or an instance becomes overloaded; 0: as before */
    uint64_t jump_items;
    bool found;
    uint32_t rate_qps, dispersion_ppm; /* of the application's arrivals */
    uint32_t rising_qps;               /* the rate, but that of late where it rises */
    uint64_t queries, items;           /* that arrived so far */
    uint64_t admitted_items;           /* of these, those that were not refused for want of room or of time */
    uint64_t late_queries;             /* that were, or that waited for too long, though an idle worker could have had them done in time */
    uint64_t waiting_items;            /* of online queries */
    struct leat_profile profiles[LEAT_WORKER_CLASSES_MAX];
    bool answered; /* control's */
};

/*
 * A policy for the application's selector to decide by, from the next decision on. The dispatcher's from the command
 * until the event: by then it has what was in force before or, where the application has gone, still the new one.
 */
struct leat_policy_change {
    uint16_t application; /* id */
    uint64_t generation;  /* and its generation: by now the id may be another's, or its variants may be others */
    bool done;
    void *state;                /* of the selector, initialised with the policy */
    struct leat_policy *policy;
};

/*
 * Another shape of a worker's team, for the batches that it begins from now on, and for predictions. The dispatcher's
 * from the command until the event: by then no batch runs any more that began in a shape before. Without cores it is
 * given nothing until it has some again, and has ended all by the event; its class stays. A later one for the worker
 * replaces it: then its event comes at once and says so, and only the later one's tells of batches. Two for a worker at
 * a time.
 */
struct leat_resize {
    uint16_t worker;
    struct leat_team_shape shape;
    uint64_t effect_ns; /* when the first batch in the new shape began or, where none had, could */
    bool idle;          /* the worker had no batch when the dispatcher learned of it */
    bool replaced;      /* by a later one, before it was over */
    uint32_t batches;   /* dispatcher's: that are waited for */
    struct leat_team_shape before; /* control's, as what follows */
    uint64_t told_ns;
    bool answered;
};

#define LEAT_WORKER_FOR_ALL    UINT16_MAX
#define LEAT_WORKER_FOR_NOBODY (UINT16_MAX - 1u)

/*
 * Whom each worker serves, from the next decision on. Who has workers of its own is given to these only, but for offline
 * queries, which go to those for all, too. All others go to those for all or, where there are none, to all that are not for
 * nobody, of which there is one at the least. What was handed over before runs where it was. Workers of an application
 * that is not there, or goes, are for all. The dispatcher's from the command until the event, when it says what is in force.
 */
struct leat_dedication {
    uint16_t owners[LEAT_SCHED_WORKERS_MAX]; /* [worker_count]: id of an application, or one of the above */
    bool answered;                           /* control's */
};

struct leat_command {
    enum leat_command_kind kind;
    union {
        struct leat_daemon_session *session;
        struct leat_application *application;
        struct leat_profile_copy *profiles;
        struct leat_policy_change *policy;
        struct leat_resize *resize;
        struct leat_dedication *dedication;
        struct leat_pipeline *pipeline;
        struct leat_worker_set held_back;
    };
};

enum leat_event_kind {
    LEAT_EVENT_SESSION_GONE,     /* neither dispatcher nor worker touches the session any more */
    LEAT_EVENT_APPLICATION_GONE, /* nor the application */
    LEAT_EVENT_PROFILES_COPIED,
    LEAT_EVENT_POLICY_SET,
    LEAT_EVENT_RESIZED,
    LEAT_EVENT_DEDICATED,
    LEAT_EVENT_PIPELINE_GONE,
    LEAT_EVENT_JUMP, /* of what waits, as LEAT_COMMAND_COPY_PROFILES asked; of no application; once for each that asks */
    LEAT_EVENT_DRAINED,
};

struct leat_event {
    enum leat_event_kind kind;
    union {
        struct leat_daemon_session *session;
        struct leat_application *application;
        struct leat_profile_copy *profiles;
        struct leat_policy_change *policy;
        struct leat_resize *resize;
        struct leat_dedication *dedication;
        struct leat_pipeline *pipeline;
    };
};

struct leat_dispatcher_statistics {
    uint64_t rounds;      /* of the main loop: progress, for the watchdog */
    uint64_t parks;       /* times it went to sleep */
    uint64_t rejected_malformed;
    uint64_t decisions;
    uint64_t abandoned;   /* accepted queries that had not ended when their session closed */
    uint64_t swept; /* waiting queries looked at, to find those that were cancelled, are late or of closed sessions */
};

/* [C] On failure nothing is held. Its bell and eventfd exist from here on, for the workers. */
LEAT_MUST_CHECK enum leat_status leat_dispatcher_create(const struct leat_dispatcher_options *options,
                                                        struct leat_dispatcher **ret_dispatcher);
struct leat_bell *leat_dispatcher_bell(struct leat_dispatcher *dispatcher);
int leat_dispatcher_event_fd(const struct leat_dispatcher *dispatcher); /* wakes it from sleep */

/* [C] */
LEAT_MUST_CHECK enum leat_status leat_dispatcher_start(struct leat_dispatcher *dispatcher);
void leat_dispatcher_stop(struct leat_dispatcher *dispatcher); /* sends STOP and joins; workers still run */
void leat_dispatcher_destroy(struct leat_dispatcher *dispatcher); /* accepts NULL */

/*
 * [D] One round at the time now_ns; true when there was something to do. The thread's loop is made of it; where no
 * thread was started, the caller is the dispatcher, so that a test can drive it step by step.
 */
bool leat_dispatcher_round(struct leat_dispatcher *dispatcher, uint64_t now_ns);

/* [D] Between rounds: asserts that its tables agree with one another. Takes time in proportion to them. */
void leat_dispatcher_check(const struct leat_dispatcher *dispatcher);

/* [C] Hands a command over, in order. Waits while the ring is full. */
void leat_dispatcher_command(struct leat_dispatcher *dispatcher, const struct leat_command *command);

/*
 * [C] Holds its thread, which runs, to these CPUs and no others; says whether it was not. Nothing where it is pinned to
 * none.
 */
LEAT_MUST_CHECK enum leat_status leat_dispatcher_hold(struct leat_dispatcher *dispatcher, const uint32_t *cpus,
                                                      uint32_t count, bool *ret_changed);

/* [C] one thread: the next event, false when there is none. The descriptor becomes readable with one. */
bool leat_dispatcher_poll_event(struct leat_dispatcher *dispatcher, struct leat_event *ret_event);
int leat_dispatcher_control_fd(const struct leat_dispatcher *dispatcher);

/* [C] */
void leat_dispatcher_statistics(const struct leat_dispatcher *dispatcher,
                                struct leat_dispatcher_statistics *ret_statistics);

/*
 * [C] How long decisions took, in nanoseconds: from a question to a router until what it gave was handed to workers.
 * Owned by the dispatcher.
 */
const struct leat_histogram *leat_dispatcher_decision_times(const struct leat_dispatcher *dispatcher);

#endif /* LEAT_RUNTIME_DISPATCHER_H */
