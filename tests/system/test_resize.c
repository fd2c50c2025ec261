/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     Workers of leatd get more and fewer cores while queries run, none at all too, and serve one application or all: cores and
 *          threads are exactly accounted for after each of many random changes, what cannot be is refused and changes
 *          nothing, no query is lost, a parked worker runs nothing, and a worker of so many cores gives the bits that it
 *          gave with as many before. Where workers have control groups, these have the worker's threads and CPUs, no
 *          others, and are gone when leatd is, killed amid changes too, at the latest after the next one's start.
 * Method   leatd as a process, with a network of leat-zoo in its test size on the cpu backend. One thread keeps queries under way,
 *          the other changes sizes at random against a model of who has how many cores. Threads are looked at in
 *          /proc. On few CPUs the dispatcher has no core of its own; on two, a worker gets a second one while the other is parked.
 */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/align.h"
#include "runtime/topology.h"
#include "tests/system/leatd.h"
#include "tools/zoo/zoo.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RESIZES = 500 };
#else
enum { RESIZES = 10000 };
#endif
enum { WORKERS = 2, CORES_MAX = 4, QUERIES = 16, CHECKS = 100, THREADS_MAX = 64, SIZES = CORES_MAX + 1 };
enum { LOOKS = 50000 }; /* within which a move is told */

static const char config[] = "limits: {sessions: 4, sessions_per_user: 4}\n"
                             "dispatcher: {own_core: %s}\n"
                             "workers: [{count: %d, cores: 1, cores_max: %d}]\n"
                             "models: [{name: net, path: %s/net.onnx, items_max: 1}]\n";

static struct leatd leatd;
static uint32_t held[WORKERS], free_cores;
static bool own[WORKERS]; /* is the network's only */
static bool known[SIZES];
static unsigned char *expected[SIZES]; /* the answer of a worker of so many cores */
static size_t input_bytes, output_bytes;
static unsigned char *input;

/* ---- Queries -------------------------------------------------------------------------------------- */

struct client {
    struct leat_session *session;
    struct leat_query queries[QUERIES];
    uint64_t asked, answered;
    _Atomic bool stop;
};

static void
connect(struct client *client)
{
    struct leat_target target;

    *client = (struct client){.session = leatd_open_session(&leatd, QUERIES, UINT64_C(64) << 20)};
    EXPECT(leat_find(client->session, "net", &target) == LEAT_OK);
    input_bytes = target.tensors[0].item_bytes;
    output_bytes = target.tensors[1].item_bytes;
    for (uint32_t q = 0; q < QUERIES; q++) {
        struct leat_query *query = &client->queries[q];
        *query = (struct leat_query)LEAT_QUERY_INIT;
        query->target = target.id;
        query->user_data = q;
        query->items = 1;
        EXPECT(leat_tensor_alloc(client->session, input_bytes, &query->tensors[0]) == LEAT_OK);
        EXPECT(leat_tensor_alloc(client->session, output_bytes, &query->tensors[1]) == LEAT_OK);
    }
}

static void
ask(struct client *client, uint64_t q)
{
    memcpy(client->queries[q].tensors[0], input, input_bytes);
    memset(client->queries[q].tensors[1], 0x5a, output_bytes);
    EXPECT(leat_submit(client->session, &client->queries[q], NULL) == LEAT_OK);
    client->asked++;
}

static struct leat_completion
take(struct client *client)
{
    struct leat_completion done;
    size_t count;

    EXPECT(leat_wait(client->session, &done, 1, UINT64_MAX, &count) == LEAT_OK && count == 1);
    EXPECT(done.outcome == LEAT_OUTCOME_OK && done.worker < WORKERS);
    client->answered++;
    return done;
}

static bool
is_answer(const struct client *client, uint64_t q, uint32_t cores)
{
    return known[cores] && memcmp(client->queries[q].tensors[1], expected[cores], output_bytes) == 0;
}

/* Keeps its queries under way until it is told to stop: every answer is that of some size. */
static void *
load(void *argument)
{
    struct client *client = argument;

    for (uint64_t q = 0; q < QUERIES; q++) {
        ask(client, q);
    }
    while (leat_in_flight(client->session) > 0) {
        const struct leat_completion done = take(client);
        bool right = false;
        for (uint32_t cores = 1; cores < SIZES; cores++) {
            right = right || is_answer(client, done.user_data, cores);
        }
        EXPECT(right);
        if (!atomic_load_explicit(&client->stop, memory_order_relaxed)) {
            ask(client, done.user_data);
        }
    }
    return NULL;
}

