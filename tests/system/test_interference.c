/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A worker whose core others use as well moves to another core by itself, its threads with it, and loses no query,
 *          whether cores follow the load or not; one whose CPU the configuration lists stays where they do not, and says so.
 * Method   leatd as a process, with a network of leat-zoo in its test size, first scaled, then not. Processes that do nothing
 *          but burn the worker's CPU begin once it has served for a while. Where its leader runs is looked at in /proc. States
 *          are waited for; where no core is free there is nowhere to go.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"
#include "runtime/topology.h"
#include "tests/system/leatd.h"
#include "tools/zoo/zoo.h"

/* A batch takes longer than the kernel lets a thread run at a stretch, or the burners would be hardly felt; but there are several a second. */
#if defined(__SANITIZE_THREAD__)
enum { ITEMS = 16 };
#elif defined(__SANITIZE_ADDRESS__)
enum { ITEMS = 32 };
#else
enum { ITEMS = 128 };
#endif
enum { BURNERS = 8, WARM_UP = 50, PATIENCE = 200 };

static const char config[] = "dispatcher: {own_core: %s}\n"
                             "workers: [{count: 1, cores: 1, cpus: \"%s\"}]\n"
                             "models: [{name: net, path: %s/net.onnx, items_max: %u}]\n"
                             "applications: [{name: app, models: [net], latency: 5s}]\n"
                             "%s";
static const char scaled[] = "scaling: {mode: leat, applications: [{name: app}]}\n";

static struct leatd leatd;

/* ---- Queries, one at a time: no load to speak of ------------------------------------------------------- */

static _Atomic uint64_t answered;
static _Atomic bool stop;

static void *
load(void *argument)
{
    struct leat_session *session = leatd_open_session(&leatd, 2, UINT64_C(64) << 20);
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;
    struct leat_target target;
    size_t count;

    (void)argument;
    EXPECT(leat_find(session, "app", &target) == LEAT_OK);
    query.target = target.id;
    query.items = ITEMS;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(session, ITEMS * target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    memset(query.tensors[0], 0, ITEMS * target.tensors[0].item_bytes);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        EXPECT(leat_submit(session, &query, NULL) == LEAT_OK);
        EXPECT(leat_wait(session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1 && done.outcome == LEAT_OUTCOME_OK);
        (void)atomic_fetch_add_explicit(&answered, 1, memory_order_relaxed);
    }
    leat_close(session);
    return NULL;
}

/* ---- Cores --------------------------------------------------------------------------------------------- */

static uint32_t
cpu_of_worker(struct leat_session *session, uint64_t *ret_moves)
{
    json_t *shown = leatd_request(session, "{\"op\":\"scale-show\"}");
    const json_t *worker = json_array_get(json_object_get(shown, "workers"), 0);
    const uint32_t cpu = (uint32_t)json_integer_value(json_array_get(json_object_get(worker, "cpus"), 0));

    EXPECT(json_array_size(json_object_get(worker, "cpus")) == 1);
    *ret_moves = leatd_number(worker, "moves");
    json_decref(shown);
    return cpu;
}

/* The only CPU that the leader may run on. */
static uint32_t
cpu_of_leader(void)
{
    char path[320], name[32];
    uint32_t cpu = UINT32_MAX;
    const struct dirent *entry;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)leatd.pid);
    DIR *tasks = opendir(path);
    EXPECT(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)leatd.pid, entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file != NULL) {
            if (fscanf(file, "%31s", name) == 1 && strcmp(name, "leat-worker-0") == 0) {
                EXPECT(leatd_thread_cpus((pid_t)atoi(entry->d_name), &cpu) == 1);
            }
            EXPECT(fclose(file) == 0);
        }
    }
    EXPECT(closedir(tasks) == 0 && cpu != UINT32_MAX);
    return cpu;
}

static pid_t
burn(uint32_t cpu)
{
    const pid_t parent = getpid(), pid = fork();
    cpu_set_t set;

    EXPECT(pid >= 0);
    if (pid > 0) {
        return pid;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || sched_setaffinity(0, sizeof(set), &set) != 0) {
        _exit(1);
    }
    for (volatile uint64_t turns = 0;; turns++) {
    }
}

/* `cpus`: "" where leat chooses. */
static void
start(const char *cpus, const char *scaling)
{
    static char text[sizeof(config) + sizeof(scaled) + 200];

    (void)snprintf(text, sizeof(text), config, leatd_cpus() < 3 ? "false" : "true", cpus, leatd.root.path, ITEMS, scaling);
    leatd_start(&leatd, text);
}

static void
write_network(void)
{
    char path[320];
    size_t file_bytes;
    void *file;

    EXPECT(zoo_write(zoo_find("resnet18"), ZOO_SIZE_TEST, leat_test_seed, &file, &file_bytes) == LEAT_OK);
    (void)snprintf(path, sizeof(path), "%s/net.onnx", leatd.root.path);
    FILE *out = fopen(path, "wb");
    EXPECT(out != NULL && fwrite(file, file_bytes, 1, out) == 1 && fclose(out) == 0);
    free(file);
}

