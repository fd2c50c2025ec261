/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/lap.h"

static const char measures[] =
    "Measures   Time of one linear assignment on one core, from nothing. Uniform costs; the shape of Kairos' decisions\n"
    "           (rows are queries of 1 to 1000 items, columns are workers of four types), workers of one type alike or\n"
    "           each busy for another while; the former also given as four columns with capacities, and wide and tall ones.\n"
    "Beside it  On the same matrices in the same run, with the same least costs: scipy's linear_sum_assignment; the\n"
    "           solvers in the Python packages lap and lapjv, in double and where that is exact in single precision,\n"
    "           called without their wrappers and on square matrices only; LEMON's network simplex. LEAT_BENCH_PYTHON\n"
    "           names the Python that has the packages, else it is /usr/bin/python3.\n"
    "Does not   say what a decision costs in whole: costs have to be made first, and the answer dispatched.\n"
    "Method     50 matrices of each kind, 5 of the largest, solved in turn, all taking turns, a window each; medians\n"
    "           over rounds.";

enum { INSTANCES = 50, SIZE_MAX_COLUMNS = 512 };
enum family { UNIFORM, ALIKE, BUSY };

static const struct shape {
    const char *name;
    uint32_t rows, columns;
    enum family family;
    bool collapsed; /* ours gets the four types with capacities; scipy all columns */
    double target;  /* of ours to scipy's, at most */
    double other;   /* to any other peer's */
} shapes[] = {
    {"20x20 uniform", 20, 20, UNIFORM, false, 0.2, 1},
    {"20x20 Kairos, busy", 20, 20, BUSY, false, 1.0 / 6, 0.5},
    {"20x20 Kairos, alike", 20, 20, ALIKE, false, 1.0 / 6, 0.5},
    {"20x20 Kairos, alike, by type", 20, 20, ALIKE, true, 1.0 / 6, 0.5},
    {"20x100 uniform", 20, 100, UNIFORM, false, 0.5, 1},
    {"100x20 uniform", 100, 20, UNIFORM, false, 0.5, 1},
    {"32x32 uniform", 32, 32, UNIFORM, false, 0.2, 1},
    {"64x64 uniform", 64, 64, UNIFORM, false, 0.2, 1},
    {"128x128 uniform", 128, 128, UNIFORM, false, 0.2, 1},
    {"256x256 uniform", 256, 256, UNIFORM, false, 0.2, 1},
    {"512x512 uniform", 512, 512, UNIFORM, false, 0.2, 1},
    {"256x256 Kairos, busy", 256, 256, BUSY, false, 0.05, 0.2},
    {"256x256 Kairos, alike, by type", 256, 256, ALIKE, true, 0.05, 0.2},
};
enum { SHAPES = LEAT_COUNT_OF(shapes), TYPES = 4 };

static uint64_t random_state = 1;

static uint64_t
below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

/* ---- Instances --------------------------------------------------------------------------------- */

/* [count][rows][columns] as peers see them; then as ours does, with the lesser number of rows first. */
struct instances {
    const struct shape *shape;
    uint32_t count; /* at most INSTANCES */
    double *full;
    int64_t *cost; /* [count][problem.rows][problem.stride] */
    uint32_t capacity[INSTANCES][TYPES];
    struct leat_lap_problem problem;
    struct leat_lap *lap;
    int64_t *tall; /* what is transposed, when there are more rows than columns */
    uint32_t tall_stride;
};

static int64_t
query_size(void)
{
    const uint64_t r = 1 + below(99);
    return (int64_t)(r <= 8 ? 1 + below(99) : r <= 30 ? 200 + below(400) : r <= 35 ? 600 + below(400) : 100 + below(100));
}

