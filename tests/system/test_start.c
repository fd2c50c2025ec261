/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Whichever thread cannot be started, the daemon says which, does not serve, and can be destroyed: what was started
 *          before it ends, though it waits for an answer that only a daemon that serves can give.
 * Method   pthread_create fails for the n-th thread of a daemon that scales an application, looks after pinned workers and
 *          keeps an offline job, for each n; the last ones once the thread that scales waits for an answer.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include <leat/leat.h>

#include "base/align.h"
#include "runtime/cores.h"
#include "runtime/daemon_private.h"
#include "tests/leat_test.h"
#include "tests/runtime/fake_root.h"

static uint32_t started, failing; /* threads so far; the one that cannot be started */
static bool serves;               /* run is called: who scales is to have got as far as a question */
static sem_t asked;
static _Atomic bool told;

/* ---- What fails, and who asks ----------------------------------------------------------------- */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument);
int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument)
{
    return started++ == failing ? EAGAIN : __real_pthread_create(thread, attributes, main, argument);
}

enum leat_status __real_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app,
                                                  uint32_t variant, struct leat_profile_copy *copy);
enum leat_status __wrap_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app,
                                                  uint32_t variant, struct leat_profile_copy *copy);
/* With the daemon's mutex, which the real one releases when it waits: whoever takes it after `asked` finds it waiting. */
enum leat_status
__wrap_leat_daemon_copy_profiles(struct leat_daemon *daemon, const struct leat_application *app, uint32_t variant,
                                 struct leat_profile_copy *copy)
{
    if (!atomic_exchange(&told, true)) {
        EXPECT(sem_post(&asked) == 0);
    }
    return __real_leat_daemon_copy_profiles(daemon, app, variant, copy);
}

static void
await_question(void)
{
    while (sem_wait(&asked) != 0) {
    }
}

enum leat_status __real_leat_relief_keeper_start(struct leat_daemon *daemon);
enum leat_status __wrap_leat_relief_keeper_start(struct leat_daemon *daemon);
enum leat_status
__wrap_leat_relief_keeper_start(struct leat_daemon *daemon)
{
    if (serves) {
        await_question();
    }
    return __real_leat_relief_keeper_start(daemon);
}

/* ---- A daemon --------------------------------------------------------------------------------- */

struct box {
    struct fake_root root;
    char socket_path[160];
    struct leat_topology *topology;
    struct leat_placement *placement;
    struct leat_cores *cores;
    json_t *described;
};

static void
box_init(struct box *box)
{
    const struct leat_topology_source here = {0};
    const struct leat_worker_group group = {.count = 1, .cores = 1, .cores_max = 1};
    const struct leat_placement_request request = {.dispatcher_cpu = LEAT_AUTO, .groups = &group, .group_count = 1};

    fake_root_init(&box->root);
    (void)snprintf(box->socket_path, sizeof(box->socket_path), "%s/leat.sock", box->root.path);
    EXPECT(leat_topology_discover(&here, &box->topology) == LEAT_OK);
    EXPECT(leat_placement_make(box->topology, &request, &box->placement) == LEAT_OK);
    EXPECT(leat_cores_create(box->topology, box->placement, &box->cores) == LEAT_OK);
    box->described = json_pack("{s:s}", "text", "a machine");
}

static void
box_fini(struct box *box)
{
    leat_cores_destroy(box->cores);
    leat_placement_destroy(box->placement);
    leat_topology_destroy(box->topology);
    json_decref(box->described);
    fake_root_fini(&box->root);
}

/* With model and application "first" and an offline job for it, whose folders are not there. */
static enum leat_status
create(struct box *box, struct leat_daemon **ret_daemon)
{
    static const struct leat_tensor_info infos[2] = {
        {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
        {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 64}, .item_bytes = 64},
    };
    const struct leat_variant_source source = {.name = "model",
                                               .backend = "synthetic",
                                               .options_json = "{\"latency_ns\": 1000000}",
                                               .items_max = 4,
                                               .infos = infos,
                                               .input_count = 1,
                                               .output_count = 1};
    const struct leat_registry_application application = {
        .name = "first", .models = {"model"}, .model_count = 1, .latency_ns = 100000000, .queue = 16};
    const struct leat_registry_job job = {
        .id = 1, .application = "first", .input = "/nonexistent/in", .output = "/nonexistent/out"};
    const struct leat_worker_place *place = &box->placement->workers[0];
    const struct leat_daemon_worker worker = {
        .cpus = {place->cpus[0]}, .core_count = 1, .cores_max = 1, .node = place->node};
    const struct leat_daemon_options options = {
        .server = {.socket_path = box->socket_path,
                   .socket_mode = 0600,
                   .socket_group = (gid_t)-1,
                   .limits = {.sessions = 8, .sessions_per_user = 8, .bytes = 1 << 24, .bytes_per_user = 1 << 24},
                   .slots_default = 16,
                   .slots_max = 16,
                   .arena_default_bytes = 1 << 16,
                   .arena_max_bytes = 1 << 16},
        .workers = &worker,
        .worker_count = 1,
        .cores = box->cores,
        .scaling = {.mode = LEAT_SCALING_LEAT,
                    .interval_ns = 20000000,
                    .hold_ns = 1000000000,
                    .settle_ns = 200000000,
                    .forecast = LEAT_SCALING_FORESEES_NOTHING,
                    .application_count = 1,
                    .applications = {{.name = "first", .weight = 1}}},
        .pin = true,
        .dispatcher_cpu = (int)box->placement->dispatcher_cpu,
        .worker_depth = 2,
        .queue_capacity = 64,
        .topology = box->described,
    };

    enum leat_status status = leat_daemon_create(&options, ret_daemon);
    if (status == LEAT_OK) {
        EXPECT(leat_daemon_load_model(*ret_daemon, &source, NULL, false) == LEAT_OK);
        EXPECT(leat_daemon_add_application(*ret_daemon, &application, false) == LEAT_OK);
        EXPECT(leat_daemon_add_job(*ret_daemon, &job) == LEAT_OK);
    }
    return status;
}

/* How far it gets when thread n cannot be started. */
static enum leat_status
try(uint32_t n, bool stops, bool *ret_created)
{
    struct leat_daemon *daemon = NULL;
    struct box box;

    box_init(&box);
    started = 0;
    failing = n;
    atomic_store(&told, false);
    EXPECT(sem_init(&asked, 0, 0) == 0);
    enum leat_status status = create(&box, &daemon);
    *ret_created = status == LEAT_OK;
    if (status == LEAT_OK) {
        if (stops) {
            leat_daemon_stop(daemon);
        }
        serves = n > started; /* that scales is the first of run */
        status = leat_daemon_run(daemon, 0);
        serves = false;
    }
    if (status != LEAT_OK) {
        EXPECT(strncmp(leat_error_text(), "cannot start ", 13) == 0);
        EXPECT(strstr(leat_error_text(), strerror(EAGAIN)) != NULL);
    }
    leat_daemon_destroy(daemon);
    EXPECT(sem_destroy(&asked) == 0);
    box_fini(&box);
    return status;
}

static void
test_threads(void)
{
    uint32_t in_create = 0;
    bool created;

    EXPECT(try(UINT32_MAX, true, &created) == LEAT_OK);
    const uint32_t count = started;
    for (uint32_t n = 0; n < count; n++) {
        EXPECT(try(n, false, &created) == LEAT_ERR_LIMIT);
        in_create += !created;
    }
    EXPECT(count == in_create + 4); /* scaling, relief, offline jobs, memory */
}

int
main(void)
{
    leat_test_init();
    test_threads();
    return 0;
}
