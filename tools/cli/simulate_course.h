/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_course.h - runs of `leat simulate` second by second, as CSV and as figures over time. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_COURSE_H
#define LEAT_TOOLS_CLI_SIMULATE_COURSE_H

#include <stdint.h>

#include "base/status.h"
#include "tools/simulate/second.h"

enum { COURSE_SUBJECTS_MAX = 16 };

struct course {
    const char *subject, *used;             /* columns: "scaler", "cores" */
    const char *used_title, *used_label;    /* of the figure */
    const char *conditions;                 /* of all runs */
    uint32_t subject_count, second_count;   /* 1..COURSE_SUBJECTS_MAX */
    const char *names[COURSE_SUBJECTS_MAX]; /* of subjects */
    uint64_t seed, seed_count;
    const void *of;
    const struct simulate_second *(*seconds)(const void *of, uint32_t subject, uint64_t seed); /* [second_count]; seeds from 0 */
};

/*
 * What was asked for, NULL for what was not: CSV, a figure of what was used, one of violations; means of some seconds and all seeds. All
 * of a file or nothing.
 */
LEAT_MUST_CHECK enum leat_status course_write_files(const struct course *course, const char *csv_path, const char *used_svg_path,
                                                    const char *violations_svg_path);

#endif /* LEAT_TOOLS_CLI_SIMULATE_COURSE_H */
