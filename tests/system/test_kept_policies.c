/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A policy that the daemon made is there after any end, and used again only where nothing that it was made from has
 *          changed. One that was given as a file is kept with its contents: the file may go, or become another, and counts
 *          again when it is named again. What an older leat kept, only the file's name, is completed while the file is there.
 * Method   leatd with synthetic models, ended and started anew; policies as `leat policy fetch` gets them.
 */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sched/policy_table.h"
#include "tests/system/leatd.h"

#define GIVEN "{\"op\":\"app-add\",\"name\":\"given\",\"models\":[\"good\",\"quick\"],\"latency_ns\":40000000,\"selector\":\"mdp\""

static struct leatd leatd;
static char policy_path[160];

/* What changes from one start to the next. */
struct setting {
    const char *workers, *accuracy, *per_item, *latency, *late, *name;
};

static const struct setting usual = {"2", "0.9", "2ms", "40ms", "drop", "good"};

static void
start(const struct setting *setting)
{
    char yaml[1024];

    EXPECT((size_t)snprintf(yaml, sizeof(yaml),
                            "workers: [{count: %s}]\n"
                            "models:\n"
                            "  - {name: quick, backend: synthetic, items_max: 4, accuracy: 0.5,"
                            " synthetic: {latency: 200us, per_item: 50us}}\n"
                            "  - {name: %s, backend: synthetic, items_max: 4, accuracy: %s,"
                            " synthetic: {latency: 2ms, per_item: %s}}\n"
                            "applications:\n"
                            "  - {name: choice, models: [%s, quick], latency: %s, late: %s}\n",
                            setting->workers, setting->name, setting->accuracy, setting->per_item, setting->name,
                            setting->latency, setting->late) < sizeof(yaml));
    leatd_start(&leatd, yaml);
}

static void
restart(const struct setting *setting, int signal_number)
{
    leatd_end(&leatd, signal_number);
    start(setting);
}

/* The answer to a request. */
static json_t *
ask(const char *text)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    json_t *answer = leatd_request(session, text);
    leat_close(session);
    return answer;
}

static void
refuse(const char *text, const char *why)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    char *reply = NULL;

    EXPECT(leat_admin(session, text, -1, &reply) == LEAT_OK);
    if (strstr(reply, why) == NULL) {
        (void)fprintf(stderr, "%s\nnot: %s\n", reply, why);
        EXPECT(!"a refusal says why");
    }
    leat_admin_free(reply);
    leat_close(session);
}

/* The policy in force, to be freed; NULL where the application is not served. */
static struct leat_policy *
fetch(const char *application)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    const int fd = memfd_create("policy", MFD_CLOEXEC);
    struct leat_policy *policy = NULL;
    const struct leat_policy *checked;
    char text[160], *reply = NULL;

    (void)snprintf(text, sizeof(text), "{\"op\":\"app-policy\",\"name\":\"%s\"}", application);
    EXPECT(fd >= 0 && leat_admin(session, text, fd, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, 0, NULL);
    leat_admin_free(reply);
    if (json_object_get(answer, "bytes") != NULL) {
        const size_t bytes = (size_t)leatd_number(answer, "bytes");
        policy = malloc(bytes);
        EXPECT(policy != NULL && pread(fd, policy, bytes, 0) == (ssize_t)bytes);
        EXPECT(leat_policy_check(policy, bytes, &checked) == LEAT_OK);
    }
    json_decref(answer);
    leat_close(session);
    EXPECT(close(fd) == 0);
    return policy;
}

static void
expect_same(const char *application, const struct leat_policy *expected)
{
    struct leat_policy *found = fetch(application);
    EXPECT(found != NULL && found->bytes == expected->bytes && memcmp(found, expected, found->bytes) == 0);
    free(found);
}

/* ---- Made by the daemon -------------------------------------------------------------------------- */

static bool
was_kept(void)
{
    const bool kept = leatd_logged(&leatd, "application 'choice': policy as kept");
    EXPECT(kept != leatd_logged(&leatd, "application 'choice': policy made in"));
    return kept;
}

static void
test_made(void)
{
    struct setting others[] = {usual, usual, usual, usual, usual, usual};
    struct leat_policy *first = fetch("choice");

    EXPECT(!was_kept());
    restart(&usual, SIGKILL);
    EXPECT(was_kept());
    expect_same("choice", first);
    restart(&usual, SIGTERM);
    EXPECT(was_kept());
    others[0].workers = "1";
    others[1].accuracy = "0.900001";
    others[2].per_item = "2001us";
    others[3].latency = "40001us";
    others[4].late = "serve";
    others[5].name = "better";
    for (size_t o = 0; o < sizeof(others) / sizeof(others[0]); o++) {
        restart(&others[o], SIGTERM);
        EXPECT(!was_kept());
        struct leat_policy *now = fetch("choice");
        EXPECT(now->checksum != first->checksum);
        free(now);
    }
    restart(&usual, SIGTERM); /* one is kept, the last */
    EXPECT(!was_kept());
    expect_same("choice", first);
    free(first);
}

