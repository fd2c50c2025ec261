/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/pool_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/leat_test.h"

enum { QUEUE = 1 << 20, WINDOW_US = 500000, TICK_US = 1000 };

/* ---- Policies ---------------------------------------------------------------------------------- */

void
pool_policy_init(struct pool_policy *policy, const struct ramsis_task *task, uint32_t worker_count, double rate_qps)
{
    *policy = (struct pool_policy){
        .problem = {.variant_count = task->variant_count, .worker_count = worker_count, .batch_max = RAMSIS_QUEUE,
                    .latency_stride = RAMSIS_QUEUE, .accuracy = policy->accuracy,
                    .latency_us = &policy->latency_us[0][0], .objective_us = task->objective_us,
                    .rate_per_us = rate_qps / 1e6, .dispersion = 1, .late_penalty = 2, .queue_max = 64,
                    .model_queue_max = 256, .slack_bins = 64,
                    .idle_levels = 8, .held_max = 16, .hold = true}};
    for (uint32_t v = 0; v < task->variant_count; v++) {
        policy->accuracy[v] = task->accuracy[v];
        for (uint32_t b = 0; b < RAMSIS_QUEUE; b++) {
            const double latency_us = task->latency_us[v][b];
            policy->latency_us[v][b] = latency_us <= task->objective_us ? latency_us : 1e6;
        }
    }
}

void
pool_policy_solve(struct pool_policy *policy)
{
    EXPECT(leat_mdp_pool_check(&policy->problem) == LEAT_OK);
    const size_t bytes = (leat_mdp_pool_bytes(&policy->problem) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, bytes);
    free(policy->actions);
    policy->actions = calloc((size_t)leat_mdp_pool_row_count(&policy->problem) * (policy->problem.slack_bins + 1),
                             sizeof(uint16_t));
    EXPECT(memory != NULL && policy->actions != NULL);
    memset(memory, 0xa5, bytes);
    leat_mdp_pool_solve(memory, &policy->problem, policy->actions, &policy->value);
    free(memory);
}

void
pool_policy_fini(struct pool_policy *policy)
{
    free(policy->actions);
    policy->actions = NULL;
}

/* ---- World ------------------------------------------------------------------------------------- */

struct state {
    const struct pool_world *world;
    uint64_t random;
    double now_us, next_us;
    uint64_t cluster; /* that come with the next */
    double *arrived_us;
    uint64_t first, end, window; /* of the queue; the oldest arrival within the window */
    double free_us[LEAT_MDP_POOL_WORKERS_MAX];
    double accuracy;
    struct pool_world_result result;
};

static double
uniform(struct state *state)
{
    return (double)(leat_test_random(&state->random) >> 11) * 0x1p-53;
}

static double
exponential(struct state *state)
{
    return -log(1 - uniform(state));
}

/* Clusters of logarithmic size, one query each where there is no dispersion. */
static void
draw_arrival(struct state *state)
{
    const struct pool_world *world = state->world;
    const double rate = world->rate_qps[(uint64_t)(state->now_us / 1e6) % world->rate_count] / 1e6, d = world->dispersion;

    state->cluster = 1;
    state->next_us = state->now_us + exponential(state) / (d > 1 ? rate * log(d) / (d - 1) : rate);
    if (d > 1) {
        const double q = 1 - 1 / d;
        double power = q / log(d), left = uniform(state);
        for (; (left -= power / (double)state->cluster) > 0 && state->cluster < 1000000; power *= q) {
            state->cluster++;
        }
    }
}

static const struct pool_policy *
policy_in_force(struct state *state)
{
    const struct pool_world *world = state->world;
    uint32_t p = 0;

    while (state->window < state->end && state->arrived_us[state->window % QUEUE] < state->now_us - WINDOW_US) {
        state->window++;
    }
    const double rate = (double)(state->end - state->window) / WINDOW_US;
    while (p + 1 < world->policy_count && world->policies[p].problem.rate_per_us < rate) {
        p++;
    }
    return &world->policies[p];
}

