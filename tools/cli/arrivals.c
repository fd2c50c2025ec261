/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/arrivals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

double
arrivals_uniform(uint64_t *random)
{
    uint64_t z = (*random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static double
exponential(uint64_t *random, double mean)
{
    return -mean * log1p(-arrivals_uniform(random));
}

/* Memoryless, so at a change of state the wait for the next arrival simply starts again at the new rate. */
static double
next_bursty(struct arrivals *a)
{
    const double calm_qps = a->rate_qps / (1 - a->burst_share + a->burst_share * a->burst_factor);
    const double calm_mean_s = a->burst_mean_s * (1 - a->burst_share) / a->burst_share;

    for (;;) {
        const double rate_qps = a->bursting ? calm_qps * a->burst_factor : calm_qps;
        const double next_s = a->now_s + exponential(&a->random, 1 / rate_qps);
        if (next_s < a->switch_s) {
            a->now_s = next_s;
            return next_s;
        }
        a->now_s = a->switch_s;
        a->bursting = !a->bursting;
        a->switch_s += exponential(&a->random, a->bursting ? a->burst_mean_s : calm_mean_s);
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

enum leat_status
arrivals_read_file(const char *path, double **ret_times_s, size_t *ret_count)
{
    char line[256];
    double *times_s = NULL;
    size_t count = 0, room = 0, number = 0;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot open %s", path);
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char *end;
        number++;
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        const double time_s = strtod(line, &end);
        if (end == line || !isfinite(time_s) || time_s < 0 || (count > 0 && time_s < times_s[count - 1])) {
            free(times_s);
            (void)fclose(file);
            return LEAT_FAIL(LEAT_ERR_PROTO, "%s:%zu: expected a time in seconds, not before the one above", path, number);
        }
        if (count == room) {
            room = room == 0 ? 1024 : 2 * room;
            double *grown = realloc(times_s, room * sizeof(*grown));
            if (grown == NULL) {
                free(times_s);
                (void)fclose(file);
                return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for the arrivals in %s", path);
            }
            times_s = grown;
        }
        times_s[count++] = time_s;
    }
    (void)fclose(file);
    *ret_times_s = times_s;
    *ret_count = count;
    return LEAT_OK;
}
