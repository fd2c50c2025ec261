/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/daemon_private.h - the daemon's state, shared by daemon*.c and admin.c only. */
#ifndef LEAT_RUNTIME_DAEMON_PRIVATE_H
#define LEAT_RUNTIME_DAEMON_PRIVATE_H

#include <pthread.h>

#include "ipc/socket.h"
#include "runtime/daemon.h"
#include "runtime/pipeline_spec.h"

struct leat_daemon_model {
    char name[LEAT_NAME_MAX];
    struct leat_variant *variant;
    struct leat_target signature;
    struct leat_profile profiles[LEAT_WORKER_CLASSES_MAX]; /* as measured, before anything was learned */
    struct leat_profile shorter_profiles[LEAT_LENGTHS_MAX - 1][LEAT_WORKER_CLASSES_MAX]; /* of its shorter variants */
    struct leat_measured measured;
    struct leat_registry_validation validation; /* samples is 0: there was none */
    json_t *files; /* [{"name", "bytes", "sha256"}] that its weights lie in beside its own; NULL: none */
    size_t scratch_bytes;
    size_t bytes;
    uint64_t load_ns;
    bool measured_anew; /* when it was loaded */
    bool persistent;
};

/* An application as it was asked for, beside those that models have of their own. */
struct leat_daemon_definition {
    struct leat_registry_application application; /* its policy_table is the definition's own */
    bool configured;
    char failure[256]; /* why it is not served; "" where it is, or has no models */
};

/* A pipeline as it was described, and what it was made into. */
struct leat_daemon_pipeline {
    struct leat_pipeline_spec spec;
    char *description;              /* JSON; NULL: what was kept is none that can be read */
    struct leat_pipeline *pipeline; /* the dispatcher's; NULL: it is not served */
    bool removing;                  /* the dispatcher was told; it is for nobody to find */
    bool barred;                    /* whatever applications there are, it cannot be served */
    char failure[512];              /* why it is not served; "" where it is */
};

struct leat_daemon_pipelines {
    struct leat_daemon_pipeline *all[LEAT_PIPELINES_MAX];
    uint32_t count;
    /* Of stages' queries, with the workspaces in its arena; NULL until there is a pipeline. */
    struct leat_daemon_session *session;
};

/* Descriptors that came with requests and are not done with, at the most. */
#define LEAT_ADMIN_DESCRIPTORS (2 * LEAT_SOCKET_FDS_MAX)

struct leat_admin_job {
    char *request;
    json_t *json; /* the request, once it was parsed */
    uid_t uid;
    int fds[LEAT_SOCKET_FDS_MAX];
    uint32_t fd_count;
    _Atomic uint32_t *open; /* such descriptors of all jobs; W: who takes and who frees jobs, relaxed */
    int reply_socket;
    uint32_t worker; /* while it waits for that one to be as arranged */
    uint64_t arrangement;
    struct leat_admin_job *next;
};

/* Requests that one thread answers, in order; all under job_mutex. */
struct leat_admin_lane {
    struct leat_daemon *daemon;
    void (*handle)(struct leat_daemon *daemon, struct leat_admin_job *job); /* takes the job over */
    void (*turn)(struct leat_daemon *daemon); /* likewise on its thread, when it is due, and at the end; NULL: never */
    const char *thread_name;
    struct leat_admin_job *jobs, **tail;
    bool due;
    pthread_cond_t ready;
    pthread_t thread;
    bool started;
};

/*
 * Sizes of workers, and whom they serve; all under its mutex, under which only commands are given. It may be taken with the
 * daemon's.
 *
 * Targets     Each worker has a target, what it was arranged to have and to serve last. Whoever sets targets, and
 *             whoever hears that a worker has let go, takes steps: each worker goes as far towards its own as it can
 *             now. The least of it is kept: target, what the dispatcher was told, and the table of cores
 *             (runtime/cores.h).
 * Cores       From before a worker is told of a core until no batch runs on it any more it is that worker's in the
 *             table, and nobody else's but where the configuration has them share it. So a worker has at least the
 *             cores of each shape that a batch of it may run in, and exactly those of its shape when it has let go.
 * Room        What workers of a node are to have together is no more than there is. So whoever waits for cores gets
 *             them once others have let go of theirs, and nobody who waits holds any for it.
 * Orders      Who gives is told at once. Who gets is told once it has its cores, with threads and group on them; what
 *             it still holds of what it was about to give back it keeps. A worker is told something else while it has
 *             not let go as soon as the dispatcher has answered what it was told before that: two are under way at the
 *             most.
 * Serving     Whom a worker serves follows its target at once, but who has no cores yet serves nobody, while others
 *             serve.
 */
