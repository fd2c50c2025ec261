/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/registry.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "runtime/registry_private.h"

#define APPLICATION_ID 0x6c656174 /* "leat", in the database's header */
#define BUSY_MS        5000       /* how long a reader from outside may hold us up */

#define COLUMNS "name, backend, sha256, bytes, items_max, accuracy_ppm, created_s, options_json, signature_json"

static const char models_schema[] =
    "CREATE TABLE models ("
    " name TEXT PRIMARY KEY,"
    " backend TEXT NOT NULL,"
    " sha256 TEXT NOT NULL," /* '' without a file */
    " bytes INTEGER NOT NULL,"
    " items_max INTEGER NOT NULL,"
    " accuracy_ppm INTEGER NOT NULL,"
    " created_s INTEGER NOT NULL,"
    " options_json TEXT,"
    " signature_json TEXT"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX models_by_content ON models (sha256);";

/* What schema 2 has beyond schema 1. */
static const char applications_schema[] =
    "CREATE TABLE measurements ("
    " model TEXT PRIMARY KEY REFERENCES models (name) ON DELETE CASCADE,"
    " host TEXT NOT NULL," /* '' imported */
    " measured_s INTEGER NOT NULL,"
    " load_ns INTEGER NOT NULL,"
    " peak_bytes INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE profiles ("
    " model TEXT NOT NULL REFERENCES measurements (model) ON DELETE CASCADE,"
    " worker_class TEXT NOT NULL,"
    " cores INTEGER NOT NULL,"
    " items INTEGER NOT NULL,"
    " runs INTEGER NOT NULL,"
    " mean_ns INTEGER NOT NULL,"
    " p50_ns INTEGER NOT NULL,"
    " p95_ns INTEGER NOT NULL,"
    " p99_ns INTEGER NOT NULL,"
    " PRIMARY KEY (model, worker_class, cores, items)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE validations ("
    " model TEXT PRIMARY KEY REFERENCES models (name) ON DELETE CASCADE,"
    " inputs_sha256 TEXT NOT NULL,"
    " labels_sha256 TEXT NOT NULL,"
    " samples INTEGER NOT NULL,"
    " accuracy_ppm INTEGER NOT NULL,"
    " measured_s INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE applications ("
    " name TEXT PRIMARY KEY,"
    " router TEXT NOT NULL," /* '' the default */
    " selector TEXT NOT NULL,"
    " policy TEXT NOT NULL," /* '' made from profiles */
    " threshold_items INTEGER NOT NULL,"
    " latency_ns INTEGER NOT NULL,"
    " drop_late INTEGER NOT NULL,"
    " quantile_ppm INTEGER NOT NULL,"
    " queue INTEGER NOT NULL"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE members ("
    " application TEXT NOT NULL REFERENCES applications (name) ON DELETE CASCADE,"
    " place INTEGER NOT NULL,"
    " model TEXT NOT NULL," /* perhaps of the configuration */
    " PRIMARY KEY (application, place),"
    " UNIQUE (application, model)"
    ") STRICT, WITHOUT ROWID;";

/* What schema 3 has beyond schema 2. */
static const char policies_schema[] =
    "ALTER TABLE applications ADD COLUMN policy_table BLOB NOT NULL DEFAULT x'';"
    "CREATE TABLE made_policies ("
    " application TEXT PRIMARY KEY," /* perhaps of the configuration */
    " made_from TEXT NOT NULL,"
    " policy BLOB NOT NULL"
    ") STRICT;";

/* What schema 4 has beyond schema 3. */
static const char files_schema[] =
    "CREATE TABLE model_files ("
    " model TEXT NOT NULL REFERENCES models (name) ON DELETE CASCADE,"
    " name TEXT NOT NULL," /* as the model calls it */
    " sha256 TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " PRIMARY KEY (model, name)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX model_files_by_content ON model_files (sha256);";

/* What schema 5 has beyond schema 4: profiles of models of sequences. */
static const char lengths_schema[] =
    "CREATE TABLE length_profiles ("
    " model TEXT NOT NULL REFERENCES measurements (model) ON DELETE CASCADE,"
    " worker_class TEXT NOT NULL,"
    " cores INTEGER NOT NULL,"
    " length INTEGER NOT NULL,"
    " items INTEGER NOT NULL,"
    " runs INTEGER NOT NULL,"
    " mean_ns INTEGER NOT NULL,"
    " p50_ns INTEGER NOT NULL,"
    " p95_ns INTEGER NOT NULL,"
    " p99_ns INTEGER NOT NULL,"
    " PRIMARY KEY (model, worker_class, cores, length, items)"
    ") STRICT, WITHOUT ROWID;";

/* What schema 6 has beyond schema 5. */
static const char jobs_schema[] =
    "CREATE TABLE offline_jobs ("
    " id INTEGER PRIMARY KEY,"
    " owner_uid INTEGER NOT NULL,"
    " state INTEGER NOT NULL,"
    " application TEXT NOT NULL," /* perhaps of the configuration */
    " input TEXT NOT NULL,"
    " output TEXT NOT NULL,"
    " input_device INTEGER NOT NULL,"
    " input_inode INTEGER NOT NULL,"
    " output_device INTEGER NOT NULL,"
    " output_inode INTEGER NOT NULL,"
    " accuracy_floor_ppm INTEGER NOT NULL,"
    " created_s INTEGER NOT NULL,"
    " items INTEGER NOT NULL,"
    " answered INTEGER NOT NULL,"
    " failed INTEGER NOT NULL"
    ") STRICT;";

/* What schema 7 has beyond schema 6. */
static const char pipelines_schema[] =
    "CREATE TABLE pipelines ("
    " name TEXT PRIMARY KEY,"
    " description TEXT NOT NULL" /* JSON, as it was given; its applications are perhaps of the configuration */
    ") STRICT, WITHOUT ROWID;";

enum leat_status
leat_registry_fail(const struct leat_registry *registry, const char *what)
{
    const int code = registry->db == NULL ? SQLITE_NOMEM : sqlite3_errcode(registry->db);
    const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;

    return LEAT_FAIL(damaged                 ? LEAT_ERR_PROTO
                     : code == SQLITE_NOMEM  ? LEAT_ERR_NOMEM
                     : code == SQLITE_LOCKED || code == SQLITE_BUSY ? LEAT_ERR_BUSY
                                                                    : LEAT_ERR_DEVICE,
                     "%s/registry.db: %s: %s%s", registry->files.state_dir, what,
                     registry->db == NULL ? "out of memory" : sqlite3_errmsg(registry->db),
                     damaged ? "; restore it from a backup, or move it away and add the models again"
                             : "");
}

enum leat_status
leat_registry_execute(const struct leat_registry *registry, const char *sql, const char *what)
{
    return sqlite3_exec(registry->db, sql, NULL, NULL, NULL) == SQLITE_OK ? LEAT_OK
                                                                         : leat_registry_fail(registry, what);
}

/* The first column of the first row, as a number or a text. */
static enum leat_status
query_number(const struct leat_registry *registry, const char *sql, int64_t *ret_number)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_OK;

    if (sqlite3_prepare_v2(registry->db, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        status = leat_registry_fail(registry, sql);
    } else {
        *ret_number = sqlite3_column_int64(statement, 0);
    }
    (void)sqlite3_finalize(statement);
    return status;
}

static enum leat_status
check_integrity(const struct leat_registry *registry)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_OK;

    if (sqlite3_prepare_v2(registry->db, "PRAGMA integrity_check(1)", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        status = leat_registry_fail(registry, "integrity check");
    } else {
        const char *verdict = (const char *)sqlite3_column_text(statement, 0);
        if (verdict == NULL || strcmp(verdict, "ok") != 0) {
            status = LEAT_FAIL(LEAT_ERR_PROTO,
                               "%s/registry.db is damaged (%.120s); restore it from a backup, or move it "
                               "away and add the models again",
                               registry->files.state_dir, verdict == NULL ? "no verdict" : verdict);
        }
    }
    (void)sqlite3_finalize(statement);
    return status;
}

/* Brings an empty registry (version 0), or one that an older leat wrote, to our schema. */
static enum leat_status
make_schema(const struct leat_registry *registry, int64_t version)
{
    char sql[sizeof(models_schema) + sizeof(applications_schema) + sizeof(policies_schema) + sizeof(files_schema) +
             sizeof(lengths_schema) + sizeof(jobs_schema) + sizeof(pipelines_schema) + 128];

    (void)snprintf(sql, sizeof(sql),
                   "BEGIN IMMEDIATE; %s %s %s %s %s %s %s PRAGMA application_id=%d; PRAGMA user_version=%u; COMMIT;",
                   version < 1 ? models_schema : "", version < 2 ? applications_schema : "",
                   version < 3 ? policies_schema : "", version < 4 ? files_schema : "",
                   version < 5 ? lengths_schema : "", version < 6 ? jobs_schema : "", pipelines_schema, APPLICATION_ID, LEAT_REGISTRY_SCHEMA);
    leat_registry_step();
    const enum leat_status status = leat_registry_execute(registry, sql, "making the tables");
    leat_registry_step();
    return status;
}

/* `may_change`: else one that an older leat wrote is left as it is. */
static enum leat_status
check_schema(struct leat_registry *registry, bool may_change)
{
    int64_t version = 0, application = 0, tables = 0;
    enum leat_status status = query_number(registry, "PRAGMA user_version", &version);

    if (status == LEAT_OK) {
        status = query_number(registry, "PRAGMA application_id", &application);
    }
    if (status == LEAT_OK) {
        status = query_number(registry, "SELECT count(*) FROM sqlite_schema", &tables);
    }
    if (status != LEAT_OK) {
        return status;
    }
    registry->has_files = may_change || version >= 4;
    if (tables == 0 && version == 0) {
        return make_schema(registry, version);
    }
    if (application != APPLICATION_ID) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s/registry.db is not a registry of leat; choose another state_dir",
                         registry->files.state_dir);
    }
    if (version < 1 || version > LEAT_REGISTRY_SCHEMA) {
        return LEAT_FAIL(LEAT_ERR_VERSION,
                         "%s/registry.db has schema %lld, this leat knows %u: run the leat that wrote it "
                         "(or a newer one), or choose another state_dir",
                         registry->files.state_dir, (long long)version, LEAT_REGISTRY_SCHEMA);
    }
    return version < LEAT_REGISTRY_SCHEMA && may_change ? make_schema(registry, version) : LEAT_OK;
}

