/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_stages.h - what `leat simulate --stages` was asked, what it found, and how it says so. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_STAGES_H
#define LEAT_TOOLS_CLI_SIMULATE_STAGES_H

#include "tools/cli/simulate_forecast.h"
#include "tools/simulate/stages.h"

enum { SCALING_SEEDS_MAX = 1000 };

struct scaling {
    const char *stages_path, *pipeline_name, *trace_path, *csv_path, *svg_path, *violations_svg_path, *forecast_name;
    char *scaler_text; /* ours; commas between names */
    uint64_t objective_ns, duration_ns, start_ns, resize_ns, hold_ns, period_ns;
    uint64_t seed, seed_count, settle, cores, threads;
    double rate_qps, drop_multiple, noise_share, dispersion, deviations;
    bool whole_batches, json, help;

    struct leat_themis_pipeline pipeline;
    struct rates rates;
    struct forecaster forecaster;
    enum stages_scaler scalers[STAGES_SCALERS];
    uint32_t scaler_count;
    struct stages_result *results; /* [scaler_count][seed_count] */
};

static inline const struct stages_result *
scaling_results(const struct scaling *scaling, uint32_t scaler)
{
    return scaling->results + scaler * scaling->seed_count;
}

/* The verb, where it is asked of stages. argv[0] is `simulate`. */
int simulate_stages(int argc, char **argv);
void simulate_stages_help(void);

/* A table for people, or JSON where asked for. */
void scaling_report(const struct scaling *scaling);

/* Writes --csv, --svg and --violations-svg, where given, each of them whole or not at all. */
LEAT_MUST_CHECK enum leat_status scaling_write_files(const struct scaling *scaling);

#endif /* LEAT_TOOLS_CLI_SIMULATE_STAGES_H */
