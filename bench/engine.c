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
#include "base/large.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph.h"
#include "kernels/team.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   Items a second of the cpu backend on whole networks with random weights, in batches of 1, 8 and 32, on\n"
    "           one and on two cores, and the geometric means of the ratios, recurrent networks left out. Sequences are 128 long.\n"
    "           --precision f32,bf16,int8 chooses among those that the processor has, --networks among the networks, or\n"
    "           others of the zoo.\n"
    "Beside it  ONNX Runtime on the same files, inputs and cores in the same run: all graph optimisations, inputs and\n"
    "           outputs bound ahead, as many threads, each on its core. To bf16 it is compared in f32, to int8 in int8:\n"
    "           quantised by its own tools, calibrated on the inputs that ours are, with weights by channel, as QDQ\n"
    "           with activations u8 and s8, as QOperator with u8 and with ranges found in each run, whichever is the fastest in\n"
    "           the case at hand. Its f32 answers are compared with ours, and ours in bf16 and int8 with those in f32.\n"
    "           With int8, what it made in QDQ form is also run by both, as it is in the file (\"QDQ u8\", \"QDQ s8\").\n"
    "           LEAT_BENCH_PYTHON names the Python that has the packages onnxruntime and onnx, else it is\n"
    "           /usr/bin/python3.\n"
    "Does not   say what loading costs, what a query costs that comes through the daemon, or how accurate a precision is:\n"
    "           random weights recognise nothing.\n"
    "Method     The two take turns, a window each of at least one run, after one that is not counted; a window's figure\n"
    "           is the median of its runs.\n"
    "           Hosts lend a guest hyperthreads whose neighbours have work of others at times: before and after both windows\n"
    "           the CPUs multiply, and windows between are taken again, up to three times as many as are wanted, unless each\n"
    "           was 0.9 as fast both times as the fastest was seen to be.";

static const struct network {
    const char *name;
    bool narrow; /* worth narrower numbers: it multiplies rather than looks up */
    bool dense;  /* nearly all that it does is large products */
    bool beside; /* shown, but in no mean */
} networks[] = {{"resnet50", true, true, false},
                {"mobilenetv2", true, false, false},
                {"efficientnet-b0", true, false, false},
                {"bert-base", true, true, false},
                {"dlrm-rm2", false, false, false},
                {"wide-deep", false, false, false},
                {"lstm-lm", false, false, true},
                {"lstm-classifier", false, false, true},
                {"gru-classifier", false, false, true},
                {"dien", false, false, true}};
static const uint32_t batches[] = {1, 8, 32}, threads[] = {1, 2};
enum { RUNS_MAX = 1000, THREADS_MAX = 2, SYMBOLS_MAX = 4, CALIBRATION_ITEMS = 8, TRIES = 4 };
static const double speed_least = 0.9;

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
    const char *form; /* NULL, or how the file is quantised */
    struct leat_model *model;
    void *exact[LEAT_TENSORS_MAX]; /* what f32 answers for one item */
    float bounds[LEAT_TENSORS_MAX]; /* how far from that bf16 may be */
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

/* For what somebody asked for by name. */
static _Noreturn void
give_up(const char *name, const char *why)
{
    (void)fprintf(stderr, "bench_engine: %s: %s\n", name, why);
    exit(1);
}

static void
note_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct subject *s = context;

    if (summary->input_count > LEAT_TENSORS_MAX || summary->symbol_count < 1 || summary->symbol_count - 1 > SYMBOLS_MAX) {
        give_up(model->name, "it has too many inputs or free dimensions to be measured here, or no batch");
    }
    for (uint32_t i = 0; i < summary->input_count; i++) {
        s->ends[i] = summary->inputs[i].end;
    }
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
    const size_t scratch_bytes = leat_backend_cpu.plan_scratch_bytes(s->plan);
    s->scratch = leat_large_alloc(scratch_bytes); /* as a worker gets it */
    LEAT_ASSERT(s->scratch != NULL);
    memset(s->scratch, 0, scratch_bytes);
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

