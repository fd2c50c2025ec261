/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of workers while they run, and whom they serve: who asks whom, in which order. Cores' owner is runtime/cores.h. */
#include <stdio.h>
#include <string.h>

#include "runtime/cores.h"
#include "runtime/cpuset.h"
#include "runtime/daemon_private.h"
#include "runtime/log.h"

void
leat_daemon_scale_init(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_init(&daemon->scale.mutex, NULL) == 0);
    LEAT_MUST(pthread_cond_init(&daemon->scale.changed, NULL) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint16_t cores = (uint16_t)daemon->options.workers[w].core_count;
        daemon->scale.workers[w] = (struct leat_daemon_size_state){
            .target = {.cores = cores, .application = LEAT_WORKER_FOR_ALL},
            .shape = {.cores = cores, .worker_class = daemon->options.workers[w].worker_class},
            .owner = LEAT_WORKER_FOR_ALL,
            .since_ns = daemon->started_ns,
            .told = {{.answered = true}, {.answered = true}},
        };
    }
}

enum leat_status
leat_daemon_group_workers(struct leat_daemon *daemon)
{
    struct leat_cpusets *cpusets = daemon->options.cpusets;
    enum leat_status status = LEAT_OK;
    pid_t threads[LEAT_TEAM_MAX];

    LEAT_ASSERT(cpusets == NULL || daemon->options.pin);
    for (uint32_t w = 0; w < daemon->options.worker_count && cpusets != NULL && status == LEAT_OK; w++) {
        const struct leat_daemon_worker *spec = &daemon->options.workers[w];
        const uint32_t count = leat_worker_threads(daemon->workers[w], threads);
        status = leat_cpusets_enter(cpusets, w, threads, count, spec->cpus, spec->core_count);
    }
    if (status != LEAT_OK && !leat_cpusets_give_up(cpusets)) {
        return leat_err_prefix(status, "cgroups");
    }
    if (cpusets != NULL) {
        leat_log(LEAT_LOG_INFO, "workers' threads are held by %s: %s", leat_cpusets_name(cpusets),
                 leat_cpusets_reason(cpusets));
    }
    return LEAT_OK;
}

void
leat_daemon_scale_fini(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_destroy(&daemon->scale.mutex) == 0);
    LEAT_MUST(pthread_cond_destroy(&daemon->scale.changed) == 0);
}

