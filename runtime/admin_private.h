/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/admin_private.h - what the parts of the administrative requests share. Private to admin*.c. */
#ifndef LEAT_RUNTIME_ADMIN_PRIVATE_H
#define LEAT_RUNTIME_ADMIN_PRIVATE_H

#include "runtime/daemon_private.h"
#include "runtime/json_text.h"
#include "runtime/validation.h"

/* The answer to what was not done, with the text of the error. */
json_t *leat_admin_refusal(enum leat_status status);

/* Percent, or "mean". */
json_t *leat_admin_percentile(uint32_t quantile_ppm);

/* What its selector follows, or null. Mutex held. */
json_t *leat_admin_policy(const struct leat_application *app);

/*
 * How many instances of a model are in each state as they serve the application: {"inactive": 0, ... "interfered": 0}. Not
 * loaded, or being so, are those of a model that it is not served by yet. NULL: it is not served at all. Mutex held.
 */
json_t *leat_admin_instances(const struct leat_daemon *daemon, const struct leat_application *app, const char *model);

/* The workers on which the application has that model in that state: numbers, rising. Mutex held. */
json_t *leat_admin_workers_in(const struct leat_application *app, const char *model, enum leat_instance_state state);

/* May a model or application be called that? */
bool leat_admin_name_is_good(const char *name);

/* ---- runtime/admin_models.c --------------------------------------------------------------------- */

json_t *leat_admin_model_list(struct leat_daemon *daemon);
/* Inputs and outputs, one object each. */
json_t *leat_admin_describe_tensors(const struct leat_target *target);
/*
 * Adds "precision", "items_bound", why its largest batch is not larger, and "dims" and "constants", where free dimensions and inputs
 * were given values.
 */
/* Adds "file_bytes", of all files beside the model's own, where it has some, and with `each` "files". */
void leat_admin_describe_files(const struct leat_daemon_model *model, bool each, json_t *object);
void leat_admin_describe_choices(const struct leat_variant *variant, json_t *object);
/* Does it add, measure or remove a model? */
bool leat_admin_changes_model(const char *op);
/* Descriptors stay the caller's. */
json_t *leat_admin_change_model(struct leat_daemon *daemon, const char *op, const json_t *request, const int *fds,
                                uint32_t fd_count);

/* ---- runtime/admin_variants.c ------------------------------------------------------------------- */

/* What is to be made of a model. */
struct leat_admin_order {
    struct leat_variant_source source;
    bool items_auto; /* its items_max is chosen */
    bool variants;   /* one in each precision that its backend has here, not one as its options say */
    uint32_t max_loss_ppm; /* of accuracy, by another precision than the file's */
    const struct leat_validation_set *set;         /* NULL: accuracy is as the source says; f32 may leave it open */
    struct leat_registry_application *application; /* they join it; NULL: none */
};

/*
 * Loads, measures, validates, serves and keeps them, all or none. The names of those that are served are added to `names`;
 * {"name", "precision", "accuracy_ppm", "reason"} of each that was not worth it to `left_out`, without an accuracy where none was made.
 */
LEAT_MUST_CHECK enum leat_status leat_admin_add_variants(struct leat_daemon *daemon, const struct leat_admin_order *order,
                                                         json_t *names, json_t *left_out);

/* ---- runtime/admin_applications.c --------------------------------------------------------------- */

/* Into the regular file that came with a request, from its beginning. */
LEAT_MUST_CHECK enum leat_status leat_admin_write_file(const void *bytes, size_t count, int fd);

json_t *leat_admin_app_list(struct leat_daemon *daemon);
json_t *leat_admin_app_show(struct leat_daemon *daemon, const json_t *request);
/* A model, as an application's variant is described, with all that was measured of it. */
json_t *leat_admin_model_show(struct leat_daemon *daemon, const json_t *request);
json_t *leat_admin_app_profiles(struct leat_daemon *daemon, const json_t *request);
/* Does it add, change or remove an application? */
bool leat_admin_changes_application(const char *op);
json_t *leat_admin_change_application(struct leat_daemon *daemon, const char *op, const json_t *request, int fd);

/* ---- runtime/admin_offline.c -------------------------------------------------------------------- */

json_t *leat_admin_offline(struct leat_daemon *daemon, const char *op, const struct leat_admin_job *job);
/* Does it change an offline job? */
bool leat_admin_changes_offline(const char *op);

/* ---- runtime/admin_pipelines.c ------------------------------------------------------------------ */

/* Of all in service, with what their stages take; mutex held. */
json_t *leat_admin_pipelines_status(const struct leat_daemon *daemon);
json_t *leat_admin_pipeline_list(struct leat_daemon *daemon);
json_t *leat_admin_pipeline_show(struct leat_daemon *daemon, const json_t *request);
/* Does it add or remove a pipeline? */
bool leat_admin_changes_pipeline(const char *op);
json_t *leat_admin_change_pipeline(struct leat_daemon *daemon, const char *op, const json_t *request);

/* ---- runtime/admin_import.c --------------------------------------------------------------------- */

/* Loads the synthetic models that the file lists and serves them as the application, which is new. */
LEAT_MUST_CHECK enum leat_status leat_admin_import(struct leat_daemon *daemon,
                                                   struct leat_registry_application *application, int fd);

/* ---- runtime/admin_scale.c ---------------------------------------------------------------------- */

/* What was discovered at the start, and what holds threads now; the caller's. */
json_t *leat_admin_topology(const struct leat_daemon *daemon);
json_t *leat_admin_scale_show(struct leat_daemon *daemon);

/* ---- runtime/admin.c, for the others ------------------------------------------------------------ */

/* Frees the job, and takes the answer over. */
void leat_admin_answer(struct leat_admin_job *job, json_t *answer);

/* ---- runtime/admin_applications.c, for the others ----------------------------------------------- */

/* One that there is and that may be changed. Its policy_table stays the daemon's, until the application is put or removed. */
LEAT_MUST_CHECK enum leat_status leat_admin_get_application(struct leat_daemon *daemon, const char *name,
                                                            struct leat_registry_application *ret_application);
/* Puts a model that is loaded at the end of the list. */
LEAT_MUST_CHECK enum leat_status leat_admin_add_member(struct leat_daemon *daemon,
                                                       struct leat_registry_application *application, const char *model);

#endif /* LEAT_RUNTIME_ADMIN_PRIVATE_H */
