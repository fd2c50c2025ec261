/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What a block says is what the solvers say, state by state, and it says the same of how well that does.
 * Method   Small random problems, solved directly and into a block. A grid by latency is compared at slacks within bins.
 */
#include <math.h>
#include <string.h>

#include "base/align.h"
#include "sched/mdp_pool.h"
#include "sched/policy_solve.h"
#include "tests/leat_test.h"

enum { VARIANTS = 4, ROUNDS = LEAT_TEST_ROUNDS(12), ITEMS_MAX = 16, RUNGS = 3 };

static uint64_t random_state;
static const char *const names[VARIANTS] = {"a", "b", "c", "d"};
static double accuracy[VARIANTS], latency_us[VARIANTS * ITEMS_MAX];

static uint64_t
below(uint64_t bound)
{
    return leat_test_random(&random_state) % bound;
}

static void *
memory_of(size_t bytes)
{
    void *memory = aligned_alloc(64, leat_round_up(bytes, 64));
    EXPECT(bytes < SIZE_MAX / 2 && memory != NULL);
    return memory;
}

/* Slower variants are more accurate, larger batches longer. */
static struct leat_policy_problem
random_problem(enum leat_policy_mode mode)
{
    const uint32_t queue_max = 2 + (uint32_t)below(6);
    struct leat_policy_problem problem = {
        .mode = mode,
        .variant_count = 1 + (uint32_t)below(VARIANTS),
        .worker_count = 1 + (uint32_t)below(5),
        .latency_items = mode == LEAT_POLICY_LEAT ? 1 + (uint32_t)below(queue_max) : queue_max + 1,
        .names = names,
        .accuracy = accuracy,
        .latency_us = latency_us,
        .objective_ns = 1000000 * (50 + below(100)),
        .dispersion = 1 + (double)below(2) / 2,
        .late_penalty = (double)below(3),
        .queue_max = queue_max,
        .slack_bins = 2 + (uint32_t)below(20),
        .drops_late = mode == LEAT_POLICY_DEALT && below(2) == 0,
        .grid = below(2) == 0 ? LEAT_MDP_FIXED : LEAT_MDP_BY_LATENCY,
        .batching = (enum leat_mdp_batching)below(3),
        .split = below(3) == 0 ? LEAT_MDP_SHORTEST_QUEUE : LEAT_MDP_ROUND_ROBIN,
        .idle_levels = 1 + (uint32_t)below(4),
        .held_max = 1 + (uint32_t)below(2),
        .model_queue_max = queue_max + (uint32_t)below(20),
        .hold = below(2) == 0,
        .latency_spread = (double)below(3) / 50,
    };
    for (uint32_t v = 0; v < problem.variant_count; v++) {
        accuracy[v] = 0.5 + 0.1 * v;
        for (uint32_t i = 0; i < problem.latency_items; i++) {
            latency_us[v * problem.latency_items + i] = 1e4 * (v + 1) + 5e3 * (v + 1) * i + (double)below(100);
        }
    }
    return problem;
}

static uint32_t
rounded(double value, double unit)
{
    return (uint32_t)(value * unit + 0.5);
}

static void
expect_queue(const struct leat_policy_problem *problem, const struct leat_policy *policy, uint32_t r)
{
    static struct leat_mdp_action actions[ITEMS_MAX * LEAT_MDP_BINS_MAX];
    static double slack_us[LEAT_MDP_BINS_MAX];
    const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
    const struct leat_mdp_problem own = leat_policy_queue_problem(problem, rung->rate_qps);
    const uint32_t bins = leat_mdp_bin_count(&own), columns = problem->slack_bins + 1;
    void *memory = memory_of(leat_mdp_bytes(&own, NULL, 1));
    struct leat_mdp *mdp = leat_mdp_init(memory, &own, NULL, 1);
    struct leat_mdp_value value;

    leat_mdp_build(mdp, 0);
    leat_mdp_solve(mdp, problem->mode == LEAT_POLICY_PAPER ? LEAT_MDP_PAPER : LEAT_MDP_LEAT, actions, NULL);
    EXPECT(leat_mdp_evaluate(mdp, actions, &value) == LEAT_OK);
    leat_mdp_slacks(&own, slack_us);
    for (uint32_t n = 1; n <= problem->queue_max; n++) {
        for (uint32_t bin = 0; bin < columns; bin++) {
            uint32_t j = bins - 1;
            while (j > 0 && slack_us[j] > own.objective_us * bin / problem->slack_bins * (1 + 1e-12)) {
                j--;
            }
            const struct leat_mdp_action want = actions[(n - 1) * bins + j];
            const struct leat_policy_action got = leat_policy_unpack(leat_policy_actions(policy, r)[n * columns + bin]);
            EXPECT(got.variant == (want.variant == LEAT_MDP_DROP ? LEAT_POLICY_GIVE_UP : want.variant));
            EXPECT(got.items == want.batch);
        }
    }
    const struct leat_policy_action full =
        leat_policy_unpack(leat_policy_actions(policy, r)[(problem->queue_max + 1) * columns + below(columns)]);
    EXPECT(problem->drops_late ? full.variant == LEAT_POLICY_GIVE_UP && full.items == 1
                               : full.variant == 0 && full.items == LEAT_POLICY_ALL);
    EXPECT(rung->accuracy_ppm == rounded(value.accuracy, 1e6) && rung->violation_ppb == rounded(value.violation, 1e9));
    const double gain = (1 - value.violation) * value.accuracy - value.violation * problem->late_penalty;
    EXPECT(fabs(rung->gain_ppm - gain * 1e6) <= 0.51);
    free(memory);
}

