/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/simulate_course.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "tools/cli/cli.h"
#include "tools/cli/output.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/plot.h"
#include "tools/simulate/simulate.h"

#define VERB             "simulate"
#define THREADS_MAX      256u
#define SECOND_NS        UINT64_C(1000000000)
#define CONDITIONS_BYTES 600
#define BIN_S            5u /* of the figures */

/* ---- Options ----------------------------------------------------------------------------------- */

bool
course_parse_ns(const char *text, uint64_t *ret_ns)
{
    return parse_duration_ns(text, ret_ns) && *ret_ns <= UINT64_C(1000000) * SECOND_NS;
}

static bool
take_option(struct course *course, int option)
{
    switch (option) {
    case 'h': course->help = true; return true;
    case 'j': course->json = true; return true;
    case 'T': course->trace_path = optarg; return true;
    case 'R': return parse_double(optarg, 1e-3, RATES_QPS_MAX, &course->rate_qps);
    case 'u': return course_parse_ns(optarg, &course->duration_ns);
    case 'd': return parse_double(optarg, 0, 1000, &course->drop_multiple);
    case 'e': return parse_u64(optarg, 0, UINT64_MAX - COURSE_SEEDS_MAX, &course->seed);
    case 'E': return parse_u64(optarg, 1, COURSE_SEEDS_MAX, &course->seed_count);
    case 'C': course->csv_path = optarg; return true;
    case 'V': course->svg_path = optarg; return true;
    case 'W': course->violations_svg_path = optarg; return true;
    case COURSE_OPTION_THREADS: return parse_u64(optarg, 1, THREADS_MAX, &course->threads);
    case COURSE_OPTION_SUBJECTS:
        free(course->subject_text);
        course->subject_text = strdup(optarg);
        return course->subject_text != NULL;
    default: return course->kind->take(course, option);
    }
}

static bool
parse_options(int argc, char **argv, struct course *course)
{
    bool good = true;
    int option;

    opterr = 0;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", course->kind->options, NULL)) != -1) {
        good = take_option(course, option);
    }
    if (!good) {
        (void)option_error(VERB, argv);
    } else if (optind != argc && !course->help) {
        (void)usage_error(VERB, "'%s' is no option", argv[optind]);
        good = false;
    }
    return good;
}

/* ---- Inputs: EXIT_DONE, or what went wrong is said --------------------------------------------- */

static int
check_options(struct course *course)
{
    const struct {
        const char *option, *path;
    } files[] = {
        {"--csv", course->csv_path}, {"--svg", course->svg_path}, {"--violations-svg", course->violations_svg_path}};

    int exit_code = course->kind->check(course);
    if (exit_code == EXIT_DONE && course->trace_path == NULL) {
        exit_code = usage_error(VERB, "--trace is needed");
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(files) && exit_code == EXIT_DONE; i++) {
        exit_code = output_check(VERB, files[i].option, files[i].path);
    }
    return exit_code;
}

static int
add_subject(struct course *course, const char *name)
{
    for (uint32_t known = 0; known < course->kind->name_count; known++) {
        if (strcmp(name, course->kind->names[known]) == 0 && course->subject_count < COURSE_SUBJECTS_MAX) {
            course->subjects[course->subject_count++] = known;
            return EXIT_DONE;
        }
    }
    return usage_error(VERB, "--%s: '%s' is none, or there are too many", course->kind->subject, name);
}

static int
read_subjects(struct course *course)
{
    char *rest = NULL;
    int exit_code = EXIT_DONE;

    for (uint32_t known = course->kind->first; known < course->kind->end && course->subject_text == NULL; known++) {
        course->subjects[course->subject_count++] = known;
    }
    for (char *name = course->subject_text != NULL ? strtok_r(course->subject_text, ",", &rest) : NULL;
         name != NULL && exit_code == EXIT_DONE; name = strtok_r(NULL, ",", &rest)) {
        exit_code = add_subject(course, name);
    }
    return exit_code != EXIT_DONE || course->subject_count > 0 ? exit_code
                                                               : usage_error(VERB, "--%s: no name", course->kind->subject);
}

