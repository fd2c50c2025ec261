/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/daemon.h - the parts put together: dispatcher, workers, server, models and applications.
 *
 * Role       Control-plane state: which models are loaded, which applications answer, and the admin requests that
 *            change them. The dispatcher sees only what it is handed.
 * Threads    create, run and destroy on one thread. A second thread answers admin requests that only look, a third loads
 *            and removes models, each one request after another, while the server goes on. stop from anywhere.
 * Lifecycle  create -> (load_model | add_application)* -> run -> destroy.
 */
#ifndef LEAT_RUNTIME_DAEMON_H
#define LEAT_RUNTIME_DAEMON_H

#include <stdbool.h>
#include <jansson.h>

#include "kernels/team.h"
#include "runtime/server.h"
#include "runtime/topology.h"
#include "runtime/variant.h"

struct leat_daemon;

struct leat_daemon_worker {
    uint32_t cpus[LEAT_TEAM_MAX]; /* core_count of them, leader first */
    uint32_t core_count;          /* >= 1 */
    uint32_t node;
    uint16_t worker_class;        /* < LEAT_WORKER_CLASSES_MAX */
};

/* A class of workers, for backends that tell them apart and for planning. */
struct leat_daemon_class {
    char name[32];
    uint64_t price_micro; /* of one worker an hour, in millionths */
    uint32_t count_max;   /* that could be had; 0: as many as there are */
};

/* Where models are kept over restarts; called on the thread that loads models. */
struct leat_daemon_store {
    enum leat_status (*add)(void *context, const struct leat_variant_source *source);
    enum leat_status (*remove)(void *context, const char *name);
    void *context;
};

struct leat_daemon_options {
    struct leat_server_options server; /* socket, limits, cores; the rest is filled in by create */
    const struct leat_daemon_worker *workers;
    uint32_t worker_count; /* 1..LEAT_SCHED_WORKERS_MAX */
    const struct leat_daemon_class *classes; /* of all worker_class; NULL: they have no names and no prices */
    bool pin;              /* false: leave placement to the kernel */
    int dispatcher_cpu;    /* -1: unpinned */
    uint32_t worker_depth;
    uint32_t queue_capacity;
    uint64_t spin_ns;           /* ceiling for dispatcher, workers and clients; server.cores says while what */
    bool hold_cpu_dma_latency;  /* keep /dev/cpu_dma_latency open at 0 while running */
    const uid_t *operators;     /* who may administrate besides root and the daemon's own user */
    uint32_t operator_count;
    const struct leat_daemon_store *store; /* NULL: nothing is kept */
    json_t *topology;           /* for the topology request; borrowed */
};

/* How an application is served. Names are of loaded models; all must have one signature. */
struct leat_application_options {
    const char *name;
    const char *const *models;
    uint32_t model_count; /* 1..LEAT_SCHED_VARIANTS_MAX */
    const char *router; /* NULL: leat_router_default of the workers' classes */
    /*
     * NULL: mdp where it can decide, that is with workers of one class, a router that takes the oldest query first, an
     * objective, and models of known accuracies that differ; else leat_selector_default.
     */
    const char *selector;
    const char *policy_path; /* of selectors that follow one; NULL: made from profiles, and anew when they or the load change */
    struct leat_router_options router_options;
    uint64_t latency_ns; /* 0: none */
    bool drop_late;
    uint32_t quantile_ppm; /* to predict at, as sched/profile.h has it; 0: the default */
    uint32_t waiting_max;
};

LEAT_MUST_CHECK enum leat_status leat_daemon_create(const struct leat_daemon_options *options,
                                                    struct leat_daemon **ret_daemon);

/*
 * Loads a model and makes it callable by its own name. `persistent`: the store has it, so removing it removes it
 * there too. Slow. Before run, or on the thread that loads models.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_load_model(struct leat_daemon *daemon,
                                                        const struct leat_variant_source *source, bool persistent);

/* Before run: remembers that a model could not be loaded, for `leat model list`. Copies both texts. */
void leat_daemon_note_failure(struct leat_daemon *daemon, const char *name, const char *text);

/* Before run: an application over models loaded before. It takes the place of a model's own of that name. */
LEAT_MUST_CHECK enum leat_status leat_daemon_add_application(struct leat_daemon *daemon,
                                                             const struct leat_application_options *options);

/*
 * Serves until leat_daemon_stop; then drains for at most drain_ns, or until it is called again. LEAT_TIMEOUT when a batch
 * or a load goes on after that: its thread then needs the daemon, which must not be destroyed; the process should end.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_run(struct leat_daemon *daemon, uint64_t drain_ns);
void leat_daemon_stop(struct leat_daemon *daemon); /* async-signal-safe */
/* Has it been called? Loading then ends with the model at hand. */
bool leat_daemon_is_stopping(const struct leat_daemon *daemon);
void leat_daemon_destroy(struct leat_daemon *daemon); /* accepts NULL */

#endif /* LEAT_RUNTIME_DAEMON_H */
