/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/config_settings.h - every scalar setting, once. The raw structs that libcyaml fills, its schema, the
 * range checks, the defaults and the printing are all generated from these lines. Private to config*.c.
 *
 *     X(key, kind, field of the target struct, min, max, default text; NULL: must be given)
 */
#ifndef LEAT_RUNTIME_CONFIG_SETTINGS_H
#define LEAT_RUNTIME_CONFIG_SETTINGS_H

#include "kernels/backend.h"
#include "kernels/team.h"
#include "runtime/config.h"
#include "runtime/quota.h"
#include "runtime/session.h"
#include "runtime/worker.h"

enum leat_setting_kind {
    LEAT_SETTING_U32,
    LEAT_SETTING_POWER2, /* u32, a power of two */
    LEAT_SETTING_AUTO,   /* u32 or "auto" (LEAT_AUTO) */
    LEAT_SETTING_SIZE,   /* u64 bytes, a multiple of 4 KiB; KiB, MiB, GiB */
    LEAT_SETTING_AUTO_SIZE, /* the same, or "auto" (0) */
    LEAT_SETTING_TIME,   /* u64 ns; ns, us, ms, s */
    LEAT_SETTING_AUTO_TIME, /* the same, or "auto" (UINT64_MAX) */
    LEAT_SETTING_BOOL,
    LEAT_SETTING_LATE, /* bool: drop | serve */
    LEAT_SETTING_BURN, /* bool: burn | sleep */
    LEAT_SETTING_TEXT, /* char *, min..max bytes long */
    LEAT_SETTING_NAME, /* char[LEAT_NAME_MAX] */
    LEAT_SETTING_MODE, /* mode_t, octal */
    LEAT_SETTING_PPM,  /* u32 from a fraction 0..1 */
    LEAT_SETTING_PERCENTILE, /* u32 ppm from 50..99.9 or "mean" (LEAT_PROFILE_MEAN) */
    LEAT_SETTING_PRICE, /* u64 millionths, from a decimal number >= 0 */
    LEAT_SETTING_CPUS, /* char *, a CPU list or "" */
    LEAT_SETTING_LEVEL, /* enum leat_log_level */
    LEAT_SETTING_CGROUPS, /* enum leat_cpusets_kind */
    LEAT_SETTING_ROUTER,
    LEAT_SETTING_SELECTOR,
    LEAT_SETTING_DTYPE,   /* u32 */
    LEAT_SETTING_SCALING, /* enum leat_scaling_mode */
    LEAT_SETTING_FORECAST, /* enum leat_forecast, or off */
};

#define LEAT_SETTINGS_ROOT(X)                                                      \
    X(socket, TEXT, socket, 1, 107, "/run/leat/leat.sock")                         \
    X(state_dir, TEXT, state_dir, 1, 4000, "/var/lib/leat")                        \
    X(log_level, LEVEL, log_level, 0, 0, "info")                                   \
    X(worker_queue_depth, U32, worker_queue_depth, 1, LEAT_WORKER_BATCHES, "2")    \
    X(cgroups, CGROUPS, cgroups, 0, 0, "auto")                                     \
    X(drain, TIME, drain_ns, 0, UINT64_C(3600000000000), "45s")                    \
    X(offline_utilisation, PPM, offline_utilisation_ppm, 0, 0, "0.4")

#define LEAT_SETTINGS_ACCESS(X)                                                    \
    X(mode, MODE, access.mode, 0, 0777, "0660")                                    \
    X(group, TEXT, access.group, 0, 255, "")

#define LEAT_SETTINGS_LIMITS(X)                                                    \
    X(sessions, U32, limits.sessions, 1, LEAT_QUOTA_SESSIONS, "256")               \
    X(sessions_per_user, U32, limits.sessions_per_user, 1, LEAT_QUOTA_SESSIONS, "64") \
    X(slots_per_session, POWER2, limits.slots_per_session, 2, LEAT_SLOTS_MAX, "1024") \
    X(arena_bytes_per_session, SIZE, limits.arena_bytes_per_session, 4096,         \
      UINT64_C(1) << 37, "1GiB")                                                   \
    X(arena_default_bytes, SIZE, limits.arena_default_bytes, 4096,                 \
      UINT64_C(1) << 37, "64MiB")                                                  \
    X(session_memory, AUTO_SIZE, limits.session_memory_bytes, 1048576,             \
      UINT64_C(1) << 47, "auto")                                                   \
    X(session_memory_per_user, AUTO_SIZE, limits.session_memory_per_user_bytes,    \
      1048576, UINT64_C(1) << 47, "auto")                                          \
    X(central_queue, POWER2, limits.central_queue, 64, 1048576, "4096")            \
    X(model_memory, SIZE, limits.model_memory_bytes, 1048576, UINT64_C(1) << 47, "32GiB") \
    X(item_gflop, U32, limits.item_gflop, 1, UINT32_MAX, "1000")                   \
    X(loop_iterations, U32, limits.loop_iterations, 1, 1048576, "4096")            \
    X(pipeline_memory, SIZE, limits.pipeline_memory_bytes, 1048576, UINT64_C(1) << 36, "256MiB")

