/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/instance.h - how it goes with one variant on one worker: INFaaS' states, from load and latency against the profile.
 *
 * Role       The daemon's dispatcher tells each instance of its batches and evaluates it now and then; selectors avoid what is
 *            overloaded or interfered, people and scalers look at it.
 * Source     F. Romero et al., "INFaaS: Automated Model-less Inference Serving", ATC 2021, section 4 and figure 4; thresholds
 *            from its published code.
 * States     Inactive, loading and active follow one another as a model is loaded; the last three as it serves.
 *   inactive    not loaded: nothing can be dispatched.
 *   loading     will be active.
 *   active      serves less than its peak, about as fast as profiled.
 *   interfered  is slower than its profile says, and cannot be at its peak therefore: batches run longer than they should.
 *   overloaded  runs as profiled but is asked for its peak: batches run as they should, queries wait for them.
 *
 * Peak       Of items a second: those of a batch over the batch's profiled time (in milliseconds, 1000 * batch / latency), at
 *            the sizes that its batches have. As instances of one worker take turns, one is at its peak when the worker is
 *            busy all the time, with it or with others. What comes is compared with it as if all that the application is
 *            asked came to this variant, on all workers alike.
 * Evidence   Since the last verdict: slowness, time that batches ran over the profiled time; response, time since the oldest
 *            query of a batch came, over the same; busy share of the worker, from the end of one batch to that of another.
 *            LEAT_INSTANCE_ALLOWANCE_NS beyond the profile count neither as running nor as waiting, and a batch as 64 times
 *            too slow at most. The batch that ran longest beyond its profile is left out of slowness: that one stalls says
 *            nothing of the next. A verdict takes LEAT_INSTANCE_BATCHES, the fewest of which two agree then; an instance that
 *            has them between any two evaluations is judged at each. Batches that are far apart do not speak of one
 *            condition: after LEAT_INSTANCE_QUIET evaluations in a row without any those before are forgotten. So a verdict
 *            rests on less than half a minute beside the batches themselves, and what is asked for less often than that
 *            stays as it is. Waiting is judged by LEAT_INSTANCE_QUEUE_BATCHES: what comes at random comes in threes now and
 *            then under any load. Of a model that takes too long for as many between evaluations, what waits says it.
 * Rules      a, k, z and u are leat_instance_limits.
 *              to interfered   slowness > a
 *              to overloaded   else, response > a and busy share >= k, of enough batches; or what waits would take z
 *                              evaluations of all workers
 *              from interfered slowness < u
 *              from overloaded response < u, what comes is below the peak, and what waits not above z
 *            An instance that is avoided has no batches to tell: while nothing of it runs, nobody waits for it, and its
 *            slowness shrinks by d at each evaluation, until it is tried again. It stays out for one evaluation at least, and
 *            for twice as many as the last time, up to LEAT_INSTANCE_HOLD_MAX, when it is found as bad again within as many
 *            verdicts as it was out for.
 * Departures INFaaS has one flag for both states, and its latency includes waiting. In the paper overloaded is left when
 *            queries fall below the peak; response and what waits are in its code. What a verdict takes, the allowance and
 *            holding are ours.
 * Cost       A batch: additions. An evaluation: constant, four divisions where there is a verdict.
 * Numerics   Integers: equal inputs, equal states on every host.
 * Units      Nanoseconds on the caller's time line; ratios in 1/1000.
 * Threads    One owner.
 */
#ifndef LEAT_SCHED_INSTANCE_H
#define LEAT_SCHED_INSTANCE_H

#include <stdint.h>

#define LEAT_INSTANCE_INTERVAL_NS   UINT64_C(1000000000) /* between evaluations; 2 s in the paper, 1 s in its code */
#define LEAT_INSTANCE_BATCHES       3u
#define LEAT_INSTANCE_QUEUE_BATCHES 8u
#define LEAT_INSTANCE_QUIET         10u
#define LEAT_INSTANCE_HOLD_MAX      16u
/*
 * Profiles are measured in a loop, with the caches warm and the core awake. A batch that comes after others', or after
 * nothing, finds neither, and is handed over besides: tens of microseconds, whatever the model. A network that takes 5 us is
 * ten times too slow then with nothing to disturb it; one that takes 1 ms hardly shows it.
 */
