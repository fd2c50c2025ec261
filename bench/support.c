/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"

/* ---- Options ---------------------------------------------------------------------------------- */

static void
usage(FILE *file, const char *measures, const struct bench_options *options)
{
    (void)fprintf(file, "usage: bench_%s [options]\n\n%s\n\n", options->name, measures);
    (void)fprintf(file,
                  "  --windows N         windows of each case (%u)\n"
                  "  --window-ms N       length of each (%llu)\n"
                  "  --cpus A,B,...      CPUs to run on (those it may)\n"
                  "  --json              one object a line instead of a table\n"
                  "  --smoke             tiny windows that check correctness and print no figure\n",
                  options->windows, (unsigned long long)(options->window_ns / 1000000));
    if (options->daemon_path != NULL) {
        (void)fprintf(file, "  --hold-dma-latency  hold /dev/cpu_dma_latency at 0 for every case\n"
                            "  --daemon PATH       the leatd to measure\n");
    }
}

static bool
parse_cpus(const char *text, struct bench_options *options)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    options->cpu_count = 0;
    while (*text != '\0') {
        char *end;
        const long cpu = strtol(text, &end, 10);
        if (end == text || cpu < 0 || cpu >= online || options->cpu_count == BENCH_CPUS_MAX) {
            return false;
        }
        options->cpus[options->cpu_count++] = (int)cpu;
        text = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0') {
            return false;
        }
    }
    return options->cpu_count > 0;
}

static bool
parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < low || number > high) {
        return false;
    }
    *ret_number = number;
    return true;
}

static bool
parse_option(int option, struct bench_options *options)
{
    uint64_t number;

    switch (option) {
    case 'w':
        if (!parse_number(optarg, 1, BENCH_WINDOWS_MAX, &number)) {
            return false;
        }
        options->windows = (uint32_t)number;
        return true;
    case 'm':
        if (!parse_number(optarg, 1, 60000, &number)) {
            return false;
        }
        options->window_ns = number * 1000000;
        return true;
    case 'c': return parse_cpus(optarg, options);
    case 'j': options->json = true; return true;
    case 'l': options->hold_dma_latency = true; return options->daemon_path != NULL;
    case 's':
        options->smoke = true;
        options->windows = 1;
        options->window_ns = 10000000;
        return true;
    case 'd':
        if (options->daemon_path == NULL) {
            return false;
        }
        options->daemon_path = optarg;
        return true;
    default: return false;
    }
}

bool
bench_parse(int argc, char **argv, const char *measures, struct bench_options *options, int *ret_exit)
{
    enum { OWN = 256, OWN_MAX = 4, KNOWN = 8 };
    struct option known[KNOWN + OWN_MAX + 1] = {
        {"windows", required_argument, NULL, 'w'},    {"window-ms", required_argument, NULL, 'm'},
        {"cpus", required_argument, NULL, 'c'},       {"json", no_argument, NULL, 'j'},
        {"smoke", no_argument, NULL, 's'},            {"daemon", required_argument, NULL, 'd'},
        {"hold-dma-latency", no_argument, NULL, 'l'}, {"help", no_argument, NULL, 'h'}};
    cpu_set_t allowed;
    int option;

    for (int i = 0; options->own != NULL && options->own[i].name != NULL; i++) {
        LEAT_ASSERT(i < OWN_MAX);
        known[KNOWN + i] = (struct option){options->own[i].name, required_argument, NULL, OWN + i};
    }
    LEAT_MUST(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && options->cpu_count < BENCH_CPUS_MAX; cpu++) {
        if (CPU_ISSET((size_t)cpu, &allowed)) {
            options->cpus[options->cpu_count++] = cpu;
        }
    }
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h') {
            usage(stdout, measures, options);
            *ret_exit = 0;
            return false;
        }
        if (option >= OWN) {
            options->own[option - OWN].value = optarg;
        } else if (!parse_option(option, options)) {
            usage(stderr, measures, options);
            *ret_exit = 2;
            return false;
        }
    }
#ifndef __OPTIMIZE__
    if (!options->smoke) {
        (void)fprintf(stderr, "refusing to report numbers from an unoptimised build\n");
        *ret_exit = 2;
        return false;
    }
#endif
    return true;
}

/* ---- Processes and CPUs ----------------------------------------------------------------------- */

bool
bench_is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    const char *at = list;

    while (at != NULL && (strncmp(at, name, length) != 0 || (at[length] != ',' && at[length] != '\0'))) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL;
}

