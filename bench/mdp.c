/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/clock.h"
#include "bench/support.h"
#include "sched/mdp_chain.h"
#include "tests/sched/ramsis.h"

static const char measures[] =
    "Measures   Time of solving a policy for one worker's queue, from latencies to actions: the tasks of the RAMSIS paper\n"
    "           (image: nine variants, 60 workers, 150 ms; text: five, 20, 100 ms; 2000 queries a second, 32 queries, 100\n"
    "           bins of slack), by the paper's rule and by time; with batches of any size; with 60 variants, which lie on\n"
    "           lines between the nine; a ladder of 20 rates with what each policy is expected to do, on two threads.\n"
    "Beside it  100 sweeps over the same chain, written out as sparse rows of what is above 1e-15: what solving costs the\n"
    "           plain way when the rows are a gift. Ours has to make the chain, too. Both give the same actions.\n"
    "Predicted  By counting multiplications, before anything was measured: 50 ms for image by the paper's rule, 60 s for\n"
    "           60 variants with batches of any size, 1 s for the ladder. The paper's Table 2 has 132 s for the first.\n"
    "Does not   write policies anywhere or look anything up.\n"
    "Method     A solution a window, the two taking turns; medians over windows.";

enum { RUNGS = 20, THREADS = 2, LARGE_VARIANTS = 60, LARGE_WINDOWS = 3, SWEEPS = 100 };

static struct ramsis_task image, text, large;

/* Memory for one object at a time; grows. */
struct memory {
    void *at;
    size_t bytes;
};

static struct leat_mdp *
prepare(struct memory *memory, const struct leat_mdp_problem *problem, uint32_t parts)
{
    const size_t bytes = leat_round_up(leat_mdp_bytes(problem, NULL, parts), LEAT_CACHE_LINE);
    if (bytes > memory->bytes) {
        free(memory->at);
        memory->at = aligned_alloc(LEAT_CACHE_LINE, bytes);
        memory->bytes = bytes;
        LEAT_ASSERT(memory->at != NULL);
    }
    return leat_mdp_init(memory->at, problem, NULL, parts);
}

static struct leat_mdp_action *
make_policy(const struct leat_mdp_problem *problem)
{
    struct leat_mdp_action *policy = calloc((size_t)problem->queue_max * leat_mdp_bin_count(problem), sizeof(*policy));
    LEAT_ASSERT(policy != NULL);
    return policy;
}

static double
seconds_since(const struct leat_clock *clock, uint64_t start_ns)
{
    return (double)(leat_clock_now(clock) - start_ns) / 1e9;
}

/* ---- Sweeps over written-out rows -------------------------------------------------------------- */

struct sparse {
    uint32_t states, choice_count;
    uint32_t *first;       /* [states + 1], into choices */
    uint64_t *row;         /* [choice_count + 1], into target and share */
    double *reward;        /* [choice_count] */
    uint32_t *target;
    double *share;
};

/* Maximal batches, late ones served: what the paper's tasks are. */
static uint32_t
choices_of(const struct leat_mdp *mdp, uint32_t n, uint32_t bin, struct leat_mdp_action *ret_actions, double *ret_reward)
{
    const struct leat_mdp_problem *problem = &mdp->problem;
    uint32_t count = 0;
    for (uint32_t v = 0; v < problem->variant_count && n <= problem->queue_max; v++) {
        if (leat_mdp_latency(problem, v, n) <= mdp->slack_us[bin]) {
            ret_reward[count] = problem->accuracy[v];
            ret_actions[count++] = (struct leat_mdp_action){(uint16_t)v, (uint16_t)n};
        }
    }
    if (count == 0 || ret_actions[0].variant != 0) {
        ret_reward[count] = 0;
        ret_actions[count++] = (struct leat_mdp_action){0, (uint16_t)n};
    }
    return count;
}

