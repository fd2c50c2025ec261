/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/scaler.h"

#include <string.h>

#include "base/status.h"

enum {
    RELAXATIONS = 4,  /* of an objective that cannot be kept, each to twice */
    FINER_ROUNDS = 4, /* of shares, each to a sixteenth at the least */
};

struct decision {
    const struct leat_scaler_options *options;
    struct leat_scaler_application *const *applications;
    uint32_t count;
    void *memory;
    struct leat_joint_answer answers[LEAT_SCALER_APPLICATIONS_MAX];

    /* What is solved for: some of the applications. */
    uint32_t of[LEAT_SCALER_APPLICATIONS_MAX], joint_count;
    double rates_qps[LEAT_SCALER_APPLICATIONS_MAX];
    struct leat_joint_application joints[LEAT_SCALER_APPLICATIONS_MAX];
    struct leat_joint_answer solved[LEAT_SCALER_APPLICATIONS_MAX];
};

/* ---- Demand -------------------------------------------------------------------------------------- */

static double
remember(const struct leat_scaler_options *options, struct leat_scaler_application *application)
{
    const float rate_qps = (float)application->rate_qps;
    double most_qps = application->expected_qps;

    if (options->between && application->decisions > 0) { /* of the last one's time, too */
        float *last_qps = &application->rates[(application->decisions - 1) % options->hold];
        *last_qps = rate_qps > *last_qps ? rate_qps : *last_qps;
    } else {
        application->rates[application->decisions++ % options->hold] = rate_qps;
    }
    for (uint32_t i = 0; i < options->hold; i++) {
        most_qps = application->rates[i] > most_qps ? application->rates[i] : most_qps;
    }
    return most_qps;
}

/* What comes and, where `waits`, what waits is to be carried within the objective. */
static void
set_demand(struct decision *decision, uint32_t i, bool waits)
{
    const struct leat_scaler_application *application = decision->applications[decision->of[i]];
    struct leat_joint_application *joint = &decision->joints[i];

    joint->demand_qps = leat_joint_demand(decision->rates_qps[i], joint->objective_ns, decision->options->deviations);
    for (uint32_t s = 0; s < joint->stage_count && waits; s++) {
        joint->demand_qps += application->stages[s].waiting / joint->stages[s].calls * 1e9 / (double)joint->objective_ns;
    }
}

/* That an application is left with nothing is worse than all else that may be shed. */
static void
forbid_starving(struct decision *decision)
{
    double all_qps = 0;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        all_qps += decision->joints[i].weight * decision->joints[i].demand_qps;
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        decision->joints[i].starved_qps = 1 + all_qps;
    }
}

/* Weighed. */
static double
carried_qps(const struct decision *decision, const struct leat_joint_answer *answers)
{
    double sum_qps = 0;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        sum_qps += decision->joints[i].weight * decision->joints[i].demand_qps * answers[i].share / LEAT_JOINT_SHARES;
    }
    return sum_qps;
}

/* The finer shares leave fewer with nothing; or as few, where they carry as much and nothing that was carried whole goes. */
static bool
is_better(const struct decision *decision, const struct leat_joint_answer *finer, double before_qps)
{
    uint32_t starved = 0, finer_starved = 0;
    bool keeps = true;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        starved += decision->solved[i].share == 0;
        finer_starved += finer[i].share == 0;
        keeps = keeps && (decision->solved[i].share < LEAT_JOINT_SHARES || finer[i].share == LEAT_JOINT_SHARES);
    }
    return finer_starved < starved || (finer_starved == starved && keeps && carried_qps(decision, finer) >= before_qps);
}

/* A share more or less of somebody is much of what it gets. */
static bool
any_coarse(const struct leat_joint_answer *answers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (answers[i].share < LEAT_JOINT_SHARES / 2) {
            return true;
        }
    }
    return false;
}

