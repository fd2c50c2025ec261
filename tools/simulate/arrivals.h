/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/arrivals.h - when an open-loop load generator sends: constant, Poisson, bursty or from a file.
 *
 * Bursty is a two-state Markov-modulated Poisson process: it alternates between a calm and a burst state, each of
 * exponential length, with the burst rate a multiple of the calm one and the mean as asked for. It starts as it goes on: in
 * a burst with the probability that bursts have at any time. All of it follows from the seed. Times from a file are
 * stretched to a rate, or kept.
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
    double rate_qps;       /* mean; of a file 0: its own times */
    double burst_factor;   /* bursty: burst rate over calm rate, > 1 */
    double burst_share;    /* bursty: fraction of time in bursts, 0 < share < 1 */
    double burst_mean_s;   /* bursty: mean length of a burst */
    const double *times_s; /* file: rising; time_count of them; with a rate not all the same */
    size_t time_count;

    /* Its own. */
    uint64_t random;
    double now_s;
    bool bursting;
    double switch_s; /* when the state changes next */
    size_t time_next;
    double origin_s, stretch; /* of a file */
};

/* Sets out from time 0; what is not its own is filled in. */
void arrivals_start(struct arrivals *arrivals, uint64_t seed);

/* Time of the next arrival in seconds from the start, of a file with a rate from its first; -1 when it has no more. */
double arrivals_next(struct arrivals *arrivals);

struct arrivals_trace {
    double *times_s; /* [count], rising */
    uint32_t *items; /* [count], 1..ARRIVALS_ITEMS_MAX; NULL: the file has none */
    size_t count;
};

/*
 * Reads one time in seconds a line, rising, at most ARRIVALS_LAST_S, and behind it, in all lines or none, how many items the
 * query has. Blank lines and those starting with # are skipped. A file without any time is an error.
 */
#define ARRIVALS_LAST_S    1e9
#define ARRIVALS_ITEMS_MAX 65536u
LEAT_MUST_CHECK enum leat_status arrivals_read_file(const char *path, struct arrivals_trace *ret_trace);
void arrivals_trace_free(struct arrivals_trace *trace); /* accepts zeros */

/* Queries a second, gaps over the time that they take; 0 where no time passes. */
double arrivals_own_rate_qps(const double *times_s, size_t count);

#endif /* LEAT_TOOLS_ARRIVALS_H */
