/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The checked-in digits family is one that the engine takes: every file imports, all have the same
 *          signature, and the folder keeps its budget.
 * Method   Reads the folder that argv[1] names; accuracies.csv says which models there must be.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/graph.h"
#include "tests/leat_test.h"

enum { FOLDER_BYTES_MAX = 2 * 1000 * 1000, MODEL_BYTES_MAX = 1024 * 1024, MODELS_MIN = 5 };

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
check_model(const char *folder, const char *name)
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
    EXPECT(infos[1].dims[1] == 10);
    leat_graph_destroy(graph);
}

int
main(int argc, char **argv)
{
    char path[4096], line[256];
    int models = 0;

    leat_test_init();
    EXPECT(argc == 2);
    EXPECT(folder_bytes(argv[1]) <= FOLDER_BYTES_MAX);
    (void)snprintf(path, sizeof(path), "%s/accuracies.csv", argv[1]);
    FILE *table = fopen(path, "r");
    EXPECT(table != NULL && fgets(line, sizeof(line), table) != NULL);
    while (fgets(line, sizeof(line), table) != NULL) {
        line[strcspn(line, ",\n")] = '\0';
        check_model(argv[1], line);
        models++;
    }
    (void)fclose(table);
    EXPECT(models >= MODELS_MIN);
    return 0;
}
