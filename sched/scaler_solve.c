/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/status.h"
#include "sched/scaler_private.h"

enum {
    RELAXATIONS = 4,  /* of an objective that cannot be kept, each to twice */
    FINER_ROUNDS = 4, /* of shares, each to a sixteenth at the least */
    ROUNDS = 1 + RELAXATIONS + FINER_ROUNDS,
};

/* ---- What is asked for ------------------------------------------------------------------------------ */

/* What comes and, where it counts, what waits is to be carried within the objective. */
static double
demand_of(const struct leat_scaler_decision *decision, uint32_t i, uint64_t objective_ns)
{
    const struct leat_scaler_application *application = decision->applications[decision->of[i]];
    const struct leat_joint_application *joint = &decision->joints[i];
    double sum_qps =
        leat_joint_demand(decision->rates_qps[i], objective_ns, decision->options->deviations);

    for (uint32_t s = 0; s < joint->stage_count && decision->waits; s++) {
        sum_qps +=
            application->stages[s].waiting / joint->stages[s].calls * 1e9 / (double)objective_ns;
    }
    return sum_qps;
}

static uint64_t
objective_of(const struct leat_scaler_decision *decision, uint32_t i)
{
    return decision->applications[decision->of[i]]->joint.objective_ns;
}

/* That an application is left with nothing is worse than all else that may be shed. */
static void
forbid_starving(struct leat_scaler_decision *decision)
{
    double all_qps = 0;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        all_qps += decision->joints[i].weight * decision->joints[i].demand_qps;
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        decision->joints[i].starved_qps = 1 + all_qps;
    }
}

/* The demand of the last round, or of the best. */
static void
ask(struct leat_scaler_decision *decision, const struct leat_scaler_attempt *attempt, bool best)
{
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const struct leat_scaler_sought *sought = &attempt->of[i];
        struct leat_joint_application *joint = &decision->joints[i];
        joint->objective_ns = objective_of(decision, i) << sought->doublings;
        joint->demand_qps =
            demand_of(decision, i, joint->objective_ns) * (best ? sought->best_part : sought->part);
        joint->starved_qps = 0;
    }
    if (best ? attempt->best_is_finer : attempt->round > RELAXATIONS) {
        forbid_starving(decision);
    }
}

/* ---- The search --------------------------------------------------------------------------------------- */

static void
begin(struct leat_scaler_attempt *attempt, uint32_t count)
{
    *attempt = (struct leat_scaler_attempt){0};
    for (uint32_t i = 0; i < count; i++) {
        attempt->of[i].part = attempt->of[i].best_part = 1;
    }
}

/* By the best round, of what was asked for in the last one; weighed. */
static double
carried_qps(const struct leat_scaler_decision *decision, const struct leat_scaler_attempt *attempt,
            bool best)
{
    double sum_qps = 0;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const struct leat_scaler_sought *sought = &attempt->of[i];
        const double asked_qps =
            demand_of(decision, i, objective_of(decision, i) << sought->doublings) * sought->part;
        const uint32_t share = best ? sought->best_share : sought->share;
        sum_qps += decision->joints[i].weight * asked_qps * share / LEAT_JOINT_SHARES;
    }
    return sum_qps;
}

/* The finer shares leave fewer with nothing; or as few, where they carry as much and nothing that was carried whole goes. */
static bool
is_better(const struct leat_scaler_decision *decision, const struct leat_scaler_attempt *finer,
          double before_qps)
{
    uint32_t starved = 0, finer_starved = 0;
    bool keeps = true;

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const struct leat_scaler_sought *sought = &finer->of[i];
        starved += sought->best_share == 0;
        finer_starved += sought->share == 0;
        keeps =
            keeps && (sought->best_share < LEAT_JOINT_SHARES || sought->share == LEAT_JOINT_SHARES);
    }
    return finer_starved < starved ||
           (finer_starved == starved && keeps && carried_qps(decision, finer, false) >= before_qps);
}

/* A share more or less of somebody is much of what it gets. */
static bool
any_coarse(const struct leat_scaler_decision *decision, const struct leat_scaler_attempt *attempt)
{
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        if (attempt->of[i].share < LEAT_JOINT_SHARES / 2) {
            return true;
        }
    }
    return false;
}

static bool
is_whole(const struct leat_joint_answer *answers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (answers[i].share < LEAT_JOINT_SHARES) {
            return false;
        }
    }
    return true;
}

/* Solves for the last round, and notes what each carries. */
static void
try_round(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
          struct leat_scaler_attempt *attempt, struct leat_joint_answer *ret_answers)
{
    ask(decision, attempt, false);
    (void)leat_joint_solve(box, decision->joints, decision->joint_count, decision->memory,
                           ret_answers);
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        attempt->of[i].share = ret_answers[i].share;
    }
}