/*
 * What can be carried of what is shed in part is less than a share more: finer shares leave less of it, and of the cores, and
 * some for those that had nothing. But they are other shares, which may carry less. Where few of them are carried, still finer.
 */
static void
solve_finer(struct decision *decision, const struct leat_joint_box *box)
{
    struct leat_joint_answer finer[LEAT_SCALER_APPLICATIONS_MAX];
    bool coarse = true;

    for (uint32_t round = 0; round < FINER_ROUNDS && coarse; round++) {
        const double before_qps = carried_qps(decision, decision->solved);
        for (uint32_t i = 0; i < decision->joint_count; i++) {
            const uint32_t share = round == 0 ? decision->solved[i].share : finer[i].share;
            decision->joints[i].demand_qps *= share < LEAT_JOINT_SHARES ? (share + 1.0) / LEAT_JOINT_SHARES : 1;
        }
        forbid_starving(decision);
        (void)leat_joint_solve(box, decision->joints, decision->joint_count, decision->memory, finer);
        if (is_better(decision, finer, before_qps)) {
            memcpy(decision->solved, finer, decision->joint_count * sizeof(finer[0]));
        }
        coarse = any_coarse(finer, decision->joint_count);
    }
}

static void
take(uint32_t *left, uint32_t cores)
{
    *left = cores < *left ? *left - cores : 0;
}

/* Its least: the fewest instances of the fewest cores, of the first class that has them. False: there are no cores for it. */
static bool
keep_least(const struct leat_joint_application *joint, struct leat_joint_box *left, struct leat_joint_answer *ret_answer)
{
    struct leat_joint_box box = *left;
    struct leat_joint_answer answer = {.share = 1};

    for (uint32_t s = 0; s < joint->stage_count; s++) {
        const struct leat_joint_stage *stage = &joint->stages[s];
        const uint32_t cores = stage->instances_min * stage->cores_min;
        uint32_t k = 0;
        while (k < box.class_count && (stage->latency_ns[k] == NULL || box.classes[k].cores < cores)) {
            k++;
        }
        if (k == box.class_count) {
            return false;
        }
        take(&box.classes[k].cores, cores);
        answer.stages[s] = (struct leat_joint_choice){
            .worker_class = k, .instances = stage->instances_min, .cores = stage->cores_min, .batch = stage->batch_max};
    }
    *left = box;
    *ret_answer = answer;
    return true;
}

/*
 * Who is left with nothing all the same has its least before all else, whatever that carries, and what is left is the others'. Ends:
 * each time somebody more has it.
 */
static void
feed_starved(struct decision *decision, const struct leat_joint_box *box)
{
    struct leat_joint_answer kept[LEAT_SCALER_APPLICATIONS_MAX] = {0};
    struct leat_joint_box left = *box;

    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < decision->joint_count; i++) {
            if (decision->solved[i].share == 0 && kept[i].share == 0 && keep_least(&decision->joints[i], &left, &kept[i])) {
                decision->joints[i].demand_qps = decision->joints[i].starved_qps = 0; /* so it gets no more */
                more = true;
            }
        }
        if (more) {
            (void)leat_joint_solve(&left, decision->joints, decision->joint_count, decision->memory, decision->solved);
        }
        for (uint32_t i = 0; i < decision->joint_count; i++) {
            decision->solved[i] = kept[i].share > 0 ? kept[i] : decision->solved[i];
        }
    }
}

/* The answers. Of an application that cannot be carried whole, for an objective twice as long, and so on. */
static void
solve(struct decision *decision, const struct leat_joint_box *box, bool waits)
{
    bool whole = decision->joint_count == 0;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        set_demand(decision, i, waits);
    }
    for (uint32_t round = 0; !whole && round <= RELAXATIONS; round++) {
        (void)leat_joint_solve(box, decision->joints, decision->joint_count, decision->memory, decision->solved);
        whole = true;
        for (uint32_t i = 0; i < decision->joint_count; i++) {
            const bool shed = decision->solved[i].share < LEAT_JOINT_SHARES;
            whole = whole && !shed;
            if (shed && round < RELAXATIONS) {
                decision->joints[i].objective_ns *= 2;
                set_demand(decision, i, waits);
            }
        }
    }
    if (!whole) {
        solve_finer(decision, box);
        feed_starved(decision, box);
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        decision->answers[decision->of[i]] = decision->solved[i];
    }
}

