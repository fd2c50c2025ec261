/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"

static const char measures[] =
    "Measures   What a stage more costs a query to a pipeline: chains of 1, 2, 4 and 8 stages, each of which copies 64 "
    "bytes and\n"
    "           takes no time otherwise; client, dispatcher and the one worker spin, each on a CPU of its own.\n"
    "Beside it  A client that makes the same calls itself, one after another, of the same daemon.\n"
    "Does not   say anything of tensors that a client would have to carry, nor of stages side by side.\n"
    "Method     Closed loop, one outstanding, TSC. The cases take turns, a window each. Every answer is compared with what "
    "went\n"
    "           in. A hop is a seventh of what 8 stages take longer than 1. Ratios are medians over rounds.";

enum { LENGTHS = 4, BYTES = 64, SAMPLES_MAX = 1 << 20, LONGEST = 8 };
static const uint32_t lengths[LENGTHS] = {1, 2, 4, LONGEST};

static struct run {
    const struct bench_options *options;
    struct leat_clock clock;
    char folder[64], socket_path[96];
    pid_t daemon;
    struct leat_session *session;
    struct leat_target model, pipelines[LENGTHS];
    unsigned char *tensors[3]; /* two, for calls to take turns with, and stage_ns */
    uint64_t samples_ns[SAMPLES_MAX];
    double p50[2][LENGTHS][BENCH_WINDOWS_MAX], p99[2][LENGTHS][BENCH_WINDOWS_MAX]; /* calls, then pipelines */
    double hops[2][BENCH_WINDOWS_MAX];
} run;

/* ---- The daemon ------------------------------------------------------------------------------- */

