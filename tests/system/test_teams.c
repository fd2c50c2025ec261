/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers of several cores in leatd itself: each thread has the one CPU that topology and status say, the
 *          whole team runs, many queries at once get the reference backend's answers from the workers that their
 *          completions name, and SIGTERM ends it all in order, with every accepted query answered. Clients spin only where
 *          the whole teams leave them a core, unless the configuration says otherwise.
 * Method   leatd as a process, with a network of leat-zoo in its test size on the cpu backend. Threads are looked at in
 *          /proc. What completions say of workers and batches is added up and compared with the workers' own counters.
 *          leatd ends with another code than 0 when a sanitizer finds something, a thread that nobody joined too.
 */
#include <signal.h>
#include <dirent.h>
#include <math.h>

#include <leat/leat.h>

#include "base/align.h"
#include "ipc/client/session.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "runtime/topology.h"
#include "tests/system/leatd.h"
#include "tools/zoo/zoo.h"

enum {
    POOL = 16,     /* items to ask about */
    ITEMS_MAX = 4, /* in a batch */
    PARTS = 12,    /* of a batch, so that each of 1..ITEMS_MAX items has a whole number of them */
    QUERIES = 256, /* at once */
    ROUNDS = 100,  /* at most, until every thread was seen at work; one or two are usual */
    WORKERS_MAX = 2,
    TEAM_MAX = 2,
    THREADS_MAX = 1 + WORKERS_MAX * TEAM_MAX,
    SPIN_NS = 20000, /* where it is configured */
    SPIN_AUTO_NS = 50000,
};

/* ---- The network and its right answers ------------------------------------------------------------ */

struct network {
    void *file;
    size_t file_bytes;
    size_t input_bytes, output_bytes; /* of one item */
    unsigned char *inputs, *expected; /* of POOL items */
};

static void *
aligned(size_t bytes)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(bytes + 64, 64));
    EXPECT(block != NULL);
    return block;
}

