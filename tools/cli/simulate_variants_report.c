/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/simulate_variants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/plot.h"

/* ---- Over seeds -------------------------------------------------------------------------------- */

enum quantity { ACCURACY, VIOLATION, UTILISATION, BATCH, P50_NS, P99_NS, MAX_NS };

static double
value_of(const struct survey *survey, const struct variants_options *options, const struct variants_result *result,
         enum quantity quantity)
{
    switch (quantity) {
    case ACCURACY: return variants_accuracy(&survey->table, result);
    case VIOLATION: return variants_violation(result);
    case UTILISATION: return variants_utilisation(options, result);
    case BATCH: return result->batches > 0 ? (double)result->served / (double)result->batches : NAN;
    case P50_NS: return result->served > 0 ? (double)result->p50_ns : NAN;
    case P99_NS: return result->served > 0 ? (double)result->p99_ns : NAN;
    case MAX_NS: return result->served > 0 ? (double)result->max_ns : NAN;
    }
    return NAN;
}

struct spread {
    double mean, min, max; /* NAN: no seed has a value */
};

static struct spread
spread_of(const struct survey *survey, uint32_t subject, uint32_t rate, enum quantity quantity)
{
    const struct variants_options options = survey_options(survey, subject, rate, 0);
    const struct variants_result *results = survey_results(survey, subject, rate);
    struct spread spread = {.mean = 0, .min = NAN, .max = NAN};
    uint64_t count = 0;

    for (uint64_t s = 0; s < survey->seed_count; s++) {
        const double value = value_of(survey, &options, &results[s], quantity);
        if (!isnan(value)) {
            spread.mean += value;
            spread.min = fmin(spread.min, value);
            spread.max = fmax(spread.max, value);
            count++;
        }
    }
    spread.mean = count > 0 ? spread.mean / (double)count : NAN;
    return spread;
}

static const char *
base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

const char *
simulate_late_text(enum variants_late late)
{
    static const char *const words[] = {
        [VARIANTS_SERVE_LATE] = "serve", [VARIANTS_SERVE_LATE_LAST] = "last", [VARIANTS_DROP_LATE] = "drop"};
    return words[late];
}

/* What all runs have in common. */
static void
conditions(const struct survey *survey, char *text, size_t room)
{
    static const char *const late[] = {
        [VARIANTS_SERVE_LATE] = "served", [VARIANTS_SERVE_LATE_LAST] = "served last", [VARIANTS_DROP_LATE] = "dropped"};
    const bool trace = survey->trace_path != NULL;

    (void)snprintf(text, room,
                   "%u variants, %llu workers, objective %s, late ones %s; %s for %s, load %s; %llu seed%s from %llu",
                   survey->table.count, (unsigned long long)survey->worker_count,
                   format_ns((double)survey->objective_ns).text, late[survey->late],
                   base_name(trace ? survey->trace_path : survey->arrivals_text),
                   format_ns((double)survey->duration_ns).text, survey->load_known ? "known" : "measured",
                   (unsigned long long)survey->seed_count, survey->seed_count == 1 ? "" : "s",
                   (unsigned long long)survey->seed);
}

/* ---- Text -------------------------------------------------------------------------------------- */

static void
print_ns(double ns)
{
    (void)printf("  %9s", isnan(ns) ? "-" : format_ns(ns).text);
}