/* The last round is the best so far. */
static void
keep_best(const struct leat_scaler_decision *decision, struct leat_scaler_attempt *attempt)
{
    attempt->best_is_finer = attempt->round > RELAXATIONS;
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        attempt->of[i].best_part = attempt->of[i].part;
        attempt->of[i].best_share = attempt->of[i].share;
    }
}

/* Who cannot be carried whole is asked for in twice the time in the next round. */
static void
relax(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
      struct leat_scaler_attempt *attempt, struct leat_joint_answer *ret_answers)
{
    try_round(decision, box, attempt, ret_answers);
    keep_best(decision, attempt);
    attempt->whole = is_whole(ret_answers, decision->joint_count);
    attempt->ended = attempt->whole;
    for (uint32_t i = 0; i < decision->joint_count && attempt->round < RELAXATIONS; i++) {
        attempt->of[i].doublings += attempt->of[i].share < LEAT_JOINT_SHARES;
    }
}

/*
 * What can be carried of what is shed in part is less than a share more: finer shares leave less of it, and of the cores, and
 * some for those that had nothing. But they are other shares, which may carry less. Where few of them are carried, still finer.
 */
static void
refine(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
       struct leat_scaler_attempt *attempt, struct leat_joint_answer *ret_answers)
{
    struct leat_joint_answer finer[LEAT_SCALER_APPLICATIONS_MAX];
    const double before_qps = carried_qps(decision, attempt, true);

    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const uint32_t share = attempt->of[i].share;
        attempt->of[i].part *= share < LEAT_JOINT_SHARES ? (share + 1.0) / LEAT_JOINT_SHARES : 1;
    }
    try_round(decision, box, attempt, finer);
    if (is_better(decision, attempt, before_qps)) {
        keep_best(decision, attempt);
        memcpy(ret_answers, finer, decision->joint_count * sizeof(finer[0]));
    }
    attempt->ended = attempt->round + 1 == ROUNDS || !any_coarse(decision, attempt);
}

/* One solution more. The answers are the best so far, where they were before. */
static void
seek(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
     struct leat_scaler_attempt *attempt, struct leat_joint_answer *ret_answers)
{
    LEAT_ASSERT(!attempt->ended && attempt->round < ROUNDS);
    (attempt->round <= RELAXATIONS ? relax : refine)(decision, box, attempt, ret_answers);
    attempt->round += !attempt->ended;
}

/* ---- The least for everybody ----------------------------------------------------------------------------- */

/* Its least: the fewest instances of the fewest cores, of the first class that has them. False: there are no cores for it. */
static bool
keep_least(const struct leat_joint_application *joint, struct leat_joint_box *left,
           struct leat_joint_answer *ret_answer)
{
    struct leat_joint_box box = *left;
    struct leat_joint_answer answer = {.share = 1};

    for (uint32_t s = 0; s < joint->stage_count; s++) {
        const struct leat_joint_stage *stage = &joint->stages[s];
        const uint32_t cores = stage->instances_min * stage->cores_min;
        uint32_t k = 0;
        while (k < box.class_count &&
               (stage->latency_ns[k] == NULL || box.classes[k].cores < cores)) {
            k++;
        }
        if (k == box.class_count) {
            return false;
        }
        box.classes[k].cores -= cores;
        answer.stages[s] = (struct leat_joint_choice){.worker_class = k,
                                                      .instances = stage->instances_min,
                                                      .cores = stage->cores_min,
                                                      .batch = stage->batch_max};
    }
    *left = box;
    *ret_answer = answer;
    return true;
}

static bool
feed(struct leat_scaler_decision *decision, struct leat_scaler_attempt *attempt, uint32_t i,
     struct leat_joint_box *left, struct leat_joint_answer *kept)
{
    if (!keep_least(&decision->joints[i], left, &kept[i])) {
        return false;
    }
    decision->joints[i].demand_qps = decision->joints[i].starved_qps = 0; /* so it gets no more */
    attempt->fed[attempt->fed_count++] = (uint8_t)i;
    return true;
}

static void
solve_rest(struct leat_scaler_decision *decision, const struct leat_joint_box *left,
           const struct leat_joint_answer *kept)
{
    (void)leat_joint_solve(left, decision->joints, decision->joint_count, decision->memory,
                           decision->solved);
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        decision->solved[i] = kept[i].share > 0 ? kept[i] : decision->solved[i];
    }
}

/*
 * Who is left with nothing all the same has its least before all else, whatever that carries, and what is left is the
 * others': first who was fed before, in the same order, and then who is starved. Ends: each time somebody more is fed.
 */
static void
feed_starved(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
             struct leat_scaler_attempt *attempt)
{
    struct leat_joint_answer kept[LEAT_SCALER_APPLICATIONS_MAX] = {0};
    struct leat_joint_box left = *box;
    const uint32_t before = attempt->fed_count;
    bool more = before > 0;