static struct leat_mdp_pool_problem
pool_problem(const struct leat_policy_problem *problem, uint32_t rate_qps)
{
    return (struct leat_mdp_pool_problem){.variant_count = problem->variant_count,
                                          .worker_count = problem->worker_count,
                                          .batch_max = problem->latency_items,
                                          .latency_stride = problem->latency_items,
                                          .accuracy = accuracy,
                                          .latency_us = latency_us,
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

static void
expect_pool(const struct leat_policy_problem *problem, const struct leat_policy *policy, uint32_t r)
{
    static uint16_t actions[4096];
    const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
    struct leat_mdp_pool_problem own = pool_problem(problem, rung->rate_qps);
    const uint32_t columns = problem->slack_bins + 1;
    void *memory = memory_of(leat_mdp_pool_bytes(&own));
    struct leat_policy_lookup lookup;
    struct leat_mdp_pool_value value;

    double best = 0, most_qps = 0; /* nobody is held where all can have it, nor where it is too busy */
    for (uint32_t v = 0; v < problem->variant_count; v++) {
        const bool in_time = latency_us[v * problem->latency_items] <= own.objective_us;
        best = in_time && accuracy[v] > best ? accuracy[v] : best;
        for (uint32_t items = 1; items <= problem->latency_items; items++) {
            const double us = latency_us[v * problem->latency_items + items - 1], qps = items / us * 1e6 * problem->worker_count;
            most_qps = us <= own.objective_us && qps > most_qps ? qps : most_qps;
        }
    }
    own.hold = own.hold && rung->rate_qps <= 0.9 * most_qps && leat_mdp_pool_bound(&own) / own.rate_per_us < best - 1e-9;
    EXPECT(leat_mdp_pool_row_count(&own) == leat_policy_row_count(policy));
    EXPECT(leat_mdp_pool_row_count(&own) * columns <= LEAT_COUNT_OF(actions));
    leat_mdp_pool_solve(memory, &own, actions, &value);
    free(memory);
    leat_policy_lookup_init(&lookup, policy, 0);
    leat_policy_follow(&lookup, rung->rate_qps);
    EXPECT(lookup.rung == r);
    for (uint32_t n = 1; n <= problem->queue_max + 2; n++) { /* by look-ups, where sched/mdp_pool.h says that it is */
        for (uint32_t idle = 1; idle <= problem->worker_count; idle++) {
            for (uint32_t bin = 0; bin < columns; bin++) {
                const uint64_t slack_ns = (bin * problem->objective_ns + problem->slack_bins - 1) / problem->slack_bins;
                const struct leat_policy_action got = leat_policy_action(&lookup, n, idle, slack_ns);
                const uint16_t want = actions[leat_mdp_pool_row(&own, n, idle) * columns + bin];
                EXPECT(leat_policy_pack(got) == want);
            }
        }
    }
    EXPECT(rung->accuracy_ppm == rounded(value.accuracy, 1e6) && rung->violation_ppb == rounded(value.violation, 1e9));
    EXPECT(fabs(rung->gain_ppm - value.gain_per_us / own.rate_per_us * 1e6) <= 0.51);
}

static void
test_blocks(void)
{
    for (int round = 0; round < 3 * ROUNDS; round++) {
        const struct leat_policy_problem problem = random_problem((enum leat_policy_mode)(round % 3));
        const uint32_t base_qps = 5 + (uint32_t)below(50), rates_qps[RUNGS] = {base_qps, 2 * base_qps, 9 * base_qps};
        struct leat_policy *policy;

        EXPECT(leat_policy_problem_check(&problem, RUNGS) == LEAT_OK);
        void *block = memory_of(leat_policy_problem_bytes(&problem, RUNGS));
        EXPECT(leat_policy_begin(block, &problem, rates_qps, RUNGS, &policy) == LEAT_OK);
        EXPECT(leat_policy_seal(policy) == LEAT_ERR_PROTO); /* nothing is solved yet */
        for (uint32_t r = RUNGS; r-- > 0;) {
            void *memory = memory_of(leat_policy_solve_bytes(&problem, rates_qps[r]));
            leat_policy_solve(memory, &problem, policy, r);
            free(memory);
        }
        EXPECT(leat_policy_seal(policy) == LEAT_OK);
        EXPECT(policy->kind == (problem.mode == LEAT_POLICY_LEAT ? LEAT_POLICY_POOL : LEAT_POLICY_QUEUE));
        EXPECT(policy->drops_late == problem.drops_late && policy->worker_count == problem.worker_count);
        EXPECT(policy->dispersion_permille == rounded(problem.dispersion, 1000));
        EXPECT(policy->late_penalty_permille == rounded(problem.late_penalty, 1000));
        for (uint32_t v = 0; v < problem.variant_count; v++) {
            EXPECT(strcmp(leat_policy_variant(policy, v)->name, names[v]) == 0);
            EXPECT(leat_policy_variant(policy, v)->accuracy_ppm == rounded(accuracy[v], 1e6));
            for (uint32_t i = 0; i < problem.latency_items; i++) {
                const double ns = latency_us[v * problem.latency_items + i] * 1e3;
                EXPECT(fabs((double)leat_policy_latency_ns(policy, v)[i] - ns) <= 0.51);
            }
        }
        for (uint32_t r = 0; r < RUNGS; r++) {
            const struct leat_mdp_pool_problem pooled = pool_problem(&problem, rates_qps[r]);
            const struct leat_policy_rung *rung = leat_policy_rung(policy, r);
            EXPECT(rung->rate_qps == rates_qps[r]);
            EXPECT(fabs(rung->bound_ppm - leat_mdp_pool_bound(&pooled) / pooled.rate_per_us * 1e6) <= 0.51);
            if (problem.mode == LEAT_POLICY_LEAT) {
                expect_pool(&problem, policy, r);
            } else {
                expect_queue(&problem, policy, r);
            }
        }
        free(block);
    }
}

static void
test_refusals(void)
{
    struct leat_policy_problem problem = random_problem(LEAT_POLICY_PAPER);
    const struct leat_policy_problem good = problem;
    const uint32_t rate_qps = 1;
    struct leat_policy *policy = NULL;

    problem.dispersion = 0.99;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID &&
           strstr(leat_error_text(), "dispersion of 0.99") != NULL);
    problem = good;
    problem.late_penalty = -1;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID &&
           strstr(leat_error_text(), "penalty of -1") != NULL);
    problem = good;
    problem.latency_spread = 11;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID && strstr(leat_error_text(), "spread of 11") != NULL);
    problem = good;
    problem.latency_items--;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID && strstr(leat_error_text(), "one more") != NULL);
    problem = good;
    problem.objective_ns = 10;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID && strstr(leat_error_text(), "10 ns") != NULL);
    problem = good;
    EXPECT(leat_policy_problem_check(&problem, LEAT_POLICY_RUNGS_MAX + 1) == LEAT_ERR_INVALID);
    accuracy[0] = 1.5;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_ERR_INVALID);
    accuracy[0] = 0.5;
    EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_OK);

    problem.names = (const char *const[VARIANTS]){"", "b", "c", "d"};
    void *block = memory_of(leat_policy_problem_bytes(&problem, 1));
    EXPECT(leat_policy_begin(block, &problem, &rate_qps, 1, &policy) == LEAT_ERR_INVALID && policy == NULL);
    free(block);
}

