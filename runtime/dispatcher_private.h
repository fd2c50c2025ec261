/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/dispatcher_private.h - the dispatcher's state, and what its parts share. Private to dispatcher*.c. */
#ifndef LEAT_RUNTIME_DISPATCHER_PRIVATE_H
#define LEAT_RUNTIME_DISPATCHER_PRIVATE_H

#include <pthread.h>

#include "runtime/dispatcher.h"
#include "runtime/pipeline.h"
#include "sched/lag.h"
#include "sched/route_caps.h"

enum {
    COMMANDS = 1024, /* ring size, a power of two */
    EVENTS = 4096,   /* ring size: all sessions and pipelines, twice all applications and workers, so it is never full */
    FLOOR_MAX_PPM = (1 << 20) - 1, /* beyond what any variant can have */
    OVERRUN_SHARE = 16, /* a batch beyond its prediction is taken to go on for this part of it */
    NOBODY = UINT32_MAX, /* no variant */
    LOOK_AGAIN_NS = 1000000, /* what a router leaves for later though a worker has room is shown to it again */
    LESSONS = 64, /* that may wait until all is decided; then those are learnt at once */
};
_Static_assert(EVENTS >=
                   LEAT_SESSIONS_MAX + 2 * LEAT_APPLICATIONS_MAX + LEAT_PIPELINES_MAX + 2 * LEAT_SCHED_WORKERS_MAX + 2,
               "events are never dropped");

/* A batch on its way, in the order in which its worker will report it. */
struct batch_record {
    uint64_t predicted_ns; /* on average */
    uint64_t handed_ns;
    uint64_t arrived_ns;   /* the oldest query; offline ones have time */
    uint64_t ready_ns;     /* by the clock, when a worker that had none could begin; 0: it had others */
    uint16_t application;
    uint8_t variant; /* within the application */
    uint8_t decided; /* the same, or that of longer sequences which it is a part of */
    bool probe, online;
    bool slept; /* the worker, then */
    uint16_t class; /* of the worker, for predicted_ns */
    uint32_t items;
};
_Static_assert(LEAT_SCHED_VARIANTS_MAX <= UINT8_MAX, "the place of a variant fits");

/* Of a batch that has ended, what is to be learnt from it. */
struct lesson {
    uint32_t worker;
    struct batch_record batch;
    struct leat_done_cell done;
};

/* What the dispatcher remembers of one worker. Both rings are indexed by the worker's own positions. */
struct worker_record {
    struct {
        uint16_t session, slot; /* session: for its in-flight count; slot: where it is a stage's */
    } queries[LEAT_WORKER_QUEUE];
    uint64_t queries_head; /* position of the oldest unreported query */
    struct batch_record batches[LEAT_WORKER_BATCHES];
    uint64_t batch_tail; /* batches ever submitted */
    /* The batch that gives way, if there is one: it is in none of the above, nor in what is predicted, nor outstanding. */
    struct {
        struct batch_record batch;
        uint16_t sessions[LEAT_BATCH_QUERIES];
        uint64_t passed_ns; /* that what has passed it took */
        bool ends;          /* nothing is to pass it any more: the worker has no room until it has ended */
    } yielding;
    uint64_t ends_ns;    /* when the oldest outstanding batch is predicted to end */
    uint64_t behind_ns;  /* and how long those behind it will take */
    struct leat_instance_worker shared; /* by its instances */
    struct leat_lag lag;
    uint16_t class; /* in the shape that it was told of last */
    uint16_t owner; /* whom it serves: as in leat_dedication */
    struct leat_resize *resize; /* that is not answered; NULL: none */
};

/* Of runs. */
enum run_list_kind {
    RUN_LIVE, /* all that have not ended */
    RUN_OPEN, /* those with queries still to be made */
    RUN_LISTS,
};

struct run_list {
    struct leat_pipeline_run *first, *last;
};

/* What a slot of LEAT_PIPELINE_SESSION stands for. */
struct stage_query {
    struct leat_pipeline_run *run; /* NULL: it is free */
    uint32_t items, start;   /* the stage's items from `start` on */
    uint32_t cap_nano;       /* 0: none */
    uint16_t cap_code;
    uint16_t next, previous; /* of the run's; of free ones, next alone */
    uint8_t stage;
    bool aims;    /* at the objective of a run that goes on without */
    bool again;   /* it was dropped for that, and is to be pushed again */
    bool late;    /* it is, or is to be, among what is late */
    bool arrived; /* it was counted as load of its application, which it comes to twice then */
};