void
leat_daemon_scale_end(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    daemon->scale.ended = true;
    LEAT_MUST(pthread_cond_broadcast(&daemon->scale.changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

void
leat_daemon_resized(void *context, struct leat_resize *resize)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    resize->answered = true;
    daemon->scale.due = true;
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    leat_daemon_wake_sizes(daemon);
}

void
leat_daemon_errand_ended(struct leat_daemon *daemon, uint32_t worker)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    const bool awaited = daemon->scale.workers[worker].under_way;
    daemon->scale.due = daemon->scale.due || awaited;
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    if (awaited) {
        leat_daemon_wake_sizes(daemon);
    }
}

void
leat_daemon_dedicated(void *context, struct leat_dedication *dedication)
{
    struct leat_daemon *daemon = context;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        daemon->scale.workers[w].owner = dedication->owners[w];
    }
    dedication->answered = true;
    LEAT_MUST(pthread_cond_broadcast(&daemon->scale.changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

void
leat_daemon_release_workers(struct leat_daemon *daemon, uint16_t application)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        state->owner = state->owner == application ? LEAT_WORKER_FOR_ALL : state->owner;
        state->target.application =
            state->target.application == application ? LEAT_WORKER_FOR_ALL : state->target.application;
        state->lost.application = state->lost.application == application ? LEAT_WORKER_FOR_ALL : state->lost.application;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

/* ---- What there is -------------------------------------------------------------------------------- */

bool
leat_daemon_class_of(const struct leat_daemon *daemon, uint32_t worker, uint32_t cores, uint16_t *ret_class)
{
    const struct leat_daemon_worker *spec = &daemon->options.workers[worker];
    const char *name = daemon->classes[spec->worker_class].name;

    if (cores == spec->core_count) { /* names may be missing */
        *ret_class = spec->worker_class;
        return true;
    }
    for (uint16_t c = 0; c < daemon->class_count && cores <= spec->cores_max; c++) {
        if (daemon->team_sizes[c] == cores && strcmp(daemon->classes[c].name, name) == 0) {
            *ret_class = c;
            return true;
        }
    }
    return false;
}

/* All but where a worker serves nobody, having no cores. */
static bool
is_pending(const struct leat_daemon_size_state *state)
{
    return state->under_way || state->target.cores != state->shape.cores ||
           (state->shape.cores > 0 && state->owner != state->target.application);
}

/* How many it has in the table of cores, and which. */
static uint32_t
held_by(const struct leat_daemon *daemon, uint32_t worker, const uint32_t **ret_cpus)
{
    *ret_cpus = daemon->options.workers[worker].cpus;
    return daemon->options.cores != NULL ? leat_cores_of(daemon->options.cores, worker, ret_cpus)
                                         : daemon->options.workers[worker].core_count;
}

static uint32_t
count_held(const struct leat_daemon *daemon, uint32_t worker)
{
    const uint32_t *cpus;
    return held_by(daemon, worker, &cpus);
}

/* What it has and others can have once it gives it back; less than 0: what it is to have more. What is gone goes first. */
static int64_t
count_to_give(const struct leat_daemon *daemon, uint32_t worker)
{
    const int64_t held = count_held(daemon, worker), target = daemon->scale.workers[worker].target.cores;
    uint32_t cpus[LEAT_TEAM_MAX];

    if (held <= target || daemon->options.cores == NULL) {
        return held - target;
    }
    const int64_t present = leat_cores_present_of(daemon->options.cores, worker, cpus);
    return present > target ? present - target : 0;
}

#define ALL_POOLS UINT32_MAX

/* What workers of the pool have more than they are to have; less than 0 where it is less. */
static int64_t
count_to_come(const struct leat_daemon *daemon, uint32_t pool)
{
    int64_t more = 0;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (pool == ALL_POOLS || leat_daemon_pool(daemon, w) == pool) {
            more += count_to_give(daemon, w);
        }
    }
    return more;
}

void
leat_daemon_held(struct leat_daemon *daemon, uint32_t worker, struct leat_daemon_held *ret_held)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    const uint32_t *cpus;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    *ret_held = (struct leat_daemon_held){
        .cpu_count = held_by(daemon, worker, &cpus),
        .shape = state->shape,
        .application = state->shape.cores > 0 ? state->owner : LEAT_WORKER_FOR_NOBODY,
        .pending = is_pending(state),
        .target = {.worker = worker, .cores = state->target.cores, .application = state->target.application},
        .asked_ns = state->target.asked_ns,
        .in_batch = state->under_way,
        .since_ns = state->since_ns,
        .resizes = state->resizes,
        .moves = state->moves};
    memcpy(ret_held->cpus, cpus, ret_held->cpu_count * sizeof(cpus[0]));
    if (daemon->options.cores != NULL) {
        ret_held->gone_count = leat_cores_gone_from(daemon->options.cores, worker, ret_held->gone);
    }
    if (state->failed != LEAT_OK) {
        memcpy(ret_held->trouble, state->trouble, sizeof(ret_held->trouble));
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

uint32_t
leat_daemon_count_workers(struct leat_daemon *daemon, uint16_t ret_own[LEAT_APPLICATIONS_MAX])
{
    uint32_t common = 0, any = 0;

    memset(ret_own, 0, LEAT_APPLICATIONS_MAX * sizeof(ret_own[0]));
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint16_t owner = daemon->scale.workers[w].owner;
        common += owner == LEAT_WORKER_FOR_ALL;
        any += owner != LEAT_WORKER_FOR_NOBODY;
        if (owner < LEAT_APPLICATIONS_MAX) {
            ret_own[owner]++;
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return common > 0 ? common : any;
}

void
leat_daemon_list_owners(struct leat_daemon *daemon, uint16_t ret_owners[LEAT_SCHED_WORKERS_MAX])
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        ret_owners[w] = daemon->scale.workers[w].owner;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

void
leat_daemon_add_near(struct leat_daemon *daemon, uint32_t worker, struct leat_worker_set *workers)
{
    const struct leat_cores *cores = daemon->options.pin ? daemon->options.cores : NULL;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (w == worker || cores == NULL || leat_cores_near(cores, worker, w)) {
            leat_worker_set_put(workers, w, true);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

uint32_t
leat_daemon_count_awake(struct leat_daemon *daemon)
{
    uint32_t awake = 0;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        awake += daemon->scale.workers[w].shape.cores > 0;
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return awake;
}

uint32_t
leat_daemon_free_cpus(struct leat_daemon *daemon, uint32_t *cpus)
{
    uint32_t count = 0;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (daemon->options.cores != NULL) {
        count = leat_cores_free_cpus(daemon->options.cores, cpus);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return count;
}

uint32_t
leat_daemon_gone_cpus(struct leat_daemon *daemon, uint32_t *cpus)
{
    uint32_t count = 0;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (daemon->options.cores != NULL) {
        count = leat_cores_gone(daemon->options.cores, cpus);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return count;
}

void
leat_daemon_gone_pools(struct leat_daemon *daemon, uint32_t ret_gone[LEAT_SCHED_WORKERS_MAX])
{
    const struct leat_cores *cores = daemon->options.cores;

    memset(ret_gone, 0, LEAT_SCHED_WORKERS_MAX * sizeof(ret_gone[0]));
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    for (uint32_t p = 0; cores != NULL && p < leat_cores_pool_count(cores); p++) {
        ret_gone[p] = leat_cores_gone_of(cores, p);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

uint64_t
leat_daemon_repinned(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    const uint64_t repinned = daemon->scale.repinned;
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return repinned;
}

uint32_t
leat_daemon_free_cores(struct leat_daemon *daemon, uint32_t node)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    int64_t left = daemon->options.cores != NULL ? leat_cores_free(daemon->options.cores, node) : 0;
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (daemon->options.workers[w].node == node) {
            left += count_to_give(daemon, w);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return left > 0 ? (uint32_t)left : 0;
}

uint32_t
leat_daemon_pool(const struct leat_daemon *daemon, uint32_t worker)
{
    return daemon->options.cores != NULL ? leat_cores_pool(daemon->options.cores, worker)
                                         : daemon->worker_copies[worker];
}

uint32_t
leat_daemon_free_pools(struct leat_daemon *daemon, uint32_t ret_free[LEAT_SCHED_WORKERS_MAX])
{
    const struct leat_cores *cores = daemon->options.cores;

    memset(ret_free, 0, LEAT_SCHED_WORKERS_MAX * sizeof(ret_free[0]));
    if (cores == NULL) {
        return daemon->node_count;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    int64_t left = (int64_t)leat_cores_free_pools(cores) + count_to_come(daemon, ALL_POOLS);
    for (uint32_t p = 0; p < leat_cores_pool_count(cores); p++) {
        const int64_t own = leat_cores_free_of(cores, p) + count_to_come(daemon, p);
        const int64_t most = own < left ? own : left;
        ret_free[p] = most > 0 ? (uint32_t)most : 0;
        left -= ret_free[p];
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return leat_cores_pool_count(cores);
}

/* ---- What may be arranged; with the mutex held ------------------------------------------------------ */

static enum leat_status
refuse_size(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted)
{
    const struct leat_daemon_worker *spec = &daemon->options.workers[wanted->worker];
    char sizes[64] = "";
    uint16_t class;

    for (uint32_t cores = 1; cores <= LEAT_TEAM_MAX; cores++) {
        if (leat_daemon_class_of(daemon, wanted->worker, cores, &class)) {
            const size_t used = strlen(sizes);
            (void)snprintf(sizes + used, sizeof(sizes) - used, "%s%u", used > 0 ? ", " : "", cores);
        }
    }
    if (spec->cores_max <= spec->core_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "worker %u has %s core%s, always: set cores_max of its entry of workers",
                         wanted->worker, sizes, strcmp(sizes, "1") == 0 ? "" : "s");
    }
    return LEAT_FAIL(LEAT_ERR_INVALID,
                     "worker %u cannot have %u cores but %s: cores_max of its entry of workers says what it can have",
                     wanted->worker, wanted->cores, sizes);
}

/* How many more those of the pool are to have than they were to. */
static int64_t
count_more(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted, uint32_t count, uint32_t pool)
{
    int64_t more = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (pool == ALL_POOLS || leat_cores_pool(daemon->options.cores, wanted[i].worker) == pool) {
            more += (int64_t)wanted[i].cores - daemon->scale.workers[wanted[i].worker].target.cores;
        }
    }
    return more;
}

/* Are there cores for all of them, once those that are to have fewer have given theirs back? */
static enum leat_status
check_cores(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted, uint32_t count)
{
    const struct leat_cores *cores = daemon->options.cores;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint32_t pool = leat_cores_pool(cores, w);
        const int64_t left = leat_cores_free_of(cores, pool) + count_to_come(daemon, pool);
        const int64_t more = count_more(daemon, wanted, count, pool);
        if (more > 0 && more > left) {
            return LEAT_FAIL(LEAT_ERR_BUSY,
                             "NUMA node %u has %lld cores of class '%s' free, %lld too few: take them from another worker "
                             "(leat scale show)",
                             daemon->options.workers[w].node, (long long)(left > 0 ? left : 0),
                             daemon->classes[daemon->options.workers[w].worker_class].name, (long long)(more - left));
        }
    }
    const int64_t left = leat_cores_free_pools(cores) + count_to_come(daemon, ALL_POOLS);
    const int64_t more = count_more(daemon, wanted, count, ALL_POOLS);
    return more <= 0 || more <= left
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_BUSY,
                           "%lld cores are free in all, %lld too few: take them from another worker (leat scale show)",
                           (long long)(left > 0 ? left : 0), (long long)(more - left));
}

static enum leat_status
check_parking(const struct leat_daemon *daemon, uint32_t worker)
{
    return daemon->options.cores == NULL || !leat_cores_shared(daemon->options.cores, worker)
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "worker %u cannot be parked: others have its cores too", worker);
}

/* LEAT_OK where nobody's size is to be another, whoever owns cores. */
static enum leat_status
check_sizes(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted, uint32_t count)
{
    enum leat_status status = LEAT_OK;
    bool changed = false;
    uint16_t class;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        if (wanted[i].cores > 0 && !leat_daemon_class_of(daemon, wanted[i].worker, wanted[i].cores, &class)) {
            return refuse_size(daemon, &wanted[i]);
        }
        status = wanted[i].cores == 0 ? check_parking(daemon, wanted[i].worker) : LEAT_OK;
        changed = changed || wanted[i].cores != daemon->scale.workers[wanted[i].worker].target.cores;
    }
    if (status != LEAT_OK || !changed) {
        return status;
    }
    return daemon->options.cores != NULL
               ? check_cores(daemon, wanted, count)
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "workers of this daemon keep the cores that they have");
}

static enum leat_status
check_workers(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count)
{
    bool listed[LEAT_SCHED_WORKERS_MAX] = {false};

    for (uint32_t i = 0; i < count; i++) {
        if (workers[i].worker >= daemon->options.worker_count) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no worker %u: they are 0 to %u (leat scale show)",
                             workers[i].worker, daemon->options.worker_count - 1);
        }
        if (listed[workers[i].worker]) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "worker %u is listed twice", workers[i].worker);
        }
        listed[workers[i].worker] = true;
    }
    return LEAT_OK;
}

static enum leat_status
check_owners(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *wanted, uint32_t count)
{
    uint16_t all[LEAT_SCHED_WORKERS_MAX];

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        all[w] = daemon->scale.workers[w].target.application;
    }
    for (uint32_t i = 0; i < count; i++) {
        all[wanted[i].worker] = wanted[i].application;
    }
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (all[w] != LEAT_WORKER_FOR_NOBODY) {
            return LEAT_OK;
        }
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "no worker would be left to serve anybody");
}

