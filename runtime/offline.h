/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/offline.h - jobs for when nobody waits: a folder of items for an application, answered in the gaps.
 *
 * Role     One thread, behind all that serves, is a client of the daemon's own socket and submits items as offline queries, some
 *          at a time, one job after the other in the order in which they came; a job that has to wait lets the next one run.
 * Source   F. Romero et al., "INFaaS: Automated Model-less Inference Serving", ATC 2021, section 4: offline queries are held
 *          while utilisation is above 40 % or latency above its profile. Utilisation here is the share of the workers' time that
 *          online queries took: while a job is held that is above over the last ten seconds, and above half as much over the last one. Latency is
 *          judged by the states of instances (sched/instance.h) of the applications that were asked in the last ten, where
 *          they answer online queries. Whoever is held takes back what waits.
 * Durable  A job is in the registry before it is acknowledged; which items are done the output folder says
 *          (runtime/offline_files.h). So nothing is done twice or lost, whenever the daemon ends: what is under way then is
 *          asked again. After a restart a folder is opened by its path, and used if it is the one that the client passed, by
 *          device and inode; else the job waits until its owner passes folders anew (resume).
 * Threads  create, add, destroy on one thread, as the daemon; start and stop on that of run; the others any.
 */
#ifndef LEAT_RUNTIME_OFFLINE_H
#define LEAT_RUNTIME_OFFLINE_H

#include <jansson.h>

#include "runtime/offline_files.h"
#include "runtime/registry.h"

#define LEAT_OFFLINE_JOBS_MAX 64u /* that have not ended */

/*
 * Descriptors at the most: two folders of each job, and of one that is submitted and one that is just ending; of the one that
 * runs its session, its answers, its report and an item or the list of them; and the file that a new one is tried with.
 */
#define LEAT_OFFLINE_DESCRIPTORS (2 * (LEAT_OFFLINE_JOBS_MAX + 2) + 5 + LEAT_OFFLINE_FILES_MAX + 2 + 1)

struct leat_daemon;
struct leat_offline;

/* `utilisation_ppm`: by online queries, above which nothing starts. */
LEAT_MUST_CHECK enum leat_status leat_offline_create(struct leat_daemon *daemon, uint32_t utilisation_ppm,
                                                     struct leat_offline **ret_offline);
void leat_offline_destroy(struct leat_offline *offline); /* accepts NULL */

/* Before start: one that is kept. */
LEAT_MUST_CHECK enum leat_status leat_offline_add(struct leat_offline *offline, const struct leat_registry_job *job);

/* Once the daemon answers; until it drains, so that what is under way is answered still. */
LEAT_MUST_CHECK enum leat_status leat_offline_start(struct leat_offline *offline);
void leat_offline_stop(struct leat_offline *offline); /* accepts NULL and what was not started */

/*
 * Who asks is `owner_uid` of the order, which has application, paths and floor too; descriptors stay the caller's. The job, as
 * shown, is a new reference.
 *   submit  a new one.
 *   resume  one that waits for its folders, that was cancelled, or that is done, for what failed. By its owner alone.
 *   cancel  what is answered stays.
 * LEAT_ERR_NOT_FOUND, LEAT_ERR_ACCESS, LEAT_ERR_BUSY, LEAT_ERR_LIMIT, LEAT_ERR_SHAPE, LEAT_ERR_UNSUPPORTED and of the folders.
 */
LEAT_MUST_CHECK enum leat_status leat_offline_submit(struct leat_offline *offline, const struct leat_registry_job *order,
                                                     int input_fd, int output_fd, json_t **ret_job);
LEAT_MUST_CHECK enum leat_status leat_offline_resume(struct leat_offline *offline, const struct leat_registry_job *order,
                                                     int input_fd, int output_fd, json_t **ret_job);
LEAT_MUST_CHECK enum leat_status leat_offline_cancel(struct leat_offline *offline, uint64_t id, json_t **ret_job);

/* A job asks, held or not, or has not been tried yet; not one that waits for something. The daemon's mutex may be held. */
bool leat_offline_has_work(struct leat_offline *offline);

/* LEAT_ERR_NOT_FOUND. */
LEAT_MUST_CHECK enum leat_status leat_offline_show(struct leat_offline *offline, uint64_t id, json_t **ret_job);
/* `jobs`, by id, and utilisation. */
json_t *leat_offline_list_jobs(struct leat_offline *offline);

#endif /* LEAT_RUNTIME_OFFLINE_H */
