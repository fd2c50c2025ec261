/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "tools/cli/cli.h"

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double
percentile(const uint64_t *sorted, uint64_t count, double fraction)
{
    return count == 0 ? 0 : (double)sorted[(uint64_t)((double)(count - 1) * fraction + 0.5)];
}

/* Of the queries offered, the share that was not answered in time. */
static double
violation_rate(const struct bench_result *sum)
{
    return sum->offered > 0 ? 1 - (double)(sum->ok - sum->late) / (double)sum->offered : 0;
}

static double
accuracy_of(const struct bench_result *sum)
{
    return (double)sum->items_correct / (double)sum->items_labelled;
}

/* Rates are over the window, which is as long for each process. */
static double
per_second(const struct bench_options *options, uint64_t count)
{
    return (double)count * 1e9 / (double)options->duration_ns;
}

static json_t *
report_json(const struct bench_options *options, const struct bench_result *sum, const uint64_t *sorted_ns)
{
    const double ok = sum->ok > 0 ? (double)sum->ok : 1;
    const uint64_t in_time = sum->ok - sum->late;
    const struct {
        const char *key;
        uint64_t count;
    } counts[] = {
        {"seed", options->seed},        {"processes", options->processes},  {"objective_ns", options->objective_ns},
        {"offered", sum->offered},      {"sent", sum->sent},                {"unsent", sum->offered - sum->sent},
        {"ok", sum->ok},                {"in_time", in_time},               {"late", sum->late},
        {"rejected", sum->rejected},    {"expired", sum->expired},          {"cancelled", sum->cancelled},
        {"failed", sum->failed},        {"lost", sum->lost},                {"violated", sum->offered - in_time},
        {"window_ok", sum->window_ok},  {"window_in_time", sum->window_in_time}, {"samples", sum->sample_count},
    };
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"window_s", (double)options->duration_ns / 1e9},
        {"offered_qps", per_second(options, sum->offered)},
        {"throughput_qps", per_second(options, sum->window_ok)},
        {"goodput_qps", per_second(options, sum->window_in_time)},
        {"violation_rate", violation_rate(sum)},
        {"latency_p50_ns", percentile(sorted_ns, sum->sample_count, 0.5)},
        {"latency_p99_ns", percentile(sorted_ns, sum->sample_count, 0.99)},
        {"latency_p999_ns", percentile(sorted_ns, sum->sample_count, 0.999)},
        {"latency_max_ns", percentile(sorted_ns, sum->sample_count, 1)},
        {"queue_mean_ns", (double)sum->queue_ns_sum / ok},
        {"exec_mean_ns", (double)sum->exec_ns_sum / ok},
        {"batch_items_mean", (double)sum->batch_items_sum / ok},
    };
    json_t *object = json_pack("{s:s, s:s}", "target", options->target, "arrivals", options->arrivals_text);

    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        (void)json_object_set_new(object, counts[i].key, json_integer((json_int_t)counts[i].count));
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(values); i++) {
        (void)json_object_set_new(object, values[i].key, json_real(values[i].value));
    }
    if (sum->items_labelled > 0) {
        (void)json_object_set_new(object, "accuracy", json_real(accuracy_of(sum)));
    }
    return object;
}

static void
report_text(const struct bench_options *options, const struct bench_result *sum, const uint64_t *sorted_ns)
{
    const double ok = sum->ok > 0 ? (double)sum->ok : 1;

    (void)printf("%s: %.0f queries/s offered (%s, %llu process%s), %.0f answered, %.0f in time (goodput), in %s\n",
                 options->target, per_second(options, sum->offered), options->arrivals_text,
                 (unsigned long long)options->processes, options->processes == 1 ? "" : "es",
                 per_second(options, sum->window_ok), per_second(options, sum->window_in_time),
                 format_ns((double)options->duration_ns).text);
    if (options->objective_ns != 0) {
        (void)printf("  objective %s (%s)\n", format_ns((double)options->objective_ns).text,
                     options->objective_given ? "--latency" : "the application's");
    } else {
        (void)printf("  objective none: no answer is late\n");
    }
    (void)printf("  latency   p50 %s, p99 %s, p99.9 %s, max %s (from the intended start)\n",
                 format_ns(percentile(sorted_ns, sum->sample_count, 0.5)).text,
                 format_ns(percentile(sorted_ns, sum->sample_count, 0.99)).text,
                 format_ns(percentile(sorted_ns, sum->sample_count, 0.999)).text,
                 format_ns(percentile(sorted_ns, sum->sample_count, 1)).text);
    (void)printf("  inside    queue %s, execution %s, batch %.2f items (means)\n",
                 format_ns((double)sum->queue_ns_sum / ok).text, format_ns((double)sum->exec_ns_sum / ok).text,
                 (double)sum->batch_items_sum / ok);
    (void)printf("  violated  %.2f %% of %llu: %llu late, %llu rejected, %llu expired, %llu cancelled, %llu failed, %llu lost, "
                 "%llu not sent\n",
                 violation_rate(sum) * 100, (unsigned long long)sum->offered, (unsigned long long)sum->late,
                 (unsigned long long)sum->rejected, (unsigned long long)sum->expired, (unsigned long long)sum->cancelled,
                 (unsigned long long)sum->failed, (unsigned long long)sum->lost,
                 (unsigned long long)(sum->offered - sum->sent));
    if (sum->items_labelled > 0) {
        (void)printf("  accuracy  %.2f %% of %llu answers\n", accuracy_of(sum) * 100,
                     (unsigned long long)sum->items_labelled);
    }
    if (sum->samples_dropped > 0) {
        (void)printf("  note      %llu latencies did not fit and are not in the percentiles\n",
                     (unsigned long long)sum->samples_dropped);
    }
}

void
bench_report(const struct bench_options *options, const struct bench_result *sum, uint64_t *samples_ns)
{
    qsort(samples_ns, sum->sample_count, sizeof(samples_ns[0]), compare_u64);
    if (options->json) {
        print_json(report_json(options, sum, samples_ns));
    } else {
        report_text(options, sum, samples_ns);
    }
}
