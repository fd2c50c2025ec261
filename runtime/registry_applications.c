/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's applications, what is known of its models: profiles and validations, offline jobs and pipelines. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/registry_private.h"

/* ---- Statements --------------------------------------------------------------------------------- */

/* One value of a row or condition: a text where that is not NULL, else bytes where those are not, else a number. */
struct value {
    const char *text;
    const void *bytes;
    size_t size; /* of the bytes */
    int64_t number;
};

static bool
bind_values(sqlite3_stmt *statement, const struct value *values, int count)
{
    for (int v = 0; v < count; v++) {
        const struct value *value = &values[v];
        const int code = value->text != NULL    ? sqlite3_bind_text(statement, v + 1, value->text, -1, SQLITE_STATIC)
                         : value->bytes != NULL ? sqlite3_bind_blob64(statement, v + 1, value->bytes, value->size, SQLITE_STATIC)
                                                : sqlite3_bind_int64(statement, v + 1, value->number);
        if (code != SQLITE_OK) {
            return false;
        }
    }
    return true;
}

/* Runs a statement that has no rows. */
static enum leat_status
change(const struct leat_registry *registry, const char *sql, const struct value *values, int count, const char *what)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_OK;

    if (sqlite3_prepare_v2(registry->db, sql, -1, &statement, NULL) != SQLITE_OK || !bind_values(statement, values, count)) {
        status = leat_registry_fail(registry, what);
    } else {
        leat_registry_step();
        const int code = sqlite3_step(statement);
        leat_registry_step();
        status = code == SQLITE_DONE ? LEAT_OK : leat_registry_fail(registry, what);
    }
    (void)sqlite3_finalize(statement);
    return status;
}

/* Calls read() with each row until one fails. LEAT_ERR_NOT_FOUND when there is none. */
static enum leat_status
look_up_by(const struct leat_registry *registry, const char *sql, const struct value *values, int count,
           enum leat_status (*read)(const struct leat_registry *registry, sqlite3_stmt *row, void *context), void *context)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_ERR_NOT_FOUND;
    int code = SQLITE_ERROR;

    if (sqlite3_prepare_v2(registry->db, sql, -1, &statement, NULL) == SQLITE_OK &&
        bind_values(statement, values, count)) {
        while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
            status = read(registry, statement, context);
            if (status != LEAT_OK) {
                break;
            }
        }
    }
    if (code != SQLITE_DONE && code != SQLITE_ROW) {
        status = leat_registry_fail(registry, "reading");
    }
    (void)sqlite3_finalize(statement);
    return status;
}

/* The same with one condition, or none. */
static enum leat_status
look_up(const struct leat_registry *registry, const char *sql, const char *name,
        enum leat_status (*read)(const struct leat_registry *registry, sqlite3_stmt *row, void *context), void *context)
{
    const struct value value = {.text = name};
    return look_up_by(registry, sql, &value, name != NULL, read, context);
}

/* A copy of the bytes, NULL where there are none. */
static enum leat_status
read_bytes(sqlite3_stmt *row, int column, void **ret_bytes, size_t *ret_size)
{
    const void *bytes = sqlite3_column_blob(row, column);
    const size_t size = (size_t)sqlite3_column_bytes(row, column);
    void *copy = NULL;

    if (size > 0) {
        copy = bytes != NULL ? malloc(size) : NULL;
        if (copy == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a policy of %zu bytes", size);
        }
        memcpy(copy, bytes, size);
    }
    *ret_bytes = copy;
    *ret_size = size;
    return LEAT_OK;
}

