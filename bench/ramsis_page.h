/* SPDX-License-Identifier: Apache-2.0 */
/* bench/ramsis_page.h - what bench_ramsis found, and the page that says so. */
#ifndef LEAT_BENCH_RAMSIS_PAGE_H
#define LEAT_BENCH_RAMSIS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "bench/ramsis_world.h"

extern const char *const ramsis_scheme_names[RAMSIS_SCHEMES];

enum {
    RAMSIS_TASKS = 2,  /* image, text */
    RAMSIS_LOADS = 10, /* 400, 800, ... 4000 queries a second */
    RAMSIS_TRACES = 3, /* 60, 70, 80 workers */
    RAMSIS_TRIALS_MAX = 20,
    RAMSIS_LOAD_STEP_QPS = 400,
};

struct ramsis_trial {
    const char *title;
    struct ramsis_case cases[RAMSIS_LOADS];
};

struct ramsis_page {
    struct ramsis_case loads[RAMSIS_TASKS][RAMSIS_LOADS];
    struct ramsis_case traces[RAMSIS_TRACES];
    struct ramsis_trial trials[RAMSIS_TRIALS_MAX];
    uint32_t trial_count;
    struct ramsis_cost costs[RAMSIS_TASKS];
    double capacity_qps[RAMSIS_TASKS];
    uint32_t seeds, threads;
    double seconds;
};

/* Writes FOLDER/ramsis.md and its figures. */
LEAT_MUST_CHECK enum leat_status ramsis_page_write(const struct ramsis_page *page, const char *folder);

/* One object a line, as bench/records keeps them. */
void ramsis_page_print_json(const struct ramsis_page *page);

#endif /* LEAT_BENCH_RAMSIS_PAGE_H */
