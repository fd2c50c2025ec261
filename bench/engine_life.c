/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/large.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/cpu/inspect.h"
#include "kernels/graph.h"
#include "kernels/mapping.h"
#include "kernels/team.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   The life of a model in the cpu backend on one core: how long it takes from a file to a plan, the first run\n"
    "           beside those that follow, how far runs spread, the memory that the process had at most less that of one\n"
    "           that loads nothing; what a plan's run takes beside the sum of its steps; what it costs between two\n"
    "           batches to give a worker's team a second core and to take it away, its helper moved to that core, and what\n"
    "           the run after that takes beside the next one on as many; what a batch of 8 queries takes beside a query of 8\n"
    "           items, and beside their inputs copied into one block first. Answers on as many cores must be the same bit\n"
    "           by bit, on others within 1e-4 of the largest.\n"
    "Beside it  ONNX Runtime from the same files, batches and core in the same run: all graph optimisations, one thread,\n"
    "           inputs and outputs bound ahead. Its process without a model has loaded its library too.\n"
    "           LEAT_BENCH_PYTHON names the Python that has the package onnxruntime, else it is /usr/bin/python3.\n"
    "           Indices into tables are drawn anew before each run, the first one too, theirs the same as ours: a service\n"
    "           meets other rows in each query, and those of one input would soon all be in the caches.\n"
    "           Plans are warmed up as the daemon does it, on zeros and indices that are drawn elsewhere: for one item once,\n"
    "           and where a run takes a millisecond at most for 256 items more, 8 times at least; that is part of loading.\n"
    "           Theirs is not.\n"
    "           First runs are also told beside runs that follow a pause of 20 ms: their core did something else meanwhile,\n"
    "           too, and its caches are not as full of the model as in runs that follow one another.\n"
    "           The spread on an idle core is that of a plan's steps: between them the core multiplies in its registers, for\n"
    "           10 us, which is not counted in. A run is one on an idle core where the kernel gave it to nobody else, and all\n"
    "           that was multiplied in it took at most a twentieth longer than in the run where it took the least: so nobody\n"
    "           had the hyperthread beside it for long anywhere in it, which is as near as a guest can see; who has the caches\n"
    "           and memory it does not see. Of fewer than 200 such runs a p99 is not told.\n"
    "           Just before each load another process has had a GiB and ended: a host gives memory that a guest had free for\n"
    "           a while page by page, and neither side is measured by that.\n"
    "Method     Each life is a process of its own, theirs and ours in turns; files are in the page cache. --windows is how\n"
    "           many, --window-ms how long each goes on running; --networks chooses among them, by commas. A figure is\n"
    "           the median of the lives; of the overhead, of windows, the fastest runs of each compared. p99 is of at\n"
    "           least 500 runs of a life, however long the window, where these take at most 45 s by the first one; a life\n"
    "           of fewer has none. Theirs has as many runs as ours. It is 2000 at the most, and 200 resizes.\n"
    "           With three windows networks take 5 minutes at the most each, all together 12.";

enum { RUNS_MAX = 2000, RUNS_LEAST = 500, SYMBOLS_MAX = 4, TURNS = 200, GATHERED = 8, RESIZE_US = 200 };
enum { IDLE_PART = 20, IDLE_LEAST = 200, PROBE_STEPS = 1500 };
enum { PAUSES = 25, PAUSES_LEAST = 3, PAUSE_NS = 20000000 };
enum { WARM_DRAWS = 256, WARM_LEAST = 8 }; /* the daemon's */
#define MEMORY_BYTES ((size_t)1 << 30)
#define WARM_FIRST (UINT64_C(1) << 32) /* index that is drawn to warm up; those of measured runs are from 0 on */
static const uint64_t longest_ns = 45000000000; /* that runs enough for a p99 may take */

/* What else is measured of a network, once. */
enum { OVERHEAD = 1, RESIZE = 2, GATHER = 4, IDLE = 8 };

static const struct life_case {
    const char *name;
    uint32_t items; /* 0: no life */
    uint32_t parts; /* with the first case of a network */
    bool brief;     /* a batch takes a millisecond at the most, as the daemon knows from its profile */
} cases[] = {
    {"resnet50", 1, OVERHEAD | RESIZE | GATHER | IDLE, false}, {"resnet50", 8, 0, false},
    {"bert-base", 1, OVERHEAD | RESIZE, false},                {"bert-base", 8, 0, false},
    {"dlrm-rm2", 1, OVERHEAD, true},                           {"dlrm-rm2", 8, 0, true},
    {"mlp", 0, RESIZE, false},                                 {"mobilenetv2", 0, GATHER, false},
};

/* What is known of a network before it is loaded. */
struct network {
    const struct zoo_model *model;
    enum zoo_size size;
    bool brief;
    char path[64], inputs_path[64];
    int64_t ends[LEAT_TENSORS_MAX]; /* of inputs: whole numbers are indices below */
    struct leat_dim_value lengths[SYMBOLS_MAX]; /* of free dimensions but the batch */
    char names[SYMBOLS_MAX][32];
    uint32_t length_count;
};