struct leat_daemon_scale {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool busy;  /* somebody takes steps, or moves a worker: who sets targets meanwhile leaves the steps to them */
    bool due;   /* a target is another, or a worker has let go, since the last step */
    bool ended; /* nobody reads the dispatcher's events any more */
    uint64_t arrangements;             /* so far */
    uint64_t repinned;                 /* threads so far that were not held to their CPUs any more */
    bool repins_failed;                /* at the last look: that is told once */
    struct leat_dedication dedication; /* under way, or the last one */
    struct leat_daemon_size_state {
        struct {
            uint16_t cores;       /* 0: it is to be parked */
            uint16_t application; /* as in an arrangement; LEAT_ARRANGED_FOR_NOBODY without cores */
            uint64_t number;      /* of the arrangement */
            uint64_t asked_ns;    /* by the daemon's clock */
        } target;
        struct leat_team_shape shape; /* as the dispatcher was told last; without cores it is parked */
        uint16_t owner;               /* whom it serves, as the dispatcher said last */
        bool under_way;               /* it has not let go of a shape before */
        bool regroups;                /* its group has CPUs that it has given back */
        bool idle;                    /* the last change found it idle, */
        uint64_t effect_ns;           /* and took so long from when it was asked for */
        uint64_t since_ns;            /* monotonic: when it was in force, or the daemon started */
        uint64_t resizes, moves;      /* so far */
        struct leat_resize told[2];   /* `last` of them last; both answered where nothing is under way */
        uint32_t last;
        struct {
            uint64_t number;      /* of the arrangement that it was given for cores that are gone; 0: none */
            uint16_t cores;       /* that it was to have before, */
            uint16_t application; /* and to serve */
        } lost;
        enum leat_status failed; /* why what was arranged last is not done; LEAT_OK where nothing failed */
        char trouble[160];
    } workers[LEAT_SCHED_WORKERS_MAX];
};

struct leat_daemon {
    struct leat_daemon_options options;
    struct leat_daemon_scale scale;
    struct leat_shared_tables *tables;
    struct leat_dispatcher *dispatcher;
    struct leat_worker *workers[LEAT_SCHED_WORKERS_MAX];
    uint16_t worker_classes[LEAT_SCHED_WORKERS_MAX];
    uint32_t worker_copies[LEAT_SCHED_WORKERS_MAX]; /* index in nodes[] */
    uint32_t nodes[LEAT_SCHED_WORKERS_MAX];         /* that have workers */
    uint32_t node_count;
    uint32_t team_sizes[LEAT_WORKER_CLASSES_MAX];
    struct leat_daemon_class classes[LEAT_WORKER_CLASSES_MAX];
    const char *class_names[LEAT_WORKER_CLASSES_MAX];
    char host[LEAT_MEASURED_HOST_BYTES]; /* "": not known */
    uint32_t class_count;
    uint32_t first_class_count; /* of them, those that workers are of at first */
    struct leat_server *server;
    uint64_t started_ns;
    uint64_t stopping_ns;   /* when the drain began */
    _Atomic uint32_t stops; /* calls of leat_daemon_stop */
    uint64_t rounds_seen;
    int dma_latency_fd;