void
bench_pin(const int *cpus, uint32_t count)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < count; i++) {
        CPU_SET((size_t)cpus[i], &set);
    }
    LEAT_MUST(sched_setaffinity(0, sizeof(set), &set) == 0);
}

typedef float speed_vector __attribute__((vector_size(16)));
enum { SPEED_CHAINS = 10, SPEED_STEPS = 1000000, SPEED_TRIES = 12 };
static const double speed_full = 0.9;

struct speed {
    pthread_t thread;
    int cpu;
    atomic_uint *waiting; /* for so many to come */
    uint64_t took_ns;
};

/* As many products as the ports of a core take: more chains than one product's latency has cycles. */
static uint64_t
multiply(uint32_t steps)
{
    speed_vector chains[SPEED_CHAINS];

    for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
        chains[c] = (speed_vector){1, 1, 1, 1};
    }
    const uint64_t start_ns = leat_monotonic_ns();
    for (uint32_t s = 0; s < steps; s++) {
#pragma GCC unroll 10
        for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
            chains[c] = chains[c] * 0.5f + 0.5f;
        }
    }
    for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
        __asm__ volatile("" : : "x"(chains[c]));
    }
    return leat_monotonic_ns() - start_ns;
}

#if defined(__x86_64__)
typedef float wide_vector __attribute__((vector_size(64)));

/* As multiply() with vectors as wide as they get, of which a core multiplies one or two at once. */
__attribute__((target("avx512f"))) static uint64_t
multiply_wide(uint32_t steps)
{
    wide_vector chains[SPEED_CHAINS];

    for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
        chains[c] = (wide_vector){0};
    }
    const uint64_t start_ns = leat_monotonic_ns();
    for (uint32_t s = 0; s < steps; s++) {
#pragma GCC unroll 10
        for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
            chains[c] = chains[c] * 0.5f + 0.5f;
        }
    }
    for (uint32_t c = 0; c < SPEED_CHAINS; c++) {
        __asm__ volatile("" : : "v"(chains[c]));
    }
    return leat_monotonic_ns() - start_ns;
}
#endif

uint64_t
bench_multiply(uint32_t steps)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return multiply_wide(steps);
    }
#endif
    return multiply(steps);
}

static void *
speed_run(void *argument)
{
    struct speed *speed = argument;

    bench_pin(&speed->cpu, 1);
    (void)atomic_fetch_sub(speed->waiting, 1);
    while (atomic_load(speed->waiting) > 0) {
        leat_spin_pause();
    }
    speed->took_ns = multiply(SPEED_STEPS);
    return NULL;
}