/* All answers of the worker are those of its size; the first ones say what that is. */
static void
expect_answers(struct client *client, uint32_t worker)
{
    for (uint32_t of_it = 0; of_it < 4;) {
        for (uint64_t q = 0; q < QUERIES; q++) { /* enough for the other worker to be busy */
            ask(client, q);
        }
        for (uint32_t q = 0; q < QUERIES; q++) {
            const struct leat_completion done = take(client);
            const uint32_t cores = held[done.worker];
            if (!known[cores]) {
                memcpy(expected[cores], client->queries[done.user_data].tensors[1], output_bytes);
                known[cores] = true;
            }
            EXPECT(is_answer(client, done.user_data, cores));
            of_it += done.worker == worker;
        }
    }
}

/* ---- Cores and threads ------------------------------------------------------------------------------ */

static uint32_t
cpu_list(const json_t *array, uint32_t *cpus)
{
    for (uint32_t i = 0; i < json_array_size(array); i++) {
        cpus[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    }
    return (uint32_t)json_array_size(array);
}

/* The only CPU that a thread of leatd may run on, and its name; false when the thread has gone. */
static bool
read_thread(const char *tid, char name[32], uint32_t *ret_cpu)
{
    char path[320];
    uint32_t first;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)leatd.pid, tid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    const bool named = fscanf(file, "%31s", name) == 1;
    const uint32_t count = leatd_thread_cpus((pid_t)atoi(tid), &first);
    *ret_cpu = count == 1 ? first : UINT32_MAX;
    return fclose(file) == 0 && named && count > 0;
}

/* Threads of the name on each CPU, and that of the last number that a name ends in; returns how many in all. */
static uint32_t
count_threads(const char *wanted, uint32_t on[LEAT_CPU_MAX], uint32_t numbered[WORKERS])
{
    char path[64], name[32];
    const struct dirent *entry;
    uint32_t count = 0, cpu;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)leatd.pid);
    DIR *tasks = opendir(path);
    EXPECT(tasks != NULL);
    memset(on, 0, LEAT_CPU_MAX * sizeof(on[0]));
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] != '.' && read_thread(entry->d_name, name, &cpu) && strncmp(name, wanted, strlen(wanted)) == 0) {
            if (cpu < LEAT_CPU_MAX) { /* else it is on its way: nobody's core counts it */
                on[cpu]++;
            }
            if (numbered != NULL) {
                const unsigned long number = strtoul(name + strlen(wanted), NULL, 10);
                EXPECT(number < WORKERS);
                numbered[number] = cpu;
            }
            count++;
        }
    }
    (void)closedir(tasks);
    return count;
}

static FILE *
open_in_group(const char *group, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", group, name);
    return fopen(path, "r");
}

/* Its group has its CPUs, all its threads and nobody else. One that is parked sleeps in its group as that was. */
static bool
group_agrees(const json_t *worker, const uint32_t *cpus, uint32_t count)
{
    const char *group = json_string_value(json_object_get(worker, "group"));
    char line[512], name[32], leader[32];
    uint32_t listed[LEAT_CPU_MAX], listed_count, cpu, leaders = 0, helpers = 0;
    bool agrees = true;

    FILE *file = open_in_group(group, "cpuset.cpus");
    EXPECT(file != NULL && fgets(line, sizeof(line), file) != NULL && fclose(file) == 0);
    line[strcspn(line, "\n")] = '\0';
    EXPECT(leat_cpu_list_parse(line, listed, LEAT_CPU_MAX, &listed_count) == LEAT_OK);
    EXPECT(listed_count == count || count == 0);
    for (uint32_t c = 0; c < count; c++) {
        bool found = false;
        for (uint32_t l = 0; l < count; l++) {
            found = found || listed[l] == cpus[c];
        }
        agrees = agrees && found;
    }
    file = open_in_group(group, "cgroup.threads");
    file = file != NULL ? file : open_in_group(group, "tasks");
    EXPECT(file != NULL);
    (void)snprintf(leader, sizeof(leader), "leat-worker-%u", (uint32_t)leatd_number(worker, "worker"));
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        EXPECT(read_thread(line, name, &cpu));
        leaders += strcmp(name, leader) == 0;
        helpers += strcmp(name, "leat-helper") == 0;
        agrees = agrees && cpu < LEAT_CPU_MAX;
    }
    EXPECT(fclose(file) == 0 && leaders == 1 && helpers == CORES_MAX - 1);
    return agrees;
}

