/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What the registry acknowledged is there after any death; what it did not is there whole or not at all;
 *          one process has it; what schemas 1 to 6 wrote is there in schema 7; damage, foreign files and newer schemas are
 *          refused with words.
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
#include <sys/mman.h>
#include <sys/stat.h>
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

/* ---- Applications, profiles, validations ----------------------------------------------------------- */

static unsigned char policy[20000]; /* more than a page of the database */

static struct leat_registry_application
application_named(const char *name, uint32_t model_count)
{
    static const char *const models[] = {"zebra", "ant", "bee"};
    struct leat_registry_application app = {.latency_ns = 20000000,
                                            .queue = 7,
                                            .quantile_ppm = 990000,
                                            .policy_table = policy,
                                            .policy_bytes = sizeof(policy),
                                            .model_count = model_count};

    (void)snprintf(app.name, sizeof(app.name), "%s", name);
    (void)snprintf(app.selector, sizeof(app.selector), "single");
    (void)snprintf(app.policy, sizeof(app.policy), "/a/policy");
    for (uint32_t m = 0; m < model_count; m++) {
        (void)snprintf(app.models[m], sizeof(app.models[m]), "%s", models[m]);
    }
    return app;
}

static void
expect_application(const struct leat_registry_application *found, const struct leat_registry_application *put)
{
    EXPECT(strcmp(found->name, put->name) == 0 && strcmp(found->router, put->router) == 0);
    EXPECT(strcmp(found->selector, put->selector) == 0 && strcmp(found->policy, put->policy) == 0);
    EXPECT(found->latency_ns == put->latency_ns && found->drop_late == put->drop_late && found->queue == put->queue);
    EXPECT(found->quantile_ppm == put->quantile_ppm && found->threshold_items == put->threshold_items);
    EXPECT(found->policy_bytes == put->policy_bytes && (found->policy_table == NULL) == (put->policy_bytes == 0));
    EXPECT(put->policy_bytes == 0 || memcmp(found->policy_table, put->policy_table, put->policy_bytes) == 0);
    EXPECT(found->model_count == put->model_count);
    for (uint32_t m = 0; m < put->model_count; m++) {
        EXPECT(strcmp(found->models[m], put->models[m]) == 0);
    }
}

static void
test_applications(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_application *found, b = application_named("b", 3), a = application_named("a", 0);
    uint32_t count;

    EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 0);
    leat_registry_free_applications(found, count);
    a.drop_late = true;
    a.threshold_items = 5;
    EXPECT(leat_registry_put_application(registry, &b) == LEAT_OK);
    EXPECT(leat_registry_put_application(registry, &a) == LEAT_OK);
    leat_registry_close(registry);

    registry = open_registry(path);
    EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 2);
    expect_application(&found[0], &a);
    expect_application(&found[1], &b);
    leat_registry_free_applications(found, count);
    b.model_count = 1; /* in the place of what was */
    b.latency_ns = 0;
    b.policy_table = NULL;
    b.policy_bytes = 0;
    (void)snprintf(b.router, sizeof(b.router), "edf");
    EXPECT(leat_registry_put_application(registry, &b) == LEAT_OK);
    EXPECT(leat_registry_remove_application(registry, "a") == LEAT_OK);
    EXPECT(leat_registry_remove_application(registry, "a") == LEAT_ERR_NOT_FOUND);
    leat_registry_close(registry);

    registry = open_registry(path);
    EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 1);
    expect_application(&found[0], &b);
    leat_registry_free_applications(found, count);
    EXPECT(leat_registry_remove_application(registry, "b") == LEAT_OK);
    leat_registry_close(registry);
}

/* One policy that was made for each application, found by what it was made from alone. */
static void
expect_made(struct leat_registry *registry, const char *application, const char *made_from, size_t bytes)
{
    void *found = NULL;
    size_t size = 0;
    const enum leat_status status = leat_registry_get_made(registry, application, made_from, &found, &size);

    EXPECT(status == (bytes > 0 ? LEAT_OK : LEAT_ERR_NOT_FOUND));
    EXPECT(size == bytes && (bytes == 0 || memcmp(found, policy, bytes) == 0));
    free(found);
}

static void
test_made_policies(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    const struct leat_registry_application app = application_named("app", 0);
    static const char *const configured[] = {"quoted \", \\", "of the configuration"};

    EXPECT(leat_registry_put_application(registry, &app) == LEAT_OK);
    EXPECT(leat_registry_put_made(registry, "app", "this", policy, 100) == LEAT_OK);
    EXPECT(leat_registry_put_made(registry, configured[0], "this", policy, 200) == LEAT_OK);
    EXPECT(leat_registry_put_made(registry, configured[1], "this", policy, 300) == LEAT_OK);
    expect_made(registry, "app", "that", 0);
    expect_made(registry, "nobody", "this", 0);
    EXPECT(leat_registry_put_made(registry, "app", "that", policy, sizeof(policy)) == LEAT_OK); /* in its place */
    leat_registry_close(registry);

    registry = open_registry(path);
    expect_made(registry, "app", "this", 0);
    expect_made(registry, "app", "that", sizeof(policy));
    expect_made(registry, configured[1], "this", 300);
    EXPECT(leat_registry_prune_made(registry, configured, 1) == LEAT_OK);
    expect_made(registry, "app", "that", sizeof(policy));
    expect_made(registry, configured[0], "this", 200);
    expect_made(registry, configured[1], "this", 0);
    EXPECT(leat_registry_prune_made(registry, NULL, 0) == LEAT_OK);
    expect_made(registry, configured[0], "this", 0);
    EXPECT(leat_registry_remove_application(registry, "app") == LEAT_OK); /* takes it along */
    expect_made(registry, "app", "that", 0);
    leat_registry_close(registry);
}

