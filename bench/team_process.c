/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench_team measures, in a process of its own: with leat's team, or with that of team_gomp.c.
 *
 * team_process CPU CPU WINDOW_NS full|test: prints ns of a fork-join, median and 99th percentile; of one after a pause; of a
 * run of ResNet-50 of one item; of one of eight, alone and while a thread of its own burns the second CPU; and the share of a
 * core, in percent, that the process takes while nothing is asked of it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "kernels/team.h"
#include "tools/zoo/zoo.h"

enum {
    FORKS = 20000,
    WARM = 1000,
    PAUSED = 200,
    PAUSE_NS = 1000000,
    IDLE_NS = 300000000,
    RUNS_MAX = 2000,
    ITEMS = 8
};

static uint64_t samples_ns[FORKS];

struct sum {
    _Alignas(LEAT_ISOLATE) uint64_t members; /* W: one member  R: the leader, after the run */
};

static void
count(void *context, uint32_t member, uint32_t size)
{
    struct sum *sums = context;
    (void)size;
    sums[member].members++;
}

static void
pause_ns(uint64_t ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Both members must have run each time. */
static struct bench_latency
fork_join(struct leat_team *team, uint32_t forks, uint64_t between_ns)
{
    struct sum sums[2] = {{0}, {0}};

    for (uint32_t f = 0; f < forks; f++) {
        if (between_ns > 0) {
            pause_ns(between_ns);
        }
        const uint64_t start_ns = leat_monotonic_ns();
        leat_team_run(team, count, sums);
        samples_ns[f] = leat_monotonic_ns() - start_ns;
    }
    LEAT_ASSERT(sums[0].members == forks && sums[1].members == forks);
    return bench_order(samples_ns, forks);
}

static uint64_t
cpu_ns(void)
{
    struct timespec t;
    LEAT_MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Right after the last run, as between two queries. */
static double
idle_percent(void)
{
    const uint64_t start_ns = leat_monotonic_ns(), before_ns = cpu_ns();

    pause_ns(IDLE_NS);
    const uint64_t spent_ns = cpu_ns() - before_ns;
    return 100 * (double)spent_ns / (double)(leat_monotonic_ns() - start_ns);
}

static void *
zeros(size_t bytes)
{
    void *block = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    LEAT_ASSERT(block != NULL);
    memset(block, 0, bytes);
    return block;
}

struct burner {
    pthread_t thread;
    int cpu;
    _Atomic bool stop; /* W: whoever started it, relaxed */
};

static void *
burn(void *context)
{
    struct burner *burner = context;

    bench_pin(&burner->cpu, 1);
    while (!atomic_load_explicit(&burner->stop, memory_order_relaxed)) {
    }
    return NULL;
}

static uint64_t
run_resnet(struct leat_team *team, enum zoo_size size, uint32_t items, uint64_t window_ns)
{
    static const uint32_t two = 2;
    const struct leat_plan_options options = {
        .items = items, .team_sizes = &two, .team_size_count = 1};
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source = {.infos = infos};
    struct leat_segment segment = {.items = items};
    struct leat_graph *graph;
    struct leat_model *model;
    struct leat_plan *plan;
    uint64_t spent_ns = 0;
    uint32_t runs = 0;
    size_t bytes;
    void *file;

    LEAT_MUST(zoo_write(zoo_find("resnet50"), size, 1, &file, &bytes) == LEAT_OK);
    LEAT_MUST(leat_onnx_import(file, bytes, &graph) == LEAT_OK);
    free(file);
    LEAT_MUST(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    LEAT_MUST(leat_graph_signature(graph, infos, &source.input_count, &source.output_count) == LEAT_OK);
    source.graph = graph;
    LEAT_MUST(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    leat_graph_destroy(graph);
    LEAT_MUST(leat_backend_cpu.plan_build(model, &options, &plan) == LEAT_OK);
    void *scratch = zeros(leat_backend_cpu.plan_scratch_bytes(plan));
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        segment.tensors[t] = zeros(items * infos[t].item_bytes);
    }
    LEAT_MUST(leat_backend_cpu.plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
    while (runs < RUNS_MAX && (runs < 3 || spent_ns < window_ns)) {
        const uint64_t start_ns = leat_monotonic_ns();
        LEAT_MUST(leat_backend_cpu.plan_run(plan, &segment, 1, scratch, team) == LEAT_OK);
        samples_ns[runs] = leat_monotonic_ns() - start_ns;
        spent_ns += samples_ns[runs++];
    }
    for (uint32_t t = 0; t < source.input_count + source.output_count; t++) {
        free((void *)(uintptr_t)segment.tensors[t]);
    }
    free(scratch);
    leat_backend_cpu.plan_destroy(plan);
    leat_backend_cpu.model_destroy(model);
    return bench_order(samples_ns, runs).p50;
}

int
main(int argc, char **argv)
{
    LEAT_ASSERT(argc == 5);
    const uint32_t cpus[2] = {(uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2])};
    const uint64_t window_ns = strtoull(argv[3], NULL, 10);
    const enum zoo_size size = strcmp(argv[4], "full") == 0 ? ZOO_SIZE_FULL : ZOO_SIZE_TEST;
    const struct leat_team_options options = {.cpus = cpus, .size = 2, .spin_ns = 50000};
    struct leat_team *team;

    bench_pin((const int[]){(int)cpus[0]}, 1);
    LEAT_MUST(leat_team_create(&options, &team) == LEAT_OK);
    (void)fork_join(team, WARM, 0);
    const struct bench_latency joined = fork_join(team, FORKS, 0);
    const struct bench_latency woken = fork_join(team, PAUSED, PAUSE_NS);
    const uint64_t one_ns = run_resnet(team, size, 1, window_ns),
                   eight_ns = run_resnet(team, size, ITEMS, window_ns);
    const double idle = idle_percent();
    struct burner burner = {.cpu = (int)cpus[1]};
    LEAT_MUST(pthread_create(&burner.thread, NULL, burn, &burner) == 0);
    const uint64_t shared_ns = run_resnet(team, size, ITEMS, window_ns);
    atomic_store_explicit(&burner.stop, true, memory_order_relaxed);
    LEAT_MUST(pthread_join(burner.thread, NULL) == 0);
    (void)printf("%.0f %.0f %.0f %.0f %.0f %.0f %.4f\n", (double)joined.p50, (double)joined.p99,
                 (double)woken.p50, (double)one_ns, (double)eight_ns, (double)shared_ns, idle);
    leat_team_destroy(team);
    return 0;
}