static void
make_network(struct network *network)
{
    const struct leat_backend *reference = &leat_backend_reference;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    uint64_t random = leat_test_seed;
    struct leat_graph *graph;
    struct leat_model *model;
    struct leat_plan *plan;

    EXPECT(zoo_write(zoo_find("resnet18"), ZOO_SIZE_TEST, leat_test_seed, &network->file, &network->file_bytes) == LEAT_OK);
    EXPECT(leat_onnx_import(network->file, network->file_bytes, &graph) == LEAT_OK);
    EXPECT(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    EXPECT(source.input_count == 1 && source.output_count == 1);
    EXPECT(infos[0].dtype == LEAT_DTYPE_F32 && infos[1].dtype == LEAT_DTYPE_F32);
    source.graph = graph;
    network->input_bytes = infos[0].item_bytes;
    network->output_bytes = infos[1].item_bytes;
    network->inputs = aligned(POOL * network->input_bytes);
    network->expected = aligned(POOL * network->output_bytes);
    for (size_t i = 0; i < POOL * network->input_bytes / sizeof(float); i++) {
        ((float *)(void *)network->inputs)[i] = (float)(leat_test_random(&random) % 2000) / 1000.0f - 1.0f;
    }
    EXPECT(reference->model_load(&source, &model) == LEAT_OK);
    EXPECT(reference->plan_build(model, &(struct leat_plan_options){.items = POOL}, &plan) == LEAT_OK);
    void *scratch = aligned(reference->plan_scratch_bytes(plan));
    const struct leat_segment all = {.items = POOL, .tensors = {network->inputs, network->expected}};
    EXPECT(reference->plan_run(plan, &all, 1, scratch, NULL) == LEAT_OK);
    free(scratch);
    reference->plan_destroy(plan);
    reference->model_destroy(model);
    leat_graph_destroy(graph);
}

static void
destroy_network(struct network *network)
{
    free(network->file);
    free(network->inputs);
    free(network->expected);
}

/* ---- leatd ------------------------------------------------------------------------------------------ */

struct daemon {
    struct leatd leatd;
    uint64_t answered;              /* queries, by all workers */
    uint64_t parts[WORKERS_MAX];    /* of batches, as the completions have it */
    uint32_t sizes[WORKERS_MAX];    /* of the teams, as configured */
    uint32_t worker_count;
    uint32_t cpus[WORKERS_MAX][TEAM_MAX]; /* as the daemon says; the leader's first */
    uint32_t dispatcher_cpu;
};

/* How the tests describe their workers: those of one team size and perhaps another, on chosen CPUs or on any. */
struct teams {
    uint32_t count, sizes[WORKERS_MAX];
    const char *cpus; /* of the first; "": leatd chooses */
    bool spin_auto;   /* dispatcher.spin is not given */
};

static bool own_core; /* of the dispatcher; else it runs beside the workers */

static void
write_settings(const struct daemon *daemon, const struct teams *teams, uint32_t sessions, char *text, size_t bytes)
{
    char spin[32] = "auto";
    if (!teams->spin_auto) {
        (void)snprintf(spin, sizeof(spin), "%dns", SPIN_NS);
    }
    int used = snprintf(text, bytes,
                        "drain: 3600s\ndispatcher: {spin: %s, own_core: %s}\n"
                        "limits: {sessions: %u, sessions_per_user: %u}\n"
                        "models: [{name: net, path: %s/net.onnx, items_max: %d}]\nworkers:\n",
                        spin, own_core ? "true" : "false", sessions, sessions, daemon->leatd.root.path, ITEMS_MAX);
    for (uint32_t w = 0; w < teams->count; w++) {
        used += snprintf(text + used, bytes - (size_t)used, "  - {count: 1, cores: %u, cpus: \"%s\"}\n",
                         teams->sizes[w], w == 0 ? teams->cpus : "");
    }
}

static void
write_network(const struct daemon *daemon, const struct network *network)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/net.onnx", daemon->leatd.root.path);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(network->file, network->file_bytes, 1, file) == 1 && fclose(file) == 0);
}

static void
start(struct daemon *daemon, const struct network *network, const struct teams *teams, uint32_t sessions)
{
    char settings[2048];

    *daemon = (struct daemon){.worker_count = teams->count};
    memcpy(daemon->sizes, teams->sizes, sizeof(daemon->sizes));
    leatd_init(&daemon->leatd);
    write_network(daemon, network);
    write_settings(daemon, teams, sessions, settings, sizeof(settings));
    leatd_start(&daemon->leatd, settings);
}

/* ---- Threads and their CPUs -------------------------------------------------------------------------- */

struct thread {
    int tid;
    char name[17], state;
    uint32_t cpu, cpu_count;     /* the first that it may run on, and how many those are */
    unsigned long long sleeps;   /* voluntary context switches */
};

/* Topology and status name the same CPUs: as many as configured, and no CPU twice. */
static void
read_places(struct daemon *daemon, struct leat_session *session)
{
    json_t *topology = leatd_request(session, "{\"op\":\"topology\"}"),
           *status = leatd_request(session, "{\"op\":\"status\"}");
    const json_t *placement = json_object_get(topology, "placement");
    const json_t *placed = json_object_get(placement, "workers"), *working = json_object_get(status, "workers");
    bool taken[LEAT_CPU_MAX] = {false};

    EXPECT(json_array_size(placed) == daemon->worker_count && json_array_size(working) == daemon->worker_count);
    if (own_core) {
        daemon->dispatcher_cpu = (uint32_t)leatd_number(placement, "dispatcher_cpu");
        EXPECT(daemon->dispatcher_cpu < LEAT_CPU_MAX);
        taken[daemon->dispatcher_cpu] = true;
    } else {
        EXPECT(json_is_null(json_object_get(placement, "dispatcher_cpu")));
    }
    for (uint32_t w = 0; w < daemon->worker_count; w++) {
        const json_t *cpus = json_object_get(json_array_get(placed, w), "cpus");
        const json_t *text = json_object_get(json_array_get(working, w), "cpus");
        uint32_t listed[TEAM_MAX], count;
        EXPECT(json_array_size(cpus) == daemon->sizes[w] && json_is_string(text));
        EXPECT(leat_cpu_list_parse(json_string_value(text), listed, TEAM_MAX, &count) == LEAT_OK);
        EXPECT(count == daemon->sizes[w]);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t cpu = (uint32_t)json_integer_value(json_array_get(cpus, i));
            EXPECT(cpu == listed[i] && cpu < LEAT_CPU_MAX && !taken[cpu]);
            taken[cpu] = true;
            daemon->cpus[w][i] = cpu;
        }
    }
    json_decref(topology);
    json_decref(status);
}