static struct leat_measured
measured_on(const char *host, uint32_t point_count)
{
    struct leat_measured measured = {.measured_s = 1700000001, .load_ns = 5, .peak_bytes = 6};

    (void)snprintf(measured.host, sizeof(measured.host), "%s", host);
    for (uint32_t p = 0; p < point_count; p++) {
        const struct leat_measured_point point = {.worker_class = "a class, \"quoted\"",
                                                  .cores = 2,
                                                  .items = p % 20 + 1,
                                                  .length = p / 20 * 64, /* those without one first */
                                                  .runs = 100 + p,
                                                  .mean_ns = 1000 * p,
                                                  .p50_ns = 900 * p,
                                                  .p95_ns = 2000 * p,
                                                  .p99_ns = LEAT_PROFILE_NS_MAX};
        EXPECT(leat_measured_add(&measured, &point) == LEAT_OK);
    }
    return measured;
}

static void
expect_measured(struct leat_registry *registry, const char *model, const struct leat_measured *put)
{
    struct leat_measured got;

    EXPECT(leat_registry_get_measured(registry, model, &got) == LEAT_OK);
    EXPECT(strcmp(got.host, put->host) == 0 && got.measured_s == put->measured_s && got.load_ns == put->load_ns);
    EXPECT(got.peak_bytes == put->peak_bytes && got.count == put->count);
    EXPECT(put->count == 0 || memcmp(got.points, put->points, put->count * sizeof(put->points[0])) == 0);
    leat_measured_free(&got);
}

static void
test_profiles_and_validations(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    const struct leat_registry_model model = model_named("m");
    struct leat_registry_validation validation = {.samples = 1200, .accuracy_ppm = 934167, .measured_s = 1700000002}, got;
    struct leat_measured many = measured_on("this host", 40), few = measured_on("", 1), none;

    (void)memset(validation.inputs_sha256, 'a', 64);
    (void)memset(validation.labels_sha256, 'b', 64);
    EXPECT(leat_registry_put_measured(registry, "m", &many) != LEAT_OK); /* of no model */
    EXPECT(leat_registry_get_measured(registry, "m", &none) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_add(registry, &model, "x", 1) == LEAT_OK);
    EXPECT(leat_registry_get_measured(registry, "m", &none) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_get_validation(registry, "m", &got) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_put_measured(registry, "m", &many) == LEAT_OK);
    EXPECT(leat_registry_put_validation(registry, "m", &validation) == LEAT_OK);
    leat_registry_close(registry);
    registry = open_registry(path);
    expect_measured(registry, "m", &many);
    EXPECT(leat_registry_get_validation(registry, "m", &got) == LEAT_OK && got.samples == 1200);
    EXPECT(got.accuracy_ppm == 934167 && got.measured_s == 1700000002);
    EXPECT(memcmp(got.inputs_sha256, validation.inputs_sha256, 65) == 0);
    EXPECT(memcmp(got.labels_sha256, validation.labels_sha256, 65) == 0);
    EXPECT(leat_registry_put_measured(registry, "m", &few) == LEAT_OK); /* in the place of all that was */
    expect_measured(registry, "m", &few);

    /* A model takes what is known of it along. */
    EXPECT(leat_registry_remove(registry, "m") == LEAT_OK);
    EXPECT(leat_registry_add(registry, &model, "x", 1) == LEAT_OK);
    EXPECT(leat_registry_get_measured(registry, "m", &none) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_get_validation(registry, "m", &got) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_remove(registry, "m") == LEAT_OK);
    leat_registry_close(registry);
    leat_measured_free(&many);
    leat_measured_free(&few);
}

static uint32_t count_files(const char *path);

/* Changes between begin and commit are one; what is rolled back leaves nothing, and takes nothing away. */
static void
test_transactions(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    const struct leat_registry_model model = model_named("m"), other = model_named("other");
    struct leat_registry_application app = application_named("app", 2), *found;
    struct leat_measured measured = measured_on("host", 3);
    struct leat_registry_model got;
    uint32_t count;
    void *data;

    EXPECT(leat_registry_add(registry, &other, "kept", 4) == LEAT_OK);
    EXPECT(leat_registry_begin(registry) == LEAT_OK);
    EXPECT(leat_registry_add(registry, &model, "content", 7) == LEAT_OK);
    EXPECT(leat_registry_put_measured(registry, "m", &measured) == LEAT_OK);
    EXPECT(leat_registry_put_application(registry, &app) == LEAT_OK);
    EXPECT(leat_registry_remove(registry, "other") == LEAT_OK);
    leat_registry_rollback(registry);
    EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 0);
    leat_registry_free_applications(found, count);
    EXPECT(leat_registry_get(registry, "m", &got) == LEAT_ERR_NOT_FOUND && count_files(path) == 1);
    EXPECT(leat_registry_get(registry, "other", &got) == LEAT_OK);
    EXPECT(leat_registry_read(registry, &got, &data) == LEAT_OK && memcmp(data, "kept", 4) == 0);
    free(data);
    EXPECT(leat_registry_begin(registry) == LEAT_OK);
    EXPECT(leat_registry_add(registry, &model, "content", 7) == LEAT_OK);
    EXPECT(leat_registry_put_measured(registry, "m", &measured) == LEAT_OK);
    EXPECT(leat_registry_remove(registry, "other") == LEAT_OK);
    EXPECT(leat_registry_commit(registry) == LEAT_OK && count_files(path) == 1);
    leat_registry_close(registry);
    registry = open_registry(path);
    expect_measured(registry, "m", &measured);
    EXPECT(leat_registry_get(registry, "other", &got) == LEAT_ERR_NOT_FOUND);
    EXPECT(leat_registry_remove(registry, "m") == LEAT_OK);
    leat_registry_close(registry);
    leat_measured_free(&measured);
}