/* Figures of one life; the peer prints them in this order. */
struct life {
    double load_ns, first_ns, p50_ns;
    double p99_ns; /* of less than RUNS_LEAST runs it says nothing */
    uint32_t runs, pauses; /* the peer gets these */
    double paused_ns; /* the median of runs after a pause */
    double peak_bytes, empty_bytes; /* resident at most; of a process without a model */
    double import_ns, passes_ns, model_ns, zeros_ns; /* of load_ns, the rest is the plan; ours alone */
};

static void *
allocate(size_t bytes)
{
    void *memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    LEAT_ASSERT(memory != NULL);
    memset(memory, 0, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    return memory;
}

static void
note_network(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    struct network *network = context;

    (void)model;
    LEAT_ASSERT(summary->input_count <= LEAT_TENSORS_MAX && summary->symbol_count - 1 <= SYMBOLS_MAX);
    for (uint32_t i = 0; i < summary->input_count; i++) {
        network->ends[i] = summary->inputs[i].end;
    }
    for (uint32_t i = 1; i < summary->symbol_count; i++) { /* the first is the batch */
        char *name = network->names[network->length_count];
        (void)snprintf(name, sizeof(network->names[0]), "%s", summary->symbols[i].name);
        network->lengths[network->length_count++] = (struct leat_dim_value){name, summary->symbols[i].nominal};
    }
}

static void
write_network(const struct network *network)
{
    size_t size;
    void *bytes;

    LEAT_MUST(zoo_write(network->model, network->size, 1, &bytes, &size) == LEAT_OK);
    FILE *file = fopen(network->path, "wb");
    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
}

/* ---- Ours -------------------------------------------------------------------------------------- */

struct subject {
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source;
    struct leat_model *model;
    struct leat_plan *plan;
    struct leat_segment segment;
    void *tensors[LEAT_TENSORS_MAX];
    uint64_t drawn; /* indices so far */
    void *scratch;
};

static void
import_file(const struct network *network, struct subject *s)
{
    struct leat_onnx_source source = {.folder_fd = -1};
    const int fd = open(network->path, O_RDONLY | O_CLOEXEC);

    LEAT_MUST(fd >= 0 && leat_mapping_create(fd, "model", &source.mapping) == LEAT_OK);
    source.bytes = leat_mapping_data(source.mapping, &source.byte_count);
    LEAT_MUST(leat_onnx_import_from(&source, &s->graph) == LEAT_OK);
    leat_mapping_release(source.mapping); /* weights that stay there hold it */
    LEAT_MUST(close(fd) == 0);
    LEAT_MUST(leat_graph_bind(s->graph, network->lengths, network->length_count) == LEAT_OK);
    s->source = (struct leat_model_source){.graph = s->graph, .infos = s->infos};
    LEAT_MUST(leat_graph_signature(s->graph, s->infos, &s->source.input_count, &s->source.output_count) == LEAT_OK);
}

/* All zeros. */
static void
make_tensors(struct subject *s)
{
    for (uint32_t t = 0; t < s->source.input_count + s->source.output_count; t++) {
        s->tensors[t] = allocate(s->segment.items * s->infos[t].item_bytes);
        s->segment.tensors[t] = s->tensors[t];
    }
}

static uint64_t
run(struct subject *s, struct leat_team *team)
{
    const uint64_t start_ns = leat_monotonic_ns();
    LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &s->segment, 1, s->scratch, team) == LEAT_OK);
    return leat_monotonic_ns() - start_ns;
}

static size_t
elements(const struct subject *s, uint32_t t)
{
    return s->segment.items * s->infos[t].item_bytes / leat_dtype_bytes(s->infos[t].dtype);
}

/* The next indices: number n of a life is a hash of n, as the peer's is. */
static void
draw(const struct network *network, struct subject *s)
{
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        for (size_t i = 0; s->infos[t].dtype == LEAT_DTYPE_I64 && i < elements(s, t); i++) {
            uint64_t x = s->drawn++ * UINT64_C(0x9e3779b97f4a7c15);
            x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
            x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
            ((int64_t *)s->tensors[t])[i] = (int64_t)((x >> 32) % (uint64_t)network->ends[t]);
        }
    }
}

/*
 * As the daemon does, which runs all plans once that are short together, the smallest whatever it takes, and brief ones again on
 * the worker: on zeros and indices from whole tables, drawn anew. They are other ones than in the runs that are measured.
 */
static uint64_t
warm_up(const struct network *network, struct subject *s)
{
    const uint32_t items = s->segment.items, draws = WARM_DRAWS / items > WARM_LEAST ? WARM_DRAWS / items : WARM_LEAST;
    uint64_t took_ns = 0;

    s->drawn = WARM_FIRST;
    for (uint32_t n = 0; n < (network->brief ? 1 + draws : items == 1 ? 1 : 0); n++) {
        draw(network, s);
        took_ns += run(s, NULL);
    }
    s->drawn = 0;
    return took_ns;
}

