/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/scale_joint.h - cores, instances and batches of all stages of all applications of a machine, at the least price.
 *
 * Role      Themis (sched/scale_themis.h) fixes either cores or instances, one application at a time, on times rounded to milliseconds.
 *           Here both are free unless the caller bounds them, classes of cores differ in speed and price, and applications
 *           share what there is.
 * Model     A stage whose n instances, of c cores of one class each, run batches of b in l(b, c) carries n b / l queries a
 *           second. Whoever comes waits for the next instance to be free, l / n at most where they end one after
 *           another, and then runs: l + l / n. Latencies add up along a series, the longest counts of what is parallel.
 * Scarcity  Where the machine is too small, the answer first sheds as little demand as it can, in sixteenths of an
 *           application's and weighed by the caller, and is then the cheapest. The caller may say that to carry nothing of an
 *           application counts as more than what it asks for, so that the greedy do not starve the modest.
 * Method    The least latency of a stage with so many cores of a class, and for each price; then of terms, where merging
 *           two takes all pairs that are no worse in price and time. The cheapest that is in time is what an application
 *           takes for a share of its demand; of all applications' shares those are taken that shed least and fit the
 *           machine. Where cores are of several classes each class is dear in turn, which gives ways to spare it.
 * Exact     No other choice sheds less, or as little for less: with one class of cores, unless shares or points are left out
 *           (Time), and with several that make few cells (some hundreds: the product of all cores + 1). With more cells, where
 *           each application gets its cheapest, the price is the least but for one and a 256th for each stage, and just the
 *           least up to 512 times what prices have in common; where they are scarce, some percent more of the demand are shed
 *           than the least. tests/sched/test_scale_joint.c measures how much, for two to four classes.
 * Time      Bounded, some milliseconds: where applications have more stages and sizes than that allows, shares are
 *           multiples of two, four, eight or sixteen sixteenths, and points of terms are left out evenly. 16 applications
 *           of three stages of 16 cores and batches of 16 on 255 cores of one class are just solved in full. More cores
 *           take longer in proportion.
 * Numerics  Demand in doubles; times, cores and prices in whole numbers. Of equal answers the first, which is the same each time.
 * Memory    The caller's, leat_joint_bytes(); contents mean nothing between calls.
 * Threads   None of its own; what a call may write, one thread at a time.
 * Failure   Ranges are the caller's duty.
 */
#ifndef LEAT_SCHED_SCALE_JOINT_H
#define LEAT_SCHED_SCALE_JOINT_H

#include <stddef.h>

#include "sched/scale.h"

#define LEAT_JOINT_CLASSES_MAX 4u
#define LEAT_JOINT_TERMS_MAX   (2 * LEAT_SCALE_STAGES_MAX - 1)
#define LEAT_JOINT_SHARES      16u
#define LEAT_JOINT_CORES_MAX   16384u

struct leat_joint_box {
    uint32_t class_count; /* 1..LEAT_JOINT_CLASSES_MAX */
    struct {
        uint32_t cores; /* that there are; up to LEAT_JOINT_CORES_MAX */
        uint32_t price; /* of one; 1 and more */
    } classes[LEAT_JOINT_CLASSES_MAX]; /* the product of all cores + 1 is at most 2^20 */
};

struct leat_joint_stage {
    const uint64_t *latency_ns[LEAT_JOINT_CLASSES_MAX]; /* u64[cores_max][batch_max], from one each; 0: not to be had; NULL: none of that class */
    uint32_t cores_max, batch_max;                      /* of one instance */
    uint32_t cores_min, instances_min, instances_max;   /* 1 and more */
    double calls;                                       /* that a query makes of it, on average; above 0 */
};

/* How stages follow one another, in reverse Polish notation: 0.. is a stage, each once, and the others join the two before. */
enum {
    LEAT_JOINT_SERIES = -1,
    LEAT_JOINT_PARALLEL = -2,
};

struct leat_joint_application {
    struct leat_joint_stage stages[LEAT_SCALE_STAGES_MAX];
    int8_t terms[LEAT_JOINT_TERMS_MAX];
    uint32_t stage_count, term_count;
    double demand_qps; /* what is to be carried: leat_joint_demand() of a rate, say */
    uint64_t objective_ns;
    uint32_t weight;    /* of each query a second that is shed; 1 and more */
    double starved_qps; /* that is shed besides, of weight 1, where nothing is carried; 0 and more */
};

/*
 * Says how the stages of a DAG follow one another: bit p of after[s] that stage s waits for stage p, an earlier one. Those that
 * are as many steps from the start are joined in parallel, and each such row follows the one before. So the latency is never less
 * than that of the longest way through the DAG, and is just that where it is a chain, or one row.
 */
void leat_joint_follow(struct leat_joint_application *application, const uint32_t *after, uint32_t stage_count);

struct leat_joint_choice {
    uint32_t worker_class, instances, cores, batch; /* instances 0: the application is shed */
};

struct leat_joint_answer {
    struct leat_joint_choice stages[LEAT_SCALE_STAGES_MAX];
    uint32_t share;      /* of the demand that is carried, in LEAT_JOINT_SHARES */
    uint64_t latency_ns; /* at most, of the model */
};

/*
 * The rate that arrivals of rate_qps, if independent of one another, exceed in a window only once in so many; `deviations`
 * of a normal distribution say how seldom: 2.33 of 100, 3.09 of 1000.
 */
double leat_joint_demand(double rate_qps, uint64_t window_ns, double deviations);

/* They suffice for a box with fewer cores, too. */
size_t leat_joint_bytes(const struct leat_joint_box *box, uint32_t application_count);

/* Returns the price of it all. Applications: 1..64. */
uint64_t leat_joint_solve(const struct leat_joint_box *box, const struct leat_joint_application *applications,
                          uint32_t count, void *memory, struct leat_joint_answer *ret_answers);

#endif /* LEAT_SCHED_SCALE_JOINT_H */
