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
        daemon->scale.workers[w] = (struct leat_daemon_size_state){
            .shape = {.cores = (uint16_t)daemon->options.workers[w].core_count,
                      .worker_class = daemon->options.workers[w].worker_class},
            .owner = LEAT_WORKER_FOR_ALL,
            .since_ns = daemon->started_ns,
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
    LEAT_MUST(pthread_cond_broadcast(&daemon->scale.changed) == 0);
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
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
        uint16_t *owner = &daemon->scale.workers[w].owner;
        *owner = *owner == application ? LEAT_WORKER_FOR_ALL : *owner;
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

void
leat_daemon_held(struct leat_daemon *daemon, uint32_t worker, struct leat_daemon_held *ret_held)
{
    const struct leat_daemon_worker *spec = &daemon->options.workers[worker];
    const struct leat_daemon_size_state *state = &daemon->scale.workers[worker];
    const uint32_t *cpus = spec->cpus;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    *ret_held = (struct leat_daemon_held){
        .cpu_count = spec->core_count,
        .shape = state->shape,
        .application = state->owner,
        .since_ns = state->since_ns,
        .resizes = state->resizes,
        .moves = state->moves};
    if (daemon->options.cores != NULL) {
        ret_held->cpu_count = leat_cores_of(daemon->options.cores, worker, &cpus);
    }
    memcpy(ret_held->cpus, cpus, ret_held->cpu_count * sizeof(cpus[0]));
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
leat_daemon_free_cores(struct leat_daemon *daemon, uint32_t node)
{
    uint32_t count = 0;

    LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    if (daemon->options.cores != NULL) {
        count = leat_cores_free(daemon->options.cores, node);
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return count;
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
    uint32_t left = leat_cores_free_pools(cores);
    for (uint32_t p = 0; p < leat_cores_pool_count(cores); p++) {
        const uint32_t own = leat_cores_free_of(cores, p);
        ret_free[p] = own < left ? own : left;
        left -= ret_free[p];
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
    return leat_cores_pool_count(cores);
}

/* ---- Changes; all with the mutex held, which waits release ---------------------------------------- */

static enum leat_status
refuse_size(const struct leat_daemon *daemon, const struct leat_daemon_size *size)
{
    const struct leat_daemon_worker *spec = &daemon->options.workers[size->worker];
    char sizes[64] = "";
    uint16_t class;

    for (uint32_t cores = 1; cores <= LEAT_TEAM_MAX; cores++) {
        if (leat_daemon_class_of(daemon, size->worker, cores, &class)) {
            const size_t used = strlen(sizes);
            (void)snprintf(sizes + used, sizeof(sizes) - used, "%s%u", used > 0 ? ", " : "", cores);
        }
    }
    if (spec->cores_max <= spec->core_count) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "worker %u has %s cores, always: set cores_max of its entry of workers",
                         size->worker, sizes);
    }
    return LEAT_FAIL(LEAT_ERR_INVALID,
                     "worker %u cannot have %u cores but %s: cores_max of its entry of workers says what it can have",
                     size->worker, size->cores, sizes);
}

/* Are there cores for all of them, once those that shrink have given theirs back? */
static enum leat_status
check_cores(const struct leat_daemon *daemon, const struct leat_daemon_size *sizes, uint32_t count)
{
    const struct leat_cores *cores = daemon->options.cores;
    int64_t all_left = leat_cores_free_pools(cores);

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const uint32_t pool = leat_cores_pool(cores, w);
        int64_t left = leat_cores_free_of(cores, pool);
        for (uint32_t i = 0; i < count; i++) {
            if (leat_cores_pool(cores, sizes[i].worker) == pool) {
                left -= (int64_t)sizes[i].cores - daemon->scale.workers[sizes[i].worker].shape.cores;
            }
        }
        if (left < 0) {
            return LEAT_FAIL(LEAT_ERR_BUSY,
                             "NUMA node %u has %u cores of class '%s' free, %lld too few: take "
                             "them from another worker "
                             "(leat scale show)",
                             daemon->options.workers[w].node, leat_cores_free_of(cores, pool),
                             daemon->classes[daemon->options.workers[w].worker_class].name,
                             (long long)-left);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        all_left -= (int64_t)sizes[i].cores - daemon->scale.workers[sizes[i].worker].shape.cores;
    }
    return all_left >= 0
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_BUSY,
                           "%u cores are free in all, %lld too few: take them from another worker "
                           "(leat scale show)",
                           leat_cores_free_pools(cores), (long long)-all_left);
}

/* Whom the worker that is listed i-th is to serve. */
static uint16_t
owner_of(const struct leat_daemon *daemon, const struct leat_daemon_size *size, const uint16_t *owners, uint32_t i)
{
    const struct leat_daemon_size_state *state = &daemon->scale.workers[size->worker];
    const uint16_t kept = state->shape.cores > 0 ? state->owner : LEAT_WORKER_FOR_ALL;

    return size->cores == 0 ? LEAT_WORKER_FOR_NOBODY : owners != NULL ? owners[i] : kept;
}

/* Whom all are to serve. False where that is as it is. */
static bool
list_owners(const struct leat_daemon *daemon, const struct leat_daemon_size *sizes, const uint16_t *owners, uint32_t count,
            uint16_t ret_owners[LEAT_SCHED_WORKERS_MAX])
{
    bool changed = false;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        ret_owners[w] = daemon->scale.workers[w].owner;
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_owners[sizes[i].worker] = owner_of(daemon, &sizes[i], owners, i);
        changed = changed || ret_owners[sizes[i].worker] != daemon->scale.workers[sizes[i].worker].owner;
    }
    return changed;
}

