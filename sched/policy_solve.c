/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/policy_solve.h"

#include <math.h>
#include <string.h>

#include "base/align.h"
#include "sched/mdp_pool.h"

#define ALIGNMENT 64u

_Static_assert(LEAT_MDP_POOL_GIVE_UP == LEAT_POLICY_GIVE_UP && LEAT_MDP_POOL_HOLD == LEAT_POLICY_HOLD &&
                   LEAT_MDP_POOL_QUEUE_MAX == LEAT_POLICY_QUEUE_MAX && LEAT_MDP_POOL_BINS_MAX == LEAT_POLICY_BINS_MAX &&
                   LEAT_MDP_POOL_LEVELS_MAX == LEAT_POLICY_LEVELS_MAX && LEAT_MDP_POOL_HELD_MAX == LEAT_POLICY_HELD_MAX &&
                   LEAT_MDP_POOL_VARIANTS_MAX == LEAT_POLICY_VARIANTS_MAX,
               "what sched/mdp_pool.h solves is the table of a block as it stands");

/* ---- Problems ---------------------------------------------------------------------------------- */

struct leat_mdp_problem
leat_policy_queue_problem(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    return (struct leat_mdp_problem){.variant_count = problem->variant_count,
                                     .worker_count = problem->worker_count,
                                     .queue_max = problem->queue_max,
                                     .slack_bins = problem->slack_bins,
                                     .latency_stride = problem->latency_items,
                                     .accuracy = problem->accuracy,
                                     .latency_us = problem->latency_us,
                                     .objective_us = (double)problem->objective_ns / 1e3,
                                     .rate_per_us = rate_qps / 1e6,
                                     .dispersion = problem->dispersion,
                                     .late_penalty = problem->late_penalty,
                                     .grid = problem->grid,
                                     .batching = problem->batching,
                                     .split = problem->split,
                                     .late = problem->drops_late ? LEAT_MDP_DROP_LATE : LEAT_MDP_SERVE_LATE};
}

static struct leat_mdp_pool_problem
pool_problem(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    return (struct leat_mdp_pool_problem){.variant_count = problem->variant_count,
                                          .worker_count = problem->worker_count,
                                          .batch_max = problem->latency_items,
                                          .latency_stride = problem->latency_items,
                                          .accuracy = problem->accuracy,
                                          .latency_us = problem->latency_us,
                                          .objective_us = (double)problem->objective_ns / 1e3,
                                          .rate_per_us = rate_qps / 1e6,
                                          .dispersion = problem->dispersion,
                                          .late_penalty = problem->late_penalty,
                                          .latency_spread = problem->latency_spread,
                                          .queue_max = problem->queue_max,
                                          .model_queue_max = problem->model_queue_max,
                                          .slack_bins = problem->slack_bins,
                                          .idle_levels = problem->idle_levels,
                                          .held_max = problem->held_max,
                                          .hold = problem->hold};
}

static struct leat_policy
shape_of(const struct leat_policy_problem *problem, uint32_t rung_count)
{
    const bool pool = problem->mode == LEAT_POLICY_LEAT;
    return (struct leat_policy){.objective_ns = problem->objective_ns,
                                .kind = pool ? LEAT_POLICY_POOL : LEAT_POLICY_QUEUE,
                                .worker_count = problem->worker_count,
                                .dispersion_permille = (uint32_t)lround(problem->dispersion * 1000),
                                .drops_late = problem->drops_late,
                                .rung_count = rung_count,
                                .variant_count = problem->variant_count,
                                .queue_max = problem->queue_max,
                                .slack_bins = problem->slack_bins,
                                .unit_shift = problem->unit_shift,
                                .idle_levels = pool ? problem->idle_levels : 0,
                                .held_max = pool ? problem->held_max : 0,
                                .latency_items = problem->latency_items,
                                .shortest = !pool && problem->split == LEAT_MDP_SHORTEST_QUEUE,
                                .spread_permille = pool ? (uint32_t)lround(problem->latency_spread * 1000) : 0,
                                .late_penalty_permille = (uint32_t)lround(problem->late_penalty * 1000)};
}

