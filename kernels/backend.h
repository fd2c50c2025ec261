/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/backend.h - the backends that there are, built in and loaded; what one is stands in leat/backend.h.
 *
 * Threads    leat_backend_load() before any other thread looks for backends; the rest on any thread.
 */
#ifndef LEAT_KERNELS_BACKEND_H
#define LEAT_KERNELS_BACKEND_H

#include <leat/backend.h>

#include "base/status.h"

#define LEAT_BACKEND_NAME_MAX   32  /* bytes with the closing zero */
#define LEAT_BACKENDS_LOADED    16u /* at most */

extern const struct leat_backend leat_backend_reference; /* plain loops: the oracle */
extern const struct leat_backend leat_backend_cpu;       /* oneDNN */
extern const struct leat_backend leat_backend_synthetic; /* occupies its worker for a profiled time */

/*
 * For backends that compute on contiguous batches: collects tensor `t` of all segments into `to`, and repeats the last
 * item `missing` times behind them; spreads what stands in `from` over the segments' tensor `t`.
 */
void leat_segments_gather(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                          uint32_t missing, unsigned char *to);
void leat_segments_scatter(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                           const unsigned char *from);

/* For those that do not: the address of each item of tensor `t`, and of the last one `missing` times more. */
void leat_segments_list(const struct leat_segment *segments, uint32_t count, uint32_t t, size_t item_bytes,
                        uint32_t missing, const void **ret_items);

/* Of a signature: how many sizes an item has. */
uint32_t leat_signature_sizes(const struct leat_tensor_info *infos, uint32_t count);
/* Item `i` of a segment, as one of its own. */
struct leat_segment leat_segment_item(const struct leat_segment *segment, uint32_t i, const struct leat_tensor_info *infos,
                                      uint32_t tensor_count);

/* NULL when there is no backend of that name. */
const struct leat_backend *leat_backend_find(const char *name);
/* "cpu, reference, synthetic" and those that were loaded; returns `text`. */
const char *leat_backend_names(char *text, size_t bytes);

/*
 * Loads a plug-in as leat/backend.h says, to be found by `name`. LEAT_ERR_NOT_FOUND or LEAT_ERR_SYS: no such file;
 * LEAT_ERR_ACCESS: others may write to it; LEAT_ERR_PROTO: not a library, or without the symbol; LEAT_ERR_VERSION: of another ABI;
 * LEAT_ERR_EXISTS: the name is taken, or the library is loaded already; LEAT_ERR_INVALID: it lacks a function;
 * LEAT_ERR_LIMIT; or what the plug-in says. A library that was refused stays mapped.
 */
LEAT_MUST_CHECK enum leat_status leat_backend_load(const char *name, const char *path, const char *options);

uint32_t leat_backend_precisions(const struct leat_backend *backend);
const char *leat_precision_text(enum leat_precision precision); /* "f32" */
bool leat_precision_find(const char *text, enum leat_precision *ret_precision);

#endif /* LEAT_KERNELS_BACKEND_H */
