/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/application.h - what the dispatcher needs to know of an application, and its waiting queries.
 *
 * Ownership  The control side builds one and hands it to the dispatcher with LEAT_COMMAND_ADD_APPLICATION;
 *            from then on the dispatcher owns every mutable field until it reports LEAT_EVENT_REMOVED.
 *            The signature, the names and the variants' models and plans are constant all along.
 */
#ifndef LEAT_RUNTIME_APPLICATION_H
#define LEAT_RUNTIME_APPLICATION_H

#include <stdatomic.h>
#include <stdbool.h>

#include <leat/leat.h>

#include "kernels/backend.h"
#include "kernels/made_inputs.h"
#include "runtime/central_queue.h"
#include "runtime/histogram.h"
#include "runtime/instances.h"
#include "runtime/variant_choice.h"
#include "runtime/worker_set.h"
#include "sched/load.h"
#include "sched/policy.h"
#include "sched/probing.h"
#include "sched/profile.h"
#include "sched/reserve.h"
#include "sched/share.h"

#define LEAT_APPLICATIONS_MAX 1024u
#define LEAT_PLANS_MAX        17u /* batches up to 2^0 .. 2^16 items */
#define LEAT_WAITING_MARKS    (LEAT_SCHED_PENDING_MAX / 64) /* words; one bit for each query that a router is shown */

/* A variant in the memory of one NUMA node. */
struct leat_variant_copy {
    struct leat_model *model;
    struct leat_plan *plans[LEAT_PLANS_MAX]; /* plans[b] holds up to 2^b items; NULL above items_max */
};

/* A loaded variant. `index` is its place in the daemon's table; responses carry the place in their application. */
struct leat_variant {
    char name[LEAT_NAME_MAX + 8]; /* of a shorter one: "model@length" */
    uint16_t index;
    uint32_t length; /* of sequences, at the most; 0: it has none */
    struct leat_variant *shorter[LEAT_LENGTHS_MAX - 1]; /* the same model in plans for shorter sequences, ascending; its own */
    uint32_t shorter_count;
    const struct leat_backend *backend;
    struct leat_variant_copy *copies; /* [copy_count], one per node that has workers */
    uint32_t copy_count;
    uint32_t items_max;
    enum leat_batch_bound items_bound; /* why items_max is not larger */
    enum leat_precision precision;
    char *dims_json; /* values of free dimensions of the file, by name; NULL: none were given */
    char *constants_json; /* of inputs of the file that are none of its own, by name; NULL: likewise */
    char *misdeclared; /* as the graph's, or NULL */
    char *ranges_json; /* [least, most] of values of the graph, by name; NULL: it was not calibrated */
    uint32_t accuracy_ppm;
    uint64_t item_bytes[LEAT_TENSORS_MAX];
    uint32_t dtypes[LEAT_TENSORS_MAX];
    struct leat_made_range made_ranges[LEAT_TENSORS_MAX]; /* of inputs, see leat_graph_made_ranges() */
    uint32_t tensor_count, input_count; /* inputs come first */
    uint32_t size_count; /* that an answer tells of each item; times items_max at most LEAT_SIZES_MAX */
    bool one_by_one;     /* a batch is run item by item */
};

/* What waits, by whose turn it is: no query of a rank is decided while one of an earlier rank waits, in any application. */
enum leat_rank {
    LEAT_RANK_ONLINE,
    /* Online, but too late even for the fastest variant, where that is served late, or of a run that goes on late: without a deadline to policies. */
    LEAT_RANK_LATE,
    LEAT_RANK_OFFLINE,
    LEAT_RANKS,
};

/* The queries of one rank that wait, oldest first, as two parallel arrays whose live part is [head, tail). */
struct leat_waiting {
    struct leat_sched_query *queries;
    struct leat_query_entry *entries;
    uint32_t head, tail, room; /* room: length of both arrays, twice the bound */
    uint64_t items;            /* sum over the live part */
    uint64_t positions;        /* of the sequences of all these items together */
    uint32_t barred;           /* of them, those with barred_classes */
    uint32_t ordinal;          /* of the next one; wraps */
    uint64_t look_at_ns;       /* the router is asked about them again now, and not before unless something changes */
    uint64_t changes_seen;     /* of the workers, when it was asked last */
};

/* The workers that an application's queries of one rank go to. */
struct leat_serving {
    struct leat_worker_set set;
    uint32_t count;                     /* of them, 1 at the least */
    uint32_t classes;                   /* that they are of: a bit for each */
    bool own;                           /* some are the application's own */
    uint8_t at[LEAT_SCHED_WORKERS_MAX]; /* their numbers, ascending: a router, which is shown no others, has them by these places */
};
_Static_assert(LEAT_SCHED_WORKERS_MAX - 1 <= UINT8_MAX, "the number of a worker fits");

