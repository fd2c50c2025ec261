/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are disturbed where they are get other cores. */
#include <stdio.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/scale_keeper_private.h"

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
        struct leat_relief_worker *worker = &daemon->scaling->relief[w];
        struct leat_daemon_held held;
        leat_daemon_held(daemon, w, &held);
        const struct leat_application *app = who_suffers(daemon, w, held.application);
        (void)snprintf(names[w], sizeof(names[w]), "%s", app != NULL ? app->name : "");
        worker->pool = leat_daemon_pool(daemon, w);
        worker->cores = held.shape.cores;
        worker->disturbed =
            app != NULL || (held.application != LEAT_ARRANGED_FOR_NOBODY &&
                            atomic_load_explicit(&daemon->workers[w]->behind, memory_order_relaxed));
        worker->fixed = held.pending || leat_daemon_shares_cores(daemon, w);
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

void
leat_scale_keeper_relieve(struct leat_daemon *daemon)
{
    char names[LEAT_SCHED_WORKERS_MAX][LEAT_NAME_MAX];
    uint32_t free_cores[LEAT_SCHED_WORKERS_MAX];
    struct leat_relief_move move;

    if (!daemon->options.pin) {
        return;
    }
    look_at_workers(daemon, names);
    (void)leat_daemon_free_pools(daemon, free_cores);
    if (!leat_relief_look(daemon->scaling->relief, daemon->options.worker_count, free_cores, &move)) {
        return;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    struct leat_daemon_held before;
    leat_daemon_held(daemon, move.worker, &before);
    const enum leat_status status = leat_daemon_move(daemon, move.worker, move.other);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    if (status == LEAT_OK) {
        tell(daemon, &move, &before, names[move.worker]);
    } else if (!daemon->scaling->stop && !daemon->server_done) {
        leat_log(LEAT_LOG_WARNING, "worker %u is disturbed, and stays where it is: %s", move.worker, leat_error_text());
    }
}
