/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/app_import.h - profiles from CSV files as the synthetic models that the daemon's app-import takes. */
#ifndef LEAT_TOOLS_CLI_APP_IMPORT_H
#define LEAT_TOOLS_CLI_APP_IMPORT_H

#include <jansson.h>

#include "tools/simulate/profiles.h"

struct import_options {
    struct simulate_profiles_options profiles; /* class and cores are the file's */
    const char *mode;    /* sleep or burn */
    const char *prefix;  /* of the models' names */
    uint32_t items_max;  /* larger sizes are left out; 0: none is */
    bool repair;         /* fill in sizes that were not measured, as sched/latency_table.h does; up to items_max, or 32 */
    bool front;          /* leave out models that others beat */
    uint64_t input_bytes, output_bytes; /* of an item */
};

/* {"models": [...]}, the caller's, and what the file has accuracies in, a constant. An error names the file. */
LEAT_MUST_CHECK enum leat_status import_profiles(const struct import_options *options, json_t **ret_list,
                                                 const char **ret_accuracy_unit);

#endif /* LEAT_TOOLS_CLI_APP_IMPORT_H */
