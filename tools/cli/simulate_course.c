/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/simulate_course.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/align.h"
#include "tools/cli/output.h"
#include "tools/simulate/plot.h"

#define BIN_S 5u /* of the figures */

static void
write_csv(const void *of, FILE *out)
{
    const struct course *course = of;

    (void)fprintf(out, "source,%s,seed,second,arrived,violated,%s\n", course->subject, course->used);
    for (uint32_t i = 0; i < course->subject_count; i++) {
        for (uint64_t s = 0; s < course->seed_count; s++) {
            const struct simulate_second *seconds = course->seconds(course->of, i, s);
            for (uint32_t n = 0; n < course->second_count; n++) {
                (void)fprintf(out, "simulated,%s,%llu,%u,%u,%u,%.6g\n", course->names[i], (unsigned long long)(course->seed + s), n,
                              seconds[n].arrived, seconds[n].violated, seconds[n].used);
            }
        }
    }
}

/* NULL: no memory. */
static double *
series_of(const struct course *course, uint32_t subject, bool violations, uint32_t bins)
{
    double *values = calloc(bins, sizeof(*values)), *weights = calloc(bins, sizeof(*weights));

    for (uint64_t s = 0; s < course->seed_count && values != NULL && weights != NULL; s++) {
        const struct simulate_second *seconds = course->seconds(course->of, subject, s);
        for (uint32_t n = 0; n < course->second_count; n++) {
            values[n / BIN_S] += violations ? 100.0 * seconds[n].violated : seconds[n].used;
            weights[n / BIN_S] += violations ? seconds[n].arrived : 1;
        }
    }
    for (uint32_t b = 0; b < bins && values != NULL && weights != NULL; b++) {
        values[b] = weights[b] > 0 ? values[b] / weights[b] : NAN;
    }
    free(weights);
    return values;
}

/* Nothing is written where there is no memory: the caller says so. */
static void
write_figure(const struct course *course, bool violations, FILE *out)
{
    const uint32_t bins = (course->second_count + BIN_S - 1) / BIN_S;
    struct plot_series series[COURSE_SUBJECTS_MAX];
    double *x = malloc(bins * sizeof(*x));
    bool good = x != NULL;

    for (uint32_t b = 0; b < bins && good; b++) {
        x[b] = b * BIN_S;
    }
    for (uint32_t i = 0; i < course->subject_count; i++) {
        series[i] = (struct plot_series){.name = course->names[i], .values = series_of(course, i, violations, bins)};
        good = good && series[i].values != NULL;
    }
    const struct plot plot = {.title = violations ? "Violations over time (simulated)" : course->used_title,
                              .subtitle = course->conditions,
                              .x_label = "seconds",
                              .y_label = violations ? "violations, % of queries" : course->used_label,
                              .count = bins,
                              .x = x,
                              .series_count = course->subject_count,
                              .series = series};
    if (good) {
        plot_lines(&plot, out);
    }
    for (uint32_t i = 0; i < course->subject_count; i++) {
        free((double *)(uintptr_t)series[i].values);
    }
    free(x);
}

static void
write_used(const void *of, FILE *out)
{
    write_figure(of, false, out);
}

static void
write_violations(const void *of, FILE *out)
{
    write_figure(of, true, out);
}

enum leat_status
course_write_files(const struct course *course, const char *csv_path, const char *used_svg_path, const char *violations_svg_path)
{
    const struct output outputs[] = {{csv_path, write_csv}, {used_svg_path, write_used}, {violations_svg_path, write_violations}};
    return output_write(outputs, LEAT_COUNT_OF(outputs), course);
}