/* From the file to a plan for teams of 1..threads. */
static void
load(const struct network *network, uint32_t items, uint32_t threads, struct subject *s, struct life *ret_life)
{
    const struct leat_plan_options options = {.items = items, .team_sizes = &threads, .team_size_count = 1};
    const uint64_t start_ns = leat_monotonic_ns();

    *s = (struct subject){.segment = {.items = items}};
    import_file(network, s);
    const uint64_t imported_ns = leat_monotonic_ns();
    LEAT_MUST(leat_graph_optimise(s->graph, UINT64_MAX) == LEAT_OK);
    const uint64_t passed_ns = leat_monotonic_ns();
    LEAT_MUST(leat_backend_cpu.model_load(&s->source, &s->model) == LEAT_OK);
    leat_graph_destroy(s->graph);
    const uint64_t loaded_ns = leat_monotonic_ns();
    LEAT_MUST(leat_backend_cpu.plan_build(s->model, &options, &s->plan) == LEAT_OK);
    const size_t scratch_bytes = leat_backend_cpu.plan_scratch_bytes(s->plan);
    s->scratch = leat_large_alloc(scratch_bytes); /* as a worker gets it */
    LEAT_ASSERT(s->scratch != NULL);
    memset(s->scratch, 0, scratch_bytes);
    make_tensors(s);
    ret_life->zeros_ns = (double)warm_up(network, s);
    ret_life->load_ns = (double)(leat_monotonic_ns() - start_ns);
    ret_life->import_ns = (double)(imported_ns - start_ns);
    ret_life->passes_ns = (double)(passed_ns - imported_ns);
    ret_life->model_ns = (double)(loaded_ns - passed_ns);
}

static void
fill(const struct network *network, struct subject *s)
{
    uint64_t state = 1;

    for (uint32_t t = 0; t < s->source.input_count; t++) {
        LEAT_ASSERT(s->infos[t].dtype == LEAT_DTYPE_F32 || s->infos[t].dtype == LEAT_DTYPE_I64);
        for (size_t i = 0; s->infos[t].dtype == LEAT_DTYPE_F32 && i < elements(s, t); i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            ((float *)s->tensors[t])[i] = (float)(state >> 40) / 8388608.0f - 1.0f;
        }
    }
    draw(network, s);
}

/* For the peer: the same numbers; of indices, below what. */
static void
write_inputs(const struct network *network, const struct subject *s)
{
    FILE *file = fopen(network->inputs_path, "wb");
    LEAT_ASSERT(file != NULL);
    for (uint32_t t = 0; t < s->source.input_count; t++) {
        if (s->infos[t].dtype == LEAT_DTYPE_I64) {
            LEAT_MUST(fwrite(&network->ends[t], sizeof(network->ends[t]), 1, file) == 1);
        } else {
            LEAT_MUST(fwrite(s->tensors[t], sizeof(float), elements(s, t), file) == elements(s, t));
        }
    }
    LEAT_MUST(fclose(file) == 0);
}

static void
unload(struct subject *s)
{
    for (uint32_t t = 0; t < s->source.input_count + s->source.output_count; t++) {
        free(s->tensors[t]);
    }
    free(s->scratch);
    leat_backend_cpu.plan_destroy(s->plan);
    leat_backend_cpu.model_destroy(s->model);
}

/* Resident memory at most, until now. */
static double
peak_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;

    LEAT_ASSERT(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "VmHWM: %lf", &kib);
    }
    (void)fclose(file);
    return kib * 1024;
}

/* How many follow a first one that took so long. */
static void
choose_runs(const struct bench_options *options, struct life *life)
{
    const double window_ns = (double)options->window_ns, fit = window_ns / life->first_ns;
    const double least = !options->smoke && RUNS_LEAST * life->first_ns <= (double)longest_ns ? RUNS_LEAST : 3;

    life->runs = fit > RUNS_MAX ? RUNS_MAX : fit < least ? (uint32_t)least : (uint32_t)fit;
    life->pauses = options->smoke || fit < PAUSES_LEAST ? PAUSES_LEAST : fit > PAUSES ? PAUSES : (uint32_t)fit;
}

/*
 * A host may take back what a guest has had free for a while, and gives it again page by page, which takes longer than all
 * else of a load. So another process has just had as much as most models need, as before the peer's life.
 */
static void
have_memory(void)
{
    const pid_t child = bench_fork();

    if (child == 0) {
        unsigned char *memory = leat_large_alloc(MEMORY_BYTES);
        LEAT_ASSERT(memory != NULL);
        memset(memory, 1, MEMORY_BYTES);
        _exit(0);
    }
    bench_reap(child);
}

static void
live(const struct bench_options *options, const struct network *network, uint32_t items, struct life *ret_life)
{
    static uint64_t runs_ns[RUNS_MAX];
    struct subject subject;

    bench_pin(options->cpus, 1);
    if (!options->smoke) {
        have_memory();
    }
    ret_life->empty_bytes = peak_bytes();
    load(network, items, 1, &subject, ret_life);
    fill(network, &subject);
    ret_life->first_ns = (double)run(&subject, NULL);
    choose_runs(options, ret_life);
    for (uint32_t r = 0; r < ret_life->runs; r++) {
        draw(network, &subject);
        runs_ns[r] = run(&subject, NULL);
    }
    const struct bench_latency latency = bench_order(runs_ns, ret_life->runs);
    ret_life->p50_ns = (double)latency.p50;
    ret_life->p99_ns = (double)latency.p99;
    for (uint32_t r = 0; r < ret_life->pauses; r++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        draw(network, &subject);
        runs_ns[r] = run(&subject, NULL);
    }
    ret_life->paused_ns = (double)bench_order(runs_ns, ret_life->pauses).p50;
    ret_life->peak_bytes = peak_bytes();
    write_inputs(network, &subject);
    unload(&subject);
}

