/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/runtime/steps.h - a dispatcher and its workers in one thread, driven step by step on a clock that stands still.
 *
 * The clients are the caller too: queries are numbered by whoever submits them, and answers come back by number. A batch
 * takes as long as the profile of its worker's class says, or longer, by the clock of the daemon, which steps_run() moves
 * on.
 * One set of steps at a time.
 */
#ifndef LEAT_TESTS_STEPS_H
#define LEAT_TESTS_STEPS_H

#include "runtime/dispatcher.h"

enum { STEPS_SLOTS = 1024, STEPS_SESSIONS_MAX = 20, STEPS_ITEMS_MAX = 1024, STEPS_VARIANTS_MAX = 4, STEPS_OTHERS_MAX = 3 };

struct steps_options {
    uint32_t worker_count;
    const uint16_t *classes; /* [worker_count]; that they start with */
    uint32_t class_count; /* those that they can become counted; 0: those that they start with */
    uint32_t worker_depth;
    uint32_t sessions; /* STEPS_SLOTS queries of each may be under way */
    const struct leat_router *router;
    const struct leat_selector *selector;
    uint32_t other_count; /* applications beside the first, which are like it */
    const struct leat_router *other_routers[STEPS_OTHERS_MAX]; /* NULL: as the first */
    bool drop_late;
    uint32_t variant_count; /* 0: 1. The v-th takes v + 1 times as long as what follows, and costs that much less */
    /* One model of sequences, instead of variants: the last is the longest, and takes as long as the class; others in proportion. */
    uint32_t lengths[STEPS_VARIANTS_MAX], length_count;
    bool all_alike; /* decisions are as for the longest */
    uint32_t items_max; /* of a batch; 0: STEPS_ITEMS_MAX */
    /* What the profiles say at first, by class: latency_ns + items * per_item_ns. */
    uint64_t latency_ns[LEAT_WORKER_CLASSES_MAX], per_item_ns[LEAT_WORKER_CLASSES_MAX];
    bool yields; /* the backend, though nothing passes anything here: batches run in the order in which they were handed over */
    /* Decisions take their time; rounds happen when the caller says. Batches fail, so that nothing is learnt of them. */
    bool real_clock;
};

extern struct steps {
    struct leat_shared_tables tables;
    struct leat_dispatcher *dispatcher;
    struct leat_worker *workers[LEAT_SCHED_WORKERS_MAX];
    struct leat_application app, others[STEPS_OTHERS_MAX]; /* their ids are 0, 1, ... */
    uint32_t slow[LEAT_SCHED_WORKERS_MAX][STEPS_VARIANTS_MAX]; /* so many times as long do batches take there; 0: 1 */
    uint64_t now_ns;
    int64_t longer_ns; /* than what the class says the next batch takes; taken back then */
    /* The last batch that ran. */
    struct {
        uint32_t variant, count, lengths[LEAT_BATCH_QUERIES];
    } ran;
} steps;

void steps_start(const struct steps_options *options);
void steps_stop(void); /* everything has ended */

/* Query `number` asks: in slot number % STEPS_SLOTS of session number / STEPS_SLOTS, which must be free. 0: no deadline. */
void steps_submit(uint32_t number, uint32_t items, uint32_t latency_us);
void steps_submit_capped(uint32_t number, uint32_t items, uint32_t latency_us, uint32_t cost_cap_nano);
void steps_submit_offline(uint32_t number, uint32_t items);
/* To the application of this id, or a pipeline that the caller has added; offline where latency_us is UINT32_MAX. */
void steps_submit_to(uint32_t application, uint32_t number, uint32_t items, uint32_t latency_us);
void steps_submit_long(uint32_t number, uint32_t items, uint32_t latency_us, uint32_t length);

/* One round of the dispatcher, `later_ns` after the last. False when it had nothing to do. */
bool steps_round(uint64_t later_ns);

/* The worker runs its next batch, if it has one, and the clock moves on by what that takes. */
bool steps_run(uint32_t worker);

/* The answer to the query submitted last under the number: false when there is none yet. Takes it. */
bool steps_answer(uint32_t number, struct leat_wire_response *ret_response);

#endif /* LEAT_TESTS_STEPS_H */
