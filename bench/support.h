/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/support.h - what every bench needs: options, pinning, order statistics, rows and verdicts.
 *
 * Role      A bench measures in windows, its subject and its peers taking turns; a figure is the median over windows,
 *           a ratio the median of the ratios within each round. A row states one figure; a row with a target
 *           also states the verdict.
 * Output    A table for people, or with --json one object a line as kept in bench/records/.
 */
#ifndef LEAT_BENCH_SUPPORT_H
#define LEAT_BENCH_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { BENCH_WINDOWS_MAX = 1000, BENCH_CPUS_MAX = 64 };

/* An option of one bench alone, with a value. */
struct bench_option {
    const char *name;  /* NULL ends a list */
    const char *value; /* NULL: not given */
};

struct bench_options {
    const char *name;     /* of the bench, in every row */
    uint32_t windows;     /* of each case */
    uint64_t window_ns;   /* length of each */
    bool smoke;           /* tiny windows, correctness only: prints no figure */
    bool json;
    bool hold_dma_latency; /* the bench is to hold /dev/cpu_dma_latency at 0; offered by benches with a daemon */
    int cpus[BENCH_CPUS_MAX];
    uint32_t cpu_count;
    const char *daemon_path; /* NULL: this bench starts none */
    struct bench_option *own; /* NULL: it has none; `measures` says what they mean */
};

/* Returns true to go on; otherwise the process ends with *ret_exit. `measures` is the help text. */
bool bench_parse(int argc, char **argv, const char *measures, struct bench_options *options, int *ret_exit);

/* Is it one of the words of a list, with commas between? */
bool bench_is_listed(const char *list, const char *name);

void bench_pin(const int *cpus, uint32_t count);

/*
 * How fast the slowest of CPUs multiplies, all at the same time, beside the fastest that any was seen to in this process:
 * 1 for cores of their own, 0.5 to 0.7 where a hyperthread beside one has work, perhaps another guest's, of which the host
 * tells nothing. Tried again for up to 200 ms, as others' threads may still spin. One thread at a time.
 */
double bench_speed(const int *cpus, uint32_t count);
/* What so many steps of that take on this CPU, of the widest vectors that it has, in ns: 1500 about 10 us. Touches no memory. */
uint64_t bench_multiply(uint32_t steps);

/* A child that dies with this process. Returns 0 in the child, as fork does. */
pid_t bench_fork(void);
void bench_reap(pid_t child); /* waits; the child must have ended with 0 */

/* Holds /dev/cpu_dma_latency at 0, which keeps idle CPUs out of deep sleep. -1, and errno, where that is not allowed. */
int bench_hold_dma_latency(void);

struct bench_latency {
    uint64_t p50, p99, p999, max, count;
};

/* Sorts. count >= 1. */
struct bench_latency bench_order(uint64_t *samples_ns, uint64_t count);
double bench_median(const double *values, uint32_t count); /* 0 when there is none */

enum bench_goal { BENCH_NO_GOAL, BENCH_AT_MOST, BENCH_AT_LEAST };

struct bench_row {
    const char *subject;
    const char *metric; /* p50, p99, throughput, worst / median ... */
    double value;
    const char *unit;
    uint32_t windows;
    double worst;     /* value of the worst window; 0: not told */
    const char *peer; /* NULL: no ratio */
    const char *peer_version; /* NULL: it is part of this bench */
    double ratio;     /* subject / peer unless the metric says otherwise */
    enum bench_goal goal;
    double target; /* of the ratio, or of the value when there is no peer */
};

void bench_print(const struct bench_options *options, const struct bench_row *row);
/* A peer that this build or machine lacks, and what would bring it. */
void bench_print_missing(const struct bench_options *options, const char *peer, const char *why);
/* Anything else that a reader of the figures must know; nothing in the smoke size. */
void bench_note(const struct bench_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The load average: others' work on the machine, which figures do not survive. */
void bench_note_load(const struct bench_options *options);

#endif /* LEAT_BENCH_SUPPORT_H */