/* With what stays as it was arranged before. */
static struct leat_daemon_arrangement
fill_in(const struct leat_daemon *daemon, const struct leat_daemon_arrangement *worker)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker->worker];
    const uint16_t kept = state->target.cores > 0 ? state->target.application : LEAT_WORKER_FOR_ALL;
    struct leat_daemon_arrangement wanted = *worker;

    wanted.cores = wanted.cores == LEAT_ARRANGED_AS_BEFORE ? state->target.cores : wanted.cores;
    wanted.application = wanted.application == LEAT_ARRANGED_AS_BEFORE ? kept : wanted.application;
    wanted.application = wanted.cores == 0 ? LEAT_WORKER_FOR_NOBODY : wanted.application;
    return wanted;
}

/* ---- Steps; with the mutex held, which waits and regroup() release, by who is busy ------------------ */

/* It keeps what it has. */
static void
give_up(struct leat_daemon *daemon, uint32_t worker, enum leat_status status)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    const char *why = leat_error_text();

    state->failed = status;
    state->target.cores = state->shape.cores;
    state->target.application = state->shape.cores > 0 ? state->target.application : LEAT_WORKER_FOR_NOBODY;
    if (strncmp(state->trouble, why, sizeof(state->trouble) - 1) != 0) {
        (void)snprintf(state->trouble, sizeof(state->trouble), "%s", why);
        leat_log(LEAT_LOG_WARNING, "worker %u has %u cores as before: %s", worker, state->shape.cores, why);
    }
}