/* ---- Death at every step -------------------------------------------------------------------------- */

enum { NAMES = 6, CHANGES = 17 };

static const char *const names[NAMES] = {"a", "b", "s", "c", "large", "twin"};
static const char *const contents[NAMES] = {"the first model", "the first model", NULL, "another model", "large", "twin"};
/* The last two have files beside their own; they share the first, and the other of "large" is what a and b are. */
static const char *const file_names[] = {"sub/shared.data", "own.data"};
static const char *const file_contents[] = {"weights that both have", "the first model"};

/* Models by their place in names[]; MADE is a policy; ALL is a set of changes that are one. */
enum { APP = NAMES, MADE, ALL };

static const struct {
    bool add;
    int name;
} changes[CHANGES] = {{true, 0},  {true, 2},    {true, 1},    {false, 0}, {true, 3},   {false, 2},
                      {false, 1}, {true, APP}, {true, MADE}, {false, APP}, {true, ALL}, {false, MADE}, {true, 4},
                      {true, 5},  {false, 4}, {false, ALL}, {false, 5}};

static unsigned kill_at;

static void
die_at_step(unsigned step)
{
    if (step == kill_at) {
        (void)raise(SIGKILL);
    }
}

static int
file_of(const char *text)
{
    const int fd = memfd_create("weights", MFD_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

/* "large" has two, "twin" the first of them. */
static uint32_t
count_beside(int name)
{
    return name == 4 ? 2 : name == 5 ? 1 : 0;
}

static void
take_files(struct leat_registry *registry, uint32_t count, struct leat_registry_file *files)
{
    for (uint32_t f = 0; f < count; f++) {
        const int from = file_of(file_contents[f]);
        int copy;
        files[f].name = (char *)(uintptr_t)file_names[f];
        EXPECT(leat_registry_take_file(registry, from, 0, &files[f], &copy) == LEAT_OK);
        EXPECT(files[f].bytes == strlen(file_contents[f]));
        EXPECT(close(from) == 0 && close(copy) == 0);
    }
}

static void
change_model(struct leat_registry *registry, int name, bool add)
{
    struct leat_registry_model model = model_named(names[name]);
    struct leat_registry_file files[2];

    model.files = files;
    model.file_count = count_beside(name);
    if (add && model.file_count > 0) {
        take_files(registry, model.file_count, files);
        EXPECT(leat_registry_add(registry, &model, contents[name], strlen(contents[name])) == LEAT_OK);
        leat_registry_release_files(registry);
    } else if (add) {
        EXPECT(leat_registry_add(registry, &model, contents[name], contents[name] == NULL ? 0 : strlen(contents[name])) ==
               LEAT_OK);
    } else {
        EXPECT(leat_registry_remove(registry, model.name) == LEAT_OK);
    }
}

static void
change_application(struct leat_registry *registry, bool add)
{
    const struct leat_registry_application app = application_named("app", 3);

    EXPECT(add ? leat_registry_put_application(registry, &app) == LEAT_OK
               : leat_registry_remove_application(registry, "app") == LEAT_OK);
}

/* Of an application that the registry does not know. */
static void
change_made(struct leat_registry *registry, bool add)
{
    EXPECT(add ? leat_registry_put_made(registry, "elsewhere", "this", policy, sizeof(policy)) == LEAT_OK
               : leat_registry_prune_made(registry, NULL, 0) == LEAT_OK);
}

/* Makes the changes, writing a byte to `acknowledged` after each. */
static void
run_child(const char *path, unsigned step, int acknowledged)
{
    kill_at = step;
    leat_registry_step_hook = die_at_step;
    struct leat_registry *registry = open_registry(path);
    for (int c = 0; c < CHANGES; c++) {
        if (changes[c].name == ALL) {
            EXPECT(leat_registry_begin(registry) == LEAT_OK);
            change_model(registry, 0, changes[c].add);
            change_application(registry, changes[c].add);
            EXPECT(leat_registry_commit(registry) == LEAT_OK);
        } else if (changes[c].name == APP) {
            change_application(registry, changes[c].add);
        } else if (changes[c].name == MADE) {
            change_made(registry, changes[c].add);
        } else {
            change_model(registry, changes[c].name, changes[c].add);
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
        const unsigned bits = changes[c].name == ALL ? 1u << 0 | 1u << APP : 1u << changes[c].name;
        set = changes[c].add ? set | bits : set & ~bits;
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

/* Returns the set of names; every listed model and application is whole, and no other file is there. */
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
        EXPECT(models[i].file_count == count_beside(n));
        for (uint32_t f = 0; f < models[i].file_count; f++) {
            const struct leat_registry_file *file = &models[i].files[f];
            const int which = strcmp(file->name, file_names[0]) == 0 ? 0 : 1;
            char found[64];
            int fd;
            EXPECT(strcmp(file->name, file_names[which]) == 0 && file->bytes == strlen(file_contents[which]));
            EXPECT(leat_registry_open_file(registry, file, &fd) == LEAT_OK);
            EXPECT(pread(fd, found, sizeof(found), 0) == (ssize_t)file->bytes && close(fd) == 0);
            EXPECT(memcmp(found, file_contents[which], file->bytes) == 0);
        }
    }
    leat_registry_list_free(models, count);
    struct leat_registry_application *apps, put = application_named("app", 3);
    EXPECT(leat_registry_list_applications(registry, &apps, &count) == LEAT_OK && count <= 1);
    if (count == 1) {
        expect_application(&apps[0], &put);
        set |= 1u << APP;
    }
    leat_registry_free_applications(apps, count);
    void *made = NULL;
    size_t bytes = 0;
    if (leat_registry_get_made(registry, "elsewhere", "this", &made, &bytes) == LEAT_OK) {
        EXPECT(bytes == sizeof(policy) && memcmp(made, policy, bytes) == 0);
        set |= 1u << MADE;
    }
    free(made);
    /* a, b and a file of "large" share one, so do the last two. */
    const uint32_t files = ((set & 0x13u) != 0 ? 1u : 0u) + ((set & 8u) != 0 ? 1u : 0u) + ((set & 0x10u) != 0 ? 1u : 0u) +
                           ((set & 0x20u) != 0 ? 1u : 0u) + ((set & 0x30u) != 0 ? 1u : 0u);
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

/* ---- What an older leat wrote ---------------------------------------------------------------------- */

static void execute(const char *db_path, const char *sql);
static void refuse(const char *path, enum leat_status expected, const char *part);
static uint32_t peek_count(const char *path);

/* Death while the tables are brought to our schema leaves one or the other. */
static void
open_and_die(const char *path, unsigned step)
{
    int status;
    const pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0) {
        kill_at = step;
        leat_registry_step_hook = die_at_step;
        leat_registry_close(open_registry(path));
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

static void
test_schema_1(const char *path)
{
    static const char as_then[] =
        "DROP TABLE members; DROP TABLE applications; DROP TABLE validations; DROP TABLE profiles; DROP TABLE measurements;"
        "DROP TABLE made_policies; DROP TABLE model_files; DROP TABLE length_profiles; DROP TABLE offline_jobs; DROP TABLE pipelines;"
        "PRAGMA user_version = 1";
    struct leat_registry_application app = application_named("app", 1);
    const struct leat_registry_model old = model_named("old");
    struct leat_registry *registry = open_registry(path);
    char db_path[256];

    EXPECT(leat_registry_add(registry, &old, "content", 7) == LEAT_OK);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    for (unsigned step = 1; step < 12; step++) {
        struct leat_registry_model got;
        struct leat_measured measured = measured_on("host", 2);
        void *data;
        execute(db_path, as_then);
        EXPECT(peek_count(path) == 1); /* which changes nothing */
        open_and_die(path, step);
        EXPECT(peek_count(path) == 1);
        registry = open_registry(path);
        EXPECT(leat_registry_get(registry, "old", &got) == LEAT_OK && got.bytes == 7 && got.items_max == 8);
        EXPECT(leat_registry_read(registry, &got, &data) == LEAT_OK && memcmp(data, "content", 7) == 0);
        free(data);
        EXPECT(leat_registry_put_measured(registry, "old", &measured) == LEAT_OK);
        EXPECT(leat_registry_put_application(registry, &app) == LEAT_OK);
        leat_registry_close(registry);
        leat_measured_free(&measured);
    }
    execute(db_path, "DELETE FROM models; DELETE FROM applications; PRAGMA user_version = 0");
    refuse(path, LEAT_ERR_VERSION, "has schema 0, this leat knows 7");
    execute(db_path, "PRAGMA user_version = 7");
}

/* Schema 3 knew of no files beside a model's own. */
static void
test_schema_3(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    char db_path[256];

    change_model(registry, 0, true);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    for (unsigned step = 1; step < 12; step++) {
        execute(db_path, "DROP TABLE model_files; DROP TABLE length_profiles; DROP TABLE offline_jobs; DROP TABLE pipelines;"
                         "PRAGMA user_version = 3");
        EXPECT(peek_count(path) == 1);
        open_and_die(path, step);
        EXPECT(peek_count(path) == 1);
        EXPECT(inspect(path) == 1);
        registry = open_registry(path);
        change_model(registry, 4, true);
        leat_registry_close(registry);
        EXPECT(inspect(path) == 0x11);
        registry = open_registry(path);
        change_model(registry, 4, false);
        EXPECT(count_files(path) == 1); /* the one that "a" is */
        leat_registry_close(registry);
    }
}

/* Schema 4 knew of no lengths. */
static void
test_schema_4(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    struct leat_measured few = measured_on("this host", 20), many = measured_on("this host", 60);
    char db_path[256];

    change_model(registry, 0, true);
    EXPECT(leat_registry_put_measured(registry, names[0], &few) == LEAT_OK);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    for (unsigned step = 1; step < 12; step++) {
        execute(db_path, "DROP TABLE length_profiles; DROP TABLE offline_jobs; DROP TABLE pipelines; PRAGMA user_version = 4");
        open_and_die(path, step);
        EXPECT(inspect(path) == 1);
        registry = open_registry(path);
        expect_measured(registry, names[0], &few);
        EXPECT(leat_registry_put_measured(registry, names[0], &many) == LEAT_OK);
        expect_measured(registry, names[0], &many);
        EXPECT(leat_registry_put_measured(registry, names[0], &few) == LEAT_OK);
        leat_registry_close(registry);
    }
    leat_measured_free(&few);
    leat_measured_free(&many);
}

/* ---- Offline jobs ---------------------------------------------------------------------------------- */

static struct leat_registry_job
job_numbered(uint64_t id, uint32_t state)
{
    struct leat_registry_job job = {.id = id,
                                    .owner_uid = UINT32_MAX,
                                    .state = state,
                                    .application = "app",
                                    .input_device = UINT64_MAX,
                                    .input_inode = id,
                                    .output_device = 1,
                                    .output_inode = UINT64_MAX - id,
                                    .accuracy_floor_ppm = 900000,
                                    .created_s = 5,
                                    .items = 3 * id,
                                    .answered = 2 * id,
                                    .failed = id};
    (void)snprintf(job.input, sizeof(job.input), "/in/%llu", (unsigned long long)id);
    (void)snprintf(job.output, sizeof(job.output), "/out/%llu", (unsigned long long)id);
    return job;
}

static void
expect_jobs(struct leat_registry *registry, const struct leat_registry_job *expected, uint32_t count)
{
    struct leat_registry_job *jobs = NULL;
    uint32_t found;

    EXPECT(leat_registry_list_jobs(registry, &jobs, &found) == LEAT_OK && found == count);
    for (uint32_t j = 0; j < count; j++) {
        EXPECT(memcmp(&jobs[j], &expected[j], sizeof(jobs[j])) == 0); /* both were zeroed first, and have no padding */
    }
    free(jobs);
}

/* Schema 5 knew of no offline jobs. */
static void
test_offline_jobs(const char *path)
{
    static struct leat_registry_job jobs[2];
    struct leat_registry_job ended;
    struct leat_registry *registry = open_registry(path);
    char db_path[256];
    uint32_t count;

    expect_jobs(registry, NULL, 0);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    for (unsigned step = 1; step < 12; step++) {
        execute(db_path, "DROP TABLE offline_jobs; DROP TABLE pipelines; PRAGMA user_version = 5");
        open_and_die(path, step);
        registry = open_registry(path);
        jobs[0] = job_numbered(1, LEAT_REGISTRY_JOB_ACTIVE);
        jobs[1] = job_numbered(7, LEAT_REGISTRY_JOB_ACTIVE);
        EXPECT(leat_registry_put_job(registry, &jobs[1]) == LEAT_OK && leat_registry_put_job(registry, &jobs[0]) == LEAT_OK);
        expect_jobs(registry, jobs, 2);
        jobs[0].state = LEAT_REGISTRY_JOB_DONE;
        EXPECT(leat_registry_put_job(registry, &jobs[0]) == LEAT_OK);
        leat_registry_close(registry);
        registry = open_registry(path);
        expect_jobs(registry, jobs, 2);
        leat_registry_close(registry);
    }

    /* Of those that have ended the newest stay; those that have not are never forgotten. */
    registry = open_registry(path);
    EXPECT(leat_registry_begin(registry) == LEAT_OK);
    for (uint64_t id = 100; id < 101 + LEAT_REGISTRY_JOBS_KEPT; id++) {
        ended = job_numbered(id, id % 2 == 0 ? LEAT_REGISTRY_JOB_DONE : LEAT_REGISTRY_JOB_CANCELLED);
        EXPECT(leat_registry_put_job(registry, &ended) == LEAT_OK);
    }
    EXPECT(leat_registry_commit(registry) == LEAT_OK);
    struct leat_registry_job *all = NULL;
    EXPECT(leat_registry_list_jobs(registry, &all, &count) == LEAT_OK && count == 1 + LEAT_REGISTRY_JOBS_KEPT);
    EXPECT(all[0].id == 7 && all[1].id == 101 && all[count - 1].id == 100 + LEAT_REGISTRY_JOBS_KEPT);
    free(all);
    leat_registry_close(registry);
    execute(db_path, "UPDATE offline_jobs SET state = 3 WHERE id = 7");
    registry = open_registry(path);
    all = NULL;
    EXPECT(leat_registry_list_jobs(registry, &all, &count) == LEAT_ERR_PROTO && all == NULL);
    EXPECT(strstr(leat_error_text(), "an offline job makes no sense") != NULL);
    leat_registry_close(registry);
}

/* ---- Pipelines ------------------------------------------------------------------------------------- */

static void
expect_pipelines(struct leat_registry *registry, const struct leat_registry_pipeline *expected, uint32_t count)
{
    struct leat_registry_pipeline *pipelines = NULL;
    uint32_t found;

    EXPECT(leat_registry_list_pipelines(registry, &pipelines, &found) == LEAT_OK && found == count);
    for (uint32_t p = 0; p < count; p++) {
        EXPECT(strcmp(pipelines[p].name, expected[p].name) == 0);
        EXPECT(strcmp(pipelines[p].description, expected[p].description) == 0);
    }
    leat_registry_free_pipelines(pipelines, found);
}

/* Schema 6 knew of no pipelines. */
static void
test_pipelines(const char *path)
{
    static char descriptions[][32] = {"{\"stages\":[]}", "whatever it is", "\xc3\xa4"};
    const struct leat_registry_pipeline all[] = {
        {.name = "alpha", .description = descriptions[0]}, {.name = "beta", .description = descriptions[1]},
        {.name = "gamma", .description = descriptions[2]}};
    const struct leat_registry_pipeline two[] = {all[0], all[2]};
    struct leat_registry *registry = open_registry(path);
    char db_path[256];

    expect_pipelines(registry, NULL, 0);
    leat_registry_close(registry);
    (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
    for (unsigned step = 1; step < 12; step++) {
        execute(db_path, "DROP TABLE pipelines; PRAGMA user_version = 6");
        open_and_die(path, step);
        registry = open_registry(path);
        for (int p = 2; p >= 0; p--) {
            EXPECT(leat_registry_add_pipeline(registry, &all[p]) == LEAT_OK);
        }
        EXPECT(leat_registry_add_pipeline(registry, &all[1]) == LEAT_ERR_EXISTS);
        expect_pipelines(registry, all, 3);
        leat_registry_close(registry);
        registry = open_registry(path);
        expect_pipelines(registry, all, 3);
        EXPECT(leat_registry_begin(registry) == LEAT_OK && leat_registry_remove_pipeline(registry, "alpha") == LEAT_OK);
        expect_pipelines(registry, &all[1], 2);
        leat_registry_rollback(registry);
        EXPECT(leat_registry_remove_pipeline(registry, "beta") == LEAT_OK);
        EXPECT(leat_registry_remove_pipeline(registry, "beta") == LEAT_ERR_NOT_FOUND);
        leat_registry_close(registry);
        registry = open_registry(path);
        expect_pipelines(registry, two, 2);
        leat_registry_close(registry);
    }
    execute(db_path, "UPDATE pipelines SET name = printf('%064d', 1) WHERE name = 'alpha'");
    struct leat_registry_pipeline *none = NULL;
    uint32_t count;
    registry = open_registry(path);
    EXPECT(leat_registry_list_pipelines(registry, &none, &count) == LEAT_ERR_PROTO && none == NULL);
    EXPECT(strstr(leat_error_text(), "the name of a pipeline makes no sense") != NULL);
    leat_registry_close(registry);
}

/* ---- Files beside a model's own -------------------------------------------------------------------- */

static int
sparse_file(off_t size)
{
    const int fd = memfd_create("sparse", MFD_CLOEXEC);

    EXPECT(fd >= 0 && ftruncate(fd, size) == 0 && pwrite(fd, "begin", 5, 0) == 5);
    EXPECT(pwrite(fd, "middle", 6, size / 2) == 6 && pwrite(fd, "end", 3, size - 3) == 3);
    return fd;
}

/*
 * A file of more than 2 GiB with little in it takes little room and little memory; what is not used goes. The library that
 * hashes it takes most of the time, and no sanitizer sees into that, so it is smaller there.
 */
static void
test_large_file(const char *path)
{
    const off_t size = LEAT_TEST_ROUNDS(((off_t)1 << 31) + 12345);
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_file file = {.name = (char *)(uintptr_t)file_names[0]};
    const int from = sparse_file(size);
    struct stat info;
    char found[64];
    int fd;

    EXPECT(leat_registry_take_file(registry, from, 0, &file, &fd) == LEAT_OK && file.bytes == (uint64_t)size);
    EXPECT(fstat(fd, &info) == 0 && info.st_size == size && info.st_blocks * 512 < (off_t)64 << 20);
    EXPECT(pread(fd, found, 6, size / 2) == 6 && memcmp(found, "middle", 6) == 0);
    EXPECT(pread(fd, found, 64, size - 3) == 3 && memcmp(found, "end", 3) == 0);
    EXPECT(write(fd, "x", 1) < 0 && close(fd) == 0 && close(from) == 0);
    EXPECT(count_files(path) == 1);
    leat_registry_release_files(registry);
    EXPECT(count_files(path) == 0);
    leat_registry_close(registry);
}

static void
test_sparse_file(const char *path)
{
    const off_t size = ((off_t)8 << 20) + 12345;
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_file file = {.name = (char *)(uintptr_t)file_names[0]}, again = file;
    const int from = sparse_file(size);
    struct leat_registry_model model = model_named("sparse"), got;
    int fd;

    /* What was taken outlives changes of others, and is one file however often it is taken. */
    EXPECT(leat_registry_take_file(registry, from, 0, &file, &fd) == LEAT_OK && close(fd) == 0);
    change_model(registry, 0, true);
    EXPECT(leat_registry_begin(registry) == LEAT_OK && leat_registry_commit(registry) == LEAT_OK);
    change_model(registry, 0, false);
    EXPECT(count_files(path) == 1);
    EXPECT(leat_registry_take_file(registry, from, 0, &again, &fd) == LEAT_OK && close(fd) == 0);
    EXPECT(strcmp(file.sha256, again.sha256) == 0 && count_files(path) == 1);
    model.files = &file;
    model.file_count = 1;
    EXPECT(leat_registry_add(registry, &model, "x", 1) == LEAT_OK);
    leat_registry_release_files(registry);
    EXPECT(count_files(path) == 2 && close(from) == 0);

    /* Damage of any byte is found before it is used. */
    char name[256];
    (void)snprintf(name, sizeof(name), "%s/models/%s", path, file.sha256);
    fd = open(name, O_RDWR | O_CLOEXEC);
    EXPECT(fd >= 0 && pwrite(fd, "x", 1, size / 2 + 2) == 1 && close(fd) == 0);
    EXPECT(leat_registry_get(registry, "sparse", &got) == LEAT_OK && got.file_count == 1);
    EXPECT(leat_registry_open_file(registry, &got.files[0], &fd) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "is damaged") != NULL && strstr(leat_error_text(), file_names[0]) != NULL);
    EXPECT(truncate(name, 100) == 0 && leat_registry_open_file(registry, &got.files[0], &fd) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "does not have the size") != NULL);
    EXPECT(unlink(name) == 0 && leat_registry_open_file(registry, &got.files[0], &fd) == LEAT_ERR_NOT_FOUND);
    leat_registry_free_model(&got);
    EXPECT(leat_registry_remove(registry, "sparse") == LEAT_OK && count_files(path) == 0);
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    EXPECT(leat_registry_take_file(registry, folder, 0, &file, &fd) == LEAT_ERR_INVALID && close(folder) == 0);
    leat_registry_close(registry);
}

/* A model's own file, the first part of what a client sent, is there once, whatever was said to be in it. */
static void
test_taken_model(const char *path)
{
    struct leat_registry *registry = open_registry(path);
    struct leat_registry_file file = {.name = (char *)(uintptr_t)file_names[0]};
    struct leat_registry_model model = model_named("taken"), got;
    const int from = memfd_create("model", MFD_CLOEXEC);
    char found[16];
    int fd;

    EXPECT(from >= 0 && write(from, "weights, and more", 17) == 17);
    EXPECT(leat_registry_take_file(registry, from, 18, &file, &fd) == LEAT_ERR_PROTO);
    EXPECT(leat_registry_take_file(registry, from, 7, &file, &fd) == LEAT_OK && file.bytes == 7 && close(from) == 0);
    EXPECT(pread(fd, found, sizeof(found), 0) == 7 && memcmp(found, "weights", 7) == 0);
    (void)snprintf(model.sha256, sizeof(model.sha256), "%s", file.sha256);
    EXPECT(leat_registry_add(registry, &model, "not read", 7) == LEAT_OK && count_files(path) == 1);
    leat_registry_release_files(registry);
    EXPECT(count_files(path) == 1 && leat_registry_get(registry, "taken", &got) == LEAT_OK && close(fd) == 0);
    EXPECT(strcmp(got.sha256, file.sha256) == 0 && leat_registry_open_model(registry, &got, &fd) == LEAT_OK && close(fd) == 0);
    leat_registry_free_model(&got);

    /* One that is damaged is whole again when it is taken once more. */
    char name[256];
    (void)snprintf(name, sizeof(name), "%s/models/%s", path, file.sha256);
    for (int round = 0; round < 2; round++) {
        const int again = memfd_create("model", MFD_CLOEXEC);
        fd = open(name, O_RDWR | O_CLOEXEC);
        EXPECT(fd >= 0 && (round == 0 ? pwrite(fd, "W", 1, 0) == 1 : ftruncate(fd, 3) == 0) && close(fd) == 0);
        EXPECT(again >= 0 && write(again, "weights, and more", 17) == 17);
        EXPECT(leat_registry_take_file(registry, again, 7, &file, &fd) == LEAT_OK && close(again) == 0);
        EXPECT(pread(fd, found, sizeof(found), 0) == 7 && memcmp(found, "weights", 7) == 0 && close(fd) == 0);
        EXPECT(count_files(path) == 1);
    }
    leat_registry_release_files(registry);
    EXPECT(leat_registry_remove(registry, "taken") == LEAT_OK && count_files(path) == 0);
    leat_registry_close(registry);
}

/* What leat wrote as schema 2, in its own words. */
static void
test_schema_2(const char *path)
{
    static const char as_then[] =
        "CREATE TABLE models (name TEXT PRIMARY KEY, backend TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL,"
        " items_max INTEGER NOT NULL, accuracy_ppm INTEGER NOT NULL, created_s INTEGER NOT NULL, options_json TEXT,"
        " signature_json TEXT) STRICT, WITHOUT ROWID;"
        "CREATE INDEX models_by_content ON models (sha256);"
        "CREATE TABLE measurements (model TEXT PRIMARY KEY REFERENCES models (name) ON DELETE CASCADE, host TEXT NOT NULL,"
        " measured_s INTEGER NOT NULL, load_ns INTEGER NOT NULL, peak_bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        "CREATE TABLE profiles (model TEXT NOT NULL REFERENCES measurements (model) ON DELETE CASCADE,"
        " worker_class TEXT NOT NULL, cores INTEGER NOT NULL, items INTEGER NOT NULL, runs INTEGER NOT NULL,"
        " mean_ns INTEGER NOT NULL, p50_ns INTEGER NOT NULL, p95_ns INTEGER NOT NULL, p99_ns INTEGER NOT NULL,"
        " PRIMARY KEY (model, worker_class, cores, items)) STRICT, WITHOUT ROWID;"
        "CREATE TABLE validations (model TEXT PRIMARY KEY REFERENCES models (name) ON DELETE CASCADE,"
        " inputs_sha256 TEXT NOT NULL, labels_sha256 TEXT NOT NULL, samples INTEGER NOT NULL, accuracy_ppm INTEGER NOT NULL,"
        " measured_s INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        "CREATE TABLE applications (name TEXT PRIMARY KEY, router TEXT NOT NULL, selector TEXT NOT NULL, policy TEXT NOT NULL,"
        " threshold_items INTEGER NOT NULL, latency_ns INTEGER NOT NULL, drop_late INTEGER NOT NULL,"
        " quantile_ppm INTEGER NOT NULL, queue INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
        "CREATE TABLE members (application TEXT NOT NULL REFERENCES applications (name) ON DELETE CASCADE,"
        " place INTEGER NOT NULL, model TEXT NOT NULL, PRIMARY KEY (application, place), UNIQUE (application, model))"
        " STRICT, WITHOUT ROWID;"
        "PRAGMA application_id = 1818583412; PRAGMA user_version = 2;"
        "INSERT INTO models VALUES ('zebra', 'synthetic', '', 0, 8, 5, 1700000000, NULL, NULL);"
        "INSERT INTO applications VALUES ('app', '', 'single', '/a/policy', 0, 20000000, 0, 990000, 7);"
        "INSERT INTO members VALUES ('app', 0, 'zebra'), ('app', 1, 'ant'), ('app', 2, 'bee')";
    struct leat_registry_application put = application_named("app", 3), *found;
    char db_path[256];
    uint32_t count;

    for (unsigned step = 1; step < 12; step++) {
        leat_registry_close(open_registry(path));
        (void)snprintf(db_path, sizeof(db_path), "%s/registry.db", path);
        EXPECT(unlink(db_path) == 0);
        execute(db_path, as_then);
        EXPECT(peek_count(path) == 1);
        open_and_die(path, step);
        EXPECT(peek_count(path) == 1);
        struct leat_registry *registry = open_registry(path);
        put.policy_table = NULL; /* schema 2 had only its name */
        put.policy_bytes = 0;
        EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 1);
        expect_application(&found[0], &put);
        leat_registry_free_applications(found, count);
        put = application_named("app", 3);
        EXPECT(leat_registry_put_application(registry, &put) == LEAT_OK);
        EXPECT(leat_registry_put_made(registry, "app", "this", policy, 10) == LEAT_OK);
        leat_registry_close(registry);
        registry = open_registry(path);
        EXPECT(leat_registry_list_applications(registry, &found, &count) == LEAT_OK && count == 1);
        expect_application(&found[0], &put);
        leat_registry_free_applications(found, count);
        expect_made(registry, "app", "this", 10);
        leat_registry_close(registry);
    }
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
    execute(db_path, "PRAGMA user_version = 8");
    refuse(path, LEAT_ERR_VERSION, "has schema 8, this leat knows 7");
    EXPECT(leat_registry_peek(path, &models, &count) == LEAT_ERR_VERSION && models == NULL);
    execute(db_path, "PRAGMA user_version = 7; PRAGMA application_id = 7");
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
    execute(db_path, "UPDATE models SET sha256 = ''; INSERT INTO applications VALUES ('a','','','',0,0,2,0,1,x'')");
    registry = open_registry(path);
    struct leat_registry_application *apps = NULL;
    struct leat_measured measured;
    EXPECT(leat_registry_list_applications(registry, &apps, &count) == LEAT_ERR_PROTO && apps == NULL);
    EXPECT(strstr(leat_error_text(), "an application makes no sense") != NULL);
    leat_registry_close(registry);
    execute(db_path, "DELETE FROM applications; INSERT INTO measurements VALUES ('m','',0,0,0);"
                     "INSERT INTO profiles VALUES ('m','c',1,0,0,0,0,0,0)");
    registry = open_registry(path);
    EXPECT(leat_registry_get_measured(registry, "m", &measured) == LEAT_ERR_PROTO);
    EXPECT(strstr(leat_error_text(), "a profile makes no sense") != NULL);
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
    for (size_t i = 0; i < sizeof(policy); i++) {
        policy[i] = (unsigned char)(i * i >> 3);
    }
    fake_root_init(&root);
    (void)snprintf(path, sizeof(path), "%s/one", root.path);
    test_add_list_get_remove(path);
    EXPECT(count_files(path) == 0);
    test_applications(path);
    test_made_policies(path);
    test_profiles_and_validations(path);
    test_transactions(path);
    test_one_process_at_a_time(path);
    test_other_schemas_and_rows(path);
    (void)snprintf(path, sizeof(path), "%s/two", root.path);
    test_damage(&root, path);
    (void)snprintf(path, sizeof(path), "%s/three", root.path);
    test_schema_1(path);
    (void)snprintf(path, sizeof(path), "%s/four", root.path);
    test_schema_2(path);
    (void)snprintf(path, sizeof(path), "%s/five", root.path);
    test_schema_3(path);
    (void)snprintf(path, sizeof(path), "%s/seven", root.path);
    test_schema_4(path);
    (void)snprintf(path, sizeof(path), "%s/eight", root.path);
    test_offline_jobs(path);
    (void)snprintf(path, sizeof(path), "%s/nine", root.path);
    test_pipelines(path);
    (void)snprintf(path, sizeof(path), "%s/six", root.path);
    test_large_file(path);
    test_sparse_file(path);
    test_taken_model(path);
    fake_root_fini(&root);
    test_death_at_every_step();
    return 0;
}
