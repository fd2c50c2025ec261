/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/simulate_autoscale.h"
#include "tools/cli/simulate_course.h"

/* ---- Over seeds -------------------------------------------------------------------------------- */

enum quantity { COST, COST_CPU, COST_INFERENTIA, COST_GPU, VIOLATION, DROPPED, IN_TIME_QPS, ANSWERED_QPS, P50_NS, P99_NS, STARTS };

static double
value_of(const struct autoscale_result *result, enum quantity quantity)
{
    const double queries = result->queries > 0 ? (double)result->queries : NAN;

    switch (quantity) {
    case COST: return result->cost;
    case COST_CPU: return result->costs[AUTOSCALE_CPU];
    case COST_INFERENTIA: return result->costs[AUTOSCALE_INFERENTIA];
    case COST_GPU: return result->costs[AUTOSCALE_GPU];
    case VIOLATION: return (double)(result->queries - result->in_time) / queries;
    case DROPPED: return (double)result->dropped / queries;
    case IN_TIME_QPS: return (double)result->in_time / result->second_count;
    case ANSWERED_QPS: return (double)(result->in_time + result->late) / result->second_count;
    case P50_NS: return (double)result->p50_ns;
    case P99_NS: return (double)result->p99_ns;
    case STARTS: return (double)result->starts;
    }
    return NAN;
}

struct spread {
    double mean, min, max;
};

static struct spread
spread_of(const struct serving *serving, uint32_t policy, enum quantity quantity)
{
    struct spread spread = {.mean = 0, .min = INFINITY, .max = -INFINITY};

    for (uint64_t s = 0; s < serving->seed_count; s++) {
        const double value = value_of(&serving_results(serving, policy)[s], quantity);
        spread.mean += value / (double)serving->seed_count;
        spread.min = fmin(spread.min, value);
        spread.max = fmax(spread.max, value);
    }
    return spread;
}

static void
conditions(const struct serving *serving, char *text, size_t room)
{
    char drops[64] = "nothing is dropped";

    if (serving->drop_multiple > 0) {
        (void)snprintf(drops, sizeof(drops), "dropped when it would end later than %g objectives", serving->drop_multiple);
    }
    (void)snprintf(text, room,
                   "%u application%s, %s; %llu CPU cores, %llu Inferentia cores, %g GPUs; %.4g queries/s for %s; %llu seed%s from %llu",
                   serving->table.count, serving->table.count == 1 ? "" : "s", drops, (unsigned long long)serving->cpu_cores,
                   (unsigned long long)serving->inferentia_cores, serving->gpus, rates_mean_qps(&serving->rates),
                   format_ns((double)serving->duration_ns).text, (unsigned long long)serving->seed_count,
                   serving->seed_count == 1 ? "" : "s", (unsigned long long)serving->seed);
}

/* ---- Text and JSON ------------------------------------------------------------------------------ */

static void
report_text(const struct serving *serving)
{
    char text[600];

    conditions(serving, text, sizeof(text));
    (void)printf("simulated: %s\n"
                 "           cost: of all of it, with the part of GPUs; violations: %% of queries late, dropped or left; mean, least and\n"
                 "           most of seeds; rest: means of seeds\n\n"
                 "%-13s  %10s %10s %10s  %10s %8s %8s  %9s %9s %9s  %6s\n",
                 text, "policy", "cost", "of GPUs", "most", "violations", "least", "most", "in time/s", "p50", "p99", "starts");
    for (uint32_t i = 0; i < serving->policy_count; i++) {
        const struct spread violation = spread_of(serving, i, VIOLATION), cost = spread_of(serving, i, COST);
        (void)printf("%-13s  %10.4g %10.4g %10.4g  %10.4f %8.4f %8.4f  %9.1f %9s", autoscale_policy_names[serving->policies[i]],
                     cost.mean, spread_of(serving, i, COST_GPU).mean, cost.max, 100 * violation.mean, 100 * violation.min,
                     100 * violation.max, spread_of(serving, i, IN_TIME_QPS).mean,
                     format_ns(spread_of(serving, i, P50_NS).mean).text);
        (void)printf(" %9s  %6.0f\n", format_ns(spread_of(serving, i, P99_NS).mean).text, spread_of(serving, i, STARTS).mean);
    }
}