    pthread_mutex_t mutex; /* applications and models; taken by server and admin threads, never by the dispatcher */
    pthread_cond_t answered; /* the dispatcher has let go of an application, or copied profiles */
    struct leat_profile_copy profiles; /* the answer to the one thread that looks */
    struct leat_policy_keeper *keeper; /* runtime/policy_keeper.h */
    struct leat_scale_keeper *scaling; /* runtime/scale_keeper.h; NULL: workers are not scaled */
    struct leat_relief_keeper *relief; /* runtime/relief_keeper.h; NULL: nobody is moved */
    struct leat_offline *offline; /* runtime/offline.h */
    struct leat_application *applications[LEAT_APPLICATIONS_MAX]; /* by id */
    uint64_t generations; /* of applications, so far */
    struct leat_application *successor; /* that the dispatcher was told of and has not put in its place yet; NULL: none */
    struct leat_daemon_definition *definitions[LEAT_APPLICATIONS_MAX];
    uint32_t definition_count;
    struct leat_daemon_model *models[LEAT_APPLICATIONS_MAX];
    uint32_t model_count;
    struct leat_daemon_pipelines pipelines;
    char loading[LEAT_NAME_MAX]; /* the model that is being loaded; "": none */
    struct {
        char name[LEAT_NAME_MAX];
        char text[256];
        bool application;
    } failures[64]; /* what was kept but is not served */
    uint32_t failure_count;
    bool server_done; /* leat_daemon_run has returned */

    pthread_mutex_t job_mutex;
    bool job_stop; /* what is not begun yet is dropped */
    pthread_cond_t lane_ended;
    uint32_t lanes_running;
    struct leat_admin_lane looks;   /* every request; passes those that change models on */
    struct leat_admin_lane changes; /* loads and removals, which take long */
    struct leat_admin_lane sizes;   /* of workers, which wait for batches to end; takes steps when these have */
    struct leat_admin_job *waiting; /* for a worker to be as arranged; the thread's of `sizes` alone */
    _Atomic uint32_t admin_descriptors; /* open in requests; at most LEAT_ADMIN_DESCRIPTORS */
};

/* Its timed waits go by CLOCK_MONOTONIC. */
void leat_daemon_init_timed_condition(pthread_cond_t *condition);

/* All with `mutex` held; NULL when there is none. An application is found while it has models. */
struct leat_application *leat_daemon_find_application(struct leat_daemon *daemon, const char *name);
struct leat_daemon_definition *leat_daemon_find_definition(struct leat_daemon *daemon, const char *name);
/* Why there is no application or model to be asked by that name. */
enum leat_status leat_daemon_lack_application(struct leat_daemon *daemon, const char *name);
struct leat_daemon_model *leat_daemon_find_model(struct leat_daemon *daemon, const char *name);

/* Of an application, model or pipeline that is served. What the server calls; the context is the daemon. Mutex not held. */
LEAT_MUST_CHECK enum leat_status leat_daemon_find_target(void *context, const char *name, struct leat_target *ret_target);
/*
 * The same, how many offline queries of it may be under way without one being refused for want of room (0: none may), and how accurate its
 * answers can be (0: unknown).
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_find_offline(struct leat_daemon *daemon, const char *name, struct leat_target *ret_target,
                                                          uint32_t *ret_most, uint32_t *ret_best_ppm);
/*
 * Would all that is offline of the application, or of each of the pipeline's, have a worker with these held back from it, as
 * LEAT_COMMAND_HOLD_BACK has it? True of what is not served. Mutex not held.
 */
bool leat_daemon_leaves_workers(struct leat_daemon *daemon, const char *name, const struct leat_worker_set *held_back);

/* ---- runtime/daemon_scale.c --------------------------------------------------------------------- */

void leat_daemon_scale_init(struct leat_daemon *daemon); /* once workers were surveyed */
/* Once they run: their threads enter control groups of their own, where there are any; which it is is logged. */
LEAT_MUST_CHECK enum leat_status leat_daemon_group_workers(struct leat_daemon *daemon);
void leat_daemon_scale_fini(struct leat_daemon *daemon);
void leat_daemon_scale_end(struct leat_daemon *daemon); /* nobody reads the dispatcher's events any more */
/* What the server calls; the context is the daemon. */
void leat_daemon_resized(void *context, struct leat_resize *resize);
void leat_daemon_dedicated(void *context, struct leat_dedication *dedication);
/* No mutex held: whoever had it run errands says that they are over, for cores may wait for that. */
void leat_daemon_errand_ended(struct leat_daemon *daemon, uint32_t worker);
/* The application has gone, and its id may be another's: its workers are for all. */
void leat_daemon_release_workers(struct leat_daemon *daemon, uint16_t application);