struct pipelines {
    struct leat_pipeline *all[LEAT_PIPELINES_MAX]; /* by index */
    struct leat_daemon_session *session;           /* of stages' queries; NULL: there was no pipeline yet */
    struct stage_query queries[LEAT_SLOTS_MAX];    /* by slot */
    uint16_t free_query;
    uint64_t taken[LEAT_LANES_MAX]; /* answers, of each of its lanes */
    uint64_t coming[LEAT_APPLICATIONS_MAX]; /* items, by an application's id, that online runs are to ask of it in stages that have not begun */
    uint32_t offline_queries; /* of `queries`, those of runs that are */
    uint32_t late_queries;    /* of the others, those that are */
    struct run_list live, open[LEAT_RANKS]; /* open: by rank, which is late for a run where some of it is */
};

struct leat_dispatcher {
    struct leat_dispatcher_options options;
    struct leat_central_queue queue;
    struct leat_queue_cell *queue_cells;

    struct leat_daemon_session *active[LEAT_SESSIONS_MAX]; /* active_count of them, polled in turn */
    uint32_t active_count;
    struct leat_daemon_session *closing[LEAT_SESSIONS_MAX]; /* waiting for in_flight == 0 */
    uint32_t closing_count;
    struct leat_application *applications[LEAT_APPLICATIONS_MAX]; /* by id */
    uint32_t application_top; /* ids are below it */
    uint64_t tightest_ns;     /* objective of those in service; LEAT_NO_DEADLINE: none has one */
    uint64_t briefest_ns;     /* that a query takes of those that were asked lately; LEAT_NO_DEADLINE: none was */
    uint16_t busy[LEAT_APPLICATIONS_MAX]; /* ids with waiting queries, busy_count of them */
    uint32_t busy_count;
    struct leat_sched_worker sched_workers[LEAT_SCHED_WORKERS_MAX]; /* parked ones without depth */
    struct leat_sched_worker shown[LEAT_SCHED_WORKERS_MAX]; /* those that serve an application, where these are not all */
    uint32_t class_count;
    struct leat_worker_set idle_wanted; /* that serve applications with waiting queries which go to idle workers only */
    struct leat_worker_set held;        /* that serve others of whose waiting queries a batch is better made late */
    struct leat_worker_set run_waits;   /* likewise, where the oldest is one of a run */
    struct leat_worker_set idle, room;  /* without a batch, but one that gives way still; with fewer than they may have */
    struct leat_worker_set yielding;    /* with a batch that gives way */
    struct leat_worker_set spoken_for;  /* by what goes before the rank that is decided for */
    struct leat_worker_set held_back;   /* from what is offline, by control */
    struct leat_serving rest;           /* whoever has no workers of its own */
    uint64_t changes;                /* of sched_workers, ever: batches handed over and reported */
    struct worker_record *records;   /* [worker_count] */
    struct lesson lessons[LESSONS];  /* of this round's reports, lesson_count of them */
    uint32_t lesson_count;
    struct leat_route_pair pairs[LEAT_SCHED_WORKERS_MAX]; /* the router's answer */
    uint64_t marks[LEAT_WAITING_MARKS];                   /* queries that have left the list that it was shown */
    uint16_t places[LEAT_SCHED_PENDING_MAX];              /* 0, 1, ... */
    struct leat_route_view view;                          /* for routers, where caps bar classes */
    struct leat_sched_query dealt[LEAT_BATCH_QUERIES];    /* one worker's, where the router deals */
    uint16_t dealt_at[LEAT_BATCH_QUERIES];                /* their places in the list */
    struct {
        uint64_t at_ns;               /* instances are evaluated */
        uint32_t application, worker; /* where the last round left off */
        uint64_t briefest_ns; /* so far */
    } evaluation;
    struct leat_lag_usual usual_lag;
    uint32_t removing_count; /* applications and pipelines that go once nothing of them runs */
    uint64_t now_ns; /* of this round */
    uint64_t spin_budget_ns;
    bool draining, drained_sent, stop;
    int epoll_fd;

    /* Sleep and commands. */
    struct leat_bell bell;
    int event_fd;
    pthread_mutex_t command_mutex; /* among control threads; the dispatcher never takes it */
    struct leat_command commands[COMMANDS];
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t command_tail; /* W: control, K0  R: dispatcher, K1 */
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t command_head; /* W: dispatcher, K2  R: control, K3 */

    /* Events to control: K4 publishes, K5 reads. */
    struct leat_event events[EVENTS];
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t event_tail; /* W: dispatcher */
    uint64_t event_head;                                /* control's */
    int control_fd;

    struct { /* W: dispatcher, relaxed */
        _Alignas(LEAT_ISOLATE) _Atomic uint64_t rounds, parks, rejected_malformed, decisions, abandoned, swept;
    } statistics;
    struct leat_histogram decision_ns;
    struct pipelines pipelines;
    pthread_t thread;
    bool running;
};