static enum leat_status
open_database(struct leat_registry *registry)
{
    char path[4096];
    const int used = snprintf(path, sizeof(path), "%s/registry.db", registry->files.state_dir);

    if (used < 0 || (size_t)used >= sizeof(path)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "the name of the state directory is too long");
    }
    leat_registry_step();
    if (sqlite3_open_v2(path, &registry->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK) {
        return leat_registry_fail(registry, "cannot be opened");
    }
    (void)sqlite3_busy_timeout(registry->db, BUSY_MS);
    /* FULL: in WAL mode every commit is synced before it returns. */
    enum leat_status status = leat_registry_execute(
        registry, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF; PRAGMA foreign_keys=ON;",
        "cannot be used");
    if (status == LEAT_OK) {
        status = check_integrity(registry);
    }
    if (status == LEAT_OK) {
        status = check_schema(registry, true);
    }
    return status;
}

/* How many rows name this content; negative when the database does not say. */
static int64_t
count_users(const struct leat_registry *registry, const char *sha256)
{
    sqlite3_stmt *statement = NULL;
    int64_t users = -1;

    if (sqlite3_prepare_v2(registry->db,
                           "SELECT (SELECT count(*) FROM models WHERE sha256 = ?1) +"
                           " (SELECT count(*) FROM model_files WHERE sha256 = ?1)",
                           -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, sha256, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        users = sqlite3_column_int64(statement, 0);
    }
    (void)sqlite3_finalize(statement);
    return users;
}

static bool
is_taken(const struct leat_registry *registry, const char *name)
{
    for (uint32_t t = 0; t < registry->taken_count; t++) {
        if (strcmp(registry->taken[t], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_wanted(void *context, const char *name)
{
    const struct leat_registry *registry = context;

    return is_taken(registry, name) || count_users(registry, name) != 0; /* in doubt it stays */
}

enum leat_status
leat_registry_open(const char *state_dir, struct leat_registry **ret_registry)
{
    struct leat_registry *registry = calloc(1, sizeof(*registry));

    if (registry == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the registry");
    }
    enum leat_status status = leat_registry_files_init(&registry->files, state_dir);
    if (status == LEAT_OK) {
        status = open_database(registry);
    }
    if (status == LEAT_OK) {
        status = leat_registry_files_sync(&registry->files);
    }
    if (status == LEAT_OK) {
        status = leat_registry_files_clean(&registry->files, is_wanted, registry);
    }
    if (status != LEAT_OK) {
        leat_registry_close(registry);
        return status;
    }
    *ret_registry = registry;
    return LEAT_OK;
}

void
leat_registry_close(struct leat_registry *registry)
{
    if (registry == NULL) {
        return;
    }
    LEAT_MUST(sqlite3_close(registry->db) == SQLITE_OK); /* every statement is finalized; accepts NULL */
    leat_registry_files_fini(&registry->files);
    free(registry->taken);
    free(registry);
}

/* ---- Files beside a model's own ------------------------------------------------------------------ */

enum leat_status
leat_registry_take_file(struct leat_registry *registry, int fd, uint64_t most, struct leat_registry_file *ret_file, int *ret_fd)
{
    char sha256[65];
    uint64_t bytes;

    void *more = reallocarray(registry->taken, registry->taken_count + 1, sizeof(*registry->taken));
    if (more == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a file's name");
    }
    registry->taken = more;
    enum leat_status status = leat_registry_files_copy(&registry->files, fd, most, sha256, &bytes);
    if (status == LEAT_OK) {
        status = leat_registry_files_name(&registry->files, sha256, bytes);
    }
    if (status == LEAT_OK) {
        memcpy(registry->taken[registry->taken_count++], sha256, sizeof(sha256));
        status = leat_registry_files_open(&registry->files, sha256, bytes, false, ret_fd);
    }
    if (status == LEAT_OK) {
        memcpy(ret_file->sha256, sha256, sizeof(sha256));
        ret_file->bytes = bytes;
    }
    return status;
}

void
leat_registry_release_files(struct leat_registry *registry)
{
    free(registry->taken);
    registry->taken = NULL;
    registry->taken_count = 0;
    const enum leat_status cleaned = leat_registry_files_clean(&registry->files, is_wanted, registry);
    (void)cleaned; /* what stays is removed at the next open */
}

enum leat_status
leat_registry_open_file(struct leat_registry *registry, const struct leat_registry_file *file, int *ret_fd)
{
    const enum leat_status status = leat_registry_files_open(&registry->files, file->sha256, file->bytes, true, ret_fd);
    return status == LEAT_OK ? status : leat_err_prefix(status, "file '%.64s'", file->name);
}

static bool
bind_file(sqlite3_stmt *statement, const char *model, const struct leat_registry_file *file)
{
    return sqlite3_bind_text(statement, 1, model, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 2, file->name, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 3, file->sha256, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 4, (int64_t)file->bytes) == SQLITE_OK;
}

static enum leat_status
insert_files(const struct leat_registry *registry, const struct leat_registry_model *model)
{
    enum leat_status status = LEAT_OK;

    for (uint32_t f = 0; f < model->file_count && status == LEAT_OK; f++) {
        sqlite3_stmt *statement = NULL;
        if (sqlite3_prepare_v2(registry->db, "INSERT INTO model_files (model, name, sha256, bytes) VALUES (?,?,?,?)", -1,
                               &statement, NULL) != SQLITE_OK ||
            !bind_file(statement, model->name, &model->files[f]) || sqlite3_step(statement) != SQLITE_DONE) {
            status = leat_registry_fail(registry, "adding a model's files");
        }
        (void)sqlite3_finalize(statement);
    }
    return status;
}

/* The current row is one more file. */
static enum leat_status
read_file_row(const struct leat_registry *registry, sqlite3_stmt *statement, struct leat_registry_model *model)
{
    const char *name = (const char *)sqlite3_column_text(statement, 0);
    const char *sha256 = (const char *)sqlite3_column_text(statement, 1);
    const int64_t bytes = sqlite3_column_int64(statement, 2);

    if (name == NULL || sha256 == NULL || strlen(sha256) != 64 || strspn(sha256, "0123456789abcdef") != 64 || bytes < 0) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s/registry.db: the files of model '%.80s' make no sense", registry->files.state_dir,
                         model->name);
    }
    struct leat_registry_file *more = reallocarray(model->files, model->file_count + 1, sizeof(*more));
    char *copy = strdup(name);
    if (more != NULL) {
        model->files = more;
    }
    if (more == NULL || copy == NULL) {
        free(copy);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the files of model '%s'", model->name);
    }
    struct leat_registry_file *file = &model->files[model->file_count++];
    *file = (struct leat_registry_file){.name = copy, .bytes = (uint64_t)bytes};
    memcpy(file->sha256, sha256, sizeof(file->sha256));
    return LEAT_OK;
}

static enum leat_status
read_files(const struct leat_registry *registry, struct leat_registry_model *model)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_OK;
    int code = SQLITE_ERROR;

    if (!registry->has_files) {
        return LEAT_OK;
    }
    if (sqlite3_prepare_v2(registry->db, "SELECT name, sha256, bytes FROM model_files WHERE model = ? ORDER BY name", -1,
                           &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, model->name, -1, SQLITE_STATIC) == SQLITE_OK) {
        while (status == LEAT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
            status = read_file_row(registry, statement, model);
        }
    }
    if (status == LEAT_OK && code != SQLITE_DONE) {
        status = leat_registry_fail(registry, "listing a model's files");
    }
    (void)sqlite3_finalize(statement);
    return status;
}

void
leat_registry_free_model(struct leat_registry_model *model)
{
    for (uint32_t f = 0; f < model->file_count; f++) {
        free(model->files[f].name);
    }
    free(model->files);
    free(model->options_json);
}

/* ---- Signatures as text -------------------------------------------------------------------------- */

static json_t *
tensors_to_json(const struct leat_tensor_info *infos, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_t *dims = json_array();
        for (uint32_t d = 1; d < infos[i].rank; d++) {
            (void)json_array_append_new(dims, json_integer(infos[i].dims[d]));
        }
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:o}", "name", infos[i].name, "dtype",
                                                     leat_dtype_text(infos[i].dtype), "dims", dims));
    }
    return array;
}