static void
make_kairos(const struct shape *shape, double *full, uint32_t *capacity)
{
    static const int64_t base_ns[TYPES] = {20000000, 15000000, 18000000, 25000000};
    static const int64_t item_ns[TYPES] = {100000, 350000, 300000, 500000}, percent[TYPES] = {100, 33, 38, 23};
    uint32_t type[SIZE_MAX_COLUMNS];
    int64_t left_ns[SIZE_MAX_COLUMNS];

    memset(capacity, 0, TYPES * sizeof(*capacity));
    for (uint32_t j = 0; j < shape->columns; j++) {
        const uint64_t r = below(100);
        /* Every type is there; then 15, 25, 30 and 30 percent. */
        type[j] = j < TYPES ? j : r < 15 ? 0 : r < 40 ? 1 : r < 70 ? 2 : 3;
        left_ns[j] = shape->family == BUSY ? (int64_t)below(20000000) : 0;
        capacity[type[j]]++;
    }
    for (uint32_t i = 0; i < shape->rows; i++) {
        const int64_t size = query_size(), waited_ns = (int64_t)below(200000000);
        for (uint32_t j = 0; j < shape->columns; j++) {
            int64_t ns = left_ns[j] + base_ns[type[j]] + item_ns[type[j]] * size;
            ns = ns + waited_ns > 343000000 ? 3500000000 : ns;
            full[(size_t)i * shape->columns + j] = (double)(ns * percent[type[j]] / 100);
        }
    }
}

static void *
allocate(size_t bytes)
{
    void *memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes, LEAT_CACHE_LINE));
    LEAT_ASSERT(memory != NULL);
    memset(memory, 0, leat_round_up(bytes, LEAT_CACHE_LINE));
    return memory;
}

static void
make_instances(const struct shape *shape, struct instances *instances)
{
    const bool tall = shape->rows > shape->columns;
    const uint32_t rows = tall ? shape->columns : shape->rows;
    const uint32_t columns = shape->collapsed ? TYPES : tall ? shape->rows : shape->columns;
    const size_t entries = (size_t)shape->rows * shape->columns;

    instances->shape = shape;
    instances->count = shape->rows < 512 ? INSTANCES : 5;
    instances->problem = (struct leat_lap_problem){
        .rows = rows, .columns = columns, .stride = (uint32_t)leat_round_up(columns, LEAT_LAP_LANES)};
    instances->full = allocate(instances->count * entries * sizeof(double));
    instances->cost = allocate((size_t)instances->count * rows * instances->problem.stride * sizeof(int64_t));
    instances->tall_stride = (uint32_t)leat_round_up(shape->columns, LEAT_LAP_LANES);
    instances->tall = allocate((size_t)instances->count * shape->rows * instances->tall_stride * sizeof(int64_t));
    instances->lap = leat_lap_init(allocate(leat_lap_bytes(rows, columns)), rows, columns);
    for (uint32_t n = 0; n < instances->count; n++) {
        double *full = instances->full + n * entries;
        if (shape->family == UNIFORM) {
            for (size_t e = 0; e < entries; e++) {
                full[e] = (double)below(1000000);
            }
        } else {
            make_kairos(shape, full, instances->capacity[n]);
        }
        for (uint32_t i = 0; i < shape->rows; i++) {
            for (uint32_t j = 0; j < shape->columns; j++) {
                const int64_t cost = (int64_t)full[(size_t)i * shape->columns + j];
                instances->tall[((size_t)n * shape->rows + i) * instances->tall_stride + j] = cost;
                if (!tall && j < columns) { /* the first columns are one of each type */
                    instances->cost[((size_t)n * rows + i) * instances->problem.stride + j] = cost;
                }
            }
        }
    }
}

static void
free_instances(struct instances *instances)
{
    free(instances->full);
    free(instances->cost);
    free(instances->tall);
    free(instances->lap);
}

static struct leat_lap_problem
problem_at(struct instances *instances, uint32_t n)
{
    struct leat_lap_problem problem = instances->problem;
    problem.cost = instances->cost + (size_t)n * problem.rows * problem.stride;
    problem.capacity = instances->shape->collapsed ? instances->capacity[n] : NULL;
    return problem;
}

/* ---- Ours -------------------------------------------------------------------------------------- */

static void
transpose(const int64_t *from, uint32_t rows, uint32_t columns, uint32_t stride, int64_t *to, uint32_t to_stride)
{
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            to[(size_t)j * to_stride + i] = from[(size_t)i * stride + j];
        }
    }
}

static void
solve(struct instances *instances, uint32_t n)
{
    const struct shape *shape = instances->shape;
    const struct leat_lap_problem problem = problem_at(instances, n);
    if (shape->rows > shape->columns) { /* belongs to the answer's price */
        transpose(instances->tall + (size_t)n * shape->rows * instances->tall_stride, shape->rows, shape->columns,
                  instances->tall_stride, instances->cost + (size_t)n * problem.rows * problem.stride, problem.stride);
    }
    leat_lap_solve(instances->lap, &problem);
}