enum leat_status
leat_policy_problem_check(const struct leat_policy_problem *problem, uint32_t rung_count)
{
    const bool pool = problem->mode == LEAT_POLICY_LEAT;

    if (!(problem->dispersion >= 1 && problem->dispersion <= LEAT_POLICY_DISPERSION_MAX_PERMILLE / 1000.0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a dispersion of %g, but it is to be 1 to %g", problem->dispersion,
                         LEAT_POLICY_DISPERSION_MAX_PERMILLE / 1000.0);
    }
    if (!(problem->late_penalty >= 0 && problem->late_penalty <= LEAT_POLICY_PENALTY_MAX_PERMILLE / 1000.0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a penalty of %g, but it is to be 0 to %g", problem->late_penalty,
                         LEAT_POLICY_PENALTY_MAX_PERMILLE / 1000.0);
    }
    if (!(problem->latency_spread >= 0 && problem->latency_spread <= LEAT_POLICY_SPREAD_MAX_PERMILLE / 1000.0)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a spread of %g, but it is to be 0 to %g", problem->latency_spread,
                         LEAT_POLICY_SPREAD_MAX_PERMILLE / 1000.0);
    }
    if (!pool && problem->latency_items != problem->queue_max + 1) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "latencies of %u items, but a queue of %u needs one more than that",
                         problem->latency_items, problem->queue_max);
    }
    const struct leat_policy shape = shape_of(problem, rung_count);
    size_t bytes;
    enum leat_status status = leat_policy_bytes(&shape, &bytes);
    if (status == LEAT_OK && pool) {
        const struct leat_mdp_pool_problem pooled = pool_problem(problem, 1);
        status = leat_mdp_pool_check(&pooled);
    } else if (status == LEAT_OK) {
        const struct leat_mdp_problem queued = leat_policy_queue_problem(problem, 1);
        status = leat_mdp_check(&queued);
    }
    return status;
}

size_t
leat_policy_problem_bytes(const struct leat_policy_problem *problem, uint32_t rung_count)
{
    const struct leat_policy shape = shape_of(problem, rung_count);
    size_t bytes;

    LEAT_MUST(leat_policy_bytes(&shape, &bytes) == LEAT_OK);
    return bytes;
}

static uint32_t
parts_of(double share, double parts, uint32_t max)
{
    const double rounded = share * parts + 0.5;
    return rounded >= max ? max : rounded > 0 ? (uint32_t)rounded : 0;
}

enum leat_status
leat_policy_begin(void *memory, const struct leat_policy_problem *problem, const uint32_t *rates_qps, uint32_t rung_count,
                  struct leat_policy **ret_policy)
{
    const struct leat_policy shape = shape_of(problem, rung_count);
    struct leat_policy *policy = leat_policy_init(memory, &shape);
    uint64_t latency_ns[LEAT_POLICY_LATENCIES_MAX];

    for (uint32_t v = 0; v < problem->variant_count; v++) {
        for (uint32_t i = 0; i < problem->latency_items; i++) {
            const double ns = problem->latency_us[(size_t)v * problem->latency_items + i] * 1e3 + 0.5;
            latency_ns[i] =
                ns < (double)LEAT_POLICY_LATENCY_MAX_NS ? (ns >= 1 ? (uint64_t)ns : 1) : LEAT_POLICY_LATENCY_MAX_NS;
        }
        const enum leat_status status =
            leat_policy_set_variant(policy, v, problem->names[v], parts_of(problem->accuracy[v], 1e6, 1000000), latency_ns);
        if (status != LEAT_OK) {
            return status;
        }
    }
    for (uint32_t r = 0; r < rung_count; r++) {
        struct leat_policy_rung rung = *leat_policy_rung(policy, r);
        rung.rate_qps = rates_qps[r];
        leat_policy_set_rung(policy, r, &rung);
    }
    *ret_policy = policy;
    return LEAT_OK;
}

/* A gain as blocks have it. */
static int32_t
gain_ppm(double gain)
{
    return (int32_t)lround(fmax(fmin(gain, 1), -(double)LEAT_POLICY_PENALTY_MAX_PERMILLE / 1000) * 1e6);
}

double
leat_policy_bound(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    const struct leat_mdp_pool_problem pooled = pool_problem(problem, rate_qps);
    return leat_mdp_pool_bound(&pooled) / pooled.rate_per_us;
}

/* ---- A queue before all workers ---------------------------------------------------------------- */

