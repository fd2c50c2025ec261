/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/registry.h - the durable list of models, and their files.
 *
 * Role       state_dir/registry.db (SQLite) says which models exist; state_dir/models/<sha256>.model holds each
 *            content once. A call that returned LEAT_OK survives SIGKILL and power loss; one that did not
 *            leaves nothing behind after the next open.
 * Order      A file is complete, synced and under its final name before the row that names it is committed; a row
 *            is gone before its file is. open() removes files that no row names.
 * Lifecycle  One process at a time: open() holds a lock on state_dir/lock until close() or death.
 * Threads    One thread at a time.
 */
#ifndef LEAT_RUNTIME_REGISTRY_H
#define LEAT_RUNTIME_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"

#define LEAT_REGISTRY_SCHEMA 1u

struct leat_registry;

struct leat_registry_model {
    char name[LEAT_NAME_MAX];
    char backend[16];
    char sha256[65];    /* hexadecimal; "" for synthetic models */
    uint64_t bytes;     /* of the file; 0 for synthetic models */
    uint32_t items_max;
    uint64_t created_s; /* since the Epoch */
    char *options_json; /* NULL for none */
};

/*
 * Makes state_dir if it is missing (its parent must exist). LEAT_ERR_BUSY when another process has it,
 * LEAT_ERR_VERSION when a newer leat wrote it, LEAT_ERR_PROTO when it is damaged.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_open(const char *state_dir, struct leat_registry **ret_registry);
void leat_registry_close(struct leat_registry *registry); /* accepts NULL */

/*
 * Copies the file behind `fd`, from its current offset to its end, at most bytes_max bytes
 * (LEAT_ERR_LIMIT beyond). `model` gives name, backend, items_max, created_s and options_json; the rest is
 * filled in. LEAT_ERR_EXISTS when the name is taken.
 */
LEAT_MUST_CHECK enum leat_status leat_registry_add(struct leat_registry *registry,
                                                   struct leat_registry_model *model, int fd, uint64_t bytes_max);
/* The same without a file. */
LEAT_MUST_CHECK enum leat_status leat_registry_add_synthetic(struct leat_registry *registry,
                                                             const struct leat_registry_model *model);

/* All models by name. The array and its options_json belong to the caller: leat_registry_list_free. */
LEAT_MUST_CHECK enum leat_status leat_registry_list(struct leat_registry *registry,
                                                    struct leat_registry_model **ret_models, uint32_t *ret_count);
void leat_registry_list_free(struct leat_registry_model *models, uint32_t count);

/* LEAT_ERR_NOT_FOUND when there is none. options_json is the caller's to free. */
LEAT_MUST_CHECK enum leat_status leat_registry_get(struct leat_registry *registry, const char *name,
                                                   struct leat_registry_model *ret_model);

/* A read-only descriptor of the model's file. LEAT_ERR_UNSUPPORTED for a synthetic one. */
LEAT_MUST_CHECK enum leat_status leat_registry_open_file(struct leat_registry *registry,
                                                         const struct leat_registry_model *model, int *ret_fd);

LEAT_MUST_CHECK enum leat_status leat_registry_remove(struct leat_registry *registry, const char *name);

/*
 * Called with a number before each step that changes the disk, counting from 1 in each process; NULL
 * outside tests, which kill the process there.
 */
extern void (*leat_registry_step_hook)(unsigned step);

#endif /* LEAT_RUNTIME_REGISTRY_H */
