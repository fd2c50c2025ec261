/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/stages.h - discrete-event simulation of pipelines whose stages are scaled while they serve.
 *
 * Model     A stage is one first-in-first-out queue before instances that are all alike; an instance runs one batch at a time, for
 *           as long as the stage's latency model says of its cores. Cores change some time after they are ordered, for batches that
 *           begin from then on; an instance serves some time after it is ordered, and holds its cores from the order on. One
 *           that is given back goes when idle. Batches that the model has no time for (0 or less), as there are when fewer
 *           wait than was planned for, take the least that it has for others.
 * Graphs    A pipeline's stages are a DAG, as the daemon's: a query is asked of a stage once all that this waits for have ended,
 *           and answered once all stages have. A stage that repeats has a number of items of each query, none included, which
 *           go into batches each by itself; the stage ends with the last of them.
 * Sharing   Of several pipelines each has stages and arrivals of its own; leat decides about all of them together, for one
 *           machine. The papers' scalers decide for each by itself, and know chains only.
 * Scalers   `leat` is the daemon's (sched/scaler.h). `themis` is the paper's (sched/scale_themis.h), `fa2` its horizontal half, `sponge`
 *           its vertical half on one instance a stage: they decide once a second by the last two seconds' rate, in whole
 *           queries. While instances start, Themis decides nothing, as the authors' program waits for them. `fa2-slack` decides
 *           when fa2 does and by its rate, by leat's model of latency and with leat's deviations above the rate.
 * Batches   The authors' dispatcher waits until a batch is whole; leat's takes what is there when an instance is free.
 * Drops     A query is dropped when a stage would take it and it is as old as a multiple of the objective: nothing of it is
 *           asked any more. It counts as a violation, like what is late, and what is still inside at the end.
 * Repeats   All randomness follows from the seed; arrivals are the same for all scalers.
 * Units     Nanoseconds; rates in queries a second.
 */
#ifndef LEAT_TOOLS_SIMULATE_STAGES_H
#define LEAT_TOOLS_SIMULATE_STAGES_H

#include "sched/forecast.h"
#include "sched/scale_themis.h"
#include "sched/scaler.h"
#include "tools/simulate/arrivals.h"
#include "tools/simulate/second.h"

enum stages_scaler {
    STAGES_NONE, /* one core, one instance, for ever */
    STAGES_FA2,
    STAGES_SPONGE,
    STAGES_THEMIS,
    STAGES_LEAT,
    STAGES_FA2_SLACK,
    STAGES_SCALERS,
};
extern const char *const stages_scaler_names[STAGES_SCALERS];

#define STAGES_INSTANCES_MAX 256u
#define STAGES_PIPELINES_MAX LEAT_SCALER_APPLICATIONS_MAX
#define STAGES_ITEMS_MAX     64u /* of one query, for one stage */

/* Of a query for a stage: any number between these, each as often. */
struct stages_items {
    uint32_t min, max; /* to STAGES_ITEMS_MAX */
    uint32_t same;     /* an earlier stage that has the same number, as it repeats for the same things; its own place: none has */
};

struct stages_pipeline {
    struct leat_themis_pipeline table;     /* times, and the objective; each stage behind those that it waits for */
    uint32_t after[LEAT_SCALE_STAGES_MAX]; /* bit p: it waits for stage p */
    struct stages_items items[LEAT_SCALE_STAGES_MAX];
    struct arrivals arrivals;
    uint32_t weight; /* of its queries, where cores are too few; 1 and more */
};

/* Stages one after another, each asked once; weight 1. Arrivals are the caller's. */
void stages_chain(const struct leat_themis_pipeline *table, struct stages_pipeline *ret_pipeline);
bool stages_is_chain(const struct stages_pipeline *pipeline);

struct stages_options {
    const struct stages_pipeline *pipelines;
    uint32_t pipeline_count; /* 1..STAGES_PIPELINES_MAX */
    enum stages_scaler scaler;
    uint64_t duration_ns; /* of arrivals; it ends when all are answered, or the longest objective and a minute later */
    uint64_t seed;
    uint64_t start_ns, resize_ns; /* from the order to a new instance, and to new cores */
    uint32_t settle_decisions;    /* of Themis, and of both FA2 before they take instances away */
    bool whole_batches;
    double drop_multiple;         /* of the objective; 0: never */
    double noise_share;           /* of service times: deviation of a normal distribution */
    struct leat_scaler_options leat;
    uint64_t leat_period_ns;      /* between its decisions */
    uint32_t box_cores;           /* that leat may give */
    /*
     * What Themis and leat are told of the highest rate of the next ten seconds, from those of the last windows of ten, the latest
     * last. NULL: Themis that of the latest, leat nothing.
     */
    double (*forecast)(void *context, const double maxima_qps[LEAT_FORECAST_WINDOWS]);
    void *forecast_context;
    bool oracle; /* they are told what will come, whatever `forecast` is */
};

struct stages_share {
    uint64_t queries, in_time;
};

struct stages_result {
    uint64_t queries, in_time, late, dropped, left;
    struct stages_share shares[STAGES_PIPELINES_MAX]; /* of each pipeline */
    double core_s;                  /* held, from the first to the last arrival's second */
    uint32_t cores_most; /* held at one time, but for those of instances that were given back and end their batch */
    uint64_t decisions, resizes, starts;
    uint64_t p50_ns, p99_ns;        /* of what was answered */
    struct simulate_second *seconds; /* [second_count] */
    uint32_t second_count;
};

/* LEAT_ERR_UNSUPPORTED: the scaler does not know such a pipeline. */
LEAT_MUST_CHECK enum leat_status stages_simulate(const struct stages_options *options, struct stages_result *ret_result);
void stages_result_free(struct stages_result *result); /* accepts zeros */

#endif /* LEAT_TOOLS_SIMULATE_STAGES_H */