static enum leat_status
check_owners(const struct leat_daemon *daemon, const struct leat_daemon_size *sizes, const uint16_t *owners, uint32_t count)
{
    uint16_t all[LEAT_SCHED_WORKERS_MAX];

    (void)list_owners(daemon, sizes, owners, count, all);
    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        if (all[w] != LEAT_WORKER_FOR_NOBODY) {
            return LEAT_OK;
        }
    }
    return LEAT_FAIL(LEAT_ERR_INVALID, "no worker would be left to serve anybody");
}

static enum leat_status
check_parking(const struct leat_daemon *daemon, uint32_t worker)
{
    return daemon->options.cores == NULL || !leat_cores_shared(daemon->options.cores, worker)
               ? LEAT_OK
               : LEAT_FAIL(LEAT_ERR_INVALID, "worker %u cannot be parked: others have its cores too", worker);
}

/* LEAT_OK where nobody's size changes, whoever owns cores. */
static enum leat_status
check_sizes(const struct leat_daemon *daemon, const struct leat_daemon_size *sizes, uint32_t count)
{
    enum leat_status status = LEAT_OK;
    bool changed = false;
    uint16_t class;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        if (sizes[i].worker >= daemon->options.worker_count) {
            return LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no worker %u: they are 0 to %u (leat scale show)",
                             sizes[i].worker, daemon->options.worker_count - 1);
        }
        for (uint32_t before = 0; before < i; before++) {
            if (sizes[before].worker == sizes[i].worker) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "worker %u is listed twice", sizes[i].worker);
            }
        }
        if (sizes[i].cores > 0 && !leat_daemon_class_of(daemon, sizes[i].worker, sizes[i].cores, &class)) {
            return refuse_size(daemon, &sizes[i]);
        }
        status = sizes[i].cores == 0 ? check_parking(daemon, sizes[i].worker) : LEAT_OK;
        changed = changed || sizes[i].cores != daemon->scale.workers[sizes[i].worker].shape.cores;
    }
    if (status != LEAT_OK || !changed) {
        return status;
    }
    return daemon->options.cores != NULL
               ? check_cores(daemon, sizes, count)
               : LEAT_FAIL(LEAT_ERR_UNSUPPORTED, "workers of this daemon keep the cores that they have");
}

