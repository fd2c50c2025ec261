/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/scaler.h"

#include <string.h>

#include "base/status.h"
#include "sched/scaler_private.h"

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

static void
take(uint32_t *left, uint32_t cores)
{
    *left = cores < *left ? *left - cores : 0;
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
ask_instances(struct leat_scaler_decision *decision)
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
    decision->waits = false;
}

/* ---- Ties: what there is stays where an answer is no better ---------------------------------------- */

static uint64_t
price_of(const struct leat_joint_box *box, const struct leat_joint_answer *answer,
         uint32_t stage_count)
{
    uint64_t price = 0;

    for (uint32_t s = 0; s < stage_count; s++) {
        const struct leat_joint_choice *choice = &answer->stages[s];
        price +=
            (uint64_t)choice->instances * choice->cores * box->classes[choice->worker_class].price;
    }
    return price;
}

/* As much for the same price or less; or a share less for the same price, for times of batches and rates waver by as much. */
static bool
is_as_good(const struct leat_joint_box *box, const struct leat_joint_answer *one,
           const struct leat_joint_answer *other, uint32_t stage_count)
{
    const uint64_t price = price_of(box, one, stage_count),
                   other_price = price_of(box, other, stage_count);
    return price <= other_price && one->share + (price == other_price) >= other->share &&
           one->share > 0;
}

/* Each stage that is to give instances back is to have those that it has. Returns who has such stages, a bit each. */
static uint32_t
keep_what_goes(struct leat_scaler_decision *decision)
{
    uint32_t who = 0;

    _Static_assert(LEAT_SCALER_APPLICATIONS_MAX <= 32, "a bit each");
    for (uint32_t a = 0; a < decision->count; a++) {
        const struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            struct leat_joint_stage *joint = &decision->joints[a].stages[s];
            const uint32_t begun = application->stages[s].ready + application->stages[s].starting;
            if (decision->answers[a].stages[s].instances < begun && begun <= joint->instances_max) {
                joint->instances_min = joint->instances_max = begun;
                who |= UINT32_C(1) << a;
            }
        }
    }
    return who;
}

static bool
has_workers(const struct leat_scaler_decision *decision, const struct leat_joint_box *box,
            const struct leat_joint_answer *answers)
{
    uint32_t instances[LEAT_JOINT_CLASSES_MAX] = {0};

    for (uint32_t a = 0; a < decision->count; a++) {
        for (uint32_t s = 0; s < decision->applications[a]->joint.stage_count; s++) {
            instances[answers[a].stages[s].worker_class] += answers[a].stages[s].instances;
        }
    }
    for (uint32_t k = 0; k < box->class_count; k++) {
        if (decision->options->workers[k] > 0 && instances[k] > decision->options->workers[k]) {
            return false;
        }
    }
    return true;
}

/* Of answers that are as good any may be the next one, and each change parks a worker in the middle of its load. */
static void
keep_ties(struct leat_scaler_decision *decision, const struct leat_joint_box *box)
{
    struct leat_joint_answer answers[LEAT_SCALER_APPLICATIONS_MAX];
    const uint32_t who = decision->options->between ? 0 : keep_what_goes(decision);

    if (who == 0 || !leat_scaler_solve_again(decision, box)) {
        return;
    }
    for (uint32_t a = 0; a < decision->count; a++) {
        const struct leat_joint_answer *answer = &decision->answers[a],
                                       *kept = &decision->solved[a];
        const bool stays =
            (who >> a & 1) != 0 && is_as_good(box, kept, answer, decision->joints[a].stage_count);
        answers[a] = stays ? *kept : *answer;
    }
    if (has_workers(decision, box, answers)) {
        memcpy(decision->answers, answers, decision->count * sizeof(answers[0]));
    }
}

/* ---- What there is, and what is added ---------------------------------------------------------------- */

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

/* Somebody is to have more than it has: what others have too many of is needed. */
static bool
any_rises(const struct leat_scaler_decision *decision)
{
    for (uint32_t a = 0; a < decision->count; a++) {
        const struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_joint_choice *choice = &decision->answers[a].stages[s];
            const struct leat_scaler_stage *stage = &application->stages[s];
            const uint32_t cores = stage->ready * stage->cores +
                                   stage->starting * application->joint.stages[s].cores_min;
            if (choice->instances > stage->ready + stage->starting ||
                choice->instances * choice->cores > cores) {
                return true;
            }
        }
    }
    return false;
}