/* ---- Settle: instances for the highest rate of late ------------------------------------------------ */

static void
keep_class(struct leat_joint_stage *joint, const struct leat_scaler_stage *stage)
{
    for (uint32_t k = 0; k < LEAT_JOINT_CLASSES_MAX && stage->ready + stage->starting > 0; k++) {
        joint->latency_ns[k] = k == stage->worker_class ? joint->latency_ns[k] : NULL;
    }
}

static uint32_t
least_instances(const struct leat_scaler_stage *stage)
{
    return stage->instances_min > 0 ? stage->instances_min : 1;
}

static void
solve_instances(struct decision *decision, const struct leat_joint_box *box)
{
    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        struct leat_joint_application *joint = &decision->joints[a];

        decision->of[a] = a;
        decision->rates_qps[a] = remember(decision->options, application);
        *joint = application->joint;
        for (uint32_t s = 0; s < joint->stage_count; s++) {
            const struct leat_scaler_stage *stage = &application->stages[s];
            joint->stages[s].instances_min = least_instances(stage);
            joint->stages[s].instances_max = stage->instances_max > 0 ? stage->instances_max : UINT32_MAX;
            keep_class(&joint->stages[s], &application->stages[s]);
        }
    }
    decision->joint_count = decision->count;
    solve(decision, box, false);
}

/* What is nobody's, of each class. */
struct left {
    uint32_t cores[LEAT_JOINT_CLASSES_MAX], workers[LEAT_JOINT_CLASSES_MAX];
};

/* False: there is no worker, or there are no cores for it. */
static bool
add_instance(struct left *left, const struct leat_joint_stage *joint, struct leat_scaler_order *order)
{
    const uint32_t k = order->worker_class;

    if (left->workers[k] == 0 || left->cores[k] < joint->cores_min) {
        return false;
    }
    left->workers[k]--;
    left->cores[k] -= joint->cores_min;
    order->instances++;
    return true;
}

/* What there is keeps its place, but for one that is given back. */
static void
keep_instances(struct decision *decision, struct left *left)
{
    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_joint_choice *choice = &decision->answers[a].stages[s];
            const struct leat_joint_stage *joint = &application->joint.stages[s];
            const struct leat_scaler_stage *stage = &application->stages[s];
            const uint32_t begun = stage->ready + stage->starting;
            struct leat_scaler_order *order = &application->orders[s];
            const uint32_t given_back = stage->ready > 0 && choice->instances < stage->ready ? stage->ready - 1 : choice->instances;
            const uint32_t fewer = decision->options->between && given_back < begun ? begun : given_back;
            const uint32_t kept = stage->instances_min < stage->ready ? stage->instances_min : stage->ready;
            order->worker_class = begun > 0 ? stage->worker_class : choice->worker_class;
            order->instances = fewer < begun ? fewer : begun;
            order->instances = order->instances > kept ? order->instances : kept;
            order->cores = joint->cores_min; /* unless all stages have instances that run: then of those */
            order->batch = joint->batch_max;
            take(&left->cores[order->worker_class], order->instances * joint->cores_min);
            take(&left->workers[order->worker_class], order->instances);
        }
    }
}

/* Who has most workers of the class, and more than the least, is left with one less; of several, the last. */
static void
free_worker(struct decision *decision, struct left *left, uint32_t worker_class)
{
    struct leat_scaler_order *most = NULL;
    uint32_t cores = 0;

    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            struct leat_scaler_order *order = &application->orders[s];
            if (order->worker_class == worker_class && order->instances > least_instances(&application->stages[s]) &&
                (most == NULL || order->instances >= most->instances)) {
                most = order;
                cores = application->joint.stages[s].cores_min;
            }
        }
    }
    if (most != NULL) {
        most->instances--;
        left->workers[worker_class]++;
        left->cores[worker_class] += cores;
    }
}

