/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/autoscale.h - which variants of applications run in how many instances, for the least price that carries the load.
 *
 * Source    F. Romero, Q. Li, N. Yadwadkar, C. Kozyrakis, "INFaaS: Automated Model-less Inference Serving", USENIX ATC 2021, 4.2.1
 *           (the integer program) and 4.2.2 (the heuristic).
 * Role      Whoever watches the load asks every second or so: an aim says what is to run, leat_autoscale_move() what is to be
 *           started and stopped now, so that nothing is taken away before what replaces it is ready.
 * Problem   Integer numbers n of instances of each variant v; the least sum of C min(n, N) + C (1 + lambda T) max(n - N, 0),
 *           where N run now, C is an instance's price and T its loading time; sum of Q n >= load and slack; only variants that are in time;
 *           what instances use of each resource is there. This is the paper's program, its constant sum of C N left away.
 * Aims      `replicate` has more or fewer instances of one variant. `paper` is the paper's heuristic: one application
 *           after another, one variant is replicated, or replaced by one other. The paper's own: below the headroom
 *           replicas, or an upgrade to a variant that carries more; else, where the load is still carried, one
 *           instance fewer, or a downgrade; of these what is cheapest by the program's objective. Our reading: all
 *           instances of a variant are replaced, when upgrading those of what carries most, when downgrading those of
 *           any that runs; and a downgrade is what costs less in sum, as the objective counts, though an instance may
 *           be dearer. `least` solves the program by bounded search, and departs from the paper where that is weak:
 *             - several variants carry a load together, as the program allows and the heuristic does not;
 *             - all applications are decided at once, by prices of resources that are scarce, not first come, first served;
 *             - slack grows with the spread of independent arrivals in the time that they can wait, which 5 % is too little for where rates
 *               are low or objectives hardly longer than a batch;
 *             - what runs, but is not in time, carries nothing;
 *             - where there is too little of a resource, the least that is worth it is shed, and what runs may make room.
 *             - it may be told the highest rate of late (leat_autoscale_remember), for a loading time is soon over, and loading again takes it anew.
 * Down      What an aim has no use for, or has a cheaper replacement for, goes when that was so for as long as it takes to load.
 * Memory    None but the caller's and the stack.
 * Threads   None of its own; what a call may write, one thread at a time.
 * Units     Times in nanoseconds, rates in thousandths of a query a second (mqps). Prices in the caller's unit, the same everywhere.
 * Failure   Ranges are the caller's duty.
 */
#ifndef LEAT_SCHED_AUTOSCALE_H
#define LEAT_SCHED_AUTOSCALE_H

#include <stdbool.h>
#include <stdint.h>

#define LEAT_AUTOSCALE_VARIANTS_MAX     32u
#define LEAT_AUTOSCALE_RESOURCES_MAX    6u
#define LEAT_AUTOSCALE_APPLICATIONS_MAX 128u
#define LEAT_AUTOSCALE_INSTANCES_MAX    4096u /* of a variant */
#define LEAT_AUTOSCALE_PRICE_MAX        (UINT64_C(1) << 36)

struct leat_autoscale_variant {
    uint64_t batch_ns, item_ns; /* a batch of b takes batch_ns + b * item_ns */
    uint64_t load_ns;
    uint64_t price;             /* of an instance, a second; 1..LEAT_AUTOSCALE_PRICE_MAX */
    uint32_t batch_max;         /* 1 and more */
    uint32_t uses[LEAT_AUTOSCALE_RESOURCES_MAX]; /* of each resource: cores, shares of a device, memory */
};

struct leat_autoscale_box {
    uint32_t resource_count;
    uint32_t totals[LEAT_AUTOSCALE_RESOURCES_MAX];
};

struct leat_autoscale_options {
    double headroom;          /* capacity over load, 1 and more */
    double deviations;        /* of what comes within an objective, above the load, where that is more; 0 and more */
    double load_weight_per_s; /* lambda: what a second of loading costs, in a second's prices; 0 and more */
};
#define LEAT_AUTOSCALE_OPTIONS_INIT  {1.05, 1, 0.1}
#define LEAT_AUTOSCALE_OPTIONS_PAPER {1.05, 0, 0.1}

