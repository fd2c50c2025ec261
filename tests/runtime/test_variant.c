/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A variant has one copy per node, each in that node's memory and each giving the same answers; profiles
 *          are measured per worker class, with percentiles that a stall of the machine does not spoil, and not where they
 *          are known of such a machine, or the backend knows them; what is run to measure or to warm up looks up rows of whole
 *          tables, other ones each time, and has sequences of full length; the largest batch is chosen by what batches
 *          take; what cannot be loaded says which model and why.
 * Method   A network of leat-zoo on the cpu backend for two nodes (the second need not exist) and three classes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "kernels/cpu/openmp.h"
#include "runtime/log.h"
#include "runtime/variant.h"
#include "runtime/worker.h"
#include "tests/kernels/model_builder.h"
#include "tests/leat_test.h"
#include "tools/zoo/zoo.h"

#if LEAT_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

enum { ITEMS = 3, NODES = 2, CLASSES = 3 };

static void
run_copy(const struct leat_loaded_variant *loaded, uint32_t copy, unsigned char *output)
{
    const struct leat_variant *variant = loaded->variant;
    struct leat_segment segment = {.items = ITEMS};
    void *input = aligned_alloc(64, (size_t)leat_round_up(ITEMS * variant->item_bytes[0], 64));
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(loaded->scratch_bytes + 1, 64));

    EXPECT(input != NULL && scratch != NULL && variant->tensor_count == 2);
    for (size_t i = 0; i < ITEMS * variant->item_bytes[0] / sizeof(float); i++) {
        ((float *)input)[i] = (float)(i % 17) / 17.0f;
    }
    segment.tensors[0] = input;
    segment.tensors[1] = output;
    EXPECT(variant->backend->plan_run(variant->copies[copy].plans[2], &segment, 1, scratch, NULL) == LEAT_OK);
    free(input);
    free(scratch);
}

static void
test_copies(const void *file, size_t size)
{
    static const uint32_t nodes[NODES] = {0, 1}, team_sizes[CLASSES] = {1, 2, 1};
    const struct leat_variant_source source = {
        .name = "lenet", .backend = "cpu", .onnx = file, .onnx_bytes = size, .items_max = 4, .runs = 2, .nodes = nodes,
        .node_count = NODES, .team_sizes = team_sizes, .team_size_count = CLASSES};
    struct leat_loaded_variant loaded;
    unsigned char *outputs[NODES];

    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    const struct leat_variant *variant = loaded.variant;
    EXPECT(variant->copy_count == NODES && variant->copies[0].model != variant->copies[1].model);
    const size_t output_bytes = ITEMS * variant->item_bytes[1];
    for (uint32_t c = 0; c < NODES; c++) {
        outputs[c] = aligned_alloc(64, (size_t)leat_round_up(output_bytes, 64));
        EXPECT(outputs[c] != NULL);
        run_copy(&loaded, c, outputs[c]);
    }
    EXPECT(memcmp(outputs[0], outputs[1], output_bytes) == 0);
#if LEAT_JEMALLOC
    unsigned arenas[NODES];
    for (uint32_t c = 0; c < NODES; c++) {
        size_t bytes = sizeof(arenas[c]);
        const void *block = variant->copies[c].model;
        EXPECT(mallctl("arenas.lookup", &arenas[c], &bytes, &block, sizeof(block)) == 0);
    }
    EXPECT(arenas[0] != arenas[1]);
#endif
    for (uint32_t class = 0; class < CLASSES; class++) {
        EXPECT(leat_profile_predict(&loaded.profiles[class], 1) > 0);
    }
    EXPECT(memcmp(&loaded.profiles[0], &loaded.profiles[2], sizeof(loaded.profiles[0])) == 0);
    for (uint32_t c = 0; c < NODES; c++) {
        free(outputs[c]);
    }
    EXPECT(loaded.measured_anew && loaded.measured.count == 2 * 3); /* classes of one size share theirs */
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
}

/* One that its constants break, one that only batches do, and one that suffices. */
static void
test_memory(const void *file, size_t size)
{
    static const char *const texts[] = {"the model's constants take", "limits.model_memory is", ""};
    struct leat_variant_source source = {.name = "lenet", .backend = "reference", .onnx = file, .onnx_bytes = size, .items_max = 4};
    struct leat_loaded_variant loaded;

    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    const uint64_t needed = loaded.model_bytes + loaded.scratch_bytes;
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    for (int i = 0; i < 3; i++) {
        source.memory_bytes_max = i == 0 ? 1024 : i == 1 ? needed - 1 : needed;
        const enum leat_status status = leat_variant_load(&source, &loaded);
        EXPECT(status == (i < 2 ? LEAT_ERR_LIMIT : LEAT_OK));
        EXPECT(i == 2 || (strstr(leat_error_text(), "model 'lenet'") != NULL && strstr(leat_error_text(), texts[i]) != NULL));
        if (status == LEAT_OK) {
            leat_variant_destroy(loaded.variant);
            leat_measured_free(&loaded.measured);
        }
    }
}