static json_t *
policy_json(const struct serving *serving, uint32_t policy)
{
    static const struct {
        const char *key;
        enum quantity quantity;
    } values[] = {{"cost", COST},
                  {"cost_cpu", COST_CPU},
                  {"cost_inferentia", COST_INFERENTIA},
                  {"cost_gpu", COST_GPU},
                  {"violation_share", VIOLATION},
                  {"dropped_share", DROPPED},
                  {"in_time_qps", IN_TIME_QPS},
                  {"answered_qps", ANSWERED_QPS},
                  {"latency_p50_ns", P50_NS},
                  {"latency_p99_ns", P99_NS},
                  {"instances_started", STARTS}};
    json_t *object = json_object();

    (void)json_object_set_new(object, "policy", json_string(autoscale_policy_names[serving->policies[policy]]));
    for (size_t i = 0; i < LEAT_COUNT_OF(values); i++) {
        json_t *array = json_array();
        for (uint64_t s = 0; s < serving->seed_count; s++) {
            const double value = value_of(&serving_results(serving, policy)[s], values[i].quantity);
            (void)json_array_append_new(array, isfinite(value) ? json_real(value) : json_null());
        }
        (void)json_object_set_new(object, values[i].key, array);
    }
    return object;
}

static json_t *
serving_json(const struct serving *serving)
{
    json_t *object = json_object(), *results = json_array();
    const struct {
        const char *key;
        json_t *value; /* NULL: not UTF-8 */
    } members[] = {
        {"simulated", json_true()},
        {"variants", json_string(serving->table_path)},
        {"trace", json_string(serving->trace_path)},
        {"applications", json_integer((json_int_t)serving->table.count)},
        {"rate_mean_qps", json_real(rates_mean_qps(&serving->rates))},
        {"duration_ns", json_integer((json_int_t)serving->duration_ns)},
        {"cpu_cores", json_integer((json_int_t)serving->cpu_cores)},
        {"inferentia_cores", json_integer((json_int_t)serving->inferentia_cores)},
        {"gpus", json_real(serving->gpus)},
        {"headroom", json_real(serving->options.headroom)},
        {"deviations", json_real(serving->options.deviations)},
        {"load_weight_per_s", json_real(serving->options.load_weight_per_s)},
        {"hold_ns", json_integer((json_int_t)serving->hold_ns)},
        {"period_ns", json_integer((json_int_t)serving->period_ns)},
        {"drop_multiple", json_real(serving->drop_multiple)},
        {"seed", json_integer((json_int_t)serving->seed)},
        {"seeds", json_integer((json_int_t)serving->seed_count)},
    };

    for (size_t i = 0; i < LEAT_COUNT_OF(members); i++) {
        (void)json_object_set_new(object, members[i].key, members[i].value != NULL ? members[i].value : json_null());
    }
    for (uint32_t i = 0; i < serving->policy_count; i++) {
        (void)json_array_append_new(results, policy_json(serving, i));
    }
    (void)json_object_set_new(object, "results", results);
    return object;
}

void
serving_report(const struct serving *serving)
{
    if (serving->json) {
        print_json(serving_json(serving));
    } else {
        report_text(serving);
    }
}

/* ---- Files -------------------------------------------------------------------------------------- */

static const struct simulate_second *
seconds_of(const void *of, uint32_t policy, uint64_t seed)
{
    return serving_results(of, policy)[seed].seconds;
}

enum leat_status
serving_write_files(const struct serving *serving)
{
    char text[600];
    struct course course = {.subject = "policy",
                            .used = "cost",
                            .used_title = "Cost over time (simulated)",
                            .used_label = "cost of a second, normalised",
                            .conditions = text,
                            .subject_count = serving->policy_count,
                            .second_count = serving->results[0].second_count,
                            .seed = serving->seed,
                            .seed_count = serving->seed_count,
                            .of = serving,
                            .seconds = seconds_of};

    conditions(serving, text, sizeof(text));
    for (uint32_t i = 0; i < course.subject_count; i++) {
        course.names[i] = autoscale_policy_names[serving->policies[i]];
    }
    return course_write_files(&course, serving->csv_path, serving->svg_path, serving->violations_svg_path);
}
