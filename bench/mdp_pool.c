/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/support.h"
#include "sched/mdp_pool.h"
#include "sched/policy.h"
#include "tests/leat_test.h"
#include "tests/sched/pool_world.h"

static const char measures[] =
    "Measures   Policies of one queue before all workers (sched/mdp_pool.h): time of solving one on one core, and what\n"
    "           they do on a virtual clock for the image (60 workers, 150 ms) and text (20 workers, 100 ms) tasks of\n"
    "           RAMSIS, at loads that stand still and on its trace, where the policies for 200, 400 .. 4000 qps follow\n"
    "           the arrivals of the last 500 ms. Accuracy is the mean of queries in time; violations are late or given\n"
    "           up. Bound: no policy has more accuracy less 2 for each violation a query.\n"
    "Beside it  the same policies without holding; Jellyfish+ as the RAMSIS paper compares with it: selector jellyfish,\n"
    "           told the load. Where no variant keeps up it takes the fastest one in batches as they come.\n"
    "Does not   measure a daemon: batches take what the table says. In rows of noise they differ from it with a standard\n"
    "           deviation of 5 or 10 %, and the policy is told so.\n"
    "Method     Time: medians over windows, each a solution. Tasks: means of three seeds of 30 s; trace: one of 300 s.";

enum { SEEDS = 3, RUNGS = 20 };

static struct ramsis_task ramsis_image, ramsis_text;

struct outcome {
    double accuracy, violation;
};

static struct outcome
observe(const struct bench_options *options, struct pool_world world, uint32_t seeds)
{
    struct outcome outcome = {0};
    for (uint32_t s = 0; s < seeds; s++) {
        world.seed = 1 + s;
        world.seconds = options->smoke ? 1 : world.seconds;
        const struct pool_world_result result = pool_world_run(&world);
        outcome.accuracy += result.accuracy / seeds;
        outcome.violation += result.violation / seeds;
    }
    return outcome;
}

static struct outcome
observe_load(const struct bench_options *options, const struct pool_policy *policy)
{
    const double rate_qps = policy->problem.rate_per_us * 1e6;
    const struct pool_world world = {.policies = policy, .policy_count = 1, .rate_qps = &rate_qps, .rate_count = 1,
                                     .seconds = 30, .dispersion = 1};
    return observe(options, world, SEEDS);
}

static uint64_t
predict(const void *policy, uint16_t application, uint32_t variant, uint16_t worker_class, uint32_t items)
{
    (void)application;
    (void)worker_class;
    return (uint64_t)(((const struct pool_policy *)policy)->latency_us[variant][items - 1] * 1e3);
}

/* What selector jellyfish does at the policy's load, whatever the slack. */
static void
follow_jellyfish(struct pool_policy *policy)
{
    const struct leat_mdp_pool_problem *problem = &policy->problem;
    const struct leat_selector *selector = leat_selector_find("jellyfish");
    struct leat_sched_variant variants[LEAT_MDP_POOL_VARIANTS_MAX];
    struct leat_sched_query queries[RAMSIS_QUEUE];
    const struct leat_sched_worker worker = {0};
    const struct leat_selector_options selector_options = {.objective_ns = (uint64_t)(problem->objective_us * 1e3),
                                                           .worker_count = problem->worker_count,
                                                           .rate_step_qps = 1};
    struct leat_select_input input = {.pending = queries,
                                      .variants = variants,
                                      .variant_count = problem->variant_count,
                                      .worker = &worker,
                                      .worker_count = problem->worker_count,
                                      .rate_qps = (uint32_t)(problem->rate_per_us * 1e6 + 0.5),
                                      .predict = predict,
                                      .profiles = policy};
    void *state = calloc(1, selector->state_bytes);

    LEAT_MUST(state != NULL && selector->init(state, &selector_options) == LEAT_OK);
    for (uint32_t v = 0; v < problem->variant_count; v++) {
        variants[v] = (struct leat_sched_variant){
            .accuracy_ppm = (uint32_t)(policy->accuracy[v] * 1e6 + 0.5), .items_max = problem->batch_max, .ready = true};
    }
    for (uint32_t q = 0; q < RAMSIS_QUEUE; q++) {
        queries[q] = (struct leat_sched_query){.deadline_ns = selector_options.objective_ns, .items = 1};
    }
    for (uint32_t waiting = 1; waiting <= problem->queue_max + 1; waiting++) {
        input.waiting_count = waiting;
        input.pending_count = waiting < RAMSIS_QUEUE ? waiting : RAMSIS_QUEUE;
        for (uint32_t idle = 1; idle <= problem->worker_count; idle++) {
            uint16_t *row = &policy->actions[leat_mdp_pool_row(problem, waiting, idle) * (problem->slack_bins + 1)];
            input.idle_count = idle;
            const struct leat_selection selection = selector->select(state, &input);
            for (uint32_t j = 0; j <= problem->slack_bins; j++) {
                row[j] = (uint16_t)(selection.variant | selection.queries << 6);
            }
        }
    }
    free(state);
}

