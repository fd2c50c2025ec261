/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/probing.h - queries that a class of workers gets against its profile's word.
 *
 * Role     A profile that says too much would keep an application's queries from a class of workers for ever, and nothing
 *          would run there to correct it. So of those queries that it takes to be late even on an idle worker of the class,
 *          such a worker gets one in 17, when no other is on its way and the last one's execution makes up 1/16 of the time
 *          since, at most. A query that is not lost already is spared while other batches tell of the class as often,
 *          and the longer the more probes in a row found the profile right.
 * Use      leat_probing_find() for each query with a deadline before it joins those that wait, where there are several
 *          classes: a single one's queries run there anyway, unless they are lost. leat_probing_begin() when the worker
 *          that was found has the query, leat_probing_end() for every batch of the application that has ended.
 * Memory   One struct for each class of workers of an application, zeroed at first; the caller's.
 * Threads  One.
 */
#ifndef LEAT_SCHED_PROBING_H
#define LEAT_SCHED_PROBING_H

#include <stdbool.h>
#include <stdint.h>

#include "sched/policy.h"

#define LEAT_PROBING_NONE UINT32_MAX

struct leat_probing {
    uint32_t condemned; /* queries since the last probe that its profile says the class cannot have in time */
    bool under_way;
    uint8_t doublings;      /* of the rest after a probe: two for each in a row that took what the profile says */
    uint64_t next_ns;       /* no probe before */
    uint64_t next_spare_ns; /* nor any with a query that need not be late */
};

/*
 * The idle worker that the query which arrives now is to probe, or LEAT_PROBING_NONE, as where a router would not be shown
 * it behind all that wait. route: what a router would be shown without it, and the variant that it would have;
 * probing[route->class_count]. lost: it is refused unless it probes.
 */
uint32_t leat_probing_find(struct leat_probing *probing, const struct leat_route_input *route, uint32_t items,
                           uint64_t deadline_ns, bool lost);

void leat_probing_begin(struct leat_probing *probing);

/* A batch, perhaps a probe, has ended on a worker of the class; predicted on average when it was given. */
void leat_probing_end(struct leat_probing *probing, bool probe, uint64_t now_ns, uint64_t predicted_ns, uint64_t exec_ns);

#endif /* LEAT_SCHED_PROBING_H */