/* Where very many come within an objective they are counted in groups: much sooner solved, and about as good. */
static void
test_groups(void)
{
    enum { FAST = 3, ITEMS = 32, LOADS = 3 };
    static const char *const fast_names[FAST] = {"quick", "fair", "good"};
    static const double fast_accuracy[FAST] = {0.5, 0.8, 0.9};
    static const uint32_t rates_qps[LOADS] = {16000, 24000, 40000};
    static double fast_us[FAST * ITEMS];
    struct leat_policy_rung rungs[2][LOADS];

    for (uint32_t v = 0; v < FAST; v++) {
        for (uint32_t items = 1; items <= ITEMS; items++) {
            fast_us[v * ITEMS + items - 1] = 50 + (20u << v) * items; /* 20, 40 and 80 us an item */
        }
    }
    for (uint32_t grouped = 0; grouped < 2; grouped++) {
        const struct leat_policy_problem problem = {.mode = LEAT_POLICY_LEAT,
                                                    .variant_count = FAST,
                                                    .worker_count = 2,
                                                    .latency_items = ITEMS,
                                                    .names = fast_names,
                                                    .accuracy = fast_accuracy,
                                                    .latency_us = fast_us,
                                                    .objective_ns = 40000000,
                                                    .dispersion = 1,
                                                    .late_penalty = 2,
                                                    .queue_max = 64,
                                                    .model_queue_max = grouped ? 0 : 1600,
                                                    .slack_bins = 32,
                                                    .idle_levels = 1,
                                                    .held_max = 8,
                                                    .hold = true};
        struct leat_policy *policy;
        EXPECT(leat_policy_problem_check(&problem, LOADS) == LEAT_OK);
        void *made = memory_of(leat_policy_problem_bytes(&problem, LOADS));
        EXPECT(leat_policy_begin(made, &problem, rates_qps, LOADS, &policy) == LEAT_OK);
        for (uint32_t r = 0; r < LOADS; r++) {
            void *memory = memory_of(leat_policy_solve_bytes(&problem, rates_qps[r]));
            leat_policy_solve(memory, &problem, policy, r);
            rungs[grouped][r] = *leat_policy_rung(policy, r);
            free(memory);
        }
        EXPECT(leat_policy_seal(policy) == LEAT_OK); /* each action is one */
        free(made);
    }
    for (uint32_t r = 0; r < LOADS; r++) {
        printf("%u queries/s: gain %d ppm one by one, %d in groups, at most %u\n", rates_qps[r], rungs[0][r].gain_ppm,
               rungs[1][r].gain_ppm, rungs[1][r].bound_ppm);
        EXPECT(rungs[0][r].bound_ppm == rungs[1][r].bound_ppm);
        EXPECT(rungs[1][r].gain_ppm > rungs[0][r].gain_ppm - 15000 && rungs[1][r].gain_ppm <= (int32_t)rungs[1][r].bound_ppm);
    }
}

