/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/variants.h - discrete-event simulation of one application with several variants on workers that are
 * alike.
 *
 * Role      Router, selector and load monitor are the daemon's own code, called as its dispatcher calls them: after each
 *           arrival and each end of a batch, until the router gives no more pairs. Queries have one item.
 * Model     A batch of b takes the latency of (variant, b); predictions are that latency, service times may vary about
 *           it. What is not dispatched waits before all workers, or, where the router deals, in a queue for each. An
 *           arrival comes before an end of a batch at the same moment. The dispatcher's admission is left out: nothing is
 *           refused on arrival.
 * Deep      However many wait, routers and selectors see the LEAT_SCHED_PENDING_MAX oldest, of what is dealt each worker's;
 *           waiting_count tells of the rest. A batch may hold all that is seen; the daemon ends it at 256 queries.
 * Late      SERVE: a late query is served all the same, in the order of arrival, as RAMSIS' artifact does. SERVE_LAST: what
 *           cannot be in time any more, even alone by the fastest variant, waits behind all that can, as in the daemon: it is
 *           shown to policies, in the order of arrival and without a deadline, when nothing else waits, for idle workers;
 *           selectors that are when_idle are not asked: leat_batch_of_late chooses. The daemon cuts the others' batches of late
 *           queries, by the objectives of all its applications; here they stay whole.
 *           DROP: one that waits until its deadline is given up, as expired.
 * Repeats   All follows from the seed: when queries come, which do so whatever the policy, and how service times vary.
 *           Equal inputs give equal results, bit for bit, on every machine.
 * Threads   A table and a policy are read-only and may be shared; a run is one thread's.
 * Units     Nanoseconds; rates in queries a second; accuracies in parts per million.
 */
#ifndef LEAT_TOOLS_VARIANTS_H
#define LEAT_TOOLS_VARIANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "sched/policy.h"
#include "tools/simulate/arrivals.h"
#include "tools/simulate/profiles.h"
#include "tools/simulate/simulate.h"

/* ---- What was measured ------------------------------------------------------------------------- */

#define VARIANTS_BATCH_MAX   32u                    /* up to which measured batches count, as in RAMSIS */
#define VARIANTS_LATENCY_MAX LEAT_SCHED_PENDING_MAX /* up to which latencies are known */

struct variants_table {
    uint32_t count;
    struct variants_row {
        char name[LEAT_NAME_MAX];
        uint32_t accuracy_ppm;
        uint64_t latency_ns[VARIANTS_LATENCY_MAX]; /* of a batch of b at b - 1 */
    } *rows; /* [count], in the order of the profiles */
};

/*
 * Batches that were not measured are filled in, and what was measured is repaired, as sched/latency_table.h says: up to
 * VARIANTS_BATCH_MAX by what was measured, from there to 128 by those, and beyond by all of these, as RAMSIS' published
 * simulator does.
 */
LEAT_MUST_CHECK enum leat_status variants_table_make(const struct simulate_profiles *profiles,
                                                     struct variants_table *ret_table);
void variants_table_free(struct variants_table *table); /* accepts zeros */

/* ---- One run ----------------------------------------------------------------------------------- */

enum variants_late { VARIANTS_SERVE_LATE, VARIANTS_SERVE_LATE_LAST, VARIANTS_DROP_LATE };

struct variants_options {
    const struct variants_table *table;
    const struct leat_router *router;
    struct leat_router_options router_options;
    const struct leat_selector *selector;
    struct leat_selector_options selector_options; /* objective and workers are filled in */
    struct arrivals arrivals; /* what is the caller's of it */
    uint64_t seed;
    uint32_t worker_count;  /* 1..LEAT_SCHED_WORKERS_MAX */
    uint32_t worker_depth;  /* batches that one may hold where the router queues, at most SIMULATE_DEPTH_MAX; 0: 1. As in the daemon
                             * one that more could join is not made until a millisecond before it begins */
    uint32_t batch_max;     /* items_max of all variants, at most VARIANTS_LATENCY_MAX; 0: VARIANTS_BATCH_MAX */
    uint64_t objective_ns;
    uint64_t duration_ns;   /* what would happen then or later does not */
    uint64_t load_window_ns; /* of the load monitor; 0: its own */
    bool load_known;        /* selectors are told the true rate, rounded up, instead; not with arrivals from a file */
    enum variants_late late;
    double noise_share;     /* standard deviation of service times, as a share of the latency */
    uint32_t abort_waiting; /* a run is over where so many wait; 0: never */
};

struct variants_result {
    uint64_t arrived;  /* = served + expired + rejected + waiting */
    uint64_t served;   /* dispatched, some of them to end after the run's end */
    uint64_t late;     /* of them after their deadline */
    uint64_t expired;  /* dropped */
    uint64_t rejected; /* no variant could serve them */
    uint64_t waiting;  /* not dispatched at the end */
    uint64_t waiting_late; /* of them past their deadline */
    uint64_t batches;
    uint64_t decisions; /* calls of the selector */
    uint64_t accuracy_sum; /* ppm, of queries served in time */
    uint64_t response_sum_ns; /* of queries served */
    uint64_t busy_ns;      /* of all workers, until the end of the run */
    uint64_t end_ns;
    uint64_t p50_ns, p99_ns, max_ns; /* response times of served queries, by nearest rank */
    bool aborted;
    struct {
        uint64_t queries, in_time, batches;
    } of_variant[LEAT_SCHED_VARIANTS_MAX];
    uint64_t batches_of[VARIANTS_LATENCY_MAX + 1]; /* by queries in them */
};

/*
 * Mean accuracy of queries served in time, 0..1; of none, or of a run that was aborted, that of the least accurate
 * variant.
 */
double variants_accuracy(const struct variants_table *table, const struct variants_result *result);
/* Share of late, expired and rejected queries and those late while they wait, of these and the ones served; aborted: 1. */
double variants_violation(const struct variants_result *result);
/* Share of the workers' time. */
double variants_utilisation(const struct variants_options *options, const struct variants_result *result);

struct variants_run; /* memory for runs, reused */
LEAT_MUST_CHECK enum leat_status variants_run_create(struct variants_run **ret_run);
void variants_run_destroy(struct variants_run *run); /* accepts NULL */

/* LEAT_ERR_INVALID: an option is out of range. */
LEAT_MUST_CHECK enum leat_status variants_simulate(struct variants_run *run, const struct variants_options *options,
                                                   struct variants_result *ret_result);

#endif /* LEAT_TOOLS_VARIANTS_H */