static void
read_whole(int fd, void *to, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        const ssize_t more = read(fd, (char *)to + got, bytes - got);
        LEAT_ASSERT(more > 0);
        got += (size_t)more;
    }
}

static void
our_life(const struct bench_options *options, const struct network *network, uint32_t items, struct life *ret_life)
{
    int ends[2];

    LEAT_MUST(pipe(ends) == 0);
    const pid_t child = bench_fork();
    if (child == 0) {
        struct life life = {0};
        live(options, network, items, &life);
        LEAT_MUST(write(ends[1], &life, sizeof(life)) == (ssize_t)sizeof(life));
        _exit(0);
    }
    (void)close(ends[1]);
    read_whole(ends[0], ret_life, sizeof(*ret_life));
    (void)close(ends[0]);
    bench_reap(child);
}

/* ---- ONNX Runtime ------------------------------------------------------------------------------ */

struct peer {
    bool there;
    char version[32];
};

/* With as many runs as ours had. network NULL: only whether it is there. */
static void
their_life(const struct bench_options *options, const struct network *network, uint32_t items, const struct life *ours,
           struct peer *peer, struct life *ret_life)
{
    const char *named = getenv("LEAT_BENCH_PYTHON"), *path = named != NULL ? named : "/usr/bin/python3";
    char *arguments[10 + SYMBOLS_MAX] = {(char *)(uintptr_t)path, (char *)(uintptr_t)LEAT_BENCH_ENGINE_LIFE_PEER};
    char texts[4 + SYMBOLS_MAX][64];
    uint32_t count = 2;
    int ends[2];

    if (network != NULL) {
        arguments[count++] = (char *)(uintptr_t)network->path;
        arguments[count++] = (char *)(uintptr_t)network->inputs_path;
        (void)snprintf(texts[0], sizeof(texts[0]), "%u", items);
        (void)snprintf(texts[1], sizeof(texts[1]), "%d", options->cpus[0]);
        (void)snprintf(texts[2], sizeof(texts[2]), "%u", ours->runs);
        (void)snprintf(texts[3], sizeof(texts[3]), "%u", ours->pauses);
        for (uint32_t i = 0; i < network->length_count; i++) {
            const struct leat_dim_value *length = &network->lengths[i];
            (void)snprintf(texts[4 + i], sizeof(texts[0]), "%s=%" PRId64, length->name, length->value);
        }
        for (uint32_t i = 0; i < 4 + network->length_count; i++) {
            arguments[count++] = texts[i];
        }
    }
    LEAT_MUST(pipe(ends) == 0);
    const pid_t child = bench_fork();
    if (child == 0) {
        LEAT_MUST(dup2(ends[1], STDOUT_FILENO) >= 0);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)close(ends[0]);
        (void)execv(path, arguments);
        _exit(1);
    }
    (void)close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    LEAT_ASSERT(file != NULL);
    peer->there = fscanf(file, "%31s", peer->version) == 1;
    if (network != NULL) {
        LEAT_MUST(fscanf(file, "%lf %lf %lf %lf %lf %lf %lf", &ret_life->load_ns, &ret_life->first_ns, &ret_life->p50_ns,
                         &ret_life->p99_ns, &ret_life->paused_ns, &ret_life->peak_bytes, &ret_life->empty_bytes) == 7);
    }
    (void)fclose(file);
    (void)waitpid(child, NULL, 0);
}

/* ---- Rounds ------------------------------------------------------------------------------------ */

static double
load_ms(const struct life *life)
{
    return life->load_ns / 1e6;
}

static double
first(const struct life *life)
{
    return life->first_ns / life->p50_ns;
}

static double
first_paused(const struct life *life)
{
    return life->first_ns / life->paused_ns;
}

static double
spread(const struct life *life)
{
    return life->p99_ns / life->p50_ns;
}

static double
memory_mib(const struct life *life)
{
    return (life->peak_bytes - life->empty_bytes) / (1 << 20);
}

static double
import_ms(const struct life *life)
{
    return life->import_ns / 1e6;
}

static double
passes_ms(const struct life *life)
{
    return life->passes_ns / 1e6;
}

static double
model_ms(const struct life *life)
{
    return life->model_ns / 1e6;
}

static double
plan_ms(const struct life *life)
{
    return (life->load_ns - life->import_ns - life->passes_ns - life->model_ns - life->zeros_ns) / 1e6;
}

static double
zeros_ms(const struct life *life)
{
    return life->zeros_ns / 1e6;
}

/* target: of the ratio of ours to theirs, but of ours alone where `own`; 0: none. */
static const struct figure {
    double (*of)(const struct life *life);
    const char *metric, *unit;
    bool beside, own;
    double target;
} figures[] = {
    {load_ms, "load", "ms", true, false, 1},      {first, "first/p50", "x", true, true, 1.05},
    {first_paused, "first/paused", "x", true, false, 0},
    {spread, "p99/p50", "x", true, false, 0},     {memory_mib, "memory", "MiB", true, false, 1},
    {import_ms, "of load: import", "ms", false, false, 0}, {passes_ms, "of load: passes", "ms", false, false, 0},
    {model_ms, "of load: model", "ms", false, false, 0},   {plan_ms, "of load: plan", "ms", false, false, 0},
    {zeros_ms, "of load: warm-up", "ms", false, false, 0},
};