static void
report_text(const struct survey *survey)
{
    char text[600];
    int width = 10;

    conditions(survey, text, sizeof(text));
    for (uint32_t i = 0; i < survey->subject_count; i++) {
        const int length = (int)strlen(survey->subjects[i].name);
        width = length > width ? length : width;
    }
    (void)printf("simulated: %s\n"
                 "           accuracy: %% of queries in time; late: %% of queries; mean, least and most of seeds; rest:\n"
                 "           means of seeds\n\n"
                 "%-*s  %9s  %8s %8s %8s  %8s %8s %8s  %6s  %6s  %9s  %9s\n",
                 text, width, "selector", "queries/s", "accuracy", "least", "most", "late %", "least", "most", "busy %",
                 "batch", "p50", "p99");
    for (uint32_t rate = 0; rate < survey->rate_count; rate++) {
        for (uint32_t i = 0; i < survey->subject_count; i++) {
            const struct spread accuracy = spread_of(survey, i, rate, ACCURACY);
            const struct spread late = spread_of(survey, i, rate, VIOLATION);
            (void)printf("%-*s  %9.2f  %8.3f %8.3f %8.3f  %8.3f %8.3f %8.3f  %6.1f  %6.2f", width, survey->subjects[i].name,
                         survey->rates_qps[rate], accuracy.mean * 100, accuracy.min * 100, accuracy.max * 100,
                         late.mean * 100, late.min * 100, late.max * 100,
                         spread_of(survey, i, rate, UTILISATION).mean * 100, spread_of(survey, i, rate, BATCH).mean);
            print_ns(spread_of(survey, i, rate, P50_NS).mean);
            print_ns(spread_of(survey, i, rate, P99_NS).mean);
            (void)putchar('\n');
        }
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static json_t *
integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *
real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

/* The value of each seed. */
static void
add_values(json_t *object, const char *key, const struct survey *survey, uint32_t subject, uint32_t rate,
           enum quantity quantity)
{
    const struct variants_options options = survey_options(survey, subject, rate, 0);
    const struct variants_result *results = survey_results(survey, subject, rate);
    json_t *values = json_array();

    for (uint64_t s = 0; s < survey->seed_count; s++) {
        (void)json_array_append_new(values, real_or_null(value_of(survey, &options, &results[s], quantity)));
    }
    (void)json_object_set_new(object, key, values);
}

/* Sums over seeds. */
static json_t *
variants_json(const struct survey *survey, const struct variants_result *results)
{
    json_t *array = json_array();

    for (uint32_t v = 0; v < survey->table.count; v++) {
        uint64_t queries = 0, in_time = 0, batches = 0;
        for (uint64_t s = 0; s < survey->seed_count; s++) {
            queries += results[s].of_variant[v].queries;
            in_time += results[s].of_variant[v].in_time;
            batches += results[s].of_variant[v].batches;
        }
        json_t *row = json_object();
        (void)json_object_set_new(row, "variant", json_string(survey->table.rows[v].name));
        (void)json_object_set_new(row, "queries", integer(queries));
        (void)json_object_set_new(row, "in_time", integer(in_time));
        (void)json_object_set_new(row, "batches", integer(batches));
        (void)json_array_append_new(array, row);
    }
    return array;
}

/* Those that there were: [queries, how many]. */
static json_t *
batches_json(const struct survey *survey, const struct variants_result *results)
{
    json_t *array = json_array();

    for (uint32_t b = 1; b <= VARIANTS_LATENCY_MAX; b++) {
        uint64_t count = 0;
        for (uint64_t s = 0; s < survey->seed_count; s++) {
            count += results[s].batches_of[b];
        }
        if (count > 0) {
            json_t *pair = json_array();
            (void)json_array_append_new(pair, integer(b));
            (void)json_array_append_new(pair, integer(count));
            (void)json_array_append_new(array, pair);
        }
    }
    return array;
}

static json_t *
case_json(const struct survey *survey, uint32_t subject, uint32_t rate)
{
    const struct variants_result *results = survey_results(survey, subject, rate);
    uint64_t arrived = 0, served = 0, late = 0, expired = 0, rejected = 0, waiting = 0, waiting_late = 0, aborted = 0;
    json_t *object = json_object();

    for (uint64_t s = 0; s < survey->seed_count; s++) {
        arrived += results[s].arrived;
        served += results[s].served;
        late += results[s].late;
        expired += results[s].expired;
        rejected += results[s].rejected;
        waiting += results[s].waiting;
        waiting_late += results[s].waiting_late;
        aborted += results[s].aborted;
    }
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"arrived", arrived},   {"served", served},   {"served_late", late},          {"expired", expired},
                  {"rejected", rejected}, {"waiting", waiting}, {"waiting_late", waiting_late}, {"runs_aborted", aborted}};
    (void)json_object_set_new(object, "selector", json_string(survey->subjects[subject].selector->name));
    (void)json_object_set_new(object, "name", json_string(survey->subjects[subject].name));
    (void)json_object_set_new(object, "router", json_string(survey->subjects[subject].router->name));
    (void)json_object_set_new(object, "rate_qps", json_real(survey->rates_qps[rate]));
    add_values(object, "accuracy", survey, subject, rate, ACCURACY);
    add_values(object, "violation_share", survey, subject, rate, VIOLATION);
    add_values(object, "utilisation", survey, subject, rate, UTILISATION);
    add_values(object, "latency_p50_ns", survey, subject, rate, P50_NS);
    add_values(object, "latency_p99_ns", survey, subject, rate, P99_NS);
    add_values(object, "latency_max_ns", survey, subject, rate, MAX_NS);
    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        (void)json_object_set_new(object, counts[i].key, integer(counts[i].value));
    }
    (void)json_object_set_new(object, "variants", variants_json(survey, results));
    (void)json_object_set_new(object, "batches", batches_json(survey, results));
    return object;
}

static json_t *
survey_json(const struct survey *survey)
{
    json_t *object = json_object(), *results = json_array();

    set_member(object, "simulated", json_true());
    set_member(object, "profiles", json_string(survey->profiles_path));
    set_member(object, "accuracies", survey->accuracies_path != NULL ? json_string(survey->accuracies_path) : NULL);
    set_member(object, "task", survey->task != NULL ? json_string(survey->task) : NULL);
    set_member(object, "arrivals", json_string(survey->trace_path != NULL ? survey->trace_path : survey->arrivals_text));
    set_member(object, "dispersion", json_real(survey->dispersion));
    set_member(object, "load", json_string(survey->load_known ? "known" : "measured"));
    set_member(object, "workers", integer(survey->worker_count));
    set_member(object, "worker_queue_depth", integer(survey->depth));
    set_member(object, "objective_ns", integer(survey->objective_ns));
    set_member(object, "duration_ns", integer(survey->duration_ns));
    set_member(object, "late", json_string(simulate_late_text(survey->late)));
    set_member(object, "service_noise_share", json_real(survey->noise_share));
    set_member(object, "seed", integer(survey->seed));
    set_member(object, "seeds", integer(survey->seed_count));
    for (uint32_t rate = 0; rate < survey->rate_count; rate++) {
        for (uint32_t i = 0; i < survey->subject_count; i++) {
            (void)json_array_append_new(results, case_json(survey, i, rate));
        }
    }
    set_member(object, "results", results);
    return object;
}

