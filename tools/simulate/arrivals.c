/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/arrivals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/status.h"
#include "tools/simulate/random.h"

#define BLANKS " \t\r\n"

static double
exponential(uint64_t *random, double mean)
{
    return mean * random_exponential(random);
}

static double
mean_stay_s(const struct arrivals *a)
{
    return a->bursting ? a->burst_mean_s : a->burst_mean_s * (1 - a->burst_share) / a->burst_share;
}

void
arrivals_start(struct arrivals *a, uint64_t seed)
{
    a->random = seed;
    a->now_s = 0;
    a->time_next = 0;
    if (a->kind == ARRIVALS_BURSTY) {
        a->bursting = random_uniform(&a->random) < a->burst_share;
        a->switch_s = exponential(&a->random, mean_stay_s(a)); /* what is left of an exponential stay is one */
    }
}

/* Memoryless, so at a change of state the wait for the next arrival simply starts again at the new rate. */
static double
next_bursty(struct arrivals *a)
{
    const double calm_qps = a->rate_qps / (1 - a->burst_share + a->burst_share * a->burst_factor);

    for (;;) {
        const double rate_qps = a->bursting ? calm_qps * a->burst_factor : calm_qps;
        const double next_s = a->now_s + exponential(&a->random, 1 / rate_qps);
        if (next_s < a->switch_s) {
            a->now_s = next_s;
            return next_s;
        }
        a->now_s = a->switch_s;
        a->bursting = !a->bursting;
        a->switch_s += exponential(&a->random, mean_stay_s(a));
    }
}

double
arrivals_next(struct arrivals *a)
{
    switch (a->kind) {
    case ARRIVALS_CONSTANT:
        a->now_s += 1 / a->rate_qps;
        return a->now_s;
    case ARRIVALS_POISSON:
        a->now_s += exponential(&a->random, 1 / a->rate_qps);
        return a->now_s;
    case ARRIVALS_BURSTY:
        return next_bursty(a);
    case ARRIVALS_FILE:
        return a->time_next < a->time_count ? a->times_s[a->time_next++] : -1;
    }
    return -1;
}

/* A number of seconds and nothing else in `length` bytes; what separates lines may follow. */
static bool
parse_time(const char *line, size_t length, double *ret_time_s)
{
    char *end;
    const double time_s = strtod(line, &end);

    if (end == line || !(time_s >= 0 && time_s <= ARRIVALS_LAST_S) || end + strspn(end, BLANKS) != line + length) {
        return false;
    }
    *ret_time_s = time_s;
    return true;
}

static enum leat_status
append(double **times_s, size_t count, double time_s)
{
    if ((count & (count - 1)) == 0) { /* full at each power of two */
        double *grown = realloc(*times_s, (count == 0 ? 1 : 2 * count) * sizeof(*grown));
        if (grown == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu arrivals", count);
        }
        *times_s = grown;
    }
    (*times_s)[count] = time_s;
    return LEAT_OK;
}

enum leat_status
arrivals_read_file(const char *path, double **ret_times_s, size_t *ret_count)
{
    enum leat_status status = LEAT_OK;
    char *line = NULL;
    double *times_s = NULL, time_s;
    size_t count = 0, room = 0, number = 0;
    ssize_t length = 0;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    while (status == LEAT_OK && (length = getline(&line, &room, file)) >= 0) {
        number++;
        if (line[0] == '#' || strspn(line, BLANKS) == (size_t)length) {
            continue;
        }
        if (!parse_time(line, (size_t)length, &time_s) || (count > 0 && time_s < times_s[count - 1])) {
            status = LEAT_FAIL(LEAT_ERR_PROTO, "%s:%zu: expected a time in seconds, not before the one above", path, number);
        } else {
            status = append(&times_s, count, time_s);
            count += status == LEAT_OK;
        }
    }
    if (status == LEAT_OK && ferror(file) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    } else if (status == LEAT_OK && count == 0) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s has no time in it", path);
    }
    (void)fclose(file);
    free(line);
    if (status != LEAT_OK) {
        free(times_s);
        return status;
    }
    *ret_times_s = times_s;
    *ret_count = count;
    return LEAT_OK;
}
