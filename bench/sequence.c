/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "kernels/sequence.h"
#include "tools/zoo/zoo.h"

static const char measures[] =
    "Measures   Items a second of the cpu backend on BERT-base in f32, bound to three lengths, for queries of 1 and 8 items that are\n"
    "           as long as the plan, on one core; and the bytes of its weights.\n"
    "Beside it  the plan of the full length, which they would all need if there was one length only, on the same core in the same run;\n"
    "           the weights of a model of that length alone.\n"
    "Does not   say what a batch of queries of different lengths costs: it is that of its longest.\n"
    "Method     The lengths take turns, a window each of at least one run, after one that is not counted; a window's\n"
    "           figure is the median of its runs.";

static const uint32_t batches[] = {1, 8};
static const uint32_t full_lengths[] = {32, 64, 128}, test_lengths[] = {8, 16, 32};
enum { LENGTHS = 3, RUNS_MAX = 1000 };

struct subject {
    struct leat_plan *plan;
    void *scratch;
    struct leat_segment segment;
};

static void *
allocate(size_t bytes)
{
    void *memory = aligned_alloc(LEAT_CACHE_LINE, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    LEAT_ASSERT(memory != NULL);
    memset(memory, 0, leat_round_up(bytes + 1, LEAT_CACHE_LINE));
    return memory;
}

static struct leat_sequence *
load(enum zoo_size zoo_size, const uint32_t *lengths)
{
    struct leat_sequence *sequence;
    struct leat_graph *graph;
    size_t size;
    void *file;

    LEAT_MUST(zoo_write(zoo_find("bert-base"), zoo_size, 1, &file, &size) == LEAT_OK);
    LEAT_MUST(leat_onnx_import(file, size, &graph) == LEAT_OK);
    free(file);
    LEAT_MUST(leat_sequence_create(graph, "sequence", lengths, LENGTHS, &sequence) == LEAT_OK);
    leat_graph_destroy(graph);
    LEAT_MUST(leat_sequence_optimise(sequence, UINT64_MAX) == LEAT_OK);
    return sequence;
}

/* All inputs are whole numbers: the mask is of ones, and everything else may be. */
static void
fill(const struct leat_sequence *sequence, void *tensors[LEAT_TENSORS_MAX], uint32_t items)
{
    for (uint32_t t = 0; t < sequence->input_count + sequence->output_count; t++) {
        tensors[t] = allocate(items * sequence->infos[t].item_bytes);
        for (size_t i = 0; t < sequence->input_count && i < items * sequence->infos[t].item_bytes / sizeof(int64_t); i++) {
            ((int64_t *)tensors[t])[i] = 1;
        }
    }
}

static double
window(const struct leat_clock *clock, const struct subject *s, uint32_t runs)
{
    static double ns[RUNS_MAX];

    LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &s->segment, 1, s->scratch, NULL) == LEAT_OK);
    for (uint32_t r = 0; r < runs; r++) {
        const uint64_t start_ns = leat_clock_now(clock);
        LEAT_MUST(leat_backend_cpu.plan_run(s->plan, &s->segment, 1, s->scratch, NULL) == LEAT_OK);
        ns[r] = (double)(leat_clock_now(clock) - start_ns);
    }
    return bench_median(ns, runs);
}

static void
measure(const struct bench_options *options, const struct leat_clock *clock, const struct leat_sequence *sequence,
        struct leat_model *model, uint32_t items)
{
    static double ns[LENGTHS][BENCH_WINDOWS_MAX], ratios[LENGTHS][BENCH_WINDOWS_MAX];
    void *tensors[LEAT_TENSORS_MAX] = {NULL};
    struct subject subjects[LENGTHS];
    char subject[96];

    fill(sequence, tensors, items);
    for (uint32_t k = 0; k < LENGTHS; k++) {
        const struct leat_plan_options plan = {.items = items, .length = sequence->lengths[k]};
        subjects[k].segment = (struct leat_segment){.items = items, .length = sequence->lengths[k]};
        memcpy(subjects[k].segment.tensors, tensors, sizeof(tensors));
        LEAT_MUST(leat_backend_cpu.plan_build(model, &plan, &subjects[k].plan) == LEAT_OK);
        subjects[k].scratch = allocate(leat_backend_cpu.plan_scratch_bytes(subjects[k].plan));
    }
    const double trial_ns = window(clock, &subjects[LENGTHS - 1], 1);
    const double wanted = (double)options->window_ns / (trial_ns > 1 ? trial_ns : 1);
    const uint32_t runs = wanted > RUNS_MAX ? RUNS_MAX : wanted < 1 ? 1 : (uint32_t)wanted;
    for (uint32_t w = 0; w < options->windows; w++) {
        for (uint32_t k = LENGTHS; k-- > 0;) {
            ns[k][w] = window(clock, &subjects[k], runs);
            ratios[k][w] = ns[LENGTHS - 1][w] / ns[k][w];
        }
    }
    for (uint32_t k = 0; k < LENGTHS; k++) {
        (void)snprintf(subject, sizeof(subject), "bert-base, %u positions, %u items", sequence->lengths[k], items);
        struct bench_row row = {.subject = subject, .metric = "rate", .unit = "items/s", .windows = options->windows,
                                .value = items * 1e9 / bench_median(ns[k], options->windows)};
        if (k + 1 < LENGTHS) {
            row.peer = "full length";
            row.ratio = bench_median(ratios[k], options->windows);
        }
        bench_print(options, &row);
        leat_backend_cpu.plan_destroy(subjects[k].plan);
        free(subjects[k].scratch);
    }
    for (uint32_t t = 0; t < LEAT_TENSORS_MAX; t++) {
        free(tensors[t]);
    }
}

/* After the plans, which may each want weights in another layout. */
static void
weigh(const struct bench_options *options, const struct leat_sequence *sequence, const struct leat_model *model)
{
    struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
    struct leat_model *alone;
    struct leat_plan *plan;

    leat_sequence_describe(sequence, &source);
    source.length_count = 0;
    LEAT_MUST(leat_backend_cpu.model_load(&source, &alone) == LEAT_OK);
    for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
        LEAT_MUST(leat_backend_cpu.plan_build(alone, &(struct leat_plan_options){.items = batches[b]}, &plan) == LEAT_OK);
        leat_backend_cpu.plan_destroy(plan);
    }
    const double bytes = (double)leat_backend_cpu.model_bytes(model), peer = (double)leat_backend_cpu.model_bytes(alone);
    bench_print(options, &(struct bench_row){.subject = "bert-base, weights of three lengths", .metric = "size", .unit = "MB",
                                             .value = bytes / 1e6, .peer = "full length alone", .ratio = bytes / peer});
    leat_backend_cpu.model_destroy(alone);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "sequence", .windows = 7, .window_ns = 300000000};
    struct leat_model_source source = {.precision = LEAT_PRECISION_F32};
    struct leat_clock clock;
    struct leat_model *model;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    leat_clock_init(&clock);
    bench_pin(options.cpus, 1);
    struct leat_sequence *sequence =
        load(options.smoke ? ZOO_SIZE_TEST : ZOO_SIZE_FULL, options.smoke ? test_lengths : full_lengths);
    leat_sequence_describe(sequence, &source);
    LEAT_MUST(leat_backend_cpu.model_load(&source, &model) == LEAT_OK);
    for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
        measure(&options, &clock, sequence, model, batches[b]);
    }
    weigh(&options, sequence, model);
    leat_backend_cpu.model_destroy(model);
    leat_sequence_destroy(sequence);
    bench_note_load(&options);
    return 0;
}
