/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/offline_gauge.h - what online queries take of the workers, lately, and whether they take longer than they should.
 *
 * Threads  One owner.
 */
#ifndef LEAT_RUNTIME_OFFLINE_GAUGE_H
#define LEAT_RUNTIME_OFFLINE_GAUGE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/server.h"
#include "runtime/worker_set.h"

struct leat_daemon;

#define LEAT_OFFLINE_SAMPLE_NS  UINT64_C(100000000)
#define LEAT_OFFLINE_SAMPLES    10u                    /* in the time that utilisation is of, and in the longer one: */
#define LEAT_OFFLINE_LASTING    100u                   /* at the most, for who looks late has fewer in the same time */
#define LEAT_OFFLINE_RECENT_NS  UINT64_C(10000000000) /* an application that was asked so long ago is not any more */

/* All zeroes at first. */
struct leat_offline_gauge {
    struct {
        uint64_t at_ns, busy_ns, awake_ns;
    } samples[LEAT_OFFLINE_LASTING + 1]; /* a ring */
    uint32_t count, newest;
    struct {
        uint64_t generation, busy_ns, changed_ns;
        bool asked; /* changed_ns is known */
    } applications[LEAT_APPLICATIONS_MAX];
    uint64_t busy_ns;          /* sum of what was added to counters since the beginning */
    uint64_t awake_ns;         /* time of all workers that were not parked while it looked */
    uint32_t utilisation_ppm;  /* of the time of workers that are not parked, over a second */
    uint32_t lasting_ppm;      /* over ten, or as long as there are samples */
    bool known;                /* there are two samples */
    /* By instances that answer online queries: */
    bool overloaded;                /* there is one */
    struct leat_worker_set disturb; /* workers that may disturb one that is interfered: its own, and those near it */
};

/* Once every LEAT_OFFLINE_SAMPLE_NS or later, at CLOCK_MONOTONIC. Takes the daemon's mutex. */
void leat_offline_gauge_sample(struct leat_offline_gauge *gauge, struct leat_daemon *daemon, uint64_t now_ns);

/*
 * Is there more than the limit for what is offline to begin? There is where the ten seconds are above it and the last one is above
 * half of it. Of what comes at random some second is above by chance, or below though the load lasts; and once a load has ended,
 * what it was is no matter. So a load that begins is seen when a part of the ten seconds is above that makes up for the rest.
 */
bool leat_offline_gauge_is_above(const struct leat_offline_gauge *gauge, uint32_t limit_ppm);

/* Forgets samples: time has passed without any. */
void leat_offline_gauge_restart(struct leat_offline_gauge *gauge);

#endif /* LEAT_RUNTIME_OFFLINE_GAUGE_H */
