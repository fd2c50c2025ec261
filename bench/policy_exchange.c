/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"

static const char measures[] =
    "Measures   What a policy's making and exchange do to queries: their latency, from when they were due until the client\n"
    "           had the answer, less what their batch ran; and how long the dispatcher's decisions took. leatd has 4\n"
    "           synthetic workers, which sleep for a millisecond or less, and three variants; three processes send\n"
    "           1000 queries/s in all, Poisson, a quarter of what the most accurate variant carries.\n"
    "Beside it  The same in windows without, which take turns with those in which policies are made anew one after the\n"
    "           other. There, queries that were due in the 3 ms before a new policy was reported in force are told\n"
    "           from those that met its making only.\n"
    "Does not   measure kernels, which would compete with whoever makes a policy for cores: workers sleep.\n"
    "Method     Open loop. Percentiles are of all windows of a kind together, as one has too few queries for a p99.9, and\n"
    "           ratios are of those. Decision times are the daemon's own, rounded up to 1/16 of a power of two.";

enum {
    CLIENTS = 3,
    RATE_QPS = 1000, /* of all clients */
    SLOTS = 256,
    RECORDS_MAX = 1 << 20, /* of a client */
    NEAR_NS = 3000000,     /* before a report: in which an exchange certainly is */
    EXCHANGES_MAX = 1 << 16,
    BUCKETS_MAX = 4096,
    WARM_NS = 500000000,
};

enum kind { CALM, MADE, EXCHANGED, KINDS };
static const char *const kinds[KINDS] = {"no policy made", "a policy is made", "a policy is exchanged"};

struct record {
    uint64_t due_ns, done_ns, exec_ns;
};

struct client {
    uint64_t count;
    struct record records[RECORDS_MAX];
};

/* Counts by largest value, rising. */
struct decisions {
    uint64_t tops_ns[BUCKETS_MAX], counts[BUCKETS_MAX];
    uint32_t count;
};

static struct run {
    const struct bench_options *options;
    char folder[64], socket_path[96];
    pid_t daemon, clients[CLIENTS];
    struct client *shared; /* [CLIENTS] */
    uint64_t start_ns, end_ns;
    uint64_t exchanges_ns[EXCHANGES_MAX]; /* reported, rising */
    uint32_t exchange_count;
    struct decisions seen, calm, busy;
} run;

static uint64_t samples_ns[(size_t)CLIENTS * RECORDS_MAX];

/* ---- The daemon ------------------------------------------------------------------------------- */

static void
start_daemon(void)
{
    char config[160];

    (void)strcpy(run.folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(run.folder) != NULL);
    (void)snprintf(run.socket_path, sizeof(run.socket_path), "%s/leat.sock", run.folder);
    (void)snprintf(config, sizeof(config), "%s/leat.yaml", run.folder);
    FILE *file = fopen(config, "w");
    LEAT_ASSERT(file != NULL);
    (void)fprintf(file,
                  "socket: %s\nstate_dir: %s/state\n"
                  "classes: [{name: worker}]\n"
                  "workers: [{class: worker, count: 4}]\n"
                  "models:\n"
                  "  - {name: good, backend: synthetic, items_max: 4, accuracy: 0.9, synthetic: {latency: 600us, per_item: 400us}}\n"
                  "  - {name: fair, backend: synthetic, items_max: 4, accuracy: 0.8, synthetic: {latency: 500us, per_item: 250us}}\n"
                  "  - {name: quick, backend: synthetic, items_max: 4, accuracy: 0.6, synthetic: {latency: 400us, per_item: 200us}}\n"
                  "applications:\n"
                  "  - {name: choice, models: [good, fair, quick], selector: mdp, latency: 5ms, late: serve}\n",
                  run.socket_path, run.folder);
    LEAT_MUST(fclose(file) == 0);
    run.daemon = bench_fork();
    if (run.daemon == 0) {
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(run.options->daemon_path, "leatd", "--config", config, (char *)NULL);
        _exit(127);
    }
}

