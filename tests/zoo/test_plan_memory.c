/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The memory that a plan of the cpu backend takes for what a run computes is at most 10 % more than what lives at
 *          once at the worst step, of every network of leat-zoo, in all precisions of this processor, for 1 and 8 items.
 * Method   The sizes that the first argument names: "test", or "full" as published. Nominal lengths. For int8, ranges
 *          come from one item.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/cpu/calibrate.h"
#include "kernels/cpu/inspect.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

static const uint32_t batches[] = {1, 8};
static bool within = true; /* 10 % of all bounds */

static void
test_plan(const struct zoo_model *model, const struct leat_graph *graph, enum leat_precision precision, uint32_t items)
{
    struct leat_inspection *inspection = NULL;

    const enum leat_status status = leat_inspection_create(graph, precision, items, 1, &inspection);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: %s\n", model->name, leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    const size_t planned = leat_inspection_planned_bytes(inspection), bound = leat_inspection_bound_bytes(inspection);
    (void)fprintf(stderr, "%s, %s, %u items: %zu KiB, %.1f %% above the bound\n", model->name, leat_precision_text(precision),
                  items, planned >> 10, 100.0 * ((double)planned / (double)bound - 1));
    EXPECT(planned >= bound);
    within = within && planned - bound <= bound / 10;
    leat_inspection_destroy(inspection);
}

static void
read_ends(const struct zoo_model *model, const struct onnx_summary *summary, void *context)
{
    int64_t *ends = context;
    (void)model;

    for (uint32_t i = 0; i < summary->input_count; i++) {
        ends[i] = summary->inputs[i].end;
    }
}

/* Floats in [-1, 1), indices below `end`. */
static void *
make_input(const struct leat_tensor_info *info, int64_t end, uint64_t *random)
{
    void *block = aligned_alloc(64, (size_t)leat_round_up(info->item_bytes + 64, 64));

    EXPECT(block != NULL && (info->dtype == LEAT_DTYPE_F32 || (info->dtype == LEAT_DTYPE_I64 && end > 0)));
    for (size_t i = 0; i < info->item_bytes / leat_dtype_bytes(info->dtype); i++) {
        const uint64_t bits = leat_test_random(random);
        if (info->dtype == LEAT_DTYPE_F32) {
            ((float *)block)[i] = (float)(bits % 2000) / 1000.0f - 1.0f;
        } else {
            ((int64_t *)block)[i] = (int64_t)(bits % (uint64_t)end);
        }
    }
    return block;
}

/* What one item has. */
static void
calibrate(const struct zoo_model *model, enum zoo_size zoo_size, struct leat_graph *graph)
{
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    struct leat_calibration *calibration;
    int64_t ends[LEAT_TENSORS_MAX] = {0};
    void *inputs[LEAT_TENSORS_MAX];
    uint64_t random = leat_test_seed;
    uint32_t input_count, output_count;

    EXPECT(leat_graph_signature_of_one(graph, infos, &input_count, &output_count) == LEAT_OK);
    EXPECT(zoo_describe(model, zoo_size, read_ends, ends) == LEAT_OK);
    for (uint32_t i = 0; i < input_count; i++) {
        inputs[i] = make_input(&infos[i], ends[i], &random);
    }
    EXPECT(leat_calibration_create(graph, 1, &calibration) == LEAT_OK);
    EXPECT(leat_calibration_run(calibration, (const void *const *)inputs) == LEAT_OK);
    EXPECT(leat_calibration_count(calibration) > 0);
    for (uint32_t i = 0; i < leat_calibration_count(calibration); i++) {
        const struct leat_range range = leat_calibration_range(calibration, i);
        EXPECT(leat_graph_set_range(graph, &range));
    }
    leat_calibration_destroy(calibration);
    for (uint32_t i = 0; i < input_count; i++) {
        free(inputs[i]);
    }
}

/* As one file, or with weights in another where it would be too large for that. */
static struct leat_graph *
import(const struct zoo_model *model, enum zoo_size zoo_size)
{
    char folder[] = "/tmp/leat-test-XXXXXX", path[64];
    struct leat_onnx_source source = {.folder_fd = -1};
    struct leat_graph *graph = NULL;
    void *file;

    enum leat_status status = zoo_write(model, zoo_size, 1, &file, &source.byte_count);
    if (status == LEAT_ERR_LIMIT) {
        EXPECT(mkdtemp(folder) != NULL);
        (void)snprintf(path, sizeof(path), "%s/weights", folder);
        FILE *weights = fopen(path, "wb");
        EXPECT(weights != NULL);
        status = zoo_write_external(model, zoo_size, 1, "weights", weights, &file, &source.byte_count);
        EXPECT(fclose(weights) == 0);
        source.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        EXPECT(source.folder_fd >= 0);
    }
    EXPECT(status == LEAT_OK);
    source.bytes = file;
    EXPECT(leat_onnx_import_from(&source, &graph) == LEAT_OK);
    free(file);
    if (source.folder_fd >= 0) {
        EXPECT(close(source.folder_fd) == 0 && unlink(path) == 0 && rmdir(folder) == 0);
    }
    EXPECT(zoo_lengths(model, zoo_size, graph) == LEAT_OK);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    return graph;
}

int
main(int argc, char **argv)
{
    const uint32_t precisions = leat_backend_precisions(&leat_backend_cpu);
    enum zoo_size zoo_size = ZOO_SIZE_TEST;

    leat_test_init();
    if (argc == 2 && strcmp(argv[1], "full") == 0) {
        zoo_size = ZOO_SIZE_FULL;
    } else {
        EXPECT(argc == 2 && strcmp(argv[1], "test") == 0);
    }
    for (size_t m = 0; m < zoo_model_count; m++) {
        struct leat_graph *graph = import(&zoo_models[m], zoo_size);
        if ((precisions & LEAT_PRECISION_BIT(LEAT_PRECISION_INT8)) != 0) {
            calibrate(&zoo_models[m], zoo_size, graph);
        }
        for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
            for (uint32_t precision = 0; precision < LEAT_PRECISION_COUNT; precision++) {
                if ((precisions & LEAT_PRECISION_BIT(precision)) != 0) {
                    test_plan(&zoo_models[m], graph, precision, batches[b]);
                }
            }
        }
        leat_graph_destroy(graph);
    }
    EXPECT(within);
    return 0;
}