#ifndef LEAT_INSTANCE_ALLOWANCE_NS
#define LEAT_INSTANCE_ALLOWANCE_NS UINT64_C(100000)
#endif

enum leat_instance_state {
    LEAT_INSTANCE_INACTIVE,
    LEAT_INSTANCE_LOADING,
    LEAT_INSTANCE_ACTIVE,
    LEAT_INSTANCE_OVERLOADED,
    LEAT_INSTANCE_INTERFERED,
};
#define LEAT_INSTANCE_STATES 5u

struct leat_instance_limits {
    uint32_t slow_permille;    /* a */
    uint32_t busy_permille;    /* k */
    uint32_t backlog_permille; /* z */
    uint32_t clear_permille;   /* u */
    uint32_t decay_permille;   /* d */
};

/*
 * INFaaS' rows "default" and, for the only instance of a CPU variant, "CPU": a patient one, for there is nowhere else to go.
 * k of the latter is 1 there; a worker that is given batch after batch still waits for each to be handed over.
 */
extern const struct leat_instance_limits leat_instance_limits_default; /* 2.5, 0.5, 0.8, 1.5, 1.5 */
extern const struct leat_instance_limits leat_instance_limits_alone;   /* 4, 0.9, 1.1, 1.5, 15 */

/* What its instances share; all zeroes at the start. */
struct leat_instance_worker {
    uint64_t busy_ns;  /* time of all batches that it ran, of whatever variant */
    uint64_t ended_ns; /* when the last one did */
};

struct leat_instance {
    uint64_t profiled_ns, run_ns, response_ns; /* sums over the batches since the last verdict, but for allowances */
    uint64_t worst_profiled_ns, worst_run_ns;  /* of the one among them that ran longest beyond its profile */
    uint64_t busy_seen_ns, ended_seen_ns;      /* of the worker, then */
    uint64_t item_ns;                         /* profiled time of an item, lately; 0: unknown */
    uint32_t items, batches;                   /* since the last verdict */
    uint32_t slow_permille, response_permille, busy_permille; /* at the last verdict, or less since; 0: unknown */
    uint16_t running;                                         /* batches dispatched and not ended */
    uint8_t state;                                            /* enum leat_instance_state */
    uint8_t age;   /* evaluations since it came out of service, or verdicts since it is active; stays at 255 */
    uint8_t hold;  /* evaluations to stay out for, the last time */
    uint8_t fresh; /* a batch has ended since the last evaluation */
    uint8_t quiet; /* evaluations in a row that found nothing running or ended; stays at 255 */
};

struct leat_instance_batch {
    uint64_t run_ns;
    uint64_t profiled_ns; /* what it should take, on average: as measured, not as learned; 0: nothing can be said */
    uint64_t response_ns; /* since its oldest query came */
    uint32_t items;       /* >= 1, but where nothing can be said */
};

/* Of the application, at the moment. */
struct leat_instance_demand {
    uint32_t rate_qps;      /* at which items come: sched/load.h */
    uint32_t waiting_items; /* that no worker has yet */
    uint32_t worker_count;  /* >= 1, that have the variant */
};

/*
 * Turns it inactive, loading or active, whatever it was, and forgets what it was told, except what runs. `worker` may be
 * NULL where that has run nothing yet.
 */
void leat_instance_turn(struct leat_instance *instance, const struct leat_instance_worker *worker,
                        enum leat_instance_state state);

/* A batch has gone to the worker, and has ended. */
void leat_instance_begin(struct leat_instance *instance);
void leat_instance_end(struct leat_instance *instance, struct leat_instance_worker *worker, uint64_t now_ns,
                       const struct leat_instance_batch *batch);

/* Once an interval. Returns the state. */
enum leat_instance_state leat_instance_evaluate(struct leat_instance *instance, const struct leat_instance_worker *worker,
                                                const struct leat_instance_limits *limits,
                                                const struct leat_instance_demand *demand);

/* In items a second, by the batches of its last verdict; 0: unknown. */
uint32_t leat_instance_peak_qps(const struct leat_instance *instance);

const char *leat_instance_state_text(enum leat_instance_state state);

#endif /* LEAT_SCHED_INSTANCE_H */