static bool
read_text(sqlite3_stmt *row, int column, char *to, size_t bytes)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    if (text == NULL || strlen(text) >= bytes) {
        return false;
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* False when the number is not in 0..max. */
static bool
read_u64(sqlite3_stmt *row, int column, uint64_t max, uint64_t *ret)
{
    const int64_t number = sqlite3_column_int64(row, column);
    *ret = (uint64_t)number;
    return number >= 0 && (uint64_t)number <= max;
}

static bool
read_u32(sqlite3_stmt *row, int column, uint32_t max, uint32_t *ret)
{
    uint64_t number;
    const bool good = read_u64(row, column, max, &number);
    *ret = (uint32_t)number;
    return good;
}

static enum leat_status
nonsense(const struct leat_registry *registry, const char *what)
{
    return LEAT_FAIL(LEAT_ERR_PROTO, "%s/registry.db: %s makes no sense", registry->files.state_dir, what);
}

/* Statements between this and release() are one change, of its own or of the one between begin and commit. */
static enum leat_status
save(const struct leat_registry *registry)
{
    return leat_registry_execute(registry, "SAVEPOINT change", "beginning a change");
}

/* Returns `status`, or why it could not be kept. */
static enum leat_status
release(const struct leat_registry *registry, enum leat_status status)
{
    if (status == LEAT_OK) {
        leat_registry_step();
        status = leat_registry_execute(registry, "RELEASE change", "committing a change");
        leat_registry_step();
    }
    if (status != LEAT_OK) { /* an error here: SQLite has done it already */
        (void)sqlite3_exec(registry->db, "ROLLBACK TO change; RELEASE change", NULL, NULL, NULL);
    }
    return status;
}

/* ---- Profiles ----------------------------------------------------------------------------------- */

static enum leat_status
insert_points(const struct leat_registry *registry, const char *model, const struct leat_measured *measured)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t p = 0; p < measured->count && status == LEAT_OK; p++) {
        const struct leat_measured_point *point = &measured->points[p];
        const struct value values[] = {{.text = model},
                                       {.text = point->worker_class},
                                       {.number = point->cores},
                                       {.number = point->items},
                                       {.number = point->runs},
                                       {.number = (int64_t)point->mean_ns},
                                       {.number = (int64_t)point->p50_ns},
                                       {.number = (int64_t)point->p95_ns},
                                       {.number = (int64_t)point->p99_ns},
                                       {.number = point->length}};
        status = point->length == 0
                     ? change(registry, "INSERT INTO profiles VALUES (?,?,?,?,?,?,?,?,?)", values, 9, "keeping a profile")
                     : change(registry,
                              "INSERT INTO length_profiles (model, worker_class, cores, items, runs, mean_ns, p50_ns, p95_ns, "
                              "p99_ns, length) VALUES (?,?,?,?,?,?,?,?,?,?)",
                              values, 10, "keeping a profile");
    }
    return status;
}

enum leat_status
leat_registry_put_measured(struct leat_registry *registry, const char *model, const struct leat_measured *measured)
{
    const struct value values[] = {{.text = model},
                                   {.text = measured->host},
                                   {.number = (int64_t)measured->measured_s},
                                   {.number = (int64_t)measured->load_ns},
                                   {.number = (int64_t)measured->peak_bytes}};
    enum leat_status status = save(registry);

    if (status != LEAT_OK) {
        return status;
    }
    status = change(registry, "DELETE FROM measurements WHERE model = ?", values, 1, "keeping a profile");
    if (status == LEAT_OK) {
        status = change(registry, "INSERT INTO measurements VALUES (?,?,?,?,?)", values, 5, "keeping a profile");
    }
    if (status == LEAT_OK) {
        status = insert_points(registry, model, measured);
    }
    return release(registry, status);
}

static enum leat_status
read_measurement(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct leat_measured *measured = context;
    return read_text(row, 0, measured->host, sizeof(measured->host)) &&
                   read_u64(row, 1, INT64_MAX, &measured->measured_s) && read_u64(row, 2, INT64_MAX, &measured->load_ns) &&
                   read_u64(row, 3, INT64_MAX, &measured->peak_bytes)
               ? LEAT_OK
               : nonsense(registry, "a measurement");
}

static enum leat_status
read_point(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct leat_measured_point point = {0};
    const bool good = read_text(row, 0, point.worker_class, sizeof(point.worker_class)) &&
                      read_u32(row, 1, UINT32_MAX, &point.cores) && read_u32(row, 2, LEAT_ITEMS_MAX, &point.items) &&
                      read_u32(row, 3, UINT32_MAX, &point.runs) && read_u64(row, 4, LEAT_PROFILE_NS_MAX, &point.mean_ns) &&
                      read_u64(row, 5, LEAT_PROFILE_NS_MAX, &point.p50_ns) &&
                      read_u64(row, 6, LEAT_PROFILE_NS_MAX, &point.p95_ns) &&
                      read_u64(row, 7, LEAT_PROFILE_NS_MAX, &point.p99_ns) &&
                      read_u32(row, 8, LEAT_LENGTH_MAX, &point.length);
    return good && point.items >= 1 ? leat_measured_add(context, &point) : nonsense(registry, "a profile");
}