#define LEAT_SETTINGS_DISPATCHER(X)                                                \
    X(own_core, BOOL, dispatcher.own_core, 0, 0, "true")                           \
    X(cpu, AUTO, dispatcher.cpu, 0, LEAT_CPU_MAX - 1, "auto")                      \
    X(spin, AUTO_TIME, dispatcher.spin_ns, 0, 10000000, "auto")                    \
    X(hold_cpu_dma_latency, BOOL, dispatcher.hold_cpu_dma_latency, 0, 0, "false")

#define LEAT_SETTINGS_SCALING(X)                                                   \
    X(mode, SCALING, scaling.mode, 0, 0, "off")                                    \
    X(interval, TIME, scaling.interval_ns, 10000000, UINT64_C(10000000000), "100ms") \
    X(hold, TIME, scaling.hold_ns, 10000000, UINT64_C(3600000000000), "10s")       \
    X(settle, TIME, scaling.settle_ns, 10000000, UINT64_C(3600000000000), "1s")    \
    X(instance_delay, AUTO_TIME, scaling.instance_delay_ns, 0, UINT64_C(3600000000000), "auto") \
    X(forecast, FORECAST, scaling.forecast, 0, 0, "off")

#define LEAT_SETTINGS_SCALED(X)                                                    \
    X(name, NAME, name, 0, 0, NULL)                                                \
    X(weight, U32, weight, 1, 1000, "1")

#define LEAT_SETTINGS_WORKER(X)                                                    \
    X(count, AUTO, count, 1, LEAT_PLACEMENT_WORKERS_MAX, "auto")                   \
    X(cores, U32, cores, 1, LEAT_TEAM_MAX, "1")                                    \
    X(cores_max, AUTO, cores_max, 1, LEAT_TEAM_MAX, "auto")                        \
    X(cpus, CPUS, cpus, 0, 4000, "")                                               \
    X(class, TEXT, class_name, 1, 31, "cpu")

#define LEAT_SETTINGS_CLASS(X)                                                     \
    X(name, TEXT, name, 1, 31, NULL)                                               \
    X(price, PRICE, price_micro, 0, 0, "0")                                        \
    X(count_max, AUTO, count_max, 1, LEAT_PLACEMENT_WORKERS_MAX, "auto")

#define LEAT_SETTINGS_APPLICATION(X)                                               \
    X(name, NAME, name, 0, 0, NULL)                                                \
    X(router, ROUTER, router, 0, 0, "auto")                                        \
    X(threshold, AUTO, threshold_items, 1, LEAT_ITEMS_MAX, "auto")                 \
    X(selector, SELECTOR, selector, 0, 0, "auto")                                  \
    X(policy, TEXT, policy, 1, 4000, "auto")                                       \
    X(latency, TIME, latency_ns, 0, UINT64_C(3600000000000), "0")                  \
    X(late, LATE, drop_late, 0, 0, "drop")                                         \
    X(percentile, PERCENTILE, quantile_ppm, 0, 0, "95")                            \
    X(queue, U32, queue, 1, 1048576, "1024")

#define LEAT_SETTINGS_BACKEND(X)                                                   \
    X(name, NAME, name, 0, 0, NULL)                                                \
    X(path, TEXT, path, 1, 4000, NULL)                                             \
    X(options, TEXT, options, 0, 4000, "")

#define LEAT_SETTINGS_MODEL(X)                                                     \
    X(name, NAME, name, 0, 0, NULL)                                                \
    X(path, TEXT, path, 0, 4000, "")                                               \
    X(backend, TEXT, backend, 1, LEAT_BACKEND_NAME_MAX - 1, "cpu")                 \
    X(items_max, U32, items_max, 1, LEAT_ITEMS_MAX, "8")                           \
    X(accuracy, PPM, accuracy_ppm, 0, 0, "0")

#define LEAT_SETTINGS_SYNTHETIC(X)                                                 \
    X(latency, TIME, synthetic_latency_ns, 0, UINT64_C(60000000000), "1ms")        \
    X(per_item, TIME, synthetic_per_item_ns, 0, UINT64_C(60000000000), "0")        \
    X(parallel, TIME, synthetic_parallel_ns, 0, UINT64_C(60000000000), "0")        \
    X(parallel_per_item, TIME, synthetic_parallel_per_item_ns, 0, UINT64_C(60000000000), "0") \
    X(mode, BURN, synthetic_burn, 0, 0, "sleep")                                   \
    X(times, TEXT, synthetic_times, 0, 4000, "")                                   \
    X(times_model, TEXT, synthetic_times_model, 0, 63, "")                         \
    X(seed, U32, synthetic_seed, 0, UINT32_MAX, "1")

