/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/plot.h"

/* ---- Over seeds -------------------------------------------------------------------------------- */

enum quantity { RATE_QPS, LATE_SHARE, P50_NS, P99_NS, MAX_NS };

/* Of a run at some rate; a run that is none (rate 0, or an oracle) has no share and no times. */
static double
value_of(const struct study_run *run, enum quantity quantity)
{
    const struct simulate_result *result = &run->result;

    if (quantity != RATE_QPS && result->queries == 0) {
        return NAN;
    }
    switch (quantity) {
    case RATE_QPS: return run->rate_qps;
    case LATE_SHARE: return (double)result->violations / (double)result->queries;
    case P50_NS: return (double)result->p50_ns;
    case P99_NS: return (double)result->p99_ns;
    case MAX_NS: return (double)result->max_ns;
    }
    return NAN;
}

struct spread {
    double median, mean, min, max; /* NAN: no seed has a value */
};

static int
compare_double(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static struct spread
spread_of(const struct study_run *runs, uint64_t count, enum quantity quantity)
{
    double values[STUDY_SEEDS_MAX], sum = 0;
    uint64_t n = 0;

    LEAT_ASSERT(count <= LEAT_COUNT_OF(values));
    for (uint64_t i = 0; i < count; i++) {
        const double value = value_of(&runs[i], quantity);
        if (!isnan(value)) {
            values[n++] = value;
            sum += value;
        }
    }
    if (n == 0) {
        return (struct spread){NAN, NAN, NAN, NAN};
    }
    qsort(values, n, sizeof(values[0]), compare_double);
    return (struct spread){.median = (values[(n - 1) / 2] + values[n / 2]) / 2, .mean = sum / (double)n, .min = values[0], .max = values[n - 1]};
}

/* ---- Words ------------------------------------------------------------------------------------- */

static const char *
router_name(const struct study *study, uint32_t router)
{
    return study->routers[router] != NULL ? study->routers[router]->name : "oracle";
}

struct mix_text {
    char text[STUDY_MIX_TEXT_MAX];
};

/* "3+1+3+0", in order of classes. */
static struct mix_text
mix_text(const struct study *study, uint32_t mix)
{
    struct mix_text out;
    int used = 0;

    for (uint32_t c = 0; c < study->table.class_count; c++) {
        used += snprintf(out.text + used, sizeof(out.text) - (size_t)used, "%s%u", c > 0 ? "+" : "", study->mixes[mix].count[c]);
    }
    return out;
}

static double
mix_usd_per_hour(const struct study *study, uint32_t mix)
{
    uint64_t price = 0;

    for (uint32_t c = 0; c < study->table.class_count; c++) {
        price += study->mixes[mix].count[c] * study->prices[c].price;
    }
    return (double)price / 1e6;
}

/* The classes that a mix counts, "a + b + c". */
static void
class_list(const struct study *study, char *text, size_t room)
{
    int used = 0;

    for (uint32_t c = 0; c < study->table.class_count; c++) {
        used += snprintf(text + used, room - (size_t)used, "%s%s", c > 0 ? " + " : "", study->table.class_names[c]);
    }
}

/* What all runs have in common. */
static void
conditions(const struct study *study, char *text, size_t room)
{
    const char *slash = strrchr(study->arrivals_text, '/');

    (void)snprintf(text, room, "objective %s, at most %.4g %% late; %llu queries, %s; %llu seed%s from %llu%s",
                   format_ns((double)study->objective_ns).text, study->violation_share * 100,
                   (unsigned long long)study->query_count, slash != NULL ? slash + 1 : study->arrivals_text,
                   (unsigned long long)study->seed_count, study->seed_count == 1 ? "" : "s",
                   (unsigned long long)study->seed, study->learn ? "; times learned" : "");
}

static uint64_t
clipped(const struct study *study)
{
    uint64_t sum = 0;

    for (uint64_t s = 0; s < study->seed_count; s++) {
        sum += study->workloads[s].clipped;
    }
    return sum;
}

/* ---- Text -------------------------------------------------------------------------------------- */

static void
print_ns(double ns)
{
    (void)printf("  %10s", isnan(ns) ? "-" : format_ns(ns).text);
}

static void
print_case(const struct study *study, uint32_t mix, uint32_t router, uint32_t rate)
{
    const struct study_run *runs = study_runs(study, mix, router, rate);
    const struct spread qps = spread_of(runs, study->seed_count, RATE_QPS);
    const struct spread late = spread_of(runs, study->seed_count, LATE_SHARE);

    (void)printf("%-14s", mix_text(study, mix).text);
    if (study->prices_path != NULL) {
        (void)printf(" %7.3f", mix_usd_per_hour(study, mix));
    }
    (void)printf("  %-16s %9.2f", router_name(study, router), qps.median);
    if (study->rate_count > 0) {
        (void)printf("  %8.3f  %8.3f  %8.3f", late.median * 100, late.min * 100, late.max * 100);
    } else {
        (void)printf("  %9.2f  %9.2f  %9.2f", qps.mean, qps.min, qps.max);
    }
    print_ns(spread_of(runs, study->seed_count, P50_NS).median);
    print_ns(spread_of(runs, study->seed_count, P99_NS).median);
    (void)putchar('\n');
}

static void
report_text(const struct study *study)
{
    char text[LEAT_SCHED_CLASSES_MAX * (SIMULATE_NAME_MAX + 3)];
    const char *price = study->prices_path != NULL ? "   USD/h" : "";

    conditions(study, text, sizeof(text));
    (void)printf("simulated: %s, %s\n", study->model, text);
    class_list(study, text, sizeof(text));
    (void)printf("workers    %s\n", text);
    if (clipped(study) > 0) {
        (void)printf("sizes      %llu of %llu were drawn larger than the profile's end, %u items, and cut to that\n",
                     (unsigned long long)clipped(study), (unsigned long long)(study->query_count * study->seed_count),
                     study->table.items_max);
    }
    if (study->rate_count > 0) {
        (void)printf("           late: %% of queries; median, least and most of seeds; response times: medians\n\n"
                     "%-14s%s  %-16s %9s  %8s  %8s  %8s  %10s  %10s\n",
                     "mix", price, "router", "queries/s", "late %", "least", "most", "p50", "p99");
    } else {
        (void)printf("           allowable throughput: queries/s; median, mean, least and most of seeds; response times at\n"
                     "           that rate: medians\n\n%-14s%s  %-16s %9s  %9s  %9s  %9s  %10s  %10s\n",
                     "mix", price, "router", "median", "mean", "least", "most", "p50", "p99");
    }
    for (uint32_t m = 0; m < study->mix_count; m++) {
        for (uint32_t r = 0; r < study->router_count; r++) {
            for (uint32_t rate = 0; rate == 0 || rate < study->rate_count; rate++) {
                print_case(study, m, r, rate);
            }
        }
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static json_t *
real_or_null(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

/* name_median_unit and so on, and name_unit with the value of each seed. */
static void
add_spread(json_t *object, const char *name, const char *unit, const struct study *study, const struct study_run *runs,
           enum quantity quantity)
{
    const struct spread spread = spread_of(runs, study->seed_count, quantity);
    const struct {
        const char *name;
        double value;
    } parts[] = {{"median", spread.median}, {"mean", spread.mean}, {"min", spread.min}, {"max", spread.max}};
    json_t *values = json_array();
    char key[64];

    for (size_t i = 0; i < LEAT_COUNT_OF(parts); i++) {
        (void)snprintf(key, sizeof(key), "%s_%s%s", name, parts[i].name, unit);
        (void)json_object_set_new(object, key, real_or_null(parts[i].value));
    }
    for (uint64_t s = 0; s < study->seed_count; s++) {
        (void)json_array_append_new(values, real_or_null(value_of(&runs[s], quantity)));
    }
    (void)snprintf(key, sizeof(key), "%s%s", name, unit);
    (void)json_object_set_new(object, key, values);
}

static json_t *
case_json(const struct study *study, uint32_t mix, uint32_t router, uint32_t rate)
{
    const struct study_run *runs = study_runs(study, mix, router, rate);
    json_t *object = json_object(), *counts = json_array();

    for (uint32_t c = 0; c < study->table.class_count; c++) {
        (void)json_array_append_new(counts, json_integer(study->mixes[mix].count[c]));
    }
    (void)json_object_set_new(object, "mix", counts);
    if (study->prices_path != NULL) {
        (void)json_object_set_new(object, "price_usd_per_hour", json_real(mix_usd_per_hour(study, mix)));
    }
    (void)json_object_set_new(object, "router", json_string(router_name(study, router)));
    if (study->rate_count > 0) {
        (void)json_object_set_new(object, "rate_qps", json_real(study->rates_qps[rate]));
    } else {
        add_spread(object, "throughput", "_qps", study, runs, RATE_QPS);
    }
    add_spread(object, "violation_share", "", study, runs, LATE_SHARE);
    add_spread(object, "latency_p50", "_ns", study, runs, P50_NS);
    add_spread(object, "latency_p99", "_ns", study, runs, P99_NS);
    add_spread(object, "latency_max", "_ns", study, runs, MAX_NS);
    return object;
}

static json_t *
study_json(const struct study *study)
{
    json_t *object = json_object(), *classes = json_array(), *results = json_array();

    set_member(object, "simulated", json_true());
    set_member(object, "profile", json_string(study->profile_path));
    set_member(object, "model", json_string(study->model));
    set_member(object, "sizes", study->sizes_text != NULL ? json_string(study->sizes_text) : NULL);
    set_member(object, "later_sizes", study->later_sizes_text != NULL ? json_string(study->later_sizes_text) : NULL);
    set_member(object, "change_at", json_integer((json_int_t)study->change_at));
    set_member(object, "arrivals", json_string(study->arrivals_text));
    set_member(object, "queries", json_integer((json_int_t)study->query_count));
    set_member(object, "seed", json_integer((json_int_t)study->seed));
    set_member(object, "seeds", json_integer((json_int_t)study->seed_count));
    set_member(object, "clipped", json_integer((json_int_t)clipped(study)));
    set_member(object, "objective_ns", json_integer((json_int_t)study->objective_ns));
    set_member(object, "violation_share_allowed", json_real(study->violation_share));
    set_member(object, "worker_queue_depth", json_integer((json_int_t)study->depth));
    set_member(object, "prediction_percentile", study->percentile > 0 ? json_real(study->percentile) : json_null());
    set_member(object, "prediction_noise_share", json_real(study->noise_share));
    set_member(object, "service_noise_share", json_real(study->service_noise_share));
    set_member(object, "learned", study->learn ? json_true() : json_false());
    set_member(object, "tolerance_share", json_real(study->tolerance));
    for (uint32_t c = 0; c < study->table.class_count; c++) {
        (void)json_array_append_new(classes, json_string(study->table.class_names[c]));
    }
    set_member(object, "classes", classes);
    for (uint32_t m = 0; m < study->mix_count; m++) {
        for (uint32_t r = 0; r < study->router_count; r++) {
            for (uint32_t rate = 0; rate == 0 || rate < study->rate_count; rate++) {
                (void)json_array_append_new(results, case_json(study, m, r, rate));
            }
        }
    }
    set_member(object, "results", results);
    return object;
}

void
study_report(const struct study *study)
{
    if (study->json) {
        print_json(study_json(study));
    } else {
        report_text(study);
    }
}

/* ---- CSV --------------------------------------------------------------------------------------- */

static void
write_csv_run(const struct study *study, uint32_t mix, uint32_t router, uint64_t seed, const struct study_run *run, FILE *out)
{
    const struct simulate_result *result = &run->result;

    (void)fputs("simulated,", out);
    output_csv_field(out, study->model);
    (void)fprintf(out, ",%s,", mix_text(study, mix).text);
    if (study->prices_path != NULL) {
        (void)fprintf(out, "%.6f,", mix_usd_per_hour(study, mix));
    }
    (void)fprintf(out, "%s,%llu,%.17g", router_name(study, router), (unsigned long long)(study->seed + seed), run->rate_qps);
    if (result->queries == 0) {
        (void)fputs(",,,,,,,,\n", out);
        return;
    }
    (void)fprintf(out, ",%u,%u,%llu,%llu,%llu,%llu,%llu,%llu\n", result->queries, result->violations,
                  (unsigned long long)result->p50_ns, (unsigned long long)result->p99_ns,
                  (unsigned long long)result->max_ns, (unsigned long long)result->end_ns,
                  (unsigned long long)result->decisions, (unsigned long long)result->pairs);
}

static void
write_csv(const void *of, FILE *out)
{
    const struct study *study = of;

    (void)fprintf(out, "source,model,mix,%srouter,seed,%s,queries,late,p50_ns,p99_ns,max_ns,end_ns,decisions,pairs\n",
                  study->prices_path != NULL ? "price_usd_per_hour," : "",
                  study->rate_count > 0 ? "rate_qps" : "throughput_qps");
    for (uint32_t m = 0; m < study->mix_count; m++) {
        for (uint32_t r = 0; r < study->router_count; r++) {
            for (uint32_t rate = 0; rate == 0 || rate < study->rate_count; rate++) {
                for (uint64_t s = 0; s < study->seed_count; s++) {
                    write_csv_run(study, m, r, s, &study_runs(study, m, r, rate)[s], out);
                }
            }
        }
    }
}

/* ---- SVG --------------------------------------------------------------------------------------- */

struct figure {
    struct plot plot;
    struct plot_series series[STUDY_MIXES_MAX * STUDY_ROUTERS_MAX];
    char names[STUDY_MIXES_MAX * STUDY_ROUTERS_MAX][STUDY_MIX_TEXT_MAX + 32];
    struct mix_text mixes[STUDY_MIXES_MAX];
    const char *groups[STUDY_MIXES_MAX];
    double values[STUDY_MIXES_MAX * STUDY_ROUTERS_MAX][3][STUDY_RATES_MAX]; /* median, least, most */
    char title[160], subtitle[300], x_label[LEAT_SCHED_CLASSES_MAX * (SIMULATE_NAME_MAX + 3) + 16], limit[48];
};
_Static_assert(STUDY_MIXES_MAX <= STUDY_RATES_MAX, "values are by mix or by rate");

static void
add_value(struct figure *figure, const struct study *study, uint32_t series, uint32_t at, struct spread spread, double scale)
{
    double(*values)[STUDY_RATES_MAX] = figure->values[series];

    values[0][at] = spread.median * scale;
    values[1][at] = spread.min * scale;
    values[2][at] = spread.max * scale;
    figure->series[series] = (struct plot_series){
        .name = figure->names[series],
        .values = values[0],
        .low = study->seed_count > 1 ? values[1] : NULL,
        .high = study->seed_count > 1 ? values[2] : NULL,
    };
}

/* Groups are mixes, bars routers. */
static void
fill_throughput(const struct study *study, struct figure *figure)
{
    for (uint32_t r = 0; r < study->router_count; r++) {
        (void)snprintf(figure->names[r], sizeof(figure->names[r]), "%s", router_name(study, r));
        for (uint32_t m = 0; m < study->mix_count; m++) {
            add_value(figure, study, r, m, spread_of(study_runs(study, m, r, 0), study->seed_count, RATE_QPS), 1);
        }
    }
    for (uint32_t m = 0; m < study->mix_count; m++) {
        figure->mixes[m] = mix_text(study, m);
        figure->groups[m] = figure->mixes[m].text;
    }
    (void)snprintf(figure->title, sizeof(figure->title), "Simulated: allowable throughput, %s", study->model);
    (void)strcpy(figure->x_label, "workers: ");
    class_list(study, figure->x_label + strlen(figure->x_label), sizeof(figure->x_label) - strlen(figure->x_label));
    figure->plot.y_label = "allowable throughput (queries/s)";
    figure->plot.count = study->mix_count;
    figure->plot.groups = figure->groups;
    figure->plot.series_count = study->router_count;
}

/* A line for each router and mix. */
static void
fill_rates(const struct study *study, struct figure *figure)
{
    uint32_t series = 0;

    for (uint32_t m = 0; m < study->mix_count; m++) {
        for (uint32_t r = 0; r < study->router_count; r++, series++) {
            (void)snprintf(figure->names[series], sizeof(figure->names[series]), "%s%s%s", router_name(study, r),
                           study->mix_count > 1 ? ", " : "", study->mix_count > 1 ? mix_text(study, m).text : "");
            for (uint32_t rate = 0; rate < study->rate_count; rate++) {
                add_value(figure, study, series, rate,
                          spread_of(study_runs(study, m, r, rate), study->seed_count, LATE_SHARE), 100);
            }
        }
    }
    (void)snprintf(figure->title, sizeof(figure->title), "Simulated: late queries by rate, %s%s%s", study->model,
                   study->mix_count == 1 ? ", workers " : "", study->mix_count == 1 ? mix_text(study, 0).text : "");
    (void)snprintf(figure->limit, sizeof(figure->limit), "%.4g %% allowed", study->violation_share * 100);
    (void)strcpy(figure->x_label, "rate (queries/s)");
    figure->plot.y_label = "late (% of queries)";
    figure->plot.count = study->rate_count;
    figure->plot.x = study->rates_qps;
    figure->plot.series_count = series;
    figure->plot.limit_name = figure->limit;
    figure->plot.limit = study->violation_share * 100;
}

static void
write_svg(const void *of, FILE *out)
{
    const struct study *study = of;
    struct figure *figure = calloc(1, sizeof(*figure));

    if (figure == NULL) {
        return; /* nothing is written: the caller says so */
    }
    figure->plot.title = figure->title;
    figure->plot.subtitle = figure->subtitle;
    figure->plot.x_label = figure->x_label;
    figure->plot.series = figure->series;
    conditions(study, figure->subtitle, sizeof(figure->subtitle));
    if (study->seed_count > 1) {
        (void)strncat(figure->subtitle, "; medians, whiskers: least and most",
                      sizeof(figure->subtitle) - strlen(figure->subtitle) - 1);
    }
    if (study->rate_count == 0) {
        fill_throughput(study, figure);
        plot_bars(&figure->plot, out);
    } else {
        fill_rates(study, figure);
        plot_lines(&figure->plot, out);
    }
    free(figure);
}

/* ---- Files ------------------------------------------------------------------------------------- */

enum leat_status
study_write_files(const struct study *study)
{
    const struct output outputs[] = {{study->csv_path, write_csv}, {study->svg_path, write_svg}};
    return output_write(outputs, LEAT_COUNT_OF(outputs), study);
}
