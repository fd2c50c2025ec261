/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A variant has one copy per node, each in that node's memory and each giving the same answers; profiles
 *          are measured per worker class, or asked of the backend; what cannot be loaded says which model and why.
 * Method   A network of leat-zoo on the cpu backend for two nodes (the second need not exist) and three classes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "runtime/variant.h"
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
    leat_variant_destroy(loaded.variant);
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

int
main(void)
{
    size_t size;
    void *file;

    leat_test_init();
    EXPECT(zoo_write(zoo_find("lenet5"), ZOO_SIZE_TEST, leat_test_seed, &file, &size) == LEAT_OK);
    test_copies(file, size);
    test_times_that_are_known();
    test_refusals(file, size);
    free(file);
    return 0;
}
