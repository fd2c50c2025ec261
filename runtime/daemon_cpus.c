/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs that go and come back while the daemon runs, and threads that the kernel does not hold to theirs any more. */
#include <sched.h>
#include <string.h>

#include "runtime/cores.h"
#include "runtime/cpuset.h"
#include "runtime/daemon_private.h"
#include "runtime/log.h"
#include "runtime/topology.h"

#define TEXT_BYTES 256

/* ---- What is there ---------------------------------------------------------------------------------- */

static bool
has(const uint32_t *cpus, uint32_t count, uint32_t cpu)
{
    for (uint32_t i = 0; i < count; i++) {
        if (cpus[i] == cpu) {
            return true;
        }
    }
    return false;
}

/* Those of the first list that are not in the second; "" for none. */
static const char *
difference(const uint32_t *cpus, uint32_t count, const uint32_t *others, uint32_t other_count,
           char text[TEXT_BYTES])
{
    uint32_t list[LEAT_CPU_MAX], listed = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!has(others, other_count, cpus[i])) {
            list[listed++] = cpus[i];
        }
    }
    text[0] = '\0';
    return listed > 0 ? leat_cpu_list_text(list, listed, text, TEXT_BYTES) : text;
}

/* Mutex held. True where CPUs went or came back. */
static bool
note_present(struct leat_daemon *daemon, const bool *present)
{
    uint32_t before[LEAT_CPU_MAX], now[LEAT_CPU_MAX];
    char text[TEXT_BYTES];

    const uint32_t before_count = leat_cores_gone(daemon->options.cores, before);
    if (!leat_cores_note_present(daemon->options.cores, present)) {
        return false;
    }
    const uint32_t now_count = leat_cores_gone(daemon->options.cores, now);
    if (difference(now, now_count, before, before_count, text)[0] != '\0') {
        leat_log(LEAT_LOG_WARNING, "CPUs %s are gone: offline, or not the daemon's any more", text);
    }
    if (difference(before, before_count, now, now_count, text)[0] != '\0') {
        leat_log(LEAT_LOG_INFO, "CPUs %s are there again", text);
    }
    return true;
}

/* ---- Cores of workers ------------------------------------------------------------------------------- */

/* Who has CPUs that the configuration lists has no others, but where cores follow the load. Mutex held. */
static void
replace_gone(struct leat_daemon *daemon, uint32_t worker)
{
    uint32_t before[LEAT_TEAM_MAX], gone[LEAT_TEAM_MAX];
    char from[TEXT_BYTES], to[TEXT_BYTES];
    const uint32_t *cpus;
    const bool others = !daemon->options.workers[worker].listed || daemon->scaling != NULL;

    const uint32_t count = leat_cores_of(daemon->options.cores, worker, &cpus);
    memcpy(before, cpus, count * sizeof(cpus[0]));
    const uint32_t missed = leat_cores_gone_from(daemon->options.cores, worker, gone);
    if (leat_cores_replace_gone(daemon->options.cores, worker, others) &&
        leat_cores_gone_from(daemon->options.cores, worker, gone) < missed) {
        daemon->scale.workers[worker].moves++;
        leat_log(LEAT_LOG_INFO, "worker %u has CPUs %s instead of %s, of which some are gone",
                 worker, leat_cpu_list_text(cpus, count, to, sizeof(to)),
                 leat_cpu_list_text(before, count, from, sizeof(from)));
    }
}

/* The most that it can have of as many; 0: it is to be parked; `held` where it can have nothing else. */
static uint16_t
most_of(const struct leat_daemon *daemon, uint32_t worker, uint32_t count, uint16_t held)
{
    uint16_t class;

    for (uint32_t cores = count; cores > 0; cores--) {
        if (leat_daemon_class_of(daemon, worker, cores, &class)) {
            return (uint16_t)cores;
        }
    }
    return count == 0 ? 0 : held;
}

/* Mutex held. Cores that it can have again: who has CPUs that the configuration lists has no others for them. */
static uint32_t
free_again(const struct leat_daemon *daemon, uint32_t worker)
{
    const uint32_t free_of = leat_cores_free_of(daemon->options.cores, leat_daemon_pool(daemon, worker));
    const uint32_t home = leat_cores_free_home(daemon->options.cores, worker);

    return daemon->options.workers[worker].listed && home < free_of ? home : free_of;
}

/* Mutex held. Whether the worker is to have another number of cores, for some are gone or there again. */
static bool
wants_other(const struct leat_daemon *daemon, uint32_t worker,
            struct leat_daemon_arrangement *ret_wanted)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    const struct leat_cores *cores = daemon->options.cores;
    const bool as_lost = state->lost.number != 0 && state->target.number == state->lost.number;
    uint32_t cpus[LEAT_TEAM_MAX];

    const uint32_t gone = leat_cores_gone_from(cores, worker, cpus);
    const uint32_t present = leat_cores_present_of(cores, worker, cpus);
    *ret_wanted = (struct leat_daemon_arrangement){
        .worker = worker,
        .cores = state->target.cores,
        .application = LEAT_ARRANGED_AS_BEFORE,
        .guarded = true,
        .number = state->target.number};
    if (gone > 0 && present < state->target.cores && !leat_cores_shared(cores, worker)) {
        ret_wanted->cores = most_of(daemon, worker, present, state->target.cores);
    } else if (gone == 0 && as_lost && daemon->scaling == NULL && free_again(daemon, worker) + present >= state->lost.cores) {
        ret_wanted->cores = state->lost.cores;
        ret_wanted->application = state->lost.application;
    }
    return ret_wanted->cores != state->target.cores;
}