static double
total_cost(struct instances *instances)
{
    double total = 0;
    for (uint32_t n = 0; n < instances->count; n++) {
        const struct leat_lap_problem problem = problem_at(instances, n);
        solve(instances, n);
        for (uint32_t i = 0; i < problem.rows; i++) {
            total += (double)problem.cost[(size_t)i * problem.stride + leat_lap_column_of(instances->lap, i)];
        }
    }
    return total;
}

static double
cold_window(const struct leat_clock *clock, uint64_t window_ns, struct instances *instances)
{
    const uint64_t start_ns = leat_clock_now(clock);
    uint64_t now_ns = start_ns, count = 0;
    while (now_ns - start_ns < window_ns) {
        for (uint32_t n = 0; n < instances->count; n++) {
            solve(instances, n);
        }
        count += instances->count;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

/* ---- Peers ------------------------------------------------------------------------------------- */

/* The Python ones are named as lap_peers.py names them. */
static struct peer {
    const char *name, *missing;
    bool square; /* it takes no others */
    bool single; /* in its precision only uniform costs are exact */
    char version[32]; /* "-": missing */
} peers[] = {
    {"scipy", "the Python has no package scipy: Debian's is python3-scipy", false, false, "-"},
    {"lap", "the Python has no package lap", true, false, "-"},
    {"lapjv-f64", "the Python has no package lapjv", true, false, "-"},
    {"lapjv-f32", "the Python has no package lapjv", true, true, "-"},
    {"LEMON", "not built: liblemon-dev is needed, without sanitizers", false, false, LEAT_BENCH_LEMON_VERSION},
};
enum { SCIPY, LAP, LAPJV_F64, LAPJV_F32, LEMON, PEERS };
_Static_assert(LEAT_COUNT_OF(peers) == PEERS, "a name for each");

#if LEAT_BENCH_LEMON
double bench_lemon_run(const double *matrices, uint32_t rows, uint32_t columns, uint32_t count, uint32_t times,
                       double *ret_total);
#endif

struct python {
    FILE *to, *from;
    pid_t child;
    bool started;
};

static void
start_python(struct python *python)
{
    const char *named = getenv("LEAT_BENCH_PYTHON"), *path = named != NULL ? named : "/usr/bin/python3";
    int requests[2], answers[2];
    LEAT_MUST(pipe(requests) == 0 && pipe(answers) == 0);
    python->child = bench_fork();
    if (python->child == 0) {
        LEAT_MUST(dup2(requests[0], STDIN_FILENO) >= 0 && dup2(answers[1], STDOUT_FILENO) >= 0);
        (void)close(requests[1]);
        (void)close(answers[0]);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl(path, path, LEAT_BENCH_LAP_PEERS, (char *)NULL);
        _exit(0);
    }
    (void)close(requests[0]);
    (void)close(answers[1]);
    python->to = fdopen(requests[1], "w");
    python->from = fdopen(answers[0], "r");
    LEAT_ASSERT(python->to != NULL && python->from != NULL);
    python->started = fscanf(python->from, "%31s %31s %31s", peers[SCIPY].version, peers[LAP].version,
                             peers[LAPJV_F64].version) == 3;
    if (python->started) {
        memcpy(peers[LAPJV_F32].version, peers[LAPJV_F64].version, sizeof(peers[LAPJV_F32].version));
    }
}

static void
load_python(struct python *python, const struct instances *instances)
{
    const struct shape *shape = instances->shape;
    const size_t entries = (size_t)instances->count * shape->rows * shape->columns;
    char path[] = "/tmp/leat-bench-XXXXXX", answer[8];
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;

    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fwrite(instances->full, sizeof(double), entries, file) == entries && fclose(file) == 0);
    (void)fprintf(python->to, "load %s %u %u %u\n", path, shape->rows, shape->columns, instances->count);
    (void)fflush(python->to);
    LEAT_MUST(fscanf(python->from, "%7s", answer) == 1 && strcmp(answer, "ok") == 0);
    (void)unlink(path);
}

static bool
takes(uint32_t peer, const struct shape *shape)
{
    return strcmp(peers[peer].version, "-") != 0 && (!peers[peer].square || shape->rows == shape->columns) &&
           (!peers[peer].single || shape->family == UNIFORM);
}

static double
run_peer(uint32_t peer, struct python *python, const struct instances *instances, uint32_t times, double *ret_total)
{
    double mean_ns;
#if LEAT_BENCH_LEMON
    if (peer == LEMON) {
        return bench_lemon_run(instances->full, instances->shape->rows, instances->shape->columns, instances->count, times,
                               ret_total);
    }
#else
    (void)instances;
#endif
    (void)fprintf(python->to, "run %s %u\n", peers[peer].name, times);
    (void)fflush(python->to);
    LEAT_MUST(fscanf(python->from, "%lf %lf", &mean_ns, ret_total) == 2);
    return mean_ns;
}

static void
stop_python(struct python *python)
{
    (void)fclose(python->to);
    (void)fclose(python->from);
    (void)waitpid(python->child, NULL, 0); /* where it could not start, it has failed */
}

/* ---- Rounds ------------------------------------------------------------------------------------ */

static void
measure_shape(const struct bench_options *options, const struct leat_clock *clock, const struct shape *shape,
              struct python *python)
{
    static double cold[BENCH_WINDOWS_MAX], theirs[PEERS][BENCH_WINDOWS_MAX];
    static double ratio[PEERS][BENCH_WINDOWS_MAX];
    const uint32_t windows = options->windows;
    struct instances instances;
    uint32_t passes[PEERS]; /* of all instances in a window */
    double total;

    make_instances(shape, &instances);
    const double least = total_cost(&instances);
    if (python->started) {
        load_python(python, &instances);
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        if (takes(p, shape)) {
            const double trial_ns = run_peer(p, python, &instances, 1, &total);
            const double mean_ns = trial_ns > 1000 ? trial_ns : 1000; /* a disturbed trial may seem to have taken nothing */
            LEAT_ASSERT(total == least); /* whole numbers below 2^53 */
            passes[p] = 1 + (uint32_t)((double)options->window_ns / (mean_ns * instances.count));
        }
    }
    for (uint32_t w = 0; w < windows; w++) {
        cold[w] = cold_window(clock, options->window_ns, &instances);
        for (uint32_t p = 0; p < PEERS; p++) {
            if (takes(p, shape)) {
                theirs[p][w] = run_peer(p, python, &instances, passes[p], &total);
                ratio[p][w] = cold[w] / theirs[p][w];
            }
        }
    }
    struct bench_row row = {.subject = shape->name, .metric = "cold", .unit = "us", .windows = windows,
                            .value = bench_median(cold, windows) / 1e3, .goal = BENCH_AT_MOST};
    for (uint32_t p = 0; p < PEERS; p++) {
        if (takes(p, shape)) {
            row.peer = peers[p].name;
            row.peer_version = peers[p].version;
            row.ratio = bench_median(ratio[p], windows);
            row.target = p == SCIPY ? shape->target : shape->other;
            bench_print(options, &row);
        }
    }
    if (row.peer == NULL) {
        row.goal = BENCH_NO_GOAL;
        bench_print(options, &row);
    }
    for (uint32_t p = 0; p < PEERS; p++) {
        if (takes(p, shape)) {
            char name[96];
            (void)snprintf(name, sizeof(name), "%s, %s", peers[p].name, shape->name);
            bench_print(options, &(struct bench_row){.subject = name, .metric = "cold", .unit = "us",
                                                     .value = bench_median(theirs[p], windows) / 1e3, .windows = windows});
        }
    }
    free_instances(&instances);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "lap", .windows = 12, .window_ns = 40000000};
    struct leat_clock clock;
    struct python python;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    start_python(&python);
    for (uint32_t p = 0; p < PEERS; p++) {
        if (strcmp(peers[p].version, "-") == 0) {
            bench_print_missing(&options, peers[p].name, peers[p].missing);
        }
    }
    for (size_t s = 0; s < SHAPES; s++) {
        measure_shape(&options, &clock, &shapes[s], &python);
    }
    stop_python(&python);
    bench_note_load(&options);
    return 0;
}