static int
read_trace(struct course *course)
{
    if (rates_read(course->trace_path, 0, &course->rates) != LEAT_OK) {
        return report_failure(VERB);
    }
    if (course->rate_qps > 0) {
        rates_scale(&course->rates, course->rate_qps / rates_mean_qps(&course->rates));
    }
    if (course->duration_ns == 0) {
        course->duration_ns = (uint64_t)(course->rates.steps[course->rates.count - 1].end_s * 1e9);
    }
    const double queries = rates_mean_qps(&course->rates) * (double)course->duration_ns / 1e9;
    return queries <= SIMULATE_QUERIES_MAX
               ? EXIT_DONE
               : usage_error(VERB, "%.3g queries in a run; there can be %.3g: a lower --rate, or a shorter --duration", queries,
                             (double)SIMULATE_QUERIES_MAX);
}

/* ---- Runs -------------------------------------------------------------------------------------- */

static void *
result_at(const struct course *course, uint32_t subject, uint64_t seed)
{
    return (char *)course->results + (subject * course->seed_count + seed) * course->kind->result_bytes;
}

static enum leat_status
run_case(struct simulate_run *unused, uint32_t index, void *context)
{
    struct course *course = context;
    const uint32_t subject = index / (uint32_t)course->seed_count;
    const uint64_t seed = index % course->seed_count;

    (void)unused;
    return course->kind->run(course, course->subjects[subject], course->seed + seed, result_at(course, subject, seed));
}

static int
run_all(struct course *course)
{
    const uint32_t count = course->subject_count * (uint32_t)course->seed_count;

    course->results = calloc(count, course->kind->result_bytes);
    if (course->results == NULL) {
        (void)LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %u runs", count);
        return report_failure(VERB);
    }
    return simulate_parallel((uint32_t)course->threads, count, run_case, course, NULL, NULL) == LEAT_OK
               ? EXIT_DONE
               : report_failure(VERB);
}

/* ---- Text and JSON ----------------------------------------------------------------------------- */

struct course_spread
course_spread_of(const struct course *course, uint32_t subject, uint32_t key)
{
    struct course_spread spread = {.mean = 0, .min = INFINITY, .max = -INFINITY};

    for (uint64_t s = 0; s < course->seed_count; s++) {
        const double value = course->kind->value(result_at(course, subject, s), key);
        spread.mean += value / (double)course->seed_count;
        spread.min = fmin(spread.min, value);
        spread.max = fmax(spread.max, value);
    }
    return spread;
}

const char *
course_subject_name(const struct course *course, uint32_t subject)
{
    return course->kind->names[course->subjects[subject]];
}

static void
describe(const struct course *course, char text[CONDITIONS_BYTES])
{
    course->kind->describe(course, text, CONDITIONS_BYTES);
    const size_t used = strlen(text);
    (void)snprintf(text + used, CONDITIONS_BYTES - used, "; %.4g queries/s for %s; %llu seed%s from %llu",
                   rates_mean_qps(&course->rates), format_ns((double)course->duration_ns).text,
                   (unsigned long long)course->seed_count, course->seed_count == 1 ? "" : "s",
                   (unsigned long long)course->seed);
}

/* The values of each seed. */
static json_t *
subject_json(const struct course *course, uint32_t subject)
{
    json_t *object = json_object();

    set_member(object, course->kind->subject, json_string(course_subject_name(course, subject)));
    for (uint32_t key = 0; key < course->kind->key_count; key++) {
        json_t *array = json_array();
        for (uint64_t s = 0; s < course->seed_count; s++) {
            const double value = course->kind->value(result_at(course, subject, s), key);
            (void)json_array_append_new(array, isfinite(value) ? json_real(value) : json_null());
        }
        set_member(object, course->kind->keys[key], array);
    }
    return object;
}

static json_t *
course_json(const struct course *course)
{
    json_t *object = json_object(), *results = json_array();

    set_member(object, "simulated", json_true());
    course->kind->add_members(course, object);
    set_member(object, "trace", json_string(course->trace_path));
    set_member(object, "rate_mean_qps", json_real(rates_mean_qps(&course->rates)));
    set_member(object, "duration_ns", json_integer((json_int_t)course->duration_ns));
    set_member(object, "drop_multiple", json_real(course->drop_multiple));
    set_member(object, "seed", json_integer((json_int_t)course->seed));
    set_member(object, "seeds", json_integer((json_int_t)course->seed_count));
    for (uint32_t i = 0; i < course->subject_count; i++) {
        (void)json_array_append_new(results, subject_json(course, i));
    }
    set_member(object, "results", results);
    return object;
}

