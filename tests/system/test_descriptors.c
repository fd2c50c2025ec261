/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A daemon that may open so few files that two sessions are all that it promises keeps that promise whatever else
 *          it does: with as many offline jobs as there may be, one of which runs, administrative requests are answered,
 *          models are added and kept, and who wants one session more is refused for that limit. One file less, and it
 *          promises one.
 * Method   leatd, started by a shell with a limit of its own: first one that is too low, by which it says what it needs.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/system/leatd.h"

enum { JOBS_MAX = 64, ITEM_BYTES = 16, OF_SESSION = 9 };

static struct leatd leatd;
static const char *the_leatd;

static const char *
path_of(const char *name)
{
    static char paths[4][320];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s", leatd.root.path, name);
    return path;
}

/* What it says that it needs, where it does not start. */
static unsigned
least_files(void)
{
    char text[1024], line[1024];
    unsigned least = 0;

    (void)snprintf(text, sizeof(text), "socket: %s\nstate_dir: %s/state\nworkers: [{count: 1}]\n", leatd.socket_path,
                   leatd.root.path);
    fake_root_write(&leatd.root, "/few.yaml", text);
    (void)snprintf(text, sizeof(text), "ulimit -n 64 && exec '%s' --config '%s' 2>&1", the_leatd, path_of("few.yaml"));
    FILE *said = popen(text, "r");
    EXPECT(said != NULL);
    while (fgets(line, sizeof(line), said) != NULL) {
        const char *part = strstr(line, "(RLIMIT_NOFILE), and at least ");
        EXPECT(least == 0 || part == NULL);
        least = part != NULL ? (unsigned)strtoul(strstr(part, "least ") + 6, NULL, 10) : least;
    }
    EXPECT(pclose(said) != 0 && least > 64);
    return least;
}

static void
start_with(unsigned files)
{
    static char script[320];
    char text[512];

    (void)snprintf(text, sizeof(text), "#!/bin/sh\nulimit -n %u && exec '%s' \"$@\"\n", files, the_leatd);
    fake_root_write(&leatd.root, "/start.sh", text);
    (void)strcpy(script, path_of("start.sh"));
    EXPECT(chmod(script, 0700) == 0);
    leatd.program = script;
    leatd_start(&leatd, "workers: [{count: 1}]\n");
}

static void
expect_done(struct leat_session *session, const char *text)
{
    json_t *answer = leatd_request(session, text);
    if (json_object_get(answer, "error") != NULL) {
        (void)fprintf(stderr, "%s: %s\n", text, json_string_value(json_object_get(answer, "error")));
        EXPECT(!"it is answered");
    }
    json_decref(answer);
}

/* Its status. */
static json_int_t
submit(struct leat_session *session, uint32_t job)
{
    char name[64], text[1024];
    char *reply;

    (void)snprintf(name, sizeof(name), "out-%u", job);
    EXPECT(mkdir(path_of(name), 0700) == 0);
    const int fds[2] = {open(path_of("in"), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                        open(path_of(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    (void)snprintf(text, sizeof(text),
                   "{\"op\":\"offline-submit\",\"application\":\"slow\",\"input\":\"%s\",\"output\":\"%s\"}", path_of("in"),
                   path_of(name));
    EXPECT(leat_admin_files(session, text, fds, 2, &reply) == LEAT_OK);
    EXPECT(close(fds[0]) == 0 && close(fds[1]) == 0);
    json_t *answer = json_loads(reply, JSON_REJECT_DUPLICATES, NULL);
    const json_int_t status = json_integer_value(json_object_get(answer, "status"));
    if (json_object_get(answer, "error") != NULL && status != LEAT_ERR_LIMIT) {
        (void)fprintf(stderr, "job %u: %s\n", job, reply);
    }
    json_decref(answer);
    leat_admin_free(reply);
    return status;
}

static uint64_t
in_flight(struct leat_session *session)
{
    json_t *job = leatd_request(session, "{\"op\":\"offline-show\",\"id\":1}");
    const uint64_t count = leatd_number(job, "in_flight");
    json_decref(job);
    return count;
}

static void
expect_no_other_session(void)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *other;

    options.socket_path = leatd.socket_path;
    EXPECT(leat_open(&options, &other) == LEAT_ERR_LIMIT);
    EXPECT(strstr(leat_error_text(), "RLIMIT_NOFILE") != NULL);
}

static unsigned
count_files(void)
{
    char path[64];
    unsigned count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)leatd.pid);
    DIR *folder = opendir(path);
    EXPECT(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    EXPECT(closedir(folder) == 0);
    return count;
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    the_leatd = leatd.program;
    const unsigned least = least_files(), two = least + 2 * OF_SESSION;

    start_with(two - 1); /* of which files of models have half */
    struct leat_session *session = leatd_open_session(&leatd, 2, 4096);
    expect_no_other_session();
    leat_close(session);
    leatd_end(&leatd, SIGTERM);

    start_with(two);
    session = leatd_open_session(&leatd, 2, 4096);
    expect_done(session, "{\"op\":\"model-add\",\"name\":\"slow\",\"backend\":\"synthetic\",\"items_max\":1,"
                         "\"input_bytes\":16,\"output_bytes\":16,\"options\":{\"latency_ns\":100000000}}");
    EXPECT(mkdir(path_of("in"), 0700) == 0);
    for (uint32_t item = 0; item < 1000; item++) { /* for minutes */
        char name[32];
        (void)snprintf(name, sizeof(name), "/in/%u.raw", item);
        fake_root_write(&leatd.root, name, "as many as it is");
    }
    for (uint32_t job = 1; job <= JOBS_MAX; job++) {
        EXPECT(submit(session, job) == 0);
    }
    EXPECT(submit(session, JOBS_MAX + 1) == LEAT_ERR_LIMIT);
    while (in_flight(session) == 0) {
        leat_test_look_later();
    }
    for (uint32_t round = 0; round < 20; round++) {
        char text[256];
        expect_no_other_session();
        expect_done(session, "{\"op\":\"status\"}");
        expect_done(session, "{\"op\":\"offline-list\"}");
        (void)snprintf(text, sizeof(text),
                       "{\"op\":\"model-add\",\"name\":\"m%u\",\"backend\":\"synthetic\",\"items_max\":1,"
                       "\"input_bytes\":16,\"output_bytes\":16,\"options\":{\"latency_ns\":1000000}}",
                       round);
        expect_done(session, text);
    }
    EXPECT(in_flight(session) > 0 && count_files() > 2 * JOBS_MAX && count_files() <= two);
    EXPECT(!leatd_logged(&leatd, "cannot accept connections"));
    leat_close(session);
    leatd_end(&leatd, SIGKILL);
    leatd_fini(&leatd);
    return 0;
}
