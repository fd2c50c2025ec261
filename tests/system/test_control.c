/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Whoever asks what the daemon does or serves is answered at once, also while a model is being loaded; loads and
 *          removals keep their order among themselves, and do not hold the daemon's end up. Where io_uring is forbidden
 *          it does not start, and says what to do.
 * Method   The daemon's own parts in this process, with a store that holds the thread that loads until the test says so.
 */
#include <errno.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "runtime/daemon_private.h"
#include "tests/runtime/fake_root.h"

struct daemon {
    struct fake_root root;
    char socket_path[160];
    struct leat_daemon *daemon;
    pthread_t thread;
    uint64_t drain_ns;
    enum leat_status ended; /* how leat_daemon_run shall end */
    sem_t serving, drained, stopped;
    sem_t held, release; /* one of each for every model that the store is given */
};

static void
wait_for(sem_t *event)
{
    while (sem_wait(event) != 0) {
    }
}

static enum leat_status
hold(void *context, const struct leat_daemon_change *change)
{
    struct daemon *daemon = context;
    if (change->model_count > 0) {
        EXPECT(sem_post(&daemon->held) == 0);
        wait_for(&daemon->release);
    }
    return LEAT_OK;
}

/* Create, run and destroy belong on one thread. */
static void *
serve(void *argument)
{
    static const struct leat_daemon_worker worker = {.core_count = 1};
    struct daemon *daemon = argument;
    const struct leat_daemon_store store = {.keep = hold, .context = daemon};
    json_t *topology = json_pack("{s:s}", "text", "a machine");
    const struct leat_daemon_options options = {
        .server = {.socket_path = daemon->socket_path,
                   .socket_mode = 0600,
                   .socket_group = (gid_t)-1,
                   .limits = {.sessions = 8, .sessions_per_user = 8, .bytes = 1 << 24, .bytes_per_user = 1 << 24},
                   .slots_default = 16,
                   .slots_max = 16,
                   .arena_default_bytes = 1 << 16,
                   .arena_max_bytes = 1 << 16},
        .workers = &worker,
        .worker_count = 1,
        .dispatcher_cpu = -1,
        .worker_depth = 2,
        .queue_capacity = 64,
        .store = &store,
        .topology = topology,
    };

    EXPECT(leat_daemon_create(&options, &daemon->daemon) == LEAT_OK);
    EXPECT(sem_post(&daemon->serving) == 0);
    EXPECT(leat_daemon_run(daemon->daemon, daemon->drain_ns) == daemon->ended);
    EXPECT(sem_post(&daemon->drained) == 0);
    wait_for(&daemon->stopped); /* whoever stops it has let go of it */
    leat_daemon_destroy(daemon->daemon);
    json_decref(topology);
    return NULL;
}

static void
start(struct daemon *daemon, uint64_t drain_ns, enum leat_status ended)
{
    *daemon = (struct daemon){.drain_ns = drain_ns, .ended = ended};
    fake_root_init(&daemon->root);
    (void)snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/leat.sock", daemon->root.path);
    EXPECT(sem_init(&daemon->serving, 0, 0) == 0 && sem_init(&daemon->stopped, 0, 0) == 0);
    EXPECT(sem_init(&daemon->drained, 0, 0) == 0);
    EXPECT(sem_init(&daemon->held, 0, 0) == 0 && sem_init(&daemon->release, 0, 0) == 0);
    EXPECT(pthread_create(&daemon->thread, NULL, serve, daemon) == 0);
    wait_for(&daemon->serving);
}