/* NULL when there is no signature, or no memory for it. */
static char *
signature_to_text(const struct leat_registry_model *model)
{
    if (model->input_count + model->output_count == 0) {
        return NULL;
    }
    json_t *object =
        json_pack("{s:o, s:o}", "inputs", tensors_to_json(model->infos, model->input_count), "outputs",
                  tensors_to_json(model->infos + model->input_count, model->output_count));
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

static bool
tensor_from_json(const json_t *object, struct leat_tensor_info *info)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    const json_t *dims = json_object_get(object, "dims");

    *info = (struct leat_tensor_info){.rank = 1, .dims = {-1}};
    if (name == NULL || strlen(name) >= sizeof(info->name) || dtype == NULL || !json_is_array(dims) ||
        json_array_size(dims) > LEAT_RANK_MAX - 1) {
        return false;
    }
    (void)snprintf(info->name, sizeof(info->name), "%s", name);
    for (uint32_t d = 1; d <= LEAT_DTYPE_MAX; d++) {
        info->dtype = strcmp(dtype, leat_dtype_text(d)) == 0 ? d : info->dtype;
    }
    info->item_bytes = leat_dtype_bytes(info->dtype);
    for (size_t d = 0; d < json_array_size(dims); d++) {
        const json_int_t dim = json_integer_value(json_array_get(dims, d));
        if (dim <= 0 || !leat_mul_u64(info->item_bytes, (uint64_t)dim, &info->item_bytes)) {
            return false;
        }
        info->dims[info->rank++] = dim;
    }
    return info->item_bytes > 0;
}