/* The longest and, in *least_ns, the shortest so far. */
static uint64_t
speed_try(const int *cpus, uint32_t count, uint64_t *least_ns)
{
    struct speed speeds[BENCH_CPUS_MAX];
    atomic_uint waiting = count;
    uint64_t longest_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        speeds[i] = (struct speed){.cpu = cpus[i], .waiting = &waiting};
        LEAT_MUST(pthread_create(&speeds[i].thread, NULL, speed_run, &speeds[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        LEAT_MUST(pthread_join(speeds[i].thread, NULL) == 0);
        longest_ns = speeds[i].took_ns > longest_ns ? speeds[i].took_ns : longest_ns;
        *least_ns = *least_ns == 0 || speeds[i].took_ns < *least_ns ? speeds[i].took_ns : *least_ns;
    }
    return longest_ns;
}

double
bench_speed(const int *cpus, uint32_t count)
{
    static uint64_t least_ns; /* of all calls */
    double fastest = 0;

    LEAT_ASSERT(count <= BENCH_CPUS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        (void)speed_try(&cpus[i], 1, &least_ns);
    }
    for (uint32_t t = 0; t < SPEED_TRIES && fastest < speed_full; t++) {
        const struct timespec nap = {.tv_nsec = 10000000};
        const uint64_t longest_ns = speed_try(cpus, count, &least_ns);
        const double slowest = (double)least_ns / (double)longest_ns;
        fastest = slowest > fastest ? slowest : fastest;
        if (fastest < speed_full) {
            (void)nanosleep(&nap, NULL);
        }
    }
    return fastest;
}

pid_t
bench_fork(void)
{
    (void)fflush(NULL);
    const pid_t parent = getpid();
    const pid_t child = fork();
    LEAT_ASSERT(child >= 0);
    if (child == 0) {
        LEAT_MUST(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        if (getppid() != parent) {
            _exit(1); /* it died before we asked to be told */
        }
    }
    return child;
}

void
bench_reap(pid_t child)
{
    int ended = -1;
    LEAT_MUST(waitpid(child, &ended, 0) == child && ended == 0);
}

int
bench_hold_dma_latency(void)
{
    const int32_t zero = 0;
    const int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, &zero, sizeof(zero)) != (ssize_t)sizeof(zero)) {
        const int why = errno;
        (void)close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

/* ---- Statistics ------------------------------------------------------------------------------- */

static int
compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int
compare_double(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench_latency
bench_order(uint64_t *samples_ns, uint64_t count)
{
    LEAT_ASSERT(count > 0);
    qsort(samples_ns, count, sizeof(samples_ns[0]), compare_u64);
    return (struct bench_latency){samples_ns[count / 2], samples_ns[count * 99 / 100], samples_ns[count * 999 / 1000],
                                  samples_ns[count - 1], count};
}

double
bench_median(const double *values, uint32_t count)
{
    double sorted[BENCH_WINDOWS_MAX];
    if (count == 0) {
        return 0;
    }
    LEAT_ASSERT(count <= BENCH_WINDOWS_MAX);
    memcpy(sorted, values, count * sizeof(values[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare_double);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* ---- Rows ------------------------------------------------------------------------------------- */

static bool
reached(const struct bench_row *row)
{
    const double figure = row->peer != NULL ? row->ratio : row->value;
    return row->goal == BENCH_AT_MOST ? figure <= row->target : figure >= row->target;
}

static void
print_json(const struct bench_options *options, const struct bench_row *row)
{
    (void)printf("{\"bench\":\"%s\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"samples\":%u",
                 options->name, row->subject, row->metric, row->value, row->unit, row->windows);
    if (row->worst > 0) {
        (void)printf(",\"worst\":%.4g", row->worst);
    }
    if (row->peer != NULL) {
        (void)printf(",\"peer\":\"%s\"", row->peer);
        if (row->peer_version != NULL) {
            (void)printf(",\"peer_version\":\"%s\"", row->peer_version);
        }
        (void)printf(",\"ratio\":%.4g", row->ratio);
    }
    if (row->goal != BENCH_NO_GOAL) {
        (void)printf(",\"target\":\"%s %g\",\"verdict\":\"%s\"", row->goal == BENCH_AT_MOST ? "<=" : ">=", row->target,
                     reached(row) ? "met" : "missed");
    }
    (void)printf("}\n");
}

static void
print_line(const struct bench_row *row)
{
    static bool titled;
    if (!titled) {
        (void)printf("%-50s %-11s %9s %9s %-8s %8s  %-36s %s\n", "subject", "metric", "median", "worst", "", "ratio", "to",
                     "target");
        titled = true;
    }
    (void)printf("%-50s %-11s %9.4g ", row->subject, row->metric, row->value);
    if (row->worst > 0) {
        (void)printf("%9.3g %-8s", row->worst, row->unit);
    } else {
        (void)printf("%9s %-8s", "", row->unit);
    }
    if (row->peer != NULL) {
        (void)printf(" %8.3g  %-36s", row->ratio, row->peer);
    }
    if (row->goal != BENCH_NO_GOAL) {
        (void)printf(" %s %g: %s", row->goal == BENCH_AT_MOST ? "<=" : ">=", row->target, reached(row) ? "met" : "MISSED");
    }
    (void)printf("\n");
}

void
bench_print(const struct bench_options *options, const struct bench_row *row)
{
    if (options->smoke) {
        return;
    }
    if (options->json) {
        print_json(options, row);
    } else {
        print_line(row);
    }
    (void)fflush(stdout);
}

void
bench_print_missing(const struct bench_options *options, const char *peer, const char *why)
{
    if (options->json) {
        (void)printf("{\"bench\":\"%s\",\"case\":\"%s\",\"missing\":\"%s\"}\n", options->name, peer, why);
    } else {
        (void)printf("%-44s %s\n", peer, why);
    }
}

void
bench_note(const struct bench_options *options, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (options->smoke) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (options->json) {
        (void)printf("{\"bench\":\"%s\",\"note\":\"%s\"}\n", options->name, text);
    } else {
        (void)printf("note: %s\n", text);
    }
}

void
bench_note_load(const struct bench_options *options)
{
    double load[1];
    if (getloadavg(load, 1) == 1) {
        bench_note(options, "load average of the last minute: %.1f on %ld CPUs", load[0], sysconf(_SC_NPROCESSORS_ONLN));
    }
}
