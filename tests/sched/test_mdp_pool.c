/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     The policy is the best of its chain, the chain is what the header says, and it works as promised where workers
 *          are not pooled: accuracy near the bound, nothing late that need not be.
 * Oracle   Gain: all stationary policies of small chains, built here from the header's words, each solved by Gaussian
 *          elimination. One worker: simulation. Bound: all mixes of two batches, and none. Policies at work: pool_world.
 * Method   Random small problems with a printed seed; the image and text tasks of RAMSIS.
 */
#include <math.h>
#include <string.h>

#include "tests/leat_test.h"
#include "tests/sched/pool_world.h"

static struct ramsis_task ramsis_image, ramsis_text;

static uint64_t random_state;

static double
between(double least, double most)
{
    return least + (most - least) * (double)(leat_test_random(&random_state) >> 11) * 0x1p-53;
}

static uint32_t
below(uint32_t bound)
{
    return (uint32_t)(leat_test_random(&random_state) % bound);
}

/* ---- All stationary policies of a small chain -------------------------------------------------- */

enum { STATES_MAX = 16, ACTIONS_MAX = 12, PAIRS_MAX = 8 };

/* One action of one state. */
struct step {
    double reward, time_us, to[STATES_MAX];
};

struct chain {
    uint32_t states, count[STATES_MAX];
    struct step steps[STATES_MAX][ACTIONS_MAX];
};

static double
arrivals_probability(double mean, double spread, uint32_t k)
{
    if (mean == 0) {
        return k == 0;
    }
    if (spread < 1 + 1e-9) {
        return exp(k * log(mean) - mean - lgamma(k + 1.0));
    }
    const double shape = mean / (spread - 1);
    return exp(lgamma(k + shape) - lgamma(shape) - lgamma(k + 1.0) + k * log(1 - 1 / spread) - shape * log(spread));
}

/* The header's model: levels are all there are, as worker_count - 1 is small. */
struct model {
    const struct leat_mdp_pool_problem *problem;
    double batch_us, top_us;
    uint32_t levels, held, full;
};

static uint32_t
find(const struct model *model, uint32_t waiting, uint32_t level)
{
    if (level < model->levels && waiting <= model->held) {
        return level * (model->held + 1) + waiting;
    }
    return model->full + (waiting < model->problem->queue_max ? waiting : model->problem->queue_max);
}

static void
start_pair(const struct model *model, uint32_t left, uint32_t level, double latency_us, struct step *step)
{
    const struct leat_mdp_pool_problem *p = model->problem;
    const double v_us = model->levels > 0 ? model->top_us * level / model->levels : 0;
    const double to_us = v_us + latency_us / p->worker_count;

    if (level < model->levels && to_us < model->top_us) {
        const double x = to_us / model->top_us * model->levels;
        step->to[find(model, left, (uint32_t)x)] += 1 - (x - floor(x));
        step->to[find(model, left, (uint32_t)x + 1)] += x - floor(x);
        return;
    }
    step->time_us = to_us - model->top_us;
    const double mean = p->rate_per_us * step->time_us, spread = p->dispersion + (p->worker_count > 1 ? mean / 4 : 0);
    for (uint32_t k = 0; k < 400; k++) {
        const double probability = arrivals_probability(mean, spread, k);
        const uint32_t found = left + k, over = found > p->queue_max ? found - p->queue_max : 0;
        step->to[model->full + found - over] += probability;
        step->reward -= probability * over * p->late_penalty;
    }
}

static void
hold(const struct model *model, uint32_t waiting, uint32_t level, struct step *step)
{
    enum { POINTS = 4000, CLUSTERS = 200 };
    const double d = model->problem->dispersion;
    const double rate = model->problem->rate_per_us * (d > 1 ? log(d) / (d - 1) : 1);

    step->time_us = 1 / rate;
    for (uint32_t i = 0; i < POINTS; i++) {
        const double time_us = -log((i + 0.5) / POINTS) / rate, x = level * exp(-2 * time_us / model->batch_us);
        double power = d > 1 ? (1 - 1 / d) / log(d) : 1, left = 1;
        for (uint32_t c = 1; c <= (d > 1 ? CLUSTERS : 1); c++, power *= 1 - 1 / d) {
            const double probability = (c == CLUSTERS ? left : power / c) / POINTS;
            left -= power / c;
            if (waiting + c > model->problem->queue_max) {
                step->reward -= probability * (waiting + c - model->problem->queue_max) * model->problem->late_penalty;
            }
            step->to[find(model, waiting + c, (uint32_t)x)] += probability * (1 - (x - floor(x)));
            if (x > floor(x)) {
                step->to[find(model, waiting + c, (uint32_t)x + 1)] += probability * (x - floor(x));
            }
        }
    }
}

