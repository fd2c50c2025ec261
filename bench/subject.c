/* SPDX-License-Identifier: Apache-2.0 */
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "bench/roundtrip.h"

enum { ARENA_BYTES = 4 << 20 };

static const struct model {
    const char *name;
    uint32_t bytes;
    enum bench_payload payload;
} models[] = {{"n64", 64, BENCH_HANDED_OVER},
              {"n4096", 4096, BENCH_HANDED_OVER},
              {"n614400", 614400, BENCH_HANDED_OVER},
              {"read", 614400, BENCH_READ},
              {"copy", 614400, BENCH_COPIED}};
enum { MODELS = LEAT_COUNT_OF(models) };
struct bench_subject {
    char folder[64], socket_path[96];
    pid_t daemon;
    uint64_t spin_ns; /* of clients */
    struct leat_session *session;
    struct leat_query queries[MODELS];
};

/* ---- The daemon ------------------------------------------------------------------------------- */

static void
write_config(const struct bench_subject *subject, const struct bench_env *env, bool parked)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/leat.yaml", subject->folder);
    FILE *file = fopen(path, "w");
    LEAT_ASSERT(file != NULL);
    (void)fprintf(file,
                  "socket: %s\nstate_dir: %s/state\nlog_level: error\n"
                  "dispatcher: {cpu: %d, spin: %s, hold_cpu_dma_latency: %s}\n"
                  "workers: [{count: 1, cores: 1, cpus: \"%d\"}]\n",
                  subject->socket_path, subject->folder, env->dispatcher_cpu, parked ? "0" : "10ms",
                  env->options->hold_dma_latency ? "true" : "false", env->worker_cpu);
    LEAT_MUST(fclose(file) == 0);
}

static void
start_daemon(struct bench_subject *subject, const struct bench_env *env, bool parked)
{
    char config[160];

    (void)strcpy(subject->folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(subject->folder) != NULL);
    (void)snprintf(subject->socket_path, sizeof(subject->socket_path), "%s/leat.sock", subject->folder);
    (void)snprintf(config, sizeof(config), "%s/leat.yaml", subject->folder);
    write_config(subject, env, parked);
    subject->daemon = bench_fork();
    if (subject->daemon == 0) {
        cpu_set_t all;
        memset(&all, 0xff, sizeof(all));
        (void)sched_setaffinity(0, sizeof(all), &all);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(env->options->daemon_path, "leatd", "--config", config, (char *)NULL);
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

static void
remove_files(const struct bench_subject *subject)
{
    (void)nftw(subject->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS); /* contents first, following no link */
}

/* ---- Sessions --------------------------------------------------------------------------------- */

static enum leat_status
open_session(const struct bench_subject *subject, struct leat_session **ret_session)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    options.socket_path = subject->socket_path;
    options.arena_bytes = ARENA_BYTES;
    options.spin_ns = subject->spin_ns;
    return leat_open(&options, ret_session);
}

static void
add_model(struct leat_session *session, const struct model *model)
{
    static const char *const payloads[] = {[BENCH_HANDED_OVER] = "leave", [BENCH_READ] = "read", [BENCH_COPIED] = "copy"};
    char request[256], *reply;

    (void)snprintf(request, sizeof(request),
                   "{\"op\":\"model-add\",\"name\":\"%s\",\"backend\":\"synthetic\",\"items_max\":64,"
                   "\"options\":{\"payload\":\"%s\"},\"input_bytes\":%u,\"output_bytes\":%u}",
                   model->name, payloads[model->payload], model->bytes,
                   model->payload == BENCH_COPIED ? model->bytes : 64);
    LEAT_MUST(leat_admin(session, request, -1, &reply) == LEAT_OK);
    leat_admin_free(reply); /* a refusal shows when the model is looked for */
}

static struct leat_query
prepare(struct leat_session *session, const struct model *model)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_target target;
    LEAT_MUST(leat_find(session, model->name, &target) == LEAT_OK);
    query.target = target.id;
    for (int t = 0; t < 2; t++) {
        LEAT_MUST(leat_tensor_alloc(session, target.tensors[t].item_bytes, &query.tensors[t]) == LEAT_OK);
    }
    return query;
}

static const struct model *
model_of(size_t bytes, enum bench_payload payload)
{
    const struct model *model = models;
    while (model->bytes != bytes || model->payload != payload) {
        model++;
    }
    return model;
}

struct bench_subject *
bench_subject_start(const struct bench_env *env, bool parked)
{
    struct bench_subject *subject = calloc(1, sizeof(*subject));
    LEAT_ASSERT(subject != NULL);
    subject->spin_ns = parked ? 0 : 1000000000;
    start_daemon(subject, env, parked);
    enum leat_status status = open_session(subject, &subject->session);
    while (status != LEAT_OK) {
        if (status != LEAT_ERR_SYS || waitpid(subject->daemon, NULL, WNOHANG) != 0) { /* SYS: it does not listen yet */
            (void)fprintf(stderr, "bench_roundtrip: %s: %s\n", env->options->daemon_path, leat_error_text());
            (void)kill(subject->daemon, SIGKILL);
            remove_files(subject);
            exit(1);
        }
        status = open_session(subject, &subject->session);
    }
    for (size_t m = 0; m < MODELS; m++) {
        add_model(subject->session, &models[m]);
        subject->queries[m] = prepare(subject->session, &models[m]);
    }
    return subject;
}