static void
await_answer(struct leat_daemon *daemon, const bool *answered)
{
    while (!*answered && !daemon->scale.ended) {
        LEAT_MUST(pthread_cond_wait(&daemon->scale.changed, &daemon->scale.mutex) == 0);
    }
}

/* In force when it returns. */
static enum leat_status
dedicate(struct leat_daemon *daemon, const uint16_t owners[LEAT_SCHED_WORKERS_MAX])
{
    struct leat_dedication *dedication = &daemon->scale.dedication;
    const struct leat_command command = {.kind = LEAT_COMMAND_DEDICATE, .dedication = dedication};

    memcpy(dedication->owners, owners, sizeof(dedication->owners));
    dedication->answered = false;
    leat_dispatcher_command(daemon->dispatcher, &command);
    await_answer(daemon, &dedication->answered);
    return dedication->answered ? LEAT_OK : LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
}

/* After a change that ended early: who got no cores serves nobody, where others are left. */
static void
forget_parked(struct leat_daemon *daemon)
{
    uint16_t owners[LEAT_SCHED_WORKERS_MAX];
    bool left = false;

    for (uint32_t w = 0; w < daemon->options.worker_count; w++) {
        const struct leat_daemon_size_state *state = &daemon->scale.workers[w];
        owners[w] = state->shape.cores > 0 ? state->owner : LEAT_WORKER_FOR_NOBODY;
        left = left || owners[w] != LEAT_WORKER_FOR_NOBODY;
    }
    if (left) {
        (void)dedicate(daemon, owners);
    }
}

static void
tell(struct leat_daemon *daemon, const struct leat_daemon_size *size)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[size->worker];
    struct leat_team_shape shape = {.cores = (uint16_t)size->cores, .worker_class = state->shape.worker_class};

    LEAT_MUST(size->cores == 0 || leat_daemon_class_of(daemon, size->worker, size->cores, &shape.worker_class));
    state->resize = (struct leat_resize){.worker = (uint16_t)size->worker, .shape = shape, .before = state->shape};
    state->shape = shape;
    const struct leat_command command = {.kind = LEAT_COMMAND_RESIZE, .resize = &state->resize};
    leat_dispatcher_command(daemon->dispatcher, &command);
}

static enum leat_status
await(struct leat_daemon *daemon, struct leat_daemon_size *size, uint64_t asked_ns)
{
    struct leat_daemon_size_state *state = &daemon->scale.workers[size->worker];

    await_answer(daemon, &state->resize.answered);
    if (!state->resize.answered) {
        return LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    }
    size->idle = state->resize.idle;
    size->effect_ns = state->resize.effect_ns > asked_ns ? state->resize.effect_ns - asked_ns : 0;
    state->since_ns = leat_monotonic_ns();
    state->resizes++;
    return LEAT_OK;
}

/* What no batch runs on any more goes back. */
static enum leat_status
shrink(struct leat_daemon *daemon, struct leat_daemon_size *sizes, uint32_t count, uint64_t asked_ns)
{
    bool told[LEAT_SCHED_WORKERS_MAX] = {false};
    enum leat_status status = LEAT_OK;

    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i].cores < daemon->scale.workers[sizes[i].worker].shape.cores) {
            tell(daemon, &sizes[i]);
            told[i] = true;
        }
    }
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        if (told[i] && (status = await(daemon, &sizes[i], asked_ns)) == LEAT_OK) {
            const struct leat_resize *resize = &daemon->scale.workers[sizes[i].worker].resize;
            for (uint32_t c = resize->shape.cores; c < resize->before.cores; c++) {
                (void)leat_cores_take_back(daemon->options.cores, sizes[i].worker);
            }
        }
    }
    return status;
}

/*
 * Its group's CPUs, where it has a group, are those that the worker has by now. One that has none sleeps in its group as it
 * is. The kernel may take its time: meanwhile the mutex is released.
 */
