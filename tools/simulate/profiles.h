/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/profiles.h - latencies and accuracies of the variants of an application, from CSV files.
 *
 * Format    A row for each variant and batch size: columns model or variant; items, batch_size or batch; and the statistic
 *           in one of the units us, ms or ns, as p95_us, mean_ms. With a column task, class or cores, rows of one task, of
 *           one class of workers, of one number of cores are read. The accuracy is a column accuracy, percent or
 *           accuracy_ppm, there or in a file of its own that has model or variant and perhaps task. A column accuracy is
 *           of one kind as a whole, whatever rows are asked for: percent where its numbers have % signs, or are above 1, but
 *           for 0, and not all below 10; fractions where none is above 1. Else it is refused.
 * Units     Microseconds, accuracies as fractions.
 * Trust     Any bytes: what cannot be used is an error that names file and line.
 */
#ifndef LEAT_TOOLS_PROFILES_H
#define LEAT_TOOLS_PROFILES_H

#include <stdbool.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"

#define SIMULATE_VARIANTS_MAX 63u /* as in sched/policy_table.h */

struct simulate_profiles_options {
    const char *path;
    const char *accuracies_path; /* NULL: they are in the profile */
    const char *task;            /* NULL: there is one only */
    const char *statistic;       /* mean, p50, p95, ...; NULL: p95 */
    const char *worker_class;    /* likewise */
    uint32_t cores;              /* 0: there is one number only */
    const char *const *names;    /* [name_count] of variants to read; with 0 all of the task */
    uint32_t name_count;
};

struct simulate_profile {
    char name[LEAT_NAME_MAX];
    double accuracy;
    uint32_t count;
    uint32_t *items;    /* [count], rising */
    double *latency_us; /* [count] */
};

struct simulate_profiles {
    uint32_t count;
    const char *accuracy_unit; /* that the file has: "fractions", "percent" or "parts per million" */
    struct simulate_profile *variants; /* [count], the fastest for the fewest items first, then the less accurate */
};

LEAT_MUST_CHECK enum leat_status simulate_profiles_read(const struct simulate_profiles_options *options,
                                                        struct simulate_profiles *ret_profiles);
void simulate_profiles_free(struct simulate_profiles *profiles); /* accepts zeros */

/*
 * Latencies of batches of 1..items into ret_us[items]: up to `filled` <= items filled in as RAMSIS does, beyond on a line through
 * those (sched/latency_table.h). Of a variant of which only one size up to `filled`, or none, was measured, times are proportional to
 * items above its smallest and constant below. An error names the variant.
 */
LEAT_MUST_CHECK enum leat_status simulate_profile_fill(const struct simulate_profile *variant, uint32_t filled, uint32_t items,
                                                       double *ret_us);

/* Leaves out what another variant is as accurate as, or more, and no slower for the fewest items: RAMSIS' Pareto front. */
void simulate_profiles_keep_front(struct simulate_profiles *profiles);

#endif /* LEAT_TOOLS_PROFILES_H */
