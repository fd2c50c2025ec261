/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The checked-in digits family is one that the engine takes: every file imports, all have the same
 *          signature, the cpu backend answers as accurately as measured in training, and the folder keeps its budget.
 * Method   Reads the folder that argv[1] names; accuracies.csv says which models there must be and how accurate.
 *          The whole validation set runs through each model, in batches; accuracy may differ by one item in 1200,
 *          for sums in another order.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/graph.h"
#include "tests/leat_test.h"

enum { FOLDER_BYTES_MAX = 2 * 1000 * 1000, MODEL_BYTES_MAX = 1024 * 1024, MODELS_MIN = 5 };
enum { ITEMS = 1200, BATCH = 48, PIXELS = 28 * 28, CLASSES = 10 };

static unsigned char images[ITEMS * PIXELS], labels[ITEMS];

/* The payload of a .npy file of that many bytes: what stands at its end. */
static void
read_npy(const char *folder, const char *name, unsigned char *data, size_t bytes)
{
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL && fseek(file, -(long)bytes, SEEK_END) == 0);
    EXPECT(fread(data, 1, bytes, file) == bytes);
    (void)fclose(file);
}

static void
check_accuracy(struct leat_graph *graph, const struct leat_tensor_info *infos, double expected)
{
    const struct leat_backend *backend = &leat_backend_cpu;
    const struct leat_model_source source = {.graph = graph, .infos = infos, .input_count = 1, .output_count = 1};
    static float scores[BATCH * CLASSES];
    struct leat_model *model;
    struct leat_plan *plan;
    unsigned correct = 0;

    EXPECT(backend->model_load(&source, &model) == LEAT_OK);
    EXPECT(backend->plan_build(model, &(struct leat_plan_options){.items = BATCH}, &plan) == LEAT_OK);
    void *scratch = aligned_alloc(64, (size_t)leat_round_up(backend->plan_scratch_bytes(plan) + 1, 64));
    EXPECT(scratch != NULL);
    for (uint32_t first = 0; first < ITEMS; first += BATCH) {
        const struct leat_segment segment = {.items = BATCH, .tensors = {images + (size_t)first * PIXELS, scores}};
        EXPECT(backend->plan_run(plan, &segment, 1, scratch, NULL) == LEAT_OK);
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t best = 0;
            for (uint32_t c = 1; c < CLASSES; c++) {
                best = scores[i * CLASSES + c] > scores[i * CLASSES + best] ? c : best;
            }
            correct += best == labels[first + i];
        }
    }
    if (correct + 1 < (unsigned)(expected * ITEMS + 0.5) || correct > (unsigned)(expected * ITEMS + 0.5) + 1) {
        (void)fprintf(stderr, "%s: %u of %u right, expected %.1f\n", graph->name, correct, ITEMS, expected * ITEMS);
        EXPECT(!"the accuracy of accuracies.csv");
    }
    free(scratch);
    backend->plan_destroy(plan);
    backend->model_destroy(model);
}

static uint64_t
folder_bytes(const char *folder)
{
    uint64_t total = 0;
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    EXPECT(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        char path[4096];
        struct stat info;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        EXPECT(stat(path, &info) == 0);
        total += S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    }
    (void)closedir(dir);
    return total;
}

static void
check_model(const char *folder, const char *name, double accuracy)
{
    static unsigned char bytes[MODEL_BYTES_MAX];
    struct leat_tensor_info infos[LEAT_TENSORS_MAX];
    uint32_t inputs, outputs;
    struct leat_graph *graph;
    char path[4096];

    (void)snprintf(path, sizeof(path), "%s/%s.onnx", folder, name);
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL);
    const size_t size = fread(bytes, 1, sizeof(bytes), file);
    EXPECT(size > 0 && size < sizeof(bytes));
    (void)fclose(file);

    EXPECT(leat_onnx_import(bytes, size, &graph) == LEAT_OK);
    EXPECT(strcmp(graph->name, name) == 0);
    EXPECT(leat_graph_signature(graph, infos, &inputs, &outputs) == LEAT_OK);
    EXPECT(inputs == 1 && outputs == 1);
    EXPECT(strcmp(infos[0].name, "image") == 0 && infos[0].dtype == LEAT_DTYPE_U8 && infos[0].rank == 4);
    EXPECT(infos[0].dims[1] == 1 && infos[0].dims[2] == 28 && infos[0].dims[3] == 28);
    EXPECT(strcmp(infos[1].name, "scores") == 0 && infos[1].dtype == LEAT_DTYPE_F32 && infos[1].rank == 2);
    EXPECT(infos[1].dims[1] == CLASSES);
    EXPECT(leat_graph_optimise(graph, UINT64_MAX) == LEAT_OK);
    check_accuracy(graph, infos, accuracy);
    leat_graph_destroy(graph);
}

int
main(int argc, char **argv)
{
    char path[4096], line[256];
    double previous = 0.0;
    int models = 0;

    leat_test_init();
    EXPECT(argc == 2);
    EXPECT(folder_bytes(argv[1]) <= FOLDER_BYTES_MAX);
    (void)snprintf(path, sizeof(path), "%s/accuracies.csv", argv[1]);
    FILE *table = fopen(path, "r");
    EXPECT(table != NULL && fgets(line, sizeof(line), table) != NULL);
    read_npy(argv[1], "validation.inputs.npy", images, sizeof(images));
    read_npy(argv[1], "validation.labels.npy", labels, sizeof(labels));
    while (fgets(line, sizeof(line), table) != NULL) {
        double accuracy;
        EXPECT(sscanf(line, "%*[^,],%*[^,],%*[^,],%lf", &accuracy) == 1);
        EXPECT(accuracy > previous); /* dearer is better */
        previous = accuracy;
        line[strcspn(line, ",\n")] = '\0';
        check_model(argv[1], line, accuracy);
        models++;
    }
    (void)fclose(table);
    EXPECT(models >= MODELS_MIN);
    return 0;
}
