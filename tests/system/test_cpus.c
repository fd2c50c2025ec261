/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Threads of leatd that the kernel does not hold to their CPUs any more are held to them again. CPUs that go are
 *          noticed and told: no thread is held to one, a worker has another, or none as long as it is gone while others
 *          serve, and the dispatcher runs wherever it can; queries are answered all the while. Once the CPU is there again,
 *          all is as it was. Who has a CPU that the configuration lists gets no other.
 * Method   leatd as a process. Pins are taken from its threads as an administrator would, and a CPU from the one thread
 *          that looks, whose own affinity says which there are. With LEAT_TEST_CPUS=offline a CPU goes offline too, and
 *          with LEAT_TEST_CPUS=all it is also taken from the group above the daemon's: on a machine of the test's own.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/topology.h"
#include "tests/system/leatd.h"
#include "tools/zoo/zoo.h"

enum { WORKERS_MAX = 2, THREADS_MAX = 64 };

static const char config[] = "limits: {sessions: 4, sessions_per_user: 4}\n"
                             "workers: [{count: %u, cores: 1, cores_max: 2}]\n"
                             "models: [{name: net, path: %s/net.onnx, items_max: 1}]\n";

static const char config_listed[] = "limits: {sessions: 4, sessions_per_user: 4}\n"
                             "workers: [{cores: 1, cpus: '%u'}, {cores: 1, cpus: '%u'}]\n"
                             "models: [{name: net, path: %s/net.onnx, items_max: 1}]\n";

static struct leatd leatd;
static struct leat_session *control, *client;
static struct leat_query query;
static cpu_set_t allowed; /* that leatd started with */
static uint32_t workers;

/* ---- Threads ------------------------------------------------------------------------------------------- */

struct thread {
    pid_t tid;
    char name[32];
    cpu_set_t cpus;
};

static uint32_t
list_threads(struct thread threads[THREADS_MAX])
{
    char path[320];
    const struct dirent *entry;
    uint32_t count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)leatd.pid);
    DIR *tasks = opendir(path);
    EXPECT(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        struct thread *thread = &threads[count];
        (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)leatd.pid, entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file == NULL) {
            continue; /* it has ended */
        }
        EXPECT(count < THREADS_MAX);
        thread->tid = (pid_t)atoi(entry->d_name);
        const bool named = fscanf(file, "%31s", thread->name) == 1;
        EXPECT(fclose(file) == 0);
        count += named && sched_getaffinity(thread->tid, sizeof(thread->cpus), &thread->cpus) == 0;
    }
    EXPECT(closedir(tasks) == 0);
    return count;
}

/* Waits for it: a thread has its name a moment after it was started. */
static struct thread
find_thread(const char *name)
{
    struct thread threads[THREADS_MAX];

    for (;; leat_test_look_later()) {
        const uint32_t count = list_threads(threads);
        for (uint32_t t = 0; t < count; t++) {
            if (strcmp(threads[t].name, name) == 0) {
                return threads[t];
            }
        }
    }
}

/* The first one; CPU_SETSIZE: none. */
static uint32_t
first_of(const cpu_set_t *cpus)
{
    uint32_t cpu = 0;
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, cpus)) {
        cpu++;
    }
    return cpu;
}

static bool
is_held(const char *name, uint32_t cpu)
{
    const struct thread thread = find_thread(name);
    return CPU_COUNT(&thread.cpus) == 1 && CPU_ISSET(cpu, &thread.cpus);
}

/* ---- What is shown ------------------------------------------------------------------------------------- */

struct seen {
    uint64_t repinned;
    uint32_t gone, gone_cpu; /* how many, and the last of them */
    struct {
        uint32_t cores, cpu, gone; /* its leader's */
        bool pending;
    } workers[WORKERS_MAX];
    uint32_t free_cores;
};

static struct seen
look(void)
{
    json_t *shown = leatd_request(control, "{\"op\":\"scale-show\"}");
    const json_t *gone = json_object_get(shown, "gone_cpus");
    struct seen seen = {.repinned = leatd_number(shown, "repinned"),
                        .gone = (uint32_t)json_array_size(gone)};

    seen.gone_cpu =
        seen.gone > 0 ? (uint32_t)json_integer_value(json_array_get(gone, seen.gone - 1)) : 0;
    for (uint32_t w = 0; w < workers; w++) {
        const json_t *worker = json_array_get(json_object_get(shown, "workers"), w);
        seen.workers[w].cores = (uint32_t)leatd_number(worker, "cores");
        seen.workers[w].cpu =
            (uint32_t)json_integer_value(json_array_get(json_object_get(worker, "cpus"), 0));
        seen.workers[w].gone = (uint32_t)json_array_size(json_object_get(worker, "gone_cpus"));
        seen.workers[w].pending = !json_is_null(json_object_get(worker, "pending"));
    }
    seen.free_cores =
        (uint32_t)leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores");
    json_decref(shown);
    return seen;
}