static void
print_figure(const struct bench_options *options, const struct figure *figure, const char *subject, const struct life *ours,
             const struct life *theirs, const struct peer *peer)
{
    static double values[BENCH_WINDOWS_MAX], ratios[BENCH_WINDOWS_MAX];
    const bool beside = figure->beside && peer->there;

    for (uint32_t w = 0; w < options->windows; w++) {
        values[w] = figure->of(&ours[w]);
        ratios[w] = beside ? values[w] / figure->of(&theirs[w]) : 0;
    }
    struct bench_row row = {.subject = subject, .metric = figure->metric, .unit = figure->unit,
                            .windows = options->windows, .value = bench_median(values, options->windows)};
    if (figure->own) {
        row.goal = BENCH_AT_MOST;
        row.target = figure->target;
        bench_print(options, &row);
        row.goal = BENCH_NO_GOAL;
    }
    if (beside) {
        row.peer = "ONNX Runtime";
        row.peer_version = peer->version;
        row.ratio = bench_median(ratios, options->windows);
        row.goal = figure->own || figure->target == 0 ? BENCH_NO_GOAL : BENCH_AT_MOST;
        row.target = figure->target;
    }
    if (beside || !figure->own) {
        bench_print(options, &row);
    }
}

static void
measure_lives(const struct bench_options *options, const struct network *network, uint32_t items, struct peer *peer)
{
    static struct life ours[BENCH_WINDOWS_MAX], theirs[BENCH_WINDOWS_MAX];
    uint32_t least_runs = RUNS_MAX;
    char subject[96];

    for (uint32_t w = 0; w < options->windows; w++) {
        our_life(options, network, items, &ours[w]);
        if (peer->there) {
            their_life(options, network, items, &ours[w], peer, &theirs[w]);
        }
    }
    (void)snprintf(subject, sizeof(subject), "%s, %u items", network->model->name, items);
    for (uint32_t w = 0; w < options->windows; w++) {
        least_runs = ours[w].runs < least_runs ? ours[w].runs : least_runs;
    }
    for (size_t f = 0; f < LEAT_COUNT_OF(figures); f++) {
        if (figures[f].of != spread || least_runs >= RUNS_LEAST) {
            print_figure(options, &figures[f], subject, ours, theirs, peer);
        }
    }
    if (least_runs < RUNS_LEAST) {
        bench_note(options, "%s: of %u runs a p99 says nothing; %u would take more than %u s", subject, least_runs, RUNS_LEAST,
                   (unsigned)(longest_ns / 1000000000));
    }
}

/* ---- A plan's steps ------------------------------------------------------------------------------ */

static void
inspect(const struct network *network, struct leat_inspection **ret_inspection)
{
    struct subject subject = {.graph = NULL};

    import_file(network, &subject);
    LEAT_MUST(leat_graph_optimise(subject.graph, UINT64_MAX) == LEAT_OK);
    LEAT_MUST(leat_inspection_create(subject.graph, LEAT_PRECISION_F32, 1, 1, ret_inspection) == LEAT_OK);
    leat_graph_destroy(subject.graph);
}

struct marks {
    uint32_t steps;
    uint64_t first_ns, last_ns;
};

/* Looks at the clock before the first step and after the last: between them, looks would be a part of what is measured. */
static void
mark(void *context, uint32_t count)
{
    struct marks *marks = context;

    if (count == 0) {
        marks->first_ns = leat_monotonic_ns();
    } else if (count == marks->steps) {
        marks->last_ns = leat_monotonic_ns();
    }
}

/* Other work on the machine makes runs slower, and none faster. */
static double
least(uint64_t *samples_ns, uint32_t count)
{
    (void)bench_order(samples_ns, count);
    return (double)samples_ns[0];
}

/* A plan beside the sum of its steps, in percent. */
static void
measure_overhead(const struct bench_options *options, const struct network *network)
{
    static double overheads[BENCH_WINDOWS_MAX];
    static uint64_t plans_ns[RUNS_MAX], steps_ns[RUNS_MAX];
    struct subject subject = {.graph = NULL};
    struct leat_inspection *inspection;
    struct life ignored = {0};
    struct marks marks;
    char text[96];

    bench_pin(options->cpus, 1);
    inspect(network, &inspection);
    load(network, 1, 1, &subject, &ignored);
    fill(network, &subject);
    marks.steps = leat_inspection_step_count(inspection);
    const double trial_ns = (double)(run(&subject, NULL) + run(&subject, NULL));
    const double wanted = (double)options->window_ns / trial_ns;
    const uint32_t runs = wanted > RUNS_MAX ? RUNS_MAX : wanted < 1 ? 1 : (uint32_t)wanted;
    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t r = 0; r < runs; r++) { /* in turns, so that neighbours meet both, and caches are as full */
            LEAT_MUST(leat_inspection_run(inspection, (const void *const *)subject.tensors, NULL, mark, &marks) == LEAT_OK);
            steps_ns[r] = marks.last_ns - marks.first_ns;
            plans_ns[r] = run(&subject, NULL);
        }
        overheads[w] = 100 * (least(plans_ns, runs) / least(steps_ns, runs) - 1);
    }
    (void)snprintf(text, sizeof(text), "%s, 1 items", network->model->name);
    bench_print(options, &(struct bench_row){.subject = text, .metric = "overhead", .unit = "%", .windows = options->windows,
                                             .value = bench_median(overheads, options->windows), .goal = BENCH_AT_MOST,
                                             .target = 2});
    leat_inspection_destroy(inspection);
    unload(&subject);
}