/* Stops the daemon, which ends while `held` loads are; releases them then. */
static void
stop(struct daemon *daemon, uint32_t held)
{
    leat_daemon_stop(daemon->daemon);
    wait_for(&daemon->drained);
    while (held-- > 0) {
        EXPECT(sem_post(&daemon->release) == 0);
    }
    EXPECT(sem_post(&daemon->stopped) == 0);
    EXPECT(pthread_join(daemon->thread, NULL) == 0);
    EXPECT(sem_destroy(&daemon->serving) == 0 && sem_destroy(&daemon->stopped) == 0);
    EXPECT(sem_destroy(&daemon->drained) == 0);
    EXPECT(sem_destroy(&daemon->held) == 0 && sem_destroy(&daemon->release) == 0);
    fake_root_fini(&daemon->root);
}

/* NULL when the daemon ends before it answers. */
static json_t *
ask(const struct daemon *daemon, const char *text)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    enum leat_status status;
    json_t *answer = NULL;
    char *reply;

    options.socket_path = daemon->socket_path;
    do { /* sessions of earlier questions count until their memory has been given back */
        status = leat_open(&options, &session);
    } while (status == LEAT_ERR_LIMIT);
    EXPECT(status == LEAT_OK);
    status = leat_admin(session, text, -1, &reply);
    if (status == LEAT_OK) {
        answer = json_loads(reply, JSON_REJECT_DUPLICATES, NULL);
        EXPECT(answer != NULL);
        leat_admin_free(reply);
    }
    EXPECT(status == LEAT_OK || status == LEAT_ERR_DISCONNECTED);
    leat_close(session);
    return answer;
}

/* A request that its own thread sends and waits for. */
struct asker {
    const struct daemon *daemon;
    char text[160];
    json_t *answer;
    pthread_t thread;
};

static void *
ask_apart(void *argument)
{
    struct asker *asker = argument;
    asker->answer = ask(asker->daemon, asker->text);
    return NULL;
}

static void
begin(struct asker *asker, const struct daemon *daemon, const char *op, const char *name)
{
    *asker = (struct asker){.daemon = daemon};
    (void)snprintf(asker->text, sizeof(asker->text),
                   "{\"op\":\"%s\",\"name\":\"%s\",\"backend\":\"synthetic\",\"options\":{},\"items_max\":1}", op, name);
    EXPECT(pthread_create(&asker->thread, NULL, ask_apart, asker) == 0);
}

/* The answer must have this key; NULL: there must be none. */
static void
finish(struct asker *asker, const char *key)
{
    EXPECT(pthread_join(asker->thread, NULL) == 0);
    EXPECT(key == NULL ? asker->answer == NULL : json_object_get(asker->answer, key) != NULL);
    json_decref(asker->answer);
}

static size_t
count(const struct daemon *daemon, const char *op, const char *key)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "{\"op\":\"%s\"}", op);
    json_t *answer = ask(daemon, text);
    const json_t *array = json_object_get(answer, key);
    EXPECT(json_is_array(array));
    const size_t entries = json_array_size(array);
    json_decref(answer);
    return entries;
}

static void
test_looking_does_not_wait_for_a_load(void)
{
    struct daemon daemon;
    struct asker add, remove;

    start(&daemon, UINT64_MAX, LEAT_OK);
    EXPECT(count(&daemon, "model-list", "models") == 0);
    begin(&add, &daemon, "model-add", "first");
    wait_for(&daemon.held); /* and until the release below, the thread that loads does nothing else */
    EXPECT(count(&daemon, "status", "applications") == 1);
    EXPECT(count(&daemon, "model-list", "models") == 1);
    json_t *topology = ask(&daemon, "{\"op\":\"topology\"}");
    EXPECT(strcmp(json_string_value(json_object_get(topology, "text")), "a machine") == 0);
    json_decref(topology);
    json_t *refusal = ask(&daemon, "{\"op\":\"model-shake\"}");
    EXPECT(json_integer_value(json_object_get(refusal, "status")) == LEAT_ERR_UNSUPPORTED);
    json_decref(refusal);

    begin(&remove, &daemon, "model-remove", "first"); /* comes after the load, not into it */
    EXPECT(count(&daemon, "model-list", "models") == 1);
    EXPECT(sem_post(&daemon.release) == 0);
    finish(&add, "latency_ns");
    finish(&remove, "removed");
    EXPECT(count(&daemon, "status", "applications") == 0);
    EXPECT(count(&daemon, "model-list", "models") == 0);
    stop(&daemon, 0);
}

