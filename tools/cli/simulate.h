/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate.h - what `leat simulate` was asked, what it found, and how it says so. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_H
#define LEAT_TOOLS_CLI_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/simulate/simulate.h"

enum { STUDY_ROUTERS_MAX = 32, STUDY_MIXES_MAX = 64, STUDY_RATES_MAX = 64, STUDY_SEEDS_MAX = 1000, STUDY_MIX_TEXT_MAX = 64 };

struct study_run {
    double rate_qps; /* given, or the allowable throughput; 0: even the lowest rate misses */
    struct simulate_result result; /* at this rate; all 0 of an oracle and where nothing is allowable */
};

struct study {
    const char *profile_path, *model, *arrivals_text, *sizes_text, *later_sizes_text;
    const char *classes_text, *base_text, *prices_path, *csv_path, *svg_path;
    const char *mix_texts[STUDY_MIXES_MAX];
    char *router_text, *rate_text; /* commas between names; ours */
    uint64_t objective_ns, query_count, seed, seed_count, change_at, threshold_items, depth, threads;
    double violation_share, percentile, noise_share, service_noise_share, tolerance;
    double burst_factor, burst_share, burst_mean_queries;
    bool learn, json, help;

    struct simulate_table table;
    struct arrivals_trace trace; /* with a file of arrivals */
    struct leat_pool_class prices[LEAT_POOL_CLASSES_MAX];
    struct simulate_workload_options workload;
    struct simulate_workload *workloads; /* [seed_count] */
    uint32_t base; /* class, of the oracle */

    const struct leat_router *routers[STUDY_ROUTERS_MAX]; /* NULL: the oracle */
    struct leat_pool_mix mixes[STUDY_MIXES_MAX];
    double rates_qps[STUDY_RATES_MAX]; /* rising */
    uint32_t router_count, mix_count, rate_count; /* no rate: allowable throughput is sought */
    struct study_run *runs; /* [mix_count][router_count][rate_count, at least 1][seed_count] */
};

/* The runs of all seeds of one case. */
static inline struct study_run *
study_runs(const struct study *study, uint32_t mix, uint32_t router, uint32_t rate)
{
    const uint32_t rates = study->rate_count > 0 ? study->rate_count : 1;
    return study->runs + (((size_t)mix * study->router_count + router) * rates + rate) * study->seed_count;
}

/* A table for people, or JSON where asked for. */
void study_report(const struct study *study);

/* Writes --csv and --svg, where given, all of a file or nothing. */
LEAT_MUST_CHECK enum leat_status study_write_files(const struct study *study);

#endif /* LEAT_TOOLS_CLI_SIMULATE_H */