enum leat_status
leat_registry_get_measured(struct leat_registry *registry, const char *model, struct leat_measured *ret_measured)
{
    struct leat_measured measured = {0};

    enum leat_status status = look_up(
        registry, "SELECT host, measured_s, load_ns, peak_bytes FROM measurements WHERE model = ?", model, read_measurement,
        &measured);
    if (status != LEAT_OK) {
        return status == LEAT_ERR_NOT_FOUND
                   ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no profile of model '%s'", model)
                   : status;
    }
    status = look_up(registry,
                     "SELECT worker_class, cores, items, runs, mean_ns, p50_ns, p95_ns, p99_ns, 0 AS length FROM profiles "
                     "WHERE model = ?1 UNION ALL "
                     "SELECT worker_class, cores, items, runs, mean_ns, p50_ns, p95_ns, p99_ns, length FROM length_profiles "
                     "WHERE model = ?1 ORDER BY worker_class, cores, length, items",
                     model, read_point, &measured);
    if (status != LEAT_OK && status != LEAT_ERR_NOT_FOUND) {
        leat_measured_free(&measured);
        return status;
    }
    *ret_measured = measured;
    return LEAT_OK;
}

/* ---- Validations -------------------------------------------------------------------------------- */

enum leat_status
leat_registry_put_validation(struct leat_registry *registry, const char *model,
                             const struct leat_registry_validation *validation)
{
    const struct value values[] = {{.text = model},
                                   {.text = validation->inputs_sha256},
                                   {.text = validation->labels_sha256},
                                   {.number = (int64_t)validation->samples},
                                   {.number = validation->accuracy_ppm},
                                   {.number = (int64_t)validation->measured_s}};
    return change(registry, "INSERT OR REPLACE INTO validations VALUES (?,?,?,?,?,?)", values, 6, "keeping a validation");
}

static enum leat_status
read_validation(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct leat_registry_validation *validation = context;
    return read_text(row, 0, validation->inputs_sha256, sizeof(validation->inputs_sha256)) &&
                   read_text(row, 1, validation->labels_sha256, sizeof(validation->labels_sha256)) &&
                   read_u64(row, 2, INT64_MAX, &validation->samples) &&
                   read_u32(row, 3, 1000000, &validation->accuracy_ppm) &&
                   read_u64(row, 4, INT64_MAX, &validation->measured_s)
               ? LEAT_OK
               : nonsense(registry, "a validation");
}

enum leat_status
leat_registry_get_validation(struct leat_registry *registry, const char *model,
                             struct leat_registry_validation *ret_validation)
{
    struct leat_registry_validation validation;

    const enum leat_status status = look_up(
        registry,
        "SELECT inputs_sha256, labels_sha256, samples, accuracy_ppm, measured_s FROM validations WHERE model = ?", model,
        read_validation, &validation);
    if (status == LEAT_OK) {
        *ret_validation = validation;
    }
    return status == LEAT_ERR_NOT_FOUND
               ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no validation of model '%s'", model)
               : status;
}

/* ---- Applications ------------------------------------------------------------------------------- */

enum leat_status
leat_registry_put_application(struct leat_registry *registry, const struct leat_registry_application *application)
{
    const struct value values[] = {{.text = application->name},
                                   {.text = application->router},
                                   {.text = application->selector},
                                   {.text = application->policy},
                                   {.number = application->threshold_items},
                                   {.number = (int64_t)application->latency_ns},
                                   {.number = application->drop_late},
                                   {.number = application->quantile_ppm},
                                   {.number = application->queue},
                                   {.bytes = application->policy_bytes > 0 ? application->policy_table : "",
                                    .size = application->policy_bytes}};
    enum leat_status status = save(registry);

    LEAT_ASSERT(application->name[0] != '\0' && application->model_count <= LEAT_SCHED_VARIANTS_MAX);
    if (status != LEAT_OK) {
        return status;
    }
    status = change(registry, "DELETE FROM applications WHERE name = ?", values, 1, "keeping an application");
    if (status == LEAT_OK) {
        status = change(registry, "INSERT INTO applications VALUES (?,?,?,?,?,?,?,?,?,?)", values, 10, "keeping an application");
    }
    for (uint32_t m = 0; m < application->model_count && status == LEAT_OK; m++) {
        const struct value member[] = {{.text = application->name}, {.number = m}, {.text = application->models[m]}};
        status = change(registry, "INSERT INTO members VALUES (?,?,?)", member, 3, "keeping an application");
    }
    return release(registry, status);
}

