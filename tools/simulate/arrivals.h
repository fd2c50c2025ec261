/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/simulate/arrivals.h - when an open-loop load generator sends: constant, Poisson, at rates that change, bursty or
 * from a file.
 *
 * Bursty is a two-state Markov-modulated Poisson process: it alternates between a calm and a burst state, each of
 * exponential length, with the burst rate a multiple of the calm one and the mean as asked for. It starts as it goes on:
 * in a burst with the probability that bursts have at any time. All of it follows from the seed. Times from a file are
 * stretched to a rate, or kept. Rates that change are those of a Poisson process.
 *
 * Poisson arrivals and those at changing rates may come in clusters, which makes them uneven on every scale of time
 * alike: of logarithmic size, so that counts in an interval are negative binomial with `dispersion` times the variance of
 * Poisson ones (sched/mdp.h supposes the same).
 */
#ifndef LEAT_TOOLS_ARRIVALS_H
#define LEAT_TOOLS_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/status.h>

#include "tools/simulate/rates.h"

enum arrivals_kind { ARRIVALS_CONSTANT, ARRIVALS_POISSON, ARRIVALS_BURSTY, ARRIVALS_FILE, ARRIVALS_RATES };

#define ARRIVALS_DISPERSION_MAX 1000.0

struct arrivals {
    enum arrivals_kind kind;
    double rate_qps;       /* mean; of a file 0: its own times; not looked at with rates that change */
    double dispersion;     /* Poisson and rates: of counts, up to ARRIVALS_DISPERSION_MAX; 1 or less: no clusters */
    double burst_factor;   /* bursty: burst rate over calm rate, > 1 */
    double burst_share;    /* bursty: fraction of time in bursts, 0 < share < 1 */
    double burst_mean_s;   /* bursty: mean length of a burst */
    const double *times_s; /* file: rising; time_count of them; with a rate not all the same */
    size_t time_count;
    const struct rates *rates; /* rates that change: some of them above 0 */

    /* Its own. */
    uint64_t random;
    double now_s;
    bool bursting;
    double switch_s; /* when the state changes next */
    size_t time_next;
    double origin_s, stretch; /* of a file */
    uint32_t step;            /* of rates: the present one */
    double cycle_s;           /* when they last began */
    double cluster_log;       /* logarithm of the dispersion; 0: no clusters */
    uint32_t cluster_left;    /* still to come now */
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
 * Reads one time in seconds a line, rising, at most ARRIVALS_LAST_S, and behind it, in all lines or none, how many items
 * the query has. Blank lines and those starting with # are skipped. A file without any time is an error.
 */
#define ARRIVALS_LAST_S    1e9
#define ARRIVALS_ITEMS_MAX 65536u
LEAT_MUST_CHECK enum leat_status arrivals_read_file(const char *path, struct arrivals_trace *ret_trace);
void arrivals_trace_free(struct arrivals_trace *trace); /* accepts zeros */

/* Queries a second, gaps over the time that they take; 0 where no time passes. */
double arrivals_own_rate_qps(const double *times_s, size_t count);

#endif /* LEAT_TOOLS_ARRIVALS_H */
