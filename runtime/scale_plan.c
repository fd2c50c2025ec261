/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/scale_plan.h"

#include "base/status.h"
#include "runtime/application.h"

struct plan {
    const struct leat_scale_plan_input *input;
    struct leat_scale_worker *workers;
    uint32_t left[LEAT_SCHED_WORKERS_MAX];  /* cores of each pool that no worker is to have */
    uint32_t given[LEAT_SCHED_WORKERS_MAX]; /* to each worker */
};

uint32_t
leat_scale_least(uint32_t sizes)
{
    return sizes == 0 ? 0 : (uint32_t)__builtin_ctz(sizes) + 1;
}

uint32_t
leat_scale_most(uint32_t sizes, uint32_t cores)
{
    const uint32_t possible = cores < LEAT_SCALE_CORES_MAX ? sizes & ((UINT32_C(1) << cores) - 1) : sizes;
    return possible == 0 ? 0 : 32 - (uint32_t)__builtin_clz(possible);
}

/* ---- Who serves whom -------------------------------------------------------------------------------- */

static uint32_t
count_of(const struct plan *plan, uint32_t application)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        count += plan->workers[w].application == application;
    }
    return count;
}

static bool
has_begun(const struct leat_scale_worker *worker)
{
    return !worker->starting && worker->has > 0;
}

/* One that has not begun, else the last. */
static void
release_one(struct plan *plan, uint32_t application)
{
    struct leat_scale_worker *best = NULL;

    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        struct leat_scale_worker *worker = &plan->workers[w];
        if (worker->application == application && (best == NULL || has_begun(best) || !has_begun(worker))) {
            best = worker;
        }
    }
    LEAT_ASSERT(best != NULL);
    best->application = LEAT_SCALE_NOBODY;
    best->starting = false;
}

/* What it lacks of the least. */
static uint32_t
lacks(const struct plan *plan, uint32_t w)
{
    return leat_scale_least(plan->workers[w].sizes) - plan->given[w];
}

static bool
give_least(struct plan *plan, uint32_t w)
{
    const uint32_t more = lacks(plan, w);
    uint32_t *left = &plan->left[plan->workers[w].pool];

    if (*left < more) {
        return false;
    }
    *left -= more;
    plan->given[w] += more;
    return true;
}

/* How much rather it is taken than another: one that would change at once, then one where most cores are left. */
static uint64_t
rank_of(const struct plan *plan, const struct leat_scale_worker *worker)
{
    return (uint64_t)(worker->has <= worker->cores) << 32 | plan->left[worker->pool];
}

/* False: there is none. */
static bool
take_one(struct plan *plan, uint32_t application)
{
    const struct leat_scale_wanted *wanted = &plan->input->wanted[application];
    uint32_t best = LEAT_SCALE_NOBODY;

    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        const struct leat_scale_worker *worker = &plan->workers[w];
        if (worker->application == LEAT_SCALE_NOBODY && worker->class == wanted->class && worker->sizes != 0 &&
            plan->left[worker->pool] >= lacks(plan, w) &&
            (best == LEAT_SCALE_NOBODY || rank_of(plan, worker) > rank_of(plan, &plan->workers[best]))) {
            best = w;
        }
    }
    if (best == LEAT_SCALE_NOBODY) {
        return false;
    }
    plan->workers[best].application = application;
    plan->workers[best].starting = wanted->delays;
    return give_least(plan, best);
}

static void
take_up_to(struct plan *plan, uint32_t most)
{
    for (uint32_t a = 0; a < plan->input->application_count; a++) {
        const uint32_t wanted = plan->input->wanted[a].instances < most ? plan->input->wanted[a].instances : most;
        for (uint32_t has = count_of(plan, a); has < wanted && take_one(plan, a); has++) {
        }
    }
}

/* ---- Cores ------------------------------------------------------------------------------------------- */

static void
count_cores(struct plan *plan)
{
    for (uint32_t p = 0; p < plan->input->pool_count; p++) {
        plan->left[p] = plan->input->free_cores[p];
    }
    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        const struct leat_scale_worker *worker = &plan->workers[w];
        plan->left[worker->pool] += worker->cores;
    }
}

/* Everybody who stays has the least before anybody has more: first who has that much now, which there is therefore. */
static void
keep_what_stays(struct plan *plan)
{
    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        const struct leat_scale_worker *worker = &plan->workers[w];
        if (worker->application != LEAT_SCALE_NOBODY && worker->cores >= leat_scale_least(worker->sizes)) {
            LEAT_ASSERT(give_least(plan, w));
        }
    }
    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        struct leat_scale_worker *worker = &plan->workers[w];
        if (worker->application != LEAT_SCALE_NOBODY && !give_least(plan, w)) {
            worker->application = LEAT_SCALE_NOBODY; /* somebody else was given its cores */
            worker->starting = false;
        }
    }
}

static void
grow(struct plan *plan, uint32_t application, uint32_t cores)
{
    for (uint32_t w = 0; w < plan->input->worker_count; w++) {
        const struct leat_scale_worker *worker = &plan->workers[w];
        if (worker->application != application || worker->starting) {
            continue;
        }
        uint32_t *left = &plan->left[worker->pool];
        const uint32_t room = plan->given[w] + *left;
        const uint32_t most = leat_scale_most(worker->sizes, cores < room ? cores : room);
        if (most > plan->given[w]) {
            *left -= most - plan->given[w];
            plan->given[w] = most;
        }
    }
}

/* What is left, first to who has it: so a plan that is carried out is planned again. */
static void
wake_the_rest(struct plan *plan)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t w = 0; w < plan->input->worker_count; w++) {
            const struct leat_scale_worker *worker = &plan->workers[w];
            const bool has = worker->cores > 0 && worker->cores >= leat_scale_least(worker->sizes);
            if (worker->application == LEAT_SCALE_NOBODY && plan->given[w] == 0 && (has || turn > 0)) {
                (void)give_least(plan, w);
            }
        }
    }
}

void
leat_scale_assign(const struct leat_scale_plan_input *input, struct leat_scale_worker *ret_workers)
{
    struct plan plan = {.input = input, .workers = ret_workers};

    LEAT_ASSERT(input->worker_count <= LEAT_SCHED_WORKERS_MAX &&
                input->pool_count <= LEAT_SCHED_WORKERS_MAX);
    for (uint32_t w = 0; w < input->worker_count; w++) {
        LEAT_ASSERT(input->workers[w].pool < input->pool_count);
        ret_workers[w] = input->workers[w];
    }
    count_cores(&plan);
    for (uint32_t a = 0; a < input->application_count; a++) {
        for (uint32_t has = count_of(&plan, a); has > input->wanted[a].instances; has--) {
            release_one(&plan, a);
        }
    }
    keep_what_stays(&plan);
    take_up_to(&plan, 1);
    take_up_to(&plan, UINT32_MAX);
    for (uint32_t a = 0; a < input->application_count; a++) {
        grow(&plan, a, input->wanted[a].cores);
    }
    if (!input->parks) {
        wake_the_rest(&plan);
    }
    for (uint32_t w = 0; w < input->worker_count; w++) {
        ret_workers[w].cores = plan.given[w];
    }
}