/* 2 GFLOP an item: one whose items compute too much, one whose batches do, one that may, and a kept one, not measured. */
static void
test_work(void)
{
    static const char *const texts[] = {
        "an item takes as long as 2 GFLOP of products, limits.item_gflop is 1: raise it",
        "a batch of 64 takes as long as 128 GFLOP of products, more than 32 times limits.item_gflop, which is 2"};
    struct leat_loaded_variant loaded;
    struct builder b;
    size_t size;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_TYPE_F32, DIMS(-1, 1000, 1000));
    (void)builder_constant(&b, "w", ONNX_TYPE_F32, NULL, DIMS(1000, 1000));
    (void)builder_node(&b, "MatMul", "x w", "y");
    builder_output(&b, "y");
    void *bytes = builder_pack(&b, &size);
    struct leat_variant_source source = {.name = "square", .backend = "cpu", .onnx = bytes, .onnx_bytes = size};
    for (int i = 0; i < 4; i++) {
        source.items_max = i == 1 ? 64 : 1;
        source.item_gflop_max = i == 0 || i == 3 ? 1 : 2;
        source.kept = i == 3;
        const enum leat_status status = leat_variant_load(&source, &loaded);
        EXPECT(status == (i < 2 ? LEAT_ERR_LIMIT : LEAT_OK));
        EXPECT(i >= 2 || strstr(leat_error_text(), texts[i]) != NULL);
        if (status == LEAT_OK) {
            EXPECT(loaded.measured_anew);
            leat_variant_destroy(loaded.variant);
            leat_measured_free(&loaded.measured);
        }
        struct leat_graph *graph = NULL; /* what calibrates runs it too */
        struct leat_sequence *sequence = NULL;
        struct leat_target signature;
        bool one_by_one;
        EXPECT(leat_variant_import(&source, &graph, &sequence, &signature, &one_by_one) == status);
        leat_graph_destroy(graph);
    }
    builder_fini(&b);
}

/* 5000 iterations are more than there are where nothing is said. */
static void
test_iterations(void)
{
    static const int64_t count = 5000;
    struct leat_loaded_variant loaded;
    struct builder b, body;
    size_t size;

    builder_init(&body, 13);
    (void)builder_input(&body, "i", ONNX_TYPE_I64, NULL, 0);
    (void)builder_input(&body, "more_in", ONNX_TYPE_BOOL, NULL, 0);
    (void)builder_input(&body, "s", ONNX_TYPE_F32, DIMS(1, 4));
    (void)builder_node(&body, "Identity", "more_in", "more");
    (void)builder_node(&body, "Sin", "s", "t");
    builder_output(&body, "more");
    builder_output(&body, "t");
    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_TYPE_F32, DIMS(1, 4));
    (void)builder_constant(&b, "n", ONNX_TYPE_I64, &count, NULL, 0);
    builder_graph(&b, builder_node(&b, "Loop", "n - x", "y"), "body", &body);
    builder_output(&b, "y");
    void *bytes = builder_pack(&b, &size);
    struct leat_variant_source source = {.name = "looping", .backend = "cpu", .onnx = bytes, .onnx_bytes = size, .items_max = 1};
    for (uint32_t most = 0; most <= 5000; most += 2500) {
        source.trips_max = most;
        const enum leat_status status = leat_variant_load(&source, &loaded);
        EXPECT(status == (most < 5000 ? LEAT_ERR_LIMIT : LEAT_OK));
        EXPECT(status == LEAT_OK || strstr(leat_error_text(), "5000 iterations, the limit is") != NULL);
        if (status == LEAT_OK) {
            leat_variant_destroy(loaded.variant);
            leat_measured_free(&loaded.measured);
        }
    }
    builder_fini(&b);
    builder_fini(&body);
}

/* A stall, or two, of five runs: percentiles are those of the others. */
static void
test_summaries(void)
{
    static const uint64_t usual[] = {1000, 1010, 1020, 1030, 1040};
    struct leat_measured_point point = {0};

    for (uint32_t stalls = 0; stalls <= 2; stalls++) {
        uint64_t samples[5], sum = 0;
        memcpy(samples, usual, sizeof(samples));
        for (uint32_t s = 0; s < stalls; s++) {
            samples[s == 0 ? 4 : 3] = UINT64_C(300000000);
        }
        for (uint32_t s = 0; s < 5 - stalls; s++) {
            sum += usual[s];
        }
        leat_measured_summarise(samples, 5, &point);
        EXPECT(point.runs == 5 - stalls && point.mean_ns == sum / (5 - stalls) && point.p50_ns == 1020 - 10 * stalls / 2);
        EXPECT(point.p99_ns <= 1040 && point.p95_ns <= point.p99_ns && point.p50_ns <= point.p95_ns);
    }
    uint64_t hundred[101];
    for (uint32_t s = 0; s <= 100; s++) {
        hundred[(s * 37) % 101] = 1000 + s;
    }
    leat_measured_summarise(hundred, 101, &point);
    EXPECT(point.runs == 101 && point.mean_ns == 1050 && point.p50_ns == 1050 && point.p95_ns == 1095 && point.p99_ns == 1099);
    uint64_t one[] = {7};
    leat_measured_summarise(one, 1, &point);
    EXPECT(point.runs == 1 && point.p50_ns == 7 && point.p99_ns == 7 && point.mean_ns == 7);
}