static bool
signature_from_text(const char *text, struct leat_registry_model *model)
{
    static const char *const lists[2] = {"inputs", "outputs"};
    uint32_t *const counts[2] = {&model->input_count, &model->output_count};
    json_t *object = json_loads(text, 0, NULL);
    uint32_t total = 0;
    bool good = object != NULL;

    for (int l = 0; l < 2 && good; l++) {
        const json_t *array = json_object_get(object, lists[l]);
        for (size_t i = 0; i < json_array_size(array) && good; i++) {
            good = total < LEAT_TENSORS_MAX &&
                   tensor_from_json(json_array_get(array, i), &model->infos[total]);
            total++;
            (*counts[l])++;
        }
    }
    json_decref(object);
    return good;
}

/* ---- Adding and removing ------------------------------------------------------------------------- */

static bool
bind_model(sqlite3_stmt *statement, const struct leat_registry_model *model, const char *sha256,
           size_t bytes, const char *signature)
{
    return sqlite3_bind_text(statement, 1, model->name, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 2, model->backend, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 3, sha256, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 4, (int64_t)bytes) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 5, model->items_max) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 6, model->accuracy_ppm) == SQLITE_OK &&
           sqlite3_bind_int64(statement, 7, (int64_t)model->created_s) == SQLITE_OK &&
           sqlite3_bind_text(statement, 8, model->options_json, -1, SQLITE_STATIC) == SQLITE_OK &&
           sqlite3_bind_text(statement, 9, signature, -1, SQLITE_STATIC) == SQLITE_OK;
}

