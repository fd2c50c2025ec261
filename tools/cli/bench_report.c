/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"

double
bench_violation_rate(const struct bench_result *sum)
{
    return sum->offered > 0 ? (double)(sum->offered - (sum->ok - sum->late)) / (double)sum->offered : 0;
}

bool
bench_generator_limited(const struct bench_options *options, const struct bench_summary *summary)
{
    return summary->delay.p99_ns > options->objective_ns / 20 || summary->sum.sent < summary->sum.offered;
}

static double
accuracy_of(const struct bench_result *sum)
{
    return (double)sum->items_correct / (double)sum->items_labelled;
}

/* Of answers in time, the mean of what their variants are known to have. */
static double
stated_accuracy_of(const struct bench_result *sum)
{
    return (double)sum->accuracy_in_time.ppm_sum / (double)sum->accuracy_in_time.count / 1e6;
}

/* The same of all answers, late or not. */
static double
served_accuracy_of(const struct bench_result *sum)
{
    return (double)sum->accuracy_ok.ppm_sum / (double)sum->accuracy_ok.count / 1e6;
}

struct naming {
    const char *before, *after; /* NULL: none of that place, or unknown */
    bool changed;               /* which of them answered is not known */
};

static struct naming
name_of(const struct bench_summary *summary, uint32_t variant)
{
    const char *before = json_string_value(json_array_get(summary->names_before, variant));
    const char *after = json_string_value(json_array_get(summary->names_after, variant));
    const bool same = before != NULL && after != NULL && strcmp(before, after) == 0;
    return (struct naming){.before = before, .after = after, .changed = !same && (before != NULL || after != NULL)};
}

/* That have names, before or after, or answers. */
static uint32_t
count_variants(const struct bench_summary *summary)
{
    const size_t before = json_array_size(summary->names_before), after = json_array_size(summary->names_after);
    uint32_t count = BENCH_VARIANTS_MAX;

    while (count > before && count > after && summary->sum.of_variant[count - 1].ok == 0) {
        count--;
    }
    return count;
}

/* Answers of each variant. */
static json_t *
variants_json(const struct bench_summary *summary)
{
    const struct bench_result *sum = &summary->sum;
    const uint32_t count = count_variants(summary);
    json_t *array = json_array();

    for (uint32_t v = 0; v < count; v++) {
        const struct naming name = name_of(summary, v);
        json_t *variant = json_pack("{s:s?, s:I, s:I}", "variant", name.changed ? NULL : name.before, "ok",
                                    (json_int_t)sum->of_variant[v].ok, "in_time", (json_int_t)sum->of_variant[v].in_time);
        if (name.changed) {
            (void)json_object_set_new(variant, "changed", json_pack("{s:s?, s:s?}", "before", name.before, "after", name.after));
        } else if (sum->of_variant[v].accuracy_ppm > 0) {
            (void)json_object_set_new(variant, "accuracy", json_real(sum->of_variant[v].accuracy_ppm / 1e6));
        }
        (void)json_array_append_new(array, variant);
    }
    return array;
}

static const char *
or_none(const char *name)
{
    return name != NULL ? name : "none";
}

/* Where there are several. */
static void
report_variants(const struct bench_summary *summary)
{
    const struct bench_result *sum = &summary->sum;
    const bool known = summary->names_before != NULL || summary->names_after != NULL;
    const uint32_t count = known ? count_variants(summary) : 0;

    for (uint32_t v = 0; count > 1 && v < count; v++) {
        const struct naming name = name_of(summary, v);
        (void)printf("%s", v == 0 ? "  variants  answers (in time): " : ", ");
        if (name.changed) {
            (void)printf("changed (%s to %s)", or_none(name.before), or_none(name.after));
        } else {
            (void)printf("%s", or_none(name.before));
        }
        (void)printf(" %llu (%llu)", (unsigned long long)sum->of_variant[v].ok, (unsigned long long)sum->of_variant[v].in_time);
    }
    (void)printf("%s", count > 1 ? "\n" : "");
}