/* W: dispatcher, relaxed. R: anyone, for statistics only. */
struct leat_application_counters {
    _Atomic uint64_t accepted, ok, rejected, expired, cancelled, failed, batches, waiting;
    _Atomic uint64_t busy_ns; /* of workers, with what was neither offline nor late when it went there */
};

/* What the control side knows of the policy in force. */
struct leat_policy_keeping {
    bool own;          /* made here, and made anew when it does not fit any more */
    uint32_t versions; /* so many were in force, this one included; 0: the selector follows none */
    const struct leat_policy *policy; /* the application's, for the control side, which alone has it exchanged */
    uint64_t objective_ns; /* that it was made for, as what follows */
    uint32_t worker_count, rung_count, dispersion_permille;
    uint32_t dispersion_mean_permille; /* of arrivals, lately */
    uint32_t spread_ppm;    /* that it was made for */
    uint32_t misfits;       /* looks in a row at which it did not fit */
    uint64_t accepted_seen; /* queries at the last look */
    uint64_t queries_seen, items_seen; /* that had arrived when the unit was looked at */
    uint32_t unit_shift; /* items of a usual query, rounded down to a power of two: what counts as one */
    struct leat_share share; /* of the workers; in force for selectors that go by their number */
    uint64_t demand_accepted_seen, busy_seen_ns; /* at the last look at demands */
    bool wanted;            /* somebody waits for a new one */
    uint32_t failures;      /* to make or exchange it, in a row */
    uint64_t retry_at_ns;   /* by CLOCK_MONOTONIC: not before, after a failure */
    uint32_t warned;        /* of one from a file: matters of runtime/policy_fit.h that were logged */
    char trouble[256];      /* why there is no better one; "": nothing is known against it */
};

struct leat_application {
    char name[LEAT_NAME_MAX];
    uint16_t id;
    uint64_t generation; /* no other application that there was has it */
    struct leat_target target;
    uint64_t latency_ns; /* default objective; 0: none */
    bool drop_late;      /* refuse or drop what cannot be in time; else serve it late */
    uint32_t waiting_max; /* of each rank */
    const struct leat_router *router;
    const struct leat_selector *selector;
    void *router_state;
    void *selector_state;       /* with policy, changed by LEAT_COMMAND_SET_POLICY */
    struct leat_policy *policy; /* that the state refers to; NULL where it needs none */
    /*
     * Its models, in order; then, of models of sequences, each in plans for shorter ones. Where the selector follows tables or counts
     * workers, for which queries are all alike, shorter_count of these are behind the variant_count that decisions are made of:
     * they are made as if all were of full length, and only what runs is shorter.
     */
    struct leat_variant *variants[LEAT_SCHED_VARIANTS_MAX];
    struct leat_sched_variant sched_variants[LEAT_SCHED_VARIANTS_MAX];
    uint32_t variant_count, shorter_count;
    uint8_t at_length[LEAT_SCHED_VARIANTS_MAX][LEAT_LENGTHS_MAX]; /* the same model's for the target's lengths */
    uint8_t by_time[LEAT_SCHED_VARIANTS_MAX]; /* places of variants, the one first that takes the least time for an item */
    struct leat_profile (*profiles)[LEAT_WORKER_CLASSES_MAX]; /* [variant_count + shorter_count] */
    uint64_t price_micro[LEAT_WORKER_CLASSES_MAX]; /* of a worker of the class an hour, in millionths; 0: it has none */
    uint64_t fresh; /* bit v: what was learned of variant v before does not count any more, should this take over */

    /* That it may count on where it has none of its own; 0: all that serve it. W: control  R: dispatcher, relaxed */
    _Atomic uint32_t worker_count;