static const struct leat_tensor_info bytes_infos[2] = {
    {.name = "input", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 8}, .item_bytes = 8},
    {.name = "output", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 8}, .item_bytes = 8}};

/* What is known is not measured again, on the same host; by class, where the backend tells them apart. */
static void
test_known(void)
{
    static const uint32_t team_sizes[] = {1, 1};
    static const char *const classes[] = {"slow", "fast"};
    const struct leat_measured_point points[] = {
        {.worker_class = "fast", .cores = 1, .items = 1, .p50_ns = 111000000},
        {.worker_class = "fast", .cores = 1, .items = 5, .p50_ns = 555000000},
        {.worker_class = "slow", .cores = 1, .items = 1, .p50_ns = 222000000}};
    struct leat_variant_source source = {.name = "pretender",
                                         .backend = "synthetic",
                                         .options_json = "{\"latency_ns\":1000,\"payload\":\"copy\"}",
                                         .items_max = 5,
                                         .infos = bytes_infos,
                                         .input_count = 1,
                                         .output_count = 1,
                                         .team_sizes = team_sizes,
                                         .class_names = classes,
                                         .team_size_count = 2,
                                         .host = "here"};
    struct leat_measured known = {0};
    struct leat_loaded_variant loaded;

    for (size_t p = 0; p < LEAT_COUNT_OF(points); p++) {
        EXPECT(leat_measured_add(&known, &points[p]) == LEAT_OK);
    }
    source.measured = &known;
    static const char *const hosts[] = {"here", "", "elsewhere"};
    for (size_t h = 0; h < LEAT_COUNT_OF(hosts); h++) {
        (void)strcpy(known.host, hosts[h]);
        EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
        const bool counts = h < 2;
        EXPECT((leat_profile_mean(&loaded.profiles[1], 5) == 555000000) == counts);
        EXPECT((leat_profile_mean(&loaded.profiles[1], 1) == 111000000) == counts);
        EXPECT(leat_profile_mean(&loaded.profiles[0], 1) < 100000000); /* the largest batch was not known: measured */
        EXPECT(loaded.measured_anew && strcmp(loaded.measured.host, "here") == 0 && loaded.measured.measured_s > 0);
        const struct leat_measured_point *point = leat_measured_find(&loaded.measured, "slow", 1, true, 0, 5);
        EXPECT(point != NULL && point->runs >= 5 && point->p50_ns >= 1000 && point->p95_ns >= point->p50_ns);
        EXPECT(loaded.measured.peak_bytes >= 5 * 16);

        /* And all of that is known the next time. */
        source.measured = &loaded.measured;
        struct leat_loaded_variant again;
        EXPECT(leat_variant_load(&source, &again) == LEAT_OK && !again.measured_anew);
        EXPECT(again.measured.count == loaded.measured.count && again.measured.measured_s == loaded.measured.measured_s);
        EXPECT(leat_profile_mean(&again.profiles[0], 5) == leat_profile_mean(&loaded.profiles[0], 5));
        source.measured = &known;
        leat_variant_destroy(again.variant);
        leat_measured_free(&again.measured);
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
    }
    leat_measured_free(&known);
}

/* What was kept by another method of measuring, or by a version that named none, is measured anew. */
static void
test_method(void)
{
    const struct leat_measured_point point = {.worker_class = "*", .items = 1, .p50_ns = 111000000};
    struct leat_variant_source source = {.name = "pretender",
                                         .backend = "synthetic",
                                         .options_json = "{\"latency_ns\":1000,\"payload\":\"copy\"}",
                                         .items_max = 1,
                                         .infos = bytes_infos,
                                         .input_count = 1,
                                         .output_count = 1};
    struct leat_measured known = {0};
    struct leat_loaded_variant loaded;
    char host[LEAT_MEASURED_HOST_BYTES], end[32];

    leat_measured_host(UINT32_MAX, host);
    (void)snprintf(end, sizeof(end), ", method %d", LEAT_MEASURED_METHOD);
    EXPECT(strlen(host) > strlen(end));
    const size_t before = strlen(host) - strlen(end);
    EXPECT(strcmp(host + before, end) == 0);
    EXPECT(leat_measured_add(&known, &point) == LEAT_OK);
    source.host = host;
    source.measured = &known;
    for (int method = LEAT_MEASURED_METHOD - 1; method <= LEAT_MEASURED_METHOD + 1; method++) {
        if (method == 0) {
            (void)snprintf(known.host, sizeof(known.host), "%.*s", (int)before, host);
        } else {
            (void)snprintf(known.host, sizeof(known.host), "%.*s, method %d", (int)before, host, method);
        }
        EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK && loaded.measured_anew == (method != LEAT_MEASURED_METHOD));
        EXPECT((leat_profile_mean(&loaded.profiles[0], 1) == 111000000) == (method == LEAT_MEASURED_METHOD));
        EXPECT(strcmp(loaded.measured.host, host) == 0);
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
    }
    leat_measured_free(&known);
}