/* What the stages of a pipeline took: means. */
static json_t *
stages_json(const struct bench_options *options, const struct bench_result *sum)
{
    json_t *array = json_array();

    for (uint32_t s = 0; s < options->stage_count; s++) {
        const double count = sum->of_stage[s].count > 0 ? (double)sum->of_stage[s].count : 1;
        (void)json_array_append_new(array, json_pack("{s:s, s:I, s:f, s:f}", "stage", options->stages[s], "count",
                                                     (json_int_t)sum->of_stage[s].count, "queue_mean_ns",
                                                     (double)sum->of_stage[s].queue_ns_sum / count, "exec_mean_ns",
                                                     (double)sum->of_stage[s].exec_ns_sum / count));
    }
    return array;
}

static void
report_stages(const struct bench_options *options, const struct bench_result *sum)
{
    for (uint32_t s = 0; s < options->stage_count; s++) {
        const double count = sum->of_stage[s].count > 0 ? (double)sum->of_stage[s].count : 1;
        (void)printf("  stage     %s: waited %s, took %s (means of %llu)\n", options->stages[s],
                     format_ns((double)sum->of_stage[s].queue_ns_sum / count).text,
                     format_ns((double)sum->of_stage[s].exec_ns_sum / count).text, (unsigned long long)sum->of_stage[s].count);
    }
}

static double
per_second(const struct bench_summary *summary, uint64_t count)
{
    return (double)count * 1e9 / (double)summary->plan.window_ns;
}

json_t *
bench_report_json(const struct bench_options *options, const struct bench_summary *summary)
{
    const struct bench_result *sum = &summary->sum;
    const double ok = sum->ok > 0 ? (double)sum->ok : 1;
    const uint64_t in_time = sum->ok - sum->late;
    const struct {
        const char *key;
        uint64_t count;
    } counts[] = {
        {"seed", options->seed},        {"processes", options->processes},  {"objective_ns", options->objective_ns},
        {"offered", sum->offered},      {"items", sum->items},              {"clipped", sum->clipped},
        {"sent", sum->sent},
        {"unsent", sum->offered - sum->sent},                               {"slot_waits", sum->slot_waits},
        {"ok", sum->ok},                {"in_time", in_time},               {"late", sum->late},
        {"rejected", sum->rejected},    {"expired", sum->expired},          {"cancelled", sum->cancelled},
        {"failed", sum->failed},        {"lost", sum->lost},                {"unanswered", sum->unanswered},
        {"violated", sum->offered - in_time},                               {"samples", sum->latency_count},
        {"window_ok", sum->window_ok},  {"window_in_time", sum->window_in_time},
        {"accuracy_floor_ppm", (uint64_t)(options->accuracy_floor * 1e6 + 0.5)},
        {"cost_cap_nano", (uint64_t)(options->cost_cap * 1e9)},
    };
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"window_s", (double)summary->plan.window_ns / 1e9},
        {"offered_qps", per_second(summary, sum->offered)},
        {"throughput_qps", per_second(summary, sum->window_ok)},
        {"goodput_qps", per_second(summary, sum->window_in_time)},
        {"violation_rate", bench_violation_rate(sum)},
        {"latency_p50_ns", (double)summary->latency.p50_ns},
        {"latency_p99_ns", (double)summary->latency.p99_ns},
        {"latency_p999_ns", (double)summary->latency.p999_ns},
        {"latency_max_ns", (double)summary->latency.max_ns},
        {"send_delay_p50_ns", (double)summary->delay.p50_ns},
        {"send_delay_p99_ns", (double)summary->delay.p99_ns},
        {"send_delay_max_ns", (double)summary->delay.max_ns},
        {"queue_mean_ns", (double)sum->queue_ns_sum / ok},
        {"exec_mean_ns", (double)sum->exec_ns_sum / ok},
        {"batch_items_mean", (double)sum->batch_items_sum / ok},
    };
    json_t *object = json_pack("{s:s, s:s, s:b}", "target", options->target, "arrivals", options->arrivals_text, "offline",
                               options->offline);

    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        (void)json_object_set_new(object, counts[i].key, json_integer((json_int_t)counts[i].count));
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(values); i++) {
        (void)json_object_set_new(object, values[i].key, json_real(values[i].value));
    }
    if (sum->items_labelled > 0) {
        (void)json_object_set_new(object, "accuracy", json_real(accuracy_of(sum)));
    }
    if (sum->items_in_time > 0) {
        (void)json_object_set_new(object, "accuracy_in_time",
                                  json_real((double)sum->items_correct_in_time / (double)sum->items_in_time));
    }
    if (sum->accuracy_in_time.count > 0) {
        (void)json_object_set_new(object, "stated_accuracy", json_real(stated_accuracy_of(sum)));
    }
    if (sum->accuracy_ok.count > 0) {
        (void)json_object_set_new(object, "served_accuracy", json_real(served_accuracy_of(sum)));
    }
    (void)json_object_set_new(object, "variants", variants_json(summary));
    if (options->stage_count > 0) {
        (void)json_object_set_new(object, "stages", stages_json(options, sum));
    }
    return object;
}

