/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/large.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/graph.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   Items a second of the cpu backend on whole networks with random weights in bf16 and in int8, where the processor\n"
    "           has them, in batches of 1, 8 and 32, on one core. int8 is calibrated on the inputs that are run.\n"
    "Beside it  the same in f32, on the same core in the same run.\n"
    "Does not   say how accurate they are: random weights recognise nothing. leat model add --variants measures that.\n"
    "Method     The precisions take turns, a window each of at least one run, after one that is not counted; a window's\n"
    "           figure is the median of its runs.";

static const char *const models[] = {"resnet50", "mobilenetv2", "efficientnet-b0"};
static const uint32_t batches[] = {1, 8, 32};
enum { RUNS_MAX = 1000 };

/* A network in one precision, and its plan for one batch size. */
struct subject {
    struct leat_model *model;
    struct leat_plan *plan;
    void *scratch;
};

/* What all precisions share: one input and one output, of floats. */
struct network {
    struct leat_graph *graph;
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_model_source source;
    struct leat_segment segment;
    void *tensors[2];
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
load(struct network *network, const char *name, enum zoo_size zoo_size)
{
    size_t size;
    void *file;

    *network = (struct network){.graph = NULL};
    LEAT_MUST(zoo_write(zoo_find(name), zoo_size, 1, &file, &size) == LEAT_OK);
    LEAT_MUST(leat_onnx_import(file, size, &network->graph) == LEAT_OK);
    free(file);
    LEAT_MUST(leat_graph_optimise(network->graph, UINT64_MAX) == LEAT_OK);
    network->source = (struct leat_model_source){.graph = network->graph, .infos = network->infos};
    LEAT_MUST(leat_graph_signature(network->graph, network->infos, &network->source.input_count,
                                   &network->source.output_count) == LEAT_OK);
    LEAT_ASSERT(network->source.input_count == 1 && network->source.output_count == 1 &&
                network->infos[0].dtype == LEAT_DTYPE_F32);
}

static void
fill(struct network *network, uint32_t items)
{
    uint64_t state = 1;

    network->segment.items = items;
    for (uint32_t t = 0; t < 2; t++) {
        network->tensors[t] = allocate(items * network->infos[t].item_bytes);
        network->segment.tensors[t] = network->tensors[t];
    }
    for (size_t i = 0; i < items * network->infos[0].item_bytes / sizeof(float); i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((float *)network->tensors[0])[i] = (float)(state >> 40) / 8388608.0f - 1.0f;
    }
}

static void
calibrate(struct network *network)
{
    struct leat_calibration *calibration;

    LEAT_MUST(leat_calibration_create(network->graph, network->segment.items, &calibration) == LEAT_OK);
    LEAT_MUST(leat_calibration_run(calibration, (const void *const *)network->tensors) == LEAT_OK);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        LEAT_MUST(leat_graph_set_range(network->graph, &range));
    }
    leat_calibration_destroy(calibration);
}

static void
plan(struct network *network, enum leat_precision precision, struct subject *s)
{
    const struct leat_plan_options options = {.items = network->segment.items};

    network->source.precision = precision;
    LEAT_MUST(leat_backend_cpu.model_load(&network->source, &s->model) == LEAT_OK);
    LEAT_MUST(leat_backend_cpu.plan_build(s->model, &options, &s->plan) == LEAT_OK);
    const size_t scratch_bytes = leat_backend_cpu.plan_scratch_bytes(s->plan);
    s->scratch = leat_large_alloc(scratch_bytes); /* as a worker gets it */
    LEAT_ASSERT(s->scratch != NULL);
    memset(s->scratch, 0, scratch_bytes);
}

static void
unplan(struct subject *s)
{
    free(s->scratch);
    leat_backend_cpu.plan_destroy(s->plan);
    leat_backend_cpu.model_destroy(s->model);
}

static double
window(const struct leat_clock *clock, const struct network *network, const struct subject *s, uint32_t runs)
{
    static double ns[RUNS_MAX];

    LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &network->segment, 1, s->scratch, NULL) == LEAT_OK);
    for (uint32_t r = 0; r < runs; r++) {
        const uint64_t start_ns = leat_clock_now(clock);
        LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &network->segment, 1, s->scratch, NULL) == LEAT_OK);
        ns[r] = (double)(leat_clock_now(clock) - start_ns);
    }
    return bench_median(ns, runs);
}

static void
measure(const struct bench_options *options, const struct leat_clock *clock, const struct network *network,
        const struct subject subjects[LEAT_PRECISION_COUNT], uint32_t precisions, const char *name)
{
    static double ns[LEAT_PRECISION_COUNT][BENCH_WINDOWS_MAX], ratios[LEAT_PRECISION_COUNT][BENCH_WINDOWS_MAX];
    const double trial_ns = window(clock, network, &subjects[LEAT_PRECISION_F32], 1);
    const double wanted = (double)options->window_ns / (trial_ns > 1 ? trial_ns : 1);
    const uint32_t runs = wanted > RUNS_MAX ? RUNS_MAX : wanted < 1 ? 1 : (uint32_t)wanted, items = network->segment.items;
    char subject[96];

    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
            if ((precisions & LEAT_PRECISION_BIT(p)) != 0) {
                ns[p][w] = window(clock, network, &subjects[p], runs);
                ratios[p][w] = ns[LEAT_PRECISION_F32][w] / ns[p][w];
            }
        }
    }
    for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
        if ((precisions & LEAT_PRECISION_BIT(p)) == 0) {
            continue;
        }
        (void)snprintf(subject, sizeof(subject), "%s in %s, %u items", name, leat_precision_text(p), items);
        struct bench_row row = {.subject = subject, .metric = "rate", .unit = "items/s", .windows = options->windows,
                                .value = items * 1e9 / bench_median(ns[p], options->windows)};
        if (p != LEAT_PRECISION_F32) {
            row.peer = "f32";
            row.ratio = bench_median(ratios[p], options->windows);
        }
        bench_print(options, &row);
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "precisions", .windows = 7, .window_ns = 300000000};
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    leat_clock_init(&clock);
    bench_pin(options.cpus, 1);
    for (size_t m = 0; m < LEAT_COUNT_OF(models); m++) {
        for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
            struct subject subjects[LEAT_PRECISION_COUNT];
            struct network network;
            load(&network, models[m], options.smoke ? ZOO_SIZE_TEST : ZOO_SIZE_FULL);
            fill(&network, batches[b]);
            calibrate(&network);
            for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
                if ((precisions & LEAT_PRECISION_BIT(p)) != 0) {
                    plan(&network, p, &subjects[p]);
                }
            }
            measure(&options, &clock, &network, subjects, precisions, models[m]);
            for (uint32_t p = 0; p < LEAT_PRECISION_COUNT; p++) {
                if ((precisions & LEAT_PRECISION_BIT(p)) != 0) {
                    unplan(&subjects[p]);
                }
            }
            free(network.tensors[0]);
            free(network.tensors[1]);
            leat_graph_destroy(network.graph);
        }
    }
    bench_note_load(&options);
    return 0;
}