/* A backend that knows its times is not run to find them: what would take days is known at once, at every size. */
static void
test_times_that_are_known(void)
{
    static const struct leat_tensor_info infos[2] = {
        {.name = "x", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 1}, .item_bytes = 1},
        {.name = "y", .dtype = LEAT_DTYPE_U8, .rank = 2, .dims = {-1, 1}, .item_bytes = 1},
    };
    static const char *const names[2] = {"a", "b"};
    static const uint32_t team_sizes[2] = {1, 1};
    const struct leat_variant_source source = {
        .name = "slow", .backend = "synthetic", .items_max = 32, .infos = infos, .input_count = 1, .output_count = 1,
        .options_json = "{\"latency_ns\": 100000000000000, \"per_item_ns\": 1000}",
        .team_sizes = team_sizes, .class_names = names, .team_size_count = 2};
    struct leat_loaded_variant loaded;

    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    for (uint32_t items = 1; items <= 32; items++) {
        for (uint32_t class = 0; class < 2; class++) {
            EXPECT(leat_profile_predict(&loaded.profiles[class], items) == UINT64_C(100000000000000) + 1000 * items);
        }
    }
    leat_measured_free(&loaded.measured);
    leat_variant_destroy(loaded.variant);
}

/* By times that the backend knows. */
static void
test_chosen_items(const void *file, size_t size)
{
    static const uint32_t team_sizes[2] = {1, 1};
    struct leat_variant_source source = {.name = "sized",
                                         .backend = "synthetic",
                                         .options_json = "{\"latency_ns\": 7000, \"per_item_ns\": 1000}",
                                         .infos = bytes_infos,
                                         .input_count = 1,
                                         .output_count = 1,
                                         .team_sizes = team_sizes,
                                         .team_size_count = 2,
                                         .runs = 3};
    struct leat_batch_choice choice;

    EXPECT(leat_variant_choose_items(&source, 1, 0, UINT64_MAX, UINT64_MAX, &choice) == LEAT_OK);
    EXPECT(choice.items == 128 && choice.bound == LEAT_BATCH_GAIN);
    EXPECT(leat_variant_choose_items(&source, 1, 0, 40000, UINT64_MAX, &choice) == LEAT_OK);
    EXPECT(choice.items == 32 && choice.bound == LEAT_BATCH_LATENCY);
    EXPECT(leat_variant_choose_items(&source, 1, 0, UINT64_MAX, 3 * 16 * 64, &choice) == LEAT_OK); /* for all runs at once */
    EXPECT(choice.items == 64 && choice.bound == LEAT_BATCH_MEMORY);
    source = (struct leat_variant_source){.name = "lenet", .backend = "cpu", .onnx = file, .onnx_bytes = size};
    EXPECT(leat_variant_choose_items(&source, 1, 0, UINT64_MAX, UINT64_MAX, &choice) == LEAT_OK);
    EXPECT(choice.items >= LEAT_CHOICE_FREE_ITEMS && choice.bound != LEAT_BATCH_GIVEN);
    EXPECT(leat_variant_choose_items(&source, 1, 0, 1, UINT64_MAX, &choice) == LEAT_OK);
    EXPECT(choice.items == 1 && choice.bound == LEAT_BATCH_LATENCY);
    source.onnx_bytes = size / 2;
    EXPECT(leat_variant_choose_items(&source, 1, 0, UINT64_MAX, UINT64_MAX, &choice) != LEAT_OK);
    EXPECT(strstr(leat_error_text(), "model 'lenet'") != NULL);
}

/* A team that no class has: under a name of its own, for all batches, on all its cores. */
static void
test_teams(const void *file, size_t size)
{
    struct leat_variant_source source = {
        .name = "lenet", .backend = "cpu", .onnx = file, .onnx_bytes = size, .items_max = 3};
    struct leat_loaded_variant loaded;

    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK && loaded.measured.count == 3);
    const uint64_t regions = leat_openmp_regions();
    EXPECT(leat_variant_measure_team(loaded.variant, 2, &loaded.measured) == LEAT_OK && loaded.measured.count == 6);
    EXPECT(leat_openmp_regions() > regions);
    for (uint32_t p = 0; p < 3; p++) {
        const struct leat_measured_point *point = &loaded.measured.points[3 + p];
        EXPECT(point->cores == 2 && strcmp(point->worker_class, "2 cores") == 0 && point->runs >= 5 && point->p50_ns > 0);
        EXPECT(point->items == loaded.measured.points[p].items);
    }
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    source = (struct leat_variant_source){.name = "pretender", .backend = "synthetic", .options_json = "{}", .items_max = 1,
                                          .infos = bytes_infos, .input_count = 1, .output_count = 1};
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    EXPECT(leat_variant_measure_team(loaded.variant, 2, &loaded.measured) == LEAT_ERR_INVALID);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
}