/* What a worker is to have and to serve. */
#define LEAT_ARRANGED_FOR_ALL    LEAT_WORKER_FOR_ALL
#define LEAT_ARRANGED_FOR_NOBODY LEAT_WORKER_FOR_NOBODY /* it has its cores and is given nothing, as while it starts */
#define LEAT_ARRANGED_AS_BEFORE  (UINT16_MAX - 2u)      /* as it was arranged last; one that was parked serves all */
struct leat_daemon_arrangement {
    uint32_t worker;
    uint16_t cores;       /* 0: it is parked, and runs nothing, whatever `application` says; or LEAT_ARRANGED_AS_BEFORE */
    uint16_t application; /* id; or one of the above */
    bool guarded;         /* refused as busy where its last arrangement is not, any more, */
    uint64_t number;      /* this one; 0: none so far */
};

/*
 * Any thread but the server's, no mutex held: what the workers listed, each once, are to be; the others' targets stay.
 * It does not wait for batches: each worker changes as soon as its own allows it and the cores are there that it is to
 * have, and what was arranged for it before and is not in force yet is forgotten. Who has workers of its own is served
 * by these only, all others by those for all or, where there are none, by all that are not for nobody. What was handed
 * over before still runs where it was. What cannot be done is refused before anything changes: LEAT_ERR_NOT_FOUND for a
 * worker or an application that is not there, LEAT_ERR_INVALID for sizes, for a worker that is to be parked and shares
 * its cores, or where nobody would be left to serve, LEAT_ERR_BUSY where cores are missing or the daemon shuts down.
 * ret_number: for leat_daemon_arranged; may be NULL.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_arrange(struct leat_daemon *daemon,
                                                     const struct leat_daemon_arrangement *workers, uint32_t count,
                                                     uint64_t *ret_number);

/* Since it was asked for until it was in force: its first batch of a size began or, where none had, could. */
struct leat_daemon_effect {
    uint64_t effect_ns; /* 0: it was so already */
    bool idle;          /* it had nothing to do when it was told of a size */
};

/*
 * Any thread, no mutex held: whether the worker is as that arrangement, which listed it, has it. LEAT_AGAIN while it is
 * not. LEAT_ERR_BUSY where another was made for it before, the daemon shuts down, or cores were missing after all, as
 * where a worker gave back such as another has too; or why its threads could not be moved. In the latter two cases it
 * keeps what it has.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_arranged(struct leat_daemon *daemon, uint32_t worker, uint64_t number,
                                                      struct leat_daemon_effect *ret_effect);

/* On the thread of `sizes`: what can be done now towards what was arranged. */
void leat_daemon_take_steps(struct leat_daemon *daemon);
/* Any thread, the scale's mutex held or not: there may be steps to take, or somebody waits for what is in force now. */
void leat_daemon_wake_sizes(struct leat_daemon *daemon);

/*
 * Any thread but the server's, no mutex held: moves the worker to other cores of its node, as many, while it runs: to free
 * ones, or where `other` is a worker, to what that has, which gets its. LEAT_ERR_BUSY where too few are free, it is parked,
 * one of the two shares its cores, they have not as many or not on one node, or the daemon shuts down; LEAT_ERR_UNSUPPORTED
 * where threads are not pinned.
 */
#define LEAT_TO_FREE_CORES UINT32_MAX
LEAT_MUST_CHECK enum leat_status leat_daemon_move(struct leat_daemon *daemon, uint32_t worker, uint32_t other);
bool leat_daemon_shares_cores(struct leat_daemon *daemon, uint32_t worker);

/*
 * The scale's mutex held, released while another takes steps or moves a worker: from begin to end nobody else does, though
 * the mutex be released. False: the daemon shuts down, and nothing was begun.
 */
bool leat_daemon_begin_moves(struct leat_daemon *daemon);
void leat_daemon_end_moves(struct leat_daemon *daemon);