static enum leat_status
insert_row(const struct leat_registry *registry, const struct leat_registry_model *model,
           const char *sha256, size_t bytes)
{
    sqlite3_stmt *statement = NULL;
    enum leat_status status = LEAT_OK;
    char *signature = signature_to_text(model);

    if (signature == NULL && model->input_count + model->output_count > 0) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the signature of '%s'", model->name);
    }
    if (sqlite3_prepare_v2(registry->db,
                           "INSERT INTO models (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?)", -1,
                           &statement, NULL) != SQLITE_OK ||
        !bind_model(statement, model, sha256, bytes, signature)) {
        status = leat_registry_fail(registry, "adding a model");
    } else {
        leat_registry_step();
        const int code = sqlite3_step(statement); /* where there is no transaction: committed when it returns */
        leat_registry_step();
        if (code == SQLITE_CONSTRAINT) {
            status = LEAT_FAIL(LEAT_ERR_EXISTS, "the registry has a model '%s' already", model->name);
        } else if (code != SQLITE_DONE) {
            status = leat_registry_fail(registry, "adding a model");
        }
    }
    (void)sqlite3_finalize(statement);
    free(signature);
    return status;
}

/* The row and those of its files, as one change. */
static enum leat_status
insert_rows(struct leat_registry *registry, const struct leat_registry_model *model, const char *sha256, size_t bytes)
{
    const bool alone = model->file_count > 0 && !registry->in_transaction;

    enum leat_status status = alone ? leat_registry_begin(registry) : LEAT_OK;
    if (status != LEAT_OK) {
        return status;
    }
    status = insert_row(registry, model, sha256, bytes);
    if (status == LEAT_OK) {
        status = insert_files(registry, model);
    }
    if (alone && status == LEAT_OK) {
        return leat_registry_commit(registry);
    }
    if (alone) {
        leat_registry_rollback(registry);
    }
    return status;
}

