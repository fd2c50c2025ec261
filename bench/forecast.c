/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "tools/cli/simulate_forecast.h"

static const char measures[] =
    "Measures   How far forecasts of the load are off: mean absolute error over the highest second of ten, in percent (MAPE), on days\n"
    "           15 to 19 of the trace that --twitter names, queries second by second, one a line; none of them learned from those.\n"
    "           And what a forecast costs, the network's with its working memory.\n"
    "Beside it  The paper's network forecasts in less than 30 ms.\n"
    "Does not   count what the windows of the load cost.\n"
    "Method     One thread, the subjects taking turns, a window each. Times are medians over windows of each window's\n"
    "           percentile; a call is timed by itself, and the clock's own time is in it.";

enum { DAY_S = 86400, FIRST_DAY = 14, LAST_DAY = 19, WINDOWS_MAX = 5 * DAY_S / 10, SAMPLES_MAX = 1 << 16 };
enum { SUBJECTS = LEAT_FORECASTS + 2 };

static struct subject {
    const char *name;
    struct forecaster forecaster;
    double p50[BENCH_WINDOWS_MAX], p99[BENCH_WINDOWS_MAX];
} subjects[SUBJECTS];

static double maxima_qps[WINDOWS_MAX];
static uint32_t window_count;
static uint64_t samples_ns[SAMPLES_MAX];
static volatile double sink;

/* Seconds without a query are gaps of the recording. */
static void
add_second(double qps, uint32_t *seconds)
{
    if (qps > 0 && *seconds / LEAT_FORECAST_WINDOW_S < WINDOWS_MAX) {
        double *most_qps = &maxima_qps[(*seconds)++ / LEAT_FORECAST_WINDOW_S];
        *most_qps = fmax(*most_qps, qps);
    }
}

static bool
read_trace(const char *path)
{
    FILE *file = fopen(path, "r");
    uint32_t lines = 0, seconds = 0;
    double qps;

    for (; file != NULL && lines < LAST_DAY * DAY_S && fscanf(file, "%lf", &qps) == 1; lines++) {
        if (lines >= FIRST_DAY * DAY_S) {
            add_second(qps, &seconds);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    window_count = seconds / LEAT_FORECAST_WINDOW_S;
    return lines == LAST_DAY * DAY_S;
}

/* To be timed on, where there is no trace. */
static void
draw_windows(void)
{
    uint64_t random_state = 1;

    for (window_count = 0; window_count < 1000; window_count++) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        maxima_qps[window_count] = 20 + (double)(random_state >> 33 & 63);
    }
}

static double
mape_percent(struct subject *subject)
{
    double sum = 0;

    for (uint32_t w = LEAT_FORECAST_WINDOWS; w < window_count; w++) {
        const double qps = forecaster_qps(&subject->forecaster, &maxima_qps[w - LEAT_FORECAST_WINDOWS]);
        sum += fabs(qps - maxima_qps[w]) / maxima_qps[w];
    }
    return 100 * sum / (window_count - LEAT_FORECAST_WINDOWS);
}

static struct bench_latency
time_window(const struct leat_clock *clock, struct subject *subject, uint64_t window_ns)
{
    const uint64_t begin_ns = leat_clock_now(clock);
    uint64_t count = 0, before_ns = begin_ns;
    double sum = 0;

    while (count < SAMPLES_MAX && before_ns - begin_ns < window_ns) {
        const double *windows = &maxima_qps[count % (window_count - LEAT_FORECAST_WINDOWS)];
        before_ns = leat_clock_now(clock);
        sum += forecaster_qps(&subject->forecaster, windows);
        samples_ns[count++] = leat_clock_now(clock) - before_ns;
    }
    sink = sum;
    return bench_order(samples_ns, count);
}

static void
open_subjects(void)
{
    for (enum leat_forecast forecast = LEAT_FORECAST_LAST; forecast < LEAT_FORECASTS; forecast++) {
        subjects[forecast].name = leat_forecast_name(forecast);
        LEAT_MUST(forecaster_open(subjects[forecast].name, &leat_backend_cpu, 1, &subjects[forecast].forecaster) == LEAT_OK);
    }
    subjects[LEAT_FORECASTS].name = "lstm";
    subjects[LEAT_FORECASTS + 1].name = "lstm, reference";
    LEAT_MUST(forecaster_open(LEAT_BENCH_LSTM, &leat_backend_cpu, 1, &subjects[LEAT_FORECASTS].forecaster) == LEAT_OK);
    LEAT_MUST(forecaster_open(LEAT_BENCH_LSTM, &leat_backend_reference, 1, &subjects[LEAT_FORECASTS + 1].forecaster) == LEAT_OK);
}

int
main(int argc, char **argv)
{
    struct bench_option own[] = {{"twitter", NULL}, {NULL, NULL}};
    struct bench_options options = {.name = "forecast", .windows = 20, .window_ns = 5000000, .own = own};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    open_subjects();
    if (own[0].value != NULL && !read_trace(own[0].value)) {
        (void)fprintf(stderr, "forecast: %s has no %d days of queries, second by second\n", own[0].value, LAST_DAY);
        return 1;
    }
    if (own[0].value == NULL) {
        draw_windows();
        bench_print_missing(&options, "MAPE", "no trace: --twitter FILE names it");
    }
    for (uint32_t w = 0; w < options.windows; w++) {
        for (uint32_t s = 0; s < SUBJECTS; s++) {
            const struct bench_latency order = time_window(&clock, &subjects[s], options.window_ns);
            subjects[s].p50[w] = (double)order.p50;
            subjects[s].p99[w] = (double)order.p99;
        }
    }
    for (uint32_t s = 0; s < SUBJECTS; s++) {
        struct subject *subject = &subjects[s];
        if (own[0].value != NULL) {
            bench_print(&options, &(struct bench_row){.subject = subject->name, .metric = "MAPE", .unit = "%", .windows = 1,
                                                      .value = mape_percent(subject)});
        }
        bench_print(&options, &(struct bench_row){.subject = subject->name, .metric = "p50", .unit = "ns", .windows = options.windows,
                                                  .value = bench_median(subject->p50, options.windows)});
        bench_print(&options, &(struct bench_row){.subject = subject->name, .metric = "p99", .unit = "ns", .windows = options.windows,
                                                  .value = bench_median(subject->p99, options.windows), .goal = BENCH_AT_MOST, .target = 30e6});
        LEAT_MUST(!atomic_load_explicit(&subject->forecaster.failed, memory_order_relaxed));
        forecaster_close(&subject->forecaster);
    }
    bench_note_load(&options);
    return 0;
}
