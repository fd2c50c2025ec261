/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"

static const char measures[] =
    "Measures   What a worker's team of two threads costs: a fork-join of nothing, one after another and after a pause\n"
    "           of 1 ms; ResNet-50 in f32 on two cores, one image, eight, and eight while another thread burns the second\n"
    "           core; the CPU that a process takes while nothing is asked of it.\n"
    "Beside it  The same engine on libgomp's threads, pinned alike, with OMP_WAIT_POLICY active and passive.\n"
    "Method     Each window is a process of its own, the three in turns. A figure is the median of the windows.\n"
    "           --window-ms is how long ResNet-50 runs in each.\n"
    "Not        Several workers at once, and more threads than cores: libgomp has a pool for each thread that forks.";

enum { FORK, FORK_P99, WOKEN, RESNET, EIGHT, SHARED, IDLE, FIGURES };

static const struct figure {
    const char *subject, *metric, *unit;
    double scale; /* a unit, in what the process prints */
} figures[FIGURES] = {
    [FORK] = {"fork-join", "p50", "us", 1e3},
    [FORK_P99] = {"fork-join", "p99", "us", 1e3},
    [WOKEN] = {"fork-join after 1 ms", "p50", "us", 1e3},
    [RESNET] = {"resnet50, 1 items, 2 cores", "p50", "ms", 1e6},
    [EIGHT] = {"resnet50, 8 items, 2 cores", "p50", "ms", 1e6},
    [SHARED] = {"resnet50, 8 items, 2 cores, one burned", "p50", "ms", 1e6},
    [IDLE] = {"idle", "CPU", "% of a core", 1},
};

static const struct runtime {
    const char *name, *policy; /* NULL: ours */
} runtimes[] = {
    {"leat", NULL},
#if LEAT_BENCH_GOMP
    {"libgomp, active", "active"},
    {"libgomp, passive", "passive"},
#endif
};

static void
measure(const struct bench_options *options, const struct runtime *runtime, double *ret_values)
{
    const char *path = runtime->policy != NULL ? LEAT_BENCH_TEAM_GOMP : LEAT_BENCH_TEAM_OWN;
    char cpus[2][16], window[32], places[64];
    int ends[2];

    LEAT_MUST(pipe(ends) == 0);
    const pid_t child = bench_fork();
    if (child == 0) {
        (void)snprintf(cpus[0], sizeof(cpus[0]), "%d", options->cpus[0]);
        (void)snprintf(cpus[1], sizeof(cpus[1]), "%d", options->cpus[1]);
        (void)snprintf(window, sizeof(window), "%" PRIu64, options->window_ns);
        (void)snprintf(places, sizeof(places), "{%s},{%s}", cpus[0], cpus[1]);
        if (runtime->policy != NULL) {
            LEAT_MUST(setenv("OMP_WAIT_POLICY", runtime->policy, 1) == 0 && setenv("OMP_PLACES", places, 1) == 0);
            LEAT_MUST(setenv("OMP_PROC_BIND", "close", 1) == 0 && setenv("OMP_DYNAMIC", "false", 1) == 0);
        }
        LEAT_MUST(dup2(ends[1], STDOUT_FILENO) >= 0);
        (void)close(ends[0]);
        (void)execl(path, path, cpus[0], cpus[1], window, options->smoke ? "test" : "full", (char *)NULL);
        _exit(1);
    }
    (void)close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    LEAT_ASSERT(file != NULL);
    for (int f = 0; f < FIGURES; f++) {
        LEAT_MUST(fscanf(file, "%lf", &ret_values[f]) == 1);
    }
    (void)fclose(file);
    bench_reap(child);
}

static void
print_figure(const struct bench_options *options, int f, double values[][BENCH_WINDOWS_MAX][FIGURES])
{
    static double own[BENCH_WINDOWS_MAX], ratios[BENCH_WINDOWS_MAX];
    const struct figure *figure = &figures[f];

    for (size_t r = 0; r < LEAT_COUNT_OF(runtimes); r++) {
        char subject[96];
        for (uint32_t w = 0; w < options->windows; w++) {
            own[w] = values[r][w][f] / figure->scale;
            ratios[w] = values[0][w][f] / values[r][w][f];
        }
        (void)snprintf(subject, sizeof(subject), r > 0 ? "%s, on %s" : "%s", figure->subject, runtimes[r].name);
        struct bench_row row = {.subject = subject, .metric = figure->metric, .unit = figure->unit,
                                .windows = options->windows, .value = bench_median(own, options->windows)};
        bench_print(options, &row);
        if (r > 0 && f != IDLE) {
            for (uint32_t w = 0; w < options->windows; w++) {
                own[w] = values[0][w][f] / figure->scale;
            }
            row.subject = figure->subject;
            row.value = bench_median(own, options->windows);
            row.peer = runtimes[r].name;
            row.peer_version = LEAT_BENCH_GOMP_VERSION;
            row.ratio = bench_median(ratios, options->windows);
            bench_print(options, &row);
        }
    }
}

int
main(int argc, char **argv)
{
    static double values[LEAT_COUNT_OF(runtimes)][BENCH_WINDOWS_MAX][FIGURES];
    struct bench_options options = {.name = "team", .windows = 7, .window_ns = 2000000000};
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    if (options.cpu_count < 2) {
        (void)printf("skipped: a team of two needs two CPUs\n");
        return 77;
    }
    if (LEAT_COUNT_OF(runtimes) == 1) {
        bench_print_missing(&options, "libgomp", "the compiler has no OpenMP, or a sanitizer is on");
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        for (size_t r = 0; r < LEAT_COUNT_OF(runtimes); r++) {
            measure(&options, &runtimes[r], values[r][w]);
        }
    }
    for (int f = 0; f < FIGURES; f++) {
        print_figure(&options, f, values);
    }
    bench_note_load(&options);
    return 0;
}
