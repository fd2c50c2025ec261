/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/candidates.h - which workers a router may choose from, where the selector follows the states of instances.
 *
 * Role      F. Romero et al., "INFaaS: Automated Model-less Inference Serving", ATC 2021, section 4.1, chooses an instance: a
 *           variant and a worker at once. Routers do not know of instances, and a selector is shown those of one worker. So
 *           the selector ranks what it would make of the oldest query on each worker that has room, and the router is shown
 *           as if only those had room that share the best rank.
 * When      An instance of the application is overloaded or interfered, the router says that it may be `narrowed`, and the
 *           selector ranks. Otherwise all workers are as good, but for their load, which is what routers look at.
 * Progress  Some worker with room is left, if there was one, whatever states are like. Who is passed over serves what the
 *           others have no room or time for, and is tried again when its instances are active again: sched/instance.h.
 * Cost      A rank of each worker with room: of leat_selector_infaas O(workers * variants).
 * Threads   None of its own.
 */
#ifndef LEAT_SCHED_CANDIDATES_H
#define LEAT_SCHED_CANDIDATES_H

#include "sched/instance.h"
#include "sched/policy.h"

struct leat_candidates_input {
    const struct leat_selector *selector; /* with a rank_worker() */
    void *selector_state;
    const struct leat_select_input *select;   /* without worker and instances: of the queries that the router is shown */
    const struct leat_sched_worker *workers;  /* [worker_count] */
    uint32_t worker_count;                    /* all of them, whatever the selector is told of its application's share */
    const uint8_t *at;                        /* [worker_count]: their numbers, by which they have instances; NULL: 0, 1, ... */
    const struct leat_instance *instances;    /* of worker 0: [variant_count] */
    uint32_t stride;                          /* from them to those of worker 1 */
    bool idle_only;                           /* nothing is to go behind a batch */
};

/* Copies the workers to ret_workers[worker_count], which may be where they are, those that are no candidates without depth. */
void leat_candidates_show(const struct leat_candidates_input *input, struct leat_sched_worker *ret_workers);

#endif /* LEAT_SCHED_CANDIDATES_H */