/* Options of a file say its precision; what the backend does not have is refused. */
static void
test_precisions(const void *file, size_t size)
{
    struct leat_variant_source source = {
        .name = "lenet", .backend = "cpu", .onnx = file, .onnx_bytes = size, .items_max = 2};
    const bool has_bf16 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_BF16)) != 0;
    struct leat_loaded_variant loaded;

    source.options_json = "{\"precision\":\"bf16\",\"items_bound\":\"memory\"}";
    EXPECT(leat_variant_load(&source, &loaded) == (has_bf16 ? LEAT_OK : LEAT_ERR_DEVICE));
    if (has_bf16) {
        EXPECT(loaded.variant->precision == LEAT_PRECISION_BF16 && loaded.variant->items_bound == LEAT_BATCH_MEMORY);
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
    }
    source.options_json = NULL;
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    EXPECT(loaded.variant->precision == LEAT_PRECISION_F32 && loaded.variant->items_bound == LEAT_BATCH_GIVEN);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    static const char *const wrong[] = {"{\"precision\":\"f16\"}",        "{\"precision\":1}",
                                        "{\"items_bound\":\"many\"}",      "{",
                                        "{\"ranges\":[]}",                 "{\"ranges\":{\"x\":[1,2]}}",
                                        "{\"ranges\":{\"x\":[0,0]}}",      "{\"ranges\":{\"x\":[-1,true]}}",
                                        "{\"ranges\":{\"x\":[-1e300,0]}}", "{\"ranges\":{\"x\":[-1,1,1]}}"};
    for (size_t w = 0; w < LEAT_COUNT_OF(wrong); w++) {
        source.options_json = wrong[w];
        EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_INVALID && strstr(leat_error_text(), "model 'lenet'") != NULL);
    }
    const bool has_int8 = (leat_backend_precisions(&leat_backend_cpu) & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0;
    source.options_json = "{\"precision\":\"int8\"}"; /* not calibrated */
    EXPECT(leat_variant_load(&source, &loaded) == (has_int8 ? LEAT_ERR_INVALID : LEAT_ERR_DEVICE));
    source.options_json = "{\"precision\":\"int8\",\"ranges\":{\"nobody\":[-1,0.5]}}";
    EXPECT(leat_variant_load(&source, &loaded) == (has_int8 ? LEAT_OK : LEAT_ERR_DEVICE));
    if (has_int8) {
        EXPECT(loaded.variant->precision == LEAT_PRECISION_INT8);
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
    }
    source.backend = "reference";
    source.options_json = "{\"precision\":\"bf16\"}";
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_DEVICE);
}

/* Options of a file give free dimensions their values. */
static void
test_dims(void)
{
    struct leat_variant_source source = {.name = "gru", .backend = "cpu", .items_max = 2};
    struct leat_loaded_variant loaded;
    char *file;
    size_t size;

    EXPECT(zoo_write(zoo_find("gru-classifier"), ZOO_SIZE_TEST, leat_test_seed, (void **)&file, &size) == LEAT_OK);
    source.onnx = file;
    source.onnx_bytes = size;
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_UNSUPPORTED);
    EXPECT(strstr(leat_error_text(), "model 'gru'") != NULL && strstr(leat_error_text(), "--dim sequence=N") != NULL);
    source.options_json = "{\"dims\":{\"sequence\":9}}";
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    EXPECT(loaded.signature.tensors[0].rank == 2 && loaded.signature.tensors[0].dims[1] == 9);
    EXPECT(loaded.signature.tensors[0].item_bytes == 9 * sizeof(int64_t));
    EXPECT(strcmp(loaded.variant->dims_json, "{\"sequence\":9}") == 0);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    static const char *const wrong[] = {
        "{\"dims\":7}",
        "{\"dims\":[\"sequence\"]}",
        "{\"dims\":{\"sequence\":\"9\"}}",
        "{\"dims\":{\"sequence\":9.0}}",
        "{\"dims\":{\"sequence\":0}}",
        "{\"dims\":{\"sequence\":-9223372036854775808}}",
        "{\"dims\":{\"sequence\":9223372036854775807}}",
        "{\"dims\":{\"sequence\":9,\"\":9}}",
        "{\"dims\":{\"frames\":9}}",
    };
    for (size_t w = 0; w < LEAT_COUNT_OF(wrong); w++) {
        source.options_json = wrong[w];
        EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_INVALID && strstr(leat_error_text(), "model 'gru'") != NULL);
    }
    char many[2048] = "{\"dims\":{";
    for (int d = 0; d < 65; d++) {
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s\"d%d\":1", d > 0 ? "," : "", d);
    }
    (void)strcat(many, "}}");
    source.options_json = many;
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "at most 64 dimensions") != NULL);
    free(file);
}