/* Of the class of choice, else of another; where none is left, of those that others have. */
static void
add_first(struct decision *decision, const struct leat_joint_box *box, struct left *left, uint32_t a, uint32_t s)
{
    const struct leat_joint_stage *joint = &decision->joints[a].stages[s];
    const uint32_t chosen = decision->answers[a].stages[s].worker_class;
    struct leat_scaler_order *order = &decision->applications[a]->orders[s];

    for (uint32_t turn = 0; turn < 2 * box->class_count; turn++) {
        const uint32_t k = (chosen + turn) % box->class_count;
        if (turn >= box->class_count && joint->latency_ns[k] != NULL && left->workers[k] == 0) {
            free_worker(decision, left, k);
        }
        order->worker_class = k;
        if (joint->latency_ns[k] != NULL && add_instance(left, joint, order)) {
            return;
        }
    }
    order->worker_class = chosen;
}

/* Who has none has one before anybody has more, and then one each in turn. */
static void
add_instances(struct decision *decision, const struct leat_joint_box *box, struct left *left)
{
    bool adds = true;

    for (uint32_t a = 0; a < decision->count; a++) {
        for (uint32_t s = 0; s < decision->applications[a]->joint.stage_count; s++) {
            if (decision->applications[a]->orders[s].instances == 0 && decision->answers[a].stages[s].instances > 0) {
                add_first(decision, box, left, a, s);
            }
        }
    }
    while (adds) {
        adds = false;
        for (uint32_t a = 0; a < decision->count; a++) {
            struct leat_scaler_application *application = decision->applications[a];
            for (uint32_t s = 0; s < application->joint.stage_count; s++) {
                struct leat_scaler_order *order = &application->orders[s];
                if (order->instances < decision->answers[a].stages[s].instances) {
                    adds = add_instance(left, &application->joint.stages[s], order) || adds;
                }
            }
        }
    }
}

static void
order_instances(struct decision *decision, const struct leat_joint_box *box)
{
    struct left left;

    solve_instances(decision, box);
    for (uint32_t k = 0; k < box->class_count; k++) {
        left.cores[k] = box->classes[k].cores;
        left.workers[k] = decision->options->workers[k] > 0 ? decision->options->workers[k] : box->classes[k].cores;
    }
    keep_instances(decision, &left);
    add_instances(decision, box, &left);
}

/* ---- Up and down: cores for the present rate ------------------------------------------------------- */

/* Instances that will serve: those that run, but one that is given back. */
static uint32_t
serving(const struct leat_scaler_application *application, uint32_t s)
{
    const uint32_t ready = application->stages[s].ready, wanted = application->orders[s].instances;
    return wanted < ready ? wanted : ready;
}

static bool
serves(const struct leat_scaler_application *application)
{
    for (uint32_t s = 0; s < application->joint.stage_count; s++) {
        if (serving(application, s) == 0) {
            return false;
        }
    }
    return true;
}

/* What is left by instances that start, and by those of applications with a stage that has none yet. */
static struct leat_joint_box
box_left(const struct decision *decision, const struct leat_joint_box *box)
{
    struct leat_joint_box left = *box;

    for (uint32_t a = 0; a < decision->count; a++) {
        const struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_scaler_order *order = &application->orders[s];
            const uint32_t begun = serves(application) ? serving(application, s) : 0;
            take(&left.classes[order->worker_class].cores, (order->instances - begun) * application->joint.stages[s].cores_min);
        }
    }
    return left;
}