/* Has the class fewer cores than what there is of it takes at the least? They can go, as CPUs do. */
static bool
any_missing(const struct leat_scaler_decision *decision, const struct leat_joint_box *box, uint32_t worker_class)
{
    uint64_t least = 0;

    for (uint32_t a = 0; a < decision->count; a++) {
        const struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_scaler_stage *stage = &application->stages[s];
            const uint64_t begun = stage->ready + stage->starting;
            least += stage->worker_class == worker_class ? begun * application->joint.stages[s].cores_min : 0;
        }
    }
    return least > box->classes[worker_class].cores;
}

/* What there is keeps its place, but for one that is given back; where cores are missing, for all that the answer has no use for. */
static void
keep_instances(struct leat_scaler_decision *decision, const struct leat_joint_box *box, struct left *left)
{
    const bool between = decision->options->between, rises = any_rises(decision);
    bool missing[LEAT_JOINT_CLASSES_MAX] = {false};

    for (uint32_t k = 0; k < box->class_count; k++) {
        missing[k] = any_missing(decision, box, k);
    }

    for (uint32_t a = 0; a < decision->count; a++) {
        struct leat_scaler_application *application = decision->applications[a];
        for (uint32_t s = 0; s < application->joint.stage_count; s++) {
            const struct leat_joint_choice *choice = &decision->answers[a].stages[s];
            const struct leat_joint_stage *joint = &application->joint.stages[s];
            const struct leat_scaler_stage *stage = &application->stages[s];
            const uint32_t begun = stage->ready + stage->starting;
            struct leat_scaler_order *order = &application->orders[s];
            const bool short_of = begun > 0 && missing[stage->worker_class];
            const bool fewer_serve = stage->ready > 0 && choice->instances < stage->ready;
            const uint32_t given_back = fewer_serve && !short_of ? stage->ready - 1 : choice->instances;
            application->spared[s] =
                choice->instances < begun ? application->spared[s] + !between : 0;
            const bool stays = !short_of && (between || (!rises && application->spared[s] < decision->options->settle));
            const uint32_t fewer = stays && given_back < begun ? begun : given_back;
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
free_worker(struct leat_scaler_decision *decision, struct left *left, uint32_t worker_class)
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
add_first(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
          struct left *left, uint32_t a, uint32_t s)
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
add_instances(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
              struct left *left)
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
order_instances(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
                struct leat_scaler_state *state)
{
    struct left left;

    ask_instances(decision);
    leat_scaler_solve(decision, box, &state->searches[0], state->turn % 2 == 0);
    keep_ties(decision, box);
    for (uint32_t k = 0; k < box->class_count; k++) {
        left.cores[k] = box->classes[k].cores;
        left.workers[k] = decision->options->workers[k] > 0 ? decision->options->workers[k] : box->classes[k].cores;
    }
    keep_instances(decision, box, &left);
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
box_left(const struct leat_scaler_decision *decision, const struct leat_joint_box *box)
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

/* Instances as they run. Applications without any are left out. */
static void
ask_cores(struct leat_scaler_decision *decision)
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
    decision->waits = true;
}

/* Cores of a class that the answers leave. */
static uint32_t
spare(const struct leat_scaler_decision *decision, const struct leat_joint_box *box,
      uint32_t worker_class)
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
order_cores(struct leat_scaler_decision *decision, const struct leat_joint_box *box)
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
order_shed(struct leat_scaler_decision *decision, const struct leat_joint_box *box)
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
                   struct leat_scaler_state *state,
                   struct leat_scaler_application *const *applications, uint32_t count,
                   void *memory)
{
    struct leat_scaler_state none = {0};
    struct leat_scaler_decision decision = {
        .options = options, .applications = applications, .count = count, .memory = memory};

    LEAT_ASSERT(count >= 1 && count <= LEAT_SCALER_APPLICATIONS_MAX);
    LEAT_ASSERT(options->hold >= 1 && options->hold <= LEAT_SCALER_HOLD_MAX);
    state = state != NULL ? state : &none;
    order_instances(&decision, box, state);
    const struct leat_joint_box left = box_left(&decision, box);
    ask_cores(&decision);
    leat_scaler_solve(&decision, &left, &state->searches[1], state->turn % 2 == 1);
    state->turn++;
    order_shed(&decision, &left);
    order_cores(&decision, &left);
}
