/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "kernels/team.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   Items a second of the cpu backend on whole networks with random weights, in batches of 1, 8 and 32, on\n"
    "           one and on two cores, and the geometric mean of the ratios. Sequences are 128 long.\n"
    "Beside it  ONNX Runtime on the same files, inputs and cores in the same run: all graph optimisations, inputs and\n"
    "           outputs bound ahead, as many threads, each on its core. Its answers are compared with ours.\n"
    "           LEAT_BENCH_PYTHON names the Python that has the package onnxruntime, else it is /usr/bin/python3.\n"
    "Does not   say what loading costs, or what a query costs that comes through the daemon.\n"
    "Method     The two take turns, a window each of at least one run, after one that is not counted; a window's figure\n"
    "           is the median of its runs.";

static const char *const models[] = {"resnet50", "mobilenetv2", "efficientnet-b0", "bert-base", "dlrm-rm2", "wide-deep"};
static const uint32_t batches[] = {1, 8, 32}, threads[] = {1, 2};
enum { RUNS_MAX = 1000, THREADS_MAX = 2, SYMBOLS_MAX = 4 };

static void *
allocate(size_t bytes)
{
    void *memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    LEAT_ASSERT(memory != NULL);
    memset(memory, 0, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    return memory;
}

/* ---- Ours -------------------------------------------------------------------------------------- */

/* A network, its plan for one batch size, inputs and outputs. */
struct subject {
    struct leat_graph *graph;
    struct leat_model_source source;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model *model;
    struct leat_plan *plan;
    struct leat_team *team;
    int64_t ends[LEAT_TENSORS_MAX]; /* of inputs: indices are below */
    struct leat_dim_value lengths[SYMBOLS_MAX]; /* of free dimensions but the batch */
    char names[SYMBOLS_MAX][32];
    uint32_t length_count;
    uint32_t items;
    void *tensors[LEAT_TENSORS_MAX];
    void *scratch;
};

static void
note_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct subject *s = context;

    (void)model;
    LEAT_ASSERT(summary->input_count <= LEAT_TENSORS_MAX);
    for (uint32_t i = 0; i < summary->input_count; i++) {
        s->ends[i] = summary->inputs[i].end;
    }
    LEAT_ASSERT(summary->symbol_count - 1 <= SYMBOLS_MAX);
    for (uint32_t i = 1; i < summary->symbol_count; i++) { /* the first is the batch */
        char *name = s->names[s->length_count];
        (void)snprintf(name, sizeof(s->names[0]), "%s", summary->symbols[i].name);
        s->lengths[s->length_count++] = (struct leat_dim_value){name, summary->symbols[i].nominal};
    }
}

static void
fill(const struct leat_tensor_info *info, int64_t end, uint32_t items, void *data)
{
    uint64_t state = 1;
    for (size_t i = 0; i < items * info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if (info->dtype == LEAT_DTYPE_F32) {
            ((float *)data)[i] = (float)(state >> 40) / 8388608.0f - 1.0f;
        } else { /* an index into a table */
            LEAT_ASSERT(info->dtype == LEAT_DTYPE_I64);
            ((int64_t *)data)[i] = (int64_t)(state >> 32) % end;
        }
    }
}

static void
load(struct subject *s, const struct zoo_model *model, enum zoo_size zoo_size, const void *file, size_t size)
{
    *s = (struct subject){.source = {.infos = s->infos}};
    LEAT_MUST(zoo_describe(model, zoo_size, note_ends, s) == LEAT_OK);
    LEAT_MUST(leat_onnx_import(file, size, &s->graph) == LEAT_OK);
    LEAT_MUST(leat_graph_bind(s->graph, s->lengths, s->length_count) == LEAT_OK);
    LEAT_MUST(leat_graph_optimise(s->graph, UINT64_MAX) == LEAT_OK);
    s->source.graph = s->graph;
    LEAT_MUST(leat_graph_signature(s->graph, s->infos, &s->source.input_count, &s->source.output_count) == LEAT_OK);
    LEAT_MUST(leat_backend_cpu.model_load(&s->source, &s->model) == LEAT_OK);
}

static void
unload(struct subject *s)
{
    leat_backend_cpu.model_destroy(s->model);
    leat_graph_destroy(s->graph);
}

static void
plan(struct subject *s, uint32_t items, uint32_t size, const int *cpus)
{
    const struct leat_plan_options options = {.items = items, .team_sizes = &size, .team_size_count = 1};
    uint32_t members[THREADS_MAX];

    for (uint32_t m = 0; m < size; m++) {
        members[m] = (uint32_t)cpus[m];
    }
    s->items = items;
    LEAT_MUST(leat_backend_cpu.plan_build(s->model, &options, &s->plan) == LEAT_OK);
    LEAT_MUST(leat_team_create(&(struct leat_team_options){.cpus = members, .size = size, .spin_ns = 50000}, &s->team) ==
              LEAT_OK);
    s->scratch = allocate(leat_backend_cpu.plan_scratch_bytes(s->plan));
    for (uint32_t t = 0; t < s->source.input_count + s->source.output_count; t++) {
        s->tensors[t] = allocate(items * s->infos[t].item_bytes);
        if (t < s->source.input_count) {
            fill(&s->infos[t], s->ends[t], items, s->tensors[t]);
        }
    }
}

