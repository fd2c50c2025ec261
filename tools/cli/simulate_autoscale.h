/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_autoscale.h - what `leat simulate --autoscale` was asked, what it found, and how it says so. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H
#define LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H

#include "tools/simulate/autoscale.h"

enum { SERVING_SEEDS_MAX = 1000 };

struct serving {
    const char *table_path, *trace_path, *csv_path, *svg_path, *violations_svg_path;
    char *policy_text; /* ours; commas between names */
    uint64_t duration_ns, period_ns, hold_ns, seed, seed_count, threads;
    uint64_t cpu_cores, inferentia_cores;
    double gpus, rate_qps, drop_multiple;
    struct leat_autoscale_options options;
    bool json, help;

    autoscale_exact exact;
    struct autoscale_table table;
    struct rates rates;
    enum autoscale_policy policies[AUTOSCALE_POLICIES];
    uint32_t policy_count;
    struct autoscale_result *results; /* [policy_count][seed_count] */
};

static inline const struct autoscale_result *
serving_results(const struct serving *serving, uint32_t policy)
{
    return serving->results + policy * serving->seed_count;
}

/* The verb, where it is asked of autoscaling. argv[0] is `simulate`. Without `exact` there is no policy `ilp`. */
int simulate_autoscale(int argc, char **argv, autoscale_exact exact);
void simulate_autoscale_help(void);

/* A table for people, or JSON where asked for. */
void serving_report(const struct serving *serving);

/* Writes --csv, --svg and --violations-svg, where given, each of them whole or not at all. */
LEAT_MUST_CHECK enum leat_status serving_write_files(const struct serving *serving);

#endif /* LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H */