void
bench_subject_stop(struct bench_subject *subject)
{
    leat_close(subject->session);
    LEAT_MUST(kill(subject->daemon, SIGTERM) == 0);
    bench_reap(subject->daemon);
    remove_files(subject);
    free(subject);
}

/* ---- Trips ------------------------------------------------------------------------------------ */

struct trip {
    struct leat_session *session;
    const struct leat_query *query;
    enum bench_payload payload;
    const unsigned char *bytes; /* what the client sends, but for the first word */
    uint64_t sum;               /* of them without the first word */
};

static struct trip
make_trip(const struct bench_env *env, struct leat_session *session, const struct leat_query *query,
          enum bench_payload payload)
{
    const uint64_t sum = bench_sum(env->payload + sizeof(uint64_t), BENCH_BYTES_MAX - sizeof(uint64_t));
    return (struct trip){session, query, payload, env->payload, sum};
}

static void
write_input(const struct trip *trip, unsigned char *input, uint64_t sequence)
{
    memcpy(input, trip->bytes, BENCH_BYTES_MAX);
    memcpy(input, &sequence, sizeof(sequence));
}

static void
check_output(const struct trip *trip, const unsigned char *output, uint64_t sequence)
{
    uint64_t word;
    memcpy(&word, output, sizeof(word));
    LEAT_ASSERT(word == (trip->payload == BENCH_COPIED ? sequence : trip->sum + sequence));
}

static void
trip_once(void *context, uint64_t sequence)
{
    const struct trip *trip = context;
    struct leat_completion done;
    struct leat_query query = *trip->query;

    query.user_data = sequence;
    if (trip->payload != BENCH_HANDED_OVER) {
        write_input(trip, query.tensors[0], sequence);
    }
    LEAT_MUST(leat_run(trip->session, &query, &done) == LEAT_OK);
    LEAT_ASSERT(done.outcome == LEAT_OUTCOME_OK && done.user_data == sequence);
    if (trip->payload != BENCH_HANDED_OVER) {
        check_output(trip, query.tensors[1], sequence);
    }
}

struct bench_latency
bench_subject_trips(const struct bench_env *env, struct bench_subject *subject, size_t bytes, enum bench_payload payload)
{
    const struct leat_query *query = &subject->queries[model_of(bytes, payload) - models];
    struct trip trip = make_trip(env, subject->session, query, payload);
    return bench_window(env, trip_once, &trip, subject->spin_ns == 0 ? BENCH_SLEEP_GAP_NS : 0);
}

double
bench_subject_throughput(const struct bench_env *env, struct bench_subject *subject)
{
    struct leat_query queries[BENCH_IN_FLIGHT];
    struct leat_completion done[BENCH_IN_FLIGHT];
    uint64_t answered = 0;
    const uint64_t start_ns = leat_clock_now(&env->clock);
    uint64_t now_ns = start_ns;

    for (int i = 0; i < BENCH_IN_FLIGHT; i++) {
        queries[i] = subject->queries[0];
    }
    while (now_ns - start_ns < env->options->window_ns) {
        size_t submitted;
        const size_t room = BENCH_IN_FLIGHT - leat_in_flight(subject->session);
        if (room > 0) {
            LEAT_MUST(leat_submit_batch(subject->session, queries, room, &submitted) == LEAT_OK);
        }
        const size_t count = leat_poll(subject->session, done, BENCH_IN_FLIGHT);
        for (size_t i = 0; i < count; i++) {
            LEAT_ASSERT(done[i].outcome == LEAT_OUTCOME_OK);
        }
        answered += count;
        now_ns = leat_clock_now(&env->clock);
    }
    while (leat_in_flight(subject->session) > 0) {
        (void)leat_poll(subject->session, done, BENCH_IN_FLIGHT);
    }
    return (double)answered * 1e9 / (double)(now_ns - start_ns);
}

struct bench_first
bench_subject_first(const struct bench_env *env, const struct bench_subject *subject, size_t bytes,
                    enum bench_payload payload)
{
    enum { WARM_TRIPS = 101, KEEP_AWAKE_TRIPS = 20 };
    struct leat_session *session;
    struct bench_first result = {0, 0};
    struct trip awake = make_trip(env, subject->session, &subject->queries[0], BENCH_HANDED_OVER);

    LEAT_MUST(open_session(subject, &session) == LEAT_OK);
    const struct leat_query query = prepare(session, model_of(bytes, payload));
    struct trip trip = make_trip(env, session, &query, payload);
    /* The question is what attaching leaves to pay, not what waking the daemon costs. */
    for (uint64_t i = 1; i <= KEEP_AWAKE_TRIPS; i++) {
        trip_once(&awake, i);
    }
    for (uint64_t i = 0; i <= WARM_TRIPS; i++) {
        const uint64_t start_ns = leat_clock_now(&env->clock);
        trip_once(&trip, i + 1);
        const uint64_t took_ns = leat_clock_now(&env->clock) - start_ns;
        if (i == 0) {
            result.first_ns = took_ns;
        } else {
            env->samples_ns[i - 1] = took_ns;
        }
    }
    result.warm_ns = bench_order(env->samples_ns, WARM_TRIPS).p50;
    leat_close(session);
    return result;
}
