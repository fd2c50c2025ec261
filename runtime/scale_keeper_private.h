/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/scale_keeper_private.h - the keeper's state, shared by scale_keeper*.c only. */
#ifndef LEAT_RUNTIME_SCALE_KEEPER_PRIVATE_H
#define LEAT_RUNTIME_SCALE_KEEPER_PRIVATE_H

#include "runtime/scale_keeper.h"
#include "runtime/scale_plan.h"
#include "sched/calls.h"
#include "sched/shortfall.h"

#define LEAT_SCALE_CHANGES_KEPT 64u
#define LEAT_SCALE_UNITS        (LEAT_SCALER_APPLICATIONS_MAX * LEAT_SCALE_STAGES_MAX)

/* What a stage has of workers. */
struct leat_scale_part {
    uint32_t ready, starting;
    uint32_t cores; /* of all of them */
};

/* An application by itself, or as a stage of a pipeline. */
struct leat_scale_stage {
    char name[LEAT_NAME_MAX]; /* the application's */
    uint16_t id;
    uint64_t generation;
    bool seen; /* what follows, and what the scaler is told of it, is the application's, or of one whose place it took */
    uint32_t variant;                            /* that ran most batches lately */
    uint32_t runs_seen[LEAT_SCHED_VARIANTS_MAX]; /* observations of each, at the last look */
    uint64_t delay_ns;                           /* of a new instance */
    double rate_qps;                             /* of items, now */
    struct leat_calls calls;                     /* for one of the first stage's items */
    uint64_t items, admitted_items;              /* that came so far; that were let in */
    uint64_t queries, late_queries;              /* likewise; that were late though an idle worker would have done */
    uint64_t waiting_items;
    struct leat_scale_part part; /* as it was arranged last */
    uint64_t latency_ns[LEAT_JOINT_CLASSES_MAX][LEAT_SCALE_CORES_MAX * LEAT_SCALE_BATCH_MAX];
};

/* What is listed in the configuration. The stages beyond its number have no workers. */
struct leat_scale_application {
    struct leat_scaler_application scaler;
    bool served; /* it is there, and can be scaled */
    struct leat_forecast_memory memory;
    double foreseen_qps; /* 0: nothing is */
    struct leat_shortfall shortfall; /* by which the scaler is told of more */
    bool changed; /* what it has of workers, by the last decision */
    char trouble[160]; /* why it is not scaled; "" where it is */
    struct leat_scale_stage stages[LEAT_SCALE_STAGES_MAX];
};

struct leat_scale_change {
    uint64_t looked_ns, at_ns; /* monotonic: when the look began; when workers had been told */
    bool early;                /* it was a look before its time */
    uint32_t application; /* of the configuration */
    char stage[LEAT_NAME_MAX];
    struct leat_scale_part from, to;
    char why[160];
};

struct leat_scale_keeper {
    pthread_t thread;
    pthread_cond_t turn; /* with daemon->mutex: it is to stop, or to look */
    bool started, stop, jumped;
    uint64_t rest_ns;   /* after a look, before there is one before its time */
    bool early;         /* the last look was one before its time, */
    uint64_t looked_ns; /* and began then */
    struct leat_profile_copy copy;
    /* The thread's, but for what describe() reads with daemon->mutex held: that is written with it held. */
    struct leat_scale_application applications[LEAT_SCALER_APPLICATIONS_MAX];
    struct leat_scale_worker workers[LEAT_SCHED_WORKERS_MAX];
    uint16_t serves[LEAT_SCHED_WORKERS_MAX]; /* whom each worker serves, as in an arrangement */
    uint64_t due_ns[LEAT_SCHED_WORKERS_MAX]; /* of those that start: when they have */
    uint64_t decisions, changes;
    struct leat_scale_change history[LEAT_SCALE_CHANGES_KEPT]; /* ring */
    char trouble[256]; /* why the last decision was not carried out, or not whole; "" */
    /* As things are for good. */
    uint32_t class_count, cores_min, cores_max; /* of one worker, whatever its class */
    const char *class_names[LEAT_JOINT_CLASSES_MAX];
    uint16_t class_of[LEAT_JOINT_CLASSES_MAX][LEAT_SCALE_CORES_MAX + 1]; /* daemon's, by cores; UINT16_MAX: none */
    uint32_t pool_class[LEAT_SCHED_WORKERS_MAX]; /* of the pool's workers and cores */
    struct leat_joint_box box;                   /* all cores */
    /* The thread's alone, for while it decides without the mutex. */
    struct leat_scaler_application decided[LEAT_SCALER_APPLICATIONS_MAX];
    uint32_t decided_of[LEAT_SCALER_APPLICATIONS_MAX], decided_count; /* of the configuration */
    struct leat_scaler_state state;                                   /* of decisions about these */
    void *memory; /* the solver's */
};

/* To the plan each stage of each application is one that has workers. */
static inline uint32_t
leat_scale_unit(uint32_t application, uint32_t stage)
{
    return application * LEAT_SCALE_STAGES_MAX + stage;
}

/*
 * Looks at what comes and waits for an application, and at what its stages take; fills in all that the scaler is told
 * but for its stages. False, with trouble: it cannot be scaled. One that was served and cannot be seen at this look, as
 * while it is replaced, is as it was seen last, with trouble. Mutex held, released meanwhile.
 */
bool leat_scale_look(struct leat_daemon *daemon, uint32_t a);

#endif /* LEAT_RUNTIME_SCALE_KEEPER_PRIVATE_H */