enum leat_status
leat_registry_add(struct leat_registry *registry, const struct leat_registry_model *model,
                  const void *data, size_t bytes)
{
    char sha256[65] = "";
    struct leat_registry_model other;
    enum leat_status status = leat_registry_get(registry, model->name, &other);

    LEAT_ASSERT(model->name[0] != '\0' && model->input_count + model->output_count <= LEAT_TENSORS_MAX);
    if (status == LEAT_OK) { /* before a large file is copied for nothing */
        leat_registry_free_model(&other);
        return LEAT_FAIL(LEAT_ERR_EXISTS, "the registry has a model '%s' already", model->name);
    }
    if (status != LEAT_ERR_NOT_FOUND) {
        return status;
    }
    if (data == NULL) {
        return insert_rows(registry, model, sha256, 0);
    }
    if (is_taken(registry, model->sha256)) { /* durable already, and large to be read once more */
        return insert_rows(registry, model, model->sha256, bytes);
    }
    leat_registry_hash(data, bytes, sha256);
    const int64_t users = count_users(registry, sha256);
    if (users < 0) {
        return leat_registry_fail(registry, "adding a model");
    }
    if (users == 0) { /* a file that a row names is durable already */
        status = leat_registry_files_put(&registry->files, sha256, data, bytes);
        if (status != LEAT_OK) {
            return status;
        }
    }
    status = insert_rows(registry, model, sha256, bytes);
    if (status != LEAT_OK && !is_wanted(registry, sha256)) {
        leat_registry_files_drop(&registry->files, sha256);
    }
    return status;
}

