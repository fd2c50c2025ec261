/* SPDX-License-Identifier: Apache-2.0 */
/* bench/kairos_page.h - what bench_kairos found, and the page that says so. */
#ifndef LEAT_BENCH_KAIROS_PAGE_H
#define LEAT_BENCH_KAIROS_PAGE_H

#include <stdint.h>

#include "base/status.h"
#include "sched/pool.h"

enum kairos_scheme {
    KAIROS_HOMOGENEOUS,
    KAIROS_FCFS,
    KAIROS_THRESHOLD,
    KAIROS_CLOCKWORK,
    KAIROS_EDF,
    KAIROS_MATCHING,
    KAIROS_MATCHING_HIGH, /* judges lateness by the percentile, as laxity does */
    KAIROS_LAXITY,
    KAIROS_ORACLE,
    KAIROS_ORACLE_SPARED, /* need not serve the largest of those that may be late */
    KAIROS_SCHEMES
};
extern const char *const kairos_scheme_names[KAIROS_SCHEMES];

enum {
    KAIROS_MODELS = 5,
    KAIROS_MIXES_MAX = 400,
    KAIROS_SEEDS_MAX = 16,
    KAIROS_CURVE = 26,
    KAIROS_PLANNED = 2, /* matching, laxity */
    KAIROS_TRIED = 6,   /* fcfs, clockwork, matching, matching by percentile, laxity, oracle */
    KAIROS_TRIED_LAXITY = 4,
    KAIROS_TRIALS = 9,
    KAIROS_GAUSSIAN_MEAN = 240, /* about the mean of the published sizes */
    KAIROS_GAUSSIAN_DEVIATION = 120,
    KAIROS_BURST_FACTOR = 4, /* for a tenth of the time */
    KAIROS_BURST_QUERIES = 50,
};

struct kairos_choice {
    struct leat_pool_mix mix;
    double qps;           /* mean of the seeds that judge */
    double low_qps, high_qps; /* of them the least and the most */
    uint32_t evaluations; /* mixes that were tried for it */
    double seconds;       /* to choose */
};

struct kairos_result {
    const char *name;
    uint64_t objective_ns;
    uint32_t mix_count;
    struct kairos_choice best[KAIROS_SCHEMES];
    double bounds_qps[KAIROS_MIXES_MAX];                 /* falling */
    double all_qps[KAIROS_SCHEMES][KAIROS_MIXES_MAX];    /* the same mixes; on one seed */
    struct kairos_choice rule[KAIROS_PLANNED], search[KAIROS_PLANNED], race[KAIROS_PLANNED];
    double same_mix_qps[KAIROS_SCHEMES];                 /* on the mix that is best for matching */
    double curve_rates_qps[KAIROS_CURVE], curve[KAIROS_SCHEMES][KAIROS_CURVE]; /* violations */
};

struct kairos_trial {
    const char *title;
    double homogeneous_qps[KAIROS_MODELS];
    struct kairos_choice choices[KAIROS_MODELS][KAIROS_TRIED];
};

struct kairos_page {
    struct kairos_result *results; /* [KAIROS_MODELS] */
    struct kairos_trial trials[KAIROS_TRIALS];
    uint32_t seeds, queries, threads;
    double seconds;
};

/* Writes FOLDER/kairos.md and its figures. */
LEAT_MUST_CHECK enum leat_status kairos_page_write(const struct kairos_page *page, const char *folder);

#endif /* LEAT_BENCH_KAIROS_PAGE_H */
