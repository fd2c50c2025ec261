/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/system/box.h - a small real daemon inside a test: server, dispatcher and workers with a backend made here.
 *
 * The backend's model has pairs of an input and an output of `item_bytes`, one unless said otherwise. Its answer is each pair's
 * input with every byte inverted, so a wrong, torn or mixed-up answer shows. The first byte of the first can also steer it:
 * BOX_HOLD makes the worker wait until box_release(), BOX_REFUSE makes the batch fail. Where the backend yields, it does so
 * for as long as it is held, and once before each query.
 */
#ifndef LEAT_TESTS_BOX_H
#define LEAT_TESTS_BOX_H

#include <leat/leat.h>

#include "runtime/server.h"
#include "runtime/variant.h"

#define BOX_HOLD   0xf0u
#define BOX_REFUSE 0xf1u
#define BOX_VARIANTS_MAX 4u
#define BOX_ACCURACY_PPM(v) (500000u + 100000u * (v))

struct box_options {
    const char *socket_path;
    uint32_t workers;     /* 0: 1 */
    uint32_t team;        /* threads of each; 0: 1 */
    uint32_t cores;       /* that the tests, not the machine, say there are to spin on; 0: 64 */
    uint32_t items_max;   /* 0: 8 */
    uint32_t item_bytes;  /* 0: 64 */
    uint32_t pairs;       /* 0: 1 */
    uint32_t waiting_max; /* 0: 64 */
    uint32_t sessions_max; /* 0: 64 */
    uint64_t arena_max_bytes, session_memory; /* 0: 16 MiB, and 1 GiB of all sessions */
    uint64_t latency_ns;
    uint64_t spin_ns;     /* 0: park at once */
    uint64_t predicted_ns; /* what the profile says of any batch; 0: 1 */
    uint64_t last_worker_ns; /* the last worker is of a class of its own, with this profile; 0: it is not */
    bool serve_late;
    bool yields; /* the backend */
    bool pipeline; /* "box" is a pipeline: the application's answer is asked once more, and gives the input again, and stage_ns */
    const struct leat_router *router; /* NULL: fcfs */
    const struct leat_selector *selector; /* NULL: fixed */
    const struct leat_policy *policy;     /* which that follows, of variants in their order; or NULL */
    uint32_t variants; /* to choose from, up to BOX_VARIANTS_MAX; 0: 1. The v-th is said to take v + 1 times as long as
                        * the first, to cost as much more and to be more accurate */
    void (*on_worker)(void);          /* called on the worker's thread at each batch; NULL: nothing */
    const struct leat_loaded_variant *model; /* answers, instead of the backend made here; NULL: that one */
    /* Called on each member of its team at each batch; NULL: nothing. */
    void (*on_member)(void *member_context, uint32_t member, uint32_t size);
    void *member_context;
};

struct box;

struct box *box_start(const struct box_options *options);
void box_release(struct box *box); /* ends the wait of one BOX_HOLD batch */
uint32_t box_held(const struct box *box); /* batches waiting for box_release so far */
struct leat_server_statistics box_sessions(const struct box *box);
struct leat_worker *box_worker(struct box *box, uint32_t index);
struct leat_dispatcher *box_dispatcher(struct box *box);
struct leat_application *box_application(struct box *box);
void box_stop(struct box *box); /* drains and checks that nothing is left */

/* Forks a process that runs a box until it is killed; returns once it listens. */
pid_t box_fork(const struct box_options *options);

/* A connected session with target "box" and its tensors; aborts the test when it cannot. */
struct box_client {
    struct leat_session *session;
    struct leat_target target;
    struct leat_query query;
};
void box_connect(struct box_client *client, const char *socket_path, uint32_t slots);
void box_disconnect(struct box_client *client);
/* Fills the query's i-th input with `byte` + i and checks the outputs against it. */
void box_fill(struct box_client *client, const struct leat_query *query, unsigned char byte);
bool box_check(const struct box_client *client, const struct leat_query *query, unsigned char byte);

#endif /* LEAT_TESTS_BOX_H */
