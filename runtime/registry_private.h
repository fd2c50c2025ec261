/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/registry_private.h - what the parts of the registry share. Private to registry*.c. */
#ifndef LEAT_RUNTIME_REGISTRY_PRIVATE_H
#define LEAT_RUNTIME_REGISTRY_PRIVATE_H

#include <sqlite3.h>

#include "runtime/registry.h"
#include "runtime/registry_files.h"

struct leat_registry {
    struct leat_registry_files files;
    sqlite3 *db;
    bool in_transaction;
    bool has_files; /* its schema knows of them */
    char (*taken)[65]; /* files that nothing names yet; NULL: none */
    uint32_t taken_count;
};

/* Records SQLite's reason, under our status for it. */
enum leat_status leat_registry_fail(const struct leat_registry *registry, const char *what);

/* Runs statements that have no parameters and no rows. */
LEAT_MUST_CHECK enum leat_status leat_registry_execute(const struct leat_registry *registry, const char *sql,
                                                       const char *what);

#endif /* LEAT_RUNTIME_REGISTRY_PRIVATE_H */