static void
end_burners(const pid_t *burners)
{
    for (uint32_t b = 0; b < BURNERS; b++) {
        int status;
        EXPECT(kill(burners[b], SIGKILL) == 0 && waitpid(burners[b], &status, 0) == burners[b] && WIFSIGNALED(status));
    }
}

/* The CPU that the worker left; the burners are there still. LEAT_CPU_MAX, and none are: so many queries were answered beside them. */
static uint32_t
burn_until_moved(struct leat_session *control, pid_t *burners)
{
    uint64_t moves, before;
    const uint32_t burnt = cpu_of_worker(control, &before);

    for (uint32_t b = 0; b < BURNERS; b++) {
        burners[b] = burn(burnt);
    }
    const uint64_t until = atomic_load_explicit(&answered, memory_order_relaxed) + PATIENCE;
    while (cpu_of_worker(control, &moves) == burnt || moves == before) {
        if (atomic_load_explicit(&answered, memory_order_relaxed) >= until) {
            end_burners(burners);
            return LEAT_CPU_MAX;
        }
        leat_test_look_later();
    }
    return burnt;
}

/* Cores that nobody has, and why the worker would stay. */
static uint64_t
count_free(struct leat_session *control, char *stays, size_t bytes)
{
    json_t *shown = leatd_request(control, "{\"op\":\"scale-show\"}");
    const json_t *worker = json_array_get(json_object_get(shown, "workers"), 0);
    const uint64_t free_cores = leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores");

    (void)snprintf(stays, bytes, "%s", json_string_value(json_object_get(worker, "stays")));
    json_decref(shown);
    return free_cores;
}

static void
test_moving(struct leat_session *control)
{
    pid_t burners[BURNERS];
    pthread_t thread;
    uint64_t moves;

    atomic_store_explicit(&answered, 0, memory_order_relaxed);
    atomic_store_explicit(&stop, false, memory_order_relaxed);
    EXPECT(pthread_create(&thread, NULL, load, NULL) == 0);
    while (atomic_load_explicit(&answered, memory_order_relaxed) < WARM_UP) {
        leat_test_look_later();
    }
    uint32_t burnt = burn_until_moved(control, burners);
    while (burnt == LEAT_CPU_MAX) { /* it was measured when the machine was as busy: anew */
        json_decref(leatd_request(control, "{\"op\":\"model-profile\",\"name\":\"net\"}"));
        burnt = burn_until_moved(control, burners);
    }
    while (cpu_of_leader() != cpu_of_worker(control, &moves)) { /* it may move once more in between */
        leat_test_look_later();
    }
    EXPECT(leatd_logged(&leatd, "batches of 'app' took much longer there"));
    end_burners(burners);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    EXPECT(pthread_join(thread, NULL) == 0);
    (void)printf("moved off CPU %u, %llu queries\n", burnt,
                 (unsigned long long)atomic_load_explicit(&answered, memory_order_relaxed));
}

/* False: there is nowhere to move to. */
static bool
test_mode(const char *scaling)
{
    char stays[128];

    start("", scaling);
    struct leat_session *control = leatd_open_session(&leatd, 2, 4096);
    const bool room = count_free(control, stays, sizeof(stays)) > 0;
    if (room) {
        EXPECT(stays[0] == '\0');
        test_moving(control);
    }
    leat_close(control);
    leatd_end(&leatd, SIGTERM);
    return room;
}

static void
expect_listed(const char *scaling, const char *expected)
{
    cpu_set_t set;
    char cpu[16], stays[128];
    size_t last = 0;

    EXPECT(sched_getaffinity(0, sizeof(set), &set) == 0);
    for (size_t c = 0; c < CPU_SETSIZE; c++) {
        last = CPU_ISSET(c, &set) ? c : last;
    }
    (void)snprintf(cpu, sizeof(cpu), "%zu", last);
    start(cpu, scaling);
    struct leat_session *control = leatd_open_session(&leatd, 2, 4096);
    (void)count_free(control, stays, sizeof(stays));
    EXPECT(strstr(stays, expected) != NULL && (stays[0] == '\0') == (expected[0] == '\0'));
    leat_close(control);
    leatd_end(&leatd, SIGTERM);
}

int
main(void)
{
    leat_test_init();
    leatd_init(&leatd);
    write_network();
    const bool room = test_mode(scaled) && test_mode("");
    if (room) {
        expect_listed(scaled, "");
        expect_listed("", "the configuration lists its CPUs");
    }
    leatd_fini(&leatd);
    if (!room) {
        (void)printf("no core is free: there is nowhere to move to\n");
        return LEAT_TEST_SKIP;
    }
    return 0;
}
