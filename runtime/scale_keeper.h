/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/scale_keeper.h - sees to it that applications have the cores and instances that their load asks for.
 *
 * Role       A thread looks at each scaled application several times a second: how many items come, how many wait, what
 *            batches take on teams of each size. It asks sched/scaler.h what all of them are to have, makes workers of
 *            that (runtime/scale_plan.h) and has them arranged (leat_daemon_arrange), which does not wait for batches:
 *            what a worker is to be counts as what it is, and the next decision may take the place of what is pending.
 * Workers    All are its own: each is one application's, starts for it, or is parked. Applications that are not listed
 *            are served by the same workers, beside those whose they are. While none of the listed is served all workers
 *            are for all. While there is offline work (leat_offline_has_work), held or not, but of no job that waits for
 *            something, who would be parked has its least cores, where there are any, and is for all: these alone then serve
 *            those that are not listed, and the listed's offline queries beside their own workers. Its cores are the first to
 *            go where one of the listed is to have more.
 * Jumps      When much more waits for one than its instances take at once, a query of it is refused for want of room or of
 *            time, or an instance of it becomes overloaded (sched/instance.h), it looks before its time, though not within
 *            LEAT_SCALE_REST_NS of the last look. What is decided then gives nothing back but where cores are missing. Where
 *            it changes nothing that rest is twice as long, and so on up to the interval, until a look changes something or no
 *            jump was told before it; a look in its time halves it.
 * Rates      In items, as batches are. A rise counts in full at once (sched/load.h).
 * Pipelines  One that is listed has workers for each of its stages, decided about together, for its own objective. An
 *            application is scaled once: as itself or as one stage.
 * Times      Those of the variant that ran most batches lately, on each class of workers, at the application's percentile.
 * Forecast   From the highest rate of a second in each of the last six windows of ten seconds, once there are so many.
 * Mutex      The daemon's is held while it looks, and while it plans what was decided for workers as they are by then; not while
 *            it decides.
 * Failure    Who cannot be seen at a look, as while it is replaced, is decided about by what was seen last, and keeps what it
 *            has; only who is gone or has no objective loses its workers.
 *            What cannot be carried out is decided anew at the next look; why is told, and logged when it is a new reason.
 * Threads    create, start, stop and destroy as for the daemon; describe on any.
 */
#ifndef LEAT_RUNTIME_SCALE_KEEPER_H
#define LEAT_RUNTIME_SCALE_KEEPER_H

#include "runtime/daemon_private.h"

#define LEAT_SCALE_REST_NS UINT64_C(10000000) /* after a look, before one before its time: at the least */

/*
 * Once workers were surveyed. Nothing, where scaling is off. LEAT_ERR_UNSUPPORTED: workers are of more classes, or have
 * more cores, than can be decided about.
 */
LEAT_MUST_CHECK enum leat_status leat_scale_keeper_create(struct leat_daemon *daemon);
LEAT_MUST_CHECK enum leat_status
leat_scale_keeper_start(struct leat_daemon *daemon);     /* once the dispatcher's events are read */
void leat_scale_keeper_stop(struct leat_daemon *daemon); /* after leat_daemon_scale_end; waits for its thread, if it runs */
void leat_scale_keeper_destroy(struct leat_daemon *daemon);
void leat_scale_keeper_wake(void *daemon); /* while the server runs: more waits than was expected */

/* Mode, what was decided last and why, who has what, and what changed lately. */
json_t *leat_scale_keeper_describe(struct leat_daemon *daemon);

#endif /* LEAT_RUNTIME_SCALE_KEEPER_H */
