/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_variants.h - what `leat simulate --profiles` was asked, what it found, and how it says so. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_VARIANTS_H
#define LEAT_TOOLS_CLI_SIMULATE_VARIANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/policy_table.h"
#include "tools/simulate/variants.h"

enum {
    SURVEY_POLICIES_MAX = 16,
    SURVEY_SUBJECTS_MAX = 32,
    SURVEY_RATES_MAX = 256,
    SURVEY_SEEDS_MAX = 1000,
    SURVEY_NAME_MAX = 96,
};

/* A policy from a file. */
struct survey_policy {
    const char *path;
    struct leat_policy *policy; /* ours */
};

/* What is compared: a selector, with one of the policies where it needs one. */
struct survey_subject {
    char name[SURVEY_NAME_MAX];
    const struct leat_selector *selector;
    const struct leat_router *router;
    const struct leat_policy *policy; /* NULL: none */
    uint32_t batch_max;
};

struct survey {
    const char *profiles_path, *accuracies_path, *task, *statistic, *trace_path, *arrivals_text, *router_name;
    const char *csv_path, *svg_path, *late_svg_path;
    char *variants_text, *selector_text, *rate_text; /* ours; commas between names */
    uint64_t objective_ns, duration_ns, cycle_ns, window_ns;
    uint64_t seed, seed_count, worker_count, depth, batch_max, cores, step_qps, abort_waiting, threads;
    double noise_share, dispersion, burst_factor, burst_share, burst_mean_s;
    bool load_known, load_given, json, help;
    enum variants_late late;

    struct variants_table table;
    struct arrivals_trace times; /* with a file of arrivals */
    struct rates rates;          /* with a trace of rates, as in the file */
    struct rates *scaled;        /* [rate_count] with a trace: those, scaled to rates_qps */
    struct survey_policy policies[SURVEY_POLICIES_MAX];
    struct survey_subject subjects[SURVEY_SUBJECTS_MAX];
    double rates_qps[SURVEY_RATES_MAX]; /* rising; of a trace or a file without --rate its own */
    uint32_t policy_count, subject_count, rate_count;
    struct variants_result *results; /* [subject_count][rate_count][seed_count] */
};

/* The results of all seeds of one case. */
static inline const struct variants_result *
survey_results(const struct survey *survey, uint32_t subject, uint32_t rate)
{
    return survey->results + ((size_t)subject * survey->rate_count + rate) * survey->seed_count;
}

/* The verb, where it is asked of variants. argv[0] is `simulate`. */
int simulate_variants(int argc, char **argv);
void simulate_variants_help(void);

/* As --late has it. */
const char *simulate_late_text(enum variants_late late);

/* As a run of that case is to be. */
struct variants_options survey_options(const struct survey *survey, uint32_t subject, uint32_t rate, uint64_t seed);

/* A table for people, or JSON where asked for. */
void survey_report(const struct survey *survey);

/* Writes --csv, --svg and --late-svg, where given, each of them whole or not at all. */
LEAT_MUST_CHECK enum leat_status survey_write_files(const struct survey *survey);

#endif /* LEAT_TOOLS_CLI_SIMULATE_VARIANTS_H */
