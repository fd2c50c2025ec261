/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Whoever asks what the daemon does or serves is answered at once, also while a model is being loaded; loads and
 *          removals keep their order among themselves.
 * Method   The daemon's own parts in this process, with a store that holds the thread that loads until the test says so.
 */
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include <leat/leat.h>

#include "runtime/daemon.h"
#include "tests/runtime/fake_root.h"

struct daemon {
    struct fake_root root;
    char socket_path[160];
    struct leat_daemon *daemon;
    pthread_t thread;
    sem_t serving, stopped;
    sem_t held, release; /* one of each for every model that the store is given */
};

static void
wait_for(sem_t *event)
{
    while (sem_wait(event) != 0) {
    }
}

static enum leat_status
hold(void *context, const struct leat_variant_source *source)
{
    struct daemon *daemon = context;
    (void)source;
    EXPECT(sem_post(&daemon->held) == 0);
    wait_for(&daemon->release);
    return LEAT_OK;
}

static enum leat_status
forget(void *context, const char *name)
{
    (void)context;
    (void)name;
    return LEAT_OK;
}

/* Create, run and destroy belong on one thread. */
static void *
serve(void *argument)
{
    static const struct leat_daemon_worker worker = {.core_count = 1};
    struct daemon *daemon = argument;
    const struct leat_daemon_store store = {hold, forget, daemon};
    json_t *topology = json_pack("{s:s}", "text", "a machine");
    const struct leat_daemon_options options = {
        .server = {.socket_path = daemon->socket_path,
                   .socket_mode = 0600,
                   .socket_group = (gid_t)-1,
                   .sessions_max = 8,
                   .sessions_per_user = 8,
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
    EXPECT(leat_daemon_run(daemon->daemon, UINT64_MAX) == LEAT_OK);
    wait_for(&daemon->stopped); /* whoever stops it has let go of it */
    leat_daemon_destroy(daemon->daemon);
    json_decref(topology);
    return NULL;
}

static void
start(struct daemon *daemon)
{
    fake_root_init(&daemon->root);
    (void)snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/leat.sock", daemon->root.path);
    EXPECT(sem_init(&daemon->serving, 0, 0) == 0 && sem_init(&daemon->stopped, 0, 0) == 0);
    EXPECT(sem_init(&daemon->held, 0, 0) == 0 && sem_init(&daemon->release, 0, 0) == 0);
    EXPECT(pthread_create(&daemon->thread, NULL, serve, daemon) == 0);
    wait_for(&daemon->serving);
}

static void
stop(struct daemon *daemon)
{
    leat_daemon_stop(daemon->daemon);
    EXPECT(sem_post(&daemon->stopped) == 0);
    EXPECT(pthread_join(daemon->thread, NULL) == 0);
    EXPECT(sem_destroy(&daemon->serving) == 0 && sem_destroy(&daemon->stopped) == 0);
    EXPECT(sem_destroy(&daemon->held) == 0 && sem_destroy(&daemon->release) == 0);
    fake_root_fini(&daemon->root);
}

static json_t *
ask(const struct daemon *daemon, const char *text)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    char *reply;

    options.socket_path = daemon->socket_path;
    EXPECT(leat_open(&options, &session) == LEAT_OK);
    EXPECT(leat_admin(session, text, -1, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, JSON_REJECT_DUPLICATES, NULL);
    EXPECT(answer != NULL);
    leat_admin_free(reply);
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

static void
finish(struct asker *asker, const char *key)
{
    EXPECT(pthread_join(asker->thread, NULL) == 0);
    EXPECT(json_object_get(asker->answer, key) != NULL);
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

    start(&daemon);
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
    stop(&daemon);
}

/* Looking goes on while models come and go: what one thread takes away, the other does not touch any more. */
static void
test_looking_while_models_come_and_go(void)
{
    enum { ROUNDS = 50 };
    struct daemon daemon;

    start(&daemon);
    for (int round = 0; round < ROUNDS; round++) {
        struct asker change;
        begin(&change, &daemon, "model-add", "model");
        EXPECT(count(&daemon, "status", "applications") <= 1);
        EXPECT(sem_post(&daemon.release) == 0);
        EXPECT(count(&daemon, "model-list", "models") <= 1);
        finish(&change, "latency_ns");
        begin(&change, &daemon, "model-remove", "model");
        EXPECT(count(&daemon, "status", "applications") <= 1);
        EXPECT(count(&daemon, "model-list", "models") <= 1);
        finish(&change, "removed");
    }
    stop(&daemon);
}

int
main(void)
{
    leat_test_init();
    test_looking_does_not_wait_for_a_load();
    test_looking_while_models_come_and_go();
    return 0;
}