    /* Dispatcher's. */
    struct leat_serving serving[LEAT_RANKS];
    uint8_t decided_ranks; /* a bit for each that was decided for in the last round */
    struct leat_waiting waiting[LEAT_RANKS];
    uint32_t queued[LEAT_RANKS]; /* queries in the central queue that are on the way there */
    uint64_t next_expiry_ns; /* no waiting query expires before it or, where late ones are served, becomes late */
    uint64_t late_expiry_ns; /* none of those that wait as late does */
    uint32_t running; /* queries handed to workers and not reported done */
    uint32_t running_batches;
    struct leat_probing probing[LEAT_WORKER_CLASSES_MAX];
    struct leat_instances instances; /* of its variants on all workers; zeroes: not kept */
    bool removing;
    struct leat_application *successor; /* that waits for what runs to end; NULL: none */
    bool busy;      /* in the dispatcher's list of those to decide for */
    bool sweep_due; /* a query that waits was cancelled, its session closed, or what it is a part of is late */
    struct leat_load load; /* of online queries, with those that are refused for want of room or of time */
    uint64_t turned_away_items; /* of these, ever */
    uint64_t late_queries; /* of them, that an idle worker could have had done in time, and that were refused, or waited for too long; ever */
    uint64_t jump_items; /* of those: as many waiting are LEAT_EVENT_JUMP; 0: none are */
    uint64_t queries_seen;      /* of the load, at the last evaluation */
    uint32_t asked_lately;      /* evaluations to go until it was not */
    /* Of an offline batch its longest step's, by the variant that was decided on, lately; 0: none gave way yet. */
    uint16_t step_permille[LEAT_SCHED_VARIANTS_MAX];
    struct leat_reserve reserve;
    _Atomic uint64_t reserve_ns; /* as it is kept. W: dispatcher  R: control, relaxed */
    struct leat_application_counters counters;
    struct leat_histogram sizes; /* items of accepted queries. W: dispatcher */

    struct leat_policy_keeping keeping; /* the control side's */
};

/* Room for 1..waiting_max queries of each rank. */
LEAT_MUST_CHECK enum leat_status leat_waiting_init(struct leat_waiting waiting[LEAT_RANKS], uint32_t waiting_max);
void leat_waiting_fini(struct leat_waiting waiting[LEAT_RANKS]);

/* As policies see a query that arrives now, but for its ordinal and the classes that are barred. */
struct leat_sched_query leat_waiting_query(const struct leat_query_entry *entry, uint64_t now_ns);
/* Appends it; the caller has checked the bound. */
void leat_waiting_push(struct leat_waiting *waiting, const struct leat_query_entry *entry,
                       const struct leat_sched_query *query);
/*
 * Removes what is marked: bit q % 64 of marks[q / 64] stands for the q-th live query. One pass over those up to the last
 * one marked, however many wait behind them. The marks are cleared.
 */
void leat_waiting_remove(struct leat_waiting *waiting, uint64_t marks[LEAT_WAITING_MARKS]);
/* Asks keep() once for every query, oldest first, and removes those that it says false to, all in one pass. */
typedef bool (*leat_waiting_keep_fn)(void *context, const struct leat_query_entry *entry, const struct leat_sched_query *query);
void leat_waiting_filter(struct leat_waiting *waiting, leat_waiting_keep_fn keep, void *context);

/* The place of the shortest of the target's lengths that holds a sequence; it has some, and none of its queries has a longer one. */
static inline uint32_t
leat_application_bucket(const struct leat_application *app, uint32_t length)
{
    uint32_t bucket = 0;
    while (app->target.lengths[bucket] < length) {
        bucket++;
    }
    return bucket;
}

/* The same model as the variant's for sequences of this length at the most. */
static inline uint32_t
leat_application_shorten(const struct leat_application *app, uint32_t variant, uint32_t length)
{
    return app->target.length_count > 0 ? app->at_length[variant][leat_application_bucket(app, length)] : variant;
}

/*
 * What `items` by themselves cost on a worker of the class, in 10^-9 of what prices are in, rounded up: by what was measured, so
 * that it does not change while a query waits. UINT64_MAX: the class has no price.
 */
uint64_t leat_application_cost_nano(const struct leat_application *app, uint32_t variant, uint32_t worker_class, uint32_t items);
/* Where that is cheapest; 0: no class has a price. */
uint32_t leat_application_least_nano(const struct leat_application *app, uint32_t variant, uint32_t items);
/* The least time that is predicted for them on any of the first class_count classes that is not barred: bit c of `barred`. */
uint64_t leat_application_least_ns(const struct leat_application *app, uint32_t variant, uint32_t items, uint32_t class_count,
                                   uint32_t barred);

static inline uint32_t
leat_waiting_count(const struct leat_waiting *waiting)
{
    return waiting->tail - waiting->head;
}

/* Of all ranks. */
static inline uint32_t
leat_waiting_total(const struct leat_waiting waiting[LEAT_RANKS])
{
    uint32_t total = 0;
    for (uint32_t rank = 0; rank < LEAT_RANKS; rank++) {
        total += leat_waiting_count(&waiting[rank]);
    }
    return total;
}

#endif /* LEAT_RUNTIME_APPLICATION_H */