static uint64_t
sum_moves(const json_t *shown)
{
    uint64_t moves = 0;

    for (uint32_t w = 0; w < WORKERS; w++) {
        moves += leatd_number(json_array_get(json_object_get(shown, "workers"), w), "moves");
    }
    return moves;
}

/* As the model says: no CPU is anybody's twice. False where threads and groups are not on the CPUs that are shown. */
static bool
cores_agree(struct leat_session *session, uint64_t resizes, uint64_t *ret_moves)
{
    static uint32_t leaders[LEAT_CPU_MAX], helpers[LEAT_CPU_MAX];
    uint32_t at[WORKERS];
    json_t *shown = leatd_request(session, "{\"op\":\"scale-show\"}"), *status = leatd_request(session, "{\"op\":\"status\"}");
    uint32_t cpus[LEAT_CPU_MAX], users[LEAT_CPU_MAX] = {0}, count, classes = 0, grouped = 0;
    uint64_t counted = 0;
    bool agree = true;
    const json_t *row;
    size_t i;

    *ret_moves = sum_moves(shown);
    EXPECT(count_threads("leat-worker-", leaders, at) == WORKERS);
    EXPECT(count_threads("leat-helper", helpers, NULL) == WORKERS * (CORES_MAX - 1));
    for (uint32_t w = 0; w < WORKERS; w++) {
        const json_t *worker = json_array_get(json_object_get(shown, "workers"), w);
        EXPECT(leatd_number(worker, "worker") == w && leatd_number(worker, "cores") == held[w]);
        EXPECT((count = cpu_list(json_object_get(worker, "cpus"), cpus)) == held[w]);
        agree = agree && (held[w] == 0 || at[w] == cpus[0]); /* that of a parked one sleeps where it was */
        const char *application = json_string_value(json_object_get(worker, "application"));
        EXPECT((application != NULL) == (own[w] && held[w] > 0) && (application == NULL || strcmp(application, "net") == 0));
        EXPECT(application != NULL || strcmp(json_string_value(json_object_get(worker, "serves")), held[w] > 0 ? "all" : "nobody") == 0);
        for (uint32_t c = 0; c < count; c++) {
            EXPECT(users[cpus[c]]++ == 0);
            agree = agree && (c == 0 || helpers[cpus[c]] >= 1);
        }
        if (!json_is_null(json_object_get(worker, "group"))) {
            agree = group_agrees(worker, cpus, count) && agree;
            grouped++;
        }
        counted += leatd_number(worker, "resizes");
        const json_t *class = json_array_get(json_object_get(status, "classes"), (size_t)leatd_number(worker, "class"));
        EXPECT(held[w] == 0 || leatd_number(class, "cores") == held[w]);
    }
    EXPECT(grouped == (strncmp(json_string_value(json_object_get(shown, "held_by")), "cgroup v", 8) == 0 ? WORKERS : 0));
    EXPECT(counted == resizes);
    json_array_foreach(json_object_get(status, "classes"), i, row) {
        classes += (uint32_t)leatd_number(row, "workers");
    }
    EXPECT(classes == WORKERS);
    count = cpu_list(json_object_get(shown, "free_cpus"), cpus);
    for (uint32_t c = 0; c < count; c++) {
        EXPECT(users[cpus[c]] == 0);
    }
    EXPECT(count >= free_cores);
    EXPECT(leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores") == free_cores);
    json_decref(shown);
    json_decref(status);
    return agree;
}

/* A worker that is disturbed moves while it is looked at, and is shown where it went a moment after it is there. */
static void
check_cores(struct leat_session *session, uint64_t resizes)
{
    uint64_t moves, now;

    while (!cores_agree(session, resizes, &moves)) {
        uint32_t looks = 0;
        do {
            json_t *shown = leatd_request(session, "{\"op\":\"scale-show\"}");
            now = sum_moves(shown);
            json_decref(shown);
        } while (now == moves && ++looks < LOOKS);
        EXPECT(now > moves); /* or it was no move */
        (void)printf("a worker moved meanwhile: %llu moves\n", (unsigned long long)now);
    }
}

/* Obeys if and only if the model says that it can; true where that was a change. */
static bool
resize(struct leat_session *session, uint32_t worker, uint32_t cores)
{
    char text[96];
    uint32_t awake = 0;

    for (uint32_t w = 0; w < WORKERS; w++) {
        awake += w != worker && held[w] > 0;
    }
    (void)snprintf(text, sizeof(text), "{\"op\":\"scale-set\",\"worker\":%u,\"cores\":%u}", worker, cores);
    json_t *answer = leatd_request(session, text);
    const json_t *error = json_object_get(answer, "error");
    const bool change = cores != held[worker];
    const bool last = cores == 0 && awake == 0;
    const bool possible = !last && (cores <= held[worker] || cores - held[worker] <= free_cores);
    if (last) {
        EXPECT(json_integer_value(json_object_get(answer, "status")) == LEAT_ERR_INVALID && error != NULL);
    } else if (possible) {
        EXPECT(error == NULL && leatd_number(answer, "cores") == cores);
        EXPECT(json_array_size(json_object_get(answer, "cpus")) == cores);
        EXPECT(leatd_number(answer, "effect_ns") > 0 || !change || json_is_true(json_object_get(answer, "idle")));
        free_cores = free_cores + held[worker] - cores;
        own[worker] = own[worker] && held[worker] > 0 && cores > 0;
        held[worker] = cores;
    } else {
        EXPECT(json_integer_value(json_object_get(answer, "status")) == LEAT_ERR_BUSY);
        EXPECT(strstr(json_string_value(error), "leat scale show") != NULL);
    }
    json_decref(answer);
    return possible && change;
}

/* Of the network only, or of all; a parked one cannot be told. */
static void
dedicate(struct leat_session *session, uint32_t worker, bool to_one)
{
    char text[96];

    (void)snprintf(text, sizeof(text), "{\"op\":\"scale-set\",\"worker\":%u,\"application\":%s}", worker, to_one ? "\"net\"" : "null");
    json_t *answer = leatd_request(session, text);
    if (held[worker] == 0) {
        EXPECT(json_integer_value(json_object_get(answer, "status")) == LEAT_ERR_INVALID);
    } else {
        EXPECT(json_object_get(answer, "error") == NULL && leatd_number(answer, "cores") == held[worker]);
        own[worker] = to_one;
    }
    json_decref(answer);
}

/* None of the answers to many queries is of the parked worker, or of who is not the network's while the other is. */
static void
expect_served(struct client *client)
{
    for (uint64_t q = 0; q < QUERIES; q++) {
        ask(client, q);
    }
    for (uint32_t q = 0; q < QUERIES; q++) {
        const struct leat_completion done = take(client);
        EXPECT(held[done.worker] > 0 && (own[done.worker] || !own[1 - done.worker]));
    }
}

static void
refuse(struct leat_session *session, const char *request, const char *part)
{
    json_t *answer = leatd_request(session, request);
    const char *error = json_string_value(json_object_get(answer, "error"));

    if (error == NULL || strstr(error, part) == NULL) {
        (void)fprintf(stderr, "got: %s\nwant: %s\n", error != NULL ? error : "no error", part);
        EXPECT(!"the error says what is wrong");
    }
    json_decref(answer);
}

static void
test_refusals(struct leat_session *session)
{
    refuse(session, "{\"op\":\"scale-set\",\"worker\":2,\"cores\":1}", "there is no worker 2: they are 0 to 1");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"cores\":3}", "worker 0 cannot have 3 cores but 1, 2, 4: cores_max");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"cores\":8}", "cannot have 8 cores");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"cores\":-1}", "cores must be 0 to");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0}", "cores must be 0 to");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"application\":\"no\"}", "no application or model 'no'");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"application\":7}", "application must be a name");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":9,\"application\":null}", "there is no worker 9");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":0,\"cores\":0,\"application\":\"net\"}", "serves nobody without cores");
    refuse(session, "{\"op\":\"scale-set\",\"cores\":1}", "worker must be its number");
    refuse(session, "{\"op\":\"scale-set\",\"worker\":-1,\"cores\":1}", "worker must be its number");
    check_cores(session, 0);
}