/* What a client may say of inputs that are constant; kernels/onnx/constants.c sees to what the file makes of it. */
static void
test_constants(void)
{
    struct leat_variant_source source = {.name = "lenet", .backend = "cpu", .items_max = 2};
    struct leat_loaded_variant loaded;
    char *file;
    size_t size;

    EXPECT(zoo_write(zoo_find("lenet5"), ZOO_SIZE_TEST, leat_test_seed, (void **)&file, &size) == LEAT_OK);
    source.onnx = file;
    source.onnx_bytes = size;
    static const char *const wrong[] = {
        "{\"constants\":7}",
        "{\"constants\":[1]}",
        "{\"constants\":{\"rate\":\"16000\"}}",
        "{\"constants\":{\"rate\":true}}",
        "{\"constants\":{\"rate\":null}}",
        "{\"constants\":{\"rate\":[1]}}",
    };
    for (size_t w = 0; w < LEAT_COUNT_OF(wrong); w++) {
        source.options_json = wrong[w];
        EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_INVALID);
        EXPECT(strstr(leat_error_text(), "must be numbers, by the names of at most 64 inputs") != NULL);
    }
    source.options_json = "{\"constants\":{\"rate\":1}}";
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_INVALID);
    EXPECT(strstr(leat_error_text(), "model 'lenet': no input is called 'rate'") != NULL);
    source.options_json = "{\"constants\":{}}";
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK && loaded.variant->constants_json == NULL);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    free(file);
}

static void
test_refusals(const unsigned char *file, size_t size)
{
    struct leat_variant_source source = {
        .name = "broken", .backend = "cpu", .onnx = file, .onnx_bytes = size / 2, .items_max = 4};
    struct leat_loaded_variant loaded;

    EXPECT(leat_variant_load(&source, &loaded) != LEAT_OK);
    EXPECT(strstr(leat_error_text(), "model 'broken'") != NULL);
    source.onnx_bytes = size;
    source.backend = "abacus";
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_ERR_NOT_FOUND);
    EXPECT(strstr(leat_error_text(), "'broken'") != NULL && strstr(leat_error_text(), "'abacus'") != NULL);
    leat_variant_destroy(NULL);
}

/* The largest of the elements of x, or of x * (1 - x), that are not 0: it fails where there is none. */
static enum leat_status
measure_picky(bool product)
{
    struct leat_loaded_variant loaded;
    struct builder b;
    size_t size;

    builder_init(&b, 13);
    (void)builder_input(&b, "x", ONNX_TYPE_F32, DIMS(-1, 4));
    (void)builder_constant(&b, "one", ONNX_TYPE_F32, (const float[]){1}, DIMS(1));
    (void)builder_constant(&b, "k", ONNX_TYPE_I64, (const int64_t[]){1}, DIMS(1));
    (void)builder_node(&b, "Sub", "one x", "rest");
    (void)builder_node(&b, "Mul", "x rest", "xx");
    (void)builder_node(&b, "NonZero", product ? "xx" : "x", "columns");
    (void)builder_node(&b, "Transpose", "columns", "rows");
    (void)builder_node(&b, "GatherND", "x rows", "found");
    (void)builder_node(&b, "TopK", "found k", "most place");
    builder_output(&b, "most");
    void *bytes = builder_pack(&b, &size);
    const struct leat_variant_source source = {
        .name = "picky", .backend = "cpu", .onnx = bytes, .onnx_bytes = size, .items_max = 2};
    const enum leat_status status = leat_variant_load(&source, &loaded);
    if (status == LEAT_OK) {
        EXPECT(loaded.variant->one_by_one && loaded.measured.count == 2);
        leat_variant_destroy(loaded.variant);
        leat_measured_free(&loaded.measured);
    }
    builder_fini(&b);
    return status;
}

/* Runs that fail are no times. */
static void
test_refused_payload(void)
{
    EXPECT(measure_picky(false) == LEAT_OK); /* on ones */
    EXPECT(measure_picky(true) == LEAT_ERR_SHAPE && strstr(leat_error_text(), "of zeros and of ones") != NULL);
}

/* What a backend was given, by number of run: the first index, and how many rows of the table were named so far. */
enum { SPIED_RUNS = 512, ROWS_MAX = 1024, ITEMS_MOST = 4 };
static struct {
    struct leat_backend backend;
    int64_t end, refused; /* at least: no run is what it should be with such an index */
    uint32_t runs, rows, of_items[ITEMS_MOST + 1]; /* runs, all and of so many items */
    uint64_t ends_ns; /* no run ends before */
    bool named[ROWS_MAX];
    int64_t firsts[SPIED_RUNS];
} spied;

/* The last line of the log. */
static char logged[512];

void __wrap_leat_log(enum leat_log_level level, const char *format, ...);
void
__wrap_leat_log(enum leat_log_level level, const char *format, ...)
{
    va_list args;

    (void)level;
    va_start(args, format);
    (void)vsnprintf(logged, sizeof(logged), format, args);
    va_end(args);
}

static enum leat_status
spy(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch, struct leat_team *team)
{
    const int64_t *indices = segments[0].tensors[0];

    (void)plan;
    (void)scratch;
    (void)team;
    EXPECT(count == 1);
    for (uint32_t i = 0; i < segments[0].items; i++) {
        EXPECT(indices[i] >= 0 && indices[i] < spied.end);
        if (indices[i] >= spied.refused) {
            return LEAT_FAIL(LEAT_ERR_SHAPE, "row %lld", (long long)indices[i]);
        }
        spied.rows += !spied.named[indices[i]];
        spied.named[indices[i]] = true;
    }
    EXPECT(segments[0].items <= ITEMS_MOST);
    spied.of_items[segments[0].items]++;
    if (spied.runs < SPIED_RUNS) {
        spied.firsts[spied.runs++] = indices[0];
    }
    while (leat_monotonic_ns() < spied.ends_ns) {
    }
    return LEAT_OK;
}