/* What the core took to multiply between steps. */
static void
probe(void *context, uint32_t count)
{
    uint64_t *took_ns = context;

    (void)count;
    *took_ns += bench_multiply(PROBE_STEPS);
}

/* How often the kernel has given the core to somebody else. */
static uint64_t
preemptions(void)
{
    struct rusage usage;

    LEAT_MUST(getrusage(RUSAGE_SELF, &usage) == 0);
    return (uint64_t)usage.ru_nivcsw;
}

/* In how many runs the core was idle but for them, and how far these spread. */
static void
measure_idle(const struct bench_options *options, const struct network *network)
{
    static uint64_t runs_ns[BENCH_WINDOWS_MAX * RUNS_LEAST], probes_ns[BENCH_WINDOWS_MAX * RUNS_LEAST];
    static bool shared[BENCH_WINDOWS_MAX * RUNS_LEAST]; /* others had the core meanwhile */
    const uint32_t runs = options->smoke ? 3 : options->windows * RUNS_LEAST;
    struct subject subject = {.graph = NULL};
    struct leat_inspection *inspection;
    struct life ignored = {0};
    uint64_t least_ns = UINT64_MAX;
    uint32_t idle = 0;
    char text[96];

    bench_pin(options->cpus, 1);
    inspect(network, &inspection);
    load(network, 1, 1, &subject, &ignored);
    fill(network, &subject);
    for (uint32_t r = 0; r < runs; r++) {
        const uint64_t start_ns = leat_monotonic_ns();
        const uint64_t preempted = preemptions();
        probes_ns[r] = 0;
        LEAT_MUST(leat_inspection_run(inspection, (const void *const *)subject.tensors, NULL, probe, &probes_ns[r]) == LEAT_OK);
        runs_ns[r] = leat_monotonic_ns() - start_ns - probes_ns[r];
        least_ns = probes_ns[r] < least_ns ? probes_ns[r] : least_ns;
        shared[r] = preemptions() != preempted;
    }
    for (uint32_t r = 0; r < runs; r++) {
        if (probes_ns[r] <= least_ns + least_ns / IDLE_PART && !shared[r]) {
            runs_ns[idle++] = runs_ns[r];
        }
    }
    (void)snprintf(text, sizeof(text), "%s, 1 items", network->model->name);
    bench_print(options, &(struct bench_row){.subject = text, .metric = "idle core", .unit = "%", .windows = runs,
                                             .value = 100.0 * idle / runs});
    if (idle < IDLE_LEAST) {
        bench_note(options, "%s: %u runs on an idle core are too few for a p99", text, idle);
    } else {
        const struct bench_latency latency = bench_order(runs_ns, idle);
        bench_print(options, &(struct bench_row){.subject = text, .metric = "p99/p50, idle core", .unit = "x", .windows = idle,
                                                 .value = (double)latency.p99 / (double)latency.p50,
                                                 .goal = BENCH_AT_MOST, .target = 1.1});
    }
    leat_inspection_destroy(inspection);
    unload(&subject);
}

/* ---- A team that grows and shrinks ---------------------------------------------------------------- */

/* How far apart two answers of `count` numbers are, of the largest. */
static double
difference(const float *a, const float *b, size_t count)
{
    double largest = 0, furthest = 0;

    for (size_t i = 0; i < count; i++) {
        const double size = fabs((double)a[i]), apart = fabs((double)a[i] - (double)b[i]);
        largest = size > largest ? size : largest;
        furthest = apart > furthest ? apart : furthest;
    }
    return furthest > 0 ? furthest / largest : 0;
}

/* The answer must be that of all runs on so many cores, bit by bit; the first one is kept. */
static void
check_answer(const struct subject *subject, void **kept)
{
    const uint32_t output = subject->source.input_count;
    const size_t bytes = subject->segment.items * subject->infos[output].item_bytes;

    if (*kept == NULL) {
        *kept = allocate(bytes);
        memcpy(*kept, subject->tensors[output], bytes);
    }
    LEAT_ASSERT(memcmp(*kept, subject->tensors[output], bytes) == 0);
}

static int
compare_costs(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What a median of as many is uncertain by (one standard error), by how far apart the middle half of them is. Sorts. */
static double
median_error(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare_costs);
    return 1.2533 / 1.349 * (values[(size_t)count * 3 / 4] - values[count / 4]) / sqrt(count);
}