static void
calibrate(struct subject *s)
{
    struct leat_calibration *calibration;
    const void *inputs[LEAT_TENSORS_MAX];

    for (uint32_t t = 0; t < s->source.input_count; t++) {
        void *input = allocate(CALIBRATION_ITEMS * s->infos[t].item_bytes);
        fill(&s->infos[t], s->ends[t], CALIBRATION_ITEMS, input);
        inputs[t] = input;
    }
    LEAT_MUST(leat_calibration_create(s->graph, CALIBRATION_ITEMS, &calibration) == LEAT_OK);
    LEAT_MUST(leat_calibration_run(calibration, inputs) == LEAT_OK);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        LEAT_MUST(leat_graph_set_range(s->graph, &range));
    }
    leat_calibration_destroy(calibration);
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        free((void *)(uintptr_t)inputs[t]);
    }
}

static float
largest_of(const float *data, size_t count)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(data[i]));
    }
    return largest;
}

static bool
is_within(const float *ours, const float *wanted, size_t count, float bound)
{
    bool within = true;
    for (size_t i = 0; i < count; i++) {
        within = within && fabsf(ours[i] - wanted[i]) <= bound;
    }
    return within;
}

/* How far they are apart, in Euclid's sense, of how long the second is. */
static double
distance(const float *ours, const float *theirs, size_t count)
{
    double apart = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        apart += ((double)ours[i] - theirs[i]) * ((double)ours[i] - theirs[i]);
        length += (double)theirs[i] * theirs[i];
    }
    return sqrt(apart / length);
}

/* Moves floats up and down in turn by as much as bf16 rounds twice. */
static void
shake(struct subject *s)
{
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        for (size_t i = 0; s->infos[t].dtype == LEAT_DTYPE_F32 && i < s->infos[t].item_bytes / sizeof(float); i++) {
            ((float *)s->tensors[t])[i] *= i % 2 == 0 ? 1 + 1.0f / 256 : 1 - 1.0f / 256;
        }
    }
}

/* For one item, and how far off other precisions may be: as in the tests of the backend. */
static void
find_exact(struct subject *s, int cpu)
{
    plan(s, 1, 1, &cpu);
    run(s);
    for (uint32_t t = s->source.input_count; t < s->source.input_count + s->source.output_count; t++) {
        s->exact[t] = allocate(s->infos[t].item_bytes);
        memcpy(s->exact[t], s->tensors[t], s->infos[t].item_bytes);
    }
    shake(s);
    run(s);
    for (uint32_t t = s->source.input_count; t < s->source.input_count + s->source.output_count; t++) {
        const float *exact = s->exact[t], *moved = s->tensors[t];
        const size_t count = s->infos[t].item_bytes / sizeof(float);
        float furthest = 0;
        LEAT_ASSERT(s->infos[t].dtype == LEAT_DTYPE_F32);
        for (size_t i = 0; i < count; i++) {
            furthest = fmaxf(furthest, fabsf(moved[i] - exact[i]));
        }
        s->bounds[t] = fmaxf(8 * furthest, 0.05f * largest_of(exact, count));
    }
    unplan(s);
}

/* The network as the file has it, in f32 or quantised by `form`, and what it answers so. */
static void
load(struct subject *s, const struct zoo_model *model, enum zoo_size zoo_size, const char *form, const void *file, size_t size,
     int cpu)
{
    *s = (struct subject){.source = {.infos = s->infos}, .form = form};
    LEAT_MUST(zoo_describe(model, zoo_size, note_ends, s) == LEAT_OK);
    s->length_count = form == NULL ? s->length_count : 0; /* who quantised it has given them values */
    LEAT_MUST(leat_onnx_import(file, size, &s->graph) == LEAT_OK);
    LEAT_MUST(leat_graph_bind(s->graph, s->lengths, s->length_count) == LEAT_OK);
    LEAT_MUST(leat_graph_optimise(s->graph, UINT64_MAX) == LEAT_OK);
    s->source.graph = s->graph;
    LEAT_MUST(leat_graph_signature(s->graph, s->infos, &s->source.input_count, &s->source.output_count) == LEAT_OK);
    LEAT_MUST(leat_backend_cpu.model_load(&s->source, &s->model) == LEAT_OK);
    find_exact(s, cpu);
}

