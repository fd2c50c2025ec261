/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <string.h>

#include "sched/mdp_pool_chain.h"

#define LEVELS       16u  /* of V, at most: more of them change no figure */
#define QUEUE_ENOUGH 256u  /* for the model, where the caller asks for no length, whatever comes */
#define QUEUE_MOST   1024u /* for it, however many come while a query may wait: elimination takes the square of it */

/* ---- Problem and memory ------------------------------------------------------------------------ */

static bool
in_range(double value, double least, double most)
{
    return value >= least && value <= most; /* no NaN is */
}

static uint32_t
model_queue(const struct leat_mdp_pool_problem *problem)
{
    const uint32_t longer = 4 * problem->queue_max < QUEUE_ENOUGH ? 4 * problem->queue_max : QUEUE_ENOUGH;
    const double come = problem->rate_per_us * problem->objective_us;
    const uint32_t timely = come < QUEUE_MOST ? (come > 0 ? (uint32_t)come : 0) : QUEUE_MOST;
    const uint32_t enough = longer > timely ? longer : timely;

    if (problem->model_queue_max > 0) {
        return problem->model_queue_max;
    }
    return enough > problem->queue_max ? enough : problem->queue_max;
}

enum leat_status
leat_mdp_pool_check(const struct leat_mdp_pool_problem *p)
{
    if (p->variant_count < 1 || p->variant_count > LEAT_MDP_POOL_VARIANTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u variants; 1 to %u are possible", p->variant_count,
                         LEAT_MDP_POOL_VARIANTS_MAX);
    }
    if (p->worker_count < 1 || p->worker_count > LEAT_MDP_POOL_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u workers; 1 to %u are possible", p->worker_count, LEAT_MDP_POOL_WORKERS_MAX);
    }
    if (p->queue_max < 1 || p->queue_max > LEAT_MDP_POOL_QUEUE_MAX || p->batch_max < 1 || p->batch_max > p->queue_max ||
        p->latency_stride < p->batch_max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "batches of %u (%u known) in queues of %u; queues have 1 to %u, batches no more",
                         p->batch_max, p->latency_stride, p->queue_max, LEAT_MDP_POOL_QUEUE_MAX);
    }
    if (p->slack_bins < 1 || p->slack_bins > LEAT_MDP_POOL_BINS_MAX || p->idle_levels < 1 ||
        p->idle_levels > LEAT_MDP_POOL_LEVELS_MAX || p->held_max < 1 || p->held_max > LEAT_MDP_POOL_HELD_MAX ||
        p->held_max > p->queue_max || model_queue(p) < p->queue_max ||
        model_queue(p) > LEAT_MDP_POOL_MODEL_QUEUE_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "no table of %u bins and %u levels of %u queries, from a model of %u",
                         p->slack_bins, p->idle_levels, p->held_max, model_queue(p));
    }
    if (!in_range(p->objective_us, DBL_MIN, 1e15) || !in_range(p->rate_per_us, 0, 1e6) ||
        !in_range(p->dispersion, 1, 1e3) || !in_range(p->late_penalty, 0, 1e6) || !in_range(p->latency_spread, 0, 10)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "objective %g us, rate %g / us, dispersion %g, penalty %g or spread %g",
                         p->objective_us, p->rate_per_us, p->dispersion, p->late_penalty, p->latency_spread);
    }
    for (uint32_t v = 0; v < p->variant_count; v++) {
        if (!in_range(p->accuracy[v], 0, 1)) {
            return LEAT_FAIL(LEAT_ERR_INVALID, "variant %u has an accuracy of %g", v, p->accuracy[v]);
        }
        for (uint32_t b = 1; b <= p->batch_max; b++) {
            if (!in_range(p->latency_us[v * p->latency_stride + b - 1], DBL_MIN, 1e15)) {
                return LEAT_FAIL(LEAT_ERR_INVALID, "variant %u has a latency of %g us at batch %u", v,
                                 p->latency_us[v * p->latency_stride + b - 1], b);
            }
        }
    }
    return LEAT_OK;
}

static double
latency_us(const struct leat_mdp_pool_problem *problem, uint32_t variant, uint32_t batch)
{
    return problem->latency_us[variant * problem->latency_stride + batch - 1];
}