enum leat_status
leat_registry_remove_application(struct leat_registry *registry, const char *name)
{
    const struct value values[] = {{.text = name}};
    enum leat_status status = save(registry);

    if (status != LEAT_OK) {
        return status;
    }
    status = change(registry, "DELETE FROM applications WHERE name = ?", values, 1, "removing an application");
    if (status == LEAT_OK && sqlite3_changes(registry->db) == 0) {
        status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no application '%s'", name);
    }
    if (status == LEAT_OK) {
        status = change(registry, "DELETE FROM made_policies WHERE application = ?", values, 1, "removing an application");
    }
    return release(registry, status);
}

struct application_list {
    struct leat_registry_application *applications;
    uint32_t count;
};

static enum leat_status
read_application(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct application_list *list = context;
    struct leat_registry_application *grown = reallocarray(list->applications, list->count + 1u, sizeof(*grown));
    uint32_t drop_late = 0;

    if (grown == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u applications", list->count + 1);
    }
    list->applications = grown;
    struct leat_registry_application *own = &grown[list->count];
    *own = (struct leat_registry_application){0};
    const bool good = read_text(row, 0, own->name, sizeof(own->name)) && read_text(row, 1, own->router, sizeof(own->router)) &&
                      read_text(row, 2, own->selector, sizeof(own->selector)) &&
                      read_text(row, 3, own->policy, sizeof(own->policy)) &&
                      read_u32(row, 4, LEAT_ITEMS_MAX, &own->threshold_items) &&
                      read_u64(row, 5, INT64_MAX, &own->latency_ns) && read_u32(row, 6, 1, &drop_late) &&
                      read_u32(row, 7, LEAT_PROFILE_MEAN, &own->quantile_ppm) && read_u32(row, 8, UINT32_MAX, &own->queue);
    own->drop_late = drop_late == 1;
    list->count++;
    return good && own->queue >= 1 ? read_bytes(row, 9, &own->policy_table, &own->policy_bytes)
                                   : nonsense(registry, "an application");
}

static enum leat_status
read_member(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct leat_registry_application *application = context;
    return application->model_count < LEAT_SCHED_VARIANTS_MAX &&
                   read_text(row, 0, application->models[application->model_count++], LEAT_NAME_MAX)
               ? LEAT_OK
               : nonsense(registry, "the list of an application's models");
}

enum leat_status
leat_registry_list_applications(struct leat_registry *registry, struct leat_registry_application **ret_applications,
                                uint32_t *ret_count)
{
    struct application_list list = {0};

    enum leat_status status = look_up(registry,
                                      "SELECT name, router, selector, policy, threshold_items, latency_ns, drop_late, quantile_ppm, "
                                      "queue, policy_table FROM applications ORDER BY name",
                                      NULL, read_application, &list);
    status = status == LEAT_ERR_NOT_FOUND ? LEAT_OK : status;
    for (uint32_t a = 0; a < list.count && status == LEAT_OK; a++) {
        status = look_up(registry, "SELECT model FROM members WHERE application = ? ORDER BY place", list.applications[a].name,
                         read_member, &list.applications[a]);
        status = status == LEAT_ERR_NOT_FOUND ? LEAT_OK : status;
    }
    if (status != LEAT_OK) {
        leat_registry_free_applications(list.applications, list.count);
        return status;
    }
    *ret_applications = list.applications;
    *ret_count = list.count;
    return LEAT_OK;
}

void
leat_registry_free_applications(struct leat_registry_application *applications, uint32_t count)
{
    for (uint32_t a = 0; a < count; a++) {
        free(applications[a].policy_table);
    }
    free(applications);
}

/* ---- Policies that were made --------------------------------------------------------------------- */

enum leat_status
leat_registry_put_made(struct leat_registry *registry, const char *application, const char *made_from, const void *policy,
                       size_t bytes)
{
    const struct value values[] = {{.text = application}, {.text = made_from}, {.bytes = policy, .size = bytes}};
    return change(registry, "INSERT OR REPLACE INTO made_policies VALUES (?,?,?)", values, 3, "keeping a policy");
}

struct made_policy {
    void *bytes;
    size_t size;
};