/* Of an application that was added, and changes while the daemon runs. */
static void
test_made_of_added(void)
{
    json_decref(ask("{\"op\":\"app-add\",\"name\":\"added\",\"models\":[\"good\",\"quick\"],\"latency_ns\":30000000}"));
    struct leat_policy *first = fetch("added");
    EXPECT(first->worker_count == 2); /* all, as long as nobody is busy */
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"added\",\"queue\":7}"));
    EXPECT(leatd_logged(&leatd, "application 'added': policy as kept"));
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"added\",\"latency_ns\":31000000}"));
    struct leat_policy *second = fetch("added");
    EXPECT(second->objective_ns == 31000000 && second->checksum != first->checksum);
    restart(&usual, SIGKILL);
    EXPECT(leatd_logged(&leatd, "application 'added': policy as kept"));
    expect_same("added", second);
    json_decref(ask("{\"op\":\"app-remove\",\"name\":\"added\"}"));
    free(first);
    free(second);
}

/* ---- Given as a file ----------------------------------------------------------------------------- */

static void
write_policy(const struct leat_policy *policy)
{
    FILE *file = fopen(policy_path, "wb");
    EXPECT(file != NULL && fwrite(policy, 1, policy->bytes, file) == policy->bytes && fclose(file) == 0);
}

static const char *
with_path(const char *before)
{
    static char text[512];
    EXPECT((size_t)snprintf(text, sizeof(text), "%s,\"policy\":\"%s\"}", before, policy_path) < sizeof(text));
    return text;
}

/* Changes the database as it lies. */
static void
execute(const char *sql)
{
    char path[200];
    sqlite3 *db;

    (void)snprintf(path, sizeof(path), "%s/state/registry.db", leatd.root.path);
    EXPECT(sqlite3_open(path, &db) == SQLITE_OK);
    EXPECT(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    EXPECT(sqlite3_close(db) == SQLITE_OK);
}

static void
test_given(void)
{
    json_decref(ask("{\"op\":\"app-add\",\"name\":\"one\",\"models\":[\"good\",\"quick\"],\"latency_ns\":30000000}"));
    struct leat_policy *first = fetch("choice"), *second = fetch("one");

    refuse(with_path(GIVEN), "cannot read policy");
    write_policy(first);
    json_decref(ask(with_path(GIVEN)));
    expect_same("given", first);
    EXPECT(unlink(policy_path) == 0);
    restart(&usual, SIGKILL);
    expect_same("given", first);
    refuse(with_path("{\"op\":\"app-change\",\"name\":\"given\""), "cannot read policy");
    write_policy(second); /* another one, that nobody has named yet */
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"given\",\"queue\":7}"));
    expect_same("given", first);
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"given\",\"remove_models\":[\"good\",\"quick\"]}"));
    EXPECT(fetch("given") == NULL);
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"given\",\"models\":[\"good\",\"quick\"]}"));
    expect_same("given", first);
    json_decref(ask(with_path("{\"op\":\"app-change\",\"name\":\"given\"")));
    expect_same("given", second);
    EXPECT(unlink(policy_path) == 0);
    restart(&usual, SIGTERM);
    expect_same("given", second);

    /* A selector that follows none wants it taken back. */
    refuse("{\"op\":\"app-change\",\"name\":\"given\",\"selector\":\"fixed\"}", "policy auto takes it back");
    expect_same("given", second);
    json_decref(ask("{\"op\":\"app-change\",\"name\":\"given\",\"selector\":\"fixed\",\"policy\":\"auto\"}"));
    restart(&usual, SIGTERM);
    EXPECT(fetch("given") == NULL);
    json_decref(ask("{\"op\":\"app-remove\",\"name\":\"given\"}"));
    free(first);
    free(second);
}

/* What schema 2 kept, and what a disk may make of it. */
static void
test_names_and_damage(void)
{
    struct leat_policy *first = fetch("choice");

    write_policy(first);
    json_decref(ask(with_path(GIVEN)));
    leatd_end(&leatd, SIGTERM);
    execute("UPDATE applications SET policy_table = x''");
    start(&usual);
    expect_same("given", first);
    EXPECT(unlink(policy_path) == 0);
    restart(&usual, SIGKILL);
    expect_same("given", first);
    leatd_end(&leatd, SIGTERM);
    execute("UPDATE applications SET policy_table = x''");
    start(&usual); /* too late */
    EXPECT(leatd_logged(&leatd, "kept application 'given' is not served") && leatd_logged(&leatd, "only the name of policy"));
    EXPECT(fetch("given") == NULL);
    leatd_end(&leatd, SIGTERM);
    execute("UPDATE applications SET policy_table = x'0102';"
            "UPDATE made_policies SET policy = zeroblob(length(policy)) WHERE application = 'choice'");
    start(&usual); /* the rest is served */
    EXPECT(leatd_logged(&leatd, "kept application 'given' is not served") && leatd_logged(&leatd, "as it was kept"));
    EXPECT(fetch("given") == NULL);
    EXPECT(leatd_logged(&leatd, "application 'choice': its kept policy is made anew") && !was_kept());
    expect_same("choice", first);
    write_policy(first);
    json_decref(ask(with_path("{\"op\":\"app-change\",\"name\":\"given\"")));
    expect_same("given", first);
    free(first);
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    (void)snprintf(policy_path, sizeof(policy_path), "%s/a.policy", leatd.root.path);
    start(&usual);
    test_made();
    test_made_of_added();
    test_given();
    test_names_and_damage();
    leatd_end(&leatd, SIGTERM);
    leatd_fini(&leatd);
    return 0;
}
