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
#include "runtime/registry.h"
#include "runtime/scaling.h"
#include "runtime/server.h"
#include "runtime/topology.h"
#include "runtime/variant.h"
#include "sched/policy_table.h"

struct leat_cores;
struct leat_cpusets;
struct leat_daemon;

struct leat_daemon_worker {
    uint32_t cpus[LEAT_TEAM_MAX]; /* core_count of them, leader first */
    uint32_t core_count;          /* >= 1 */
    uint32_t cores_max;           /* that it can be given; 0: core_count */
    uint32_t node;
    uint16_t worker_class;        /* < LEAT_WORKER_CLASSES_MAX */
    bool listed;                  /* the configuration lists its CPUs */
};

/* A class of workers, for backends that tell them apart and for planning. */
struct leat_daemon_class {
    char name[32];
    uint32_t cores;       /* of one worker; 0: as those that are of it have */
    uint64_t price_micro; /* of one worker an hour, in millionths */
    uint32_t count_max;   /* that could be had; 0: as many as there are */
};

/* A model to be kept, with what is known of it. */
struct leat_daemon_addition {
    const struct leat_variant_source *source;
    const struct leat_measured *measured;
    const struct leat_registry_validation *validation; /* NULL: none */
};

/* A policy that was made for an application, and what from: leat_policy_order_key. */
struct leat_daemon_made {
    const char *application, *made_from;
    const struct leat_policy *policy;
};

/* What is to be kept, and what not any more: all of it, or nothing. What is NULL or 0 stays as it is. */
struct leat_daemon_change {
    const struct leat_daemon_addition *models;
    uint32_t model_count;
    const char *const *removed_models;
    uint32_t removed_model_count;
    const char *measured_model; /* kept before, measured again */
    const struct leat_measured *measured;
    const struct leat_registry_application *application; /* new, or in the place of that of its name */
    const char *removed_application;
    const struct leat_daemon_made *made; /* in the place of the application's one before */
    const struct leat_registry_job *job; /* new, or in the place of that of its id */
    const struct leat_registry_pipeline *pipeline; /* new */
    const char *removed_pipeline;
};

/*
 * Where models, applications, their policies, pipelines and offline jobs are kept over restarts; called on the thread that loads models, but
 * `keep` of a job alone on another too.
 */
struct leat_daemon_store {
    enum leat_status (*keep)(void *context, const struct leat_daemon_change *change);
    /* To be free()'d. LEAT_ERR_NOT_FOUND where none was kept, or it was made from something else. NULL: none ever is. */
    enum leat_status (*find_made)(void *context, const char *application, const char *made_from,
                                  struct leat_policy **ret_policy);
    /* A kept model's file, to be free()'d. LEAT_ERR_NOT_FOUND where none is kept by that name. NULL: none ever is. */
    enum leat_status (*read_model)(void *context, const char *model, void **ret_bytes, size_t *ret_count);
    /*
     * A file of weights, or a model in its first `most` bytes where that is not 0, copied: ret_file has it open, with its size and
     * hash; its name is left as it is. It is kept with models that name it or are it, else until release_files. NULL: none ever is,
     * and models use what they are given.
     */
    enum leat_status (*take_file)(void *context, int fd, uint64_t most, struct leat_variant_file *ret_file);
    void (*release_files)(void *context);
    /* Of a kept model, by the model's name for it, open for reading. */
    enum leat_status (*open_file)(void *context, const char *model, const char *name, int *ret_fd);
    void *context;
};