/* The rows in order; only counts them, and what is in them, without memory. */
static void
write_rows(struct leat_mdp *mdp, struct sparse *sparse, uint64_t *ret_entries)
{
    const uint32_t queue_max = mdp->problem.queue_max, stride = mdp->stride;
    double *values = calloc((size_t)queue_max * stride + 1, sizeof(*values));
    uint64_t entries = 0;

    LEAT_ASSERT(values != NULL);
    sparse->choice_count = 0;
    for (uint32_t state = 0; state <= mdp->states; state++) {
        struct leat_mdp_action actions[LEAT_MDP_VARIANTS_MAX + 1];
        double reward[LEAT_MDP_VARIANTS_MAX + 1];
        const uint32_t n = state / mdp->bins + 1, bin = state % mdp->bins;
        const uint32_t count = choices_of(mdp, n, bin, actions, reward);
        if (sparse->first != NULL) {
            sparse->first[state] = sparse->choice_count;
            sparse->first[state + 1] = sparse->choice_count + count;
        }
        for (uint32_t i = 0; i < count; i++, sparse->choice_count++) {
            const struct leat_mdp_kernel *kernel = &mdp->kernels[leat_mdp_step(mdp, n, bin, actions[i])];
            memset(values, 0, ((size_t)queue_max * stride + 1) * sizeof(*values));
            memcpy(kernel->mass, mdp->prior + (size_t)state * mdp->padded, mdp->padded * sizeof(double));
            leat_mdp_push(mdp, kernel, values);
            if (sparse->first != NULL) {
                sparse->reward[sparse->choice_count] = reward[i];
                sparse->row[sparse->choice_count] = entries;
            }
            for (uint32_t t = 0; t <= mdp->states; t++) {
                const double share = values[t == mdp->states ? queue_max * stride : t / mdp->bins * stride + t % mdp->bins];
                if (share > 1e-15) {
                    if (sparse->first != NULL) {
                        sparse->target[entries] = t;
                        sparse->share[entries] = share;
                    }
                    entries++;
                }
            }
        }
    }
    if (sparse->first != NULL) {
        sparse->row[sparse->choice_count] = entries;
    }
    *ret_entries = entries;
    free(values);
}

static struct sparse
make_sparse(struct leat_mdp *mdp)
{
    struct sparse sparse = {.states = mdp->states + 1};
    uint64_t entries;
    write_rows(mdp, &sparse, &entries);
    sparse.row = malloc((sparse.choice_count + 1) * sizeof(*sparse.row));
    sparse.reward = malloc(sparse.choice_count * sizeof(*sparse.reward));
    sparse.target = malloc(entries * sizeof(*sparse.target));
    sparse.share = malloc(entries * sizeof(*sparse.share));
    sparse.first = malloc((sparse.states + 1) * sizeof(*sparse.first));
    LEAT_ASSERT(sparse.first != NULL && sparse.row != NULL && sparse.reward != NULL && sparse.target != NULL &&
                sparse.share != NULL);
    write_rows(mdp, &sparse, &entries);
    return sparse;
}

static void
free_sparse(struct sparse *sparse)
{
    free(sparse->first);
    free(sparse->row);
    free(sparse->reward);
    free(sparse->target);
    free(sparse->share);
}

/* Into choice[states]: the place of the best among the state's, after the sweeps. */
static void
sweep_rows(const struct sparse *sparse, uint32_t *ret_choice)
{
    double *values = calloc(sparse->states, sizeof(*values)), *next = calloc(sparse->states, sizeof(*next));
    LEAT_ASSERT(values != NULL && next != NULL);
    for (uint32_t sweep = 0; sweep <= SWEEPS; sweep++) {
        for (uint32_t state = 0; state < sparse->states; state++) {
            double best = -1;
            for (uint32_t i = sparse->first[state]; i < sparse->first[state + 1]; i++) {
                double sum = sparse->reward[i];
                for (uint64_t e = sparse->row[i]; e < sparse->row[i + 1]; e++) {
                    sum += sparse->share[e] * values[sparse->target[e]];
                }
                if (sum > best) {
                    best = sum;
                    ret_choice[state] = i - sparse->first[state];
                }
            }
            next[state] = best;
        }
        memcpy(values, next, sparse->states * sizeof(*values));
    }
    free(values);
    free(next);
}

/* ---- One policy -------------------------------------------------------------------------------- */

static void
check_same(const struct leat_mdp *mdp, const struct leat_mdp_action *policy, const uint32_t *choice)
{
    for (uint32_t state = 0; state < mdp->states; state++) {
        struct leat_mdp_action actions[LEAT_MDP_VARIANTS_MAX + 1];
        double reward[LEAT_MDP_VARIANTS_MAX + 1];
        (void)choices_of(mdp, state / mdp->bins + 1, state % mdp->bins, actions, reward);
        LEAT_ASSERT(actions[choice[state]].variant == policy[state].variant);
    }
}

