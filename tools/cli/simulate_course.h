/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/cli/simulate_course.h - `leat simulate` where a load that changes is served: what all kinds of it have in common.
 *
 * Role   Who serves (subjects: scalers, policies) is compared over seeds, on the same arrivals. A kind says what there is
 *        to compare and adds options of its own; here are the others, the load, the runs, and results as JSON, as CSV and
 *        as figures over time.
 */
#ifndef LEAT_TOOLS_CLI_SIMULATE_COURSE_H
#define LEAT_TOOLS_CLI_SIMULATE_COURSE_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/status.h"
#include "tools/simulate/arrivals.h"
#include "tools/simulate/second.h"

enum { COURSE_SUBJECTS_MAX = 16, COURSE_SEEDS_MAX = 1000 };

struct course_kind;

/* The first member of what a kind was asked. */
struct course {
    const struct course_kind *kind;
    const char *trace_path, *csv_path, *svg_path, *violations_svg_path;
    char *subject_text; /* ours; commas between names */
    uint64_t duration_ns, seed, seed_count, threads;
    double rate_qps, drop_multiple;
    bool json, help;

    struct rates rates;
    uint32_t subjects[COURSE_SUBJECTS_MAX], subject_count; /* indices of names */
    void *results; /* [subject_count][seed_count] */
};

struct course_kind {
    const char *subject;                 /* "scaler": an option, a column of the CSV, a key */
    const char *used;                    /* "cores": a column */
    const char *used_title, *used_label; /* of the figure */
    const char *const *names;            /* [name_count], of subjects */
    uint32_t name_count, first, end;     /* unless they are named, first..end-1 are compared */
    const char *const *keys;             /* [key_count], of a run's values */
    uint32_t key_count;
    const struct option *options; /* the last are COURSE_OPTIONS(subject) */
    size_t result_bytes;

    void (*help)(void);
    bool (*take)(struct course *course, int option); /* optarg; false: no option of the kind, or no value for it */
    /* Exit codes, and if not EXIT_DONE it is said why. check: of what was asked; read: inputs beside the trace. */
    int (*check)(struct course *course);
    int (*read)(struct course *course);
    /* Many threads at once. */
    enum leat_status (*run)(struct course *course, uint32_t subject, uint64_t seed, void *ret_result);
    void (*free_result)(void *result); /* accepts zeroes */
    /* Of a result; NAN: it has none. */
    double (*value)(const void *result, uint32_t key);
    const struct simulate_second *(*seconds)(const void *result, uint32_t *ret_count);
    /* In words, what all runs have in common beside load and seeds; as JSON; and a table of results for people. */
    void (*describe)(const struct course *course, char *text, size_t room);
    void (*add_members)(const struct course *course, json_t *object);
    void (*print_table)(const struct course *course, const char *conditions);
};

enum { COURSE_OPTION_SUBJECTS = 512, COURSE_OPTION_THREADS };
#define COURSE_OPTIONS(subject)                                                                   \
    {subject, required_argument, NULL, COURSE_OPTION_SUBJECTS}, {"help", no_argument, NULL, 'h'}, \
        {"json", no_argument, NULL, 'j'}, {"trace", required_argument, NULL, 'T'},                \
        {"rate", required_argument, NULL, 'R'}, {"duration", required_argument, NULL, 'u'},       \
        {"drop", required_argument, NULL, 'd'}, {"seed", required_argument, NULL, 'e'},           \
        {"seeds", required_argument, NULL, 'E'}, {"csv", required_argument, NULL, 'C'},           \
        {"svg", required_argument, NULL, 'V'}, {"violations-svg", required_argument, NULL, 'W'},  \
        {"threads", required_argument, NULL, COURSE_OPTION_THREADS}, {NULL, 0, NULL, 0}

/* The verb, from options to files; `course` has defaults of the kind's own, the rest zeroes. Returns the exit code. */
int course_main(const struct course_kind *kind, struct course *course, int argc, char **argv);

/* Times that a simulation may have. */
bool course_parse_ns(const char *text, uint64_t *ret_ns);

/* Of all seeds. */
struct course_spread {
    double mean, min, max;
};
struct course_spread course_spread_of(const struct course *course, uint32_t subject, uint32_t key);

const char *course_subject_name(const struct course *course, uint32_t subject);

#endif /* LEAT_TOOLS_CLI_SIMULATE_COURSE_H */