static int
remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static void
end_daemon(int signal_number)
{
    (void)kill(run.daemon, signal_number);
    (void)waitpid(run.daemon, NULL, 0);
    (void)nftw(run.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

_Noreturn static void
give_up(const char *what)
{
    (void)fprintf(stderr, "bench_pipeline: %s: %s\n", what, leat_error_text());
    end_daemon(SIGKILL);
    exit(1);
}

static void
start_daemon(int dispatcher_cpu, int worker_cpu)
{
    char path[160];

    (void)strcpy(run.folder, "/tmp/leat-bench-XXXXXX");
    LEAT_MUST(mkdtemp(run.folder) != NULL);
    (void)snprintf(run.socket_path, sizeof(run.socket_path), "%s/leat.sock", run.folder);
    (void)snprintf(path, sizeof(path), "%s/leat.yaml", run.folder);
    FILE *file = fopen(path, "w");
    LEAT_ASSERT(file != NULL);
    (void)fprintf(file,
                  "socket: %s\nstate_dir: %s/state\nlog_level: error\n"
                  "dispatcher: {cpu: %d, spin: 10ms, hold_cpu_dma_latency: %s}\n"
                  "workers: [{count: 1, cores: 1, cpus: \"%d\"}]\n",
                  run.socket_path, run.folder, dispatcher_cpu, run.options->hold_dma_latency ? "true" : "false",
                  worker_cpu);
    LEAT_MUST(fclose(file) == 0);
    run.daemon = bench_fork();
    if (run.daemon == 0) {
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(run.options->daemon_path, "leatd", "--config", path, (char *)NULL);
        _exit(127);
    }
}

static void
open_session(void)
{
    struct leat_options options = LEAT_OPTIONS_INIT;
    enum leat_status status;

    options.socket_path = run.socket_path;
    options.spin_ns = 1000000000;
    do {
        status = leat_open(&options, &run.session);
    } while (status == LEAT_ERR_SYS && waitpid(run.daemon, NULL, WNOHANG) == 0); /* SYS: it does not listen yet */
    if (status != LEAT_OK) {
        give_up(run.options->daemon_path);
    }
}

static void
ask_daemon(const char *request)
{
    char *reply;
    if (leat_admin(run.session, request, -1, &reply) != LEAT_OK) {
        give_up(request);
    }
    leat_admin_free(reply); /* a refusal shows when what it names is looked for */
}

static void
add_pipeline(uint32_t l)
{
    const char *in = run.model.tensors[0].name, *out = run.model.tensors[1].name;
    char request[2048], name[16];
    int used = snprintf(request, sizeof(request),
                        "{\"op\":\"pipeline-add\",\"name\":\"chain%u\",\"pipeline\":{\"stages\":[", lengths[l]);

    for (uint32_t s = 0; s < lengths[l]; s++) {
        char source[LEAT_TENSOR_NAME_MAX + 16] = "input.x";
        if (s > 0) {
            (void)snprintf(source, sizeof(source), "s%u.%s", s - 1, out);
        }
        used += snprintf(request + used, sizeof(request) - (size_t)used,
                         "%s{\"name\":\"s%u\",\"application\":\"copy\",\"inputs\":{\"%s\":\"%s\"}}", s > 0 ? "," : "", s,
                         in, source);
    }
    (void)snprintf(request + used, sizeof(request) - (size_t)used, "],\"outputs\":{\"y\":\"s%u.%s\"}}}", lengths[l] - 1,
                   out);
    ask_daemon(request);
    (void)snprintf(name, sizeof(name), "chain%u", lengths[l]);
    if (leat_find(run.session, name, &run.pipelines[l]) != LEAT_OK) {
        give_up(name);
    }
}

static void
prepare(void)
{
    open_session();
    ask_daemon("{\"op\":\"model-add\",\"name\":\"copy\",\"backend\":\"synthetic\",\"items_max\":1,\"options\":{\"payload\":"
               "\"copy\"},"
               "\"input_bytes\":64,\"output_bytes\":64}");
    if (leat_find(run.session, "copy", &run.model) != LEAT_OK) {
        give_up("copy");
    }
    for (uint32_t l = 0; l < LENGTHS; l++) {
        add_pipeline(l);
    }
    for (uint32_t t = 0; t < 3; t++) {
        LEAT_MUST(leat_tensor_alloc(run.session, t < 2 ? BYTES : LONGEST * 2 * sizeof(uint64_t),
                                    (void **)&run.tensors[t]) == LEAT_OK);
    }
}

/* ---- Trips ------------------------------------------------------------------------------------ */

static void
ask(const struct leat_target *target, unsigned char *input, unsigned char *output)
{
    struct leat_query query = LEAT_QUERY_INIT;
    struct leat_completion done;

    query.target = target->id;
    query.tensors[0] = input;
    query.tensors[1] = output;
    query.tensors[2] = target->output_count > 1 ? run.tensors[2] : NULL;
    LEAT_MUST(leat_run(run.session, &query, &done) == LEAT_OK);
    LEAT_ASSERT(done.outcome == LEAT_OUTCOME_OK);
}

/* Through so many stages, by calls of the client or by a pipeline. */
static void
trip(bool pipeline, uint32_t l, uint64_t sequence)
{
    uint32_t at = 0;

    memset(run.tensors[1], 0, BYTES);
    memcpy(run.tensors[0], &sequence, sizeof(sequence));
    for (uint32_t s = 0; s < (pipeline ? 1 : lengths[l]); s++) {
        ask(pipeline ? &run.pipelines[l] : &run.model, run.tensors[at], run.tensors[1 - at]);
        at = 1 - at;
    }
    LEAT_ASSERT(memcmp(run.tensors[at], &sequence, sizeof(sequence)) == 0);
}

static void
measure(bool pipeline, uint32_t l, uint32_t w)
{
    uint64_t count = 0, now_ns = leat_clock_now(&run.clock), sequence = 0;
    const uint64_t begin_ns = now_ns + run.options->window_ns / 10, end_ns = begin_ns + run.options->window_ns;

    while (count == 0 || (count < SAMPLES_MAX && now_ns < end_ns)) {
        const uint64_t start_ns = now_ns;
        trip(pipeline, l, ++sequence);
        now_ns = leat_clock_now(&run.clock);
        if (start_ns >= begin_ns) {
            run.samples_ns[count++] = now_ns - start_ns;
        }
    }
    const struct bench_latency latency = bench_order(run.samples_ns, count);
    run.p50[pipeline][l][w] = (double)latency.p50;
    run.p99[pipeline][l][w] = (double)latency.p99;
}

/* ---- Figures ---------------------------------------------------------------------------------- */

static void
print_one(const char *subject, const char *metric, const double *values, const double *peers, enum bench_goal goal)
{
    double ratios[BENCH_WINDOWS_MAX], worst = 0;

    for (uint32_t w = 0; w < run.options->windows; w++) {
        ratios[w] = values[w] / peers[w];
        worst = values[w] > worst ? values[w] : worst;
    }
    double sorted[BENCH_WINDOWS_MAX];
    memcpy(sorted, values, run.options->windows * sizeof(sorted[0]));
    bench_print(run.options, &(struct bench_row){.subject = subject,
                                                 .metric = metric,
                                                 .value = bench_median(sorted, run.options->windows) / 1e3,
                                                 .unit = "us",
                                                 .windows = run.options->windows,
                                                 .worst = worst / 1e3,
                                                 .peer = "a client's calls",
                                                 .ratio = bench_median(ratios, run.options->windows),
                                                 .goal = goal,
                                                 .target = 1});
}

static void
print_results(void)
{
    char subject[32];

    for (uint32_t l = 0; l < LENGTHS; l++) {
        (void)snprintf(subject, sizeof(subject), "%u stage%s", lengths[l], lengths[l] > 1 ? "s" : "");
        print_one(subject, "p50", run.p50[1][l], run.p50[0][l], BENCH_NO_GOAL);
        print_one(subject, "p99", run.p99[1][l], run.p99[0][l], BENCH_NO_GOAL);
    }
    print_one("a hop", "p50", run.hops[1], run.hops[0], BENCH_AT_MOST);
    bench_note_load(run.options);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "pipeline", .windows = 12, .window_ns = 100000000, .daemon_path = LEATD_PATH};
    int status, latency_fd = -1;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    if (options.cpu_count < 3) {
        (void)printf("skipped: three CPUs are needed\n");
        return 77;
    }
    run.options = &options;
    const int *cpus = &options.cpus[options.cpu_count - 3];
    if (options.hold_dma_latency) {
        latency_fd = bench_hold_dma_latency();
        bench_note(&options, "/dev/cpu_dma_latency %s", latency_fd < 0 ? strerror(errno) : "held at 0");
    }
    leat_clock_init(&run.clock);
    start_daemon(cpus[1], cpus[2]);
    bench_pin(&cpus[0], 1);
    prepare();
    for (uint32_t w = 0; w < options.windows; w++) {
        for (uint32_t l = 0; l < LENGTHS; l++) {
            measure(false, l, w);
            measure(true, l, w);
        }
        for (uint32_t p = 0; p < 2; p++) {
            run.hops[p][w] = (run.p50[p][LENGTHS - 1][w] - run.p50[p][0][w]) / (LONGEST - 1);
        }
    }
    leat_close(run.session);
    end_daemon(SIGTERM);
    print_results();
    if (latency_fd >= 0) {
        (void)close(latency_fd);
    }
    return 0;
}
