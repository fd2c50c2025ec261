/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The memory that a plan of the cpu backend takes for what a run computes is at most 10 % more than what lives at
 *          once at the worst step, of every network that it runs, in all precisions without ranges, for 1 and 8 items.
 * Method   The sizes that the first argument names: "test", or "full" as published. Nominal lengths.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/cpu/inspect.h"
#include "tests/leat_test.h"
#include "tests/zoo_lengths.h"
#include "tools/zoo/zoo.h"

static const uint32_t batches[] = {1, 8};
static bool within = true; /* 10 % of all bounds */

static bool
test_plan(const struct zoo_model *model, const struct leat_graph *graph, enum leat_precision precision, uint32_t items)
{
    struct leat_inspection *inspection = NULL;

    const enum leat_status status = leat_inspection_create(graph, precision, items, 1, &inspection);
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s: left out: %s\n", model->name, leat_error_text());
        EXPECT(status == LEAT_ERR_UNSUPPORTED);
        return false;
    }
    const size_t planned = leat_inspection_planned_bytes(inspection), bound = leat_inspection_bound_bytes(inspection);
    (void)fprintf(stderr, "%s, %s, %u items: %zu KiB, %.1f %% above the bound\n", model->name, leat_precision_text(precision),
                  items, planned >> 10, 100.0 * ((double)planned / (double)bound - 1));
    EXPECT(planned >= bound);
    within = within && planned - bound <= bound / 10;
    leat_inspection_destroy(inspection);
    return true;
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
    unsigned planned = 0;

    leat_test_init();
    if (argc == 2 && strcmp(argv[1], "full") == 0) {
        zoo_size = ZOO_SIZE_FULL;
    } else {
        EXPECT(argc == 2 && strcmp(argv[1], "test") == 0);
    }
    for (size_t m = 0; m < zoo_model_count; m++) {
        struct leat_graph *graph = import(&zoo_models[m], zoo_size);
        bool any = false;
        for (size_t b = 0; b < LEAT_COUNT_OF(batches); b++) {
            for (uint32_t precision = LEAT_PRECISION_F32; precision <= LEAT_PRECISION_BF16; precision++) {
                any = ((precisions & LEAT_PRECISION_BIT(precision)) != 0 &&
                       test_plan(&zoo_models[m], graph, precision, batches[b])) || any;
            }
        }
        planned += any;
        leat_graph_destroy(graph);
    }
    EXPECT(planned >= 25 && within);
    return 0;
}