/*
 * What it was told last is in force, and no batch runs in a shape before, and no errand: what that had more goes back. Who
 * waits for the errand calls leat_daemon_errand_ended.
 */
static void
settle(struct leat_daemon *daemon, uint32_t worker)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    const struct leat_resize *resize = &state->told[state->last];

    if (!state->under_way || !resize->answered || leat_worker_on_errand(daemon->workers[worker])) {
        return;
    }
    LEAT_ASSERT(!resize->replaced && state->told[1 - state->last].answered);
    for (uint32_t have = count_held(daemon, worker); have > state->shape.cores; have--) {
        (void)leat_cores_take_back(daemon->options.cores, worker);
        state->regroups = true;
    }
    state->under_way = false;
    state->idle = resize->idle;
    const uint64_t effect_ns = resize->effect_ns > resize->told_ns ? resize->effect_ns : resize->told_ns;
    state->effect_ns = effect_ns > state->target.asked_ns ? effect_ns - state->target.asked_ns : 0;
    state->since_ns = leat_monotonic_ns();
    state->resizes++;
}

static bool
may_be_told(const struct leat_daemon_size_state *state)
{
    return state->told[1 - state->last].answered;
}

static void
tell(struct leat_daemon *daemon, uint32_t worker, uint16_t cores)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    struct leat_team_shape shape = {.cores = cores, .worker_class = state->shape.worker_class};

    LEAT_ASSERT(may_be_told(state) && cores <= count_held(daemon, worker));
    LEAT_MUST(cores == 0 || leat_daemon_class_of(daemon, worker, cores, &shape.worker_class));
    state->last = 1 - state->last;
    state->told[state->last] = (struct leat_resize){.worker = (uint16_t)worker,
                                                    .shape = shape,
                                                    .before = state->shape,
                                                    .told_ns = leat_clock_now(&daemon->tables->clock)};
    state->shape = shape;
    state->under_way = true;
    const struct leat_command command = {.kind = LEAT_COMMAND_RESIZE, .resize = &state->told[state->last]};
    leat_dispatcher_command(daemon->dispatcher, &command);
}

