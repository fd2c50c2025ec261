/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/simulate_course.h"
#include "tools/cli/simulate_stages.h"

/* ---- Over seeds -------------------------------------------------------------------------------- */

enum quantity { VIOLATION, DROPPED, CORES, CORES_MOST, P50_NS, P99_NS, STARTS, RESIZES };

static double
value_of(const struct stages_result *result, enum quantity quantity)
{
    const double queries = result->queries > 0 ? (double)result->queries : NAN;
    double most = 0;

    switch (quantity) {
    case VIOLATION: return (double)(result->queries - result->in_time) / queries;
    case DROPPED: return (double)result->dropped / queries;
    case CORES: return result->core_s / result->second_count;
    case CORES_MOST:
        for (uint32_t n = 0; n < result->second_count; n++) {
            most = fmax(most, result->seconds[n].used);
        }
        return most;
    case P50_NS: return (double)result->p50_ns;
    case P99_NS: return (double)result->p99_ns;
    case STARTS: return (double)result->starts;
    case RESIZES: return (double)result->resizes;
    }
    return NAN;
}

struct spread {
    double mean, min, max;
};

static struct spread
spread_of(const struct scaling *scaling, uint32_t scaler, enum quantity quantity)
{
    struct spread spread = {.mean = 0, .min = INFINITY, .max = -INFINITY};

    for (uint64_t s = 0; s < scaling->seed_count; s++) {
        const double value = value_of(&scaling_results(scaling, scaler)[s], quantity);
        spread.mean += value / (double)scaling->seed_count;
        spread.min = fmin(spread.min, value);
        spread.max = fmax(spread.max, value);
    }
    return spread;
}

static void
conditions(const struct scaling *scaling, char *text, size_t room)
{
    char drops[64] = "nothing is dropped";

    if (scaling->drop_multiple > 0) {
        (void)snprintf(drops, sizeof(drops), "dropped when %g objectives old", scaling->drop_multiple);
    }
    (void)snprintf(text, room, "%s%s%u stages, objective %s, %s; cores take %s, instances %s; %.4g queries/s for %s; %llu seed%s from %llu",
                   scaling->pipeline_name != NULL ? scaling->pipeline_name : "", scaling->pipeline_name != NULL ? ", " : "",
                   scaling->pipeline.stage_count, format_ns((double)scaling->objective_ns).text, drops,
                   format_ns((double)scaling->resize_ns).text, format_ns((double)scaling->start_ns).text,
                   rates_mean_qps(&scaling->rates), format_ns((double)scaling->duration_ns).text,
                   (unsigned long long)scaling->seed_count, scaling->seed_count == 1 ? "" : "s", (unsigned long long)scaling->seed);
}

/* ---- Text and JSON ------------------------------------------------------------------------------ */

static void
report_text(const struct scaling *scaling)
{
    char text[600];

    conditions(scaling, text, sizeof(text));
    (void)printf("simulated: %s\n"
                 "           violations: %% of queries late, dropped or left; mean, least and most of seeds; rest: means of seeds\n\n"
                 "%-8s  %10s %8s %8s  %9s  %6s %6s  %9s %9s  %7s %7s\n",
                 text, "scaler", "violations", "least", "most", "dropped %", "cores", "most", "p50", "p99", "starts", "resizes");
    for (uint32_t i = 0; i < scaling->scaler_count; i++) {
        const struct spread violation = spread_of(scaling, i, VIOLATION);
        (void)printf("%-8s  %10.4f %8.4f %8.4f  %9.4f  %6.1f %6.1f  %9s", stages_scaler_names[scaling->scalers[i]],
                     100 * violation.mean, 100 * violation.min, 100 * violation.max, 100 * spread_of(scaling, i, DROPPED).mean,
                     spread_of(scaling, i, CORES).mean, spread_of(scaling, i, CORES_MOST).mean,
                     format_ns(spread_of(scaling, i, P50_NS).mean).text);
        (void)printf(" %9s  %7.0f %7.0f\n", format_ns(spread_of(scaling, i, P99_NS).mean).text, spread_of(scaling, i, STARTS).mean,
                     spread_of(scaling, i, RESIZES).mean);
    }
}

