/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/arrivals.h - when an open-loop load generator sends: constant, Poisson, bursty or from a file.
 *
 * Bursty is a two-state Markov-modulated Poisson process: it alternates between a calm and a burst state, each of
 * exponential length, with the burst rate a multiple of the calm one and the mean as asked for. It starts as it goes on: in
 * a burst with the probability that bursts have at any time. All of it follows from the seed.
 */
#ifndef LEAT_TOOLS_ARRIVALS_H
#define LEAT_TOOLS_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/status.h>

enum arrivals_kind { ARRIVALS_CONSTANT, ARRIVALS_POISSON, ARRIVALS_BURSTY, ARRIVALS_FILE };

struct arrivals {
    enum arrivals_kind kind;
    double rate_qps;       /* mean */
    double burst_factor;   /* bursty: burst rate over calm rate, > 1 */
    double burst_share;    /* bursty: fraction of time in bursts, 0 < share < 1 */
    double burst_mean_s;   /* bursty: mean length of a burst */
    const double *times_s; /* file: rising; time_count of them */
    size_t time_count;

    /* Its own. */
    uint64_t random;
    double now_s;
    bool bursting;
    double switch_s; /* when the state changes next */
    size_t time_next;
};

/* Sets out from time 0; what is not its own is filled in. */
void arrivals_start(struct arrivals *arrivals, uint64_t seed);

/* Time of the next arrival in seconds from the start; -1 when a file has no more. */
double arrivals_next(struct arrivals *arrivals);

/*
 * Reads one time in seconds per line, rising, at most ARRIVALS_LAST_S; blank lines and those starting with # are skipped. A
 * file without any time is an error.
 */
#define ARRIVALS_LAST_S 1e9
LEAT_MUST_CHECK enum leat_status arrivals_read_file(const char *path, double **ret_times_s, size_t *ret_count);

#endif /* LEAT_TOOLS_ARRIVALS_H */
