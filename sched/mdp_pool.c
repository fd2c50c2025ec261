/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp_pool.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define LEVELS     16u   /* of V, at most: more of them change no figure */
#define UNEVEN     0.25  /* squared coefficient of variation of the intervals at which workers become free */
#define TAIL       1e-14 /* of the largest probability: where distributions are cut */
#define RETURN     1e-12 /* each step starts over with this probability, so that every policy has one recurrent class */
#define BETTER     1e-9  /* an action replaces another that is worse by more than this */
#define SAME_TIME  1e-4  /* relative: a mean time of a batch that moved by less stands still */
#define MOVES_MAX  30u   /* rounds in which it may move */
#define RATE_LEAST 1e-3  /* queries an objective */

#define HOLD    (UINT32_MAX - 1) /* as action; others are numbers of pairs */
#define GIVE_UP UINT32_MAX
#define NOWHERE UINT32_MAX

/* A variant and a batch that may be worth running. */
struct pair {
    double latency_us, accuracy;
    uint32_t variant, batch;
};

/* What a row's policy does until its next step. */
struct sums {
    double reward, time_us, accuracy, served, late, batches, busy_us;
};

/*
 * A state is how many wait, n, and a level: V = V0 * level / levels. All but one worker are busy at the last one, where n is
 * 0..queue_max; at the others n is 0..held. State of (n, level): level * (held + 1) + n.
 */
struct solver {
    const struct leat_mdp_pool_problem *problem;
    double rate, workers, cluster_rate, batch_us, gain;
    uint32_t queue, held, levels, full; /* full: state of n = 0 at the last level */
    uint32_t pair_count, states, unknowns, cluster_count, taps_max;
    struct pair *pairs;   /* by rising latency */
    double *value;        /* [states] */
    uint32_t *action;     /* [states] */
    uint32_t *unknown;    /* [states]: row of the state, or NOWHERE where its action takes no time and so needs none */
    uint32_t *state;      /* [unknowns] */
    double *grid;         /* [states] */
    double *visits;       /* [unknowns], of the stationary distribution */
    struct sums *sums;    /* [unknowns] */
    double *reward, *time_us; /* [unknowns]: until a state is left that remains */
    uint32_t *reach;      /* [unknowns]: of the rows before `border`, where the last column before it is */
    double *matrix;       /* [states][states], used as [unknowns][unknowns] */
    double *cluster;      /* [cluster_count]: probability that 1, 2, ... come at once */
    double *wait;         /* [levels + 1][levels + 1]: from level to level until the next arrival */
    double *taps;         /* [taps_max]: a distribution of arrivals */
    double *best;         /* [states] or [queue + 1][bins + 1] */
    uint32_t *choice;     /* as best */
    double *result;       /* [queue + 1] */
    double *held_value;   /* [levels + 1][held + 1][bins + 1] */
};

/* ---- Problem and memory ------------------------------------------------------------------------ */

static bool
in_range(double value, double least, double most)
{
    return value >= least && value <= most; /* no NaN is */
}