/* Of what it has. */
static uint32_t
list_present(const struct leat_daemon *daemon, uint32_t worker, uint32_t cpus[LEAT_TEAM_MAX])
{
    const uint32_t *held;

    if (daemon->options.cores != NULL) {
        return leat_cores_present_of(daemon->options.cores, worker, cpus);
    }
    const uint32_t count = held_by(daemon, worker, &held);
    memcpy(cpus, held, count * sizeof(cpus[0]));
    return count;
}

/*
 * Its group's CPUs, where it has a group, are those that the worker has by now and are there. One that has none sleeps in
 * its group as it is. The kernel may take its time: meanwhile the mutex is released.
 */
static enum leat_status
regroup(struct leat_daemon *daemon, uint32_t worker)
{
    uint32_t cpus[LEAT_TEAM_MAX];
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(daemon->scale.busy && count_held(daemon, worker) <= LEAT_TEAM_MAX);
    daemon->scale.workers[worker].regroups = false;
    const uint32_t count = list_present(daemon, worker, cpus);
    if (count > 0) {
        LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
        status = leat_cpusets_set(daemon->options.cpusets, worker, cpus, count);
        LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    }
    return status;
}

/* Gives the worker so many cores, with its sleeping threads on them. On failure it has what it had. */
static enum leat_status
give(struct leat_daemon *daemon, uint32_t worker, uint32_t cores)
{
    const uint32_t before = count_held(daemon, worker);
    enum leat_status status = LEAT_OK;
    const uint32_t *cpus;
    uint32_t have = before;

    while (have < cores && status == LEAT_OK) {
        uint32_t cpu;
        status = leat_cores_give(daemon->options.cores, worker, daemon->options.workers[worker].listed, &cpu);
        have += status == LEAT_OK;
    }
    if (status == LEAT_OK) {
        status = regroup(daemon, worker); /* first, or the kernel refuses the CPUs to the threads */
    }
    (void)held_by(daemon, worker, &cpus);
    for (uint32_t member = before; member < cores && status == LEAT_OK; member++) {
        status = leat_worker_pin(daemon->workers[worker], member, cpus[member]);
    }
    for (; status != LEAT_OK && have > before; have--) {
        (void)leat_cores_take_back(daemon->options.cores, worker);
        daemon->scale.workers[worker].regroups = true;
    }
    return status;
}

/* As it is to be, where cores allow it: else it waits. */
static void
grow(struct leat_daemon *daemon, uint32_t worker)
{
    const uint16_t cores = daemon->scale.workers[worker].target.cores; /* which may be others once it has them */
    const uint32_t have = count_held(daemon, worker);
    enum leat_status status = LEAT_OK;

    if (cores > have) {
        if (leat_cores_free_of(daemon->options.cores, leat_daemon_pool(daemon, worker)) < cores - have) {
            return;
        }
        status = give(daemon, worker, cores);
    }
    if (status == LEAT_OK) {
        tell(daemon, worker, cores);
    } else {
        give_up(daemon, worker, status);
    }
}

/* Whom the others were parked for: the most cores that it can have of those that are free, else what it has. */
static uint16_t
settle_for(const struct leat_daemon *daemon, uint32_t worker, uint32_t left)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    uint16_t class;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (w != worker && daemon->scale.workers[w].target.application != LEAT_WORKER_FOR_NOBODY) {
            return state->shape.cores;
        }
    }
    for (uint32_t cores = state->shape.cores + left; cores > state->shape.cores; cores--) {
        if (leat_daemon_class_of(daemon, worker, cores, &class)) {
            return (uint16_t)cores;
        }
    }
    return state->shape.cores;
}

