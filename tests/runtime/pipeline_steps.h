/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/runtime/pipeline_steps.h - a dispatcher with one pipeline, its workers and clients in one thread, driven step by step
 * on a clock that stands still but while a batch runs.
 *
 * Each stage has an application of its own, whose model mixes all that it reads into what it writes, so that an answer is
 * right only if every stage ran once, on the right tensors, after its sources: all that is compared with an evaluation of the
 * DAG by recursion, and asserted while the models run. Queries are numbered by whoever submits them, over all clients: query n
 * is slot n % slots of client n / slots, and may be submitted again once it was answered.
 */
#ifndef LEAT_TESTS_PIPELINE_STEPS_H
#define LEAT_TESTS_PIPELINE_STEPS_H

#include "runtime/dispatcher.h"

enum {
    PIPELINE_STEPS_CLIENTS = 4,
    PIPELINE_STEPS_SLOTS = 16, /* of a client, unless more are asked for */
    PIPELINE_STEPS_QUERIES = PIPELINE_STEPS_CLIENTS * PIPELINE_STEPS_SLOTS,
    PIPELINE_STEPS_SLOTS_MAX = 64,
    PIPELINE_STEPS_QUERIES_MAX = PIPELINE_STEPS_CLIENTS * PIPELINE_STEPS_SLOTS_MAX,
    PIPELINE_STEPS_ITEMS = 4,    /* of a query */
    PIPELINE_STEPS_EACH_MAX = 8, /* of a repeating stage, for each of the query's */
    PIPELINE_STEPS_NONE = 64,    /* no stage */
};

struct pipeline_steps_stage {
    uint32_t after;   /* at most four; what repeats otherwise is waited for, not read */
    uint32_t each;    /* source; PIPELINE_STEPS_NONE: it does not repeat */
    bool varies;      /* its answer says how many of PIPELINE_STEPS_EACH_MAX elements it found */
    bool output;      /* of the pipeline; at most four */
    uint64_t time_ns;  /* of an item */
    uint64_t batch_ns; /* of a batch, beside its items */
    uint32_t items_max; /* of a batch; 0: 64 */
    uint32_t accuracy_ppm;
    uint32_t slow_accuracy_ppm; /* of a second variant, which takes three times as long; 0: there is none */
};

struct pipeline_steps_options {
    uint32_t stage_count;
    struct pipeline_steps_stage stages[LEAT_PIPELINE_STAGES_MAX];
    enum leat_pipeline_late late;
    uint64_t latency_ns;
    uint32_t slots; /* of a client; 0: PIPELINE_STEPS_SLOTS */
    uint32_t runs_max, each_items; /* each_items: even */
    uint32_t worker_count, worker_depth;
    uint32_t stage_slots;    /* of the session of stages' queries */
    uint32_t queue_capacity; /* of the central queue */
    uint32_t waiting_max;    /* of an application */
    bool drop_late;          /* of the applications */
    bool priced;             /* a worker for an hour costs one */
    uint32_t class_count;    /* that workers can become; they start as the first; 0: 1 */
    double speed[LEAT_WORKER_CLASSES_MAX]; /* of a class beside the first; 0: as that */
    void (*event)(const struct leat_event *event); /* is told of all; NULL: nobody is */
};

/* What is asked of a query beside its number; zeroes: nothing. */
struct pipeline_steps_ask {
    uint32_t items; /* 0: one */
    uint32_t latency_us, accuracy_floor_ppm, cost_cap_nano;
    bool offline;
};

extern struct pipeline_steps {
    struct leat_dispatcher *dispatcher;
    struct leat_shared_tables tables;
    struct leat_pipeline pipeline;
    struct leat_application apps[LEAT_PIPELINE_STAGES_MAX];
    struct leat_worker *workers[LEAT_SCHED_WORKERS_MAX];
    uint64_t now_ns;
    uint32_t found; /* elements, in each item of queries submitted from now on; UINT32_MAX: as many as the input says */
    struct pipeline_steps_query {
        bool under_way, closed, cancelled;
        uint32_t fails_at; /* stage that refuses its values; PIPELINE_STEPS_NONE: none */
        bool failed;       /* a batch that it was in failed */
        struct pipeline_steps_ask ask;
        uint64_t cost_nano; /* of what ran; never above the cap */
        uint64_t end_ns; /* no stage may begin after it */
        uint32_t ran[LEAT_PIPELINE_STAGES_MAX], due[LEAT_PIPELINE_STAGES_MAX]; /* items */
        uint64_t start_ns[LEAT_PIPELINE_STAGES_MAX], stop_ns[LEAT_PIPELINE_STAGES_MAX];
        struct leat_wire_response answer; /* the last */
    } queries[PIPELINE_STEPS_QUERIES_MAX];
    uint32_t largest_batch; /* queries in it, ever */
    uint32_t batches;
    int64_t longer_ns;  /* than its items say the next batch takes; taken back then */
    bool device_fails;  /* the next batch does */
    bool gone, drained; /* the dispatcher says so of the pipeline and of itself */
    uint32_t jumps;     /* of the load, that it told */
} pipeline_steps;

void pipeline_steps_start(const struct pipeline_steps_options *options);
/* Ends what is under way, removes the pipeline and checks that nothing is left of it. */
void pipeline_steps_stop(void);

void pipeline_steps_submit(uint32_t number, const struct pipeline_steps_ask *ask);
void pipeline_steps_cancel(uint32_t number);
/* The client goes, and another comes in its place once it is gone. */
void pipeline_steps_close(uint32_t client);
bool pipeline_steps_is_open(uint32_t client);
void pipeline_steps_command(const struct leat_command *command);

/* One round of the dispatcher, `later_ns` after the last, and a look at all answers: those that are OK are right. */
void pipeline_steps_round(uint64_t later_ns);
/* The worker runs its next batch, if it has one. */
bool pipeline_steps_run(uint32_t worker);
/* Rounds and batches until nothing is under way. */
void pipeline_steps_settle(void);
/* Commands that the pipeline, which has gone, be added again. */
void pipeline_steps_add_again(void);

/* The row of the last answer to it that was OK. */
uint64_t pipeline_steps_queued_ns(uint32_t number, uint32_t stage);
uint64_t pipeline_steps_ran_ns(uint32_t number, uint32_t stage);

#endif /* LEAT_TESTS_PIPELINE_STEPS_H */