static inline void
bump(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

/* What comes closest to a query that is refused. */
struct closest {
    uint16_t variant; /* UINT16_MAX: nothing */
    uint16_t worker;  /* of a class that lacks a price; UINT16_MAX: that is no matter */
    uint32_t accuracy_ppm, cost_nano;
    uint64_t exec_ns;
};
static const struct closest nothing_close = {.variant = UINT16_MAX, .worker = UINT16_MAX};

/* The session of an accepted query; its memory is mapped as long as in_flight counts the query. */
static inline struct leat_daemon_session *
session_at(const struct leat_dispatcher *dispatcher, uint16_t index)
{
    return atomic_load_explicit(&dispatcher->options.tables->sessions[index], memory_order_relaxed);
}

static inline struct leat_waiting_slot *
slot_of(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    return &session_at(dispatcher, entry->session)->dispatcher.slots[entry->slot];
}

/* A query stops waiting: a cancel does not find it any more. */
static inline void
leave_slot(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    struct leat_waiting_slot *slot = slot_of(dispatcher, entry);
    if (LEAT_LIKELY(slot->ticket_low == entry->ticket_low)) { /* else the client used the slot again meanwhile */
        slot->state = LEAT_SLOT_IDLE;
    }
}

static inline bool
was_cancelled(const struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry)
{
    const struct leat_waiting_slot *slot = slot_of(dispatcher, entry);
    return slot->state == LEAT_SLOT_CANCELLED && slot->ticket_low == entry->ticket_low;
}

/*
 * Each slot may hold a query, and each worker may have answered as many as there are slots without its report having been
 * read: it reports behind its answers, and may be held up in between, while their slots are used again.
 */
static inline uint32_t
in_flight_max(const struct leat_dispatcher *dispatcher, const struct leat_daemon_session *session)
{
    return (1 + dispatcher->options.worker_count) * session->slots;
}

/* Predicted time of `items` on a worker of the class, in the variant that the selector would try first. */
static inline uint64_t
predict(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_application *app = profiles;
    (void)application;
    return leat_profile_predict(&app->profiles[variant][worker_class], items);
}

static inline uint64_t
predict_mean(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    const struct leat_application *app = profiles;
    (void)application;
    return leat_profile_mean(&app->profiles[variant][worker_class], items);
}

static inline uint64_t
cost_nano(const void *profiles, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)application;
    return leat_application_cost_nano(profiles, variant, worker_class, items);
}

/* Of a worker that has one. */
static inline const struct batch_record *
oldest_batch(const struct leat_dispatcher *dispatcher, uint32_t worker_index)
{
    const struct worker_record *record = &dispatcher->records[worker_index];
    return &record->batches[(record->batch_tail - dispatcher->sched_workers[worker_index].outstanding) &
                            (LEAT_WORKER_BATCHES - 1)];
}

/* ---- runtime/dispatcher.c ----------------------------------------------------------------------- */

/* Ends an accepted query that never reached a worker. */
void leat_dispatcher_finish(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry, enum leat_outcome outcome,
                            enum leat_reason reason);

/* The same, and says what would come closest to it. */
void leat_dispatcher_finish_close_to(struct leat_dispatcher *dispatcher, const struct leat_query_entry *entry,
                                     enum leat_outcome outcome, enum leat_reason reason, struct closest closest);

/*
 * An online query that some variant suits, and that was told to the application's load, is refused for want of room or of
 * time. Whoever asked for it hears of a jump.
 */
void leat_dispatcher_turn_away(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t items);

/* More waits, or is to, than whoever asked for it expected. Told once, where it was asked for. */
void leat_dispatcher_tell_jump(struct leat_dispatcher *dispatcher, struct leat_application *app);

/* A query that waits is to leave the application's list, or not to enter it. */
void leat_dispatcher_take_back(struct leat_dispatcher *dispatcher, struct leat_waiting_slot *slot);

/* To the control side. */
void leat_dispatcher_send(struct leat_dispatcher *dispatcher, const struct leat_event *event);

/* Classes where every variant that fits breaks the query's cap; none where it does in all: then it is refused when decided. */
uint8_t leat_dispatcher_barred_classes(const struct leat_application *app, enum leat_rank rank, const struct leat_sched_query *query);

/* Its number, by which it is one worker's where the router deals; those that are too dear for it are passed over. */
void leat_dispatcher_deal(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
                          struct leat_sched_query *query);