/* ---- All of it ---------------------------------------------------------------------------------------- */

static char yaml[sizeof(config) + 200];

static void
start(void)
{
    size_t file_bytes;
    void *file;

    EXPECT(zoo_write(zoo_find("resnet18"), ZOO_SIZE_TEST, leat_test_seed, &file, &file_bytes) == LEAT_OK);
    leatd_init(&leatd);
    (void)snprintf(yaml, sizeof(yaml), "%s/net.onnx", leatd.root.path);
    FILE *out = fopen(yaml, "wb");
    EXPECT(out != NULL && fwrite(file, file_bytes, 1, out) == 1 && fclose(out) == 0);
    free(file);
    (void)snprintf(yaml, sizeof(yaml), config, leatd_cpus() < 4 ? "false" : "true", WORKERS, CORES_MAX, leatd.root.path);
    leatd_start(&leatd, yaml);
}

/* The folders of groups, "" where there are none; returns why. */
static json_t *
list_groups(char groups[WORKERS][512])
{
    struct leat_session *control = leatd_open_session(&leatd, 2, 4096);
    json_t *shown = leatd_request(control, "{\"op\":\"scale-show\"}");
    json_t *why = json_incref(json_object_get(shown, "held_why"));

    for (uint32_t w = 0; w < WORKERS; w++) {
        const json_t *worker = json_array_get(json_object_get(shown, "workers"), w);
        const char *group = json_string_value(json_object_get(worker, "group"));
        (void)snprintf(groups[w], sizeof(groups[w]), "%s", group != NULL ? group : "");
        EXPECT(group == NULL || access(group, F_OK) == 0);
    }
    json_decref(shown);
    leat_close(control);
    return why;
}