static int
remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static struct leat_session *
open_session(void)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    struct leat_session *session;
    enum leat_status status;

    options.socket_path = run.socket_path;
    options.slots = SLOTS;
    options.arena_bytes = 1 << 20;
    do {
        status = leat_open(&options, &session);
    } while (status == LEAT_ERR_SYS && waitpid(run.daemon, NULL, WNOHANG) == 0); /* SYS: it does not listen yet */
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "bench_policy_exchange: %s: %s\n", run.options->daemon_path, leat_error_text());
        (void)kill(run.daemon, SIGKILL);
        (void)nftw(run.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        exit(1);
    }
    return session;
}

/* The answer, which is no refusal; the caller's. */
static json_t *
ask(struct leat_session *session, const char *request)
{
    char *reply;

    LEAT_MUST(leat_admin(session, request, -1, &reply) == LEAT_OK);
    json_t *answer = json_loads(reply, 0, NULL);
    if (answer == NULL || json_object_get(answer, "error") != NULL) {
        (void)fprintf(stderr, "bench_policy_exchange: %s: %s\n", request, reply);
        (void)kill(run.daemon, SIGTERM);
        exit(1);
    }
    leat_admin_free(reply);
    return answer;
}

/* ---- Clients ---------------------------------------------------------------------------------- */

static void
collect(struct leat_session *session, struct client *client, uint64_t timeout_ns)
{
    struct leat_completion done[SLOTS];
    size_t got = 0;

    if (leat_wait(session, done, SLOTS, timeout_ns, &got) != LEAT_OK) {
        return;
    }
    const uint64_t now_ns = leat_monotonic_ns();
    for (size_t i = 0; i < got; i++) {
        struct record *record = &client->records[done[i].user_data];
        LEAT_ASSERT(done[i].outcome == LEAT_OUTCOME_OK);
        record->done_ns = now_ns;
        record->exec_ns = done[i].exec_ns;
    }
}