static json_t *
scaler_json(const struct scaling *scaling, uint32_t scaler)
{
    static const struct {
        const char *key;
        enum quantity quantity;
    } values[] = {{"violation_share", VIOLATION}, {"dropped_share", DROPPED}, {"cores_mean", CORES},    {"cores_max", CORES_MOST},
                  {"latency_p50_ns", P50_NS},     {"latency_p99_ns", P99_NS}, {"instances_started", STARTS}, {"resizes", RESIZES}};
    json_t *object = json_object();

    (void)json_object_set_new(object, "scaler", json_string(stages_scaler_names[scaling->scalers[scaler]]));
    for (size_t i = 0; i < LEAT_COUNT_OF(values); i++) {
        json_t *array = json_array();
        for (uint64_t s = 0; s < scaling->seed_count; s++) {
            const double value = value_of(&scaling_results(scaling, scaler)[s], values[i].quantity);
            (void)json_array_append_new(array, isfinite(value) ? json_real(value) : json_null());
        }
        (void)json_object_set_new(object, values[i].key, array);
    }
    return object;
}

static json_t *
scaling_json(const struct scaling *scaling)
{
    json_t *object = json_object(), *results = json_array();
    const struct {
        const char *key;
        json_t *value; /* NULL: not UTF-8 */
    } members[] = {
        {"simulated", json_true()},
        {"stages", json_string(scaling->stages_path)},
        {"pipeline", scaling->pipeline_name != NULL ? json_string(scaling->pipeline_name) : json_null()},
        {"trace", json_string(scaling->trace_path)},
        {"rate_mean_qps", json_real(rates_mean_qps(&scaling->rates))},
        {"objective_ns", json_integer((json_int_t)scaling->objective_ns)},
        {"duration_ns", json_integer((json_int_t)scaling->duration_ns)},
        {"resize_delay_ns", json_integer((json_int_t)scaling->resize_ns)},
        {"start_delay_ns", json_integer((json_int_t)scaling->start_ns)},
        {"batches", json_string(scaling->whole_batches ? "whole" : "waiting")},
        {"drop_multiple", json_real(scaling->drop_multiple)},
        {"service_noise_share", json_real(scaling->noise_share)},
        {"dispersion", json_real(scaling->dispersion)},
        {"deviations", json_real(scaling->deviations)},
        {"hold_ns", json_integer((json_int_t)scaling->hold_ns)},
        {"period_ns", json_integer((json_int_t)scaling->period_ns)},
        {"forecast", scaling->forecast_name != NULL ? json_string(scaling->forecast_name) : json_null()},
        {"settle_decisions", json_integer((json_int_t)scaling->settle)},
        {"cores", json_integer((json_int_t)scaling->cores)},
        {"seed", json_integer((json_int_t)scaling->seed)},
        {"seeds", json_integer((json_int_t)scaling->seed_count)},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(members); i++) {
        (void)json_object_set_new(object, members[i].key, members[i].value != NULL ? members[i].value : json_null());
    }
    for (uint32_t i = 0; i < scaling->scaler_count; i++) {
        (void)json_array_append_new(results, scaler_json(scaling, i));
    }
    (void)json_object_set_new(object, "results", results);
    return object;
}

void
scaling_report(const struct scaling *scaling)
{
    if (scaling->json) {
        print_json(scaling_json(scaling));
    } else {
        report_text(scaling);
    }
}

/* ---- Files -------------------------------------------------------------------------------------- */

static const struct simulate_second *
seconds_of(const void *of, uint32_t scaler, uint64_t seed)
{
    return scaling_results(of, scaler)[seed].seconds;
}

enum leat_status
scaling_write_files(const struct scaling *scaling)
{
    char text[600];
    struct course course = {.subject = "scaler",
                            .used = "cores",
                            .used_title = "Cores over time (simulated)",
                            .used_label = "cores held",
                            .conditions = text,
                            .subject_count = scaling->scaler_count,
                            .second_count = scaling->results[0].second_count,
                            .seed = scaling->seed,
                            .seed_count = scaling->seed_count,
                            .of = scaling,
                            .seconds = seconds_of};

    conditions(scaling, text, sizeof(text));
    for (uint32_t i = 0; i < course.subject_count; i++) {
        course.names[i] = stages_scaler_names[scaling->scalers[i]];
    }
    return course_write_files(&course, scaling->csv_path, scaling->svg_path, scaling->violations_svg_path);
}