/*
 * Where nobody is about to give any, cores that somebody waits for do not come: others have them too, or they are gone. The
 * last one that is to serve does with fewer rather than with none.
 */
static void
end_waits(struct leat_daemon *daemon)
{
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (daemon->scale.workers[w].under_way) {
            return;
        }
    }
    for (uint32_t w = 0; w < daemon->options.worker_count && !daemon->scale.due; w++) {
        struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        if (state->target.cores > state->shape.cores) {
            const uint32_t left = leat_cores_free_of(daemon->options.cores, leat_daemon_pool(daemon, w));
            const uint16_t application = state->target.application, cores = settle_for(daemon, w, left);
            give_up(daemon, w,
                    LEAT_FAIL(LEAT_ERR_BUSY, "%u cores that it can have are free, and worker %u was to have %u more", left, w,
                              (uint32_t)state->target.cores - state->shape.cores));
            if (cores > state->shape.cores) {
                state->target.cores = cores;
                state->target.application = application;
                daemon->scale.due = true;
                leat_log(LEAT_LOG_WARNING, "worker %u is to have %u cores: nobody else serves", w, cores);
            }
        }
    }
}

/* Whom all are to serve now. False where that is as it is, or nobody would be left. */
static bool
list_owners(const struct leat_daemon *daemon, uint16_t ret_owners[LEAT_SCHED_WORKERS_MAX])
{
    bool changed = false, left = false;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        ret_owners[w] = state->shape.cores > 0 ? state->target.application : LEAT_WORKER_FOR_NOBODY;
        changed = changed || ret_owners[w] != state->owner;
        left = left || ret_owners[w] != LEAT_WORKER_FOR_NOBODY;
    }
    return changed && left;
}

/* In force when it returns. An application that has gone meanwhile has no workers. */
static void
dedicate(struct leat_daemon *daemon, const uint16_t owners[LEAT_SCHED_WORKERS_MAX])
{
    struct leat_dedication *dedication = &daemon->scale.dedication;
    const struct leat_command command = {.kind = LEAT_COMMAND_DEDICATE, .dedication = dedication};

    memcpy(dedication->owners, owners, sizeof(dedication->owners));
    dedication->answered = false;
    leat_dispatcher_command(daemon->dispatcher, &command);
    while (!dedication->answered && !daemon->scale.ended) {
        LEAT_MUST(pthread_cond_wait(&daemon->scale.changed, &daemon->scale.mutex) == 0);
    }
    for (uint32_t w = 0; w < daemon->options.worker_count && dedication->answered; w++) {
        struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        if (state->owner != owners[w] && state->target.application == owners[w]) {
            state->target.application = state->owner;
        }
    }
}

static void
serve_as_arranged(struct leat_daemon *daemon)
{
    uint16_t owners[LEAT_SCHED_WORKERS_MAX], before[LEAT_SCHED_WORKERS_MAX];

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        before[w] = daemon->scale.workers[w].owner;
    }
    if (!list_owners(daemon, owners)) {
        return;
    }
    dedicate(daemon, owners);
    const uint64_t now_ns = leat_clock_now(&daemon->tables->clock);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        if (state->owner != before[w] && !state->under_way && state->effect_ns == 0) {
            state->effect_ns = now_ns - state->target.asked_ns;
        }
    }
}

/* Groups of those that gave CPUs back keep them until all else is done: nothing runs on them, and nobody waits. */
static void
regroup_all(struct leat_daemon *daemon)
{
    for (uint32_t w = 0; w < daemon->options.worker_count && !daemon->scale.ended; w++) {
        if (daemon->scale.workers[w].regroups && regroup(daemon, w) != LEAT_OK) {
            leat_log(LEAT_LOG_WARNING, "a control group keeps the CPUs that it had: %s", leat_error_text());
        }
    }
}

/* What is arranged holds: see struct leat_daemon_scale. */
static void
check(const struct leat_daemon *daemon)
{
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        const uint32_t have = count_held(daemon, w);
        LEAT_ASSERT(have >= state->shape.cores && (state->under_way || have == state->shape.cores));
        LEAT_ASSERT(state->under_way || (state->told[0].answered && state->told[1].answered));
        LEAT_ASSERT(state->target.cores > 0 || state->target.application == LEAT_WORKER_FOR_NOBODY);
    }
    if (daemon->options.cores != NULL) {
        leat_cores_check(daemon->options.cores);
    }
}

