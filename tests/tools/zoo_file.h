/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/zoo_file.h - models of the zoo as files for the command line. What goes wrong ends the test. */
#ifndef LEAT_TESTS_ZOO_FILE_H
#define LEAT_TESTS_ZOO_FILE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/leat_test.h"
#include "tools/zoo/zoo.h"

/* "folder/name.onnx", at test size, with the test's seed; the path is the caller's. */
static inline char *
zoo_file(const char *folder, const char *name)
{
    char *path;
    void *bytes;
    size_t size;

    EXPECT(asprintf(&path, "%s/%s.onnx", folder, name) > 0);
    EXPECT(zoo_write(zoo_find(name), ZOO_SIZE_TEST, leat_test_seed, &bytes, &size) == LEAT_OK);
    FILE *file = fopen(path, "wb");
    EXPECT(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
    return path;
}

#endif /* LEAT_TESTS_ZOO_FILE_H */
