/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/policy.h - the two decisions: which worker (router), then which variant and batch (selector).
 *
 * Role     Pure functions over plain state. No clock, no I/O, no allocation, no threads: the daemon's
 *          dispatcher and the simulator call the same code, with time passed in.
 * Use      On arrival and on completion the dispatcher takes the applications with pending queries, the one
 *          whose oldest query waited longest first, and calls the application's route(). For each pair that
 *          comes back, in order, it calls select() with the pending queries from the routed one on, as far as the next
 *          that left with an earlier pair, and dispatches the batch; a batch of other than the routed query alone ends the
 *          round, since it may hold queries of later pairs. It goes on until no application gets a pair. What a
 *          router leaves for later though a worker has room is shown to it again whenever anything arrives, is
 *          dispatched or ends, and after a millisecond at the latest; it must not leave a query for ever while all
 *          workers are idle.
 * State    A policy's private state is `state_bytes` of memory that the caller owns and zeroes; init()
 *          fills it. Two policies of one kind never share state.
 * Units    Nanoseconds on the caller's time line; deadlines are absolute on it.
 */
#ifndef LEAT_SCHED_POLICY_H
#define LEAT_SCHED_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_SCHED_WORKERS_MAX  256u
#define LEAT_SCHED_CLASSES_MAX  8u
#define LEAT_SCHED_VARIANTS_MAX 64u  /* of one application */
#define LEAT_SCHED_PENDING_MAX  1024u /* queries shown to one route() call */
#define LEAT_NO_DEADLINE        UINT64_MAX

struct leat_sched_query {
    uint64_t arrival_ns;
    uint64_t deadline_ns; /* LEAT_NO_DEADLINE for none */
    uint32_t items;       /* >= 1 */
    uint32_t accuracy_floor_ppm;
    uint32_t cost_cap_nano; /* what an answer may cost, in 10^-9 of what prices are in; 0: any */
    uint32_t ordinal;     /* how many of its application came before; wraps */
    uint16_t application; /* index in the caller's table */
    uint16_t length;      /* of its sequences; 0: its application has none */
    bool offline;
    uint8_t barred_classes; /* bit c: on a worker of class c its cap is broken whatever the variant; see sched/route_caps.h */
};
_Static_assert(LEAT_SCHED_CLASSES_MAX <= 8, "a bit for each class");

struct leat_sched_worker {
    uint64_t free_at_ns;   /* when its last dispatched batch is predicted to end; <= now when idle */
    uint32_t outstanding;  /* batches dispatched and not completed */
    uint32_t depth;        /* batches it may hold; a worker with outstanding < depth has room */
    uint16_t worker_class; /* workers of one class are identical */
    uint16_t node;         /* NUMA node */
};

struct leat_sched_variant {
    uint32_t accuracy_ppm;
    uint32_t items_max; /* largest batch in items */
    uint32_t cost_nano; /* to compare variants by: of one item by itself on the cheapest class of workers, in 10^-9 of what prices are in */
    uint16_t length_min, length_max; /* of queries that it serves, both inclusive; zeroes: the application has none */
    bool ready;         /* loaded on every worker that route() may choose */
};

/* Time of `items` items of `variant` on a worker of `worker_class`; 0 where nothing is known. */
typedef uint64_t (*leat_predict_fn)(const void *profiles, uint16_t application, uint32_t variant,
                                    uint16_t worker_class, uint32_t items);

struct leat_instance;

struct leat_route_input {
    uint64_t now_ns;
    const struct leat_sched_query *pending; /* oldest first */
    uint32_t pending_count;                 /* 0..LEAT_SCHED_PENDING_MAX */
    const struct leat_sched_worker *workers;
    uint32_t worker_count;
    uint32_t class_count; /* 1..LEAT_SCHED_CLASSES_MAX; workers' classes are below */
    uint32_t items_max;   /* no query is larger; classes are compared at this size */
    uint32_t variant;     /* what a batch will most likely be: the one to predict with */
    uint16_t application;
    leat_predict_fn predict; /* at the application's percentile: is it in time? */
    leat_predict_fn mean;    /* on average: how long is the worker busy? */
    const void *profiles;
};

/* What a router may be told when it starts; a zero is the router's own default. */
struct leat_router_options {
    uint32_t threshold_items; /* threshold: queries above it go to the base class */
    bool by_percentile;       /* matching: late is what misses the objective at the percentile, not 0.98 of it by mean */
};

struct leat_route_pair {
    uint32_t query; /* index into pending */
    uint32_t worker;
};