/* What a worker has now, and is to have. */
struct leat_daemon_held {
    uint32_t cpus[LEAT_TEAM_MAX], cpu_count; /* with what it is giving back */
    uint32_t gone[LEAT_TEAM_MAX], gone_count; /* of them: its threads share what is left, or run where they can */
    struct leat_team_shape shape; /* of the batches that it begins; without cores: it is parked, and of its last class */
    uint16_t application;         /* that it serves, as in an arrangement; LEAT_ARRANGED_FOR_NOBODY where it is parked */
    bool pending;                 /* it is not as it was arranged yet: */
    struct leat_daemon_arrangement target;
    uint64_t asked_ns; /* by the daemon's clock: when that was */
    bool in_batch;     /* of a shape before, with whose cores it is not done */
    uint64_t since_ns, resizes, moves;
    char trouble[160]; /* why it stays as it is though it was arranged otherwise; or "" */
};
void leat_daemon_held(struct leat_daemon *daemon, uint32_t worker, struct leat_daemon_held *ret_held);
/* How many workers each application, by id, has of its own; returns how many those have together that have none. */
uint32_t leat_daemon_count_workers(struct leat_daemon *daemon, uint16_t ret_own[LEAT_APPLICATIONS_MAX]);
/* Whom each worker serves: as in leat_dedication. */
void leat_daemon_list_owners(struct leat_daemon *daemon, uint16_t ret_owners[LEAT_SCHED_WORKERS_MAX]);
/* The worker, and those whose cores share an L3 or a node's memory with its: all, where threads are held to no cores. */
void leat_daemon_add_near(struct leat_daemon *daemon, uint32_t worker, struct leat_worker_set *workers);
/* How many workers are not parked. */
uint32_t leat_daemon_count_awake(struct leat_daemon *daemon);
/* The class of a worker with so many cores, 1 at the least; false where it cannot have them. */
bool leat_daemon_class_of(const struct leat_daemon *daemon, uint32_t worker, uint32_t cores, uint16_t *ret_class);
/* CPUs of cores that nobody has, with room for LEAT_CPU_MAX. */
uint32_t leat_daemon_free_cpus(struct leat_daemon *daemon, uint32_t *cpus);
/* CPUs of cores that are gone (runtime/cores.h), whoever has them, with room for LEAT_CPU_MAX. */
uint32_t leat_daemon_gone_cpus(struct leat_daemon *daemon, uint32_t *cpus);
/* How many are gone of each pool; zeroes beyond the last pool. */
void leat_daemon_gone_pools(struct leat_daemon *daemon, uint32_t ret_gone[LEAT_SCHED_WORKERS_MAX]);
/* Threads so far that were not held to their CPUs any more, and are again. */
uint64_t leat_daemon_repinned(struct leat_daemon *daemon);
/* Cores of the node that can be promised: those that no worker is to have. */
uint32_t leat_daemon_free_cores(struct leat_daemon *daemon, uint32_t node);
/* Whose cores the worker can have (runtime/cores.h), from 0; without an owner of cores, its node's. */
uint32_t leat_daemon_pool(const struct leat_daemon *daemon, uint32_t worker);
/* Cores of each that can be promised, all of them together too. Returns how many pools there are. */
uint32_t leat_daemon_free_pools(struct leat_daemon *daemon, uint32_t ret_free[LEAT_SCHED_WORKERS_MAX]);

/* ---- runtime/daemon_cpus.c ---------------------------------------------------------------------- */

/*
 * Once a second on one thread, which is held to no CPU of its own, no mutex held. Threads that are not on the CPUs any more
 * that they were pinned to are pinned anew: before Linux 6.2 the kernel forgets that whenever CPUs of a group above change.
 * Where CPUs are gone, workers get others that are free, or else fewer, as long as these are gone; the dispatcher runs
 * wherever it can then. Each change is logged.
 */
void leat_daemon_look_at_cpus(struct leat_daemon *daemon);

/* ---- runtime/daemon_pipelines.c ----------------------------------------------------------------- */

/* Mutex held; NULL when there is none. */
struct leat_daemon_pipeline *leat_daemon_find_pipeline(struct leat_daemon *daemon, const char *name);

/* Mutex held: may it be served so, or go (NULL), for all that pipelines in service ask of it? Else LEAT_ERR_BUSY. */
LEAT_MUST_CHECK enum leat_status leat_daemon_pipelines_allow(const struct leat_daemon *daemon, const char *application,
                                                             const struct leat_target *target);