/* Milliseconds until a waiting query's deadline or the next look of a router or at runs; at most SLEEP_MAX_MS. */
int leat_dispatcher_sleep_ms(const struct leat_dispatcher *dispatcher);

/*
 * The fastest ready variant that suits the query: what it is admitted by, for any other takes longer. NOBODY where none
 * suits; *ret_reason then says what it asks too much of, and *ret_closest which variant comes closest to that.
 */
uint32_t leat_dispatcher_fastest_for(const struct leat_dispatcher *dispatcher, const struct leat_application *app, enum leat_rank rank,
                                     const struct leat_sched_query *query, enum leat_reason *ret_reason, struct closest *ret_closest);

/* When nobody is to begin it any more. Of a stage's query its run says that, even where the application serves late. */
uint64_t leat_dispatcher_give_up_at(const struct leat_dispatcher *dispatcher, const struct leat_application *app,
                                    const struct leat_query_entry *entry);

/* ---- runtime/dispatcher_decide.c ----------------------------------------------------------------- */

/* Whether it is idle and has room, when its batches or its depth have changed, or what gives way is to end. */
void leat_dispatcher_note_room(struct leat_dispatcher *dispatcher, uint32_t worker_index);

/* The worker has nothing more that may pass what gives way there, if anything does: somebody waits for its end. */
void leat_dispatcher_end_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index);

/* Predictions for what waits in the worker's ring, of the class that it has become. */
void leat_dispatcher_predict_again(struct leat_dispatcher *dispatcher, uint32_t worker_index);

/* The worker has one batch more, or one less. */
void leat_dispatcher_count_batch(struct leat_dispatcher *dispatcher, uint32_t worker_index, int by);

/* The batch is the worker's, and no other is to be counted on before it. */
void leat_dispatcher_note_yielding(struct leat_dispatcher *dispatcher, uint32_t worker_index, bool yielding);

/* What waits for the application and who may take it, as its router is shown them; until the next call. */
struct leat_route_input leat_dispatcher_route_input(struct leat_dispatcher *dispatcher, const struct leat_application *app,
                                                    enum leat_rank rank);

/* Gives the online query that came last to the worker at this place among those that serve it, whatever the router would say. */
void leat_dispatcher_probe(struct leat_dispatcher *dispatcher, struct leat_application *app, uint32_t place);

/*
 * Decides for one rank of an application until its router leaves what waits for later. A queue that stays as it is, before workers that
 * stay as they are, is shown again only where a worker has room: time alone may change a router's mind.
 */
void leat_dispatcher_decide_for(struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank);

/*
 * Every application with waiting queries gets decisions until no worker has room for it. What runs of pipelines have begun is ended
 * before others begin: a run that waits between two stages may be too late for the second, and the first was for nothing.
 */
void leat_dispatcher_decide_all(struct leat_dispatcher *dispatcher);

/* ---- runtime/dispatcher_reports.c ---------------------------------------------------------------- */

/* The worker's change of shape, which is over or replaced: says so. */
void leat_dispatcher_end_resize(struct leat_dispatcher *dispatcher, uint32_t worker_index, uint64_t effect_ns);

/* The reserve that was learned, for selectors and for who asks. */
void leat_dispatcher_keep_reserve(struct leat_application *app);

/* Takes the workers' reports as far as somebody waits for what they say; true when there were any. */
bool leat_dispatcher_poll_workers(struct leat_dispatcher *dispatcher);

/* The rest of what they say. */
void leat_dispatcher_learn_all(struct leat_dispatcher *dispatcher);

/* All instances once an interval, a part of them in each round until all had their turn; true while some have not. */
bool leat_dispatcher_evaluate_instances(struct leat_dispatcher *dispatcher);

/* ---- runtime/dispatcher_admission.c ------------------------------------------------------------ */

/*
 * Could any worker have a query that arrives now done in this variant by its deadline, after what waits already? Where the
 * router reorders, that is what is due no later, of those that it looks at; for each further one, one has to go before it
 * looks at this query. A query of a run's first stage is in time where the whole run is. stage: NULL where it is of none.
 */
bool leat_dispatcher_can_be_in_time(const struct leat_dispatcher *dispatcher, struct leat_application *app, enum leat_rank rank,
                                    uint32_t variant, const struct leat_sched_query *query, const struct stage_query *stage);

/* How far in its pipeline the oldest online query that waits for the application is, if it is due: so many stages are behind it. */
uint32_t leat_dispatcher_progress(const struct leat_dispatcher *dispatcher, const struct leat_application *app);

/* When a worker is predicted to be free that has what is to end before anything else. */
uint64_t leat_dispatcher_yielding_end(const struct leat_dispatcher *dispatcher, const struct worker_record *record);