static void
spy_on(struct leat_variant *variant, int64_t refused)
{
    memset(&spied, 0, sizeof(spied));
    spied.backend = leat_backend_cpu;
    spied.backend.plan_run = spy;
    spied.end = variant->made_ranges[0].end;
    spied.refused = refused;
    variant->backend = &spied.backend;
}

static struct leat_worker *
start_worker(void)
{
    static struct leat_bell dispatcher_bell; /* nobody sleeps at it */
    static struct leat_shared_tables tables;
    const struct leat_worker_options options = {
        .core_count = 1, .tables = &tables, .dispatcher_bell = &dispatcher_bell, .dispatcher_event = -1};
    struct leat_worker *worker;

    leat_clock_init(&tables.clock);
    EXPECT(leat_worker_create(&options, &worker) == LEAT_OK && leat_worker_start(worker) == LEAT_OK);
    EXPECT(leat_worker_reserve(worker, 4096) == LEAT_OK);
    return worker;
}

/* How many runs that takes on a worker, of one item. */
static uint32_t
warm_alone(const struct leat_variant *variant)
{
    struct leat_worker *worker = start_worker();
    uint32_t runs;

    EXPECT(leat_variant_warm_worker(variant, worker, 0, 1, UINT64_C(1) << 60, &runs) == LEAT_OK);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
    return runs;
}

/* On a worker: other rows in each run, and all begin in time; what the model refuses is told, and something else tried. */
static void
test_warm_worker(struct leat_variant *shadow)
{
    const uint64_t for_ever_ns = UINT64_C(1) << 60;
    struct leat_worker *worker = start_worker();
    uint32_t runs;

    spy_on(shadow, INT64_MAX);
    EXPECT(leat_variant_warm_worker(shadow, worker, 0, 1, for_ever_ns, &runs) == LEAT_OK);
    EXPECT(runs == 256 && spied.runs == 256 && spied.rows > 4 && logged[0] == '\0');
    for (uint32_t items = 2; items <= ITEMS_MOST; items++) { /* plans are for 1, 2 and 4 */
        spy_on(shadow, INT64_MAX);
        EXPECT(leat_variant_warm_worker(shadow, worker, 0, items, for_ever_ns, &runs) == LEAT_OK && runs == spied.runs);
        EXPECT(spied.of_items[1] == 256 && spied.of_items[2] == 128 && spied.of_items[3] == 0);
        EXPECT(spied.of_items[4] == (items == 4 ? 64 : 0) && logged[0] == '\0');
    }
    spy_on(shadow, INT64_MAX); /* the first takes all the time */
    spied.ends_ns = leat_monotonic_ns() + 500000000;
    EXPECT(leat_variant_warm_worker(shadow, worker, 0, 1, spied.ends_ns, &runs) == LEAT_AGAIN);
    EXPECT(runs == spied.runs && runs <= 1);
    EXPECT(leat_variant_warm_worker(shadow, worker, 0, 1, 0, &runs) == LEAT_AGAIN && runs == 0);

    spy_on(shadow, 1);
    EXPECT(leat_variant_warm_worker(shadow, worker, 0, 1, for_ever_ns, &runs) == LEAT_OK);
    EXPECT(runs == 1 && spied.runs == 1 && spied.rows == 1);
    EXPECT(strstr(logged, "is tried on zeros, for it refuses drawn numbers: row ") != NULL);
    spy_on(shadow, 0);
    EXPECT(leat_variant_warm_worker(shadow, worker, 0, 1, for_ever_ns, &runs) == LEAT_ERR_SHAPE && runs == 0);
    EXPECT(strcmp(leat_error_text(), "row 1") == 0);
    EXPECT(strstr(logged, "is tried on ones, for it refuses zeros: row 0") != NULL);
    leat_worker_stop(worker);
    leat_worker_destroy(worker);
}