/* Those who give go first, so that others get what they leave. */
static void
step(struct leat_daemon *daemon)
{
    const uint32_t count = daemon->options.worker_count;

    for (uint32_t w = 0; w < count; w++) {
        settle(daemon, w);
    }
    for (uint32_t w = 0; w < count; w++) {
        const struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        if (state->target.cores < state->shape.cores && may_be_told(state)) {
            tell(daemon, w, state->target.cores);
        }
    }
    for (uint32_t w = 0; w < count; w++) {
        const struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        if (state->target.cores > state->shape.cores && may_be_told(state)) {
            grow(daemon, w);
        }
    }
    end_waits(daemon);
    serve_as_arranged(daemon);
    regroup_all(daemon);
    check(daemon);
}

/* Mutex held. Where somebody is busy, they take them. */
static void
take_steps(struct leat_daemon *daemon)
{
    struct leat_daemon_scale *scale = &daemon->scale;

    if (scale->busy || !scale->due) {
        return;
    }
    scale->busy = true;
    while (scale->due && !scale->ended) {
        scale->due = false;
        step(daemon);
    }
    scale->busy = false;
    LEAT_MUST(pthread_cond_broadcast(&scale->changed) == 0);
    leat_daemon_wake_sizes(daemon); /* somebody may wait for what is in force now */
}

bool
leat_daemon_begin_moves(struct leat_daemon *daemon)
{
    struct leat_daemon_scale *scale = &daemon->scale;

    while (scale->busy && !scale->ended) {
        LEAT_MUST(pthread_cond_wait(&scale->changed, &scale->mutex) == 0);
    }
    if (scale->ended) {
        return false;
    }
    scale->busy = true;
    return true;
}

void
leat_daemon_end_moves(struct leat_daemon *daemon)
{
    check(daemon);
    daemon->scale.busy = false;
    LEAT_MUST(pthread_cond_broadcast(&daemon->scale.changed) == 0);
    take_steps(daemon); /* that others left to it */
}

void
leat_daemon_take_steps(struct leat_daemon *daemon)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    take_steps(daemon);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
}

/* ---- Arrangements ----------------------------------------------------------------------------------- */

