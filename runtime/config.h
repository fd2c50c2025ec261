/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/config.h - the daemon's configuration: one YAML file, every setting with a default.
 *
 * Role       load() reads a file or says with file:line:column what is wrong in it and what is allowed. What is
 *            never given has the default that tools/packaging/leat.yaml documents.
 *            What only the machine and the registry show is checked by check(), before serving and for
 *            --check-config alike.
 * Ownership  A config owns its strings and arrays until free(). It does not change after loading.
 * Trust      The file may hold any bytes: wrong ones get LEAT_ERR_CONFIG.
 */
#ifndef LEAT_RUNTIME_CONFIG_H
#define LEAT_RUNTIME_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <leat/tensor.h>

#include "runtime/cpuset.h"
#include "runtime/log.h"
#include "runtime/scaling.h"
#include "runtime/topology.h"
#include "sched/policy.h"

#define LEAT_CONFIG_SPIN_AUTO UINT64_MAX

struct leat_config_model {
    char name[LEAT_NAME_MAX];
    char *path;              /* ONNX file; "" for synthetic */
    char *backend;           /* "cpu", "reference", "synthetic" or one of `backends` */
    uint32_t items_max;      /* largest batch */
    uint32_t accuracy_ppm;   /* 0: unknown */
    char *options_json;      /* for the backend, or {"dims": {name: value}, "constants": {input: number}} of a file; NULL for none */
    uint64_t synthetic_latency_ns, synthetic_per_item_ns; /* what options_json says */
    uint64_t synthetic_parallel_ns, synthetic_parallel_per_item_ns;
    bool synthetic_burn;
    char *synthetic_times, *synthetic_times_model; /* CSV file of times by worker class, and which rows of it; or "" */
    uint32_t synthetic_seed;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX]; /* synthetic only: inputs, then outputs */
    uint32_t input_count, output_count;
};

/* A plug-in: see leat/backend.h. */
struct leat_config_backend {
    char name[LEAT_NAME_MAX];
    char *path;    /* of the shared library */
    char *options; /* for the plug-in; "": none */
};

/* A kind of worker. */
struct leat_config_class {
    char *name;
    uint64_t price_micro; /* of one worker an hour, in millionths of whatever prices are in */
    uint32_t count_max;   /* that could be had; LEAT_AUTO: as many as there are */
};

struct leat_config_application {
    char name[LEAT_NAME_MAX];
    char (*models)[LEAT_NAME_MAX]; /* from `models` or the registry */
    uint32_t model_count;          /* >= 1 */
    const struct leat_router *router; /* NULL: leat_router_default */
    uint32_t threshold_items;         /* for router threshold; LEAT_AUTO: its own default */
    const struct leat_selector *selector; /* NULL: leat_daemon_add_application chooses */
    char *policy; /* file for selectors that follow one; "auto": made from profiles */
    uint64_t latency_ns; /* 0: none */
    bool drop_late;
    uint32_t quantile_ppm; /* to predict at; LEAT_PROFILE_MEAN: the mean */
    uint32_t queue; /* waiting queries at most */
};

