/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/mapping.h - a model's weights where they lie in a file, instead of a copy of them.
 *
 * Role       ONNX import maps the files that a model names as its external data; constants point into them, and into the model's
 *            own file where the caller maps that.
 * Ownership  Reference counted: one per constant that points into it. The last release unmaps.
 * Trust      A path is taken apart and opened step by step below the folder: it can neither leave it nor follow a link, and what
 *            is opened is a regular file. Somebody may change that file later. Other numbers are other answers, since only
 *            tensors that nothing takes sizes, indices or counts from are mapped. A page that is gone raises SIGBUS: whoever
 *            owns the process gives its address to leat_mapping_repair(), which puts zeros there and marks the mapping; what
 *            was computed with it is an error, in that batch and all later ones.
 * Threads    Any thread. leat_mapping_repair() may be called from a signal handler.
 */
#ifndef LEAT_KERNELS_MAPPING_H
#define LEAT_KERNELS_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEAT_MAPPINGS_MAX       1024u /* in a process */
#define LEAT_MAPPING_NAME_BYTES 64u

struct leat_mapping;

/* Opens a regular file below a folder for reading. folder_fd stays the caller's, *ret_fd becomes it. */
LEAT_MUST_CHECK enum leat_status leat_mapping_find(int folder_fd, const char *path, int *ret_fd);
/* Read-only, shared, with one reference. `fd` stays the caller's and may be closed; `name` is for error texts. */
LEAT_MUST_CHECK enum leat_status leat_mapping_create(int fd, const char *name, struct leat_mapping **ret_mapping);
/* Both in one. */
LEAT_MUST_CHECK enum leat_status leat_mapping_open(int folder_fd, const char *path, struct leat_mapping **ret_mapping);
void leat_mapping_acquire(struct leat_mapping *mapping);
void leat_mapping_release(struct leat_mapping *mapping); /* accepts NULL */

const unsigned char *leat_mapping_data(const struct leat_mapping *mapping, size_t *ret_bytes);

/* Copies without touching pages: LEAT_ERR_PROTO when the file is not as it was when it was mapped. */
LEAT_MUST_CHECK enum leat_status leat_mapping_read(const struct leat_mapping *mapping, size_t offset, void *to, size_t bytes);

/* What was read of it need not stay resident: it is in the page cache. */
void leat_mapping_give_back(const struct leat_mapping *mapping);

/* Some page of it was gone. */
bool leat_mapping_is_damaged(const struct leat_mapping *mapping);
/* Of any that ever was: one load, for the end of a run. */
bool leat_mapping_any_damaged(void);
/* The name of one that is damaged and that this was not said of yet; false: there is none. */
bool leat_mapping_next_damaged(char ret_name[LEAT_MAPPING_NAME_BYTES]);

/* False when no mapping has that address: then the fault is somebody else's. */
bool leat_mapping_repair(const void *address);

#endif /* LEAT_KERNELS_MAPPING_H */
