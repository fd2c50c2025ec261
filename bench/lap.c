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
    "Measures   Time of one linear assignment on one core: from nothing, and from the last solution when a row leaves and one\n"
    "           arrives. Uniform costs; the shape of Kairos' decisions (rows are queries of 1 to 1000 items, columns are\n"
    "           workers of four types), workers of one type alike or each busy for another while; the former also\n"
    "           given as four columns with capacities, and wide and tall ones.\n"
    "Beside it  scipy's linear_sum_assignment on the same matrices in the same run, from Debian's python3-scipy; its least\n"
    "           costs must be ours.\n"
    "Does not   say what a decision costs in whole: costs have to be made first, and the answer dispatched.\n"
    "Method     50 matrices of each kind, solved in turn, the two taking turns, a window each; medians over rounds.";

enum { INSTANCES = 50, SIZE_MAX_ROWS = 256, SIZE_MAX_COLUMNS = 256 };
enum family { UNIFORM, ALIKE, BUSY };

static const struct shape {
    const char *name;
    uint32_t rows, columns;
    enum family family;
    bool collapsed; /* ours gets the four types with capacities; scipy all columns */
    double target;  /* of ours to scipy's, at most */
} shapes[] = {
    {"20x20 uniform", 20, 20, UNIFORM, false, 0.2},
    {"20x20 Kairos, busy", 20, 20, BUSY, false, 1.0 / 6},
    {"20x20 Kairos, alike", 20, 20, ALIKE, false, 1.0 / 6},
    {"20x20 Kairos, alike, by type", 20, 20, ALIKE, true, 1.0 / 6},
    {"20x100 uniform", 20, 100, UNIFORM, false, 0.5},
    {"100x20 uniform", 100, 20, UNIFORM, false, 0.5},
    {"64x64 uniform", 64, 64, UNIFORM, false, 0.2},
    {"256x256 uniform", 256, 256, UNIFORM, false, 0.2},
    {"256x256 Kairos, busy", 256, 256, BUSY, false, 0.2},
    {"256x256 Kairos, alike, by type", 256, 256, ALIKE, true, 0.05},
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

/* [INSTANCES][rows][columns] as scipy sees them; then as ours does, with the lesser number of rows first. */
struct instances {
    const struct shape *shape;
    double *full;
    int64_t *cost; /* [INSTANCES][problem.rows][problem.stride] */
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
    instances->problem = (struct leat_lap_problem){
        .rows = rows, .columns = columns, .stride = (uint32_t)leat_round_up(columns, LEAT_LAP_LANES)};
    instances->full = allocate(INSTANCES * entries * sizeof(double));
    instances->cost = allocate((size_t)INSTANCES * rows * instances->problem.stride * sizeof(int64_t));
    instances->tall_stride = (uint32_t)leat_round_up(shape->columns, LEAT_LAP_LANES);
    instances->tall = allocate((size_t)INSTANCES * shape->rows * instances->tall_stride * sizeof(int64_t));
    instances->lap = leat_lap_init(allocate(leat_lap_bytes(rows, columns)), rows, columns);
    for (uint32_t n = 0; n < INSTANCES; n++) {
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
solve(struct instances *instances, uint32_t n)
{
    const struct shape *shape = instances->shape;
    const struct leat_lap_problem problem = problem_at(instances, n);
    if (shape->rows > shape->columns) { /* belongs to the answer's price */
        leat_lap_transpose(instances->tall + (size_t)n * shape->rows * instances->tall_stride, shape->rows, shape->columns,
                           instances->tall_stride, instances->cost + (size_t)n * problem.rows * problem.stride,
                           problem.stride);
    }
    leat_lap_solve(instances->lap, &problem);
}

static double
total_cost(struct instances *instances)
{
    double total = 0;
    for (uint32_t n = 0; n < INSTANCES; n++) {
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
        for (uint32_t n = 0; n < INSTANCES; n++) {
            solve(instances, n);
        }
        count += INSTANCES;
        now_ns = leat_clock_now(clock);
    }
    return (double)(now_ns - start_ns) / (double)count;
}

/* The last row leaves and comes back, many times; the mean of the two. */
static double
warm_window(const struct leat_clock *clock, uint64_t window_ns, struct instances *instances)
{
    enum { TURNS = 16 };
    uint64_t spent_ns = 0, count = 0;
    for (uint32_t n = 0; spent_ns < window_ns; n = (n + 1) % INSTANCES) {
        const struct leat_lap_problem with = problem_at(instances, n);
        struct leat_lap_problem without = with;
        without.rows--;
        solve(instances, n);
        const uint64_t start_ns = leat_clock_now(clock);
        for (int turn = 0; turn < TURNS; turn++) {
            leat_lap_row_left(instances->lap, &without, without.rows);
            leat_lap_row_arrived(instances->lap, &with);
        }
        spent_ns += leat_clock_now(clock) - start_ns;
        count += (uint64_t)2 * TURNS;
    }
    return (double)spent_ns / (double)count;
}

/* ---- scipy ------------------------------------------------------------------------------------- */

struct scipy {
    FILE *to, *from;
    pid_t child;
    char version[32];
};

static bool
start_scipy(struct scipy *scipy)
{
    int requests[2], answers[2];
    LEAT_MUST(pipe(requests) == 0 && pipe(answers) == 0);
    scipy->child = bench_fork();
    if (scipy->child == 0) {
        LEAT_MUST(dup2(requests[0], STDIN_FILENO) >= 0 && dup2(answers[1], STDOUT_FILENO) >= 0);
        (void)close(requests[1]);
        (void)close(answers[0]);
        LEAT_MUST(freopen("/dev/null", "w", stderr) != NULL);
        (void)execl("/usr/bin/python3", "python3", LEAT_BENCH_SCIPY, (char *)NULL);
        _exit(0);
    }
    (void)close(requests[0]);
    (void)close(answers[1]);
    scipy->to = fdopen(requests[1], "w");
    scipy->from = fdopen(answers[0], "r");
    LEAT_ASSERT(scipy->to != NULL && scipy->from != NULL);
    return fscanf(scipy->from, "%31s", scipy->version) == 1;
}

static void
load_scipy(struct scipy *scipy, const struct instances *instances)
{
    const struct shape *shape = instances->shape;
    const size_t entries = (size_t)INSTANCES * shape->rows * shape->columns;
    char path[] = "/tmp/leat-bench-XXXXXX", answer[8];
    const int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;

    LEAT_ASSERT(file != NULL);
    LEAT_MUST(fwrite(instances->full, sizeof(double), entries, file) == entries && fclose(file) == 0);
    (void)fprintf(scipy->to, "load %s %u %u %d\n", path, shape->rows, shape->columns, INSTANCES);
    (void)fflush(scipy->to);
    LEAT_MUST(fscanf(scipy->from, "%7s", answer) == 1 && strcmp(answer, "ok") == 0);
    (void)unlink(path);
}

static double
run_scipy(struct scipy *scipy, uint32_t times, double *ret_total)
{
    double mean_ns;
    (void)fprintf(scipy->to, "run %u\n", times);
    (void)fflush(scipy->to);
    LEAT_MUST(fscanf(scipy->from, "%lf %lf", &mean_ns, ret_total) == 2);
    return mean_ns;
}

static void
stop_scipy(struct scipy *scipy)
{
    (void)fclose(scipy->to);
    (void)fclose(scipy->from);
    (void)waitpid(scipy->child, NULL, 0); /* where it could not start, it has failed */
}

/* ---- Rounds ------------------------------------------------------------------------------------ */

static void
measure_shape(const struct bench_options *options, const struct leat_clock *clock, const struct shape *shape,
              struct scipy *scipy)
{
    static double cold[BENCH_WINDOWS_MAX], warm[BENCH_WINDOWS_MAX], peer[BENCH_WINDOWS_MAX], ratio[BENCH_WINDOWS_MAX];
    struct instances instances;
    double first = 1, total = 0;
    char name[96];

    make_instances(shape, &instances);
    const double least = total_cost(&instances);
    if (scipy != NULL) {
        load_scipy(scipy, &instances);
        first = run_scipy(scipy, 1, &total);
        LEAT_ASSERT(total == least); /* whole numbers below 2^53 */
    }
    for (uint32_t w = 0; w < options->windows; w++) {
        cold[w] = cold_window(clock, options->window_ns, &instances);
        warm[w] = warm_window(clock, options->window_ns, &instances);
        if (scipy != NULL) {
            const double passes = (double)options->window_ns / (first * INSTANCES);
            peer[w] = run_scipy(scipy, passes < 1 ? 1 : (uint32_t)passes, &total);
            ratio[w] = cold[w] / peer[w];
        }
    }
    bench_print(options, &(struct bench_row){.subject = shape->name, .metric = "cold", .unit = "us",
                                             .value = bench_median(cold, options->windows) / 1e3,
                                             .windows = options->windows, .peer = scipy != NULL ? "scipy" : NULL,
                                             .peer_version = scipy != NULL ? scipy->version : NULL,
                                             .ratio = scipy != NULL ? bench_median(ratio, options->windows) : 0,
                                             .goal = scipy != NULL ? BENCH_AT_MOST : BENCH_NO_GOAL,
                                             .target = shape->target});
    bench_print(options, &(struct bench_row){.subject = shape->name, .metric = "warm", .unit = "us",
                                             .value = bench_median(warm, options->windows) / 1e3,
                                             .windows = options->windows});
    if (scipy != NULL) {
        (void)snprintf(name, sizeof(name), "scipy, %s", shape->name);
        bench_print(options, &(struct bench_row){.subject = name, .metric = "cold", .unit = "us",
                                                 .value = bench_median(peer, options->windows) / 1e3,
                                                 .windows = options->windows});
    }
    free_instances(&instances);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "lap", .windows = 12, .window_ns = 40000000};
    struct leat_clock clock;
    struct scipy scipy;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    const bool has_scipy = start_scipy(&scipy);
    if (!has_scipy) {
        bench_print_missing(&options, "scipy", "python3-scipy is not installed");
    }
    for (size_t s = 0; s < SHAPES; s++) {
        measure_shape(&options, &clock, &shapes[s], has_scipy ? &scipy : NULL);
    }
    stop_scipy(&scipy);
    bench_note_load(&options);
    return 0;
}