/*
 * A model has to know all queries that come within an objective, and its cost grows with their number to the second power and
 * more. Where they are many they are counted by groups: a group is one to the solver, batches are of whole groups, and the
 * table says of n what is best for as many groups as n fill.
 */
enum {
    GROUPS = 512,       /* that come within an objective; fewer are counted one by one */
    GROUPS_BATCH = 4,   /* sizes of batches are told apart in any case */
    GROUPS_MODEL = 768, /* what comes may then be more: a longer queue counts as that */
};

struct grouping {
    uint32_t items; /* of a group */
    struct leat_mdp_pool_problem problem;
    size_t solver_bytes, action_bytes, latency_bytes;
};

static size_t
pool_cells(const struct leat_mdp_pool_problem *problem)
{
    return (size_t)leat_mdp_pool_row_count(problem) * (problem->slack_bins + 1);
}

static uint32_t
groups(uint32_t items, uint32_t of)
{
    return (items + of - 1) / of;
}

/* Could all queries have the best answer there is? Then nobody has to wait for company. */
static bool
is_light(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    double best = 0;
    for (uint32_t v = 0; v < problem->variant_count; v++) {
        const bool in_time = problem->latency_us[(size_t)v * problem->latency_items] * 1e3 <= (double)problem->objective_ns;
        best = in_time && problem->accuracy[v] > best ? problem->accuracy[v] : best;
    }
    return leat_policy_bound(problem, rate_qps) >= best - 1e-9;
}

/*
 * Is it near what all workers can answer in time? There the model thinks more of holding than it turns out to be worth: simulated
 * at 0.94 of it, with RAMSIS' nine image models, nearly a point of accuracy is lost, where at 0.84 half a point is won.
 */
static bool
is_heavy(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    double most_per_us = 0; /* of one worker */
    for (uint32_t v = 0; v < problem->variant_count; v++) {
        for (uint32_t items = 1; items <= problem->latency_items; items++) {
            const double us = problem->latency_us[(size_t)v * problem->latency_items + items - 1];
            most_per_us = us * 1e3 <= (double)problem->objective_ns && items / us > most_per_us ? items / us : most_per_us;
        }
    }
    return rate_qps > 0.9e6 * most_per_us * problem->worker_count;
}

static struct grouping
group(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    const double come = (double)rate_qps * (double)problem->objective_ns / 1e9;
    const uint32_t most = problem->latency_items / GROUPS_BATCH;
    struct grouping grouping = {.items = 1, .problem = pool_problem(problem, rate_qps)};
    struct leat_mdp_pool_problem *pooled = &grouping.problem;

    pooled->hold = problem->hold && !is_light(problem, rate_qps) && !is_heavy(problem, rate_qps);
    if (come > GROUPS && problem->model_queue_max == 0 && most > 1) {
        const double wanted = ceil(come / GROUPS);
        const uint32_t items = wanted < most ? (uint32_t)wanted : most;
        const double left = come / items;
        grouping.items = items;
        pooled->batch_max = problem->latency_items / items;
        pooled->latency_stride = pooled->batch_max;
        pooled->rate_per_us /= items;
        pooled->dispersion = problem->dispersion > items ? problem->dispersion / items : 1;
        pooled->queue_max = groups(problem->queue_max, items);
        pooled->held_max = groups(problem->held_max, items);
        pooled->model_queue_max = left < GROUPS_MODEL ? (uint32_t)left : GROUPS_MODEL;
        if (pooled->model_queue_max < 4 * pooled->queue_max) {
            pooled->model_queue_max = 4 * pooled->queue_max;
        }
        grouping.latency_bytes =
            leat_round_up((size_t)problem->variant_count * pooled->batch_max * sizeof(double), ALIGNMENT);
    }
    grouping.solver_bytes = leat_round_up(leat_mdp_pool_bytes(pooled), ALIGNMENT);
    grouping.action_bytes = leat_round_up(pool_cells(pooled) * sizeof(uint16_t), ALIGNMENT);
    return grouping;
}

static void
group_latencies(const struct leat_policy_problem *problem, struct grouping *grouping, double *latency_us)
{
    const uint32_t batches = grouping->problem.batch_max;

    for (uint32_t v = 0; v < problem->variant_count; v++) {
        for (uint32_t b = 1; b <= batches; b++) {
            latency_us[(size_t)v * batches + b - 1] =
                problem->latency_us[(size_t)v * problem->latency_items + b * grouping->items - 1];
        }
    }
    grouping->problem.latency_us = latency_us;
}