static void
load_in(struct subject *s, enum leat_precision precision)
{
    if (precision == s->source.precision) {
        return;
    }
    leat_backend_cpu.model_destroy(s->model);
    s->source.precision = precision;
    if (precision == LEAT_PRECISION_INT8) {
        calibrate(s);
    }
    LEAT_MUST(leat_backend_cpu.model_load(&s->source, &s->model) == LEAT_OK);
}

static void
unload(struct subject *s)
{
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(s->exact[t]);
    }
    leat_backend_cpu.model_destroy(s->model);
    leat_graph_destroy(s->graph);
}

/*
 * Answers of a file that is quantised are no further apart, in all. Whose 8-bit numbers differ by a step once, in one layer, as sums in
 * floats in another order make them, differ by more behind it: BERT in ONNX Runtime itself is 0.12 apart with and without its
 * optimisations, and single numbers 0.39 of the largest.
 */
#define FORM_APART 0.25

/* The first item's answers: sums of thousands of products, in another order or of narrower numbers, layer upon layer. */
static void
check(const struct subject *s)
{
    for (uint32_t t = s->source.input_count; t < s->source.input_count + s->source.output_count; t++) {
        const size_t count = s->infos[t].item_bytes / sizeof(float);
        if (s->form != NULL) {
            LEAT_ASSERT(distance(s->tensors[t], s->exact[t], count) <= FORM_APART);
            continue;
        }
        const float bound = s->source.precision == LEAT_PRECISION_F32    ? 1e-4f * largest_of(s->exact[t], count)
                            : s->source.precision == LEAT_PRECISION_BF16 ? s->bounds[t]
                                                                         : 4 * s->bounds[t];
        LEAT_ASSERT(is_within(s->tensors[t], s->exact[t], count, bound));
    }
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
    char loaded[64];  /* what rows call it, by what it loaded last */
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

/* The end of a request: the sizes of free dimensions. */
static void
send_lengths(struct peer *peer, const struct subject *s)
{
    for (uint32_t i = 0; i < s->length_count; i++) {
        (void)fprintf(peer->to, " %s=%" PRId64, s->lengths[i].name, s->lengths[i].value);
    }
    (void)fprintf(peer->to, "\n");
    (void)fflush(peer->to);
}

static void
write_inputs(const struct subject *s, uint32_t items, const char *path)
{
    FILE *file = fopen(path, "wb");
    LEAT_ASSERT(file != NULL);
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        void *input = allocate(items * s->infos[t].item_bytes);
        fill(&s->infos[t], s->ends[t], items, input);
        LEAT_MUST(fwrite(input, s->infos[t].item_bytes, items, file) == items);
        free(input);
    }
    LEAT_MUST(fclose(file) == 0);
}

/* False: it cannot. */
static bool
quantise_peer(struct peer *peer, const struct subject *s, const char *folder)
{
    char inputs[64], answer[8];

    (void)snprintf(inputs, sizeof(inputs), "%s/inputs", folder);
    write_inputs(s, CALIBRATION_ITEMS, inputs);
    (void)fprintf(peer->to, "quantise %s/model %s %d", folder, inputs, CALIBRATION_ITEMS);
    send_lengths(peer, s);
    LEAT_MUST(fscanf(peer->from, "%7s", answer) == 1);
    (void)unlink(inputs);
    return strcmp(answer, "ok") == 0;
}

/*
 * Gives the peer our inputs, and compares its answers, where they are in f32, with ours in f32. False: of a file that is quantised they are
 * too far from ours, as where its sums of two products are capped at 16 bits, without VNNI.
 */