/*
 * On the thread of `changes`. add: NULL for the name that the description has. remove waits until no run is left; queries
 * that come meanwhile are refused.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_add_pipeline(struct leat_daemon *daemon, const char *name,
                                                          const json_t *description);
LEAT_MUST_CHECK enum leat_status leat_daemon_remove_pipeline(struct leat_daemon *daemon, const char *name);

/* What the server calls; the context is the daemon. */
void leat_daemon_pipeline_gone(void *context, struct leat_pipeline *pipeline);
void leat_daemon_pipelines_fini(struct leat_daemon *daemon); /* once dispatcher and workers are gone */

/* ---- runtime/daemon_applications.c -------------------------------------------------------------- */

/* How a published application is served. Names are of loaded models; all must have one signature. */
struct leat_application_options {
    const char *name;
    const char *const *models;
    uint32_t model_count; /* 1..LEAT_SCHED_VARIANTS_MAX */
    const char *router; /* NULL: leat_router_default of the workers' classes */
    /*
     * NULL: mdp where it can decide, that is with workers of one class, a router that takes the oldest query first, an
     * objective, and models of known accuracies that differ; else leat_selector_default.
     */
    const char *selector;
    const char *policy_path; /* of selectors that follow one; NULL: made from profiles, anew when they or the load change */
    const void *policy_table; /* what was in the file; NULL: nothing is known of that */
    size_t policy_bytes;
    struct leat_router_options router_options;
    uint64_t latency_ns; /* 0: none */
    bool drop_late;
    uint32_t quantile_ppm; /* to predict at, as sched/profile.h has it; 0: the default */
    uint32_t waiting_max;
};

/* Makes a model callable by its name. On the thread that loads models; mutex held. */
LEAT_MUST_CHECK enum leat_status leat_daemon_publish_model(struct leat_daemon *daemon,
                                                           const struct leat_daemon_model *model);

/*
 * Tells the dispatcher to let go and waits until it has. Not on the server's thread; mutex held, released while
 * waiting. False when the daemon shuts down first: the application then stays until the end.
 */
bool leat_daemon_retire(struct leat_daemon *daemon, struct leat_application *app);
/*
 * On the thread of `changes`, which waits while queries of what it takes away run. Of what is kept, first `also` and the
 * application change as one.
 *   put     adds an application, or changes that of its name; whose models must be loaded. Who found it before goes on with
 *           it. LEAT_ERR_SHAPE when it would have other inputs or outputs. `also` may be NULL.
 *   remove  with `models`: those too that serve nothing else.
 *   refresh gives the model's new profiles to whatever it serves.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_put_application(struct leat_daemon *daemon,
                                                             const struct leat_registry_application *application,
                                                             const struct leat_daemon_change *also);
LEAT_MUST_CHECK enum leat_status leat_daemon_remove_application(struct leat_daemon *daemon, const char *name, bool models);
LEAT_MUST_CHECK enum leat_status leat_daemon_refresh(struct leat_daemon *daemon, const struct leat_daemon_model *model);

/*
 * The policy of an order, to be free()'d: the one that was kept if it was made from the same, else made now, which is slow,
 * and kept. On the thread that builds the application; mutex not held.
 */
struct leat_policy_order;
LEAT_MUST_CHECK enum leat_status leat_daemon_make_policy(const struct leat_daemon *daemon, const char *application,
                                                         const struct leat_policy_order *order,
                                                         struct leat_policy **ret_policy);

/* Keeps a change, where there is a store; mutex not held. */
LEAT_MUST_CHECK enum leat_status leat_daemon_keep(const struct leat_daemon *daemon,
                                                  const struct leat_daemon_change *change);

void leat_daemon_free_definition(struct leat_daemon_definition *definition); /* accepts NULL */
/* Once the dispatcher has let go of it. */
void leat_daemon_free_application(struct leat_application *app); /* accepts NULL */
/* What the server calls; the context is the daemon. */
void leat_daemon_application_gone(void *context, struct leat_application *app);
void leat_daemon_profiles_copied(void *context, struct leat_profile_copy *copy);