/* All workers that have cores of their own are on them, and so is the dispatcher. */
static bool
all_held(const struct seen *seen, uint32_t dispatcher)
{
    char name[32];
    bool held = is_held("leat-dispatch", dispatcher);

    for (uint32_t w = 0; w < workers; w++) {
        (void)snprintf(name, sizeof(name), "leat-worker-%u", w);
        held = held && !seen->workers[w].pending &&
               (seen->workers[w].cores == 0 || is_held(name, seen->workers[w].cpu));
    }
    return held;
}

static void
await_as_at_start(const struct seen *start, uint32_t dispatcher)
{
    struct seen now;

    do {
        leat_test_look_later();
        now = look();
    } while (now.gone > 0 || now.workers[0].cores != 1 || now.workers[workers - 1].cores != 1 ||
             now.free_cores != start->free_cores || !all_held(&now, dispatcher));
}

/* ---- Queries ------------------------------------------------------------------------------------------- */

static void
connect(void)
{
    struct leat_target target;

    control = leatd_open_session(&leatd, 2, 4096);
    client = leatd_open_session(&leatd, 2, UINT64_C(16) << 20);
    query = (struct leat_query)LEAT_QUERY_INIT;
    EXPECT(leat_find(client, "net", &target) == LEAT_OK);
    query.target = target.id;
    query.items = 1;
    for (uint32_t t = 0; t < 2; t++) {
        EXPECT(leat_tensor_alloc(client, target.tensors[t].item_bytes, &query.tensors[t]) ==
               LEAT_OK);
    }
    memset(query.tensors[0], 0, target.tensors[0].item_bytes);
}

static void
expect_served(void)
{
    struct leat_completion done;
    size_t count;

    for (uint32_t q = 0; q < 20; q++) {
        EXPECT(leat_submit(client, &query, NULL) == LEAT_OK);
        EXPECT(leat_wait(client, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1 &&
               done.outcome == LEAT_OUTCOME_OK);
    }
}

/* ---- CPUs that go -------------------------------------------------------------------------------------- */

/* How a CPU is taken away, or given back. */
typedef void takes(uint32_t cpu, bool back);

static void
by_affinity(uint32_t cpu, bool back)
{
    cpu_set_t cpus = allowed;

    if (!back) {
        CPU_CLR(cpu, &cpus);
    }
    EXPECT(sched_setaffinity(find_thread("leat-relief").tid, sizeof(cpus), &cpus) == 0);
}

static void
put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void
by_hotplug(uint32_t cpu, bool back)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/online", cpu);
    put(path, back ? "1" : "0");
}

/* Of the group above that of the daemon, which workers' groups are in. */
static void
by_group(uint32_t cpu, bool back)
{
    char path[512], list[256];
    uint32_t cpus[CPU_SETSIZE], count = 0;
    json_t *shown = leatd_request(control, "{\"op\":\"scale-show\"}");
    const char *group = json_string_value(
        json_object_get(json_array_get(json_object_get(shown, "workers"), 0), "group"));

    EXPECT(group != NULL);
    for (uint32_t c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, &allowed) && (back || c != cpu)) {
            cpus[count++] = c;
        }
    }
    (void)snprintf(path, sizeof(path), "%s/../../cpuset.cpus", group);
    json_decref(shown);
    put(path, leat_cpu_list_text(cpus, count, list, sizeof(list)));
}

/* The last worker is on another CPU, or is parked, or keeps the one that it had, as there are others. What is shown is no moment. */
static bool
has_left(const struct seen *now, const struct seen *start, uint32_t cpu)
{
    const uint32_t last = workers - 1, cores = now->workers[last].cores, own = now->workers[last].gone;

    if (start->free_cores > 0) {
        return cores == 1 && now->workers[last].cpu != cpu && now->free_cores == start->free_cores - 1;
    }
    return workers > 1 ? cores == 0 && now->workers[0].cores == 1 && now->free_cores == 0 : cores == 1 && own == 1;
}

static void
test_gone(const char *how, takes *take)
{
    const struct seen start = look();
    struct seen now;
    const cpu_set_t own = find_thread("leat-dispatch").cpus;
    const uint32_t dispatcher = first_of(&own), last = workers - 1, cpu = start.workers[last].cpu;

    EXPECT(all_held(&start, dispatcher) && start.gone == 0);
    take(cpu, false);
    do {
        leat_test_look_later();
        now = look();
    } while (now.gone != 1 || now.gone_cpu != cpu || now.workers[last].pending ||
             (now.workers[last].gone == 0 && !all_held(&now, dispatcher)) || !has_left(&now, &start, cpu));
    EXPECT(leatd_logged(&leatd, "are gone: offline, or not the daemon's any more"));
    expect_served();
    take(cpu, true);
    await_as_at_start(&start, dispatcher);
    expect_served();
    EXPECT(leatd_logged(&leatd, "are there again"));
    (void)printf("CPU %u went and came back: %s\n", cpu, how);
}

static void
test_dispatcher(takes *take)
{
    const struct seen start = look();
    const cpu_set_t own = find_thread("leat-dispatch").cpus;
    const uint32_t cpu = first_of(&own);
    struct thread dispatcher;

    take(cpu, false);
    do {
        leat_test_look_later();
        dispatcher = find_thread("leat-dispatch");
    } while (CPU_ISSET(cpu, &dispatcher.cpus) ||
             CPU_COUNT(&dispatcher.cpus) != CPU_COUNT(&allowed) - 1);
    expect_served();
    take(cpu, true);
    await_as_at_start(&start, cpu);
}

