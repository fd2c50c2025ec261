/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/output.h - files that a verb writes when its work is done, each of them whole or not at all. */
#ifndef LEAT_TOOLS_CLI_OUTPUT_H
#define LEAT_TOOLS_CLI_OUTPUT_H

#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

struct output {
    const char *path; /* NULL: not asked for */
    void (*write)(const void *of, FILE *out);
};

/* Before the work: could this be written? If not that is said, and EXIT_FAILED returned. */
int output_check(const char *verb, const char *option, const char *path);

/* What is there stays if writing fails. Signals wait meanwhile; the caller has no other threads. */
LEAT_MUST_CHECK enum leat_status output_write(const struct output *outputs, size_t count, const void *of);

/* A field of CSV, quoted where it has to be. */
void output_csv_field(FILE *out, const char *field);

#endif /* LEAT_TOOLS_CLI_OUTPUT_H */
