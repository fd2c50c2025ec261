/* SPDX-License-Identifier: Apache-2.0 */
/* tests/runtime/fake_root.h - a throw-away folder with files at given paths. */
#ifndef LEAT_TESTS_FAKE_ROOT_H
#define LEAT_TESTS_FAKE_ROOT_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/leat_test.h"

struct fake_root {
    char path[128];
};

static inline void
fake_root_init(struct fake_root *root)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(root->path, sizeof(root->path), "%s/leat-test-XXXXXX",
                   folder == NULL ? "/tmp" : folder);
    EXPECT(mkdtemp(root->path) != NULL);
}

/* Makes the file and the folders above it; `path` starts with a slash. */
static inline void
fake_root_write(const struct fake_root *root, const char *path, const char *text)
{
    char full[1024];
    (void)snprintf(full, sizeof(full), "%s%s", root->path, path);
    for (char *at = full + strlen(root->path) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        EXPECT(mkdir(full, 0777) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    EXPECT(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static inline int
fake_root_remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline void
fake_root_fini(const struct fake_root *root)
{
    EXPECT(nftw(root->path, fake_root_remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

#endif /* LEAT_TESTS_FAKE_ROOT_H */