struct leat_config {
    char *file; /* where it came from; NULL: defaults */
    struct {    /* what was read, so that what is found wrong later has a place */
        char *name, *bytes;
        size_t size;
    } source;
    char *socket;
    char *state_dir;
    enum leat_log_level log_level;
    struct {
        mode_t mode;
        char *group; /* "": leave the socket's group as it is */
        gid_t gid;   /* (gid_t)-1 for "" */
        uid_t *operators; /* who may administrate besides root and the daemon's own user */
        uint32_t operator_count;
    } access;
    struct {
        uint32_t sessions, sessions_per_user;
        uint32_t slots_per_session; /* power of two */
        uint64_t arena_bytes_per_session, arena_default_bytes;
        uint64_t session_memory_bytes, session_memory_per_user_bytes; /* 0: by the machine's, see leat_config_memory */
        uint32_t central_queue; /* power of two */
        uint64_t model_memory_bytes;
        uint32_t item_gflop; /* of one model, for one item */
        uint32_t loop_iterations; /* of one model, all its loops together in a run */
        uint64_t pipeline_memory_bytes; /* of what lies between stages, all pipelines together */
    } limits;
    struct {
        bool own_core;
        uint32_t cpu; /* LEAT_AUTO: by topology */
        uint64_t spin_ns; /* LEAT_CONFIG_SPIN_AUTO: while every thread that spins has a core */
        bool hold_cpu_dma_latency;
    } dispatcher;
    struct leat_scaling scaling;
    struct leat_config_class *classes; /* none: workers' classes are what workers call them, at no price */
    uint32_t class_count;              /* 0..LEAT_PLACEMENT_CLASSES_MAX */
    struct leat_worker_group *workers; /* for leat_placement_request */
    uint32_t worker_group_count;       /* >= 1 */
    uint32_t worker_queue_depth;
    enum leat_cpusets_kind cgroups; /* that hold workers' threads to their CPUs */
    uint64_t drain_ns; /* from SIGTERM on, what was accepted is answered for so long */
    uint32_t offline_utilisation_ppm; /* of workers, by online queries: above it offline jobs wait */
    struct leat_config_backend *backends; /* in the order in which they are loaded */
    uint32_t backend_count;               /* 0..LEAT_BACKENDS_LOADED */
    struct leat_config_application *applications;
    uint32_t application_count;
    struct leat_config_model *models;
    uint32_t model_count;
};

/* LEAT_ERR_CONFIG, LEAT_ERR_SYS (cannot be read) or LEAT_ERR_NOMEM; the text begins with the place. */
LEAT_MUST_CHECK enum leat_status leat_config_load(const char *path, struct leat_config **ret_config);
/* The same from memory; `name` stands for the file in messages. At most LEAT_CONFIG_BYTES_MAX. */
LEAT_MUST_CHECK enum leat_status leat_config_parse(const char *name, const void *yaml, size_t bytes,
                                                   struct leat_config **ret_config);
#define LEAT_CONFIG_BYTES_MAX (1u << 20)

/* The class of that name; NULL when the configuration has none. */
const struct leat_config_class *leat_config_find_class(const struct leat_config *config, const char *name);

LEAT_MUST_CHECK enum leat_status leat_config_default(struct leat_config **ret_config);
void leat_config_free(struct leat_config *config); /* accepts NULL */

/* The limits of session memory, with "auto" filled in for a machine of `machine_bytes`. */
void leat_config_memory(const struct leat_config *config, uint64_t machine_bytes, uint64_t *ret_bytes,
                        uint64_t *ret_bytes_per_user);

/*
 * Can it be served here: backends, model files, times, names that refer to models, CPUs? Errors read as load()'s. The placement
 * that was found for it is the caller's; backends are loaded then, once in a process.
 */
LEAT_MUST_CHECK enum leat_status leat_config_check(const struct leat_config *config,
                                                   const struct leat_topology *topology,
                                                   struct leat_placement **ret_placement);

/* How many workers of the class there are. */
uint32_t leat_config_class_workers(const struct leat_config_class *class, const struct leat_placement *placement);

/*
 * Puts the place in the file before a recorded error whose text begins with the path of a setting, as in
 * "models[1].path: what is wrong". Returns `status`.
 */
enum leat_status leat_config_place(const struct leat_config *config, enum leat_status status) LEAT_COLD;

/*
 * What is in force. YAML that load() reads back to the same config, with "# default" behind what equals the
 * default; or one JSON object, {"settings": {...}, "defaults": ["limits.sessions", ...]}, numbers in
 * base units that the keys name. What follows from the workers' classes is said where there is a placement, not NULL.
 */
void leat_config_print(const struct leat_config *config, const struct leat_placement *placement, FILE *out, bool json);

#endif /* LEAT_RUNTIME_CONFIG_H */