/* An action on groups as one on at most so many items. */
static struct leat_policy_action
ungroup(uint16_t packed, uint32_t group_items, uint32_t most)
{
    struct leat_policy_action action = leat_policy_unpack(packed);
    const uint32_t items = action.items * group_items;

    if (action.items != LEAT_POLICY_ALL && action.variant != LEAT_POLICY_HOLD) {
        action.items = items < most ? items : most;
    }
    return action;
}

/* One row of the table from one of the solver's. */
static void
ungroup_row(const struct grouping *grouping, const uint16_t *from, struct leat_policy *policy, uint32_t r, uint32_t row,
            uint32_t most)
{
    for (uint32_t bin = 0; bin <= policy->slack_bins; bin++) {
        leat_policy_set_action(policy, r, row, bin, ungroup(from[bin], grouping->items, most));
    }
}

/* All rows, also those of levels that no number of idle workers comes to. */
static void
ungroup_rows(const struct leat_policy_problem *problem, const struct grouping *grouping, const uint16_t *actions,
             struct leat_policy *policy, uint32_t r)
{
    const struct leat_mdp_pool_problem *pooled = &grouping->problem;
    const uint32_t columns = problem->slack_bins + 1;
    uint32_t to = 1;

    for (uint32_t n = 1; n <= problem->queue_max; n++) {
        ungroup_row(grouping, actions + (size_t)groups(n, grouping->items) * columns, policy, r, to++, n);
    }
    const uint16_t *from = actions + (size_t)(pooled->queue_max + 1) * columns; /* more wait */
    ungroup_row(grouping, from, policy, r, to++, problem->queue_max);
    for (uint32_t level = 0; level < problem->idle_levels; level++) {
        for (uint32_t n = 1; n <= problem->held_max; n++) {
            const uint32_t held = level * pooled->held_max + groups(n, grouping->items);
            ungroup_row(grouping, from + (size_t)held * columns, policy, r, to++, n);
        }
    }
}

static void
solve_pool(void *memory, const struct leat_policy_problem *problem, struct leat_policy *policy, uint32_t r)
{
    struct leat_policy_rung rung = *leat_policy_rung(policy, r);
    struct grouping grouping = group(problem, rung.rate_qps);
    uint8_t *behind = (uint8_t *)memory + grouping.solver_bytes;
    uint16_t *actions = (uint16_t *)(void *)behind;
    struct leat_mdp_pool_value value;

    memset(actions, 0, pool_cells(&grouping.problem) * sizeof(*actions));
    if (grouping.items > 1) {
        group_latencies(problem, &grouping, (double *)(void *)(behind + grouping.action_bytes));
    }
    leat_mdp_pool_solve(memory, &grouping.problem, actions, &value);
    if (grouping.items > 1) {
        ungroup_rows(problem, &grouping, actions, policy, r);
    } else {
        leat_policy_set_actions(policy, r, actions);
    }
    rung.accuracy_ppm = parts_of(value.accuracy, 1e6, 1000000);
    rung.violation_ppb = parts_of(value.violation, 1e9, 1000000000);
    rung.gain_ppm = gain_ppm(value.gain_per_us / grouping.problem.rate_per_us);
    rung.bound_ppm = gain_ppm(leat_policy_bound(problem, rung.rate_qps));
    leat_policy_set_rung(policy, r, &rung);
}

/* ---- A queue for each worker ------------------------------------------------------------------- */

/* Memory for one rung: the solver's, then a policy of its own bins and where these begin. */
struct queue_memory {
    void *solver;
    struct leat_mdp_action *actions; /* [queue_max][bins] */
    double *slack_us;                /* [bins] */
    size_t bytes;                    /* SIZE_MAX: too many */
};

static struct queue_memory
lay_out(void *memory, const struct leat_mdp_problem *problem, size_t solver_bytes)
{
    const uint32_t bins = leat_mdp_bin_count(problem);
    const size_t actions = leat_round_up((size_t)problem->queue_max * bins * sizeof(struct leat_mdp_action), ALIGNMENT);
    const size_t behind = actions + bins * sizeof(double);
    uint8_t *at = memory;

    if (solver_bytes > SIZE_MAX / 2) {
        return (struct queue_memory){.bytes = SIZE_MAX};
    }
    solver_bytes = leat_round_up(solver_bytes, ALIGNMENT);
    if (at == NULL) {
        return (struct queue_memory){.bytes = solver_bytes + behind};
    }
    return (struct queue_memory){.solver = at,
                                 .actions = (struct leat_mdp_action *)(void *)(at + solver_bytes),
                                 .slack_us = (double *)(void *)(at + solver_bytes + actions),
                                 .bytes = solver_bytes + behind};
}

