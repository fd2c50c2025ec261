/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/runtime/scaled.h - cores that follow the load of a dispatcher that is driven step by step (steps.h, pipeline_steps.h).
 *
 * Scaler, plan of workers and feedback are the daemon's. What its keeper and the owner of cores do around them is here without
 * threads, on the caller's clock, for one application or one pipeline whose stages follow one another: a look at the load in its time,
 * and before where the dispatcher says that it jumped; who is to have fewer cores is told at once, who is to have more once these are
 * free. Here deciding and changing take no time, a change under way is not replaced by another, and no offline work keeps who is
 * nobody's awake. Workers start awake, of one core, for everybody. One at a time.
 */
#ifndef LEAT_TESTS_SCALED_H
#define LEAT_TESTS_SCALED_H

#include "runtime/dispatcher_private.h"
#include "runtime/scale_plan.h"
#include "sched/scaler.h"
#include "sched/shortfall.h"

enum { SCALED_WORKERS_MAX = 8, SCALED_STAGES_MAX = 2 };

struct scaled_options {
    struct leat_dispatcher *dispatcher;
    struct leat_shared_tables *tables; /* whose clock it goes by */
    void (*command)(const struct leat_command
                        *command); /* has it obeyed, and what follows told to scaled_take() */
    uint32_t stage_count;
    struct {
        uint16_t application;
        uint32_t items_max; /* of a batch */
    } stages[SCALED_STAGES_MAX];
    uint64_t objective_ns;
    uint32_t worker_count, cores;
    uint32_t
        sizes; /* bit c - 1: workers can have c cores, and are of the class that is c's logarithm, then */
    bool fixed;        /* the load is not looked at: what scaled_arrange() says stays */
    uint64_t delay_ns; /* of a new instance */
    uint32_t hold;     /* looks that rates are remembered for */
};

extern struct scaled {
    struct leat_scale_worker
        workers[SCALED_WORKERS_MAX]; /* as they are to be; `has`: cores that are theirs */
    struct leat_shortfall shortfall;
    uint32_t cores;      /* that workers are to have */
    uint64_t core_looks; /* and had, over all looks in their time */
    uint32_t looks, changes;
} scaled;

void scaled_begin(const struct scaled_options *options);
void scaled_end(void);
/* What an event of the dispatcher means for the workers. */
void scaled_take(const struct leat_event *event);
/* When there is to be a look, by what is known so far. */
uint64_t scaled_due_ns(void);
/* Changes as far as they can go by now, and a look that is due. */
void scaled_keep(void);
/* What each worker is to be from now on, but for what it has. */
void scaled_arrange(const struct leat_scale_worker *planned);

#endif /* LEAT_TESTS_SCALED_H */