/* Is there another that does the same batch or a larger one no slower and no less accurately? Of equals the first stays. */
static bool
is_dominated(const struct leat_mdp_pool_problem *problem, uint32_t variant, uint32_t batch)
{
    const double accuracy = problem->accuracy[variant], latency = latency_us(problem, variant, batch);

    for (uint32_t v = 0; v < problem->variant_count; v++) {
        const double other = latency_us(problem, v, batch);
        if (problem->accuracy[v] >= accuracy && other <= latency &&
            (problem->accuracy[v] > accuracy || other < latency || v < variant)) {
            return true;
        }
    }
    return false;
}

/* By rising latency; returns how many. With pairs NULL they are only counted. */
static uint32_t
list_pairs(const struct leat_mdp_pool_problem *problem, struct pair *pairs)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < problem->variant_count; v++) {
        for (uint32_t b = 1; b <= problem->batch_max; b++) {
            const double latency = latency_us(problem, v, b);
            if (latency > problem->objective_us || is_dominated(problem, v, b)) {
                continue;
            }
            if (pairs != NULL) {
                uint32_t at = count;
                for (; at > 0 && pairs[at - 1].latency_us > latency; at--) {
                    pairs[at] = pairs[at - 1];
                }
                pairs[at] = (struct pair){latency, problem->accuracy[v], v, b};
            }
            count++;
        }
    }
    return count;
}

static uint32_t
level_count(const struct leat_mdp_pool_problem *problem)
{
    return problem->worker_count - 1 < LEVELS ? problem->worker_count - 1 : LEVELS;
}

/* Hands out parts of the caller's memory; with base NULL it only counts. */
struct arena {
    uint8_t *base;
    size_t used;
};

static void *
take(struct arena *arena, size_t count, size_t bytes)
{
    void *part = arena->base != NULL ? arena->base + arena->used : NULL;
    arena->used += (count * bytes + 63) / 64 * 64;
    return part;
}

static void
lay_out(struct solver *solver, const struct leat_mdp_pool_problem *problem, struct arena *arena)
{
    const size_t bins = problem->slack_bins + 1;

    *solver = (struct solver){.problem = problem, .queue = model_queue(problem), .held = problem->held_max,
                              .levels = level_count(problem), .pair_count = list_pairs(problem, NULL)};
    solver->full = solver->levels * (solver->held + 1);
    solver->states = solver->full + solver->queue + 1;
    solver->taps_max = 4 * solver->queue + 256;
    solver->cluster_count = solver->taps_max;
    const size_t states = solver->states, levels = solver->levels + 1;
    const size_t tabled = bins * (solver->queue + 1);
    solver->pairs = take(arena, solver->pair_count, sizeof(*solver->pairs));
    solver->value = take(arena, states, sizeof(double));
    solver->action = take(arena, states, sizeof(uint32_t));
    solver->unknown = take(arena, states, sizeof(uint32_t));
    solver->state = take(arena, states, sizeof(uint32_t));
    solver->grid = take(arena, states, sizeof(double));
    solver->visits = take(arena, states, sizeof(double));
    solver->sums = take(arena, states, sizeof(struct sums));
    solver->reward = take(arena, states, sizeof(double));
    solver->time_us = take(arena, states, sizeof(double));
    solver->reach = take(arena, states, sizeof(uint32_t));
    solver->matrix = take(arena, states * states, sizeof(double));
    solver->cluster = take(arena, solver->cluster_count, sizeof(double));
    solver->wait = take(arena, levels * levels, sizeof(double));
    solver->taps = take(arena, solver->taps_max, sizeof(double));
    solver->best = take(arena, states > tabled ? states : tabled, sizeof(double));
    solver->choice = take(arena, states > tabled ? states : tabled, sizeof(uint32_t));
    solver->result = take(arena, solver->queue + 1, sizeof(double));
    solver->held_value = take(arena, levels * (solver->held + 1) * bins, sizeof(double));
}

size_t
leat_mdp_pool_bytes(const struct leat_mdp_pool_problem *problem)
{
    struct solver solver;
    struct arena arena = {0};

    lay_out(&solver, problem, &arena);
    return arena.used;
}

/* ---- The table --------------------------------------------------------------------------------- */

static uint16_t
pack(const struct solver *solver, uint32_t action)
{
    if (action == HOLD || action == GIVE_UP) {
        return (uint16_t)((action == HOLD ? LEAT_MDP_POOL_HOLD : LEAT_MDP_POOL_GIVE_UP) | 1u << 6);
    }
    return (uint16_t)(solver->pairs[action].variant | solver->pairs[action].batch << 6);
}