static void
print_outcome(const struct bench_options *options, const char *subject, struct outcome ours, double bound,
              const char *peer, struct outcome theirs)
{
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "accuracy", .unit = "1", .value = ours.accuracy,
                                             .windows = SEEDS, .peer = peer, .ratio = ours.accuracy / theirs.accuracy});
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "violations", .unit = "%",
                                             .value = ours.violation * 100, .windows = SEEDS});
    bench_print(options,
                &(struct bench_row){.subject = subject, .metric = "bound", .unit = "1", .value = bound, .windows = 1});
}

static void
measure_load(const struct bench_options *options, const struct leat_clock *clock, const struct ramsis_task *task,
             double qps)
{
    static double solve_ms[BENCH_WINDOWS_MAX];
    struct pool_policy policy, peer;
    char subject[64], without[80], jellyfish[80];
    double worst = 0;

    pool_policy_init(&policy, task, task->worker_count, qps);
    for (uint32_t w = 0; w < options->windows; w++) {
        const uint64_t start_ns = leat_clock_now(clock);
        pool_policy_solve(&policy);
        solve_ms[w] = (double)(leat_clock_now(clock) - start_ns) / 1e6;
        worst = solve_ms[w] > worst ? solve_ms[w] : worst;
    }
    (void)snprintf(subject, sizeof(subject), "%s at %.0f qps", task->name, qps);
    (void)snprintf(without, sizeof(without), "%s, without holding", subject);
    (void)snprintf(jellyfish, sizeof(jellyfish), "%s, Jellyfish+", subject);
    bench_print(options, &(struct bench_row){.subject = subject, .metric = "solve", .unit = "ms",
                                             .value = bench_median(solve_ms, options->windows), .worst = worst,
                                             .windows = options->windows, .goal = BENCH_AT_MOST, .target = 50});

    const double bound = policy.value.bound_per_us / policy.problem.rate_per_us;
    const struct outcome ours = observe_load(options, &policy);
    pool_policy_init(&peer, task, task->worker_count, qps);
    peer.problem.hold = false;
    pool_policy_solve(&peer);
    const struct outcome theirs = observe_load(options, &peer);
    print_outcome(options, without, theirs, bound, subject, ours);
    print_outcome(options, subject, ours, bound, without, theirs);
    follow_jellyfish(&peer);
    print_outcome(options, jellyfish, observe_load(options, &peer), bound, subject, ours);
    pool_policy_fini(&policy);
    pool_policy_fini(&peer);
}

static void
measure_trace(const struct bench_options *options, uint32_t workers, double noise)
{
    static struct pool_policy policies[RUNGS];
    static double rate_qps[RAMSIS_TRACE_SECONDS];
    char subject[80];
    double bound = 0, queries = 0;

    for (uint32_t i = 0; i < RUNGS; i++) {
        pool_policy_init(&policies[i], &ramsis_image, workers, 200.0 * (i + 1));
        policies[i].problem.latency_spread = noise;
        pool_policy_solve(&policies[i]);
    }
    struct leat_mdp_pool_problem problem = policies[0].problem;
    ramsis_read_trace(rate_qps);
    for (uint32_t s = 0; s < 300; s++) {
        problem.rate_per_us = rate_qps[s % RAMSIS_TRACE_SECONDS] / 1e6;
        bound += leat_mdp_pool_bound(&problem);
        queries += problem.rate_per_us;
    }
    const struct pool_world world = {.policies = policies, .policy_count = RUNGS, .rate_qps = rate_qps,
                                     .rate_count = RAMSIS_TRACE_SECONDS, .seconds = 300, .dispersion = 1, .noise = noise};
    const struct outcome ours = observe(options, world, 1);
    (void)snprintf(subject, sizeof(subject), "image trace, %u workers, noise %.0f %%", workers, noise * 100);
    print_outcome(options, subject, ours, bound / queries, NULL, ours);
    for (uint32_t i = 0; i < RUNGS; i++) {
        pool_policy_fini(&policies[i]);
    }
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "mdp_pool", .windows = 5, .window_ns = 50000000};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    ramsis_read("image", &ramsis_image);
    ramsis_read("text", &ramsis_text);
    for (uint32_t qps = 400; qps <= 4000; qps += options.smoke ? 1800 : 400) {
        measure_load(&options, &clock, &ramsis_image, qps);
        measure_load(&options, &clock, &ramsis_text, qps);
    }
    for (uint32_t workers = 60; workers <= (options.smoke ? 60 : 80); workers += 10) {
        for (double noise = 0; noise < 0.11; noise += options.smoke ? 0.2 : 0.05) {
            measure_trace(&options, workers, noise);
        }
    }
    bench_note_load(&options);
    return 0;
}