/* False when there is no such thread any more. */
static bool
read_thread(const struct daemon *daemon, int tid, struct thread *ret_thread)
{
    struct thread thread = {.tid = tid};
    char path[64], line[512];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)daemon->leatd.pid, tid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        (void)sscanf(line, "Name: %16s", thread.name);
        (void)sscanf(line, "State: %c", &thread.state);
        (void)sscanf(line, "voluntary_ctxt_switches: %llu", &thread.sleeps);
    }
    thread.cpu_count = leatd_thread_cpus(tid, &thread.cpu);
    if (file == NULL || fclose(file) != 0 || thread.cpu_count == 0) {
        return false;
    }
    *ret_thread = thread;
    return true;
}

static bool
has_name(const struct thread *thread, const char *start)
{
    return strncmp(thread->name, start, strlen(start)) == 0;
}

/* The threads of dispatcher and workers, once all have given themselves a name; returns how many. */
static uint32_t
list_threads(const struct daemon *daemon, struct thread threads[THREADS_MAX])
{
    uint32_t wanted = 1, dispatchers, leaders, helpers;
    char path[64];

    for (uint32_t w = 0; w < daemon->worker_count; w++) {
        wanted += daemon->sizes[w];
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)daemon->leatd.pid);
    do { /* a helper that has not run yet has its leader's name, the dispatcher the process's */
        const struct dirent *entry;
        DIR *tasks = opendir(path);
        EXPECT(tasks != NULL);
        dispatchers = leaders = helpers = 0;
        while ((entry = readdir(tasks)) != NULL) {
            struct thread thread;
            const int tid = (int)strtol(entry->d_name, NULL, 10);
            if (tid == 0 || !read_thread(daemon, tid, &thread)) {
                continue;
            }
            const bool dispatcher = has_name(&thread, "leat-dispatch"), leader = has_name(&thread, "leat-worker-");
            const bool helper = has_name(&thread, "leat-helper");
            if (dispatcher || leader || helper) {
                EXPECT(dispatchers + leaders + helpers < THREADS_MAX);
                threads[dispatchers + leaders + helpers] = thread;
            }
            dispatchers += dispatcher;
            leaders += leader;
            helpers += helper;
        }
        (void)closedir(tasks);
        EXPECT(leaders + helpers == wanted - 1);
    } while (dispatchers != 1 || leaders != daemon->worker_count);
    return wanted;
}

/* Every thread may run on one CPU, its own, but for a dispatcher without a core. Leaves the helpers' ids. */
static uint32_t
check_threads(const struct daemon *daemon, int helpers[THREADS_MAX])
{
    struct thread threads[THREADS_MAX];
    const uint32_t count = list_threads(daemon, threads);
    bool found[WORKERS_MAX][TEAM_MAX] = {{false}};
    uint32_t helper_count = 0;

    for (uint32_t t = 0; t < count; t++) {
        const struct thread *thread = &threads[t];
        uint32_t w = 0, i = 0;
        if (has_name(thread, "leat-dispatch")) {
            EXPECT(own_core ? thread->cpu_count == 1 && thread->cpu == daemon->dispatcher_cpu : thread->cpu_count > 1);
            continue;
        }
        EXPECT(thread->cpu_count == 1);
        while (w < daemon->worker_count && daemon->cpus[w][i] != thread->cpu) {
            i = i + 1 < daemon->sizes[w] ? i + 1 : 0;
            w += i == 0;
        }
        EXPECT(w < daemon->worker_count && !found[w][i]); /* one of the workers' CPUs, and nobody else has it */
        found[w][i] = true;
        if (has_name(thread, "leat-helper")) {
            EXPECT(i > 0);
            helpers[helper_count++] = thread->tid;
        } else {
            EXPECT(i == 0 && strtoul(thread->name + strlen("leat-worker-"), NULL, 10) == w);
        }
    }
    return helper_count;
}