/* Files that came with requests and wait are bounded: who brings more is told to come again, and others are answered. */
static void *
ask_with_files(void *argument)
{
    struct asker *asker = argument;
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    int fds[LEAT_SOCKET_FDS_MAX];
    char *reply;

    for (uint32_t f = 0; f < LEAT_SOCKET_FDS_MAX; f++) {
        fds[f] = STDERR_FILENO;
    }
    options.socket_path = asker->daemon->socket_path;
    EXPECT(leat_open(&options, &session) == LEAT_OK);
    EXPECT(leat_admin_files(session, asker->text, fds, LEAT_SOCKET_FDS_MAX, &reply) == LEAT_OK);
    asker->answer = json_loads(reply, JSON_REJECT_DUPLICATES, NULL);
    leat_admin_free(reply);
    leat_close(session);
    return NULL;
}

static void
test_files_of_requests_are_bounded(void)
{
    struct asker add, with_files[LEAT_ADMIN_DESCRIPTORS / LEAT_SOCKET_FDS_MAX + 1];
    const uint32_t room = LEAT_ADMIN_DESCRIPTORS / LEAT_SOCKET_FDS_MAX;
    struct daemon daemon;

    start(&daemon, UINT64_MAX, LEAT_OK);
    begin(&add, &daemon, "model-add", "first");
    wait_for(&daemon.held);
    for (uint32_t a = 0; a < room; a++) {
        with_files[a] = (struct asker){.daemon = &daemon, .text = "{\"op\":\"model-remove\",\"name\":\"nobody\"}"};
        EXPECT(pthread_create(&with_files[a].thread, NULL, ask_with_files, &with_files[a]) == 0);
    }
    while (atomic_load_explicit(&daemon.daemon->admin_descriptors, memory_order_relaxed) < LEAT_ADMIN_DESCRIPTORS) {
        leat_test_look_later();
    }
    with_files[room] = with_files[0];
    (void)ask_with_files(&with_files[room]);
    EXPECT(json_integer_value(json_object_get(with_files[room].answer, "status")) == LEAT_ERR_LIMIT);
    json_decref(with_files[room].answer);
    EXPECT(count(&daemon, "model-list", "models") == 1);
    EXPECT(sem_post(&daemon.release) == 0);
    finish(&add, "latency_ns");
    for (uint32_t a = 0; a < room; a++) {
        finish(&with_files[a], "error"); /* there is nobody */
    }
    while (atomic_load_explicit(&daemon.daemon->admin_descriptors, memory_order_relaxed) > 0) {
        leat_test_look_later(); /* they are given back behind the answer */
    }
    stop(&daemon, 0);
}

/* A session with tensors for the models of these tests, so that nothing but the query is left to do. */
static struct leat_session *
open_with_tensors(const struct daemon *daemon, struct leat_query *query)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;

    options.socket_path = daemon->socket_path;
    EXPECT(leat_open(&options, &session) == LEAT_OK);
    *query = (struct leat_query)LEAT_QUERY_INIT;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, 64, &query->tensors[t]) == LEAT_OK);
    }
    return session;
}

/*
 * Looking goes on while models come and go: what one thread takes away, the other does not touch any more. Whoever was told
 * that a model is there can ask it.
 */
