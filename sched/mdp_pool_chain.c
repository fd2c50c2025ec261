/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mdp_pool_chain.h"

#include <float.h>
#include <string.h>

#define UNEVEN     0.25  /* squared coefficient of variation of the intervals at which workers become free */
#define TAIL       1e-14 /* of the largest probability: where distributions are cut */
#define RETURN     1e-12 /* each step starts over with this probability, so that every policy has one recurrent class */
#define BETTER     1e-9  /* an action replaces another that is worse by more than this */
#define HOME_LEAST 1e-4  /* share of steps at home: the longer the way back, the fewer digits values have */
#define SAME_TIME  1e-4  /* relative: a mean time of a batch that moved by less stands still */
#define MOVES_MAX  30u   /* rounds in which it may move */
#define RATE_LEAST 1e-3  /* queries an objective */

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
level_of(const struct solver *solver, uint32_t state)
{
    return state < solver->full ? state / (solver->held + 1) : solver->levels;
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

/* Adds one action of a state, taken with some probability, to the grid of where it leads and to sums. */
static void
follow(struct solver *solver, uint32_t state, double probability, struct sums *sums)
{
    const uint32_t level = level_of(solver, state), waiting = state - state_of(solver, 0, level);
    const uint32_t action = solver->action[state];
    const double penalty = solver->problem->late_penalty;
    double *grid = solver->grid;

    if (action == HOLD) {
        sums->time_us += probability / solver->cluster_rate;
        for (uint32_t c = 1; c <= solver->cluster_count; c++) {
            for (uint32_t to = 0; to <= level; to++) {
                grid[arrive_at(solver, waiting + c, to)] +=
                    probability * solver->cluster[c - 1] * solver->wait[level * (solver->levels + 1) + to];
            }
            if (waiting + c > solver->queue) {
                const double over = probability * solver->cluster[c - 1] * (waiting + c - solver->queue);
                sums->late += over;
                sums->reward -= over * penalty;
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

void
leat_mdp_pool_value_pair(struct solver *solver, const struct pair *pair, uint32_t level, uint32_t from, uint32_t to,
                         double *ret_values)
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
        const double over = waiting + c > solver->queue ? waiting + c - solver->queue : 0;
        sum += solver->cluster[c - 1] * (found - over * solver->problem->late_penalty);
    }
    return sum;
}

/* ---- Evaluation of a policy -------------------------------------------------------------------- */

/* Rows: from the longest queue with all others busy down, then states that hold with more idle, then home. */
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
    leat_mdp_pool_value_pair(solver, pair, level, left, left, &value);
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
            leat_mdp_pool_value_pair(solver, pair, level, 0, most - pair->batch, solver->result);
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

void
leat_mdp_pool_iterate(struct solver *solver, struct leat_mdp_pool_value *ret_value)
{
    uint32_t home = solver->full;
    bool changed = true;

    begin(solver);
    fill_clusters(solver);
    for (uint32_t round = 1; changed && round <= LEAT_MDP_POOL_ROUNDS_MAX; round++) {
        fill_wait(solver);
        struct sums sums = evaluate(solver, home);
        const bool rare = solver->visits[solver->unknown[home]] < HOME_LEAST;
        home = find_home(solver);
        sums = rare ? evaluate(solver, home) : sums;
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