/* How often a thread has slept so far; waits until it sleeps. */
static unsigned long long
count_sleeps(const struct daemon *daemon, int tid)
{
    struct thread thread;

    for (;;) {
        EXPECT(read_thread(daemon, tid, &thread));
        if (thread.state == 'S') {
            return thread.sleeps;
        }
        leat_test_look_later();
    }
}

/* ---- Queries ----------------------------------------------------------------------------------------- */

/* A session with all its queries. */
struct client {
    struct leat_session *session;
    struct leat_query queries[QUERIES];
    uint32_t first[QUERIES]; /* item of the pool */
    bool answered[QUERIES];
};

static void
submit(struct client *client, const struct daemon *daemon, const struct network *network, uint64_t *random)
{
    const size_t bytes = (ITEMS_MAX * (network->input_bytes + network->output_bytes) + 4096) * QUERIES;
    struct leat_target target;
    size_t submitted;

    *client = (struct client){.session = leatd_open_session(&daemon->leatd, QUERIES, bytes)};
    EXPECT(leat_find(client->session, "net", &target) == LEAT_OK);
    EXPECT(target.tensors[0].item_bytes == network->input_bytes && target.tensors[1].item_bytes == network->output_bytes);
    for (uint32_t q = 0; q < QUERIES; q++) {
        struct leat_query *query = &client->queries[q];
        *query = (struct leat_query)LEAT_QUERY_INIT;
        query->target = target.id;
        query->user_data = q;
        query->items = 1 + (uint32_t)(leat_test_random(random) % ITEMS_MAX);
        client->first[q] = (uint32_t)(leat_test_random(random) % (POOL - query->items + 1));
        const size_t input_bytes = query->items * network->input_bytes, output_bytes = query->items * network->output_bytes;
        EXPECT(leat_tensor_alloc(client->session, input_bytes, &query->tensors[0]) == LEAT_OK);
        EXPECT(leat_tensor_alloc(client->session, output_bytes, &query->tensors[1]) == LEAT_OK);
        memcpy(query->tensors[0], network->inputs + client->first[q] * network->input_bytes, input_bytes);
        memset(query->tensors[1], 0x5a, output_bytes);
    }
    EXPECT(leat_submit_batch(client->session, client->queries, QUERIES, &submitted) == LEAT_OK && submitted == QUERIES);
}

static void
check_answer(const struct client *client, const struct network *network, uint64_t q)
{
    const float *answer = client->queries[q].tensors[1];
    const float *expected = (const float *)(const void *)(network->expected + client->first[q] * network->output_bytes);

    for (size_t i = 0; i < client->queries[q].items * network->output_bytes / sizeof(float); i++) {
        if (!(fabsf(answer[i] - expected[i]) <= 1e-4f + 1e-3f * fabsf(expected[i]))) {
            (void)fprintf(stderr, "query %llu, element %zu is %g, the reference backend says %g\n", (unsigned long long)q,
                          i, (double)answer[i], (double)expected[i]);
            EXPECT(!"the reference backend's answer");
        }
    }
}