/* best[waiting][bin] of what may be started at a level, by slack, and choice. */
static void
start_by_slack(struct solver *solver, uint32_t level)
{
    const struct leat_mdp_pool_problem *problem = solver->problem;
    const uint32_t columns = problem->slack_bins + 1, most = longest(solver, level);

    for (uint32_t waiting = 1; waiting <= most; waiting++) {
        for (uint32_t j = 0; j < columns; j++) {
            const double one_less = solver->value[state_of(solver, waiting - 1, level)];
            solver->best[waiting * columns + j] = one_less - problem->late_penalty;
            solver->choice[waiting * columns + j] = GIVE_UP;
        }
    }
    for (uint32_t p = 0; p < solver->pair_count; p++) {
        const struct pair *pair = &solver->pairs[p];
        if (pair->batch > most) {
            continue;
        }
        leat_mdp_pool_value_pair(solver, pair, level, 0, most - pair->batch, solver->result);
        for (uint32_t j = columns; j-- > 0;) {
            const double chance = in_time(solver, pair, problem->objective_us * j / problem->slack_bins);
            const double reward = reward_of(solver, pair, chance);
            if (chance == 0) {
                break;
            }
            for (uint32_t waiting = pair->batch; waiting <= most; waiting++) {
                offer(solver, waiting * columns + j, solver->result[waiting - pair->batch] + reward, p);
            }
        }
    }
}

/* Value at a level that need not be a whole one, of so many that wait in a bin. */
static double
held_value_at(const struct solver *solver, uint32_t waiting, double level, uint32_t bin)
{
    const uint32_t columns = solver->problem->slack_bins + 1, plane = (solver->held + 1) * columns, low = (uint32_t)level;
    const double *at = &solver->held_value[low * plane + waiting * columns + bin], above = level - low;

    return above > 0 ? (1 - above) * at[0] + above * at[plane] : at[0];
}

/*
 * Holding in bin j until a query comes or the slack is that of bin j - 1, whichever is first. Lower levels and shorter
 * slacks have their values, and so have longer queues in this bin.
 */
static double
value_hold_by_slack(const struct solver *solver, uint32_t waiting, uint32_t level, uint32_t bin)
{
    const double bin_us = solver->problem->objective_us / solver->problem->slack_bins;
    const double mean = solver->cluster_rate * bin_us, none = exp(-mean), come = 1 - none;
    const double when = mean > 1e-6 ? 1 / mean - none / come : 0.5; /* where in the bin's time a query comes, if one does */
    const double then = level * exp(-2 * when * bin_us / solver->batch_us);
    const double last = level * exp(-2 * bin_us / solver->batch_us);
    double value = none * held_value_at(solver, waiting, last, bin - 1) - solver->gain * come / solver->cluster_rate;

    for (uint32_t c = 1; c <= solver->cluster_count; c++) {
        const uint32_t found = waiting + c < solver->held ? waiting + c : solver->held;
        const double slow = held_value_at(solver, found, then, bin - 1), fast = held_value_at(solver, found, then, bin);
        value += come * solver->cluster[c - 1] * ((1 - when) * fast + when * slow);
    }
    return value;
}

static void
hold_by_slack(struct solver *solver, uint32_t level)
{
    const uint32_t columns = solver->problem->slack_bins + 1;
    double *values = &solver->held_value[level * (solver->held + 1) * columns];

    for (uint32_t j = 0; j < columns; j++) {
        for (uint32_t waiting = solver->held; waiting > 0; waiting--) {
            const uint32_t at = waiting * columns + j;
            if (j > 0 && may_hold(solver, waiting)) {
                offer(solver, at, value_hold_by_slack(solver, waiting, level, j), HOLD);
            }
            values[at] = solver->best[at];
        }
    }
}

static void
write_row(const struct solver *solver, uint32_t waiting, uint16_t *row)
{
    const uint32_t columns = solver->problem->slack_bins + 1;

    for (uint32_t j = 0; j < columns; j++) {
        row[j] = pack(solver, solver->choice[waiting * columns + j]);
    }
}

/* More wait than there are rows: as many as have come since the oldest. Taken for fewer they would never become fewer. */
static void
write_more(const struct solver *solver, uint16_t *row)
{
    const struct leat_mdp_pool_problem *problem = solver->problem;
    const uint32_t columns = problem->slack_bins + 1;

    for (uint32_t j = 0; j < columns; j++) {
        const double waited_bins = problem->slack_bins - fmin(j + 1, problem->slack_bins); /* at least */
        const double come = solver->rate * problem->objective_us * waited_bins / problem->slack_bins;
        const double most = fmin(come, solver->queue), waiting = fmax(most, fmin(problem->queue_max + 1, solver->queue));
        row[j] = pack(solver, solver->choice[(uint32_t)waiting * columns + j]);
    }
}