enum leat_status
leat_registry_remove(struct leat_registry *registry, const char *name)
{
    struct leat_registry_model model;
    sqlite3_stmt *statement = NULL;
    enum leat_status status = leat_registry_get(registry, name, &model);

    if (status != LEAT_OK) {
        return status;
    }
    if (sqlite3_prepare_v2(registry->db, "DELETE FROM models WHERE name = ?", -1, &statement, NULL) !=
            SQLITE_OK ||
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC) != SQLITE_OK) {
        status = leat_registry_fail(registry, "removing a model");
    } else {
        leat_registry_step();
        if (sqlite3_step(statement) != SQLITE_DONE) {
            status = leat_registry_fail(registry, "removing a model");
        }
        leat_registry_step();
    }
    (void)sqlite3_finalize(statement);
    if (status == LEAT_OK && model.sha256[0] != '\0' && !registry->in_transaction &&
        !is_wanted(registry, model.sha256)) { /* commit cleans up */
        leat_registry_files_drop(&registry->files, model.sha256);
    }
    for (uint32_t f = 0; f < model.file_count && status == LEAT_OK && !registry->in_transaction; f++) {
        if (!is_wanted(registry, model.files[f].sha256)) {
            leat_registry_files_drop(&registry->files, model.files[f].sha256);
        }
    }
    leat_registry_free_model(&model);
    return status;
}

/* ---- Several changes as one ----------------------------------------------------------------------- */

enum leat_status
leat_registry_begin(struct leat_registry *registry)
{
    LEAT_ASSERT(!registry->in_transaction);
    const enum leat_status status = leat_registry_execute(registry, "BEGIN IMMEDIATE", "beginning a change");
    registry->in_transaction = status == LEAT_OK;
    return status;
}

enum leat_status
leat_registry_commit(struct leat_registry *registry)
{
    LEAT_ASSERT(registry->in_transaction);
    leat_registry_step();
    const enum leat_status status = leat_registry_execute(registry, "COMMIT", "committing a change");
    leat_registry_step();
    if (status != LEAT_OK) {
        leat_registry_rollback(registry);
        return status;
    }
    registry->in_transaction = false;
    const enum leat_status cleaned = leat_registry_files_clean(&registry->files, is_wanted, registry);
    (void)cleaned; /* what stays is removed at the next open */
    return LEAT_OK;
}

void
leat_registry_rollback(struct leat_registry *registry)
{
    LEAT_ASSERT(registry->in_transaction);
    (void)sqlite3_exec(registry->db, "ROLLBACK", NULL, NULL, NULL); /* an error: SQLite has done it already */
    registry->in_transaction = false;
    const enum leat_status cleaned = leat_registry_files_clean(&registry->files, is_wanted, registry);
    (void)cleaned;
}

/* ---- Reading ------------------------------------------------------------------------------------- */

static bool
copy_column(sqlite3_stmt *statement, int column, char *to, size_t bytes)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    if (text == NULL || strlen(text) >= bytes) {
        return false;
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* The current row. */
static enum leat_status
read_row(const struct leat_registry *registry, sqlite3_stmt *statement,
         struct leat_registry_model *model)
{
    const int64_t items_max = sqlite3_column_int64(statement, 4);
    const int64_t accuracy_ppm = sqlite3_column_int64(statement, 5);
    const char *options = (const char *)sqlite3_column_text(statement, 7);
    const char *signature = (const char *)sqlite3_column_text(statement, 8);

    *model = (struct leat_registry_model){
        .bytes = (uint64_t)sqlite3_column_int64(statement, 3),
        .items_max = (uint32_t)items_max,
        .accuracy_ppm = (uint32_t)accuracy_ppm,
        .created_s = (uint64_t)sqlite3_column_int64(statement, 6),
    };
    if (!copy_column(statement, 0, model->name, sizeof(model->name)) ||
        !copy_column(statement, 1, model->backend, sizeof(model->backend)) ||
        !copy_column(statement, 2, model->sha256, sizeof(model->sha256)) || items_max < 1 ||
        items_max > LEAT_ITEMS_MAX || accuracy_ppm < 0 || accuracy_ppm > 1000000 ||
        (model->sha256[0] != '\0' && strspn(model->sha256, "0123456789abcdef") != 64) ||
        (signature != NULL && !signature_from_text(signature, model))) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s/registry.db: the row of model '%.80s' makes no sense",
                         registry->files.state_dir,
                         model->name[0] == '\0' ? "?" : model->name);
    }
    if (options != NULL && (model->options_json = strdup(options)) == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for model '%s'", model->name);
    }
    const enum leat_status status = read_files(registry, model);
    if (status != LEAT_OK) {
        leat_registry_free_model(model);
    }
    return status;
}

enum leat_status
leat_registry_get(struct leat_registry *registry, const char *name,
                  struct leat_registry_model *ret_model)
{
    struct leat_registry_model model;
    sqlite3_stmt *statement = NULL;
    enum leat_status status;