static enum leat_status
regroup(struct leat_daemon *daemon, uint32_t worker)
{
    uint32_t cpus[LEAT_TEAM_MAX];
    const uint32_t *held;
    const uint32_t count = leat_cores_of(daemon->options.cores, worker, &held);
    enum leat_status status = LEAT_OK;

    LEAT_ASSERT(daemon->scale.busy && count <= LEAT_TEAM_MAX);
    if (count > 0) {
        memcpy(cpus, held, count * sizeof(cpus[0]));
        LEAT_MUST(pthread_mutex_unlock(&daemon->scale.mutex) == 0);
        status = leat_cpusets_set(daemon->options.cpusets, worker, cpus, count);
        LEAT_MUST(pthread_mutex_lock(&daemon->scale.mutex) == 0);
    }
    return status;
}

/* Gives the worker its cores, with its sleeping threads on them. On failure it has what it had. */
static enum leat_status
give(struct leat_daemon *daemon, const struct leat_daemon_size *size)
{
    const uint32_t before = daemon->scale.workers[size->worker].shape.cores;
    enum leat_status status = LEAT_OK;
    const uint32_t *cpus;
    uint32_t have = before;

    while (have < size->cores && status == LEAT_OK) {
        uint32_t cpu;
        status = leat_cores_give(daemon->options.cores, size->worker, &cpu);
        have += status == LEAT_OK;
    }
    if (status == LEAT_OK) {
        status = regroup(daemon, size->worker); /* first, or the kernel refuses the CPUs to the threads */
    }
    (void)leat_cores_of(daemon->options.cores, size->worker, &cpus);
    for (uint32_t member = before; member < size->cores && status == LEAT_OK; member++) {
        status = leat_worker_pin(daemon->workers[size->worker], member, cpus[member]);
    }
    for (; status != LEAT_OK && have > before; have--) {
        (void)leat_cores_take_back(daemon->options.cores, size->worker);
    }
    return status;
}

static enum leat_status
grow(struct leat_daemon *daemon, struct leat_daemon_size *sizes, uint32_t count, uint64_t asked_ns)
{
    bool told[LEAT_SCHED_WORKERS_MAX] = {false};
    enum leat_status status = LEAT_OK, awaited;

    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        if (sizes[i].cores > daemon->scale.workers[sizes[i].worker].shape.cores &&
            (status = give(daemon, &sizes[i])) == LEAT_OK) {
            tell(daemon, &sizes[i]);
            told[i] = true;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (told[i] && (awaited = await(daemon, &sizes[i], asked_ns)) != LEAT_OK) {
            return awaited;
        }
    }
    return status;
}

/* Groups of those that gave CPUs back keep them until all else is in force: nothing runs on them, and nobody waits. */
static void
regroup_all(struct leat_daemon *daemon, const struct leat_daemon_size *sizes, uint32_t count)
{
    for (uint32_t i = 0; i < count && !daemon->scale.ended; i++) {
        if (regroup(daemon, sizes[i].worker) != LEAT_OK) {
            leat_log(LEAT_LOG_WARNING, "a control group keeps the CPUs that it had: %s", leat_error_text());
        }
    }
}