static void
unplan(struct subject *s)
{
    for (uint32_t t = 0; t < s->source.input_count + s->source.output_count; t++) {
        free(s->tensors[t]);
    }
    free(s->scratch);
    leat_team_destroy(s->team);
    leat_backend_cpu.plan_destroy(s->plan);
}

static void
run(struct subject *s)
{
    struct leat_segment segment = {.items = s->items};
    for (uint32_t t = 0; t < s->source.input_count + s->source.output_count; t++) {
        segment.tensors[t] = s->tensors[t];
    }
    LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &segment, 1, s->scratch, s->team) == LEAT_OK);
}

static double
our_window(const struct leat_clock *clock, struct subject *s, uint32_t runs)
{
    static double ns[RUNS_MAX];
    run(s);
    for (uint32_t r = 0; r < runs; r++) {
        const uint64_t start_ns = leat_clock_now(clock);
        run(s);
        ns[r] = (double)(leat_clock_now(clock) - start_ns);
    }
    return bench_median(ns, runs);
}

/* ---- ONNX Runtime ------------------------------------------------------------------------------ */

struct peer {
    FILE *to, *from;
    pid_t child;
    char version[32]; /* "-": missing */
};

static void
start_peer(struct peer *peer)
{
    const char *named = getenv("LEAT_BENCH_PYTHON"), *path = named != NULL ? named : "/usr/bin/python3";
    int requests[2], answers[2];

    LEAT_MUST(pipe(requests) == 0 && pipe(answers) == 0);
    peer->child = bench_fork();
    if (peer->child == 0) {
        LEAT_MUST(dup2(requests[0], STDIN_FILENO) >= 0 && dup2(answers[1], STDOUT_FILENO) >= 0);
        (void)close(requests[1]);
        (void)close(answers[0]);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(path, path, LEAT_BENCH_ENGINE_PEER, (char *)NULL);
        _exit(0);
    }
    (void)close(requests[0]);
    (void)close(answers[1]);
    peer->to = fdopen(requests[1], "w");
    peer->from = fdopen(answers[0], "r");
    LEAT_ASSERT(peer->to != NULL && peer->from != NULL);
    if (fscanf(peer->from, "%31s", peer->version) != 1) {
        memcpy(peer->version, "-", 2);
    }
}

static bool
is_there(const struct peer *peer)
{
    return strcmp(peer->version, "-") != 0;
}

static void
stop_peer(struct peer *peer)
{
    (void)fclose(peer->to);
    (void)fclose(peer->from);
    (void)waitpid(peer->child, NULL, 0); /* where it could not start, it has failed */
}

static void
write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

/* Sums of thousands of products, taken in two orders, layer upon layer. */
static void
compare(const float *ours, const float *theirs, size_t count)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(theirs[i]));
    }
    for (size_t i = 0; i < count; i++) {
        LEAT_ASSERT(fabsf(ours[i] - theirs[i]) <= 1e-4f * largest);
    }
}

/* Gives the peer our inputs and compares its outputs with ours. */
static void
load_peer(struct peer *peer, const struct subject *s, const char *folder, uint32_t size, const int *cpus)
{
    char inputs[64], outputs[64], answer[8];

    (void)snprintf(inputs, sizeof(inputs), "%s/inputs", folder);
    (void)snprintf(outputs, sizeof(outputs), "%s/outputs", folder);
    FILE *file = fopen(inputs, "wb");
    LEAT_ASSERT(file != NULL);
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        LEAT_MUST(fwrite(s->tensors[t], s->infos[t].item_bytes, s->items, file) == s->items);
    }
    LEAT_MUST(fclose(file) == 0);
    (void)fprintf(peer->to, "load %s/model %s %s %u", folder, inputs, outputs, s->items);
    for (uint32_t m = 0; m < size; m++) {
        (void)fprintf(peer->to, " %d", cpus[m]);
    }
    for (uint32_t i = 0; i < s->length_count; i++) {
        (void)fprintf(peer->to, " %s=%" PRId64, s->lengths[i].name, s->lengths[i].value);
    }
    (void)fprintf(peer->to, "\n");
    (void)fflush(peer->to);
    LEAT_MUST(fscanf(peer->from, "%7s", answer) == 1 && strcmp(answer, "ok") == 0);
    file = fopen(outputs, "rb");
    LEAT_ASSERT(file != NULL);
    for (uint32_t t = s->source.input_count; t < s->source.input_count + s->source.output_count; t++) {
        float *theirs = allocate(s->items * s->infos[t].item_bytes);
        LEAT_ASSERT(s->infos[t].dtype == LEAT_DTYPE_F32);
        LEAT_MUST(fread(theirs, s->infos[t].item_bytes, s->items, file) == s->items);
        compare(s->tensors[t], theirs, s->items * s->infos[t].item_bytes / sizeof(float));
        free(theirs);
    }
    (void)fclose(file);
    (void)unlink(inputs);
    (void)unlink(outputs);
}