void
survey_report(const struct survey *survey)
{
    if (survey->json) {
        print_json(survey_json(survey));
    } else {
        report_text(survey);
    }
}

/* ---- CSV --------------------------------------------------------------------------------------- */

static void
write_csv_run(const struct survey *survey, uint32_t subject, uint32_t rate, uint64_t seed, FILE *out)
{
    const struct variants_options options = survey_options(survey, subject, rate, seed);
    const struct variants_result *result = &survey_results(survey, subject, rate)[seed];
    const uint64_t counts[] = {result->arrived, result->served, result->late, result->expired, result->rejected,
                               result->waiting, result->waiting_late, result->batches, result->decisions,
                               result->p50_ns, result->p99_ns, result->max_ns};

    (void)fputs("simulated,", out);
    output_csv_field(out, survey->subjects[subject].name);
    (void)fprintf(out, ",%s,%.17g,%llu,%.17g,%.17g,%.17g", options.router->name, survey->rates_qps[rate],
                  (unsigned long long)options.seed, variants_accuracy(&survey->table, result), variants_violation(result),
                  variants_utilisation(&options, result));
    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        (void)fprintf(out, ",%llu", (unsigned long long)counts[i]);
    }
    (void)fprintf(out, ",%d\n", result->aborted);
}

static void
write_csv(const void *of, FILE *out)
{
    const struct survey *survey = of;

    (void)fputs("source,selector,router,rate_qps,seed,accuracy,violation_share,utilisation,arrived,served,served_late,"
                "expired,rejected,waiting,waiting_late,batches,decisions,p50_ns,p99_ns,max_ns,aborted\n",
                out);
    for (uint32_t rate = 0; rate < survey->rate_count; rate++) {
        for (uint32_t i = 0; i < survey->subject_count; i++) {
            for (uint64_t s = 0; s < survey->seed_count; s++) {
                write_csv_run(survey, i, rate, s, out);
            }
        }
    }
}

/* ---- SVG --------------------------------------------------------------------------------------- */

struct figure {
    struct plot_series series[SURVEY_SUBJECTS_MAX];
    double values[SURVEY_SUBJECTS_MAX][3][SURVEY_RATES_MAX]; /* mean, least, most */
    char subtitle[600];
};

static void
write_figure(const struct survey *survey, enum quantity quantity, const char *title, const char *y_label, FILE *out)
{
    struct figure *figure = calloc(1, sizeof(*figure));

    if (figure == NULL) {
        return; /* nothing is written: the caller says so */
    }
    for (uint32_t i = 0; i < survey->subject_count; i++) {
        for (uint32_t rate = 0; rate < survey->rate_count; rate++) {
            const struct spread spread = spread_of(survey, i, rate, quantity);
            figure->values[i][0][rate] = spread.mean * 100;
            figure->values[i][1][rate] = spread.min * 100;
            figure->values[i][2][rate] = spread.max * 100;
        }
        figure->series[i] = (struct plot_series){
            .name = survey->subjects[i].name,
            .values = figure->values[i][0],
            .low = survey->seed_count > 1 ? figure->values[i][1] : NULL,
            .high = survey->seed_count > 1 ? figure->values[i][2] : NULL,
        };
    }
    conditions(survey, figure->subtitle, sizeof(figure->subtitle));
    const struct plot plot = {
        .title = title,
        .subtitle = figure->subtitle,
        .x_label = "queries a second",
        .y_label = y_label,
        .count = survey->rate_count,
        .x = survey->rates_qps,
        .series_count = survey->subject_count,
        .series = figure->series,
    };
    plot_lines(&plot, out);
    free(figure);
}

static void
write_accuracy(const void *of, FILE *out)
{
    write_figure(of, ACCURACY, "Accuracy by rate (simulated)", "accuracy of queries in time, %", out);
}

static void
write_late(const void *of, FILE *out)
{
    write_figure(of, VIOLATION, "Late queries by rate (simulated)", "late queries, %", out);
}

enum leat_status
survey_write_files(const struct survey *survey)
{
    const struct output outputs[] = {
        {survey->csv_path, write_csv}, {survey->svg_path, write_accuracy}, {survey->late_svg_path, write_late}};
    return output_write(outputs, LEAT_COUNT_OF(outputs), survey);
}