    ask(decision, attempt, false);
    attempt->fed_count = 0;
    for (uint32_t n = 0; n < before; n++) {
        (void)feed(decision, attempt, attempt->fed[n], &left, kept);
    }
    if (more) {
        solve_rest(decision, &left, kept);
    }
    do {
        more = false;
        for (uint32_t i = 0; i < decision->joint_count; i++) {
            more = (decision->solved[i].share == 0 && kept[i].share == 0 &&
                    feed(decision, attempt, i, &left, kept)) ||
                   more;
        }
        if (more) {
            solve_rest(decision, &left, kept);
        }
    } while (more);
}

/* ---- From decision to decision ---------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15) ^ sum >> 29;
}

/* Of all but demands and times. */
static uint64_t
sum_of(const struct leat_scaler_decision *decision, const struct leat_joint_box *box)
{
    uint64_t sum = mix(decision->joint_count, box->class_count);

    for (uint32_t k = 0; k < box->class_count; k++) {
        sum = mix(mix(sum, box->classes[k].cores), box->classes[k].price);
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const struct leat_joint_application *joint = &decision->joints[i];
        sum =
            mix(mix(mix(mix(sum, decision->of[i]), joint->stage_count), objective_of(decision, i)),
                joint->weight);
        for (uint32_t t = 0; t < joint->term_count; t++) {
            sum = mix(sum, (uint8_t)joint->terms[t]);
        }
        for (uint32_t s = 0; s < joint->stage_count; s++) {
            const struct leat_joint_stage *stage = &joint->stages[s];
            sum = mix(mix(mix(sum, stage->cores_min), stage->cores_max), stage->batch_max);
            sum = mix(mix(sum, stage->instances_min), stage->instances_max);
            for (uint32_t k = 0; k < box->class_count; k++) {
                sum = mix(sum, stage->latency_ns[k] != NULL);
            }
        }
    }
    return sum;
}

/* What is asked for is what was sought for, and about as much of it. */
static bool
is_known(const struct leat_scaler_decision *decision, uint64_t sum,
         const struct leat_scaler_search *search)
{
    if (!search->found.ended || search->found.round == 0 || search->sum != sum) {
        return false;
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        const double now_qps = demand_of(decision, i, objective_of(decision, i)),
                     then_qps = search->demand_qps[i];
        if (now_qps * 4 < then_qps * 3 || now_qps * 3 > then_qps * 4) {
            return false;
        }
    }
    return true;
}

static void
remember(const struct leat_scaler_decision *decision, uint64_t sum,
         struct leat_scaler_search *search)
{
    search->sum = sum;
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        search->demand_qps[i] = demand_of(decision, i, objective_of(decision, i));
    }
    begin(&search->next, decision->joint_count);
}

/* Solves for what sufficed. False: it does no more, or something shorter would. */
static bool
follow(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
       struct leat_scaler_attempt *found)
{
    if (found->fed_count == 0) {
        ask(decision, found, true);
        (void)leat_joint_solve(box, decision->joints, decision->joint_count, decision->memory,
                               decision->solved);
        if (!found->best_is_finer &&
            is_whole(decision->solved, decision->joint_count) != found->whole) {
            return false;
        }
    }
    if (!found->whole) {
        feed_starved(decision, box, found);
    }
    return true;
}

/* From the start to the end. */
static void
seek_all(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
         struct leat_scaler_attempt *found)
{
    begin(found, decision->joint_count);
    while (!found->ended) {
        seek(decision, box, found, decision->solved);
    }
    if (!found->whole) {
        feed_starved(decision, box, found);
    }
}

/* One solution of a search that replaces what was found, once it has ended. */
static void
seek_anew(struct leat_scaler_decision *decision, const struct leat_joint_box *box, uint64_t sum,
          struct leat_scaler_search *search)
{
    struct leat_joint_answer nobodys[LEAT_SCALER_APPLICATIONS_MAX];

    seek(decision, box, &search->next, nobodys);
    if (search->next.ended) {
        search->found = search->next;
        remember(decision, sum, search);
    }
}

void
leat_scaler_solve(struct leat_scaler_decision *decision, const struct leat_joint_box *box,
                  struct leat_scaler_search *search, bool turn)
{
    if (decision->joint_count > 0) {
        const uint64_t sum = sum_of(decision, box);
        if (is_known(decision, sum, search) && follow(decision, box, &search->found)) {
            decision->sufficed = search->found;
            if (turn) {
                seek_anew(decision, box, sum, search);
            }
        } else {
            seek_all(decision, box, &search->found);
            decision->sufficed = search->found;
            remember(decision, sum, search);
        }
    }
    for (uint32_t i = 0; i < decision->joint_count; i++) {
        decision->answers[decision->of[i]] = decision->solved[i];
    }
}

bool
leat_scaler_solve_again(struct leat_scaler_decision *decision, const struct leat_joint_box *box)
{
    if (decision->sufficed.fed_count > 0) {
        return false;
    }
    ask(decision, &decision->sufficed, true);
    (void)leat_joint_solve(box, decision->joints, decision->joint_count, decision->memory,
                           decision->solved);
    return true;
}
