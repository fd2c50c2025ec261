/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/registry_files.h - the files of the registry, named by their contents. Private to registry*.c. */
#ifndef LEAT_RUNTIME_REGISTRY_FILES_H
#define LEAT_RUNTIME_REGISTRY_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct leat_registry_files {
    char *state_dir; /* for messages and for SQLite */
    int state_fd;    /* -1: not open */
    int models_fd;
    int lock_fd;
};

/* Makes what is missing and takes the lock. fini() after failure too. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_init(struct leat_registry_files *files, const char *state_dir);
void leat_registry_files_fini(struct leat_registry_files *files);

/* Names and metadata of state_dir itself reach the disk. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_sync(const struct leat_registry_files *files);

/* `sha256` has room for 65 bytes. */
void leat_registry_hash(const void *data, size_t bytes, char *sha256);

/* On return the file is complete and durable under its name; on failure there is none. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_put(const struct leat_registry_files *files,
                                                         const char *sha256, const void *data, size_t bytes);
/*
 * Copies the file behind a descriptor, or its first `most` bytes where that is not 0, holes and all, sharing blocks where the file
 * system can; it is not held in memory. LEAT_ERR_PROTO where it has fewer bytes. On
 * return the copy is complete and durable, but has no name until leat_registry_files_name(), which takes it away again where a whole one is
 * there already. One at a time.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_files_copy(const struct leat_registry_files *files, int from, uint64_t most,
                                                          char *sha256, uint64_t *ret_bytes);
LEAT_MUST_CHECK enum leat_status leat_registry_files_name(const struct leat_registry_files *files, const char *sha256,
                                                          uint64_t bytes);

/* For reading, at any offset; `check`: its contents too, as get does. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_open(const struct leat_registry_files *files, const char *sha256,
                                                          uint64_t bytes, bool check, int *ret_fd);

void leat_registry_files_drop(const struct leat_registry_files *files, const char *sha256);

/* Whole contents, checked; to be freed. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_get(const struct leat_registry_files *files,
                                                         const char *sha256, uint64_t bytes, void **ret_data);

/* Removes every file that `wanted` does not want. */
LEAT_MUST_CHECK enum leat_status leat_registry_files_clean(const struct leat_registry_files *files,
                                                           bool (*wanted)(void *context, const char *name),
                                                           void *context);

void leat_registry_step(void);

#endif /* LEAT_RUNTIME_REGISTRY_FILES_H */
