/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/offline_gauge.h"

#include "runtime/daemon_private.h"

/* Where it has workers of its own, the others run nothing of it that is online. */
static void
look_at_states(struct leat_offline_gauge *gauge, struct leat_daemon *daemon, const struct leat_application *app, const uint16_t *owners)
{
    const struct leat_instances *instances = &app->instances;
    bool own = false;

    for (uint32_t w = 0; w < instances->worker_count; w++) {
        own = own || owners[w] == app->id;
    }
    for (uint32_t w = 0; w < instances->worker_count; w++) {
        bool interfered = false;
        for (uint32_t v = 0; v < instances->variant_count && (!own || owners[w] == app->id); v++) {
            const enum leat_instance_state state = leat_instances_state(instances, w, v);
            gauge->overloaded = gauge->overloaded || state == LEAT_INSTANCE_OVERLOADED;
            interfered = interfered || state == LEAT_INSTANCE_INTERFERED;
        }
        if (interfered) {
            leat_daemon_add_near(daemon, w, &gauge->disturb);
        }
    }
}

/* An application that took another's place counts on from its counters; whoever asked for it may have done so just now. */
static void
look_at(struct leat_offline_gauge *gauge, struct leat_daemon *daemon, const struct leat_application *app, const uint16_t *owners,
        uint64_t now_ns)
{
    const uint64_t busy_ns = atomic_load_explicit(&app->counters.busy_ns, memory_order_relaxed);
    const bool same = gauge->applications[app->id].generation == app->generation;
    const uint64_t before_ns = same ? gauge->applications[app->id].busy_ns : busy_ns;
    const bool grew = busy_ns > before_ns;

    gauge->busy_ns += grew ? busy_ns - before_ns : 0;
    gauge->applications[app->id].generation = app->generation;
    gauge->applications[app->id].busy_ns = busy_ns;
    if (grew || (!same && busy_ns > 0)) {
        gauge->applications[app->id].changed_ns = now_ns;
        gauge->applications[app->id].asked = true;
    }
    if (gauge->applications[app->id].asked && now_ns - gauge->applications[app->id].changed_ns < LEAT_OFFLINE_RECENT_NS) {
        look_at_states(gauge, daemon, app, owners);
    }
}

/* Over so long, however often it looked, or as far as samples go back. */
static uint32_t
utilisation_over(const struct leat_offline_gauge *gauge, uint64_t window_ns)
{
    const uint32_t room = LEAT_OFFLINE_LASTING + 1;
    const uint64_t now_ns = gauge->samples[gauge->newest].at_ns;
    uint32_t oldest = gauge->newest;

    for (uint32_t back = 1; back < gauge->count && now_ns - gauge->samples[oldest].at_ns < window_ns; back++) {
        oldest = (gauge->newest + room - back) % room;
    }
    const uint64_t busy_ns = gauge->busy_ns - gauge->samples[oldest].busy_ns;
    const uint64_t awake_ns = gauge->awake_ns - gauge->samples[oldest].awake_ns;

    return (uint32_t)(busy_ns / 1000 * 1000000 / (awake_ns / 1000 + 1));
}

void
leat_offline_gauge_sample(struct leat_offline_gauge *gauge, struct leat_daemon *daemon, uint64_t now_ns)
{
    uint16_t owners[LEAT_SCHED_WORKERS_MAX];

    gauge->overloaded = false;
    gauge->disturb = (struct leat_worker_set){{0}};
    leat_daemon_list_owners(daemon, owners);
    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t id = 0; id < LEAT_APPLICATIONS_MAX; id++) {
        if (daemon->applications[id] != NULL) {
            look_at(gauge, daemon, daemon->applications[id], owners, now_ns);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    const uint32_t room = LEAT_OFFLINE_LASTING + 1;
    const uint64_t before_ns = gauge->count > 0 ? gauge->samples[gauge->newest].at_ns : now_ns;
    gauge->awake_ns += (now_ns - before_ns) * leat_daemon_count_awake(daemon);
    gauge->newest = (gauge->newest + 1) % room;
    gauge->count += gauge->count < room;
    gauge->samples[gauge->newest].at_ns = now_ns;
    gauge->samples[gauge->newest].busy_ns = gauge->busy_ns;
    gauge->samples[gauge->newest].awake_ns = gauge->awake_ns;
    gauge->known = gauge->count > 1;
    gauge->utilisation_ppm = utilisation_over(gauge, LEAT_OFFLINE_SAMPLES * LEAT_OFFLINE_SAMPLE_NS);
    gauge->lasting_ppm = utilisation_over(gauge, LEAT_OFFLINE_LASTING * LEAT_OFFLINE_SAMPLE_NS);
}

bool
leat_offline_gauge_is_above(const struct leat_offline_gauge *gauge, uint32_t limit_ppm)
{
    return gauge->lasting_ppm > limit_ppm && gauge->utilisation_ppm > limit_ppm / 2;
}

void
leat_offline_gauge_restart(struct leat_offline_gauge *gauge)
{
    gauge->count = 0;
    gauge->known = false;
}