/* From the solver's bins to the table's: the action of the last bin that does not begin behind the table's. */
static void
tabulate(const struct queue_memory *memory, const struct leat_mdp_problem *problem, struct leat_policy *policy, uint32_t r)
{
    const uint32_t bins = leat_mdp_bin_count(problem), full = policy->queue_max + 1;
    const struct leat_policy_action late = policy->drops_late
                                               ? (struct leat_policy_action){.variant = LEAT_POLICY_GIVE_UP, .items = 1}
                                               : (struct leat_policy_action){.items = LEAT_POLICY_ALL};
    uint32_t own = 0;

    leat_mdp_slacks(problem, memory->slack_us);
    for (uint32_t bin = 0; bin <= policy->slack_bins; bin++) {
        const double slack_us = problem->objective_us / policy->slack_bins * bin;
        while (own + 1 < bins && memory->slack_us[own + 1] <= slack_us * (1 + 1e-12)) {
            own++;
        }
        for (uint32_t n = 1; n <= policy->queue_max; n++) {
            const struct leat_mdp_action action = memory->actions[(size_t)(n - 1) * bins + own];
            leat_policy_set_action(policy, r, n, bin,
                                   (struct leat_policy_action){
                                       .variant = action.variant == LEAT_MDP_DROP ? LEAT_POLICY_GIVE_UP : action.variant,
                                       .items = action.batch});
        }
        leat_policy_set_action(policy, r, full, bin, late);
    }
}

static void
solve_queue(void *memory, const struct leat_policy_problem *problem, struct leat_policy *policy, uint32_t r)
{
    struct leat_policy_rung rung = *leat_policy_rung(policy, r);
    const struct leat_mdp_problem queued = leat_policy_queue_problem(problem, rung.rate_qps);
    const struct queue_memory parts = lay_out(memory, &queued, leat_mdp_bytes(&queued, NULL, 1));
    struct leat_mdp *mdp = leat_mdp_init(parts.solver, &queued, NULL, 1);
    struct leat_mdp_value value;

    leat_mdp_build(mdp, 0);
    leat_mdp_solve(mdp, problem->mode == LEAT_POLICY_PAPER ? LEAT_MDP_PAPER : LEAT_MDP_LEAT, parts.actions, NULL);
    LEAT_MUST(leat_mdp_evaluate(mdp, parts.actions, &value) == LEAT_OK);
    tabulate(&parts, &queued, policy, r);
    rung.accuracy_ppm = parts_of(value.accuracy, 1e6, 1000000);
    rung.violation_ppb = parts_of(value.violation, 1e9, 1000000000);
    rung.gain_ppm = gain_ppm(leat_policy_gain(value.accuracy, value.violation, problem->late_penalty));
    rung.bound_ppm = gain_ppm(leat_policy_bound(problem, rung.rate_qps));
    leat_policy_set_rung(policy, r, &rung);
}

/* ---- Any --------------------------------------------------------------------------------------- */

size_t
leat_policy_solve_bytes(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    if (problem->mode == LEAT_POLICY_LEAT) {
        const struct grouping grouping = group(problem, rate_qps);
        return grouping.solver_bytes + grouping.action_bytes + grouping.latency_bytes;
    }
    const struct leat_mdp_problem queued = leat_policy_queue_problem(problem, rate_qps);
    return lay_out(NULL, &queued, leat_mdp_bytes(&queued, NULL, 1)).bytes;
}

void
leat_policy_solve(void *memory, const struct leat_policy_problem *problem, struct leat_policy *policy, uint32_t rung)
{
    LEAT_ASSERT((uintptr_t)memory % ALIGNMENT == 0 && rung < policy->rung_count);
    if (problem->mode == LEAT_POLICY_LEAT) {
        solve_pool(memory, problem, policy, rung);
    } else {
        solve_queue(memory, problem, policy, rung);
    }
}
