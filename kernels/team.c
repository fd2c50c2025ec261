/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordering  T0 leader stores `generation`, release -> T1 helper loads it, acquire: body and context are
 *              visible, and so is everything that the leader wrote before run(). The word says how many members run:
 *              the leader waits for these, so that what they read stays; the others read nothing else of it.
 *           T2 helper stores its `done`, release -> T3 leader loads it, acquire: what the body wrote is
 *              visible to the leader after run().
 *           T4/T5: the leader's fence between T0 and looking at `asleep`, and the helper's between setting
 *              `asleep` and looking at `generation`, so that one of them sees the other (store-load).
 *           T6/T7: the same the other way round: the helper's fence between T2 and looking at
 *              `leader_asleep`, and the leader's between setting it and looking at `done`.
 *           M0 a member adds to `arrived`, acq_rel; the last one has then seen all the others' writes and
 *              M1 adds to `released`, release -> M2 the others load it, acquire: each member sees what
 *              every member wrote before the barrier. M1 also publishes the reset of `arrived`.
 */
#include "kernels/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/align.h"
#include "base/clock.h"
#include "base/slice.h"

enum { SPINS_PER_CLOCK = 64, BARRIER_SPINS = 4096 };

/* A generation is a number of runs and how many members take part in the last of them. */
#define SIZE_BITS 9
#define SIZE_MASK ((UINT64_C(1) << SIZE_BITS) - 1)
_Static_assert(LEAT_TEAM_MAX <= SIZE_MASK, "a size fits into a generation");

struct member {
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t asleep; /* W: helper sets and clears, leader clears */
    struct leat_team *team;
    uint32_t index;
    pthread_t thread;
    _Atomic uint32_t thread_id; /* W: the member's thread, once, relaxed  R: any; 0: it does not run yet */
    _Atomic uint32_t cpu;       /* W: whoever moves the member, relaxed  R: any; UINT32_MAX: it is not pinned */
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t done; /* W: helper, T2: the generation it has run */
    /*
     * What is left of its share: the first part and, in the upper half, the one behind the last. W: leader between runs, then
     * members, all relaxed: the word only says whose a part is, and run() orders what its body reads and writes.
     */
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t share;
};

#define SHARE_FIRST UINT64_C(1)
#define SHARE_END   (UINT64_C(1) << 32)

struct leat_team {
    _Alignas(LEAT_ISOLATE) _Atomic uint64_t generation; /* W: leader, T0 */
    void (*body)(void *context, uint32_t member, uint32_t size);
    void *context;
    bool stop;
    uint32_t sharers;      /* members that have shares. W: leader between runs  R: members */
    _Atomic uint32_t size; /* W: leader between runs, relaxed  R: members */
    uint32_t started; /* helpers that exist */
    _Atomic uint64_t spin_ns;   /* W: leader, relaxed */
    void (*enter)(uint32_t node);
    uint32_t node;
    uint32_t worker_class;
    void (*yield)(void *context); /* W, R: leader; NULL: nothing to yield to */
    void *yield_context;
    struct member *members; /* [size_max]; of [0] only thread_id */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t leader_asleep; /* W: leader sets and clears, helpers clear */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t arrived;       /* W: members add, the last one resets */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t released;      /* W: the last to arrive adds */
};

/* TSan does not model fences; a read-modify-write of the word itself orders the same accesses for it. */
static inline void
store_load_fence(_Atomic uint32_t *word)
{
#if defined(__SANITIZE_THREAD__)
    (void)atomic_fetch_add_explicit(word, 0, memory_order_seq_cst);
#else
    (void)word;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void
futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void
futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static enum leat_status
pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot pin a thread to CPU %u", cpu);
    }
    return LEAT_OK;
}

/* What a thread waits for: helpers for the next generation, the leader for each helper to be done. */
struct wait {
    _Atomic uint64_t *word;
    uint64_t value;
    bool until_equal; /* until word == value; else until it differs */
    uint64_t seen;    /* the word, when last looked at */
};

static bool
is_over(struct wait *wait)
{
    wait->seen = atomic_load_explicit(wait->word, memory_order_acquire); /* T1, T3 */
    return (wait->seen == wait->value) == wait->until_equal;
}

/* For how long a member may spin. The core of one that is beyond the team's size is another's. */
static uint64_t
spin_of(const struct leat_team *team, uint32_t member)
{
    return member < leat_team_size(team) ? atomic_load_explicit(&team->spin_ns, memory_order_relaxed) : 0;
}

/* Spins for a while, then sleeps on `asleep`, which whoever ends the wait clears. Returns the word that ended it. */
static uint64_t
await(const struct leat_team *team, uint32_t member, struct wait wait, _Atomic uint32_t *asleep)
{
    if (is_over(&wait)) {
        return wait.seen;
    }
    if (spin_of(team, member) > 0) {
        const uint64_t begin_ns = leat_monotonic_ns();
        do {
            for (int i = 0; i < SPINS_PER_CLOCK; i++) {
                if (is_over(&wait)) {
                    return wait.seen;
                }
                leat_spin_pause();
            }
        } while (leat_monotonic_ns() - begin_ns < spin_of(team, member));
    }
    while (!is_over(&wait)) {
        atomic_store_explicit(asleep, 1, memory_order_relaxed);
        store_load_fence(asleep); /* T5, T7 */
        if (!is_over(&wait)) {
            futex_wait(asleep, 1);
        }
        atomic_store_explicit(asleep, 0, memory_order_relaxed);
    }
    return wait.seen;
}