static enum leat_status
read_made(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct made_policy *made = context;
    (void)registry;
    return read_bytes(row, 0, &made->bytes, &made->size);
}

enum leat_status
leat_registry_get_made(struct leat_registry *registry, const char *application, const char *made_from, void **ret_policy,
                       size_t *ret_bytes)
{
    const struct value values[] = {{.text = application}, {.text = made_from}};
    struct made_policy made = {0};

    const enum leat_status status = look_up_by(
        registry, "SELECT policy FROM made_policies WHERE application = ? AND made_from = ?", values, 2, read_made, &made);
    if (status == LEAT_OK) {
        *ret_policy = made.bytes;
        *ret_bytes = made.size;
    }
    return status == LEAT_ERR_NOT_FOUND
               ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no policy of application '%s' for that", application)
               : status;
}

enum leat_status
leat_registry_prune_made(struct leat_registry *registry, const char *const *applications, uint32_t count)
{
    json_t *names = json_array();

    for (uint32_t a = 0; a < count; a++) {
        (void)json_array_append_new(names, json_string(applications[a]));
    }
    char *text = json_array_size(names) == count ? json_dumps(names, JSON_COMPACT) : NULL;
    json_decref(names);
    if (text == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the names of %u applications", count);
    }
    const struct value value = {.text = text};
    const enum leat_status status = change(registry,
                                           "DELETE FROM made_policies WHERE application NOT IN (SELECT name FROM applications) "
                                           "AND application NOT IN (SELECT value FROM json_each(?))",
                                           &value, 1, "forgetting policies");
    free(text);
    return status;
}

/* ---- Offline jobs -------------------------------------------------------------------------------- */

#define JOB_COLUMNS                                                                                                     \
    "id, owner_uid, state, application, input, output, input_device, input_inode, output_device, output_inode, "       \
    "accuracy_floor_ppm, created_s, items, answered, failed"

enum leat_status
leat_registry_put_job(struct leat_registry *registry, const struct leat_registry_job *job)
{
    const struct value values[] = {{.number = (int64_t)job->id},
                                   {.number = job->owner_uid},
                                   {.number = job->state},
                                   {.text = job->application},
                                   {.text = job->input},
                                   {.text = job->output},
                                   {.number = (int64_t)job->input_device},
                                   {.number = (int64_t)job->input_inode},
                                   {.number = (int64_t)job->output_device},
                                   {.number = (int64_t)job->output_inode},
                                   {.number = job->accuracy_floor_ppm},
                                   {.number = (int64_t)job->created_s},
                                   {.number = (int64_t)job->items},
                                   {.number = (int64_t)job->answered},
                                   {.number = (int64_t)job->failed}};
    const struct value kept = {.number = LEAT_REGISTRY_JOBS_KEPT};

    enum leat_status status = save(registry);
    if (status != LEAT_OK) {
        return status;
    }
    status = change(registry, "INSERT OR REPLACE INTO offline_jobs (" JOB_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                    values, 15, "keeping an offline job");
    if (status == LEAT_OK) {
        status = change(registry,
                        "DELETE FROM offline_jobs WHERE state <> 0 AND id NOT IN"
                        " (SELECT id FROM offline_jobs WHERE state <> 0 ORDER BY id DESC LIMIT ?)",
                        &kept, 1, "forgetting offline jobs");
    }
    return release(registry, status);
}

struct job_list {
    struct leat_registry_job *jobs;
    uint32_t count;
};

static enum leat_status
read_job(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct job_list *list = context;
    struct leat_registry_job *more = reallocarray(list->jobs, list->count + 1, sizeof(*more));

    if (more == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u offline jobs", list->count + 1);
    }
    list->jobs = more;
    struct leat_registry_job *job = &more[list->count];
    *job = (struct leat_registry_job){.input_device = (uint64_t)sqlite3_column_int64(row, 6),
                                      .input_inode = (uint64_t)sqlite3_column_int64(row, 7),
                                      .output_device = (uint64_t)sqlite3_column_int64(row, 8),
                                      .output_inode = (uint64_t)sqlite3_column_int64(row, 9)};
    const bool good = read_u64(row, 0, INT64_MAX, &job->id) && job->id > 0 && read_u32(row, 1, UINT32_MAX, &job->owner_uid) &&
                      read_u32(row, 2, LEAT_REGISTRY_JOB_CANCELLED, &job->state) &&
                      read_text(row, 3, job->application, sizeof(job->application)) &&
                      read_text(row, 4, job->input, sizeof(job->input)) && read_text(row, 5, job->output, sizeof(job->output)) &&
                      read_u32(row, 10, 1000000, &job->accuracy_floor_ppm) && read_u64(row, 11, INT64_MAX, &job->created_s) &&
                      read_u64(row, 12, INT64_MAX, &job->items) && read_u64(row, 13, INT64_MAX, &job->answered) &&
                      read_u64(row, 14, INT64_MAX, &job->failed);
    list->count += good;
    return good ? LEAT_OK : nonsense(registry, "an offline job");
}

