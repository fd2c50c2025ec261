/* SPDX-License-Identifier: Apache-2.0 */
/* leat bench --search: the highest rate at which few enough queries are violated, by bisection in real time. */
#include "tools/cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/cli/cli.h"

#define VIOLATIONS_MIN 10 /* in a trial at the allowable rate */

struct search {
    const struct bench_options *options;
    json_t *trials;
    double allowable_qps; /* the highest rate that held; 0: none did */
};

/* EXIT_DONE, and whether the rate holds. */
static int
try_rate(struct search *search, double rate_qps, bool *ret_holds)
{
    const struct bench_options *options = search->options;
    const bool shown = isatty(STDERR_FILENO) != 0;
    struct bench_summary summary;

    if (shown) {
        (void)fprintf(stderr, "trial %zu: %.4g queries/s ...", json_array_size(search->trials) + 1, rate_qps);
    }
    const int exit_code = bench_run(options, rate_qps, &summary);
    if (shown) {
        (void)fprintf(stderr, "\r\033[K");
    }
    if (exit_code != EXIT_DONE) {
        return exit_code;
    }
    const double rate = bench_violation_rate(&summary.sum);
    const bool limited = bench_generator_limited(options, &summary);
    *ret_holds = rate <= options->violation_share;
    if (*ret_holds) {
        search->allowable_qps = rate_qps;
    }
    json_t *trial = bench_report_json(options, &summary);
    json_decref(summary.names_before);
    json_decref(summary.names_after);
    (void)json_object_set_new(trial, "rate_qps", json_real(rate_qps));
    (void)json_object_set_new(trial, "holds", json_boolean(*ret_holds));
    (void)json_object_set_new(trial, "generator_limited", json_boolean(limited));
    (void)json_array_append_new(search->trials, trial);
    if (!options->json) {
        (void)printf("%10.4g queries/s: %6.2f %% of %llu violated, p99 %s, sent p99 %s behind: %s%s\n", rate_qps,
                     rate * 100, (unsigned long long)summary.sum.offered,
                     format_ns((double)summary.latency.p99_ns).text, format_ns((double)summary.delay.p99_ns).text,
                     *ret_holds ? "holds" : "too much",
                     limited ? " (the load generator was late, or sent too little)" : "");
    }
    return EXIT_DONE;
}

/* The ends first: between them there is something to find only if the lower one holds and the upper one does not. */
static int
bisect(struct search *search)
{
    const struct bench_options *options = search->options;
    double low_qps = options->rate_min_qps, high_qps = options->rate_max_qps;
    bool holds = false;

    int exit_code = try_rate(search, low_qps, &holds);
    if (exit_code != EXIT_DONE || !holds) {
        return exit_code;
    }
    exit_code = try_rate(search, high_qps, &holds);
    if (exit_code != EXIT_DONE || holds) {
        return exit_code;
    }
    while (low_qps < high_qps * (1 - options->tolerance)) {
        const double middle_qps = sqrt(low_qps * high_qps);
        exit_code = try_rate(search, middle_qps, &holds);
        if (exit_code != EXIT_DONE) {
            return exit_code;
        }
        if (holds) {
            low_qps = middle_qps;
        } else {
            high_qps = middle_qps;
        }
    }
    return EXIT_DONE;
}

static void
report_search(const struct search *search)
{
    const struct bench_options *options = search->options;

    if (options->json) {
        json_t *object = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:O}", "target", options->target, "arrivals",
                                   options->arrivals_text, "objective_ns", (json_int_t)options->objective_ns,
                                   "violation_share", options->violation_share, "rate_min_qps", options->rate_min_qps,
                                   "rate_max_qps", options->rate_max_qps, "tolerance", options->tolerance,
                                   "allowable_qps", search->allowable_qps, "trials", search->trials);
        print_json(object);
    } else if (search->allowable_qps == 0) {
        (void)printf("%s: less than --rate-min is allowable\n", options->target);
    } else {
        (void)printf("%s: %.4g queries/s allowable%s, with at most %g %% violated\n", options->target,
                     search->allowable_qps, search->allowable_qps == options->rate_max_qps ? " or more" : "",
                     options->violation_share * 100);
    }
}

/* Whether a rate holds is counted in violations: the fewer there may be, the more of the answer is luck. */
static void
warn_of_luck(const struct bench_options *options)
{
    const double queries = options->queries > 0 ? (double)options->queries
                                                : options->rate_min_qps * (double)options->duration_ns / 1e9;

    if (queries * options->violation_share < VIOLATIONS_MIN) {
        (void)fprintf(stderr,
                      "leat bench: warning: %g violations of %.0f queries in a trial are few to tell luck from load: "
                      "%.0f queries would allow %d\n",
                      queries * options->violation_share, queries, ceil(VIOLATIONS_MIN / options->violation_share),
                      VIOLATIONS_MIN);
    }
}

int
bench_search(const struct bench_options *options)
{
    struct search search = {.options = options, .trials = json_array()};

    warn_of_luck(options);
    const int exit_code = bisect(&search);
    if (exit_code == EXIT_DONE) {
        report_search(&search);
    }
    json_decref(search.trials);
    return exit_code;
}