/* ---- runtime/dispatcher_commands.c -------------------------------------------------------------- */

void leat_dispatcher_obey(struct leat_dispatcher *dispatcher, const struct leat_command *command);

/* The workers that serve an application of this id. */
struct leat_serving leat_dispatcher_serving(const struct leat_dispatcher *dispatcher, uint32_t application, enum leat_rank rank);

/* Lets go of sessions and applications to which nothing refers any more, and says when a drain is over. */
void leat_dispatcher_settle(struct leat_dispatcher *dispatcher);

/* ---- runtime/dispatcher_pipelines.c ------------------------------------------------------------- */

/* NULL: there is none. */
struct leat_pipeline *leat_dispatcher_pipeline(const struct leat_dispatcher *dispatcher, uint32_t target);

void leat_dispatcher_add_pipeline(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline);
void leat_dispatcher_remove_pipeline(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline);
/* Lets go of those that are to go and have no runs. */
void leat_dispatcher_settle_pipelines(struct leat_dispatcher *dispatcher);

/* LEAT_REASON_NONE, or why a request to it that is sound otherwise is refused. `units`: where its tensors lie. */
LEAT_MUST_CHECK enum leat_reason leat_dispatcher_begin_run(struct leat_dispatcher *dispatcher, struct leat_pipeline *pipeline,
                                                           struct leat_daemon_session *client,
                                                           const struct leat_wire_request *request, const uint32_t *units,
                                                           uint64_t submit_ns);
/* The run that the slot names. No further stage of it begins. */
void leat_dispatcher_cancel_run(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client, uint32_t slot_index);
/* All runs of a client that closes. */
void leat_dispatcher_leave_runs(struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client);

/* When the stage's query in this slot is to have ended, or its run ends too late; LEAT_NO_DEADLINE: whenever. */
uint64_t leat_dispatcher_stage_end(const struct leat_dispatcher *dispatcher, uint16_t slot);

/* How many stages the longest chain before that of the query has. */
uint32_t leat_dispatcher_stage_depth(const struct stage_query *query);
/* When its run is to have ended, by its objective. */
uint64_t leat_dispatcher_run_end(const struct stage_query *query);
/* Late is what has lost its aim at the objective of a run that goes on without, and what its run asks for beside that. */
enum leat_rank leat_dispatcher_stage_rank(const struct stage_query *query);
/*
 * It waits among those that are late from now on, and so does what its run asks for beside it; what that is to ask of later stages goes
 * before nobody. False: the run has only come, and late ones hold as many as they may of those that there can be.
 */
bool leat_dispatcher_stage_be_late(struct leat_dispatcher *dispatcher, struct stage_query *query);
/* Is it not late yet, though others of its run are? */
bool leat_dispatcher_stage_follows(const struct stage_query *query);
/* Stage `index` of the query's run, as far as it tells when the run will end; stages come behind what they read. False: there is none. */
struct leat_stage_ahead {
    const struct leat_application *application;
    uint32_t after;          /* bit s: it reads what stage s yields */
    bool behind;             /* it is deeper in the pipeline than the query's, and has not begun */
    bool again;              /* an earlier stage that is behind, too, is of the same application */
    uint64_t items;          /* that are expected of it */
    uint64_t others_items;   /* that other online runs will ask of the application */
};
bool leat_dispatcher_stage_ahead(const struct leat_dispatcher *dispatcher, const struct stage_query *query, uint32_t index,
                                 struct leat_stage_ahead *ret_ahead);

/* Puts queries of stages that have begun into the central queue, as far as there is room; true when there were any. */
bool leat_dispatcher_make_queries(struct leat_dispatcher *dispatcher);
/*
 * What has become of stages' queries among those that the worker has just reported, the last before its queries_head: as
 * the report says or, where that does not tell all, as the worker's next answers do, which it has published.
 */
void leat_dispatcher_take_answers(struct leat_dispatcher *dispatcher, uint32_t worker_index,
                                  const struct batch_record *batch, const struct leat_done_cell *done);
/* The dispatcher's own; true when there were any. */
bool leat_dispatcher_take_refusals(struct leat_dispatcher *dispatcher);

/* Asserts that runs, stages and slots add up; returns how many runs there are. */
uint64_t leat_dispatcher_check_pipelines(const struct leat_dispatcher *dispatcher);
/* Asserts that the run is there which a cancel would find in the client's slot. */
void leat_dispatcher_check_run_slot(const struct leat_dispatcher *dispatcher, const struct leat_daemon_session *client,
                                    uint32_t slot_index);

#endif /* LEAT_RUNTIME_DISPATCHER_PRIVATE_H */