static double
normal(struct state *state)
{
    return sqrt(2 * exponential(state)) * cos(6.283185307179586 * uniform(state));
}

/* Asks for a worker until it has a batch; false: it is to hold, or nobody waits. */
static bool
dispatch(struct state *state, const struct pool_policy *policy, uint32_t worker, uint32_t idle)
{
    const struct leat_mdp_pool_problem *problem = &policy->problem;

    for (; state->first < state->end; state->first++) {
        const uint64_t waiting = state->end - state->first;
        const double slack_us = fmax(0, problem->objective_us - (state->now_us - state->arrived_us[state->first % QUEUE]));
        const uint32_t row = leat_mdp_pool_row(problem, (uint32_t)waiting, idle);
        const uint32_t bin = (uint32_t)(slack_us / problem->objective_us * problem->slack_bins);
        const uint16_t action = policy->actions[row * (problem->slack_bins + 1) + bin];
        const uint32_t variant = action & 63u, batch = action >> 6;
        if (variant == LEAT_MDP_POOL_HOLD) {
            return false;
        }
        if (variant == LEAT_MDP_POOL_GIVE_UP) {
            state->result.given_up++;
            continue;
        }
        EXPECT(variant < problem->variant_count && batch >= 1 && batch <= waiting);
        const double told_us = policy->latency_us[variant][batch - 1];
        const double noise = state->world->noise > 0 ? state->world->noise * normal(state) : 0;
        const double takes_us = told_us * fmax(0.5, 1 + noise);
        state->free_us[worker] = state->now_us + takes_us;
        for (uint32_t k = 0; k < batch; k++) {
            const double waited_us = state->now_us - state->arrived_us[state->first++ % QUEUE];
            const bool late = waited_us + takes_us > problem->objective_us;
            state->result.late += late;
            state->result.queries += !late;
            state->accuracy += late ? 0 : problem->accuracy[variant];
        }
        return true;
    }
    return false;
}

static void
dispatch_all(struct state *state, uint32_t workers)
{
    const struct pool_policy *policy = policy_in_force(state);
    uint32_t idle = 0;

    for (uint32_t w = 0; w < workers; w++) {
        idle += state->free_us[w] <= state->now_us;
    }
    for (uint32_t w = 0; w < workers; w++) {
        if (state->free_us[w] <= state->now_us) {
            if (!dispatch(state, policy, w, idle)) {
                return;
            }
            idle--;
        }
    }
}

struct pool_world_result
pool_world_run(const struct pool_world *world)
{
    struct state *state = calloc(1, sizeof(*state));
    const uint32_t workers = world->policies[0].problem.worker_count;
    const double objective_us = world->policies[0].problem.objective_us;

    EXPECT(state != NULL && (state->arrived_us = malloc(QUEUE * sizeof(double))) != NULL);
    state->world = world;
    state->random = world->seed;
    draw_arrival(state);
    for (;;) {
        double next_us = state->first < state->end ? state->now_us + TICK_US : state->next_us;
        next_us = fmin(next_us, state->next_us);
        for (uint32_t w = 0; w < workers; w++) {
            if (state->free_us[w] > state->now_us) {
                next_us = fmin(next_us, state->free_us[w]);
            }
        }
        if (next_us > world->seconds * 1e6) {
            break;
        }
        state->now_us = next_us;
        if (next_us == state->next_us) {
            for (uint64_t k = state->cluster; k > 0; k--) {
                state->arrived_us[state->end++ % QUEUE] = state->now_us;
            }
            EXPECT(state->end - state->first < QUEUE);
            draw_arrival(state);
        }
        dispatch_all(state, workers);
    }
    struct pool_world_result result = state->result;
    for (uint64_t k = state->first; k < state->end; k++) {
        result.late += state->now_us - state->arrived_us[k % QUEUE] > objective_us;
    }
    result.accuracy = result.queries > 0 ? state->accuracy / (double)result.queries : 0;
    result.queries += result.late + result.given_up;
    result.violation = (double)(result.late + result.given_up) / (double)(result.queries > 0 ? result.queries : 1);
    free(state->arrived_us);
    free(state);
    return result;
}