static bool
load_peer(struct peer *peer, const struct subject *s, const char *folder, uint32_t size, const int *cpus)
{
    const enum leat_precision precision = s->source.precision;
    char inputs[64], outputs[64], answer[16];

    (void)snprintf(inputs, sizeof(inputs), "%s/inputs", folder);
    (void)snprintf(outputs, sizeof(outputs), "%s/outputs", folder);
    write_inputs(s, s->items, inputs);
    (void)fprintf(peer->to, "%s %s/model %s %s %u", precision == LEAT_PRECISION_INT8 ? "load_quantised" : "load", folder,
                  inputs, outputs, s->items);
    for (uint32_t m = 0; m < size; m++) {
        (void)fprintf(peer->to, " %d", cpus[m]);
    }
    send_lengths(peer, s);
    LEAT_MUST(fscanf(peer->from, "%15s", answer) == 1);
    (void)snprintf(peer->loaded, sizeof(peer->loaded), "ONNX Runtime%s%s", precision == LEAT_PRECISION_INT8 ? " in int8, " : "",
                   precision == LEAT_PRECISION_INT8 ? answer : "");
    FILE *file = fopen(outputs, "rb");
    bool good = true;
    LEAT_ASSERT(file != NULL);
    for (uint32_t t = s->source.input_count; t < s->source.input_count + s->source.output_count; t++) {
        const size_t item = s->infos[t].item_bytes, of_item = item / sizeof(float);
        float *theirs = allocate(s->items * item);
        LEAT_MUST(fread(theirs, item, s->items, file) == s->items);
        const float bound = 1e-4f * largest_of(theirs, s->items * of_item);
        const bool near = s->form != NULL ? distance(s->tensors[t], theirs, s->items * of_item) <= FORM_APART
                          : precision == LEAT_PRECISION_F32
                              ? is_within(s->tensors[t], theirs, s->items * of_item, bound)
                              : precision == LEAT_PRECISION_INT8 || is_within(s->exact[t], theirs, of_item, bound);
        if (!near && s->form == NULL) {
            give_up("ONNX Runtime", "its answers are further from ours than 1e-4 of the largest one");
        }
        good = good && near;
        free(theirs);
    }
    (void)fclose(file);
    (void)unlink(inputs);
    (void)unlink(outputs);
    return good;
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

/* What a case wants of its ratio; 0: nothing. */
static double
target_of(const struct network *network, enum leat_precision precision)
{
    return precision == LEAT_PRECISION_F32 ? 0.95 : precision == LEAT_PRECISION_INT8 ? 1.1 : network->dense ? 1.8 : 0;
}

/* " in bf16"; "" for f32. */
static const char *
in_precision(enum leat_precision precision)
{
    static const char *const texts[LEAT_PRECISION_COUNT] = {"", " in bf16", " in int8"};
    return texts[precision];
}

/* The ratio of their time to ours, 0 where they are missing (NULL). */
static double
measure(const struct bench_options *options, const struct leat_clock *clock, struct subject *s, struct peer *peer,
        const struct network *network, uint32_t size)
{
    static double ours[BENCH_WINDOWS_MAX], theirs[BENCH_WINDOWS_MAX], ratios[BENCH_WINDOWS_MAX];
    const double trial_ns = our_window(clock, s, 1);
    const double wanted = (double)options->window_ns / (trial_ns > 1 ? trial_ns : 1);
    const uint32_t runs = wanted > RUNS_MAX ? RUNS_MAX : wanted < 1 ? 1 : (uint32_t)wanted;
    uint32_t again = (TRIES - 1) * options->windows;
    char subject[96];
    double speed = options->smoke ? 1 : bench_speed(options->cpus, size);

    for (uint32_t w = 0; w < options->windows; w++) {
        const double before = speed;
        ours[w] = our_window(clock, s, runs);
        if (peer != NULL) {
            theirs[w] = their_window(peer, runs);
            ratios[w] = theirs[w] / ours[w];
        }
        speed = options->smoke ? 1 : bench_speed(options->cpus, size);
        if (fmin(before, speed) < speed_least && again > 0) {
            again--;
            w--;
        }
    }
    (void)snprintf(subject, sizeof(subject), "%s%s%s, %u items, %u %s", network->name, s->form != NULL ? s->form : "",
                   in_precision(s->source.precision), s->items, size, size == 1 ? "core" : "cores");
    struct bench_row row = {.subject = subject, .metric = "rate", .unit = "items/s", .windows = options->windows,
                            .value = s->items * 1e9 / bench_median(ours, options->windows)};
    if (peer != NULL) {
        row.peer = peer->loaded;
        row.peer_version = peer->version;
        row.ratio = bench_median(ratios, options->windows);
        row.target = s->form != NULL ? 1 : target_of(network, s->source.precision);
        row.goal = row.target > 0 ? BENCH_AT_LEAST : BENCH_NO_GOAL;
    }
    bench_print(options, &row);
    if (again < (TRIES - 1) * options->windows) {
        bench_note(options, "%s: %u windows taken again for slow CPUs%s", subject, (TRIES - 1) * options->windows - again,
                   again == 0 ? "; not all that count had fast ones" : "");
    }
    return row.ratio;
}

/* Of ratios. */
struct mean {
    double logarithms;
    uint32_t count;
};

/* The network in all batches on all teams. */
static void
measure_all(const struct bench_options *options, const struct leat_clock *clock, struct subject *s, struct peer *peer,
            const struct network *network, const char *folder, struct mean *mean)
{
    for (size_t t = 0; t < LEAT_COUNT_OF(threads) && threads[t] <= options->cpu_count; t++) {
        for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
            plan(s, batches[b], threads[t], options->cpus);
            run(s);
            check(s);
            if (peer != NULL && !load_peer(peer, s, folder, threads[t], options->cpus)) {
                (void)fprintf(stderr, "bench_engine: %s%s, %u items: not compared, ONNX Runtime's answers are further from ours than %.2f of them in all\n",
                              network->name, s->form, batches[b], FORM_APART);
                unplan(s);
                continue;
            }
            const double ratio = measure(options, clock, s, peer, network, threads[t]);
            if (ratio > 0 && !network->beside) {
                mean->logarithms += log(ratio);
                mean->count++;
            }
            unplan(s);
        }
    }
}