static _Atomic uint32_t answers; /* relaxed */

static void *
change_until_killed(void *argument)
{
    struct leat_session *control = argument;
    enum leat_status status = LEAT_OK;
    char text[96], *reply;

    for (uint32_t i = 0; status == LEAT_OK; i++) {
        (void)snprintf(text, sizeof(text), "{\"op\":\"scale-set\",\"worker\":%u,\"cores\":%u}", i / 2 % WORKERS, 1 + i % 2);
        status = leat_admin(control, text, -1, &reply);
        if (status == LEAT_OK) {
            leat_admin_free(reply);
            (void)atomic_fetch_add_explicit(&answers, 1, memory_order_relaxed);
        }
    }
    return NULL;
}

static void
kill_amid_changes(void)
{
    struct leat_session *control = leatd_open_session(&leatd, 2, 4096);
    pthread_t thread;

    EXPECT(pthread_create(&thread, NULL, change_until_killed, control) == 0);
    while (atomic_load_explicit(&answers, memory_order_relaxed) < 20) {
        leat_test_look_later();
    }
    leatd_end(&leatd, SIGKILL);
    EXPECT(pthread_join(thread, NULL) == 0);
    leat_close(control);
}

/* Ends it; then a killed one, whose groups whoever starts next on this machine has removed once the next one serves. */
static void
test_ends(void)
{
    char groups[WORKERS][512], before[WORKERS][512];

    json_t *why = list_groups(groups);
    if (groups[0][0] == '\0') {
        (void)printf("no control groups are tested: %s\n", json_string_value(why));
    }
    json_decref(why);
    leatd_end(&leatd, SIGTERM);
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(groups[w][0] == '\0' || access(groups[w], F_OK) != 0);
    }
    leatd_start(&leatd, yaml);
    json_decref(list_groups(before));
    kill_amid_changes();
    leatd_start(&leatd, yaml);
    json_decref(list_groups(groups));
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(before[w][0] == '\0' || (access(before[w], F_OK) != 0 && strcmp(before[w], groups[w]) != 0));
    }
    leatd_end(&leatd, SIGTERM);
    for (uint32_t w = 0; w < WORKERS; w++) {
        EXPECT(groups[w][0] == '\0' || access(groups[w], F_OK) != 0);
    }
}