static enum leat_status
check_applications(struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const uint16_t id = workers[i].application;
        const bool named = workers[i].cores > 0 && id != LEAT_ARRANGED_FOR_ALL && id != LEAT_ARRANGED_FOR_NOBODY &&
                           id != LEAT_ARRANGED_AS_BEFORE;
        if (named && (id >= LEAT_APPLICATIONS_MAX || daemon->applications[id] == NULL)) {
            status =
                LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application %u for worker %u to serve", id, workers[i].worker);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

/* Mutex held. */
static enum leat_status
set_targets(struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count, uint64_t asked_ns)
{
    struct leat_daemon_arrangement wanted[LEAT_SCHED_WORKERS_MAX];

    enum leat_status status = check_workers(daemon, workers, count);
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        wanted[i] = fill_in(daemon, &workers[i]);
        if (workers[i].guarded && daemon->scale.workers[workers[i].worker].target.number != workers[i].number) {
            status = LEAT_FAIL(LEAT_ERR_BUSY, "worker %u was given something else to be meanwhile", workers[i].worker);
        }
    }
    status = status == LEAT_OK ? check_sizes(daemon, wanted, count) : status;
    status = status == LEAT_OK ? check_owners(daemon, wanted, count) : status;
    if (status != LEAT_OK) {
        return status;
    }
    daemon->scale.arrangements++;
    for (uint32_t i = 0; i < count; i++) {
        struct leat_daemon_size_state *state = &daemon->scale.workers[wanted[i].worker];
        state->target.cores = wanted[i].cores;
        state->target.application = wanted[i].application;
        state->target.number = daemon->scale.arrangements;
        state->target.asked_ns = asked_ns;
        state->effect_ns = 0;
        state->idle = false;
        state->failed = LEAT_OK;
    }
    return LEAT_OK;
}

enum leat_status
leat_daemon_arrange(struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count,
                    uint64_t *ret_number)
{
    const uint64_t asked_ns = leat_clock_now(&daemon->tables->clock);

    LEAT_ASSERT(count <= LEAT_SCHED_WORKERS_MAX);
    enum leat_status status = check_applications(daemon, workers, count);
    if (status != LEAT_OK) {
        return status;
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    status = daemon->scale.ended ? LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down")
                                 : set_targets(daemon, workers, count, asked_ns);
    if (status == LEAT_OK) {
        if (ret_number != NULL) {
            *ret_number = daemon->scale.arrangements;
        }
        daemon->scale.due = true;
        take_steps(daemon);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_arranged(struct leat_daemon *daemon, uint32_t worker, uint64_t number, struct leat_daemon_effect *ret_effect)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(worker < daemon->options.worker_count);
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (state->target.number != number) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "worker %u was given something else to be before it was so", worker);
    } else if (state->failed != LEAT_OK) {
        status = LEAT_FAIL(state->failed, "%s", state->trouble);
    } else if (is_pending(state)) {
        status = daemon->scale.ended ? LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down") : LEAT_AGAIN;
    } else {
        *ret_effect = (struct leat_daemon_effect){.effect_ns = state->effect_ns, .idle = state->idle};
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return status;
}

/* ---- Other cores for who is disturbed where it is --------------------------------------------------- */

bool
leat_daemon_shares_cores(struct leat_daemon *daemon, uint32_t worker)
{
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    const bool shares = daemon->options.cores == NULL || leat_cores_shared(daemon->options.cores, worker);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return shares;
}

/* Its first threads, on a CPU each, and its group, where it has one. The mutex is released meanwhile, as in regroup(). */
static enum leat_status
settle_on(struct leat_daemon *daemon, uint32_t worker, const uint32_t *cpus, uint32_t count)
{
    LEAT_ASSERT(daemon->scale.busy && count > 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    enum leat_status status = leat_cpusets_set(daemon->options.cpusets, worker, cpus, count);
    for (uint32_t member = 0; member < count && status == LEAT_OK; member++) {
        status = leat_worker_pin(daemon->workers[worker], member, cpus[member]);
    }
    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    return status;
}

/* The same; on failure they are back where they could run a moment ago. */
static enum leat_status
settle_or_return(struct leat_daemon *daemon, uint32_t worker, const uint32_t *cpus, const uint32_t *before, uint32_t count)
{
    const enum leat_status status = settle_on(daemon, worker, cpus, count);

    if (status != LEAT_OK) {
        const enum leat_status back = settle_on(daemon, worker, before, count);
        (void)back;
    }
    return status;
}

static enum leat_status
move_to_free(struct leat_daemon *daemon, uint32_t worker)
{
    uint32_t cpus[LEAT_TEAM_MAX];
    const uint32_t *before;

    const uint32_t count = leat_cores_of(daemon->options.cores, worker, &before);
    enum leat_status status = leat_cores_choose_others(daemon->options.cores, worker, cpus);
    status = status == LEAT_OK ? settle_or_return(daemon, worker, cpus, before, count) : status;
    if (status == LEAT_OK) {
        leat_cores_move(daemon->options.cores, worker, cpus);
    }
    return status;
}

static enum leat_status
swap_with(struct leat_daemon *daemon, uint32_t worker, uint32_t other)
{
    struct leat_cores *cores = daemon->options.cores;
    const uint32_t *own, *others;
    uint32_t present[LEAT_TEAM_MAX];
    const uint32_t count = leat_cores_of(cores, worker, &own);

    if (worker == other || leat_cores_of(cores, other, &others) != count ||
        leat_cores_pool(cores, worker) != leat_cores_pool(cores, other) ||
        leat_cores_shared(cores, worker) || leat_cores_shared(cores, other) ||
        leat_cores_present_of(cores, worker, present) < count || leat_cores_present_of(cores, other, present) < count) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "workers %u and %u cannot have each other's cores", worker, other);
    }
    enum leat_status status = settle_or_return(daemon, worker, others, own, count);
    if (status == LEAT_OK && (status = settle_or_return(daemon, other, own, others, count)) != LEAT_OK) {
        const enum leat_status back = settle_on(daemon, worker, own, count);
        (void)back;
    }
    if (status == LEAT_OK) {
        leat_cores_swap(cores, worker, other);
        daemon->scale.workers[other].moves++;
    }
    return status;
}

enum leat_status
leat_daemon_move(struct leat_daemon *daemon, uint32_t worker, uint32_t other)
{
    struct leat_daemon_scale *scale = &daemon->scale;
    const uint32_t *cpus;

    LEAT_ASSERT(worker < daemon->options.worker_count &&
                (other < daemon->options.worker_count || other == LEAT_TO_FREE_CORES));
    if (daemon->options.cores == NULL || !daemon->options.pin) {
        return LEAT_FAIL(LEAT_ERR_UNSUPPORTED,
                         "threads of this daemon are not pinned: they run where the kernel has them run");
    }
    LEAT_MUST(pthread_mutex_lock(&scale->mutex) == 0);
    enum leat_status status = LEAT_OK;
    if (!leat_daemon_begin_moves(daemon)) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    } else {
        if (leat_cores_of(daemon->options.cores, worker, &cpus) == 0) {
            status = LEAT_FAIL(LEAT_ERR_BUSY, "worker %u is parked", worker);
        } else {
            status = other == LEAT_TO_FREE_CORES ? move_to_free(daemon, worker) : swap_with(daemon, worker, other);
        }
        scale->workers[worker].moves += status == LEAT_OK;
        leat_daemon_end_moves(daemon);
    }
    LEAT_MUST(pthread_mutex_unlock(&scale->mutex) == 0);
    return status;
}