static void *
read_file(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    LEAT_MUST(size > 0 && fseek(file, 0, SEEK_SET) == 0);
    void *data = allocate((size_t)size);
    LEAT_MUST(fread(data, 1, (size_t)size, file) == (size_t)size && fclose(file) == 0);
    *ret_size = (size_t)size;
    return data;
}

/* The QDQ files that the peer has made of the network, which go where its own was. */
static void
measure_files(const struct bench_options *options, const struct leat_clock *clock, struct peer *peer,
              const struct network *network, const char *folder, const struct zoo_model *model, enum zoo_size zoo_size)
{
    static const char *const forms[] = {" as QDQ u8", " as QDQ s8"};
    struct subject subject;
    struct mean mean = {0, 0};
    char path[64], answer[8];
    size_t size;

    (void)snprintf(path, sizeof(path), "%s/model", folder);
    for (size_t f = 0; f < LEAT_COUNT_OF(forms); f++) {
        (void)fprintf(peer->to, "keep %zu %s\n", f, path);
        (void)fflush(peer->to);
        LEAT_MUST(fscanf(peer->from, "%7s", answer) == 1 && strcmp(answer, "ok") == 0);
        void *file = read_file(path, &size);
        load(&subject, model, zoo_size, forms[f], file, size, options->cpus[0]);
        free(file);
        measure_all(options, clock, &subject, peer, network, folder, &mean);
        unload(&subject);
    }
}

static void
measure_network(const struct bench_options *options, const struct leat_clock *clock, struct peer *peer,
                const struct network *network, const char *folder, uint32_t precisions,
                struct mean means[LEAT_PRECISION_COUNT])
{
    const enum zoo_size zoo_size = options->smoke ? ZOO_SIZE_TEST : ZOO_SIZE_FULL;
    const struct zoo_model *model = zoo_find(network->name);
    struct subject subject;
    bool files = false;
    char path[64];
    size_t size;
    void *file;