static void
report(const struct course *course)
{
    char conditions[CONDITIONS_BYTES];

    if (course->json) {
        print_json(course_json(course));
    } else {
        describe(course, conditions);
        course->kind->print_table(course, conditions);
    }
}

/* ---- Files ------------------------------------------------------------------------------------- */

static void
write_csv(const void *of, FILE *out)
{
    const struct course *course = of;

    (void)fprintf(out, "source,%s,seed,second,arrived,violated,%s\n", course->kind->subject, course->kind->used);
    for (uint32_t i = 0; i < course->subject_count; i++) {
        for (uint64_t s = 0; s < course->seed_count; s++) {
            uint32_t second_count;
            const struct simulate_second *seconds = course->kind->seconds(result_at(course, i, s), &second_count);
            for (uint32_t n = 0; n < second_count; n++) {
                (void)fprintf(out, "simulated,%s,%llu,%u,%u,%u,%.6g\n", course_subject_name(course, i),
                              (unsigned long long)(course->seed + s), n, seconds[n].arrived, seconds[n].violated,
                              seconds[n].used);
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
        uint32_t second_count;
        const struct simulate_second *seconds = course->kind->seconds(result_at(course, subject, s), &second_count);
        for (uint32_t n = 0; n < second_count; n++) {
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
    struct plot_series series[COURSE_SUBJECTS_MAX];
    char conditions[CONDITIONS_BYTES];
    uint32_t second_count;
    (void)course->kind->seconds(result_at(course, 0, 0), &second_count); /* of all runs */
    const uint32_t bins = (second_count + BIN_S - 1) / BIN_S;
    double *x = malloc(bins * sizeof(*x));
    bool good = x != NULL;

    for (uint32_t b = 0; b < bins && good; b++) {
        x[b] = b * BIN_S;
    }
    for (uint32_t i = 0; i < course->subject_count; i++) {
        series[i] =
            (struct plot_series){.name = course_subject_name(course, i), .values = series_of(course, i, violations, bins)};
        good = good && series[i].values != NULL;
    }
    describe(course, conditions);
    const struct plot plot = {.title = violations ? "Violations over time (simulated)" : course->kind->used_title,
                              .subtitle = conditions,
                              .x_label = "seconds",
                              .y_label = violations ? "violations, % of queries" : course->kind->used_label,
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

/* What was asked for; in figures means of some seconds and all seeds. */
static int
write_files(const struct course *course)
{
    const struct output outputs[] = {
        {course->csv_path, write_csv}, {course->svg_path, write_used}, {course->violations_svg_path, write_violations}};
    return output_write(outputs, LEAT_COUNT_OF(outputs), course) == LEAT_OK ? EXIT_DONE : report_failure(VERB);
}

/* ---- All of it --------------------------------------------------------------------------------- */

static void
free_course(struct course *course)
{
    for (uint32_t i = 0; course->results != NULL && i < course->subject_count; i++) {
        for (uint64_t s = 0; s < course->seed_count; s++) {
            course->kind->free_result(result_at(course, i, s));
        }
    }
    free(course->results);
    free(course->subject_text);
    rates_free(&course->rates);
}

int
course_main(const struct course_kind *kind, struct course *course, int argc, char **argv)
{
    int (*const steps[])(struct course *) = {check_options, read_subjects, kind->read, read_trace, run_all};
    int exit_code = EXIT_DONE;

    course->kind = kind;
    course->drop_multiple = 1;
    course->seed = course->seed_count = 1;
    course->threads = simulate_core_count();
    if (!parse_options(argc, argv, course)) {
        exit_code = EXIT_USAGE;
    } else if (course->help) {
        kind->help();
    } else {
        for (size_t i = 0; i < LEAT_COUNT_OF(steps) && exit_code == EXIT_DONE; i++) {
            exit_code = steps[i](course);
        }
        if (exit_code == EXIT_DONE) {
            report(course);
            exit_code = write_files(course);
        }
    }
    free_course(course);
    return exit_code;
}