/* From one core to two and back between batches, as a worker does it. A turn: both sizes, a run right after and another. */
static void
measure_resize(const struct bench_options *options, const struct network *network)
{
    static uint64_t resizes_ns[TURNS];
    static double costs_ns[TURNS];
    const uint32_t cpus[2] = {(uint32_t)options->cpus[0], (uint32_t)options->cpus[1]};
    struct subject subject;
    struct life ignored = {0};
    struct leat_team *team;
    void *answers[2] = {NULL};
    char text[96];

    load(network, 1, 2, &subject, &ignored);
    fill(network, &subject);
    const struct leat_team_options growing = {.cpus = cpus, .size = 1, .size_max = 2, .spin_ns = 50000};
    LEAT_MUST(leat_team_create(&growing, &team) == LEAT_OK);
    const uint64_t trial_ns = run(&subject, team) + run(&subject, team);
    const double fit = (double)options->window_ns * options->windows / (2 * (double)trial_ns);
    const uint32_t turns = options->smoke ? 3 : fit > TURNS ? TURNS : fit < 20 ? 20 : (uint32_t)fit;
    for (uint32_t t = 0; t < turns; t++) {
        uint64_t after_ns = 0, steady_ns = 0;
        resizes_ns[t] = 0;
        for (uint32_t size = 2; size >= 1; size--) {
            const uint64_t start_ns = leat_monotonic_ns();
            if (size == 2) {
                LEAT_MUST(leat_team_pin(team, 1, cpus[1]) == LEAT_OK);
            }
            leat_team_resize(team, size, 0);
            resizes_ns[t] += leat_monotonic_ns() - start_ns;
            after_ns += run(&subject, team);
            check_answer(&subject, &answers[size - 1]);
            steady_ns += run(&subject, team);
            check_answer(&subject, &answers[size - 1]);
        }
        costs_ns[t] = (double)resizes_ns[t] + (double)after_ns - (double)steady_ns;
    }
    leat_team_destroy(team);
    const struct bench_latency resize = bench_order(resizes_ns, turns);
    (void)snprintf(text, sizeof(text), "%s, 1 to 2 to 1 cores", network->model->name);
    bench_print(options, &(struct bench_row){.subject = text, .metric = "resize", .unit = "us", .windows = turns,
                                             .value = (double)resize.p50 / 1e3, .worst = (double)resize.p99 / 1e3,
                                             .goal = BENCH_AT_MOST, .target = RESIZE_US});
    const double cost_us = bench_median(costs_ns, turns) / 1e3, error_us = median_error(costs_ns, turns) / 1e3;
    const bool known = 2 * error_us <= RESIZE_US;
    bench_print(options, &(struct bench_row){.subject = text, .metric = "resize, and later runs", .unit = "us", .windows = turns,
                                             .value = cost_us, .goal = known ? BENCH_AT_MOST : BENCH_NO_GOAL, .target = RESIZE_US});
    if (!known) {
        bench_note(options, "%s: runs of %.0f ms vary too much to say to %d us what a resize costs them: %.0f +- %.0f us", text,
                   (double)trial_ns / 2e6, RESIZE_US, cost_us, 2 * error_us);
    }
    const size_t count = subject.infos[subject.source.input_count].item_bytes / sizeof(float);
    const double apart = difference(answers[0], answers[1], count);
    LEAT_ASSERT(apart <= 1e-4);
    bench_print(options, &(struct bench_row){.subject = text, .metric = "answers of both apart", .unit = "of the largest",
                                             .windows = 1, .value = apart, .goal = BENCH_AT_MOST, .target = 1e-4});
    free(answers[0]);
    free(answers[1]);
    unload(&subject);
}

/* ---- Batches of several queries -------------------------------------------------------------------- */

/* Inputs of as many queries lie in as many places, as in clients' arenas, apart from each other; their outputs too. */
static void
measure_gather(const struct bench_options *options, const struct network *network)
{
    static double ratios[BENCH_WINDOWS_MAX], savings[BENCH_WINDOWS_MAX], shares[BENCH_WINDOWS_MAX];
    static uint64_t whole_ns[RUNS_MAX], apart_ns[RUNS_MAX], copied_ns[RUNS_MAX], copies_ns[RUNS_MAX];
    struct leat_segment queries[GATHERED];
    struct subject subject;
    struct life ignored = {0};
    char text[96];

    bench_pin(options->cpus, 1);
    load(network, GATHERED, 1, &subject, &ignored);
    fill(network, &subject);
    const uint32_t inputs = subject.source.input_count, tensors = inputs + subject.source.output_count;
    for (uint32_t q = 0; q < GATHERED; q++) {
        queries[q] = (struct leat_segment){.items = 1};
        for (uint32_t t = 0; t < tensors; t++) {
            const size_t bytes = subject.infos[t].item_bytes;
            void *own = allocate(bytes);
            memcpy(own, (const char *)subject.tensors[t] + q * bytes, bytes);
            queries[q].tensors[t] = own;
        }
    }
    LEAT_ASSERT(inputs == 1);
    void *copy = allocate(GATHERED * subject.infos[0].item_bytes);
    struct leat_segment block = {.items = GATHERED};
    memcpy(block.tensors, subject.tensors, sizeof(block.tensors));
    block.tensors[0] = copy;
    const double fit = (double)options->window_ns / (3 * (double)run(&subject, NULL));
    const uint32_t runs = fit > RUNS_MAX ? RUNS_MAX : fit < 3 ? 3 : (uint32_t)fit;
    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t turn = 0; turn < 3 * runs; turn++) {
            const uint32_t r = turn / 3, which = (turn + r) % 3; /* each comes first, second and last as often */
            if (which == 0) {
                whole_ns[r] = run(&subject, NULL);
                continue;
            }
            if (which == 1) {
                const uint64_t start_ns = leat_monotonic_ns();
                LEAT_MUST(leat_backend_cpu.plan_run(subject.plan, queries, GATHERED, subject.scratch, NULL) == LEAT_OK);
                apart_ns[r] = leat_monotonic_ns() - start_ns;
                continue;
            }
            const uint64_t copy_ns = leat_monotonic_ns(); /* after a run, which leaves little of the inputs in the caches */
            for (uint32_t q = 0; q < GATHERED; q++) {
                memcpy((char *)copy + q * subject.infos[0].item_bytes, queries[q].tensors[0], subject.infos[0].item_bytes);
            }
            __asm__ volatile("" : : "r"(copy) : "memory");
            copies_ns[r] = leat_monotonic_ns() - copy_ns;
            LEAT_MUST(leat_backend_cpu.plan_run(subject.plan, &block, 1, subject.scratch, NULL) == LEAT_OK);
            copied_ns[r] = leat_monotonic_ns() - copy_ns;
        }
        const double whole = (double)bench_order(whole_ns, runs).p50, several = (double)bench_order(apart_ns, runs).p50;
        ratios[w] = 100 * (several / whole - 1);
        savings[w] = 100 * (1 - several / (double)bench_order(copied_ns, runs).p50);
        shares[w] = 100 * (double)bench_order(copies_ns, runs).p50 / whole;
    }
    for (uint32_t q = 0; q < GATHERED; q++) { /* whose answers are the same */
        for (uint32_t t = inputs; t < tensors; t++) {
            const size_t bytes = subject.infos[t].item_bytes;
            LEAT_ASSERT(memcmp(queries[q].tensors[t], (const char *)subject.tensors[t] + q * bytes, bytes) == 0);
        }
        for (uint32_t t = 0; t < tensors; t++) {
            free((void *)(uintptr_t)queries[q].tensors[t]);
        }
    }
    free(copy);
    (void)snprintf(text, sizeof(text), "%s, %u queries of 1 item", network->model->name, GATHERED);
    bench_print(options, &(struct bench_row){.subject = text, .metric = "beside a query of as many", .unit = "%",
                                             .windows = options->windows, .value = bench_median(ratios, options->windows),
                                             .goal = BENCH_AT_MOST, .target = 1});
    bench_print(options, &(struct bench_row){.subject = text, .metric = "saved beside inputs in one block first",
                                             .unit = "%", .windows = options->windows,
                                             .value = bench_median(savings, options->windows)});
    bench_print(options, &(struct bench_row){.subject = text, .metric = "that copy, of a run", .unit = "%",
                                             .windows = options->windows, .value = bench_median(shares, options->windows)});
    unload(&subject);
}

