/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/registry.h - the durable list of models, with their files and profiles, of applications, pipelines and offline jobs.
 *
 * Role       state_dir/registry.db (SQLite) says which models and applications exist, and has their policies;
 *            state_dir/models/<sha256> holds each model's content once. A call that returned LEAT_OK survives SIGKILL and
 *            power loss; one that did not return leaves all or nothing, and no half-made file after the next open. Calls
 *            between begin and commit are one.
 * Order      A file is complete, synced and under its final name before the row that names it is committed; a row
 *            is gone before its file is. open() removes files that no row names.
 * Lifecycle  One process at a time: open() holds a lock on state_dir/lock until close() or death.
 * Threads    One thread at a time.
 */
#ifndef LEAT_RUNTIME_REGISTRY_H
#define LEAT_RUNTIME_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"
#include "runtime/measured.h"
#include "sched/policy.h"

/* 1 had models only, 2 no policies, 3 one file to a model, 4 no lengths, 5 no offline jobs, 6 no pipelines: open() adds the rest. */
#define LEAT_REGISTRY_SCHEMA 7u

struct leat_registry;

/* One that a model's data lie in beside its own. */
struct leat_registry_file {
    char *name; /* as the model calls it */
    char sha256[65];
    uint64_t bytes;
};

struct leat_registry_model {
    char name[LEAT_NAME_MAX];
    char backend[32];
    char sha256[65];       /* of the file, hexadecimal; "" without one */
    uint64_t bytes;        /* of the file; 0 without one */
    uint32_t items_max;
    uint32_t accuracy_ppm; /* 0: unknown */
    uint64_t created_s;    /* since the Epoch */
    char *options_json;    /* NULL: none */
    struct leat_registry_file *files; /* by name; NULL: none */
    uint32_t file_count;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX]; /* inputs, then outputs; only where there is no file */
    uint32_t input_count, output_count;
};

struct leat_registry_application {
    char name[LEAT_NAME_MAX];
    char router[32], selector[32]; /* "": the default of the workers */
    char policy[4096];             /* file, for selectors that follow one; "": made from profiles */
    void *policy_table;            /* what was in the file, unchecked; NULL: nothing, or schema 2 kept only its name */
    size_t policy_bytes;           /* of policy_table */
    uint32_t threshold_items;      /* of router threshold; 0: its default */
    uint64_t latency_ns;           /* objective; 0: none */
    bool drop_late;
    uint32_t quantile_ppm; /* to predict at; as sched/profile.h has it */
    uint32_t queue;        /* waiting queries at most */
    uint32_t model_count;
    char models[LEAT_SCHED_VARIANTS_MAX][LEAT_NAME_MAX]; /* by place; they need not be in the registry */
};

/* How a model answered a set: its accuracy, or, without labels, its agreement with f32; see runtime/validation.h. */
struct leat_registry_validation {
    char inputs_sha256[65]; /* of the data; of several inputs, of their digests in the model's order */
    char labels_sha256[65]; /* likewise; "": there were none, it is an agreement */
    uint64_t samples;
    uint32_t accuracy_ppm; /* or agreement */
    uint64_t measured_s; /* since the Epoch */
};

/* Open at the most: state, models, lock; the database with its log, index and a temporary file; two files of models. */
#define LEAT_REGISTRY_DESCRIPTORS (3u + 4u + 2u)

#define LEAT_REGISTRY_PATH_BYTES 4096u
#define LEAT_REGISTRY_JOBS_KEPT  256u /* of those that have ended, the newest */

enum leat_registry_job_state { LEAT_REGISTRY_JOB_ACTIVE, LEAT_REGISTRY_JOB_DONE, LEAT_REGISTRY_JOB_CANCELLED };

/* A folder of items for an application, and one for the answers: runtime/offline.h. */
struct leat_registry_job {
    uint64_t id;        /* 1.. */
    uint32_t owner_uid; /* whose folders these are */
    uint32_t state;     /* enum leat_registry_job_state */
    char application[LEAT_NAME_MAX];
    char input[LEAT_REGISTRY_PATH_BYTES], output[LEAT_REGISTRY_PATH_BYTES]; /* from the root */
    uint64_t input_device, input_inode, output_device, output_inode; /* which folders these paths led to */
    uint32_t accuracy_floor_ppm;                                     /* 0: any */
    uint64_t created_s;                                              /* since the Epoch */
    uint64_t items, answered, failed;                                /* when it ended */
};