static void
test_looking_while_models_come_and_go(void)
{
    enum { ROUNDS = 200 };
    const char add[] = "{\"op\":\"model-add\",\"name\":\"model\",\"backend\":\"synthetic\",\"options\":{},\"items_max\":1}";
    struct daemon daemon;
    struct leat_query query;

    start(&daemon, UINT64_MAX, LEAT_OK);
    struct leat_session *session = open_with_tensors(&daemon, &query);
    for (int round = 0; round < ROUNDS; round++) {
        struct leat_completion done;
        struct leat_target target;
        struct asker remove;
        char *reply;
        EXPECT(sem_post(&daemon.release) == 0);
        EXPECT(leat_admin(session, add, -1, &reply) == LEAT_OK);
        EXPECT(leat_find(session, "model", &target) == LEAT_OK);
        query.target = target.id;
        EXPECT(leat_run(session, &query, &done) == LEAT_OK && done.outcome == LEAT_OUTCOME_OK);
        EXPECT(strstr(reply, "latency_ns") != NULL);
        leat_admin_free(reply);
        begin(&remove, &daemon, "model-remove", "model");
        EXPECT(count(&daemon, "status", "applications") <= 1);
        EXPECT(count(&daemon, "model-list", "models") <= 1);
        finish(&remove, "removed");
    }
    leat_close(session);
    stop(&daemon, 0);
}

/* Told to end at once, the daemon does not wait for a load, whose answer nobody would hear. */
static void
test_a_load_does_not_hold_the_end_up(void)
{
    struct daemon daemon;
    struct asker add;

    start(&daemon, UINT64_MAX, LEAT_TIMEOUT);
    begin(&add, &daemon, "model-add", "first");
    wait_for(&daemon.held);
    leat_daemon_stop(daemon.daemon); /* and again in stop() */
    stop(&daemon, 1);
    finish(&add, NULL);
}

/* What the drain leaves of its time is enough for a load to end in order. */
static void
test_a_load_may_end_in_time(void)
{
    struct daemon daemon;
    struct asker add;

    start(&daemon, UINT64_MAX, LEAT_OK);
    begin(&add, &daemon, "model-add", "first");
    wait_for(&daemon.held);
    leat_daemon_stop(daemon.daemon);
    finish(&add, NULL); /* the drain is over, which closed the session */
    EXPECT(sem_post(&daemon.release) == 0);
    wait_for(&daemon.drained);
    EXPECT(sem_post(&daemon.drained) == 0);
    stop(&daemon, 0);
}

/* The kernel, told to refuse io_uring as a container's filter does. False when it knows no filters. */
static bool
forbid_io_uring(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = LEAT_COUNT_OF(program), .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void
test_without_io_uring_it_says_why(void)
{
    int ended = -1;

    (void)fflush(NULL);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        const struct leat_daemon_worker worker = {.core_count = 1};
        const struct leat_daemon_options options = {.server = {.socket_path = "/nowhere/leat.sock"},
                                                    .workers = &worker,
                                                    .worker_count = 1,
                                                    .dispatcher_cpu = -1,
                                                    .worker_depth = 1,
                                                    .queue_capacity = 64};
        struct leat_daemon *daemon;
        if (!forbid_io_uring()) {
            _exit(LEAT_TEST_SKIP);
        }
        EXPECT(leat_daemon_create(&options, &daemon) == LEAT_ERR_SYS);
        EXPECT(strstr(leat_error_text(), "kernel.io_uring_disabled") != NULL);
        EXPECT(strstr(leat_error_text(), "seccomp filter") != NULL);
        EXPECT(strstr(leat_error_text(), "Operation not permitted") != NULL);
        _exit(0);
    }
    EXPECT(waitpid(child, &ended, 0) == child && WIFEXITED(ended));
    if (WEXITSTATUS(ended) == LEAT_TEST_SKIP) {
        (void)printf("left out: without io_uring, this kernel has no seccomp filters\n");
        return;
    }
    EXPECT(WEXITSTATUS(ended) == 0);
}

int
main(void)
{
    leat_test_init();
    test_without_io_uring_it_says_why(); /* forks: before there are threads */
    test_looking_does_not_wait_for_a_load();
    test_looking_while_models_come_and_go();
    test_files_of_requests_are_bounded();
    test_a_load_does_not_hold_the_end_up();
    test_a_load_may_end_in_time();
    return 0;
}
