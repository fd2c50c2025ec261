/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/ramsis_world.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/align.h"
#include "runtime/policy_make.h"
#include "sched/mdp_pool.h"
#include "tools/simulate/parallel.h"
#include "tools/simulate/switching.h"

/* Seeds of choices, which no seed that judges may be: those are from program->first_seed on. */
#define CHOICE_SEED(program) ((program)->first_seed + 1000)
#define VIOLATIONS_MAX       0.01   /* of a variant that sustains a load */
#define ABORT_WAITING        10000u /* of one that does not: as in RAMSIS' simulator */

/* ---- Small things ------------------------------------------------------------------------------ */

void
ramsis_need(enum leat_status status)
{
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "bench_ramsis: %s\n", leat_error_text());
        exit(1);
    }
}

void *
ramsis_memory(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_ramsis: no memory\n");
        exit(1);
    }
    return memory;
}

double
ramsis_seconds(void)
{
    struct timespec now;
    LEAT_MUST(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Of all threads: one that shares its core with others is charged for its own time only. */
static double
cpu_seconds(void)
{
    struct timespec used;
    LEAT_MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void *
aligned_memory(size_t bytes)
{
    void *memory = aligned_alloc(64, leat_round_up(bytes, 64));
    if (memory == NULL) {
        (void)fprintf(stderr, "bench_ramsis: no memory\n");
        exit(1);
    }
    return memory;
}

static void
say(const struct ramsis_program *program, const char *what, uint32_t done, uint32_t count)
{
    if (!program->quiet) {
        (void)fprintf(stderr, "\r%-60s %5u of %u ", what, done, count);
    }
}

static bool
is_daemon(enum ramsis_scheme scheme)
{
    return scheme == RAMSIS_DAEMON || scheme == RAMSIS_DAEMON_DROP;
}

static bool
drops(enum ramsis_scheme scheme)
{
    return scheme == RAMSIS_LEAT_DROP || scheme == RAMSIS_DAEMON_DROP;
}

static bool
has(uint32_t schemes, enum ramsis_scheme scheme)
{
    return (schemes >> scheme & 1) != 0;
}

/* ---- Policies of one queue a worker ------------------------------------------------------------ */

/* A problem and what it points to. */
struct posed {
    struct leat_policy_problem problem;
    const char *names[LEAT_POLICY_VARIANTS_MAX];
    double accuracy[LEAT_POLICY_VARIANTS_MAX];
    double latency_us[LEAT_POLICY_VARIANTS_MAX * (RAMSIS_PAPER_QUEUE + 1)];
};

/* All of it that is the world's. */
static void
pose_world(const struct ramsis_world *world, uint32_t items, struct posed *posed)
{
    const struct variants_table *table = world->table;

    for (uint32_t v = 0; v < table->count; v++) {
        posed->names[v] = table->rows[v].name;
        posed->accuracy[v] = table->rows[v].accuracy_ppm / 1e6;
        for (uint32_t b = 0; b < items; b++) {
            posed->latency_us[v * items + b] = (double)table->rows[v].latency_ns[b] / 1e3;
        }
    }
    posed->problem = (struct leat_policy_problem){
        .variant_count = table->count,
        .worker_count = world->workers,
        .latency_items = items,
        .names = posed->names,
        .accuracy = posed->accuracy,
        .latency_us = posed->latency_us,
        .objective_ns = world->objective_ns,
        .late_penalty = RAMSIS_LATE_PENALTY,
    };
}

/* RAMSIS': a queue for each worker. */
static void
pose(const struct ramsis_world *world, enum leat_policy_mode mode, double dispersion, struct posed *posed)
{
    pose_world(world, RAMSIS_PAPER_QUEUE + 1, posed);
    posed->problem.mode = mode;
    posed->problem.dispersion = dispersion;
    posed->problem.queue_max = RAMSIS_PAPER_QUEUE;
    posed->problem.slack_bins = RAMSIS_PAPER_BINS;
    posed->problem.grid = LEAT_MDP_FIXED;
    posed->problem.batching = LEAT_MDP_MAXIMAL;
    posed->problem.split = LEAT_MDP_ROUND_ROBIN;
    ramsis_need(leat_policy_problem_check(&posed->problem, world->rate_count));
}

/* What that policy of one queue was made from, but that no query is held back. */
static void
pose_prompt(const struct ramsis_world *world, const struct leat_policy *like, struct posed *posed)
{
    pose_world(world, like->latency_items, posed);
    posed->problem.mode = LEAT_POLICY_LEAT;
    posed->problem.dispersion = like->dispersion_permille / 1e3;
    posed->problem.queue_max = like->queue_max;
    posed->problem.slack_bins = like->slack_bins;
    posed->problem.idle_levels = like->idle_levels;
    posed->problem.held_max = like->held_max;
    ramsis_need(leat_policy_problem_check(&posed->problem, world->rate_count));
}

struct solving {
    const struct leat_policy_problem *problem;
    struct leat_policy *policy;
};

static enum leat_status
solve_job(struct simulate_run *unused, uint32_t index, void *context)
{
    const struct solving *solving = context;
    const uint32_t rate_qps = leat_policy_rung(solving->policy, index)->rate_qps;
    void *memory = aligned_memory(leat_policy_solve_bytes(solving->problem, rate_qps));

    (void)unused;
    leat_policy_solve(memory, solving->problem, solving->policy, index);
    free(memory);
    return LEAT_OK;
}

static struct leat_policy *
solve(const struct ramsis_world *world, const struct leat_policy_problem *problem, uint32_t threads)
{
    struct leat_policy *policy;
    void *block = aligned_memory(leat_policy_problem_bytes(problem, world->rate_count));

    ramsis_need(leat_policy_begin(block, problem, world->rates_qps, world->rate_count, &policy));
    struct solving solving = {.problem = problem, .policy = policy};
    ramsis_need(simulate_parallel(threads, world->rate_count, solve_job, &solving, NULL, NULL));
    ramsis_need(leat_policy_seal(policy));
    return policy;
}

static struct leat_policy *
make_dealt(const struct ramsis_world *world, enum leat_policy_mode mode, double dispersion, uint32_t threads)
{
    struct posed *posed = ramsis_memory(1, sizeof(*posed));

    pose(world, mode, dispersion, posed);
    struct leat_policy *policy = solve(world, &posed->problem, threads);
    free(posed);
    return policy;
}

/* ---- Policies of one queue --------------------------------------------------------------------- */

struct pooling {
    uint32_t dispersion_permille, spread_ppm, threads;
    bool drops_late, own_rates;
};

static struct leat_policy *
make_pool(const struct ramsis_world *world, struct pooling pooling)
{
    const struct variants_table *table = world->table;
    const char *names[LEAT_POLICY_VARIANTS_MAX];
    uint32_t accuracy_ppm[LEAT_POLICY_VARIANTS_MAX];
    uint64_t *latency_ns = ramsis_memory((size_t)table->count * VARIANTS_BATCH_MAX, sizeof(*latency_ns));
    struct leat_policy *policy;

    for (uint32_t v = 0; v < table->count; v++) {
        names[v] = table->rows[v].name;
        accuracy_ppm[v] = table->rows[v].accuracy_ppm;
        memcpy(&latency_ns[(size_t)v * VARIANTS_BATCH_MAX], table->rows[v].latency_ns,
               VARIANTS_BATCH_MAX * sizeof(*latency_ns));
    }
    const struct leat_policy_order order = {
        .variant_count = table->count,
        .names = names,
        .accuracy_ppm = accuracy_ppm,
        .latency_ns = latency_ns,
        .spread_ppm = pooling.spread_ppm,
        .items_max = VARIANTS_BATCH_MAX,
        .objective_ns = world->objective_ns,
        .worker_count = world->workers,
        .dispersion_permille = pooling.dispersion_permille,
        .drops_late = pooling.drops_late,
        .rates_qps = pooling.own_rates ? NULL : world->rates_qps,
        .rate_count = pooling.own_rates ? 0 : world->rate_count,
        .threads = pooling.threads,
    };
    ramsis_need(leat_policy_make(&order, NULL, &policy));
    LEAT_ASSERT(policy->late_penalty_permille == (uint32_t)(RAMSIS_LATE_PENALTY * 1000));
    free(latency_ns);
    return policy;
}

static struct leat_policy *
make_prompt(const struct ramsis_world *world, uint32_t threads)
{
    struct posed *posed = ramsis_memory(1, sizeof(*posed));

    pose_prompt(world, world->policies[RAMSIS_LEAT], posed);
    struct leat_policy *policy = solve(world, &posed->problem, threads);
    free(posed);
    return policy;
}

static struct leat_policy *
make_switching(const struct ramsis_world *world)
{
    const struct switching_options options = {
        .table = world->table,
        .rates_qps = world->rates_qps,
        .rate_count = world->rate_count,
        .worker_count = world->workers,
        .objective_ns = world->objective_ns,
        .duration_ns = world->program->switching_duration_ns,
        .seed = CHOICE_SEED(world->program),
        .threads = world->program->threads,
    };
    struct leat_policy *policy;
    ramsis_need(switching_generate(&options, &policy));
    return policy;
}

/* ---- Worlds ------------------------------------------------------------------------------------ */

/* Policies that are made for a world's circumstances: by order, or since the daemon measures them. */
static bool
is_told(enum ramsis_scheme scheme)
{
    return scheme == RAMSIS_PAPER_TOLD || scheme == RAMSIS_LEAT_TOLD || scheme == RAMSIS_DAEMON ||
           scheme == RAMSIS_DAEMON_DROP;
}

static struct leat_policy *
make_policy(const struct ramsis_world *world, enum ramsis_scheme scheme)
{
    const uint32_t threads = world->program->threads;
    const double dispersion = is_told(scheme) ? world->dispersion : 1;
    const struct pooling pooling = {
        .dispersion_permille = (uint32_t)lround(dispersion * 1e3),
        .spread_ppm = is_told(scheme) ? (uint32_t)lround(world->noise_share * 1e6) : 0,
        .threads = threads,
        .drops_late = drops(scheme),
        .own_rates = is_daemon(scheme),
    };

    switch (scheme) {
    case RAMSIS_PAPER:
    case RAMSIS_PAPER_TOLD: return make_dealt(world, LEAT_POLICY_PAPER, dispersion, threads);
    case RAMSIS_DEALT: return make_dealt(world, LEAT_POLICY_DEALT, dispersion, threads);
    case RAMSIS_LEAT_PROMPT: return make_prompt(world, threads);
    case RAMSIS_SWITCHING: return make_switching(world);
    case RAMSIS_LEAT:
    case RAMSIS_LEAT_DROP:
    case RAMSIS_LEAT_TOLD:
    case RAMSIS_DAEMON:
    case RAMSIS_DAEMON_DROP: return make_pool(world, pooling);
    default: return NULL;
    }
}

/* One of the other world's will do: circumstances change what happens, but not what was made for other ones. */
static bool
is_borrowed(const struct ramsis_world *world, const struct ramsis_world *base, enum ramsis_scheme scheme)
{
    const bool told = is_told(scheme) && (world->noise_share > 0 || world->dispersion > 1);
    return base != NULL && base->policies[scheme] != NULL && !told;
}

void
ramsis_world_make(struct ramsis_world *world, uint32_t schemes, const struct ramsis_world *base)
{
    for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
        if (has(schemes, scheme) && world->policies[scheme] == NULL) {
            say(world->program, "policies", scheme, RAMSIS_SCHEMES);
            world->policies[scheme] =
                is_borrowed(world, base, scheme) ? base->policies[scheme] : make_policy(world, scheme);
        }
    }
}

void
ramsis_world_free(struct ramsis_world *world, const struct ramsis_world *base)
{
    for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
        if (!is_borrowed(world, base, scheme)) {
            free(world->policies[scheme]);
        }
        world->policies[scheme] = NULL;
    }
}

double
ramsis_capacity_qps(const struct ramsis_world *world)
{
    double best = 0; /* queries a nanosecond, of one worker */
    for (uint32_t v = 0; v < world->table->count; v++) {
        for (uint32_t b = 1; b <= VARIANTS_BATCH_MAX; b++) {
            const uint64_t latency_ns = world->table->rows[v].latency_ns[b - 1];
            best = latency_ns <= world->objective_ns ? fmax(best, b / (double)latency_ns) : best;
        }
    }
    return best * 1e9 * world->workers;
}

/* ---- Bounds ------------------------------------------------------------------------------------ */

static double
bound_at(const struct ramsis_world *world, double rate_qps, double late_penalty)
{
    struct posed *posed = ramsis_memory(1, sizeof(*posed));

    pose(world, LEAT_POLICY_PAPER, 1, posed);
    const struct leat_mdp_pool_problem problem = {
        .variant_count = posed->problem.variant_count,
        .worker_count = world->workers,
        .batch_max = VARIANTS_BATCH_MAX,
        .latency_stride = posed->problem.latency_items,
        .accuracy = posed->accuracy,
        .latency_us = posed->latency_us,
        .objective_us = (double)world->objective_ns / 1e3,
        .rate_per_us = rate_qps / 1e6,
        .dispersion = 1,
        .late_penalty = late_penalty,
        .queue_max = RAMSIS_PAPER_QUEUE,
        .slack_bins = RAMSIS_PAPER_BINS,
        .idle_levels = 1,
        .held_max = 1,
    };
    ramsis_need(leat_mdp_pool_check(&problem));
    const double bound = leat_mdp_pool_bound(&problem) / problem.rate_per_us;
    free(posed);
    return bound;
}

/* Of a trace, of its seconds, by their queries. */
static double
bound_of(const struct ramsis_case *found, double late_penalty)
{
    double sum = 0, queries = 0, from_s = 0;

    if (found->rates == NULL) {
        return bound_at(found->world, found->rate_qps, late_penalty);
    }
    const struct rates *rates = found->rates;
    const double cycle_s = rates->steps[rates->count - 1].end_s, end_s = (double)found->duration_ns / 1e9;
    for (uint32_t i = 0; i < rates->count; i++) {
        const double to_s = rates->steps[i].end_s;
        double times = floor(end_s / cycle_s) * (to_s - from_s);
        times += fmin(fmax(fmod(end_s, cycle_s) - from_s, 0), to_s - from_s);
        const double arrivals = times * rates->steps[i].qps;
        sum += arrivals > 0 ? arrivals * bound_at(found->world, rates->steps[i].qps, late_penalty) : 0;
        queries += arrivals;
        from_s = to_s;
    }
    return sum / queries;
}

static bool
overloaded(const struct ramsis_case *found)
{
    const double capacity_qps = ramsis_capacity_qps(found->world);
    bool any = found->rates == NULL && found->rate_qps > capacity_qps;

    for (uint32_t i = 0; found->rates != NULL && i < found->rates->count; i++) {
        any = any || found->rates->steps[i].qps > capacity_qps;
    }
    return any;
}

/* ---- Simulations ------------------------------------------------------------------------------- */

static struct variants_options
options_for(const struct ramsis_case *found, enum ramsis_scheme scheme)
{
    const struct ramsis_world *world = found->world;
    const struct leat_selector *selector = &leat_selector_mdp;
    const bool own_queues = scheme == RAMSIS_PAPER || scheme == RAMSIS_DEALT || scheme == RAMSIS_PAPER_TOLD;

    switch (scheme) {
    case RAMSIS_JELLYFISH: selector = &leat_selector_jellyfish; break;
    case RAMSIS_SWITCHING: selector = &leat_selector_model_switching; break;
    case RAMSIS_GREEDY: selector = &leat_selector_greedy; break;
    case RAMSIS_FIXED: selector = &leat_selector_fixed; break;
    case RAMSIS_INFAAS: selector = &leat_selector_infaas; break;
    default: break;
    }
    return (struct variants_options){
        .table = world->table,
        .router = own_queues ? &leat_router_dealt : &leat_router_fcfs,
        .selector = selector,
        .selector_options = {.policy = world->policies[scheme]},
        .arrivals = {.kind = found->rates != NULL ? ARRIVALS_RATES : ARRIVALS_POISSON,
                     .rate_qps = found->rate_qps,
                     .dispersion = world->dispersion,
                     .rates = found->rates},
        .worker_count = world->workers,
        /* RAMSIS serves whatever a worker's queue holds. */
        .batch_max = own_queues ? VARIANTS_LATENCY_MAX : VARIANTS_BATCH_MAX,
        .objective_ns = world->objective_ns,
        .duration_ns = found->duration_ns,
        .load_known = found->rates == NULL && !is_daemon(scheme),
        .late = drops(scheme) ? VARIANTS_DROP_LATE : is_daemon(scheme) ? VARIANTS_SERVE_LATE_LAST : VARIANTS_SERVE_LATE,
        .noise_share = world->noise_share,
    };
}

static enum leat_status
run_once(const struct variants_options *options, struct variants_result *result)
{
    struct variants_run *run;
    enum leat_status status = variants_run_create(&run);

    if (status == LEAT_OK) {
        status = variants_simulate(run, options, result);
        variants_run_destroy(run);
    }
    return status;
}

/* What one run says; results themselves are large. */
struct counts {
    double accuracy, violation;
    uint64_t in_time, violations, accuracy_sum, response_sum_ns, served;
};

struct job {
    uint32_t at; /* case */
    enum ramsis_scheme scheme;
    uint32_t seed;
    struct counts counts;
};

struct campaign {
    const struct ramsis_program *program;
    const char *what;
    struct ramsis_case *cases;
    struct job *jobs;
    uint32_t job_count;
    _Atomic uint32_t done;
    struct {
        double accuracy, violation;
    } *alone; /* [case][variant] */
    uint32_t variants;
};

/* A variant by itself, on another seed than those that judge. */
static enum leat_status
alone_job(struct simulate_run *unused, uint32_t index, void *context)
{
    struct campaign *campaign = context;
    const struct ramsis_case *found = &campaign->cases[index / campaign->variants];
    const uint32_t variant = index % campaign->variants;
    enum leat_status status = LEAT_OK;

    (void)unused;
    say(campaign->program, campaign->what, atomic_fetch_add(&campaign->done, 1), campaign->job_count);
    campaign->alone[index].violation = 1;
    if (has(found->schemes, RAMSIS_FIXED) && variant < found->world->table->count) {
        const struct variants_table table = {.count = 1, .rows = &found->world->table->rows[variant]};
        struct variants_options options = options_for(found, RAMSIS_FIXED);
        struct variants_result *result = ramsis_memory(1, sizeof(*result));
        options.table = &table;
        options.seed = CHOICE_SEED(found->world->program);
        options.abort_waiting = ABORT_WAITING;
        status = run_once(&options, result);
        campaign->alone[index].accuracy = variants_accuracy(&table, result);
        campaign->alone[index].violation = variants_violation(result);
        free(result);
    }
    return status;
}

static void
choose_fixed(struct campaign *campaign, uint32_t count)
{
    for (uint32_t c = 0; c < count; c++) {
        campaign->variants = campaign->cases[c].world->table->count > campaign->variants
                                 ? campaign->cases[c].world->table->count
                                 : campaign->variants;
    }
    const uint32_t trials = count * campaign->variants;
    campaign->alone = ramsis_memory(trials, sizeof(*campaign->alone));
    campaign->job_count = trials;
    ramsis_need(simulate_parallel(campaign->program->threads, trials, alone_job, campaign, NULL, NULL));
    for (uint32_t t = 0; t < trials; t++) {
        struct ramsis_case *found = &campaign->cases[t / campaign->variants];
        const uint32_t best = t - t % campaign->variants + found->fixed_variant;
        if (campaign->alone[t].violation < VIOLATIONS_MAX &&
            (campaign->alone[best].violation >= VIOLATIONS_MAX ||
             campaign->alone[t].accuracy > campaign->alone[best].accuracy)) {
            found->fixed_variant = t % campaign->variants;
        }
    }
    free(campaign->alone);
}

static enum leat_status
judge_job(struct simulate_run *unused, uint32_t index, void *context)
{
    struct campaign *campaign = context;
    struct job *job = &campaign->jobs[index];
    const struct ramsis_case *found = &campaign->cases[job->at];
    struct variants_options options = options_for(found, job->scheme);
    const struct variants_table table = {.count = 1, .rows = &found->world->table->rows[found->fixed_variant]};
    struct variants_result *result = ramsis_memory(1, sizeof(*result));

    (void)unused;
    say(campaign->program, campaign->what, atomic_fetch_add(&campaign->done, 1), campaign->job_count);
    options.table = job->scheme == RAMSIS_FIXED ? &table : options.table;
    options.seed = campaign->program->first_seed + job->seed;
    const enum leat_status status = run_once(&options, result);
    job->counts = (struct counts){
        .accuracy = variants_accuracy(options.table, result),
        .violation = variants_violation(result),
        .in_time = result->served - result->late,
        .violations = result->late + result->expired + result->rejected + result->waiting_late,
        .accuracy_sum = result->accuracy_sum,
        .response_sum_ns = result->response_sum_ns,
        .served = result->served,
    };
    free(result);
    return status;
}

/* A scheme's jobs of one case, seed after seed. */
static struct ramsis_outcome
sum_up(const struct job *jobs, uint32_t seeds)
{
    struct ramsis_outcome outcome = {.low_accuracy = INFINITY, .low_violation = INFINITY};
    struct counts all = {0};

    for (uint32_t s = 0; s < seeds; s++) {
        const struct counts *counts = &jobs[s].counts;
        all.in_time += counts->in_time;
        all.violations += counts->violations;
        all.accuracy_sum += counts->accuracy_sum;
        all.response_sum_ns += counts->response_sum_ns;
        all.served += counts->served;
        outcome.low_accuracy = fmin(outcome.low_accuracy, counts->accuracy);
        outcome.high_accuracy = fmax(outcome.high_accuracy, counts->accuracy);
        outcome.low_violation = fmin(outcome.low_violation, counts->violation);
        outcome.high_violation = fmax(outcome.high_violation, counts->violation);
    }
    const double queries = (double)(all.in_time + all.violations), accuracy_sum = (double)all.accuracy_sum / 1e6;
    LEAT_ASSERT(queries > 0);
    outcome.queries = all.in_time + all.violations;
    outcome.accuracy = all.in_time > 0 ? accuracy_sum / (double)all.in_time : jobs[0].counts.accuracy;
    outcome.violation = (double)all.violations / queries;
    outcome.net = (accuracy_sum - RAMSIS_LATE_PENALTY * (double)all.violations) / queries;
    outcome.response_ms = all.served > 0 ? (double)all.response_sum_ns / (double)all.served / 1e6 : 0;
    return outcome;
}

void
ramsis_cases_run(const struct ramsis_program *program, const char *what, struct ramsis_case *cases, uint32_t count)
{
    struct campaign campaign = {.program = program, .what = what, .cases = cases};

    choose_fixed(&campaign, count);
    campaign.jobs = ramsis_memory((size_t)count * RAMSIS_SCHEMES * program->seeds, sizeof(*campaign.jobs));
    campaign.job_count = 0;
    atomic_store(&campaign.done, 0);
    for (uint32_t c = count; c-- > 0;) { /* the highest rates, which take longest, first */
        for (enum ramsis_scheme scheme = 0; scheme < RAMSIS_SCHEMES; scheme++) {
            for (uint32_t seed = 0; has(cases[c].schemes, scheme) && seed < program->seeds; seed++) {
                campaign.jobs[campaign.job_count++] = (struct job){.at = c, .scheme = scheme, .seed = seed};
            }
        }
    }
    ramsis_need(simulate_parallel(program->threads, campaign.job_count, judge_job, &campaign, NULL, NULL));
    for (uint32_t j = 0; j < campaign.job_count; j += program->seeds) {
        cases[campaign.jobs[j].at].outcomes[campaign.jobs[j].scheme] = sum_up(&campaign.jobs[j], program->seeds);
    }
    for (uint32_t c = 0; c < count; c++) {
        cases[c].bound = bound_of(&cases[c], RAMSIS_LATE_PENALTY);
        cases[c].bound_accuracy = overloaded(&cases[c]) ? (double)NAN : bound_of(&cases[c], 1000);
    }
    free(campaign.jobs);
}

/* ---- What policies cost ------------------------------------------------------------------------ */

static uint64_t
action_bytes(const struct leat_policy *policy)
{
    return (uint64_t)leat_policy_row_count(policy) * (policy->slack_bins + 1) * sizeof(uint16_t);
}

void
ramsis_cost_measure(struct ramsis_world *world, struct ramsis_cost *ret_cost)
{
    const struct pooling pooling = {.dispersion_permille = 1000, .threads = 1};
    const uint32_t threads = world->program->threads;
    struct leat_policy *policy;
    struct ramsis_cost cost = {.rate_count = world->rate_count};

    double before = cpu_seconds();
    policy = make_dealt(world, LEAT_POLICY_PAPER, 1, 1);
    cost.paper_s = (cpu_seconds() - before) / world->rate_count;
    cost.paper_bytes = action_bytes(policy);
    cost.paper_all_bytes = policy->bytes;
    free(policy);
    before = cpu_seconds();
    free(make_dealt(world, LEAT_POLICY_DEALT, 1, 1));
    cost.dealt_s = (cpu_seconds() - before) / world->rate_count;
    before = cpu_seconds();
    policy = make_pool(world, pooling);
    cost.pool_s = (cpu_seconds() - before) / world->rate_count;
    cost.pool_bytes = action_bytes(policy);
    cost.pool_all_bytes = policy->bytes;
    free(policy);

    before = ramsis_seconds();
    free(make_dealt(world, LEAT_POLICY_PAPER, 1, threads));
    cost.paper_all_s = ramsis_seconds() - before;
    before = ramsis_seconds();
    free(make_pool(world, (struct pooling){.dispersion_permille = 1000, .threads = threads}));
    cost.pool_all_s = ramsis_seconds() - before;
    before = ramsis_seconds();
    world->policies[RAMSIS_SWITCHING] = make_switching(world);
    cost.switching_s = ramsis_seconds() - before;
    *ret_cost = cost;
}