/* ---- Pins that are lost -------------------------------------------------------------------------------- */

static void
test_lost(void)
{
    const struct seen start = look();
    const cpu_set_t own = find_thread("leat-dispatch").cpus;
    struct seen now;
    char name[32];

    EXPECT(all_held(&start, first_of(&own)));
    for (uint32_t w = 0; w < workers; w++) {
        (void)snprintf(name, sizeof(name), "leat-worker-%u", w);
        EXPECT(sched_setaffinity(find_thread(name).tid, sizeof(allowed), &allowed) == 0);
    }
    EXPECT(sched_setaffinity(find_thread("leat-dispatch").tid, sizeof(allowed), &allowed) == 0);
    do {
        leat_test_look_later();
        now = look();
    } while (!all_held(&now, first_of(&own)) ||
             now.repinned < start.repinned + 1); /* a group holds workers on one CPU alone */
    EXPECT(leatd_logged(&leatd, "threads were not held to their CPUs, and are now"));
    expect_served();
    await_as_at_start(&start, first_of(&own));
}

/* Until the thread that looks has put the dispatcher back in its place, twice: it has looked at everything meanwhile. */
static void
await_looks(uint32_t dispatcher)
{
    for (uint32_t looks = 0; looks < 2; looks++) {
        const uint64_t before = look().repinned;
        struct seen now;
        EXPECT(sched_setaffinity(find_thread("leat-dispatch").tid, sizeof(allowed), &allowed) == 0);
        do {
            leat_test_look_later();
            now = look();
        } while (now.repinned == before || !all_held(&now, dispatcher));
    }
}

/* A CPU that is not listed is free all the while, and nobody gets it. */
static void
test_listed_gone(uint32_t cpu)
{
    const cpu_set_t own = find_thread("leat-dispatch").cpus;
    const uint32_t dispatcher = first_of(&own);
    const struct seen start = look();
    struct seen now;

    EXPECT(start.free_cores > 0 && start.workers[1].cpu == cpu && all_held(&start, dispatcher));
    by_affinity(cpu, false);
    do {
        leat_test_look_later();
        now = look();
    } while (now.gone != 1 || now.workers[1].cores > 0 || now.workers[1].pending);
    await_looks(dispatcher);
    now = look();
    EXPECT(now.workers[1].cores == 0 && !now.workers[1].pending && now.free_cores == start.free_cores);
    expect_served();
    by_affinity(cpu, true);
    await_as_at_start(&start, dispatcher);
    EXPECT(look().workers[1].cpu == cpu);
    expect_served();
}

int
main(void)
{
    char yaml[sizeof(config) + sizeof(config_listed) + 200], path[200];
    const char *more = getenv("LEAT_TEST_CPUS");
    size_t file_bytes;
    void *file;

    leat_test_init();
    EXPECT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    if (leatd_cpus() < 2) {
        (void)printf("skipped: threads are not pinned to a single CPU\n");
        return LEAT_TEST_SKIP;
    }
    workers = leatd_cpus() > 2 ? WORKERS_MAX : 1;
    EXPECT(zoo_write(zoo_find("resnet18"), ZOO_SIZE_TEST, leat_test_seed, &file, &file_bytes) ==
           LEAT_OK);
    leatd_init(&leatd);
    (void)snprintf(path, sizeof(path), "%s/net.onnx", leatd.root.path);
    FILE *out = fopen(path, "wb");
    EXPECT(out != NULL && fwrite(file, file_bytes, 1, out) == 1 && fclose(out) == 0);
    free(file);
    (void)snprintf(yaml, sizeof(yaml), config, workers, leatd.root.path);
    leatd_start(&leatd, yaml);
    connect();
    test_lost();
    test_gone("by affinity", by_affinity);
    test_dispatcher(by_affinity);
    if (more != NULL) {
        test_gone("offline", by_hotplug);
    }
    if (more != NULL && strcmp(more, "all") == 0) {
        test_gone("taken from the group", by_group);
        test_dispatcher(by_group);
    }
    leat_close(client);
    leat_close(control);
    leatd_end(&leatd, SIGTERM);
    if (leatd_cpus() >= 4) {
        uint32_t cpus[3], count = 0;
        for (uint32_t c = 0; c < CPU_SETSIZE && count < 3; c++) {
            if (CPU_ISSET(c, &allowed)) {
                cpus[count++] = c;
            }
        }
        (void)snprintf(yaml, sizeof(yaml), config_listed, cpus[1], cpus[2], leatd.root.path);
        leatd_start(&leatd, yaml);
        connect();
        test_listed_gone(cpus[2]);
        leat_close(client);
        leat_close(control);
        leatd_end(&leatd, SIGTERM);
    } else {
        (void)printf("skipped: CPUs that are listed: there are fewer than four cores\n");
    }
    leatd_fini(&leatd);
    return 0;
}