static void
make_buffers(uint64_t *random)
{
    input = malloc(input_bytes);
    EXPECT(input != NULL);
    for (size_t i = 0; i < input_bytes / sizeof(float); i++) {
        ((float *)(void *)input)[i] = (float)(leat_test_random(random) % 2000) / 1000.0f - 1.0f;
    }
    for (uint32_t cores = 1; cores < SIZES; cores++) {
        expected[cores] = malloc(output_bytes);
        EXPECT(expected[cores] != NULL);
    }
}

int
main(void)
{
    struct client client;
    uint64_t random, resizes = 0;
    pthread_t thread;

    leat_test_init();
    random = leat_test_seed;
    if (leatd_cpus() < 2) {
        (void)printf("skipped: two workers that share no CPU need two\n");
        return LEAT_TEST_SKIP;
    }
    start();
    struct leat_session *control = leatd_open_session(&leatd, 2, 4096);
    connect(&client);
    make_buffers(&random);
    json_t *shown = leatd_request(control, "{\"op\":\"scale-show\"}");
    free_cores = (uint32_t)leatd_number(json_array_get(json_object_get(shown, "nodes"), 0), "free_cores");
    json_decref(shown);
    for (uint32_t w = 0; w < WORKERS; w++) {
        held[w] = 1;
    }
    test_refusals(control);
    resizes += resize(control, 1, 0);
    for (uint32_t cores = 1; cores <= CORES_MAX; cores *= 2) { /* what each size answers */
        resizes += resize(control, 0, cores);
        expect_answers(&client, 0);
    }
    EXPECT(pthread_create(&thread, NULL, load, &client) == 0);
    const uint32_t before = (uint32_t)resizes;
    for (uint32_t i = 0; (uint32_t)resizes - before < RESIZES; i++) {
        const uint32_t worker = (uint32_t)(leat_test_random(&random) % WORKERS);
        const uint32_t any = 1u << leat_test_random(&random) % 3, other = any == 2 ? 0 : any;
        resizes += resize(control, worker, leat_test_random(&random) % 8 == 0 ? other : held[worker] == 1 ? 2 : 1);
        if (leat_test_random(&random) % 8 == 0) {
            dedicate(control, (uint32_t)(leat_test_random(&random) % WORKERS), leat_test_random(&random) % 2 == 0);
        }
        if (i % (RESIZES / CHECKS) == 0) {
            check_cores(control, resizes);
        }
    }
    atomic_store_explicit(&client.stop, true, memory_order_relaxed);
    EXPECT(pthread_join(thread, NULL) == 0);
    for (uint32_t i = 0; i < WORKERS * WORKERS; i++) { /* who has most gives first */
        resizes += resize(control, i % WORKERS, held[i % WORKERS] > 1 || i >= WORKERS ? 1 : held[i % WORKERS]);
    }
    for (uint32_t parked = 0; parked < WORKERS; parked++) {
        resizes += resize(control, 1 - parked, 1);
        dedicate(control, 1 - parked, false);
        resizes += resize(control, parked, 0);
        check_cores(control, resizes);
        expect_served(&client);
        resizes += resize(control, 1 - parked, 2);
        resizes += resize(control, 1 - parked, 1);
        resizes += resize(control, parked, 1);
        dedicate(control, parked, true);
        expect_served(&client);
        dedicate(control, 1 - parked, true);
        expect_served(&client);
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        resizes += resize(control, worker, 1);
        dedicate(control, worker, worker > 0);
        dedicate(control, 1 - worker, worker > 0);
        expect_answers(&client, worker);
    }
    check_cores(control, resizes);
    (void)printf("%llu resizes, %llu queries\n", (unsigned long long)resizes, (unsigned long long)client.answered);
    EXPECT(client.asked == client.answered);
    while (leatd_counter(control, "ok") < client.answered) { /* the report to the dispatcher comes after the answer */
        leat_test_look_later();
    }
    EXPECT(leatd_counter(control, "ok") == client.asked && leatd_counter(control, "accepted") == client.asked);
    leat_close(client.session);
    leat_close(control);
    test_ends();
    leatd_fini(&leatd);
    free(input);
    for (uint32_t cores = 1; cores < SIZES; cores++) {
        free(expected[cores]);
    }
    return 0;
}