struct leat_autoscale_application {
    /* The caller's. */
    const struct leat_autoscale_variant *variants;
    uint32_t variant_count; /* 1..LEAT_AUTOSCALE_VARIANTS_MAX */
    uint64_t objective_ns;
    double load_qps;
    uint64_t shed_price; /* a second, of each mqps that is not carried: well above what carrying it costs */
    uint32_t ready[LEAT_AUTOSCALE_VARIANTS_MAX], starting[LEAT_AUTOSCALE_VARIANTS_MAX];
    uint32_t leaving[LEAT_AUTOSCALE_VARIANTS_MAX]; /* at the end of their batch: they still use resources */

    /* Aims set them. */
    uint32_t aim[LEAT_AUTOSCALE_VARIANTS_MAX]; /* instances that are to be */
    bool makes_room;                           /* what is not aimed at goes before its replacement is ready */

    /* Orders: instances to begin loading, and to take from those that load or are ready. */
    uint32_t start[LEAT_AUTOSCALE_VARIANTS_MAX], stop[LEAT_AUTOSCALE_VARIANTS_MAX];

    /* leat_autoscale_move()'s; zeroed at first. */
    uint64_t surplus_ns[LEAT_AUTOSCALE_VARIANTS_MAX]; /* for how long fewer were aimed at */
    uint64_t better_ns;                               /* and something cheaper, or that others go first */
};

/* The highest rate of late, so that what a load takes again and again is not loaded again and again. Zeros at first. */
struct leat_autoscale_memory {
    double now_qps, before_qps; /* highest, since `age_ns` ago and in the hold_ns before */
    uint64_t age_ns;
};

/* Call it with each rate, period_ns after the last; returns the highest of between hold_ns and twice that. */
double leat_autoscale_remember(struct leat_autoscale_memory *memory, double load_qps, uint64_t period_ns, uint64_t hold_ns);

/*
 * The largest batch that is in time: alone where the model says so; with others where it is also after waiting for as long. 0: none.
 */
uint32_t leat_autoscale_batch(const struct leat_autoscale_variant *variant, uint64_t objective_ns);

/* What an instance carries of batches that are in time. 0: none is. */
uint64_t leat_autoscale_capacity_mqps(const struct leat_autoscale_variant *variant, uint64_t objective_ns);

/* Load and slack; at least 1. */
uint64_t leat_autoscale_demand_mqps(const struct leat_autoscale_options *options,
                                    const struct leat_autoscale_application *application);

/*
 * What an instance of a variant counts for against that: its capacity, less where a query can wait less before it, for then more has to
 * be kept in hand. 0: it is not in time, by the objective, doubled until a variant keeps it.
 */
uint64_t leat_autoscale_carried_mqps(const struct leat_autoscale_options *options,
                                     const struct leat_autoscale_application *application, uint32_t variant);

/* Price of an instance that is to be loaded first: C (1 + lambda T). */
uint64_t leat_autoscale_start_price(const struct leat_autoscale_options *options, const struct leat_autoscale_variant *variant);

/* What the aims cost: the problem's sum, and what is shed. */
uint64_t leat_autoscale_price(const struct leat_autoscale_options *options,
                              const struct leat_autoscale_application *applications, uint32_t count);

/* Whether new instances of the aims fit; `beside` what runs, or in place of what is not aimed at. */
bool leat_autoscale_fits(const struct leat_autoscale_box *box, const struct leat_autoscale_application *applications,
                         uint32_t count, bool beside);

/* ---- Aims ---------------------------------------------------------------------------------------------- */

/* Of variants[a] of application a alone, as many as its load takes, or as there is room for. */
void leat_autoscale_aim_replicate(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                                  struct leat_autoscale_application *applications, uint32_t count, const uint32_t *variants);

void leat_autoscale_aim_paper(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                              struct leat_autoscale_application *applications, uint32_t count);

/* The program's answer where it is found within the bound, else one near it; in place of what runs, or `beside` it. */
void leat_autoscale_solve(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                          struct leat_autoscale_application *applications, uint32_t count, bool beside);

/* Beside what runs; where that sheds, in place of it. */
void leat_autoscale_aim_least(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                              struct leat_autoscale_application *applications, uint32_t count);

/* ---- Orders -------------------------------------------------------------------------------------------- */

/* From the aims; period_ns is the time since the last call. */
void leat_autoscale_move(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
                         struct leat_autoscale_application *applications, uint32_t count, uint64_t period_ns);

#endif /* LEAT_SCHED_AUTOSCALE_H */