enum leat_status
leat_registry_list_jobs(struct leat_registry *registry, struct leat_registry_job **ret_jobs, uint32_t *ret_count)
{
    struct job_list list = {0};

    const enum leat_status status =
        look_up(registry, "SELECT " JOB_COLUMNS " FROM offline_jobs ORDER BY id", NULL, read_job, &list);
    if (status != LEAT_OK && status != LEAT_ERR_NOT_FOUND) {
        free(list.jobs);
        return status;
    }
    *ret_jobs = list.jobs;
    *ret_count = list.count;
    return LEAT_OK;
}

/* ---- Pipelines ----------------------------------------------------------------------------------- */

static enum leat_status
read_anything(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    (void)registry;
    (void)row;
    (void)context;
    return LEAT_OK;
}

enum leat_status
leat_registry_add_pipeline(struct leat_registry *registry, const struct leat_registry_pipeline *pipeline)
{
    const struct value values[] = {{.text = pipeline->name}, {.text = pipeline->description}};

    const enum leat_status status =
        look_up(registry, "SELECT 1 FROM pipelines WHERE name = ?", pipeline->name, read_anything, NULL);
    if (status == LEAT_OK) {
        return LEAT_FAIL(LEAT_ERR_EXISTS, "the registry has a pipeline '%s'", pipeline->name);
    }
    return status == LEAT_ERR_NOT_FOUND
               ? change(registry, "INSERT INTO pipelines (name, description) VALUES (?,?)", values, 2, "keeping a pipeline")
               : status;
}

enum leat_status
leat_registry_remove_pipeline(struct leat_registry *registry, const char *name)
{
    const struct value values[] = {{.text = name}};

    const enum leat_status status = change(registry, "DELETE FROM pipelines WHERE name = ?", values, 1, "removing a pipeline");
    return status == LEAT_OK && sqlite3_changes(registry->db) == 0
               ? LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no pipeline '%s'", name)
               : status;
}

struct pipeline_list {
    struct leat_registry_pipeline *pipelines;
    uint32_t count;
};

static enum leat_status
read_pipeline(const struct leat_registry *registry, sqlite3_stmt *row, void *context)
{
    struct pipeline_list *list = context;
    const char *description = (const char *)sqlite3_column_text(row, 1);
    struct leat_registry_pipeline *more = reallocarray(list->pipelines, list->count + 1u, sizeof(*more));

    if (more != NULL) {
        list->pipelines = more;
    }
    char *copy = more != NULL && description != NULL ? strdup(description) : NULL;
    if (copy == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u pipelines", list->count + 1);
    }
    more[list->count].description = copy;
    list->count++;
    return read_text(row, 0, more[list->count - 1].name, LEAT_NAME_MAX) ? LEAT_OK : nonsense(registry, "the name of a pipeline");
}

enum leat_status
leat_registry_list_pipelines(struct leat_registry *registry, struct leat_registry_pipeline **ret_pipelines, uint32_t *ret_count)
{
    struct pipeline_list list = {0};

    const enum leat_status status =
        look_up(registry, "SELECT name, description FROM pipelines ORDER BY name", NULL, read_pipeline, &list);
    if (status != LEAT_OK && status != LEAT_ERR_NOT_FOUND) {
        leat_registry_free_pipelines(list.pipelines, list.count);
        return status;
    }
    *ret_pipelines = list.pipelines;
    *ret_count = list.count;
    return LEAT_OK;
}

void
leat_registry_free_pipelines(struct leat_registry_pipeline *pipelines, uint32_t count)
{
    for (uint32_t p = 0; p < count; p++) {
        free(pipelines[p].description);
    }
    free(pipelines);
}
