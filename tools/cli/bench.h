/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/bench.h - what `leat bench` was asked to do, what it counts, and how it says so. */
#ifndef LEAT_TOOLS_BENCH_H
#define LEAT_TOOLS_BENCH_H

#include <jansson.h>
#include <leat/tensor.h>

#include "sched/policy.h"
#include "tools/simulate/arrivals.h"
#include "tools/simulate/simulate.h"

#define BENCH_PROCESSES_MAX 64
#define BENCH_SLOTS_MAX     8192 /* queries in flight, of each process */
#define BENCH_VARIANTS_MAX  LEAT_SCHED_VARIANTS_MAX
#define BENCH_STAGES_MAX    8 /* of a pipeline */

struct bench_options {
    const char *socket_path, *target, *arrivals_text, *sizes_text, *inputs_path, *labels_path;
    const char *course_path; /* NULL: how it went in time is not written */
    double rate_qps, burst_factor, burst_share;
    uint64_t duration_ns, warmup_ns, drain_ns, items, queries, processes, slots, seed, burst_mean_ns;
    uint64_t objective_ns; /* of each query, from when it was due; 0: none, and nothing is late */
    bool objective_given;  /* else it is the application's, which offline queries do not have */
    double accuracy_floor, cost_cap; /* of each query; 0: any */
    bool offline, json, help;
    bool search; /* for the highest rate with at most violation_share, to within a share `tolerance` */
    double rate_min_qps, rate_max_qps, violation_share, tolerance;
    struct arrivals arrivals; /* but for the rate */
    struct arrivals_trace trace; /* with a file of arrivals */
    struct simulate_sizes sizes;
    struct simulate_draw draw; /* of sizes, with sizes_text */
    uint32_t stage_count; /* of the pipeline that is asked; 0: it is none */
    char stages[BENCH_STAGES_MAX][LEAT_NAME_MAX];
};

/* ---- The queries of a run ---------------------------------------------------------------------- */

/*
 * In order of arrival. All processes go through the same ones and send them in turn, so that what arrives does not depend
 * on how many there are. Query i of a seed has the size, and but for rounding the gap, of `leat simulate`'s query i.
 */
struct bench_schedule {
    const struct bench_options *options;
    struct arrivals arrivals;
    uint64_t random;    /* of sizes */
    uint64_t number;    /* of the next query */
    uint64_t next_item; /* of all queries before, the sum */
    uint32_t items_max; /* larger draws become this */
};

struct bench_query {
    uint64_t due_ns;     /* from the start */
    uint64_t first_item; /* its place among the items of all */
    uint32_t items;
    bool clipped; /* it was drawn larger */
};

/* items_max 0: sizes are of no interest. */
void bench_schedule_start(struct bench_schedule *schedule, const struct bench_options *options, double rate_qps,
                          uint32_t items_max);
/* False when a file has no more. */
bool bench_schedule_next(struct bench_schedule *schedule, struct bench_query *ret_query);

/* ---- A run ------------------------------------------------------------------------------------- */

/* What is known before it starts. */
struct bench_plan {
    double rate_qps;
    uint64_t query_count;    /* with the warm-up's */
    uint64_t measured_count; /* of them, the last ones */
    uint64_t window_ns;      /* the measured time */
};

/*
 * What one client process found; in memory shared with the parent, which reads it after the child has ended. The window is
 * the measured time. Queries belong to it by when they were due and are followed to their end, behind it too:
 *
 *      offered = sent + those that no slot came free for in time,
 *      sent = ok + rejected + expired + cancelled + failed + lost + unanswered,     ok = in time + late.
 *
 * Answers belong to it by when they came, whatever they answer: those are what it could do in that time.
 * Latencies are of ok and, as old as they were when the process ended, of unanswered and unsent ones.
 */
struct bench_result {
    uint64_t offered, sent, ok, late, rejected, expired, cancelled, failed, lost, unanswered;
    uint64_t items; /* offered */
    uint64_t clipped; /* of those offered, drawn larger than what the model takes, and sent with that many items */
    uint64_t window_ok, window_in_time;
    uint64_t items_correct, items_labelled;
    uint64_t items_correct_in_time, items_in_time; /* of those, in answers in time */
    struct {
        uint64_t count, ppm_sum;
    } accuracy_in_time, accuracy_ok; /* of answers whose variant has a known accuracy */
    struct {
        uint64_t ok, in_time;
        uint32_t accuracy_ppm; /* 0: unknown */
    } of_variant[BENCH_VARIANTS_MAX]; /* in the application's order, which may change meanwhile */
    uint64_t batch_items_sum, queue_ns_sum, exec_ns_sum;
    struct {
        uint64_t count, queue_ns_sum, exec_ns_sum; /* items of answers for which it ran */
    } of_stage[BENCH_STAGES_MAX];
    uint64_t latency_count;
    uint64_t slot_waits; /* sent after they were due, because all slots were taken */
    int exit_code;
    char error[256];
};

/* Queries that were due in one part of the window. */
#define BENCH_MOMENT_NS UINT64_C(100000000)
struct bench_moment {
    uint64_t offered, in_time;
};

struct bench_client_task {
    const struct bench_options *options;
    const struct bench_plan *plan;
    uint64_t index;           /* of options->processes */
    int ready_fd;             /* one byte goes there when it could start at once */
    int go_fd;                /* ends when it is to look at *start_ns */
    const uint64_t *start_ns; /* CLOCK_MONOTONIC; 0: there is no start */
    struct bench_result *result;
    uint64_t *latencies_ns; /* [room], result->latency_count of them in the end */
    uint64_t *delays_ns;    /* [room], result->sent of them: from when a query was due, and a slot free, until it left */
    uint64_t room;          /* no less than this process's measured queries */
    struct bench_moment *course; /* [moment_count] */
    uint64_t moment_count;       /* all of the window, 1 and more */
};

/* All that a client process does, but its end; result->exit_code and result->error say how it went. */
void bench_client(const struct bench_client_task *task);

struct bench_quantiles {
    uint64_t p50_ns, p99_ns, p999_ns, max_ns;
};

/* All processes together. */
struct bench_summary {
    struct bench_plan plan;
    struct bench_result sum;
    struct bench_quantiles latency, delay;
    /* Of the application's variants, in its order, before the run and after it; NULL: unknown. The caller's. */
    json_t *names_before, *names_after;
};

/* What the application calls its variants now, in its order, or NULL; *ret_exit becomes EXIT_DONE, or what went wrong is said. */
json_t *bench_ask_names(const struct bench_options *options, int *ret_exit);

/* EXIT_DONE, or what went wrong is said. */
int bench_run(const struct bench_options *options, double rate_qps, struct bench_summary *ret_summary);

/* ---- What is said ------------------------------------------------------------------------------ */

/* Of the queries offered, the share that was not answered in time. */
double bench_violation_rate(const struct bench_result *sum);

/*
 * Was it the generator that the run measured? So it is where one in a hundred queries left later, after it was due and
 * a slot free, than a twentieth of the objective, or some never left.
 */
bool bench_generator_limited(const struct bench_options *options, const struct bench_summary *summary);

/* The caller's. */
json_t *bench_report_json(const struct bench_options *options, const struct bench_summary *summary);

/* A table, or JSON where asked for. */
void bench_report(const struct bench_options *options, const struct bench_summary *summary);

/* Runs at one rate after the other and reports them all; an exit code. */
int bench_search(const struct bench_options *options);

#endif /* LEAT_TOOLS_BENCH_H */