static void
take(struct client *client, struct daemon *daemon, const struct network *network, const struct leat_completion *done,
     size_t count)
{
    for (size_t d = 0; d < count; d++) {
        const uint64_t q = done[d].user_data;
        EXPECT(q < QUERIES && !client->answered[q]);
        EXPECT(done[d].outcome == LEAT_OUTCOME_OK);
        EXPECT(done[d].worker < daemon->worker_count);
        EXPECT(done[d].batch_items >= client->queries[q].items && done[d].batch_items <= ITEMS_MAX);
        check_answer(client, network, q);
        client->answered[q] = true;
        daemon->parts[done[d].worker] += client->queries[q].items * (uint64_t)PARTS / done[d].batch_items;
        daemon->answered++;
    }
}

static void
take_all(struct client *client, struct daemon *daemon, const struct network *network)
{
    struct leat_completion done[QUERIES];
    size_t count;

    while (leat_in_flight(client->session) > 0) {
        EXPECT(leat_wait(client->session, done, QUERIES, UINT64_MAX, &count) == LEAT_OK);
        take(client, daemon, network, done, count);
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        EXPECT(client->answered[q]);
    }
}

/* Each worker has run the batches that the completions say, and no others. */
static void
check_batches(const struct daemon *daemon, struct leat_session *session)
{
    while (leatd_counter(session, "ok") < daemon->answered) { /* the report to the dispatcher comes after the answer */
        leat_test_look_later();
    }
    json_t *status = leatd_request(session, "{\"op\":\"status\"}");
    for (uint32_t w = 0; w < daemon->worker_count; w++) {
        const uint64_t batches = leatd_number(json_array_get(json_object_get(status, "workers"), w), "batches");
        EXPECT(batches * PARTS == daemon->parts[w]);
    }
    json_decref(status);
}

/* ---- The tests --------------------------------------------------------------------------------------- */

/* Asks until every worker has answered and every helper has run. */
static void
ask_everybody(struct daemon *daemon, const struct network *network, uint64_t *random)
{
    int helpers[THREADS_MAX];
    unsigned long long sleeps[THREADS_MAX] = {0};
    bool idle = true;
    const uint32_t helper_count = check_threads(daemon, helpers);

    for (uint32_t h = 0; h < helper_count; h++) {
        sleeps[h] = count_sleeps(daemon, helpers[h]);
    }
    for (uint32_t round = 0; idle; round++) {
        struct client client;
        EXPECT(round < ROUNDS);
        submit(&client, daemon, network, random);
        take_all(&client, daemon, network);
        check_batches(daemon, client.session);
        leat_close(client.session);
        idle = false;
        for (uint32_t w = 0; w < daemon->worker_count; w++) {
            idle = idle || daemon->parts[w] == 0;
        }
        for (uint32_t h = 0; h < helper_count; h++) {
            idle = idle || count_sleeps(daemon, helpers[h]) == sleeps[h];
        }
    }
}

static void
test_team(const struct network *network, const struct teams *teams, uint64_t *random, struct daemon *daemon)
{
    start(daemon, network, teams, 4);
    struct leat_session *session = leatd_open_session(&daemon->leatd, 16, 1 << 20);
    read_places(daemon, session);
    ask_everybody(daemon, network, random);
    leat_close(session);
    leatd_signal(&daemon->leatd, SIGTERM);
    EXPECT(leatd_await_end(&daemon->leatd) == 0);
    leatd_fini(&daemon->leatd);
}

/* What was accepted before SIGTERM is answered, and answered right, though the teams are at it when it comes. */
static void
test_drain(const struct network *network, const struct teams *teams, uint64_t *random)
{
    struct leat_completion done[QUERIES];
    size_t before = QUERIES;

    while (before == QUERIES) { /* else nothing ran any more when the signal came: try again */
        struct daemon daemon;
        struct client client;
        start(&daemon, network, teams, 4);
        submit(&client, &daemon, network, random);
        while (leatd_counter(client.session, "accepted") < QUERIES) {
            leat_test_look_later();
        }
        leatd_signal(&daemon.leatd, SIGTERM);
        before = leat_poll(client.session, done, QUERIES);
        take(&client, &daemon, network, done, before);
        take_all(&client, &daemon, network);
        EXPECT(leatd_await_end(&daemon.leatd) == 0);
        leatd_fini(&daemon.leatd);
        leat_close(client.session);
    }
}

