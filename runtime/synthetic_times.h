/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/synthetic_times.h - measured times from a CSV file as options of the synthetic backend.
 *
 * Format   Columns model, instance, batch, and either samples s0, s1, ... or mean_ms, in milliseconds. Rows of one model
 *          are taken; an instance is a class of workers, of which sizes rise from row to row.
 * Trust    The file may hold any bytes: what is wrong is told with file and line.
 */
#ifndef LEAT_RUNTIME_SYNTHETIC_TIMES_H
#define LEAT_RUNTIME_SYNTHETIC_TIMES_H

#include "base/status.h"

/* `options_json` with the file's times added as "tables"; the caller frees *ret_json. */
LEAT_MUST_CHECK enum leat_status leat_synthetic_times_add(const char *options_json, const char *path, const char *model,
                                                          char **ret_json);

#endif /* LEAT_RUNTIME_SYNTHETIC_TIMES_H */