static void
build(const struct model *model, struct chain *chain)
{
    const struct leat_mdp_pool_problem *p = model->problem;

    *chain = (struct chain){.states = model->full + p->queue_max + 1};
    EXPECT(chain->states <= STATES_MAX);
    for (uint32_t level = 0; level <= model->levels; level++) {
        const uint32_t most = level < model->levels ? model->held : p->queue_max;
        for (uint32_t waiting = 0; waiting <= most; waiting++) {
            const uint32_t s = find(model, waiting, level);
            struct step *steps = chain->steps[s];
            uint32_t count = 0;
            if (waiting == 0 || (p->hold && waiting < model->held)) {
                hold(model, waiting, level, &steps[count++]);
            }
            if (waiting > 0) {
                steps[count].reward = -p->late_penalty;
                steps[count++].to[s - 1] = 1;
            }
            const double gap_us = fmin(1 / p->rate_per_us, model->batch_us / p->worker_count);
            const double age_us = (waiting - 1.0) / p->rate_per_us + (level == model->levels ? gap_us / 2 : 0);
            for (uint32_t v = 0; v < p->variant_count; v++) {
                for (uint32_t b = 1; b <= p->batch_max && b <= waiting; b++) {
                    const double latency_us = p->latency_us[v * p->latency_stride + b - 1];
                    if (latency_us <= p->objective_us - age_us) {
                        EXPECT(count < ACTIONS_MAX);
                        steps[count].reward = p->accuracy[v] * b;
                        start_pair(model, waiting - b, level, latency_us, &steps[count++]);
                    }
                }
            }
            chain->count[s] = count;
            for (uint32_t a = 0; a < count; a++) {
                double total = 0;
                for (uint32_t to = 0; to < chain->states; to++) {
                    total += steps[a].to[to];
                }
                EXPECT(fabs(total - 1) < 1e-9);
            }
        }
    }
}