static void
measure_paper(const struct bench_options *options, const struct leat_clock *clock, const char *name,
              const struct leat_mdp_problem *problem, double target_ms)
{
    static double ours[BENCH_WINDOWS_MAX], evaluations[BENCH_WINDOWS_MAX];
    static double rows[BENCH_WINDOWS_MAX], ratio[BENCH_WINDOWS_MAX];
    struct memory memory = {0};
    struct leat_mdp_action *policy = make_policy(problem);
    struct leat_mdp *mdp = prepare(&memory, problem, 1);
    struct leat_mdp_value value;
    char peer[64];
    double worst = 0;

    leat_mdp_build(mdp, 0);
    struct sparse sparse = make_sparse(mdp);
    uint32_t *choice = malloc(sparse.states * sizeof(*choice));
    LEAT_ASSERT(choice != NULL);
    for (uint32_t w = 0; w < options->windows; w++) {
        uint64_t start_ns = leat_clock_now(clock);
        mdp = prepare(&memory, problem, 1);
        leat_mdp_build(mdp, 0);
        leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
        ours[w] = seconds_since(clock, start_ns) * 1e3;
        start_ns = leat_clock_now(clock);
        LEAT_MUST(leat_mdp_evaluate(mdp, policy, &value) == LEAT_OK);
        evaluations[w] = seconds_since(clock, start_ns) * 1e3;
        start_ns = leat_clock_now(clock);
        sweep_rows(&sparse, choice);
        rows[w] = seconds_since(clock, start_ns) * 1e3;
        ratio[w] = ours[w] / rows[w];
        worst = ours[w] > worst ? ours[w] : worst;
    }
    check_same(mdp, policy, choice);
    (void)snprintf(peer, sizeof(peer), "%s, sweeps over rows", name);
    bench_print(options, &(struct bench_row){.subject = peer, .metric = "time", .unit = "ms", .windows = options->windows,
                                             .value = bench_median(rows, options->windows)});
    bench_print(options, &(struct bench_row){.subject = name, .metric = "time", .unit = "ms", .windows = options->windows,
                                             .value = bench_median(ours, options->windows), .worst = worst, .peer = peer,
                                             .ratio = bench_median(ratio, options->windows)});
    bench_print(options, &(struct bench_row){.subject = name, .metric = "median time", .unit = "ms",
                                             .windows = options->windows, .value = bench_median(ours, options->windows),
                                             .goal = target_ms > 0 ? BENCH_AT_MOST : BENCH_NO_GOAL, .target = target_ms});
    bench_print(options, &(struct bench_row){.subject = name, .metric = "evaluation", .unit = "ms",
                                             .windows = options->windows,
                                             .value = bench_median(evaluations, options->windows)});
    free(choice);
    free_sparse(&sparse);
    free(policy);
    free(memory.at);
}

static void
measure_alone(const struct bench_options *options, const struct leat_clock *clock, const char *name,
              const struct leat_mdp_problem *problem, enum leat_mdp_mode mode)
{
    static double times[BENCH_WINDOWS_MAX];
    struct memory memory = {0};
    struct leat_mdp_action *policy = make_policy(problem);
    double worst = 0;

    for (uint32_t w = 0; w < options->windows; w++) {
        const uint64_t start_ns = leat_clock_now(clock);
        struct leat_mdp *mdp = prepare(&memory, problem, 1);
        leat_mdp_build(mdp, 0);
        leat_mdp_solve(mdp, mode, policy, NULL);
        times[w] = seconds_since(clock, start_ns) * 1e3;
        worst = times[w] > worst ? times[w] : worst;
    }
    bench_print(options, &(struct bench_row){.subject = name, .metric = "time", .unit = "ms", .windows = options->windows,
                                             .value = bench_median(times, options->windows), .worst = worst});
    free(policy);
    free(memory.at);
}

/* ---- On two threads ---------------------------------------------------------------------------- */

struct share {
    pthread_t thread;
    int cpu;
    uint32_t number;
    struct leat_mdp *mdp; /* a part of it; NULL: rungs of the ladder */
};

static void *
run_share(void *argument)
{
    const struct share *share = argument;
    bench_pin(&share->cpu, 1);
    if (share->mdp != NULL) {
        leat_mdp_build(share->mdp, share->number);
        return NULL;
    }
    struct memory memory = {0};
    for (uint32_t rung = share->number; rung < RUNGS; rung += THREADS) {
        struct leat_mdp_problem problem = ramsis_problem(&image, 200.0 * (rung + 1));
        struct leat_mdp_action *policy = make_policy(&problem);
        struct leat_mdp_value value;
        struct leat_mdp *mdp = prepare(&memory, &problem, 1);
        leat_mdp_build(mdp, 0);
        leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
        LEAT_MUST(leat_mdp_evaluate(mdp, policy, &value) == LEAT_OK);
        free(policy);
    }
    free(memory.at);
    return NULL;
}