    (void)snprintf(path, sizeof(path), "%s/model", folder);
    if (zoo_write(model, zoo_size, 1, &file, &size) != LEAT_OK) {
        give_up(network->name, leat_error_text());
    }
    write_file(path, file, size);
    load(&subject, model, zoo_size, NULL, file, size, options->cpus[0]);
    free(file);
    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        if ((precisions & LEAT_PRECISION_BIT(p)) == 0 || (p != LEAT_PRECISION_F32 && !network->narrow)) {
            continue;
        }
        struct peer *beside = is_there(peer) ? peer : NULL;
        if (beside != NULL && p == LEAT_PRECISION_INT8 && !quantise_peer(peer, &subject, folder)) {
            bench_print_missing(options, "ONNX Runtime in int8", "the Python has no package onnx");
            beside = NULL;
        }
        load_in(&subject, p);
        measure_all(options, clock, &subject, beside, network, folder, &means[p]);
        files = beside != NULL && p == LEAT_PRECISION_INT8;
    }
    unload(&subject);
    if (files) {
        measure_files(options, clock, peer, network, folder, model, zoo_size);
    }
    (void)unlink(path);
}

/* LEAT_PRECISION_BIT of those that are in the list and can be had; 0 after a word to the user. */
static uint32_t
choose(const char *list)
{
    const uint32_t here = leat_backend_precisions(&leat_backend_cpu);
    uint32_t chosen = 0;

    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        if ((here & LEAT_PRECISION_BIT(p)) != 0 && (list == NULL || bench_is_listed(list, leat_precision_text(p)))) {
            chosen |= LEAT_PRECISION_BIT(p);
        }
    }
    if (chosen == 0) {
        (void)fprintf(stderr, "none of these precisions can be had here\n");
    }
    return chosen;
}

/* One of those that are measured when nobody chooses. */
static bool
is_measured(const char *name)
{
    size_t n = 0;
    while (n < LEAT_COUNT_OF(networks) && strcmp(networks[n].name, name) != 0) {
        n++;
    }
    return n < LEAT_COUNT_OF(networks);
}

int
main(int argc, char **argv)
{
    struct bench_option own[] = {{"precision", NULL}, {"networks", NULL}, {NULL, NULL}};
    struct bench_options options = {.name = "engine", .windows = 7, .window_ns = 500000000, .own = own};
    static const double targets[LEAT_PRECISION_COUNT] = {[LEAT_PRECISION_F32] = 1.1};
    struct mean means[LEAT_PRECISION_COUNT] = {{0, 0}};
    char folder[] = "/tmp/leat-bench-XXXXXX", subject[32];
    struct leat_clock clock;
    struct peer peer;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    const uint32_t precisions = choose(own[0].value);
    if (precisions == 0) {
        return 2;
    }
    leat_clock_init(&clock);
    LEAT_MUST(mkdtemp(folder) != NULL);
    start_peer(&peer);
    if (!is_there(&peer)) {
        bench_print_missing(&options, "ONNX Runtime", "the Python has no package onnxruntime");
    }
    for (size_t n = 0; n < LEAT_COUNT_OF(networks); n++) {
        if (own[1].value == NULL || bench_is_listed(own[1].value, networks[n].name)) {
            measure_network(&options, &clock, &peer, &networks[n], folder, precisions, means);
        }
    }
    for (size_t m = 0; m < zoo_model_count && own[1].value != NULL; m++) {
        if (bench_is_listed(own[1].value, zoo_models[m].name) && !is_measured(zoo_models[m].name)) {
            const struct network other = {.name = zoo_models[m].name, .narrow = true, .beside = true};
            measure_network(&options, &clock, &peer, &other, folder, precisions, means);
        }
    }
    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        if (means[p].count == 0) {
            continue;
        }
        (void)snprintf(subject, sizeof(subject), "all%s", in_precision(p));
        bench_print(&options, &(struct bench_row){.subject = subject, .metric = "rate", .unit = "geo mean",
                                                  .value = exp(means[p].logarithms / means[p].count),
                                                  .windows = options.windows, .target = targets[p],
                                                  .goal = targets[p] > 0 ? BENCH_AT_LEAST : BENCH_NO_GOAL});
    }
    stop_peer(&peer);
    (void)rmdir(folder);
    bench_note_load(&options);
    return 0;
}