enum leat_status
leat_mdp_pool_check(const struct leat_mdp_pool_problem *p)
{
    if (p->variant_count < 1 || p->variant_count > LEAT_MDP_POOL_VARIANTS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u variants; 1 to %u are possible", p->variant_count, LEAT_MDP_POOL_VARIANTS_MAX);
    }
    if (p->worker_count < 1 || p->worker_count > LEAT_MDP_POOL_WORKERS_MAX) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "%u workers; 1 to %u are possible", p->worker_count, LEAT_MDP_POOL_WORKERS_MAX);
    }
    if (p->queue_max < 1 || p->queue_max > LEAT_MDP_POOL_QUEUE_MAX || p->batch_max < 1 || p->batch_max > p->queue_max ||
        p->latency_stride < p->batch_max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "batches of %u (of %u known) in queues of %u; queues may have 1 to %u, and batches no more",
                         p->batch_max, p->latency_stride, p->queue_max, LEAT_MDP_POOL_QUEUE_MAX);
    }
    if (p->slack_bins < 1 || p->slack_bins > LEAT_MDP_POOL_BINS_MAX || p->idle_levels < 1 ||
        p->idle_levels > LEAT_MDP_POOL_LEVELS_MAX || p->held_max < 1 || p->held_max > LEAT_MDP_POOL_HELD_MAX ||
        p->held_max > p->queue_max) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "a table of %u bins, %u levels and %u queries for each is not possible", p->slack_bins,
                         p->idle_levels, p->held_max);
    }
    if (!in_range(p->objective_us, DBL_MIN, 1e15) || !in_range(p->rate_per_us, 0, 1e6) || !in_range(p->dispersion, 1, 1e3) ||
        !in_range(p->late_penalty, 0, 1e6) || !in_range(p->latency_spread, 0, 10)) {
        return LEAT_FAIL(LEAT_ERR_INVALID, "objective %g us, rate %g / us, dispersion %g, penalty %g, spread %g: one is out of its range",
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

    *solver = (struct solver){.problem = problem, .queue = problem->queue_max, .held = problem->held_max,
                              .levels = level_count(problem), .pair_count = list_pairs(problem, NULL)};
    solver->full = solver->levels * (solver->held + 1);
    solver->states = solver->full + solver->queue + 1;
    solver->cluster_count = solver->queue;
    solver->taps_max = 2 * solver->queue + 2;
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

/* ---- Arrivals ---------------------------------------------------------------------------------- */

/* Probabilities of so many arrivals: taps[0] is that of `least`. */
struct arrivals {
    uint32_t least, count;
};

/*
 * In so much time, while no worker is free. Up from the likeliest number and down from it, by ratios of neighbours; none
 * are kept beyond taps_max, which is more than a queue can hold.
 */
static struct arrivals
arrive(const struct solver *solver, double time_us)
{
    const double mean = solver->rate * time_us;
    const double spread = solver->problem->dispersion + (solver->workers > 1 ? UNEVEN * mean : 0); /* variance / mean */
    const bool poisson = spread < 1 + 1e-9;
    const double odds = poisson ? 0 : 1 - 1 / spread, shape = poisson ? 0 : mean / (spread - 1);
    const double mode = floor(poisson ? mean : shape > 1 ? mean * (shape - 1) / shape : 0);
    const uint32_t room = solver->taps_max, middle = mode < room / 2 ? (uint32_t)mode : room / 2;
    double *taps = solver->taps, total = 1;
    struct arrivals arrivals = {middle, 0};

    /* P(k + 1) / P(k) is mean / (k + 1), or odds * (k + shape) / (k + 1). */
    taps[middle] = 1;
    for (double p = 1; arrivals.least > 0; arrivals.least--) {
        const double k = arrivals.least - 1;
        p *= (k + 1) / (poisson ? mean : odds * (k + shape));
        if (p < TAIL) {
            break;
        }
        taps[arrivals.least - 1] = p;
        total += p;
    }
    uint32_t most = middle;
    for (double p = 1; most + 1 < room; most++) {
        p *= (poisson ? mean : odds * (most + shape)) / (most + 1);
        if (p < TAIL) {
            break;
        }
        taps[most + 1] = p;
        total += p;
    }
    arrivals.count = most - arrivals.least + 1;
    for (uint32_t k = 0; k < arrivals.count; k++) {
        taps[k] = taps[arrivals.least + k] / total;
    }
    return arrivals;
}

/* Queries come in clusters, of logarithmic size where they are over-dispersed. */
static void
fill_clusters(struct solver *solver)
{
    const double dispersion = solver->problem->dispersion, q = 1 - 1 / dispersion;
    double power = 1, left = 1;

    solver->cluster_rate = solver->rate;
    if (dispersion > 1 + 1e-9) {
        solver->cluster_rate = solver->rate * log(dispersion) / (dispersion - 1);
        power = q / log(dispersion);
    }
    for (uint32_t c = 1; c <= solver->cluster_count; c++) {
        const double probability = dispersion > 1 + 1e-9 ? power / c : c == 1;
        solver->cluster[c - 1] = c < solver->cluster_count ? probability : left;
        left -= probability;
        power *= q;
        if (left < 1e-12) {
            solver->cluster[c - 1] += left;
            solver->cluster_count = c;
        }
    }
}

/*
 * V falls like exp(-2 t / batch_us) for a time t that is exponential, so V / its start is below y with probability y^a.
 * Weights on levels keep its mean: that on i is the difference of what that function is on average above i and below it.
 */
static void
fill_wait(struct solver *solver)
{
    const double a = solver->cluster_rate * solver->batch_us / 2;
    const uint32_t stride = solver->levels + 1;

    for (uint32_t level = 0; level <= solver->levels; level++) {
        double *weights = &solver->wait[level * stride], below = 0, integral = 0;
        for (uint32_t i = 0; i < level; i++) {
            const double next = pow((i + 1.0) / level, a) * (i + 1) / (a + 1), above = next - integral;
            weights[i] = above - below;
            below = above;
            integral = next;
        }
        weights[level] = 1 - below;
    }
}

/* ---- What an action leads to ------------------------------------------------------------------- */

static uint32_t
state_of(const struct solver *solver, uint32_t waiting, uint32_t level)
{
    return level * (solver->held + 1) + waiting;
}

static uint32_t
level_of(const struct solver *solver, uint32_t state)
{
    return state < solver->full ? state / (solver->held + 1) : solver->levels;
}

static uint32_t
longest(const struct solver *solver, uint32_t level)
{
    return level < solver->levels ? solver->held : solver->queue;
}

/* Where a level has no such queue it counts as found with all others busy. */
static uint32_t
arrive_at(const struct solver *solver, uint32_t waiting, uint32_t level)
{
    if (waiting <= longest(solver, level)) {
        return state_of(solver, waiting, level);
    }
    return solver->full + (waiting < solver->queue ? waiting : solver->queue);
}

/* A batch started at a level: how long no worker is free, or else the level and how far it is to the next. */
struct start {
    double blocked_us;
    uint32_t level;
    double above;
};

static struct start
start_at(const struct solver *solver, const struct pair *pair, uint32_t level)
{
    const double share = pair->latency_us / solver->workers;
    const double top = solver->batch_us * (solver->workers - 1) / (2 * solver->workers);

    if (level == solver->levels) {
        return (struct start){.blocked_us = share};
    }
    const double to = top * level / solver->levels + share;
    if (to >= top) {
        return (struct start){.blocked_us = to - top};
    }
    const double x = to / top * solver->levels;
    return (struct start){.blocked_us = -1, .level = (uint32_t)x, .above = x - floor(x)};
}

/* What the oldest of so many is taken to have waited. */
static double
age_us(const struct solver *solver, uint32_t waiting, uint32_t level)
{
    const double last = level < solver->levels ? 0 : fmin(1 / solver->rate, solver->batch_us / solver->workers) / 2;
    return (waiting - 1) / solver->rate + last;
}

/* Chance that the oldest, and with it all of the batch, is in time; 0 where it is not predicted to be. */
static double
in_time(const struct solver *solver, const struct pair *pair, double slack_us)
{
    const double spread = solver->problem->latency_spread;

    if (pair->latency_us > slack_us) {
        return 0;
    }
    return spread > 0 ? 0.5 * erfc((1 - slack_us / pair->latency_us) / (spread * 1.4142135623730951)) : 1;
}

static double
reward_of(const struct solver *solver, const struct pair *pair, double chance)
{
    return pair->batch * (chance * pair->accuracy - (1 - chance) * solver->problem->late_penalty);
}

/* Adds one action of a state, taken with some probability, to the grid of where it leads and to sums. */
static void
follow(struct solver *solver, uint32_t state, double probability, struct sums *sums)
{
    const uint32_t level = level_of(solver, state), waiting = state - state_of(solver, 0, level), action = solver->action[state];
    const double penalty = solver->problem->late_penalty;
    double *grid = solver->grid;

    if (action == HOLD) {
        sums->time_us += probability / solver->cluster_rate;
        for (uint32_t c = 1; c <= solver->cluster_count; c++) {
            for (uint32_t to = 0; to <= level; to++) {
                grid[arrive_at(solver, waiting + c, to)] +=
                    probability * solver->cluster[c - 1] * solver->wait[level * (solver->levels + 1) + to];
            }
        }
        return;
    }
    if (action == GIVE_UP) {
        sums->late += probability;
        sums->reward -= probability * penalty;
        grid[state - 1] += probability;
        return;
    }
    const struct pair *pair = &solver->pairs[action];
    const uint32_t left = waiting - pair->batch;
    const struct start start = start_at(solver, pair, level);
    const double chance = in_time(solver, pair, solver->problem->objective_us - age_us(solver, waiting, level));
    sums->reward += probability * reward_of(solver, pair, chance);
    sums->accuracy += probability * chance * pair->accuracy * pair->batch;
    sums->served += probability * chance * pair->batch;
    sums->late += probability * (1 - chance) * pair->batch;
    sums->batches += probability;
    sums->busy_us += probability * pair->latency_us;
    if (start.blocked_us < 0) {
        grid[state_of(solver, left, start.level)] += probability * (1 - start.above);
        grid[state_of(solver, left, start.level + 1)] += probability * start.above;
        return;
    }
    const struct arrivals arrivals = arrive(solver, start.blocked_us);
    sums->time_us += probability * start.blocked_us;
    for (uint32_t k = 0; k < arrivals.count; k++) {
        const uint32_t found = left + arrivals.least + k, over = found > solver->queue ? found - solver->queue : 0;
        grid[solver->full + found - over] += probability * solver->taps[k];
        sums->late += probability * solver->taps[k] * over;
        sums->reward -= probability * solver->taps[k] * over * penalty;
    }
}

/* What follows when the pair is started at that level so that from..to queries remain; its own reward is not in it. */
static void
value_pair(struct solver *solver, const struct pair *pair, uint32_t level, uint32_t from, uint32_t to, double *ret_values)
{
    const struct start start = start_at(solver, pair, level);
    const double penalty = solver->problem->late_penalty;

    if (start.blocked_us < 0) {
        const double *low = &solver->value[state_of(solver, 0, start.level)];
        const double *high = &solver->value[state_of(solver, 0, start.level + 1)];
        for (uint32_t left = from; left <= to; left++) {
            ret_values[left - from] = (1 - start.above) * low[left] + start.above * high[left];
        }
        return;
    }
    const struct arrivals arrivals = arrive(solver, start.blocked_us);
    const double *full = &solver->value[solver->full];
    for (uint32_t left = from; left <= to; left++) {
        const uint32_t found = left + arrivals.least, room = found > solver->queue ? 0 : solver->queue - found + 1;
        const uint32_t inside = room < arrivals.count ? room : arrivals.count;
        double sum = -solver->gain * start.blocked_us;
        for (uint32_t k = 0; k < inside; k++) {
            sum += solver->taps[k] * full[found + k];
        }
        for (uint32_t k = inside; k < arrivals.count; k++) {
            sum += solver->taps[k] * (full[solver->queue] - penalty * (found + k - solver->queue));
        }
        ret_values[left - from] = sum;
    }
}

static double
value_hold(const struct solver *solver, uint32_t waiting, uint32_t level)
{
    double sum = -solver->gain / solver->cluster_rate;

    for (uint32_t c = 1; c <= solver->cluster_count; c++) {
        double found = 0;
        for (uint32_t to = 0; to <= level; to++) {
            found += solver->wait[level * (solver->levels + 1) + to] * solver->value[arrive_at(solver, waiting + c, to)];
        }
        sum += solver->cluster[c - 1] * found;
    }
    return sum;
}

/* ---- Evaluation of a policy -------------------------------------------------------------------- */

/* Rows: from the longest queue with all others busy down, then states that hold with more idle, the one to return to last. */
static uint32_t
number_unknowns(struct solver *solver, uint32_t home)
{
    uint32_t count = 0;

    for (uint32_t s = solver->states; s-- > 0;) {
        solver->unknown[s] = NOWHERE;
        if (s != home && (s >= solver->full || solver->action[s] == HOLD)) {
            solver->unknown[s] = count;
            solver->state[count++] = s;
        }
    }
    solver->unknown[home] = count;
    solver->state[count++] = home;
    solver->unknowns = count;
    const uint32_t full_count = solver->queue + 1;
    return home >= solver->full ? full_count - 1 : full_count;
}

static void
build_row(struct solver *solver, uint32_t row)
{
    double *probabilities = &solver->matrix[(size_t)row * solver->unknowns], *grid = solver->grid;
    struct sums *sums = &solver->sums[row];

    *sums = (struct sums){0};
    memset(probabilities, 0, solver->unknowns * sizeof(*probabilities));
    memset(grid, 0, solver->states * sizeof(*grid));
    follow(solver, solver->state[row], 1, sums);
    if (solver->state[row] < solver->full || solver->action[solver->state[row]] == HOLD) {
        /* Actions that take no time lead to shorter queues. */
        for (uint32_t waiting = solver->held; waiting > 0; waiting--) {
            for (uint32_t level = 0; level < solver->levels; level++) {
                const uint32_t s = state_of(solver, waiting, level);
                if (solver->unknown[s] == NOWHERE && grid[s] != 0) {
                    follow(solver, s, grid[s], sums);
                    grid[s] = 0;
                }
            }
        }
    }
    for (uint32_t u = 0; u < solver->unknowns; u++) {
        probabilities[u] = grid[solver->state[u]];
    }
    probabilities[solver->unknowns - 1] += RETURN;
    solver->reward[row] = sums->reward;
    solver->time_us[row] = sums->time_us;
}

/* Removes states one by one, the way of those that are left going through them; then gain, values and visits follow. */
static void
eliminate(struct solver *solver, uint32_t border)
{
    const uint32_t count = solver->unknowns;

    for (uint32_t i = 0; i < count; i++) {
        const double *row = &solver->matrix[(size_t)i * count];
        uint32_t last = border;
        while (last > 0 && row[last - 1] == 0) {
            last--;
        }
        solver->reach[i] = last;
    }
    for (uint32_t j = 0; j + 1 < count; j++) {
        const double *from = &solver->matrix[(size_t)j * count];
        const uint32_t reach = j < border ? solver->reach[j] : j, rest = j < border ? border : j + 1;
        double leave = 0;
        for (uint32_t k = j + 1; k < reach; k++) {
            leave += from[k];
        }
        for (uint32_t k = rest; k < count; k++) {
            leave += from[k];
        }
        solver->visits[j] = leave;
        for (uint32_t i = j + 1; i < count; i++) {
            double *to = &solver->matrix[(size_t)i * count];
            if (to[j] == 0) {
                continue;
            }
            const double share = to[j] / leave;
            to[j] = share;
            for (uint32_t k = j + 1; k < reach; k++) {
                to[k] += share * from[k];
            }
            for (uint32_t k = rest; k < count; k++) {
                to[k] += share * from[k];
            }
            if (reach > solver->reach[i]) {
                solver->reach[i] = reach;
            }
            solver->reward[i] += share * solver->reward[j];
            solver->time_us[i] += share * solver->time_us[j];
        }
    }
}

/* Value of a state whose action takes no time, or ends with the next worker that is free; those it leads to have theirs. */
static double
value_action(struct solver *solver, uint32_t state)
{
    const uint32_t level = level_of(solver, state);
    double value;

    if (solver->action[state] == GIVE_UP) {
        return solver->value[state - 1] - solver->problem->late_penalty;
    }
    const struct pair *pair = &solver->pairs[solver->action[state]];
    const uint32_t waiting = state - state_of(solver, 0, level), left = waiting - pair->batch;
    const double slack_us = solver->problem->objective_us - age_us(solver, waiting, level);
    value_pair(solver, pair, level, left, left, &value);
    return value + reward_of(solver, pair, in_time(solver, pair, slack_us));
}

/* Sums of the policy a step, and its gain, values and visits. */
static struct sums
evaluate(struct solver *solver, uint32_t home)
{
    const uint32_t border = number_unknowns(solver, home), count = solver->unknowns;
    double total = 0;
    struct sums all = {0};

    for (uint32_t row = 0; row < count; row++) {
        build_row(solver, row);
    }
    eliminate(solver, border);
    solver->gain = solver->reward[count - 1] / solver->time_us[count - 1];
    solver->value[home] = 0;
    for (uint32_t u = count - 1; u-- > 0;) {
        const double *row = &solver->matrix[(size_t)u * count];
        double sum = solver->reward[u] - solver->gain * solver->time_us[u];
        for (uint32_t k = u + 1; k < count; k++) {
            sum += row[k] * solver->value[solver->state[k]];
        }
        solver->value[solver->state[u]] = sum / solver->visits[u];
    }
    for (uint32_t waiting = 1; waiting <= solver->held; waiting++) {
        for (uint32_t level = solver->levels; level-- > 0;) {
            const uint32_t s = state_of(solver, waiting, level);
            if (solver->unknown[s] == NOWHERE) {
                solver->value[s] = value_action(solver, s);
            }
        }
    }

    memset(solver->visits, 0, count * sizeof(*solver->visits));
    solver->visits[count - 1] = 1;
    for (uint32_t i = count; i-- > 0;) { /* all that leads to row i from later ones is counted */
        const double *row = &solver->matrix[(size_t)i * count];
        for (uint32_t j = 0; j < i; j++) {
            solver->visits[j] += solver->visits[i] * row[j];
        }
        total += solver->visits[i];
    }
    for (uint32_t u = 0; u < count; u++) {
        const struct sums *own = &solver->sums[u];
        const double share = solver->visits[u] /= total;
        all.reward += share * own->reward;
        all.time_us += share * own->time_us;
        all.accuracy += share * own->accuracy;
        all.served += share * own->served;
        all.late += share * own->late;
        all.batches += share * own->batches;
        all.busy_us += share * own->busy_us;
    }
    return all;
}

/* ---- Policy iteration -------------------------------------------------------------------------- */

static bool
may_hold(const struct solver *solver, uint32_t waiting)
{
    return waiting == 0 || (solver->problem->hold && waiting < solver->held);
}

static void
offer(struct solver *solver, uint32_t at, double value, uint32_t action)
{
    if (value > solver->best[at]) {
        solver->best[at] = value;
        solver->choice[at] = action;
    }
}

/* Replaces actions by better ones; was there any? *ret_most is by how much the best step beats the policy's. */
static bool
improve(struct solver *solver, double *ret_most)
{
    const struct leat_mdp_pool_problem *problem = solver->problem;
    bool changed = false;

    *ret_most = 0;
    for (uint32_t s = 0; s < solver->states; s++) {
        const uint32_t level = level_of(solver, s), waiting = s - state_of(solver, 0, level);
        solver->best[s] = -DBL_MAX;
        if (may_hold(solver, waiting)) {
            offer(solver, s, value_hold(solver, waiting, level), HOLD);
        }
        if (waiting > 0) {
            offer(solver, s, solver->value[s - 1] - problem->late_penalty, GIVE_UP);
        }
    }
    for (uint32_t level = 0; level <= solver->levels; level++) {
        for (uint32_t p = 0; p < solver->pair_count; p++) {
            const struct pair *pair = &solver->pairs[p];
            uint32_t most = longest(solver, level);
            while (most >= pair->batch && pair->latency_us > problem->objective_us - age_us(solver, most, level)) {
                most--;
            }
            if (most < pair->batch) {
                continue;
            }
            value_pair(solver, pair, level, 0, most - pair->batch, solver->result);
            for (uint32_t waiting = pair->batch; waiting <= most; waiting++) {
                const double chance = in_time(solver, pair, problem->objective_us - age_us(solver, waiting, level));
                const double value = solver->result[waiting - pair->batch] + reward_of(solver, pair, chance);
                offer(solver, state_of(solver, waiting, level), value, p);
            }
        }
    }
    for (uint32_t s = 0; s < solver->states; s++) {
        const double gained = solver->best[s] - solver->value[s];
        *ret_most = gained > *ret_most ? gained : *ret_most;
        if (gained > BETTER * (1 + fabs(solver->value[s])) && solver->choice[s] != solver->action[s]) {
            solver->action[s] = solver->choice[s];
            changed = true;
        }
    }
    return changed;
}

/* The largest throughput that ends in time, everywhere; its time is the first guess of a mean. */
static void
begin(struct solver *solver)
{
    const struct leat_mdp_pool_problem *problem = solver->problem;
    double most = 0;

    solver->workers = problem->worker_count;
    solver->rate = fmax(problem->rate_per_us, RATE_LEAST / problem->objective_us);
    solver->batch_us = problem->objective_us;
    for (uint32_t p = 0; p < solver->pair_count; p++) {
        const struct pair *pair = &solver->pairs[p];
        if (pair->batch / pair->latency_us > most) {
            most = pair->batch / pair->latency_us;
            solver->batch_us = pair->latency_us;
        }
    }
    for (uint32_t s = 0; s < solver->states; s++) {
        const uint32_t level = level_of(solver, s), waiting = s - state_of(solver, 0, level);
        double best = 0;
        solver->action[s] = waiting == 0 ? HOLD : GIVE_UP;
        for (uint32_t p = 0; p < solver->pair_count; p++) {
            const struct pair *pair = &solver->pairs[p];
            if (pair->batch <= waiting && pair->latency_us <= problem->objective_us - age_us(solver, waiting, level) &&
                pair->batch / pair->latency_us > best) {
                best = pair->batch / pair->latency_us;
                solver->action[s] = p;
            }
        }
    }
}

/* Where the policy is most often, of the states that never do without a row. */
static uint32_t
find_home(const struct solver *solver)
{
    uint32_t home = solver->full;
    double most = -1;

    for (uint32_t u = 0; u < solver->unknowns; u++) {
        const uint32_t s = solver->state[u];
        if ((s >= solver->full || s % (solver->held + 1) == 0) && solver->visits[u] > most) {
            most = solver->visits[u];
            home = s;
        }
    }
    return home;
}

static void
iterate(struct solver *solver, struct leat_mdp_pool_value *ret_value)
{
    uint32_t home = solver->full;
    bool changed = true;

    for (uint32_t round = 1; changed && round <= LEAT_MDP_POOL_ROUNDS_MAX; round++) {
        fill_wait(solver);
        const struct sums sums = evaluate(solver, home);
        home = find_home(solver);
        changed = improve(solver, &ret_value->residual);
        ret_value->accuracy = sums.served > 0 ? sums.accuracy / sums.served : 0;
        ret_value->violation = sums.late / (sums.served + sums.late);
        ret_value->gain_per_us = solver->gain;
        ret_value->batch_us = solver->batch_us;
        ret_value->rounds = round;
        if (sums.batches > 0 && round <= MOVES_MAX) {
            const double mean_us = sums.busy_us / sums.batches;
            changed = changed || fabs(mean_us - solver->batch_us) > SAME_TIME * solver->batch_us;
            solver->batch_us = changed ? mean_us : solver->batch_us;
        }
    }
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
            solver->best[waiting * columns + j] = solver->value[state_of(solver, waiting - 1, level)] - problem->late_penalty;
            solver->choice[waiting * columns + j] = GIVE_UP;
        }
    }
    for (uint32_t p = 0; p < solver->pair_count; p++) {
        const struct pair *pair = &solver->pairs[p];
        if (pair->batch > most) {
            continue;
        }
        value_pair(solver, pair, level, 0, most - pair->batch, solver->result);
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

/*
 * Holding in bin j until a query comes or the slack is that of bin j - 1, whichever is first; levels below and shorter slacks
 * have their values, and so have longer queues in this bin.
 */
static double
value_hold_by_slack(const struct solver *solver, uint32_t waiting, uint32_t level, uint32_t bin)
{
    const uint32_t columns = solver->problem->slack_bins + 1, plane = (solver->held + 1) * columns;
    const double bin_us = solver->problem->objective_us / solver->problem->slack_bins;
    const double mean = solver->cluster_rate * bin_us, none = exp(-mean), come = 1 - none;
    const double when = mean > 1e-6 ? 1 / mean - none / come : 0.5; /* where in the bin's time a query comes, if one does */
    const double moves[2] = {level * exp(-2 * when * bin_us / solver->batch_us), level * exp(-2 * bin_us / solver->batch_us)};
    double value = -solver->gain * come / solver->cluster_rate;

    for (uint32_t nobody = 0; nobody < 2; nobody++) {
        const uint32_t low = (uint32_t)moves[nobody] < level ? (uint32_t)moves[nobody] : level, high = low < level ? low + 1 : low;
        const double above = moves[nobody] - low;
        const double *at[2] = {&solver->held_value[low * plane], &solver->held_value[high * plane]};
        if (nobody) {
            const uint32_t k = waiting * columns + bin - 1;
            value += none * ((1 - above) * at[0][k] + above * at[1][k]);
            continue;
        }
        for (uint32_t c = 1; c <= solver->cluster_count; c++) {
            const uint32_t found = waiting + c < solver->held ? waiting + c : solver->held, k = found * columns + bin;
            const double now = (1 - above) * at[0][k] + above * at[1][k], later = (1 - above) * at[0][k - 1] + above * at[1][k - 1];
            value += come * solver->cluster[c - 1] * ((1 - when) * now + when * later);
        }
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

/* The level that is nearest to the middle of the idle counts that a level of the table stands for. */
static uint32_t
level_of_table(const struct solver *solver, uint32_t table_level)
{
    const uint32_t others = solver->problem->worker_count - 1, levels = solver->problem->idle_levels;
    const uint32_t first = (table_level * others + levels - 1) / levels, next = ((table_level + 1) * others + levels - 1) / levels;
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
                const uint32_t row = solver->queue + 1 + t * solver->held + waiting;
                write_row(solver, waiting, &ret_actions[row * columns]);
            }
        }
        for (uint32_t waiting = 1; level == solver->levels && waiting <= solver->queue + 1; waiting++) {
            write_row(solver, waiting < solver->queue ? waiting : solver->queue, &ret_actions[waiting * columns]);
        }
    }
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
    begin(&solver);
    fill_clusters(&solver);
    iterate(&solver, &value);
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
                if (latency <= problem->objective_us && (value > best || (value == best && best_us > 0 && each_us < best_us))) {
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