/* Ends the other side's sleep, if it sleeps, after a store that it waits for. */
static void
rouse(_Atomic uint32_t *asleep)
{
    store_load_fence(asleep); /* T4, T6 */
    if (LEAT_UNLIKELY(atomic_load_explicit(asleep, memory_order_relaxed) != 0) &&
        atomic_exchange_explicit(asleep, 0, memory_order_relaxed) != 0) { /* only says who of several wakes it */
        futex_wake(asleep);
    }
}

static void
announce(struct member *member)
{
    atomic_store_explicit(&member->thread_id, (uint32_t)gettid(), memory_order_relaxed);
    futex_wake(&member->thread_id);
}

static void *
helper_main(void *argument)
{
    struct member *member = argument;
    struct leat_team *team = member->team;
    uint64_t seen = 0;

    announce(member);
    (void)pthread_setname_np(pthread_self(), "leat-helper");
    leat_slice_shorten();
    if (team->enter != NULL) {
        team->enter(team->node);
    }
    for (;;) {
        seen = await(team, member->index, (struct wait){.word = &team->generation, .value = seen}, &member->asleep);
        const uint32_t size = (uint32_t)(seen & SIZE_MASK);
        if (member->index >= size) {
            continue;
        }
        if (team->stop) {
            return NULL;
        }
        team->body(team->context, member->index, size);
        atomic_store_explicit(&member->done, seen, memory_order_release); /* T2 */
        rouse(&team->leader_asleep);
    }
}

/* To members 0..size-1. */
static void
publish(struct leat_team *team, uint32_t size)
{
    const uint64_t runs = (atomic_load_explicit(&team->generation, memory_order_relaxed) >> SIZE_BITS) + 1;

    atomic_store_explicit(&team->generation, runs << SIZE_BITS | size, memory_order_release); /* T0 */
    for (uint32_t i = 1; i < size; i++) {
        rouse(&team->members[i].asleep);
    }
}

enum leat_status
leat_team_create(const struct leat_team_options *options, struct leat_team **ret_team)
{
    const uint32_t size_max = options->size_max != 0 ? options->size_max : options->size;

    LEAT_ASSERT(options->size >= 1 && options->size <= size_max && size_max <= LEAT_TEAM_MAX);
    struct leat_team *team = aligned_alloc(LEAT_ISOLATE, leat_round_up(sizeof(*team), LEAT_ISOLATE));
    if (team == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a team of %u", size_max);
    }
    memset(team, 0, sizeof(*team));
    atomic_store_explicit(&team->size, options->size, memory_order_relaxed);
    atomic_store_explicit(&team->spin_ns, options->spin_ns, memory_order_relaxed);
    team->enter = options->enter;
    team->node = options->node;
    team->worker_class = options->worker_class;
    team->members = aligned_alloc(LEAT_ISOLATE, size_max * sizeof(team->members[0]));
    if (team->members == NULL) {
        free(team);
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a team of %u", size_max);
    }
    memset(team->members, 0, size_max * sizeof(team->members[0]));
    announce(&team->members[0]);
    enum leat_status status = options->cpus != NULL ? pin(options->cpus[0]) : LEAT_OK;
    for (uint32_t i = 1; i < size_max && status == LEAT_OK; i++) {
        pthread_attr_t attributes;
        struct member *member = &team->members[i];
        member->team = team;
        member->index = i;
        const uint32_t cpu = options->cpus == NULL ? UINT32_MAX : options->cpus[i < options->size ? i : 0];
        atomic_store_explicit(&member->cpu, cpu, memory_order_relaxed);
        LEAT_MUST(pthread_attr_init(&attributes) == 0);
        if (options->cpus != NULL && i < options->size) {
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET((size_t)options->cpus[i], &set);
            LEAT_MUST(pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0);
        }
        const int error = pthread_create(&member->thread, &attributes, helper_main, member);
        LEAT_MUST(pthread_attr_destroy(&attributes) == 0);
        if (error != 0) {
            status = LEAT_FAIL(LEAT_ERR_LIMIT, "cannot start member %u of a team: %s", i, strerror(error));
        } else {
            team->started++;
        }
    }
    if (status != LEAT_OK) {
        leat_team_destroy(team);
        return status;
    }
    *ret_team = team;
    return LEAT_OK;
}

uint32_t
leat_team_size(const struct leat_team *team)
{
    return team != NULL ? atomic_load_explicit(&team->size, memory_order_relaxed) : 1;
}

uint32_t
leat_team_class(const struct leat_team *team)
{
    return team != NULL ? team->worker_class : 0;
}

void
leat_team_resize(struct leat_team *team, uint32_t size, uint32_t worker_class)
{
    LEAT_ASSERT(size >= 1 && size <= team->started + 1);
    atomic_store_explicit(&team->size, size, memory_order_relaxed); /* publishes nothing: a generation says who runs */
    team->worker_class = worker_class;
}