static void
sleep_until(uint64_t at_ns)
{
    const struct timespec at = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* Submits what is due, and collects meanwhile, until the end. */
static void
send_all(uint32_t number)
{
    struct leat_session *session = open_session();
    struct client *client = &run.shared[number];
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    uint64_t random = number + 1;

    LEAT_MUST(leat_find(session, "choice", &target) == LEAT_OK);
    query.target = target.id;
    for (int t = 0; t < 2; t++) { /* nobody reads or writes them */
        LEAT_MUST(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    uint64_t due_ns = run.start_ns;
    while (due_ns < run.end_ns && client->count < RECORDS_MAX) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double part = ((double)(random >> 11) + 0.5) * 0x1p-53;
        due_ns += (uint64_t)(-log(part) * 1e9 * CLIENTS / RATE_QPS);
        for (uint64_t now_ns = leat_monotonic_ns(); now_ns < due_ns; now_ns = leat_monotonic_ns()) {
            if (leat_in_flight(session) > 0) {
                collect(session, client, due_ns - now_ns);
            } else {
                sleep_until(due_ns);
            }
        }
        while (leat_in_flight(session) == SLOTS) {
            collect(session, client, UINT64_MAX);
        }
        client->records[client->count] = (struct record){.due_ns = due_ns};
        query.user_data = client->count++;
        LEAT_MUST(leat_submit(session, &query, NULL) == LEAT_OK);
    }
    while (leat_in_flight(session) > 0) {
        collect(session, client, UINT64_MAX);
    }
    leat_close(session);
    _exit(0);
}

/* ---- Windows ---------------------------------------------------------------------------------- */

/* Adds what was decided since the last call. */
static void
take_decisions(struct leat_session *session, struct decisions *into)
{
    json_t *status = ask(session, "{\"op\":\"status\"}"), *bucket;
    json_t *buckets = json_object_get(json_object_get(status, "decision_ns"), "buckets");
    struct decisions now = {0};
    size_t i;

    if (buckets == NULL) {
        buckets = json_object_get(json_object_get(json_object_get(status, "dispatcher"), "decision_ns"), "buckets");
    }
    LEAT_ASSERT(buckets != NULL && json_array_size(buckets) <= BUCKETS_MAX);
    json_array_foreach(buckets, i, bucket) {
        now.tops_ns[now.count] = (uint64_t)json_integer_value(json_array_get(bucket, 0));
        now.counts[now.count++] = (uint64_t)json_integer_value(json_array_get(bucket, 1));
    }
    json_decref(status);
    struct decisions sum = {0};
    for (uint32_t n = 0, s = 0, o = 0; n < now.count; n++) { /* buckets are never emptied: `seen` and `into` are among `now` */
        while (s < run.seen.count && run.seen.tops_ns[s] < now.tops_ns[n]) {
            s++;
        }
        while (o < into->count && into->tops_ns[o] < now.tops_ns[n]) {
            o++;
        }
        const uint64_t before = s < run.seen.count && run.seen.tops_ns[s] == now.tops_ns[n] ? run.seen.counts[s] : 0;
        const uint64_t had = o < into->count && into->tops_ns[o] == now.tops_ns[n] ? into->counts[o] : 0;
        sum.tops_ns[sum.count] = now.tops_ns[n];
        sum.counts[sum.count++] = had + now.counts[n] - before;
    }
    run.seen = now;
    *into = sum;
}

static void
exchange_until(struct leat_session *session, uint64_t end_ns)
{
    do {
        json_decref(ask(session, "{\"op\":\"app-policy-refresh\",\"name\":\"choice\"}"));
        if (run.exchange_count < EXCHANGES_MAX) {
            run.exchanges_ns[run.exchange_count++] = leat_monotonic_ns();
        }
    } while (leat_monotonic_ns() < end_ns);
}

/* Even windows are calm. */
static void
measure(struct leat_session *session)
{
    struct decisions ignored = {0};

    sleep_until(run.start_ns + WARM_NS);
    take_decisions(session, &ignored);
    for (uint32_t w = 0; w < 2 * run.options->windows; w++) {
        const uint64_t end_ns = run.start_ns + WARM_NS + (w + 1) * run.options->window_ns;
        if (w % 2 == 1) {
            exchange_until(session, end_ns);
        } else {
            sleep_until(end_ns);
        }
        take_decisions(session, w % 2 == 1 ? &run.busy : &run.calm);
    }
}

/* Which kind of window a query was in; KINDS: of none, or on an edge, where a last exchange may go on for a while. */
static enum kind
kind_of(const struct record *record, uint64_t window_ns)
{
    const uint64_t from_ns = run.start_ns + WARM_NS;
    uint32_t low = 0, high = run.exchange_count;

    if (record->due_ns < from_ns || record->done_ns >= from_ns + 2 * window_ns * run.options->windows) {
        return KINDS;
    }
    const uint64_t window = (record->due_ns - from_ns) / window_ns;
    while (low < high) { /* the first that was reported after it was due */
        const uint32_t middle = (low + high) / 2;
        if (run.exchanges_ns[middle] < record->due_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    /* By when it was due alone: who waits for long would meet more exchanges. */
    if (low < run.exchange_count && run.exchanges_ns[low] < record->due_ns + NEAR_NS) {
        return EXCHANGED;
    }
    if (window % 2 == 1) {
        return MADE;
    }
    return (record->due_ns - from_ns) % window_ns < window_ns / 4 ? KINDS : CALM;
}

/* ---- Figures ---------------------------------------------------------------------------------- */

static void
print_row(const char *subject, const char *metric, double value_ns, const char *peer, double peer_ns)
{
    bench_print(run.options, &(struct bench_row){.subject = subject, .metric = metric, .value = value_ns / 1e3, .unit = "us",
                                                 .windows = run.options->windows, .peer = peer,
                                                 .ratio = peer_ns > 0 ? value_ns / peer_ns : 0});
}

static void
print_latencies(void)
{
    struct bench_latency all[KINDS] = {0};

    for (uint32_t k = 0; k < KINDS; k++) {
        uint64_t count = 0;
        for (uint32_t c = 0; c < CLIENTS; c++) {
            for (uint64_t i = 0; i < run.shared[c].count; i++) {
                const struct record *record = &run.shared[c].records[i];
                const uint64_t latency_ns = record->done_ns - record->due_ns;
                if (kind_of(record, run.options->window_ns) == (enum kind)k) {
                    samples_ns[count++] = latency_ns > record->exec_ns ? latency_ns - record->exec_ns : 0;
                }
            }
        }
        if (count > 0) {
            all[k] = bench_order(samples_ns, count);
        }
        const double values[] = {(double)all[k].p50, (double)all[k].p99, (double)all[k].p999};
        const double calm[] = {(double)all[CALM].p50, (double)all[CALM].p99, (double)all[CALM].p999};
        static const char *const metrics[] = {"p50", "p99", "p99.9"};
        for (uint32_t m = 0; m < LEAT_COUNT_OF(values) && count > 0; m++) {
            print_row(kinds[k], metrics[m], values[m], k == CALM ? NULL : kinds[CALM], calm[m]);
        }
        bench_note(run.options, "%s: %llu queries, the slowest %.0f us", kinds[k], (unsigned long long)count,
                   (double)all[k].max / 1e3);
    }
}

static uint64_t
quantile(const struct decisions *decisions, double part)
{
    uint64_t all = 0, sum = 0;
    uint32_t b = 0;

    for (uint32_t i = 0; i < decisions->count; i++) {
        all += decisions->counts[i];
    }
    while (b + 1 < decisions->count && (double)(sum += decisions->counts[b]) < part * (double)all) {
        b++;
    }
    return decisions->count > 0 ? decisions->tops_ns[b] : 0;
}

static void
print_decisions(void)
{
    static const double parts[] = {0.5, 0.99, 0.999};
    static const char *const metrics[] = {"p50", "p99", "p99.9"};

    for (uint32_t m = 0; m < LEAT_COUNT_OF(parts); m++) {
        const double calm = (double)quantile(&run.calm, parts[m]);
        print_row("decision, no policy made", metrics[m], calm, NULL, 0);
        print_row("decision, policies made and exchanged", metrics[m], (double)quantile(&run.busy, parts[m]),
                  "decision, no policy made", calm);
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "policy_exchange", .windows = 20, .window_ns = 1000000000, .daemon_path = LEATD_PATH};
    int exit_code = 0;

    if (!bench_parse(argc, argv, measures, &options, &exit_code)) {
        return exit_code;
    }
    run.options = &options;
    run.shared = mmap(NULL, CLIENTS * sizeof(*run.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LEAT_ASSERT(run.shared != MAP_FAILED);
    start_daemon();
    struct leat_session *session = open_session();
    run.start_ns = leat_monotonic_ns();
    run.end_ns = run.start_ns + WARM_NS + 2 * options.windows * options.window_ns;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        run.clients[c] = bench_fork();
        if (run.clients[c] == 0) {
            send_all(c);
        }
    }
    measure(session);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        bench_reap(run.clients[c]);
        LEAT_ASSERT(run.shared[c].count > 0);
    }
    leat_close(session);
    LEAT_MUST(kill(run.daemon, SIGTERM) == 0);
    bench_reap(run.daemon);
    (void)nftw(run.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    LEAT_ASSERT(run.exchange_count > 0);
    print_latencies();
    print_decisions();
    bench_note(&options, "%.1f exchanges/s in windows with them",
               run.exchange_count * 1e9 / ((double)options.windows * (double)options.window_ns));
    bench_note_load(&options);
    return 0;
}
