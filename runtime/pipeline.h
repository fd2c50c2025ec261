/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/pipeline.h - a DAG of applications that answers one query with one deadline, as the dispatcher runs it.
 *
 * Role       The control side checks a description (runtime/pipeline_spec.h), makes one of these of it and hands it over with
 *            LEAT_COMMAND_ADD_PIPELINE. A query to it is a *run*: of each stage whose sources are there the dispatcher pushes
 *            queries into the central queue, as if a client had asked the stage's application.
 * Stages     In topological order, each once for a run; a stage that repeats (`each_stage`) asks for as many items as its
 *            source found, none included.
 * Queries    A stage's query is one of LEAT_PIPELINE_SESSION, and its `ticket_low` is the client's place in the table of sessions.
 * Tensors    Inputs and outputs of the pipeline lie in the client's arena, and a stage writes an output of the pipeline where
 *            the client wants it. What lies between is in the daemon's own memory, a *workspace* for each run: nothing is copied,
 *            and no client sees it.
 * Ownership  The control side's until the command; from then on the dispatcher's, until it reports LEAT_EVENT_PIPELINE_GONE.
 */
#ifndef LEAT_RUNTIME_PIPELINE_H
#define LEAT_RUNTIME_PIPELINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <leat/leat.h>

#include "runtime/histogram.h"

#define LEAT_PIPELINES_MAX       64u
#define LEAT_PIPELINE_STAGES_MAX 8u
#define LEAT_PIPELINE_TARGET     1024u /* ids of targets from here on are pipelines' */
#define LEAT_PIPELINE_SESSION    1023u /* place in the daemon's table of the session that stages' queries belong to */
#define LEAT_PIPELINE_RUNS_MAX   1024u /* of one pipeline at a time */
#define LEAT_PIPELINE_ITEMS_MAX  1024u /* of one query: the dispatcher writes a row of `stage_ns` for each */
#define LEAT_PIPELINE_UNIT       (UINT32_C(1) << 31) /* in a unit of a stage's query: in a workspace, else in the client's arena */

/*
 * What becomes of a run that cannot end by its deadline, looked at before each stage and when a worker begins a query of
 * it. Its queries are due for the objective as long as that can be met; what goes on then waits until nobody does who can be in time.
 */
enum leat_pipeline_late {
    LEAT_PIPELINE_DROP,        /* it expires */
    LEAT_PIPELINE_DROP_THRICE, /* it expires where it cannot end within three times its objective either */
    LEAT_PIPELINE_SERVE,       /* it goes on */
};

/* Where a tensor of a stage lies. */
enum leat_pipeline_place {
    LEAT_PIPELINE_CLIENT,    /* tensor `index` of the client's query */
    LEAT_PIPELINE_WORKSPACE, /* `index` units of LEAT_TENSOR_ALIGN from the start of the run's workspace */
};

struct leat_pipeline_tensor {
    enum leat_pipeline_place place;
    uint32_t index;
};

struct leat_pipeline_stage {
    char name[LEAT_NAME_MAX];
    char application_name[LEAT_NAME_MAX];
    uint16_t application; /* id; as long as the pipeline is there it stays that application's */
    uint32_t after;       /* bit s: stage s must have ended; only of earlier stages */
    uint32_t input_count, output_count;
    struct leat_pipeline_tensor tensors[LEAT_TENSORS_MAX]; /* inputs, then outputs, as the application's signature has them */
    uint64_t item_bytes[LEAT_TENSORS_MAX];                 /* of the application's */
    uint32_t size_count; /* sizes that its answers tell of each item */
    /*
     * UINT32_MAX: as many items as the pipeline's query has. Else it repeats: of each item of the query, as many items as
     * size `each_size` of that item says in the answer of stage `each_stage`, in queries of at most `each_items` items, which
     * is such that all of them begin at a multiple of LEAT_TENSOR_ALIGN in each tensor. Item i's begin at item i * each_max.
     */
    uint32_t each_stage, each_size;
    uint32_t each_items, each_max;
    uint32_t depth; /* stages in the longest chain before it. Dispatcher's */
};

struct leat_pipeline_counters { /* W: dispatcher, relaxed. R: anyone, for statistics only */
    _Atomic uint64_t accepted, ok, rejected, expired, cancelled, failed, running;
    _Atomic uint64_t late; /* of those that were ok: after their objective */
};

struct leat_pipeline {
    char name[LEAT_NAME_MAX];
    uint16_t index; /* < LEAT_PIPELINES_MAX; its target id is LEAT_PIPELINE_TARGET + index */
    /*
     * What clients see; it has no lengths. Its last output is `stage_ns`, u64 [items][stage_count][2]: of each stage how long
     * it waited from when its sources were there until it began, and how long it took then; zeros where a stage had no
     * items. Of outputs that vary, what lies behind their size is undefined.
     */
    struct leat_target target;
    uint64_t latency_ns; /* default objective; 0: none */
    enum leat_pipeline_late late;
    uint32_t stage_count;
    struct leat_pipeline_stage stages[LEAT_PIPELINE_STAGES_MAX];
    /* Sizes that its answers tell: of each item `size_count`, the i-th is size size_at[i] of stage size_of[i]. */
    uint32_t size_count;
    uint32_t size_of[LEAT_SIZES_MAX], size_at[LEAT_SIZES_MAX];

    uint64_t workspace_bytes; /* of one run; a multiple of LEAT_TENSOR_ALIGN */
    /*
     * 1..LEAT_PIPELINE_RUNS_MAX: more at a time are refused, LEAT_REASON_QUEUE_FULL, and so are offline ones beyond
     * leat_pipeline_offline_max(), and those that are late when they come, while as many others are.
     */
    uint32_t runs_max;
    uint64_t workspaces_unit; /* of the first run's, in the arena of LEAT_PIPELINE_SESSION; runs_max of them lie there */

    struct leat_pipeline_run *runs; /* [runs_max]; run i has the i-th workspace */

    /* Dispatcher's. */
    struct leat_pipeline_run *free_runs;
    bool removing;
    uint32_t running, offline_running; /* of them, those that are offline */
    uint32_t late_running;             /* of the others, those that wait, or have waited, among what is late */
    uint32_t each_mean[LEAT_PIPELINE_STAGES_MAX]; /* items of a repeating stage for one of the query's, lately, in 1/256; 0: unknown */
    struct leat_pipeline_counters counters;
    struct {
        struct leat_histogram queue_ns, exec_ns;
    } times[LEAT_PIPELINE_STAGES_MAX]; /* of stages that ran. W: dispatcher */
};

/*
 * Makes room for runs_max runs, all pages present, since none is to be made while queries are served. Control, before the
 * command; the way back after the event, or for one that has none.
 */
LEAT_MUST_CHECK enum leat_status leat_pipeline_init_runs(struct leat_pipeline *pipeline);
void leat_pipeline_fini_runs(struct leat_pipeline *pipeline);

/* Half of runs_max: online runs find the rest. 0 where runs_max is 1: all offline ones are refused. */
uint32_t leat_pipeline_offline_max(const struct leat_pipeline *pipeline);

#endif /* LEAT_RUNTIME_PIPELINE_H */
