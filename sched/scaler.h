/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/scaler.h - what cores, instances and batches the stages of applications are to have next.
 *
 * Source    The two ways of scaling are those of Themis (sched/scale_themis.h), the rules are our own.
 * Role      Whoever watches the load asks every tenth of a second or so. Cores of running instances change at once; new
 *           instances take a while, and are ordered for loads that stay.
 * Up        Cores: the least price that carries the present rate, and what waits, in time with the instances that run.
 *           At once. Where nothing does in time, what does in twice the time, and so on; then what carries most.
 * Settle    Instances: as many as the least price of all takes to carry the highest rate of late, whatever runs now. They
 *           are ordered at once, and given back, one in a decision, once that highest rate has been forgotten and fewer would have
 *           sufficed for some decisions in a row, or where others need them. So a load that
 *           stays high ends up on more instances of fewer cores, which is where Amdahl's law makes them cheap.
 *           Where a class has fewer cores than the least of what there is takes, as cores can go, all that the answer has no
 *           use for goes at once, whatever else holds: one in a decision would leave some application without any.
 * Ties      None is given back where what there is carries as much for the same price, or a sixteenth less: one instance of two
 *           cores and two of one would take turns as rates and times of batches waver. That takes one solution more in a
 *           decision that would give some back, unless somebody has its least before all else.
 * Workers   An instance takes a worker, of which there may be fewer than cores: no more are ordered than there are. Who has
 *           none has one before anybody has more; where none is left, who has most gives one. The rest is ordered in turn.
 * Overload  Where all cores are too few, what is in time within twice the objective is looked for, and so on up to sixteen
 *           times; then what carries most, in finer and finer shares. Who would be left with nothing has its least before
 *           all else.
 * Steady    What sufficed then is kept, and solved for at once in the next decisions, as long as each demand is between
 *           three quarters and four thirds of what it was found for and all else but times of batches is the same. So a
 *           load that stays gets the orders that looking for all anew gives, for one solution for instances and one for
 *           cores. One more in each decision, for either in turn, looks for it anew: it is some twenty decisions old at
 *           most.
 *           While a load wavers it carries as much on average (tests/sched/test_scaler.c).
 * Down      Cores are given back once as few have sufficed for some decisions in a row, or where others need them.
 * Classes   A stage's first instances are of the class that makes all of it cheapest, or of one that has workers for it;
 *           later ones of the same.
 * Demand    Rates are taken to be those of independent arrivals: what is carried lies above the rate by some deviations
 *           of what comes within an objective (leat_joint_demand).
 * Sharing   All applications are decided together. Cores of instances that start are spoken for.
 * Memory    The caller's: state zeroed at first; solver memory as leat_joint_bytes() says.
 * Threads   None of its own; what a call may write, one thread at a time.
 */
#ifndef LEAT_SCHED_SCALER_H
#define LEAT_SCHED_SCALER_H

#include <stdbool.h>

#include "sched/scale_joint.h"

#define LEAT_SCALER_APPLICATIONS_MAX 16u
#define LEAT_SCALER_HOLD_MAX         1024u

struct leat_scaler_options {
    double deviations;   /* of the demand, 0 and more */
    uint32_t hold;       /* decisions that a rate is remembered for; 1..LEAT_SCALER_HOLD_MAX */
    uint32_t settle;     /* decisions in a row before cores are given back; 1 and more */
    bool between; /* before its time, for a load that jumps: nothing is forgotten, or given back but where others lack it */
    uint32_t workers[LEAT_JOINT_CLASSES_MAX]; /* of each class of the machine; 0: as many as cores */
};
/* For ten decisions a second: a rate is remembered for 10 s, cores go after 1 s. */
#define LEAT_SCALER_OPTIONS_INIT {2, 100, 10, false, {0}}

/* As it is. */
struct leat_scaler_stage {
    uint32_t ready, starting; /* instances; `ready` is 0 before the first has started, or where there was no room for one */
    uint32_t worker_class;    /* of all of them, if there are any */
    uint32_t cores;           /* of each that is ready: as ordered, where that is not yet in force */
    uint32_t waiting;         /* queries that the next batch of an instance has no room for */
    uint32_t instances_min, instances_max; /* to order; 0: 1 and more. Where all of it is shed, or cores are missing, fewer */
};

struct leat_scaler_order {
    uint32_t instances;    /* that are to be, those that start included; 0: there are no cores for any */
    uint32_t cores, batch; /* of each that is ready; one that starts takes cores_min until it is */
    uint32_t worker_class;
};

struct leat_scaler_application {
    /* The caller's, for each decision. demand_qps and all stages' instances_min and instances_max are not: they are set here. */
    struct leat_joint_application joint;
    struct leat_scaler_stage stages[LEAT_SCALE_STAGES_MAX];
    double rate_qps;     /* now: a rise counts in full */
    double expected_qps; /* the most that is foreseen until a new instance would be ready; 0: nothing is */

    /* The scaler's. */
    struct leat_scaler_order orders[LEAT_SCALE_STAGES_MAX];
    uint32_t calm[LEAT_SCALE_STAGES_MAX]; /* decisions in a row that fewer cores would have sufficed in */
    uint32_t spared[LEAT_SCALE_STAGES_MAX]; /* the same, of instances */
    uint32_t decisions;
    float rates[LEAT_SCALER_HOLD_MAX]; /* ring */
};

/* ---- What sufficed of late where not all could be carried in time; the scaler's ---------------------- */

struct leat_scaler_sought { /* of one application */
    double part, best_part; /* of its demand that was asked for: in the last round, in the best */
    uint32_t share, best_share;
    uint32_t doublings; /* of its objective */
};

struct leat_scaler_attempt {
    struct leat_scaler_sought of[LEAT_SCALER_APPLICATIONS_MAX];
    uint32_t round;
    bool ended, whole, best_is_finer;
    uint8_t
        fed[LEAT_SCALER_APPLICATIONS_MAX]; /* who has its least before all else, in that order */
    uint32_t fed_count;
};

struct leat_scaler_search {
    struct leat_scaler_attempt found, next;
    double demand_qps[LEAT_SCALER_APPLICATIONS_MAX]; /* that it was found for */
    uint64_t sum;                                    /* of what else it was found for */
};

/* The caller's: zeroed at first, and whenever what was found is to count no more. */
struct leat_scaler_state {
    struct leat_scaler_search searches[2]; /* for instances, and for cores */
    uint32_t turn;
};

/*
 * Fills in the orders. The machine's cores are those that these applications may have in all. With a state applications are
 * those of before, in the same order; without one (NULL) all is looked for anew.
 */
void leat_scaler_decide(const struct leat_scaler_options *options, const struct leat_joint_box *box,
                        struct leat_scaler_state *state,
                        struct leat_scaler_application *const *applications, uint32_t count,
                        void *memory);

#endif /* LEAT_SCHED_SCALER_H */