struct leat_router {
    const char *name;
    size_t state_bytes;
    bool queues; /* gives work to busy workers too, so they should have room for more than one batch */
    bool deals; /* query number k is for worker k % worker_count alone; the selector is shown that worker's queries only */
    bool narrowed; /* may be shown fewer workers with room than there are: any will do for the oldest query */
    bool per_query; /* chooses a worker for each query, which batching would undo: see leat_selector_default */
    uint32_t reorders; /* of so many waiting queries, the oldest, those that have time let urgent ones go first; 0: none */
    enum leat_status (*init)(void *state, const struct leat_router_options *options); /* NULL: zeroes will do */
    /* Writes at most pairs_max pairs, each query and each worker at most once; only workers with room. */
    uint32_t (*route)(void *state, const struct leat_route_input *input, struct leat_route_pair *pairs,
                      uint32_t pairs_max);
};

struct leat_select_input {
    uint64_t now_ns;
    const struct leat_sched_query *pending; /* of this application, oldest first, the routed one at 0 */
    uint32_t pending_count;                 /* >= 1 */
    uint32_t waiting_count;                 /* >= pending_count: all that wait, of which pending is the front */
    const struct leat_sched_variant *variants;
    uint32_t variant_count;
    const struct leat_sched_worker *worker;
    uint32_t worker_count; /* that the application may count on: all, or its share of them (sched/share.h) */
    uint32_t idle_count; /* of them without anything outstanding, the routed one included */
    uint32_t rate_qps;   /* at which items of the application's queries came lately: sched/load.h */
    uint32_t rising_qps; /* the same, but for a rise */
    uint16_t application;
    leat_predict_fn predict;
    leat_predict_fn cost; /* of so many items by themselves, in 10^-9 of what prices are in; UINT64_MAX: the class has no
                           * price. Asked where a query has a cap; NULL: none has */
    const void *profiles;
    uint64_t reserve_ns; /* by which batches are to end before the deadline, for those that plan to it: sched/reserve.h */
    const struct leat_instance *instances; /* [variant_count] on this worker: sched/instance.h; NULL: all are active */
};

struct leat_selection {
    uint32_t variant;
    uint32_t queries; /* how many of `pending`, from the skipped ones on, form the batch; 0: nothing can serve [0] */
    uint32_t skip;    /* so many at the front are given up for now: they wait on, to be served late or to expire */
    bool hold;        /* with 0 queries: the worker waits for more; asked again when a router would be that left them */
};

struct leat_policy;

#define LEAT_SELECTOR_RATE_STEP_QPS 200u

/* What a selector may be told when it starts. */
struct leat_selector_options {
    uint64_t objective_ns; /* the application's; 0: none */
    uint32_t worker_count;
    uint32_t rate_step_qps;           /* jellyfish: between rungs of load; 0: LEAT_SELECTOR_RATE_STEP_QPS */
    const struct leat_policy *policy; /* mdp and model_switching: their table, which outlives the state; else NULL */
    const char *const *variant_names; /* [variant_count] of the application, by which the table's are found; NULL: its are
                                       * the table's, in that order */
    uint32_t variant_count;
};

struct leat_selector {
    const char *name;
    size_t state_bytes;
    bool single; /* never more than one query a batch */
    /*
     * Weighs accuracy against being in time by what waits: it is asked only while a worker is idle, for what comes until then may
     * change its choice, and not about queries that are late already.
     */
    bool when_idle;
    bool follows_policy; /* that init must be given */
    bool follows_instances; /* is to be shown them */
    bool counts_workers; /* chooses by worker_count: is to be told the application's share of them */
    enum leat_status (*init)(void *state, const struct leat_selector_options *options); /* NULL: zeroes will do */
    struct leat_selection (*select)(void *state, const struct leat_select_input *input);
    /* A batch that it chose has ended and ran for so long. NULL: that tells it nothing. */
    void (*ended)(void *state, uint32_t variant, uint32_t items, uint64_t run_ns);
    /* How gladly it would serve query [0] on that worker: less is better. Batches do not matter. NULL: all are the same to it. */
    uint64_t (*rank_worker)(void *state, const struct leat_select_input *input);
};

/*
 * Where a rule compares classes, it is by their mean time at items_max, unknown last; the fastest that has workers is
 * the base, as in Kairos. Idle is a worker with nothing outstanding. Ties go to the older query and the lower number.
 */

/*
 * Oldest query to an idle worker of the fastest class (Ribbon: SC 2021); when none is idle, to the worker with room that
 * is predicted free soonest. One pair an answer, like round_robin: the batch decides what remains. O(workers).
 */
extern const struct leat_router leat_router_fcfs;
/*
 * Kairos (B. Li et al., HPDC 2023, section 5.1): matches the oldest queries, at most twice as many as workers, one to
 * one with all workers, idle or not, at the least sum of C * L. Dispatches the pairs whose worker is idle; the other
 * queries wait and are matched anew. All pairs of an answer are one matching: take as many as are idle.
 *   L    predicted wait for the worker + mean time on it. If the query then ends later than 0.98 of its objective
 *        (deadline - arrival) after it arrived: ten times the objective, or L if that is more. No deadline: L.
 *   C    mean time of the base / of the worker's class, at items_max, rounded down to 1/65536; 1 where it is unknown.
 * Ours: L never falls by being late, which the paper leaves open; of queries that cost the same everywhere the older
 * come first; times count up to 2^45 ns.
 * Its state is 1.4 MB, of which only what the numbers of queries and busy workers ask for is touched.
 */
