/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/relief_keeper.h - has workers moved that are disturbed where they are, as runtime/relief.h says who and where to.
 *
 * Role     A thread looks once a second at the states of instances and at who begins its batches late, and moves one worker at
 *          the most, by affinity and while it runs. Whether cores follow the load makes no difference: what disturbs a worker
 *          does not either. Before that it looks which CPUs are gone and whether threads are on theirs
 *          (runtime/daemon_cpus.c).
 * Stays    Who shares its cores, or is not pinned; and, where cores do not follow the load, who has CPUs that the
 *          configuration lists: somebody chose these, and may have others in mind for the rest.
 * Mutex    The daemon's is held while it looks, not while it moves.
 * Threads  create, start, stop and destroy as for the daemon; stays on any.
 */
#ifndef LEAT_RUNTIME_RELIEF_KEEPER_H
#define LEAT_RUNTIME_RELIEF_KEEPER_H

#include <stdint.h>

#include "base/status.h"

struct leat_daemon;

/* Nothing, where nobody is pinned. */
LEAT_MUST_CHECK enum leat_status leat_relief_keeper_create(struct leat_daemon *daemon);
LEAT_MUST_CHECK enum leat_status leat_relief_keeper_start(struct leat_daemon *daemon);
void leat_relief_keeper_stop(struct leat_daemon *daemon); /* after leat_daemon_scale_end; waits for its thread, if it runs */
void leat_relief_keeper_destroy(struct leat_daemon *daemon);

/* Why the worker is not moved, however disturbed; "" where it can be. */
const char *leat_relief_keeper_stays(struct leat_daemon *daemon, uint32_t worker);

#endif /* LEAT_RUNTIME_RELIEF_KEEPER_H */