/*
 * Clients are told to spin only while each thread that spins has a core: dispatcher, leaders and helpers, and one for
 * each client. Sessions are opened until that is over, and one is closed again. A time that is configured holds always.
 */
static void
test_spinning(const struct network *network, const struct teams *like, bool spin_auto, uint32_t usable_cpus)
{
    const struct teams spinning = {
        .count = like->count, .sizes = {like->sizes[0], like->sizes[1]}, .cpus = "", .spin_auto = spin_auto};
    const struct teams *teams = &spinning;
    struct leat_session *sessions[LEAT_CPU_MAX];
    struct daemon daemon;
    uint32_t threads = 1, count = 0;

    for (uint32_t w = 0; w < teams->count; w++) {
        threads += teams->sizes[w];
    }
    start(&daemon, network, teams, usable_cpus);
    do {
        sessions[count++] = leatd_open_session(&daemon.leatd, 16, 1 << 16);
        for (uint32_t s = 0; s < count; s++) {
            const uint32_t spin_ns = atomic_load_explicit(&sessions[s]->rings->spin_ns, memory_order_relaxed);
            EXPECT(spin_ns == (!spin_auto ? SPIN_NS : threads + count <= usable_cpus ? SPIN_AUTO_NS : 0));
        }
    } while (threads + count <= usable_cpus);
    leat_close(sessions[--count]);
    while (count > 0 && atomic_load_explicit(&sessions[0]->rings->spin_ns, memory_order_relaxed) == 0) {
        leat_test_look_later();
    }
    while (count > 0) {
        leat_close(sessions[--count]);
    }
    leatd_signal(&daemon.leatd, SIGTERM);
    EXPECT(leatd_await_end(&daemon.leatd) == 0);
    leatd_fini(&daemon.leatd);
}

int
main(void)
{
    const struct teams two = {.count = 1, .sizes = {2}, .cpus = ""}, unequal = {.count = 2, .sizes = {2, 1}, .cpus = ""};
    struct leat_topology *topology;
    struct network network;
    struct daemon daemon;
    char reversed[32];

    leat_test_init();
    uint64_t random = leat_test_seed;
    EXPECT(leat_topology_discover(&(struct leat_topology_source){0}, &topology) == LEAT_OK);
    const uint32_t cores =
        topology->usable_cpus < topology->allowed_cores ? topology->usable_cpus : topology->allowed_cores;
    const uint32_t usable_cpus = topology->usable_cpus;
    leat_topology_destroy(topology);
    if (cores < 2) {
        (void)printf("skipped: a team of two needs two cores\n");
        return LEAT_TEST_SKIP;
    }
    own_core = cores > 2;
    make_network(&network);
    test_team(&network, &two, &random, &daemon);
    (void)snprintf(reversed, sizeof(reversed), "%u,%u", daemon.cpus[0][1], daemon.cpus[0][0]);
    const uint32_t leader = daemon.cpus[0][1];
    test_team(&network, &(struct teams){.count = 1, .sizes = {2}, .cpus = reversed}, &random, &daemon);
    EXPECT(daemon.cpus[0][0] == leader);
    test_drain(&network, &two, &random);
    if (own_core) {
        test_spinning(&network, &two, true, usable_cpus);
        test_spinning(&network, &two, false, usable_cpus);
    } else {
        (void)printf("who spins: left out, dispatcher and team need three cores\n");
    }
    if (cores >= 4) {
        test_team(&network, &unequal, &random, &daemon);
        test_drain(&network, &unequal, &random);
        test_spinning(&network, &unequal, true, usable_cpus);
    } else {
        (void)printf("two workers, of two cores and of one: left out, they and the dispatcher need four cores\n");
    }
    destroy_network(&network);
    return 0;
}