extern const struct leat_router leat_router_matching;
/*
 * DeepRecSys (U. Gupta et al., ISCA 2020) as Kairos compares with it: queries of more than options.threshold_items to idle
 * workers of the base class, others to idle ones of the auxiliary classes, the fastest of these first; oldest first on
 * either side, and no side helps the other. 0 stands for half of items_max; sched/threshold.h finds better. Where all
 * workers are of one class, it is fcfs. O(pending + classes * workers).
 */
extern const struct leat_router leat_router_threshold;
/*
 * Clockwork's own controller (A. Gujarati et al., OSDI 2020) with one model and batches of one: each worker that has room
 * and is predicted free within 10 ms, the soonest first, takes the query with the least deadline - predicted time on
 * it, of those it ends in time; then those without a deadline. Ours: what it would end late is not dropped, which is for
 * the caller to do, but comes last, in the same order. 64 KiB of state, touched as pending asks for. O(pending * workers).
 */
extern const struct leat_router leat_router_edf;
/*
 * Clockwork as Kairos compares with it (HPDC 2023, section 7): every query, oldest first, goes at once to the queue of a
 * worker that is predicted to have it in time. Ours, where the paper is silent: of those workers the one that ends it
 * first, by its mean time; when there is none, the same of all; one without room is left out, and with no room anywhere
 * queries wait. An answer ends before a worker's second query.
 */
extern const struct leat_router leat_router_clockwork;
/* Oldest query to the worker with room that has the fewest batches outstanding; of equal ones, the soonest free. */
extern const struct leat_router leat_router_shortest_queue;
/* Oldest query to the next worker in turn, idle or not, skipping those without room. */
extern const struct leat_router leat_router_round_robin;
/*
 * RAMSIS (D. Mendoza et al., EuroSys 2024, section 3): queries are dealt to the workers in turn as they come, query
 * number k to worker k % worker_count, whatever that is doing. Each idle worker with queries of its own gets the oldest
 * of them; nobody helps another. Pairs are in order of workers. O(pending + workers).
 */
extern const struct leat_router leat_router_dealt;
/*
 * For workers that differ: dear workers for what only they can do in time, earliest deadline first; cheap ones by
 * deadline - 0.7 * time; what is late comes last, where it costs least. Learns what a class's time is worth from the sizes
 * that come. When not all can be in time, large queries are given up first, and what is late may wait for long. Looks at
 * the 128 oldest, of which 32 at most are past their deadline. Workers with nothing outstanding only. More in
 * sched/router_laxity.c.
 */
extern const struct leat_router leat_router_laxity;
/* What it holds the time of a worker of that class to be worth: all workers' together 1; 0 before the first query. */
double leat_laxity_price(const void *state, uint32_t worker_class);
/*
 * The first ready variant that can hold query [0] and meets its accuracy floor; then as many queries
 * from the front as fit its items_max and their floors, but never so many that a chosen query is
 * predicted late that alone, on this worker, would be in time. A query that is late even alone holds
 * nobody back. A query larger than items_max of every ready variant cannot be served: queries = 0.
 * Ours: where the oldest queries would be late even alone, and a younger one would not, the oldest are given up for now. And
 * a batch that is kept small for its oldest query, and so makes the next batch late, gives way to a larger one of
 * younger queries, if there is one, and the oldest are given up for now. Small batches do less in the same time: under more
 * load than all workers can do in time, each would make the next one small, and most of what is done would be late. Nexus
 * (H. Shen et al., SOSP 2019) has the problem, and drops the oldest early; here only where it helps.
 */
extern const struct leat_selector leat_selector_fixed;
/*
 * One query a batch: the first ready variant that can hold query [0] and meets its accuracy floor. queries = 0 when there
 * is none. For routers that choose a worker for each query: a batch would undo their choice for all but its first.
 * Ours: where query [0] would be late on this worker, and a younger one would not, those before that are given up for now.
 */
