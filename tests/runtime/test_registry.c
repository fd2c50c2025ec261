/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What the registry acknowledged is there after any death; what it did not is there whole or not at all;
 *          one process has it; damage, foreign files and newer schemas are refused with words.
 * Method   A child runs a fixed list of changes and is killed (SIGKILL) at its n-th step, for every n until it
 *          gets through; after each death the parent compares names, contents and the folder with a model.
 */
#include "runtime/registry.h"
#include "tests/runtime/fake_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sqlite3.h>
#include <sys/wait.h>

static struct leat_registry *
open_registry(const char *path)
{
    struct leat_registry *registry;
    const enum leat_status status = leat_registry_open(path, &registry);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    return registry;
}

static struct leat_registry_model
model_named(const char *name)
{
    struct leat_registry_model model = {.items_max = 8, .created_s = 1700000000};
    (void)snprintf(model.name, sizeof(model.name), "%s", name);
    (void)snprintf(model.backend, sizeof(model.backend), "cpu");
    return model;
}

static void
test_add_list_get_remove(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_model model = model_named("zebra"), got, *models;
    char options[] = "{\"latency_ns\":5}";
    uint32_t count;
    void *data;

    EXPECT(leat_registry_list(registry, &models, &count) == LEAT_OK && count == 0);
    leat_registry_list_free(models, count);
    EXPECT(leat_registry_add(registry, &model, "abc", 3) == LEAT_OK);
    EXPECT(leat_registry_add(registry, &model, "other", 5) == LEAT_ERR_EXISTS);
    EXPECT(strstr(leat_error_text(), "'zebra'") != NULL);

    struct leat_registry_model synthetic = model_named("ant");
    synthetic.options_json = options;
    synthetic.accuracy_ppm = 761000;
    synthetic.input_count = synthetic.output_count = 1;
    synthetic.infos[0] = (struct leat_tensor_info){.name = "x \"quoted\"",
                                                   .dtype = LEAT_DTYPE_F16,
                                                   .rank = 3,
                                                   .dims = {-1, 3, 5},
                                                   .item_bytes = 30};
    synthetic.infos[1] = (struct leat_tensor_info){
        .name = "y", .dtype = LEAT_DTYPE_I64, .rank = 1, .dims = {-1}, .item_bytes = 8};
    EXPECT(leat_registry_add(registry, &synthetic, NULL, 0) == LEAT_OK);
    leat_registry_close(registry);

    registry = open_registry(path);
    EXPECT(leat_registry_list(registry, &models, &count) == LEAT_OK && count == 2);
    EXPECT(strcmp(models[0].name, "ant") == 0 && strcmp(models[1].name, "zebra") == 0);
    EXPECT(strcmp(models[0].options_json, options) == 0 && models[0].accuracy_ppm == 761000);
    EXPECT(models[0].input_count == 1 && models[0].output_count == 1);
    EXPECT(memcmp(models[0].infos, synthetic.infos, 2 * sizeof(synthetic.infos[0])) == 0);
    EXPECT(models[0].sha256[0] == '\0' && leat_registry_read(registry, &models[0], &data) == LEAT_ERR_UNSUPPORTED);
    EXPECT(models[1].options_json == NULL && models[1].bytes == 3 && models[1].items_max == 8);
    EXPECT(models[1].created_s == 1700000000 && models[1].input_count == 0);
    /* FIPS 180-2's own example */
    EXPECT(strcmp(models[1].sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    EXPECT(leat_registry_read(registry, &models[1], &data) == LEAT_OK && memcmp(data, "abc", 3) == 0);
    free(data);
    leat_registry_list_free(models, count);

    EXPECT(leat_registry_get(registry, "ant", &got) == LEAT_OK && strcmp(got.backend, "cpu") == 0);
    free(got.options_json);
    EXPECT(leat_registry_remove(registry, "bee") == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_remove(registry, "ant") == LEAT_OK);
    EXPECT(leat_registry_get(registry, "ant", &got) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_remove(registry, "zebra") == LEAT_OK);
    leat_registry_close(registry);
    leat_registry_close(NULL);
}

/* ---- Death at every step -------------------------------------------------------------------------- */

enum { NAMES = 4, CHANGES = 8 };

static const char *const names[NAMES] = {"a", "b", "s", "c"};
static const char *const contents[NAMES] = {"the first model", "the first model", NULL, "another model"};

static const struct {
    bool add;
    int name;
} changes[CHANGES] = {{true, 0}, {true, 2}, {true, 1}, {false, 0}, {true, 3}, {false, 2}, {false, 1}, {true, 0}};

static unsigned kill_at;

static void
die_at_step(unsigned step)
{
    if (step == kill_at) {
        (void)raise(SIGKILL);
    }
}

/* Makes the changes, writing a byte to `acknowledged` after each. */
static void
run_child(const char *path, unsigned step, int acknowledged)
{
    kill_at = step;
    leat_registry_step_hook = die_at_step;
    struct leat_registry *registry = open_registry(path);
    for (int c = 0; c < CHANGES; c++) {
        const struct leat_registry_model model = model_named(names[changes[c].name]);
        const char *content = contents[changes[c].name];
        if (changes[c].add) {
            EXPECT(leat_registry_add(registry, &model, content, content == NULL ? 0 : strlen(content)) == LEAT_OK);
        } else {
            EXPECT(leat_registry_remove(registry, model.name) == LEAT_OK);
        }
        EXPECT(write(acknowledged, "!", 1) == 1);
    }
    leat_registry_close(registry);
}

static unsigned
expected_after(int changes_done)
{
    unsigned set = 0;
    for (int c = 0; c < changes_done; c++) {
        set = changes[c].add ? set | 1u << changes[c].name : set & ~(1u << changes[c].name);
    }
    return set;
}

static uint32_t
count_files(const char *path)
{
    char models[256];
    uint32_t count = 0;
    const struct dirent *entry;
    (void)snprintf(models, sizeof(models), "%s/models", path);
    DIR *folder = opendir(models);
    EXPECT(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    EXPECT(closedir(folder) == 0);
    return count;
}

/* Returns the set of names; every listed model is whole, and no other file is there. */
static unsigned
inspect(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_model *models;
    uint32_t count;
    unsigned set = 0;

    EXPECT(leat_registry_list(registry, &models, &count) == LEAT_OK);
    for (uint32_t i = 0; i < count; i++) {
        int n = 0;
        void *data;
        while (strcmp(names[n], models[i].name) != 0) {
            EXPECT(++n < NAMES);
        }
        set |= 1u << n;
        if (contents[n] != NULL) {
            EXPECT(leat_registry_read(registry, &models[i], &data) == LEAT_OK);
            EXPECT(models[i].bytes == strlen(contents[n]) &&
                   memcmp(data, contents[n], strlen(contents[n])) == 0);
            free(data);
        }
    }
    leat_registry_list_free(models, count);
    const uint32_t files = ((set & 3u) != 0 ? 1u : 0u) + ((set & 8u) != 0 ? 1u : 0u); /* a and b share one */
    EXPECT(count_files(path) == files);
    leat_registry_close(registry);
    return set;
}

static void
test_death_at_every_step(void)
{
    unsigned deaths = 0, in_flight_kept = 0, in_flight_lost = 0;

    for (unsigned step = 1;; step++) {
        struct fake_root root;
        char path[256], byte;
        int pipe_fds[2], status, acknowledged = 0;

        fake_root_init(&root);
        (void)snprintf(path, sizeof(path), "%s/state", root.path);
        EXPECT(pipe(pipe_fds) == 0);
        const pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            (void)close(pipe_fds[0]);
            run_child(path, step, pipe_fds[1]);
            _exit(0);
        }
        (void)close(pipe_fds[1]);
        while (read(pipe_fds[0], &byte, 1) == 1) {
            acknowledged++;
        }
        (void)close(pipe_fds[0]);
        EXPECT(waitpid(child, &status, 0) == child);
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        EXPECT(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        const unsigned found = inspect(path);
        if (!killed) {
            EXPECT(acknowledged == CHANGES && found == expected_after(CHANGES));
            fake_root_fini(&root);
            break;
        }
        deaths++;
        if (found == expected_after(acknowledged)) {
            in_flight_lost++;
        } else {
            EXPECT(acknowledged < CHANGES && found == expected_after(acknowledged + 1));
            in_flight_kept++;
        }
        fake_root_fini(&root);
    }
    (void)printf("%u deaths: %u lost the change in flight, %u kept it\n", deaths, in_flight_lost, in_flight_kept);
    EXPECT(deaths > 40 && in_flight_lost > 0 && in_flight_kept > 0);
}

/* ---- What is refused ------------------------------------------------------------------------------- */

static void
refuse(const char *path, enum leat_status expected, const char *part)
{
    struct leat_registry *registry = NULL;
    const enum leat_status status = leat_registry_open(path, &registry);
    if (status != expected || strstr(leat_error_text(), part) == NULL) {
        (void)fprintf(stderr, "status %d: %s\nwant %d: %s\n", (int)status, leat_error_text(), (int)expected, part);
    }
    EXPECT(status == expected && registry == NULL && strstr(leat_error_text(), part) != NULL);
}

static uint32_t
peek_count(const char *path)
{
    struct leat_registry_model *models;
    uint32_t count = UINT32_MAX;
    EXPECT(leat_registry_peek(path, &models, &count) == LEAT_OK);
    leat_registry_list_free(models, count);
    return count;
}

static void
test_one_process_at_a_time(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    char pid[48];
    (void)snprintf(pid, sizeof(pid), "another leatd has it (process %ld)", (long)getpid());
    refuse(path, LEAT_ERR_BUSY, pid);
    const struct leat_registry_model model = model_named("seen");
    EXPECT(leat_registry_add(registry, &model, NULL, 0) == LEAT_OK);
    EXPECT(peek_count(path) == 1); /* looking needs no lock */
    EXPECT(leat_registry_remove(registry, "seen") == LEAT_OK);
    EXPECT(peek_count(path) == 0);
    leat_registry_close(registry);
    EXPECT(peek_count(path) == 0);
    EXPECT(peek_count("/nowhere/at/all") == 0);
    leat_registry_close(open_registry(path));
}

static void
execute(const char *db_path, const char *sql)
{
    sqlite3 *db;
    EXPECT(sqlite3_open(db_path, &db) == SQLITE_OK);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    EXPECT(sqlite3_close(db) == SQLITE_OK);
}

static void
test_other_schemas_and_rows(const char *path)
{
    char db_path[256];
    struct leat_registry_model *models = NULL, got;
    uint32_t count;
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_model model = model_named("m");
    void *data;

    EXPECT(leat_registry_add(registry, &model, "content", 7) == LEAT_OK);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    execute(db_path, "PRAGMA user_version = 3");
    refuse(path, LEAT_ERR_VERSION, "has schema 3, this leat knows 2");
    EXPECT(leat_registry_peek(path, &models, &count) == LEAT_ERR_VERSION && models == NULL);
    execute(db_path, "PRAGMA user_version = 2; PRAGMA application_id = 7");
    refuse(path, LEAT_ERR_PROTO, "not a registry of leat");
    execute(db_path, "PRAGMA application_id = 1818583412; UPDATE models SET items_max = 0");
    registry = open_registry(path);
    EXPECT(leat_registry_list(registry, &models, &count) == LEAT_ERR_PROTO && models == NULL);
    EXPECT(strstr(leat_error_text(), "model 'm' makes no sense") != NULL);
    leat_registry_close(registry);
    execute(db_path, "UPDATE models SET items_max = 8, signature_json = '{\"inputs\":[{}]}'");
    registry = open_registry(path);
    EXPECT(leat_registry_get(registry, "m", &got) == LEAT_ERR_PROTO);
    leat_registry_close(registry);
    execute(db_path, "UPDATE models SET signature_json = NULL, sha256 = '../../lock'");
    registry = open_registry(path);
    EXPECT(leat_registry_get(registry, "m", &got) == LEAT_ERR_PROTO);
    leat_registry_close(registry);

    /* A file that changed, shrank or went away is named. */
    execute(db_path, "DELETE FROM models");
    registry = open_registry(path);
    char file[400];
    EXPECT(leat_registry_add(registry, &model, "content", 7) == LEAT_OK);
    EXPECT(leat_registry_get(registry, "m", &got) == LEAT_OK);
    (void)snprintf(file, sizeof(file), "%s/models/%s", path, got.sha256);
    int fd = open(file, O_WRONLY);
    EXPECT(fd >= 0 && pwrite(fd, "C", 1, 0) == 1);
    EXPECT(leat_registry_read(registry, &got, &data) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "model 'm'") != NULL && strstr(leat_error_text(), "damaged") != NULL);
    EXPECT(ftruncate(fd, 3) == 0 && close(fd) == 0);
    EXPECT(leat_registry_read(registry, &got, &data) == LEAT_ERR_PROTO);
    EXPECT(unlink(file) == 0 && leat_registry_read(registry, &got, &data) == LEAT_ERR_NOT_FOUND);
    leat_registry_close(registry);
}

static void
test_damage(const struct fake_root *root, const char *path)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "%s/registry.db", path + strlen(root->path));
    fake_root_write(root, name, "this is not a database, and it is long enough to look at: "
                                "....................................................................");
    refuse(path, LEAT_ERR_PROTO, "restore it from a backup");
    refuse("/proc/none/state", LEAT_ERR_SYS, "/proc/none/state");
}

int
main(void)
{
    struct fake_root root;
    char path[256];

    leat_test_init();
    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/one", root.path);
    test_add_list_get_remove(path);
    EXPECT(count_files(path) == 0);
    test_one_process_at_a_time(path);
    test_other_schemas_and_rows(path);
    (void)snprintf(path, sizeof(path), "%s/two", root.path);
    test_damage(&root, path);
    fake_root_fini(&root);
    test_death_at_every_step();
    return 0;
}