/* Reward over time, where the policy comes in the long run: pi (I - P) = 0, sum 1, by elimination with pivoting. */
static double
gain_of(const struct chain *chain, const uint32_t *policy)
{
    const uint32_t n = chain->states;
    double a[STATES_MAX][STATES_MAX + 1] = {{0}}, reward = 0, time_us = 0;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            a[j][i] = (i == j) - chain->steps[i][policy[i]].to[j];
        }
    }
    for (uint32_t i = 0; i <= n; i++) {
        a[n - 1][i] = 1;
    }
    for (uint32_t j = 0; j < n; j++) {
        uint32_t pivot = j;
        for (uint32_t i = j + 1; i < n; i++) {
            pivot = fabs(a[i][j]) > fabs(a[pivot][j]) ? i : pivot;
        }
        for (uint32_t k = 0; k <= n; k++) {
            const double swap = a[j][k];
            a[j][k] = a[pivot][k];
            a[pivot][k] = swap;
        }
        for (uint32_t i = 0; i < n; i++) {
            const double share = i != j ? a[i][j] / a[j][j] : 0;
            for (uint32_t k = j; share != 0 && k <= n; k++) {
                a[i][k] -= share * a[j][k];
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        reward += a[i][n] / a[i][i] * chain->steps[i][policy[i]].reward;
        time_us += a[i][n] / a[i][i] * chain->steps[i][policy[i]].time_us;
    }
    return reward / time_us;
}

static double
best_gain(const struct chain *chain)
{
    uint32_t policy[STATES_MAX] = {0}, s = 0;
    double best = -1e300;

    while (s < chain->states) {
        best = fmax(best, gain_of(chain, policy));
        for (s = 0; s < chain->states && ++policy[s] == chain->count[s]; s++) {
            policy[s] = 0;
        }
    }
    return best;
}

static void
test_best_of_all_policies(void)
{
    for (int round = 0; round < LEAT_TEST_ROUNDS(60); round++) {
        struct pool_policy policy;
        struct chain chain;
        pool_policy_init(&policy, &ramsis_text, 1 + below(3), 1);
        struct leat_mdp_pool_problem *p = &policy.problem;
        p->variant_count = 1 + below(2);
        p->queue_max = p->worker_count == 1 ? 4 : 3;
        p->model_queue_max = p->queue_max;
        p->batch_max = 2;
        p->held_max = p->worker_count == 3 ? 1 : 2;
        p->idle_levels = 1;
        p->slack_bins = 8;
        p->hold = below(4) > 0;
        p->dispersion = below(2) ? 1 : between(1, 3);
        p->late_penalty = between(0, 2);
        for (uint32_t v = 0; v < p->variant_count; v++) {
            policy.accuracy[v] = between(0.3, 1);
            policy.latency_us[v][0] = between(1000, 40000);
            policy.latency_us[v][1] = policy.latency_us[v][0] * between(1, 2);
        }
        p->rate_per_us = between(0.1, 1.5) * p->worker_count / policy.latency_us[0][0];
        pool_policy_solve(&policy);

        const uint32_t levels = p->worker_count - 1;
        const struct model model = {.problem = p, .batch_us = policy.value.batch_us, .levels = levels, .held = p->held_max,
                                    .top_us = policy.value.batch_us * levels / (2 * p->worker_count),
                                    .full = levels * (p->held_max + 1)};
        build(&model, &chain);
        const double best = best_gain(&chain);
        EXPECT(fabs(policy.value.gain_per_us - best) < 1e-4 * (fabs(best) + p->rate_per_us));
        EXPECT(policy.value.residual < 1e-6 && policy.value.rounds < LEAT_MDP_POOL_ROUNDS_MAX);
        EXPECT(policy.value.gain_per_us <= policy.value.bound_per_us * (1 + 1e-9) + 1e-12);
        const double each = policy.value.accuracy * (1 - policy.value.violation) - p->late_penalty * policy.value.violation;
        EXPECT(fabs(each * p->rate_per_us - policy.value.gain_per_us) < 1e-6 * p->rate_per_us);
        pool_policy_fini(&policy);
    }
}

/* ---- The bound --------------------------------------------------------------------------------- */

static double
bound_by_pairs(const struct leat_mdp_pool_problem *p)
{
    enum { POINTS = 64 };
    double us[POINTS] = {0}, worth[POINTS] = {-p->late_penalty}, best = -p->late_penalty; /* the first is giving up */
    const double most_us = p->worker_count / p->rate_per_us;
    uint32_t count = 1;

    for (uint32_t v = 0; v < p->variant_count; v++) {
        for (uint32_t b = 1; b <= p->batch_max; b++) {
            const double latency_us = p->latency_us[v * p->latency_stride + b - 1];
            if (latency_us <= p->objective_us) {
                us[count] = latency_us / b;
                worth[count++] = p->accuracy[v];
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; us[i] <= most_us && j < count; j++) {
            const double share = us[j] <= most_us ? 1 : (most_us - us[i]) / (us[j] - us[i]);
            best = fmax(best, worth[i] + share * (worth[j] - worth[i]));
        }
    }
    return best * p->rate_per_us;
}

static void
test_bound_by_all_mixes(void)
{
    for (int round = 0; round < LEAT_TEST_ROUNDS(2000); round++) {
        struct pool_policy policy;
        pool_policy_init(&policy, &ramsis_text, 1 + below(20), between(0.1, 4000));
        struct leat_mdp_pool_problem *p = &policy.problem;
        p->variant_count = 1 + below(8);
        p->batch_max = 1 + below(6);
        p->late_penalty = between(0, 3);
        for (uint32_t v = 0; v < p->variant_count; v++) {
            policy.accuracy[v] = between(0, 1);
            for (uint32_t b = 0; b < p->batch_max; b++) {
                policy.latency_us[v][b] = between(1, 150000);
            }
        }
        const double expected = bound_by_pairs(p);
        EXPECT(fabs(leat_mdp_pool_bound(p) - expected) < 1e-9 * (fabs(expected) + p->rate_per_us));
    }
}

/* ---- At work ----------------------------------------------------------------------------------- */

static struct pool_world_result
run(const struct pool_policy *policy, double seconds, uint64_t seed)
{
    const double rate_qps = policy->problem.rate_per_us * 1e6;
    const struct pool_world world = {.policies = policy, .policy_count = 1, .rate_qps = &rate_qps, .rate_count = 1,
                                     .seconds = seconds, .dispersion = policy->problem.dispersion,
                                     .noise = policy->problem.latency_spread, .seed = seed};
    return pool_world_run(&world);
}

/* With one worker and time enough the model is exact. */
static void
test_one_worker_gains_as_simulated(void)
{
    for (int dispersion = 1; dispersion <= 4; dispersion += 3) {
        struct pool_policy policy;
        pool_policy_init(&policy, &ramsis_text, 1, 100);
        policy.problem.objective_us = 1e12;
        policy.problem.dispersion = dispersion;
        policy.problem.variant_count = 4;
        pool_policy_solve(&policy);
        const struct pool_world_result result = run(&policy, 20000, 71);
        const double gain = result.accuracy * (1 - result.violation) - policy.problem.late_penalty * result.violation;
        EXPECT(fabs(gain * policy.problem.rate_per_us / policy.value.gain_per_us - 1) < 2e-3);
        pool_policy_fini(&policy);
    }
}

/* The least share of the bound, over 400, 800 .. 3600 queries a second. */
static const double image_share[9] = {0.999, 0.997, 0.998, 0.991, 0.993, 0.996, 0.997, 0.970, 0.982};
static const double text_share[9] = {0.999, 0.998, 0.997, 0.999, 0.999, 0.999, 0.999, 0.999, 0.999};

static void
test_near_the_bound(void)
{
    for (uint32_t t = 0; t < 2; t++) {
        const struct ramsis_task *task = t == 0 ? &ramsis_image : &ramsis_text;
        for (uint32_t i = 0; i < 9; i++) {
            struct pool_policy policy;
            pool_policy_init(&policy, task, task->worker_count, 400.0 * (i + 1));
            pool_policy_solve(&policy);
            const double bound = policy.value.bound_per_us / policy.problem.rate_per_us;
            const struct pool_world_result result = run(&policy, 20, 1000 + i);
            EXPECT(result.accuracy >= (t == 0 ? image_share : text_share)[i] * bound);
            EXPECT(result.violation <= (t == 0 && i == 8 ? 1e-3 : 0)); /* 3600 of 3811 that the fastest variant sustains */
            pool_policy_fini(&policy);
        }
    }
}

/* 3811 image queries a second are all that can be in time. */
static void
test_overload_gives_up_what_must_be(void)
{
    struct pool_policy policy;
    pool_policy_init(&policy, &ramsis_image, 60, 4000);
    pool_policy_solve(&policy);
    const struct pool_world_result result = run(&policy, 20, 5);
    EXPECT(result.late == 0 && result.violation > 0.04 && result.violation < 0.06 && result.accuracy > 0.57);
    pool_policy_fini(&policy);
}

/* A second at 6800 leaves more waiting than there are rows. Taken for fewer they would be served one by one, for ever. */
static void
test_burst_passes(void)
{
    for (uint32_t t = 0; t < 2; t++) {
        struct pool_policy policy;
        double rate_qps[20];
        pool_policy_init(&policy, t == 0 ? &ramsis_image : &ramsis_text, t == 0 ? 60 : 20, 2800);
        policy.problem.queue_max = 32;
        pool_policy_solve(&policy);
        for (uint32_t s = 0; s < 20; s++) {
            rate_qps[s] = s == 1 ? 6800 : 2800; /* 4000 too many */
        }
        const struct pool_world world = {.policies = &policy, .policy_count = 1, .rate_qps = rate_qps, .rate_count = 20,
                                         .seconds = 20, .dispersion = 1, .seed = 3};
        const struct pool_world_result result = pool_world_run(&world);
        EXPECT(result.late + result.given_up < (t == 0 ? 4200 : 100)); /* text has time for them all */
        EXPECT(result.accuracy > (t == 0 ? 0.71 : 0.74));
        pool_policy_fini(&policy);
    }
}

/*
 * Twice the objective, in which 840 queries come. A model that gives up what comes to a queue of 256 finds no fault with
 * queues that are as long, and serves them one by one, for ever.
 */
static void
test_long_objective(void)
{
    struct pool_policy policy;
    pool_policy_init(&policy, &ramsis_image, 60, 2800);
    policy.problem.objective_us *= 2;
    policy.problem.model_queue_max = 0;
    for (uint32_t v = 0; v < policy.problem.variant_count; v++) { /* batches of more than the task's own objective too */
        memcpy(policy.latency_us[v], ramsis_image.latency_us[v], sizeof(policy.latency_us[v]));
    }
    for (uint32_t i = 0; i < 3; i++) {
        policy.problem.rate_per_us = (2800 + 200 * i) / 1e6;
        pool_policy_solve(&policy);
        const struct pool_world_result result = run(&policy, 10, 40 + i);
        EXPECT(result.violation == 0 && result.accuracy > 0.98 * policy.value.bound_per_us / policy.problem.rate_per_us);
    }
    pool_policy_fini(&policy);
}

static void
test_spread_and_dispersion_are_reckoned_with(void)
{
    struct pool_policy policy;
    pool_policy_init(&policy, &ramsis_image, 60, 2400);
    pool_policy_solve(&policy);
    const double rate_qps = 2400;
    struct pool_world world = {.policies = &policy, .policy_count = 1, .rate_qps = &rate_qps, .rate_count = 1,
                               .seconds = 20, .dispersion = 1, .noise = 0.1, .seed = 9};
    EXPECT(pool_world_run(&world).violation > 0.05); /* it takes every latency for certain */
    const double certain = policy.value.gain_per_us;
    policy.problem.latency_spread = 0.1;
    pool_policy_solve(&policy);
    EXPECT(pool_world_run(&world).violation < 1e-3 && pool_world_run(&world).accuracy > 0.98 * certain / 2400 * 1e6);
    EXPECT(policy.value.gain_per_us < certain);

    policy.problem.latency_spread = 0;
    policy.problem.rate_per_us = 3000e-6;
    pool_policy_solve(&policy);
    const double even = policy.value.gain_per_us;
    const double high_qps = 3000;
    world.rate_qps = &high_qps;
    world.noise = 0;
    world.dispersion = 8;
    const struct pool_world_result poisson = pool_world_run(&world);
    policy.problem.dispersion = 8;
    pool_policy_solve(&policy);
    const struct pool_world_result bursty = pool_world_run(&world);
    EXPECT(policy.value.gain_per_us < even);
    EXPECT(bursty.violation <= poisson.violation + 1e-3 && bursty.accuracy > 0.99 * poisson.accuracy);
    pool_policy_fini(&policy);
}

/* ---- Tables ------------------------------------------------------------------------------------ */

/* Each action exists, ends in time from the beginning of its bin, and takes no more than wait. */
static void
check_table(const struct pool_policy *policy)
{
    const struct leat_mdp_pool_problem *p = &policy->problem;

    for (uint32_t idle = 1; idle <= p->worker_count; idle++) {
        for (uint32_t waiting = 1; waiting <= p->queue_max + 2; waiting++) {
            for (uint32_t j = 0; j <= p->slack_bins; j++) {
                const uint32_t row = leat_mdp_pool_row(p, waiting, idle);
                EXPECT(row > 0 && row < leat_mdp_pool_row_count(p));
                const uint16_t action = policy->actions[row * (p->slack_bins + 1) + j];
                const uint32_t variant = action & 63u, batch = action >> 6;
                EXPECT(batch >= 1 && batch <= waiting);
                if (variant == LEAT_MDP_POOL_HOLD) {
                    EXPECT(p->hold && waiting < p->held_max && j > 0);
                } else if (variant != LEAT_MDP_POOL_GIVE_UP) {
                    EXPECT(variant < p->variant_count && batch <= p->batch_max);
                    EXPECT(policy->latency_us[variant][batch - 1] <= p->objective_us * j / p->slack_bins);
                }
            }
        }
    }
}

static void
test_any_shape(void)
{
    static const uint32_t workers[] = {1, 2, 3, 4, 18, 300};
    for (int round = 0; round < LEAT_TEST_ROUNDS(60); round++) {
        struct pool_policy policy, again;
        for (int r = 0; r < 2; r++) {
            const uint64_t before = random_state;
            struct pool_policy *to = r == 0 ? &policy : &again;
            pool_policy_init(to, below(2) ? &ramsis_image : &ramsis_text, workers[below(6)], 1);
            to->problem.queue_max = 1 + below(80);
            to->problem.model_queue_max = to->problem.queue_max + below(100);
            to->problem.batch_max = 1 + below(to->problem.queue_max < 32 ? to->problem.queue_max : 32);
            to->problem.held_max = 1 + below(to->problem.queue_max < 20 ? to->problem.queue_max : 20);
            to->problem.slack_bins = 1 + below(70);
            to->problem.idle_levels = 1 + below(20);
            to->problem.hold = below(2);
            to->problem.variant_count = 1 + below(to->problem.variant_count);
            to->problem.dispersion = below(2) ? 1 : between(1, 30);
            to->problem.latency_spread = below(2) ? 0 : between(0, 0.3);
            to->problem.rate_per_us = to->problem.worker_count * between(0, 100e-6);
            pool_policy_solve(to);
            random_state = r == 0 ? before : random_state;
        }
        check_table(&policy);
        const size_t bytes = leat_mdp_pool_row_count(&policy.problem) * (policy.problem.slack_bins + 1) * sizeof(uint16_t);
        EXPECT(memcmp(policy.actions, again.actions, bytes) == 0);
        EXPECT(memcmp(&policy.value, &again.value, sizeof(policy.value)) == 0);
        EXPECT(policy.value.residual < 1e-3 && policy.value.violation >= 0 && policy.value.violation <= 1);
        EXPECT(policy.value.gain_per_us <= policy.value.bound_per_us + 1e-9 * policy.problem.rate_per_us);
        pool_policy_fini(&policy);
        pool_policy_fini(&again);
    }
}

/* The action for one query that has just come to idle workers. */
static uint32_t
alone(const struct pool_policy *policy)
{
    const uint32_t row = leat_mdp_pool_row(&policy->problem, 1, policy->problem.worker_count);
    return policy->actions[row * (policy->problem.slack_bins + 1) + policy->problem.slack_bins];
}

static void
test_edges(void)
{
    struct pool_policy policy;
    pool_policy_init(&policy, &ramsis_image, 4, 0);
    pool_policy_solve(&policy);
    EXPECT(alone(&policy) == (6 | 1 << 6)); /* nobody comes: the most accurate one that is in time */
    EXPECT(policy.value.violation < 1e-9 && fabs(policy.value.accuracy - 0.84228) < 1e-3);

    policy.problem.objective_us = 20000; /* no variant has one query in that time */
    policy.problem.rate_per_us = 1e-4;
    pool_policy_solve(&policy);
    check_table(&policy);
    EXPECT(alone(&policy) == (LEAT_MDP_POOL_GIVE_UP | 1 << 6));
    EXPECT(policy.value.violation == 1 && policy.value.accuracy == 0);
    EXPECT(fabs(policy.value.gain_per_us + 2 * 1e-4) < 1e-9 && fabs(policy.value.bound_per_us + 2 * 1e-4) < 1e-9);

    policy.problem.objective_us = 150000;
    policy.problem.variant_count = 1;
    pool_policy_solve(&policy);
    EXPECT(alone(&policy) == (0 | 1 << 6));
    EXPECT(policy.value.accuracy > 0.5797 && policy.value.accuracy < 0.5798 && policy.value.violation < 1e-6);
    pool_policy_fini(&policy);
}

/* Variants that are worse keep their numbers and are not chosen; the order of variants does not matter. */
static void
test_dominated_variants(void)
{
    static const uint32_t places[5] = {7, 2, 9, 0, 4}; /* of text's variants */
    struct pool_policy plain, mixed;
    pool_policy_init(&plain, &ramsis_text, 20, 1600);
    pool_policy_init(&mixed, &ramsis_text, 20, 1600);
    mixed.problem.variant_count = 10;
    for (uint32_t v = 0; v < 10; v++) {
        uint32_t of = 0;
        while (of < 5 && places[of] != v) {
            of++;
        }
        mixed.accuracy[v] = plain.accuracy[of < 5 ? of : 2] - (of < 5 ? 0 : 0.01 * v);
        for (uint32_t b = 0; b < RAMSIS_QUEUE; b++) {
            mixed.latency_us[v][b] = plain.latency_us[of < 5 ? of : 2][b];
        }
    }
    pool_policy_solve(&plain);
    pool_policy_solve(&mixed);
    const uint32_t columns = plain.problem.slack_bins + 1;
    for (uint32_t i = columns; i < leat_mdp_pool_row_count(&plain.problem) * columns; i++) {
        const uint32_t variant = plain.actions[i] & 63u;
        EXPECT(mixed.actions[i] == ((variant < 5 ? places[variant] : variant) | (plain.actions[i] & ~63u)));
    }
    pool_policy_fini(&plain);
    pool_policy_fini(&mixed);
}

static void
test_what_is_no_problem(void)
{
    struct pool_policy policy;
    pool_policy_init(&policy, &ramsis_text, 20, 1600);
    struct leat_mdp_pool_problem good = policy.problem, bad;
    EXPECT(leat_mdp_pool_check(&good) == LEAT_OK);
#define REFUSED(field, value)                                   \
    bad = good;                                                 \
    bad.field = (value);                                        \
    EXPECT(leat_mdp_pool_check(&bad) == LEAT_ERR_INVALID)
    REFUSED(variant_count, 0);
    REFUSED(variant_count, LEAT_MDP_POOL_VARIANTS_MAX + 1);
    REFUSED(worker_count, 0);
    REFUSED(worker_count, LEAT_MDP_POOL_WORKERS_MAX + 1);
    REFUSED(batch_max, 0);
    REFUSED(batch_max, 65);
    REFUSED(latency_stride, 31);
    REFUSED(queue_max, 0);
    REFUSED(queue_max, LEAT_MDP_POOL_QUEUE_MAX + 1);
    REFUSED(model_queue_max, 63);
    REFUSED(model_queue_max, LEAT_MDP_POOL_MODEL_QUEUE_MAX + 1);
    REFUSED(slack_bins, 0);
    REFUSED(slack_bins, LEAT_MDP_POOL_BINS_MAX + 1);
    REFUSED(idle_levels, 0);
    REFUSED(idle_levels, LEAT_MDP_POOL_LEVELS_MAX + 1);
    REFUSED(held_max, 0);
    REFUSED(held_max, LEAT_MDP_POOL_HELD_MAX + 1);
    REFUSED(held_max, 65);
    REFUSED(objective_us, 0);
    REFUSED(objective_us, NAN);
    REFUSED(rate_per_us, -1e-9);
    REFUSED(rate_per_us, INFINITY);
    REFUSED(dispersion, 0.999);
    REFUSED(late_penalty, -1);
    REFUSED(latency_spread, -1);
#undef REFUSED
    policy.accuracy[3] = 1.01;
    EXPECT(leat_mdp_pool_check(&good) == LEAT_ERR_INVALID);
    policy.accuracy[3] = 1;
    policy.latency_us[4][31] = 0;
    EXPECT(leat_mdp_pool_check(&good) == LEAT_ERR_INVALID);
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    ramsis_read("image", &ramsis_image);
    ramsis_read("text", &ramsis_text);
    test_best_of_all_policies();
    test_bound_by_all_mixes();
    test_one_worker_gains_as_simulated();
    test_near_the_bound();
    test_overload_gives_up_what_must_be();
    test_burst_passes();
    test_long_objective();
    test_spread_and_dispersion_are_reckoned_with();
    test_any_shape();
    test_edges();
    test_dominated_variants();
    test_what_is_no_problem();
    return 0;
}