/* As it was described, unchecked: runtime/pipeline_spec.h reads it. */
struct leat_registry_pipeline {
    char name[LEAT_NAME_MAX];
    char *description; /* JSON */
};

/*
 * Makes state_dir if it is missing (its parent must exist). LEAT_ERR_BUSY when another process has it,
 * LEAT_ERR_VERSION when a newer leat wrote it, LEAT_ERR_PROTO when it is damaged.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_open(const char *state_dir, struct leat_registry **ret_registry);
void leat_registry_close(struct leat_registry *registry); /* accepts NULL */

/*
 * Copies a file that models have data in, or its first `most` bytes where that is not 0: the registry then has it until
 * leat_registry_release_files(), or as long as a model names it, or is it. Takes as long as it takes to read and write it, and little
 * memory. LEAT_ERR_PROTO where it has fewer bytes. `name` of ret_file is left as it is; *ret_fd is the
 * copy, open for reading.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_take_file(struct leat_registry *registry, int fd, uint64_t most,
                                                         struct leat_registry_file *ret_file, int *ret_fd);
void leat_registry_release_files(struct leat_registry *registry);
/* Open for reading, once its contents were checked as by leat_registry_read(). */
LEAT_MUST_CHECK enum leat_status leat_registry_open_file(struct leat_registry *registry, const struct leat_registry_file *file,
                                                         int *ret_fd);

/* All of one file into another that is empty, or its first `most` bytes where that is not 0, holes and all. */
LEAT_MUST_CHECK enum leat_status leat_registry_copy_file(int from, int to, uint64_t most, uint64_t *ret_bytes);

/*
 * Adds a model with its file's contents, or (NULL, 0) without a file, and with files that were taken. `model` may have the sha256
 * of its own where that was taken: it is not read once more then. LEAT_ERR_EXISTS when the name is taken.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_add(struct leat_registry *registry,
                                                   const struct leat_registry_model *model, const void *data,
                                                   size_t bytes);

/* With its profile and validation. LEAT_ERR_NOT_FOUND when there is none of that name. */
LEAT_MUST_CHECK enum leat_status leat_registry_remove(struct leat_registry *registry, const char *name);

/* All models, by name; leat_registry_list_free. */
LEAT_MUST_CHECK enum leat_status leat_registry_list(struct leat_registry *registry,
                                                    struct leat_registry_model **ret_models, uint32_t *ret_count);
/*
 * The same without opening the registry, which another process may have; nothing is made or changed. None when there is no
 * registry yet.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_peek(const char *state_dir, struct leat_registry_model **ret_models,
                                                    uint32_t *ret_count);
void leat_registry_list_free(struct leat_registry_model *models, uint32_t count); /* accepts NULL */

/* LEAT_ERR_NOT_FOUND when there is none. The caller calls leat_registry_free_model. */
LEAT_MUST_CHECK enum leat_status leat_registry_get(struct leat_registry *registry, const char *name,
                                                   struct leat_registry_model *ret_model);
void leat_registry_free_model(struct leat_registry_model *model); /* what it points to */

/*
 * The file's contents, checked against its SHA-256, to be freed. LEAT_ERR_PROTO when the disk has something
 * else, LEAT_ERR_NOT_FOUND when the file is gone.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_read(struct leat_registry *registry,
                                                    const struct leat_registry_model *model, void **ret_data);
/* The same, open for reading; it has a file. */
LEAT_MUST_CHECK enum leat_status leat_registry_open_model(struct leat_registry *registry,
                                                          const struct leat_registry_model *model, int *ret_fd);

/* What was measured of a model of the registry, in place of what was. The points' (class, cores, length, items) differ. */
LEAT_MUST_CHECK enum leat_status leat_registry_put_measured(struct leat_registry *registry, const char *model,
                                                            const struct leat_measured *measured);