/* So they are with any number of workers, and more levels of idle ones than those come to. */
static void
test_groups_of_levels(void)
{
    static const char *const name[] = {"only"};
    static const double one_accuracy[] = {0.5};
    static const uint32_t rate_qps[] = {24000};
    double one_us[8];

    for (uint32_t items = 1; items <= 8; items++) {
        one_us[items - 1] = 10 * items;
    }
    for (uint32_t workers = 1; workers <= 4; workers++) {
        for (uint32_t levels = 1; levels <= 4; levels++) {
            const struct leat_policy_problem problem = {.mode = LEAT_POLICY_LEAT,
                                                        .variant_count = 1,
                                                        .worker_count = workers,
                                                        .latency_items = 8,
                                                        .names = name,
                                                        .accuracy = one_accuracy,
                                                        .latency_us = one_us,
                                                        .objective_ns = 40000000,
                                                        .dispersion = 1,
                                                        .late_penalty = 2,
                                                        .queue_max = 9,
                                                        .slack_bins = 4,
                                                        .idle_levels = levels,
                                                        .held_max = 5};
            struct leat_policy *policy;
            EXPECT(leat_policy_problem_check(&problem, 1) == LEAT_OK);
            void *made = memory_of(leat_policy_problem_bytes(&problem, 1));
            EXPECT(leat_policy_begin(made, &problem, rate_qps, 1, &policy) == LEAT_OK);
            void *memory = memory_of(leat_policy_solve_bytes(&problem, rate_qps[0]));
            leat_policy_solve(memory, &problem, policy, 0);
            EXPECT(leat_policy_seal(policy) == LEAT_OK);
            free(memory);
            free(made);
        }
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_blocks();
    test_refusals();
    test_groups();
    test_groups_of_levels();
    return 0;
}