    if (sqlite3_prepare_v2(registry->db, "SELECT " COLUMNS " FROM models WHERE name = ?", -1,
                           &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC) != SQLITE_OK) {
        status = leat_registry_fail(registry, "looking for a model");
    } else {
        const int code = sqlite3_step(statement);
        if (code == SQLITE_ROW) {
            status = read_row(registry, statement, &model);
        } else if (code == SQLITE_DONE) {
            status = LEAT_FAIL(LEAT_ERR_NOT_FOUND, "the registry has no model '%s'", name);
        } else {
            status = leat_registry_fail(registry, "looking for a model");
        }
    }
    (void)sqlite3_finalize(statement);
    if (status == LEAT_OK) {
        *ret_model = model;
    }
    return status;
}

enum leat_status
leat_registry_list(struct leat_registry *registry, struct leat_registry_model **ret_models,
                   uint32_t *ret_count)
{
    struct leat_registry_model *models = NULL;
    sqlite3_stmt *statement = NULL;
    uint32_t count = 0, room = 0;
    enum leat_status status = LEAT_OK;
    int code = SQLITE_ERROR;

    if (sqlite3_prepare_v2(registry->db, "SELECT " COLUMNS " FROM models ORDER BY name", -1, &statement,
                           NULL) == SQLITE_OK) {
        while (status == LEAT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
            if (count == room) {
                room = room == 0 ? 16 : room * 2;
                struct leat_registry_model *more = reallocarray(models, room, sizeof(*models));
                if (more == NULL) {
                    status = LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u models", room);
                    break;
                }
                models = more;
            }
            status = read_row(registry, statement, &models[count]);
            count += status == LEAT_OK;
        }
    }
    if (status == LEAT_OK && code != SQLITE_DONE) {
        status = leat_registry_fail(registry, "listing the models");
    }
    (void)sqlite3_finalize(statement);
    if (status != LEAT_OK) {
        leat_registry_list_free(models, count);
        return status;
    }
    *ret_models = models;
    *ret_count = count;
    return LEAT_OK;
}

enum leat_status
leat_registry_peek(const char *state_dir, struct leat_registry_model **ret_models, uint32_t *ret_count)
{
    struct leat_registry registry = {.files = {.state_dir = (char *)(uintptr_t)state_dir}}; /* only read */
    char path[4096];
    int64_t tables = 0;

    (void)snprintf(path, sizeof(path), "%s/registry.db", state_dir);
    if (access(path, R_OK) != 0) {
        if (errno != ENOENT) {
            return LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
        }
        *ret_models = NULL;
        *ret_count = 0;
        return LEAT_OK;
    }
    enum leat_status status =
        sqlite3_open_v2(path, &registry.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK
            ? query_number(&registry, "SELECT count(*) FROM sqlite_schema", &tables)
            : leat_registry_fail(&registry, "cannot be opened");
    if (status == LEAT_OK && tables > 0) { /* none: open() was killed before it made them */
        status = check_schema(&registry, false);
    }
    if (status == LEAT_OK && tables > 0) {
        status = leat_registry_list(&registry, ret_models, ret_count);
    } else if (status == LEAT_OK) {
        *ret_models = NULL;
        *ret_count = 0;
    }
    LEAT_MUST(sqlite3_close(registry.db) == SQLITE_OK);
    return status;
}

void
leat_registry_list_free(struct leat_registry_model *models, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        leat_registry_free_model(&models[i]);
    }
    free(models);
}

enum leat_status
leat_registry_read(struct leat_registry *registry, const struct leat_registry_model *model,
                   void **ret_data)
{
    if (model->sha256[0] == '\0') {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "model '%s' has no file", model->name);
    }
    const enum leat_status status =
        leat_registry_files_get(&registry->files, model->sha256, model->bytes, ret_data);
    return status == LEAT_OK ? status : leat_err_prefix(status, "model '%s'", model->name);
}

enum leat_status
leat_registry_open_model(struct leat_registry *registry, const struct leat_registry_model *model, int *ret_fd)
{
    const enum leat_status status = leat_registry_files_open(&registry->files, model->sha256, model->bytes, true, ret_fd);
    return status == LEAT_OK ? status : leat_err_prefix(status, "model '%s'", model->name);
}