/* LEAT_ERR_NOT_FOUND when nothing was. The caller frees it. */
LEAT_MUST_CHECK enum leat_status leat_registry_get_measured(struct leat_registry *registry, const char *model,
                                                            struct leat_measured *ret_measured);
/* Likewise. */
LEAT_MUST_CHECK enum leat_status leat_registry_put_validation(struct leat_registry *registry, const char *model,
                                                              const struct leat_registry_validation *validation);
LEAT_MUST_CHECK enum leat_status leat_registry_get_validation(struct leat_registry *registry, const char *model,
                                                              struct leat_registry_validation *ret_validation);

/* Adds an application, or puts it in the place of that of its name. Its models differ. */
LEAT_MUST_CHECK enum leat_status leat_registry_put_application(struct leat_registry *registry,
                                                               const struct leat_registry_application *application);
/* LEAT_ERR_NOT_FOUND when there is none of that name. */
LEAT_MUST_CHECK enum leat_status leat_registry_remove_application(struct leat_registry *registry, const char *name);
/* All, by name; leat_registry_free_applications. */
LEAT_MUST_CHECK enum leat_status leat_registry_list_applications(struct leat_registry *registry,
                                                                 struct leat_registry_application **ret_applications,
                                                                 uint32_t *ret_count);
void leat_registry_free_applications(struct leat_registry_application *applications, uint32_t count); /* accepts NULL */

/* The policy that was made for an application, which need not be in the registry, in place of the one before. */
LEAT_MUST_CHECK enum leat_status leat_registry_put_made(struct leat_registry *registry, const char *application,
                                                        const char *made_from, const void *policy, size_t bytes);
/* Unchecked bytes, to be freed. LEAT_ERR_NOT_FOUND when there is none, or it was made from something else. */
LEAT_MUST_CHECK enum leat_status leat_registry_get_made(struct leat_registry *registry, const char *application,
                                                        const char *made_from, void **ret_policy, size_t *ret_bytes);
/* Forgets those of applications that are neither in the registry nor among these. */
LEAT_MUST_CHECK enum leat_status leat_registry_prune_made(struct leat_registry *registry, const char *const *applications,
                                                          uint32_t count);

/* Adds a job, or puts it in the place of that of its id. Of those that have ended only the newest stay. */
LEAT_MUST_CHECK enum leat_status leat_registry_put_job(struct leat_registry *registry, const struct leat_registry_job *job);
/* All, by id; to be free()'d. */
LEAT_MUST_CHECK enum leat_status leat_registry_list_jobs(struct leat_registry *registry, struct leat_registry_job **ret_jobs,
                                                         uint32_t *ret_count);

/* LEAT_ERR_EXISTS when the name is taken. */
LEAT_MUST_CHECK enum leat_status leat_registry_add_pipeline(struct leat_registry *registry,
                                                            const struct leat_registry_pipeline *pipeline);
/* LEAT_ERR_NOT_FOUND when there is none of that name. */
LEAT_MUST_CHECK enum leat_status leat_registry_remove_pipeline(struct leat_registry *registry, const char *name);
/* All, by name; leat_registry_free_pipelines. */
LEAT_MUST_CHECK enum leat_status leat_registry_list_pipelines(struct leat_registry *registry,
                                                              struct leat_registry_pipeline **ret_pipelines, uint32_t *ret_count);
void leat_registry_free_pipelines(struct leat_registry_pipeline *pipelines, uint32_t count); /* accepts NULL */

/* Whatever is changed between begin and commit is, or none of it is. Everything between begin and rollback was not. */
LEAT_MUST_CHECK enum leat_status leat_registry_begin(struct leat_registry *registry);
LEAT_MUST_CHECK enum leat_status leat_registry_commit(struct leat_registry *registry); /* on failure rolled back */
void leat_registry_rollback(struct leat_registry *registry);

/*
 * Called before and after each step that changes the disk, those of offline jobs in their folders too, with a number that
 * counts up from 1 in each process; NULL outside tests, which kill the process there.
 */
extern void (*leat_registry_step_hook)(unsigned step);

#endif /* LEAT_RUNTIME_REGISTRY_H */
