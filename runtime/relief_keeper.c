/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/relief_keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/daemon_private.h"
#include "runtime/log.h"
#include "runtime/relief.h"

struct leat_relief_keeper {
    pthread_t thread;
    pthread_cond_t turn; /* with the daemon's mutex, as `stop` */
    bool started, stop;
    struct leat_relief_worker workers[LEAT_SCHED_WORKERS_MAX]; /* the thread's */
};

const char *
leat_relief_keeper_stays(struct leat_daemon *daemon, uint32_t worker)
{
    return !daemon->options.pin || daemon->options.cores == NULL ? "threads of this daemon are not pinned"
           : leat_daemon_shares_cores(daemon, worker)            ? "others have its CPUs too"
           : daemon->options.workers[worker].listed && daemon->scaling == NULL
               ? "the configuration lists its CPUs, and cores do not follow the load"
               : "";
}

/* The application that has an interfered instance on the worker, of those that it serves; NULL: none has. Mutex held. */
static const struct leat_application *
who_suffers(const struct leat_daemon *daemon, uint32_t worker, uint16_t owner)
{
    const bool one = owner < LEAT_APPLICATIONS_MAX;

    for (uint32_t id = one ? owner : 0; id < (one ? owner + 1u : LEAT_APPLICATIONS_MAX); id++) {
        const struct leat_application *app = daemon->applications[id];
        for (uint32_t v = 0; app != NULL && app->instances.all != NULL && v < app->instances.variant_count; v++) {
            if (owner != LEAT_ARRANGED_FOR_NOBODY &&
                leat_instances_state(&app->instances, worker, v) == LEAT_INSTANCE_INTERFERED) {
                return app;
            }
        }
    }
    return NULL;
}

/* Who suffers on each, by name; "": nobody. */
static void
look_at_workers(struct leat_daemon *daemon, char (*names)[LEAT_NAME_MAX])
{
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        struct leat_relief_worker *worker = &daemon->relief->workers[w];
        struct leat_daemon_held held;
        leat_daemon_held(daemon, w, &held);
        const struct leat_application *app = who_suffers(daemon, w, held.application);
        (void)snprintf(names[w], sizeof(names[w]), "%s", app != NULL ? app->name : "");
        worker->pool = leat_daemon_pool(daemon, w);
        worker->cores = held.shape.cores;
        worker->disturbed =
            app != NULL || (held.application != LEAT_ARRANGED_FOR_NOBODY &&
                            atomic_load_explicit(&daemon->workers[w]->behind, memory_order_relaxed));
        worker->fixed = held.pending || leat_relief_keeper_stays(daemon, w)[0] != '\0';
        worker->busy_ns = atomic_load_explicit(&daemon->workers[w]->statistics.busy_ns, memory_order_relaxed);
    }
}

static void
tell(struct leat_daemon *daemon, const struct leat_relief_move *move, const struct leat_daemon_held *before,
     const char *name)
{
    struct leat_daemon_held now;
    char from[128], to[128], why[LEAT_NAME_MAX + 64] = "it began its batches much later there than is usual";

    if (name[0] != '\0') {
        (void)snprintf(why, sizeof(why), "batches of '%s' took much longer there than they were measured", name);
    }
    leat_daemon_held(daemon, move->worker, &now);
    leat_log(LEAT_LOG_INFO, "worker %u has CPUs %s%s instead of %s: %s", move->worker,
             leat_cpu_list_text(now.cpus, now.cpu_count, to, sizeof(to)),
             move->other != UINT32_MAX ? ", another worker's," : "",
             leat_cpu_list_text(before->cpus, before->cpu_count, from, sizeof(from)), why);
}

/* Moves a worker that is disturbed where it is, if there is one. Mutex held, released meanwhile. */
static void
relieve(struct leat_daemon *daemon)
{
    char names[LEAT_SCHED_WORKERS_MAX][LEAT_NAME_MAX];
    uint32_t free_cores[LEAT_SCHED_WORKERS_MAX];
    struct leat_relief_move move;

    look_at_workers(daemon, names);
    (void)leat_daemon_free_pools(daemon, free_cores);
    if (!leat_relief_look(daemon->relief->workers, daemon->options.worker_count, free_cores, &move)) {
        return;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    struct leat_daemon_held before;
    leat_daemon_held(daemon, move.worker, &before);
    const enum leat_status status = leat_daemon_move(daemon, move.worker, move.other);
    leat_relief_note(daemon->relief->workers, &move, status == LEAT_OK);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    if (status == LEAT_OK) {
        tell(daemon, &move, &before, names[move.worker]);
    } else if (!daemon->relief->stop && !daemon->server_done && 
               daemon->relief->workers[move.worker].retry == LEAT_RELIEF_RETRY) { /* the first in a row */
        leat_log(LEAT_LOG_WARNING, "worker %u is disturbed, and stays where it is: %s", move.worker, leat_error_text());
    }
}

static void *
keeper_main(void *argument)
{
    struct leat_daemon *daemon = argument;
    struct leat_relief_keeper *keeper = daemon->relief;
    uint64_t next_ns = leat_monotonic_ns() + LEAT_INSTANCE_INTERVAL_NS;

    (void)pthread_setname_np(pthread_self(), "leat-relief");
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    while (!keeper->stop) {
        const struct timespec next = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
        if (leat_monotonic_ns() < next_ns) {
            const int waited = pthread_cond_timedwait(&keeper->turn, &daemon->mutex, &next);
            LEAT_ASSERT(waited == 0 || waited == ETIMEDOUT);
            continue;
        }
        next_ns = leat_monotonic_ns() + LEAT_INSTANCE_INTERVAL_NS;
        LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
        leat_daemon_look_at_cpus(daemon);
        LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
        relieve(daemon);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------------------ */

enum leat_status
leat_relief_keeper_create(struct leat_daemon *daemon)
{
    if (!daemon->options.pin || daemon->options.cores == NULL) {
        return LEAT_OK;
    }
    struct leat_relief_keeper *keeper = calloc(1, sizeof(*keeper));
    if (keeper == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory to look after workers that are disturbed");
    }
    leat_daemon_init_timed_condition(&keeper->turn);
    daemon->relief = keeper;
    return LEAT_OK;
}

enum leat_status
leat_relief_keeper_start(struct leat_daemon *daemon)
{
    struct leat_relief_keeper *keeper = daemon->relief;

    if (keeper == NULL) {
        return LEAT_OK;
    }
    const int error = pthread_create(&keeper->thread, NULL, keeper_main, daemon);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start thread leat-relief: %s", strerror(error));
    }
    keeper->started = true;
    return LEAT_OK;
}

void
leat_relief_keeper_stop(struct leat_daemon *daemon)
{
    struct leat_relief_keeper *keeper = daemon->relief;

    if (keeper == NULL || !keeper->started) {
        return;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    keeper->stop = true;
    LEAT_MUST(pthread_cond_broadcast(&keeper->turn) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    LEAT_MUST(pthread_join(keeper->thread, NULL) == 0);
    keeper->started = false;
}

void
leat_relief_keeper_destroy(struct leat_daemon *daemon)
{
    if (daemon->relief == NULL) {
        return;
    }
    LEAT_MUST(pthread_cond_destroy(&daemon->relief->turn) == 0);
    free(daemon->relief);
    daemon->relief = NULL;
}