/* The answers for instances as they run. Applications without any are left out. */
static void
solve_cores(struct decision *decision, const struct leat_joint_box *box)
{
    decision->joint_count = 0;
    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        struct leat_joint_application *joint = &decision->joints[decision->joint_count];
        decision->answers[a] = (struct leat_joint_answer){0};
        if (!serves(application)) {
            continue;
        }
        *joint = application->joint;
        for (uint32_t s = 0; s < joint->stage_count; s++) {
            joint->stages[s].instances_min = joint->stages[s].instances_max = serving(application, s);
            keep_class(&joint->stages[s], &application->stages[s]);
        }
        decision->rates_qps[decision->joint_count] = application->rate_qps;
        decision->of[decision->joint_count++] = a;
    }
    solve(decision, box, true);
}

/* Cores of a class that the answers leave. */
static uint32_t
spare(const struct decision *decision, const struct leat_joint_box *box, uint32_t worker_class)
{
    uint32_t cores = box->classes[worker_class].cores;
    for (uint32_t a = 0; a < decision->count; a++) {
        for (uint32_t s = 0; s < decision->applications[a]->joint.stage_count; s++) {
            const struct leat_joint_choice *choice = &decision->answers[a].stages[s];
            cores -= choice->worker_class == worker_class ? choice->instances * choice->cores : 0;
        }
    }
    return cores;
}

/* Cores that fewer would do for stay for a while, where nobody needs them. */
static void
order_cores(struct decision *decision, const struct leat_joint_box *box)
{
    uint32_t left[LEAT_JOINT_CLASSES_MAX] = {0};

    for (uint32_t k = 0; k < box->class_count; k++) {
        left[k] = spare(decision, box, k);
    }
    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_joint_choice *choice = &decision->answers[a].stages[s];
            const uint32_t cores = application->stages[s].cores;
            struct leat_scaler_order *order = &application->orders[s];
            if (choice->instances == 0) {
                continue;
            }
            const uint32_t more = cores > choice->cores ? (cores - choice->cores) * choice->instances : 0;
            application->calm[s] = more > 0 ? application->calm[s] + !decision->options->between : 0;
            const bool stays = more > 0 && more <= left[order->worker_class] && application->calm[s] < decision->options->settle;
            if (!stays) {
                application->calm[s] = 0;
            }
            left[order->worker_class] -= stays ? more : 0;
            order->cores = stays ? cores : choice->cores;
            order->batch = choice->batch;
        }
    }
}

/* What is shed has no part in the answers: one instance of the least there is stays where there is room, so that it can come back. */
static void
order_shed(struct decision *decision, const struct leat_joint_box *box)
{
    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        if (decision->answers[a].share > 0 || !serves(application)) {
            continue;
        }
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_joint_stage *joint = &application->joint.stages[s];
            struct leat_scaler_order *order = &application->orders[s];
            const uint32_t left = spare(decision, box, order->worker_class);
            const uint32_t most = left / joint->cores_min < order->instances ? left / joint->cores_min : order->instances;
            const uint32_t least = least_instances(&application->stages[s]);
            order->instances = least < most ? least : most;
            order->cores = joint->cores_min;
            order->batch = joint->batch_max;
            decision->answers[a].stages[s] = (struct leat_joint_choice){
                .worker_class = order->worker_class, .instances = order->instances, .cores = order->cores, .batch = order->batch};
        }
    }
}

void
leat_scaler_decide(const struct leat_scaler_options *options, const struct leat_joint_box *box,
                   struct leat_scaler_application *const *applications, uint32_t count, void *memory)
{
    struct decision decision = {.options = options, .applications = applications, .count = count, .memory = memory};

    LEAT_ASSERT(count >= 1 && count <= LEAT_SCALER_APPLICATIONS_MAX);
    LEAT_ASSERT(options->hold >= 1 && options->hold <= LEAT_SCALER_HOLD_MAX);
    order_instances(&decision, box);
    const struct leat_joint_box left = box_left(&decision, box);
    solve_cores(&decision, &left);
    order_shed(&decision, &left);
    order_cores(&decision, &left);
}