/* Owners: [count], whom each is to serve; NULL: whom it does. */
static enum leat_status
change(struct leat_daemon *daemon, struct leat_daemon_size *sizes, const uint16_t *owners, uint32_t count)
{
    const uint64_t asked_ns = leat_clock_now(&daemon->tables->clock);
    struct leat_daemon_scale *scale = &daemon->scale;
    uint16_t all[LEAT_SCHED_WORKERS_MAX];

    LEAT_MUST(pthread_mutex_lock(&scale->mutex) == 0);
    while (scale->busy && !scale->ended) {
        LEAT_MUST(pthread_cond_wait(&scale->changed, &scale->mutex) == 0);
    }
    enum leat_status status = scale->ended ? LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down")
                                           : check_sizes(daemon, sizes, count);
    status = status == LEAT_OK ? check_owners(daemon, sizes, owners, count) : status;
    if (status == LEAT_OK) {
        scale->busy = true;
        for (uint32_t i = 0; i < count; i++) {
            sizes[i].effect_ns = 0;
            sizes[i].idle = false;
        }
        if (list_owners(daemon, sizes, owners, count, all)) { /* who is to wake is given work once it has its cores */
            status = dedicate(daemon, all);
        }
        status = status == LEAT_OK ? shrink(daemon, sizes, count, asked_ns) : status;
        status = status == LEAT_OK ? grow(daemon, sizes, count, asked_ns) : status;
        if (status != LEAT_OK && !scale->ended) {
            forget_parked(daemon);
        }
        if (daemon->options.cores != NULL) {
            regroup_all(daemon, sizes, count);
            leat_cores_check(daemon->options.cores);
        }
        scale->busy = false;
        LEAT_MUST(pthread_cond_broadcast(&scale->changed) == 0);
    }
    LEAT_MUST(pthread_mutex_unlock(&scale->mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_resize(struct leat_daemon *daemon, struct leat_daemon_size *sizes, uint32_t count)
{
    return change(daemon, sizes, NULL, count);
}

static enum leat_status
check_applications(struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count)
{
    enum leat_status status = LEAT_OK;

    LEAT_MUST(pthread_mutex_lock(&daemon->mutex) == 0);
    for (uint32_t i = 0; i < count && status == LEAT_OK; i++) {
        const uint16_t id = workers[i].application;
        const bool named = workers[i].cores > 0 && id != LEAT_ARRANGED_FOR_ALL && id != LEAT_ARRANGED_FOR_NOBODY;
        if (named && (id >= LEAT_APPLICATIONS_MAX || daemon->applications[id] == NULL)) {
            status =
                LEAT_FAIL(LEAT_ERR_NOT_FOUND, "there is no application %u for worker %u to serve", id, workers[i].worker);
        }
    }
    LEAT_MUST(pthread_mutex_unlock(&daemon->mutex) == 0);
    return status;
}

enum leat_status
leat_daemon_arrange(struct leat_daemon *daemon, const struct leat_daemon_arrangement *workers, uint32_t count)
{
    struct leat_daemon_size sizes[LEAT_SCHED_WORKERS_MAX];
    uint16_t owners[LEAT_SCHED_WORKERS_MAX];

    LEAT_ASSERT(count <= LEAT_SCHED_WORKERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = (struct leat_daemon_size){.worker = workers[i].worker, .cores = workers[i].cores};
        owners[i] = workers[i].application;
    }
    const enum leat_status status = check_applications(daemon, workers, count);
    return status == LEAT_OK ? change(daemon, sizes, owners, count) : status;
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
    const uint32_t count = leat_cores_of(cores, worker, &own);

    if (worker == other || leat_cores_of(cores, other, &others) != count ||
        leat_cores_pool(cores, worker) != leat_cores_pool(cores, other) ||
        leat_cores_shared(cores, worker) || leat_cores_shared(cores, other)) {
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
    while (scale->busy && !scale->ended) {
        LEAT_MUST(pthread_cond_wait(&scale->changed, &scale->mutex) == 0);
    }
    enum leat_status status = LEAT_OK;
    if (scale->ended) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "the daemon is shutting down");
    } else if (leat_cores_of(daemon->options.cores, worker, &cpus) == 0) {
        status = LEAT_FAIL(LEAT_ERR_BUSY, "worker %u is parked", worker);
    } else {
        scale->busy = true;
        status = other == LEAT_TO_FREE_CORES ? move_to_free(daemon, worker) : swap_with(daemon, worker, other);
        scale->workers[worker].moves += status == LEAT_OK;
        leat_cores_check(daemon->options.cores);
        scale->busy = false;
        LEAT_MUST(pthread_cond_broadcast(&scale->changed) == 0);
    }
    LEAT_MUST(pthread_mutex_unlock(&scale->mutex) == 0);
    return status;
}