/* The level that is nearest to the middle of the idle counts that a level of the table stands for. */
static uint32_t
level_of_table(const struct solver *solver, uint32_t table_level)
{
    const uint32_t others = solver->problem->worker_count - 1, levels = solver->problem->idle_levels;
    const uint32_t first = (table_level * others + levels - 1) / levels;
    const uint32_t next = ((table_level + 1) * others + levels - 1) / levels;
    const uint32_t last = next > first ? next - 1 : first;
    const double busy = others - 1 - (first + last) / 2.0; /* idle = 2 + first..last */

    return others > 0 && busy > 0 ? (uint32_t)(busy / others * solver->levels + 0.5) : 0;
}

static void
tabulate(struct solver *solver, uint16_t *ret_actions)
{
    const struct leat_mdp_pool_problem *problem = solver->problem;
    const uint32_t columns = problem->slack_bins + 1;

    memset(ret_actions, 0, columns * sizeof(*ret_actions));
    for (uint32_t level = 0; level <= solver->levels; level++) {
        start_by_slack(solver, level);
        hold_by_slack(solver, level);
        for (uint32_t t = 0; t < problem->idle_levels; t++) {
            for (uint32_t waiting = 1; level_of_table(solver, t) == level && waiting <= solver->held; waiting++) {
                const uint32_t row = problem->queue_max + 1 + t * solver->held + waiting;
                write_row(solver, waiting, &ret_actions[row * columns]);
            }
        }
        for (uint32_t waiting = 1; level == solver->levels && waiting <= problem->queue_max; waiting++) {
            write_row(solver, waiting, &ret_actions[waiting * columns]);
        }
    }
    write_more(solver, &ret_actions[(problem->queue_max + 1) * columns]);
}

void
leat_mdp_pool_solve(void *memory, const struct leat_mdp_pool_problem *problem, uint16_t *ret_actions,
                    struct leat_mdp_pool_value *ret_value)
{
    struct solver solver;
    struct arena arena = {.base = memory};
    struct leat_mdp_pool_value value = {.bound_per_us = leat_mdp_pool_bound(problem)};

    LEAT_ASSERT((uintptr_t)memory % 64 == 0);
    lay_out(&solver, problem, &arena);
    LEAT_ASSERT(list_pairs(problem, solver.pairs) == solver.pair_count);
    leat_mdp_pool_iterate(&solver, &value);
    tabulate(&solver, ret_actions);
    if (ret_value != NULL) {
        *ret_value = value;
    }
}

/* ---- The bound --------------------------------------------------------------------------------- */

/*
 * The program mixes two batches at most, one on either side of the time that a query may take. Starting from giving up and
 * from what is most accurate, the batch that is furthest above the line between the two replaces one of them.
 */
double
leat_mdp_pool_bound(const struct leat_mdp_pool_problem *problem)
{
    const double most_us = problem->rate_per_us > 0 ? problem->worker_count / problem->rate_per_us : DBL_MAX;
    double low_us = 0, low = -problem->late_penalty, high_us = DBL_MAX, high = 0;
    double price = 0, line = -DBL_MAX;

    for (;;) {
        double best = line, best_us = 0, best_accuracy = 0;
        for (uint32_t v = 0; v < problem->variant_count; v++) {
            for (uint32_t b = 1; b <= problem->batch_max; b++) {
                const double latency = latency_us(problem, v, b), each_us = latency / b, accuracy = problem->accuracy[v];
                const double value = accuracy - price * each_us;
                const bool shorter = value == best && best_us > 0 && each_us < best_us;
                if (latency <= problem->objective_us && (value > best || shorter)) {
                    best = value;
                    best_us = each_us;
                    best_accuracy = accuracy;
                }
            }
        }
        if (best_us == 0 || best <= line + 1e-15) { /* nothing is above the line */
            return problem->rate_per_us * (high_us == DBL_MAX ? low : low + price * (most_us - low_us));
        }
        if (best_us > most_us) {
            high_us = best_us;
            high = best_accuracy;
        } else if (high_us == DBL_MAX) {
            return problem->rate_per_us * best_accuracy; /* time for the best everywhere */
        } else {
            low_us = best_us;
            low = best_accuracy;
        }
        price = (high - low) / (high_us - low_us);
        line = low - price * low_us;
    }
}