extern const struct leat_selector leat_selector_single;
/*
 * What a policy that was solved ahead says (sched/policy_table.h, kinds queue and pool; queue wants a router that deals) of
 * the items that wait, the slack of the oldest query when the worker is free, the rate and the idle workers. Whole queries
 * up to the action's items make the batch, one at least. No deadline is a slack of the whole objective. Queries that the
 * policy gives up are passed over, unless nothing else can be served: then they are, by the fastest variant. It may hold.
 *   Kind      One of kind queue is followed as it stands; the next three are for kind pool.
 *   Pace      Where batches lately took longer than the table has it, by a factor p on average, slacks count as divided and rates
 *             as multiplied by p: all times p as long would be the same world with a slower clock. Of the last 64 batches or
 *             so, which are of a unit at least; each counts for 4 at most. Less than 1/16 longer is as the table has it.
 *   Rise      The rate is rising_qps.
 *   Reserve   Slacks are taken to be less by reserve_ns; where the policy then gives a query up, it is asked with all the time that
 *             there is.
 *   Workers   worker_count may change; that of idle ones is taken for no more than it. 0 stands for init's.
 *   Variants  are the table's by name; others serve only where nothing else does. Where the action's does not suit the
 *             first query: a floor above it takes the least accurate that does; else the next faster ready one, then the
 *             fastest. A query of more items than the action's takes the next faster one that has it in time. Such a
 *             substitute gets no more than it is predicted to have within the slack, but one query. A query that does not
 *             suit the variant ends the batch.
 * init fails without a policy, with one of another kind, and where it knows none of the application's variants.
 */
extern const struct leat_selector leat_selector_mdp;

/*
 * Jellyfish+ (V. Nigade et al., RTSS 2022; as RAMSIS compares with it, EuroSys 2024, section 7): by load alone. A batch
 * of b items is feasible if b / its time is at least 1.05 times the rate for each worker and twice its time is no more
 * than the objective. The most accurate variant that has a feasible batch of query [0]'s items or more, of those that can hold
 * it and meet its floor; of the variant the largest feasible batch, or what waits of it. Without any the variant that is fastest for one
 * item, with all that it can hold. The rate is rounded up to a multiple of options.rate_step_qps; what follows from it is
 * kept until the rung, the number of workers or that of variants is another, or for 4096 decisions, since predictions are
 * learned. The decision that computes it anew asks for the time of every batch up to 256 items of every variant. Ours:
 * query by query, floors are met and batches fit; an objective of 0 bounds nothing.
 */
extern const struct leat_selector leat_selector_jellyfish;
/*
 * ModelSwitching (J. Zhang et al., HotCloud 2020; as RAMSIS compares with it): the variant and largest batch that a
 * policy of kind load has for the rate (sched/policy_table.h; tools/simulate/switching.h makes one). Where that variant
 * does not suit query [0] or is not ready, the least accurate that does and is. init fails without such a policy, and
 * where it knows none of the application's variants.
 */
extern const struct leat_selector leat_selector_model_switching;
/*
 * The obvious thing to do, to compare with: the most accurate variant that ends what waits, as far as it fits items_max and
 * the floors allow, by the deadline of query [0]. Without any the one that is fastest for one item, with the same.
 */
extern const struct leat_selector leat_selector_greedy;
/*
 * INFaaS (F. Romero et al., ATC 2021, section 4.1): of the ready variants that suit query [0] and end it by its deadline the
 * active one that costs least, of equal ones the one that is predicted to end first. Without any, of those that are
 * overloaded or interfered (sched/instance.h) the one that ends it first; what is not loaded cannot be dispatched. Where none
 * ends it in time, the one that comes closest. The batch is as many queries as the variant suits and ends by the deadlines of
 * all of them; where the first is late, as many as it can hold. Workers are ranked by the same rules, but by time only where
 * nothing active will do: an active instance on another worker goes first, if the router lets it (fcfs and shortest_queue:
 * sched/candidates.h). Ours: all variants share the worker, so that one that takes as long as an overloaded one, or longer,
 * counts as overloaded too; and the deadlines of all queries of a batch, not of the first alone. O(variants + queries of the
 * batch).
 */
extern const struct leat_selector leat_selector_infaas;

/*
 * For workers of one class, and for workers that differ. class_count: classes that workers are of at first. That workers of one
 * class can be given more cores is no reason to match each query with a worker: what is scaled is planned in batches.
 */
#define LEAT_ROUTER_DEFAULT       "fcfs"
#define LEAT_ROUTER_DEFAULT_MIXED "laxity"
const struct leat_router *leat_router_default(uint32_t class_count);
/*
 * single where workers differ and the router chooses among them for each query; mdp where workers are of one class, the router
 * is fcfs and there is a choice: an objective, variants whose accuracies are known and differ, and workers that stay of their
 * class; else fixed.
 */
const struct leat_selector *leat_selector_default(uint32_t class_count, const struct leat_router *router, bool choice);

/* NULL when there is none of that name. */
const struct leat_router *leat_router_find(const char *name);
const struct leat_selector *leat_selector_find(const char *name);

/* Every policy, for messages that name what is allowed; NULL past the last. */
const struct leat_router *leat_router_at(size_t index);
const struct leat_selector *leat_selector_at(size_t index);

#endif /* LEAT_SCHED_POLICY_H */