/*
 * Mutex held, released while waiting: fills a copy that lives as long as the daemon and is this thread's own. LEAT_ERR_BUSY
 * when the daemon shuts down meanwhile.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app,
                                                           uint32_t variant, struct leat_profile_copy *copy);

/* What is kept but did not load is kept no more: NOT_FOUND where there is no such, BUSY while an application lists it. */
LEAT_MUST_CHECK enum leat_status leat_daemon_remove_failed(struct leat_daemon *daemon, const char *name);

/*
 * On the thread that loads models, in this order: loads and profiles one that nobody can call yet; measures its accuracy by
 * a labelled set, which is then its own unless the source gave one; makes it callable, or frees it where that fails.
 * `model` is the daemon's from then on.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_prepare_model(struct leat_daemon *daemon,
                                                           const struct leat_variant_source *source,
                                                           struct leat_daemon_model **ret_model);
struct leat_validation_set;
/* What int8 needs: see leat_calibrate(). LEAT_ERR_UNSUPPORTED is why there is no int8 of it, without the model's name. */
LEAT_MUST_CHECK enum leat_status leat_daemon_calibrate(struct leat_daemon *daemon, const struct leat_variant_source *source,
                                                       const struct leat_validation_set *set, json_t **ret_ranges);
LEAT_MUST_CHECK enum leat_status leat_daemon_validate_model(const struct leat_daemon *daemon,
                                                            const struct leat_validation_set *set,
                                                            const struct leat_daemon_model *exact,
                                                            struct leat_daemon_model *model);
LEAT_MUST_CHECK enum leat_status leat_daemon_enter_model(struct leat_daemon *daemon, struct leat_daemon_model *model);
/* Before them: leat_variant_choose_items for the daemon's workers. */
LEAT_MUST_CHECK enum leat_status leat_daemon_choose_items(struct leat_daemon *daemon,
                                                          const struct leat_variant_source *sources, uint32_t count,
                                                          uint32_t items_given, uint64_t latency_max_ns, uint64_t bytes_max,
                                                          struct leat_batch_choice *ret_choices);
void leat_daemon_free_model(struct leat_daemon_model *model);

/* Sizes of teams that no class of workers has. */
struct leat_daemon_team_sizes {
    uint32_t cores[LEAT_SCHED_CLASSES_MAX];
    uint32_t count;
};

/* Mutex held: those that the model was measured on, in order. */
void leat_daemon_measured_teams(const struct leat_daemon *daemon, const struct leat_daemon_model *model,
                                struct leat_daemon_team_sizes *ret_sizes);

/*
 * On the thread of `changes`: measures it again, keeps that, and gives it to whatever it serves. On teams of `sizes` too,
 * NULL: of those it was measured on before.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_profile_model(struct leat_daemon *daemon, const char *name,
                                                           const struct leat_daemon_team_sizes *sizes);

/* On the thread of `changes`. LEAT_ERR_BUSY while a configured application is served by it. */
LEAT_MUST_CHECK enum leat_status leat_daemon_unload_model(struct leat_daemon *daemon, const char *name);

/* runtime/admin.c: may that user change models and applications? */
bool leat_admin_may_change(const struct leat_daemon *daemon, uid_t uid);
/* Whether the request loads or removes a model, and whoever sent it may. */
bool leat_admin_changes(const struct leat_daemon *daemon, struct leat_admin_job *job);
/* Whether it gives workers other sizes, and whoever sent it may. */
bool leat_admin_resizes(const struct leat_daemon *daemon, struct leat_admin_job *job);
/* Answers one request and frees the job. */
void leat_admin_handle(struct leat_daemon *daemon, struct leat_admin_job *job);
/* On the thread of `sizes`: has the worker resized, and answers once that is in force. */
void leat_admin_resize(struct leat_daemon *daemon, struct leat_admin_job *job);
/* Likewise: takes steps, and answers those whose workers are as they were arranged, or will not be. */
void leat_admin_settle(struct leat_daemon *daemon);
/* Frees a job that nobody waits for any more. */
void leat_admin_drop(struct leat_admin_job *job);

#endif /* LEAT_RUNTIME_DAEMON_PRIVATE_H */