/* Of a query's own kind, so that what is found of tables is what queries will find; where the model refuses that, of row 0. */
static void
test_indices(void)
{
    struct leat_measured measured = {0};
    struct leat_loaded_variant loaded;
    size_t size;
    void *file;

    EXPECT(zoo_write(zoo_find("ncf"), ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    const struct leat_variant_source source = {
        .name = "ncf", .backend = "cpu", .onnx = file, .onnx_bytes = size, .items_max = ITEMS_MOST};
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    struct leat_variant shadow = *loaded.variant;
    EXPECT(shadow.dtypes[0] == LEAT_DTYPE_I64 && shadow.made_ranges[0].end > 8 && shadow.made_ranges[0].end <= ROWS_MAX);

    spy_on(&shadow, INT64_MAX);
    EXPECT(leat_variant_measure(&shadow, 0, "", 1, &measured) == LEAT_OK);
    EXPECT(spied.runs >= 128 && spied.rows > spied.end / 2);
    uint32_t same = 0;
    for (uint32_t r = 1; r < spied.runs; r++) {
        same += spied.firsts[r] == spied.firsts[r - 1];
    }
    EXPECT(same < spied.runs / 4);
    spy_on(&shadow, INT64_MAX);
    EXPECT(leat_variant_warm(&shadow, 0, 0, 1) == LEAT_OK && spied.runs == 3 && spied.rows > 1);

    spy_on(&shadow, 1);
    EXPECT(leat_variant_measure(&shadow, 0, "", 1, &measured) == LEAT_OK && spied.runs > 0 && spied.rows == 1);
    spy_on(&shadow, 0);
    EXPECT(leat_variant_measure(&shadow, 0, "", 1, &measured) == LEAT_ERR_SHAPE && spied.runs == 0);
    logged[0] = '\0';
    test_warm_worker(&shadow);
    leat_measured_free(&measured);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    free(file);
}

/* ---- Lengths ---------------------------------------------------------------------------------------- */

enum { STEPS = 64, HIDDEN = 256 };
static uint32_t full_runs;

/* Of all items. */
static enum leat_status
spy_lengths(const struct leat_plan *plan, const struct leat_segment *segments, uint32_t count, void *scratch,
            struct leat_team *team)
{
    const int32_t *lengths = segments[0].tensors[0];

    (void)plan;
    (void)scratch;
    (void)team;
    EXPECT(count == 1);
    for (uint32_t i = 0; i < segments[0].items; i++) {
        EXPECT(lengths[i] == STEPS);
    }
    full_runs++;
    return LEAT_OK;
}

/* lens: i32[N]; x: f32[N][STEPS][HIDDEN], through a GRU. */
static void *
gru_file(struct builder *b, size_t *ret_size)
{
    builder_init(b, 14);
    (void)builder_input(b, "lens", 6, DIMS(-1));
    (void)builder_input(b, "x", 1, DIMS(-1, STEPS, HIDDEN));
    (void)builder_constant(b, "w", 1, NULL, DIMS(1, 3 * HIDDEN, HIDDEN));
    (void)builder_constant(b, "axis", 7, (const int64_t[]){0}, DIMS(1));
    (void)builder_ints(b, builder_node(b, "Transpose", "x", "steps"), "perm", (const int64_t[]){1, 0, 2}, 3);
    (void)builder_int(b, builder_node(b, "GRU", "steps w w - lens", "- h"), "hidden_size", HIDDEN);
    (void)builder_node(b, "Squeeze", "h axis", "y");
    builder_output(b, "y");
    return builder_pack(b, ret_size);
}

static uint64_t
time_of_one(const struct leat_variant *variant)
{
    struct leat_measured measured = {0};

    EXPECT(leat_variant_measure(variant, 0, "", 1, &measured) == LEAT_OK);
    EXPECT(measured.count > 0 && measured.points[0].items == 1);
    const uint64_t ns = measured.points[0].p50_ns;
    leat_measured_free(&measured);
    return ns;
}

/* Sequences are as long as they can be where they are measured; no draw differs from another, so there is but one. */
static void
test_sequence_lens(void)
{
    struct leat_measured measured = {0};
    struct leat_loaded_variant loaded;
    struct builder b;
    size_t size;

    void *file = gru_file(&b, &size);
    const struct leat_variant_source source = {
        .name = "gru", .backend = "cpu", .onnx = file, .onnx_bytes = size, .items_max = ITEMS_MOST};
    EXPECT(leat_variant_load(&source, &loaded) == LEAT_OK);
    struct leat_variant shadow = *loaded.variant;
    struct leat_backend backend = leat_backend_cpu;

    backend.plan_run = spy_lengths;
    shadow.backend = &backend;
    EXPECT(leat_variant_measure(&shadow, 0, "", 1, &measured) == LEAT_OK && full_runs > 0);
    full_runs = 0;
    EXPECT(leat_variant_warm(&shadow, 0, 0, 1) == LEAT_OK && full_runs == 3);
    full_runs = 0;
    EXPECT(warm_alone(&shadow) == 1 && full_runs == 1);

    const uint64_t full_ns = time_of_one(loaded.variant);
    memset(loaded.variant->made_ranges, 0, sizeof(loaded.variant->made_ranges)); /* without a step */
    EXPECT(full_ns > 2 * time_of_one(loaded.variant));
    leat_measured_free(&measured);
    leat_variant_destroy(loaded.variant);
    leat_measured_free(&loaded.measured);
    builder_fini(&b);
}

int
main(void)
{
    size_t size;
    void *file;

    leat_test_init();
    EXPECT(zoo_write(zoo_find("lenet5"), ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    test_copies(file, size);
    test_memory(file, size);
    test_work();
    test_iterations();
    test_times_that_are_known();
    test_summaries();
    test_known();
    test_method();
    test_chosen_items(file, size);
    test_precisions(file, size);
    test_dims();
    test_constants();
    test_teams(file, size);
    test_refusals(file, size);
    test_refused_payload();
    test_indices();
    test_sequence_lens();
    free(file);
    return 0;
}