static void
report_text(const struct bench_options *options, const struct bench_summary *summary)
{
    const struct bench_result *sum = &summary->sum;
    const double ok = sum->ok > 0 ? (double)sum->ok : 1;

    (void)printf("%s: %.0f queries/s offered (%s, %llu process%s), %.0f answered, %.0f in time (goodput), in %s\n",
                 options->target, per_second(summary, sum->offered), options->arrivals_text,
                 (unsigned long long)options->processes, options->processes == 1 ? "" : "es",
                 per_second(summary, sum->window_ok), per_second(summary, sum->window_in_time),
                 format_ns((double)summary->plan.window_ns).text);
    if (options->objective_ns != 0) {
        (void)printf("  objective %s (%s)\n", format_ns((double)options->objective_ns).text,
                     options->objective_given ? "--latency" : "the application's");
    } else {
        (void)printf("  objective none: no answer is late\n");
    }
    (void)printf("  latency   p50 %s, p99 %s, p99.9 %s, max %s (from when they were due)\n",
                 format_ns((double)summary->latency.p50_ns).text, format_ns((double)summary->latency.p99_ns).text,
                 format_ns((double)summary->latency.p999_ns).text, format_ns((double)summary->latency.max_ns).text);
    (void)printf("  inside    queue %s, execution %s", format_ns((double)sum->queue_ns_sum / ok).text,
                 format_ns((double)sum->exec_ns_sum / ok).text);
    if (options->stage_count == 0) {
        (void)printf(", batch %.2f items", (double)sum->batch_items_sum / ok);
    }
    (void)printf(" (means)\n");
    report_stages(options, sum);
    (void)printf(
        "  violated  %.2f %% of %llu: %llu late, %llu rejected, %llu expired, %llu cancelled, %llu failed, %llu lost, "
        "%llu unanswered, %llu not sent\n",
        bench_violation_rate(sum) * 100, (unsigned long long)sum->offered, (unsigned long long)sum->late,
        (unsigned long long)sum->rejected, (unsigned long long)sum->expired, (unsigned long long)sum->cancelled,
        (unsigned long long)sum->failed, (unsigned long long)sum->lost, (unsigned long long)sum->unanswered,
        (unsigned long long)(sum->offered - sum->sent));
    (void)printf("  sending   p50 %s, p99 %s, max %s behind; %llu waited for a slot\n",
                 format_ns((double)summary->delay.p50_ns).text, format_ns((double)summary->delay.p99_ns).text,
                 format_ns((double)summary->delay.max_ns).text, (unsigned long long)sum->slot_waits);
    if (sum->clipped > 0) {
        (void)printf("  sizes     %llu of %llu were drawn larger than the model's largest batch and cut to that\n",
                     (unsigned long long)sum->clipped, (unsigned long long)sum->offered);
    }
    if (sum->items_labelled > 0) {
        (void)printf("  accuracy  %.2f %% of %llu answers\n", accuracy_of(sum) * 100,
                     (unsigned long long)sum->items_labelled);
    }
    if (sum->accuracy_in_time.count > 0) {
        (void)printf("  stated    accuracy of %.2f %%, of the variants that gave %llu answers in time (mean)\n",
                     stated_accuracy_of(sum) * 100, (unsigned long long)sum->accuracy_in_time.count);
    }
    if (sum->accuracy_ok.count > sum->accuracy_in_time.count) {
        (void)printf("  served    accuracy of %.2f %%, of all %llu answers, late ones too\n", served_accuracy_of(sum) * 100,
                     (unsigned long long)sum->accuracy_ok.count);
    }
    report_variants(summary);
}

void
bench_report(const struct bench_options *options, const struct bench_summary *summary)
{
    if (options->json) {
        print_json(bench_report_json(options, summary));
    } else {
        report_text(options, summary);
    }
}