#define LEAT_SETTINGS_TENSOR(X)                                                    \
    X(name, NAME, name, 0, 0, NULL)                                                \
    X(dtype, DTYPE, dtype, 0, 0, "f32")

/* What libcyaml fills: the text of each scalar, NULL where it was not given. */
#define LEAT_RAW_FIELD(key, kind, field, min, max, fallback) char *key;

struct leat_raw_access {
    LEAT_SETTINGS_ACCESS(LEAT_RAW_FIELD)
    char **operators;
    uint32_t operators_count;
};

struct leat_raw_limits {
    LEAT_SETTINGS_LIMITS(LEAT_RAW_FIELD)
};

struct leat_raw_dispatcher {
    LEAT_SETTINGS_DISPATCHER(LEAT_RAW_FIELD)
};

struct leat_raw_scaled {
    LEAT_SETTINGS_SCALED(LEAT_RAW_FIELD)
};

struct leat_raw_scaling {
    LEAT_SETTINGS_SCALING(LEAT_RAW_FIELD)
    struct leat_raw_scaled *applications;
    uint32_t applications_count;
};

struct leat_raw_worker {
    LEAT_SETTINGS_WORKER(LEAT_RAW_FIELD)
};

struct leat_raw_class {
    LEAT_SETTINGS_CLASS(LEAT_RAW_FIELD)
};

struct leat_raw_application {
    LEAT_SETTINGS_APPLICATION(LEAT_RAW_FIELD)
    char **models;
    uint32_t models_count;
};

struct leat_raw_backend {
    LEAT_SETTINGS_BACKEND(LEAT_RAW_FIELD)
};

struct leat_raw_tensor {
    LEAT_SETTINGS_TENSOR(LEAT_RAW_FIELD)
    char **dims;
    uint32_t dims_count;
};

struct leat_raw_synthetic {
    LEAT_SETTINGS_SYNTHETIC(LEAT_RAW_FIELD)
    struct leat_raw_tensor *inputs, *outputs;
    uint32_t inputs_count, outputs_count;
};

struct leat_raw_model {
    LEAT_SETTINGS_MODEL(LEAT_RAW_FIELD)
    char **dims; /* "NAME=N" */
    uint32_t dims_count;
    char **constants; /* "INPUT=NUMBER" */
    uint32_t constants_count;
    struct leat_raw_synthetic *synthetic;
};

struct leat_raw_config {
    LEAT_SETTINGS_ROOT(LEAT_RAW_FIELD)
    struct leat_raw_access access;
    struct leat_raw_limits limits;
    struct leat_raw_dispatcher dispatcher;
    struct leat_raw_scaling scaling;
    struct leat_raw_class *classes;
    struct leat_raw_worker *workers;
    struct leat_raw_backend *backends;
    struct leat_raw_application *applications;
    struct leat_raw_model *models;
    uint32_t classes_count, workers_count, backends_count, applications_count, models_count;
};

struct leat_setting {
    const char *key;
    enum leat_setting_kind kind;
    size_t raw;    /* of the char * in the raw struct */
    size_t target; /* in the struct of runtime/config.h */
    uint64_t min, max;
    const char *fallback;
};

struct leat_setting_table {
    const struct leat_setting *settings;
    uint32_t count;
};

extern const struct leat_setting_table leat_settings_root, leat_settings_access, leat_settings_limits,
    leat_settings_dispatcher, leat_settings_scaling, leat_settings_scaled, leat_settings_class, leat_settings_worker,
    leat_settings_backend, leat_settings_application, leat_settings_model, leat_settings_synthetic, leat_settings_tensor;

#define LEAT_SETTING_TEXT_BYTES 4200

/*
 * Puts `text` into the setting's field of `target`. False with what is wrong and what is allowed in `problem`
 * (LEAT_SETTING_TEXT_BYTES); the field is untouched then. A string field is replaced and its old one freed.
 */
bool leat_setting_read(const struct leat_setting *setting, const char *text, void *target, char *problem);

/* The field's value as read() would take it. */
void leat_setting_write(const struct leat_setting *setting, const void *target, char *text, size_t bytes);

/* Does the field hold the default? */
bool leat_setting_is_default(const struct leat_setting *setting, const void *target);

bool leat_name_is_valid(const char *name);

#endif /* LEAT_RUNTIME_CONFIG_SETTINGS_H */