struct leat_daemon_options {
    struct leat_server_options server; /* socket, limits, cores; the rest is filled in by create */
    const struct leat_daemon_worker *workers;
    uint32_t worker_count; /* 1..LEAT_SCHED_WORKERS_MAX */
    const struct leat_daemon_class *classes; /* of all worker_class; NULL: they have no names and no prices */
    uint32_t class_count;     /* of classes, those that workers can become too; 0: those that they are of */
    struct leat_cores *cores; /* that workers are on and can be given; borrowed. NULL: they stay as they are */
    struct leat_cpusets *cpusets; /* that hold workers' threads; borrowed. NULL: none do */
    struct leat_scaling scaling; /* off unless there are cores that workers can be given */
    bool pin;              /* false: leave placement to the kernel */
    int dispatcher_cpu;    /* -1: unpinned */
    uint32_t worker_depth;
    uint32_t queue_capacity;
    uint64_t model_memory_bytes; /* of one model; 0: without a limit */
    uint32_t item_gflop;         /* likewise, for one item */
    uint32_t loop_iterations;    /* likewise, of all its loops in one run; 0: LEAT_TRIPS_MAX */
    uint64_t pipeline_memory_bytes; /* of what lies between stages of pipelines; a multiple of the page size, at most 2^36 */
    uint32_t offline_utilisation_ppm; /* of workers, by online queries: above it offline jobs wait */
    uint64_t spin_ns;           /* ceiling for dispatcher, workers and clients; server.cores says while what */
    bool hold_cpu_dma_latency;  /* keep /dev/cpu_dma_latency open at 0 while running */
    const uid_t *operators;     /* who may administrate besides root and the daemon's own user */
    uint32_t operator_count;
    const struct leat_daemon_store *store; /* NULL: nothing is kept */
    const char *host;           /* this machine, as leat_measured_host says; NULL: not known */
    json_t *topology;           /* for the topology request; borrowed */
};

LEAT_MUST_CHECK enum leat_status leat_daemon_create(const struct leat_daemon_options *options,
                                                    struct leat_daemon **ret_daemon);

/*
 * Before run: loads a model and makes it callable by its own name. Slow. `validation`: NULL, or what is known. `persistent`: the
 * store has it, so removing it removes it there too, and what had to be measured is kept there. Another precision than
 * f32 is refused where neither a validation nor the source's accuracy tells what it costs.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_load_model(struct leat_daemon *daemon,
                                                        const struct leat_variant_source *source,
                                                        const struct leat_registry_validation *validation,
                                                        bool persistent);

/* Before run: remembers that a model or application is not served, for the lists of them. Copies both texts. */
void leat_daemon_note_failure(struct leat_daemon *daemon, bool application, const char *name, const char *text);

/*
 * Before run: an application over models loaded before. `configured`: it cannot be changed while the daemon runs, and all its
 * models must be there. Else it is served by those of them that are, by nothing while there are none; where it cannot be, that
 * is returned and told by whoever lists it, unless something has its name.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_add_application(struct leat_daemon *daemon,
                                                             const struct leat_registry_application *application,
                                                             bool configured);

/*
 * Before run, after all applications: a pipeline that is kept. What cannot be served now is returned, told by whoever lists it, and
 * tried again whenever applications change.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_restore_pipeline(struct leat_daemon *daemon,
                                                              const struct leat_registry_pipeline *kept);
void leat_daemon_serve_pipelines(struct leat_daemon *daemon); /* once all were restored */

/* Before run: an offline job that is kept. */
LEAT_MUST_CHECK enum leat_status leat_daemon_add_job(struct leat_daemon *daemon, const struct leat_registry_job *job);

/*
 * Serves until leat_daemon_stop; then drains for at most drain_ns, or until it is called again. LEAT_TIMEOUT when a batch
 * or a load goes on after that: its thread then needs the daemon, which must not be destroyed; the process should end.
 * LEAT_ERR_LIMIT when a thread could not be started: nothing was served, and what was started before has ended.
 */
LEAT_MUST_CHECK enum leat_status leat_daemon_run(struct leat_daemon *daemon, uint64_t drain_ns);
void leat_daemon_stop(struct leat_daemon *daemon); /* async-signal-safe */
/* Has it been called? Loading then ends with the model at hand. */
bool leat_daemon_is_stopping(const struct leat_daemon *daemon);
void leat_daemon_destroy(struct leat_daemon *daemon); /* accepts NULL */

#endif /* LEAT_RUNTIME_DAEMON_H */