/* ---- All ----------------------------------------------------------------------------------------- */

/* Each part has a process of its own, so that none finds another's memory: this one stays small. */
static void
apart(const struct bench_options *options, const struct network *network,
      void (*part)(const struct bench_options *options, const struct network *network))
{
    const pid_t child = bench_fork();
    if (child == 0) {
        part(options, network);
        (void)fflush(stdout);
        _exit(0);
    }
    bench_reap(child);
}

static void
write_part(const struct bench_options *options, const struct network *network)
{
    (void)options;
    write_network(network);
}

static void
with_network(const struct bench_options *options, const char *folder, const struct life_case *first, struct network *ret_network)
{
    *ret_network = (struct network){.model = zoo_find(first->name), .size = options->smoke ? ZOO_SIZE_TEST : ZOO_SIZE_FULL,
                                    .brief = first->brief};
    (void)snprintf(ret_network->path, sizeof(ret_network->path), "%s/model", folder);
    (void)snprintf(ret_network->inputs_path, sizeof(ret_network->inputs_path), "%s/inputs", folder);
    LEAT_MUST(zoo_describe(ret_network->model, ret_network->size, note_network, ret_network) == LEAT_OK);
    apart(options, ret_network, write_part);
}

int
main(int argc, char **argv)
{
    struct bench_option own[] = {{"networks", NULL}, {NULL, NULL}};
    struct bench_options options = {.name = "engine_life", .windows = 3, .window_ns = 2000000000, .own = own};
    char folder[] = "/tmp/leat-bench-XXXXXX";
    struct network network = {.model = NULL};
    struct peer peer = {.there = false};
    const char *written = "";
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    LEAT_MUST(mkdtemp(folder) != NULL);
    their_life(&options, NULL, 0, NULL, &peer, NULL);
    if (!peer.there) {
        bench_print_missing(&options, "ONNX Runtime", "the Python has no package onnxruntime");
    }
    for (size_t c = 0; c < LEAT_COUNT_OF(cases); c++) {
        if (own[0].value != NULL && !bench_is_listed(own[0].value, cases[c].name)) {
            continue;
        }
        if (strcmp(cases[c].name, written) != 0) { /* large files are made once */
            written = cases[c].name;
            with_network(&options, folder, &cases[c], &network);
            if ((cases[c].parts & OVERHEAD) != 0) {
                apart(&options, &network, measure_overhead);
            }
            if ((cases[c].parts & IDLE) != 0) {
                apart(&options, &network, measure_idle);
            }
            if ((cases[c].parts & RESIZE) != 0 && options.cpu_count > 1) {
                apart(&options, &network, measure_resize);
            }
            if ((cases[c].parts & GATHER) != 0) {
                apart(&options, &network, measure_gather);
            }
        }
        if (cases[c].items > 0) {
            measure_lives(&options, &network, cases[c].items, &peer);
        }
    }
    (void)unlink(network.path);
    (void)unlink(network.inputs_path);
    (void)rmdir(folder);
    bench_note_load(&options);
    return 0;
}