static void
run_shares(const struct bench_options *options, struct leat_mdp *mdp)
{
    struct share shares[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        shares[i] = (struct share){.cpu = options->cpus[i % options->cpu_count], .number = i, .mdp = mdp};
        LEAT_MUST(pthread_create(&shares[i].thread, NULL, run_share, &shares[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        LEAT_MUST(pthread_join(shares[i].thread, NULL) == 0);
    }
}

static void
measure_ladder(const struct bench_options *options, const struct leat_clock *clock)
{
    static double times[BENCH_WINDOWS_MAX];
    double worst = 0;
    for (uint32_t w = 0; w < options->windows; w++) {
        const uint64_t start_ns = leat_clock_now(clock);
        run_shares(options, NULL);
        times[w] = seconds_since(clock, start_ns);
        worst = times[w] > worst ? times[w] : worst;
    }
    bench_print(options, &(struct bench_row){.subject = "image, 20 rates, two threads", .metric = "time", .unit = "s",
                                             .value = bench_median(times, options->windows), .worst = worst,
                                             .windows = options->windows, .goal = BENCH_AT_MOST, .target = 1});
}

static void
measure_large(const struct bench_options *options, const struct leat_clock *clock)
{
    double times[LARGE_WINDOWS], worst = 0;
    const uint32_t windows = options->windows < LARGE_WINDOWS ? options->windows : LARGE_WINDOWS;
    struct leat_mdp_problem problem = ramsis_problem(&large, 2000);
    struct memory memory = {0};

    problem.batching = LEAT_MDP_VARIABLE;
    if (options->smoke) {
        problem.queue_max = 8;
    }
    struct leat_mdp_action *policy = make_policy(&problem);
    for (uint32_t w = 0; w < windows; w++) {
        const uint64_t start_ns = leat_clock_now(clock);
        struct leat_mdp *mdp = prepare(&memory, &problem, THREADS);
        run_shares(options, mdp);
        leat_mdp_solve(mdp, LEAT_MDP_PAPER, policy, NULL);
        times[w] = seconds_since(clock, start_ns);
        worst = times[w] > worst ? times[w] : worst;
    }
    bench_print(options, &(struct bench_row){.subject = "60 variants, any batch, two threads", .metric = "time",
                                             .unit = "s", .value = bench_median(times, windows), .worst = worst,
                                             .windows = windows, .goal = BENCH_AT_MOST, .target = 60});
    free(policy);
    free(memory.at);
}

int
main(int argc, char **argv)
{
    struct bench_options options = {.name = "mdp", .windows = 15, .window_ns = 1000000};
    struct leat_clock clock;
    int status;

    if (!bench_parse(argc, argv, measures, &options, &status)) {
        return status;
    }
    bench_pin(&options.cpus[options.cpu_count - 1], 1);
    leat_clock_init(&clock);
    ramsis_read("image", &image);
    ramsis_read("text", &text);
    ramsis_interpolate(&image, LARGE_VARIANTS, &large);

    struct leat_mdp_problem problem = ramsis_problem(&image, 2000);
    measure_paper(&options, &clock, "image", &problem, 50);
    measure_alone(&options, &clock, "image, by time", &problem, LEAT_MDP_LEAT);
    problem.slack_bins = 10;
    measure_paper(&options, &clock, "image, 10 bins", &problem, 0);
    problem = ramsis_problem(&image, 2000);
    problem.batching = LEAT_MDP_VARIABLE;
    if (!options.smoke) {
        measure_alone(&options, &clock, "image, any batch", &problem, LEAT_MDP_PAPER);
    }
    problem = ramsis_problem(&large, 2000);
    measure_paper(&options, &clock, "60 variants", &problem, 0);
    problem = ramsis_problem(&text, 2000);
    measure_paper(&options, &clock, "text", &problem, 0);
    measure_alone(&options, &clock, "text, by time", &problem, LEAT_MDP_LEAT);
    measure_ladder(&options, &clock);
    measure_large(&options, &clock);
    bench_note_load(&options);
    return 0;
}
