/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/simulate/arrivals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/align.h"
#include "base/status.h"
#include "tools/simulate/random.h"

#define BLANKS " \t\r\n"

static double
exponential(uint64_t *random, double mean)
{
    return mean * random_exponential(random);
}

/* Of 1 and more, without libm: m * 2^k with m from 3/4 to 3/2, and the series of artanh. */
static double
natural_log(double x)
{
    double twos = 0, sum = 0;

    for (; x >= 1.5; x /= 2) {
        twos++;
    }
    const double z = (x - 1) / (x + 1);
    double power = z;
    for (int i = 1; i < 40; i += 2) {
        sum += power / i;
        power *= z * z;
    }
    return twos * 0.69314718055994531 + 2 * sum;
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
    a->origin_s = 0;
    a->stretch = 1;
    a->step = 0;
    a->cycle_s = 0;
    a->cluster_left = 0;
    a->cluster_log = a->dispersion > 1 ? natural_log(a->dispersion) : 0;
    LEAT_ASSERT(a->dispersion <= ARRIVALS_DISPERSION_MAX);
    if (a->kind == ARRIVALS_FILE && a->rate_qps > 0) {
        a->origin_s = a->times_s[0];
        a->stretch = arrivals_own_rate_qps(a->times_s, a->time_count) / a->rate_qps;
        LEAT_ASSERT(a->stretch > 0);
    }
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

/* The next event of a Poisson process that has `share` of the rates. */
static void
move_along_rates(struct arrivals *a, double share)
{
    double left = random_exponential(&a->random); /* of the integral over the rate */

    for (;;) {
        const struct rates_step *step = &a->rates->steps[a->step];
        const double end_s = a->cycle_s + step->end_s, qps = step->qps * share;
        const double due = qps * (end_s - a->now_s);
        if (left < due) {
            a->now_s += left / qps;
            return;
        }
        left -= due > 0 ? due : 0;
        a->now_s = end_s;
        a->step = a->step + 1 < a->rates->count ? a->step + 1 : 0;
        a->cycle_s = a->step == 0 ? end_s : a->cycle_s;
    }
}

/* How many come at once; 1 without clusters. */
static uint32_t
draw_cluster(struct arrivals *a)
{
    uint32_t size = 1;

    if (a->cluster_log > 0) {
        const double p = 1 - 1 / a->dispersion;
        double u = random_uniform(&a->random), chance = p / a->cluster_log;
        while (u >= chance && chance > 0) {
            u -= chance;
            chance *= p * size / (size + 1);
            size++;
        }
    }
    return size;
}

static double
next_poisson(struct arrivals *a)
{
    if (a->cluster_left == 0) {
        const double share = a->cluster_log > 0 ? a->cluster_log / (a->dispersion - 1) : 1; /* one over the mean size */
        if (a->kind == ARRIVALS_RATES) {
            move_along_rates(a, share);
        } else {
            a->now_s += exponential(&a->random, 1 / (a->rate_qps * share));
        }
        a->cluster_left = draw_cluster(a);
    }
    a->cluster_left--;
    return a->now_s;
}

double
arrivals_next(struct arrivals *a)
{
    switch (a->kind) {
    case ARRIVALS_CONSTANT:
        a->now_s += 1 / a->rate_qps;
        return a->now_s;
    case ARRIVALS_POISSON:
    case ARRIVALS_RATES:
        return next_poisson(a);
    case ARRIVALS_BURSTY:
        return next_bursty(a);
    case ARRIVALS_FILE:
        return a->time_next < a->time_count ? (a->times_s[a->time_next++] - a->origin_s) * a->stretch : -1;
    }
    return -1;
}

double
arrivals_own_rate_qps(const double *times_s, size_t count)
{
    const double length_s = count > 0 ? times_s[count - 1] - times_s[0] : 0;
    return length_s > 0 ? (double)(count - 1) / length_s : 0;
}

/* ---- Files ------------------------------------------------------------------------------------- */

struct line {
    double time_s;
    uint32_t items; /* 0: none given */
};

/* A number of seconds, perhaps one of items, and nothing else in `length` bytes; what separates lines may follow. */
static bool
parse_line(const char *text, size_t length, struct line *ret_line)
{
    struct line line = {0};
    char *end;

    line.time_s = strtod(text, &end);
    if (end == text || !(line.time_s >= 0 && line.time_s <= ARRIVALS_LAST_S)) {
        return false;
    }
    const char *items = end + strspn(end, BLANKS);
    if (items > end && *items >= '0' && *items <= '9') {
        const unsigned long value = strtoul(items, &end, 10);
        if (value < 1 || value > ARRIVALS_ITEMS_MAX) {
            return false;
        }
        line.items = (uint32_t)value;
    }
    if (end + strspn(end, BLANKS) != text + length) {
        return false;
    }
    *ret_line = line;
    return true;
}

/* Room for one more; full at each power of two. */
static enum leat_status
grow(struct arrivals_trace *trace)
{
    const size_t count = trace->count, room = count == 0 ? 1 : 2 * count;

    if ((count & (count - 1)) == 0) {
        double *times_s = realloc(trace->times_s, room * sizeof(*times_s));
        trace->times_s = times_s != NULL ? times_s : trace->times_s;
        uint32_t *items = realloc(trace->items, room * sizeof(*items));
        trace->items = items != NULL ? items : trace->items;
        if (times_s == NULL || items == NULL) {
            return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for %zu arrivals", count);
        }
    }
    return LEAT_OK;
}

static enum leat_status
append(struct arrivals_trace *trace, const char *path, size_t number, const char *text, size_t length)
{
    struct line line;

    if (!parse_line(text, length, &line) || (trace->count > 0 && line.time_s < trace->times_s[trace->count - 1])) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s:%zu: expected a time in seconds, not before the one above, and perhaps items",
                         path, number);
    }
    if (trace->count > 0 && (line.items == 0) != (trace->items[0] == 0)) {
        return LEAT_FAIL(LEAT_ERR_PROTO, "%s:%zu: items must be in all lines or in none", path, number);
    }
    const enum leat_status status = grow(trace);
    if (status == LEAT_OK) {
        trace->times_s[trace->count] = line.time_s;
        trace->items[trace->count++] = line.items;
    }
    return status;
}

enum leat_status
arrivals_read_file(const char *path, struct arrivals_trace *ret_trace)
{
    enum leat_status status = LEAT_OK;
    struct arrivals_trace trace = {0};
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t length = 0;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    while (status == LEAT_OK && (length = getline(&line, &room, file)) >= 0) {
        number++;
        if (line[0] != '#' && strspn(line, BLANKS) != (size_t)length) {
            status = append(&trace, path, number, line, (size_t)length);
        }
    }
    if (status == LEAT_OK && ferror(file) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot read %s", path);
    } else if (status == LEAT_OK && trace.count == 0) {
        status = LEAT_FAIL(LEAT_ERR_PROTO, "%s has no time in it", path);
    }
    (void)fclose(file);
    free(line);
    if (status != LEAT_OK) {
        arrivals_trace_free(&trace);
        return status;
    }
    if (trace.items[0] == 0) {
        free(trace.items);
        trace.items = NULL;
    }
    *ret_trace = trace;
    return LEAT_OK;
}

void
arrivals_trace_free(struct arrivals_trace *trace)
{
    free(trace->times_s);
    free(trace->items);
    *trace = (struct arrivals_trace){0};
}