enum leat_status
leat_team_pin(struct leat_team *team, uint32_t member, uint32_t cpu)
{
    cpu_set_t set;

    LEAT_ASSERT(member >= 1 && member <= team->started);
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    const int error = pthread_setaffinity_np(team->members[member].thread, sizeof(set), &set);
    if (error != 0) {
        return LEAT_FAIL(LEAT_ERR_SYS, "cannot pin a thread to CPU %u: %s", cpu, strerror(error));
    }
    atomic_store_explicit(&team->members[member].cpu, cpu, memory_order_relaxed);
    return LEAT_OK;
}

uint32_t
leat_team_cpu(const struct leat_team *team, uint32_t member)
{
    LEAT_ASSERT(member >= 1 && member <= team->started);
    return atomic_load_explicit(&team->members[member].cpu, memory_order_relaxed);
}

pid_t
leat_team_thread(struct leat_team *team, uint32_t member)
{
    LEAT_ASSERT(member <= team->started);
    _Atomic uint32_t *thread_id = &team->members[member].thread_id;
    uint32_t found;

    while ((found = atomic_load_explicit(thread_id, memory_order_relaxed)) == 0) {
        futex_wait(thread_id, 0);
    }
    return (pid_t)found;
}

void
leat_team_run(struct leat_team *team, void (*body)(void *context, uint32_t member, uint32_t size), void *context)
{
    const uint32_t size = leat_team_size(team);

    if (size == 1) {
        body(context, 0, 1);
        return;
    }
    team->body = body;
    team->context = context;
    publish(team, size);
    body(context, 0, size);
    const uint64_t generation = atomic_load_explicit(&team->generation, memory_order_relaxed);
    for (uint32_t i = 1; i < size; i++) {
        const struct wait wait = {.word = &team->members[i].done, .value = generation, .until_equal = true};
        (void)await(team, 0, wait, &team->leader_asleep);
    }
}

void
leat_team_divide(struct leat_team *team, uint32_t members, uint32_t parts)
{
    LEAT_ASSERT(members >= 1 && members <= leat_team_size(team));
    team->sharers = members;
    for (uint64_t m = 0; m < members; m++) {
        const uint64_t first = m * parts / members, end = (m + 1) * parts / members;
        atomic_store_explicit(&team->members[m].share, first * SHARE_FIRST + end * SHARE_END,
                              memory_order_relaxed);
    }
}

bool
leat_team_take(struct leat_team *team, uint32_t member, uint32_t *ret_part)
{
    for (uint32_t i = 0; member < team->sharers && i < team->sharers; i++) {
        _Atomic uint64_t *share = &team->members[(member + i) % team->sharers].share;
        uint64_t left = atomic_load_explicit(share, memory_order_relaxed);
        while ((uint32_t)left < (uint32_t)(left / SHARE_END)) {
            const uint64_t rest = i == 0 ? left + SHARE_FIRST : left - SHARE_END;
            if (atomic_compare_exchange_weak_explicit(share, &left, rest, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                *ret_part = i == 0 ? (uint32_t)left : (uint32_t)(rest / SHARE_END);
                return true;
            }
        }
    }
    return false;
}

void
leat_team_barrier(struct leat_team *team, uint32_t members)
{
    LEAT_ASSERT(members >= 1 && members <= leat_team_size(team));
    if (members == 1) {
        return;
    }
    /* Relaxed: it cannot change before this member has arrived. */
    const uint32_t round = atomic_load_explicit(&team->released, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) == members - 1) { /* M0 */
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        (void)atomic_fetch_add_explicit(&team->released, 1, memory_order_release); /* M1 */
        return;
    }
    for (uint32_t spins = 0; atomic_load_explicit(&team->released, memory_order_acquire) == round; spins++) { /* M2 */
        if (spins < BARRIER_SPINS) {
            leat_spin_pause();
        } else {
            (void)sched_yield(); /* more threads than CPUs: let the others come here */
        }
    }
}

void
leat_team_set_yield(struct leat_team *team, void (*yield)(void *context), void *context)
{
    team->yield = yield;
    team->yield_context = context;
}

bool
leat_team_yields(const struct leat_team *team)
{
    return team != NULL && team->yield != NULL;
}

void
leat_team_yield(struct leat_team *team)
{
    if (leat_team_yields(team)) {
        const uint32_t size = leat_team_size(team);
        team->yield(team->yield_context);
        LEAT_ASSERT(leat_team_size(team) == size);
    }
}

void
leat_team_set_spin(struct leat_team *team, uint64_t spin_ns)
{
    atomic_store_explicit(&team->spin_ns, spin_ns, memory_order_relaxed);
}

void
leat_team_destroy(struct leat_team *team)
{
    if (team == NULL) {
        return;
    }
    team->stop = true;
    publish(team, team->started + 1);
    for (uint32_t i = 1; i <= team->started; i++) {
        LEAT_MUST(pthread_join(team->members[i].thread, NULL) == 0);
    }
    free(team->members);
    free(team);
}