static double
their_window(struct peer *peer, uint32_t runs)
{
    static double ns[RUNS_MAX];
    (void)fprintf(peer->to, "run %u\n", runs);
    (void)fflush(peer->to);
    for (uint32_t r = 0; r < runs; r++) {
        LEAT_MUST(fscanf(peer->from, "%lf", &ns[r]) == 1);
    }
    return bench_median(ns, runs);
}

/* ---- Rounds ------------------------------------------------------------------------------------ */

/* The ratio of their time to ours, 0 where they are missing. */
static double
measure(const struct bench_options *options, const struct leat_clock *clock, struct subject *s, struct peer *peer,
        const char *name, uint32_t size)
{
    static double ours[BENCH_WINDOWS_MAX], theirs[BENCH_WINDOWS_MAX], ratios[BENCH_WINDOWS_MAX];
    const double trial_ns = our_window(clock, s, 1);
    const double wanted = (double)options->window_ns / (trial_ns > 1 ? trial_ns : 1);
    const uint32_t runs = wanted > RUNS_MAX ? RUNS_MAX : wanted < 1 ? 1 : (uint32_t)wanted;
    char subject[96];

    for (uint32_t w = 0; w < options->windows; w++) {
        ours[w] = our_window(clock, s, runs);
        if (is_there(peer)) {
            theirs[w] = their_window(peer, runs);
            ratios[w] = theirs[w] / ours[w];
        }
    }
    (void)snprintf(subject, sizeof(subject), "%s, %u items, %u %s", name, s->items, size, size == 1 ? "core" : "cores");
    struct bench_row row = {.subject = subject, .metric = "rate", .unit = "items/s", .windows = options->windows,
                            .value = s->items * 1e9 / bench_median(ours, options->windows)};
    if (is_there(peer)) {
        row.peer = "ONNX Runtime";
        row.peer_version = peer->version;
        row.ratio = bench_median(ratios, options->windows);
        row.goal = BENCH_AT_LEAST;
        row.target = 0.95;
    }
    bench_print(options, &row);
    return row.ratio;
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "engine", .windows = 7, .window_ns = 500000000};
    char folder[] = "/tmp/leat-bench-XXXXXX", path[64];
    struct leat_clock clock;
    struct peer peer;
    double logarithms = 0;
    uint32_t count = 0;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    leat_clock_init(&clock);
    LEAT_MUST(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof(path), "%s/model", folder);
    start_peer(&peer);
    if (!is_there(&peer)) {
        bench_print_missing(&options, "ONNX Runtime", "the Python has no package onnxruntime");
    }
    for (size_t m = 0; m < LEAT_COUNT_OF(models); m++) {
        struct subject subject;
        size_t size;
        void *file;
        const enum zoo_size zoo_size = options.smoke ? ZOO_SIZE_TEST : ZOO_SIZE_FULL;
        const struct zoo_model *model = zoo_find(models[m]);
        LEAT_MUST(zoo_write(model, zoo_size, 1, &file, &size) == LEAT_OK);
        write_file(path, file, size);
        load(&subject, model, zoo_size, file, size);
        free(file);
        for (size_t t = 0; t < LEAT_COUNT_OF(threads) && threads[t] <= options.cpu_count; t++) {
            for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
                plan(&subject, batches[b], threads[t], options.cpus);
                run(&subject);
                if (is_there(&peer)) {
                    load_peer(&peer, &subject, folder, threads[t], options.cpus);
                }
                const double ratio = measure(&options, &clock, &subject, &peer, models[m], threads[t]);
                if (ratio > 0) {
                    logarithms += log(ratio);
                    count++;
                }
                unplan(&subject);
            }
        }
        unload(&subject);
    }
    if (count > 0) {
        bench_print(&options, &(struct bench_row){.subject = "all", .metric = "rate", .value = exp(logarithms / count),
                                                  .unit = "geo mean", .windows = options.windows,
                                                  .goal = BENCH_AT_LEAST, .target = 1.1});
    }
    stop_peer(&peer);
    (void)unlink(path);
    (void)rmdir(folder);
    bench_note_load(&options);
    return 0;
}