/*
 * Mutex not held. What it was to have before it lost any is kept for as long as nothing else is arranged for it; who arranged
 * something else since the look is right.
 */
static void
arrange_other(struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted, bool tells)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[wanted->worker];
    uint64_t number;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    const uint16_t before = state->target.cores, application = state->target.application;
    const bool again = state->lost.number != 0 && state->target.number == state->lost.number;
    const bool stale = state->target.number != wanted->number;
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    if (stale) {
        return;
    }
    const enum leat_status status = leat_daemon_arrange(daemon, wanted, 1, &number);
    if (status != LEAT_OK && tells) {
        leat_log(LEAT_LOG_WARNING, "worker %u runs wherever it can: %s", wanted->worker,
                 leat_error_text());
    }
    if (status != LEAT_OK) {
        return;
    }
    leat_log(LEAT_LOG_INFO, "worker %u is to have %u cores instead of %u: %s", wanted->worker,
             wanted->cores, before,
             wanted->cores < before ? "others are gone" : "there are enough again");
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (wanted->cores > before) {
        state->lost.number = 0;
    } else {
        state->lost.cores = again ? state->lost.cores : before;
        state->lost.application = again ? state->lost.application : application;
        state->lost.number = number;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

/* ---- Threads on their CPUs -------------------------------------------------------------------------- */

static bool
is_held_to(pid_t thread, uint32_t cpu)
{
    cpu_set_t set;
    return sched_getaffinity(thread, sizeof(set), &set) != 0 ||
           (CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set));
}

/* Those that run, each on its CPU; who has none of its own is beside the leader. */
static enum leat_status
repin_worker(struct leat_daemon *daemon, uint32_t worker, const uint32_t *cpus, uint32_t count,
             uint32_t members, uint64_t *repinned)
{
    pid_t threads[LEAT_TEAM_MAX];
    bool held[LEAT_TEAM_MAX];

    (void)leat_worker_threads(daemon->workers[worker], threads);
    for (uint32_t m = 0; m < members; m++) { /* first, for a group that gets other CPUs has its threads on these */
        held[m] = is_held_to(threads[m], cpus[m < count ? m : 0]);
    }
    enum leat_status status = leat_cpusets_set(daemon->options.cpusets, worker, cpus, count);
    for (uint32_t m = 0; m < members && status == LEAT_OK; m++) {
        if (!held[m]) {
            status = leat_worker_pin(daemon->workers[worker], m, cpus[m < count ? m : 0]);
            *repinned += status == LEAT_OK;
        }
    }
    return status;
}

/* It has no core of its own while its CPU is gone. */
static enum leat_status
repin_dispatcher(struct leat_daemon *daemon, const bool *present, uint64_t *repinned)
{
    uint32_t cpus[LEAT_CPU_MAX], count = 0;
    const uint32_t own = (uint32_t)daemon->options.dispatcher_cpu;
    bool changed;

    if (daemon->options.dispatcher_cpu < 0) {
        return LEAT_OK;
    }
    for (uint32_t cpu = 0; cpu < LEAT_CPU_MAX; cpu++) {
        if (present[cpu] && (cpu == own || !present[own])) {
            cpus[count++] = cpu;
        }
    }
    const enum leat_status status = leat_dispatcher_hold(daemon->dispatcher, cpus, count, &changed);
    *repinned += changed;
    return status;
}

/* Between begin and end of moves; mutex held, released meanwhile. */
static void
repin(struct leat_daemon *daemon, const bool *present)
{
    struct leat_daemon_scale *scale = &daemon->scale;
    uint32_t cpus[LEAT_TEAM_MAX];
    const uint32_t *held;
    uint64_t repinned = 0;
    bool failed = false;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint32_t members = leat_cores_of(daemon->options.cores, w, &held);
        const uint32_t count = leat_cores_present_of(daemon->options.cores, w, cpus);
        if (count == 0) {
            continue; /* it is parked, or the kernel has it run somewhere */
        }
        LEAT_MUST(pthread_mutex_unlock(&scale->mutex) == 0);
        if (repin_worker(daemon, w, cpus, count, members, &repinned) != LEAT_OK) {
            failed = true;
            if (!scale->repins_failed) {
                leat_log(LEAT_LOG_WARNING, "worker %u is not held to its CPUs: %s", w,
                         leat_error_text());
            }
        }
        LEAT_MUST(pthread_mutex_lock(&scale->mutex) == 0);
    }
    if (repin_dispatcher(daemon, present, &repinned) != LEAT_OK) {
        failed = true;
        if (!scale->repins_failed) {
            leat_log(LEAT_LOG_WARNING, "%s", leat_error_text());
        }
    }
    scale->repins_failed = failed;
    scale->repinned += repinned;
    if (repinned > 0) {
        leat_log(LEAT_LOG_INFO, "%llu threads were not held to their CPUs, and are now",
                 (unsigned long long)repinned);
    }
}

/* ---- A look ------------------------------------------------------------------------------------------- */

void
leat_daemon_look_at_cpus(struct leat_daemon *daemon)
{
    struct leat_daemon_arrangement others[LEAT_SCHED_WORKERS_MAX];
    bool present[LEAT_CPU_MAX], changed = false;
    uint32_t count = 0;

    if (daemon->options.cores == NULL || !leat_topology_present(present)) {
        return;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (leat_daemon_begin_moves(daemon)) {
        changed = note_present(daemon, present);
        for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
            replace_gone(daemon, w);
        }
        if (daemon->options.pin) {
            repin(daemon, present);
        }
        for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
            count += wants_other(daemon, w, &others[count]);
        }
        leat_daemon_end_moves(daemon);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    for (uint32_t i = 0; i < count; i++) {
        arrange_other(daemon, &others[i], changed);
    }
}
